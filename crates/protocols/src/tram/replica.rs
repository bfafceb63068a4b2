//! A replica: its state, and the order in which a poll looks at things. Each role's part is in a
//! file of its own: [`super::follower`], [`super::takeover`], [`super::leader`],
//! [`super::transfer`].

use super::layout::{EpochPromise, HALVES, Layout, PromiseGrant, ReplicaRow};
use super::leader::Leader;
use super::mutants::TramMutant;
use super::params;
use super::ring::RingRecord;
use super::takeover::LeaderCandidate;
use super::ticket::TicketRequest;
use super::transfer::{IncomingTransfer, OutgoingTransfer};
use crate::layers::failure_detector::{FailureDetector, PATIENCE_GROWTH_MAX};
use crate::mutant::Mutants;
use alloc::vec::Vec;
use amcast_core::memory::{
    AccessOutcome, LINE_WORDS, LineStamp, Memory, MemoryInput, MemoryOutput, RegionId,
    RegionWindow, WriteSource,
};
use amcast_core::parameters::{HEARTBEAT, SUSPECT};
use amcast_core::step::{Oracle, ProtocolStatus, WaitReason, WakeReason};
use amcast_core::{
    Config, ConfigError, Gid, GroupSet, Input, MsgId, Outbox, Pid, Protocol, ProtocolEvent, Role,
    Span, Time,
};

/// How often a process that is polled without a pause looks at what is not on the way of a message:
/// rows, cursors, heartbeats, credits. Far below what anyone waits for, and dear enough to leave out.
pub(super) const ROUND: Span = Span::micros(2);

/// A TRAM replica.
#[derive(Debug)]
pub(super) struct TramReplica {
    pub(super) me: Pid,
    pub(super) group: Gid,
    /// Its number in the group (`s`).
    pub(super) rank: usize,
    pub(super) n: usize,
    pub(super) quorum: usize,
    pub(super) config: Config,
    pub(super) layout: Layout,
    pub(super) mutants: Mutants<TramMutant>,
    pub(super) batch_lines: u32,
    pub(super) pipeline: usize,
    pub(super) incarnation: u32,
    pub(super) now: Time,
    /// When it last looked at everything.
    looked: Time,
    /// When it must look again at the latest, and for what.
    due: (Time, WakeReason),

    /// Its promise, and the writer to which its log is open.
    pub(super) promise: EpochPromise,
    /// The log that is open for writing, and for which term.
    pub(super) open: Option<TermLog>,
    /// The region that is being revoked; it is looked at once more when that is done.
    pub(super) closing: Option<TermLog>,
    /// The highest epoch it has seen anywhere.
    pub(super) epoch_seen: u32,
    /// The log it reads: the one of the highest epoch that was installed here.
    pub(super) force: Option<TermLog>,

    /// The next log position to consume (`STD`).
    pub(super) consumed: u64,
    /// The end of the log that is known to be decided (`FUO`: the first position that is not).
    pub(super) decided: u64,
    /// Below this position the cursors came with a state transfer, and entries do not move them.
    pub(super) cursors_from: u64,
    /// The position of the last delivery.
    pub(super) delivered: u64,
    /// How far the application has applied deliveries.
    pub(super) applied: u64,
    /// The position of the state in force in the application, if that answers what was asked for last.
    pub(super) installed: Option<u64>,
    /// How many states the driver was asked for.
    pub(super) needs: u64,
    /// Entries before this position are applied and not needed here; only grows within a life.
    pub(super) clear: u64,
    /// The buffers of `HM`: one for each client, then the parent's.
    pub(super) sources: Vec<BufferCursor>,
    /// By client: the lease of the latest holder that it knows.
    pub(super) holders: Vec<u32>,
    pub(super) edges: Vec<ChildGroup>,

    /// By rank; its own entry is not used.
    pub(super) peers: Vec<ReplicaPeer>,
    pub(super) detector: FailureDetector,
    /// The row as last published.
    pub(super) row: ReplicaRow,
    /// Publish the row even if nothing urgent changed.
    pub(super) row_due: bool,
    pub(super) health: ReplicaHealth,
    pub(super) phase: ReplicaPhase,
    pub(super) outgoing: Option<OutgoingTransfer>,
    /// Pieces of heads on the way, which copy from the staging area: only when they have arrived, or are
    /// lost, may another head be staged.
    pub(super) staged: u32,
    /// By half of its own log: writes in flight, which copy from there, of any term.
    pub(super) flying: [u32; HALVES],
    /// By rank: the attempt at a state transfer that it served last; 0 for none.
    pub(super) served: Vec<u32>,
    /// Not before this time does it try again to become leader.
    pub(super) retry_at: Time,
    /// Messages for the current step's bells: whether someone beside the leader must hurry.
    pub(super) hurry: bool,
}

/// A log of one term: open, or in force.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct TermLog {
    pub(super) writer: usize,
    pub(super) half: usize,
    pub(super) epoch: u32,
}

/// How far a buffer of `HM` is taken up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct BufferCursor {
    /// The lease under which it is filled; 0 before the first message.
    pub(super) lease: u32,
    /// The first position that is not in the decided log (`slot_in`).
    pub(super) next: u64,
    /// The position that was announced to its writer.
    pub(super) told: u64,
    /// The lease or term with which it was announced.
    pub(super) told_as: u64,
    /// A leader's: whether a new lease may have begun.
    pub(super) probe: bool,
    /// A leader's: what lies there makes no sense.
    pub(super) broken: bool,
}

/// A child group.
#[derive(Clone, Debug)]
pub(super) struct ChildGroup {
    pub(super) child: Gid,
    /// Everything for the child that lies in the log before `log` is taken over by the child, and
    /// `out` is its buffer's position there (`slot_out`).
    pub(super) log: u64,
    pub(super) out: u64,
    /// How far the child has taken over its buffer.
    pub(super) taken: u64,
}

/// The knowledge of another replica of the group.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReplicaPeer {
    /// Which life of it is the latest known.
    pub(super) incarnation: u32,
    /// Its row, if it has spoken in that life.
    pub(super) row: Option<ReplicaRow>,
    /// This replica's own row is on the way to it: none is sent before that is answered, so that
    /// a slow way holds one and not a queue of them.
    pub(super) telling: bool,
    /// A newer row waits for that.
    pub(super) untold: bool,
}

/// Whether a replica has all state.
#[derive(Debug)]
pub(super) enum ReplicaHealth {
    /// It has.
    Fit,
    /// It has the log, and waits until its application has every delivery up to this position.
    Following(u64),
    /// It missed part of the log, or lost everything in a crash, and gets it back.
    Lacking(IncomingTransfer),
}

/// The role of a replica in its group.
#[derive(Debug)]
pub(super) enum ReplicaPhase {
    Follower,
    Candidate(LeaderCandidate),
    Leader(Leader),
}

impl TramReplica {
    pub(super) fn new(me: Pid, config: &Config) -> Result<Self, ConfigError> {
        let (cluster, overlay) = (config.cluster(), config.overlay());
        let Role::Replica { group, rank } = cluster.role(me) else {
            return Err(ConfigError::Role("not a replica"));
        };
        let (rank, n) = (usize::from(rank), cluster.replicas());
        // Leaders of the groups are spread over the ranks: group g prefers rank g mod n.
        let preference: Vec<usize> = (0..n).map(|i| (group.index() + i) % n).collect();
        let (interval, timeout) = (HEARTBEAT.get(config), SUSPECT.get(config));
        let mut detector = FailureDetector::new(rank, &preference, interval, timeout);
        // A machine without cores to spare stays so for a while: what it learns it keeps.
        detector.grow_patience_to(PATIENCE_GROWTH_MAX);
        let edge = |child| ChildGroup { child, log: 0, out: 0, taken: 0 };
        Ok(Self {
            me,
            group,
            rank,
            n,
            quorum: cluster.quorum(),
            config: config.clone(),
            layout: Layout::new(config)?,
            mutants: Mutants::of(config),
            batch_lines: config.get(&params::BATCH_LINES) as u32,
            pipeline: config.get(&params::PIPELINE) as usize,
            incarnation: 0,
            now: Time::ZERO,
            looked: Time::ZERO,
            due: (Time::ZERO, WakeReason::Heartbeat),
            // [TRAM 2:1] nothing decided, nobody leads, no permission given.
            promise: EpochPromise::default(),
            open: None,
            closing: None,
            epoch_seen: 0,
            force: None,
            consumed: 0,
            decided: 0,
            cursors_from: 0,
            delivered: 0,
            applied: 0,
            installed: None,
            needs: 0,
            clear: 0,
            sources: alloc::vec![BufferCursor::default(); cluster.clients() + 1],
            holders: alloc::vec![0; cluster.clients()],
            edges: overlay.children(group).iter().map(edge).collect(),
            peers: alloc::vec![ReplicaPeer::default(); n],
            detector,
            row: ReplicaRow::default(),
            row_due: true,
            health: ReplicaHealth::Fit,
            phase: ReplicaPhase::Follower,
            outgoing: None,
            staged: 0,
            flying: [0; HALVES],
            served: alloc::vec![0; n],
            retry_at: Time::ZERO,
            hurry: false,
        })
    }

    fn start(&mut self, incarnation: u32, out: &mut Outbox<Memory>) {
        self.incarnation = incarnation;
        if incarnation > 0 && !self.mutants.is(TramMutant::ForgetsAmnesia) {
            self.health = ReplicaHealth::Lacking(IncomingTransfer::after_crash());
            out.event(ProtocolEvent::Lagging);
        }
    }

    // [TRAM 2] the main loop: a replica reads these regions in this order. Regions on the path of a
    // message are read on every poll, the others now and then.
    fn poll(&mut self, view: RegionWindow<'_>, out: &mut Outbox<Memory>) {
        self.settle_promise(view, out);
        let due = self.now >= self.due.0 || self.looked == Time::ZERO;
        let round = due || self.now.since(self.looked) >= ROUND;
        if round {
            self.looked = self.now;
            self.hear(view, out);
            self.prepare_to_lead(out);
        }
        self.adopt(view);
        match self.phase {
            ReplicaPhase::Follower => self.consider(out),
            ReplicaPhase::Candidate(_) => self.canvass(view, out),
            ReplicaPhase::Leader(_) => self.lead(view, out),
        }
        self.consume(view, out);
        self.pass_on(view, out);
        if round {
            self.look_after(view, out);
        }
    }

    /// The consequences of a round of looking at the others.
    fn look_after(&mut self, view: RegionWindow<'_>, out: &mut Outbox<Memory>) {
        let beat = self.detector.beat(self.now);
        self.settle_edges(view);
        self.take_in(view, out);
        self.give_state(view, out);
        self.settle_applied();
        self.tell_sources(beat, out);
        self.publish(beat, out);
        self.due = self.detector.deadline();
    }

    fn done(
        &mut self,
        view: RegionWindow<'_>,
        ticketed: TicketRequest,
        outcome: AccessOutcome<'_>,
        out: &mut Outbox<Memory>,
    ) {
        match ticketed {
            TicketRequest::Log { rank, epoch, half, low } => {
                self.flying[half] -= 1;
                self.log_answered(rank, epoch, low, outcome, out);
                self.consume(view, out);
                self.pass_on(view, out);
            }
            TicketRequest::Forward { group, rank, half } => {
                self.flying[half] -= 1;
                self.forward_answered(group, rank);
            }
            TicketRequest::Survey { rank, epoch } => {
                self.survey_answered(rank, epoch, outcome, view, out);
            }
            TicketRequest::Copy { rank, epoch } => {
                self.copy_answered(rank, epoch, outcome, view, out)
            }
            TicketRequest::Row { rank } => self.row_answered(rank, outcome),
            TicketRequest::Confirm { rank, epoch } => {
                self.confirm_answered(rank, epoch, outcome, view, out);
            }
            // A lost piece is asked for again: it is only awaited because it copies from here.
            TicketRequest::State { .. } => self.staged -= 1,
            TicketRequest::Sent { .. } => {}
        }
    }

    /// The row arrived, or did not: the next one may be sent.
    fn row_answered(&mut self, rank: usize, outcome: AccessOutcome<'_>) {
        if outcome == AccessOutcome::Lost {
            // Only a hint, as an oracle's: a beat that arrives takes it back.
            self.detector.suspect(rank);
        }
        let peer = &mut self.peers[rank];
        peer.telling = false;
        self.row_due |= core::mem::take(&mut peer.untold);
    }

    fn hint(&mut self, oracle: Oracle) {
        self.due = (Time::ZERO, WakeReason::Suspicion);
        let rank_of = |me: &Self, pid| match me.config.cluster().role(pid) {
            Role::Replica { group, rank } if group == me.group => Some(usize::from(rank)),
            _ => None,
        };
        match oracle {
            Oracle::Suspect(pid) => {
                if let Some(rank) = rank_of(self, pid) {
                    self.detector.suspect(rank);
                }
            }
            Oracle::Trust(pid) => {
                if let Some(rank) = rank_of(self, pid) {
                    self.detector.trust(rank);
                }
            }
            Oracle::Leader(group, pid) if group == self.group => {
                self.detector.override_leader(rank_of(self, pid));
            }
            Oracle::NoLeader(group) if group == self.group => self.detector.override_leader(None),
            Oracle::Leader(..) | Oracle::NoLeader(_) => {}
        }
    }

    /// Whether it has the log, and consumes it.
    pub(super) const fn follows(&self) -> bool {
        !matches!(self.health, ReplicaHealth::Lacking(_))
    }

    /// Whether it has all state, the application's included.
    pub(super) const fn is_fit(&self) -> bool {
        matches!(self.health, ReplicaHealth::Fit)
    }

    /// The other ranks of the group.
    pub(super) fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let me = self.rank;
        (0..self.n).filter(move |&r| r != me)
    }

    pub(super) fn pid(&self, rank: usize) -> Pid {
        self.config.cluster().replica(self.group, rank)
    }

    /// The number of the parent's buffer among the sources.
    pub(super) fn parent_source(&self) -> usize {
        self.sources.len() - 1
    }

    /// Writes one line, made here, that needs no answer.
    pub(super) fn write_line(
        out: &mut Outbox<Memory>,
        to: Pid,
        region: RegionId,
        words: [u64; LINE_WORDS],
        bell: bool,
    ) {
        let source = WriteSource::line(words, LineStamp::new(0, 0));
        out.ask(MemoryOutput::Write { to, region, at: 0, source, ticket: None, bell });
    }
}

/// Moves the cursor of a record's source past it.
pub(super) fn take_up(layout: &Layout, cursors: &mut [BufferCursor], record: &RingRecord) {
    let parent = cursors.len() - 1;
    let (i, ring) = if record.source == RingRecord::PARENT {
        (parent, layout.hm_parent(0))
    } else {
        (usize::from(record.source), layout.hm_client(0))
    };
    let Some(cursor) = cursors.get_mut(i) else { return };
    if i != parent && record.lease > cursor.lease {
        (cursor.lease, cursor.next) = (record.lease, 0);
    }
    cursor.next = ring.after(cursor.next, record.lines());
}

impl Protocol for TramReplica {
    type Medium = Memory;

    fn step(
        &mut self,
        now: Time,
        view: RegionWindow<'_>,
        input: Input<'_, Memory>,
        out: &mut Outbox<Memory>,
    ) {
        self.now = now;
        match input {
            Input::Start { incarnation } => self.start(incarnation, out),
            Input::Medium(MemoryInput::Poll) | Input::Wake => self.poll(view, out),
            Input::Medium(MemoryInput::Done(ticket, outcome)) => {
                if let Some(ticketed) = TicketRequest::of(ticket) {
                    self.done(view, ticketed, outcome, out);
                }
            }
            Input::Medium(MemoryInput::Fresh { pid, incarnation }) => {
                self.emptied(pid, incarnation, out)
            }
            Input::Applied(position) => self.applied = self.applied.max(position),
            Input::Installed { position, needs } => self.installed(position, needs, out),
            Input::Unfit => self.unfit(),
            Input::Oracle(oracle) => self.hint(oracle),
            Input::Submit(_) => unreachable!("room() is 0: a replica is sent to by clients"),
            // It keeps no log, and its members are fixed.
            Input::Leave
            | Input::Stored { .. }
            | Input::Torn
            | Input::Lost
            | Input::Durable(_)
            | Input::Loaded { .. }
            | Input::Checkpointed(_)
            | Input::Barrier(_) => {}
        }
    }

    fn deadline(&self) -> Option<(Time, WakeReason)> {
        // The second half of a promise is due as soon as the first one is carried out.
        if self.promise.grant == PromiseGrant::Closed && self.promise.epoch > 0 {
            return Some((Time::ZERO, WakeReason::Retry));
        }
        let ReplicaPhase::Leader(leader) = &self.phase else { return Some(self.due) };
        let flush = leader.tells_at().map(|at| (at, WakeReason::Flush));
        Some(flush.filter(|flush| flush.0 < self.due.0).unwrap_or(self.due))
    }

    fn room(&self, _: GroupSet, _: usize) -> usize {
        0
    }

    fn payload_max(&self) -> usize {
        self.layout.payload_max()
    }

    fn waiting(&self, _: &mut dyn FnMut(MsgId, WaitReason)) {
        // Waiting messages lie in the buffers, and their client announces them.
    }

    fn fit(&self) -> bool {
        self.is_fit()
    }

    fn status(&self) -> ProtocolStatus {
        let leader = match (&self.phase, self.force) {
            (ReplicaPhase::Leader(_), _) => Some(self.me),
            (_, Some(force)) => Some(self.pid(force.writer)),
            _ => None,
        };
        ProtocolStatus {
            leader,
            epoch: u64::from(self.promise.epoch),
            delivered: self.consumed,
            decided: self.decided,
            backlog: self.decided.saturating_sub(self.consumed),
            follows: self.follows(),
        }
    }
}

//! A replica: its state, and the order in which a poll looks at things. Each role's part is in a
//! file of its own: [`super::follower`], [`super::takeover`], [`super::leader`],
//! [`super::transfer`].

use super::dynamic_overlay::{OverlayChanges, changes_of};
use super::hung;
use super::layout::{HALVES, Layout, ReplicaRow};
use super::leader::Leader;
use super::mutants::TramMutant;
use super::overdue::OverdueRecords;
use super::params;
use super::permissions::LogPermissions;
use super::progress::LogProgress;
use super::retry::TakeoverPause;
use super::ring::{RingRecord, RingRecordKind};
use super::takeover::LeaderCandidate;
use super::ticket::TicketRequest;
use super::transfer::{IncomingTransfer, OutgoingTransfer, POSITION_MAX};
use crate::layers::failure_detector::{FailureDetector, PATIENCE_GROWTH_MAX};
use crate::mutant::Mutants;
use crate::tram::ramcast::exchange::{TimestampExchange, source_of};
use alloc::vec::Vec;
use amcast_core::memory::{
    AccessOutcome, LINE_WORDS, LineStamp, Memory, MemoryInput, MemoryOutput, RegionId,
    RegionWindow, WriteSource,
};
use amcast_core::parameters::{HEARTBEAT, SUSPECT};
use amcast_core::step::{Oracle, ProtocolStatus, WaitReason, WakeReason};
use amcast_core::{
    Config, ConfigError, Gid, GroupSet, Input, MsgId, Outbox, Overlay, Pid, Protocol,
    ProtocolEvent, Role, Span, Time,
};

/// How often a process that is polled without a pause looks at what is not on the way of a message:
/// rows, cursors, heartbeats, credits. Far below what anyone waits for, and dear enough to leave out.
pub(crate) const ROUND: Span = Span::micros(2);

/// A TRAM replica.
#[derive(Debug)]
pub(crate) struct TramReplica {
    pub(crate) place: ReplicaPlace,
    pub(crate) config: Config,
    pub(crate) layout: Layout,
    pub(crate) mutants: Mutants<TramMutant>,
    pub(crate) limits: LeaderLimits,
    pub(crate) now: Time,
    pub(crate) timers: ReplicaTimers,
    /// Between two attempts to lead.
    pub(crate) pause: TakeoverPause,
    pub(crate) permissions: LogPermissions,
    pub(crate) progress: LogProgress,
    pub(crate) buffers: BufferCursors,
    pub(crate) rows: GroupRows,
    pub(crate) health: ReplicaHealth,
    pub(crate) phase: ReplicaPhase,
    pub(crate) transfers: OutgoingWrites,
    /// RamCast's: the exchange of timestamps with the other groups, in place of the tree.
    pub(crate) exchange: Option<alloc::boxed::Box<TimestampExchange>>,
    /// Where the tree may change: the trees so far.
    pub(crate) changes: Option<alloc::boxed::Box<OverlayChanges>>,
    /// Messages for the current step's bells: whether someone beside the leader must hurry.
    pub(crate) hurry: bool,
    /// A follower's: the records in its buffers that its leader does not take up.
    pub(crate) overdue: OverdueRecords,
}

/// The place of a replica in the cluster, and its life.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReplicaPlace {
    pub(crate) me: Pid,
    pub(crate) group: Gid,
    /// Its number in the group (`s`).
    pub(crate) rank: usize,
    /// How many replicas the group has.
    pub(crate) n: usize,
    pub(crate) quorum: usize,
    pub(crate) incarnation: u32,
}

/// How much a leader does at a time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeaderLimits {
    /// Lines that it takes from a buffer in a step.
    pub(crate) batch_lines: u32,
    /// Batches that are on the way.
    pub(crate) pipeline: usize,
    /// Heartbeats of a follower until its application hangs.
    pub(crate) hung_beats: u64,
}

/// When a replica acts without a message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReplicaTimers {
    /// When it last looked at everything.
    pub(crate) looked: Time,
    /// When it must look again at the latest, and for what.
    pub(crate) due: (Time, WakeReason),
}

/// The cursors of a replica in the buffers of `HM`, above and below it in the tree.
#[derive(Clone, Debug)]
pub(crate) struct BufferCursors {
    /// Its own: one for each client, then the parent's; where the tree may change, one for each group.
    pub(crate) sources: Vec<BufferCursor>,
    /// By client: the lease of the latest holder that it knows.
    pub(crate) holders: Vec<u32>,
    /// Those of the child groups; where the tree may change, of all other groups. RamCast has none: behind the parent's place, its sources have one for each group.
    pub(crate) edges: Vec<ChildGroup>,
}

/// The rows by which the replicas of a group tell each other how far they are.
#[derive(Debug)]
pub(crate) struct GroupRows {
    /// By rank; its own entry is not used.
    pub(crate) peers: Vec<ReplicaPeer>,
    pub(crate) detector: FailureDetector,
    /// The row as last published.
    pub(crate) own: ReplicaRow,
    /// Publish the row even if nothing urgent changed.
    pub(crate) due: bool,
}

/// Writes in flight that copy from this replica's memory, and the state transfer that it serves.
#[derive(Debug)]
pub(crate) struct OutgoingWrites {
    pub(crate) outgoing: Option<OutgoingTransfer>,
    /// Pieces of heads on the way, which copy from the staging area: only when they have arrived, or are
    /// lost, may another head be staged.
    pub(crate) staged: u32,
    /// By half of its own log: writes in flight, which copy from there, of any term.
    pub(crate) flying: [u32; HALVES],
    /// By rank: the attempt at a state transfer that it served last; 0 for none.
    pub(crate) served: Vec<u32>,
}

/// How far a buffer of `HM` is taken up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct BufferCursor {
    /// The lease under which it is filled; 0 before the first message.
    pub(crate) lease: u32,
    /// The first position that is not in the decided log (`slot_in`).
    pub(crate) next: u64,
    /// The position that was announced to its writer.
    pub(crate) told: u64,
    /// The lease or term with which it was announced.
    pub(crate) told_as: u64,
    /// A leader's: whether a new lease may have begun.
    pub(crate) probe: bool,
    /// A leader's: what lies there makes no sense.
    pub(crate) broken: bool,
    /// A leader's, of another group's buffers: a bit for each rank whose records make no sense, which was noted.
    pub(crate) noted: u32,
    /// Of a client's: the least number that its next message may have. Of all leases of its place.
    pub(crate) number: u64,
}

/// A child group.
#[derive(Clone, Debug)]
pub(crate) struct ChildGroup {
    pub(crate) child: Gid,
    /// Everything for the child that lies in the log before `log` is taken over by the child, and
    /// `out` is its buffer's position there (`slot_out`).
    pub(crate) log: u64,
    pub(crate) out: u64,
    /// How far the child has taken over its buffer.
    pub(crate) taken: u64,
}

/// The knowledge of another replica of the group.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReplicaPeer {
    /// Which life of it is the latest known.
    pub(crate) incarnation: u32,
    /// Its row, if it has spoken in that life.
    pub(crate) row: Option<ReplicaRow>,
    /// The words of that row.
    pub(crate) shown: [u64; LINE_WORDS],
    /// This replica's own row is on the way to it: none is sent before that is answered, so that
    /// a slow way holds one and not a queue of them.
    pub(crate) telling: bool,
    /// A newer row waits for that.
    pub(crate) untold: bool,
}

/// Whether a replica has all state.
#[derive(Debug)]
pub(crate) enum ReplicaHealth {
    /// It has.
    Fit,
    /// It has the log, and waits until its application has every delivery up to this position.
    Following(u64),
    /// It missed part of the log, or lost everything in a crash, and gets it back.
    Lacking(IncomingTransfer),
}

/// The role of a replica in its group.
#[derive(Debug)]
pub(crate) enum ReplicaPhase {
    Follower,
    Candidate(LeaderCandidate),
    Leader(Leader),
}

impl ReplicaPlace {
    /// The other ranks of the group.
    pub(crate) fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let me = self.rank;
        (0..self.n).filter(move |&r| r != me)
    }
}

impl BufferCursor {
    /// A leader took up a record; a mutant takes it up twice. Its number counts where the source is a client.
    pub(crate) fn pass(&mut self, record: &RingRecord, twice: bool) {
        self.note_number(record);
        if twice && self.told == 0 {
            self.told = 1;
        } else {
            self.told = 0;
            self.next += u64::from(record.lines());
        }
    }

    /// A record of this source is in the log.
    pub(crate) fn note_number(&mut self, record: &RingRecord) {
        if record.kind == RingRecordKind::Message {
            self.number = self.number.max(record.msg.seq.saturating_add(1));
        }
    }
}

impl BufferCursors {
    /// The number of the parent's buffer among the sources; where the tree may change, of the first group's.
    pub(crate) fn parent_source(&self) -> usize {
        self.holders.len()
    }
}

impl GroupRows {
    /// This replica's row arrived at another one, or did not: the next one may be sent.
    fn on_answer(&mut self, rank: usize, outcome: AccessOutcome<'_>) {
        if outcome == AccessOutcome::Lost {
            // Only a hint, as an oracle's: a beat that arrives takes it back.
            self.detector.suspect(rank);
        }
        let peer = &mut self.peers[rank];
        peer.telling = false;
        self.due |= core::mem::take(&mut peer.untold);
    }
}

impl TramReplica {
    /// A replica of a group in the tree.
    pub(crate) fn new(me: Pid, config: &Config) -> Result<Self, ConfigError> {
        let layout = Layout::new(config)?;
        let mut replica = Self::of_group((me, config), layout, Mutants::of(config))?;
        replica.changes = changes_of(&replica.layout, config);
        let (group, cluster) = (replica.place.group, config.cluster());
        let (mut children, mut above) = (config.overlay().children(group), 1);
        if replica.changes.is_some() {
            // Each other group may become a child, and each a parent; its own ones are not used.
            children = cluster.all_groups().iter().filter(|&g| g != group).collect();
            above = cluster.groups();
        }
        let edge = |child| ChildGroup { child, log: 0, out: 0, taken: 0 };
        replica.buffers.edges = children.iter().map(edge).collect();
        replica.buffers.sources.resize(cluster.clients() + above, BufferCursor::default());
        Ok(replica)
    }

    /// A replica of a group that has no others above or below it.
    pub(crate) fn of_group(
        (me, config): (Pid, &Config),
        layout: Layout,
        mutants: Mutants<TramMutant>,
    ) -> Result<Self, ConfigError> {
        let cluster = config.cluster();
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
        let sources = alloc::vec![BufferCursor::default(); cluster.clients() + 1];
        let quorum = cluster.quorum();
        Ok(Self {
            place: ReplicaPlace { me, group, rank, n, quorum, incarnation: 0 },
            config: config.clone(),
            layout,
            mutants,
            limits: LeaderLimits {
                batch_lines: config.get(&params::BATCH_LINES) as u32,
                pipeline: config.get(&params::PIPELINE) as usize,
                hung_beats: hung::hung_beats(config),
            },
            now: Time::ZERO,
            timers: ReplicaTimers { looked: Time::ZERO, due: (Time::ZERO, WakeReason::Heartbeat) },
            pause: TakeoverPause::new(config, rank),
            // [TRAM 2:1] nothing decided, nobody leads, no permission given.
            permissions: LogPermissions::default(),
            progress: LogProgress::default(),
            buffers: BufferCursors {
                sources,
                holders: alloc::vec![0; cluster.clients()],
                edges: Vec::new(),
            },
            rows: GroupRows {
                peers: alloc::vec![ReplicaPeer::default(); n],
                detector,
                own: ReplicaRow::default(),
                due: true,
            },
            health: ReplicaHealth::Fit,
            phase: ReplicaPhase::Follower,
            transfers: OutgoingWrites {
                outgoing: None,
                staged: 0,
                flying: [0; HALVES],
                served: alloc::vec![0; n],
            },
            exchange: None,
            changes: None,
            hurry: false,
            overdue: OverdueRecords::new(config),
        })
    }

    fn start(&mut self, incarnation: u32, out: &mut Outbox<Memory>) {
        self.place.incarnation = incarnation;
        if incarnation > 0 && !self.mutants.is(TramMutant::ForgetsAmnesia) {
            self.health = ReplicaHealth::Lacking(IncomingTransfer::after_crash());
            out.event(ProtocolEvent::Lagging);
        }
    }

    // [TRAM 2] the main loop: a replica reads these regions in this order. Regions on the path of a
    // message are read on every poll, the others now and then.
    #[inline(never)]
    fn poll(&mut self, view: RegionWindow<'_>, out: &mut Outbox<Memory>) {
        // A candidate waits for that promise.
        let settled = self.settle_promise(view, out);
        let due = self.now >= self.timers.due.0 || self.timers.looked == Time::ZERO;
        let round = due || settled || self.now.since(self.timers.looked) >= ROUND;
        if round {
            self.timers.looked = self.now;
            self.hear(view, out);
            self.prepare_to_lead(out);
        }
        self.adopt(view);
        match self.phase {
            ReplicaPhase::Follower => self.consider(out),
            ReplicaPhase::Candidate(_) => self.count_permissions(view, out),
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
        let beat = self.rows.detector.beat(self.now);
        self.settle_edges(view);
        self.settle_streams(view, out);
        self.take_in(view, out);
        self.give_state(view, out);
        self.settle_applied();
        self.tell_sources(beat, out);
        if beat.is_some() {
            self.watch_buffers(view);
        }
        self.publish(beat, out);
        self.fetch_overdue(view, out);
        self.timers.due = self.rows.detector.deadline();
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
                self.transfers.flying[half] -= 1;
                if self.log_answered(rank, epoch, low, outcome, out) {
                    self.consume(view, out);
                    self.pass_on(view, out);
                }
            }
            TicketRequest::Forward { group, rank, half } => {
                self.transfers.flying[half] -= 1;
                self.forward_answered(group, rank);
            }
            TicketRequest::ReadHead { rank, epoch } => {
                self.head_answered(rank, epoch, outcome, view, out);
            }
            TicketRequest::Copy { rank, epoch } => {
                self.copy_answered(rank, epoch, outcome, view, out)
            }
            TicketRequest::Row { rank } => self.rows.on_answer(rank, outcome),
            TicketRequest::Confirm { rank, epoch } => {
                self.confirm_answered(rank, epoch, outcome, view, out);
            }
            // A lost piece is asked for again: it is only awaited because it copies from here.
            TicketRequest::State { .. } => self.transfers.staged -= 1,
            TicketRequest::Fetch { epoch, .. } => self.fetch_answered(epoch, outcome, view, out),
            TicketRequest::Sent { .. } => {}
        }
    }

    fn hint(&mut self, oracle: Oracle) {
        self.timers.due = (Time::ZERO, WakeReason::Suspicion);
        let rank_of = |me: &Self, pid| match me.config.cluster().role(pid) {
            Role::Replica { group, rank } if group == me.place.group => Some(usize::from(rank)),
            _ => None,
        };
        match oracle {
            Oracle::Suspect(pid) => {
                if let Some(rank) = rank_of(self, pid) {
                    self.rows.detector.suspect(rank);
                }
            }
            Oracle::Trust(pid) => {
                if let Some(rank) = rank_of(self, pid) {
                    self.rows.detector.trust(rank);
                }
            }
            Oracle::Leader(group, pid) if group == self.place.group => {
                self.rows.detector.override_leader(rank_of(self, pid));
            }
            Oracle::NoLeader(group) if group == self.place.group => {
                self.rows.detector.override_leader(None)
            }
            Oracle::Leader(..) | Oracle::NoLeader(_) => {}
        }
    }

    /// Whether it has the log, and consumes it.
    pub(crate) const fn follows(&self) -> bool {
        !matches!(self.health, ReplicaHealth::Lacking(_))
    }

    /// Whether it has all state, the application's included.
    pub(crate) const fn is_fit(&self) -> bool {
        matches!(self.health, ReplicaHealth::Fit)
    }

    pub(crate) fn pid(&self, rank: usize) -> Pid {
        self.config.cluster().replica(self.place.group, rank)
    }

    /// Writes one line, made here, that needs no answer.
    pub(crate) fn write_line(
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

/// Moves the cursor of a record's source past it. The number of the parent's buffer is `parent`.
#[inline(always)]
pub(crate) fn take_up(
    layout: &Layout,
    cursors: &mut [BufferCursor],
    record: &RingRecord,
    parent: usize,
) {
    let clients = layout.clients();
    let i = if record.source == RingRecord::PARENT {
        parent
    } else if let Some(from) = source_of(record.source) {
        clients + 1 + from.index()
    } else {
        usize::from(record.source)
    };
    let Some(cursor) = cursors.get_mut(i) else { return };
    if record.kind == RingRecordKind::Rejoin {
        (cursor.lease, cursor.next) = (record.lease, record.msg.seq.min(POSITION_MAX));
        return;
    }
    if i < clients && record.lease > cursor.lease {
        (cursor.lease, cursor.next) = (record.lease, 0);
    }
    // All buffers are of one length.
    cursor.next = layout.hm_parent(0).after(cursor.next, record.lines());
    if i < clients {
        cursor.note_number(record);
    }
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
            Input::Applied(position) => self.progress.applied = self.progress.applied.max(position),
            Input::Installed { position, needs } => self.installed(position, needs, out),
            Input::Unfit => self.unfit(),
            Input::Oracle(oracle) => self.hint(oracle),
            Input::Submit(_) => unreachable!("room() is 0: a replica is sent to by clients"),
            // It keeps no log, and its members are fixed: what is applied makes room.
            Input::Leave
            | Input::Overlay(_)
            | Input::Full(_)
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
        if self.permissions.is_settling() {
            return Some((Time::ZERO, WakeReason::Retry));
        }
        let ReplicaPhase::Leader(leader) = &self.phase else { return Some(self.timers.due) };
        let flush = leader.tells_at().map(|at| (at, WakeReason::Flush));
        Some(flush.filter(|flush| flush.0 < self.timers.due.0).unwrap_or(self.timers.due))
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

    fn lagging(&self) -> u64 {
        self.lagging_followers()
    }

    fn status(&self) -> ProtocolStatus {
        let leader = match (&self.phase, self.permissions.force) {
            (ReplicaPhase::Leader(_), _) => Some(self.place.me),
            (_, Some(force)) => Some(self.pid(force.writer)),
            _ => None,
        };
        ProtocolStatus {
            leader,
            epoch: u64::from(self.permissions.promise.epoch),
            delivered: self.progress.consumed,
            decided: self.progress.decided,
            backlog: self.progress.decided.saturating_sub(self.progress.consumed),
            follows: self.follows(),
            catching_up: None,
        }
    }

    fn overlay(&self) -> Option<(u32, &Overlay)> {
        self.changes.as_ref().map(|changes| (changes.number(), changes.overlay()))
    }
}

//! A member of the group: proposer, acceptor and learner, and the coordinator of the rounds in which it is the most
//! senior.

use super::learned::ValueLog;
use super::message::{ProposedValue, RingPaxosMessage, ValueId};
use super::mutants::{self, RingPaxosMutant};
use super::proposals::{InstanceLimits, PendingProposals};
use super::ring::VoteRing;
use crate::layers::batch::Batch;
use crate::layers::delivery::{BatchDelivery, UNKNOWN_MESSAGE};
use crate::layers::join_state::{JoinState, MALFORMED_STATE};
use crate::layers::outgoing::{BatchLimits, OutgoingBatches};
use crate::layers::paced::PacedBatches;
use crate::mutant::Mutants;
use alloc::vec::Vec;
use amcast_core::codec::{ByteReader, Codec};
use amcast_core::groupcast::{Grade, Groupcast, GroupcastInput, GroupcastOutput, View};
use amcast_core::step::{Note, ProtocolStatus, WaitReason, WakeReason};
use amcast_core::{
    Gid, GroupSet, Input, MsgId, Outbox, Pid, Protocol, ProtocolEvent, Submission, Time,
};

/// Bytes besides the batches of a value in each of its packets, about: those of this protocol, of the layer below and of
/// the carrier.
const PACKET_HEAD_BYTES: usize = 48;

/// A stream acknowledges two segments of 1448 bytes with a packet of 66: the coordinator sends one part in so many of the
/// bytes that others propose to it, on the link that carries its values.
const STREAM_ACK_PART: usize = 44;

/// A proposer of which nothing was among the last bytes that were delivered proposes nothing: so many times what may be
/// proposed at a time. It is counted in bytes, since the time that they take depends on the link and on how busy the
/// members are.
const PROPOSES: u64 = 2;

/// The outputs of a step.
pub(super) type RingPaxosOutbox = Outbox<Groupcast<RingPaxosMessage>>;

/// How a member runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct RingPaxosSettings {
    pub(super) me: Pid,
    /// How many processes are configured.
    pub(super) processes: usize,
    /// Own messages that are not delivered here yet, at most.
    pub(super) window: usize,
    /// Their bytes, at most.
    pub(super) window_bytes: usize,
    pub(super) payload_max: usize,
    /// When instances are opened.
    pub(super) limits: InstanceLimits,
    /// The rate at which a coordinator multicasts values, in kilobytes a second.
    pub(super) rate: u64,
    /// Bytes of a packet, about.
    pub(super) packet_bytes: usize,
    /// Bytes of the proposals of all members that are on the way or not delivered, about.
    pub(super) proposed_bytes: usize,
    pub(super) mutants: Mutants<RingPaxosMutant>,
}

impl RingPaxosSettings {
    /// How many acceptors are in the ring: a majority of the configured processes, in every view.
    fn ring(&self) -> usize {
        let majority = self.processes / 2 + 1;
        let small = self.mutants.is(RingPaxosMutant::SmallRing);
        if small { (majority - 1).max(1) } else { majority }
    }
}

/// A member of the group. See the [module](super).
#[derive(Debug)]
pub(super) struct RingPaxosMember {
    set: RingPaxosSettings,
    now: Time,
    /// The view, whose number is the round.
    view: View,
    /// Whether the view is about to end: nothing may be sent.
    blocked: bool,
    /// Own messages that are not delivered here yet.
    own: OutgoingBatches,
    /// Whether own messages wait for the next wake-up: those of one round of the loop leave together.
    fresh: bool,
    ring: VoteRing,
    log: ValueLog,
    /// The coordinator's: proposals without an instance.
    queue: PendingProposals,
    /// The coordinator's: the last instance that it opened.
    opened: u64,
    /// The coordinator's: up to this instance it has told all that values are decided.
    announced: u64,
    /// The coordinator's: when the next value may leave.
    pace: PacedBatches,
    /// Bytes of the values that were delivered.
    delivered_bytes: u64,
    /// How many there were when something of each process was delivered last.
    proposed: Vec<u64>,
    delivery: BatchDelivery,
}

impl RingPaxosMember {
    /// A member that is in no view yet.
    pub(super) fn new(set: RingPaxosSettings) -> Self {
        let limits = BatchLimits { bytes: set.limits.batch_bytes, messages: usize::MAX };
        Self {
            now: Time::ZERO,
            view: View::new(0, Vec::new()),
            blocked: true,
            own: OutgoingBatches::new(limits),
            fresh: false,
            ring: VoteRing::default(),
            log: ValueLog::default(),
            queue: PendingProposals::default(),
            opened: 0,
            announced: 0,
            pace: PacedBatches::of_whole_link(set.rate),
            delivered_bytes: 0,
            proposed: alloc::vec![0; set.processes],
            delivery: BatchDelivery::new(
                set.me,
                set.processes,
                mutants::of_deliveries(set.mutants),
            ),
            set,
        }
    }

    /// The coordinator of the round: the most senior member.
    fn coordinator(&self) -> Option<Pid> {
        self.view.pids().next()
    }

    fn coordinates(&self) -> bool {
        self.coordinator() == Some(self.set.me)
    }

    /// The identity of the value of an instance in this round.
    const fn id(&self, instance: u64) -> ValueId {
        ValueId { round: self.view.id, instance }
    }

    /// The instance of a value of this round.
    fn instance(&self, id: ValueId) -> Result<u64, &'static str> {
        if id.round == self.view.id { Ok(id.instance) } else { Err("a value of another round") }
    }

    /// How many instances are open.
    const fn open(&self) -> u64 {
        self.opened.saturating_sub(self.log.decided())
    }

    /// Up to this instance this acceptor votes, as far as those before it have.
    fn held(&self) -> u64 {
        let blind = self.set.mutants.is(RingPaxosMutant::VotesBlindly);
        if blind && self.ring.passes_on() { u64::MAX } else { self.log.held() }
    }

    fn submit(&mut self, submission: Submission<'_>) {
        self.own.gather(submission.seq, submission.payload);
        self.fresh = true;
    }

    /// Whether a batch of this member may be proposed now. Members that propose at the same time share what may be on the
    /// way to the coordinator: more would fill the buffer of the port in front of it, where datagrams are lost. One batch
    /// may always be on the way. One that has not proposed lately takes the part that it has when all do: many may begin
    /// at the same time.
    fn may_propose(&self) -> bool {
        let window = PROPOSES.saturating_mul(self.set.proposed_bytes as u64);
        let recently = |at: &u64| self.delivered_bytes - *at < window;
        let is_recent = recently(&self.proposed[self.set.me.index()]);
        let rivals = self.proposed.iter().filter(|at| recently(at)).count();
        let parts = if is_recent { rivals } else { self.view.members.len() };
        let room = self.own.sent_bytes() < self.set.proposed_bytes / parts.max(1);
        self.own.unsent() > 0 && (self.own.sent() == 0 || room)
    }

    /// Proposes own messages that are not proposed in this round yet, as many as may be on the way.
    fn propose(&mut self, out: &mut RingPaxosOutbox) {
        let (me, coordinator) = (self.set.me, self.coordinator());
        while self.may_propose()
            && let Some(batch) = self.own.next()
        {
            match coordinator {
                Some(coordinator) if coordinator != me => {
                    note_part(me, &batch, out);
                    let message = RingPaxosMessage::Propose { batch };
                    out.ask(GroupcastOutput::To(coordinator, message));
                }
                _ => self.queue.push(me, batch),
            }
        }
    }

    /// The bytes that a value takes of the coordinator's link, with the acknowledgements of its proposals.
    fn bytes_on_the_wire(&self, value: &ProposedValue) -> usize {
        let of = |(_, batch): &(Pid, Batch)| batch.bytes();
        let bytes: usize = value.batches.iter().map(of).sum();
        let foreign = value.batches.iter().filter(|(proposer, _)| *proposer != self.set.me);
        let acknowledgements = foreign.map(of).sum::<usize>() / STREAM_ACK_PART;
        bytes + bytes.div_ceil(self.set.packet_bytes) * PACKET_HEAD_BYTES + acknowledgements
    }

    /// The coordinator's: opens the instances that are due, as fast as links carry their values. Decisions ride on values,
    /// and leave by themselves where none is due.
    fn coordinate(&mut self, out: &mut RingPaxosOutbox) {
        let decided = self.log.decided();
        while self.queue.is_due(self.open(), self.set.limits) {
            if !self.pace.may_send(self.now) {
                return;
            }
            let Some(value) = self.queue.next(self.open(), self.set.limits) else { break };
            self.pace.spend(self.now, self.bytes_on_the_wire(&value));
            value.batches.iter().for_each(|(proposer, batch)| note_part(*proposer, batch, out));
            self.opened += 1;
            self.announced = decided;
            let id = self.id(self.opened);
            cast(RingPaxosMessage::Phase2A { id, value, decided }, out);
        }
        if self.announced < decided {
            self.announced = decided;
            cast(RingPaxosMessage::Decision { id: self.id(decided) }, out);
        }
    }

    fn wake(&mut self, out: &mut RingPaxosOutbox) {
        if self.blocked {
            return;
        }
        self.fresh = false;
        self.propose(out);
        if self.coordinates() {
            return self.coordinate(out);
        }
        let held = self.held();
        if let Some(successor) = self.ring.successor()
            && let Some(instance) = self.ring.vote(held)
        {
            let id = self.id(instance);
            out.ask(GroupcastOutput::To(successor, RingPaxosMessage::Phase2B { id }));
        }
    }

    /// When something is to leave.
    fn due_at(&self) -> Time {
        if self.fresh || self.may_propose() {
            return self.now;
        }
        let is_due = match self.coordinates() {
            true if self.queue.is_due(self.open(), self.set.limits) => {
                return self.pace.next_at().max(self.now);
            }
            true => self.announced < self.log.decided(),
            false => self.ring.can_vote(self.held()),
        };
        if is_due { self.now } else { Time::NEVER }
    }

    /// A message of a member is handed over.
    ///
    /// # Errors
    /// When it makes no sense from that member.
    fn hear(
        &mut self,
        from: Pid,
        message: RingPaxosMessage,
        out: &mut RingPaxosOutbox,
    ) -> Result<(), &'static str> {
        let leads = self.coordinator() == Some(from);
        match message {
            RingPaxosMessage::Propose { batch } if self.coordinates() => {
                let drops = self.set.mutants.is(RingPaxosMutant::DropsProposals);
                if !(drops && self.open() > 0) {
                    self.queue.push(from, batch);
                }
            }
            RingPaxosMessage::Phase2A { id, value, decided } if leads => {
                let instance = self.instance(id)?;
                self.log.hold(instance, value)?;
                self.log.decide(decided)?;
            }
            RingPaxosMessage::Phase2B { id } => self.ring.hear(from, self.instance(id)?)?,
            RingPaxosMessage::Decision { id } if leads => self.log.decide(self.instance(id)?)?,
            _ => return Err(UNKNOWN_MESSAGE),
        }
        self.learn(out)
    }

    /// Delivers all that is decided. At the coordinator, the last acceptor of the ring, its own vote decides.
    fn learn(&mut self, out: &mut RingPaxosOutbox) -> Result<(), &'static str> {
        if self.coordinates()
            && let Some(instance) = self.ring.vote(self.log.held())
        {
            self.log.decide(instance)?;
        }
        if self.set.mutants.is(RingPaxosMutant::DeliversUndecided) {
            self.log.decide(self.log.held())?;
        }
        while let Some(value) = self.log.next() {
            self.deliver(&value, out);
        }
        Ok(())
    }

    fn deliver(&mut self, value: &ProposedValue, out: &mut RingPaxosOutbox) {
        for (proposer, batch) in &value.batches {
            if *proposer == self.set.me {
                self.own.delivered(batch.first());
            }
            self.delivered_bytes += batch.bytes() as u64;
            if let Some(at) = self.proposed.get_mut(proposer.index()) {
                *at = self.delivered_bytes;
            }
            self.delivery.deliver(*proposer, batch, out);
        }
    }

    /// The round is over: all survivors hold the same values, among them all that may be decided, and finish them.
    fn finish(&mut self, out: &mut RingPaxosOutbox) {
        let mutants = self.set.mutants;
        for value in self.log.finish() {
            if mutants.is(RingPaxosMutant::DropsUndecided) {
                continue;
            }
            if mutants.is(RingPaxosMutant::ProposesAgain) {
                let batches = value.batches.iter();
                batches.for_each(|(proposer, batch)| self.delivery.deliver(*proposer, batch, out));
                continue;
            }
            self.deliver(&value, out);
        }
    }

    /// A round begins: its instances are numbered anew, and nothing is proposed in it yet.
    fn begin(&mut self, view: &View, out: &mut RingPaxosOutbox) {
        self.view = view.clone();
        self.blocked = false;
        self.own.restart();
        self.fresh = self.own.unsent() > 0;
        self.ring = VoteRing::new(self.set.me, view.pids(), self.set.ring());
        self.log = ValueLog::default();
        self.queue = PendingProposals::default();
        self.opened = 0;
        self.announced = 0;
        // All members may begin at once.
        self.proposed.fill(self.delivered_bytes);
        let base = out.fill(|to| self.delivery.state().encode(to));
        out.ask(GroupcastOutput::Base(base));
    }

    fn join(&mut self, view: &View, bytes: &[u8], out: &mut RingPaxosOutbox) {
        match JoinState::decode(&mut ByteReader::new(bytes)) {
            Ok(state) if state.last.len() == self.set.processes => self.delivery.join(state),
            // Some member gave it; the most senior one answers for the view.
            _ => {
                let of = view.pids().next().unwrap_or(self.set.me);
                out.note(Note::Malformed(of, MALFORMED_STATE));
            }
        }
        // Some of them had been proposed before it was excluded, and are delivered.
        let last = self.delivery.state().last[self.set.me.index()];
        self.own.retain(|_, batch| batch.last() > last);
        self.begin(view, out);
    }
}

/// Sends a message to all members, and has the layer below repeat it until all have it.
fn cast(message: RingPaxosMessage, out: &mut RingPaxosOutbox) {
    out.ask(GroupcastOutput::Cast(Grade::Plain, message));
}

/// The messages of a batch are taken part in.
fn note_part(sender: Pid, batch: &Batch, out: &mut RingPaxosOutbox) {
    if out.traces() {
        let all = batch.messages();
        all.for_each(|(seq, _)| out.event(ProtocolEvent::Part(MsgId { sender, seq })));
    }
}

impl Protocol for RingPaxosMember {
    type Medium = Groupcast<RingPaxosMessage>;

    fn step(
        &mut self,
        now: Time,
        (): (),
        input: Input<'_, Self::Medium>,
        out: &mut Outbox<Self::Medium>,
    ) {
        self.now = now;
        match input {
            Input::Submit(submission) => self.submit(submission),
            Input::Wake => self.wake(out),
            Input::Medium(GroupcastInput::View(view)) => {
                self.finish(out);
                self.begin(view, out);
            }
            Input::Medium(GroupcastInput::Join(view, state)) => self.join(view, state, out),
            // An excluded member learns nothing more in its round. It may propose its messages again: nobody has delivered
            // one that the survivors do not deliver.
            Input::Medium(GroupcastInput::Block | GroupcastInput::Excluded) => self.blocked = true,
            Input::Medium(GroupcastInput::From(from, message)) => {
                if let Err(why) = self.hear(from, message, out) {
                    out.note(Note::Malformed(from, why));
                }
            }
            // Nothing is kept on disk; the state is the layer's below.
            _ => {}
        }
    }

    fn deadline(&self) -> Option<(Time, WakeReason)> {
        let at = if self.blocked { Time::NEVER } else { self.due_at() };
        (at != Time::NEVER).then_some((at, WakeReason::Flush))
    }

    fn room(&self, _dst: GroupSet, bytes: usize) -> usize {
        self.own.room(self.set.window, self.set.window_bytes, bytes)
    }

    fn payload_max(&self) -> usize {
        self.set.payload_max
    }

    fn waiting(&self, tell: &mut dyn FnMut(MsgId, WaitReason)) {
        let sender = self.set.me;
        self.own.waiting(&mut |seq, sent| {
            let why = if sent { WaitReason::Turn } else { WaitReason::Order(Gid(0)) };
            tell(MsgId { sender, seq }, why);
        });
    }

    fn status(&self) -> ProtocolStatus {
        let delivered = self.delivery.state().position;
        let backlog = self.own.messages() as u64;
        ProtocolStatus { delivered, decided: delivered, backlog, ..ProtocolStatus::default() }
    }
}

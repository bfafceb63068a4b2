//! A member of the group: batches, their order, and the bandwidth that it may use.

use super::bandwidth::BandwidthAllocation;
use super::capacity::{CapacitySettings, LinkCapacity};
use super::message::FastCastMessage;
use super::mutants::{self, FastCastMutant};
use super::pace::{BatchPace, DemandChange, WaitingBatches};
use super::sequence::{SenderCast, SequenceOrder, SequencedCast};
use crate::layers::batch::Batch;
use crate::layers::delivery::{BatchDelivery, UNKNOWN_MESSAGE};
use crate::layers::join_state::{JoinState, MALFORMED_STATE};
use crate::layers::outgoing::{BatchLimits, OutgoingBatches};
use crate::layers::paced::{LinkLoad, PacedSends, QUEUE_BYTES};
use crate::mutant::Mutants;
use alloc::vec::Vec;
use amcast_core::codec::{ByteReader, Codec};
use amcast_core::groupcast::{Grade, Groupcast, GroupcastInput, GroupcastOutput, View};
use amcast_core::step::{Note, ProtocolStatus, WaitReason, WakeReason};
use amcast_core::{
    Gid, GroupSet, Input, MsgId, Outbox, Pid, Protocol, ProtocolEvent, Span, Submission, Time,
};

/// Bytes besides the entries of a batch in each of its packets, about: those of this protocol, of the layer below and
/// of the carrier. Those of the network are not among them: the rate of a link is that of what datagrams carry.
const PACKET_HEAD_BYTES: usize = 48;

/// Bytes that a message with numbers alone occupies on a link, about.
pub(super) const NUMBERS_BYTES: u64 = 160;

/// Bytes for each member of an acknowledgement that goes along with a batch, about.
const ACK_BYTES: usize = 2;

/// The marks of a member that begins to require more, and that may send more.
pub const INCREASE_BEGINS: &str = "fastcast-increase-begins";
/// See [`INCREASE_BEGINS`].
pub const INCREASE_ENDS: &str = "fastcast-increase-ends";

/// The mark of a member that takes its link to carry more or less than before.
pub const CAPACITY_CHANGES: &str = "fastcast-capacity-changes";

/// The outputs of a step.
pub(super) type FastCastOutbox = Outbox<Groupcast<FastCastMessage>>;

/// How a member runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct FastCastSettings {
    pub(super) me: Pid,
    /// How many processes are configured.
    pub(super) processes: usize,
    /// Own messages that are not delivered here yet, at most.
    pub(super) window: usize,
    /// Their bytes, at most.
    pub(super) window_bytes: usize,
    pub(super) payload_max: usize,
    /// Bytes of a full batch, at least.
    pub(super) batch_bytes: usize,
    /// Bytes of own batches that are sent and not delivered here, at most: less than what the layer below lets a sender
    /// have on the way, so that numbers never wait behind batches.
    pub(super) flight_bytes: usize,
    /// Bytes of a packet, about.
    pub(super) packet_bytes: usize,
    /// The rate that a link carries, in kilobytes a second (`B`).
    pub(super) link: u64,
    /// How far messages with numbers alone are apart at most.
    pub(super) numbers_apart: Span,
    /// The time over which demand is measured.
    pub(super) demand: Span,
    /// How the present rate of links is judged.
    pub(super) capacity: CapacitySettings,
    pub(super) mutants: Mutants<FastCastMutant>,
}

/// A member of the group. See the [module](super).
#[derive(Debug)]
pub(super) struct FastCastMember {
    set: FastCastSettings,
    now: Time,
    view: View,
    /// Whether the view is about to end: nothing may be sent.
    blocked: bool,
    /// Own messages that are not delivered here yet.
    own: OutgoingBatches,
    /// Whether the carrier has room for batches.
    has_room: bool,
    /// Whether messages were submitted since the last wake-up: those of one round leave together.
    fresh: bool,
    order: SequenceOrder,
    /// The leader's: when it tells the numbers that it has given.
    numbers: PacedSends,
    load: LinkLoad,
    delivery: BatchDelivery,
    bandwidth: BandwidthAllocation,
    /// The bandwidth that it may use beside its share, in kilobytes a second.
    spare: u64,
    pace: BatchPace,
    /// The rate that the links carry, as far as this member sees it.
    capacity: LinkCapacity,
}

impl FastCastMember {
    /// A member that is in no view yet.
    pub(super) fn new(set: FastCastSettings) -> Self {
        Self {
            now: Time::ZERO,
            view: View::new(0, Vec::new()),
            blocked: true,
            own: OutgoingBatches::new(BatchLimits { bytes: usize::MAX, messages: usize::MAX }),
            has_room: true,
            fresh: false,
            order: SequenceOrder::new(set.processes),
            numbers: PacedSends::NONE,
            load: LinkLoad::new(set.link),
            delivery: BatchDelivery::new(
                set.me,
                set.processes,
                mutants::of_deliveries(set.mutants),
            ),
            bandwidth: BandwidthAllocation::new(0, 1, set.link),
            spare: 0,
            pace: BatchPace::new(set.demand, set.link),
            capacity: LinkCapacity::new(set.capacity, set.processes),
            set,
        }
    }

    /// The allocation as this member knows it.
    #[cfg(test)]
    pub(super) const fn bandwidth(&self) -> &BandwidthAllocation {
        &self.bandwidth
    }

    /// How far messages with numbers alone are apart where so many bytes have just arrived.
    #[cfg(test)]
    pub(super) fn numbers_apart_after(&mut self, bytes: usize) -> Span {
        self.load.add(self.now, bytes);
        self.numbers_every()
    }

    /// The member that gives numbers: the most senior one (`leader`).
    fn leader(&self) -> Option<Pid> {
        self.view.pids().next()
    }

    fn leads(&self) -> bool {
        self.leader() == Some(self.set.me)
    }

    /// The leader's: how far messages with numbers alone are apart in the long run. As with acknowledgements, nobody is to
    /// repeat a message whose number follows soon.
    fn numbers_every(&mut self) -> Span {
        self.load.interval(self.now, NUMBERS_BYTES).min(self.set.numbers_apart)
    }

    /// The leader's: a cast takes its number, which the leader announces soon.
    fn arrived(&mut self, sender: Pid) {
        self.order.arrived(sender);
        let interval = self.numbers_every();
        self.numbers.soon(self.now, interval);
    }

    /// The leader's: tells all the numbers that it has given, if it is time, or a batch leaves now anyway.
    fn tell_numbers(&mut self, along: bool, out: &mut FastCastOutbox) {
        if self.blocked || !(along || self.numbers.at() <= self.now) {
            return;
        }
        if let Some(numbers) = self.order.give_numbers() {
            match along {
                true => self.numbers.along(),
                false => {
                    let interval = self.numbers_every();
                    self.numbers.alone(self.now, interval);
                }
            }
            out.ask(GroupcastOutput::Cast(Grade::Stable, numbers));
        }
    }

    /// Sends a message that takes a number to all members.
    // [FC 2:8-11] to all; it is pending until it is delivered
    fn cast(&mut self, message: FastCastMessage, out: &mut FastCastOutbox) {
        if self.leads() {
            self.arrived(self.set.me);
        }
        out.ask(GroupcastOutput::Cast(Grade::Stable, message));
    }

    /// Sends own batches, as many as may leave now. Without contention a batch of any size leaves at once. While an own
    /// batch is on the way only full ones follow it, within the share of the bandwidth or as a [burst](Self::may_burst). None leaves while the carrier has no room
    /// for it: messages that come meanwhile fill batches.
    /// Says whether any left.
    fn send(&mut self, out: &mut FastCastOutbox) -> bool {
        let mut left = false;
        while !self.blocked && self.has_room && self.own.unsent() > 0 {
            let idle = self.own.sent() == 0;
            let room = self.own.sent_bytes() < self.set.flight_bytes;
            // The pace is asked first: that a batch had to wait for its share shows a need.
            let may = idle
                || room
                    && self.own.next_is_sealed()
                    && (self.pace.may_send(self.now) || self.may_burst());
            if !may {
                break;
            }
            let Some(batch) = self.own.next() else { break };
            left = true;
            self.pace.spend(self.now, self.bytes_on_the_wire(&batch));
            note_part(self.set.me, &batch, out);
            self.cast(FastCastMessage::Data { sent: self.now.0, batch }, out);
        }
        left
    }

    /// Whether a full batch may leave before its share pays for it: while the shares of all leave something of the link, and no
    /// traffic of others takes any, each member may have an equal part of [`LinkCapacity::burst_bytes`] on the way, and one batch
    /// more if all of them fit into the queue in front of a port. So it uses at once what the others leave at the moment, and
    /// deliveries hold it back as soon as they leave nothing.
    fn may_burst(&self) -> bool {
        let others = self.view.members.len().saturating_sub(1).max(1) as u64;
        let sent = self.own.sent_bytes() as u64;
        self.spare > 0
            && self.bandwidth.link() == self.set.link
            && sent < self.capacity.burst_bytes() / others
            && sent + self.own.next_bytes() as u64 <= QUEUE_BYTES / others
    }

    /// The bytes that a batch takes of a link: its entries, and the heads of the packets in which it travels.
    fn bytes_on_the_wire(&self, batch: &Batch) -> usize {
        let bytes = batch.bytes();
        bytes + bytes.div_ceil(self.set.packet_bytes) * PACKET_HEAD_BYTES + self.ack_bytes()
    }

    /// The bytes of an acknowledgement that goes along.
    const fn ack_bytes(&self) -> usize {
        self.set.processes * ACK_BYTES
    }

    fn submit(&mut self, submission: Submission<'_>) {
        self.own.gather(submission.seq, submission.payload);
        if self.own.open_bytes() >= self.set.batch_bytes {
            self.own.seal();
        }
        self.pace.offer(self.now);
        self.fresh = true;
    }

    fn wake(&mut self, out: &mut FastCastOutbox) {
        self.fresh = false;
        let left = self.send(out);
        self.measure(out);
        self.judge_link(out);
        self.tell_numbers(left, out);
    }

    /// Adapts the required bandwidth to the demand, if it is time.
    fn measure(&mut self, out: &mut FastCastOutbox) {
        if self.blocked || self.bandwidth.is_increasing() {
            return;
        }
        let heads = PACKET_HEAD_BYTES + self.ack_bytes();
        let batches = self.own.unsent();
        let bytes = self.own.unsent_bytes() + batches * heads;
        let unsent = WaitingBatches { batches, bytes, any_sent: self.own.sent() > 0 };
        match self.pace.measure(self.now, self.bandwidth.required(), unsent) {
            // The carrier holds more than its link takes now: a larger share would only wait there.
            Some(DemandChange::More(_)) if !self.has_room => {}
            Some(DemandChange::More(amount)) => self.require_more(amount, out),
            Some(DemandChange::Less(amount)) if self.bandwidth.decrease(amount) => {
                self.set_pace();
                self.cast(FastCastMessage::Decrease { amount }, out);
            }
            _ => {}
        }
    }

    /// Tells all what the own link carries, if that has changed as far as this member sees it, and changes what all links
    /// carry.
    fn judge_link(&mut self, out: &mut FastCastOutbox) {
        let waits = self.own.sent() > 0;
        if self.blocked {
            return;
        }
        self.capacity.measure(self.now, waits);
        if let Some(rate) = self.capacity.next_announcement(self.now, self.bandwidth.link()) {
            out.note(Note::Mark(CAPACITY_CHANGES));
            self.cast(FastCastMessage::Capacity { rate }, out);
        }
    }

    /// A message of another member is handed over: how long it was on the way, and how much of the link it took.
    fn note_delay(&mut self, from: Pid, message: &FastCastMessage) {
        let (sent, bytes) = match message {
            FastCastMessage::Ack => return,
            FastCastMessage::Data { sent, batch } => {
                (Some(Time(*sent)), self.bytes_on_the_wire(batch) as u64)
            }
            _ => (None, NUMBERS_BYTES),
        };
        if from != self.set.me {
            self.capacity.handed_over(self.now, from.index(), sent, bytes);
        }
    }

    fn require_more(&mut self, amount: u64, out: &mut FastCastOutbox) {
        if self.bandwidth.increase(amount) {
            out.note(Note::Mark(INCREASE_BEGINS));
            self.cast(FastCastMessage::Increase { amount }, out);
        }
    }

    /// A cast of a member is handed over.
    ///
    /// # Errors
    /// When it makes no sense from that member.
    fn hear(
        &mut self,
        from: Pid,
        message: FastCastMessage,
        out: &mut FastCastOutbox,
    ) -> Result<(), &'static str> {
        self.note_delay(from, &message);
        let cast = match message {
            FastCastMessage::Data { batch, .. } => SequencedCast::Data(batch),
            FastCastMessage::Capacity { rate } => SequencedCast::Capacity(rate),
            FastCastMessage::Increase { amount } => SequencedCast::Increase(amount),
            FastCastMessage::Decrease { amount } => SequencedCast::Decrease(amount),
            FastCastMessage::Numbers { first, of } if self.leader() == Some(from) => {
                self.order.take_numbers(first, &of)?;
                return self.deliver_ready(out);
            }
            FastCastMessage::Ack if from != self.set.me => {
                self.bandwidth.on_ack()?;
                self.follow_allocation(true, out);
                return Ok(());
            }
            _ => return Err(UNKNOWN_MESSAGE),
        };
        if self.set.mutants.is(FastCastMutant::IgnoresNumbers) {
            return self.deliver((from, cast), out);
        }
        if let SequencedCast::Data(batch) = &cast {
            self.load.add(self.now, batch.bytes());
        }
        if let SequencedCast::Data(batch) = &cast
            && self.leads()
            && from != self.set.me
        {
            note_part(from, batch, out);
        }
        self.order.hold(from, cast);
        self.deliver_ready(out)
    }

    /// Delivers all that is next.
    // [FC 2:29-31] in the order of numbers
    fn deliver_ready(&mut self, out: &mut FastCastOutbox) -> Result<(), &'static str> {
        let mut sound = Ok(());
        while let Some(next) = self.order.next() {
            sound = sound.and(self.deliver(next, out));
        }
        sound
    }

    /// Delivers a cast: messages to the application, and requirements to the allocation.
    fn deliver(
        &mut self,
        (from, cast): SenderCast,
        out: &mut FastCastOutbox,
    ) -> Result<(), &'static str> {
        let rank = self.view.rank(from).ok_or("a cast of no member")?;
        let was_increasing = self.bandwidth.is_increasing();
        match cast {
            SequencedCast::Data(batch) => {
                self.deliver_batch(from, &batch, out);
                return Ok(());
            }
            SequencedCast::Increase(amount) => {
                if self.bandwidth.on_increase(rank, amount)? {
                    out.ask(GroupcastOutput::To(from, FastCastMessage::Ack));
                }
            }
            SequencedCast::Decrease(amount) => self.bandwidth.on_decrease(rank, amount)?,
            // Nobody may make others send more than the links are configured to carry, or nothing.
            SequencedCast::Capacity(rate) => {
                let CapacitySettings { link, floor, .. } = self.set.capacity;
                self.bandwidth.on_link(rank, rate.clamp(floor, link))?;
                self.load.set_link(self.bandwidth.link());
            }
        }
        self.follow_allocation(was_increasing, out);
        Ok(())
    }

    /// Batches leave at the share of the allocation, which has just changed perhaps.
    fn follow_allocation(&mut self, was_increasing: bool, out: &mut FastCastOutbox) {
        if was_increasing && !self.bandwidth.is_increasing() {
            out.note(Note::Mark(INCREASE_ENDS));
        }
        self.set_pace();
    }

    /// Batches leave at the share of this member, and at what it may use beside it.
    fn set_pace(&mut self) {
        self.spare = self.bandwidth.spare();
        self.pace.set_rate(self.now, self.bandwidth.current() + self.spare);
    }

    fn deliver_batch(&mut self, from: Pid, batch: &Batch, out: &mut FastCastOutbox) {
        if from == self.set.me {
            self.own.delivered(batch.first());
            self.capacity.own_delivered();
        }
        self.delivery.deliver(from, batch, out);
    }

    /// The view is over: all survivors deliver what is left of it in the same order. Requirements of a view end with it.
    fn settle(&mut self, out: &mut FastCastOutbox) {
        let mut senders: Vec<Pid> = self.view.pids().collect();
        if self.set.mutants.is(FastCastMutant::OwnFirst) {
            let me = self.set.me;
            senders.sort_by_key(|&sender| sender != me);
        }
        let (left, skipped) = self.order.settle(senders.into_iter());
        if skipped > 0 {
            out.note(Note::Mark("fastcast-number-skipped"));
        }
        for (from, cast) in left {
            if let SequencedCast::Data(batch) = cast {
                self.deliver_batch(from, &batch, out);
            }
        }
    }

    /// A view begins: nothing is pending, numbers begin anew, and nobody requires bandwidth.
    // [FC 3:7-12] the first member of the view leads it
    fn begin(&mut self, view: &View, out: &mut FastCastOutbox) {
        let set = self.set;
        let required = self.bandwidth.required_in_the_end().min(set.link);
        let interrupted = self.bandwidth.is_increasing();
        self.view = view.clone();
        self.blocked = false;
        self.own.restart();
        self.order = SequenceOrder::new(set.processes);
        self.numbers.along();
        let rank = view.rank(set.me).unwrap_or(0);
        self.bandwidth = BandwidthAllocation::new(rank, view.members.len(), set.link);
        self.load.set_link(set.link);
        let rate = self.capacity.restart();
        self.set_pace();
        let base = out.fill(|to| self.delivery.state().encode(to));
        out.ask(GroupcastOutput::Base(base));
        // An increase that the change of views interrupted begins anew, too.
        if interrupted {
            out.note(Note::Mark("fastcast-increase-interrupted"));
        }
        if let Some(rate) = rate {
            self.cast(FastCastMessage::Capacity { rate }, out);
        }
        if required > 0 {
            self.require_more(required, out);
        }
        self.send(out);
    }

    fn join(&mut self, view: &View, bytes: &[u8], out: &mut FastCastOutbox) {
        match JoinState::decode(&mut ByteReader::new(bytes)) {
            Ok(state) if state.last.len() == self.set.processes => self.delivery.join(state),
            // Some member gave it; the most senior one answers for the view.
            _ => {
                let of = view.pids().next().unwrap_or(self.set.me);
                out.note(Note::Malformed(of, MALFORMED_STATE));
            }
        }
        // Some of them had been sent before it was excluded, and are delivered.
        let last = self.delivery.state().last[self.set.me.index()];
        self.own.retain(|_, batch| batch.last() > last);
        self.begin(view, out);
    }

    /// An excluded member delivers nothing more of its view. It may send its own messages again: nobody has delivered
    /// one that the survivors do not deliver.
    fn excluded(&mut self) {
        self.blocked = true;
        self.own.restart();
    }
}

/// The messages of a batch are taken part in.
fn note_part(sender: Pid, batch: &Batch, out: &mut FastCastOutbox) {
    if out.traces() {
        let all = batch.messages();
        all.for_each(|(seq, _)| out.event(ProtocolEvent::Part(MsgId { sender, seq })));
    }
}

impl Protocol for FastCastMember {
    type Medium = Groupcast<FastCastMessage>;

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
                self.settle(out);
                self.begin(view, out);
            }
            Input::Medium(GroupcastInput::Join(view, state)) => self.join(view, state, out),
            Input::Medium(GroupcastInput::Block) => self.blocked = true,
            Input::Medium(GroupcastInput::Excluded) => self.excluded(),
            Input::Medium(GroupcastInput::Backlog(backlog)) => {
                self.has_room = backlog.has_room;
                if self.has_room && !self.fresh && self.send(out) {
                    self.tell_numbers(true, out);
                }
            }
            // [FC 2:13-14] the leader numbers a message as soon as it has it
            Input::Medium(GroupcastInput::Received(from)) => {
                self.capacity.arrived(now, from.index());
                if self.leads() {
                    self.arrived(from);
                }
            }
            Input::Medium(GroupcastInput::From(from, message)) => {
                if let Err(why) = self.hear(from, message, out) {
                    out.note(Note::Malformed(from, why));
                }
                // Own batches that waited for a delivery, or for bandwidth.
                if !self.fresh && self.send(out) {
                    self.tell_numbers(true, out);
                }
            }
            // Nothing is kept on disk; the state is the layer's below.
            _ => {}
        }
    }

    fn deadline(&self) -> Option<(Time, WakeReason)> {
        if self.blocked {
            return None;
        }
        if self.fresh {
            return Some((self.now, WakeReason::Flush));
        }
        let room = self.own.sent_bytes() < self.set.flight_bytes;
        let waits = self.own.sent() > 0 && self.own.next_is_sealed() && room && self.has_room;
        let send = if waits { self.pace.next_at() } else { Time::NEVER };
        let measure = match self.bandwidth.is_increasing() {
            true => Time::NEVER,
            false => self.pace.measures_at(),
        };
        let at = send.min(measure).min(self.numbers.at()).min(self.capacity.measures_at());
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

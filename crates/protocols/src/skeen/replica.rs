//! The one process of a group: gives timestamps, gathers those of others, delivers in their order.

use super::message::{SkeenMessage, Timestamp};
use super::{SkeenMutant, SkeenShape};
use crate::layers::multicast_slots::MulticastHeading;
use alloc::collections::BinaryHeap;
use alloc::collections::binary_heap::PeekMut;
use alloc::sync::Arc;
use alloc::vec::Vec;
use amcast_core::messages::{Lane, MessageInput, MessageOutput, Messages};
use amcast_core::step::{Note, ProtocolStatus, WaitReason, WakeReason};
use amcast_core::{Gid, GroupSet, Input, MsgId, Outbox, Pid, Protocol, ProtocolEvent, Role, Time};
use core::cmp::Reverse;

/// The replica of a group.
#[derive(Clone, Debug)]
pub(super) struct SkeenReplica {
    group: Gid,
    shape: SkeenShape,
    /// The logical clock; only grows, and is never below a timestamp that was seen.
    clock: Timestamp,
    /// Client by client, `window` slots each.
    slots: Vec<MulticastSlot>,
    /// The messages that arrived and are not delivered, the smallest bound in front. An entry's
    /// bound may lag behind its slot's; it is brought up to date when it gets to the front.
    queue: BinaryHeap<Reverse<QueuePosition>>,
    /// Slots that hold a message.
    held: u64,
    /// Deliveries so far.
    delivered: u64,
    /// The turn of the last delivery; only grows.
    last: (Timestamp, MsgId),
}

/// The knowledge of the message that a client has in one of its slots.
#[derive(Clone, Debug, Default)]
struct MulticastSlot {
    /// The number of the message, or of the last one when free; only grows.
    seq: u64,
    /// Whether the slot holds a message: it was heard of and is not delivered.
    held: bool,
    dst: GroupSet,
    /// The destinations whose proposals arrived.
    proposed: GroupSet,
    /// The largest proposal so far: the final timestamp is not smaller.
    bound: Timestamp,
    /// None until the multicast itself arrived.
    payload: Option<Arc<[u8]>>,
}

/// A message's place in the queue.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct QueuePosition {
    bound: Timestamp,
    /// Breaks ties: the message's id.
    tie: MsgId,
    msg: MsgId,
    /// Its place in the table.
    slot: usize,
}

impl MulticastSlot {
    /// Whether the timestamp is final: every destination's proposal arrived. The own one is made
    /// when the message comes, so then the payload is there too.
    fn is_final(&self) -> bool {
        self.proposed == self.dst
    }
}

impl SkeenReplica {
    pub(super) fn new(group: Gid, shape: SkeenShape) -> Self {
        let places = shape.cluster.clients() * shape.window;
        Self {
            group,
            shape,
            clock: Timestamp::default(),
            slots: alloc::vec![MulticastSlot::default(); places],
            queue: BinaryHeap::with_capacity(places),
            held: 0,
            delivered: 0,
            last: (Timestamp::default(), MsgId { sender: Pid(0), seq: 0 }),
        }
    }

    /// [Skeen 1] A multicast comes: it gets a timestamp above all seen, which the other
    /// destinations receive it.
    fn on_cast(
        &mut self,
        from: Pid,
        heading: MulticastHeading,
        payload: Arc<[u8]>,
        out: &mut Outbox<Messages<SkeenMessage>>,
    ) -> Result<(), &'static str> {
        if heading.msg.sender != from {
            return Err("a multicast in another's name");
        }
        if payload.len() > self.shape.payload_max {
            return Err("a payload that is too large");
        }
        let at = self.slot(&heading, out)?;
        if self.slots[at].payload.is_some() {
            return Err("a multicast for the second time");
        }
        self.clock = self.clock.next();
        self.slots[at].payload = Some(payload);
        self.propose(at, self.group, self.clock);
        let tie = match self.shape.mutants.is(SkeenMutant::NoTieBreak) {
            true => MsgId { sender: Pid(0), seq: self.clock.0 },
            false => heading.msg,
        };
        let bound = self.slots[at].bound;
        self.queue.push(Reverse(QueuePosition { bound, tie, msg: heading.msg, slot: at }));
        let told = match self.shape.mutants.is(SkeenMutant::TellsAll) {
            true => self.shape.cluster.all_groups(),
            false => heading.dst,
        };
        for g in told.iter().filter(|&g| g != self.group) {
            let propose = SkeenMessage::Propose { heading, timestamp: self.clock };
            out.ask(MessageOutput::To(self.shape.cluster.replica(g, 0), Lane::Stream, propose));
        }
        Ok(())
    }

    /// [Skeen 2] A timestamp of another destination comes, perhaps ahead of the message.
    fn on_proposal(
        &mut self,
        from: Pid,
        heading: MulticastHeading,
        timestamp: Timestamp,
        out: &mut Outbox<Messages<SkeenMessage>>,
    ) -> Result<(), &'static str> {
        let peer = match self.shape.cluster.group_of(from) {
            Some(g) if g != self.group && heading.dst.contains(g) => g,
            _ => return Err("a proposal of one that is no other destination"),
        };
        let at = self.slot(&heading, out)?;
        if self.slots[at].proposed.contains(peer) {
            return Err("a second proposal of one destination");
        }
        // Later messages go behind this message.
        self.clock = self.clock.max(timestamp);
        self.propose(at, peer, timestamp);
        Ok(())
    }

    /// The place in the table of the message that `heading` names, opened if this is the first
    /// that is heard of it.
    fn slot(
        &mut self,
        heading: &MulticastHeading,
        out: &mut Outbox<Messages<SkeenMessage>>,
    ) -> Result<usize, &'static str> {
        let MulticastHeading { msg, slot, dst } = *heading;
        let cluster = &self.shape.cluster;
        let client = match cluster.has(msg.sender).then(|| cluster.role(msg.sender)) {
            Some(Role::Client { client }) => usize::from(client),
            _ => return Err("a multicast of one that is no client"),
        };
        if usize::from(slot) >= self.shape.window {
            return Err("a slot beyond the window");
        }
        if !dst.within(cluster.all_groups()) {
            return Err("a destination that there is not");
        }
        if !dst.contains(self.group) {
            // It should not be here, but having heard of it is taking part.
            out.event(ProtocolEvent::Part(msg));
            return Err("a message for others");
        }
        let at = client * self.shape.window + usize::from(slot);
        let slot = &mut self.slots[at];
        if slot.held {
            let same = slot.seq == msg.seq && slot.dst == dst;
            return if same { Ok(at) } else { Err("a slot that holds another message") };
        }
        if msg.seq <= slot.seq {
            return Err("a message that is behind its slot");
        }
        out.event(ProtocolEvent::Part(msg));
        *slot = MulticastSlot { seq: msg.seq, held: true, dst, ..MulticastSlot::default() };
        self.held += 1;
        Ok(at)
    }

    /// Takes in what `group` proposes.
    fn propose(&mut self, at: usize, group: Gid, timestamp: Timestamp) {
        let slot = &mut self.slots[at];
        slot.bound = match slot.proposed.is_empty() {
            true => timestamp,
            false if self.shape.mutants.is(SkeenMutant::LeastProposal) => slot.bound.min(timestamp),
            false => slot.bound.max(timestamp),
        };
        slot.proposed = slot.proposed.with(group);
    }

    /// [Skeen 3] Delivers while the message in front is final: no other can get before it.
    fn deliver_ready(&mut self, out: &mut Outbox<Messages<SkeenMessage>>) {
        while let Some(turn) = self.next_ready() {
            self.deliver(turn, out);
        }
    }

    /// Takes the message in front out of the queue, if it is final. A message that gets to the
    /// front with a bound that lags behind is brought up to date first, which happens at most once
    /// to each between two proposals.
    fn next_ready(&mut self) -> Option<QueuePosition> {
        if self.shape.mutants.is(SkeenMutant::NoWaiting) {
            let found = self.queue.iter().find(|t| self.slots[t.0.slot].is_final())?.0;
            self.queue.retain(|t| t.0 != found);
            return Some(found);
        }
        loop {
            let mut front = self.queue.peek_mut()?;
            let slot = &self.slots[front.0.slot];
            if front.0.bound != slot.bound {
                front.0.bound = slot.bound;
            } else if slot.is_final() {
                return Some(PeekMut::pop(front).0);
            } else {
                return None;
            }
        }
    }

    fn deliver(&mut self, turn: QueuePosition, out: &mut Outbox<Messages<SkeenMessage>>) {
        let mutants = self.shape.mutants;
        let slot = &mut self.slots[turn.slot];
        let payload = slot.payload.take().expect("a message in the queue has its payload");
        slot.held = false;
        self.held -= 1;
        let order = (slot.bound, turn.msg);
        assert!(order > self.last || mutants.any(), "{order:?} after {:?}", self.last);
        self.last = order;
        let dst = slot.dst;
        let mut hand_over = |position| {
            out.deliver(turn.msg, dst, position, |bytes| bytes.extend_from_slice(&payload));
        };
        self.delivered += 1;
        let fourth = self.delivered.is_multiple_of(4);
        if !(fourth && mutants.is(SkeenMutant::Drops)) {
            hand_over(self.delivered);
        }
        if fourth && mutants.is(SkeenMutant::Twice) {
            self.delivered += 1;
            hand_over(self.delivered);
        }
        let ack =
            SkeenMessage::Ack { slot: (turn.slot % self.shape.window) as u16, seq: turn.msg.seq };
        out.ask(MessageOutput::To(turn.msg.sender, Lane::Stream, ack));
    }
}

impl Protocol for SkeenReplica {
    type Medium = Messages<SkeenMessage>;

    fn step(
        &mut self,
        _now: Time,
        (): (),
        input: Input<'_, Self::Medium>,
        out: &mut Outbox<Self::Medium>,
    ) {
        let (from, heard) = match input {
            Input::Submit(_) => panic!("a replica has no room for submissions"),
            Input::Medium(MessageInput::From(from, _)) if !self.shape.cluster.has(from) => {
                (from, Err("not of this cluster"))
            }
            Input::Medium(MessageInput::From(from, SkeenMessage::Cast { heading, payload })) => {
                (from, self.on_cast(from, heading, payload, out))
            }
            Input::Medium(MessageInput::From(
                from,
                SkeenMessage::Propose { heading, timestamp },
            )) => (from, self.on_proposal(from, heading, timestamp, out)),
            Input::Medium(MessageInput::From(from, SkeenMessage::Ack { .. })) => {
                (from, Err("a message that only clients take"))
            }
            Input::Medium(MessageInput::Down(peer)) => {
                (peer, Err("a stream broke, which must not be"))
            }
            // Nothing here is timed, kept on disk or led.
            _ => return,
        };
        match heard {
            Ok(()) => self.deliver_ready(out),
            Err(why) => out.note(Note::Malformed(from, why)),
        }
    }

    fn deadline(&self) -> Option<(Time, WakeReason)> {
        None
    }

    fn room(&self, _dst: GroupSet, _bytes: usize) -> usize {
        0
    }

    fn payload_max(&self) -> usize {
        self.shape.payload_max
    }

    fn waiting(&self, tell: &mut dyn FnMut(MsgId, WaitReason)) {
        let (cluster, window) = (&self.shape.cluster, self.shape.window);
        for (at, slot) in self.slots.iter().enumerate().filter(|(_, slot)| slot.held) {
            let msg = MsgId { sender: cluster.client(at / window), seq: slot.seq };
            if slot.is_final() {
                tell(msg, WaitReason::Turn);
            }
            for g in slot.dst.iter().filter(|&g| !slot.proposed.contains(g)) {
                // The own proposal is missing while the multicast itself has not come.
                let whose = if g == self.group { msg.sender } else { cluster.replica(g, 0) };
                tell(msg, WaitReason::Vote(whose));
            }
        }
    }

    fn status(&self) -> ProtocolStatus {
        let (delivered, backlog) = (self.delivered, self.held);
        ProtocolStatus { delivered, decided: delivered, backlog, ..ProtocolStatus::default() }
    }
}

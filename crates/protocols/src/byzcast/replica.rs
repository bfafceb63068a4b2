//! The one process of a group: orders messages as they arrive, relays them to the children, delivers its own.

use super::message::ByzCastMessage;
use super::{ByzCastMutant, ByzCastShape};
use crate::layers::multicast_slots::MulticastHeading;
use alloc::sync::Arc;
use alloc::vec::Vec;
use amcast_core::messages::{Lane, MessageInput, MessageOutput, Messages};
use amcast_core::step::{Note, ProtocolStatus, WaitReason, WakeReason};
use amcast_core::{Gid, GroupSet, Input, MsgId, Outbox, Pid, Protocol, ProtocolEvent, Role, Time};

/// The replica of a group.
#[derive(Clone, Debug)]
pub(super) struct ByzCastReplica {
    group: Gid,
    shape: ByzCastShape,
    /// Client by client, `window` slots each: the number of the last message in it; only grows.
    slots: Vec<u64>,
    /// Messages that were relayed.
    relayed: u64,
    /// Deliveries so far.
    delivered: u64,
    /// The message that the mutant keeps back; a sound replica keeps none.
    kept: Option<(MulticastHeading, Arc<[u8]>)>,
}

impl ByzCastReplica {
    pub(super) fn new(group: Gid, shape: ByzCastShape) -> Self {
        let slots = alloc::vec![0; shape.cluster.clients() * shape.window];
        Self { group, shape, slots, relayed: 0, delivered: 0, kept: None }
    }

    /// [ByzCast 1] A message comes, of its client or of the parent: this is its place in the group's order.
    fn on_cast(
        &mut self,
        from: Pid,
        heading: MulticastHeading,
        payload: Arc<[u8]>,
        out: &mut Outbox<Messages<ByzCastMessage>>,
    ) -> Result<(), &'static str> {
        if payload.len() > self.shape.payload_max {
            return Err("a payload that is too large");
        }
        let at = self.place(&heading)?;
        out.event(ProtocolEvent::Part(heading.msg));
        self.check_way(from, &heading)?;
        if heading.msg.seq <= self.slots[at] {
            return Err("a message that is behind its slot");
        }
        self.slots[at] = heading.msg.seq;
        if !self.shape.mutants.is(ByzCastMutant::SkipsAncestor) {
            self.relay(heading, &payload, out);
        }
        if heading.dst.contains(self.group) {
            self.deliver(heading, &payload, out);
        }
        Ok(())
    }

    /// The place of a message in the table, if there is one for it.
    fn place(&self, heading: &MulticastHeading) -> Result<usize, &'static str> {
        let cluster = &self.shape.cluster;
        let client = match cluster.has(heading.msg.sender).then(|| cluster.role(heading.msg.sender))
        {
            Some(Role::Client { client }) => usize::from(client),
            _ => return Err("a multicast of one that is no client"),
        };
        if usize::from(heading.slot) >= self.shape.window {
            return Err("a slot beyond the window");
        }
        if heading.dst.is_empty() || !heading.dst.within(cluster.all_groups()) {
            return Err("destinations that there are not");
        }
        Ok(client * self.shape.window + usize::from(heading.slot))
    }

    /// Sees to it that a message comes the way that the tree has for it: from its client to the lowest common ancestor of
    /// its destinations, and from there on from parents.
    fn check_way(&self, from: Pid, heading: &MulticastHeading) -> Result<(), &'static str> {
        let ByzCastShape { cluster, overlay, mutants, .. } = &self.shape;
        let reach = overlay.reach(self.group);
        if from == heading.msg.sender {
            let is_first =
                overlay.lca(heading.dst) == self.group || mutants.is(ByzCastMutant::SkipsAncestor);
            return if is_first {
                Ok(())
            } else {
                Err("a message that another group orders first")
            };
        }
        let parent = overlay.parent(self.group).map(|parent| cluster.replica(parent, 0));
        if parent != Some(from) {
            return Err("a multicast in another's name");
        }
        match (!heading.dst.and(reach).is_empty(), heading.dst.within(reach)) {
            (true, false) => Ok(()),
            _ => Err("a message that the parent has no part in, or this group has none"),
        }
    }

    /// [ByzCast 2] Sends it to each child through which a destination is reached.
    fn relay(
        &mut self,
        heading: MulticastHeading,
        payload: &Arc<[u8]>,
        out: &mut Outbox<Messages<ByzCastMessage>>,
    ) {
        self.relayed += 1;
        let overtakes = self.shape.mutants.is(ByzCastMutant::Overtakes);
        if overtakes && self.kept.is_none() && self.relayed.is_multiple_of(4) {
            self.kept = Some((heading, Arc::clone(payload)));
            return;
        }
        self.send_down(heading, payload, out);
        if let Some((heading, payload)) = self.kept.take() {
            self.send_down(heading, &payload, out);
        }
    }

    fn send_down(
        &self,
        heading: MulticastHeading,
        payload: &Arc<[u8]>,
        out: &mut Outbox<Messages<ByzCastMessage>>,
    ) {
        let ByzCastShape { cluster, overlay, mutants, .. } = &self.shape;
        let all = mutants.is(ByzCastMutant::TellsAll);
        for child in overlay.children(self.group).iter() {
            if all || !heading.dst.and(overlay.reach(child)).is_empty() {
                let relay = ByzCastMessage::Cast { heading, payload: Arc::clone(payload) };
                out.ask(MessageOutput::To(cluster.replica(child, 0), Lane::Stream, relay));
            }
        }
    }

    /// [ByzCast 3] Delivers and acknowledges it.
    fn deliver(
        &mut self,
        heading: MulticastHeading,
        payload: &Arc<[u8]>,
        out: &mut Outbox<Messages<ByzCastMessage>>,
    ) {
        let mutants = self.shape.mutants;
        let MulticastHeading { msg, slot, dst } = heading;
        let mut hand_over = |position| {
            out.deliver(msg, dst, position, |bytes| bytes.extend_from_slice(payload));
        };
        self.delivered += 1;
        let fourth = self.delivered.is_multiple_of(4);
        if !(fourth && mutants.is(ByzCastMutant::Drops)) {
            hand_over(self.delivered);
        }
        if fourth && mutants.is(ByzCastMutant::Twice) {
            self.delivered += 1;
            hand_over(self.delivered);
        }
        let ack = ByzCastMessage::Ack { slot, seq: msg.seq };
        out.ask(MessageOutput::To(msg.sender, Lane::Stream, ack));
    }
}

impl Protocol for ByzCastReplica {
    type Medium = Messages<ByzCastMessage>;

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
            Input::Medium(MessageInput::From(from, ByzCastMessage::Cast { heading, payload })) => {
                (from, self.on_cast(from, heading, payload, out))
            }
            Input::Medium(MessageInput::From(from, ByzCastMessage::Ack { .. })) => {
                (from, Err("a message that only clients take"))
            }
            Input::Medium(MessageInput::Down(peer)) => {
                (peer, Err("a stream broke, which must not be"))
            }
            // Nothing here is timed, kept on disk or led.
            _ => return,
        };
        if let Err(why) = heard {
            out.note(Note::Malformed(from, why));
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

    /// A message waits nowhere: it is relayed and delivered in the step in which it comes.
    fn waiting(&self, _tell: &mut dyn FnMut(MsgId, WaitReason)) {}

    fn status(&self) -> ProtocolStatus {
        let delivered = self.delivered;
        ProtocolStatus { delivered, decided: delivered, ..ProtocolStatus::default() }
    }
}

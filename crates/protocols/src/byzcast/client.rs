//! The client: sends each multicast to the lowest common ancestor of its destinations, and keeps count of what is in flight.

use super::message::ByzCastMessage;
use super::{ByzCastMutant, ByzCastShape};
use crate::layers::multicast_slots::MulticastSlots;
use alloc::sync::Arc;
use amcast_core::messages::{Lane, MessageInput, MessageOutput, Messages};
use amcast_core::step::{Note, ProtocolStatus, WaitReason, WakeReason};
use amcast_core::{GroupSet, Input, MsgId, Outbox, Pid, Protocol, ProtocolEvent, Submission, Time};

/// One client process.
#[derive(Clone, Debug)]
pub(super) struct ByzCastClient {
    shape: ByzCastShape,
    slots: MulticastSlots,
}

impl ByzCastClient {
    pub(super) fn new(me: Pid, shape: ByzCastShape) -> Self {
        let slots = MulticastSlots::new(me, shape.cluster, shape.window, shape.window_bytes);
        Self { shape, slots }
    }

    fn on_submit(&mut self, s: Submission<'_>, out: &mut Outbox<Messages<ByzCastMessage>>) {
        assert!(self.room(s.dst, s.payload.len()) > 0, "a submission beyond the room there is");
        let heading = self.slots.open(s.seq, s.dst, s.payload.len());
        let payload: Arc<[u8]> = s.payload.into();
        out.event(ProtocolEvent::Part(heading.msg));
        let first = match self.shape.mutants.is(ByzCastMutant::SkipsAncestor) {
            true => s.dst,
            false => GroupSet::one(self.shape.overlay.lca(s.dst)),
        };
        for g in first.iter() {
            let cast = ByzCastMessage::Cast { heading, payload: Arc::clone(&payload) };
            out.ask(MessageOutput::To(self.shape.cluster.replica(g, 0), Lane::Stream, cast));
        }
    }
}

impl Protocol for ByzCastClient {
    type Medium = Messages<ByzCastMessage>;

    fn step(
        &mut self,
        _now: Time,
        (): (),
        input: Input<'_, Self::Medium>,
        out: &mut Outbox<Self::Medium>,
    ) {
        let (from, heard) = match input {
            Input::Submit(submission) => return self.on_submit(submission, out),
            Input::Medium(MessageInput::From(from, ByzCastMessage::Ack { slot, seq })) => {
                (from, self.slots.acknowledge(from, slot, seq))
            }
            Input::Medium(MessageInput::From(from, ByzCastMessage::Cast { .. })) => {
                (from, Err("a message that only replicas take"))
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

    fn room(&self, dst: GroupSet, bytes: usize) -> usize {
        let sound = !dst.is_empty() && dst.within(self.shape.cluster.all_groups());
        if !sound || bytes > self.shape.payload_max {
            return 0;
        }
        self.slots.room(bytes)
    }

    fn payload_max(&self) -> usize {
        self.shape.payload_max
    }

    fn waiting(&self, tell: &mut dyn FnMut(MsgId, WaitReason)) {
        self.slots.waiting(tell);
    }

    fn status(&self) -> ProtocolStatus {
        let backlog = self.slots.in_flight() as u64;
        ProtocolStatus { backlog, ..ProtocolStatus::default() }
    }
}

//! Between the transport of casts and the protocol above: casts and messages that may be handed over, and those that
//! the protocol makes in turn.

use super::agreement::PrimaryComponent;
use super::casts::{CastId, HeldCasts, RetainedCast, RingArrival};
use super::membership::{AppState, ViewPhase};
use super::{Vsync, VsyncMutant, VsyncPacket};
use alloc::vec::Vec;
use amcast_core::codec::{ByteReader, Codec};
use amcast_core::groupcast::{Grade, Groupcast, GroupcastInput, GroupcastOutput};
use amcast_core::messages::Messages;
use amcast_core::step::Note;
use amcast_core::{Delivery, EarlyDelivery, Input, Outbox, Output, Pid, Protocol, ProtocolEvent};
use core::mem;

impl<M, P> Vsync<M, P>
where
    M: Codec + core::fmt::Debug + 'static,
    P: Protocol<Medium = Groupcast<M>>,
{
    /// Gives the protocol above an input, and carries out what it asks.
    pub(super) fn tell(
        &mut self,
        input: Input<'_, Groupcast<M>>,
        out: &mut Outbox<Messages<VsyncPacket>>,
    ) {
        self.inner_out.clear();
        self.inner_out.trace_as(out);
        self.inner.step(self.group.now, (), input, &mut self.inner_out);
        let mut taken = mem::take(&mut self.taken);
        self.inner_out.take(&mut taken);
        for output in taken.drain(..) {
            match output {
                Output::Medium(GroupcastOutput::Cast(grade, m)) => self.cast(grade, &m),
                Output::Medium(GroupcastOutput::To(to, m)) => self.send(to, &m),
                Output::Medium(GroupcastOutput::Base(bytes)) => {
                    self.transfer.set_base(self.inner_out.bytes(bytes));
                }
                Output::Deliver(delivery) => self.deliver(&delivery, out),
                Output::Early(early) => self.deliver_early(&early, out),
                Output::Event(event @ ProtocolEvent::Part(_)) => out.event(event),
                Output::Note(note) => out.note(note),
                other => unreachable!("{other:?} is not for a protocol on a group"),
            }
        }
        self.taken = taken;
    }

    /// Casts for the protocol above.
    fn cast(&mut self, grade: Grade, m: &M) {
        if self.group.phase != ViewPhase::Active {
            return;
        }
        let mut bytes = Vec::new();
        m.encode(&mut bytes);
        self.casts.cast(&self.group, grade, &bytes, &mut self.post);
    }

    /// Sends to one member for the protocol above.
    fn send(&mut self, to: Pid, m: &M) {
        let group = &self.group;
        if group.phase != ViewPhase::Active || !group.view.has(to) || to == group.me() {
            return;
        }
        let mut bytes = Vec::new();
        m.encode(&mut bytes);
        self.casts.send(group, to, &bytes, &mut self.post);
    }

    /// Delivers. Deliveries of the protocol above as it begins are in the needed state.
    fn deliver(&self, delivery: &Delivery, out: &mut Outbox<Messages<VsyncPacket>>) {
        if self.group.app_state != AppState::Missing {
            let bytes = self.inner_out.bytes(delivery.payload);
            let Delivery { msg, dst, position, .. } = *delivery;
            out.deliver(msg, dst, position, |to| to.extend_from_slice(bytes));
        }
    }

    /// Delivers early, in a process whose deliveries count.
    fn deliver_early(&self, early: &EarlyDelivery, out: &mut Outbox<Messages<VsyncPacket>>) {
        if self.group.app_state != AppState::Missing {
            let bytes = self.inner_out.bytes(early.payload);
            out.deliver_early(early.msg, early.dst, |to| to.extend_from_slice(bytes));
        }
    }

    /// Whether casts are handed over as they come.
    pub(super) fn hands_over(&self) -> bool {
        self.transfer.has_begun()
            && !self.flow.is_full()
            && PrimaryComponent(&self.group).is_primary()
    }

    /// Hands over all that may be.
    pub(super) fn hand_over(&mut self, out: &mut Outbox<Messages<VsyncPacket>>) {
        if self.group.phase != ViewPhase::Active {
            return;
        }
        self.casts.log.ack_own(self.group.me());
        if self.hands_over() {
            let quorum = PrimaryComponent(&self.group).holders();
            self.hand_over_arrivals(out);
            self.announce_stable(out);
            while let Some((sender, kept)) = self.casts.next(&self.group, quorum) {
                self.give(sender, kept, out);
                if self.group.phase != ViewPhase::Active {
                    return;
                }
            }
        }
        self.casts.advance(&self.group, &mut self.post);
    }

    /// Announces the casts of others that arrived and wait until all members have them.
    fn announce_stable(&mut self, out: &mut Outbox<Messages<VsyncPacket>>) {
        for at in 0..self.group.members.len() {
            let sender = self.group.members[at];
            while sender != self.group.me() && self.casts.log.announce(sender) {
                self.tell(Input::Medium(GroupcastInput::Received(sender)), out);
            }
        }
    }

    /// Handles the arrivals on the ring, in order.
    fn hand_over_arrivals(&mut self, out: &mut Outbox<Messages<VsyncPacket>>) {
        while self.group.phase == ViewPhase::Active
            && let Some(arrival) = self.casts.next_arrival()
        {
            match arrival {
                RingArrival::Cast(cast) => self.hand_over_cast(cast, out),
                RingArrival::Stable(cast) => {
                    self.casts.forward_stable(&self.group, cast, &mut self.post);
                    if !self.group.is_broken(VsyncMutant::TrustsOne) {
                        self.tell(Input::Medium(GroupcastInput::Stable(cast.sender)), out);
                    }
                }
            }
        }
    }

    /// Forwards a cast along the ring, and hands it over.
    fn hand_over_cast(&mut self, cast: CastId, out: &mut Outbox<Messages<VsyncPacket>>) {
        let CastId { sender, number } = cast;
        let Some(stage) = self.casts.forward(&self.group, cast, &mut self.post) else { return };
        while let Some(kept) = self.casts.log.next(sender, HeldCasts::ANY, number) {
            self.give(sender, kept, out);
        }
        let is_stable = stage.is_last || self.group.is_broken(VsyncMutant::TrustsOne);
        if stage.is_whole && is_stable {
            self.tell(Input::Medium(GroupcastInput::Stable(sender)), out);
        }
    }

    /// Hands over a cast of `from`, once it is whole.
    pub(super) fn give(
        &mut self,
        from: Pid,
        kept: RetainedCast,
        out: &mut Outbox<Messages<VsyncPacket>>,
    ) {
        let part = self.casts.assembly(from).cast(kept.grade);
        let taken = match part.is_empty() && !kept.more {
            true => return self.give_whole(from, &kept.bytes, out),
            false => part.take(&kept.bytes, kept.more, self.group.settings.message_bytes),
        };
        self.give_taken(from, taken, out);
    }

    /// Hands over a message of `from` for this member alone, once it is whole.
    pub(super) fn give_message(
        &mut self,
        from: Pid,
        more: bool,
        bytes: &[u8],
        out: &mut Outbox<Messages<VsyncPacket>>,
    ) {
        let part = self.casts.assembly(from).message();
        let taken = match part.is_empty() && !more {
            true => return self.give_whole(from, bytes, out),
            false => part.take(bytes, more, self.group.settings.message_bytes),
        };
        self.give_taken(from, taken, out);
    }

    fn give_taken(
        &mut self,
        from: Pid,
        taken: Result<Option<Vec<u8>>, ()>,
        out: &mut Outbox<Messages<VsyncPacket>>,
    ) {
        match taken {
            Ok(Some(bytes)) => {
                out.mark("vsync-in-parts");
                self.give_whole(from, &bytes, out);
            }
            Ok(None) => {}
            Err(()) => out.note(Note::Malformed(from, "a message in parts is larger than any")),
        }
    }

    /// Hands over what is in a message of `from`.
    fn give_whole(&mut self, from: Pid, bytes: &[u8], out: &mut Outbox<Messages<VsyncPacket>>) {
        let mut reader = ByteReader::new(bytes);
        match M::decode(&mut reader) {
            Ok(m) if reader.is_empty() => {
                self.tell(Input::Medium(GroupcastInput::From(from, m)), out);
            }
            _ => out.note(Note::Malformed(from, "a cast does not decode")),
        }
    }
}

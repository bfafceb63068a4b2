//! The client: sends each multicast to its destinations, and keeps count of what is in flight.

use super::SkeenShape;
use super::message::{MulticastHeading, SkeenMessage};
use alloc::sync::Arc;
use alloc::vec::Vec;
use amcast_core::messages::{Lane, MessageInput, MessageOutput, Messages};
use amcast_core::step::{Note, ProtocolStatus, WaitReason, WakeReason};
use amcast_core::{GroupSet, Input, MsgId, Outbox, Pid, Protocol, ProtocolEvent, Submission, Time};

/// One client process.
#[derive(Clone, Debug)]
pub(super) struct SkeenClient {
    me: Pid,
    shape: SkeenShape,
    /// By slot.
    flights: Vec<InFlightMulticast>,
    /// Slots with nothing in flight.
    free: Vec<u16>,
    /// Payload bytes in flight.
    bytes: usize,
    /// The number of the last multicast; only grows.
    seq: u64,
}

/// A multicast in flight. A free slot awaits nobody.
#[derive(Clone, Copy, Debug, Default)]
struct InFlightMulticast {
    seq: u64,
    bytes: usize,
    /// Destinations that have not acknowledged.
    awaits: GroupSet,
}

impl SkeenClient {
    pub(super) fn new(me: Pid, shape: SkeenShape) -> Self {
        Self {
            me,
            shape,
            flights: alloc::vec![InFlightMulticast::default(); shape.window],
            free: (0..shape.window as u16).rev().collect(),
            bytes: 0,
            seq: 0,
        }
    }

    fn on_submit(&mut self, s: Submission<'_>, out: &mut Outbox<Messages<SkeenMessage>>) {
        assert!(self.room(s.dst, s.payload.len()) > 0, "a submission beyond the room there is");
        assert!(s.seq > self.seq, "number {} does not follow {}", s.seq, self.seq);
        let slot = self.free.pop().expect("there is room");
        let bytes = s.payload.len();
        self.flights[usize::from(slot)] = InFlightMulticast { seq: s.seq, bytes, awaits: s.dst };
        self.bytes += bytes;
        self.seq = s.seq;
        let heading =
            MulticastHeading { msg: MsgId { sender: self.me, seq: s.seq }, slot, dst: s.dst };
        let payload: Arc<[u8]> = s.payload.into();
        out.event(ProtocolEvent::Part(heading.msg));
        for g in s.dst.iter() {
            let cast = SkeenMessage::Cast { heading, payload: Arc::clone(&payload) };
            out.ask(MessageOutput::To(self.shape.cluster.replica(g, 0), Lane::Stream, cast));
        }
    }

    fn on_ack(&mut self, from: Pid, slot: u16, seq: u64) -> Result<(), &'static str> {
        let flight = self.flights.get_mut(usize::from(slot)).ok_or("no such slot")?;
        let group = match self.shape.cluster.has(from) {
            true => self.shape.cluster.group_of(from).ok_or("an acknowledgement of a client")?,
            false => return Err("not of this cluster"),
        };
        if flight.seq != seq || !flight.awaits.contains(group) {
            return Err("an acknowledgement of what is not awaited");
        }
        flight.awaits = GroupSet(flight.awaits.0 & !GroupSet::one(group).0);
        if flight.awaits.is_empty() {
            self.bytes -= flight.bytes;
            self.free.push(slot);
        }
        Ok(())
    }
}

impl Protocol for SkeenClient {
    type Medium = Messages<SkeenMessage>;

    fn step(
        &mut self,
        _now: Time,
        (): (),
        input: Input<'_, Self::Medium>,
        out: &mut Outbox<Self::Medium>,
    ) {
        let (from, heard) = match input {
            Input::Submit(submission) => return self.on_submit(submission, out),
            Input::Medium(MessageInput::From(from, SkeenMessage::Ack { slot, seq })) => {
                (from, self.on_ack(from, slot, seq))
            }
            Input::Medium(MessageInput::From(from, _)) => (from, Err("what only replicas take")),
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
        self.free.len().min((self.shape.window_bytes - self.bytes) / bytes.max(1))
    }

    fn payload_max(&self) -> usize {
        self.shape.payload_max
    }

    fn waiting(&self, tell: &mut dyn FnMut(MsgId, WaitReason)) {
        for flight in &self.flights {
            for g in flight.awaits.iter() {
                tell(MsgId { sender: self.me, seq: flight.seq }, WaitReason::Order(g));
            }
        }
    }

    fn status(&self) -> ProtocolStatus {
        let backlog = (self.shape.window - self.free.len()) as u64;
        ProtocolStatus { backlog, ..ProtocolStatus::default() }
    }
}

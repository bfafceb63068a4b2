//! A member of the group: its batches, and the deliveries of all.

use super::message::LcrMessage;
use super::mutants::{self, LcrMutant};
use super::order::RingOrder;
use crate::layers::batch::Batch;
use crate::layers::delivery::BatchDelivery;
use crate::layers::join_state::{JoinState, MALFORMED_STATE};
use crate::layers::outgoing::{BatchLimits, OutgoingBatches};
use crate::mutant::Mutants;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use amcast_core::codec::{ByteReader, Codec};
use amcast_core::groupcast::{Grade, Groupcast, GroupcastInput, GroupcastOutput, View};
use amcast_core::step::{Note, ProtocolStatus, WaitReason, WakeReason};
use amcast_core::{
    Gid, GroupSet, Input, MsgId, Outbox, Pid, Protocol, ProtocolEvent, Submission, Time,
};

/// The outputs of a step.
pub(super) type LcrOutbox = Outbox<Groupcast<LcrMessage>>;

/// How a member runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct LcrSettings {
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
    /// Bytes of own batches that not all members have, to this process's knowledge: beyond that none leaves.
    pub(super) ring_bytes: usize,
    pub(super) mutants: Mutants<LcrMutant>,
}

/// A member of the group. See the [module](super).
#[derive(Debug)]
pub(super) struct LcrMember {
    set: LcrSettings,
    now: Time,
    view: View,
    /// Its own place on the ring.
    rank: usize,
    /// Whether the view is about to end: nothing may be sent.
    blocked: bool,
    /// Own messages that are not delivered here yet.
    own: OutgoingBatches,
    /// Whether messages were submitted since the last wake-up: those of one round leave together.
    fresh: bool,
    on_ring: CirclingBatches,
    order: RingOrder,
    delivery: BatchDelivery,
}

impl LcrMember {
    /// A member that is in no view yet.
    pub(super) fn new(set: LcrSettings) -> Self {
        Self {
            now: Time::ZERO,
            view: View::new(0, Vec::new()),
            rank: 0,
            blocked: true,
            own: OutgoingBatches::new(BatchLimits { bytes: usize::MAX, messages: usize::MAX }),
            fresh: false,
            on_ring: CirclingBatches::default(),
            order: RingOrder::new(0),
            delivery: BatchDelivery::new(
                set.me,
                set.processes,
                mutants::of_deliveries(set.mutants),
            ),
            set,
        }
    }

    /// Sends own batches, as many as may leave now. Without contention a batch of any size leaves at once. While an own
    /// batch is on the way only full ones follow it, as many as may be on the ring.
    fn send(&mut self, out: &mut LcrOutbox) {
        while !self.blocked && self.own.unsent() > 0 {
            let room = self.on_ring.bytes < self.set.ring_bytes;
            let may = self.own.sent() == 0 || room && self.own.next_is_sealed();
            if !may {
                return;
            }
            let Some(batch) = self.own.next() else { return };
            self.on_ring.begin(batch.bytes());
            note_part(self.set.me, &batch, out);
            self.delivery.deliver_early(self.set.me, &batch, out);
            // It is pending until it is delivered.
            let mut message = self.order.send(self.rank, batch);
            if self.set.mutants.is(LcrMutant::StaleClock) {
                message.clock[..self.rank].fill(0);
            }
            out.ask(GroupcastOutput::Cast(Grade::Plain, message));
        }
    }

    fn submit(&mut self, submission: Submission<'_>) {
        self.own.gather(submission.seq, submission.payload);
        if self.own.open_bytes() >= self.set.batch_bytes {
            self.own.seal();
        }
        self.fresh = true;
    }

    /// A batch of another member arrives, on its first lap.
    ///
    /// # Errors
    /// When it makes no sense from that member.
    fn hear(
        &mut self,
        from: Pid,
        message: LcrMessage,
        out: &mut LcrOutbox,
    ) -> Result<(), &'static str> {
        if from == self.set.me {
            // It is pending since it was sent.
            return Ok(());
        }
        let rank = self.view.rank(from).ok_or("a batch of no member")?;
        let batch = message.batch.clone();
        self.order.receive(rank, message)?;
        note_part(from, &batch, out);
        self.delivery.deliver_early(from, &batch, out);
        Ok(())
    }

    /// All members have one more batch of a member: on its second lap.
    ///
    /// # Errors
    /// When it is not here.
    fn hear_stable(&mut self, from: Pid, out: &mut LcrOutbox) -> Result<(), &'static str> {
        let rank = self.view.rank(from).ok_or("a batch of no member")?;
        self.order.stable(rank)?;
        if from == self.set.me {
            self.on_ring.end();
        }
        while let Some((rank, batch)) = self.order.next() {
            self.deliver(rank, &batch, out);
        }
        Ok(())
    }

    fn deliver(&mut self, rank: usize, batch: &Batch, out: &mut LcrOutbox) {
        let sender = self.view.members[rank].pid;
        if sender == self.set.me {
            self.own.delivered(batch.first());
        }
        self.delivery.deliver(sender, batch, out);
    }

    /// The view is over: all survivors deliver what is left of it in the same order.
    fn settle(&mut self, out: &mut LcrOutbox) {
        let mut left = self.order.settle();
        if self.set.mutants.is(LcrMutant::OwnFirst) {
            left.sort_by_key(|&(rank, _)| rank != self.rank);
        }
        left.iter().for_each(|(rank, batch)| self.deliver(*rank, batch, out));
    }

    /// A view begins: its members are the ring, nothing is pending, and clocks begin anew.
    fn begin(&mut self, view: &View, out: &mut LcrOutbox) {
        self.view = view.clone();
        self.rank = view.rank(self.set.me).unwrap_or(0);
        self.blocked = false;
        self.own.restart();
        self.on_ring = CirclingBatches::default();
        self.order = RingOrder::new(view.members.len());
        if self.set.mutants.is(LcrMutant::IgnoresClocks) {
            self.order.ignore_clocks();
        }
        let base = out.fill(|to| self.delivery.state().encode(to));
        out.ask(GroupcastOutput::Base(base));
        self.send(out);
    }

    fn join(&mut self, view: &View, bytes: &[u8], out: &mut LcrOutbox) {
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

/// The own batches that travel the ring in this view, until this member learns that all have them.
#[derive(Debug, Default)]
struct CirclingBatches {
    /// The bytes of each.
    all: VecDeque<usize>,
    /// Of all of them.
    bytes: usize,
}

impl CirclingBatches {
    /// A batch of so many bytes leaves.
    fn begin(&mut self, bytes: usize) {
        self.all.push_back(bytes);
        self.bytes += bytes;
    }

    /// All members have the oldest one.
    fn end(&mut self) {
        self.bytes -= self.all.pop_front().unwrap_or(0);
    }
}

/// The messages of a batch are taken part in.
fn note_part(sender: Pid, batch: &Batch, out: &mut LcrOutbox) {
    if out.traces() {
        let all = batch.messages();
        all.for_each(|(seq, _)| out.event(ProtocolEvent::Part(MsgId { sender, seq })));
    }
}

impl Protocol for LcrMember {
    type Medium = Groupcast<LcrMessage>;

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
            Input::Wake => {
                self.fresh = false;
                self.send(out);
            }
            Input::Medium(GroupcastInput::View(view)) => {
                self.settle(out);
                self.begin(view, out);
            }
            Input::Medium(GroupcastInput::Join(view, state)) => self.join(view, state, out),
            Input::Medium(GroupcastInput::Block) => self.blocked = true,
            Input::Medium(GroupcastInput::Excluded) => self.excluded(),
            Input::Medium(GroupcastInput::From(from, message)) => {
                if let Err(why) = self.hear(from, message, out) {
                    out.note(Note::Malformed(from, why));
                }
            }
            Input::Medium(GroupcastInput::Stable(from)) => {
                if let Err(why) = self.hear_stable(from, out) {
                    out.note(Note::Malformed(from, why));
                }
                // Own batches that waited for a delivery.
                if !self.fresh {
                    self.send(out);
                }
            }
            // Nothing is kept on disk; the state is the layer's below.
            _ => {}
        }
    }

    fn deadline(&self) -> Option<(Time, WakeReason)> {
        (self.fresh && !self.blocked).then_some((self.now, WakeReason::Flush))
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

//! The common base of all ordering protocols: own messages until they are delivered, the position
//! reached, and a frame around the [`Scheme`] that differs.

use super::message::{OrderingMessage, msg};
use super::mutants::TotalOrderMutant;
use crate::layers::batch::Batch;
use crate::layers::join_state::{JoinState, MALFORMED_STATE};
use crate::layers::outgoing::{BatchLimits, OutgoingBatches};
use crate::mutant::Mutants;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use amcast_core::codec::{ByteReader, Codec};
use amcast_core::groupcast::{Grade, Groupcast, GroupcastInput, GroupcastOutput, View};
use amcast_core::step::{Note, ProtocolStatus, WaitReason, WakeReason};
use amcast_core::{
    Gid, GroupSet, Input, MsgId, Outbox, Pid, Protocol, ProtocolEvent, Span, Submission, Time,
};

/// The outputs of a step.
pub(super) type OrderingOutbox = Outbox<Groupcast<OrderingMessage>>;

/// How the members of a group give their messages an order.
pub(super) trait Scheme {
    /// A view begins: nothing of the one before is left, and own messages are all to be sent.
    fn begin(&mut self, ordering: &mut OrderingBase, out: &mut OrderingOutbox);

    /// Own messages may be sent, if there are any.
    fn send(&mut self, ordering: &mut OrderingBase, out: &mut OrderingOutbox);

    /// A member says something.
    ///
    /// # Errors
    /// When it makes no sense from that member.
    fn hear(
        &mut self,
        ordering: &mut OrderingBase,
        from: Pid,
        word: OrderingMessage,
        out: &mut OrderingOutbox,
    ) -> Result<(), &'static str>;

    /// The view is over and nothing more of it comes: delivers what is left, the same at every
    /// survivor.
    fn settle(&mut self, ordering: &mut OrderingBase, out: &mut OrderingOutbox);

    /// The time that it asked for is over.
    fn wake(&mut self, _desk: &mut OrderingBase, _out: &mut OrderingOutbox) {}

    /// When it wants to be woken.
    fn deadline(&self) -> Option<(Time, WakeReason)> {
        None
    }
}

/// The settings of an ordering protocol.
#[derive(Clone, Copy, Debug)]
pub(super) struct OrderingSettings {
    pub(super) me: Pid,
    pub(super) processes: usize,
    /// Own messages that are not delivered here yet, at most.
    pub(super) window: usize,
    /// Their bytes, at most.
    pub(super) window_bytes: usize,
    pub(super) payload_max: usize,
    /// How large a run gets, in bytes, if it has more than one message.
    pub(super) run_bytes: usize,
    /// How many messages a run has, at most.
    pub(super) run_messages: usize,
    /// Messages that a holder of the token sends before it passes it on, at most.
    pub(super) burst: usize,
    /// How long the token rests when nobody has anything to send.
    pub(super) rest: Span,
    /// Whether a message can only have been delivered by anyone if the survivors deliver it, too:
    /// then this process may send its own again after it was excluded.
    pub(super) resends: bool,
    pub(super) mutants: Mutants<TotalOrderMutant>,
}

/// The state around a [`Scheme`].
#[derive(Debug)]
pub(super) struct OrderingBase {
    pub(super) set: OrderingSettings,
    pub(super) now: Time,
    pub(super) view: View,
    /// Whether the view is about to end: nothing may be sent.
    blocked: bool,
    /// Own runs that are not delivered here yet.
    own: OutgoingBatches,
    /// The deliveries so far.
    delivered: JoinState,
    /// For a mutant: a message that it delivers later than its turn.
    swapped: Option<(MsgId, Arc<[u8]>)>,
    deliveries: u64,
}

impl OrderingBase {
    pub(super) fn new(set: OrderingSettings) -> Self {
        Self {
            set,
            now: Time::ZERO,
            view: View::new(0, Vec::new()),
            blocked: true,
            own: OutgoingBatches::new(BatchLimits {
                bytes: set.run_bytes,
                messages: set.run_messages,
            }),
            delivered: JoinState::new(set.processes),
            swapped: None,
            deliveries: 0,
        }
    }

    /// The member that gives numbers: the most senior one.
    pub(super) fn sequencer(&self) -> Option<Pid> {
        self.view.pids().next()
    }

    pub(super) fn is_sequencer(&self) -> bool {
        self.sequencer() == Some(self.set.me)
    }

    /// How many own runs are not sent yet; none may be while the view ends.
    pub(super) fn unsent(&self) -> usize {
        if self.blocked { 0 } else { self.own.unsent() }
    }

    /// How many messages are in the next own run to send, if there is one.
    pub(super) fn next_len(&self) -> Option<usize> {
        self.own.next_len().filter(|_| !self.blocked)
    }

    /// The next own run to send; it counts as sent from here on.
    pub(super) fn next_unsent(&mut self) -> Option<Batch> {
        if self.blocked { None } else { self.own.next() }
    }

    /// Whether the view continues.
    pub(super) const fn is_open(&self) -> bool {
        !self.blocked
    }

    /// Casts `word`.
    pub(super) fn cast(&self, grade: Grade, word: OrderingMessage, out: &mut OrderingOutbox) {
        out.ask(GroupcastOutput::Cast(grade, word));
    }

    /// Casts messages of `sender` with their number.
    pub(super) fn cast_run(
        &self,
        grade: Grade,
        number: u64,
        sender: Pid,
        run: Batch,
        out: &mut OrderingOutbox,
    ) {
        self.note_part(sender, &run, out);
        self.cast(grade, OrderingMessage::Numbered { number, sender, run }, out);
    }

    pub(super) fn note_part(&self, sender: Pid, run: &Batch, out: &mut OrderingOutbox) {
        if out.traces() {
            run.messages().for_each(|(seq, _)| out.event(ProtocolEvent::Part(msg(sender, seq))));
        }
    }

    /// Whether a message was delivered, here or in the state that this process began with.
    pub(super) fn is_delivered(&self, msg: MsgId) -> bool {
        self.delivered.has(msg)
    }

    /// Delivers the messages of a run early: each run that comes, once.
    pub(super) fn deliver_early(&self, sender: Pid, run: &Batch, out: &mut OrderingOutbox) {
        if out.wants_early() {
            let dst = GroupSet::one(Gid(0));
            let messages = run.messages().map(|(seq, payload)| (msg(sender, seq), payload));
            messages.filter(|&(msg, _)| !self.is_delivered(msg)).for_each(|(msg, payload)| {
                out.deliver_early(msg, dst, |to| to.extend_from_slice(payload));
            });
        }
    }

    /// Delivers the messages of a run, but for those that were.
    pub(super) fn deliver(&mut self, sender: Pid, run: &Batch, out: &mut OrderingOutbox) {
        if sender == self.set.me {
            self.own.delivered(run.first());
        }
        let dst = GroupSet::one(Gid(0));
        for (seq, payload) in run.messages() {
            let msg = msg(sender, seq);
            if self.is_delivered(msg) {
                continue;
            }
            self.delivered.last[sender.index()] = seq;
            self.deliveries += 1;
            if self.set.mutants.any() {
                self.deliver_wrongly(msg, &Arc::from(payload), out);
                continue;
            }
            self.delivered.position += 1;
            out.deliver(msg, dst, self.delivered.position, |to| to.extend_from_slice(payload));
        }
    }

    fn hand_over(&mut self, msg: MsgId, payload: &Arc<[u8]>, out: &mut OrderingOutbox) {
        self.delivered.position += 1;
        let dst = GroupSet::one(Gid(0));
        out.deliver(msg, dst, self.delivered.position, |to| to.extend_from_slice(payload));
    }

    /// The effect of mutants on a delivery.
    fn deliver_wrongly(&mut self, msg: MsgId, payload: &Arc<[u8]>, out: &mut OrderingOutbox) {
        let mutants = self.set.mutants;
        let fourth = self.deliveries.is_multiple_of(4);
        let odd = self.set.me.0 % 2 == 1;
        if mutants.is(TotalOrderMutant::Overtakes) && odd && fourth && self.swapped.is_none() {
            self.swapped = Some((msg, Arc::clone(payload)));
            return;
        }
        if mutants.is(TotalOrderMutant::LosesItsOwn)
            && msg.sender == self.set.me
            && msg.seq.is_multiple_of(2)
        {
            // The place stays empty.
            self.delivered.position += 1;
            return;
        }
        self.hand_over(msg, payload, out);
        if mutants.is(TotalOrderMutant::Twice) && fourth {
            self.hand_over(msg, payload, out);
        }
        if let Some((other, payload)) = self.swapped.take() {
            self.hand_over(other, &payload, out);
        }
    }
}

/// Runs with numbers, delivered in the order of these.
#[derive(Debug, Default)]
pub(super) struct NumberedBatches {
    /// The last number that was delivered.
    done: u64,
    /// Those after it that came.
    come: BTreeMap<u64, (Pid, Batch)>,
}

impl NumberedBatches {
    /// Takes in messages of a process, and delivers all whose turn it is.
    pub(super) fn take(
        &mut self,
        ordering: &mut OrderingBase,
        number: u64,
        (sender, run): (Pid, Batch),
        out: &mut OrderingOutbox,
    ) -> Result<(), &'static str> {
        if number == u64::MAX || number <= self.done || self.come.contains_key(&number) {
            return Err("a number that is taken");
        }
        if number == self.done + 1 {
            self.done = number;
            ordering.deliver(sender, &run, out);
        } else {
            self.come.insert(number, (sender, run));
        }
        while let Some((sender, run)) = self.come.remove(&(self.done + 1)) {
            self.done += 1;
            ordering.deliver(sender, &run, out);
        }
        Ok(())
    }

    /// Delivers all that came, over any missing numbers.
    pub(super) fn settle(&mut self, ordering: &mut OrderingBase, out: &mut OrderingOutbox) {
        for (sender, run) in core::mem::take(&mut self.come).into_values() {
            ordering.deliver(sender, &run, out);
        }
    }
}

/// An ordering protocol: a [`Scheme`] and its [`OrderingBase`].
#[derive(Debug)]
pub(super) struct TotalOrderProtocol<S> {
    ordering: OrderingBase,
    scheme: S,
    /// Whether messages came that the scheme was not told of: those of one step leave together.
    fresh: bool,
}

impl<S: Scheme> TotalOrderProtocol<S> {
    pub(super) fn new(set: OrderingSettings, scheme: S) -> Self {
        Self { ordering: OrderingBase::new(set), scheme, fresh: false }
    }

    fn submit(&mut self, submission: Submission<'_>) {
        self.ordering.own.gather(submission.seq, submission.payload);
        self.fresh = true;
    }

    fn wake(&mut self, out: &mut OrderingOutbox) {
        if core::mem::take(&mut self.fresh) {
            self.scheme.send(&mut self.ordering, out);
        }
        self.scheme.wake(&mut self.ordering, out);
    }

    fn begin(&mut self, view: &View, out: &mut OrderingOutbox) {
        let ordering = &mut self.ordering;
        (ordering.view, ordering.blocked) = (view.clone(), false);
        ordering.own.restart();
        let base = out.fill(|to| ordering.delivered.encode(to));
        out.ask(GroupcastOutput::Base(base));
        self.fresh = false;
        self.scheme.begin(ordering, out);
        self.scheme.send(ordering, out);
    }

    fn join(&mut self, view: &View, bytes: &[u8], out: &mut OrderingOutbox) {
        let ordering = &mut self.ordering;
        match JoinState::decode(&mut ByteReader::new(bytes)) {
            Ok(base) if base.last.len() == ordering.set.processes => ordering.delivered = base,
            // Some member gave it; the most senior one answers for the view.
            _ => {
                let of = view.pids().next().unwrap_or(ordering.set.me);
                out.note(Note::Malformed(of, MALFORMED_STATE));
            }
        }
        let last = ordering.delivered.last[ordering.set.me.index()];
        // Some of them had been sent before it was excluded, and are delivered.
        ordering.own.retain(|_, run| run.last() > last);
        self.begin(view, out);
    }

    /// An excluded member delivers nothing more of its view.
    fn excluded(&mut self) {
        let ordering = &mut self.ordering;
        ordering.blocked = true;
        if !ordering.set.resends {
            // Other excluded members may have delivered some, before the deliveries of the group.
            let sent = ordering.own.sent();
            ordering.own.retain(|at, _| at >= sent);
        }
        ordering.own.restart();
    }
}

impl<S: Scheme> Protocol for TotalOrderProtocol<S> {
    type Medium = Groupcast<OrderingMessage>;

    fn step(
        &mut self,
        now: Time,
        (): (),
        input: Input<'_, Self::Medium>,
        out: &mut Outbox<Self::Medium>,
    ) {
        self.ordering.now = now;
        match input {
            Input::Submit(submission) => self.submit(submission),
            Input::Wake => self.wake(out),
            Input::Medium(GroupcastInput::View(view)) => {
                self.scheme.settle(&mut self.ordering, out);
                self.begin(view, out);
            }
            Input::Medium(GroupcastInput::Join(view, base)) => self.join(view, base, out),
            Input::Medium(GroupcastInput::Block) => self.ordering.blocked = true,
            Input::Medium(GroupcastInput::Excluded) => self.excluded(),
            Input::Medium(GroupcastInput::From(from, word)) => {
                if let Err(why) = self.scheme.hear(&mut self.ordering, from, word, out) {
                    out.note(Note::Malformed(from, why));
                }
            }
            // Nothing is kept on disk; the state is the layer's below.
            _ => {}
        }
    }

    fn deadline(&self) -> Option<(Time, WakeReason)> {
        let fresh = self.fresh.then_some((self.ordering.now, WakeReason::Flush));
        fresh.or_else(|| self.scheme.deadline()).filter(|_| self.ordering.is_open())
    }

    fn room(&self, _dst: GroupSet, bytes: usize) -> usize {
        let set = &self.ordering.set;
        self.ordering.own.room(set.window, set.window_bytes, bytes)
    }

    fn payload_max(&self) -> usize {
        self.ordering.set.payload_max
    }

    fn waiting(&self, tell: &mut dyn FnMut(MsgId, WaitReason)) {
        let me = self.ordering.set.me;
        self.ordering.own.waiting(&mut |seq, sent| {
            let why = if sent { WaitReason::Turn } else { WaitReason::Order(Gid(0)) };
            tell(msg(me, seq), why);
        });
    }

    fn status(&self) -> ProtocolStatus {
        let (delivered, backlog) =
            (self.ordering.delivered.position, self.ordering.own.messages() as u64);
        ProtocolStatus { delivered, decided: delivered, backlog, ..ProtocolStatus::default() }
    }
}

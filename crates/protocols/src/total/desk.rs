//! What all ordering protocols have in common: own messages until they are delivered, the position
//! reached, and a frame around the [`Scheme`] that differs.

use super::mutants::Mutant;
use super::word::{Base, Word, msg};
use crate::mutant::Mutants;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use amcast_core::codec::{Codec, Reader};
use amcast_core::groupcast::{Grade, Groupcast, In, Out, View};
use amcast_core::step::{Note, Status, Wait, Why};
use amcast_core::{Gid, GroupSet, Input, MsgId, Outbox, Pid, Protocol, Span, Submission, Time};

/// What goes out of a step.
pub(super) type Outs = Outbox<Groupcast<Word>>;

/// How the members of a group give their messages an order.
pub(super) trait Scheme {
    /// A view begins: nothing of the one before is left, and own messages are all to be sent.
    fn begin(&mut self, desk: &mut Desk, out: &mut Outs);

    /// Own messages may be sent, if there are any.
    fn send(&mut self, desk: &mut Desk, out: &mut Outs);

    /// A member says something.
    ///
    /// # Errors
    /// When it makes no sense from that member.
    fn hear(
        &mut self,
        desk: &mut Desk,
        from: Pid,
        word: Word,
        out: &mut Outs,
    ) -> Result<(), &'static str>;

    /// The view is over and nothing more of it comes: delivers what is left, the same at every
    /// survivor. With `all`, also what has no number.
    fn settle(&mut self, desk: &mut Desk, all: bool, out: &mut Outs);

    /// The time that it asked for has come.
    fn wake(&mut self, _desk: &mut Desk, _out: &mut Outs) {}

    /// When it wants to be woken.
    fn deadline(&self) -> Option<(Time, Why)> {
        None
    }
}

/// What an ordering protocol is set to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setting {
    pub(super) me: Pid,
    pub(super) processes: usize,
    /// Own messages that are not delivered here yet, at most.
    pub(super) window: usize,
    /// Their bytes, at most.
    pub(super) window_bytes: usize,
    pub(super) payload_max: usize,
    /// Messages that a holder of the token sends before it passes it on, at most.
    pub(super) burst: usize,
    /// How long the token rests when nobody has anything to send.
    pub(super) rest: Span,
    /// Whether a message can only have been delivered by anyone if the survivors deliver it, too:
    /// then this process may send its own again after it was left out.
    pub(super) resends: bool,
    pub(super) mutants: Mutants<Mutant>,
}

/// An own message that is not delivered here yet.
#[derive(Clone, Debug)]
pub(super) struct Own {
    pub(super) seq: u64,
    pub(super) payload: Arc<[u8]>,
}

/// The state around a [`Scheme`].
#[derive(Debug)]
pub(super) struct Desk {
    pub(super) set: Setting,
    pub(super) now: Time,
    pub(super) view: View,
    /// Whether the view is about to end: nothing may be sent.
    blocked: bool,
    own: VecDeque<Own>,
    own_bytes: usize,
    /// How many of them, from the front, are sent in this view.
    sent: usize,
    /// Of each process, the last message that was delivered.
    last: Vec<u64>,
    position: u64,
    /// For a mutant: a message that it delivers later than its turn.
    swapped: Option<(MsgId, Arc<[u8]>)>,
    deliveries: u64,
}

impl Desk {
    pub(super) fn new(set: Setting) -> Self {
        Self {
            set,
            now: Time::ZERO,
            view: View { id: 0, members: Vec::new() },
            blocked: true,
            own: VecDeque::new(),
            own_bytes: 0,
            sent: 0,
            last: alloc::vec![0; set.processes],
            position: 0,
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

    /// How many own messages are not sent yet; none may be while the view ends.
    pub(super) fn unsent(&self) -> usize {
        if self.blocked { 0 } else { self.own.len() - self.sent }
    }

    /// The next own message to send; it counts as sent from here on.
    pub(super) fn next_unsent(&mut self) -> Option<Own> {
        if self.unsent() == 0 {
            return None;
        }
        self.sent += 1;
        self.own.get(self.sent - 1).cloned()
    }

    /// Whether the view goes on.
    pub(super) const fn is_open(&self) -> bool {
        !self.blocked
    }

    /// Casts `word`.
    pub(super) fn cast(&self, grade: Grade, word: Word, out: &mut Outs) {
        out.ask(Out::Cast(grade, word));
    }

    /// Casts a numbered message of this process.
    pub(super) fn cast_own(&self, grade: Grade, number: u64, own: Own, out: &mut Outs) {
        let msg = msg(self.set.me, own.seq);
        self.note_part(msg, out);
        self.cast(grade, Word::Numbered { number, msg, payload: own.payload }, out);
    }

    pub(super) fn note_part(&self, msg: MsgId, out: &mut Outs) {
        out.note(Note::Part(msg));
    }

    /// Whether a message was delivered, here or in the state that this process began with.
    pub(super) fn is_delivered(&self, msg: MsgId) -> bool {
        self.last.get(msg.sender.index()).is_none_or(|&last| msg.seq <= last)
    }

    /// Delivers a message, unless it was.
    pub(super) fn deliver(&mut self, msg: MsgId, payload: &Arc<[u8]>, out: &mut Outs) {
        if self.is_delivered(msg) {
            return;
        }
        self.last[msg.sender.index()] = msg.seq;
        if msg.sender == self.set.me
            && let Some(at) = self.own.iter().position(|own| own.seq == msg.seq)
        {
            // Those before it are delivered, or were given up with the view.
            for own in self.own.drain(..=at) {
                self.own_bytes -= own.payload.len();
            }
            self.sent = self.sent.saturating_sub(at + 1);
        }
        self.deliveries += 1;
        if !self.set.mutants.any() {
            return self.hand_over(msg, payload, out);
        }
        self.deliver_wrongly(msg, payload, out);
    }

    fn hand_over(&mut self, msg: MsgId, payload: &Arc<[u8]>, out: &mut Outs) {
        self.position += 1;
        let dst = GroupSet::one(Gid(0));
        out.deliver(msg, dst, self.position, |to| to.extend_from_slice(payload));
    }

    /// What mutants make of a delivery.
    fn deliver_wrongly(&mut self, msg: MsgId, payload: &Arc<[u8]>, out: &mut Outs) {
        let mutants = self.set.mutants;
        let fourth = self.deliveries.is_multiple_of(4);
        let odd = self.set.me.0 % 2 == 1;
        if mutants.is(Mutant::Overtakes) && odd && fourth && self.swapped.is_none() {
            self.swapped = Some((msg, Arc::clone(payload)));
            return;
        }
        if mutants.is(Mutant::LosesItsOwn) && msg.sender == self.set.me && msg.seq.is_multiple_of(2)
        {
            // The place stays empty.
            self.position += 1;
            return;
        }
        self.hand_over(msg, payload, out);
        if mutants.is(Mutant::Twice) && fourth {
            self.hand_over(msg, payload, out);
        }
        if let Some((other, payload)) = self.swapped.take() {
            self.hand_over(other, &payload, out);
        }
    }

    fn base(&self) -> Base {
        Base { position: self.position, last: self.last.clone() }
    }
}

/// Messages with numbers, delivered in the order of these.
#[derive(Debug, Default)]
pub(super) struct Numbered {
    /// The last number that was delivered.
    done: u64,
    /// Those after it that came.
    come: BTreeMap<u64, (MsgId, Arc<[u8]>)>,
}

impl Numbered {
    /// Takes in a message, and delivers those whose turn it is.
    pub(super) fn take(
        &mut self,
        desk: &mut Desk,
        number: u64,
        msg: MsgId,
        payload: Arc<[u8]>,
        out: &mut Outs,
    ) -> Result<(), &'static str> {
        if number == u64::MAX || number <= self.done || self.come.contains_key(&number) {
            return Err("a number that is taken");
        }
        self.come.insert(number, (msg, payload));
        while let Some((msg, payload)) = self.come.remove(&(self.done + 1)) {
            self.done += 1;
            desk.deliver(msg, &payload, out);
        }
        Ok(())
    }

    /// Delivers all that came, whatever numbers are missing between.
    pub(super) fn settle(&mut self, desk: &mut Desk, out: &mut Outs) {
        for (msg, payload) in core::mem::take(&mut self.come).into_values() {
            desk.deliver(msg, &payload, out);
        }
    }
}

/// An ordering protocol: a [`Scheme`] and its [`Desk`].
#[derive(Debug)]
pub(super) struct Total<S> {
    desk: Desk,
    scheme: S,
}

impl<S: Scheme> Total<S> {
    pub(super) fn new(set: Setting, scheme: S) -> Self {
        Self { desk: Desk::new(set), scheme }
    }

    fn submit(&mut self, submission: Submission<'_>, out: &mut Outs) {
        let Submission { seq, payload, .. } = submission;
        self.desk.own_bytes += payload.len();
        self.desk.own.push_back(Own { seq, payload: Arc::from(payload) });
        if self.desk.is_open() {
            self.scheme.send(&mut self.desk, out);
        }
    }

    fn begin(&mut self, view: &View, out: &mut Outs) {
        let desk = &mut self.desk;
        (desk.view, desk.blocked, desk.sent) = (view.clone(), false, 0);
        let base = desk.base();
        let base = out.fill(|to| base.encode(to));
        out.ask(Out::Base(base));
        self.scheme.begin(desk, out);
        self.scheme.send(desk, out);
    }

    fn join(&mut self, view: &View, bytes: &[u8], out: &mut Outs) {
        let desk = &mut self.desk;
        match Base::decode(&mut Reader::new(bytes)) {
            Ok(base) if base.last.len() == desk.last.len() => {
                (desk.position, desk.last) = (base.position, base.last);
            }
            // Some member gave it; the most senior one answers for the view.
            _ => {
                let of = view.pids().next().unwrap_or(desk.set.me);
                out.note(Note::Malformed(of, "what a process is to begin with makes no sense"));
            }
        }
        let last = desk.last[desk.set.me.index()];
        // Some of them had been sent before it was left out, and are delivered.
        desk.own.retain(|own| own.seq > last);
        desk.own_bytes = desk.own.iter().map(|own| own.payload.len()).sum();
        self.begin(view, out);
    }

    fn excluded(&mut self, out: &mut Outs) {
        if !self.desk.set.resends {
            // What it holds behind a hole: it counts as failed, and may skip.
            self.scheme.settle(&mut self.desk, false, out);
        }
        let desk = &mut self.desk;
        desk.blocked = true;
        if !desk.set.resends {
            // Others that were left out may have delivered some, before what the group delivers.
            let kept = desk.own.split_off(desk.sent);
            desk.own = kept;
            desk.own_bytes = desk.own.iter().map(|own| own.payload.len()).sum();
        }
        desk.sent = 0;
    }
}

impl<S: Scheme> Protocol for Total<S> {
    type Medium = Groupcast<Word>;

    fn step(
        &mut self,
        now: Time,
        (): (),
        input: Input<'_, Self::Medium>,
        out: &mut Outbox<Self::Medium>,
    ) {
        self.desk.now = now;
        match input {
            Input::Submit(submission) => self.submit(submission, out),
            Input::Wake => self.scheme.wake(&mut self.desk, out),
            Input::Medium(In::View(view)) => {
                self.scheme.settle(&mut self.desk, true, out);
                self.begin(view, out);
            }
            Input::Medium(In::Join(view, base)) => self.join(view, base, out),
            Input::Medium(In::Block) => self.desk.blocked = true,
            Input::Medium(In::Excluded) => self.excluded(out),
            Input::Medium(In::From(from, word)) => {
                if let Err(why) = self.scheme.hear(&mut self.desk, from, word, out) {
                    out.note(Note::Malformed(from, why));
                }
            }
            // Nothing is kept on disk; the state is the layer's below.
            _ => {}
        }
    }

    fn deadline(&self) -> Option<(Time, Why)> {
        self.scheme.deadline().filter(|_| self.desk.is_open())
    }

    fn room(&self, _dst: GroupSet, bytes: usize) -> usize {
        let desk = &self.desk;
        let count = desk.set.window.saturating_sub(desk.own.len());
        let left = desk.set.window_bytes.saturating_sub(desk.own_bytes);
        count.min(left / bytes.max(1))
    }

    fn payload_max(&self) -> usize {
        self.desk.set.payload_max
    }

    fn waiting(&self, tell: &mut dyn FnMut(MsgId, Wait)) {
        for (at, own) in self.desk.own.iter().enumerate() {
            let why = if at < self.desk.sent { Wait::Turn } else { Wait::Order(Gid(0)) };
            tell(msg(self.desk.set.me, own.seq), why);
        }
    }

    fn status(&self) -> Status {
        let (delivered, backlog) = (self.desk.position, self.desk.own.len() as u64);
        Status { delivered, decided: delivered, backlog, ..Status::default() }
    }
}

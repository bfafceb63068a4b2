//! A member of the group: its batches and votes, and the deliveries of all.

use super::message::TotoMessage;
use super::mutants::{self, TotoMutant};
use super::order::TotoOrder;
use crate::layers::batch::Batch;
use crate::layers::causal::CausalOrder;
use crate::layers::delivery::BatchDelivery;
use crate::layers::join_state::{JoinState, MALFORMED_STATE};
use crate::layers::outgoing::{BatchLimits, OutgoingBatches};
use crate::mutant::Mutants;
use alloc::vec::Vec;
use amcast_core::codec::{ByteReader, Codec};
use amcast_core::groupcast::{
    Grade, GroupMember, Groupcast, GroupcastInput, GroupcastOutput, View,
};
use amcast_core::step::{Note, ProtocolStatus, WaitReason, WakeReason};
use amcast_core::{Gid, GroupSet, Input, MsgId, Outbox, Pid, Protocol, ProtocolEvent, Span, Time};

/// The outputs of a step.
pub(super) type TotoOutbox = Outbox<Groupcast<TotoMessage>>;

/// How many votes are asked for, in a view of any size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum VoteRule {
    /// More than this part of the members, in percent: at least 50.
    Percent(u64),
    /// All members.
    All,
}

impl VoteRule {
    /// Phi in a view of so many members: rounded down, which changes no decision, and below their number.
    pub(super) const fn phi(self, members: usize) -> usize {
        let most = members.saturating_sub(1);
        match self {
            Self::All => most,
            Self::Percent(percent) => {
                let part = members * percent as usize / 100;
                if part < most { part } else { most }
            }
        }
    }
}

/// How a member runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct TotoSettings {
    pub(super) me: Pid,
    /// How many processes are configured.
    pub(super) processes: usize,
    /// Own messages that are not delivered here yet, at most.
    pub(super) window: usize,
    /// Their bytes, at most.
    pub(super) window_bytes: usize,
    pub(super) payload_max: usize,
    /// Bytes of a batch of more than one message, at most.
    pub(super) batch_bytes: usize,
    pub(super) rule: VoteRule,
    /// How long a vote waits for a message to travel with.
    pub(super) vote: Span,
    pub(super) mutants: Mutants<TotoMutant>,
}

/// A member of the group. See the [module](super).
#[derive(Debug)]
pub(super) struct TotoMember {
    set: TotoSettings,
    now: Time,
    view: View,
    /// Its own rank in the view.
    rank: usize,
    /// Whether the view is about to end: nothing may be sent.
    blocked: bool,
    /// Whether the group continues without it, until it joins again.
    excluded: bool,
    /// Own messages that are not delivered here yet.
    own: OutgoingBatches,
    /// Whether messages were submitted since the last wake-up: those of one round leave together.
    fresh: bool,
    /// When to vote without a message, if a vote of this member is missing.
    vote_at: Option<Time>,
    causal: CausalOrder<Option<Batch>>,
    order: TotoOrder<Batch>,
    delivery: BatchDelivery,
}

impl TotoMember {
    /// A member that is in no view yet.
    pub(super) fn new(set: TotoSettings) -> Self {
        let limits = BatchLimits { bytes: set.batch_bytes, messages: usize::MAX };
        Self {
            now: Time::ZERO,
            view: View::new(0, Vec::new()),
            rank: 0,
            blocked: true,
            excluded: false,
            own: OutgoingBatches::new(limits),
            fresh: false,
            vote_at: None,
            causal: CausalOrder::new(0),
            order: TotoOrder::new(0, 0),
            delivery: BatchDelivery::new(
                set.me,
                set.processes,
                mutants::of_deliveries(set.mutants),
            ),
            set,
        }
    }

    /// Sends all own batches: a message waits for no other one.
    fn send(&mut self, out: &mut TotoOutbox) {
        while !self.blocked
            && let Some(batch) = self.own.next()
        {
            note_part(self.set.me, &batch, out);
            self.cast(Some(batch), out);
        }
    }

    /// Casts a batch, or a vote alone.
    fn cast(&mut self, batch: Option<Batch>, out: &mut TotoOutbox) {
        let mut follows = self.causal.send(self.rank);
        if self.set.mutants.is(TotoMutant::SkippingVector) {
            // The vector omits the messages of the first member, and at the first member those of the second.
            let skipped = if self.rank == 0 { 1 } else { 0 };
            if let Some(count) = follows.get_mut(skipped) {
                *count = 0;
            }
        }
        out.ask(GroupcastOutput::Cast(Grade::Plain, TotoMessage { follows, batch }));
        self.vote_at = None;
    }

    /// A message of a member arrives.
    ///
    /// # Errors
    /// When it makes no sense from that member.
    fn hear(
        &mut self,
        from: Pid,
        message: TotoMessage,
        out: &mut TotoOutbox,
    ) -> Result<(), &'static str> {
        let rank = self.view.rank(from).ok_or("a message of no member")?;
        let TotoMessage { follows, batch } = message;
        if let Some(batch) = &batch {
            note_part(from, batch, out);
        }
        // [ToTo 3:1] the rule has a message once it has all that the message follows.
        self.causal.receive(rank, follows, batch)?;
        while let Some((rank, follows, batch)) = self.causal.next() {
            if let Some(batch) = &batch {
                self.delivery.deliver_early(self.view.members[rank].pid, batch, out);
            }
            self.order.receive(rank, &follows, batch);
            self.deliver(out);
        }
        self.plan_vote();
        Ok(())
    }

    /// Delivers all that is in order.
    fn deliver(&mut self, out: &mut TotoOutbox) {
        while let Some((rank, batch)) = self.order.deliver_next() {
            self.deliver_batch(rank, &batch, out);
        }
    }

    fn deliver_batch(&mut self, rank: usize, batch: &Batch, out: &mut TotoOutbox) {
        let sender = self.view.members[rank].pid;
        if sender == self.set.me {
            self.own.delivered(batch.first());
        }
        self.delivery.deliver(sender, batch, out);
    }

    /// A member that owes a vote casts it by itself if no message goes before. One that is on its way may be the vote.
    fn plan_vote(&mut self) {
        let owes = self.order.lacks_vote(self.rank) && !self.causal.is_sending(self.rank);
        self.vote_at = owes.then(|| self.vote_at.unwrap_or(self.now + self.set.vote));
    }

    /// The view is over: no more messages of it arrive at the members that enter the next one from it. They have the same ones,
    /// and deliver what is left of them in the order that they give: `Crash` for each member that does not come along [ToTo
    /// 5.2], and then the same for the rest, whose next message would be the end of the view.
    fn settle(&mut self, next: &View, out: &mut TotoOutbox) {
        let comes = |m: &GroupMember| {
            let rank = next.members.iter().position(|other| other == m);
            rank.is_some_and(|rank| next.came_from(rank, &self.view))
        };
        let along: Vec<bool> = self.view.members.iter().map(comes).collect();
        if mutants::reorders(self.set.mutants, self.set.me, next) {
            return self.settle_reversed(out);
        }
        for stage in [false, true] {
            let ranks = (0..along.len()).filter(|&rank| along[rank] == stage);
            ranks.for_each(|rank| self.order.crash(rank));
            self.deliver(out);
        }
    }

    /// A mutant: what is left is delivered the other way round.
    fn settle_reversed(&mut self, out: &mut TotoOutbox) {
        (0..self.view.members.len()).for_each(|rank| self.order.crash(rank));
        let mut left: Vec<_> = core::iter::from_fn(|| self.order.deliver_next()).collect();
        while let Some((rank, batch)) = left.pop() {
            self.deliver_batch(rank, &batch, out);
        }
    }

    /// A view begins: nothing is pending, and vectors begin anew.
    fn begin(&mut self, view: &View, out: &mut TotoOutbox) {
        self.view = view.clone();
        self.rank = view.rank(self.set.me).unwrap_or(0);
        self.blocked = false;
        self.own.restart();
        self.vote_at = None;
        let members = view.members.len();
        self.causal = CausalOrder::new(members);
        self.order = TotoOrder::new(members, self.set.rule.phi(members));
        mutants::apply(self.set.mutants, &mut self.causal, &mut self.order);
        let base = out.fill(|to| self.delivery.state().encode(to));
        out.ask(GroupcastOutput::Base(base));
        self.send(out);
    }

    fn join(&mut self, view: &View, bytes: &[u8], out: &mut TotoOutbox) {
        match JoinState::decode(&mut ByteReader::new(bytes)) {
            Ok(state) if state.last.len() == self.set.processes => self.delivery.join(state),
            // Some member gave it; the most senior one answers for the view.
            _ => {
                let of = view.pids().next().unwrap_or(self.set.me);
                out.note(Note::Malformed(of, MALFORMED_STATE));
            }
        }
        self.excluded = false;
        self.begin(view, out);
    }

    /// An excluded member delivers nothing more of its view, and gives up its own messages: it may have delivered what nobody
    /// else has, and they follow that. Until it joins again it has no room; a submission that comes then was under way.
    fn exclude(&mut self) {
        self.blocked = true;
        self.excluded = true;
        self.own.clear();
    }

    /// It is time to send, or to vote.
    fn wake(&mut self, out: &mut TotoOutbox) {
        self.fresh = false;
        self.send(out);
        let is_due = self.vote_at.is_some_and(|at| at <= self.now);
        if is_due && !self.blocked {
            self.cast(None, out);
        }
    }
}

/// The messages of a batch are taken part in.
fn note_part(sender: Pid, batch: &Batch, out: &mut TotoOutbox) {
    if out.traces() {
        let all = batch.messages();
        all.for_each(|(seq, _)| out.event(ProtocolEvent::Part(MsgId { sender, seq })));
    }
}

impl Protocol for TotoMember {
    type Medium = Groupcast<TotoMessage>;

    fn step(
        &mut self,
        now: Time,
        (): (),
        input: Input<'_, Self::Medium>,
        out: &mut Outbox<Self::Medium>,
    ) {
        self.now = now;
        match input {
            Input::Submit(submission) if !self.excluded => {
                self.own.gather(submission.seq, submission.payload);
                self.fresh = true;
            }
            Input::Wake => self.wake(out),
            Input::Medium(GroupcastInput::View(view)) => {
                self.settle(view, out);
                self.begin(view, out);
            }
            Input::Medium(GroupcastInput::Join(view, state)) => self.join(view, state, out),
            Input::Medium(GroupcastInput::Block) => self.blocked = true,
            Input::Medium(GroupcastInput::Excluded) => self.exclude(),
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
        let at = if self.fresh { Some(self.now) } else { self.vote_at };
        at.filter(|_| !self.blocked).map(|at| (at, WakeReason::Flush))
    }

    fn room(&self, _dst: GroupSet, bytes: usize) -> usize {
        if self.excluded {
            return 0;
        }
        self.own.room(self.set.window, self.set.window_bytes, bytes)
    }

    fn payload_max(&self) -> usize {
        self.set.payload_max
    }

    fn waiting(&self, tell: &mut dyn FnMut(MsgId, WaitReason)) {
        let sender = self.set.me;
        self.own.waiting(&mut |seq, sent| {
            let why = if sent { WaitReason::Quorum(Gid(0)) } else { WaitReason::Order(Gid(0)) };
            tell(MsgId { sender, seq }, why);
        });
    }

    fn status(&self) -> ProtocolStatus {
        let delivered = self.delivery.state().position;
        let backlog = self.own.messages() as u64;
        ProtocolStatus { delivered, decided: delivered, backlog, ..ProtocolStatus::default() }
    }
}

//! Early deliveries: an order that a process shows before it is agreed on, and the one that is.
//!
//! A protocol that has a message before its place in the order is decided may say so
//! ([`Output::Early`]). The order of its early deliveries is tentative: mostly the final one, where
//! members receive messages in the same order. An application that executes at once gains the time until the decision, and undoes
//! where the orders differ. [`TentativeOrder`] says what it has to do, in which order.
//!
//! [`Output::Early`]: crate::Output::Early

use crate::id::{GroupSet, MsgId};
use crate::step::PayloadRange;
use alloc::collections::{BTreeSet, VecDeque};

/// An early delivery of a message, whose place in the order is not decided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EarlyDelivery {
    /// Which message.
    pub msg: MsgId,
    /// Its destinations.
    pub dst: GroupSet,
    /// The payload, of the outbox's bytes.
    pub payload: PayloadRange,
}

/// An action of an application that executes messages early.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EarlyAction {
    /// Execute this message, behind all that are executed.
    Execute(MsgId),
    /// Undo this message: the last one that is executed and not undone.
    Undo(MsgId),
    /// The first message that is executed and not confirmed has its final place: it is never undone.
    Confirm(MsgId),
}

/// The messages that an application has executed and that are not delivered yet, in their tentative order.
///
/// ```
/// use amcast_core::early::{EarlyAction, TentativeOrder};
/// use amcast_core::{MsgId, Pid};
/// let [a, b] = [1, 2].map(|seq| MsgId { sender: Pid(0), seq });
/// let mut order = TentativeOrder::default();
/// let mut actions = Vec::new();
/// order.early(a, &mut |action| actions.push(action));
/// order.early(b, &mut |action| actions.push(action));
/// // They are delivered the other way round.
/// order.deliver(b, &mut |action| actions.push(action));
/// order.deliver(a, &mut |action| actions.push(action));
/// use EarlyAction::{Confirm, Execute, Undo};
/// assert_eq!(actions[..2], [Execute(a), Execute(b)]);
/// assert_eq!(actions[2..], [Undo(b), Undo(a), Execute(b), Confirm(b), Execute(a), Confirm(a)]);
/// ```
#[derive(Clone, Debug, Default)]
pub struct TentativeOrder {
    pending: VecDeque<MsgId>,
    /// The same messages: whether one is pending is asked for each early delivery.
    known: BTreeSet<MsgId>,
}

impl TentativeOrder {
    /// A message is delivered early: it is executed. One that is pending already is not executed again.
    pub fn early(&mut self, msg: MsgId, act: &mut dyn FnMut(EarlyAction)) {
        if self.known.insert(msg) {
            self.pending.push_back(msg);
            act(EarlyAction::Execute(msg));
        }
    }

    /// A message is delivered: it is confirmed if it is the first of the pending ones. Otherwise all pending ones are undone,
    /// the last one first, and executed again behind it: in the order that is then the likely one. That is work for each
    /// pending message, and there are no more than the windows of all senders.
    pub fn deliver(&mut self, msg: MsgId, act: &mut dyn FnMut(EarlyAction)) {
        let is_known = self.known.remove(&msg);
        if self.pending.front() == Some(&msg) {
            self.pending.pop_front();
            return act(EarlyAction::Confirm(msg));
        }
        self.pending.iter().rev().for_each(|&pending| act(EarlyAction::Undo(pending)));
        if is_known {
            self.pending.retain(|&pending| pending != msg);
        }
        act(EarlyAction::Execute(msg));
        act(EarlyAction::Confirm(msg));
        self.pending.iter().for_each(|&pending| act(EarlyAction::Execute(pending)));
    }

    /// Undoes all pending messages, the last one first: the process was excluded, or continues from another state.
    pub fn clear(&mut self, act: &mut dyn FnMut(EarlyAction)) {
        self.known.clear();
        while let Some(msg) = self.pending.pop_back() {
            act(EarlyAction::Undo(msg));
        }
    }

    /// The pending messages, in their tentative order.
    pub fn pending(&self) -> impl DoubleEndedIterator<Item = MsgId> + ExactSizeIterator {
        self.pending.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::Pid;
    use crate::rng::Rng;
    use alloc::vec::Vec;

    /// An application whose state is the list of the executed messages.
    #[derive(Default)]
    struct ListMachine {
        executed: Vec<MsgId>,
        confirmed: usize,
    }

    impl ListMachine {
        fn act(&mut self, action: EarlyAction) {
            match action {
                EarlyAction::Execute(msg) => self.executed.push(msg),
                EarlyAction::Undo(msg) => {
                    assert_eq!(self.executed.pop(), Some(msg), "the last one");
                    assert!(self.executed.len() >= self.confirmed, "a confirmed one is undone");
                }
                EarlyAction::Confirm(msg) => {
                    assert_eq!(self.executed.get(self.confirmed), Some(&msg), "the first one");
                    self.confirmed += 1;
                }
            }
        }
    }

    /// In any two orders, with some messages that are not delivered early and an end of it all at any time.
    #[test]
    fn an_application_has_the_delivered_messages_and_behind_them_the_early_ones() {
        let mut rng = Rng::new(1);
        for _ in 0..2_000 {
            let count = 1 + rng.below(8);
            let msg = |seq| MsgId { sender: Pid(0), seq };
            let mut left: Vec<u64> = (0..count).collect();
            let (mut order, mut machine) = (TentativeOrder::default(), ListMachine::default());
            let (mut early, mut delivered) = (Vec::new(), Vec::new());
            while !left.is_empty() && rng.below(20) > 0 {
                let seq = left[rng.below(left.len() as u64) as usize];
                if rng.below(2) == 0 {
                    order.early(msg(seq), &mut |action| machine.act(action));
                    if !early.contains(&msg(seq)) {
                        early.push(msg(seq));
                    }
                } else {
                    order.deliver(msg(seq), &mut |action| machine.act(action));
                    left.retain(|&other| other != seq);
                    early.retain(|&other| other != msg(seq));
                    delivered.push(msg(seq));
                }
                assert_eq!(machine.confirmed, delivered.len());
                assert!(order.pending().eq(early.iter().copied()));
                assert_eq!(machine.executed, [&delivered[..], &early[..]].concat());
            }
            order.clear(&mut |action| machine.act(action));
            assert_eq!(machine.executed, delivered);
        }
    }
}

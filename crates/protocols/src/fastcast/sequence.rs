//! The order of one view: the leader's numbers and the casts that they belong to [FastCast figure 2].
//!
//! The layer hands over the casts of each member in their order, and all members end a view with the same ones. So a
//! number names the sender alone: it belongs to the next cast of that sender which has no number yet.

use super::message::FastCastMessage;
use crate::layers::batch::Batch;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use amcast_core::Pid;

/// A cast that takes a number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum SequencedCast {
    /// Messages of the application.
    Data(Batch),
    /// More bandwidth is required, in kilobytes a second.
    Increase(u64),
    /// Less is required.
    Decrease(u64),
    /// The link of the sender carries so much.
    Capacity(u64),
}

/// A cast and its sender.
pub(super) type SenderCast = (Pid, SequencedCast);

/// Numbers and casts of one view, as far as they are not delivered.
#[derive(Debug, Default)]
pub(super) struct SequenceOrder {
    /// The casts that were handed over, by sender (`pendings`).
    pending: Vec<VecDeque<SequencedCast>>,
    /// The senders of the casts with the numbers from `next` on (`seqnos`).
    numbers: VecDeque<Pid>,
    /// The next number to deliver (`snToDeliver`).
    next: u64,
    /// The leader's: the next number to give (`sn`).
    given: u64,
    /// The leader's: the senders of casts that arrived and have no number yet, in the order of arrival.
    open: Vec<Pid>,
}

impl SequenceOrder {
    /// The order of a view as it begins, among so many configured processes.
    // [FC 2:1-7] nothing is pending, and numbers begin with 0
    pub(super) fn new(processes: usize) -> Self {
        Self { pending: alloc::vec![VecDeque::new(); processes], ..Self::default() }
    }

    /// The leader's: one more cast of `sender` has arrived here, or leaves here.
    // [FC 2:15-17] the leader gives it the next number
    pub(super) fn arrived(&mut self, sender: Pid) {
        self.open.push(sender);
    }

    /// The leader's: the announcement of numbers for all casts that have none, if there are such casts.
    // [FC 2:19] the leader sends the numbers to all
    pub(super) fn give_numbers(&mut self) -> Option<FastCastMessage> {
        if self.open.is_empty() {
            return None;
        }
        let of = core::mem::take(&mut self.open);
        let first = self.given;
        self.given += of.len() as u64;
        Some(FastCastMessage::Numbers { first, of })
    }

    /// A cast is handed over: all members have it.
    // [FC 2:20] it is pending until its number is due
    pub(super) fn hold(&mut self, sender: Pid, cast: SequencedCast) {
        self.pending[sender.index()].push_back(cast);
    }

    /// Numbers of the leader are handed over: all members have them.
    ///
    /// # Errors
    /// When they do not follow the earlier numbers, or name a process that is not configured.
    // [FC 2:26] the number of a message is known
    pub(super) fn take_numbers(&mut self, first: u64, of: &[Pid]) -> Result<(), &'static str> {
        if first != self.next + self.numbers.len() as u64 {
            return Err("numbers that do not follow the earlier ones");
        }
        if of.iter().any(|sender| sender.index() >= self.pending.len()) {
            return Err("a number of no process");
        }
        self.numbers.extend(of);
        Ok(())
    }

    /// The cast with the next number, once both were handed over.
    // [FC 2:21,28] all members have the next message and its number
    pub(super) fn next(&mut self) -> Option<SenderCast> {
        let sender = *self.numbers.front()?;
        let cast = self.pending[sender.index()].pop_front()?;
        // [FC 2:32-33] it is pending no more
        self.numbers.pop_front();
        self.next += 1;
        Some((sender, cast))
    }

    /// All that is left when the view ends, in the order in which every survivor delivers it: the numbered casts, past
    /// numbers whose cast no survivor has, then the others by the seniority of their senders in `view`. Says how many
    /// numbers were passed over, too.
    pub(super) fn settle(&mut self, view: impl Iterator<Item = Pid>) -> (Vec<SenderCast>, usize) {
        let mut left = Vec::new();
        let numbers = self.numbers.len();
        // [FC 3:19-24] by number; a hole is skipped
        for sender in core::mem::take(&mut self.numbers) {
            let cast = self.pending[sender.index()].pop_front();
            left.extend(cast.map(|cast| (sender, cast)));
        }
        // [FC 3:25-27] then the casts without a number
        let skipped = numbers - left.len();
        for sender in view {
            left.extend(self.pending[sender.index()].drain(..).map(|cast| (sender, cast)));
        }
        (left, skipped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn cast(amount: u64) -> SequencedCast {
        SequencedCast::Increase(amount)
    }

    fn taken(order: &mut SequenceOrder) -> Vec<(u32, u64)> {
        let all = core::iter::from_fn(|| order.next());
        all.map(shown).collect()
    }

    fn shown((sender, cast): SenderCast) -> (u32, u64) {
        let SequencedCast::Increase(amount) = cast else { panic!("no other is made here") };
        (sender.0, amount)
    }

    #[test]
    fn the_leader_numbers_casts_as_they_arrive_and_many_at_once() {
        let mut leader = SequenceOrder::new(3);
        assert_eq!(leader.give_numbers(), None);
        [Pid(2), Pid(0)].into_iter().for_each(|p| leader.arrived(p));
        let of = alloc::vec![Pid(2), Pid(0)];
        assert_eq!(leader.give_numbers(), Some(FastCastMessage::Numbers { first: 0, of }));
        leader.arrived(Pid(2));
        let of = alloc::vec![Pid(2)];
        assert_eq!(leader.give_numbers(), Some(FastCastMessage::Numbers { first: 2, of }));
        assert_eq!(leader.give_numbers(), None);
    }

    #[test]
    fn a_number_and_its_cast_may_come_in_any_order() {
        let mut order = SequenceOrder::new(3);
        assert_eq!(order.take_numbers(0, &[Pid(2), Pid(1), Pid(2)]), Ok(()));
        order.hold(Pid(1), cast(1));
        assert_eq!(taken(&mut order), [], "its turn is after that of another");
        order.hold(Pid(2), cast(7));
        assert_eq!(taken(&mut order), [(2, 7), (1, 1)]);
        order.hold(Pid(2), cast(8));
        order.hold(Pid(2), cast(9));
        assert_eq!(taken(&mut order), [(2, 8)], "the last one has no number");
        assert!(order.take_numbers(4, &[Pid(2)]).is_err(), "a number is missing");
        assert!(order.take_numbers(2, &[Pid(2)]).is_err(), "a number comes twice");
        assert!(order.take_numbers(3, &[Pid(3)]).is_err(), "there is no such process");
        assert_eq!(order.take_numbers(3, &[Pid(2)]), Ok(()));
        assert_eq!(taken(&mut order), [(2, 9)]);
    }

    #[test]
    fn survivors_deliver_numbered_casts_past_a_hole_and_then_the_others_by_seniority() {
        let mut order = SequenceOrder::new(3);
        assert_eq!(order.take_numbers(0, &[Pid(0), Pid(1), Pid(0), Pid(2)]), Ok(()));
        for (sender, amount) in [(2, 1), (2, 2), (1, 3), (2, 4), (1, 5)] {
            order.hold(Pid(sender), cast(amount));
        }
        assert_eq!(taken(&mut order), [], "the first number has no cast");
        let (left, skipped) = order.settle([Pid(1), Pid(0), Pid(2)].into_iter());
        assert_eq!(skipped, 2, "numbers of the process 0");
        let left: Vec<_> = left.into_iter().map(shown).collect();
        assert_eq!(left, [(1, 3), (2, 1), (1, 5), (2, 2), (2, 4)]);
    }
}

//! Reads that need no place in the order: a node answers them from what it has executed.
//!
//! A read of one group waits until the group's replica here has passed a barrier that was set after the read
//! came ([`amcast_core::Input::Barrier`]): then everything that anybody had been answered by that time is
//! delivered here. Once the application has taken that, it is asked. Reads that come while others wait share a
//! barrier with those that come in the same round of the loop.
//!
//! What the application cannot answer in time is ordered like any other command: nobody waits longer than
//! for that, and what it says of reads need not be answered at all.

use amcast_core::step::Ticket;
use amcast_core::{Gid, Span, Time};
use std::collections::VecDeque;

/// How long a read waits here before it is ordered.
const PATIENCE: Span = Span::millis(50);

/// A read of a front, which goes to one group.
#[derive(Debug)]
pub(crate) struct Read {
    /// The number of its front.
    pub(crate) front: u64,
    /// What its front calls it.
    pub(crate) token: u64,
    /// Its only group.
    pub(crate) group: Gid,
    pub(crate) bytes: Box<[u8]>,
}

/// Reads behind a barrier.
struct Behind {
    ticket: Ticket,
    since: Time,
    reads: Vec<Read>,
}

/// A read whose barrier is passed.
struct Ready {
    /// The application must have taken everything up to here.
    position: u64,
    since: Time,
    read: Read,
}

/// The reads of one group.
#[derive(Default)]
struct OfGroup {
    fresh: Vec<Read>,
    behind: VecDeque<Behind>,
    /// In the order in which their barriers were set.
    ready: VecDeque<Ready>,
}

/// The reads of a node.
pub(crate) struct Reading {
    groups: Vec<OfGroup>,
    next_ticket: u64,
}

impl Reading {
    /// No reads of so many groups.
    pub(crate) fn of(groups: usize) -> Self {
        Self { groups: (0..groups).map(|_| OfGroup::default()).collect(), next_ticket: 0 }
    }

    /// Takes a read in.
    pub(crate) fn take(&mut self, read: Read) {
        self.groups[read.group.index()].fresh.push(read);
    }

    /// The ticket of the barrier that the reads which `group` has taken in are to wait for, if it has any.
    pub(crate) fn begin(&mut self, group: Gid, now: Time) -> Option<Ticket> {
        let of = &mut self.groups[group.index()];
        if of.fresh.is_empty() {
            return None;
        }
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        let reads = std::mem::take(&mut of.fresh);
        of.behind.push_back(Behind { ticket, since: now, reads });
        Some(ticket)
    }

    /// The barrier of `ticket` is passed, and the replica of `group` has delivered everything up to
    /// `position`. One whose reads were given up is not looked for.
    pub(crate) fn passed(&mut self, group: Gid, ticket: Ticket, position: u64) {
        let of = &mut self.groups[group.index()];
        let Some(at) = of.behind.iter().position(|behind| behind.ticket == ticket) else { return };
        let Some(Behind { since, reads, .. }) = of.behind.remove(at) else { return };
        of.ready.extend(reads.into_iter().map(|read| Ready { position, since, read }));
    }

    /// The next read of `group` that the application may be asked, which has taken everything up to
    /// `delivered`.
    pub(crate) fn first(&self, group: Gid, delivered: u64) -> Option<&Read> {
        let first = self.groups[group.index()].ready.front();
        first.filter(|ready| ready.position <= delivered).map(|ready| &ready.read)
    }

    /// Takes that one out.
    pub(crate) fn pop(&mut self, group: Gid) -> Option<Read> {
        self.groups[group.index()].ready.pop_front().map(|ready| ready.read)
    }

    /// Takes out those that have waited for too long, the oldest first.
    pub(crate) fn late(&mut self, now: Time) -> Vec<Read> {
        let mut late = Vec::new();
        let is_late = |since: Time| now.since(since) >= PATIENCE;
        for of in &mut self.groups {
            while of.ready.front().is_some_and(|ready| is_late(ready.since)) {
                late.extend(of.ready.pop_front().map(|ready| ready.read));
            }
            while of.behind.front().is_some_and(|behind| is_late(behind.since)) {
                late.extend(of.behind.pop_front().into_iter().flat_map(|behind| behind.reads));
            }
        }
        late
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.groups.iter().all(|of| of.behind.is_empty() && of.ready.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(token: u64, group: u8) -> Read {
        Read { front: 0, token, group: Gid(group), bytes: Box::default() }
    }

    fn at(ms: u64) -> Time {
        Time::ZERO + Span::millis(ms)
    }

    #[test]
    fn a_read_waits_for_its_barrier_and_then_for_what_was_delivered_by_that() {
        let mut reading = Reading::of(2);
        assert_eq!(reading.begin(Gid(1), at(0)), None);
        reading.take(read(7, 1));
        reading.take(read(8, 1));
        let first = reading.begin(Gid(1), at(0)).unwrap();
        reading.take(read(9, 1));
        let second = reading.begin(Gid(1), at(1)).unwrap();
        assert!(reading.begin(Gid(0), at(1)).is_none() && first != second);
        assert!(reading.first(Gid(1), u64::MAX).is_none(), "no barrier is passed");
        reading.passed(Gid(1), first, 30);
        assert!(reading.first(Gid(1), 29).is_none());
        let mut served = Vec::new();
        while reading.first(Gid(1), 30).is_some() {
            served.extend(reading.pop(Gid(1)).map(|read| read.token));
        }
        assert_eq!(served, [7, 8]);
        reading.passed(Gid(1), second, 31);
        assert_eq!(reading.first(Gid(1), 31).map(|read| read.token), Some(9));
    }

    #[test]
    fn what_has_waited_for_too_long_is_given_up_and_its_barrier_is_of_no_use_any_more() {
        let mut reading = Reading::of(1);
        reading.take(read(1, 0));
        let first = reading.begin(Gid(0), at(0)).unwrap();
        reading.take(read(2, 0));
        let second = reading.begin(Gid(0), at(10)).unwrap();
        reading.passed(Gid(0), first, 5);
        let tokens = |late: Vec<Read>| late.iter().map(|read| read.token).collect::<Vec<_>>();
        assert!(reading.late(at(49)).is_empty());
        assert_eq!(tokens(reading.late(at(50))), [1], "the application could not answer it");
        assert_eq!(tokens(reading.late(at(60))), [2]);
        reading.passed(Gid(0), second, 9);
        assert!(reading.is_empty());
    }
}

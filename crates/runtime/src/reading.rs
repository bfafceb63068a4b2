//! Reads that need no place in the order: a node answers them from what it has executed.
//!
//! A read of one group waits until the group's replica here has passed a barrier that was set after the read
//! came ([`amcast_core::Input::Barrier`]): then everything that anybody had been answered by that time is
//! delivered here. Once the application has taken that, it is asked. Reads that come while others wait share a
//! barrier with those that come in the same round of the loop.
//!
//! What is not answered in time is ordered like any other command, with all that came behind it and is not
//! answered either: nobody waits longer than for that, and what the application says of reads need not be
//! answered at all. In time is four times as long as barriers take lately. A read whose front takes no answers at the
//! moment is not asked for, nor is it late: an order would make its answer no smaller.

use crate::application::Peeked;
use amcast_core::step::Ticket;
use amcast_core::{Gid, Span, Time};
use std::collections::VecDeque;

/// How long a read waits here before it is ordered, at the least and at the most.
const PATIENCE: (Span, Span) = (Span::millis(50), Span::secs(1));

/// Barriers of a group that are not passed, at most: where there are more, reads are ordered at once.
const BEHIND_MAX: usize = 64;

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
    /// In the order in which their barriers were set. Of barriers whose reads were given up none is left.
    behind: VecDeque<Behind>,
    ready: VecDeque<Ready>,
    /// About how long barriers took to be passed lately.
    takes: Span,
}

impl OfGroup {
    /// Since when the oldest read waits, if there is one.
    fn oldest(&self) -> Option<Time> {
        let behind = self.behind.iter().filter(|behind| !behind.reads.is_empty());
        self.ready.iter().map(|ready| ready.since).chain(behind.map(|behind| behind.since)).min()
    }

    /// Takes out all reads, the oldest first. Of their barriers it is still waited for how long they take.
    fn take_all(&mut self) -> Vec<Read> {
        let mut all: Vec<Read> = self.ready.drain(..).map(|ready| ready.read).collect();
        all.extend(self.behind.iter_mut().flat_map(|behind| behind.reads.drain(..)));
        all
    }

    fn patience(&self) -> Span {
        self.takes.times(4).max(PATIENCE.0).min(PATIENCE.1)
    }
}

/// The reads of a node.
pub(crate) struct Reading {
    groups: Vec<OfGroup>,
    next_ticket: u64,
    /// Those that wait for nothing, since barriers do not pass.
    refused: Vec<Read>,
}

impl Reading {
    /// No reads of so many groups.
    pub(crate) fn of(groups: usize) -> Self {
        let groups = (0..groups).map(|_| OfGroup::default()).collect();
        Self { groups, next_ticket: 0, refused: Vec::new() }
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
        if of.behind.len() >= BEHIND_MAX {
            self.refused.append(&mut of.fresh);
            return None;
        }
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        let reads = std::mem::take(&mut of.fresh);
        of.behind.push_back(Behind { ticket, since: now, reads });
        Some(ticket)
    }

    /// The barrier of `ticket` is passed, and with it all that were set before, and the replica of `group` has
    /// delivered everything up to `position`.
    pub(crate) fn passed(&mut self, group: Gid, ticket: Ticket, (position, now): (u64, Time)) {
        let of = &mut self.groups[group.index()];
        let Some(at) = of.behind.iter().position(|behind| behind.ticket == ticket) else { return };
        for Behind { since, reads, .. } in of.behind.drain(..=at) {
            of.takes = Span((of.takes.0 * 7 + now.since(since).0) / 8);
            of.ready.extend(reads.into_iter().map(|read| Ready { position, since, read }));
        }
    }

    /// Asks the application, which has taken everything of `group` up to `delivered`, for each read that it may
    /// be asked for, in their order; `ask` gives nothing for one whose front takes no answers `now`. Gives those that
    /// need a place in the order, and all of the group with them; and whether there was any that was answered.
    pub(crate) fn serve(
        &mut self,
        group: Gid,
        (delivered, now): (u64, Time),
        ask: &mut dyn FnMut(&Read) -> Option<Peeked>,
    ) -> (Vec<Read>, bool) {
        let of = &mut self.groups[group.index()];
        let (mut any, mut later, mut ordered) = (false, VecDeque::new(), Vec::new());
        for mut ready in of.ready.drain(..) {
            // One behind another that is ordered must not be answered from an earlier moment.
            if !ordered.is_empty() {
                ordered.push(ready.read);
                continue;
            }
            let peeked = match ready.position <= delivered {
                true => ask(&ready.read).unwrap_or_else(|| {
                    // Its patience counts from when its front takes answers.
                    ready.since = now;
                    Peeked::NotYet
                }),
                false => Peeked::NotYet,
            };
            match peeked {
                Peeked::Answered => any = true,
                Peeked::NotYet => later.push_back(ready),
                Peeked::Never => {
                    ordered.extend(later.drain(..).map(|ready| ready.read));
                    ordered.push(ready.read);
                }
            }
        }
        of.ready.append(&mut later);
        if !ordered.is_empty() {
            ordered.extend(of.take_all());
        }
        (ordered, any)
    }

    /// Takes out those that are to be ordered: of each group all, if one has waited for too long.
    pub(crate) fn late(&mut self, now: Time) -> Vec<Read> {
        let mut late = std::mem::take(&mut self.refused);
        for of in &mut self.groups {
            if of.oldest().is_some_and(|since| now.since(since) >= of.patience()) {
                late.extend(of.take_all());
            }
        }
        late
    }

    /// Whether none waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.refused.is_empty() && self.groups.iter().all(|of| of.oldest().is_none())
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

    fn tokens(reads: Vec<Read>) -> Vec<u64> {
        reads.iter().map(|read| read.token).collect()
    }

    /// Which reads are asked for when so much is delivered; each is answered as `says` says.
    fn asked(reading: &mut Reading, delivered: u64, says: fn(u64) -> Peeked) -> Vec<u64> {
        let mut asked = Vec::new();
        reading.serve(Gid(1), (delivered, at(0)), &mut |read| {
            asked.push(read.token);
            Some(says(read.token))
        });
        asked
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
        let all = |_| Peeked::Answered;
        assert!(asked(&mut reading, u64::MAX, all).is_empty(), "no barrier is passed");
        reading.passed(Gid(1), first, (30, at(2)));
        assert!(asked(&mut reading, 29, all).is_empty());
        let odd = |token| if token == 7 { Peeked::NotYet } else { Peeked::Answered };
        assert_eq!(asked(&mut reading, 30, odd), [7, 8]);
        reading.passed(Gid(1), second, (31, at(3)));
        assert_eq!(asked(&mut reading, 31, all), [7, 9]);
        assert!(reading.is_empty());
    }

    #[test]
    fn with_a_read_that_needs_its_place_in_the_order_all_that_are_not_answered_are_ordered() {
        let mut reading = Reading::of(2);
        (1..5).for_each(|token| reading.take(read(token, 1)));
        let first = reading.begin(Gid(1), at(0)).unwrap();
        reading.take(read(5, 1));
        reading.begin(Gid(1), at(0)).unwrap();
        reading.passed(Gid(1), first, (0, at(1)));
        let (ordered, any) = reading.serve(Gid(1), (0, at(1)), &mut |read| match read.token {
            1 => Some(Peeked::NotYet),
            2 => Some(Peeked::Answered),
            _ => Some(Peeked::Never),
        });
        assert_eq!((tokens(ordered), any), (vec![1, 3, 4, 5], true));
        assert!(reading.is_empty());
    }

    #[test]
    fn a_barrier_that_is_passed_lets_go_of_all_that_were_set_before() {
        let mut reading = Reading::of(2);
        let mut begin = |token| {
            reading.take(read(token, 1));
            reading.begin(Gid(1), at(token)).unwrap()
        };
        let [_, second, third] = [1, 2, 3].map(&mut begin);
        reading.passed(Gid(1), second, (5, at(9)));
        assert_eq!(asked(&mut reading, 5, |_| Peeked::Answered), [1, 2]);
        reading.passed(Gid(1), third, (5, at(9)));
        assert_eq!(asked(&mut reading, 5, |_| Peeked::Answered), [3]);
    }

    #[test]
    fn where_one_has_waited_for_too_long_all_of_its_group_are_ordered_in_their_order() {
        let mut reading = Reading::of(2);
        reading.take(read(1, 0));
        let first = reading.begin(Gid(0), at(0)).unwrap();
        reading.take(read(2, 0));
        let second = reading.begin(Gid(0), at(10)).unwrap();
        reading.take(read(3, 1));
        reading.begin(Gid(1), at(10));
        reading.passed(Gid(0), first, (5, at(1)));
        assert!(reading.late(at(49)).is_empty());
        assert_eq!(tokens(reading.late(at(50))), [1, 2]);
        assert_eq!(tokens(reading.late(at(60))), [3]);
        reading.passed(Gid(0), second, (9, at(70)));
        assert!(reading.is_empty());
    }

    #[test]
    fn a_read_whose_front_takes_no_answers_waits_and_is_not_ordered_for_that() {
        let mut reading = Reading::of(1);
        (1..4).for_each(|token| reading.take(read(token, 0)));
        let ticket = reading.begin(Gid(0), at(0)).unwrap();
        reading.passed(Gid(0), ticket, (0, at(1)));
        let mut answered = Vec::new();
        for ms in (0..10_000).step_by(10) {
            let (ordered, _) = reading.serve(Gid(0), (0, at(ms)), &mut |read| {
                let takes = read.token == 2 || ms > 9_000;
                takes.then(|| answered.push(read.token)).map(|()| Peeked::Answered)
            });
            assert!(ordered.is_empty() && reading.late(at(ms)).is_empty());
        }
        assert_eq!((answered, reading.is_empty()), (vec![2, 1, 3], true));
    }

    #[test]
    fn over_long_ways_reads_are_given_more_time_and_where_no_barrier_passes_none() {
        let mut reading = Reading::of(1);
        for turn in 0..60 {
            reading.take(read(turn, 0));
            let ticket = reading.begin(Gid(0), at(turn * 200)).unwrap();
            reading.passed(Gid(0), ticket, (0, at(turn * 200 + 100)));
            reading.serve(Gid(0), (0, at(turn * 200 + 100)), &mut |_| Some(Peeked::Answered));
        }
        reading.take(read(99, 0));
        reading.begin(Gid(0), at(20_000));
        assert!(reading.late(at(20_300)).is_empty());
        assert_eq!(tokens(reading.late(at(20_400))), [99]);
        let sent = (0..2 * BEHIND_MAX as u64).filter(|token| {
            reading.take(read(*token, 0));
            reading.begin(Gid(0), at(20_400)).is_some()
        });
        assert_eq!(sent.count(), BEHIND_MAX - 1);
        assert_eq!(reading.late(at(20_400)).len(), BEHIND_MAX + 1);
    }
}

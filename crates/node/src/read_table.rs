//! Reads that need no place in the order: a node answers them from what it has executed.
//!
//! A read of one group waits until the group's replica here has passed a barrier that was set after the read
//! came ([`amcast_core::Input::Barrier`]): then everything that anybody had been answered by that time is
//! delivered here. Once the application has taken that, it is asked; one with threads of its own may answer later.
//!
//! Reads gather for the next barrier, and share it: of each group a bounded number of barriers is set and not passed, and
//! the next one is set when one of them is passed, or after a share of the time that barriers take lately. So over long links
//! reads come to a few barriers as over short ones, however many they are.
//!
//! A read that is not answered in time is ordered like any other command:
//! nobody waits much longer than for that, and what the application says of reads need not be
//! answered at all. In time is four times as long as barriers take lately. A read whose gateway takes no answers at the
//! moment is not asked for, nor is it late: an order would make its answer no smaller.
//!
//! Reads of one line of a gateway (of one client) are answered in their order, none from an earlier moment than one
//! before it. Those of a line that come behind one that is ordered wait for that one's answer; other lines do not.

use amcast_core::step::Ticket;
use amcast_core::{Gid, Span, Time};
use std::collections::{BTreeSet, VecDeque};

/// How long a read waits here before it is ordered, at the least and at the most.
const PATIENCE: (Span, Span) = (Span::millis(50), Span::secs(1));

/// Barriers of a group that are not passed, at most.
const BARRIERS_MAX: usize = 32;

/// While some are not passed, the next one is set after such a part of the time that they take.
const SHARE: u64 = 16;

/// How often it is looked for reads that have waited for too long.
const LOOK_EVERY: Span = Span::millis(5);

/// A read of a gateway, which goes to one group.
#[derive(Debug)]
pub struct NodeRead {
    /// The number of its gateway.
    pub gateway: u64,
    /// Its gateway's token of it.
    pub token: u64,
    /// Of which of its gateway's lines it is.
    pub line: u64,
    /// Its only group.
    pub group: Gid,
    /// The command.
    pub bytes: Box<[u8]>,
}

impl NodeRead {
    /// A line of its own among its gateway's reads. A gateway's tokens of reads count up from 0.
    pub const fn own_line(&self) -> u64 {
        !self.token
    }

    /// Its line, among those of all gateways.
    pub const fn line(&self) -> (u64, u64) {
        (self.gateway, self.line)
    }
}

/// The result of a requested read.
#[derive(Debug)]
pub enum ReadAttempt {
    /// It is answered, or ordered, or nobody waits for it any more.
    Done,
    /// The application answers it later.
    Later(NodeRead),
    /// It depends on what is not executed yet.
    NotYet(NodeRead),
    /// Its gateway takes no answers at the moment, or the application no reads.
    Held(NodeRead),
}

/// A read, and since when it waits.
struct WaitingRead {
    since: Time,
    read: NodeRead,
}

/// Reads behind a barrier.
struct BarrierReads {
    ticket: Ticket,
    since: Time,
    reads: Vec<WaitingRead>,
}

/// A read whose barrier is passed.
struct ReadyRead {
    /// The application must have taken everything up to here.
    position: u64,
    waits: WaitingRead,
}

/// The reads of one group.
#[derive(Default)]
struct OfGroup {
    /// Without a barrier.
    fresh: Vec<WaitingRead>,
    /// In the order in which their barriers were set. Of barriers whose reads were given up none is left.
    behind: VecDeque<BarrierReads>,
    ready: VecDeque<ReadyRead>,
    /// The reads that the application answers later, by its numbers, which grow.
    given: VecDeque<(u64, ReadyRead)>,
    /// About how long barriers took to be passed lately, if any was.
    takes: Option<Span>,
    /// When the last barrier was set.
    set_at: Time,
}

impl OfGroup {
    fn waiting(&self) -> impl Iterator<Item = &WaitingRead> {
        let ready = self.ready.iter().map(|ready| &ready.waits);
        let behind = self.behind.iter().flat_map(|behind| &behind.reads);
        ready.chain(behind).chain(&self.fresh)
    }

    fn patience(&self) -> Span {
        self.takes.unwrap_or_default().times(4).max(PATIENCE.0).min(PATIENCE.1)
    }

    /// Takes out the reads of these lines that wait, in their order. Of their barriers it is still waited for how long they
    /// take.
    fn take_lines(&mut self, lines: &BTreeSet<(u64, u64)>) -> Vec<NodeRead> {
        let mut taken = Vec::new();
        let mut sift = |waits: WaitingRead| match lines.contains(&waits.read.line()) {
            true => {
                taken.push(waits.read);
                None
            }
            false => Some(waits),
        };
        for ReadyRead { position, waits } in std::mem::take(&mut self.ready) {
            self.ready.extend(sift(waits).map(|waits| ReadyRead { position, waits }));
        }
        let behind = self.behind.iter_mut().map(|behind| &mut behind.reads);
        for reads in behind.chain([&mut self.fresh]) {
            *reads = std::mem::take(reads).into_iter().filter_map(&mut sift).collect();
        }
        taken
    }
}

/// The reads of a node.
pub struct ReadTable {
    groups: Vec<OfGroup>,
    next_ticket: u64,
    next_number: u64,
    /// When it is looked for late ones next.
    look_at: Time,
}

impl ReadTable {
    /// No reads of so many groups.
    pub fn of(groups: usize) -> Self {
        let groups = (0..groups).map(|_| OfGroup::default()).collect();
        Self { groups, next_ticket: 0, next_number: 0, look_at: Time::ZERO }
    }

    /// Takes a read in.
    pub fn take(&mut self, read: NodeRead, now: Time) {
        self.groups[read.group.index()].fresh.push(WaitingRead { since: now, read });
    }

    /// The ticket of the barrier that the reads which `group` has taken in are to wait for, if it is time to set one.
    pub fn begin(&mut self, group: Gid, now: Time) -> Option<Ticket> {
        let of = &mut self.groups[group.index()];
        let pause = Span(of.takes.unwrap_or_default().0 / SHARE);
        let is_early = of.behind.len() >= BARRIERS_MAX || now.since(of.set_at) < pause;
        if of.fresh.is_empty() || !of.behind.is_empty() && is_early {
            return None;
        }
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        let reads = std::mem::take(&mut of.fresh);
        of.behind.push_back(BarrierReads { ticket, since: now, reads });
        of.set_at = now;
        Some(ticket)
    }

    /// Whether reads wait for a barrier to be set.
    pub fn is_pressing(&self) -> bool {
        self.groups.iter().any(|of| !of.fresh.is_empty())
    }

    /// The barrier of `ticket` is passed, and with it all that were set before, and the replica of `group` has
    /// delivered everything up to `position`.
    pub fn passed(&mut self, group: Gid, ticket: Ticket, (position, now): (u64, Time)) {
        let of = &mut self.groups[group.index()];
        let Some(at) = of.behind.iter().position(|behind| behind.ticket == ticket) else { return };
        for BarrierReads { since, reads, .. } in of.behind.drain(..=at) {
            let took = now.since(since);
            of.takes = Some(of.takes.map_or(took, |takes| Span((takes.0 * 7 + took.0) / 8)));
            of.ready.extend(reads.into_iter().map(|waits| ReadyRead { position, waits }));
        }
    }

    /// Asks the application, which has taken everything of `group` up to `delivered`, for each read that it may
    /// be asked for, in their order: `ask` is given each with a number. Whether anything came of it.
    pub fn serve(
        &mut self,
        group: Gid,
        (delivered, now): (u64, Time),
        ask: &mut dyn FnMut(u64, NodeRead) -> ReadAttempt,
    ) -> bool {
        let of = &mut self.groups[group.index()];
        let mut any = false;
        let mut later = VecDeque::new();
        let mut waiting = BTreeSet::new();
        for ReadyRead { position, waits: WaitingRead { since, read } } in of.ready.drain(..) {
            let line = read.line();
            // One behind another that waits must not be answered from an earlier moment.
            let may = position <= delivered && !waiting.contains(&line);
            let asked = if may { ask(self.next_number, read) } else { ReadAttempt::NotYet(read) };
            let ready = |since, read| ReadyRead { position, waits: WaitingRead { since, read } };
            match asked {
                ReadAttempt::Done => any = true,
                ReadAttempt::Later(read) => {
                    any = true;
                    of.given.push_back((self.next_number, ready(since, read)));
                    self.next_number += 1;
                }
                ReadAttempt::NotYet(read) => {
                    waiting.insert(line);
                    later.push_back(ready(since, read));
                }
                // Its patience counts from when that is over.
                ReadAttempt::Held(read) => {
                    waiting.insert(line);
                    later.push_back(ready(now, read));
                }
            }
        }
        of.ready = later;
        any
    }

    /// The read that the application was given of `group` with this number, and answers now.
    pub fn answered(&mut self, group: Gid, number: u64) -> Option<NodeRead> {
        let of = &mut self.groups[group.index()];
        let at = of.given.binary_search_by_key(&number, |(given, _)| *given).ok()?;
        of.given.remove(at).map(|(_, ready)| ready.waits.read)
    }

    /// The read that the application was given of `group` with this number has no answer now: it is
    /// repeated, with those of its line behind it, which must not be answered from an earlier
    /// moment. Each is passed to `back`.
    pub fn put_back(
        &mut self,
        group: Gid,
        (number, now): (u64, Time),
        back: &mut dyn FnMut(&NodeRead),
    ) {
        let of = &mut self.groups[group.index()];
        let Ok(at) = of.given.binary_search_by_key(&number, |(given, _)| *given) else { return };
        let line = of.given[at].1.waits.read.line();
        let (mut backs, mut kept) = (Vec::new(), VecDeque::new());
        for (given, mut ready) in of.given.drain(at..) {
            if ready.waits.read.line() == line {
                ready.waits.since = now;
                back(&ready.waits.read);
                backs.push(ready);
            } else {
                kept.push_back((given, ready));
            }
        }
        of.given.append(&mut kept);
        backs.into_iter().rev().for_each(|ready| of.ready.push_front(ready));
    }

    /// The read that the application was given of `group` with this number needs a place in the
    /// order. Those of its line behind it are repeated. Each is passed to `back`.
    pub fn refused(
        &mut self,
        group: Gid,
        (number, now): (u64, Time),
        back: &mut dyn FnMut(&NodeRead),
    ) -> Option<NodeRead> {
        let of = &self.groups[group.index()];
        of.given.binary_search_by_key(&number, |(given, _)| *given).ok()?;
        self.put_back(group, (number, now), back);
        self.groups[group.index()].ready.pop_front().map(|ready| ready.waits.read)
    }

    /// Takes out those that are to be ordered: those that have waited for too long, with all that wait of their lines.
    pub fn late(&mut self, now: Time) -> Vec<NodeRead> {
        let mut taken = Vec::new();
        if now < self.look_at {
            return taken;
        }
        self.look_at = now + LOOK_EVERY;
        for of in &mut self.groups {
            let patience = of.patience();
            let is_late = |waits: &&WaitingRead| now.since(waits.since) >= patience;
            let late = of.waiting().filter(is_late).map(|waits| waits.read.line());
            let mut lines: BTreeSet<_> = late.collect();
            // One that is answered behind a later one would be so from a later moment.
            of.given.iter().for_each(|(_, given)| _ = lines.remove(&given.waits.read.line()));
            if !lines.is_empty() {
                taken.extend(of.take_lines(&lines));
            }
        }
        taken
    }

    /// Whether none waits here.
    pub fn is_empty(&self) -> bool {
        self.groups.iter().all(|of| of.waiting().next().is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A read of a line of its own.
    fn read(token: u64, group: u8) -> NodeRead {
        NodeRead { gateway: 0, token, line: token, group: Gid(group), bytes: Box::default() }
    }

    fn at(ms: u64) -> Time {
        Time::ZERO + Span::millis(ms)
    }

    fn tokens(reads: Vec<NodeRead>) -> Vec<u64> {
        reads.iter().map(|read| read.token).collect()
    }

    /// The verdict on a read.
    #[derive(Clone, Copy)]
    enum ReadReport {
        Done,
        Later,
        NotYet,
        Held,
    }

    /// Which reads are asked for when so much is delivered, by their tokens and numbers; each becomes what `says` says.
    fn served(
        reading: &mut ReadTable,
        (delivered, now): (u64, Time),
        says: impl Fn(u64) -> ReadReport,
    ) -> Vec<(u64, u64)> {
        let mut asked = Vec::new();
        reading.serve(Gid(1), (delivered, now), &mut |number, read| {
            asked.push((read.token, number));
            match says(read.token) {
                ReadReport::Done => ReadAttempt::Done,
                ReadReport::Later => ReadAttempt::Later(read),
                ReadReport::NotYet => ReadAttempt::NotYet(read),
                ReadReport::Held => ReadAttempt::Held(read),
            }
        });
        asked
    }

    fn asked(
        reading: &mut ReadTable,
        delivered: u64,
        says: impl Fn(u64) -> ReadReport,
    ) -> Vec<u64> {
        served(reading, (delivered, at(0)), says).iter().map(|(token, _)| *token).collect()
    }

    /// Reads of one group whose barrier is passed.
    fn ready(reads: impl IntoIterator<Item = NodeRead>) -> ReadTable {
        let mut reading = ReadTable::of(2);
        reads.into_iter().for_each(|read| reading.take(read, at(0)));
        let ticket = reading.begin(Gid(1), at(0)).unwrap();
        reading.passed(Gid(1), ticket, (0, at(1)));
        reading
    }

    #[test]
    fn a_read_of_no_line_waits_for_no_other_of_its_gateway() {
        let mut reading = ReadTable::of(1);
        for token in [1, 2] {
            let mut read = read(token, 0);
            read.line = read.own_line();
            reading.take(read, at(0));
        }
        let ticket = reading.begin(Gid(0), at(0)).unwrap();
        reading.passed(Gid(0), ticket, (0, at(1)));
        let mut asked = Vec::new();
        reading.serve(Gid(0), (0, at(1)), &mut |_, read| {
            asked.push(read.token);
            ReadAttempt::NotYet(read)
        });
        assert_eq!(asked, [1, 2], "the first is not answered yet");
    }

    #[test]
    fn a_read_waits_for_its_barrier_and_then_for_what_was_delivered_by_that() {
        let mut reading = ReadTable::of(2);
        assert_eq!(reading.begin(Gid(1), at(0)), None);
        reading.take(read(7, 1), at(0));
        reading.take(read(8, 1), at(0));
        let first = reading.begin(Gid(1), at(0)).unwrap();
        reading.take(read(9, 1), at(0));
        let second = reading.begin(Gid(1), at(1)).unwrap();
        assert!(reading.begin(Gid(0), at(1)).is_none() && first != second);
        let all = |_| ReadReport::Done;
        assert!(asked(&mut reading, u64::MAX, all).is_empty(), "no barrier is passed");
        reading.passed(Gid(1), first, (30, at(2)));
        assert!(asked(&mut reading, 29, all).is_empty());
        let odd = |token| if token == 7 { ReadReport::NotYet } else { ReadReport::Done };
        assert_eq!(asked(&mut reading, 30, odd), [7, 8]);
        reading.passed(Gid(1), second, (31, at(3)));
        assert_eq!(asked(&mut reading, 31, all), [7, 9]);
        assert!(reading.is_empty());
    }

    #[test]
    fn reads_of_a_line_keep_their_order_and_wait_for_no_other_line() {
        let of = |token, line| NodeRead { line, ..read(token, 1) };
        let mut reading = ready([of(1, 5), of(2, 6), of(3, 5), of(4, 6)]);
        let first_waits = |token| if token == 1 { ReadReport::NotYet } else { ReadReport::Done };
        assert_eq!(asked(&mut reading, 0, first_waits), [1, 2, 4]);
        assert_eq!(asked(&mut reading, 0, |_| ReadReport::Done), [1, 3]);
        // The same line of another gateway is another one.
        let mut reading = ready([of(1, 5), NodeRead { gateway: 1, ..of(2, 5) }]);
        assert_eq!(asked(&mut reading, 0, first_waits), [1, 2]);
    }

    #[test]
    fn what_is_answered_later_is_found_by_its_number_once() {
        let mut reading = ready([read(1, 1), read(2, 1)]);
        let given = served(&mut reading, (0, at(1)), |_| ReadReport::Later);
        let [(1, first), (2, second)] = given[..] else { panic!("{given:?}") };
        assert!(reading.is_empty() && reading.late(at(10_000)).is_empty(), "no order is sooner");
        assert_eq!(reading.answered(Gid(1), second).map(|read| read.token), Some(2));
        assert_eq!(reading.answered(Gid(1), first).map(|read| read.token), Some(1));
        assert!(reading.answered(Gid(1), first).is_none());
    }

    #[test]
    fn behind_one_that_a_thread_refuses_its_line_is_asked_again_and_answers_from_before_do_not_count()
     {
        let of = |token, line| NodeRead { line, ..read(token, 1) };
        let mut reading = ready([of(1, 5), of(2, 6), of(3, 5), of(4, 5)]);
        let given = served(&mut reading, (0, at(1)), |_| ReadReport::Later);
        let mut back = Vec::new();
        let refused =
            reading.refused(Gid(1), (given[0].1, at(2)), &mut |read| back.push(read.token));
        assert_eq!((refused.map(|read| read.token), back), (Some(1), vec![1, 3, 4]));
        assert!(reading.answered(Gid(1), given[2].1).is_none(), "it is from an earlier moment");
        assert_eq!(reading.answered(Gid(1), given[1].1).map(|read| read.token), Some(2));
        reading.put_back(Gid(1), (given[3].1, at(2)), &mut |_| panic!("it was put back"));
        assert_eq!(asked(&mut reading, 0, |_| ReadReport::Done), [3, 4]);
        assert!(reading.refused(Gid(1), (given[0].1, at(3)), &mut |_| {}).is_none());
    }

    #[test]
    fn a_barrier_that_is_passed_lets_go_of_all_that_were_set_before() {
        let mut reading = ReadTable::of(2);
        let mut begin = |token| {
            reading.take(read(token, 1), at(token));
            reading.begin(Gid(1), at(token)).unwrap()
        };
        let [_, second, third] = [1, 2, 3].map(&mut begin);
        reading.passed(Gid(1), second, (5, at(9)));
        assert_eq!(asked(&mut reading, 5, |_| ReadReport::Done), [1, 2]);
        reading.passed(Gid(1), third, (5, at(9)));
        assert_eq!(asked(&mut reading, 5, |_| ReadReport::Done), [3]);
    }

    #[test]
    fn those_that_have_waited_for_too_long_are_ordered_with_their_lines_and_no_others() {
        let mut reading = ReadTable::of(2);
        reading.take(read(1, 1), at(0));
        reading.begin(Gid(1), at(0)).unwrap();
        reading.take(NodeRead { line: 1, ..read(2, 1) }, at(40));
        let second = reading.begin(Gid(1), at(40)).unwrap();
        reading.take(read(3, 1), at(40));
        assert!(reading.late(at(49)).is_empty());
        assert_eq!(tokens(reading.late(at(54))), [1, 2]);
        assert_eq!(tokens(reading.late(at(100))), [3], "also without a barrier");
        reading.passed(Gid(1), second, (9, at(170)));
        assert!(reading.is_empty());
    }

    #[test]
    fn none_is_ordered_behind_which_one_of_its_line_would_be_answered() {
        let mut reading = ready([read(1, 1)]);
        served(&mut reading, (0, at(1)), |_| ReadReport::Later);
        reading.take(NodeRead { line: 1, ..read(2, 1) }, at(1));
        reading.take(read(3, 1), at(1));
        assert_eq!(tokens(reading.late(at(60))), [3]);
        assert!(reading.answered(Gid(1), 0).is_some());
        assert_eq!(tokens(reading.late(at(70))), [2]);
    }

    #[test]
    fn a_read_whose_gateway_takes_no_answers_waits_and_is_not_ordered_for_that() {
        let mut reading = ready((1..4).map(|token| read(token, 1)));
        let mut answered = Vec::new();
        for ms in (0..10_000).step_by(10) {
            let held =
                |token| if token == 2 || ms > 9_000 { ReadReport::Done } else { ReadReport::Held };
            let asked = served(&mut reading, (0, at(ms)), held);
            answered
                .extend(asked.iter().map(|a| a.0).filter(|t| matches!(held(*t), ReadReport::Done)));
            assert!(reading.late(at(ms)).is_empty());
        }
        assert_eq!((answered, reading.is_empty()), (vec![2, 1, 3], true));
    }

    /// Reads that come one by one, so many microseconds apart, over links on which a barrier takes `takes_ms`, one round
    /// of questions after the other. How many barriers were set in four seconds, how many reads were ordered,
    /// and how long the slowest of the others waited, in milliseconds.
    fn over_links(takes_ms: u64, apart_us: u64) -> (usize, usize, u64) {
        let (mut reading, mut came) = (ReadTable::of(2), Vec::new());
        let (mut fresh, mut round): (Vec<Ticket>, Option<(Ticket, u64)>) = (Vec::new(), None);
        let (mut set, mut ordered, mut slowest) = (0, 0, 0);
        for us in (0..4_000_000).step_by(100) {
            let now = Time(us * 1000);
            if us % apart_us == 0 {
                reading.take(read(came.len() as u64, 1), now);
                came.push(us);
            }
            if let Some((ticket, _)) = round.filter(|(_, until)| *until <= us) {
                reading.passed(Gid(1), ticket, (0, now));
                round = None;
            }
            reading.serve(Gid(1), (0, now), &mut |_, read| {
                slowest = slowest.max(us - came[read.token as usize]);
                ReadAttempt::Done
            });
            ordered += reading.late(now).len();
            if let Some(ticket) = reading.begin(Gid(1), now) {
                set += 1;
                fresh.push(ticket);
            }
            if round.is_none()
                && let Some(last) = fresh.pop()
            {
                fresh.clear();
                round = Some((last, us + takes_ms * 1000));
            }
        }
        (set, ordered, slowest / 1000)
    }

    #[test]
    fn over_long_links_reads_gather_for_a_few_barriers_and_none_is_ordered() {
        for apart_us in [100, 500, 5000] {
            let (set, ordered, slowest_ms) = over_links(40, apart_us);
            assert_eq!(ordered, 0, "{apart_us} us apart");
            assert!(set < 4 * 1000 * SHARE as usize / 40 + 50, "{set} barriers");
            assert!(slowest_ms <= 2 * 40 + 40 / SHARE + 1, "{slowest_ms} ms");
        }
        let (_, ordered, slowest_ms) = over_links(1, 500);
        assert!(ordered == 0 && slowest_ms <= 3, "{ordered}, {slowest_ms} ms");
    }

    #[test]
    fn where_no_barrier_passes_few_are_set_and_each_read_is_ordered_in_time() {
        let mut reading = ReadTable::of(2);
        let (mut set, mut ordered) = (0, 0);
        for ms in 0..1000 {
            reading.take(read(ms, 1), at(ms));
            set += usize::from(reading.begin(Gid(1), at(ms)).is_some());
            ordered += reading.late(at(ms)).len();
        }
        assert_eq!(set, BARRIERS_MAX);
        assert!((940..=955).contains(&ordered), "{ordered}");
    }
}

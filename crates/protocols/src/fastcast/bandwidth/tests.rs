//! The paper's tables 1 to 3 as exact traces, and the allocation against a slow second implementation.

use super::BandwidthAllocation;
use alloc::vec::Vec;
use amcast_core::rng::Rng;

/// The rate that a link of the tables carries, in Mb/s.
const LINK: u64 = 1000;

/// A row of a table: a process after a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct TableRow {
    /// `bwRequirements`.
    requirements: [u64; 3],
    /// `currentBW`.
    current: u64,
    /// `ongoing increase`.
    ongoing: u64,
    /// `acks`.
    acks: usize,
    /// `delivered req`.
    delivered: bool,
}

const fn row(requirements: [u64; 3], current: u64) -> TableRow {
    TableRow { requirements, current, ongoing: 0, acks: 0, delivered: false }
}

impl TableRow {
    const fn increasing(self, ongoing: u64, acks: usize) -> Self {
        Self { ongoing, acks, ..self }
    }

    const fn delivered(self) -> Self {
        Self { delivered: true, ..self }
    }
}

/// The three processes of the tables.
struct TableProcesses([BandwidthAllocation; 3]);

impl TableProcesses {
    fn new() -> Self {
        Self([0, 1, 2].map(|me| BandwidthAllocation::new(me, 3, LINK)))
    }

    fn rows(&self) -> [TableRow; 3] {
        self.0.each_ref().map(|process| {
            let requirements = process.requirements().try_into().expect("three processes");
            let ongoing = process.ongoing();
            TableRow {
                requirements,
                current: process.current(),
                ongoing: ongoing.map_or(0, |ongoing| ongoing.amount),
                acks: ongoing.map_or(0, |ongoing| ongoing.acks),
                delivered: ongoing.is_some_and(|ongoing| ongoing.delivered),
            }
        })
    }

    fn increases(&mut self, at: usize, amount: u64) {
        assert!(self.0[at].increase(amount));
    }

    /// A process delivers an announced increase. It acknowledges those of others.
    fn delivers_increase(&mut self, at: usize, amount: u64, of: usize) {
        assert_eq!(self.0[at].on_increase(of, amount), Ok(at != of));
    }

    fn receives_ack(&mut self, at: usize) {
        assert_eq!(self.0[at].on_ack(), Ok(()));
    }

    /// The end of table 1, and the beginning of table 2.
    fn after_table_1() -> Self {
        let mut of = Self::new();
        of.increases(0, 800);
        of.increases(1, 300);
        for at in 0..3 {
            of.delivers_increase(at, 800, 0);
            of.delivers_increase(at, 300, 1);
        }
        for at in [0, 1, 0, 1] {
            of.receives_ack(at);
        }
        of
    }

    /// The end of table 2, and the beginning of table 3.
    fn after_table_2() -> Self {
        let mut of = Self::after_table_1();
        of.increases(2, 600);
        (0..3).for_each(|at| of.delivers_increase(at, 600, 2));
        (0..2).for_each(|_| of.receives_ack(2));
        of
    }
}

#[test]
fn table_1_is_an_exact_trace() {
    const NOBODY: [u64; 3] = [0, 0, 0];
    const BOTH: [u64; 3] = [800, 300, 0];
    let mut of = TableProcesses::new();
    let s1 = [row(NOBODY, 0); 3];
    assert_eq!(of.rows(), s1, "S1");

    of.increases(0, 800);

    of.increases(1, 300);
    let idle = row(NOBODY, 0);
    assert_eq!(of.rows(), [idle.increasing(800, 0), idle.increasing(300, 0), idle], "S2");

    of.delivers_increase(2, 800, 0);

    of.delivers_increase(2, 300, 1);
    let last = row(BOTH, 0);
    assert_eq!(of.rows(), [idle.increasing(800, 0), idle.increasing(300, 0), last], "S3");

    of.receives_ack(0);

    of.receives_ack(1);
    assert_eq!(of.rows(), [idle.increasing(800, 1), idle.increasing(300, 1), last], "S4");

    of.delivers_increase(0, 800, 0);

    of.delivers_increase(0, 300, 1);
    let first = row([0, 300, 0], 0).increasing(800, 1).delivered();
    assert_eq!(of.rows(), [first, idle.increasing(300, 1), last], "S5");

    of.receives_ack(1);
    assert_eq!(of.rows(), [first, idle.increasing(300, 2), last], "S6");

    of.delivers_increase(1, 800, 0);

    of.delivers_increase(1, 300, 1);
    assert_eq!(of.rows(), [first, row(BOTH, 300), last], "S7");

    of.receives_ack(0);
    assert_eq!(of.rows(), [row(BOTH, 700), row(BOTH, 300), last], "S8");
    assert_eq!(TableProcesses::after_table_1().rows(), of.rows());
}

#[test]
fn table_2_is_an_exact_trace() {
    const BEFORE: [u64; 3] = [800, 300, 0];
    const ALL: [u64; 3] = [800, 300, 600];
    let mut of = TableProcesses::after_table_1();
    let [first, second] = [row(BEFORE, 700), row(BEFORE, 300)];
    assert_eq!(of.rows(), [first, second, row(BEFORE, 0)], "S9");

    of.increases(2, 600);
    assert_eq!(of.rows(), [first, second, row(BEFORE, 0).increasing(600, 0)], "S10");

    (0..3).for_each(|at| of.delivers_increase(at, 600, 2));
    let [first, second] = [row(ALL, 500), row(ALL, 300)];
    let third = row(BEFORE, 0).delivered();
    assert_eq!(of.rows(), [first, second, third.increasing(600, 0)], "S11");

    of.receives_ack(2);
    assert_eq!(of.rows(), [first, second, third.increasing(600, 1)], "S12");

    of.receives_ack(2);
    assert_eq!(of.rows(), [first, second, row(ALL, 500)], "S13");
    assert_eq!(TableProcesses::after_table_2().rows(), of.rows());
}

#[test]
fn table_3_is_an_exact_trace() {
    const BEFORE: [u64; 3] = [800, 300, 600];
    const AFTER: [u64; 3] = [800, 300, 100];
    let mut of = TableProcesses::after_table_2();
    let [first, second] = [row(BEFORE, 500), row(BEFORE, 300)];
    assert_eq!(of.rows(), [first, second, row(BEFORE, 500)], "S14");

    assert!(of.0[2].decrease(500));
    assert_eq!(of.rows(), [first, second, row(AFTER, 100)], "S15");

    for process in &mut of.0 {
        assert_eq!(process.on_decrease(2, 500), Ok(()));
    }
    assert_eq!(of.rows(), [row(AFTER, 700), row(AFTER, 300), row(AFTER, 100)], "S16");
}

#[test]
fn one_change_is_announced_at_a_time_and_none_below_nothing() {
    let mut of = BandwidthAllocation::new(0, 2, LINK);
    assert!(of.increase(10) && !of.increase(1) && !of.decrease(0), "the first is not complete");
    assert_eq!(of.on_increase(0, 11), Err("an increase that was not announced"));
    assert_eq!(of.on_increase(0, 10), Ok(false));
    assert_eq!(of.on_increase(0, 10), Err("an increase that was not announced"), "twice");
    assert!(of.is_increasing() && of.required() == 0);
    assert_eq!(of.on_ack(), Ok(()));
    assert_eq!((of.is_increasing(), of.required(), of.current()), (false, 10, 10));
    assert_eq!(of.on_ack(), Err("an acknowledgement of no increase"));
    assert!(!of.decrease(11) && of.decrease(10));
    assert_eq!(of.on_increase(2, 1), Err("an increase of no member"));
    assert_eq!(of.on_decrease(1, 1), Err("a decrease below nothing"));
    assert_eq!(of.on_increase(1, u64::MAX), Ok(true));
    assert_eq!(of.on_increase(1, u64::MAX), Ok(true), "as much as there can be");
}

#[test]
fn a_member_that_is_alone_waits_for_no_acknowledgement() {
    let mut of = BandwidthAllocation::new(0, 1, LINK);
    assert!(of.increase(2000));
    assert_eq!(of.on_increase(0, 2000), Ok(false));
    assert_eq!((of.required(), of.current()), (2000, LINK));
}

/// The share of a member, from the definition of figure 4, lines 34 to 47: as printed, and slow.
fn as_printed(requirements: &[u64], me: usize, link: u64) -> u64 {
    let mut others: Vec<usize> = (0..requirements.len()).filter(|&at| at != me).collect();
    others.sort_by_key(|&at| core::cmp::Reverse(requirements[at]));
    others.truncate(requirements.len().saturating_sub(2));
    let mut nodes = others;
    nodes.push(me);
    let mut available = link;
    loop {
        let mut allocated = false;
        for at in nodes.clone() {
            if requirements[at] * nodes.len() as u64 <= available {
                nodes.retain(|&node| node != at);
                available -= requirements[at];
                allocated = true;
            }
        }
        if nodes.is_empty() || !allocated {
            break;
        }
    }
    if nodes.contains(&me) { available / nodes.len() as u64 } else { requirements[me] }
}

/// All lists of so many requirements out of these.
fn all_of(values: &[u64], members: usize) -> Vec<Vec<u64>> {
    let mut lists = alloc::vec![Vec::new()];
    for _ in 0..members {
        let longer = |list: &Vec<u64>| {
            values.iter().map(|v| [&list[..], &[*v]].concat()).collect::<Vec<_>>()
        };
        lists = lists.iter().flat_map(longer).collect();
    }
    lists
}

/// The shares of all members, when all know these requirements.
fn shares(requirements: &[u64]) -> Vec<u64> {
    (0..requirements.len()).map(|me| knowing(me, requirements).allocation()).collect()
}

/// A member that knows these requirements.
fn knowing(me: usize, requirements: &[u64]) -> BandwidthAllocation {
    BandwidthAllocation {
        requirements: requirements.to_vec(),
        ..BandwidthAllocation::new(me, requirements.len(), LINK)
    }
}

/// A change of a requirement that a member announced.
#[derive(Clone, Copy, Debug)]
enum AnnouncedChange {
    Increase(u64),
    Decrease(u64),
}

/// Members that deliver the same announcements in the same order, each at its own time.
struct SlowMembers {
    members: Vec<BandwidthAllocation>,
    order: Vec<(usize, AnnouncedChange)>,
    delivered: Vec<usize>,
    /// Members to which an acknowledgement is on the way.
    acks: Vec<usize>,
}

impl SlowMembers {
    fn new(count: usize) -> Self {
        Self {
            members: (0..count).map(|me| BandwidthAllocation::new(me, count, LINK)).collect(),
            order: Vec::new(),
            delivered: alloc::vec![0; count],
            acks: Vec::new(),
        }
    }

    /// One thing happens, by chance.
    fn step(&mut self, rng: &mut Rng) {
        let at = rng.below(self.members.len() as u64) as usize;
        let member = &mut self.members[at];
        match rng.below(4) {
            0 if self.order.len() < 40 => {
                let amount = 1 + rng.below(LINK);
                if member.increase(amount) {
                    self.order.push((at, AnnouncedChange::Increase(amount)));
                } else if member.decrease(amount) {
                    self.order.push((at, AnnouncedChange::Decrease(amount)));
                }
            }
            1 if !self.acks.is_empty() => {
                let ack = rng.below(self.acks.len() as u64) as usize;
                let to = self.acks.swap_remove(ack);
                assert_eq!(self.members[to].on_ack(), Ok(()));
            }
            2 if member.required() > 0 && self.order.len() < 40 => {
                let amount = 1 + rng.below(member.required());
                if member.decrease(amount) {
                    self.order.push((at, AnnouncedChange::Decrease(amount)));
                }
            }
            _ => self.deliver_next(at),
        }
    }

    fn deliver_next(&mut self, at: usize) {
        let Some(&(of, change)) = self.order.get(self.delivered[at]) else { return };
        self.delivered[at] += 1;
        match change {
            AnnouncedChange::Increase(amount) => {
                if self.members[at].on_increase(of, amount) == Ok(true) {
                    self.acks.push(of);
                }
            }
            AnnouncedChange::Decrease(amount) => {
                assert_eq!(self.members[at].on_decrease(of, amount), Ok(()));
            }
        }
    }
}

#[test]
fn no_link_is_overloaded_at_any_time_while_members_learn_of_changes() {
    for seed in 0..300 {
        let mut rng = Rng::new(seed);
        let mut all = SlowMembers::new(2 + (seed % 4) as usize);
        for _ in 0..400 {
            all.step(&mut rng);
            let rates: Vec<u64> = all.members.iter().map(|m| m.current() + m.spare()).collect();
            for at in 0..rates.len() {
                let received = rates.iter().sum::<u64>() - rates[at];
                assert!(received <= LINK, "seed {seed}: {at} receives {received} of {rates:?}");
            }
        }
        assert!(all.order.len() > 10, "seed {seed}: little happened");
    }
}

#[test]
fn the_allocation_is_that_of_the_paper_and_no_link_carries_more_than_it_can() {
    const VALUES: [u64; 8] = [0, 1, 100, 333, 334, 500, 999, 1400];
    for members in 1..=5 {
        for requirements in all_of(&VALUES, members) {
            let shares = shares(&requirements);
            let printed = (0..members).map(|me| as_printed(&requirements, me, LINK));
            assert!(printed.eq(shares.iter().copied()), "{requirements:?}: {shares:?}");
            for at in 0..members {
                assert!(shares[at] <= requirements[at], "{requirements:?}: {shares:?}");
                let received = shares.iter().sum::<u64>() - shares[at];
                assert!(received <= LINK, "{requirements:?}: {at} receives {received}");
                let spare = knowing(at, &requirements).spare() * (members as u64 - 1);
                assert!(received + spare <= LINK, "{requirements:?}: {spare} to spare");
            }
        }
    }
}

#[test]
fn members_that_all_require_much_send_as_much_as_links_carry() {
    for members in 2..=8_u64 {
        let shares = shares(&alloc::vec![LINK; members as usize]);
        let sum = shares.iter().sum::<u64>();
        // `N / (N - 1)` links at the best, less what is rounded.
        assert!(sum + members > LINK * members / (members - 1), "{members}: {sum}");
    }
    assert_eq!(shares(&[700, 600, 300]), [500, 500, 300], "the example of section 3.5");
}

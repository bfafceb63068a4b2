//! Disks: a log of records for each process, durable some time after they were written.
//!
//! The end of a process takes nothing from its log. The end of its machine takes what was not yet
//! durable, from some record on. Records are whole or not there at all: a real log tells one that
//! is torn by its checksum, and cuts it off.

use crate::chooser::{Chooser, Concern};
use crate::delay::Delay;
use crate::queue::EventQueue;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use amcast_core::step::Ticket;
use amcast_core::{Pid, Span, Time};

/// How these disks behave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DiskModel {
    /// From writing a record that is awaited to its being durable.
    pub sync: Delay,
    /// From writing any other record to its being durable, unless one behind it is so before.
    pub lazy: Delay,
    /// Chance in a million that a process that dies and has a log dies with its machine.
    pub machine_ppm: u64,
}

impl DiskModel {
    /// A disk that takes this long, of a machine that never fails by chance.
    pub const fn constant(sync: Span) -> Self {
        Self { sync: Delay::Constant(sync), lazy: Delay::Constant(sync), machine_ppm: 0 }
    }
}

/// The disks of all processes.
#[derive(Debug)]
pub struct SimDisk {
    model: DiskModel,
    files: Vec<SimFile>,
    /// When the record of that number is durable, and all before it.
    due: EventQueue<(Pid, u32, u64)>,
    durable: VecDeque<(Pid, Ticket)>,
}

#[derive(Debug, Default)]
struct SimFile {
    /// The number of the first record that is there.
    first: u64,
    records: VecDeque<Vec<u8>>,
    /// How many of the records are durable.
    synced: usize,
    /// The ticket of each that is not durable yet, if it is awaited.
    waiting: VecDeque<Option<Ticket>>,
    /// When the awaited record written last is durable.
    last: Time,
    life: u32,
    /// Whether anything was ever written.
    used: bool,
    /// Whether the machine failed since something was written last.
    torn: bool,
    /// Whether what was there is gone, and the process has not recovered it.
    lost: bool,
    /// Records that cannot be read any more.
    damaged: Vec<u64>,
    stalled_until: Time,
    full_until: Time,
}

impl SimFile {
    /// The number that the next record gets.
    fn next(&self) -> u64 {
        self.first + self.records.len() as u64
    }

    /// Nobody writes any more, and nobody waits.
    fn close(&mut self) {
        self.life += 1;
        self.waiting.clear();
        self.last = Time::ZERO;
    }
}

impl SimDisk {
    /// An empty disk for each of `processes` processes.
    pub fn new(processes: usize, model: DiskModel) -> Self {
        Self {
            model,
            files: (0..processes).map(|_| SimFile::default()).collect(),
            due: EventQueue::default(),
            durable: VecDeque::new(),
        }
    }

    /// Writes a record behind those before it. False if the disk is full: it is not there.
    pub fn persist(
        &mut self,
        now: Time,
        p: Pid,
        ticket: Ticket,
        record: &[u8],
        awaited: bool,
        chooser: &mut Chooser,
    ) -> bool {
        let file = &mut self.files[p.index()];
        if now < file.full_until {
            return false;
        }
        let number = file.next();
        (file.used, file.torn) = (true, false);
        file.records.push_back(record.to_vec());
        file.waiting.push_back(awaited.then_some(ticket));
        let at = if awaited {
            file.last = (now + self.model.sync.draw(chooser, Concern::Disk)).max(file.last);
            file.last
        } else {
            now + self.model.lazy.draw(chooser, Concern::Disk)
        };
        self.due.push(at, (p, file.life, number));
        true
    }

    /// The record of that number, if it is there and can be read.
    pub fn load(&self, p: Pid, number: u64) -> Option<&[u8]> {
        let file = &self.files[p.index()];
        if file.damaged.contains(&number) {
            return None;
        }
        let at = usize::try_from(number.checked_sub(file.first)?).ok()?;
        file.records.get(at).map(Vec::as_slice)
    }

    /// Forgets the records before `before` as far as they are durable, or only some of them: logs
    /// give up room in large pieces.
    pub fn trim(&mut self, p: Pid, before: u64, chooser: &mut Chooser) {
        let file = &mut self.files[p.index()];
        let most = before.saturating_sub(file.first).min(file.synced as u64);
        let kept = match chooser.pick(Concern::Disk, 1 + most.min(1)) {
            0 => 0,
            _ => chooser.spread(Concern::Disk, most + 1),
        };
        let gone = most - kept;
        file.records.drain(..gone as usize);
        file.first += gone;
        file.synced -= gone as usize;
        let first = file.first;
        file.damaged.retain(|&number| number >= first);
    }

    /// When a record is durable next; [`Time::NEVER`] if none will be.
    pub fn next(&self) -> Time {
        self.due.next()
    }

    /// Lets the next record be durable, and those before it.
    pub fn step(&mut self) {
        let Some((at, (p, life, number))) = self.due.pop() else { return };
        let file = &mut self.files[p.index()];
        if file.life != life {
            return;
        }
        if at < file.stalled_until {
            self.due.push(file.stalled_until, (p, life, number));
            return;
        }
        while file.first + file.synced as u64 <= number {
            let Some(ticket) = file.waiting.pop_front() else { return };
            file.synced += 1;
            self.durable.extend(ticket.map(|ticket| (p, ticket)));
        }
    }

    /// Takes out who has which record durable.
    pub fn take(&mut self) -> Option<(Pid, Ticket)> {
        self.durable.pop_front()
    }

    /// A process dies, and its machine lives: its log is as it was written.
    pub fn stop(&mut self, p: Pid) {
        self.files[p.index()].close();
    }

    /// The machine of a process fails: what was not durable is lost from some record on. So many of
    /// those records are lost, as far as there are so many; drawn if none. Gives how many.
    pub fn fail(&mut self, p: Pid, lost: Option<u64>, chooser: &mut Chooser) -> u64 {
        let file = &mut self.files[p.index()];
        file.close();
        let unsynced = (file.records.len() - file.synced) as u64;
        let drawn = |chooser: &mut Chooser| chooser.pick(Concern::Disk, unsynced + 1);
        let lost = lost.unwrap_or_else(|| drawn(chooser)).min(unsynced);
        file.records.truncate(file.records.len() - lost as usize);
        file.torn = file.used;
        let next = file.next();
        file.damaged.retain(|&number| number < next);
        lost
    }

    /// The disk of a process that is dead is replaced: its log is empty.
    pub fn replace(&mut self, p: Pid) {
        let file = &mut self.files[p.index()];
        let (life, used) = (file.life + 1, file.used);
        let (stalled_until, full_until) = (file.stalled_until, file.full_until);
        *file = SimFile { life, used, stalled_until, full_until, lost: true, ..SimFile::default() };
    }

    /// Whether the log of a process on its disk is gone, or a part of it: each start reports it until
    /// [`settle`](Self::settle).
    pub fn lost(&self, p: Pid) -> bool {
        self.files[p.index()].lost
    }

    /// A process has recovered what its log had, and has that on its disk.
    pub fn settle(&mut self, p: Pid) {
        self.files[p.index()].lost = false;
    }

    /// One of the durable records of a process cannot be read any more: so many in a million of them are
    /// before it. Gives its number, if there is one.
    pub fn damage(&mut self, p: Pid, ppm: u64) -> Option<u64> {
        let file = &mut self.files[p.index()];
        let before = (file.synced as u64).checked_sub(1)? * ppm.min(1_000_000) / 1_000_000;
        let number = file.first + before;
        file.damaged.push(number);
        Some(number)
    }

    /// Whether a record of a process cannot be read any more.
    pub fn is_damaged(&self, p: Pid) -> bool {
        !self.files[p.index()].damaged.is_empty()
    }

    /// Opens the log of a process that starts again: what is there is durable from here on. A damaged one
    /// is cut at the damage before, and is lost. Gives the records, in order, with their numbers.
    pub fn open(&mut self, p: Pid) -> impl ExactSizeIterator<Item = (u64, &[u8])> {
        let file = &mut self.files[p.index()];
        if let Some(number) = file.damaged.drain(..).min() {
            file.records.truncate((number - file.first) as usize);
            file.lost = true;
        }
        file.synced = file.records.len();
        let first = file.first;
        file.records.iter().enumerate().map(move |(i, record)| (first + i as u64, &**record))
    }

    /// Whether a process has ever written a record.
    pub fn used(&self, p: Pid) -> bool {
        self.files[p.index()].used
    }

    /// Whether the machine of a process failed since it wrote its last record: each start reports it
    /// until the process has written the records that follow from that.
    pub fn torn(&self, p: Pid) -> bool {
        self.files[p.index()].torn
    }

    /// Nothing becomes durable until then.
    pub fn stall(&mut self, p: Pid, until: Time) {
        let file = &mut self.files[p.index()];
        file.stalled_until = file.stalled_until.max(until);
    }

    /// Nothing can be written until then.
    pub fn fill(&mut self, p: Pid, until: Time) {
        let file = &mut self.files[p.index()];
        file.full_until = file.full_until.max(until);
    }

    /// Until when nothing can be written.
    pub fn full_until(&self, p: Pid) -> Time {
        self.files[p.index()].full_until
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;

    const P: Pid = Pid(0);

    fn written(records: u64, awaited: bool, chooser: &mut Chooser) -> SimDisk {
        let mut disk = SimDisk::new(1, DiskModel::constant(Span(5)));
        for i in 0..records {
            assert!(disk.persist(Time(i), P, Ticket(i), &[i as u8; 4], awaited, chooser));
        }
        disk
    }

    fn numbers(disk: &mut SimDisk) -> Vec<u64> {
        let good = |(number, record): (u64, &[u8])| {
            assert_eq!(record, [number as u8; 4]);
            number
        };
        disk.open(P).map(good).collect()
    }

    #[test]
    fn the_end_of_a_process_takes_nothing_and_that_of_its_machine_a_tail() {
        let mut lengths = BTreeSet::new();
        for seed in 0..200 {
            let mut chooser = Chooser::seeded(seed);
            let mut disk = written(6, true, &mut chooser);
            for i in 0..2 {
                disk.step();
                assert_eq!(disk.take(), Some((P, Ticket(i))));
            }
            disk.stop(P);
            assert!(!disk.torn(P));
            disk.fail(P, None, &mut chooser);
            assert!(disk.torn(P));
            let there = numbers(&mut disk);
            assert_eq!(there, (0..there.len() as u64).collect::<Vec<_>>());
            lengths.insert(there.len());
            disk.step();
            assert_eq!(disk.take(), None, "nobody waits any more");
            disk.fail(P, Some(9), &mut chooser);
            assert_eq!(numbers(&mut disk), there, "what was read once is durable");
            disk.stop(P);
            assert!(disk.torn(P), "nothing was written since");
            let next = there.len() as u64;
            assert!(disk.persist(Time(9), P, Ticket(next), &[next as u8; 4], true, &mut chooser));
            assert!(!disk.torn(P));
        }
        assert_eq!(lengths.into_iter().collect::<Vec<_>>(), [2, 3, 4, 5, 6]);
        let mut disk = written(6, true, &mut Chooser::seeded(1));
        disk.stop(P);
        assert_eq!(numbers(&mut disk).len(), 6);
    }

    #[test]
    fn an_awaited_record_makes_those_before_it_durable() {
        let mut chooser = Chooser::seeded(3);
        let mut disk = SimDisk::new(
            1,
            DiskModel { lazy: Delay::Constant(Span(90)), ..DiskModel::constant(Span(5)) },
        );
        for (i, awaited) in [false, true, false].into_iter().enumerate() {
            assert!(disk.persist(
                Time(0),
                P,
                Ticket(i as u64),
                &[i as u8; 4],
                awaited,
                &mut chooser
            ));
        }
        assert_eq!(disk.next(), Time(5));
        disk.step();
        assert_eq!((disk.take(), disk.take()), (Some((P, Ticket(1))), None));
        disk.fail(P, Some(9), &mut chooser);
        assert_eq!(numbers(&mut disk), [0, 1]);
    }

    #[test]
    fn a_new_disk_is_new_until_its_process_has_recovered() {
        let mut chooser = Chooser::seeded(3);
        let mut disk = written(3, true, &mut chooser);
        disk.stop(P);
        disk.replace(P);
        for lost in [1, 0] {
            assert!(numbers(&mut disk).is_empty() && disk.lost(P));
            assert!(disk.persist(Time(9), P, Ticket(0), &[0; 4], true, &mut chooser));
            disk.fail(P, Some(lost), &mut chooser);
        }
        assert_eq!(numbers(&mut disk), [0]);
        for (number, awaited) in [(1, false), (2, true)] {
            assert!(disk.persist(
                Time(9),
                P,
                Ticket(number),
                &[number as u8; 4],
                awaited,
                &mut chooser
            ));
            while disk.next() != Time::NEVER {
                disk.step();
            }
        }
        assert!(disk.lost(P), "whatever is durable");
        disk.settle(P);
        assert!(!disk.lost(P));
        disk.stop(P);
        assert_eq!(numbers(&mut disk), [0, 1, 2]);
    }

    #[test]
    fn a_damaged_record_cannot_be_read_and_the_log_is_cut_there() {
        let mut chooser = Chooser::seeded(3);
        let mut disk = written(4, true, &mut chooser);
        (0..3).for_each(|_| disk.step());
        assert_eq!(disk.damage(P, 500_000), Some(1));
        assert!(disk.is_damaged(P) && disk.load(P, 1).is_none());
        assert_eq!(disk.load(P, 2), Some(&[2; 4][..]));
        disk.stop(P);
        assert!(!disk.lost(P));
        assert_eq!(numbers(&mut disk), [0]);
        assert!(disk.lost(P) && !disk.is_damaged(P));
        disk.settle(P);
        assert_eq!((numbers(&mut disk), disk.lost(P)), (alloc::vec![0], false));
    }

    #[test]
    fn a_full_disk_refuses_and_a_stalled_one_waits() {
        let mut chooser = Chooser::seeded(3);
        let mut disk = written(1, true, &mut chooser);
        disk.stall(P, Time(70));
        disk.step();
        assert_eq!((disk.take(), disk.next()), (None, Time(70)));
        disk.step();
        assert_eq!(disk.take(), Some((P, Ticket(0))));
        disk.fill(P, Time(90));
        assert!(!disk.persist(Time(89), P, Ticket(1), &[1; 4], true, &mut chooser));
        assert!(disk.persist(Time(90), P, Ticket(1), &[1; 4], true, &mut chooser));
        assert_eq!(numbers(&mut disk), [0, 1]);
    }

    #[test]
    fn only_durable_records_are_trimmed_and_some_may_stay() {
        let mut firsts = BTreeSet::new();
        for seed in 0..100 {
            let mut chooser = Chooser::seeded(seed);
            let mut disk = written(4, false, &mut chooser);
            (0..3).for_each(|_| disk.step());
            disk.trim(P, 9, &mut chooser);
            let there = numbers(&mut disk);
            assert_eq!(there.last(), Some(&3));
            firsts.insert(there[0]);
            assert_eq!(disk.load(P, there[0].wrapping_sub(1)), None);
            assert_eq!(disk.load(P, 3), Some(&[3; 4][..]));
            disk.trim(P, 0, &mut chooser);
            assert_eq!(numbers(&mut disk), there);
        }
        assert_eq!(firsts.into_iter().collect::<Vec<_>>(), [0, 1, 2, 3]);
    }
}

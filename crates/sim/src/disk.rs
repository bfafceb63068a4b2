//! Disks: records that are durable some time after they were written, and damage at a crash.
//!
//! What was not durable at a crash may survive up to some record, and the first that does not may
//! be there in part. Records that were durable survive, but for rot, which a reader tells by its
//! own checksum.

use crate::chooser::{Chooser, Concern};
use crate::delay::Delay;
use crate::queue::Queue;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use amcast_core::step::Ticket;
use amcast_core::{Pid, Span, Time};

/// How these disks behave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DiskModel {
    /// From writing a record to its being durable.
    pub sync: Delay,
    /// Bytes that fit. A record that does not fit is never durable.
    pub bytes_max: u64,
    /// Chance in a million that the first record that a crash takes is there in part.
    pub torn_ppm: u64,
    /// Chance in a million, at a crash and for each record, that one of its bits turns.
    pub rot_ppm: u64,
}

impl DiskModel {
    /// A disk that takes this long, and never fails.
    pub const fn constant(sync: Span) -> Self {
        Self { sync: Delay::Constant(sync), bytes_max: u64::MAX, torn_ppm: 0, rot_ppm: 0 }
    }
}

/// The disks of all processes.
#[derive(Debug)]
pub struct Disk {
    model: DiskModel,
    files: Vec<File>,
    due: Queue<(Pid, u32)>,
    durable: VecDeque<(Pid, Ticket)>,
}

#[derive(Debug, Default)]
struct File {
    /// The number of the first record that is there.
    first: u64,
    records: VecDeque<Vec<u8>>,
    /// How many of the records are durable.
    synced: usize,
    /// The ticket of each that is not durable yet, if it is awaited.
    waiting: VecDeque<Option<Ticket>>,
    bytes: u64,
    last: Time,
    life: u32,
    refused: u64,
}

impl Disk {
    /// An empty disk for each of `processes` processes.
    pub fn new(processes: usize, model: DiskModel) -> Self {
        Self {
            model,
            files: (0..processes).map(|_| File::default()).collect(),
            due: Queue::default(),
            durable: VecDeque::new(),
        }
    }

    /// Writes a record behind those before it. False if the disk is full: it will not be durable.
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
        let bytes = file.bytes.saturating_add(record.len() as u64);
        if bytes > self.model.bytes_max {
            file.refused += 1;
            return false;
        }
        file.bytes = bytes;
        file.records.push_back(record.to_vec());
        file.waiting.push_back(awaited.then_some(ticket));
        file.last = (now + self.model.sync.draw(chooser, Concern::Disk)).max(file.last);
        self.due.push(file.last, (p, file.life));
        true
    }

    /// The record of that number, if it is there.
    pub fn load(&self, p: Pid, number: u64) -> Option<&[u8]> {
        let file = &self.files[p.index()];
        let at = usize::try_from(number.checked_sub(file.first)?).ok()?;
        file.records.get(at).map(Vec::as_slice)
    }

    /// Forgets the records before `before`, as far as they are durable.
    pub fn trim(&mut self, p: Pid, before: u64) {
        let file = &mut self.files[p.index()];
        while file.first < before && file.synced > 0 {
            let gone = file.records.pop_front().map_or(0, |record| record.len() as u64);
            (file.first, file.synced) = (file.first + 1, file.synced - 1);
            file.bytes -= gone;
        }
    }

    /// When a record is durable next; [`Time::NEVER`] if none will be.
    pub fn next(&self) -> Time {
        self.due.next()
    }

    /// Lets the next record be durable.
    pub fn step(&mut self) {
        let Some((_, (p, life))) = self.due.pop() else { return };
        let file = &mut self.files[p.index()];
        if file.life != life {
            return;
        }
        if let Some(ticket) = file.waiting.pop_front() {
            file.synced += 1;
            self.durable.extend(ticket.map(|ticket| (p, ticket)));
        }
    }

    /// Takes out who has which record durable.
    pub fn take(&mut self) -> Option<(Pid, Ticket)> {
        self.durable.pop_front()
    }

    /// A process dies: what was not durable is lost from some record on.
    pub fn crash(&mut self, p: Pid, chooser: &mut Chooser) {
        let file = &mut self.files[p.index()];
        file.life += 1;
        file.waiting.clear();
        let unsynced = (file.records.len() - file.synced) as u64;
        let lost = chooser.pick(Concern::Disk, unsynced + 1) as usize;
        let kept = file.records.len() - lost;
        let torn = lost > 0 && chooser.chance(Concern::Disk, self.model.torn_ppm);
        file.records.truncate(kept + usize::from(torn));
        if torn && let Some(record) = file.records.back_mut() {
            let cut = 1 + chooser.spread(Concern::Disk, record.len() as u64) as usize;
            record.truncate(record.len().saturating_sub(cut));
        }
        file.synced = file.records.len();
        file.last = Time::ZERO;
        for record in file.records.iter_mut().filter(|record| !record.is_empty()) {
            if chooser.chance(Concern::Disk, self.model.rot_ppm) {
                let bit = chooser.spread(Concern::Disk, record.len() as u64 * 8) as usize;
                record[bit / 8] ^= 1 << (bit % 8);
            }
        }
        file.bytes = file.records.iter().map(|record| record.len() as u64).sum();
    }

    /// The records that are there, in order, with their numbers: after a crash, those that survived.
    pub fn records(&self, p: Pid) -> impl ExactSizeIterator<Item = (u64, &[u8])> {
        let File { first, records, .. } = &self.files[p.index()];
        records.iter().enumerate().map(move |(i, record)| (first + i as u64, record.as_slice()))
    }

    /// How many records did not fit.
    pub fn refused(&self, p: Pid) -> u64 {
        self.files[p.index()].refused
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const P: Pid = Pid(0);

    fn written(records: u64, synced: usize, model: DiskModel, chooser: &mut Chooser) -> Disk {
        let mut disk = Disk::new(1, model);
        for i in 0..records {
            assert!(disk.persist(Time(i), P, Ticket(i), &[i as u8; 4], true, chooser));
        }
        for i in 0..synced as u64 {
            disk.step();
            assert_eq!(disk.take(), Some((P, Ticket(i))));
        }
        disk
    }

    #[test]
    fn a_crash_takes_a_tail_of_what_was_not_durable() {
        let model = DiskModel { torn_ppm: 500_000, ..DiskModel::constant(Span(5)) };
        let mut lengths = alloc::collections::BTreeSet::new();
        let mut torn = 0;
        for seed in 0..200 {
            let mut chooser = Chooser::seeded(seed);
            let mut disk = written(6, 2, model, &mut chooser);
            disk.crash(P, &mut chooser);
            let records = disk.records(P);
            lengths.insert(records.len());
            assert!(records.len() >= 2, "durable records survive");
            let count = records.len();
            for (i, record) in records {
                let (i, last) = (i as usize, i as usize + 1 == count);
                torn += u32::from(record.len() < 4);
                assert!(record.len() == 4 || last && i >= 2);
            }
            disk.step();
            assert_eq!(disk.take(), None, "nothing lost becomes durable");
        }
        assert_eq!(lengths.into_iter().collect::<Vec<_>>(), [2, 3, 4, 5, 6]);
        assert!(torn > 10);
    }

    #[test]
    fn rot_turns_a_bit_and_a_full_disk_refuses() {
        let mut chooser = Chooser::seeded(3);
        let model = DiskModel { rot_ppm: 1_000_000, bytes_max: 8, ..DiskModel::constant(Span(5)) };
        let mut disk = written(2, 2, model, &mut chooser);
        assert!(!disk.persist(Time(9), P, Ticket(9), &[0], true, &mut chooser));
        assert_eq!(disk.refused(P), 1);
        disk.crash(P, &mut chooser);
        let turned: u32 = disk.load(P, 0).into_iter().flatten().map(|byte| byte.count_ones()).sum();
        assert_eq!(turned, 1);
    }
}

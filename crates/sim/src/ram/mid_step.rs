//! Changes of a process's memory in the middle of one of its steps.
//!
//! A step takes no simulated time, but in a real memory other processes store and read while it runs.
//! So some of the stores into its regions, and some of the reads of them, that are due within
//! [`RamModel::midst`] happen while the step runs: whenever the protocol borrows one of its regions
//! from its [`RegionWindow`](amcast_core::memory::RegionWindow). Each of these is a legal instant for an
//! asynchronous access, and the protocol's own stores appear to the reads up to that instant.
//!
//! ```text
//! step      region(log)      region(log)        region(row)      outputs are posted
//!               |   loads, stores  |   loads, stores |   loads, stores
//! others  ------+------------------+-----------------+-------> stores and reads by others
//! ```
//!
//! Between two borrows a step stays atomic.

use super::{MemoryOccurrence, Ram, RawLine, RegionId};
use crate::chooser::{Chooser, Concern};
use alloc::vec::Vec;
use amcast_core::memory::{CacheLine, HeapRegions, Regions};
use amcast_core::{Pid, Time};
use core::cell::{Cell, RefCell};
use core::sync::atomic::Ordering;

/// The first thing happens when the step has borrowed at most so many regions.
const BORROWS_MAX: u64 = 24;

/// At most so many words of others appear between two borrows, if not all appear at once.
const WORDS_MAX: u64 = 24;

/// The changes in the middle of a step.
#[derive(Debug)]
pub(crate) struct MidStep {
    /// Regions that were borrowed so far.
    borrows: Cell<u64>,
    /// Nothing happens before so many borrows.
    first: u64,
    /// How many words appear at each borrow from then on.
    pace: usize,
    stores: Vec<ForeignStore>,
    /// How many of the stores have happened.
    stored: Cell<usize>,
    looks: Vec<ReadView>,
}

/// A word that another process stores.
#[derive(Clone, Copy, Debug)]
struct ForeignStore {
    write: usize,
    region: RegionId,
    line: u32,
    /// Its place among the words of its write.
    word: u32,
    value: u64,
}

/// The first lines of a read, as another process finds them.
#[derive(Debug)]
struct ReadView {
    read: usize,
    region: RegionId,
    at: u32,
    count: u32,
    lines: RefCell<Option<Vec<RawLine>>>,
}

/// The regions of a process while it runs.
#[derive(Debug)]
pub(crate) struct LentRegions<'a> {
    pub(super) lines: &'a HeapRegions,
    pub(super) midst: &'a MidStep,
}

impl Regions for LentRegions<'_> {
    fn lines(&self, region: RegionId) -> &[CacheLine] {
        self.midst.borrow(self.lines);
        self.lines.lines(region)
    }
}

impl MidStep {
    fn borrow(&self, lines: &HeapRegions) {
        let borrows = self.borrows.get();
        self.borrows.set(borrows + 1);
        if borrows < self.first {
            return;
        }
        let done = self.stored.get();
        let upto = self.stores.len().min(done.saturating_add(self.pace));
        for store in &self.stores[done..upto] {
            let word = store.word % super::flight::STRIDE;
            let line = &lines.lines(store.region)[store.line as usize];
            line.raw(word as usize).store(store.value, Ordering::Relaxed);
        }
        self.stored.set(upto);
        for look in &self.looks {
            look.lines.borrow_mut().get_or_insert_with(|| {
                let from = look.at as usize;
                let found = &lines.lines(look.region)[from..from + look.count as usize];
                let raw = |line: &CacheLine| {
                    core::array::from_fn(|word| line.raw(word).load(Ordering::Relaxed))
                };
                found.iter().map(raw).collect()
            });
        }
    }
}

impl Ram {
    /// Draws what happens to the memory of `owner` in the middle of the step that it takes now.
    pub(crate) fn midst(&self, now: Time, owner: Pid, chooser: &mut Chooser) -> Option<MidStep> {
        if !chooser.chance(Concern::Ram, self.model.midst_ppm) {
            return None;
        }
        let soon = now + self.model.midst;
        let mut stores = self.stores_due(owner, soon);
        let mut looks = self.looks_due(owner, soon);
        if stores.is_empty() && looks.is_empty() {
            return None;
        }
        let part = chooser.spread(Concern::Ram, stores.len() as u64) as usize;
        stores.truncate(stores.len() - part);
        for look in &mut looks {
            look.count -= chooser.spread(Concern::Ram, u64::from(look.count)) as u32;
        }
        let first = chooser.spread(Concern::Ram, BORROWS_MAX);
        let pace = match chooser.pick(Concern::Ram, 2) {
            0 => usize::MAX,
            _ => 1 + chooser.spread(Concern::Ram, WORDS_MAX) as usize,
        };
        let (borrows, stored) = (Cell::new(0), Cell::new(0));
        Some(MidStep { borrows, first, pace, stores, stored, looks })
    }

    /// The regions of a process that takes a step meanwhile.
    pub(crate) fn shared<'a>(&'a self, owner: Pid, midst: &'a MidStep) -> LentRegions<'a> {
        LentRegions { lines: &self.processes[owner.index()].lines, midst }
    }

    /// Words that others store into the memory of `owner` by `soon`, in an order that the laws allow.
    fn stores_due(&self, owner: Pid, soon: Time) -> Vec<ForeignStore> {
        let process = &self.processes[owner.index()];
        let mut writes: Vec<_> =
            self.writes.iter().filter(|(_, w)| w.reaches(owner, process.life, soon)).collect();
        writes.sort_unstable_by_key(|(_, w)| w.rank());
        let mut stores = Vec::new();
        // A write that cannot appear now holds back those behind it.
        let mut shut = Vec::new();
        for (write, flight) in writes {
            let (writer, region) = flight.lane();
            let spec = &process.specs[usize::from(region.0)];
            let gate = process.gates[usize::from(region.0)];
            // Writes that were denied before and land all the same are let in by nobody.
            let open = gate.allowed || !spec.guarded;
            let waits = flight.asks() && (!open || soon < gate.floor);
            if writer == owner || waits || shut.contains(&writer) {
                shut.push(writer);
                continue;
            }
            for (line, word) in flight.words_left() {
                let value = self.source_word(flight, word);
                stores.push(ForeignStore { write, region, line, word, value });
            }
        }
        stores
    }

    /// Reads of the memory of `owner` that look at it by `soon`.
    fn looks_due(&self, owner: Pid, soon: Time) -> Vec<ReadView> {
        let life = self.processes[owner.index()].life;
        let due = self.reads.iter().filter(|(_, r)| r.looks(owner, life, soon));
        due.map(|(read, flight)| {
            let (region, at, count) = flight.place();
            ReadView { read, region, at, count, lines: RefCell::new(None) }
        })
        .collect()
    }

    /// The step is over: what happened in its middle does not happen again.
    pub(crate) fn after_midst(&mut self, owner: Pid, midst: MidStep) {
        let stored = midst.stored.get();
        for (i, store) in midst.stores[..stored].iter().enumerate() {
            let last = midst.stores[..stored].get(i + 1).is_none_or(|n| n.write != store.write);
            if last {
                let bell = self.writes[store.write].has_stored(store.word + 1);
                self.happened.push_back(MemoryOccurrence::Changed { owner, bell });
                self.appears(store.write);
            }
        }
        for look in midst.looks {
            if let Some(lines) = look.lines.into_inner() {
                self.reads[look.read].has_looked(lines);
            }
        }
    }
}

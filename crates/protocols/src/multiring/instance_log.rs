//! The instance log of a ring: for each instance the value that was accepted or learned last.

use super::value::{InstanceEntry, InstanceValue, RingBallot};
use alloc::collections::BTreeMap;

/// The record number of a value that is held in memory alone.
pub(super) const NO_RECORD: u64 = u64::MAX;

/// The values of a ring's instances, from a floor on. Above it there may be gaps.
#[derive(Clone, Debug, Default)]
pub(super) struct InstanceLog {
    /// By first instance; never overlapping.
    slots: BTreeMap<u64, InstanceSlot>,
    /// Bytes of the values that are in memory.
    cached: usize,
    /// Instances below were trimmed.
    floor: u64,
    /// Eviction has looked at the values below this instance.
    evicted_to: u64,
}

/// The value of an instance, or of several.
#[derive(Clone, Debug)]
pub(super) struct InstanceSlot {
    pub(super) ballot: RingBallot,
    pub(super) instances: u64,
    /// None while it is only on disk.
    pub(super) value: Option<InstanceValue>,
    /// The log record that holds it.
    pub(super) record: u64,
}

impl InstanceLog {
    /// The first instance that was not trimmed.
    pub(super) const fn floor(&self) -> u64 {
        self.floor
    }

    /// Bytes of values in memory.
    #[cfg(test)]
    pub(super) const fn cached(&self) -> usize {
        self.cached
    }

    /// The instance behind the last one that is held.
    pub(super) fn end(&self) -> u64 {
        let last = self.slots.last_key_value();
        last.map_or(self.floor, |(first, slot)| first + slot.instances)
    }

    /// The slot that holds `instance`, and its first instance.
    pub(super) fn at(&self, instance: u64) -> Option<(u64, &InstanceSlot)> {
        let (&first, slot) = self.slots.range(..=instance).next_back()?;
        (instance < first + slot.instances).then_some((first, slot))
    }

    /// The entry that holds `instance`, shortened to begin there, if it is in memory.
    pub(super) fn entry(&self, instance: u64) -> Option<InstanceEntry> {
        let (first, slot) = self.at(instance)?;
        let value = match slot.value.as_ref()? {
            InstanceValue::Skip(count) => InstanceValue::Skip(count - (instance - first)),
            batch @ InstanceValue::Batch(_) => batch.clone(),
        };
        Some(InstanceEntry { first: instance, ballot: slot.ballot, value })
    }

    /// The first instance from `from` on whose value is in memory; the end of the log if there is none.
    pub(super) fn in_memory_from(&self, from: u64) -> u64 {
        let mut slots = self.from(from);
        let first = slots.find(|(_, slot)| slot.value.is_some());
        first.map_or_else(|| self.end(), |(first, _)| first.max(from))
    }

    /// Whether a value is held for each instance from the floor to the end.
    pub(super) fn is_contiguous(&self) -> bool {
        let mut at = self.floor;
        self.from(at).all(|(first, slot)| {
            let follows = first <= at;
            at = first + slot.instances;
            follows
        })
    }

    /// The slots from the one that holds `instance`, or the next one, on.
    pub(super) fn from(&self, instance: u64) -> impl Iterator<Item = (u64, &InstanceSlot)> {
        let begin = self.at(instance).map_or(instance, |(first, _)| first);
        self.slots.range(begin..).map(|(first, slot)| (*first, slot))
    }

    /// Replaces the entries of its instances with this one.
    pub(super) fn put(&mut self, entry: InstanceEntry, record: u64) {
        let end = entry.end();
        if end <= self.floor {
            return;
        }
        self.clear(entry.first, end);
        self.cached += entry.value.size();
        self.evicted_to = self.evicted_to.min(entry.first);
        let InstanceEntry { first, ballot, value } = entry;
        let slot =
            InstanceSlot { ballot, instances: value.instances(), value: Some(value), record };
        self.slots.insert(first, slot);
    }

    /// Removes the instances from `first` to before `end`. Only skips take several instances, so only they
    /// are ever split.
    fn clear(&mut self, first: u64, end: u64) {
        while let Some((&at, slot)) = self.slots.range(..end).next_back() {
            let ends = at + slot.instances;
            let ballot = slot.ballot;
            let record = slot.record;
            if ends <= first {
                return;
            }
            self.remove(at);
            for (from, upto) in [(at, first), (end, ends)] {
                if from < upto {
                    let value = InstanceValue::Skip(upto - from);
                    self.cached += value.size();
                    let (instances, value) = (upto - from, Some(value));
                    self.slots.insert(from, InstanceSlot { ballot, instances, value, record });
                }
            }
        }
    }

    fn remove(&mut self, first: u64) {
        if let Some(slot) = self.slots.remove(&first) {
            self.cached -= slot.value.as_ref().map_or(0, InstanceValue::size);
        }
    }

    /// Puts back a value that was read from disk again, if the slot is still the same.
    pub(super) fn fill(&mut self, first: u64, record: u64, value: InstanceValue) {
        if let Some(slot) = self.slots.get_mut(&first)
            && slot.record == record
            && slot.value.is_none()
            && slot.instances == value.instances()
        {
            self.cached += value.size();
            slot.value = Some(value);
            self.evicted_to = self.evicted_to.min(first);
        }
    }

    /// Evicts values below `below` that are on disk, the oldest first, until no more than `most` bytes are
    /// in memory.
    pub(super) fn evict(&mut self, below: u64, most: usize) {
        if self.cached <= most || self.evicted_to >= below {
            return;
        }
        for (first, slot) in self.slots.range_mut(self.evicted_to..below) {
            if self.cached <= most {
                return;
            }
            self.evicted_to = first + 1;
            let size = slot.value.as_ref().map_or(0, InstanceValue::size);
            if slot.record != NO_RECORD && matches!(slot.value, Some(InstanceValue::Batch(_))) {
                self.cached -= size;
                slot.value = None;
            }
        }
        self.evicted_to = below;
    }

    /// Takes out everything from `from` on.
    pub(super) fn cut_off(&mut self, from: u64) {
        self.clear(from, u64::MAX);
    }

    /// Forgets the instances below `floor`.
    pub(super) fn trim(&mut self, floor: u64) {
        if floor <= self.floor {
            return;
        }
        self.clear(0, floor);
        self.floor = floor;
    }

    /// Trims below `floor`, but keeps the values for a member that has learned no more than the instances below
    /// `learned`. Of these the oldest are trimmed while more than `most` bytes are in memory.
    pub(super) fn trim_for(&mut self, floor: u64, learned: u64, most: usize) {
        self.trim(floor.min(learned));
        while self.floor < floor && self.cached > most {
            let first = self.slots.first_key_value();
            let end = first.map_or(floor, |(first, slot)| first + slot.instances);
            self.trim(end.min(floor));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::shared_bytes::SharedBytes;
    use super::*;
    use alloc::vec::Vec;
    use amcast_core::Pid;
    use amcast_core::rng::Rng;

    #[test]
    fn values_that_a_member_has_not_learned_stay_as_long_as_there_is_room() {
        let ballot = RingBallot::new(1, Pid(0));
        let value = |n: u64| match n % 4 {
            3 => InstanceValue::Skip(5),
            _ => InstanceValue::Batch(SharedBytes::from(&[7; 100][..])),
        };
        let mut log = InstanceLog::default();
        let mut firsts = Vec::new();
        for n in 0..40 {
            let first = log.end();
            firsts.push(first);
            log.put(InstanceEntry { first, ballot, value: value(n) }, NO_RECORD);
        }
        let all = log.cached();
        // All values that it has not learned have room.
        log.trim_for(firsts[20], firsts[8], all);
        assert_eq!(log.floor(), firsts[8]);
        // It has no room: the oldest values go, and none that is not applied yet.
        let most = log.cached() - 250;
        log.trim_for(firsts[20], firsts[8], most);
        assert!(log.floor() > firsts[8] && log.floor() <= firsts[12], "{}", log.floor());
        assert!(log.cached() <= most && log.cached() + 250 > most, "{}", log.cached());
        assert_eq!(log.entry(firsts[12]).map(|entry| entry.first), Some(firsts[12]));
        log.trim_for(firsts[20], 0, 0);
        assert_eq!(log.floor(), firsts[20]);
        // Every member has learned all.
        log.trim_for(firsts[30] + 1, u64::MAX, all);
        assert_eq!(log.floor(), firsts[30] + 1);
        log.trim_for(log.end() + 9, log.end() + 9, 0);
        assert_eq!(log.cached(), 0);
    }

    fn skip(first: u64, count: u64, round: u32) -> InstanceEntry {
        InstanceEntry {
            first,
            ballot: RingBallot::new(round, Pid(0)),
            value: InstanceValue::Skip(count),
        }
    }

    fn batch(first: u64, round: u32) -> InstanceEntry {
        let value = InstanceValue::Batch(SharedBytes::from(&[0_u8; 100][..]));
        InstanceEntry { first, ballot: RingBallot::new(round, Pid(0)), value }
    }

    /// The rounds of the instances, 0 where there is nothing.
    fn rounds(log: &InstanceLog, upto: u64) -> Vec<u32> {
        (0..upto).map(|i| log.at(i).map_or(0, |(_, slot)| slot.ballot.round)).collect()
    }

    #[test]
    fn the_last_entry_put_holds_and_the_others_stay() {
        let mut rng = Rng::stream(7, "book");
        for _ in 0..500 {
            let (mut log, mut slow) = (InstanceLog::default(), [0_u32; 24]);
            for round in 1..12 {
                let first = rng.below(20);
                let count = 1 + rng.below(24 - first);
                let entry =
                    if rng.below(2) == 0 { batch(first, round) } else { skip(first, count, round) };
                slow[first as usize..entry.end() as usize].fill(round);
                log.put(entry, u64::from(round));
                assert_eq!(rounds(&log, 24), slow);
            }
            let size: usize =
                log.from(0).filter_map(|(_, s)| s.value.as_ref()).map(InstanceValue::size).sum();
            assert_eq!(log.cached(), size);
            let floor = rng.below(24);
            log.trim(floor);
            slow[..floor as usize].fill(0);
            assert_eq!(rounds(&log, 24), slow);
            assert!(log.end() >= floor);
        }
    }

    #[test]
    fn old_values_leave_memory_and_come_back() {
        let mut log = InstanceLog::default();
        (0..10).for_each(|i| log.put(batch(i, 1), i));
        log.evict(8, 350);
        assert_eq!(log.cached(), 300);
        assert!(log.entry(6).is_none() && log.entry(7).is_some());
        assert_eq!(log.at(3).map(|(first, slot)| (first, slot.record)), Some((3, 3)));
        log.fill(3, 4, InstanceValue::Batch(SharedBytes::from(&[1_u8; 100][..])));
        assert!(log.entry(3).is_none(), "another record");
        log.fill(3, 3, InstanceValue::Batch(SharedBytes::from(&[0_u8; 100][..])));
        assert_eq!(log.entry(3), Some(batch(3, 1)));
        log.evict(8, 350);
        assert!(log.entry(3).is_none());
    }

    #[test]
    fn a_gap_is_found_wherever_it_is() {
        let log = |entries: &[InstanceEntry], floor| {
            let mut log = InstanceLog::default();
            entries.iter().for_each(|entry| log.put(entry.clone(), NO_RECORD));
            log.trim(floor);
            log.is_contiguous()
        };
        assert!(log(&[], 0) && log(&[], 7));
        let (whole, gap) = ([skip(0, 4, 1), batch(4, 1)], [skip(0, 4, 1), batch(5, 1)]);
        assert!([0, 2, 4, 9].into_iter().all(|floor| log(&whole, floor)));
        assert!(log(&gap, 5) && [0, 2, 4].into_iter().all(|floor| !log(&gap, floor)));
        assert!(!log(&gap[1..], 0), "at its beginning");
    }

    #[test]
    fn an_entry_is_cut_to_where_it_is_asked_for() {
        let mut log = InstanceLog::default();
        log.put(skip(2, 8, 1), NO_RECORD);
        assert_eq!(log.entry(5), Some(skip(5, 5, 1)));
        assert!(log.entry(1).is_none() && log.entry(10).is_none());
    }
}

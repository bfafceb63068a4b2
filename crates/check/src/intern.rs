//! Strings and message ids as dense numbers, so that ten million deliveries fit in memory and every
//! algorithm works on arrays.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

/// No such number: "not there" in arrays of numbers.
pub(crate) const NONE: u32 = u32::MAX;

/// An open-addressing table from hashes to numbers. The keys live elsewhere: the caller compares.
#[derive(Clone, Debug)]
struct HashIndex {
    /// The number plus one; 0 is a free slot. The length is a power of two.
    slots: Vec<u32>,
    used: usize,
}

impl HashIndex {
    fn new() -> Self {
        Self { slots: vec![0; 64], used: 0 }
    }

    /// The number with this hash for which `same` holds.
    fn find(&self, hash: u64, same: impl Fn(u32) -> bool) -> Option<u32> {
        let mask = self.slots.len() - 1;
        let mut at = hash as usize & mask;
        loop {
            match self.slots[at] {
                0 => return None,
                n if same(n - 1) => return Some(n - 1),
                _ => at = (at + 1) & mask,
            }
        }
    }

    /// Adds `number`, which is not in the table; `hash_of` gives the hashes of those in it.
    fn add(&mut self, hash: u64, number: u32, hash_of: impl Fn(u32) -> u64) {
        if (self.used + 1) * 2 > self.slots.len() {
            let wider = vec![0; self.slots.len() * 2];
            for n in core::mem::replace(&mut self.slots, wider) {
                if n != 0 {
                    self.place(hash_of(n - 1), n);
                }
            }
        }
        self.place(hash, number + 1);
        self.used += 1;
    }

    fn place(&mut self, hash: u64, stored: u32) {
        let mask = self.slots.len() - 1;
        let mut at = hash as usize & mask;
        while self.slots[at] != 0 {
            at = (at + 1) & mask;
        }
        self.slots[at] = stored;
    }
}

/// Spreads a word over all 64 bits (the finisher of `splitmix64`).
pub(crate) const fn mix(word: u64) -> u64 {
    let mut z = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A hash of bytes, eight at a time. Not against an adversary: a history is our own recording.
pub(crate) fn hash_bytes(bytes: &[u8]) -> u64 {
    let mut hash = bytes.len() as u64;
    for chunk in bytes.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        hash = mix(hash ^ u64::from_le_bytes(word));
    }
    hash
}

/// Strings by number.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    text: String,
    ends: Vec<usize>,
    table: HashIndex,
}

impl Names {
    pub(crate) fn new() -> Self {
        Self { text: String::new(), ends: Vec::new(), table: HashIndex::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The string of `number`; empty if there is none.
    pub(crate) fn get(&self, number: u32) -> &str {
        let n = number as usize;
        let Some(&end) = self.ends.get(n) else { return "" };
        &self.text[if n == 0 { 0 } else { self.ends[n - 1] }..end]
    }

    pub(crate) fn find(&self, name: &str) -> Option<u32> {
        self.table.find(hash_bytes(name.as_bytes()), |n| self.get(n) == name)
    }

    /// The number of `name`, a new one if it has none; nothing when numbers ran out.
    pub(crate) fn intern(&mut self, name: &str) -> Option<u32> {
        let hash = hash_bytes(name.as_bytes());
        if let Some(n) = self.table.find(hash, |n| self.get(n) == name) {
            return Some(n);
        }
        let number = u32::try_from(self.ends.len()).ok().filter(|&n| n < NONE - 1)?;
        self.text.push_str(name);
        self.ends.push(self.text.len());
        let (text, ends) = (&self.text, &self.ends);
        self.table.add(hash, number, |n| {
            let from = if n == 0 { 0 } else { ends[n as usize - 1] };
            hash_bytes(&text.as_bytes()[from..ends[n as usize]])
        });
        Some(number)
    }
}

/// A message's name: `sender:sequence` as two numbers, or any other text as a name alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MsgKey {
    /// The number of the sender's name, or of the whole text.
    pub(crate) name: u32,
    /// The sequence, or [`MsgKey::PLAIN`].
    pub(crate) seq: u64,
}

impl MsgKey {
    /// Means "no sequence: the name is the whole text".
    pub(crate) const PLAIN: u64 = u64::MAX;

    /// Eight successive messages of a sender share a stretch of the table, hence a cache line: runs
    /// deliver what was sent together nearly together.
    fn hash(self) -> u64 {
        let block = mix(u64::from(self.name).rotate_left(40) ^ (self.seq >> 3));
        block << 3 | self.seq & 7
    }
}

/// Messages by number.
#[derive(Clone, Debug)]
pub(crate) struct MessageTable {
    keys: Vec<MsgKey>,
    table: HashIndex,
}

impl MessageTable {
    pub(crate) fn new() -> Self {
        Self { keys: Vec::new(), table: HashIndex::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    pub(crate) fn key(&self, m: u32) -> MsgKey {
        self.keys[m as usize]
    }

    pub(crate) fn find(&self, key: MsgKey) -> Option<u32> {
        self.table.find(key.hash(), |n| self.keys[n as usize] == key)
    }

    /// The number of the message and whether it is new; nothing when numbers ran out.
    pub(crate) fn intern(&mut self, key: MsgKey) -> Option<(u32, bool)> {
        if let Some(n) = self.find(key) {
            return Some((n, false));
        }
        // The top bit of a number marks a cast in the processes' logs.
        let number = u32::try_from(self.keys.len()).ok().filter(|&n| n < 1 << 31)?;
        self.keys.push(key);
        let keys = &self.keys;
        self.table.add(key.hash(), number, |n| keys[n as usize].hash());
        Some((number, true))
    }
}

/// Sets of groups by number: the destinations of messages, of which there are few different ones.
#[derive(Clone, Debug)]
pub(crate) struct GroupSets {
    groups: Vec<u32>,
    ends: Vec<usize>,
    table: HashIndex,
}

impl GroupSets {
    pub(crate) fn new() -> Self {
        Self { groups: Vec::new(), ends: Vec::new(), table: HashIndex::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The groups of set `number`, ascending.
    pub(crate) fn get(&self, number: u32) -> &[u32] {
        Self::slice(&self.groups, &self.ends, number)
    }

    fn slice<'a>(groups: &'a [u32], ends: &[usize], number: u32) -> &'a [u32] {
        let n = number as usize;
        &groups[if n == 0 { 0 } else { ends[n - 1] }..ends[n]]
    }

    /// The number of the set of `groups`, which must be ascending.
    pub(crate) fn intern(&mut self, groups: &[u32]) -> Option<u32> {
        let hash_of = |set: &[u32]| set.iter().fold(7, |h, &g| mix(h ^ u64::from(g)));
        let hash = hash_of(groups);
        if let Some(n) = self.table.find(hash, |n| self.get(n) == groups) {
            return Some(n);
        }
        let number = u32::try_from(self.ends.len()).ok().filter(|&n| n < NONE - 1)?;
        self.groups.extend_from_slice(groups);
        self.ends.push(self.groups.len());
        let (all, ends) = (&self.groups, &self.ends);
        self.table.add(hash, number, |n| hash_of(Self::slice(all, ends, n)));
        Some(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    #[test]
    fn numbers_are_dense_and_names_read_back() {
        let mut names = Names::new();
        for i in 0..1000 {
            assert_eq!(names.intern(&format!("g{}/r{}", i / 3, i % 3)), Some(i));
        }
        assert_eq!((names.intern("g5/r1"), names.get(16), names.len()), (Some(16), "g5/r1", 1000));
        assert_eq!(names.find("nobody"), None);
        assert_eq!(names.get(5000), "");
    }

    #[test]
    fn messages_and_sets_are_told_apart() {
        let mut messages = MessageTable::new();
        for i in 0..5000_u32 {
            let key = MsgKey { name: i % 7, seq: u64::from(i / 7) };
            assert_eq!(messages.intern(key), Some((i, true)));
        }
        assert_eq!(messages.intern(MsgKey { name: 3, seq: 0 }), Some((3, false)));
        let mut sets = GroupSets::new();
        assert_eq!(
            (sets.intern(&[0, 2]), sets.intern(&[2]), sets.intern(&[])),
            (Some(0), Some(1), Some(2))
        );
        assert_eq!((sets.intern(&[0, 2]), sets.get(0)), (Some(0), &[0, 2][..]));
    }
}

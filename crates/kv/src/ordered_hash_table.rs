//! A hash table that is walked in the order of its hashes.
//!
//! The top bits of a hash choose a segment, which holds its entries sorted by hash: so all segments, one after the
//! other, are in order. Where an entry is in its segment follows from the other bits, about, since hashes are uniform.
//!
//! The table doubles its segments, or halves them, by incremental rehashing: each insertion and each removal splits
//! one segment, or merges two, in the order of hashes, so that no operation takes long. Hashes below a boundary are in
//! the segments of the next size then, and all others in those of the current size.
//!
//! Hashes that are not uniform crowd in few segments, each of which becomes a tree: finding an entry takes as long as
//! the logarithm of their number then.

use super::walk::OrderedMap;
use std::collections::{BTreeMap, btree_map};
use std::fmt;
use std::hint::black_box;
use std::ops::Bound::{Excluded, Included, Unbounded};
use std::slice;

/// More entries than this for each segment, on average, have the table double its segments.
const LOAD_MAX: usize = 32;

/// Fewer entries than this for each segment, on average, have the table halve its segments.
const LOAD_MIN: usize = 4;

/// A segment of more entries is a tree. Uniform hashes never fill one as far as that.
const SORTED_MAX: usize = 8 * LOAD_MAX;

/// A tree of so few entries becomes sorted entries again.
const TREE_MIN: usize = SORTED_MAX / 2;

/// Room that a segment has for more entries once it is full: little, since it is there in every segment.
const ROOM: usize = 4;

/// A hash, and what belongs to it: elsewhere, so that hashes are close together and entries stay where they are.
type HashedEntry<V> = (u64, Box<V>);

/// The entries whose hashes begin with the same bits.
enum Segment<V> {
    /// In the order of hashes.
    Sorted(Vec<HashedEntry<V>>),
    /// More than can be uniform hashes; boxed, so that a segment takes no more than its sorted entries need.
    #[expect(clippy::box_collection, reason = "in line it would make all other segments larger")]
    Tree(Box<BTreeMap<u64, Box<V>>>),
}

impl<V> Default for Segment<V> {
    fn default() -> Self {
        Self::Sorted(Vec::new())
    }
}

/// About where `hash` is among `len` hashes in a segment of those with the same `bits` first ones.
const fn guess(len: usize, hash: u64, bits: u32) -> usize {
    (((hash << bits) as u128 * len as u128) >> 64) as usize
}

/// Where `hash` is among the pairs of a segment of hashes with the same `bits` first ones, or would be.
fn search<V>(pairs: &[HashedEntry<V>], hash: u64, bits: u32) -> Result<usize, usize> {
    let mut at = guess(pairs.len(), hash, bits);
    while at < pairs.len() && pairs[at].0 < hash {
        at += 1;
    }
    while at > 0 && pairs[at - 1].0 >= hash {
        at -= 1;
    }
    if pairs.get(at).is_some_and(|pair| pair.0 == hash) { Ok(at) } else { Err(at) }
}

impl<V> Segment<V> {
    fn len(&self) -> usize {
        match self {
            Self::Sorted(pairs) => pairs.len(),
            Self::Tree(tree) => tree.len(),
        }
    }

    fn get(&self, hash: u64, bits: u32) -> Option<&V> {
        match self {
            Self::Sorted(pairs) => search(pairs, hash, bits).ok().map(|at| &*pairs[at].1),
            Self::Tree(tree) => tree.get(&hash).map(|value| &**value),
        }
    }

    fn get_mut(&mut self, hash: u64, bits: u32) -> Option<&mut V> {
        match self {
            Self::Sorted(pairs) => search(pairs, hash, bits).ok().map(|at| &mut *pairs[at].1),
            Self::Tree(tree) => tree.get_mut(&hash).map(|value| &mut **value),
        }
    }

    fn insert(&mut self, hash: u64, value: V, bits: u32) -> Option<V> {
        let pairs = match self {
            Self::Sorted(pairs) => pairs,
            Self::Tree(tree) => return tree.insert(hash, Box::new(value)).map(|was| *was),
        };
        let at = match search(pairs, hash, bits) {
            Ok(at) => return Some(std::mem::replace(&mut *pairs[at].1, value)),
            Err(at) => at,
        };
        if pairs.len() == pairs.capacity() {
            pairs.reserve_exact(ROOM);
        }
        pairs.insert(at, (hash, Box::new(value)));
        if pairs.len() > SORTED_MAX {
            let pairs = std::mem::take(pairs);
            *self = Self::Tree(Box::new(pairs.into_iter().collect()));
        }
        None
    }

    fn remove(&mut self, hash: u64, bits: u32) -> Option<V> {
        match self {
            Self::Sorted(pairs) => {
                let at = search(pairs, hash, bits).ok()?;
                let (_, value) = pairs.remove(at);
                if pairs.capacity() > pairs.len() + 3 * ROOM {
                    pairs.shrink_to(pairs.len() + ROOM);
                }
                Some(*value)
            }
            Self::Tree(tree) => {
                let value = tree.remove(&hash)?;
                if tree.len() <= TREE_MIN {
                    *self = Self::of_tree(std::mem::take(tree));
                }
                Some(*value)
            }
        }
    }

    /// A segment of these entries, sorted if they are few.
    fn of_tree(tree: BTreeMap<u64, Box<V>>) -> Self {
        if tree.len() > TREE_MIN {
            return Self::Tree(Box::new(tree));
        }
        Self::Sorted(tree.into_iter().collect())
    }

    /// The entries in front of the hash `at`, and the others.
    fn split(self, at: u64) -> (Self, Self) {
        match self {
            Self::Sorted(mut pairs) => {
                let lower = pairs.partition_point(|pair| pair.0 < at);
                let mut upper = Vec::with_capacity(pairs.len() - lower + ROOM / 2);
                upper.extend(pairs.drain(lower..));
                pairs.shrink_to(lower + ROOM / 2);
                (Self::Sorted(pairs), Self::Sorted(upper))
            }
            Self::Tree(tree) if tree.first_key_value().is_none_or(|(first, _)| *first >= at) => {
                (Self::default(), Self::Tree(tree))
            }
            Self::Tree(tree) if tree.last_key_value().is_none_or(|(last, _)| *last < at) => {
                (Self::Tree(tree), Self::default())
            }
            Self::Tree(mut tree) => {
                let upper = tree.split_off(&at);
                (Self::of_tree(*tree), Self::of_tree(upper))
            }
        }
    }

    /// All entries of this one and of `upper`, whose hashes are higher.
    fn merge(self, upper: Self) -> Self {
        if upper.len() == 0 {
            return self;
        }
        match (self, upper) {
            (lower, upper) if lower.len() == 0 => upper,
            (Self::Sorted(mut lower), Self::Sorted(upper)) => {
                lower.reserve_exact(upper.len() + ROOM / 2);
                lower.extend(upper);
                if lower.len() > SORTED_MAX {
                    return Self::Tree(Box::new(lower.into_iter().collect()));
                }
                Self::Sorted(lower)
            }
            (Self::Tree(mut tree), Self::Sorted(pairs))
            | (Self::Sorted(pairs), Self::Tree(mut tree)) => {
                tree.extend(pairs);
                Self::Tree(tree)
            }
            (Self::Tree(mut lower), Self::Tree(mut upper)) => {
                lower.append(&mut upper);
                Self::Tree(lower)
            }
        }
    }

    fn range(&self, from: u64, bits: u32) -> SegmentRange<'_, V> {
        match self {
            Self::Sorted(pairs) => {
                let (Ok(at) | Err(at)) = search(pairs, from, bits);
                SegmentRange::Sorted(pairs[at..].iter())
            }
            Self::Tree(tree) => SegmentRange::Tree(tree.range((Included(from), Unbounded))),
        }
    }
}

/// The entries of a segment from some hash on.
enum SegmentRange<'a, V> {
    Sorted(slice::Iter<'a, HashedEntry<V>>),
    Tree(btree_map::Range<'a, u64, Box<V>>),
}

impl<'a, V> Iterator for SegmentRange<'a, V> {
    type Item = (&'a u64, &'a V);

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Self::Sorted(pairs) => pairs.next().map(|(hash, value)| (hash, &**value)),
            Self::Tree(tree) => tree.next().map(|(hash, value)| (hash, &**value)),
        }
    }
}

/// Segments are allocated in chunks of 2 to the power of this many, so that nothing large is ever moved or freed at once.
const CHUNK_BITS: u32 = 10;

/// A number of segments, a power of two, or the first ones of them.
struct Segments<V> {
    /// There are 2 to the power of this many, once all are there.
    bits: u32,
    /// How many there are.
    len: usize,
    chunks: Vec<Vec<Segment<V>>>,
}

impl<V> Segments<V> {
    const fn new(bits: u32) -> Self {
        Self { bits, len: 0, chunks: Vec::new() }
    }

    const fn is_complete(&self) -> bool {
        self.len == 1 << self.bits
    }

    /// The number of the segment that a hash belongs to.
    const fn index(&self, hash: u64) -> usize {
        ((hash >> 1) >> (63 - self.bits)) as usize
    }

    /// The lowest hash of the segment `index`, which must not be behind the last one.
    const fn first_hash(&self, index: usize) -> u64 {
        ((index as u64) << (63 - self.bits)) << 1
    }

    fn at(&self, index: usize) -> &Segment<V> {
        &self.chunks[index >> CHUNK_BITS][index & ((1 << CHUNK_BITS) - 1)]
    }

    fn at_mut(&mut self, index: usize) -> &mut Segment<V> {
        &mut self.chunks[index >> CHUNK_BITS][index & ((1 << CHUNK_BITS) - 1)]
    }

    fn push(&mut self, segment: Segment<V>) {
        if self.len.is_multiple_of(1 << CHUNK_BITS) {
            self.chunks.push(Vec::with_capacity(1 << self.bits.min(CHUNK_BITS)));
        }
        self.len += 1;
        self.chunks.last_mut().expect("one with room").push(segment);
    }

    /// Takes out the segment `index`: all in front of it must be taken out before.
    fn take(&mut self, index: usize) -> Segment<V> {
        let segment = std::mem::take(self.at_mut(index));
        if (index + 1).is_multiple_of(1 << CHUNK_BITS) {
            self.chunks[index >> CHUNK_BITS] = Vec::new();
        }
        segment
    }

    /// The entries from the segment `first` on and the hash `from` on.
    fn range(&self, first: usize, from: u64) -> impl Iterator<Item = (&u64, &V)> {
        (first..self.len).flat_map(move |index| {
            let from = from.max(self.first_hash(index));
            self.at(index).range(from, self.bits)
        })
    }
}

/// Values with different hashes of 64 bits, in the order of these.
pub(crate) struct OrderedHashTable<V> {
    /// The segments, of which those of hashes below `boundary` are empty.
    current: Segments<V>,
    /// While the table doubles or halves its segments, the new ones, of hashes below `boundary`.
    next: Option<Segments<V>>,
    boundary: u64,
    len: usize,
}

impl<V> OrderedHashTable<V> {
    pub(crate) fn new() -> Self {
        let mut current = Segments::new(0);
        current.push(Segment::default());
        Self { current, next: None, boundary: 0, len: 0 }
    }

    /// Entries that it has.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    const fn segments(&self, hash: u64) -> &Segments<V> {
        match &self.next {
            Some(next) if hash < self.boundary => next,
            _ => &self.current,
        }
    }

    const fn segments_mut(&mut self, hash: u64) -> &mut Segments<V> {
        match &mut self.next {
            Some(next) if hash < self.boundary => next,
            _ => &mut self.current,
        }
    }

    pub(crate) fn get(&self, hash: u64) -> Option<&V> {
        let segments = self.segments(hash);
        segments.at(segments.index(hash)).get(hash, segments.bits)
    }

    /// Reads what [`Self::get`] of `hash` will read first: where the entries of its segment are.
    pub(crate) fn touch_segment(&self, hash: u64) {
        let segments = self.segments(hash);
        if let Segment::Sorted(pairs) = segments.at(segments.index(hash)) {
            black_box(pairs.get(guess(pairs.len(), hash, segments.bits)).map(|pair| pair.0));
        }
    }

    pub(crate) fn get_mut(&mut self, hash: u64) -> Option<&mut V> {
        let segments = self.segments_mut(hash);
        let (index, bits) = (segments.index(hash), segments.bits);
        segments.at_mut(index).get_mut(hash, bits)
    }

    /// Sets the value of `hash`; the one that it had.
    pub(crate) fn insert(&mut self, hash: u64, value: V) -> Option<V> {
        let segments = self.segments_mut(hash);
        let (index, bits) = (segments.index(hash), segments.bits);
        let was = segments.at_mut(index).insert(hash, value, bits);
        if was.is_none() {
            self.len += 1;
            self.rehash_step();
        }
        was
    }

    pub(crate) fn remove(&mut self, hash: u64) -> Option<V> {
        let segments = self.segments_mut(hash);
        let (index, bits) = (segments.index(hash), segments.bits);
        let value = segments.at_mut(index).remove(hash, bits)?;
        self.len -= 1;
        self.rehash_step();
        Some(value)
    }

    /// The entries from the hash `from` on.
    pub(crate) fn range(&self, from: u64) -> impl Iterator<Item = (&u64, &V)> {
        let rehashed = self.next.iter().flat_map(move |next| {
            let first = if from < self.boundary { next.index(from) } else { next.len };
            next.range(first, from)
        });
        let first = self.current.index(from.max(self.boundary));
        rehashed.chain(self.current.range(first, from))
    }

    /// Begins to double or to halve the segments if there are too few or too many, or continues with it.
    fn rehash_step(&mut self) {
        let Self { current, next, boundary, len } = self;
        let Some(next) = next else {
            let bits = match current.bits {
                bits if *len > LOAD_MAX << bits => bits + 1,
                bits if bits > 0 && *len < LOAD_MIN << bits => bits - 1,
                _ => return,
            };
            *next = Some(Segments::new(bits));
            return self.rehash_step();
        };
        if next.bits > current.bits {
            let segment = current.take(next.len / 2);
            let (lower, upper) = segment.split(next.first_hash(next.len + 1));
            next.push(lower);
            next.push(upper);
        } else {
            let at = 2 * next.len;
            let lower = current.take(at);
            next.push(lower.merge(current.take(at + 1)));
        }
        if next.is_complete() {
            (*current, *boundary) = (self.next.take().expect("it is complete"), 0);
        } else {
            *boundary = next.first_hash(next.len);
        }
    }
}

impl<V> Default for OrderedHashTable<V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<V: fmt::Debug> fmt::Debug for OrderedHashTable<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.range(0)).finish()
    }
}

impl<V: Clone> OrderedMap for OrderedHashTable<V> {
    type Key = u64;
    type Value = V;

    fn len(&self) -> usize {
        self.len()
    }

    fn get(&self, hash: &u64) -> Option<&V> {
        self.get(*hash)
    }

    fn after(&self, last: Option<&u64>) -> impl Iterator<Item = (&u64, &V)> {
        let from = last.map_or(Some(0), |last| last.checked_add(1));
        from.into_iter().flat_map(|from| self.range(from))
    }
}

impl<K: Ord + Clone, V: Clone> OrderedMap for BTreeMap<K, V> {
    type Key = K;
    type Value = V;

    fn len(&self) -> usize {
        self.len()
    }

    fn get(&self, key: &K) -> Option<&V> {
        self.get(key)
    }

    fn after(&self, last: Option<&K>) -> impl Iterator<Item = (&K, &V)> {
        self.range((last.map_or(Unbounded, Excluded), Unbounded))
    }
}

#[cfg(test)]
mod tests;

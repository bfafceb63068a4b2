//! A map as it was at one moment, sent in order while the map continues to change.
//!
//! The walk has a position. Entries behind it need no care. An entry in front of it that is about
//! to change is copied first ([`Walk::keep`]), once, and sent from the copy at its turn. So at most
//! all entries of that moment are copied, and each copy is dropped when it was sent. A map that is
//! cleared is handed over whole instead.

use super::lazy_free::lazy_free;
use std::collections::BTreeMap;

/// A map in the order of its keys, to walk over.
pub(crate) trait OrderedMap: Default {
    type Key: Ord + Clone;
    type Value: Clone;

    fn len(&self) -> usize;

    fn get(&self, key: &Self::Key) -> Option<&Self::Value>;

    /// The entries behind the key `last`, ascending; all if there is none.
    fn after<'a>(
        &'a self,
        last: Option<&'a Self::Key>,
    ) -> impl Iterator<Item = (&'a Self::Key, &'a Self::Value)>;
}

/// A walk over a map `M`.
#[derive(Debug)]
pub(crate) struct Walk<M: OrderedMap> {
    /// The last key that was given; none before the first.
    given: Option<M::Key>,
    /// The entries that changed since, as they were; none for those that did not exist.
    kept: BTreeMap<M::Key, Option<M::Value>>,
    /// The map itself, if it was cleared since.
    cleared: Option<M>,
}

/// The result of sending a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum GivenValue {
    /// All of it.
    Whole,
    /// There was no room for all of it: it will be offered again.
    Part,
}

impl<M: OrderedMap> Walk<M> {
    /// Begins at the map's content of this moment.
    pub(crate) fn new() -> Self {
        Self { given: None, kept: BTreeMap::new(), cleared: None }
    }

    /// Must be called before what `map` holds at `key` changes.
    pub(crate) fn keep(&mut self, key: &M::Key, map: &M) {
        let given = self.given.as_ref().is_some_and(|given| key <= given);
        if !given && self.cleared.is_none() && !self.kept.contains_key(key) {
            self.kept.insert(key.clone(), map.get(key).cloned());
        }
    }

    /// Values kept aside.
    pub(crate) fn kept(&self) -> usize {
        self.kept.len() + self.cleared.as_ref().map_or(0, M::len)
    }

    /// Offers values in order of their keys while `room` says that there is more room; false if
    /// there is none left to offer. Keys that did not exist are skipped, and also cost a check of
    /// `room`.
    pub(crate) fn give<T>(
        &mut self,
        map: &M,
        to: &mut T,
        room: impl Fn(&mut T) -> bool,
        mut give: impl FnMut(&mut T, &M::Key, &M::Value) -> GivenValue,
    ) -> bool {
        let Self { given, kept, cleared } = self;
        let last = given.clone();
        let mut rest = cleared.as_ref().unwrap_or(map).after(last.as_ref()).peekable();
        loop {
            if !room(to) {
                return true;
            }
            let next = rest.peek().copied();
            let held = kept.first_key_value();
            let held = held.filter(|held| next.is_none_or(|next| held.0 <= next.0));
            let (key, value) = match (held, next) {
                (Some((key, value)), _) => (key, value.as_ref()),
                (None, Some((key, value))) => (key, Some(value)),
                (None, None) => return false,
            };
            if let Some(value) = value
                && give(to, key, value) == GivenValue::Part
            {
                return true;
            }
            *given = Some(key.clone());
            rest.next_if(|next| Some(next.0) == given.as_ref());
            if held.is_some() {
                kept.pop_first();
            }
        }
    }
}

impl<M> Walk<M>
where
    M: OrderedMap<Key: Send + 'static, Value: Send + 'static> + Send + 'static,
{
    /// Ends the walk. Letting go of much takes time, and no command should wait for it.
    pub(crate) fn end(self) {
        let count = self.kept();
        lazy_free((self.kept, self.cleared), count);
    }

    /// Empties `map`, keeping what is still to be given.
    pub(crate) fn clear(&mut self, map: &mut M) {
        let all = std::mem::take(map);
        if self.cleared.is_none() {
            self.cleared = Some(all);
        } else {
            let count = all.len();
            lazy_free(all, count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::ordered_hash_table::OrderedHashTable;
    use super::*;
    use amcast_core::rng::Rng;
    use std::cell::Cell;

    /// Sets the value of a key in a map, or removes it.
    type Change<M> = fn(&mut M, u64, Option<u64>);

    /// Walks over a map that changes all the time, and compares what was given with what it held at first.
    fn walk_over<M: OrderedMap<Key = u64, Value = u64> + Send + 'static>(change: Change<M>) {
        let (mut clears, mut parts, mut kept) = (0, 0, 0);
        for seed in 0..300 {
            let mut rng = Rng::new(seed);
            let keys = [20, 500, 3_000][rng.below(3) as usize];
            let key = |rng: &mut Rng| match rng.below(keys) {
                0 => u64::MAX,
                n => (n - 1).wrapping_mul(0x9e37_79b9_7f4a_7c15),
            };
            let mut map = M::default();
            for n in 0..rng.below(2 * keys) {
                change(&mut map, key(&mut rng), Some(n));
            }
            let at_first: Vec<(u64, u64)> = map.after(None).map(|(k, v)| (*k, *v)).collect();
            let (mut walk, mut given) = (Walk::new(), Vec::new());
            let pace = 1 + rng.below(40);
            loop {
                for n in 0..rng.below(pace) {
                    let key = key(&mut rng);
                    walk.keep(&key, &map);
                    change(&mut map, key, rng.chance(500_000).then_some(1_000_000 + n));
                }
                if rng.chance(5_000) {
                    walk.clear(&mut map);
                    assert_eq!(map.len(), 0);
                    clears += 1;
                }
                kept += walk.kept();
                let room = Cell::new(rng.below(60));
                let mut to = (&mut given, &mut rng);
                let more = walk.give(
                    &map,
                    &mut to,
                    |_| room.replace(room.get().saturating_sub(1)) > 0,
                    |(given, rng), key, value| {
                        if rng.chance(100_000) {
                            parts += 1;
                            return GivenValue::Part;
                        }
                        given.push((*key, *value));
                        GivenValue::Whole
                    },
                );
                if !more {
                    break;
                }
            }
            assert!(given == at_first, "seed {seed}: another content");
            walk.end();
        }
        assert!(clears > 20 && parts > 1_000 && kept > 10_000, "{clears} {parts} {kept}");
    }

    #[test]
    fn it_gives_what_a_tree_held_at_first() {
        walk_over::<BTreeMap<u64, u64>>(|map, key, value| {
            _ = match value {
                Some(value) => map.insert(key, value),
                None => map.remove(&key),
            }
        });
    }

    #[test]
    fn it_gives_what_a_hash_table_held_at_first() {
        walk_over::<OrderedHashTable<u64>>(|map, key, value| {
            _ = match value {
                Some(value) => map.insert(key, value),
                None => map.remove(key),
            }
        });
    }
}

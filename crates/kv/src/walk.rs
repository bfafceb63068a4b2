//! A map as it was at one moment, sent in order while the map continues to change.
//!
//! The walk has a position. Entries behind it need no care. An entry in front of it that is about
//! to change is copied first ([`Walk::keep`]), once, and sent from the copy at its turn. So at most
//! all entries of that moment are copied, and each copy is dropped when it was sent. A map that is
//! cleared is handed over whole instead.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};

/// Of this many values on, letting go of them is left to another thread.
const MANY: usize = 10_000;

/// A walk over a `BTreeMap<K, V>`.
#[derive(Debug)]
pub(crate) struct Walk<K, V> {
    /// The last key that was given; none before the first.
    given: Option<K>,
    /// The entries that changed since, as they were; none for those that did not exist.
    kept: BTreeMap<K, Option<V>>,
    /// The map itself, if it was cleared since.
    cleared: Option<BTreeMap<K, V>>,
}

/// The result of sending a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum GivenValue {
    /// All of it.
    Whole,
    /// There was no room for all of it: it will be offered again.
    Part,
}

impl<K: Ord + Clone, V: Clone> Walk<K, V> {
    /// Begins at the map's content of this moment.
    pub(crate) fn new() -> Self {
        Self { given: None, kept: BTreeMap::new(), cleared: None }
    }

    /// Must be called before what `map` holds at `key` changes.
    pub(crate) fn keep(&mut self, key: &K, map: &BTreeMap<K, V>) {
        let given = self.given.as_ref().is_some_and(|given| key <= given);
        if !given && self.cleared.is_none() && !self.kept.contains_key(key) {
            self.kept.insert(key.clone(), map.get(key).cloned());
        }
    }

    /// Empties `map`, keeping what is still to be given.
    pub(crate) fn clear(&mut self, map: &mut BTreeMap<K, V>) {
        let all = std::mem::take(map);
        if self.cleared.is_none() {
            self.cleared = Some(all);
        }
    }

    /// Values kept aside.
    pub(crate) fn kept(&self) -> usize {
        self.kept.len() + self.cleared.as_ref().map_or(0, BTreeMap::len)
    }

    /// Offers values in order of their keys while `room` says that there is more room; false if
    /// there is none left to offer. Keys that did not exist are skipped, and also cost a check of
    /// `room`.
    pub(crate) fn give<T>(
        &mut self,
        map: &BTreeMap<K, V>,
        to: &mut T,
        room: impl Fn(&mut T) -> bool,
        mut give: impl FnMut(&mut T, &K, &V) -> GivenValue,
    ) -> bool {
        let Self { given, kept, cleared } = self;
        let from = given.clone().map_or(Unbounded, Excluded);
        let mut rest = cleared.as_ref().unwrap_or(map).range((from, Unbounded)).peekable();
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

impl<K, V> Walk<K, V>
where
    K: Ord + Send + 'static,
    V: Send + 'static,
{
    /// Ends the walk. Letting go of much takes time, and no command should wait for it.
    pub(crate) fn end(self) {
        let Self { kept, cleared, .. } = self;
        if kept.len() + cleared.as_ref().map_or(0, BTreeMap::len) < MANY {
            return;
        }
        // Without another thread it is let go of here, when the closure is dropped.
        let drop_all = move || drop((kept, cleared));
        let spawned = std::thread::Builder::new().name("let-go".to_string()).spawn(drop_all);
        drop(spawned);
    }
}

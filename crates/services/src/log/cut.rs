//! A shard's logs as they were at one moment, given piece by piece while commands go on.
//!
//! In the [stream](crate::stream) each log stands behind a byte of one: its name, its first and its
//! next position, and its values; a zero ends them. Logs are given in the order of their names. Of a
//! log that changes before it was given, the cut notes how far it went; appends do no harm then, and
//! what is trimmed away is set aside.

use super::shard::Log;
use super::storage::Storage;
use crate::stream::{Piece, next};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

type Name = Box<[u8]>;

/// A cut that is being given; see the module's documentation.
pub(super) struct Cut<P> {
    /// All logs up to this one were given.
    given: Option<Name>,
    /// The log that is being given.
    inside: Option<Inside>,
    /// What changed before it was given.
    before: BTreeMap<Name, Before<P>>,
    /// Values set aside.
    aside: usize,
}

impl<P> Default for Cut<P> {
    fn default() -> Self {
        Self { given: None, inside: None, before: BTreeMap::new(), aside: 0 }
    }
}

/// How far the log went that is being given, and how much of it was.
struct Inside {
    name: Name,
    position: u64,
    next: u64,
    /// Bytes of the value at `position` that were given; none until their number was.
    bytes: Option<usize>,
}

/// A log as it was when the cut began.
enum Before<P> {
    /// It was not there.
    Absent,
    /// It had these positions; its first values are here, the others still in the log.
    Had { first: u64, next: u64, aside: VecDeque<P> },
}

impl<P> Cut<P> {
    /// Notes that the log `name` is about to change.
    pub(super) fn changes(&mut self, name: &[u8], log: Option<&Log<P>>) {
        if self.given.as_deref().is_some_and(|given| name <= given)
            || self.before.contains_key(name)
        {
            return;
        }
        let before = log.map_or(Before::Absent, |log| {
            let (first, next) = (log.first, log.next());
            Before::Had { first, next, aside: VecDeque::new() }
        });
        self.before.insert(name.into(), before);
    }

    /// Takes the first value of a log, which is trimmed away; gives it back if the cut can do without.
    pub(super) fn set_aside(&mut self, name: &[u8], place: P) -> Option<P> {
        let Some(Before::Had { first, next, aside }) = self.before.get_mut(name) else {
            return Some(place);
        };
        if *first + aside.len() as u64 == *next {
            return Some(place);
        }
        aside.push_back(place);
        self.aside += 1;
        None
    }

    /// Values and logs that are kept for the cut alone.
    pub(super) fn kept(&self) -> usize {
        self.aside + self.before.len()
    }

    /// What was set aside.
    pub(super) fn into_aside(self) -> impl Iterator<Item = P> {
        self.before.into_values().flat_map(|before| match before {
            Before::Absent => VecDeque::new(),
            Before::Had { aside, .. } => aside,
        })
    }

    /// Gives as much as fits; false if that was all.
    pub(super) fn give<S: Storage<Place = P>>(
        &mut self,
        logs: &BTreeMap<Name, Log<P>>,
        storage: &mut S,
        to: &mut Piece<'_>,
    ) -> bool {
        while !to.is_full() {
            let Some(mut inside) = self.inside.take() else {
                let after = self.given.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
                let Some((name, log)) = logs.range::<[u8], _>((after, Bound::Unbounded)).next()
                else {
                    next(false, to);
                    return false;
                };
                self.enter(name, log, to);
                continue;
            };
            self.give_values(&logs[&inside.name], storage, &mut inside, to);
            if inside.position < inside.next {
                self.inside = Some(inside);
            } else {
                self.leave(inside.name, storage);
            }
        }
        true
    }

    /// Begins the next log.
    fn enter(&mut self, name: &Name, log: &Log<P>, to: &mut Piece<'_>) {
        let (first, end) = match self.before.get(name) {
            None => (log.first, log.next()),
            Some(Before::Had { first, next, .. }) => (*first, *next),
            Some(Before::Absent) => {
                to.look();
                self.before.remove(name);
                self.given = Some(name.clone());
                return;
            }
        };
        next(true, to);
        to.bytes(name);
        to.word(first);
        to.word(end);
        self.inside = Some(Inside { name: name.clone(), position: first, next: end, bytes: None });
    }

    fn give_values<S: Storage<Place = P>>(
        &self,
        log: &Log<P>,
        storage: &S,
        inside: &mut Inside,
        to: &mut Piece<'_>,
    ) {
        while inside.position < inside.next && !to.is_full() {
            let set_aside = match self.before.get(&inside.name) {
                Some(Before::Had { first, aside, .. }) => {
                    aside.get((inside.position - first) as usize)
                }
                _ => None,
            };
            let place = set_aside.unwrap_or_else(|| {
                // What is not set aside is not trimmed.
                &log.places[(inside.position - log.first) as usize]
            });
            let value = storage.get(place);
            let from = inside.bytes.unwrap_or_else(|| {
                to.word(value.len() as u64);
                0
            });
            let given = from + to.some(&value[from..]);
            if given < value.len() {
                inside.bytes = Some(given);
                return;
            }
            (inside.position, inside.bytes) = (inside.position + 1, None);
        }
    }

    /// Ends a log: what was set aside of it goes.
    fn leave<S: Storage<Place = P>>(&mut self, name: Name, storage: &mut S) {
        if let Some(Before::Had { aside, .. }) = self.before.remove(&name) {
            self.aside -= aside.len();
            aside.into_iter().for_each(|place| storage.free(place));
        }
        self.given = Some(name);
    }
}

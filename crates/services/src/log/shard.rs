//! The logs of one shard.

use super::OnGrowth;
use super::cut::Cut;
use super::storage::{Storage, Values};
use crate::machine::Corrupt;
use crate::stream::{Piece, Source, follows};
use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

/// Bytes that a value counts for besides its own, about what it takes.
const VALUE_BYTES: usize = 48;

/// Bytes that a log counts for besides its values and its name.
const LOG_BYTES: usize = 256;

/// How far a log goes.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Extent {
    /// The first position that was not trimmed away.
    pub first: u64,
    /// The position of the next value.
    pub next: u64,
    /// Bytes of the values that are left.
    pub bytes: u64,
}

/// One log.
pub(super) struct Log<P> {
    pub(super) first: u64,
    /// Of the values from `first` on.
    pub(super) places: VecDeque<P>,
    bytes: u64,
}

impl<P> Log<P> {
    const fn new(first: u64) -> Self {
        Self { first, places: VecDeque::new(), bytes: 0 }
    }

    pub(super) fn next(&self) -> u64 {
        self.first + self.places.len() as u64
    }

    fn extent(&self) -> Extent {
        Extent { first: self.first, next: self.next(), bytes: self.bytes }
    }
}

/// What logs and values count for, in bytes.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Held {
    /// With the values themselves.
    pub all: usize,
    /// Without them: what is in memory wherever the values lie.
    pub index: usize,
}

impl std::ops::Add for Held {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { all: self.all + other.all, index: self.index + other.index }
    }
}

impl Held {
    /// What a log counts for without values.
    const fn log(name: &[u8]) -> Self {
        let bytes = LOG_BYTES + 2 * name.len();
        Self { all: bytes, index: bytes }
    }

    /// What a value of `len` bytes counts for.
    const fn value(len: usize) -> Self {
        Self { all: VALUE_BYTES + len, index: VALUE_BYTES }
    }
}

/// The logs of one shard, by their names.
pub struct LogShard<S: Storage = Values> {
    logs: BTreeMap<Box<[u8]>, Log<S::Place>>,
    storage: S,
    held: Held,
    /// Values held.
    values: usize,
    cut: Option<Box<Cut<S::Place>>>,
    on_growth: Option<OnGrowth>,
}

impl<S: Storage> LogShard<S> {
    /// No logs yet; their values go to `storage`, and how far they go is told to `on_growth`.
    pub const fn new(storage: S, on_growth: Option<OnGrowth>) -> Self {
        let held = Held { all: 0, index: 0 };
        Self { logs: BTreeMap::new(), storage, held, values: 0, cut: None, on_growth }
    }

    /// What all logs and their values count for.
    pub fn held(&self) -> Held {
        self.held
    }

    /// How many logs there are.
    pub fn logs(&self) -> usize {
        self.logs.len()
    }

    /// How many values there are.
    pub fn values(&self) -> usize {
        self.values
    }

    /// What appending a value would add to what is [held](Self::held).
    pub(super) fn cost(&self, log: &[u8], value: &[u8]) -> Held {
        let known = self.logs.contains_key(log);
        let fresh = if known { Held::default() } else { Held::log(log) };
        fresh + Held::value(value.len())
    }

    /// Appends a value; its position.
    pub(super) fn append(&mut self, name: &[u8], value: &[u8]) -> u64 {
        self.held = self.held + self.cost(name, value);
        self.values += 1;
        if let Some(cut) = &mut self.cut {
            cut.changes(name, self.logs.get(name));
        }
        let place = self.storage.put(value);
        let log = match self.logs.get_mut(name) {
            Some(log) => log,
            None => self.logs.entry(name.into()).or_insert(Log::new(0)),
        };
        let position = log.next();
        log.places.push_back(place);
        log.bytes += value.len() as u64;
        if let Some(on_growth) = &self.on_growth {
            on_growth(name, position + 1);
        }
        position
    }

    /// Drops the values in front of `before`; how far the log goes then, if there is one.
    pub(super) fn trim(&mut self, name: &[u8], before: u64) -> Option<Extent> {
        let log = self.logs.get_mut(name)?;
        if let Some(cut) = &mut self.cut {
            cut.changes(name, Some(&*log));
        }
        while log.first < before
            && let Some(place) = log.places.pop_front()
        {
            let len = self.storage.len(&place);
            log.first += 1;
            log.bytes -= len as u64;
            self.values -= 1;
            let gone = Held::value(len);
            self.held.all -= gone.all;
            self.held.index -= gone.index;
            let unneeded = match &mut self.cut {
                Some(cut) => cut.set_aside(name, place),
                None => Some(place),
            };
            unneeded.into_iter().for_each(|place| self.storage.free(place));
        }
        self.storage.trimmed();
        if log.places.capacity() > 64 && log.places.len() < log.places.capacity() / 4 {
            log.places.shrink_to(2 * log.places.len());
        }
        Some(log.extent())
    }

    /// How far a log goes, if there is one.
    pub fn extent(&self, name: &[u8]) -> Option<Extent> {
        self.logs.get(name).map(Log::extent)
    }

    /// The values of a log from a position on, which was not trimmed away.
    pub(super) fn values_from(
        &self,
        name: &[u8],
        from: u64,
    ) -> impl Iterator<Item = Cow<'_, [u8]>> + use<'_, S> {
        let log = self.logs.get(name);
        let places = log.into_iter().flat_map(move |log| {
            let skipped = from.saturating_sub(log.first).min(log.places.len() as u64);
            log.places.range(skipped as usize..)
        });
        places.map(|place| self.storage.get(place))
    }

    /// The logs behind `after`, in the order of their names.
    pub(super) fn behind(&self, after: &[u8]) -> impl Iterator<Item = (&[u8], Extent)> {
        let range = (Bound::Excluded(after), Bound::Unbounded);
        self.logs.range::<[u8], _>(range).map(|(name, log)| (&**name, log.extent()))
    }

    /// The logs from the name `first` on, in the order of their names.
    pub(super) fn beginning_at(
        &self,
        first: &[u8],
    ) -> impl Iterator<Item = (&[u8], &Log<S::Place>)> {
        let range = (Bound::Included(first), Bound::Unbounded);
        self.logs.range::<[u8], _>(range).map(|(name, log)| (&**name, log))
    }

    /// Where the values lie.
    pub(super) const fn storage(&self) -> &S {
        &self.storage
    }

    /// Begins a cut; one that was begun before is forgotten.
    pub(super) fn begin_cut(&mut self) {
        self.end_cut();
        self.cut = Some(Box::default());
    }

    /// Gives the next part of the cut; false if that was all.
    pub(super) fn give_cut(&mut self, to: &mut Piece<'_>) -> bool {
        let Some(cut) = &mut self.cut else { return false };
        let more = cut.give(&self.logs, &mut self.storage, to);
        if !more {
            self.end_cut();
        }
        more
    }

    /// Forgets the cut.
    pub(super) fn end_cut(&mut self) {
        if let Some(cut) = self.cut.take() {
            cut.into_aside().for_each(|place| self.storage.free(place));
        }
    }

    /// Values that are kept only for the cut, and logs that it has to know more of.
    pub(super) fn kept_aside(&self) -> usize {
        self.cut.as_ref().map_or(0, |cut| cut.kept())
    }

    /// Fills an empty shard with what [`give_cut`](Self::give_cut) gave.
    ///
    /// # Errors
    /// When that is no such state.
    pub(super) fn read_cut(&mut self, from: &mut Source<'_>) -> Result<(), Corrupt> {
        while follows(from)? {
            let name = from.bytes()?;
            let (first, next) = (from.word()?, from.word()?);
            let proper = (1..=super::NAME_BYTES_MAX).contains(&name.len()) && first <= next;
            if !proper || self.logs.contains_key(&*name) {
                return Err(Corrupt::Malformed);
            }
            let mut log = Log::new(first);
            self.held = self.held + Held::log(&name);
            for _ in first..next {
                let value = from.bytes()?;
                self.held = self.held + Held::value(value.len());
                self.values += 1;
                log.bytes += value.len() as u64;
                log.places.push_back(self.storage.put(&value));
            }
            if let Some(on_growth) = &self.on_growth {
                on_growth(&name, next);
            }
            self.logs.insert(name.into(), log);
        }
        Ok(())
    }
}

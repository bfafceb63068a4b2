//! The keys of one shard.

use super::Partitions;
use super::blocked_clients::BlockedClients;
use super::data::{Data, DataKind};
pub(crate) use super::key_name::KeyName;
use super::lazy_free::lazy_free;
use super::ordered_hash_table::OrderedHashTable;
use super::reply::RedisError;
use super::usage::Usage;
use super::walk::Walk;
use amcast_core::Gid;
use amcast_smr::hash::HashSeed;
use std::collections::{BTreeMap, BTreeSet};
use std::hint::black_box;
use std::ops::{Bound, Range};
use std::sync::Arc;

/// The deadline of a key that does not expire.
pub(crate) const NEVER_MS: u64 = u64::MAX;

/// How long a watched key that does not exist is remembered, so that creating and deleting it
/// again is noticed. A transaction that waits longer is aborted.
const MARK_MS: u64 = 600_000;

/// A key and what it holds.
#[derive(Clone, Debug)]
pub(crate) struct KeyEntry {
    pub(crate) key: KeyName,
    pub(crate) data: Data,
    /// Position of the command that changed it last.
    pub(crate) version: u64,
    /// Ordered time after which the key is gone; [`NEVER_MS`] if it stays.
    pub(crate) deadline_ms: u64,
    /// Ordered time when it was changed last; 0 if a state of a version that did not keep it held it.
    pub(crate) changed_ms: u64,
    /// Bytes that it was counted with in what the shard uses.
    pub(super) counted: u64,
}

/// The memory of an entry beside its key and data: its places in the store's tables.
const ENTRY_BYTES: usize = 200;

impl KeyEntry {
    /// Says that the command at the position `version` changed it, at its place in ordered time.
    const fn changed_by(&mut self, version: u64, now_ms: u64) {
        (self.version, self.changed_ms) = (version, now_ms);
    }

    /// Bytes that it takes, about: they follow from what it holds alone.
    pub(crate) fn bytes(&self) -> u64 {
        (self.data.bytes() + self.key.len() + ENTRY_BYTES) as u64
    }
}

/// Keys with the same 64-bit hash: one, but for chance.
#[derive(Clone, Debug)]
pub(super) struct Bucket {
    first: KeyEntry,
    collisions: Option<Box<Collisions>>,
}

/// Further keys of a hash.
#[derive(Clone, Default, Debug)]
struct Collisions {
    entries: Vec<KeyEntry>,
}

impl Bucket {
    const fn new(first: KeyEntry) -> Self {
        Self { first, collisions: None }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &KeyEntry> {
        let rest = self.collisions.iter().flat_map(|rest| &rest.entries);
        std::iter::once(&self.first).chain(rest)
    }

    fn iter_mut(&mut self) -> impl Iterator<Item = &mut KeyEntry> {
        let rest = self.collisions.iter_mut().flat_map(|rest| &mut rest.entries);
        std::iter::once(&mut self.first).chain(rest)
    }

    fn find(&self, key: &[u8]) -> Option<&KeyEntry> {
        self.iter().find(|e| *e.key == *key)
    }

    fn find_mut(&mut self, key: &[u8]) -> Option<&mut KeyEntry> {
        if self.collisions.is_none() {
            return Some(&mut self.first).filter(|e| *e.key == *key);
        }
        self.iter_mut().find(|e| *e.key == *key)
    }

    fn push(&mut self, entry: KeyEntry) {
        self.collisions.get_or_insert_default().entries.push(entry);
    }

    /// Takes out the entry at `i` of a bucket that has more than this one.
    fn swap_remove(&mut self, i: usize) -> Option<KeyEntry> {
        let rest = &mut self.collisions.as_mut()?.entries;
        let entry = rest.swap_remove(i.saturating_sub(1));
        if rest.is_empty() {
            self.collisions = None;
        }
        Some(if i == 0 { std::mem::replace(&mut self.first, entry) } else { entry })
    }
}

/// Keys that the caches of a processor hold, about.
const CACHED_KEYS: usize = 4_096;

/// A value to put under a key.
enum NewValue<'a> {
    Data(Data),
    /// A string, which may be copied to where another one was.
    Str(&'a [u8]),
}

/// So many bytes, and an eighth of its length, may a string leave unused of the buffer that it is copied to.
const SPARE_BYTES: usize = 16;

impl NewValue<'_> {
    fn into_data(self) -> Data {
        match self {
            Self::Data(data) => data,
            Self::Str(bytes) => Data::Str(bytes.to_vec()),
        }
    }

    /// Takes the place of a value.
    fn replace(self, old: &mut Data) {
        if let (Self::Str(bytes), Data::Str(buffer)) = (&self, &mut *old) {
            let room = buffer.capacity();
            if (bytes.len()..=bytes.len() + bytes.len() / 8 + SPARE_BYTES).contains(&room) {
                buffer.clear();
                buffer.extend_from_slice(bytes);
                return;
            }
        }
        *old = self.into_data();
    }
}

/// Expired keys that a command drops which looks all keys through: a tenth of a second of work.
const PURGE_KEYS: usize = 100_000;

/// A watched key that did not exist: the version of its absence, which ends once the key comes into being.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AbsentKeyWatch {
    pub(crate) version: u64,
    pub(crate) deadline_ms: u64,
}

/// Bytes, about, that a watched key takes beside its name.
const MARK_BYTES: u64 = 250;

/// Bytes, about, that it takes to remember that a key is watched.
fn mark_bytes(key: &[u8]) -> u64 {
    MARK_BYTES + key.len() as u64
}

/// How far a move of keys from one shard to another came, in order of their hashes: the same in both.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MoveProgress {
    /// Keys with lower hashes have moved.
    Below(u64),
    /// All have.
    All,
}

/// A snapshot of the store that is being given; see [`super::snapshot`].
#[derive(Debug)]
pub(super) struct StoreSnapshot {
    /// The map of partitions, how far a move came, and what the keys may take, until they were given.
    pub(super) head: Option<(Arc<Partitions>, MoveProgress, u64)>,
    pub(super) seed: HashSeed,
    /// Over the entries; none once all were given.
    pub(super) entries: Option<Walk<OrderedHashTable<Bucket>>>,
    /// The entry in its bucket that is being given, and how much of it was: bytes or elements;
    /// none if not even its head was.
    pub(super) within: (usize, Option<usize>),
    /// Over the marks, in the same way.
    pub(super) marks: Option<Walk<BTreeMap<KeyName, AbsentKeyWatch>>>,
}

/// A snapshot, with the entries and marks of its store as they are now.
pub(super) type OpenSnapshot<'a> =
    (&'a mut StoreSnapshot, &'a OrderedHashTable<Bucket>, &'a BTreeMap<KeyName, AbsentKeyWatch>);

/// All keys of one shard, in the order of their hashes: this order is the same on all replicas, for
/// any order of creation of the keys, so a scan may continue at another replica.
///
/// A method that changes an entry or a mark must first call [`Self::keep`] or [`Self::keep_mark`].
#[derive(Debug)]
pub struct Store {
    seed: HashSeed,
    map: Arc<Partitions>,
    /// Of the keys that move, which ones have.
    moved: MoveProgress,
    /// Ordered time at the running command's place.
    pub(crate) now_ms: u64,
    /// The running command's position: the version of what it changes.
    pub(crate) version: u64,
    by_hash: OrderedHashTable<Bucket>,
    by_key: BTreeSet<KeyName>,
    by_deadline: BTreeSet<(u64, KeyName)>,
    marks: BTreeMap<KeyName, AbsentKeyWatch>,
    marks_by_deadline: BTreeSet<(u64, KeyName)>,
    /// Bytes that marks are counted with.
    mark_bytes: u64,
    snapshot: Option<Box<StoreSnapshot>>,
    usage: Usage,
    /// The hash of an entry that was given out to be changed, and may have to be counted again.
    lent: Option<u64>,
    /// Commands of batches that were executed since expired keys were swept.
    unswept: usize,
    /// The clients of this process's gateway that wait for keys. They are no part of the state.
    blocked: Option<Arc<BlockedClients>>,
}

impl Store {
    pub(crate) fn new(seed: HashSeed, map: Arc<Partitions>, budget: u64) -> Self {
        Self {
            seed,
            map,
            moved: MoveProgress::Below(0),
            now_ms: 0,
            version: 0,
            by_hash: OrderedHashTable::new(),
            by_key: BTreeSet::new(),
            by_deadline: BTreeSet::new(),
            marks: BTreeMap::new(),
            marks_by_deadline: BTreeSet::new(),
            mark_bytes: 0,
            snapshot: None,
            usage: Usage::new(budget),
            lent: None,
            unswept: 0,
            blocked: None,
        }
    }

    /// These clients hear which keys change.
    pub(crate) fn with_blocked(self, blocked: Option<Arc<BlockedClients>>) -> Self {
        Self { blocked, ..self }
    }

    /// Any key may have changed.
    pub(crate) fn tell_blocked(&self) {
        self.blocked.iter().for_each(|blocked| blocked.all_changed());
    }

    /// The map of partitions at the running command's place.
    pub(crate) const fn map(&self) -> &Arc<Partitions> {
        &self.map
    }

    /// Puts a map in force in the store of `shard`; a move that it begins has moved nothing. The
    /// records of watched keys that went to another shard are dropped: their changes there are not
    /// noticed here.
    pub(crate) fn set_map(&mut self, map: Arc<Partitions>, shard: Gid) {
        let gone = |key: &&KeyName| map.of_key(key).shard != shard;
        let gone: Vec<KeyName> = self.marks.keys().filter(gone).cloned().collect();
        gone.iter().for_each(|key| self.drop_mark(key));
        (self.map, self.moved) = (map, MoveProgress::Below(0));
    }

    /// How far the move came that the map tells of, if it tells of one.
    pub(crate) const fn moved(&self) -> MoveProgress {
        self.moved
    }

    pub(crate) fn set_moved(&mut self, moved: MoveProgress) {
        self.moved = moved;
    }

    /// Continues with a map, in the middle of a move.
    pub(super) fn go_on(&mut self, map: Arc<Partitions>, moved: MoveProgress) {
        (self.map, self.moved) = (map, moved);
    }

    /// Whether `key`, which moves, has moved.
    pub(crate) fn has_moved(&self, key: &[u8]) -> bool {
        match self.moved {
            MoveProgress::Below(hash) => self.hash(key) < hash,
            MoveProgress::All => true,
        }
    }

    /// Takes out the next keys that move, looking at about `most` keys; what has not expired of them.
    pub(crate) fn take_moving(&mut self, most: usize) -> Vec<KeyEntry> {
        let MoveProgress::Below(from) = self.moved else { return Vec::new() };
        let mut keys = Vec::new();
        let mut looked = 0;
        let mut last = None;
        let mut moved = MoveProgress::All;
        // Only keys that can be seen are counted: what expired may have been dropped, or not yet.
        for (hash, entry) in self.scan(from) {
            if looked >= most && last != Some(hash) {
                moved = MoveProgress::Below(hash);
                break;
            }
            (looked, last) = (looked + 1, Some(hash));
            if self.map.of_key(&entry.key).to.is_some() {
                keys.push(entry.key.clone());
            }
        }
        self.moved = moved;
        keys.iter().filter_map(|key| self.drop_entry(key)).collect()
    }

    /// Keys held, those that expired but were not purged included.
    pub(crate) fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Keys that will expire.
    pub(crate) fn expiring(&self) -> usize {
        self.by_deadline.len()
    }

    /// The earliest deadline of a key, or of what is remembered of a watched one.
    pub(crate) fn first_deadline_ms(&self) -> Option<u64> {
        let (keys, marks) = (self.by_deadline.first(), self.marks_by_deadline.first());
        keys.into_iter().chain(marks).map(|(deadline_ms, _)| *deadline_ms).min()
    }

    /// The deadline of a key that is held, whether it is over or not.
    pub(super) fn deadline_ms(&self, key: &[u8]) -> Option<u64> {
        let bucket = self.by_hash.get(self.hash(key))?;
        bucket.find(key).map(|e| e.deadline_ms)
    }

    /// Whether a key, or what is remembered of a watched one, has a deadline among these.
    pub(super) fn has_deadline(&self, among_ms: Range<u64>) -> bool {
        let from = Bound::Included((among_ms.start, KeyName::from(&[][..])));
        let behind = (from.as_ref(), Bound::Unbounded);
        let first = |of: &BTreeSet<(u64, KeyName)>| of.range(behind).next().map(|(ms, _)| *ms);
        let (keys, marks) = (first(&self.by_deadline), first(&self.marks_by_deadline));
        keys.into_iter().chain(marks).any(|ms| ms < among_ms.end)
    }

    pub(crate) fn hash(&self, key: &[u8]) -> u64 {
        self.seed.hash(key)
    }

    /// Whether it holds so many keys that what the next command looks for is seldom in the processor's caches.
    pub(crate) fn exceeds_caches(&self) -> bool {
        self.len() > CACHED_KEYS
    }

    /// Reads where [`Self::touch_entry`] begins.
    pub(crate) fn touch_segment(&self, hash: u64) {
        self.by_hash.touch_segment(hash);
    }

    /// Reads the entry of a key with this hash, and where its value is.
    pub(crate) fn touch_entry(&self, hash: u64) -> Option<&KeyEntry> {
        let entry = &self.by_hash.get(hash)?.first;
        black_box((entry.deadline_ms, entry.key.len()));
        Some(entry)
    }

    pub(crate) fn find(&self, key: &[u8]) -> Option<&KeyEntry> {
        let bucket = self.by_hash.get(self.hash(key))?;
        let entry = bucket.find(key)?;
        (entry.deadline_ms >= self.now_ms).then_some(entry)
    }

    /// The entry to change; the caller calls [`Self::touch`] or [`Self::settle`] if it did.
    pub(crate) fn find_mut(&mut self, key: &[u8]) -> Option<&mut KeyEntry> {
        let hash = self.hash(key);
        if self.lent != Some(hash) {
            self.count_lent();
        }
        self.keep(hash);
        self.lent = Some(hash);
        let bucket = self.by_hash.get_mut(hash)?;
        let entry = bucket.find_mut(key)?;
        (entry.deadline_ms >= self.now_ms).then_some(entry)
    }

    /// Counts an entry again that may have been changed.
    pub(crate) fn count_lent(&mut self) {
        if let Some(bucket) = self.lent.take().and_then(|hash| self.by_hash.get_mut(hash)) {
            bucket.iter_mut().for_each(|entry| self.usage.count(entry));
        }
    }

    /// Counts a command of a batch that is executed.
    pub(crate) fn count_command(&mut self) {
        self.unswept += 1;
    }

    /// The commands that were counted since the last call.
    pub(crate) fn take_counted(&mut self) -> usize {
        std::mem::take(&mut self.unswept)
    }

    /// The seed of the hashes of its keys.
    pub(crate) const fn seed(&self) -> HashSeed {
        self.seed
    }

    /// Bytes that it takes, keys that expired but were not purged included.
    pub(crate) const fn used(&self) -> u64 {
        self.usage.used
    }

    /// Bytes that it may take; 0 if as many as there are.
    pub(crate) const fn budget(&self) -> u64 {
        self.usage.budget
    }

    pub(crate) fn set_budget(&mut self, bytes: u64) {
        self.usage.budget = bytes;
    }

    /// Whether it surely takes no more than it may.
    pub(crate) const fn is_within_budget(&self) -> bool {
        self.usage.is_within()
    }

    /// Whether what lives at the running command's time takes more than it may: what expired is purged until it does
    /// not. All commands in front of this one have run here, so none can still see that.
    pub(crate) fn is_over_budget(&mut self) -> bool {
        while !self.usage.is_within() {
            let used = self.usage.used;
            self.purge(self.now_ms, 1);
            if used == self.usage.used {
                return true;
            }
        }
        false
    }

    /// The value of `key`, if it is of kind `K`.
    pub(crate) fn get<K: DataKind>(&self, key: &[u8]) -> Result<Option<&K>, RedisError> {
        match self.find(key) {
            None => Ok(None),
            Some(e) => K::of(&e.data).map(Some).ok_or(RedisError::WRONG_TYPE),
        }
    }

    /// The same, to change.
    pub(crate) fn get_mut<K: DataKind>(
        &mut self,
        key: &[u8],
    ) -> Result<Option<&mut K>, RedisError> {
        match self.find_mut(key) {
            None => Ok(None),
            Some(e) => K::of_mut(&mut e.data).map(Some).ok_or(RedisError::WRONG_TYPE),
        }
    }

    /// The value of `key`, made empty if there is none; [`Self::settle`] must follow.
    pub(crate) fn get_or_new<K: DataKind>(&mut self, key: &[u8]) -> Result<&mut K, RedisError> {
        if self.find(key).is_none() {
            self.put(key, K::default().into_data(), NEVER_MS);
        }
        Ok(self.get_mut(key)?.expect("it was put there"))
    }

    /// Says that `key` was changed.
    pub(crate) fn touch(&mut self, key: &[u8]) {
        self.end_change(key, true);
    }

    /// The same, if it was `changed`; the entry is counted again, without looking for it once more.
    fn end_change(&mut self, key: &[u8], changed: bool) {
        let hash = self.hash(key);
        self.keep(hash);
        let bucket = self.by_hash.get_mut(hash);
        let Some(e) = bucket.and_then(|bucket| bucket.find_mut(key)) else { return };
        if changed && e.deadline_ms >= self.now_ms {
            e.changed_by(self.version, self.now_ms);
            BlockedClients::hear(self.blocked.as_ref(), key, &e.data);
        }
        self.usage.count(e);
        self.lent = self.lent.filter(|lent| *lent != hash);
        if e.data.is_empty() {
            self.delete(key);
        }
    }

    /// Ends a change of a collection: an empty one is deleted, a changed one gets a new version.
    pub(crate) fn settle(&mut self, key: &[u8], changed: bool) {
        self.end_change(key, changed);
    }

    /// Sets `key`, and replaces any value.
    pub(crate) fn put(&mut self, key: &[u8], data: Data, deadline_ms: u64) {
        self.put_value(key, NewValue::Data(data), deadline_ms);
    }

    /// The same with a string. The memory of one that was there is used again if it fits.
    pub(crate) fn put_str(&mut self, key: &[u8], value: &[u8], deadline_ms: u64) {
        self.put_value(key, NewValue::Str(value), deadline_ms);
    }

    fn put_value(&mut self, key: &[u8], value: NewValue<'_>, deadline_ms: u64) {
        let hash = self.hash(key);
        let (version, changed_ms) = (self.version, self.now_ms);
        self.keep(hash);
        // The entry may expire, and no command changes its version then: with the same version on record for the
        // absence of the key, EXEC would take the two for one.
        self.drop_mark(key);
        let mut bucket = self.by_hash.get_mut(hash);
        if let Some(e) = bucket.as_mut().and_then(|bucket| bucket.find_mut(key)) {
            let was = std::mem::replace(&mut e.deadline_ms, deadline_ms);
            value.replace(&mut e.data);
            e.changed_by(version, changed_ms);
            BlockedClients::hear(self.blocked.as_ref(), key, &e.data);
            self.usage.count(e);
            if was != deadline_ms {
                let key = e.key.clone();
                self.move_deadline(key, was, deadline_ms);
            }
            return;
        }
        let (key, data) = (KeyName::from(key), value.into_data());
        BlockedClients::hear(self.blocked.as_ref(), &key, &data);
        let mut entry =
            KeyEntry { key: key.clone(), data, version, deadline_ms, changed_ms, counted: 0 };
        self.usage.count(&mut entry);
        match bucket {
            Some(bucket) => bucket.push(entry),
            None => _ = self.by_hash.insert(hash, Bucket::new(entry)),
        }
        self.by_key.insert(key.clone());
        self.move_deadline(key, NEVER_MS, deadline_ms);
    }

    /// Takes in an entry that moved here from another shard, which is no change of it.
    pub(crate) fn put_moved(&mut self, entry: KeyEntry) {
        let KeyEntry { key, data, deadline_ms, changed_ms, .. } = entry;
        self.put(&key, data, deadline_ms);
        if let Some(entry) = self.find_mut(&key) {
            entry.changed_ms = changed_ms;
        }
    }

    /// Sets when an existing key expires.
    pub(crate) fn set_deadline(&mut self, key: &[u8], deadline_ms: u64) {
        let (version, now_ms) = (self.version, self.now_ms);
        if let Some(e) = self.find_mut(key) {
            let was = std::mem::replace(&mut e.deadline_ms, deadline_ms);
            e.changed_by(version, now_ms);
            let key = e.key.clone();
            self.move_deadline(key, was, deadline_ms);
        }
    }

    fn move_deadline(&mut self, key: KeyName, was_ms: u64, deadline_ms: u64) {
        if was_ms == deadline_ms {
            return;
        }
        let mut item = (was_ms, key);
        if was_ms != NEVER_MS {
            self.by_deadline.remove(&item);
        }
        if deadline_ms != NEVER_MS {
            item.0 = deadline_ms;
            self.by_deadline.insert(item);
        }
    }

    /// Deletes `key`; its entry if it had not expired.
    pub(crate) fn delete(&mut self, key: &[u8]) -> Option<KeyEntry> {
        let entry = self.drop_entry(key)?;
        let live = entry.deadline_ms >= self.now_ms;
        if live {
            // Only a state that an older program saved has the mark of a key that lives.
            self.drop_mark(key);
        }
        live.then_some(entry)
    }

    fn drop_entry(&mut self, key: &[u8]) -> Option<KeyEntry> {
        let hash = self.hash(key);
        self.keep(hash);
        let bucket = self.by_hash.get_mut(hash)?;
        let i = bucket.iter().position(|e| *e.key == *key)?;
        let mut entry = match i {
            0 if bucket.collisions.is_none() => self.by_hash.remove(hash)?.first,
            i => bucket.swap_remove(i)?,
        };
        self.by_key.remove(&entry.key);
        self.move_deadline(entry.key.clone(), entry.deadline_ms, NEVER_MS);
        self.usage.uncount(&mut entry);
        Some(entry)
    }

    /// Deletes everything.
    pub(crate) fn clear(&mut self) {
        // A key that expired is gone already, whether it was dropped here or not.
        let is_there =
            |key: &&KeyName| self.marks.contains_key(&***key) && self.find(key).is_some();
        // Only states that older programs saved have marks of keys that live. The fewer of the two are looked through:
        // the other marks stay, and nothing counts how often that is done.
        let marked: Vec<KeyName> = match self.by_key.len() < self.marks.len() {
            true => self.by_key.iter().filter(is_there).cloned().collect(),
            false => self.marks.keys().filter(is_there).cloned().collect(),
        };
        marked.iter().for_each(|key| self.drop_mark(key));
        let keys = self.len();
        match self.snapshot.as_mut().and_then(|snapshot| snapshot.entries.as_mut()) {
            Some(walk) => walk.clear(&mut self.by_hash),
            None => lazy_free(std::mem::take(&mut self.by_hash), keys),
        }
        let names = (std::mem::take(&mut self.by_key), std::mem::take(&mut self.by_deadline));
        lazy_free(names, keys);
        self.usage = Usage { used: self.mark_bytes, ..Usage::new(self.usage.budget) };
    }

    /// Drops up to `most` keys whose deadline was before `now_ms`.
    pub(crate) fn purge(&mut self, now_ms: u64, most: usize) {
        for _ in 0..most {
            match self.by_deadline.first() {
                Some((deadline, key)) if *deadline < now_ms => {
                    let key = key.clone();
                    self.drop_entry(&key);
                }
                _ => break,
            }
        }
        for _ in 0..most {
            match self.marks_by_deadline.first() {
                Some((deadline, key)) if *deadline < now_ms => {
                    let key = key.clone();
                    self.drop_mark(&key);
                }
                _ => break,
            }
        }
    }

    /// Drops keys that expired before all keys are looked through, which no command pays for: many of them are gone after a
    /// few such commands, and none is looked at by each.
    pub(crate) fn purge_some(&mut self) {
        let most = self.by_deadline.len().max(self.marks_by_deadline.len()) / 4;
        self.purge(self.now_ms, most.max(PURGE_KEYS));
    }

    /// Live keys; drops all others on the way.
    pub(crate) fn count(&mut self) -> usize {
        self.purge(self.now_ms, usize::MAX);
        self.len()
    }

    /// The version of `key` for `WATCH`, remembering it if it does not exist.
    pub(crate) fn watch(&mut self, key: &[u8]) -> u64 {
        if let Some(e) = self.find(key) {
            return e.version;
        }
        let deadline_ms = self.now_ms.saturating_add(MARK_MS);
        let mark = self.marks.get(key).filter(|mark| mark.deadline_ms >= self.now_ms);
        let version = mark.map_or(self.version, |mark| mark.version);
        self.put_mark(key, AbsentKeyWatch { version, deadline_ms });
        version
    }

    /// Whether `key` is as it was when [`Self::watch`] gave `version`.
    pub(crate) fn unchanged(&self, key: &[u8], version: u64) -> bool {
        match self.find(key) {
            Some(e) => e.version == version,
            None => self
                .marks
                .get(key)
                .is_some_and(|m| m.deadline_ms >= self.now_ms && m.version == version),
        }
    }

    /// Live entries from hash `from` on, with their hashes.
    pub(crate) fn scan(&self, from: u64) -> impl Iterator<Item = (u64, &KeyEntry)> {
        let live = move |e: &&KeyEntry| e.deadline_ms >= self.now_ms;
        self.by_hash.range(from).flat_map(move |(h, b)| b.iter().filter(live).map(|e| (*h, e)))
    }

    /// All entries from hash `from` on, expired ones included.
    pub(super) fn buckets(&self, from: u64) -> impl Iterator<Item = (&u64, &Bucket)> {
        self.by_hash.range(from)
    }

    /// All marks from the key `from` on, expired ones included.
    pub(super) fn marks_from(
        &self,
        from: &[u8],
    ) -> impl Iterator<Item = (&KeyName, &AbsentKeyWatch)> {
        self.marks.range::<[u8], _>((Bound::Included(from), Bound::Unbounded))
    }

    /// Live keys from `start` (included) to `end` (excluded; empty means no end), ascending.
    pub(crate) fn range(&self, start: &[u8], end: &[u8]) -> impl Iterator<Item = &KeyEntry> {
        let upper = if end.is_empty() { Bound::Unbounded } else { Bound::Excluded(end) };
        let sane = end.is_empty() || start <= end;
        let bounds = (Bound::Included(start), upper);
        let keys = sane.then(|| self.by_key.range::<[u8], _>(bounds));
        keys.into_iter().flatten().filter_map(|k| self.find(k))
    }

    /// Remembers a watched key that does not exist, in place of what was remembered of it.
    pub(crate) fn put_mark(&mut self, key: &[u8], mark: AbsentKeyWatch) {
        self.drop_mark(key);
        let key = KeyName::from(key);
        self.keep_mark(&key);
        self.usage.used += mark_bytes(&key);
        self.mark_bytes += mark_bytes(&key);
        self.marks_by_deadline.insert((mark.deadline_ms, key.clone()));
        self.marks.insert(key, mark);
    }

    fn drop_mark(&mut self, key: &[u8]) {
        if !self.marks.contains_key(key) {
            return;
        }
        self.keep_mark(key);
        if let Some((key, mark)) = self.marks.remove_entry(key) {
            self.usage.used -= mark_bytes(&key);
            self.mark_bytes -= mark_bytes(&key);
            self.marks_by_deadline.remove(&(mark.deadline_ms, key));
        }
    }

    /// Keeps the entries of `hash` for the snapshot before one of them changes.
    fn keep(&mut self, hash: u64) {
        if let Some(snapshot) = &mut self.snapshot
            && let Some(walk) = &mut snapshot.entries
        {
            walk.keep(&hash, &self.by_hash);
        }
    }

    /// Keeps the mark of `key` for the snapshot before it changes.
    fn keep_mark(&mut self, key: &[u8]) {
        if let Some(snapshot) = &mut self.snapshot
            && let Some(walk) = &mut snapshot.marks
        {
            walk.keep(&key.into(), &self.marks);
        }
    }

    /// Begins a snapshot, at what the store holds now.
    pub(super) fn begin_snapshot(&mut self) {
        self.end_cut();
        let (entries, marks) = (Some(Walk::new()), Some(Walk::new()));
        let head = Some((self.map.clone(), self.moved, self.usage.budget));
        self.snapshot = Some(Box::new(StoreSnapshot {
            head,
            seed: self.seed,
            entries,
            within: (0, None),
            marks,
        }));
    }

    /// The snapshot, with the maps that it walks over.
    pub(super) fn snapshot(&mut self) -> Option<OpenSnapshot<'_>> {
        Some((self.snapshot.as_deref_mut()?, &self.by_hash, &self.marks))
    }

    /// Entries and marks that are kept aside for the snapshot.
    pub(super) fn kept_aside(&self) -> usize {
        let Some(snapshot) = &self.snapshot else { return 0 };
        snapshot.entries.as_ref().map_or(0, Walk::kept)
            + snapshot.marks.as_ref().map_or(0, Walk::kept)
    }

    /// Forgets the snapshot.
    pub(super) fn end_cut(&mut self) {
        if let Some(snapshot) = self.snapshot.take() {
            if let Some(walk) = snapshot.entries {
                walk.end();
            }
            if let Some(walk) = snapshot.marks {
                walk.end();
            }
        }
    }

    /// All that a snapshot should hold, told in another way than the snapshot does.
    #[cfg(test)]
    pub(crate) fn dump(&self) -> String {
        let usage = (self.usage.used, self.usage.budget);
        format!("{:?}{:?}{:?}{:?}{usage:?}", self.map, self.moved, self.by_hash, self.marks)
    }
}

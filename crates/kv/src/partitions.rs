//! The map of keys to shards, and its changes while clients continue [MRP 6.1].
//!
//! Keys stand in an order: of their slots, or of themselves. *Partitions* are contiguous parts of
//! that order, each held by one shard; a shard may hold several, or none: it is spare then. The map
//! of all partitions has an *epoch*, which each change of it makes one higher.
//!
//! # How a part of the keys moves
//!
//! The map is state of every shard, and changes only by commands to all shards: at its place in the
//! order such a command changes it in all of them at one moment. A gateway sends each command to the
//! shards that its own map says, and says the epoch of that map. A command of another epoch than that
//! of its place in the order is not executed: its answer is the map as it is there
//! ([`Partitions::refuse`]), and the gateway sends the command again. So a gateway needs no news of a
//! change before it meets one, and no command acts on a shard that does not hold its keys.
//!
//! 1. `AMCAST.SPLIT` and `AMCAST.MERGE` say that part of the keys of one shard shall move to another:
//!    these keys *move* then, and commands for them go to both shards. No data were touched.
//! 2. `AMCAST.MOVE`, to both shards, hands over the next few keys, in order of their hashes. A node
//!    has a replica of every shard, so it does that alone, at the command's place in the order;
//!    keys are moved and not copied, and none of them crosses the network. The shards know the
//!    progress of the move, hence the place of each moving key. The command may be repeated at
//!    will: it continues from there.
//! 3. `AMCAST.MOVED`, when nothing is left: the keys are the other shard's alone.
//!
//! Gateways send 2 and 3 by themselves for as long as a node reports a move. If all of them die,
//! the move pauses, every command is executed as before, and the next gateway continues it.

use super::reply::RedisError;
use super::slots::{SLOTS, slot};
use amcast_core::limits::GROUPS_MAX;
use amcast_core::{Gid, GroupSet};
use std::fmt::Write;

/// Partitions that there may be: the map travels in answers, and each command looks into it.
pub const PARTITIONS_MAX: usize = 1024;

/// Bytes of a key that a partition begins with: the map of most partitions fits a message.
pub const START_BYTES_MAX: usize = 512;

/// The first byte of an answer that is a map: no answer of a command begins with it.
pub const REFUSED: u8 = b'@';

/// The version of a map's bytes.
const VERSION: u8 = 1;

/// Where the keys of a partition are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PartitionOwner {
    /// The shard that holds them.
    pub shard: Gid,
    /// The shard that they move to, if they do: each is in one of both.
    pub to: Option<Gid>,
}

impl PartitionOwner {
    /// The shards that a command for one of these keys goes to.
    pub fn shards(self) -> GroupSet {
        self.to.map_or(GroupSet::one(self.shard), |to| GroupSet::one(self.shard).with(to))
    }
}

/// Where each partition begins; the first at the beginning.
#[derive(Clone, PartialEq, Eq, Debug)]
enum PartitionStarts {
    Slots(Vec<u16>),
    Keys(Vec<Box<[u8]>>),
}

impl PartitionStarts {
    /// Partitions that begin at or before `start`, hence the index behind the one that holds it.
    fn behind(&self, start: &PartitionStart<'_>) -> usize {
        match (self, start) {
            (Self::Slots(all), PartitionStart::Slot(slot)) => all.partition_point(|s| s <= slot),
            (Self::Keys(all), PartitionStart::Key(key)) => all.partition_point(|s| **s <= **key),
            _ => unreachable!("a map is by slots or by keys"),
        }
    }

    fn insert(&mut self, index: usize, start: &PartitionStart<'_>) {
        match (self, start) {
            (Self::Slots(all), PartitionStart::Slot(slot)) => all.insert(index, *slot),
            (Self::Keys(all), PartitionStart::Key(key)) => all.insert(index, (*key).into()),
            _ => unreachable!("a map is by slots or by keys"),
        }
    }

    fn remove(&mut self, index: usize) {
        match self {
            Self::Slots(all) => _ = all.remove(index),
            Self::Keys(all) => _ = all.remove(index),
        }
    }

    fn get(&self, index: usize) -> Option<PartitionStart<'_>> {
        match self {
            Self::Slots(all) => all.get(index).map(|slot| PartitionStart::Slot(*slot)),
            Self::Keys(all) => all.get(index).map(|key| PartitionStart::Key(key)),
        }
    }
}

/// A place in the order of keys.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum PartitionStart<'a> {
    /// The first key of a slot.
    Slot(u16),
    /// This key.
    Key(&'a [u8]),
}

impl PartitionStart<'_> {
    /// As `AMCAST.SPLIT` takes it.
    pub fn text(&self) -> Vec<u8> {
        match self {
            Self::Slot(slot) => slot.to_string().into_bytes(),
            Self::Key(key) => key.to_vec(),
        }
    }
}

/// One partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Partition<'a> {
    /// Where it begins.
    pub start: PartitionStart<'a>,
    /// Where the next one begins; none for the last.
    pub end: Option<PartitionStart<'a>>,
    /// Where its keys are.
    pub owner: PartitionOwner,
}

/// The map of all partitions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Partitions {
    epoch: u64,
    shards: u8,
    starts: PartitionStarts,
    owners: Vec<PartitionOwner>,
}

fn owner(shard: usize) -> PartitionOwner {
    PartitionOwner { shard: Gid(shard as u8), to: None }
}

impl Partitions {
    /// As many slots, about, for each of `shards` shards, 1 to 64.
    pub fn by_slot(shards: usize) -> Self {
        Self::by_slot_among(shards, shards)
    }

    /// As many slots, about, for each of the first `partitions` of `shards` shards; the others are
    /// spare.
    pub fn by_slot_among(shards: usize, partitions: usize) -> Self {
        assert!((1..=GROUPS_MAX).contains(&shards) && (1..=shards).contains(&partitions));
        let first = |i: usize| (i * usize::from(SLOTS)).div_ceil(partitions) as u16;
        let starts = PartitionStarts::Slots((0..partitions).map(first).collect());
        Self {
            epoch: 0,
            shards: shards as u8,
            starts,
            owners: (0..partitions).map(owner).collect(),
        }
    }

    /// Partitions in the order of keys over `shards` shards: the first shard holds what is before the
    /// first of `boundaries`, and so on; shards beyond the last one are spare.
    ///
    /// # Errors
    /// When the boundaries do not ascend, one is empty or too long, or there are too many.
    pub fn by_key(shards: usize, boundaries: &[Vec<u8>]) -> Result<Self, String> {
        assert!((1..=GROUPS_MAX).contains(&shards));
        if boundaries.len() >= shards {
            let n = boundaries.len();
            return Err(format!(
                "{n} boundaries make {} partitions, and there are {shards} shards",
                n + 1
            ));
        }
        let mut keys: Vec<Box<[u8]>> = vec![Box::default()];
        for boundary in boundaries {
            let shown = String::from_utf8_lossy(boundary);
            if boundary.len() > START_BYTES_MAX {
                return Err(format!(
                    "the boundary {shown:?} is longer than {START_BYTES_MAX} bytes"
                ));
            }
            if keys.last().is_some_and(|last| **last >= **boundary) {
                return Err(format!("the boundary {shown:?} is not behind the one before it"));
            }
            keys.push(boundary.as_slice().into());
        }
        let owners = (0..keys.len()).map(owner).collect();
        Ok(Self { epoch: 0, shards: shards as u8, starts: PartitionStarts::Keys(keys), owners })
    }

    /// Boundaries of so many partitions that are even where keys are random bytes.
    pub fn even_boundaries(partitions: usize) -> Vec<Vec<u8>> {
        let at = |i: usize| ((i << 16) / partitions) as u16;
        (1..partitions).map(|i| at(i).to_be_bytes().to_vec()).collect()
    }

    /// The number of the map: that of the first one is 0.
    pub const fn epoch(&self) -> u64 {
        self.epoch
    }

    /// How many shards there are, spare ones included.
    pub const fn shards(&self) -> usize {
        self.shards as usize
    }

    /// All shards.
    pub const fn all(&self) -> GroupSet {
        GroupSet::first(self.shards as usize)
    }

    /// Whether partitions are in the order of keys, not of slots.
    pub const fn is_by_key(&self) -> bool {
        matches!(self.starts, PartitionStarts::Keys(_))
    }

    /// Shards that hold keys.
    pub fn holders(&self) -> GroupSet {
        self.owners.iter().fold(GroupSet::EMPTY, |all, owner| all.or(owner.shards()))
    }

    /// Where `key` is.
    pub fn of_key(&self, key: &[u8]) -> PartitionOwner {
        if let [only] = *self.owners {
            return only;
        }
        let behind = match &self.starts {
            PartitionStarts::Slots(all) => {
                let slot = slot(key);
                all.partition_point(|s| *s <= slot)
            }
            PartitionStarts::Keys(all) => all.partition_point(|s| **s <= *key),
        };
        self.owners[behind - 1]
    }

    /// The shards that hold keys from `first` on and before `last`, where an empty one is no end.
    pub fn of_range(&self, first: &[u8], last: &[u8]) -> GroupSet {
        let PartitionStarts::Keys(starts) = &self.starts else { return self.holders() };
        let from = starts.partition_point(|s| **s <= *first) - 1;
        let to = match last {
            [] => starts.len(),
            last => starts.partition_point(|s| **s < *last),
        };
        let owners = self.owners.get(from..to.max(from + 1)).unwrap_or_default();
        owners.iter().fold(GroupSet::EMPTY, |all, owner| all.or(owner.shards()))
    }

    /// All partitions, in order.
    pub fn iter(&self) -> impl Iterator<Item = Partition<'_>> {
        let one = |(i, owner): (usize, &PartitionOwner)| Partition {
            start: self.starts.get(i).expect("each partition has a beginning"),
            end: self.starts.get(i + 1),
            owner: *owner,
        };
        self.owners.iter().enumerate().map(one)
    }

    /// The shards between which keys move, if any do.
    pub fn moving(&self) -> Option<(Gid, Gid)> {
        self.owners.iter().find_map(|owner| Some((owner.shard, owner.to?)))
    }

    /// The partitions of `shard`, for people.
    pub fn describe(&self, shard: Gid) -> String {
        let mut text = String::new();
        for Partition { start, end, owner } in self.iter() {
            if !owner.shards().contains(shard) {
                continue;
            }
            let comma = if text.is_empty() { "" } else { ", " };
            let range = match (start, end) {
                (PartitionStart::Slot(first), Some(PartitionStart::Slot(next))) => {
                    format!("{first} to {}", next - 1)
                }
                (PartitionStart::Slot(first), _) => format!("{first} to {}", SLOTS - 1),
                (PartitionStart::Key(first), end) => {
                    let end = end.map_or_else(|| "..".into(), |end| quoted(&end.text()));
                    format!("{} to {end}", quoted(first))
                }
            };
            let moves = match owner.to {
                Some(to) if owner.shard == shard => format!(" (moving to {})", to.0),
                Some(_) => format!(" (moving from {})", owner.shard.0),
                None => String::new(),
            };
            write!(text, "{comma}{range}{moves}").expect("a string takes all");
        }
        if text.is_empty() { "spare".to_owned() } else { text }
    }
}

fn quoted(key: &[u8]) -> String {
    format!("\"{}\"", key.escape_ascii())
}

/// Changes: each gives the next map.
impl Partitions {
    fn next(&self) -> Self {
        Self { epoch: self.epoch + 1, ..self.clone() }
    }

    /// Parses a place in the order of keys that a person wrote.
    fn place<'a>(&self, text: &'a [u8]) -> Result<PartitionStart<'a>, RedisError> {
        match self.starts {
            PartitionStarts::Keys(_) if text.len() <= START_BYTES_MAX => {
                Ok(PartitionStart::Key(text))
            }
            PartitionStarts::Keys(_) => Err(RedisError::new(format!(
                "ERR a partition begins with at most {START_BYTES_MAX} bytes"
            ))),
            PartitionStarts::Slots(_) => {
                let slot = super::number::parse_int(text).and_then(|n| u16::try_from(n).ok());
                let slot = slot.filter(|slot| *slot < SLOTS);
                slot.map(PartitionStart::Slot)
                    .ok_or(RedisError::new("ERR give a slot from 0 to 16383"))
            }
        }
    }

    fn check(&self, from: Gid, to: Gid) -> Result<(), RedisError> {
        if from.0 >= self.shards || to.0 >= self.shards {
            return Err(RedisError::new(format!("ERR there are shards 0 to {}", self.shards - 1)));
        }
        if from == to {
            return Err(RedisError::new("ERR give two different shards"));
        }
        if let Some((from, to)) = self.moving() {
            return Err(RedisError::new(format!(
                "ERR keys still move from shard {} to shard {}",
                from.0, to.0
            )));
        }
        Ok(())
    }

    /// Keys from `at` on, of the partition of `from` that holds it, begin to move to `to`.
    pub fn split(&self, from: Gid, at: &[u8], to: Gid) -> Result<Self, RedisError> {
        self.check(from, to)?;
        let at = self.place(at)?;
        let index = self.starts.behind(&at) - 1;
        if self.owners[index].shard != from {
            return Err(RedisError::new(format!(
                "ERR shard {} does not hold this: shard {} does",
                from.0, self.owners[index].shard.0
            )));
        }
        let mut next = self.next();
        let moving = PartitionOwner { shard: from, to: Some(to) };
        if self.starts.get(index) == Some(at) {
            next.owners[index] = moving;
            return Ok(next);
        }
        if self.owners.len() >= PARTITIONS_MAX {
            return Err(RedisError::new(format!("ERR there may be {PARTITIONS_MAX} partitions")));
        }
        next.starts.insert(index + 1, &at);
        next.owners.insert(index + 1, moving);
        Ok(next)
    }

    /// All keys of `from` begin to move to `to`: `from` will be spare.
    pub fn merge(&self, from: Gid, to: Gid) -> Result<Self, RedisError> {
        self.check(from, to)?;
        let mut next = self.next();
        let mine = next.owners.iter_mut().filter(|owner| owner.shard == from);
        if mine.map(|owner| owner.to = Some(to)).count() == 0 {
            return Err(RedisError::new(format!("ERR shard {} holds no keys", from.0)));
        }
        Ok(next)
    }

    /// The map after the move; none if nothing moves.
    pub fn moved(&self) -> Option<Self> {
        self.moving()?;
        let mut next = self.next();
        for owner in &mut next.owners {
            *owner = PartitionOwner { shard: owner.to.unwrap_or(owner.shard), to: None };
        }
        let mut i = 1;
        while i < next.owners.len() {
            if next.owners[i] == next.owners[i - 1] {
                next.owners.remove(i);
                next.starts.remove(i);
            } else {
                i += 1;
            }
        }
        Some(next)
    }
}

/// As bytes: the version, 0 for slots or 1 for keys, the number of shards, the epoch in 64 bits, the
/// number of partitions in 16; for each its beginning (a slot in 16 bits, or a key behind its length
/// in 16), its shard, and the shard that it moves to or 255. All little-endian.
impl Partitions {
    /// Appends the map's bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[VERSION, u8::from(self.is_by_key()), self.shards]);
        out.extend_from_slice(&self.epoch.to_le_bytes());
        out.extend_from_slice(&(self.owners.len() as u16).to_le_bytes());
        for partition in self.iter() {
            match partition.start {
                PartitionStart::Slot(slot) => out.extend_from_slice(&slot.to_le_bytes()),
                PartitionStart::Key(key) => {
                    out.extend_from_slice(&(key.len() as u16).to_le_bytes());
                    out.extend_from_slice(key);
                }
            }
            let PartitionOwner { shard, to } = partition.owner;
            out.extend_from_slice(&[shard.0, to.map_or(u8::MAX, |to| to.0)]);
        }
    }

    /// Reads a map, and gives what follows it; none if there is none.
    pub fn decode(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let ([version, by_key, shards], rest) = bytes.split_first_chunk::<3>()?;
        let (epoch, rest) = rest.split_first_chunk::<8>()?;
        let (count, mut rest) = half(rest)?;
        let sane = *version == VERSION && *by_key <= 1 && (1..=PARTITIONS_MAX).contains(&count);
        if !sane || !(1..=GROUPS_MAX).contains(&usize::from(*shards)) {
            return None;
        }
        let mut slots = Vec::new();
        let mut keys = Vec::<Box<[u8]>>::new();
        let mut owners = Vec::new();
        for _ in 0..count {
            let (word, tail) = half(rest)?;
            rest = tail;
            if *by_key == 0 {
                slots.push(word as u16);
            } else {
                let (key, tail) = rest.split_at_checked(word)?;
                keys.push(key.into());
                rest = tail;
            }
            let ([shard, to], tail) = rest.split_first_chunk::<2>()?;
            rest = tail;
            let to = (*to != u8::MAX).then_some(*to);
            if shard >= shards || to.is_some_and(|to| to >= *shards) {
                return None;
            }
            owners.push(PartitionOwner { shard: Gid(*shard), to: to.map(Gid) });
        }
        let ascend = slots.windows(2).all(|w| w[0] < w[1]) && keys.windows(2).all(|w| w[0] < w[1]);
        let begins =
            slots.first().is_none_or(|s| *s == 0) && keys.first().is_none_or(|k| k.is_empty());
        if !ascend || !begins || slots.iter().any(|slot| *slot >= SLOTS) {
            return None;
        }
        let starts =
            if *by_key == 0 { PartitionStarts::Slots(slots) } else { PartitionStarts::Keys(keys) };
        let map = Self { epoch: u64::from_le_bytes(*epoch), shards: *shards, starts, owners };
        Some((map, rest))
    }

    /// Appends the answer to a command of another epoch: this map, and the command, so that nobody
    /// has to keep it until it was executed.
    pub fn refuse(&self, args: &[u8], answer: &mut Vec<u8>) {
        answer.push(REFUSED);
        self.encode(answer);
        answer.extend_from_slice(args);
    }

    /// The map and the command's arguments of such an answer; none if it is another one.
    pub fn of_refusal(answer: &[u8]) -> Option<(Self, &[u8])> {
        Self::decode(answer.strip_prefix(&[REFUSED])?)
    }
}

/// Whether an answer says that the command was not executed, since its gateway knew another map.
pub fn is_refusal(answer: &[u8]) -> bool {
    answer.first() == Some(&REFUSED)
}

/// The part of an answer that is kept for retries. A retry of a command that was not executed for
/// its epoch gets that error again, with the map of the retry's place in the order: neither the map
/// nor the command is kept for each, which would push out the answers of commands that were
/// executed.
pub(super) fn kept(answer: &[u8]) -> &[u8] {
    if is_refusal(answer) { &answer[..1] } else { answer }
}

/// The epoch of the map in such an answer.
pub fn refusing_epoch(answer: &[u8]) -> Option<u64> {
    Partitions::of_refusal(answer).map(|(map, _)| map.epoch())
}

fn half(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (head, rest) = bytes.split_first_chunk::<2>()?;
    Some((usize::from(u16::from_le_bytes(*head)), rest))
}

#[cfg(test)]
mod tests {
    use super::super::SlotMap;
    use super::*;

    fn keys(shards: usize, boundaries: &[&str]) -> Partitions {
        let boundaries: Vec<_> = boundaries.iter().map(|b| b.as_bytes().to_vec()).collect();
        Partitions::by_key(shards, &boundaries).expect("they ascend")
    }

    #[test]
    fn even_slots_are_those_of_the_first_release() {
        for shards in [1, 2, 3, 7, 64] {
            let (map, old) = (Partitions::by_slot(shards), SlotMap::new(shards));
            for i in 0..3000 {
                let key = format!("key:{i}");
                assert_eq!(map.of_key(key.as_bytes()).shard, old.of_key(key.as_bytes()), "{key}");
            }
        }
    }

    #[test]
    fn keys_and_ranges_are_where_the_boundaries_say() {
        let map = keys(4, &["g", "p"]);
        for (key, shard) in [("", 0), ("fz", 0), ("g", 1), ("ozz", 1), ("p", 2), ("~", 2)] {
            assert_eq!(map.of_key(key.as_bytes()), owner(shard), "{key}");
        }
        let range = |first: &str, last: &str| -> Vec<u8> {
            map.of_range(first.as_bytes(), last.as_bytes()).iter().map(|g| g.0).collect()
        };
        assert_eq!(range("a", "g"), [0], "the end is not part of it");
        assert_eq!(range("a", "g\0"), [0, 1]);
        assert_eq!((range("h", "z"), range("h", "")), (vec![1, 2], vec![1, 2]));
        assert_eq!(range("", ""), [0, 1, 2], "the spare shard holds nothing");
        assert_eq!(range("z", "a"), [2], "one that is nowhere goes somewhere");
        assert_eq!(map.describe(Gid(1)), "\"g\" to \"p\"");
        assert_eq!(
            (map.describe(Gid(2)), map.describe(Gid(3))),
            ("\"p\" to ..".into(), "spare".into())
        );
    }

    #[test]
    fn boundaries_that_are_none_are_refused_in_words() {
        let say = |shards, all: &[&str]| {
            let all: Vec<_> = all.iter().map(|b| b.as_bytes().to_vec()).collect();
            Partitions::by_key(shards, &all).unwrap_err()
        };
        assert!(say(2, &["a", "b"]).contains("make 3 partitions, and there are 2 shards"));
        assert!(say(3, &["b", "a"]).contains("\"a\" is not behind the one before it"));
        assert!(say(3, &["", "a"]).contains("not behind"));
        assert!(say(3, &["a", "a"]).contains("not behind"));
        let even = Partitions::even_boundaries(4);
        assert_eq!(even, [vec![0x40, 0], vec![0x80, 0], vec![0xc0, 0]]);
        assert!(Partitions::by_key(4, &even).is_ok());
    }

    #[test]
    fn keys_that_move_belong_to_both_shards_until_they_have_moved() {
        let map = keys(4, &["g", "p"]);
        let moving = map.split(Gid(1), b"k", Gid(3)).unwrap();
        let both = PartitionOwner { shard: Gid(1), to: Some(Gid(3)) };
        assert_eq!((moving.epoch(), moving.moving()), (1, Some((Gid(1), Gid(3)))));
        assert_eq!(
            (moving.of_key(b"j"), moving.of_key(b"k"), moving.of_key(b"p")),
            (owner(1), both, owner(2))
        );
        assert_eq!(moving.describe(Gid(3)), "\"k\" to \"p\" (moving from 1)");
        assert!(moving.merge(Gid(0), Gid(1)).is_err(), "one move at a time");
        let moved = moving.moved().unwrap();
        assert_eq!((moved.epoch(), moved.of_key(b"k"), moved.moved()), (2, owner(3), None));
        let back = moved.merge(Gid(3), Gid(1)).unwrap().moved().unwrap();
        assert_eq!((back.epoch(), &back.starts, &back.owners), (4, &map.starts, &map.owners));
    }

    #[test]
    fn a_move_that_makes_no_sense_is_refused() {
        let map = Partitions::by_slot_among(3, 2);
        let why = |outcome: Result<Partitions, RedisError>| outcome.unwrap_err();
        assert_eq!(
            why(map.split(Gid(0), b"9000", Gid(2))),
            RedisError::new("ERR shard 0 does not hold this: shard 1 does")
        );
        assert_eq!(
            why(map.split(Gid(0), b"16384", Gid(2))),
            RedisError::new("ERR give a slot from 0 to 16383")
        );
        assert_eq!(
            why(map.split(Gid(0), b"x", Gid(2))),
            RedisError::new("ERR give a slot from 0 to 16383")
        );
        assert_eq!(why(map.merge(Gid(2), Gid(0))), RedisError::new("ERR shard 2 holds no keys"));
        assert_eq!(why(map.merge(Gid(3), Gid(0))), RedisError::new("ERR there are shards 0 to 2"));
        assert_eq!(
            why(map.merge(Gid(1), Gid(1))),
            RedisError::new("ERR give two different shards")
        );
        assert!(map.split(Gid(0), b"0", Gid(2)).is_ok(), "a whole partition may move");
    }

    #[test]
    fn bytes_are_golden_read_back_and_damage_is_found_or_harmless() {
        let map = keys(4, &["g"]).split(Gid(1), b"k", Gid(3)).unwrap();
        let mut bytes = Vec::new();
        map.encode(&mut bytes);
        let golden =
            b"\x01\x01\x04\x01\0\0\0\0\0\0\0\x03\0\0\0\0\xff\x01\0g\x01\xff\x01\0k\x01\x03";
        assert_eq!(bytes, golden);
        let mut slots = Vec::new();
        Partitions::by_slot(2).encode(&mut slots);
        assert_eq!(slots, b"\x01\0\x02\0\0\0\0\0\0\0\0\x02\0\0\0\0\xff\0\x20\x01\xff");
        let mut answer = Vec::new();
        map.refuse(b"rest", &mut answer);
        assert!(is_refusal(&answer) && !is_refusal(b"+OK\r\n"));
        assert_eq!(Partitions::of_refusal(&answer), Some((map, &b"rest"[..])));
        for len in 0..bytes.len() {
            assert_eq!(Partitions::decode(&bytes[..len]), None, "{len} bytes");
        }
        for bit in 0..8 * bytes.len() {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            if let Some((map, _)) = Partitions::decode(&damaged) {
                assert!(map.holders().within(map.all()) && map.of_key(b"h").shard.index() < 64);
            }
        }
    }
}

//! A log that takes appends in every component of a partition, and is one log again when components merge: a
//! [`StateMachine`] with a hook to reconcile, for [`amcast_smr::ReconcilingReplica`].
//!
//! # Places
//! An append is ordered in a *configuration*, the view in which its message is delivered, named by the round and the coordinator
//! that made it ([`ViewName`]). Members that part at the end of a configuration may have ordered other appends in it, or the
//! same in another order. Those that enter the same next configuration have ordered the same. So a [`LogPlace`] is a
//! configuration, the one that its members entered next, and a position among the appends that they ordered in it. All members
//! say the same of a place, also those that were elsewhere.
//!
//! ```text
//! p0, p1, p2   0      a b c                    0 > 1.p0 #1 a   the order of the merged log: by configuration,
//! p0           1.p0   d                        0 > 1.p0 #2 b   then by the next one, then by position
//! p1, p2       2.p2   e                        0 > 1.p0 #3 c   a and b were ordered in 0 > 2.p2, too
//! all          3.p0   f                        1.p0 > 3.p0 #1 d
//!                                              2.p2 > 3.p0 #1 e
//!                                              3.p0 #1 f
//! ```
//! An entry that members on both sides ordered is in the log once, in the least of its places. Names of configurations grow
//! along the history of each member, so that an entry is behind all that its component had ordered in earlier
//! configurations.
//!
//! # Reconciling
//! Two states merge by the union of their entries and of the ids that were trimmed, and of each entry's places the
//! least counts. So the merge is the same in any order of the states, also if it is repeated, and loses and doubles nothing.
//! A reader that has read up to some entry finds new ones in front of it after a merge, in the configurations of the other
//! component: [`PartitionLogState::configurations`] says how many were ordered in which.
//!
//! # Retries
//! Each append has an id that its writer chooses. An append of an id that is in the log, or that was trimmed and is not
//! forgotten, adds nothing: so one whose outcome is unknown may be sent again, to any member.
//!
//! # Trimmed ids
//! Ids of trimmed entries are remembered, as ranges of numbers of a writer: for retries, and because another component may have
//! the entry still, or again from a retry. They are forgotten in the order in which they were trimmed, in two steps, whenever
//! more than [an eighth](TRIMMED_SHARE) of `BYTES` was trimmed since: those before are forgotten, if no process of the group
//! can have their entries any more, and these take their place. That needs all processes in one configuration, where
//! each has executed the trim ([`StateMachine::settle`]). So no merge brings back an entry that was trimmed.
//! A writer may send an append again until ids of an eighth of `BYTES` were trimmed after it; a retry after
//! that may be a second entry. A log that has no room for an append forgets sooner: then fewer ids may have been trimmed
//! since.
//!
//! # Bounds
//! A state holds at most `BYTES`, by a fixed rule, of entries and of ids that were trimmed. An append beyond that is declined with
//! [`PartitionLogAnswer::Full`], and a trim makes room. While a process is missing from the configuration no id is forgotten:
//! where each entry has a writer of its own, up to a third of their bytes stays taken then.
//!
//! A merge declines nothing, since the entries of both states were acknowledged. So a merged log holds what the
//! components have taken in together, at most `BYTES` for each process of the group; it takes no append until trims bring
//! it below `BYTES` again.
//!
//! # Limits
//! Nothing is on disk: an entry is lost if all members that have it crash. States go over whole when components merge.

#[cfg(test)]
mod tests;

use amcast_core::codec::{ByteReader, Codec, CodecError, put_bytes};
use amcast_core::groupcast::ViewName;
use amcast_core::{Gid, GroupSet, Outcome};
use amcast_smr::{KeyUse, Reconciler, Shard, ShardView, StateMachine};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Bytes that an entry counts besides its value.
pub const ENTRY_BYTES: usize = 96;

/// Bytes that a range of trimmed ids of a writer counts.
pub const TRIMMED_RANGE_BYTES: usize = 32;

/// The share of a log's bytes, as a divisor, that trimmed ids may take before earlier ones are forgotten.
pub const TRIMMED_SHARE: usize = 8;

/// The configuration that the present one ends with, which is not known.
const OPEN: u64 = u64::MAX;

/// The id of an append: no other append has it, except one that is to have the same effect.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct AppendId {
    /// The writer: a number of its own.
    pub writer: u64,
    /// The number of the append there. Numbers in a row take the least memory when they are trimmed.
    pub number: u64,
}

/// Where an entry was ordered. The order of places is that of the log.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LogPlace {
    configuration: u64,
    next: u64,
    /// From 1, among the appends that were ordered in the configuration, those that added nothing included.
    position: u64,
}

impl LogPlace {
    /// The configuration in which it was ordered.
    pub const fn configuration(&self) -> ViewName {
        ViewName::of(self.configuration)
    }

    /// The configuration that the members entered next that ordered it in this place; none as long as they have entered none.
    pub fn next(&self) -> Option<ViewName> {
        (self.next != OPEN).then(|| ViewName::of(self.next))
    }

    /// Its position there, from 1: among the appends that were ordered in the configuration, those included that added
    /// nothing.
    pub const fn position(&self) -> u64 {
        self.position
    }
}

/// As `2.p1 > 5.p0 #3`: in configuration `2.p1`, by members that entered `5.p0` next, as the third one.
impl fmt::Display for LogPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.configuration())?;
        if let Some(next) = self.next() {
            write!(f, " > {next}")?;
        }
        write!(f, " #{}", self.position)
    }
}

/// A command of the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PartitionLogCommand<'a> {
    /// Appends a value, unless this id was appended before.
    Append {
        /// Its id.
        id: AppendId,
        /// The value.
        value: &'a [u8],
    },
    /// Removes the entry of this id and all in front of it, as far as this component has them. Where the entry is not there
    /// nothing is removed.
    Trim {
        /// The last one to remove.
        through: AppendId,
    },
}

/// The result of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PartitionLogAnswer {
    /// The value is in the log, there: since now, or since its id was appended first.
    Appended(LogPlace),
    /// An append of this id was in the log, and has been trimmed. For how long that is known, see the
    /// [module](self).
    WasTrimmed,
    /// So many entries were removed.
    Removed(u64),
    /// The log holds as much as it may: the value was not added.
    Full,
    /// The bytes are no command.
    Malformed,
}

impl PartitionLogCommand<'_> {
    /// A tag, the id, and the value if there is one.
    pub fn encode(&self) -> Vec<u8> {
        let (tag, id, value) = match self {
            Self::Append { id, value } => (0, id, *value),
            Self::Trim { through } => (1, through, &[][..]),
        };
        let mut to = vec![tag];
        id.encode(&mut to);
        to.extend_from_slice(value);
        to
    }

    /// The command that these bytes are; none if they are none.
    pub fn decode(bytes: &[u8]) -> Option<PartitionLogCommand<'_>> {
        let (&tag, rest) = bytes.split_first()?;
        let mut from = ByteReader::new(rest);
        let id = AppendId::decode(&mut from).ok()?;
        match (tag, from.rest()) {
            (0, value) => Some(PartitionLogCommand::Append { id, value }),
            (1, []) => Some(PartitionLogCommand::Trim { through: id }),
            _ => None,
        }
    }
}

impl PartitionLogAnswer {
    fn encode(&self) -> Vec<u8> {
        let mut to = Vec::new();
        match self {
            Self::Appended(place) => {
                to.push(0);
                place.encode(&mut to);
            }
            Self::WasTrimmed => to.push(1),
            Self::Removed(count) => {
                to.push(2);
                count.encode(&mut to);
            }
            Self::Full => to.push(3),
            Self::Malformed => to.push(4),
        }
        to
    }

    /// The answer that these bytes are; none if they are none.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (&tag, rest) = bytes.split_first()?;
        let mut from = ByteReader::new(rest);
        let answer = match tag {
            0 => Self::Appended(LogPlace::decode(&mut from).ok()?),
            1 => Self::WasTrimmed,
            2 => Self::Removed(u64::decode(&mut from).ok()?),
            3 => Self::Full,
            4 => Self::Malformed,
            _ => return None,
        };
        from.is_empty().then_some(answer)
    }
}

impl Codec for AppendId {
    fn encode(&self, to: &mut Vec<u8>) {
        self.writer.encode(to);
        self.number.encode(to);
    }

    fn decode(from: &mut ByteReader<'_>) -> Result<Self, CodecError> {
        Ok(Self { writer: u64::decode(from)?, number: u64::decode(from)? })
    }
}

impl Codec for LogPlace {
    fn encode(&self, to: &mut Vec<u8>) {
        self.configuration.encode(to);
        self.next.encode(to);
        self.position.encode(to);
    }

    fn decode(from: &mut ByteReader<'_>) -> Result<Self, CodecError> {
        Ok(Self {
            configuration: u64::decode(from)?,
            next: u64::decode(from)?,
            position: u64::decode(from)?,
        })
    }
}

/// Ids, by ranges of numbers of each writer.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct IdRanges {
    /// By writer and first number: the last one. Ranges of a writer do not touch each other.
    ranges: BTreeMap<(u64, u64), u64>,
}

impl IdRanges {
    fn has(&self, id: AppendId) -> bool {
        let before = self.ranges.range(..=(id.writer, id.number)).next_back();
        before.is_some_and(|(&(writer, _), &last)| writer == id.writer && last >= id.number)
    }

    fn insert(&mut self, writer: u64, first: u64, last: u64) {
        let (mut first, mut last) = (first, last);
        // The last range that begins in front of the end of this one or directly behind it, again and again.
        while let Some((&(of, from), &upto)) =
            self.ranges.range(..=(writer, last.saturating_add(1))).next_back()
            && of == writer
            && upto.saturating_add(1) >= first
        {
            self.ranges.remove(&(of, from));
            (first, last) = (first.min(from), last.max(upto));
        }
        self.ranges.insert((writer, first), last);
    }

    fn bytes(&self) -> usize {
        self.ranges.len() * TRIMMED_RANGE_BYTES
    }

    fn merge(&mut self, other: &Self) {
        for (&(writer, first), &last) in &other.ranges {
            self.insert(writer, first, last);
        }
    }

    fn save(&self, to: &mut Vec<u8>) {
        (self.ranges.len() as u64).encode(to);
        for (&(writer, first), &last) in &self.ranges {
            [writer, first, last].iter().for_each(|number| number.encode(to));
        }
    }

    fn load(from: &mut ByteReader<'_>) -> Option<Self> {
        let mut ranges = Self::default();
        for _ in 0..u64::decode(from).ok()? {
            let [writer, first, last] = [u64::decode(from), u64::decode(from), u64::decode(from)];
            ranges.insert(writer.ok()?, first.ok()?, last.ok()?);
        }
        Some(ranges)
    }
}

/// The ids of trimmed entries.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct TrimmedIds {
    recent: IdRanges,
    /// Those that were trimmed before these, and that are forgotten next.
    earlier: IdRanges,
    /// The last trim of the earlier ones: its configuration, and its number among the commands of that.
    earlier_at: (u64, u64),
    /// Whether no process of the group can have their entries any more.
    settled: bool,
}

impl TrimmedIds {
    fn has(&self, id: AppendId) -> bool {
        self.recent.has(id) || self.earlier.has(id)
    }

    fn bytes(&self) -> usize {
        self.recent.bytes() + self.earlier.bytes()
    }

    /// Has the recent ones take the place of the earlier ones, once they are more than their share: of those that are
    /// settled, or of none. Of those that are settled also where they are few, if the log has no room.
    fn forget(&mut self, bytes_max: usize, now: (u64, u64), is_full: bool) {
        let are_many = self.recent.bytes() > bytes_max / TRIMMED_SHARE;
        let is_due = match self.earlier.ranges.is_empty() {
            true => are_many,
            false => self.settled && (are_many || is_full),
        };
        if is_due {
            self.earlier = std::mem::take(&mut self.recent);
            (self.earlier_at, self.settled) = (now, false);
        }
    }

    /// All processes have executed the commands up to there.
    fn settle(&mut self, upto: (u64, u64)) {
        self.settled = self.earlier_at <= upto;
    }

    fn merge(&mut self, other: &Self) {
        self.recent.merge(&other.recent);
        self.earlier.merge(&other.earlier);
        self.earlier_at = self.earlier_at.max(other.earlier_at);
        self.settled &= other.settled;
    }

    fn save(&self, to: &mut Vec<u8>) {
        self.recent.save(to);
        self.earlier.save(to);
        let (configuration, executed) = self.earlier_at;
        [configuration, executed].iter().for_each(|number| number.encode(to));
        to.push(u8::from(self.settled));
    }

    fn load(from: &mut ByteReader<'_>) -> Option<Self> {
        let (recent, earlier) = (IdRanges::load(from)?, IdRanges::load(from)?);
        let earlier_at = (u64::decode(from).ok()?, u64::decode(from).ok()?);
        Some(Self { recent, earlier, earlier_at, settled: u8::decode(from).ok()? == 1 })
    }
}

/// An entry of the log, as readers see it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PartitionLogEntry<'a> {
    /// Where it was ordered.
    pub place: LogPlace,
    /// Its id.
    pub id: AppendId,
    /// Its value.
    pub value: &'a [u8],
}

/// How many entries were ordered in a configuration by those that entered the same next one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OrderedThere {
    /// The configuration.
    pub configuration: ViewName,
    /// The next one of those members; none where this is the present one.
    pub next: Option<ViewName>,
    /// How many entries of the log have their place there.
    pub entries: u64,
}

/// The log as one member has it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PartitionLogState {
    entries: BTreeMap<AppendId, (LogPlace, Vec<u8>)>,
    /// The entries in their order.
    order: BTreeSet<(LogPlace, AppendId)>,
    trimmed: TrimmedIds,
    /// Bytes of entries.
    entry_bytes: usize,
    /// The present configuration.
    configuration: u64,
    /// The appends that were ordered in it.
    ordered: u64,
    /// All commands that were.
    executed: u64,
}

impl PartitionLogState {
    /// All entries, in the order of the log.
    pub fn entries(&self) -> impl DoubleEndedIterator<Item = PartitionLogEntry<'_>> {
        self.order.iter().filter_map(|&(place, id)| {
            let (_, value) = self.entries.get(&id)?;
            Some(PartitionLogEntry { place, id, value })
        })
    }

    /// Where the append of this id is; none where it is not in the log.
    pub fn place_of(&self, id: AppendId) -> Option<LogPlace> {
        self.entries.get(&id).map(|&(place, _)| place)
    }

    /// The entries behind this place, in the order of the log.
    pub fn behind(&self, place: LogPlace) -> impl Iterator<Item = PartitionLogEntry<'_>> {
        let last = AppendId { writer: u64::MAX, number: u64::MAX };
        let from = (std::ops::Bound::Excluded((place, last)), std::ops::Bound::Unbounded);
        self.order.range(from).filter_map(|&(place, id)| {
            let (_, value) = self.entries.get(&id)?;
            Some(PartitionLogEntry { place, id, value })
        })
    }

    /// Whether an append of this id was in the log and has been trimmed, as far as that is not forgotten.
    pub fn was_trimmed(&self, id: AppendId) -> bool {
        self.trimmed.has(id)
    }

    /// The configurations of the log, in its order, and how many of its entries were ordered in which.
    pub fn configurations(&self) -> Vec<OrderedThere> {
        let mut all: Vec<OrderedThere> = Vec::new();
        for (place, _) in &self.order {
            let (configuration, next) = (place.configuration(), place.next());
            match all.last_mut() {
                Some(last) if (last.configuration, last.next) == (configuration, next) => {
                    last.entries += 1;
                }
                _ => all.push(OrderedThere { configuration, next, entries: 1 }),
            }
        }
        all
    }

    /// Bytes of it, as they are counted against the bound.
    pub fn bytes(&self) -> usize {
        self.entry_bytes + self.trimmed.bytes()
    }

    fn append(&mut self, id: AppendId, value: &[u8], bytes_max: usize) -> PartitionLogAnswer {
        // Positions follow from deliveries alone, so that members with other states count alike.
        self.ordered += 1;
        if self.trimmed.has(id) {
            return PartitionLogAnswer::WasTrimmed;
        }
        if let Some(place) = self.place_of(id) {
            return PartitionLogAnswer::Appended(place);
        }
        let bytes = value.len() + ENTRY_BYTES;
        if self.bytes() + bytes > bytes_max {
            self.trimmed.forget(bytes_max, (self.configuration, self.executed), true);
        }
        if self.bytes() + bytes > bytes_max {
            return PartitionLogAnswer::Full;
        }
        let (configuration, position) = (self.configuration, self.ordered);
        let place = LogPlace { configuration, next: OPEN, position };
        self.insert(id, place, value);
        PartitionLogAnswer::Appended(place)
    }

    fn insert(&mut self, id: AppendId, place: LogPlace, value: &[u8]) {
        self.order.insert((place, id));
        self.entry_bytes += value.len() + ENTRY_BYTES;
        self.entries.insert(id, (place, value.to_vec()));
    }

    fn remove(&mut self, id: AppendId) {
        if let Some((place, value)) = self.entries.remove(&id) {
            self.order.remove(&(place, id));
            self.entry_bytes -= value.len() + ENTRY_BYTES;
        }
    }

    fn trim(&mut self, through: AppendId, bytes_max: usize) -> u64 {
        let Some(place) = self.place_of(through) else { return 0 };
        let removed: Vec<_> = self.order.range(..=(place, through)).map(|&(_, id)| id).collect();
        for &id in &removed {
            self.remove(id);
            self.trimmed.recent.insert(id.writer, id.number, id.number);
        }
        self.trimmed.forget(bytes_max, (self.configuration, self.executed), false);
        removed.len() as u64
    }

    /// The entries of the present configuration have their final place, and the next one begins.
    fn enter(&mut self, next: u64) {
        if next == self.configuration {
            return;
        }
        let first = LogPlace { configuration: self.configuration, next: OPEN, position: 0 };
        let open = self.order.split_off(&(first, AppendId { writer: 0, number: 0 }));
        for (place, id) in open {
            // Entries of other configurations cannot be behind it, and keep their places if they are.
            let is_of_it = place.configuration == self.configuration;
            let place = if is_of_it { LogPlace { next, ..place } } else { place };
            if let Some((kept, _)) = self.entries.get_mut(&id) {
                *kept = place;
            }
            self.order.insert((place, id));
        }
        (self.configuration, self.ordered) = (next, 0);
        self.executed = 0;
        // The members of the next one may have other states.
        self.trimmed.settled = false;
    }

    /// Adds what is in another state: see the [module](self).
    pub fn merge(&mut self, other: &Self) {
        self.trimmed.merge(&other.trimmed);
        let gone: Vec<_> =
            self.entries.keys().copied().filter(|&id| self.trimmed.has(id)).collect();
        gone.into_iter().for_each(|id| self.remove(id));
        for (&id, (place, value)) in &other.entries {
            match self.entries.get_mut(&id) {
                _ if self.trimmed.has(id) => {}
                None => self.insert(id, *place, value),
                Some((kept, _)) if *place < *kept => {
                    self.order.remove(&(*kept, id));
                    *kept = *place;
                    self.order.insert((*place, id));
                }
                Some(_) => {}
            }
        }
        if (other.configuration, other.executed) > (self.configuration, self.executed) {
            (self.configuration, self.ordered) = (other.configuration, other.ordered);
            self.executed = other.executed;
        }
    }
}

impl Shard for PartitionLogState {
    fn items(&self) -> usize {
        self.entries.len()
    }

    fn save(&self, to: &mut Vec<u8>) {
        self.configuration.encode(to);
        self.ordered.encode(to);
        self.executed.encode(to);
        self.trimmed.save(to);
        for (place, id) in &self.order {
            place.encode(to);
            id.encode(to);
            put_bytes(self.entries.get(id).map_or(&[], |(_, value)| value), to);
        }
    }

    fn load(from: &[u8]) -> Option<Self> {
        let mut from = ByteReader::new(from);
        let mut number = || u64::decode(&mut from).ok();
        let configuration = number()?;
        let ordered = number()?;
        let executed = number()?;
        let trimmed = TrimmedIds::load(&mut from)?;
        let mut state = Self { configuration, ordered, executed, trimmed, ..Self::default() };
        while !from.is_empty() {
            let place = LogPlace::decode(&mut from).ok()?;
            let id = AppendId::decode(&mut from).ok()?;
            state.insert(id, place, from.bytes().ok()?);
        }
        Some(state)
    }

    fn digest(&self, to: &mut Vec<u8>) {
        self.save(to);
    }
}

/// The log as a state machine of one shard, which holds at most so many `BYTES`: the same at all members.
#[derive(Clone, Copy, Debug, Default)]
pub struct PartitionLog<const BYTES: usize = { 16 << 20 }>;

impl<const BYTES: usize> StateMachine for PartitionLog<BYTES> {
    type Shard = PartitionLogState;

    /// All commands depend on each other.
    fn touches(
        &self,
        _command: &[u8],
        _shards: GroupSet,
        _key: &mut dyn FnMut(Gid, &[u8], KeyUse),
    ) -> bool {
        false
    }

    /// The answer is a [`PartitionLogAnswer`].
    fn apply(
        &self,
        command: &[u8],
        shards: &mut [ShardView<'_, PartitionLogState>],
        answer: &mut Vec<u8>,
    ) -> Outcome {
        let [shard, ..] = shards else { return Outcome::NotExecuted };
        shard.data.executed += 1;
        let done = match PartitionLogCommand::decode(command) {
            Some(PartitionLogCommand::Append { id, value }) => shard.data.append(id, value, BYTES),
            Some(PartitionLogCommand::Trim { through }) => {
                PartitionLogAnswer::Removed(shard.data.trim(through, BYTES))
            }
            None => PartitionLogAnswer::Malformed,
        };
        answer.extend(done.encode());
        match done {
            PartitionLogAnswer::Full | PartitionLogAnswer::Malformed => Outcome::NotExecuted,
            _ => Outcome::Executed,
        }
    }

    fn reconciler(&self) -> Option<Reconciler<PartitionLogState>> {
        Some(PartitionLogState::merge)
    }

    fn enter_view(&self, data: &mut PartitionLogState, view: ViewName, _members: u32) {
        data.enter(view.number());
    }

    fn settle(&self, data: &mut PartitionLogState, executed: u64) {
        data.trimmed.settle((data.configuration, executed));
    }
}

//! Parts of commands that are larger than a message, kept with a shard's state until the command is whole.
//!
//! The parts that are kept, and those refused for want of room, follow from the deliveries of the shard and
//! its ordered time, so they are the same on all replicas. A session has parts of one command at a time. They
//! are dropped when the command is assembled, when there is no room for another one of it, when the session
//! sends another command in the shard, and when none has arrived for [`PARTS_MS`] of ordered time.

use super::mutant::{self, ExecutorMutant};
use super::sessions::Admission;
use super::{DeliveryResult, Executor, ExecutorFull, OnCommandAnswer, OrderedCommand, Payload};
use crate::envelope::Envelope;
use crate::hash::Keyed;
use crate::machine::{Corrupt, Refusal, ShardPosition, ShardedMachine};
use crate::parts::{Assembly, CommandPart, KEPT, PARTS_MAX};
use crate::stream::{Piece, StreamReader, follows, next};
use amcast_core::limits::{COMMAND_BYTES_MAX, PAYLOAD_BYTES_MAX};
use amcast_core::{Gid, GroupSet, MsgId, Outcome};
use indexmap::IndexMap;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Bytes of parts that a shard keeps, for all sessions together. The same on all nodes.
const SHARD_BYTES_MAX: usize = 256 << 20;

/// Bytes that a part counts beside its own.
const PART_BYTES: usize = 256;

/// Bytes of parts that one session may have: a largest command, an epoch before it, and what as many parts count as
/// there may be.
const SESSION_BYTES_MAX: usize = COMMAND_BYTES_MAX + (17 << 20);

/// The same two in tests, which fill them.
#[cfg(any(test, feature = "inspection"))]
pub(super) const BYTES_MAX_IN_TESTS: (usize, usize) = (100 << 10, 20 << 10);

/// Bytes of parts that a shard keeps, and that one session may have.
#[cfg(not(any(test, feature = "inspection")))]
const fn bytes_max() -> (usize, usize) {
    (SHARD_BYTES_MAX, SESSION_BYTES_MAX)
}

/// The same, less where a test said so.
#[cfg(any(test, feature = "inspection"))]
fn bytes_max() -> (usize, usize) {
    let is_less = cfg!(test) || IS_LESS.load(std::sync::atomic::Ordering::Relaxed);
    if is_less { BYTES_MAX_IN_TESTS } else { (SHARD_BYTES_MAX, SESSION_BYTES_MAX) }
}

#[cfg(any(test, feature = "inspection"))]
static IS_LESS: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

/// Has all executors of this process keep less of parts: see [`BYTES_MAX_IN_TESTS`].
#[cfg(feature = "inspection")]
pub fn keep_less() {
    IS_LESS.store(true, std::sync::atomic::Ordering::Relaxed);
}

/// How long parts are kept behind the last one, in milliseconds of ordered time. The same on all nodes.
pub(super) const PARTS_MS: u64 = 60_000;

/// Bytes of commands that were put together and wait in one shard; one may be larger.
const ASSEMBLED_BYTES_MAX: usize = 128 << 20;

/// The parts of one session's command.
#[derive(Clone, Debug)]
struct Gathering {
    /// The request of the first part.
    first: u64,
    /// Ordered time of the last part, by the hosts' clock.
    used_ms: u64,
    /// By request.
    parts: BTreeMap<u64, Arc<[u8]>>,
    /// Their counted size.
    bytes: usize,
}

/// The parts that one shard keeps.
#[derive(Default, Debug)]
pub(super) struct Parts {
    /// By session. A clone shares them; one is copied when it is changed then.
    table: IndexMap<u64, Arc<Gathering>, Keyed>,
    /// When each session's last part came.
    by_age: BTreeSet<(u64, u64)>,
    bytes: usize,
}

impl Parts {
    /// Bytes that they count.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    fn remove(&mut self, session: u64) -> Option<Arc<Gathering>> {
        let gathering = self.table.swap_remove(&session)?;
        self.by_age.remove(&(gathering.used_ms, session));
        self.bytes = self.bytes.saturating_sub(gathering.bytes);
        Some(gathering)
    }

    /// Drops the parts of a session that says that all requests below `open_from` were answered, if they are older.
    pub(super) fn release(&mut self, session: u64, open_from: u64) {
        if self.table.get(&session).is_some_and(|gathering| gathering.first < open_from) {
            self.remove(session);
        }
    }

    /// Drops those for which nothing came for too long.
    pub(super) fn expire(&mut self, host_ms: u64) {
        while let Some((used_ms, session)) = self.by_age.first().copied() {
            if used_ms.saturating_add(PARTS_MS) >= host_ms {
                return;
            }
            self.remove(session);
        }
    }

    /// Keeps a part that comes at `host_ms`, unless it is there.
    fn keep(&mut self, part: &CommandPart<'_>, host_ms: u64) -> Result<(), Refusal> {
        let Envelope { session, request, .. } = part.envelope;
        let first = part.first();
        if request.checked_sub(first).is_none_or(|index| index >= PARTS_MAX) {
            return Err(Refusal::Window);
        }
        // The floor of the session is the first part's request at least.
        self.release(session, first);
        let (has, held) = match self.table.get(&session) {
            Some(gathering) => (gathering.parts.contains_key(&request), gathering.bytes),
            None => (false, 0),
        };
        if has {
            return Ok(());
        }
        let more = part.bytes.len() + PART_BYTES;
        let (shard_bytes_max, session_bytes_max) = bytes_max();
        if self.bytes + more > shard_bytes_max || held + more > session_bytes_max {
            // Its command cannot become whole any more: others have the room.
            if !mutant::is(ExecutorMutant::KeepsRefused) {
                self.remove(session);
            }
            return Err(Refusal::NoRoom);
        }
        self.put(session, (first, host_ms), request, part.bytes.into());
        Ok(())
    }

    /// Adds a part that is not there.
    fn put(&mut self, session: u64, (first, used_ms): (u64, u64), request: u64, part: Arc<[u8]>) {
        let bytes = part.len() + PART_BYTES;
        let empty = || Gathering { first, used_ms, parts: BTreeMap::new(), bytes: 0 };
        let gathering = self.table.entry(session).or_insert_with(|| Arc::new(empty()));
        let gathering = Arc::make_mut(gathering);
        self.by_age.remove(&(gathering.used_ms, session));
        gathering.used_ms = gathering.used_ms.max(used_ms);
        self.by_age.insert((gathering.used_ms, session));
        gathering.parts.insert(request, part);
        gathering.bytes += bytes;
        self.bytes += if mutant::is(ExecutorMutant::CountsNothing) { 0 } else { bytes };
    }

    /// Whether the parts of a command are all there, with as many bytes as it says.
    fn has_all(&self, assembly: &Assembly) -> bool {
        let Some(gathering) = self.table.get(&assembly.envelope.session) else { return false };
        let count = u64::from(assembly.parts);
        let bytes = gathering.bytes - gathering.parts.len() * PART_BYTES;
        Some(gathering.first) == assembly.first()
            && gathering.parts.len() as u64 == count
            && gathering.parts.range(gathering.first..assembly.envelope.request).count() as u64
                == count
            && bytes as u64 == assembly.bytes
    }

    /// Takes the parts of a command out, and puts the envelope and them together; none if one is missing, or
    /// they are others than the assembly says.
    fn assemble(&mut self, assembly: &Assembly) -> Option<Arc<[u8]>> {
        if !self.has_all(assembly) && !mutant::is(ExecutorMutant::RunsIncomplete) {
            return None;
        }
        let gathering = self.remove(assembly.envelope.session)?;
        let mut whole = Vec::with_capacity(Envelope::BYTES + assembly.bytes as usize);
        assembly.envelope.encode(&mut whole);
        // Each part goes as it is copied, unless a snapshot has it.
        let gathering = Arc::try_unwrap(gathering).unwrap_or_else(|shared| (*shared).clone());
        gathering.parts.into_values().for_each(|part| whole.extend_from_slice(&part));
        let sum = crc32c::crc32c(&whole[Envelope::BYTES..]);
        (sum == assembly.sum || mutant::is(ExecutorMutant::RunsIncomplete)).then(|| whole.into())
    }

    /// All parts at this moment, for a snapshot.
    pub(super) fn snapshot(&self) -> PartsSnapshot {
        let all = self.table.iter().map(|(session, gathering)| (*session, gathering.clone()));
        let mut left: Vec<_> = all.filter(|_| !mutant::is(ExecutorMutant::ForgetsAtCut)).collect();
        left.sort_unstable_by_key(|(session, _)| std::cmp::Reverse(*session));
        PartsSnapshot { left, from: None }
    }

    /// Reads the bytes of [`PartsSnapshot::give`] into an empty table.
    pub(super) fn read(&mut self, from: &mut StreamReader<'_>) -> Result<(), Corrupt> {
        while follows(from)? {
            let session = from.word()?;
            let first = from.word()?;
            let used_ms = from.word()?;
            if self.table.contains_key(&session) {
                return Err(Corrupt::Malformed);
            }
            let mut last = None;
            while follows(from)? {
                let (request, part) = (from.word()?, from.bytes()?);
                if request < first || last >= Some(request) || part.len() > PAYLOAD_BYTES_MAX {
                    return Err(Corrupt::Malformed);
                }
                last = Some(request);
                self.put(session, (first, used_ms), request, part.into());
            }
            // A session without parts is none.
            last.ok_or(Corrupt::Malformed)?;
        }
        Ok(())
    }

    /// All of it, for tests that compare two.
    #[cfg(feature = "inspection")]
    pub(super) fn dump(&self) -> String {
        let all: BTreeMap<_, _> = self.table.iter().collect();
        format!("{} {all:?}", self.bytes)
    }
}

/// The parts of a shard in a snapshot that were not given, those of the next session last, and the request of its next
/// part if it was begun.
pub(super) struct PartsSnapshot {
    left: Vec<(u64, Arc<Gathering>)>,
    from: Option<u64>,
}

impl PartsSnapshot {
    /// Gives the next parts; false if those were all.
    pub(super) fn give(&mut self, to: &mut Piece<'_>) -> bool {
        while let Some((session, gathering)) = self.left.last() {
            let from = self.from.unwrap_or_else(|| {
                next(true, to);
                [*session, gathering.first, gathering.used_ms].iter().for_each(|w| to.word(*w));
                gathering.first
            });
            for (request, part) in gathering.parts.range(from..) {
                self.from = Some(*request);
                if to.is_full() {
                    return true;
                }
                next(true, to);
                to.word(*request);
                to.bytes(part);
            }
            next(false, to);
            self.left.pop();
            self.from = None;
        }
        next(false, to);
        false
    }
}

impl<M: ShardedMachine> Executor<M> {
    /// Bytes of parts of commands that `shard` keeps.
    pub fn parts_bytes(&self, shard: Gid) -> usize {
        self.heads[shard.index()].parts.bytes()
    }

    /// Takes a part of a command that is ordered in `shard`, and answers it.
    pub(super) fn keep_part(
        &mut self,
        (shard, position): (Gid, u64),
        (id, dst): (MsgId, GroupSet),
        part: &CommandPart<'_>,
        on_answer: OnCommandAnswer<'_>,
    ) {
        let Envelope { session, request, stamp, .. } = part.envelope;
        let head = &mut self.heads[shard.index()];
        head.delivered = position;
        head.go_on(head.time(stamp));
        let now_ms = head.now.host_ms;
        head.parts.expire(now_ms);
        // A part has one place: the shard that keeps its command's session.
        if dst != GroupSet::one(shard) {
            return;
        }
        let time = head.session_time(now_ms);
        let Admission { floor, timing, .. } =
            head.floors.admit_part(&part.envelope, position, time, &self.limits);
        head.parts.release(session, floor);
        let kept = match timing.refusal(now_ms) {
            // The session is beyond the command.
            _ if part.first() < floor && !mutant::is(ExecutorMutant::KeepsLateParts) => {
                Err(Refusal::Forgotten { outcome: Outcome::Unknown })
            }
            Some(untimely) => Err(untimely),
            None => head.parts.keep(part, now_ms),
        };
        match kept {
            Ok(()) => {
                let outcome = Outcome::Executed;
                on_answer(super::CommandAnswer { id, session, request, outcome, bytes: KEPT });
            }
            Err(why) => {
                let mut answer = Vec::new();
                self.machine.refuse(why, b"", &mut answer);
                let outcome = why.outcome();
                on_answer(super::CommandAnswer { id, session, request, outcome, bytes: &answer });
            }
        }
    }

    /// Takes the assembly of a command that is ordered in `shard`. In the lowest of its shards the parts are put
    /// together; if one is missing there, the command is refused at its turn.
    pub(super) fn assemble(
        &mut self,
        (shard, position): (Gid, u64),
        (id, dst): (MsgId, GroupSet),
        (assembly, payload): (&Assembly, &[u8]),
        on_answer: OnCommandAnswer<'_>,
    ) -> Result<DeliveryResult, ExecutorFull> {
        let head = &mut self.heads[shard.index()];
        let place = ShardPosition { shard, position, now: head.time(assembly.envelope.stamp) };
        head.parts.expire(place.now.host_ms);
        let is_lowest = dst.lowest() == Some(shard);
        let waits = self.lanes.assembled_bytes(shard);
        let most = ASSEMBLED_BYTES_MAX.saturating_sub(waits) as u64;
        let is_too_much = is_lowest && waits > 0 && assembly.bytes > most;
        if is_too_much || self.lanes.is_full(shard, payload.len(), &self.limits) {
            return Err(ExecutorFull);
        }
        let head = &mut self.heads[shard.index()];
        let whole = if is_lowest { head.parts.assemble(assembly) } else { None };
        let payload = match whole {
            Some(whole) => Payload::Shared(whole),
            None => Payload::Message(payload),
        };
        // Its keys are known only in the shard that has its parts: it counts as touching all keys.
        let ordered =
            OrderedCommand { id, dst, envelope: assembly.envelope, payload, is_known: false };
        self.take(place, &ordered, on_answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envelope::Stamp;

    fn part(session: u64, request: u64, first: u64, bytes: &[u8]) -> CommandPart<'_> {
        let stamp = Stamp::default();
        let envelope = Envelope { session, request, open_from: first, stamp, read_only: false };
        CommandPart { envelope, bytes }
    }

    const PART: usize = 1_000;

    #[test]
    fn a_shard_keeps_as_much_as_it_may_and_what_goes_makes_room() {
        let (mut parts, bytes) = (Parts::default(), [7; PART]);
        let fits = BYTES_MAX_IN_TESTS.0 / (PART + PART_BYTES);
        for i in 0..fits as u64 {
            assert_eq!(parts.keep(&part(1 + i / 8, i, i / 8 * 8, &bytes), i), Ok(()));
        }
        let more = part(100, 1, 1, &bytes);
        assert_eq!(parts.keep(&more, 0), Err(Refusal::NoRoom));
        assert_eq!(parts.keep(&part(1, 0, 0, &bytes), 0), Ok(()), "it is there already");
        parts.release(2, 8);
        assert_eq!(parts.keep(&more, 0), Err(Refusal::NoRoom), "its parts begin there");
        parts.release(2, 9);
        assert_eq!(parts.keep(&more, 300), Ok(()));
        parts.expire(PARTS_MS + 8);
        let of = |n: usize| n * (PART + PART_BYTES);
        assert_eq!(parts.bytes(), of(fits - 16 + 1), "those of the first session are gone, too");
        parts.expire(PARTS_MS + 301);
        assert_eq!((parts.bytes(), parts.by_age.len()), (0, 0));
    }

    #[test]
    fn a_session_has_no_more_than_a_largest_command() {
        let (mut parts, bytes) = (Parts::default(), [7; PART]);
        let mut all = (0..100).map(|i| parts.keep(&part(1, i, 0, &bytes), 0));
        let kept = all.by_ref().take_while(Result::is_ok).count();
        assert_eq!(kept, BYTES_MAX_IN_TESTS.1 / (PART + PART_BYTES));
        drop(all);
        assert_eq!(parts.bytes(), 0, "it cannot become whole");
        assert_eq!(parts.keep(&part(1, PARTS_MAX, 0, b"x"), 0), Err(Refusal::Window));
        assert_eq!(parts.keep(&part(1, 0, 1, b"x"), 0), Err(Refusal::Window));
        assert_eq!(parts.keep(&part(1, 200, 200, b"x"), 0), Ok(()), "another command");
        assert_eq!(parts.bytes(), 1 + PART_BYTES);
    }
}

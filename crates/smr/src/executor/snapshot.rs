//! The snapshot: a node's state at one moment, given out piece by piece while commands execute.
//!
//! A *snapshot* begins between two commands ([`Executor::capture`]) and holds exactly the state of that
//! moment: every node that reads it continues behind each shard's
//! [`delivered`](Executor::delivered) position. The machine copies items that change before they
//! were sent. The other parts of the state are taken at once, by reference: the waiting commands,
//! at most [`Limits::waiting`](super::Limits::waiting) a shard, and the sessions, as many as the
//! gateways' pools have; a session that is used while the snapshot is open is copied then. Taking them
//! costs some nanoseconds each and copies no bytes of commands or answers.
//!
//! In the [stream](crate::stream), in this order: each shard's position, ordered time and clock reports (since
//! version 8), and by how much time leapt (since version 14); the messages that were skipped or wait to be, each with one
//! place of it (since version 11); the waiting commands; each shard's floors of sessions, with what was refused by its
//! stamp (since version 14), and what began each session (since version 16); each shard's parts of commands (since version 12); and for each shard the requests of
//! its sessions, with their outcomes (since version 13), and the machine's part. A byte of one precedes each item of
//! a list, a zero follows the last. A piece may be longer than asked for by one part of a command, or by one session
//! with its answers.

use super::clocks::ClockReports;
use super::mutant::{self, ExecutorMutant};
use super::parts::PartsSnapshot;
use super::sessions::{Admission, Floor, Floors, StampRefusal, Timing, UNTIMELY_MAX};
use super::shard_state::ShardState;
use super::skips::by_message;
use super::waiting::{Arrival, ShardLanes, WaitingEntry};
use super::{Engine, Executor, Limits, Payload, ShardHead, access_of};
use crate::envelope::{Envelope, Stamp};
use crate::hash::Keyed;
use crate::machine::{Corrupt, NEW_BUDGET, ShardPosition, ShardedMachine};
use crate::parts::header;
use crate::stream::{Piece, StreamProgress, StreamReader, follows, next};
use amcast_core::limits::{COMMAND_BYTES_MAX, PAYLOAD_BYTES_MAX, REPLICAS_MAX};
use amcast_core::{Gid, GroupSet, MsgId, Pid, SkipDecision};
use indexmap::IndexMap;
use std::collections::{BTreeMap, VecDeque};
use std::io::Read;
use std::sync::Arc;

/// The first version of the stream that holds the replicas' clock reports.
const CLOCKS_SINCE: u8 = 8;

/// The first version of the stream that holds parts of commands.
const PARTS_SINCE: u8 = 12;

/// The first version of the stream in which waiting commands say where all waits for them.
const EXACT_SINCE: u8 = 9;

/// The first version of the stream that holds skipped messages.
const SKIPPED_SINCE: u8 = 11;

/// The first version of the stream that says by how much ordered time leapt, and what was refused by its stamp.
const LEAPS_SINCE: u8 = 14;

/// The first version of the stream that says by which delivery a session began.
pub(super) const BEGUN_SINCE: u8 = 16;

/// All that a node's commands came to.
pub struct ExecutorState<M: ShardedMachine> {
    pub(super) heads: Vec<ShardHead>,
    /// The messages that were not executed, by decision of the cluster's operators.
    pub(super) skipped: BTreeMap<MsgId, SkipDecision>,
    pub(super) lanes: ShardLanes,
    pub(super) sides: Vec<ShardState<M::Part>>,
}

/// The part of a snapshot that is the executor's, and how much of it was given.
pub(super) struct ExecutorSnapshot {
    progress: StreamProgress,
    /// The heads, until they are sent.
    heads: Option<Vec<HeadSnapshot>>,
    /// Those that were skipped.
    skipped: Vec<SkipDecision>,
    waiting: VecDeque<SnapshotCommand>,
    /// The rest of the payload of a waiting command, and the number of its bytes already sent.
    rest: Option<(Arc<[u8]>, usize)>,
    /// The parts of commands in each shard.
    parts: Vec<PartsSnapshot>,
    /// The floors of each shard's sessions, and the index of the next one.
    floors: Vec<(IndexMap<u64, Floor, Keyed>, usize)>,
    stage: SnapshotStage,
}

/// One shard's position, ordered time, clock reports, and by how much time leapt.
struct HeadSnapshot {
    delivered: u64,
    now: Stamp,
    clocks: ClockReports,
    leapt_ms: u64,
}

impl HeadSnapshot {
    fn of(head: &ShardHead) -> Self {
        let ShardHead { delivered, now, leapt_ms, .. } = *head;
        Self { delivered, now, clocks: head.clocks.clone(), leapt_ms }
    }
}

/// The next part to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SnapshotStage {
    Waiting,
    Floors(usize),
    Parts(usize),
    ShardState(usize),
    End,
}

/// The part of a state in front of the floors, in one format for all services.
pub(super) struct SnapshotTop {
    pub(super) heads: Vec<ShardHead>,
    pub(super) skipped: Vec<SkipDecision>,
    pub(super) waiting: Vec<SnapshotCommand>,
}

impl SnapshotTop {
    /// Reads it from behind the first bytes of the stream of so many shards.
    pub(super) fn read(from: &mut StreamReader<'_>, shards: usize) -> Result<Self, Corrupt> {
        let mut heads: Vec<ShardHead> = (0..shards).map(|_| ShardHead::default()).collect();
        for head in &mut heads {
            (head.delivered, head.now) = (from.word()?, read_stamp(from)?);
            if from.version() >= CLOCKS_SINCE {
                head.clocks = read_clocks(from)?;
            }
            if from.version() >= LEAPS_SINCE {
                head.leapt_ms = from.word()?;
            }
        }
        let mut skipped = Vec::new();
        while from.version() >= SKIPPED_SINCE && follows(from)? {
            skipped.push(read_skipped(from, shards)?);
        }
        let mut waiting = Vec::new();
        while follows(from)? {
            waiting.push(SnapshotCommand::read(from, shards)?);
        }
        Ok(Self { heads, skipped, waiting })
    }
}

/// A waiting command.
#[derive(Debug)]
pub(super) struct SnapshotCommand {
    pub(super) id: MsgId,
    pub(super) dst: GroupSet,
    admission: Admission,
    /// Where it waits for all in front of it, and all behind waits.
    exact: GroupSet,
    /// Each with the position of the command in front of it.
    pub(super) places: Vec<(ShardPosition, u64)>,
    payload: Arc<[u8]>,
}

impl SnapshotCommand {
    fn of(e: &WaitingEntry, lanes: &ShardLanes) -> Self {
        let places = e.places.iter().map(|p| (*p, lanes.before(p))).collect();
        Self {
            id: e.id,
            dst: e.dst,
            admission: e.admission,
            exact: e.exact,
            places,
            payload: e.payload.clone(),
        }
    }

    /// Gives all but the payload, which may be large.
    fn give(&self, to: &mut Piece<'_>) {
        let Self { id, dst, admission, exact, places, payload } = self;
        let Admission { floor, timing, lived_ms, begun } = *admission;
        let (sender, count) = (u64::from(id.sender.0), places.len() as u64);
        let judged = [floor, timing.code(), lived_ms, begun];
        for word in [sender, id.seq, dst.0].into_iter().chain(judged).chain([exact.0, count]) {
            to.word(word);
        }
        for (p, before) in places {
            for word in [u64::from(p.shard.0), p.position, p.now.wall_ms, p.now.host_ms, *before] {
                to.word(word);
            }
        }
        to.word(payload.len() as u64);
    }

    fn read(from: &mut StreamReader<'_>, shards: usize) -> Result<Self, Corrupt> {
        let sender = u32::try_from(from.word()?).map_err(|_| Corrupt::Malformed)?;
        let id = MsgId { sender: Pid(sender), seq: from.word()? };
        let (dst, floor) = (GroupSet(from.word()?), from.word()?);
        let judged = match from.version() >= LEAPS_SINCE {
            true => Some((Timing::of_code(from.word()?).ok_or(Corrupt::Malformed)?, from.word()?)),
            false => None,
        };
        let begun = if from.version() >= BEGUN_SINCE { from.word()? } else { 0 };
        let exact = if from.version() >= EXACT_SINCE { from.word()? } else { 0 };
        let (exact, count) = (GroupSet(exact), from.word()?);
        if !dst.within(GroupSet::first(shards)) || count == 0 || count > dst.len() as u64 {
            return Err(Corrupt::Malformed);
        }
        let mut places: Vec<(ShardPosition, u64)> = Vec::new();
        for _ in 0..count {
            let shard = from.word()?;
            let (position, now) = (from.word()?, read_stamp(from)?);
            let before = from.word()?;
            let known = places.iter().any(|(p, _)| u64::from(p.shard.0) == shard);
            if known
                || before >= position
                || shard >= shards as u64
                || !dst.contains(Gid(shard as u8))
            {
                return Err(Corrupt::Malformed);
            }
            places.push((ShardPosition { shard: Gid(shard as u8), position, now }, before));
        }
        let payload = from.bytes()?;
        if payload.len() > COMMAND_BYTES_MAX + PAYLOAD_BYTES_MAX {
            return Err(Corrupt::Malformed);
        }
        let (envelope, _) = header(&payload).ok_or(Corrupt::Malformed)?;
        let lowest = places.iter().find(|(p, _)| dst.lowest() == Some(p.shard));
        let (timing, lived_ms) = judged.unwrap_or_else(|| judged_before(&envelope, lowest));
        let admission = Admission { floor, timing, lived_ms, begun };
        Ok(Self { id, dst, admission, exact, places, payload: payload.into() })
    }
}

/// How a command that waits in a state of before [`LEAPS_SINCE`] was judged: when its turn came, by ordered time in its
/// lowest shard. Both times were the same then.
fn judged_before(envelope: &Envelope, lowest: Option<&(ShardPosition, u64)>) -> (Timing, u64) {
    let Some((ShardPosition { now, .. }, _)) = lowest else { return (Timing::InTime, 0) };
    let stamp_ms = envelope.stamp.host_ms;
    let timing = match stamp_ms.saturating_add(Limits::default().session_ms) < now.host_ms {
        _ if envelope.read_only => Timing::InTime,
        true => Timing::Old,
        false if stamp_ms > now.host_ms => Timing::Ahead,
        false => Timing::InTime,
    };
    (timing, now.host_ms)
}

impl ExecutorSnapshot {
    fn of(heads: &[ShardHead], skipped: Vec<SkipDecision>, lanes: &ShardLanes) -> Self {
        Self {
            progress: StreamProgress::default(),
            skipped,
            heads: Some(heads.iter().map(HeadSnapshot::of).collect()),
            waiting: lanes.iter().map(|e| SnapshotCommand::of(e, lanes)).collect(),
            rest: None,
            parts: heads.iter().map(|h| h.parts.snapshot()).collect(),
            floors: heads.iter().map(|h| (h.floors.table.clone(), 0)).collect(),
            stage: SnapshotStage::Waiting,
        }
    }

    /// Fills `piece`, and returns the next stage.
    fn give<M: ShardedMachine>(
        &mut self,
        engine: &mut Engine<M>,
        heads: Option<Vec<HeadSnapshot>>,
        piece: &mut Piece<'_>,
    ) {
        if let Some(heads) = heads {
            give_heads(&heads, piece);
            self.skipped.iter().for_each(|skipped| give_skipped(skipped, piece));
            next(false, piece);
        }
        let shards = self.floors.len();
        while !piece.is_full() && self.stage != SnapshotStage::End {
            if let Some((payload, given)) = &mut self.rest {
                *given += piece.some(&payload[*given..]);
                if *given == payload.len() {
                    self.rest = None;
                }
                continue;
            }
            match self.stage {
                SnapshotStage::Waiting => {
                    let waiting = self.waiting.pop_front();
                    next(waiting.is_some(), piece);
                    match waiting {
                        Some(waiting) => {
                            waiting.give(piece);
                            self.rest = Some((waiting.payload, 0));
                        }
                        None => self.stage = SnapshotStage::Floors(0),
                    }
                }
                SnapshotStage::Floors(shard) => {
                    let (table, given) = &mut self.floors[shard];
                    let item = table.get_index(*given);
                    next(item.is_some(), piece);
                    if let Some((id, floor)) = item {
                        give_floor(*id, floor, piece);
                        *given += 1;
                    } else if shard + 1 < shards {
                        self.stage = SnapshotStage::Floors(shard + 1);
                    } else {
                        self.stage = SnapshotStage::Parts(0);
                    }
                }
                SnapshotStage::Parts(shard) => match self.parts[shard].give(piece) {
                    true => return,
                    false if shard + 1 < shards => self.stage = SnapshotStage::Parts(shard + 1),
                    false => self.stage = SnapshotStage::ShardState(0),
                },
                SnapshotStage::ShardState(shard) => {
                    let more = match engine {
                        Engine::Here(sides) => Some(sides[shard].piece(piece)),
                        Engine::Pool(pool) => pool.in_cut(shard, |side| side.piece(piece)),
                    };
                    match more {
                        Some(false) if shard + 1 < shards => {
                            self.stage = SnapshotStage::ShardState(shard + 1)
                        }
                        Some(false) => self.stage = SnapshotStage::End,
                        // There is more, or the shard cannot give just now.
                        Some(true) | None => return,
                    }
                }
                SnapshotStage::End => {}
            }
        }
    }
}

impl<M: ShardedMachine> Executor<M> {
    /// Begins a snapshot: the state at this moment, to be given in pieces. One begun before is dropped:
    /// its receiver finds that its pieces end too early.
    pub fn capture(&mut self) {
        match &mut self.engine {
            Engine::Here(sides) => sides.iter_mut().for_each(ShardState::capture),
            Engine::Pool(pool) => pool.capture(),
        }
        self.snapshot =
            Some(Box::new(ExecutorSnapshot::of(&self.heads, self.skips.done(), &self.lanes)));
    }

    /// Appends about `most` bytes of the snapshot to `to`; false if that was all, and when there is no
    /// snapshot. The snapshot is then released. Takes time in proportion to `most`, however much there is.
    /// With workers it may add nothing, when a shard has not come to the snapshot.
    pub fn piece(&mut self, most: usize, to: &mut Vec<u8>) -> bool {
        let Some(mut snapshot) = self.snapshot.take() else { return false };
        let mut progress = snapshot.progress;
        let heads = snapshot.heads.take();
        if heads.is_some() {
            Piece::begin(self.heads.len(), &mut progress, to);
        }
        let mut piece = Piece::new(most, &mut progress, to);
        snapshot.give(&mut self.engine, heads, &mut piece);
        let more = snapshot.stage != SnapshotStage::End;
        piece.end(!more);
        if more {
            snapshot.progress = progress;
            self.snapshot = Some(snapshot);
        }
        more
    }

    /// Forgets the snapshot.
    pub fn release(&mut self) {
        self.snapshot = None;
        match &mut self.engine {
            Engine::Here(sides) => sides.iter_mut().for_each(ShardState::release),
            Engine::Pool(pool) => pool.release(),
        }
    }

    /// Puts `state` in force, and gives back the one before it: dropping much takes time. A snapshot
    /// that was open is forgotten. Both are of as many shards. With workers it waits until they
    /// have run their tasks.
    pub fn adopt(&mut self, mut state: ExecutorState<M>) -> ExecutorState<M> {
        assert_eq!(state.heads.len(), self.heads.len(), "a node's shards stay the same");
        self.release();
        self.cleared = false;
        std::mem::swap(&mut self.heads, &mut state.heads);
        self.heads.iter_mut().for_each(|head| head.clocks.agree(self.clocks));
        std::mem::swap(&mut self.lanes, &mut state.lanes);
        state.skipped = self.skips_of_state(std::mem::take(&mut state.skipped));
        match &mut self.engine {
            Engine::Here(sides) => {
                for (new, old) in state.sides.iter_mut().zip(&*sides) {
                    new.executed = old.executed;
                }
                std::mem::swap(sides, &mut state.sides);
            }
            Engine::Pool(pool) => state.sides = pool.replace(state.sides),
        }
        state
    }

    /// Forgets the state, and gives it back: dropping much takes time. No read is
    /// [answered](Self::peek) before another one is put in force.
    pub fn clear(&mut self) -> ExecutorState<M> {
        let empty = ExecutorState::new(&*self.machine, self.heads.len());
        let old = self.adopt(empty);
        self.cleared = true;
        old
    }
}

impl<M: ShardedMachine> ExecutorState<M> {
    /// Nothing done yet in any of `shards` shards.
    pub(super) fn new(machine: &M, shards: usize) -> Self {
        Self {
            heads: (0..shards).map(|_| ShardHead::default()).collect(),
            skipped: BTreeMap::new(),
            lanes: ShardLanes::new(shards),
            sides: (0..shards).map(|_| ShardState::new(machine.part())).collect(),
        }
    }

    /// Reads the bytes of [`Executor::piece`], to their end and not further.
    ///
    /// # Errors
    /// When the bytes are damaged, end too early, or are not of such a cluster and this version.
    pub fn read(machine: &M, shards: usize, from: &mut dyn Read) -> Result<Self, Corrupt> {
        let (mut from, there) = StreamReader::begin(from)?;
        if there != shards {
            return Err(Corrupt::Shards(there));
        }
        let SnapshotTop { heads, skipped, waiting } = SnapshotTop::read(&mut from, shards)?;
        let mut it = Self { heads, skipped: by_message(&skipped), ..Self::new(machine, shards) };
        for head in &mut it.heads {
            read_floors(&mut from, &mut head.floors)?;
        }
        if from.version() >= PARTS_SINCE {
            for head in &mut it.heads {
                head.parts.read(&mut from)?;
            }
        }
        for (head, side) in it.heads.iter().zip(&mut it.sides) {
            side.read(machine, &mut from)?;
            if from.version() < BEGUN_SINCE && !mutant::is(ExecutorMutant::AgesRetried) {
                side.sessions.keep_as_long_as(&head.floors);
            }
        }
        from.end()?;
        it.line_up_again(machine, &waiting)?;
        Ok(it)
    }

    /// The position of the last command that `shard` took.
    pub fn delivered(&self, shard: Gid) -> u64 {
        self.heads[shard.index()].delivered
    }

    /// Puts waiting commands back, each shard's in order of position. None of them can run: they
    /// waited when the snapshot was begun.
    fn line_up_again(&mut self, machine: &M, waiting: &[SnapshotCommand]) -> Result<(), Corrupt> {
        let mut arrivals: Vec<((ShardPosition, u64), &SnapshotCommand)> =
            waiting.iter().flat_map(|w| w.places.iter().map(move |p| (*p, w))).collect();
        arrivals.sort_by_key(|((p, _), _)| (p.shard, p.position));
        for (place, w) in arrivals {
            let (envelope, body) = header(&w.payload).ok_or(Corrupt::Malformed)?;
            let (place, before) = place;
            let exact = w.exact.contains(place.shard);
            // A skipped command touches no keys, and is not even decoded.
            let is_skipped = self.skipped.contains_key(&w.id);
            // One that was put together from parts counts as all of its shards, and as any growth or change of it.
            let is_large = w.payload.len() > PAYLOAD_BYTES_MAX;
            let body = body.filter(|_| !is_large && !is_skipped);
            let growth = match body {
                _ if envelope.read_only || is_skipped => 0,
                Some(body) => machine.growth(body).most,
                None => NEW_BUDGET,
            };
            let is_lowest = w.dst.lowest() == Some(place.shard);
            let payload = match is_large && is_lowest {
                true => Payload::Shared(w.payload.clone()),
                false => Payload::Message(&w.payload),
            };
            let arrival = Arrival { place, before, admission: Some(w.admission), growth, exact };
            let ready = self.lanes.enter((w.id, w.dst), arrival, &payload, |access| {
                if let Some(body) = body {
                    access_of(machine, (&envelope, body), w.dst, access);
                }
            });
            if ready.is_some() || place.position > self.heads[place.shard.index()].delivered {
                return Err(Corrupt::Malformed);
            }
        }
        Ok(())
    }
}

/// Sends the part in front of the waiting commands.
fn give_heads(heads: &[HeadSnapshot], to: &mut Piece<'_>) {
    for HeadSnapshot { delivered, now, clocks, leapt_ms } in heads {
        [*delivered, now.wall_ms, now.host_ms].iter().for_each(|w| to.word(*w));
        to.word(clocks.reports().len() as u64);
        for (pid, said) in clocks.reports() {
            let words = [u64::from(pid.0), said.wall_ms, said.host_ms];
            words.iter().for_each(|w| to.word(*w));
        }
        to.word(*leapt_ms);
    }
}

fn give_floor(session: u64, floor: &Floor, to: &mut Piece<'_>) {
    let Floor { begun, used_ms, command_ms, open_from, admitted, latest_ms, untimely } = floor;
    let count = untimely.len() as u64;
    let begun = [*begun, *command_ms];
    for word in [session, *used_ms, *open_from].into_iter().chain(begun) {
        to.word(word);
    }
    [*admitted, *latest_ms, count].iter().for_each(|w| to.word(*w));
    for StampRefusal { request, stamp_ms, at_ms, holds } in untimely {
        [*request, *stamp_ms, *at_ms].iter().for_each(|w| to.word(*w));
        to.byte(u8::from(*holds));
    }
}

fn give_skipped(skipped: &SkipDecision, to: &mut Piece<'_>) {
    next(true, to);
    let SkipDecision { msg, group, position } = *skipped;
    [u64::from(msg.sender.0), msg.seq, u64::from(group.0), position]
        .iter()
        .for_each(|w| to.word(*w));
}

fn read_skipped(from: &mut StreamReader<'_>, shards: usize) -> Result<SkipDecision, Corrupt> {
    let sender = u32::try_from(from.word()?).map_err(|_| Corrupt::Malformed)?;
    let seq = from.word()?;
    let group = from.word()?;
    let position = from.word()?;
    if group >= shards as u64 {
        return Err(Corrupt::Malformed);
    }
    let msg = MsgId { sender: Pid(sender), seq };
    Ok(SkipDecision { msg, group: Gid(group as u8), position })
}

fn read_stamp(from: &mut StreamReader<'_>) -> Result<Stamp, Corrupt> {
    Ok(Stamp { wall_ms: from.word()?, host_ms: from.word()? })
}

fn read_clocks(from: &mut StreamReader<'_>) -> Result<ClockReports, Corrupt> {
    let mut clocks = ClockReports::default();
    let count = from.word()?;
    for _ in 0..count {
        let pid = u32::try_from(from.word()?).map_err(|_| Corrupt::Malformed)?;
        clocks.hear(Pid(pid), read_stamp(from)?, REPLICAS_MAX);
    }
    // Neither one twice nor more than there can be.
    if clocks.reports().len() as u64 != count {
        return Err(Corrupt::Malformed);
    }
    Ok(clocks)
}

fn read_floors(from: &mut StreamReader<'_>, floors: &mut Floors) -> Result<(), Corrupt> {
    while follows(from)? {
        let id = from.word()?;
        let used_ms = from.word()?;
        let open_from = from.word()?;
        // Parts count as commands in a state of before: what is known is not forgotten with them.
        let (begun, command_ms) = match from.version() >= BEGUN_SINCE {
            true => (from.word()?, from.word()?),
            false => (0, used_ms),
        };
        let mut floor = Floor { begun, used_ms, command_ms, open_from, ..Floor::default() };
        if from.version() >= LEAPS_SINCE {
            (floor.admitted, floor.latest_ms) = (from.word()?, from.word()?);
            let count = from.word()?;
            if count > UNTIMELY_MAX as u64 {
                return Err(Corrupt::Malformed);
            }
            for _ in 0..count {
                let request = from.word()?;
                let stamp_ms = from.word()?;
                let at_ms = from.word()?;
                let holds = from.byte()? != 0;
                floor.untimely.push(StampRefusal { request, stamp_ms, at_ms, holds });
            }
        }
        floors.table.insert(id, floor);
    }
    Ok(())
}

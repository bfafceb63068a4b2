//! The application's state on disk, so that what led to it need not be kept for ever.
//!
//! A checkpoint is the state that a node would also send to another one ([`crate::state_transfer`]): that
//! of all its groups at one moment, sent a piece a round, while commands continue. A thread writes it
//! ([`amcast_storage::CheckpointDir`]). When it is durable each process receives the position of its group
//! ([`amcast_core::Input::Checkpointed`]), and may drop records that only earlier checkpoints needed.
//!
//! # When
//! A checkpoint spares the next start the log that led to it, and lets that log be trimmed. So the log
//! decides when one is due, and no clock does: when the logs of the node's processes have grown by as many
//! bytes as the last checkpoint has, and by [`LOG_BYTES_LEAST`] at the least. Then writing checkpoints costs no
//! more than writing the log does. It is also due when so much log was written that the next start would take
//! long to read it ([`LOG_BYTES_MOST`]), or would need much memory for its records ([`LOG_RECORDS_MOST`]).
//! Of what a start finds in the logs that counts which it executes again: the rest is older than the state on disk,
//! and is there because another node may need it. A cluster without work writes none, although its nodes order a
//! report of their clocks now and then.
//!
//! Where little room is left on the disk, one is due every now and then ([`LOOK_EVERY`]) if there is room for it:
//! gateways refuse then commands that may take more, so the logs hardly grow, and space freed by deletes is
//! returned to the disk by a later state alone. A checkpoint for which there is no room is given up, and tried
//! again at the next look: the node continues, as long as its logs have room.
//!
//! The nodes begin with different parts of the least behind them, by their rank: they do not write all at one
//! time. A state that another node gave is written as soon as it is in force: before that the others cannot
//! rely on it, and keep what led to it.
//!
//! # How fast
//! Nobody waits for a checkpoint, and its bytes go to the disk on which the logs are: [`Pace`] bounds them. But a life
//! that ends before its checkpoint is whole leaves the next one a longer log. So a life that finds that the one before
//! it ended in the middle of one begins early and hurries: it writes as fast as the disk takes it.
//!
//! How early is a search. Of a checkpoint that is begun at once nothing is gained, as it has what the last one has; one
//! that is begun when the log is executed may come too late for a life as short as the last one was. So it is begun when
//! half of what the last life had executed when it began its own is executed, and that is [noted](CheckpointDir::note):
//! a life that ends before its checkpoint is whole, or before it comes so far, leaves half as much to the next one. Once
//! it is whole, a second one follows with all that was executed meanwhile, after a [part](HASTE) of what makes one due.
//! So each life in which a state can be read and written takes up a part of the log that it finds, and the log of a
//! node whose lives are all short stays bounded. That is [twice](HURRIED) a life.

use crate::clock;
use crate::cluster_dir::LogLocation;
use crate::pace::Pace;
use crate::peer_registry::disk_number;
use crate::priority;
use crate::replica_log::LogVolume;
use amcast_core::{Gid, Span, Time};
use amcast_smr::application::{Application, StateReadError, WakeHandle};
use amcast_storage::{CheckpointReader, Limit, SaveProgress, StorageError};
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};

/// No checkpoint is written before the logs on a disk have grown by so many bytes.
const LOG_BYTES_LEAST: u64 = 64 << 20;

/// The same where the logs are in memory.
const LOG_BYTES_LEAST_IN_MEMORY: u64 = 8 << 20;

/// A checkpoint is written when the logs have grown by so many bytes, however large the state is: a start reads
/// about 100 MB in a second.
const LOG_BYTES_MOST: u64 = 4 << 30;

/// And by so many records: a process has the place of each in memory, some 100 bytes.
const LOG_RECORDS_MOST: u64 = 2_000_000;

/// How often it is looked how much room is left.
const LOOK_EVERY: Span = Span::secs(30);

/// Little room is left where the disk has less free than so many times what a state takes, within these bounds.
const SCARCE: (u64, u64, u64) = (8, 512 << 20, 2 << 30);

/// The free space that a state leaves besides, if it is written because little room is left.
const HURRY_LEAVES: u64 = 32 << 20;

/// The share of the bytes that make a checkpoint due which is enough for an incarnation that
/// hurries.
const HASTE: u64 = 4;

/// How many checkpoints of a life that hurries are hurried.
const HURRIED: u8 = 2;

/// About as many bytes are given in one round of a loop.
const PIECE_BYTES: usize = 64 << 10;

/// The checkpoints of a node.
pub(crate) struct Checkpoints {
    disk: amcast_storage::CheckpointDir,
    schedule: SaveSchedule,
    stage: SaveStage,
    piece: Vec<u8>,
    pace: Pace,
    /// Whether it is not awaited that the next piece is due.
    hurries: bool,
    /// One was given up for another node, and none is on disk since.
    gave_way: bool,
    /// The positions of a state that another node gave, while none as new as that is on disk.
    unsaved: Option<Vec<u64>>,
    /// The state that the application gives finds no room, and is dropped.
    dropped: bool,
    /// Where they are.
    path: PathBuf,
    /// When it is looked next how much room is left there.
    look_at: Time,
    /// The result of a thread's check of that; none while no thread checks.
    looking: Option<Receiver<u64>>,
}

/// The stage of a checkpoint. Positions are of the state that is being saved, by group.
enum SaveStage {
    Idle,
    /// The application gives it.
    Giving(Vec<u64>),
    /// All was given.
    Saving(Vec<u64>),
}

/// A state that was on disk, and the history of deliveries that came with it.
pub(crate) struct Restored<S> {
    pub(crate) state: S,
    pub(crate) history: Vec<u8>,
}

/// Checkpoints, and what is there.
pub(crate) struct OpenedCheckpoints<S> {
    pub(crate) checkpoints: Checkpoints,
    pub(crate) restored: Option<Restored<S>>,
}

impl Checkpoints {
    /// Opens the checkpoints of node `rank` of so many, and gives the newest state that is there. If
    /// it is damaged there is none, and an error in the log: what led to it is in the logs of the
    /// processes, or with other nodes. At most `per_second` bytes of states are written in a second, at first; none for
    /// any number. `wake` is called when there is something to [`poll`](Self::poll).
    ///
    /// # Errors
    /// When the directory cannot be used, or the newest state is whole and this program does not read it: the others may
    /// run the program that does, or nobody can give a state. The error says what to do.
    pub(crate) fn open<A: Application>(
        keeping: &LogLocation,
        (rank, nodes): (usize, usize),
        groups: usize,
        (wake, per_second): (WakeHandle, Option<u64>),
    ) -> Result<OpenedCheckpoints<A::State>, StorageError> {
        let owner = keeping.owner.of_checkpoints(disk_number(&keeping.path, rank));
        let FoundCheckpoints { mut disk, restored, last_bytes, unfinished, haste } = aside(|| {
            let path = keeping.checkpoints();
            let (mut disk, found) = amcast_storage::CheckpointDir::open(&path, wake, |_| {})?;
            disk.own(owner);
            if let Some(newest) =
                found.newest.as_ref().filter(|newest| !owner.may_be(newest.owner()))
            {
                let (path, of) = (newest.path().to_path_buf(), keeping.owner.names(newest.owner()));
                return Err(StorageError::ForeignCheckpoint { path, of });
            }
            for damage in &found.damaged {
                tracing::error!("a state is passed over: {damage}");
            }
            let newest = found.newest.as_ref().map_or(0, CheckpointReader::position);
            let haste = found.unfinished_at.map(|at| newest + at.saturating_sub(newest) / 2);
            let (restored, last_bytes) = restored::<A>(found.newest, groups, path)?;
            Ok(FoundCheckpoints { disk, restored, last_bytes, unfinished: found.unfinished, haste })
        })?;
        if unfinished {
            tracing::info!("the last life ended while it wrote its state: this one hurries");
        }
        // A life that ends before it comes so far leaves half of that to the next one.
        haste.into_iter().for_each(|position| disk.note(position));
        let least = if keeping.lasts { LOG_BYTES_LEAST } else { LOG_BYTES_LEAST_IN_MEMORY };
        let mut schedule = SaveSchedule::new(least, (rank, nodes));
        // A node that starts from a large one is busy with the commands since.
        schedule.last_bytes = last_bytes;
        (schedule.hurried, schedule.haste) = (if unfinished { HURRIED } else { 0 }, haste);
        let stage = SaveStage::Idle;
        let piece = Vec::new();
        let pace = Pace::new(per_second);
        let unsaved = None;
        let hurries = unfinished;
        let gave_way = false;
        let dropped = false;
        // Not all nodes at one time: several may share a disk.
        let look_at = clock::now() + Span(LOOK_EVERY.0 / nodes as u64 * rank as u64);
        let path = keeping.checkpoints();
        let checkpoints = Self {
            disk,
            schedule,
            stage,
            piece,
            pace,
            hurries,
            gave_way,
            unsaved,
            dropped,
            path,
            look_at,
            looking: None,
        };
        Ok(OpenedCheckpoints { checkpoints, restored })
    }

    /// A command of so many bytes was delivered.
    pub(crate) const fn delivered(&mut self, bytes: usize) {
        self.schedule.delivered(bytes as u64);
    }

    /// The volume of the logs of the node's processes since its start, with the records found in
    /// them. Called first when all of these were read.
    pub(crate) fn logged(&mut self, volume: LogVolume) {
        self.schedule.logged(volume);
    }

    /// The state that is being written, and the next one, are awaited: they are written as fast as the disk takes them.
    pub(crate) const fn hurry(&mut self) {
        self.hurries = true;
    }

    /// Another node asks for the state while one is being written. It goes first, once: whether it may.
    pub(crate) fn give_way(&mut self) -> bool {
        if self.gave_way {
            // A node that is asked again and again would never write one; now a node waits for it.
            self.hurry();
            return false;
        }
        self.give_up();
        self.gave_way = true;
        true
    }

    /// A state that another node gave is in force, at these positions.
    pub(crate) fn took_over(&mut self, positions: Vec<u64>) {
        self.unsaved = Some(positions);
    }

    /// Looks now and then how much room is left on the disk: where that is little, one is due as soon as anything was
    /// delivered. `holds` tells about how many bytes a state takes.
    pub(crate) fn look_at_room(&mut self, now: Time, holds: impl FnOnce() -> u64) {
        match self.looking.as_ref().map(Receiver::try_recv) {
            Some(Ok(free)) => {
                self.schedule.has_room(free, holds());
                self.looking = None;
            }
            Some(Err(TryRecvError::Disconnected)) => self.looking = None,
            Some(Err(TryRecvError::Empty)) | None => {}
        }
        if now < self.look_at {
            return;
        }
        (self.look_at, self.schedule.waits) = (now + LOOK_EVERY, false);
        if self.looking.is_none() {
            self.looking = look(self.path.clone());
        }
    }

    /// Whether one is to be begun. `executed` tells the position of the state that it would have, as far as
    /// [`begin`](Self::begin) says it.
    pub(crate) fn is_due(&self, executed: impl FnOnce() -> u64) -> bool {
        let is_due = self.unsaved.is_some() || self.schedule.is_due(executed);
        is_due && self.is_idle() && !self.schedule.waits
    }

    /// Whether none is being written.
    pub(crate) const fn is_idle(&self) -> bool {
        matches!(self.stage, SaveStage::Idle)
    }

    /// Whether there is more than in the last one.
    pub(crate) const fn has_more(&self) -> bool {
        self.schedule.has_more || self.unsaved.is_some()
    }

    /// Whether the application gives its state for one.
    pub(crate) const fn is_giving(&self) -> bool {
        matches!(self.stage, SaveStage::Giving(_))
    }

    /// Begins to save the state as it is now, in which the groups stand at `positions`. `history` goes
    /// in front of it.
    pub(crate) fn begin<A: Application>(
        &mut self,
        app: &mut A,
        positions: Vec<u64>,
        history: &[u8],
    ) {
        app.capture();
        self.pace.begin(clock::now());
        // Each of them only grows, so a later state has a higher number.
        self.disk.begin(positions.iter().sum());
        self.disk.give(&(history.len() as u64).to_le_bytes());
        self.disk.give(history);
        self.schedule.begun();
        self.stage = SaveStage::Giving(positions);
    }

    /// Gives a piece of the state, if there is room for it and it is time. Says whether it did.
    pub(crate) fn round<A: Application>(&mut self, app: &mut A) -> bool {
        let SaveStage::Giving(positions) = &mut self.stage else { return false };
        let from = clock::now();
        if self.disk.room() == 0 || !self.hurries && !self.pace.may(from) {
            return false;
        }
        self.piece.clear();
        let more = app.piece(PIECE_BYTES, &mut self.piece);
        self.pace.took(self.piece.len(), from, clock::now());
        self.disk.give(&self.piece);
        if !more {
            self.disk.finish();
            let positions = std::mem::take(positions);
            self.stage = if self.dropped { SaveStage::Idle } else { SaveStage::Saving(positions) };
            self.dropped = false;
        }
        !more || !self.piece.is_empty()
    }

    /// Gives no more: what the application gives is not that state any more.
    pub(crate) fn give_up(&mut self) {
        if self.is_giving() {
            self.disk.abandon();
            self.schedule.failed();
            self.dropped = false;
            self.stage = SaveStage::Idle;
        }
    }

    /// The positions of a state that has just come to be durable.
    ///
    /// # Errors
    /// When it cannot be saved, for another reason than that there is no room; the error says what to do.
    pub(crate) fn poll(&mut self) -> Result<Option<Vec<u64>>, StorageError> {
        let mut told = Vec::new();
        self.disk.take(|what| told.push(what));
        let mut durable = None;
        for what in told {
            durable = self.on_progress(what)?.or(durable);
        }
        Ok(durable)
    }

    /// Takes notice of the writer's progress with a state. Gives the positions of one that is durable now.
    fn on_progress(&mut self, what: SaveProgress) -> Result<Option<Vec<u64>>, StorageError> {
        let is_awaited = |position: u64| match &self.stage {
            SaveStage::Giving(positions) | SaveStage::Saving(positions) => {
                positions.iter().sum::<u64>() == position
            }
            SaveStage::Idle => false,
        };
        match what {
            SaveProgress::Saved { position, bytes } if is_awaited(position) => {
                Ok(self.saved(bytes))
            }
            // That a state which was given up found no room says nothing of the next one.
            SaveProgress::Failed { position, error }
                if is_awaited(position) || no_room(&error).is_none() =>
            {
                self.failed(error).map(|()| None)
            }
            _ => Ok(None),
        }
    }

    /// The state that is being saved is durable, with so many bytes: its positions.
    fn saved(&mut self, bytes: u64) -> Option<Vec<u64>> {
        self.schedule.saved(bytes);
        (self.hurries, self.gave_way) = (self.schedule.hurried > 0, false);
        let stage = std::mem::replace(&mut self.stage, SaveStage::Idle);
        let (SaveStage::Saving(positions) | SaveStage::Giving(positions)) = stage else {
            return None;
        };
        let is_older =
            |taken: &Vec<u64>| positions.iter().zip(taken).any(|(has, least)| has < least);
        self.unsaved = self.unsaved.take().filter(is_older);
        Some(positions)
    }
}

impl Checkpoints {
    /// The state could not be saved. For want of room it is given up, and tried again later.
    fn failed(&mut self, error: StorageError) -> Result<(), StorageError> {
        let Some(words) = no_room(&error) else { return Err(error) };
        tracing::error!("{words}");
        self.schedule.failed();
        self.schedule.waits = true;
        // The rest is given all the same, and dropped: the application has the state captured until then.
        self.dropped = self.is_giving();
        if !self.dropped {
            self.stage = SaveStage::Idle;
        }
        Ok(())
    }
}

/// That there is no room for a state, and what the node does; none where it could not be saved for another reason.
fn no_room(error: &StorageError) -> Option<String> {
    let StorageError::Full { path, what } = error else { return None };
    let who = match what {
        Limit::Disk => "the disk has no room for the state; make room there (`df`)",
        Limit::Quota => {
            "this user's quota has no room for the state; make room, or have it raised (`quota`)"
        }
        Limit::FileSize => return None,
    };
    Some(format!(
        "{}: {who}. The node continues, and tries to save its state again in {} s",
        path.display(),
        LOOK_EVERY.0 / 1_000_000_000
    ))
}

/// Has a thread look how much is free: a disk may hang, and the node's loop does not wait for it.
fn look(path: PathBuf) -> Option<Receiver<u64>> {
    let (to, found) = sync_channel(1);
    let look = move || {
        if let Ok(fs) = rustix::fs::statvfs(&path) {
            // The node may have ended.
            let _ = to.send(fs.f_bavail.saturating_mul(fs.f_frsize));
        }
    };
    std::thread::Builder::new().name("room".to_string()).spawn(look).ok().map(|_| found)
}

/// The state found when checkpoints were opened.
struct FoundCheckpoints<S> {
    disk: amcast_storage::CheckpointDir,
    restored: Option<Restored<S>>,
    /// How large the state is that was restored.
    last_bytes: u64,
    /// Whether the last life ended while it wrote one.
    unfinished: bool,
    /// The position from which this one begins its first, then.
    haste: Option<u64>,
}

/// Reads in a thread of low priority: where nodes share a machine, the others serve meanwhile.
fn aside<T: Send>(
    reads: impl FnOnce() -> Result<T, StorageError> + Send,
) -> Result<T, StorageError> {
    let reading = || {
        priority::stand_back();
        reads()
    };
    std::thread::scope(|scope| match scope.spawn(reading).join() {
        Ok(read) => read,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

/// The volume that a start would execute again.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct ReplayVolume {
    /// The volume of the logs.
    logged: LogVolume,
    /// The commands that were delivered in this life, also those that were in the logs before.
    delivered: LogVolume,
}

/// When a state is to be saved.
struct SaveSchedule {
    /// The logs grow by so many bytes at the least.
    least: u64,
    /// The present volume.
    volume: ReplayVolume,
    /// The volume when the last one was begun.
    at_last: ReplayVolume,
    /// The same of the one before, which counts if the last one is given up.
    at_last_but_one: ReplayVolume,
    /// Whether what the start found in the logs is known.
    has_begun: bool,
    /// Bytes that count besides, for the first one.
    ahead: u64,
    /// How large the last one is.
    last_bytes: u64,
    /// Whether commands were delivered since the last one.
    has_more: bool,
    /// How many are due early, since the life before ended in the middle of one.
    hurried: u8,
    /// The first of these is due when this position is executed, if the life before said which.
    haste: Option<u64>,
    /// Whether little room is left, and enough for one.
    is_scarce: bool,
    /// There was no room for the last one: the next one waits until it is looked again how much there is.
    waits: bool,
}

/// The log overhead of a command, one or two records, besides its own bytes.
const COMMAND_BYTES: u64 = 64;

impl SaveSchedule {
    fn new(least: u64, (rank, nodes): (usize, usize)) -> Self {
        let none = ReplayVolume::default();
        let ahead = least / nodes as u64 * rank as u64;
        Self {
            least,
            volume: none,
            at_last: none,
            at_last_but_one: none,
            has_begun: false,
            ahead,
            last_bytes: 0,
            has_more: false,
            hurried: 0,
            haste: None,
            is_scarce: false,
            waits: false,
        }
    }

    const fn delivered(&mut self, bytes: u64) {
        let LogVolume { records, bytes: before } = self.volume.delivered;
        let bytes = before + bytes + COMMAND_BYTES;
        self.volume.delivered = LogVolume { records: records + 1, bytes };
        self.has_more = true;
    }

    fn logged(&mut self, volume: LogVolume) {
        self.volume.logged = volume;
        if !std::mem::replace(&mut self.has_begun, true) {
            // Of that counts what is delivered.
            self.at_last.logged = volume;
            self.at_last_but_one = self.at_last;
        }
    }

    /// The disk has so much free, and a state takes about so much.
    fn has_room(&mut self, free: u64, holds: u64) {
        let (times, least, most) = SCARCE;
        let little = free < (times * holds.max(self.last_bytes)).clamp(least, most);
        self.is_scarce = little && free > holds + holds / 4 + HURRY_LEAVES;
    }

    fn is_due(&self, executed: impl FnOnce() -> u64) -> bool {
        let logged = self.volume.logged.since(self.at_last.logged);
        let delivered = self.volume.delivered.since(self.at_last.delivered);
        // New commands are in the logs and are delivered: they count once.
        let bytes = logged.bytes.max(delivered.bytes);
        let records = logged.records.max(delivered.records);
        let enough = self.last_bytes.clamp(self.least, LOG_BYTES_MOST);
        let is_long = match (self.hurried, self.haste) {
            (0, _) => bytes + self.ahead >= enough,
            (_, None) => bytes >= enough / HASTE,
            (_, Some(position)) => bytes >= enough || self.has_more && executed() >= position,
        };
        self.has_more && (is_long || records >= LOG_RECORDS_MOST || self.is_scarce)
    }

    const fn begun(&mut self) {
        self.at_last_but_one = self.at_last;
        (self.at_last, self.ahead) = (self.volume, 0);
        (self.has_more, self.is_scarce) = (false, false);
    }

    /// The last one is on disk, and has so many bytes.
    const fn saved(&mut self, bytes: u64) {
        (self.last_bytes, self.haste) = (bytes, None);
        self.hurried = self.hurried.saturating_sub(1);
    }

    /// The last one was given up: what it was begun for counts again.
    const fn failed(&mut self) {
        (self.at_last, self.has_more) = (self.at_last_but_one, true);
    }
}

/// The newest state that is not damaged, if there is one, and how many bytes it has.
type NewestState<S> = (Option<Restored<S>>, u64);

/// The newest state of the directory `path`.
///
/// # Errors
/// When it is whole, and this program does not read it.
fn restored<A: Application>(
    newest: Option<CheckpointReader>,
    groups: usize,
    path: PathBuf,
) -> Result<NewestState<A::State>, StorageError> {
    match newest.map(|saved| read::<A>(saved, groups)) {
        Some(Ok((restored, bytes))) => Ok((Some(restored), bytes)),
        Some(Err(StateReadError::Rejected(why))) => {
            let remedy = "start the version of the program that wrote it, or one that reads it";
            let why = format!("{why}. The state stays as it is: {remedy}");
            Err(StorageError::UnreadCheckpoint { path, why })
        }
        Some(Err(StateReadError::Damaged(e))) => {
            tracing::error!("{}: the state cannot be read: {e}", path.display());
            Ok((None, 0))
        }
        None => Ok((None, 0)),
    }
}

/// Reads a state as it was given, and how many bytes it has. Its position must be that of the
/// checkpoint: with another one the log would be read from a wrong place, and commands lost or
/// executed twice.
fn read<A: Application>(
    saved: CheckpointReader,
    groups: usize,
) -> Result<(Restored<A::State>, u64), StateReadError> {
    let position = saved.position();
    let mut from = RestoredPieces { saved, rest: Vec::new(), at: 0, bytes: 0 };
    let mut length = [0; 8];
    from.read_exact(&mut length)?;
    let mut history = Vec::new();
    (&mut from).take(u64::from_le_bytes(length)).read_to_end(&mut history)?;
    let state = A::read(groups, &mut from)?;
    let at = (0..groups).map(|g| A::state_delivered(&state, Gid(g as u8))).sum::<u64>();
    if at != position {
        return Err(StateReadError::Damaged(format!(
            "the checkpoint names position {position}, and its state is at {at}"
        )));
    }
    Ok((Restored { state, history }, from.bytes))
}

/// The bytes of a saved state.
struct RestoredPieces {
    saved: CheckpointReader,
    /// The piece that is being read, and how far.
    rest: Vec<u8>,
    at: usize,
    /// How many were read.
    bytes: u64,
}

impl Read for RestoredPieces {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if self.at == self.rest.len() {
            let piece = self.saved.piece().map_err(io::Error::other)?;
            self.rest.clear();
            self.rest.extend_from_slice(piece.unwrap_or_default());
            self.at = 0;
        }
        let count = to.len().min(self.rest.len() - self.at);
        to[..count].copy_from_slice(&self.rest[self.at..][..count]);
        self.at += count;
        self.bytes += count as u64;
        Ok(count)
    }
}

#[cfg(test)]
mod tests;

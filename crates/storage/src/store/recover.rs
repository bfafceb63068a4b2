//! The start of a log: what is in it is read, judged, and made durable.

use super::SegmentStore;
use super::damage::{classify, missing_front, never_was};
use super::synced::{self, SyncedEnd};
use crate::disk::{DiskDir, DiskFile};
use crate::error::{Damage, Flaw, Misfit, StorageError};
use crate::format::record::{RecordChecksumSeed, RecordHeader, RecordKind};
use crate::format::segment::{self, RECORDS_AT, SegmentHead};
use crate::format::state::{self, LogState};
use crate::format::synced::SyncedRange;
use crate::format::{self, HEAD_BYTES, LogId, LogOwnerId};
use crate::machine::BootIdentity;
use crate::record_scan::{LogTail, RecordScan, ScanPosition, ScanStep};
use crate::segment_set::{SegmentSet, WalSegment};
use std::path::PathBuf;
use std::sync::Arc;

/// How much is written again at once, in bytes.
const SETTLE_BYTES: usize = 1 << 20;

/// The result of opening a log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogRecovery {
    /// The log.
    pub log: LogId,
    /// Which life of the log this is: 0 for a new one.
    pub life: u32,
    /// The number of the first record that is there.
    pub first: u64,
    /// The number that the next record gets.
    pub next: u64,
    /// Records that were begun at the end and are not whole: they were cut off.
    pub torn: Option<TornTail>,
    /// Records may be missing at the end, of those that were not awaited: the machine was started
    /// anew since the log was opened last, or the disk failed, and the log was not closed before.
    pub lossy: bool,
}

/// The functions that an open of a log calls.
pub(crate) struct OpenHooks<'a> {
    /// Gets every record, the oldest first; when there is an error later on, forget them.
    pub(crate) each: &'a mut dyn FnMut(u64, &[u8]),
    /// Records may be missing at the end ([`LogRecovery::lossy`]). It is called before anything is changed that shows
    /// it: a process that ends while it opens the log finds a mark that was made here, and nothing else may tell it.
    pub(crate) lossy: &'a mut dyn FnMut() -> std::io::Result<()>,
}

/// The part that was cut off at the end of a log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TornTail {
    /// The file.
    pub path: PathBuf,
    /// Where the cut is, in bytes.
    pub offset: u64,
}

/// The result of a scan over the segments of a log.
struct ScannedSegments<'n, F> {
    /// Each segment, with its head and its end. In the last one the log ends.
    chain: Vec<(Arc<WalSegment<F>>, SegmentHead, ScanPosition)>,
    /// Whether something was begun behind it.
    torn: bool,
    /// The records before this number were durable, by the heads behind them.
    proved: u64,
    /// The segments behind it, of which none was there for good.
    behind: &'n [String],
}

impl<D: DiskDir> SegmentStore<D> {
    /// Opens the log of the directory, or makes one, without a mark of a loss.
    #[cfg(test)]
    pub(crate) fn open(
        disk: D,
        segment_bytes: u64,
        spares_min: usize,
        machine: &BootIdentity,
        each: &mut dyn FnMut(u64, &[u8]),
    ) -> Result<(Self, LogRecovery), StorageError> {
        let mut hooks = OpenHooks { each, lossy: &mut || Ok(()) };
        Self::open_with(disk, segment_bytes, spares_min, machine, &mut hooks)
    }

    /// Opens the log of the directory, or makes one.
    pub(crate) fn open_with(
        disk: D,
        segment_bytes: u64,
        spares_min: usize,
        machine: &BootIdentity,
        hooks: &mut OpenHooks<'_>,
    ) -> Result<(Self, LogRecovery), StorageError> {
        let (names, spares) = sort(&disk)?;
        let state = read_state(&disk)?;
        let state = match state {
            Some(state) => Some(state),
            None if never_used(&disk, &names)? => None,
            None => return Err(StorageError::Missing { path: disk.path_of(state::NAME) }),
        };
        let known = state.map_or(LogOwnerId::UNKNOWN, |state| state.owner);
        if !known.may_be(machine.owner) {
            let path = disk.path().to_path_buf();
            return Err(StorageError::Misfit { path, why: Misfit::OtherOwner(known) });
        }
        let log = state.map_or(machine.fresh, |state| state.log);
        let segment_set = SegmentSet::new(disk, log, segment_bytes, spares_min);
        match state {
            None => Self::make(segment_set, &names, &spares, machine),
            Some(state) => Self::resume(segment_set, (&names, &spares), state, machine, hooks),
        }
    }

    /// A new log. Its state comes last: until it is there nothing is, and what was begun is removed.
    fn make(
        segment_set: SegmentSet<D>,
        names: &[String],
        spares: &[String],
        machine: &BootIdentity,
    ) -> Result<(Self, LogRecovery), StorageError> {
        for name in spares {
            segment_set.adopt_spare(name.clone(), true)?;
        }
        for name in names {
            segment_set.disk.remove(name).map_err(|e| segment_set.error(name, "remove it", e))?;
        }
        let segment = segment_set.begin(0)?;
        let log = segment_set.log;
        synced::replace(&segment_set.disk, log, SyncedRange { end: 0, trimmed: Some(0) })?;
        let state = LogState::of(log, machine);
        write_state(&segment_set, &state)?;
        let store = Self::at(segment_set, segment, 0, RECORDS_AT, 0)?;
        Ok((store, LogRecovery { log, life: 0, first: 0, next: 0, torn: None, lossy: false }))
    }

    fn resume(
        segment_set: SegmentSet<D>,
        (names, spares): (&[String], &[String]),
        old: LogState,
        machine: &BootIdentity,
        hooks: &mut OpenHooks<'_>,
    ) -> Result<(Self, LogRecovery), StorageError> {
        let end = synced::of(&segment_set.disk, old.log, Some(&old))?;
        let found = find(&segment_set, names, (old, end), hooks.each)?;
        let Some((last, _, end)) = found.chain.last() else {
            return Err(StorageError::Missing {
                path: segment_set.disk.path_of(&segment::name(0)),
            });
        };
        let closed = end.closed && end.life == old.life;
        // Where the machine was not restarted and segments have no beginning, the disk failed: records that were reported
        // written never got there.
        let lossy = !closed && (!found.behind.is_empty() || !old.boot.same(machine.boot));
        if lossy {
            // From here on what shows it goes: segments behind the end, and the former run of the machine.
            let marked = (hooks.lossy)();
            marked.map_err(|e| StorageError::of(segment_set.disk.path(), "mark its loss", e))?;
        }
        cut(&segment_set, found.behind)?;
        for name in spares {
            segment_set.adopt_spare(name.clone(), !lossy)?;
        }
        settle(&segment_set, &found)?;
        let life = old.life + 1;
        let log = old.log;
        let first = segment_set.first();
        let next = end.number;
        let at = end.offset;
        // A caller without an owner leaves the known one.
        let owner = if machine.owner == LogOwnerId::UNKNOWN { old.owner } else { machine.owner };
        let torn = found
            .torn
            .then(|| TornTail { path: segment_set.disk.path_of(&last.name), offset: end.offset });
        let recovered = LogRecovery { log, life, first, next, torn, lossy };
        let store = Self::at(segment_set, last.clone(), life, at, next)?;
        write_state(&store.segment_set, &LogState { life, owner, ..LogState::of(log, machine) })?;
        Ok((store, recovered))
    }

    /// A log that is durable as far as it goes.
    fn at(
        segment_set: SegmentSet<D>,
        segment: Arc<WalSegment<D::File>>,
        life: u32,
        at: u64,
        next: u64,
    ) -> Result<Self, StorageError> {
        let seed = RecordChecksumSeed::of(segment_set.log);
        let end = Arc::new(SyncedEnd::open(&segment_set, next)?);
        let segment_set = Arc::new(segment_set);
        Ok(Self {
            segment_set,
            seed,
            life,
            segment,
            at,
            next,
            durable: next,
            said: 0,
            dirty_bytes: 0,
            end,
            background_sync: None,
        })
    }
}

/// Gives up segments behind the end of the log, the last one first: if this ends in between, the log ends where
/// it did.
fn cut<D: DiskDir>(segment_set: &SegmentSet<D>, behind: &[String]) -> Result<(), StorageError> {
    for name in behind.iter().rev() {
        segment_set.disk.remove(name).map_err(|e| segment_set.error(name, "remove it", e))?;
        segment_set.sync_names()?;
    }
    Ok(())
}

/// Makes durable what was found and is not known to be: what was read may be in no place but the kernel's
/// memory, and the caller counts on it now. It is written again, for after a failed sync the kernel takes
/// what it has and the disk has not for written.
///
/// A segment that says that the next one is there is durable, and the next one's name and head are.
fn settle<D: DiskDir>(
    segment_set: &SegmentSet<D>,
    found: &ScannedSegments<'_, D::File>,
) -> Result<(), StorageError> {
    let chain = &found.chain;
    let from = chain.iter().take_while(|(.., stand)| stand.turned).count();
    for (i, (segment, head, stand)) in chain.iter().enumerate().skip(from) {
        if i > from {
            let written = segment.file.write_at(&head.encode(), 0);
            written.map_err(|e| segment_set.error(&segment.name, "write to it", e))?;
        }
        if i > from || found.proved < stand.number {
            write_again(segment_set, segment, found.proved, stand.offset)?;
        }
    }
    let unturned = chain.get(from..).and_then(<[_]>::split_last).map_or(&[][..], |(_, some)| some);
    if !unturned.is_empty() {
        segment_set.sync_names()?;
    }
    for (segment, _, stand) in unturned {
        turn(segment_set, segment, *stand)?;
    }
    segment_set.settle(chain.last().map_or(0, |(last, ..)| last.first));
    Ok(())
}

/// Writes a segment again up to `end`, from the record `from` on, and syncs it.
fn write_again<D: DiskDir>(
    segment_set: &SegmentSet<D>,
    segment: &WalSegment<D::File>,
    from: u64,
    end: u64,
) -> Result<(), StorageError> {
    let (_, mut at) = segment.near(from.max(segment.first));
    let mut bytes = vec![0; SETTLE_BYTES.min(end.saturating_sub(at) as usize)];
    while at < end {
        let piece = bytes.len().min((end - at) as usize);
        let got = segment.file.read_at(&mut bytes[..piece], at);
        let got = got.map_err(|e| segment_set.error(&segment.name, "read it", e))?;
        let written = segment.file.write_at(&bytes[..got], at);
        written.map_err(|e| segment_set.error(&segment.name, "write to it", e))?;
        // A record that was read a moment ago is there.
        at += got.max(1) as u64;
    }
    segment.file.sync().map_err(|e| segment_set.error(&segment.name, "sync it", e))
}

/// The names of segments in order, and of spares; what was left unfinished is removed.
fn sort<D: DiskDir>(disk: &D) -> Result<(Vec<String>, Vec<String>), StorageError> {
    let names = disk.names().map_err(|e| StorageError::of(disk.path(), "list it", e))?;
    let (mut segments, mut spares) = (Vec::new(), Vec::new());
    for name in names {
        if segment::first_of(&name).is_some() {
            segments.push(name);
        } else if segment::spare_of(&name).is_some() {
            spares.push(name);
        } else if name == state::NEW_NAME || name == format::synced::NEW_NAME {
            disk.remove(&name)
                .map_err(|e| StorageError::of(&disk.path_of(&name), "remove it", e))?;
            // Or the next one of that name might be lost and this one be renamed in its place.
            disk.sync().map_err(|e| StorageError::of(disk.path(), "sync its names", e))?;
        }
    }
    // Numbers have leading zeros: their order is that of the names.
    segments.sort_unstable();
    spares.sort_unstable();
    Ok((segments, spares))
}

pub(crate) fn read_state<D: DiskDir>(disk: &D) -> Result<Option<LogState>, StorageError> {
    let path = disk.path_of(state::NAME);
    let file = match disk.open(state::NAME) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(|e| StorageError::of(&path, "open it", e))?,
    };
    let mut bytes = [0; HEAD_BYTES];
    let got = file.read_at(&mut bytes, 0).map_err(|e| StorageError::of(&path, "read it", e))?;
    LogState::decode(&bytes[..got]).map(Some).map_err(|why| StorageError::Misfit { path, why })
}

fn write_state<D: DiskDir>(
    segment_set: &SegmentSet<D>,
    state: &LogState,
) -> Result<(), StorageError> {
    let (new, name) = (state::NEW_NAME, state::NAME);
    let file = segment_set.disk.create(new).map_err(|e| segment_set.error(new, "make it", e))?;
    file.write_at(&state.encode(), 0).map_err(|e| segment_set.error(new, "write to it", e))?;
    file.sync().map_err(|e| segment_set.error(new, "sync it", e))?;
    segment_set.disk.rename(new, name).map_err(|e| segment_set.error(new, "rename it", e))?;
    segment_set.sync_names()
}

/// Whether a log without a state is one whose making was cut off: no record was ever taken.
fn never_used<D: DiskDir>(disk: &D, names: &[String]) -> Result<bool, StorageError> {
    match names {
        [] => Ok(true),
        [name] if segment::first_of(name) == Some(0) => {
            let (file, head) = open_segment(disk, name)?;
            let stand = beginning(&head);
            let mut walk =
                RecordScan::new(&file, RecordChecksumSeed::of(head.log), head.bytes, stand);
            let read = |e| StorageError::of(&disk.path_of(name), "read it", e);
            let none = matches!(walk.step().map_err(read)?, ScanStep::Nothing(_));
            Ok(none && walk.tail().map_err(read)? == LogTail::Blank)
        }
        _ => Ok(false),
    }
}

/// The place before a segment's first record.
pub(crate) fn beginning(head: &SegmentHead) -> ScanPosition {
    ScanPosition { offset: RECORDS_AT, number: head.first, life: 0, closed: false, turned: false }
}

pub(crate) fn open_segment<D: DiskDir>(
    disk: &D,
    name: &str,
) -> Result<(D::File, SegmentHead), StorageError> {
    let path = disk.path_of(name);
    let file = disk.open(name).map_err(|e| StorageError::of(&path, "open it", e))?;
    let mut bytes = [0; HEAD_BYTES];
    let got = file.read_at(&mut bytes, 0).map_err(|e| StorageError::of(&path, "read it", e))?;
    let head = SegmentHead::decode(&bytes[..got]);
    Ok((file, head.map_err(|why| StorageError::Misfit { path, why })?))
}

/// Scans all segments and puts them into the set. Changes nothing. The records in `synced` must be there, as
/// far as that is known.
fn find<'n, D: DiskDir>(
    segment_set: &SegmentSet<D>,
    names: &'n [String],
    (state, synced): (LogState, Option<SyncedRange>),
    each: &mut dyn FnMut(u64, &[u8]),
) -> Result<ScannedSegments<'n, D::File>, StorageError> {
    let mut found = ScannedSegments { chain: Vec::new(), torn: false, proved: 0, behind: &[] };
    if let Some(damage) = missing_front(&segment_set.disk, names, synced) {
        return Err(StorageError::Damaged(damage));
    }
    for (i, name) in names.iter().enumerate() {
        let end = found.chain.last().map(|(.., stand): &(_, _, ScanPosition)| *stand);
        if let Some(end) = end
            && never_was(&segment_set.disk, state.log, &names[i..], &end)?
        {
            (found.torn, found.behind) = (true, &names[i..]);
            break;
        }
        let (file, head) = open_segment(&segment_set.disk, name)?;
        let damage = |offset, number, what| {
            let path = segment_set.disk.path_of(name);
            Err(StorageError::Damaged(Damage { path, offset, number, what }))
        };
        if head.log != state.log {
            let path = segment_set.disk.path_of(name);
            return Err(StorageError::Misfit { path, why: Misfit::OtherLog });
        }
        let wanted = end.map_or(head.first, |stand| stand.number);
        if segment::first_of(name) != Some(head.first) || head.first != wanted {
            return damage(0, wanted, Flaw::Segment);
        }
        let from = ScanPosition { life: end.map_or(0, |stand| stand.life), ..beginning(&head) };
        let segment = Arc::new(WalSegment::new(name.clone(), file, head.first, head.bytes));
        let mut walk =
            RecordScan::new(&segment.file, RecordChecksumSeed::of(state.log), head.bytes, from);
        let read = |e| StorageError::of(&segment_set.disk.path_of(name), "read it", e);
        let flaw = records(&mut walk, &segment, each).map_err(read)?;
        let stand = walk.stand();
        let closed = stand.closed && stand.life == state.life;
        let behind = &names[i + 1..];
        match classify(&segment_set.disk, state.log, &mut walk, behind, closed)? {
            LogTail::Proof => return damage(stand.offset, stand.number, flaw),
            LogTail::Short => return damage(stand.offset, stand.number, Flaw::Length),
            LogTail::Torn => (found.torn, found.behind) = (true, behind),
            LogTail::Blank => {}
        }
        found.proved = found.proved.max(walk.proved()).max(head.durable());
        found.chain.push((segment.clone(), head, stand));
        segment_set.adopt(segment);
        if !found.behind.is_empty() {
            break;
        }
    }
    match found.chain.last() {
        Some((last, _, end)) if synced.is_some_and(|synced| end.number < synced.end) => {
            let path = segment_set.disk.path_of(&last.name);
            let offset = end.offset;
            let number = end.number;
            Err(StorageError::Damaged(Damage { path, offset, number, what: Flaw::End }))
        }
        _ => Ok(found),
    }
}

/// Gives the records of a segment, and what ends them.
fn records<F: DiskFile>(
    walk: &mut RecordScan<'_, F>,
    segment: &WalSegment<F>,
    each: &mut dyn FnMut(u64, &[u8]),
) -> std::io::Result<Flaw> {
    loop {
        match walk.step()? {
            ScanStep::Record(number) => {
                segment.note(number, walk.found_at());
                each(number, walk.bytes()?);
            }
            ScanStep::Nothing(flaw) => return Ok(flaw),
        }
    }
}

/// Says in a segment that the next one is there: its process ended before it could.
fn turn<D: DiskDir>(
    segment_set: &SegmentSet<D>,
    segment: &WalSegment<D::File>,
    stand: ScanPosition,
) -> Result<(), StorageError> {
    let (number, life) = (stand.number, stand.life);
    let head = RecordHeader { kind: RecordKind::Turn, sum: 0, life, number, durable: number };
    let written =
        segment.file.write_at(&head.encode(RecordChecksumSeed::of(segment_set.log)), stand.offset);
    written.map_err(|e| segment_set.error(&segment.name, "write to it", e))?;
    segment.file.sync().map_err(|e| segment_set.error(&segment.name, "sync it", e))
}

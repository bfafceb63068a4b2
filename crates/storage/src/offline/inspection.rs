//! Inspection of a log without opening it: all whole records, their end, and its flaws.

use crate::disk::{DiskDir, DiskFile};
use crate::error::{Damage, Flaw, Misfit, StorageError};
use crate::format::LogId;
use crate::format::record::RecordChecksumSeed;
use crate::format::segment::{self, SegmentHead};
use crate::format::state::LogState;
use crate::record_scan::{LogTail, RecordScan, ScanPosition, ScanStep};
use crate::store::{
    TornTail, beginning, classify, missing_front, never_was, open_segment, read_state, synced,
};
use std::io;
use std::path::{Path, PathBuf};

/// A record as it lies there.
#[derive(Clone, Copy, Debug)]
pub struct RecordSummary<'a> {
    /// Its number.
    pub number: u64,
    /// The life of the log that wrote it.
    pub life: u32,
    /// The file.
    pub path: &'a Path,
    /// Where it begins there, its head included, in bytes.
    pub offset: u64,
    /// The record.
    pub bytes: &'a [u8],
    /// Whether it lies behind damage: a start does not get there.
    pub beyond: bool,
}

/// The content of a log.
#[derive(Debug)]
pub struct Inspection {
    /// The log; none if nothing says so any more.
    pub log: Option<LogId>,
    /// The life that wrote it last; none if its state cannot be read.
    pub life: Option<u32>,
    /// The flaw of its state.
    pub state: Option<StorageError>,
    /// The records before this number were synced, as is kept apart from the log; none if nothing says it.
    pub synced: Option<u64>,
    /// The flaw of the file of the synced end.
    pub end: Option<StorageError>,
    /// The damage if the first segments are missing and were not trimmed. The segments behind them are judged by themselves.
    pub front: Option<Damage>,
    /// The number of the first record.
    pub first: u64,
    /// The number that the record after the last gets; after the last one before damage.
    pub next: u64,
    /// Whether the last life ended in good order.
    pub closed: bool,
    /// Bytes at the end that were begun and are not whole; a start cuts them off.
    pub torn: Option<TornTail>,
    /// The first damage.
    pub damage: Option<Damage>,
    /// How many whole records are behind the damage.
    pub beyond: u64,
    /// Its segments, the oldest first.
    pub segments: Vec<SegmentSummary>,
    /// Where a repair cuts: the file with the last record, and the end of that.
    pub(super) cut: Option<(String, ScanPosition)>,
    /// Segments whose heads are made anew by a repair, with those heads.
    pub(super) headless: Vec<(String, SegmentHead)>,
    /// The highest life in any head.
    pub(super) highest_life: u32,
    /// Whether the state says that the end of what was synced is kept.
    keeps_end: bool,
}

/// The content of a segment.
#[derive(Debug)]
pub struct SegmentSummary {
    /// The file.
    pub path: PathBuf,
    /// The number that its name gives its first record.
    pub first: u64,
    /// How many whole records it has, also behind damage.
    pub records: u64,
    /// How many bytes they have, without their heads.
    pub bytes: u64,
    /// The end of them.
    pub end: SegmentEnd,
}

/// The end of a segment's records.
#[derive(Debug)]
pub enum SegmentEnd {
    /// The log continues in the next segment, or ends here.
    Whole,
    /// The log ends here, or before; something behind was begun and never durable.
    Torn,
    /// Damage; some of the records may be behind it.
    Damaged,
    /// The segment's head is damaged and its records are not; a repair makes the head anew.
    Headless(StorageError),
    /// The file as a whole cannot be read.
    Unreadable(StorageError),
}

impl Inspection {
    /// Whether a start would find nothing wrong.
    pub fn is_sound(&self) -> bool {
        let files = self.state.is_none() && self.end.is_none();
        self.damage.is_none() && self.front.is_none() && files && self.headless.is_empty()
    }

    /// Whether the log has lost its end, its first segments, or both, and nothing else, or cannot prove that it has
    /// not: no whole record is behind a gap. All bytes in between are whole.
    pub fn is_cut_short(&self) -> bool {
        let incomplete = self.damage.is_some() || self.front.is_some() || self.end.is_some();
        incomplete && self.beyond == 0 && self.state.is_none() && self.headless.is_empty()
    }

    fn new() -> Self {
        Self {
            log: None,
            life: None,
            state: None,
            synced: None,
            end: None,
            front: None,
            first: 0,
            next: 0,
            closed: false,
            torn: None,
            damage: None,
            beyond: 0,
            segments: Vec::new(),
            cut: None,
            headless: Vec::new(),
            highest_life: 0,
            keeps_end: false,
        }
    }

    /// The records of a segment end here, or are missing from here on: the log's do, if none are missing
    /// before.
    fn reached(&mut self, name: &str, stand: ScanPosition) {
        if self.damage.is_none() {
            self.closed = stand.closed && self.life.is_none_or(|life| life == stand.life);
            self.next = stand.number;
            self.cut = Some((name.to_string(), stand));
        }
    }

    fn take_state(&mut self, read: Result<Option<LogState>, StorageError>, path: PathBuf) {
        match read {
            Ok(Some(state)) => {
                (self.log, self.life) = (Some(state.log), Some(state.life));
                self.keeps_end = state.keeps_end;
            }
            Ok(None) => self.state = Some(StorageError::Missing { path }),
            Err(e) => self.state = Some(e),
        }
    }
}

/// Looks at all segments of a directory, or at one of them by itself.
pub(crate) fn inspect<D: DiskDir>(
    disk: &D,
    only: Option<&str>,
    each: &mut dyn FnMut(RecordSummary<'_>),
) -> Result<Inspection, StorageError> {
    let mut inspection = Inspection::new();
    let names = match only {
        Some(name) => vec![name.to_string()],
        None => {
            let state = disk.path_of(crate::format::state::NAME);
            inspection.take_state(read_state(disk), state);
            let names = disk.names().map_err(|e| StorageError::of(disk.path(), "list it", e))?;
            let mut names: Vec<_> =
                names.into_iter().filter(|name| segment::first_of(name).is_some()).collect();
            names.sort_unstable();
            names
        }
    };
    inspection.first = names.first().and_then(|name| segment::first_of(name)).unwrap_or(0);
    inspection.next = inspection.first;
    for (i, name) in names.iter().enumerate() {
        let behind = if only.is_some() { None } else { Some(&names[i + 1..]) };
        let seen = match gone(disk, &names[i..], &mut inspection)? {
            Some(seen) => seen,
            None => look(disk, name, behind, &mut inspection, each)?,
        };
        inspection.segments.push(seen);
    }
    if names.is_empty() && inspection.state.is_none() {
        let path = disk.path_of(&segment::name(0));
        inspection.damage = Some(Damage { path, offset: 0, number: 0, what: Flaw::Segment });
    }
    if only.is_none() {
        classify_ends(disk, &names, &mut inspection);
    }
    Ok(inspection)
}

/// Judges by what is kept apart from the log whether the log begins too late, or ends too early.
fn classify_ends<D: DiskDir>(disk: &D, names: &[String], inspection: &mut Inspection) {
    let Some(log) = inspection.log else { return };
    match synced::read(disk, log, inspection.keeps_end) {
        Ok(synced) => {
            inspection.synced = synced.map(|synced| synced.end);
            inspection.front = missing_front(disk, names, synced);
        }
        Err(e) => inspection.end = Some(e),
    }
    let (None, Some((last, end))) = (&inspection.damage, &inspection.cut) else { return };
    if inspection.synced.is_some_and(|synced| end.number < synced) {
        let path = disk.path_of(last);
        let offset = end.offset;
        let number = end.number;
        inspection.damage = Some(Damage { path, offset, number, what: Flaw::End });
        inspection.torn = None;
    }
}

/// The first of these segments, if the log ends before it: it was begun, and what is before it is torn or it
/// was never there for good itself.
fn gone<D: DiskDir>(
    disk: &D,
    names: &[String],
    inspection: &mut Inspection,
) -> Result<Option<SegmentSummary>, StorageError> {
    let Some(name) = names.first() else { return Ok(None) };
    if inspection.torn.is_none() {
        let (None, Some(log), Some((last, end))) =
            (&inspection.damage, inspection.log, &inspection.cut)
        else {
            return Ok(None);
        };
        if !never_was(disk, log, names, end)? {
            return Ok(None);
        }
        inspection.torn = Some(TornTail { path: disk.path_of(last), offset: end.offset });
    }
    let first = segment::first_of(name).unwrap_or(0);
    let (path, end) = (disk.path_of(name), SegmentEnd::Torn);
    Ok(Some(SegmentSummary { path, first, records: 0, bytes: 0, end }))
}

/// Looks at one segment. `behind` are those after it; none if it is looked at by itself.
fn look<D: DiskDir>(
    disk: &D,
    name: &str,
    behind: Option<&[String]>,
    inspection: &mut Inspection,
    each: &mut dyn FnMut(RecordSummary<'_>),
) -> Result<SegmentSummary, StorageError> {
    let path = disk.path_of(name);
    let first = segment::first_of(name).unwrap_or(0);
    let end = SegmentEnd::Whole;
    let mut seen = SegmentSummary { path: path.clone(), first, records: 0, bytes: 0, end };
    let number = inspection.next;
    let flawed = |inspection: &mut Inspection, offset, number, what| {
        let path = path.clone();
        inspection.damage.get_or_insert(Damage { path, offset, number, what });
    };
    let Some((file, head)) = readable(disk, name, inspection, &mut seen.end) else {
        flawed(inspection, 0, number, Flaw::Segment);
        return Ok(seen);
    };
    inspection.log = Some(head.log);
    if first != head.first || first != number {
        flawed(inspection, 0, number, Flaw::Segment);
    }
    let life = inspection.cut.as_ref().map_or(0, |(_, stand)| stand.life);
    let from = ScanPosition { life, ..beginning(&head) };
    let mut walk = RecordScan::new(&file, RecordChecksumSeed::of(head.log), head.bytes, from);
    let read = |e: io::Error| StorageError::of(&path, "read it", e);
    loop {
        let step = walk.step().map_err(read)?;
        let stand = walk.stand();
        inspection.highest_life = inspection.highest_life.max(stand.life);
        if let ScanStep::Record(number) = step {
            let beyond = inspection.damage.is_some();
            let (life, offset) = (stand.life, walk.found_at());
            let bytes = walk.bytes().map_err(read)?;
            seen.records += 1;
            seen.bytes += bytes.len() as u64;
            inspection.beyond += u64::from(beyond);
            each(RecordSummary { number, life, path: &path, offset, bytes, beyond });
            continue;
        }
        let ScanStep::Nothing(what) = step else { continue };
        inspection.reached(name, stand);
        let closed = stand.closed && inspection.life == Some(stand.life);
        let tail = match behind {
            Some(behind) => classify(disk, head.log, &mut walk, behind, closed)?,
            // By itself it does not show whether the next one is there.
            None if walk.is_short().map_err(read)? => LogTail::Short,
            None if closed || stand.turned => LogTail::Blank,
            None => walk.tail().map_err(read)?,
        };
        match tail {
            LogTail::Proof | LogTail::Short => {
                let what = if tail == LogTail::Short { Flaw::Length } else { what };
                flawed(inspection, stand.offset, stand.number, what);
                seen.end = SegmentEnd::Damaged;
                if !walk.skip().map_err(read)? {
                    return Ok(seen);
                }
            }
            LogTail::Torn => {
                seen.end = SegmentEnd::Torn;
                inspection.torn = Some(TornTail { path, offset: stand.offset });
                return Ok(seen);
            }
            LogTail::Blank => return Ok(seen),
        }
    }
}

/// Opens a segment as far as it can be read; `end` says what is wrong with it, if something is.
fn readable<D: DiskDir>(
    disk: &D,
    name: &str,
    inspection: &mut Inspection,
    end: &mut SegmentEnd,
) -> Option<(D::File, SegmentHead)> {
    match fitting(disk, name, inspection.log) {
        Ok(opened) => Some(opened),
        Err(e) => {
            let opened = headless(disk, name, inspection);
            *end = match &opened {
                Some(_) => SegmentEnd::Headless(e),
                None => SegmentEnd::Unreadable(e),
            };
            opened
        }
    }
}

/// Opens a segment of this log.
fn fitting<D: DiskDir>(
    disk: &D,
    name: &str,
    log: Option<LogId>,
) -> Result<(D::File, SegmentHead), StorageError> {
    let (file, head) = open_segment(disk, name)?;
    if log.is_some_and(|log| log != head.log) {
        return Err(StorageError::Misfit { path: disk.path_of(name), why: Misfit::OtherLog });
    }
    Ok((file, head))
}

/// Opens a segment whose head is damaged, with the head that it must have had; none if it has not the
/// record that comes next. Keeps the head for a repair.
fn headless<D: DiskDir>(
    disk: &D,
    name: &str,
    inspection: &mut Inspection,
) -> Option<(D::File, SegmentHead)> {
    let file = disk.open(name).ok()?;
    let first = segment::first_of(name).filter(|&first| first == inspection.next)?;
    let head = SegmentHead { log: inspection.log?, first, bytes: file.size().ok()?, loose: 0 };
    // It may be too long or too short to be a segment.
    let head = SegmentHead::decode(&head.encode()).ok()?;
    let mut walk =
        RecordScan::new(&file, RecordChecksumSeed::of(head.log), head.bytes, beginning(&head));
    if inspection.damage.is_some() || !matches!(walk.step(), Ok(ScanStep::Record(_))) {
        return None;
    }
    inspection.headless.push((name.to_string(), head));
    Some((file, head))
}

//! Damage classification: the end of a segment's records, judged with the segments behind it in sight.

use super::recover::open_segment;
use crate::disk::{DiskDir, DiskFile};
use crate::error::{Damage, Flaw, StorageError};
use crate::format::record::RecordChecksumSeed;
use crate::format::segment::{self, RECORDS_AT, SegmentHead};
use crate::format::synced::SyncedRange;
use crate::format::{HEAD_BYTES, LogId};
use crate::record_scan::{LogTail, RecordScan, ScanPosition};

/// Judges what is behind the last record of a segment. `behind` are the names of the segments after it;
/// `closed` says that the last life of the log ended here.
///
/// A segment that is begun while the one before is not synced may be there when the end of that one is
/// not. So a missing record is torn, as at the end of the log, unless something behind says that it had been
/// durable: all from it on was never promised to last then.
pub(crate) fn classify<D: DiskDir>(
    disk: &D,
    log: LogId,
    walk: &mut RecordScan<'_, D::File>,
    behind: &[String],
    closed: bool,
) -> Result<LogTail, StorageError> {
    let stand = walk.stand();
    let read = |e| StorageError::of(disk.path(), "read it", e);
    if walk.is_short().map_err(read)? {
        return Ok(LogTail::Short);
    }
    let Some(until) = behind.first().and_then(|name| segment::first_of(name)) else {
        return match (closed, stand.turned) {
            (true, _) => Ok(LogTail::Blank),
            (_, true) => Ok(LogTail::Proof),
            _ => walk.tail().map_err(read),
        };
    };
    if until == stand.number {
        return Ok(LogTail::Blank);
    }
    let proof = closed
        || stand.turned
        || until < stand.number
        || walk.tail().map_err(read)? == LogTail::Proof
        || proves(disk, log, behind, &stand)?;
    Ok(if proof { LogTail::Proof } else { LogTail::Torn })
}

/// The damage of a log whose first segments are missing, though nobody gave them up. `names` are those that are
/// there; `must` is what must be, as is kept apart from the log.
pub(crate) fn missing_front<D: DiskDir>(
    disk: &D,
    names: &[String],
    must: Option<SyncedRange>,
) -> Option<Damage> {
    let first = segment::first_of(names.first()?)?;
    let number = must?.trimmed?;
    let path = disk.path_of(&segment::name(number));
    (first > number).then_some(Damage { path, offset: 0, number, what: Flaw::Front })
}

/// Whether the first of these segments was begun and never there for good: its head is not its own, and
/// nothing says that it had been. The log ends at `end` then, in the segment before.
pub(crate) fn never_was<D: DiskDir>(
    disk: &D,
    log: LogId,
    names: &[String],
    end: &ScanPosition,
) -> Result<bool, StorageError> {
    let Some((name, first)) = names.first().and_then(|n| Some((n, segment::first_of(n)?))) else {
        return Ok(false);
    };
    let path = disk.path_of(name);
    let mut bytes = [0; HEAD_BYTES];
    let file = disk.open(name).map_err(|e| StorageError::of(&path, "open it", e))?;
    let got = file.read_at(&mut bytes, 0).map_err(|e| StorageError::of(&path, "read it", e))?;
    let older = |head: SegmentHead| head.log == log && head.first < first;
    let unwritten = got == HEAD_BYTES
        && (bytes == [0; HEAD_BYTES] || SegmentHead::decode(&bytes).is_ok_and(older));
    Ok(unwritten && !end.turned && !proves(disk, log, names, end)?)
}

/// Whether anything in these segments says that the record had been durable which is missing at `end`.
fn proves<D: DiskDir>(
    disk: &D,
    log: LogId,
    names: &[String],
    end: &ScanPosition,
) -> Result<bool, StorageError> {
    for name in names {
        let Some(first) = segment::first_of(name) else { continue };
        if let Ok((_, head)) = open_segment(disk, name)
            && head.log == log
            && head.first == first
            && head.durable() > end.number
        {
            return Ok(true);
        }
        let path = disk.path_of(name);
        let read = |e| StorageError::of(&path, "read it", e);
        let file = disk.open(name).map_err(read)?;
        let bytes = file.size().map_err(read)?;
        let (closed, turned) = (false, false);
        let from =
            ScanPosition { offset: RECORDS_AT, number: first, life: end.life, closed, turned };
        if RecordScan::new(&file, RecordChecksumSeed::of(log), bytes, from)
            .proves(end.number)
            .map_err(read)?
        {
            return Ok(true);
        }
    }
    Ok(false)
}

//! The judgement on what ends the records of a segment, with those behind it in sight.

use super::recover::open_segment;
use crate::disk::{Disk, File};
use crate::error::Error;
use crate::format::record::Seed;
use crate::format::segment::{self, RECORDS_AT, SegmentHead};
use crate::format::{HEAD_BYTES, LogId};
use crate::walk::{Stand, Tail, Walk};

/// Judges what is behind the last record of a segment. `behind` are the names of the segments after it;
/// `closed` says that the last life of the log ended here.
///
/// A segment that is begun while the one before is not synced may be there when the end of that one is
/// not. So a missing record is torn, as at the end of the log, unless something behind says that it had been
/// durable: all from it on was never promised to last then.
pub(crate) fn judge<D: Disk>(
    disk: &D,
    log: LogId,
    walk: &mut Walk<'_, D::File>,
    behind: &[String],
    closed: bool,
) -> Result<Tail, Error> {
    let stand = walk.stand();
    let read = |e| Error::of(disk.path(), "read it", e);
    if walk.is_short().map_err(read)? {
        return Ok(Tail::Short);
    }
    let Some(until) = behind.first().and_then(|name| segment::first_of(name)) else {
        return match (closed, stand.turned) {
            (true, _) => Ok(Tail::Blank),
            (_, true) => Ok(Tail::Proof),
            _ => walk.tail().map_err(read),
        };
    };
    if until == stand.number {
        return Ok(Tail::Blank);
    }
    let proof = closed
        || stand.turned
        || until < stand.number
        || walk.tail().map_err(read)? == Tail::Proof
        || proves(disk, log, behind, &stand)?;
    Ok(if proof { Tail::Proof } else { Tail::Torn })
}

/// Whether the first of these segments was begun and never there for good: its head is not its own, and
/// nothing says that it had been. The log ends at `end` then, in the segment before.
pub(crate) fn never_was<D: Disk>(
    disk: &D,
    log: LogId,
    names: &[String],
    end: &Stand,
) -> Result<bool, Error> {
    let Some((name, first)) = names.first().and_then(|n| Some((n, segment::first_of(n)?))) else {
        return Ok(false);
    };
    let path = disk.path_of(name);
    let mut bytes = [0; HEAD_BYTES];
    let file = disk.open(name).map_err(|e| Error::of(&path, "open it", e))?;
    let got = file.read_at(&mut bytes, 0).map_err(|e| Error::of(&path, "read it", e))?;
    let older = |head: SegmentHead| head.log == log && head.first < first;
    let unwritten = got == HEAD_BYTES
        && (bytes == [0; HEAD_BYTES] || SegmentHead::decode(&bytes).is_ok_and(older));
    Ok(unwritten && !end.turned && !proves(disk, log, names, end)?)
}

/// Whether anything in these segments says that the record had been durable which is missing at `end`.
fn proves<D: Disk>(disk: &D, log: LogId, names: &[String], end: &Stand) -> Result<bool, Error> {
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
        let read = |e| Error::of(&path, "read it", e);
        let file = disk.open(name).map_err(read)?;
        let bytes = file.size().map_err(read)?;
        let (closed, turned) = (false, false);
        let from = Stand { offset: RECORDS_AT, number: first, life: end.life, closed, turned };
        if Walk::new(&file, Seed::of(log), bytes, from).proves(end.number).map_err(read)? {
            return Ok(true);
        }
    }
    Ok(false)
}

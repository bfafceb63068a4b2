//! The start of a log: what is in it is read, judged, and made durable.

use super::Store;
use crate::disk::{Disk, File};
use crate::error::{Damage, Error, Flaw, Misfit};
use crate::format::record::{Head, Kind, Seed};
use crate::format::segment::{self, RECORDS_AT, SegmentHead};
use crate::format::state::{self, State};
use crate::format::{HEAD_BYTES, LogId};
use crate::machine::Machine;
use crate::shelf::{Segment, Shelf};
use crate::walk::{Stand, Step, Tail, Walk};
use std::path::PathBuf;
use std::sync::Arc;

/// How much is written again at once, in bytes.
const SETTLE_BYTES: usize = 1 << 20;

/// What was found in a log when it was opened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recovered {
    /// The log.
    pub log: LogId,
    /// Which life of the log this is: 0 for a new one.
    pub life: u32,
    /// The number of the first record that is there.
    pub first: u64,
    /// The number that the next record gets.
    pub next: u64,
    /// What was begun at the end and is not whole: it was cut off.
    pub torn: Option<Torn>,
    /// Records may be missing at the end, of those that were not awaited: the machine was started
    /// anew since the log was opened last, and the log was not closed before.
    pub lossy: bool,
}

/// What was cut off at the end of a log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Torn {
    /// The file.
    pub path: PathBuf,
    /// Where the cut is, in bytes.
    pub offset: u64,
}

/// What the segments of a log come to.
struct Found<F> {
    /// The end of the log, in the last segment.
    end: Stand,
    /// Whether something was begun behind it.
    torn: bool,
    /// The records before this number were durable, by what is said behind them.
    proved: u64,
    /// The last but one, and its end, if it does not say that the last one is there.
    unturned: Option<(Arc<Segment<F>>, Stand)>,
}

impl<D: Disk> Store<D> {
    /// Opens the log of the directory, or makes one. `each` gets every record, the oldest first;
    /// when there is an error later on, forget them.
    pub(crate) fn open(
        disk: D,
        segment_bytes: u64,
        spares_min: usize,
        machine: &Machine,
        each: &mut dyn FnMut(u64, &[u8]),
    ) -> Result<(Self, Recovered), Error> {
        let (names, spares) = sort(&disk)?;
        let state = read_state(&disk)?;
        let state = match state {
            Some(state) => Some(state),
            None if never_used(&disk, &names)? => None,
            None => return Err(Error::Missing { path: disk.path_of(state::NAME) }),
        };
        let log = state.map_or(machine.fresh, |state| state.log);
        let shelf = Shelf::new(disk, log, segment_bytes, spares_min);
        for name in spares {
            shelf.adopt_spare(name)?;
        }
        match state {
            None => Self::make(shelf, &names, machine),
            Some(state) => Self::resume(shelf, &names, state, machine, each),
        }
    }

    /// A new log. Its state comes last: until it is there nothing is, and what was begun is removed.
    fn make(
        shelf: Shelf<D>,
        names: &[String],
        machine: &Machine,
    ) -> Result<(Self, Recovered), Error> {
        for name in names {
            shelf.disk.remove(name).map_err(|e| shelf.error(name, "remove it", e))?;
        }
        let segment = shelf.begin(0)?;
        let state = State { log: shelf.log, life: 0, boot: machine.boot };
        write_state(&shelf, &state)?;
        let log = shelf.log;
        let store = Self::at(shelf, segment, 0, RECORDS_AT, 0);
        Ok((store, Recovered { log, life: 0, first: 0, next: 0, torn: None, lossy: false }))
    }

    fn resume(
        shelf: Shelf<D>,
        names: &[String],
        old: State,
        machine: &Machine,
        each: &mut dyn FnMut(u64, &[u8]),
    ) -> Result<(Self, Recovered), Error> {
        let found = find(&shelf, names, old, each)?;
        let end = found.end;
        let last = shelf.find(end.number);
        let Some(last) = last else {
            return Err(Error::Missing { path: shelf.disk.path_of(&segment::name(0)) });
        };
        if let Some((segment, stand)) = &found.unturned {
            turn(&shelf, segment, *stand)?;
        }
        if found.proved < end.number {
            settle(&shelf, &last, found.proved, end.offset)?;
        }
        let life = old.life + 1;
        write_state(&shelf, &State { life, boot: machine.boot, ..old })?;
        let torn =
            found.torn.then(|| Torn { path: shelf.disk.path_of(&last.name), offset: end.offset });
        let closed = end.closed && end.life == old.life;
        let recovered = Recovered {
            log: old.log,
            life,
            first: shelf.first(),
            next: end.number,
            torn,
            lossy: !closed && !old.boot.same(machine.boot),
        };
        Ok((Self::at(shelf, last, life, end.offset, end.number), recovered))
    }

    fn at(shelf: Shelf<D>, segment: Arc<Segment<D::File>>, life: u32, at: u64, next: u64) -> Self {
        let seed = Seed::of(shelf.log);
        let shelf = Arc::new(shelf);
        Self {
            shelf,
            seed,
            life,
            segment,
            at,
            next,
            durable: next,
            said: 0,
            dirty_bytes: 0,
            aside: None,
        }
    }
}

/// Makes the end of the last segment durable, from the record `from` on: what was read may be in no
/// place but the kernel's memory, and the caller counts on it now. It is written again, for after a
/// failed sync the kernel takes what it has and the disk has not for written.
fn settle<D: Disk>(
    shelf: &Shelf<D>,
    last: &Segment<D::File>,
    from: u64,
    end: u64,
) -> Result<(), Error> {
    let (_, mut at) = last.near(from.max(last.first));
    let mut bytes = vec![0; SETTLE_BYTES.min((end - at) as usize)];
    while at < end {
        let piece = bytes.len().min((end - at) as usize);
        let got = last.file.read_at(&mut bytes[..piece], at);
        let got = got.map_err(|e| shelf.error(&last.name, "read it", e))?;
        let written = last.file.write_at(&bytes[..got], at);
        written.map_err(|e| shelf.error(&last.name, "write to it", e))?;
        // What was read a moment ago is there.
        at += got.max(1) as u64;
    }
    last.file.sync().map_err(|e| shelf.error(&last.name, "sync it", e))
}

/// The names of segments in order, and of spares; what was left unfinished is removed.
fn sort<D: Disk>(disk: &D) -> Result<(Vec<String>, Vec<String>), Error> {
    let names = disk.names().map_err(|e| Error::of(disk.path(), "list it", e))?;
    let (mut segments, mut spares) = (Vec::new(), Vec::new());
    for name in names {
        if segment::first_of(&name).is_some() {
            segments.push(name);
        } else if segment::spare_of(&name).is_some() {
            spares.push(name);
        } else if name == state::NEW_NAME {
            disk.remove(&name).map_err(|e| Error::of(&disk.path_of(&name), "remove it", e))?;
        }
    }
    // Numbers have leading zeros: their order is that of the names.
    segments.sort_unstable();
    spares.sort_unstable();
    Ok((segments, spares))
}

pub(crate) fn read_state<D: Disk>(disk: &D) -> Result<Option<State>, Error> {
    let path = disk.path_of(state::NAME);
    let file = match disk.open(state::NAME) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(|e| Error::of(&path, "open it", e))?,
    };
    let mut bytes = [0; HEAD_BYTES];
    let got = file.read_at(&mut bytes, 0).map_err(|e| Error::of(&path, "read it", e))?;
    State::decode(&bytes[..got]).map(Some).map_err(|why| Error::Misfit { path, why })
}

fn write_state<D: Disk>(shelf: &Shelf<D>, state: &State) -> Result<(), Error> {
    let (new, name) = (state::NEW_NAME, state::NAME);
    let file = shelf.disk.create(new).map_err(|e| shelf.error(new, "make it", e))?;
    file.write_at(&state.encode(), 0).map_err(|e| shelf.error(new, "write to it", e))?;
    file.sync().map_err(|e| shelf.error(new, "sync it", e))?;
    shelf.disk.rename(new, name).map_err(|e| shelf.error(new, "rename it", e))?;
    shelf.sync_names()
}

/// Whether a log without a state is one whose making was cut off: no record was ever taken.
fn never_used<D: Disk>(disk: &D, names: &[String]) -> Result<bool, Error> {
    match names {
        [] => Ok(true),
        [name] if segment::first_of(name) == Some(0) => {
            let (file, head) = open_segment(disk, name)?;
            let stand = beginning(&head);
            let mut walk = Walk::new(&file, Seed::of(head.log), head.bytes, stand);
            let read = |e| Error::of(&disk.path_of(name), "read it", e);
            let none = matches!(walk.step().map_err(read)?, Step::Nothing(_));
            Ok(none && walk.tail().map_err(read)? == Tail::Blank)
        }
        _ => Ok(false),
    }
}

/// The place before a segment's first record.
pub(crate) fn beginning(head: &SegmentHead) -> Stand {
    Stand { offset: RECORDS_AT, number: head.first, life: 0, closed: false, turned: false }
}

pub(crate) fn open_segment<D: Disk>(disk: &D, name: &str) -> Result<(D::File, SegmentHead), Error> {
    let path = disk.path_of(name);
    let file = disk.open(name).map_err(|e| Error::of(&path, "open it", e))?;
    let mut bytes = [0; HEAD_BYTES];
    let got = file.read_at(&mut bytes, 0).map_err(|e| Error::of(&path, "read it", e))?;
    let head = SegmentHead::decode(&bytes[..got]);
    Ok((file, head.map_err(|why| Error::Misfit { path, why })?))
}

/// Walks over all segments and puts them on the shelf. Changes nothing.
fn find<D: Disk>(
    shelf: &Shelf<D>,
    names: &[String],
    state: State,
    each: &mut dyn FnMut(u64, &[u8]),
) -> Result<Found<D::File>, Error> {
    let seed = Seed::of(state.log);
    let mut end: Option<Stand> = None;
    let (mut torn, mut proved, mut unturned, mut before) = (false, 0, None, None);
    for (i, name) in names.iter().enumerate() {
        let (file, head) = open_segment(&shelf.disk, name)?;
        let damage = |offset, number, what| {
            let path = shelf.disk.path_of(name);
            Err(Error::Damaged(Damage { path, offset, number, what }))
        };
        if head.log != state.log {
            let path = shelf.disk.path_of(name);
            return Err(Error::Misfit { path, why: Misfit::OtherLog });
        }
        let wanted = end.map_or(head.first, |stand| stand.number);
        if segment::first_of(name) != Some(head.first) || head.first != wanted {
            return damage(0, wanted, Flaw::Segment);
        }
        if let Some((segment, stand)) = before.take() {
            unturned = Some((segment, stand)).filter(|(_, stand): &(_, Stand)| !stand.turned);
        }
        let from = Stand { life: end.map_or(0, |stand| stand.life), ..beginning(&head) };
        let until = names.get(i + 1).and_then(|name| segment::first_of(name));
        let segment = Arc::new(Segment::new(name.clone(), file, head.first, head.bytes));
        let mut walk = Walk::new(&segment.file, seed, head.bytes, from);
        let read = |e| Error::of(&shelf.disk.path_of(name), "read it", e);
        let flaw = records(&mut walk, &segment, each).map_err(read)?;
        let stand = walk.stand();
        let (offset, number) = (stand.offset, stand.number);
        let closed = stand.closed && stand.life == state.life;
        let tail = match until {
            Some(until) if until == number => Tail::Blank,
            None if closed => Tail::Blank,
            None if !stand.turned => walk.tail().map_err(read)?,
            Some(_) | None => Tail::Proof,
        };
        match tail {
            Tail::Proof => return damage(offset, number, flaw),
            tail => torn = tail == Tail::Torn,
        }
        proved = proved.max(walk.proved()).max(head.first);
        end = Some(stand);
        before = Some((segment.clone(), stand));
        shelf.adopt(segment);
    }
    let Some(end) = end else {
        return Err(Error::Missing { path: shelf.disk.path_of(&segment::name(0)) });
    };
    Ok(Found { end, torn, proved, unturned })
}

/// Gives the records of a segment, and what ends them.
fn records<F: File>(
    walk: &mut Walk<'_, F>,
    segment: &Segment<F>,
    each: &mut dyn FnMut(u64, &[u8]),
) -> std::io::Result<Flaw> {
    loop {
        match walk.step()? {
            Step::Record(number) => {
                segment.note(number, walk.found_at());
                each(number, walk.bytes()?);
            }
            Step::Nothing(flaw) => return Ok(flaw),
        }
    }
}

/// Says in a segment that the next one is there: its process ended before it could.
fn turn<D: Disk>(shelf: &Shelf<D>, segment: &Segment<D::File>, stand: Stand) -> Result<(), Error> {
    let (number, life) = (stand.number, stand.life);
    let head = Head { kind: Kind::Turn, sum: 0, life, number, durable: number };
    let written = segment.file.write_at(&head.encode(Seed::of(shelf.log)), stand.offset);
    written.map_err(|e| shelf.error(&segment.name, "write to it", e))?;
    segment.file.sync().map_err(|e| shelf.error(&segment.name, "sync it", e))
}

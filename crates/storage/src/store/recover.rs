//! The start of a log: what is in it is read, judged, and made durable.

use super::Store;
use super::judge::{judge, never_was};
use super::synced::{self, SyncedEnd};
use crate::disk::{Disk, File};
use crate::error::{Damage, Error, Flaw, Misfit};
use crate::format::record::{Head, Kind, Seed};
use crate::format::segment::{self, RECORDS_AT, SegmentHead};
use crate::format::state::{self, State};
use crate::format::{self, HEAD_BYTES, LogId, Owner};
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
    /// anew since the log was opened last, or the disk failed, and the log was not closed before.
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
struct Found<'n, F> {
    /// Each segment, with its head and its end. In the last one the log ends.
    chain: Vec<(Arc<Segment<F>>, SegmentHead, Stand)>,
    /// Whether something was begun behind it.
    torn: bool,
    /// The records before this number were durable, by what is said behind them.
    proved: u64,
    /// The segments behind it, of which none was there for good.
    behind: &'n [String],
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
        let known = state.map_or(Owner::UNKNOWN, |state| state.owner);
        if !known.may_be(machine.owner) {
            let path = disk.path().to_path_buf();
            return Err(Error::Misfit { path, why: Misfit::OtherOwner(known) });
        }
        let log = state.map_or(machine.fresh, |state| state.log);
        let shelf = Shelf::new(disk, log, segment_bytes, spares_min);
        match state {
            None => Self::make(shelf, &names, &spares, machine),
            Some(state) => Self::resume(shelf, (&names, &spares), state, machine, each),
        }
    }

    /// A new log. Its state comes last: until it is there nothing is, and what was begun is removed.
    fn make(
        shelf: Shelf<D>,
        names: &[String],
        spares: &[String],
        machine: &Machine,
    ) -> Result<(Self, Recovered), Error> {
        for name in spares {
            shelf.adopt_spare(name.clone(), true)?;
        }
        for name in names {
            shelf.disk.remove(name).map_err(|e| shelf.error(name, "remove it", e))?;
        }
        let segment = shelf.begin(0)?;
        let log = shelf.log;
        synced::replace(&shelf.disk, log, 0)?;
        let state = State::of(log, machine);
        write_state(&shelf, &state)?;
        let store = Self::at(shelf, segment, 0, RECORDS_AT, 0)?;
        Ok((store, Recovered { log, life: 0, first: 0, next: 0, torn: None, lossy: false }))
    }

    fn resume(
        shelf: Shelf<D>,
        (names, spares): (&[String], &[String]),
        old: State,
        machine: &Machine,
        each: &mut dyn FnMut(u64, &[u8]),
    ) -> Result<(Self, Recovered), Error> {
        let end = synced::of(&shelf.disk, old.log, Some(&old))?;
        let found = find(&shelf, names, (old, end), each)?;
        let Some((last, _, end)) = found.chain.last() else {
            return Err(Error::Missing { path: shelf.disk.path_of(&segment::name(0)) });
        };
        let closed = end.closed && end.life == old.life;
        // Where the machine goes on and segments are missing their beginning, the disk failed: what was told to be
        // written never got there.
        let lossy = !closed && (!found.behind.is_empty() || !old.boot.same(machine.boot));
        cut(&shelf, found.behind)?;
        for name in spares {
            shelf.adopt_spare(name.clone(), !lossy)?;
        }
        settle(&shelf, &found)?;
        let life = old.life + 1;
        let (log, first, next) = (old.log, shelf.first(), end.number);
        let at = end.offset;
        // Who does not say who it is leaves what is known.
        let owner = if machine.owner == Owner::UNKNOWN { old.owner } else { machine.owner };
        let torn =
            found.torn.then(|| Torn { path: shelf.disk.path_of(&last.name), offset: end.offset });
        let recovered = Recovered { log, life, first, next, torn, lossy };
        let store = Self::at(shelf, last.clone(), life, at, next)?;
        write_state(&store.shelf, &State { life, owner, ..State::of(log, machine) })?;
        Ok((store, recovered))
    }

    /// A log that is durable as far as it goes.
    fn at(
        shelf: Shelf<D>,
        segment: Arc<Segment<D::File>>,
        life: u32,
        at: u64,
        next: u64,
    ) -> Result<Self, Error> {
        let seed = Seed::of(shelf.log);
        let end = Arc::new(SyncedEnd::open(&shelf, next)?);
        let shelf = Arc::new(shelf);
        Ok(Self {
            shelf,
            seed,
            life,
            segment,
            at,
            next,
            durable: next,
            said: 0,
            dirty_bytes: 0,
            end,
            aside: None,
        })
    }
}

/// Gives up segments behind the end of the log, the last one first: whatever ends this, the log ends where
/// it did.
fn cut<D: Disk>(shelf: &Shelf<D>, behind: &[String]) -> Result<(), Error> {
    for name in behind.iter().rev() {
        shelf.disk.remove(name).map_err(|e| shelf.error(name, "remove it", e))?;
        shelf.sync_names()?;
    }
    Ok(())
}

/// Makes durable what was found and is not known to be: what was read may be in no place but the kernel's
/// memory, and the caller counts on it now. It is written again, for after a failed sync the kernel takes
/// what it has and the disk has not for written.
///
/// A segment that says that the next one is there is durable, and the next one's name and head are.
fn settle<D: Disk>(shelf: &Shelf<D>, found: &Found<'_, D::File>) -> Result<(), Error> {
    let chain = &found.chain;
    let from = chain.iter().take_while(|(.., stand)| stand.turned).count();
    for (i, (segment, head, stand)) in chain.iter().enumerate().skip(from) {
        if i > from {
            let written = segment.file.write_at(&head.encode(), 0);
            written.map_err(|e| shelf.error(&segment.name, "write to it", e))?;
        }
        if i > from || found.proved < stand.number {
            write_again(shelf, segment, found.proved, stand.offset)?;
        }
    }
    let unturned = chain.get(from..).and_then(<[_]>::split_last).map_or(&[][..], |(_, some)| some);
    if !unturned.is_empty() {
        shelf.sync_names()?;
    }
    for (segment, _, stand) in unturned {
        turn(shelf, segment, *stand)?;
    }
    shelf.settle(chain.last().map_or(0, |(last, ..)| last.first));
    Ok(())
}

/// Writes a segment again up to `end`, from the record `from` on, and syncs it.
fn write_again<D: Disk>(
    shelf: &Shelf<D>,
    segment: &Segment<D::File>,
    from: u64,
    end: u64,
) -> Result<(), Error> {
    let (_, mut at) = segment.near(from.max(segment.first));
    let mut bytes = vec![0; SETTLE_BYTES.min(end.saturating_sub(at) as usize)];
    while at < end {
        let piece = bytes.len().min((end - at) as usize);
        let got = segment.file.read_at(&mut bytes[..piece], at);
        let got = got.map_err(|e| shelf.error(&segment.name, "read it", e))?;
        let written = segment.file.write_at(&bytes[..got], at);
        written.map_err(|e| shelf.error(&segment.name, "write to it", e))?;
        // What was read a moment ago is there.
        at += got.max(1) as u64;
    }
    segment.file.sync().map_err(|e| shelf.error(&segment.name, "sync it", e))
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
        } else if name == state::NEW_NAME || name == format::synced::NEW_NAME {
            disk.remove(&name).map_err(|e| Error::of(&disk.path_of(&name), "remove it", e))?;
            // Or the next one of that name might be lost and this one be renamed in its place.
            disk.sync().map_err(|e| Error::of(disk.path(), "sync its names", e))?;
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

/// Walks over all segments and puts them on the shelf. Changes nothing. The records before `synced` must be
/// there, as far as that is known.
fn find<'n, D: Disk>(
    shelf: &Shelf<D>,
    names: &'n [String],
    (state, synced): (State, Option<u64>),
    each: &mut dyn FnMut(u64, &[u8]),
) -> Result<Found<'n, D::File>, Error> {
    let mut found = Found { chain: Vec::new(), torn: false, proved: 0, behind: &[] };
    for (i, name) in names.iter().enumerate() {
        let end = found.chain.last().map(|(.., stand): &(_, _, Stand)| *stand);
        if let Some(end) = end
            && never_was(&shelf.disk, state.log, &names[i..], &end)?
        {
            (found.torn, found.behind) = (true, &names[i..]);
            break;
        }
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
        let from = Stand { life: end.map_or(0, |stand| stand.life), ..beginning(&head) };
        let segment = Arc::new(Segment::new(name.clone(), file, head.first, head.bytes));
        let mut walk = Walk::new(&segment.file, Seed::of(state.log), head.bytes, from);
        let read = |e| Error::of(&shelf.disk.path_of(name), "read it", e);
        let flaw = records(&mut walk, &segment, each).map_err(read)?;
        let stand = walk.stand();
        let closed = stand.closed && stand.life == state.life;
        let behind = &names[i + 1..];
        match judge(&shelf.disk, state.log, &mut walk, behind, closed)? {
            Tail::Proof => return damage(stand.offset, stand.number, flaw),
            Tail::Short => return damage(stand.offset, stand.number, Flaw::Length),
            Tail::Torn => (found.torn, found.behind) = (true, behind),
            Tail::Blank => {}
        }
        found.proved = found.proved.max(walk.proved()).max(head.durable());
        found.chain.push((segment.clone(), head, stand));
        shelf.adopt(segment);
        if !found.behind.is_empty() {
            break;
        }
    }
    match found.chain.last() {
        Some((last, _, end)) if synced.is_some_and(|synced| end.number < synced) => {
            let (path, offset, number) = (shelf.disk.path_of(&last.name), end.offset, end.number);
            Err(Error::Damaged(Damage { path, offset, number, what: Flaw::End }))
        }
        _ => Ok(found),
    }
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

//! Which command a node is executing, in a small file that outlasts its process: a node that ended while it
//! executed something finds at its next start what that was, however it ended.
//!
//! The file is mapped, so what is noted of each command takes a few stores and no system call. It is in memory, where the
//! machine has a place for that ([`location`]): no note waits for a disk. It says nothing
//! that anything but people depends on, and is gone or may be wrong after the end of the machine. Words are little-endian,
//! and have 8 bytes:
//!
//! ```text
//!  0  8  magic "amcastEX"        12  4  how many slots
//!  8  4  version, 1              16 48  zero
//! 64     the slots, 512 bytes each: what is being done, and what was when the process before ended
//! and each of these two, in 256 bytes:
//!  0  8  sender of the message   40  8  length of the command
//!  8  8  its number              48  8  of what was: how many ends in a row
//! 16  8  its groups, a bit each  56  8  1 if there is anything
//! 24  8  one of its groups       64 192 the beginning of the command
//! 32  8  its position there
//! ```

mod location;

use amcast_core::memory::{CacheLine, LineStamp};
use amcast_core::{Gid, GroupSet, MsgId, Pid, SkipDecision};
use amcast_memory::MappedFile;
use amcast_smr::{ExecutedCommand, ExecutionObserver};
use location::{NotesLocation, gone};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

const MAGIC: &[u8; 8] = b"amcastEX";
const VERSION: u32 = 1;

const LINE_BYTES: usize = MappedFile::LINE_BYTES;
/// Lines of one note.
const NOTE_LINES: usize = 4;
const NOTE_BYTES: usize = NOTE_LINES * LINE_BYTES;
/// Bytes of a command that are noted.
const COMMAND_BYTES: usize = NOTE_BYTES - LINE_BYTES;
/// The current note, and the previous one.
const SLOT_BYTES: usize = 2 * NOTE_BYTES;

/// The notes of a node on the commands that it executes.
#[derive(Debug)]
pub struct ExecutionNotes {
    file: MappedFile,
    /// Where the file is, if it is in the shared memory.
    memory: Option<PathBuf>,
    /// The notes of each slot on the ends of earlier processes.
    before: Vec<Option<SkipDecision>>,
}

/// A command that is being executed, or was when its process ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExecutionNote {
    /// Its message, and a place of it.
    pub place: SkipDecision,
    /// Its destinations.
    pub dst: GroupSet,
    /// How long it is, in bytes.
    pub length: u64,
    /// Its beginning.
    pub command: Vec<u8>,
    /// How many processes in a row ended while they executed it.
    pub times: u64,
}

impl fmt::Display for ExecutionNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let times = match self.times {
            1 => "once".to_string(),
            n => format!("{n} times in a row"),
        };
        write!(f, "ended {times} while it executed {}, {} bytes", self.place, self.length)
    }
}

impl ExecutionNote {
    /// The words of it, and the beginning of the command.
    fn read(bytes: &[u8]) -> Option<Self> {
        let word = |i: usize| {
            let bytes = bytes.get(8 * i..).and_then(|rest| rest.first_chunk::<8>());
            bytes.map(|bytes| u64::from_le_bytes(*bytes))
        };
        if word(7)? != 1 {
            return None;
        }
        let msg = MsgId { sender: Pid(u32::try_from(word(0)?).ok()?), seq: word(1)? };
        let group = Gid(u8::try_from(word(3)?).ok()?);
        let place = SkipDecision { msg, group, position: word(4)? };
        let length = word(5)?;
        let noted = COMMAND_BYTES.min(usize::try_from(length).unwrap_or(COMMAND_BYTES));
        let command = bytes.get(LINE_BYTES..)?.get(..noted)?.to_vec();
        Some(Self { place, dst: GroupSet(word(2)?), length, command, times: word(6)? })
    }

    fn write(&self, bytes: &mut [u8]) {
        let SkipDecision { msg, group, position } = self.place;
        let (sender, group) = (u64::from(msg.sender.0), u64::from(group.0));
        let words = [sender, msg.seq, self.dst.0, group, position, self.length, self.times, 1];
        for (to, word) in bytes.chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        bytes[LINE_BYTES..][..self.command.len()].copy_from_slice(&self.command);
    }
}

/// The notes of each slot on the ends of the processes so far, and whether they are of the last
/// process.
fn slots(file: &[u8]) -> impl Iterator<Item = Option<(ExecutionNote, bool)>> {
    let is_ours = file.starts_with(MAGIC) && file.get(8..12) == Some(&VERSION.to_le_bytes()[..]);
    let slots = if is_ours { file.get(LINE_BYTES..).unwrap_or_default() } else { &[] };
    slots.chunks_exact(SLOT_BYTES).map(|slot| {
        let (now, before) = slot.split_at(NOTE_BYTES);
        let before = ExecutionNote::read(before);
        let Some(mut now) = ExecutionNote::read(now) else {
            return before.map(|before| (before, false));
        };
        let same = before.filter(|before| before.place.msg == now.place.msg);
        now.times = 1 + same.map_or(0, |before| before.times);
        Some((now, true))
    })
}

/// The messages that the node with this directory was executing when it ended, at last or before it
/// was well again.
///
/// # Errors
/// When that cannot be read.
pub fn executing_at_end(data: &Path) -> io::Result<Vec<ExecutionNote>> {
    ended_in(&NotesLocation::of(data))
}

fn ended_in(location: &NotesLocation) -> io::Result<Vec<ExecutionNote>> {
    Ok(slots(&location.read()?).flatten().map(|(note, _)| note).collect())
}

/// The node's directory `data` is removed: its notes elsewhere are, too.
pub(crate) fn remove_notes(data: &Path) {
    NotesLocation::of(data).remove_from_memory();
}

impl ExecutionNotes {
    /// Begins to note for the node with the directory `data`, in so many slots; with what the process before was executing
    /// when it ended.
    ///
    /// # Errors
    /// When the file cannot be used.
    pub(crate) fn begin(data: &Path, count: usize) -> io::Result<(Self, Vec<ExecutionNote>)> {
        Self::begin_in(&NotesLocation::of(data), count)
    }

    fn begin_in(location: &NotesLocation, count: usize) -> io::Result<(Self, Vec<ExecutionNote>)> {
        let before = location.read()?;
        let mut file = vec![0; LINE_BYTES + count * SLOT_BYTES];
        file[..8].copy_from_slice(MAGIC);
        file[8..12].copy_from_slice(&VERSION.to_le_bytes());
        file[12..16].copy_from_slice(&(count as u32).to_le_bytes());
        let (mut ended, mut places) = (Vec::new(), Vec::new());
        for (slot, note) in file[LINE_BYTES..].chunks_exact_mut(SLOT_BYTES).zip(slots(&before)) {
            places.push(note.as_ref().map(|(note, _)| note.place));
            if let Some((note, is_last)) = note {
                note.write(&mut slot[NOTE_BYTES..]);
                ended.extend(Some(note).filter(|_| is_last));
            }
        }
        let (file, memory) = location.create(&file)?;
        Ok((Self { file, memory, before: places }, ended))
    }

    /// The node ends in order. Its file in the shared memory goes, which nobody else would ever remove, unless something is
    /// noted in it.
    pub(crate) fn end(&self) {
        let is_empty =
            self.file[1..].chunks(NOTE_LINES).all(|note| note[0].stamp() == LineStamp(0));
        if let Some(path) = self.memory.as_deref().filter(|_| is_empty)
            && let Err(e) = gone(path)
        {
            tracing::warn!("{}: {e}", path.display());
        }
    }

    fn lines(&self, slot: usize) -> &[CacheLine] {
        &self.file[1 + slot * 2 * NOTE_LINES..][..NOTE_LINES]
    }

    /// The node is well and has executed so much of a group: messages within that which ended
    /// earlier processes do not end this one. Messages that this one has not reached yet are kept.
    /// Returns whether none is kept.
    pub(crate) fn survives(&self, applied: impl Fn(Gid) -> u64) -> bool {
        let mut all = true;
        for (slot, before) in self.before.iter().enumerate() {
            match before {
                Some(place) if place.position > applied(place.group) => all = false,
                _ => self.file[1 + (2 * slot + 1) * NOTE_LINES].publish(LineStamp(0)),
            }
        }
        all
    }

    /// The command at `place` is begun. At one time at most one is being executed in each slot.
    fn note(&self, slot: usize, place: &SkipDecision, dst: GroupSet, command: &[u8]) {
        let lines = self.lines(slot);
        for (i, part) in command.chunks(8).take(COMMAND_BYTES / 8).enumerate() {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            // As it lies in memory, so in the file.
            let word = u64::from_ne_bytes(word);
            lines[1 + i / 8].raw(i % 8).store(word, std::sync::atomic::Ordering::Relaxed);
        }
        let SkipDecision { msg, group, position } = *place;
        let (sender, length) = (u64::from(msg.sender.0), command.len() as u64);
        let words = [sender, msg.seq, dst.0, u64::from(group.0), position, length, 0];
        lines[0].put(&words.map(u64::to_le), LineStamp(1_u64.to_le()));
    }
}

impl ExecutionObserver for ExecutionNotes {
    fn begins(&self, slot: usize, doing: &ExecutedCommand<'_>) {
        let ExecutedCommand { id: msg, dst, place, command } = *doing;
        let place = SkipDecision { msg, group: place.shard, position: place.position };
        self.note(slot, &place, dst, command);
    }

    fn ends(&self, slot: usize) {
        self.lines(slot)[0].publish(LineStamp(0));
    }
}

#[cfg(test)]
mod tests {
    use super::location::NAME;
    use super::location::tests::NotesTestDir;
    use super::*;
    use std::fs;

    fn place(seq: u64) -> SkipDecision {
        let msg = MsgId { sender: Pid(3), seq };
        SkipDecision { msg, group: Gid(1), position: 2 * seq }
    }

    #[test]
    fn a_node_that_ended_while_it_executed_knows_what_and_how_often_in_a_row() {
        let dir = NotesTestDir::new("executing");
        let location = dir.location();
        let at_end = || ended_in(&location).unwrap();
        assert_eq!(at_end(), []);
        let begin = || ExecutionNotes::begin_in(&location, 3).unwrap();
        let (first, ended) = begin();
        assert_eq!((ended, at_end()), (vec![], vec![]));
        let (dst, command) = (GroupSet(0b110), [7; 300]);
        first.note(0, &place(8), GroupSet(1), b"one that ends");
        first.ends(0);
        first.note(2, &place(9), dst, &command);
        let note = |times| {
            let command = command[..COMMAND_BYTES].to_vec();
            ExecutionNote { place: place(9), dst, length: 300, command, times }
        };
        assert_eq!(at_end(), [note(1)], "while it runs");
        for times in 1..4 {
            let (next, ended) = begin();
            assert_eq!(ended, [note(times)]);
            assert_eq!(at_end(), [note(times)], "it has executed nothing yet");
            next.note(2, &place(9), dst, &command);
        }
        let said = at_end()[0].to_string();
        assert_eq!(said, "ended 4 times in a row while it executed p3:9@g1/18, 300 bytes");
        // One that ends at rest was not ended by a command, and another one may be.
        drop(begin());
        let (rests, ended) = begin();
        assert_eq!((ended, at_end()), (vec![], vec![note(4)]));
        // One that is well but has not come to it may still be ended by it.
        assert!(!rests.survives(|group| 17 * u64::from(group.0)));
        rests.end();
        assert_eq!(at_end(), [note(4)]);
        assert!(rests.survives(|group| 18 * u64::from(group.0)));
        assert_eq!(at_end(), []);
        rests.note(1, &place(10), dst, b"short");
        rests.end();
        let (_, ended) = begin();
        assert_eq!((ended[0].times, &ended[0].command[..]), (1, &b"short"[..]));
        // Anything else says nothing.
        fs::write(dir.data.join(NAME), b"amcastEX of another version").unwrap();
        assert_eq!((at_end(), begin().1), (vec![], vec![]));
    }

    #[test]
    fn notes_that_an_older_program_left_in_the_directory_are_continued_in_memory() {
        let dir = NotesTestDir::new("executing-upgrade");
        let on_disk = NotesLocation::within(&dir.data.join("nowhere"), &dir.data);
        let (older, _) = ExecutionNotes::begin_in(&on_disk, 2).unwrap();
        older.note(1, &place(9), GroupSet(2), b"poison");
        assert_eq!(dir.files(), (true, 0));
        let location = dir.location();
        assert_eq!(ended_in(&location).unwrap()[0].times, 1);
        let (newer, ended) = ExecutionNotes::begin_in(&location, 2).unwrap();
        assert_eq!((ended[0].place, dir.files()), (place(9), (false, 1)));
        newer.note(1, &place(9), GroupSet(2), b"poison");
        assert_eq!(ended_in(&location).unwrap()[0].times, 2);
        // The older program knows nothing of the notes in memory: what it leaves is later than these.
        let (older, _) = ExecutionNotes::begin_in(&on_disk, 2).unwrap();
        older.note(0, &place(10), GroupSet(1), b"another");
        let (_, ended) = ExecutionNotes::begin_in(&location, 2).unwrap();
        assert_eq!((ended[0].place, ended.len()), (place(10), 1));
        assert_eq!(dir.files(), (false, 1));
    }

    #[test]
    fn a_node_that_ends_in_order_leaves_no_file_in_memory() {
        let dir = NotesTestDir::new("executing-end");
        let location = dir.location();
        let (notes, _) = ExecutionNotes::begin_in(&location, 2).unwrap();
        notes.note(1, &place(9), GroupSet(2), b"some");
        notes.ends(1);
        assert_eq!(dir.files(), (false, 1));
        notes.end();
        assert_eq!(dir.files(), (false, 0));
        // So it is where the node's directory is removed.
        drop(ExecutionNotes::begin_in(&location, 2).unwrap());
        location.remove_from_memory();
        assert_eq!(dir.files(), (false, 0));
    }
}

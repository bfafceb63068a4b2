//! The application's state on disk, so that what led to it need not be kept for ever.
//!
//! A checkpoint is what a node would give to another one ([`crate::handover`]): the state of all its
//! groups at one moment, in pieces, while commands go on. A thread writes them to a new file, which
//! has its name only when all of it is on the disk; the one before stays until then. When it is there
//! each process is told the position of its group ([`amcast_core::Input::Checkpointed`]), and may
//! forget what it kept for those before.
//!
//! ```text
//! NODE.data/state/0000000000000007    a checkpoint: its words, the state, its length, its sum
//! NODE.data/state/new                 one that is being written
//! ```
//!
//! # When
//! After so many bytes of commands, or so long a time in which there were any, whichever is first; and
//! not before there are as many bytes of commands as the last checkpoint has, so that writing costs no
//! more than twice what is ordered. The nodes begin with different parts of that behind them, by their
//! rank: they do not write all at one time.

use crate::application::{Application, Wake};
use crate::home::Keeping;
use amcast_core::{Span, Time};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::thread;

/// What a checkpoint begins with; the last two digits are the version.
const WORDS: &[u8; 16] = b"amcast state v01";

/// What stands behind the state: its length and its sum.
const TAIL_BYTES: usize = 8 + 4;

/// How many checkpoints are kept, the newest among them.
const KEPT: usize = 2;

/// A checkpoint is written after so many bytes of commands on a disk.
const AFTER_BYTES: u64 = 64 << 20;

/// The same where what is kept is in memory.
const AFTER_BYTES_IN_MEMORY: u64 = 8 << 20;

/// And after so long a time in which there were commands.
const AFTER: Span = Span::secs(60);

/// What a command counts besides its bytes.
const COMMAND_BYTES: u64 = 64;

/// Why a checkpoint is not there.
#[derive(Debug)]
pub(crate) struct Failed(pub(crate) String);

/// The checkpoints of a node.
pub(crate) struct Checkpoints {
    dir: PathBuf,
    after_bytes: u64,
    /// Bytes of commands since the last one.
    bytes: u64,
    /// How large the last one is.
    last_bytes: u64,
    /// When the next one is due, if there were commands.
    due_at: Time,
    writing: Option<Writing>,
}

struct Writing {
    /// Where each group stands in it.
    positions: Vec<u64>,
    /// How many bytes it has; none if it was given up.
    done: Receiver<io::Result<Option<u64>>>,
}

impl Checkpoints {
    /// The checkpoints of node `rank` of so many, from `now` on.
    pub(crate) fn new(keeping: &Keeping, (rank, nodes): (usize, usize), now: Time) -> Self {
        let after_bytes = if keeping.lasts { AFTER_BYTES } else { AFTER_BYTES_IN_MEMORY };
        let part = |all: u64| all / nodes as u64 * rank as u64;
        Self {
            dir: keeping.checkpoints(),
            after_bytes,
            bytes: part(after_bytes),
            last_bytes: 0,
            due_at: now + Span(AFTER.0 - part(AFTER.0)),
            writing: None,
        }
    }

    /// A command of so many bytes was delivered.
    pub(crate) const fn delivered(&mut self, bytes: usize) {
        self.bytes += bytes as u64 + COMMAND_BYTES;
    }

    /// Whether one is to be written.
    pub(crate) fn is_due(&self, now: Time) -> bool {
        let many = self.bytes >= self.after_bytes.max(self.last_bytes);
        self.writing.is_none() && self.bytes > 0 && (many || now >= self.due_at)
    }

    /// Whether one is being written.
    pub(crate) const fn is_writing(&self) -> bool {
        self.writing.is_some()
    }

    /// Begins to write one in which the groups stand at `positions`. Its pieces come from `pieces`, an
    /// empty one behind the last; `wake` wakes who gives them.
    ///
    /// # Errors
    /// When there is no thread to be had.
    pub(crate) fn begin(
        &mut self,
        now: Time,
        positions: Vec<u64>,
        pieces: Receiver<Vec<u8>>,
        wake: Wake,
    ) -> io::Result<()> {
        let (tell, done) = sync_channel(1);
        let dir = self.dir.clone();
        let write = move || {
            // If the node stops meanwhile nobody waits for it.
            let _ = tell.send(write(&dir, &pieces, &wake));
            wake();
        };
        thread::Builder::new().name("checkpoint".to_string()).spawn(write)?;
        (self.bytes, self.due_at) = (0, now + AFTER);
        self.writing = Some(Writing { positions, done });
        Ok(())
    }

    /// The positions of one that has just come to be on the disk.
    ///
    /// # Errors
    /// When it could not be written.
    pub(crate) fn poll(&mut self) -> Result<Option<Vec<u64>>, Failed> {
        let Some(writing) = &self.writing else { return Ok(None) };
        let done = match writing.done.try_recv() {
            Err(TryRecvError::Empty) => return Ok(None),
            Err(TryRecvError::Disconnected) => Err(io::Error::other("its thread has panicked")),
            Ok(done) => done,
        };
        let positions = self.writing.take().map(|writing| writing.positions);
        match done {
            Err(e) => {
                let what = match e.kind() {
                    io::ErrorKind::StorageFull => {
                        "the disk is full; make room there (`df`), and start again".to_string()
                    }
                    _ => e.to_string(),
                };
                let dir = self.dir.display();
                Err(Failed(format!("{dir}: the state cannot be written: {what}")))
            }
            // It was given up: the next one comes sooner.
            Ok(None) => {
                self.bytes = self.bytes.max(self.after_bytes / 2);
                Ok(None)
            }
            Ok(Some(bytes)) => {
                self.last_bytes = bytes;
                Ok(positions)
            }
        }
    }
}

/// Writes a checkpoint; none if the pieces end before all are there.
fn write(dir: &Path, pieces: &Receiver<Vec<u8>>, wake: &Wake) -> io::Result<Option<u64>> {
    match DirBuilder::new().mode(0o700).create(dir) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
        Ok(()) => sync(dir.parent().unwrap_or(dir))?,
        Err(_) => {}
    }
    let new = dir.join("new");
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    let mut to = BufWriter::new(&file);
    to.write_all(WORDS)?;
    let (mut bytes, mut sum) = (0_u64, 0_u32);
    loop {
        let Ok(piece) = pieces.recv() else { return Ok(None) };
        wake();
        if piece.is_empty() {
            break;
        }
        bytes += piece.len() as u64;
        sum = crc32c::crc32c_append(sum, &piece);
        to.write_all(&piece)?;
    }
    to.write_all(&bytes.to_le_bytes())?;
    to.write_all(&sum.to_le_bytes())?;
    to.flush()?;
    drop(to);
    file.sync_all()?;
    let mut old = all(dir)?;
    let number = old.last().map_or(0, |(number, _)| number + 1);
    fs::rename(&new, dir.join(format!("{number:016}")))?;
    sync(dir)?;
    old.truncate((old.len() + 1).saturating_sub(KEPT));
    for (_, path) in old {
        fs::remove_file(path)?;
    }
    Ok(Some(bytes))
}

fn sync(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// The checkpoints in the directory, by their numbers.
fn all(dir: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let entries = match fs::read_dir(dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry?;
        if let Some(number) = entry.file_name().to_str().and_then(|name| name.parse().ok()) {
            found.push((number, entry.path()));
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// A state that was read, and the history of deliveries that came with it.
pub(crate) struct Restored<S> {
    pub(crate) state: S,
    pub(crate) history: Vec<u8>,
}

/// Reads the newest checkpoint that is whole; none if there is none. One that is not is passed over,
/// with a warning: the one before it is older, and what came since is in the logs, or with others.
///
/// # Errors
/// When the directory cannot be read.
pub(crate) fn newest<A: Application>(
    keeping: &Keeping,
    groups: usize,
) -> io::Result<Option<Restored<A::State>>> {
    for (_, path) in all(&keeping.checkpoints())?.into_iter().rev() {
        match read::<A>(&path, groups) {
            Ok(restored) => return Ok(Some(restored)),
            Err(e) => tracing::error!("{}: is passed over: {e}", path.display()),
        }
    }
    Ok(None)
}

fn read<A: Application>(path: &Path, groups: usize) -> io::Result<Restored<A::State>> {
    let bytes = check(&mut BufReader::new(File::open(path)?), fs::metadata(path)?.len())?;
    let mut from = BufReader::new(File::open(path)?);
    io::copy(&mut (&mut from).take(WORDS.len() as u64), &mut io::sink())?;
    let mut from = from.take(bytes);
    let mut length = [0; 8];
    from.read_exact(&mut length)?;
    let mut history = Vec::new();
    (&mut from).take(u64::from_le_bytes(length)).read_to_end(&mut history)?;
    let state = A::read(groups, &mut from).map_err(io::Error::other)?;
    Ok(Restored { state, history })
}

/// Checks a whole file of `all` bytes; how many bytes of state it has.
fn check(from: &mut impl Read, all: u64) -> io::Result<u64> {
    let damaged = |what: &str| io::Error::other(format!("it is damaged: {what}"));
    let bytes = all.checked_sub((WORDS.len() + TAIL_BYTES) as u64);
    let bytes = bytes.ok_or_else(|| damaged("it is too short"))?;
    let mut words = [0; WORDS.len()];
    from.read_exact(&mut words)?;
    if words != *WORDS {
        return Err(damaged("it does not begin as a state of this version does"));
    }
    let (mut left, mut sum, mut piece) = (bytes, 0, vec![0; 64 << 10]);
    while left > 0 {
        let most = piece.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        from.read_exact(&mut piece[..most])?;
        sum = crc32c::crc32c_append(sum, &piece[..most]);
        left -= most as u64;
    }
    let mut tail = [0; TAIL_BYTES];
    from.read_exact(&mut tail)?;
    if tail[..8] != bytes.to_le_bytes() || tail[8..] != sum.to_le_bytes() {
        return Err(damaged("its bytes do not fit their sum"));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests;

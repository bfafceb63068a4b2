//! A checkpoint that is being written: under another name until it is whole and durable.

use crate::disk::{DiskDir, DiskFile};
use crate::error::StorageError;
use crate::format::HEAD_BYTES;
use crate::format::checkpoint::{
    CheckpointChecksumSeed, CheckpointHead, CheckpointOwner, NEW_NAME, PIECE_BYTES, name,
    piece_head, position_of,
};
use std::io;

/// How many bytes are written before they are synced: what the kernel holds back of a large state
/// would otherwise go to the disk at once, in front of the log's records.
const SYNC_BYTES: u64 = 4 << 20;

/// Where its sync finds no room the draft is dropped, and nothing is lost that was written before: an error as where a write
/// finds none, and not as that of a log's sync.
const SYNC: &str = "sync this state";

/// How many checkpoints are kept: the newest, and one for the case that it is damaged.
const KEPT: usize = 2;

/// A checkpoint that is being written.
pub(crate) struct Draft<F> {
    file: F,
    position: u64,
    seed: CheckpointChecksumSeed,
    /// Where the next piece goes in the file.
    at: u64,
    /// How much of the state is written, in bytes.
    state_bytes: u64,
    /// How much of the file is synced.
    synced: u64,
}

impl<F: DiskFile> Draft<F> {
    /// Begins one.
    pub(crate) fn begin<D: DiskDir<File = F>>(
        disk: &D,
        position: u64,
        owner: CheckpointOwner,
    ) -> Result<Self, StorageError> {
        discard(disk)?;
        let file = disk.create(NEW_NAME).map_err(|e| error(disk, "make it", e))?;
        let piece_bytes = PIECE_BYTES as u32;
        let (head, seed) = CheckpointHead { position, piece_bytes, owner }.encode();
        file.write_at(&head, 0).map_err(|e| error(disk, "write to it", e))?;
        Ok(Self { file, position, seed, at: HEAD_BYTES as u64, state_bytes: 0, synced: 0 })
    }

    /// The position of its state.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// How much of the state is written, in bytes.
    pub(crate) fn state_bytes(&self) -> u64 {
        self.state_bytes
    }

    /// Writes the next piece of the state; at most [`PIECE_BYTES`], and not none.
    pub(crate) fn put<D: DiskDir<File = F>>(
        &mut self,
        disk: &D,
        piece: &[u8],
    ) -> Result<(), StorageError> {
        let head = piece_head(piece, self.state_bytes, self.seed);
        let written = self.file.write_at(&head, self.at);
        let written = written.and_then(|()| {
            self.at += head.len() as u64;
            self.file.write_at(piece, self.at)
        });
        written.map_err(|e| error(disk, "write to it", e))?;
        self.at += piece.len() as u64;
        self.state_bytes += piece.len() as u64;
        if self.at - self.synced >= SYNC_BYTES {
            self.file.sync().map_err(|e| error(disk, SYNC, e))?;
            self.synced = self.at;
        }
        Ok(())
    }

    /// Ends it: from here on it is the one that a start finds. Older ones go.
    pub(crate) fn finish<D: DiskDir<File = F>>(self, disk: &D) -> Result<(), StorageError> {
        let end = piece_head(&[], self.state_bytes, self.seed);
        self.file.write_at(&end, self.at).map_err(|e| error(disk, "write to it", e))?;
        self.file.sync().map_err(|e| error(disk, SYNC, e))?;
        let renamed = disk.rename(NEW_NAME, &name(self.position));
        renamed.map_err(|e| error(disk, "rename it", e))?;
        disk.sync().map_err(|e| StorageError::of(disk.path(), "sync its names", e))?;
        let all = newest_first(disk)?;
        // A file that claims to be newer was found damaged, or is a state that is no longer in force.
        let (newer, older): (Vec<_>, Vec<_>) =
            all.into_iter().filter(|&p| p != self.position).partition(|&p| p > self.position);
        for position in newer.into_iter().chain(older.into_iter().skip(KEPT - 1)) {
            let old = name(position);
            disk.remove(&old).map_err(|e| StorageError::of(&disk.path_of(&old), "remove it", e))?;
        }
        Ok(())
    }
}

/// The position of a checkpoint that was not finished, if there is one whose head is whole.
pub(crate) fn unfinished<D: DiskDir>(disk: &D) -> Result<Option<u64>, StorageError> {
    let file = match disk.open(NEW_NAME) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(error(disk, "open it", e)),
    };
    let mut bytes = [0; HEAD_BYTES];
    let got = file.read_at(&mut bytes, 0).map_err(|e| error(disk, "read it", e))?;
    Ok(CheckpointHead::decode(&bytes[..got]).ok().map(|(head, _)| head.position))
}

/// Removes a checkpoint that was not finished. Whether there was one.
pub(crate) fn discard<D: DiskDir>(disk: &D) -> Result<bool, StorageError> {
    match disk.remove(NEW_NAME) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(error(disk, "remove it", e)),
    }
}

/// The positions of all checkpoints, the newest first.
pub(crate) fn newest_first<D: DiskDir>(disk: &D) -> Result<Vec<u64>, StorageError> {
    let names = disk.names().map_err(|e| StorageError::of(disk.path(), "list it", e))?;
    let mut all: Vec<u64> = names.iter().filter_map(|name| position_of(name)).collect();
    all.sort_unstable_by(|a, b| b.cmp(a));
    Ok(all)
}

fn error<D: DiskDir>(disk: &D, doing: &'static str, e: io::Error) -> StorageError {
    StorageError::of(&disk.path_of(NEW_NAME), doing, e)
}

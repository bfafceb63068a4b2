//! A checkpoint that was saved: found, judged, and read piece by piece.

use super::draft::newest_first;
use crate::disk::{DiskDir, DiskFile};
use crate::error::{Misfit, StorageError};
use crate::format::HEAD_BYTES;
use crate::format::checkpoint::{
    CheckpointChecksumSeed, CheckpointHead, CheckpointOwner, PIECE_HEAD_BYTES, name, piece_head,
    piece_length,
};
use std::fmt;
use std::path::{Path, PathBuf};

/// A checkpoint, read piece by piece: it takes no more memory than a piece.
pub struct CheckpointReader {
    file: Box<dyn DiskFile>,
    path: PathBuf,
    head: CheckpointHead,
    seed: CheckpointChecksumSeed,
    /// How long the state is, in bytes; known once it was judged.
    bytes: u64,
    /// Where the next piece is in the file.
    at: u64,
    /// Where it begins in the state.
    offset: u64,
    piece: Vec<u8>,
}

impl CheckpointReader {
    /// The position of the state.
    pub fn position(&self) -> u64 {
        self.head.position
    }

    /// The owner, as far as it says that.
    pub fn owner(&self) -> CheckpointOwner {
        self.head.owner
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How long the state is, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The next piece of the state; none at its end.
    ///
    /// # Errors
    /// When the file cannot be read, or is damaged: forget the pieces before.
    pub fn piece(&mut self) -> Result<Option<&[u8]>, StorageError> {
        let whole = self.read(PIECE_HEAD_BYTES)?;
        let length = piece_length(&self.piece, &self.head).filter(|_| whole);
        let Some(length) = length else { return Err(self.damage()) };
        let whole = self.read(PIECE_HEAD_BYTES + length)?;
        let (head, piece) = self.piece.split_at(PIECE_HEAD_BYTES);
        if !whole || head != piece_head(piece, self.offset, self.seed) {
            return Err(self.damage());
        }
        self.at += self.piece.len() as u64;
        self.offset += length as u64;
        Ok((length > 0).then(|| &self.piece[PIECE_HEAD_BYTES..]))
    }

    /// Reads so many bytes from its present offset; whether there are so many.
    fn read(&mut self, count: usize) -> Result<bool, StorageError> {
        self.piece.resize(count, 0);
        let got = self.file.read_at(&mut self.piece, self.at);
        Ok(got.map_err(|e| StorageError::of(&self.path, "read it", e))? == count)
    }

    fn damage(&self) -> StorageError {
        StorageError::DamagedCheckpoint { path: self.path.clone(), offset: self.at }
    }

    /// Opens one; nothing but its head is read.
    fn open<D: DiskDir>(disk: &D, position: u64) -> Result<Self, StorageError> {
        let name = name(position);
        let path = disk.path_of(&name);
        let file = disk.open(&name).map_err(|e| StorageError::of(&path, "open it", e))?;
        let mut bytes = [0; HEAD_BYTES];
        let got = file.read_at(&mut bytes, 0).map_err(|e| StorageError::of(&path, "read it", e))?;
        let decoded = CheckpointHead::decode(&bytes[..got]);
        let decoded = decoded.and_then(|(head, seed)| match head.position == position {
            true => Ok((head, seed)),
            false => Err(Misfit::Nonsense),
        });
        let (head, seed) =
            decoded.map_err(|why| StorageError::Misfit { path: path.clone(), why })?;
        Ok(Self::new(Box::new(file), path, head, seed))
    }

    /// One whose head was read.
    pub(crate) fn new(
        file: Box<dyn DiskFile>,
        path: PathBuf,
        head: CheckpointHead,
        seed: CheckpointChecksumSeed,
    ) -> Self {
        let (at, piece) = (HEAD_BYTES as u64, Vec::new());
        Self { file, path, head, seed, bytes: 0, at, offset: 0, piece }
    }

    /// Opens one and reads all of it.
    pub(crate) fn judged<D: DiskDir>(disk: &D, position: u64) -> Result<Self, StorageError> {
        let mut saved = Self::open(disk, position)?;
        saved.judge(&mut |_| {})?;
        Ok(saved)
    }

    /// Reads all of it, and goes back to its beginning.
    fn judge(&mut self, each: &mut dyn FnMut(u64)) -> Result<(), StorageError> {
        while self.piece()?.is_some() {
            each(self.offset);
        }
        self.bytes = self.offset;
        (self.at, self.offset) = (HEAD_BYTES as u64, 0);
        Ok(())
    }
}

impl fmt::Debug for CheckpointReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Saved").field("path", &self.path).field("bytes", &self.bytes).finish()
    }
}

/// The newest whole checkpoint, and the damage of newer ones. `each` receives the progress, in bytes, of
/// reading the one under examination.
pub(crate) fn find<D: DiskDir>(
    disk: &D,
    each: &mut dyn FnMut(u64),
) -> Result<(Option<CheckpointReader>, Vec<StorageError>), StorageError> {
    let mut damaged = Vec::new();
    for position in newest_first(disk)? {
        let judged = CheckpointReader::open(disk, position);
        match judged.and_then(|mut saved| saved.judge(each).map(|()| saved)) {
            Ok(saved) => return Ok((Some(saved), damaged)),
            Err(e) if e.is_damage() => damaged.push(e),
            Err(e) => return Err(e),
        }
    }
    Ok((None, damaged))
}

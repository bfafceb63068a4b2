//! A checkpoint: a head, then pieces of the state, each with a head of its own, and an end.
//!
//! ```text
//!  0  8  magic "amcastCP"          16  8  position of the state
//!  8  4  version, 1                24  8  the owner's number, or 0
//! 12  4  longest piece             32  8  the number of the owner's disk, or 0
//!                                  40 20  zero
//!                                  60  4  crc32c of bytes 0 to 59
//!
//!  0  4  crc32c of the file's sum, bytes 4 to 15, and the piece
//!  4  4  length of the piece; 0 for the end
//!  8  8  where in the state it begins; at the end, how long the state is
//! ```

use super::{HEAD_BYTES, head, open, put, seal, u32_at, u64_at};
use crate::error::Misfit;

/// The newest version; all from 1 to it can be read.
pub(crate) const VERSION: u32 = 1;
const MAGIC: &[u8; 8] = b"amcastCP";

/// How many bytes the head of a piece has.
pub(crate) const PIECE_HEAD_BYTES: usize = 16;
/// The longest piece that we write, in bytes.
pub(crate) const PIECE_BYTES: usize = 256 << 10;
/// The longest that is read: nobody takes more memory because a file says so.
const PIECE_BYTES_MAX: u32 = 16 << 20;

/// Names the owner of a checkpoint, as its callers choose.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct CheckpointOwner {
    /// The node and its cluster; 0 if nobody said.
    pub node: u64,
    /// The disk that the checkpoint was made on; 0 if nobody said.
    pub disk: u64,
}

impl CheckpointOwner {
    /// Whether both may be the same.
    pub fn may_be(self, other: Self) -> bool {
        let may_be = |one, other| one == other || one == 0 || other == 0;
        may_be(self.node, other.node) && may_be(self.disk, other.disk)
    }
}

/// The head of a checkpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CheckpointHead {
    /// The position of its state.
    pub(crate) position: u64,
    /// The longest piece, in bytes.
    pub(crate) piece_bytes: u32,
    pub(crate) owner: CheckpointOwner,
}

/// The first part of the checksums of a checkpoint's pieces, so that those of another one do not fit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CheckpointChecksumSeed(u32);

impl CheckpointHead {
    pub(crate) fn encode(&self) -> ([u8; HEAD_BYTES], CheckpointChecksumSeed) {
        let mut bytes = head(MAGIC, VERSION);
        put(&mut bytes, 12, self.piece_bytes.to_le_bytes());
        put(&mut bytes, 16, self.position.to_le_bytes());
        put(&mut bytes, 24, self.owner.node.to_le_bytes());
        put(&mut bytes, 32, self.owner.disk.to_le_bytes());
        let bytes = seal(bytes);
        (bytes, CheckpointChecksumSeed(u32_at(&bytes, HEAD_BYTES - 4)))
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<(Self, CheckpointChecksumSeed), Misfit> {
        let bytes = open(bytes, MAGIC, VERSION)?;
        let owner = CheckpointOwner { node: u64_at(bytes, 24), disk: u64_at(bytes, 32) };
        let head = Self { piece_bytes: u32_at(bytes, 12), position: u64_at(bytes, 16), owner };
        if head.piece_bytes == 0 || head.piece_bytes > PIECE_BYTES_MAX {
            return Err(Misfit::Nonsense);
        }
        Ok((head, CheckpointChecksumSeed(u32_at(bytes, HEAD_BYTES - 4))))
    }
}

/// The head of a piece that begins at `offset` in the state; of the end, if the piece is empty.
pub(crate) fn piece_head(
    piece: &[u8],
    offset: u64,
    seed: CheckpointChecksumSeed,
) -> [u8; PIECE_HEAD_BYTES] {
    let mut bytes = [0; PIECE_HEAD_BYTES];
    put(&mut bytes, 4, (piece.len() as u32).to_le_bytes());
    put(&mut bytes, 8, offset.to_le_bytes());
    let sum = crc32c::crc32c_append(crc32c::crc32c_append(seed.0, &bytes[4..]), piece);
    put(&mut bytes, 0, sum.to_le_bytes());
    bytes
}

/// How long the piece is of which this is the head, if it is one that may be there.
pub(crate) fn piece_length(bytes: &[u8], head: &CheckpointHead) -> Option<usize> {
    let bytes: &[u8; PIECE_HEAD_BYTES] = bytes.first_chunk()?;
    let length = u32_at(bytes, 4);
    (length <= head.piece_bytes).then_some(length as usize)
}

/// The name of the checkpoint at this position.
pub(crate) fn name(position: u64) -> String {
    format!("{position:020}.checkpoint")
}

/// The position of the checkpoint of this name, if it is one's.
pub(crate) fn position_of(name: &str) -> Option<u64> {
    super::numbered(name, ".checkpoint")
}

/// The name of a checkpoint until it is whole.
pub(crate) const NEW_NAME: &str = "checkpoint.new";

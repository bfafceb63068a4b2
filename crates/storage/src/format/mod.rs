//! The content of the files, byte by byte; `docs/storage.md` draws it. Numbers are little-endian.
//!
//! Nothing here touches a file: it makes bytes, and judges bytes that may be anything.

pub(crate) mod checkpoint;
pub(crate) mod record;
pub(crate) mod segment;
pub(crate) mod skipped;
pub(crate) mod state;
pub(crate) mod synced;
#[cfg(test)]
mod tests;

use crate::error::Misfit;
use std::fmt;

/// Names a log, so that records of another one are not taken for its own. Chosen at random.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LogId(pub u128);

impl fmt::Display for LogId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// Names who opens a log, as its callers choose: 0 if nobody said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogOwnerId(pub u64);

impl LogOwnerId {
    /// Nobody said.
    pub const UNKNOWN: Self = Self(0);

    /// Whether both may be the same.
    pub(crate) fn may_be(self, other: Self) -> bool {
        self == other || self == Self::UNKNOWN || other == Self::UNKNOWN
    }
}

/// Names a run of the machine: the kernel draws another one at each start. 0 if nobody knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BootId(pub(crate) u128);

impl BootId {
    /// Whether this is certainly the same run of the machine.
    pub(crate) fn same(self, other: Self) -> bool {
        self == other && self.0 != 0
    }
}

/// How many bytes the head of a file with a magic, a version and a sum has.
pub(crate) const HEAD_BYTES: usize = 64;

/// Begins a head: magic and version; the rest is zero.
pub(crate) fn head(magic: &[u8; 8], version: u32) -> [u8; HEAD_BYTES] {
    let mut bytes = [0; HEAD_BYTES];
    bytes[..8].copy_from_slice(magic);
    put(&mut bytes, 8, version.to_le_bytes());
    bytes
}

/// Ends a head with its sum.
pub(crate) fn seal(mut bytes: [u8; HEAD_BYTES]) -> [u8; HEAD_BYTES] {
    let sum = crc32c::crc32c(&bytes[..HEAD_BYTES - 4]);
    put(&mut bytes, HEAD_BYTES - 4, sum.to_le_bytes());
    bytes
}

/// A head with this magic, whole, and of a version that we know.
pub(crate) fn open<'a>(
    bytes: &'a [u8],
    magic: &[u8; 8],
    newest: u32,
) -> Result<&'a [u8; HEAD_BYTES], Misfit> {
    let bytes: &[u8; HEAD_BYTES] = bytes.first_chunk().ok_or(Misfit::Short)?;
    if &bytes[..8] != magic {
        return Err(Misfit::Magic);
    }
    // Before the sum, whose place another version may choose.
    let version = u32_at(bytes, 8);
    if version == 0 || version > newest {
        return Err(Misfit::Version { found: version, newest });
    }
    if u32_at(bytes, HEAD_BYTES - 4) != crc32c::crc32c(&bytes[..HEAD_BYTES - 4]) {
        return Err(Misfit::Sum);
    }
    Ok(bytes)
}

pub(crate) fn put<const N: usize>(bytes: &mut [u8], at: usize, value: [u8; N]) {
    bytes[at..at + N].copy_from_slice(&value);
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array(bytes, at))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array(bytes, at))
}

pub(crate) fn u128_at(bytes: &[u8], at: usize) -> u128 {
    u128::from_le_bytes(array(bytes, at))
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut value = [0; N];
    value.copy_from_slice(&bytes[at..at + N]);
    value
}

/// The number of 20 digits before `suffix`, if the name is nothing else.
fn numbered(name: &str, suffix: &str) -> Option<u64> {
    let digits = name.strip_suffix(suffix)?;
    (digits.len() == 20 && digits.bytes().all(|b| b.is_ascii_digit()))
        .then(|| digits.parse().ok())?
}

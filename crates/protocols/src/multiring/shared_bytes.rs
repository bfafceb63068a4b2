//! Bytes with several owners, and parts of them, without copies.

use alloc::sync::Arc;
use alloc::vec::Vec;
use amcast_core::codec::{ByteReader, Codec, CodecError, put_bytes};
use core::fmt;
use core::ops::{Deref, Range};

/// Shared bytes. The whole stays in memory as long as any part of it has an owner.
#[derive(Clone)]
pub(super) struct SharedBytes {
    whole: Arc<Vec<u8>>,
    part: Range<usize>,
}

impl SharedBytes {
    /// A part of these bytes.
    pub(super) fn slice(&self, part: Range<usize>) -> Self {
        assert!(part.start <= part.end && part.end <= self.part.len(), "a part of them");
        let part = self.part.start + part.start..self.part.start + part.end;
        Self { whole: Arc::clone(&self.whole), part }
    }
}

impl Deref for SharedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.whole[self.part.clone()]
    }
}

impl From<Vec<u8>> for SharedBytes {
    fn from(whole: Vec<u8>) -> Self {
        let part = 0..whole.len();
        Self { whole: Arc::new(whole), part }
    }
}

impl From<&[u8]> for SharedBytes {
    fn from(bytes: &[u8]) -> Self {
        Self::from(bytes.to_vec())
    }
}

impl Codec for SharedBytes {
    fn encode(&self, to: &mut Vec<u8>) {
        put_bytes(self, to);
    }

    fn decode(from: &mut ByteReader<'_>) -> Result<Self, CodecError> {
        from.bytes().map(Self::from)
    }
}

impl fmt::Debug for SharedBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.len())
    }
}

impl PartialEq for SharedBytes {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for SharedBytes {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_part_lies_in_the_whole() {
        let whole = SharedBytes::from(&b"shared bytes"[..]);
        let part = whole.slice(7..12);
        assert_eq!((&part[..], &part.slice(1..3)[..]), (&b"bytes"[..], &b"yt"[..]));
        assert!(part == SharedBytes::from(&b"bytes"[..]) && part != whole);
        assert!(part.slice(5..5).is_empty());
    }
}

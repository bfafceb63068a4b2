//! Bytes of messages: fixed-width little-endian numbers and length-prefixed byte strings.

use crate::id::{Gid, GroupSet, MsgId, Pid};
use alloc::vec::Vec;
use core::fmt;

/// A value with one encoding. Decoding never panics, whatever the bytes.
pub trait Codec: Sized {
    /// Appends the encoding.
    fn encode(&self, to: &mut Vec<u8>);

    /// Reads one value.
    ///
    /// # Errors
    /// When the bytes end early or mean nothing.
    fn decode(from: &mut Reader<'_>) -> Result<Self, CodecError>;
}

/// Why bytes did not decode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CodecError {
    /// The bytes ended within a value.
    Short,
    /// A tag or number that no value has.
    Unknown(u64),
}

impl fmt::Display for CodecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short => f.write_str("the bytes end within a value"),
            Self::Unknown(tag) => write!(f, "{tag} is not a known tag"),
        }
    }
}

impl core::error::Error for CodecError {}

/// Reads values from the front of a byte string.
#[derive(Clone, Debug)]
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Reads from `bytes`.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Whether everything was read.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What is left.
    pub const fn rest(&self) -> &'a [u8] {
        self.0
    }

    /// The next `n` bytes.
    ///
    /// # Errors
    /// [`CodecError::Short`].
    pub fn take(&mut self, n: usize) -> Result<&'a [u8], CodecError> {
        let (head, tail) = self.0.split_at_checked(n).ok_or(CodecError::Short)?;
        self.0 = tail;
        Ok(head)
    }

    /// A byte string written by [`put_bytes`].
    ///
    /// # Errors
    /// [`CodecError::Short`].
    pub fn bytes(&mut self) -> Result<&'a [u8], CodecError> {
        let n = u32::decode(self)?;
        self.take(n as usize)
    }
}

/// Appends a byte string with its length in front.
pub fn put_bytes(bytes: &[u8], to: &mut Vec<u8>) {
    (bytes.len() as u32).encode(to);
    to.extend_from_slice(bytes);
}

macro_rules! numbers {
    ($($t:ty),*) => {$(
        impl Codec for $t {
            fn encode(&self, to: &mut Vec<u8>) {
                to.extend_from_slice(&self.to_le_bytes());
            }
            fn decode(from: &mut Reader<'_>) -> Result<Self, CodecError> {
                let bytes = from.take(size_of::<Self>())?;
                Ok(Self::from_le_bytes(bytes.try_into().expect("length was taken")))
            }
        }
    )*};
}
numbers!(u8, u16, u32, u64);

macro_rules! newtypes {
    ($($t:ident),*) => {$(
        impl Codec for $t {
            fn encode(&self, to: &mut Vec<u8>) {
                self.0.encode(to);
            }
            fn decode(from: &mut Reader<'_>) -> Result<Self, CodecError> {
                Ok(Self(Codec::decode(from)?))
            }
        }
    )*};
}
newtypes!(Pid, GroupSet);

impl Codec for Gid {
    fn encode(&self, to: &mut Vec<u8>) {
        self.0.encode(to);
    }
    fn decode(from: &mut Reader<'_>) -> Result<Self, CodecError> {
        match u8::decode(from)? {
            g if usize::from(g) < crate::limits::GROUPS_MAX => Ok(Self(g)),
            g => Err(CodecError::Unknown(u64::from(g))),
        }
    }
}

impl Codec for MsgId {
    fn encode(&self, to: &mut Vec<u8>) {
        self.sender.encode(to);
        self.seq.encode(to);
    }
    fn decode(from: &mut Reader<'_>) -> Result<Self, CodecError> {
        Ok(Self { sender: Codec::decode(from)?, seq: Codec::decode(from)? })
    }
}

impl Codec for Vec<u8> {
    fn encode(&self, to: &mut Vec<u8>) {
        put_bytes(self, to);
    }
    fn decode(from: &mut Reader<'_>) -> Result<Self, CodecError> {
        Ok(from.bytes()?.to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_read_back_and_short_bytes_are_refused() {
        let m = MsgId { sender: Pid(7), seq: 1 << 40 };
        let mut bytes = Vec::new();
        m.encode(&mut bytes);
        alloc::vec![1_u8, 2, 3].encode(&mut bytes);
        let mut r = Reader::new(&bytes);
        assert_eq!(MsgId::decode(&mut r), Ok(m));
        assert_eq!(Vec::<u8>::decode(&mut r), Ok(alloc::vec![1, 2, 3]));
        assert!(r.is_empty());
        for n in 0..bytes.len() {
            let mut r = Reader::new(&bytes[..n]);
            assert!(MsgId::decode(&mut r).and_then(|_| Vec::<u8>::decode(&mut r)).is_err());
        }
        assert_eq!(Gid::decode(&mut Reader::new(&[64])), Err(CodecError::Unknown(64)));
    }
}

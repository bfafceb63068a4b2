//! Bytes of messages: fixed-width little-endian numbers and length-prefixed byte strings.
//!
//! A [`Codec`] type has one encoding. [`messages!`](crate::messages!) declares it for structs, whose encoding is that
//! of their fields in order, and for enums, where a byte in front says which variant it is.

use crate::id::{Gid, GroupSet, MsgId, Pid};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

/// A value with one encoding. Decoding never panics, for any bytes.
pub trait Codec: Sized {
    /// Appends the encoding.
    fn encode(&self, to: &mut Vec<u8>);

    /// Reads one value.
    ///
    /// # Errors
    /// When the bytes end early or mean nothing.
    fn decode(from: &mut ByteReader<'_>) -> Result<Self, CodecError>;

    /// Appends the encodings of all of them, one behind the other.
    fn encode_all(all: &[Self], to: &mut Vec<u8>) {
        all.iter().for_each(|one| one.encode(to));
    }

    /// Reads so many values. Takes memory for those that are there, for any count.
    ///
    /// # Errors
    /// As [`Codec::decode`].
    fn decode_all(count: usize, from: &mut ByteReader<'_>) -> Result<Vec<Self>, CodecError> {
        (0..count).map(|_| Self::decode(from)).collect()
    }
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
pub struct ByteReader<'a>(&'a [u8]);

impl<'a> ByteReader<'a> {
    /// Reads from `bytes`.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Whether everything was read.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The bytes that remain.
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
            fn decode(from: &mut ByteReader<'_>) -> Result<Self, CodecError> {
                let bytes = from.take(size_of::<Self>())?;
                Ok(Self::from_le_bytes(bytes.try_into().expect("length was taken")))
            }
        }
    )*};
}
numbers!(u16, u32, u64);

impl Codec for u8 {
    fn encode(&self, to: &mut Vec<u8>) {
        to.push(*self);
    }

    fn decode(from: &mut ByteReader<'_>) -> Result<Self, CodecError> {
        Ok(from.take(1)?[0])
    }

    fn encode_all(all: &[Self], to: &mut Vec<u8>) {
        to.extend_from_slice(all);
    }

    fn decode_all(count: usize, from: &mut ByteReader<'_>) -> Result<Vec<Self>, CodecError> {
        Ok(from.take(count)?.to_vec())
    }
}

/// A byte, 0 or 1.
impl Codec for bool {
    fn encode(&self, to: &mut Vec<u8>) {
        to.push(u8::from(*self));
    }

    fn decode(from: &mut ByteReader<'_>) -> Result<Self, CodecError> {
        match u8::decode(from)? {
            0 => Ok(false),
            1 => Ok(true),
            n => Err(CodecError::Unknown(u64::from(n))),
        }
    }
}

/// Whether there is one, and then it.
impl<T: Codec> Codec for Option<T> {
    fn encode(&self, to: &mut Vec<u8>) {
        self.is_some().encode(to);
        self.iter().for_each(|value| value.encode(to));
    }

    fn decode(from: &mut ByteReader<'_>) -> Result<Self, CodecError> {
        bool::decode(from)?.then(|| T::decode(from)).transpose()
    }
}

impl<A: Codec, B: Codec> Codec for (A, B) {
    fn encode(&self, to: &mut Vec<u8>) {
        self.0.encode(to);
        self.1.encode(to);
    }

    fn decode(from: &mut ByteReader<'_>) -> Result<Self, CodecError> {
        Ok((A::decode(from)?, B::decode(from)?))
    }
}

impl<T: Codec> Codec for Box<T> {
    fn encode(&self, to: &mut Vec<u8>) {
        (**self).encode(to);
    }

    fn decode(from: &mut ByteReader<'_>) -> Result<Self, CodecError> {
        T::decode(from).map(Self::new)
    }
}

macro_rules! newtypes {
    ($($t:ident),*) => {$(
        impl Codec for $t {
            fn encode(&self, to: &mut Vec<u8>) {
                self.0.encode(to);
            }
            fn decode(from: &mut ByteReader<'_>) -> Result<Self, CodecError> {
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
    fn decode(from: &mut ByteReader<'_>) -> Result<Self, CodecError> {
        match u8::decode(from)? {
            g if usize::from(g) < crate::limits::GROUPS_MAX => Ok(Self(g)),
            g => Err(CodecError::Unknown(u64::from(g))),
        }
    }
}

/// Their number in 4 bytes, and then they.
impl<T: Codec> Codec for Vec<T> {
    fn encode(&self, to: &mut Vec<u8>) {
        (self.len() as u32).encode(to);
        T::encode_all(self, to);
    }

    fn decode(from: &mut ByteReader<'_>) -> Result<Self, CodecError> {
        let count = u32::decode(from)?;
        T::decode_all(count as usize, from)
    }
}

/// As [`put_bytes`].
impl Codec for Arc<[u8]> {
    fn encode(&self, to: &mut Vec<u8>) {
        put_bytes(self, to);
    }

    fn decode(from: &mut ByteReader<'_>) -> Result<Self, CodecError> {
        from.bytes().map(Self::from)
    }
}

/// Declares how messages are encoded.
///
/// A `struct` is its fields in the order in which they stand here. An `enum` is a byte, the number in front of the
/// variant, and then its fields; other bytes are refused with [`CodecError::Unknown`]. A field that is not encoded by
/// its type's [`Codec`] names a module behind `with` that has the functions `encode` and `decode`. Of a `part of enum
/// T by hand (A, B)` the variants `A` and `B` are encoded by hand: `T` has `encode_listed` and `decode_listed` for the
/// others. A variant that is named in neither place does not compile:
///
/// ```compile_fail,E0004
/// enum Message { Ping, Pong, Text(u32) }
///
/// amcast_core::messages! {
///     part of enum Message by hand (Text) {
///         1 => Ping,
///     }
/// }
/// ```
///
/// ```
/// use amcast_core::codec::{ByteReader, Codec};
///
/// #[derive(PartialEq, Debug)]
/// struct Vote { memory: u32, upto: u64 }
/// #[derive(PartialEq, Debug)]
/// enum Message { Voted { round: u64, votes: Vec<Vote> }, Refused(u32), Ping }
///
/// amcast_core::messages! {
///     struct Vote { memory, upto }
///     enum Message {
///         1 => Voted { round, votes },
///         2 => Refused(round),
///         3 => Ping,
///     }
/// }
///
/// let mut bytes = Vec::new();
/// Message::Refused(7).encode(&mut bytes);
/// assert_eq!(bytes, [2, 7, 0, 0, 0]);
/// assert_eq!(Message::decode(&mut ByteReader::new(&bytes)), Ok(Message::Refused(7)));
/// assert!(Message::decode(&mut ByteReader::new(&[9])).is_err());
/// ```
#[macro_export]
macro_rules! messages {
    () => {};
    (struct $t:ident { $($field:ident $(with $with:ident)?),* $(,)? } $($rest:tt)*) => {
        impl $crate::codec::Codec for $t {
            fn encode(&self, to: &mut $crate::codec::EncodedBytes) {
                $($crate::messages!(@put to, &self.$field $(, $with)?);)*
            }

            fn decode(
                from: &mut $crate::codec::ByteReader<'_>,
            ) -> ::core::result::Result<Self, $crate::codec::CodecError> {
                Ok(Self { $($field: $crate::messages!(@take from $(, $with)?)),* })
            }
        }
        $crate::messages! { $($rest)* }
    };
    (enum $t:ident { $($variants:tt)* } $($rest:tt)*) => {
        $crate::messages!(@listed $t [] { $($variants)* });
        impl $crate::codec::Codec for $t {
            fn encode(&self, to: &mut $crate::codec::EncodedBytes) {
                self.encode_listed(to);
            }

            fn decode(
                from: &mut $crate::codec::ByteReader<'_>,
            ) -> ::core::result::Result<Self, $crate::codec::CodecError> {
                let tag = <u8 as $crate::codec::Codec>::decode(from)?;
                Self::decode_listed(tag, from)
            }
        }
        $crate::messages! { $($rest)* }
    };
    (part of enum $t:ident by hand ($($apart:ident),+) { $($variants:tt)* } $($rest:tt)*) => {
        $crate::messages!(
            @listed $t [$(Self::$apart { .. } => unreachable!("it is encoded by hand"),)+]
            { $($variants)* }
        );
        $crate::messages! { $($rest)* }
    };
    (@listed $t:ident [$($other:tt)*] {
        $($tag:literal => $variant:ident
            $({ $($field:ident $(with $with:ident)?),* $(,)? })?
            $(( $($place:ident),* ))?),*
        $(,)?
    }) => {
        impl $t {
            /// Appends the tag of a variant that is listed, and its fields.
            fn encode_listed(&self, to: &mut $crate::codec::EncodedBytes) {
                match self {
                    $(Self::$variant $({ $($field),* })? $(( $($place),* ))? => {
                        to.push($tag);
                        $($($crate::messages!(@put to, $field $(, $with)?);)*)?
                        $($($crate::codec::Codec::encode($place, to);)*)?
                    })*
                    $($other)*
                }
            }

            /// Reads the fields of the variant that is listed with `tag`.
            fn decode_listed(
                tag: u8,
                from: &mut $crate::codec::ByteReader<'_>,
            ) -> ::core::result::Result<Self, $crate::codec::CodecError> {
                Ok(match tag {
                    $($tag => {
                        $($(let $place = $crate::codec::Codec::decode(from)?;)*)?
                        Self::$variant
                            $({ $($field: $crate::messages!(@take from $(, $with)?)),* })?
                            $(( $($place),* ))?
                    })*
                    tag => return Err($crate::codec::CodecError::Unknown(u64::from(tag))),
                })
            }
        }
    };
    (@put $to:ident, $value:expr) => {
        $crate::codec::Codec::encode($value, $to)
    };
    (@put $to:ident, $value:expr, $with:ident) => {
        $with::encode($value, $to)
    };
    (@take $from:ident) => {
        $crate::codec::Codec::decode($from)?
    };
    (@take $from:ident, $with:ident) => {
        $with::decode($from)?
    };
}

/// The buffer that encodings are appended to, by a name that [`messages!`](crate::messages!) reaches in every crate.
#[doc(hidden)]
pub type EncodedBytes = Vec<u8>;

messages! {
    struct MsgId { sender, seq }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(PartialEq, Debug)]
    struct SampleRow {
        fit: bool,
        last: Option<u16>,
        pairs: Vec<(u8, u32)>,
    }

    #[derive(PartialEq, Debug)]
    enum SampleNode {
        Leaf,
        Row(Box<SampleRow>),
        Named { name: Arc<[u8]>, few: Vec<u16> },
        ByHand,
    }

    /// A list with its number in a byte.
    mod few {
        use super::*;

        pub(super) fn encode(all: &[u16], to: &mut Vec<u8>) {
            to.push(all.len() as u8);
            u16::encode_all(all, to);
        }

        pub(super) fn decode(from: &mut ByteReader<'_>) -> Result<Vec<u16>, CodecError> {
            let count = u8::decode(from)?;
            u16::decode_all(usize::from(count), from)
        }
    }

    messages! {
        struct SampleRow { fit, last, pairs }
        part of enum SampleNode by hand (ByHand) {
            1 => Leaf,
            2 => Row(row),
            9 => Named { name, few with few },
        }
    }

    #[test]
    fn messages_have_the_bytes_that_were_declared() {
        let row = SampleRow { fit: true, last: Some(3), pairs: alloc::vec![(1, 2)] };
        let name = Arc::from(&b"ab"[..]);
        let all: [(SampleNode, &[u8]); 3] = [
            (SampleNode::Leaf, &[1]),
            (SampleNode::Row(Box::new(row)), &[2, 1, 1, 3, 0, 1, 0, 0, 0, 1, 2, 0, 0, 0]),
            (
                SampleNode::Named { name, few: alloc::vec![7] },
                &[9, 2, 0, 0, 0, b'a', b'b', 1, 7, 0],
            ),
        ];
        for (node, expected) in all {
            let mut bytes = Vec::new();
            node.encode_listed(&mut bytes);
            assert_eq!(bytes, expected);
            let mut rest = ByteReader::new(&bytes[1..]);
            assert_eq!(SampleNode::decode_listed(bytes[0], &mut rest), Ok(node));
            assert!(rest.is_empty());
            for n in 1..bytes.len() {
                let cut = SampleNode::decode_listed(bytes[0], &mut ByteReader::new(&bytes[1..n]));
                assert_eq!(cut, Err(CodecError::Short));
            }
        }
        assert_ne!(SampleNode::ByHand, SampleNode::Leaf);
        assert_eq!(
            SampleNode::decode_listed(3, &mut ByteReader::new(&[])),
            Err(CodecError::Unknown(3))
        );
        let mut strange = ByteReader::new(&[2]);
        assert_eq!(bool::decode(&mut strange), Err(CodecError::Unknown(2)));
        // A count that no bytes stand behind takes no memory.
        let mut vast = ByteReader::new(&[255; 4]);
        assert_eq!(Vec::<(u64, u64)>::decode(&mut vast), Err(CodecError::Short));
    }

    #[test]
    fn values_read_back_and_short_bytes_are_refused() {
        let m = MsgId { sender: Pid(7), seq: 1 << 40 };
        let mut bytes = Vec::new();
        m.encode(&mut bytes);
        alloc::vec![1_u8, 2, 3].encode(&mut bytes);
        let mut r = ByteReader::new(&bytes);
        assert_eq!(MsgId::decode(&mut r), Ok(m));
        assert_eq!(Vec::<u8>::decode(&mut r), Ok(alloc::vec![1, 2, 3]));
        assert!(r.is_empty());
        for n in 0..bytes.len() {
            let mut r = ByteReader::new(&bytes[..n]);
            assert!(MsgId::decode(&mut r).and_then(|_| Vec::<u8>::decode(&mut r)).is_err());
        }
        assert_eq!(Gid::decode(&mut ByteReader::new(&[64])), Err(CodecError::Unknown(64)));
    }
}

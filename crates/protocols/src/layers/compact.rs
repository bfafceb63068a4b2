//! Numbers that are small most often, in few bytes, as *varints* (LEB128): each byte holds seven bits, the lowest first, and
//! says by its highest bit whether another one follows. Counts that are near each other are encoded as *deltas* to the
//! smallest one. A field of a message names one of these modules behind `with`
//! ([`messages!`](amcast_core::messages!)). Each value has one encoding.

use amcast_core::Pid;
use amcast_core::codec::{ByteReader, CodecError};

/// A value that is encoded as a number.
pub(crate) trait CompactNumber: Copy {
    /// The number.
    fn number(self) -> u64;

    /// The value of a number; none if there is no such value.
    fn of(number: u64) -> Option<Self>;
}

impl CompactNumber for u64 {
    fn number(self) -> u64 {
        self
    }

    fn of(number: u64) -> Option<Self> {
        Some(number)
    }
}

impl CompactNumber for u32 {
    fn number(self) -> u64 {
        u64::from(self)
    }

    fn of(number: u64) -> Option<Self> {
        Self::try_from(number).ok()
    }
}

impl CompactNumber for Pid {
    fn number(self) -> u64 {
        u64::from(self.0)
    }

    fn of(number: u64) -> Option<Self> {
        u32::of(number).map(Self)
    }
}

/// Elements of a list, at most: in memory each may be a hundred times as large as its encoding.
pub(crate) const LIST_MAX: usize = u16::MAX as usize;

/// How many elements follow, each of which takes a byte at least.
fn length(from: &mut ByteReader<'_>) -> Result<usize, CodecError> {
    let length = number::decode::<u64>(from)?;
    match usize::try_from(length) {
        Ok(length) if length <= from.rest().len() => Ok(length),
        _ => Err(CodecError::Short),
    }
}

/// The same where there are `most` at most.
fn bounded_length(from: &mut ByteReader<'_>, most: usize) -> Result<usize, CodecError> {
    let length = length(from)?;
    if length <= most { Ok(length) } else { Err(CodecError::Unknown(length as u64)) }
}

/// One number.
pub(crate) mod number {
    use super::CompactNumber;
    use alloc::vec::Vec;
    use amcast_core::codec::{ByteReader, Codec, CodecError};

    pub(crate) fn encode<T: CompactNumber>(value: &T, to: &mut Vec<u8>) {
        let mut rest = value.number();
        while rest > 0x7f {
            to.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        to.push(rest as u8);
    }

    pub(crate) fn decode<T: CompactNumber>(from: &mut ByteReader<'_>) -> Result<T, CodecError> {
        let mut found = 0;
        for shift in (0..).step_by(7) {
            let byte = u8::decode(from)?;
            let bits = u64::from(byte & 0x7f);
            // One way to write each number: no byte in vain, and no bits beyond the 64th.
            if shift > 63 || (bits << shift) >> shift != bits || byte == 0 && shift > 0 {
                break;
            }
            found |= bits << shift;
            if byte & 0x80 == 0 {
                return T::of(found).ok_or(CodecError::Unknown(found));
            }
        }
        Err(CodecError::Unknown(found))
    }
}

/// Numbers, behind how many there are.
pub(crate) mod numbers {
    use super::{CompactNumber, length, number};
    use alloc::vec::Vec;
    use amcast_core::codec::{ByteReader, CodecError};

    pub(crate) fn encode<T: CompactNumber>(all: &[T], to: &mut Vec<u8>) {
        number::encode(&(all.len() as u64), to);
        all.iter().for_each(|value| number::encode(value, to));
    }

    pub(crate) fn decode<T: CompactNumber>(
        from: &mut ByteReader<'_>,
    ) -> Result<Vec<T>, CodecError> {
        (0..length(from)?).map(|_| number::decode(from)).collect()
    }
}

/// Counts, of each process of a group one. Those of processes that do about the same are far from 0 and near to each other: the
/// smallest one is encoded first, and then how much larger each of them is.
pub(crate) mod counts {
    use super::{bounded_length, number};
    use alloc::vec::Vec;
    use amcast_core::codec::{ByteReader, CodecError};
    use amcast_core::limits::REPLICAS_MAX;

    pub(crate) fn encode(all: &[u64], to: &mut Vec<u8>) {
        number::encode(&(all.len() as u64), to);
        let Some(&least) = all.iter().min() else { return };
        number::encode(&least, to);
        all.iter().for_each(|count| number::encode(&(count - least), to));
    }

    pub(crate) fn decode(from: &mut ByteReader<'_>) -> Result<Vec<u64>, CodecError> {
        let length = bounded_length(from, REPLICAS_MAX)?;
        if length == 0 {
            return Ok(Vec::new());
        }
        let least = number::decode::<u64>(from)?;
        let mut has_least = false;
        let mut count = || {
            let more = number::decode::<u64>(from)?;
            has_least |= more == 0;
            least.checked_add(more).ok_or(CodecError::Unknown(more))
        };
        let all = (0..length).map(|_| count()).collect::<Result<Vec<_>, _>>()?;
        if has_least { Ok(all) } else { Err(CodecError::Unknown(least)) }
    }
}

/// Bytes, behind how many there are.
pub(crate) mod bytes {
    use super::{length, number};
    use alloc::sync::Arc;
    use alloc::vec::Vec;
    use amcast_core::codec::{ByteReader, CodecError};

    pub(crate) fn encode(all: &Arc<[u8]>, to: &mut Vec<u8>) {
        put(all, to);
    }

    pub(crate) fn decode(from: &mut ByteReader<'_>) -> Result<Arc<[u8]>, CodecError> {
        take(from).map(Arc::from)
    }

    /// Appends bytes.
    pub(crate) fn put(all: &[u8], to: &mut Vec<u8>) {
        number::encode(&(all.len() as u64), to);
        to.extend_from_slice(all);
    }

    /// Reads bytes, which stay where they are.
    pub(crate) fn take<'a>(from: &mut ByteReader<'a>) -> Result<&'a [u8], CodecError> {
        let length = length(from)?;
        from.take(length)
    }
}

/// Values of any type, behind how many there are: 65,535 at most.
pub(crate) mod list {
    use super::{LIST_MAX, bounded_length, number};
    use alloc::vec::Vec;
    use amcast_core::codec::{ByteReader, Codec, CodecError};

    pub(crate) fn encode<T: Codec>(all: &[T], to: &mut Vec<u8>) {
        number::encode(&(all.len() as u64), to);
        T::encode_all(all, to);
    }

    pub(crate) fn decode<T: Codec>(from: &mut ByteReader<'_>) -> Result<Vec<T>, CodecError> {
        T::decode_all(bounded_length(from, LIST_MAX)?, from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::sync::Arc;
    use alloc::vec::Vec;

    fn encoded(put: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
        let mut bytes = Vec::new();
        put(&mut bytes);
        bytes
    }

    #[test]
    fn a_number_takes_as_many_bytes_as_it_needs_and_none_is_longer_than_64_bits() {
        for (value, length) in [(0, 1), (127, 1), (128, 2), (300, 2), (1 << 32, 5), (u64::MAX, 10)]
        {
            let bytes = encoded(|to| number::encode(&value, to));
            assert_eq!(bytes.len(), length, "{value}");
            assert_eq!(number::decode(&mut ByteReader::new(&bytes)), Ok(value));
            let cut = &bytes[..length - 1];
            assert_eq!(number::decode::<u64>(&mut ByteReader::new(cut)), Err(CodecError::Short));
        }
        let ten = |last: u8| [&[0xff; 9][..], &[last]].concat();
        let read = |bytes: &[u8]| number::decode::<u64>(&mut ByteReader::new(bytes));
        assert!(read(&ten(1)).is_ok());
        assert!(read(&ten(2)).is_err(), "65 bits");
        assert!(read(&ten(0x81)).is_err(), "an eleventh byte");
        assert!(read(&[0x8b, 0]).is_err(), "a byte in vain");
        let pid = |bytes: &[u8]| number::decode::<Pid>(&mut ByteReader::new(bytes));
        assert_eq!(pid(&[0xff, 0xff, 0xff, 0xff, 0xf]), Ok(Pid(u32::MAX)));
        assert!(pid(&[0xff, 0xff, 0xff, 0xff, 0x1f]).is_err(), "33 bits");
    }

    #[test]
    fn counts_that_are_near_each_other_take_a_byte_each_and_have_one_encoding() {
        for (all, length) in [
            (&[][..], 1),
            (&[0, 0, 127], 1 + 1 + 3),
            (&[1_000_000, 1_000_127, 1_000_003], 1 + 3 + 3),
            (&[0, 1_000_127], 1 + 1 + 1 + 3),
            (&[u64::MAX], 1 + 10 + 1),
        ] {
            let bytes = encoded(|to| counts::encode(all, to));
            assert_eq!(bytes.len(), length, "{all:?}");
            assert_eq!(counts::decode(&mut ByteReader::new(&bytes)), Ok(all.to_vec()));
        }
        let read = |bytes: &[u8]| counts::decode(&mut ByteReader::new(bytes));
        assert!(read(&[2, 5, 1, 2]).is_err(), "the smallest one is 6");
        assert!(read(&[3, 1, 0]).is_err(), "too few");
        let most = encoded(|to| counts::encode(&[7; 32], to));
        assert_eq!(read(&most), Ok(alloc::vec![7; 32]));
        let more = encoded(|to| counts::encode(&[7; 33], to));
        assert!(read(&more).is_err(), "of more processes than a group has");
        let overflow = [&[2][..], &[0xff; 9], &[1, 0, 1]].concat();
        assert!(read(&overflow).is_err(), "more than 64 bits");
    }

    #[test]
    fn lists_read_back_and_take_no_memory_for_what_is_not_there() {
        let bytes = encoded(|to| numbers::encode(&[Pid(1), Pid(300)], to));
        assert_eq!(bytes, [2, 1, 0xac, 2]);
        assert_eq!(
            numbers::decode(&mut ByteReader::new(&bytes)),
            Ok(alloc::vec![Pid(1), Pid(300)])
        );
        let text: Arc<[u8]> = Arc::from(&b"abc"[..]);
        let bytes = encoded(|to| bytes::encode(&text, to));
        assert_eq!(bytes, *b"\x03abc");
        assert_eq!(bytes::decode(&mut ByteReader::new(&bytes)), Ok(text));
        let bytes = encoded(|to| list::encode(&[7_u16, 8], to));
        assert_eq!(bytes, [2, 7, 0, 8, 0]);
        assert_eq!(list::decode(&mut ByteReader::new(&bytes)), Ok(alloc::vec![7_u16, 8]));
        for (length, is_read) in [(LIST_MAX, true), (LIST_MAX + 1, false)] {
            let bytes = encoded(|to| list::encode(&alloc::vec![7_u8; length], to));
            assert_eq!(list::decode::<u8>(&mut ByteReader::new(&bytes)).is_ok(), is_read);
        }
        let long = [0xff, 0xff, 0xff, 0xff, 0xf, 1];
        assert!(numbers::decode::<u64>(&mut ByteReader::new(&long)).is_err());
        assert!(bytes::decode(&mut ByteReader::new(&long)).is_err());
        assert!(list::decode::<u8>(&mut ByteReader::new(&long)).is_err());
    }
}

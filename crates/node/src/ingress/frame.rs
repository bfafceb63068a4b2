//! The frames between gateways and nodes, as bytes.
//!
//! ```text
//! length   4 bytes, of what follows
//! kind     1 byte: the low half says which; the high half of an answer's is the command's outcome
//! body     numbers of 8 bytes, little-endian; what is left are the bytes of a command or answer
//! ```

use amcast_core::{GroupSet, Outcome};

/// The version of the frames: a peer with another one is refused.
pub const VERSION: u64 = 6;

/// Bytes of a frame that are not a command's or answer's own, at most.
pub(crate) const AROUND_BYTES: usize = 4 + 1 + 2 * 8;

/// A frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IngressFrame<'a> {
    /// A gateway begins; the version that it speaks.
    Hello(u64),
    /// A gateway has a command for these groups, a bit each, under a number of its own.
    Command(u64, GroupSet, &'a [u8]),
    /// Whether the node's member takes commands now.
    Serves(bool),
    /// The outcome of the command of that number, and its answer.
    Answer(u64, Outcome, &'a [u8]),
    /// The same with an answer of so many bytes, more than are sent.
    TooLarge(u64, Outcome, u64),
    /// As a command; it changes nothing, and need not be ordered.
    Read(u64, GroupSet, &'a [u8]),
    /// The node has not kept the answer to the command of that number, or not executed it if it changes nothing, since too many
    /// bytes of answers wait for the gateway.
    NotKept(u64),
}

impl<'a> IngressFrame<'a> {
    /// Appends the frame.
    pub fn encode(self, to: &mut Vec<u8>) {
        let bytes = self.encode_head(to);
        to.extend_from_slice(bytes);
    }

    /// Appends all of the frame but the bytes of a command or answer, and gives those: they belong behind it.
    pub(crate) fn encode_head(&self, to: &mut Vec<u8>) -> &'a [u8] {
        let (kind, words, bytes): (u8, &[u64], &'a [u8]) = match self {
            Self::Hello(version) => (1, &[*version], &[]),
            Self::Command(token, dst, bytes) => (2, &[*token, dst.0], bytes),
            Self::Serves(false) => (3, &[], &[]),
            Self::Serves(true) => (4, &[], &[]),
            Self::Answer(token, outcome, bytes) => (5 | outcome.code() << 4, &[*token], bytes),
            Self::TooLarge(token, outcome, bytes) => {
                (6 | outcome.code() << 4, &[*token, *bytes], &[])
            }
            Self::Read(token, dst, bytes) => (8, &[*token, dst.0], bytes),
            Self::NotKept(token) => (9, &[*token], &[]),
        };
        let length = 1 + 8 * words.len() + bytes.len();
        to.extend_from_slice(&(length as u32).to_le_bytes());
        to.push(kind);
        words.iter().for_each(|word| to.extend_from_slice(&word.to_le_bytes()));
        bytes
    }

    /// Whether the frame that begins so is a command or a read: within a process their bytes travel beside the others.
    pub(crate) fn is_command(head: &[u8]) -> bool {
        matches!(head.get(4), Some(2 | 8))
    }

    /// The frame at the beginning of `bytes`, and how many bytes it has; none if it has not come
    /// whole. One longer than `most` bytes is none.
    ///
    /// # Errors
    /// When the bytes are no frame; the connection is of no use any more.
    pub fn decode(bytes: &'a [u8], most: usize) -> Result<Option<(Self, usize)>, &'static str> {
        Self::decode_beside(bytes, None, most)
    }

    /// The same where the bytes of a command are not behind its head but `beside` it, if they are.
    pub(crate) fn decode_beside(
        bytes: &'a [u8],
        beside: Option<&'a [u8]>,
        most: usize,
    ) -> Result<Option<(Self, usize)>, &'static str> {
        let beside = beside.filter(|_| Self::is_command(bytes));
        let Some((length, rest)) = bytes.split_first_chunk::<4>() else { return Ok(None) };
        let length = u32::from_le_bytes(*length) as usize;
        if length == 0 || length + 4 > most {
            return Err("a frame of a length that none has");
        }
        let Some(length) = length.checked_sub(beside.map_or(0, <[u8]>::len)) else {
            return Err("a frame that is not as long as it says");
        };
        let Some(mut body) = rest.get(..length) else { return Ok(None) };
        let (kind, outcome) = match body[0] & 0xf {
            kind @ (5 | 6) => (kind, body[0] >> 4),
            _ => (body[0], 0),
        };
        let outcome = Outcome::of_code(outcome).ok_or("an answer of an outcome that none has")?;
        body = &body[1..];
        let mut word = || {
            let (word, rest) = body.split_first_chunk::<8>().ok_or("a frame that ends early")?;
            body = rest;
            Ok::<u64, &'static str>(u64::from_le_bytes(*word))
        };
        let frame = match kind {
            1 => Self::Hello(word()?),
            2 => Self::Command(word()?, GroupSet(word()?), std::mem::take(&mut body)),
            3 => Self::Serves(false),
            4 => Self::Serves(true),
            5 => Self::Answer(word()?, outcome, std::mem::take(&mut body)),
            6 => Self::TooLarge(word()?, outcome, word()?),
            8 => Self::Read(word()?, GroupSet(word()?), std::mem::take(&mut body)),
            9 => Self::NotKept(word()?),
            _ => return Err("a frame of a kind that none has"),
        };
        if !body.is_empty() {
            return Err("a frame with trailing bytes");
        }
        let frame = match (frame, beside) {
            (Self::Command(token, dst, b""), Some(beside)) => Self::Command(token, dst, beside),
            (Self::Read(token, dst, b""), Some(beside)) => Self::Read(token, dst, beside),
            (_, Some(_)) => return Err("a frame with trailing bytes"),
            (frame, None) => frame,
        };
        Ok(Some((frame, length + 4)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use amcast_core::Gid;

    const ALL: [IngressFrame<'_>; 12] = [
        IngressFrame::Hello(VERSION),
        IngressFrame::Command(7, GroupSet::one(Gid(63)), b"set x"),
        IngressFrame::Command(8, GroupSet::first(2), b""),
        IngressFrame::Serves(true),
        IngressFrame::Serves(false),
        IngressFrame::Answer(7, Outcome::Executed, b"+OK"),
        IngressFrame::Answer(8, Outcome::NotExecuted, b"-no"),
        IngressFrame::Answer(9, Outcome::Unknown, b""),
        IngressFrame::TooLarge(7, Outcome::Executed, 1 << 40),
        IngressFrame::TooLarge(7, Outcome::NotExecuted, 1 << 40),
        IngressFrame::NotKept(9),
        IngressFrame::Read(10, GroupSet::one(Gid(2)), b"get x"),
    ];

    #[test]
    fn frames_read_back_one_after_the_other_and_not_before_they_are_whole() {
        let mut bytes = Vec::new();
        ALL.iter().for_each(|frame| frame.encode(&mut bytes));
        let mut rest = &bytes[..];
        for frame in ALL {
            let (read, used) = IngressFrame::decode(rest, 64).unwrap().unwrap();
            assert_eq!(read, frame);
            assert!(
                (0..used).all(|cut| IngressFrame::decode(&rest[..cut], 64) == Ok(None)),
                "{frame:?}"
            );
            rest = &rest[used..];
        }
        assert!(rest.is_empty());
    }

    #[test]
    fn bytes_that_are_no_frame_are_refused() {
        let refused = |bytes: &[u8]| IngressFrame::decode(bytes, 64).unwrap_err();
        assert_eq!(refused(&[0, 0, 0, 0]), "a frame of a length that none has");
        assert_eq!(refused(&[61, 0, 0, 0]), "a frame of a length that none has");
        assert_eq!(refused(&[1, 0, 0, 0, 99]), "a frame of a kind that none has");
        assert_eq!(refused(&[1, 0, 0, 0, 0x35]), "an answer of an outcome that none has");
        assert_eq!(refused(&[1, 0, 0, 0, 0x13]), "a frame of a kind that none has");
        assert_eq!(refused(&[2, 0, 0, 0, 9, 1]), "a frame that ends early");
        assert_eq!(refused(&[2, 0, 0, 0, 3, 1]), "a frame with trailing bytes");
    }
}

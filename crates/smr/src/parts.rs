//! A command that is larger than a message: it is ordered in parts.
//!
//! A gateway multicasts the parts of the encoded command, each as a [`CommandPart`], to the lowest of the command's
//! shards, and when all of them were answered an [`Assembly`] to all its shards. The executor keeps the parts with
//! the shard's state; at the place of the assembly in the order it puts them together and executes the command
//! as if it had arrived there in one message. Nothing but the assembly is a request of the session with an effect,
//! so a retry of a part or of the assembly does no harm, and a command whose assembly was not sent is not
//! executed.
//!
//! ```text
//! session, request 7, 8, 9     parts, to shard 1
//! session, request 10          assembly of 3 parts, to shards 1 and 2: the command is request 10
//! ```
//!
//! Parts are numbered as requests of the session, one behind the other; each says in [`Envelope::open_from`] which is the
//! first one. While they are under way the session has no other request open.

use crate::envelope::Envelope;

/// The answer to a part that is kept, or was before.
pub const KEPT: &[u8] = b"+PART\r\n";

/// Parts that a command may have.
pub const PARTS_MAX: u64 = 1 << 16;

/// One part of an encoded command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CommandPart<'a> {
    /// The part's own request, in a session in which those from the first part on are open.
    pub envelope: Envelope,
    /// Its bytes.
    pub bytes: &'a [u8],
}

impl<'a> CommandPart<'a> {
    /// Bytes of an encoded part beside those of the command.
    pub const HEAD_BYTES: usize = Envelope::BYTES;
    const VERSION: u8 = 5;

    /// Appends the part to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.envelope.encode_as(Self::VERSION, out);
        out.extend_from_slice(self.bytes);
    }

    /// The part in these bytes; none if they are something else.
    pub fn decode(payload: &'a [u8]) -> Option<Self> {
        let (envelope, bytes) = Envelope::decode_as(Self::VERSION, payload)?;
        Some(Self { envelope, bytes })
    }

    /// The request of the command's first part.
    pub const fn first(&self) -> u64 {
        self.envelope.open_from
    }
}

/// Has the parts before it executed as one command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Assembly {
    /// The command's request: those just before it are its parts, and all of them were answered.
    pub envelope: Envelope,
    /// How many parts there are.
    pub parts: u32,
    /// Bytes of all of them.
    pub bytes: u64,
    /// Their CRC-32C.
    pub sum: u32,
}

impl Assembly {
    /// The assembly of an encoded command that was sent in so many parts.
    pub fn of(envelope: Envelope, parts: u32, command: &[u8]) -> Self {
        Self { envelope, parts, bytes: command.len() as u64, sum: crc32c::crc32c(command) }
    }

    /// Bytes of an encoded assembly.
    pub const BYTES: usize = Envelope::BYTES + 16;
    const VERSION: u8 = 6;

    /// Appends the assembly to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.envelope.encode_as(Self::VERSION, out);
        out.extend_from_slice(&self.parts.to_le_bytes());
        out.extend_from_slice(&self.bytes.to_le_bytes());
        out.extend_from_slice(&self.sum.to_le_bytes());
    }

    /// The assembly in these bytes; none if they are something else.
    pub fn decode(payload: &[u8]) -> Option<Self> {
        let (envelope, rest) = Envelope::decode_as(Self::VERSION, payload)?;
        let (parts, rest) = rest.split_first_chunk()?;
        let (bytes, rest) = rest.split_first_chunk()?;
        let sum = u32::from_le_bytes(rest.try_into().ok()?);
        let (parts, bytes) = (u32::from_le_bytes(*parts), u64::from_le_bytes(*bytes));
        Some(Self { envelope, parts, bytes, sum })
    }

    /// The request of the first part; none if there cannot be so many before this.
    pub const fn first(&self) -> Option<u64> {
        self.envelope.request.checked_sub(self.parts as u64)
    }
}

/// The envelope of an ordered command, and the command; none in place of it as long as only its assembly is there.
pub fn header(payload: &[u8]) -> Option<(Envelope, Option<&[u8]>)> {
    match Envelope::decode(payload) {
        Some((envelope, body)) => Some((envelope, Some(body))),
        None => Assembly::decode(payload).map(|assembly| (assembly.envelope, None)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::DigestReport;
    use crate::envelope::{ClockReport, Stamp};

    #[test]
    fn parts_and_assemblies_are_golden_and_neither_is_the_other() {
        let stamp = Stamp { wall_ms: 258, host_ms: 7 };
        let envelope = Envelope { session: 2, request: 3, open_from: 1, stamp, read_only: false };
        let (mut part, mut last) = (Vec::new(), Vec::new());
        CommandPart { envelope, bytes: b"ab" }.encode(&mut part);
        let head = [
            5, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 1, 0,
            0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0,
        ];
        assert_eq!(part, [&head[..], b"ab"].concat());
        let assembly = Assembly { envelope, parts: 2, bytes: 770, sum: 0x0403_0201 };
        assembly.encode(&mut last);
        assert_eq!(last[1..Envelope::BYTES], head[1..]);
        assert_eq!(last[Envelope::BYTES..], [2, 0, 0, 0, 2, 3, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4]);
        assert_eq!((last[0], last.len()), (6, Assembly::BYTES));
        assert_eq!(CommandPart::decode(&part), Some(CommandPart { envelope, bytes: b"ab" }));
        assert_eq!(Assembly::decode(&last), Some(assembly));
        assert_eq!((assembly.first(), header(&last)), (Some(1), Some((envelope, None))));
        assert!(CommandPart::decode(&last).is_none() && Assembly::decode(&part).is_none());
        for bytes in [&part, &last] {
            assert!(Envelope::decode(bytes).is_none() && ClockReport::decode(bytes).is_none());
            let report = &bytes[..DigestReport::BYTES];
            assert!(
                DigestReport::decode(bytes).is_none() && DigestReport::decode(report).is_none()
            );
        }
        assert!(Assembly::decode(&last[..last.len() - 1]).is_none());
        last.push(0);
        assert!(Assembly::decode(&last).is_none());
    }
}

//! Datagrams: several messages in one, or a piece of a message that fits in none.

use super::VERSION;
use amcast_core::codec::{ByteReader, Codec, CodecError};
use amcast_core::{Gid, Pid};

/// How long the head of a datagram is, in bytes.
pub const HEAD_BYTES: usize = 24;

/// How long the length in front of each message of a datagram is, in bytes.
pub const SIZE_BYTES: usize = 2;

/// How long the description in front of a piece is, in bytes.
pub const PIECE_BYTES: usize = 12;

/// How long a probe is without its echoes, in bytes.
const PROBE_BYTES: usize = 6;

/// How long each echo is that goes along with a probe, in bytes.
const ECHO_BYTES: usize = 12;

/// How many echoes go along with a probe in a datagram of so many bytes.
pub const fn echoes_max(datagram_bytes: usize) -> usize {
    datagram_bytes.saturating_sub(HEAD_BYTES + PROBE_BYTES) / ECHO_BYTES
}

/// `aD` as the first bytes of a datagram.
const MAGIC: u16 = u16::from_le_bytes(*b"aD");

/// Where in a datagram its length is.
const LENGTH_AT: usize = 2;

const MESSAGES: u8 = 0;
const PIECE: u8 = 1;
const KNOCK: u8 = 2;
const PROBE: u8 = 3;
const ECHO: u8 = 4;

/// The sender of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DatagramSender {
    /// The cluster it belongs to.
    pub cluster: u64,
    /// Its id.
    pub pid: Pid,
    /// Which life of the process it is.
    pub incarnation: u32,
}

/// The content of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DatagramBody<'a> {
    /// Messages, each behind its length: [`next_message`] takes them out.
    Messages(&'a [u8]),
    /// A piece of a message.
    Piece(MessageFragment<'a>),
    /// Nothing: the sender has just started and waits to be dialled.
    Knock,
    /// A question to all members of a group; who gets it at the group's address echoes it.
    Probe(GroupProbe<'a>),
    /// A probe that the receiver sent in this life of its reached the sender.
    Echo(Probe, u32),
}

/// A question whether a group's multicast address is heard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Probe {
    /// Which group's.
    pub group: Gid,
    /// The number of the question among those of the sender; it wraps.
    pub number: u32,
}

/// A probe as it travels to the address of a group, and the echoes of its sender that go along with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupProbe<'a> {
    /// The question.
    pub probe: Probe,
    /// Whether its sender waits for the echoes: each member sends its own at once, and to the sender alone.
    pub is_urgent: bool,
    /// Echoes of probes of others, one behind the other: [`GroupProbe::echoes`] takes them out.
    echoes: &'a [u8],
}

/// An echo that goes along with a probe: the last probe that this member sent in this life of its reached the sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GatheredEcho {
    /// The member that probed.
    pub to: Pid,
    /// In which of its lives.
    pub incarnation: u32,
    /// The number of its probe.
    pub number: u32,
}

impl GroupProbe<'_> {
    /// The echoes that go along.
    pub fn echoes(&self) -> impl Iterator<Item = GatheredEcho> {
        let one = |bytes: &[u8]| {
            let mut from = ByteReader::new(bytes);
            let (to, incarnation) = (Pid::decode(&mut from)?, u32::decode(&mut from)?);
            Ok::<_, CodecError>(GatheredEcho { to, incarnation, number: u32::decode(&mut from)? })
        };
        self.echoes.chunks_exact(ECHO_BYTES).filter_map(move |bytes| one(bytes).ok())
    }
}

impl Probe {
    fn decode(from: &mut ByteReader<'_>) -> Result<Self, CodecError> {
        Ok(Self { group: Gid(u8::decode(from)?), number: u32::decode(from)? })
    }
}

/// A piece of a message that is too long for one datagram. Its pieces are equally long, but for the
/// last; they may arrive in any order, and more than once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MessageFragment<'a> {
    /// The sender's number of the message among those in pieces; it wraps.
    pub number: u32,
    /// How long the message is, in bytes.
    pub total: u32,
    /// Which piece it is, from 0.
    pub index: u16,
    /// How long a piece is, in bytes.
    pub size: u16,
    /// Its bytes.
    pub bytes: &'a [u8],
}

impl MessageFragment<'_> {
    /// Where in the message it begins, in bytes.
    pub fn offset(&self) -> usize {
        usize::from(self.index) * usize::from(self.size)
    }

    /// Whether it is as long as it must be, of a message of that length.
    fn is_sound(&self) -> bool {
        let rest = (self.total as usize).checked_sub(self.offset());
        rest.is_some_and(|rest| {
            !self.bytes.is_empty() && self.bytes.len() == rest.min(usize::from(self.size))
        })
    }
}

/// Why bytes are no datagram of this version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotDatagram {
    /// Not of this program, or of another version of it.
    Stranger,
    /// The bytes behind its head make no sense.
    Malformed,
}

impl From<CodecError> for NotDatagram {
    fn from(_: CodecError) -> Self {
        Self::Malformed
    }
}

/// Takes the next datagram out of bytes that were received at once, if there is one more: the system may join datagrams
/// of one sender that follow each other. Whether it is sound is looked at by [`read_datagram`] only.
///
/// # Errors
/// When there is no sound head, or the datagram is longer than what is left: nothing behind it can be read.
#[inline]
pub fn next_datagram<'a>(received: &mut &'a [u8]) -> Result<Option<&'a [u8]>, NotDatagram> {
    if received.is_empty() {
        return Ok(None);
    }
    let mut head = ByteReader::new(received.get(..HEAD_BYTES).ok_or(NotDatagram::Stranger)?);
    if u16::decode(&mut head)? != MAGIC {
        return Err(NotDatagram::Stranger);
    }
    let length = usize::from(u16::decode(&mut head)?);
    if length < HEAD_BYTES {
        return Err(NotDatagram::Malformed);
    }
    let (datagram, rest) = received.split_at_checked(length).ok_or(NotDatagram::Malformed)?;
    *received = rest;
    Ok(Some(datagram))
}

/// Reads a datagram.
///
/// # Errors
/// When it is none of this version, or is not as long as it says. Its messages are looked at by [`next_message`] only.
pub fn read_datagram(bytes: &[u8]) -> Result<(DatagramSender, DatagramBody<'_>), NotDatagram> {
    let (head, rest) = bytes.split_at_checked(HEAD_BYTES).ok_or(NotDatagram::Stranger)?;
    let mut head = ByteReader::new(head);
    let (magic, length) = (u16::decode(&mut head)?, u16::decode(&mut head)?);
    if magic != MAGIC || u16::decode(&mut head)? != VERSION {
        return Err(NotDatagram::Stranger);
    }
    if usize::from(length) != bytes.len() {
        return Err(NotDatagram::Malformed);
    }
    let (kind, _unused) = (u8::decode(&mut head)?, u8::decode(&mut head)?);
    let sender = DatagramSender {
        cluster: u64::decode(&mut head)?,
        pid: Pid::decode(&mut head)?,
        incarnation: u32::decode(&mut head)?,
    };
    let body = match kind {
        MESSAGES => DatagramBody::Messages(rest),
        PIECE => {
            let mut rest = ByteReader::new(rest);
            let (number, total) = (u32::decode(&mut rest)?, u32::decode(&mut rest)?);
            let (index, size) = (u16::decode(&mut rest)?, u16::decode(&mut rest)?);
            let piece = MessageFragment { number, total, index, size, bytes: rest.rest() };
            if !piece.is_sound() {
                return Err(NotDatagram::Malformed);
            }
            DatagramBody::Piece(piece)
        }
        KNOCK if rest.is_empty() => DatagramBody::Knock,
        PROBE => {
            let mut rest = ByteReader::new(rest);
            let (probe, is_urgent) = (Probe::decode(&mut rest)?, bool::decode(&mut rest)?);
            let echoes = rest.rest();
            if !echoes.len().is_multiple_of(ECHO_BYTES) {
                return Err(NotDatagram::Malformed);
            }
            DatagramBody::Probe(GroupProbe { probe, is_urgent, echoes })
        }
        ECHO => {
            let mut rest = ByteReader::new(rest);
            let (probe, incarnation) = (Probe::decode(&mut rest)?, u32::decode(&mut rest)?);
            if !rest.rest().is_empty() {
                return Err(NotDatagram::Malformed);
            }
            DatagramBody::Echo(probe, incarnation)
        }
        _ => return Err(NotDatagram::Malformed),
    };
    Ok((sender, body))
}

/// Takes the next message out of the messages of a datagram, if there is one more.
///
/// # Errors
/// When it is longer than what is left: nothing behind it can be read.
#[inline]
pub fn next_message<'a>(messages: &mut &'a [u8]) -> Result<Option<&'a [u8]>, NotDatagram> {
    if messages.is_empty() {
        return Ok(None);
    }
    let (size, rest) = messages.split_first_chunk::<SIZE_BYTES>().ok_or(NotDatagram::Malformed)?;
    let size = usize::from(u16::from_le_bytes(*size));
    let (message, rest) = rest.split_at_checked(size).ok_or(NotDatagram::Malformed)?;
    *messages = rest;
    Ok(Some(message))
}

impl DatagramSender {
    fn head(self, kind: u8, to: &mut Vec<u8>) {
        MAGIC.encode(to);
        // Its length is known when it is complete.
        0_u16.encode(to);
        VERSION.encode(to);
        kind.encode(to);
        0_u8.encode(to);
        self.cluster.encode(to);
        self.pid.encode(to);
        self.incarnation.encode(to);
    }

    /// Begins a datagram of messages; [`put_message`] adds them. As any datagram it is sent after [`complete`].
    pub fn messages(self, to: &mut Vec<u8>) {
        self.head(MESSAGES, to);
    }

    /// Makes a datagram of a piece.
    pub fn piece(self, piece: &MessageFragment<'_>, to: &mut Vec<u8>) {
        self.head(PIECE, to);
        piece.number.encode(to);
        piece.total.encode(to);
        piece.index.encode(to);
        piece.size.encode(to);
        to.extend_from_slice(piece.bytes);
    }

    /// Makes a datagram that knocks.
    pub fn knock(self, to: &mut Vec<u8>) {
        self.head(KNOCK, to);
    }

    /// Makes a datagram that probes a group's address, with echoes of probes of others.
    pub fn probe(self, probe: Probe, is_urgent: bool, echoes: &[GatheredEcho], to: &mut Vec<u8>) {
        self.head(PROBE, to);
        probe.group.0.encode(to);
        probe.number.encode(to);
        is_urgent.encode(to);
        for echo in echoes {
            echo.to.encode(to);
            echo.incarnation.encode(to);
            echo.number.encode(to);
        }
    }

    /// Makes a datagram that echoes a probe, to the one that sent it in this life of its.
    pub fn echo(self, probe: Probe, incarnation: u32, to: &mut Vec<u8>) {
        self.head(ECHO, to);
        probe.group.0.encode(to);
        probe.number.encode(to);
        incarnation.encode(to);
    }
}

/// Writes into the head of a datagram how long it is: nothing is added to it any more. It is shorter than 64 KiB.
#[inline]
pub fn complete(datagram: &mut [u8]) {
    let length = (datagram.len() as u16).to_le_bytes();
    datagram[LENGTH_AT..][..length.len()].copy_from_slice(&length);
}

/// Adds a message to a datagram of messages. It is shorter than 64 KiB.
#[inline]
pub fn put_message(message: &[u8], to: &mut Vec<u8>) {
    to.extend_from_slice(&(message.len() as u16).to_le_bytes());
    to.extend_from_slice(message);
}

#[cfg(test)]
mod tests {
    use super::*;

    const SENDER: DatagramSender = DatagramSender { cluster: 7, pid: Pid(3), incarnation: 2 };

    fn made(make: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut bytes = Vec::new();
        make(&mut bytes);
        complete(&mut bytes);
        bytes
    }

    #[test]
    fn a_datagram_of_messages_has_these_bytes() {
        let bytes = made(|to| {
            SENDER.messages(to);
            put_message(b"xyz", to);
            put_message(b"", to);
        });
        let expected = [
            b'a', b'D', 31, 0, 14, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 2, 0, 0, 0, 3, 0,
            b'x', b'y', b'z', 0, 0,
        ];
        assert_eq!(bytes, expected);
        let Ok((SENDER, DatagramBody::Messages(mut rest))) = read_datagram(&bytes) else {
            panic!()
        };
        assert_eq!(next_message(&mut rest), Ok(Some(&b"xyz"[..])));
        assert_eq!(next_message(&mut rest), Ok(Some(&b""[..])));
        assert_eq!(next_message(&mut rest), Ok(None));
        let mut cut = &bytes[HEAD_BYTES..HEAD_BYTES + 4];
        assert_eq!(next_message(&mut cut), Err(NotDatagram::Malformed));
    }

    #[test]
    fn probes_and_echoes_read_back_and_longer_ones_are_malformed() {
        let probe = Probe { group: Gid(3), number: 0x0102_0304 };
        let echoes =
            [1, 2].map(|n| GatheredEcho { to: Pid(n), incarnation: 5, number: 0x0a0b_0c00 + n });
        let mut bytes = made(|to| SENDER.probe(probe, true, &echoes, to));
        assert_eq!(bytes[6], 3);
        assert_eq!(bytes[HEAD_BYTES..][..PROBE_BYTES], [3, 4, 3, 2, 1, 1]);
        let second = &bytes[HEAD_BYTES + PROBE_BYTES + ECHO_BYTES..];
        assert_eq!(second, [2, 0, 0, 0, 5, 0, 0, 0, 2, 12, 11, 10]);
        assert_eq!([bytes.len() - 1, bytes.len()].map(echoes_max), [1, 2]);
        let Ok((SENDER, DatagramBody::Probe(read))) = read_datagram(&bytes) else { panic!() };
        assert_eq!((read.probe, read.is_urgent), (probe, true));
        assert!(read.echoes().eq(echoes));
        let echo = made(|to| SENDER.echo(probe, 9, to));
        assert_eq!(echo[HEAD_BYTES..], [3, 4, 3, 2, 1, 9, 0, 0, 0]);
        assert_eq!(read_datagram(&echo), Ok((SENDER, DatagramBody::Echo(probe, 9))));
        assert_eq!(read_datagram(&echo[..echo.len() - 1]), Err(NotDatagram::Malformed));
        bytes.push(0);
        assert_eq!(read_datagram(&bytes), Err(NotDatagram::Malformed), "longer than it says");
        complete(&mut bytes);
        assert_eq!(read_datagram(&bytes), Err(NotDatagram::Malformed), "a part of an echo");
    }

    #[test]
    fn datagrams_that_were_joined_are_taken_apart() {
        let one = made(|to| {
            SENDER.messages(to);
            put_message(b"xyz", to);
        });
        let knock = made(|to| SENDER.knock(to));
        let joined = [&*one, &*one, &*knock].concat();
        let mut rest = &*joined;
        assert_eq!(next_datagram(&mut rest), Ok(Some(&*one)));
        assert_eq!(next_datagram(&mut rest), Ok(Some(&*one)));
        let behind = rest;
        assert_eq!(next_datagram(&mut rest), Ok(Some(&*knock)));
        assert_eq!(next_datagram(&mut rest), Ok(None));
        assert_eq!(next_datagram(&mut &behind[..HEAD_BYTES - 1]), Err(NotDatagram::Stranger));
        assert_eq!(next_datagram(&mut &one[..one.len() - 1]), Err(NotDatagram::Malformed));
        let mut short = knock;
        short[LENGTH_AT] -= 1;
        assert_eq!(next_datagram(&mut &*short), Err(NotDatagram::Malformed), "not even a head");
        assert_eq!(next_datagram(&mut &[b'x'; 100][..]), Err(NotDatagram::Stranger));
    }

    #[test]
    fn pieces_that_do_not_fit_together_are_malformed() {
        let sound = MessageFragment { number: 1, total: 25, index: 2, size: 10, bytes: b"abcde" };
        let read = |piece| {
            read_datagram(&made(|to| SENDER.piece(&piece, to)))
                .map(|(_, b)| b == DatagramBody::Piece(piece))
        };
        assert_eq!(read(sound), Ok(true));
        for wrong in [
            MessageFragment { index: 1, ..sound },
            MessageFragment { index: 3, ..sound },
            MessageFragment { total: 26, ..sound },
            MessageFragment { size: 0, ..sound },
            MessageFragment { size: 0, index: 0, bytes: b"", ..sound },
            MessageFragment { total: 0, index: 0, bytes: b"", ..sound },
        ] {
            assert_eq!(read(wrong), Err(NotDatagram::Malformed), "{wrong:?}");
        }
    }

    #[test]
    fn strangers_and_other_versions_are_told_from_damage() {
        let knock = made(|to| SENDER.knock(to));
        assert_eq!(read_datagram(&knock), Ok((SENDER, DatagramBody::Knock)));
        let changed = |at: usize, by: u8| {
            let mut bytes = knock.clone();
            bytes[at] ^= by;
            read_datagram(&bytes).map(|_| ())
        };
        assert_eq!(changed(0, 1), Err(NotDatagram::Stranger));
        assert_eq!(changed(4, 2), Err(NotDatagram::Stranger), "another version");
        assert_eq!(changed(6, 8), Err(NotDatagram::Malformed), "no such kind");
        assert_eq!(read_datagram(&knock[1..]), Err(NotDatagram::Stranger));
    }
}

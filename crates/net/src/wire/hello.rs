//! The handshake of a connection: who is there, of which cluster, in which life.

use super::VERSION;
use crate::peer_identity::PeerClaim;
use crate::settings_digest::{MARKS, SettingsDigest};
use amcast_core::Pid;
use amcast_core::codec::{ByteReader, Codec, CodecError};
use amcast_core::limits::LIVES_MAX;
use core::fmt;

/// How long a hello is, in bytes.
pub const HELLO_BYTES: usize = 49 + 8 * MARKS;

/// The part at its beginning that every version reads alike: the version, and whether it is a refusal.
const HEAD_BYTES: usize = 8;

/// `amcS` as the first bytes of a connection.
pub(super) const MAGIC: u32 = u32::from_le_bytes(*b"amcS");

/// How each end of a connection introduces itself: the first bytes that it sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hello {
    /// Its message.
    pub said: HandshakeMessage,
    /// The cluster it belongs to.
    pub cluster: u64,
    /// The sender's id.
    pub from: Pid,
    /// The receiver's id, as the sender believes.
    pub to: Pid,
    /// Which life of the process it is; in a refusal, the latest that is known of who is refused.
    pub incarnation: u32,
    /// How many processes its cluster has, those that one peer hosts counted singly.
    pub processes: u32,
    /// By which number the disk is known that the process keeps what it promised on; 0 if it keeps
    /// nothing. In a refusal, the one of who is refused.
    pub disk: u64,
    /// By which number this start of the process is known: no other has it, not even one in the same
    /// life from a copy of the disk; 0 if it says none. In a refusal, the one of who is refused.
    pub start: u64,
    /// Whether the process began on its disk by asking the others what it had promised before.
    pub anew: bool,
    /// The settings on which the sender's behaviour depends.
    pub decides: SettingsDigest,
}

/// The message of an end of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HandshakeMessage {
    /// The dialling end asks to be let in.
    Ask,
    /// The dialled end lets the other in: frames follow.
    Welcome,
    /// The dialled end does not, and closes the connection. The dialling end sends it on a connection of its
    /// own when it refuses a peer that welcomed it.
    Refuse(ConnectionRefusal),
}

/// Why a connection was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConnectionRefusal {
    /// The two do not run the same version of the program.
    Version,
    /// The other belongs to another cluster.
    Cluster,
    /// The clusters have the same id and not the same number of processes.
    Shape,
    /// The other wants somebody else, or is somebody who does not dial this process.
    Address,
    /// A later life of the other process was seen already, or another start of the same one; or its
    /// disk is another one than it had, and it did not ask what it had promised on that.
    Old,
    /// The other process has begun on another disk since, and promised more there.
    Replaced,
    /// The other does not know the cluster's secret, or knows another one. It is not told so.
    Secret,
    /// The settings of the other end differ: the one with this place in the order of all settings.
    Decides(u8),
}

/// Those that say no more than why, by their number; the places of what decides have the numbers behind them.
const REFUSALS: [ConnectionRefusal; 7] = [
    ConnectionRefusal::Version,
    ConnectionRefusal::Cluster,
    ConnectionRefusal::Shape,
    ConnectionRefusal::Address,
    ConnectionRefusal::Old,
    ConnectionRefusal::Replaced,
    ConnectionRefusal::Secret,
];

impl ConnectionRefusal {
    /// Its number, which travels: that of [`ConnectionRefusal::Decides`] says the place, too.
    pub fn number(self) -> u8 {
        let behind = REFUSALS.len() as u8;
        match self {
            Self::Decides(at) => behind + at.min(MARKS as u8 - 1),
            plain => REFUSALS.iter().position(|why| *why == plain).map_or(behind, |at| at as u8),
        }
    }

    fn of_number(number: u8) -> Option<Self> {
        let behind = || number.checked_sub(REFUSALS.len() as u8);
        let decides = || behind().filter(|at| usize::from(*at) < MARKS).map(Self::Decides);
        REFUSALS.get(usize::from(number)).copied().or_else(decides)
    }
}

impl fmt::Display for ConnectionRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Version => {
                "it runs another version of the program; give all nodes the same version"
            }
            Self::Cluster => "it is of another cluster; check the addresses in both configurations",
            Self::Shape => {
                "its cluster has another number of processes; give all nodes the same configuration"
            }
            Self::Address => {
                "the process that it names is not the one at that address; give all nodes the same \
                 configuration"
            }
            Self::Old => {
                "another start or disk of that process is known; end the one that is left over, or, for it to begin anew, \
                 remove the files of this node there, and no file of another node"
            }
            Self::Replaced => {
                "its disk is one that was replaced: on the later one it promised more; for it to begin anew, remove the \
                 files of this node there, and no file of another node"
            }
            Self::Secret => {
                "its secret and the one here are not the same; give all nodes the same file as `secret`, and start them \
                 again"
            }
            Self::Decides(_) => {
                "its configuration and the one here are not the same; give all nodes the same one"
            }
        })
    }
}

/// Why bytes are no hello of this version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotHello {
    /// Something else than this program is at the other end.
    Stranger,
    /// This program in another version, which is given.
    Version(u16),
}

impl Hello {
    /// The bytes of it.
    pub fn encode(&self) -> [u8; HELLO_BYTES] {
        let (kind, refusal) = match self.said {
            HandshakeMessage::Ask => (0_u8, 0_u8),
            HandshakeMessage::Welcome => (1, 0),
            HandshakeMessage::Refuse(why) => (2, why.number()),
        };
        let mut bytes = Vec::with_capacity(HELLO_BYTES);
        MAGIC.encode(&mut bytes);
        VERSION.encode(&mut bytes);
        kind.encode(&mut bytes);
        refusal.encode(&mut bytes);
        self.cluster.encode(&mut bytes);
        self.from.encode(&mut bytes);
        self.to.encode(&mut bytes);
        self.incarnation.encode(&mut bytes);
        self.processes.encode(&mut bytes);
        self.disk.encode(&mut bytes);
        self.start.encode(&mut bytes);
        u8::from(self.anew).encode(&mut bytes);
        self.decides.encode(&mut bytes);
        bytes.try_into().expect("the fields are that long together")
    }

    /// The claim about its sender, in a hello that is no refusal.
    pub(crate) fn claim(&self) -> PeerClaim {
        let Self { incarnation: life, start, disk, anew, .. } = *self;
        PeerClaim { life, start, disk, anew }
    }

    /// Whether bytes that may be the beginning of a hello are none of this version's; known as soon as
    /// there are enough of them.
    pub(crate) fn is_foreign(begun: &[u8]) -> bool {
        let [a, b, c, d] = MAGIC.to_le_bytes();
        let [e, f] = VERSION.to_le_bytes();
        begun.len() >= HEAD_BYTES && !begun.starts_with(&[a, b, c, d, e, f])
    }

    /// Reads it back.
    ///
    /// # Errors
    /// When it is none, or of another version.
    pub fn decode(bytes: &[u8; HELLO_BYTES]) -> Result<Self, NotHello> {
        let mut from = ByteReader::new(bytes);
        let short = |_: CodecError| NotHello::Stranger;
        if u32::decode(&mut from).map_err(short)? != MAGIC {
            return Err(NotHello::Stranger);
        }
        let version = u16::decode(&mut from).map_err(short)?;
        let (kind, refusal) = (u8::decode(&mut from), u8::decode(&mut from));
        let said = match (kind.map_err(short)?, refusal.map_err(short)?) {
            // A refusal for the version is understood by every version.
            (2, 0) => HandshakeMessage::Refuse(ConnectionRefusal::Version),
            _ if version != VERSION => return Err(NotHello::Version(version)),
            (0, 0) => HandshakeMessage::Ask,
            (1, 0) => HandshakeMessage::Welcome,
            (2, why) => HandshakeMessage::Refuse(
                ConnectionRefusal::of_number(why).ok_or(NotHello::Stranger)?,
            ),
            _ => return Err(NotHello::Stranger),
        };
        let is_of_any_version = said == HandshakeMessage::Refuse(ConnectionRefusal::Version);
        let hello = Self {
            said,
            cluster: u64::decode(&mut from).map_err(short)?,
            from: Pid::decode(&mut from).map_err(short)?,
            to: Pid::decode(&mut from).map_err(short)?,
            incarnation: u32::decode(&mut from).map_err(short)?,
            processes: u32::decode(&mut from).map_err(short)?,
            disk: u64::decode(&mut from).map_err(short)?,
            start: u64::decode(&mut from).map_err(short)?,
            anew: match u8::decode(&mut from).map_err(short)? {
                0 => false,
                1 => true,
                _ if is_of_any_version => false,
                _ => return Err(NotHello::Stranger),
            },
            decides: SettingsDigest::decode(&mut from).map_err(short)?,
        };
        // A process that believed it would be known by that incarnation for ever, and none of its own would do.
        if hello.incarnation >= LIVES_MAX && !is_of_any_version {
            return Err(NotHello::Stranger);
        }
        Ok(hello)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello() -> Hello {
        Hello {
            said: HandshakeMessage::Ask,
            cluster: 0x0102_0304_0506_0708,
            from: Pid(5),
            to: Pid(2),
            incarnation: 9,
            processes: 12,
            disk: 0x1112_1314_1516_1718,
            start: 0x2122_2324_2526_2728,
            anew: true,
            decides: SettingsDigest::of([("shards", "3"), ("replicas", "3")]),
        }
    }

    #[test]
    fn a_hello_has_these_bytes() {
        let expected = [
            b'a', b'm', b'c', b'S', 14, 0, 0, 0, 8, 7, 6, 5, 4, 3, 2, 1, 5, 0, 0, 0, 2, 0, 0, 0, 9,
            0, 0, 0, 12, 0, 0, 0, 0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11, 0x28, 0x27, 0x26,
            0x25, 0x24, 0x23, 0x22, 0x21, 1,
        ];
        let decides = SettingsDigest::of([("shards", "3")]);
        let bytes = Hello { decides, ..hello() }.encode();
        assert_eq!((&bytes[..49], bytes.len()), (&expected[..], 49 + 384));
        assert!(bytes[49..57] != [0; 8] && bytes[57..] == [0; 376]);
    }

    #[test]
    fn what_was_said_reads_back() {
        let places = (0..MARKS as u8).map(ConnectionRefusal::Decides);
        let refusals = REFUSALS.into_iter().chain(places).map(HandshakeMessage::Refuse);
        for said in [HandshakeMessage::Ask, HandshakeMessage::Welcome].into_iter().chain(refusals) {
            let hello = Hello { said, ..hello() };
            assert_eq!(Hello::decode(&hello.encode()), Ok(hello));
        }
    }

    #[test]
    fn nobody_has_more_lives_than_can_be_counted() {
        for said in [
            HandshakeMessage::Ask,
            HandshakeMessage::Welcome,
            HandshakeMessage::Refuse(ConnectionRefusal::Old),
        ] {
            let read = |incarnation| {
                let hello = Hello { said, incarnation, ..hello() };
                Hello::decode(&hello.encode()).map(|read| read.incarnation)
            };
            assert_eq!(read(LIVES_MAX - 1), Ok(LIVES_MAX - 1));
            for none in [LIVES_MAX, u32::MAX] {
                assert_eq!(read(none), Err(NotHello::Stranger));
            }
        }
    }

    #[test]
    fn strangers_and_other_versions_are_told_apart() {
        let mut bytes = hello().encode();
        bytes[4] = 1;
        assert_eq!(Hello::decode(&bytes), Err(NotHello::Version(1)));
        bytes[0] = b'G';
        assert_eq!(Hello::decode(&bytes), Err(NotHello::Stranger));
        let mut refused =
            Hello { said: HandshakeMessage::Refuse(ConnectionRefusal::Version), ..hello() }
                .encode();
        refused[4] = 77;
        let said = Hello::decode(&refused).map(|h| h.said);
        assert_eq!(
            said,
            Ok(HandshakeMessage::Refuse(ConnectionRefusal::Version)),
            "every version understands it"
        );
        refused[7] = 200;
        refused[4] = VERSION as u8;
        assert_eq!(Hello::decode(&refused), Err(NotHello::Stranger));
    }
}

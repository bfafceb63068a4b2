//! The envelope of each ordered command: its session, its request number, and the time of its
//! sending.

use amcast_core::Gid;

/// A moment on two clocks, and ordered time likewise: no later command of a shard has less on
/// either of them.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Stamp {
    /// The wall clock, milliseconds since 1970: expiry is judged by it.
    pub wall_ms: u64,
    /// The host's monotonic clock, milliseconds since it booted: how old a command is. Nobody sets
    /// this clock, and all processes of the host have the same, so a command never looks old only
    /// because a wall clock was set.
    pub host_ms: u64,
}

impl Stamp {
    /// The later of both, on each clock.
    pub fn max(self, other: Self) -> Self {
        let (wall_ms, host_ms) = (self.wall_ms.max(other.wall_ms), self.host_ms.max(other.host_ms));
        Self { wall_ms, host_ms }
    }

    /// The earlier of both, on each clock.
    pub fn min(self, other: Self) -> Self {
        let (wall_ms, host_ms) = (self.wall_ms.min(other.wall_ms), self.host_ms.min(other.host_ms));
        Self { wall_ms, host_ms }
    }
}

/// The header that a gateway puts before a command. A retry carries the same bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Envelope {
    /// The client's session, unique over all gateways and restarts. A gateway has a fixed pool of
    /// them and lends one to each connection, so their number is bounded.
    pub session: u64,
    /// The request's number in its session, from 1, growing.
    pub request: u64,
    /// All requests of the session below this number have been answered: their answers need not
    /// be kept.
    pub open_from: u64,
    /// When the gateway first sent the command.
    pub stamp: Stamp,
    /// Whether the command changes nothing: it may be run twice, and only by the node that answers it.
    pub read_only: bool,
}

impl Envelope {
    /// Bytes of an encoded header.
    pub const BYTES: usize = 42;
    const VERSION: u8 = 2;
    const READ_ONLY: u8 = 2;
    /// Older logs hold it, for reads and for writes that may be run twice. It has no meaning.
    const HARMLESS: u8 = 1;

    /// Appends the header to `out`; the command's bytes follow it.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.encode_as(Self::VERSION, out);
    }

    /// The encoded header, to be written in front of a command that is encoded already.
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        self.bytes_as(Self::VERSION)
    }

    /// Appends the same words behind another first byte, which names the kind of the rest.
    pub fn encode_as(&self, version: u8, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.bytes_as(version));
    }

    fn bytes_as(&self, version: u8) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[0] = version;
        bytes[1] = if self.read_only { Self::READ_ONLY } else { 0 };
        let Stamp { wall_ms, host_ms } = self.stamp;
        let words = [self.session, self.request, self.open_from, wall_ms, host_ms];
        for (at, word) in bytes[2..].chunks_exact_mut(8).zip(words) {
            at.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// The header and the command behind it; none if the bytes are not of this version.
    pub fn decode(payload: &[u8]) -> Option<(Self, &[u8])> {
        Self::decode_as(Self::VERSION, payload)
    }

    /// Decodes the bytes that [`encode_as`](Self::encode_as) wrote; returns the bytes that follow,
    /// too.
    pub fn decode_as(version: u8, payload: &[u8]) -> Option<(Self, &[u8])> {
        let (head, body) = payload.split_at_checked(Self::BYTES)?;
        if head[0] != version || head[1] & !(Self::READ_ONLY | Self::HARMLESS) != 0 {
            return None;
        }
        let word = |i: usize| {
            let mut w = [0; 8];
            w.copy_from_slice(&head[2 + 8 * i..10 + 8 * i]);
            u64::from_le_bytes(w)
        };
        let envelope = Self {
            session: word(0),
            request: word(1),
            open_from: word(2),
            stamp: Stamp { wall_ms: word(3), host_ms: word(4) },
            read_only: head[1] & Self::READ_ONLY != 0,
        };
        Some((envelope, body))
    }
}

/// A replica's report of its clocks, in place of an envelope and a command: it is ordered like one,
/// in one shard, and has no answer. See [`Executor::bound_time`](crate::Executor::bound_time).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClockReport(pub Stamp);

impl ClockReport {
    /// Bytes of an encoded report.
    pub const BYTES: usize = 17;
    const VERSION: u8 = 3;

    /// The bytes of the report.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut out = [Self::VERSION; Self::BYTES];
        out[1..9].copy_from_slice(&self.0.wall_ms.to_le_bytes());
        out[9..].copy_from_slice(&self.0.host_ms.to_le_bytes());
        out
    }

    /// The report in these bytes; none if they are something else.
    pub fn decode(payload: &[u8]) -> Option<Self> {
        let (&[version, ref rest @ ..], b"") = payload.split_first_chunk::<{ Self::BYTES }>()?
        else {
            return None;
        };
        let (wall, host) = rest.split_at(8);
        let word = |bytes: &[u8]| Some(u64::from_le_bytes(bytes.try_into().ok()?));
        let stamp = Stamp { wall_ms: word(wall)?, host_ms: word(host)? };
        (version == Self::VERSION).then_some(Self(stamp))
    }
}

/// A request of a session that writes: a later read of the session must see it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SessionWrite {
    /// The lowest of the shards of its command, which keeps its outcome.
    pub shard: Gid,
    /// Its number in the session.
    pub request: u64,
    /// When it was first sent, by the hosts' clock, in milliseconds.
    pub host_ms: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_report_is_golden_and_is_no_command() {
        let report = ClockReport(Stamp { wall_ms: 258, host_ms: 7 });
        let bytes = report.encode();
        assert_eq!(bytes, [3, 2, 1, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(ClockReport::decode(&bytes), Some(report));
        assert_eq!((ClockReport::decode(&bytes[..16]), Envelope::decode(&bytes)), (None, None));
        assert_eq!(ClockReport::decode(&[3; 18]), None);
        assert_eq!(ClockReport::decode(&[2; 17]), None);
    }

    #[test]
    fn bytes_are_golden_and_read_back() {
        let stamp = Stamp { wall_ms: 258, host_ms: 7 };
        let e = Envelope { session: 2, request: 3, open_from: 1, stamp, read_only: true };
        let mut bytes = Vec::new();
        e.encode(&mut bytes);
        let golden = [
            2, 2, 2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 1, 0,
            0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0,
        ];
        assert_eq!((&bytes[..], e.to_bytes()), (&golden[..], golden));
        bytes.push(9);
        assert_eq!(Envelope::decode(&bytes), Some((e, &[9][..])));
        assert_eq!(Envelope::decode(&golden[..41]), None);
        // A command that older logs mark as read-only may have changed something.
        bytes[1] = 1;
        assert_eq!(Envelope::decode(&bytes).map(|(e, _)| e.read_only), Some(false));
        bytes[0] = 1;
        assert_eq!(Envelope::decode(&bytes), None);
    }
}

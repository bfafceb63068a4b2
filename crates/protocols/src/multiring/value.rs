//! Values of instances, and the ballots in which they are proposed.

use super::shared_bytes::SharedBytes;
use alloc::vec::Vec;
use amcast_core::codec::{ByteReader, Codec, CodecError, put_bytes};
use amcast_core::{GroupSet, MsgId, Pid, messages};
use core::fmt;

/// A ballot: higher ones win, and no two coordinators have the same.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(super) struct RingBallot {
    /// Counts the attempts to coordinate.
    pub(super) round: u32,
    /// One more than the number of its coordinator; 0 in [`RingBallot::NONE`].
    owner: u32,
}

impl RingBallot {
    /// Below every coordinator's ballot.
    pub(super) const NONE: Self = Self { round: 0, owner: 0 };

    pub(super) const fn new(round: u32, pid: Pid) -> Self {
        Self { round, owner: pid.0 + 1 }
    }

    /// Its coordinator; none for [`RingBallot::NONE`].
    pub(super) const fn coordinator(self) -> Option<Pid> {
        if self.owner == 0 { None } else { Some(Pid(self.owner - 1)) }
    }

    /// Whether one of `acceptors` may have begun it; true of [`RingBallot::NONE`].
    pub(super) fn is_of(self, acceptors: &[Pid]) -> bool {
        let known = self.coordinator().is_none_or(|pid| acceptors.contains(&pid));
        known && self.round <= ROUND_MAX
    }

    /// A number that orders as the ballot does, for people and traces.
    pub(super) const fn number(self) -> u64 {
        (self.round as u64) << 32 | self.owner as u64
    }
}

impl fmt::Debug for RingBallot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.coordinator() {
            Some(pid) => write!(f, "{}@{pid:?}", self.round),
            None => f.write_str("-"),
        }
    }
}

messages! {
    struct RingBallot { round, owner }
    struct InstanceEntry { first, ballot, value }
    enum InstanceValue {
        0 => Batch(bytes),
        1 => Skip(count),
    }
}

/// The last round of a ring.
const ROUND_MAX: u32 = u32::MAX / 2;

/// The last instance of a ring: positions have room for those of many rings.
pub(super) const INSTANCE_MAX: u64 = 1 << 44;

/// A multicast on its way to its coordinator, or in a batch, as it lies in the bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RingProposal<'a> {
    pub(super) msg: MsgId,
    /// The incarnation in which its sender proposed it.
    pub(super) incarnation: u32,
    /// Its number among the proposals of that incarnation to this ring, from 1 and without gaps.
    pub(super) number: u64,
    pub(super) dst: GroupSet,
    pub(super) payload: &'a [u8],
}

/// Bytes of a proposal on the wire beside its payload.
pub(super) const PROPOSAL_BYTES: usize = 4 + 8 + 4 + 8 + 8 + 4;

impl<'a> RingProposal<'a> {
    /// How many bytes it takes in a batch.
    pub(super) fn size(&self) -> usize {
        PROPOSAL_BYTES + self.payload.len()
    }

    /// Appends it, as it lies in a batch.
    pub(super) fn encode(&self, to: &mut Vec<u8>) {
        self.msg.encode(to);
        self.incarnation.encode(to);
        self.number.encode(to);
        self.dst.encode(to);
        put_bytes(self.payload, to);
    }

    /// Decodes one.
    pub(super) fn decode(from: &mut ByteReader<'a>) -> Result<Self, CodecError> {
        Ok(Self {
            msg: Codec::decode(from)?,
            incarnation: Codec::decode(from)?,
            number: Codec::decode(from)?,
            dst: Codec::decode(from)?,
            payload: from.bytes()?,
        })
    }
}

/// The proposals in these bytes, which follow each other, up to the first that cannot be decoded.
pub(super) fn proposals(bytes: &[u8]) -> impl Iterator<Item = RingProposal<'_>> {
    let mut reader = ByteReader::new(bytes);
    core::iter::from_fn(move || RingProposal::decode(&mut reader).ok())
}

/// How many proposals these bytes are, if they are proposals of such senders and nothing else.
pub(super) fn count(bytes: &[u8], sender: impl Fn(Pid) -> bool) -> Option<usize> {
    let (mut reader, mut count) = (ByteReader::new(bytes), 0);
    while !reader.is_empty() {
        RingProposal::decode(&mut reader).ok().filter(|one| sender(one.msg.sender))?;
        count += 1;
    }
    Some(count)
}

/// The value of one instance, or of several that are skipped together.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum InstanceValue {
    /// Messages packed together, as [`RingProposal`]s that follow each other. One instance.
    Batch(SharedBytes),
    /// So many instances without messages; at least one.
    Skip(u64),
}

/// Messages in one batch, at most: their numbers fit into a position.
pub(super) const BATCH_MAX: usize = (1 << super::topology::PLACE_BITS) - 2;

impl InstanceValue {
    /// How many instances it takes.
    pub(super) const fn instances(&self) -> u64 {
        match self {
            Self::Batch(_) => 1,
            Self::Skip(count) => *count,
        }
    }

    /// How many bytes it has.
    pub(super) fn size(&self) -> usize {
        match self {
            Self::Batch(bytes) => bytes.len(),
            Self::Skip(_) => 8,
        }
    }

    /// Its messages, in order.
    pub(super) fn messages(&self) -> impl Iterator<Item = RingProposal<'_>> {
        proposals(match self {
            Self::Batch(bytes) => bytes,
            Self::Skip(_) => &[],
        })
    }

    /// Whether a coordinator may propose it: it is complete, and not too large.
    pub(super) fn makes_sense(&self, processes: usize) -> bool {
        match self {
            Self::Skip(count) => *count > 0 && *count <= SKIP_MAX,
            Self::Batch(bytes) => count(bytes, |p| p.index() < processes)
                .is_some_and(|count| (1..=BATCH_MAX).contains(&count)),
        }
    }
}

/// Instances that are skipped together, at most.
pub(super) const SKIP_MAX: u64 = 1 << 32;

impl fmt::Debug for InstanceValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Batch(_) => f.debug_list().entries(self.messages().map(|m| m.msg)).finish(),
            Self::Skip(count) => write!(f, "skip {count}"),
        }
    }
}

/// Bytes of values that one message carries, at most, unless it is one value.
pub(super) const VALUES_BYTES_MAX: usize = 2 << 20;

/// Bytes of an entry on the wire beside those of its batch, at most.
const ENTRY_BYTES: usize = 8 + 8 + 1 + 8;

/// A value in its ballot, from its first instance on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct InstanceEntry {
    pub(super) first: u64,
    pub(super) ballot: RingBallot,
    pub(super) value: InstanceValue,
}

impl InstanceEntry {
    /// Whether a coordinator may have proposed it.
    pub(super) fn makes_sense(&self, acceptors: &[Pid], processes: usize) -> bool {
        self.end() <= INSTANCE_MAX
            && self.ballot.is_of(acceptors)
            && self.value.makes_sense(processes)
    }

    /// Bytes on the wire, at most.
    pub(super) fn wire_bytes(&self) -> usize {
        ENTRY_BYTES + self.value.size()
    }

    /// The instance behind its last one.
    pub(super) const fn end(&self) -> u64 {
        self.first.saturating_add(self.value.instances())
    }
}

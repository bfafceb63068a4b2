//! The frames between nodes, byte for byte. All numbers are little-endian.
//!
//! ```text
//! open      1  start:8 peer:8 oldest:8
//! opened    2  start:8 writer:8 applied:8
//! lives     3  (pid:4 incarnation:8)*
//! write     4  flags:1 region:2 from:4 to:4 at:4 count:4 number:8 incarnation:8 (word:8 * 8)*count
//! read      5  flags:1 region:2 from:4 to:4 at:4 count:4 number:8 incarnation:8
//! outcomes  6  upto:8 (number:8 fate:1)*
//! words     7  number:8 more:1 (word:8 * 8)*
//! health    8  fit:1 request:8 grantee:4 start:8 granted:8 open:8 gaps:8 lagging:8
//! ```
//! `start` is the number of the sender's start and `peer` the one that it had before of the other end, 0 if none;
//! `oldest` is the number of the first access that the sender may still send. `writer` repeats the `start` of the
//! `open` that is answered, and `applied` is the number of the last access of that writer that was carried out. Flags: 1 an
//! outcome is wanted, 2 the owner's bell is rung. Fates: 0 written, 1 denied, 2 lost, 3 refused. `request` is the number
//! of the sender's request to begin anew, 0 for none; `granted` that of the request of the node `grantee`, in that `start` of it, that it
//! has granted, 0 for none, and then `grantee` and `start` are 0. In `open`, `gaps` and `lagging` the bit of each node is set: those that
//! the sender's writes reach, those that dropped writes to it, and those that lag a shard that it leads (`restart.rs`).

use super::RemoteTarget;
use amcast_core::id::Pid;
use amcast_core::memory::{LINE_WORDS, RegionId};

/// The most lines of one write: 8 MB. Reads of more lines are answered in several frames.
pub const LINES_MAX: u32 = 1 << 17;

/// The longest frame, in bytes.
pub const FRAME_BYTES_MAX: usize = ACCESS_BYTES + LINES_MAX as usize * LINE_BYTES;

/// Bytes of a line.
pub(super) const LINE_BYTES: usize = 64;

/// Bytes of a write before its lines, and of a read.
pub(super) const ACCESS_BYTES: usize = 1 + 1 + 2 + 4 * 4 + 2 * 8;

/// Lines of one frame of an answer to a read.
pub(super) const WORDS_LINES: usize = 1 << 12;

/// Where the flags of an access are, and its count of lines.
pub(super) const FLAGS_AT: usize = 1;
pub(super) const COUNT_AT: usize = 16;

pub(super) const WANTS: u8 = 1;
pub(super) const BELL: u8 = 2;

pub(super) const WRITTEN: u8 = 0;
pub(super) const DENIED: u8 = 1;
pub(super) const LOST: u8 = 2;
pub(super) const REFUSED: u8 = 3;

/// The head of an access.
#[derive(Clone, Copy)]
pub(crate) struct AccessHead {
    pub(crate) is_read: bool,
    /// Whether an outcome is wanted.
    pub(crate) wants: bool,
    /// Whether the owner's bell is rung.
    pub(crate) bell: bool,
    /// The writer or reader.
    pub(crate) from: Pid,
    pub(crate) to: RemoteTarget,
}

/// An access to so many lines.
#[derive(Clone, Copy)]
pub(crate) struct RemoteAccess {
    pub(crate) head: AccessHead,
    pub(crate) count: u32,
}

impl RemoteAccess {
    /// Bytes of its frame.
    pub(super) const fn bytes(&self) -> usize {
        let lines = if self.head.is_read { 0 } else { self.count as usize };
        ACCESS_BYTES + lines * LINE_BYTES
    }

    /// Appends the head of its frame.
    pub(super) fn encode(&self, number: u64, to: &mut Vec<u8>) {
        let AccessHead { is_read, wants, bell, from, to: target } = self.head;
        to.push(if is_read { 5 } else { 4 });
        to.push((u8::from(wants) * WANTS) | (u8::from(bell) * BELL));
        to.extend_from_slice(&target.region.0.to_le_bytes());
        for word in [from.0, target.pid.0, target.at, self.count] {
            to.extend_from_slice(&word.to_le_bytes());
        }
        to.extend_from_slice(&number.to_le_bytes());
        to.extend_from_slice(&target.incarnation.to_le_bytes());
    }
}

/// A frame as it was read: shape and lengths are right, and nothing else was checked.
pub(super) enum RemoteFrame<'a> {
    Open { start: u64, peer: u64, oldest: u64 },
    Opened { start: u64, writer: u64, applied: u64 },
    Lives(&'a [u8]),
    Access { access: RemoteAccess, number: u64, lines: &'a [u8] },
    Outcomes { upto: u64, fates: &'a [u8] },
    Words { number: u64, more: bool, lines: &'a [u8] },
    Health(NodeHealth),
}

/// A request to begin anew that a node has granted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RestartGrant {
    /// The node that requested.
    pub(super) node: usize,
    /// The start of that node in which it did.
    pub(super) start: u64,
    /// The number of the request in that start, not 0.
    pub(super) request: u64,
}

/// The report of a node on itself to the others: see `restart.rs`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct NodeHealth {
    /// Whether each of its replicas has all of its state.
    pub(super) is_fit: bool,
    /// The number of its request to begin anew; 0 for none.
    pub(super) request: u64,
    /// The request of another node that it has granted.
    pub(super) grant: Option<RestartGrant>,
    /// The nodes that its writes reach.
    pub(super) open: u64,
    /// The nodes that dropped writes to it.
    pub(super) gaps: u64,
    /// The nodes whose replica one of its own, which leads that shard, does not wait for.
    pub(super) lagging: u64,
}

/// Takes numbers off the front of bytes.
struct FieldReader<'a>(&'a [u8]);

impl FieldReader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*first)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take::<1>().map(|[byte]| byte)
    }

    fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }
}

/// Bytes of one entry of `lives`, and of `outcomes`.
const LIFE_BYTES: usize = 12;
const OUTCOME_BYTES: usize = 9;

/// Reads a frame; none if it is none of this format.
pub(super) fn decode(bytes: &[u8]) -> Option<RemoteFrame<'_>> {
    let mut from = FieldReader(bytes);
    let kind = from.u8()?;
    let whole = |from: &FieldReader<'_>, unit: usize| from.0.len().is_multiple_of(unit);
    Some(match kind {
        1 => {
            let frame =
                RemoteFrame::Open { start: from.u64()?, peer: from.u64()?, oldest: from.u64()? };
            from.0.is_empty().then_some(frame)?
        }
        2 => {
            let start = from.u64()?;
            let writer = from.u64()?;
            let applied = from.u64()?;
            from.0.is_empty().then_some(RemoteFrame::Opened { start, writer, applied })?
        }
        3 => whole(&from, LIFE_BYTES).then_some(RemoteFrame::Lives(from.0))?,
        4 | 5 => access(kind == 5, from)?,
        6 => {
            let upto = from.u64()?;
            whole(&from, OUTCOME_BYTES).then_some(RemoteFrame::Outcomes { upto, fates: from.0 })?
        }
        7 => {
            let number = from.u64()?;
            let more = from.u8()?;
            let is_right = more <= 1 && whole(&from, LINE_BYTES);
            is_right.then_some(RemoteFrame::Words { number, more: more == 1, lines: from.0 })?
        }
        8 => health(from)?,
        _ => return None,
    })
}

fn access(is_read: bool, mut from: FieldReader<'_>) -> Option<RemoteFrame<'_>> {
    let (flags, region) = (from.u8()?, RegionId(from.u16()?));
    let (writer, pid) = (Pid(from.u32()?), Pid(from.u32()?));
    let (at, count) = (from.u32()?, from.u32()?);
    let (number, incarnation) = (from.u64()?, from.u64()?);
    let expected = if is_read { 0 } else { count as usize * LINE_BYTES };
    if flags > (WANTS | BELL) || from.0.len() != expected {
        return None;
    }
    let to = RemoteTarget { pid, incarnation, region, at };
    let (wants, bell) = (flags & WANTS > 0, flags & BELL > 0);
    let head = AccessHead { is_read, wants, bell, from: writer, to };
    Some(RemoteFrame::Access { access: RemoteAccess { head, count }, number, lines: from.0 })
}

fn health(mut from: FieldReader<'_>) -> Option<RemoteFrame<'static>> {
    let (fit, request) = (from.u8()?, from.u64()?);
    let grantee = from.u32()?;
    let start = from.u64()?;
    let granted = from.u64()?;
    let open = from.u64()?;
    let gaps = from.u64()?;
    let lagging = from.u64()?;
    let is_right = fit <= 1 && (granted > 0 || (grantee, start) == (0, 0)) && from.0.is_empty();
    let grant = RestartGrant { node: grantee as usize, start, request: granted };
    let grant = (granted > 0).then_some(grant);
    let health = NodeHealth { is_fit: fit == 1, request, grant, open, gaps, lagging };
    is_right.then_some(RemoteFrame::Health(health))
}

/// The entries of `lives`.
pub(super) fn lives(bytes: &[u8]) -> impl Iterator<Item = (Pid, u64)> {
    bytes.chunks_exact(LIFE_BYTES).filter_map(|entry| {
        let mut entry = FieldReader(entry);
        Some((Pid(entry.u32()?), entry.u64()?))
    })
}

/// The entries of `outcomes`: the number of the access, and its fate.
pub(super) fn outcomes(bytes: &[u8]) -> impl Iterator<Item = (u64, u8)> {
    bytes.chunks_exact(OUTCOME_BYTES).filter_map(|entry| {
        let mut entry = FieldReader(entry);
        Some((entry.u64()?, entry.u8()?))
    })
}

/// The lines of a write or of words.
pub(super) fn lines(bytes: &[u8]) -> impl Iterator<Item = [u64; LINE_WORDS + 1]> {
    bytes.chunks_exact(LINE_BYTES).map(|line| {
        core::array::from_fn(|i| {
            let word = line[i * 8..].first_chunk().expect("a line has eight words");
            u64::from_le_bytes(*word)
        })
    })
}

pub(super) fn encode_open([start, peer, oldest]: [u64; 3], to: &mut Vec<u8>) {
    to.push(1);
    [start, peer, oldest].iter().for_each(|word| to.extend_from_slice(&word.to_le_bytes()));
}

pub(super) fn encode_opened([start, writer, applied]: [u64; 3], to: &mut Vec<u8>) {
    to.push(2);
    [start, writer, applied].iter().for_each(|word| to.extend_from_slice(&word.to_le_bytes()));
}

pub(super) fn encode_lives(all: impl Iterator<Item = (Pid, u64)>, to: &mut Vec<u8>) {
    to.push(3);
    for (pid, incarnation) in all {
        to.extend_from_slice(&pid.0.to_le_bytes());
        to.extend_from_slice(&incarnation.to_le_bytes());
    }
}

pub(super) fn encode_outcomes(upto: u64, fates: &[(u64, u8)], to: &mut Vec<u8>) {
    to.push(6);
    to.extend_from_slice(&upto.to_le_bytes());
    for (number, fate) in fates {
        to.extend_from_slice(&number.to_le_bytes());
        to.push(*fate);
    }
}

pub(super) fn encode_words(number: u64, more: bool, to: &mut Vec<u8>) {
    to.push(7);
    to.extend_from_slice(&number.to_le_bytes());
    to.push(u8::from(more));
}

pub(super) fn encode_health(health: &NodeHealth, to: &mut Vec<u8>) {
    let none = RestartGrant { node: 0, start: 0, request: 0 };
    let grant = health.grant.unwrap_or(none);
    to.extend_from_slice(&[8, u8::from(health.is_fit)]);
    to.extend_from_slice(&health.request.to_le_bytes());
    to.extend_from_slice(&(grant.node as u32).to_le_bytes());
    for word in [grant.start, grant.request, health.open, health.gaps, health.lagging] {
        to.extend_from_slice(&word.to_le_bytes());
    }
}

/// For fuzzing: reads a frame from anywhere, and says whether it is one. It is written again and must be
/// the same bytes.
///
/// # Panics
/// When it is not.
pub fn judge_frame(bytes: &[u8]) -> bool {
    let Some(frame) = decode(bytes) else { return false };
    let mut again = Vec::new();
    match frame {
        RemoteFrame::Open { start, peer, oldest } => encode_open([start, peer, oldest], &mut again),
        RemoteFrame::Opened { start, writer, applied } => {
            encode_opened([start, writer, applied], &mut again);
        }
        RemoteFrame::Lives(all) => encode_lives(lives(all), &mut again),
        RemoteFrame::Access { access, number, lines: data } => {
            access.encode(number, &mut again);
            for line in lines(data) {
                line.iter().for_each(|word| again.extend_from_slice(&word.to_le_bytes()));
            }
        }
        RemoteFrame::Outcomes { upto, fates } => {
            let fates: Vec<_> = outcomes(fates).collect();
            encode_outcomes(upto, &fates, &mut again);
        }
        RemoteFrame::Health(health) => encode_health(&health, &mut again),
        RemoteFrame::Words { number, more, lines: data } => {
            encode_words(number, more, &mut again);
            for line in lines(data) {
                line.iter().for_each(|word| again.extend_from_slice(&word.to_le_bytes()));
            }
        }
    }
    assert_eq!(again, bytes, "a frame is read as something else than it says");
    true
}

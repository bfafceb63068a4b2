//! Digests that the replicas of a shard compare, to detect that the state of one of them differs
//! from the others'.
//!
//! A *digest point* is a command of one shard ([`point`]): at its place in the order every replica computes a
//! [`Digest`] there, and has it ordered behind it as a [`DigestReport`]. A digest has two parts:
//!
//! - of the *slice*: a part of the shard's data of about [`SLICE_BYTES`], from a cursor on that the
//!   point names. The sender of the next point continues where this slice ended, so all data are
//!   covered in turn, and a point takes about as long for much data as for little;
//! - of the *outcomes*: the answers of all commands since the last point that may change something.
//!   A command that had another outcome at one replica, or ran at one of them only, is found at the
//!   next point.
//!
//! Both are SipHash-1-3 with a public key: they find the effects of bugs and of failing memory or disks, and do not
//! protect against somebody who can write into a state and forges one. That two different states of a slice have one
//! digest happens once in 2^64 times.

use crate::envelope::{Envelope, Stamp};
use amcast_core::{MsgId, Outcome};
use siphasher::sip::SipHasher13;
use std::hash::Hasher;

/// Bytes of a slice, about: it takes well below a few milliseconds.
pub const SLICE_BYTES: usize = 1 << 20;

/// The cost of each item that a slice covers, beside its bytes: finding it takes time, too.
const ITEM_BYTES: usize = 64;

/// The session of digest points: gateways use no such one for commands.
pub const SESSION: u64 = u64::MAX;

/// The version of the computation: a point of another version takes its place in the order and does
/// nothing.
const VERSION: u8 = 2;

/// Distinguishes programs whose answers to a command may differ in their words, while nodes are upgraded one by one.
pub const PROGRAM: u32 = {
    let bytes = env!("CARGO_PKG_VERSION").as_bytes();
    let mut hash = 0x811c_9dc5_u32;
    let mut i = 0;
    while i < bytes.len() {
        hash = (hash ^ bytes[i] as u32).wrapping_mul(0x0100_0193);
        i += 1;
    }
    hash
};

/// The command that makes the replicas of its one destination compute a digest of the slice from `cursor` on. To
/// versions of before it is a read that makes no sense, and that nobody asked.
pub fn point(cursor: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let (session, stamp) = (SESSION, Stamp::default());
    Envelope { session, request: 0, open_from: 0, stamp, read_only: true }.encode(&mut out);
    out.push(VERSION);
    out.extend_from_slice(cursor);
    out
}

/// Whether a command is a digest point. A command with a number of any client's session is none:
/// requests are numbered from 1.
pub const fn is_point(envelope: &Envelope) -> bool {
    let Envelope { session, request, read_only, .. } = *envelope;
    session == SESSION && request == 0 && read_only
}

/// The beginning of a digest point's slice, from the bytes behind its envelope; none if it is of
/// another version.
pub fn cursor(body: &[u8]) -> Option<&[u8]> {
    body.strip_prefix(&[VERSION])
}

/// A part of a shard's data that is digested. The data written into it must be the same at all
/// replicas that have run the same commands, at each [`now_ms`](Self::now_ms) of ordered time:
/// expired items do not count, since some replicas may have dropped them already.
pub struct Slice<'a> {
    from: &'a [u8],
    now: Stamp,
    sum: SipHasher13,
    left: usize,
    next: Vec<u8>,
}

impl<'a> Slice<'a> {
    /// A slice of `most` bytes, about, from the cursor `from` on, at this ordered time.
    pub fn new(from: &'a [u8], now: Stamp, most: usize) -> Self {
        Self { from, now, sum: hasher(), left: most, next: Vec::new() }
    }

    /// Where it begins: the bytes that an earlier one gave to [`end_at`](Self::end_at). Empty at the beginning, and
    /// any bytes if its sender is faulty.
    pub const fn from(&self) -> &'a [u8] {
        self.from
    }

    /// Ordered time, milliseconds since 1970.
    pub const fn now_ms(&self) -> u64 {
        self.now.wall_ms
    }

    /// Whether no further item should follow. A slice that ends in front of its first item never comes further.
    pub const fn is_full(&self) -> bool {
        self.left == 0
    }

    /// Counts an item, or a look at something that is none.
    pub const fn item(&mut self) {
        self.left = self.left.saturating_sub(ITEM_BYTES);
    }

    /// Covers a number.
    pub fn word(&mut self, word: u64) {
        self.raw(&word.to_le_bytes());
    }

    /// Covers bytes and their number.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.word(bytes.len() as u64);
        self.raw(bytes);
    }

    /// Covers as much of `bytes` as there is room for, and at least one, so that the next slice begins behind this one;
    /// how much that was.
    pub fn some(&mut self, bytes: &[u8]) -> usize {
        let n = bytes.len().min(self.left.max(1));
        self.bytes(&bytes[..n]);
        n
    }

    fn raw(&mut self, bytes: &[u8]) {
        self.left = self.left.saturating_sub(bytes.len());
        self.sum.write(bytes);
    }

    /// There is more behind the slice: the next one begins at this cursor, of at most some hundred bytes.
    pub fn end_at(&mut self, cursor: Vec<u8>) {
        self.next = cursor;
    }

    /// The digest, and the cursor of the next slice; that is empty if nothing is behind this one.
    pub fn end(mut self) -> (u64, Vec<u8>) {
        let Self { ref next, now, .. } = self;
        for word in [now.wall_ms, now.host_ms, next.len() as u64] {
            self.sum.write(&word.to_le_bytes());
        }
        self.sum.write(&self.next);
        (self.sum.finish(), self.next)
    }

    /// A slice within this one, with its own cursor.
    pub fn within(&mut self, from: &'a [u8], digest: impl FnOnce(&mut Self)) -> Vec<u8> {
        let before = std::mem::replace(&mut self.from, from);
        digest(self);
        self.from = before;
        std::mem::take(&mut self.next)
    }
}

/// The digest of some bytes alone, to be added up where their order says nothing.
pub fn of_words(words: &[u64], bytes: &[u8]) -> u64 {
    let mut sum = hasher();
    words.iter().for_each(|word| sum.write(&word.to_le_bytes()));
    sum.write(bytes);
    sum.finish()
}

fn hasher() -> SipHasher13 {
    SipHasher13::new_with_keys(0x616d_6361_7374, 0x6469_6765_7374)
}

/// A digest of the answers of one shard's commands since its last digest point. Commands that do
/// not conflict may run in any order, so their digests are added up.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Outcomes {
    /// The position of that point; none if this state began behind it.
    since: Option<u64>,
    sum: u64,
}

impl Outcomes {
    /// Adds the outcome of the command at `position`, in message `id`, and its answer.
    pub fn add(&mut self, (position, id): (u64, MsgId), outcome: Outcome, answer: &[u8]) {
        // Before the first point nobody could compare it.
        if self.since.is_some() {
            let words = [position, u64::from(id.sender.0), id.seq, u64::from(outcome.code())];
            self.sum = self.sum.wrapping_add(of_words(&words, answer));
        }
    }

    /// Ends at the point at `position`, from which on they count anew.
    pub const fn end(&mut self, position: u64) -> Self {
        let before = *self;
        *self = Self { since: Some(position), sum: 0 };
        before
    }
}

/// A replica's digest at a digest point.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Digest {
    /// Of the slice.
    slice: u64,
    /// Of the outcomes, with the point since which they count; none if it does not know them all.
    outcomes: Option<(u64, u64)>,
    /// Which program computed it.
    program: u32,
}

/// The difference of two digests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Difference {
    /// The contents of the shard differ.
    Slice,
    /// Only answers of commands differ.
    Outcomes,
}

impl Digest {
    /// The digests of a slice, and of the outcomes of commands.
    pub fn new(slice: u64, outcomes: Outcomes) -> Self {
        let outcomes = outcomes.since.map(|since| (since, outcomes.sum));
        Self { slice, outcomes, program: PROGRAM }
    }

    /// The difference of the two states, if they differ. Outcomes say something only where both replicas know
    /// all of them, and run one program: another one may have other words for an error.
    pub fn difference(&self, other: &Self) -> Option<Difference> {
        if self.slice != other.slice {
            return Some(Difference::Slice);
        }
        let ((since, sum), (other_since, other_sum)) = (self.outcomes?, other.outcomes?);
        let comparable = since == other_since && self.program == other.program;
        (comparable && sum != other_sum).then_some(Difference::Outcomes)
    }

    /// For people, with the part that differs from another one by this difference.
    pub fn describe(&self, difference: Difference) -> String {
        match (difference, self.outcomes) {
            (Difference::Outcomes, Some((_, sum))) => format!("{sum:016x}"),
            _ => format!("{:016x}", self.slice),
        }
    }

    /// The point since which its outcomes count.
    pub fn since(&self) -> Option<u64> {
        self.outcomes.map(|(since, _)| since)
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let (since, sum) = self.outcomes.unwrap_or_default();
        out.extend_from_slice(&self.program.to_le_bytes());
        for word in [self.slice, since, sum] {
            out.extend_from_slice(&word.to_le_bytes());
        }
    }

    const BYTES: usize = 28;

    fn decode(bytes: &[u8; Self::BYTES]) -> Self {
        let (program, words) = bytes.split_at(4);
        let word = |i: usize| u64::from_le_bytes(words[8 * i..8 * i + 8].try_into().expect("8"));
        let program = u32::from_le_bytes(program.try_into().expect("4"));
        // No command is at position 0, so no point is.
        let outcomes = Some((word(1), word(2))).filter(|(since, _)| *since > 0);
        Self { slice: word(0), outcomes, program }
    }
}

/// A digest on its way from where it was computed, with the cursor of the next slice.
pub fn encode_result(digest: &Digest, next: &[u8], out: &mut Vec<u8>) {
    digest.encode(out);
    out.extend_from_slice(next);
}

/// Reads the bytes of [`encode_result`]; none for a point of another version.
pub fn decode_result(bytes: &[u8]) -> Option<(Digest, &[u8])> {
    let (digest, next) = bytes.split_first_chunk()?;
    Some((Digest::decode(digest), next))
}

/// A replica's report of its digest at a digest point: it is ordered behind that point, and has no
/// answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DigestReport {
    /// The point's position in the shard's order.
    pub position: u64,
    /// The digest computed there.
    pub digest: Digest,
    /// Which messages the sender skips, as [`skips_mark`] has it: only what replicas with the same decisions computed can
    /// be compared.
    pub skips: u64,
}

impl DigestReport {
    /// Bytes of an encoded report of a replica that skips nothing.
    pub const BYTES: usize = 9 + Digest::BYTES;
    const VERSION: u8 = 4;
    /// The version of a report that ends with the mark of skipped messages.
    const VERSION_SKIPS: u8 = 7;

    /// The bytes of the report.
    pub fn encode(&self) -> Vec<u8> {
        let skips = (self.skips != 0).then_some(self.skips);
        let mut out = vec![if skips.is_some() { Self::VERSION_SKIPS } else { Self::VERSION }];
        out.extend_from_slice(&self.position.to_le_bytes());
        self.digest.encode(&mut out);
        out.extend(skips.into_iter().flat_map(u64::to_le_bytes));
        out
    }

    /// The report in these bytes; none if they are something else.
    pub fn decode(payload: &[u8]) -> Option<Self> {
        let (version, rest) = payload.split_first()?;
        let (position, rest) = rest.split_first_chunk()?;
        let (digest, skips) = match *version {
            Self::VERSION => (rest, 0),
            Self::VERSION_SKIPS => {
                let (digest, skips) = rest.split_last_chunk()?;
                (digest, u64::from_le_bytes(*skips))
            }
            _ => return None,
        };
        let digest = Digest::decode(digest.try_into().ok()?);
        Some(Self { position: u64::from_le_bytes(*position), digest, skips })
    }
}

/// One number for the messages that a replica skips, in ascending order: 0 for none, and not for any others.
pub fn skips_mark(messages: impl Iterator<Item = MsgId>) -> u64 {
    let (mut hasher, mut any) = (hasher(), false);
    for MsgId { sender, seq } in messages {
        hasher.write(&sender.0.to_le_bytes());
        hasher.write(&seq.to_le_bytes());
        any = true;
    }
    if any { hasher.finish().max(1) } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envelope::ClockReport;
    use amcast_core::Pid;

    fn digest(slice: u64, outcomes: Option<(u64, u64)>, program: u32) -> Digest {
        Digest { slice, outcomes, program }
    }

    #[test]
    fn other_skipped_messages_have_another_mark_and_none_has_none() {
        let mark =
            |seqs: &[u64]| skips_mark(seqs.iter().map(|seq| MsgId { sender: Pid(1), seq: *seq }));
        assert_eq!(mark(&[]), 0);
        assert_eq!(mark(&[7, 9]), mark(&[7, 9]));
        let marks = [mark(&[]), mark(&[7]), mark(&[9]), mark(&[7, 9])];
        assert!((1..4).all(|i| !marks[..i].contains(&marks[i])), "{marks:?}");
    }

    #[test]
    fn reports_and_points_are_golden_and_nothing_else() {
        let report = DigestReport { position: 258, digest: digest(7, Some((3, 9)), 5), skips: 0 };
        let bytes = report.encode();
        let golden = b"\x04\x02\x01\0\0\0\0\0\0\x05\0\0\0\x07\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\x09\0\0\0\0\0\0\0";
        assert_eq!((&bytes[..], bytes.len()), (&golden[..], DigestReport::BYTES));
        assert_eq!(DigestReport::decode(&bytes), Some(report));
        let unknown = DigestReport { digest: digest(7, None, 5), ..report };
        assert_eq!(DigestReport::decode(&unknown.encode()), Some(unknown));
        // Of a replica that skips something, with the mark of that behind it.
        let skips = DigestReport { skips: 258, ..report };
        let with_mark = [b"\x07", &golden[1..], b"\x02\x01\0\0\0\0\0\0"].concat();
        assert_eq!(
            (skips.encode(), DigestReport::decode(&with_mark)),
            (with_mark.clone(), Some(skips))
        );
        assert_eq!(DigestReport::decode(&with_mark[..with_mark.len() - 1]), None);
        assert_eq!((Envelope::decode(&bytes), ClockReport::decode(&bytes)), (None, None));
        for wrong in [&bytes[..bytes.len() - 1], &[&bytes[..], b"x"].concat(), b"", b"\x04"] {
            assert_eq!(DigestReport::decode(wrong), None);
        }
        let at = point(b"cursor");
        let (envelope, body) = Envelope::decode(&at).unwrap();
        assert!(is_point(&envelope) && DigestReport::decode(&at).is_none());
        assert_eq!((cursor(body), cursor(b"\x01cursor")), (Some(&b"cursor"[..]), None));
        assert!(!is_point(&Envelope { session: 1, ..envelope }));
        assert!(!is_point(&Envelope { request: 1, ..envelope }));
        assert!(!is_point(&Envelope { read_only: false, ..envelope }));
    }

    #[test]
    fn digests_are_the_same_on_every_machine_and_version() {
        let mut slice = Slice::new(b"", Stamp { wall_ms: 1, host_ms: 2 }, 100);
        slice.word(3);
        slice.bytes(b"four");
        slice.end_at(b"five".to_vec());
        assert_eq!(slice.end(), (GOLDEN, b"five".to_vec()));
    }

    const GOLDEN: u64 = 1_244_371_212_090_999_563;

    #[test]
    fn a_slice_ends_when_it_is_full_and_not_before() {
        let mut slice = Slice::new(b"", Stamp::default(), SLICE_BYTES);
        assert!(!slice.is_full());
        assert_eq!(slice.some(&vec![1; SLICE_BYTES - 100]), SLICE_BYTES - 100);
        assert_eq!(slice.some(&[2; 500]), 92, "the numbers in front count, too");
        assert!(slice.is_full());
        let mut slice = Slice::new(b"", Stamp::default(), SLICE_BYTES);
        (0..SLICE_BYTES / ITEM_BYTES).for_each(|_| slice.item());
        assert!(slice.is_full());
    }

    #[test]
    fn outcomes_count_whatever_the_order_and_only_where_both_know_all_of_them() {
        let id = |seq| MsgId { sender: Pid(1), seq };
        let of = |ran: &[(u64, &[u8])], outcome| {
            let mut outcomes = Outcomes::default();
            outcomes.end(5);
            ran.iter().for_each(|(at, answer)| outcomes.add((*at, id(*at)), outcome, answer));
            Digest::new(0, outcomes.end(9))
        };
        let sum = |ran: &[(u64, &[u8])]| of(ran, Outcome::Executed);
        let one = sum(&[(6, b"a"), (7, b"b")]);
        assert_eq!(one, sum(&[(7, b"b"), (6, b"a")]));
        for other in [&[(6, &b"a"[..])][..], &[(6, b"b"), (7, b"a")], &[(6, b"a"), (8, b"b")]] {
            assert_eq!(one.difference(&sum(other)), Some(Difference::Outcomes));
        }
        let refused = of(&[(6, b"a"), (7, b"b")], Outcome::NotExecuted);
        assert_eq!(one.difference(&refused), Some(Difference::Outcomes), "in the same words");
        let mut fresh = Outcomes::default();
        fresh.add((6, id(6)), Outcome::Executed, b"x");
        assert_eq!(Digest::new(0, fresh.end(9)).outcomes, None, "it may not know all");
        let base = digest(1, Some((5, 7)), 3);
        assert_eq!(base.difference(&digest(2, None, 4)), Some(Difference::Slice));
        for same in [digest(1, None, 3), digest(1, Some((4, 8)), 3), digest(1, Some((5, 8)), 4)] {
            assert_eq!((base.difference(&same), same.difference(&base)), (None, None));
        }
    }
}

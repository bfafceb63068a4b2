//! The tree changes while messages flow: what [TRAM 10] leaves to future work.
//!
//! # The change is a message
//! A client asks for another tree with [`Input::Overlay`](amcast_core::Input::Overlay). Its request `C` is multicast
//! to all groups, as any message is: at the root, and down the present tree. `C_k` is the k-th of them; the tree that
//! it brings has the number `k`, the configuration's has 0. A group is *in tree k* between `C_k` and `C_k+1` in
//! its log. A change that is asked for in tree `k` is `C_k+1`, or is given up once its client learns of another `C_k+1`: of two
//! changes that are asked for at one time, one is made. Three rules:
//!
//! 1. **A parent passes on by its log.** The messages in a group's log while it is in tree `k` go to its children in
//!    tree `k`, `C_k+1` included, and to nobody else ([`OverlayChanges::reach_at`]).
//! 2. **A child reads its present parent.** A leader takes messages only from the buffer of its parent in the tree
//!    of its log's end. Those of the next parent wait in theirs; each pair of groups has buffers of its own.
//! 3. **A client joins each tree anew.** With `C_k` a group's leader stops taking up from all clients' buffers, at a
//!    place that follows from the log: the *cut*. It takes up again what a client writes behind a *fence*: a
//!    line that says `k`, and the position from which its requests are made for tree `k`. The leader appends it to the log
//!    ([`RingRecordKind::Rejoin`](super::ring::RingRecordKind)), so that it is decided like all else, and cursors follow
//!    from the log as before. A client writes its fence for `k` at a group once that group has told `k` and the cut.
//!
//! # Why the order stays acyclic
//! Every group orders all `C_k`, in the order of their numbers: `C_1` goes down the first tree to all; and if all
//! have `C_k`, `C_k+1` is ordered by the root of tree `k`, in tree `k`, and goes down that tree (Lemma 3).
//! A message `m` that `lca(m)` orders in tree `k` is ordered in tree `k` by every group on its way: rule 1 puts `m` into the
//! child's buffer behind all that came there before `C_k` (for whom the pair was an edge earlier) and, the pair being an
//! edge of tree `k`, in front of `C_k+1`; rule 2 makes the child read there in tree `k` only, and the buffer is FIFO.
//! So `m < m'` implies that the tree of `m` is not later than that of `m'`. A cycle would lie within one tree, where
//! Lemmas 6 and 7 exclude it; by the same argument uniform prefix order holds.
//!
//! # Why each request is ordered once
//! A request is made for tree `k` and written at `lca(m)` in tree `k`. Either that group takes it up in tree `k`, or it lies
//! at or behind the cut of `C_k+1`, and no leader ever takes it up: the cut is decided, and a later fence lies behind the
//! request. The client learns the cut, which is the same from every replica that has consumed `C_k+1`, and requests
//! everything behind it anew, by the present tree (`super::client`). A group that a client writes to in tree `k` has told
//! that it is there; one that orders in tree `k` what was written for `k` cannot be in an earlier tree, nor take it up in a later one. A
//! new leader finds cut, fences and trees in the adopted log, a replica that comes back in the state it is given
//! ([`OverlayChanges::snapshot`]).
//!
//! # Progress
//! A group that waits for `C_k` gets it from its parent in tree `k-1`, whose log holds only messages for children of the
//! trees before: by induction from the leaves these have room for them. No group waits for one that is behind it to do more than that.
//! A client's message waits, at worst, until the group that is to order it has told its tree: a way down the old tree,
//! and a write back.
//!
//! # Memory and cost
//! Only with the parameter `dynamic_overlay`: each replica then has a buffer for every other group's leaders, as in
//! RamCast, since every group may become its parent; pages that are never written are never there. The path of a message has no
//! more to do than to look whether its source is the present parent, or a client that has joined.

mod client;
mod replica;
#[cfg(test)]
mod tests;

pub(crate) use client::{ClientOverlay, StaleMessage};

use super::layout::Layout;
use super::replica::BufferCursor;
use super::ring::{RecordRing, RingRecord, RingRecordKind};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use amcast_core::codec::{ByteReader, Codec};
use amcast_core::memory::{CacheLine, LINE_WORDS, RegionWindow};
use amcast_core::{Config, Gid, GroupSet, Overlay, messages};

/// Bytes of the encoded state at most: far more than a log of any usual size has room for changes.
pub(crate) const OVERLAY_STATE_MAX: usize = 1 << 24;

/// The word of a sealed line that vouches for the others.
const SEAL: usize = LINE_WORDS - 1;

/// Where a group's log enters a tree.
#[derive(Clone, Debug)]
struct NumberedOverlay {
    number: u32,
    /// The end of the change's record.
    from: u64,
    overlay: Overlay,
}

/// A client's part in the trees, as of a group's consumed log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct ClientCut {
    /// The tree that it has joined here.
    joined: u32,
    /// Its cursor at the last change: lease and position.
    cut: (u32, u64),
}

/// The changes of the tree, as a replica has consumed them.
#[derive(Debug)]
pub(crate) struct OverlayChanges {
    /// Those that may still be needed to pass on by, the oldest first, the present one last.
    trees: VecDeque<NumberedOverlay>,
    clients: Vec<ClientCut>,
    /// By client: the latest tree that this replica announced to it.
    told: Vec<u32>,
    /// The tree along which this incarnation took part last, where that is traced.
    reported: Option<Overlay>,
}

/// The tree at the end of a leader's log, decided or not.
#[derive(Clone, Debug)]
pub(crate) struct OverlayAtEnd {
    pub(crate) number: u32,
    pub(crate) overlay: Overlay,
    /// By client: the tree that it has joined.
    joined: Vec<u32>,
}

impl OverlayChanges {
    pub(crate) fn new(config: &Config) -> Self {
        let first = NumberedOverlay { number: 0, from: 0, overlay: config.overlay().clone() };
        let clients = config.cluster().clients();
        Self {
            trees: [first].into(),
            clients: alloc::vec![ClientCut::default(); clients],
            told: alloc::vec![0; clients],
            reported: None,
        }
    }

    fn last(&self) -> &NumberedOverlay {
        self.trees.back().expect("there is always a tree")
    }

    /// The present tree.
    pub(crate) fn overlay(&self) -> &Overlay {
        &self.last().overlay
    }

    /// The number of the present tree.
    pub(crate) fn number(&self) -> u32 {
        self.last().number
    }

    /// For a leader's log that ends where this replica has consumed it.
    pub(crate) fn at_end(&self) -> OverlayAtEnd {
        let joined = self.clients.iter().map(|client| client.joined).collect();
        OverlayAtEnd { number: self.number(), overlay: self.overlay().clone(), joined }
    }

    /// The part of the tree below `child` to which `group` passes the record at `pos`, and until where in the log that
    /// holds; nothing where it is no child.
    pub(crate) fn reach_at(&self, pos: u64, group: Gid, child: Gid) -> (GroupSet, u64) {
        let at = self.index_at(pos);
        let until = self.trees.get(at + 1).map_or(u64::MAX, |next| next.from);
        let overlay = &self.trees[at].overlay;
        let is_child = overlay.parent(child) == Some(group);
        (if is_child { overlay.reach(child) } else { GroupSet::EMPTY }, until)
    }

    /// Which of the trees the log is in at `pos`.
    fn index_at(&self, pos: u64) -> usize {
        self.trees.iter().rposition(|tree| tree.from <= pos).unwrap_or(0)
    }

    /// Nothing before `pos` is passed on any more.
    fn forget_before(&mut self, pos: u64) {
        while self.trees.get(1).is_some_and(|next| next.from <= pos) {
            self.trees.pop_front();
        }
    }

    /// The log enters `overlay` behind `end`. False if that is known from a state transfer.
    fn enter(&mut self, end: u64, overlay: Overlay) -> bool {
        let last = self.last();
        if end <= last.from {
            return false;
        }
        let number = last.number + 1;
        self.trees.push_back(NumberedOverlay { number, from: end, overlay });
        true
    }

    /// Where the buffers of clients are cut, now that the record of the change is taken up.
    fn cut(&mut self, cursors: &[BufferCursor]) {
        for (client, cursor) in self.clients.iter_mut().zip(cursors) {
            client.cut = (cursor.lease, cursor.next);
        }
    }

    /// The encoded state, for a replica that comes back.
    pub(crate) fn snapshot(&self) -> Vec<u8> {
        let tree = |tree: &NumberedOverlay| TreeSnapshot {
            number: tree.number,
            from: tree.from,
            parents: parents_of(&tree.overlay),
        };
        let snapshot = OverlaySnapshot {
            trees: self.trees.iter().map(tree).collect(),
            joined: self.clients.iter().map(|client| client.joined).collect(),
            cuts: self.clients.iter().map(|client| client.cut).collect(),
        };
        let mut encoded = Vec::new();
        snapshot.encode(&mut encoded);
        encoded
    }

    /// Continues from an encoded state. False if no replica has such a one.
    pub(crate) fn resume(&mut self, encoded: &[u8]) -> bool {
        let mut reader = ByteReader::new(encoded);
        let Ok(snapshot) = OverlaySnapshot::decode(&mut reader) else { return false };
        let groups = self.overlay().groups();
        let tree = |tree: &TreeSnapshot| {
            let overlay = overlay_of(&tree.parents, groups)?;
            Some(NumberedOverlay { number: tree.number, from: tree.from, overlay })
        };
        let Some(trees) = snapshot.trees.iter().map(tree).collect::<Option<VecDeque<_>>>() else {
            return false;
        };
        let count = self.clients.len();
        if trees.is_empty() || (snapshot.joined.len(), snapshot.cuts.len()) != (count, count) {
            return false;
        }
        self.trees = trees;
        let both = snapshot.joined.into_iter().zip(snapshot.cuts);
        self.clients = both.map(|(joined, cut)| ClientCut { joined, cut }).collect();
        self.told = alloc::vec![0; count];
        true
    }
}

impl OverlayAtEnd {
    /// The number of the parent's buffer among the sources of `group`, behind those of so many clients: of no source at the root.
    pub(crate) fn parent_source(&self, group: Gid, clients: usize) -> usize {
        source_of_parent(&self.overlay, group, clients)
    }

    /// Whether a client's requests are made for this tree.
    pub(crate) fn has_joined(&self, client: usize) -> bool {
        self.joined[client] == self.number
    }

    /// The log ends behind this record.
    pub(crate) fn pass(
        &mut self,
        (ring, view): (&RecordRing, RegionWindow<'_>),
        at: (u64, u32),
        record: &RingRecord,
    ) {
        match record.kind {
            RingRecordKind::Overlay => {
                let (region, groups) = (view.region(ring.region), self.overlay.groups());
                if let Some(overlay) = overlay_at(ring, region, at, record, groups) {
                    (self.number, self.overlay) = (self.number + 1, overlay);
                }
            }
            RingRecordKind::Rejoin => {
                let number = self.number;
                if let Some(joined) = self.joined.get_mut(usize::from(record.source)) {
                    *joined = number;
                }
            }
            _ => {}
        }
    }
}

/// The number of the parent's buffer among the sources of a group, behind those of so many clients.
fn source_of_parent(overlay: &Overlay, group: Gid, clients: usize) -> usize {
    overlay.parent(group).map_or(usize::MAX, |parent| clients + parent.index())
}

/// The tree that a record in a ring brings, if it brings one.
fn overlay_at(
    ring: &RecordRing,
    region: &[CacheLine],
    (pos, epoch): (u64, u32),
    record: &RingRecord,
    groups: usize,
) -> Option<Overlay> {
    if record.bytes as usize != groups {
        return None;
    }
    let mut parents = Vec::new(); // A change is not the hot path.
    let whole = ring.payload(region, pos, epoch, record, &mut parents);
    whole.then(|| overlay_of(&parents, groups)).flatten()
}

/// A tree as a payload: each group's parent, and 255 for the root's.
fn parents_of(overlay: &Overlay) -> Vec<u8> {
    overlay.bytes().collect()
}

/// The tree of a payload, if it is one.
fn overlay_of(parents: &[u8], groups: usize) -> Option<Overlay> {
    Overlay::of_bytes(parents, groups).ok()
}

/// Words for a line that is written over now and then: the last of them vouches for the others, so that words of
/// different ages are never taken for one line.
const fn seal(words: [u64; SEAL]) -> [u64; LINE_WORDS] {
    let [a, b, c, d, e, f] = words;
    [a, b, c, d, e, f, digest(words)]
}

/// The words of a sealed line, if all of them were written together.
fn unseal(line: &CacheLine) -> Option<[u64; SEAL]> {
    let all = line.words();
    let words: [u64; SEAL] = all[..SEAL].try_into().expect("six of seven");
    (all[SEAL] == digest(words)).then_some(words)
}

const fn digest(words: [u64; SEAL]) -> u64 {
    let mut hash = 0x9e37_79b9_7f4a_7c15_u64;
    let mut i = 0;
    while i < SEAL {
        hash = (hash ^ words[i]).wrapping_mul(0xff51_afd7_ed55_8ccd).rotate_left(29);
        i += 1;
    }
    hash
}

/// A client's fence, in the holder line of its buffer: from which position on its requests are made for a tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ClientFence {
    /// The epoch of its stamps.
    pub(crate) lease: u32,
    pub(crate) number: u32,
    pub(crate) from: u64,
}

impl ClientFence {
    /// As the words of a holder line.
    pub(crate) const fn words(self) -> [u64; LINE_WORDS] {
        seal([self.lease as u64, self.number as u64, self.from, 0, 0, 0])
    }

    /// Of a client's buffer.
    fn read(region: &[CacheLine]) -> Option<Self> {
        let [lease, number, from, ..] = unseal(&region[super::buffer::HOLDER as usize])?;
        Some(Self { lease: lease as u32, number: number as u32, from })
    }
}

/// How many groups' parents lie in the first line of a told tree.
const FIRST_PARENTS: usize = 32;

/// A group's announcement to a client: the tree that it is in, and where the client's buffer was cut before. For one
/// number it is the same from every replica.
#[derive(Clone, PartialEq, Eq, Debug)]
struct ToldOverlay {
    number: u32,
    cut: (u32, u64),
    parents: Vec<u8>,
}

impl ToldOverlay {
    /// As lines behind the credit line.
    fn lines(&self) -> [[u64; LINE_WORDS]; 2] {
        let word = |i: usize| {
            let byte = |k| u64::from(self.parents.get(i * 8 + k).copied().unwrap_or(0));
            (0..8).fold(0, |word, k| word | byte(k) << (8 * k))
        };
        let number = u64::from(self.number);
        let head = number | u64::from(self.cut.0) << 32;
        [
            seal([head, self.cut.1, word(0), word(1), word(2), word(3)]),
            seal([number, word(4), word(5), word(6), word(7), 0]),
        ]
    }

    /// The number in the first line, as it is now.
    fn number_in(region: &[CacheLine]) -> u32 {
        region[1].word(0) as u32
    }

    /// Of the lines behind a credit line; none if they are being written.
    fn read(region: &[CacheLine], groups: usize) -> Option<Self> {
        let [head, cut, p0, p1, p2, p3] = unseal(&region[1])?;
        let number = head as u32;
        let mut words = [p0, p1, p2, p3, 0, 0, 0, 0];
        if groups > FIRST_PARENTS {
            let [again, rest @ .., _] = unseal(&region[2])?;
            if again != u64::from(number) {
                return None;
            }
            words[4..].copy_from_slice(&rest);
        }
        let bytes = words.iter().flat_map(|word| word.to_le_bytes());
        Some(Self {
            number,
            cut: ((head >> 32) as u32, cut),
            parents: bytes.take(groups).collect(),
        })
    }
}

/// A tree in a state transfer.
#[derive(Debug)]
struct TreeSnapshot {
    number: u32,
    from: u64,
    parents: Vec<u8>,
}

/// The changes in a state transfer.
#[derive(Debug)]
struct OverlaySnapshot {
    trees: Vec<TreeSnapshot>,
    joined: Vec<u32>,
    cuts: Vec<(u32, u64)>,
}

messages! {
    struct TreeSnapshot { number, from, parents }
    struct OverlaySnapshot { trees, joined, cuts }
}

/// Whether the groups of this layout may get another tree.
pub(crate) fn changes_of(
    layout: &Layout,
    config: &Config,
) -> Option<alloc::boxed::Box<OverlayChanges>> {
    layout.is_dynamic().then(|| alloc::boxed::Box::new(OverlayChanges::new(config)))
}

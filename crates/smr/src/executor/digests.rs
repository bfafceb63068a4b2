//! The digests that the replicas of a shard have computed, and their consequence for this one.
//!
//! At a [digest point](crate::digest) each replica computes a digest, and has it reported in the shard's order. Each
//! then judges for itself, by what it computed at the same point in this life; other reports say nothing, such as
//! those of points behind which its state began, and those of replicas that had not decided to [skip](super::skips) the
//! same messages: before that decision they may have executed what is skipped now. Each replica counts once, by its
//! last report of a point.
//!
//! - If a majority of all replicas has another digest than this one, and all of them the same, this one is wrong: it
//!   takes no further command ([`Executor::deliver`](super::Executor::deliver) refuses all), and its node must stop.
//! - If a majority has the digest of this one, the others stop; it continues, and reports which
//!   differ.
//! - If some differ and there is no majority, or not yet, nobody knows who is right: this one is *in doubt*
//!   ([`Executor::doubt`](super::Executor::doubt)), until a majority agrees at this point, or at later ones
//!   whose slices cover the whole shard.

use super::{Engine, Executor, ShardHead};
use crate::digest::{self, Difference, Digest, DigestReport, Slice};
use crate::machine::{MachinePart, ShardPosition, ShardedMachine};
use amcast_core::{ClusterShape, Gid, MsgId};
use std::collections::VecDeque;

/// Points that are remembered: reports of earlier ones come too late.
const POINTS_MAX: usize = 64;

/// The replica that compares.
#[derive(Clone, Copy)]
pub(super) struct Comparison {
    cluster: ClusterShape,
    /// This node's replica of each shard.
    rank: usize,
}

/// A point, and its reports.
struct DigestPoint {
    position: u64,
    id: MsgId,
    cursor: Vec<u8>,
    /// This replica's digest, once it is computed.
    own: Option<Digest>,
    /// Where the slice of the next point begins; empty if nothing is behind this one.
    next: Vec<u8>,
    /// Each replica's reported digest, by rank.
    told: Vec<Option<Digest>>,
    /// Whether a majority computed the same digest: a replica that reports another one later was started from another
    /// state.
    is_agreed: bool,
    /// Whether a difference of another replica was reported.
    is_told: bool,
}

/// The verdict of a point on this replica.
#[derive(PartialEq, Eq, Debug)]
enum DigestJudgement {
    /// Not enough is known.
    Open,
    /// A majority has the digest of this one; these differ.
    Agreed(Vec<(usize, Difference)>),
    /// A majority has something else.
    Alone(Difference),
    /// Some have something else, and there is no majority.
    Doubt(Difference),
}

/// Why it is not known which replica is right.
struct DigestDoubt {
    /// Where replicas differed first.
    position: u64,
    why: String,
    /// Where the slice begins at which a majority has to agree next: those in front of it are agreed on.
    expects: Vec<u8>,
}

/// The digests of one shard.
#[derive(Default)]
pub(super) struct Digests {
    /// In order of position.
    points: VecDeque<DigestPoint>,
    /// Commands behind the last one that may have changed something.
    changes: u64,
    /// Where the slice of the next point begins.
    next: Vec<u8>,
    /// The positions of the points whose digest was computed and not reported, in order. Also those that a node comes
    /// to while it catches up: its digest at an earlier one may decide who is right.
    unsaid: VecDeque<u64>,
    /// The position of the last point at which a majority had this replica's digest.
    agreed: u64,
    doubt: Option<DigestDoubt>,
}

impl Digests {
    /// Notes that a command was delivered that may change something.
    pub(super) const fn changed(&mut self) {
        self.changes += 1;
    }

    /// Notes that a point was delivered.
    pub(super) fn begin(&mut self, position: u64, id: MsgId, cursor: &[u8], replicas: usize) {
        self.changes = 0;
        if self.points.len() >= POINTS_MAX {
            self.points.pop_front();
        }
        let (cursor, told) = (cursor.to_vec(), vec![None; replicas]);
        self.points.push_back(DigestPoint {
            position,
            id,
            cursor,
            own: None,
            next: Vec::new(),
            told,
            is_agreed: false,
            is_told: false,
        });
    }

    /// Notes that a majority has this replica's digest at a point.
    fn agree(&mut self, at: usize) {
        let DigestPoint { position, cursor, next, is_agreed, .. } = &mut self.points[at];
        *is_agreed = true;
        self.agreed = self.agreed.max(*position);
        let ends = |doubt: &mut DigestDoubt| {
            let is_expected = *position > doubt.position && *cursor == doubt.expects;
            if is_expected {
                doubt.expects.clone_from(next);
            }
            *position == doubt.position || is_expected && next.is_empty()
        };
        self.doubt.take_if(ends);
    }

    /// Notes that replicas differ at `position`, and that nobody knows which is right.
    fn doubt(&mut self, position: u64, difference: Difference, why: impl FnOnce() -> String) {
        match &mut self.doubt {
            // Their states may differ anywhere.
            Some(doubt) if difference == Difference::Outcomes && position > doubt.position => {
                doubt.expects.clear();
            }
            Some(_) => {}
            none => *none = Some(DigestDoubt { position, why: why(), expects: Vec::new() }),
        }
    }
}

impl DigestPoint {
    /// The verdict of the reports on the replica `mine` of the shard, which computed `own`.
    fn judge(&self, mine: usize) -> DigestJudgement {
        let Some(own) = self.own else { return DigestJudgement::Open };
        let others: Vec<(usize, &Digest)> = self
            .told
            .iter()
            .enumerate()
            .filter_map(|(rank, told)| Some((rank, told.as_ref().filter(|_| rank != mine)?)))
            .collect();
        let differs = |(rank, other): &(usize, &Digest)| Some((*rank, own.difference(other)?));
        let differing: Vec<_> = others.iter().filter_map(differs).collect();
        let majority = self.told.len() / 2 + 1;
        if 1 + others.len() - differing.len() >= majority {
            return DigestJudgement::Agreed(differing);
        }
        let against = differing.iter().find(|(rank, _)| self.like(*rank, mine) >= majority);
        match (against, differing.first()) {
            (Some((_, difference)), _) => DigestJudgement::Alone(*difference),
            (None, Some((_, difference))) => DigestJudgement::Doubt(*difference),
            (None, None) => DigestJudgement::Open,
        }
    }

    /// How many replicas but `mine` reported the same as the replica `rank`.
    fn like(&self, rank: usize, mine: usize) -> usize {
        let Some(like) = &self.told[rank] else { return 0 };
        let told = self.told.iter().enumerate().filter(|(other, _)| *other != mine);
        told.flat_map(|(_, told)| told).filter(|told| told.difference(like).is_none()).count()
    }

    /// The digests of the node of this rank, and of the others that reported, for people.
    fn words(&self, group: Gid, of: &Comparison, difference: Difference) -> String {
        let Comparison { cluster, rank } = *of;
        let name = |rank| cluster.name(cluster.replica(group, rank));
        let own = self.own.as_ref();
        let what = match (difference, own.and_then(Digest::since)) {
            (Difference::Outcomes, Some(since)) => format!("answers since position {since}"),
            (Difference::Outcomes, None) => "answers".to_string(),
            (Difference::Slice, _) if self.cursor.is_empty() => {
                "state, in the part from its beginning on".to_string()
            }
            (Difference::Slice, _) => {
                let digits = |byte: &u8| format!("{byte:02x}");
                let cursor: String = self.cursor.iter().map(digits).collect();
                format!("state, in the part from {cursor} on")
            }
        };
        let mine = own.map_or_else(String::new, |own| own.describe(difference));
        let other = |(other, told): (usize, &Option<Digest>)| {
            let told = told.as_ref().filter(|_| other != rank)?;
            Some(format!("{} has {}", name(other), told.describe(difference)))
        };
        let others: Vec<String> = self.told.iter().enumerate().filter_map(other).collect();
        format!(
            "shard {} at position {}: digest of its {what}: {} has {mine}, {}",
            group.0,
            self.position,
            name(rank),
            others.join(", ")
        )
    }
}

impl<M: ShardedMachine> Executor<M> {
    /// Has this node, which hosts replica `rank` of each shard, compare digests with the others. Called once, before
    /// the first command.
    pub fn compare_digests(&mut self, cluster: ClusterShape, rank: usize) {
        self.comparison = (cluster.replicas() > 1).then_some(Comparison { cluster, rank });
    }

    /// Whether a digest point should be ordered in `shard` soon: since the last one commands came that may have changed
    /// something, or it is not known which replica is right.
    pub fn wants_digest_point(&self, shard: Gid) -> bool {
        let digests = &self.heads[shard.index()].digests;
        self.comparison.is_some() && (digests.changes > 0 || digests.doubt.is_some())
    }

    /// The next digest point of `shard`, to be ordered there: like a command, but by any node, at any time, and as
    /// often as it likes.
    pub fn digest_point(&self, shard: Gid) -> Vec<u8> {
        let digests = &self.heads[shard.index()].digests;
        digest::point(digests.doubt.as_ref().map_or(&digests.next, |doubt| &doubt.expects))
    }

    /// A digest of all that `shard` holds, slice by slice, to compare replicas that have delivered as much. None while
    /// commands wait there, where the state is on its way, and where threads of their own execute commands.
    pub fn state_digest(&self, shard: Gid) -> Option<u64> {
        let Engine::Here(sides) = &self.engine else { return None };
        if self.cleared || self.lanes.waiting(shard) > 0 {
            return None;
        }
        let (now, part) = (self.heads[shard.index()].now, &sides[shard.index()].part);
        let (mut sum, mut cursor) = (0, Vec::new());
        loop {
            let mut slice = Slice::new(&cursor, now, self.limits.slice_bytes);
            part.digest(&mut slice);
            let (of_slice, next) = slice.end();
            sum = digest::of_words(&[sum, of_slice], &next);
            if next.is_empty() {
                return Some(sum);
            }
            cursor = next;
        }
    }

    /// This node's next digest report to be ordered in `shard`; none if it has reported all.
    pub fn take_digest_report(&mut self, shard: Gid) -> Option<Vec<u8>> {
        let digests = &mut self.heads[shard.index()].digests;
        while let Some(position) = digests.unsaid.pop_front() {
            // Others remember no more points than this node does.
            let point = digests.points.iter().find(|point| point.position == position);
            if let Some(digest) = point.and_then(|point| point.own) {
                let skips = self.skips.mark();
                return Some(DigestReport { position, digest, skips }.encode());
            }
        }
        None
    }

    /// Why this node must stop, if a majority of the replicas of a shard is in another state than its own. It
    /// takes no command any more.
    pub fn differs(&self) -> Option<&str> {
        self.differs.as_deref()
    }

    /// Why it is not known whether this node's state is right, if replicas differ and none of them has a majority on
    /// its side.
    pub fn doubt(&self) -> Option<&str> {
        let mut doubts = self.heads.iter().filter_map(|head| head.digests.doubt.as_ref());
        doubts.next().map(|doubt| &*doubt.why)
    }

    /// The position of the last digest point of `shard` at which a majority of the replicas had this node's digest; 0
    /// if there was none.
    pub fn agreed(&self, shard: Gid) -> u64 {
        self.heads[shard.index()].digests.agreed
    }

    /// Notes that a point was delivered.
    pub(super) fn begin_digest(&mut self, place: ShardPosition, id: MsgId, body: &[u8]) {
        let Some(Comparison { cluster, .. }) = self.comparison else { return };
        let digests = &mut self.heads[place.shard.index()].digests;
        digests.begin(
            place.position,
            id,
            digest::cursor(body).unwrap_or_default(),
            cluster.replicas(),
        );
    }

    /// Takes the digest that was computed here at the point of the message `id`.
    pub(super) fn computed(&mut self, id: MsgId, result: &[u8]) {
        let Some((digest, next)) = digest::decode_result(result) else { return };
        let of = |head: &ShardHead| head.digests.points.iter().position(|point| point.id == id);
        let found =
            self.heads.iter().enumerate().find_map(|(shard, head)| Some((shard, of(head)?)));
        let Some((shard, at)) = found else { return };
        let digests = &mut self.heads[shard].digests;
        let point = &mut digests.points[at];
        (point.own, point.next) = (Some(digest), next.to_vec());
        let position = point.position;
        digests.next = next.to_vec();
        if digests.unsaid.len() >= POINTS_MAX {
            digests.unsaid.pop_front();
        }
        digests.unsaid.push_back(position);
        self.judge(Gid(shard as u8), position);
    }

    /// Takes a report.
    pub(super) fn reported(&mut self, shard: Gid, id: MsgId, report: &DigestReport) {
        let Some(Comparison { cluster, .. }) = self.comparison else { return };
        if report.skips != self.skips.mark() {
            return;
        }
        let Some(rank) = cluster.members(shard).position(|pid| pid == id.sender) else { return };
        let mut points = self.heads[shard.index()].digests.points.iter_mut();
        let Some(point) = points.find(|point| point.position == report.position) else { return };
        point.told[rank] = Some(report.digest);
        self.judge(shard, report.position);
    }

    fn judge(&mut self, shard: Gid, position: u64) {
        let Some(comparison) = self.comparison else { return };
        let digests = &mut self.heads[shard.index()].digests;
        let Some(at) = digests.points.iter().position(|point| point.position == position) else {
            return;
        };
        let point = &digests.points[at];
        let words = |point: &DigestPoint, difference| point.words(shard, &comparison, difference);
        match point.judge(comparison.rank) {
            DigestJudgement::Open => {}
            DigestJudgement::Agreed(differing) => {
                if let Some((_, difference)) = differing.first().filter(|_| !point.is_told) {
                    let words = words(point, *difference);
                    tracing::warn!("a replica differs from a majority, and has to stop: {words}");
                    digests.points[at].is_told = true;
                }
                digests.agree(at);
            }
            DigestJudgement::Alone(difference) => {
                let words = words(point, difference);
                self.differs.get_or_insert(words);
            }
            DigestJudgement::Doubt(_) if point.is_agreed => {}
            DigestJudgement::Doubt(difference) => {
                let words = words(point, difference);
                digests.doubt(position, difference, || words);
            }
        }
    }
}

//! The owners of the regions, and the content of a row.
//!
//! Everything has one writer. Where the paper lets several processes write one structure (the
//! leaders of a group write `LOG`, the leaders of a parent write `HM`), there is one region for
//! each of them: a deposed leader that wakes up in mid-write spoils only its own.

use super::buffer::HM_BASE;
use super::log_region::LOG_BASE;
use super::overdue::OverdueSource;
use super::params;
use super::ring::{RecordRing, lines_of, payload_within};
use alloc::vec::Vec;
use amcast_core::limits::{MEMORY_REPLICAS_MAX, PAYLOAD_BYTES_MAX};
use amcast_core::memory::{LINE_WORDS, LineStamp, RegionId, RegionSpec};
use amcast_core::parameters::check_timers;
use amcast_core::{Config, ConfigError, Gid, GroupSet, Pid, Role};

/// A log has two halves: a writer's terms alternate between them, so that a new term is never
/// written over the log that is in force.
pub(crate) const HALVES: usize = 2;

/// Lines in which a group tells a client of another tree.
const TOLD_LINES: u32 = 2;

/// Which groups write to each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum GroupPairs {
    /// A parent and its children, in a tree that stays.
    Tree,
    /// Every two groups: any of them may become the other's parent.
    DynamicTree,
    /// Every two groups exchange timestamps: then no group has a parent or children.
    Exchange,
}

/// Where everything lies; the same answer at every process.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    config: Config,
    clients: usize,
    n: usize,
    pairs: GroupPairs,
    pub(crate) log_lines: u32,
    pub(crate) hm_lines: u32,
    pub(crate) xfer_lines: u32,
    lap_lines: u32,
}

impl Layout {
    pub(crate) fn new(config: &Config) -> Result<Self, ConfigError> {
        let is_dynamic = config.get(&params::DYNAMIC_OVERLAY) == 1;
        Self::of(config, if is_dynamic { GroupPairs::DynamicTree } else { GroupPairs::Tree })
    }

    /// Where everything lies if every two groups exchange timestamps.
    pub(crate) fn of_exchange(config: &Config) -> Result<Self, ConfigError> {
        Self::of(config, GroupPairs::Exchange)
    }

    fn of(config: &Config, pairs: GroupPairs) -> Result<Self, ConfigError> {
        let lines = |p| config.get(p) as u32;
        let (log_lines, hm_lines) = (lines(&params::LOG_LINES), lines(&params::HM_LINES));
        let xfer_lines = lines(&params::XFER_LINES);
        // A replica looks for heartbeats at its own pace: it may read one just before the next is written.
        check_timers(config, 2)?;
        let cluster = config.cluster();
        let (clients, n) = (cluster.clients(), cluster.replicas());
        if n > MEMORY_REPLICAS_MAX {
            return Err(ConfigError::Relation(alloc::format!(
                "replicas = {n}: over shared memory a group has 1 to {MEMORY_REPLICAS_MAX}, since each \
                 has a region of memory for each other one; give fewer"
            )));
        }
        let lap_lines = lines(&params::LAP_LINES);
        Ok(Self {
            config: config.clone(),
            clients,
            n,
            pairs,
            log_lines,
            hm_lines,
            xfer_lines,
            lap_lines,
        })
    }

    pub(crate) const fn clients(&self) -> usize {
        self.clients
    }

    /// Whether the groups may get another tree.
    pub(crate) const fn is_dynamic(&self) -> bool {
        matches!(self.pairs, GroupPairs::DynamicTree)
    }

    /// The largest payload: a record takes at most half a ring, since a pad may waste as much.
    pub(crate) fn payload_max(&self) -> usize {
        let fits = payload_within(self.log_lines.min(self.hm_lines) / 2) as usize;
        fits.min(PAYLOAD_BYTES_MAX)
    }

    /// Payload bytes of one piece of a state transfer.
    pub(crate) fn piece_max(&self) -> u32 {
        payload_within(self.xfer_lines / 4)
    }

    /// `HM[c]` of client number `c` at a replica.
    pub(crate) fn hm_client(&self, c: usize) -> RecordRing {
        self.ring(c, HM_BASE, self.hm_lines)
    }

    /// `HM[parent]` as written by rank `w` of the group `parent`.
    pub(crate) fn hm_of(&self, parent: Gid, w: usize) -> RecordRing {
        if self.is_dynamic() { self.proposals(parent, w) } else { self.hm_parent(w) }
    }

    /// `HM[parent]` as written by rank `w` of the parent, in a tree that stays.
    pub(crate) fn hm_parent(&self, w: usize) -> RecordRing {
        self.ring(self.clients + w, 0, self.hm_lines)
    }

    /// `LOG` as written by rank `w`, one of its halves.
    pub(crate) fn log(&self, w: usize, half: usize) -> RecordRing {
        self.ring(self.clients + self.n + w * HALVES + half, LOG_BASE, self.log_lines)
    }

    /// The row of rank `w` of the same group.
    pub(crate) fn row(&self, w: usize) -> RegionId {
        id(self.clients + self.n * (1 + HALVES) + w)
    }

    /// State coming from rank `w`.
    pub(crate) fn xfer(&self, w: usize) -> RecordRing {
        self.state_ring(self.clients + self.n * (2 + HALVES) + w)
    }

    /// State going out, before it is written to the reader.
    pub(crate) fn stage(&self) -> RecordRing {
        self.state_ring(self.clients + self.n * (3 + HALVES))
    }

    /// How far rank `w` of child `child` says that its group has taken over.
    pub(crate) fn taken(&self, group: Gid, child: Gid, w: usize) -> RegionId {
        if self.is_dynamic() {
            return self.proposals_taken(child, w);
        }
        let before = self.config.overlay().children(group).and(GroupSet::first(child.index()));
        id(self.clients + self.n * (3 + HALVES) + 1 + before.len() * self.n + w)
    }

    /// The timestamps of group `from`, as rank `w` of it sends them here; in a tree that may change, its messages.
    pub(crate) fn proposals(&self, from: Gid, w: usize) -> RecordRing {
        self.ring(self.first_proposals() + from.index() * self.n + w, 0, self.hm_lines)
    }

    /// How far rank `w` of group `by` says that its group has taken over what this group sent it.
    pub(crate) fn proposals_taken(&self, by: Gid, w: usize) -> RegionId {
        let (groups, n) = (self.config.cluster().groups(), self.n);
        id(self.first_proposals() + (groups + by.index()) * n + w)
    }

    /// Without children, these come behind the staging area.
    const fn first_proposals(&self) -> usize {
        self.clients + self.n * (3 + HALVES) + 1
    }

    /// At a client: what it sends to group `g`, a mirror of its `HM` there.
    pub(crate) fn sent(&self, g: Gid) -> RecordRing {
        self.ring(g.index(), 0, self.hm_lines)
    }

    /// At a client: how far rank `r` of group `g` says that its group has taken over.
    pub(crate) fn credit(&self, g: Gid, r: usize) -> RegionId {
        id(self.config.cluster().groups() + g.index() * self.n + r)
    }

    fn ring(&self, region: usize, base: u32, lines: u32) -> RecordRing {
        RecordRing { region: id(region), base, lines, lap: self.lap_of(lines) }
    }

    /// Its room is asked for by the longest piece, so no shorter one may take more: all laps are
    /// whole.
    fn state_ring(&self, region: usize) -> RecordRing {
        RecordRing { region: id(region), base: 0, lines: self.xfer_lines, lap: self.xfer_lines }
    }

    /// After how many lines a ring of `lines` lines goes round while its records are short.
    pub(crate) fn lap_of(&self, lines: u32) -> u32 {
        self.lap_lines.min(lines)
    }

    /// The regions that `me` owns, in order of their ids.
    pub(crate) fn regions(&self, me: Pid) -> Vec<RegionSpec> {
        match self.config.cluster().role(me) {
            Role::Replica { group, .. } => self.replica_regions(me, group),
            Role::Client { .. } => self.client_regions(me),
        }
    }

    fn replica_regions(&self, me: Pid, group: Gid) -> Vec<RegionSpec> {
        let (cluster, overlay) = (self.config.cluster(), self.config.overlay());
        let spec = |name, lines, writer| RegionSpec { name, lines, writer, guarded: false };
        let mut all = Vec::new();
        for c in 0..self.clients {
            all.push(spec("hm", HM_BASE + self.hm_lines, cluster.client(c)));
        }
        for w in 0..self.n {
            // The root has no parent: the place stays, so that ids are the same everywhere.
            all.push(match overlay.parent(group).filter(|_| self.pairs == GroupPairs::Tree) {
                Some(p) => spec("hm-parent", self.hm_lines, cluster.replica(p, w)),
                None => spec("hm-parent", 1, me),
            });
        }
        for w in cluster.members(group) {
            for _ in 0..HALVES {
                let lines = LOG_BASE + self.log_lines;
                all.push(RegionSpec { name: "log", lines, writer: w, guarded: w != me });
            }
        }
        all.extend(cluster.members(group).map(|w| spec("row", 1, w)));
        all.extend(cluster.members(group).map(|w| spec("xfer", self.xfer_lines, w)));
        all.push(spec("stage", self.xfer_lines, me));
        if self.pairs != GroupPairs::Tree {
            self.pair_regions(group, me, &mut all);
            return all;
        }
        for child in overlay.children(group).iter() {
            all.extend(cluster.members(child).map(|w| spec("taken", 1, w)));
        }
        all
    }

    fn pair_regions(&self, group: Gid, me: Pid, all: &mut Vec<RegionSpec>) {
        let cluster = self.config.cluster();
        let spec = |name, lines, writer| RegionSpec { name, lines, writer, guarded: false };
        for from in cluster.all_groups().iter() {
            // Its own group sends it none: the place stays, so that ids are the same everywhere.
            let lines = if from == group { 1 } else { self.hm_lines };
            let writer = |w| if from == group { me } else { w };
            let name = if self.is_dynamic() { "hm-parent" } else { "proposals" };
            all.extend(cluster.members(from).map(|w| spec(name, lines, writer(w))));
        }
        for by in cluster.all_groups().iter() {
            all.extend(cluster.members(by).map(|w| spec("taken", 1, w)));
        }
    }

    fn client_regions(&self, me: Pid) -> Vec<RegionSpec> {
        let cluster = self.config.cluster();
        let spec = |name, lines, writer| RegionSpec { name, lines, writer, guarded: false };
        let mut all = Vec::new();
        for _ in 0..cluster.groups() {
            all.push(spec("sent", self.hm_lines, me));
        }
        // Behind its credit a group tells of another tree.
        let lines = if self.is_dynamic() { 1 + TOLD_LINES } else { 1 };
        for g in cluster.all_groups().iter() {
            all.extend(cluster.members(g).map(|w| spec("credit", lines, w)));
        }
        all
    }
}

const fn id(i: usize) -> RegionId {
    RegionId(i as u16)
}

/// The data that a replica publishes to the others of its group, in one line each of them owns. The words are
/// read one by one: each is independent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct ReplicaRow {
    /// Which life of the replica speaks.
    pub(crate) incarnation: u32,
    /// Heartbeat; only grows within a life.
    pub(crate) beat: u64,
    /// The epoch it asks permission for, or leads in (`perm[s]`); only grows.
    pub(crate) request: u32,
    /// Its answer (`perm_ack`).
    pub(crate) promise: EpochPromise,
    /// The first log position it still needs; only grows within a life.
    pub(crate) need: u64,
    /// How far it has consumed the log (`STD`).
    pub(crate) consumed: u64,
    /// Whether it follows the log: nothing that it may need of it may be written over.
    pub(crate) follows: bool,
    /// Whether it has all state, the application's included.
    pub(crate) fit: bool,
    /// The rank it asks for state.
    pub(crate) source: Option<u8>,
    /// Which attempt at a state transfer this is.
    pub(crate) attempt: u32,
    /// How much of that attempt's stream it has read, in lines.
    pub(crate) read: u64,
    /// A source whose next record lies in its buffers for long.
    pub(crate) overdue: Option<OverdueSource>,
}

/// A replica's promise to accept nothing below an epoch, and how its owner may use it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct EpochPromise {
    /// The epoch (`tmp`).
    pub(crate) epoch: u32,
    /// Whether the writer of that epoch may write, and where.
    pub(crate) grant: PromiseGrant,
    /// The half of its log that it may use.
    pub(crate) half: u8,
    /// The epoch of the log that was in force here when the former writer had been revoked; 0 for
    /// none. All writes that were reported written to that writer are in it. Later writes are not
    /// looked at: its place may be given to a new term.
    pub(crate) accepted: u32,
    /// The half where that log lies.
    pub(crate) accepted_half: u8,
}

/// The permission of a promise.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum PromiseGrant {
    /// Nothing yet: the former writer is still being revoked.
    #[default]
    Closed,
    /// To become leader and to write (`ACK`).
    Full,
    /// To write, for one who leads already: the replica forgot its promises in a crash, so it must
    /// not help anyone to become leader.
    Join,
}

impl ReplicaRow {
    pub(crate) fn words(&self) -> [u64; LINE_WORDS] {
        let p = self.promise;
        [
            u64::from(self.incarnation) << 40 | self.beat & 0xff_ffff_ffff,
            u64::from(self.request) | u64::from(OverdueSource::word(self.overdue)) << 32,
            // One word, so that a promise is never seen beside another one's log.
            u64::from(p.epoch)
                | u64::from(p.accepted) << EPOCH_BITS
                | (p.grant as u64) << (2 * EPOCH_BITS)
                | u64::from(p.half) << 62
                | u64::from(p.accepted_half) << 63,
            self.need,
            self.consumed,
            u64::from(self.fit)
                | u64::from(self.follows) << 1
                | self.source.map_or(0, |d| u64::from(d) + 1) << 8
                | u64::from(self.attempt) << 32,
            // The low bits of the attempt: a count that is read beside another attempt's number
            // must not be taken for that attempt's.
            u64::from(self.attempt) << 48 | self.read & 0xffff_ffff_ffff,
        ]
    }

    /// The stamp of every row of a life.
    pub(crate) const fn stamp(incarnation: u32) -> LineStamp {
        LineStamp::new(incarnation, 0)
    }

    /// Whether a replica of a group of `n` can have written this. An impossible row is not acted on: the
    /// ranks in it are looked up, and epochs that are believed are used up.
    pub(crate) const fn makes_sense(&self, n: usize) -> bool {
        let EpochPromise { epoch, accepted, .. } = self.promise;
        self.request <= EPOCH_BELIEVED
            && rank_of(self.request) < n
            && epoch <= EPOCH_BELIEVED
            && rank_of(epoch) < n
            && accepted <= epoch
            && rank_of(accepted) < n
            && (match self.overdue {
                Some(overdue) => (overdue.writer as usize) < n,
                None => true,
            })
    }

    /// None if nothing was written yet.
    pub(crate) fn parse(w: &[u64; LINE_WORDS]) -> Option<Self> {
        if w[0] == 0 {
            return None;
        }
        let attempt = (w[5] >> 32) as u32;
        let source = (w[5] >> 8 & 0xff) as u8;
        let matching = (w[6] >> 48) as u16 == attempt as u16;
        Some(Self {
            incarnation: (w[0] >> 40) as u32,
            beat: w[0] & 0xff_ffff_ffff,
            request: w[1] as u32,
            promise: EpochPromise {
                epoch: w[2] as u32 & EPOCH_MASK,
                grant: match w[2] >> (2 * EPOCH_BITS) & 3 {
                    1 => PromiseGrant::Full,
                    2 => PromiseGrant::Join,
                    _ => PromiseGrant::Closed,
                },
                half: (w[2] >> 62) as u8 & 1,
                accepted: (w[2] >> EPOCH_BITS) as u32 & EPOCH_MASK,
                accepted_half: (w[2] >> 63) as u8,
            },
            need: w[3],
            consumed: w[4],
            fit: w[5] & 1 == 1,
            follows: w[5] & 2 == 2,
            source: source.checked_sub(1),
            attempt,
            read: if matching { w[6] & 0xffff_ffff_ffff } else { 0 },
            overdue: OverdueSource::of((w[1] >> 32) as u32),
        })
    }
}

/// The writer of an epoch: epochs are unique over the system [TRAM 5.1, `tmp`].
pub(crate) const fn rank_of(epoch: u32) -> usize {
    (epoch & 0xf) as usize
}

/// Bits of an epoch.
const EPOCH_BITS: u32 = 30;
const EPOCH_MASK: u32 = (1 << EPOCH_BITS) - 1;

/// The highest epoch that is believed of others: 33 million changes of leader. Nonsense in a row
/// thus never leaves a replica without epochs of its own.
const EPOCH_BELIEVED: u32 = EPOCH_MASK / 2;

/// The smallest epoch of `rank` above `epoch`. Panics when there is none left.
pub(crate) const fn next_epoch(epoch: u32, rank: usize) -> u32 {
    let next = ((epoch >> 4) + 1) << 4 | rank as u32;
    assert!(next <= EPOCH_MASK, "out of epochs");
    next
}

const _: () = assert!(MEMORY_REPLICAS_MAX <= 16);
const _: () = assert!(lines_of(0) == 1);

#[cfg(test)]
mod tests {
    use super::*;
    use amcast_core::RawConfig;

    #[test]
    fn ids_name_the_regions_that_are_declared() {
        let raw = RawConfig { groups: 4, overlay: "-1,0,0,1".into(), ..RawConfig::default() };
        let config = raw.check(params::ALL).unwrap();
        let layout = Layout::new(&config).unwrap();
        let cluster = config.cluster();
        let regions = layout.regions(cluster.replica(Gid(0), 1));
        let named = |id: RegionId| regions[usize::from(id.0)];
        assert_eq!(named(layout.hm_client(1).region).writer, cluster.client(1));
        assert_eq!(named(layout.log(2, 1).region).writer, cluster.replica(Gid(0), 2));
        assert!(named(layout.log(2, 1).region).guarded && !named(layout.log(1, 0).region).guarded);
        assert_eq!(named(layout.row(2)).name, "row");
        assert_eq!(named(layout.xfer(2).region).name, "xfer");
        assert_eq!(named(layout.stage().region).name, "stage");
        let last = layout.taken(Gid(0), Gid(2), 2);
        assert_eq!(named(last).writer, cluster.replica(Gid(2), 2));
        assert_eq!(usize::from(last.0) + 1, regions.len());
        let at_client = layout.regions(cluster.client(0));
        let credit = at_client[usize::from(layout.credit(Gid(3), 2).0)];
        assert_eq!(credit.writer, cluster.replica(Gid(3), 2));
    }

    /// Else a last, short piece of a state could begin the next lap where what lies there is not
    /// read yet.
    #[test]
    fn rings_of_state_go_round_at_their_end_whatever_the_others_do() {
        let mut raw = RawConfig::default();
        raw.set.insert("lap_lines".into(), "16".into());
        let layout = Layout::new(&raw.check(params::ALL).unwrap()).unwrap();
        let (log, stage, xfer) = (layout.log(0, 0), layout.stage(), layout.xfer(1));
        assert!(log.start(17, 2) > 17);
        assert_eq!((stage.start(17, 2), xfer.start(17, 2)), (17, 17));
    }

    #[test]
    fn a_row_reads_back() {
        let row = ReplicaRow {
            incarnation: 2,
            beat: 77,
            request: 0x13,
            promise: EpochPromise {
                epoch: EPOCH_MASK,
                grant: PromiseGrant::Join,
                half: 1,
                accepted: EPOCH_MASK - 1,
                accepted_half: 0,
            },
            need: 9,
            consumed: 11,
            follows: true,
            fit: false,
            source: Some(0),
            attempt: 70_000,
            read: 5,
            overdue: Some(OverdueSource { source: 300, writer: 2 }),
        };
        assert_eq!(ReplicaRow::parse(&row.words()), Some(row));
        assert_eq!(ReplicaRow::parse(&[0; LINE_WORDS]), None);
        let mut torn = row.words();
        torn[6] = 4 << 48 | 900;
        assert_eq!(ReplicaRow::parse(&torn).unwrap().read, 0, "another attempt's count");
    }

    #[test]
    fn a_row_that_cannot_be_is_not_believed() {
        let promise = EpochPromise { epoch: 0x30, accepted: 0x22, ..EpochPromise::default() };
        let row = ReplicaRow { request: 0x30, promise, ..ReplicaRow::default() };
        assert!(row.makes_sense(3));
        assert!(!ReplicaRow { request: 0x33, ..row }.makes_sense(3), "there is no rank 3");
        let accepted =
            |accepted| ReplicaRow { promise: EpochPromise { accepted, ..promise }, ..row };
        assert!(accepted(0).makes_sense(3));
        assert!(!accepted(0x23).makes_sense(3), "there is no rank 3");
        assert!(!accepted(0x31).makes_sense(3), "accepted later than promised");
        let overdue = Some(OverdueSource { source: 0, writer: 3 });
        assert!(!ReplicaRow { overdue, ..row }.makes_sense(3), "there is no rank 3");
        assert!(!ReplicaRow { request: EPOCH_MASK, ..row }.makes_sense(3));
        let promise = EpochPromise { epoch: EPOCH_MASK, ..promise };
        assert!(!ReplicaRow { promise, ..row }.makes_sense(3));
        assert!(next_epoch(EPOCH_BELIEVED, 2) > EPOCH_BELIEVED);
    }

    #[test]
    fn epochs_are_unique_and_grow() {
        assert!(next_epoch(0x25, 1) > 0x25 && rank_of(next_epoch(0x25, 1)) == 1);
        assert_ne!(next_epoch(0x25, 1), next_epoch(0x25, 2));
    }
}

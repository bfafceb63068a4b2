//! Whether the disks of a cluster have room for what may take more.
//!
//! A node whose disk is full ends. Where all disks are alike they are full at one moment, and then nothing runs that
//! could delete anything. So gateways refuse commands that may take more room while there is still some: enough for
//! the nodes to continue with deletes, for the states that they save then, and for their own writes. It is no part
//! of the order: accepted commands are executed.

use crate::config::node_name;
use crate::control::NodeStatus;
use crate::resources::DiskStatus;
use amcast_core::ClusterShape;

/// The space kept free at each node, in bytes, by default.
const RESERVE_BYTES: u64 = 256_000_000;

/// The part of the disk that is kept free at most then.
const PART_OF_DISK: u64 = 8;

/// The disks of the nodes, as far as they are known.
pub(super) struct DiskRoom {
    cluster: ClusterShape,
    /// The space kept free at each node, in bytes, if that is configured.
    reserve_bytes: Option<u64>,
    /// Whether each node had too little at last: there must be somewhat more for it to have enough again.
    low: Vec<bool>,
    /// The most that each node's disk had free since this began.
    most: Vec<u64>,
}

impl DiskRoom {
    /// Of a cluster with so many MB to keep free at each node.
    pub(super) fn new(cluster: ClusterShape, reserve_mb: Option<u64>) -> Self {
        let reserve_bytes = reserve_mb.map(|mb| mb.saturating_mul(1_000_000));
        let (low, most) = (vec![false; cluster.replicas()], vec![0; cluster.replicas()]);
        Self { cluster, reserve_bytes, low, most }
    }

    /// How much more must be free before commands are taken again: on a small disk the files that a cluster keeps without
    /// any key are a large part of it, and a quarter may never come back.
    fn margin(&self, disk: &DiskStatus, needed: u64, most: u64) -> u64 {
        let is_small = disk.size_bytes / PART_OF_DISK < RESERVE_BYTES || needed >= most / 2;
        needed / if self.reserve_bytes.is_none() && is_small { 16 } else { 4 }
    }

    /// How much a disk must have free that so many nodes share, and that had at most so much free.
    fn needed(&self, disk: &DiskStatus, shared: usize, most: u64) -> u64 {
        // The next state is written beside those that are there.
        let of_all = |reserve: u64| {
            reserve.saturating_add(disk.checkpoint_bytes).saturating_mul(shared.max(1) as u64)
        };
        match self.reserve_bytes {
            Some(0) => 0,
            Some(reserve) => of_all(reserve),
            // Where little was free from the start, somebody meant it to do: nothing is refused at once.
            None => of_all(RESERVE_BYTES.min(disk.size_bytes / PART_OF_DISK)).min(most / 2),
        }
    }

    /// Why commands that may take more room are refused, by what the nodes said last, if they are: the nodes that have
    /// enough are no majority. So many nodes have their files on one disk.
    pub(super) fn lacks(&mut self, said: &[Option<NodeStatus>], shared: usize) -> Option<String> {
        let mut few = Vec::new();
        for (rank, node) in said.iter().enumerate().take(self.low.len()) {
            let disk = node.as_ref().and_then(|node| node.resources?.disk);
            let Some(disk) = disk else { continue };
            self.most[rank] = self.most[rank].max(disk.free_bytes);
            let needed = self.needed(&disk, shared, self.most[rank]);
            let enough = needed.saturating_add(self.margin(&disk, needed, self.most[rank]));
            let wanted = if self.low[rank] { enough } else { needed };
            self.low[rank] = disk.free_bytes < wanted;
            if self.low[rank] {
                let mb = |bytes: u64| bytes / 1_000_000;
                // As much as it takes to end this, not to begin it.
                let (free, enough) = (mb(disk.free_bytes), mb(enough));
                few.push(format!("{} has {free} MB free and needs {enough} MB", node_name(rank)));
            }
        }
        let low = self.low.iter().filter(|low| **low).count();
        let is_lacking = !few.is_empty() && self.cluster.replicas() - low < self.cluster.quorum();
        is_lacking.then(|| {
            format!(
                "the nodes' disks have too little room ({}): what may take more is refused, and reads and deletes are \
                 served",
                few.join(", ")
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::watch::silent_node;
    use super::*;
    use crate::resources::ResourceStatus;

    fn node(free_mb: u64, checkpoint_mb: u64) -> Option<NodeStatus> {
        let mb = |mb: u64| mb * 1_000_000;
        let (free_bytes, checkpoint_bytes) = (mb(free_mb), mb(checkpoint_mb));
        let disk =
            DiskStatus { free_bytes, checkpoint_bytes, size_bytes: mb(64_000), log_bytes: 0 };
        let resources = ResourceStatus { resident_bytes: 0, disk: Some(disk) };
        Some(NodeStatus { resources: Some(resources), ..silent_node() })
    }

    fn room(reserve_mb: Option<u64>) -> DiskRoom {
        DiskRoom::new(ClusterShape::new(1, 3, 1).unwrap(), reserve_mb)
    }

    #[test]
    fn growth_is_refused_once_the_nodes_with_room_are_no_majority() {
        let mut it = room(None);
        assert_eq!(it.lacks(&[node(9000, 0), node(9000, 0), node(9000, 0)], 1), None);
        assert_eq!(it.lacks(&[node(256, 0), node(256, 0), node(256, 0)], 1), None);
        assert_eq!(
            it.lacks(&[node(100, 0), node(300, 0), node(300, 0)], 1),
            None,
            "it may end alone"
        );
        let why = it.lacks(&[node(100, 0), node(300, 0), node(255, 0)], 1).unwrap();
        assert!(why.contains("(n0 has 100 MB free and needs 320 MB, n2 has 255 MB free"), "{why}");
        // A state is as large as those before.
        assert_eq!(it.lacks(&[node(500, 100), node(500, 100), node(500, 100)], 1), None);
        assert!(it.lacks(&[node(500, 300), node(500, 300), node(900, 300)], 1).is_some());
        // A node that does not answer, or keeps nothing on disk, keeps its last figures.
        assert!(it.lacks(&[node(500, 300), None, Some(silent_node())], 1).is_some());
    }

    #[test]
    fn there_must_be_somewhat_more_before_it_is_taken_again() {
        let mut it = room(Some(100));
        let all = |mb| [node(mb, 0), node(mb, 0), node(mb, 0)];
        let lacks = [101, 99, 101, 124, 125, 101].map(|mb| it.lacks(&all(mb), 1).is_some());
        assert_eq!(lacks, [false, true, true, true, false, false]);
    }

    #[test]
    fn nodes_that_share_a_disk_need_as_much_each_and_none_is_asked_for_with_0() {
        let all = |mb| [node(mb, 10), node(mb, 10), node(mb, 10)];
        assert!(room(Some(100)).lacks(&all(329), 3).is_some());
        assert!(room(Some(100)).lacks(&all(330), 3).is_none());
        assert!(room(Some(0)).lacks(&all(0), 3).is_none());
    }

    #[test]
    fn nothing_is_refused_at_once_where_little_was_free_from_the_start() {
        let all = |mb| [node(mb, 10), node(mb, 10), node(mb, 10)];
        let mut it = room(None);
        let lacks = [40, 20, 19, 24, 25, 20].map(|mb| it.lacks(&all(mb), 3).is_some());
        assert_eq!(lacks, [false, false, true, false, false, false]);
        // Of 390 MB the files that a cluster keeps without any key leave 212.
        let mut little = room(None);
        let of = |mb: u64| {
            let size_bytes = 500_000_000;
            let [mut one, mut other, mut third] = [node(mb, 0), node(mb, 0), node(mb, 0)];
            for it in [&mut one, &mut other, &mut third].into_iter().flatten() {
                let disk = it.resources.as_mut().and_then(|resources| resources.disk.as_mut());
                disk.expect("it has one").size_bytes = size_bytes;
            }
            [one, other, third]
        };
        let lacks = [390, 187, 199, 200].map(|mb| little.lacks(&of(mb), 3).is_some());
        assert_eq!(lacks, [false, true, true, false]);
        // Once it had more, the usual is kept.
        assert!(it.lacks(&all(9000), 3).is_none() && it.lacks(&all(797), 3).is_some());
        assert!(it.lacks(&all(9000), 3).is_none() && it.lacks(&all(798), 3).is_none());
        // The configured reserve is kept.
        assert!(room(Some(100)).lacks(&all(40), 3).is_some());
    }
}

//! The owner of the log in a directory: its process, node and cluster.
//!
//! A log says so itself, since directories are copied and moved. A process that went by the log of another one would
//! take what that one promised for its own, and forget what it had promised itself: acknowledged writes would be lost,
//! and replicas differ.

use crate::config::node_name;
use amcast_core::Gid;
use amcast_storage::{CheckpointOwner, LogOwnerId};
use std::path::Path;

/// The owner of a node's logs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LogOwner {
    /// Of the cluster's number; clusters of different numbers have the same one seldom.
    cluster: u32,
    /// The node's number.
    rank: u16,
}

impl LogOwner {
    /// The node `rank` of the cluster with this number.
    pub(crate) const fn of(cluster: u64, rank: usize) -> Self {
        Self { cluster: (cluster ^ cluster >> 32) as u32, rank: rank as u16 }
    }

    /// Its process in `group`. From the lowest bits: the group and 1, the node and 1, each in two bytes; the cluster.
    pub(crate) const fn of_group(self, group: Gid) -> LogOwnerId {
        let (group, node) = (group.0 as u64 + 1, self.rank as u64 + 1);
        LogOwnerId(group | node << 16 | (self.cluster as u64) << 32)
    }

    /// The owner of its checkpoints, on the disk with this number.
    pub(crate) const fn of_checkpoints(self, disk: u64) -> CheckpointOwner {
        let node = (self.rank as u64 + 1) << 16 | (self.cluster as u64) << 32;
        CheckpointOwner { node, disk }
    }

    /// The owner of a checkpoint that is not this node's, for people.
    pub(crate) fn names(self, other: CheckpointOwner) -> String {
        let own = self.of_checkpoints(other.disk);
        match other.node == own.node {
            true => {
                let own = node_name(self.rank.into());
                format!(
                    "another disk of {own} (if the file {own}.disk was lost here, bring it back first)"
                )
            }
            false if other.node >> 32 == own.node >> 32 => {
                node_name(usize::from((other.node >> 16) as u16).saturating_sub(1))
            }
            false => "a node of another cluster".to_string(),
        }
    }

    /// Why this node does not use the log of another owner that is where its own of `group` should be, and what to do.
    pub(crate) fn refuses(self, path: &Path, group: Gid, other: LogOwnerId) -> String {
        let number = |at: u32| (other.0 >> at) as u16;
        let theirs = match (number(16).checked_sub(1), number(0).checked_sub(1)) {
            (Some(node), Some(group)) => format!("{} in group g{group}", node_name(node.into())),
            _ => "another program".to_string(),
        };
        let cluster =
            if (other.0 >> 32) as u32 == self.cluster { "" } else { " of another cluster" };
        let own = node_name(self.rank.into());
        format!(
            "{}: this is the log of {theirs}{cluster}, and not of {own} in group {group}: a directory was copied or \
             moved to the wrong place. Put it back, and the log of {own} here. Where that one is gone for good, \
             remove this directory: {own} then asks the others what it had promised before it votes",
            path.display()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_differ_in_cluster_node_and_group() {
        let own = LogOwner::of(0x1_0000_0002, 1);
        assert_eq!(own.of_group(Gid(2)), LogOwnerId(0x0000_0003_0002_0003));
        let mut all: Vec<u64> = Vec::new();
        for (cluster, rank, group) in [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (1 << 32, 1, 1)]
        {
            all.push(LogOwner::of(cluster, rank).of_group(Gid(group)).0);
        }
        all.sort_unstable();
        all.dedup();
        assert!(all.len() == 5 && !all.contains(&LogOwnerId::UNKNOWN.0));
    }

    #[test]
    fn a_refusal_names_whose_log_it_is() {
        let own = LogOwner::of(5, 1);
        let says = |other: LogOwner| {
            own.refuses(Path::new("/d/n1.data/g0"), Gid(0), other.of_group(Gid(3)))
        };
        let same = says(LogOwner::of(5, 2));
        assert!(
            same.starts_with(
                "/d/n1.data/g0: this is the log of n2 in group g3, and not of n1 in group g0"
            ),
            "{same}"
        );
        assert!(says(LogOwner::of(6, 1)).contains("n1 in group g3 of another cluster, and not"));
    }
}

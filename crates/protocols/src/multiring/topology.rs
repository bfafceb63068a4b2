//! Which rings there are, which processes are in them, and where an instance lies in the merged order.

use alloc::vec::Vec;
use amcast_core::{ClusterShape, Gid, GroupSet, Pid};

/// Bits of a delivery's position that number the messages of one instance.
pub(super) const PLACE_BITS: u32 = 12;

/// The number of a ring. Learners merge their rings in the order of these numbers.
pub(super) type RingId = u16;

/// A ring: a multicast group in the sense of [MRP 2], to which the replicas of some groups subscribe.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct RingTopology {
    /// The groups whose replicas subscribe to it. It orders messages to any of them.
    pub(super) set: GroupSet,
    /// All its processes, in the order in which messages go round.
    pub(super) members: Vec<Pid>,
    /// The replicas of its lowest group, whose votes decide; in the order in which they are to be
    /// coordinator.
    pub(super) acceptors: Vec<Pid>,
}

/// Which rings a cluster has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RingKinds {
    /// One for each group, and one for all of them.
    Global,
    /// One for each group, one for every pair of groups, and one for all of them.
    Pairs,
    /// One for each group: no message goes to several.
    Independent,
}

/// In which order messages go round a ring of several groups.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RingTraversal {
    /// Rank by rank: neighbours are mostly in the same node.
    Nodes,
    /// Group by group, for groups that are far apart: acceptors are neighbours, the coordinator in front.
    Groups,
}

/// The rings of a cluster: those of a kind, and one for each of the `declared` sets of groups.
pub(super) fn topologies(
    cluster: &ClusterShape,
    rings: RingKinds,
    declared: &[GroupSet],
    around: RingTraversal,
) -> Vec<RingTopology> {
    let groups = cluster.groups();
    let mut sets: Vec<GroupSet> = cluster.all_groups().iter().map(GroupSet::one).collect();
    sets.extend(declared);
    if rings == RingKinds::Pairs {
        for a in 0..groups {
            for b in a + 1..groups {
                let pair = GroupSet::one(Gid(a as u8)).with(Gid(b as u8));
                if !declared.contains(&pair) {
                    sets.push(pair);
                }
            }
        }
    }
    if rings != RingKinds::Independent && !sets.contains(&cluster.all_groups()) {
        sets.push(cluster.all_groups());
    }
    sets.into_iter().enumerate().map(|(id, set)| topology(cluster, id, set, around)).collect()
}

fn topology(
    cluster: &ClusterShape,
    id: usize,
    set: GroupSet,
    around: RingTraversal,
) -> RingTopology {
    let ranks = cluster.replicas();
    let of_rank = |rank| set.iter().map(move |g| cluster.replica(g, rank));
    let lowest = set.lowest().expect("a ring is for some group");
    // The preferred coordinator differs from ring to ring, so that nodes share the work.
    let acceptors: Vec<Pid> =
        (0..ranks).map(|i| cluster.replica(lowest, (id + i) % ranks)).collect();
    let members = match around {
        RingTraversal::Nodes => (0..ranks).flat_map(of_rank).collect(),
        RingTraversal::Groups => {
            let others = set.iter().filter(|&g| g != lowest).flat_map(|g| cluster.members(g));
            acceptors.iter().copied().chain(others).collect()
        }
    };
    RingTopology { set, members, acceptors }
}

impl RingTopology {
    /// How many votes decide.
    pub(super) const fn quorum(&self) -> usize {
        self.acceptors.len() / 2 + 1
    }

    /// The place of `pid` among the acceptors.
    pub(super) fn acceptor(&self, pid: Pid) -> Option<usize> {
        self.acceptors.iter().position(|&a| a == pid)
    }

    /// The place of `pid` among the members.
    pub(super) fn member(&self, pid: Pid) -> Option<usize> {
        self.members.iter().position(|&m| m == pid)
    }
}

/// The ring for messages to `dst`: the one for the fewest groups.
pub(super) fn ring_for(topologies: &[RingTopology], dst: GroupSet) -> Option<RingId> {
    let able = topologies.iter().enumerate().filter(|(_, ring)| dst.within(ring.set));
    able.min_by_key(|(id, ring)| (ring.set.len(), *id)).map(|(id, _)| id as RingId)
}

/// A position in the merged order of a learner: everything before it is merged. The papers' tuple `k`
/// follows from it: `MergeOrder::passed`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub(super) struct MergePosition {
    /// Instances of all rings of the learner that are merged, in merged order.
    pub(super) merged: u64,
    /// Messages of the next instance that are merged.
    pub(super) place: u64,
}

impl MergePosition {
    /// The position of the delivery of message number `place` (from 0) of the instance at this merge
    /// position.
    pub(super) const fn position(self) -> u64 {
        self.merged << PLACE_BITS | self.place
    }

    /// The merge position that a delivery's position names.
    pub(super) const fn of(position: u64) -> Self {
        Self { merged: position >> PLACE_BITS, place: position & ((1 << PLACE_BITS) - 1) }
    }
}

/// The deterministic merge as arithmetic [MRP 4]: `m` instances of the first ring, `m` of the next, and so
/// on, and round again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct MergeOrder {
    /// How many rings the learner subscribes to.
    pub(super) rings: u64,
    /// The papers' `M`.
    pub(super) m: u64,
}

impl MergeOrder {
    /// The ring and instance that come next at `point`.
    pub(super) const fn next(self, point: MergePosition) -> (usize, u64) {
        let turn = point.merged / self.m;
        let instance = turn / self.rings * self.m + point.merged % self.m;
        ((turn % self.rings) as usize, instance)
    }

    /// How many instances of `ring` are merged at `point`. With `x < y` the tuple's entry for `x` is never
    /// below that for `y` (predicate 1 of [MRP 5.2]).
    pub(super) const fn passed(self, point: MergePosition, ring: usize) -> u64 {
        // [MRP 3:3]
        let turn = point.merged / self.m;
        let (round, at) = (turn / self.rings, (turn % self.rings) as usize);
        if ring < at {
            (round + 1) * self.m
        } else if ring == at {
            round * self.m + point.merged % self.m
        } else {
            round * self.m
        }
    }

    /// The instance that ring `other` must reach before instance `instance` of `ring` can be
    /// merged.
    pub(super) const fn needs(self, ring: usize, instance: u64, other: usize) -> u64 {
        let round = instance / self.m;
        if other < ring { (round + 1) * self.m } else { round * self.m }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_are_for_each_group_and_for_all() {
        let cluster = ClusterShape::new(3, 3, 0).unwrap();
        let all = topologies(&cluster, RingKinds::Global, &[], RingTraversal::Nodes);
        assert_eq!(all.len(), 4);
        assert_eq!(all[3].members.len(), 9);
        assert_eq!(all[3].members[..4], [Pid(0), Pid(3), Pid(6), Pid(1)]);
        let far = topologies(&cluster, RingKinds::Global, &[], RingTraversal::Groups);
        assert_eq!(far[1].members, far[1].acceptors);
        assert_eq!(far[3].members[..4], [Pid(0), Pid(1), Pid(2), Pid(3)]);
        assert_eq!(far[3].acceptors, all[3].acceptors);
        assert_eq!(all[1].acceptors, [Pid(4), Pid(5), Pid(3)]);
        assert_eq!(ring_for(&all, GroupSet::one(Gid(2))), Some(2));
        assert_eq!(ring_for(&all, GroupSet::first(2)), Some(3));
        let pairs = topologies(&cluster, RingKinds::Pairs, &[], RingTraversal::Nodes);
        assert_eq!(pairs.len(), 7);
        assert_eq!(ring_for(&pairs, GroupSet::first(2)), Some(3));
        assert_eq!(ring_for(&pairs, GroupSet::first(3)), Some(6));
        let lone = topologies(&cluster, RingKinds::Independent, &[], RingTraversal::Nodes);
        assert_eq!((lone.len(), ring_for(&lone, GroupSet::first(2))), (3, None));
        let one = ClusterShape::new(1, 3, 0).unwrap();
        assert_eq!(topologies(&one, RingKinds::Global, &[], RingTraversal::Nodes).len(), 1);
    }

    #[test]
    fn declared_sets_have_rings_each_once_and_what_is_in_none_of_them_has_none() {
        let cluster = ClusterShape::new(4, 3, 0).unwrap();
        let declared = [GroupSet(0b0011), GroupSet(0b1110)];
        let lone = topologies(&cluster, RingKinds::Independent, &declared, RingTraversal::Nodes);
        assert_eq!(lone.len(), 6);
        assert_eq!(lone[5].acceptors.len(), 3);
        assert_eq!(ring_for(&lone, declared[0]), Some(4));
        assert_eq!(ring_for(&lone, GroupSet(0b1010)), Some(5), "within a larger one");
        assert_eq!(ring_for(&lone, GroupSet(0b0101)), None);
        let pairs = topologies(&cluster, RingKinds::Pairs, &declared, RingTraversal::Nodes);
        assert_eq!(pairs.len(), 4 + 6 + 1 + 1);
        let all = [cluster.all_groups()];
        assert_eq!(topologies(&cluster, RingKinds::Global, &all, RingTraversal::Nodes).len(), 5);
    }

    /// The merge step by step, as [MRP 4] describes it.
    fn slowly(rings: u64, m: u64, steps: u64) -> Vec<(usize, u64)> {
        let mut next = alloc::vec![0; rings as usize];
        let mut order = Vec::new();
        while (order.len() as u64) < steps {
            for (ring, next) in next.iter_mut().enumerate() {
                for _ in 0..m {
                    order.push((ring, *next));
                    *next += 1;
                }
            }
        }
        order.truncate(steps as usize);
        order
    }

    #[test]
    fn arithmetic_merges_as_the_slow_way_does() {
        for rings in 1..5 {
            for m in 1..5 {
                let order = MergeOrder { rings, m };
                let all = slowly(rings, m, 60);
                for merged in 0..60 {
                    let point = MergePosition { merged, place: 0 };
                    let (ring, instance) = all[merged as usize];
                    assert_eq!(order.next(point), (ring, instance));
                    for other in 0..rings as usize {
                        let count = |upto: u64| {
                            let before = &all[..upto as usize];
                            before.iter().filter(|(r, _)| *r == other).count() as u64
                        };
                        assert_eq!(order.passed(point, other), count(merged));
                        if other != ring {
                            assert_eq!(order.needs(ring, instance, other), count(merged));
                        }
                        if other > 0 {
                            assert!(order.passed(point, other - 1) >= order.passed(point, other));
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn positions_name_merge_positions_and_grow() {
        let point = MergePosition { merged: 77, place: 3 };
        assert_eq!(MergePosition::of(point.position()), point);
        assert!(MergePosition { merged: 78, place: 0 }.position() > point.position());
        assert_eq!(MergePosition::of(0), MergePosition::default());
    }
}

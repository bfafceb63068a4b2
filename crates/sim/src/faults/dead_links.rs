//! A link that fails and is never mended: between a client and a replica, or between replicas of two groups, in one
//! direction or both. All that live are connected otherwise.

use super::{Fault, FaultDrawing, FaultTime, Profile, Strike};
use crate::chooser::Concern;
use amcast_core::{About, ClusterShape, MediumKind, Pid, Time};

/// Whether runs of this profile may have dead links: of protocols over memory in whose groups a majority continues without
/// the others, which promise to deliver every message all the same.
pub(crate) fn has_dead_links(profile: Profile, about: &About, cluster: &ClusterShape) -> bool {
    let is_able = about.medium == MediumKind::Memory && about.capabilities.crash_tolerance;
    let (several, clients) = (cluster.groups() > 1, cluster.clients() > 0);
    profile.has(Profile::Network) && is_able && cluster.replicas() > 1 && (several || clients)
}

impl FaultDrawing<'_> {
    /// One link in every third run; drawn apart from all other faults.
    pub(super) fn dead_links(&mut self) {
        self.concern = Concern::DeadLinks;
        if self.pick(3) == 0 {
            let (a, b) = self.ends_in_different_groups();
            // Mostly before many messages were multicast.
            let within = if self.pick(4) == 3 { self.calm.0 } else { self.calm.0 / 16 + 1 };
            let at = FaultTime::Time(Time(self.pick(within)));
            let both = self.pick(2);
            self.strikes.push(Strike { at, fault: Fault::DeadLink { from: a, to: b } });
            if both == 1 {
                self.strikes.push(Strike { at, fault: Fault::DeadLink { from: b, to: a } });
            }
        }
        self.concern = Concern::Faults;
    }

    /// Two processes that are not of one group; the second one is a replica, mostly, and often leads.
    fn ends_in_different_groups(&mut self) -> (Pid, Pid) {
        let cluster = *self.cluster;
        let to = if self.pick(4) != 3 { self.likely_leader() } else { self.replica() };
        let group = cluster.group_of(to);
        let has_others = cluster.groups() > 1;
        let from = if cluster.clients() > 0 && (!has_others || self.pick(2) == 1) {
            cluster.client(self.pick(cluster.clients() as u64) as usize)
        } else {
            let mut others = cluster.all_groups().iter().filter(|&g| Some(g) != group);
            let other = others.nth(self.pick(cluster.groups() as u64 - 1) as usize);
            let other = other.expect("there is another group");
            let rank = if self.pick(4) != 3 { other.index() } else { self.pick(64) as usize };
            cluster.replica(other, rank % cluster.replicas())
        };
        if self.pick(4) == 3 { (to, from) } else { (from, to) }
    }
}

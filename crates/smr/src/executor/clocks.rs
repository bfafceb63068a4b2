//! Ordered time, from the clocks of a shard's replicas.
//!
//! Ordered time is the highest stamp so far, and a stamp is the time of some host's clock. One clock
//! that is hours ahead would end everybody's keys, and make everybody else's commands look old. So
//! each replica has its clock *reported* in the shard's order now and then ([`ClockReport`]), and
//! ordered time follows no stamp further than [`AHEAD_MAX_MS`] beyond the *agreed* time: the latest
//! one that a majority of the replicas reported, or went beyond. As long as a majority of the clocks
//! is right, it is never ahead of a right one; and as all this follows from the order, all replicas
//! have the same. Where replicas stop, it does not advance at the worst, and keys do not expire.

use crate::envelope::Stamp;
use amcast_core::Pid;

/// How far beyond the agreed time a stamp counts, in milliseconds: reports come every other second,
/// and may be late where there is much to order. Keys expire early by no more than this where the
/// clock of a gateway is ahead.
pub const AHEAD_MAX_MS: u64 = 10_000;

/// The latest report of each replica of one shard.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(super) struct ClockReports {
    /// In order of arrival of the first of each replica.
    reports: Vec<(Pid, Stamp)>,
    /// The time that a majority has reached, on each clock.
    agreed: Option<Stamp>,
}

impl ClockReports {
    /// Takes in a report, of one of `count` replicas. A clock that was set back counts as it is now.
    pub(super) fn hear(&mut self, replica: Pid, said: Stamp, count: usize) {
        // Once all have reported, another one is no replica of this shard.
        let has_room = self.reports.len() < count;
        match self.reports.iter_mut().find(|(pid, _)| *pid == replica) {
            Some((_, last)) => *last = said,
            None if has_room => self.reports.push((replica, said)),
            None => {}
        }
        self.agree(count);
    }

    /// Computes the time on which a majority of `count` replicas agrees, after reports were read from a snapshot.
    pub(super) fn agree(&mut self, count: usize) {
        let reached = |clock: fn(&Stamp) -> u64| {
            let mut said: Vec<u64> = self.reports.iter().map(|(_, stamp)| clock(stamp)).collect();
            said.sort_unstable_by(|a, b| b.cmp(a));
            said.get(count / 2).copied()
        };
        let agreed = (reached(|stamp| stamp.wall_ms), reached(|stamp| stamp.host_ms));
        self.agreed = match agreed {
            (Some(wall_ms), Some(host_ms)) => Some(Stamp { wall_ms, host_ms }),
            _ => None,
        };
    }

    /// The time that a majority of the replicas has reached, on each clock; none before as many
    /// reported.
    pub(super) const fn agreed(&self) -> Option<Stamp> {
        self.agreed
    }

    /// The latest report of this replica.
    pub(super) fn of(&self, replica: Pid) -> Option<Stamp> {
        self.reports.iter().find(|(pid, _)| *pid == replica).map(|(_, said)| *said)
    }

    /// The reports, in order of arrival of the first of each replica.
    pub(super) fn reports(&self) -> &[(Pid, Stamp)] {
        &self.reports
    }
}

/// The latest moment that a stamp counts as, given the agreed time.
pub(super) fn bound(agreed: Stamp) -> Stamp {
    let Stamp { wall_ms, host_ms } = agreed;
    Stamp {
        wall_ms: wall_ms.saturating_add(AHEAD_MAX_MS),
        host_ms: host_ms.saturating_add(AHEAD_MAX_MS),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(said: &[u64], count: usize) -> ClockReports {
        let mut clocks = ClockReports::default();
        for (pid, &ms) in said.iter().enumerate() {
            clocks.hear(Pid(pid as u32), Stamp { wall_ms: ms, host_ms: 2 * ms }, count);
        }
        clocks
    }

    #[test]
    fn a_minority_of_clocks_moves_the_agreed_time_beyond_no_right_one() {
        let agreed = |said: &[u64], count| heard(said, count).agreed().map(|s| s.wall_ms);
        assert_eq!((agreed(&[], 1), agreed(&[5], 1)), (None, Some(5)));
        assert_eq!((agreed(&[5], 2), agreed(&[5, 9], 2)), (None, Some(5)));
        assert_eq!((agreed(&[5], 3), agreed(&[5, 7200], 3)), (None, Some(5)));
        for said in [[5, 6, 7200], [7200, 6, 5], [5, 7200, 6], [0, 6, 7], [6, 7, 0]] {
            assert_eq!(agreed(&said, 3), Some(6), "{said:?}");
        }
        assert_eq!(agreed(&[9000, 5, 6, 7, 9000], 5), Some(7));
        assert_eq!(agreed(&[9000, 5, 6, 7], 4), Some(6), "three of four have reached it");
    }

    #[test]
    fn each_replica_counts_once_and_by_its_last_report() {
        let mut clocks = heard(&[10, 20, 7200], 3);
        clocks.hear(Pid(2), Stamp { wall_ms: 15, host_ms: 1 }, 3);
        assert_eq!(clocks.agreed(), Some(Stamp { wall_ms: 15, host_ms: 20 }), "each clock apart");
        clocks.hear(Pid(9), Stamp { wall_ms: 99, host_ms: 99 }, 3);
        assert_eq!(clocks.reports().len(), 3, "there is no such replica");
    }
}

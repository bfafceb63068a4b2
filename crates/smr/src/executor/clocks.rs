//! Ordered time, from the clocks of a shard's replicas.
//!
//! Ordered time is the highest stamp so far, and a stamp is the time of some host's clock. One clock
//! that is hours ahead would end everybody's keys, and make everybody else's commands look old. So
//! each replica has its clock *reported* in the shard's order now and then ([`ClockReport`]), and
//! ordered time follows no stamp further than [`AHEAD_MAX_MS`] beyond the *agreed* time: the latest
//! one that a majority of the replicas reported, or went beyond. As long as a majority of the clocks
//! is right, it is never ahead of a right one; and as all this follows from the order, all replicas
//! have the same. Where replicas stop, it does not advance at the worst, and keys do not expire.
//!
//! The wall clocks of a majority may be set back, by an hour say. Ordered time never goes back, and
//! would stand still for that hour. It advances all the same, at half the pace of the hosts' clocks,
//! which nobody sets: so do the stamps of gateways whose wall clocks are behind what they stamped.

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
fn bound(agreed: Stamp) -> Stamp {
    let Stamp { wall_ms, host_ms } = agreed;
    Stamp {
        wall_ms: wall_ms.saturating_add(AHEAD_MAX_MS),
        host_ms: host_ms.saturating_add(AHEAD_MAX_MS),
    }
}

/// Ordered time at a command with this stamp, given ordered time before it and the agreed time.
pub(super) fn advanced(now: Stamp, stamp: Stamp, agreed: Stamp) -> Stamp {
    slowed(now, now.max(stamp.min(bound(agreed))), agreed)
}

/// Ordered time once the replicas agree on a time, given ordered time before it.
pub(super) fn reported(now: Stamp, agreed: Stamp) -> Stamp {
    slowed(now, now.max(agreed), agreed)
}

/// The time that is next, or where the wall clocks of a majority are behind, a time at half the pace of the hosts' clocks. A leap of
/// these, behind which no majority was connected, counts for little: times to live that were given just before are not over.
fn slowed(now: Stamp, next: Stamp, agreed: Stamp) -> Stamp {
    if now.wall_ms <= bound(agreed).wall_ms {
        return next;
    }
    // Halves of moments, not of the time between them: what is left over counts at the next one.
    let half_ms = (next.host_ms / 2 - now.host_ms / 2).min(AHEAD_MAX_MS / 2);
    Stamp { wall_ms: now.wall_ms.saturating_add(half_ms), ..next }
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

    const HOUR_MS: u64 = 3_600_000;

    /// The wall clock of a gateway, given a time that continues from ordered time at half the pace.
    type WallClock = fn(u64) -> u64;

    /// Wall time that passes while the hosts' clocks advance by `ms`, in steps, and the wall clocks of a majority are an hour
    /// behind. The stamps are those of the given wall clocks in turn.
    fn passed_behind(ms: u64, step_ms: u64, walls: &[WallClock]) -> u64 {
        let start = Stamp { wall_ms: 10 * HOUR_MS, host_ms: 2 };
        let mut now = start;
        for (n, passed_ms) in (step_ms..=ms).step_by(step_ms as usize).enumerate() {
            let host_ms = start.host_ms + passed_ms;
            let agreed = Stamp { wall_ms: 9 * HOUR_MS + passed_ms, host_ms };
            let stamp = walls[n % walls.len()](start.wall_ms + passed_ms / 2);
            now = advanced(now, Stamp { wall_ms: stamp, host_ms }, agreed);
        }
        now.wall_ms - start.wall_ms
    }

    #[test]
    fn ordered_time_advances_at_half_the_pace_while_a_majority_of_wall_clocks_was_set_back() {
        let [slow, set_back, ahead]: [WallClock; 3] = [|ms| ms, |ms| ms - HOUR_MS, |_| u64::MAX];
        for step_ms in [1, 8, 125] {
            for walls in [&[slow][..], &[set_back], &[ahead], &[set_back, set_back, slow, ahead]] {
                assert_eq!(passed_behind(2000, step_ms, walls), 1000, "{step_ms} ms");
            }
        }
        let mut now = Stamp { wall_ms: 10 * HOUR_MS, host_ms: 2 };
        let agreed = |now: Stamp, ms| Stamp { wall_ms: 9 * HOUR_MS, host_ms: now.host_ms + ms };
        (0..1000).for_each(|_| now = reported(now, agreed(now, 3)));
        assert_eq!(now.wall_ms, 10 * HOUR_MS + 1500, "reports, where nothing else comes");
        let leap = reported(now, agreed(now, HOUR_MS));
        assert_eq!(leap.wall_ms, now.wall_ms + AHEAD_MAX_MS / 2, "no majority was connected");
        let right = Stamp { wall_ms: now.wall_ms - AHEAD_MAX_MS, host_ms: now.host_ms + 1000 };
        assert_eq!(reported(now, right).wall_ms, now.wall_ms, "a majority is right");
        assert_eq!(advanced(now, Stamp { wall_ms: u64::MAX, ..right }, right).wall_ms, now.wall_ms);
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

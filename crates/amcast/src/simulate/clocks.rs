//! The clocks of simulated hosts, some of which are wrong.

use super::time::MILLISECOND;
use amcast_core::Time;
use amcast_core::rng::Rng;
use amcast_smr::{AHEAD_MAX_MS, Stamp};

/// The time of correct clocks when a run begins.
const BEGIN_MS: u64 = 100_000_000;

/// By how much clocks are wrong, one of which is drawn: within the bound of what counts, at it, and far beyond it.
const WRONG_MS: [i64; 6] = [4_000, -4_000, 9_999, 3_600_000, -3_600_000, 50_000_000];

/// The clock of one host.
#[derive(Clone, Copy, Debug)]
pub(super) struct SimulatedHostClock {
    /// By how much it is wrong.
    wrong_ms: i64,
    /// By how much its stamps are put right, since ordered time refused one.
    corrected_ms: i64,
}

impl SimulatedHostClock {
    /// A right clock.
    pub(super) const RIGHT: Self = Self { wrong_ms: 0, corrected_ms: 0 };

    /// A clock that is wrong, within the bound or beyond it.
    pub(super) fn wrong(rng: &mut Rng) -> Self {
        Self { wrong_ms: WRONG_MS[rng.below(WRONG_MS.len() as u64) as usize], ..Self::RIGHT }
    }

    /// The clock's present time.
    pub(super) fn stamp(&self, now: Time) -> Stamp {
        let wall_ms = right_ms(now).saturating_add_signed(self.wrong_ms);
        Stamp { wall_ms, host_ms: wall_ms.saturating_add_signed(self.corrected_ms) }
    }

    /// A stamp was refused, since ordered time is this. As [`amcast_node::gateway::GatewayClock::refused`] without its later trials.
    pub(super) fn refused(&mut self, now: Time, ordered_ms: u64) {
        let own_ms = right_ms(now).saturating_add_signed(self.wrong_ms);
        let ahead_ms = ordered_ms as i64 - own_ms as i64;
        self.corrected_ms = if own_ms.abs_diff(ordered_ms) <= AHEAD_MAX_MS { 0 } else { ahead_ms };
    }
}

/// The time of correct clocks.
pub(super) fn right_ms(now: Time) -> u64 {
    BEGIN_MS + now.0 / MILLISECOND.0
}

/// The clocks of a run.
pub(super) struct SimulatedClocks {
    /// Of the nodes' hosts, by rank. Fewer than half of them are wrong.
    pub(super) nodes: Vec<SimulatedHostClock>,
    /// Of the gateways' hosts, by client.
    pub(super) gateways: Vec<SimulatedHostClock>,
}

impl SimulatedClocks {
    /// Draws them: where nodes report no clocks all hosts have one.
    pub(super) fn draw(nodes: usize, gateways: usize, reports: bool, rng: &mut Rng) -> Self {
        let mut it = Self {
            nodes: vec![SimulatedHostClock::RIGHT; nodes],
            gateways: vec![SimulatedHostClock::RIGHT; gateways],
        };
        if reports && rng.below(2) == 0 {
            for _ in 0..(nodes - 1) / 2 {
                it.nodes[rng.below(nodes as u64) as usize] = SimulatedHostClock::wrong(rng);
            }
            for gateway in &mut it.gateways {
                if rng.below(3) == 0 {
                    *gateway = SimulatedHostClock::wrong(rng);
                }
            }
        }
        it
    }
}

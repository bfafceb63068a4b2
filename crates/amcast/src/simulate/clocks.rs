//! The clocks of simulated hosts, some of which are wrong, or are set in the midst of a run.
//!
//! A host has a wall clock, which is set now and then, and a clock of its own, which nobody sets; only the former counts for keys that
//! expire. A clock of a node is set when its time comes or, if that is sooner, when the node is back from an outage: a machine sets its
//! clock as it starts. A gateway may start again at that moment, and then remembers nothing of its former stamps.

use super::time::MILLISECOND;
use amcast_core::rng::Rng;
use amcast_core::{Span, Time};
use amcast_smr::{AHEAD_MAX_MS, Stamp};

/// The time of correct clocks when a run begins.
const BEGIN_MS: u64 = 100_000_000;

/// By how much clocks are wrong, one of which is drawn: within the bound of what counts, at it, and far beyond it.
const WRONG_MS: [i64; 6] = [4_000, -4_000, 9_999, 3_600_000, -3_600_000, 50_000_000];

/// By how much all clocks are set, one of which is drawn: back, since keys expire when those of a majority leap.
const BACK_MS: [i64; 3] = [-4_000, -60_000, -3_600_000];

/// A wall clock that is set.
#[derive(Clone, Copy, Debug)]
struct ClockStep {
    at: Time,
    by_ms: i64,
    /// A gateway starts again then.
    restarts: bool,
}

/// The clocks of one host.
#[derive(Clone, Copy, Debug)]
pub(super) struct SimulatedHostClock {
    /// By how much they are wrong.
    wrong_ms: i64,
    /// By how much its stamps are put right, since ordered time refused one.
    corrected_ms: i64,
    step: Option<ClockStep>,
    /// The wall time of a gateway's last stamp, and the host's time then.
    steady: Option<(u64, u64)>,
}

impl SimulatedHostClock {
    /// Right clocks.
    pub(super) const RIGHT: Self = Self { wrong_ms: 0, corrected_ms: 0, step: None, steady: None };

    /// A clock that is wrong, within the bound or beyond it.
    pub(super) fn wrong(rng: &mut Rng) -> Self {
        Self { wrong_ms: one_of(&WRONG_MS, rng), ..Self::RIGHT }
    }

    /// The clocks' present time, as it is.
    pub(super) fn stamp(&self, now: Time) -> Stamp {
        let own_ms = right_ms(now).saturating_add_signed(self.wrong_ms);
        let step = self.step.filter(|step| step.at <= now).map_or(0, |step| step.by_ms);
        Stamp {
            wall_ms: own_ms.saturating_add_signed(step),
            host_ms: own_ms.saturating_add_signed(self.corrected_ms),
        }
    }

    /// The stamp of a gateway, whose wall time advances at half the pace while its clock is behind it. As
    /// [`amcast_node::gateway::GatewayClock::now`].
    pub(super) fn stamp_of_gateway(&mut self, now: Time) -> Stamp {
        if let Some(step) = self.step.as_mut().filter(|step| step.at <= now && step.restarts) {
            step.restarts = false;
            self.corrected_ms = 0;
            self.steady = None;
        }
        let stamp = self.stamp(now);
        let own_ms = right_ms(now).saturating_add_signed(self.wrong_ms);
        let (before_ms, then_ms) = self.steady.unwrap_or((0, own_ms));
        let wall_ms = stamp.wall_ms.max(before_ms + own_ms.saturating_sub(then_ms) / 2);
        self.steady = Some((wall_ms, own_ms));
        Stamp { wall_ms, ..stamp }
    }

    /// Its node is back from an outage: a clock that is set in this run is set now, if it was not before.
    pub(super) fn is_back(&mut self, now: Time) {
        self.step.iter_mut().for_each(|step| step.at = step.at.min(now));
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

    /// Has clocks set in the midst of every third run: those of any gateways, and of fewer than half of the nodes, the wrong ones
    /// included; or all of them back. Whether any are.
    pub(super) fn draw_steps(&mut self, reports: bool, rng: &mut Rng) -> bool {
        if !reports || rng.below(3) != 0 {
            return false;
        }
        // Some magnitudes, each as likely: the end of a run is not known before.
        let time = |rng: &mut Rng| {
            let scale = MILLISECOND.0 << (2 + rng.below(15));
            Time(scale + rng.below(scale))
        };
        if rng.below(3) == 0 {
            let (at, by_ms) = (time(rng), one_of(&BACK_MS, rng));
            for clock in self.nodes.iter_mut().chain(&mut self.gateways) {
                let later = Span(rng.below(1 + at.0 / 8));
                let restarts = rng.below(2) == 0;
                clock.step = Some(ClockStep { at: at + later, by_ms, restarts });
            }
            return true;
        }
        let nodes = self.nodes.len();
        let mut may: Vec<usize> =
            (0..nodes).filter(|&rank| self.nodes[rank].wrong_ms != 0).collect();
        while may.len() < (nodes - 1) / 2 {
            let rank = rng.below(nodes as u64) as usize;
            if !may.contains(&rank) {
                may.push(rank);
            }
        }
        let of_nodes = self.nodes.iter_mut().enumerate().filter(|(rank, _)| may.contains(rank));
        for clock in of_nodes.map(|(_, clock)| clock).chain(&mut self.gateways) {
            if rng.below(2) == 0 {
                let (at, by_ms) = (time(rng), one_of(&WRONG_MS, rng));
                clock.step = Some(ClockStep { at, by_ms, restarts: rng.below(2) == 0 });
            }
        }
        true
    }
}

fn one_of(all: &[i64], rng: &mut Rng) -> i64 {
    all[rng.below(all.len() as u64) as usize]
}

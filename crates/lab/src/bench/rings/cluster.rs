//! Starts the processes of a measurement of rings, and gathers their reports.

use super::{MEMBERS, RingLoad, RingResult};
use crate::bench::child_process::answers;
use crate::bench::free_ports::free_addresses;
use crate::bench::{Latency, Spread, histogram};
use amcast_node::clock;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::time::Duration;

/// How long processes have to find each other before they multicast, in nanoseconds.
const START_NS: u64 = 700_000_000;

/// How long members may take beyond the time of the measurement.
const PATIENCE: Duration = Duration::from_secs(120);

/// At most so many points of a distribution are kept.
const CDF_POINTS: usize = 200;

/// The task of a member, on its standard input.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct RingTask {
    pub(super) load: RingLoad,
    pub(super) rank: usize,
    pub(super) id: u64,
    pub(super) addresses: Vec<SocketAddr>,
    /// On the host's clock.
    pub(super) begin_ns: u64,
}

/// The report of a member at its end.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct RingReport {
    /// Delivered while it was measured, of all rings.
    pub(super) messages: u64,
    pub(super) bytes: u64,
    /// Nanoseconds, and how many messages took so long.
    pub(super) latencies: Vec<(u64, u64)>,
    pub(super) cores: f64,
    pub(super) left_behind: u64,
    /// Whether it coordinates the first ring.
    pub(super) leads: bool,
    /// By ring: of the order, now and then.
    pub(super) digests: Vec<Vec<u64>>,
}

/// Runs the load with fresh processes. Their data on disk are theirs alone: the directory must be
/// empty, and its contents afterwards are of no use.
///
/// # Errors
/// With what could not be set up, or that members delivered in different orders.
pub fn run(load: &RingLoad) -> Result<RingResult, String> {
    super::member::config(load)?;
    let addresses = free_addresses(MEMBERS)?;
    let id = u64::from(addresses[0].port()) << 32 | u64::from(std::process::id());
    let begin_ns = clock::now().0 + START_NS;
    let task =
        |rank| RingTask { load: load.clone(), rank, id, addresses: addresses.clone(), begin_ns };
    let within = Duration::from_secs_f64(load.warm_up_s + load.duration_s) + PATIENCE;
    let said: Vec<RingReport> = answers(&["rings", "--member"], (0..MEMBERS).map(task), within)?;
    agree(&said)?;
    measured(load, &said)
}

/// Whether all delivered in the same order.
fn agree(said: &[RingReport]) -> Result<(), String> {
    for (one, other) in said.iter().zip(&said[1..]) {
        for (mine, theirs) in one.digests.iter().zip(&other.digests) {
            let both = mine.len().min(theirs.len());
            if mine[..both] != theirs[..both] {
                return Err("members delivered in different orders".to_string());
            }
        }
    }
    Ok(())
}

fn measured(load: &RingLoad, said: &[RingReport]) -> Result<RingResult, String> {
    let mut latencies = histogram();
    for &(value, count) in said.iter().flat_map(|one| &one.latencies) {
        latencies.record_n(value, count).map_err(|e| e.to_string())?;
    }
    // The deliveries of most: one that fell behind did not deliver all.
    let middle = |of: fn(&RingReport) -> u64| {
        let all = Spread::of(said.iter().map(|one| of(one) as f64));
        all.map_or(0.0, |all| all.median) / load.duration_s
    };
    let per_second = middle(|one| one.messages);
    let cores: Vec<f64> = said.iter().map(|one| one.cores).collect();
    let leading = said.iter().find(|one| one.leads);
    let points = 1..=CDF_POINTS;
    let part = |n: usize| n as f64 / CDF_POINTS as f64;
    Ok(RingResult {
        per_second,
        megabytes_per_second: middle(|one| one.bytes) / 1e6,
        latency_ns: Latency::of(&latencies),
        cdf: points.map(|n| (latencies.value_at_quantile(part(n)), part(n))).collect(),
        coordinator_cores: leading.map_or(f64::NAN, |one| one.cores),
        cpu_us_per_message: cores.iter().sum::<f64>() * 1e6 / per_second,
        cores,
        left_behind: said.iter().map(|one| one.left_behind).sum(),
        deliveries: said.iter().map(|one| one.messages).sum(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_that_delivered_in_different_orders_do_not_agree() {
        let of = |digests: &[u64]| RingReport {
            messages: 0,
            bytes: 0,
            latencies: Vec::new(),
            cores: 0.0,
            left_behind: 0,
            leads: false,
            digests: vec![digests.to_vec()],
        };
        assert!(agree(&[of(&[1, 2, 3]), of(&[1, 2]), of(&[1, 2, 3])]).is_ok());
        assert!(agree(&[of(&[1, 2]), of(&[1, 2]), of(&[1, 4])]).is_err());
    }
}

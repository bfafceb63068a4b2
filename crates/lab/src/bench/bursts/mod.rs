//! Bursts [TO 4.2]: in each of some rounds every process of a group broadcasts a burst of messages,
//! and waits until it has delivered the bursts of all.
//!
//! Latency is of a process's own messages, from the broadcast to its own delivery, averaged over its
//! messages and then over processes. Throughput is the sum, over processes, of what one delivers each
//! second from its first broadcast to the end of its last round: a process that was late sees rounds
//! of nearly no time, and a mean over rounds would count these most. `simulated.rs` runs them in the simulator, `cluster.rs`
//! as OS processes over a real network, each of which is `member.rs`.

mod cluster;
mod member;
mod simulated;

pub use cluster::{BurstMedium, run as run_on};
pub use member::{run as run_member, settings};
pub use simulated::run as run_simulated;

use amcast::choose::enforced;
use amcast_core::parameters;
use amcast_core::{Config, ConfigError, Datagrams, Entry, RawConfig, Time};
use amcast_protocols::catalog::CATALOG;
use serde::{Deserialize, Serialize};

/// Processes in the paper's measurements.
pub const MEMBERS: usize = 4;
/// Rounds of one repeat.
pub const ROUNDS: usize = 10;
/// A sender's identifier and a timestamp.
pub const PAYLOAD_BYTES: usize = 8;

/// Own messages that a process may have on the way: more than a burst.
pub const WINDOW: usize = 128;

/// How often the largest size is done before all that counts, by ours and by others alike: what a
/// process does first is slow, and what it did while others had their turn is no more in the caches.
pub const WARM_UPS: usize = 20;

/// The bursts that measure these sizes: the first [`WARM_UPS`] do not count.
pub fn warmed_up(bursts: &[usize]) -> Vec<usize> {
    let largest = bursts.iter().max().copied().unwrap_or(1);
    std::iter::repeat_n(largest, WARM_UPS).chain(bursts.iter().copied()).collect()
}

/// One repeat: what all processes saw, averaged.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct BurstRepeat {
    /// The mean latency, in microseconds.
    pub latency_us: f64,
    /// Deliveries each second of the system.
    pub per_second: f64,
}

impl BurstRepeat {
    /// Of what each process saw.
    pub(super) fn of(all: &[Self]) -> Self {
        let latencies: f64 = all.iter().map(|one| one.latency_us).sum();
        Self {
            latency_us: latencies / all.len().max(1) as f64,
            per_second: all.iter().map(|one| one.per_second).sum(),
        }
    }
}

/// The mean over repeats, and the extremes.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct RepeatRange {
    /// The mean.
    pub mean: f64,
    /// The least of one repeat.
    pub least: f64,
    /// The most of one repeat.
    pub most: f64,
}

impl RepeatRange {
    fn of(values: impl Iterator<Item = f64> + Clone) -> Self {
        let count = values.clone().count().max(1) as f64;
        Self {
            mean: values.clone().sum::<f64>() / count,
            least: values.clone().fold(f64::INFINITY, f64::min),
            most: values.fold(0.0, f64::max),
        }
    }
}

/// The measurement of one protocol with bursts of one size.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BurstPoint {
    /// The protocol.
    pub protocol: String,
    /// `sim`, `tcp` or `udp`.
    pub medium: String,
    /// The size of a burst.
    pub burst: usize,
    /// Mean latencies, in microseconds.
    pub latency_us: RepeatRange,
    /// Deliveries each second of the system.
    pub per_second: RepeatRange,
    /// How many repeats.
    pub repeats: usize,
}

impl BurstPoint {
    /// Of some repeats.
    pub fn of(protocol: &str, medium: &str, burst: usize, repeats: &[BurstRepeat]) -> Self {
        Self {
            protocol: protocol.to_string(),
            medium: medium.to_string(),
            burst,
            latency_us: RepeatRange::of(repeats.iter().map(|r| r.latency_us)),
            per_second: RepeatRange::of(repeats.iter().map(|r| r.per_second)),
            repeats: repeats.len(),
        }
    }
}

/// The protocols that broadcast in total order: those whose promises are a specification of it.
pub fn rows() -> impl Iterator<Item = &'static dyn Entry> {
    CATALOG.iter().copied().filter(|entry| enforced(*entry).is_some())
}

/// Those of them that this transport can carry.
pub fn rows_over(medium: BurstMedium) -> impl Iterator<Item = &'static dyn Entry> {
    let carries = move |entry: &&dyn Entry| match medium {
        BurstMedium::Tcp => true,
        BurstMedium::Udp => entry.capabilities().datagrams != Datagrams::Never,
    };
    rows().filter(carries)
}

/// A group of [`MEMBERS`] in which a burst leaves at once.
///
/// # Errors
/// When the protocol is none of a group that broadcasts.
pub fn config(entry: &dyn Entry, set: &[(String, String)]) -> Result<Config, ConfigError> {
    let window = parameters::WINDOW.setting(WINDOW);
    let set = std::iter::once(window).chain(set.iter().cloned()).collect();
    let raw = RawConfig { groups: 1, replicas: MEMBERS, clients: 0, set, ..RawConfig::default() };
    let config = raw.check(entry.about().params)?;
    amcast_core::entry::build_all(entry, &config)?;
    Ok(config)
}

/// The observations of one process of bursts of one size.
#[derive(Clone, Debug)]
struct BurstWatch {
    burst: usize,
    /// When each own message was broadcast.
    casts: Vec<Time>,
    own: usize,
    delivered: usize,
    latency_ns: u64,
    /// The last delivery.
    last: Time,
}

impl BurstWatch {
    fn new(burst: usize) -> Self {
        let casts = Vec::with_capacity(burst * ROUNDS);
        Self { burst, casts, own: 0, delivered: 0, latency_ns: 0, last: Time::ZERO }
    }

    /// Whether the next message may be broadcast: the rounds before are delivered.
    fn may_cast(&self) -> bool {
        let round = self.casts.len() / self.burst;
        round < ROUNDS && self.delivered >= round * self.burst * MEMBERS
    }

    fn is_over(&self) -> bool {
        self.delivered >= ROUNDS * self.burst * MEMBERS
    }

    fn cast(&mut self, now: Time) {
        self.casts.push(now);
    }

    fn deliver(&mut self, now: Time, own: bool) {
        if own {
            self.latency_ns += self.casts.get(self.own).map_or(0, |cast| now.since(*cast).0);
            self.own += 1;
        }
        self.delivered += 1;
        self.last = now;
    }

    fn seen(&self) -> BurstRepeat {
        let lasted = self.casts.first().map_or(0, |first| self.last.since(*first).0);
        BurstRepeat {
            latency_us: self.latency_ns as f64 / self.own.max(1) as f64 / 1e3,
            per_second: self.delivered as f64 * 1e9 / lasted.max(1) as f64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_of_a_transport_takes_its_settings() {
        let names = |medium| rows_over(medium).map(|row| row.name()).collect::<Vec<_>>();
        let (tcp, udp) = (names(BurstMedium::Tcp), names(BurstMedium::Udp));
        assert_eq!((tcp.len(), udp.len()), (16, 16), "{tcp:?} {udp:?}");
        for medium in [BurstMedium::Tcp, BurstMedium::Udp] {
            for row in rows_over(medium) {
                let set = settings(row, medium);
                config(row, &set).unwrap_or_else(|e| panic!("{}: {e}", row.name()));
                let lane = set.iter().any(|(name, _)| parameters::LANE.param().name == name);
                assert!(lane || !udp.contains(&row.name()), "{} is not told", row.name());
            }
        }
    }

    #[test]
    fn latency_is_of_own_messages_and_throughput_of_whole_rounds() {
        let mut watch = BurstWatch::new(2);
        let mut now = Time::ZERO;
        for _ in 0..ROUNDS {
            assert!(watch.may_cast() && !watch.is_over());
            watch.cast(now);
            watch.cast(now);
            assert!(!watch.may_cast(), "the round is not over");
            // One after the other, a microsecond each; own ones are the first and the last.
            for n in 0..2 * MEMBERS {
                now = Time(now.0 + 1000);
                watch.deliver(now, n == 0 || n == 2 * MEMBERS - 1);
            }
        }
        assert!(watch.is_over() && !watch.may_cast());
        let seen = watch.seen();
        assert!((seen.latency_us - 4.5).abs() < 1e-9, "{seen:?}");
        assert!((seen.per_second - 1e6).abs() < 1.0, "{seen:?}");
        let system = BurstRepeat::of(&[seen; MEMBERS]);
        assert!((system.per_second - 4e6).abs() < 1.0 && system.latency_us == seen.latency_us);
    }
}

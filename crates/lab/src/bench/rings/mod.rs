//! Rings of OS processes on this machine, and no service on them [MRP 8.3.1]: each process is
//! proposer, acceptor and learner, and keeps so many messages on the way, or sends at a given rate.
//!
//! Latency is from the multicast (or, at a given rate, from when it was due) to the delivery at the
//! process that multicast. Each process judges that the messages of each sender come without gap and
//! in order, and all of them that they delivered in one order. `cluster.rs` starts the processes, each
//! of which is `member.rs`; `deliveries.rs` is its notes. `simulated.rs` runs rings in the simulator.

mod cluster;
mod deliveries;
mod member;
mod simulated;

pub use cluster::run;
pub use member::run as run_member;
pub use simulated::{SimulatedRingResult, SimulatedRings, run as run_simulated};

use super::Latency;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Processes in each ring.
pub const MEMBERS: usize = 3;

/// The load of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RingLoad {
    /// The protocol.
    pub protocol: String,
    /// Rings that have a load; where there are several there is one more for all groups.
    pub rings: usize,
    /// Bytes of each payload.
    pub payload: usize,
    /// Messages that each process has on the way in each ring.
    pub outstanding: usize,
    /// Messages a second of each process in each ring; then `outstanding` only bounds them.
    pub rate: Option<u64>,
    /// Seconds before measuring.
    pub warm_up_s: f64,
    /// Seconds of measuring.
    pub duration_s: f64,
    /// Parameters of the protocol.
    pub set: Vec<(String, String)>,
    /// Where processes keep what they must not forget, if the protocol does.
    pub data: Option<PathBuf>,
}

/// The result of a run.
#[derive(Clone, Debug, Serialize)]
pub struct RingResult {
    /// Messages ordered each second, of all rings.
    pub per_second: f64,
    /// Payload of these, in megabytes (10^6 bytes).
    pub megabytes_per_second: f64,
    /// Of all processes.
    pub latency_ns: Latency,
    /// Which part of the messages took no longer: nanoseconds, and the part.
    pub cdf: Vec<(u64, f64)>,
    /// Cores that each process kept busy.
    pub cores: Vec<f64>,
    /// Cores that the process kept busy which coordinated the first ring at the end.
    pub coordinator_cores: f64,
    /// Processor time of all processes for one message, in microseconds.
    pub cpu_us_per_message: f64,
    /// How often a process fell so far behind the others that it got a state instead of messages.
    pub left_behind: u64,
    /// Deliveries that were judged.
    pub deliveries: u64,
}

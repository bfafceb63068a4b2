//! Multicasts of clients over TCP, for protocols that pass messages and have one process a group [TRAM 8.6]: each group is an
//! OS process of this machine with connections of its own, and so is each client.

mod member;

pub use member::run as run_member;

use super::child_process::{ChildOutput, ChildProcess, gather};
use super::delivered::DeliveryDigest;
use super::free_ports::free_addresses;
use super::part::PartResult;
use super::{BenchPlan, BenchResult, histogram, shared};
use amcast_core::Entry;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::time::Duration;

/// How long processes may take to be ready, and to write their figures beyond the time of the measurement.
const PATIENCE: Duration = Duration::from_secs(60);

/// The task of one process.
#[derive(Serialize, Deserialize)]
struct GroupTask {
    plan: BenchPlan,
    cluster_id: u64,
    /// Which process of the protocol it is.
    process: usize,
    /// Where each process listens, by number.
    addresses: Vec<SocketAddr>,
}

/// Adds to a plan the settings for as many multicasts on the way as its load has.
pub fn completed(mut plan: BenchPlan) -> BenchPlan {
    let window = amcast_core::parameters::WINDOW.setting(plan.load.outstanding.max(1));
    if plan.set.iter().all(|(name, _)| *name != window.0) {
        plan.set.push(window);
    }
    plan
}

/// Measures a plan that was [`completed`].
///
/// # Errors
/// With what could not be set up, or with what was delivered in a wrong order.
pub fn run(entry: &dyn Entry, plan: &BenchPlan) -> Result<BenchResult, String> {
    let config = plan.config(entry).map_err(|e| e.to_string())?;
    let cluster = config.cluster();
    let addresses = free_addresses(cluster.processes())?;
    let port = addresses.first().map_or(0, |at| u64::from(at.port()));
    let cluster_id = port << 32 | u64::from(std::process::id());
    let mut members = Vec::new();
    for process in 0..cluster.processes() {
        let (plan, addresses) = (plan.clone(), addresses.clone());
        let task = GroupTask { plan, cluster_id, process, addresses };
        let text = serde_json::to_string(&task).map_err(|e| e.to_string())?;
        let mut member =
            ChildProcess::start_this_program("a group's process", &["bench", "--group-member"])?;
        member.tell(&text)?;
        members.push(member);
    }
    let ready = gather(&mut members, PATIENCE, ChildOutput::line)?;
    if let Some(line) = ready.iter().find(|line| *line != "ready") {
        return Err(format!("a process of the measurement wrote {line:?}"));
    }
    let replicas = cluster.groups() * cluster.replicas();
    let clients = &mut members[replicas..];
    clients.iter_mut().try_for_each(|client| client.tell("go"))?;
    let within = Duration::from_secs_f64(plan.load.warm_up_s + plan.load.duration_s) + PATIENCE;
    let of_clients = gather(clients, within, ChildOutput::sized)?;
    let groups = &mut members[..replicas];
    groups.iter_mut().try_for_each(|group| group.tell("end"))?;
    let of_groups = gather(groups, PATIENCE, ChildOutput::sized)?;
    drop(members);
    let mut all: Vec<DeliveryDigest> = vec![DeliveryDigest::default(); cluster.processes()];
    let mut latencies = histogram();
    for (process, bytes) in of_groups.iter().chain(&of_clients).enumerate() {
        let PartResult { kept, latencies: of_it } = shared::taken(bytes)?;
        latencies.add(of_it).map_err(|e| e.to_string())?;
        all[process] = kept.into_iter().next().unwrap_or_default();
    }
    BenchResult::judged(cluster, plan, &all, &latencies)
}

//! Starts the nodes of a measurement, and gathers their reports.

use super::{NodeFigures, WireTask};
use crate::bench::child_process::{ChildOutput, ChildProcess, gather};
use crate::bench::delivered::{DeliveryDigest, destination_sets};
use crate::bench::free_ports::free_addresses;
use crate::bench::scratch_dir::ScratchDir;
use crate::bench::{BenchPlan, BenchResult, EarlyCounts, Latency, histogram, judge};
use amcast_core::Config;
use std::path::Path;
use std::time::Duration;

/// How long nodes may take to be ready, and to write their figures beyond the time of the measurement.
const PATIENCE: Duration = Duration::from_secs(120);

/// Measures a plan that was [`super::completed`]. Logs, where the protocol keeps any, are in a
/// directory of their own in `base`, which is removed afterwards.
///
/// # Errors
/// With what could not be set up, or with what was delivered in a wrong order.
pub fn run(config: &Config, plan: &BenchPlan, base: &Path) -> Result<BenchResult, String> {
    let nodes = plan.replicas;
    let directory = ScratchDir::under(base, "logs", "give")?;
    let addresses = free_addresses(nodes)?;
    let port = addresses.first().map_or(0, |at| u64::from(at.port()));
    let cluster_id = port << 32 | u64::from(std::process::id());
    let mut members = Vec::new();
    for rank in 0..nodes {
        let logs = directory.path().join(format!("n{rank}"));
        std::fs::create_dir_all(&logs).map_err(|e| format!("{}: {e}", logs.display()))?;
        let (plan, addresses) = (plan.clone(), addresses.clone());
        let task = WireTask { plan, cluster_id, rank, addresses, logs };
        let text = serde_json::to_string(&task).map_err(|e| e.to_string())?;
        let mut member = ChildProcess::start_this_program("a node", &["bench", "--node"])?;
        member.tell(&text)?;
        members.push(member);
    }
    let ready = gather(&mut members, PATIENCE, ChildOutput::line)?;
    if let Some(line) = ready.iter().find(|line| *line != "ready") {
        return Err(format!("a node wrote {line:?}"));
    }
    members.iter_mut().try_for_each(|member| member.tell("go"))?;
    let within = Duration::from_secs_f64(plan.load.warm_up_s + plan.load.duration_s) + PATIENCE;
    let saw = gather(&mut members, within, ChildOutput::sized)?;
    drop(members);
    let read =
        |bytes: &Vec<u8>| NodeFigures::read(bytes).ok_or("a node wrote figures of another form");
    let saw = saw.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    measured(config, plan, saw)
}

fn measured(
    config: &Config,
    plan: &BenchPlan,
    saw: Vec<NodeFigures>,
) -> Result<BenchResult, String> {
    let cluster = config.cluster();
    let mut all: Vec<DeliveryDigest> = vec![DeliveryDigest::default(); cluster.processes()];
    let (mut latencies, mut nodes) = (histogram(), Vec::new());
    let mut early = EarlyCounts::default();
    for (rank, saw) in saw.into_iter().enumerate() {
        latencies.add(saw.latencies).map_err(|e| e.to_string())?;
        nodes.push(saw.used);
        early.add(&saw.early);
        for (group, kept) in cluster.all_groups().iter().zip(saw.kept) {
            all[cluster.replica(group, rank).index()] = kept;
        }
    }
    let holds = judge(cluster, &all)?;
    Ok(BenchResult {
        multicasts: latencies.len(),
        per_second: latencies.len() as f64 / plan.load.duration_s,
        latency_ns: Latency::of(&latencies),
        deliveries: all.iter().map(DeliveryDigest::count).sum(),
        deliveries_judged: all.iter().map(|kept| kept.first().len() as u64).sum(),
        destination_sets: destination_sets(&all),
        holds,
        early: plan.load.early.then_some(early),
        nodes,
    })
}

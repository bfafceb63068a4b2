//! `amcast status`: a running cluster.

use super::Failure;
use crate::service::ask;
use amcast_runtime::control::{NodeStatus, ReplicaStatus};
use amcast_runtime::home::{Fronts, Home};
use serde::Serialize;
use std::path::PathBuf;

/// Shows the groups, leaders and replicas of a running cluster.
#[derive(clap::Args)]
pub(super) struct Args {
    /// The cluster's directory [the cluster that was started last]
    #[arg(long)]
    data: Option<PathBuf>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// A cluster as the status says.
#[derive(Serialize)]
struct ClusterStatus {
    data: PathBuf,
    protocol: String,
    fronts: Option<Fronts>,
    ready: bool,
    groups: Vec<GroupStatus>,
    nodes: Vec<Place>,
}

#[derive(Serialize)]
struct GroupStatus {
    group: String,
    leader: Option<String>,
    epoch: u64,
    /// The position that some replica knows to be decided.
    decided: u64,
    /// How far the last of the replicas that answer is behind that, in positions.
    lag: u64,
    replicas_fit: usize,
    replicas: usize,
    items: u64,
}

#[derive(Serialize)]
struct Place {
    name: String,
    /// What it said; none if it does not answer.
    status: Option<NodeStatus>,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let home = Home::find(args.data.as_deref()).map_err(Failure::failed)?;
    let file = home.file().map_err(Failure::failed)?;
    let said = ask(&home, file.replicas);
    if said.iter().all(Option::is_none) {
        let at = home.path().display();
        return Err(Failure::Failed(format!("no node of the cluster in {at} answers")));
    }
    let groups: Vec<_> = (0..file.shards).map(|g| group(g, &said, file.replicas)).collect();
    let ready = said.iter().all(|n| n.as_ref().is_some_and(|n| n.ready));
    let nodes = file.nodes().zip(said).map(|(name, status)| Place { name, status }).collect();
    let cluster = ClusterStatus {
        data: home.path().to_path_buf(),
        protocol: file.protocol,
        fronts: home.fronts().ok(),
        ready,
        groups,
        nodes,
    };
    if args.json {
        let text = serde_json::to_string(&cluster).map_err(Failure::failed)?;
        println!("{text}");
    } else {
        print(&cluster);
    }
    Ok(())
}

fn group(g: usize, said: &[Option<NodeStatus>], replicas: usize) -> GroupStatus {
    let all = || said.iter().flatten().filter_map(move |n| n.replicas.get(g));
    let fit = || all().filter(|r| r.fit);
    let newest: Option<&ReplicaStatus> = fit().max_by_key(|r| r.epoch);
    let decided = all().map(|r| r.decided.max(r.delivered)).max().unwrap_or(0);
    let slowest = all().map(|r| r.delivered).min().unwrap_or(0);
    GroupStatus {
        group: format!("g{g}"),
        leader: newest.and_then(|r| r.leader.clone()),
        epoch: newest.map_or(0, |r| r.epoch),
        decided,
        lag: decided - slowest,
        replicas_fit: fit().count(),
        replicas,
        items: fit().map(|r| r.figures.items).max().unwrap_or(0),
    }
}

fn print(cluster: &ClusterStatus) {
    println!("{} in {}", cluster.protocol, cluster.data.display());
    if let Some(Fronts { redis, log, http }) = &cluster.fronts {
        println!("redis={redis} log={log} http={http}");
    }
    println!("\ngroup  leader  epoch  fit    decided  lag    items");
    for g in &cluster.groups {
        println!(
            "{:<6} {:<7} {:<6} {:<6} {:<8} {:<6} {}",
            g.group,
            g.leader.as_deref().unwrap_or("-"),
            g.epoch,
            format!("{}/{}", g.replicas_fit, g.replicas),
            g.decided,
            g.lag,
            g.items,
        );
    }
    println!("\nnode   process  state");
    for Place { name, status } in &cluster.nodes {
        match status {
            None => println!("{name:<6} {:<8} does not answer", "-"),
            Some(n) if n.ready => println!("{name:<6} {:<8} ready", n.os_pid),
            Some(n) => println!("{name:<6} {:<8} {}", n.os_pid, n.why),
        }
    }
}

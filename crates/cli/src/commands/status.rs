//! `amcast status`: a running cluster.

use super::gateway_remarks::remarks;
use super::not_running::stopped;
use super::terminal_text::{harmless, harmless_line};
use super::{Failure, cluster_dir};
use amcast_core::ClusterShape;
use amcast_node::cluster_dir::{ClusterDir, GatewayAddresses, PastProcesses};
use amcast_node::config::{self, ClusterFile};
use amcast_node::control::{NodeStatus, ReplicaStatus, ViewStatus, statuses_of};
use amcast_node::service::{LOST_AFTER, LostShard, forgets, lost};
use amcast_node::supervisor::NodeProcess;
use serde::Serialize;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Shows the groups, leaders and replicas of a running cluster.
///
/// Of each group: its leader; how many replicas are in sync, which have the state and follow the order; applied,
/// the position in the order up to which commands were executed; and behind, how many positions the last of
/// the replicas that answer has not delivered of what is decided. Positions are no commands: with rings,
/// all that a ring skips has positions, too, thousands a second, so that they grow while nobody asks for
/// anything; a number that goes back to 0 again and again is a replica that follows, one that only grows
/// is one that does not. waiting is how many commands replicas have accepted and not delivered yet; items are
/// the keys. JSON says more: the epoch of the leader, and decided; behind is `lag`.
#[derive(clap::Args)]
pub(super) struct StatusArgs {
    /// The cluster's directory [of the only cluster that runs]
    #[arg(long, value_name = "DIR")]
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
    #[serde(rename = "fronts")]
    gateways: Option<GatewayAddresses>,
    ready: bool,
    groups: Vec<GroupStatus>,
    nodes: Vec<NodeRow>,
    /// The remarks of gateways about the cluster, as that writes are refused for want of room on the disks.
    remarks: Vec<String>,
}

#[derive(Serialize)]
struct GroupStatus {
    group: String,
    leader: Option<String>,
    epoch: u64,
    /// The position in the group's order that some replica knows to be decided.
    decided: u64,
    /// The position up to which the replica that is furthest has executed.
    applied: u64,
    /// How far the last of the replicas that answer is behind that, in positions.
    lag: u64,
    /// Commands that the replicas that answer have accepted and not delivered, of the one that has most.
    waiting: u64,
    replicas_fit: usize,
    replicas: usize,
    /// That too many replicas have lost its state, and what to do; none while it is whole.
    lost: Option<String>,
    items: u64,
    /// The latest view that a node is in, where groups have views.
    view: Option<ViewStatus>,
}

#[derive(Serialize)]
struct NodeRow {
    name: String,
    /// Its answer; none if it does not answer.
    status: Option<NodeStatus>,
    /// Where it serves clients; none if it does not.
    #[serde(rename = "fronts")]
    gateways: Option<GatewayAddresses>,
    /// Its supervisor's record; none if it has no supervisor.
    life: Option<NodeProcess>,
    /// Why it ended last, if it ended by itself and its log says so.
    last_words: Option<String>,
    /// Why the others refuse it, as they say, or as it wrote down itself; none if they do not.
    refused: Option<String>,
    /// Its directory is on another host.
    #[serde(skip)]
    is_far: bool,
    /// Its directory is here, and its process has ended.
    #[serde(skip)]
    has_ended: bool,
}

pub(super) fn run(args: &StatusArgs) -> Result<(), Failure> {
    let dir = cluster_dir(args.data.as_deref())?;
    let file = dir.file()?;
    let (said, lost) = look(&dir, &file)?;
    if said.iter().all(Option::is_none) {
        return Err(stopped(&dir, &file));
    }
    let lost = |g: usize| lost.iter().find(|l| l.shard.index() == g).map(LostShard::to_string);
    let groups = (0..file.shards).map(|g| group(g, &said, file.replicas, lost(g))).collect();
    let ready = said.iter().all(|n| n.as_ref().is_some_and(|n| n.ready));
    let mut lives = dir.lives().into_iter();
    let refused: Vec<_> = (0..file.replicas).map(|rank| refused(&dir, &said, rank)).collect();
    let here = dir.past_processes();
    let place = |(rank, (name, status)): (usize, (String, Option<NodeStatus>))| {
        let given = || file.nodes.get(&name).and_then(given_gateways);
        let gateways = status.as_ref().and_then(|_| dir.gateways_of(rank).ok().or_else(given));
        let life = lives.next();
        let last_words = match (&status, &life) {
            // The fault of a node that works again is over.
            (Some(node), _) if node.ready => None,
            (_, Some(life)) if life.is_telling() => dir.last_words(rank),
            (None, None) => dir.parting_words(rank),
            _ => None,
        };
        let refused = refused[rank].clone();
        let is_far = matches!(&here, PastProcesses::Nodes(ranks) if !ranks.contains(&rank));
        let has_ended = life.is_none() && dir.is_lived(rank) == Some(false);
        NodeRow { name, status, gateways, life, last_words, refused, is_far, has_ended }
    };
    let nodes: Vec<NodeRow> = file.nodes().zip(said).enumerate().map(place).collect();
    let gateways = dir.gateways().ok();
    let of_nodes = nodes.iter().filter_map(|node| node.gateways.as_ref());
    let remarks = remarks(gateways.iter().chain(of_nodes).map(|at| at.http.as_str()));
    let cluster = ClusterStatus {
        data: dir.path().to_path_buf(),
        protocol: file.protocol,
        gateways,
        ready,
        groups,
        nodes,
        remarks,
    };
    if args.json {
        let text = serde_json::to_string(&cluster).map_err(Failure::failed)?;
        println!("{text}");
    } else {
        print(&cluster);
    }
    Ok(())
}

/// Where the cluster's file has a node of another host serve clients.
fn given_gateways(place: &config::HostPlacement) -> Option<GatewayAddresses> {
    let at = |given: Option<SocketAddr>| given.map(|at| at.to_string());
    Some(GatewayAddresses { redis: at(place.redis)?, log: at(place.log), http: at(place.http)? })
}

/// Asks every node; as long as a shard seems to have lost its majority again and again, until that
/// can be believed.
fn look(
    dir: &ClusterDir,
    file: &ClusterFile,
) -> Result<(Vec<Option<NodeStatus>>, Vec<LostShard>), Failure> {
    let cluster =
        ClusterShape::new(file.shards, file.replicas, file.clients).map_err(Failure::failed)?;
    let begun = Instant::now();
    loop {
        let said = statuses_of(&dir.nodes(file));
        let lost = match forgets(file) {
            true => lost(cluster, &said, &dir.lives()),
            false => Vec::new(),
        };
        if lost.is_empty() || begun.elapsed() >= LOST_AFTER {
            return Ok((said, lost));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Why a node is refused, as one of the others says, or as it wrote down itself where it ran on this
/// host.
fn refused(dir: &ClusterDir, said: &[Option<NodeStatus>], rank: usize) -> Option<String> {
    let by = |node: &NodeStatus| {
        let why = node.peers.get(rank)?.refused.as_ref()?;
        Some(format!("{} says: {why}", node.name))
    };
    // A node that all others refuse may say that it refuses them: a node that works is not the one at fault.
    let works = said[rank].as_ref().is_some_and(|node| node.ready);
    let by_another = || said.iter().flatten().find_map(by).or_else(|| dir.refused(rank));
    if works { None } else { by_another() }
}

/// That multicast of some node does not reach this one, as the first of them says.
fn no_multicast(nodes: &[NodeRow], rank: usize) -> Option<String> {
    let says = |node: &NodeStatus| {
        let why = node.peers.get(rank)?.no_multicast.as_ref()?;
        Some(format!("{} says: {why}", node.name))
    };
    nodes.iter().filter_map(|place| place.status.as_ref()).find_map(says)
}

/// That accesses of some node do not reach the memory of this one, as the first of them says.
fn memory_fault(nodes: &[NodeRow], rank: usize) -> Option<String> {
    let says = |node: &NodeStatus| {
        let why = node.peers.get(rank)?.memory_fault.as_ref()?;
        Some(format!("{} does not reach the memory of {}: {why}", node.name, nodes[rank].name))
    };
    nodes.iter().filter_map(|place| place.status.as_ref()).find_map(says)
}

/// Whether enough of the nodes admit the node `rank` for a majority with it. One that is refused knows nothing of what happened
/// since, and takes its replicas for fit.
fn is_admitted(said: &[Option<NodeStatus>], rank: usize) -> bool {
    let refuses = |n: &&NodeStatus| n.peers.get(rank).is_some_and(|peer| peer.refused.is_some());
    2 * said.iter().flatten().filter(refuses).count() < said.len()
}

fn group(
    g: usize,
    said: &[Option<NodeStatus>],
    replicas: usize,
    lost: Option<String>,
) -> GroupStatus {
    let all = || said.iter().flatten().filter_map(move |n| n.replicas.get(g));
    let admitted = || {
        (0..said.len())
            .filter(|&rank| is_admitted(said, rank))
            .filter_map(|rank| said[rank].as_ref())
    };
    let fit_of = |node: &&NodeStatus| node.replicas.get(g).is_some_and(|r| r.fit);
    let fit = || admitted().filter(fit_of).filter_map(|n| n.replicas.get(g));
    let newest: Option<&ReplicaStatus> = fit().max_by_key(|r| r.epoch);
    let decided = all().map(|r| r.decided.max(r.delivered)).max().unwrap_or(0);
    let views = said.iter().flatten().filter_map(|n| n.view.as_ref()).filter(|v| !v.left_out);
    let slowest = all().map(|r| r.delivered).min().unwrap_or(0);
    GroupStatus {
        group: format!("g{g}"),
        leader: newest.and_then(|r| r.leader.clone()),
        epoch: newest.map_or(0, |r| r.epoch),
        decided,
        applied: all().map(|r| r.applied).max().unwrap_or(0),
        lag: decided - slowest,
        waiting: all().map(|r| r.backlog).max().unwrap_or(0),
        replicas_fit: admitted().filter(|node| node.ready).filter(fit_of).count(),
        replicas,
        lost,
        items: fit().map(|r| r.figures.items).max().unwrap_or(0),
        view: views.max_by_key(|v| v.number).cloned(),
    }
}

fn print(cluster: &ClusterStatus) {
    println!("{} in {}", cluster.protocol, cluster.data.display());
    if let Some(gateways) = &cluster.gateways {
        println!("{}", ports(gateways));
    }
    println!(
        "\n{:<6} {:<7} {:<8} {:<12} {:<18} {:<8} items",
        "group", "leader", "in sync", "applied", "behind (positions)", "waiting"
    );
    for g in &cluster.groups {
        println!(
            "{:<6} {:<7} {:<8} {:<12} {:<18} {:<8} {}",
            g.group,
            g.leader.as_deref().unwrap_or("-"),
            format!("{}/{}", g.replicas_fit, g.replicas),
            g.applied,
            g.lag,
            g.waiting,
            g.items,
        );
    }
    for g in &cluster.groups {
        if let Some(ViewStatus { number, members, .. }) = &g.view {
            println!("\n{} is in view {number}: {}", g.group, members.join(" "));
        }
    }
    println!("\nnode   process  state");
    let lines: Vec<String> = cluster.nodes.iter().map(line_of).collect();
    lines.iter().for_each(|line| println!("{}", harmless_line(line)));
    if let Some(carriers) = carriers(&cluster.nodes) {
        println!("\nmemory: {}", harmless_line(&carriers));
    }
    for node in &cluster.nodes {
        if let Some(why) = why_not(node) {
            println!("\n{}", harmless(&why));
        }
    }
    for rank in 0..cluster.nodes.len() {
        for why in [no_multicast, memory_fault].map(|fault| fault(&cluster.nodes, rank)) {
            why.into_iter().for_each(|why| println!("\n{}", harmless(&why)));
        }
    }
    if let Some(why) = too_few(&cluster.nodes) {
        println!("\n{}", harmless(&why));
    }
    for lost in cluster.groups.iter().filter_map(|g| g.lost.as_ref()) {
        println!("\n{}", harmless(lost));
    }
    // Nodes that are down are in the lines above.
    let is_told = |remark: &&String| lines.iter().any(|line| line.contains(remark.as_str()));
    for remark in cluster.remarks.iter().filter(|remark| !is_told(remark)) {
        println!("\n{}", harmless(remark));
    }
}

/// The carrier of accesses to memory between each two nodes, where a cluster over memory is on several hosts.
fn carriers(nodes: &[NodeRow]) -> Option<String> {
    let says = |one: usize, other: usize| {
        let peer = nodes[one].status.as_ref()?.peers.get(other)?;
        peer.carrier.clone()
    };
    let mut pairs = Vec::new();
    for one in 0..nodes.len() {
        for other in one + 1..nodes.len() {
            if let Some(carrier) = says(one, other).or_else(|| says(other, one)) {
                pairs.push(format!("{} - {} {carrier}", nodes[one].name, nodes[other].name));
            }
        }
    }
    (!pairs.is_empty()).then(|| pairs.join(", "))
}

/// Why a node does not work, in sentences that say what to do, if that is known.
fn why_not(node: &NodeRow) -> Option<String> {
    let NodeRow { name, life, last_words, refused, .. } = node;
    // A supervisor says it in the node's line.
    let words = last_words.as_ref().filter(|_| life.is_none());
    let ended = words.map(|words| format!("{name} ended: {words}"));
    // Where it wrote down that it is refused, it ended with that.
    ended.or_else(|| refused.clone())
}

/// That fewer nodes answer than it takes to serve anybody.
fn too_few(nodes: &[NodeRow]) -> Option<String> {
    let answer = nodes.iter().filter(|node| node.status.is_some()).count();
    let needed = nodes.len() / 2 + 1;
    let verb = if answer == 1 { "answers" } else { "answer" };
    (answer < needed).then(|| {
        format!(
            "{answer} of {} nodes {verb} here, and it takes {needed} to serve clients: start others, or \
             see why they cannot be reached from here",
            nodes.len()
        )
    })
}

fn line_of(node: &NodeRow) -> String {
    let NodeRow { name, status, gateways, life, last_words, is_far, has_ended, refused: _ } = node;
    let os_pid = life.as_ref().and_then(|life| life.os_pid);
    let (process, state) = match status {
        None if life.is_some() && os_pid.is_none() => (None, "does not run"),
        None if *has_ended => (None, "does not run"),
        None if *is_far => (None, "does not answer; on its host `amcast status --data` says more"),
        None => (os_pid, "does not answer"),
        Some(n) if n.ready => (Some(n.os_pid), "ready"),
        Some(n) => (Some(n.os_pid), n.why.as_str()),
    };
    let process = process.map_or_else(|| "-".to_string(), |n| n.to_string());
    let mut line = format!("{name:<6} {process:<8} {state}");
    if let Some(gateways) = gateways {
        line += &format!(", {}", ports(gateways));
    }
    let Some(life) = life else {
        // The rest of its last words is printed below, with the remedy.
        return line + if last_words.is_some() { ", and ended by itself" } else { "" };
    };
    if let Some(down) = life.down(last_words.as_deref()) {
        return line + "; " + &down;
    }
    if let NodeProcess { starts, last_end: Some(end), .. } = life {
        let times = match starts.saturating_sub(1) {
            0 => "it is to be started again".to_string(),
            1 => "it was started again once".to_string(),
            n => format!("it was started again {n} times"),
        };
        line += &format!("; {times}, and its last process {end}");
        line += &last_words.as_ref().map_or_else(String::new, |why| format!(": {why}"));
    }
    line
}

fn ports(gateways: &GatewayAddresses) -> String {
    let log = gateways.log.as_ref().map_or_else(String::new, |log| format!(" log={log}"));
    format!("redis={}{log} http={}", gateways.redis, gateways.http)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_carrier_between_two_nodes_is_told_by_either_of_them() {
        let row = |name: &str, carriers: Option<[Option<&str>; 3]>| {
            let peer = |carrier: Option<&str>| amcast_node::control::PeerStatus {
                carrier: carrier.map(str::to_string),
                ..Default::default()
            };
            let peers = |carriers: [Option<&str>; 3]| carriers.map(peer).to_vec();
            let status =
                carriers.map(|of| NodeStatus { peers: peers(of), ..NodeStatus::default() });
            NodeRow {
                name: name.into(),
                status,
                gateways: None,
                life: None,
                last_words: None,
                refused: None,
                is_far: false,
                has_ended: false,
            }
        };
        let (shm, tcp) = (Some("shared memory"), Some("tcp"));
        let mut nodes = vec![row("n0", None), row("n1", None), row("n2", None)];
        assert_eq!(carriers(&nodes), None);
        nodes[1] = row("n1", Some([shm, None, tcp]));
        let told = carriers(&nodes).unwrap();
        assert_eq!(told, "n0 - n1 shared memory, n1 - n2 tcp");
        nodes[2] = row("n2", Some([tcp, tcp, None]));
        let told = carriers(&nodes).unwrap();
        assert_eq!(told, "n0 - n1 shared memory, n0 - n2 tcp, n1 - n2 tcp");
        assert_eq!(memory_fault(&nodes, 2), None);
        let status = nodes[1].status.as_mut().unwrap();
        status.name = "n1".into();
        status.peers[2].memory_fault = Some("its port is closed".into());
        assert_eq!(
            memory_fault(&nodes, 2).as_deref(),
            Some("n1 does not reach the memory of n2: its port is closed")
        );
    }

    #[test]
    fn a_node_that_is_not_ready_or_that_the_others_refuse_is_not_in_sync() {
        let node = |epoch: u64, refused: [bool; 3]| {
            let replica = ReplicaStatus {
                leader: Some(format!("g0/r{epoch}")),
                epoch,
                fit: true,
                follows: true,
                ..ReplicaStatus::default()
            };
            let peer = |is_refused: bool| amcast_node::control::PeerStatus {
                refused: is_refused.then(|| "another start of it is known".to_string()),
                ..Default::default()
            };
            let peers = refused.map(peer).to_vec();
            Some(NodeStatus {
                ready: true,
                replicas: vec![replica],
                peers,
                ..NodeStatus::default()
            })
        };
        let in_sync = |said: &[Option<NodeStatus>]| {
            let status = group(0, said, 3, None);
            (status.replicas_fit, status.leader.unwrap_or_default())
        };
        let none = [false; 3];
        let mut said = [node(2, none), node(7, none), node(2, none)];
        assert_eq!(in_sync(&said), (3, "g0/r7".to_string()));
        // n1 waits for its place, and takes its replica for fit.
        said[1].as_mut().unwrap().ready = false;
        assert_eq!(in_sync(&said).0, 2);
        said[1].as_mut().unwrap().ready = true;
        // It may refuse the others, too.
        (said[0], said[2]) = (node(2, [false, true, false]), node(2, [false, true, false]));
        said[1] = node(7, [true, false, true]);
        assert_eq!(in_sync(&said), (2, "g0/r2".to_string()));
        // One node alone may be the one at fault.
        said[2] = node(2, none);
        assert_eq!(in_sync(&said).0, 3);
    }

    #[test]
    fn a_node_that_does_not_answer_is_told_with_its_process_and_how_it_ended() {
        let life = NodeProcess {
            name: "n1".into(),
            os_pid: Some(77),
            starts: 2,
            ..NodeProcess::default()
        };
        let mut node = NodeRow {
            name: "n1".into(),
            status: None,
            gateways: None,
            life: Some(NodeProcess {
                last_end: Some("was killed by signal 9".into()),
                ..life.clone()
            }),
            last_words: None,
            refused: None,
            is_far: false,
            has_ended: false,
        };
        let says = "n1     77       does not answer; it was started again once, and its last \
                    process was killed by signal 9";
        assert_eq!(line_of(&node), says);
        let last_end = Some("ended with exit code 1".to_string());
        node.life =
            Some(NodeProcess { last_end, given_up: true, os_pid: None, starts: 21, ..life });
        node.last_words = Some("no room".into());
        let line = line_of(&node);
        assert!(line.starts_with("n1     -        does not run; n1 is DOWN"), "{line}");
        assert!(line.ends_with("its last process ended with exit code 1: no room"), "{line}");
    }
}

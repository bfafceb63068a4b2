//! Watches the nodes of a cluster through their control sockets, for everyone who shows its state.

use super::disk_room::DiskRoom;
use super::node_metrics::node_metrics;
use crate::cluster_dir::ClusterDir;
use crate::config::{ClusterFile, node_name, node_rank};
use crate::control::{NodeStatus, ReplicaStatus, statuses_of};
use crate::node_address::NodeAddress;
use crate::supervisor::NodeProcess;
use crate::workload::WorkloadCounter;
use amcast_core::{ClusterShape, Durability, Entry, Gid, GroupSet};
use amcast_kv::status::{ServerStatus, ShardStatus};
use amcast_protocols::catalog;
use amcast_smr::Metric;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often the nodes are asked.
const ASK_EVERY: Duration = Duration::from_millis(200);

/// How often while some node is not ready.
const ASK_SOON: Duration = Duration::from_millis(10);

/// How long a shard must be seen without its majority before that is believed: what the nodes say is
/// of slightly different moments.
pub const LOST_AFTER: Duration = Duration::from_secs(2);

/// The last status of each node; none if it did not answer.
type NodeReports = Vec<Option<NodeStatus>>;

/// A shard that too many replicas have lost the state of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LostShard {
    /// The shard.
    pub shard: Gid,
    /// How many replicas still hold its state.
    pub hold: usize,
    /// How many replicas there are.
    pub of: usize,
}

impl fmt::Display for LostShard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "shard {} has lost its majority ({} of {} replicas hold its state); stop the cluster and \
             start anew",
            self.shard.0, self.hold, self.of
        )
    }
}

/// Whether this protocol syncs a write on a majority's disks before it is answered.
fn syncs_writes(protocol: &str) -> bool {
    let synced = |entry: &dyn Entry| entry.capabilities().durability == Durability::Synced;
    catalog::find(protocol).is_some_and(synced)
}

/// Whether a node that starts again has forgotten what it knew: the protocol of this cluster keeps
/// nothing on disk.
pub fn forgets(file: &ClusterFile) -> bool {
    catalog::find(&file.protocol).is_none_or(|entry| !entry.capabilities().durability.has_log())
}

/// The shards that have lost their majority where nodes that start again forget, as far as nodes and supervisor know. A replica has lost
/// its place in the order if its node does not run, or was started again and does not follow. Where
/// all follow, one must still have the store's state, for the others to get it from.
pub fn lost(
    cluster: ClusterShape,
    said: &[Option<NodeStatus>],
    lives: &[NodeProcess],
) -> Vec<LostShard> {
    let has = |rank: usize, shard: Gid, what: fn(&ReplicaStatus) -> bool| {
        match (&said[rank], lives.get(rank)) {
            (Some(node), Some(life)) => {
                life.starts == 1 || node.replicas.get(shard.index()).is_none_or(what)
            }
            (None, Some(life)) => life.os_pid.is_some(),
            // Nobody supervises it: nothing is known.
            (_, None) => true,
        }
    };
    let of = cluster.replicas();
    let look = |shard| {
        let count = |what| (0..of).filter(|&rank| has(rank, shard, what)).count();
        let (follow, fed) = (count(|r| r.follows), count(|r| r.fit));
        let hold = if fed == 0 { 0 } else { follow };
        (hold < cluster.quorum()).then_some(LostShard { shard, hold, of })
    };
    cluster.all_groups().iter().filter_map(look).collect()
}

/// Whether the node `rank` has its place, by what it said.
fn own_ready(rank: usize, said: &Option<NodeStatus>) -> Result<(), String> {
    match said {
        Some(node) if node.ready => Ok(()),
        Some(node) => Err(format!("{}: {}", node_name(rank), node.why)),
        None => Err(format!("{} does not answer", node_name(rank))),
    }
}

/// The present knowledge.
struct WatchState {
    said: NodeReports,
    lost: Vec<LostShard>,
    /// That nodes are down for good, for people.
    down: Vec<String>,
    /// Why commands that may take more room on the disks are refused, if they are.
    no_room: Option<String>,
}

/// The nodes that are down for good, each in a sentence that says why.
pub fn down(dir: &ClusterDir) -> Vec<String> {
    let lives = dir.lives();
    let down = |(rank, life): (usize, &NodeProcess)| life.down(dir.last_words(rank).as_deref());
    lives.iter().enumerate().filter_map(down).collect()
}

impl WatchState {
    /// Before any of so many nodes has said anything.
    fn of(nodes: usize) -> Self {
        Self { said: vec![None; nodes], lost: Vec::new(), down: Vec::new(), no_room: None }
    }
}

/// The state of a cluster as its nodes tell it, asked for now and then.
pub struct ClusterWatch {
    /// The name of the watcher.
    name: String,
    /// The node that the process is, if it is one.
    own: Option<usize>,
    protocol: String,
    /// Whether the protocol syncs a write on a majority's disks before that is answered.
    syncs_writes: bool,
    cluster: ClusterShape,
    dir: Arc<ClusterDir>,
    nodes: Arc<Mutex<Vec<NodeAddress>>>,
    state: Arc<Mutex<WatchState>>,
    /// Whether commands that may take more room on the disks are refused.
    is_full: Arc<AtomicBool>,
    /// The multicasts of this process's gateways.
    workload: WorkloadCounter,
    /// Its process serves no more clients.
    leaves: AtomicBool,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Waits for so long, or until it is unparked since it has `ended`. A thread that waited for
/// threads of its own, as those that ask nodes of other hosts, may have been unparked by them
/// before.
fn pause(span: Duration, ended: &AtomicBool) {
    let until = Instant::now() + span;
    while !ended.load(Ordering::Acquire) {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        std::thread::park_timeout(left);
    }
}

fn lock(state: &Mutex<WatchState>) -> MutexGuard<'_, WatchState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ClusterWatch {
    /// Begins to watch, as `name`.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn begin(
        dir: ClusterDir,
        name: String,
        file: &ClusterFile,
        cluster: ClusterShape,
    ) -> io::Result<Self> {
        let protocol = file.protocol.clone();
        let ask = dir.nodes(file);
        let forgets = forgets(file);
        let count = ask.len();
        let (nodes, dir) = (Arc::new(Mutex::new(ask)), Arc::new(dir));
        let state = Arc::new(Mutex::new(WatchState::of(count)));
        let mut room = DiskRoom::new(cluster, file.disk_reserve_mb);
        let is_full = Arc::new(AtomicBool::new(false));
        let full = Arc::clone(&is_full);
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&state);
        let ended = Arc::clone(&stop);
        let asked = Arc::clone(&dir);
        let at = Arc::clone(&nodes);
        let look = move || {
            let mut lost_since: Option<Instant> = None;
            while !ended.load(Ordering::Acquire) {
                let ask = at.lock().unwrap_or_else(PoisonError::into_inner).clone();
                let said = statuses_of(&ask);
                let ready = said.iter().all(|n| n.as_ref().is_some_and(|n| n.ready));
                let lost = match ready || !forgets {
                    true => Vec::new(),
                    false => lost(cluster, &said, &asked.lives()),
                };
                lost_since =
                    lost_since.or_else(|| Some(Instant::now())).filter(|_| !lost.is_empty());
                let believed = lost_since.is_some_and(|since| since.elapsed() >= LOST_AFTER);
                let down = if ready { Vec::new() } else { down(&asked) };
                // They are made after the first look.
                let shared = (0..count).filter(|rank| asked.keeps(*rank)).count();
                let no_room = room.lacks(&said, shared);
                if full.swap(no_room.is_some(), Ordering::AcqRel) != no_room.is_some() {
                    match &no_room {
                        Some(why) => tracing::error!("{why}"),
                        None => tracing::warn!("the nodes' disks have room again: all is served"),
                    }
                }
                let lost = if believed { lost } else { Vec::new() };
                *lock(&told) = WatchState { said, lost, down, no_room };
                pause(if ready || believed { ASK_EVERY } else { ASK_SOON }, &ended);
            }
        };
        let thread = std::thread::Builder::new().name("watch".to_string()).spawn(look)?;
        let leaves = AtomicBool::new(false);
        let own = node_rank(&name);
        let thread = Some(thread);
        let workload = WorkloadCounter::default();
        Ok(Self {
            name,
            own,
            syncs_writes: syncs_writes(&protocol),
            protocol,
            cluster,
            dir,
            nodes,
            state,
            is_full,
            workload,
            leaves,
            stop,
            thread,
        })
    }

    /// The shape of the cluster.
    pub fn cluster(&self) -> ClusterShape {
        self.cluster
    }

    /// The shards that have lost their majority for good, as far as nodes and supervisor know.
    pub fn lost(&self) -> Vec<LostShard> {
        lock(&self.state).lost.clone()
    }

    /// The last status of each node.
    pub fn nodes(&self) -> Vec<Option<NodeStatus>> {
        lock(&self.state).said.clone()
    }

    /// Asks each node now.
    pub fn ask_now(&self) -> Vec<Option<NodeStatus>> {
        let nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner).clone();
        statuses_of(&nodes)
    }

    /// The nodes are asked here from now on, in order of rank.
    pub fn move_to(&self, nodes: Vec<NodeAddress>) {
        *self.nodes.lock().unwrap_or_else(PoisonError::into_inner) = nodes;
    }

    /// Why a command that `grows` what nodes have on their disks is refused now, for people, if it is. Asked for each
    /// command.
    pub fn refuses(&self, grows: impl FnOnce() -> bool) -> Option<String> {
        let is_full = self.is_full.load(Ordering::Acquire) && grows();
        is_full.then(|| lock(&self.state).no_room.clone()).flatten()
    }

    /// Counts a multicast of a gateway of this process.
    pub fn count(&self, dst: GroupSet, bytes: usize) {
        self.workload.count(dst, bytes);
    }

    /// Counts from now on: what was counted before came of no client.
    pub fn begin_workload(&self) {
        self.workload.clear();
    }

    /// Its process serves no more clients: status requests report that it is leaving.
    pub fn leave(&self) {
        self.leaves.store(true, Ordering::Release);
    }

    /// Whether every node is a working member; else why not. One may still execute what was ordered before it started.
    ///
    /// # Errors
    /// With the reason, for people.
    pub fn all_ready(&self) -> Result<(), String> {
        let state = lock(&self.state);
        let is_none = |said: &Option<NodeStatus>| !said.as_ref().is_some_and(NodeStatus::is_member);
        let mut others = (0..).zip(&state.said).filter(|(_, said)| is_none(said));
        others.try_for_each(|(rank, said)| own_ready(rank, said))
    }
}

impl Drop for ClusterWatch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        let Some(thread) = self.thread.take() else { return };
        thread.thread().unpark();
        // One that waits for a node which hangs ends by itself; nobody needs to wait for that.
        if thread.is_finished() && thread.join().is_err() {
            tracing::error!("the watching thread had panicked");
        }
    }
}

impl ServerStatus for ClusterWatch {
    fn node(&self) -> String {
        self.name.clone()
    }

    fn protocol(&self) -> String {
        self.protocol.clone()
    }

    fn shards(&self) -> Vec<ShardStatus> {
        let said = &lock(&self.state).said;
        let shard = |shard: Gid| {
            let replicas = || {
                let ready = said.iter().flatten().filter(|node| node.ready);
                ready.filter_map(|node| node.replicas.get(shard.index()))
            };
            let most = replicas().max_by_key(|r| r.applied);
            ShardStatus {
                shard,
                leader: most.and_then(|r| r.leader.clone()),
                replicas: (replicas().count(), self.cluster.replicas()),
                applied: most.map_or(0, |r| r.applied),
                waiting: most.map_or(0, |r| r.figures.waiting as usize),
                keys: most.map_or(0, |r| r.figures.items as usize),
                expiring: most.map_or(0, |r| r.figures.expiring as usize),
                due_ms: most.and_then(|r| r.figures.due_ms),
                has_chore: most.is_some_and(|r| r.figures.has_chore),
                used_bytes: most.map_or(0, |r| r.figures.used_bytes),
                budget_bytes: most.map_or(0, |r| r.figures.budget_bytes),
                parts_bytes: most.map_or(0, |r| r.figures.parts_bytes),
            }
        };
        self.cluster.all_groups().iter().map(shard).collect()
    }

    fn ready(&self) -> Result<(), String> {
        if self.leaves.load(Ordering::Acquire) {
            return Err(format!("{} stops", self.name));
        }
        let state = lock(&self.state);
        if !state.lost.is_empty() {
            let lost: Vec<_> = state.lost.iter().map(LostShard::to_string).collect();
            return Err(lost.join("; "));
        }
        let ready = state.said.iter().flatten().filter(|node| node.is_member()).count();
        let quorum = self.cluster.quorum();
        if ready >= quorum {
            return Ok(());
        }
        let (nodes, verb) = (self.cluster.replicas(), if ready == 1 { "is" } else { "are" });
        let few = format!(
            "{ready} of {nodes} nodes {verb} ready, and it takes {quorum} to serve clients"
        );
        Err([&[few], &state.down[..]].concat().join("; "))
    }

    fn ready_here(&self) -> Result<(), String> {
        self.ready()?;
        let Some(own) = self.own else { return Ok(()) };
        own_ready(own, &lock(&self.state).said[own])
    }

    fn syncs_writes(&self) -> bool {
        self.syncs_writes
    }

    fn remarks(&self) -> Vec<String> {
        let state = lock(&self.state);
        state.down.iter().chain(&state.no_room).cloned().collect()
    }

    fn metrics(&self) -> Vec<Metric> {
        node_metrics(&lock(&self.state).said, &self.dir.lives())
    }

    fn workload(&self) -> Option<String> {
        match self.workload.workload(self.cluster.groups()).text() {
            Ok(text) => Some(text),
            Err(e) => {
                tracing::error!("the workload cannot be written: {e}");
                None
            }
        }
    }
}

/// The status of a node without any facts.
#[cfg(test)]
pub(super) fn silent_node() -> NodeStatus {
    NodeStatus { os_pid: 1, ready: true, ..NodeStatus::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A node of a cluster of two shards, with what it says of its replica of each.
    fn node(follows: [bool; 2]) -> Option<NodeStatus> {
        says(follows, follows)
    }

    fn says(follows: [bool; 2], fit: [bool; 2]) -> Option<NodeStatus> {
        let replica = |(group, (follows, fit))| ReplicaStatus {
            group,
            epoch: 1,
            fit,
            follows,
            ..ReplicaStatus::default()
        };
        Some(NodeStatus {
            ready: fit == [true; 2],
            replicas: [0, 1].into_iter().zip(follows.into_iter().zip(fit)).map(replica).collect(),
            ..silent_node()
        })
    }

    fn life(starts: u64, runs: bool) -> NodeProcess {
        NodeProcess { starts, os_pid: runs.then_some(1), ..NodeProcess::default() }
    }

    #[test]
    fn who_was_unparked_for_something_else_waits_all_the_same_and_who_has_ended_does_not() {
        let _limit = amcast_test_policy::time_limit();
        let (begun, ended) = (Instant::now(), AtomicBool::new(false));
        // So do threads of a scope that come to their end.
        std::thread::current().unpark();
        pause(Duration::from_millis(20), &ended);
        assert!(begun.elapsed() >= Duration::from_millis(20));
        ended.store(true, Ordering::Release);
        pause(Duration::from_secs(600), &ended);
    }

    #[test]
    fn a_node_is_ready_by_what_it_says_itself() {
        let _limit = amcast_test_policy::time_limit();
        let says = |ready| node([ready; 2]);
        assert_eq!(own_ready(2, &says(true)), Ok(()));
        assert!(own_ready(2, &says(false)).unwrap_err().starts_with("n2: "));
        assert_eq!(own_ready(2, &None), Err("n2 does not answer".to_string()));
        // One that catches up is none of those that are waited for where the next one is to be restarted, and serves.
        let behind = NodeStatus { ready: false, catches_up: true, ..silent_node() };
        assert!(behind.is_member() && own_ready(2, &Some(behind)).is_err());
    }

    #[test]
    fn a_shard_is_lost_when_a_majority_was_born_again_and_has_not_its_state() {
        let _limit = amcast_test_policy::time_limit();
        let cluster = ClusterShape::new(2, 3, 1).unwrap();
        let whole = node([true; 2]);
        let lives = [life(1, true), life(2, true), life(3, true)];
        let said = [whole.clone(), node([true, false]), node([true, false])];
        let found = lost(cluster, &said, &lives);
        assert_eq!(found, [LostShard { shard: Gid(1), hold: 1, of: 3 }]);
        assert!(found[0].to_string().contains("shard 1 has lost its majority (1 of 3 replicas"));
        // One of them alone is no majority.
        assert!(
            lost(cluster, &[whole.clone(), whole.clone(), node([false; 2])], &lives).is_empty()
        );
        // One that waits for its next start has lost its memory; one that is silent has not.
        let said = [whole, node([false; 2]), None];
        let dead = [life(1, true), life(2, true), life(1, false)];
        assert_eq!(lost(cluster, &said, &dead).len(), 2);
        assert!(lost(cluster, &said, &[life(1, true), life(2, true), life(1, true)]).is_empty());
    }

    #[test]
    fn replicas_that_wait_for_the_store_count_as_long_as_one_can_give_it() {
        let _limit = amcast_test_policy::time_limit();
        let cluster = ClusterShape::new(2, 3, 1).unwrap();
        let waits = says([true; 2], [false; 2]);
        let said = [node([true; 2]), waits.clone(), waits.clone()];
        let lives = [life(2, true), life(2, true), life(2, true)];
        assert!(lost(cluster, &said, &lives).is_empty());
        let found = lost(cluster, &[waits.clone(), waits.clone(), waits], &lives);
        assert_eq!(found.iter().map(|l| l.hold).collect::<Vec<_>>(), [0, 0]);
    }

    #[test]
    fn a_cluster_that_just_starts_has_lost_nothing() {
        let _limit = amcast_test_policy::time_limit();
        let cluster = ClusterShape::new(2, 3, 1).unwrap();
        let said = [node([false; 2]), node([false; 2]), None];
        let lives = [life(1, true), life(1, true), life(1, true)];
        assert!(lost(cluster, &said, &lives).is_empty());
        assert!(lost(cluster, &said, &[]).is_empty());
    }
}

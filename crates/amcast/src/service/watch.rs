//! Watches the nodes of a cluster through their control sockets, for everyone who shows its state.

use amcast_core::{Cluster, Gid};
use amcast_runtime::control::{NodeStatus, status_of};
use amcast_runtime::home::Home;
use amcast_services::{ShardStatus, Status};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often the nodes are asked.
const ASK_EVERY: Duration = Duration::from_millis(200);

/// How often while some node is not ready.
const ASK_SOON: Duration = Duration::from_millis(10);

/// What each node said last; none if it did not answer.
type Said = Vec<Option<NodeStatus>>;

/// The state of a cluster as its nodes tell it, asked for now and then.
pub struct Watch {
    protocol: String,
    cluster: Cluster,
    home: Arc<Home>,
    said: Arc<Mutex<Said>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Asks every node of the cluster at `home` once.
pub fn ask(home: &Home, nodes: usize) -> Vec<Option<NodeStatus>> {
    (0..nodes).map(|rank| status_of(&home.socket(rank)).ok()).collect()
}

fn lock(said: &Mutex<Said>) -> MutexGuard<'_, Said> {
    said.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Watch {
    /// Begins to watch.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn begin(home: Home, protocol: String, cluster: Cluster) -> io::Result<Self> {
        let nodes = cluster.replicas();
        let home = Arc::new(home);
        let said = Arc::new(Mutex::new(vec![None; nodes]));
        let stop = Arc::new(AtomicBool::new(false));
        let (board, ended, asked) = (Arc::clone(&said), Arc::clone(&stop), Arc::clone(&home));
        let look = move || {
            while !ended.load(Ordering::Acquire) {
                let heard = ask(&asked, nodes);
                let ready = heard.iter().all(|n| n.as_ref().is_some_and(|n| n.ready));
                *lock(&board) = heard;
                std::thread::park_timeout(if ready { ASK_EVERY } else { ASK_SOON });
            }
        };
        let thread = std::thread::Builder::new().name("watch".to_string()).spawn(look)?;
        Ok(Self { protocol, cluster, home, said, stop, thread: Some(thread) })
    }

    /// What each node said last.
    pub fn nodes(&self) -> Vec<Option<NodeStatus>> {
        lock(&self.said).clone()
    }

    /// Asks each node now.
    pub fn ask_now(&self) -> Vec<Option<NodeStatus>> {
        ask(&self.home, self.cluster.replicas())
    }

    /// Whether every node is a full member; else why not.
    ///
    /// # Errors
    /// With the reason, for people.
    pub fn all_ready(&self) -> Result<(), String> {
        for (rank, node) in lock(&self.said).iter().enumerate() {
            match node {
                None => return Err(format!("n{rank} does not answer")),
                Some(node) if !node.ready => return Err(format!("n{rank}: {}", node.why)),
                Some(_) => {}
            }
        }
        Ok(())
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        let Some(thread) = self.thread.take() else { return };
        thread.thread().unpark();
        if thread.join().is_err() {
            tracing::error!("the watching thread had panicked");
        }
    }
}

impl Status for Watch {
    fn node(&self) -> String {
        "front".to_string()
    }

    fn protocol(&self) -> String {
        self.protocol.clone()
    }

    fn shards(&self) -> Vec<ShardStatus> {
        let said = lock(&self.said);
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
            }
        };
        self.cluster.all_groups().iter().map(shard).collect()
    }

    fn ready(&self) -> Result<(), String> {
        let ready = lock(&self.said).iter().flatten().filter(|node| node.ready).count();
        let quorum = self.cluster.quorum();
        if ready >= quorum {
            return Ok(());
        }
        Err(format!("{ready} nodes are ready, and {quorum} are needed"))
    }
}

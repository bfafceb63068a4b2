//! A state machine of your own, replicated and sharded, in a program of your own.
//!
//! The program runs in two ways. Started by a person it is the supervisor: [`Cluster::start`] starts
//! it again, once for each node, and [`Cluster::session`] sends commands. Started by itself as a
//! node it calls [`node()`], which hosts one replica of every shard and returns when it receives a
//! signal to stop. Other programs of the same user join in with [`Client::join`]. The guarantees are
//! those of the key-value store: commands over any shards are atomic, linearizable and run once; an
//! acknowledged one survives the crash of any minority of the nodes, and a node that dies is started
//! again and gets its state back. That holds with protocols that are uniform throughout, such as `multi-ring` and `tram`
//! ([`Cluster::is_uniform`]). The others are for services that can do with less: when a node fails, is partitioned away or
//! excluded because it was slow, commands that it acknowledged may be lost, or it may have executed them in another order than the
//! others. Restarts of a majority at one time are survived where the protocol keeps a log, and the cluster has a directory; a
//! power failure of a majority, too, where its log is on the disk before it answers, as with `multi-ring`.
//!
//! The cluster's file names the protocol: one over shared memory, or one over the network, such as
//! rings of Paxos, which keep a log, or, with one shard, uniform broadcasts. Where the protocol keeps a
//! log and the cluster is given a directory, the next cluster in that directory continues with its
//! data. All nodes of a [`Cluster`] run on its host: [`node()`] refuses to be one of nodes that are started by hand on
//! several hosts, which `amcast node` is for.
//!
//! A state machine that reconciles ([`StateMachine::reconciler`](amcast_smr::StateMachine::reconciler)) runs in another way, too: each
//! program has a [`member()`] of the group in itself, which serves it also while it hears no other one. See
//! `examples/partition_log/`.
//!
//! `examples/bank/` is a whole program of this kind: accounts in shards, transfers between any of
//! them, and nodes that are killed meanwhile.

mod member;
mod node;
mod session;

pub use amcast_node::component_member::{
    ComponentMember, MemberCallError, MemberError, MemberStatus, PendingMemberAnswer,
};
pub use amcast_node::service::{LostShard, MissingNode, NotServing, START_PATIENCE};
pub use member::{MemberOptions, member};
pub use node::{node, node_with_early};
pub use session::{CallError, Client, Session};

use amcast_core::{Capability, ConfigError, Entry, MissingCapability};
use amcast_node::cluster_dir::{
    ClusterDir, ClusterDirError, ClusterRegistry, SupervisedDir, Transport,
};
use amcast_node::command_gateway::GatewayError;
use amcast_node::config::{ClusterFile, FileError};
use amcast_node::node::NodeError;
use amcast_node::service::{ClusterReadiness, ClusterWatch, missing_nodes, without_majority};
use amcast_node::supervisor::{NodeCommand, NodeProcess, Supervisor};
use amcast_protocols::catalog;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Why a cluster, a node or a client could not start.
#[derive(Debug)]
pub enum StartError {
    /// No protocol has this name.
    Protocol(String),
    /// The protocol refuses the cluster's shape or its parameters.
    Config(ConfigError),
    /// The protocol cannot do what is asked of it.
    Capability(MissingCapability),
    /// The cluster's file cannot be read.
    File(FileError),
    /// The cluster's directory.
    ClusterDir(ClusterDirError),
    /// No node has this name.
    Name(String),
    /// No [`Cluster`] that lives has started the node whose cluster has this file.
    Unsupervised(PathBuf),
    /// The node would listen beyond its machine and let strangers in; the sentence says what is missing.
    Insecure(String),
    /// The node.
    Node(NodeError),
    /// The client.
    Client(GatewayError),
    /// A process or thread cannot be started.
    Io(std::io::Error),
    /// The cluster does not serve in time, or nodes of it end whenever they are started.
    NotReady(NotServing),
    /// A member of a group that continues in every component of a partition.
    Member(MemberError),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Protocol(name) => write!(f, "no protocol is named {name:?}"),
            Self::Config(e) => e.fmt(f),
            // Nodes of a cluster share one order.
            Self::Capability(e) if e.capability == Capability::OneOrder => {
                write!(f, "{e}, as a member of its group, which `replicate::member` starts")
            }
            Self::Capability(e) => e.fmt(f),
            Self::File(e) => e.fmt(f),
            Self::ClusterDir(e) => e.fmt(f),
            Self::Name(name) => write!(f, "no node is named {name:?}"),
            Self::Unsupervised(file) => write!(
                f,
                "{}: no cluster runs that has this file, so this node was not started: `replicate::node` runs the \
                 nodes that `Cluster::start` starts, with the file that it writes, and none that is started by hand \
                 or on another host",
                file.display()
            ),
            Self::Insecure(why) => f.write_str(why),
            Self::Node(e) => e.fmt(f),
            Self::Client(e) => e.fmt(f),
            Self::Io(e) => e.fmt(f),
            Self::Member(e) => e.fmt(f),
            Self::NotReady(why) => why.fmt(f),
        }
    }
}

impl std::error::Error for StartError {}

impl From<ClusterDirError> for StartError {
    fn from(e: ClusterDirError) -> Self {
        Self::ClusterDir(e)
    }
}

fn entry(name: &str) -> Result<&'static dyn Entry, StartError> {
    catalog::find(name).ok_or_else(|| StartError::Protocol(name.to_string()))
}

/// A cluster that this process supervises. Dropping it stops every node.
pub struct Cluster {
    client: Client,
    watch: Arc<ClusterWatch>,
    nodes: Option<Supervisor>,
    ground: Transport,
    own: Option<SupervisedDir>,
    is_uniform: bool,
}

impl Cluster {
    /// Starts a cluster as `file` has it, in the directory `data` or one of its own, and waits until
    /// it serves: until every node is ready, or a majority is and the others were given five seconds more. Each node is
    /// `command`, with the path of the cluster's file and the node's name as its last two arguments; it is to call
    /// [`node()`] with them.
    ///
    /// The protocol that `file` names decides which failures an acknowledged command survives: see [`Cluster::is_uniform`].
    ///
    /// Where the cluster continues with data on disk and a node ends whenever it is started, since its data are damaged, say, the
    /// others serve without it: [`Cluster::missing`] names it. In a new cluster such a node is an error at once.
    ///
    /// # Errors
    /// When it cannot be started, would let strangers in, or does not serve within [`START_PATIENCE`]; nothing is left running
    /// then.
    pub fn start(
        file: &ClusterFile,
        data: Option<&Path>,
        command: NodeCommand,
    ) -> Result<Self, StartError> {
        Self::start_within(file, data, command, START_PATIENCE)
    }

    /// As [`Cluster::start`], for a cluster that may take longer until it serves, or less long: reading a state of gigabytes
    /// takes minutes.
    ///
    /// # Errors
    /// As [`Cluster::start`], after `patience`.
    pub fn start_within(
        file: &ClusterFile,
        data: Option<&Path>,
        command: NodeCommand,
        patience: Duration,
    ) -> Result<Self, StartError> {
        let entry = entry(&file.protocol)?;
        entry.require_service().map_err(StartError::Capability)?;
        let is_uniform = entry.about().is_uniform();
        if !is_uniform {
            tracing::warn!(
                "{} is not uniform throughout: acknowledged commands may be lost when a node fails",
                entry.name()
            );
        }
        let mut file = file.clone();
        let mut goes_on = false;
        if let Some(data) = data
            && let Some(kept) = ClusterDir::kept(data)?
        {
            let another = |why| ClusterDirError::Another(data.to_path_buf(), why);
            file.go_on_from(&kept).map_err(another)?;
            goes_on = true;
        }
        file.check_strangers().map_err(StartError::Insecure)?;
        file.settle(entry, data.is_some()).map_err(StartError::Io)?;
        let config = file.check(entry).map_err(StartError::Config)?;
        let own = SupervisedDir::create(data, &mut file, ClusterRegistry::usual())?;
        let dir = own.dir().clone();
        let ground = dir.ground(&file, (entry.about().medium, entry.about().params), &config)?;
        let mut command = command;
        command.args.push(dir.file_path().into_os_string());
        let names = file.nodes().collect();
        let written = dir.clone();
        let on_change = Box::new(move |_: Option<usize>, lives: &[NodeProcess]| {
            if let Err(e) = written.write_lives(lives) {
                tracing::warn!("the lives of nodes are not written down: {e}");
            }
        });
        let nodes = Supervisor::start(command, names, ground.clone(), on_change);
        let nodes = nodes.map_err(StartError::Io)?;
        let cluster = *config.cluster();
        let watch = ClusterWatch::begin(dir.clone(), "client".to_string(), &file, cluster)
            .map_err(StartError::Io)?;
        let watch = Arc::new(watch);
        let client = Client::join(&dir)?;
        let asked = Arc::clone(&watch);
        client.watch(move || without_majority(asked.cluster(), &asked.nodes()));
        let it = Self { client, watch, nodes: Some(nodes), ground, own: Some(own), is_uniform };
        it.wait(goes_on, patience)?;
        Ok(it)
    }

    fn wait(&self, goes_on: bool, patience: Duration) -> Result<(), StartError> {
        let nodes = self.nodes.as_ref().expect("they are there until it is dropped");
        // Only the service knows its commands.
        let probe = || Ok(());
        let (dir, watch) = (self.dir(), &self.watch);
        let readiness = ClusterReadiness { dir, watch, nodes, probe: &probe, goes_on, patience };
        let waited = readiness.wait(&AtomicBool::new(false));
        waited.map(drop).map_err(StartError::NotReady)
    }

    /// A session of its own: commands in a row.
    pub fn session(&self) -> Session {
        self.client.session()
    }

    /// Whether its protocol is uniform throughout: all nodes execute what any node has executed, in the same order, so that an
    /// acknowledged command survives the crash of any minority of the nodes. With another protocol the failure of one node may
    /// lose commands that it acknowledged (docs/total-order.md names the guarantees of each).
    pub const fn is_uniform(&self) -> bool {
        self.is_uniform
    }

    /// The nodes, as far as the supervisor knows: their processes, how often they were started, how
    /// they ended last.
    pub fn lives(&self) -> Vec<NodeProcess> {
        self.nodes.as_ref().map(Supervisor::lives).unwrap_or_default()
    }

    /// Whether every node is ready; if not, why one is not.
    ///
    /// # Errors
    /// The first reason, for people.
    pub fn ready(&self) -> Result<(), String> {
        self.watch.all_ready()
    }

    /// The nodes that are not ready now, and why: how the last process of each ended, if it does not answer.
    pub fn missing(&self) -> Vec<MissingNode> {
        missing_nodes(self.dir(), &self.watch, &self.lives())
    }

    /// The shards that have lost their majority for good, where the protocol keeps nothing on disk: stop such a cluster, and
    /// start it anew.
    pub fn lost(&self) -> Vec<LostShard> {
        self.watch.lost()
    }

    /// Its directory, for [`Client::join`] and `amcast status --data`.
    pub fn dir(&self) -> &ClusterDir {
        self.own.as_ref().expect("it is there until it is dropped").dir()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // First of all, also if sessions outlive the cluster: their client's place is in the directory.
        self.client.stop();
        drop(self.nodes.take());
        let Some(own) = self.own.take() else { return };
        if let Err(e) = own.remove(&self.ground, false) {
            tracing::warn!("{e}");
        }
    }
}

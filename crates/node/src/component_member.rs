//! A member of a group that continues in every component of a partition, in a program of one's own: a replica of a state
//! machine that reconciles ([`ReconcilingReplica`]), in a thread of its own, at connections of its own.
//!
//! Where every component continues, a client is served by the member that it reaches, and by no other one: a command that is
//! sent to a second member may be executed twice, in two components. So there is no gateway that chooses a node, and no
//! supervisor that must reach all nodes: a program has a member in itself, and calls it.
//!
//! ```text
//! callers' threads   call, look  ---> requests, bounded ---> the member's thread: replica, protocol, connections
//!                    <--- an answer each, once                                      |
//!                                                                       other members, by TCP and UDP
//! ```
//! All that a member has is in memory: one that ends has forgotten everything, and begins anew with an empty state and in a
//! component of its own, which merges with the others. Its directory has only the number of its next life.

mod member_loop;

use crate::clock;
use crate::cluster_dir::{Net, life_name};
use crate::config::{HostPlacement, node_name};
use crate::connection_requests::ConnectionRequests;
use crate::incarnation::{IncarnationLock, ProcessName};
use crate::message_driver::{MessageDriver, MessageDriverOptions};
use crate::node::NodeError;
use crate::node_address::ClusterKey;
use crate::node_history::{HistoryKind, NodeHistory};
use crate::peer_registry::PeerRegistry;
use crate::replicas::Replicas;
use amcast_core::groupcast::ViewName;
use amcast_core::parameters::PAYLOAD_MAX;
use amcast_core::{
    Capability, Config, Entry, Gid, MissingCapability, Outcome, PartitionMode, ProtocolProcess,
};
use amcast_net::Secret;
use amcast_smr::application::WakeHandle;
use amcast_smr::{
    ReconcileLimits, ReconcileRefusal, ReconcilingReplica, StateMachine, require_reconciler,
};
use member_loop::{MemberLoop, MemberParts, MemberRequest};
use std::fmt;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Requests that callers may have handed in and the member's thread has not taken.
const REQUESTS_MAX: usize = 1024;

/// The options of a member.
#[derive(Clone, Copy)]
pub struct ComponentMemberOptions<'a> {
    /// The protocol: one that continues in every component of a partition.
    pub entry: &'a dyn Entry,
    /// The checked configuration of the group: one group, and no clients.
    pub config: &'a Config,
    /// A number of the group's own: members of another one are not let in.
    pub cluster_id: u64,
    /// The secret of the group's members; none only where all of them listen on this machine.
    pub secret: &'a Secret,
    /// Where each member listens, for connections and datagrams, by rank.
    pub addresses: &'a [SocketAddr],
    /// Which of them this one is.
    pub rank: usize,
    /// A directory for the number of its next life: the same one whenever it starts.
    pub directory: &'a Path,
    /// Its bounds: the same at all members.
    pub limits: ReconcileLimits,
    /// Where it writes its history, if anywhere: memory and files grow with the run then.
    pub record: Option<&'a Path>,
}

/// Why a member could not start.
#[derive(Debug)]
pub enum MemberError {
    /// The protocol cannot do what is asked of it, or the machine has no hook to reconcile.
    Capability(MissingCapability),
    /// The protocol, by its name, continues in one component of a partition only, and needs no reconciling.
    OneComponent(&'static str),
    /// The options; the sentence says which.
    Options(String),
    /// Its process, its connections, or its directory.
    Node(NodeError),
}

impl fmt::Display for MemberError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Capability(e) => e.fmt(f),
            Self::OneComponent(name) => write!(
                f,
                "{name} continues in one component of a partition only: nothing is reconciled on it, and a cluster of \
                 nodes runs it"
            ),
            Self::Options(why) => f.write_str(why),
            Self::Node(e) => e.fmt(f),
        }
    }
}

impl std::error::Error for MemberError {}

impl From<NodeError> for MemberError {
    fn from(e: NodeError) -> Self {
        Self::Node(e)
    }
}

/// Why a command has no answer of the machine, or not the wanted one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MemberCallError {
    /// The member did not take it.
    Refused(ReconcileRefusal),
    /// The machine declined it, with this answer. Others that part in the same view may have executed it, unless this member
    /// was alone.
    Declined(Vec<u8>, Outcome),
    /// There was no answer in time.
    TimedOut,
    /// The member stopped before it was answered.
    Stopped(Outcome),
}

impl MemberCallError {
    /// The outcome of the command.
    pub const fn outcome(&self) -> Outcome {
        match self {
            Self::Refused(why) => why.outcome(),
            Self::Declined(_, outcome) | Self::Stopped(outcome) => *outcome,
            Self::TimedOut => Outcome::Unknown,
        }
    }
}

impl fmt::Display for MemberCallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = match self {
            // It ends so already.
            Self::Refused(why) => return why.fmt(f),
            Self::Declined(..) => "the service declined it",
            Self::TimedOut => "it was not answered in time",
            Self::Stopped(_) => "the member stopped",
        };
        write!(f, "{why}; {}", self.outcome().words())
    }
}

impl std::error::Error for MemberCallError {}

/// The component of a member, as it knows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemberStatus {
    /// The view that it is in.
    pub view: ViewName,
    /// The ranks of its members.
    pub members: Vec<usize>,
    /// Whether these are more than half of the group.
    pub is_majority: bool,
    /// Whether they have the same state, as soon as they have delivered the same; if not, they exchange their states.
    pub is_reconciled: bool,
    /// How often states were reconciled here.
    pub merges: u64,
    /// Commands of its callers that are not answered.
    pub unanswered: usize,
}

/// The end of a command: its outcome, and the machine's answer.
pub(crate) type MemberAnswer = Result<Vec<u8>, MemberCallError>;

/// An answer that is to come.
#[derive(Debug)]
pub struct PendingMemberAnswer(Receiver<MemberAnswer>);

impl PendingMemberAnswer {
    /// Waits for it, for as long as `patience`. A command that is not answered by then may be executed later.
    ///
    /// # Errors
    /// When there is none; [`MemberCallError::outcome`] says what became of the command.
    pub fn wait(self, patience: Duration) -> Result<Vec<u8>, MemberCallError> {
        match self.0.recv_timeout(patience) {
            Ok(answer) => answer,
            Err(RecvTimeoutError::Timeout) => Err(MemberCallError::TimedOut),
            Err(RecvTimeoutError::Disconnected) => Err(MemberCallError::Stopped(Outcome::Unknown)),
        }
    }
}

/// A member. It stops when it is dropped: it leaves its component, so that the others have all that it has acknowledged, as far
/// as they hear it. That takes some two seconds at most, and up to thirty while its component exchanges states; a line in the
/// log says if it stopped without having left. Commands that it has not multicast are not executed then.
pub struct ComponentMember<S: StateMachine> {
    requests: SyncSender<MemberRequest<S>>,
    wake: WakeHandle,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    /// How many members the group has.
    replicas: usize,
    /// Bytes of a command, at most.
    command_bytes: usize,
}

impl<S: StateMachine> ComponentMember<S> {
    /// Starts a member: opens its sockets, begins to connect, and serves from then on, also while it hears nobody.
    ///
    /// # Errors
    /// When the protocol and the machine do not go together, the options are wrong, or a socket or file cannot be used.
    pub fn start(options: ComponentMemberOptions<'_>) -> Result<Self, MemberError> {
        check(&options)?;
        require_reconciler::<S>(options.entry).map_err(MemberError::Capability)?;
        if options.entry.capabilities().partitions != PartitionMode::EveryComponent {
            return Err(MemberError::OneComponent(options.entry.name()));
        }
        let limits = bounded(&options);
        let replicas = options.config.cluster().replicas();
        let replica =
            ReconcilingReplica::new(options.rank as u32, replicas, limits).ok_or_else(|| {
                let (protocol, capability) = (options.entry.name(), Capability::OneOrder);
                MemberError::Capability(MissingCapability { protocol, capability })
            })?;
        let (driver, life) = connect(&options, limits)?;
        let history = record(&options)?;
        let (requests, taken) = sync_channel(REQUESTS_MAX);
        let (stop, wake) = (Arc::new(AtomicBool::new(false)), driver.wake());
        let flag = Arc::clone(&stop);
        let name = node_name(options.rank);
        let cluster = *options.config.cluster();
        let parts = MemberParts { driver, replica, life, history, cluster };
        let looped = MemberLoop::new(parts, taken, flag);
        let thread = std::thread::Builder::new().name(name.clone()).spawn(move || looped.run());
        let thread = thread.map_err(|e| NodeError::Io(name.into(), e))?;
        let (thread, command_bytes) = (Some(thread), limits.command_bytes());
        Ok(Self { requests, wake, stop, thread, replicas, command_bytes })
    }

    fn hand_in(&self, request: MemberRequest<S>) -> Result<(), MemberCallError> {
        match self.requests.try_send(request) {
            Ok(()) => {
                (self.wake)();
                Ok(())
            }
            Err(TrySendError::Full(_)) => Err(MemberCallError::Refused(ReconcileRefusal::Full)),
            Err(TrySendError::Disconnected(_)) => {
                Err(MemberCallError::Stopped(Outcome::NotExecuted))
            }
        }
    }

    /// Hands in a command, and returns at once. Commands of one thread are executed in the order in which it hands them in.
    ///
    /// # Errors
    /// When too much waits already, the command is larger than a message may be, or the member has stopped: it will not be
    /// executed.
    pub fn send(&self, command: &[u8]) -> Result<PendingMemberAnswer, MemberCallError> {
        let bytes_max = self.command_bytes;
        if command.len() > bytes_max {
            // Refused here, so that what waits for the member's thread is bounded in bytes, too.
            return Err(MemberCallError::Refused(ReconcileRefusal::TooLarge { bytes_max }));
        }
        let (answer, answered) = sync_channel(1);
        self.hand_in(MemberRequest::Command(command.to_vec(), answer))?;
        Ok(PendingMemberAnswer(answered))
    }

    /// Has a command executed, in the order of this member's component, and waits for the machine's answer.
    ///
    /// # Errors
    /// When there is none; [`MemberCallError::outcome`] says what became of the command.
    pub fn call(&self, command: &[u8], patience: Duration) -> Result<Vec<u8>, MemberCallError> {
        self.send(command)?.wait(patience)
    }

    /// Looks at the state of this member, as far as it has executed commands; none if the member has stopped. The member does
    /// nothing else meanwhile.
    ///
    /// # Panics
    /// If `look` does; the member continues.
    pub fn look<T: Send + 'static>(
        &self,
        look: impl FnOnce(&S::Shard) -> T + Send + 'static,
    ) -> Option<T> {
        self.ask(|seen| look(seen.state()))
    }

    /// Its component, as it knows it; none if it has stopped.
    pub fn status(&self) -> Option<MemberStatus> {
        let half = self.replicas / 2;
        self.ask(move |replica| {
            let bits = replica.members();
            let members: Vec<usize> = (0..32).filter(|rank| bits >> rank & 1 == 1).collect();
            MemberStatus {
                view: replica.view(),
                is_majority: members.len() > half,
                members,
                is_reconciled: replica.is_reconciled(),
                merges: replica.merges(),
                unanswered: replica.unanswered(),
            }
        })
    }

    fn ask<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&ReconcilingReplica<S>) -> T + Send + 'static,
    ) -> Option<T> {
        let (answer, answered) = sync_channel(1);
        // A caller's mistake must not end the member, nor lose what it has acknowledged alone.
        let look = move |replica: &ReconcilingReplica<S>| {
            let asked = catch_unwind(AssertUnwindSafe(|| ask(replica)));
            drop(answer.send(asked));
        };
        // A look waits for its turn: it is no command that may be refused.
        self.requests.send(MemberRequest::Look(Box::new(look))).ok()?;
        (self.wake)();
        match answered.recv().ok()? {
            Ok(answer) => Some(answer),
            Err(panic) => resume_unwind(panic),
        }
    }
}

impl<S: StateMachine> Drop for ComponentMember<S> {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        (self.wake)();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("a member has panicked");
        }
    }
}

/// Checks the options that no other part does.
fn check(options: &ComponentMemberOptions<'_>) -> Result<(), MemberError> {
    let ComponentMemberOptions { config, addresses, rank, secret, .. } = *options;
    let cluster = config.cluster();
    let wrong = |why: String| Err(MemberError::Options(why));
    if cluster.groups() != 1 || cluster.processes() != cluster.replicas() {
        return wrong("a member is of one group without clients".to_string());
    }
    if addresses.len() != cluster.replicas() || rank >= addresses.len() {
        let (given, replicas) = (addresses.len(), cluster.replicas());
        return wrong(format!(
            "{given} addresses, and rank {rank}: the group has {replicas} members"
        ));
    }
    match addresses.iter().find(|at| !at.ip().is_loopback()) {
        Some(at) if secret.is_none() => wrong(format!(
            "a secret is missing: a member listens at {at}, where strangers may be members, too"
        )),
        _ => Ok(()),
    }
}

/// The bounds, with messages that are no larger than the protocol takes.
fn bounded(options: &ComponentMemberOptions<'_>) -> ReconcileLimits {
    let ComponentMemberOptions { limits, config, .. } = *options;
    let most = PAYLOAD_MAX.find(config).unwrap_or(usize::MAX);
    ReconcileLimits { message_bytes: limits.message_bytes.min(most), ..limits }
}

/// Begins its next history, if it records any.
fn record(options: &ComponentMemberOptions<'_>) -> Result<Option<NodeHistory>, MemberError> {
    let ComponentMemberOptions { config, rank, record, .. } = *options;
    let Some(dir) = record else { return Ok(None) };
    let cluster = *config.cluster();
    let kind = HistoryKind { multicasts: true, views: true, overlay: None, lived: false };
    let pids = [cluster.replica(Gid(0), rank)];
    let begun = NodeHistory::begin(dir, &node_name(rank), cluster, &pids, kind, clock::now());
    begun.map(Some).map_err(|e| NodeError::Io(dir.to_path_buf(), e).into())
}

/// Begins the next life of the member, and its connections.
fn connect(
    options: &ComponentMemberOptions<'_>,
    limits: ReconcileLimits,
) -> Result<(MessageDriver, IncarnationLock), MemberError> {
    let ComponentMemberOptions { entry, config, rank, directory, .. } = *options;
    let cluster = *config.cluster();
    let path = directory.join(life_name(rank));
    let wrong = |e| NodeError::Io(path.clone(), e);
    let name = ProcessName::take(&path).map_err(wrong)?;
    let name = name.ok_or_else(|| NodeError::Runs(node_name(rank)))?;
    let process = match entry.build(cluster.replica(Gid(0), rank), config) {
        Ok(ProtocolProcess::Messages(process)) => process,
        Ok(ProtocolProcess::Memory(..)) => {
            return Err(MemberError::Options(format!("{} does not send messages", entry.name())));
        }
        Err(e) => return Err(NodeError::Config(e).into()),
    };
    let life = name.begin(0).map_err(wrong)?;
    let places = options.addresses.iter().map(|&at| HostPlacement::at(at)).collect();
    let key = ClusterKey { id: options.cluster_id, secret: options.secret.clone() };
    let decides = [
        ("protocol", entry.name().to_string()),
        ("parameters", format!("{config:?}")),
        ("limits", format!("{limits:?}")),
    ];
    let decides = decides.map(|(name, value)| (name.to_string(), value)).to_vec();
    let mut peer_registry = PeerRegistry::fleeting(cluster.replicas());
    (peer_registry.start, peer_registry.decides) = (life.start(), decides);
    let start = MessageDriverOptions {
        rank,
        life: life.number(),
        peer_registry,
        keeping: None,
        asks: ConnectionRequests::of(config),
        tracing: options.record.is_some(),
        early: false,
    };
    let net = Net::of(directory.to_path_buf(), key, places);
    let driver = MessageDriver::start(&net, &cluster, vec![process], start);
    Ok((driver.map_err(NodeError::Net)?, life))
}

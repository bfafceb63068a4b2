//! The connections between the nodes of a cluster over memory that is on several hosts, and the thread that serves them.
//!
//! The thread owns the carrier of the node's connections, the same that nodes of protocols with messages have: with the
//! cluster's secret, refusals of other clusters and of earlier lives, and one connection to each other node. Frames
//! that arrive go to the [`MemoryAgent`], which carries them out in the memory of this node. The thread runs no protocol, so a
//! node whose loop is busy still answers for its memory.

#[cfg(feature = "rdma")]
mod fabric;
mod lane_states;
mod lanes;
mod silence;
#[cfg(test)]
mod tests;

pub use lanes::HostCarrier;

use crate::cluster_dir::MemoryHosts;
use crate::config::{HostPlacement, marks, node_name};
use crate::control::{NetworkStatus, PeerStatus};
use crate::incarnation::IncarnationLock;
use crate::peer_registry::{Dismissal, PeerRegistry};
use crate::reply_ring::ReplyRingLayout;
use amcast_core::messages::MessageInput;
use amcast_core::parameters::SUSPECT;
use amcast_core::{ClusterShape, Config, GroupSet, Pid, Role, Span};
use amcast_memory::remote::{
    FRAME_BYTES_MAX, FrameSink, MemoryAgent, RemoteFault, RemoteMap, RemoteMemory,
};
use amcast_memory::{Directory, Idle, Idler, Pause, shorten_turns};
use amcast_net::{Carrier, NetCounts, NetError, NetOptions, PeerConfig, Secret, Waker};
use lanes::{LaneEnd, NodeLanes};
use silence::{NodeAnswers, NodeSilences, STALLED_AFTER};
use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How much may wait in a connection before more stays in the queue of the memory's link.
const PACE_BYTES: usize = 4 << 20;

/// How much may wait in a connection: frames that are paced, and the words of reads.
const QUEUE_BYTES_MAX: usize = 128 << 20;

/// After how long a connection on which nothing is acknowledged counts as broken, and a node that answers nothing as silent: accesses
/// are `Lost` then. Twice as long as a process may be silent before it is suspected, within these bounds: protocols wait
/// for outcomes, and a packet that is lost twice in a row must not break it.
const SILENCE: (Span, Span) = (Span::millis(500), Span::secs(5));

/// How long a connection may take, and how long at most until it is tried again. The system repeats the first packet after
/// a second, then two, then four: a new attempt is sooner there when a link is healed.
const HANDSHAKE_MAX: Span = Span::secs(1);
const REDIAL_MAX: Span = Span::millis(200);

/// After how long a silent connection counts as broken, and a node as silent, where processes are suspected after `suspect`.
fn silence(suspect: Option<Span>) -> Span {
    let twice = suspect.map_or(SILENCE.0, |suspect| suspect.times(2));
    twice.max(SILENCE.0).min(SILENCE.1)
}

/// The longest that the thread sleeps.
const SLEEP_MAX: Span = Span::millis(100);

/// The longest that it sleeps where a lane cannot wake it.
const LANE_SLEEP_MAX: Span = Span::millis(1);

/// How long the node's loop may do no round until its replicas do not count as fit: what it said last may not be so any more. An idle
/// loop does one every 50 ms.
const LOOP_SILENCE_MAX: Duration = Duration::from_secs(1);

/// How long it may do none until what it said of replicas that lag counts no more: by then another replica leads that knows it.
const LAGGING_SILENCE_MAX: Duration = Duration::from_secs(10);

/// How often the state for people is brought up to date.
const PUBLISH_EVERY: Duration = Duration::from_millis(50);

/// How often it is looked whether a process of another node on this host has died.
const CLEAN_EVERY: Duration = Duration::from_secs(1);

/// Why a node has no connections to other hosts.
#[derive(Debug)]
pub enum LinksError {
    /// Its address cannot be used, or the system has no thread.
    Net(NetError),
    /// It has no remote memory access, though it is configured.
    Lanes(String),
}

impl fmt::Display for LinksError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Net(why) => why.fmt(f),
            Self::Lanes(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for LinksError {}

impl From<NetError> for LinksError {
    fn from(why: NetError) -> Self {
        Self::Net(why)
    }
}

/// The state that the thread and the node's loop have in common.
#[derive(Default)]
struct LinksShared {
    stop: AtomicBool,
    /// The loop is to look at why it cannot continue as it is: it asks in every round.
    attention: AtomicBool,
    /// Whether the replicas of the node are fit, and the nodes that lag one that leads, as the loop said in its last round.
    fit: AtomicBool,
    lagging: AtomicU64,
    /// The loop's rounds: what it says does not age while it runs.
    rounds: AtomicU64,
    state: Mutex<LinksState>,
}

impl LinksShared {
    fn state(&self) -> MutexGuard<'_, LinksState> {
        // A panic in a section leaves values of one moment or another.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The state of the connections, for the loop and for people.
#[derive(Default)]
struct LinksState {
    network: Option<NetworkStatus>,
    peers: Vec<PeerStatus>,
    dismissal: Option<Dismissal>,
    differs: Option<String>,
    not_met: Vec<usize>,
    /// Why the node has to begin a new incarnation.
    anew: Option<String>,
    /// Where nodes are from now on, if that is new.
    moves: Option<NodeMoves>,
}

/// Where nodes are.
struct NodeMoves {
    /// By rank.
    addresses: Vec<SocketAddr>,
    /// Those that were on this host when this node started, and are not any more.
    away: Vec<usize>,
}

/// The connections of a node to the memory of other hosts. They end when it is dropped.
#[must_use]
pub struct MemoryLinks {
    shared: Arc<LinksShared>,
    waker: Waker,
    /// Where the nodes were at the start.
    places: Vec<HostPlacement>,
    rank: usize,
    thread: Option<JoinHandle<()>>,
}

/// The nodes on the host of node `rank`, itself among them.
fn near(places: &[HostPlacement], rank: usize) -> Vec<usize> {
    let ip = |rank: usize| places[rank].address.ip();
    (0..places.len()).filter(|&other| ip(other) == ip(rank)).collect()
}

/// Which processes live in which node: replicas and answers in those of their rank, and client places in turn.
fn map(cluster: ClusterShape, places: &[HostPlacement], (rank, life): (usize, u32)) -> RemoteMap {
    let (layout, nodes) = (ReplyRingLayout(cluster), cluster.replicas());
    let mut node_of = vec![0; layout.processes() as usize];
    for pid in cluster.pids() {
        node_of[pid.index()] = match cluster.role(pid) {
            Role::Replica { rank, .. } => usize::from(rank),
            Role::Client { client } => usize::from(client) % nodes,
        };
    }
    for client in 0..cluster.clients() {
        node_of[layout.replies(client).index()] = client % nodes;
    }
    for node in 0..nodes {
        node_of[layout.reply_rings(node).index()] = node;
    }
    let clients = (0..cluster.clients()).map(|client| client % nodes).collect();
    RemoteMap {
        here: rank,
        nodes,
        node_of,
        near: near(places, rank),
        places: clients,
        first_incarnation: life,
    }
}

impl MemoryLinks {
    /// Opens the sockets of the node `rank`, begins to connect to the others, and starts the thread. Gives the directory
    /// in which the node's processes are to start.
    ///
    /// # Errors
    /// When its addresses cannot be used, the system has no thread, or its carrier is not to be had.
    pub(crate) fn start(
        hosts: &MemoryHosts,
        config: &Config,
        (rank, life): (usize, &IncarnationLock),
        idle: Idle,
    ) -> Result<(Directory, Self), LinksError> {
        let cluster = *config.cluster();
        let places = hosts.net().places.clone();
        let remote = RemoteMemory::new(map(cluster, &places, (rank, life.number())), life.start());
        let mut registry = PeerRegistry::fleeting(places.len());
        registry.start = life.start();
        registry.decides.clone_from(&hosts.net().decides);
        let place = &places[rank];
        // Where it listens at all addresses, it is reached at the one of the cluster's file.
        let listen = place.listen.filter(|listen| !listen.ip().is_unspecified());
        let bind = listen.unwrap_or(place.address).ip();
        let lanes = hosts.net().carrier.lanes(places.len(), bind).map_err(LinksError::Lanes)?;
        let carrier = carrier(hosts, config, &registry, (rank, life.number()))?;
        let directory = hosts.begin(remote);
        let wait = (idle, silence(SUSPECT.find(config)));
        let links = Self::run(&directory, (carrier, lanes), registry, (rank, places), wait)?;
        Ok((directory, links))
    }

    /// Connects the node that `map` names as its own to others at these addresses, for measurements: nodes believe each
    /// other by their cluster's number alone. `start` distinguishes this start of the node from all others, and is
    /// not 0. Gives the directory in which the node's processes are to start.
    ///
    /// # Errors
    /// When its address cannot be used, the system has no thread, or the carrier is not to be had.
    pub fn between(
        directory: Directory,
        (map, start): (RemoteMap, u64),
        cluster_id: u64,
        addresses: &[SocketAddr],
        by: &HostCarrier,
    ) -> Result<(Directory, Self), LinksError> {
        let (rank, processes) = (map.here, map.node_of.len() as u32);
        let mut registry = PeerRegistry::fleeting(addresses.len());
        registry.start = start;
        let peer = |&at: &SocketAddr| PeerConfig { tcp: at, udp: at, groups: GroupSet::EMPTY };
        let peers: Vec<PeerConfig> = addresses.iter().map(peer).collect();
        let options = options((cluster_id, Secret::default()), processes, &registry);
        let bind = addresses[rank].ip();
        let lanes = by.lanes(addresses.len(), bind).map_err(LinksError::Lanes)?;
        let carrier = Carrier::start(Pid(rank as u32), 0, &peers, &options)?;
        let directory = directory.with_remote(RemoteMemory::new(map, start));
        let places = addresses.iter().copied().map(HostPlacement::at).collect();
        let placed = (rank, places);
        let wait = (Idle::SHARED, silence(None));
        let links = Self::run(&directory, (carrier, lanes), registry, placed, wait)?;
        Ok((directory, links))
    }

    /// Starts the thread, for which a node is silent after that time.
    fn run(
        directory: &Directory,
        (carrier, lanes): (Carrier, Option<NodeLanes>),
        registry: PeerRegistry,
        (rank, places): (usize, Vec<HostPlacement>),
        (idle, silent_after): (Idle, Span),
    ) -> Result<Self, NetError> {
        let waker = carrier.waker();
        let ring = waker.clone();
        if let Some(remote) = directory.remote() {
            remote.wake_with(Box::new(move || ring.ring()));
        }
        let shared = Arc::new(LinksShared::default());
        let mut links = LinksLoop::new(directory.clone(), carrier, registry, rank);
        links.shared = Arc::clone(&shared);
        links.lanes = lanes;
        links.silences = NodeSilences::new(places.len(), silent_after);
        let run = move || links.run(idle);
        let thread = std::thread::Builder::new().name("memory-agent".to_string()).spawn(run);
        let thread = thread
            .map_err(|_| NetError::Options { says: "the system has no room for a thread" })?;
        Ok(Self { shared, waker, places, rank, thread: Some(thread) })
    }

    /// The connections, for people.
    pub(crate) fn network(&self) -> Option<NetworkStatus> {
        self.shared.state().network
    }

    /// The other nodes, by rank.
    pub(crate) fn peers(&self) -> Vec<PeerStatus> {
        self.shared.state().peers.clone()
    }

    /// That another node refuses this one.
    pub(crate) fn dismissal(&self) -> Option<Dismissal> {
        if !self.shared.attention.load(Ordering::Relaxed) {
            return None;
        }
        self.shared.state().dismissal.clone()
    }

    /// That another node has other settings.
    pub(crate) fn differs(&self) -> Option<String> {
        self.shared.state().differs.clone()
    }

    /// Nodes that were not met.
    pub(crate) fn not_met(&self) -> Vec<usize> {
        self.shared.state().not_met.clone()
    }

    /// Why the node has to begin a new incarnation, if it has. Also if the thread has ended by itself.
    pub(crate) fn must_begin_anew(&self) -> Option<String> {
        if self.thread.as_ref().is_some_and(JoinHandle::is_finished) {
            return Some("the thread that serves other hosts has failed".to_string());
        }
        if !self.shared.attention.load(Ordering::Relaxed) {
            return None;
        }
        self.shared.state().anew.clone()
    }

    /// The node's loop does a round. Whether its replicas have all of their state: others may begin anew only where enough have. In
    /// `lagging` the bit of each node is set for whose replica one of this node's, as the leader, does not wait.
    pub(crate) fn set_fit(&self, is_fit: bool, lagging: u64) {
        let LinksShared { fit, lagging: lags, rounds, .. } = &*self.shared;
        fit.store(is_fit, Ordering::Relaxed);
        lags.store(lagging, Ordering::Relaxed);
        // Nobody else writes it.
        rounds.store(rounds.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Nodes are at these places from now on. This node continues with the memory that it has when others come to its host
    /// or leave it: a node that is replaced is empty, and one more that began anew at the same time could be one too many.
    /// With one that came here it exchanges frames until its next start; one that left is reached over its connection once it lives
    /// here no more.
    pub(crate) fn move_to(&mut self, places: &[HostPlacement]) {
        let (before, now) = (near(&self.places, self.rank), near(places, self.rank));
        let away = before.into_iter().filter(|node| !now.contains(node)).collect();
        let addresses = places.iter().map(|place| place.address).collect();
        self.shared.state().moves = Some(NodeMoves { addresses, away });
        self.waker.ring();
    }
}

impl Drop for MemoryLinks {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.waker.ring();
        if let Some(thread) = self.thread.take() {
            // It has said why if it panicked.
            let _ = thread.join();
        }
    }
}

/// The carrier of the node's connections.
fn carrier(
    hosts: &MemoryHosts,
    config: &Config,
    registry: &PeerRegistry,
    (rank, life): (usize, u32),
) -> Result<Carrier, NetError> {
    let net = hosts.net();
    let peer = |(of, place): (usize, &HostPlacement)| {
        // Others get its public address, and it listens at the configured one.
        let at = place.listen.filter(|_| of == rank).unwrap_or(place.address);
        PeerConfig { tcp: at, udp: at, groups: GroupSet::EMPTY }
    };
    let peers: Vec<PeerConfig> = net.places.iter().enumerate().map(peer).collect();
    let key = (net.key.id, net.key.secret.clone());
    let options = NetOptions {
        seed: (rank as u64) << 32 | u64::from(life),
        silence_max: silence(SUSPECT.find(config)),
        ..options(key, config.cluster().processes() as u32, registry)
    };
    Carrier::start(Pid(rank as u32), life, &peers, &options)
}

/// How the connections behave, in a cluster of this number and secret with so many processes.
fn options(
    (cluster_id, secret): (u64, Secret),
    processes: u32,
    registry: &PeerRegistry,
) -> NetOptions {
    NetOptions {
        cluster_id,
        secret,
        processes,
        decides: marks(&registry.decides),
        start: registry.start,
        known: registry.known.clone(),
        frame_bytes_max: FRAME_BYTES_MAX,
        queue_bytes_max: QUEUE_BYTES_MAX,
        silence_max: silence(None),
        handshake_max: HANDSHAKE_MAX,
        redial_max: REDIAL_MAX,
        ..NetOptions::default()
    }
}

/// The thread.
struct LinksLoop {
    rank: usize,
    agent: MemoryAgent,
    carrier: Carrier,
    /// Other carriers of the frames, if there are any.
    lanes: Option<NodeLanes>,
    registry: PeerRegistry,
    shared: Arc<LinksShared>,
    directory: Directory,
    /// Whether other nodes share the host and its directory.
    shares: bool,
    publish_at: Instant,
    clean_at: Instant,
    silences: NodeSilences,
    /// Nodes that are to be reached over their connections once they do not live on this host any more.
    away: Vec<usize>,
    /// Nodes between which and this one writes were dropped, as the log says.
    gaps_told: Vec<usize>,
    /// The loop's rounds at the last look, and since when there are so many.
    rounds: (u64, Instant),
}

/// The connections as the agent sees them.
struct LinkSink<'a> {
    carrier: &'a mut Carrier,
    lanes: &'a mut Option<NodeLanes>,
}

impl LinkSink<'_> {
    /// Ends the connection to a node, its lane first: nothing of that node lands from here on.
    fn hang_up(&mut self, node: usize, why: &str) {
        let says = match self.lanes {
            Some(lanes) => lanes.fail(node, why),
            None => Some(format!("the connection to {} is ended: {why}", node_name(node))),
        };
        if let Some(says) = says {
            tracing::warn!("{says}");
        }
        self.carrier.hang_up(Pid(node as u32));
    }
}

impl FrameSink for LinkSink<'_> {
    fn room(&self, node: usize) -> usize {
        let backlog = match &*self.lanes {
            Some(lanes) => lanes.backlog(node),
            None => self.carrier.backlog(Pid(node as u32)),
        };
        PACE_BYTES.saturating_sub(backlog)
    }

    fn send(&mut self, node: usize, frame: &[u8]) {
        match self.lanes {
            Some(lanes) => lanes.send(node, frame),
            None => self.carrier.carry_parts(Pid(node as u32), frame, &[]),
        }
    }

    fn end(&mut self, node: usize, why: RemoteFault) {
        self.hang_up(node, &why.to_string());
    }
}

impl LinksLoop {
    /// The thread of the node `rank`, whose directory has a way to other hosts.
    fn new(directory: Directory, carrier: Carrier, registry: PeerRegistry, rank: usize) -> Self {
        let near = directory.remote().map_or(1, |remote| remote.map().near.len());
        let silences = NodeSilences::new(registry.known.len(), silence(None));
        Self {
            rank,
            agent: MemoryAgent::new(directory.clone()),
            carrier,
            lanes: None,
            registry,
            shared: Arc::default(),
            shares: near > 1,
            directory,
            publish_at: Instant::now(),
            clean_at: Instant::now(),
            silences,
            away: Vec::new(),
            gaps_told: Vec::new(),
            rounds: (0, Instant::now()),
        }
    }

    fn run(&mut self, idle: Idle) {
        // A thread that has the core would have each access wait for its turn. Without it the node works, too.
        let _ = shorten_turns();
        let mut idler = Idler::new(idle.woken());
        while !self.shared.stop.load(Ordering::Acquire) {
            if self.round() {
                idler.busy();
            } else if idler.pause() == Pause::Park {
                self.park();
            }
            let now = Instant::now();
            if now >= self.publish_at {
                self.publish_at = now + PUBLISH_EVERY;
                self.look_at_lanes(now);
                self.look_at_gaps(now);
                self.publish();
                self.end_stalled(now);
            }
            if self.shares && now >= self.clean_at {
                self.clean_at = now + CLEAN_EVERY;
                // Nobody supervises nodes that are started by hand. A process of the host that is stopped while it has the
                // directory must not stop this thread as well: all other hosts wait for it. The next time comes soon.
                if let Err(e) = self.directory.try_clean() {
                    tracing::warn!("{e}");
                }
            }
        }
    }

    fn park(&mut self) {
        let at_most = self.lanes.as_mut().map_or(SLEEP_MAX, NodeLanes::sleep_max);
        if at_most > Span::ZERO {
            self.carrier.park(Some(at_most));
        }
    }

    fn round(&mut self) -> bool {
        let Self { agent, carrier, lanes, registry, .. } = self;
        let mut busy = false;
        let is_wrong =
            |wrong: &[LaneEnd], node: Pid| wrong.iter().any(|(of, _)| *of == node.index());
        let (mut up, mut wrong) = (Vec::new(), Vec::new());
        carrier.begin_round();
        while let Some(input) = carrier.next_input() {
            busy = true;
            match input {
                // Behind a frame that was not taken nothing else is: it would leave a gap.
                MessageInput::From(node, _) if is_wrong(&wrong, node) => {}
                MessageInput::From(node, frame) => {
                    if let Err(why) = take_frame(agent, lanes, node.index(), frame) {
                        wrong.push((node.index(), why));
                    }
                }
                MessageInput::Up(node) => {
                    match lanes {
                        None => agent.up(node.index()),
                        // The agent begins once the other end of the lane is known.
                        Some(lanes) => lanes.connected(node.index()),
                    }
                    up.push(node);
                }
                MessageInput::Down(node) => {
                    if let Some(lanes) = lanes {
                        lanes.disconnected(node.index());
                    }
                    agent.down(node.index());
                }
                // Accesses go over streams: there are no datagrams.
                MessageInput::Backlog(_) => {}
            }
        }
        for node in up {
            // Nothing of it is on a disk, so nothing can fail.
            let _ = registry.meets(node.index(), carrier.known(node));
            registry.met.insert(node.index());
        }
        if let Some(lanes) = lanes {
            let met = lanes.open_due(carrier, &mut wrong);
            met.into_iter().for_each(|node| agent.up(node));
        }
        busy |= receive_lanes(agent, lanes, &mut wrong);
        for (node, why) in wrong.drain(..) {
            LinkSink { carrier, lanes }.hang_up(node, &why);
        }
        busy |= agent.flush(&mut LinkSink { carrier, lanes });
        busy |= lanes.as_mut().is_some_and(|lanes| lanes.flush(&mut wrong));
        for (node, why) in wrong {
            LinkSink { carrier, lanes }.hang_up(node, &why);
        }
        carrier.flush();
        busy
    }

    /// Ends the connections to nodes whose lanes carry nothing though they had time to.
    fn look_at_lanes(&mut self, now: Instant) {
        let Some(lanes) = &mut self.lanes else { return };
        let (remote, mut ended) = (self.directory.remote(), Vec::new());
        let carries = |node| remote.is_some_and(|remote| remote.is_open(node));
        for node in lanes.look(now, carries, &mut ended) {
            tracing::info!("{} is reached again by {}", node_name(node), lanes.name());
        }
        for (node, why) in ended {
            self.agent.down(node);
            let Self { carrier, lanes, .. } = self;
            LinkSink { carrier, lanes }.hang_up(node, &why);
        }
    }

    /// Takes notice of whether this node is fit and of nodes that left this host, and says which ones it exchanges no writes with.
    fn look_at_gaps(&mut self, now: Instant) {
        let (is_fit, lagging) = self.health(now);
        self.agent.set_fit(is_fit, lagging);
        let agent = &mut self.agent;
        self.away.retain(|&node| !agent.move_away(node));
        let others = (0..self.registry.known.len()).filter(|&node| node != self.rank);
        let gaps: Vec<usize> = others.filter(|&node| self.agent.has_gap(node)).collect();
        for node in gaps.iter().filter(|node| !self.gaps_told.contains(node)) {
            tracing::warn!("{}: {}", node_name(self.rank), gap_words(*node));
        }
        self.gaps_told = gaps;
    }

    /// Whether the replicas of this node are fit, and which nodes lag a shard that it leads, as its loop says, which still runs.
    fn health(&mut self, now: Instant) -> (bool, u64) {
        let rounds = self.shared.rounds.load(Ordering::Relaxed);
        if rounds != self.rounds.0 {
            self.rounds = (rounds, now);
        }
        let silent = now.duration_since(self.rounds.1);
        let is_fit = silent < LOOP_SILENCE_MAX && self.shared.fit.load(Ordering::Relaxed);
        let counts = silent < LAGGING_SILENCE_MAX;
        (is_fit, if counts { self.shared.lagging.load(Ordering::Relaxed) } else { 0 })
    }

    /// Waits no longer for nodes that are silent, and ends the connections to those that answer nothing.
    fn end_stalled(&mut self, now: Instant) {
        let Some(remote) = self.directory.remote() else { return };
        self.silences.begin(now);
        for node in 0..self.registry.known.len() {
            let asked = (remote.oldest_sent(node), self.agent.frames_of(node));
            match self.silences.look(node, asked, now) {
                NodeAnswers::InTime => {}
                NodeAnswers::Silent => self.agent.abandon(node),
                NodeAnswers::Stalled => {
                    self.agent.down(node);
                    let Self { carrier, lanes, .. } = self;
                    LinkSink { carrier, lanes }.end(node, RemoteFault::Stalled(STALLED_AFTER));
                }
            }
        }
    }

    /// Brings the state for the loop and for people up to date, and takes in what they want.
    fn publish(&mut self) {
        while let Some(remark) = self.carrier.take_remark() {
            self.registry.hear(remark);
        }
        let connected = |rank: usize| self.carrier.connected(Pid(rank as u32)).is_some();
        let others = (0..self.registry.known.len()).filter(|&rank| rank != self.rank);
        let others: Vec<usize> = others.collect();
        let backlog =
            |rank: &usize| self.directory.remote().map_or(0, |remote| remote.backlog(*rank));
        let counts = self.carrier.counts();
        let network = NetworkStatus {
            connected: others.iter().filter(|&&rank| connected(rank)).count(),
            backlog_bytes: others.iter().map(backlog).max().unwrap_or(0),
            ..network_of(&counts, self.agent.counts()[1])
        };
        let mut peers = self.registry.peers(connected);
        let remote = self.directory.remote();
        let shares = |rank| remote.is_some_and(|remote| remote.shares_with(rank));
        for (rank, peer) in peers.iter_mut().enumerate() {
            let between = self.lanes.as_ref().map_or_else(|| "tcp".to_string(), |it| it.name());
            let carrier = if shares(rank) { "shared memory".to_string() } else { between };
            peer.carrier = (rank != self.rank).then_some(carrier);
            let fault = self.lanes.as_ref().and_then(|lanes| lanes.fault(rank));
            let gap = self.gaps_told.contains(&rank).then(|| gap_words(rank));
            peer.memory_fault = fault.map(str::to_string).or(gap);
        }
        let mut state = self.shared.state();
        state.network = Some(network);
        state.peers = peers;
        state.dismissal = self.registry.dismissal().cloned();
        state.differs = self.registry.differs().cloned();
        state.not_met =
            others.into_iter().filter(|rank| !self.registry.met.contains(rank)).collect();
        if self.agent.begins_anew() {
            state.anew.get_or_insert_with(|| {
                format!(
                    "{}: writes between it and another node were dropped, and a majority of the other nodes is ready: it \
                     begins anew, and takes their state",
                    node_name(self.rank)
                )
            });
        }
        let wants_attention = state.anew.is_some() || state.dismissal.is_some();
        self.shared.attention.store(wants_attention, Ordering::Relaxed);
        if let Some(moves) = state.moves.take() {
            drop(state);
            self.away = moves.away;
            for (rank, at) in moves.addresses.into_iter().enumerate() {
                self.carrier.move_peer(Pid(rank as u32), at);
            }
        }
    }
}

/// The report that writes between this node and another one were dropped.
fn gap_words(node: usize) -> String {
    format!(
        "writes between it and {} were dropped, since the two could not reach each other for long: they exchange no more until \
         one of them begins anew, which it does by itself once a majority of the other nodes is ready",
        node_name(node)
    )
}

/// A frame arrived on the connection to a node: for the agent or, where frames travel on lanes, the invitation to one.
fn take_frame(
    agent: &mut MemoryAgent,
    lanes: &mut Option<NodeLanes>,
    node: usize,
    frame: &[u8],
) -> Result<(), String> {
    match (lanes, lanes::invited(frame)) {
        (None, None) => agent.frame(node, frame).map_err(|why| why.to_string()),
        (Some(lanes), Some(address)) => {
            if lanes.invited(node, address)? {
                agent.up(node);
            }
            Ok(())
        }
        _ => Err("of the two nodes one uses remote memory access, and the other does not; give all nodes the same \
                  `rdma_provider`"
            .to_string()),
    }
}

/// Takes in the frames that arrived on lanes; whether there was anything.
fn receive_lanes(
    agent: &mut MemoryAgent,
    lanes: &mut Option<NodeLanes>,
    wrong: &mut Vec<LaneEnd>,
) -> bool {
    let Some(lanes) = lanes else { return false };
    let mut faults = Vec::new();
    let mut take = |node: usize, frame: &[u8]| {
        // Behind a frame that was not taken nothing else is: it would leave a gap.
        let taken = agent.frame(node, frame);
        if let Err(why) = &taken {
            faults.push((node, why.to_string()));
        }
        taken.is_ok()
    };
    let busy = lanes.receive(&mut take, wrong);
    wrong.append(&mut faults);
    busy
}

/// The counts of connections, for people.
fn network_of(counts: &NetCounts, not_carried_out: u64) -> NetworkStatus {
    NetworkStatus {
        connected: 0,
        backlog_bytes: 0,
        connects: counts.connects,
        breaks: counts.breaks,
        sent: counts.stream_sent,
        received: counts.stream_received,
        dropped: counts.dropped_down + not_carried_out,
        strange: counts.strangers,
        overflowed: None,
    }
}

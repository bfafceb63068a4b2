//! The control socket of a node: one request a connection, answered from the node's loop. The same at
//! an address for other hosts, where both ends prove first that they know the cluster's number and secret:
//! the node says `amcast control NONCE`, who asks `of PROOF NONCE`, and the node its own proof; a line each.
//!
//! ```text
//! status\n                     ->  one JSON document
//! state P0 P1 .. [view V]\n    ->  ok NUMBER\n and the state of all groups, each at least at Pi, which
//!                                  says itself where it ends; or: no REASON\n
//! resume NUMBER OFFSET\n       ->  ok\n and the rest of that state, from this byte on, after a connection
//!                                  broke; or: no REASON\n
//! overlay NUMBER -1,0,0\n      ->  ok\n once this tree of the groups is asked for behind that one; or: overtaken NUMBER 2,2,-1\n,
//!                                  later REASON\n, no REASON\n
//! ```

use crate::config::HostPlacement;
use crate::gateway::rate_limited_log::RateLimitedLog;
use crate::node_address::{ClusterKey, ControlStream, NodeAddress};
use crate::overlay_changes::{OverlayRequester, OverlayStatus};
use crate::resources::{LogStatus, ResourceStatus, Resources};
use crate::state_stream::StateStreams;
use amcast_net::{crowded_host, host_network};
use amcast_smr::application::{GroupFigures, WakeHandle};
use amcast_smr::recovery::WantedState;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::fs::Permissions;
use std::io::{self, BufReader, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How long a node's loop may take to answer.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);

/// Requests that wait for the loop; more are refused.
const REQUESTS_MAX: usize = 64;

/// Connections served at a time, each by a thread; more are closed at once. As many as there are
/// nodes and gateways that watch, several times over.
const CONNECTIONS_MAX: usize = 64;

/// The longest request line, in bytes.
pub(crate) const LINE_BYTES_MAX: usize = 4096;

/// Connections from other hosts that have proved nothing yet, at most: the oldest of the host that has most makes room.
const STRANGERS_MAX: usize = 64;

/// A node as its status page says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// Its name.
    pub name: String,
    /// Its number in the operating system.
    pub os_pid: u32,
    /// Whether all its replicas are working members, it has the application's state, and has executed what was ordered before it
    /// started.
    pub ready: bool,
    /// Why it is not, for people; empty if it is.
    pub why: String,
    /// It is not ready only because it still executes what was ordered before it started.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub catches_up: bool,
    /// Its replicas, in order of groups.
    pub replicas: Vec<ReplicaStatus>,
    /// The view that its replica is in, where groups have views.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub view: Option<ViewStatus>,
    /// Its view of the nodes, by rank, where it has connections to them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub peers: Vec<PeerStatus>,
    /// Its connections to the other nodes, where it has any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkStatus>,
    /// Answers dropped because gateways did not keep up.
    pub answers_dropped: u64,
    /// Rounds of its loop that found work, and that parked.
    pub rounds: (u64, u64),
    /// Which life of the node this is: 0 for the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub life: Option<u32>,
    /// Its logs, if it has any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<LogStatus>,
    /// The resources that it uses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceStatus>,
}

impl NodeStatus {
    /// Whether it is a working member of its cluster, although it may lag still.
    pub const fn is_member(&self) -> bool {
        self.ready || self.catches_up
    }
}

/// A node's view of another one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerStatus {
    /// The latest life that was connected; none if none ever was.
    pub life: Option<u32>,
    /// Why it is refused, and what to do; none if it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// That multicast of the node that says this does not reach it, and what to do; none if it does, or
    /// none is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_multicast: Option<String>,
    /// How it is reached, where protocols use memory and the cluster is on several hosts: `shared memory`, `tcp`, or `rdma` with
    /// its provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub carrier: Option<String>,
    /// Why accesses do not reach its memory, or did not when it was tried last, though the nodes know each other; none if they do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_fault: Option<String>,
}

/// A node's connections to the others. Counts only grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkStatus {
    /// Nodes that it is connected to now.
    pub connected: usize,
    /// Bytes that wait to go out to the slowest of them.
    pub backlog_bytes: usize,
    /// Connections that came to stand, and that broke.
    pub connects: u64,
    /// See `connects`.
    pub breaks: u64,
    /// Messages sent, on streams and in datagrams.
    pub sent: u64,
    /// Messages that came.
    pub received: u64,
    /// Messages and datagrams that this node dropped: for want of a connection or of room, or because
    /// they made no sense, or were of an earlier life.
    pub dropped: u64,
    /// Connections and datagrams of something that is no process of the cluster.
    pub strange: u64,
    /// Datagrams for this node that the system dropped because the buffer of their socket was full; none if the system does
    /// not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overflowed: Option<u64>,
}

/// A view of a group: its current members.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ViewStatus {
    /// Its number.
    pub number: u64,
    /// The names of the members: `g0/r1`.
    pub members: Vec<String>,
    /// The group has excluded this replica, which waits to join again.
    pub left_out: bool,
}

/// A replica as its status page says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaStatus {
    /// Its name: `g0/r1`.
    pub name: String,
    /// Its group's number.
    pub group: u8,
    /// The leader it follows.
    pub leader: Option<String>,
    /// The epoch it is in.
    pub epoch: u64,
    /// Whether it is a working member.
    pub fit: bool,
    /// Whether it has its place in the order of its group; if it is not fit then, it only waits for
    /// the application's state. A group of which fewer than a majority follow has lost it.
    pub follows: bool,
    /// The position it delivered up to.
    pub delivered: u64,
    /// The position it knows to be decided.
    pub decided: u64,
    /// The position up to which the application executed.
    pub applied: u64,
    /// Messages accepted and not delivered.
    pub backlog: u64,
    /// The application's figures.
    pub figures: GroupFigures,
    /// The tree of the groups that it goes by, where that can be changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overlay: Option<OverlayStatus>,
    /// How many instances are left of those that were ordered before it started, as far as it knows; none once it has executed
    /// them, and where the protocol does not count them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub catching_up: Option<u64>,
}

/// A request of the control socket to the loop.
pub(crate) enum ControlRequest {
    Status(SyncSender<NodeStatus>),
    /// The state, in pieces.
    State(WantedState, SyncSender<Result<Receiver<Vec<u8>>, String>>),
    /// Nodes are somewhere else from now on: where, and where they are asked, in order of rank.
    Move(Vec<HostPlacement>, Vec<NodeAddress>),
    /// The coordination service reports that this node seems to be dead.
    Doubt(usize),
}

/// Informs a node, from any thread, about the others: that one is at another address, since its
/// machine was replaced, or that one seems to be dead.
#[derive(Clone)]
pub struct PeerMover {
    to: SyncSender<ControlRequest>,
    wake: WakeHandle,
}

impl PeerMover {
    /// From now on the nodes are at these places, in order of rank, and are asked there.
    ///
    /// # Errors
    /// When the node is busy or stops; then the call must be repeated.
    pub fn move_to(&self, places: Vec<HostPlacement>, nodes: Vec<NodeAddress>) -> io::Result<()> {
        self.ask(ControlRequest::Move(places, nodes))
    }

    /// The node of this rank seems to be dead: its lease has ended. A hint, which may be wrong.
    ///
    /// # Errors
    /// As [`PeerMover::move_to`].
    pub fn doubt(&self, rank: usize) -> io::Result<()> {
        self.ask(ControlRequest::Doubt(rank))
    }

    fn ask(&self, request: ControlRequest) -> io::Result<()> {
        let sent = self.to.try_send(request);
        sent.map_err(|_| io::Error::other("the node is busy or stops"))?;
        (self.wake)();
        Ok(())
    }
}

/// Serves the socket at `path` from threads of its own; requests come out of the receiver. `far` is
/// an address where the same is served to who knows the key. `resources` tell what the node takes, and `overlays` has the tree of the
/// groups changed. `wake` wakes the loop for requests. The mover asks the same loop.
///
/// # Errors
/// When the socket or the address cannot be bound.
pub(crate) fn serve(
    path: &Path,
    far: Option<(SocketAddr, ClusterKey)>,
    (resources, overlays): (Resources, OverlayRequester),
    wake: WakeHandle,
) -> io::Result<(Receiver<ControlRequest>, PeerMover)> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
    // A process that may write to the socket may read the state; its directory may be open to
    // readers.
    std::fs::set_permissions(path, Permissions::from_mode(0o600))?;
    let (to_loop, requests) = sync_channel(REQUESTS_MAX);
    let far = match far {
        None => None,
        Some((at, key)) => {
            let bound = TcpListener::bind(at);
            Some((bound.map_err(|e| io::Error::other(format!("control address {at}: {e}")))?, key))
        }
    };
    let mover = PeerMover { to: to_loop.clone(), wake: Arc::clone(&wake) };
    let (resources, streams) = (Arc::new(resources), Arc::default());
    let loops = LoopHandle { to: to_loop, wake, resources, overlays, streams, strangers: None };
    if let Some((listener, key)) = far {
        let loops = loops.clone();
        let strangers = Arc::new(HandshakingPeers::of(key));
        let accept = move || listener.accept().map(from_host);
        take(accept, LoopHandle { strangers: Some(strangers), ..loops })?;
    }
    take(move || listener.accept().map(|(stream, _)| (ControlStream::Unix(stream), None)), loops)?;
    Ok((requests, mover))
}

/// The loop that receives the requests, and its waker.
#[derive(Clone)]
struct LoopHandle {
    to: SyncSender<ControlRequest>,
    wake: WakeHandle,
    resources: Arc<Resources>,
    overlays: OverlayRequester,
    /// The state that is given.
    streams: Arc<StateStreams>,
    /// Those who have proved nothing yet, where strangers may come.
    strangers: Option<Arc<HandshakingPeers>>,
}

/// Connections from other hosts that have proved nothing yet.
struct HandshakingPeers {
    key: ClusterKey,
    /// From the oldest on.
    waiting: Mutex<VecDeque<HandshakingPeer>>,
    /// The number of the next one.
    next: AtomicU64,
}

/// One of them.
struct HandshakingPeer {
    /// It has no other one's.
    number: u64,
    host: IpAddr,
    stream: Arc<ControlStream>,
}

impl HandshakingPeers {
    fn of(key: ClusterKey) -> Self {
        Self { key, waiting: Mutex::default(), next: AtomicU64::new(0) }
    }

    fn waiting(&self) -> MutexGuard<'_, VecDeque<HandshakingPeer>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes one in as long as it has proved nothing. Where there are as many as there may be the oldest goes of the host that
    /// has most: a stranger that dials without end ends its own connections, and not those of nodes.
    fn enter(&self, stream: &Arc<ControlStream>, host: IpAddr) -> u64 {
        let mut waiting = self.waiting();
        if waiting.len() >= STRANGERS_MAX {
            let crowded = crowded_host(waiting.iter().map(|peer| peer.host), host);
            let is_of = |peer: &HandshakingPeer| crowded.is_none_or(|crowded| peer.host == crowded);
            let oldest = waiting.iter().position(is_of).and_then(|at| waiting.remove(at));
            oldest.into_iter().for_each(|peer| peer.stream.end());
        }
        // Never one that was given before: the thread of a connection that was ended has yet to leave.
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        waiting.push_back(HandshakingPeer { number, host, stream: Arc::clone(stream) });
        number
    }

    fn leave(&self, number: u64) {
        self.waiting().retain(|peer| peer.number != number);
    }
}

/// A connection from another host, and which host that is.
fn from_host((stream, at): (TcpStream, SocketAddr)) -> (ControlStream, Option<IpAddr>) {
    (ControlStream::Tcp(stream), Some(host_network(at.ip())))
}

/// Takes connections, for as long as the process lives. Each listener has places of its own.
fn take(
    mut accept: impl FnMut() -> io::Result<(ControlStream, Option<IpAddr>)> + Send + 'static,
    of: LoopHandle,
) -> io::Result<()> {
    let open = Arc::new(AtomicUsize::new(0));
    let failures = RateLimitedLog::default();
    let serve = move || {
        loop {
            match accept() {
                Ok((stream, host)) => {
                    begin((Arc::new(stream), host), of.clone(), Arc::clone(&open));
                }
                Err(e) => {
                    failures.warn(|| format!("the control socket takes no connection: {e}"));
                    // Where there are no descriptors left there may be again.
                    thread::sleep(Duration::from_millis(10));
                }
            }
        }
    };
    thread::Builder::new().name("control".to_string()).spawn(serve).map(drop)
}

/// Serves one connection, of this host if it is of another one, in a thread of its own.
fn begin(
    (stream, host): (Arc<ControlStream>, Option<IpAddr>),
    of: LoopHandle,
    open: Arc<AtomicUsize>,
) {
    let strangers = of.strangers.as_ref().zip(host);
    let number = strangers.map(|(strangers, host)| strangers.enter(&stream, host));
    let talk = move || {
        let is_let_in = match (&of.strangers, number) {
            (Some(strangers), Some(number)) => {
                let admitted = admit(&stream, strangers);
                strangers.leave(number);
                admitted
            }
            _ => Ok(true),
        };
        let served = is_let_in.and_then(|is_let_in| match is_let_in {
            true if open.fetch_add(1, Ordering::Relaxed) < CONNECTIONS_MAX => {
                let answered = answer(&stream, &of);
                open.fetch_sub(1, Ordering::Relaxed);
                answered
            }
            true => {
                open.fetch_sub(1, Ordering::Relaxed);
                Err(io::Error::other(format!("{CONNECTIONS_MAX} are served")))
            }
            false => Err(io::Error::other("it is of no node of this cluster")),
        });
        if let Err(e) = served {
            tracing::debug!("control connection: {e}");
        }
    };
    if let Err(e) = thread::Builder::new().name("control".to_string()).spawn(talk) {
        tracing::warn!("control connection refused: {e}");
    }
}

/// Whether the peer of another host is admitted.
fn admit(stream: &ControlStream, strangers: &HandshakingPeers) -> io::Result<bool> {
    stream.set_write_timeout(ANSWER_TIMEOUT)?;
    strangers.key.admit(stream, Instant::now() + ANSWER_TIMEOUT)
}

fn answer(connection: &Arc<ControlStream>, of: &LoopHandle) -> io::Result<()> {
    let mut stream: &ControlStream = connection;
    stream.set_write_timeout(ANSWER_TIMEOUT * 4)?;
    let line = stream.line(LINE_BYTES_MAX, Instant::now() + ANSWER_TIMEOUT)?;
    let mut words = line.split_ascii_whitespace();
    match words.next() {
        Some("status") => {
            let (reply, answer) = sync_channel(1);
            of.ask(ControlRequest::Status(reply))?;
            let mut status = answer.recv_timeout(ANSWER_TIMEOUT).map_err(io::Error::other)?;
            // Here, and not in the loop, since it may wait for the disk for a moment.
            status.resources = Some(of.resources.read());
            let mut said = serde_json::to_vec(&status)?;
            said.push(b'\n');
            stream.write_all(&said)
        }
        Some("state") => {
            let Some(wanted) = WantedState::parse(words) else {
                return writeln!(stream, "no sense in that: state P0 P1 .. [view V]");
            };
            let (reply, answer) = sync_channel(1);
            of.ask(ControlRequest::State(wanted, reply))?;
            match answer.recv_timeout(ANSWER_TIMEOUT) {
                Ok(Ok(pieces)) => of.streams.send(pieces, connection, &of.wake),
                Ok(Err(why)) => writeln!(stream, "no {why}"),
                Err(_) => writeln!(stream, "no answer in time"),
            }
        }
        Some("resume") => {
            let mut number = || words.next().and_then(|word| word.parse().ok());
            match (number(), number()) {
                (Some(number), Some(offset)) => {
                    of.streams.resume((number, offset), connection, &of.wake)
                }
                _ => writeln!(stream, "no sense in that: resume NUMBER OFFSET"),
            }
        }
        Some("overlay") => {
            let mut word = || words.next().unwrap_or_default();
            writeln!(stream, "{}", of.overlays.ask(word(), word()))
        }
        _ => writeln!(
            stream,
            "no such request: status, state P0 P1 .. [view V], resume NUMBER OFFSET, overlay NUMBER -1,0,0"
        ),
    }
}

impl LoopHandle {
    fn ask(&self, request: ControlRequest) -> io::Result<()> {
        self.to.try_send(request).map_err(|_| io::Error::other("the node is busy or stops"))?;
        (self.wake)();
        Ok(())
    }
}

/// Asks the node behind the socket at `path` for its status.
///
/// # Errors
/// When it does not run, or does not answer in time.
pub fn status_of(path: &Path) -> io::Result<NodeStatus> {
    StatusRequest::status(&NodeAddress::Socket(path.to_path_buf()))?
        .answer(Instant::now() + ANSWER_TIMEOUT)
}

/// Asks all these nodes for their status at the same time; none for those that do not run or do not
/// answer in time. However many hang, it takes no longer than one of them.
pub fn statuses_of(nodes: &[NodeAddress]) -> Vec<Option<NodeStatus>> {
    statuses_within(nodes, ANSWER_TIMEOUT)
}

fn statuses_within(nodes: &[NodeAddress], patience: Duration) -> Vec<Option<NodeStatus>> {
    let until = Instant::now() + patience;
    thread::scope(|scope| {
        // To find out that a host is not there takes time: that much for all of them together.
        let ask = |at| move || StatusRequest::status(at);
        let far = |at: &'_ NodeAddress| at.is_far();
        let asked: Vec<_> =
            nodes
                .iter()
                .map(|at| {
                    if far(at) { Err(scope.spawn(ask(at))) } else { Ok(StatusRequest::status(at)) }
                })
                .collect();
        let asked = asked.into_iter().map(|asked| match asked {
            Ok(asked) => asked,
            Err(asks) => asks.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into())),
        });
        let asked: Vec<_> = asked.collect();
        asked.into_iter().map(|asked| asked.and_then(|a| a.answer(until)).ok()).collect()
    })
}

/// A node that was asked for its status.
struct StatusRequest(ControlStream);

impl StatusRequest {
    fn status(at: &NodeAddress) -> io::Result<Self> {
        let stream = at.connect()?;
        stream.set_write_timeout(ANSWER_TIMEOUT)?;
        (&stream).write_all(b"status\n")?;
        Ok(Self(stream))
    }

    fn answer(self, until: Instant) -> io::Result<NodeStatus> {
        // Bytes that have already arrived are read however late it is; a timeout of zero would mean
        // for ever.
        let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        self.0.set_read_timeout(left)?;
        // It would be read byte by byte otherwise.
        Ok(serde_json::from_reader(BufReader::new(&self.0))?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn nodes_that_hang_do_not_hold_up_what_the_others_say() {
        let _limit = amcast_test_policy::time_limit();
        let dir = std::env::temp_dir().join(format!("amcast-control-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let path = |n: usize| dir.join(format!("n{n}.sock"));
        // They take connections and never answer.
        let _hung: Vec<_> = (0..20).map(|n| UnixListener::bind(path(n)).unwrap()).collect();
        let serves = UnixListener::bind(path(20)).unwrap();
        let status = NodeStatus {
            name: "n20".to_string(),
            ready: true,
            life: Some(1),
            ..NodeStatus::default()
        };
        let said = serde_json::to_string(&status).unwrap();
        let node = thread::spawn(move || {
            let (mut stream, _) = serves.accept().unwrap();
            stream.read_exact(&mut [0; b"status\n".len()]).unwrap();
            stream.write_all(said.as_bytes()).unwrap();
        });
        let (begun, patience) = (Instant::now(), Duration::from_millis(500));
        let all: Vec<NodeAddress> = (0..22).map(|n| NodeAddress::Socket(path(n))).collect();
        let all = statuses_within(&all, patience);
        assert!(begun.elapsed() < 4 * patience, "one after the other");
        node.join().unwrap();
        assert_eq!(all.len(), 22);
        assert_eq!(all[20], Some(status));
        assert_eq!(all.iter().flatten().count(), 1);
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_stranger_that_dials_without_end_ends_its_own_connections() {
        let _limit = amcast_test_policy::time_limit();
        let strangers = HandshakingPeers::of(ClusterKey::default());
        let mut held = Vec::new();
        let mut dial = |host: u8| {
            let (theirs, ours) = std::os::unix::net::UnixStream::pair().unwrap();
            theirs.set_nonblocking(true).unwrap();
            held.push(theirs);
            strangers.enter(&Arc::new(ControlStream::Unix(ours)), [10, 0, 0, host].into());
            held.len() - 1
        };
        let node = dial(1);
        let flood: Vec<usize> = (0..500).map(|_| dial(2)).collect();
        let other = dial(3);
        // Where there is nothing to read the connection is open.
        let is_open = |at: usize| (&held[at]).read(&mut [0]).is_err();
        assert!(is_open(node) && is_open(other), "another host ends them");
        assert_eq!(flood.iter().filter(|at| is_open(**at)).count(), STRANGERS_MAX - 2);
        assert_eq!(strangers.waiting().len(), STRANGERS_MAX);
    }

    #[test]
    fn a_connection_that_was_ended_takes_no_place_of_a_later_one() {
        let _limit = amcast_test_policy::time_limit();
        let strangers = HandshakingPeers::of(ClusterKey::default());
        let mut held = Vec::new();
        let mut dial = |host: u8| {
            let (theirs, ours) = std::os::unix::net::UnixStream::pair().unwrap();
            held.push(theirs);
            strangers.enter(&Arc::new(ControlStream::Unix(ours)), [10, 0, 0, host].into())
        };
        for host in 1..STRANGERS_MAX as u8 {
            dial(host);
        }
        // The last one is the oldest of its host.
        let (ended, later) = (dial(200), dial(200));
        strangers.leave(ended);
        assert!(strangers.waiting().iter().any(|peer| peer.number == later));
        assert_eq!(strangers.waiting().len(), STRANGERS_MAX);
    }

    #[test]
    fn who_comes_from_another_host_must_know_the_cluster() {
        let _limit = amcast_test_policy::time_limit();
        let (to, requests) = sync_channel(1);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let key = |id, letter| {
            let secret = amcast_net::Secret::parse(&[letter; 32]).unwrap();
            ClusterKey { id, secret }
        };
        let strangers = HandshakingPeers::of(key(7, b's'));
        let strangers = Some(Arc::new(strangers));
        let resources = Arc::new(Resources::of(None));
        let streams = Arc::default();
        let overlays = OverlayRequester::default();
        let of = LoopHandle { to, wake: Arc::new(|| {}), resources, overlays, streams, strangers };
        take(move || listener.accept().map(from_host), of).unwrap();
        let far = |key| NodeAddress::Address(at, key, "/nowhere/n0.sock".into());
        // The number, which travels in clear, is not enough.
        for wrong in [key(8, b's'), key(7, b't'), ClusterKey { id: 7, ..ClusterKey::default() }] {
            let why = far(wrong).connect().map(drop).unwrap_err();
            assert!(why.kind() != io::ErrorKind::TimedOut, "the error comes at once: {why}");
        }
        // A request sent without waiting for the challenge is recognised, too.
        let mut stranger = std::net::TcpStream::connect(at).unwrap();
        stranger.write_all(b"of 7 state 0\n").unwrap();
        let mut said = String::new();
        let _ = stranger.read_to_string(&mut said);
        assert!(
            said.is_empty() || said.starts_with("amcast control ") && said.lines().count() == 1
        );
        assert!(requests.try_recv().is_err(), "nothing of them came to the loop");
        let stream = far(key(7, b's')).connect().unwrap();
        (&stream).write_all(b"status\n").unwrap();
        assert!(matches!(requests.recv(), Ok(ControlRequest::Status(_))));
    }

    #[test]
    fn strangers_that_say_nothing_keep_nobody_out() {
        let _limit = amcast_test_policy::time_limit();
        let (to, requests) = sync_channel(1);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let strangers = HandshakingPeers::of(ClusterKey::default());
        let resources = Arc::new(Resources::of(None));
        let strangers = Some(Arc::new(strangers));
        let streams = Arc::default();
        let overlays = OverlayRequester::default();
        let of = LoopHandle { to, wake: Arc::new(|| {}), resources, overlays, streams, strangers };
        take(move || listener.accept().map(from_host), of).unwrap();
        let silent: Vec<_> =
            (0..3 * STRANGERS_MAX).map(|_| std::net::TcpStream::connect(at).unwrap()).collect();
        let known = NodeAddress::Address(at, ClusterKey::default(), "/nowhere/n0.sock".into());
        // On a busy machine the strangers may still wait to be accepted.
        let stream = (0..20).find_map(|_| known.connect().ok()).expect("a place");
        (&stream).write_all(b"status\n").unwrap();
        assert!(matches!(requests.recv(), Ok(ControlRequest::Status(_))));
        drop(silent);
    }

    #[test]
    fn what_is_wanted_reads_back() {
        let _limit = amcast_test_policy::time_limit();
        for view in [None, Some(7)] {
            let wanted = WantedState { positions: vec![3, 1 << 40], view };
            let text = wanted.to_string();
            let words = text.strip_prefix("state ").unwrap().split_ascii_whitespace();
            assert_eq!(WantedState::parse(words), Some(wanted), "{text}");
        }
        let parse = |text: &str| WantedState::parse(text.split_ascii_whitespace());
        assert_eq!((parse("1 view"), parse("1 x"), parse("-1")), (None, None, None));
    }

    #[test]
    fn a_node_that_takes_no_connections_is_given_up_at_once() {
        let _limit = amcast_test_policy::time_limit();
        let path = std::env::temp_dir().join(format!("amcast-full-{}.sock", std::process::id()));
        let _listener = UnixListener::bind(&path).unwrap();
        let mut held = Vec::new();
        // Until its queue is full: a connection that blocks would wait here for ever.
        while let Ok(stream) = NodeAddress::Socket(path.clone()).connect() {
            held.push(stream);
            assert!(held.len() < 10_000, "the queue has no end");
        }
        assert!(!held.is_empty());
        std::fs::remove_file(&path).unwrap();
    }
}

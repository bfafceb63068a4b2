//! A node: one operating-system process that hosts replica `rank` of every group, in one loop.
//!
//! # How a node gets back what it lost
//! The protocol brings each replica back on its own, and each from whichever peer it chooses. The
//! application's state cannot be put together from such parts: a command over two groups would be
//! in one part and not in the other. So the node takes the state of *all* groups from one other
//! node at one moment ([`crate::control`]), at or beyond the positions that its replicas stand at.
//! What its replicas deliver in the meantime waits here, and the application skips what the state
//! already has. What travels through the protocol's own state transfer is only a placeholder.

use crate::answers::{Office, Places};
use crate::application::{Application, Command};
use crate::clock;
use crate::control::{self, NodeStatus, ReplicaStatus, Request};
use crate::diary::Diary;
use crate::seat::{Above, Captured, Seat, SeatError};
use amcast_core::step::Note;
use amcast_core::{
    Cluster, Config, ConfigError, Delivery, Entry, Gid, MsgId, Pid, Role, Span, Time,
};
use amcast_memory::{Directory, Idle, Idler, Pause};
use std::collections::VecDeque;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};

/// Bytes that stand for the application's state in the protocol's own state transfer.
const PLACEHOLDER_BYTES: u64 = 8;

/// Bytes of a piece of the application's state.
const PIECE_BYTES: usize = 256 << 10;

/// Bytes of deliveries that wait for a state to come, before the protocol is held back.
const INBOX_BYTES_MAX: usize = 256 << 20;

/// The longest a loop sleeps, so that it looks at its flag now and then.
const SLEEP_MAX: Span = Span::millis(50);

/// What a node is started with.
pub struct NodeOptions<'a> {
    /// The protocol.
    pub entry: &'a dyn Entry,
    /// The cluster's checked configuration.
    pub config: &'a Config,
    /// The shared memory of the cluster.
    pub directory: &'a Directory,
    /// Where the nodes' control sockets are: `n0.sock`.
    pub sockets: PathBuf,
    /// Which replica of each group it hosts.
    pub rank: usize,
    /// How it waits when there is nothing to do.
    pub idle: Idle,
    /// Where it writes its history, if anywhere.
    pub record: Option<PathBuf>,
}

/// Why a node could not start.
#[derive(Debug)]
pub enum NodeError {
    /// The configuration.
    Config(ConfigError),
    /// A process of it.
    Seat(SeatError),
    /// Its control socket or history.
    Io(PathBuf, std::io::Error),
}

impl fmt::Display for NodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(e) => e.fmt(f),
            Self::Seat(e) => e.fmt(f),
            Self::Io(path, e) => write!(f, "{}: {e}", path.display()),
        }
    }
}

impl std::error::Error for NodeError {}

/// A delivery that waits until the application can take it.
struct Waiting {
    delivery: Delivery,
    payload: Box<[u8]>,
}

/// Where the application's state stands.
enum State {
    /// It follows the replicas.
    Live,
    /// It is behind: a state is to be fetched, at least at these positions, once every replica is
    /// a working member.
    Behind(Vec<u64>),
    /// It is being fetched.
    Fetching(Vec<u64>, Receiver<Option<Vec<u8>>>),
}

/// Everything of a node except its seats.
struct House<A> {
    cluster: Cluster,
    app: A,
    office: Office,
    diary: Option<Diary>,
    state: State,
    inbox: Vec<VecDeque<Waiting>>,
    inbox_bytes: usize,
}

/// A running node; [`Node::run`] is its loop.
pub struct Node<A> {
    name: String,
    rank: usize,
    sockets: PathBuf,
    seats: Vec<Seat>,
    house: House<A>,
    requests: Receiver<Request>,
    idler: Idler,
}

impl<A: Application> Node<A> {
    /// Starts every replica of the node.
    ///
    /// # Errors
    /// When memory, socket or history cannot be set up, or the node runs already.
    pub fn start(options: &NodeOptions<'_>, app: A) -> Result<Self, NodeError> {
        let NodeOptions { entry, config, directory, rank, .. } = *options;
        let cluster = *config.cluster();
        let mut seats: Vec<Seat> = Vec::new();
        for group in cluster.all_groups().iter() {
            let pid = cluster.replica(group, rank);
            let node = entry.build(pid, config).map_err(NodeError::Config)?;
            let bell = seats.first().map(|s| s.bell().clone());
            let tracing = options.record.is_some();
            let seat = Seat::start(directory, &cluster, pid, node, bell, tracing);
            seats.push(seat.map_err(NodeError::Seat)?);
        }
        let bell = seats[0].bell().clone();
        let office = Office::open(directory, Places(cluster), rank, bell.clone())
            .map_err(|e| NodeError::Seat(SeatError::Memory(e)))?;
        let name = crate::config::node_name(rank);
        let socket = options.sockets.join(format!("{name}.sock"));
        let requests = control::serve(&socket, bell).map_err(|e| NodeError::Io(socket, e))?;
        let diary = match &options.record {
            None => None,
            Some(dir) => {
                let pids: Vec<Pid> = seats.iter().map(Seat::pid).collect();
                let begun = Diary::begin(dir, &name, cluster, &pids, clock::now());
                Some(begun.map_err(|e| NodeError::Io(dir.clone(), e))?)
            }
        };
        let groups = cluster.groups();
        let reborn = seats.iter().any(|s| s.incarnation() > 0);
        let state = if reborn { State::Behind(vec![0; groups]) } else { State::Live };
        let inbox = (0..groups).map(|_| VecDeque::new()).collect();
        let house = House { cluster, app, office, diary, state, inbox, inbox_bytes: 0 };
        let (idler, sockets) = (Idler::new(options.idle), options.sockets.clone());
        Ok(Self { name, rank, sockets, seats, house, requests, idler })
    }

    /// The loop, until `stop` is set.
    pub fn run(&mut self, stop: &Arc<AtomicBool>) {
        let now = clock::now();
        for seat in &mut self.seats {
            seat.begin(now, &mut self.house);
        }
        let bell = self.seats[0].bell().clone();
        while !stop.load(Ordering::Relaxed) {
            if self.round() {
                self.idler.busy();
                continue;
            }
            if self.idler.pause() == Pause::Again {
                continue;
            }
            if let Some(diary) = &mut self.house.diary {
                diary.flush();
            }
            bell.announce();
            if self.round() {
                bell.stay();
                self.idler.busy();
                continue;
            }
            let now = clock::now();
            if self.seats.iter().any(|s| s.is_pressing(now)) {
                bell.stay();
                continue;
            }
            let wake = self.seats.iter().filter_map(Seat::deadline).min().unwrap_or(Time::NEVER);
            let most = if self.house.office.has_backlog() { Span::millis(1) } else { SLEEP_MAX };
            bell.sleep(wake.since(now).min(most));
        }
    }

    /// One round over everything. Says whether there was work.
    fn round(&mut self) -> bool {
        let now = clock::now();
        let mut busy = false;
        for seat in &mut self.seats {
            busy |= seat.round(now, &mut self.house);
        }
        busy |= self.house.drain();
        for (g, seat) in self.seats.iter_mut().enumerate() {
            if let Some(applied) = self.house.applied(Gid(g as u8)) {
                seat.applied(now, applied, &mut self.house);
            }
        }
        self.catch_up();
        busy |= self.house.office.round();
        busy | self.serve_requests()
    }

    /// Fetches the application's state, if it is behind and the replicas are back.
    fn catch_up(&mut self) {
        if let State::Behind(wanted) = &self.house.state {
            if self.seats.iter().all(|s| s.protocol().fit()) {
                let wanted = wanted.clone();
                self.fetch(wanted);
            }
            return;
        }
        let State::Fetching(wanted, answer) = &self.house.state else { return };
        let wanted = wanted.clone();
        let fetched = match answer.try_recv() {
            Err(TryRecvError::Empty) => return,
            Err(TryRecvError::Disconnected) => None,
            Ok(fetched) => fetched,
        };
        let Some(bytes) = fetched else {
            tracing::warn!("{}: no node gave its state; asking again", self.name);
            self.house.state = State::Behind(wanted);
            return;
        };
        match self.house.take_over(clock::now(), &bytes) {
            Ok(()) => {
                tracing::info!("{}: has all state again ({} bytes)", self.name, bytes.len());
                self.house.state = State::Live;
                self.house.drain();
            }
            Err(why) => {
                tracing::error!("{}: a state that was fetched is no good: {why}", self.name);
                self.house.state = State::Behind(wanted);
            }
        }
    }

    /// Asks the other nodes in turn, in a thread.
    fn fetch(&mut self, wanted: Vec<u64>) {
        let (done, answer) = sync_channel(1);
        let replicas = self.house.cluster.replicas();
        let others = (1..replicas).map(|i| crate::config::node_name((self.rank + i) % replicas));
        let sockets: Vec<PathBuf> =
            others.map(|name| self.sockets.join(format!("{name}.sock"))).collect();
        let bell = self.seats[0].bell().clone();
        let positions = wanted.clone();
        let talk = move || {
            let ask = |path: &PathBuf| match control::snapshot_of(path, &positions) {
                Ok(bytes) => Some(bytes),
                Err(e) => {
                    tracing::debug!("{}: {e}", path.display());
                    None
                }
            };
            let found = sockets.iter().find_map(ask);
            if found.is_none() {
                // Everyone else may be starting, too: not in a tight circle.
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            // If the node stops meanwhile nobody waits for it.
            let _ = done.send(found);
            bell.ring();
        };
        match std::thread::Builder::new().name("fetch".to_string()).spawn(talk) {
            Ok(_) => self.house.state = State::Fetching(wanted, answer),
            Err(e) => tracing::error!("{}: cannot fetch state: {e}", self.name),
        }
    }

    fn serve_requests(&mut self) -> bool {
        let mut busy = false;
        while let Ok(request) = self.requests.try_recv() {
            busy = true;
            // Who asked may have gone away; that is its own affair.
            match request {
                Request::Status(reply) => drop(reply.try_send(self.status())),
                Request::Snapshot(wanted, reply) => drop(reply.try_send(self.give(&wanted))),
            }
        }
        busy
    }

    fn give(&mut self, wanted: &[u64]) -> Result<Vec<u8>, String> {
        if !matches!(self.house.state, State::Live) {
            return Err(format!("{} has not all state itself", self.name));
        }
        let groups = self.house.cluster.groups();
        if wanted.len() != groups {
            return Err(format!("give {groups} positions, one for each group"));
        }
        for (g, &position) in wanted.iter().enumerate() {
            let have = self.house.app.delivered(Gid(g as u8));
            if have < position {
                return Err(format!("{} is at {have} in g{g}, not {position}", self.name));
            }
        }
        let mut bytes = Vec::new();
        self.house.app.capture();
        while self.house.app.piece(PIECE_BYTES, &mut bytes) {}
        if let Some(diary) = &self.house.diary {
            diary.write(&mut bytes);
        }
        Ok(bytes)
    }

    fn status(&self) -> NodeStatus {
        let cluster = self.house.cluster;
        let replica = |(g, seat): (usize, &Seat)| {
            let status = seat.protocol().status();
            let group = Gid(g as u8);
            ReplicaStatus {
                name: cluster.name(seat.pid()).to_string(),
                group: group.0,
                leader: status.leader.map(|p| cluster.name(p).to_string()),
                epoch: status.epoch,
                fit: seat.protocol().fit(),
                delivered: status.delivered,
                decided: status.decided,
                applied: self.house.app.applied(group),
                backlog: status.backlog,
                figures: self.house.app.figures(group),
            }
        };
        let replicas: Vec<ReplicaStatus> = self.seats.iter().enumerate().map(replica).collect();
        let unfit = replicas.iter().find(|r| !r.fit);
        let why = match (&self.house.state, unfit) {
            (_, Some(r)) => format!("{} has not its place in the group back", r.name),
            (State::Live, None) => String::new(),
            (_, None) => "the state is being fetched from another node".to_string(),
        };
        let counts = self.idler.counts();
        NodeStatus {
            name: self.name.clone(),
            os_pid: std::process::id(),
            ready: why.is_empty(),
            why,
            replicas,
            answers_dropped: self.house.office.dropped(),
            rounds: (counts.busy, counts.parks),
        }
    }
}

impl<A: Application> House<A> {
    /// Gives the application what waits for it, as far as it takes it.
    fn drain(&mut self) -> bool {
        if !matches!(self.state, State::Live) {
            return false;
        }
        let mut any = false;
        loop {
            let mut took = false;
            for g in 0..self.inbox.len() {
                while let Some(waiting) = self.inbox[g].front() {
                    let (delivery, payload) = (waiting.delivery, &waiting.payload);
                    let mut answer = answerer(&mut self.office, self.cluster);
                    if !self.app.deliver(command(Gid(g as u8), delivery, payload), &mut answer) {
                        break;
                    }
                    self.inbox_bytes -= payload.len();
                    if let Some(diary) = &mut self.diary {
                        diary.deliver(clock::now(), Gid(g as u8), delivery.position, delivery.msg);
                    }
                    self.inbox[g].pop_front();
                    took = true;
                }
            }
            any |= took;
            // What one group was full with may have been freed by another.
            if !took || self.inbox.iter().all(VecDeque::is_empty) {
                return any;
            }
        }
    }

    /// How far the replica of `group` may count as executed. While a state is awaited, what waits
    /// here counts: nobody needs to keep it for this node, and the others are not held back.
    fn applied(&self, group: Gid) -> Option<u64> {
        match self.state {
            State::Live => Some(self.app.applied(group)),
            _ if self.inbox_bytes > INBOX_BYTES_MAX => None,
            _ => self.inbox[group.index()].back().map(|w| w.delivery.position),
        }
    }

    /// Takes over the state that another node gave.
    fn take_over(&mut self, now: Time, bytes: &[u8]) -> Result<(), String> {
        let (mut from, groups) = (bytes, self.cluster.groups());
        let state = A::read(groups, &mut from)?;
        drop(self.app.adopt(state));
        let Some(diary) = &mut self.diary else { return Ok(()) };
        let delivered: Vec<u64> = (0..groups).map(|g| self.app.delivered(Gid(g as u8))).collect();
        diary.take_over(now, from, &delivered)
    }

    fn group(&self, p: Pid) -> Gid {
        self.cluster.group_of(p).expect("a node hosts replicas")
    }
}

fn command(group: Gid, delivery: Delivery, payload: &[u8]) -> Command<'_> {
    let Delivery { msg, dst, position, .. } = delivery;
    Command { group, position, msg, dst, payload }
}

/// Gives an answer to the office, for the client that asked.
fn answerer(office: &mut Office, cluster: Cluster) -> impl FnMut(MsgId, &[u8]) {
    move |msg, bytes| {
        if let Role::Client { client } = cluster.role(msg.sender) {
            office.push(usize::from(client), msg.seq, bytes);
        }
    }
}

impl<A: Application> Above for House<A> {
    fn deliver(&mut self, _: Time, p: Pid, delivery: Delivery, payload: &[u8]) {
        let group = self.group(p);
        if matches!(self.state, State::Live) && self.inbox[group.index()].is_empty() {
            let mut answer = answerer(&mut self.office, self.cluster);
            if self.app.deliver(command(group, delivery, payload), &mut answer) {
                if let Some(diary) = &mut self.diary {
                    // The round's time may be older than the multicast.
                    diary.deliver(clock::now(), group, delivery.position, delivery.msg);
                }
                return;
            }
        }
        self.inbox_bytes += payload.len();
        self.inbox[group.index()].push_back(Waiting { delivery, payload: payload.into() });
    }

    fn capture(&mut self, p: Pid, _reader: Pid) -> Captured {
        // Where the replica stands: what the application has, and what waits for it here.
        let group = self.group(p);
        let taken = self.app.delivered(group);
        let waits = self.inbox[group.index()].back().map_or(0, |w| w.delivery.position);
        Captured { position: taken.max(waits), bytes: PLACEHOLDER_BYTES }
    }

    fn piece(&mut self, _: Pid, _: u64, bytes: u32, to: &mut Vec<u8>) {
        to.resize(to.len() + bytes as usize, 0);
    }

    fn install(&mut self, _now: Time, p: Pid, position: u64, _piece: &[u8], last: bool) {
        if !last {
            return;
        }
        let group = self.group(p);
        // What is in the state need not wait for the application any more, and what the
        // application has of other groups must not be lost to an older state.
        self.inbox[group.index()].retain(|w| w.delivery.position > position);
        let waiting = self.inbox.iter().flatten();
        self.inbox_bytes = waiting.map(|w| w.payload.len()).sum();
        let state = std::mem::replace(&mut self.state, State::Live);
        let mut wanted = match state {
            State::Behind(wanted) | State::Fetching(wanted, _) => wanted,
            State::Live => {
                let groups = self.cluster.all_groups();
                groups.iter().map(|g| self.app.delivered(g)).collect()
            }
        };
        wanted[group.index()] = wanted[group.index()].max(position);
        self.state = State::Behind(wanted);
    }

    fn note(&mut self, _: Time, p: Pid, note: Note) {
        let name = self.cluster.name(p);
        match note {
            Note::Part(m) => {
                if let Some(diary) = &mut self.diary {
                    diary.part(clock::now(), p, m);
                }
            }
            Note::Leads(epoch) => tracing::info!("{name} leads its group in epoch {epoch}"),
            Note::Demoted(epoch) => tracing::info!("{name} no longer leads: epoch {epoch}"),
            Note::LeftBehind(peer) => {
                tracing::info!("{name} no longer waits for {}", self.cluster.name(peer));
            }
            Note::Recovering => tracing::info!("{name} lacks state and asks for it"),
            Note::Recovered(position) => tracing::info!("{name} is back, at {position}"),
            Note::Malformed(peer, what) => {
                tracing::warn!("{name}: from {}: {what}", self.cluster.name(peer));
            }
            Note::Mark(mark) => tracing::trace!("{name}: {mark}"),
        }
    }
}

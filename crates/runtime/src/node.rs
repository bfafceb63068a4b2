//! A node: one operating-system process that hosts replica `rank` of every group, in one loop. The
//! loop steps the seats of its replicas; what stands behind them is its [`crate::house`].

use crate::answers::{Office, Places};
use crate::application::Application;
use crate::clock;
use crate::control::{self, NodeStatus, ReplicaStatus, Request};
use crate::diary::Diary;
use crate::handover::Fetching;
use crate::house::House;
use crate::seat::{Seat, SeatError};
use amcast_core::{Config, ConfigError, Entry, Gid, Pid, Span, Time};
use amcast_memory::{Directory, Idle, Idler, Pause};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;

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
    /// Its application.
    Application(std::io::Error),
}

impl fmt::Display for NodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(e) => e.fmt(f),
            Self::Seat(e) => e.fmt(f),
            Self::Io(path, e) => write!(f, "{}: {e}", path.display()),
            Self::Application(e) => write!(f, "what it runs cannot be started: {e}"),
        }
    }
}

impl std::error::Error for NodeError {}

/// A running node; [`Node::run`] is its loop.
pub struct Node<A: Application> {
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
    /// When memory, socket, history or application cannot be set up, or the node runs already.
    pub fn start(options: &NodeOptions<'_>, mut app: A) -> Result<Self, NodeError> {
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
        let reborn = seats.iter().any(|s| s.incarnation() > 0);
        let here = seats[0].bell().clone();
        app.begin(Arc::new(move || _ = here.ring())).map_err(NodeError::Application)?;
        let house = House::new(cluster, app, office, diary, reborn);
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
            let most = if self.house.is_pressing() { Span::millis(1) } else { SLEEP_MAX };
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
        busy |= self.house.collect();
        busy |= self.house.drain();
        for (g, seat) in self.seats.iter_mut().enumerate() {
            if let Some(applied) = self.house.applied(Gid(g as u8)) {
                seat.applied(now, applied, &mut self.house);
            }
        }
        self.catch_up(now);
        busy |= self.house.give_on();
        busy |= self.house.office.round();
        busy | self.serve_requests()
    }

    /// Fetches the application's state if it is behind, and tells the replicas when it is in force.
    fn catch_up(&mut self, now: Time) {
        if self.house.is_unfit() {
            for seat in &mut self.seats {
                seat.unfit(now, &mut self.house);
            }
        }
        if let Some(wanted) = self.house.wants() {
            let wanted = wanted.to_vec();
            self.fetch(wanted);
        }
        self.house.take_over();
        if let Some(positions) = self.house.installed() {
            for (seat, position) in self.seats.iter_mut().zip(positions) {
                seat.installed(now, position, &mut self.house);
            }
        }
    }

    fn fetch(&mut self, wanted: Vec<u64>) {
        let replicas = self.house.cluster.replicas();
        let others = (1..replicas).map(|i| crate::config::node_name((self.rank + i) % replicas));
        let sockets = others.map(|name| self.sockets.join(format!("{name}.sock"))).collect();
        let bell = self.seats[0].bell().clone();
        match Fetching::begin::<A>(self.house.cluster, sockets, wanted, bell) {
            Ok(fetching) => self.house.expect(fetching),
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
                Request::State(wanted, reply) => drop(reply.try_send(self.house.give(&wanted))),
            }
        }
        busy
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
                follows: status.follows,
                delivered: status.delivered,
                decided: status.decided,
                applied: self.house.app.applied(group),
                backlog: status.backlog,
                figures: self.house.app.figures(group),
            }
        };
        let replicas: Vec<ReplicaStatus> = self.seats.iter().enumerate().map(replica).collect();
        let unfit = replicas.iter().find(|r| !r.fit);
        let why = match unfit {
            _ if self.house.wants_state() => {
                "the state is being fetched from another node".to_string()
            }
            Some(r) => format!("{} has not its place in the group back", r.name),
            None => String::new(),
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

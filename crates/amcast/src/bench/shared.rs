//! Measurements on shared memory: the nodes' and clients' loops as threads over mapped files.

use super::{Delivered, Latency, Load, Measured, destinations, histogram, judge};
use amcast_core::rng::Rng;
use amcast_core::step::Note;
use amcast_core::{
    Cluster, Config, Delivery, Entry, GroupSet, MsgId, Overlay, Pid, Role, Span, Submission, Time,
};
use amcast_memory::{ClusterId, Directory, Idle, Idler, Pause};
use amcast_runtime::clock;
use amcast_runtime::seat::{Above, Captured, Seat};
use hdrhistogram::Histogram;
use rustix::thread::{CpuSet, sched_setaffinity};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// How long the clients may take to finish what is on the way after the end.
const DRAIN: Span = Span::secs(5);

/// Deliveries that are kept for the judge, of each replica; a longer run stops there.
const JUDGED_MAX: usize = 4_000_000;

/// What threads share beside the protocol's memory: who was first to deliver what.
struct Board {
    cluster: Cluster,
    /// The position that the first replica of each group has delivered.
    first: Vec<AtomicU64>,
    /// For each client's place in its window, the groups in which its multicast is delivered.
    slots: Vec<Vec<AtomicU64>>,
    /// Clients that are not finished.
    clients_left: AtomicUsize,
}

impl Board {
    fn delivered(&self, p: Pid, m: MsgId, position: u64) {
        let Some(group) = self.cluster.group_of(p) else { return };
        if self.first[group.index()].fetch_max(position, Ordering::AcqRel) >= position {
            return;
        }
        if let Role::Client { client } = self.cluster.role(m.sender) {
            let slots = &self.slots[usize::from(client)];
            let slot = m.seq as usize % slots.len();
            slots[slot].fetch_or(1 << group.0, Ordering::AcqRel);
        }
    }
}

/// What a loop does with what its replicas deliver.
struct Sink<'a> {
    board: &'a Board,
    /// By pid.
    kept: Vec<Delivered>,
    position: Vec<u64>,
}

impl Above for Sink<'_> {
    fn deliver(&mut self, _: Time, p: Pid, d: Delivery, _: &[u8]) {
        self.kept[p.index()].push((d.msg, d.dst));
        self.position[p.index()] = d.position;
        self.board.delivered(p, d.msg, d.position);
    }

    fn capture(&mut self, p: Pid, _: Pid) -> Captured {
        Captured { position: self.position[p.index()], bytes: 8 }
    }

    fn piece(&mut self, _: Pid, _: u64, bytes: u32, to: &mut Vec<u8>) {
        to.resize(to.len() + bytes as usize, 0);
    }

    fn install(&mut self, _: Time, p: Pid, position: u64, _: &[u8], _: bool) {
        self.position[p.index()] = position;
    }

    fn note(&mut self, _: Time, _: Pid, _: Note) {}
}

/// A client under way.
struct Client<'a> {
    load: &'a Load,
    overlay: &'a Overlay,
    rng: Rng,
    /// Where the next multicast goes, if it is drawn already.
    drawn: Option<GroupSet>,
    number: usize,
    seq: u64,
    /// For each place of the window: what was multicast there, and when it was due.
    window: Vec<Option<(GroupSet, Time)>>,
    /// How many of those are taken.
    open: usize,
    payload: Vec<u8>,
    begin: Time,
    next_due: Time,
    latencies: Histogram<u64>,
    done: bool,
}

impl<'a> Client<'a> {
    fn new(load: &'a Load, overlay: &'a Overlay, number: usize, window: usize, now: Time) -> Self {
        Self {
            load,
            overlay,
            rng: Rng::stream(number as u64, "destinations"),
            drawn: None,
            number,
            seq: 0,
            window: vec![None; window],
            open: 0,
            payload: vec![0x5a; load.payload],
            begin: now,
            next_due: now,
            latencies: histogram(),
            done: false,
        }
    }

    /// Whether `now` is within the time that is measured.
    fn measures(&self, now: Time) -> bool {
        let since = now.since(self.begin).0 as f64 / 1e9;
        (self.load.warm_up_s..self.load.warm_up_s + self.load.duration_s).contains(&since)
    }

    fn end(&self) -> Time {
        let whole = self.load.warm_up_s + self.load.duration_s;
        self.begin + Span((whole * 1e9) as u64)
    }

    /// Takes note of what is finished, and multicasts. Says whether anything happened.
    fn turn(&mut self, now: Time, seat: &mut Seat, sink: &mut Sink<'_>) -> bool {
        let mut busy = false;
        for place in 0..self.window.len() {
            let Some((dst, due)) = self.window[place] else { continue };
            let cell = &sink.board.slots[self.number][place];
            if cell.load(Ordering::Acquire) != dst.0 {
                continue;
            }
            cell.store(0, Ordering::Release);
            self.window[place] = None;
            self.open -= 1;
            busy = true;
            // The clock is read late, so that the time until the client sees it is in.
            let end = clock::now();
            if self.measures(end) {
                self.latencies.saturating_record(end.since(due).0);
            }
        }
        if now >= self.end() {
            if (self.open == 0 || now.since(self.end()) > DRAIN) && !self.done {
                self.done = true;
                sink.board.clients_left.fetch_sub(1, Ordering::AcqRel);
            }
            return busy;
        }
        let mut sent = false;
        while self.open < self.window.len() && self.is_due(now) {
            let n = self.window.len() as u64;
            let next = self.seq + 1;
            let place = (next % n) as usize;
            let dst = match self.drawn {
                Some(dst) => dst,
                None => destinations(self.overlay, &mut self.rng, self.load),
            };
            self.drawn = Some(dst);
            let room = seat.protocol().room(dst, self.payload.len()) > 0;
            // Places are used in turn: the number of the message names its place.
            if self.window[place].is_some() || !room {
                break;
            }
            self.drawn = None;
            self.seq = next;
            self.open += 1;
            let due = if self.load.rate.is_some() { self.next_due } else { clock::now() };
            self.window[place] = Some((dst, due));
            if let Some(rate) = self.load.rate {
                self.next_due += Span(1_000_000_000 / rate.max(1));
            }
            seat.submit(now, Submission { seq: next, dst, payload: &self.payload }, sink);
            sent = true;
        }
        if sent {
            seat.round(now, sink);
        }
        busy | sent
    }

    fn is_due(&self, now: Time) -> bool {
        self.load.rate.is_none() || self.next_due <= now
    }
}

/// Measures `entry` with every node and client as a loop, dealt to `load.threads` threads.
///
/// # Errors
/// With what could not be set up, or with what was delivered in a wrong order.
pub fn run(entry: &dyn Entry, config: &Config, load: &Load) -> Result<Measured, String> {
    let cluster = *config.cluster();
    let id = ClusterId(0xbe9c << 32 | u64::from(std::process::id()));
    let (processes, places) = (cluster.processes() as u32, cluster.clients() as u32);
    let directory = Directory::open(&Directory::usual_base(), id, processes, places)
        .map_err(|e| e.to_string())?;
    let window = if load.rate.is_some() { 1024 } else { load.outstanding.max(1) };
    let cells = || (0..window).map(|_| AtomicU64::new(0)).collect();
    let board = Board {
        cluster,
        first: (0..cluster.groups()).map(|_| AtomicU64::new(0)).collect(),
        slots: (0..cluster.clients()).map(|_| cells()).collect(),
        clients_left: AtomicUsize::new(cluster.clients()),
    };
    let deal = deal(&cluster, load.threads.max(1));
    let ran = std::thread::scope(|scope| {
        let (directory, board) = (&directory, &board);
        let threads: Vec<_> = deal
            .into_iter()
            .enumerate()
            .map(|(core, pids)| {
                let work = move || {
                    if load.pin {
                        bind(core);
                    }
                    drive(entry, config, load, directory, board, &pids, window)
                };
                scope.spawn(work)
            })
            .collect();
        let join = |t: std::thread::ScopedJoinHandle<'_, _>| {
            t.join().unwrap_or_else(|_| Err("a loop panicked".to_string()))
        };
        threads.into_iter().map(join).collect::<Result<Vec<_>, String>>()
    });
    directory.remove().map_err(|e| e.to_string())?;
    let ran = ran?;
    let mut all: Vec<Delivered> = vec![Vec::new(); cluster.processes()];
    let mut latencies = histogram();
    for (kept, histogram) in ran {
        latencies.add(histogram).map_err(|e| e.to_string())?;
        for (mine, theirs) in all.iter_mut().zip(kept) {
            mine.extend(theirs);
        }
    }
    let holds = judge(&cluster, &all)?;
    Ok(Measured {
        multicasts: latencies.len(),
        per_second: latencies.len() as f64 / load.duration_s,
        latency_ns: Latency::of(&latencies),
        deliveries_judged: all.iter().map(|d| d.len() as u64).sum(),
        holds,
    })
}

/// Which processes each thread runs: those of a node together, then the clients.
fn deal(cluster: &Cluster, threads: usize) -> Vec<Vec<Pid>> {
    let mut dealt = vec![Vec::new(); threads];
    for p in cluster.pids() {
        let unit = match cluster.role(p) {
            Role::Replica { rank, .. } => usize::from(rank),
            Role::Client { client } => cluster.replicas() + usize::from(client),
        };
        dealt[unit % threads].push(p);
    }
    dealt.retain(|pids| !pids.is_empty());
    dealt
}

/// Binds the calling thread to a core. Where the system refuses, the run goes on unbound.
fn bind(core: usize) {
    let mut set = CpuSet::new();
    set.set(core);
    if let Err(e) = sched_setaffinity(None, &set) {
        tracing::warn!("a thread cannot be bound to core {core}: {e}");
    }
}

/// One thread's loop over its processes, until every client is finished.
fn drive(
    entry: &dyn Entry,
    config: &Config,
    load: &Load,
    directory: &Directory,
    board: &Board,
    pids: &[Pid],
    window: usize,
) -> Result<(Vec<Delivered>, Histogram<u64>), String> {
    let cluster = *config.cluster();
    let mut seats: Vec<Seat> = Vec::new();
    for &p in pids {
        let node = entry.build(p, config).map_err(|e| e.to_string())?;
        let bell = seats.first().map(|s| s.bell().clone());
        let seat = Seat::start(directory, &cluster, p, node, bell, false);
        seats.push(seat.map_err(|e| e.to_string())?);
    }
    let n = cluster.processes();
    let mut sink = Sink { board, kept: vec![Vec::new(); n], position: vec![0; n] };
    let now = clock::now();
    seats.iter_mut().for_each(|seat| seat.begin(now, &mut sink));
    let mut clients: Vec<Option<Client<'_>>> = pids
        .iter()
        .map(|&p| match cluster.role(p) {
            Role::Client { client } => {
                Some(Client::new(load, config.overlay(), usize::from(client), window, now))
            }
            Role::Replica { .. } => None,
        })
        .collect();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut idler = Idler::new(if load.threads <= cores { Idle::SPIN } else { Idle::SHARED });
    while board.clients_left.load(Ordering::Acquire) > 0 {
        let now = clock::now();
        let mut busy = false;
        for (seat, client) in seats.iter_mut().zip(&mut clients) {
            busy |= seat.round(now, &mut sink);
            match client {
                Some(client) => busy |= client.turn(now, seat, &mut sink),
                None => seat.applied(now, sink.position[seat.pid().index()], &mut sink),
            }
        }
        if sink.kept.iter().any(|k| k.len() > JUDGED_MAX) {
            return Err(format!(
                "more than {JUDGED_MAX} deliveries: give a shorter --duration, so that all can be judged"
            ));
        }
        if busy {
            idler.busy();
        } else if idler.pause() == Pause::Park {
            // Clients watch words that ring no bell: more than a moment is never slept.
            std::thread::yield_now();
        }
    }
    let mut latencies = histogram();
    for client in clients.iter().flatten() {
        latencies.add(&client.latencies).map_err(|e| e.to_string())?;
    }
    Ok((sink.kept, latencies))
}

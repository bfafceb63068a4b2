//! Carrier of the medium `Messages`: streams that break and datagrams that get lost.
//!
//! It keeps the laws of [`mod@amcast_core::messages`] and not a bit more. Between two processes there
//! is a connection with a stream each way; when it breaks, the ends hear of it one after the other,
//! and what was on the way arrives up to some point. Frames wait for the sender's port, the link
//! and the receiver's port if these have a bandwidth.
//!
//! [`SimNetwork`] works alone: [`send`](SimNetwork::send), [`step`](SimNetwork::step), and
//! [`take`](SimNetwork::take) what was heard.

use crate::chooser::{Chooser, Concern};
use crate::delay::Delay;
use crate::queue::EventQueue;
use alloc::collections::VecDeque;
use alloc::rc::Rc;
use alloc::vec::Vec;
use amcast_core::messages::{DatagramBacklog, Lane};
use amcast_core::{Pid, Span, Time};

/// How this network behaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NetworkModel {
    /// From leaving the sender to arriving, on a stream.
    pub stream: Delay,
    /// The same of a datagram.
    pub datagram: Delay,
    /// From a process to itself.
    pub own: Delay,
    /// Picoseconds that a byte occupies the port of its sender, and of its receiver; 0 is no limit.
    pub port_ps_per_byte: u64,
    /// Bytes that each packet of [`PACKET_BYTES`] occupies besides its own: the heads of all layers and the gap
    /// between two.
    pub head_bytes: u64,
    /// Bytes that may wait for the port of a sender of datagrams before it hears that there is no more room. It hears of room
    /// when half of them are left; 0: it hears of neither.
    pub sender_bytes: u64,
    /// Picoseconds that a byte occupies the link between two processes; 0 is no limit.
    pub link_ps_per_byte: u64,
    /// Bytes that may wait for a receiver's port when a datagram comes: one more is lost; 0 is no
    /// limit. A switch has that buffer, and the sender of a stream slows down instead.
    pub port_buffer: u64,
    /// Bytes of datagrams that may wait for a receiver that is busy, in the buffer of its socket: one
    /// more is lost; 0 is no limit.
    pub socket_buffer: u64,
    /// Chance in a million that a datagram is lost.
    pub loss_ppm: u64,
    /// Chance in a million that it arrives twice.
    pub double_ppm: u64,
    /// Chance in a million that it is held up, and so overtaken.
    pub late_ppm: u64,
    /// For how long, then.
    pub late: Delay,
    /// The additional delay between processes that are far apart.
    pub far: FarRegions,
    /// Processes whose numbers differ by a multiple of this share a port, as those of several clusters on one host do;
    /// 0: each has its own.
    pub hosts: usize,
    /// Whether all processes share one cable of the rate of a port instead, as on the first Ethernets: it carries one frame
    /// at a time, a multicast once for all, and frames wait for it in the order in which they are sent. There are no
    /// collisions, and nothing waits at a receiver's end.
    pub bus: bool,
    /// The traffic of others over the same ports.
    pub background: BackgroundTraffic,
    /// How long until an end of a connection hears that it broke.
    pub down: Delay,
    /// How long until a broken connection opens again, if nothing hinders it.
    pub reconnect: Delay,
}

impl NetworkModel {
    /// A quiet network: everything takes the same time, nothing is lost.
    pub const fn constant(delay: Span) -> Self {
        Self {
            stream: Delay::Constant(delay),
            datagram: Delay::Constant(delay),
            own: Delay::Constant(Span(1)),
            port_ps_per_byte: 0,
            head_bytes: 0,
            sender_bytes: 0,
            link_ps_per_byte: 0,
            port_buffer: 0,
            socket_buffer: 0,
            loss_ppm: 0,
            double_ppm: 0,
            late_ppm: 0,
            late: Delay::NONE,
            far: FarRegions::NONE,
            hosts: 0,
            bus: false,
            background: BackgroundTraffic::NONE,
            down: Delay::Constant(delay),
            reconnect: Delay::Constant(delay),
        }
    }

    /// How long a frame of so many bytes occupies a port.
    const fn port_time(&self, bytes: usize) -> Span {
        let bytes = bytes as u64;
        occupied(self.port_ps_per_byte, bytes + bytes.div_ceil(PACKET_BYTES) * self.head_bytes)
    }
}

/// The bytes of a frame that one packet carries: a larger frame travels in several.
pub const PACKET_BYTES: u64 = 1472;

/// Regions, at most.
pub const REGIONS_MAX: usize = 4;

/// Regions that are far apart. Each has as many processes, one after the other by number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FarRegions {
    /// How many.
    pub regions: usize,
    /// How much longer a frame travels from a region (row) to another.
    pub one_way: [[Span; REGIONS_MAX]; REGIONS_MAX],
}

impl FarRegions {
    /// All are in one place.
    pub const NONE: Self = Self { regions: 1, one_way: [[Span::ZERO; REGIONS_MAX]; REGIONS_MAX] };

    /// How much longer it takes between two of so many processes.
    fn between(&self, from: Pid, to: Pid, processes: usize) -> Span {
        let region = |p: Pid| p.index() * self.regions / processes;
        if self.regions == 1 { Span::ZERO } else { self.one_way[region(from)][region(to)] }
    }
}

/// Traffic of strangers, which occupies a part of each port for a while, in both directions. It does not slow down; what
/// finds the buffer of a port full is lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BackgroundTraffic {
    /// How much of the rate of a port, in a million.
    pub ppm: u64,
    /// From when on.
    pub from: Time,
    /// Until when.
    pub until: Time,
}

impl BackgroundTraffic {
    /// There is none.
    pub const NONE: Self = Self { ppm: 0, from: Time::ZERO, until: Time::ZERO };

    /// How long what came between two moments occupies a port.
    fn occupies(&self, since: Time, now: Time) -> Span {
        let span = now.min(self.until).since(since.max(self.from));
        Span(span.0 * self.ppm / 1_000_000)
    }
}

/// One direction of a port.
#[derive(Clone, Copy, Debug, Default)]
struct PortQueue {
    /// Until when it is busy.
    until: Time,
    /// Up to when the traffic of strangers is counted.
    counted: Time,
}

impl PortQueue {
    /// Counts the traffic of strangers until now, of which no more waits than `most`.
    fn count(&mut self, now: Time, background: BackgroundTraffic, most: Option<Span>) {
        let more = background.occupies(self.counted, now);
        if more > Span::ZERO {
            let waits = self.until.since(self.counted) + more;
            let waits = Span(waits.0.saturating_sub(now.since(self.counted).0));
            let held = self.until.since(now);
            self.until = now + most.map_or(waits, |most| waits.min(most.max(held)));
        }
        self.counted = now;
    }

    /// A frame occupies it for so long, behind all that waits. Says until when.
    fn take(&mut self, now: Time, time: Span) -> Time {
        self.until = self.until.max(now) + time;
        self.until
    }
}

/// An input from the network to a process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NetworkEvent {
    /// A frame came.
    Frame {
        /// The receiver.
        to: Pid,
        /// The sender.
        from: Pid,
        /// How it travelled.
        lane: Lane,
        /// Its bytes.
        bytes: Rc<[u8]>,
    },
    /// A connection is open.
    Up {
        /// The receiver.
        to: Pid,
        /// The other end.
        of: Pid,
    },
    /// A connection broke.
    Down {
        /// The receiver.
        to: Pid,
        /// The other end.
        of: Pid,
    },
    /// There is no more room for datagrams of a process, or room again.
    Backlog {
        /// The process.
        to: Pid,
        /// How much waits for its port.
        backlog: DatagramBacklog,
    },
}

/// The network between all processes.
#[derive(Debug)]
pub struct SimNetwork {
    model: NetworkModel,
    ends: Vec<PipeEnd>,
    /// The queue of each port towards the network, and from there.
    leaving: Vec<PortQueue>,
    arriving: Vec<PortQueue>,
    /// From each process (row) to each other.
    pipes: Vec<Pipe>,
    due: EventQueue<NetworkTimer>,
    heard: VecDeque<NetworkEvent>,
    overflows: u64,
    /// The most bytes that waited for the port of a sender of datagrams.
    backlog_most: u64,
}

#[derive(Clone, Copy, Debug)]
struct PipeEnd {
    alive: bool,
    /// How often it crashed.
    life: u32,
    /// Whether it has heard that there is no room for its datagrams.
    is_crowded: bool,
}

/// One direction between two processes.
#[derive(Clone, Copy, Debug, Default)]
struct Pipe {
    /// Whether the stream takes frames.
    open: bool,
    /// How many streams there were before this one.
    stream: u32,
    /// The stream that the receiver believes in: frames of older ones are dropped.
    heard: u32,
    /// When the last of the stream's frames arrives: later ones are not earlier.
    last: Time,
    link_until: Time,
    /// Until when nothing passes.
    blocked: Time,
}

#[derive(Clone, Debug)]
enum NetworkTimer {
    Frame {
        from: Pid,
        to: Pid,
        stream: Option<u32>,
        bytes: Rc<[u8]>,
        received: bool,
    },
    Up {
        to: Pid,
        of: Pid,
        stream: u32,
    },
    Down {
        to: Pid,
        of: Pid,
        stream: u32,
        life: u32,
    },
    Connect {
        a: Pid,
        b: Pid,
        lives: (u32, u32),
    },
    /// Half of what may wait is left, unless more came meanwhile.
    Room {
        to: Pid,
        life: u32,
    },
}

const fn occupied(ps_per_byte: u64, bytes: u64) -> Span {
    Span(ps_per_byte * bytes / 1000)
}

impl SimNetwork {
    /// A network between `processes` processes, all alive and not connected yet; see
    /// [`SimNetwork::connect_all`].
    pub fn new(processes: usize, model: NetworkModel) -> Self {
        let ports = match model {
            NetworkModel { bus: true, .. } => 1,
            NetworkModel { hosts: 0, .. } => processes,
            NetworkModel { hosts, .. } => hosts,
        };
        Self {
            model,
            ends: alloc::vec![PipeEnd { alive: true, life: 0, is_crowded: false }; processes],
            leaving: alloc::vec![PortQueue::default(); ports],
            arriving: alloc::vec![PortQueue::default(); ports],
            pipes: alloc::vec![Pipe::default(); processes * processes],
            due: EventQueue::default(),
            heard: VecDeque::new(),
            overflows: 0,
            backlog_most: 0,
        }
    }

    /// Datagrams that found the buffer in front of their receiver's port full.
    pub fn overflows(&self) -> u64 {
        self.overflows
    }

    /// The most bytes that waited for the port of a process when it sent a datagram.
    pub fn backlog_most(&self) -> u64 {
        self.backlog_most
    }

    /// Connects every two processes, as they start.
    pub fn connect_all(&mut self, now: Time, chooser: &mut Chooser) {
        let count = self.ends.len() as u32;
        for p in (0..count).map(Pid) {
            for q in (0..p.0).map(Pid) {
                self.open(now, q, p, chooser);
            }
        }
    }

    /// Sends a frame.
    pub fn send(
        &mut self,
        now: Time,
        from: Pid,
        to: Pid,
        lane: Lane,
        bytes: &Rc<[u8]>,
        chooser: &mut Chooser,
    ) {
        if from == to {
            return self.loop_back(now, from, bytes, chooser);
        }
        if lane == Lane::Datagram {
            let left = self.leave_port(now, from, bytes.len());
            self.look_at_backlog(now, from);
            return self.datagram((now, left), from, to, bytes, chooser);
        }
        let pipe = *self.pipe_mut(from, to);
        if pipe.open {
            let left = self.leave_port(now, from, bytes.len());
            let leaves = self.leave_link(left, from, to, bytes.len());
            let far = self.model.far.between(from, to, self.ends.len());
            let travel = self.model.stream.draw(chooser, Concern::Network) + far;
            let at = (leaves.max(pipe.blocked) + travel).max(pipe.last);
            self.pipe_mut(from, to).last = at;
            self.frame(at, from, to, Some(pipe.stream), bytes);
        }
    }

    /// Sends one datagram to many: it leaves the sender's port once, and the network copies it.
    pub fn multicast(
        &mut self,
        now: Time,
        from: Pid,
        to: impl Iterator<Item = Pid>,
        bytes: &Rc<[u8]>,
        chooser: &mut Chooser,
    ) {
        let mut left = None;
        for to in to {
            if from == to {
                self.loop_back(now, from, bytes, chooser);
            } else {
                let left = *left.get_or_insert_with(|| self.leave_port(now, from, bytes.len()));
                self.datagram((now, left), from, to, bytes, chooser);
            }
        }
        if left.is_some() {
            self.look_at_backlog(now, from);
        }
    }

    /// Takes out that there is no more room for the datagrams of a process, if it was heard last: at once, as of a carrier that
    /// looks at the end of each round.
    pub fn take_crowded(&mut self, of: Pid) -> Option<DatagramBacklog> {
        let NetworkEvent::Backlog { to, backlog } = *self.heard.back()? else { return None };
        let is_it = to == of && !backlog.has_room;
        is_it.then(|| self.heard.pop_back()).flatten().map(|_| backlog)
    }

    /// Bytes that wait for the port of a process.
    fn backlog(&self, now: Time, p: Pid) -> u64 {
        let waits = self.leaving[self.port(p)].until.since(now);
        (waits.0 * 1000).checked_div(self.model.port_ps_per_byte).unwrap_or(0)
    }

    /// A process has sent a datagram: tells it if there is no room for more.
    fn look_at_backlog(&mut self, now: Time, of: Pid) {
        let bytes = self.backlog(now, of);
        self.backlog_most = self.backlog_most.max(bytes);
        let level = self.model.sender_bytes;
        if level > 0 && bytes > level && !self.ends[of.index()].is_crowded {
            self.ends[of.index()].is_crowded = true;
            let backlog = DatagramBacklog { bytes: bytes as usize, has_room: false };
            self.heard.push_back(NetworkEvent::Backlog { to: of, backlog });
            self.room_later(now, of);
        }
    }

    /// Looks again when half of what may wait is left, if nothing more comes.
    fn room_later(&mut self, now: Time, to: Pid) {
        let over = self.backlog(now, to).saturating_sub(self.model.sender_bytes / 2);
        // Not earlier than it is so, and not without end.
        let wait = Span(occupied(self.model.port_ps_per_byte, over).0 + 1);
        let life = self.ends[to.index()].life;
        self.due.push(now + wait, NetworkTimer::Room { to, life });
    }

    /// Half of what may wait for a port is left, perhaps.
    fn room_perhaps(&mut self, now: Time, to: Pid, life: u32) {
        let end = self.ends[to.index()];
        if !end.alive || end.life != life {
            return;
        }
        let bytes = self.backlog(now, to);
        if bytes > self.model.sender_bytes / 2 {
            return self.room_later(now, to);
        }
        self.ends[to.index()].is_crowded = false;
        let backlog = DatagramBacklog { bytes: bytes as usize, has_room: true };
        self.heard.push_back(NetworkEvent::Backlog { to, backlog });
    }

    /// The frames of a process to itself arrive, in order.
    fn loop_back(&mut self, now: Time, p: Pid, bytes: &Rc<[u8]>, chooser: &mut Chooser) {
        let pipe = *self.pipe_mut(p, p);
        let at = (now + self.model.own.draw(chooser, Concern::Network)).max(pipe.last);
        self.pipe_mut(p, p).last = at;
        self.frame(at, p, p, Some(pipe.stream), bytes);
    }

    /// A datagram that is sent now, and is through the sender's port at some time.
    fn datagram(
        &mut self,
        (now, left): (Time, Time),
        from: Pid,
        to: Pid,
        bytes: &Rc<[u8]>,
        chooser: &mut Chooser,
    ) {
        let model = self.model;
        let leaves = self.leave_link(left, from, to, bytes.len());
        let lost = chooser.chance(Concern::Network, model.loss_ppm);
        if lost || now < self.pipe_mut(from, to).blocked {
            return;
        }
        let double = chooser.chance(Concern::Network, model.double_ppm);
        for _ in 0..=u8::from(double) {
            let far = model.far.between(from, to, self.ends.len());
            let mut at = leaves + model.datagram.draw(chooser, Concern::Network) + far;
            if chooser.chance(Concern::Network, model.late_ppm) {
                at += model.late.draw(chooser, Concern::Network);
            }
            self.frame(at, from, to, None, bytes);
        }
    }

    /// When something is heard next; [`Time::NEVER`] if nothing will be.
    pub fn next(&self) -> Time {
        self.due.next()
    }

    /// Lets the next thing happen, and nothing else.
    pub fn step(&mut self, chooser: &mut Chooser) {
        let Some((now, due)) = self.due.pop() else { return };
        match due {
            NetworkTimer::Frame { from, to, stream, bytes, received } => {
                self.arrive(now, (from, to), stream, bytes, received);
            }
            NetworkTimer::Up { to, of, stream } => {
                if self.ends[to.index()].alive && self.pipe_mut(of, to).heard == stream {
                    self.heard.push_back(NetworkEvent::Up { to, of });
                }
            }
            NetworkTimer::Down { to, of, stream, life } => {
                let end = self.ends[to.index()];
                // Late news of an older stream, from before this end crashed, changes nothing.
                let pipe = self.pipe_mut(of, to);
                pipe.heard = pipe.heard.max(stream);
                if end.alive && end.life == life {
                    self.heard.push_back(NetworkEvent::Down { to, of });
                }
            }
            NetworkTimer::Room { to, life } => self.room_perhaps(now, to, life),
            NetworkTimer::Connect { a, b, lives } => self.connected(now, a, b, lives, chooser),
        }
    }

    /// Takes out what was heard first.
    pub fn take(&mut self) -> Option<NetworkEvent> {
        self.heard.pop_front()
    }

    /// Nothing passes this way until then: datagrams are lost, streams stand still.
    pub fn block(&mut self, from: Pid, to: Pid, until: Time) {
        if from != to {
            let pipe = self.pipe_mut(from, to);
            pipe.blocked = pipe.blocked.max(until);
        }
    }

    /// The connection between two processes breaks, and opens again after `reconnect`.
    pub fn cut(&mut self, now: Time, a: Pid, b: Pid, reconnect: Span, chooser: &mut Chooser) {
        if a == b || !self.pipe_mut(a, b).open {
            return;
        }
        for (to, of) in [(a, b), (b, a)] {
            self.close(now, to, of, chooser);
        }
        self.connect(now + reconnect, a, b);
    }

    /// A process dies: its connections break.
    pub fn crash(&mut self, now: Time, p: Pid, chooser: &mut Chooser) {
        let end = &mut self.ends[p.index()];
        if !end.alive {
            return;
        }
        end.alive = false;
        end.life += 1;
        end.is_crowded = false;
        for q in (0..self.ends.len() as u32).map(Pid).filter(|&q| q != p) {
            if self.pipe_mut(p, q).open {
                self.close(now, q, p, chooser);
                let back = self.pipe_mut(q, p);
                back.open = false;
                back.stream += 1;
            }
        }
        self.pipe_mut(p, p).stream += 1;
    }

    /// A process that died starts again, and connects to all that live.
    pub fn start(&mut self, now: Time, p: Pid, chooser: &mut Chooser) {
        let end = &mut self.ends[p.index()];
        assert!(!end.alive, "{p:?} lives and starts");
        end.alive = true;
        for q in (0..self.ends.len() as u32).map(Pid) {
            let pipe = self.pipe_mut(q, p);
            pipe.heard = pipe.stream;
            if q != p && self.ends[q.index()].alive {
                let wait = self.model.reconnect.draw(chooser, Concern::Network);
                self.open(now + wait, p, q, chooser);
            }
        }
    }

    fn pipe_mut(&mut self, from: Pid, to: Pid) -> &mut Pipe {
        let count = self.ends.len();
        &mut self.pipes[from.index() * count + to.index()]
    }

    /// When a frame has left the sender's port.
    fn leave_port(&mut self, now: Time, from: Pid, bytes: usize) -> Time {
        let (time, background) = (self.model.port_time(bytes), self.model.background);
        let port = self.port(from);
        let queue = &mut self.leaving[port];
        queue.count(now, background, None);
        queue.take(now, time)
    }

    /// The port of a process; a cable is one for all.
    const fn port(&self, p: Pid) -> usize {
        match self.model {
            NetworkModel { bus: true, .. } => 0,
            NetworkModel { hosts: 0, .. } => p.index(),
            NetworkModel { hosts, .. } => p.index() % hosts,
        }
    }

    /// The queue in front of a receiver's port.
    fn arrivals(&mut self, now: Time, to: Pid) -> &mut PortQueue {
        let NetworkModel { port_ps_per_byte, port_buffer, background, .. } = self.model;
        let most = (port_buffer > 0).then(|| occupied(port_ps_per_byte, port_buffer));
        let port = self.port(to);
        let queue = &mut self.arriving[port];
        queue.count(now, background, most);
        queue
    }

    /// When a frame that left the port then has left the link to its receiver.
    fn leave_link(&mut self, left: Time, from: Pid, to: Pid, bytes: usize) -> Time {
        let link = self.model.link_ps_per_byte;
        let pipe = self.pipe_mut(from, to);
        pipe.link_until = pipe.link_until.max(left) + occupied(link, bytes as u64);
        pipe.link_until
    }

    /// Whether so many bytes still find a place in front of the receiver's port.
    fn has_place(&mut self, now: Time, to: Pid, bytes: usize) -> bool {
        let NetworkModel { port_ps_per_byte: port, port_buffer: buffer, .. } = self.model;
        let waits = self.arrivals(now, to).until.since(now);
        buffer == 0 || waits + self.model.port_time(bytes) <= occupied(port, buffer)
    }

    fn frame(&mut self, at: Time, from: Pid, to: Pid, stream: Option<u32>, bytes: &Rc<[u8]>) {
        let bytes = Rc::clone(bytes);
        self.due.push(at, NetworkTimer::Frame { from, to, stream, bytes, received: false });
    }

    fn arrive(
        &mut self,
        now: Time,
        (from, to): (Pid, Pid),
        stream: Option<u32>,
        bytes: Rc<[u8]>,
        received: bool,
    ) {
        // All ends of a cable receive while the frame is on it.
        let has_port = self.model.port_ps_per_byte > 0 && !self.model.bus;
        if has_port && !received && from != to {
            if stream.is_none() && !self.has_place(now, to, bytes.len()) {
                self.overflows += 1;
                return;
            }
            let time = self.model.port_time(bytes.len());
            let at = self.arrivals(now, to).take(now, time);
            return self
                .due
                .push(at, NetworkTimer::Frame { from, to, stream, bytes, received: true });
        }
        let current = self.pipe_mut(from, to).heard;
        if self.ends[to.index()].alive && stream.is_none_or(|stream| stream == current) {
            let lane = if stream.is_some() { Lane::Stream } else { Lane::Datagram };
            self.heard.push_back(NetworkEvent::Frame { to, from, lane, bytes });
        }
    }

    /// Ends the stream from `of` to `to`; `to` hears of it some time.
    fn close(&mut self, now: Time, to: Pid, of: Pid, chooser: &mut Chooser) {
        let at = now + self.model.down.draw(chooser, Concern::Network);
        let life = self.ends[to.index()].life;
        let pipe = self.pipe_mut(of, to);
        pipe.open = false;
        pipe.stream += 1;
        // A frame that would arrive later than the news of the break is lost.
        pipe.last = at;
        let stream = pipe.stream;
        self.due.push(at, NetworkTimer::Down { to, of, stream, life });
    }

    fn connect(&mut self, at: Time, a: Pid, b: Pid) {
        let lives = (self.ends[a.index()].life, self.ends[b.index()].life);
        self.due.push(at, NetworkTimer::Connect { a, b, lives });
    }

    fn connected(&mut self, now: Time, a: Pid, b: Pid, lives: (u32, u32), chooser: &mut Chooser) {
        let ends = (self.ends[a.index()], self.ends[b.index()]);
        let same = (ends.0.life, ends.1.life) == lives && ends.0.alive && ends.1.alive;
        if !same || self.pipe_mut(a, b).open {
            return;
        }
        let blocked = self.pipe_mut(a, b).blocked.max(self.pipe_mut(b, a).blocked);
        if now < blocked {
            return self.connect(blocked, a, b);
        }
        self.open(now, a, b, chooser);
    }

    /// Both streams take frames from now on, and arrive behind the news that they stand. That a
    /// frame is sent before the sender hears this news does not lose it: nobody said `Down`.
    fn open(&mut self, at: Time, a: Pid, b: Pid, chooser: &mut Chooser) {
        for (to, of) in [(a, b), (b, a)] {
            let far = self.model.far.between(of, to, self.ends.len());
            let travel = self.model.stream.draw(chooser, Concern::Network) + far;
            let pipe = self.pipe_mut(of, to);
            pipe.open = true;
            pipe.last = pipe.last.max(at.max(pipe.blocked) + travel);
            let (at, stream) = (pipe.last, pipe.stream);
            self.due.push(at, NetworkTimer::Up { to, of, stream });
        }
    }
}

#[cfg(test)]
mod tests;

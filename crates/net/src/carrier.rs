//! The carrier of one process: what its protocol asks of the medium, and what the medium says.

use crate::error::{NetDiagnostic, NetError};
use crate::events::{CarrierEvents, LinkEvent, NetCounts};
use crate::inbound::Inbound;
use crate::multicast::{ListenerContact, Multicast};
use crate::options::{NetOptions, PeerConfig};
use crate::outbound::Outbound;
use crate::peer_identity::PeerIdentity;
use crate::poller::{self, EventFlags, PollToken, Poller, Waker};
use crate::self_channel::SelfChannel;
use crate::sockets;
use crate::streams::Streams;
use crate::wire::{DatagramSender, MessageAssembly, echoes_max};
use amcast_core::id::{Gid, Pid};
use amcast_core::limits::GROUPS_MAX;
use amcast_core::messages::{Lane, MessageInput, MessageOutput};
use amcast_core::time::Span;
use rustix::fd::{AsFd, OwnedFd};
use std::net::SocketAddr;
use std::time::Instant;

/// The sockets that a process is reached at, before it starts: with port 0 the system chooses one,
/// and [`BoundPorts::tcp`] and [`BoundPorts::udp`] tell which, for the peers' configuration.
#[derive(Debug)]
pub struct BoundPorts {
    listener: OwnedFd,
    tcp: SocketAddr,
    datagrams: OwnedFd,
    udp: SocketAddr,
}

impl BoundPorts {
    /// Opens them.
    ///
    /// # Errors
    /// When an address is in use, or not of this machine, or not for this user.
    pub fn open(tcp: SocketAddr, udp: SocketAddr) -> Result<Self, NetError> {
        let (listener, tcp) = sockets::listener(tcp)?;
        let (datagrams, udp) = sockets::datagrams(udp)?;
        Ok(Self { listener, tcp, datagrams, udp })
    }

    /// Where connections are taken.
    pub fn tcp(&self) -> SocketAddr {
        self.tcp
    }

    /// Where datagrams arrive.
    pub fn udp(&self) -> SocketAddr {
        self.udp
    }
}

/// The carrier of the medium `Messages` for one process. One thread uses it; it never blocks but in
/// [`Carrier::park`].
///
/// A loop does this, over and over:
/// ```
/// # use amcast_core::{messages::{Frames, MessageOutput}, step::*, time::{Span, Time}};
/// # use amcast_net::Carrier;
/// # fn round(carrier: &mut Carrier, node: &mut dyn Protocol<Medium = Frames>,
/// #          outbox: &mut Outbox<Frames>, now: Time) {
/// carrier.begin_round();
/// while let Some(input) = carrier.next_input() {
///     node.step(now, (), Input::Medium(input), outbox);
///     for output in outbox.items() {
///         if let Output::Medium(out) = output {
///             let (MessageOutput::To(_, _, extent) | MessageOutput::Group(_, _, extent)) = out;
///             carrier.carry(out, outbox.bytes(*extent));
///         } // deliveries and the rest are the loop's own business
///     }
///     outbox.clear();
/// }
/// carrier.flush();
/// # }
/// ```
/// and parks when it has nothing to do. Messages wait in queues until [`Carrier::flush`].
#[derive(Debug)]
pub struct Carrier {
    me: Pid,
    incarnation: u32,
    poller: Poller,
    streams: Streams,
    inbound: Inbound,
    outbound: Outbound,
    own: SelfChannel,
    /// The members of each group, by gid.
    members: Vec<Vec<Pid>>,
    /// Groups that have a multicast address, and who hears it.
    multicast: Multicast,
    frame_bytes_max: usize,
    queue_bytes_max: usize,
    told: CarrierEvents,
}

impl Carrier {
    /// Opens the sockets of `peers[me]` and begins to connect to all peers, which are listed by pid.
    /// `incarnation` is higher than in any earlier life of the process.
    ///
    /// # Errors
    /// When the sockets cannot be opened, or the options do not go together.
    pub fn start(
        me: Pid,
        incarnation: u32,
        peers: &[PeerConfig],
        options: &NetOptions,
    ) -> Result<Self, NetError> {
        let own = peers.get(me.index()).ok_or(NetError::NoSuch { me, count: peers.len() })?;
        Self::start_at(BoundPorts::open(own.tcp, own.udp)?, me, incarnation, peers, options)
    }

    /// [`Carrier::start`] with sockets that are open already.
    ///
    /// # Errors
    /// The same.
    pub fn start_at(
        ports: BoundPorts,
        me: Pid,
        incarnation: u32,
        peers: &[PeerConfig],
        options: &NetOptions,
    ) -> Result<Self, NetError> {
        options.check()?;
        if me.index() >= peers.len() {
            return Err(NetError::NoSuch { me, count: peers.len() });
        }
        let poller = Poller::new()?;
        let watch = poller.watch();
        let mut told = CarrierEvents::default();
        let streams =
            Streams::new((me, incarnation), peers, ports.listener, watch.clone(), options)?;
        let member = |g: u8| {
            let all = (0..).zip(peers).filter(move |(_, peer)| peer.groups.contains(Gid(g)));
            all.map(|(pid, _)| Pid(pid)).collect()
        };
        let mut sockets = vec![ports.datagrams];
        for &(group, address) in &options.multicast {
            if peers[me.index()].groups.contains(group) {
                sockets.push(sockets::join(address, options.interface)?);
            }
        }
        if !options.multicast.is_empty() {
            sockets::send_to_groups(&sockets[0], ports.udp, options)?;
        }
        for socket in &sockets {
            sockets::enlarge(socket, options.receive_buffer_bytes, &mut told);
        }
        let cluster = options.secret.datagram_id(options.cluster_id);
        let sender = DatagramSender { cluster, pid: me, incarnation };
        let assembly = MessageAssembly::new(options.assembly_bytes_max, options.frame_bytes_max);
        let inbound = Inbound::new((sender, peers.len()), sockets, assembly, &watch)
            .map_err(NetError::doing("poll a socket"))?;
        let groups = options.multicast.iter().map(|&(_, address)| address);
        let targets = peers.iter().map(|peer| peer.udp).chain(groups);
        let members: Vec<Vec<Pid>> = (0..GROUPS_MAX as u8).map(member).collect();
        let others = |group: Gid| {
            let all = members[group.index()].iter().copied();
            all.filter(|&pid| pid != me).collect::<Vec<Pid>>()
        };
        let multicast = (peers.len()..)
            .zip(&options.multicast)
            .map(|(target, &(group, address))| (group, address, target, others(group)));
        let multicast = Multicast::new(multicast, echoes_max(options.datagram_bytes));
        let mut carrier = Self {
            me,
            incarnation,
            poller,
            streams,
            inbound,
            outbound: Outbound::new(sender, options, targets),
            own: SelfChannel::default(),
            members,
            multicast,
            frame_bytes_max: options.frame_bytes_max,
            queue_bytes_max: options.queue_bytes_max,
            told,
        };
        carrier.knock(peers.len());
        Ok(carrier)
    }

    /// Tells those who dial this process that it has started: they may have given it up, and try
    /// only now and then.
    fn knock(&mut self, processes: usize) {
        (self.me.index() + 1..processes).for_each(|target| self.outbound.knock(target));
        self.outbound.flush(self.inbound.own(), &mut self.told);
    }

    /// Which process it is.
    pub fn pid(&self) -> Pid {
        self.me
    }

    /// Which life of the process this is.
    pub fn incarnation(&self) -> u32 {
        self.incarnation
    }

    // ---- what the protocol asks

    /// Sends `message`, the bytes of what `out` says. It waits in a queue until [`Carrier::flush`] at
    /// the latest. A stream's message to a peer after its [`MessageInput::Down`] is lost; one for which
    /// there is no [room](Carrier::room) breaks the connection.
    ///
    /// # Panics
    /// When the message is longer than the limit of the options, or goes to a process or group that
    /// there is not: the protocol was not built for this cluster.
    #[inline]
    pub fn carry<T>(&mut self, out: &MessageOutput<T>, message: &[u8]) {
        assert!(
            message.len() <= self.frame_bytes_max,
            "a message of {} bytes: frame_bytes_max is {}",
            message.len(),
            self.frame_bytes_max
        );
        match *out {
            MessageOutput::To(pid, lane, _) => self.send(pid, lane, message),
            MessageOutput::Group(group, lane, _) => {
                if lane == Lane::Datagram && self.multicast.of(group).is_some() {
                    return self.send_to_group(group, message);
                }
                for i in 0..self.members[group.index()].len() {
                    self.send(self.members[group.index()][i], lane, message);
                }
            }
        }
    }

    /// As [`Carrier::carry`], for one message to another process on its stream that has two parts.
    ///
    /// # Panics
    /// The same, and when it is to this process.
    #[inline]
    pub fn carry_parts(&mut self, to: Pid, head: &[u8], rest: &[u8]) {
        assert!(to != self.me, "a message to another process");
        assert!(
            head.len() + rest.len() <= self.frame_bytes_max,
            "a message of {} bytes: frame_bytes_max is {}",
            head.len() + rest.len(),
            self.frame_bytes_max
        );
        self.streams.send(to, head, rest, &mut self.told);
    }

    /// One datagram for all members that hear the group's address, and one for each of the others that are not down; this
    /// process hears itself without the network.
    fn send_to_group(&mut self, group: Gid, message: &[u8]) {
        if self.members[group.index()].contains(&self.me) {
            self.send(self.me, Lane::Datagram, message);
        }
        let Self { multicast, outbound, inbound, told, .. } = self;
        let Some(group) = multicast.of(group) else { return };
        if group.is_heard {
            outbound.put(inbound.own(), group.target, message, told);
        }
        told.counts.multicast_copies += group.unreached.len() as u64;
        for pid in &group.unreached {
            outbound.put(inbound.own(), pid.index(), message, told);
        }
    }

    /// Probes the groups' addresses if it is time, and takes in who heard them.
    fn probe(&mut self, now: Instant) {
        let Self { multicast, outbound, inbound, streams, told, .. } = self;
        for (pid, probe) in inbound.probes.echoed.drain(..) {
            multicast.on_echo(pid, probe, now, told);
        }
        multicast.note_connects(told.counts.connects, now);
        let is_due = multicast.is_due(now);
        if !is_due && inbound.probes.to_echo.is_empty() {
            return;
        }
        for echo in inbound.probes.to_echo.drain(..) {
            if !multicast.gather(&echo) {
                outbound.echo(echo, told);
            }
        }
        let contact = |pid| ListenerContact {
            connected_at: streams.connected_at(pid),
            sends: inbound.senders[pid.index()],
        };
        for due in multicast.wake(now, contact, told) {
            outbound.probe(&due, told);
        }
        if is_due {
            inbound.senders.fill(false);
        }
        outbound.flush(inbound.own(), told);
    }

    #[inline]
    fn send(&mut self, to: Pid, lane: Lane, message: &[u8]) {
        if to == self.me {
            self.told.counts.own_messages += 1;
            return self.own.put(message);
        }
        match lane {
            Lane::Stream => self.streams.send(to, &[], message, &mut self.told),
            Lane::Datagram => {
                self.outbound.put(self.inbound.own(), to.index(), message, &mut self.told);
            }
        }
    }

    /// Hands everything that waits to the system, as far as it takes it: one call for each peer. The rest
    /// is sent as soon as the system takes it, in later rounds.
    pub fn flush(&mut self) {
        self.streams.flush(&mut self.told);
        self.outbound.flush(self.inbound.own(), &mut self.told);
        self.look_at_backlog();
    }

    /// Tells the protocol if there is no more room for its datagrams, or room again.
    fn look_at_backlog(&mut self) {
        self.told.news.extend(self.outbound.backlog_change().map(LinkEvent::Backlog));
    }

    /// How many bytes wait for a peer on its stream: what it was too slow for, and what was not
    /// flushed yet.
    pub fn backlog(&self, pid: Pid) -> usize {
        if pid == self.me { self.own.len() } else { self.streams.backlog(pid) }
    }

    /// How many bytes more may wait for a peer, lengths of 4 bytes a message included, before its
    /// connection is given up. A driver takes in nothing new while there is little room for a peer
    /// that it needs. There is always room for oneself.
    pub fn room(&self, pid: Pid) -> usize {
        if pid == self.me {
            return usize::MAX;
        }
        self.queue_bytes_max - self.streams.backlog(pid)
    }

    /// Breaks the connection to a peer, if there is one; it is made anew as any that broke. For a
    /// peer that is connected and of no use, and for tests.
    pub fn hang_up(&mut self, pid: Pid) {
        if pid != self.me {
            self.streams.hang_up(pid, &mut self.told);
        }
    }

    /// A peer is reached at another address from now on, for connections and for datagrams; whether
    /// that is new. A connection that it has is broken, and made anew as any that broke.
    pub fn move_peer(&mut self, pid: Pid, to: SocketAddr) -> bool {
        let moved = pid != self.me && self.streams.move_peer(pid, to, &mut self.told);
        if moved {
            self.outbound.move_target(pid.index(), to);
        }
        moved
    }

    // ---- what the medium says

    /// Begins a round: asks what is ready, and does what is due. One system call, and some for each
    /// connection that is being made.
    pub fn begin_round(&mut self) {
        let now = Instant::now();
        self.streams.begin_round();
        self.own.begin_round();
        self.streams.wake(now, &mut self.told);
        self.told.counts.looks += 1;
        if let Err(errno) = self.poller.look() {
            // Neither the call nor the descriptor can be wrong, so the system has no memory left.
            return self.told.remark(NetDiagnostic::Short { errno });
        }
        while let Some((token, flags)) = self.poller.next() {
            match token {
                PollToken::Waker | PollToken::Other => {}
                PollToken::Listener => self.streams.accept(now, &mut self.told),
                PollToken::Handshake(index) => self.streams.handshake(index, &mut self.told),
                PollToken::Link(pid) => self.streams.ready(Pid(pid), flags, now, &mut self.told),
                PollToken::Datagrams(index) => self.inbound.ready(index),
            }
        }
        self.outbound.retry(self.inbound.own(), now, &mut self.told);
        self.look_at_backlog();
        self.probe(now);
    }

    /// The next input of this round, if there is one more: connections first, then messages, which
    /// are borrowed from where they arrived. A round ends; what arrives meanwhile is for the next.
    #[inline]
    pub fn next_input(&mut self) -> Option<MessageInput<&[u8]>> {
        if let Some(news) = self.told.news.pop_front() {
            return Some(news.input());
        }
        if let Some(at) = self.own.next() {
            return Some(MessageInput::From(self.me, self.own.bytes(at)));
        }
        if let Some((pid, at)) = self.streams.next(&mut self.told) {
            return Some(MessageInput::From(pid, &self.streams.bytes(pid)[at]));
        }
        if let Some(news) = self.told.news.pop_front() {
            // A connection broke while it was read.
            return Some(news.input());
        }
        let (pid, at) = self.inbound.next(&mut self.streams, &mut self.told)?;
        Some(MessageInput::From(pid, self.inbound.bytes(at)))
    }

    /// A whole round for a loop that does not send while it listens: says how many inputs there were.
    pub fn poll(&mut self, tell: &mut dyn FnMut(MessageInput<&[u8]>)) -> usize {
        self.begin_round();
        let mut count = 0;
        while let Some(input) = self.next_input() {
            tell(input);
            count += 1;
        }
        count
    }

    // ---- waiting

    /// Sleeps until something is ready, the [`Waker`] rings, a connection is to be dialled, or for
    /// `at_most`; for ever if none. It may return early. It does not sleep at all if there is
    /// something for the next round already, or the waker rang since the last sleep.
    pub fn park(&mut self, at_most: Option<Span>) {
        let at_most = self.sleep_max(at_most);
        self.told.counts.parks += 1;
        if let Err(errno) = self.poller.park(at_most) {
            self.told.remark(NetDiagnostic::Short { errno });
        }
    }

    /// How long it may sleep before something is due.
    fn sleep_max(&self, at_most: Option<Span>) -> Option<Span> {
        let more = self.streams.has_more() || self.inbound.has_more();
        if more || !self.told.news.is_empty() || self.own.len() > 0 {
            return Some(Span::ZERO);
        }
        if !self.inbound.probes.is_empty() {
            return Some(Span::ZERO);
        }
        let others = self.outbound.retry_at().into_iter().chain(self.multicast.next_due());
        let due = others.fold(self.streams.next_due(), Instant::min);
        let due = due.saturating_duration_since(Instant::now());
        let due = Span(u64::try_from(due.as_nanos()).unwrap_or(u64::MAX));
        Some(at_most.map_or(due, |at_most| at_most.min(due)))
    }

    /// Has something else end [`Carrier::park`] as well, as long as it can be read; what comes there
    /// is the loop's own business.
    ///
    /// # Errors
    /// When the system has no room for it.
    pub fn watch(&self, what: impl AsFd) -> Result<(), NetError> {
        let watched = self.poller.watch().add(what, PollToken::Other, EventFlags::IN);
        watched.map_err(NetError::doing("watch another descriptor"))
    }

    /// The handle with which other threads wake this loop.
    pub fn waker(&self) -> Waker {
        self.poller.waker()
    }

    // ---- for people and metrics

    /// In which of its lives a peer is connected now, if it is.
    pub fn connected(&self, pid: Pid) -> Option<u32> {
        self.streams.connected(pid)
    }

    /// The identity of a peer, which is to be kept where it outlasts this process; see
    /// [`NetOptions::known`]. It changes only with a [`MessageInput::Up`] of the peer.
    pub fn known(&self, pid: Pid) -> &PeerIdentity {
        self.streams.known(pid)
    }

    /// Its work so far.
    pub fn counts(&self) -> NetCounts {
        self.told.counts
    }

    /// Datagrams for this process that the system dropped so far, because their socket's buffer was full: the process was
    /// too slow, or the buffer too small. None if the system does not tell. It reads a file of the system.
    pub fn kernel_drops(&self) -> Option<u64> {
        self.inbound.kernel_drops()
    }

    /// How many datagrams wait until the network, or the rate of the options, takes them: for people and metrics. The protocol
    /// hears [`MessageInput::Backlog`] where there are too many.
    pub fn datagram_backlog(&self) -> usize {
        self.outbound.waiting()
    }

    /// The oldest thing worth a line in a log that was not taken yet.
    pub fn take_remark(&mut self) -> Option<NetDiagnostic> {
        self.told.remarks.take()
    }
}

/// [`Carrier::park`] for several processes that share a thread: sleeps until any of them has
/// something.
pub fn park_all<'a>(carriers: impl IntoIterator<Item = &'a mut Carrier>, at_most: Option<Span>) {
    let carriers: Vec<&mut Carrier> = carriers.into_iter().collect();
    let at_most = carriers.iter().fold(at_most, |least, carrier| carrier.sleep_max(least));
    let slept = poller::park_all(carriers.iter().map(|carrier| &carrier.poller), at_most);
    for carrier in carriers {
        carrier.told.counts.parks += 1;
        if let Err(errno) = slept {
            carrier.told.remark(NetDiagnostic::Short { errno });
        }
    }
}

/// A loop's thread takes its carrier along.
const _: fn() = || {
    fn sent<T: Send>() {}
    sent::<Carrier>();
};

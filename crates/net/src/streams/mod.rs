//! The lane `Stream`: a TCP connection to each peer.
//!
//! Of two processes the one with the higher pid dials; see `link.rs` for the stages of a connection
//! and `handshaking.rs` for those that come in. A connection that breaks loses what was on the way, in
//! both directions, and each end says `Down`; frames that were sent before the first connection
//! was open wait for it, since no `Down` was reported for it.
//!
//! A peer that takes nothing holds up nobody: its frames wait in a queue with a bound, and the
//! connection is given up when the queue is full. To hold messages back instead would need a word for
//! it in the medium; to drop single messages would break the order that protocols rest on. With a
//! bound of many times what a protocol has in flight, only a peer that stopped gets there.

mod handshaking;
mod link;

use crate::error::{LinkFailure, NetDiagnostic, NetError};
use crate::events::{CarrierEvents, LinkEvent};
use crate::options::{NetOptions, PeerConfig};
use crate::peer_identity::{PeerClaim, PeerIdentity};
use crate::poller::{EventFlags, PollToken, SocketRegistry};
use crate::secret::{Purpose, nonce};
use crate::sockets;
use crate::wire::{
    ConnectionRefusal, HandshakeMessage, Hello, LENGTH_BYTES, Nonces, NotHello, opening,
};
use amcast_core::Pid;
use amcast_core::rng::Rng;
use core::ops::Range;
use handshaking::InboundHandshakes;
use link::{LinkState, PartialRead, PeerLink};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// How much may pile up for a peer between two flushes before it is written out, in bytes: bytes that were
/// just put in are still in the processor's cache.
const WRITE_OUT_BYTES: usize = 128 << 10;

/// How often a peer's socket is read in one round: the others have their turn then.
const READS_MAX: u32 = 2;

/// A refusal counts like so many failures to reach a peer.
const REFUSED_FAILURES: u32 = 32;

/// How long after a peer knocked it is dialled: knocks that come in numbers make no more calls.
const KNOCK_PAUSE: Duration = Duration::from_millis(2);

/// All connections of one process.
#[derive(Debug)]
pub(crate) struct Streams {
    me: Pid,
    /// The hello of this process.
    hello: Hello,
    options: NetOptions,
    watch: SocketRegistry,
    listener: OwnedFd,
    links: Vec<PeerLink>,
    handshakes: InboundHandshakes,
    /// Peers that have something for this round, and how many of them are done with.
    turns: Vec<Pid>,
    turn: usize,
    /// How often the one whose turn it is was read in this round.
    reads: u32,
    /// Peers for whom something was put in since the last flush.
    dirty: Vec<Pid>,
    /// Nothing is due before this.
    next_due: Instant,
    rng: Rng,
}

impl Streams {
    pub(crate) fn new(
        (me, incarnation): (Pid, u32),
        peers: &[PeerConfig],
        listener: OwnedFd,
        watch: SocketRegistry,
        options: &NetOptions,
    ) -> Result<Self, NetError> {
        let now = Instant::now();
        let link = |(pid, peer): (u32, &PeerConfig)| {
            let dial_at = link::dials(me, Pid(pid)).then_some(now);
            let known = options.known.get(pid as usize).cloned().unwrap_or_default();
            PeerLink::new(peer.tcp, options.frame_bytes_max, (LinkState::Away { dial_at }, known))
        };
        watch
            .add(&listener, PollToken::Listener, EventFlags::IN)
            .map_err(NetError::doing("poll a socket"))?;
        let processes = match options.processes {
            0 => peers.len() as u32,
            hosted => hosted,
        };
        let NetOptions { cluster_id: cluster, decides, disk, start, anew, .. } = *options;
        let said = HandshakeMessage::Ask;
        let from = me;
        let to = me;
        let hello =
            Hello { said, cluster, from, to, incarnation, processes, disk, start, anew, decides };
        Ok(Self {
            me,
            hello,
            options: options.clone(),
            watch,
            listener,
            links: (0..).zip(peers).map(link).collect(),
            handshakes: InboundHandshakes::new(peers.len()),
            turns: Vec::with_capacity(peers.len()),
            turn: 0,
            reads: 0,
            dirty: Vec::with_capacity(peers.len()),
            next_due: now,
            rng: Rng::stream(options.seed ^ u64::from(me.0), "dial"),
        })
    }

    /// The longest that may pass until [`Streams::wake`], with any arrivals.
    pub(crate) fn next_due(&self) -> Instant {
        self.next_due
    }

    /// The life in which a peer was connected last.
    #[inline]
    pub(crate) fn incarnation(&self, pid: Pid) -> Option<u32> {
        self.links[pid.index()].incarnation
    }

    /// The life in which a peer is connected now.
    pub(crate) fn connected(&self, pid: Pid) -> Option<u32> {
        let link = &self.links[pid.index()];
        link.incarnation.filter(|_| link.up)
    }

    /// Where a peer is connected now.
    pub(crate) fn connected_at(&self, pid: Pid) -> Option<SocketAddr> {
        let link = &self.links[pid.index()];
        link.up.then_some(link.address)
    }

    /// The lasting identity of a peer.
    pub(crate) fn known(&self, pid: Pid) -> &PeerIdentity {
        &self.links[pid.index()].known
    }

    /// Whether some peer's messages were not all asked for yet.
    pub(crate) fn has_more(&self) -> bool {
        self.turn < self.turns.len()
    }

    /// How many bytes wait for a peer.
    pub(crate) fn backlog(&self, pid: Pid) -> usize {
        self.links[pid.index()].queue.len()
    }

    // ---- sending

    /// Puts a frame in for a peer, in two parts.
    #[inline]
    pub(crate) fn send(&mut self, to: Pid, head: &[u8], rest: &[u8], told: &mut CarrierEvents) {
        let link = &mut self.links[to.index()];
        if link.muted {
            told.counts.dropped_down += 1;
            return;
        }
        let bytes = head.len() + rest.len() + LENGTH_BYTES;
        if link.queue.len() + bytes > self.options.queue_bytes_max {
            return self.overflow(to, told);
        }
        link.queue.push(head, rest);
        told.counts.stream_sent += 1;
        if !link.dirty {
            link.dirty = true;
            self.dirty.push(to);
        }
        if !link.blocked && link.queue.len() >= WRITE_OUT_BYTES {
            self.write_out(to, told);
        }
    }

    /// Writes out what was put in, as far as the sockets take it.
    pub(crate) fn flush(&mut self, told: &mut CarrierEvents) {
        while let Some(pid) = self.dirty.pop() {
            self.links[pid.index()].dirty = false;
            if !self.links[pid.index()].blocked {
                self.write_out(pid, told);
            }
        }
    }

    fn write_out(&mut self, pid: Pid, told: &mut CarrierEvents) {
        let link = &mut self.links[pid.index()];
        let LinkState::Open { socket } = &link.stage else { return };
        while link.queue.len() > 0 {
            let waiting = link.queue.waiting();
            told.counts.stream_writes += 1;
            match rustix::net::send(socket, waiting, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(count) => {
                    let all = count == waiting.len();
                    told.counts.stream_bytes_sent += count as u64;
                    link.queue.sent(count);
                    if all {
                        return;
                    }
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    link.blocked = true;
                    let both = EventFlags::IN | EventFlags::OUT;
                    if let Err(errno) = self.watch.change(socket, PollToken::Link(pid.0), both) {
                        self.lose(pid, LinkFailure::System(errno), told);
                    }
                    return;
                }
                Err(errno) => return self.lose(pid, LinkFailure::System(errno), told),
            }
        }
    }

    /// The socket takes more again.
    fn unblock(&mut self, pid: Pid, told: &mut CarrierEvents) {
        let link = &mut self.links[pid.index()];
        if !std::mem::take(&mut link.blocked) {
            return;
        }
        self.write_out(pid, told);
        let link = &self.links[pid.index()];
        let LinkState::Open { socket } = &link.stage else { return };
        if !link.blocked
            && let Err(errno) = self.watch.change(socket, PollToken::Link(pid.0), EventFlags::IN)
        {
            self.lose(pid, LinkFailure::System(errno), told);
        }
    }

    /// Gives the connection to a peer up.
    pub(crate) fn hang_up(&mut self, pid: Pid, told: &mut CarrierEvents) {
        if self.links[pid.index()].up {
            self.lose(pid, LinkFailure::HungUp, told);
        }
    }

    /// A peer is somewhere else from now on; whether that is new.
    pub(crate) fn move_peer(&mut self, pid: Pid, to: SocketAddr, told: &mut CarrierEvents) -> bool {
        let link = &mut self.links[pid.index()];
        if link.address == to {
            return false;
        }
        (link.address, link.failures, link.remarked) = (to, 0, false);
        link.refused = None;
        if link.up {
            self.lose(pid, LinkFailure::HungUp, told);
        } else if link::dials(self.me, pid) {
            // Pending messages go back to their place.
            self.enter(pid, LinkState::Away { dial_at: Some(Instant::now()) });
        }
        true
    }

    #[cold]
    fn overflow(&mut self, pid: Pid, told: &mut CarrierEvents) {
        told.counts.overflows += 1;
        told.counts.dropped_down += 1;
        let waiting = self.links[pid.index()].queue.len();
        self.lose(pid, LinkFailure::Overflow(waiting), told);
    }

    // ---- receiving

    /// Begins a round: forgets those whose turn it was.
    pub(crate) fn begin_round(&mut self) {
        self.turns.drain(..self.turn);
        (self.turn, self.reads) = (0, 0);
    }

    /// Something may have happened to the connection.
    pub(crate) fn ready(
        &mut self,
        pid: Pid,
        flags: EventFlags,
        now: Instant,
        told: &mut CarrierEvents,
    ) {
        match &self.links[pid.index()].stage {
            LinkState::Away { .. } => {}
            LinkState::Dialling { .. } => self.dialled(pid, now, told),
            LinkState::Opening { .. } => self.challenged(pid, now, told),
            LinkState::Greeting { .. } => self.greeted(pid, now, told),
            LinkState::Open { .. } => {
                if flags.contains(EventFlags::OUT) {
                    self.unblock(pid, told);
                }
                let link = &mut self.links[pid.index()];
                let else_than_out = flags.intersects(!EventFlags::OUT);
                if else_than_out && !std::mem::replace(&mut link.in_turn, true) {
                    self.turns.push(pid);
                }
            }
        }
    }

    /// The next frame of this round: from whom, and where in [`Streams::bytes`] it lies.
    #[inline]
    pub(crate) fn next(&mut self, told: &mut CarrierEvents) -> Option<(Pid, Range<usize>)> {
        loop {
            let pid = *self.turns.get(self.turn)?;
            let link = &mut self.links[pid.index()];
            match link.reader.take() {
                Ok(Some(at)) => {
                    told.counts.stream_received += 1;
                    return Some((pid, at));
                }
                Ok(None) if self.reads < READS_MAX && self.read(pid, told) => {}
                Ok(None) => self.next_turn(),
                Err(long) => {
                    self.lose(pid, LinkFailure::TooLong(long.bytes), told);
                    self.next_turn();
                }
            }
        }
    }

    /// The bytes that were read from a peer.
    #[inline]
    pub(crate) fn bytes(&self, of: Pid) -> &[u8] {
        self.links[of.index()].reader.bytes()
    }

    fn next_turn(&mut self) {
        self.links[self.turns[self.turn].index()].in_turn = false;
        self.turn += 1;
        self.reads = 0;
    }

    /// Reads from a peer's socket once; whether anything came.
    fn read(&mut self, pid: Pid, told: &mut CarrierEvents) -> bool {
        let link = &mut self.links[pid.index()];
        let LinkState::Open { socket } = &link.stage else { return false };
        let space = link.reader.space();
        let room = space.len();
        told.counts.stream_reads += 1;
        match rustix::net::recv(socket, space, RecvFlags::DONTWAIT) {
            Ok((0, _)) => self.lose(pid, LinkFailure::Closed, told),
            Ok((count, _)) => {
                told.counts.stream_bytes_received += count as u64;
                link.reader.arrived(count);
                // With room left there was no more; the next look says if there is again.
                self.reads = if count < room { READS_MAX } else { self.reads + 1 };
                return true;
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(errno) => self.lose(pid, LinkFailure::System(errno), told),
        }
        false
    }

    // ---- connecting

    /// Does what is due at `now`.
    pub(crate) fn wake(&mut self, now: Instant, told: &mut CarrierEvents) {
        if now < self.next_due {
            return;
        }
        // A day at most; any attempt that begins meanwhile brings it nearer.
        self.next_due = now + Duration::from_secs(86_400);
        for pid in (0..self.links.len() as u32).map(Pid) {
            let due = self.links[pid.index()].due();
            if due.is_some_and(|due| due <= now) {
                match self.links[pid.index()].stage {
                    LinkState::Away { .. } => self.dial(pid, now, told),
                    _ => self.dial_failed(pid, Err(Errno::TIMEDOUT), now, told),
                }
            }
            if let Some(due) = self.links[pid.index()].due() {
                self.next_due = self.next_due.min(due);
            }
        }
        if let Some(due) = self.wake_guests(now, told) {
            self.next_due = self.next_due.min(due);
        }
    }

    /// A peer shows that it lives in a life in which it is not connected: a connection to an earlier
    /// one is dead, and it is dialled soon.
    pub(crate) fn knocked(&mut self, pid: Pid, incarnation: u32, told: &mut CarrierEvents) {
        let link = &self.links[pid.index()];
        if link.up && link.incarnation.is_some_and(|known| known < incarnation) {
            self.lose(pid, LinkFailure::Replaced, told);
        }
        if self.links[pid.index()].refused.is_some_and(|refused| incarnation <= refused) {
            return;
        }
        let soon = Instant::now() + KNOCK_PAUSE;
        if let LinkState::Away { dial_at: Some(dial_at) } = &mut self.links[pid.index()].stage {
            *dial_at = soon.min(*dial_at);
            self.next_due = self.next_due.min(soon);
        }
    }

    fn dial(&mut self, pid: Pid, now: Instant, told: &mut CarrierEvents) {
        told.counts.dials += 1;
        let until = now + Duration::from_nanos(self.options.handshake_max.0);
        let begun = sockets::dial(self.links[pid.index()].address).and_then(|socket| {
            self.watch.add(&socket, PollToken::Link(pid.0), EventFlags::OUT)?;
            Ok(socket)
        });
        match begun {
            Ok(socket) => self.enter(pid, LinkState::Dialling { socket, until }),
            Err(errno) => self.dial_failed(pid, Err(errno), now, told),
        }
    }

    /// The system is done with connecting: this process says what the other one's proof is to be over.
    fn dialled(&mut self, pid: Pid, now: Instant, told: &mut CarrierEvents) {
        let away = LinkState::Away { dial_at: None };
        let stage = std::mem::replace(&mut self.links[pid.index()].stage, away);
        let LinkState::Dialling { socket, until } = stage else { return };
        let opened = sockets::dialled(&socket).and_then(|()| {
            sockets::tune(&socket, &self.options, told);
            self.watch.change(&socket, PollToken::Link(pid.0), EventFlags::IN)?;
            let nonce = nonce().map_err(|_| Errno::IO)?;
            say(&socket, &opening(&nonce)).map(|()| nonce)
        });
        match opened {
            Ok(nonce) => {
                let challenge = PartialRead::new();
                self.enter(pid, LinkState::Opening { socket, nonce, challenge, until });
            }
            Err(errno) => self.dial_failed(pid, Err(errno), now, told),
        }
    }

    /// The dialled process answers: if it knows the secret, this process introduces itself.
    fn challenged(&mut self, pid: Pid, now: Instant, told: &mut CarrierEvents) {
        let secret = self.options.secret.clone();
        let link = &mut self.links[pid.index()];
        let LinkState::Opening { socket, nonce, challenge, .. } = &mut link.stage else { return };
        let nonces = match challenge.read(socket) {
            Ok(None) => return,
            Ok(Some(bytes)) => Nonces::of_challenge(*nonce, bytes, &secret),
            Err(errno) => return self.dial_failed(pid, Err(errno), now, told),
        };
        let nonces = match nonces {
            Ok(Some(nonces)) => nonces,
            Ok(None) => return self.dial_failed(pid, Ok(HelloError::Unproved), now, told),
            Err(why) => return self.dial_failed(pid, Ok(HelloError::Bytes(why)), now, told),
        };
        let away = LinkState::Away { dial_at: None };
        let LinkState::Opening { socket, until, .. } = std::mem::replace(&mut link.stage, away)
        else {
            return;
        };
        let dismissed = link.dismissed.take();
        let hello = match dismissed {
            Some((why, refused)) => self.refusal((pid, refused), why),
            None => Hello { to: pid, ..self.hello },
        };
        let said = say(&socket, &nonces.hello(&secret, Purpose::Ask, &hello));
        match said {
            // Best effort: it receives the refusal again as long as it welcomes us.
            _ if dismissed.is_some() => self.dial_later(pid, now),
            Ok(()) => {
                let hello = PartialRead::new();
                self.enter(pid, LinkState::Greeting { socket, nonces, hello, until });
            }
            Err(errno) => self.dial_failed(pid, Err(errno), now, told),
        }
    }

    /// The answer to this process's hello arrives.
    fn greeted(&mut self, pid: Pid, now: Instant, told: &mut CarrierEvents) {
        let secret = self.options.secret.clone();
        let link = &mut self.links[pid.index()];
        let LinkState::Greeting { socket, nonces, hello, .. } = &mut link.stage else { return };
        let answer = match hello.read(socket) {
            Ok(None) => return,
            Ok(Some(bytes)) => nonces.read_hello(&secret, Purpose::Answer, bytes),
            Err(errno) => return self.dial_failed(pid, Err(errno), now, told),
        };
        let answer =
            answer.map_err(HelloError::Bytes).and_then(|said| said.ok_or(HelloError::Unproved));
        match answer.and_then(|hello| self.welcomed(pid, &hello)) {
            Ok(claim) => {
                let away = LinkState::Away { dial_at: None };
                let stage = std::mem::replace(&mut self.links[pid.index()].stage, away);
                let LinkState::Greeting { socket, .. } = stage else { return };
                self.establish(pid, socket, &claim, told);
            }
            Err(why) => self.dial_failed(pid, Ok(why), now, told),
        }
    }

    /// The claim of the peer that welcomed this process, if it is the right peer.
    fn welcomed(&self, pid: Pid, hello: &Hello) -> Result<PeerClaim, HelloError> {
        let life = hello.incarnation;
        if let HandshakeMessage::Refuse(why) = hello.said {
            return Err(HelloError::By(why, life));
        }
        if hello.said != HandshakeMessage::Welcome || (hello.from, hello.to) != (pid, self.me) {
            return Err(HelloError::By(ConnectionRefusal::Address, life));
        }
        self.judge(hello).map_err(|why| HelloError::By(why, life))?;
        let claim = hello.claim();
        let admitted = self.known(pid).admits(&claim);
        admitted.map_err(|why| HelloError::Dismissed(why, claim))?;
        Ok(claim)
    }

    /// The checks that both ends make of each other.
    fn judge(&self, hello: &Hello) -> Result<(), ConnectionRefusal> {
        if hello.cluster != self.hello.cluster {
            return Err(ConnectionRefusal::Cluster);
        }
        if let Some(at) = self.hello.decides.differs(&hello.decides) {
            return Err(ConnectionRefusal::Decides(at));
        }
        if hello.processes != self.hello.processes {
            return Err(ConnectionRefusal::Shape);
        }
        Ok(())
    }

    /// The refusal of a peer: which of its incarnations is known, too.
    fn refusal(&self, (pid, refused): (Pid, PeerClaim), why: ConnectionRefusal) -> Hello {
        let known = self.links.get(pid.index()).and_then(|link| link.known.life);
        let incarnation = match why {
            ConnectionRefusal::Old | ConnectionRefusal::Replaced => {
                known.unwrap_or(self.hello.incarnation)
            }
            _ => self.hello.incarnation,
        };
        let PeerClaim { disk, start, .. } = refused;
        Hello {
            said: HandshakeMessage::Refuse(why),
            to: pid,
            incarnation,
            disk,
            start,
            ..self.hello
        }
    }

    /// An attempt came to nothing: the next one after a pause.
    fn dial_failed(
        &mut self,
        pid: Pid,
        why: Result<HelloError, Errno>,
        now: Instant,
        told: &mut CarrierEvents,
    ) {
        let link = &mut self.links[pid.index()];
        link.failures = link.failures.saturating_add(1);
        let address = link.address;
        link.refused = match &why {
            Ok(HelloError::By(..)) => Some(u32::MAX),
            Ok(HelloError::Dismissed(_, refused)) => Some(refused.life),
            // Another process may be there now.
            _ => None,
        };
        let remark = match why {
            Ok(HelloError::By(why, life)) => NetDiagnostic::RefusedBy { pid, address, why, life },
            Ok(HelloError::Dismissed(why, refused)) => {
                link.dismissed = Some((why, refused));
                NetDiagnostic::Refused { pid: Some(pid), address, why }
            }
            Ok(HelloError::Bytes(NotHello::Version(_))) => {
                NetDiagnostic::RefusedBy { pid, address, why: ConnectionRefusal::Version, life: 0 }
            }
            Ok(HelloError::Bytes(NotHello::Stranger)) => {
                NetDiagnostic::Stranger { address, began: false }
            }
            Ok(HelloError::Unproved) => {
                NetDiagnostic::Refused { pid: Some(pid), address, why: ConnectionRefusal::Secret }
            }
            Err(errno) => NetDiagnostic::Unreachable { pid, address, errno },
        };
        match remark {
            NetDiagnostic::RefusedBy { .. } | NetDiagnostic::Refused { .. } => {
                told.counts.refused += 1;
                // It will not change its mind soon: the longest pause.
                link.failures = link.failures.max(REFUSED_FAILURES);
            }
            NetDiagnostic::Stranger { .. } => told.counts.strangers += 1,
            _ => {}
        }
        // A refused peer must be reported, over any earlier diagnostic.
        let is_refusal =
            matches!(remark, NetDiagnostic::RefusedBy { .. } | NetDiagnostic::Refused { .. });
        if is_refusal || !std::mem::replace(&mut link.remarked, true) {
            told.remark(remark);
        }
        self.dial_later(pid, now);
    }

    fn dial_later(&mut self, pid: Pid, now: Instant) {
        let NetOptions { redial_min, redial_max, .. } = self.options;
        let failures = self.links[pid.index()].failures;
        let pause = link::pause(failures, redial_min, redial_max, &mut self.rng);
        self.enter(pid, LinkState::Away { dial_at: Some(now + pause) });
    }

    /// Both ends know each other: a new stream begins.
    fn establish(
        &mut self,
        pid: Pid,
        socket: OwnedFd,
        claim: &PeerClaim,
        told: &mut CarrierEvents,
    ) {
        if self.links[pid.index()].up {
            self.lose(pid, LinkFailure::Replaced, told);
        }
        self.enter(pid, LinkState::Open { socket });
        let link = &mut self.links[pid.index()];
        link.reader.clear();
        link.incarnation = Some(claim.life);
        link.known.learn(claim);
        (link.up, link.muted, link.blocked) = (true, false, false);
        (link.failures, link.remarked, link.refused) = (0, false, None);
        told.counts.connects += 1;
        told.news.push_back(LinkEvent::Up(pid));
        told.remark(NetDiagnostic::Up { pid, incarnation: claim.life });
        // Messages from before the first connection.
        self.write_out(pid, told);
    }

    /// The connection is gone, and what was on the way.
    fn lose(&mut self, pid: Pid, why: LinkFailure, told: &mut CarrierEvents) {
        let now = Instant::now();
        let NetOptions { redial_min, redial_max, .. } = self.options;
        let link = &mut self.links[pid.index()];
        let dials = link::dials(self.me, pid);
        let stage = match &link.stage {
            // Before the first connection only the queue is given up, and dialling continues.
            LinkState::Open { .. } if dials => {
                let pause = link::pause(0, redial_min, redial_max, &mut self.rng);
                Some(LinkState::Away { dial_at: Some(now + pause) })
            }
            LinkState::Open { .. } => Some(LinkState::Away { dial_at: None }),
            _ => None,
        };
        link.queue.clear();
        link.reader.clear();
        told.counts.breaks += u64::from(link.up);
        (link.up, link.muted, link.blocked) = (false, true, false);
        told.news.push_back(LinkEvent::Down(pid));
        told.remark(NetDiagnostic::Down { pid, why });
        if let Some(stage) = stage {
            self.enter(pid, stage);
        }
    }

    fn enter(&mut self, pid: Pid, stage: LinkState) {
        let link = &mut self.links[pid.index()];
        link.stage = stage;
        if let Some(due) = link.due() {
            self.next_due = self.next_due.min(due);
        }
    }
}

/// Why an answer to a hello was none that lets this process in.
enum HelloError {
    /// The peer refuses this process, and knows of this life of it.
    By(ConnectionRefusal, u32),
    /// This process refuses the peer, which claims that.
    Dismissed(ConnectionRefusal, PeerClaim),
    /// The answering process does not know the secret.
    Unproved,
    Bytes(NotHello),
}

/// Sends a part of the handshake: on a connection this young there is room for it.
fn say(socket: &OwnedFd, bytes: &[u8]) -> Result<(), Errno> {
    let sent = rustix::net::send(socket, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?;
    if sent == bytes.len() { Ok(()) } else { Err(Errno::CONNABORTED) }
}

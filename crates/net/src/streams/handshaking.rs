//! Connections that came in and whose other end has not said yet who it is.
//!
//! They have a bounded number of places, apart from those of peers that were let in. Where all are taken, one more
//! takes the place of the oldest one, of the host that has most: strangers who dial without end close their own
//! connections. Those of which a whole opening came are closed last.

use super::link::{self, PartialRead};
use super::{Streams, say};
use crate::error::NetDiagnostic;
use crate::events::CarrierEvents;
use crate::host_network::{crowded_host, host_network};
use crate::peer_identity::PeerClaim;
use crate::poller::{EventFlags, PollToken};
use crate::secret::{Nonce, Purpose, nonce};
use crate::settings_digest::SettingsDigest;
use crate::sockets;
use crate::wire::{
    ConnectionRefusal, HandshakeMessage, Hello, Nonces, NotHello, OPENING_BYTES, PROVED_BYTES,
    read_opening,
};
use amcast_core::Pid;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

/// Handshakes besides one for each process: enough for strangers, and for peers that dial again.
const GUESTS_EXTRA: usize = 32;

/// How many connections are taken in one round.
const ACCEPTS_MAX: usize = 16;

/// How long no connection is accepted when the system has no descriptors or memory left.
const REST: Duration = Duration::from_millis(200);

/// A connection that came in.
#[derive(Debug)]
struct InboundHandshake {
    socket: OwnedFd,
    address: SocketAddr,
    says: HandshakeReply,
    until: Instant,
}

/// The next message to the other end of a handshake.
#[derive(Debug)]
enum HandshakeReply {
    Opening(PartialRead<OPENING_BYTES>),
    /// The hello, with a proof over these nonces.
    Hello(Nonces, PartialRead<PROVED_BYTES>),
}

/// A message from the other end of a handshake.
enum HandshakeInput {
    Opening(Nonce),
    /// Its hello, if it knows the secret.
    Hello(Nonces, Option<Box<Hello>>),
}

/// All inbound handshakes: a bounded number, so that strangers cannot use up sockets.
#[derive(Debug)]
pub(super) struct InboundHandshakes {
    places: Vec<Option<InboundHandshake>>,
    /// No connection is accepted until then, since the system is short of something.
    rest_until: Option<Instant>,
}

impl InboundHandshake {
    /// Whether the other end has not sent a whole opening.
    const fn is_silent(&self) -> bool {
        matches!(self.says, HandshakeReply::Opening(_))
    }

    /// Whether the other end sent a whole opening, and was sent the proof of the secret.
    const fn has_begun(&self) -> bool {
        !self.is_silent()
    }

    fn host(&self) -> IpAddr {
        host_network(self.address.ip())
    }
}

impl InboundHandshakes {
    pub(super) fn new(processes: usize) -> Self {
        let places = (0..processes + GUESTS_EXTRA).map(|_| None).collect();
        Self { places, rest_until: None }
    }

    /// The place of a connection from this address: a free one, or the one that is to be given up for it.
    fn place_for(&self, address: SocketAddr) -> usize {
        if let Some(free) = self.places.iter().position(Option::is_none) {
            return free;
        }
        let all = || (0..).zip(&self.places).filter_map(|(i, place)| Some((i, place.as_ref()?)));
        let newcomer = host_network(address.ip());
        let crowded = crowded_host(all().map(|(_, handshake)| handshake.host()), newcomer);
        all()
            .filter(|(_, handshake)| crowded.is_none_or(|host| handshake.host() == host))
            .min_by_key(|(_, handshake)| (!handshake.is_silent(), handshake.until))
            .map_or(0, |(index, _)| index)
    }
}

fn stranger(address: SocketAddr, began: bool, told: &mut CarrierEvents) {
    told.counts.strangers += 1;
    told.remark(NetDiagnostic::Stranger { address, began });
}

impl Streams {
    /// Sends those away that have had their time; says when something is due again.
    pub(super) fn wake_guests(
        &mut self,
        now: Instant,
        told: &mut CarrierEvents,
    ) -> Option<Instant> {
        for place in &mut self.handshakes.places {
            if let Some(handshake) = place.take_if(|handshake| handshake.until <= now) {
                stranger(handshake.address, handshake.has_begun(), told);
            }
        }
        if self.handshakes.rest_until.take_if(|until| *until <= now).is_some()
            && let Err(errno) =
                self.watch.change(&self.listener, PollToken::Listener, EventFlags::IN)
        {
            self.handshakes.rest_until = Some(now + REST);
            told.remark(NetDiagnostic::Short { errno });
        }
        let handshakes = self.handshakes.places.iter().flatten().map(|handshake| handshake.until);
        handshakes.chain(self.handshakes.rest_until).min()
    }

    /// Takes in those who dialled.
    pub(crate) fn accept(&mut self, now: Instant, told: &mut CarrierEvents) {
        for _ in 0..ACCEPTS_MAX {
            let (socket, address) = match sockets::accept(&self.listener) {
                Ok(taken) => taken,
                Err(Errno::AGAIN) => return,
                // That one went away again; the others still wait.
                Err(Errno::CONNABORTED | Errno::INTR) => continue,
                // Out of descriptors or memory: those who wait are taken when there are some again.
                Err(errno) => return self.rest(now, errno, told),
            };
            let until = now + Duration::from_nanos(self.options.handshake_max.0);
            let index = self.handshakes.place_for(address);
            if let Some(given_up) = self.handshakes.places[index].take() {
                // Closes it: who belongs here dials again.
                stranger(given_up.address, false, told);
            }
            let token = PollToken::Handshake(index as u32);
            if let Err(errno) = self.watch.add(&socket, token, EventFlags::IN) {
                return self.rest(now, errno, told);
            }
            self.handshakes.places[index] = Some(InboundHandshake {
                socket,
                address,
                says: HandshakeReply::Opening(PartialRead::new()),
                until,
            });
            self.next_due = self.next_due.min(until);
        }
    }

    /// Takes nobody in for a while.
    fn rest(&mut self, now: Instant, errno: Errno, told: &mut CarrierEvents) {
        told.remark(NetDiagnostic::Short { errno });
        if self.watch.change(&self.listener, PollToken::Listener, EventFlags::empty()).is_ok() {
            let until = now + REST;
            self.handshakes.rest_until = Some(until);
            self.next_due = self.next_due.min(until);
        }
    }

    /// A handshaking connection sent something.
    pub(crate) fn handshake(&mut self, index: u32, told: &mut CarrierEvents) {
        let Some(place) = self.handshakes.places.get_mut(index as usize) else { return };
        let Some(handshake) = place else { return };
        let InboundHandshake { socket, says, address, .. } = handshake;
        let address = *address;
        let began = matches!(says, HandshakeReply::Hello(..));
        let said = match says {
            HandshakeReply::Opening(partial) => match partial.read(socket) {
                Ok(None) => return,
                Ok(Some(bytes)) => read_opening(bytes).map(HandshakeInput::Opening),
                Err(_) => Err(NotHello::Stranger),
            },
            HandshakeReply::Hello(nonces, partial) => match partial.read(socket) {
                Ok(None) => return,
                Ok(Some(bytes)) => {
                    let nonces = *nonces;
                    let hello = nonces.read_hello(&self.options.secret, Purpose::Ask, bytes);
                    hello.map(|hello| HandshakeInput::Hello(nonces, hello.map(Box::new)))
                }
                Err(_) => Err(NotHello::Stranger),
            },
        };
        match said {
            Ok(HandshakeInput::Opening(dialler)) => self.challenge(index, dialler, told),
            Ok(HandshakeInput::Hello(nonces, hello)) => {
                let Some(InboundHandshake { socket, .. }) = place.take() else { return };
                match hello {
                    Some(hello) => self.introduced((socket, address), nonces, &hello, told),
                    None => {
                        told.counts.strangers += 1;
                        told.remark(NetDiagnostic::Refused {
                            address,
                            pid: None,
                            why: ConnectionRefusal::Secret,
                        });
                    }
                }
            }
            Err(NotHello::Stranger) => {
                *place = None;
                stranger(address, began, told);
            }
            Err(NotHello::Version(_)) => {
                let Some(InboundHandshake { socket, .. }) = place.take() else { return };
                self.refuse_version((&socket, address), told);
            }
        }
    }

    /// Proves to the other end that this process knows the secret, before it sends anything else: the other end is to do the same.
    fn challenge(&mut self, index: u32, dialler: Nonce, told: &mut CarrierEvents) {
        let Some(place) = self.handshakes.places.get_mut(index as usize) else { return };
        let Some(handshake) = place else { return };
        let challenged = nonce().map_err(|_| Errno::IO).and_then(|dialled| {
            let nonces = Nonces { dialler, dialled };
            say(&handshake.socket, &nonces.challenge(&self.options.secret)).map(|()| nonces)
        });
        match challenged {
            Ok(nonces) => handshake.says = HandshakeReply::Hello(nonces, PartialRead::new()),
            Err(_) => {
                let address = handshake.address;
                *place = None;
                stranger(address, false, told);
            }
        }
    }

    /// The other end knows the secret and sent its hello.
    fn introduced(
        &mut self,
        (socket, address): (OwnedFd, SocketAddr),
        nonces: Nonces,
        hello: &Hello,
        told: &mut CarrierEvents,
    ) {
        if let HandshakeMessage::Refuse(why) = hello.said
            && self.judge(hello).is_ok()
            && self.may_dial(hello)
        {
            // It may be meant for another one that was at this address before.
            if self.is_meant(hello, why) {
                let (pid, life) = (hello.from, hello.incarnation);
                told.counts.refused += 1;
                told.remark(NetDiagnostic::RefusedBy { pid, address, why, life });
            }
            return;
        }
        if let Err(why) = self.admit(hello) {
            return self.refuse(&socket, address, nonces, (hello.from, hello.claim()), why, told);
        }
        let pid = hello.from;
        sockets::tune(&socket, &self.options, told);
        let answer = Hello { said: HandshakeMessage::Welcome, to: pid, ..self.hello };
        let token = PollToken::Link(pid.0);
        let answer = nonces.hello(&self.options.secret, Purpose::Answer, &answer);
        let let_in =
            say(&socket, &answer).and_then(|()| self.watch.change(&socket, token, EventFlags::IN));
        match let_in {
            Ok(()) => self.establish(pid, socket, &hello.claim(), told),
            // It went away while it was greeted, and dials again if it lives.
            Err(errno) => told.remark(NetDiagnostic::Unreachable { pid, address, errno }),
        }
    }

    /// Whether a connection is let in.
    fn admit(&self, hello: &Hello) -> Result<(), ConnectionRefusal> {
        self.judge(hello)?;
        if hello.said != HandshakeMessage::Ask || !self.may_dial(hello) {
            return Err(ConnectionRefusal::Address);
        }
        self.known(hello.from).admits(&hello.claim())
    }

    /// Whether a refusal is of this start of the process, and not of another one that was at this
    /// address before. A start without a number is known by its life.
    fn is_meant(&self, refusal: &Hello, why: ConnectionRefusal) -> bool {
        let Hello { disk, start, incarnation, .. } = self.hello;
        (refusal.disk, refusal.start) == (disk, start)
            && (start != 0
                || why == ConnectionRefusal::Replaced
                || refusal.incarnation >= incarnation)
    }

    /// Whether it is one who dials this process, and means it.
    fn may_dial(&self, hello: &Hello) -> bool {
        hello.to == self.me
            && hello.from.index() < self.links.len()
            && link::dials(hello.from, self.me)
    }

    fn refuse(
        &self,
        socket: &OwnedFd,
        address: SocketAddr,
        nonces: Nonces,
        (pid, claim): (Pid, PeerClaim),
        why: ConnectionRefusal,
        told: &mut CarrierEvents,
    ) {
        told.counts.refused += 1;
        told.remark(NetDiagnostic::Refused { address, pid: Some(pid), why });
        let refusal = self.refusal((pid, claim), why);
        // Best effort: who does not hear it finds the connection closed.
        let _ = say(socket, &nonces.hello(&self.options.secret, Purpose::Answer, &refusal));
    }

    /// A peer of another version cannot prove anything, and receives nothing but the refusal.
    fn refuse_version(&self, (socket, address): (&OwnedFd, SocketAddr), told: &mut CarrierEvents) {
        let why = ConnectionRefusal::Version;
        told.counts.refused += 1;
        told.remark(NetDiagnostic::Refused { address, pid: None, why });
        let (nobody, none) = (Pid(0), 0);
        let refusal = Hello {
            said: HandshakeMessage::Refuse(why),
            cluster: 0,
            from: nobody,
            to: nobody,
            incarnation: none,
            processes: none,
            disk: 0,
            start: 0,
            anew: false,
            decides: SettingsDigest::default(),
        };
        let _ = say(socket, &refusal.encode());
    }
}

//! Connections that came in and whose other end has not said yet who it is.

use super::link::{self, Partial};
use super::{Streams, say};
use crate::decides::Decides;
use crate::error::Remark;
use crate::known::Claim;
use crate::poller::{EventFlags, Token};
use crate::secret::{Nonce, Purpose, nonce};
use crate::sockets;
use crate::told::Told;
use crate::wire::{
    Hello, Nonces, NotHello, OPENING_BYTES, PROVED_BYTES, Refusal, Said, read_opening,
};
use amcast_core::Pid;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Guests besides one for each process: enough for strangers, and for peers that dial again.
const GUESTS_EXTRA: usize = 32;

/// How many connections are taken in one round.
const ACCEPTS_MAX: usize = 16;

/// How long nobody is taken in when the system lacks descriptors or memory.
const REST: Duration = Duration::from_millis(200);

/// A connection that came in.
#[derive(Debug)]
struct Guest {
    socket: OwnedFd,
    address: SocketAddr,
    says: Says,
    until: Instant,
}

/// What a guest is to say next.
#[derive(Debug)]
enum Says {
    Opening(Partial<OPENING_BYTES>),
    /// Who it is, with a proof over these nonces.
    Hello(Nonces, Partial<PROVED_BYTES>),
}

/// What a guest has said.
enum Heard {
    Opening(Nonce),
    /// Who it is, if it knows the secret.
    Hello(Nonces, Option<Box<Hello>>),
}

/// All guests: a bounded number, so that strangers cannot use up sockets.
#[derive(Debug)]
pub(super) struct Guests {
    places: Vec<Option<Guest>>,
    /// Nobody is taken in until then, since the system lacks something.
    rest_until: Option<Instant>,
}

impl Guests {
    pub(super) fn new(processes: usize) -> Self {
        let places = (0..processes + GUESTS_EXTRA).map(|_| None).collect();
        Self { places, rest_until: None }
    }
}

fn stranger(address: SocketAddr, told: &mut Told) {
    told.counts.strangers += 1;
    told.remark(Remark::Stranger { address });
}

impl Streams {
    /// Sends those away that have had their time; says when something is due again.
    pub(super) fn wake_guests(&mut self, now: Instant, told: &mut Told) -> Option<Instant> {
        for place in &mut self.guests.places {
            if let Some(guest) = place.take_if(|guest| guest.until <= now) {
                stranger(guest.address, told);
            }
        }
        if self.guests.rest_until.take_if(|until| *until <= now).is_some()
            && let Err(errno) = self.watch.change(&self.listener, Token::Listener, EventFlags::IN)
        {
            self.guests.rest_until = Some(now + REST);
            told.remark(Remark::Short { errno });
        }
        let guests = self.guests.places.iter().flatten().map(|guest| guest.until);
        guests.chain(self.guests.rest_until).min()
    }

    /// Takes in those who dialled.
    pub(crate) fn accept(&mut self, now: Instant, told: &mut Told) {
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
            let Some(index) = self.guests.places.iter().position(Option::is_none) else {
                // Closes it: who belongs here dials again.
                stranger(address, told);
                continue;
            };
            let token = Token::Guest(index as u32);
            if let Err(errno) = self.watch.add(&socket, token, EventFlags::IN) {
                return self.rest(now, errno, told);
            }
            self.guests.places[index] =
                Some(Guest { socket, address, says: Says::Opening(Partial::new()), until });
            self.next_due = self.next_due.min(until);
        }
    }

    /// Takes nobody in for a while.
    fn rest(&mut self, now: Instant, errno: Errno, told: &mut Told) {
        told.remark(Remark::Short { errno });
        if self.watch.change(&self.listener, Token::Listener, EventFlags::empty()).is_ok() {
            let until = now + REST;
            self.guests.rest_until = Some(until);
            self.next_due = self.next_due.min(until);
        }
    }

    /// A guest says something.
    pub(crate) fn guest(&mut self, index: u32, told: &mut Told) {
        let Some(place) = self.guests.places.get_mut(index as usize) else { return };
        let Some(guest) = place else { return };
        let Guest { socket, says, address, .. } = guest;
        let address = *address;
        let said = match says {
            Says::Opening(partial) => match partial.read(socket) {
                Ok(None) => return,
                Ok(Some(bytes)) => read_opening(bytes).map(Heard::Opening),
                Err(_) => Err(NotHello::Stranger),
            },
            Says::Hello(nonces, partial) => match partial.read(socket) {
                Ok(None) => return,
                Ok(Some(bytes)) => {
                    let nonces = *nonces;
                    let hello = nonces.read_hello(&self.options.secret, Purpose::Ask, bytes);
                    hello.map(|hello| Heard::Hello(nonces, hello.map(Box::new)))
                }
                Err(_) => Err(NotHello::Stranger),
            },
        };
        match said {
            Ok(Heard::Opening(dialler)) => self.challenge(index, dialler, told),
            Ok(Heard::Hello(nonces, hello)) => {
                let Some(Guest { socket, .. }) = place.take() else { return };
                match hello {
                    Some(hello) => self.introduced((socket, address), nonces, &hello, told),
                    None => {
                        told.counts.strangers += 1;
                        told.remark(Remark::Refused { address, pid: None, why: Refusal::Secret });
                    }
                }
            }
            Err(NotHello::Stranger) => {
                *place = None;
                stranger(address, told);
            }
            Err(NotHello::Version(_)) => {
                let Some(Guest { socket, .. }) = place.take() else { return };
                self.refuse_version((&socket, address), told);
            }
        }
    }

    /// Proves to a guest that this process knows the secret, before it is told anything: it is to do the same.
    fn challenge(&mut self, index: u32, dialler: Nonce, told: &mut Told) {
        let Some(place) = self.guests.places.get_mut(index as usize) else { return };
        let Some(guest) = place else { return };
        let challenged = nonce().map_err(|_| Errno::IO).and_then(|dialled| {
            let nonces = Nonces { dialler, dialled };
            say(&guest.socket, &nonces.challenge(&self.options.secret)).map(|()| nonces)
        });
        match challenged {
            Ok(nonces) => guest.says = Says::Hello(nonces, Partial::new()),
            Err(_) => {
                let address = guest.address;
                *place = None;
                stranger(address, told);
            }
        }
    }

    /// A guest that knows the secret says who it is.
    fn introduced(
        &mut self,
        (socket, address): (OwnedFd, SocketAddr),
        nonces: Nonces,
        hello: &Hello,
        told: &mut Told,
    ) {
        if let Said::Refuse(why) = hello.said
            && self.judge(hello).is_ok()
            && self.may_dial(hello)
        {
            // It may be meant for another one that was at this address before.
            if self.is_meant(hello, why) {
                let (pid, life) = (hello.from, hello.incarnation);
                told.counts.refused += 1;
                told.remark(Remark::RefusedBy { pid, address, why, life });
            }
            return;
        }
        if let Err(why) = self.admit(hello) {
            return self.refuse((&socket, address, nonces), (hello.from, hello.claim()), why, told);
        }
        let pid = hello.from;
        sockets::tune(&socket, &self.options, told);
        let answer = Hello { said: Said::Welcome, to: pid, ..self.hello };
        let token = Token::Link(pid.0);
        let answer = nonces.hello(&self.options.secret, Purpose::Answer, &answer);
        let let_in =
            say(&socket, &answer).and_then(|()| self.watch.change(&socket, token, EventFlags::IN));
        match let_in {
            Ok(()) => self.establish(pid, socket, &hello.claim(), told),
            // It went away while it was greeted, and dials again if it lives.
            Err(errno) => told.remark(Remark::Unreachable { pid, address, errno }),
        }
    }

    /// Whether a guest is let in.
    fn admit(&self, hello: &Hello) -> Result<(), Refusal> {
        self.judge(hello)?;
        if hello.said != Said::Ask || !self.may_dial(hello) {
            return Err(Refusal::Address);
        }
        self.known(hello.from).admits(&hello.claim())
    }

    /// Whether a refusal is of this start of the process, and not of another one that was at this
    /// address before. A start without a number is known by its life.
    fn is_meant(&self, refusal: &Hello, why: Refusal) -> bool {
        let Hello { disk, start, incarnation, .. } = self.hello;
        (refusal.disk, refusal.start) == (disk, start)
            && (start != 0 || why == Refusal::Replaced || refusal.incarnation >= incarnation)
    }

    /// Whether it is one who dials this process, and means it.
    fn may_dial(&self, hello: &Hello) -> bool {
        hello.to == self.me
            && hello.from.index() < self.links.len()
            && link::dials(hello.from, self.me)
    }

    fn refuse(
        &self,
        (socket, address, nonces): (&OwnedFd, SocketAddr, Nonces),
        (pid, claim): (Pid, Claim),
        why: Refusal,
        told: &mut Told,
    ) {
        told.counts.refused += 1;
        told.remark(Remark::Refused { address, pid: Some(pid), why });
        let refusal = self.refusal((pid, claim), why);
        // Best effort: who does not hear it finds the connection closed.
        let _ = say(socket, &nonces.hello(&self.options.secret, Purpose::Answer, &refusal));
    }

    /// Whoever has another version cannot prove anything, and is told no more than that.
    fn refuse_version(&self, (socket, address): (&OwnedFd, SocketAddr), told: &mut Told) {
        let why = Refusal::Version;
        told.counts.refused += 1;
        told.remark(Remark::Refused { address, pid: None, why });
        let (nobody, none) = (Pid(0), 0);
        let refusal = Hello {
            said: Said::Refuse(why),
            cluster: 0,
            from: nobody,
            to: nobody,
            incarnation: none,
            processes: none,
            disk: 0,
            start: 0,
            anew: false,
            decides: Decides::default(),
        };
        let _ = say(socket, &refusal.encode());
    }
}

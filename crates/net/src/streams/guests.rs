//! Connections that came in and whose other end has not said yet who it is.

use super::link::{self, Partial};
use super::{Streams, say};
use crate::error::Remark;
use crate::known::Claim;
use crate::poller::{EventFlags, Token};
use crate::sockets;
use crate::told::Told;
use crate::wire::{Hello, NotHello, Refusal, Said};
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
    hello: Partial,
    until: Instant,
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
                Some(Guest { socket, address, hello: Partial::new(), until });
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
        let bytes = match guest.hello.read(&guest.socket) {
            Ok(None) => return,
            Ok(Some(bytes)) => *bytes,
            Err(_) => {
                let address = guest.address;
                *place = None;
                return stranger(address, told);
            }
        };
        let Some(Guest { socket, address, .. }) = place.take() else { return };
        let hello = match Hello::decode(&bytes) {
            Ok(hello) => hello,
            Err(NotHello::Stranger) => return stranger(address, told),
            Err(NotHello::Version(_)) => {
                return self.refuse((&socket, address), None, Refusal::Version, told);
            }
        };
        if let Said::Refuse(why) = hello.said
            && self.judge(&hello).is_ok()
            && self.may_dial(&hello)
        {
            // It may be meant for another one that was at this address before.
            if self.is_meant(&hello, why) {
                let (pid, life) = (hello.from, hello.incarnation);
                told.counts.refused += 1;
                told.remark(Remark::RefusedBy { pid, address, why, life });
            }
            return;
        }
        if let Err(why) = self.admit(&hello) {
            return self.refuse((&socket, address), Some((hello.from, hello.claim())), why, told);
        }
        let pid = hello.from;
        sockets::tune(&socket, &self.options, told);
        let answer = Hello { said: Said::Welcome, to: pid, ..self.hello };
        let token = Token::Link(pid.0);
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
        (socket, address): (&OwnedFd, SocketAddr),
        who: Option<(Pid, Claim)>,
        why: Refusal,
        told: &mut Told,
    ) {
        told.counts.refused += 1;
        told.remark(Remark::Refused { address, pid: who.map(|(pid, _)| pid), why });
        // Best effort: who does not hear it finds the connection closed.
        let _ = say(socket, &self.refusal(who.unwrap_or((self.me, Claim::default())), why));
    }
}

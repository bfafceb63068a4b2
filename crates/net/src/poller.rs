//! Readiness of sockets: sleeping until one is ready, and being woken by other threads.
//!
//! ```text
//! sleeper                                      ringer
//!   looks at everything it serves                puts something where the sleeper looks
//!   S1  AWAKE -> ASLEEP; RUNG: does not sleep    R1  swap word := RUNG
//!   S2  sleeps until the event is there          R2  if it was ASLEEP: writes the event
//!   S3  word := AWAKE; the next look takes the event
//! ```
//!
//! **No ring is lost.** S1 and R1 change one word, so one of them comes first. If R1, then S1 finds
//! RUNG and the sleeper looks again; what the ringer put there is seen, since S1 acquires what R1
//! released. If S1, then R1 finds ASLEEP and R2 ends the sleep, which the kernel remembers even if it
//! has not begun. An event written late, after the sleeper awoke for another reason, costs one look.

use crate::error::NetError;
use amcast_core::Span;
use core::fmt;
use core::mem::MaybeUninit;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

pub(crate) use rustix::event::epoll::EventFlags;

/// How many ready sockets a look takes in; the others wait for the next.
const EVENTS_MAX: usize = 256;

const AWAKE: u8 = 0;
const ASLEEP: u8 = 1;
const RUNG: u8 = 2;

/// The owner of an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PollToken {
    Waker,
    Listener,
    /// A connection whose other end has not said who it is.
    Handshake(u32),
    /// The connection to a process.
    Link(u32),
    /// A socket on which datagrams arrive.
    Datagrams(u32),
    /// Descriptors of the driver that the carrier watches: the driver looks at them by itself.
    Other,
}

impl PollToken {
    fn data(self) -> epoll::EventData {
        let (kind, index) = match self {
            Self::Waker => (0_u64, 0),
            Self::Listener => (1, 0),
            Self::Handshake(i) => (2, i),
            Self::Link(i) => (3, i),
            Self::Datagrams(i) => (4, i),
            Self::Other => (5, 0),
        };
        epoll::EventData::new_u64(kind << 32 | u64::from(index))
    }

    fn of(data: epoll::EventData) -> Self {
        let index = data.u64() as u32;
        match data.u64() >> 32 {
            0 => Self::Waker,
            1 => Self::Listener,
            2 => Self::Handshake(index),
            3 => Self::Link(index),
            4 => Self::Datagrams(index),
            _ => Self::Other,
        }
    }
}

/// Rings the loop of a carrier from other threads: it looks again at once. Cheap while the loop does
/// not sleep.
#[derive(Clone, Debug)]
pub struct Waker(Arc<WakerState>);

#[derive(Debug)]
struct WakerState {
    word: AtomicU8,
    event: OwnedFd,
}

impl Waker {
    /// Wakes the loop if it sleeps, and keeps it from sleeping once if it does not. Stores of the caller
    /// before the call are seen by the loop.
    pub fn ring(&self) {
        if self.0.word.swap(RUNG, Ordering::AcqRel) == ASLEEP {
            // It cannot fail but by being rung 2^64 times, and then it is awake.
            let _ = rustix::io::write(&self.0.event, &1_u64.to_ne_bytes());
        }
    }
}

/// The sockets of one carrier, watched together.
pub(crate) struct Poller {
    epoll: Arc<OwnedFd>,
    bell: Waker,
    /// Events that the last look found and that were not asked for yet.
    events: Vec<(PollToken, EventFlags)>,
}

impl fmt::Debug for Poller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Poller({} events)", self.events.len())
    }
}

/// Where sockets are registered.
#[derive(Clone, Debug)]
pub(crate) struct SocketRegistry(Arc<OwnedFd>);

impl SocketRegistry {
    pub(crate) fn add(
        &self,
        fd: impl AsFd,
        token: PollToken,
        flags: EventFlags,
    ) -> Result<(), Errno> {
        epoll::add(&*self.0, fd, token.data(), flags)
    }

    pub(crate) fn change(
        &self,
        fd: impl AsFd,
        token: PollToken,
        flags: EventFlags,
    ) -> Result<(), Errno> {
        epoll::modify(&*self.0, fd, token.data(), flags)
    }
}

impl Poller {
    pub(crate) fn new() -> Result<Self, NetError> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(NetError::doing("poll"))?;
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let event = rustix::event::eventfd(0, flags).map_err(NetError::doing("make a doorbell"))?;
        epoll::add(&epoll, &event, PollToken::Waker.data(), EventFlags::IN)
            .map_err(NetError::doing("poll a doorbell"))?;
        let bell = Waker(Arc::new(WakerState { word: AtomicU8::new(AWAKE), event }));
        Ok(Self { epoll: Arc::new(epoll), bell, events: Vec::with_capacity(EVENTS_MAX) })
    }

    pub(crate) fn watch(&self) -> SocketRegistry {
        SocketRegistry(Arc::clone(&self.epoll))
    }

    pub(crate) fn waker(&self) -> Waker {
        self.bell.clone()
    }

    /// Asks what is ready, without sleeping.
    pub(crate) fn look(&mut self) -> Result<(), Errno> {
        self.events.clear();
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut buffer = [const { MaybeUninit::uninit() }; EVENTS_MAX];
        match epoll::wait(&*self.epoll, &mut buffer[..], Some(&now)) {
            Ok((found, _)) => {
                let events = found.iter().map(|event| (PollToken::of(event.data), event.flags));
                self.events.extend(events);
                Ok(())
            }
            Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    /// One of what the last look found; any of them counts as a hint only.
    pub(crate) fn next(&mut self) -> Option<(PollToken, EventFlags)> {
        loop {
            match self.events.pop()? {
                // It has woken the loop, and is taken so that it does not do so again.
                (PollToken::Waker, _) => drop(rustix::io::read(&self.bell.0.event, &mut [0; 8])),
                event => return Some(event),
            }
        }
    }

    /// Sleeps until something is ready, the bell rings, or for `at_most`. Does not sleep at all if
    /// the bell rang since the last time. May return early.
    pub(crate) fn park(&self, at_most: Option<Span>) -> Result<(), Errno> {
        let announced = self.announce();
        let slept = if announced { sleep(&mut [self.sleeper()], at_most) } else { Ok(()) };
        self.retract();
        slept
    }

    /// S1: whether the bell was silent.
    fn announce(&self) -> bool {
        let word = &self.bell.0.word;
        word.compare_exchange(AWAKE, ASLEEP, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// S3.
    fn retract(&self) {
        self.bell.0.word.swap(AWAKE, Ordering::AcqRel);
    }

    fn sleeper(&self) -> PollFd<'_> {
        PollFd::new(&*self.epoll, PollFlags::IN)
    }
}

/// [`Poller::park`] for several at once, whose carriers share a thread.
pub(crate) fn park_all<'a>(
    pollers: impl Iterator<Item = &'a Poller> + Clone,
    at_most: Option<Span>,
) -> Result<(), Errno> {
    let count = pollers.clone().count();
    let announced = pollers.clone().take_while(|poller| poller.announce()).count();
    let slept = if announced == count {
        let mut fds: Vec<PollFd<'_>> = pollers.clone().map(Poller::sleeper).collect();
        sleep(&mut fds, at_most)
    } else {
        Ok(())
    };
    // The one that did not sleep has its ring taken; those behind it keep theirs for the next time.
    pollers.take(announced + 1).for_each(Poller::retract);
    slept
}

/// S2.
fn sleep(fds: &mut [PollFd<'_>], at_most: Option<Span>) -> Result<(), Errno> {
    let timeout = at_most.map(|Span(nanos)| Timespec {
        tv_sec: (nanos / 1_000_000_000) as i64,
        tv_nsec: (nanos % 1_000_000_000) as i64,
    });
    match rustix::event::poll(fds, timeout.as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(errno) => Err(errno),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_before_sleep_keeps_it_away_once() {
        let _limit = amcast_test_policy::time_limit();
        let poller = Poller::new().unwrap();
        poller.waker().ring();
        poller.park(None).unwrap();
        assert!(poller.announce(), "the ring is forgotten");
    }

    #[test]
    fn a_ring_from_another_thread_ends_sleep() {
        let _limit = amcast_test_policy::time_limit();
        let mut poller = Poller::new().unwrap();
        let waker = poller.waker();
        let rings = 100;
        let (asleep, told) = std::sync::mpsc::sync_channel(0);
        let ringer = std::thread::spawn(move || {
            for () in told {
                waker.ring();
            }
        });
        for _ in 0..rings {
            asleep.send(()).unwrap();
            poller.park(None).unwrap();
            poller.look().unwrap();
            assert_eq!(poller.next(), None, "only the bell was there");
        }
        drop(asleep);
        ringer.join().unwrap();
    }

    #[test]
    fn a_ring_of_one_wakes_a_loop_that_sleeps_on_several() {
        let _limit = amcast_test_policy::time_limit();
        let pollers = [Poller::new().unwrap(), Poller::new().unwrap()];
        pollers[1].waker().ring();
        park_all(pollers.iter(), None).unwrap();
        assert!(pollers.iter().all(Poller::announce), "nobody is left announced or rung");
    }
}

//! Slots for connections at a port that unauthenticated clients reach: so many, and none for an
//! idle connection.
//!
//! Where all slots are taken, one more connection closes another one: first of those whose clients have not shown who they
//! are, where they can ([`ConnectionSlot::show_known`]), and of these
//! 1. one of the host that has most, if that has more than an eighth of all slots; else
//! 2. an idle one, of the host that has most idle ones; else
//! 3. one of the host that has most.
//!
//! Where clients can show who they are, those that have not are all alike, since none of them is served: 1 and 3 hold,
//! and not 2, by which a flood that sends something would keep out clients that have only just connected.
//!
//! Of a host it is an idle one, if there is any, and the one that has been idle for longest. So a client that opens many
//! connections keeps no other client out, whether it uses them or sends nothing, or a byte at a time; nor do many hosts
//! that each have more of them than another one; and where all are served, hundreds of hosts with idle connections close
//! none in use of a host with fewer than an eighth of all slots, such as a proxy.

use amcast_kv::client::lock;
use amcast_net::host_network;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep};

/// A connection that came no further for so long is idle, in microseconds.
const IDLE_AFTER_US: u64 = 3_000_000;

/// The slots of a listener.
#[derive(Debug)]
pub struct ConnectionSlots {
    most: usize,
    clients: ShownClients,
    begun: Instant,
    all: Mutex<BTreeMap<u64, Arc<ConnectionSlot>>>,
    next: AtomicU64,
}

/// Whether clients of a port can show who they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ShownClients {
    /// By a password, without which none is served.
    ByPassword,
    /// They cannot: all are served.
    Never,
}

/// One connection's slot, as others see it.
#[derive(Debug)]
pub struct ConnectionSlot {
    number: u64,
    /// The host at its other end.
    host: IpAddr,
    /// When it began, in microseconds since the listener began.
    begun_us: u64,
    /// When it last came further, likewise; at first when it began.
    moved_us: AtomicU64,
    known: AtomicBool,
    closed: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl ConnectionSlot {
    /// The host at its other end.
    pub const fn host(&self) -> IpAddr {
        self.host
    }

    /// Its client has shown who it is.
    pub fn show_known(&self) {
        self.known.store(true, Ordering::Relaxed);
    }

    /// Whether its client has shown who it is.
    pub fn is_known(&self) -> bool {
        self.known.load(Ordering::Relaxed)
    }

    /// Whether it came further in the last seconds. One that only began did not.
    fn is_in_use(&self, now_us: u64) -> bool {
        let moved_us = self.moved_us.load(Ordering::Relaxed);
        moved_us > self.begun_us && now_us.saturating_sub(moved_us) < IDLE_AFTER_US
    }

    /// Has the connection end.
    pub fn end(&self) {
        self.closed.store(true, Ordering::Release);
        if let Some(waker) = lock(&self.waker).take() {
            waker.wake();
        }
    }

    /// Whether it is to end; if not, the task of `cx` is woken when it is.
    fn has_ended(&self, cx: &Context<'_>) -> bool {
        *lock(&self.waker) = Some(cx.waker().clone());
        self.closed.load(Ordering::Acquire)
    }
}

/// The connections of a host whose clients have not shown who they are.
#[derive(Clone, Copy, Default)]
struct UnknownSlots {
    all: usize,
    idle: usize,
}

impl ConnectionSlots {
    /// `most` slots, none of them taken.
    pub fn new(most: usize, clients: ShownClients) -> Arc<Self> {
        let (all, next) = (Mutex::default(), AtomicU64::new(0));
        Arc::new(Self { most, clients, begun: Instant::now(), all, next })
    }

    fn now_us(&self) -> u64 {
        self.begun.elapsed().as_micros() as u64
    }

    /// A slot for one more connection, if need be that of another one, which is closed.
    fn enter(&self, host: IpAddr) -> Arc<ConnectionSlot> {
        let now_us = self.now_us();
        let slot = Arc::new(ConnectionSlot {
            host,
            number: self.next.fetch_add(1, Ordering::Relaxed),
            begun_us: now_us,
            moved_us: AtomicU64::new(now_us),
            known: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            waker: Mutex::default(),
        });
        let mut all = lock(&self.all);
        let given_away = match all.len() < self.most {
            true => None,
            false => self.to_give_away(&all, now_us).and_then(|number| all.remove(&number)),
        };
        all.insert(slot.number, Arc::clone(&slot));
        drop(all);
        if let Some(given_away) = given_away {
            given_away.end();
        }
        slot
    }

    /// The slot that is given away, by the rules at the head of this file; if all clients have shown who they are, that of
    /// all which has been idle for longest.
    fn to_give_away(&self, all: &BTreeMap<u64, Arc<ConnectionSlot>>, now_us: u64) -> Option<u64> {
        let mut unknown = BTreeMap::<IpAddr, UnknownSlots>::new();
        for slot in all.values().filter(|slot| !slot.is_known()) {
            let of_host = unknown.entry(slot.host).or_default();
            of_host.all += 1;
            of_host.idle += usize::from(!slot.is_in_use(now_us));
        }
        let rank = |(number, slot): (&u64, &Arc<ConnectionSlot>)| {
            let moved = (slot.moved_us.load(Ordering::Relaxed), *number);
            if slot.is_known() {
                return (true, Reverse(0), false, Reverse(0), moved);
            }
            let is_in_use = self.clients == ShownClients::ByPassword || slot.is_in_use(now_us);
            let UnknownSlots { all, idle } = unknown.get(&slot.host).copied().unwrap_or_default();
            let beyond_share = if all > self.most / 8 { all } else { 0 };
            let alike = if is_in_use { all } else { idle };
            (false, Reverse(beyond_share), is_in_use, Reverse(alike), moved)
        };
        all.iter().map(rank).min().map(|(.., (_, number))| number)
    }

    fn leave(&self, slot: &ConnectionSlot) {
        lock(&self.all).remove(&slot.number);
    }
}

/// How long a connection may do nothing of use.
#[derive(Clone, Copy, Debug)]
pub enum IdleRule {
    /// One request after the other: each is whole, and its answer taken, within the first time, and the next one begins within
    /// the second.
    InTurn(Duration, Duration),
    /// Many requests at a time, which have bounds of their own: so many bytes come within that time at first.
    Together(usize, Duration),
}

/// A connection that has a slot.
#[derive(Debug)]
pub struct LimitedConnection {
    stream: TcpStream,
    slots: Arc<ConnectionSlots>,
    slot: Arc<ConnectionSlot>,
    manner: IdleRule,
    /// Bytes that came; with requests in turn, of the present one.
    came: usize,
    /// When it ends, unless something happens before.
    end: Option<Pin<Box<Sleep>>>,
}

impl LimitedConnection {
    /// Gives a connection a slot.
    pub fn new(stream: TcpStream, slots: &Arc<ConnectionSlots>, manner: IdleRule) -> Self {
        let (IdleRule::InTurn(first, _) | IdleRule::Together(_, first)) = manner;
        // One that is gone again has no address.
        let host = stream.peer_addr().map_or(Ipv4Addr::UNSPECIFIED.into(), |peer| peer.ip());
        let slot = slots.enter(host_network(host));
        let slots = Arc::clone(slots);
        Self { stream, slots, slot, manner, came: 0, end: Some(Box::pin(sleep(first))) }
    }

    /// Its slot.
    pub const fn slot(&self) -> &Arc<ConnectionSlot> {
        &self.slot
    }

    fn ends_at(&mut self, after: Duration) {
        match &mut self.end {
            Some(end) => end.as_mut().reset(Instant::now() + after),
            None => self.end = Some(Box::pin(sleep(after))),
        }
    }

    fn moved(&self) {
        self.slot.moved_us.store(self.slots.now_us(), Ordering::Relaxed);
    }

    fn has_read(&mut self, bytes: usize) {
        let is_first = self.came == 0 && bytes > 0;
        self.came += bytes;
        match self.manner {
            // A byte more of a request is nothing of use before all of it is there.
            IdleRule::InTurn(request, _) if is_first => self.ends_at(request),
            IdleRule::InTurn(..) => {}
            IdleRule::Together(greeting, _) if self.came >= greeting => {
                self.end = None;
                self.moved();
            }
            IdleRule::Together(..) => {}
        }
    }

    fn has_written(&mut self) {
        match self.manner {
            IdleRule::InTurn(_, idle) => {
                self.came = 0;
                self.ends_at(idle);
                self.moved();
            }
            IdleRule::Together(..) if self.end.is_none() => self.moved(),
            // The greeting of a server.
            IdleRule::Together(..) => {}
        }
    }

    /// Whether its time is over, or another one took its slot.
    fn is_over(&mut self, cx: &mut Context<'_>) -> bool {
        let late = self.end.as_mut().is_some_and(|end| end.as_mut().poll(cx).is_ready());
        self.slot.has_ended(cx) || late
    }
}

impl Drop for LimitedConnection {
    fn drop(&mut self) {
        self.slots.leave(&self.slot);
    }
}

impl AsyncRead for LimitedConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // No more bytes: the connection is closed in good order.
        if self.is_over(cx) {
            return Poll::Ready(Ok(()));
        }
        let before = to.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, to);
        if read.is_ready() {
            self.has_read(to.filled().len() - before);
        }
        read
    }
}

impl AsyncWrite for LimitedConnection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        from: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, from);
        match written {
            Poll::Ready(Ok(_)) => self.has_written(),
            Poll::Pending if self.is_over(cx) => {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            _ => {}
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_more_closes_the_one_idle_longest_and_of_strangers_first() {
        let _limit = amcast_test_policy::time_limit();
        let slots = ConnectionSlots::new(3, ShownClients::ByPassword);
        let host = Ipv4Addr::LOCALHOST.into();
        let [known, old, young] = [(); 3].map(|()| slots.enter(host));
        // The first microsecond is before those of connections that come later, however soon they do.
        for (slot, us) in [(&known, 0), (&old, 1), (&young, 2)] {
            slot.moved_us.store(us, Ordering::Relaxed);
        }
        known.show_known();
        let closed = |slot: &Arc<ConnectionSlot>| slot.closed.load(Ordering::Relaxed);
        let another = slots.enter(host);
        another.show_known();
        assert_eq!([&known, &old, &young].map(closed), [false, true, false]);
        slots.leave(&old);
        assert_eq!(lock(&slots.all).len(), 3, "its slot was given away");
        slots.enter(host).show_known();
        assert!(closed(&young) && !closed(&known));
        slots.enter(host);
        assert!(closed(&known) && !closed(&another), "where all are known, of these");
        assert_eq!(lock(&slots.all).len(), 3);
    }

    #[test]
    fn one_more_closes_one_of_the_host_that_has_most() {
        let _limit = amcast_test_policy::time_limit();
        let slots = ConnectionSlots::new(8, ShownClients::ByPassword);
        let host = |n: u8| Ipv4Addr::new(10, 0, 0, n).into();
        let honest = slots.enter(host(1));
        honest.moved_us.store(0, Ordering::Relaxed);
        for n in 0..200 {
            slots.enter(host(2 + n % 3));
        }
        assert!(!honest.closed.load(Ordering::Relaxed), "it is the idlest, and alone of its host");
        assert_eq!(lock(&slots.all).len(), 8);
    }

    #[test]
    fn a_flood_that_sends_something_keeps_out_no_client_that_has_just_connected() {
        let _limit = amcast_test_policy::time_limit();
        let slots = ConnectionSlots::new(64, ShownClients::ByPassword);
        let host = |n: u8| Ipv4Addr::new(10, 0, 0, n).into();
        let flood = |count: u32| {
            for n in 0..count {
                use_now(&slots, &slots.enter(host(2 + (n % 12) as u8)));
            }
        };
        flood(64);
        let honest: Vec<_> = (0..4).map(|_| slots.enter(host(1))).collect();
        flood(1000);
        assert!(honest.iter().all(|slot| !slot.closed.load(Ordering::Relaxed)));
    }

    /// Has a connection come further just now.
    fn use_now(slots: &ConnectionSlots, slot: &ConnectionSlot) {
        slot.moved_us.store(slots.now_us().max(slot.begun_us + 1), Ordering::Relaxed);
    }

    #[test]
    fn hundreds_of_hosts_with_idle_connections_close_none_in_use() {
        let _limit = amcast_test_policy::time_limit();
        let slots = ConnectionSlots::new(256, ShownClients::Never);
        let proxy = Ipv4Addr::new(10, 0, 0, 1).into();
        let in_use: Vec<_> = (0..20).map(|_| slots.enter(proxy)).collect();
        let idle = slots.enter(proxy);
        for n in 0..1000_u32 {
            in_use.iter().for_each(|slot| use_now(&slots, slot));
            slots.enter(Ipv4Addr::from_bits(0x0b00_0000 + n).into());
        }
        assert!(in_use.iter().all(|slot| !slot.closed.load(Ordering::Relaxed)));
        assert!(idle.closed.load(Ordering::Relaxed), "that is one more of its host");
    }

    #[test]
    fn a_host_that_uses_many_connections_closes_no_idle_one_of_another() {
        let _limit = amcast_test_policy::time_limit();
        let slots = ConnectionSlots::new(16, ShownClients::Never);
        let idle = slots.enter(Ipv4Addr::new(10, 0, 0, 1).into());
        for _ in 0..100 {
            use_now(&slots, &slots.enter(Ipv4Addr::new(10, 0, 0, 2).into()));
        }
        assert!(!idle.closed.load(Ordering::Relaxed));
    }
}

//! The failure detector for processes without an open connection: it dials such a process again and again, and if the process takes
//! no connection in [`ATTEMPTS`] attempts, it is dead. One that never started is found so, too. Where a process that lives can always be reached that
//! is a perfect detector: it finds all who died, and nobody else.
//!
//! It is independent of the streams, which are dialled by one end only, and never stop dialling.

use crate::sockets;
use amcast_core::Pid;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// How often one is dialled in vain that is dead.
const ATTEMPTS: u32 = 5;

/// From one attempt to the next: long enough for a listener to be taken up again.
const AGAIN: Duration = Duration::from_millis(10);

/// When a process that takes connections is dialled again, as long as none to it is open.
const LATER: Duration = Duration::from_secs(1);

/// How long one may take to start before it is dialled: those of a cluster start together, or nearly so.
const START_MAX: Duration = Duration::from_secs(3);

/// How long an attempt may take: where a machine has failed nobody answers.
const ANSWER_MAX: Duration = Duration::from_secs(1);

/// How often an attempt under way is looked at.
const LOOK: Duration = Duration::from_millis(1);

/// One that is in doubt.
#[derive(Debug)]
struct SuspectedPeer {
    failed: u32,
    /// The attempt under way, and since when.
    dialled: Option<(OwnedFd, Instant)>,
    due: Instant,
}

/// The result of an attempt.
enum DialOutcome {
    Nothing,
    Taken,
    Refused,
}

/// Finds out who died, of processes at these addresses.
#[derive(Debug)]
pub struct LivenessProbe {
    addresses: Vec<SocketAddr>,
    doubts: Vec<Option<SuspectedPeer>>,
}

impl LivenessProbe {
    /// All but `me` are in doubt in [`START_MAX`], if they are not [trusted](LivenessProbe::trust) before.
    /// Processes are listed by pid, with where they take connections.
    pub fn new(me: Pid, addresses: impl IntoIterator<Item = SocketAddr>, now: Instant) -> Self {
        let addresses: Vec<_> = addresses.into_iter().collect();
        let doubts = addresses.iter().map(|_| None).collect();
        let mut this = Self { addresses, doubts };
        for at in (0..this.addresses.len()).filter(|at| *at != me.index()) {
            this.doubt(Pid(at as u32), now + START_MAX);
        }
        this
    }

    /// The connection to `pid` broke: it is dialled from `now` on.
    pub fn doubt(&mut self, pid: Pid, now: Instant) {
        let doubt = &mut self.doubts[pid.index()];
        doubt.get_or_insert(SuspectedPeer { failed: 0, dialled: None, due: now });
    }

    /// A connection to `pid` is open.
    pub fn trust(&mut self, pid: Pid) {
        self.doubts[pid.index()] = None;
    }

    /// When to look again, if anybody is in doubt.
    pub fn next_due(&self) -> Option<Instant> {
        self.doubts.iter().flatten().map(|doubt| doubt.due).min()
    }

    /// Makes the attempts that are due, and reports dead processes. One that takes a connection lives, and is looked
    /// at again later if none is open by then.
    pub fn look(&mut self, now: Instant, mut dead: impl FnMut(Pid)) {
        for at in 0..self.doubts.len() {
            let address = self.addresses[at];
            let Some(doubt) = self.doubts[at].as_mut().filter(|doubt| doubt.due <= now) else {
                continue;
            };
            match doubt.attempt(address, now) {
                DialOutcome::Nothing => doubt.due = now + LOOK,
                DialOutcome::Taken => {
                    *doubt = SuspectedPeer { failed: 0, dialled: None, due: now + LATER }
                }
                DialOutcome::Refused => {
                    doubt.failed += 1;
                    (doubt.dialled, doubt.due) = (None, now + AGAIN);
                    if doubt.failed >= ATTEMPTS {
                        self.doubts[at] = None;
                        dead(Pid(at as u32));
                    }
                }
            }
        }
    }
}

impl SuspectedPeer {
    fn attempt(&mut self, address: SocketAddr, now: Instant) -> DialOutcome {
        if self.dialled.is_none() {
            let Ok(socket) = sockets::dial(address) else { return DialOutcome::Refused };
            self.dialled = Some((socket, now));
        }
        let Some((socket, since)) = &self.dialled else { return DialOutcome::Nothing };
        let mut ends = [PollFd::new(socket, PollFlags::OUT)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        match poll(&mut ends, Some(&at_once)) {
            Ok(0) | Err(_) if now.duration_since(*since) > ANSWER_MAX => DialOutcome::Refused,
            Ok(0) | Err(_) => DialOutcome::Nothing,
            Ok(_) if sockets::dialled(socket).is_ok() => DialOutcome::Taken,
            Ok(_) => DialOutcome::Refused,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// Two processes, of which one takes connections, as seen by a third.
    fn two() -> (TcpListener, LivenessProbe, Instant) {
        let lives = TcpListener::bind("127.0.0.1:0").unwrap();
        let died = TcpListener::bind("127.0.0.1:0").unwrap();
        let addresses = [&lives, &died, &lives].map(|l| l.local_addr().unwrap());
        let now = Instant::now();
        (lives, LivenessProbe::new(Pid(2), addresses, now), now)
    }

    /// The processes found dead until `until`.
    fn found(reach: &mut LivenessProbe, until: Instant) -> Vec<Pid> {
        let mut dead = Vec::new();
        // The time is ours: nothing is waited for.
        while let Some(due) = reach.next_due().filter(|due| *due < until) {
            reach.look(due, |p| dead.push(p));
        }
        dead
    }

    #[test]
    fn one_that_takes_connections_lives_and_one_that_refuses_five_is_dead() {
        let _limit = amcast_test_policy::time_limit();
        let (lives, mut reach, now) = two();
        [0, 1].into_iter().for_each(|p| reach.trust(Pid(p)));
        assert_eq!(reach.next_due(), None, "connections to both stand");
        [0, 1].into_iter().for_each(|p| reach.doubt(Pid(p), now));
        assert_eq!(found(&mut reach, now + LATER / 2), [Pid(1)]);
        // It lived, and dies before a connection is open.
        drop(lives);
        assert_eq!(found(&mut reach, now + LATER * 2), [Pid(0)]);
    }

    #[test]
    fn one_that_never_starts_is_dead_when_it_had_time_to() {
        let _limit = amcast_test_policy::time_limit();
        let (_lives, mut reach, now) = two();
        assert_eq!(found(&mut reach, now + START_MAX), []);
        assert_eq!(found(&mut reach, now + START_MAX + LATER / 2), [Pid(1)]);
    }

    #[test]
    fn one_that_is_heard_again_before_the_fifth_attempt_is_not_dead() {
        let _limit = amcast_test_policy::time_limit();
        let (_lives, mut reach, mut now) = two();
        [0, 1].into_iter().for_each(|p| reach.trust(Pid(p)));
        reach.doubt(Pid(1), now);
        for _ in 0..ATTEMPTS - 1 {
            reach.look(now, |_| panic!("too early"));
            now += AGAIN;
        }
        reach.trust(Pid(1));
        reach.look(now, |_| panic!("it was heard"));
        assert_eq!(reach.next_due(), None);
    }
}

//! Wakes a loop that sleeps on sockets: a doorbell like those in shared memory, for one process.
//!
//! ```text
//! sleeper                                      ringer
//!   S1  word := ASLEEP unless RUNG               R1  swap word := RUNG
//!   S2  looks once more at everything            R2  if it was ASLEEP: writes the event
//!   S3  sleeps until the event is there
//!   S4  word := AWAKE, takes the event
//! ```
//!
//! **No ring is lost.** S1 and R1 change one word, so one comes first. If R1, then S1 finds RUNG and
//! there is no sleep. If S1, then R1 finds ASLEEP, and the kernel keeps the event until the sleep.

use amcast_core::Span;
use amcast_smr::application::WakeHandle;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

const AWAKE: u8 = 0;
const ASLEEP: u8 = 1;
const RUNG: u8 = 2;

struct WakerPipe {
    word: AtomicU8,
    event: OwnedFd,
}

/// The waker of one loop.
pub(crate) struct LoopWaker(Arc<WakerPipe>);

impl LoopWaker {
    /// An waker that is silent.
    ///
    /// # Errors
    /// When the system has no room for one.
    pub(crate) fn new() -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self(Arc::new(WakerPipe { word: AtomicU8::new(AWAKE), event })))
    }

    /// Rings it, from any thread. Costs a system call only if the loop sleeps.
    pub(crate) fn wake(&self) -> WakeHandle {
        let bell = Arc::clone(&self.0);
        Arc::new(move || {
            if bell.word.swap(RUNG, Ordering::AcqRel) == ASLEEP {
                // It cannot fail but by being rung 2^64 times, and then it is awake.
                let _ = rustix::io::write(&bell.event, &1_u64.to_ne_bytes());
            }
        })
    }

    /// S1. The loop must look once more before it sleeps.
    pub(crate) fn announce(&self) {
        let word = &self.0.word;
        // It rang: then there is no sleep, and S4 makes it silent.
        let _ = word.compare_exchange(AWAKE, ASLEEP, Ordering::AcqRel, Ordering::Acquire);
    }

    /// S4. Says whether it rang.
    pub(crate) fn stay(&self) -> bool {
        let rang = self.0.word.swap(AWAKE, Ordering::AcqRel) == RUNG;
        if rang {
            // An empty counter need not be read.
            let _ = rustix::io::read(&self.0.event, &mut [0; 8]);
        }
        rang
    }

    /// S3 and S4: sleeps until it rings, `also` can be read, or for `at_most`. May return early.
    pub(crate) fn sleep(&self, also: BorrowedFd<'_>, at_most: Span) {
        if self.0.word.load(Ordering::Acquire) == ASLEEP {
            let mut both =
                [self.0.event.as_fd(), also].map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
            let Span(nanos) = at_most;
            let tv_sec = i64::try_from(nanos / 1_000_000_000).unwrap_or(i64::MAX);
            let timeout = Timespec { tv_sec, tv_nsec: (nanos % 1_000_000_000) as i64 };
            // With any result, the loop checks everything.
            let _ = poll(&mut both, Some(&timeout));
        }
        self.stay();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    /// Both ends of a descriptor that becomes readable on a write.
    fn pair() -> (UnixStream, UnixStream) {
        UnixStream::pair().unwrap()
    }

    #[test]
    fn a_ring_before_sleep_keeps_it_away_once() {
        let _limit = amcast_test_policy::time_limit();
        let (alarm, (_a, silent)) = (LoopWaker::new().unwrap(), pair());
        let wake = alarm.wake();
        wake();
        alarm.announce();
        // Were it to sleep, it would for ever.
        alarm.sleep(silent.as_fd(), Span::secs(1 << 33));
        alarm.announce();
        assert!(!alarm.stay(), "the ring is forgotten");
    }

    #[test]
    fn rings_from_another_thread_end_every_sleep() {
        let _limit = amcast_test_policy::time_limit();
        let (alarm, (_a, silent)) = (LoopWaker::new().unwrap(), pair());
        let wake = alarm.wake();
        let (asleep, told) = std::sync::mpsc::sync_channel(0);
        let ringer = std::thread::spawn(move || {
            for () in told {
                wake();
            }
        });
        for _ in 0..100 {
            alarm.announce();
            asleep.send(()).unwrap();
            alarm.sleep(silent.as_fd(), Span::secs(1 << 33));
        }
        drop(asleep);
        ringer.join().unwrap();
    }

    #[test]
    fn what_comes_on_a_socket_ends_sleep() {
        let _limit = amcast_test_policy::time_limit();
        let (mut a, b) = pair();
        a.write_all(b"x").unwrap();
        let alarm = LoopWaker::new().unwrap();
        alarm.announce();
        alarm.sleep(b.as_fd(), Span::secs(1 << 33));
        assert!(!alarm.stay());
    }
}

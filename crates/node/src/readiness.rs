//! Which of several sockets are ready: asked with one system call, however many there are.

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// How many ready sockets a look takes in; the others wait for the next.
const EVENTS_MAX: usize = 64;

/// Sockets that are watched. Each is reported once when it becomes ready to be read or written:
/// its user continues until the system reports that nothing can be done now.
pub(crate) struct ReadinessSet {
    epoll: OwnedFd,
    /// The result of the last poll.
    numbers: Vec<u64>,
}

impl ReadinessSet {
    /// Watches nothing yet.
    ///
    /// # Errors
    /// When the system has no room for it.
    pub(crate) fn new() -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Self { epoll, numbers: Vec::with_capacity(EVENTS_MAX) })
    }

    /// Watches a socket until it is closed, under that number.
    ///
    /// # Errors
    /// When the system has no room for it.
    pub(crate) fn watch(&self, socket: impl AsFd, number: u64) -> io::Result<()> {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::ET;
        Ok(epoll::add(&self.epoll, socket, epoll::EventData::new_u64(number), flags)?)
    }

    /// The numbers of those that have become ready.
    ///
    /// # Errors
    /// When the system has no memory.
    pub(crate) fn look(&mut self) -> io::Result<impl Iterator<Item = u64> + '_> {
        self.numbers.clear();
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut room = [const { MaybeUninit::uninit() }; EVENTS_MAX];
        match epoll::wait(&self.epoll, &mut room, Some(&now)) {
            Ok((events, _)) => self.numbers.extend(events.iter().map(|event| event.data.u64())),
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        Ok(self.numbers.drain(..))
    }
}

impl AsFd for ReadinessSet {
    /// Can be read while a look would find something.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

//! A connection between a front and a node: two directions of bytes, through a socket or, within
//! one process, through memory. Nothing here blocks.

use super::frame::IngressFrame;
use amcast_smr::application::WakeHandle;
use std::fmt;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes in one direction through memory that are not read yet, at most: what is larger passes in pieces.
const HALF_BYTES_MAX: usize = 1 << 20;

/// Bytes that are read at a time.
const READ_BYTES: usize = 64 << 10;

/// A larger buffer that has become empty is given back.
const BUFFER_BYTES_KEPT: usize = 1 << 20;

/// One direction through memory.
#[derive(Default)]
struct InProcessHalf {
    bytes: Mutex<Vec<u8>>,
    /// Whether there are any: saves the reader the lock.
    some: AtomicBool,
    /// Whether the writer waits for room.
    waits: AtomicBool,
    closed: AtomicBool,
}

/// One end of a connection within a process.
struct InProcessEnd {
    out: Arc<InProcessHalf>,
    come: Arc<InProcessHalf>,
    /// Wakes the loop at the other end.
    wake: WakeHandle,
}

impl Drop for InProcessEnd {
    fn drop(&mut self) {
        self.out.closed.store(true, Ordering::Release);
        self.come.closed.store(true, Ordering::Release);
        (self.wake)();
    }
}

/// What bytes travel through.
enum LineTransport {
    Socket {
        stream: UnixStream,
        /// Whether there may be something to read, and room to write: known from who watches it.
        ready: bool,
    },
    Memory(InProcessEnd),
}

/// A connection with its buffers. Bytes that are to go out and cannot yet are kept here; whoever has
/// it bounds them by [`IngressLine::backlog`].
pub(crate) struct IngressLine {
    way: LineTransport,
    come: Vec<u8>,
    /// How many bytes of `come` are done with.
    taken: usize,
    out: Vec<u8>,
    /// How many bytes of `out` are gone.
    gone: usize,
}

impl fmt::Debug for IngressLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Line").field("backlog", &self.backlog()).finish_non_exhaustive()
    }
}

impl IngressLine {
    /// A connection through a socket.
    ///
    /// # Errors
    /// When it cannot be set not to block.
    pub(crate) fn socket(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self::over(LineTransport::Socket { stream, ready: true }))
    }

    /// Both ends of a connection within this process, with who wakes the loop of each.
    pub(crate) fn pair(wakes: [WakeHandle; 2]) -> [Self; 2] {
        let halves: [Arc<InProcessHalf>; 2] = Default::default();
        let [first, second] = wakes;
        let end = |out: usize, wake| InProcessEnd {
            out: Arc::clone(&halves[out]),
            come: Arc::clone(&halves[1 - out]),
            wake,
        };
        [
            Self::over(LineTransport::Memory(end(0, second))),
            Self::over(LineTransport::Memory(end(1, first))),
        ]
    }

    const fn over(way: LineTransport) -> Self {
        Self { way, come: Vec::new(), taken: 0, out: Vec::new(), gone: 0 }
    }

    /// What is to be watched, if the other end does not wake the loop itself.
    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.way {
            LineTransport::Socket { stream, .. } => Some(stream.as_fd()),
            LineTransport::Memory(_) => None,
        }
    }

    /// What is watched has become ready.
    pub(crate) fn set_ready(&mut self) {
        if let LineTransport::Socket { ready, .. } = &mut self.way {
            *ready = true;
        }
    }

    /// Bytes that wait to go out.
    pub(crate) fn backlog(&self) -> usize {
        self.out.len() - self.gone
    }

    /// Bytes that have come and are not done with.
    pub(crate) fn unread(&self) -> usize {
        self.come.len() - self.taken
    }

    /// Puts a frame behind what is to go out.
    pub(crate) fn say(&mut self, frame: IngressFrame<'_>) {
        frame.encode(&mut self.out);
    }

    /// The next frame that has come whole, of at most `most` bytes. Its bytes stay until
    /// [`IngressLine::done`] with as many bytes as it says.
    ///
    /// # Errors
    /// When what came is no frame.
    pub(crate) fn next(
        &self,
        most: usize,
    ) -> Result<Option<(IngressFrame<'_>, usize)>, &'static str> {
        IngressFrame::decode(&self.come[self.taken..], most)
    }

    /// So many bytes that came are done with.
    pub(crate) fn done(&mut self, bytes: usize) {
        self.taken += bytes;
        if self.taken == self.come.len() {
            self.taken = 0;
            empty(&mut self.come);
        } else if self.taken >= READ_BYTES.max(self.come.len() / 2) {
            self.come.drain(..self.taken);
            self.taken = 0;
        }
    }

    /// Takes in what has come, a bounded share. Says whether anything came.
    ///
    /// # Errors
    /// When the connection is at its end.
    pub(crate) fn fill(&mut self) -> io::Result<bool> {
        match &mut self.way {
            LineTransport::Memory(end) => {
                // Closed is looked at first: what was put in before it counts.
                let closed = end.come.closed.load(Ordering::Acquire);
                if end.come.some.swap(false, Ordering::Acquire) {
                    let mut bytes = end.come.bytes.lock().unwrap_or_else(PoisonError::into_inner);
                    let waits = end.come.waits.swap(false, Ordering::AcqRel);
                    if self.come.is_empty() {
                        std::mem::swap(&mut *bytes, &mut self.come);
                    } else {
                        self.come.append(&mut bytes);
                    }
                    drop(bytes);
                    if waits {
                        (end.wake)();
                    }
                    return Ok(true);
                }
                if closed { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(false) }
            }
            LineTransport::Socket { ready: false, .. } => Ok(false),
            LineTransport::Socket { stream, ready } => {
                let before = self.come.len();
                self.come.resize(before + READ_BYTES, 0);
                let read = stream.read(&mut self.come[before..]);
                self.come.truncate(before + *read.as_ref().unwrap_or(&0));
                match read {
                    Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
                    Ok(_) => Ok(true),
                    Err(e) if passes(&e) => {
                        *ready = false;
                        Ok(false)
                    }
                    Err(e) => Err(e),
                }
            }
        }
    }

    /// Sends what waits, as far as there is room. Says whether anything went.
    ///
    /// # Errors
    /// When the connection is at its end.
    pub(crate) fn flush(&mut self) -> io::Result<bool> {
        let mut any = false;
        while self.gone < self.out.len() {
            let gone = match &mut self.way {
                LineTransport::Memory(end) => end.put(&self.out[self.gone..])?,
                LineTransport::Socket { stream, .. } => {
                    match stream.write(&self.out[self.gone..]) {
                        Ok(gone) => gone,
                        Err(e) if passes(&e) => 0,
                        Err(e) => return Err(e),
                    }
                }
            };
            if gone == 0 {
                break;
            }
            self.gone += gone;
            any = true;
        }
        if self.gone == self.out.len() {
            self.gone = 0;
            empty(&mut self.out);
        } else if self.gone >= READ_BYTES.max(self.out.len() / 2) {
            self.out.drain(..self.gone);
            self.gone = 0;
        }
        Ok(any)
    }
}

impl InProcessEnd {
    /// Puts bytes in for the other end, as many as there is room for.
    fn put(&self, from: &[u8]) -> io::Result<usize> {
        if self.out.closed.load(Ordering::Acquire) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let mut bytes = self.out.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        let room = HALF_BYTES_MAX.saturating_sub(bytes.len());
        if room == 0 {
            // Under the lock: whoever empties it sees this.
            self.out.waits.store(true, Ordering::Release);
            return Ok(0);
        }
        let piece = &from[..from.len().min(room)];
        bytes.extend_from_slice(piece);
        self.out.some.store(true, Ordering::Release);
        drop(bytes);
        (self.wake)();
        Ok(piece.len())
    }
}

/// Whether an error says only that nothing can be done now.
fn passes(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

fn empty(buffer: &mut Vec<u8>) {
    buffer.clear();
    if buffer.capacity() > BUFFER_BYTES_KEPT {
        *buffer = Vec::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use amcast_core::{Gid, GroupSet, Outcome};
    use std::sync::atomic::AtomicUsize;

    const DST: GroupSet = GroupSet::one(Gid(0));

    fn silent() -> WakeHandle {
        Arc::new(|| {})
    }

    fn pairs() -> Vec<[IngressLine; 2]> {
        let (a, b) = UnixStream::pair().unwrap();
        vec![
            [IngressLine::socket(a).unwrap(), IngressLine::socket(b).unwrap()],
            IngressLine::pair([silent(), silent()]),
        ]
    }

    #[test]
    fn frames_cross_either_way_in_their_order_however_large() {
        let _limit = amcast_test_policy::time_limit();
        for [mut a, mut b] in pairs() {
            let large = vec![7; 3 << 20];
            let said = [
                IngressFrame::Command(1, DST, b"x"),
                IngressFrame::Command(2, DST, &large),
                IngressFrame::Lost(3),
            ];
            said.iter().for_each(|&frame| a.say(frame));
            let mut heard = 0;
            while heard < said.len() {
                a.flush().unwrap();
                b.set_ready();
                b.fill().unwrap();
                while let Some((frame, used)) = b.next(4 << 20).unwrap() {
                    assert!(frame == said[heard], "frame {heard}");
                    heard += 1;
                    b.done(used);
                }
            }
            assert_eq!((a.backlog(), b.unread()), (0, 0));
        }
    }

    #[test]
    fn who_does_not_read_is_not_sent_more_than_the_bound() {
        let _limit = amcast_test_policy::time_limit();
        for [mut a, _b] in pairs() {
            let piece = vec![7; 100_000];
            for n in 0..100 {
                a.say(IngressFrame::Answer(n, Outcome::Executed, &piece));
                a.flush().unwrap();
            }
            // Also one that is large by itself.
            a.say(IngressFrame::Answer(100, Outcome::Executed, &vec![7; 3 << 20]));
            a.flush().unwrap();
            assert!(a.backlog() > 5_000_000 + (3 << 20), "{}", a.backlog());
        }
    }

    #[test]
    fn what_is_large_passes_through_memory_in_pieces() {
        let _limit = amcast_test_policy::time_limit();
        let [mut a, mut b] = IngressLine::pair([silent(), silent()]);
        let large = vec![7; 5 << 20];
        a.say(IngressFrame::Answer(1, Outcome::Executed, &large));
        let mut rounds = 0;
        while b.next(8 << 20).unwrap().is_none() {
            a.flush().unwrap();
            b.fill().unwrap();
            rounds += 1;
        }
        let frame = b.next(8 << 20).unwrap().map(|(frame, _)| frame);
        assert!(
            rounds > 4 && frame == Some(IngressFrame::Answer(1, Outcome::Executed, &large)),
            "{rounds}"
        );
    }

    #[test]
    fn the_end_is_noticed_behind_what_was_said_before_it() {
        let _limit = amcast_test_policy::time_limit();
        for [mut a, mut b] in pairs() {
            a.say(IngressFrame::Lost(9));
            a.flush().unwrap();
            drop(a);
            assert!(b.fill().unwrap());
            assert_eq!(b.next(64), Ok(Some((IngressFrame::Lost(9), 13))));
            assert!(b.fill().is_err());
            b.say(IngressFrame::Lost(1));
            assert!(b.flush().is_err());
        }
    }

    #[test]
    fn within_a_process_the_other_end_is_woken_when_there_is_something_and_at_the_end() {
        let _limit = amcast_test_policy::time_limit();
        let rings = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&rings);
        let wake = Arc::new(move || _ = counted.fetch_add(1, Ordering::Relaxed));
        let [mut a, _b] = IngressLine::pair([silent(), wake]);
        a.flush().unwrap();
        assert_eq!(rings.load(Ordering::Relaxed), 0);
        a.say(IngressFrame::Serves(true));
        a.flush().unwrap();
        assert_eq!(rings.load(Ordering::Relaxed), 1);
        drop(a);
        assert_eq!(rings.load(Ordering::Relaxed), 2);
    }
}

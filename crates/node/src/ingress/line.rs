//! A connection between a gateway and a node: two directions of bytes, through a socket or, within
//! one process, through memory. Nothing here blocks.
//!
//! The bytes of commands are not copied: a socket is written from where they are, and within a process a reference
//! travels beside the heads of the frames.

mod outgoing;

use super::frame::IngressFrame;
use crate::command_bytes::CommandBytes;
use amcast_smr::application::WakeHandle;
use outgoing::OutgoingFrames;
use std::collections::VecDeque;
use std::fmt;
use std::io::{self, Read};
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

/// The contents of a connection in memory: frames, and the bytes of the commands among them.
#[derive(Default)]
struct SharedFrames {
    frames: Vec<u8>,
    commands: VecDeque<CommandBytes>,
}

/// One direction through memory.
#[derive(Default)]
struct InProcessHalf {
    passing: Mutex<SharedFrames>,
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

/// The transport of the bytes.
enum LineTransport {
    Socket {
        stream: UnixStream,
        /// Whether there may be something to read, and room to write: known from who watches it.
        ready: bool,
    },
    Memory(InProcessEnd),
}

/// A connection with its buffers. Bytes that cannot be sent yet are kept here; its owner bounds
/// them by [`IngressLine::backlog`].
pub(crate) struct IngressLine {
    transport: LineTransport,
    come: Vec<u8>,
    /// How many bytes of `come` are done with.
    taken: usize,
    /// Within a process, the bytes of the commands in `come` that are not done with, and how many they are.
    commands: VecDeque<CommandBytes>,
    commands_bytes: usize,
    out: OutgoingFrames,
}

/// The bytes of the first command that has arrived, taken out of a connection.
#[derive(Debug)]
pub(crate) enum ArrivedCommand {
    /// They are shared with the sender.
    Shared(CommandBytes),
    /// All bytes that have arrived: to be returned with [`IngressLine::put_back`]. Until then no
    /// others arrive.
    Lent {
        /// The bytes that have arrived.
        come: Vec<u8>,
        /// Where the command's bytes are in it.
        at: std::ops::Range<usize>,
    },
}

impl ArrivedCommand {
    /// The command's bytes.
    pub(crate) fn get(&self) -> &[u8] {
        match self {
            Self::Shared(bytes) => bytes,
            Self::Lent { come, at } => &come[at.clone()],
        }
    }
}

impl fmt::Debug for IngressLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IngressLine").field("backlog", &self.backlog()).finish_non_exhaustive()
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

    fn over(transport: LineTransport) -> Self {
        Self {
            transport,
            come: Vec::new(),
            taken: 0,
            commands: VecDeque::new(),
            commands_bytes: 0,
            out: OutgoingFrames::default(),
        }
    }

    /// The descriptor to watch, if the other end does not wake the loop itself.
    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.transport {
            LineTransport::Socket { stream, .. } => Some(stream.as_fd()),
            LineTransport::Memory(_) => None,
        }
    }

    /// The watched descriptor has become ready.
    pub(crate) fn set_ready(&mut self) {
        if let LineTransport::Socket { ready, .. } = &mut self.transport {
            *ready = true;
        }
    }

    /// Bytes that wait to go out.
    pub(crate) fn backlog(&self) -> usize {
        self.out.len()
    }

    /// Bytes that have arrived and are not processed.
    pub(crate) fn unread(&self) -> usize {
        self.come.len() - self.taken + self.commands_bytes
    }

    /// Puts a frame behind what is to go out; its bytes are copied.
    pub(crate) fn say(&mut self, frame: IngressFrame<'_>) {
        match (&self.transport, frame) {
            (
                LineTransport::Memory(_),
                IngressFrame::Command(_, _, bytes) | IngressFrame::Read(_, _, bytes),
            ) => {
                self.say_shared(frame, &CommandBytes::new(bytes.to_vec()));
            }
            _ => self.out.push(frame),
        }
    }

    /// Puts a command behind what is to go out, whose bytes are these.
    pub(crate) fn say_shared(&mut self, frame: IngressFrame<'_>, bytes: &CommandBytes) {
        self.out.push_shared(frame, bytes);
    }

    /// The next frame that has arrived whole, of at most `most` bytes. Its bytes stay until
    /// [`IngressLine::done`] with as many bytes as it says.
    ///
    /// # Errors
    /// When what came is no frame.
    pub(crate) fn next(
        &self,
        most: usize,
    ) -> Result<Option<(IngressFrame<'_>, usize)>, &'static str> {
        let beside = self.commands.front().map(|bytes| &bytes[..]);
        IngressFrame::decode_beside(&self.come[self.taken..], beside, most)
    }

    /// Within a process, the bytes of the first command that has arrived.
    pub(crate) fn shared(&self) -> Option<&CommandBytes> {
        self.commands.front()
    }

    /// Takes out the bytes of the first command that has arrived, whose frame has so many bytes
    /// here.
    pub(crate) fn take_command(&mut self, used: usize, command_bytes: usize) -> ArrivedCommand {
        if let Some(shared) = self.shared().cloned() {
            self.done(used);
            return ArrivedCommand::Shared(shared);
        }
        let end = self.taken + used;
        ArrivedCommand::Lent { come: std::mem::take(&mut self.come), at: end - command_bytes..end }
    }

    /// Gives back what was taken out: the command is done with.
    pub(crate) fn put_back(&mut self, bytes: ArrivedCommand) {
        if let ArrivedCommand::Lent { come, at } = bytes {
            let used = at.end - self.taken;
            self.come = come;
            self.done(used);
        }
    }

    /// So many bytes that came, which are the first frame, are done with.
    pub(crate) fn done(&mut self, bytes: usize) {
        if !self.commands.is_empty() && IngressFrame::is_command(&self.come[self.taken..]) {
            let command = self.commands.pop_front();
            self.commands_bytes -= command.map_or(0, |command| command.len());
        }
        self.taken += bytes;
        if self.taken == self.come.len() {
            self.taken = 0;
            empty(&mut self.come);
        } else if self.taken >= READ_BYTES.max(self.come.len() / 2) {
            self.come.drain(..self.taken);
            self.taken = 0;
        }
    }

    /// Reads the arrived bytes, a bounded share. Returns whether there were any.
    ///
    /// # Errors
    /// When the connection is at its end.
    pub(crate) fn fill(&mut self) -> io::Result<bool> {
        match &mut self.transport {
            LineTransport::Memory(end) => {
                // Closed is looked at first: what was put in before it counts.
                let closed = end.come.closed.load(Ordering::Acquire);
                if end.come.some.swap(false, Ordering::Acquire) {
                    let mut passing =
                        end.come.passing.lock().unwrap_or_else(PoisonError::into_inner);
                    let waits = end.come.waits.swap(false, Ordering::AcqRel);
                    if self.come.is_empty() {
                        std::mem::swap(&mut passing.frames, &mut self.come);
                    } else {
                        self.come.append(&mut passing.frames);
                    }
                    let bytes = passing.commands.iter().map(|command| command.len());
                    self.commands_bytes += bytes.sum::<usize>();
                    self.commands.append(&mut passing.commands);
                    drop(passing);
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
        while self.out.len() > 0 {
            let went = match &mut self.transport {
                LineTransport::Memory(end) => end.put(&mut self.out)?,
                LineTransport::Socket { stream, .. } => match self.out.write(stream) {
                    Ok(gone) => gone > 0,
                    Err(e) if passes(&e) => false,
                    Err(e) => return Err(e),
                },
            };
            if !went {
                break;
            }
            any = true;
        }
        self.out.compact();
        Ok(any)
    }
}

impl InProcessEnd {
    /// Puts bytes in for the other end, as many as there is room for. Whether there was any.
    fn put(&self, from: &mut OutgoingFrames) -> io::Result<bool> {
        if self.out.closed.load(Ordering::Acquire) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let mut passing = self.out.passing.lock().unwrap_or_else(PoisonError::into_inner);
        let room = HALF_BYTES_MAX.saturating_sub(passing.frames.len());
        if room == 0 {
            // Under the lock: the reader that empties it sees this.
            self.out.waits.store(true, Ordering::Release);
            return Ok(false);
        }
        let SharedFrames { frames, commands } = &mut *passing;
        from.pass(room, frames, commands);
        self.out.some.store(true, Ordering::Release);
        drop(passing);
        (self.wake)();
        Ok(true)
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
                IngressFrame::NotKept(3),
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
            a.say(IngressFrame::NotKept(9));
            a.flush().unwrap();
            drop(a);
            assert!(b.fill().unwrap());
            assert_eq!(b.next(64), Ok(Some((IngressFrame::NotKept(9), 13))));
            assert!(b.fill().is_err());
            b.say(IngressFrame::NotKept(1));
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

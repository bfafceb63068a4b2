//! The bytes of a state on their way from one node to another, over connections that may break.
//!
//! ```text
//! who needs it                          who gives it
//!   state P0 P1 .. ----------------->   captures, gives the stream a number
//!   <------- ok NUMBER, bytes from 0    keeps the last of what it sent
//!        (the connection breaks)        holds the stream for a while
//!   resume NUMBER OFFSET ----------->
//!   <------- ok, bytes from OFFSET      resumes
//! ```
//! So a connection that breaks costs what was on its way, and not the whole state. The one that gives keeps no more
//! than [`KEPT_BYTES_MAX`] of what it sent, which is more than a connection holds, for [`HOLDS`] at most after
//! the connection broke, or after the end: nobody says that all has arrived.

use crate::control::{ANSWER_TIMEOUT, LINE_BYTES_MAX};
use crate::node_address::{ControlStream, NodeAddress};
use crate::state_transfer::PROGRESS_TIMEOUT;
use amcast_smr::application::WakeHandle;
use amcast_smr::recovery::WantedState;
use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

/// Bytes that were sent and are kept, for a reader that lost them: more than the buffers of a connection hold.
const KEPT_BYTES_MAX: usize = 16 << 20;

/// How long a stream is held for a reader whose connection broke.
const HOLDS: Duration = Duration::from_secs(5);

/// How long a reader tries to get back to its stream.
const RETURNS_FOR: Duration = Duration::from_secs(4);

/// How long it waits between two tries.
const RETURNS_EVERY: Duration = Duration::from_millis(100);

/// Bytes that a reader takes from its connection at a time.
const READ_BYTES: usize = 256 << 10;

/// A state that is being sent, and what was sent last.
struct SentState {
    pieces: Receiver<Vec<u8>>,
    kept: VecDeque<Vec<u8>>,
    kept_bytes: usize,
    /// Bytes of the state in front of what is kept.
    before: u64,
}

impl SentState {
    const fn new(pieces: Receiver<Vec<u8>>) -> Self {
        Self { pieces, kept: VecDeque::new(), kept_bytes: 0, before: 0 }
    }

    /// Whether the bytes from `offset` on are still here, or to come.
    fn has(&self, offset: u64) -> bool {
        (self.before..=self.before + self.kept_bytes as u64).contains(&offset)
    }

    fn keep(&mut self, piece: Vec<u8>) {
        self.kept_bytes += piece.len();
        self.kept.push_back(piece);
        while self.kept_bytes > KEPT_BYTES_MAX
            && self.kept.len() > 1
            && let Some(oldest) = self.kept.pop_front()
        {
            self.kept_bytes -= oldest.len();
            self.before += oldest.len() as u64;
        }
    }

    /// Sends what there is from `offset` on, then the pieces as the node's loop gives them, and wakes the loop when
    /// there is room for more.
    fn send(&mut self, offset: u64, mut to: &ControlStream, wake: &WakeHandle) -> io::Result<()> {
        let mut at = self.before;
        for piece in &self.kept {
            let sent = usize::try_from(offset.saturating_sub(at)).unwrap_or(usize::MAX);
            to.write_all(piece.get(sent..).unwrap_or_default())?;
            at += piece.len() as u64;
        }
        loop {
            match self.pieces.recv_timeout(PROGRESS_TIMEOUT) {
                Ok(piece) => {
                    self.keep(piece);
                    to.write_all(self.kept.back().map_or(&[], |piece| &piece[..]))?;
                }
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
                Err(e @ RecvTimeoutError::Timeout) => return Err(io::Error::other(e)),
            }
            wake();
        }
    }
}

/// The stream that a node gives last: one state is given at a time.
struct CurrentStream {
    number: u64,
    /// Where it is sent to.
    connection: Arc<ControlStream>,
    /// It is here, and not sent: its connection broke, or it is over.
    parked: Option<SentState>,
}

/// The state that a node gives to another one, which may come back for the rest of it.
pub(crate) struct StateStreams {
    current: Mutex<Option<CurrentStream>>,
    changed: Condvar,
    holds: Duration,
}

impl Default for StateStreams {
    fn default() -> Self {
        Self { current: Mutex::new(None), changed: Condvar::new(), holds: HOLDS }
    }
}

impl StateStreams {
    fn current(&self) -> MutexGuard<'_, Option<CurrentStream>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a state from its beginning.
    ///
    /// # Errors
    /// When the connection breaks, or the node's loop gives nothing for long.
    pub(crate) fn send(
        &self,
        pieces: Receiver<Vec<u8>>,
        to: &Arc<ControlStream>,
        wake: &WakeHandle,
    ) -> io::Result<()> {
        // Not that of any earlier stream, nor of one of an earlier incarnation.
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let now = since.as_nanos() as u64;
        let number = {
            let mut current = self.current();
            let number = current.as_ref().map_or(now, |before| now.max(before.number + 1));
            *current = Some(CurrentStream { number, connection: Arc::clone(to), parked: None });
            number
        };
        self.changed.notify_all();
        let mut state = SentState::new(pieces);
        to.set_write_timeout(PROGRESS_TIMEOUT)?;
        let sent = writeln!(&**to, "ok {number}").and_then(|()| state.send(0, to, wake));
        self.park(number, state, to);
        sent
    }

    /// Continues to send the stream of this number, from this byte on.
    ///
    /// # Errors
    /// When the connection breaks, or the node's loop gives nothing for long.
    pub(crate) fn resume(
        &self,
        (number, offset): (u64, u64),
        to: &Arc<ControlStream>,
        wake: &WakeHandle,
    ) -> io::Result<()> {
        let Some(mut state) = self.take(number, to) else {
            return writeln!(&**to, "no such state is held any more");
        };
        to.set_write_timeout(PROGRESS_TIMEOUT)?;
        let sent = match state.has(offset) {
            true => writeln!(&**to, "ok").and_then(|()| state.send(offset, to, wake)),
            false => writeln!(&**to, "no byte {offset} of it is held any more"),
        };
        self.park(number, state, to);
        sent
    }

    /// Takes the stream of this number from its connection, which is of no use to its reader any more.
    fn take(&self, number: u64, to: &Arc<ControlStream>) -> Option<SentState> {
        let until = Instant::now() + RETURNS_FOR;
        let mut current = self.current();
        loop {
            let stream = current.as_mut().filter(|stream| stream.number == number)?;
            stream.connection.end();
            if let Some(state) = stream.parked.take() {
                stream.connection = Arc::clone(to);
                drop(current);
                self.changed.notify_all();
                return Some(state);
            }
            let left = until.checked_duration_since(Instant::now())?;
            let waited = self.changed.wait_timeout(current, left);
            current = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Holds a stream for its reader, for a while.
    fn park(&self, number: u64, state: SentState, of: &Arc<ControlStream>) {
        // The reader sees its end, or that it is broken.
        of.end();
        let mut current = self.current();
        let Some(stream) = current.as_mut().filter(|stream| stream.number == number) else {
            return;
        };
        stream.parked = Some(state);
        self.changed.notify_all();
        let is_held = |current: &Option<CurrentStream>| {
            let stream = current.as_ref().filter(|stream| stream.number == number);
            stream.is_some_and(|s| s.parked.is_some() && Arc::ptr_eq(&s.connection, of))
        };
        let until = Instant::now() + self.holds;
        while is_held(&current) {
            let Some(left) = until.checked_duration_since(Instant::now()) else {
                *current = None;
                return;
            };
            let waited = self.changed.wait_timeout(current, left);
            current = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// A state that arrives from another node. A broken connection is made again, and the transfer
/// resumes at its last byte.
pub(crate) struct StateReader {
    at: NodeAddress,
    number: u64,
    from: BufReader<OwnedStream>,
    /// Bytes that were read.
    offset: u64,
    /// It was resumed, and nothing has arrived since.
    is_resumed: bool,
}

impl StateReader {
    /// Asks the node there for the state that is `wanted`.
    ///
    /// # Errors
    /// When it does not run, is not so far, or has none itself.
    pub(crate) fn of(at: &NodeAddress, wanted: &WantedState) -> io::Result<Self> {
        let (from, said) = ask(at, &wanted.to_string())?;
        let number = said.strip_prefix("ok ").and_then(|number| number.parse().ok());
        let number = number.ok_or_else(|| io::Error::other(said))?;
        Ok(Self { at: at.clone(), number, from, offset: 0, is_resumed: false })
    }

    fn resume(&mut self) -> io::Result<()> {
        let until = Instant::now() + RETURNS_FOR;
        let request = format!("resume {} {}", self.number, self.offset);
        loop {
            match ask(&self.at, &request) {
                Ok((from, said)) if said == "ok" => {
                    tracing::info!("{}: the state resumes at byte {}", self.at, self.offset);
                    (self.from, self.is_resumed) = (from, true);
                    return Ok(());
                }
                Ok((_, said)) => return Err(io::Error::other(said)),
                Err(e) if Instant::now() > until => return Err(e),
                Err(_) => thread::sleep(RETURNS_EVERY),
            }
        }
    }
}

impl Read for StateReader {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if to.is_empty() {
            return Ok(0);
        }
        loop {
            match self.from.read(to) {
                Ok(0) if self.is_resumed => return Ok(0),
                Err(e) if self.is_resumed => return Err(e),
                Ok(0) | Err(_) => self.resume()?,
                Ok(some) => {
                    self.offset += some as u64;
                    self.is_resumed = false;
                    return Ok(some);
                }
            }
        }
    }
}

/// Asks a node for bytes; gives where they are read from, and the line in front of them.
fn ask(at: &NodeAddress, request: &str) -> io::Result<(BufReader<OwnedStream>, String)> {
    let stream = at.connect()?;
    stream.set_write_timeout(ANSWER_TIMEOUT)?;
    stream.set_read_timeout(PROGRESS_TIMEOUT)?;
    writeln!(&stream, "{request}")?;
    let mut from = BufReader::with_capacity(READ_BYTES, OwnedStream(stream));
    let mut line = String::new();
    (&mut from).take(LINE_BYTES_MAX as u64).read_line(&mut line)?;
    match line.pop() {
        Some('\n') => Ok((from, line)),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Reads from a connection that it has.
struct OwnedStream(ControlStream);

impl Read for OwnedStream {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        (&self.0).read(to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;
    use std::path::{Path, PathBuf};
    use std::sync::mpsc::sync_channel;

    /// Serves streams at this socket, as the control socket does; `bytes` are the state.
    fn serve(path: &Path, streams: Arc<StateStreams>, bytes: Vec<u8>) {
        let listener = UnixListener::bind(path).unwrap();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, streams) =
                    (Arc::new(ControlStream::Unix(stream.unwrap())), streams.clone());
                let bytes = bytes.clone();
                thread::spawn(move || {
                    let wake: WakeHandle = Arc::new(|| {});
                    let until = Instant::now() + ANSWER_TIMEOUT;
                    let line = stream.line(LINE_BYTES_MAX, until).unwrap();
                    let words: Vec<&str> = line.split_ascii_whitespace().collect();
                    let _ = match words[..] {
                        ["resume", number, offset] => {
                            let from = (number.parse().unwrap(), offset.parse().unwrap());
                            streams.resume(from, &stream, &wake)
                        }
                        _ => {
                            let (to, pieces) = sync_channel(4);
                            thread::spawn(move || {
                                bytes.chunks(60_000).all(|piece| to.send(piece.to_vec()).is_ok())
                            });
                            streams.send(pieces, &stream, &wake)
                        }
                    };
                });
            }
        });
    }

    fn place(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("amcast-{name}-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        path
    }

    fn wanted() -> WantedState {
        WantedState { positions: vec![1], view: None }
    }

    #[test]
    fn a_state_whose_connection_breaks_goes_on_where_it_was() {
        let _limit = amcast_test_policy::time_limit();
        let path = place("resumed");
        let bytes: Vec<u8> = (0..8_000_000_u32).map(|n| (n / 7) as u8).collect();
        serve(&path, Arc::default(), bytes.clone());
        let mut reader = StateReader::of(&NodeAddress::Socket(path.clone()), &wanted()).unwrap();
        let mut came = Vec::new();
        for part in 1..8 {
            (&mut reader).take(1_000_000).read_to_end(&mut came).unwrap();
            assert_eq!(came.len(), part * 1_000_000);
            reader.from.get_ref().0.end();
        }
        reader.read_to_end(&mut came).unwrap();
        assert!(came == bytes, "{} bytes", came.len());
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_state_is_held_for_a_while_and_no_other_one_is_taken_for_it() {
        let _limit = amcast_test_policy::time_limit();
        let path = place("held");
        let streams =
            Arc::new(StateStreams { holds: Duration::from_millis(50), ..Default::default() });
        serve(&path, Arc::clone(&streams), vec![7; 8_000_000]);
        let at = NodeAddress::Socket(path.clone());
        let mut first = StateReader::of(&at, &wanted()).unwrap();
        first.read_exact(&mut [0; 1000]).unwrap();
        let mut second = StateReader::of(&at, &wanted()).unwrap();
        second.read_exact(&mut [0; 1000]).unwrap();
        assert!(second.number > first.number);
        first.from.get_ref().0.end();
        let why = io::copy(&mut first, &mut io::sink()).unwrap_err();
        assert!(why.to_string().contains("no such state"), "another one is given: {why}");
        second.from.get_ref().0.end();
        while streams.current().is_some() {
            thread::sleep(Duration::from_millis(5));
        }
        let why = io::copy(&mut second, &mut io::sink()).unwrap_err();
        assert!(why.to_string().contains("no such state"), "it was let go: {why}");
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn no_more_than_the_last_bytes_are_kept() {
        let _limit = amcast_test_policy::time_limit();
        let (_to, pieces) = sync_channel(1);
        let mut state = SentState::new(pieces);
        for _ in 0..40 {
            state.keep(vec![0; 1 << 20]);
        }
        assert_eq!((state.before, state.kept_bytes), (24 << 20, KEPT_BYTES_MAX));
        assert!(state.has(24 << 20) && state.has(40 << 20));
        assert!(!state.has((24 << 20) - 1) && !state.has((40 << 20) + 1));
    }
}

//! The control socket of a node: one request a connection, answered from the node's loop.
//!
//! ```text
//! status\n                     ->  one JSON document
//! state P0 P1 .. [view V]\n    ->  ok\n and the state of all groups, each at least at Pi, which says
//!                                  itself where it ends; or: no REASON\n
//! ```

use crate::application::{Figures, Wake};
use crate::handover::PROGRESS_TIMEOUT;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs::Permissions;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

/// How long a node's loop may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);

/// Requests that wait for the loop; more are refused.
const REQUESTS_MAX: usize = 64;

/// Connections served at a time, each by a thread; more are closed at once. As many as there are
/// nodes and fronts that watch, several times over.
const CONNECTIONS_MAX: usize = 64;

/// The longest request line, in bytes.
const LINE_BYTES_MAX: u64 = 4096;

/// A node as its status page says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// Its name.
    pub name: String,
    /// Its number in the operating system.
    pub os_pid: u32,
    /// Whether all its replicas are working members and it has the application's state.
    pub ready: bool,
    /// Why it is not, for people; empty if it is.
    pub why: String,
    /// Its replicas, in order of groups.
    pub replicas: Vec<ReplicaStatus>,
    /// The view that its replica is in, where groups have views.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub view: Option<ViewStatus>,
    /// Answers dropped because fronts did not keep up.
    pub answers_dropped: u64,
    /// Rounds of its loop that found work, and that parked.
    pub rounds: (u64, u64),
}

/// A view of a group: the members that it goes on with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ViewStatus {
    /// Its number.
    pub number: u64,
    /// The names of the members: `g0/r1`.
    pub members: Vec<String>,
    /// The group has gone on without this replica, which waits to be taken in again.
    pub left_out: bool,
}

/// A replica as its status page says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaStatus {
    /// Its name: `g0/r1`.
    pub name: String,
    /// Its group's number.
    pub group: u8,
    /// The leader it follows.
    pub leader: Option<String>,
    /// The epoch it is in.
    pub epoch: u64,
    /// Whether it is a working member.
    pub fit: bool,
    /// Whether it has its place in the order of its group; if it is not fit then, it only waits for
    /// the application's state. A group of which fewer than a majority follow has lost it.
    pub follows: bool,
    /// The position it delivered up to.
    pub delivered: u64,
    /// The position it knows to be decided.
    pub decided: u64,
    /// The position up to which the application executed.
    pub applied: u64,
    /// Messages accepted and not delivered.
    pub backlog: u64,
    /// The application's figures.
    pub figures: Figures,
}

/// The state that a node asks another one for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// The least position of each group.
    pub(crate) positions: Vec<u64>,
    /// The view that the node is in, where groups have views: whoever gives must be in it, too.
    pub(crate) view: Option<u64>,
}

impl Wanted {
    fn parse<'a>(mut words: impl Iterator<Item = &'a str>) -> Option<Self> {
        let (mut positions, mut view) = (Vec::new(), None);
        while let Some(word) = words.next() {
            match word {
                "view" => view = Some(words.next()?.parse().ok()?),
                number => positions.push(number.parse().ok()?),
            }
        }
        Some(Self { positions, view })
    }
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("state")?;
        self.positions.iter().try_for_each(|position| write!(f, " {position}"))?;
        self.view.map_or(Ok(()), |view| write!(f, " view {view}"))
    }
}

/// What the control socket asks of the loop.
pub(crate) enum Request {
    Status(SyncSender<NodeStatus>),
    /// The state, in pieces.
    State(Wanted, SyncSender<Result<Receiver<Vec<u8>>, String>>),
}

/// Serves the socket at `path` from threads of its own; requests come out of the receiver. `wake`
/// wakes the loop for them.
///
/// # Errors
/// When the socket cannot be bound.
pub(crate) fn serve(path: &Path, wake: Wake) -> io::Result<Receiver<Request>> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
    // Whoever may write to the socket may read the state; its directory may be open to readers.
    std::fs::set_permissions(path, Permissions::from_mode(0o600))?;
    let (to_loop, requests) = sync_channel(REQUESTS_MAX);
    thread::Builder::new().name("control".to_string()).spawn(move || {
        // As many as there are others who hold it.
        let open = Arc::new(());
        for stream in listener.incoming() {
            match stream {
                Ok(_) if Arc::strong_count(&open) > CONNECTIONS_MAX => {
                    tracing::debug!("control connection refused: {CONNECTIONS_MAX} are open");
                }
                Ok(stream) => begin(stream, to_loop.clone(), Arc::clone(&wake), Arc::clone(&open)),
                Err(e) => tracing::warn!("control socket: {e}"),
            }
        }
    })?;
    Ok(requests)
}

fn begin(stream: UnixStream, to_loop: SyncSender<Request>, wake: Wake, open: Arc<()>) {
    let talk = move || {
        let _open = open;
        if let Err(e) = answer(stream, &to_loop, &wake) {
            tracing::debug!("control connection: {e}");
        }
    };
    if let Err(e) = thread::Builder::new().name("control".to_string()).spawn(talk) {
        tracing::warn!("control connection refused: {e}");
    }
}

fn answer(stream: UnixStream, to_loop: &SyncSender<Request>, wake: &Wake) -> io::Result<()> {
    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    stream.set_write_timeout(Some(ANSWER_TIMEOUT * 4))?;
    let mut line = String::new();
    BufReader::new((&stream).take(LINE_BYTES_MAX)).read_line(&mut line)?;
    let mut words = line.split_ascii_whitespace();
    let mut stream = &stream;
    match words.next() {
        Some("status") => {
            let (reply, answer) = sync_channel(1);
            ask(to_loop, wake, Request::Status(reply))?;
            let status = answer.recv_timeout(ANSWER_TIMEOUT).map_err(io::Error::other)?;
            serde_json::to_writer(&mut stream, &status)?;
            stream.write_all(b"\n")
        }
        Some("state") => {
            let Some(wanted) = Wanted::parse(words) else {
                return writeln!(stream, "no sense in that: state P0 P1 .. [view V]");
            };
            let (reply, answer) = sync_channel(1);
            ask(to_loop, wake, Request::State(wanted, reply))?;
            match answer.recv_timeout(ANSWER_TIMEOUT) {
                Ok(Ok(pieces)) => give(stream, &pieces, wake),
                Ok(Err(why)) => writeln!(stream, "no {why}"),
                Err(_) => writeln!(stream, "no answer in time"),
            }
        }
        _ => writeln!(stream, "no such request: status, state P0 P1 .. [view V]"),
    }
}

/// Sends the pieces of a state as the loop gives them, and wakes it when there is room for more.
fn give(stream: &UnixStream, pieces: &Receiver<Vec<u8>>, wake: &Wake) -> io::Result<()> {
    stream.set_write_timeout(Some(PROGRESS_TIMEOUT))?;
    let mut to = stream;
    to.write_all(b"ok\n")?;
    loop {
        match pieces.recv_timeout(PROGRESS_TIMEOUT) {
            Ok(piece) => to.write_all(&piece)?,
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
            Err(e @ RecvTimeoutError::Timeout) => return Err(io::Error::other(e)),
        }
        wake();
    }
}

fn ask(to_loop: &SyncSender<Request>, wake: &Wake, request: Request) -> io::Result<()> {
    to_loop.try_send(request).map_err(|_| io::Error::other("the node is busy or stops"))?;
    wake();
    Ok(())
}

/// Asks the node behind the socket at `path` for its status.
///
/// # Errors
/// When it does not run, or does not answer in time.
pub fn status_of(path: &Path) -> io::Result<NodeStatus> {
    Asked::status(path)?.answer(Instant::now() + ANSWER_TIMEOUT)
}

/// Asks the nodes behind all these sockets for their status at the same time; none for those that do
/// not run or do not answer in time. However many hang, it takes no longer than one of them.
pub fn statuses_of(paths: impl IntoIterator<Item = PathBuf>) -> Vec<Option<NodeStatus>> {
    statuses_within(paths, ANSWER_TIMEOUT)
}

fn statuses_within(
    paths: impl IntoIterator<Item = PathBuf>,
    patience: Duration,
) -> Vec<Option<NodeStatus>> {
    let until = Instant::now() + patience;
    let asked: Vec<_> = paths.into_iter().map(|path| Asked::status(&path)).collect();
    asked.into_iter().map(|asked| asked.and_then(|a| a.answer(until)).ok()).collect()
}

/// A node that was asked for its status.
struct Asked(UnixStream);

impl Asked {
    fn status(path: &Path) -> io::Result<Self> {
        let stream = connect(path)?;
        (&stream).write_all(b"status\n")?;
        Ok(Self(stream))
    }

    fn answer(self, until: Instant) -> io::Result<NodeStatus> {
        // What has come already is taken however late it is; no time at all would mean for ever.
        let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        self.0.set_read_timeout(Some(left))?;
        Ok(serde_json::from_reader(&self.0)?)
    }
}

/// Connects to a socket, or fails at once: a node that is stopped and accepts nobody does not hold up
/// whoever asks it.
pub(crate) fn connect(path: &Path) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
    Ok(stream)
}

/// Asks the node behind the socket at `path` for the state that is `wanted`; gives what the state is
/// read from.
///
/// # Errors
/// When it does not run, is not so far, or has none itself.
pub(crate) fn state_of(path: &Path, wanted: &Wanted) -> io::Result<impl Read + use<>> {
    let stream = connect(path)?;
    stream.set_read_timeout(Some(PROGRESS_TIMEOUT))?;
    writeln!(&stream, "{wanted}")?;
    let mut from = BufReader::with_capacity(256 << 10, stream);
    let mut line = String::new();
    (&mut from).take(LINE_BYTES_MAX).read_line(&mut line)?;
    match line.trim_end() {
        "ok" => Ok(from),
        why => Err(io::Error::other(why.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_that_hang_do_not_hold_up_what_the_others_say() {
        let dir = std::env::temp_dir().join(format!("amcast-control-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let path = |n: usize| dir.join(format!("n{n}.sock"));
        // They take connections and never answer.
        let _hung: Vec<_> = (0..20).map(|n| UnixListener::bind(path(n)).unwrap()).collect();
        let serves = UnixListener::bind(path(20)).unwrap();
        let status = NodeStatus {
            name: "n20".to_string(),
            os_pid: 1,
            ready: true,
            why: String::new(),
            replicas: Vec::new(),
            view: None,
            answers_dropped: 0,
            rounds: (0, 0),
        };
        let said = serde_json::to_string(&status).unwrap();
        let node = thread::spawn(move || {
            let (mut stream, _) = serves.accept().unwrap();
            stream.read_exact(&mut [0; b"status\n".len()]).unwrap();
            stream.write_all(said.as_bytes()).unwrap();
        });
        let (begun, patience) = (Instant::now(), Duration::from_millis(500));
        let all = statuses_within((0..22).map(path), patience);
        assert!(begun.elapsed() < 4 * patience, "one after the other");
        node.join().unwrap();
        assert_eq!(all.len(), 22);
        assert_eq!(all[20], Some(status));
        assert_eq!(all.iter().flatten().count(), 1);
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn what_is_wanted_reads_back() {
        for view in [None, Some(7)] {
            let wanted = Wanted { positions: vec![3, 1 << 40], view };
            let text = wanted.to_string();
            let words = text.strip_prefix("state ").unwrap().split_ascii_whitespace();
            assert_eq!(Wanted::parse(words), Some(wanted), "{text}");
        }
        let parse = |text: &str| Wanted::parse(text.split_ascii_whitespace());
        assert_eq!((parse("1 view"), parse("1 x"), parse("-1")), (None, None, None));
    }

    #[test]
    fn a_node_that_takes_no_connections_is_given_up_at_once() {
        let path = std::env::temp_dir().join(format!("amcast-full-{}.sock", std::process::id()));
        let _listener = UnixListener::bind(&path).unwrap();
        let mut held = Vec::new();
        // Until its queue is full: a connection that blocks would wait here for ever.
        while let Ok(stream) = connect(&path) {
            held.push(stream);
            assert!(held.len() < 10_000, "the queue has no end");
        }
        assert!(!held.is_empty());
        std::fs::remove_file(&path).unwrap();
    }
}

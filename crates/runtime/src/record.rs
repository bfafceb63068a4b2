//! Histories of real processes: one file a process, merged by `amcast check DIR`.
//!
//! Lines are buffered and go out whole when the process is idle or the buffer is full. What a killed
//! process had buffered is lost; such a process then looks as if it had died a little earlier.
//!
//! # When there is no more room
//! Where the disk is full, or a process has written as much as it may, recording stops everywhere:
//! whoever finds out leaves the file `stopped` in the directory, and the others look for it. Clients
//! stop last, so that nothing is recorded as delivered that is not recorded as sent. The service goes
//! on. A history that stopped has no `end`, so liveness is not judged on it.

use amcast_core::trace::Event;
use amcast_core::{Cluster, GroupSet, Pid, Role, Span, Time};
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Bytes held back before a write.
const BUFFER_BYTES: usize = 1 << 18;

/// How often a process looks whether another has stopped recording.
const LOOK_EVERY: Span = Span::millis(50);

/// How long a client goes on recording after others have stopped.
const CLIENTS_LATER: Span = Span::secs(2);

/// The bytes that a process may write in all its lives, unless it is told otherwise.
pub const LIMIT_BYTES: u64 = 256 << 20;

/// The file that says how many bytes each process may write.
const LIMIT_FILE: &str = "limit";

/// The file that says that recording has stopped, and why.
const STOPPED_FILE: &str = "stopped";

/// Writes the history of one operating-system process.
#[derive(Debug)]
pub struct Recorder {
    cluster: Cluster,
    dir: PathBuf,
    path: PathBuf,
    file: File,
    /// Whole lines that are not written yet.
    buffer: Vec<u8>,
    /// Bytes that may still be written.
    left: u64,
    state: State,
    is_client: bool,
    look_at: Time,
}

/// Whether it records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Records,
    /// Others have stopped; this one stops at that time.
    Until(Time),
    Stopped,
}

/// Makes the directory of the histories of a run, in which each process may write `limit_bytes`.
///
/// # Errors
/// When it cannot be made, or holds an earlier run: two runs in one directory are no history.
pub fn prepare(dir: &Path, limit_bytes: u64) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name();
        if Path::new(&name).extension().is_some_and(|e| e == "jsonl") || name == STOPPED_FILE {
            let name = name.display();
            let why =
                format!("holds the history of an earlier run ({name}); give another directory");
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
        }
    }
    fs::write(dir.join(LIMIT_FILE), limit_bytes.to_string())
}

/// Why recording in `dir` has stopped, if it has.
pub fn stopped(dir: &Path) -> Option<String> {
    fs::read_to_string(dir.join(STOPPED_FILE)).ok()
}

impl Recorder {
    /// Begins the file `name.N.jsonl` in `dir`, with N the first number that is free: a process
    /// that starts again writes a new file. The file names the hosted processes first; those that
    /// had a file before say that they recovered.
    ///
    /// # Errors
    /// When the directory or file cannot be made.
    pub fn begin(
        dir: &Path,
        name: &str,
        cluster: Cluster,
        hosted: &[Pid],
        now: Time,
    ) -> io::Result<Self> {
        fs::create_dir_all(dir)?;
        let Opened { run, path, file, earlier_bytes } = first_free(dir, name)?;
        let limit = fs::read_to_string(dir.join(LIMIT_FILE)).ok();
        let limit = limit.and_then(|text| text.trim().parse().ok()).unwrap_or(LIMIT_BYTES);
        let is_client = hosted.iter().any(|&p| matches!(cluster.role(p), Role::Client { .. }));
        let state = if stopped(dir).is_some() { State::Stopped } else { State::Records };
        let mut this = Self {
            cluster,
            dir: dir.to_path_buf(),
            path,
            file,
            buffer: Vec::new(),
            left: limit.saturating_sub(earlier_bytes),
            state,
            is_client,
            look_at: now,
        };
        for &p in hosted {
            let groups = cluster.group_of(p).map_or(GroupSet::EMPTY, GroupSet::one);
            match run {
                0 => this.event(&Event::Process { p, groups }),
                _ => this.event(&Event::Recover { t: now, p }),
            }
        }
        Ok(this)
    }

    /// It records what is sent, and so goes on for a while when others have stopped.
    #[must_use]
    pub fn of_senders(mut self) -> Self {
        self.is_client = true;
        self
    }

    /// Adds one event.
    pub fn event(&mut self, event: &Event<'_>) {
        let cluster = self.cluster;
        self.line(format_args!("{}", event.json(&cluster)));
    }

    /// Adds an event of a process that is not of the cluster, as the line that it is.
    pub fn line(&mut self, line: fmt::Arguments<'_>) {
        if self.state == State::Stopped {
            return;
        }
        // Memory takes everything.
        let _ = writeln!(self.buffer, "{line}");
        if self.buffer.len() >= BUFFER_BYTES {
            self.flush();
        }
    }

    /// Whether it still records.
    pub fn records(&self) -> bool {
        self.state != State::Stopped
    }

    /// Writes out what is held back.
    pub fn flush(&mut self) {
        if self.state == State::Stopped {
            return;
        }
        self.look(crate::clock::now());
        if self.buffer.is_empty() || self.state == State::Stopped {
            return;
        }
        let bytes = self.buffer.len() as u64;
        // A client that is over its limit goes on while the others stop.
        if bytes > self.left && self.state == State::Records {
            self.stop("it is as large as it may be (--record-limit)");
        }
        if self.state == State::Stopped {
            return;
        }
        self.left = self.left.saturating_sub(bytes);
        if let Err(e) = self.file.write_all(&self.buffer) {
            self.stop(&e.to_string());
            self.state = State::Stopped;
        }
        self.buffer.clear();
    }

    /// Looks whether others have stopped.
    fn look(&mut self, now: Time) {
        match self.state {
            State::Until(t) if now >= t => self.end(),
            State::Records if now >= self.look_at => {
                self.look_at = now + LOOK_EVERY;
                if stopped(&self.dir).is_some() {
                    self.halt(now);
                }
            }
            _ => {}
        }
    }

    /// A full disk must not stop the service: the history ends, and the log says so, once.
    fn stop(&mut self, why: &str) {
        let (dir, path) = (self.dir.display(), self.path.display());
        tracing::error!("recording in {dir} stops here, the service goes on; {path}: {why}");
        // Where there is no room even for that, the others find out for themselves.
        let told =
            OpenOptions::new().write(true).create_new(true).open(self.dir.join(STOPPED_FILE));
        let _ = told.and_then(|mut file| writeln!(file, "{path}: {why}"));
        self.halt(crate::clock::now());
    }

    fn halt(&mut self, now: Time) {
        if self.is_client {
            self.state = State::Until(now + CLIENTS_LATER);
        } else {
            self.end();
        }
    }

    fn end(&mut self) {
        self.state = State::Stopped;
        self.buffer = Vec::new();
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.flush();
    }
}

/// A new file of a process.
struct Opened {
    run: u32,
    path: PathBuf,
    file: File,
    /// What the files of its earlier lives have.
    earlier_bytes: u64,
}

fn first_free(dir: &Path, name: &str) -> io::Result<Opened> {
    let (mut run, mut earlier_bytes) = (0, 0);
    loop {
        let path = dir.join(format!("{name}.{run}.jsonl"));
        match File::create_new(&path) {
            Ok(file) => return Ok(Opened { run, path, file, earlier_bytes }),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                earlier_bytes += fs::metadata(&path)?.len();
                run += 1;
            }
            Err(e) => return Err(e),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use amcast_core::{Gid, MsgId};

    /// A new directory, and a cluster of one replica and one client.
    fn place(name: &str) -> (PathBuf, Cluster) {
        let dir = std::env::temp_dir().join(format!("amcast-{name}-{}", std::process::id()));
        (dir, Cluster::new(1, 1, 1).unwrap())
    }

    #[test]
    fn a_second_run_says_that_the_process_recovered() {
        let (dir, cluster) = place("record");
        let p = cluster.replica(Gid(0), 0);
        let m = MsgId { sender: cluster.client(0), seq: 4 };
        let mut first = Recorder::begin(&dir, "n0", cluster, &[p], Time(1)).unwrap();
        first.event(&Event::Deliver { t: Time(2), p, m });
        drop(first);
        drop(Recorder::begin(&dir, "n0", cluster, &[p], Time(3)).unwrap());
        let read = |run| fs::read_to_string(dir.join(format!("n0.{run}.jsonl"))).unwrap();
        assert_eq!(
            read(0),
            "{\"ev\":\"process\",\"p\":\"g0/r0\",\"groups\":[\"g0\"]}\n\
             {\"ev\":\"deliver\",\"t\":2,\"p\":\"g0/r0\",\"m\":\"c0:4\"}\n"
        );
        assert_eq!(read(1), "{\"ev\":\"recover\",\"t\":3,\"p\":\"g0/r0\"}\n");
        let again = prepare(&dir, 1).unwrap_err();
        assert!(again.to_string().contains("earlier run (n0."), "{again}");
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn the_limit_of_one_process_stops_all_and_the_clients_last() {
        let (dir, cluster) = place("limit");
        prepare(&dir, 400).unwrap();
        let (p, c) = (cluster.replica(Gid(0), 0), cluster.client(0));
        let begin = |name, pid| Recorder::begin(&dir, name, cluster, &[pid], Time(0)).unwrap();
        let (mut node, mut client) = (begin("n0", p), begin("c0", c));
        let mut cast = |seq| {
            let m = MsgId { sender: c, seq };
            client.event(&Event::Cast { t: Time(seq), p: c, m, dst: GroupSet::one(Gid(0)) });
            client.flush();
            node.event(&Event::Deliver { t: Time(seq), p, m });
            node.flush();
            (client.records(), node.records())
        };
        let both: Vec<_> = (1..30).map(&mut cast).collect();
        assert_eq!(both[0], (true, true));
        assert_eq!(both[28], (true, false));
        assert!(stopped(&dir).is_some_and(|why| why.contains("--record-limit")));
        let lines = |name: &str| {
            let text = fs::read_to_string(dir.join(format!("{name}.0.jsonl"))).unwrap();
            assert!(text.ends_with("}\n"), "{text}");
            text.lines().count()
        };
        assert!(lines("c0") > lines("n0"), "{} casts, {} deliveries", lines("c0"), lines("n0"));
        // A life that begins later writes nothing, not even into a file with room.
        drop(begin("n1", p));
        assert_eq!(lines_of(&dir.join("n1.0.jsonl")), 0);
        fs::remove_dir_all(&dir).unwrap();
    }

    fn lines_of(path: &Path) -> usize {
        fs::read_to_string(path).unwrap().lines().count()
    }

    #[test]
    fn a_full_disk_ends_the_history_and_nothing_else() {
        let (dir, cluster) = place("full");
        let p = cluster.replica(Gid(0), 0);
        let mut recorder = Recorder::begin(&dir, "n0", cluster, &[p], Time(0)).unwrap();
        // Writing there always says that there is no room.
        recorder.file = OpenOptions::new().write(true).open("/dev/full").unwrap();
        recorder.flush();
        assert!(!recorder.records());
        assert!(stopped(&dir).is_some_and(|why| why.contains("No space")));
        recorder.event(&Event::Crash { t: Time(1), p });
        assert!(recorder.buffer.is_empty());
        fs::remove_dir_all(&dir).unwrap();
    }
}

//! Histories of real processes: one file a process, merged by `amcast check DIR`.
//!
//! Lines are buffered and go out whole when the process is idle or the buffer is full. The buffered
//! lines of a killed process are lost; such a process then looks as if it had died a little
//! earlier.
//!
//! # When there is no more room
//! Where the disk is full, or a process has written nearly as much as it may, recording stops at one
//! moment everywhere: the first process to notice names that moment in the file `stopped` in the
//! directory, a little ahead, so that all have seen it by then. The record then has all events up to
//! there: every delivered message has its multicast. A process passes its limit only if it records
//! more than [`RESERVE_BYTES`], or half of its limit, within that little while ([`NOTICE`]). The
//! service continues. A history that stopped has no `end`, so liveness is not judged on it.
//!
//! The record holds clients' data, so only its owner can read it.

use amcast_core::trace::TraceEvent;
use amcast_core::{ClusterShape, GroupSet, Overlay, Pid, Span, Time};
use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Bytes held back before a write.
const BUFFER_BYTES: usize = 1 << 18;

/// How long before the end of recording it is announced.
const NOTICE: Span = Span::millis(25);

/// The interval at which a process checks for the announcement: several times in that while.
const LOOK_EVERY: Span = Span::millis(2);

/// The part of its limit that a process reserves for that while.
const RESERVE_BYTES: u64 = 1 << 20;

/// The permissions of the record: its owner may read it.
const FILE_MODE: u32 = 0o600;
const DIR_MODE: u32 = 0o700;

/// The bytes that a process may write in all its incarnations, by default.
pub const LIMIT_BYTES: u64 = 256 << 20;

/// The file that says how many bytes each process may write.
const LIMIT_FILE: &str = "limit";

/// The file that says when recording stops, in nanoseconds of the clock of events, and, in the next
/// line, why.
const STOPPED_FILE: &str = "stopped";

/// The file that names those of all processes, a line each: one that is missing later is missed by its reader.
const NAMES_FILE: &str = "files";

/// In the line of a process that began with a state from before the history.
pub(crate) const RESTORED: &str = "\"restored\":true";

/// Writes the history of one operating-system process.
#[derive(Debug)]
pub struct HistoryRecorder {
    cluster: ClusterShape,
    dir: PathBuf,
    path: PathBuf,
    file: File,
    /// Which file of the process it is, from 0.
    run: u32,
    /// Whole lines that are not written yet.
    buffer: Vec<u8>,
    /// Bytes that are held back before a write.
    buffer_bytes: usize,
    /// Bytes that may still be written before recording is to stop.
    left: u64,
    state: RecordingState,
    look_at: Time,
}

/// Whether it records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum RecordingState {
    Records,
    /// Events later than this are not recorded any more.
    Until(Time),
    Stopped,
}

/// Makes the directory of the histories of a run, in which each process may write `limit_bytes`. One
/// that is made is its owner's alone; one that is there stays as it is.
///
/// # Errors
/// When it cannot be made, or holds an earlier run: two runs in one directory are no history.
pub fn prepare(dir: &Path, limit_bytes: u64) -> io::Result<()> {
    make(dir).map_err(|e| match e.kind() {
        io::ErrorKind::AlreadyExists => io::Error::new(e.kind(), "is not a directory"),
        _ => e,
    })?;
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name();
        if Path::new(&name).extension().is_some_and(|e| e == "jsonl") || name == STOPPED_FILE {
            let name = name.display();
            let why =
                format!("holds the history of an earlier run ({name}); give another directory");
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
        }
    }
    // Of a run whose files are gone.
    match fs::remove_file(dir.join(NAMES_FILE)) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let path = dir.join(LIMIT_FILE);
    // It may be there, from a run that recorded nothing.
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(FILE_MODE).open(path)?;
    file.write_all(limit_bytes.to_string().as_bytes())
}

/// The names of the files that processes began to write in `dir`, whether they are still there or not, in order; none
/// where the program that wrote them noted none.
///
/// # Errors
/// When that cannot be read.
pub fn file_names(dir: &Path) -> io::Result<Vec<String>> {
    match fs::read(dir.join(NAMES_FILE)) {
        Ok(text) => Ok(String::from_utf8_lossy(&text).lines().map(str::to_string).collect()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(e) => Err(e),
    }
}

/// Notes the name of a file that is there, in one write: other processes do the same.
fn note_name(dir: &Path, name: &str) -> io::Result<()> {
    let path = dir.join(NAMES_FILE);
    let mut names = OpenOptions::new().append(true).create(true).mode(FILE_MODE).open(path)?;
    names.write_all(format!("{name}\n").as_bytes())
}

/// Makes a directory, if there is none.
fn make(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(DIR_MODE).create(dir)
}

/// Makes a new file.
fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(path)
}

/// Why recording in `dir` has stopped, or is about to, if so.
pub fn stopped(dir: &Path) -> Option<String> {
    stops(dir).map(|(_, why)| why)
}

/// When recording in `dir` stops, and why.
fn stops(dir: &Path) -> Option<(Time, String)> {
    let text = fs::read_to_string(dir.join(STOPPED_FILE)).ok()?;
    let (at, why) = text.split_once('\n').unwrap_or(("", &text));
    // A process that cannot read the time stops at once.
    Some((Time(at.parse().unwrap_or(0)), why.trim_end().to_string()))
}

impl HistoryRecorder {
    /// Begins the file `name.N.jsonl` in `dir`, with N the first number that is free: a process
    /// that starts again writes a new file. The file names the hosted processes first; those that
    /// had a file before say that they recovered.
    ///
    /// # Errors
    /// When the directory or file cannot be made.
    pub fn begin(
        dir: &Path,
        name: &str,
        cluster: ClusterShape,
        hosted: &[Pid],
        now: Time,
    ) -> io::Result<Self> {
        Self::begin_in(dir, name, cluster, hosted, None, now)
    }

    /// As [`HistoryRecorder::begin`], where the groups of the hosted processes are arranged in a tree: the file
    /// names their parents.
    ///
    /// # Errors
    /// When the directory or file cannot be made.
    pub fn begin_in(
        dir: &Path,
        name: &str,
        cluster: ClusterShape,
        hosted: &[Pid],
        overlay: Option<&Overlay>,
        now: Time,
    ) -> io::Result<Self> {
        make(dir)?;
        let HistoryFile { run, path, file, earlier_bytes } = first_free(dir, name)?;
        if let Err(e) = note_name(dir, &format!("{name}.{run}.jsonl")) {
            tracing::warn!("{}: {e}; if it goes missing, nothing tells", path.display());
        }
        let limit = fs::read_to_string(dir.join(LIMIT_FILE)).ok();
        let limit = limit.and_then(|text| text.trim().parse().ok()).unwrap_or(LIMIT_BYTES);
        let state = match stops(dir) {
            Some((at, _)) if at <= now => RecordingState::Stopped,
            Some((at, _)) => RecordingState::Until(at),
            None => RecordingState::Records,
        };
        let (reserve, buffer_bytes) = ((limit / 2).min(RESERVE_BYTES), limit / 16);
        let mut this = Self {
            cluster,
            dir: dir.to_path_buf(),
            path,
            file,
            run,
            buffer: Vec::new(),
            buffer_bytes: BUFFER_BYTES.min(buffer_bytes as usize),
            left: limit.saturating_sub(earlier_bytes + reserve),
            state,
            look_at: now,
        };
        for &p in hosted {
            let groups = cluster.group_of(p).map_or(GroupSet::EMPTY, GroupSet::one);
            match run {
                0 => {
                    let process = TraceEvent::Process { p, groups };
                    this.line(at(&process), format_args!("{}", process.json_in(&cluster, overlay)));
                }
                _ => this.event(&TraceEvent::Recover { t: now, p }),
            }
        }
        // Others tell of this process, also of one that is killed before it tells anything more.
        this.write();
        Ok(this)
    }

    /// Whether this is the first file of the process.
    pub(crate) const fn is_first(&self) -> bool {
        self.run == 0
    }

    /// Says that `p` began with a state from before the history, which is in the file when this returns.
    pub(crate) fn restored(&mut self, p: Pid) {
        let groups = self.cluster.group_of(p).map_or(GroupSet::EMPTY, GroupSet::one);
        let process = TraceEvent::Process { p, groups }.json(&self.cluster).to_string();
        let fields = process.trim_end_matches('}');
        self.line(Time::ZERO, format_args!("{fields},{RESTORED}}}"));
        self.write();
    }

    /// Adds one event.
    pub fn event(&mut self, event: &TraceEvent<'_>) {
        let cluster = self.cluster;
        self.line(at(event), format_args!("{}", event.json(&cluster)));
    }

    /// Adds what happened at `t`, as the line that it is. To be called before anyone can know that
    /// it happened.
    pub fn line(&mut self, t: Time, line: fmt::Arguments<'_>) {
        if t >= self.look_at {
            self.look(t);
        }
        match self.state {
            RecordingState::Records => {}
            RecordingState::Until(end) if t <= end => {}
            RecordingState::Until(_) => return self.end(),
            RecordingState::Stopped => return,
        }
        // Memory takes everything.
        let _ = writeln!(self.buffer, "{line}");
        if self.buffer.len() >= self.buffer_bytes {
            self.flush();
        }
    }

    /// Whether it still records.
    pub fn records(&self) -> bool {
        self.state != RecordingState::Stopped
    }

    /// Writes out what is held back.
    pub fn flush(&mut self) {
        if self.state == RecordingState::Stopped {
            return;
        }
        let now = crate::clock::now();
        if now >= self.look_at {
            self.look(now);
        }
        self.write();
        match self.state {
            RecordingState::Until(end) if now > end => self.end(),
            _ => {}
        }
    }

    fn write(&mut self) {
        let bytes = self.buffer.len() as u64;
        if bytes > self.left && self.state == RecordingState::Records {
            self.stop("it is as large as it may be (--record-limit)");
        }
        if bytes == 0 || self.state == RecordingState::Stopped {
            return;
        }
        self.left = self.left.saturating_sub(bytes);
        if let Err(e) = self.file.write_all(&self.buffer) {
            self.stop(&e.to_string());
            self.state = RecordingState::Stopped;
        }
        self.buffer.clear();
    }

    /// Checks for the announcement that recording stops.
    fn look(&mut self, now: Time) {
        self.look_at = now + LOOK_EVERY;
        if self.state == RecordingState::Records
            && let Some((at, _)) = stops(&self.dir)
        {
            self.state = RecordingState::Until(at);
        }
    }

    /// Has recording stop everywhere. A full disk must not stop the service: the history ends, and
    /// the log says so, once.
    fn stop(&mut self, why: &str) {
        let (dir, path) = (self.dir.display(), self.path.display());
        tracing::error!("recording in {dir} stops here, the service continues; {path}: {why}");
        // Where there is no room even for that, the others find out for themselves.
        let _ = announce(&self.dir, &self.path, why);
        // Another may have been quicker.
        let at = stops(&self.dir).map_or_else(crate::clock::now, |(at, _)| at);
        self.state = RecordingState::Until(at);
    }

    fn end(&mut self) {
        self.write();
        self.state = RecordingState::Stopped;
        self.buffer = Vec::new();
    }
}

/// Announces in `dir` when recording stops, unless that was done; `path` is the file that cannot be
/// continued. Nobody sees half of it.
fn announce(dir: &Path, path: &Path, why: &str) -> io::Result<()> {
    let draft = path.with_extension("stops");
    let mut file = create(&draft)?;
    let at = crate::clock::now() + NOTICE;
    let written = file.write_all(format!("{}\n{}: {why}\n", at.0, path.display()).as_bytes());
    let said = written.and_then(|()| fs::hard_link(&draft, dir.join(STOPPED_FILE)));
    said.and(fs::remove_file(&draft))
}

/// When an event was; those without a time belong to the beginning.
fn at(event: &TraceEvent<'_>) -> Time {
    match *event {
        TraceEvent::Process { .. } | TraceEvent::End => Time::ZERO,
        TraceEvent::Cast { t, .. }
        | TraceEvent::Part { t, .. }
        | TraceEvent::Overlay { t, .. }
        | TraceEvent::Deliver { t, .. }
        | TraceEvent::Early { t, .. }
        | TraceEvent::Crash { t, .. }
        | TraceEvent::Leave { t, .. }
        | TraceEvent::Recover { t, .. }
        | TraceEvent::View { t, .. }
        | TraceEvent::Call { t, .. }
        | TraceEvent::Return { t, .. } => t,
    }
}

impl Drop for HistoryRecorder {
    fn drop(&mut self) {
        self.flush();
    }
}

/// A new file of a process.
struct HistoryFile {
    run: u32,
    path: PathBuf,
    file: File,
    /// The bytes in the files of its earlier incarnations.
    earlier_bytes: u64,
}

fn first_free(dir: &Path, name: &str) -> io::Result<HistoryFile> {
    let (mut run, mut earlier_bytes) = (0, 0);
    loop {
        let path = dir.join(format!("{name}.{run}.jsonl"));
        match create(&path) {
            Ok(file) => return Ok(HistoryFile { run, path, file, earlier_bytes }),
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
    use std::os::unix::fs::PermissionsExt;

    /// A new directory, and a cluster of one replica and one client.
    fn place(name: &str) -> (PathBuf, ClusterShape) {
        let dir = std::env::temp_dir().join(format!("amcast-{name}-{}", std::process::id()));
        (dir, ClusterShape::new(1, 1, 1).unwrap())
    }

    #[test]
    fn a_second_run_says_that_the_process_recovered() {
        let (dir, cluster) = place("record");
        let p = cluster.replica(Gid(0), 0);
        let m = MsgId { sender: cluster.client(0), seq: 4 };
        let mut first = HistoryRecorder::begin(&dir, "n0", cluster, &[p], Time(1)).unwrap();
        first.event(&TraceEvent::Deliver { t: Time(2), p, m });
        drop(first);
        drop(HistoryRecorder::begin(&dir, "n0", cluster, &[p], Time(3)).unwrap());
        assert_eq!(file_names(&dir).unwrap(), ["n0.0.jsonl", "n0.1.jsonl"]);
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
    fn the_limit_of_one_process_stops_all_at_one_moment_before_it_is_passed() {
        let (dir, cluster) = place("limit");
        prepare(&dir, 4_000).unwrap();
        let (p, c) = (cluster.replica(Gid(0), 0), cluster.client(0));
        let begun = crate::clock::now();
        let begin = |name, pid| HistoryRecorder::begin(&dir, name, cluster, &[pid], begun).unwrap();
        let (mut node, mut client) = (begin("n0", p), begin("c0", c));
        let mut seq = 0;
        while node.records() || client.records() {
            let (t, m) = (crate::clock::now(), MsgId { sender: c, seq });
            client.event(&TraceEvent::Cast { t, p: c, m, dst: GroupSet::one(Gid(0)) });
            // A node is not as quick as it might be.
            let t = crate::clock::now();
            node.event(&TraceEvent::Deliver { t, p, m });
            seq += 1;
            if client.state != RecordingState::Records {
                // The rest is for events before the end.
                while crate::clock::now().since(t) < Span::millis(2) {}
            }
        }
        assert!(stopped(&dir).is_some_and(|why| why.contains("--record-limit")));
        let (end, _) = stops(&dir).unwrap();
        let read = |name: &str| {
            let path = dir.join(format!("{name}.0.jsonl"));
            let meta = fs::metadata(&path).unwrap();
            assert!(meta.len() <= 4_000, "{name} has {} bytes", meta.len());
            assert_eq!(meta.permissions().mode() & 0o777, 0o600);
            let text = fs::read_to_string(path).unwrap();
            assert!(text.ends_with("}\n"), "{text}");
            text
        };
        let messages = |text: &str| -> Vec<String> {
            let of =
                |line: &str| line.split("\"m\":\"").nth(1)?.split('"').next().map(String::from);
            text.lines().filter_map(of).collect()
        };
        let (casts, deliveries) = (messages(&read("c0")), messages(&read("n0")));
        assert!(deliveries.len() > 20, "{} deliveries", deliveries.len());
        assert!(deliveries.iter().all(|m| casts.contains(m)), "what was not sent");
        for line in read("n0").lines().chain(read("c0").lines()).filter(|l| l.contains("\"t\"")) {
            let t = line.split("\"t\":").nth(1).unwrap().split(',').next().unwrap();
            assert!(t.parse::<u64>().unwrap() <= end.0, "{line} is later than {end:?}");
        }
        // A life that begins later writes nothing, not even into a file with room.
        drop(HistoryRecorder::begin(&dir, "n1", cluster, &[p], crate::clock::now()).unwrap());
        assert_eq!(lines_of(&dir.join("n1.0.jsonl")), 0);
        assert_eq!(fs::metadata(&dir).unwrap().permissions().mode() & 0o777, 0o700);
        fs::remove_dir_all(&dir).unwrap();
    }

    fn lines_of(path: &Path) -> usize {
        fs::read_to_string(path).unwrap().lines().count()
    }

    #[test]
    fn a_full_disk_ends_the_history_and_nothing_else() {
        let (dir, cluster) = place("full");
        let p = cluster.replica(Gid(0), 0);
        let mut recorder = HistoryRecorder::begin(&dir, "n0", cluster, &[p], Time(0)).unwrap();
        // Writing there always says that there is no room.
        recorder.file = OpenOptions::new().write(true).open("/dev/full").unwrap();
        recorder.event(&TraceEvent::Crash { t: Time(1), p });
        recorder.flush();
        assert!(!recorder.records());
        assert!(stopped(&dir).is_some_and(|why| why.contains("No space")));
        recorder.event(&TraceEvent::Crash { t: Time(1), p });
        assert!(recorder.buffer.is_empty());
        fs::remove_dir_all(&dir).unwrap();
    }
}

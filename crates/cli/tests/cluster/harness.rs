//! A cluster of real processes for one test.

use amcast::client::{Answer, Connection};
use amcast::memory::Directory;
use amcast::node::control::NodeStatus;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{LazyLock, Once};
use std::time::{Duration, Instant};
use std::{env, fs, io};

/// The program.
pub(crate) const AMCAST: &str = env!("CARGO_BIN_EXE_amcast");

/// How long anything here may take. A machine with much else to do takes long.
const PATIENCE: Duration = Duration::from_secs(60);

/// The prefix of tests' paths.
const PREFIX: &str = "amcast-test-";

/// A path that no other test has, in memory.
pub(crate) fn unique(name: &str) -> PathBuf {
    static FIRST: Once = Once::new();
    FIRST.call_once(remove_what_killed_tests_left);
    Directory::usual_base().join(unique_name(name))
}

fn unique_name(name: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{PREFIX}{name}-{}-{n}", std::process::id())
}

/// Removes the paths in memory of tests whose program is gone: one that was killed could not.
fn remove_what_killed_tests_left() {
    for path in left_by_killed_tests(&Directory::usual_base(), "") {
        // Another test may be doing the same.
        let _ = fs::remove_dir_all(&path).or_else(|_| fs::remove_file(&path));
    }
}

/// The paths in the directory `base` of tests whose program is gone, with names that begin with `name`.
pub(crate) fn left_by_killed_tests(base: &Path, name: &str) -> Vec<PathBuf> {
    let is_left = |path: &PathBuf| {
        let file = path.file_name().and_then(OsStr::to_str);
        let of = file.and_then(|file| file.strip_prefix(PREFIX)).filter(|of| of.starts_with(name));
        let os_pid = of.and_then(|of| of.rsplit('-').nth(1)?.parse().ok());
        os_pid.is_some_and(|os_pid| !runs(os_pid))
    };
    let entries = fs::read_dir(base).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(is_left).collect()
}

/// A directory for a history, in the temporary directory. It goes with the test, unless that failed:
/// then it is kept, and named.
pub(crate) struct Record(PathBuf);

impl Record {
    pub(crate) fn new(name: &str) -> Self {
        Self(env::temp_dir().join(unique_name(name)))
    }
}

impl Deref for Record {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return eprintln!("the history is kept: amcast check {}", self.0.display());
        }
        fs::remove_dir_all(&self.0).expect("a history was recorded");
    }
}

/// A program that ends with the thread that starts it, where the system can see to that: a test that is
/// killed leaves nothing behind.
pub(crate) fn ends_with_us(program: &str) -> Command {
    static CAN: LazyLock<bool> = LazyLock::new(|| {
        let mut tried = Command::new("setpriv");
        tried.args(["--pdeathsig", "KILL", "--", "true"]);
        tried.status().is_ok_and(|status| status.success())
    });
    if !*CAN {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--", program]);
    command
}

/// Runs the program to its end.
pub(crate) fn run(args: &[&str]) -> Output {
    Command::new(AMCAST).args(args).output().expect("the program can be started")
}

/// TRAM with small rings, unless a test names a protocol.
fn small_rings(more: &[&str]) -> &'static [&'static str] {
    let rings = &["--protocol", "tram", "--set", "hm_lines=4096", "--set", "log_lines=16384"];
    if more.contains(&"--protocol") { &[] } else { rings }
}

/// A running cluster. Dropping it ends it.
pub(crate) struct UpCluster {
    child: Child,
    pub(crate) data: PathBuf,
    pub(crate) redis: String,
    pub(crate) log: String,
    pub(crate) http: String,
    nodes: usize,
    _stdout: BufReader<ChildStdout>,
}

impl UpCluster {
    /// Starts a cluster with small rings on free ports, and waits for its line.
    pub(crate) fn start(more: &[&str]) -> Self {
        Self::start_in(unique("up"), more)
    }

    /// The same, in the directory `data`.
    pub(crate) fn start_in(data: PathBuf, more: &[&str]) -> Self {
        Self::start_in_bare(data, &[small_rings(more), more].concat())
    }

    /// Starts a cluster on free ports in the directory `data`, and chooses nothing else.
    pub(crate) fn start_in_bare(data: PathBuf, more: &[&str]) -> Self {
        Self::start_with(data, more, Stdio::inherit())
    }

    /// The same, with this as its standard error.
    pub(crate) fn start_with(data: PathBuf, more: &[&str], stderr: Stdio) -> Self {
        Self::start_command(ends_with_us(AMCAST), data, more, stderr)
    }

    /// The same by another program, such as `env`, which is given the command behind these words.
    pub(crate) fn start_under(under: &[&str], data: PathBuf, more: &[&str]) -> Self {
        let mut command = ends_with_us(under[0]);
        command.args(&under[1..]).arg(AMCAST);
        Self::start_command(command, data, more, Stdio::inherit())
    }

    fn start_command(mut command: Command, data: PathBuf, more: &[&str], stderr: Stdio) -> Self {
        let mut child = command
            .args(["up", "--redis-port", "0", "--log-port", "0", "--http-port", "0", "--data"])
            .arg(&data)
            .args(more)
            .stdout(Stdio::piped())
            .stderr(stderr)
            .spawn()
            .expect("the program can be started");
        let mut stdout = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut line = String::new();
        stdout.read_line(&mut line).expect("standard output can be read");
        let fields: Vec<_> = line.split_whitespace().collect();
        let [word, redis, log, http] = fields[..] else { panic!("not the ready line: {line:?}") };
        assert_eq!(word, "ready");
        for (field, name) in [(redis, "redis="), (log, "log="), (http, "http=")] {
            let at = field.strip_prefix(name).unwrap_or_else(|| panic!("{field} for {name}"));
            assert!(at.starts_with("127.0.0.1:") && !at.ends_with(":0"), "{line:?}");
        }
        let (redis, http) = (redis["redis=".len()..].into(), http["http=".len()..].into());
        let log = log["log=".len()..].into();
        // As many nodes as replicas, three by default.
        let replicas = more.iter().position(|&m| m == "--replicas").map(|at| more[at + 1]);
        let nodes = replicas.map_or(3, |n| n.parse().expect("a number of replicas"));
        Self { child, data, redis, log, http, nodes, _stdout: stdout }
    }

    /// A new connection to its store.
    pub(crate) fn connect(&self) -> Connection {
        Connection::open(&self.redis).expect("the gateway listens")
    }

    /// The Redis ports of its nodes.
    pub(crate) fn node_gateways(&self) -> Vec<String> {
        let status = run(&["status", "--data", &self.data.display().to_string()]);
        let text = String::from_utf8(status.stdout).expect("text");
        let words = text.split_whitespace().filter_map(|word| word.strip_prefix("redis="));
        let mut gateways: Vec<String> =
            words.filter(|at| *at != self.redis).map(str::to_string).collect();
        gateways.dedup();
        assert_eq!(gateways.len(), self.nodes, "{text}");
        gateways
    }

    /// The status of each node.
    pub(crate) fn nodes(&self) -> Vec<Option<NodeStatus>> {
        let socket = |n| self.data.join(format!("n{n}.sock"));
        (0..self.nodes).map(|n| amcast::node::control::status_of(&socket(n)).ok()).collect()
    }

    /// Kills a node as `kill -9` does; returns its number in the operating system.
    pub(crate) fn kill(&self, node: usize) -> u32 {
        self.kill_all(&[node])[0].1
    }

    /// Kills several nodes at once; each with the number it had in the operating system.
    pub(crate) fn kill_all(&self, nodes: &[usize]) -> Vec<(usize, u32)> {
        let status = self.nodes();
        let os_pid = |n: usize| status[n].as_ref().expect("the node answers").os_pid;
        let killed: Vec<_> = nodes.iter().map(|&n| (n, os_pid(n))).collect();
        for &(_, os_pid) in &killed {
            signal(os_pid, rustix::process::Signal::KILL);
        }
        killed
    }

    /// Waits until every node is a full member, `node` as another process than `before`.
    pub(crate) fn wait_for_return(&self, node: usize, before: u32) {
        let begun = Instant::now();
        loop {
            let nodes = self.nodes();
            let ready = nodes.iter().all(|n| n.as_ref().is_some_and(|n| n.ready));
            if ready && nodes[node].as_ref().is_some_and(|n| n.os_pid != before) {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "n{node} does not come back: {nodes:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until every node is a full member.
    pub(crate) fn wait_until_ready(&self) {
        let begun = Instant::now();
        while !self.nodes().iter().all(|n| n.as_ref().is_some_and(|n| n.ready)) {
            assert!(begun.elapsed() < PATIENCE, "not ready: {:?}", self.nodes());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// The output of `amcast status --json`.
    pub(crate) fn status(&self) -> serde_json::Value {
        let output = run(&["status", "--json", "--data", &self.data.display().to_string()]);
        serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|e| panic!("{e}: {}", errors(&output)))
    }

    /// Fetches a page of the supervisor: the whole answer, with its head.
    pub(crate) fn page(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(&self.http).expect("the status page is there");
        let ask = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(ask.as_bytes()).expect("it takes a request");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        answer
    }

    /// Asks it to stop; its exit code.
    pub(crate) fn stop(&mut self) -> Option<i32> {
        signal(self.child.id(), rustix::process::Signal::TERM);
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("it is a child of ours") {
                return status.code();
            }
            assert!(begun.elapsed() < PATIENCE, "the cluster does not stop");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Its number in the operating system.
    pub(crate) fn os_pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for UpCluster {
    fn drop(&mut self) {
        let failed = std::thread::panicking();
        if failed {
            match keep_logs(&self.data) {
                Ok(to) => eprintln!("the logs of the nodes are kept in {}", to.display()),
                Err(e) => eprintln!("the logs in {} are not kept: {e}", self.data.display()),
            }
        }
        // It may have ended already; then there is nothing to end.
        if matches!(self.child.try_wait(), Ok(None)) {
            signal(self.child.id(), rustix::process::Signal::TERM);
            let _ = self.child.wait();
        }
        if failed {
            // A test that fails does not get to where it does so itself.
            let _ = fs::remove_dir_all(&self.data);
        }
    }
}

/// Copies the logs of a cluster's nodes to the temporary directory; where they are there.
fn keep_logs(data: &Path) -> io::Result<PathBuf> {
    let to = env::temp_dir().join(unique_name("logs"));
    fs::create_dir(&to)?;
    for entry in fs::read_dir(data)? {
        let (from, name) = entry.map(|e| (e.path(), e.file_name()))?;
        if from.extension().is_some_and(|end| end == "log") {
            fs::copy(from, to.join(name))?;
        }
    }
    Ok(to)
}

/// Sends a signal to a process that this test started.
pub(crate) fn signal(os_pid: u32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(os_pid as i32).expect("a process has a number");
    rustix::process::kill_process(pid, signal).expect("the process is ours");
}

/// Whether a process still runs.
pub(crate) fn runs(os_pid: u32) -> bool {
    let mut stat = String::new();
    let file = std::fs::File::open(format!("/proc/{os_pid}/stat"));
    file.and_then(|mut f| f.read_to_string(&mut stat)).is_ok() && !stat.contains(") Z ")
}

/// Says stop when it goes out of scope, also when that is because of a panic: threads that run
/// until this is set would else be joined in vain.
pub(crate) struct StopOnDrop<'a>(pub(crate) &'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Waits until something has happened more often than that. On a machine that has much else to do, a while
/// may be too short for it.
pub(crate) fn wait_for_more_than(least: u64, happened: &AtomicU64) {
    let begun = Instant::now();
    while happened.load(Ordering::Relaxed) <= least {
        let now = happened.load(Ordering::Relaxed);
        assert!(begun.elapsed() < PATIENCE, "it happened {now} times only, not {least}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Calls the store with words.
pub(crate) fn call(connection: &mut Connection, words: &[&str]) -> Answer {
    let words: Vec<&[u8]> = words.iter().map(|w| w.as_bytes()).collect();
    connection.call(&words).expect("the gateway answers")
}

/// An answer of bytes.
pub(crate) fn bytes(text: &str) -> Answer {
    Answer::Bytes(text.as_bytes().to_vec())
}

/// Waits until these processes are gone.
pub(crate) fn wait_until_gone(os_pids: &[u32]) {
    let begun = Instant::now();
    while os_pids.iter().any(|&p| runs(p)) {
        assert!(begun.elapsed() < PATIENCE, "processes stay: {os_pids:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Text of standard error.
pub(crate) fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Whether a path is there.
pub(crate) fn exists(path: &Path) -> bool {
    path.exists()
}

//! A long test of the program as it is shipped: clusters under load whose nodes are killed with
//! `kill -9`, round after round. Nothing that was acknowledged may be lost, no node may panic, and the
//! recorded history must be in order, judged by `amcast check`.

use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How long nodes are killed in a round. A history of it is judged in seconds.
const ROUND: Duration = Duration::from_secs(20);

/// How long a cluster serves between two kills.
const PEACE: Duration = Duration::from_millis(500);

/// How long anything may take: a start, a return, a stop, an answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// Clients that write.
const WRITERS: usize = 6;

/// How long a writer rests between two commands: histories are to be judged, not to be large.
const REST: Duration = Duration::from_millis(2);

/// Shapes that take turns: shards and replicas.
const SHAPES: [(usize, usize); 3] = [(3, 3), (5, 5), (1, 3)];

/// Runs rounds until `time` is over. Where a round fails its files are kept.
///
/// # Errors
/// The first round that failed, with what was wrong and where its files are.
pub fn run(program: &Path, time: Duration) -> Result<(), String> {
    let begun = Instant::now();
    let mut kills = 0;
    for round in 0.. {
        if begun.elapsed() >= time {
            println!("torture: {round} rounds, {kills} kills, nothing lost, all in order");
            break;
        }
        let dir =
            std::env::temp_dir().join(format!("amcast-torture-{}-{round}", std::process::id()));
        fs::create_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
        let (shards, replicas) = SHAPES[round % SHAPES.len()];
        let told = one(program, &dir, shards, replicas).map_err(|why| {
            format!("round {round}: {why}\nits files are kept in {}", dir.display())
        })?;
        println!("round {round}: {shards} shards, {replicas} replicas: {told}");
        kills += told.kills;
        fs::remove_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    }
    Ok(())
}

/// The counts of a successful round.
struct RoundReport {
    kills: usize,
    written: usize,
    unknown: usize,
    judged: String,
}

impl std::fmt::Display for RoundReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { kills, written, unknown, judged } = self;
        write!(f, "{kills} kills, {written} writes acknowledged, {unknown} unknown; {judged}")
    }
}

fn one(program: &Path, dir: &Path, shards: usize, replicas: usize) -> Result<RoundReport, String> {
    let up = TortureCluster::start(program, dir, shards, replicas)?;
    let stop = AtomicBool::new(false);
    let (kills, wrote) = thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (redis, stop) = (&up.redis, &stop);
                scope.spawn(move || write_until(redis, writer, stop))
            })
            .collect();
        let kills = kill_for(&up, replicas);
        stop.store(true, Ordering::Relaxed);
        let wrote: Vec<_> = writers.into_iter().map(|w| w.join().expect("a writer ends")).collect();
        (kills, wrote)
    });
    let kills = kills?;
    let (mut acked, mut unknown) = (BTreeMap::new(), 0);
    for result in wrote {
        let (own, failed) = result.map_err(|e| format!("a client: {e}"))?;
        acked.extend(own);
        unknown += failed;
    }
    lost(&up.redis, &acked)?;
    up.stop()?;
    panics(dir)?;
    let judged = judge(program, &dir.join("history"))?;
    if kills < 2 || acked.len() < 100 {
        return Err(format!("only {kills} kills and {} writes: nothing was tried", acked.len()));
    }
    Ok(RoundReport { kills, written: acked.len(), unknown, judged })
}

/// A running cluster.
struct TortureCluster {
    child: Child,
    program: PathBuf,
    data: PathBuf,
    redis: String,
}

impl TortureCluster {
    fn start(program: &Path, dir: &Path, shards: usize, replicas: usize) -> Result<Self, String> {
        let data = dir.join("data");
        let errors = File::create(dir.join("errors")).map_err(|e| e.to_string())?;
        let mut child = Command::new(program)
            .args(["up", "--redis-port", "0", "--log-port", "0", "--http-port", "0"])
            .args(["--shards", &shards.to_string(), "--replicas", &replicas.to_string()])
            .args(["--set", "hm_lines=4096", "--set", "log_lines=16384"])
            .arg("--data")
            .arg(&data)
            .arg("--record")
            .arg(dir.join("history"))
            .stdout(Stdio::piped())
            .stderr(errors)
            .spawn()
            .map_err(|e| format!("{}: {e}", program.display()))?;
        let mut line = String::new();
        let out = child.stdout.take().expect("it is piped");
        BufReader::new(out).read_line(&mut line).map_err(|e| e.to_string())?;
        let redis = line.split_whitespace().find_map(|word| word.strip_prefix("redis="));
        let redis =
            redis.ok_or_else(|| format!("`amcast up` did not say where it serves: {line:?}"));
        let redis = redis.map(str::to_string);
        let program = program.to_path_buf();
        match redis {
            Ok(redis) => Ok(Self { child, program, data, redis }),
            Err(why) => {
                drop(Self { child, program, data, redis: String::new() });
                Err(why)
            }
        }
    }

    /// The nodes' numbers in the operating system, if all are ready.
    fn ready(&self) -> Option<Vec<u64>> {
        let mut status = Command::new(&self.program);
        let output = status.args(["status", "--json", "--data"]).arg(&self.data).output().ok()?;
        let status: Value = serde_json::from_slice(&output.stdout).ok()?;
        let nodes = status["nodes"].as_array()?.iter();
        let pids: Option<Vec<u64>> = nodes.map(|n| n["status"]["os_pid"].as_u64()).collect();
        pids.filter(|_| status["ready"] == true)
    }

    fn signal(&self, signal: &str, os_pid: u64) -> Result<(), String> {
        let sent = Command::new("kill").args([signal, &os_pid.to_string()]).status();
        sent.map(drop).map_err(|e| format!("kill: {e}"))
    }

    fn stop(mut self) -> Result<(), String> {
        self.signal("-TERM", u64::from(self.child.id()))?;
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            match self.child.try_wait().map_err(|e| e.to_string())? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(format!("`amcast up` ended with {status}")),
                None => thread::sleep(Duration::from_millis(20)),
            }
        }
        Err(format!("the cluster does not stop within {PATIENCE:?}"))
    }
}

impl Drop for TortureCluster {
    fn drop(&mut self) {
        // Mostly it has ended; its nodes end with it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Kills a node in turn, each time when all are ready, and waits until they are again; how many.
fn kill_for(up: &TortureCluster, replicas: usize) -> Result<usize, String> {
    let begun = Instant::now();
    let mut waits = Instant::now();
    let mut kills = 0;
    loop {
        match up.ready() {
            Some(_) if begun.elapsed() >= ROUND => return Ok(kills),
            Some(pids) => {
                up.signal("-KILL", pids[kills % replicas])?;
                kills += 1;
                waits = Instant::now();
                thread::sleep(PEACE);
            }
            None if waits.elapsed() > PATIENCE => {
                return Err(format!("not ready again {PATIENCE:?} after kill {kills}"));
            }
            None => thread::sleep(Duration::from_millis(50)),
        }
    }
}

/// Writes until told to stop: what was acknowledged, and how many writes have no known outcome.
fn write_until(
    redis: &str,
    writer: usize,
    stop: &AtomicBool,
) -> io::Result<(BTreeMap<String, String>, usize)> {
    let mut c = RedisProbe::open(redis)?;
    let mut acked = BTreeMap::new();
    let mut unknown = 0;
    for n in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let key = format!("k{writer}.{n}");
        let twin = format!("t{writer}.{n}");
        let value = n.to_string();
        let answer = match n % 3 {
            0 => c.call(&["MSET", &key, &value, &twin, &value])?,
            _ => c.call(&["SET", &key, &value])?,
        };
        if answer == "OK" {
            acked.insert(key, value);
        } else {
            unknown += 1;
        }
        // Others write the same few keys: their order is what is judged.
        c.call(&["INCR", &format!("shared{}", n % 4)])?;
        thread::sleep(REST);
    }
    Ok((acked, unknown))
}

/// An error if something that was acknowledged is not there.
fn lost(redis: &str, acked: &BTreeMap<String, String>) -> Result<(), String> {
    let mut c = RedisProbe::open(redis).map_err(|e| e.to_string())?;
    let mut lost = Vec::new();
    for (key, value) in acked {
        let found = c.call(&["GET", key]).map_err(|e| e.to_string())?;
        if found != *value {
            lost.push(format!("{key}: {found:?} for {value:?}"));
        }
    }
    if lost.is_empty() {
        return Ok(());
    }
    let some = lost.iter().take(10).cloned().collect::<Vec<_>>().join(", ");
    Err(format!("{} of {} acknowledged writes are lost: {some}", lost.len(), acked.len()))
}

/// An error if a process panicked or was given up.
fn panics(dir: &Path) -> Result<(), String> {
    let text = fs::read_to_string(dir.join("errors")).map_err(|e| e.to_string())?;
    let bad: Vec<_> =
        text.lines().filter(|l| l.contains("panicked") || l.contains("given up")).collect();
    if bad.is_empty() { Ok(()) } else { Err(bad.join("\n")) }
}

/// Has the history judged; what the judge said, in short.
fn judge(program: &Path, history: &Path) -> Result<String, String> {
    let check = |more: &[&str]| {
        let output = Command::new(program).arg("check").arg(history).args(more).output();
        let output = output.map_err(|e| e.to_string())?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() { Ok(text) } else { Err(format!("{text}{errors}")) }
    };
    let report = check(&[])?;
    if !report.contains("holds       validity") {
        return Err(format!("the history has no end, liveness was not judged:\n{report}"));
    }
    if !has_calls(history)? {
        return Ok("order and agreement hold".to_string());
    }
    check(&["--require", "linearizable,exactly-once,read-your-writes"])?;
    Ok("order and agreement hold, and what clients saw is linearizable".to_string())
}

/// Whether the gateways recorded what clients called.
fn has_calls(history: &Path) -> Result<bool, String> {
    for entry in fs::read_dir(history).map_err(|e| e.to_string())?.flatten() {
        let file = File::open(entry.path()).map_err(|e| e.to_string())?;
        let mut lines = BufReader::new(file).lines().take(1_000).map_while(Result::ok);
        if lines.any(|line| line.contains("\"ev\":\"call\"")) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// A client of the Redis gateway for commands whose answers are short.
struct RedisProbe(BufReader<TcpStream>);

impl RedisProbe {
    fn open(at: &str) -> io::Result<Self> {
        let stream = TcpStream::connect(at)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self(BufReader::new(stream)))
    }

    /// The answer: a word, a number, or bytes; an error with its `-`; empty for none.
    fn call(&mut self, words: &[&str]) -> io::Result<String> {
        let mut bytes = format!("*{}\r\n", words.len());
        words.iter().for_each(|w| bytes += &format!("${}\r\n{w}\r\n", w.len()));
        self.0.get_mut().write_all(bytes.as_bytes())?;
        let mut line = String::new();
        if self.0.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let line = line.trim_end();
        match line.split_at_checked(1) {
            Some(("+" | ":", rest)) => Ok(rest.to_string()),
            Some(("$", "-1")) => Ok(String::new()),
            Some(("$", length)) => {
                let length: usize = length.parse().map_err(io::Error::other)?;
                let mut bytes = vec![0; length + 2];
                self.0.read_exact(&mut bytes)?;
                bytes.truncate(length);
                String::from_utf8(bytes).map_err(io::Error::other)
            }
            _ => Ok(line.to_string()),
        }
    }
}

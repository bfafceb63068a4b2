//! BookKeeper as a rival: ZooKeeper, three bookies that sync their journals, and a client, each a
//! process of this machine.

use super::children::{OwnedChild, PATIENCE, PrivateDir};
use super::go_on;
use crate::bench::appends::LOGS;
use crate::bench::rivals::{AbsentRival, build};
use serde::Deserialize;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

const SOURCES: [build::RivalSource; 3] = [
    ("pom.xml", include_str!("../../../../../rivals/bookkeeper/pom.xml")),
    (
        "src/main/resources/log4j2.xml",
        include_str!("../../../../../rivals/bookkeeper/src/main/resources/log4j2.xml"),
    ),
    (
        "src/main/java/Appends.java",
        include_str!("../../../../../rivals/bookkeeper/src/main/java/Appends.java"),
    ),
];

/// Servers that keep entries.
const BOOKIES: usize = 3;

/// How it is set up, in a sentence.
pub(super) const SETTING: &str = "BookKeeper 4.17.2 with ZooKeeper 3.9.3: three bookies, ensemble 3, \
    write quorum 3, acknowledgement quorum 2, journals synced before an entry is acknowledged, on the \
    same disk; the client library's asynchronous calls, one connection to each bookie";

/// The interval of checks whether to continue, and whether a server listens.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A running ensemble and its client, ended with this; their directories are removed.
pub(super) struct BookKeeper {
    _client: OwnedChild,
    input: ChildStdin,
    said: Receiver<String>,
    _servers: Vec<OwnedChild>,
    _directory: PrivateDir,
}

/// The result with so many clients.
#[derive(Clone, Copy, Deserialize)]
pub(super) struct BookieLatencies {
    pub(super) appends: u64,
    pub(super) mean_ns: f64,
    pub(super) p50_ns: f64,
    pub(super) p99_ns: f64,
}

/// The configuration of bookies beside their directories and ports: that of the file that comes
/// with BookKeeper, where it differs from the program's own defaults.
const CONFIGURATION: &str = "\
advertisedAddress=127.0.0.1
allowLoopback=true
useHostNameAsBookieID=false
journalSyncData=true
journalMaxGroupWaitMSec=1
ledgerStorageClass=org.apache.bookkeeper.bookie.SortedLedgerStorage
# A disk that others fill as well is no reason to refuse entries.
diskUsageThreshold=0.99
diskUsageWarnThreshold=0.98
";

/// A command of Java with the classes of `home` and so much memory.
fn java(home: &Path, megabytes: usize) -> Command {
    let mut command = Command::new("java");
    command
        .current_dir(home)
        .args([format!("-Xms{megabytes}m"), format!("-Xmx{megabytes}m")])
        .args(["-XX:+UseSerialGC", "-Dzookeeper.admin.enableServer=false"])
        .args(["-cp", "target/classes:target/lib/*"]);
    command
}

impl BookKeeper {
    /// Builds what drives it, if that was not done before, and starts all.
    ///
    /// # Errors
    /// With what is missing or does not start.
    pub(super) fn start(payload: usize, directory: PrivateDir) -> Result<Self, String> {
        let absent = |AbsentRival(why)| why;
        build::run(Command::new("java").arg("-version"), build::JAVA).map_err(absent)?;
        let home = build::built("bookkeeper", &SOURCES, build::with_maven).map_err(absent)?;
        let ports = free_ports().map_err(|e| format!("no free ports on 127.0.0.1: {e}"))?;
        let mut servers = Vec::new();
        let mut start = |command: &mut Command, name: &str, port: u16| {
            let said = directory.path().join(format!("{name}.log"));
            let log = File::create(&said).map_err(|e| format!("{}: {e}", said.display()))?;
            let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
            let child = OwnedChild(command.spawn().map_err(|e| format!("java: {e}"))?);
            servers.push(child);
            wait_for(servers.last_mut(), port)
                .map_err(|why| format!("{name} {why}: {}", tail(&said)))
        };
        let zookeeper = "org.apache.zookeeper.server.ZooKeeperServerMain";
        let data = directory.path().join("zookeeper");
        let port = ports[0].to_string();
        start(java(&home, 256).args([zookeeper, &port]).arg(&data), "zookeeper", ports[0])?;
        let uri = format!("zk+hierarchical://127.0.0.1:{port}/ledgers");
        let format = java(&home, 256).args(["Appends", "format", &uri]).output();
        let format = format.map_err(|e| format!("java: {e}"))?;
        if !format.status.success() {
            return Err(format!("BookKeeper: {}", String::from_utf8_lossy(&format.stderr)));
        }
        for (n, &port) in ports[1..].iter().enumerate() {
            let conf = configuration(directory.path(), n, port, &uri)?;
            let main = "org.apache.bookkeeper.server.Main";
            start(java(&home, 512).args([main, "--conf"]).arg(conf), &format!("bookie{n}"), port)?;
        }
        let mut command = java(&home, 512);
        command.args(["Appends", "run", &uri, &payload.to_string(), &LOGS.to_string()]);
        let log = directory.path().join("client.log");
        let log = File::create(&log).map_err(|e| format!("{}: {e}", log.display()))?;
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
        let mut client = command.spawn().map_err(|e| format!("java: {e}"))?;
        let (input, output) = (client.stdin.take(), client.stdout.take());
        let client = OwnedChild(client);
        let output = BufReader::new(output.ok_or("its output is not piped")?);
        let (tell, said) = sync_channel(1);
        std::thread::Builder::new()
            .name("bookkeeper".to_string())
            // It ends with the client, or when nobody listens any more.
            .spawn(move || {
                output.lines().map_while(Result::ok).try_for_each(|line| tell.send(line))
            })
            .map_err(|e| e.to_string())?;
        let input = input.ok_or("its input is not piped")?;
        let it = Self { _client: client, input, said, _servers: servers, _directory: directory };
        match it.line(PATIENCE)? {
            line if line == "ready" => Ok(it),
            line => Err(format!("BookKeeper's client said {line:?}")),
        }
    }

    /// The client's next line.
    fn line(&self, patience: Duration) -> Result<String, String> {
        let begun = Instant::now();
        loop {
            match self.said.recv_timeout(LOOK_EVERY) {
                Ok(line) => return Ok(line),
                Err(RecvTimeoutError::Disconnected) => {
                    let log = self._directory.path().join("client.log");
                    return Err(format!("BookKeeper's client ended: {}", tail(&log)));
                }
                Err(RecvTimeoutError::Timeout) if begun.elapsed() > patience => {
                    return Err(format!(
                        "BookKeeper's client said nothing for {} s",
                        patience.as_secs()
                    ));
                }
                Err(RecvTimeoutError::Timeout) => go_on()?,
            }
        }
    }

    /// So many clients append for `warm_up` and then for `time`, which is measured.
    pub(super) fn measure(
        &mut self,
        clients: usize,
        warm_up: Duration,
        time: Duration,
    ) -> Result<BookieLatencies, String> {
        let line = format!("{clients} {} {}\n", warm_up.as_millis(), time.as_millis());
        self.input.write_all(line.as_bytes()).map_err(|e| format!("BookKeeper's client: {e}"))?;
        let said = self.line(warm_up + time + PATIENCE)?;
        serde_json::from_str(&said).map_err(|e| format!("BookKeeper's client said {said:?}: {e}"))
    }
}

/// Writes the configuration of a bookie.
fn configuration(directory: &Path, n: usize, port: u16, uri: &str) -> Result<PathBuf, String> {
    let home = directory.join(format!("bookie{n}"));
    let home = home.display();
    let conf = directory.join(format!("bookie{n}.conf"));
    let text = format!(
        "bookiePort={port}\nmetadataServiceUri={uri}\njournalDirectories={home}/journal\n\
         ledgerDirectories={home}/ledgers\n{CONFIGURATION}"
    );
    fs::write(&conf, text).map_err(|e| format!("{}: {e}", conf.display()))?;
    Ok(conf)
}

/// Ports that are free, most likely still a moment later: ZooKeeper's, and one for each bookie.
fn free_ports() -> std::io::Result<Vec<u16>> {
    let held = (0..=BOOKIES).map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)));
    let held = held.collect::<std::io::Result<Vec<_>>>()?;
    held.iter().map(|listener| Ok(listener.local_addr()?.port())).collect()
}

/// Waits until a server listens.
fn wait_for(server: Option<&mut OwnedChild>, port: u16) -> Result<(), String> {
    let Some(server) = server else { return Err("was not started".to_string()) };
    let (at, begun) = (SocketAddr::from((Ipv4Addr::LOCALHOST, port)), Instant::now());
    while TcpStream::connect(at).is_err() {
        go_on()?;
        if !matches!(server.0.try_wait(), Ok(None)) {
            return Err("ended before it served".to_string());
        }
        if begun.elapsed() > PATIENCE {
            return Err("does not serve".to_string());
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(())
}

/// The last lines of a log.
fn tail(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let mut last: Vec<&str> = text.lines().rev().take(4).collect();
    last.reverse();
    last.join("; ")
}

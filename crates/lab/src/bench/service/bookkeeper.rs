//! BookKeeper as a rival: ZooKeeper, three bookies that sync their journals, and a client, each a
//! process of this machine.

use super::check_stop;
use super::children::PATIENCE;
use crate::bench::appends::LOGS;
use crate::bench::child_process::{ChildOutput, ChildProcess};
use crate::bench::free_ports::free_addresses;
use crate::bench::rivals::{AbsentRival, build};
use crate::bench::scratch_dir::ScratchDir;
use serde::Deserialize;
use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
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

/// The interval of checks whether a server listens.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A running ensemble and its client, ended with this; their directories are removed.
pub(super) struct BookKeeper {
    client: ChildProcess,
    _servers: Vec<ChildProcess>,
    directory: ScratchDir,
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

/// A command of Java with the classes of `dir` and so much memory.
fn java(dir: &Path, megabytes: usize) -> Command {
    let mut command = Command::new("java");
    command
        .current_dir(dir)
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
    pub(super) fn start(payload: usize, directory: ScratchDir) -> Result<Self, String> {
        let absent = |AbsentRival(why)| why;
        build::run(Command::new("java").arg("-version"), build::JAVA).map_err(absent)?;
        let dir = build::built("bookkeeper", &SOURCES, build::with_maven).map_err(absent)?;
        let addresses = free_addresses(1 + BOOKIES)?;
        let ports: Vec<u16> = addresses.iter().map(SocketAddr::port).collect();
        let mut servers = Vec::new();
        let mut start = |command: &mut Command, name: &str, port: u16| {
            let said = directory.path().join(format!("{name}.log"));
            let log = File::create(&said).map_err(|e| format!("{}: {e}", said.display()))?;
            let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
            let mut server = ChildProcess::start(name, command)?.ends_within(PATIENCE);
            wait_for(&mut server, port).map_err(|why| format!("{name} {why}: {}", tail(&said)))?;
            servers.push(server);
            Ok::<(), String>(())
        };
        let zookeeper = "org.apache.zookeeper.server.ZooKeeperServerMain";
        let data = directory.path().join("zookeeper");
        let port = ports[0].to_string();
        start(java(&dir, 256).args([zookeeper, &port]).arg(&data), "zookeeper", ports[0])?;
        let uri = format!("zk+hierarchical://127.0.0.1:{port}/ledgers");
        let format = java(&dir, 256).args(["Appends", "format", &uri]).output();
        let format = format.map_err(|e| format!("java: {e}"))?;
        if !format.status.success() {
            return Err(format!("BookKeeper: {}", String::from_utf8_lossy(&format.stderr)));
        }
        for (n, &port) in ports[1..].iter().enumerate() {
            let conf = configuration(directory.path(), n, port, &uri)?;
            let main = "org.apache.bookkeeper.server.Main";
            start(java(&dir, 512).args([main, "--conf"]).arg(conf), &format!("bookie{n}"), port)?;
        }
        let mut command = java(&dir, 512);
        command.args(["Appends", "run", &uri, &payload.to_string(), &LOGS.to_string()]);
        let log = directory.path().join("client.log");
        let log = File::create(&log).map_err(|e| format!("{}: {e}", log.display()))?;
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
        let client = ChildProcess::start("BookKeeper's client", command)?.ends_within(PATIENCE);
        let mut it = Self { client, _servers: servers, directory };
        match it.line(PATIENCE)? {
            line if line == "ready" => Ok(it),
            line => Err(format!("BookKeeper's client said {line:?}")),
        }
    }

    /// The client's next line.
    fn line(&mut self, patience: Duration) -> Result<String, String> {
        let heard = self.client.hear(patience, ChildOutput::line);
        check_stop()?;
        heard.map_err(|why| {
            let log = self.directory.path().join("client.log");
            format!("{why}: {}", tail(&log))
        })
    }

    /// So many clients append for `warm_up` and then for `time`, which is measured.
    pub(super) fn measure(
        &mut self,
        clients: usize,
        warm_up: Duration,
        time: Duration,
    ) -> Result<BookieLatencies, String> {
        let line = format!("{clients} {} {}", warm_up.as_millis(), time.as_millis());
        self.client.tell(&line)?;
        let said = self.line(warm_up + time + PATIENCE)?;
        serde_json::from_str(&said).map_err(|e| format!("BookKeeper's client said {said:?}: {e}"))
    }
}

/// Writes the configuration of a bookie.
fn configuration(directory: &Path, n: usize, port: u16, uri: &str) -> Result<PathBuf, String> {
    let dir = directory.join(format!("bookie{n}"));
    let dir = dir.display();
    let conf = directory.join(format!("bookie{n}.conf"));
    let text = format!(
        "bookiePort={port}\nmetadataServiceUri={uri}\njournalDirectories={dir}/journal\n\
         ledgerDirectories={dir}/ledgers\n{CONFIGURATION}"
    );
    fs::write(&conf, text).map_err(|e| format!("{}: {e}", conf.display()))?;
    Ok(conf)
}

/// Waits until a server listens.
fn wait_for(server: &mut ChildProcess, port: u16) -> Result<(), String> {
    let (at, begun) = (SocketAddr::from((Ipv4Addr::LOCALHOST, port)), Instant::now());
    while TcpStream::connect(at).is_err() {
        check_stop()?;
        if server.status().is_some() {
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

//! etcd as a rival: three members on this machine, on disk.

use super::check_stop;
use super::children::PATIENCE;
use crate::bench::child_process::ChildProcess;
use crate::bench::free_ports::free_addresses;
use crate::bench::scratch_dir::ScratchDir;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Members.
const MEMBERS: usize = 3;

/// Three members of etcd, ended with this; their directories are removed.
pub(crate) struct EtcdServers {
    _members: Vec<ChildProcess>,
    _directory: ScratchDir,
    /// Where one of them takes clients.
    pub(crate) at: String,
}

impl EtcdServers {
    /// Starts them and waits until they serve; none if etcd is not installed.
    ///
    /// # Errors
    /// When they do not start.
    pub(crate) fn start() -> Result<Option<Self>, String> {
        let directory = ScratchDir::temporary("etcd")?.warn_if_in_memory("set TMPDIR to");
        let free = free_addresses(2 * MEMBERS)?;
        let (clients, peers) = free.split_at(MEMBERS);
        let all: Vec<String> = (0..MEMBERS).map(|n| format!("m{n}=http://{}", peers[n])).collect();
        let mut members = Vec::new();
        for n in 0..MEMBERS {
            let (client, peer) = (format!("http://{}", clients[n]), format!("http://{}", peers[n]));
            let mut command = Command::new("etcd");
            command
                .args(["--name", &format!("m{n}"), "--log-level", "error"])
                .arg("--data-dir")
                .arg(directory.path().join(format!("m{n}")))
                .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
                .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
                .args(["--initial-cluster", &all.join(",")])
                .args(["--initial-cluster-state", "new"])
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            match ChildProcess::start_if_installed("etcd", &mut command)? {
                Some(member) => members.push(member.ends_within(PATIENCE)),
                None => return Ok(None),
            }
        }
        let begun = Instant::now();
        while !is_healthy(clients[0]) {
            check_stop()?;
            if begun.elapsed() > PATIENCE {
                return Err("etcd does not serve".to_string());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(Some(Self { _members: members, _directory: directory, at: clients[0].to_string() }))
    }
}

/// Whether a member has a leader.
fn is_healthy(at: SocketAddr) -> bool {
    let ask = || -> io::Result<String> {
        let mut stream = TcpStream::connect(at)?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        stream.write_all(b"GET /health HTTP/1.0\r\n\r\n")?;
        let mut said = String::new();
        stream.read_to_string(&mut said)?;
        Ok(said)
    };
    ask().is_ok_and(|said| said.contains("\"health\":\"true\""))
}

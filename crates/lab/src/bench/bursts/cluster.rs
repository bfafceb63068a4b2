//! Bursts of OS processes over a real network: who starts them and gathers what they saw.

use super::{BurstRepeat, MEMBERS, WARM_UPS, warmed_up};
use amcast_core::parameters::PacketLane;
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::process::{Child, Command, Stdio};

/// The transport of messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BurstMedium {
    /// Streams.
    Tcp,
    /// Datagrams.
    Udp,
}

impl BurstMedium {
    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }

    /// The value of the protocol's parameter that asks for it.
    pub const fn lane(self) -> PacketLane {
        match self {
            Self::Tcp => PacketLane::Stream,
            Self::Udp => PacketLane::Datagram,
        }
    }
}

/// The task of a member, on its standard input.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct BurstTask {
    pub(super) protocol: String,
    pub(super) wire: BurstMedium,
    pub(super) me: usize,
    pub(super) cluster_id: u64,
    /// By member, for streams and for datagrams.
    pub(super) addresses: Vec<(SocketAddr, SocketAddr)>,
    /// The sizes of bursts, one after the other.
    pub(super) bursts: Vec<usize>,
}

/// The report of a member at its end.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct BurstReport {
    /// For each size of bursts.
    pub(super) seen: Vec<BurstRepeat>,
    /// Over the order of all that it delivered.
    pub(super) digest: u64,
}

/// Members that are ended when this goes out of scope, in any case.
pub(in crate::bench) struct BurstMembers(pub(in crate::bench) Vec<Child>);

impl Drop for BurstMembers {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // One that has ended already cannot be killed: that is as well.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// One repeat of every size of bursts with a fresh group of processes on this machine, which the largest
/// size warms up.
///
/// # Errors
/// With what could not be set up, or that members delivered in different orders.
pub fn run(
    protocol: &str,
    wire: BurstMedium,
    bursts: &[usize],
) -> Result<Vec<BurstRepeat>, String> {
    let bursts = warmed_up(bursts);
    let addresses = addresses(MEMBERS).map_err(|e| format!("no free ports on 127.0.0.1: {e}"))?;
    let cluster_id = u64::from(addresses[0].0.port()) << 32 | u64::from(std::process::id());
    let program = std::env::current_exe().map_err(|e| e.to_string())?;
    let mut members = BurstMembers(Vec::new());
    let mut outputs = Vec::new();
    for me in 0..MEMBERS {
        let (protocol, addresses) = (protocol.to_string(), addresses.clone());
        let task = BurstTask { protocol, wire, me, cluster_id, addresses, bursts: bursts.clone() };
        let mut child = Command::new(&program)
            .args(["bench", "--member"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| format!("a member cannot be started: {e}"))?;
        let text = serde_json::to_string(&task).map_err(|e| e.to_string())?;
        let said = child.stdin.as_mut().map(|to| writeln!(to, "{text}"));
        said.transpose().map_err(|e| format!("a member does not listen: {e}"))?;
        outputs.push(child.stdout.take());
        members.0.push(child);
    }
    let said = outputs.into_iter().map(|output| {
        let mut line = String::new();
        let output = output.ok_or("a member has no output")?;
        BufReader::new(output).read_line(&mut line).map_err(|e| e.to_string())?;
        serde_json::from_str::<BurstReport>(&line)
            .map_err(|_| "a member ended before its time, and said why above".to_string())
    });
    let said = said.collect::<Result<Vec<_>, String>>()?;
    if said.iter().any(|one| one.digest != said[0].digest) {
        return Err(format!("{protocol}: members delivered in different orders"));
    }
    let of = |n: usize| BurstRepeat::of(&said.iter().map(|one| one.seen[n]).collect::<Vec<_>>());
    Ok((WARM_UPS..bursts.len()).map(of).collect())
}

/// Free addresses, by member. They are free a moment later, too, unless somebody is very quick.
pub(in crate::bench) fn addresses(
    members: usize,
) -> std::io::Result<Vec<(SocketAddr, SocketAddr)>> {
    let any = (Ipv4Addr::LOCALHOST, 0);
    let held = (0..members).map(|_| Ok((TcpListener::bind(any)?, UdpSocket::bind(any)?)));
    let held = held.collect::<std::io::Result<Vec<_>>>()?;
    held.iter().map(|(tcp, udp)| Ok((tcp.local_addr()?, udp.local_addr()?))).collect()
}

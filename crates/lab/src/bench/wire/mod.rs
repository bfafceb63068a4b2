//! Measurements of protocols that send messages: nodes as OS processes on this machine, over TCP or
//! UDP.
//!
//! Each node hosts a replica of every group, as in a cluster, and is client to itself: it has some
//! multicasts on the way, or so many a second, and takes the time from a multicast to its delivery by
//! the last of its own replicas in the destinations. `cluster.rs` starts nodes and gathers what they
//! saw, `member.rs` is one of them, `client.rs` what it has on the way.

mod client;
mod cluster;
mod member;

pub use cluster::run;
pub use member::run as run_node;

use super::bursts::BurstMedium;
use super::delivered::DeliveryDigest;
use super::{BenchPlan, EarlyCounts};
use amcast_core::parameters::{HEARTBEAT, LANE, SUSPECT, WINDOW};
use amcast_core::{Capability, Span};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::PathBuf;

/// The task of a node, in a line on its standard input. A second line says that all are ready.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct WireTask {
    plan: BenchPlan,
    cluster_id: u64,
    rank: usize,
    /// By rank.
    addresses: Vec<SocketAddr>,
    /// A directory for its logs.
    logs: PathBuf,
}

/// The resources that one node used while it was measured, without the warm-up.
#[derive(Clone, Copy, Default, Debug, Serialize, Deserialize)]
pub struct NodeUsage {
    /// Time of a core, in seconds.
    pub cpu_s: f64,
    /// Messages sent.
    pub messages_sent: u64,
    /// Bytes written to streams.
    pub stream_bytes: u64,
    /// Datagrams sent.
    pub datagrams: u64,
    /// System calls that sent, received, asked what is ready, and slept.
    pub calls: u64,
    /// Of these, those that slept.
    pub parks: u64,
    /// How often logs were synced.
    pub syncs: u64,
}

impl NodeUsage {
    /// The resources used since `before`.
    fn since(&self, before: &Self) -> Self {
        Self {
            cpu_s: self.cpu_s - before.cpu_s,
            messages_sent: self.messages_sent - before.messages_sent,
            stream_bytes: self.stream_bytes - before.stream_bytes,
            datagrams: self.datagrams - before.datagrams,
            calls: self.calls - before.calls,
            parks: self.parks - before.parks,
            syncs: self.syncs - before.syncs,
        }
    }

    /// As words, for another process.
    fn put(&self, words: &mut Vec<u64>) {
        words.extend([self.cpu_s.to_bits(), self.messages_sent, self.stream_bytes]);
        words.extend([self.datagrams, self.calls, self.parks, self.syncs]);
    }

    fn take(words: &mut impl Iterator<Item = u64>) -> Option<Self> {
        Some(Self {
            cpu_s: f64::from_bits(words.next()?),
            messages_sent: words.next()?,
            stream_bytes: words.next()?,
            datagrams: words.next()?,
            calls: words.next()?,
            parks: words.next()?,
            syncs: words.next()?,
        })
    }
}

/// The report of a node.
struct NodeFigures {
    used: NodeUsage,
    /// The deliveries of its replicas, by group.
    kept: Vec<DeliveryDigest>,
    /// The latencies of its multicasts, in nanoseconds.
    latencies: Histogram<u64>,
    early: EarlyCounts,
}

impl NodeFigures {
    /// For another process: how many bytes follow, and those.
    fn bytes(&self) -> Vec<u8> {
        let mut words = vec![0];
        self.used.put(&mut words);
        self.early.put(&mut words);
        words.push(self.kept.len() as u64);
        self.kept.iter().for_each(|kept| kept.put(&mut words));
        for v in self.latencies.iter_recorded() {
            words.extend([v.value_iterated_to(), v.count_since_last_iteration()]);
        }
        words[0] = (words.len() as u64 - 1) * 8;
        words.iter().flat_map(|w| w.to_le_bytes()).collect()
    }

    /// Reads what follows the length; none if it ends too early.
    fn read(bytes: &[u8]) -> Option<Self> {
        let word = |chunk: &[u8]| chunk.try_into().map(u64::from_le_bytes).ok();
        let mut words = bytes.chunks_exact(8).map_while(word);
        let used = NodeUsage::take(&mut words)?;
        let early = EarlyCounts::take(&mut words)?;
        let count = words.next()?;
        let kept =
            (0..count).map(|_| DeliveryDigest::take(&mut words)).collect::<Option<Vec<_>>>()?;
        let mut latencies = super::histogram();
        while let Some(value) = words.next() {
            latencies.record_n(value, words.next()?).ok()?;
        }
        Some(Self { used, kept, latencies, early })
    }
}

/// Adds to a plan the settings for nodes that share a machine's cores.
pub fn completed(mut plan: BenchPlan, wire: BurstMedium) -> BenchPlan {
    let Some(entry) = plan.entry() else { return plan };
    let packet_bytes = match wire {
        BurstMedium::Tcp => "32768",
        // The datagram size of the loopback; smaller bursts would be sent one by one.
        BurstMedium::Udp => "8000",
    };
    // On a machine with fewer cores than processes, one that is silent has only not had its turn.
    // Nor does it get a state here: it finds what it missed in the others' memory, where they keep only that.
    let mut usual = vec![SUSPECT.setting(Span::secs(5))];
    if !entry.capabilities().durability.has_log() {
        usual.push(("cache_bytes".to_string(), "1000000000".to_string()));
    }
    // Rows of total order say what they travel on, and have small windows and packets; their heartbeats
    // only show life. Those of rings say how much a member has, which makes room for more.
    if entry.capabilities().has(Capability::Datagrams) {
        usual.extend([
            LANE.setting(wire.lane()),
            ("packet_bytes".to_string(), packet_bytes.to_string()),
            WINDOW.setting(plan.load.window().max(64)),
            HEARTBEAT.setting(Span::millis(100)),
        ]);
    }
    let params = entry.about().params;
    for (name, value) in usual {
        let knows = params.iter().any(|p| p.name == name);
        if knows && plan.set.iter().all(|(set, _)| *set != name) {
            plan.set.push((name, value));
        }
    }
    plan
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::{BenchLoad, DestinationChoice};

    fn plan(protocol: &str, set: &[(&str, &str)]) -> BenchPlan {
        let load = BenchLoad {
            destinations: 1,
            choice: DestinationChoice::Uniform,
            payload: 8,
            outstanding: 200,
            rate: None,
            warm_up_s: 0.1,
            duration_s: 0.1,
            threads: 3,
            pin: false,
            processes: true,
            senders: 3,
            early: false,
            hosts: false,
            rdma_provider: None,
        };
        BenchPlan {
            protocol: protocol.to_string(),
            groups: 1,
            replicas: 3,
            clients: 0,
            overlay: "breadth".to_string(),
            set: set.iter().map(|(a, b)| ((*a).to_string(), (*b).to_string())).collect(),
            load,
        }
    }

    fn value(plan: &BenchPlan, name: &str) -> Option<String> {
        plan.set.iter().find(|(n, _)| n == name).map(|(_, v)| v.clone())
    }

    #[test]
    fn a_row_gets_a_window_as_wide_as_its_load_and_keeps_what_was_set() {
        let whole = completed(plan("sb-rcast", &[("packet_bytes", "1400")]), BurstMedium::Udp);
        assert_eq!(value(&whole, "lane").as_deref(), Some("datagram"));
        assert_eq!(value(&whole, "window").as_deref(), Some("200"));
        assert_eq!(value(&whole, "packet_bytes").as_deref(), Some("1400"));
        assert!(whole.config(whole.entry().unwrap()).is_ok());
    }

    #[test]
    fn what_a_node_saw_reads_back() {
        let used = NodeUsage { cpu_s: 1.5, messages_sent: 2, parks: 7, ..NodeUsage::default() };
        let mut latencies = crate::bench::histogram();
        latencies.record_n(1_000, 5).unwrap();
        let early = EarlyCounts { deliveries: 4, early: 3, ..EarlyCounts::default() };
        let kept = vec![DeliveryDigest::new(4)];
        let bytes = NodeFigures { used, kept, latencies, early }.bytes();
        let (length, rest) = bytes.split_first_chunk::<8>().unwrap();
        assert_eq!(u64::from_le_bytes(*length) as usize, rest.len());
        let back = NodeFigures::read(rest).unwrap();
        assert_eq!((back.used.cpu_s, back.used.parks, back.early), (1.5, 7, early));
        assert_eq!((back.kept.len(), back.latencies.len()), (1, 5));
        assert!(NodeFigures::read(&rest[..rest.len() - 8]).is_none());
    }

    #[test]
    fn rings_are_left_as_they_are_but_for_their_patience() {
        let whole = completed(plan("multi-ring-memory", &[]), BurstMedium::Tcp);
        assert_eq!((value(&whole, "lane"), value(&whole, "window")), (None, None));
        assert_eq!(value(&whole, "suspect_us").as_deref(), Some("5000000"));
        assert_eq!(value(&whole, "heartbeat_us"), None, "they say how much a member has");
        assert_eq!(value(&whole, "cache_bytes").as_deref(), Some("1000000000"));
        assert!(whole.config(whole.entry().unwrap()).is_ok());
        let on_disk = completed(plan("multi-ring", &[]), BurstMedium::Tcp);
        assert_eq!(value(&on_disk, "cache_bytes"), None, "they are served from the disk");
    }
}

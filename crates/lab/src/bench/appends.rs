//! The distributed log under synchronous appends of many clients [MRP 8.3.3].

use super::nodes::{BenchNodes, NODES};
use super::stop::{STOPPED, check_stop};
use super::{Latency, histogram};
use amcast_core::Entry;
use amcast_log::proto::log_client::LogClient;
use amcast_log::proto::{AppendRequest, Session};
use amcast_protocols::multiring;
use hdrhistogram::Histogram;
use serde::Serialize;
use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::time::{Duration, Instant};
use tonic::transport::{Channel, Endpoint};

/// Logs that clients append to, by turns.
pub(in crate::bench) const LOGS: usize = 16;

/// The interval of checks whether to continue.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The result with so many clients.
#[derive(Clone, Debug, Serialize)]
pub struct AppendPoint {
    /// Clients, each with one append on the way.
    pub clients: usize,
    /// Appends each second.
    pub per_second: f64,
    /// From an append to its answer.
    pub latency_ns: Latency,
}

/// A cluster of ours whose acceptors sync before they vote, and what it takes to append to it: one
/// connection to each node's gateway, which clients share.
pub(in crate::bench) struct DurableLog {
    runtime: tokio::runtime::Runtime,
    gateways: Vec<LogClient<Channel>>,
    value: Vec<u8>,
    _nodes: BenchNodes,
}

impl DurableLog {
    /// Starts the cluster in `data`, with so many shards.
    pub(in crate::bench) fn start(
        data: &Path,
        shards: usize,
        payload: usize,
    ) -> Result<Self, String> {
        let nodes = BenchNodes::start(data, (multiring::SYNCED.name(), shards))?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|e| e.to_string())?;
        let mut gateways = Vec::new();
        for rank in 0..NODES {
            let at = nodes.log(rank)?;
            let endpoint = Endpoint::from_shared(format!("http://{at}"));
            let endpoint = endpoint.map_err(|e| format!("{at}: {e}"))?.tcp_nodelay(true);
            let channel = runtime.block_on(endpoint.connect());
            gateways.push(LogClient::new(channel.map_err(|e| format!("{at}: {e}"))?));
        }
        Ok(Self { runtime, gateways, value: vec![b'v'; payload], _nodes: nodes })
    }

    /// So many clients append, each one value after the other, for `warm_up` and then for `time`, which
    /// is measured.
    pub(in crate::bench) fn measure(
        &mut self,
        clients: usize,
        warm_up: Duration,
        time: Duration,
    ) -> Result<AppendPoint, String> {
        let from = Instant::now() + warm_up;
        let until = from + time;
        let begin = |n: usize| {
            let gateway = self.gateways[n % self.gateways.len()].clone();
            append(gateway, n, self.value.clone(), (from, until))
        };
        let seen = self.runtime.block_on(async {
            let running: Vec<_> = (0..clients).map(|n| tokio::spawn(begin(n))).collect();
            let mut all = histogram();
            for mut client in running {
                let seen = loop {
                    match tokio::time::timeout(LOOK_EVERY, &mut client).await {
                        Ok(ended) => break ended.map_err(|e| e.to_string())??,
                        Err(_) => check_stop()?,
                    }
                };
                all.add(&seen).map_err(|e| e.to_string())?;
            }
            Ok::<_, String>(all)
        })?;
        let per_second = seen.len() as f64 / time.as_secs_f64();
        Ok(AppendPoint { clients, per_second, latency_ns: Latency::of(&seen) })
    }
}

/// Appends one value after the other until the end; records the latencies from `from` on. Each
/// append has a number of the client's session, and so takes effect once under any failure.
async fn append(
    mut gateway: LogClient<Channel>,
    n: usize,
    value: Vec<u8>,
    (from, until): (Instant, Instant),
) -> Result<Histogram<u64>, String> {
    let id = RandomState::new().hash_one(n) | 1;
    let log = format!("log{}", n % LOGS);
    let value = bytes::Bytes::from(value);
    let mut seen = histogram();
    for request in 1.. {
        let session = Some(Session { id, request, age_ms: 0 });
        let asked = AppendRequest { log: log.clone(), value: value.clone(), session };
        let begun = Instant::now();
        gateway.append(asked).await.map_err(|e| e.message().to_string())?;
        let now = Instant::now();
        if now >= until {
            return Ok(seen);
        }
        if begun >= from {
            let ns = u64::try_from((now - begun).as_nanos()).unwrap_or(u64::MAX);
            seen.saturating_record(ns);
        }
    }
    Err(STOPPED.to_string())
}

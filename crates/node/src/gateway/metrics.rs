//! The metrics page, in the text format of OpenMetrics, which Prometheus reads.

use amcast_core::histogram::Histogram;
use amcast_kv::client::StoreServer;
use amcast_kv::command_stats::CommandStats;
use amcast_kv::process::{CpuTime, ProcessMemory};
use amcast_kv::status::ShardStatus;
use amcast_smr::metrics::{Metric, MetricKind, MetricLabels, MetricValue, Unit};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use std::fmt;
use std::sync::atomic::Ordering::Relaxed;

/// The prefix of every metric's name.
const PREFIX: &str = "amcast";

/// The text of the page.
///
/// # Errors
/// When a metric cannot be written.
pub(super) fn text(server: &StoreServer) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix(PREFIX);
    registry.register_collector(Box::new(MetricsPage(all(server))));
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
}

/// All figures that this process knows.
fn all(server: &StoreServer) -> Vec<Metric> {
    let mut all = gateway(server);
    all.extend(commands(server));
    all.extend(process());
    all.extend(server.others.get().map(|others| others()).unwrap_or_default());
    all.extend(shards(&server.status.shards()));
    all.extend(server.status.metrics());
    all
}

fn gateway(server: &StoreServer) -> Vec<Metric> {
    let refusals = &server.refusals;
    let refused = [
        ("max_clients", &refusals.clients),
        ("output_limit", &refusals.output),
        ("memory_limit", &refusals.memory),
        ("unauthenticated_limit", &refusals.strangers),
    ];
    let refused = refused.map(|(why, n)| (why.to_string(), MetricValue::Count(n.load(Relaxed))));
    let ready = |ready: Result<(), String>| u64::from(ready.is_ok());
    vec![
        Metric::counter("commands", "Commands taken by the Redis gateway", server.commands()),
        Metric::counter(
            "connections",
            "Connections accepted by the Redis gateway",
            server.connections.load(Relaxed),
        ),
        Metric::new(
            "connections_refused",
            "Connections that the Redis gateway refused or cut off, by the limit that was reached",
            MetricKind::Counter,
        )
        .with_each("limit", refused),
        Metric::counter(
            "wrong_passwords",
            "Wrong passwords given to the Redis gateway",
            server.wrong_passwords.load(Relaxed),
        ),
        Metric::gauge(
            "connected_clients",
            "Connections to the Redis gateway now",
            server.connected() as u64,
        ),
        Metric::gauge(
            "connected_clients_limit",
            "Connections that the Redis gateway serves at a time",
            server.clients_max as u64,
        ),
        Metric::gauge(
            "ready",
            "1 while commands that come here can be served",
            ready(server.status.ready_here()),
        ),
        Metric::gauge(
            "cluster_ready",
            "1 while the cluster serves commands",
            ready(server.status.ready()),
        ),
    ]
}

/// The outcomes of commands, by their names. Only names of commands that exist are labels, and only
/// of those that were sent: all others are counted together.
fn commands(server: &StoreServer) -> Vec<Metric> {
    let stats = server.stats.total();
    let each = |value: &dyn Fn(&CommandStats) -> MetricValue| -> Vec<(String, MetricValue)> {
        stats.used().map(|(name, of)| (name.to_string(), value(of))).collect()
    };
    let unknown = ("unknown".to_string(), MetricValue::Count(stats.unknown));
    vec![
        Metric::new(
            "command_duration",
            "From when a command was read whole to when its answer was put into the output of its connection",
            MetricKind::Histogram,
        )
        .with_each("command", each(&|of| MetricValue::Durations(Box::new(of.latency.clone())))),
        Metric::new(
            "command_failures",
            "Commands whose answer was an error",
            MetricKind::Counter,
        )
        .with_each("command", each(&|of| MetricValue::Count(of.failed))),
        Metric::new(
            "command_rejections",
            "Commands that were refused before anything of them was executed",
            MetricKind::Counter,
        )
        .with_each("command", each(&|of| MetricValue::Count(of.rejected)).into_iter().chain([unknown])),
    ]
}

fn process() -> Vec<Metric> {
    let mut all = Vec::new();
    if let Some(cpu) = CpuTime::of_process() {
        let seconds = |us: u64| MetricValue::Seconds(us as f64 / 1e6);
        let modes = [("user", cpu.user_us), ("system", cpu.system_us)];
        all.push(
            Metric::new(
                "process_cpu",
                "Processor time that this process took",
                MetricKind::Counter,
            )
            .measured_in(Unit::Seconds)
            .with_each("mode", modes.map(|(mode, us)| (mode.to_string(), seconds(us)))),
        );
    }
    if let Some(memory) = ProcessMemory::read() {
        all.push(
            Metric::gauge(
                "process_resident_memory",
                "Memory that this process has, with what it shares with others",
                memory.resident,
            )
            .measured_in(Unit::Bytes),
        );
    }
    all
}

fn shards(shards: &[ShardStatus]) -> Vec<Metric> {
    let gauge = |name, help, value: fn(&ShardStatus) -> u64| {
        let each = shards.iter().map(|s| (s.shard.0.to_string(), MetricValue::Count(value(s))));
        Metric::new(name, help, MetricKind::Gauge).with_each("shard", each)
    };
    vec![
        gauge("shard_applied", "Position up to which commands were executed", |s| s.applied),
        gauge("shard_waiting", "Commands delivered but not executed", |s| s.waiting as u64),
        gauge("shard_keys", "Keys held", |s| s.keys as u64),
        gauge("shard_expiring_keys", "Keys held that will expire", |s| s.expiring as u64),
        gauge("shard_memory_used", "Bytes that its keys take at each replica", |s| s.used_bytes)
            .measured_in(Unit::Bytes),
        gauge(
            "shard_memory_limit",
            "Bytes that its keys may take: its part of maxmemory; 0 for any number",
            |s| s.budget_bytes,
        )
        .measured_in(Unit::Bytes),
        gauge(
            "shard_parts",
            "Bytes of parts of large commands that wait for the others at each replica",
            |s| s.parts_bytes,
        )
        .measured_in(Unit::Bytes),
        gauge("shard_replicas_up", "Replicas that are up", |s| s.replicas.0 as u64),
        gauge("shard_replicas", "Replicas there are", |s| s.replicas.1 as u64),
    ]
}

/// Metrics as they are written.
#[derive(Debug)]
struct MetricsPage(Vec<Metric>);

impl Collector for MetricsPage {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for metric in self.0.iter().filter(|metric| !metric.samples.is_empty()) {
            let unit = metric.unit.map(|unit| match unit {
                Unit::Bytes => prometheus_client::registry::Unit::Bytes,
                Unit::Seconds => prometheus_client::registry::Unit::Seconds,
            });
            let kind = match metric.kind {
                MetricKind::Counter => MetricType::Counter,
                MetricKind::Gauge => MetricType::Gauge,
                MetricKind::Histogram => MetricType::Histogram,
            };
            let help = format!("{}.", metric.help);
            let mut of = encoder.encode_descriptor(metric.name, &help, unit.as_ref(), kind)?;
            for (labels, value) in &metric.samples {
                sample(&mut of, metric.kind, labels, value)?;
            }
        }
        Ok(())
    }
}

/// Writes a sample. Without labels there are no brackets either.
fn sample(
    of: &mut MetricEncoder<'_>,
    kind: MetricKind,
    labels: &MetricLabels,
    value: &MetricValue,
) -> fmt::Result {
    match labels.as_slice() {
        [] => number(of, kind, value),
        _ => number(&mut of.encode_family(labels)?, kind, value),
    }
}

fn number(of: &mut MetricEncoder<'_>, kind: MetricKind, value: &MetricValue) -> fmt::Result {
    match (kind, value) {
        (MetricKind::Counter, MetricValue::Count(n)) => {
            of.encode_counter::<NoLabelSet, _, u64>(n, None)
        }
        (MetricKind::Counter, MetricValue::Seconds(s)) => {
            of.encode_counter::<NoLabelSet, _, u64>(s, None)
        }
        (MetricKind::Gauge, MetricValue::Count(n)) => {
            of.encode_gauge(&i64::try_from(*n).unwrap_or(i64::MAX))
        }
        (MetricKind::Gauge, MetricValue::Seconds(s)) => of.encode_gauge(s),
        (_, MetricValue::Durations(all)) => durations(of, all),
        // A count is no histogram.
        (MetricKind::Histogram, _) => Err(fmt::Error),
    }
}

/// Writes a histogram, whose buckets are given each by itself, and the last without a bound.
fn durations(of: &mut MetricEncoder<'_>, all: &Histogram) -> fmt::Result {
    let seconds = |ns: u64| ns as f64 / 1e9;
    let (mut buckets, mut before) = (Vec::new(), 0);
    for (bound, seen) in all.cumulative() {
        buckets.push((seconds(bound), seen - before));
        before = seen;
    }
    buckets.push((f64::INFINITY, all.count() - before));
    of.encode_histogram::<NoLabelSet>(seconds(all.sum_ns), all.count(), &buckets, None)
}

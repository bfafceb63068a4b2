//! Metrics of the nodes, as far as this process knows them: a label names the node.

use crate::config::node_name;
use crate::control::NodeStatus;
use crate::supervisor::NodeProcess;
use amcast_smr::Metric;
use amcast_smr::metrics::{MetricKind, MetricValue, Unit};

/// The figures of nodes, by rank, that said this, and of what their supervisor says of them, if they have one.
pub(super) fn node_metrics(said: &[Option<NodeStatus>], lives: &[NodeProcess]) -> Vec<Metric> {
    let nodes = NodeStatuses(said);
    let mut all = nodes.presence();
    all.extend(nodes.files());
    all.extend(nodes.logs());
    all.extend(nodes.network());
    if !lives.is_empty() {
        let starts = lives.iter().map(|life| (life.name.clone(), MetricValue::Count(life.starts)));
        let given_up = lives
            .iter()
            .map(|life| (life.name.clone(), MetricValue::Count(u64::from(life.given_up))));
        all.push(
            Metric::new("node_starts", "Starts of the node by its supervisor", MetricKind::Counter)
                .with_each("node", starts),
        );
        all.push(
            Metric::new("node_given_up", "1 while each start of the node fails", MetricKind::Gauge)
                .with_each("node", given_up),
        );
    }
    all
}

/// The status of each node, by rank.
struct NodeStatuses<'a>(&'a [Option<NodeStatus>]);

impl NodeStatuses<'_> {
    /// The metric with a sample for each node of which something is known.
    fn each(&self, metric: Metric, value: impl Fn(&NodeStatus) -> Option<MetricValue>) -> Metric {
        let said = self.0.iter().enumerate();
        let known = said.filter_map(|(rank, node)| {
            let value = node.as_ref().and_then(&value)?;
            Some((node_name(rank), value))
        });
        metric.with_each("node", known)
    }

    fn presence(&self) -> Vec<Metric> {
        let said = self.0.iter().enumerate();
        let up = said
            .map(|(rank, node)| (node_name(rank), MetricValue::Count(u64::from(node.is_some()))));
        let up = Metric::new("node_up", "1 while the node answers", MetricKind::Gauge)
            .with_each("node", up);
        let ready = Metric::new(
            "node_ready",
            "1 while the node has its place in all shards",
            MetricKind::Gauge,
        );
        let life = Metric::new(
            "node_incarnation",
            "Which life of the node this is, from 0 on: each start begins one",
            MetricKind::Gauge,
        );
        let memory = Metric::new(
            "node_resident_memory",
            "Memory that the node's process has, with what it shares with others",
            MetricKind::Gauge,
        );
        let dropped = Metric::new(
            "node_answers_dropped",
            "Answers dropped because gateways did not keep up",
            MetricKind::Counter,
        );
        vec![
            up,
            self.each(ready, |node| Some(MetricValue::Count(u64::from(node.ready)))),
            self.each(life, |node| node.life.map(|life| MetricValue::Count(life.into()))),
            self.each(memory, |node| {
                node.resources.map(|of| MetricValue::Count(of.resident_bytes))
            })
            .measured_in(Unit::Bytes),
            self.each(dropped, |node| Some(MetricValue::Count(node.answers_dropped))),
        ]
    }

    fn files(&self) -> Vec<Metric> {
        let mut used = Metric::new(
            "node_files",
            "Bytes in the node's files: logs of its replicas, and saved states",
            MetricKind::Gauge,
        );
        for (rank, node) in self.0.iter().enumerate() {
            let disk = node.as_ref().and_then(|node| node.resources).and_then(|of| of.disk);
            let Some(disk) = disk else { continue };
            for (of, bytes) in [("log", disk.log_bytes), ("checkpoint", disk.checkpoint_bytes)] {
                let labels = vec![("node", node_name(rank)), ("kind", of.to_string())];
                used = used.with(labels, MetricValue::Count(bytes));
            }
        }
        let free = Metric::new(
            "node_disk_free",
            "Free space of the file system of the node's files",
            MetricKind::Gauge,
        );
        let size = Metric::new(
            "node_disk_size",
            "Size of the file system of the node's files",
            MetricKind::Gauge,
        );
        let of = |node: &NodeStatus| node.resources.and_then(|of| of.disk);
        vec![
            used.measured_in(Unit::Bytes),
            self.each(free, |node| of(node).map(|disk| MetricValue::Count(disk.free_bytes)))
                .measured_in(Unit::Bytes),
            self.each(size, |node| of(node).map(|disk| MetricValue::Count(disk.size_bytes)))
                .measured_in(Unit::Bytes),
        ]
    }

    fn logs(&self) -> Vec<Metric> {
        let seconds = |ns: u64| MetricValue::Seconds(ns as f64 / 1e9);
        let records = Metric::new(
            "node_log_records",
            "Records written to the node's logs",
            MetricKind::Counter,
        );
        let bytes = Metric::new(
            "node_log_written",
            "Bytes written to the node's logs",
            MetricKind::Counter,
        );
        let syncs = Metric::new("node_log_syncs", "Syncs of the node's logs", MetricKind::Counter);
        let durations = Metric::new(
            "node_log_sync_duration",
            "How long those syncs of the node's logs took that a record waited for",
            MetricKind::Histogram,
        );
        let slowest = Metric::new(
            "node_log_sync_slowest",
            "The longest of those syncs since the node started",
            MetricKind::Gauge,
        );
        let under_way = Metric::new(
            "node_log_sync_under_way",
            "How long the sync lasts that has not ended; grows while a disk hangs",
            MetricKind::Gauge,
        );
        vec![
            self.each(records, |node| Some(MetricValue::Count(node.log.as_ref()?.records))),
            self.each(bytes, |node| Some(MetricValue::Count(node.log.as_ref()?.bytes)))
                .measured_in(Unit::Bytes),
            self.each(syncs, |node| Some(MetricValue::Count(node.log.as_ref()?.syncs))),
            self.each(durations, |node| {
                Some(MetricValue::Durations(Box::new(node.log.as_ref()?.durations()?)))
            }),
            self.each(slowest, |node| Some(seconds(node.log.as_ref()?.slowest_ns)))
                .measured_in(Unit::Seconds),
            self.each(under_way, |node| Some(seconds(node.log.as_ref()?.under_way_ns)))
                .measured_in(Unit::Seconds),
        ]
    }

    fn network(&self) -> Vec<Metric> {
        let connected = Metric::new(
            "node_peers_connected",
            "Nodes that the node is connected to",
            MetricKind::Gauge,
        );
        let backlog = Metric::new(
            "node_network_backlog",
            "Bytes that wait to go out to the slowest of them",
            MetricKind::Gauge,
        );
        let sent =
            Metric::new("node_messages_sent", "Messages that the node sent", MetricKind::Counter);
        let received = Metric::new(
            "node_messages_received",
            "Messages that came to the node",
            MetricKind::Counter,
        );
        let dropped = Metric::new(
            "node_messages_dropped",
            "Messages and datagrams that the node dropped",
            MetricKind::Counter,
        );
        let overflowed = Metric::new(
            "node_datagrams_overflowed",
            "Datagrams for the node that the system dropped because the buffer of their socket was full",
            MetricKind::Counter,
        );
        let breaks = Metric::new(
            "node_connection_breaks",
            "Connections to nodes that broke",
            MetricKind::Counter,
        );
        let count = |n: u64| Some(MetricValue::Count(n));
        vec![
            self.each(connected, |node| count(node.network?.connected as u64)),
            self.each(backlog, |node| count(node.network?.backlog_bytes as u64))
                .measured_in(Unit::Bytes),
            self.each(sent, |node| count(node.network?.sent)),
            self.each(received, |node| count(node.network?.received)),
            self.each(dropped, |node| count(node.network?.dropped)),
            self.each(overflowed, |node| count(node.network?.overflowed?)),
            self.each(breaks, |node| count(node.network?.breaks)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::{DiskStatus, LogStatus, ResourceStatus};

    fn find<'a>(all: &'a [Metric], name: &str) -> &'a Metric {
        all.iter().find(|metric| metric.name == name).unwrap()
    }

    #[test]
    fn nodes_that_do_not_answer_are_down_and_tell_nothing_else() {
        let mut buckets = vec![0; amcast_core::histogram::BUCKETS];
        buckets[30] = 7;
        let log = LogStatus { syncs: 9, sync_buckets: buckets, ..LogStatus::default() };
        let disk = DiskStatus { log_bytes: 5, checkpoint_bytes: 6, free_bytes: 7, size_bytes: 8 };
        let node = NodeStatus {
            life: Some(3),
            log: Some(log),
            resources: Some(ResourceStatus { resident_bytes: 4096, disk: Some(disk) }),
            ..super::super::watch::silent_node()
        };
        let life = NodeProcess { name: "n1".to_string(), starts: 4, ..NodeProcess::default() };
        let all = node_metrics(&[Some(node), None], &[life]);
        let of = |name: &str| find(&all, name).samples.clone();
        let label = |node: &str| vec![("node", node.to_string())];
        let up = [(label("n0"), MetricValue::Count(1)), (label("n1"), MetricValue::Count(0))];
        assert_eq!(of("node_up"), up);
        assert_eq!(of("node_incarnation"), [(label("n0"), MetricValue::Count(3))]);
        assert_eq!(of("node_starts"), [(label("n1"), MetricValue::Count(4))]);
        assert_eq!(of("node_log_syncs"), [(label("n0"), MetricValue::Count(9))]);
        let [(_, MetricValue::Durations(syncs))] = &of("node_log_sync_duration")[..] else {
            panic!("one histogram");
        };
        assert_eq!(syncs.count(), 7);
        assert_eq!(of("node_files").len(), 2);
        assert!(of("node_peers_connected").is_empty(), "it has no network");
    }
}

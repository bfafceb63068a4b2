//! Figures for the metrics page and `INFO`: their types, and histograms that several threads may read.

use amcast_core::histogram::{BUCKETS, Histogram, bucket};
use std::array;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// The labels that distinguish the samples of a metric: names and values.
pub type MetricLabels = Vec<(&'static str, String)>;

/// How a metric behaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MetricKind {
    /// It only grows while its process lives. Its name gets `_total`.
    Counter,
    /// It goes up and down.
    Gauge,
    /// Durations in buckets. Its name gets `_seconds`.
    Histogram,
}

/// The unit of a metric. Its name ends with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// Bytes.
    Bytes,
    /// Seconds.
    Seconds,
}

/// One value of a metric.
#[derive(Clone, PartialEq, Debug)]
pub enum MetricValue {
    /// How many.
    Count(u64),
    /// How long, in seconds.
    Seconds(f64),
    /// Durations; only of a [`MetricKind::Histogram`].
    Durations(Box<Histogram>),
}

/// A metric: one family of samples.
#[derive(Clone, PartialEq, Debug)]
pub struct Metric {
    /// Its name, without the program's in front, and without unit and `_total`.
    pub name: &'static str,
    /// Its description for people, without a full stop.
    pub help: &'static str,
    /// How it behaves.
    pub kind: MetricKind,
    /// Its unit, if it does not count things.
    pub unit: Option<Unit>,
    /// Its samples; none of two have the same labels.
    pub samples: Vec<(MetricLabels, MetricValue)>,
}

/// Tells figures as they are now.
pub type Metrics = Box<dyn Fn() -> Vec<Metric> + Send + Sync>;

impl Metric {
    /// A metric without samples.
    pub const fn new(name: &'static str, help: &'static str, kind: MetricKind) -> Self {
        let unit = match kind {
            MetricKind::Histogram => Some(Unit::Seconds),
            MetricKind::Counter | MetricKind::Gauge => None,
        };
        Self { name, help, kind, unit, samples: Vec::new() }
    }

    /// A count that only grows, without labels.
    pub fn counter(name: &'static str, help: &'static str, value: u64) -> Self {
        Self::new(name, help, MetricKind::Counter).with(Vec::new(), MetricValue::Count(value))
    }

    /// A number that goes up and down, without labels.
    pub fn gauge(name: &'static str, help: &'static str, value: u64) -> Self {
        Self::new(name, help, MetricKind::Gauge).with(Vec::new(), MetricValue::Count(value))
    }

    /// Measured in `unit`.
    #[must_use]
    pub const fn measured_in(mut self, unit: Unit) -> Self {
        self.unit = Some(unit);
        self
    }

    /// With one more sample.
    #[must_use]
    pub fn with(mut self, labels: MetricLabels, value: MetricValue) -> Self {
        self.samples.push((labels, value));
        self
    }

    /// With one more sample for each of these, which differ in the label `label`.
    #[must_use]
    pub fn with_each(
        mut self,
        label: &'static str,
        samples: impl IntoIterator<Item = (String, MetricValue)>,
    ) -> Self {
        let labelled = samples.into_iter().map(|(of, value)| (vec![(label, of)], value));
        self.samples.extend(labelled);
        self
    }

    /// Its value, if it is a count without labels.
    pub fn count(&self) -> Option<u64> {
        match self.samples.as_slice() {
            [(labels, MetricValue::Count(count))] if labels.is_empty() => Some(*count),
            _ => None,
        }
    }
}

/// A histogram that is counted by threads and read by others at any time.
#[derive(Debug)]
pub struct SharedHistogram {
    buckets: [AtomicU64; BUCKETS],
    sum_ns: AtomicU64,
}

impl Default for SharedHistogram {
    fn default() -> Self {
        Self { buckets: array::from_fn(|_| AtomicU64::new(0)), sum_ns: AtomicU64::new(0) }
    }
}

/// Counts where one thread alone counts: without a locked instruction.
pub fn add_alone(count: &AtomicU64, more: u64) {
    count.store(count.load(Relaxed).wrapping_add(more), Relaxed);
}

impl SharedHistogram {
    /// Counts one that took so many nanoseconds; any thread may.
    pub fn observe(&self, ns: u64) {
        self.buckets[bucket(ns)].fetch_add(1, Relaxed);
        self.sum_ns.fetch_add(ns, Relaxed);
    }

    /// The same where one thread alone counts.
    pub fn observe_alone(&self, ns: u64) {
        add_alone(&self.buckets[bucket(ns)], 1);
        add_alone(&self.sum_ns, ns);
    }

    /// The counts so far. A sample that is counted meanwhile may be in the buckets and not in the
    /// sum.
    pub fn read(&self) -> Histogram {
        Histogram {
            buckets: array::from_fn(|i| self.buckets[i].load(Relaxed)),
            sum_ns: self.sum_ns.load(Relaxed),
        }
    }
}

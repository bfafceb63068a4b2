//! The results of repeated measurements, as one document.

use super::{BenchPlan, BenchResult, EarlyCounts, HostMachine};
use serde::Serialize;
use serde_json::{Value, json};

/// A row of the table: a plan, and what came out each time.
#[derive(Clone, Debug, Serialize)]
pub struct ReportRow {
    /// The plan of the measurement.
    #[serde(flatten)]
    pub plan: BenchPlan,
    /// In the order of the rounds; rows take turns within a round.
    pub rounds: Vec<BenchResult>,
}

/// The middle of some repeats, and how far they lie apart.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Spread {
    /// The middle one; of an even number the lower of the two.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

impl Spread {
    /// Of at least one figure.
    pub fn of(figures: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut all: Vec<f64> = figures.into_iter().collect();
        all.sort_by(f64::total_cmp);
        let median = *all.get(all.len().checked_sub(1)? / 2)?;
        Some(Self { median, min: all[0], max: all[all.len() - 1] })
    }
}

impl ReportRow {
    /// The throughput over the rounds, in multicasts a second.
    pub fn per_second(&self) -> Option<Spread> {
        Spread::of(self.rounds.iter().map(|m| m.per_second))
    }

    /// The median latency over the rounds, in nanoseconds.
    pub fn p50_ns(&self) -> Option<Spread> {
        Spread::of(self.rounds.iter().map(|m| m.latency_ns.p50 as f64))
    }

    /// Where the latency's 99th percentile lies over the rounds, in nanoseconds.
    pub fn p99_ns(&self) -> Option<Spread> {
        Spread::of(self.rounds.iter().map(|m| m.latency_ns.p99 as f64))
    }

    /// The early deliveries of all rounds, if they were measured.
    pub fn early(&self) -> Option<EarlyCounts> {
        self.rounds.iter().map(|m| m.early).sum()
    }
}

/// One document with all rows. `lines_ns` is a cache line's time one way, measured before each
/// round. A single row's last measurement is repeated at the front.
pub fn report(medium: &str, machine: &HostMachine, lines_ns: &[f64], rows: &[ReportRow]) -> Value {
    let line = Spread::of(lines_ns.iter().copied());
    let each: Vec<Value> = rows
        .iter()
        .map(|row| {
            let mut value = json!(row);
            value["per_second"] = json!(row.per_second());
            value["p50_ns"] = json!(row.p50_ns());
            value["p99_ns"] = json!(row.p99_ns());
            if let (Some(p50), Some(line)) = (row.p50_ns(), line) {
                value["p50_lines"] = json!(p50.median / line.median);
            }
            value
        })
        .collect();
    let single = if let [row] = rows { row.rounds.last() } else { None };
    json!({
        "bench": "protocol",
        "medium": medium,
        "machine": machine,
        "line_one_way_ns": line,
        "rounds": rows.iter().map(|row| row.rounds.len()).max(),
        "measured": single,
        "rows": each,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_is_one_of_the_figures() {
        assert_eq!(Spread::of([]), None);
        let spread = Spread::of([3.0, 1.0, 2.0, 9.0]).unwrap();
        assert_eq!(spread, Spread { median: 2.0, min: 1.0, max: 9.0 });
    }
}

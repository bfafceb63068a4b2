//! The figures that the paper prints in tables 2 to 5.

use crate::bench::votes::VoteSource;

/// A row of table 2 or 3, with that of table 4 or 5 beside it.
#[derive(Clone, Copy, Debug)]
pub(super) struct PrintedRow {
    /// Messages a second.
    pub(super) per_second: u64,
    pub(super) index: f64,
    pub(super) concurrency: f64,
    /// Milliseconds, as measured.
    pub(super) latency_ms: f64,
    /// Milliseconds, as the equation of the source gives them.
    pub(super) model_ms: f64,
}

const fn row(per_second: u64, of: [f64; 4]) -> PrintedRow {
    let [index, concurrency, latency_ms, model_ms] = of;
    PrintedRow { per_second, index, concurrency, latency_ms, model_ms }
}

/// By load, ToTo before all-ack.
const PERIODIC: [PrintedRow; 8] = [
    row(50, [5.10, 1.12, 76.68, 75.67]),
    row(50, [8.00, 1.69, 135.02, 137.51]),
    row(100, [5.42, 1.39, 42.31, 44.87]),
    row(100, [8.00, 1.31, 68.78, 69.35]),
    row(150, [5.36, 1.44, 29.17, 29.29]),
    row(150, [8.00, 1.81, 45.59, 47.34]),
    row(200, [5.90, 1.72, 23.80, 24.78]),
    row(200, [8.00, 1.48, 43.71, 35.96]),
];

const POISSON: [PrintedRow; 8] = [
    row(50, [5.11, 1.15, 114.10, 122.34]),
    row(50, [8.00, 1.13, 385.25, 396.17]),
    row(100, [5.31, 1.29, 60.98, 66.64]),
    row(100, [8.00, 1.27, 188.06, 194.58]),
    row(150, [5.54, 1.42, 44.10, 52.34]),
    row(150, [8.00, 1.42, 133.09, 137.79]),
    row(200, [5.89, 1.63, 39.37, 46.12]),
    row(200, [8.00, 1.58, 102.33, 111.45]),
];

/// The rows of a source.
pub(super) const fn rows(source: VoteSource) -> &'static [PrintedRow; 8] {
    match source {
        VoteSource::Periodic => &PERIODIC,
        VoteSource::Poisson => &POISSON,
    }
}

/// The row of this load: of ToTo, or of all-ack.
pub(super) fn printed(source: VoteSource, per_second: u64, toto: bool) -> Option<PrintedRow> {
    let mut pairs = rows(source).chunks_exact(2).filter(|pair| pair[0].per_second == per_second);
    pairs.next().map(|pair| if toto { pair[0] } else { pair[1] })
}

impl PrintedRow {
    /// How far the prediction is from what was measured, as a part of the latter.
    pub(super) fn deviation(&self) -> f64 {
        deviation(self.model_ms, self.latency_ms)
    }
}

/// `|model - observed| / observed`.
pub(super) fn deviation(model: f64, observed: f64) -> f64 {
    (model - observed).abs() / observed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_speed_ups_and_deviations_that_the_paper_prints_follow_from_its_rows() {
        let speed_ups = |source| {
            let of = |pair: &[PrintedRow]| pair[1].latency_ms / pair[0].latency_ms;
            rows(source).chunks_exact(2).map(of).collect::<Vec<f64>>()
        };
        let near = |found: &[f64], paper: &[f64]| {
            assert_eq!(found.len(), paper.len());
            // Some are rounded, and some are cut.
            let close = |(a, b): (&f64, &f64)| (a - b).abs() < 0.01;
            assert!(found.iter().zip(paper).all(close), "{found:?}, {paper:?}");
        };
        near(&speed_ups(VoteSource::Periodic), &[1.76, 1.63, 1.56, 1.84]);
        near(&speed_ups(VoteSource::Poisson), &[3.38, 3.08, 3.01, 2.60]);
        let deviations =
            |source| rows(source).iter().map(PrintedRow::deviation).collect::<Vec<f64>>();
        near(
            &deviations(VoteSource::Periodic),
            &[0.013, 0.018, 0.060, 0.008, 0.004, 0.038, 0.041, 0.177],
        );
        near(
            &deviations(VoteSource::Poisson),
            &[0.072, 0.028, 0.093, 0.035, 0.187, 0.035, 0.171, 0.089],
        );
    }

    #[test]
    fn a_row_is_found_by_load_and_protocol() {
        let row = printed(VoteSource::Poisson, 150, false).unwrap();
        assert!((row.latency_ms - 133.09).abs() < 1e-9);
        assert!(printed(VoteSource::Poisson, 75, true).is_none());
    }
}

//! Choice by guarantee: name what must hold, get the fastest protocol that enforces it.
//!
//! ```
//! use amcast::choose::{self, MeasuredMedium};
//! use amcast::check::Specification;
//!
//! let spec = Specification::parse("TO(NUA,WUTO)").unwrap();
//! let fastest = &choose::broadcast(spec, MeasuredMedium::Tcp)[0];
//! println!("{}: {}", fastest.entry.name(), fastest.why);
//! ```
//!
//! How fast each is comes from `measured.json`, which is what `amcast reproduce to-fig5` wrote on the
//! machine that it names; `cargo xtask measure` makes it anew, and [`broadcast_by`] takes such a file of
//! another machine. Of protocols that are about equally fast the one of lower latency comes first.

mod overlay;

pub use overlay::{fitted_overlay, overlay_parents};

use amcast_check::Specification;
use amcast_core::{Assumption, Entry, Property};
use amcast_protocols::catalog::CATALOG;
use serde::Deserialize;

/// How many times the throughput of the fastest is as fast: measurements are no better than that.
const AS_FAST: f64 = 0.9;

const MEASURED: &str = include_str!("measured.json");

/// The medium that carries messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MeasuredMedium {
    /// Streams.
    Tcp,
    /// Datagrams.
    Udp,
    /// The simulator's network of 100 Mbit/s.
    Sim,
    /// Memory that processes of one machine share.
    Shm,
}

impl MeasuredMedium {
    /// Its name in measurements.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Sim => "sim",
            Self::Shm => "shm",
        }
    }
}

/// A protocol that enforces what was asked for.
pub struct Candidate {
    /// The protocol.
    pub entry: &'static dyn Entry,
    /// Deliveries each second of a group of four under bursts; none if that was not measured.
    pub per_second: Option<f64>,
    /// Mean time from broadcast to delivery under the same bursts, in microseconds.
    pub latency_us: Option<f64>,
    /// Why it is a candidate, and how fast it was, in a sentence.
    pub why: String,
}

/// The fields read here of the file that `amcast reproduce to-fig5` writes.
#[derive(Deserialize)]
struct MeasuredFigure {
    quick: bool,
    machine: MeasuredMachine,
    figures: MeasuredFigures,
}

#[derive(Deserialize)]
struct MeasuredMachine {
    processor: String,
    cores: usize,
}

/// The mean over repeats, and the extremes.
#[derive(Deserialize)]
struct MeasuredRange {
    mean: f64,
    least: f64,
    most: f64,
}

/// The measurement of one protocol with bursts of one size.
#[derive(Deserialize)]
struct MeasuredPoint {
    protocol: String,
    medium: String,
    burst: usize,
    latency_us: MeasuredRange,
    per_second: MeasuredRange,
    repeats: usize,
}

#[derive(Deserialize)]
struct MeasuredFigures {
    points: Vec<MeasuredPoint>,
}

/// The specification that a protocol promises, if it broadcasts in total order: the strongest.
pub fn enforced(entry: &dyn Entry) -> Option<Specification> {
    let promises = entry.about().promises;
    let promised = |spec: &Specification| spec.properties().iter().all(|p| promises.contains(p));
    Specification::ALL.into_iter().find(promised)
}

/// Protocols of one group that enforce `spec` or more and may serve on real processes, the fastest over `medium` first, by the
/// measurements kept with the project.
pub fn broadcast(spec: Specification, medium: MeasuredMedium) -> Vec<Candidate> {
    broadcast_by(MEASURED, spec, medium).expect("the kept file is tested")
}

/// As [`broadcast`], by the measurements in `measured`, the text of a `to-fig5.json`.
///
/// # Errors
/// When the text is none.
pub fn broadcast_by(
    measured: &str,
    spec: Specification,
    medium: MeasuredMedium,
) -> Result<Vec<Candidate>, serde_json::Error> {
    let measured: MeasuredFigure = serde_json::from_str(measured)?;
    let mut all: Vec<Candidate> = CATALOG
        .iter()
        .filter(|entry| entry.require_service().is_ok())
        .filter_map(|entry| {
            let has = enforced(*entry)?;
            // `spec` admits all that this specification lets faulty processes do [TO 2.4].
            has.admits()
                .within(spec.admits())
                .then(|| candidate(*entry, (has, spec), medium, &measured))
        })
        .collect();
    sort(&mut all);
    Ok(all)
}

/// The fastest first; those about as fast as it by latency; then the fastest of the others, and so on.
fn sort(all: &mut [Candidate]) {
    let speed = |c: &Candidate| c.per_second.unwrap_or(0.0);
    all.sort_by(|a, b| speed(b).total_cmp(&speed(a)));
    let mut rest = all;
    while let Some(fastest) = rest.first() {
        let least = speed(fastest) * AS_FAST;
        let as_fast = rest.partition_point(|c| speed(c) >= least);
        let (equal, others) = std::mem::take(&mut rest).split_at_mut(as_fast);
        let latency = |c: &Candidate| c.latency_us.unwrap_or(f64::INFINITY);
        equal.sort_by(|a, b| latency(a).total_cmp(&latency(b)));
        rest = others;
    }
}

fn candidate(
    entry: &'static dyn Entry,
    (has, spec): (Specification, Specification),
    medium: MeasuredMedium,
    measured: &MeasuredFigure,
) -> Candidate {
    let points = measured.figures.points.iter();
    let own = points.filter(|p| p.protocol == entry.name() && p.medium == medium.name());
    let point = own.max_by_key(|p| p.burst);
    let fast = match point {
        None => format!("not measured over {}", medium.name()),
        Some(p) => format!(
            "{:.0} deliveries a second ({:.0} to {:.0} in {}{} repeats) and {:.0} us with bursts of {} \
             over {} (four processes, {} cores of {})",
            p.per_second.mean,
            p.per_second.least,
            p.per_second.most,
            if measured.quick { "only " } else { "" },
            p.repeats,
            p.latency_us.mean,
            p.burst,
            medium.name(),
            measured.machine.cores,
            measured.machine.processor
        ),
    };
    let includes = if has == spec { String::new() } else { format!(", which includes {spec}") };
    let why = format!("enforces {has}{includes}; {fast}");
    let (per_second, latency_us) =
        (point.map(|p| p.per_second.mean), point.map(|p| p.latency_us.mean));
    Candidate { entry, per_second, latency_us, why }
}

/// Protocols that multicast to any set of groups in one acyclic order, those that bear crashes first.
pub fn multicast(medium: Option<MeasuredMedium>) -> Vec<Candidate> {
    let needs = [Property::Validity, Property::UniformAgreement, Property::UniformAcyclicOrder];
    let offers = |entry: &&&'static dyn Entry| {
        let about = entry.about();
        let memory = matches!(about.medium, amcast_core::MediumKind::Memory);
        needs.iter().all(|p| about.promises.contains(p))
            && medium
                .is_none_or(|m| m == MeasuredMedium::Sim || memory == (m == MeasuredMedium::Shm))
    };
    let frail = |entry: &dyn Entry| entry.about().assumes.contains(&Assumption::NoCrash);
    let mut all: Vec<_> = CATALOG.iter().filter(offers).copied().collect();
    all.sort_by_key(|entry| frail(*entry));
    let told = |entry: &'static dyn Entry| Candidate {
        entry,
        per_second: None,
        latency_us: None,
        why: match frail(entry) {
            true => "orders over any groups, and assumes that no process crashes".to_string(),
            false => "orders over any groups, while a majority of each works".to_string(),
        },
    };
    all.into_iter().map(told).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_chosen_enforces_what_was_asked_for_and_all_six_can_be_asked_for() {
        for spec in Specification::ALL {
            for medium in [MeasuredMedium::Tcp, MeasuredMedium::Udp, MeasuredMedium::Sim] {
                let all = broadcast(spec, medium);
                // Some were not measured, and come last; two of them enforce only the weakest.
                let unmeasured = all.iter().filter(|c| c.per_second.is_none());
                let unmeasured: Vec<_> = unmeasured.map(|c| c.entry.name()).collect();
                let uniform = ["fastcast", "lcr", "ring-paxos-multicast"];
                let weakest: &[_] = match spec.to_string() == "TO(NUA,WNUTO)" {
                    true => &["toto", "all-ack"],
                    false => &[],
                };
                assert_eq!(unmeasured, [&uniform[..], weakest].concat(), "{spec}");
                assert!(all.is_sorted_by_key(|c| c.per_second.is_none()), "{spec}");
                let speed = |c: &Candidate| c.per_second.unwrap_or(0.0);
                assert!(all.is_sorted_by(|a, b| speed(a) >= speed(b) * AS_FAST));
                for one in &all {
                    let has = enforced(one.entry).expect("it promises one");
                    assert!(has.admits().within(spec.admits()), "{spec}: {}", one.entry.name());
                }
            }
        }
        // The strongest is enforced by the seven that are uniform throughout, and the weakest by all.
        let count = |name| {
            broadcast(Specification::parse(name).expect("it is one"), MeasuredMedium::Tcp).len()
        };
        assert_eq!((count("TO(UA,SUTO)"), count("TO(NUA,WNUTO)")), (7, 15));
    }

    #[test]
    fn among_equally_fast_ones_latency_decides() {
        let one = |per_second, latency_us| Candidate {
            entry: CATALOG[0],
            per_second: Some(per_second),
            latency_us: Some(latency_us),
            why: String::new(),
        };
        let mut all = [one(80.0, 1.0), one(95.0, 2.0), one(100.0, 3.0), one(73.0, 0.5)];
        sort(&mut all);
        assert_eq!(all.map(|c| c.latency_us), [2.0, 3.0, 0.5, 1.0].map(Some));
    }

    #[test]
    fn multicast_that_bears_crashes_comes_first() {
        let names =
            |medium| -> Vec<_> { multicast(medium).iter().map(|c| c.entry.name()).collect() };
        let rings = ["multi-ring", "multi-ring-async", "multi-ring-memory"];
        let with = |more: &[&'static str]| [&rings[..], more].concat();
        assert_eq!(names(None), [&["tram", "ramcast"][..], &with(&["skeen", "byzcast"])].concat());
        assert_eq!(names(Some(MeasuredMedium::Shm)), ["tram", "ramcast"]);
        assert_eq!(names(Some(MeasuredMedium::Tcp)), with(&["skeen", "byzcast"]));
    }

    #[test]
    fn a_file_that_is_none_is_refused() {
        let spec = Specification::ALL[0];
        assert!(broadcast_by("{}", spec, MeasuredMedium::Tcp).is_err());
    }
}

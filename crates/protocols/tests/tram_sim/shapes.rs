//! Configurations by seed, and what a run in one of them came to.

use amcast_check::{CheckReport as Findings, History, Property, PropertyVerdict, check};
use amcast_core::trace::TraceEvent;
use amcast_core::{Config, Entry, RawConfig, Span};
use amcast_protocols::{catalog, trial};
use amcast_sim::run::record;
use amcast_sim::{Profile, RunOutcome, RunReport, RunSettings};
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

pub(crate) fn tram() -> &'static dyn Entry {
    catalog::find("tram").expect("it is in the catalog")
}

/// Any shape, by seed.
pub(crate) fn shape(seed: u64) -> Config {
    checked(&trial::wide(tram(), seed, None))
}

/// Any shape of several groups whose tree changes, by seed.
pub(crate) fn changing(seed: u64) -> Config {
    let groups = 2 + seed as usize % 5;
    let mut raw = trial::wide(tram(), seed, Some(groups));
    raw.set.insert("dynamic_overlay".to_string(), "1".to_string());
    checked(&raw)
}

/// The same with hardly any room.
pub(crate) fn changing_tight(seed: u64) -> Config {
    let mut raw = trial::tight(tram(), seed, Some(2 + seed as usize % 3));
    raw.replicas = 3;
    raw.set.insert("dynamic_overlay".to_string(), "1".to_string());
    checked(&raw)
}

/// Any shape of several groups whose tree changes, with a mutant, by seed.
pub(crate) fn changing_wrongly(seed: u64, mutant: &str) -> Config {
    let mut raw = trial::hasty(tram(), seed, Some(3));
    for (name, value) in [("dynamic_overlay", "1"), ("mutant", mutant)] {
        raw.set.insert(name.to_string(), value.to_string());
    }
    checked(&raw)
}

/// A shape with hardly any room, by seed.
pub(crate) fn tight(seed: u64) -> Config {
    checked(&trial::tight(tram(), seed, None))
}

/// The same with groups of five.
pub(crate) fn five(seed: u64) -> Config {
    let mut raw = trial::tight(tram(), seed, None);
    raw.replicas = 5;
    checked(&raw)
}

/// A shape in which a mistake shows soon.
pub(crate) fn hasty(seed: u64, mutant: &'static str) -> Config {
    let mut raw = trial::hasty(tram(), seed, None);
    raw.set.insert("mutant".to_string(), mutant.to_string());
    checked(&raw)
}

/// The same with the shortest timers that can be set.
pub(crate) fn hastiest(seed: u64) -> Config {
    let mut raw = trial::hasty(tram(), seed, None);
    for (name, value) in [("heartbeat_us", "10"), ("suspect_us", "20")] {
        raw.set.insert(name.to_string(), value.to_string());
    }
    checked(&raw)
}

fn checked(raw: &RawConfig) -> Config {
    raw.check(tram().about().params).expect("a sound configuration")
}

/// The settings of a run: enough multicasts to go round the rings several times.
pub(crate) fn settings(profile: Profile) -> RunSettings {
    RunSettings { payload_max: 1500, ..RunSettings::with(profile) }
}

/// How a run ended.
pub(crate) enum TramRunEnd {
    /// By itself.
    Report(Box<RunReport>),
    /// By an assertion of the protocol.
    Assertion(String),
}

impl TramRunEnd {
    /// The reason why the run stopped or stalled, beside the checker's verdict.
    pub(crate) fn trouble(&self) -> Option<&'static str> {
        match self {
            Self::Assertion(_) => Some("assertion"),
            Self::Report(report) => match report.outcome {
                RunOutcome::Settled => None,
                RunOutcome::NotSettled(_) => Some("not settled"),
                RunOutcome::Breach(_) => Some("breach"),
            },
        }
    }
}

impl core::fmt::Display for TramRunEnd {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Report(report) => write!(f, "{:?}", report.outcome),
            Self::Assertion(said) => write!(f, "assertion: {said}"),
        }
    }
}

/// Runs a seed and judges everything that TRAM promises. A run that did not settle is over all the
/// same: what it had not delivered by then counts as never delivered.
pub(crate) fn judge(config: &Config, settings: &RunSettings, seed: u64) -> (TramRunEnd, Findings) {
    let mut history = History::new();
    if let Some(overlay) = tram().overlay(config) {
        history.arrange(overlay).expect("one tree");
    }
    let mut push = |event: &TraceEvent<'_>| {
        history.push_event(event, config.cluster()).expect("the simulator's events are sound");
    };
    let ran = catch_unwind(AssertUnwindSafe(|| {
        record(tram(), config, settings, seed, &mut None, &mut push).expect("it is built")
    }));
    let end = match ran {
        Ok(report) => TramRunEnd::Report(Box::new(report)),
        Err(said) => TramRunEnd::Assertion(match said.downcast::<String>() {
            Ok(text) => *text,
            Err(other) => other.downcast_ref::<&str>().copied().unwrap_or("?").to_string(),
        }),
    };
    if end.trouble() == Some("not settled") {
        push(&TraceEvent::End);
    }
    let findings = check(&history, tram().about().promises);
    (end, findings)
}

/// The promises that a run broke.
pub(crate) fn violated(findings: &Findings) -> BTreeSet<Property> {
    let violated = |(_, verdict): &&(Property, PropertyVerdict)| {
        matches!(verdict, PropertyVerdict::Violated(_))
    };
    findings.findings.iter().filter(violated).map(|(property, _)| *property).collect()
}

/// A number from the environment, for longer runs than the usual.
pub(crate) fn seeds(usual: u64) -> u64 {
    let given = std::env::var("AMCAST_SEEDS").ok();
    given.map_or(usual, |text| text.parse().expect("AMCAST_SEEDS is a number"))
}

/// A short run full of faults: what is not delivered soon after them never will be.
pub(crate) fn brief(profile: Profile) -> RunSettings {
    let (faulty, settle) = (Some(Span::millis(4)), Span::millis(100));
    RunSettings { faulty, settle, quiet: Span::micros(500), ..settings(profile) }
}

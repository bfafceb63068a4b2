//! Configurations by seed, and what a run in one of them came to.

use amcast_check::{History, Property, Report as Findings, Verdict, check};
use amcast_core::rng::Rng;
use amcast_core::trace::Event;
use amcast_core::{Config, Entry, RawConfig, Span};
use amcast_protocols::catalog;
use amcast_sim::run::record;
use amcast_sim::{Outcome, Profile, Report, Settings};
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

pub(crate) fn tram() -> &'static dyn Entry {
    catalog::find("tram").expect("it is in the catalog")
}

/// A cluster's shape by seed: 1 to 4 groups, mostly of 3 replicas, every kind of tree; rings so
/// small that they go round and fill up; hasty timers and patient ones.
pub(crate) fn shape(seed: u64) -> Config {
    let mut rng = Rng::stream(seed, "shape");
    let mut of = |words: &[&'static str]| words[rng.below(words.len() as u64) as usize];
    let groups: usize = of(&["1", "2", "3", "4"]).parse().expect("a number");
    let lists = ["-1", "1,-1", "2,0,-1", "1,-1,1,2"];
    let overlay = of(&["base", "breadth", "depth", lists[groups - 1]]).to_string();
    let replicas = of(&["3", "3", "3", "3", "5", "5", "7"]).parse().expect("a number");
    let mut set = vec![
        ("xfer_lines", "64"),
        ("log_lines", of(&["64", "128", "512"])),
        ("hm_lines", of(&["64", "128", "256"])),
        ("batch_lines", of(&["512", "512", "8"])),
        ("pipeline", of(&["4", "4", "1"])),
    ];
    // The hastiest suspect each other all the time; the patient ones not even in most faults.
    set.extend(TIMERS[rng.below(3) as usize]);
    checked(RawConfig { groups, replicas, clients: 2, overlay, ..RawConfig::default() }, &set)
}

/// A shape in which a mistake shows soon: few processes, and leaders that change all the time.
pub(crate) fn hasty(seed: u64, mutant: &'static str) -> Config {
    let mut rng = Rng::stream(seed, "hasty");
    let groups = 1 + rng.below(3) as usize;
    let overlay = ["breadth", "depth"][rng.below(2) as usize].to_string();
    let mut set = vec![("mutant", mutant), ("log_lines", "64"), ("hm_lines", "64")];
    set.extend([("xfer_lines", "64"), ("batch_lines", ["512", "8"][rng.below(2) as usize])]);
    set.extend(TIMERS[rng.below(2) as usize]);
    checked(RawConfig { groups, replicas: 3, clients: 2, overlay, ..RawConfig::default() }, &set)
}

/// How often a replica shows that it lives, and how long it may be silent.
const TIMERS: [[(&str, &str); 2]; 3] = [
    [("heartbeat_us", "50"), ("suspect_us", "200")],
    [("heartbeat_us", "100"), ("suspect_us", "1000")],
    [("heartbeat_us", "2000"), ("suspect_us", "50000")],
];

fn checked(mut raw: RawConfig, set: &[(&str, &str)]) -> Config {
    raw.set = set.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
    raw.check(tram().about().params).expect("a sound configuration")
}

/// What is multicast in a run: enough to go round the rings several times.
pub(crate) fn settings(profile: Profile) -> Settings {
    Settings { payload_max: 1500, ..Settings::with(profile) }
}

/// How a run ended.
pub(crate) enum End {
    /// By itself.
    Report(Box<Report>),
    /// By an assertion of the protocol.
    Assertion(String),
}

impl End {
    /// What stopped or stalled the run, beside what the checker says.
    pub(crate) fn trouble(&self) -> Option<&'static str> {
        match self {
            Self::Assertion(_) => Some("assertion"),
            Self::Report(report) => match report.outcome {
                Outcome::Settled => None,
                Outcome::NotSettled(_) => Some("not settled"),
                Outcome::Breach(_) => Some("breach"),
            },
        }
    }
}

impl core::fmt::Display for End {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Report(report) => write!(f, "{:?}", report.outcome),
            Self::Assertion(said) => write!(f, "assertion: {said}"),
        }
    }
}

/// Runs a seed and judges everything that TRAM promises. A run that did not settle is over all the
/// same: what it had not delivered by then counts as never delivered.
pub(crate) fn judge(config: &Config, settings: &Settings, seed: u64) -> (End, Findings) {
    let mut history = History::new();
    let mut push = |event: &Event<'_>| {
        history.push_event(event, config.cluster()).expect("the simulator's events are sound");
    };
    let ran = catch_unwind(AssertUnwindSafe(|| {
        record(tram(), config, settings, seed, &mut None, &mut push).expect("it is built")
    }));
    let end = match ran {
        Ok(report) => End::Report(Box::new(report)),
        Err(said) => End::Assertion(match said.downcast::<String>() {
            Ok(text) => *text,
            Err(other) => other.downcast_ref::<&str>().copied().unwrap_or("?").to_string(),
        }),
    };
    if end.trouble() == Some("not settled") {
        push(&Event::End);
    }
    let findings = check(&history, tram().about().promises);
    (end, findings)
}

/// The promises that a run broke.
pub(crate) fn violated(findings: &Findings) -> BTreeSet<Property> {
    let violated = |(_, verdict): &&(Property, Verdict)| matches!(verdict, Verdict::Violated(_));
    findings.findings.iter().filter(violated).map(|(property, _)| *property).collect()
}

/// A number from the environment, for longer runs than the usual.
pub(crate) fn seeds(usual: u64) -> u64 {
    let given = std::env::var("AMCAST_SEEDS").ok();
    given.map_or(usual, |text| text.parse().expect("AMCAST_SEEDS is a number"))
}

/// A short run full of faults: what is not delivered soon after them never will be.
pub(crate) fn brief(profile: Profile) -> Settings {
    let (faulty, settle) = (Some(Span::millis(4)), Span::millis(100));
    Settings { faulty, settle, quiet: Span::micros(500), ..settings(profile) }
}

//! Runs of a row, judged.

use amcast_check::{History, Verdict, check};
use amcast_core::Entry;
use amcast_core::rng::Rng;
use amcast_core::trace::Event;
use amcast_core::{Config, RawConfig, Span};
use amcast_protocols::total::{Row, TABLE_3};
use amcast_sim::{Outcome, Profile, Report, Settings, record};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// How many seeds: `AMCAST_SEEDS` in the environment, or `usual`.
pub(crate) fn seeds(usual: u64) -> u64 {
    std::env::var("AMCAST_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(usual)
}

/// The rows: the one named `AMCAST_ROW` in the environment, or all.
pub(crate) fn rows() -> Vec<&'static Row> {
    let one = std::env::var("AMCAST_ROW").ok();
    TABLE_3.into_iter().filter(|row| one.as_ref().is_none_or(|name| row.name() == name)).collect()
}

/// A group by seed: 2 to 5 members, streams or datagrams, hasty or patient.
pub(crate) fn shape(row: &Row, seed: u64, mutant: &str) -> Config {
    let mut rng = Rng::stream(seed, "shape");
    let mut of = |list: &[&'static str]| list[rng.below(list.len() as u64) as usize];
    let replicas = of(&["3", "3", "3", "4", "5", "2"]).parse().expect("a number");
    let timers = [("200", "2000", "400"), ("1000", "10000", "2000"), ("2000", "50000", "5000")];
    let (heartbeat, suspect, retry) = timers[of(&["0", "1", "2"]).parse::<usize>().expect("one")];
    // A stream of its own: what the others are of a seed stays.
    let detectors = ["timeouts", "timeouts", "timeouts", "connections"];
    let detector = detectors[Rng::stream(seed, "detector").below(4) as usize];
    let set = [
        ("mutant", mutant),
        ("lane", of(&["stream", "datagram", "multicast"])),
        ("window", of(&["64", "16", "4", "1"])),
        ("packet_bytes", of(&["1400", "200", "32768"])),
        ("held_bytes", of(&["4194304", "4194304", "4096"])),
        ("burst", of(&["64", "2"])),
        ("detector", detector),
        ("heartbeat_us", heartbeat),
        ("suspect_us", suspect),
        ("retry_us", retry),
    ];
    let set = set.map(|(name, value)| (name.to_string(), value.to_string())).into();
    let raw = RawConfig { groups: 1, replicas, clients: 0, set, ..RawConfig::default() };
    raw.check(row.about().params).expect("a sound configuration")
}

/// What came of a run.
pub(crate) struct Judged {
    pub(crate) report: Option<Report>,
    pub(crate) history: History,
    /// What is wrong, if anything.
    pub(crate) wrong: Option<String>,
}

/// Runs a row and judges its promises.
pub(crate) fn judge(row: &Row, config: &Config, settings: &Settings, seed: u64) -> Judged {
    let mut history = History::new();
    let mut recorded = None;
    let mut push = |event: &Event<'_>| {
        history.push_event(event, config.cluster()).expect("the events are sound");
    };
    let ran = catch_unwind(AssertUnwindSafe(|| {
        record(row, config, settings, seed, &mut recorded, &mut push).expect("it is built")
    }));
    let Ok(report) = ran else {
        return Judged { report: None, history, wrong: Some("it stops itself".to_string()) };
    };
    let stopped = match &report.outcome {
        Outcome::Settled => None,
        other => Some(format!("{other:?}")),
    };
    if matches!(report.outcome, Outcome::NotSettled(_)) {
        push(&Event::End);
    }
    let findings = check(&history, row.about().promises);
    let violated = findings.findings.iter().find_map(|(property, verdict)| match verdict {
        Verdict::Violated(why) => Some(format!("{property}: {why}")),
        _ => None,
    });
    Judged { report: Some(report), history, wrong: violated.or(stopped) }
}

/// The usual run under `profile`.
pub(crate) fn settings(profile: Profile) -> Settings {
    Settings { payload_max: 1500, settle: Span::secs(20), ..Settings::with(profile) }
}

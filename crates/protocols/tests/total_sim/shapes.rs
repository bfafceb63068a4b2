//! Runs of a row, judged.

use amcast_check::{History, PropertyVerdict, check};
use amcast_core::Entry;
use amcast_core::rng::Rng;
use amcast_core::trace::TraceEvent;
use amcast_core::{Config, RawConfig, Span};
use amcast_protocols::total::{TABLE_3, TotalOrderRow};
use amcast_sim::{Profile, RunOutcome, RunReport, RunSettings, record};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// How many seeds: `AMCAST_SEEDS` in the environment, or `usual`.
pub(crate) fn seeds(usual: u64) -> u64 {
    std::env::var("AMCAST_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(usual)
}

/// The rows: the one named `AMCAST_ROW` in the environment, or all.
pub(crate) fn rows() -> Vec<&'static TotalOrderRow> {
    let one = std::env::var("AMCAST_ROW").ok();
    TABLE_3.into_iter().filter(|row| one.as_ref().is_none_or(|name| row.name() == name)).collect()
}

/// A group by seed: 2 to 5 members, streams or datagrams, hasty or patient.
pub(crate) fn shape(row: &TotalOrderRow, seed: u64, mutant: &str) -> Config {
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

/// The result of a run.
pub(crate) struct TotalRunVerdict {
    pub(crate) report: Option<RunReport>,
    pub(crate) history: History,
    /// The fault, if any.
    pub(crate) wrong: Option<String>,
}

/// Runs a row and judges its promises.
pub(crate) fn judge(
    row: &TotalOrderRow,
    config: &Config,
    settings: &RunSettings,
    seed: u64,
) -> TotalRunVerdict {
    let mut history = History::new();
    let mut recorded = None;
    let mut push = |event: &TraceEvent<'_>| {
        history.push_event(event, config.cluster()).expect("the events are sound");
    };
    let ran = catch_unwind(AssertUnwindSafe(|| {
        record(row, config, settings, seed, &mut recorded, &mut push).expect("it is built")
    }));
    let Ok(report) = ran else {
        return TotalRunVerdict {
            report: None,
            history,
            wrong: Some("it stops itself".to_string()),
        };
    };
    let stopped = match &report.outcome {
        RunOutcome::Settled => None,
        other => Some(format!("{other:?}")),
    };
    if matches!(report.outcome, RunOutcome::NotSettled(_)) {
        push(&TraceEvent::End);
    }
    let findings = check(&history, row.about().promises);
    let violated = findings.findings.iter().find_map(|(property, verdict)| match verdict {
        PropertyVerdict::Violated(why) => Some(format!("{property}: {why}")),
        _ => None,
    });
    TotalRunVerdict { report: Some(report), history, wrong: violated.or(stopped) }
}

/// The usual run under `profile`.
pub(crate) fn settings(profile: Profile) -> RunSettings {
    RunSettings { payload_max: 1500, settle: Span::secs(20), ..RunSettings::with(profile) }
}

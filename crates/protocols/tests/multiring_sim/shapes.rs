//! Runs of a row, judged.

use amcast_check::{History, Property, PropertyVerdict, check};
use amcast_core::Entry;
use amcast_core::rng::Rng;
use amcast_core::trace::TraceEvent;
use amcast_core::{Config, RawConfig, Span};
use amcast_protocols::multiring::{MEMORY, MultiRingEntry, SYNCED, WRITTEN};
use amcast_sim::{Profile, RunOutcome, RunReport, RunSettings, record};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// How many seeds: `AMCAST_SEEDS` in the environment, or `usual`.
pub(crate) fn seeds(usual: u64) -> u64 {
    std::env::var("AMCAST_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(usual)
}

/// The first seed: `AMCAST_FIRST` in the environment, or 0.
pub(crate) fn first() -> u64 {
    std::env::var("AMCAST_FIRST").ok().and_then(|n| n.parse().ok()).unwrap_or(0)
}

/// The rows: the one named `AMCAST_ROW` in the environment, or all.
pub(crate) fn rows() -> Vec<&'static MultiRingEntry> {
    let one = std::env::var("AMCAST_ROW").ok();
    let all = [&SYNCED, &WRITTEN, &MEMORY];
    all.into_iter().filter(|row| one.as_ref().is_none_or(|name| row.name() == name)).collect()
}

/// A cluster by seed: 1 to 4 groups of 3 or 5, with rings for several groups, around nodes or groups,
/// small packs and windows, short and long timers.
pub(crate) fn shape(row: &MultiRingEntry, seed: u64, mutant: &str) -> Config {
    let mut rng = Rng::stream(seed, "shape");
    let mut of = |list: &[&'static str]| list[rng.below(list.len() as u64) as usize];
    let groups = of(&["1", "2", "2", "3", "3", "4"]).parse().expect("a number");
    let replicas = of(&["3", "3", "3", "5"]).parse().expect("a number");
    let timers = [("200", "2000", "400"), ("1000", "10000", "2000"), ("5000", "50000", "5000")];
    let (heartbeat, suspect, retry) = timers[of(&["0", "1", "2"]).parse::<usize>().expect("one")];
    let set = [
        ("mutant", mutant),
        ("rings", of(&["global", "global", "pairs", "independent"])),
        ("m", of(&["1", "1", "2", "7"])),
        ("leveling", of(&["demand", "demand", "paced"])),
        ("window", of(&["4096", "16", "2"])),
        ("pack_bytes", of(&["32768", "500", "1"])),
        ("pass_bytes", of(&["131072", "2000", "100"])),
        ("pipeline_bytes", of(&["2097152", "3000", "300"])),
        ("lag_bytes", of(&["67108864", "5000"])),
        ("held_bytes", of(&["67108864", "8192"])),
        ("cache_bytes", cache_bytes(row, seed, of(&["67108864", "2048"]))),
        ("apply_bytes", of(&["8388608", "1000"])),
        ("heartbeat_us", heartbeat),
        ("suspect_us", suspect),
        ("retry_us", retry),
        (
            "ring_sets",
            match groups {
                3 => of(&["none", "0+1", "1+2,0+1"]),
                4 => of(&["none", "0+1,2+3", "1+2+3,0+2"]),
                _ => "none",
            },
        ),
        ("spread", of(&["24", "2"])),
        ("around", of(&["nodes", "nodes", "groups"])),
        ("behind_instances", of(&["4096", "10"])),
    ];
    let set = set.map(|(name, value)| (name.to_string(), value.to_string())).into();
    let raw = RawConfig { groups, replicas, clients: 0, set, ..RawConfig::default() };
    raw.check(row.about().params).expect("a sound configuration")
}

/// Without disks, members keep instances that others are missing as long as there is room, so that state transfers are rare:
/// most runs give them no room.
fn cache_bytes(row: &MultiRingEntry, seed: u64, drawn: &'static str) -> &'static str {
    let tight = !row.capabilities().durability.has_log() && !seed.is_multiple_of(3);
    if tight { "1" } else { drawn }
}

/// The result of a run.
pub(crate) struct RingRunVerdict {
    pub(crate) report: Option<RunReport>,
    /// The verdicts of the checker on each promise.
    pub(crate) findings: Vec<(Property, PropertyVerdict)>,
    /// The violation, if any.
    pub(crate) wrong: Option<String>,
}

/// Runs a row and judges its promises.
pub(crate) fn judge(
    row: &MultiRingEntry,
    config: &Config,
    settings: &RunSettings,
    seed: u64,
) -> RingRunVerdict {
    let mut history = History::new();
    let mut recorded = None;
    let mut push = |event: &TraceEvent<'_>| {
        history.push_event(event, config.cluster()).expect("the events are sound");
    };
    let ran = catch_unwind(AssertUnwindSafe(|| {
        record(row, config, settings, seed, &mut recorded, &mut push).expect("it is built")
    }));
    let Ok(report) = ran else {
        let wrong = Some("it stops itself".to_string());
        return RingRunVerdict { report: None, findings: Vec::new(), wrong };
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
    let findings = findings.findings;
    RingRunVerdict { report: Some(report), findings, wrong: violated.or(stopped) }
}

/// The usual run under `profile`.
pub(crate) fn settings(profile: Profile) -> RunSettings {
    RunSettings { payload_max: 1500, settle: Span::secs(20), ..RunSettings::with(profile) }
}

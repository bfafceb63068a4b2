//! Runs of an entry, judged by all that it promises.

use amcast_check::{History, Property, PropertyVerdict, check};
use amcast_core::trace::TraceEvent;
use amcast_core::{Config, Entry, RawConfig};
use amcast_protocols::catalog::CATALOG;
use amcast_sim::{Breach, Profile, RunOutcome, RunRecord, RunReport, RunSettings, record};
use amcast_test_policy::protocol_is_tested;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The entries that are tested.
pub(crate) fn entries() -> Vec<&'static dyn Entry> {
    let all = CATALOG.iter().copied();
    let tested: Vec<_> = all.filter(|entry| protocol_is_tested(entry.name())).collect();
    assert!(!tested.is_empty(), "no protocol of that name");
    tested
}

/// How many seeds: `AMCAST_SEEDS` in the environment, or `usual`.
pub(crate) fn seeds(usual: u64) -> u64 {
    let given = std::env::var("AMCAST_SEEDS").ok();
    given.map_or(usual, |text| text.parse().expect("AMCAST_SEEDS is a number"))
}

/// The kinds of faults that there is something to do for.
pub(crate) fn profiles(entry: &dyn Entry) -> Vec<Profile> {
    let has_log = entry.capabilities().durability.has_log();
    Profile::ALL.into_iter().filter(|profile| *profile != Profile::Disk || has_log).collect()
}

/// The checked configuration, with a mutant or `none`.
pub(crate) fn checked(entry: &dyn Entry, mut raw: RawConfig, mutant: &str) -> Config {
    raw.set.insert("mutant".to_string(), mutant.to_string());
    raw.check(entry.about().params).expect("a sound configuration")
}

/// The result of a run.
pub(crate) struct JudgedProtocolRun {
    /// None where the protocol stopped itself by an assertion.
    pub(crate) report: Option<RunReport>,
    pub(crate) recorded: RunRecord,
    /// Promises that were broken.
    pub(crate) violated: BTreeSet<Property>,
    /// The fault, if any: of the order, or because the run ended otherwise than by settling.
    pub(crate) wrong: Option<String>,
}

/// An empty history that knows the tree of groups, if the protocol orders along one.
pub(crate) fn history(entry: &dyn Entry, config: &Config) -> History {
    let mut history = History::new();
    if let Some(overlay) = entry.overlay(config) {
        history.arrange(overlay).expect("an empty history knows no other tree");
    }
    history
}

/// Runs a seed and judges everything that the entry promises. A run that did not settle is over all the same: what it
/// had not delivered by then counts as never delivered.
pub(crate) fn judge(
    entry: &dyn Entry,
    config: &Config,
    settings: &RunSettings,
    seed: u64,
) -> JudgedProtocolRun {
    let mut history = history(entry, config);
    let mut recorded = None;
    let mut push = |event: &TraceEvent<'_>| {
        history.push_event(event, config.cluster()).expect("the simulator's events are sound");
    };
    let ran = catch_unwind(AssertUnwindSafe(|| {
        record(entry, config, settings, seed, &mut recorded, &mut push).expect("it is built")
    }));
    let recorded = recorded.expect("a run is recorded from its beginning");
    let Ok(report) = ran else {
        let (violated, wrong) = (BTreeSet::new(), Some("it stops itself".to_string()));
        return JudgedProtocolRun { report: None, recorded, violated, wrong };
    };
    if matches!(report.outcome, RunOutcome::NotSettled(_)) {
        push(&TraceEvent::End);
    }
    let findings = check(&history, entry.about().promises);
    let mut violated = stopped_for(entry, &report.outcome);
    let broken = |(_, verdict): &&(Property, PropertyVerdict)| {
        matches!(verdict, PropertyVerdict::Violated(_))
    };
    violated.extend(findings.findings.iter().filter(broken).map(|(property, _)| *property));
    let sound = report.settled() && violated.is_empty() && findings.no_violation();
    let wrong = (!sound).then(|| format!("{:?}\n{findings}", report.outcome));
    JudgedProtocolRun { report: Some(report), recorded, violated, wrong }
}

/// The properties that are broken where the simulator stopped the run: replicas that have different
/// messages at one position deliver in two orders, and a barrier that passes too soon lets clients
/// read overwritten values.
fn stopped_for(entry: &dyn Entry, outcome: &RunOutcome) -> BTreeSet<Property> {
    let order = [Property::UniformPrefixOrder, Property::Suto];
    let promised = |property: &Property| entry.about().promises.contains(property);
    match outcome {
        RunOutcome::Breach(Breach::Diverged { .. }) => order.into_iter().filter(promised).collect(),
        RunOutcome::Breach(Breach::Stale { .. }) => [Property::Linearizable].into(),
        _ => BTreeSet::new(),
    }
}

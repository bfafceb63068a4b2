//! Mutants that random runs hardly ever show, because much must fall together: each is shown by a scenario, in which
//! TRAM as it is keeps every promise.

use amcast_check::{History, PropertyVerdict, check};
use amcast_core::trace::TraceEvent;
use amcast_protocols::catalog;
use amcast_sim::{Breach, RunOutcome, Scenario};

/// The mutants that are shown here.
pub(crate) const SHOWN: [&str; 2] = ["skips-confirm", "writes-before-it-tells"];

/// The scenario of a candidate that reads a log while it is written over, so that leader and candidate meet with each
/// mutant as they do without: what differs takes its time, or is an output of the leader's last step.
const WRITTEN_OVER: &str = include_str!("../../../../scenarios/tram-log-written-over.txt");

/// The fault of a run of the scenario.
fn wrong(text: &str, mutant: &str) -> Option<String> {
    let text = text.replacen(" groups=", &format!(" mutant={mutant} groups="), 1);
    let scenario = Scenario::read(&text, &catalog::find).expect("it can be read");
    let (mut history, cluster) = (History::new(), scenario.config().cluster());
    let played = scenario.play(&mut |event: &TraceEvent<'_>| {
        history.push_event(event, cluster).expect("the events are sound");
    });
    let findings = check(&history, scenario.entry().about().promises);
    let broken = findings.findings.iter().any(|(_, v)| matches!(v, PropertyVerdict::Violated(_)));
    match played.report.outcome {
        // Two replicas have different messages at one position: two orders.
        RunOutcome::Breach(Breach::Diverged { .. }) => Some("two orders".to_string()),
        RunOutcome::Settled if !broken => None,
        other => Some(format!("{other:?}\n{findings}")),
    }
}

/// The scenario with some of its commands changed.
fn changed(changes: &[(&str, &str)]) -> String {
    changes.iter().fold(WRITTEN_OVER.to_string(), |text, (from, to)| {
        assert_eq!(text.matches(from).count(), 1, "{from}");
        text.replace(from, to)
    })
}

#[test]
fn a_candidate_that_does_not_confirm_adopts_a_log_that_is_written_over() {
    // It leads two microseconds sooner each time.
    let sooner = changed(&[
        ("at 3408us hold g0/r0 g0/r4", "at 3405us hold g0/r0 g0/r4"),
        ("at 5205us crash g0/r0", "at 5203us crash g0/r0"),
    ]);
    for text in [WRITTEN_OVER, &sooner] {
        assert_eq!(wrong(text, "none"), None);
    }
    assert_eq!(wrong(&sooner, "skips-confirm"), Some("two orders".to_string()));
}

#[test]
fn a_leader_that_writes_before_it_tells_has_a_log_adopted_that_is_written_over() {
    let untold = changed(&[("crash g0/r0 after 5", "crash g0/r0 after 3")]);
    assert_eq!(wrong(&untold, "none"), None);
    assert_eq!(wrong(&untold, "writes-before-it-tells"), Some("two orders".to_string()));
}

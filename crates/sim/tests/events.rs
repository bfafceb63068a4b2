//! The reports of a protocol to its driver are checked: each thing that it must not report, or not do after it
//! has reported something else, ends the run.

mod toys;

use amcast_core::trace::TraceEvent;
use amcast_core::{Pid, ProtocolEvent, Span, Time};
use amcast_sim::{
    Breach, Fault, FaultTime, Profile, RunOutcome, RunReport, RunSettings, Strike, replay,
};
use toys::reporter::{REPORTER, ToyReports};
use toys::{config, run3};

use ProtocolEvent::{CaughtUp, Excluded, Lagging, Leads, Left, MayStop};

const fn view(number: u64, members: u32, continuing: u32) -> ProtocolEvent {
    ProtocolEvent::ViewEntered { number, members, continuing }
}

/// A run without faults, except that the reporter is asked to leave in the middle of it.
fn run_and_leave(reports: &ToyReports, mut sink: impl FnMut(&TraceEvent<'_>)) -> RunReport {
    let settings = RunSettings { settle: Span::millis(5), ..RunSettings::with(Profile::None) };
    let mut recorded =
        run3(&ToyReports { fit: true, ..ToyReports::default() }, &settings, 3).recorded;
    let fault = Fault::Leave { p: REPORTER, patience: Span::secs(1), down: None };
    let at = FaultTime::Time(Time(recorded.plan.calm.0 / 2));
    recorded.plan.strikes.push(Strike { at, fault });
    replay(reports, &config(3), &recorded, &mut sink).expect("it takes any configuration")
}

/// The broken part of the contract, if any.
fn breach(reports: ToyReports) -> Option<&'static str> {
    match run_and_leave(&reports, |_| {}).outcome {
        RunOutcome::Breach(Breach::Contract { p, why }) => {
            assert!(p == REPORTER || !reports.others.is_empty(), "{p:?}: {why}");
            Some(why)
        }
        RunOutcome::Breach(other) => panic!("{other:?}"),
        RunOutcome::Settled | RunOutcome::NotSettled(_) => None,
    }
}

/// As [`breach`], of what the reporter reports at its start.
fn at_start(start: &[ProtocolEvent]) -> Option<&'static str> {
    breach(ToyReports { start: start.to_vec(), fit: true, ..ToyReports::default() })
}

#[test]
fn what_keeps_the_contract_ends_no_run() {
    assert_eq!(at_start(&[]), None);
    assert_eq!(at_start(&[Leads(1), Leads(2)]), None);
    assert_eq!(at_start(&[Lagging, Lagging, CaughtUp(0)]), None);
    assert_eq!(at_start(&[view(1, 0b111, 0), view(3, 0b110, 0b110)]), None);
    let joins_again = [view(1, 0b111, 0), Excluded(2), view(3, 0b111, 0), CaughtUp(0)];
    assert_eq!(at_start(&joins_again), None);
}

#[test]
fn view_numbers_grow_and_members_are_of_the_group() {
    let number = "it entered a view whose number does not grow";
    assert_eq!(at_start(&[view(1, 0b111, 0), view(1, 0b111, 0b111)]), Some(number));
    assert_eq!(at_start(&[view(2, 0b111, 0), view(1, 0b111, 0b111)]), Some(number));
    let member = "it entered a view without being a member";
    assert_eq!(at_start(&[view(1, 0b011, 0)]), Some(member));
    let group = "a view has members that are not in the group";
    assert_eq!(at_start(&[view(1, 0b1100, 0)]), Some(group));
}

#[test]
fn continuing_members_are_in_both_views() {
    let before = "a continuing member was not in the view before";
    assert_eq!(at_start(&[view(1, 0b111, 0b100)]), Some(before), "it was in no view");
    assert_eq!(at_start(&[view(1, 0b110, 0), view(2, 0b111, 0b111)]), Some(before));
    let is_in = "a continuing member is not in the view";
    assert_eq!(at_start(&[view(1, 0b111, 0), view(2, 0b110, 0b111)]), Some(is_in));
}

#[test]
fn all_that_enter_a_view_name_the_same_members() {
    let both = |members| ToyReports {
        start: vec![view(1, members, 0)],
        others: vec![view(1, 0b111, 0)],
        fit: true,
        ..ToyReports::default()
    };
    assert_eq!(breach(both(0b111)), None);
    assert_eq!(breach(both(0b110)), Some("a view has other members elsewhere"));
}

#[test]
fn one_epoch_has_one_coordinator() {
    let leads = |epoch| ToyReports {
        start: vec![Leads(epoch)],
        delivery: vec![Leads(epoch)],
        fit: true,
        ..ToyReports::default()
    };
    assert_eq!(breach(leads(7)), None, "the same one may lead in two rings");
    let others = ToyReports { others: vec![Leads(7)], ..leads(8) };
    assert_eq!(breach(others), Some("two processes of a group lead in one epoch"));
}

#[test]
fn exclusion_is_final_for_an_incarnation() {
    let nowhere = "it was excluded and was in no view";
    assert_eq!(at_start(&[Excluded(1)]), Some(nowhere));
    assert_eq!(at_start(&[view(1, 0b111, 0), Excluded(2), Excluded(3)]), Some(nowhere));
    let late = "it was excluded in a view that it had entered, or before";
    assert_eq!(at_start(&[view(3, 0b111, 0), Excluded(3)]), Some(late));
    let continues = [view(1, 0b111, 0), Excluded(2), view(3, 0b111, 0b111)];
    assert_eq!(at_start(&continues), Some("a continuing member was not in the view before"));
    let fit = "it is fit, and has not said that it caught up";
    assert_eq!(at_start(&[view(1, 0b111, 0), Excluded(2)]), Some(fit));
    let unfit = ToyReports { start: vec![view(1, 0b111, 0), Excluded(2)], ..ToyReports::default() };
    assert_eq!(breach(unfit), Some("it delivered while it was excluded"));
}

#[test]
fn a_process_that_lacks_state_is_not_fit_before_it_has_caught_up() {
    assert_eq!(at_start(&[Lagging]), Some("it is fit, and has not said that it caught up"));
    let lagging = ToyReports { start: vec![Lagging], ..ToyReports::default() };
    assert_eq!(breach(lagging), None, "it only lags for ever");
    let beyond = "it caught up to a position that it has not delivered";
    assert_eq!(at_start(&[Lagging, CaughtUp(1)]), Some(beyond));
    let behind =
        ToyReports { delivery: vec![Lagging, CaughtUp(1)], fit: true, ..ToyReports::default() };
    assert_eq!(breach(behind), None);
}

#[test]
fn no_process_leaves_unless_it_is_asked_to() {
    let unasked = "it left or may stop, and was not asked to leave, or said so before";
    assert_eq!(at_start(&[Left(1)]), Some(unasked));
    assert_eq!(at_start(&[MayStop(1)]), Some(unasked));
    let asked = |leave: &[ProtocolEvent]| ToyReports {
        start: vec![view(1, 0b111, 0)],
        leave: leave.to_vec(),
        fit: true,
        ..ToyReports::default()
    };
    for (leave, leaves) in [(Left(2), true), (MayStop(1), false)] {
        let mut left = Vec::new();
        let report = run_and_leave(&asked(&[leave]), |event| match *event {
            TraceEvent::Leave { p, .. } => left.push((p, true)),
            TraceEvent::Crash { p, .. } => left.push((p, false)),
            _ => {}
        });
        assert!(!matches!(report.outcome, RunOutcome::Breach(_)), "{:?}", report.outcome);
        assert_eq!(left, [(REPORTER, leaves)]);
    }
    assert_eq!(breach(asked(&[Left(1)])), Some("it left in a view that it had entered"));
    assert_eq!(breach(asked(&[Left(2), Left(2)])), Some(unasked));
    assert_eq!(breach(asked(&[MayStop(2), Left(2)])), Some(unasked));
    let again = "it entered a view after it had left";
    assert_eq!(breach(asked(&[Left(2), view(3, 0b111, 0)])), Some(again));
}

#[test]
fn a_note_is_counted_and_changes_nothing_else() {
    let report = run_and_leave(&ToyReports { fit: true, ..ToyReports::default() }, |_| {});
    assert_eq!(report.marks.get("sim-malformed"), Some(&1));
    assert!(!matches!(report.outcome, RunOutcome::Breach(_)), "{:?}", report.outcome);
}

#[test]
fn a_client_reports_nothing_but_its_part() {
    let raw = amcast_core::RawConfig { groups: 1, replicas: 2, clients: 1, ..Default::default() };
    let config = raw.check(&[]).expect("the shape is allowed");
    assert_eq!(config.cluster().client(0), REPORTER);
    let reports = ToyReports { start: vec![Lagging], fit: true, ..ToyReports::default() };
    let settings = RunSettings { settle: Span::millis(5), ..RunSettings::with(Profile::None) };
    let report = amcast_sim::run(&reports, &config, &settings, 1, &mut |_| {});
    let why = "a client reports what only a replica may";
    let expected = RunOutcome::Breach(Breach::Contract { p: Pid(2), why });
    assert_eq!(report.expect("it takes any configuration").outcome, expected);
}

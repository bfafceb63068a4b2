//! Small configurations with all choices within bounds, and a crash before every event.

use crate::shapes::tram;
use amcast_check::{History, check};
use amcast_core::trace::TraceEvent;
use amcast_core::{ClusterShape, Config, GroupSet, Overlay, Pid, RawConfig, Span, Time};
use amcast_sim::chooser::Chooser;
use amcast_sim::explore::RunJudge;
use amcast_sim::{
    CarrierModel, Delay, Exploration, ExplorationResult, RunPlan, RunReport, RunSettings, explore,
};

/// A run fails if it does not settle or breaks a promise.
struct PromiseJudge {
    overlay: Overlay,
    cluster: ClusterShape,
    history: History,
}

impl RunJudge for PromiseJudge {
    fn event(&mut self, event: &TraceEvent<'_>) {
        self.history.push_event(event, &self.cluster).expect("the simulator's events are sound");
    }

    fn failed(&mut self, report: &RunReport) -> bool {
        let history = core::mem::replace(&mut self.history, arranged(&self.overlay));
        !report.settled() || !check(&history, tram().about().promises).all_hold()
    }
}

/// A history that knows the tree of groups.
fn arranged(overlay: &Overlay) -> History {
    let mut history = History::new();
    history.arrange(overlay).expect("one tree");
    history
}

fn config(groups: usize, mutant: &str) -> Config {
    let set = [
        ("mutant", mutant),
        ("log_lines", "16"),
        ("hm_lines", "16"),
        ("xfer_lines", "16"),
        ("heartbeat_us", "20"),
        ("suspect_us", "60"),
    ];
    let set = set.map(|(name, value)| (name.to_string(), value.to_string())).into();
    let overlay = "depth".to_string();
    let raw = RawConfig { groups, replicas: 3, clients: 2, overlay, set };
    raw.check(tram().about().params).expect("a sound configuration")
}

/// Two messages of two clients to `dst`, and a process that dies before each event in turn.
fn explored(groups: usize, dst: GroupSet, mutant: &str, bounds: &Exploration) -> ExplorationResult {
    let config = config(groups, mutant);
    let mut model = CarrierModel::constant(Span::micros(2), Span::micros(2));
    // How much of what it had posted still lands when a writer dies is a choice by itself.
    model.idle = Delay::Constant(Span::nanos(100));
    let settings = RunSettings {
        model: Some(model),
        messages: 2,
        payload: Some(8),
        destinations: Some(groups),
        faulty: Some(Span::micros(100)),
        settle: Span::millis(20),
        quiet: Span::micros(100),
        ..RunSettings::default()
    };
    let mut plan = RunPlan::draw(tram(), &config, &settings, &mut Chooser::seeded(1));
    for (i, cast) in plan.casts.iter_mut().enumerate() {
        // A new leader looks at the first client first, so a lost order shows.
        (cast.at, cast.dst) = (Time(30_000 + 3_000 * i as u64), dst);
        cast.sender = config.cluster().client(1 - i);
    }
    let (overlay, history) = (config.overlay().clone(), arranged(config.overlay()));
    let mut judge = PromiseJudge { overlay, cluster: *config.cluster(), history };
    explore(tram(), &config, &plan, bounds, &mut None, &mut judge).expect("it is built")
}

/// A crash of `p` before each event, and at most two choices that differ from the ordinary one.
fn bounds(p: u32) -> Exploration {
    Exploration {
        deviations_max: 2,
        choices_max: 400,
        grain: 3,
        crashes: vec![Pid(p)],
        power: None,
        runs_max: 4_000,
    }
}

/// The second of two groups, whose leader is its replica of rank 1.
const SECOND: GroupSet = GroupSet(0b10);

#[test]
fn one_group_keeps_every_promise_whatever_is_chosen() {
    let found = explored(1, GroupSet(1), "none", &bounds(0));
    println!("one group: {} runs", found.runs);
    assert_eq!(found.failed, None);
    assert!(found.complete && found.runs > 1_000, "{} runs", found.runs);
}

#[test]
fn two_groups_keep_every_promise_whatever_is_chosen() {
    for (dst, dies) in [(GroupSet(0b11), 0), (GroupSet(0b11), 4), (SECOND, 4)] {
        let found = explored(2, dst, "none", &bounds(dies));
        println!("two groups, to {dst:?}: {} runs, complete {}", found.runs, found.complete);
        assert_eq!(found.failed, None);
        assert!(found.runs > 1_000, "{} runs", found.runs);
    }
}

#[test]
fn mutants_are_found_by_exploration() {
    let all = GroupSet(0b11);
    for (mutant, groups, dst) in [
        ("decides-alone", 1, GroupSet(1)),
        ("skips-tree-catch-up", 2, all),
        ("sends-to-each", 2, all),
    ] {
        let found = explored(groups, dst, mutant, &bounds(0));
        println!("{mutant}: found after {} runs", found.runs);
        assert!(found.failed.is_some(), "{mutant} is not found in {} runs", found.runs);
    }
}

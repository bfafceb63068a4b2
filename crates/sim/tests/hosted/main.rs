//! A service above protocols of the catalog: every node ends with the same state, under all faults, and a service
//! that is wrong is caught.

mod register;

use amcast_check::{History, PropertyVerdict, check};
use amcast_core::rng::Rng;
use amcast_core::trace::TraceEvent;
use amcast_core::{Config, Entry, RawConfig, Role, Senders, Span};
use amcast_protocols::catalog;
use amcast_sim::{
    Breach, Host, Profile, RunOutcome, RunRecord, RunReport, RunSettings, record_hosted,
    replay_hosted, run_hosted, shrink,
};
use register::{Deeds, RegisterMutant, Registers};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

fn entry(name: &str) -> &'static dyn Entry {
    catalog::find(name).expect("it is in the catalog")
}

/// A cluster in which replicas soon lag too far, by seed.
fn shape(entry: &dyn Entry, seed: u64) -> Config {
    let mut rng = Rng::stream(seed, "shape");
    let mut of = |list: &[&'static str]| list[rng.below(list.len() as u64) as usize];
    let can = entry.capabilities();
    let groups = if can.several_groups { of(&["1", "2", "3"]) } else { "1" };
    let groups = groups.parse().expect("a number");
    let clients = if can.senders == Senders::Clients { 2 } else { 0 };
    let (heartbeat, suspect) = match entry.name() {
        "tram" => ("20", "200"),
        _ => ("500", "5000"),
    };
    let all = [
        ("heartbeat_us", heartbeat),
        ("suspect_us", suspect),
        ("behind_instances", of(&["4096", "10"])),
        ("window", of(&["4096", "16"])),
        ("cache_bytes", of(&["67108864", "2048"])),
        ("apply_bytes", of(&["8388608", "1000"])),
        ("hm_lines", of(&["4096", "64"])),
    ];
    let known = |name: &str| entry.about().params.iter().any(|param| param.name == name);
    let set = all.iter().filter(|(name, _)| known(name));
    let set = set.map(|(name, value)| (name.to_string(), value.to_string())).collect();
    let raw = RawConfig { groups, replicas: 3, clients, set, ..RawConfig::default() };
    raw.check(entry.about().params).expect("a sound configuration")
}

/// Twenty seeds from 0 on, or as many as `AMCAST_SEEDS` says from `AMCAST_FIRST` on.
fn seeds() -> Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|n| n.parse().ok());
    let first = number("AMCAST_FIRST").unwrap_or(0);
    first..first + number("AMCAST_SEEDS").unwrap_or(20)
}

/// A service above an entry, and what it did.
struct HostedTrial {
    entry: &'static dyn Entry,
    config: Config,
    seed: u64,
    mutant: RegisterMutant,
    deeds: Rc<RefCell<Deeds>>,
}

impl HostedTrial {
    fn new(name: &str, seed: u64, mutant: RegisterMutant) -> Self {
        let (entry, deeds) = (entry(name), Rc::default());
        Self { entry, config: shape(entry, seed), seed, mutant, deeds }
    }

    fn host(&self) -> Box<dyn Host> {
        let Self { entry, config, seed, mutant, deeds } = self;
        Box::new(Registers::new(*entry, *config.cluster(), *mutant, *seed, Rc::clone(deeds)))
    }

    fn run(&self, profile: Profile, sink: &mut dyn FnMut(&TraceEvent<'_>)) -> RunReport {
        let settings = RunSettings { settle: Span::secs(20), ..RunSettings::with(profile) };
        let factory = || self.host();
        run_hosted(self.entry, &self.config, &settings, self.seed, &factory, sink)
            .expect("it is built")
    }

    fn replay(&self, recorded: &RunRecord) -> RunReport {
        let factory = || self.host();
        replay_hosted(self.entry, &self.config, recorded, &factory, &mut |_| {}).expect("it ran")
    }
}

/// The result of the runs of some seeds.
#[derive(Default)]
struct HostedTotals {
    deeds: Deeds,
    marks: BTreeMap<&'static str, u64>,
}

impl HostedTotals {
    fn add(&mut self, deeds: &Deeds, report: &RunReport) {
        self.deeds.transfers += deeds.transfers;
        self.deeds.checkpoints += deeds.checkpoints;
        self.deeds.resumed += deeds.resumed;
        self.deeds.lost_disks += deeds.lost_disks;
        self.deeds.executed += deeds.executed;
        self.deeds.reads += deeds.reads;
        for (mark, times) in &report.marks {
            *self.marks.entry(mark).or_insert(0) += times;
        }
    }
}

/// Runs seeds, each judged by the properties that the protocol promises.
fn every_node_ends_with_the_same_registers(name: &str, profiles: &[Profile]) -> HostedTotals {
    let mut sum = HostedTotals::default();
    for (profile, seed) in profiles.iter().flat_map(|p| seeds().map(move |seed| (*p, seed))) {
        let trial = HostedTrial::new(name, seed, RegisterMutant::None);
        let mut history = History::new();
        if let Some(overlay) = trial.entry.overlay(&trial.config) {
            history.arrange(overlay).expect("one tree");
        }
        let report = trial.run(profile, &mut |event| {
            history.push_event(event, trial.config.cluster()).expect("the events are sound");
        });
        let which = format!("{name}, {profile:?}, seed {seed}");
        assert_eq!(report.outcome, RunOutcome::Settled, "{which}");
        for (property, verdict) in check(&history, trial.entry.about().promises).findings {
            assert!(
                !matches!(verdict, PropertyVerdict::Violated(_)),
                "{which}: {property}: {verdict:?}"
            );
        }
        let deeds = trial.deeds.borrow();
        assert!(deeds.ends.len() >= 2, "{which}: {deeds:?}");
        assert!(deeds.ends.windows(2).all(|two| two[0] == two[1]), "{which}: {deeds:?}");
        sum.add(&deeds, &report);
    }
    sum
}

#[test]
fn nodes_over_multi_ring_go_on_from_checkpoints_and_from_each_other() {
    let profiles = [Profile::Crash, Profile::Network, Profile::Disk, Profile::All];
    let HostedTotals { deeds, marks } =
        every_node_ends_with_the_same_registers("multi-ring", &profiles);
    assert!(deeds.executed > 10_000 && deeds.reads > 1000, "{deeds:?}");
    assert!(deeds.checkpoints > 1000 && deeds.resumed > 20, "{deeds:?}");
    assert!(deeds.transfers > 10 && deeds.lost_disks > 5, "{deeds:?}");
    assert!(marks["sim-host-checkpoint"] > 1000, "{marks:?}");
    assert!(marks["sim-machine-fails"] > 20 && marks["sim-disk-replaced"] > 5, "{marks:?}");
}

#[test]
fn nodes_over_memory_begin_anew_with_the_state_of_others() {
    let profiles = [Profile::Crash, Profile::Memory, Profile::All];
    let HostedTotals { deeds, marks } = every_node_ends_with_the_same_registers("tram", &profiles);
    assert!(deeds.executed > 5000 && deeds.transfers > 10, "{deeds:?} {marks:?}");
}

#[test]
fn nodes_whose_groups_have_views_take_states_of_members() {
    let profiles = [Profile::Crash, Profile::Network, Profile::Pause, Profile::All];
    let sum = every_node_ends_with_the_same_registers("bb-urcast-urcast", &profiles);
    assert!(sum.deeds.executed > 5000 && sum.deeds.transfers > 20, "{:?}", sum.deeds);
}

#[test]
fn the_processes_of_a_node_die_and_start_together() {
    let mut deaths = 0;
    for (profile, seed) in
        [Profile::Crash, Profile::All].into_iter().flat_map(|p| (0..20).map(move |s| (p, s)))
    {
        let trial = HostedTrial::new("multi-ring", seed, RegisterMutant::None);
        let cluster = *trial.config.cluster();
        let mut groups = BTreeMap::new();
        trial.run(profile, &mut |event| {
            let (t, p, dies) = match *event {
                TraceEvent::Crash { t, p } => (t, p, true),
                TraceEvent::Recover { t, p } => (t, p, false),
                _ => return,
            };
            if let Role::Replica { group, rank } = cluster.role(p) {
                groups.entry((t, rank, dies)).or_insert(Vec::new()).push(group);
            }
        });
        let all: Vec<_> = cluster.all_groups().iter().collect();
        assert!(groups.values().all(|of| *of == all), "{profile:?}, seed {seed}: {groups:?}");
        deaths += if all.len() > 1 { groups.len() } else { 0 };
    }
    assert!(deaths > 20, "{deaths}");
}

/// The first of some seeds whose run ends like this.
fn first_of(
    (name, profile, mutant): (&str, Profile, RegisterMutant),
    is_it: impl Fn(&RunReport) -> bool,
) -> Option<(HostedTrial, RunReport)> {
    let trials = (0..100).map(|seed| HostedTrial::new(name, seed, mutant));
    let runs = trials.map(|trial| {
        let report = trial.run(profile, &mut |_| {});
        (trial, report)
    });
    runs.into_iter().find(|(_, report)| is_it(report))
}

/// The first of some seeds whose run ends badly.
fn first_bad(
    name: &str,
    profile: Profile,
    mutant: RegisterMutant,
) -> Option<(HostedTrial, RunReport)> {
    first_of((name, profile, mutant), |report| !report.settled())
}

/// The first of some seeds in which a host finds that a state is wrong.
fn first_wrong(
    name: &str,
    profile: Profile,
    mutant: RegisterMutant,
) -> Option<(HostedTrial, RunReport)> {
    let is_wrong =
        |report: &RunReport| matches!(report.outcome, RunOutcome::Breach(Breach::Host(_)));
    first_of((name, profile, mutant), is_wrong)
}

/// How the first run ends that ends badly.
fn found(name: &str, profile: Profile, mutant: RegisterMutant) -> RunOutcome {
    let (_, report) = first_bad(name, profile, mutant).expect("it is caught");
    report.outcome
}

#[test]
fn a_state_that_is_too_old_is_caught() {
    // Some runs only end without being whole: the process knows that the state is not the one it needs.
    assert!(first_wrong("multi-ring", Profile::All, RegisterMutant::TakesOldState).is_some());
    let stuck = found("bb-urcast-urcast", Profile::Crash, RegisterMutant::TakesOldState);
    assert!(matches!(stuck, RunOutcome::NotSettled(_)), "{stuck:?}");
}

#[test]
fn going_on_from_a_checkpoint_that_is_lost_is_caught() {
    let differs = found("multi-ring", Profile::Crash, RegisterMutant::LosesCheckpoint);
    assert!(matches!(differs, RunOutcome::Breach(Breach::Host(_))), "{differs:?}");
}

#[test]
fn saying_that_a_state_is_in_force_before_it_is_there_is_caught() {
    // Other runs only end without being whole.
    assert!(first_wrong("multi-ring", Profile::Crash, RegisterMutant::AnswersEarly).is_some());
    // Every process has what it needs, and the nodes have not.
    let stuck = first_bad("bb-urcast-urcast", Profile::Crash, RegisterMutant::AnswersEarly);
    let (_, RunReport { outcome, marks, .. }) = stuck.expect("it is caught");
    assert!(matches!(outcome, RunOutcome::NotSettled(_)), "{outcome:?}");
    assert_eq!(marks.get("sim-host-not-settled"), Some(&1), "{marks:?}");
}

#[test]
fn a_read_that_waits_for_no_barrier_is_caught() {
    let stale = found("multi-ring", Profile::Crash, RegisterMutant::ReadsAtOnce);
    let RunOutcome::Breach(Breach::Host(why)) = stale else { panic!("{stale:?}") };
    assert!(why.starts_with("a read of"), "{why}");
}

#[test]
fn a_run_with_a_host_replays_to_the_same_hash_and_shrinks() {
    let (trial, report) =
        first_wrong("multi-ring", Profile::All, RegisterMutant::TakesOldState).expect("one");
    let again = trial.replay(&report.recorded);
    assert_eq!((report.hash, &report.outcome), (again.hash, &again.outcome));
    assert_eq!(report.recorded, again.recorded);
    let fails = |recorded: &RunRecord| {
        matches!(trial.replay(recorded).outcome, RunOutcome::Breach(Breach::Host(_)))
    };
    let mut begin = report.recorded.clone();
    // A run without faults need not take long to settle.
    begin.plan.settle = Span::millis(20);
    let small = shrink(begin, 100, &mut |recorded| fails(recorded));
    assert!(fails(&small));
    let (before, after) = (report.recorded.plan.strikes.len(), small.plan.strikes.len());
    assert!(after < before, "{after} of {before} strikes");
}

#[test]
fn a_run_whose_host_panics_is_recorded_up_to_there() {
    let trial = HostedTrial::new("multi-ring", 1, RegisterMutant::Panics);
    let (settings, factory) = (RunSettings::with(Profile::None), || trial.host());
    let mut recorded = None;
    let ran = catch_unwind(AssertUnwindSafe(|| {
        let (entry, config) = (trial.entry, &trial.config);
        record_hosted(entry, config, &settings, 1, &factory, &mut recorded, &mut |_| {})
    }));
    assert!(ran.is_err());
    let recorded = recorded.expect("it is kept");
    assert!(recorded.plan.casts.is_empty() && recorded.plan.barriers.is_empty());
    assert!(!recorded.choices.is_empty());
    assert!(catch_unwind(AssertUnwindSafe(|| trial.replay(&recorded))).is_err());
}

//! StateMachineAdapter replicas of the services in the simulator: a few seeds of each; `amcast sim --service` makes thousands.

// The example's own file.
#[path = "../examples/simulate.rs"]
#[allow(dead_code, reason = "`main` is for people")]
mod example;

use amcast::core::{Entry, RawConfig, Senders};
use amcast::protocols::catalog::find;
use amcast::sim::{Profile, RunOutcome, RunSettings};
use amcast::simulate::bank::BankWorkload;
use amcast::simulate::kv::KvWorkload;
use amcast::simulate::log::LogWorkload;
use amcast::simulate::{
    DeclaredMutant, ServiceJudge, ServiceMutant, ServiceRun, ServiceSettings, Simulation, Workload,
};

/// A protocol of the catalog, and how many groups it takes here.
fn protocol(name: &str) -> (&'static dyn Entry, usize) {
    let entry = find(name).expect("it is in the catalog");
    (entry, if entry.capabilities().several_groups { 2 } else { 1 })
}

fn run<W: Workload + 'static>(
    name: &str,
    (seed, faults): (u64, Profile),
    mutant: Option<ServiceMutant>,
    workload: fn(usize) -> W,
) -> ServiceRun {
    run_over(protocol(name), (seed, faults), mutant, workload)
}

/// The same with so many groups.
fn run_over<W: Workload + 'static>(
    (entry, groups): (&'static dyn Entry, usize),
    (seed, faults): (u64, Profile),
    mutant: Option<ServiceMutant>,
    workload: fn(usize) -> W,
) -> ServiceRun {
    // Where replicas multicast nothing themselves, clients are the gateways.
    let clients = if entry.capabilities().senders == Senders::Replicas { 0 } else { 2 };
    let raw = RawConfig { groups, replicas: 3, clients, ..RawConfig::default() };
    let config = &raw.check(entry.about().params).expect("the shape is sound");
    let service = ServiceSettings { mutant, ..ServiceSettings::default() };
    let simulation = Simulation { entry, config, service, seed, workload: &|| workload(groups) };
    simulation.run(&RunSettings::with(faults), &mut None, &mut |_| {}).expect("the shape is sound")
}

const ROWS: [&str; 6] = [
    "multi-ring",
    "multi-ring-async",
    "multi-ring-memory",
    "tram",
    "bb-urcast-urcast",
    "sb-urcast",
];

/// Runs a few seeds of each row, and finds nothing wrong.
fn is_sound<W: Workload + 'static>(seeds: u64, workload: fn(usize) -> W) {
    for name in ROWS {
        for seed in 0..seeds {
            let ran = run(name, (seed, Profile::All), None, workload);
            assert_eq!(ran.report.outcome, RunOutcome::Settled, "{name} {seed}");
            assert_eq!(ran.findings, [], "{name} {seed}");
            assert_eq!(ran.not_judged, [], "{name} {seed}");
        }
    }
}

#[test]
fn the_store_is_as_it_should_be_under_all_faults() {
    let _limit = amcast_test_policy::time_limit();
    is_sound(1, KvWorkload::new);
}

#[test]
fn the_log_is_as_it_should_be_under_all_faults() {
    let _limit = amcast_test_policy::time_limit();
    is_sound(1, LogWorkload::new);
}

#[test]
fn the_bank_is_as_it_should_be_under_all_faults() {
    let _limit = amcast_test_policy::time_limit();
    is_sound(1, BankWorkload::new);
}

/// Runs a seed of each row without faults: each call is executed.
fn executes_all<W: Workload + 'static>(workload: fn(usize) -> W) {
    for name in ROWS {
        let ran = run(name, (0, Profile::None), None, workload);
        assert_eq!((ran.findings, ran.not_judged), (vec![], vec![]), "{name}");
        // Each client has made its calls, and one has looked at what each node has.
        let ServiceSettings { clients, calls, .. } = ServiceSettings::default();
        let executed = ran.counts.get("calls executed").copied().unwrap_or(0);
        assert_eq!(executed, clients as u64 * calls + 3, "{name}");
    }
}

#[test]
fn each_call_is_executed_where_nothing_fails() {
    let _limit = amcast_test_policy::time_limit();
    executes_all(KvWorkload::new);
    executes_all(LogWorkload::new);
    executes_all(BankWorkload::new);
}

#[test]
fn an_application_that_hangs_for_a_while_harms_nobody() {
    let _limit = amcast_test_policy::time_limit();
    let mut hung = 0;
    for name in ["tram", "ramcast", "multi-ring", "multi-ring-memory", "sb-urcast"] {
        for seed in 0..2 {
            let ran = run(name, (seed, Profile::Hang), None, KvWorkload::new);
            assert_eq!(ran.report.outcome, RunOutcome::Settled, "{name} {seed}");
            assert_eq!(ran.findings, [], "{name} {seed}");
            assert_eq!(ran.not_judged, [], "{name} {seed}");
            hung += ran.counts.get("applications that hang").copied().unwrap_or(0);
        }
    }
    assert!(hung >= 10, "{hung}: each run has one");
}

#[test]
fn what_nodes_execute_early_is_undone_where_the_order_is_another_one() {
    let _limit = amcast_test_policy::time_limit();
    let mut undone = 0;
    for seed in 0..4 {
        let ran = run("toto", (seed, Profile::All), None, BankWorkload::new);
        assert_eq!(ran.report.outcome, RunOutcome::Settled, "{seed}");
        assert_eq!(ran.findings, [], "{seed}");
        assert_eq!(ran.not_judged, [], "{seed}");
        undone += ran.counts.get("early commands undone").copied().unwrap_or(0);
    }
    assert!(undone > 0, "no run has shown what is checked");
}

/// Makes the runs of a file of `regressions/services/` anew: each keeps every promise now.
fn replay<W: Workload + 'static>(lines: &str, workload: fn(usize) -> W) {
    for line in lines.lines().filter(|line| !line.starts_with('#')) {
        let (how, story) = line.split_once(" | ").expect("a story");
        let words: Vec<_> = how.split(' ').collect();
        let [name, faults, seed, groups] = words[..] else { panic!("{line:?} has other words") };
        let entry = find(name).expect("it is in the catalog");
        let faults = Profile::parse(faults).expect("a known profile");
        let groups = groups.strip_prefix("groups=").and_then(|number| number.parse().ok());
        let groups: usize = groups.expect("a number of groups");
        let seed: u64 = seed.parse().expect("a number");
        let ran = run_over((entry, groups), (seed, faults), None, workload);
        assert_eq!(ran.report.outcome, RunOutcome::Settled, "{story}");
        assert_eq!(ran.findings, [], "{story}");
        assert_eq!(ran.not_judged, [], "{story}");
    }
}

#[test]
fn what_failed_once_holds() {
    let _limit = amcast_test_policy::time_limit();
    replay(include_str!("../../../regressions/services/kv.txt"), KvWorkload::new);
    replay(include_str!("../../../regressions/services/log.txt"), LogWorkload::new);
}

#[test]
fn the_same_seed_gives_the_same_run_and_the_same_calls() {
    let _limit = amcast_test_policy::time_limit();
    let [one, other] = [0; 2].map(|_| run("multi-ring", (5, Profile::All), None, KvWorkload::new));
    assert_eq!((one.report.hash, one.lines), (other.report.hash, other.lines));
    assert_eq!(one.counts, other.counts);
}

/// The largest seed within which each mutant is found, where the seed that is noted does not show it any more.
const MUTANT_SEEDS: u64 = 100;

/// A run that shows a mutant to its judge.
struct ShowingRun {
    protocol: &'static str,
    seed: u64,
}

impl ShowingRun {
    const fn of(protocol: &'static str, seed: u64) -> Self {
        Self { protocol, seed }
    }
}

/// The run of the store that shows it; none where one in thousands does, and every change of what runs draw moves it: a unit test
/// shows it instead.
const fn run_of_store(mutant: ServiceMutant) -> Option<ShowingRun> {
    Some(match mutant {
        ServiceMutant::ForgetsSessions => ShowingRun::of("bb-urcast-urcast", 1),
        ServiceMutant::NewerCheckpoint => ShowingRun::of("multi-ring", 1),
        ServiceMutant::DropsInbox => ShowingRun::of("bb-urcast-urcast", 2),
        ServiceMutant::DropsMovedKeys => ShowingRun::of("multi-ring-memory", 1),
        ServiceMutant::ReadsAtOnce => ShowingRun::of("multi-ring-memory", 2),
        ServiceMutant::ExpiresByOwnClock => ShowingRun::of("bb-urcast-urcast", 1),
        ServiceMutant::LosesCommand => ShowingRun::of("bb-urcast-urcast", 1),
        ServiceMutant::UnfinishedCheckpoint => ShowingRun::of("multi-ring-async", 1),
        ServiceMutant::TrustsAnyClock => ShowingRun::of("bb-urcast-urcast", 1),
        ServiceMutant::HandsInTooSoon => return None,
        ServiceMutant::DiffersUnread => ShowingRun::of("bb-urcast-urcast", 3),
        ServiceMutant::LosesBatched => ShowingRun::of("bb-urcast-urcast", 1),
        ServiceMutant::CountsNoneOfBatch => ShowingRun::of("multi-ring-memory", 122),
        ServiceMutant::KeepsBudget => ShowingRun::of("bb-urcast-urcast", 21),
        ServiceMutant::RefusesAll => ShowingRun::of("tram", 1),
    })
}

/// The run of the log that shows it; none where it is a mistake of the store.
const fn run_of_log(mutant: ServiceMutant) -> Option<ShowingRun> {
    Some(match mutant {
        ServiceMutant::ForgetsSessions => ShowingRun::of("bb-urcast-urcast", 1),
        ServiceMutant::NewerCheckpoint => ShowingRun::of("multi-ring", 1),
        ServiceMutant::DropsInbox => ShowingRun::of("bb-urcast-urcast", 6),
        ServiceMutant::ReadsAtOnce => ShowingRun::of("multi-ring-memory", 2),
        ServiceMutant::ExpiresByOwnClock => ShowingRun::of("bb-urcast-urcast", 1),
        ServiceMutant::LosesCommand => ShowingRun::of("bb-urcast-urcast", 1),
        ServiceMutant::UnfinishedCheckpoint => ShowingRun::of("multi-ring-async", 1),
        ServiceMutant::RefusesAll => ShowingRun::of("ramcast", 1),
        ServiceMutant::DropsMovedKeys
        | ServiceMutant::TrustsAnyClock
        | ServiceMutant::HandsInTooSoon
        | ServiceMutant::DiffersUnread
        | ServiceMutant::LosesBatched
        | ServiceMutant::CountsNoneOfBatch
        | ServiceMutant::KeepsBudget => return None,
    })
}

/// Whether the judge found something wrong in the run.
fn is_found(ran: &ServiceRun, by: ServiceJudge) -> bool {
    match by {
        ServiceJudge::Breach => matches!(ran.report.outcome, RunOutcome::Breach(_)),
        ServiceJudge::Settling => matches!(ran.report.outcome, RunOutcome::NotSettled(_)),
        _ => ran.findings.iter().any(|finding| finding.what == by.name()),
    }
}

/// The mutant's own judge finds it in the run that is noted, or in one of the first seeds; without the mutant the same run is
/// sound.
fn is_found_by_its_judge<W: Workload + 'static>(
    declared: &DeclaredMutant,
    showing: &ShowingRun,
    workload: fn(usize) -> W,
) {
    let DeclaredMutant { mutant, info, found_by } = *declared;
    let ShowingRun { protocol, seed } = *showing;
    let entry = find(protocol).expect("it is in the catalog");
    let shape = (entry, if entry.capabilities().several_groups { 3 } else { 1 });
    assert!(mutant.applies(entry, shape.1), "{} cannot be made above {protocol}", info.name);
    let run = |seed, mutant| run_over(shape, (seed, Profile::All), mutant, workload);
    let mut seeds = std::iter::once(seed).chain(1..=MUTANT_SEEDS);
    let found = seeds.find(|seed| is_found(&run(*seed, Some(mutant)), found_by));
    let name = format!("{} above {protocol}", info.name);
    let found = found.unwrap_or_else(|| panic!("{name}: {} does not find it", found_by.name()));
    println!("{name}: {} finds it in seed {found}", found_by.name());
    let sound = run(found, None);
    assert_eq!(sound.report.outcome, RunOutcome::Settled, "{name}, seed {found}");
    assert_eq!(sound.findings, [], "{name}, seed {found}");
    assert_eq!(sound.not_judged, [], "{name}, seed {found}");
}

#[test]
fn each_mutant_of_the_store_is_found_by_the_judge_that_it_declares() {
    let _limit = amcast_test_policy::time_limit();
    let mut without_run = Vec::new();
    for declared in ServiceMutant::ALL {
        match run_of_store(declared.mutant) {
            Some(showing) => is_found_by_its_judge(declared, &showing, KvWorkload::new),
            None => without_run.push((declared.mutant, declared.info.shown_by)),
        }
    }
    // A unit test shows it.
    let shown_by = Some("crates/amcast/src/simulate/application.rs");
    assert_eq!(without_run, [(ServiceMutant::HandsInTooSoon, shown_by)]);
}

#[test]
fn each_mutant_of_the_log_is_found_by_the_judge_that_it_declares() {
    let _limit = amcast_test_policy::time_limit();
    for declared in ServiceMutant::ALL {
        let showing = run_of_log(declared.mutant);
        assert_eq!(showing.is_none(), declared.mutant.is_of_store(), "{}", declared.info.name);
        if let Some(showing) = showing {
            is_found_by_its_judge(declared, &showing, LogWorkload::new);
        }
    }
}

#[test]
fn the_example_finds_the_mistake_in_a_state_machine_of_its_own_and_makes_the_run_small() {
    let _limit = amcast_test_policy::time_limit();
    let failed = example::hunt::<false>(example::SEEDS).expect("a seed shows the mistake");
    let (usual, small) = (ServiceSettings::default(), failed.service);
    assert!(small.clients * small.calls as usize <= usual.clients * usual.calls as usize / 2);
    // It takes a restart, and two answers with the same number.
    assert!(!failed.faults.is_empty(), "{failed}");
    assert!(failed.lines.matches("INCR tickets").count() >= 2, "{failed}");
    assert!(failed.to_string().contains("made small"), "{failed}");
    let sound = example::hunt::<true>(1..=failed.seed);
    assert!(sound.is_none(), "{}", sound.expect("it is there"));
}

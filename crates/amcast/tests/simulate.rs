//! StateMachineAdapter replicas of the services in the simulator: a few seeds of each; `amcast sim --service` makes thousands.

// The example's own file.
#[path = "../examples/simulate.rs"]
#[allow(dead_code, reason = "`main` is for people")]
mod example;

use amcast::core::{Entry, RawConfig};
use amcast::protocols::catalog::find;
use amcast::protocols::trial;
use amcast::sim::{Profile, RunOutcome, RunSettings};
use amcast::simulate::bank::BankWorkload;
use amcast::simulate::kv::KvWorkload;
use amcast::simulate::log::LogWorkload;
use amcast::simulate::{ServiceMutant, ServiceRun, ServiceSettings, Simulation, Workload};

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
    let raw = RawConfig { groups, replicas: 3, clients: 0, ..RawConfig::default() };
    let with_clients = RawConfig { clients: 2, ..raw.clone() };
    let fits = |raw: &RawConfig| {
        let config = raw.check(entry.about().params).ok()?;
        amcast::core::entry::build_all(entry, &config).ok().map(|_| config)
    };
    let config = &fits(&raw).or_else(|| fits(&with_clients)).expect("one of them fits");
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

/// Seeds within which each mutant is found, with some to spare.
const MUTANT_SEEDS: u64 = 20;

/// Whether this run, in a small cluster in which leaders change all the time, shows the mistake.
fn shows(name: &str, seed: u64, mutant: ServiceMutant) -> bool {
    let entry = find(name).expect("it is in the catalog");
    let raw = trial::hasty(entry, seed, None);
    let config = &raw.check(entry.about().params).expect("a shape of trials");
    let groups = config.cluster().groups();
    let service = ServiceSettings { mutant: Some(mutant), ..ServiceSettings::default() };
    let workload = &|| KvWorkload::new(groups);
    let simulation = Simulation { entry, config, service, seed, workload };
    let faults = [Profile::All, Profile::Crash, Profile::Oracle][(seed % 3) as usize];
    let settings = RunSettings::with(faults);
    let ran = simulation.run(&settings, &mut None, &mut |_| {}).expect("the shape is sound");
    !ran.findings.is_empty() || !ran.report.settled()
}

#[test]
fn mistakes_are_found_within_a_few_seeds() {
    let _limit = amcast_test_policy::time_limit();
    for (mutant, info) in ServiceMutant::ALL {
        let name = match mutant {
            // These take more seeds than a test has time for: `amcast sim --service kv --mutant all` hunts them.
            ServiceMutant::DropsInbox | ServiceMutant::ReadsAtOnce => continue,
            ServiceMutant::ExpiresByOwnClock | ServiceMutant::TrustsAnyClock => "bb-urcast-urcast",
            ServiceMutant::DropsMovedKeys
            | ServiceMutant::LosesCommand
            | ServiceMutant::DiffersUnread => "tram",
            _ => "multi-ring",
        };
        let is_found = (1..=MUTANT_SEEDS).any(|seed| shows(name, seed, *mutant));
        assert!(is_found, "{} above {name}", info.name);
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

//! Whole replicas of the services in the simulator.

use amcast::core::{Entry, RawConfig};
use amcast::protocols::multiring;
use amcast::sim::{Profile, RunOutcome, RunSettings};
use amcast::simulate::kv::KvWorkload;
use amcast::simulate::{ServiceMutant, ServiceRun, ServiceSettings, Simulation};

fn run(entry: &dyn Entry, seed: u64, mutant: Option<ServiceMutant>) -> ServiceRun {
    let raw = RawConfig { groups: 2, replicas: 3, clients: 0, ..RawConfig::default() };
    let config = &raw.check(entry.about().params).unwrap();
    let service = ServiceSettings { mutant, ..ServiceSettings::default() };
    let simulation = Simulation { entry, config, service, seed, workload: &|| KvWorkload::new(2) };
    simulation.run(&RunSettings::with(Profile::All), &mut None, &mut |_| {}).unwrap()
}

#[test]
fn a_store_is_linearizable_under_all_faults() {
    let _limit = amcast_test_policy::time_limit();
    for entry in [&multiring::SYNCED, &multiring::WRITTEN, &multiring::MEMORY] {
        for seed in 0..4 {
            let ServiceRun { report, findings, .. } = run(entry, seed, None);
            assert_eq!(report.outcome, RunOutcome::Settled, "{} {seed}", entry.name());
            assert_eq!(findings, [], "{} {seed}", entry.name());
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_run_and_the_same_calls() {
    let _limit = amcast_test_policy::time_limit();
    let [one, other] = [0; 2].map(|_| run(&multiring::SYNCED, 5, None));
    assert_eq!((one.report.hash, one.lines), (other.report.hash, other.lines));
    assert_eq!(one.counts, other.counts);
}

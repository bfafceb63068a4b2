//! Whole replicas of the services in the simulator.

use amcast::core::{Entry, RawConfig};
use amcast::protocols::multiring;
use amcast::sim::{Outcome, Profile, Settings};
use amcast::simulate::kv::KvWorkload;
use amcast::simulate::{ServiceMutant, ServiceRun, ServiceSettings, simulate};

fn run(
    entry: &dyn Entry,
    profile: Profile,
    seed: u64,
    mutant: Option<ServiceMutant>,
) -> ServiceRun {
    let raw = RawConfig { groups: 2, replicas: 3, clients: 0, ..RawConfig::default() };
    let config = raw.check(entry.about().params).unwrap();
    let settings = Settings::with(profile);
    let service = ServiceSettings { mutant, ..ServiceSettings::default() };
    simulate((entry, &config), &settings, service, seed, &|| KvWorkload::new(2), &mut |_| {})
        .unwrap()
}

#[test]
fn a_store_is_linearizable_under_all_faults() {
    let _limit = amcast_test_policy::time_limit();
    for seed in 0..20 {
        let ServiceRun { report, findings, counts, .. } =
            run(&multiring::SYNCED, Profile::All, seed, None);
        assert_eq!(report.outcome, Outcome::Settled, "seed {seed}");
        assert_eq!(findings, [], "seed {seed}");
        println!("{seed}: {counts:?} {:?} {}", report.time, report.crashes);
    }
}

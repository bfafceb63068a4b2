//! Seeds that failed once keep every promise: each line of `regressions/*.txt` is a run.

use amcast_check::{History, check};
use amcast_core::RawConfig;
use amcast_core::trace::Event;
use amcast_protocols::catalog;
use amcast_sim::{Profile, Settings, run};

#[test]
fn what_failed_once_holds() {
    let lines = include_str!("../../../regressions/tram.txt").lines();
    let lines: Vec<&str> = lines.filter(|l| !l.starts_with('#') && !l.is_empty()).collect();
    assert!(!lines.is_empty(), "nothing is replayed");
    for line in lines {
        let (how, story) = line.split_once(" | ").expect("a story");
        let mut words = how.split(' ');
        let profile = Profile::parse(words.next().expect("a profile")).expect("a known profile");
        let seed: u64 = words.next().expect("a seed").parse().expect("a number");
        let entry = catalog::find("tram").expect("it is in the catalog");
        let mut raw = RawConfig::default();
        raw.set.insert("xfer_lines".to_string(), "64".to_string());
        for (name, value) in words.map(|w| w.split_once('=').expect("name=value")) {
            match name {
                "groups" => raw.groups = value.parse().expect("a number"),
                "replicas" => raw.replicas = value.parse().expect("a number"),
                "overlay" => raw.overlay = value.to_string(),
                _ => drop(raw.set.insert(name.to_string(), value.to_string())),
            }
        }
        let config = raw.check(entry.about().params).expect("a sound configuration");
        let settings = Settings { payload_max: 1500, ..Settings::with(profile) };
        let mut history = History::new();
        let mut push = |event: &Event<'_>| {
            history.push_event(event, config.cluster()).expect("the events are sound");
        };
        let report = run(entry, &config, &settings, seed, &mut push).expect("it is built");
        let findings = check(&history, entry.about().promises);
        assert!(
            report.settled() && findings.all_hold(),
            "{story}: {:?}\n{findings}",
            report.outcome
        );
    }
}

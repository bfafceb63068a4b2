//! Seeds that failed once keep every promise: each line of `regressions/*.txt` is a run.

use amcast_check::{History, check};
use amcast_core::trace::Event;
use amcast_core::{RawConfig, Span};
use amcast_protocols::{catalog, trial};
use amcast_sim::{Profile, Settings, run};

#[test]
fn what_failed_once_holds() {
    replay(include_str!("../../../regressions/tram.txt"), Some("tram"));
}

#[test]
fn what_failed_once_in_total_order_holds() {
    replay(include_str!("../../../regressions/total.txt"), None);
}

#[test]
fn what_failed_once_in_rings_holds() {
    replay(include_str!("../../../regressions/multi-ring.txt"), None);
}

/// Runs each line: of `protocol`, or of the one that its first word names.
fn replay(file: &str, protocol: Option<&str>) {
    let lines = file.lines();
    let lines: Vec<&str> = lines.filter(|l| !l.starts_with('#') && !l.is_empty()).collect();
    assert!(!lines.is_empty(), "nothing is replayed");
    for line in lines {
        let (how, story) = line.split_once(" | ").expect("a story");
        let mut words = how.split(' ');
        let protocol = protocol.unwrap_or_else(|| words.next().expect("a protocol"));
        let profile = Profile::parse(words.next().expect("a profile")).expect("a known profile");
        let seed: u64 = words.next().expect("a seed").parse().expect("a number");
        let entry = catalog::find(protocol).expect("it is in the catalog");
        // Most are older than barriers and successions.
        let settings = Settings { payload_max: 1500, barriers: 0, ..Settings::with(profile) };
        let mut settings = Settings { successions: false, ..settings };
        let mut raw = RawConfig::default();
        for word in words {
            if word == "kept" {
                settings.replaces = false;
                continue;
            }
            let Some((name, value)) = word.split_once('=') else {
                raw = match word {
                    "wide" => trial::wide(entry, seed, None),
                    "hasty" => trial::hasty(entry, seed, None),
                    _ => panic!("{word:?} is no way to draw a shape"),
                };
                continue;
            };
            let number = || value.parse::<u64>().expect("a number");
            match name {
                "groups" => raw.groups = number() as usize,
                "replicas" => raw.replicas = number() as usize,
                "clients" => raw.clients = number() as usize,
                "payload" => settings.payload_max = number() as usize,
                "overlay" => raw.overlay = value.to_string(),
                "barriers" => settings.barriers = number() as usize,
                "messages" => settings.messages = number() as usize,
                "faulty_us" => settings.faulty = Some(Span::micros(number())),
                "events" => settings.events_max = number(),
                "settle_us" => settings.settle = Span::micros(number()),
                _ => drop(raw.set.insert(name.to_string(), value.to_string())),
            }
        }
        let config = raw.check(entry.about().params).expect("a sound configuration");
        let mut history = History::new();
        if let Some(overlay) = entry.overlay(&config) {
            history.arrange(overlay).expect("one tree");
        }
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

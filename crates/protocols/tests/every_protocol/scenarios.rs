//! A scenario that is written from the entry: all senders multicast in turn, and where it bears a crash, a replica dies
//! and comes back. Each run has the same transcript, and every promise is kept.

use crate::judged::{entries, history};
use amcast_check::check;
use amcast_core::trace::TraceEvent;
use amcast_core::{Config, Entry, GroupSet, Senders};
use amcast_protocols::{catalog, trial};
use amcast_sim::Scenario;
use std::fmt::Write as _;

/// The commands of the scenario, with an empty account of what happens.
fn written(entry: &dyn Entry) -> String {
    let raw = trial::tiny(entry, 2);
    let config = raw.check(entry.about().params).expect("a sound configuration");
    let cluster = config.cluster();
    let (groups, replicas, clients) = (raw.groups, raw.replicas, raw.clients);
    let mut text =
        format!("run {} groups={groups} replicas={replicas} clients={clients}", entry.name());
    let _ = write!(text, " overlay={}\nshow part\n----\n", raw.overlay);
    let names: Vec<String> = match entry.capabilities().senders {
        Senders::Clients => {
            (0..clients).map(|i| cluster.name(cluster.client(i)).to_string()).collect()
        }
        Senders::Replicas => {
            let replicas = cluster.pids().filter(|&p| cluster.group_of(p).is_some());
            replicas.map(|p| cluster.name(p).to_string()).collect()
        }
    };
    for (i, name) in names.iter().cycle().take(6).enumerate() {
        let dst = destinations(entry, &config, i);
        let _ = write!(text, "\nat {}ms cast {name} {dst} 8\n----\n", 20 + i);
    }
    if entry.capabilities().crash_tolerance {
        let _ = write!(text, "\nat 22500us crash g0/r2 for 3ms\n----\n");
        // Commands are in order of their times.
        let mut blocks: Vec<&str> = text.split_inclusive("----\n").collect();
        let crash = blocks.pop().expect("it was added last");
        blocks.insert(4, crash);
        return blocks.concat();
    }
    text
}

/// Groups that are ordered together, all of them and one of them in turn.
fn destinations(entry: &dyn Entry, config: &Config, i: usize) -> String {
    let together = entry.together(config);
    let set = together[i % together.len()];
    let set =
        if i.is_multiple_of(2) { set } else { GroupSet::one(set.iter().next().expect("a group")) };
    let names: Vec<String> = set.iter().map(|group| group.to_string()).collect();
    names.join(",")
}

/// The text of the whole file with what happened. Panics if a promise is broken.
fn played(text: &str) -> String {
    let scenario = Scenario::read(text, &catalog::find).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let (entry, config) = (scenario.entry(), scenario.config());
    let mut history = history(entry, config);
    let played = scenario.play(&mut |event: &TraceEvent<'_>| {
        history.push_event(event, config.cluster()).expect("the simulator's events are sound");
    });
    let findings = check(&history, entry.about().promises);
    assert!(played.report.settled() && findings.all_hold(), "{findings}\n{}", played.text);
    assert!(played.report.deliveries >= 6, "{}", played.text);
    played.text
}

#[test]
fn a_scenario_that_is_written_from_the_entry_is_played_and_read_again() {
    for entry in entries() {
        let first = played(&written(entry));
        assert!(first.contains(" delivers "), "{first}");
        assert_eq!(played(&first), first, "{}", entry.name());
    }
}

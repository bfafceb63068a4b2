//! Configurations in which to try a protocol, drawn from a seed: of any shape ([`wide`]), small and
//! restless, so that a mistake shows soon ([`hasty`]), or with no room at all ([`tight`]). Or the
//! smallest one that there is ([`tiny`]), for runs of every kind.
//!
//! Simulations by the thousand draw them; what is drawn is an ordinary [`RawConfig`], so a run that
//! failed can be named by its values and needs no generator to be made again.
//!
//! The tables here are of parameters that several protocols share, or that have to fit together. Of its other
//! parameters an entry says itself what to try: [`Entry::trials`].

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use amcast_core::entry::Trials;
use amcast_core::rng::Rng;
use amcast_core::{Entry, MediumKind, RawConfig};

/// Rings so small that they go round and fill up, batches large and small.
const WIDE: &Trials = &[
    ("xfer_lines", &["64"]),
    ("log_lines", &["64", "128", "512"]),
    ("hm_lines", &["64", "128", "256"]),
    ("batch_lines", &["512", "512", "8"]),
    ("pipeline", &["4", "4", "1"]),
    ("window", &["16", "4", "1"]),
];

/// Rings that hold a handful of messages, and timers as short as a few writes: for runs of which all
/// are made.
const TINY: &Trials = &[
    ("xfer_lines", &["16"]),
    ("log_lines", &["16"]),
    ("hm_lines", &["16"]),
    ("heartbeat_us", &["20"]),
    ("suspect_us", &["60"]),
];

/// The smallest rings.
const HASTY: &Trials = &[
    ("xfer_lines", &["64"]),
    ("log_lines", &["64"]),
    ("hm_lines", &["64"]),
    ("batch_lines", &["512", "8"]),
    ("window", &["4"]),
];

/// Rings with room for a few messages, and replicas that tell of themselves more often than a slow
/// write takes: a slow member lags too far, and asks for the state again and again.
const TIGHT: &Trials = &[
    ("xfer_lines", &["16", "32", "64"]),
    ("log_lines", &["16", "16", "32"]),
    ("hm_lines", &["32", "64"]),
    ("window", &["4"]),
];

/// Rings with room for a few messages, for every other wide shape. Drawn from a stream of their own.
const SMALL: &Trials = &[
    ("xfer_lines", &["16", "32"]),
    ("log_lines", &["16", "16", "32"]),
    ("hm_lines", &["16", "32", "64"]),
];

/// As [`TIMERS`], for these.
const TIGHT_TIMERS: [(&str, &str); 3] = [("30", "70"), ("15", "60"), ("50", "200")];

/// How packets go, for protocols that pass messages. Drawn after all others.
const PACKETS: &Trials = &[
    ("lane", &["stream", "datagram"]),
    ("packet_bytes", &["1400", "200"]),
    ("retry_us", &["200", "1000"]),
];

/// How soon short records go round. Drawn behind those.
const LAPS: &[&str] = &["8192", "32", "40", "64"];

/// How often a replica shows that it lives, and how long it may be silent, in microseconds. The
/// first suspect each other all the time; the last not even in most faults.
const TIMERS: [(&str, &str); 3] = [("50", "200"), ("100", "1000"), ("2000", "50000")];

/// A cluster's shape by seed: 1 to 8 groups, few more often than many, mostly of 3 replicas, under
/// every kind of tree; small buffers; hasty timers and patient ones. `groups` are as many as are
/// given, if any are.
pub fn wide(entry: &dyn Entry, seed: u64, groups: Option<usize>) -> RawConfig {
    let mut rng = Rng::stream(seed, "wide");
    let drawn = of(&mut rng, &[1, 1, 2, 2, 3, 3, 4, 4, 5, 6, 8]);
    let groups = groups.unwrap_or(drawn);
    // Trees whose root is not the first group.
    let list = match groups {
        2 => "1,-1",
        3 => "2,0,-1",
        4 => "1,-1,1,2",
        5 => "4,4,1,1,-1",
        _ => "depth",
    };
    let overlay = of(&mut rng, &["base", "breadth", "depth", list]).to_string();
    let replicas = of(&mut rng, &[3, 3, 3, 3, 5, 5, 7]);
    let clients = of(&mut rng, &[2, 2, 3]);
    let mut raw = RawConfig { groups, replicas, clients, overlay, ..RawConfig::default() };
    // Many replicas that suspect each other all the time do little else; over messages so many, each of
    // which tells all others that it lives, do nothing but that.
    let timers = match groups * replicas {
        21.. if entry.about().medium == MediumKind::Messages => &TIMERS[2..],
        13.. => &TIMERS[1..],
        _ => &TIMERS,
    };
    settings(entry, &mut rng, WIDE, timers, &mut raw);
    small(entry, seed, &mut raw);
    own(entry, seed, &mut raw);
    suited(entry, raw)
}

/// Sets the smallest rings, for every other seed.
fn small(entry: &dyn Entry, seed: u64, raw: &mut RawConfig) {
    let mut rng = Rng::stream(seed, "small");
    if rng.below(2) == 1 {
        let has = |name: &str| entry.about().params.iter().any(|p| p.name == name);
        let drawn = SMALL.iter().map(|(name, list)| (*name, of(&mut rng, list)));
        let known = drawn.filter(|(name, _)| has(name));
        raw.set.extend(known.map(|(name, value)| (String::from(name), value.to_string())));
    }
}

/// A shape by seed in which a mistake shows soon: few processes, the smallest buffers, and leaders
/// that change all the time. `groups` as for [`wide`].
pub fn hasty(entry: &dyn Entry, seed: u64, groups: Option<usize>) -> RawConfig {
    if seed % 4 == 3 {
        return tight(entry, seed, groups);
    }
    let mut rng = Rng::stream(seed, "hasty");
    let drawn = 1 + rng.below(3) as usize;
    let groups = groups.unwrap_or(drawn);
    let overlay = of(&mut rng, &["breadth", "depth"]).to_string();
    let mut raw = RawConfig { groups, replicas: 3, clients: 2, overlay, ..RawConfig::default() };
    settings(entry, &mut rng, HASTY, &TIMERS[..2], &mut raw);
    own(entry, seed, &mut raw);
    suited(entry, raw)
}

/// The shape, or the nearest one that `entry` takes: one replica a group where it replicates
/// nothing, one group without clients where its members broadcast among themselves. As given if
/// none of these.
pub fn suited(entry: &dyn Entry, raw: RawConfig) -> RawConfig {
    let takes = |raw: &RawConfig| {
        let config = raw.check(entry.about().params);
        config.is_ok_and(|config| amcast_core::entry::build_all(entry, &config).is_ok())
    };
    let single = RawConfig { replicas: 1, ..raw.clone() };
    let overlay = "breadth".to_string();
    let broadcast = RawConfig { groups: 1, clients: 0, overlay, ..raw.clone() };
    let members = RawConfig { clients: 0, ..raw.clone() };
    let found = [&raw, &single, &members, &broadcast].into_iter().find(|raw| takes(raw));
    found.unwrap_or(&raw).clone()
}

/// The smallest cluster in which all that a protocol does can happen: `groups` groups in a chain, of 3
/// replicas, and 2 clients.
pub fn tiny(entry: &dyn Entry, groups: usize) -> RawConfig {
    let overlay = "depth".to_string();
    let mut raw = RawConfig { groups, replicas: 3, clients: 2, overlay, ..RawConfig::default() };
    let has = |name: &str| entry.about().params.iter().any(|p| p.name == name);
    let known = TINY.iter().filter(|(name, _)| has(name));
    raw.set.extend(known.map(|(name, value)| (String::from(*name), value[0].to_string())));
    suited(entry, raw)
}

/// A shape by seed with the smallest rings there are, in one group or two, over memory often of 5
/// replicas. `groups` as for
/// [`wide`].
pub fn tight(entry: &dyn Entry, seed: u64, groups: Option<usize>) -> RawConfig {
    let mut rng = Rng::stream(seed, "tight");
    let groups = groups.unwrap_or(of(&mut rng, &[1, 1, 2]));
    let overlay = "breadth".to_string();
    let mut raw = RawConfig { groups, replicas: 3, clients: 2, overlay, ..RawConfig::default() };
    settings(entry, &mut rng, TIGHT, &TIGHT_TIMERS, &mut raw);
    if entry.about().medium == MediumKind::Memory {
        raw.replicas = of(&mut rng, &[3, 5]);
    }
    suited(entry, raw)
}

/// Sets what `entry` has parameters for: `values`, and one pair of `timers`.
fn settings(
    entry: &dyn Entry,
    rng: &mut Rng,
    values: &Trials,
    timers: &[(&'static str, &'static str)],
    raw: &mut RawConfig,
) {
    let has = |name: &str| entry.about().params.iter().any(|p| p.name == name);
    let drawn =
        values.iter().map(|(name, list)| (*name, of(rng, list))).collect::<TrialParameters>();
    let (heartbeat, suspect) = of(rng, timers);
    let packets =
        PACKETS.iter().map(|(name, list)| (*name, of(rng, list))).collect::<TrialParameters>();
    let timers = [("heartbeat_us", heartbeat), ("suspect_us", suspect)];
    let all = drawn.into_iter().chain(packets).chain(timers);
    let all = all.chain([("lap_lines", of(rng, LAPS))]);
    let known = all.filter(|(name, _)| has(name));
    raw.set.extend(known.map(|(name, value)| (String::from(name), value.to_string())));
}

/// Sets what `entry` says itself is to be tried, and can be in a cluster of this shape.
fn own(entry: &dyn Entry, seed: u64, raw: &mut RawConfig) {
    let mut rng = Rng::stream(seed, "own");
    for (name, list) in entry.trials() {
        let with = |value: &&str| {
            let set = [(String::from(*name), value.to_string())].into();
            RawConfig { set, ..raw.clone() }.check(entry.about().params).is_ok()
        };
        let fit: Vec<&str> = list.iter().copied().filter(with).collect();
        raw.set.insert(String::from(*name), of(&mut rng, &fit).to_string());
    }
}

type TrialParameters = Vec<(&'static str, &'static str)>;

fn of<T: Copy>(rng: &mut Rng, list: &[T]) -> T {
    list[rng.below(list.len() as u64) as usize]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::{CATALOG, find};

    #[test]
    fn what_is_drawn_can_be_built_and_is_the_same_again() {
        for entry in CATALOG {
            for seed in 0..200 {
                for draw in [wide, hasty, tight, |entry: &dyn Entry, seed, _| {
                    tiny(entry, 1 + seed as usize % 3)
                }] {
                    let raw = draw(*entry, seed, None);
                    assert_eq!(raw, draw(*entry, seed, None));
                    let config = raw.check(entry.about().params).expect("all is in range");
                    let built = amcast_core::entry::build_all(*entry, &config);
                    assert!(built.is_ok(), "{}: {raw:?}", entry.name());
                }
            }
        }
    }

    #[test]
    fn every_value_is_drawn() {
        let tram = find("tram").expect("it is in the catalog");
        let all: Vec<_> = (0..500).map(|seed| wide(tram, seed, None)).collect();
        assert!((1..=8).filter(|n| *n != 7).all(|n| all.iter().any(|raw| raw.groups == n)));
        let has = |name: &str| tram.about().params.iter().any(|p| p.name == name);
        for (name, list) in WIDE.iter().filter(|(name, _)| has(name)) {
            assert!(list.iter().all(|v| all.iter().any(|raw| raw.set[*name] == *v)), "{name}");
        }
        for (name, list) in SMALL {
            assert!(list.iter().all(|v| all.iter().any(|raw| raw.set[*name] == *v)), "{name}");
        }
        let small = all.iter().filter(|raw| ["16", "32"].contains(&&*raw.set["log_lines"])).count();
        assert!((200..300).contains(&small), "{small} of 500 have small rings");
        assert_eq!(wide(tram, 3, Some(6)).groups, 6);
    }

    #[test]
    fn what_an_entry_says_is_to_be_tried_is_drawn() {
        for entry in CATALOG {
            let all: Vec<_> = (0..1000).map(|seed| wide(*entry, seed, None)).collect();
            for (name, list) in entry.trials() {
                assert!(
                    entry.about().params.iter().any(|p| p.name == *name),
                    "no parameter {name}"
                );
                for value in *list {
                    let drawn = all.iter().any(|raw| raw.set[*name] == *value);
                    assert!(drawn, "{}: {name}={value}", entry.name());
                }
            }
        }
    }
}

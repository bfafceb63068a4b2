//! The settings of a cluster's file that decide the effects of commands.
//!
//! It is listed once, here: for the next run on what an earlier one left, for what nodes compare before they talk
//! to each other, and for etcd.

use super::{ClusterFile, Setting};
use amcast_core::config::{Param, ParamKind};
use amcast_core::parameters::SUSPECT;
use amcast_net::{Secret, SettingsDigest};
use std::fmt;

/// The text for a setting that is not written, where the list of parameters has no default.
const DEFAULT: &str = "its default";

impl ClusterFile {
    /// The settings that decide the effects of commands, and so must be the same in all runs of a
    /// cluster and on all its hosts: names and values. A parameter that is not there has its
    /// default.
    pub fn decides(&self) -> Vec<(String, String)> {
        // All fields are listed here: for a new one the author must decide whether it counts.
        let Self {
            protocol,
            shards,
            replicas,
            maxmemory_mb,
            hash_seed,
            log_mb,
            log_dir,
            log_disk_mb,
            partition,
            partitions,
            boundaries,
            set,
            // Only protocols in the memory of one machine have them, whose processes read one file.
            clients: _,
            overlay: _,
            // How much a host does at a time, what it writes down for people, and where its files are.
            workers: _,
            digest_secs: _,
            disk_reserve_mb: _,
            state_mb_s: _,
            // Only gateways ask it, before they send a command: nodes execute any that is ordered, up to a limit that
            // no file sets.
            command_max_mb: _,
            record: _,
            record_limit: _,
            data: _,
            durable: _,
            // Where nodes and gateways are, and who is let in.
            node_fronts: _,
            password: _,
            ports: _,
            secret: _,
            insecure: _,
            nodes: _,
            etcd: _,
            // Nodes that differ in it do not understand each other, and say so.
            rdma_provider: _,
            // Fields that nodes compare separately.
            id: _,
            // Times are ordered with the commands.
            clock_ahead_ms: _,
        } = self;
        let partitions = partitions.unwrap_or(*shards);
        // The bounds on logs decide the effects of commands: the same commands may run again from
        // disk.
        let told = |mb: &Option<usize>| mb.map_or(DEFAULT.to_string(), |mb| mb.to_string());
        let log_dir = if log_dir.is_some() { "one" } else { "none" };
        let fixed = [
            ("protocol", protocol.clone()),
            ("shards", shards.to_string()),
            ("replicas", replicas.to_string()),
            ("partition", format!("{partition} ({partitions}, boundaries {boundaries:?})")),
            ("log_mb", told(log_mb)),
            ("log_disk_mb", told(log_disk_mb)),
            ("log_dir", log_dir.to_string()),
        ];
        // Clusters of before have none: it stays out of what they wrote.
        let maxmemory = maxmemory_mb.map(|mb| ("maxmemory_mb", mb.to_string()));
        // The seed itself is nobody's business: this is of text that tells two apart.
        let mark = |seed: &String| Some(Secret::parse(seed.as_bytes()).ok()?.datagram_id(0));
        let seed = hash_seed.as_ref().and_then(mark).map(|mark| format!("one ({mark:016x})"));
        let fixed = fixed.into_iter().chain(maxmemory).chain(seed.map(|seed| ("hash_seed", seed)));
        let fixed = fixed.map(|(name, value)| (name.to_string(), value));
        let set = set.iter().filter(|(name, _)| **name != SUSPECT.name());
        fixed.chain(set.map(|(name, value)| (format!("set.{name}"), value.to_string()))).collect()
    }

    /// The same in the same order for all files of one protocol, whose parameters these are, and with the
    /// values that hold where a file says none.
    pub fn decides_in_full(&self, params: &[Param]) -> Vec<(String, String)> {
        let given = self.decides();
        let is_set = |(name, _): &&(String, String)| name.starts_with("set.");
        let mut all: Vec<_> = given.iter().filter(|item| !is_set(item)).cloned().collect();
        for name in ["maxmemory_mb", "hash_seed"] {
            if all.iter().all(|(there, _)| there != name) {
                all.push((name.to_string(), DEFAULT.to_string()));
            }
        }
        // Each name has one place, whether it was given or not.
        let fixed = all.len() - 2;
        all[fixed..].sort();
        let params = params.iter().filter(|param| !SUSPECT.is(param));
        all.extend(
            params.map(|param| {
                (format!("set.{}", param.name), value(param, self.set.get(param.name)))
            }),
        );
        all
    }

    /// Marks of that, which two nodes compare before they talk to each other.
    pub fn marks(&self, params: &[Param]) -> SettingsDigest {
        marks(&self.decides_in_full(params))
    }

    /// Takes over from the file of an earlier run of the same cluster the settings that must be the
    /// same: its number. Its time continues from that of the earlier run. Called before
    /// [`ClusterFile::settle`].
    ///
    /// # Errors
    /// When this is another cluster; the sentence says what is different.
    pub fn go_on_from(&mut self, earlier: &Self) -> Result<(), String> {
        self.hash_seed = self.hash_seed.take().or_else(|| earlier.hash_seed.clone());
        let (here, there) = (self.decides(), earlier.decides());
        for what in here.iter().chain(&there).map(|(what, _)| what) {
            let of = |all: &[(String, String)]| {
                let found = all.iter().find(|(name, _)| name == what);
                found.map_or(DEFAULT.to_string(), |(_, value)| value.clone())
            };
            let (here, there) = (of(&here), of(&there));
            if here != there {
                return was(what, &here, &there);
            }
        }
        if self.id.is_some() && self.id != earlier.id {
            let id = |file: &Self| file.id.unwrap_or_default();
            return was("id", &id(self), &id(earlier));
        }
        self.id = earlier.id;
        self.clock_ahead_ms = self.clock_ahead_ms.max(earlier.clock_ahead_ms);
        Ok(())
    }
}

/// That something is not what it was.
fn was(what: &str, here: &dyn fmt::Display, there: &dyn fmt::Display) -> Result<(), String> {
    Err(format!("{what} = {here}, and what is there was written with {there}"))
}

/// Checks that nothing decides otherwise than at an earlier start, as far as both lists know it.
///
/// # Errors
/// When something does; the sentence names it.
pub(crate) fn same(here: &[(String, String)], there: &[(String, String)]) -> Result<(), String> {
    for (name, here) in here {
        let there = there.iter().find(|(other, there)| other == name && there != here);
        if let Some((_, there)) = there {
            return was(name, here, there);
        }
    }
    Ok(())
}

pub(crate) fn marks(all: &[(String, String)]) -> SettingsDigest {
    SettingsDigest::of(all.iter().map(|(name, value)| (name.as_str(), value.as_str())))
}

/// The value of a parameter that is given so, or not at all, as all write it.
fn value(param: &Param, given: Option<&Setting>) -> String {
    let given = given.map(ToString::to_string);
    match param.kind {
        ParamKind::Number { default, .. } => {
            let number = |text: &String| text.replace('_', "").parse::<u64>().ok();
            given
                .as_ref()
                .map_or(Some(default), number)
                .map_or(given.unwrap_or_default(), |n| n.to_string())
        }
        ParamKind::Choice { of } => {
            given.unwrap_or_else(|| of.first().copied().unwrap_or_default().to_string())
        }
        ParamKind::Sets => given.unwrap_or_else(|| "none".to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{HostPlacement, PartitionOrder};
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn a_cluster_goes_on_only_from_what_it_was_itself() {
        let set: BTreeMap<_, _> = [("m".to_string(), Setting::Number(1))].into();
        let earlier =
            ClusterFile { id: Some(7), clock_ahead_ms: 50, set, ..ClusterFile::default() };
        let like = ClusterFile { id: None, clock_ahead_ms: 20, ..earlier.clone() };
        let (mut same, mut other) = (like.clone(), like.clone());
        same.set.insert(SUSPECT.name().into(), Setting::Number(9));
        assert_eq!(same.go_on_from(&earlier), Ok(()));
        assert_eq!((same.id, same.clock_ahead_ms), (Some(7), 50));
        other.set.insert("m".into(), Setting::Number(2));
        let says = "set.m = 2, and what is there was written with 1";
        assert_eq!(other.go_on_from(&earlier).unwrap_err(), says);
        other.set.remove("m");
        assert!(other.go_on_from(&earlier).unwrap_err().starts_with("set.m = its default, and"));
        let mut other = ClusterFile { shards: 4, ..like.clone() };
        assert!(other.go_on_from(&earlier).unwrap_err().starts_with("shards = 4, and"));
        let mut other = ClusterFile { partition: PartitionOrder::Range, ..like.clone() };
        assert!(other.go_on_from(&earlier).unwrap_err().starts_with("partition = range (3, "));
        let mut other = ClusterFile { log_mb: Some(9), ..like.clone() };
        let says = "log_mb = 9, and what is there was written with its default";
        assert_eq!(other.go_on_from(&earlier).unwrap_err(), says);
        let mut other = ClusterFile { maxmemory_mb: Some(9), ..like.clone() };
        let says = "maxmemory_mb = 9, and what is there was written with its default";
        assert_eq!(other.go_on_from(&earlier).unwrap_err(), says);
        let seed = |digit: &str| Some(digit.repeat(32));
        let mut other = ClusterFile { hash_seed: seed("1"), ..like.clone() };
        assert!(other.go_on_from(&earlier).unwrap_err().ends_with("was written with its default"));
        let seeded = ClusterFile { hash_seed: seed("1"), ..earlier.clone() };
        let mut same = like.clone();
        assert_eq!((same.go_on_from(&seeded), same.hash_seed), (Ok(()), seed("1")));
        let mut other = ClusterFile { hash_seed: seed("2"), ..like.clone() };
        let why = other.go_on_from(&seeded).unwrap_err();
        assert!(why.starts_with("hash_seed = one (") && !why.contains("1111"), "{why}");
        let mut other = ClusterFile { id: Some(8), ..like };
        assert!(other.go_on_from(&earlier).unwrap_err().starts_with("id = 8, and"));
    }

    const fn param(name: &'static str, kind: ParamKind) -> Param {
        Param { name, kind, about: "", cost: "", source: "" }
    }

    const PARAMS: [Param; 4] = [
        param("m", ParamKind::Number { default: 1, min: 1, max: 9 }),
        param("leveling", ParamKind::Choice { of: &["full", "paced"] }),
        param("ring_sets", ParamKind::Sets),
        param(SUSPECT.name(), ParamKind::Number { default: 5, min: 1, max: 9 }),
    ];

    fn with(change: impl FnOnce(&mut ClusterFile)) -> ClusterFile {
        let mut file = ClusterFile::default();
        change(&mut file);
        file
    }

    fn set(name: &str, value: Setting) -> ClusterFile {
        with(|file| _ = file.set.insert(name.to_string(), value))
    }

    #[test]
    fn the_first_that_decides_otherwise_has_the_same_place_in_both_lists() {
        let usual = ClusterFile::default().decides_in_full(&PARAMS);
        let word = |word: &str| Setting::Word(word.to_string());
        for (other, name) in [
            (with(|file| file.protocol = "skeen".to_string()), "protocol"),
            (with(|file| file.shards = 4), "shards"),
            (with(|file| file.replicas = 5), "replicas"),
            (with(|file| file.partition = PartitionOrder::Range), "partition"),
            (with(|file| file.partitions = Some(2)), "partition"),
            (with(|file| file.boundaries = vec!["k".to_string()]), "partition"),
            (with(|file| file.log_mb = Some(3)), "log_mb"),
            (with(|file| file.log_disk_mb = Some(3)), "log_disk_mb"),
            (with(|file| file.log_dir = Some(".".into())), "log_dir"),
            (with(|file| file.maxmemory_mb = Some(30)), "maxmemory_mb"),
            (with(|file| file.hash_seed = Some("0f".repeat(16))), "hash_seed"),
            (set("m", Setting::Number(2)), "set.m"),
            (set("leveling", word("paced")), "set.leveling"),
            (set("ring_sets", word("0+1")), "set.ring_sets"),
        ] {
            let other = other.decides_in_full(&PARAMS);
            let at = marks(&usual).differs(&marks(&other)).map(usize::from);
            assert_eq!(at.map(|at| usual[at].0.as_str()), Some(name));
            assert_eq!(at.map(|at| other[at].0.as_str()), Some(name));
            assert!(same(&usual, &other).unwrap_err().starts_with(&format!("{name} = ")));
        }
    }

    #[test]
    fn what_decides_nothing_and_what_is_only_written_otherwise_is_the_same() {
        let usual = ClusterFile::default().marks(&PARAMS);
        let place = HostPlacement::at(([127, 0, 0, 1], 1).into());
        for same in [
            set("m", Setting::Number(1)),
            set("m", Setting::Word("0_1".to_string())),
            set("leveling", Setting::Word("full".to_string())),
            set("ring_sets", Setting::Word("none".to_string())),
            set(SUSPECT.name(), Setting::Number(7)),
            with(|file| file.partitions = Some(file.shards)),
            with(|file| file.clients = 77),
            with(|file| file.overlay = "depth".to_string()),
            with(|file| file.workers = Some(7)),
            with(|file| file.command_max_mb = Some(64)),
            with(|file| file.record = Some("/x".into())),
            with(|file| file.record_limit = Some(7)),
            with(|file| file.data = Some("/x".into())),
            with(|file| file.node_fronts = Some(false)),
            with(|file| file.password = Some("p".to_string())),
            with(|file| file.ports.redis = Some(7)),
            with(|file| file.id = Some(7)),
            with(|file| file.secret = Some("/x".into())),
            with(|file| file.insecure = true),
            with(|file| _ = file.nodes.insert("n0".to_string(), place)),
            with(|file| file.durable = true),
            with(|file| file.clock_ahead_ms = 7),
        ] {
            assert_eq!(same.marks(&PARAMS), usual, "{same:?}");
        }
    }

    #[test]
    fn what_an_earlier_start_did_not_know_is_no_difference() {
        let list = |all: &[(&str, &str)]| -> Vec<_> {
            all.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
        };
        let there = list(&[("a", "1"), ("gone", "1")]);
        assert_eq!(same(&list(&[("new", "2"), ("a", "1")]), &there), Ok(()));
        let why = same(&list(&[("a", "2")]), &there);
        assert_eq!(why.unwrap_err(), "a = 2, and what is there was written with 1");
    }
}

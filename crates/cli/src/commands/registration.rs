//! The addresses that nodes publish and learn outside the ordered log: in etcd if the cluster's
//! file says so, else from the file itself.

use super::{Failure, entry, secret};
use amcast_coordination::{
    CoordinationRegistry, EntryLifetime, EtcdOptions, EtcdRegistry, FileRegistry, OnRegistryChange,
    RegistrySnapshot, Tls,
};
use amcast_core::Gid;
use amcast_kv::{SLOTS, SlotMap};
use amcast_node::cluster_dir::ClusterDir;
use amcast_node::config::{ClusterFile, HostPlacement, PartitionOrder, node_name, node_rank};
use amcast_node::control::{NodeStatus, status_of};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long a node that starts waits for etcd, before it continues with the addresses that its host
/// knows.
const ETCD_PATIENCE: Duration = Duration::from_secs(3);

/// How often it is looked which groups the node coordinates.
const LEADS_EVERY: Duration = Duration::from_millis(500);

/// How often a node that waits for others says so.
const SAY_EVERY: Duration = Duration::from_secs(10);

/// A node's entries and the others'.
pub(super) struct NodeRegistration {
    registry: Box<dyn CoordinationRegistry>,
    /// Something is new on it.
    changed: Arc<AtomicBool>,
    rank: usize,
    shards: usize,
    replicas: usize,
    /// Whether others write on it, too.
    shared: bool,
    /// Nodes whose lease was seen.
    alive: BTreeSet<usize>,
    look_at: Instant,
}

fn placement_text(place: &HostPlacement) -> String {
    // A place is plain data: there is nothing that JSON cannot have.
    serde_json::to_string(place).expect("a place is text and numbers")
}

fn nodes(known: &RegistrySnapshot) -> BTreeMap<String, HostPlacement> {
    let read = |(name, text): (&str, &str)| match serde_json::from_str(text) {
        Ok(place) => Some((name.to_string(), place)),
        Err(e) => {
            tracing::warn!("etcd: nodes/{name}: {e}");
            None
        }
    };
    known.under("nodes").filter_map(read).collect()
}

/// The settings that must be the same for all nodes, and, where keys are spread by their slots, the
/// first places of the slots: partitions may move later.
fn map(file: &ClusterFile) -> String {
    // An unknown protocol is reported elsewhere.
    let params = entry(&file.protocol).map_or(&[][..], |entry| entry.about().params);
    let mut map = serde_json::json!({
        "shards": file.shards,
        "replicas": file.replicas,
        "decides": file.decides_in_full(params).into_iter().collect::<BTreeMap<_, _>>(),
    });
    if file.partition == PartitionOrder::Hash {
        let partitions = file.partitions.unwrap_or(file.shards);
        let slots = SlotMap::new(partitions);
        let first: Vec<_> = (0..partitions).map(|p| slots.range(Gid(p as u8)).0).collect();
        map["at_first"] = serde_json::json!({ "slots": SLOTS, "first_slot_of_shard": first });
    }
    map.to_string()
}

/// The first thing that decides otherwise in another map than in this one, if both are maps.
fn first_difference(there: &str, here: &str) -> Option<String> {
    let decides = |map: &str| -> Option<BTreeMap<String, String>> {
        let mut map: serde_json::Value = serde_json::from_str(map).ok()?;
        serde_json::from_value(map["decides"].take()).ok()
    };
    let (there, here) = (decides(there)?, decides(here)?);
    let names = there.keys().chain(here.keys());
    names.into_iter().find(|name| there.get(*name) != here.get(*name)).cloned()
}

/// The entry of etcd on a node's disks: how many were replaced, and the id of the last.
fn replaced_by(entry: &str) -> (u32, &str) {
    let (count, word) = entry.split_once(' ').unwrap_or((entry, ""));
    (count.parse().unwrap_or_default(), word)
}

impl NodeRegistration {
    /// Begins to tell and hear. The certificates and the password are read from files.
    ///
    /// # Errors
    /// When one cannot be read, or options do not go together.
    pub(super) fn begin(file: &ClusterFile, rank: usize) -> Result<Self, Failure> {
        let changed = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&changed);
        let on_change: OnRegistryChange = Box::new(move |_| seen.store(true, Ordering::Release));
        let registry: Box<dyn CoordinationRegistry> = match &file.etcd {
            None => {
                let entry = |(name, place)| (format!("nodes/{name}"), placement_text(place));
                Box::new(FileRegistry::new(file.nodes.iter().map(entry).collect(), on_change))
            }
            Some(etcd) => {
                let password = etcd.password_file.as_deref().map(secret).transpose()?;
                let own = etcd.cert.clone().zip(etcd.key.clone());
                let options = EtcdOptions {
                    endpoints: etcd.endpoints.clone(),
                    prefix: format!("{}/{}/", etcd.prefix, file.id.unwrap_or_default()),
                    user: etcd.user.clone().zip(password),
                    tls: etcd.ca.clone().map(|ca| Tls { ca, own }),
                    lease: Duration::from_secs(etcd.lease_s),
                };
                Box::new(EtcdRegistry::begin(options, on_change).map_err(Failure::Misuse)?)
            }
        };
        Ok(Self {
            registry,
            changed,
            rank,
            shards: file.shards,
            replicas: file.replicas,
            shared: file.etcd.is_some(),
            alive: BTreeSet::new(),
            look_at: Instant::now(),
        })
    }

    /// Finds out where all nodes are, and says where this one is, whose directory on this host is `dir`.
    /// If etcd is unreachable, the addresses are those of the file and of `before`, which were known on
    /// this host. A node whose disk is new waits until etcd answers: only etcd knows whether there was
    /// another one, on which the node had promised something.
    ///
    /// # Errors
    /// When etcd says that this is another cluster, or that the node has another disk by now; when
    /// `stop` was set.
    pub(super) fn settle(
        &mut self,
        file: &mut ClusterFile,
        before: Option<&ClusterFile>,
        (dir, stop): (&ClusterDir, &AtomicBool),
    ) -> Result<(), Failure> {
        if !self.shared {
            return Ok(());
        }
        let begun = Instant::now();
        while !self.registry.snapshot().is_current && begun.elapsed() < ETCD_PATIENCE {
            std::thread::sleep(Duration::from_millis(10));
        }
        if self.registry.snapshot().is_current {
            self.agree_on_map(file)?;
        }
        let name = node_name(self.rank);
        let known = before.and_then(|before| before.nodes.get(&name)).map_or(0, |own| own.replaced);
        for (name, place) in before.iter().flat_map(|before| &before.nodes) {
            file.nodes.entry(name.clone()).or_insert_with(|| place.clone());
        }
        self.publish_own(file, known)?;
        self.wait_for_others(file, stop)?;
        let replaced = self.count_replaced(dir, stop)?;
        self.publish_own(file, replaced)?;
        self.publish_alive();
        Ok(())
    }

    /// Says where this node is, and that its disk was replaced so often, at least.
    fn publish_own(&self, file: &mut ClusterFile, replaced: u32) -> Result<(), Failure> {
        let name = node_name(self.rank);
        let Some(own) = file.nodes.get_mut(&name) else {
            return Err(Failure::Misuse(format!(
                "nodes.{name} is missing: the file of its host says where a node is, such as \
                 nodes.{name}.address = \"10.0.0.1:7400\""
            )));
        };
        own.replaced = own.replaced.max(replaced);
        self.registry.publish(
            &format!("nodes/{name}"),
            Some(&placement_text(own)),
            EntryLifetime::Permanent,
        );
        Ok(())
    }

    /// Takes in where the others are, and waits for those that nobody has heard of.
    fn wait_for_others(&self, file: &mut ClusterFile, stop: &AtomicBool) -> Result<(), Failure> {
        let mut said_at: Option<Instant> = None;
        loop {
            file.nodes = self.places(file);
            let missing: Vec<String> =
                file.nodes().filter(|name| !file.nodes.contains_key(name)).collect();
            if missing.is_empty() {
                return Ok(());
            }
            if stop.load(Ordering::Relaxed) {
                return Err(Failure::Failed(format!("it never heard of {}", missing.join(", "))));
            }
            if said_at.is_none_or(|at| at.elapsed() >= SAY_EVERY) {
                let state =
                    if self.registry.snapshot().is_current { "" } else { ", which is away" };
                tracing::warn!(
                    "waits for {} to say in etcd{state} where they are",
                    missing.join(", ")
                );
                said_at = Some(Instant::now());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// All nodes of a cluster are of one cluster.
    fn agree_on_map(&self, file: &ClusterFile) -> Result<(), Failure> {
        let mine = map(file);
        match self.registry.claim("map", None, &mine) {
            Ok(map) if map == mine => Ok(()),
            Ok(map) => {
                let differs = first_difference(&map, &mine);
                let differs =
                    differs.map_or_else(String::new, |name| format!(", which differs in {name}"));
                Err(Failure::Misuse(format!(
                    "etcd has another cluster under id = {}{differs}: {map}, and here it is {mine}",
                    file.id.unwrap_or_default()
                )))
            }
            Err(why) => {
                tracing::warn!("{why}: continues with the addresses known on this host");
                Ok(())
            }
        }
    }

    /// How often this node began on another disk than the one before. etcd counts, and knows a disk
    /// by an id that is written to the disk before it is published: an interrupted start is not
    /// counted twice.
    fn count_replaced(&self, dir: &ClusterDir, stop: &AtomicBool) -> Result<u32, Failure> {
        let (key, name) = (format!("begun/{}", node_name(self.rank)), node_name(self.rank));
        let fresh = dir.is_fresh(self.rank);
        let word = match dir.disk_word(self.rank)? {
            Some(word) => word,
            None if fresh => dir.give_disk_word(self.rank)?,
            // It lost nothing, and began before there was etcd.
            None => {
                return Ok(self
                    .registry
                    .snapshot()
                    .entries
                    .get(&key)
                    .map_or(0, |e| replaced_by(e).0));
            }
        };
        let (mut stands, mut said_at): (Option<String>, Option<Instant>) = (None, None);
        loop {
            let count = stands.as_ref().map_or(0, |stands| replaced_by(stands).0 + 1);
            match self.registry.claim(&key, stands.as_deref(), &format!("{count} {word}")) {
                Ok(now) if replaced_by(&now).1 == word => {
                    if count > 0 {
                        tracing::warn!(
                            "{name} has nothing on disk and has begun before: replaced = {count}"
                        );
                    }
                    return Ok(replaced_by(&now).0);
                }
                Ok(now) if fresh => stands = Some(now),
                Ok(_) => {
                    return Err(Failure::Misuse(format!(
                        "{name} has begun on another disk since it was here, and what is here is \
                         outdated: let it run there, or remove {}, and no file of another node, for {name} to \
                         begin anew",
                        dir.path().join(format!("{name}.*")).display()
                    )));
                }
                // Its promises are on this disk.
                Err(_) if !fresh => return Ok(0),
                Err(_) if stop.load(Ordering::Relaxed) => {
                    return Err(Failure::Failed(format!(
                        "{name} has nothing on disk, and etcd never said whether it had before"
                    )));
                }
                Err(why) => {
                    if said_at.is_none_or(|at| at.elapsed() >= SAY_EVERY) {
                        tracing::warn!(
                            "{name} has nothing on disk, and waits for etcd to say whether it had \
                             before: {why}"
                        );
                        said_at = Some(Instant::now());
                    }
                    std::thread::sleep(Duration::from_millis(50));
                }
            }
        }
    }

    fn publish_alive(&self) {
        let key = format!("alive/{}", node_name(self.rank));
        let os_pid = std::process::id().to_string();
        self.registry.publish(&key, Some(&os_pid), EntryLifetime::Leased);
    }

    /// Where all nodes are, as far as it is known: what others say of themselves goes before what the
    /// file says of them; where this node is, its own file says.
    pub(super) fn places(&self, file: &ClusterFile) -> BTreeMap<String, HostPlacement> {
        let mut all = file.nodes.clone();
        let known = nodes(&self.registry.snapshot());
        let of_another = |name: &str| {
            let rank = node_rank(name).filter(|&rank| rank < self.replicas);
            rank.is_some_and(|rank| !self.shared || rank != self.rank)
        };
        all.extend(known.into_iter().filter(|(name, _)| of_another(name)));
        all
    }

    /// The file says something new: where this node is, if others say where they are; else all of it.
    pub(super) fn publish_places(&self, file: &ClusterFile) {
        for (name, place) in &file.nodes {
            if !self.shared || *name == node_name(self.rank) {
                self.registry.publish(
                    &format!("nodes/{name}"),
                    Some(&placement_text(place)),
                    EntryLifetime::Permanent,
                );
            }
        }
    }

    /// Whether something is new on it since this was asked last.
    pub(super) fn has_changed(&self) -> bool {
        self.changed.swap(false, Ordering::AcqRel)
    }

    /// The nodes whose lease has ended since this was asked last. None of those that ended while etcd
    /// was away: then all end.
    pub(super) fn dead(&mut self) -> Vec<usize> {
        let known = self.registry.snapshot();
        if !self.shared || !known.is_current {
            self.alive.clear();
            return Vec::new();
        }
        let alive: BTreeSet<usize> =
            known.under("alive").filter_map(|(name, _)| node_rank(name)).collect();
        let dead = self.alive.difference(&alive).copied().collect();
        self.alive = alive;
        dead
    }

    /// Says which groups this node coordinates, now and then; its control socket is at `socket`.
    pub(super) fn tell_leads(&mut self, socket: &Path) {
        if !self.shared || Instant::now() < self.look_at {
            return;
        }
        self.look_at = Instant::now() + LEADS_EVERY;
        let Ok(status) = status_of(socket) else { return };
        let known = self.registry.snapshot();
        for group in 0..self.shards {
            let key = format!("leads/g{group}");
            let own = node_name(self.rank);
            if leads(&status, group) {
                self.registry.publish(&key, Some(&own), EntryLifetime::Leased);
            } else if known.entries.get(&key) != Some(&own) {
                // The entry of another process is there, and is not removed.
                self.registry.withdraw(&key);
            }
        }
    }
}

/// Whether the node's replica of a group follows itself.
fn leads(status: &NodeStatus, group: usize) -> bool {
    let replica = status.replicas.get(group);
    replica.is_some_and(|replica| replica.leader.as_ref() == Some(&replica.name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use amcast_coordination::RegistryUnreachable;
    use amcast_node::config::Setting;
    use std::sync::Mutex;
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn the_file_is_the_board_of_a_cluster_without_etcd() {
        let mut file = ClusterFile { replicas: 2, ..ClusterFile::default() };
        let at = |port: u16| HostPlacement::at(([127, 0, 0, 1], port).into());
        file.nodes = [("n0".to_string(), at(1)), ("n1".to_string(), at(2))].into();
        let mut registration =
            NodeRegistration::begin(&file, 0).map_err(|_| "it needs nothing").unwrap();
        let dir = ClusterDir::of_host(&file, Path::new("/nowhere/cluster.toml"));
        let settled = registration.settle(&mut file, None, (&dir, &AtomicBool::new(false)));
        settled.map_err(|_| "nor now").unwrap();
        assert!(!registration.has_changed() && registration.dead().is_empty());
        file.nodes.insert("n1".to_string(), at(3));
        registration.publish_places(&file);
        assert!(registration.has_changed() && !registration.has_changed());
        assert_eq!(registration.places(&ClusterFile::default())["n1"], at(3));
    }

    #[test]
    fn the_map_says_where_a_key_is() {
        let map: serde_json::Value = serde_json::from_str(&map(&ClusterFile::default())).unwrap();
        let first = map["at_first"]["first_slot_of_shard"].as_array().unwrap();
        assert_eq!((first.len(), &first[0]), (3, &0.into()));
        assert_eq!(map["at_first"]["slots"], 16384);
    }

    #[test]
    fn the_map_has_all_that_decides_what_commands_do() {
        let usual = ClusterFile::default();
        let ranges = ClusterFile { partition: PartitionOrder::Range, ..usual.clone() };
        assert!(!map(&ranges).contains("first_slot"), "{}", map(&ranges));
        let set = [("ring_sets".to_string(), Setting::Word("0+1".into()))].into();
        let others = [
            ranges,
            ClusterFile { partitions: Some(2), ..usual.clone() },
            ClusterFile { maxmemory_mb: Some(7), ..usual.clone() },
            ClusterFile { hash_seed: Some("7".repeat(32)), ..usual.clone() },
            ClusterFile { log_mb: Some(7), ..usual.clone() },
            ClusterFile { log_disk_mb: Some(7), ..usual.clone() },
            ClusterFile { log_dir: Some("/x".into()), ..usual.clone() },
            ClusterFile { set, ..usual.clone() },
        ];
        others.iter().for_each(|other| assert_ne!(map(other), map(&usual), "{other:?}"));
        let named = others.iter().map(|other| first_difference(&map(other), &map(&usual)));
        let named: Vec<String> = named.map(|name| name.expect("something differs")).collect();
        let limits = ["maxmemory_mb", "hash_seed", "log_mb", "log_disk_mb", "log_dir"];
        assert_eq!(named[..2], ["partition", "partition"]);
        assert_eq!(
            (&named[2..7], named[7].as_str()),
            (&limits.map(String::from)[..], "set.ring_sets")
        );
        assert_eq!(first_difference("of another program", &map(&usual)), None);
    }

    /// An etcd that does not answer at first.
    #[derive(Default)]
    struct SlowRegistry {
        entries: Mutex<BTreeMap<String, String>>,
        refuses: AtomicUsize,
        /// Whether it writes down what it does not answer.
        secretly: bool,
    }

    /// The registry's handle of it.
    struct SharedRegistry(Arc<SlowRegistry>);

    impl CoordinationRegistry for SharedRegistry {
        fn publish(&self, _: &str, _: Option<&str>, _: EntryLifetime) {}

        fn withdraw(&self, _: &str) {}

        fn snapshot(&self) -> RegistrySnapshot {
            RegistrySnapshot { entries: self.0.entries.lock().unwrap().clone(), is_current: false }
        }

        fn claim(
            &self,
            key: &str,
            before: Option<&str>,
            value: &str,
        ) -> Result<String, RegistryUnreachable> {
            let left = self.0.refuses.load(Ordering::Relaxed);
            self.0.refuses.store(left.saturating_sub(1), Ordering::Relaxed);
            let mut entries = self.0.entries.lock().unwrap();
            if entries.get(key).map(String::as_str) == before && (left == 0 || self.0.secretly) {
                entries.insert(key.to_string(), value.to_string());
            }
            match left {
                0 => Ok(entries[key].clone()),
                _ => Err(RegistryUnreachable("it is away".to_string())),
            }
        }
    }

    /// How often the disk of n1 at `dir` counts as replaced.
    fn begin(etcd: &Arc<SlowRegistry>, dir: &Path) -> Result<u32, Failure> {
        let file = ClusterFile { data: Some(dir.to_path_buf()), ..ClusterFile::default() };
        let dir = ClusterDir::of_host(&file, Path::new("x"));
        let registration = NodeRegistration {
            registry: Box::new(SharedRegistry(Arc::clone(etcd))),
            changed: Arc::default(),
            rank: 1,
            shards: 3,
            replicas: 3,
            shared: true,
            alive: BTreeSet::new(),
            look_at: Instant::now(),
        };
        registration.count_replaced(&dir, &AtomicBool::new(false))
    }

    #[test]
    fn who_has_a_new_disk_waits_until_etcd_says_whether_there_was_another() {
        let base = std::env::temp_dir().join(format!("amcast-disks-{}", std::process::id()));
        let disk = |name: &str| {
            let dir = base.join(name);
            std::fs::create_dir_all(&dir).unwrap();
            dir
        };
        let (first, second, third) = (disk("first"), disk("second"), disk("third"));
        for secretly in [false, true] {
            let etcd = Arc::new(SlowRegistry { secretly, ..SlowRegistry::default() });
            let away = || etcd.refuses.store(3, Ordering::Relaxed);
            away();
            // Interrupted and begun again it is the same disk.
            assert_eq!([begin(&etcd, &first).unwrap(), begin(&etcd, &first).unwrap()], [0, 0]);
            away();
            assert_eq!([begin(&etcd, &second).unwrap(), begin(&etcd, &second).unwrap()], [1, 1]);
            assert_eq!(begin(&etcd, &third).unwrap(), 2);
            // With the count on its disk it continues without etcd; an old disk does not.
            std::fs::write(third.join("n1.life"), "4\n").unwrap();
            away();
            assert_eq!(begin(&etcd, &third).unwrap(), 0);
            etcd.refuses.store(0, Ordering::Relaxed);
            assert_eq!(begin(&etcd, &third).unwrap(), 2);
            std::fs::write(first.join("n1.life"), "4\n").unwrap();
            assert!(
                matches!(begin(&etcd, &first), Err(Failure::Misuse(why)) if why.contains("outdated"))
            );
            for dir in [&first, &third] {
                std::fs::remove_file(dir.join("n1.life")).unwrap();
            }
        }
        std::fs::remove_dir_all(&base).unwrap();
    }
}

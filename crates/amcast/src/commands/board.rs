//! What a node tells the others and hears of them beside the order: in etcd if the cluster's file says
//! so, else what the file itself says.

use super::{Failure, secret};
use amcast_coordination::{Coordination, Embedded, Etcd, Known, Lasts, OnChange, Options, Tls};
use amcast_core::Gid;
use amcast_runtime::config::{ClusterFile, Place, node_name, node_rank};
use amcast_runtime::control::{NodeStatus, status_of};
use amcast_services::kv::{SLOTS, SlotMap};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How long a node that starts waits for etcd, before it goes on with what its host knows.
const ETCD_PATIENCE: Duration = Duration::from_secs(3);

/// How often it is looked which groups the node coordinates.
const LEADS_EVERY: Duration = Duration::from_millis(500);

/// How often a node that waits for others says so.
const SAY_EVERY: Duration = Duration::from_secs(10);

/// What a node tells and hears.
pub(super) struct Board {
    board: Box<dyn Coordination>,
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

fn told(place: &Place) -> String {
    // A place is plain data: there is nothing that JSON cannot have.
    serde_json::to_string(place).expect("a place is text and numbers")
}

fn nodes(known: &Known) -> BTreeMap<String, Place> {
    let read = |(name, text): (&str, &str)| match serde_json::from_str(text) {
        Ok(place) => Some((name.to_string(), place)),
        Err(e) => {
            tracing::warn!("etcd: nodes/{name}: {e}");
            None
        }
    };
    known.under("nodes").filter_map(read).collect()
}

/// What must be the same for all nodes, and for whoever wants to know where a key is.
fn map(file: &ClusterFile) -> String {
    let slots = SlotMap::new(file.shards);
    let first = |shard: usize| slots.range(Gid(shard as u8)).0;
    let first: Vec<_> = (0..file.shards).map(first).collect();
    let map = serde_json::json!({
        "protocol": file.protocol,
        "shards": file.shards,
        "replicas": file.replicas,
        "rings": file.set.get("rings").map_or_else(|| "global".to_string(), ToString::to_string),
        "slots": SLOTS,
        "first_slot_of_shard": first,
    });
    map.to_string()
}

impl Board {
    /// Begins to tell and hear. The certificates and the password are read from files.
    ///
    /// # Errors
    /// When one cannot be read, or options do not go together.
    pub(super) fn begin(file: &ClusterFile, rank: usize) -> Result<Self, Failure> {
        let changed = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&changed);
        let on_change: OnChange = Box::new(move |_| seen.store(true, Ordering::Release));
        let board: Box<dyn Coordination> = match &file.etcd {
            None => {
                let entry = |(name, place)| (format!("nodes/{name}"), told(place));
                Box::new(Embedded::new(file.nodes.iter().map(entry).collect(), on_change))
            }
            Some(etcd) => {
                let password = etcd.password_file.as_deref().map(secret).transpose()?;
                let own = etcd.cert.clone().zip(etcd.key.clone());
                let options = Options {
                    endpoints: etcd.endpoints.clone(),
                    prefix: format!("{}/{}/", etcd.prefix, file.id.unwrap_or_default()),
                    user: etcd.user.clone().zip(password),
                    tls: etcd.ca.clone().map(|ca| Tls { ca, own }),
                    lease: Duration::from_secs(etcd.lease_s),
                };
                Box::new(Etcd::begin(options, on_change).map_err(Failure::Misuse)?)
            }
        };
        Ok(Self {
            board,
            changed,
            rank,
            shards: file.shards,
            replicas: file.replicas,
            shared: file.etcd.is_some(),
            alive: BTreeSet::new(),
            look_at: Instant::now(),
        })
    }

    /// Finds out where all nodes are, and says where this one is. `fresh`: it has nothing on disk.
    /// What etcd does not say, since it is away, is as the file and `before` have it, which is what
    /// was known on this host.
    ///
    /// # Errors
    /// When etcd says that this is another cluster, or it was told to stop.
    pub(super) fn settle(
        &mut self,
        file: &mut ClusterFile,
        before: Option<&ClusterFile>,
        (fresh, stop): (bool, &AtomicBool),
    ) -> Result<(), Failure> {
        if !self.shared {
            return Ok(());
        }
        let begun = Instant::now();
        while !self.board.known().is_current && begun.elapsed() < ETCD_PATIENCE {
            std::thread::sleep(Duration::from_millis(10));
        }
        let is_there = self.board.known().is_current;
        if is_there {
            self.agree_on_map(file)?;
        }
        let name = node_name(self.rank);
        for (name, place) in before.iter().flat_map(|before| &before.nodes) {
            file.nodes.entry(name.clone()).or_insert_with(|| place.clone());
        }
        let replaced = if is_there { self.count_replaced(fresh) } else { 0 };
        let Some(own) = file.nodes.get_mut(&name) else {
            return Err(Failure::Misuse(format!(
                "nodes.{name} is missing: the file of its host says where a node is, such as \
                 nodes.{name}.address = \"10.0.0.1:7400\""
            )));
        };
        own.replaced = own.replaced.max(replaced);
        let own = own.clone();
        self.board.say(&format!("nodes/{name}"), Some(&told(&own)), Lasts::ForEver);
        self.say_alive();
        self.wait_for_others(file, stop)
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
                let state = if self.board.known().is_current { "" } else { ", which is away" };
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
        match self.board.claim("map", None, &mine) {
            Ok(map) if map == mine => Ok(()),
            Ok(map) => Err(Failure::Misuse(format!(
                "etcd has another cluster under id = {}: {map}, and here it is {mine}",
                file.id.unwrap_or_default()
            ))),
            Err(why) => {
                tracing::warn!("{why}: goes on with what is known on this host");
                Ok(())
            }
        }
    }

    /// How often this node began with nothing on disk after it had something. etcd counts.
    fn count_replaced(&self, fresh: bool) -> u32 {
        let key = format!("begun/{}", node_name(self.rank));
        // Whose word stands is told by more than the number.
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mine = |count: u32| format!("{count} {}.{}", std::process::id(), since.as_nanos());
        let count_of = |word: &str| -> u32 {
            word.split_once(' ').and_then(|(count, _)| count.parse().ok()).unwrap_or_default()
        };
        let stands = match self.board.claim(&key, None, &mine(0)) {
            Ok(stands) if fresh && stands != mine(0) => stands,
            // It is the first time, or it has what it had.
            Ok(stands) => return count_of(&stands),
            Err(_) => return 0,
        };
        let next = mine(count_of(&stands) + 1);
        match self.board.claim(&key, Some(&stands), &next) {
            Ok(now) => {
                let (name, count) = (node_name(self.rank), count_of(&now));
                tracing::warn!(
                    "{name} has nothing on disk and has begun before: replaced = {count}"
                );
                count
            }
            Err(_) => count_of(&next),
        }
    }

    fn say_alive(&self) {
        let key = format!("alive/{}", node_name(self.rank));
        let os_pid = std::process::id().to_string();
        self.board.say(&key, Some(&os_pid), Lasts::AsLongAsItsWriter);
    }

    /// Where all nodes are, as far as it is known: what others say of themselves goes before what the
    /// file says of them; where this node is, its own file says.
    pub(super) fn places(&self, file: &ClusterFile) -> BTreeMap<String, Place> {
        let mut all = file.nodes.clone();
        let known = nodes(&self.board.known());
        let of_another = |name: &str| {
            let rank = node_rank(name).filter(|&rank| rank < self.replicas);
            rank.is_some_and(|rank| !self.shared || rank != self.rank)
        };
        all.extend(known.into_iter().filter(|(name, _)| of_another(name)));
        all
    }

    /// The file says something new: where this node is, if others say where they are; else all of it.
    pub(super) fn say_places(&self, file: &ClusterFile) {
        for (name, place) in &file.nodes {
            if !self.shared || *name == node_name(self.rank) {
                self.board.say(&format!("nodes/{name}"), Some(&told(place)), Lasts::ForEver);
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
        let known = self.board.known();
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
        let known = self.board.known();
        for group in 0..self.shards {
            let key = format!("leads/g{group}");
            let own = node_name(self.rank);
            if leads(&status, group) {
                self.board.say(&key, Some(&own), Lasts::AsLongAsItsWriter);
            } else if known.entries.get(&key) != Some(&own) {
                // Another one's word stands there, and is not taken away.
                self.board.unsay(&key);
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

    #[test]
    fn the_file_is_the_board_of_a_cluster_without_etcd() {
        let mut file = ClusterFile { replicas: 2, ..ClusterFile::default() };
        let at = |port: u16| Place::at(([127, 0, 0, 1], port).into());
        file.nodes = [("n0".to_string(), at(1)), ("n1".to_string(), at(2))].into();
        let mut board = Board::begin(&file, 0).map_err(|_| "it needs nothing").unwrap();
        board
            .settle(&mut file, None, (true, &AtomicBool::new(false)))
            .map_err(|_| "nor now")
            .unwrap();
        assert!(!board.has_changed() && board.dead().is_empty());
        file.nodes.insert("n1".to_string(), at(3));
        board.say_places(&file);
        assert!(board.has_changed() && !board.has_changed());
        assert_eq!(board.places(&ClusterFile::default())["n1"], at(3));
    }

    #[test]
    fn the_map_says_where_a_key_is() {
        let map: serde_json::Value = serde_json::from_str(&map(&ClusterFile::default())).unwrap();
        let first = map["first_slot_of_shard"].as_array().unwrap();
        assert_eq!((first.len(), &first[0], &map["slots"]), (3, &0.into(), &16384.into()));
    }
}

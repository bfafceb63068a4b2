//! The cluster file: what `amcast up` writes and every node reads.
//!
//! It is the same file that a person may hand to `amcast up --config`. Unknown keys are refused.

use crate::system::refuses_text;
use amcast_core::config::{Param, ParamKind};
use amcast_core::limits::{COMMAND_BYTES_MAX, GROUPS_MAX, MEMORY_REPLICAS_MAX};
use amcast_core::parameters::{ParamValue as _, SUSPECT};
use amcast_core::{Config, ConfigError, Entry, MediumKind, RawConfig, Senders, Span};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

mod decides;
mod etcd;
mod hosts;
pub mod names;
mod paths;
mod placement;
mod reading;
pub mod settings;

pub use amcast_protocols::catalog::USUAL_PROTOCOL;
pub(crate) use decides::{marks, same};
pub use etcd::EtcdSettings;
pub use placement::HostPlacement;

/// How long a process may be silent on one machine, unless a file says otherwise.
const PATIENCE: Span = Span::millis(250);

/// The default memory of all keys in each node of a new cluster, in MB of 10^6 bytes: it depends on
/// no machine, since all nodes need the same, and leaves three nodes room on one with 16 GB while
/// each of them holds entries that change during a checkpoint twice.
pub const MAXMEMORY_MB: u64 = 2000;

/// How many MB of 10^6 bytes of its state a node gives to another one, or writes to its disk, in a second, at first, where
/// the cluster's file does not say it: a part of what a disk or a link of today takes, and a gigabyte in 20 s.
pub const STATE_MB_S: u64 = 50;

/// Bits that count how often a node was replaced.
const REPLACED_BITS: u32 = 8;

/// A cluster as written in a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClusterFile {
    /// The protocol's name in the catalog.
    pub protocol: String,
    /// How many groups: shards of the service.
    pub shards: usize,
    /// Replicas of each shard, each on a node of its own.
    pub replicas: usize,
    /// Places for client processes: service gateways, benchmarks, tools.
    pub clients: usize,
    /// The tree over the shards: `base`, `breadth`, `depth`, or parents such as `-1,0,0`.
    pub overlay: String,
    /// Threads of each node that execute commands, besides the one that orders them; 0 for none.
    /// None: as many as the node's share of this machine's cores has to spare.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workers: Option<usize>,
    /// The initial memory of all keys in each node, in MB of 10^6 bytes, in equal parts for its shards; the
    /// command AMCAST.MAXMEMORY sets another bound later. None: any amount. `amcast up` and `amcast config
    /// init` write [`MAXMEMORY_MB`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub maxmemory_mb: Option<u64>,
    /// How large a Redis command or a transaction may be that this process takes from clients, in MB of 2^20 bytes, 1
    /// to 64. A command that is larger than a message is ordered in parts. None: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command_max_mb: Option<usize>,
    /// The seed of the hashes of keys: 32 hexadecimal digits that nobody guesses, the same on every
    /// host and for ever. None: the seed of earlier clusters, with which keys that collide can be
    /// computed. `amcast up` and `amcast config init` draw one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hash_seed: Option<String>,
    /// The bound on the logs of a node, in MB of 10^6 bytes. None: 200.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_mb: Option<usize>,
    /// Where each node keeps the values of its logs in files, if anywhere, from the cluster's directory on
    /// if it is not absolute; the recent ones are in memory, too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_dir: Option<PathBuf>,
    /// The bound on the logs of a node then, in MB of 10^6 bytes. None: 10,000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_disk_mb: Option<usize>,
    /// Seconds from a change of a shard at most until its replicas compare digests of their states; 0: never. None: 5.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest_secs: Option<u64>,
    /// How much each node's disk keeps free besides room for a state, in MB of 10^6 bytes: where less is free at so many
    /// nodes that the others are no majority, gateways refuse what may take more. 0 for none. None: 256, and at most an
    /// eighth of the disk and, with the room for states, half of the most that it had free.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_reserve_mb: Option<u64>,
    /// How many MB of 10^6 bytes of its state a node gives to another one, or writes to its disk, in a second, at first;
    /// 0 for any number. None: [`STATE_MB_S`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state_mb_s: Option<u64>,
    /// The order of keys that partitions are parts of.
    #[serde(skip_serializing_if = "is_usual")]
    pub partition: PartitionOrder,
    /// How many partitions the keys have at first, each in a shard of its own; the other shards are spare.
    /// None: as many as shards.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partitions: Option<usize>,
    /// The first keys of all partitions but the first, at first, where partitions are ranges of keys.
    /// None: even, for keys of random bytes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub boundaries: Vec<String>,
    /// Where every process writes its history, if anywhere; seen from the directory of this file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub record: Option<PathBuf>,
    /// How many MB of 2^20 bytes a process may record of each kind in all its lives. None: 256.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub record_limit: Option<u64>,
    /// The directory in which the nodes of a host keep what is theirs, seen from the directory of this file. None: the
    /// one that the file is in, or one that `amcast up` chooses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<PathBuf>,
    /// Whether each node that `amcast up` starts serves clients as well. None: it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_fronts: Option<bool>,
    /// The password that clients of the Redis gateways must give with `AUTH`, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password: Option<String>,
    /// Where the gateways listen.
    pub ports: GatewayPorts,
    /// Settings of the protocol's parameters.
    pub set: BTreeMap<String, Setting>,
    /// The number of the cluster, for protocols that send messages: processes of another are not let
    /// in. The same in the file of every host; `amcast up` chooses one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<u64>,
    /// The file with the nodes' shared secret, for protocols that send messages: 32 bytes of text
    /// or more, the same on every host; seen from the directory of this file. A peer that does not
    /// prove to know it is admitted neither as a node nor for state. `amcast up` makes one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<PathBuf>,
    /// Whether nodes may listen beyond this machine although strangers would be served: where
    /// `secret` or `password` is not given.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub insecure: bool,
    /// Where each node is, by its name, for protocols that send messages; `amcast up` chooses. A
    /// node's name is which replica of every shard it hosts: n0 to n8.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub nodes: BTreeMap<String, HostPlacement>,
    /// Where etcd is, if the nodes are to find each other there: then a host's file need not say more
    /// than where its own node is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub etcd: Option<EtcdSettings>,
    /// The provider of libfabric by which nodes on several hosts carry the memory of protocols over memory, for programs with
    /// the feature `rdma`; the same on every host. None: their connections.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rdma_provider: Option<String>,
    /// Whether the cluster outlives its processes: its nodes keep durable data in its directory,
    /// and the next run there continues from them. `amcast up` chooses.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub durable: bool,
    /// How far the time by which the age of commands is judged is ahead of the host's monotonic
    /// clock, in milliseconds: where state outlives its machine, that time continues. `amcast up`
    /// chooses; where nodes are started by hand it follows the wall clock of each.
    #[serde(skip_serializing_if = "is_zero")]
    pub clock_ahead_ms: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the writer of files passes a reference")]
const fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// The order of keys that partitions are contiguous parts of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PartitionOrder {
    /// Of their slots, as in Redis Cluster: even for any keys.
    #[default]
    Hash,
    /// Of themselves: keys that follow each other are together.
    Range,
}

impl fmt::Display for PartitionOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Hash => "hash",
            Self::Range => "range",
        })
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the writer of files passes a reference")]
fn is_usual(partition: &PartitionOrder) -> bool {
    *partition == PartitionOrder::default()
}

/// Ports of the gateways. None: the usual one if it is free, else any; 0: any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GatewayPorts {
    /// The Redis gateway.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redis: Option<u16>,
    /// The log service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log: Option<u16>,
    /// The status page and metrics.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http: Option<u16>,
}

impl GatewayPorts {
    /// Those that are given, for gateways that take them later.
    fn given(&self) -> Vec<u16> {
        [self.redis, self.log, self.http].into_iter().flatten().filter(|port| *port != 0).collect()
    }

    /// Each gateway has a port of its own, or any.
    fn check(&self) -> Result<(), String> {
        let all = [("redis", self.redis), ("log", self.log), ("http", self.http)];
        for (i, (name, port)) in all.iter().enumerate() {
            let same =
                |(_, other): &&(_, Option<u16>)| other.is_some_and(|p| p != 0) && other == port;
            if let Some((other, _)) = all[..i].iter().find(same) {
                let port = port.unwrap_or_default();
                return Err(format!(
                    "ports.{other} and ports.{name} are both {port}: give each gateway its own, or 0 for \
                     any"
                ));
            }
        }
        Ok(())
    }
}

/// The value of a parameter as written: a number or a word.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Setting {
    /// A whole number.
    Number(u64),
    /// A word, or a number in quotes.
    Word(String),
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(n) => n.fmt(f),
            Self::Word(w) => w.fmt(f),
        }
    }
}

impl Default for ClusterFile {
    fn default() -> Self {
        Self {
            protocol: USUAL_PROTOCOL.to_string(),
            shards: 3,
            replicas: 3,
            clients: 8,
            overlay: "breadth".to_string(),
            workers: None,
            maxmemory_mb: None,
            digest_secs: None,
            rdma_provider: None,
            disk_reserve_mb: None,
            state_mb_s: None,
            command_max_mb: None,
            hash_seed: None,
            log_mb: None,
            log_dir: None,
            log_disk_mb: None,
            partition: PartitionOrder::Hash,
            partitions: None,
            boundaries: Vec::new(),
            record: None,
            record_limit: None,
            data: None,
            node_fronts: None,
            password: None,
            ports: GatewayPorts::default(),
            set: BTreeMap::new(),
            id: None,
            secret: None,
            insecure: false,
            nodes: BTreeMap::new(),
            etcd: None,
            durable: false,
            clock_ahead_ms: 0,
        }
    }
}

/// Why a cluster file was refused.
#[derive(Debug)]
pub enum FileError {
    /// It could not be read or written.
    Io(PathBuf, std::io::Error),
    /// It is not TOML, or a key is unknown or of the wrong type; the text says where.
    Syntax(PathBuf, String),
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(path, e) => f.write_str(&refuses_text(path, e)),
            Self::Syntax(path, e) => write!(f, "{}: {}", path.display(), e.trim_end()),
        }
    }
}

impl std::error::Error for FileError {}

impl ClusterFile {
    /// How many bytes of its state a node gives to another one, or writes to its disk, in a second, at first; none for
    /// any number.
    pub fn state_per_second(&self) -> Option<u64> {
        let mb = self.state_mb_s.unwrap_or(STATE_MB_S);
        (mb > 0).then(|| mb.saturating_mul(1_000_000))
    }

    /// Checks that nodes which listen beyond this machine believe and serve no strangers, unless the file says that
    /// they may.
    ///
    /// # Errors
    /// When they would; the sentence says what to do.
    pub fn check_strangers(&self) -> Result<(), String> {
        if self.insecure {
            return Ok(());
        }
        let beyond = |at: SocketAddr| !at.ip().is_loopback();
        let wrong = |node: &str, at: SocketAddr, key: &str, who: &str, how: &str| {
            Err(format!(
                "{key} is missing: {node} listens at {at}, where strangers {who}: {how}, or write insecure = \
                 true if nobody else reaches that network"
            ))
        };
        for (node, place) in &self.nodes {
            let peers = [place.listen.or(Some(place.address)), place.control];
            if self.secret.is_none()
                && let Some(at) = peers.into_iter().flatten().find(|at| beyond(*at))
            {
                let how = "`amcast config init` makes one for all hosts";
                return wrong(node, at, "secret", "could speak for a node and take all data", how);
            }
            let gateways = [place.redis, place.log];
            if self.password.is_none()
                && let Some(at) = gateways.into_iter().flatten().find(|at| beyond(*at))
            {
                let how = "write password = \"..\"";
                return wrong(node, at, "password", "could read and change all data", how);
            }
        }
        Ok(())
    }

    /// Writes the file to `path`, for its owner alone: it may hold a password.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), FileError> {
        let text = toml::to_string(self)
            .map_err(|e| FileError::Syntax(path.to_path_buf(), e.to_string()))?;
        let mut options = std::fs::OpenOptions::new();
        let file = options.write(true).create(true).truncate(true).mode(0o600).open(path);
        // It is on the disk before it is renamed: a machine that fails leaves this one, or the one before.
        let written = file.and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.sync_all()
        });
        written.map_err(|e| FileError::Io(path.to_path_buf(), e))
    }

    /// Checks the file against the parameters of its protocol.
    ///
    /// # Errors
    /// The first value that is wrong.
    pub fn check(&self, entry: &dyn Entry) -> Result<Config, ConfigError> {
        let raw = RawConfig {
            groups: self.shards,
            replicas: self.replicas,
            // Where replicas multicast, gateways are no processes of the protocol.
            clients: match entry.capabilities().senders {
                Senders::Replicas => 0,
                Senders::Clients => self.clients,
            },
            overlay: self.overlay.clone(),
            set: self.set.iter().map(|(name, value)| (name.clone(), value.to_string())).collect(),
        };
        self.check_names(entry)?;
        if !(1..=GROUPS_MAX).contains(&self.shards) {
            let why = format!("shards = {}: give 1 to {GROUPS_MAX}", self.shards);
            return Err(ConfigError::Relation(why));
        }
        if self.replicas == 0 && entry.about().medium == MediumKind::Memory {
            let why = format!("replicas = 0: over shared memory give 1 to {MEMORY_REPLICAS_MAX}");
            return Err(ConfigError::Relation(why));
        }
        self.check_client_places(entry)?;
        self.check_rdma_provider()?;
        let config = raw.check(entry.about().params)?;
        // Building one process of each role finds relations between parameters that do not hold.
        for pid in [config.cluster().pids().next(), config.cluster().pids().last()] {
            entry.build(pid.expect("a cluster has a process"), &config)?;
        }
        if let Some(etcd) = &self.etcd {
            etcd.check().map_err(ConfigError::Relation)?;
            let missing = |key: &str, why: &str| {
                Err(ConfigError::Relation(format!("{key} is missing: with etcd, {why}")))
            };
            if self.id.is_none() {
                return missing(
                    "id",
                    "the cluster's keys in etcd contain its number, such as id = 4711",
                );
            }
            if self.data.is_none() {
                return missing("data", "a node keeps in a directory what it learned there");
            }
        } else if !self.nodes.is_empty() {
            self.places().map_err(ConfigError::Relation)?;
        }
        self.ports.check().map_err(ConfigError::Relation)?;
        let digits =
            |seed: &String| seed.len() == 32 && seed.bytes().all(|b| b.is_ascii_hexdigit());
        if self.command_max_mb.is_some_and(|mb| !(1..=COMMAND_BYTES_MAX >> 20).contains(&mb)) {
            return Err(ConfigError::Relation("command_max_mb: give 1 to 64".to_string()));
        }
        if !self.hash_seed.as_ref().is_none_or(digits) {
            let why =
                "hash_seed: give 32 hexadecimal digits, such as `openssl rand -hex 16` prints";
            return Err(ConfigError::Relation(why.to_string()));
        }
        Ok(config)
    }

    /// Checks that a cluster that is new may have logs. One that exists keeps the bounds that it was started with: this does
    /// not apply to it.
    ///
    /// # Errors
    /// When a bound leaves logs no room, so that every append would be refused for good.
    pub fn check_log_room(&self) -> Result<(), ConfigError> {
        for (key, mb) in [("log_mb", self.log_mb), ("log_disk_mb", self.log_disk_mb)] {
            if mb == Some(0) {
                let why =
                    format!("{key} = 0: every append would be refused for good; give 1 or more");
                return Err(ConfigError::Relation(why));
            }
        }
        Ok(())
    }

    /// Checks that the protocol has the parameters that are set. Comes before values are compared with those of an
    /// earlier run: there, one that no protocol has would look like one that was changed.
    ///
    /// # Errors
    /// When it has no parameter of a name; the error names the nearest one, if there is one.
    pub fn check_names(&self, entry: &dyn Entry) -> Result<(), ConfigError> {
        let params = || entry.about().params.iter().map(|param| param.name);
        let Some(name) = self.set.keys().find(|name| params().all(|known| known != **name)) else {
            return Ok(());
        };
        Err(match names::nearest(name, params()) {
            Some(known) => ConfigError::Relation(format!(
                "no parameter is named {name:?}: did you mean {known}? There are: {}",
                params().collect::<Vec<_>>().join(", ")
            )),
            None => ConfigError::Unknown(name.clone(), params().collect()),
        })
    }

    /// Chooses what a cluster on this machine needs and the file leaves open, for a protocol that
    /// sends messages: the cluster's number, an address of this machine for every node, and patience
    /// with those that are silent. Nodes of one machine wait for each other's cores, one that is
    /// excluded needs a new state, and a crash is known from its connections at once. Where the
    /// protocol has durable state, the cluster is durable if it `has_directory` for that.
    ///
    /// # Errors
    /// When there are no ports to be had.
    pub fn settle(&mut self, entry: &dyn Entry, has_directory: bool) -> io::Result<()> {
        self.durable = has_directory && entry.capabilities().durability.has_log();
        if self.durable {
            self.clock_ahead_ms = self.clock_ahead_ms.max(crate::clock::ahead_ms());
        }
        if entry.about().medium != MediumKind::Messages {
            return Ok(());
        }
        if self.id.is_none() {
            // TOML's numbers have a sign.
            self.id = Some(crate::ports::unique() >> 1);
        }
        if SUSPECT.is_in(entry.about().params) {
            let patience = || Setting::Number(PATIENCE.number());
            self.set.entry(SUSPECT.name().to_string()).or_insert_with(patience);
        }
        if self.nodes.is_empty() {
            let ports = crate::ports::free(self.replicas, &self.ports.given())?;
            let at = |port| HostPlacement::at(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
            self.nodes = self.nodes().zip(ports.into_iter().map(at)).collect();
        }
        Ok(())
    }

    /// How far the time by which the age of commands is judged is ahead of the host's monotonic
    /// clock, in milliseconds: as the file says, or else by the wall clock. Where all nodes are on
    /// one host and nothing outlives it (not `keeps`) its monotonic clock is enough, which nobody
    /// sets.
    pub fn clock_ahead(&self, keeps: bool) -> u64 {
        let on_this_host = self.etcd.is_none()
            && self.nodes.values().all(|place| place.address.ip().is_loopback());
        match self.clock_ahead_ms {
            0 if !keeps && on_this_host => 0,
            0 => crate::clock::ahead_ms(),
            ahead => ahead,
        }
    }

    /// Forgets what an earlier run of the cluster chose for itself and the next one chooses anew: the
    /// ports of this machine that its nodes had, and where it recorded its history.
    pub fn forget_run(&mut self) {
        self.record = None;
        if self.nodes.values().all(|place| place.address.ip().is_loopback()) {
            self.nodes.clear();
        }
    }

    /// Where each node is, in order of rank.
    ///
    /// # Errors
    /// When a node is missing, or two are at one address; the sentence says which.
    pub fn places(&self) -> Result<Vec<HostPlacement>, String> {
        if let Some(name) = self.nodes.keys().find(|name| !self.nodes().any(|n| n == **name)) {
            let (n, last) = (self.replicas, node_name(self.replicas - 1));
            return Err(format!("nodes.{name}: with {n} replicas the nodes are n0 to {last}"));
        }
        let place = |name: String| match self.nodes.get(&name) {
            Some(place) => Ok(place.clone()),
            None => Err(format!(
                "nodes.{name} is missing: a cluster on several hosts, or of a protocol that sends \
                 messages, needs the address of every node, such as nodes.{name}.address = \"10.0.0.1:7400\""
            )),
        };
        let places: Vec<HostPlacement> = self.nodes().map(place).collect::<Result<_, _>>()?;
        if let Some((rank, place)) =
            places.iter().enumerate().find(|(_, place)| place.replaced >= 1 << REPLACED_BITS)
        {
            let (name, n) = (node_name(rank), place.replaced);
            return Err(format!(
                "nodes.{name}.replaced = {n}: at most {}",
                (1 << REPLACED_BITS) - 1
            ));
        }
        let mut taken = BTreeMap::new();
        for (rank, place) in places.iter().enumerate() {
            for (what, at) in place.addresses() {
                if at.port() == 0 {
                    // Gateways may take any; the others of the cluster must know where a node is.
                    if HostPlacement::is_gateway(what) {
                        continue;
                    }
                    let name = node_name(rank);
                    return Err(format!("nodes.{name}.{what} = \"{at}\": give a port"));
                }
                let Some((other, before)) = taken.insert(at, (rank, what)) else { continue };
                let (one, two) = (node_name(other), node_name(rank));
                return Err(if other == rank {
                    format!("{at} is both {before} and {what} of {one}")
                } else {
                    format!("{at} is an address of {one} and of {two}")
                });
            }
        }
        self.check_hosts(&places)?;
        Ok(places)
    }

    /// The names of the nodes: node `i` hosts replica `i` of every shard.
    pub fn nodes(&self) -> impl Iterator<Item = String> + use<> {
        (0..self.replicas).map(node_name)
    }
}

/// Whether messages to all groups are ordered.
pub fn orders_all(entry: &dyn Entry, config: &Config) -> bool {
    entry.together(config).contains(&config.cluster().all_groups())
}

/// The name of the node that hosts replica `rank` of every shard.
pub fn node_name(rank: usize) -> String {
    format!("n{rank}")
}

/// The rank of the node named `name` (`n0`), if it is such a name.
pub fn node_rank(name: &str) -> Option<usize> {
    name.strip_prefix('n')?.parse().ok()
}

/// Explains a parameter in a few lines, as `amcast config --explain` prints it.
pub fn explain(param: &Param) -> String {
    let values = match param.kind {
        ParamKind::Number { default, min, max } => format!("{min} to {max}, {default} if not set"),
        ParamKind::Choice { of } => format!("one of {}; the first if not set", of.join(", ")),
        ParamKind::Sets => "sets of groups such as \"0+1,1+2\"; none if not set".to_string(),
    };
    let Param { name, about, cost, source, .. } = param;
    format!("{name}: {values}\n    {about}\n    Cost: {cost}\n    From: {source}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_reads_back_as_it_was_written() {
        let mut file = ClusterFile { shards: 5, ..ClusterFile::default() };
        file.ports.redis = Some(0);
        file.set.insert("heartbeat_us".to_string(), Setting::Number(500));
        file.set.insert("mode".to_string(), Setting::Word("fast".to_string()));
        file.id = Some(u64::MAX >> 1);
        file.nodes.insert("n0".to_string(), HostPlacement::at("127.0.0.1:7400".parse().unwrap()));
        let text = toml::to_string(&file).unwrap();
        assert_eq!(toml::from_str::<ClusterFile>(&text).unwrap(), file);
    }

    #[test]
    fn unknown_keys_are_refused_by_name() {
        let wrong = toml::from_str::<ClusterFile>("shards = 3\nshard = 4\n").unwrap_err();
        assert!(wrong.to_string().contains("unknown field `shard`"), "{wrong}");
        let wrong = toml::from_str::<ClusterFile>("[ports]\nsmtp = 25\n").unwrap_err();
        assert!(wrong.to_string().contains("unknown field `smtp`"), "{wrong}");
    }

    #[test]
    fn logs_without_room_are_refused_by_name() {
        let with = |log_mb, log_disk_mb| {
            let file = ClusterFile { log_mb, log_disk_mb, ..ClusterFile::default() };
            file.check_log_room().err().map(|e| e.to_string())
        };
        assert_eq!(with(None, None), None);
        assert_eq!(with(Some(1), Some(1)), None);
        assert!(with(Some(0), None).is_some_and(|why| why.contains("log_mb = 0")));
        assert!(with(Some(1), Some(0)).is_some_and(|why| why.contains("log_disk_mb = 0")));
    }

    #[test]
    fn two_gateways_at_one_port_are_refused_by_name() {
        let ports = |redis, log, http| GatewayPorts { redis, log, http };
        assert_eq!(ports(None, Some(0), Some(0)).check(), Ok(()));
        assert_eq!(ports(Some(7), Some(8), None).check(), Ok(()));
        let why = ports(Some(7), Some(8), Some(7)).check().unwrap_err();
        assert!(why.starts_with("ports.redis and ports.http are both 7:"), "{why}");
    }

    #[test]
    fn every_node_has_an_address_of_its_own_or_the_first_that_has_not_is_named() {
        let mut file = ClusterFile { replicas: 2, ..ClusterFile::default() };
        let at = |port: u16| HostPlacement::at(SocketAddr::from(([10, 0, 0, 1], port)));
        file.nodes.insert("n0".to_string(), at(7400));
        assert!(file.places().unwrap_err().starts_with("nodes.n1 is missing"));
        file.nodes.insert("n1".to_string(), at(7400));
        assert_eq!(file.places().unwrap_err(), "10.0.0.1:7400 is an address of n0 and of n1");
        file.nodes.insert("n1".to_string(), at(7401));
        assert_eq!(file.places().unwrap(), [at(7400), at(7401)]);
        file.nodes.insert("n2".to_string(), at(7402));
        assert_eq!(file.places().unwrap_err(), "nodes.n2: with 2 replicas the nodes are n0 to n1");
    }

    #[test]
    fn nodes_of_several_hosts_say_what_the_others_need() {
        let mut file = ClusterFile { replicas: 2, ..ClusterFile::default() };
        let at = |host: u8, port: u16| SocketAddr::from(([10, 0, 0, host], port));
        for (name, host) in [("n0", 1), ("n1", 2)] {
            file.nodes.insert(name.to_string(), HostPlacement::at(at(host, 7400)));
        }
        assert!(file.places().unwrap_err().starts_with("id is missing: the nodes are on several"));
        file.id = Some(7);
        assert!(file.places().unwrap_err().starts_with("nodes.n0.control is missing:"));
        for (name, host) in [("n0", 1), ("n1", 2)] {
            file.nodes.get_mut(name).unwrap().control = Some(at(host, 7401));
        }
        assert_eq!(file.places().unwrap().len(), 2);
        let n0 = file.nodes.get_mut("n0").unwrap();
        n0.redis = Some(at(1, 7401));
        assert_eq!(file.places().unwrap_err(), "10.0.0.1:7401 is both control and redis of n0");
        file.nodes.get_mut("n0").unwrap().redis = Some(at(1, 0));
        file.nodes.get_mut("n1").unwrap().replaced = 5000;
        assert_eq!(file.places().unwrap_err(), "nodes.n1.replaced = 5000: at most 255");
        let n1 = file.nodes.get_mut("n1").unwrap();
        (n1.replaced, n1.address) = (0, at(2, 0));
        assert!(file.places().unwrap_err().ends_with("\"10.0.0.2:0\": give a port"));
    }

    #[test]
    fn no_replicas_are_refused_with_the_bound_of_the_protocol() {
        let file = ClusterFile { replicas: 0, ..ClusterFile::default() };
        let why = |protocol| {
            let entry = amcast_protocols::catalog::find(protocol).unwrap();
            file.check(entry).unwrap_err().to_string()
        };
        assert!(why("tram").ends_with("give 1 to 9"), "{}", why("tram"));
        assert!(why("multi-ring").ends_with("give 1 to 32"), "{}", why("multi-ring"));
    }

    #[test]
    fn a_number_of_shards_that_no_cluster_has_is_refused_by_the_name_of_its_key() {
        for shards in [0, 65] {
            let file = ClusterFile { shards, ..ClusterFile::default() };
            let entry = amcast_protocols::catalog::find("multi-ring").unwrap();
            let why = file.check(entry).unwrap_err().to_string();
            assert!(why.ends_with(&format!("shards = {shards}: give 1 to 64")), "{why}");
        }
    }

    #[test]
    fn node_names_read_back() {
        assert_eq!(node_rank(&node_name(7)), Some(7));
        assert_eq!((node_rank("x7"), node_rank("n")), (None, None));
    }

    #[test]
    fn strangers_are_let_in_only_where_the_file_says_so() {
        let _limit = amcast_test_policy::time_limit();
        let mut file = ClusterFile::default();
        let mut place = HostPlacement::at("10.0.0.1:7400".parse().unwrap());
        place.redis = Some("10.0.0.1:6379".parse().unwrap());
        file.nodes.insert("n0".to_string(), place.clone());
        let refused = |file: &ClusterFile| file.check_strangers().unwrap_err();
        assert!(refused(&file).starts_with("secret is missing: n0 listens at 10.0.0.1:7400"));
        file.secret = Some("secret".into());
        assert!(refused(&file).starts_with("password is missing: n0 listens at 10.0.0.1:6379"));
        file.password = Some("p".to_string());
        assert_eq!(file.check_strangers(), Ok(()));
        let open = ClusterFile { secret: None, password: None, ..file.clone() };
        assert_eq!(ClusterFile { insecure: true, ..open.clone() }.check_strangers(), Ok(()));
        // The address is of this machine, and it listens at all.
        let mut near = open;
        let place = HostPlacement::at("127.0.0.1:7400".parse().unwrap());
        near.nodes.insert("n0".to_string(), place.clone());
        assert_eq!(near.check_strangers(), Ok(()));
        let listen = Some("0.0.0.0:7400".parse().unwrap());
        near.nodes.insert("n0".to_string(), HostPlacement { listen, ..place });
        assert!(refused(&near).starts_with("secret is missing: n0 listens at 0.0.0.0:7400"));
    }

    #[test]
    fn a_secret_is_found_from_the_file_on() {
        let _limit = amcast_test_policy::time_limit();
        let dir = std::env::temp_dir().join(format!("amcast-config-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let path = dir.join("cluster.toml");
        std::fs::write(&path, "secret = \"word\"").unwrap();
        let read = || ClusterFile::read(&path).unwrap();
        assert_eq!(read().secret, Some(dir.join("word")));
        assert!(matches!(read().read_secret(), Err(FileError::Io(..))));
        std::fs::write(dir.join("word"), "short").unwrap();
        let short = read().read_secret().unwrap_err().to_string();
        assert!(short.contains("has 32 to 4096 bytes, and this one has 5"), "{short}");
        std::fs::write(dir.join("word"), [b'w'; 40]).unwrap();
        assert!(!read().read_secret().unwrap().is_none());
        std::fs::remove_dir_all(&dir).unwrap();
    }
}

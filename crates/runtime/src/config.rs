//! The cluster file: what `amcast up` writes and every node reads.
//!
//! It is the same file that a person may hand to `amcast up --config`. Unknown keys are refused.

use amcast_core::config::{Kind, Param};
use amcast_core::{Config, ConfigError, Entry, RawConfig};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

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
    /// Places for client processes: service fronts, benchmarks, tools.
    pub clients: usize,
    /// The tree over the shards: `base`, `breadth`, `depth`, or parents such as `-1,0,0`.
    pub overlay: String,
    /// Threads of each node that execute commands, besides the one that orders them; 0 for none.
    /// None: as many as the node's share of this machine's cores has to spare.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workers: Option<usize>,
    /// Where every process writes its history, if anywhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub record: Option<PathBuf>,
    /// What clients of the Redis fronts must give with `AUTH`, if anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password: Option<String>,
    /// Where the fronts listen.
    pub ports: Ports,
    /// Settings of the protocol's parameters.
    pub set: BTreeMap<String, Setting>,
}

/// Ports of the fronts. None: the usual one if it is free, else any; 0: any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Ports {
    /// The Redis front.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redis: Option<u16>,
    /// The log service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log: Option<u16>,
    /// The status page and metrics.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http: Option<u16>,
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
            protocol: "tram".to_string(),
            shards: 3,
            replicas: 3,
            clients: 8,
            overlay: "breadth".to_string(),
            workers: None,
            record: None,
            password: None,
            ports: Ports::default(),
            set: BTreeMap::new(),
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
            Self::Io(path, e) => write!(f, "{}: {e}", path.display()),
            Self::Syntax(path, e) => write!(f, "{}: {}", path.display(), e.trim_end()),
        }
    }
}

impl std::error::Error for FileError {}

impl ClusterFile {
    /// Reads the file at `path`.
    ///
    /// # Errors
    /// When it cannot be read, is not TOML, or holds an unknown key.
    pub fn read(path: &Path) -> Result<Self, FileError> {
        let text =
            std::fs::read_to_string(path).map_err(|e| FileError::Io(path.to_path_buf(), e))?;
        toml::from_str(&text).map_err(|e| FileError::Syntax(path.to_path_buf(), e.to_string()))
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
        file.and_then(|mut file| file.write_all(text.as_bytes()))
            .map_err(|e| FileError::Io(path.to_path_buf(), e))
    }

    /// Checks the file against the parameters of its protocol.
    ///
    /// # Errors
    /// The first value that is wrong.
    pub fn check(&self, entry: &dyn Entry) -> Result<Config, ConfigError> {
        let raw = RawConfig {
            groups: self.shards,
            replicas: self.replicas,
            clients: self.clients,
            overlay: self.overlay.clone(),
            set: self.set.iter().map(|(name, value)| (name.clone(), value.to_string())).collect(),
        };
        let config = raw.check(entry.about().params)?;
        // Building one process of each role finds relations between parameters that do not hold.
        for pid in [config.cluster().pids().next(), config.cluster().pids().last()] {
            entry.build(pid.expect("a cluster has a process"), &config)?;
        }
        Ok(config)
    }

    /// The names of the nodes: node `i` hosts replica `i` of every shard.
    pub fn nodes(&self) -> impl Iterator<Item = String> + use<> {
        (0..self.replicas).map(node_name)
    }
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
        Kind::Number { default, min, max } => format!("{min} to {max}, {default} if not set"),
        Kind::Choice { of } => format!("one of {}; the first if not set", of.join(", ")),
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
    fn node_names_read_back() {
        assert_eq!(node_rank(&node_name(7)), Some(7));
        assert_eq!((node_rank("x7"), node_rank("n")), (None, None));
    }
}

//! The registry of a cluster's nodes: where each node is, which nodes are alive, and which node coordinates a group.
//! Nothing that is ordered waits for it. One entry matters for safety, and a node waits for it where it matters: whether a
//! node whose disk is new had another disk before (`begun/n0`).
//!
//! The three types to know are [`CoordinationRegistry`] (each node publishes its own entries and sees those of all),
//! [`RegistrySnapshot`] (what is known of them) and [`EntryLifetime`]. There are two registries. [`FileRegistry`] is the
//! cluster's file: what is in it is known, and no node hears what another one publishes; the protocols' own heartbeats tell
//! which nodes are alive. [`EtcdRegistry`] keeps the entries in etcd, where all nodes and people see them. Etcd may be away for as
//! long as it likes: what was known stays known, an entry that is published meanwhile is written when etcd is back, and the
//! end of a lease is believed only while etcd is there.
//!
//! Read this file, `file_registry.rs`, then `etcd/mod.rs` and `etcd/session.rs`.
//!
//! ```text
//! map                    what the cluster is, once for ever: all that decides what commands do
//! nodes/n0               where a node is; stays when it ends
//! alive/n0               it lives: goes when its lease ends
//! leads/g0               which node coordinates a group: under that node's lease
//! begun/n0               on how many disks it began after the first, and the word of the last; stays
//! ```
#![forbid(unsafe_code)]

mod etcd;
mod file_registry;

pub use etcd::{EtcdOptions, EtcdRegistry, Tls};
pub use file_registry::FileRegistry;

use std::collections::BTreeMap;
use std::fmt;

/// The messages of etcd.
#[allow(missing_docs, unreachable_pub, clippy::all, rust_2018_idioms)]
mod proto {
    tonic::include_proto!("etcdserverpb");
}

/// The entries of the registry, as far as this process knows them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegistrySnapshot {
    /// By key: `nodes/n0`.
    pub entries: BTreeMap<String, String>,
    /// Whether these are the registry's entries now: an entry that is missing was removed. If not, they are the last ones that
    /// were read.
    pub is_current: bool,
}

impl RegistrySnapshot {
    /// The entries under a folder such as `nodes`, by the rest of their key.
    pub fn under<'a>(&'a self, folder: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.entries.iter().filter_map(move |(key, value)| {
            let rest = key.strip_prefix(folder)?.strip_prefix('/')?;
            Some((rest, value.as_str()))
        })
    }
}

/// How long an entry stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryLifetime {
    /// Until somebody changes it.
    Permanent,
    /// As long as who wrote it lives.
    Leased,
}

/// Why the registry could not be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegistryUnreachable(pub String);

impl fmt::Display for RegistryUnreachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for RegistryUnreachable {}

/// Called with what is known whenever that changes, from any thread. It must not wait.
pub type OnRegistryChange = Box<dyn Fn(&RegistrySnapshot) + Send + Sync>;

/// A registry that all nodes of a cluster write to and read.
pub trait CoordinationRegistry: Send + Sync {
    /// Writes an entry, sooner or later; nothing takes it away. Does not wait.
    fn publish(&self, key: &str, value: Option<&str>, lifetime: EntryLifetime);

    /// Stops writing an entry of this process: the present value remains, be it of this process or
    /// another one. Does not wait.
    fn withdraw(&self, key: &str);

    /// The present entries. Does not wait.
    fn snapshot(&self) -> RegistrySnapshot;

    /// Writes a permanent entry, if its value is `before` (none: if there is none). Returns the
    /// value afterwards: `value` if it was written.
    ///
    /// # Errors
    /// When the registry does not answer in time: it may have been written.
    fn claim(
        &self,
        key: &str,
        before: Option<&str>,
        value: &str,
    ) -> Result<String, RegistryUnreachable>;
}

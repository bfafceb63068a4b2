//! What the nodes of a cluster tell each other beside the order: where they are, that they live, and
//! who coordinates. Nothing that is ordered waits for it. One entry matters for safety, and is waited for
//! where it matters: whether a node whose disk is new had another one before (`begun/n0`).
//!
//! [`Coordination`] is a board: everybody writes his own entries on it and sees those of all. There are
//! two of them. [`Embedded`] is the cluster's file: what is in it is known, and nobody hears what
//! another one says; who lives is told by the protocols' own heartbeats. [`Etcd`] keeps the entries in
//! etcd, where all nodes and people see them; it may be away for as long as it likes: what was known
//! stays known, what is said meanwhile is said when it is back, and that somebody's lease has ended is
//! believed only while it is there.
//!
//! ```text
//! map                    what the cluster is, once for ever: all that decides what commands do
//! nodes/n0               where a node is; stays when it ends
//! alive/n0               it lives: goes when its lease ends
//! leads/g0               which node coordinates a group: under that node's lease
//! begun/n0               on how many disks it began after the first, and the word of the last; stays
//! ```
#![forbid(unsafe_code)]

mod embedded;
mod etcd;

pub use embedded::Embedded;
pub use etcd::{Etcd, Options, Tls};

use std::collections::BTreeMap;
use std::fmt;

/// The messages of etcd.
#[allow(missing_docs, unreachable_pub, clippy::all, rust_2018_idioms)]
mod proto {
    tonic::include_proto!("etcdserverpb");
}

/// Everything that is on the board, as far as it is known here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// By key: `nodes/n0`.
    pub entries: BTreeMap<String, String>,
    /// Whether it is what is on the board now: an entry that is gone is gone. If not it is what was
    /// there last.
    pub is_current: bool,
}

impl Known {
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
pub enum Lasts {
    /// Until somebody changes it.
    ForEver,
    /// As long as who wrote it lives.
    AsLongAsItsWriter,
}

/// Why the board could not be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreachable(pub String);

impl fmt::Display for Unreachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unreachable {}

/// Called with what is known whenever that changes, from any thread. It must not wait.
pub type OnChange = Box<dyn Fn(&Known) + Send + Sync>;

/// A board that all nodes of a cluster write on and read.
pub trait Coordination: Send + Sync {
    /// Writes an entry, sooner or later; nothing takes it away. Does not wait.
    fn say(&self, key: &str, value: Option<&str>, lasts: Lasts);

    /// Writes an entry no more that this process wrote: what stands there by then stays, be it one's
    /// own or another one's. Does not wait.
    fn unsay(&self, key: &str);

    /// What is known now. Does not wait.
    fn known(&self) -> Known;

    /// Writes an entry that stays for ever, if its value is `before` (none: if there is none). What
    /// stands there then: `value` if it was written.
    ///
    /// # Errors
    /// When the board does not answer in time: it may have been written.
    fn claim(&self, key: &str, before: Option<&str>, value: &str) -> Result<String, Unreachable>;
}

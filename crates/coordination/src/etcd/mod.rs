//! The registry in etcd.
//!
//! One thread talks to etcd ([`session`]); users of the registry only take a lock for a moment. A
//! session ends with the first error, and another one begins after a pause: it takes a lease,
//! writes the published entries, reads all keys, and watches them from that revision on.

mod connect;
mod session;

use crate::{
    CoordinationRegistry, EntryLifetime, OnRegistryChange, RegistrySnapshot, RegistryUnreachable,
};
use session::EtcdSession;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::Notify;

/// How long a claim may take.
const CLAIM_PATIENCE: Duration = Duration::from_secs(3);

/// Claims that wait.
const CLAIMS_MAX: usize = 16;

/// How etcd is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdOptions {
    /// Where its servers are: `http://10.0.0.9:2379`, or `https://` with [`EtcdOptions::tls`].
    pub endpoints: Vec<String>,
    /// The prefix of all keys: `/amcast/4711/`.
    pub prefix: String,
    /// Name and password, if etcd asks for them.
    pub user: Option<(String, String)>,
    /// How both ends show who they are, if they do.
    pub tls: Option<Tls>,
    /// How long after its last word a node counts as dead.
    pub lease: Duration,
}

/// Certificates, each a PEM file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// The certificate authority that signed the certificates of etcd's servers.
    pub ca: PathBuf,
    /// This node's own, and its key, if etcd asks for them.
    pub own: Option<(PathBuf, PathBuf)>,
}

/// An entry that this process wants on the registry.
#[derive(Clone, Debug, PartialEq, Eq)]
struct WantedEntry {
    /// None: that it is not there.
    value: Option<String>,
    lifetime: EntryLifetime,
    /// It is there already, in this session.
    done: bool,
}

/// A claim, and where its outcome goes.
struct PendingClaim {
    key: String,
    before: Option<String>,
    value: String,
    outcome: SyncSender<Result<String, RegistryUnreachable>>,
}

/// The state that the thread and the users of the registry share.
struct EtcdShared {
    known: Mutex<RegistrySnapshot>,
    said: Mutex<BTreeMap<String, WantedEntry>>,
    claims: Mutex<Vec<PendingClaim>>,
    on_change: OnRegistryChange,
    /// Wakes the thread: an entry was published or claimed, or the registry ends.
    ring: Notify,
    ends: std::sync::atomic::AtomicBool,
}

fn lock<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

impl EtcdShared {
    /// Changes what is known, and tells of it.
    fn learn(&self, change: impl FnOnce(&mut RegistrySnapshot)) {
        let mut known = lock(&self.known);
        let before = known.clone();
        change(&mut known);
        if *known != before {
            let now = known.clone();
            drop(known);
            (self.on_change)(&now);
        }
    }
}

/// A registry in etcd. Dropping it takes away what this process said for its life.
pub struct EtcdRegistry {
    shared: Arc<EtcdShared>,
    thread: Option<JoinHandle<()>>,
}

impl EtcdRegistry {
    /// Begins to talk to etcd, which need not be there yet.
    ///
    /// # Errors
    /// When options do not go together, a certificate cannot be read, or there is no thread.
    pub fn begin(options: EtcdOptions, on_change: OnRegistryChange) -> Result<Self, String> {
        let servers = connect::EtcdServerList::new(&options)?;
        let shared = Arc::new(EtcdShared {
            known: Mutex::default(),
            said: Mutex::default(),
            claims: Mutex::default(),
            on_change,
            ring: Notify::new(),
            ends: std::sync::atomic::AtomicBool::new(false),
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|e| e.to_string())?;
        let session = EtcdSession::new(options, servers, Arc::clone(&shared));
        let talk = move || runtime.block_on(session.run());
        let thread = std::thread::Builder::new().name("etcd".to_string()).spawn(talk);
        Ok(Self { shared, thread: Some(thread.map_err(|e| e.to_string())?) })
    }
}

impl CoordinationRegistry for EtcdRegistry {
    fn publish(&self, key: &str, value: Option<&str>, lifetime: EntryLifetime) {
        let said = WantedEntry { value: value.map(str::to_string), lifetime, done: false };
        let mut all = lock(&self.shared.said);
        if all.get(key).is_some_and(|old| old.value == said.value && old.lifetime == lifetime) {
            return;
        }
        all.insert(key.to_string(), said);
        drop(all);
        self.shared.ring.notify_one();
    }

    fn withdraw(&self, key: &str) {
        lock(&self.shared.said).remove(key);
    }

    fn snapshot(&self) -> RegistrySnapshot {
        lock(&self.shared.known).clone()
    }

    fn claim(
        &self,
        key: &str,
        before: Option<&str>,
        value: &str,
    ) -> Result<String, RegistryUnreachable> {
        let (outcome, comes): (_, Receiver<_>) = sync_channel(1);
        let mut claims = lock(&self.shared.claims);
        if claims.len() >= CLAIMS_MAX {
            return Err(RegistryUnreachable(format!("{CLAIMS_MAX} claims wait for etcd already")));
        }
        claims.push(PendingClaim {
            key: key.to_string(),
            before: before.map(str::to_string),
            value: value.to_string(),
            outcome,
        });
        drop(claims);
        self.shared.ring.notify_one();
        let none =
            |_| Err(RegistryUnreachable(format!("etcd does not answer within {CLAIM_PATIENCE:?}")));
        comes.recv_timeout(CLAIM_PATIENCE).unwrap_or_else(none)
    }
}

impl Drop for EtcdRegistry {
    fn drop(&mut self) {
        self.shared.ends.store(true, std::sync::atomic::Ordering::Release);
        self.shared.ring.notify_one();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that talks to etcd had panicked");
        }
    }
}

//! A gateway's data about itself and about each connected client.

use super::Partitions;
use super::blocked_clients::BlockedClients;
use super::command_stats::AllStats;
use super::commands::server::Settings;
use crate::status::ServerStatus;
use amcast_smr::metrics::Metrics;
use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// Takes a lock; a thread that panicked with it left plain data that is still good to read.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Wall-clock time since 1970 in microseconds.
pub fn wall_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_micros() as u64)
}

/// The host's monotonic clock, in microseconds since it booted: all its processes have the same. It continues while the host is
/// suspended.
pub fn host_us() -> u64 {
    let t = clock_gettime(ClockId::Boottime);
    t.tv_sec as u64 * 1_000_000 + t.tv_nsec as u64 / 1000
}

/// The same in nanoseconds.
pub fn host_ns() -> u64 {
    let t = clock_gettime(ClockId::Boottime);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// The state that all connections of a gateway share.
pub struct StoreServer {
    /// The latest map of partitions that is known here, and its epoch, to be looked at without the
    /// lock.
    partitions: Mutex<Arc<Partitions>>,
    epoch: AtomicU64,
    /// Connections served at a time.
    pub clients_max: usize,
    /// How many replicas of a shard certainly have a write once it is answered, besides the one that executed it for the
    /// answer: what `WAIT` returns.
    pub other_certain_replicas: usize,
    /// The cluster's state.
    pub status: Arc<dyn ServerStatus>,
    /// The statistics of its commands.
    pub stats: AllStats,
    /// Connections that were refused or cut off so far.
    pub refusals: Refusals,
    /// Connections accepted so far.
    pub connections: AtomicU64,
    /// Those of them that were accepted when clients reset the statistics last.
    pub connections_reset: AtomicU64,
    /// Wrong passwords that were given so far.
    pub wrong_passwords: AtomicU64,
    /// Further metrics of the page, of a service other than the store.
    pub others: OnceLock<Metrics>,
    /// 40 hexadecimal digits that no other server has, nor an earlier life of this one.
    pub run_id: String,
    /// When it was made, by the host's clock.
    pub started_us: u64,
    /// The same in seconds since 1970.
    pub started_unix_s: u64,
    /// The settings that clients may change.
    pub settings: Mutex<Settings>,
    /// The connected clients, by their ids.
    pub clients: Mutex<BTreeMap<u64, Arc<ClientInfo>>>,
    /// Those that wait for keys.
    pub blocked: Arc<BlockedClients>,
}

impl StoreServer {
    /// A gateway's shared state; `partitions` is the first map, and `password` is asked from clients if
    /// there is one.
    pub fn new(
        partitions: Arc<Partitions>,
        clients_max: usize,
        other_certain_replicas: usize,
        password: Option<String>,
        status: Arc<dyn ServerStatus>,
    ) -> Self {
        let settings = Settings::new(password, clients_max, status.syncs_writes());
        Self {
            status,
            epoch: AtomicU64::new(partitions.epoch()),
            partitions: Mutex::new(partitions),
            clients_max,
            other_certain_replicas,
            stats: AllStats::default(),
            refusals: Refusals::default(),
            connections: AtomicU64::new(0),
            connections_reset: AtomicU64::new(0),
            wrong_passwords: AtomicU64::new(0),
            others: OnceLock::new(),
            run_id: run_id(),
            started_us: host_us(),
            started_unix_s: wall_us() / 1_000_000,
            settings: Mutex::new(settings),
            clients: Mutex::default(),
            blocked: Arc::default(),
        }
    }

    /// Clients that wait for keys are these, which replicas of this process tell of changes.
    #[must_use]
    pub fn with_blocked(self, blocked: Arc<BlockedClients>) -> Self {
        Self { blocked, ..self }
    }

    /// Has `CONFIG` show how large a command may be.
    pub fn show_command_bytes(&self, most: usize) {
        lock(&self.settings).show_command_bytes(most);
    }

    /// The latest map of partitions that is known here.
    pub fn partitions(&self) -> Arc<Partitions> {
        lock(&self.partitions).clone()
    }

    /// The epoch of that map.
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Takes a map that a shard told, if it is a later one.
    pub fn learn(&self, map: Partitions) {
        let mut known = lock(&self.partitions);
        if map.epoch() > known.epoch() {
            self.epoch.store(map.epoch(), Ordering::Release);
            *known = Arc::new(map);
        }
    }

    /// Commands taken so far, with any outcome.
    pub fn commands(&self) -> u64 {
        self.stats.taken()
    }

    /// `INFO` counts anew from here on; metrics do not.
    pub fn reset_stats(&self) {
        self.stats.reset();
        self.connections_reset.store(self.connections.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Connections now.
    pub fn connected(&self) -> usize {
        lock(&self.clients).len()
    }
}

/// Connections that a gateway refused or cut off, by the reason.
#[derive(Default)]
pub struct Refusals {
    /// There were as many as are served at a time.
    pub clients: AtomicU64,
    /// Its client did not read its answers.
    pub output: AtomicU64,
    /// It held most, and all together held too much.
    pub memory: AtomicU64,
    /// Too many clients had not given the password.
    pub strangers: AtomicU64,
}

/// 160 bits that nobody else draws, in hexadecimal digits.
fn run_id() -> String {
    // The standard library's only source of chance: each state has keys of its own.
    let word = |_| RandomState::new().hash_one((std::process::id(), wall_us()));
    let mut digits: String = (0..3).map(word).map(|word| format!("{word:016x}")).collect();
    digits.truncate(40);
    digits
}

/// The data of a client that other connections see.
pub struct ClientInfo {
    /// Its number, which no other connection of this server has.
    pub id: u64,
    /// Where it connects from.
    pub peer: SocketAddr,
    /// Where it connected to.
    pub local: SocketAddr,
    /// When it connected, by the host's clock, in microseconds.
    pub since_us: u64,
    /// Its report about itself.
    pub said: Mutex<ClientReport>,
    /// Set to have the connection closed.
    pub killed: AtomicBool,
    /// Bytes of its buffers that are counted with those of all.
    pub held: AtomicUsize,
    /// Whether it waits for a key, and is to wait no longer.
    pub block: BlockState,
    /// Makes the connection look at `killed`, `block`, and what it waits for.
    pub wake: Box<dyn Fn() + Send + Sync>,
}

/// Whether a client waits for a key.
#[derive(Default)]
pub struct BlockState(AtomicU8);

/// How `CLIENT UNBLOCK` ends a client's wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unblocked {
    /// As if its time was over.
    TimedOut,
    /// With an error.
    WithError,
}

impl BlockState {
    const SERVED: u8 = 0;
    const WAITS: u8 = 1;
    const TIMED_OUT: u8 = 2;
    const WITH_ERROR: u8 = 3;

    /// It waits from here on, or no longer.
    pub fn set(&self, waits: bool) {
        self.0.store(if waits { Self::WAITS } else { Self::SERVED }, Ordering::Release);
    }

    /// Whether it waits.
    pub fn waits(&self) -> bool {
        self.0.load(Ordering::Acquire) != Self::SERVED
    }

    /// Ends its wait so, if it waits and nobody has ended that yet; whether it does now.
    pub fn end(&self, how: Unblocked) -> bool {
        let next = match how {
            Unblocked::TimedOut => Self::TIMED_OUT,
            Unblocked::WithError => Self::WITH_ERROR,
        };
        self.0.compare_exchange(Self::WAITS, next, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// How somebody has ended its wait.
    pub fn ended(&self) -> Option<Unblocked> {
        match self.0.load(Ordering::Acquire) {
            Self::TIMED_OUT => Some(Unblocked::TimedOut),
            Self::WITH_ERROR => Some(Unblocked::WithError),
            _ => None,
        }
    }
}

/// A client's report about itself, and its last command.
#[derive(Clone)]
pub struct ClientReport {
    /// `CLIENT SETNAME`.
    pub name: String,
    /// `CLIENT SETINFO LIB-NAME`.
    pub lib_name: String,
    /// `CLIENT SETINFO LIB-VER`.
    pub lib_version: String,
    /// The version of the protocol: 2 or 3.
    pub resp: u8,
    /// The name of its last command.
    pub command: &'static str,
    /// When it sent that, by the host's clock, in microseconds.
    pub active_us: u64,
}

impl ClientInfo {
    /// Has the connection closed.
    pub fn kill(&self) {
        self.killed.store(true, Ordering::Release);
        (self.wake)();
    }
}

/// A transaction that is being gathered.
#[derive(Default)]
pub struct QueuedTransaction {
    /// The commands, each as its arguments.
    pub commands: Vec<Vec<Box<[u8]>>>,
    /// Bytes of all arguments, as the limit counts them.
    pub bytes: usize,
    /// Bytes of memory that the commands take, about.
    pub held: usize,
    /// A command was refused, so the transaction will be.
    pub spoiled: bool,
}

/// Keys that a connection watches, with their versions.
#[derive(Default)]
pub struct WatchedKeys {
    keys: BTreeMap<Box<[u8]>, u64>,
    bytes: usize,
}

impl WatchedKeys {
    /// A key is watched from now on. One that is watched twice was changed if it changed since the first time.
    pub fn insert(&mut self, key: Box<[u8]>, version: u64) {
        if !self.keys.contains_key(&key) {
            self.bytes += key.len();
            self.keys.insert(key, version);
        }
    }

    /// Whether the key is watched.
    pub fn contains(&self, key: &[u8]) -> bool {
        self.keys.contains_key(key)
    }

    /// The keys, with the versions that they had.
    pub fn iter(&self) -> impl Iterator<Item = (&Box<[u8]>, &u64)> {
        self.keys.iter()
    }

    /// Whether no key is watched.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// How many keys are watched.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Bytes of all keys.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// No key is watched any more.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

/// The consistency level of a connection's reads.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub enum ReadConsistency {
    /// Everything that was answered to anybody before.
    #[default]
    Linearizable,
    /// Reads see all earlier writes and reads of this connection, and possibly an older state of
    /// other keys.
    Sequential,
}

/// One connection's state.
pub struct ClientState {
    /// The state that all connections share.
    pub server: Arc<StoreServer>,
    /// Its data that other connections see.
    pub info: Arc<ClientInfo>,
    /// 2 or 3.
    pub resp: u8,
    /// Whether it gave the password, or there is none.
    pub authenticated: bool,
    /// The consistency level of its reads.
    pub level: ReadConsistency,
    /// The transaction between `MULTI` and `EXEC`.
    pub transaction: Option<QueuedTransaction>,
    /// Watched keys with their versions.
    pub watched: WatchedKeys,
    /// Wrong passwords that it gave.
    pub wrong_passwords: u64,
    /// `CLIENT REPLY`: whether answers are sent, and whether the next one is.
    pub silent: bool,
    /// Whether the next answer is not sent.
    pub skip_next: bool,
}

impl ClientState {
    /// A client that just connected.
    pub fn new(server: Arc<StoreServer>, info: Arc<ClientInfo>) -> Self {
        let authenticated = lock(&server.settings).password().is_none();
        Self {
            server,
            info,
            resp: 2,
            authenticated,
            level: ReadConsistency::default(),
            transaction: None,
            watched: WatchedKeys::default(),
            wrong_passwords: 0,
            silent: false,
            skip_next: false,
        }
    }
}

//! The listeners of a process for users: a gateway of the cluster with a Redis port, a log port and
//! a status page. The supervisor has one, and so has every node, so that the service outlives each
//! of them.

use amcast_core::ClusterShape;
use amcast_kv::client::StoreServer;
use amcast_kv::status::ServerStatus;
use amcast_lab::commands::Failure;
use amcast_node::clock;
use amcast_node::cluster_dir::{ClusterDir, GatewayAddresses};
use amcast_node::command_gateway::CommandGateway;
use amcast_node::config::ClusterFile;
use amcast_node::gateway::log::GrowthSource;
use amcast_node::gateway::{self, Backend};
use amcast_node::history::HistoryRecorder;
use amcast_node::service::{
    CallBook, ClusterBackend, ClusterWatch, Reads, blocked_clients, first_partitions, forgets,
};
use amcast_node::system::{has_too_many_files, refuses_file};
use amcast_protocols::catalog;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Connections that a Redis gateway serves at a time.
const REDIS_CLIENTS_MAX: usize = 10_000;

/// The first of the sessions that the log's gateway makes, behind as many as the Redis gateway may: both
/// number theirs from the gateway's own number on.
const LOG_SESSIONS: u64 = 1 << 23;

/// How long connections may take to end by themselves when a gateway stops: each ends when its commands
/// are answered and its client has closed it, too, or after a second.
const PART_PATIENCE: Duration = Duration::from_millis(1500);

/// How long commands that are under way may take when a gateway stops.
const DRAIN_PATIENCE: Duration = Duration::from_secs(3);

/// Where a process is to listen. Port 0 is left to the gateways, so that nobody else can take it
/// between.
#[derive(Clone, Copy, Debug)]
pub(super) struct Addresses {
    pub(super) redis: Address,
    pub(super) log: Address,
    pub(super) http: Address,
}

/// Where a gateway is to listen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Address {
    at: SocketAddr,
    /// Nobody asked for just this one: another port is as good if somebody takes it meanwhile.
    or_any: bool,
}

impl Address {
    /// Has `start` listen there, or at any port. `flag` names the port for people.
    fn open<T>(
        self,
        flag: &str,
        mut start: impl FnMut(SocketAddr) -> io::Result<T>,
    ) -> Result<T, Failure> {
        let started = match start(self.at) {
            // Another cluster that starts at the same time was first.
            Err(e) if self.or_any && e.kind() == io::ErrorKind::AddrInUse => {
                start(SocketAddr::new(self.at.ip(), 0))
            }
            started => started,
        };
        started.map_err(|e| refused(flag, self.at, &e))
    }
}

/// A port that cannot be had; `flag` names it.
fn refused(flag: &str, at: SocketAddr, e: &std::io::Error) -> Failure {
    let port = at.port();
    if has_too_many_files(e) {
        return Failure::Failed(format!("port {port} cannot be used: {e}; {MORE_FILES}"));
    }
    Failure::Misuse(format!(
        "port {port} cannot be used: {e}; give another --{flag}-port, or 0 for any"
    ))
}

/// The remedy where a process may open no more files: another port does not help.
const MORE_FILES: &str =
    "raise the limit of open files (`ulimit -n`, `LimitNOFILE=`), or end what uses them";

/// Tries a port of this machine: `given`, or else `usual`, or any if that is taken. `flag` names it
/// for people.
///
/// # Errors
/// When the port that was asked for cannot be had.
pub(super) fn bind(flag: &str, given: Option<u16>, usual: u16) -> Result<TcpListener, Failure> {
    match given {
        Some(port) => {
            let at = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
            TcpListener::bind(at).map_err(|e| refused(flag, at, &e))
        }
        None => TcpListener::bind((Ipv4Addr::LOCALHOST, usual))
            .or_else(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))
            .map_err(Failure::failed),
    }
}

/// Where a gateway is to listen, tried before anything else is started: a port in use is an error at
/// once. The port is free again when this returns.
///
/// # Errors
/// As [`bind`].
pub(super) fn address(flag: &str, given: Option<u16>, usual: u16) -> Result<Address, Failure> {
    let at = bind(flag, given, usual)?.local_addr().map_err(Failure::failed)?;
    let port = if given.unwrap_or(usual) == at.port() { at.port() } else { 0 };
    let at = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    Ok(Address { at, or_any: given.is_none() })
}

/// The ports that the gateways of a node had last, or those of the supervisor: for Redis, the log and HTTP.
/// `usual` are those of one that had none.
pub(super) fn ports_before(dir: &ClusterDir, rank: Option<usize>, usual: [u16; 3]) -> [u16; 3] {
    let Some(GatewayAddresses { redis, log, http }) = dir.last_gateways(rank) else {
        return usual;
    };
    let port = |at: Option<String>| Some(at?.parse::<SocketAddr>().ok()?.port());
    let before = [port(Some(redis)), port(log), port(Some(http))];
    [0, 1, 2].map(|i| before[i].unwrap_or(usual[i]))
}

/// Where a gateway is to listen that a cluster's file gives an address, tried at once; `key` names it
/// for people.
///
/// # Errors
/// When the address cannot be had.
pub(super) fn given(key: &str, at: SocketAddr) -> Result<Address, Failure> {
    let bound = TcpListener::bind(at);
    bound.map_err(|e| match has_too_many_files(&e) {
        true => Failure::Failed(format!("{key} = \"{at}\" cannot be used: {e}; {MORE_FILES}")),
        false => Failure::Misuse(format!("{key} = \"{at}\" cannot be used: {e}")),
    })?;
    Ok(Address { at, or_any: false })
}

/// Waits for the commands of a gateway that are under way, for some time.
fn drain(gateway: &CommandGateway, patience: Duration) {
    let begun = Instant::now();
    while gateway.open() > 0 && begun.elapsed() < patience {
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Where the calls of clients are recorded, if histories are.
fn book(
    file: &ClusterFile,
    gateway: &CommandGateway,
    cluster: ClusterShape,
) -> Result<Option<CallBook>, Failure> {
    let Some(dir) = &file.record else { return Ok(None) };
    let name = format!("calls-c{}", gateway.place());
    let recorder = HistoryRecorder::begin(dir, &name, cluster, &[], clock::now());
    let recorder = recorder.map_err(|e| Failure::Failed(refuses_file(dir, &e)))?;
    Ok(Some(CallBook::new(recorder)))
}

/// The open ports of a process. Dropping it closes them and all connections.
pub(super) struct OpenPorts {
    redis: gateway::redis::RedisGateway,
    log: amcast_node::gateway::log::LogGateway,
    http: gateway::http::HttpGateway,
    watch: Arc<ClusterWatch>,
}

impl OpenPorts {
    /// Opens the ports `at` before `gateway`. A node of this process answers `reads`, and streams of the
    /// log hear of appends as `hears` says.
    ///
    /// # Errors
    /// When a port cannot be had, or a thread not be started.
    pub(super) fn begin(
        at: Addresses,
        gateway: &Arc<CommandGateway>,
        watch: &Arc<ClusterWatch>,
        file: &ClusterFile,
        (reads, hears): (Option<Arc<Reads>>, GrowthSource),
    ) -> Result<Self, Failure> {
        let status = Arc::clone(watch) as Arc<dyn ServerStatus>;
        let entry = catalog::find(&file.protocol).expect("a cluster of it runs");
        let certain = entry.about().certain_replicas(&watch.cluster());
        let server = StoreServer::new(
            first_partitions(file).map_err(Failure::Misuse)?.into(),
            REDIS_CLIENTS_MAX,
            certain - 1,
            file.password.clone(),
            status,
        );
        let server = Arc::new(server.with_blocked(blocked_clients()));
        let first_session = u64::from(gateway.place()) << 48 | u64::from(gateway.life()) << 24;
        // The same for all gateways: their commands meet in one order.
        let clock_ahead_ms = file.clock_ahead(!forgets(file));
        let book = book(file, gateway, watch.cluster())?;
        let backend = ClusterBackend::new(Arc::clone(gateway), Arc::clone(watch), book);
        let backend = backend.with_reads(reads, Arc::clone(watch));
        let backend = Arc::new(backend);
        let redis = at.redis.open("redis", |at| {
            let mut config = gateway::redis::RedisGatewayConfig::new(at, first_session + 1);
            config.clock_ahead_ms = clock_ahead_ms;
            config.command_bytes_max =
                gateway::redis::command_bytes_max(file.command_max_mb.unwrap_or(1));
            // A cluster with small rings has small messages: more commands travel in parts.
            config.message_bytes_max = gateway.payload_max();
            gateway::redis::start(config, Arc::clone(&backend), Arc::clone(&server))
        })?;
        let log_config = |listen| amcast_node::gateway::log::LogGatewayConfig {
            listen,
            shards: file.shards,
            first_session: first_session + LOG_SESSIONS,
            payload_max: gateway.payload_max(),
            clock_ahead_ms,
            password: file.password.clone(),
            hears: hears.clone(),
            unread_bytes_max: amcast_node::gateway::log::UNREAD_BYTES_MAX,
            stream_patience: amcast_node::gateway::log::STREAM_PATIENCE,
        };
        let log = at.log.open("log", |at| {
            let status = Arc::clone(watch) as Arc<dyn ServerStatus>;
            let backend = Arc::clone(&backend) as Arc<dyn Backend>;
            amcast_node::gateway::log::LogGateway::start(log_config(at), backend, status)
        })?;
        // Once: the server is this process's own, and new.
        let _ = server.others.set(log.counts());
        let http = at.http.open("http", |at| gateway::http::start(at, Arc::clone(&server)))?;
        Ok(Self { redis, log, http, watch: Arc::clone(watch) })
    }

    /// Whether all of it serves; what does not had panicked.
    pub(super) fn is_serving(&self) -> bool {
        self.redis.is_serving() && self.log.is_serving() && self.http.is_serving()
    }

    /// Serves no more clients: lets nobody in, answers what was taken, and ends connections when that
    /// is written.
    pub(super) fn close(self, gateway: &CommandGateway) {
        self.watch.leave();
        self.redis.leave();
        drain(gateway, DRAIN_PATIENCE);
        let begun = Instant::now();
        while self.redis.connections() > 0 && begun.elapsed() < PART_PATIENCE {
            std::thread::sleep(Duration::from_millis(2));
        }
        drop(self);
        drain(gateway, DRAIN_PATIENCE);
    }

    /// Where Redis clients are served.
    pub(super) fn redis(&self) -> SocketAddr {
        self.redis.address()
    }

    /// Where it listens.
    pub(super) fn gateways(&self) -> GatewayAddresses {
        GatewayAddresses {
            redis: self.redis.address().to_string(),
            log: Some(self.log.address().to_string()),
            http: self.http.address().to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_usual_port_that_another_cluster_takes_first_is_changed_for_any_and_one_asked_for_is_not() {
        let _limit = amcast_test_policy::time_limit();
        let held = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = held.local_addr().unwrap();
        let usual = Address { at, or_any: true };
        let other = usual.open("redis", TcpListener::bind).unwrap().local_addr().unwrap();
        assert!(other.ip() == at.ip() && other.port() != at.port(), "{other}");
        let asked = Address { at, or_any: false }.open("redis", TcpListener::bind).unwrap_err();
        let Failure::Misuse(why) = asked else { panic!("{asked:?}") };
        assert!(why.contains("cannot be used") && why.contains("--redis-port"), "{why}");
        let many = io::Error::from_raw_os_error(rustix::io::Errno::MFILE.raw_os_error());
        let Failure::Failed(why) = refused("redis", at, &many) else {
            panic!("another port helps")
        };
        assert!(why.contains("raise the limit") && !why.contains("--redis-port"), "{why}");
    }
}

//! The gRPC gateway: one thread, which serves until it is dropped.
//!
//! # Limits
//! Connections, streams, requests that are looked at, and the bytes of a request are bounded; who comes
//! beyond waits, is refused in words, or has a connection closed that has been idle for longer. A request's bytes are
//! taken in only once it is among those that are looked at, so all of them together hold at most the largest request
//! that many times. Calls that read wait for places of their connections before ([`reads`](super::reads)). Requests
//! for health have places of their own.

use crate::gateway::log::answers::UnreadAnswers;
use crate::gateway::log::connections::accept;
use crate::gateway::log::counts::LogServiceCounts;
use crate::gateway::log::dates::WritableDates;
use crate::gateway::log::follow::{GrowthWatch, LogFollowers};
use crate::gateway::log::looks::{DEAF, Looks, PollPauses, TOLD};
use crate::gateway::log::password::PasswordGuard;
use crate::gateway::log::reads::{READ_BYTES_UNDER_WAY, ReadBudget, ReadPlaces};
use crate::gateway::log::requests::Requests;
use crate::gateway::log::service::{LogGatewayService, LogGatewayShared, TAILS_MAX};
use crate::gateway::log::session::GatewaySessions;
use crate::gateway::log::tail::TailGateways;
use crate::gateway::log::watches::HealthWatches;
use crate::gateway::shared_tasks::SharedTasks;
use crate::gateway::{Backend, GatewayClock};
use amcast_kv::SlotMap;
use amcast_kv::status::ServerStatus as ClusterStatus;
use amcast_log::proto;
use amcast_log::proto::log_server::LogServer;
use amcast_smr::Metrics;
use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::service::LayerExt;
use tonic::transport::Server;

/// Requests that are looked at, of all connections; and of those, beside them, that ask whether the log serves, and what
/// its calls are.
const REQUESTS_MAX: usize = 512;
const OTHER_REQUESTS_MAX: usize = 64;

/// Streams that tell changes of the health, of all connections.
const WATCHES_MAX: usize = 256;

/// Requests and streams of one connection.
const PER_CONNECTION_MAX: u32 = 256;

/// Bytes of a request besides what its command has: names of fields, and the session.
const REQUEST_HEAD_BYTES: usize = 64 << 10;

/// Bytes of a request's metadata.
const METADATA_BYTES_MAX: u32 = 16 << 10;

/// How long a request may take in all: longer than any command's patience.
const REQUEST_PATIENCE: Duration = Duration::from_secs(25);

/// How often a connection without traffic is asked whether it lives, and how long it may take.
const ALIVE_EVERY: Duration = Duration::from_secs(30);
const ALIVE_PATIENCE: Duration = Duration::from_secs(20);

/// How long clients may still receive answers when the gateway stops.
const PARTING: Duration = Duration::from_millis(500);

/// The interval at which the health service learns whether the cluster serves.
const HEALTH_EVERY: Duration = Duration::from_millis(500);

/// How a gateway serves.
#[derive(Clone, Debug)]
pub struct LogGatewayConfig {
    /// Where it listens; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Shards of the cluster.
    pub shards: usize,
    /// The number of the gateway's first session. Its sessions are this one and those after it, one for
    /// each request at a time, below 2^63; no other gateway, nor an earlier life of this one, may have
    /// used them.
    pub first_session: u64,
    /// Bytes of the largest command that the backend takes, its envelope included.
    pub payload_max: usize,
    /// How far the time by which the age of requests is judged is ahead of the host's clock, in
    /// milliseconds: [`GatewayClock::ahead`].
    pub clock_ahead_ms: u64,
    /// The password that clients must give, if any.
    pub password: Option<String>,
    /// How it hears that logs grow.
    pub hears: GrowthSource,
    /// Bytes of answers that may wait for clients to take them; where there are more, the connection whose answers are
    /// largest is closed. Usually [`UNREAD_BYTES_MAX`](crate::gateway::log::UNREAD_BYTES_MAX).
    pub unread_bytes_max: usize,
    /// How long a stream waits for a shard that does not answer before it ends with `UNAVAILABLE`. Usually
    /// [`STREAM_PATIENCE`](crate::gateway::log::STREAM_PATIENCE).
    pub stream_patience: Duration,
}

/// How a gateway hears that logs grow, for the streams that wait for it.
#[derive(Clone, Default)]
pub enum GrowthSource {
    /// Not by itself: it asks how far logs go while streams wait, every 2 to 20 ms.
    #[default]
    Nothing,
    /// From the logs of the node in its process, which tell this.
    Node(GrowthWatch),
    /// Others do, and serve streams in its place; where they listen now, each `host:port`. It asks as
    /// above while none of them serves.
    Others(Arc<dyn Fn() -> Vec<String> + Send + Sync>),
}

impl fmt::Debug for GrowthSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nothing => "Nothing",
            Self::Node(_) => "Node",
            Self::Others(_) => "Others",
        })
    }
}

/// A running gateway. Dropping it closes all connections and ends its thread; commands under way may
/// still be executed.
pub struct LogGateway {
    address: SocketAddr,
    done: Arc<LogServiceCounts>,
    tails: Arc<Semaphore>,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl LogGateway {
    /// Starts a gateway on `backend`; `status` says whether the cluster serves.
    ///
    /// # Errors
    /// When the address cannot be listened at, or the thread not be started.
    pub fn start(
        config: LogGatewayConfig,
        backend: Arc<dyn Backend>,
        status: Arc<dyn ClusterStatus>,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(config.listen)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopping) = watch::channel(false);
        let (follows, through, pauses) = match config.hears.clone() {
            GrowthSource::Nothing => (Arc::default(), None, DEAF),
            GrowthSource::Node(GrowthWatch(follows)) => (follows, None, TOLD),
            GrowthSource::Others(addresses) => {
                (Arc::default(), Some(TailGateways::new(addresses)), DEAF)
            }
        };
        let shared = Arc::new(LogGatewayShared {
            backend,
            map: SlotMap::new(config.shards),
            payload_max: config.payload_max,
            clock: GatewayClock::ahead(config.clock_ahead_ms),
            sessions: GatewaySessions::new(config.first_session),
            follows,
            stopping,
            tails: Arc::new(Semaphore::new(TAILS_MAX)),
            unread: UnreadAnswers::new(config.unread_bytes_max),
            read_budget: ReadBudget::new(READ_BYTES_UNDER_WAY),
            done: Arc::default(),
            through,
            stream_patience: config.stream_patience,
            password: config.password.clone(),
        });
        let (done, tails) = (Arc::clone(&shared.done), Arc::clone(&shared.tails));
        let serve = serve(listener, config, (shared, pauses), status);
        let thread =
            std::thread::Builder::new().name("log-gateway".to_string()).spawn(move || {
                if let Err(e) = runtime.block_on(serve) {
                    tracing::error!("the log's gateway ended: {e}");
                }
                // Dropping the runtime drops connections and streams.
            })?;
        Ok(Self { address, done, tails, stop, thread: Some(thread) })
    }

    /// Its counters, for the metrics page.
    pub fn counts(&self) -> Metrics {
        let (done, tails) = (Arc::clone(&self.done), Arc::clone(&self.tails));
        Box::new(move || done.counts(TAILS_MAX - tails.available_permits()))
    }

    /// Where it listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether its thread runs; it has failed if not.
    pub fn is_serving(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }
}

impl Drop for LogGateway {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the log's gateway had panicked");
        }
    }
}

/// Bytes of a message that asks for a description: a name. Anybody may send some.
const REFLECTION_BYTES_MAX: usize = 4096;

async fn serve(
    listener: TcpListener,
    config: LogGatewayConfig,
    (shared, pauses): (Arc<LogGatewayShared>, PollPauses),
    status: Arc<dyn ClusterStatus>,
) -> Result<(), Box<dyn std::error::Error>> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let (to, connections) = mpsc::channel(1);
    let (mut tasks, runtime) = (SharedTasks::default(), Handle::current());
    tasks.spawn(&runtime, accept(listener, to, config.password.is_some()));
    let (looks, follows) = (Arc::clone(&shared), Arc::<LogFollowers>::clone(&shared.follows));
    let ask = move |names| Arc::clone(&looks).look(names);
    let looks = Looks::new(follows, shared.map, shared.stream_patience, ask);
    tasks.spawn(&runtime, looks.go_on(pauses));
    let (health, health_service) = tonic_health::server::health_reporter();
    tasks.spawn(&runtime, tell_health(health, status));
    let reflection = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(proto::DESCRIPTION)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .build_v1()?
        .max_decoding_message_size(REFLECTION_BYTES_MAX);
    let mut stopping = shared.stopping.clone();
    let log = LogServer::new(LogGatewayService(Arc::clone(&shared)))
        .max_decoding_message_size(config.payload_max + REQUEST_HEAD_BYTES);
    let log = Requests::new(REQUESTS_MAX).named_layer(log);
    // A call waits for its place here, where it takes no other one's.
    let log = ReadPlaces.named_layer(log);
    let log = PasswordGuard::new(config.password, &shared.done).named_layer(log);
    let health_service = HealthWatches::new(WATCHES_MAX).named_layer(health_service);
    let health_service = Requests::new(OTHER_REQUESTS_MAX).named_layer(health_service);
    let reflection = Requests::new(OTHER_REQUESTS_MAX).named_layer(reflection);
    let reflection = ReadPlaces.named_layer(reflection);
    let server = Server::builder()
        .timeout(REQUEST_PATIENCE)
        .max_concurrent_streams(PER_CONNECTION_MAX)
        .http2_keepalive_interval(Some(ALIVE_EVERY))
        .http2_keepalive_timeout(Some(ALIVE_PATIENCE))
        .http2_max_header_list_size(METADATA_BYTES_MAX)
        .layer(WritableDates { clock: SystemTime::now })
        .add_service(log)
        .add_service(health_service)
        .add_service(reflection);
    let mut stopped = shared.stopping.clone();
    let stop = async move { _ = stopped.wait_for(|stop| *stop).await };
    let serving = server.serve_with_incoming_shutdown(ReceiverStream::new(connections), stop);
    tokio::select! {
        served = serving => served?,
        never = tasks.failure() => match never {},
        () = async {
            _ = stopping.wait_for(|stop| *stop).await;
            tokio::time::sleep(PARTING).await;
        } => {}
    }
    Ok(())
}

/// Says to who asks whether the log serves.
async fn tell_health(health: tonic_health::server::HealthReporter, status: Arc<dyn ClusterStatus>) {
    loop {
        match status.ready_here() {
            Ok(()) => health.set_serving::<LogServer<LogGatewayService>>().await,
            Err(_) => health.set_not_serving::<LogServer<LogGatewayService>>().await,
        }
        tokio::time::sleep(HEALTH_EVERY).await;
    }
}

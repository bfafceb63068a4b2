//! The Redis gateway: serves unmodified clients over RESP2 and RESP3.
//!
//! A connection is one task that reads the available bytes, hands all whole commands to the [`Backend`], and writes
//! all answers that came in one go. Nothing is read while the backend has no room, while
//! [`RedisGatewayConfig::open_max`] commands are under way, or while the client does not take its answers; and commands
//! with large answers wait until those of others have arrived ([`answer_admission`]). So a client
//! that does not read is held back first; only if it had asked for more than [`RedisGatewayConfig::output_bytes_max`]
//! before, it is cut off. If all connections together hold more than [`RedisGatewayConfig::held_bytes_max`], in all
//! their buffers, the one that holds most is cut off. Before a client has given the password, far less is taken from
//! it: see [`unauthenticated`].

mod answer_admission;
mod connection;
mod driver;
mod expiry_sweep;
mod failures;
mod input;
mod part_admission;
mod pipeline;
mod router;
mod unauthenticated;
mod wire;

use super::files;
use super::login_turns::LoginTurns;
use super::rate_limited_log::RateLimitedLog;
use super::shared_tasks::SharedTasks;
use crate::gateway::backend::{Backend, BackendAnswers};
use crate::gateway::clock::GatewayClock;
use amcast_core::limits::PAYLOAD_BYTES_MAX;
use amcast_kv::client::{StoreServer, lock};
use amcast_kv::{EPOCH_BYTES, Partitions, stamp_refusal};
use amcast_smr::envelope::Envelope;
use amcast_smr::parts::{CommandPart, PARTS_MAX};
pub use failures::failure_answer;
use router::{Router, WakeBatch};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use tokio::sync::watch;

/// Bytes of the number of arguments in an encoded command.
const COUNT_BYTES: usize = 4;

/// The bytes of a message beside a command's arguments: the envelope, the epoch of the map of
/// partitions, and the number of arguments.
const BESIDE_BYTES: usize = Envelope::BYTES + EPOCH_BYTES + COUNT_BYTES;

/// Bytes of a command's arguments, 4 more for each, that fit into one message.
pub const MESSAGE_COMMAND_BYTES_MAX: usize = PAYLOAD_BYTES_MAX - BESIDE_BYTES;

/// Bytes of a command's arguments, 4 more for each, where so many megabytes (of 2^20 bytes) may travel in parts.
///
/// [`parts`](amcast_smr::parts)
pub const fn command_bytes_max(megabytes: usize) -> usize {
    (megabytes << 20) - BESIDE_BYTES
}

/// Bytes of a command's arguments, 4 more for each, of which no more parts are made than there may be, where messages
/// have so many bytes.
const fn parts_bytes_max(message_bytes_max: usize) -> usize {
    let room = message_bytes_max.saturating_sub(CommandPart::HEAD_BYTES);
    let part = if room < PART_BYTES { room } else { PART_BYTES };
    (part * PARTS_MAX as usize).saturating_sub(BESIDE_BYTES)
}

const _: () = assert!(parts_bytes_max(PAYLOAD_BYTES_MAX) > amcast_core::limits::COMMAND_BYTES_MAX);

/// Bytes of one part of a command that is larger than a message: small enough that messages of others do not wait
/// long behind it.
const PART_BYTES: usize = 256 << 10;

/// Connections that may wait to be accepted: as many as may come at the same moment. The system's
/// own limit, often 4096, holds too.
const BACKLOG: i32 = 4096;

/// Connections that a thread accepts before its clients have their turn.
const ACCEPTS_MAX: usize = 16;

/// How a gateway serves.
#[derive(Clone, Debug)]
pub struct RedisGatewayConfig {
    /// Where it listens; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Threads that serve connections.
    pub threads: usize,
    /// The number of the gateway's first session. Its sessions are this one and those after it, one
    /// per connection at a time; no other gateway, nor an earlier life of this one, may have used
    /// them.
    pub first_session: u64,
    /// How far the time by which the age of commands is judged is ahead of the host's clock, in
    /// milliseconds: [`GatewayClock::ahead`].
    pub clock_ahead_ms: u64,
    /// Commands of one connection that may be under way; at most the window of the executor's
    /// [`Limits`](amcast_smr::Limits).
    pub open_max: usize,
    /// Bytes of answers that may wait for one client to read them; it is cut off above.
    pub output_bytes_max: usize,
    /// Bytes that all connections may hold in their buffers; beyond, the one that holds most is cut off.
    pub held_bytes_max: usize,
    /// Bytes of a command's arguments, 4 more for each; at most those of [`command_bytes_max`] of 64. A larger command is
    /// refused.
    pub command_bytes_max: usize,
    /// Bytes of a message, at most [`PAYLOAD_BYTES_MAX`]. A command that does not fit one travels in parts.
    pub message_bytes_max: usize,
}

impl RedisGatewayConfig {
    /// Listens at `listen` with one thread.
    pub const fn new(listen: SocketAddr, first_session: u64) -> Self {
        Self {
            listen,
            threads: 1,
            first_session,
            clock_ahead_ms: 0,
            open_max: 256,
            output_bytes_max: 256 << 20,
            held_bytes_max: 1 << 30,
            command_bytes_max: MESSAGE_COMMAND_BYTES_MAX,
            message_bytes_max: PAYLOAD_BYTES_MAX,
        }
    }
}

/// The state that all connections share.
struct RedisShared<B> {
    config: RedisGatewayConfig,
    backend: Arc<B>,
    server: Arc<StoreServer>,
    router: Arc<Router>,
    clock: GatewayClock,
    next_client: AtomicU64,
    /// Connections served at a time.
    clients_max: usize,
    /// Bytes that all connections hold.
    held_bytes: AtomicUsize,
    strangers: unauthenticated::UnauthenticatedClients,
    /// The turns in which passwords of unauthenticated clients are compared.
    logins: Arc<LoginTurns>,
    /// The order in which connections send parts of large commands.
    turns: part_admission::PartAdmission,
    /// The large answers that connections ask for.
    answers: Arc<answer_admission::AnswerAdmission>,
    warnings: ClientWarnings,
    /// Connections take no more input, and end when all that they took is answered.
    leaving: AtomicBool,
}

/// How far a gateway is with its end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ShutdownStage {
    Serves,
    /// Nobody is let in any more.
    Leaves,
    Ends,
}

/// Warnings that clients can provoke, each kind logged only now and then.
#[derive(Default)]
struct ClientWarnings {
    accept: RateLimitedLog,
    http: RateLimitedLog,
    slow: RateLimitedLog,
    full: RateLimitedLog,
    clock: RateLimitedLog,
    password: RateLimitedLog,
    strangers: RateLimitedLog,
}

/// A running gateway.
pub struct RedisGateway {
    address: SocketAddr,
    stage: watch::Sender<ShutdownStage>,
    /// Tells the connections that they are to end.
    part: Box<dyn Fn() + Send + Sync>,
    server: Arc<StoreServer>,
    threads: Vec<JoinHandle<()>>,
}

/// Starts a gateway on `backend`, which it starts too.
///
/// # Errors
/// When the address cannot be listened at, or a thread not be started.
pub fn start<B: Backend>(
    mut config: RedisGatewayConfig,
    backend: Arc<B>,
    server: Arc<StoreServer>,
) -> io::Result<RedisGateway> {
    config.command_bytes_max =
        config.command_bytes_max.min(parts_bytes_max(config.message_bytes_max));
    let clients_max = files::connections(files::GatewayPort::Redis, server.clients_max);
    let listener = TcpListener::bind(config.listen)?;
    // It listens already, with room for 128: this changes the room.
    rustix::net::listen(&listener, BACKLOG)?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    server.show_command_bytes(config.command_bytes_max + BESIDE_BYTES);
    let router = Arc::new(Router::default());
    backend.start(router.clone() as Arc<dyn BackendAnswers>);
    let (stage, _) = watch::channel(ShutdownStage::Serves);
    let threads = config.threads.max(1);
    let next_client = AtomicU64::new(1);
    let (held_bytes, warnings) = (AtomicUsize::new(0), ClientWarnings::default());
    let clock = GatewayClock::ahead(config.clock_ahead_ms);
    let shared = Arc::new(RedisShared {
        config,
        backend,
        server,
        router,
        clock,
        next_client,
        clients_max,
        held_bytes,
        strangers: unauthenticated::UnauthenticatedClients::of(clients_max),
        logins: LoginTurns::new(unauthenticated::LOGINS),
        turns: part_admission::PartAdmission::default(),
        answers: Arc::default(),
        warnings,
        leaving: AtomicBool::new(false),
    });
    let mut handles = Vec::new();
    for i in 0..threads {
        let listener = listener.try_clone()?;
        let shared = shared.clone();
        let mut at = stage.subscribe();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (mut tasks, post) = (SharedTasks::default(), Arc::new(WakeBatch::default()));
        tasks.spawn(runtime.handle(), Arc::clone(&post).go_round());
        if i == 0 {
            tasks.spawn(runtime.handle(), expiry_sweep::now_and_then(shared.clone()));
            tasks.spawn(runtime.handle(), driver::drive(shared.clone(), post.clone()));
        }
        let name = format!("redis-gateway-{i}");
        let thread = std::thread::Builder::new().name(name).spawn(move || {
            let serve = async {
                accept(listener, shared, at.clone(), post).await;
                // Connections continue until then; dropping the runtime drops the rest.
                _ = at.wait_for(|stage| *stage == ShutdownStage::Ends).await;
            };
            runtime.block_on(async {
                tokio::select! {
                    () = serve => {}
                    never = tasks.failure() => match never {},
                }
            });
        });
        handles.push(thread?);
    }
    let server = Arc::clone(&shared.server);
    let part = Box::new(move || shared.part());
    Ok(RedisGateway { address, stage, part, server, threads: handles })
}

/// Takes connections until the gateway stops.
async fn accept<B: Backend>(
    listener: TcpListener,
    shared: Arc<RedisShared<B>>,
    mut stage: watch::Receiver<ShutdownStage>,
    post: Arc<WakeBatch>,
) {
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
    let stats = shared.server.stats.of_thread();
    let mut taken = 0;
    loop {
        // Those who dial without end would else keep the clients of this thread waiting.
        taken += 1;
        if taken > ACCEPTS_MAX {
            taken = 1;
            tokio::task::yield_now().await;
        }
        let accepted = tokio::select! {
            _ = stage.wait_for(|stage| *stage != ShutdownStage::Serves) => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => {
                if shared.server.connected() >= shared.clients_max {
                    shared.server.refusals.clients.fetch_add(1, Ordering::Relaxed);
                    // A failed write does not matter: the connection is refused anyway.
                    let _ = stream.try_write(b"-ERR max number of clients reached\r\n");
                    continue;
                }
                shared.server.connections.fetch_add(1, Ordering::Relaxed);
                if let Ok(serving) = connection::open(stream, peer, &shared, &post, &stats) {
                    tokio::spawn(serving);
                }
            }
            // Out of file descriptors, mostly: connections that end make room.
            Err(e) => {
                shared.warnings.accept.warn(|| format!("no connection can be accepted: {e}"));
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
        }
    }
}

impl RedisGateway {
    /// Where it listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether all its threads run. One that has ended had panicked: its connections are gone, and
    /// the process should end rather than serve half.
    pub fn is_serving(&self) -> bool {
        self.threads.iter().all(|thread| !thread.is_finished())
    }

    /// Lets nobody in any more, and has each connection end when all that it took is answered: its
    /// client finds it closed, with no command that was half served.
    pub fn leave(&self) {
        self.stage.send_replace(ShutdownStage::Leaves);
        (self.part)();
    }

    /// Connections that are open.
    pub fn connections(&self) -> usize {
        self.server.connected()
    }

    /// Closes all connections and ends the threads. Commands under way may still be executed.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for RedisGateway {
    fn drop(&mut self) {
        self.stage.send_replace(ShutdownStage::Ends);
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                // It panicked, and the panic was printed; there is nothing left to stop.
                continue;
            }
        }
    }
}

impl<B> RedisShared<B> {
    /// Learns from `answer` if it is a refusal: a later map of partitions, or the time. The
    /// arguments of the command then, which was not executed.
    fn learn<'a>(&self, answer: &'a [u8]) -> Option<&'a [u8]> {
        if let Some((now_ms, args)) = stamp_refusal::of_refusal(answer) {
            if self.clock.refused(now_ms) {
                self.warnings.clock.warn(|| {
                    "this host's clock is not that of the hosts of the shards' majorities: what is sent \
                     from here goes by theirs"
                        .to_string()
                });
            }
            return Some(args);
        }
        let (map, args) = Partitions::of_refusal(answer)?;
        self.server.learn(map);
        Some(args)
    }

    fn forget(&self, client: u64) {
        lock(&self.server.clients).remove(&client);
    }

    /// Has all connections end when they have answered.
    fn part(&self) {
        self.leaving.store(true, Ordering::Release);
        lock(&self.server.clients).values().for_each(|info| (info.wake)());
    }
}

//! The Redis front: serves unmodified clients over RESP2 and RESP3.
//!
//! A connection is one task that reads what is there, hands all whole commands to the
//! [`Backend`], and writes all answers that came in one go. Nothing is read while the backend has
//! no room, while [`Config::open_max`] commands are under way, or while the client does not take
//! its answers.

mod connection;
mod parser;
mod pipeline;
mod resp;
mod router;

use crate::backend::{Answers, Backend};
use crate::kv::client::{Server, lock};
use router::Router;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use tokio::sync::watch;

/// How a front serves.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where it listens; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Threads that serve connections.
    pub threads: usize,
    /// The number of the front's first session. Its sessions are this one and those after it, one
    /// per connection at a time; no other front, nor an earlier life of this one, may have used
    /// them.
    pub first_session: u64,
    /// Commands of one connection that may be under way; at most the window of the executor's
    /// [`Limits`](crate::Limits).
    pub open_max: usize,
    /// Bytes of answers that may wait for a client to read them; it is cut off above.
    pub output_bytes_max: usize,
}

impl Config {
    /// Listens at `listen` with one thread.
    pub const fn new(listen: SocketAddr, first_session: u64) -> Self {
        Self { listen, threads: 1, first_session, open_max: 256, output_bytes_max: 256 << 20 }
    }
}

/// What all connections share.
struct Shared<B> {
    config: Config,
    backend: Arc<B>,
    server: Arc<Server>,
    router: Arc<Router>,
    next_client: AtomicU64,
}

/// A running front.
pub struct Front {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    threads: Vec<JoinHandle<()>>,
}

/// Starts a front on `backend`, which it starts too.
///
/// # Errors
/// When the address cannot be listened at, or a thread not be started.
pub fn start<B: Backend>(
    config: Config,
    backend: Arc<B>,
    server: Arc<Server>,
) -> io::Result<Front> {
    let listener = TcpListener::bind(config.listen)?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let router = Arc::new(Router::default());
    backend.start(router.clone() as Arc<dyn Answers>);
    let (stop, stopped) = watch::channel(false);
    let threads = config.threads.max(1);
    let next_client = AtomicU64::new(1);
    let shared = Arc::new(Shared { config, backend, server, router, next_client });
    let mut handles = Vec::new();
    for i in 0..threads {
        let (listener, shared, stopped) = (listener.try_clone()?, shared.clone(), stopped.clone());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let name = format!("redis-front-{i}");
        handles.push(std::thread::Builder::new().name(name).spawn(move || {
            runtime.block_on(accept(listener, shared, stopped));
            // Dropping the runtime drops the connections.
        })?);
    }
    Ok(Front { address, stop, threads: handles })
}

/// Takes connections until the front stops.
async fn accept<B: Backend>(
    listener: TcpListener,
    shared: Arc<Shared<B>>,
    mut stopped: watch::Receiver<bool>,
) {
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
    loop {
        let accepted = tokio::select! {
            _ = stopped.changed() => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => {
                if shared.server.connected() >= shared.server.clients_max {
                    // What cannot be written is not missed: the connection is refused anyway.
                    let _ = stream.try_write(b"-ERR max number of clients reached\r\n");
                    continue;
                }
                shared.server.connections.fetch_add(1, Ordering::Relaxed);
                if let Ok(serving) = connection::open(stream, peer, &shared) {
                    tokio::spawn(serving);
                }
            }
            // Out of file descriptors, mostly: connections that end make room.
            Err(_) => tokio::time::sleep(std::time::Duration::from_millis(10)).await,
        }
    }
}

impl Front {
    /// Where it listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Closes all connections and ends the threads. Commands under way may still be executed.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                // It panicked, and the panic was printed; there is nothing left to stop.
                continue;
            }
        }
    }
}

impl<B> Shared<B> {
    fn forget(&self, client: u64) {
        lock(&self.server.clients).remove(&client);
    }
}

//! Connections of clients: so many at a time, and none that never says a word.

use crate::gateway::connection_slots::{
    ConnectionSlot, ConnectionSlots, IdleRule, LimitedConnection, ShownClients,
};
use crate::gateway::files;
use crate::gateway::log::reads::ReadLane;
use amcast_kv::client::lock;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::time::{Instant, Sleep, sleep};
use tonic::transport::server::Connected;

/// Connections served at a time; one more closes the one that has been idle for longest.
pub(crate) const CONNECTIONS_MAX: usize = 1024;

/// Bytes that every client sends at first: HTTP/2's preface, and the head of its settings.
const GREETING_BYTES: usize = 24 + 9;

/// How long that may take.
const GREETING: Duration = Duration::from_secs(5);

/// How long after a failure to accept, mostly for want of file descriptors, it is tried again.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

/// Bytes that are read in a second of a connection that has not given the password, where there is one: each frame of HTTP/2
/// costs time on the thread that serves all clients, also one that asks for nothing.
const UNKNOWN_BYTES_PER_SECOND: usize = 64 << 10;

/// Accepts connections and hands them on, until nobody takes them. `has_password` says whether clients have to give one.
pub(crate) async fn accept(
    listener: TcpListener,
    to: mpsc::Sender<io::Result<PlacedStream>>,
    has_password: bool,
) {
    let most = files::connections(files::GatewayPort::Log, CONNECTIONS_MAX);
    let clients = if has_password { ShownClients::ByPassword } else { ShownClients::Never };
    let slots = ConnectionSlots::new(most, clients);
    loop {
        let accepted = tokio::select! {
            () = to.closed() => return,
            accepted = listener.accept() => accepted,
        };
        let Ok((stream, _)) = accepted else {
            sleep(ACCEPT_AGAIN).await;
            continue;
        };
        // Without it answers only come later.
        let _ = stream.set_nodelay(true);
        let held =
            LimitedConnection::new(stream, &slots, IdleRule::Together(GREETING_BYTES, GREETING));
        let unknown = has_password.then(UnknownPace::begin);
        if to.send(Ok(PlacedStream::new(held, unknown))).await.is_err() {
            return;
        }
    }
}

/// How fast is read what a connection sends that has not given the password.
struct UnknownPace {
    /// Bytes that may be read until `second` is over.
    left: usize,
    second: Pin<Box<Sleep>>,
}

impl UnknownPace {
    fn begin() -> Self {
        let second = Box::pin(sleep(Duration::from_secs(1)));
        Self { left: UNKNOWN_BYTES_PER_SECOND, second }
    }

    /// Ready when more may be read; the task is woken for that.
    fn poll(&mut self, cx: &mut Context<'_>, origin: &LogConnection) -> Poll<()> {
        if self.second.as_mut().poll(cx).is_ready() {
            self.second.as_mut().reset(Instant::now() + Duration::from_secs(1));
            self.left = UNKNOWN_BYTES_PER_SECOND;
        }
        if self.left == 0 && self.second.as_mut().poll(cx).is_pending() {
            lock(&origin.paused).replace(cx.waker().clone());
            // The password may have arrived meanwhile.
            return if origin.slot.is_known() { Poll::Ready(()) } else { Poll::Pending };
        }
        Poll::Ready(())
    }
}

/// A connection that has a slot.
pub(crate) struct PlacedStream {
    held: LimitedConnection,
    /// As long as it has not given the password.
    unknown: Option<UnknownPace>,
    origin: RequestOrigin,
}

impl PlacedStream {
    fn new(held: LimitedConnection, unknown: Option<UnknownPace>) -> Self {
        let slot = Arc::clone(held.slot());
        let origin = Arc::new(LogConnection {
            slot,
            reads: ReadLane::default(),
            descriptions: ReadLane::default(),
            tails: ReadLane::default(),
            paused: Mutex::default(),
        });
        Self { held, unknown, origin }
    }
}

/// A connection, as its requests see it.
pub(crate) struct LogConnection {
    pub(crate) slot: Arc<ConnectionSlot>,
    /// Its calls that read.
    pub(crate) reads: ReadLane,
    /// Its streams that ask for descriptions of the service, which need no password: behind a proxy they may be of others
    /// than its calls that read.
    pub(crate) descriptions: ReadLane,
    /// The reads of its streams.
    pub(crate) tails: ReadLane,
    /// Wakes its task while nothing is read of it, since it has not given the password.
    paused: Mutex<Option<Waker>>,
}

impl LogConnection {
    /// Its client has given the password: it is read at once again.
    pub(crate) fn show_known(&self) {
        self.slot.show_known();
        lock(&self.paused).take().inspect(Waker::wake_by_ref);
    }
}

/// The connection of a request.
pub(crate) type RequestOrigin = Arc<LogConnection>;

impl Connected for PlacedStream {
    type ConnectInfo = RequestOrigin;

    fn connect_info(&self) -> RequestOrigin {
        Arc::clone(&self.origin)
    }
}

impl AsyncRead for PlacedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { held, unknown, origin } = &mut *self;
        if held.slot().is_known() {
            *unknown = None;
        }
        if let Some(pace) = unknown {
            std::task::ready!(pace.poll(cx, origin));
        }
        let before = to.filled().len();
        let polled = Pin::new(held).poll_read(cx, to);
        if let Some(pace) = unknown {
            pace.left = pace.left.saturating_sub(to.filled().len() - before);
        }
        polled
    }
}

impl AsyncWrite for PlacedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        from: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.held).poll_write(cx, from)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.held).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.held).poll_shutdown(cx)
    }
}

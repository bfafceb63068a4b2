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

/// And so many of all of them together, besides the first of each, which are enough to give it.
const UNKNOWN_BYTES_PER_SECOND_TOGETHER: usize = 256 << 10;
const UNKNOWN_FIRST_BYTES: usize = 4 << 10;

/// They are taken from what all have in such pieces.
const UNKNOWN_PIECE_BYTES: usize = 1 << 10;

/// Accepts connections and hands them on, until nobody takes them. `has_password` says whether clients have to give one.
pub(crate) async fn accept(
    listener: TcpListener,
    to: mpsc::Sender<io::Result<PlacedStream>>,
    has_password: bool,
) {
    let most = files::connections(files::GatewayPort::Log, CONNECTIONS_MAX);
    let clients = if has_password { ShownClients::ByPassword } else { ShownClients::Never };
    let slots = ConnectionSlots::new(most, clients);
    let together = Arc::new(UnknownBudget::new());
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
        let unknown = has_password.then(|| UnknownPace::begin(Arc::clone(&together)));
        if to.send(Ok(PlacedStream::new(held, unknown))).await.is_err() {
            return;
        }
    }
}

/// The bytes that may be read of all connections that have not given the password.
struct UnknownBudget(Mutex<BudgetSecond>);

struct BudgetSecond {
    /// Those that may be read until this second is over.
    left: usize,
    ends: Instant,
}

impl UnknownBudget {
    fn new() -> Self {
        let ends = Instant::now() + Duration::from_secs(1);
        Self(Mutex::new(BudgetSecond { left: UNKNOWN_BYTES_PER_SECOND_TOGETHER, ends }))
    }

    /// Takes a piece, or says when there may be one again.
    fn take(&self) -> Result<usize, Instant> {
        let mut second = lock(&self.0);
        let now = Instant::now();
        if second.ends <= now {
            second.ends = now + Duration::from_secs(1);
            second.left = UNKNOWN_BYTES_PER_SECOND_TOGETHER;
        }
        let piece = second.left.min(UNKNOWN_PIECE_BYTES);
        second.left -= piece;
        if piece > 0 { Ok(piece) } else { Err(second.ends) }
    }
}

/// How fast is read what a connection sends that has not given the password.
struct UnknownPace {
    /// Bytes that may be read until `second` is over.
    left: usize,
    second: Pin<Box<Sleep>>,
    /// Of these, those that it was given of what all have together.
    granted: usize,
    together: Arc<UnknownBudget>,
}

impl UnknownPace {
    fn begin(together: Arc<UnknownBudget>) -> Self {
        let second = Box::pin(sleep(Duration::from_secs(1)));
        let (left, granted) = (UNKNOWN_BYTES_PER_SECOND, UNKNOWN_FIRST_BYTES);
        Self { left, second, granted, together }
    }

    /// Ready when more may be read; the task is woken for that.
    fn poll(&mut self, cx: &mut Context<'_>, origin: &LogConnection) -> Poll<()> {
        loop {
            if self.second.as_mut().poll(cx).is_ready() {
                self.second.as_mut().reset(Instant::now() + Duration::from_secs(1));
                self.left = UNKNOWN_BYTES_PER_SECOND;
            }
            if self.left > 0 && self.granted == 0 {
                match self.together.take() {
                    Ok(piece) => self.granted = piece,
                    Err(again) => {
                        self.second.as_mut().reset(again);
                        self.left = 0;
                    }
                }
            }
            if self.left > 0 {
                return Poll::Ready(());
            }
            if self.second.as_mut().poll(cx).is_pending() {
                lock(&origin.paused).replace(cx.waker().clone());
                // The password may have arrived meanwhile.
                return if origin.slot.is_known() { Poll::Ready(()) } else { Poll::Pending };
            }
        }
    }

    /// So many bytes were read.
    fn read(&mut self, bytes: usize) {
        self.left = self.left.saturating_sub(bytes);
        self.granted = self.granted.saturating_sub(bytes);
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
            // It may have waited for the password, and be known by now.
            if held.slot().is_known() {
                *unknown = None;
            }
        }
        let Some(pace) = unknown else { return Pin::new(held).poll_read(cx, to) };
        // No more than it may read now: a buffer of the library has room for many frames.
        let most = pace.granted.min(pace.left).min(to.remaining());
        let mut part = ReadBuf::new(to.initialize_unfilled_to(most));
        let polled = Pin::new(held).poll_read(cx, &mut part);
        let bytes = part.filled().len();
        to.advance(bytes);
        pace.read(bytes);
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Wake;
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpStream;

    /// A waker that, when the last task has forgotten it, has the password given.
    struct ForgottenWaker(Arc<ConnectionSlot>);

    impl Wake for ForgottenWaker {
        fn wake(self: Arc<Self>) {}
    }

    impl Drop for ForgottenWaker {
        fn drop(&mut self) {
            self.0.show_known();
        }
    }

    /// Both ends of a connection to the port: the client's and the gateway's, of a client that has not given the password.
    async fn connected() -> (TcpStream, PlacedStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let at = listener.local_addr().expect("it listens");
        let client = TcpStream::connect(at).await.expect("it listens");
        let (stream, _) = listener.accept().await.expect("it was connected to");
        let slots = ConnectionSlots::new(4, ShownClients::ByPassword);
        let held =
            LimitedConnection::new(stream, &slots, IdleRule::Together(GREETING_BYTES, GREETING));
        let unknown = UnknownPace::begin(Arc::new(UnknownBudget::new()));
        (client, PlacedStream::new(held, Some(unknown)))
    }

    #[tokio::test]
    async fn a_client_that_gives_the_password_while_nothing_is_read_of_it_is_read_on() {
        let _limit = amcast_test_policy::time_limit();
        let (mut client, mut placed) = connected().await;
        client.write_all(b"next").await.expect("it is read");
        placed.unknown.as_mut().expect("it gave none").left = 0;
        let slot = Arc::clone(placed.held.slot());
        let mut read = |waker: &Waker| {
            let mut bytes = [0; 16];
            let mut to = ReadBuf::new(&mut bytes);
            let polled = Pin::new(&mut placed).poll_read(&mut Context::from_waker(waker), &mut to);
            (polled.map(|read| read.expect("the connection is whole")), to.filled().len())
        };
        let waits = Waker::from(Arc::new(ForgottenWaker(slot)));
        assert_eq!(read(&waits), (Poll::Pending, 0), "its second is not over");
        // Only the pace knows the waker now, and forgets it behind its first look at the password.
        drop(waits);
        let begun = Instant::now();
        loop {
            match read(Waker::noop()) {
                (Poll::Pending, _) => {}
                (Poll::Ready(()), bytes) => {
                    assert_eq!(bytes, 4, "no bytes are the end of a connection");
                    return;
                }
            }
            assert!(begun.elapsed() < Duration::from_secs(5), "it is not read");
            tokio::task::yield_now().await;
        }
    }
}

//! A listener for axum whose connections have [`ConnectionSlots`].

use super::connection_slots::{ConnectionSlots, IdleRule, LimitedConnection, ShownClients};
use super::dates;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpListener;
use tokio::time::sleep;

/// How long after a failure to accept, mostly for want of file descriptors, it is tried again.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

/// Accepts connections, and closes others for them.
pub(super) struct LimitedListener {
    listener: TcpListener,
    slots: Arc<ConnectionSlots>,
    manner: IdleRule,
    undated: UndatedServer,
}

/// Serves a connection while the host's clock shows no date that can be written.
pub(super) type UndatedServer = Box<dyn Fn(LimitedConnection) + Send>;

impl LimitedListener {
    /// Serves `most` connections at a time, as long as they behave in that manner. Those that come while the clock shows no
    /// date that can be written are given to `undated`.
    pub(super) fn new(
        listener: TcpListener,
        most: usize,
        manner: IdleRule,
        undated: UndatedServer,
    ) -> Self {
        Self { listener, slots: ConnectionSlots::new(most, ShownClients::Never), manner, undated }
    }
}

/// The first bytes of a connection of HTTP/2.
const HTTP2_BEGINS: &[u8] = b"PRI";

/// A connection that speaks HTTP/1 alone. One that begins with HTTP/2 ends: its streams are many, and requests on them
/// are answered side by side, so that a few such connections would hold all others up.
pub(super) struct Http1Connection {
    held: LimitedConnection,
    /// The number of its first bytes that were those of HTTP/2; none once another one was read.
    preface: Option<usize>,
}

impl Http1Connection {
    /// Whether it begins with HTTP/2, after these bytes.
    fn is_http2(&mut self, read: &[u8]) -> bool {
        for byte in read {
            let Some(at) = self.preface else { return false };
            self.preface = (HTTP2_BEGINS[at] == *byte).then_some(at + 1);
            if self.preface == Some(HTTP2_BEGINS.len()) {
                return true;
            }
        }
        false
    }
}

impl AsyncRead for Http1Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.preface == Some(HTTP2_BEGINS.len()) {
            return Poll::Ready(Ok(()));
        }
        let before = to.filled().len();
        let read = Pin::new(&mut self.held).poll_read(cx, to);
        if self.is_http2(&to.filled()[before..]) {
            to.set_filled(before);
            self.preface = Some(HTTP2_BEGINS.len());
        }
        read
    }
}

impl AsyncWrite for Http1Connection {
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

impl axum::serve::Listener for LimitedListener {
    type Io = Http1Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Http1Connection, SocketAddr) {
        loop {
            match self.listener.accept().await {
                Ok((stream, peer)) => {
                    let connection = LimitedConnection::new(stream, &self.slots, self.manner);
                    if dates::is_writable(SystemTime::now()) {
                        let preface = Some(0);
                        return (Http1Connection { held: connection, preface }, peer);
                    }
                    (self.undated)(connection);
                }
                Err(_) => sleep(ACCEPT_AGAIN).await,
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

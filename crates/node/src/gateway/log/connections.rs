//! Connections of clients: so many at a time, and none that never says a word.

use crate::gateway::files;
use crate::gateway::places::{ConnectionPlace, ConnectionPlaces, IdleRule, PlacedConnection};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::time::sleep;
use tonic::transport::server::Connected;

/// Connections served at a time; one more closes the one that has been idle for longest.
pub(crate) const CONNECTIONS_MAX: usize = 1024;

/// Bytes that every client sends at first: HTTP/2's preface, and the head of its settings.
const GREETING_BYTES: usize = 24 + 9;

/// How long that may take.
const GREETING: Duration = Duration::from_secs(5);

/// How long after a failure to accept, mostly for want of file descriptors, it is tried again.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

/// Accepts connections and hands them on, until nobody takes them.
pub(crate) async fn accept(listener: TcpListener, to: mpsc::Sender<io::Result<PlacedStream>>) {
    let places =
        ConnectionPlaces::new(files::connections(files::GatewayPort::Log, CONNECTIONS_MAX));
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
            PlacedConnection::new(stream, &places, IdleRule::Together(GREETING_BYTES, GREETING));
        if to.send(Ok(PlacedStream(held))).await.is_err() {
            return;
        }
    }
}

/// A connection that has a place.
pub(crate) struct PlacedStream(PlacedConnection);

/// The connection of a request.
pub(crate) type RequestOrigin = Arc<ConnectionPlace>;

impl Connected for PlacedStream {
    type ConnectInfo = RequestOrigin;

    fn connect_info(&self) -> RequestOrigin {
        Arc::clone(self.0.place())
    }
}

impl AsyncRead for PlacedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, to)
    }
}

impl AsyncWrite for PlacedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        from: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, from)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

//! Connections of clients: so many at a time, and none that never says a word.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::{Sleep, sleep};
use tonic::transport::server::Connected;

/// Connections served at a time; further ones wait to be accepted.
pub(crate) const CONNECTIONS_MAX: usize = 1024;

/// How long a connection may stand before its first byte.
const SILENCE: Duration = Duration::from_secs(10);

/// How long after a failure to accept, mostly for want of file descriptors, it is tried again.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

/// Accepts connections and hands them on, until nobody takes them.
pub(crate) async fn accept(listener: TcpListener, to: mpsc::Sender<io::Result<Held>>) {
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let place = Arc::clone(&room).acquire_owned().await;
        let place = place.expect("nobody closes the semaphore");
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
        let held = Held { stream, silence: Some(Box::pin(sleep(SILENCE))), _place: place };
        if to.send(Ok(held)).await.is_err() {
            return;
        }
    }
}

/// A connection that holds its place.
pub(crate) struct Held {
    stream: TcpStream,
    /// When it ends, unless a byte comes before.
    silence: Option<Pin<Box<Sleep>>>,
    _place: OwnedSemaphorePermit,
}

impl Connected for Held {
    type ConnectInfo = ();

    fn connect_info(&self) {}
}

impl AsyncRead for Held {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(cx, to);
        if read.is_ready() {
            self.silence = None;
        } else if let Some(silence) = &mut self.silence
            && silence.as_mut().poll(cx).is_ready()
        {
            // No more bytes: the connection is closed in good order.
            return Poll::Ready(Ok(()));
        }
        read
    }
}

impl AsyncWrite for Held {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        from: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, from)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

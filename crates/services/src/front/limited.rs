//! A listener that serves so many connections at a time, and none that only stands there.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep, sleep};

/// How long after a failure to accept, mostly for want of file descriptors, it is tried again.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

/// Accepts connections; further ones wait until one of those has ended.
pub(super) struct Limited {
    listener: TcpListener,
    room: Arc<Semaphore>,
    idle: Duration,
}

impl Limited {
    /// Serves `most` connections at a time, each until nothing came from it for `idle`.
    pub(super) fn new(listener: TcpListener, most: usize, idle: Duration) -> Self {
        Self { listener, room: Arc::new(Semaphore::new(most)), idle }
    }
}

impl axum::serve::Listener for Limited {
    type Io = Held;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Held, SocketAddr) {
        let room = Arc::clone(&self.room).acquire_owned().await;
        let room = room.expect("nobody closes the semaphore");
        loop {
            match self.listener.accept().await {
                Ok((stream, peer)) => {
                    let end = Box::pin(sleep(self.idle));
                    return (Held { stream, end, idle: self.idle, _room: room }, peer);
                }
                Err(_) => sleep(ACCEPT_AGAIN).await,
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection that holds its place.
pub(super) struct Held {
    stream: TcpStream,
    /// When it ends unless something comes before.
    end: Pin<Box<Sleep>>,
    idle: Duration,
    _room: OwnedSemaphorePermit,
}

impl AsyncRead for Held {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.stream).poll_read(cx, to) {
            // No more bytes: the connection is closed in good order.
            Poll::Pending => self.end.as_mut().poll(cx).map(Ok),
            Poll::Ready(read) => {
                let end = Instant::now() + self.idle;
                self.end.as_mut().reset(end);
                Poll::Ready(read)
            }
        }
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

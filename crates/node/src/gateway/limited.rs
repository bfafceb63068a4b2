//! A listener for axum whose connections have [`Places`].

use super::places::{Manner, Placed, Places};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::time::sleep;

/// How long after a failure to accept, mostly for want of file descriptors, it is tried again.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

/// Accepts connections, and closes others for them.
pub(super) struct Limited {
    listener: TcpListener,
    places: Arc<Places>,
    manner: Manner,
}

impl Limited {
    /// Serves `most` connections at a time, as long as they behave in that manner.
    pub(super) fn new(listener: TcpListener, most: usize, manner: Manner) -> Self {
        Self { listener, places: Places::new(most), manner }
    }
}

impl axum::serve::Listener for Limited {
    type Io = Placed;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Placed, SocketAddr) {
        loop {
            match self.listener.accept().await {
                Ok((stream, peer)) => {
                    return (Placed::new(stream, &self.places, self.manner), peer);
                }
                Err(_) => sleep(ACCEPT_AGAIN).await,
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

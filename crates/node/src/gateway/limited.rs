//! A listener for axum whose connections have [`ConnectionSlots`].

use super::connection_slots::{ConnectionSlots, IdleRule, LimitedConnection};
use super::dates;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
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
        Self { listener, slots: ConnectionSlots::new(most), manner, undated }
    }
}

impl axum::serve::Listener for LimitedListener {
    type Io = LimitedConnection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (LimitedConnection, SocketAddr) {
        loop {
            match self.listener.accept().await {
                Ok((stream, peer)) => {
                    let connection = LimitedConnection::new(stream, &self.slots, self.manner);
                    if dates::is_writable(SystemTime::now()) {
                        return (connection, peer);
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

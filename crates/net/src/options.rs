//! What a carrier is told at its start.

use crate::error::Error;
use amcast_core::limits::PAYLOAD_BYTES_MAX;
use amcast_core::{GroupSet, Span};
use std::net::SocketAddr;

/// Where a process is, and what it is a member of. Peers are listed by their pid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Peer {
    /// Where it takes connections.
    pub tcp: SocketAddr,
    /// Where it takes datagrams.
    pub udp: SocketAddr,
    /// The groups that it is a member of: who gets what is sent to a group.
    pub groups: GroupSet,
}

/// How a carrier behaves. All processes of a cluster should have the same.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// The cluster's id: processes of others are refused.
    pub cluster_id: u64,
    /// Where the chance in waiting times comes from. Different in each process, so that they do not
    /// dial all at once.
    pub seed: u64,
    /// The longest message, in bytes, on both lanes. The receiver may need so much memory for each
    /// peer.
    pub frame_bytes_max: usize,
    /// How much may wait for each peer on its stream, in bytes. A peer that lets more pile up loses
    /// its connection; more of it forgives longer silence and costs that much memory for each peer.
    pub queue_bytes_max: usize,
    /// How long until a connection that broke is dialled again, at first; doubled with each failure.
    pub redial_min: Span,
    /// How long at most between two attempts.
    pub redial_max: Span,
    /// How long a connection may take until both ends know each other.
    pub handshake_max: Span,
    /// After how long a connection on which nothing is acknowledged counts as broken. Millisecond
    /// steps. Protocols find a silent peer earlier by their own heartbeats; this frees the connection.
    pub silence_max: Span,
    /// The congestion control of streams, as the system names it; the system's own choice if none.
    /// On one machine, and on a network that drops nothing, `cubic` is over twice as fast as `bbr`.
    pub congestion: Option<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            cluster_id: 0,
            seed: 0,
            frame_bytes_max: 4 * PAYLOAD_BYTES_MAX,
            queue_bytes_max: 32 << 20,
            redial_min: Span::millis(10),
            redial_max: Span::millis(500),
            handshake_max: Span::secs(2),
            silence_max: Span::secs(5),
            congestion: None,
        }
    }
}

impl Options {
    /// Checks what depends on each other, once.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let wrong = |says| Err(Error::Options { says });
        if self.frame_bytes_max == 0 || self.frame_bytes_max > u32::MAX as usize / 2 {
            return wrong("frame_bytes_max: give 1 to 2147483647 bytes");
        }
        if self.queue_bytes_max < self.frame_bytes_max + crate::wire::LENGTH_BYTES {
            return wrong("queue_bytes_max is below frame_bytes_max + 4: no longest frame fits");
        }
        if self.redial_min == Span::ZERO || self.redial_min > self.redial_max {
            return wrong("redial_min: give more than 0 and at most redial_max");
        }
        if self.handshake_max == Span::ZERO {
            return wrong("handshake_max: give more than 0");
        }
        if self.silence_max < Span::millis(1) || self.silence_max > Span::secs(86_400) {
            return wrong("silence_max: give 1 ms to a day");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_sound_and_a_small_queue_is_refused() {
        let sound = Options::default();
        assert!(sound.check().is_ok());
        let small = Options { queue_bytes_max: sound.frame_bytes_max + 3, ..sound };
        let says = small.check().unwrap_err().to_string();
        assert!(says.contains("queue_bytes_max is below frame_bytes_max"), "{says}");
    }
}

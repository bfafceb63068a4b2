//! The options of a carrier, given at its start.

use crate::error::NetError;
use crate::peer_identity::PeerIdentity;
use crate::secret::Secret;
use crate::settings_digest::SettingsDigest;
use crate::wire::{HEAD_BYTES, PIECE_BYTES};
use amcast_core::limits::{FRAME_BYTES_MAX, GROUPS_MAX};
use amcast_core::{Gid, GroupSet, Span};
use std::net::{Ipv4Addr, SocketAddr};

/// Where a process is, and what it is a member of. Peers are listed by their pid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeerConfig {
    /// Where it takes connections.
    pub tcp: SocketAddr,
    /// Where it takes datagrams.
    pub udp: SocketAddr,
    /// The groups that it is a member of: who gets what is sent to a group.
    pub groups: GroupSet,
}

/// The interface that multicast uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Interface {
    /// The one that the system's routes say.
    System,
    /// The one that has this address; for IPv4.
    Address(Ipv4Addr),
    /// The one of this index, as `ip link` numbers them.
    Index(u32),
}

/// Less would hold hardly anything but heads.
const DATAGRAM_BYTES_MIN: usize = 256;

/// The most bytes that UDP over IPv4 takes.
const DATAGRAM_BYTES_MAX: usize = 65_507;

/// How a carrier behaves. All processes of a cluster should have the same.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NetOptions {
    /// The cluster's id: processes of others are refused.
    pub cluster_id: u64,
    /// The secret that the other processes of the cluster know, too, and nobody else does: a peer that does not prove it is
    /// believed nothing.
    pub secret: Secret,
    /// How many processes the cluster has, where a peer hosts several of them; 0 where each is one.
    /// Peers that say another number are refused.
    pub processes: u32,
    /// The settings on which the processes' behaviour depends: peers with other ones are refused.
    pub decides: SettingsDigest,
    /// By which number the disk is known on which this process keeps what it promised; 0 if it keeps
    /// nothing. No two disks have the same.
    pub disk: u64,
    /// By which number this start of the process is known, which no other has; 0 if by none.
    pub start: u64,
    /// Whether it began on its disk by asking the others what it had promised before.
    pub anew: bool,
    /// The identity of each peer from earlier lives of this process; empty if nothing is known.
    pub known: Vec<PeerIdentity>,
    /// Where the chance in waiting times comes from. Each process draws its own from it, so that they
    /// do not dial all at once.
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
    /// The longest datagram, in bytes. Longer than a network's packets less 28 bytes (48 with IPv6)
    /// gets cut into several, one of which lost loses all.
    pub datagram_bytes: usize,
    /// The rate at which datagrams leave at most, in bytes of datagrams per second: what the link of this process carries.
    /// Up to a millisecond's worth, or 64 KiB, leaves at once; the rest waits in this process. None if they leave as fast
    /// as the system takes them.
    pub datagram_bytes_per_s: Option<u64>,
    /// How many bytes of datagrams may wait to be sent when the network or the rate takes no more; more are lost. Where
    /// there is a rate, no more than leaves in a fifth of a second wait, or 256 KiB.
    pub datagram_queue_bytes_max: usize,
    /// How many bytes arriving datagrams may take until they are looked at; more are lost. The system
    /// may give less, which is remarked.
    pub receive_buffer_bytes: usize,
    /// How many bytes messages may take that come in pieces and are not whole yet.
    pub assembly_bytes_max: usize,
    /// Groups to which datagrams go as one, at this multicast address. To the members of others they
    /// go one by one, and to members that do not hear the address.
    pub multicast: Vec<(Gid, SocketAddr)>,
    /// The interface that multicast uses.
    pub interface: Interface,
    /// How many routers multicast may pass.
    pub multicast_hops: u8,
    /// The congestion control of streams, as the system names it; if none, `cubic` on the loopback, and
    /// the system's own choice elsewhere. Where nothing is dropped `cubic` is over twice as fast as `bbr`.
    pub congestion: Option<String>,
}

impl Default for NetOptions {
    fn default() -> Self {
        Self {
            cluster_id: 0,
            secret: Secret::default(),
            processes: 0,
            decides: SettingsDigest::default(),
            disk: 0,
            start: 0,
            anew: false,
            known: Vec::new(),
            seed: 0,
            frame_bytes_max: FRAME_BYTES_MAX,
            queue_bytes_max: 32 << 20,
            redial_min: Span::millis(10),
            redial_max: Span::millis(500),
            handshake_max: Span::secs(2),
            silence_max: Span::secs(5),
            datagram_bytes: 1_452,
            datagram_bytes_per_s: None,
            datagram_queue_bytes_max: 8 << 20,
            receive_buffer_bytes: 4 << 20,
            assembly_bytes_max: 16 << 20,
            multicast: Vec::new(),
            interface: Interface::System,
            multicast_hops: 1,
            congestion: None,
        }
    }
}

impl NetOptions {
    /// Checks what depends on each other, once.
    pub(crate) fn check(&self) -> Result<(), NetError> {
        let wrong = |says| Err(NetError::Options { says });
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
        if !(DATAGRAM_BYTES_MIN..=DATAGRAM_BYTES_MAX).contains(&self.datagram_bytes) {
            return wrong("datagram_bytes: give 256 to 65507");
        }
        if self.datagram_bytes_per_s == Some(0) {
            return wrong("datagram_bytes_per_s: give at least 1, or no rate");
        }
        let piece = self.datagram_bytes - HEAD_BYTES - PIECE_BYTES;
        if self.frame_bytes_max.div_ceil(piece) > usize::from(u16::MAX) {
            return wrong(
                "frame_bytes_max is over 65535 datagrams: lower it, or raise datagram_bytes",
            );
        }
        if self.multicast.iter().any(|(_, address)| !address.ip().is_multicast()) {
            return wrong("multicast: give addresses of 224.0.0.0/4 or ff00::/8");
        }
        if self.multicast.iter().any(|(group, _)| group.index() >= GROUPS_MAX) {
            return wrong("multicast: give groups from 0 to 63");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_sound_and_a_small_queue_is_refused() {
        let sound = NetOptions::default();
        assert!(sound.check().is_ok());
        let small = NetOptions { queue_bytes_max: sound.frame_bytes_max + 3, ..sound };
        let says = small.check().unwrap_err().to_string();
        assert!(says.contains("queue_bytes_max is below frame_bytes_max"), "{says}");
    }
}

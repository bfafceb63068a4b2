//! The reports of a carrier: events for the protocol, diagnostics for the log, counts for metrics.

use crate::error::{NetDiagnostic, NetDiagnostics};
use amcast_core::Pid;
use amcast_core::messages::{DatagramBacklog, MessageInput};
use std::collections::VecDeque;

/// The work of a carrier so far. Only grows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NetCounts {
    /// Messages to oneself, on either lane.
    pub own_messages: u64,
    /// Messages given to a stream.
    pub stream_sent: u64,
    /// Messages that came on a stream.
    pub stream_received: u64,
    /// Messages for a stream that were lost because the connection was down.
    pub dropped_down: u64,
    /// Connections given up because too much waited.
    pub overflows: u64,
    /// Connections that came to stand.
    pub connects: u64,
    /// Connections that were open and broke.
    pub breaks: u64,
    /// Attempts to connect.
    pub dials: u64,
    /// Connections refused, by either end.
    pub refused: u64,
    /// Connections of something that is not this program.
    pub strangers: u64,
    /// Bytes written to streams.
    pub stream_bytes_sent: u64,
    /// Bytes read from streams.
    pub stream_bytes_received: u64,
    /// System calls that wrote to streams.
    pub stream_writes: u64,
    /// System calls that read from streams.
    pub stream_reads: u64,
    /// Messages given to the lane of datagrams; one for a group is one.
    pub datagram_messages_sent: u64,
    /// Messages that came in datagrams.
    pub datagram_messages_received: u64,
    /// Datagrams handed to the system.
    pub datagrams_sent: u64,
    /// Of them, those that asked who hears the address of a group.
    pub probes_sent: u64,
    /// Of them, those that answered one such question alone; most answers go along with own questions.
    pub echoes_sent: u64,
    /// Messages to a group that were sent to one member alone, since it does not hear the group's address: one for each such
    /// member that is not down.
    pub multicast_copies: u64,
    /// Datagrams of peers that arrived.
    pub datagrams_received: u64,
    /// Datagrams lost because the socket took no more and too many waited.
    pub datagrams_dropped_full: u64,
    /// Datagrams that the system refused to send.
    pub datagrams_dropped_error: u64,
    /// Datagrams dropped that were not of this cluster, or not of this version.
    pub datagrams_strange: u64,
    /// Datagrams dropped that made no sense.
    pub datagrams_malformed: u64,
    /// Datagrams dropped that were of an earlier life of their sender.
    pub datagrams_old: u64,
    /// Datagrams dropped whose sender was not connected in this life yet.
    pub datagrams_early: u64,
    /// Messages in pieces that were given up before they were whole.
    pub assemblies_given_up: u64,
    /// System calls that sent datagrams.
    pub datagram_writes: u64,
    /// System calls that read datagrams, or found none.
    pub datagram_reads: u64,
    /// System calls that asked what is ready.
    pub looks: u64,
    /// System calls that slept.
    pub parks: u64,
    /// Remarks that nobody took in time.
    pub remarks_lost: u64,
}

/// A change of a connection, or of the room for datagrams, for the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LinkEvent {
    Up(Pid),
    Down(Pid),
    Backlog(DatagramBacklog),
}

impl LinkEvent {
    pub(crate) fn input(self) -> MessageInput<&'static [u8]> {
        match self {
            Self::Up(pid) => MessageInput::Up(pid),
            Self::Down(pid) => MessageInput::Down(pid),
            Self::Backlog(backlog) => MessageInput::Backlog(backlog),
        }
    }
}

/// Everything there is to tell.
#[derive(Debug, Default)]
pub(crate) struct CarrierEvents {
    /// Said before any message. Bounded: a round adds a few for each peer and one of the room for datagrams, and what
    /// a driver does between rounds one for each.
    pub(crate) news: VecDeque<LinkEvent>,
    pub(crate) remarks: NetDiagnostics,
    pub(crate) counts: NetCounts,
}

impl CarrierEvents {
    pub(crate) fn remark(&mut self, remark: NetDiagnostic) {
        self.counts.remarks_lost += self.remarks.put(remark);
    }
}

//! What a carrier has to tell: news for the protocol, remarks for the log, counts for metrics.

use crate::error::{Remark, Remarks};
use amcast_core::Pid;
use amcast_core::messages::In;
use std::collections::VecDeque;

/// What a carrier did so far. Only grows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Messages given to a stream, or to oneself.
    pub stream_sent: u64,
    /// Messages that came on a stream, or from oneself.
    pub stream_received: u64,
    /// Messages for a stream that were lost because the connection was down.
    pub dropped_down: u64,
    /// Connections given up because too much waited.
    pub overflows: u64,
    /// Connections that came to stand.
    pub connects: u64,
    /// Connections that stood and broke.
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
    /// System calls that asked what is ready.
    pub looks: u64,
    /// System calls that slept.
    pub parks: u64,
    /// Remarks that nobody took in time.
    pub remarks_lost: u64,
}

/// What the protocol must hear of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum News {
    Up(Pid),
    Down(Pid),
}

impl News {
    pub(crate) fn input(self) -> In<&'static [u8]> {
        match self {
            Self::Up(pid) => In::Up(pid),
            Self::Down(pid) => In::Down(pid),
        }
    }
}

/// Everything there is to tell.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// Said before any message. Bounded: a round adds a few for each peer, and what a driver does
    /// between rounds one for each.
    pub(crate) news: VecDeque<News>,
    pub(crate) remarks: Remarks,
    pub(crate) counts: Counts,
}

impl Told {
    pub(crate) fn remark(&mut self, remark: Remark) {
        self.counts.remarks_lost += self.remarks.put(remark);
    }
}

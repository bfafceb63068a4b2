//! The messages between processes.

use crate::layers::multicast_slots::MulticastHeading;
use alloc::sync::Arc;
use alloc::vec::Vec;
use amcast_core::codec::{ByteReader, Codec, CodecError};
use amcast_core::messages;
use core::fmt;

/// A reading of a group's logical clock. 0 is before every message.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(super) struct Timestamp(pub(super) u64);

impl Timestamp {
    /// No clock gets here by counting, so a larger one is nonsense; clocks cannot overflow.
    pub(super) const MAX: Self = Self(1 << 62);

    /// The one after this.
    pub(super) const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// A message between processes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum SkeenMessage {
    /// A client multicasts.
    Cast { heading: MulticastHeading, payload: Arc<[u8]> },
    /// A destination gave the multicast this timestamp.
    Propose { heading: MulticastHeading, timestamp: Timestamp },
    /// A destination delivered the multicast that this client has in `slot`.
    Ack { slot: u16, seq: u64 },
}

impl Codec for Timestamp {
    fn encode(&self, to: &mut Vec<u8>) {
        self.0.encode(to);
    }

    fn decode(from: &mut ByteReader<'_>) -> Result<Self, CodecError> {
        match u64::decode(from)? {
            t if t <= Self::MAX.0 => Ok(Self(t)),
            t => Err(CodecError::Unknown(t)),
        }
    }
}

messages! {
    enum SkeenMessage {
        1 => Cast { heading, payload },
        2 => Propose { heading, timestamp },
        3 => Ack { slot, seq },
    }
}

impl fmt::Display for SkeenMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cast { heading: h, payload } => {
                write!(f, "cast {:?} to {:?} in slot {}, ", h.msg, h.dst, h.slot)?;
                write!(f, "{} bytes", payload.len())
            }
            Self::Propose { heading: h, timestamp } => {
                write!(f, "propose {} for {:?} to {:?} ", timestamp.0, h.msg, h.dst)?;
                write!(f, "in slot {}", h.slot)
            }
            Self::Ack { slot, seq } => write!(f, "ack number {seq} in slot {slot}"),
        }
    }
}

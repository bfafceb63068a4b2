//! The messages between processes.

use crate::layers::multicast_slots::MulticastHeading;
use alloc::sync::Arc;
use amcast_core::messages;
use core::fmt;

/// A message between processes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum ByzCastMessage {
    /// A client multicasts, or a parent relays.
    Cast { heading: MulticastHeading, payload: Arc<[u8]> },
    /// A destination delivered the multicast that this client has in `slot`.
    Ack { slot: u16, seq: u64 },
}

messages! {
    enum ByzCastMessage {
        1 => Cast { heading, payload },
        2 => Ack { slot, seq },
    }
}

impl fmt::Display for ByzCastMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cast { heading: h, payload } => {
                write!(f, "cast {:?} to {:?} in slot {}, ", h.msg, h.dst, h.slot)?;
                write!(f, "{} bytes", payload.len())
            }
            Self::Ack { slot, seq } => write!(f, "ack number {seq} in slot {slot}"),
        }
    }
}

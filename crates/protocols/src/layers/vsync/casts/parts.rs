//! Messages that are larger than a packet: cut where they leave, put together where they are handed
//! over. Each part is a cast (or a message to one member) of its own, with a number, acknowledged and
//! retransmitted like any other, so that a view ends with the same parts at all members that continue. Parts of a
//! message whose last one is not among them are dropped by all alike: nobody was handed it, and its
//! sender sends it again in the next view.

use crate::layers::vsync::VsyncSettings;
use crate::layers::vsync::packet::HEAD_BYTES;
use alloc::sync::Arc;
use alloc::vec::Vec;
use amcast_core::groupcast::Grade;
use amcast_core::messages::Lane;

/// How large a part on a stream is, if packets are not larger still.
pub(crate) const STREAM_PART_BYTES: usize = 32 << 10;

/// How small a part on a datagram is at least, however small packets are.
const DATAGRAM_PART_BYTES: usize = 32;

/// How many bytes of a message travel as one part, where packets have about so many.
pub(crate) const fn part_bytes(lane: Lane, packet_bytes: usize) -> usize {
    let (part, least) = match lane {
        Lane::Stream => (packet_bytes, STREAM_PART_BYTES),
        Lane::Datagram => (packet_bytes.saturating_sub(HEAD_BYTES), DATAGRAM_PART_BYTES),
    };
    if part > least { part } else { least }
}

/// The parts that came of a message.
#[derive(Clone, Debug, Default)]
pub(crate) struct CastPart {
    bytes: Vec<u8>,
    /// It grew beyond all bounds: what follows of it is dropped.
    overrun: bool,
}

/// The parts of messages of one sender that are not whole: casts by grade, and messages.
#[derive(Clone, Debug, Default)]
pub(crate) struct CastAssembly {
    plain: CastPart,
    uniform: CastPart,
    stable: CastPart,
    message: CastPart,
}

impl CastAssembly {
    /// The parts of a cast of this grade.
    pub(crate) const fn cast(&mut self, grade: Grade) -> &mut CastPart {
        match grade {
            Grade::Plain => &mut self.plain,
            Grade::Uniform => &mut self.uniform,
            Grade::Stable => &mut self.stable,
        }
    }

    /// The parts of a message.
    pub(crate) const fn message(&mut self) -> &mut CastPart {
        &mut self.message
    }
}

impl CastPart {
    /// Takes in a part of a message of at most `most` bytes; gives the message when it is whole.
    ///
    /// # Errors
    /// When it gets larger than that.
    pub(crate) fn take(
        &mut self,
        bytes: &[u8],
        more: bool,
        most: usize,
    ) -> Result<Option<Vec<u8>>, ()> {
        let too_large = !self.overrun && self.bytes.len() + bytes.len() > most;
        if too_large {
            *self = Self { bytes: Vec::new(), overrun: true };
        }
        if !self.overrun {
            self.bytes.extend_from_slice(bytes);
        }
        let whole = (!more).then(|| core::mem::take(self));
        match whole {
            _ if too_large => Err(()),
            Some(Self { bytes, overrun: false }) => Ok(Some(bytes)),
            _ => Ok(None),
        }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.bytes.is_empty() && !self.overrun
    }
}

/// The size of parts.
#[derive(Clone, Copy, Debug)]
pub(super) struct PartSize(usize);

impl PartSize {
    pub(super) fn new(settings: &VsyncSettings) -> Self {
        Self(part_bytes(settings.lane, settings.packet_bytes))
    }

    /// A message in parts, and whether more of it follow each.
    pub(super) fn cut(self, bytes: &[u8]) -> impl Iterator<Item = (bool, Arc<[u8]>)> + use<> {
        // A message that fits is not copied twice.
        let parts: Vec<Arc<[u8]>> = match bytes.len() <= self.0 {
            true => alloc::vec![Arc::from(bytes)],
            false => bytes.chunks(self.0).map(Arc::from).collect(),
        };
        let last = parts.len() - 1;
        parts.into_iter().enumerate().map(move |(at, bytes)| (at < last, bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_put_together_and_one_without_end_is_dropped() {
        let mut part = CastPart::default();
        assert_eq!(part.take(b"ab", true, 5), Ok(None));
        assert_eq!(part.take(b"cde", false, 5), Ok(Some(b"abcde".to_vec())));
        assert!(part.is_empty());
        assert_eq!(part.take(b"abc", true, 5), Ok(None));
        assert_eq!(part.take(b"def", true, 5), Err(()), "told once");
        assert_eq!(part.take(b"g", true, 5), Ok(None));
        assert!(part.bytes.is_empty() && !part.is_empty());
        assert_eq!(part.take(b"h", false, 5), Ok(None), "its end");
        assert_eq!(part.take(b"next", false, 5), Ok(Some(b"next".to_vec())));
    }
}

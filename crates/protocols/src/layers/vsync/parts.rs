//! Messages that are larger than a packet: cut where they leave, put together where they are handed
//! over. Each part is a cast (or a message to one member) of its own, with a number, acknowledged and
//! retransmitted like any other, so that a view ends with the same parts at all members that continue. Parts of a
//! message whose last one is not among them are dropped by all alike: nobody was handed it, and its
//! sender sends it again in the next view.

use super::casts::RetainedCast;
use super::packet::HEAD_BYTES;
use super::{Vsync, VsyncPacket};
use alloc::sync::Arc;
use alloc::vec::Vec;
use amcast_core::codec::Codec;
use amcast_core::groupcast::{Grade, Groupcast};
use amcast_core::messages::{Lane, Messages};
use amcast_core::step::Note;
use amcast_core::{Outbox, Pid, Protocol};

/// How large a part on a stream is, if packets are not larger still.
pub(crate) const STREAM_PART_BYTES: usize = 32 << 10;

/// How small a part on a datagram is at least, however small packets are.
const DATAGRAM_PART_BYTES: usize = 32;

/// The parts that came of a message.
#[derive(Clone, Debug, Default)]
struct CastPart {
    bytes: Vec<u8>,
    /// It grew beyond all bounds: what follows of it is dropped.
    overrun: bool,
}

/// The parts of messages of one sender that are not whole: casts by grade, and messages.
#[derive(Clone, Debug, Default)]
pub(super) struct CastAssembly {
    plain: CastPart,
    uniform: CastPart,
    stable: CastPart,
    message: CastPart,
}

impl CastPart {
    /// Takes in a part of a message of at most `most` bytes; gives the message when it is whole.
    ///
    /// # Errors
    /// When it gets larger than that.
    fn take(&mut self, bytes: &[u8], more: bool, most: usize) -> Result<Option<Vec<u8>>, ()> {
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

    const fn is_empty(&self) -> bool {
        self.bytes.is_empty() && !self.overrun
    }
}

impl<M, P> Vsync<M, P>
where
    M: Codec + core::fmt::Debug + 'static,
    P: Protocol<Medium = Groupcast<M>>,
{
    /// A message in parts, and whether more of it follow each.
    pub(super) fn cut(&self, bytes: &[u8]) -> impl Iterator<Item = (bool, Arc<[u8]>)> + use<M, P> {
        let packet = self.settings.packet_bytes;
        let part = match self.settings.lane {
            Lane::Stream => packet.max(STREAM_PART_BYTES),
            Lane::Datagram => packet.saturating_sub(HEAD_BYTES).max(DATAGRAM_PART_BYTES),
        };
        // A message that fits is not copied twice.
        let parts: Vec<Arc<[u8]>> = match bytes.len() <= part {
            true => alloc::vec![Arc::from(bytes)],
            false => bytes.chunks(part).map(Arc::from).collect(),
        };
        let last = parts.len() - 1;
        parts.into_iter().enumerate().map(move |(at, bytes)| (at < last, bytes))
    }

    /// Hands over a cast of `from`, once it is whole.
    pub(super) fn give(
        &mut self,
        from: Pid,
        kept: RetainedCast,
        out: &mut Outbox<Messages<VsyncPacket>>,
    ) {
        let parts = &mut self.parts[from.index()];
        let part = match kept.grade {
            Grade::Plain => &mut parts.plain,
            Grade::Uniform => &mut parts.uniform,
            Grade::Stable => &mut parts.stable,
        };
        let taken = match part.is_empty() && !kept.more {
            true => return self.give_whole(from, &kept.bytes, out),
            false => part.take(&kept.bytes, kept.more, self.settings.message_bytes),
        };
        self.give_taken(from, taken, out);
    }

    /// Hands over a message of `from` for this member alone, once it is whole.
    pub(super) fn give_message(
        &mut self,
        from: Pid,
        more: bool,
        bytes: &[u8],
        out: &mut Outbox<Messages<VsyncPacket>>,
    ) {
        let part = &mut self.parts[from.index()].message;
        let taken = match part.is_empty() && !more {
            true => return self.give_whole(from, bytes, out),
            false => part.take(bytes, more, self.settings.message_bytes),
        };
        self.give_taken(from, taken, out);
    }

    fn give_taken(
        &mut self,
        from: Pid,
        taken: Result<Option<Vec<u8>>, ()>,
        out: &mut Outbox<Messages<VsyncPacket>>,
    ) {
        match taken {
            Ok(Some(bytes)) => {
                out.mark("vsync-in-parts");
                self.give_whole(from, &bytes, out);
            }
            Ok(None) => {}
            Err(()) => out.note(Note::Malformed(from, "a message in parts is larger than any")),
        }
    }

    /// A view is over: nothing more comes of what is not whole.
    pub(super) fn forget_parts(&mut self) {
        self.parts.iter_mut().for_each(|parts| *parts = CastAssembly::default());
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

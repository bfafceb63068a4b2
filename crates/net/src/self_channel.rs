//! Messages of a process to itself: they arrive like any other, and are never lost.

use core::ops::Range;

/// Length, in bytes, of the head of a message.
const LENGTH: usize = size_of::<usize>();

/// Messages of a process to itself. It holds the messages that the protocol has in flight to itself and no more, so
/// it is bounded as the protocol is.
#[derive(Debug, Default)]
pub(crate) struct SelfChannel {
    /// Sent since the round began: for the next one, so that a round ends.
    filling: Vec<u8>,
    /// Given out in this round.
    giving: Vec<u8>,
    given: usize,
}

impl SelfChannel {
    /// Puts a message in.
    pub(crate) fn put(&mut self, message: &[u8]) {
        self.filling.extend_from_slice(&message.len().to_ne_bytes());
        self.filling.extend_from_slice(message);
    }

    /// How many bytes wait.
    pub(crate) fn len(&self) -> usize {
        self.filling.len() + self.giving.len() - self.given
    }

    /// Begins a round. Messages that were not taken out of the last one come first.
    pub(crate) fn begin_round(&mut self) {
        if self.given == self.giving.len() {
            self.giving.clear();
            self.given = 0;
            core::mem::swap(&mut self.filling, &mut self.giving);
        }
    }

    /// Where the next message of this round lies.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<Range<usize>> {
        let length = self.giving[self.given..].first_chunk::<LENGTH>()?;
        let begin = self.given + LENGTH;
        self.given = begin + usize::from_ne_bytes(*length);
        Some(begin..self.given)
    }

    /// A message of this round.
    #[inline]
    pub(crate) fn bytes(&self, at: Range<usize>) -> &[u8] {
        &self.giving[at]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(own: &mut SelfChannel) -> Vec<Vec<u8>> {
        own.begin_round();
        let mut messages = Vec::new();
        while let Some(at) = own.next() {
            messages.push(own.bytes(at).to_vec());
            own.put(b"answer");
        }
        messages
    }

    #[test]
    fn what_is_sent_in_a_round_arrives_in_the_next_one() {
        let mut own = SelfChannel::default();
        own.put(b"a");
        own.put(b"");
        assert_eq!(round(&mut own), [&b"a"[..], b""]);
        assert_eq!(round(&mut own), [b"answer", b"answer"]);
    }

    #[test]
    fn what_a_round_left_comes_first_in_the_next_one() {
        let mut own = SelfChannel::default();
        own.put(b"a");
        own.put(b"b");
        own.begin_round();
        assert!(own.next().is_some());
        own.put(b"c");
        assert_eq!(round(&mut own), [b"b"]);
        assert_eq!(round(&mut own)[0], b"c");
        assert!(own.len() > 0);
    }
}

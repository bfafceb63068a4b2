//! The own messages of a process on a group, until they are delivered: gathered into batches, sent in order, and sent
//! once more in the next view as far as they were not delivered.

use super::batch::{Batch, OpenBatch};
use alloc::collections::VecDeque;

/// How large a batch of more than one message gets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchLimits {
    /// Bytes, at most.
    pub(crate) bytes: usize,
    /// Messages, at most.
    pub(crate) messages: usize,
}

/// Own messages that are not delivered at their sender yet.
#[derive(Debug)]
pub(crate) struct OutgoingBatches {
    limits: BatchLimits,
    /// Batches that take no more messages, in order.
    sealed: VecDeque<Batch>,
    /// How many of them, from the front, are sent in this view.
    sent: usize,
    /// The messages behind those.
    open: OpenBatch,
    messages: usize,
    payload_bytes: usize,
}

impl OutgoingBatches {
    /// No messages.
    pub(crate) fn new(limits: BatchLimits) -> Self {
        Self {
            limits,
            sealed: VecDeque::new(),
            sent: 0,
            open: OpenBatch::default(),
            messages: 0,
            payload_bytes: 0,
        }
    }

    /// Takes in a message: it goes with those that wait, as far as a batch may grow.
    pub(crate) fn gather(&mut self, seq: u64, payload: &[u8]) {
        let BatchLimits { bytes, messages } = self.limits;
        if self.open.bytes_with(payload.len()) > bytes || self.open.len() >= messages {
            self.seal();
        }
        self.open.push(seq, payload);
        self.messages += 1;
        self.payload_bytes += payload.len();
    }

    /// Ends the batch that is being gathered: it takes no more messages.
    pub(crate) fn seal(&mut self) {
        self.sealed.extend(self.open.seal());
    }

    /// How many bytes the batch that is being gathered has.
    pub(crate) fn open_bytes(&self) -> usize {
        self.open.bytes()
    }

    /// How many messages there are, sent or not.
    pub(crate) const fn messages(&self) -> usize {
        self.messages
    }

    /// How many more messages of `bytes` bytes each fit into a window of so many messages and bytes.
    pub(crate) fn room(&self, window: usize, window_bytes: usize, bytes: usize) -> usize {
        let count = window.saturating_sub(self.messages);
        count.min(window_bytes.saturating_sub(self.payload_bytes) / bytes.max(1))
    }

    /// How many batches are sent in this view, and not delivered yet.
    pub(crate) const fn sent(&self) -> usize {
        self.sent
    }

    /// How many batches are not sent yet.
    pub(crate) fn unsent(&self) -> usize {
        self.sealed.len() - self.sent + usize::from(self.open.len() > 0)
    }

    /// How many messages are in the next batch to send, if there is one.
    pub(crate) fn next_len(&self) -> Option<usize> {
        let gathered = Some(self.open.len()).filter(|&len| len > 0);
        self.sealed.get(self.sent).map(Batch::len).or(gathered)
    }

    /// Whether the next batch to send takes no more messages.
    pub(crate) fn next_is_sealed(&self) -> bool {
        self.sent < self.sealed.len()
    }

    /// Bytes of the payloads of the next batch to send, if it takes no more messages; else 0.
    pub(crate) fn next_bytes(&self) -> usize {
        self.sealed.get(self.sent).map_or(0, Batch::payload_bytes)
    }

    /// Bytes of the payloads that are sent in this view, and not delivered yet.
    pub(crate) fn sent_bytes(&self) -> usize {
        self.sealed.iter().take(self.sent).map(Batch::payload_bytes).sum()
    }

    /// Bytes of the payloads that are not sent yet.
    pub(crate) fn unsent_bytes(&self) -> usize {
        self.payload_bytes - self.sent_bytes()
    }

    /// The next batch to send; it counts as sent from here on.
    pub(crate) fn next(&mut self) -> Option<Batch> {
        if self.sent == self.sealed.len() {
            self.seal();
        }
        let batch = self.sealed.get(self.sent).cloned()?;
        self.sent += 1;
        Some(batch)
    }

    /// A view begins: none counts as sent.
    pub(crate) const fn restart(&mut self) {
        self.sent = 0;
    }

    /// Keeps those that are `kept`, by place and batch, none of which counts as sent.
    pub(crate) fn retain(&mut self, kept: impl Fn(usize, &Batch) -> bool) {
        let mut at = 0;
        self.sealed.retain(|batch| {
            at += 1;
            kept(at - 1, batch)
        });
        self.sent = 0;
        self.seal();
        self.messages = self.sealed.iter().map(Batch::len).sum();
        self.payload_bytes = self.sealed.iter().map(Batch::payload_bytes).sum();
    }

    /// Gives up all messages, the gathered ones too.
    pub(crate) fn clear(&mut self) {
        self.seal();
        self.retain(|_, _| false);
    }

    /// The batch that begins with this message is delivered; those before it are, too, or were given up with the view.
    pub(crate) fn delivered(&mut self, first: u64) {
        let Some(at) = self.sealed.iter().position(|batch| batch.first() == first) else { return };
        for batch in self.sealed.drain(..=at) {
            self.messages -= batch.len();
            self.payload_bytes -= batch.payload_bytes();
        }
        self.sent = self.sent.saturating_sub(at + 1);
    }

    /// The sender's number of each message, and whether it is sent in this view.
    pub(crate) fn waiting(&self, tell: &mut dyn FnMut(u64, bool)) {
        for (at, batch) in self.sealed.iter().enumerate() {
            batch.messages().for_each(|(seq, _)| tell(seq, at < self.sent));
        }
        self.open.seqs().for_each(|seq| tell(seq, false));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn gathered(seqs: core::ops::RangeInclusive<u64>) -> OutgoingBatches {
        let mut all = OutgoingBatches::new(BatchLimits { bytes: 1000, messages: 2 });
        seqs.for_each(|seq| all.gather(seq, &[0; 10]));
        all
    }

    fn waiting(all: &OutgoingBatches) -> Vec<(u64, bool)> {
        let mut found = Vec::new();
        all.waiting(&mut |seq, sent| found.push((seq, sent)));
        found
    }

    #[test]
    fn nothing_is_left_of_messages_that_are_given_up() {
        let mut all = gathered(1..=5);
        assert_eq!(all.next().map(|batch| batch.first()), Some(1));
        all.clear();
        assert_eq!((all.messages(), all.unsent_bytes(), all.next()), (0, 0, None));
        assert_eq!((waiting(&all), all.room(4, 40, 10)), (Vec::new(), 4));
    }

    #[test]
    fn batches_are_sent_in_order_and_leave_when_they_are_delivered() {
        let mut all = gathered(1..=5);
        assert_eq!((all.unsent(), all.next_len(), all.messages()), (3, Some(2), 5));
        assert_eq!(all.next().map(|batch| batch.first()), Some(1));
        assert_eq!(all.next().map(|batch| batch.first()), Some(3));
        assert_eq!((all.sent(), all.unsent(), all.next_len()), (2, 1, Some(1)));
        assert!(!all.next_is_sealed() && all.unsent_bytes() == 10 && all.open_bytes() == 22);
        assert_eq!(waiting(&all)[3..], [(4, true), (5, false)]);
        all.delivered(1);
        assert_eq!((all.sent(), all.messages(), all.room(5, 100, 10)), (1, 3, 2));
        assert_eq!(all.room(50, 100, 10), 7, "as many bytes as are left");
        all.delivered(9);
        assert_eq!(all.messages(), 3, "no batch begins so");
        assert_eq!(all.next().map(|batch| batch.first()), Some(5));
        assert!(all.next().is_none() && all.unsent() == 0);
    }

    #[test]
    fn the_next_view_sends_once_more_and_an_exclusion_keeps_some() {
        let mut all = gathered(1..=5);
        while all.next().is_some() {}
        all.restart();
        assert_eq!((all.sent(), all.unsent()), (0, 3));
        all.gather(6, &[0; 4]);
        all.retain(|at, batch| at > 0 && batch.last() > 4);
        assert_eq!((all.messages(), all.unsent(), all.room(9, 100, 1)), (2, 2, 7));
        assert_eq!(waiting(&all), [(5, false), (6, false)]);
    }
}

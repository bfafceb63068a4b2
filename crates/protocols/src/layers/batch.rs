//! Batches: what one process multicasts at a time travels, is numbered and is delivered as one.

use crate::layers::compact::{bytes, number};
use alloc::sync::Arc;
use alloc::vec::Vec;
use amcast_core::codec::{ByteReader, Codec, CodecError, put_bytes};
use core::fmt;

/// Bytes of an entry besides its payload: the number of the message, and a length.
const ENTRY_BYTES: usize = 8 + 4;

/// Messages of one sender, at least one, in its order. Copies share the bytes.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Batch {
    count: u32,
    /// An entry each: the sender's number of the message, then its payload behind a length.
    entries: Arc<[u8]>,
}

impl Batch {
    /// How many messages.
    pub(crate) const fn len(&self) -> usize {
        self.count as usize
    }

    /// The sender's number of its first message.
    pub(crate) fn first(&self) -> u64 {
        self.messages().next().map_or(0, |(seq, _)| seq)
    }

    /// The sender's number of its last message.
    pub(crate) fn last(&self) -> u64 {
        self.messages().last().map_or(0, |(seq, _)| seq)
    }

    /// Its messages: the sender's number of each, and its payload.
    pub(crate) fn messages(&self) -> impl Iterator<Item = (u64, &[u8])> {
        entries(&self.entries)
    }

    /// All its entries, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.entries.len()
    }

    /// Payloads, in bytes.
    pub(crate) fn payload_bytes(&self) -> usize {
        self.entries.len() - self.len() * ENTRY_BYTES
    }
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.messages().map(|(seq, payload)| (seq, payload.len()));
        f.debug_map().entries(shown).finish()
    }
}

fn entries(bytes: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    let mut rest = ByteReader::new(bytes);
    core::iter::from_fn(move || entry(&mut rest).ok())
}

fn entry<'a>(from: &mut ByteReader<'a>) -> Result<(u64, &'a [u8]), CodecError> {
    Ok((u64::decode(from)?, from.bytes()?))
}

impl Codec for Batch {
    fn encode(&self, to: &mut Vec<u8>) {
        number::encode(&self.count, to);
        bytes::encode(&self.entries, to);
    }

    fn decode(from: &mut ByteReader<'_>) -> Result<Self, CodecError> {
        let count = number::decode::<u32>(from)?;
        let bytes = bytes::take(from)?;
        let mut rest = ByteReader::new(bytes);
        let mut last = None;
        let mut found = 0_u32;
        while !rest.is_empty() {
            let (seq, _) = entry(&mut rest)?;
            if last.is_some_and(|last| seq <= last) {
                return Err(CodecError::Unknown(seq));
            }
            (last, found) = (Some(seq), found + 1);
        }
        if found == 0 || found != count {
            return Err(CodecError::Unknown(u64::from(count)));
        }
        Ok(Self { count, entries: Arc::from(bytes) })
    }
}

/// A batch that is being gathered.
#[derive(Clone, Debug, Default)]
pub(crate) struct OpenBatch {
    count: u32,
    entries: Vec<u8>,
}

impl OpenBatch {
    /// Puts a message behind the others.
    pub(crate) fn push(&mut self, seq: u64, payload: &[u8]) {
        self.count += 1;
        seq.encode(&mut self.entries);
        put_bytes(payload, &mut self.entries);
    }

    /// How many messages.
    pub(crate) const fn len(&self) -> usize {
        self.count as usize
    }

    /// How many bytes it has.
    pub(crate) const fn bytes(&self) -> usize {
        self.entries.len()
    }

    /// How many bytes it has with a payload of so many more.
    pub(crate) const fn bytes_with(&self, payload: usize) -> usize {
        self.entries.len() + ENTRY_BYTES + payload
    }

    /// The sender's number of each message.
    pub(crate) fn seqs(&self) -> impl Iterator<Item = u64> {
        entries(&self.entries).map(|(seq, _)| seq)
    }

    /// The run; the next one begins. None if nothing is in it.
    pub(crate) fn seal(&mut self) -> Option<Batch> {
        if self.count == 0 {
            return None;
        }
        let run = Batch { count: self.count, entries: Arc::from(&self.entries[..]) };
        self.count = 0;
        self.entries.clear();
        Some(run)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(of: &[(u64, &[u8])]) -> Batch {
        let mut open = OpenBatch::default();
        of.iter().for_each(|(seq, payload)| open.push(*seq, payload));
        open.seal().expect("something is in it")
    }

    #[test]
    fn a_run_has_what_was_put_in_and_reads_back() {
        let run = run(&[(3, b"ab"), (4, b""), (9, b"c")]);
        assert_eq!((run.len(), run.first(), run.payload_bytes()), (3, 3, 3));
        let all: Vec<_> = run.messages().collect();
        assert_eq!(all, [(3, &b"ab"[..]), (4, b""), (9, b"c")]);
        let mut bytes = Vec::new();
        run.encode(&mut bytes);
        assert_eq!(Batch::decode(&mut ByteReader::new(&bytes)), Ok(run));
    }

    #[test]
    fn an_open_run_is_empty_again_once_it_is_sealed() {
        let mut open = OpenBatch::default();
        assert!(open.seal().is_none());
        open.push(1, b"x");
        assert_eq!((open.len(), open.bytes_with(5)), (1, 13 + 12 + 5));
        assert_eq!(open.seqs().collect::<Vec<_>>(), [1]);
        assert!(open.seal().is_some() && open.seal().is_none() && open.len() == 0);
    }

    #[test]
    fn what_is_empty_or_out_of_order_or_miscounted_is_no_run() {
        let encoded = |count: u32, entries: &[u8]| {
            let mut bytes = Vec::new();
            number::encode(&count, &mut bytes);
            bytes::put(entries, &mut bytes);
            Batch::decode(&mut ByteReader::new(&bytes))
        };
        let good = run(&[(1, b"a"), (2, b"b")]);
        assert_eq!(encoded(2, &good.entries), Ok(good.clone()));
        assert!(encoded(1, &good.entries).is_err() && encoded(3, &good.entries).is_err());
        assert!(encoded(0, &[]).is_err());
        let twice = [&good.entries[..], &good.entries[..]].concat();
        assert!(encoded(4, &twice).is_err(), "they do not grow");
        assert!(encoded(2, &good.entries[..good.entries.len() - 1]).is_err());
    }
}

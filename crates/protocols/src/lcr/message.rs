//! The message between members of a group.

use crate::layers::batch::Batch;
use alloc::vec::Vec;
use amcast_core::messages;

/// Messages of the application at the sender, with the place of all of them in the order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct LcrMessage {
    /// How many batches of the members up to the sender, by rank, the sender had when it sent this one, with this one.
    pub(super) clock: Vec<u64>,
    pub(super) batch: Batch,
}

messages! {
    struct LcrMessage { clock, batch }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layers::batch::OpenBatch;
    use amcast_core::codec::{ByteReader, Codec};

    #[test]
    fn a_message_reads_back_and_no_shortened_one_does() {
        let mut open = OpenBatch::default();
        open.push(3, b"xyz");
        let batch = open.seal().expect("something is in it");
        let message = LcrMessage { clock: alloc::vec![4, 0, 9], batch };
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        let mut reader = ByteReader::new(&bytes);
        assert_eq!(LcrMessage::decode(&mut reader), Ok(message));
        assert!(reader.is_empty());
        for cut in 0..bytes.len() {
            assert!(LcrMessage::decode(&mut ByteReader::new(&bytes[..cut])).is_err());
        }
    }
}

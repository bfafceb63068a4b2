//! The message between members of a group.

use crate::layers::batch::Batch;
use alloc::vec::Vec;
use amcast_core::messages;

/// Messages of the application at the sender, or a vote alone, with all that it follows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct TotoMessage {
    /// Of each member, by rank, how many messages of the view it follows, with itself.
    pub(super) follows: Vec<u64>,
    /// None where the sender has nothing to send: it votes.
    pub(super) batch: Option<Batch>,
}

messages! {
    struct TotoMessage { follows, batch }
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
        for batch in [open.seal(), None] {
            let message = TotoMessage { follows: alloc::vec![4, 0, 9], batch };
            let mut bytes = Vec::new();
            message.encode(&mut bytes);
            let mut reader = ByteReader::new(&bytes);
            assert_eq!(TotoMessage::decode(&mut reader), Ok(message));
            assert!(reader.is_empty());
            for cut in 0..bytes.len() {
                assert!(TotoMessage::decode(&mut ByteReader::new(&bytes[..cut])).is_err());
            }
        }
    }
}

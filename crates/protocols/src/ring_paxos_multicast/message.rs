//! The messages between members of a group.

use crate::layers::batch::Batch;
use alloc::vec::Vec;
use amcast_core::{Pid, messages};
use core::fmt;

/// The identity of a value (`c-vid`). The coordinator of a round gives each instance one value, so round and instance
/// name it: acceptors and learners agree on identities, and values travel once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ValueId {
    /// The round (`c-rnd`): the number of the view.
    pub(super) round: u64,
    /// The instance of consensus. Those of a round are numbered from 1.
    pub(super) instance: u64,
}

/// The value of an instance: batches, each of one proposer, in the order in which they are delivered.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct ProposedValue {
    pub(super) batches: Vec<(Pid, Batch)>,
}

/// A message of a member.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum RingPaxosMessage {
    /// To the coordinator: messages of the application at the sender.
    Propose { batch: Batch },
    /// To all: the value of an instance with its identity, and the instance up to which values of this round are decided.
    Phase2A { id: ValueId, value: ProposedValue, decided: u64 },
    /// To the successor in the ring: the sender and all acceptors before it voted for this value, and for all earlier
    /// ones of its round.
    Phase2B { id: ValueId },
    /// To all: this value is decided, and all earlier ones of its round.
    Decision { id: ValueId },
}

messages! {
    struct ValueId { round, instance }
    struct ProposedValue { batches }
    enum RingPaxosMessage {
        1 => Propose { batch },
        2 => Phase2A { id, value, decided },
        3 => Phase2B { id },
        4 => Decision { id },
    }
}

impl fmt::Display for ValueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "value {} of round {}", self.instance, self.round)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layers::batch::OpenBatch;
    use alloc::string::ToString;
    use amcast_core::codec::{ByteReader, Codec};

    #[test]
    fn every_message_reads_back_and_no_shortened_one_does() {
        let mut open = OpenBatch::default();
        open.push(3, b"xyz");
        let batch = open.seal().expect("something is in it");
        let id = ValueId { round: 4, instance: 9 };
        let batches = alloc::vec![(Pid(1), batch.clone()), (Pid(0), batch.clone())];
        let all = [
            RingPaxosMessage::Propose { batch },
            RingPaxosMessage::Phase2A { id, value: ProposedValue { batches }, decided: 8 },
            RingPaxosMessage::Phase2B { id },
            RingPaxosMessage::Decision { id },
        ];
        for message in all {
            let mut bytes = Vec::new();
            message.encode(&mut bytes);
            let mut reader = ByteReader::new(&bytes);
            assert_eq!(RingPaxosMessage::decode(&mut reader), Ok(message));
            assert!(reader.is_empty());
            for cut in 0..bytes.len() {
                assert!(RingPaxosMessage::decode(&mut ByteReader::new(&bytes[..cut])).is_err());
            }
        }
        assert!(RingPaxosMessage::decode(&mut ByteReader::new(&[0; 32])).is_err());
        assert_eq!(id.to_string(), "value 9 of round 4");
    }
}

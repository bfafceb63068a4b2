//! The messages between members of a group.

use crate::layers::batch::Batch;
use crate::layers::compact::{number, numbers};
use alloc::vec::Vec;
use amcast_core::{Pid, messages};
use core::fmt;

/// A message of a member. All but [`FastCastMessage::Numbers`] and [`FastCastMessage::Ack`] take a number in the order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum FastCastMessage {
    /// Messages of the application at the sender (`Data`), which sends them at this time of its clock, in nanoseconds.
    Data { sent: u64, batch: Batch },
    /// The sender requires so much more bandwidth, in kilobytes a second (`Incr`).
    Increase { amount: u64 },
    /// The sender requires so much less (`Decr`).
    Decrease { amount: u64 },
    /// Of the leader: the numbers from `first` on belong to the next casts of these members, each in the order of its
    /// sender (the leader's `Ack` of figure 2, for many messages).
    Numbers { first: u64, of: Vec<Pid> },
    /// The sender has taken the increase of the receiver into account (`Ack` of figure 4).
    Ack,
    /// The link of the sender carries so much at present, in kilobytes a second.
    Capacity { rate: u64 },
}

messages! {
    enum FastCastMessage {
        1 => Data { sent, batch },
        2 => Increase { amount with number },
        3 => Decrease { amount with number },
        4 => Numbers { first with number, of with numbers },
        5 => Ack,
        6 => Capacity { rate with number },
    }
}

impl fmt::Display for FastCastMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Data { batch, .. } => write!(f, "messages of the sender, {batch:?}"),
            Self::Increase { amount } => write!(f, "requires {amount} kB/s more"),
            Self::Decrease { amount } => write!(f, "requires {amount} kB/s less"),
            Self::Numbers { first, of } => write!(f, "numbers from {first} on for {of:?}"),
            Self::Ack => f.write_str("acknowledges the increase"),
            Self::Capacity { rate } => write!(f, "has a link that carries {rate} kB/s"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layers::batch::OpenBatch;
    use amcast_core::codec::{ByteReader, Codec};

    #[test]
    fn every_message_reads_back_and_no_shortened_one_does() {
        let mut open = OpenBatch::default();
        open.push(3, b"xyz");
        let batch = open.seal().expect("something is in it");
        let all = [
            FastCastMessage::Data { sent: 4, batch },
            FastCastMessage::Increase { amount: 800 },
            FastCastMessage::Decrease { amount: 500 },
            FastCastMessage::Numbers { first: 9, of: alloc::vec![Pid(2), Pid(2), Pid(0)] },
            FastCastMessage::Ack,
            FastCastMessage::Capacity { rate: 700 },
        ];
        for message in all {
            let mut bytes = Vec::new();
            message.encode(&mut bytes);
            let mut reader = ByteReader::new(&bytes);
            assert_eq!(FastCastMessage::decode(&mut reader), Ok(message));
            assert!(reader.is_empty());
            for cut in 0..bytes.len() {
                assert!(FastCastMessage::decode(&mut ByteReader::new(&bytes[..cut])).is_err());
            }
        }
        assert!(FastCastMessage::decode(&mut ByteReader::new(&[0; 32])).is_err());
    }
}

//! The messages between members of a group, which order multicasts.

use crate::layers::batch::Batch;
use alloc::vec::Vec;
use amcast_core::{MsgId, Pid, messages};
use core::fmt;

/// A message of an ordering protocol.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum OrderingMessage {
    /// Messages of its sender without a number: broadcast (BB), or for the sequencer alone (SB).
    Plain { run: Batch },
    /// The runs that begin with these messages have the numbers from `first` on (BB).
    Numbers { first: u64, of: Vec<MsgId> },
    /// Messages of a process with their number.
    Numbered { number: u64, sender: Pid, run: Batch },
    /// So many numbers are asked for, one for each run (AB).
    Ask { count: u32 },
    /// These numbers are given (AB).
    Grant { first: u64, count: u32 },
    /// The token: the next number, and how many members had nothing to send since the last one that
    /// had (PB).
    Token { next: u64, idle: u32 },
    /// Somebody has something to send: let the token come (PB).
    Hurry,
}

messages! {
    enum OrderingMessage {
        1 => Plain { run },
        2 => Numbers { first, of },
        3 => Numbered { number, sender, run },
        4 => Ask { count },
        5 => Grant { first, count },
        6 => Token { next, idle },
        7 => Hurry,
    }
}

impl fmt::Display for OrderingMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain { run } => write!(f, "messages of the sender, {run:?}"),
            Self::Numbers { first, of } => write!(f, "numbers from {first} on for {of:?}"),
            Self::Numbered { number, sender, run } => {
                write!(f, "number {number} is messages of {sender:?}, {run:?}")
            }
            Self::Ask { count } => write!(f, "asks for {count} numbers"),
            Self::Grant { first, count } => write!(f, "gives {count} numbers from {first} on"),
            Self::Token { next, idle } => write!(f, "token at {next}, idle for {idle} members"),
            Self::Hurry => f.write_str("asks for the token"),
        }
    }
}

/// The message of that number of a process.
pub(super) const fn msg(sender: Pid, seq: u64) -> MsgId {
    MsgId { sender, seq }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layers::batch::OpenBatch;
    use amcast_core::codec::{ByteReader, Codec};

    #[test]
    fn every_word_reads_back() {
        let (id, mut open) = (msg(Pid(2), 7), OpenBatch::default());
        open.push(3, b"xyz");
        let run = open.seal().expect("something is in it");
        let all = [
            OrderingMessage::Plain { run: run.clone() },
            OrderingMessage::Numbers { first: 9, of: alloc::vec![id, id] },
            OrderingMessage::Numbered { number: 9, sender: Pid(2), run },
            OrderingMessage::Ask { count: 2 },
            OrderingMessage::Grant { first: 5, count: 2 },
            OrderingMessage::Token { next: 4, idle: 1 },
            OrderingMessage::Hurry,
        ];
        for word in all {
            let mut bytes = Vec::new();
            word.encode(&mut bytes);
            let mut reader = ByteReader::new(&bytes);
            assert_eq!(OrderingMessage::decode(&mut reader), Ok(word));
            assert!(reader.is_empty());
            for cut in 0..bytes.len() {
                assert!(OrderingMessage::decode(&mut ByteReader::new(&bytes[..cut])).is_err());
            }
        }
        assert!(OrderingMessage::decode(&mut ByteReader::new(&[0; 32])).is_err());
    }
}

//! The state of a connection, in parts that belong together.

use super::super::answer_admission::OpenTurns;
use super::parts::LargeCommand;
use super::{ANSWER_BYTES_GUESS, AnswerSlot, OpenPeek, UnsentCommand};
use crate::gateway::backend::SessionWrites;
use amcast_kv::resp::parser::Parser;
use std::collections::VecDeque;

/// The taking of commands from the input.
pub(super) struct InputProgress {
    pub(super) parser: Parser,
    /// When the input was read last, by the host's clock: every command that is in it was whole then.
    pub(super) read_ns: u64,
    /// The input holds no whole command.
    pub(super) starved: bool,
    /// Commands were left in the input because too many bytes wait to be written, or the turn is over.
    pub(super) held_back: bool,
    /// How long commands took in this turn that the gateway ran itself, in nanoseconds.
    pub(super) own_ns: u64,
}

impl Default for InputProgress {
    fn default() -> Self {
        let parser = Parser::default();
        Self { parser, read_ns: 0, starved: true, held_back: false, own_ns: 0 }
    }
}

/// Answers in the order of their commands.
#[derive(Default)]
pub(super) struct AnswerQueue {
    pub(super) slots: VecDeque<AnswerSlot>,
    /// Bytes of the answers among them.
    pub(super) bytes: usize,
}

/// The knowledge of a connection about the size of its answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AnswerKnowledge {
    /// Nothing: a read says that only a small answer is wanted.
    Nothing,
    /// A read whose answer was thought to be small was refused.
    Exceeds,
    /// One told, and `guess` is its size.
    Told,
}

/// How large answers are thought to be.
pub(super) struct ExpectedAnswers {
    /// Bytes of an answer: the largest lately, since answers under way cannot be sent back.
    pub(super) guess: usize,
    /// The request of the first command whose answer may be large, which is under way alone to tell how large answers are.
    pub(super) probe: Option<u64>,
    /// Whether one told.
    pub(super) known: AnswerKnowledge,
    /// The turns of commands with large answers.
    pub(super) turns: OpenTurns,
}

impl Default for ExpectedAnswers {
    fn default() -> Self {
        let (known, turns) = (AnswerKnowledge::Nothing, OpenTurns::default());
        Self { guess: ANSWER_BYTES_GUESS, probe: None, known, turns }
    }
}

/// Commands that were refused, and are to be sent again.
#[derive(Default)]
pub(super) struct RefusedCommands {
    /// How many there are among the answers.
    pub(super) count: usize,
    /// One was refused: none is sent until all that were sent are answered, so that those which were
    /// refused, too, are ordered in their order.
    pub(super) drains: bool,
}

/// Reads under way that are not ordered.
#[derive(Default)]
pub(super) struct UnorderedReads {
    /// Those that a node of this process answers.
    pub(super) peeks: Vec<OpenPeek>,
    /// The writes that such reads must see.
    pub(super) written: SessionWrites,
    /// Those that a shard's majority vouches for: nothing else is under way with them.
    pub(super) apart: Vec<u64>,
}

/// The command that is to be sent next.
#[derive(Default)]
pub(super) struct NextCommand {
    /// Its message: room for its envelope, and the encoded command.
    pub(super) body: Vec<u8>,
    pub(super) pending: Option<UnsentCommand>,
    /// The buffer for the hashes of the next command's keys.
    pub(super) spare_keys: Vec<u64>,
    /// The command that is being sent in parts.
    pub(super) large: Option<Box<LargeCommand>>,
    /// A command must see the answers of all before it.
    pub(super) barrier: bool,
}

/// A transaction's commands that the gateway runs itself.
#[derive(Default)]
pub(super) struct TransactionHere {
    /// How many the transaction that is gathered has.
    pub(super) count: usize,
    /// Bytes that the commands of the ordered transaction, or the keys of `WATCH`, take here until it is answered.
    pub(super) bytes: usize,
}

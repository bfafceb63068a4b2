//! Batches: several commands of one connection in one message, each with an answer of its own.
//!
//! The gateway of a client that sends many commands without waiting batches those that go to the same shards: they are
//! ordered, replicated and delivered as one message, and executed one after the other at its place. Most of
//! what a small command costs is its message, and that of a command over several shards costs more.
//!
//! Only commands that are as good together as alone are [batched](kind): of keys that their first arguments are, with a
//! small answer, and of a few microseconds for each key. One that reads versions (`WATCH`) is not: all changes of a
//! message have one version.

use super::registry::{self, CommandRunner, CommandSpec, KeyArguments};
use amcast_core::Outcome;
use std::sync::OnceLock;

/// The mark in front of the commands of a batch, behind the epoch. No count of arguments reads like this.
const MARK: [u8; 4] = *b"\xffALL";

/// The first byte of the answer to a batch; no other answer of the store begins with it, and no refusal.
const ANSWERS: u8 = b'{';

/// Bytes in front of each command: their number.
const LENGTH_BYTES: usize = 4;

/// Bytes in front of each answer: its outcome, and their number.
const HEAD_BYTES: usize = 1 + LENGTH_BYTES;

/// Commands of one batch, at most.
pub const BATCH_MAX: usize = 64;

/// Writes that copy their arguments, which may be long: that is why they do not count as fast.
const SETTERS: [&str; 4] = ["set", "setex", "psetex", "mset"];

impl CommandSpec {
    /// Whether a replica executes the command in a batch: more than [gateways batch](kind), since batches of gateways of all
    /// versions are in logs, and replicas of all versions are to do the same with them.
    pub(crate) fn runs_in_batch(&self) -> bool {
        let has_keys = matches!(self.keys, KeyArguments::Range { first: 1, last: 1 | -1, .. });
        has_keys && self.work.is_none() && matches!(self.run, CommandRunner::Shards(_))
    }

    /// Whether a gateway may put the command into a batch.
    fn is_batchable(&self) -> bool {
        // UNLINK frees what its keys hold in its place, which may be much.
        let is_quick = self.is("fast") && self.name != "unlink" || SETTERS.contains(&self.name);
        self.runs_in_batch() && is_quick && !self.writes_and_shows()
    }
}

/// The kind of the commands of a batch: all are of one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BatchKind {
    /// They change nothing: one replica executes them.
    Reads,
    /// They may take memory, and are refused where there is none.
    Grows,
    /// They change keys, and take none.
    Changes,
}

impl BatchKind {
    fn of(command: &CommandSpec) -> Option<Self> {
        command.is_batchable().then(|| match command.writes() {
            false => Self::Reads,
            true if command.is("denyoom") => Self::Grows,
            true => Self::Changes,
        })
    }
}

/// The kind of the command of this [number](registry::find), if it may be in a batch. With some
/// arguments it may still [answer much](CommandSpec::may_answer_much).
pub fn kind(number: u16) -> Option<BatchKind> {
    static KINDS: OnceLock<Vec<Option<BatchKind>>> = OnceLock::new();
    KINDS.get_or_init(|| registry::all().map(BatchKind::of).collect())[usize::from(number)]
}

/// Whether the encoded arguments are those of a batch.
pub fn is_batch(args: &[u8]) -> bool {
    args.starts_with(&MARK)
}

/// Adds a command to the batch whose encoded arguments begin at `from` of the message, or makes a batch of the single
/// command there.
pub fn push(message: &mut Vec<u8>, from: usize, args: &[u8]) {
    if !is_batch(&message[from..]) {
        let bytes = message.len() - from;
        let head = MARK.len() + LENGTH_BYTES;
        message.resize(message.len() + head, 0);
        message.copy_within(from..from + bytes, from + head);
        message[from..from + MARK.len()].copy_from_slice(&MARK);
        message[from + MARK.len()..from + head].copy_from_slice(&(bytes as u32).to_le_bytes());
    }
    message.extend_from_slice(&(args.len() as u32).to_le_bytes());
    message.extend_from_slice(args);
}

/// Each command's encoded arguments: those of a batch in their order, or all bytes if it is a single command.
#[derive(Clone, Debug)]
pub struct BatchCommands<'a> {
    rest: &'a [u8],
    is_batch: bool,
    left: usize,
}

/// The commands of these encoded arguments.
pub fn commands(args: &[u8]) -> BatchCommands<'_> {
    match args.strip_prefix(&MARK) {
        Some(rest) => BatchCommands { rest, is_batch: true, left: BATCH_MAX },
        None => BatchCommands { rest: args, is_batch: false, left: 1 },
    }
}

impl<'a> BatchCommands<'a> {
    /// The bytes that are left: where they are cut short, a part of the next command behind its length.
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Whether it holds whole commands, one at least, and nothing else.
    pub fn is_whole(&self) -> bool {
        let mut all = self.clone();
        let count = all.by_ref().count();
        !self.is_batch || count > 0 && all.rest.is_empty()
    }
}

impl<'a> Iterator for BatchCommands<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        self.left = self.left.checked_sub(1)?;
        if !self.is_batch {
            return Some(self.rest);
        }
        let (bytes, rest) = split_length(self.rest)?;
        self.rest = rest;
        Some(bytes)
    }
}

/// The bytes behind their number, and all that follows.
fn split_length(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<LENGTH_BYTES>()?;
    rest.split_at_checked(u32::from_le_bytes(*length) as usize)
}

/// Begins the answer to a batch.
pub fn begin_answers(answer: &mut Vec<u8>) {
    answer.push(ANSWERS);
}

/// Appends the answer to the next one of them, which `fill` writes and whose outcome it returns.
pub fn put_answer(answer: &mut Vec<u8>, fill: impl FnOnce(&mut Vec<u8>) -> Outcome) {
    let head = answer.len();
    answer.resize(head + HEAD_BYTES, 0);
    let outcome = fill(answer);
    let bytes = (answer.len() - head - HEAD_BYTES) as u32;
    answer[head] = outcome.code();
    answer[head + 1..head + HEAD_BYTES].copy_from_slice(&bytes.to_le_bytes());
}

/// The answers to the commands of a batch, each with its outcome, in the order of the commands.
#[derive(Clone, Debug)]
pub struct BatchAnswers<'a>(&'a [u8]);

/// The answers in that to a batch; none if it is another one.
pub fn answers(answer: &[u8]) -> Option<BatchAnswers<'_>> {
    answer.strip_prefix(&[ANSWERS]).map(BatchAnswers)
}

impl<'a> Iterator for BatchAnswers<'a> {
    type Item = (Outcome, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (outcome, rest) = self.0.split_first()?;
        let (bytes, rest) = split_length(rest)?;
        self.0 = rest;
        Some((Outcome::of_code(*outcome)?, bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{decode_args, encode_args};

    fn encoded(words: &[&[u8]]) -> Vec<u8> {
        let mut bytes = Vec::new();
        encode_args(words, &mut bytes);
        bytes
    }

    #[test]
    fn commands_are_batched_behind_what_is_in_front_and_come_apart_in_their_order() {
        let all = [encoded(&[b"GET", b"a"]), encoded(&[b"SET", b"a", b""]), encoded(&[b"x"])];
        let mut message = b"head".to_vec();
        message.extend_from_slice(&all[0]);
        assert!(commands(&message[4..]).eq([&all[0][..]]) && !is_batch(&message[4..]));
        push(&mut message, 4, &all[1]);
        push(&mut message, 4, &all[2]);
        assert!(message.starts_with(b"head\xffALL\x10\0\0\0\x02\0\0\0\x03\0\0\0GET"));
        assert!(is_batch(&message[4..]) && commands(&message[4..]).is_whole());
        assert!(commands(&message[4..]).eq(all.iter().map(|bytes| &bytes[..])));
        assert_eq!(decode_args(&message[4..], &mut Vec::new()), None, "it is no single command");
        for end in MARK.len() + 1..message.len() - 4 {
            let cut = commands(&message[4..4 + end]);
            let before = MARK.len() + LENGTH_BYTES;
            let is_end =
                [before + all[0].len(), before + LENGTH_BYTES + all[0].len() + all[1].len()];
            assert_eq!(cut.is_whole(), is_end.contains(&end), "{end}");
        }
    }

    #[test]
    fn more_commands_than_a_batch_may_have_are_no_whole_batch() {
        let one = encoded(&[b"GET", b"a"]);
        let mut message = one.clone();
        (1..BATCH_MAX).for_each(|_| push(&mut message, 0, &one));
        assert!(commands(&message).is_whole());
        assert_eq!(commands(&message).count(), BATCH_MAX);
        push(&mut message, 0, &one);
        assert!(!commands(&message).is_whole());
    }

    #[test]
    fn each_answer_is_read_with_its_outcome_and_a_cut_one_is_not() {
        let mut answer = Vec::new();
        begin_answers(&mut answer);
        let parts: [(Outcome, &[u8]); 3] = [
            (Outcome::Executed, b"+OK\r\n"),
            (Outcome::NotExecuted, b""),
            (Outcome::Executed, b"_"),
        ];
        for (outcome, bytes) in parts {
            put_answer(&mut answer, |to| {
                to.extend_from_slice(bytes);
                outcome
            });
        }
        assert!(answers(&answer).expect("answers of a batch").eq(parts));
        assert_eq!(answers(&answer[..answer.len() - 1]).expect("answers of a batch").count(), 2);
        assert!(answers(b"+OK\r\n").is_none());
    }

    #[test]
    fn what_waits_for_others_or_answers_much_stays_alone() {
        let is_batched = |name: &str| {
            let (number, _) = registry::find(name.as_bytes()).expect("a command");
            kind(number).is_some()
        };
        for name in [
            "get", "set", "incr", "hset", "hget", "lpush", "zadd", "expire", "strlen", "mset",
            "mget",
        ] {
            assert!(is_batched(name), "{name}");
        }
        for name in [
            "exec", "watch", "lpop", "getdel", "getset", "del", "unlink", "flushall", "bitop",
            "lrange",
        ] {
            assert!(!is_batched(name), "{name}");
        }
    }
}

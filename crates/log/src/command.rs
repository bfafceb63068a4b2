//! Commands of the log and their answers, as bytes.
//!
//! A command begins with [`MARK`] and a byte for its kind, an answer with a byte for its word. Numbers
//! are little-endian: names stand behind 8 bits of length, values behind 32, counts have 16 or 32.

use super::{Extent, NAME_BYTES_MAX};
use amcast_core::Outcome;
use amcast_smr::machine::Refusal;

/// The first bytes of a command of the log. Read as the number of arguments of a command of the
/// [store](amcast_kv), it is more than fit into a message: nothing is a command of both.
pub const MARK: [u8; 4] = *b"\xffLOG";

/// Additions, names or listed logs of one command.
pub const LIST_MAX: usize = 1000;

/// Bytes of one read or answer that a value takes besides its own.
const VALUE_HEAD_BYTES: usize = 4;

/// Bytes of an extent before logs had incarnations.
const OLD_EXTENT_BYTES: usize = 24;

/// A value and the log that it is appended to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Addition<'a> {
    /// The log's name.
    pub log: &'a [u8],
    /// The value.
    pub value: &'a [u8],
}

/// A command of the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LogCommand<'a> {
    /// Append each value, all at one moment.
    Append(Vec<Addition<'a>>),
    /// Give values from a position on: so many at most, and no more than it takes to have so many
    /// bytes, each value counted with eight bytes besides its own.
    Read {
        /// The log's name.
        log: &'a [u8],
        /// The position of the first value.
        from: u64,
        /// Values at most.
        values_max: u32,
        /// Bytes at most, beside the last value.
        bytes_max: u32,
    },
    /// Drop the values in front of a position.
    Trim {
        /// The log's name.
        log: &'a [u8],
        /// The position of the first value that stays.
        before: u64,
    },
    /// Take a log away, with all its values.
    Delete {
        /// The log's name.
        log: &'a [u8],
    },
    /// Tell how far logs go.
    Extents(Vec<&'a [u8]>),
    /// Name the logs behind a name, of all the shards that it is sent to.
    List {
        /// The name.
        after: &'a [u8],
        /// Logs at most.
        most: u16,
    },
}

impl<'a> LogCommand<'a> {
    /// Appends the command to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&MARK);
        match self {
            Self::Append(additions) => {
                out.push(1);
                put_count(additions.len(), out);
                for Addition { log, value } in additions {
                    put_name(log, out);
                    put_value(value, out);
                }
            }
            Self::Read { log, from, values_max, bytes_max } => {
                out.push(2);
                put_name(log, out);
                out.extend_from_slice(&from.to_le_bytes());
                out.extend_from_slice(&values_max.to_le_bytes());
                out.extend_from_slice(&bytes_max.to_le_bytes());
            }
            Self::Trim { log, before } => {
                out.push(3);
                put_name(log, out);
                out.extend_from_slice(&before.to_le_bytes());
            }
            Self::Extents(logs) => {
                out.push(4);
                put_count(logs.len(), out);
                logs.iter().for_each(|log| put_name(log, out));
            }
            Self::List { after, most } => {
                out.push(5);
                put_name(after, out);
                out.extend_from_slice(&most.to_le_bytes());
            }
            Self::Delete { log } => {
                out.push(6);
                put_name(log, out);
            }
        }
    }

    /// Reads a command; none if `bytes` do not hold exactly one that makes sense.
    pub fn decode(bytes: &'a [u8]) -> Option<Self> {
        let (kind, rest) = bytes.strip_prefix(&MARK)?.split_first()?;
        let mut from = Cursor(rest);
        let command = match kind {
            1 => {
                let count = from.count()?;
                let one = |_| Some(Addition { log: from.log()?, value: from.value()? });
                Self::Append((0..count).map(one).collect::<Option<_>>()?)
            }
            2 => Self::Read {
                log: from.log()?,
                from: from.word()?,
                values_max: from.half()?,
                bytes_max: from.half()?,
            },
            3 => Self::Trim { log: from.log()?, before: from.word()? },
            4 => {
                let count = from.count()?;
                Self::Extents((0..count).map(|_| from.log()).collect::<Option<_>>()?)
            }
            5 => Self::List { after: from.name()?, most: from.short()? },
            6 => Self::Delete { log: from.log()? },
            _ => return None,
        };
        from.0.is_empty().then_some(command)
    }

    /// Whether it changes something.
    pub fn writes(&self) -> bool {
        matches!(self, Self::Append(_) | Self::Trim { .. } | Self::Delete { .. })
    }
}

fn put_count(count: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(&(count as u16).to_le_bytes());
}

fn put_name(name: &[u8], out: &mut Vec<u8>) {
    out.push(name.len() as u8);
    out.extend_from_slice(name);
}

fn put_value(value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&(value.len() as u32).to_le_bytes());
    out.extend_from_slice(value);
}

/// The bytes that are still to be decoded.
struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(head)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|b| b[0])
    }

    fn short(&mut self) -> Option<u16> {
        self.take(2).map(|b| u16::from_le_bytes([b[0], b[1]]))
    }

    fn half(&mut self) -> Option<u32> {
        self.take(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
    }

    fn word(&mut self) -> Option<u64> {
        let (low, high) = (self.half()?, self.half()?);
        Some(u64::from(low) | u64::from(high) << 32)
    }

    fn count(&mut self) -> Option<usize> {
        let count = usize::from(self.short()?);
        (1..=LIST_MAX).contains(&count).then_some(count)
    }

    fn name(&mut self) -> Option<&'a [u8]> {
        let len = usize::from(self.byte()?);
        self.take(len)
    }

    /// A log's name, which is not empty.
    fn log(&mut self) -> Option<&'a [u8]> {
        self.name().filter(|name| (1..=NAME_BYTES_MAX).contains(&name.len()))
    }

    fn value(&mut self) -> Option<&'a [u8]> {
        let len = self.half()? as usize;
        self.take(len)
    }

    fn extent(&mut self) -> Option<Extent> {
        let first = self.word()?;
        let next = self.word()?;
        let bytes = self.word()?;
        Some(Extent { first, next, bytes, incarnation: self.word()? })
    }

    /// The extent of an answer that is kept with the state, and may have been written before logs had incarnations.
    fn trimmed(&mut self) -> Option<Extent> {
        if self.0.len() > OLD_EXTENT_BYTES {
            return self.extent();
        }
        let first = self.word()?;
        let next = self.word()?;
        let bytes = self.word()?;
        Some(Extent { first, next, bytes, incarnation: 0 })
    }
}

/// The answer to a command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LogAnswer {
    /// Each value has this position.
    Appended {
        /// The [`check`] of the command that was executed: an answer that is kept for a repeated
        /// request is that of another command if this differs.
        check: u32,
        /// Of the additions, one for one.
        positions: Vec<u64>,
    },
    /// Values from a position on.
    Values {
        /// The position of the first one.
        from: u64,
        /// How far the log goes.
        extent: Extent,
        /// The values.
        values: Vec<Vec<u8>>,
    },
    /// The values are gone.
    Trimmed {
        /// The [`check`] of the command that was executed.
        check: u32,
        /// How far the log goes now.
        extent: Extent,
    },
    /// The log is gone.
    Deleted {
        /// The [`check`] of the command that was executed.
        check: u32,
        /// How far the log went.
        extent: Extent,
    },
    /// Of the logs, one for one; none for one that is not there.
    Extents(Vec<Option<Extent>>),
    /// Names in their order.
    Listed(Vec<(Vec<u8>, Extent)>),
    /// It did nothing.
    Not(Rejection),
}

/// Why a command did nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rejection {
    /// A shard would hold more bytes than it may.
    Full {
        /// The [`check`] of the command that was refused.
        check: u32,
        /// Bytes that a shard may hold.
        most: u64,
    },
    /// The names of a shard's logs and the places of their values would take more memory than they
    /// may.
    TooMany {
        /// The [`check`] of the command that was refused.
        check: u32,
        /// Bytes that they may take.
        most: u64,
    },
    /// No log has this name.
    Unknown {
        /// The [`check`] of the command that was refused.
        check: u32,
    },
    /// The position was trimmed away.
    Gone {
        /// The first one that was not.
        first: u64,
    },
    /// It is no command of the log, or was sent to other shards than those of its logs.
    Malformed,
    /// The executor did not run it.
    Refused(Refusal),
}

impl Rejection {
    /// The command's outcome.
    pub const fn outcome(self) -> Outcome {
        match self {
            Self::Full { .. } | Self::TooMany { .. } | Self::Malformed => Outcome::NotExecuted,
            // It saw that there is nothing for it.
            Self::Unknown { .. } | Self::Gone { .. } => Outcome::Executed,
            Self::Refused(why) => why.outcome(),
        }
    }
}

impl LogAnswer {
    /// The command's outcome.
    pub const fn outcome(&self) -> Outcome {
        match self {
            Self::Not(why) => why.outcome(),
            _ => Outcome::Executed,
        }
    }

    /// Appends the answer to `out`. Values are written by [`ValuesWriter`] in the machine.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Appended { check, positions } => {
                out.push(1);
                out.extend_from_slice(&check.to_le_bytes());
                positions.iter().for_each(|p| out.extend_from_slice(&p.to_le_bytes()));
            }
            Self::Values { from, extent, values } => {
                let mut to = ValuesWriter::begin(*from, *extent, out);
                values.iter().for_each(|value| to.value(value));
            }
            Self::Trimmed { check, extent } | Self::Deleted { check, extent } => {
                out.push(if matches!(self, Self::Trimmed { .. }) { 3 } else { 15 });
                out.extend_from_slice(&check.to_le_bytes());
                put_extent(extent, out);
            }
            Self::Extents(extents) => {
                out.push(4);
                for extent in extents {
                    out.push(u8::from(extent.is_some()));
                    extent.iter().for_each(|extent| put_extent(extent, out));
                }
            }
            Self::Listed(logs) => {
                out.push(5);
                for (name, extent) in logs {
                    put_name(name, out);
                    put_extent(extent, out);
                }
            }
            Self::Not(why) => why.encode(out),
        }
    }

    /// Reads an answer; none if `bytes` are none.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (word, rest) = bytes.split_first()?;
        let mut from = Cursor(rest);
        let answer = match word {
            1 => {
                let check = from.half()?;
                let mut positions = Vec::with_capacity(from.0.len() / 8);
                while !from.0.is_empty() {
                    positions.push(from.word()?);
                }
                Self::Appended { check, positions }
            }
            2 => {
                let position = from.word()?;
                let extent = from.extent()?;
                let mut values = Vec::new();
                while !from.0.is_empty() {
                    values.push(from.value()?.to_vec());
                }
                Self::Values { from: position, extent, values }
            }
            3 => Self::Trimmed { check: from.half()?, extent: from.trimmed()? },
            4 => {
                let mut extents = Vec::new();
                while !from.0.is_empty() {
                    extents.push(match from.byte()? {
                        0 => None,
                        _ => Some(from.extent()?),
                    });
                }
                Self::Extents(extents)
            }
            5 => {
                let mut logs = Vec::new();
                while !from.0.is_empty() {
                    logs.push((from.name()?.to_vec(), from.extent()?));
                }
                Self::Listed(logs)
            }
            6 => Self::Not(Rejection::Full { check: from.half()?, most: from.word()? }),
            7 => Self::Not(Rejection::Unknown { check: from.half()? }),
            8 => Self::Not(Rejection::Gone { first: from.word()? }),
            9 => Self::Not(Rejection::Malformed),
            10 => Self::Not(Rejection::Refused(Refusal::Stale { now_ms: from.word()? })),
            11 => {
                let outcome = Outcome::of_code(from.byte()?)?;
                Self::Not(Rejection::Refused(Refusal::Forgotten { outcome }))
            }
            12 => Self::Not(Rejection::Refused(Refusal::Window)),
            13 => Self::Not(Rejection::TooMany { check: from.half()?, most: from.word()? }),
            14 => Self::Not(Rejection::Refused(Refusal::Ahead { now_ms: from.word()? })),
            15 => Self::Deleted { check: from.half()?, extent: from.extent()? },
            16 => Self::Not(Rejection::Refused(Refusal::NoRoom)),
            17 => Self::Not(Rejection::Refused(Refusal::Incomplete)),
            18 => Self::Not(Rejection::Refused(Refusal::Skipped)),
            _ => return None,
        };
        from.0.is_empty().then_some(answer)
    }
}

impl Rejection {
    fn encode(self, out: &mut Vec<u8>) {
        match self {
            Self::Full { check, most } | Self::TooMany { check, most } => {
                out.push(if matches!(self, Self::Full { .. }) { 6 } else { 13 });
                out.extend_from_slice(&check.to_le_bytes());
                out.extend_from_slice(&most.to_le_bytes());
            }
            Self::Unknown { check } => {
                out.push(7);
                out.extend_from_slice(&check.to_le_bytes());
            }
            Self::Gone { first } => {
                out.push(8);
                out.extend_from_slice(&first.to_le_bytes());
            }
            Self::Malformed => out.push(9),
            Self::Refused(why @ (Refusal::Stale { now_ms } | Refusal::Ahead { now_ms })) => {
                out.push(if matches!(why, Refusal::Stale { .. }) { 10 } else { 14 });
                out.extend_from_slice(&now_ms.to_le_bytes());
            }
            Self::Refused(Refusal::Forgotten { outcome }) => out.extend([11, outcome.code()]),
            Self::Refused(Refusal::Window) => out.push(12),
            Self::Refused(Refusal::NoRoom) => out.push(16),
            Self::Refused(Refusal::Incomplete) => out.push(17),
            Self::Refused(Refusal::Skipped) => out.push(18),
        }
    }
}

fn put_extent(extent: &Extent, out: &mut Vec<u8>) {
    let Extent { first, next, bytes, incarnation } = extent;
    [first, next, bytes, incarnation]
        .iter()
        .for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
}

/// Writes [`LogAnswer::Values`] from values where they lie.
pub(super) struct ValuesWriter<'a>(&'a mut Vec<u8>);

impl<'a> ValuesWriter<'a> {
    pub(super) fn begin(from: u64, extent: Extent, out: &'a mut Vec<u8>) -> Self {
        out.push(2);
        out.extend_from_slice(&from.to_le_bytes());
        put_extent(&extent, out);
        Self(out)
    }

    pub(super) fn value(&mut self, value: &[u8]) {
        put_value(value, self.0);
    }
}

/// Bytes that a value counts for in a read: what it takes in the answer, here and towards clients.
pub(super) const fn read_cost(value: usize) -> usize {
    value + 2 * VALUE_HEAD_BYTES
}

/// Bytes that an addition takes in a command.
pub const fn addition_bytes(log: usize, value: usize) -> usize {
    1 + log + VALUE_HEAD_BYTES + value
}

/// Bytes of a command that appends, besides its additions.
pub const APPEND_BYTES: usize = MARK.len() + 1 + 2;

/// Tells commands apart.
pub fn check(command: &[u8]) -> u32 {
    crc32c::crc32c(command)
}

#[cfg(test)]
mod tests {
    use super::*;
    use amcast_kv::decode_args;

    fn encoded(command: &LogCommand<'_>) -> Vec<u8> {
        let mut bytes = Vec::new();
        command.encode(&mut bytes);
        bytes
    }

    #[test]
    fn commands_are_golden_and_only_whole_ones_are_read() {
        let append = LogCommand::Append(vec![
            Addition { log: b"a", value: b"xy" },
            Addition { log: b"b", value: b"" },
        ]);
        let golden = b"\xffLOG\x01\x02\0\x01a\x02\0\0\0xy\x01b\0\0\0\0";
        assert_eq!(encoded(&append), golden);
        let sizes = addition_bytes(1, 2) + addition_bytes(1, 0) + APPEND_BYTES;
        assert_eq!(sizes, golden.len());
        let all = [
            append,
            LogCommand::Read { log: b"a", from: 1 << 40, values_max: 7, bytes_max: 1 << 20 },
            LogCommand::Trim { log: b"a", before: 9 },
            LogCommand::Extents(vec![b"a", b"bb"]),
            LogCommand::List { after: b"", most: 3 },
            LogCommand::Delete { log: b"a" },
        ];
        for command in all {
            let bytes = encoded(&command);
            assert_eq!(LogCommand::decode(&bytes), Some(command));
            for end in 0..bytes.len() {
                assert_eq!(LogCommand::decode(&bytes[..end]), None);
            }
            assert_eq!(LogCommand::decode(&[&bytes[..], b"!"].concat()), None);
            assert_eq!(decode_args(&bytes, &mut Vec::new()), None, "the store's it is not");
        }
    }

    #[test]
    fn commands_without_a_log_are_none() {
        for command in [
            LogCommand::Append(vec![]),
            LogCommand::Append(vec![Addition { log: b"", value: b"x" }]),
            LogCommand::Extents(vec![]),
            LogCommand::Trim { log: b"", before: 0 },
        ] {
            assert_eq!(LogCommand::decode(&encoded(&command)), None, "{command:?}");
        }
    }

    #[test]
    fn answers_are_read_back_and_cut_ones_never_panic() {
        let extent = Extent { first: 3, next: 5, bytes: 300, incarnation: 2 };
        let all = [
            LogAnswer::Appended { check: 7, positions: vec![0, 1 << 33] },
            LogAnswer::Values { from: 4, extent, values: vec![b"x".to_vec(), Vec::new()] },
            LogAnswer::Trimmed { check: 9, extent },
            LogAnswer::Deleted { check: 9, extent },
            LogAnswer::Extents(vec![None, Some(extent)]),
            LogAnswer::Listed(vec![(b"a".to_vec(), extent)]),
            LogAnswer::Not(Rejection::Full { check: 1, most: 200 }),
            LogAnswer::Not(Rejection::TooMany { check: 1, most: 200 }),
            LogAnswer::Not(Rejection::Unknown { check: 2 }),
            LogAnswer::Not(Rejection::Gone { first: 3 }),
            LogAnswer::Not(Rejection::Malformed),
            LogAnswer::Not(Rejection::Refused(Refusal::Stale { now_ms: 7 })),
            LogAnswer::Not(Rejection::Refused(Refusal::Ahead { now_ms: 8 })),
            LogAnswer::Not(Rejection::Refused(Refusal::Forgotten { outcome: Outcome::Executed })),
            LogAnswer::Not(Rejection::Refused(Refusal::Forgotten { outcome: Outcome::Unknown })),
            LogAnswer::Not(Rejection::Refused(Refusal::Window)),
            LogAnswer::Not(Rejection::Refused(Refusal::NoRoom)),
            LogAnswer::Not(Rejection::Refused(Refusal::Incomplete)),
            LogAnswer::Not(Rejection::Refused(Refusal::Skipped)),
        ];
        for answer in all {
            let mut bytes = Vec::new();
            answer.encode(&mut bytes);
            assert_eq!(LogAnswer::decode(&bytes), Some(answer.clone()));
            for end in 0..bytes.len() {
                assert_ne!(LogAnswer::decode(&bytes[..end]), Some(answer.clone()));
            }
        }
    }
}

//! Logs of values: the language of their calls in histories, and what they do.
//!
//! A call's `op` is a command in words separated by spaces; its `out` is the answer.
//!
//! | op | out | effect |
//! |---|---|---|
//! | `APPEND a v ..` | the position of each value | each v is put behind the last value of the log in front of it, all at once |
//! | `READ a n` | `first next v ..`, `nil`, or `gone first` | |
//! | `TRIM a n` | `first next`, or `nil` | the values of a in front of position n go |
//! | `DELETE a` | `first next`, or `nil` | a and its values are not there any more |
//! | `INFO a ..` | `first next`, or `nil`, for each, separated by `;` | |
//!
//! Positions of a log count from 0 and are never given twice. A log is there (else the answer is `nil`)
//! from its first append on, until it is deleted; the next append to its name is the first to a new log. In answers `first` is its first position that was not trimmed away, `next` the
//! position of the next value. A read gives values from position n on, without gaps, as many as it
//! likes, but one at least if there is one; where n was trimmed away it gives `gone`. A trim takes no
//! more than there is, and never back.
//!
//! Words are as in [`kv`](super::kv). An `out` that starts with the word `ERR` says that the command was
//! refused and had no effect. A call without return may have had its effect, or not.

use super::kv::{KvToken, sentences};
use super::model::ServiceModel;
use crate::intern::{Names, hash_bytes, mix};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::rc::Rc;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

type LogText = Rc<str>;

/// How far a log goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LogExtent {
    first: u64,
    next: u64,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum LogModelCommand {
    Append(Vec<(u32, LogText)>),
    Read { log: u32, from: u64 },
    Trim { log: u32, before: u64 },
    Delete { log: u32 },
    Info(Vec<u32>),
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum LogModelAnswer {
    Positions(Vec<u64>),
    Values(LogExtent, Vec<LogText>),
    Gone { first: u64 },
    Extents(Vec<Option<LogExtent>>),
}

/// A call, and what came back if it returned.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogModelOp {
    command: LogModelCommand,
    answer: Option<LogModelAnswer>,
}

/// The model of logs.
#[derive(Clone, Debug)]
pub struct LogModel {
    names: Names,
    /// Those that some call was to delete: what answers tell of them is not so at all times.
    deleted: BTreeSet<u32>,
}

/// One log. Trimmed values stay here, so that a trim can be taken back.
#[derive(Clone, Debug, Default)]
pub struct ModelledLog {
    first: u64,
    values: Vec<LogText>,
}

impl ModelledLog {
    fn extent(&self) -> LogExtent {
        LogExtent { first: self.first, next: self.values.len() as u64 }
    }
}

/// The logs that are there.
#[derive(Clone, Debug, Default)]
pub struct LogModelState {
    logs: BTreeMap<u32, ModelledLog>,
    print: u128,
}

/// The facts about the logs that the answers of a history imply. The value at a position never changes, and a log that is never deleted
/// never gets shorter: an append that comes to the place of another value contradicts some answer, and one that
/// comes only to places that no answer knows of may as well never happen.
#[derive(Clone, Debug, Default)]
pub struct ObservedLogs {
    /// Values that were acknowledged or read, by log and position.
    values: BTreeMap<(u32, u64), LogText>,
    /// How long each log was at least.
    next: BTreeMap<u32, u64>,
}

impl ObservedLogs {
    fn holds(&mut self, log: u32, position: u64, value: &LogText) {
        self.values.insert((log, position), value.clone());
        self.reaches(log, position.saturating_add(1));
    }

    fn reaches(&mut self, log: u32, next: u64) {
        let known = self.next.entry(log).or_default();
        *known = next.max(*known);
    }

    /// Learns from one answer.
    fn learn(&mut self, command: &LogModelCommand, answer: &LogModelAnswer) {
        match (command, answer) {
            (LogModelCommand::Append(additions), LogModelAnswer::Positions(positions)) => {
                for ((log, value), position) in additions.iter().zip(positions) {
                    self.holds(*log, *position, value);
                }
            }
            (LogModelCommand::Read { log, from }, LogModelAnswer::Values(extent, values)) => {
                for (n, value) in (0..).zip(values) {
                    self.holds(*log, from.saturating_add(n), value);
                }
                self.reaches(*log, extent.next);
            }
            (LogModelCommand::Read { log, .. }, LogModelAnswer::Gone { first }) => {
                self.reaches(*log, *first)
            }
            (LogModelCommand::Trim { log, .. }, LogModelAnswer::Extents(extents)) => {
                extents.iter().flatten().for_each(|e| self.reaches(*log, e.next));
            }
            (LogModelCommand::Info(logs), LogModelAnswer::Extents(extents)) => {
                for (log, extent) in logs.iter().zip(extents) {
                    self.reaches(*log, extent.map_or(0, |e| e.next));
                }
            }
            _ => {}
        }
    }
}

/// The record that takes an effect back.
#[derive(Debug)]
pub enum LogModelUndo {
    /// These logs have one value less, the latest first.
    Shorter(Vec<u32>),
    /// The log began at this position.
    First(u32, u64),
    /// The log was there.
    There(u32, ModelledLog),
    /// Nothing changed.
    Nothing,
}

fn print_of(log: u32, position: u64, what: u64) -> u128 {
    let low = mix(what ^ mix(u64::from(log) << 40 ^ position));
    let high = mix(low ^ what.rotate_left(17) ^ position);
    u128::from(high) << 64 | u128::from(low)
}

impl LogModelState {
    fn extent(&self, log: u32) -> Option<LogExtent> {
        self.logs.get(&log).map(ModelledLog::extent)
    }

    fn append(&mut self, log: u32, value: &LogText) -> u64 {
        let held = self.logs.entry(log).or_default();
        let position = held.values.len() as u64;
        held.values.push(value.clone());
        self.print ^= print_of(log, position, hash_bytes(value.as_bytes()));
        position
    }

    fn shorten(&mut self, log: u32) {
        let Some(held) = self.logs.get_mut(&log) else { return };
        let Some(value) = held.values.pop() else { return };
        self.print ^= print_of(log, held.values.len() as u64, hash_bytes(value.as_bytes()));
        if held.values.is_empty() {
            self.logs.remove(&log);
        }
    }

    /// Lets a log begin at `first`; where it began before.
    fn begin_at(&mut self, log: u32, first: u64) -> u64 {
        let Some(held) = self.logs.get_mut(&log) else { return 0 };
        let before = core::mem::replace(&mut held.first, first);
        // A mark of its own for each first position but the one that is there from the start.
        for first in [before, first].into_iter().filter(|&first| first > 0) {
            self.print ^= print_of(log, first, u64::MAX);
        }
        before
    }

    /// Takes a log away, or puts one back: the mark of all that it has.
    fn marks(&mut self, log: u32, held: &ModelledLog) {
        for (value, position) in held.values.iter().zip(0..) {
            self.print ^= print_of(log, position, hash_bytes(value.as_bytes()));
        }
        if held.first > 0 {
            self.print ^= print_of(log, held.first, u64::MAX);
        }
    }

    fn delete(&mut self, log: u32) -> LogModelUndo {
        let Some(held) = self.logs.remove(&log) else { return LogModelUndo::Nothing };
        self.marks(log, &held);
        LogModelUndo::There(log, held)
    }

    /// Lets a command happen, if it then answers so.
    fn run(
        &mut self,
        command: &LogModelCommand,
        expected: Option<&LogModelAnswer>,
    ) -> Option<LogModelUndo> {
        match command {
            LogModelCommand::Append(additions) => {
                let appended = additions.iter().map(|(log, v)| self.append(*log, v));
                let positions = LogModelAnswer::Positions(appended.collect());
                let undo =
                    LogModelUndo::Shorter(additions.iter().rev().map(|(log, _)| *log).collect());
                if expected.is_none_or(|expected| *expected == positions) {
                    return Some(undo);
                }
                self.undo(undo);
                None
            }
            LogModelCommand::Trim { log, before } => {
                let to = self.extent(*log).map(|e| (*before).clamp(e.first, e.next));
                let after = self.extent(*log).zip(to).map(|(e, first)| LogExtent { first, ..e });
                let fits = expected.is_none_or(|e| *e == LogModelAnswer::Extents([after].into()));
                fits.then(|| match to {
                    Some(first) => LogModelUndo::First(*log, self.begin_at(*log, first)),
                    None => LogModelUndo::Nothing,
                })
            }
            LogModelCommand::Delete { log } => {
                let before = LogModelAnswer::Extents([self.extent(*log)].into());
                expected.is_none_or(|e| *e == before).then(|| self.delete(*log))
            }
            LogModelCommand::Read { log, from } => {
                self.reads(*log, *from, expected?).then_some(LogModelUndo::Nothing)
            }
            LogModelCommand::Info(logs) => {
                let extents = logs.iter().map(|log| self.extent(*log)).collect();
                let fits = expected.is_none_or(|e| *e == LogModelAnswer::Extents(extents));
                fits.then_some(LogModelUndo::Nothing)
            }
        }
    }

    /// Whether a read can give this.
    fn reads(&self, log: u32, from: u64, given: &LogModelAnswer) -> bool {
        let Some(held) = self.logs.get(&log) else {
            return *given == LogModelAnswer::Extents([None].into());
        };
        match given {
            LogModelAnswer::Gone { first } => from < held.first && *first == held.first,
            LogModelAnswer::Values(extent, values) => {
                let from_here = usize::try_from(from).ok().and_then(|n| held.values.get(n..));
                let there = from_here.unwrap_or_default();
                *extent == held.extent()
                    && from >= held.first
                    && there.starts_with(values)
                    && values.is_empty() == there.is_empty()
            }
            _ => false,
        }
    }

    fn undo(&mut self, undo: LogModelUndo) {
        match undo {
            LogModelUndo::Shorter(logs) => logs.into_iter().for_each(|log| self.shorten(log)),
            LogModelUndo::First(log, first) => _ = self.begin_at(log, first),
            LogModelUndo::There(log, held) => {
                self.marks(log, &held);
                self.logs.insert(log, held);
            }
            LogModelUndo::Nothing => {}
        }
    }
}

fn number(word: &KvToken) -> Result<u64, String> {
    let text = word.value()?;
    text.parse().map_err(|_| format!("{text:?} where a position should be"))
}

fn extent(words: &[KvToken]) -> Result<Option<LogExtent>, String> {
    match words {
        [KvToken::Nil] => Ok(None),
        [first, next] => Ok(Some(LogExtent { first: number(first)?, next: number(next)? })),
        _ => Err("neither two positions nor nil".to_string()),
    }
}

impl LogModelCommand {
    fn answer(&self, parts: &[Vec<KvToken>]) -> Result<LogModelAnswer, String> {
        let one = || match parts {
            [one] => Ok(&one[..]),
            _ => Err(format!("{} answers to one command", parts.len())),
        };
        match self {
            Self::Append(additions) => {
                let positions: Vec<u64> = one()?.iter().map(number).collect::<Result<_, _>>()?;
                if positions.len() != additions.len() {
                    let (n, of) = (positions.len(), additions.len());
                    return Err(format!("{n} positions of {of} values"));
                }
                Ok(LogModelAnswer::Positions(positions))
            }
            Self::Read { .. } => match one()? {
                [KvToken::Nil] => Ok(LogModelAnswer::Extents([None].into())),
                [KvToken::Bare(gone), first] if gone == "gone" => {
                    Ok(LogModelAnswer::Gone { first: number(first)? })
                }
                [first, next, values @ ..] => {
                    let extent = LogExtent { first: number(first)?, next: number(next)? };
                    let values = values.iter().map(KvToken::value).collect::<Result<_, _>>()?;
                    Ok(LogModelAnswer::Values(extent, values))
                }
                _ => Err("no answer of a read".to_string()),
            },
            Self::Trim { .. } | Self::Delete { .. } => {
                Ok(LogModelAnswer::Extents([extent(one()?)?].into()))
            }
            Self::Info(logs) => {
                let extents: Vec<_> =
                    parts.iter().map(|part| extent(part)).collect::<Result<_, _>>()?;
                if extents.len() != logs.len() {
                    return Err(format!("{} answers for {} logs", extents.len(), logs.len()));
                }
                Ok(LogModelAnswer::Extents(extents))
            }
        }
    }
}

impl Default for LogModel {
    fn default() -> Self {
        Self::new()
    }
}

impl LogModel {
    /// Logs that nobody has appended to yet.
    pub fn new() -> Self {
        Self { names: Names::new(), deleted: BTreeSet::new() }
    }

    fn log(&mut self, word: &KvToken) -> Result<u32, String> {
        self.names.intern(&word.value()?).ok_or_else(|| "too many logs".to_string())
    }

    fn command(&mut self, words: &[KvToken]) -> Result<LogModelCommand, String> {
        let [KvToken::Bare(name), rest @ ..] = words else {
            return Err("no command".to_string());
        };
        match (&*name.to_ascii_uppercase(), rest) {
            ("APPEND", pairs) if !pairs.is_empty() && pairs.len().is_multiple_of(2) => {
                let mut one = |pair: &[KvToken]| Ok((self.log(&pair[0])?, pair[1].value()?));
                Ok(LogModelCommand::Append(
                    pairs.chunks(2).map(&mut one).collect::<Result<_, String>>()?,
                ))
            }
            ("READ", [log, from]) => {
                Ok(LogModelCommand::Read { log: self.log(log)?, from: number(from)? })
            }
            ("TRIM", [log, before]) => {
                Ok(LogModelCommand::Trim { log: self.log(log)?, before: number(before)? })
            }
            ("DELETE", [log]) => {
                let log = self.log(log)?;
                self.deleted.insert(log);
                Ok(LogModelCommand::Delete { log })
            }
            ("INFO", logs) if !logs.is_empty() => Ok(LogModelCommand::Info(
                logs.iter().map(|l| self.log(l)).collect::<Result<_, _>>()?,
            )),
            (name, words) => Err(format!("no command of logs: {name} with {} words", words.len())),
        }
    }
}

impl ServiceModel for LogModel {
    type Op = LogModelOp;
    type State = LogModelState;
    type Undo = LogModelUndo;
    type Known = ObservedLogs;

    fn understand(&mut self, op: &str, out: Option<&str>) -> Result<Option<LogModelOp>, String> {
        let [words] = &sentences(op)?[..] else { return Err("one command is a call".to_string()) };
        let command = self.command(words)?;
        let Some(out) = out else { return Ok(Some(LogModelOp { command, answer: None })) };
        let parts = sentences(out)?;
        let first = parts.first().and_then(|part| part.first());
        if matches!(first, Some(KvToken::Bare(word)) if word == "ERR") {
            return Ok(None);
        }
        let answer = Some(command.answer(&parts)?);
        Ok(Some(LogModelOp { command, answer }))
    }

    fn keys(&self, op: &LogModelOp, tell: &mut dyn FnMut(u32)) {
        match &op.command {
            LogModelCommand::Append(additions) => additions.iter().for_each(|&(log, _)| tell(log)),
            LogModelCommand::Read { log, .. }
            | LogModelCommand::Trim { log, .. }
            | LogModelCommand::Delete { log } => {
                tell(*log);
            }
            LogModelCommand::Info(logs) => logs.iter().for_each(|&log| tell(log)),
        }
    }

    fn only_reads(&self, op: &LogModelOp) -> bool {
        matches!(op.command, LogModelCommand::Read { .. } | LogModelCommand::Info(_))
    }

    fn start(&self) -> LogModelState {
        LogModelState::default()
    }

    fn apply(
        &self,
        state: &mut LogModelState,
        op: &LogModelOp,
        answered: bool,
    ) -> Option<LogModelUndo> {
        state.run(&op.command, op.answer.as_ref().filter(|_| answered))
    }

    fn known(&self, ops: &mut dyn Iterator<Item = &LogModelOp>) -> ObservedLogs {
        let mut known = ObservedLogs::default();
        for (command, answer) in ops.filter_map(|op| Some((&op.command, op.answer.as_ref()?))) {
            known.learn(command, answer);
        }
        known
    }

    fn agrees(&self, state: &LogModelState, op: &LogModelOp, known: &ObservedLogs) -> bool {
        let LogModelCommand::Append(additions) = &op.command else { return true };
        let mut seen = false;
        let fits = additions.iter().enumerate().all(|(i, (log, value))| {
            if self.deleted.contains(log) {
                seen = true;
                return true;
            }
            let before = additions[..i].iter().filter(|(other, _)| other == log).count() as u64;
            let position = state.extent(*log).map_or(0, |e| e.next) + before;
            seen |= known.next.get(log).is_some_and(|next| position < *next);
            known.values.get(&(*log, position)).is_none_or(|known| known == value)
        });
        fits && seen
    }

    fn undo(&self, state: &mut LogModelState, undo: LogModelUndo) {
        state.undo(undo);
    }

    fn print(&self, state: &LogModelState) -> u128 {
        state.print
    }

    fn describe(&self, state: &LogModelState, keys: &[u32]) -> Vec<String> {
        let one = |log: u32| match state.extent(log) {
            Some(e) => format!("{} goes from {} to {}", self.names.get(log), e.first, e.next),
            None => format!("{} is absent", self.names.get(log)),
        };
        keys.iter().map(|&log| one(log)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    /// How many of the calls, one after another, give these answers.
    fn plays(calls: &[(&str, &str)]) -> usize {
        let mut logs = LogModel::new();
        let understand = |(op, out): &(&str, &str)| logs.understand(op, Some(out)).unwrap();
        let ops: Vec<_> = calls.iter().filter_map(understand).collect();
        let mut state = logs.start();
        ops.iter().take_while(|op| logs.apply(&mut state, op, true).is_some()).count()
    }

    #[test]
    fn commands_do_what_they_say() {
        let calls = [
            ("READ a 0", "nil"),
            ("TRIM a 3", "nil"),
            ("APPEND a x", "0"),
            ("APPEND a y b \"p q\" a z", "1 0 2"),
            ("READ a 1", "0 3 y"),
            ("READ a 1", "0 3 y z"),
            ("READ a 3", "0 3"),
            ("READ a 9", "0 3"),
            ("INFO a c b", "0 3; nil; 0 1"),
            ("TRIM a 2", "2 3"),
            ("TRIM a 1", "2 3"),
            ("READ a 1", "gone 2"),
            ("READ a 2", "2 3 z"),
            ("TRIM a 99", "3 3"),
            ("READ a 3", "3 3"),
            ("append a w", "3"),
            ("DELETE a", "3 4"),
            ("DELETE a", "nil"),
            ("INFO a b", "nil; 0 1"),
            ("APPEND a v", "0"),
            ("READ a 0", "0 1 v"),
        ];
        assert_eq!(plays(&calls), calls.len());
        assert_eq!(plays(&[("APPEND a x", "ERR full"), ("READ a 0", "nil")]), 1, "it was refused");
    }

    #[test]
    fn wrong_answers_do_not_fit() {
        let after = [("APPEND a x b y", "0 0"), ("APPEND a z", "1"), ("TRIM a 1", "1 2")];
        for wrong in [
            ("APPEND a w", "1"),
            ("APPEND a w", "3"),
            ("APPEND a w b w", "2 2"),
            ("READ a 1", "1 2 x"),
            ("READ a 1", "1 2"),
            ("READ a 1", "1 3 z w"),
            ("READ a 2", "1 2 z"),
            ("READ a 0", "1 2 x z"),
            ("READ a 0", "gone 0"),
            ("READ a 1", "gone 1"),
            ("READ b 0", "nil"),
            ("TRIM a 2", "1 2"),
            ("DELETE a", "0 2"),
            ("DELETE a", "nil"),
            ("INFO a b", "1 2; 0 2"),
        ] {
            let calls = [&after[..], &[wrong]].concat();
            assert_eq!(plays(&calls), after.len(), "{wrong:?}");
        }
    }

    #[test]
    fn what_is_not_the_language_is_told() {
        let mut logs = LogModel::new();
        for (op, out) in [
            ("FLY a", "1"),
            ("", "1"),
            ("APPEND a", "1"),
            ("APPEND a x", "0 1"),
            ("APPEND a x", "y"),
            ("READ a", "nil"),
            ("READ a 0", "1"),
            ("TRIM a x", "0 1"),
            ("INFO a b", "0 1"),
            ("INFO a; INFO b", "0 1; 0 1"),
        ] {
            assert!(logs.understand(op, Some(out)).is_err(), "{op} -> {out}");
        }
    }

    #[test]
    fn an_undone_effect_leaves_no_trace() {
        let mut logs = LogModel::new();
        let mut state = logs.start();
        let mut op = |text, out| logs.understand(text, out).unwrap().unwrap();
        let (append, trim) = (op("APPEND a x b y a z", None), op("TRIM a 1", None));
        let (wrong, delete) = (op("APPEND a x b y", Some("2 9")), op("DELETE a", None));
        let mut undone = vec![(0, logs.apply(&mut state, &append, false).unwrap())];
        undone.push((state.print, logs.apply(&mut state, &trim, false).unwrap()));
        let print = state.print;
        assert!(logs.apply(&mut state, &wrong, true).is_none());
        assert_eq!(state.print, print);
        undone.push((print, logs.apply(&mut state, &delete, false).unwrap()));
        let mut only = logs.start();
        let b = logs.understand("APPEND b y", None).unwrap().unwrap();
        assert!(logs.apply(&mut only, &b, false).is_some());
        assert_eq!(state.print, only.print, "a log that was deleted leaves no trace");
        for (before, undo) in undone.into_iter().rev() {
            logs.undo(&mut state, undo);
            assert_eq!(state.print, before);
        }
        assert!(state.logs.is_empty());
    }

    #[test]
    fn states_that_differ_have_different_prints() {
        let mut logs = LogModel::new();
        let mut prints = vec![0];
        for calls in [
            &["APPEND a x"][..],
            &["APPEND b x"],
            &["APPEND a y"],
            &["APPEND a x", "APPEND a y"],
            &["APPEND a y", "APPEND a x"],
            &["APPEND a x", "TRIM a 1"],
            &["APPEND a x", "APPEND a y", "TRIM a 1"],
            &["APPEND a x", "APPEND a y", "TRIM a 2"],
        ] {
            let mut state = logs.start();
            for call in calls {
                let op = logs.understand(call, None).unwrap().unwrap();
                assert!(logs.apply(&mut state, &op, false).is_some());
            }
            assert!(!prints.contains(&state.print), "{calls:?}");
            prints.push(state.print);
        }
    }
}

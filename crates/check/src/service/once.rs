//! Exactly-once execution of retried commands.

use super::calls::JudgedCalls;
use super::kv::{KvModel, KvModelAnswer, KvModelCommand, KvModelOp, KvText};
use crate::delivery::violated;
use crate::history::{History, Msg, ServiceEvent};
use crate::intern::NONE;
use crate::report::{CounterexampleEvent, PropertyVerdict};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

/// Whether commands took effect once, as far as clients can tell. Decided on three kinds of
/// evidence, each of which shows an effect too many or too few for any order of calls:
///
/// - a command that returned more than once gave the same answer each time;
/// - on a key that calls change only by INCR or INCRBY, all by the same amount: no two calls were
///   given the same number (one of them had no effect of its own), and no answer is further than
///   all calls made before it returned can have brought it (one of them took effect twice);
/// - on a key that calls change only by APPEND: no answer is longer, or holds a piece more often,
///   than the calls made before it returned can have made it. Pieces are counted when none of them
///   starts with another one.
///
/// Keys start absent. A lost effect without an answer is for linearizability to find. Without
/// any of this evidence the property is not judged.
pub fn exactly_once(history: &History) -> PropertyVerdict {
    let mut kv = KvModel::new();
    let calls = match JudgedCalls::new(history, &mut kv) {
        Ok(calls) => calls,
        Err(why) => return why.into(),
    };
    let mut judged = false;
    if let Some(verdict) = answers_differ(history, &mut judged) {
        return verdict;
    }
    let reads = reads(&calls);
    for (k, changes) in changes(&calls) {
        let x =
            OnceKey { kv: &kv, calls: &calls, k, reads: reads.get(&k).map_or(&[], |list| list) };
        let found = match changes {
            Changes::Add { by, made } => x.added(by, &made, &mut judged),
            Changes::Append(made) => x.appended(&made, &mut judged),
            Changes::Otherwise => None,
        };
        if let Some(verdict) = found {
            return verdict;
        }
    }
    if judged {
        return PropertyVerdict::Holds;
    }
    let why = "no command returned twice, and no key is changed by INCR or APPEND alone";
    PropertyVerdict::NotJudged(why.to_string())
}

/// A command that returned with two different answers.
fn answers_differ(h: &History, judged: &mut bool) -> Option<PropertyVerdict> {
    let mut first: Vec<Option<&ServiceEvent>> = vec![None; h.messages()];
    for again in &h.returns {
        let Some(first) = first[again.m as usize].replace(again) else { continue };
        *judged = true;
        if first.text != again.text {
            let tell = |said: &ServiceEvent| CounterexampleEvent {
                process: h.process_name(crate::Proc(said.p)).into(),
                does: "gets back",
                message: format!("{}: {}", h.message_name(Msg(said.m)), said.text),
                position: None,
                place: h.place(said.line),
                t_ns: said.t,
            };
            let m = h.message_name(Msg(again.m));
            let sentence =
                format!("{m} was answered twice and differently: {}, {}", first.text, again.text);
            return Some(violated(sentence, vec![tell(first), tell(again)]));
        }
    }
    None
}

/// How calls change a key.
enum Changes {
    /// Only by adding `by`, in these calls.
    Add {
        by: i64,
        made: Vec<u32>,
    },
    /// Only by appending, in these calls.
    Append(Vec<(u32, KvText)>),
    Otherwise,
}

fn changes(calls: &JudgedCalls<'_, KvModel>) -> BTreeMap<u32, Changes> {
    let mut keys: BTreeMap<u32, Changes> = BTreeMap::new();
    for (i, op) in (0_u32..).zip(&calls.ops) {
        let alone = op.commands.len() == 1 && op.conditions.is_empty();
        for (command, _) in &op.commands {
            let mut otherwise = |k: u32| {
                keys.insert(k, Changes::Otherwise);
            };
            match command {
                KvModelCommand::Get { .. }
                | KvModelCommand::GetAll { .. }
                | KvModelCommand::Count { .. }
                | KvModelCommand::Length { .. } => {}
                KvModelCommand::Add { k, by } if alone && *by != 0 => {
                    match keys.entry(*k).or_insert(Changes::Add { by: *by, made: Vec::new() }) {
                        Changes::Add { by: same, made } if same == by => made.push(i),
                        other => *other = Changes::Otherwise,
                    }
                }
                KvModelCommand::Append { k, v } if alone && !v.is_empty() => {
                    match keys.entry(*k).or_insert(Changes::Append(Vec::new())) {
                        Changes::Append(made) => made.push((i, v.clone())),
                        other => *other = Changes::Otherwise,
                    }
                }
                KvModelCommand::Add { k, .. }
                | KvModelCommand::Append { k, .. }
                | KvModelCommand::Set { k, .. }
                | KvModelCommand::Swap { k, .. } => otherwise(*k),
                KvModelCommand::Delete { keys } => keys.iter().for_each(|&k| otherwise(k)),
                KvModelCommand::SetAll { pairs } => pairs.iter().for_each(|&(k, _)| otherwise(k)),
            }
        }
    }
    keys
}

/// The answers of GET and MGET for each key, and their calls.
fn reads(calls: &JudgedCalls<'_, KvModel>) -> BTreeMap<u32, Vec<(u32, KvText)>> {
    let mut reads: BTreeMap<u32, Vec<(u32, KvText)>> = BTreeMap::new();
    for (i, op) in (0_u32..).zip(&calls.ops) {
        for (command, answer) in &op.commands {
            let Some(KvModelAnswer::Values(values)) = answer else { continue };
            let keys = match command {
                KvModelCommand::Get { k } => core::slice::from_ref(k),
                KvModelCommand::GetAll { keys } => keys,
                _ => continue,
            };
            for (&k, v) in keys.iter().zip(values) {
                reads.entry(k).or_default().extend(v.iter().map(|v| (i, v.clone())));
            }
        }
    }
    reads
}

struct OnceKey<'a> {
    kv: &'a KvModel,
    calls: &'a JudgedCalls<'a, KvModel>,
    k: u32,
    /// The answers of GET and MGET for the key, and their calls.
    reads: &'a [(u32, KvText)],
}

impl OnceKey<'_> {
    /// Calls on a counter.
    fn added(&self, by: i64, made: &[u32], judged: &mut bool) -> Option<PropertyVerdict> {
        let mut by_answer: BTreeMap<i64, u32> = BTreeMap::new();
        for &i in made {
            let Some(n) = number(&self.calls.ops[i as usize]) else { continue };
            *judged = true;
            if let Some(&other) = by_answer.get(&n) {
                let sentence = format!(
                    "two calls brought {} to {n}: one had no effect of its own",
                    self.kv.key_name(self.k)
                );
                return Some(self.tell(sentence, &[other, i]));
            }
            by_answer.insert(n, i);
        }
        let times: Vec<(u32, i64)> = self.made_at(made.iter().map(|&i| (i, by.saturating_abs())));
        let seen = self.reads.iter().filter_map(|(i, v)| Some((*i, v.parse().ok()?)));
        for (i, n) in by_answer.into_iter().map(|(n, i)| (i, n)).chain(seen) {
            *judged = true;
            let most = self.before(&times, i);
            if n.checked_mul(by.signum()).is_some_and(|n| n > most) {
                let sentence = format!(
                    "{} is at {n} when the calls made by then bring it to {} at most: one took \
                     effect more than once",
                    self.kv.key_name(self.k),
                    most * by.signum()
                );
                return Some(self.tell(sentence, &[i]));
            }
        }
        None
    }

    /// Calls on a text that grows.
    fn appended(&self, made: &[(u32, KvText)], judged: &mut bool) -> Option<PropertyVerdict> {
        let times = self.made_at(made.iter().map(|(i, v)| (*i, v.len() as i64)));
        let answers =
            made.iter().filter_map(|&(i, _)| Some((i, number(&self.calls.ops[i as usize])?)));
        let lengths = self.reads.iter().map(|(i, v)| (*i, v.len() as i64));
        for (i, length) in answers.chain(lengths) {
            *judged = true;
            let most = self.before(&times, i);
            if length > most {
                let sentence = format!(
                    "{} has {length} bytes when the calls made by then append {most}: one took \
                     effect more than once",
                    self.kv.key_name(self.k)
                );
                return Some(self.tell(sentence, &[i]));
            }
        }
        let mut pieces: BTreeMap<&str, Vec<(u32, i64)>> = BTreeMap::new();
        for (i, v) in made {
            pieces.entry(v).or_default().push((*i, 1));
        }
        let sorted: Vec<&str> = pieces.keys().copied().collect();
        if sorted.windows(2).any(|pair| pair[1].starts_with(pair[0])) {
            return None;
        }
        let times: BTreeMap<&str, Vec<(u32, i64)>> =
            pieces.into_iter().map(|(v, made)| (v, self.made_at(made.into_iter()))).collect();
        for &(i, ref text) in self.reads {
            let mut counts: BTreeMap<&str, i64> = BTreeMap::new();
            let mut rest = &**text;
            // No piece starts with another, so at most one fits: the greatest that is not after.
            while let Some((piece, made)) = times.range(..=rest).next_back() {
                let Some(behind) = rest.strip_prefix(piece) else { break };
                let count = counts.entry(piece).or_default();
                *count += 1;
                if *count > self.before(made, i) {
                    let sentence = format!(
                        "{} holds {piece:?} more often than it was appended by then",
                        self.kv.key_name(self.k)
                    );
                    return Some(self.tell(sentence, &[i]));
                }
                rest = behind;
            }
        }
        None
    }

    /// When calls were made, and the sum of what they add up to each.
    fn made_at(&self, made: impl Iterator<Item = (u32, i64)>) -> Vec<(u32, i64)> {
        let mut times: Vec<_> =
            made.map(|(i, adds)| (self.calls.times[i as usize].call, adds)).collect();
        times.sort_unstable();
        let mut sum = 0_i64;
        for (_, adds) in &mut times {
            sum = sum.saturating_add(*adds);
            *adds = sum;
        }
        times
    }

    /// The sum that the calls made before call `i` returned add.
    fn before(&self, times: &[(u32, i64)], i: u32) -> i64 {
        let ret = self.calls.times[i as usize].ret;
        let n = times.partition_point(|&(call, _)| call < ret || ret == NONE);
        n.checked_sub(1).map_or(0, |n| times[n].1)
    }

    fn tell(&self, what: String, ops: &[u32]) -> PropertyVerdict {
        let list: Vec<_> = ops.iter().map(|&i| self.calls.short(i)).collect();
        let events = ops.iter().flat_map(|&i| self.calls.seen(i)).collect();
        violated(format!("{what} [{}]", list.join("; ")), events)
    }
}

/// The number that a call of one command gave.
fn number(op: &KvModelOp) -> Option<i64> {
    match op.commands.first() {
        Some((_, Some(KvModelAnswer::Number(n)))) => Some(*n),
        _ => None,
    }
}

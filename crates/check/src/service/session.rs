//! Read-your-writes.

use super::calls::JudgedCalls;
use super::kv::{KvModel, KvModelAnswer, KvModelCommand, KvModelOp, KvText};
use crate::delivery::violated;
use crate::history::History;
use crate::intern::NONE;
use crate::report::PropertyVerdict;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;

/// The value that a call leaves in a key, as far as its answer shows.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum KeyEffect {
    Value(Option<KvText>),
    Unknown,
}

/// The writes to a key: number of the call, and what it left.
type Writes = Vec<(u32, KeyEffect)>;

/// Whether every read sees the writes of its own client that had returned before it was made.
///
/// A read of a key (GET, MGET) does not see its client's latest write W to the key when what it
/// answer can only come from before W: every write that left this value had returned before W was
/// made, or there is no such write. (Writes to a key are taken to keep the order in which they
/// followed one another in time, as every ordered store's do; that the reads do so as well is not
/// required.) Writes of unknown value (APPEND; calls without answer whose effect depends on the
/// state) may have left any value.
pub fn read_your_writes(history: &History) -> PropertyVerdict {
    let mut kv = KvModel::new();
    let calls = match JudgedCalls::new(history, &mut kv) {
        Ok(calls) => calls,
        Err(why) => return why.into(),
    };
    let mut writes: BTreeMap<u32, Writes> = BTreeMap::new();
    for (i, op) in (0_u32..).zip(&calls.ops) {
        for (k, left) in left_by(op) {
            writes.entry(k).or_default().push((i, left));
        }
    }
    // The writes to a key that a client saw return, in the order in which it made them.
    let mut own: BTreeMap<(u32, u32), Vec<u32>> = BTreeMap::new();
    let mut by_value: BTreeMap<(u32, &KeyEffect), Vec<u32>> = BTreeMap::new();
    for (&k, list) in &writes {
        for (i, left) in list {
            by_value.entry((k, left)).or_default().push(*i);
            let time = calls.times[*i as usize];
            if time.ret != NONE {
                own.entry((k, time.lane)).or_default().push(*i);
            }
        }
    }
    let call = |&i: &u32| calls.times[i as usize].call;
    own.values_mut().chain(by_value.values_mut()).for_each(|list| list.sort_unstable_by_key(call));

    let mut judged = 0_u64;
    for (i, op) in (0_u32..).zip(&calls.ops) {
        let read = calls.times[i as usize];
        for (k, value) in read_by(op) {
            let Some(mine) = own.get(&(k, read.lane)) else { continue };
            let ends_before = |&&w: &&u32| calls.times[w as usize].ret < read.call;
            let Some(&w) = mine.iter().rev().find(ends_before) else { continue };
            judged += 1;
            let since = calls.times[w as usize].call;
            let value = KeyEffect::Value(value);
            let may_come_from = |left: &KeyEffect| {
                let list = by_value.get(&(k, left)).map_or(&[][..], |list| list);
                list.iter().rev().any(|&c| {
                    let c = calls.times[c as usize];
                    // `NONE`, for a write without return, is later than any moment.
                    c.ret >= since && c.call < read.ret
                })
            };
            if !may_come_from(&value) && !may_come_from(&KeyEffect::Unknown) {
                let mut events = calls.seen(w);
                events.extend(calls.seen(i));
                let sentence = format!(
                    "{} does not see in {} its own write before it: {}",
                    calls.short(i),
                    kv.key_name(k),
                    calls.short(w)
                );
                return violated(sentence, events);
            }
        }
    }
    if judged == 0 {
        let why = "no client reads a key after a write of its own has returned";
        return PropertyVerdict::NotJudged(why.to_string());
    }
    PropertyVerdict::Holds
}

/// The value of each key that `op` may change after it; the last change of a key counts.
fn left_by(op: &KvModelOp) -> BTreeMap<u32, KeyEffect> {
    let mut left = BTreeMap::new();
    let sure = op.conditions.is_empty();
    for (command, answer) in &op.commands {
        let value = |v: &KvText| KeyEffect::Value(Some(v.clone()));
        match (command, answer) {
            (KvModelCommand::Set { if_there: Some(_), .. }, Some(KvModelAnswer::Forbidden)) => {}
            (KvModelCommand::Swap { .. }, Some(KvModelAnswer::Number(0))) => {}
            (KvModelCommand::Set { k, v, if_there: None }, None) if sure => {
                left.insert(*k, value(v));
            }
            (KvModelCommand::Set { k, v, .. }, Some(_))
            | (KvModelCommand::Swap { k, new: v, .. }, Some(_)) => {
                left.insert(*k, value(v));
            }
            (KvModelCommand::Add { k, .. }, Some(KvModelAnswer::Number(n))) => {
                left.insert(*k, KeyEffect::Value(Some(n.to_string().into())));
            }
            (KvModelCommand::Delete { keys }, _) => {
                left.extend(keys.iter().map(|&k| (k, KeyEffect::Value(None))));
            }
            (KvModelCommand::SetAll { pairs }, _) => {
                left.extend(pairs.iter().map(|(k, v)| (*k, value(v))));
            }
            (
                KvModelCommand::Set { k, .. }
                | KvModelCommand::Swap { k, .. }
                | KvModelCommand::Add { k, .. }
                | KvModelCommand::Append { k, .. },
                _,
            ) => {
                left.insert(*k, KeyEffect::Unknown);
            }
            (
                KvModelCommand::Get { .. }
                | KvModelCommand::GetAll { .. }
                | KvModelCommand::Count { .. }
                | KvModelCommand::Length { .. },
                _,
            ) => {}
        }
    }
    left
}

/// The keys that `op` reads, if it only reads.
fn read_by(op: &KvModelOp) -> Vec<(u32, Option<KvText>)> {
    let mut read = Vec::new();
    if op.commands.iter().all(|(c, _)| c.only_reads()) {
        for (command, answer) in &op.commands {
            match (command, answer) {
                (KvModelCommand::Get { k }, Some(KvModelAnswer::Values(v))) => {
                    read.extend(v.iter().map(|v| (*k, v.clone())));
                }
                (KvModelCommand::GetAll { keys }, Some(KvModelAnswer::Values(v))) => {
                    read.extend(keys.iter().copied().zip(v.iter().cloned()));
                }
                _ => {}
            }
        }
    }
    read
}

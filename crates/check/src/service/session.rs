//! Read-your-writes.

use super::calls::Calls;
use super::kv::{Answer, Command, Kv, Op, Text};
use crate::delivery::violated;
use crate::history::History;
use crate::intern::NONE;
use crate::report::Verdict;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;

/// What a call leaves in a key, as far as its answer tells.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Left {
    Value(Option<Text>),
    Unknown,
}

/// The writes to a key: number of the call, and what it left.
type Writes = Vec<(u32, Left)>;

/// Whether every read sees the writes of its own client that had returned before it was made.
///
/// A read of a key (GET, MGET) does not see its client's latest write W to the key when what it
/// gives can only come from before W: every write that left this value had returned before W was
/// made, or there is no such write. (Writes to a key are taken to keep the order in which they
/// followed one another in time, as every ordered store's do; that the reads do so as well is not
/// required.) Writes of unknown value (APPEND; calls without answer whose effect depends on the
/// state) may have left any value.
pub fn read_your_writes(history: &History) -> Verdict {
    let mut kv = Kv::new();
    let calls = match Calls::new(history, &mut kv) {
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
    let mut by_value: BTreeMap<(u32, &Left), Vec<u32>> = BTreeMap::new();
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
            let value = Left::Value(value);
            let may_come_from = |left: &Left| {
                let list = by_value.get(&(k, left)).map_or(&[][..], |list| list);
                list.iter().rev().any(|&c| {
                    let c = calls.times[c as usize];
                    // `NONE`, for a write without return, is later than any moment.
                    c.ret >= since && c.call < read.ret
                })
            };
            if !may_come_from(&value) && !may_come_from(&Left::Unknown) {
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
        return Verdict::NotJudged(why.to_string());
    }
    Verdict::Holds
}

/// What each key that `op` may change holds after it; the last change of a key counts.
fn left_by(op: &Op) -> BTreeMap<u32, Left> {
    let mut left = BTreeMap::new();
    let sure = op.conditions.is_empty();
    for (command, answer) in &op.commands {
        let value = |v: &Text| Left::Value(Some(v.clone()));
        match (command, answer) {
            (Command::Set { if_there: Some(_), .. }, Some(Answer::Forbidden)) => {}
            (Command::Swap { .. }, Some(Answer::Number(0))) => {}
            (Command::Set { k, v, if_there: None }, None) if sure => {
                left.insert(*k, value(v));
            }
            (Command::Set { k, v, .. }, Some(_)) | (Command::Swap { k, new: v, .. }, Some(_)) => {
                left.insert(*k, value(v));
            }
            (Command::Add { k, .. }, Some(Answer::Number(n))) => {
                left.insert(*k, Left::Value(Some(n.to_string().into())));
            }
            (Command::Delete { keys }, _) => {
                left.extend(keys.iter().map(|&k| (k, Left::Value(None))));
            }
            (Command::SetAll { pairs }, _) => {
                left.extend(pairs.iter().map(|(k, v)| (*k, value(v))));
            }
            (
                Command::Set { k, .. }
                | Command::Swap { k, .. }
                | Command::Add { k, .. }
                | Command::Append { k, .. },
                _,
            ) => {
                left.insert(*k, Left::Unknown);
            }
            (
                Command::Get { .. }
                | Command::GetAll { .. }
                | Command::Count { .. }
                | Command::Length { .. },
                _,
            ) => {}
        }
    }
    left
}

/// What `op` reads, if it only reads.
fn read_by(op: &Op) -> Vec<(u32, Option<Text>)> {
    let mut read = Vec::new();
    if op.commands.iter().all(|(c, _)| c.only_reads()) {
        for (command, answer) in &op.commands {
            match (command, answer) {
                (Command::Get { k }, Some(Answer::Values(v))) => {
                    read.extend(v.iter().map(|v| (*k, v.clone())));
                }
                (Command::GetAll { keys }, Some(Answer::Values(v))) => {
                    read.extend(keys.iter().copied().zip(v.iter().cloned()));
                }
                _ => {}
            }
        }
    }
    read
}

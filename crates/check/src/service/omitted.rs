//! Calls that the model of a service cannot judge, and what they spoil.
//!
//! A recorder that meets a command which the model does not know writes `OTHER read NAME key ..`, or
//! `OTHER write NAME key ..` with the keys that it may change; without keys it may change all. Such
//! a call is omitted, and so is every call on a key that one of them may have changed, and on keys
//! that a call touches together with such a key: the answers of the rest do not depend on those.

use super::kv::KvModel;
use super::model::ServiceModel;
use crate::history::{History, ServiceEvent};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

/// The calls that [`History::leave_out`] omitted.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OmittedCalls {
    /// Calls of each command that the model does not know, by its name.
    pub commands: BTreeMap<String, u64>,
    /// Calls that the model has, on keys that such commands may have changed.
    pub spoiled: u64,
    /// Calls that remain.
    pub remain: u64,
}

impl OmittedCalls {
    /// Whether no call was omitted.
    pub fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }
}

impl fmt::Display for OmittedCalls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("calls omitted, because the model of the store does not have them:")?;
        for (i, (name, n)) in self.commands.iter().enumerate() {
            write!(f, "{} {n} {name}", if i == 0 { "" } else { "," })?;
        }
        write!(f, "; {} more on keys that these may have changed; ", self.spoiled)?;
        match self.remain {
            0 => f.write_str("no call remains to be judged"),
            n => write!(f, "{n} remain and are judged"),
        }
    }
}

/// A call that the model does not know: its name, and the keys that it may change.
struct UnmodelledCall<'a> {
    name: &'a str,
    writes: bool,
    keys: &'a str,
}

fn other(op: &str) -> Option<UnmodelledCall<'_>> {
    let rest = op.strip_prefix("OTHER ")?;
    let (kind, rest) = rest.split_once(' ')?;
    let (name, keys) = rest.split_once(' ').unwrap_or((rest, ""));
    Some(UnmodelledCall { name, writes: kind != "read", keys })
}

impl History {
    /// Omits the calls that the key-value store's model does not know, and those that they spoil.
    pub fn leave_out(&mut self) -> OmittedCalls {
        let (mut kv, mut left_out) = (KvModel::new(), OmittedCalls::default());
        let (mut spoiled, mut all) = (BTreeSet::new(), false);
        let mut gone = BTreeSet::new();
        for call in &self.calls {
            let Some(UnmodelledCall { name, writes, keys }) = other(&call.text) else { continue };
            // A retry is the same call.
            if gone.insert(call.m) {
                *left_out.commands.entry(name.to_string()).or_default() += 1;
                all |= writes && keys.is_empty();
            }
            if writes && !keys.is_empty() {
                spoiled.extend(keys_of(&mut kv, &alloc::format!("DEL {keys}")));
            }
        }
        if left_out.is_empty() {
            return left_out;
        }
        let known: Vec<(u32, Vec<u32>)> = self
            .calls
            .iter()
            .filter(|call| !gone.contains(&call.m))
            .map(|call| (call.m, keys_of(&mut kv, &call.text)))
            .collect();
        let before = gone.len();
        while !spoiled.is_empty() || all {
            let hit = |(m, keys): &&(u32, Vec<u32>)| {
                !gone.contains(m) && (all || keys.iter().any(|k| spoiled.contains(k)))
            };
            let more: Vec<_> = known.iter().filter(hit).collect();
            if more.is_empty() {
                break;
            }
            gone.extend(more.iter().map(|(m, _)| *m));
            spoiled.extend(more.iter().flat_map(|(_, keys)| keys));
        }
        left_out.spoiled = (gone.len() - before) as u64;
        self.calls_left_out = true;
        self.calls.retain(|said: &ServiceEvent| !gone.contains(&said.m));
        self.returns.retain(|said: &ServiceEvent| !gone.contains(&said.m));
        let remaining: BTreeSet<u32> = self.calls.iter().map(|said| said.m).collect();
        left_out.remain = remaining.len() as u64;
        left_out
    }
}

/// The keys of a call; none if it is not of the language, which the judgement itself will say.
fn keys_of(kv: &mut KvModel, op: &str) -> Vec<u32> {
    let mut keys = Vec::new();
    if let Ok(Some(op)) = kv.understand(op, None) {
        kv.keys(&op, &mut |k| keys.push(k));
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Property, PropertyVerdict, check};

    fn history(calls: &[(&str, &str)]) -> History {
        let mut history = History::new();
        history.push_line(r#"{"ev":"process","p":"c0","groups":[]}"#).unwrap();
        for (n, (op, out)) in calls.iter().enumerate() {
            for (ev, key, text, t) in [("call", "op", op, 2 * n), ("return", "out", out, 2 * n + 1)]
            {
                let line = alloc::format!(
                    r#"{{"ev":"{ev}","t":{t},"p":"c0","m":"c0:{n}","{key}":"{text}"}}"#
                );
                history.push_line(&line).unwrap();
            }
        }
        history
    }

    fn judge(history: &History) -> PropertyVerdict {
        check(history, &[Property::Linearizable]).findings.remove(0).1
    }

    #[test]
    fn what_is_unknown_is_left_out_with_all_that_it_may_have_changed() {
        let mut h = history(&[
            ("SET a 1", "OK"),
            ("MSET b 1 c 1", "OK"),
            ("OTHER write EXPIRE a", ""),
            ("OTHER write HSET c", ""),
            ("OTHER read HGET d", ""),
            ("GET a", "nil"),
            ("GET b", "nil"),
            ("SET d 1", "OK"),
            ("GET d", "1"),
        ]);
        assert!(matches!(judge(&h), PropertyVerdict::NotJudged(_)));
        let left_out = h.leave_out();
        assert_eq!((left_out.spoiled, left_out.remain), (4, 2));
        assert_eq!(
            left_out.to_string(),
            "calls omitted, because the model of the store does not have them: 1 EXPIRE, 1 HGET, 1 HSET; \
             4 more on keys that these may have changed; 2 remain and are judged"
        );
        assert_eq!(judge(&h), PropertyVerdict::Holds);
    }

    #[test]
    fn what_remains_is_still_judged() {
        let mut h = history(&[("OTHER write HSET h", ""), ("SET d 1", "OK"), ("GET d", "2")]);
        h.leave_out();
        assert!(matches!(judge(&h), PropertyVerdict::Violated(_)));
    }

    #[test]
    fn a_command_without_keys_spoils_everything() {
        let mut h = history(&[("OTHER write FLUSHALL", ""), ("SET d 1", "OK")]);
        let left_out = h.leave_out();
        assert_eq!((left_out.spoiled, left_out.remain), (1, 0));
        assert!(left_out.to_string().ends_with("; no call remains to be judged"), "{left_out}");
        assert_eq!(judge(&h), PropertyVerdict::NotJudged("no calls remain".into()));
        assert!(history(&[("SET d 1", "OK")]).leave_out().is_empty());
    }
}

//! The key-value store: the language of its calls in histories, and what they do.
//!
//! A call's `op` is a command in words separated by spaces; its `out` is the answer.
//!
//! | op | out | effect |
//! |---|---|---|
//! | `SET k v [NX\|XX]` | `OK`, or `nil` if NX or XX forbade it | k is v; NX: only if k is absent, XX: only if present |
//! | `GET k` | the value or `nil` | |
//! | `INCR k`, `DECR k`, `INCRBY k n`, `DECRBY k n` | the new number | k, 0 if absent, changes by 1 or n |
//! | `APPEND k v` | the new length in bytes | v is put behind k's value |
//! | `STRLEN k` | the length in bytes, 0 if absent | |
//! | `DEL k ..` | how many were there | they are absent |
//! | `EXISTS k ..` | how many are there | |
//! | `MSET k v ..` | `OK` | all at once |
//! | `MGET k ..` | values or `nil`, separated by spaces | |
//! | `CAS k old new` | `1` if k was old, else `0` | if k is old (or absent, for `nil`) it becomes new |
//! | `MULTI; command; ..` | the answers, separated by `;` | all at once |
//! | `MULTI; IF k v; ..; command; ..` | the same, or `nil` alone: nothing happened | only if each k is v (or absent, for `nil`) |
//!
//! Command names are read in any case. A word with spaces, quotes, `;` or nothing in it is written in
//! double quotes, with `\"`, `\\`, `\n`, `\r`, `\t` and `\xHH` inside (HH up to 7f). The bare word
//! `nil` is no value; `"nil"` in quotes is one. An `out` (or an answer within MULTI) that starts
//! with the bare word `ERR` says that the command was refused and had no effect; it is not asked
//! why (`ERR OOM` is written where a shard was full). A MULTI with conditions may answer `nil` at any time (a watched key may have been changed
//! and changed back), but then had no effect. A call without return may have had its effect, or
//! not.

use super::model::ServiceModel;
use crate::intern::{Names, hash_bytes, mix};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::rc::Rc;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

/// A value of a key.
pub(crate) type KvText = Rc<str>;

/// One command on numbered keys.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum KvModelCommand {
    Set { k: u32, v: KvText, if_there: Option<bool> },
    Get { k: u32 },
    Add { k: u32, by: i64 },
    Append { k: u32, v: KvText },
    Length { k: u32 },
    Delete { keys: Vec<u32> },
    Count { keys: Vec<u32> },
    SetAll { pairs: Vec<(u32, KvText)> },
    GetAll { keys: Vec<u32> },
    Swap { k: u32, old: Option<KvText>, new: KvText },
}

/// An answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum KvModelAnswer {
    Done,
    /// SET was forbidden by NX or XX.
    Forbidden,
    Number(i64),
    Values(Vec<Option<KvText>>),
    /// Refused, without effect.
    Refused,
}

/// A call: commands that happen at once, under conditions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KvModelOp {
    pub(crate) conditions: Vec<(u32, Option<KvText>)>,
    /// Each command and what it answered, if the call returned.
    pub(crate) commands: Vec<(KvModelCommand, Option<KvModelAnswer>)>,
}

/// The model of the key-value store.
#[derive(Clone, Debug)]
pub struct KvModel {
    keys: Names,
}

/// The values of the keys that are there.
#[derive(Clone, Debug, Default)]
pub struct KvModelState {
    values: BTreeMap<u32, KvText>,
    print: u128,
}

/// The values that keys had before, the latest change last.
#[derive(Debug)]
pub struct KvModelUndo(Vec<(u32, Option<KvText>)>);

impl Default for KvModel {
    fn default() -> Self {
        Self::new()
    }
}

impl KvModel {
    /// A store that nobody has called yet.
    pub fn new() -> Self {
        Self { keys: Names::new() }
    }

    pub(crate) fn key_name(&self, k: u32) -> &str {
        self.keys.get(k)
    }

    fn key(&mut self, word: KvToken) -> Result<u32, String> {
        let text = word.text().ok_or("nil is no key")?;
        self.keys.intern(&text).ok_or_else(|| "too many keys".to_string())
    }

    fn keys_of(&mut self, words: Vec<KvToken>) -> Result<Vec<u32>, String> {
        if words.is_empty() {
            return Err("a key is missing".to_string());
        }
        words.into_iter().map(|w| self.key(w)).collect()
    }

    fn command(&mut self, words: Vec<KvToken>) -> Result<KvModelCommand, String> {
        let mut words = words.into_iter();
        let name = words.next().and_then(KvToken::text).ok_or("a command is missing")?;
        let upper = name.to_ascii_uppercase();
        let mut words: Vec<KvToken> = words.collect();
        let all_keys = matches!(&*upper, "DEL" | "EXISTS" | "MGET");
        if all_keys {
            let keys = self.keys_of(words)?;
            return Ok(match &*upper {
                "DEL" => KvModelCommand::Delete { keys },
                "EXISTS" => KvModelCommand::Count { keys },
                _ => KvModelCommand::GetAll { keys },
            });
        }
        let count = words.len();
        let wrong = || format!("{name} with {count} words behind it");
        if upper == "MSET" {
            if words.is_empty() || words.len() % 2 == 1 {
                return Err(wrong());
            }
            let mut pairs = Vec::new();
            let mut words = words.into_iter();
            while let (Some(k), Some(v)) = (words.next(), words.next()) {
                pairs.push((self.key(k)?, v.value()?));
            }
            return Ok(KvModelCommand::SetAll { pairs });
        }
        let rest = if words.is_empty() { Vec::new() } else { words.split_off(1) };
        let k = self.key(words.pop().ok_or_else(wrong)?)?;
        match (&*upper, &rest[..]) {
            ("GET", []) => Ok(KvModelCommand::Get { k }),
            ("STRLEN", []) => Ok(KvModelCommand::Length { k }),
            ("INCR", []) => Ok(KvModelCommand::Add { k, by: 1 }),
            ("DECR", []) => Ok(KvModelCommand::Add { k, by: -1 }),
            ("INCRBY", [by]) => Ok(KvModelCommand::Add { k, by: by.number()? }),
            ("DECRBY", [by]) => {
                let by = by.number()?.checked_neg().ok_or_else(wrong)?;
                Ok(KvModelCommand::Add { k, by })
            }
            ("APPEND", [v]) => Ok(KvModelCommand::Append { k, v: v.value()? }),
            ("SET", [v]) => Ok(KvModelCommand::Set { k, v: v.value()?, if_there: None }),
            ("SET", [v, KvToken::Bare(option)]) => {
                let if_there = match &*option.to_ascii_uppercase() {
                    "NX" => false,
                    "XX" => true,
                    _ => return Err(format!("SET with the unknown option {option}")),
                };
                Ok(KvModelCommand::Set { k, v: v.value()?, if_there: Some(if_there) })
            }
            ("CAS", [old, new]) => {
                Ok(KvModelCommand::Swap { k, old: old.clone().text(), new: new.value()? })
            }
            (
                "SET" | "GET" | "STRLEN" | "INCR" | "DECR" | "INCRBY" | "DECRBY" | "APPEND" | "CAS",
                _,
            ) => Err(wrong()),
            _ => Err(format!("the unknown command {name}")),
        }
    }
}

impl KvModelCommand {
    fn tell_keys(&self, tell: &mut dyn FnMut(u32)) {
        match self {
            Self::Set { k, .. }
            | Self::Get { k }
            | Self::Add { k, .. }
            | Self::Append { k, .. }
            | Self::Length { k }
            | Self::Swap { k, .. } => tell(*k),
            Self::Delete { keys } | Self::Count { keys } | Self::GetAll { keys } => {
                keys.iter().for_each(|&k| tell(k));
            }
            Self::SetAll { pairs } => pairs.iter().for_each(|&(k, _)| tell(k)),
        }
    }

    pub(crate) fn only_reads(&self) -> bool {
        matches!(
            self,
            Self::Get { .. } | Self::Length { .. } | Self::Count { .. } | Self::GetAll { .. }
        )
    }

    /// The answer that `out` denotes.
    fn answer(&self, out: &[KvToken]) -> Result<KvModelAnswer, String> {
        if matches!(out.first(), Some(KvToken::Bare(word)) if word == "ERR") {
            return Ok(KvModelAnswer::Refused);
        }
        let wrong = || "an answer that this command does not give".to_string();
        match self {
            Self::GetAll { keys } if keys.len() == out.len() => {
                Ok(KvModelAnswer::Values(out.iter().map(|w| w.clone().text()).collect()))
            }
            Self::GetAll { .. } => Err(wrong()),
            _ if out.len() != 1 => Err(wrong()),
            Self::Get { .. } => Ok(KvModelAnswer::Values(vec![out[0].clone().text()])),
            Self::Set { if_there, .. } => match &out[0] {
                KvToken::Bare(ok) if ok == "OK" => Ok(KvModelAnswer::Done),
                KvToken::Nil if if_there.is_some() => Ok(KvModelAnswer::Forbidden),
                _ => Err(wrong()),
            },
            Self::SetAll { .. } => match &out[0] {
                KvToken::Bare(ok) if ok == "OK" => Ok(KvModelAnswer::Done),
                _ => Err(wrong()),
            },
            _ => out[0].number().map(KvModelAnswer::Number),
        }
    }
}

impl KvModelState {
    fn get(&self, k: u32) -> Option<&KvText> {
        self.values.get(&k)
    }

    fn put(&mut self, k: u32, v: Option<KvText>, undo: &mut KvModelUndo) {
        let old = self.replace(k, v);
        undo.0.push((k, old));
    }

    fn replace(&mut self, k: u32, v: Option<KvText>) -> Option<KvText> {
        let print = |v: &KvText| {
            let low = mix(hash_bytes(v.as_bytes()) ^ mix(u64::from(k)));
            let high = mix(low ^ hash_bytes(v.as_bytes()).rotate_left(17) ^ v.len() as u64);
            u128::from(high) << 64 | u128::from(low)
        };
        self.print ^= v.as_ref().map_or(0, print);
        let old = match v {
            Some(v) => self.values.insert(k, v),
            None => self.values.remove(&k),
        };
        self.print ^= old.as_ref().map_or(0, print);
        old
    }

    /// Lets one command happen; nothing if it would be refused here.
    fn run(&mut self, command: &KvModelCommand, undo: &mut KvModelUndo) -> Option<KvModelAnswer> {
        let value = |s: &Self, k: u32| s.get(k).cloned();
        Some(match command {
            KvModelCommand::Set { k, v, if_there } => {
                if if_there.is_some_and(|there| self.get(*k).is_some() != there) {
                    return Some(KvModelAnswer::Forbidden);
                }
                self.put(*k, Some(v.clone()), undo);
                KvModelAnswer::Done
            }
            KvModelCommand::Get { k } => KvModelAnswer::Values(vec![value(self, *k)]),
            KvModelCommand::GetAll { keys } => {
                KvModelAnswer::Values(keys.iter().map(|&k| value(self, k)).collect())
            }
            KvModelCommand::Add { k, by } => {
                let old: i64 = self.get(*k).map_or(Some(0), |v| v.parse().ok())?;
                let new = old.checked_add(*by)?;
                self.put(*k, Some(new.to_string().into()), undo);
                KvModelAnswer::Number(new)
            }
            KvModelCommand::Append { k, v } => {
                let new = self.get(*k).map_or(String::new(), |v| v.to_string()) + v;
                let length = new.len() as i64;
                self.put(*k, Some(new.into()), undo);
                KvModelAnswer::Number(length)
            }
            KvModelCommand::Length { k } => {
                KvModelAnswer::Number(self.get(*k).map_or(0, |v| v.len() as i64))
            }
            KvModelCommand::Delete { keys } => {
                let mut there = 0;
                for &k in keys {
                    there += i64::from(self.get(k).is_some());
                    self.put(k, None, undo);
                }
                KvModelAnswer::Number(there)
            }
            KvModelCommand::Count { keys } => {
                KvModelAnswer::Number(keys.iter().filter(|&&k| self.get(k).is_some()).count() as i64)
            }
            KvModelCommand::SetAll { pairs } => {
                for (k, v) in pairs {
                    self.put(*k, Some(v.clone()), undo);
                }
                KvModelAnswer::Done
            }
            KvModelCommand::Swap { k, old, new } => {
                let same = self.get(*k) == old.as_ref();
                if same {
                    self.put(*k, Some(new.clone()), undo);
                }
                KvModelAnswer::Number(i64::from(same))
            }
        })
    }
}

impl ServiceModel for KvModel {
    type Op = KvModelOp;
    type State = KvModelState;
    type Undo = KvModelUndo;
    type Known = ();

    fn understand(&mut self, op: &str, out: Option<&str>) -> Result<Option<KvModelOp>, String> {
        let mut parts = sentences(op)?.into_iter();
        let first = parts.next().unwrap_or_default();
        let multi = matches!(&first[..], [KvToken::Bare(w)] if w.eq_ignore_ascii_case("MULTI"));
        let (mut conditions, mut commands) = (Vec::new(), Vec::new());
        if !multi {
            commands.push(self.command(first)?);
            if parts.next().is_some() {
                return Err("several commands without MULTI".to_string());
            }
        }
        for part in parts {
            match &part[..] {
                [KvToken::Bare(w), k, v] if w.eq_ignore_ascii_case("IF") => {
                    conditions.push((self.key(k.clone())?, v.clone().text()));
                }
                [KvToken::Bare(w)] if w.eq_ignore_ascii_case("EXEC") => {}
                _ => commands.push(self.command(part)?),
            }
        }
        let Some(out) = out else {
            let commands = commands.into_iter().map(|c| (c, None)).collect();
            return Ok(Some(KvModelOp { conditions, commands }));
        };
        let outs = sentences(out)?;
        let aborted = multi && matches!(&outs[..], [one] if matches!(&one[..], [KvToken::Nil]));
        let refused = matches!(&outs[..], [one, ..] if matches!(one.first(), Some(KvToken::Bare(w)) if w == "ERR"));
        if aborted && !conditions.is_empty() || refused && outs.len() == 1 && commands.len() != 1 {
            return Ok(None);
        }
        let empty = commands.is_empty() && outs.iter().all(Vec::is_empty);
        if outs.len() != commands.len() && !empty {
            return Err(format!("{} answers to {} commands", outs.len(), commands.len()));
        }
        let mut answered = Vec::with_capacity(commands.len());
        for (command, out) in commands.into_iter().zip(&outs) {
            let answer = command.answer(out)?;
            answered.push((command, Some(answer)));
        }
        answered.retain(|(_, answer)| *answer != Some(KvModelAnswer::Refused));
        let says_nothing = answered.is_empty() && conditions.is_empty();
        Ok((!says_nothing).then_some(KvModelOp { conditions, commands: answered }))
    }

    fn keys(&self, op: &KvModelOp, tell: &mut dyn FnMut(u32)) {
        op.conditions.iter().for_each(|&(k, _)| tell(k));
        op.commands.iter().for_each(|(c, _)| c.tell_keys(tell));
    }

    fn only_reads(&self, op: &KvModelOp) -> bool {
        op.commands.iter().all(|(c, _)| c.only_reads())
    }

    fn start(&self) -> KvModelState {
        KvModelState::default()
    }

    fn apply(
        &self,
        state: &mut KvModelState,
        op: &KvModelOp,
        answered: bool,
    ) -> Option<KvModelUndo> {
        let mut undo = KvModelUndo(Vec::new());
        if op.conditions.iter().any(|(k, v)| state.get(*k) != v.as_ref()) {
            return None;
        }
        for (command, expected) in &op.commands {
            let answer = state.run(command, &mut undo);
            // A command of a call without answer that would be refused just does nothing.
            let fits = !answered || answer.is_some() && answer == *expected;
            if !fits {
                self.undo(state, undo);
                return None;
            }
        }
        Some(undo)
    }

    /// Nothing: any key may change at any time.
    fn known(&self, _: &mut dyn Iterator<Item = &KvModelOp>) {}

    fn agrees(&self, _: &KvModelState, _: &KvModelOp, (): &()) -> bool {
        true
    }

    fn undo(&self, state: &mut KvModelState, undo: KvModelUndo) {
        for (k, v) in undo.0.into_iter().rev() {
            state.replace(k, v);
        }
    }

    fn print(&self, state: &KvModelState) -> u128 {
        state.print
    }

    fn describe(&self, state: &KvModelState, keys: &[u32]) -> Vec<String> {
        let value = |k: u32| match state.get(k) {
            Some(v) => format!("{} = {v:?}", self.key_name(k)),
            None => format!("{} is absent", self.key_name(k)),
        };
        keys.iter().map(|&k| value(k)).collect()
    }
}

/// A word of the language.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum KvToken {
    /// Without quotes.
    Bare(String),
    /// In quotes.
    Quoted(String),
    /// The bare word `nil`.
    Nil,
}

impl KvToken {
    fn text(self) -> Option<KvText> {
        match self {
            Self::Bare(s) | Self::Quoted(s) => Some(s.into()),
            Self::Nil => None,
        }
    }

    pub(super) fn value(&self) -> Result<KvText, String> {
        self.clone().text().ok_or_else(|| "nil where a value should be".to_string())
    }

    fn number(&self) -> Result<i64, String> {
        let text = self.value()?;
        text.parse().map_err(|_| format!("{text:?} where a number should be"))
    }
}

/// The words of `text`, split at each bare `;`.
pub(super) fn sentences(text: &str) -> Result<Vec<Vec<KvToken>>, String> {
    let mut sentences = vec![Vec::new()];
    let mut chars = text.chars().peekable();
    while let Some(&ch) = chars.peek() {
        match ch {
            ';' => {
                chars.next();
                sentences.push(Vec::new());
            }
            '"' => {
                chars.next();
                let word = KvToken::Quoted(quoted(&mut chars)?);
                if let Some(last) = sentences.last_mut() {
                    last.push(word);
                }
            }
            _ if ch.is_whitespace() => {
                chars.next();
            }
            _ => {
                let mut word = String::new();
                while let Some(ch) =
                    chars.next_if(|&ch| !ch.is_whitespace() && ch != ';' && ch != '"')
                {
                    word.push(ch);
                }
                let word = if word == "nil" { KvToken::Nil } else { KvToken::Bare(word) };
                if let Some(last) = sentences.last_mut() {
                    last.push(word);
                }
            }
        }
    }
    // A `;` at the end ends the last command and starts none.
    if sentences.len() > 1 && sentences.last().is_some_and(Vec::is_empty) {
        sentences.pop();
    }
    Ok(sentences)
}

/// The rest of a word in quotes, its closing quote included.
fn quoted(chars: &mut impl Iterator<Item = char>) -> Result<String, String> {
    let mut word = String::new();
    loop {
        match chars.next().ok_or("a quote that is not closed")? {
            '"' => return Ok(word),
            '\\' => word.push(match chars.next().ok_or("a quote that is not closed")? {
                'n' => '\n',
                'r' => '\r',
                't' => '\t',
                'x' => {
                    let mut digit = || chars.next().and_then(|c| c.to_digit(16));
                    let (high, low) = (digit(), digit());
                    high.zip(low)
                        .and_then(|(high, low)| char::from_u32(high * 16 + low))
                        .filter(char::is_ascii)
                        .ok_or("\\x without two hexadecimal digits up to 7f")?
                }
                ch @ ('"' | '\\') => ch,
                ch => return Err(format!("the unknown escape \\{ch}")),
            }),
            ch => word.push(ch),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the calls, one after another, give these answers.
    fn plays(calls: &[(&str, &str)]) -> bool {
        let mut kv = KvModel::new();
        let ops: Vec<_> =
            calls.iter().filter_map(|(op, out)| kv.understand(op, Some(out)).unwrap()).collect();
        let mut state = kv.start();
        ops.iter().all(|op| kv.apply(&mut state, op, true).is_some())
    }

    #[test]
    fn commands_do_what_they_say() {
        assert!(plays(
            &[
                ("SET a \"x y\"", "OK"),
                ("get a", "\"x y\""),
                ("APPEND a z", "4"),
                ("STRLEN a", "4"),
                ("INCR a", "ERR not a number"),
                ("INCRBY n 5", "5"),
                ("DECR n", "4"),
                ("MSET a 1 b 2", "OK"),
                ("MGET a nope b", "1 nil 2"),
                ("EXISTS a b c", "2"),
                ("SET a 9 NX", "nil"),
                ("SET c 9 XX", "nil"),
                ("CAS a 1 \"nil\"", "1"),
                ("CAS a 1 3", "0"),
                ("GET a", "\"nil\""),
                ("DEL a b", "2"),
                ("MULTI; SET a 1; INCR a; GET b; EXEC", "OK; 2; nil"),
                ("MULTI; IF a 2; SET a 3", "OK"),
                ("MULTI; IF a 2; SET a 4", "nil"),
                ("MULTI; SET a 5; INCR zz q", "ERR syntax"),
                ("GET a", "3"),
            ][..19]
        ));
        assert!(plays(&[("SET a 1", "OK"), ("MULTI; IF a 1; DEL a", "1"), ("GET a", "nil")]));
    }

    #[test]
    fn wrong_answers_do_not_fit() {
        assert!(!plays(&[("GET a", "1")]));
        assert!(!plays(&[("SET a nilx", "OK"), ("GET a", "nil")]));
        assert!(!plays(&[("SET a 1", "OK"), ("SET a 2 NX", "OK")]));
        assert!(!plays(&[("MULTI; IF a 1; SET a 2", "OK")]));
        assert!(!plays(&[("SET a x", "OK"), ("INCR a", "1")]));
    }

    #[test]
    fn what_is_not_the_language_is_told() {
        let mut kv = KvModel::new();
        for (op, out) in [
            ("FLY a", "OK"),
            ("", "OK"),
            ("SET a", "OK"),
            ("SET a 1", "2"),
            ("GET \"a", "1"),
            ("MSET a 1 b", "OK"),
            ("MGET a b", "1"),
            ("MULTI; GET a", "1; 2"),
            ("GET a; GET b", "1; 2"),
            ("GET \"\\q\"", "1"),
            ("INCRBY a x", "1"),
        ] {
            assert!(kv.understand(op, Some(out)).is_err(), "{op} -> {out}");
        }
    }

    #[test]
    fn an_undone_effect_leaves_no_trace() {
        let mut kv = KvModel::new();
        let mut state = kv.start();
        let set = kv.understand("MSET a 1 b 2 a 3", None).unwrap().unwrap();
        let bad = kv.understand("MULTI; SET c 1; GET a", Some("OK; 9")).unwrap().unwrap();
        let undo = kv.apply(&mut state, &set, false).unwrap();
        let print = kv.print(&state);
        assert!(kv.apply(&mut state, &bad, true).is_none());
        assert_eq!(kv.print(&state), print);
        kv.undo(&mut state, undo);
        assert_eq!((kv.print(&state), state.values.len()), (0, 0));
    }
}

//! The clients' calls and answers, as the lines of a history: the language of
//! [`amcast_check::service::kv`], in which a history is judged linearizable or not.
//!
//! A client of the history is a connection of the Redis gateway, `c0.0.5`: the gateway's place, its
//! life, and the connection's lane. A call begins before its command is handed to the gateway, and
//! returns before the client receives the answer: the client's view lies around that. A call whose
//! outcome is not known does not return. Commands that the language does not have are `OTHER read
//! NAME key ..` and `OTHER write NAME key ..`, so that the checker can omit the keys that they
//! change.

use crate::clock;
use crate::command_gateway::NoAnswer;
use crate::history::HistoryRecorder;
use amcast_core::{Outcome, ServiceAnswer, Time};
use amcast_kv::{batch, budget, decode_args, registry, split_epoch};
use amcast_kv::{partitions, size_refusal, stamp_refusal};
use amcast_smr::Envelope;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Records the calls of one gateway.
pub struct CallBook(Mutex<CallTable>);

struct CallTable {
    recorder: HistoryRecorder,
    /// Calls that have not returned, by token.
    open: BTreeMap<u64, UnreturnedCall>,
    /// Clients that the file has named.
    named: BTreeSet<u64>,
}

struct UnreturnedCall {
    client: String,
    request: u64,
    form: AnswerForm,
}

/// The result of a call that a shard refused for lack of memory, or of such a command of a batch: it had no effect.
pub const NO_MEMORY: &str = "ERR OOM";

/// The form of a command's answer in the language.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AnswerForm {
    /// As it is.
    Same,
    /// 1 for `OK`, 0 for `nil`: SETNX, recorded as SET NX.
    SetIfAbsent,
    /// The old value, and what a second command answers that replaces (`OK`) or removes it.
    Swapped {
        /// Whether the second command removes it.
        removes: bool,
    },
    /// Each one's answer, behind semicolons.
    All,
    /// The same, of the commands of a batch.
    Batch,
    /// Of no interest.
    Other,
}

/// The record of a command at its call.
pub(super) struct CallStart {
    session: u64,
    request: u64,
    op: String,
    form: AnswerForm,
}

impl CallStart {
    /// Of the command with this envelope and body; none if there is nothing to say of it.
    pub(super) fn of(envelope: &Envelope, body: &[u8]) -> Option<Self> {
        let encoded = split_epoch(body).1;
        let (op, form) = if batch::is_batch(encoded) {
            spoken_batch(encoded, envelope.read_only)?
        } else {
            let mut args = Vec::new();
            decode_args(encoded, &mut args)?;
            args.first()?;
            spoken(&args, envelope.read_only)?
        };
        let Envelope { session, request, .. } = *envelope;
        Some(Self { session, request, op, form })
    }
}

impl CallBook {
    /// Calls go to `recorder`.
    pub fn new(recorder: HistoryRecorder) -> Self {
        Self(Mutex::new(CallTable { recorder, open: BTreeMap::new(), named: BTreeSet::new() }))
    }

    fn book(&self) -> MutexGuard<'_, CallTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has `submit` hand in a command, and records it as called
    /// before that if it was taken.
    pub(super) fn call(
        &self,
        token: u64,
        called: CallStart,
        submit: impl FnOnce() -> Result<(), NoAnswer>,
    ) -> Result<(), NoAnswer> {
        // The lock is held while the command is handed in, so that it cannot return before its call
        // is in the file.
        let mut book = self.book();
        let t = clock::now();
        submit()?;
        let CallStart { session, request, op, form } = called;
        let place = session >> 48;
        let life = session >> 24 & 0xff_ffff;
        let lane = session & 0xff_ffff;
        let client = format!("c{place}.{life}.{lane}");
        if book.named.insert(session) {
            let first = Time::ZERO;
            book.recorder
                .line(first, format_args!(r#"{{"ev":"process","p":"{client}","groups":[]}}"#));
        }
        let (op, at) = (json(&op), t.0);
        book.recorder.line(
            t,
            format_args!(
                r#"{{"ev":"call","t":{at},"p":"{client}","m":"{client}:{request}","op":{op}}}"#
            ),
        );
        book.open.insert(token, UnreturnedCall { client, request, form });
        Ok(())
    }

    /// Records that a call returned, unless nobody knows whether it took effect.
    pub(super) fn answered(&self, token: u64, answer: Result<&ServiceAnswer<'_>, NoAnswer>) {
        let mut book = self.book();
        let Some(UnreturnedCall { client, request, form }) = book.open.remove(&token) else {
            return;
        };
        let Some(out) = returned(&form, answer) else { return };
        let (t, out) = (clock::now(), json(&out));
        let at = t.0;
        book.recorder.line(
            t,
            format_args!(
                r#"{{"ev":"return","t":{at},"p":"{client}","m":"{client}:{request}","out":{out}}}"#
            ),
        );
    }

    /// Writes out what is held back.
    pub(super) fn flush(&self) {
        self.book().recorder.flush();
    }
}

/// The result of a call, in the language; none if its effect or its answer is unknown.
pub fn returned(form: &AnswerForm, answer: Result<&ServiceAnswer<'_>, NoAnswer>) -> Option<String> {
    let (outcome, bytes) = match answer {
        Ok(answer) => (answer.outcome, Some(&*answer.bytes)),
        Err(why) => (why.outcome(), None),
    };
    // One that was not executed for its map, its clock or the size of its answer is sent again, which is another call. It was sent a moment ago, so
    // that an old stamp says so, too.
    let is_sent_again = |bytes| {
        partitions::is_refusal(bytes)
            || stamp_refusal::is_refusal(bytes)
            || size_refusal::is_refusal(bytes)
    };
    match (outcome, bytes) {
        (_, Some(bytes)) if is_sent_again(bytes) => Some("ERR".to_string()),
        (Outcome::NotExecuted, bytes) => Some(refused(bytes.unwrap_or_default()).to_string()),
        (Outcome::Executed, Some(bytes)) => said(form, bytes),
        (Outcome::Executed, None) | (Outcome::Unknown, _) => None,
    }
}

/// The result of a command that was not executed, with the reason where the language has it.
fn refused(answer: &[u8]) -> &'static str {
    if budget::is_refusal(answer) { NO_MEMORY } else { "ERR" }
}

fn json(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// The commands of a batch, in the language: they are executed one after the other, with nothing in between.
pub fn spoken_batch(encoded: &[u8], read_only: bool) -> Option<(String, AnswerForm)> {
    let mut text = "MULTI".to_string();
    let (mut keys, mut is_plain) = (String::new(), true);
    for command in batch::commands(encoded) {
        let mut args = Vec::new();
        decode_args(command, &mut args)?;
        let name = String::from_utf8_lossy(args.first()?).to_ascii_uppercase();
        match plain(&name, &args) {
            Some((op, AnswerForm::Same)) => write!(text, "; {op}").ok()?,
            _ => is_plain = false,
        }
        keys += &keys_of(&args);
    }
    let kind = if read_only { "read" } else { "write" };
    Some(match is_plain {
        true => (text, AnswerForm::Batch),
        false => (format!("OTHER {kind} BATCH{keys}"), AnswerForm::Other),
    })
}

/// A command in the language, and how its answer is; nothing if there is nothing to say.
pub fn spoken(args: &[&[u8]], read_only: bool) -> Option<(String, AnswerForm)> {
    let name = String::from_utf8_lossy(args[0]).to_ascii_uppercase();
    match &*name {
        // It reads versions, which the language has not.
        "WATCH" => return None,
        "EXEC" => return Some(transaction(args).unwrap_or_else(|| other(&name, args, read_only))),
        _ => {}
    }
    Some(plain(&name, args).unwrap_or_else(|| other(&name, args, read_only)))
}

/// A command that the language has, or can say in other words.
fn plain(name: &str, args: &[&[u8]]) -> Option<(String, AnswerForm)> {
    let words: Vec<String> = args[1..].iter().map(|a| word(a)).collect::<Option<_>>()?;
    let same = |name: &str| Some((format!("{name} {}", words.join(" ")), AnswerForm::Same));
    match (name, &words[..]) {
        ("GET" | "STRLEN" | "INCR" | "DECR", [_])
        | ("INCRBY" | "DECRBY" | "APPEND" | "SET", [_, _])
        | ("EXISTS" | "MGET", [_, ..]) => same(name),
        ("DEL" | "UNLINK", [_, ..]) => same("DEL"),
        ("MSET", [_, _, ..]) if words.len().is_multiple_of(2) => same(name),
        ("SET", [k, v, option]) if ["NX", "XX"].contains(&&*option.to_ascii_uppercase()) => {
            Some((format!("SET {k} {v} {}", option.to_ascii_uppercase()), AnswerForm::Same))
        }
        ("SETNX", [k, v]) => Some((format!("SET {k} {v} NX"), AnswerForm::SetIfAbsent)),
        ("GETSET", [k, v]) => {
            Some((format!("MULTI; GET {k}; SET {k} {v}"), AnswerForm::Swapped { removes: false }))
        }
        ("GETDEL", [k]) => {
            Some((format!("MULTI; GET {k}; DEL {k}"), AnswerForm::Swapped { removes: true }))
        }
        _ => None,
    }
}

/// A transaction as it is ordered: the number of watched keys, each with its version, the number of
/// commands, each behind the number of its arguments. That a watched key may forbid it is not said:
/// it then counts as refused.
fn transaction(args: &[&[u8]]) -> Option<(String, AnswerForm)> {
    let mut rest = args[1..].iter();
    let number = |text: &&[u8]| std::str::from_utf8(text).ok()?.parse::<usize>().ok();
    let watched = rest.next().and_then(number)?;
    let mut rest = rest.skip(2 * watched);
    let count = rest.next().and_then(number)?;
    let mut text = "MULTI".to_string();
    for _ in 0..count {
        let len = rest.next().and_then(number)?;
        let inner: Vec<&[u8]> = rest.by_ref().take(len).copied().collect();
        let name = String::from_utf8_lossy(inner.first()?).to_ascii_uppercase();
        let (op, form) = plain(&name, &inner)?;
        if form != AnswerForm::Same {
            return None;
        }
        write!(text, "; {op}").ok()?;
    }
    Some((text, AnswerForm::All))
}

/// A command that the language does not have, with the keys that it may change; no key means all.
fn other(name: &str, args: &[&[u8]], read_only: bool) -> (String, AnswerForm) {
    // Commands that move keys to other shards do not change their values.
    let moves = name.get(..7).is_some_and(|own| own.eq_ignore_ascii_case("amcast."));
    let kind = if read_only || moves { "read" } else { "write" };
    (format!("OTHER {kind} {name}{}", keys_of(args)), AnswerForm::Other)
}

/// The keys of a command, each behind a space.
fn keys_of(args: &[&[u8]]) -> String {
    let mut text = String::new();
    if let Some(command) = registry::lookup(args[0]) {
        command.keys_of(args, &mut |key| {
            // A key that is no text is touched by no call of the language either.
            let key = word(key).unwrap_or_else(|| word_of(&format!("bytes:{key:02x?}")));
            text.push(' ');
            text.push_str(&key);
        });
    }
    text
}

/// An argument as a word of the language, if it is text.
fn word(bytes: &[u8]) -> Option<String> {
    std::str::from_utf8(bytes).ok().map(word_of)
}

fn word_of(text: &str) -> String {
    let bare = |b: u8| b.is_ascii_alphanumeric() || b"-_.:{}*+/@".contains(&b);
    if !text.is_empty() && text.bytes().all(bare) && text != "nil" && text != "ERR" {
        return text.to_string();
    }
    let mut word = "\"".to_string();
    for ch in text.chars() {
        match ch {
            '"' | '\\' => word.extend(['\\', ch]),
            ch if (ch as u32) < 0x20 || ch == '\x7f' => {
                word.push_str(&format!("\\x{:02x}", ch as u32));
            }
            ch => word.push(ch),
        }
    }
    word.push('"');
    word
}

/// An answer in the language; none if it cannot be expressed.
fn said(form: &AnswerForm, answer: &[u8]) -> Option<String> {
    if let Some(answers) = batch::answers(answer) {
        return said_batch(form, answers);
    }
    let mut rest = answer;
    let first = value(&mut rest)?;
    if let AnswerElement::Error = first {
        return Some("ERR".to_string());
    }
    match (form, first) {
        (AnswerForm::Other, _) => Some(String::new()),
        (AnswerForm::SetIfAbsent, AnswerElement::One(n)) => {
            Some(if n == "1" { "OK" } else { "nil" }.to_string())
        }
        (AnswerForm::Swapped { removes }, AnswerElement::One(old)) => {
            Some(match (removes, &*old) {
                (true, "nil") => "nil; 0".to_string(),
                (true, _) => format!("{old}; 1"),
                (false, _) => format!("{old}; OK"),
            })
        }
        // A watched key had changed.
        (AnswerForm::All, AnswerElement::One(nil)) if nil == "nil" => Some("ERR".to_string()),
        (AnswerForm::All, AnswerElement::Many(n)) => {
            let parts = (0..n).map(|_| shown(&mut rest)).collect::<Option<Vec<_>>>()?;
            Some(parts.join("; "))
        }
        (AnswerForm::Same, _) => shown(&mut { answer }),
        _ => None,
    }
}

/// The answers to the commands of a batch. One that was not executed had no effect, and may be sent again, which
/// is another call.
fn said_batch(form: &AnswerForm, answers: batch::BatchAnswers<'_>) -> Option<String> {
    let one = |(outcome, mut bytes): (Outcome, &[u8])| match outcome {
        Outcome::Executed => shown(&mut bytes),
        Outcome::NotExecuted => Some(refused(bytes).to_string()),
        Outcome::Unknown => None,
    };
    match form {
        AnswerForm::Other => Some(String::new()),
        _ => Some(answers.map(one).collect::<Option<Vec<_>>>()?.join("; ")),
    }
}

/// A value, or all of an array's.
fn shown(rest: &mut &[u8]) -> Option<String> {
    match value(rest)? {
        AnswerElement::Error => Some("ERR".to_string()),
        AnswerElement::One(text) => Some(text),
        AnswerElement::Many(n) => {
            let one = |_| match value(rest)? {
                AnswerElement::One(text) => Some(text),
                _ => None,
            };
            Some((0..n).map(one).collect::<Option<Vec<_>>>()?.join(" "))
        }
    }
}

/// One element of an answer.
enum AnswerElement {
    Error,
    One(String),
    /// So many elements follow.
    Many(usize),
}

fn value(rest: &mut &[u8]) -> Option<AnswerElement> {
    let end = rest.iter().position(|b| *b == b'\n')?;
    let line = std::str::from_utf8(rest[..end].strip_suffix(b"\r")?).ok()?;
    *rest = &rest[end + 1..];
    let (mark, line) = line.split_at_checked(1)?;
    Some(match mark {
        "-" => AnswerElement::Error,
        "+" | ":" => AnswerElement::One(line.to_string()),
        "_" => AnswerElement::One("nil".to_string()),
        "*" | "$" if line == "-1" => AnswerElement::One("nil".to_string()),
        "*" => AnswerElement::Many(line.parse().ok()?),
        "$" => {
            let (bytes, tail) = rest.split_at_checked(line.parse::<usize>().ok()?)?;
            *rest = tail.get(2..)?;
            AnswerElement::One(word(bytes)?)
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use amcast_check::service::ServiceModel;
    use amcast_check::service::kv::KvModel;
    use amcast_kv::encode_args;

    fn op(words: &[&str]) -> (String, AnswerForm) {
        let args: Vec<&[u8]> = words.iter().map(|w| w.as_bytes()).collect();
        spoken(&args, words[0].eq_ignore_ascii_case("HGET")).expect("it says something")
    }

    #[test]
    fn what_is_recorded_is_the_language_that_is_judged() {
        let cases: [(&[&str], &str, &str, &str); 12] = [
            (&["set", "a b", "\"\n"], "SET \"a b\" \"\\\"\\x0a\"", "+OK\r\n", "OK"),
            (&["SET", "a", "nil", "nx"], "SET a \"nil\" NX", "_\r\n", "nil"),
            (&["GET", "a"], "GET a", "$3\r\nnil\r\n", "\"nil\""),
            (&["UNLINK", "a", "b"], "DEL a b", ":2\r\n", "2"),
            (&["SETNX", "a", "1"], "SET a 1 NX", ":0\r\n", "nil"),
            (&["GETSET", "a", "1"], "MULTI; GET a; SET a 1", "_\r\n", "nil; OK"),
            (&["GETDEL", "a"], "MULTI; GET a; DEL a", "$1\r\nx\r\n", "x; 1"),
            (&["MGET", "a", "b"], "MGET a b", "*2\r\n$1\r\nx\r\n_\r\n", "x nil"),
            (&["INCR", "a"], "INCR a", "-ERR value is not an integer\r\n", "ERR"),
            (
                &["exec", "1", "w", "17", "2", "3", "SET", "a", "1", "2", "GET", "b"],
                "MULTI; SET a 1; GET b",
                "*2\r\n+OK\r\n_\r\n",
                "OK; nil",
            ),
            (&["exec", "1", "w", "17", "1", "2", "GET", "b"], "MULTI; GET b", "*-1\r\n", "ERR"),
            (&["APPEND", "a", "ü"], "APPEND a \"ü\"", ":2\r\n", "2"),
        ];
        for (words, expected, answer, out) in cases {
            let (text, form) = op(words);
            assert_eq!(text, expected);
            let told = said(&form, answer.as_bytes()).expect("it can be said");
            assert_eq!(told, out, "{text}");
            KvModel::new().understand(&text, Some(&told)).expect("the language");
        }
    }

    #[test]
    fn a_call_returns_by_what_became_of_it_and_not_by_its_words() {
        let told = |outcome, text: &str| {
            returned(&AnswerForm::Same, Ok(&ServiceAnswer::borrowed(outcome, text.as_bytes())))
        };
        let refused = Some("ERR".to_string());
        for text in ["-ERR the answer is not kept\r\n", "-ERR x; the command was not executed\r\n"]
        {
            assert_eq!(told(Outcome::Unknown, text), None, "{text}");
            assert_eq!(told(Outcome::NotExecuted, text), refused, "{text}");
            assert_eq!(told(Outcome::Executed, text), refused, "{text}");
        }
        assert_eq!(told(Outcome::Executed, "+OK\r\n"), Some("OK".to_string()));
        for text in [
            "-OOM command not allowed\r\n",
            "-EXECABORT Transaction discarded because of: OOM x\r\n",
        ] {
            assert_eq!(told(Outcome::NotExecuted, text).as_deref(), Some(NO_MEMORY), "{text}");
        }
        // It is sent again.
        assert_eq!(told(Outcome::Unknown, "?7\nGET a"), refused);
        assert_eq!(returned(&AnswerForm::Same, Err(NoAnswer::Busy)), refused);
        assert_eq!(returned(&AnswerForm::Same, Err(NoAnswer::TimedOut)), None);
    }

    #[test]
    fn commands_that_share_a_message_are_one_call_and_one_that_was_not_executed_had_no_effect() {
        let mut message = Vec::new();
        encode_args(&[b"SET", b"a", b"1"], &mut message);
        let mut other = Vec::new();
        encode_args(&[b"DECR", b"n"], &mut other);
        batch::push(&mut message, 0, &other);
        let (text, form) = spoken_batch(&message, false).expect("it says something");
        assert_eq!((&*text, &form), ("MULTI; SET a 1; DECR n", &AnswerForm::Batch));
        let mut answer = Vec::new();
        batch::begin_answers(&mut answer);
        for (outcome, bytes) in [
            (Outcome::NotExecuted, &b"-OOM command not allowed\r\n"[..]),
            (Outcome::Executed, b":-1\r\n"),
        ] {
            batch::put_answer(&mut answer, |to| {
                to.extend_from_slice(bytes);
                outcome
            });
        }
        let told = returned(&form, Ok(&ServiceAnswer::borrowed(Outcome::Executed, &answer)));
        assert_eq!(told.as_deref(), Some("ERR OOM; -1"));
        KvModel::new().understand(&text, told.as_deref()).expect("the language");
        let mut swap = Vec::new();
        encode_args(&[b"HSET", b"h", b"f", b"1"], &mut swap);
        batch::push(&mut message, 0, &swap);
        let lacking = ("OTHER write BATCH a n h".to_string(), AnswerForm::Other);
        assert_eq!(spoken_batch(&message, false), Some(lacking));
    }

    #[test]
    fn what_the_language_lacks_is_named_with_its_keys() {
        assert_eq!(op(&["HSET", "h", "f", "v"]), ("OTHER write HSET h".into(), AnswerForm::Other));
        assert_eq!(op(&["HGET", "h", "f"]), ("OTHER read HGET h".into(), AnswerForm::Other));
        assert_eq!(
            op(&["SET", "a", "1", "EX", "9"]),
            ("OTHER write SET a".into(), AnswerForm::Other)
        );
        assert_eq!(op(&["FLUSHALL"]), ("OTHER write FLUSHALL".into(), AnswerForm::Other));
        let split = ("OTHER read AMCAST.SPLIT".into(), AnswerForm::Other);
        assert_eq!(op(&["AMCAST.SPLIT", "0", "100", "1"]), split);
        let args: [&[u8]; 3] = [b"SET", b"a", b"\xff"];
        assert_eq!(spoken(&args, false), Some(("OTHER write SET a".into(), AnswerForm::Other)));
    }
}

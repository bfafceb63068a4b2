//! Batches that were not answered, in runs in which shards may be full.
//!
//! A full shard refuses each command of a batch by itself, and only the answer says which ones. Where there is none, each
//! command may have had its effect or not: in the history it is a call of its own. A transaction, and a command such as
//! `GETSET` that the history has in the words of one, is refused as a whole, and stays one call.

use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt::Write;

/// The beginning of the commands of a batch, and of a transaction, in the language of [`amcast_check::service::kv`].
const BATCH: &str = "MULTI; ";

/// The lines of a history in which the commands of such batches are calls of their own; the messages of all batches are in
/// `batches`. For each of the commands `tell` is given the message of the batch and its own.
pub(super) fn with_commands_apart(
    lines: &str,
    batches: &BTreeSet<String>,
    tell: &mut dyn FnMut(&str, String),
) -> String {
    let parsed = |line| serde_json::from_str::<Value>(line).unwrap_or_default();
    let is_return = |line: &Value| line["ev"] == "return";
    let returns = lines.lines().map(parsed).filter(is_return);
    let message = |line: Value| line["m"].as_str().map(str::to_string);
    let answered: BTreeSet<String> = returns.filter_map(message).collect();
    let mut apart = String::new();
    for line in lines.lines() {
        let call = parsed(line);
        let batch = call["op"].as_str().and_then(|op| op.strip_prefix(BATCH));
        let message = call["m"].as_str().unwrap_or_default();
        let is_open = batches.contains(message) && !answered.contains(message);
        let Some(batch) = batch.filter(|_| is_open) else {
            writeln!(apart, "{line}").expect("a string takes it");
            continue;
        };
        for (number, command) in batch.split("; ").enumerate() {
            let (mut one, own) = (call.clone(), format!("{message}+{number}"));
            (one["op"], one["m"]) = (command.into(), own.as_str().into());
            writeln!(apart, "{one}").expect("a string takes it");
            tell(message, own);
        }
    }
    apart
}

#[cfg(test)]
mod tests {
    use super::*;
    use amcast_check::{History, PropertyVerdict, service};

    /// The form in which the commands were sent.
    #[derive(Clone, Copy, PartialEq, Eq)]
    enum SentAs {
        Batch,
        Transaction,
    }

    /// Whether a batch or transaction is judged linearizable of which only the first command had an effect.
    fn is_linearizable(sent: SentAs, answer: Option<&str>, are_apart: bool) -> bool {
        let line = |process: &str, of: &str, what: &str, text: &str, t: u64| {
            format!(
                r#"{{"ev":"{of}","t":{t},"p":"{process}","m":"{process}:1","{what}":"{text}"}}"#
            )
        };
        let mut lines = vec![
            r#"{"ev":"process","p":"a","groups":[]}"#.to_string(),
            r#"{"ev":"process","p":"b","groups":[]}"#.to_string(),
            line("a", "call", "op", "MULTI; SET k s; SET k m", 1),
        ];
        lines.extend(answer.map(|answer| line("a", "return", "out", answer, 2)));
        lines.push(line("b", "call", "op", "GET k", 3));
        lines.push(line("b", "return", "out", "s", 4));
        let mut lines = lines.join("\n");
        let mut told = Vec::new();
        if are_apart {
            let batch = (sent == SentAs::Batch).then(|| "a:1".to_string());
            let batches = batch.into_iter().collect();
            let mut tell = |of: &str, own| told.push((of.to_string(), own));
            lines = with_commands_apart(&lines, &batches, &mut tell);
            let is_split = answer.is_none() && sent == SentAs::Batch;
            assert_eq!(told.len(), if is_split { 2 } else { 0 }, "{told:?}");
        }
        let mut history = History::new();
        lines.lines().for_each(|line| history.push_line(line).expect("it is a line"));
        service::linearizable(&history, service::Budget::default()) == PropertyVerdict::Holds
    }

    #[test]
    fn a_batch_without_an_answer_may_have_had_the_effects_of_some_of_its_commands() {
        let batch = |answer, are_apart| is_linearizable(SentAs::Batch, answer, are_apart);
        assert!(batch(Some("OK; ERR OOM"), true), "it says which");
        assert!(!batch(Some("OK; OK"), true));
        assert!(!batch(None, false), "where no shard is full it is all or nothing");
        assert!(batch(None, true));
    }

    #[test]
    fn a_transaction_without_an_answer_had_all_its_effects_or_none() {
        assert!(!is_linearizable(SentAs::Transaction, None, true));
    }
}

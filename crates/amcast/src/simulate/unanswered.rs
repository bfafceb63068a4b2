//! Batches that were not answered, in runs in which shards may be full.
//!
//! A full shard refuses each command of a batch by itself, and only the answer says which ones. Where there is none, each
//! command may have had its effect or not: in the history it is a call of its own. A transaction, which is refused as
//! a whole, looks like a batch there, and is taken for one.

use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt::Write;

/// The beginning of the commands of a batch in the language of [`amcast_check::service::kv`].
const BATCH: &str = "MULTI; ";

/// The lines of a history in which the commands of such batches are calls of their own. For each of them `tell` is given the
/// message of the batch and its own.
pub(super) fn with_commands_apart(lines: &str, tell: &mut dyn FnMut(&str, String)) -> String {
    let parsed = |line| serde_json::from_str::<Value>(line).unwrap_or_default();
    let is_return = |line: &Value| line["ev"] == "return";
    let returns = lines.lines().map(parsed).filter(is_return);
    let answered: BTreeSet<String> = returns.map(|line| line["m"].to_string()).collect();
    let mut apart = String::new();
    for line in lines.lines() {
        let call = parsed(line);
        let batch = call["op"].as_str().and_then(|op| op.strip_prefix(BATCH));
        let Some(batch) = batch.filter(|_| !answered.contains(&call["m"].to_string())) else {
            writeln!(apart, "{line}").expect("a string takes it");
            continue;
        };
        let message = call["m"].as_str().unwrap_or_default();
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

    /// Whether a batch is judged linearizable of which only the first command had an effect.
    fn is_linearizable(answer: Option<&str>, are_apart: bool) -> bool {
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
            lines = with_commands_apart(&lines, &mut |of, own| told.push((of.to_string(), own)));
            assert_eq!(told.len(), if answer.is_some() { 0 } else { 2 }, "{told:?}");
        }
        let mut history = History::new();
        lines.lines().for_each(|line| history.push_line(line).expect("it is a line"));
        service::linearizable(&history, service::Budget::default()) == PropertyVerdict::Holds
    }

    #[test]
    fn a_batch_without_an_answer_may_have_had_the_effects_of_some_of_its_commands() {
        assert!(is_linearizable(Some("OK; ERR OOM"), true), "it says which");
        assert!(!is_linearizable(Some("OK; OK"), true));
        assert!(!is_linearizable(None, false), "where no shard is full it is all or nothing");
        assert!(is_linearizable(None, true));
    }
}

//! The distributed log under simulated clients: appends to one log and to several at once, reads, trims, and questions how
//! far logs go.

use super::{AnswerMeaning, Call, SeenCalls, ServiceJudge, Workload};
use amcast_check::PropertyVerdict;
use amcast_check::service::log::LogModel;
use amcast_check::service::{Budget, linearizable_as};
use amcast_core::rng::Rng;
use amcast_core::{Outcome, ServiceAnswer};
use amcast_kv::SlotMap;
use amcast_log::{self as log, StoreAndLog};
use amcast_log::{Addition, Extent, LogAnswer, LogCommand, Logs, Rejection};
use amcast_smr::machine::Refusal;
use std::fmt::Write;

/// Logs of a run: few, so that clients meet.
const LOGS: u64 = 4;

/// Values of one read.
const VALUES_MAX: u32 = 6;

/// Clients that append to the same few logs and read them. The last log is trimmed, and the others keep everything.
pub struct LogWorkload {
    map: SlotMap,
    values: u64,
}

impl LogWorkload {
    /// Of logs over so many shards.
    pub const fn new(shards: usize) -> Self {
        Self { map: SlotMap::new(shards), values: 0 }
    }

    fn call(&self, command: &LogCommand<'_>, op: String) -> Call {
        let dst = Logs::destinations(self.map, command);
        let mut body = Vec::new();
        command.encode(&mut body);
        Call::new(dst, body, !command.writes(), op)
    }

    fn append(&mut self, logs: &[String], rng: &mut Rng) -> Call {
        self.values += 1;
        let value = format!("v{:x}", rng.word() >> 24);
        let of = |log: &'_ String| format!(" {log} {value}");
        let op = format!("APPEND{}", logs.iter().map(of).collect::<String>());
        let value = value.as_bytes();
        let additions = logs.iter().map(|log| Addition { log: log.as_bytes(), value }).collect();
        self.call(&LogCommand::Append(additions), op)
    }
}

fn name(log: u64) -> String {
    format!("log{log}")
}

impl Workload for LogWorkload {
    type Machine = StoreAndLog;

    fn next(&mut self, rng: &mut Rng) -> Call {
        let (one, near) = (name(rng.below(LOGS)), rng.below(1 + self.values));
        let log = one.as_bytes();
        match rng.below(12) {
            0..=3 => self.append(&[one], rng),
            4..=6 => {
                let mut chosen: Vec<String> = (0..LOGS).map(name).collect();
                chosen.retain(|log| *log == one || rng.below(2) == 0);
                self.append(&chosen, rng)
            }
            7..=9 => {
                let (values_max, bytes_max) = (VALUES_MAX, log::READ_BYTES_MAX);
                let read = LogCommand::Read { log, from: near, values_max, bytes_max };
                self.call(&read, format!("READ {one} {near}"))
            }
            10 => {
                let trimmed = name(LOGS - 1);
                let trim = LogCommand::Trim { log: trimmed.as_bytes(), before: near };
                self.call(&trim, format!("TRIM {trimmed} {near}"))
            }
            _ => self.last(),
        }
    }

    fn last(&mut self) -> Call {
        let names: Vec<String> = (0..LOGS).map(name).collect();
        let extents = LogCommand::Extents(names.iter().map(String::as_bytes).collect());
        self.call(&extents, format!("INFO {}", names.join(" ")))
    }

    fn returned(&mut self, _: &Call, answer: &ServiceAnswer<'_>) -> AnswerMeaning {
        let Some(decoded) = LogAnswer::decode(&answer.bytes) else { return AnswerMeaning::Unknown };
        match decoded {
            LogAnswer::Not(Rejection::Refused(
                Refusal::Stale { now_ms } | Refusal::Ahead { now_ms },
            )) => AnswerMeaning::Again { now_ms: Some(now_ms), call: None },
            decoded => match answer.outcome {
                Outcome::Unknown => AnswerMeaning::Unknown,
                Outcome::NotExecuted => AnswerMeaning::Out("ERR".to_string()),
                Outcome::Executed => {
                    said(&decoded).map_or(AnswerMeaning::Unknown, AnswerMeaning::Out)
                }
            },
        }
    }

    fn judge(&self, seen: &SeenCalls<'_>) -> Vec<(&'static str, PropertyVerdict)> {
        let verdict = linearizable_as(LogModel::new(), seen.history, Budget::default());
        vec![(ServiceJudge::Linearizable.name(), verdict)]
    }
}

/// The answer to a command that was executed, in the language of the history; nothing if it is not kept.
fn said(answer: &LogAnswer) -> Option<String> {
    let told = |extent: &Extent| format!("{} {}", extent.first, extent.next);
    Some(match answer {
        LogAnswer::Appended { positions, .. } => {
            positions.iter().map(u64::to_string).collect::<Vec<_>>().join(" ")
        }
        LogAnswer::Values { extent, values, .. } => {
            let mut text = told(extent);
            for value in values {
                write!(text, " {}", String::from_utf8_lossy(value)).expect("a string takes it");
            }
            text
        }
        LogAnswer::Trimmed { extent, .. } | LogAnswer::Deleted { extent, .. } => told(extent),
        LogAnswer::Extents(extents) => {
            let each = extents.iter().map(|e| e.as_ref().map_or_else(|| "nil".to_string(), told));
            each.collect::<Vec<_>>().join("; ")
        }
        LogAnswer::Not(Rejection::Unknown { .. }) => "nil".to_string(),
        LogAnswer::Not(Rejection::Gone { first }) => format!("gone {first}"),
        LogAnswer::Listed(_) | LogAnswer::Not(_) => return None,
    })
}

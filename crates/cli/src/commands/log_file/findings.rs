//! The findings in a log, for people and as JSON.

use amcast_storage::offline::{CheckpointSummary, Inspection, SegmentEnd, SegmentSummary};
use amcast_storage::{Damage, Flaw};
use serde_json::{Value, json};
use std::fmt::Write;
use std::path::Path;

/// The last part of a path.
fn name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

/// A survey for people, a line for each segment.
pub(super) fn lines(survey: &Inspection) -> String {
    let mut text = String::new();
    let mut line = |words: &str| {
        writeln!(text, "{words}").expect("a string takes everything");
    };
    if let Some(log) = survey.log {
        let life = survey.life.map_or(String::new(), |life| format!(", life {life}"));
        line(&format!("log {log}{life}"));
    }
    for seen in &survey.segments {
        let SegmentSummary { path, records, bytes, end, .. } = seen;
        let end = match end {
            SegmentEnd::Whole => String::new(),
            SegmentEnd::Torn => ", its end torn".to_string(),
            SegmentEnd::Damaged => ", damaged".to_string(),
            SegmentEnd::Headless(e) => format!(", its head damaged ({e})"),
            SegmentEnd::Unreadable(e) => format!(": {e}"),
        };
        line(&format!("  {}: {records} records, {bytes} bytes{end}", name(path)));
    }
    let count = survey.next - survey.first;
    let closed = if survey.closed { "; closed in good order" } else { "" };
    match count.checked_sub(1) {
        None => line(&format!("no records; the next one is {}{closed}", survey.next)),
        Some(more) => {
            line(&format!("{count} records, {} to {}{closed}", survey.first, survey.first + more));
        }
    }
    if let Some(torn) = &survey.torn {
        line(&format!(
            "a record was begun behind them and never durable ({}, byte {}): the next start cuts it off",
            name(&torn.path),
            torn.offset
        ));
    }
    if let Some(e) = &survey.state {
        line(&e.to_string());
    }
    if let Some(e) = &survey.end {
        line(&format!("{e}: so nothing proves that the log was not cut short"));
    }
    if let Some(front) = &survey.front {
        line(&front.to_string());
        let (from, first) = (front.number, survey.first);
        line(&format!(
            "the records from {from} on and before {first} are gone; those that follow are there"
        ));
    }
    if let Some(damage) = &survey.damage {
        line(&damage.to_string());
        if let (Flaw::End, Some(synced)) = (damage.what, survey.synced) {
            line(&format!(
                "the log was synced up to record {synced}, and ends before record {}",
                survey.next
            ));
        }
        line(&format!("{} whole records are behind the damage", survey.beyond));
    }
    text
}

/// A survey as JSON.
pub(super) fn document(survey: &Inspection) -> Value {
    let segments = survey.segments.iter().map(|seen| {
        let (end, why) = match &seen.end {
            SegmentEnd::Whole => ("whole", None),
            SegmentEnd::Torn => ("torn", None),
            SegmentEnd::Damaged => ("damaged", None),
            SegmentEnd::Headless(e) => ("headless", Some(e.to_string())),
            SegmentEnd::Unreadable(e) => ("unreadable", Some(e.to_string())),
        };
        let file = seen.path.display().to_string();
        let first = seen.first;
        let records = seen.records;
        let bytes = seen.bytes;
        json!({"file": file, "first": first, "records": records, "bytes": bytes, "end": end, "why": why})
    });
    let told = |damage: &Damage| {
        let file = damage.path.display().to_string();
        let says = damage.to_string();
        json!({"file": file, "offset": damage.offset, "number": damage.number, "says": says})
    };
    let torn = survey
        .torn
        .as_ref()
        .map(|torn| json!({"file": torn.path.display().to_string(), "offset": torn.offset}));
    json!({
        "log": survey.log.map(|log| log.to_string()),
        "life": survey.life,
        "first": survey.first,
        "next": survey.next,
        "closed": survey.closed,
        "sound": survey.is_sound(),
        "torn": torn,
        "damage": survey.damage.as_ref().map(told),
        "front": survey.front.as_ref().map(told),
        "synced": survey.synced,
        "end": survey.end.as_ref().map(ToString::to_string),
        "state": survey.state.as_ref().map(ToString::to_string),
        "beyond": survey.beyond,
        "segments": segments.collect::<Vec<_>>(),
    })
}

/// A checkpoint for people.
pub(super) fn checkpoint(seen: &CheckpointSummary) -> String {
    match &seen.saved {
        Ok(saved) => format!("{}: whole, {} bytes\n", name(&seen.path), saved.bytes()),
        Err(e) => format!("{e}\n"),
    }
}

/// A checkpoint as JSON.
pub(super) fn checkpoint_document(seen: &CheckpointSummary) -> Value {
    let file = seen.path.display().to_string();
    match &seen.saved {
        Ok(saved) => json!({"file": file, "position": saved.position(), "bytes": saved.bytes()}),
        Err(e) => json!({"file": file, "says": e.to_string()}),
    }
}

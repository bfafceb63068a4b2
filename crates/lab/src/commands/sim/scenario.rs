//! `amcast sim --scenario`: runs that are written down together with what must happen in them.

use super::SimArgs;
use crate::commands::Failure;
use amcast_check::{History, check};
use amcast_core::trace::TraceEvent;
use amcast_node::system::{PipeInput, SETTINGS_BYTES_MAX, read_text, refuses_file, refuses_text};
use amcast_protocols::catalog;
use amcast_sim::Scenario;
use std::path::{Path, PathBuf};

/// Runs the scenario of a file, or those of a directory, and prints what happens. Fails if that is not
/// what the file says, or if the protocol breaks a promise.
pub(super) fn run(args: &SimArgs, path: &Path) -> Result<(), Failure> {
    let files = files(path).map_err(|e| Failure::Misuse(refuses_file(path, &e)))?;
    let mut wrong = Vec::new();
    let mut all = Vec::new();
    for file in &files {
        let name = file.display().to_string();
        let text = read_text(file, SETTINGS_BYTES_MAX, PipeInput::Accepted);
        let text = text.map_err(|e| Failure::Misuse(refuses_text(file, &e)))?;
        let (played, trouble) =
            play(&text).map_err(|why| Failure::Misuse(format!("{name}, {why}")))?;
        if !args.json && files.len() == 1 {
            print!("{played}");
        }
        let trouble = trouble.or_else(|| difference(&text, &played));
        all.push(serde_json::json!({ "file": name, "ok": trouble.is_none(), "wrong": trouble }));
        wrong.extend(trouble.map(|why| format!("{name}: {why}")));
    }
    if args.json {
        println!("{}", serde_json::json!({ "ok": wrong.is_empty(), "scenarios": all }));
    } else if files.len() > 1 {
        println!("{} scenarios, {} as their files say", files.len(), files.len() - wrong.len());
    }
    if wrong.is_empty() { Ok(()) } else { Err(Failure::Failed(wrong.join("\n"))) }
}

/// The file itself, or the scenarios in the directory.
fn files(path: &Path) -> std::io::Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_path_buf()]);
    }
    let entries = std::fs::read_dir(path)?.map(|entry| entry.map(|e| e.path()));
    let mut files: Vec<PathBuf> = entries.collect::<Result<_, _>>()?;
    files.retain(|file| file.extension().is_some_and(|end| end == "txt"));
    files.sort();
    if files.is_empty() {
        return Err(std::io::Error::other("there is no scenario (*.txt)"));
    }
    Ok(files)
}

/// How a scenario's run differs from its text, or what is wrong with the run; none where it is as the text says.
///
/// # Errors
/// When the text is no scenario.
pub(in crate::commands) fn scenario_differs(text: &str) -> Result<Option<String>, String> {
    let (played, trouble) = play(text)?;
    Ok(trouble.or_else(|| difference(text, &played)))
}

/// The text that the file must have, and the fault of the run itself.
fn play(text: &str) -> Result<(String, Option<String>), String> {
    let scenario = Scenario::read(text, &catalog::find).map_err(|e| e.to_string())?;
    let (mut history, cluster) = (History::new(), scenario.config().cluster());
    let mut refused = None;
    if let Some(overlay) = scenario.entry().overlay(scenario.config()) {
        refused = history.arrange(overlay).err().map(|e| e.to_string());
    }
    let played = scenario.play(&mut |event: &TraceEvent<'_>| {
        if let Err(e) = history.push_event(event, cluster) {
            refused.get_or_insert(e.to_string());
        }
    });
    let findings = check(&history, scenario.entry().about().promises);
    let broken = (!findings.no_violation()).then(|| findings.to_string());
    let stuck = (!played.report.settled()).then(|| "the run does not settle".to_string());
    Ok((played.text, broken.or(refused).or(stuck)))
}

fn difference(text: &str, played: &str) -> Option<String> {
    if text == played {
        return None;
    }
    let (mut is, mut should) = (text.lines(), played.lines());
    let mut line = 0;
    loop {
        line += 1;
        let (a, b) = (is.next(), should.next());
        if a != b {
            let say = |line: Option<&str>| line.map_or("the end".to_string(), |l| format!("{l:?}"));
            return Some(format!("line {line} is {}, and should be {}", say(a), say(b)));
        }
        if a.is_none() {
            return Some("the file does not end with the end of a line".to_string());
        }
    }
}

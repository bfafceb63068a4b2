//! `amcast log-file verify`: reads all of it and says what is there.

use super::failure;
use super::findings;
use amcast_lab::commands::Failure;
use amcast_node::log_ends::LogEnd;
use amcast_storage::offline::{self, CheckpointSummary, Inspection};
use serde_json::json;
use std::path::{Path, PathBuf};

/// Reads all of it and says what is there.
///
/// A directory may hold a log, checkpoints, or both. A segment or a checkpoint may be given by itself;
/// then nobody knows what should be behind it.
#[derive(clap::Args)]
pub(super) struct VerifyArgs {
    /// The directory of a process's log or checkpoints, or one file of it
    #[arg(value_name = "FILE|DIR")]
    pub(super) path: PathBuf,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &VerifyArgs) -> Result<(), Failure> {
    let (survey, checkpoints) = look(&args.path)?;
    let whole = checkpoints.iter().all(|seen| seen.saved.is_ok());
    let short = survey.as_ref().and_then(|survey| short_of_checkpoint(&args.path, survey));
    let sound = whole && short.is_none() && survey.as_ref().is_none_or(Inspection::is_sound);
    if args.json {
        let checkpoints: Vec<_> = checkpoints.iter().map(findings::checkpoint_document).collect();
        let log = survey.as_ref().map(findings::document);
        println!(
            "{}",
            json!({"sound": sound, "short": short, "log": log, "checkpoints": checkpoints})
        );
    } else {
        survey.iter().for_each(|survey| print!("{}", findings::lines(survey)));
        short.iter().for_each(|says| println!("{says}"));
        checkpoints.iter().for_each(|seen| print!("{}", findings::checkpoint(seen)));
    }
    if sound { Ok(()) } else { Err(Failure::Said) }
}

/// The warning if a checkpoint of the node reaches beyond the end of its log.
fn short_of_checkpoint(path: &Path, survey: &Inspection) -> Option<String> {
    let end = LogEnd::beside(&path.canonicalize().ok()?)?;
    let is_beyond = survey.log.is_some_and(|log| end.is_beyond(log, survey.next));
    is_beyond.then(|| {
        format!(
            "{}: the log ends before record {}, and it was synced up to record {} when the node wrote a \
             checkpoint: it is an older one, or was cut short. Start the node: it asks the others what it \
             had promised",
            path.display(),
            survey.next,
            end.synced
        )
    })
}

/// The log and the checkpoints at the path.
fn look(path: &Path) -> Result<(Option<Inspection>, Vec<CheckpointSummary>), Failure> {
    let is = |end: &str| path.extension().is_some_and(|extension| extension == end);
    if path.is_dir() {
        let checkpoints = offline::checkpoints(path).map_err(failure)?;
        let log = offline::has_log(path).map_err(failure)?;
        if !log && checkpoints.is_empty() {
            let path = path.display();
            return Err(Failure::Misuse(format!("{path}: holds neither a log nor checkpoints")));
        }
        let survey =
            if log { Some(offline::inspect(path, &mut |_| {}).map_err(failure)?) } else { None };
        Ok((survey, checkpoints))
    } else if is("checkpoint") {
        let saved = offline::checkpoint(path);
        Ok((None, vec![CheckpointSummary { path: path.to_path_buf(), saved }]))
    } else {
        Ok((Some(offline::inspect_segment(path, &mut |_| {}).map_err(failure)?), Vec::new()))
    }
}

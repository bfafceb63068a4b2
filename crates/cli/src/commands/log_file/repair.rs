//! `amcast log-file repair`: cuts a log at its damage, so that it opens again.

use super::failure;
use super::findings;
use amcast_lab::commands::Failure;
use amcast_storage::offline;
use serde_json::json;
use std::path::PathBuf;

/// Cuts a log at its damage, so that it opens again, and keeps what was cut in files beside it.
///
/// All records from the damage on are lost to the process, though it may have told others of them: a file
/// beside the directory, which ends in .lost, has its node ask the others before it votes again. Without
/// --yes it says what would be lost, and changes nothing.
#[derive(clap::Args)]
pub(super) struct RepairArgs {
    /// The directory of a process's log
    #[arg(value_name = "DIR")]
    pub(super) path: PathBuf,
    /// Cut it
    #[arg(long)]
    yes: bool,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &RepairArgs) -> Result<(), Failure> {
    let path = args.path.display();
    if !offline::has_log(&args.path).map_err(failure)? {
        return Err(Failure::Misuse(format!("{path}: holds no log")));
    }
    let mut found = None;
    let cut = offline::repair(&args.path, |survey| {
        let lost = format!(
            "from record {} on all is lost; {} of these records are whole\n",
            survey.next, survey.beyond
        );
        found = Some((findings::document(survey), findings::lines(survey) + &lost));
        args.yes
    })
    .map_err(failure)?;
    let Some((document, lines)) = found else {
        if args.json {
            println!("{}", json!({"sound": true, "cut": null}));
        } else {
            println!("{path}: the log is sound; nothing was changed");
        }
        return Ok(());
    };
    let done = cut.as_ref().map(|cut| {
        let kept: Vec<_> = cut.kept.iter().map(|kept| kept.display().to_string()).collect();
        json!({"from": cut.from, "whole": cut.whole, "kept": kept})
    });
    if args.json {
        println!("{}", json!({"sound": cut.is_some(), "log": document, "cut": done}));
    } else {
        print!("{lines}");
    }
    let Some(cut) = cut else {
        return Err(Failure::Failed(
            "nothing was changed; to cut the log there, say --yes".to_string(),
        ));
    };
    if !args.json {
        println!("the log was cut; it opens again, and continues with record {}", cut.from);
        println!(
            "a file that ends in .lost, beside it, has its node ask the others what it had promised"
        );
        cut.kept.iter().for_each(|kept| println!("the removed bytes are in {}", kept.display()));
    }
    Ok(())
}

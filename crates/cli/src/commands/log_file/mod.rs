//! `amcast log-file`: what a process wrote down, while it does not run.

mod dump;
mod findings;
mod repair;
mod skip;
mod verify;

use amcast_lab::commands::Failure;
use amcast_node::system::refuses_file;
use amcast_storage::StorageError;
use clap::Subcommand;
use std::path::Path;

/// Looks at the log and the checkpoints of a process, or cuts a log where it is damaged.
///
/// Only while the process does not run: a directory that is in use is refused.
#[derive(clap::Args)]
pub(super) struct LogFileArgs {
    #[command(subcommand)]
    what: LogFileAction,
}

#[derive(Subcommand)]
enum LogFileAction {
    /// Read all of it and say what is there; exits with 1 if something is damaged
    Verify(verify::VerifyArgs),
    /// Print records
    Dump(dump::DumpArgs),
    /// Cut a log at its damage, so that it opens again, and keep what was cut
    Repair(repair::RepairArgs),
    /// Have nodes skip a message that ends every process that executes it
    Skip(skip::SkipArgs),
}

pub(super) fn run(args: &LogFileArgs) -> Result<(), Failure> {
    match &args.what {
        LogFileAction::Verify(args) => is_there(&args.path).and_then(|()| verify::run(args)),
        LogFileAction::Dump(args) => is_there(&args.path).and_then(|()| dump::run(args)),
        LogFileAction::Repair(args) => is_there(&args.path).and_then(|()| repair::run(args)),
        LogFileAction::Skip(args) => skip::run(args),
    }
}

/// Sees to it that something is there, and that it is not all that a node keeps but a part of it.
fn is_there(path: &Path) -> Result<(), Failure> {
    let wrong = |why: &str| Err(Failure::Misuse(format!("{}: {why}", path.display())));
    match path.symlink_metadata() {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => wrong(
            "there is nothing of this name; give the directory of a log, such as n0.data/g0 in that of \
             a cluster, or of checkpoints, such as n0.data/state, or one file of them",
        ),
        Err(e) => Err(Failure::Failed(refuses_file(path, &e))),
        Ok(_) if path.join("state").is_dir() => {
            wrong("is all that a node keeps; give a part of it: its log of a shard (g0) or state")
        }
        Ok(_) => match node_data(path) {
            Some(node) => wrong(&format!(
                "is the directory of a cluster; give a part of what one node keeps: {node}/g0 or {node}/state"
            )),
            None => Ok(()),
        },
    }
}

/// The first node that keeps its data in this directory: the name of the directory of it.
fn node_data(path: &Path) -> Option<String> {
    let entries = path.read_dir().ok()?.filter_map(Result::ok);
    let names = entries.filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        (name.ends_with(".data") && entry.path().is_dir()).then_some(name)
    });
    names.min()
}

/// The failure with which the program ends.
fn failure(e: StorageError) -> Failure {
    match e {
        StorageError::Options { .. } | StorageError::Missing { .. } => Failure::misuse(e),
        e => Failure::failed(e),
    }
}

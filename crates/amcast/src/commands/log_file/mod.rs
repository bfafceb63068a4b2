//! `amcast log-file`: what a process wrote down, while it does not run.

mod dump;
mod repair;
mod told;
mod verify;

use super::Failure;
use amcast_storage::Error;
use clap::Subcommand;

/// Looks at the log and the checkpoints of a process, or cuts a log where it is damaged.
///
/// Only while the process does not run: a directory that is in use is refused.
#[derive(clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Read all of it and say what is there; exits with 1 if something is damaged
    Verify(verify::Args),
    /// Print records
    Dump(dump::Args),
    /// Cut a log at its damage, so that it opens again, and keep what was cut
    Repair(repair::Args),
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    match &args.what {
        What::Verify(args) => verify::run(args),
        What::Dump(args) => dump::run(args),
        What::Repair(args) => repair::run(args),
    }
}

impl From<Error> for Failure {
    fn from(e: Error) -> Self {
        match e {
            Error::Options { .. } | Error::Missing { .. } | Error::InUse { .. } => Self::misuse(e),
            e => Self::failed(e),
        }
    }
}

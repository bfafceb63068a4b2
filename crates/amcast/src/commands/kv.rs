//! `amcast kv`: a small client of the Redis front, for hands and scripts.

use super::{Failure, home, secret};
use crate::client::Connection;
use amcast_runtime::config::ClusterFile;
use amcast_runtime::control::statuses_of;
use std::path::PathBuf;

/// Sends one command of the key-value store to a running cluster and prints the answer.
#[derive(clap::Args)]
pub(super) struct Args {
    /// The cluster's directory [of the clusters that run, the one that was started last]
    #[arg(long)]
    data: Option<PathBuf>,
    /// Address of a Redis front, instead of a cluster of this machine
    #[arg(long, conflicts_with = "data")]
    at: Option<String>,
    /// A file with the password of the front [the cluster's own, if it is of this machine]
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// The command and its arguments, such as: set greeting hello
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let given = args.password_file.as_deref().map(secret).transpose()?;
    let (at, password) = match &args.at {
        Some(at) => (at.clone(), given),
        None => {
            let home = home(args.data.as_deref())?;
            let file = ClusterFile::read(&home.file_path()).map_err(Failure::failed)?;
            // Nodes that are run by hand have no supervisor, and fronts of their own.
            let by_hand = || statuses_of(&home.nodes(&file)).iter().any(Option::is_some);
            let fronts = if home.is_supervised() {
                home.fronts().ok()
            } else if by_hand() {
                (0..file.replicas).find_map(|rank| home.fronts_of(rank).ok())
            } else {
                let at = home.path().display();
                let why = format!("{at}: its cluster does not run: it was killed, or just stops");
                return Err(Failure::Failed(why));
            };
            let starts = || Failure::Failed("the cluster is starting and has no front yet".into());
            let fronts = fronts.ok_or_else(starts)?;
            (fronts.redis, given.or(file.password))
        }
    };
    let mut connection =
        Connection::open(&at).map_err(|e| Failure::Failed(format!("{at}: {e}")))?;
    connection.log_in(password.as_deref()).map_err(|e| Failure::Failed(format!("{at}: {e}")))?;
    let words: Vec<&[u8]> = args.words.iter().map(String::as_bytes).collect();
    let answer = connection.call(&words).map_err(Failure::failed)?;
    if answer.is_error() {
        return Err(Failure::Failed(answer.to_string()));
    }
    println!("{answer}");
    Ok(())
}

//! `amcast kv`: a small client of the Redis front, for hands and scripts.

use super::{Failure, home, secret};
use crate::client::Connection;
use amcast_runtime::config::ClusterFile;
use amcast_runtime::control::statuses_of;
use amcast_runtime::home::{Fronts, Home};
use std::path::PathBuf;

/// Sends one command of the key-value store to a running cluster and prints the answer.
#[derive(clap::Args)]
pub(super) struct Args {
    /// The cluster's directory [of the clusters that run, the one that was started last]
    #[arg(long)]
    data: Option<PathBuf>,
    /// Address of a Redis front, instead of a cluster of this machine
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "data", value_parser = address)]
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
    let (at, password, mut connection) = match &args.at {
        Some(at) => {
            let connection = Connection::open(at);
            (at.clone(), given, connection.map_err(|e| Failure::Failed(format!("{at}: {e}")))?)
        }
        None => {
            let home = home(args.data.as_deref())?;
            let file = home.file()?;
            let (at, connection) = reach(&home, &file)?;
            (at, given.or(file.password), connection)
        }
    };
    connection.log_in(password.as_deref()).map_err(|e| Failure::Failed(format!("{at}: {e}")))?;
    let words: Vec<&[u8]> = args.words.iter().map(String::as_bytes).collect();
    let answer = connection.call(&words).map_err(Failure::failed)?;
    if answer.is_error() {
        return Err(Failure::Failed(answer.to_string()));
    }
    println!("{answer}");
    Ok(())
}

/// Reads `host:port`.
pub(super) fn address(text: &str) -> Result<String, String> {
    match text.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => {
            Ok(text.to_string())
        }
        _ => Err("give host:port, such as 127.0.0.1:6379".to_string()),
    }
}

/// A front of the cluster: the supervisor's, or that of any node where nobody supervises them.
fn reach(home: &Home, file: &ClusterFile) -> Result<(String, Connection), Failure> {
    if home.is_supervised() {
        let starts = |e| format!("the cluster is starting and has no front yet ({e})");
        let at = home.fronts().map_err(|e| Failure::Failed(starts(e)))?.redis;
        let connection = Connection::open(&at);
        return match connection {
            Ok(connection) => Ok((at, connection)),
            Err(e) => Err(Failure::Failed(format!("{at}: {e}"))),
        };
    }
    let open = |rank| {
        let Fronts { redis, .. } = home.fronts_of(rank).ok()?;
        Connection::open(&redis).ok().map(|connection| (redis, connection))
    };
    if let Some(reached) = (0..file.replicas).find_map(open) {
        return Ok(reached);
    }
    let at = home.path().display();
    let runs = statuses_of(&home.nodes(file)).iter().any(Option::is_some);
    Err(Failure::Failed(if runs {
        format!("{at}: no node serves clients; start nodes with --redis-port 0 for that")
    } else if file.durable {
        format!("{at}: its cluster does not run; `amcast up --data {at}` goes on with its data")
    } else {
        format!("{at}: its cluster does not run: it was killed, or just stops")
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_host_and_a_port() {
        for good in ["127.0.0.1:6379", "localhost:1", "[::1]:6379"] {
            assert_eq!(address(good).as_deref(), Ok(good));
        }
        for wrong in ["nonsense", "localhost", ":6379", "localhost:redis", "localhost:65536"] {
            assert!(address(wrong).unwrap_err().contains("host:port"), "{wrong}");
        }
    }
}

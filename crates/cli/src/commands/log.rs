//! `amcast log`: a client of the distributed log, for hands and scripts.

mod lines;
mod read;

use super::kv::address;
use super::log_output::unwritten;
use super::not_running::stopped;
use super::terminal_text::harmless_line;
use super::wrong_port::{self, Listener};
use super::{Failure, cluster_dir, secret};
use amcast_log::client::PASSWORD_MISSING;
use amcast_log::proto::Extent;
use amcast_log::{LogError, LogSession, PATIENCE};
use amcast_node::cluster_dir::{ClusterDir, GatewayAddresses};
use amcast_node::config::ClusterFile;
use amcast_node::control::statuses_of;
use read::{ReadRange, VALUES_AT_ONCE};
use serde_json::{Value, json};
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};
use tonic::Code;

/// Bytes that are read for one value: a little more than any cluster takes, so that the gateway says
/// what the limit is.
const INPUT_BYTES_MAX: u64 = 2 << 20;

/// How long after it was looked for a gateway is looked for again.
const AGAIN_AFTER: Duration = Duration::from_millis(100);

/// Appends to logs of a running cluster, reads, trims, follows and deletes them.
///
/// Requests are repeated, over all nodes, until they are answered; each takes effect once.
#[derive(clap::Args)]
pub(super) struct LogArgs {
    /// The cluster's directory [of the only cluster that runs]
    #[arg(long, global = true)]
    data: Option<PathBuf>,
    /// Address of a log gateway, instead of a cluster of this machine; may be given several times
    #[arg(long, global = true, value_name = "HOST:PORT", value_parser = address)]
    at: Vec<String>,
    /// A file with the password of the gateway [the cluster's own, if it is of this machine]
    #[arg(long, global = true, value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// Print JSON: one document, or one for each value with `tail`; the document of a `read` that breaks off has the member
    /// `error`
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    action: LogAction,
}

#[derive(clap::Subcommand)]
enum LogAction {
    /// Append a value to a log and print its position
    Append {
        /// The log; the first append makes it
        log: String,
        /// The value, which may be '' [all of standard input, if there is any]
        #[arg(allow_hyphen_values = true)]
        value: Option<String>,
        /// Append each line of standard input as a value of its own; those that are there already go
        /// together, up to 1000, all or none
        #[arg(long, conflicts_with = "value")]
        lines: bool,
    },
    /// Append values to several logs at one moment, and print their positions
    MultiAppend {
        /// A log and its value (none behind = is the empty value); a log without = gets all of standard
        /// input
        #[arg(required = true, value_name = "LOG[=VALUE]")]
        additions: Vec<String>,
    },
    /// Print values with their positions
    Read {
        /// The log
        log: String,
        /// The position of the first value [the first that was not trimmed]
        #[arg(long)]
        from: Option<u64>,
        /// Values at most [all that there are]
        #[arg(long, alias = "max", value_parser = clap::value_parser!(u64).range(1..))]
        limit: Option<u64>,
    },
    /// Drop the values in front of a position; in front of its end, if the log is shorter
    Trim {
        /// The log
        log: String,
        /// The first position that stays
        #[arg(value_parser = position)]
        before: u64,
    },
    /// Take a log away with all its values, and print how far it went; an append to its name makes a new one, from
    /// position 0 on
    Delete {
        /// The log
        log: String,
    },
    /// Print values as they are appended, until it is interrupted
    Tail {
        /// The log; one that is not there yet is waited for
        log: String,
        /// The position of the first value [the next one to be appended]
        #[arg(long)]
        from: Option<u64>,
        /// End after so many values
        #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
        count: Option<u64>,
    },
    /// Print how far logs go: those that are named as of one moment, and without names all, a thousand at a time
    Info {
        /// The logs [all that there are]
        logs: Vec<String>,
    },
}

/// A position in a log, as it is given.
fn position(given: &str) -> Result<u64, String> {
    given.parse().map_err(|_| "a position is a number, such as 100".to_string())
}

/// The failure with which the program ends.
fn failure(failed: LogError) -> Failure {
    match failed.code {
        Code::InvalidArgument => Failure::misuse(failed),
        Code::Unauthenticated if failed.why == PASSWORD_MISSING => {
            Failure::misuse(format_args!("{failed}; here: give --password-file FILE"))
        }
        Code::Unauthenticated => Failure::misuse(failed),
        _ => Failure::failed(failed),
    }
}

/// The failure, with the name of the log.
fn about(log: &str) -> impl Fn(LogError) -> Failure {
    move |failed| match failed.code {
        Code::NotFound | Code::OutOfRange => Failure::failed(format_args!("{log}: {failed}")),
        _ => failure(failed),
    }
}

pub(super) fn run(args: &LogArgs) -> Result<(), Failure> {
    let mut client = args.client()?;
    let mut to = io::stdout().lock();
    let mut out = LogPrinter { json: args.json, to: &mut to };
    match &args.action {
        LogAction::Append { log, lines: true, .. } => lines::append(&mut client, log, &mut out),
        LogAction::Append { log, value, .. } => {
            let given = value.as_ref().map(|value| Ok(value.clone().into_bytes()));
            let value = given.unwrap_or_else(|| input("''"))?;
            let position = client.append(log, value).map_err(failure)?;
            out.say(json!({"log": log, "position": position}), format_args!("{position}"))
        }
        LogAction::MultiAppend { additions } => multi_append(&mut client, additions, &mut out),
        LogAction::Read { log, from, limit } => {
            let range = ReadRange { log, from: *from, limit: *limit };
            read::read(&mut client, range, VALUES_AT_ONCE, &mut out)
        }
        LogAction::Trim { log, before } => {
            let extent = client.trim(log, *before).map_err(about(log))?;
            if extent.next < *before {
                eprintln!(
                    "amcast: {log} was trimmed up to its end, position {}, and not up to {before}, which \
                     is not there yet",
                    extent.next
                );
            }
            out.say(extent_json(log, Some(&extent)), format_args!("{}", shown(&extent)))
        }
        LogAction::Delete { log } => {
            let extent = client.delete(log).map_err(about(log))?;
            out.say(extent_json(log, Some(&extent)), format_args!("{}", shown(&extent)))
        }
        LogAction::Tail { log, from, count } => tail(&mut client, log, *from, *count, &mut out),
        LogAction::Info { logs } => info(&mut client, logs, &mut out),
    }
}

impl LogArgs {
    fn client(&self) -> Result<LogSession, Failure> {
        let given = self.password_file.as_deref().map(secret).transpose()?;
        if !self.at.is_empty() {
            if self.data.is_some() {
                return Err(Failure::misuse("give --data or --at, not both"));
            }
            let client =
                LogSession::new(self.at.clone(), given.as_deref()).map_err(Failure::misuse)?;
            return Ok(client.doubting(|at| wrong_port::error_at(at, Listener::Log)));
        }
        let dir = cluster_dir(self.data.as_deref())?;
        let file = dir.file()?;
        let password = given.or_else(|| file.password.clone());
        let client = LogSession::new(reach_soon(&dir, &file)?, password.as_deref());
        // Where it is started again it may listen elsewhere.
        let finds = move || reach(&dir, &file).unwrap_or_default();
        Ok(client.map_err(Failure::misuse)?.finding(finds))
    }
}

/// The log gateways of a cluster, once there are some: one that is just started is waited for.
fn reach_soon(dir: &ClusterDir, file: &ClusterFile) -> Result<Vec<String>, Failure> {
    let begun = Instant::now();
    loop {
        match reach(dir, file) {
            Err(_) if dir.is_supervised() && begun.elapsed() < PATIENCE => {
                thread::sleep(AGAIN_AFTER);
            }
            reached => return reached,
        }
    }
}

/// The log gateways of a cluster: the supervisor's first, then the nodes'.
fn reach(dir: &ClusterDir, file: &ClusterFile) -> Result<Vec<String>, Failure> {
    let (at, supervised) = (dir.path().display(), dir.is_supervised());
    if !supervised && statuses_of(&dir.nodes(file)).iter().all(Option::is_none) {
        return Err(stopped(dir, file));
    }
    let supervisor = if supervised { dir.gateways().ok() } else { None };
    let nodes = (0..file.replicas).filter_map(|rank| dir.gateways_of(rank).ok());
    let logs = supervisor.into_iter().chain(nodes).filter_map(|GatewayAddresses { log, .. }| log);
    let logs: Vec<String> = logs.collect();
    if logs.is_empty() {
        return Err(Failure::Failed(format!(
            "{at}: no log gateway yet; a node started by hand has one with --log-port 0"
        )));
    }
    Ok(logs)
}

/// Where results go.
struct LogPrinter<'a> {
    json: bool,
    to: &'a mut dyn Write,
}

impl LogPrinter<'_> {
    fn say(&mut self, document: Value, text: std::fmt::Arguments<'_>) -> Result<(), Failure> {
        let said = match self.json {
            true => writeln!(self.to, "{document}"),
            false => writeln!(self.to, "{text}"),
        };
        said.and_then(|()| self.to.flush()).map_err(|e| unwritten(&e))
    }

    /// Begins a document that has values in it, whose number nobody knows: they are not gathered.
    fn begin_values(&mut self, log: &str) -> Result<(), Failure> {
        let begun = match self.json {
            true => write!(self.to, "{{\"log\":{},\"values\":[", json!(log)),
            false => Ok(()),
        };
        begun.map_err(|e| unwritten(&e))
    }

    fn element(&mut self, value: Value, is_first: bool) -> Result<(), Failure> {
        let between = if is_first { "" } else { "," };
        write!(self.to, "{between}{value}").map_err(|e| unwritten(&e))
    }

    /// Ends it with how far the log goes.
    fn end_values(&mut self, Extent { first, next, bytes, .. }: &Extent) -> Result<(), Failure> {
        let ended = match self.json {
            true => {
                writeln!(self.to, "],\"first\":{first},\"next\":{next},\"bytes\":{bytes}}}")
            }
            false => Ok(()),
        };
        ended.and_then(|()| self.to.flush()).map_err(|e| unwritten(&e))
    }

    /// Ends it with why values are missing.
    fn break_values(&mut self, failed: &LogError) -> Result<(), Failure> {
        let ended = match self.json {
            true => writeln!(self.to, "],\"error\":{}}}", json!(failed.why)),
            false => Ok(()),
        };
        ended.and_then(|()| self.to.flush()).map_err(|e| unwritten(&e))
    }

    fn value(&mut self, position: u64, value: &[u8]) -> Result<(), Failure> {
        let text = String::from_utf8_lossy(value);
        self.say(entry(position, value), format_args!("{position}\t{}", harmless_line(&text)))
    }
}

/// A value as JSON: as text if it is, else in hexadecimal digits.
fn entry(position: u64, value: &[u8]) -> Value {
    match std::str::from_utf8(value) {
        Ok(text) => json!({"position": position, "text": text}),
        Err(_) => {
            let hex: String = value.iter().map(|b| format!("{b:02x}")).collect();
            json!({"position": position, "hex": hex})
        }
    }
}

fn extent_json(log: &str, extent: Option<&Extent>) -> Value {
    match extent {
        Some(Extent { first, next, bytes, incarnation }) => json!({
            "log": log, "first": first, "next": next, "bytes": bytes, "incarnation": incarnation,
        }),
        None => {
            json!({"log": log, "first": null, "next": null, "bytes": null, "incarnation": null})
        }
    }
}

fn shown(Extent { first, next, bytes, .. }: &Extent) -> String {
    match next - first {
        0 => format!("nothing left, next {next}"),
        _ => format!("{first} to {}, {bytes} bytes", next - 1),
    }
}

/// All of standard input. That it is empty is an accident, most likely: who wants to append an empty
/// value says so by `instead`.
fn input(instead: &str) -> Result<Vec<u8>, Failure> {
    let mut value = Vec::new();
    io::stdin().lock().take(INPUT_BYTES_MAX).read_to_end(&mut value).map_err(Failure::failed)?;
    if value.is_empty() {
        return Err(Failure::Misuse(format!(
            "standard input is empty, and nothing was appended; to append an empty value give {instead}"
        )));
    }
    Ok(value)
}

fn multi_append(
    client: &mut LogSession,
    additions: &[String],
    out: &mut LogPrinter<'_>,
) -> Result<(), Failure> {
    let mut shared = None;
    let mut all = Vec::new();
    for addition in additions {
        let (log, value) = match addition.split_once('=') {
            Some((log, value)) => (log, value.as_bytes().to_vec()),
            None => {
                if shared.is_none() {
                    shared = Some(input(&format!("{addition}="))?);
                }
                (addition.as_str(), shared.clone().unwrap_or_default())
            }
        };
        all.push((log.to_string(), value.into()));
    }
    let logs: Vec<String> = all.iter().map(|(log, _)| log.clone()).collect();
    let positions = client.multi_append(all).map_err(failure)?;
    let each = logs.iter().zip(&positions);
    let document: Vec<_> =
        each.clone().map(|(log, position)| json!({"log": log, "position": position})).collect();
    let text: Vec<_> = each.map(|(log, position)| format!("{log} {position}")).collect();
    out.say(json!({ "appended": document }), format_args!("{}", text.join("\n")))
}

fn tail(
    client: &mut LogSession,
    log: &str,
    from: Option<u64>,
    count: Option<u64>,
    out: &mut LogPrinter<'_>,
) -> Result<(), Failure> {
    let from = match from {
        Some(from) => from,
        None => {
            client
                .info(&[log])
                .map_err(failure)?
                .first()
                .copied()
                .flatten()
                .unwrap_or_default()
                .next
        }
    };
    let (mut left, mut written) = (count, Ok(()));
    client
        .tail(log, from, &mut |position, value| {
            written = out.value(position, value);
            left = left.map(|left| left - 1);
            written.is_ok() && left != Some(0)
        })
        .map_err(about(log))?;
    written
}

fn info(client: &mut LogSession, logs: &[String], out: &mut LogPrinter<'_>) -> Result<(), Failure> {
    let mut all: Vec<(String, Option<Extent>)> = Vec::new();
    if logs.is_empty() {
        loop {
            let after = all.last().map_or("", |(log, _)| log.as_str());
            let page = client.list(after).map_err(failure)?;
            if page.is_empty() {
                break;
            }
            all.extend(page.into_iter().map(|listed| (listed.log, listed.extent)));
        }
    } else {
        let names: Vec<&str> = logs.iter().map(String::as_str).collect();
        all.extend(logs.iter().cloned().zip(client.info(&names).map_err(failure)?));
    }
    let missing = !logs.is_empty() && all.iter().all(|(_, extent)| extent.is_none());
    if out.json {
        let documents: Vec<_> =
            all.iter().map(|(log, extent)| extent_json(log, extent.as_ref())).collect();
        out.say(json!({ "logs": documents }), format_args!(""))?;
    } else {
        for (log, extent) in &all {
            let extent = extent.as_ref().map_or_else(|| "not there".to_string(), shown);
            out.say(Value::Null, format_args!("{}: {extent}", harmless_line(log)))?;
        }
    }
    if missing { Err(Failure::Said) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use amcast_log::client::PASSWORD_WRONG;

    #[test]
    fn the_flag_of_the_password_is_named_only_where_none_was_given() {
        let told = |why: &str| {
            let failed = LogError { code: Code::Unauthenticated, why: why.to_string() };
            let Failure::Misuse(told) = failure(failed) else { panic!("{why}") };
            told
        };
        assert!(told(PASSWORD_MISSING).ends_with("give --password-file FILE"));
        assert!(!told(PASSWORD_WRONG).contains("--password-file"));
    }
}

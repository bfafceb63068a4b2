//! The program's subcommands, a file each.
//!
//! Errors go to standard error and say what to do; the exit code is 2 for misuse and 1 for failure.

mod check;
mod config;
mod end_signals;
mod gateway_remarks;
mod histories;
mod kv;
mod listening;
mod log;
mod log_file;
mod log_output;
mod node;
mod not_running;
mod notify;
mod overlay;
mod protocols;
mod registration;
mod status;
mod terminal_text;
mod up;
mod view;
mod wrong_port;

use amcast_lab::commands::{Failure, bench, choose, reproduce, rings, sim};
pub(crate) use amcast_lab::commands::{entry, once_each, setting};
use amcast_node::cluster_dir::{ClusterDir, ClusterRegistry};
use amcast_node::log_lines;
use amcast_node::system::{PipeInput, SETTINGS_BYTES_MAX, read_text, refuses_text};
use clap::{Parser, Subcommand};
use std::io::IsTerminal;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

/// Ordered delivery to replicated shards: services, a library, and a laboratory.
#[derive(Parser)]
#[command(name = "amcast", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a cluster on this machine, a process for each node
    Up(up::UpArgs),
    /// Run one node of a cluster in the foreground
    Node(node::NodeArgs),
    /// Show the groups, leaders and replicas of a running cluster
    Status(status::StatusArgs),
    /// Show the tree of the groups of a running cluster, or change it while clients continue
    Overlay(overlay::OverlayArgs),
    /// List the protocols, with what they promise and assume
    Protocols(protocols::ProtocolsArgs),
    /// Choose a protocol by what it must guarantee
    Choose(choose::ChooseArgs),
    /// Run a protocol in the deterministic simulator and judge it
    Sim(sim::SimArgs),
    /// Measure a protocol over shared memory, TCP or UDP, or in the simulator; or a service
    Bench(bench::BenchArgs),
    /// Measure rings of processes on this machine, without a service on them
    Rings(rings::RingsArgs),
    /// Make tables and figures of the papers anew
    Reproduce(reproduce::ReproduceArgs),
    /// Judge a recorded history, or a directory of them
    Check(check::CheckArgs),
    /// Draw a recorded history, for the browser
    View(view::ViewArgs),
    /// Send a command to a running cluster's key-value store
    Kv(kv::KvArgs),
    /// Append to, read, trim and follow the logs of a running cluster
    Log(log::LogArgs),
    /// Look at a process's log on disk, or cut it where it is damaged
    LogFile(log_file::LogFileArgs),
    /// Check a cluster file, or explain every parameter
    Config(config::ConfigArgs),
}

/// Reads the command line and does what it says.
pub(crate) fn main() -> ExitCode {
    // A file that may not be longer is an error of the write then, which is reported; the signal ends the process without a word.
    _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default());
    let command = Cli::parse().command;
    let log_output = match &command {
        Command::Up(_) => log_output::of_supervisor(),
        Command::Node(args) => args.journal(),
        Command::Log(_) => log_output::of_client(),
        Command::Sim(_) => log_output::of_simulator(),
        _ => log_output::of_command(),
    };
    let done = match command {
        Command::Up(args) => up::run(args),
        Command::Node(args) => node::run(&args),
        Command::Status(args) => status::run(&args),
        Command::Overlay(args) => overlay::run(&args),
        Command::Protocols(args) => protocols::run(&args),
        Command::Choose(args) => choose::run(&args),
        Command::Sim(args) => sim::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Rings(args) => rings::run(&args),
        Command::Reproduce(args) => reproduce::run(&args),
        Command::Check(args) => check::run(&args),
        Command::View(args) => view::run(&args),
        Command::Kv(args) => kv::run(&args),
        Command::Log(args) => log::run(&args),
        Command::LogFile(args) => log_file::run(&args),
        Command::Config(args) => config::run(&args),
    };
    let code = match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Said) => ExitCode::from(1),
        Err(Failure::Failed(why)) => {
            log_output.say(&why);
            ExitCode::from(1)
        }
        Err(Failure::Misuse(why)) => {
            log_output.say(&why);
            ExitCode::from(2)
        }
    };
    log_lines::end();
    code
}

/// The cluster directory in the directory `data`, or of the only cluster that runs. At a terminal this prints which cluster
/// that is, since somebody else may have started it.
fn cluster_dir(data: Option<&Path>) -> Result<ClusterDir, Failure> {
    if let Some(data) = data {
        return Ok(ClusterDir::at(data)?);
    }
    let (newest, others) = ClusterRegistry::usual().newest()?;
    if others.is_empty() {
        if std::io::stderr().is_terminal() {
            eprintln!("amcast: the cluster in {}", newest.path().display());
        }
        return Ok(newest);
    }
    let all = std::iter::once(&newest).chain(&others);
    let all: Vec<_> = all.map(|dir| format!("--data {}", dir.path().display())).collect();
    Err(Failure::Misuse(format!("{} clusters run: give {}", all.len(), all.join(" or "))))
}

/// The password in the first line of a file.
fn secret(path: &Path) -> Result<String, Failure> {
    warn_if_others_read(path);
    let text = read_text(path, SETTINGS_BYTES_MAX, PipeInput::Accepted);
    let text = text.map_err(|e| Failure::Misuse(refuses_text(path, &e)))?;
    match text.lines().next() {
        Some(line) if !line.is_empty() => Ok(line.to_string()),
        _ => Err(Failure::Misuse(format!("{}: its first line is no password", path.display()))),
    }
}

/// Says so if others than its owner may read a file that holds a password, or the cluster's secret.
fn warn_if_others_read(path: &Path) {
    if let Some(why) = others_read(path) {
        tracing::warn!("{why}");
    }
}

/// The warning about a file with a secret that others than its owner may read.
fn others_read(path: &Path) -> Option<String> {
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::metadata(path).map_or(0, |meta| meta.permissions().mode());
    let path = path.display();
    (mode & 0o044 != 0)
        .then(|| format!("{path} is secret, and others may read it: chmod 600 {path}"))
}

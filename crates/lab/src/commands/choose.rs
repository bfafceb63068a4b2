//! `amcast choose`: the protocol for a guarantee.

use super::Failure;
use crate::bench::workload_ranking::{self, RankedCandidate, RankingSettings};
use amcast::choose::{self, Candidate, MeasuredMedium};
use amcast_check::Specification;
use amcast_core::Span;
use amcast_node::system::{PipeInput, read_text, refuses_text};
use amcast_node::workload::RecordedWorkload;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Columns of a line, its indentation included.
const COLUMNS: usize = 96;

/// The most bytes of a workload, or of a measured table.
const INPUT_BYTES_MAX: usize = 256 << 20;

/// Chooses a protocol by what it must guarantee.
///
/// For total order broadcast in one group name one of the six specifications; the fastest protocol
/// that enforces it, or a stronger one, comes first; of those with at least nine tenths of its messages
/// a second, the one with the least latency. Speeds are those of `amcast reproduce to-fig5` on the
/// machine that is named; refresh them with --measured. For --multicast nothing is measured: protocols
/// come in the order of `amcast protocols`, those that assume that no process crashes last. For --workload
/// each protocol of several groups runs the file's multicasts in the simulator, over the usual trees and one
/// that is made for these destinations, and the best with other parameters, too: those that carry the file's rate
/// with a quarter to spare come first, and of these the one with the least latency. The simulator knows
/// delays and steps, and nothing of a machine's caches: measure the first two with `amcast bench`. Where a
/// running cluster can change its tree, the `amcast overlay set` that gives it the best one is printed, too.
#[derive(clap::Args)]
#[command(group(clap::ArgGroup::new("guarantee").required(true).args(["spec", "multicast", "workload"])))]
pub struct ChooseArgs {
    /// A specification: TO(UA,SUTO), TO(UA,WUTO), TO(UA,WNUTO), TO(NUA,SUTO), TO(NUA,WUTO),
    /// TO(NUA,WNUTO)
    #[arg(long)]
    spec: Option<String>,
    /// Multicast to any set of groups instead, in one acyclic order
    #[arg(long)]
    multicast: bool,
    /// The multicasts to be made: a file that `/workload` of a node's pages gives, or that `amcast bench --record`
    /// wrote. Several, of the nodes of one cluster, add up
    #[arg(long, value_name = "FILE")]
    workload: Vec<PathBuf>,
    #[command(flatten)]
    ranking: RankingArgs,
    /// The transport of messages [tcp for a specification, any for multicast]
    #[arg(long, value_enum)]
    medium: Option<MediumArgument>,
    /// Measurements to go by: a to-fig5.json that `amcast reproduce to-fig5` wrote
    #[arg(long, value_name = "FILE", conflicts_with_all = ["multicast", "workload"])]
    measured: Option<PathBuf>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// The surroundings in which a workload is run.
#[derive(clap::Args)]
struct RankingArgs {
    /// With --workload: replicas of a group
    #[arg(long, default_value_t = 3, requires = "workload")]
    replicas: usize,
    /// With --workload: clients, where clients multicast
    #[arg(long, default_value_t = 4, requires = "workload")]
    clients: usize,
    /// With --workload: nanoseconds that a write to another process's memory takes
    #[arg(long, default_value_t = 500, requires = "workload")]
    write_ns: u64,
    /// With --workload: microseconds that a message takes
    #[arg(long, default_value_t = 25, requires = "workload")]
    message_us: u64,
    /// With --workload: nanoseconds that a step of a process takes
    #[arg(long, default_value_t = 300, requires = "workload")]
    step_ns: u64,
    /// With --workload: microseconds until a record is on the disk
    #[arg(long, default_value_t = 100, requires = "workload")]
    sync_us: u64,
    /// With --workload: how often everything is run, with other multicasts
    #[arg(long, default_value_t = 5, requires = "workload")]
    rounds: u64,
    /// With --workload: multicasts of a run
    #[arg(long, default_value_t = 2000, requires = "workload")]
    messages: usize,
}

/// The transport of messages, as it is given.
#[derive(Clone, Copy, clap::ValueEnum)]
enum MediumArgument {
    /// Streams.
    Tcp,
    /// Datagrams.
    Udp,
    /// The simulator's network of 100 Mbit/s.
    Sim,
    /// Memory that processes of one machine share.
    Shm,
}

impl From<MediumArgument> for MeasuredMedium {
    fn from(given: MediumArgument) -> Self {
        match given {
            MediumArgument::Tcp => Self::Tcp,
            MediumArgument::Udp => Self::Udp,
            MediumArgument::Sim => Self::Sim,
            MediumArgument::Shm => Self::Shm,
        }
    }
}

/// Does what `args` ask for.
///
/// # Errors
/// A misuse, or a failure.
pub fn run(args: &ChooseArgs) -> Result<(), Failure> {
    if !args.workload.is_empty() {
        return for_workload(args);
    }
    let all = match &args.spec {
        None => choose::multicast(args.medium.map(MeasuredMedium::from)),
        Some(name) => broadcast(args, name)?,
    };
    let Some((first, others)) = all.split_first() else {
        return Err(Failure::Failed("no protocol offers that over this medium".to_string()));
    };
    if args.json {
        let all: Vec<_> = all.iter().map(described).collect();
        println!("{}", json!({ "chosen": first.entry.name(), "candidates": all }));
        return Ok(());
    }
    println!("{}\n{}", first.entry.name(), wrapped(&first.why));
    for other in others {
        println!("or {}\n{}", other.entry.name(), wrapped(&other.why));
    }
    Ok(())
}

/// A text in lines that a terminal shows whole, indented.
fn wrapped(text: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= COLUMNS => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(format!("    {word}")),
        }
    }
    lines.join("\n")
}

fn broadcast(args: &ChooseArgs, name: &str) -> Result<Vec<Candidate>, Failure> {
    let spec = Specification::parse(name).ok_or_else(|| {
        let all: Vec<_> = Specification::ALL.iter().map(ToString::to_string).collect();
        Failure::Misuse(format!("{name:?} is no specification; there are: {}", all.join(", ")))
    })?;
    let medium = args.medium.map_or(MeasuredMedium::Tcp, MeasuredMedium::from);
    if medium == MeasuredMedium::Shm {
        let why = "no protocol broadcasts over shared memory in one of the six specifications; give \
                   --medium tcp or udp, or --multicast";
        return Err(Failure::Misuse(why.to_string()));
    }
    let Some(path) = &args.measured else { return Ok(choose::broadcast(spec, medium)) };
    let wrong = |e: &dyn std::fmt::Display| Failure::Misuse(format!("{}: {e}", path.display()));
    let text = read(path)?;
    choose::broadcast_by(&text, spec, medium)
        .map_err(|e| wrong(&format!("not what `amcast reproduce to-fig5` writes: {e}")))
}

/// The text of a file that is given, or of a pipe.
fn read(path: &Path) -> Result<String, Failure> {
    let text = read_text(path, INPUT_BYTES_MAX, PipeInput::Accepted);
    text.map_err(|e| Failure::Misuse(refuses_text(path, &e)))
}

/// The workload of all files together.
fn workload(paths: &[PathBuf]) -> Result<RecordedWorkload, Failure> {
    let mut all = Vec::new();
    for path in paths {
        let text = read(path)?;
        let wrong = |e| Failure::Misuse(format!("{}: {e}", path.display()));
        all.push(RecordedWorkload::parse(&text).map_err(wrong)?);
    }
    RecordedWorkload::merged(&all).map_err(Failure::misuse)
}

fn for_workload(args: &ChooseArgs) -> Result<(), Failure> {
    let workload = workload(&args.workload)?;
    let of = &args.ranking;
    if of.replicas == 0 || of.rounds == 0 || of.messages == 0 {
        let why = "--replicas, --rounds and --messages: give at least 1";
        return Err(Failure::Misuse(why.to_string()));
    }
    let settings = RankingSettings {
        medium: args.medium.map(MeasuredMedium::from),
        replicas: of.replicas,
        clients: of.clients,
        write: Span::nanos(of.write_ns),
        message: Span::micros(of.message_us),
        step: Span::nanos(of.step_ns),
        sync: Span::micros(of.sync_us),
        rounds: of.rounds,
        messages: of.messages,
    };
    let ranked = workload_ranking::ranked(&workload, &settings, &mut |what| eprintln!("{what}"));
    let ranked = ranked.map_err(Failure::Failed)?;
    let sure = sureness(&ranked);
    if args.json {
        let apply = ranked.iter().find_map(|one| workload_ranking::overlay_command(&one.candidate));
        println!(
            "{}",
            json!({ "chosen": ranked.first(), "sure": sure, "overlay_command": apply, "candidates": ranked })
        );
        return Ok(());
    }
    print_ranked(&ranked, &sure);
    Ok(())
}

/// Prints the ranking, and how a running cluster gets the best tree that it can change to.
fn print_ranked(ranked: &[RankedCandidate], sure: &str) {
    let mut told_command = false;
    for (nth, one) in ranked.iter().enumerate() {
        let (latency, throughput) = (one.latency(), one.throughput());
        let slow = if one.carries { "" } else { "; too slow for the file's rate" };
        let frail = if one.candidate.survives_crashes { "" } else { "; survives no crash" };
        let why = format!(
            "{} replicas a group, {} senders{frail}: {:.1} us ({:.1} to {:.1}) with one multicast of each sender on the way, {:.0} a second ({:.0} to \
             {:.0}) with many{slow}",
            one.replicas,
            one.senders,
            latency.median,
            latency.min,
            latency.max,
            throughput.median,
            throughput.min,
            throughput.max
        );
        let or = if nth == 0 { "" } else { "or " };
        println!(
            "{or}{}\n{}",
            workload_ranking::candidate_arguments(&one.candidate),
            wrapped(&why)
        );
        if nth == 0 {
            println!("{}", wrapped(sure));
        }
        let command = workload_ranking::overlay_command(&one.candidate).filter(|_| !told_command);
        if let Some(command) = command {
            let how =
                "a running cluster of this protocol with dynamic_overlay = 1 gets this tree by:";
            println!("{}\n        {command}", wrapped(how));
            told_command = true;
        }
    }
}

/// How sure the first place is.
fn sureness(ranked: &[RankedCandidate]) -> String {
    let [first, second, ..] = ranked else {
        return "the only one that can carry it".to_string();
    };
    if first.candidate.survives_crashes != second.candidate.survives_crashes {
        return "the only one that survives crashes".to_string();
    }
    if first.carries != second.carries {
        return "the only one that carries the file's rate with a quarter to spare".to_string();
    }
    let (ahead, rounds) = (first.rounds_ahead(second), first.latency_us.len());
    let percent = (second.latency().median / first.latency().median - 1.0) * 100.0;
    let weight = match (ahead == rounds && rounds > 2, percent >= 5.0 || percent == 0.0) {
        (true, true) => "sure, as far as the simulator goes",
        (true, false) => "a small difference: measure both",
        (false, _) => "not sure: measure both",
    };
    format!(
        "ahead of the next one in {ahead} of {rounds} rounds: {:.1} us beside {:.1}, {:.0} a second beside \
         {:.0}: {weight}",
        first.latency().median,
        second.latency().median,
        first.throughput().median,
        second.throughput().median,
    )
}

fn described(candidate: &Candidate) -> Value {
    json!({
        "protocol": candidate.entry.name(),
        "deliveries_per_second": candidate.per_second,
        "latency_us": candidate.latency_us,
        "why": candidate.why,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_broken_between_words() {
        let text = "word ".repeat(100);
        let lines = wrapped(&text);
        assert!(lines.lines().all(|line| line.starts_with("    w") && line.len() <= COLUMNS));
        assert_eq!(lines.split_whitespace().count(), 100);
        assert_eq!(wrapped("short"), "    short");
    }
}

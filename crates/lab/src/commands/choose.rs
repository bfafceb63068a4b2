//! `amcast choose`: the protocol for a guarantee.

use super::Failure;
use amcast::choose::{self, Candidate, MeasuredMedium};
use amcast_check::Specification;
use amcast_node::system::refuses_text;
use serde_json::{Value, json};
use std::path::PathBuf;

/// Columns of a line, its indentation included.
const COLUMNS: usize = 96;

/// Chooses a protocol by what it must guarantee.
///
/// For total order broadcast in one group name one of the six specifications; the fastest protocol
/// that enforces it, or a stronger one, comes first; of those with at least nine tenths of its messages
/// a second, the one with the least latency. Speeds are those of `amcast reproduce to-fig5` on the
/// machine that is named; refresh them with --measured. For --multicast nothing is measured: protocols
/// come in the order of `amcast protocols`, those that assume that no process crashes last.
#[derive(clap::Args)]
#[command(group(clap::ArgGroup::new("guarantee").required(true).args(["spec", "multicast"])))]
pub struct ChooseArgs {
    /// A specification: TO(UA,SUTO), TO(UA,WUTO), TO(UA,WNUTO), TO(NUA,SUTO), TO(NUA,WUTO),
    /// TO(NUA,WNUTO)
    #[arg(long)]
    spec: Option<String>,
    /// Multicast to any set of groups instead, in one acyclic order
    #[arg(long)]
    multicast: bool,
    /// The transport of messages [tcp for a specification, any for multicast]
    #[arg(long, value_enum)]
    medium: Option<MediumArgument>,
    /// Measurements to go by: a to-fig5.json that `amcast reproduce to-fig5` wrote
    #[arg(long, value_name = "FILE", conflicts_with = "multicast")]
    measured: Option<PathBuf>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
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
    let text =
        std::fs::read_to_string(path).map_err(|e| Failure::Misuse(refuses_text(path, &e)))?;
    choose::broadcast_by(&text, spec, medium)
        .map_err(|e| wrong(&format!("not what `amcast reproduce to-fig5` writes: {e}")))
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

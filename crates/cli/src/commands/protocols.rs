//! `amcast protocols`: the catalog.

use amcast_core::{Assumption, Capability, Entry, MediumKind};
use amcast_lab::commands::Failure;
use amcast_protocols::catalog::CATALOG;
use serde_json::{Value, json};

/// Lists the protocols, with what they promise, can do and assume.
#[derive(clap::Args)]
pub(super) struct ProtocolsArgs {
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &ProtocolsArgs) -> Result<(), Failure> {
    if args.json {
        let all: Vec<Value> = CATALOG.iter().map(|e| describe(*e)).collect();
        println!("{}", json!({ "protocols": all }));
        return Ok(());
    }
    for entry in CATALOG {
        let about = entry.about();
        println!("{}  ({}; {})", entry.name(), medium(about.medium), about.paper);
        println!("    {}", about.summary);
        let promises: Vec<_> = about.promises.iter().map(|p| p.name()).collect();
        println!("    promises: {}", promises.join(", "));
        let can = declared(*entry).join(", ");
        println!("    can:      {}", if can.is_empty() { "nothing else" } else { &can });
        let assumes: Vec<_> = about.assumes.iter().map(|&a| assumption(a)).collect();
        println!("    assumes:  {}", if assumes.is_empty() { "nothing" } else { "" });
        assumes.iter().for_each(|a| println!("      {a}"));
    }
    Ok(())
}

fn describe(entry: &dyn Entry) -> Value {
    let about = entry.about();
    let mutants: Vec<_> =
        amcast_mutants::catalog::mutants(entry.name()).iter().map(|m| m.name).collect();
    json!({
        "name": entry.name(),
        "summary": about.summary,
        "paper": about.paper,
        "medium": medium(about.medium),
        "capabilities": declared(entry),
        "promises": about.promises.iter().map(|p| p.name()).collect::<Vec<_>>(),
        "assumes": about.assumes.iter().map(|&a| assumption(a)).collect::<Vec<_>>(),
        "params": about.params.iter().map(|p| p.name).collect::<Vec<_>>(),
        "mutants": mutants,
    })
}

/// The names of what it can do, as it declares.
fn declared(entry: &dyn Entry) -> Vec<&'static str> {
    let all = Capability::ALL.iter().filter(|&&c| entry.capabilities().has(c));
    all.map(|c| c.name()).collect()
}

const fn medium(kind: MediumKind) -> &'static str {
    match kind {
        MediumKind::Messages => "messages",
        MediumKind::Memory => "memory",
    }
}

const fn assumption(assumption: Assumption) -> &'static str {
    match assumption {
        Assumption::NoCrash => "no process crashes",
        Assumption::MajorityFit => "a majority of each group works at any time",
        Assumption::OneFit => "a process of each group that has its state works at any time",
        Assumption::StreamsHold => "streams between processes that live do not break",
        Assumption::StreamsOnly => "only streams are used, and they lose nothing",
        Assumption::PerfectDetector => "failure detectors never suspect a process that lives",
        Assumption::ExclusiveLease => "a client's place is held by one process at a time",
    }
}

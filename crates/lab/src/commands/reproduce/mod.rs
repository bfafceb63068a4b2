//! `amcast reproduce`: tables and figures of the papers, made anew, with what the papers claim beside
//! what was found.
//!
//! An [`Experiment`] is one line of [`EXPERIMENTS`] and one function that gives an
//! [`ExperimentAccount`]. The outputs are `ID.json` with every figure, a picture for each chart,
//! and one page, `index.html`, with all experiments of this call so far: one that fails does not
//! end the others.

mod appends;
mod bursts;
mod chart;
mod fastcast;
mod page;
mod patterns;
mod recovery;
mod rings;
mod sizes;
mod stores;
mod toto;
mod tram;
mod versus;
mod wide;
mod witness;

use super::Failure;
use page::ExperimentAccount;
use serde_json::{Value, json};
use std::cell::OnceCell;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Makes tables and figures of the papers anew.
///
/// Writes ID.json, a picture for each chart, and index.html, with the papers' claims beside the
/// results. Exits with 1 if a property that must hold does not; a figure that differs from the
/// paper's is reported, and is no failure.
#[derive(clap::Args)]
pub struct ReproduceArgs {
    /// Which
    #[arg(required_unless_present = "all", value_name = "ID", help = ids())]
    ids: Vec<String>,
    /// All that there are
    #[arg(long, conflicts_with = "ids")]
    all: bool,
    /// Fewer runs: minutes instead of hours
    #[arg(long)]
    quick: bool,
    /// For to-fig4 and to-fig5: measure JGroups and corosync too, in turns with our protocols; for
    /// mrp-fig5: BookKeeper. Programs that are missing for them are named
    #[arg(long)]
    rivals: bool,
    /// Where to write [amcast-reproduced]
    #[arg(long, value_name = "DIR", default_value = "amcast-reproduced")]
    out: PathBuf,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// A table or figure of a paper.
struct Experiment {
    id: &'static str,
    title: &'static str,
    run: fn(&ReproduceSession<'_>) -> Result<ExperimentAccount, Failure>,
}

/// All that can be made anew, by paper.
const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        id: "tram-fig2",
        title: "TRAM: the latency of writes to several targets, simulated and on this machine (figure 2)",
        run: tram::writes,
    },
    Experiment {
        id: "tram-fig5",
        title: "TRAM beside RamCast, uniform destinations, simulated and on this machine (figure 5)",
        run: tram::uniform,
    },
    Experiment {
        id: "tram-fig6",
        title: "TRAM beside RamCast, neighbouring groups, simulated and on this machine (figure 6)",
        run: tram::neighbouring,
    },
    Experiment {
        id: "tram-fig7",
        title: "TRAM beside RamCast, the size of payloads, simulated and on this machine (figure 7)",
        run: tram::payload,
    },
    Experiment {
        id: "tram-fig8",
        title: "TRAM: latency against the number of replicas, simulated and on this machine (figure 8)",
        run: tram::replicas,
    },
    Experiment {
        id: "tram-fig9",
        title: "TRAM and RamCast over memory beside ByzCast and Skeen over TCP (figure 9)",
        run: tram::messages,
    },
    Experiment {
        id: "tram-tab1",
        title: "TRAM: all groups change leaders at once, simulated and on this machine (table 1)",
        run: tram::leaders,
    },
    Experiment {
        id: "to-table3",
        title: "Total order: the specification that each protocol enforces (table 3)",
        run: patterns::run,
    },
    Experiment {
        id: "to-sizes",
        title: "Total order: what a delivery costs against the size of the group, 2 to 32",
        run: sizes::run,
    },
    Experiment {
        id: "to-fig4",
        title: "Total order: average message latency against the size of bursts (figure 4)",
        run: bursts::latency,
    },
    Experiment {
        id: "to-fig5",
        title: "Total order: overall system throughput against the size of bursts (figure 5)",
        run: bursts::throughput,
    },
    Experiment {
        id: "mrp-fig3",
        title: "Multi-Ring Paxos: a ring with different storage and request sizes (figure 3)",
        run: rings::storage,
    },
    Experiment {
        id: "mrp-fig4",
        title: "Multi-Ring Paxos: YCSB with and without a ring around all, beside other stores (figure 4)",
        run: stores::run,
    },
    Experiment {
        id: "mrp-fig5",
        title: "Multi-Ring Paxos: the distributed log, synchronous appends (figure 5)",
        run: appends::run,
    },
    Experiment {
        id: "mrp-fig6",
        title: "Multi-Ring Paxos: vertical scalability, rings with a log each (figure 6)",
        run: rings::vertical,
    },
    Experiment {
        id: "mrp-fig7",
        title: "Multi-Ring Paxos: horizontal scalability over regions, simulated (figure 7)",
        run: wide::horizontal,
    },
    Experiment {
        id: "mrp-fig8",
        title: "Multi-Ring Paxos: a replica is killed and comes back (figure 8)",
        run: recovery::killed,
    },
    Experiment {
        id: "mrp-recovery",
        title: "Multi-Ring Paxos: the same with a gigabyte of state",
        run: recovery::large,
    },
    Experiment {
        id: "mrp-rings",
        title: "Multi-Ring Paxos: up to 64 rings, simulated",
        run: wide::many,
    },
    Experiment {
        id: "fastcast-tab1",
        title: "FastCast: two increases of bandwidth, event by event (table 1)",
        run: fastcast::first,
    },
    Experiment {
        id: "fastcast-tab2",
        title: "FastCast: an increase that takes bandwidth from others (table 2)",
        run: fastcast::second,
    },
    Experiment {
        id: "fastcast-tab3",
        title: "FastCast: a decrease of bandwidth (table 3)",
        run: fastcast::third,
    },
    Experiment {
        id: "fastcast-fig5",
        title: "FastCast: bandwidth follows the demand of four members, simulated and on real sockets (figure 5)",
        run: fastcast::follow,
    },
    Experiment {
        id: "fastcast-fig6",
        title: "FastCast: throughput against the number of members, simulated and on real sockets (figure 6)",
        run: fastcast::throughput,
    },
    Experiment {
        id: "fastcast-fig7",
        title: "FastCast: response time against the load, simulated and on real sockets (figure 7)",
        run: fastcast::response,
    },
    Experiment {
        id: "fastcast-fig8",
        title: "FastCast: latency at a low load against the number of members, simulated and on real sockets (figure 8)",
        run: fastcast::low_load,
    },
    Experiment {
        id: "fastcast-strangers",
        title: "FastCast beside a UDP stream and a TCP connection of strangers on one link, on real sockets",
        run: fastcast::strangers,
    },
    Experiment {
        id: "toto-tab1",
        title: "ToTo: the votes on the candidates of a causal order (table 1)",
        run: toto::votes_table,
    },
    Experiment {
        id: "toto-tab2",
        title: "ToTo: latency beside all-ack, periodic sources, simulated and on real sockets (table 2)",
        run: toto::latency_periodic,
    },
    Experiment {
        id: "toto-tab3",
        title: "ToTo: latency beside all-ack, Poisson sources, simulated and on real sockets (table 3)",
        run: toto::latency_poisson,
    },
    Experiment {
        id: "toto-tab4",
        title: "ToTo: predicted and observed latency, periodic sources, simulated (table 4)",
        run: toto::model_periodic,
    },
    Experiment {
        id: "toto-tab5",
        title: "ToTo: predicted and observed latency, Poisson sources, simulated (table 5)",
        run: toto::model_poisson,
    },
    Experiment {
        id: "toto-fig5",
        title: "ToTo: the index of latency, periodic sources, simulated (figure 5)",
        run: toto::index_periodic,
    },
    Experiment {
        id: "toto-fig6",
        title: "ToTo: the index of latency, Poisson sources, simulated (figure 6)",
        run: toto::index_poisson,
    },
    Experiment {
        id: "toto-regions",
        title: "ToTo over four regions, 5 to 32 members and all phi, beside sequencers and tokens, simulated",
        run: toto::regions,
    },
    Experiment {
        id: "toto-uniform",
        title: "ToTo beside the uniform protocols of total order, on real sockets: throughput, and latency over a distance",
        run: toto::uniform,
    },
];

/// The state that the experiments of one call share.
struct ReproduceSession<'a> {
    out: &'a Path,
    quick: bool,
    /// Whether programs of others are measured as well.
    rivals: bool,
    /// Figures 4 and 5 are two views of the same runs.
    bursts: OnceCell<bursts::BurstTurns>,
    /// So are tables 2 to 5 and figures 5 and 6 of ToTo.
    votes: toto::VotedRuns,
}

impl ReproduceSession<'_> {
    /// One that is quick, for tests.
    #[cfg(test)]
    fn quick(out: &Path) -> ReproduceSession<'_> {
        ReproduceSession {
            out,
            quick: true,
            rivals: false,
            bursts: OnceCell::new(),
            votes: toto::VotedRuns::default(),
        }
    }

    /// A directory for files of experiment `id`, beside the page.
    fn directory(&self, id: &str) -> Result<PathBuf, Failure> {
        let path = self.out.join(id);
        std::fs::create_dir_all(&path).map_err(|e| unwritten(&path, &e))?;
        Ok(path)
    }
}

/// All ids, for the help.
fn ids() -> String {
    let ids: Vec<_> = EXPERIMENTS.iter().map(|e| e.id).collect();
    format!("Which: {}", ids.join(", "))
}

fn unwritten(path: &Path, e: &std::io::Error) -> Failure {
    Failure::Failed(format!("{} cannot be written: {e}; give another --out", path.display()))
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(path, text).map_err(|e| unwritten(path, &e))
}

/// Does what `args` ask for.
///
/// # Errors
/// A misuse, or a failure.
pub fn run(args: &ReproduceArgs) -> Result<(), Failure> {
    let chosen = chosen(args)?;
    std::fs::create_dir_all(&args.out).map_err(|e| unwritten(&args.out, &e))?;
    let (quick, rivals) = (args.quick, args.rivals);
    let session = ReproduceSession {
        out: &args.out,
        quick,
        rivals,
        bursts: OnceCell::new(),
        votes: toto::VotedRuns::default(),
    };
    let index = args.out.join("index.html");
    let mut made = Vec::new();
    let mut failed = Vec::new();
    for experiment in chosen {
        match make(experiment, &session, args) {
            Ok(one) => made.push(one),
            // A directory without room or permission has none for the others, either.
            Err(ExperimentFailure::Unwritten(why)) => return Err(why),
            // The others do not depend on it.
            Err(ExperimentFailure::Failed(why)) => {
                eprintln!("amcast: {}: {why}", experiment.id);
                failed.push((experiment.id, why));
            }
        }
        // Written anew after each item: a run of hours that is interrupted leaves a page of what it has made.
        let accounts: Vec<_> = made.iter().map(|(e, a, _)| (e.id, e.title, a)).collect();
        write(&index, &page::page(&accounts, args.quick))?;
    }
    let sound = failed.is_empty() && made.iter().all(|(_, account, _)| account.failures.is_empty());
    if args.json {
        let all: Vec<_> = made.iter().map(|(_, _, figures)| figures).collect();
        let failed: Vec<_> =
            failed.iter().map(|(id, why)| json!({ "id": id, "why": why })).collect();
        let all = json!({ "ok": sound, "page": index, "experiments": all, "failed": failed });
        println!("{all}");
    } else {
        println!("the page: {}", index.display());
    }
    for failure in made.iter().flat_map(|(_, account, _)| &account.failures) {
        eprintln!("amcast: {failure}");
    }
    for (id, why) in &failed {
        eprintln!("amcast: {id} was not made: {why}");
    }
    if sound { Ok(()) } else { Err(Failure::Said) }
}

/// Why an experiment gave nothing.
enum ExperimentFailure {
    /// Its files cannot be written.
    Unwritten(Failure),
    /// By itself.
    Failed(String),
}

/// An experiment with what it found, for the page and as figures.
type FinishedExperiment = (&'static Experiment, ExperimentAccount, Value);

/// Makes one, and writes its files.
fn make(
    experiment: &'static Experiment,
    session: &ReproduceSession<'_>,
    args: &ReproduceArgs,
) -> Result<FinishedExperiment, ExperimentFailure> {
    let begun = Instant::now();
    if !std::io::stderr().is_terminal() {
        // Nothing shows how far it is.
        let long =
            if args.quick { "up to minutes" } else { "up to hours; --quick takes up to minutes" };
        eprintln!("amcast: {} begins, which takes {long}", experiment.id);
    }
    let account = (experiment.run)(session).map_err(|e| {
        ExperimentFailure::Failed(match e {
            Failure::Misuse(why) | Failure::Failed(why) => why,
            Failure::Said => "a step failed".to_string(),
        })
    })?;
    let seconds = begun.elapsed().as_secs_f64();
    let figures = document(experiment, args.quick, seconds, &account);
    for (name, svg) in account.pictures() {
        let path = args.out.join(format!("{}-{name}.svg", experiment.id));
        write(&path, svg).map_err(ExperimentFailure::Unwritten)?;
    }
    let path = args.out.join(format!("{}.json", experiment.id));
    write(&path, &format!("{figures:#}\n")).map_err(ExperimentFailure::Unwritten)?;
    if !args.json {
        println!("{}: {} ({seconds:.0} s)", experiment.id, account.says());
    }
    Ok((experiment, account, figures))
}

fn chosen(args: &ReproduceArgs) -> Result<Vec<&'static Experiment>, Failure> {
    if args.all {
        return Ok(EXPERIMENTS.iter().collect());
    }
    let find = |id: &String| {
        EXPERIMENTS.iter().find(|e| e.id == id).ok_or_else(|| {
            let all: Vec<_> = EXPERIMENTS.iter().map(|e| e.id).collect();
            Failure::Misuse(format!("nothing is called {id:?}; there are: {}", all.join(", ")))
        })
    };
    args.ids.iter().map(find).collect()
}

fn document(
    experiment: &Experiment,
    quick: bool,
    seconds: f64,
    account: &ExperimentAccount,
) -> Value {
    json!({
        "id": experiment.id,
        "title": experiment.title,
        "quick": quick,
        "seconds": seconds,
        "version": env!("CARGO_PKG_VERSION"),
        "machine": amcast_machine(),
        "claims": account.claims,
        "failures": account.failures,
        "figures": account.figures,
    })
}

fn amcast_machine() -> Value {
    serde_json::to_value(crate::bench::HostMachine::here()).unwrap_or(Value::Null)
}

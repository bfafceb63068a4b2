//! `amcast sim`: protocols in the deterministic simulator, judged by the checker.

mod account;
mod explore;
pub(super) mod judge;
mod mutants;
pub(super) mod network;
mod scenario;
pub(super) use scenario::scenario_differs;
pub(super) mod service;
pub(super) mod trial;

use super::Failure;
use super::cores::{over_cores, progress};
use super::end_if_unwritten;
use super::{once_each, setting};
use amcast_core::Entry;
use amcast_protocols::tram::Tram;
use amcast_sim::{Failover, Profile};
use judge::{JudgedRun, judge};
use serde_json::{Value, json};
use service::ServiceKind;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use trial::Trial;

/// Seeds within which every mutant of every protocol is found that random runs show, with some to spare.
const HUNT_SEEDS: u64 = 3000;

/// Of so many runs of a service one may be left without a verdict, because the search for an order of its calls gave up.
const NOT_JUDGED_ONE_IN: u64 = 100;

/// Seeds without a verdict that a report names.
const SEEDS_SHOWN: usize = 10;

/// Runs a protocol in the simulator and judges what it promises.
///
/// The same seed gives the same run, byte for byte. Exits with 1 on a violation, tells the smallest
/// run that shows it, and prints the command that runs it again.
///
/// With --mutant the protocol is broken on purpose, in small clusters drawn by seed in which leaders
/// change all the time, and a violation is what is hoped for: each mutant is found within 3000 seeds,
/// but for those that a scenario or a test shows. With one mutant it exits with 1 if that is found, as
/// on any violation, and also if it survives all seeds of a hunt, which it says; a single --seed in which nothing
/// is wrong exits with 0. `--mutant all` hunts all of them and exits with 1 if one survives that no scenario or
/// test shows; for one that is shown there it takes a tenth of the seeds.
#[derive(clap::Args)]
pub struct SimArgs {
    /// The protocol: `amcast protocols`
    #[arg(long, default_value = Tram.name())]
    protocol: String,
    /// Run whole replicas of this service above the protocol, and judge what its clients see
    ///
    /// Its executor, sessions, recovery, state transfer and checkpoints are those that nodes run. Clients make --messages
    /// calls together; --mutant breaks the service. AMCAST_LOG=warn in the environment shows the nodes' log lines.
    #[arg(long, value_enum, conflicts_with_all = ["destinations", "payload", "payload_max"])]
    service: Option<ServiceKind>,
    /// Run this seed
    #[arg(long, conflicts_with = "seeds")]
    seed: Option<u64>,
    /// Run this many seeds, from --first on, over all cores [1, or 3000 with --mutant]
    #[arg(long)]
    seeds: Option<u64>,
    /// The first of the seeds
    #[arg(long, default_value_t = 1)]
    first: u64,
    /// Faults: none, crash, pause, network, memory, oracle, disk (of protocols that keep a log), all
    /// [none; with --mutant all, crash and oracle in turn, where the protocol bears crashes]
    #[arg(long, value_parser = profile)]
    faults: Option<Profile>,
    /// Draw anew for each seed all options that are not given: shape, overlay, and sizes of buffers
    #[arg(long)]
    vary: bool,
    /// Groups [3, or 1 if the protocol takes no more]
    #[arg(long)]
    groups: Option<usize>,
    /// Replicas of each group [3, or 1 if the protocol takes no more]
    #[arg(long)]
    replicas: Option<usize>,
    /// Client processes [2, or 0 if the members are the senders]
    #[arg(long)]
    clients: Option<usize>,
    /// The tree over the groups: base, breadth, depth, or parents such as -1,0,0 [breadth]
    #[arg(long, allow_hyphen_values = true)]
    overlay: Option<String>,
    /// Multicasts in a run [100, or 2 with --explore]
    #[arg(long)]
    messages: Option<usize>,
    /// Every multicast goes to this many groups [drawn]
    #[arg(long)]
    destinations: Option<usize>,
    /// Every payload has this many bytes [drawn]
    #[arg(long)]
    payload: Option<usize>,
    /// The largest payload drawn, in bytes [16384; 1500 with --vary or --mutant]
    #[arg(long)]
    payload_max: Option<usize>,
    /// How long faults last, in simulated microseconds [drawn; 4000 with --mutant]
    #[arg(long)]
    faulty_us: Option<u64>,
    /// How long after the last fault a run may take to settle, in simulated microseconds [5000000;
    /// 60000000 with --vary, 100000 with --mutant over memory]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    settle_us: Option<u64>,
    /// The same network for all, such as latency_us=40,loss_ppm=1000,mbit=100,buffer_kib=512:
    /// microseconds that a message takes, datagrams lost in a million, bandwidth of each process's
    /// port, kibibytes of datagrams that may wait for a port and for a busy process (more are lost;
    /// 0: no limit); with bus=1 all share one cable of that bandwidth instead of ports [drawn]
    #[arg(long, value_name = "NAME=VALUE,..", conflicts_with = "explore")]
    network: Option<network::Network>,
    /// A parameter of the protocol: `amcast config --explain`
    #[arg(long, value_name = "NAME=VALUE", value_parser = setting)]
    set: Vec<(String, String)>,
    /// Break the protocol in this way, or in all ways in turn: all
    #[arg(long)]
    mutant: Option<String>,
    /// Instead of drawing runs make all of a small cluster in which at most so many choices are not
    /// the ordinary one, and one replica dies before any event, where the protocol bears crashes [2]
    #[arg(long, value_name = "DEVIATIONS", num_args = 0..=1, default_missing_value = "2",
          conflicts_with_all = ["seed", "seeds", "vary", "faults", "history", "scenario",
                                "faulty_us", "settle_us", "service"])]
    explore: Option<usize>,
    /// How many runs an exploration makes at most
    #[arg(long, default_value_t = 100_000)]
    runs_max: u64,
    /// Run the scenario of this file, or all of a directory; see the files of scenarios/
    ///
    /// The file defines the whole run: only --json may be given with it.
    #[arg(long, conflicts_with_all = ["protocol", "service", "seed", "seeds", "first", "faults", "vary", "groups",
          "replicas", "clients", "overlay", "messages", "destinations", "payload", "payload_max",
          "faulty_us", "settle_us", "network", "set", "mutant", "explore", "runs_max", "history"])]
    scenario: Option<PathBuf>,
    /// Write the history of the run here; with one seed
    #[arg(long, conflicts_with = "seeds")]
    history: Option<PathBuf>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

fn profile(name: &str) -> Result<Profile, String> {
    Profile::parse(name).ok_or_else(|| {
        let all: Vec<_> = Profile::ALL.iter().map(|p| p.name()).collect();
        format!("give one of {}", all.join(", "))
    })
}

/// Does what `args` ask for.
///
/// # Errors
/// A misuse, or a failure.
pub fn run(args: &SimArgs) -> Result<(), Failure> {
    once_each(&args.set)?;
    // A run that panics is a finding; its message is kept instead of printed.
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(end_if_unwritten));
    let done = run_quietly(args);
    std::panic::set_hook(usual);
    done
}

fn run_quietly(args: &SimArgs) -> Result<(), Failure> {
    if let Some(path) = &args.scenario {
        return scenario::run(args, path);
    }
    super::entry(&args.protocol)?;
    let mutant = args.mutant.as_deref();
    mutant.map_or(Ok(()), |name| mutants::known(args, name))?;
    if let Some(deviations) = args.explore {
        return explore::run(args, deviations);
    }
    let usual = if mutant.is_some() && args.seed.is_none() { HUNT_SEEDS } else { 1 };
    let (first, seeds) = match (args.seed, args.seeds) {
        (_, Some(0)) => return Err(Failure::Misuse("--seeds 0: give at least 1".to_string())),
        (Some(seed), _) => (seed, 1),
        (None, seeds) => (args.first, seeds.unwrap_or(usual)),
    };
    if mutant == Some("all") {
        return mutants::hunt(args, first, seeds);
    }
    let trial = |seed| Trial::new(args, seed, mutant);
    let begun = Instant::now();
    let runs = if args.history.is_some() {
        let mut runs = RunSummary::default();
        runs.add(judge(&trial(first)?, args.history.as_deref())?);
        runs
    } else {
        judge_all(&trial, first, seeds)?
    };
    let found = match &runs.wrong {
        None => None,
        Some(judged) => Some((judged, trial(judged.seed)?)),
    };
    // One seed is a run again; more are a hunt, which a mutant must not survive.
    let survivor = mutant.filter(|_| found.is_none() && args.seed.is_none());
    if args.json {
        let mut report = json_report(args, &runs, found.as_ref(), begun.elapsed());
        if survivor.is_some() {
            report["ok"] = json!(false);
        }
        println!("{report}");
    } else {
        runs.print(begun.elapsed());
    }
    if let Some(name) = survivor {
        return Err(Failure::Failed(format!("{name} survives: not found within {seeds} seeds")));
    }
    let Some((judged, trial)) = found else {
        let (count, of) = (runs.not_judged.len(), runs.count);
        return match runs.shows_too_little() {
            true => Err(Failure::Failed(format!(
                "{count} of {of} runs were not judged; at most one in {NOT_JUDGED_ONE_IN} may be"
            ))),
            false => Ok(()),
        };
    };
    eprintln!("amcast: {}\nreplay: {}", account::account(&trial, judged), trial.replay());
    Err(Failure::Said)
}

/// The results of many runs.
#[derive(Default)]
struct RunSummary {
    count: u64,
    casts: u64,
    deliveries: u64,
    barriers: u64,
    crashes: u64,
    simulated_ns: u64,
    violations: u64,
    /// The seeds of runs with a property of the service that was not judged.
    not_judged: Vec<u64>,
    /// Why not, of the lowest of these seeds.
    why_not: String,
    /// How often each rare branch was taken.
    marks: BTreeMap<&'static str, u64>,
    failover: Failover,
    /// Of the last run added.
    hash: u64,
    /// The run of the lowest seed in which something was wrong.
    wrong: Option<JudgedRun>,
}

impl RunSummary {
    fn add(&mut self, judged: JudgedRun) {
        self.count += 1;
        self.casts += judged.casts;
        self.deliveries += judged.deliveries;
        self.barriers += judged.barriers;
        self.crashes += judged.crashes;
        self.simulated_ns += judged.simulated_ns;
        self.hash = judged.hash;
        for (mark, times) in &judged.marks {
            *self.marks.entry(mark).or_default() += times;
        }
        self.failover.add(&judged.failover);
        if let Some(why) = judged.not_judged.as_ref().filter(|_| judged.wrong.is_none()) {
            if self.not_judged.iter().all(|seed| judged.seed < *seed) {
                self.why_not.clone_from(why);
            }
            self.not_judged.push(judged.seed);
            self.not_judged.sort_unstable();
        }
        if judged.wrong.is_some() {
            self.violations += 1;
            if self.wrong.as_ref().is_none_or(|other| judged.seed < other.seed) {
                self.wrong = Some(judged);
            }
        }
    }

    /// Whether so many runs were not judged that nothing is shown by the others.
    fn shows_too_little(&self) -> bool {
        self.not_judged.len() as u64 * NOT_JUDGED_ONE_IN > self.count
    }

    fn print(&self, took: Duration) {
        println!(
            "{} runs, {} violations: {} multicasts, {} deliveries, {} crashes, {:.3} s simulated \
             in {:.1} s",
            self.count,
            self.violations,
            self.casts,
            self.deliveries,
            self.crashes,
            self.simulated_ns as f64 / 1e9,
            took.as_secs_f64(),
        );
        if !self.not_judged.is_empty() {
            let seeds: Vec<_> =
                self.not_judged.iter().take(SEEDS_SHOWN).map(u64::to_string).collect();
            let more = if seeds.len() < self.not_judged.len() { ", .." } else { "" };
            let runs = trial::count(self.not_judged.len(), "run");
            println!("{runs} not judged: seeds {}{more}: {}", seeds.join(", "), self.why_not);
        }
        if self.count == 1 {
            println!("hash {:016x}", self.hash);
        }
        if self.barriers > 0 {
            println!("barriers passed: {}", self.barriers);
        }
        let failover =
            self.failover.named().map(|(name, n)| format!("{} {n}", name.replace('_', " ")));
        println!("failover: {}", failover.join(", "));
        let marks: Vec<_> = self.marks.iter().map(|(mark, n)| format!("{mark} {n}")).collect();
        if !marks.is_empty() {
            println!("rare branches taken: {}", marks.join(", "));
        }
    }
}

fn json_report(
    args: &SimArgs,
    runs: &RunSummary,
    found: Option<&(&JudgedRun, Trial)>,
    took: Duration,
) -> Value {
    let violation = |(j, trial): &(&JudgedRun, Trial)| {
        json!({
            "seed": j.seed,
            "property": j.wrong.as_ref().map(|w| w.what.name()),
            "what": j.wrong.as_ref().map(|w| &w.says),
            "replay": trial.replay(),
            "report": j.report.as_deref().and_then(|r| serde_json::from_str::<Value>(r).ok()),
        })
    };
    json!({
        "protocol": args.protocol,
        "ok": runs.violations == 0 && !runs.shows_too_little(),
        "runs": runs.count,
        "casts": runs.casts,
        "deliveries": runs.deliveries,
        "barriers": runs.barriers,
        "crashes": runs.crashes,
        "simulated_ns": runs.simulated_ns,
        "seconds": took.as_secs_f64(),
        "marks": runs.marks,
        "failover": runs.failover.named().into_iter().collect::<BTreeMap<_, _>>(),
        // Of one run: the same seed gives the same number.
        "hash": (runs.count == 1).then(|| format!("{:016x}", runs.hash)),
        "not_judged": runs.not_judged,
        "violations": found.into_iter().map(violation).collect::<Vec<_>>(),
    })
}

/// Makes the runs of `seeds` seeds from `first` on, over all cores; stops soon after the first in
/// which something is wrong.
fn judge_all(
    trial: &(dyn Fn(u64) -> Result<Trial, Failure> + Sync),
    first: u64,
    seeds: u64,
) -> Result<RunSummary, Failure> {
    let runs = Mutex::new(RunSummary::default());
    // The first violation is the same on any number of cores: what was begun is finished.
    over_cores(seeds, &progress(seeds, "runs"), |n| {
        let judged = judge(&trial(first.saturating_add(n))?, None)?;
        let wrong = judged.wrong.is_some();
        runs.lock().unwrap_or_else(PoisonError::into_inner).add(judged);
        Ok(wrong)
    })?;
    Ok(runs.into_inner().unwrap_or_else(PoisonError::into_inner))
}

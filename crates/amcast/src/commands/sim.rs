//! `amcast sim`: protocols in the deterministic simulator, judged by the checker.

use super::{Failure, entry, setting};
use amcast_check::{History, Verdict, check};
use amcast_core::{Config, Entry, RawConfig};
use amcast_sim::{Outcome, Profile, Settings};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufWriter, IsTerminal, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Runs a protocol in the simulator and judges what it promises.
///
/// The same seed gives the same run, byte for byte. Exits with 1 on a violation and prints the
/// command that runs it again.
#[derive(clap::Args)]
pub(super) struct Args {
    /// The protocol: `amcast protocols`
    #[arg(long)]
    protocol: String,
    /// Run this seed
    #[arg(long, conflicts_with = "seeds")]
    seed: Option<u64>,
    /// Run this many seeds, from 1 on, over all cores
    #[arg(long)]
    seeds: Option<u64>,
    /// Faults: none, crash, pause, network, memory, oracle, all
    #[arg(long, default_value = "none", value_parser = profile)]
    faults: Profile,
    /// Groups
    #[arg(long, default_value_t = 3)]
    groups: usize,
    /// Replicas of each group [3, or 1 if the protocol takes no more]
    #[arg(long)]
    replicas: Option<usize>,
    /// Client processes
    #[arg(long, default_value_t = 2)]
    clients: usize,
    /// The tree over the groups
    #[arg(long, default_value = "breadth", allow_hyphen_values = true)]
    overlay: String,
    /// Multicasts in a run
    #[arg(long, default_value_t = 100)]
    messages: usize,
    /// Every multicast goes to this many groups [drawn]
    #[arg(long)]
    destinations: Option<usize>,
    /// Every payload has this many bytes [drawn]
    #[arg(long)]
    payload: Option<usize>,
    /// A parameter of the protocol
    #[arg(long, value_name = "NAME=VALUE", value_parser = setting)]
    set: Vec<(String, String)>,
    /// Break the protocol in this way; in builds with the feature `mutants`
    #[arg(long)]
    mutant: Option<String>,
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

/// What came of one seed.
struct Judged {
    seed: u64,
    casts: u64,
    deliveries: u64,
    crashes: u64,
    simulated_ns: u64,
    hash: u64,
    /// What was wrong, if anything.
    wrong: Option<String>,
    /// The checker's report, as JSON.
    report: Option<String>,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let entry = entry(&args.protocol)?;
    let config = match args.replicas {
        Some(n) => args.config(entry, n)?,
        None => args.config(entry, 3).or_else(|why| args.config(entry, 1).map_err(|_| why))?,
    };
    let settings = args.settings();
    // A run that panics is a finding; its message is kept instead of printed.
    std::panic::set_hook(Box::new(|_| {}));
    let begun = Instant::now();
    let all = match args.seeds {
        None => {
            let seed = args.seed.unwrap_or(1);
            vec![judge(entry, &config, &settings, seed, args.history.as_ref())?]
        }
        Some(0) => return Err(Failure::Misuse("--seeds 0: give at least 1".to_string())),
        Some(n) => judge_all(entry, &config, &settings, n)?,
    };
    drop(std::panic::take_hook());
    let wrong = all.iter().filter(|j| j.wrong.is_some()).min_by_key(|j| j.seed);
    if args.json {
        println!("{}", args.json_report(&all, begun.elapsed()));
    } else {
        print(&all, begun.elapsed());
    }
    let Some(first) = wrong else { return Ok(()) };
    let why = first.wrong.as_deref().unwrap_or_default();
    eprintln!("amcast: seed {}: {why}\nreplay: {}", first.seed, args.replay(first.seed));
    Err(Failure::Said)
}

impl Args {
    fn config(&self, entry: &dyn Entry, replicas: usize) -> Result<Config, Failure> {
        let mut raw = RawConfig {
            groups: self.groups,
            replicas,
            clients: self.clients,
            overlay: self.overlay.clone(),
            set: self.set.iter().cloned().collect(),
        };
        if let Some(mutant) = &self.mutant {
            if !cfg!(feature = "mutants") {
                let why = "this build has no mutants: build with `--features mutants`";
                return Err(Failure::Misuse(why.to_string()));
            }
            raw.set.insert("mutant".to_string(), mutant.clone());
        }
        let config = raw.check(entry.about().params).map_err(Failure::misuse)?;
        amcast_core::entry::build_all(entry, &config).map_err(Failure::misuse)?;
        Ok(config)
    }

    fn settings(&self) -> Settings {
        Settings {
            messages: self.messages,
            destinations: self.destinations.map(|d| d.clamp(1, self.groups)),
            payload: self.payload,
            ..Settings::with(self.faults)
        }
    }

    /// The command that runs `seed` again.
    fn replay(&self, seed: u64) -> String {
        let mut text = format!(
            "amcast sim --protocol {} --seed {seed} --faults {} --groups {} \
             --clients {} --overlay {} --messages {}",
            self.protocol,
            self.faults.name(),
            self.groups,
            self.clients,
            self.overlay,
            self.messages,
        );
        let numbers = [
            ("replicas", self.replicas),
            ("destinations", self.destinations),
            ("payload", self.payload),
        ];
        for (name, value) in numbers {
            if let Some(value) = value {
                let _ = write!(text, " --{name} {value}");
            }
        }
        for (name, value) in &self.set {
            let _ = write!(text, " --set {name}={value}");
        }
        if let Some(mutant) = &self.mutant {
            let _ = write!(text, " --mutant {mutant}");
        }
        text
    }

    fn json_report(&self, all: &[Judged], took: Duration) -> Value {
        let violation = |j: &Judged| {
            json!({
                "seed": j.seed,
                "what": j.wrong,
                "replay": self.replay(j.seed),
                "report": j.report.as_deref().and_then(|r| serde_json::from_str::<Value>(r).ok()),
            })
        };
        let wrong: Vec<_> = all.iter().filter(|j| j.wrong.is_some()).map(violation).collect();
        json!({
            "protocol": self.protocol,
            "ok": wrong.is_empty(),
            "runs": all.len(),
            "casts": all.iter().map(|j| j.casts).sum::<u64>(),
            "deliveries": all.iter().map(|j| j.deliveries).sum::<u64>(),
            "crashes": all.iter().map(|j| j.crashes).sum::<u64>(),
            "simulated_ns": all.iter().map(|j| j.simulated_ns).sum::<u64>(),
            "seconds": took.as_secs_f64(),
            // Of one run: the same seed gives the same number.
            "hash": (all.len() == 1).then(|| format!("{:016x}", all[0].hash)),
            "violations": wrong,
        })
    }
}

fn print(all: &[Judged], took: Duration) {
    let sum = |f: fn(&Judged) -> u64| all.iter().map(f).sum::<u64>();
    let wrong = all.iter().filter(|j| j.wrong.is_some()).count();
    println!(
        "{} runs, {wrong} violations: {} multicasts, {} deliveries, {} crashes, {:.3} s simulated \
         in {:.1} s",
        all.len(),
        sum(|j| j.casts),
        sum(|j| j.deliveries),
        sum(|j| j.crashes),
        sum(|j| j.simulated_ns) as f64 / 1e9,
        took.as_secs_f64(),
    );
    if let [one] = all {
        println!("hash {:016x}", one.hash);
    }
}

/// Runs seeds 1 to `n` over all cores; stops soon after the first violation.
fn judge_all(
    entry: &dyn Entry,
    config: &Config,
    settings: &Settings,
    n: u64,
) -> Result<Vec<Judged>, Failure> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let (next, found) = (AtomicU64::new(1), AtomicBool::new(false));
    let all = Mutex::new(Vec::new());
    let bar = progress(n);
    let work = || -> Result<(), Failure> {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed > n || found.load(Ordering::Relaxed) {
                return Ok(());
            }
            let judged = judge(entry, config, settings, seed, None)?;
            if judged.wrong.is_some() {
                found.store(true, Ordering::Relaxed);
            }
            all.lock().unwrap_or_else(PoisonError::into_inner).push(judged);
            bar.inc(1);
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        threads.into_iter().try_for_each(|t| {
            t.join().unwrap_or_else(|_| Err(Failure::Failed("a thread panicked".to_string())))
        })
    })?;
    bar.finish_and_clear();
    let mut all = all.into_inner().unwrap_or_else(PoisonError::into_inner);
    all.sort_by_key(|j| j.seed);
    Ok(all)
}

/// A progress bar on a terminal; nothing in a pipe.
fn progress(n: u64) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
    }
    let bar = ProgressBar::new(n);
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {pos}/{len} runs, {eta} to go") {
        bar.set_style(style);
    }
    bar
}

/// Runs one seed and judges it by what the entry promises.
fn judge(
    entry: &dyn Entry,
    config: &Config,
    settings: &Settings,
    seed: u64,
    path: Option<&PathBuf>,
) -> Result<Judged, Failure> {
    let fail =
        |path: &PathBuf, e: std::io::Error| Failure::Failed(format!("{}: {e}", path.display()));
    let mut file = match path {
        None => None,
        Some(path) => Some(BufWriter::new(File::create(path).map_err(|e| fail(path, e))?)),
    };
    let mut history = History::new();
    let (mut refused, mut unwritten) = (None, None);
    let cluster = config.cluster();
    let ran = catch_unwind(AssertUnwindSafe(|| {
        amcast_sim::run(entry, config, settings, seed, &mut |event| {
            if let Err(e) = history.push_event(event, cluster) {
                refused.get_or_insert(e.to_string());
            }
            if let Some(Err(e)) = file.as_mut().map(|f| writeln!(f, "{}", event.json(cluster))) {
                unwritten.get_or_insert(e);
            }
        })
    }));
    let flushed = file.map_or(Ok(()), |mut f| f.flush());
    if let (Some(path), Some(e)) = (path, unwritten.or(flushed.err())) {
        return Err(fail(path, e));
    }
    let mut judged = Judged {
        seed,
        casts: 0,
        deliveries: history.deliveries(),
        crashes: 0,
        simulated_ns: 0,
        hash: 0,
        wrong: refused.map(|why| format!("the history makes no sense: {why}")),
        report: None,
    };
    match ran {
        Err(panic) => {
            judged.wrong = Some(format!("panicked: {}", panic_text(&*panic)));
            return Ok(judged);
        }
        Ok(Err(e)) => return Err(Failure::misuse(e)),
        Ok(Ok(report)) => {
            (judged.casts, judged.crashes) = (report.casts, report.crashes);
            (judged.simulated_ns, judged.hash) = (report.time.0, report.hash);
            match &report.outcome {
                Outcome::Settled => {}
                Outcome::NotSettled(stuck) => {
                    judged.wrong = Some(format!("did not settle: {:?}", stuck.first()));
                }
                Outcome::Breach(breach) => judged.wrong = Some(format!("breach: {breach:?}")),
            }
        }
    }
    let report = check(&history, entry.about().promises);
    judged.report = Some(report.json());
    let violated = report.findings.iter().find_map(|(property, verdict)| match verdict {
        Verdict::Violated(why) => Some(format!("{property} does not hold: {why}")),
        _ => None,
    });
    judged.wrong = violated.or(judged.wrong);
    Ok(judged)
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string))
        .unwrap_or_else(|| "without a message".to_string())
}

//! `cargo xtask <command>`: one command per wish, the same for people and for CI.

use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use xtask::{advisories, no_os, rdma, source, steps, torture};

const HELP: &str = "\
cargo xtask check             all that CI checks: what `lint` does, then all tests
cargo xtask lint              format, tidy, papers, commits, lints, docs, licences, no-os, rdma
cargo xtask fmt               all code written as rustfmt does, also what `cargo fmt` does not find
cargo xtask tidy              the rules of style and structure (also a test)
cargo xtask papers            each step of each algorithm: code, test, or reason to deviate (also a test)
cargo xtask commits           subjects of the last commits: `component: verb ..` (also a test)
cargo xtask licences          licences of all dependencies, and what `advisories` does
cargo xtask advisories        known vulnerabilities of all dependencies, if a database is at hand
cargo xtask no-os             the pure crates build where there is no operating system
cargo xtask rdma              lints and tests of the feature `rdma`, where libfabric is installed
cargo xtask sim SECONDS       random simulations of every protocol for that long, a seed after another
cargo xtask replay PROTOCOL SEED [--faults all ..]    one simulation again, as `amcast sim` runs it
cargo xtask torture MINUTES   real clusters under load, their nodes killed, for that long, judged afterwards
cargo xtask measure           what `amcast choose` goes by, made anew on this machine: minutes, with nothing beside
cargo xtask newcomer          a protocol is added to a copy, and all follows from its folder and line: some minutes
cargo xtask fuzz              how each fuzz target is run
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let result = match args[..] {
        ["check"] => steps::check(),
        ["lint"] => steps::lint(),
        ["fmt"] => steps::fmt(),
        ["tidy"] => steps::tidy(),
        ["papers"] => steps::papers(),
        ["commits"] => steps::commits(),
        ["licences"] => steps::licences(),
        ["advisories"] => advisories::check().map(|says| println!("{says}")),
        ["no-os"] => no_os::check(),
        ["rdma"] => rdma::check(),
        ["sim", seconds] => match seconds.trim_end_matches('s').parse() {
            Ok(seconds) => simulate(Duration::from_secs(seconds)),
            Err(_) => return misuse(&format!("`{seconds}` is no number of seconds")),
        },
        ["torture", minutes] => match minutes.parse::<u64>() {
            Ok(minutes) => steps::program()
                .and_then(|program| torture::run(&program, Duration::from_secs(60 * minutes))),
            Err(_) => return misuse(&format!("`{minutes}` is no number of minutes")),
        },
        ["replay", protocol, seed, ref more @ ..] => {
            let args = [&["sim", "--protocol", protocol, "--seed", seed], more].concat();
            steps::program().and_then(|program| replay(&program, &args))
        }
        ["measure"] => steps::program().and_then(|program| measure(&program)),
        ["newcomer"] => steps::newcomer(),
        ["fuzz"] => fuzz(),
        ["help" | "--help" | "-h"] => {
            print!("{HELP}");
            Ok(())
        }
        _ => return misuse("no such command"),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("xtask: {why}");
            ExitCode::FAILURE
        }
    }
}

fn misuse(why: &str) -> ExitCode {
    eprintln!("xtask: {why}\n\n{HELP}");
    ExitCode::from(2)
}

/// Simulates every protocol of the catalog in turn, under all faults that it does not assume away,
/// a new seed each time, until the time is over. A failure prints the command that replays it.
fn simulate(time: Duration) -> Result<(), String> {
    let program = steps::program()?;
    let names = protocols(&program)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let first = now.map_err(|e| format!("the clock is before 1970: {e}"))?.as_secs() * 1_000_000;
    let begin = Instant::now();
    let mut runs = 0;
    for seed in first.. {
        for name in &names {
            if begin.elapsed() >= time {
                println!("sim: {runs} runs of {}, none failed", names.join(", "));
                return Ok(());
            }
            run(
                &program,
                &["sim", "--protocol", name, "--seed", &seed.to_string(), "--faults", "all"],
            )?;
            runs += 1;
        }
    }
    Ok(())
}

/// Runs the program for people to watch.
fn replay(program: &Path, args: &[&str]) -> Result<(), String> {
    let status = Command::new(program).args(args).status().map_err(|e| e.to_string())?;
    if status.success() { Ok(()) } else { Err(format!("amcast {}: {status}", args.join(" "))) }
}

/// Measures bursts, and keeps the figures where `amcast choose` has them from.
fn measure(program: &Path) -> Result<(), String> {
    let out = source::root().join("target/measured");
    let to = source::root().join("crates/amcast/src/choose/measured.json");
    let directory = out.to_str().ok_or("the path of this repository is not UTF-8")?;
    replay(program, &["reproduce", "to-fig5", "--out", directory])?;
    fs::copy(out.join("to-fig5.json"), &to).map_err(|e| format!("{}: {e}", to.display()))?;
    println!("{}: made anew", to.display());
    Ok(())
}

/// Runs the program; what it prints is of interest only if it fails.
fn run(program: &Path, args: &[&str]) -> Result<(), String> {
    let answer = Command::new(program).args(args).output().map_err(|e| e.to_string())?;
    if answer.status.success() {
        return Ok(());
    }
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Err(format!("amcast {}\n{}{}", args.join(" "), text(&answer.stdout), text(&answer.stderr)))
}

/// The names of the catalog, as the program tells them.
fn protocols(program: &Path) -> Result<Vec<String>, String> {
    let answer = Command::new(program).args(["protocols", "--json"]).output();
    let answer = answer.map_err(|e| format!("{}: {e}", program.display()))?;
    let catalog: Value = serde_json::from_slice(&answer.stdout)
        .map_err(|e| format!("amcast protocols --json: {e}"))?;
    let entries = catalog["protocols"].as_array();
    let names = entries.into_iter().flatten().filter_map(|p| p["name"].as_str());
    let names: Vec<String> = names.map(str::to_string).collect();
    if names.is_empty() {
        Err("amcast protocols --json names no protocol".into())
    } else {
        Ok(names)
    }
}

/// Lists the fuzz targets.
fn fuzz() -> Result<(), String> {
    let dir = source::root().join("fuzz/fuzz_targets");
    let entries = fs::read_dir(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    for entry in entries {
        let name = entry.map_err(|e| e.to_string())?.file_name();
        println!(
            "cd fuzz && cargo +nightly fuzz run {}",
            name.to_string_lossy().trim_end_matches(".rs")
        );
    }
    Ok(())
}

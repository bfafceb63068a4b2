//! `cargo xtask <command>`: one command per wish, the same for people and for CI.

use std::fs;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use xtask::{licences, no_os, source, steps};

const HELP: &str = "\
cargo xtask check             all that CI checks: format, tidy, papers, lints, tests, docs, licences, no-os
cargo xtask tidy              the rules of the house (also a test)
cargo xtask papers            each step of each algorithm: code, test, or reason to deviate (also a test)
cargo xtask licences          licences of all dependencies
cargo xtask no-os             the pure crates build where there is no operating system
cargo xtask sim SECONDS       random simulations of every protocol for that long, a seed after another
cargo xtask replay PROTOCOL SEED [MORE ..]    one simulation again
cargo xtask fuzz              the fuzz targets there are
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let result = match args[..] {
        ["check"] => steps::check(),
        ["tidy"] => steps::tidy(),
        ["papers"] => steps::papers(),
        ["licences"] => licences::check().map(|says| println!("{says}")),
        ["no-os"] => no_os::check(),
        ["sim", seconds] => match seconds.trim_end_matches('s').parse() {
            Ok(seconds) => simulate(Duration::from_secs(seconds)),
            Err(_) => return misuse(&format!("`{seconds}` is no number of seconds")),
        },
        ["replay", protocol, seed, ref more @ ..] => {
            let args = [&["sim", "--protocol", protocol, "--seed", seed], more].concat();
            steps::program(&args)
        }
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

/// Seeds simulated in one go, before looking at the time again.
const SEEDS_AT_ONCE: u64 = 200;

/// Simulates every protocol of the catalog under all faults that it does not assume away, with new
/// seeds until the time is over. A failure prints the command that replays it.
fn simulate(time: Duration) -> Result<(), String> {
    let names = protocols()?;
    let begin = Instant::now();
    let mut first: u64 = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_err(|e| format!("the clock stands before 1970: {e}"))?
        .as_secs()
        * 1_000_000;
    while begin.elapsed() < time {
        for name in &names {
            let (seed, count) = (first.to_string(), SEEDS_AT_ONCE.to_string());
            let seeds = ["--seed", &seed, "--seeds", &count, "--faults", "all"];
            steps::program(&[&["sim", "--protocol", name], &seeds[..]].concat())?;
        }
        first += SEEDS_AT_ONCE;
    }
    Ok(())
}

/// The names of the catalog, as the program tells them.
fn protocols() -> Result<Vec<String>, String> {
    let answer = std::process::Command::new("cargo")
        .args(["run", "--quiet", "--release", "--package", "amcast", "--bin", "amcast", "--"])
        .args(["protocols", "--json"])
        .current_dir(source::root())
        .output()
        .map_err(|e| format!("cargo: {e}"))?;
    if !answer.status.success() {
        return Err(format!("amcast protocols: {}", String::from_utf8_lossy(&answer.stderr)));
    }
    let catalog: serde_json::Value = serde_json::from_slice(&answer.stdout)
        .map_err(|e| format!("amcast protocols --json: {e}"))?;
    let entries = catalog.as_array().or_else(|| catalog["protocols"].as_array());
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
        println!("cargo +nightly fuzz run {}", name.to_string_lossy().trim_end_matches(".rs"));
    }
    Ok(())
}

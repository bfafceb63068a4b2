//! What `cargo xtask check` goes through, in order: cheap and telling steps first.

use crate::{licences, no_os, papers, source, source::Tree, tidy};
use std::process::Command;

/// One step of the check.
struct Step {
    name: &'static str,
    run: fn() -> Result<(), String>,
}

const STEPS: &[Step] = &[
    Step { name: "format", run: || cargo(&["fmt", "--all", "--check"], &[]) },
    Step { name: "tidy", run: tidy },
    Step { name: "papers", run: papers },
    Step {
        name: "lints",
        run: || cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"], &[]),
    },
    Step { name: "tests", run: || cargo(&["test", "--workspace"], &[]) },
    Step {
        name: "docs",
        run: || cargo(&["doc", "--workspace", "--no-deps"], &[("RUSTDOCFLAGS", "-D warnings")]),
    },
    Step { name: "licences", run: || licences::check().map(|says| println!("{says}")) },
    Step { name: "no-os", run: no_os::check },
];

/// Goes through all steps, and stops at the first that fails.
///
/// # Errors
/// Which step failed, and why.
pub fn check() -> Result<(), String> {
    for step in STEPS {
        eprintln!("== {}", step.name);
        (step.run)().map_err(|why| format!("{}: {why}", step.name))?;
    }
    Ok(())
}

/// The rules of the house.
///
/// # Errors
/// Every finding, by rule.
pub fn tidy() -> Result<(), String> {
    let tree = Tree::read().map_err(|e| e.to_string())?;
    let found = tidy::check(&tree);
    if found.is_empty() {
        println!("tidy: {} files keep {} rules", tree.files.len(), tidy::RULES.len());
        return Ok(());
    }
    Err(format!("not tidy\n{}", tidy::report(&found)))
}

/// The ties to the papers.
///
/// # Errors
/// Every step that lacks code, test and reason, and every tie that leads nowhere.
pub fn papers() -> Result<(), String> {
    let tree = Tree::read().map_err(|e| e.to_string())?;
    let reports = papers::check(&tree)?;
    reports.iter().for_each(|report| print!("{report}"));
    let faults: usize = reports.iter().map(|r| r.faults.len()).sum();
    if faults == 0 { Ok(()) } else { Err(format!("{faults} faults in the ties to the papers")) }
}

/// Runs the program of this repository, built for speed.
///
/// # Errors
/// When it does not start, or fails.
pub fn program(args: &[&str]) -> Result<(), String> {
    let run = ["run", "--quiet", "--release", "--package", "amcast", "--bin", "amcast", "--"];
    cargo(&[&run[..], args].concat(), &[])
}

/// Runs cargo at the root.
///
/// # Errors
/// When it does not start, or fails.
pub fn cargo(args: &[&str], environment: &[(&str, &str)]) -> Result<(), String> {
    let mut cargo = Command::new("cargo");
    cargo.args(args).envs(environment.iter().copied()).current_dir(source::root());
    match cargo.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("cargo {}: {status}", args.join(" "))),
        Err(e) => Err(format!("cargo: {e}")),
    }
}

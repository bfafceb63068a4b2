//! The steps of `cargo xtask check`, in order: cheap and telling ones first, tests last.

use crate::{advisories, commits, licences, no_os, papers, rdma, source, source::SourceTree, tidy};
use serde_json::Value;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// One step before the workspace's tests.
struct CheckStep {
    name: &'static str,
    run: fn() -> Result<(), String>,
}

/// Links that lead nowhere are refused. Public docs may name private modules: a reading guide through
/// the source does, and stays text on the page.
const DOC_FLAGS: &str = "-D warnings -A rustdoc::private-intra-doc-links";

const STEPS: &[CheckStep] = &[
    CheckStep { name: "format", run: || format(&["--check"]) },
    CheckStep { name: "tidy", run: tidy },
    CheckStep { name: "papers", run: papers },
    CheckStep { name: "commits", run: commits },
    CheckStep {
        name: "lints",
        run: || cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"], &[]),
    },
    CheckStep {
        name: "docs",
        run: || cargo(&["doc", "--workspace", "--no-deps"], &[("RUSTDOCFLAGS", DOC_FLAGS)]),
    },
    CheckStep { name: "licences", run: licences },
    CheckStep { name: "no-os", run: no_os::check },
    CheckStep { name: "rdma", run: rdma::check },
];

/// All that is checked, the tests last: their closing lines are the last ones printed.
///
/// # Errors
/// Which step failed, and why.
pub fn check() -> Result<(), String> {
    lint()?;
    eprintln!("== tests");
    let skips = source::root().join(".ci/skips.txt").display().to_string();
    cargo(&["test", "--workspace"], &[(amcast_test_policy::SKIPS, &skips)])
}

/// All that is checked before the workspace's tests. Stops at the first step that fails.
///
/// # Errors
/// Which step failed, and why.
pub fn lint() -> Result<(), String> {
    for step in STEPS {
        eprintln!("== {}", step.name);
        (step.run)().map_err(|why| format!("{}: {why}", step.name))?;
    }
    Ok(())
}

/// Writes all code as rustfmt does.
///
/// # Errors
/// When code does not parse.
pub fn fmt() -> Result<(), String> {
    format(&[])
}

/// Formats with these flags: what cargo finds, and the folders of the protocols, whose modules a macro of the
/// catalog declares and cargo therefore does not find.
fn format(flags: &[&str]) -> Result<(), String> {
    cargo(&[&["fmt", "--all", "--"], flags].concat(), &[])?;
    let tree = SourceTree::read().map_err(|e| e.to_string())?;
    let roots = tree.rust().filter(|file| {
        let below = file.path.strip_prefix("crates/protocols/src/");
        below.and_then(|path| path.split_once('/')).is_some_and(|(_, file)| file == "mod.rs")
    });
    let mut rustfmt = Command::new("rustfmt");
    rustfmt.args(flags).args(roots.map(|file| &file.path)).current_dir(source::root());
    match rustfmt.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => {
            Err(format!("rustfmt of the protocols: {status}; `cargo xtask fmt` writes it"))
        }
        Err(e) => Err(format!("rustfmt: {e}")),
    }
}

/// The rules of style and structure.
///
/// # Errors
/// Every finding, by rule.
pub fn tidy() -> Result<(), String> {
    let tree = SourceTree::read().map_err(|e| e.to_string())?;
    let found = tidy::check(&tree);
    if found.is_empty() {
        println!("tidy: {} files keep {} rules", tree.files.len(), tidy::RULES.len());
        return Ok(());
    }
    Err(format!("not tidy\n{}", tidy::report(&found)))
}

/// The licences of all dependencies, and what is known against them.
///
/// # Errors
/// Licences that are not allowed, and packages with a known vulnerability.
pub fn licences() -> Result<(), String> {
    println!("{}", licences::check()?);
    println!("{}", advisories::check()?);
    Ok(())
}

/// Adds a protocol to a copy of the repository, and sees that all follows from its folder and its line.
///
/// # Errors
/// When something else would have to be changed.
pub fn newcomer() -> Result<(), String> {
    let test = ["test", "--package", "xtask", "--test", "newcomer", "--", "--nocapture"];
    cargo(&test, &[("AMCAST_NEWCOMER", "1")])
}

/// The ties to the papers.
///
/// # Errors
/// Every step without code, test and reason, and every tie that leads nowhere.
pub fn papers() -> Result<(), String> {
    let tree = SourceTree::read().map_err(|e| e.to_string())?;
    let reports = papers::check(&tree)?;
    reports.iter().for_each(|report| print!("{report}"));
    let faults: usize = reports.iter().map(|r| r.faults.len()).sum();
    if faults == 0 { Ok(()) } else { Err(format!("{faults} faults in the ties to the papers")) }
}

/// The subjects of the last commits.
///
/// # Errors
/// Every subject that has not the shape, and why.
pub fn commits() -> Result<(), String> {
    match commits::check()? {
        None => println!("commits: skipped, the source has no history: it is not a git repository"),
        Some(wrong) if wrong.is_empty() => println!("commits: the last subjects have one shape"),
        Some(wrong) => return Err(format!("reword these commits\n{}", wrong.join("\n"))),
    }
    Ok(())
}

/// Builds the program of this repository for speed; where it lies.
///
/// # Errors
/// When it does not build.
pub fn program() -> Result<PathBuf, String> {
    let answer = Command::new("cargo")
        .args(["build", "--release", "--package", "amcast-cli", "--bin", "amcast"])
        .args(["--message-format", "json-render-diagnostics"])
        .current_dir(source::root())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|e| format!("cargo: {e}"))?;
    let messages = String::from_utf8_lossy(&answer.stdout);
    let built = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut programs =
        built.filter_map(|message| message["executable"].as_str().map(PathBuf::from));
    programs.next_back().ok_or_else(|| "cargo build gave no program".to_string())
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

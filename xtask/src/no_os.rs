//! Compiles the pure crates for targets without an operating system. It proves better than a reader
//! that they open no socket, read no file and no clock, and start no thread.

use crate::source;
use amcast_test_policy::PermittedSkips;
use std::process::Command;

/// The crates that see no system.
const PURE: &[&str] = &["amcast-core", "amcast-protocols", "amcast-check", "amcast-sim"];

/// Where they must compile: no system at all, and inside a browser page. Both have atomic words of 64
/// bits, which the memory medium needs.
const TARGETS: &[&str] = &["x86_64-unknown-none", "wasm32-unknown-unknown"];

/// Compiles the pure crates for each target that can be had, and says aloud which can not.
///
/// # Errors
/// When a crate does not compile for a target that is there, and when one is not there and the list of
/// permitted skips does not name it.
pub fn check() -> Result<(), String> {
    let skips = PermittedSkips::read(&source::root().join(".ci/skips.txt"))?;
    for &target in TARGETS {
        match provide(target) {
            Ok(()) => compile(target)?,
            Err(why) if skips.permit(&format!("no-os:{target}")) => {
                eprintln!("no-os: skipped: {target}: {why}");
            }
            Err(why) => {
                return Err(format!("{target} is not there, and .ci/skips.txt wants it: {why}"));
            }
        }
    }
    Ok(())
}

/// Makes sure that the standard parts for a target are installed.
fn provide(target: &str) -> Result<(), String> {
    let rustup = |args: &[&str]| {
        let answer =
            Command::new("rustup").args(args).output().map_err(|e| format!("rustup: {e}"))?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_string();
        if answer.status.success() { Ok(text(&answer.stdout)) } else { Err(text(&answer.stderr)) }
    };
    if rustup(&["target", "list", "--installed"])?.lines().any(|line| line == target) {
        return Ok(());
    }
    rustup(&["target", "add", target]).map(|_| ())
}

/// Names and types say whether a system is needed, and there is nothing to link: no machine code is
/// written, which would take three times as long.
fn compile(target: &str) -> Result<(), String> {
    let mut cargo = Command::new("cargo");
    cargo.args(["check", "--locked", "--lib", "--target", target]).current_dir(source::root());
    for name in PURE {
        cargo.args(["--package", name]);
    }
    let status = cargo.status().map_err(|e| format!("cargo: {e}"))?;
    if status.success() {
        println!("no-os: {} compile for {target}", PURE.join(", "));
        return Ok(());
    }
    Err(format!("the pure crates do not compile for {target}"))
}

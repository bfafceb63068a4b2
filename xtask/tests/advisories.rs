//! Advisories are matched with the versions of a lock file, on a small database of samples.

use amcast_test_policy::time_limit;
use std::path::{Path, PathBuf};
use std::process::Command;
use xtask::advisories::find;

fn database() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/advisory-db")
}

/// A lock file with these packages of crates.io.
fn lock(packages: &[(&str, &str)]) -> String {
    let source = "registry+https://github.com/rust-lang/crates.io-index";
    let package = |(name, version): &(&str, &str)| {
        format!("[[package]]\nname = \"{name}\"\nversion = \"{version}\"\nsource = \"{source}\"\n")
    };
    "version = 4\n".to_string() + &packages.iter().map(package).collect::<String>()
}

fn vulnerable(packages: &[(&str, &str)]) -> Vec<String> {
    find(&database(), &lock(packages), &[]).expect("all of it can be read").vulnerable
}

#[test]
fn a_version_that_an_advisory_is_about_is_found_and_others_are_not() {
    let _limit = time_limit();
    // One advisory that matches, and one that does not.
    let both = find(
        &database(),
        &lock(&[("example-parser", "1.2.2"), ("example-socket", "0.3.8"), ("unknown", "1.0.0")]),
        &[],
    )
    .expect("all of it can be read");
    assert_eq!(both.vulnerable, ["example-parser 1.2.2: RUSTSEC-0000-0001 (2026-01-31)"]);
    assert_eq!(
        both.notices,
        ["example-socket 0.3.8: RUSTSEC-0000-0003 (2026-02-01): unmaintained"]
    );
    assert_eq!((both.advisories, both.packages, &*both.newest), (3, 3, "2026-02-01"));
    // Patched, never affected, between two patched ranges.
    assert!(vulnerable(&[("example-parser", "1.2.3")]).is_empty());
    assert!(vulnerable(&[("example-parser", "0.9.9")]).is_empty());
    assert_eq!(vulnerable(&[("example-socket", "0.4.1")]).len(), 1);
}

#[test]
fn ignored_advisories_and_packages_of_our_own_are_passed_over() {
    let _limit = time_limit();
    let affected = lock(&[("example-parser", "1.2.2")]);
    let ignored = ["RUSTSEC-0000-0001".to_string()];
    assert!(find(&database(), &affected, &ignored).expect("it is read").vulnerable.is_empty());
    let ours = "[[package]]\nname = \"example-parser\"\nversion = \"1.2.2\"\n";
    let findings = find(&database(), ours, &[]).expect("it is read");
    assert!(findings.vulnerable.is_empty() && findings.packages == 0);
    let missing = find(Path::new("/nonexistent"), &affected, &[]).expect_err("no database");
    assert!(missing.contains("/nonexistent"), "{missing}");
}

#[test]
fn the_command_checks_the_database_that_the_environment_names() {
    let _limit = time_limit();
    let run = |database: &Path| {
        let mut licences = Command::new(env!("CARGO_BIN_EXE_xtask"));
        let output = licences.arg("advisories").env("AMCAST_ADVISORY_DB", database).output();
        output.expect("it starts")
    };
    let checked = run(&database());
    let says = String::from_utf8_lossy(&checked.stdout).into_owned();
    assert!(checked.status.success() && says.contains("advisories: 3 in "), "{checked:?}");
    let wrong = run(Path::new("/nonexistent"));
    let says = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert!(!wrong.status.success() && says.contains("AMCAST_ADVISORY_DB"), "{wrong:?}");
}

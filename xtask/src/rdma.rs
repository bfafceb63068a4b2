//! Checks what the feature `rdma` adds, where libfabric is installed: the workspace's own tests leave it out, since
//! most machines lack that library.

use crate::source;
use crate::steps::cargo;
use amcast_test_policy::PermittedSkips;
use std::process::{Command, Stdio};

/// The crates that have the feature.
const CRATES: &[&str] = &["amcast-fabric", "amcast-node", "amcast-lab", "amcast-cli"];

/// Lints the crates with the feature, and runs the tests of the crate that binds libfabric: revocation between
/// processes, writers that are killed, strangers at a port.
///
/// # Errors
/// When there are findings or a test fails, and when libfabric is missing and the list of permitted skips does not
/// name it.
pub fn check() -> Result<(), String> {
    if !is_installed() {
        let skips = PermittedSkips::read(&source::root().join(".ci/skips.txt"))?;
        if skips.permit("rdma:libfabric") {
            eprintln!("rdma: skipped: libfabric's headers are not there (Debian: libfabric-dev)");
            return Ok(());
        }
        return Err("libfabric's headers are missing, and .ci/skips.txt wants them".to_string());
    }
    let crates = CRATES.iter().flat_map(|name| ["--package", name]);
    let features: Vec<String> = CRATES.iter().map(|name| format!("{name}/rdma")).collect();
    let features = features.join(",");
    let lints: Vec<&str> = ["clippy"].into_iter().chain(crates).collect();
    let flags = ["--features", &features, "--all-targets", "--", "-D", "warnings"];
    cargo(&[&lints[..], &flags].concat(), &[])?;
    cargo(&["test", "--package", "amcast-fabric", "--features", "rdma"], &[])
}

/// Whether the C compiler finds libfabric's headers: in its own directories, or in the one that `LIBFABRIC_DIR` names.
fn is_installed() -> bool {
    let mut compiler = Command::new(std::env::var("CC").unwrap_or_else(|_| "cc".to_string()));
    if let Ok(dir) = std::env::var("LIBFABRIC_DIR") {
        compiler.arg(format!("-I{dir}/include"));
    }
    compiler.args(["-E", "-include", "rdma/fabric.h", "-x", "c", "/dev/null"]);
    compiler.stdout(Stdio::null()).stderr(Stdio::null());
    compiler.status().is_ok_and(|status| status.success())
}

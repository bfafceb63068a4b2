//! Building what drives a rival: its sources are part of this program.

use super::AbsentRival;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A source file: where it lies in its directory, and its text.
pub(in crate::bench) type RivalSource = (&'static str, &'static str);

/// The directory in which `sources` were built by `how`, which is done now if it was not before. It
/// lies in the user's cache, and its name tells the sources apart.
///
/// # Errors
/// With what cannot be written, or what the build says.
pub(in crate::bench) fn built(
    name: &str,
    sources: &[RivalSource],
    how: impl Fn(&Path) -> Result<(), AbsentRival>,
) -> Result<PathBuf, AbsentRival> {
    let mut hasher = DefaultHasher::new();
    sources.hash(&mut hasher);
    let dir = cache()?.join(format!("{name}-{:016x}", hasher.finish()));
    let whole = dir.join("built");
    if whole.exists() {
        return Ok(dir);
    }
    let unwritten = |e: io::Error| AbsentRival(format!("{}: {e}", dir.display()));
    for (path, text) in sources {
        let path = dir.join(path);
        fs::create_dir_all(path.parent().unwrap_or(&dir)).map_err(unwritten)?;
        fs::write(path, text).map_err(unwritten)?;
    }
    how(&dir)?;
    fs::write(whole, "").map_err(unwritten)?;
    Ok(dir)
}

fn cache() -> Result<PathBuf, AbsentRival> {
    let set = |name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let base = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")));
    let base =
        base.ok_or_else(|| AbsentRival("neither XDG_CACHE_HOME nor HOME is set".to_string()))?;
    Ok(base.join("amcast").join("rivals"))
}

/// How to install what programs of Java are built with, and run by.
pub(in crate::bench) const JAVA: &str = "apt install openjdk-17-jdk-headless maven";

/// Builds a program of Java, with all that it needs beside it in `target/lib`.
///
/// # Errors
/// As of [`run`].
pub(in crate::bench) fn with_maven(dir: &Path) -> Result<(), AbsentRival> {
    let goals = ["-q", "-B", "package", "dependency:copy-dependencies"];
    let mut maven = Command::new("mvn");
    maven.current_dir(dir).args(goals).arg("-DoutputDirectory=target/lib");
    run(&mut maven, JAVA)
}

/// Runs a build's command to its end.
///
/// # Errors
/// When it is not installed, which `install` says how to do, or fails.
pub(in crate::bench) fn run(command: &mut Command, install: &str) -> Result<(), AbsentRival> {
    let name = command.get_program().to_string_lossy().into_owned();
    let done = command.stdin(Stdio::null()).output().map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => AbsentRival(format!("{name} is not installed: {install}")),
        _ => AbsentRival(format!("{name}: {e}")),
    })?;
    if done.status.success() {
        return Ok(());
    }
    let said = [done.stdout, done.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    let lines: Vec<&str> = said.lines().filter(|line| !line.trim().is_empty()).take(4).collect();
    Err(AbsentRival(format!("{name} fails ({install}): {}", lines.join("; "))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_not_there_is_told_with_how_to_install_it() {
        let _limit = amcast_test_policy::time_limit();
        let AbsentRival(why) =
            run(&mut Command::new("amcast-no-such"), "apt install it").unwrap_err();
        assert_eq!(why, "amcast-no-such is not installed: apt install it");
        let AbsentRival(why) =
            run(Command::new("sh").args(["-c", "echo no; false"]), "apt x").unwrap_err();
        assert_eq!(why, "sh fails (apt x): no");
    }
}

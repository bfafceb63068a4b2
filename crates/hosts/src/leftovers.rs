//! The namespaces of labs by name: which process owns them, and the removal of those that nobody owns.
//!
//! A namespace is named `amcast-<process>-<lab>-<host>`, after the process whose lab it is. A killed process
//! cannot remove its own; the next lab on the machine does. Namespaces of a process that runs are never touched.

use crate::namespace::{FOLDER, path_of};
use crate::programs::run;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;

/// The name of a namespace of this process.
pub(crate) fn name(lab: u32, host: impl std::fmt::Display) -> String {
    format!("amcast-{}-{lab}-{host}", std::process::id())
}

/// Removes the namespaces of labs whose process is gone, with the programs that still run in them.
pub(crate) fn remove_leftovers() {
    let entries = fs::read_dir(FOLDER).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let left: Vec<String> =
        names.filter(|name| owner(name).is_some_and(|process| !runs(process))).collect();
    remove(&left);
}

/// Ends the programs in these namespaces, and removes them. Threads of this process are not ended.
pub(crate) fn remove(names: &[String]) {
    if names.is_empty() {
        return;
    }
    // Without this a program that nobody watches would keep its namespace, and its links, for ever.
    end_programs(names);
    for name in names {
        // One that was not built is not there, and another process may be removing the same leftovers.
        let _ = run("ip", &["netns", "del", name]);
    }
}

/// The process that owns a namespace of this name, if it is a lab's.
fn owner(name: &str) -> Option<u32> {
    name.strip_prefix("amcast-")?.split_once('-')?.0.parse().ok()
}

/// Whether a process runs. One that ended and that its parent has not noticed yet does not.
fn runs(process: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat"));
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}

fn end_programs(names: &[String]) {
    let namespace = |path: &std::path::Path| {
        let metadata = fs::metadata(path).ok()?;
        Some((metadata.dev(), metadata.ino()))
    };
    let ours: BTreeSet<_> = names.iter().filter_map(|name| namespace(&path_of(name))).collect();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let process = entry.file_name().to_string_lossy().parse::<i32>().ok();
        let process = process.filter(|&process| process as u32 != std::process::id());
        let Some(process) = process.and_then(Pid::from_raw) else { continue };
        if namespace(&entry.path().join("ns/net")).is_some_and(|found| ours.contains(&found)) {
            // It may have ended in the meantime.
            let _ = kill_process(process, Signal::KILL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_owner_is_in_the_name_and_other_names_are_not_ours() {
        assert_eq!(owner(&name(3, 1)), Some(std::process::id()));
        assert_eq!(owner("amcast-17-a"), Some(17));
        assert_eq!(owner("amcast-17"), None);
        assert_eq!(owner("amcast-mine-1"), None);
        assert_eq!(owner("docker-17-1"), None);
    }

    #[test]
    fn a_process_that_is_gone_does_not_run() {
        assert!(runs(std::process::id()));
        // Larger than the kernel's limit of 2^22 processes.
        assert!(!runs(4_194_305));
    }
}

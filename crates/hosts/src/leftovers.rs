//! The namespaces of labs by name: which process owns them, and the removal of those that nobody owns.
//!
//! A namespace is named `amcast-<owner>-<lab>-<host>`, after the process whose lab it is: its number, its start, since
//! numbers are used again, and its namespace of processes, since containers may share the folder of network namespaces
//! and do not see each other's processes. A killed process cannot remove its own; the next lab on the machine does.
//! Namespaces of a process that runs, or that may, are never touched.

use crate::namespace::{FOLDER, path_of};
use crate::programs::run;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeSet;
use std::fmt::{self, Display};
use std::fs;
use std::os::unix::fs::MetadataExt;

/// A process that owns namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LabOwner {
    process: u32,
    /// When it started, in ticks of the kernel since the machine did.
    started: u64,
    /// The number of its namespace of processes.
    processes: u64,
}

impl LabOwner {
    /// This process.
    fn own() -> Self {
        let process = std::process::id();
        Self { process, started: started(process).unwrap_or(0), processes: own_processes() }
    }

    /// That of the namespace of a lab with this name.
    fn of(name: &str) -> Option<Self> {
        let (owner, _) = name.strip_prefix("amcast-")?.split_once('-')?;
        let mut numbers = owner.split('.').map(str::parse::<u64>);
        let mut next = || numbers.next()?.ok();
        let process = next()?.try_into().ok()?;
        let started = next()?;
        let processes = next()?;
        Some(Self { process, started, processes })
    }

    /// Whether it has ended. Of one that this process would not see nobody knows.
    fn has_ended(&self) -> bool {
        self.processes == own_processes() && started(self.process) != Some(self.started)
    }
}

impl Display for LabOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.process, self.started, self.processes)
    }
}

/// The number of the namespace of processes of this process.
fn own_processes() -> u64 {
    fs::metadata("/proc/self/ns/pid").map_or(0, |of| of.ino())
}

/// When a process started, if it runs. One that ended and that its parent has not noticed yet does not.
fn started(process: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The program's name may have spaces and parentheses in it.
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split(' ');
    let state = fields.next()?;
    // The 22nd field; the state is the third.
    fields.nth(18)?.parse().ok().filter(|_| state != "Z")
}

/// The name of a namespace of this process.
pub(crate) fn name(lab: impl Display, host: impl Display) -> String {
    format!("amcast-{}-{lab}-{host}", LabOwner::own())
}

/// Removes the namespaces of labs whose process is gone, with the programs that still run in them.
pub(crate) fn remove_leftovers() {
    let entries = fs::read_dir(FOLDER).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let left: Vec<String> =
        names.filter(|name| LabOwner::of(name).is_some_and(|owner| owner.has_ended())).collect();
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
        assert_eq!(LabOwner::of(&name(3, 1)), Some(LabOwner::own()));
        let owner = LabOwner { process: 17, started: 5, processes: 9 };
        assert_eq!(LabOwner::of("amcast-17.5.9-a"), Some(owner));
        for other in ["amcast-17.5.9", "amcast-17-1", "amcast-mine-1", "docker-17.5.9-1"] {
            assert_eq!(LabOwner::of(other), None, "{other}");
        }
    }

    #[test]
    fn a_process_has_ended_if_another_one_has_its_number_and_not_if_it_is_not_to_be_seen() {
        let own = LabOwner::own();
        assert!(own.started > 0 && own.processes > 0 && !own.has_ended());
        assert!(LabOwner { started: own.started + 1, ..own }.has_ended());
        // Larger than the kernel's limit of 2^22 processes.
        let gone = LabOwner { process: 4_194_305, ..own };
        assert!(gone.has_ended());
        assert!(!LabOwner { processes: own.processes + 1, ..gone }.has_ended());
    }
}

//! Leftovers of dead processes are found and removed; places of dead clients are given again.

use super::*;
use amcast_core::memory::AccessOutcome;
use amcast_core::step::Ticket;
use amcast_memory::{Backing, MemoryError};
use std::fs;
use std::path::PathBuf;

const INBOX: RegionId = RegionId(0);

/// The child: starts and does nothing.
pub(super) fn idle(directory: &Directory) {
    let _carrier = start(directory, CHILD, &[region(4, PARENT, false)]);
    loop {
        std::thread::park();
    }
}

/// The child: takes client place 1 and does nothing.
pub(super) fn tenant(directory: &Directory) {
    let _lease = directory.lease(1).expect("asked").expect("free");
    idle(directory);
}

impl PairCluster {
    fn path(&self) -> PathBuf {
        Directory::usual_base().join(format!("amcast-{:016x}", self.id.0))
    }

    fn process_files(&self) -> Vec<String> {
        let entries = fs::read_dir(self.path()).expect("listed");
        let names = entries.map(|e| e.expect("read").file_name().into_string().expect("text"));
        let mut names: Vec<_> = names.filter(|name| name.starts_with('p')).collect();
        names.sort();
        names
    }

    fn running(&self) -> bool {
        self.directory.is_running(CHILD).expect("asked")
    }
}

fn outcome_of_write(carrier: &mut MappedCarrier) -> &'static str {
    carrier.post(&[MemoryOutput::Write {
        to: CHILD,
        region: INBOX,
        at: 0,
        source: WriteSource::line([1; 7], LineStamp(1)),
        ticket: Some(Ticket(1)),
        bell: false,
    }]);
    carrier.begin_round();
    let mut said = "nothing";
    while let Some((_, input)) = carrier.next_input() {
        match input {
            MemoryInput::Done(_, AccessOutcome::Written) => said = "written",
            MemoryInput::Done(_, AccessOutcome::Lost) => said = "lost",
            MemoryInput::Done(..) => said = "something else",
            _ => {}
        }
    }
    said
}

#[test]
fn the_files_of_the_killed_are_removed_and_everyone_is_told() {
    let _limit = amcast_test_policy::time_limit();
    let cluster = PairCluster::new();
    let mut carrier = start(&cluster.directory, PARENT, &[]);
    assert_eq!(outcome_of_write(&mut carrier), "lost", "nobody is there yet");
    let mut child = cluster.spawn("idle");
    until("the child starts", || cluster.running());
    assert_eq!(fresh_starts(&mut carrier), 1, "a write was lost before: this start is news");
    assert_eq!(outcome_of_write(&mut carrier), "written");
    assert_eq!(cluster.process_files(), ["p0.1", "p1.1"]);
    assert!(cluster.directory.clean().expect("cleaned").is_empty(), "all live");
    child.kill();
    assert!(!cluster.running());
    assert_eq!(cluster.process_files(), ["p0.1", "p1.1"]);
    assert_eq!(cluster.directory.clean().expect("cleaned"), [CHILD]);
    assert_eq!(cluster.process_files(), ["p0.1"]);
    assert_eq!(outcome_of_write(&mut carrier), "lost");
}

#[test]
fn a_start_after_a_kill_needs_no_supervisor() {
    let _limit = amcast_test_policy::time_limit();
    let cluster = PairCluster::new();
    let mut carrier = start(&cluster.directory, PARENT, &[]);
    for life in 1..=3 {
        let mut child = cluster.spawn("idle");
        until("the child starts", || cluster.running());
        assert_eq!(fresh_starts(&mut carrier), usize::from(life > 1));
        assert_eq!(cluster.process_files(), ["p0.1".to_owned(), format!("p1.{life}")]);
        assert_eq!(outcome_of_write(&mut carrier), "written");
        child.kill();
    }
}

/// Whether this process maps a file of that name.
fn maps(cluster: &PairCluster, name: &str) -> bool {
    let file = cluster.path().join(name).display().to_string();
    let maps = fs::read_to_string("/proc/self/maps").expect("the system tells");
    maps.lines().any(|line| line.trim_end_matches(" (deleted)").ends_with(&file))
}

#[test]
fn the_memory_of_the_killed_is_let_go_of_before_they_start_again() {
    let _limit = amcast_test_policy::time_limit();
    let cluster = PairCluster::new();
    let mut carrier = start(&cluster.directory, PARENT, &[]);
    let mut child = cluster.spawn("idle");
    until("the child starts", || cluster.running());
    assert_eq!(fresh_starts(&mut carrier), 0);
    assert_eq!(outcome_of_write(&mut carrier), "written");
    assert!(maps(&cluster, "p1.1"), "it was written to");
    child.kill();
    assert_eq!(fresh_starts(&mut carrier), 0);
    assert!(maps(&cluster, "p1.1"), "nobody has found out yet");
    assert_eq!(cluster.directory.clean().expect("cleaned"), [CHILD]);
    assert_eq!(fresh_starts(&mut carrier), 0);
    assert!(!maps(&cluster, "p1.1"), "its next life may need the room");
    assert_eq!(outcome_of_write(&mut carrier), "lost");
    let _child = cluster.spawn("idle");
    until("the child starts again", || cluster.running());
    assert_eq!(fresh_starts(&mut carrier), 1);
    assert_eq!(outcome_of_write(&mut carrier), "written");
    assert!(maps(&cluster, "p1.2"));
}

#[test]
fn a_start_that_finds_no_room_says_what_it_needs_and_counts_as_no_life() {
    let _limit = amcast_test_policy::time_limit();
    let cluster = PairCluster::new();
    // Three quarters of a terabyte, of a memory that has less.
    let specs: Vec<_> = (0..3).map(|_| region(u32::MAX, PARENT, false)).collect();
    let needed = Directory::bytes_of(&specs).expect("a file can be so large");
    assert!(needed > 3 * 64 * u64::from(u32::MAX), "with its header");
    assert!(Directory::free_bytes(&cluster.path()).expect("told") < needed);
    let failed = cluster.directory.start(CHILD, &specs, StartOptions::default());
    let Err(MemoryError::NoSpace { needed_bytes, .. }) = failed else { panic!("{failed:?}") };
    assert_eq!(needed_bytes.next_multiple_of(4096), needed);
    let started = start(&cluster.directory, CHILD, &[region(4, PARENT, false)]);
    assert_eq!(started.incarnation(), 0, "who never lived has lost nothing");
}

#[test]
fn clusters_are_found_by_the_names_of_their_directories() {
    let _limit = amcast_test_policy::time_limit();
    let cluster = PairCluster::new();
    assert!(Directory::clusters(&Directory::usual_base()).contains(&cluster.id));
    assert!(Directory::clusters(&cluster.path()).is_empty());
    assert!(Directory::clusters(&cluster.path().join("none")).is_empty());
}

#[test]
fn a_process_that_runs_cannot_be_started_again() {
    let _limit = amcast_test_policy::time_limit();
    let cluster = PairCluster::new();
    let _child = cluster.spawn("idle");
    until("the child starts", || cluster.running());
    let again = cluster.directory.start(CHILD, &[], StartOptions::default());
    assert!(matches!(again, Err(MemoryError::Running { pid: CHILD, os_pid }) if os_pid != 0));
    assert!(matches!(cluster.directory.remove(), Err(MemoryError::Running { pid: CHILD, .. })));
}

#[test]
fn a_place_is_one_clients_while_it_lives_and_is_given_again_when_it_is_killed() {
    let _limit = amcast_test_policy::time_limit();
    let cluster = PairCluster::new();
    let first = cluster.directory.lease(1).expect("asked").expect("free").number();
    let mut child = cluster.spawn("tenant");
    until("the child starts", || cluster.running());
    assert!(cluster.directory.lease(1).expect("asked").is_none(), "taken");
    let other = cluster.directory.lease_any().expect("asked").expect("place 0 is free");
    assert_eq!(other.place(), 0);
    assert!(cluster.directory.lease_any().expect("asked").is_none(), "both are taken");
    child.kill();
    let again = cluster.directory.lease_any().expect("asked").expect("given back by the kill");
    assert_eq!((again.place(), again.number()), (1, first + 2), "the numbers grow");
    assert!(matches!(cluster.directory.lease(2), Err(MemoryError::NoSuch { count: 2, .. })));
}

#[test]
fn a_clients_incarnation_follows_its_lease() {
    let _limit = amcast_test_policy::time_limit();
    let cluster = PairCluster::new();
    let options = |min| StartOptions { incarnation_min: min, ..StartOptions::default() };
    let lives: Vec<_> = [0, 5, 2]
        .into_iter()
        .map(|min| {
            cluster.directory.start(CHILD, &[], options(min)).expect("started").incarnation()
        })
        .collect();
    assert_eq!(lives, [0, 5, 6]);
}

#[test]
fn the_file_of_a_partner_with_a_region_here_is_mapped_before_it_is_needed() {
    let _limit = amcast_test_policy::time_limit();
    let cluster = PairCluster::new();
    let partners = vec![CHILD, PARENT];
    let options =
        StartOptions { backing: Backing::Prefaulted, partners, ..StartOptions::default() };
    let specs = [region(4, PARENT, false)];
    let mut owner = cluster.directory.start(CHILD, &specs, options.clone()).expect("started");
    let mut rounds = |other: &mut MappedCarrier| {
        (0..3).for_each(|_| assert_eq!(fresh_starts(other), 0));
        let fresh: usize = (0..3).map(|_| fresh_starts(&mut owner)).sum();
        (fresh, owner.counts().maps, other.counts().maps)
    };
    let mut writer = cluster.directory.start(PARENT, &[], options).expect("started");
    assert_eq!(rounds(&mut writer), (0, 1, 0), "only the owner has a region of the other one");
    writer.stop().expect("stopped");
    let mut writer = start(&cluster.directory, PARENT, &[]);
    assert_eq!(rounds(&mut writer), (1, 2, 0), "its next incarnation, too");
}

#[test]
fn large_sparse_regions_take_only_what_is_written() {
    let _limit = amcast_test_policy::time_limit();
    let cluster = PairCluster::new();
    let lines = (512 << 20) / 64;
    let options = StartOptions { backing: Backing::Sparse, ..StartOptions::default() };
    let specs = [region(lines, PARENT, false)];
    let owner = cluster.directory.start(CHILD, &specs, options).expect("started");
    let mut carrier = start(&cluster.directory, PARENT, &[]);
    assert_eq!(carrier.counts().maps, 0, "a peer is mapped when it is needed");
    carrier.post(&[number(CHILD, INBOX, lines - 1, 5, false)]);
    assert_eq!(read(&owner, INBOX, lines - 1), 5);
    assert_eq!(carrier.counts().maps, 1);
    use std::os::unix::fs::MetadataExt;
    let blocks = fs::metadata(cluster.path().join("p1.1")).expect("there").blocks();
    assert!(blocks * 512 < 8 << 20, "{blocks} blocks are taken");
}

//! The carrier between real processes of the operating system: this test program starts itself again
//! in a role, talks to it through shared memory, and kills it.
#![cfg(not(miri))] // the interpreter neither maps files nor starts processes

mod cleaning;
mod custody;
mod parking;
mod revocation;
mod torn;

use amcast_core::id::Pid;
use amcast_core::memory::{
    LineStamp, MemoryInput, MemoryOutput, RegionId, RegionSpec, WriteSource,
};
use amcast_core::time::Span;
use amcast_memory::{ClusterId, Directory, MappedCarrier, StartOptions};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use std::{env, process};

/// How long anything may take before a test gives up.
const PATIENCE: Duration = Duration::from_secs(60);

const PARENT: Pid = Pid(0);
const CHILD: Pid = Pid(1);

/// The variable that tells this program its role: `<role> <cluster>`.
const ROLE: &str = "AMCAST_MEMORY_TEST_ROLE";

/// A cluster of the two processes and two client places, removed in the end.
struct PairCluster {
    id: ClusterId,
    directory: Directory,
}

impl PairCluster {
    fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let id = ClusterId(0xfeed << 48 | u64::from(process::id()) << 16 | number);
        Self { id, directory: open(id) }
    }

    /// Starts this program again in a role.
    fn spawn(&self, role: &str) -> Spawned {
        let me = env::current_exe().expect("this program has a file");
        let child = Command::new(me)
            .args(["--exact", "plays_its_role_if_it_was_given_one", "--nocapture"])
            .env(ROLE, format!("{role} {}", self.id.0))
            .stdout(Stdio::null())
            .spawn();
        Spawned(child.expect("started"))
    }
}

impl Drop for PairCluster {
    fn drop(&mut self) {
        self.directory.clean().expect("cleaned");
        let removed = self.directory.remove();
        if !std::thread::panicking() {
            removed.expect("removed");
        }
    }
}

/// A child that does not outlive its test.
struct Spawned(Child);

impl Spawned {
    /// `kill -9`, and waits until it is gone.
    fn kill(&mut self) {
        self.0.kill().expect("killed");
        self.0.wait().expect("gone");
    }

    /// Whether it ended well by itself.
    fn ended_well(&mut self) -> bool {
        self.0.wait().expect("gone").success()
    }
}

impl Drop for Spawned {
    fn drop(&mut self) {
        // It may be gone already; there is nobody to tell.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn open(id: ClusterId) -> Directory {
    Directory::open(&Directory::usual_base(), id, 2, 2).expect("opened")
}

fn start(directory: &Directory, pid: Pid, specs: &[RegionSpec]) -> MappedCarrier {
    directory.start(pid, specs, StartOptions::default()).expect("started")
}

fn region(lines: u32, writer: Pid, guarded: bool) -> RegionSpec {
    RegionSpec { name: "test", lines, writer, guarded }
}

/// One line with a number in it, under a stamp of the same number.
fn number(to: Pid, region: RegionId, at: u32, value: u64, bell: bool) -> MemoryOutput {
    let source = WriteSource::line([value; 7], LineStamp(value));
    MemoryOutput::Write { to, region, at, source, ticket: None, bell }
}

/// The number in such a line; 0 before the first.
fn read(carrier: &MappedCarrier, region: RegionId, at: u32) -> u64 {
    carrier.window().region(region)[at as usize].stamp().0
}

/// One round of which only fresh starts are of interest: how many there were.
fn fresh_starts(carrier: &mut MappedCarrier) -> usize {
    let mut fresh = 0;
    carrier.begin_round();
    while let Some((_, input)) = carrier.next_input() {
        fresh += usize::from(matches!(input, MemoryInput::Fresh { .. }));
    }
    fresh
}

/// Gives the core away until something holds.
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        std::thread::yield_now();
    }
}

const LONG: Span = Span::secs(30);

/// Not a test of its own: what the children run.
#[test]
fn plays_its_role_if_it_was_given_one() {
    let _limit = amcast_test_policy::time_limit();
    let Ok(given) = env::var(ROLE) else { return };
    let killed =
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    killed.expect("a child does not outlive the test");
    let (role, id) = given.split_once(' ').expect("a role and a cluster");
    let directory = open(ClusterId(id.parse().expect("a number")));
    match role {
        "torn" => torn::writer(&directory),
        "revocation" => revocation::writer(&directory),
        "idle" => cleaning::idle(&directory),
        "tenant" => cleaning::tenant(&directory),
        "sleeper" => parking::sleeper(&directory),
        "pong" => parking::player(&directory, CHILD, PARENT),
        other => panic!("no such role: {other}"),
    }
}

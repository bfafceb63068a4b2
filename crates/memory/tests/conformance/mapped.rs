//! The carriers of this crate: all processes in one, each with a carrier of its own.

use crate::run;
use amcast_core::id::Pid;
use amcast_core::memory::{MemoryOutput, RegionWindow};
use amcast_memory::conformance::{MemoryEvent, MemoryFabric, shape};
use amcast_memory::{ClusterId, Directory, MappedCarrier, StartOptions};
use std::path::Path;

pub(crate) struct Carriers {
    directory: Directory,
    carriers: Vec<Option<MappedCarrier>>,
    /// Whether the dead are found by the supervisor before they start again.
    cleaned: bool,
}

impl Carriers {
    pub(crate) fn on_heap() -> Self {
        Self::new(Directory::heap(ClusterId(1), 3, 0).expect("made"), false)
    }

    fn new(directory: Directory, cleaned: bool) -> Self {
        let mut fabric = Self { directory, carriers: Vec::new(), cleaned };
        for pid in 0..shape().len() {
            fabric.carriers.push(None);
            fabric.start(Pid(pid as u32));
        }
        fabric
    }

    fn carrier(&mut self, pid: Pid) -> &mut MappedCarrier {
        self.carriers[pid.index()].as_mut().expect("it lives")
    }
}

impl MemoryFabric for Carriers {
    fn post(&mut self, from: Pid, outs: &[MemoryOutput]) {
        self.carrier(from).post(outs);
    }

    fn advance(&mut self) -> bool {
        false
    }

    fn heard(&mut self, by: Pid) -> Vec<MemoryEvent> {
        let carrier = self.carrier(by);
        let mut heard = Vec::new();
        carrier.begin_round();
        while let Some((_, input)) = carrier.next_input() {
            heard.extend(MemoryEvent::of(&input));
        }
        heard
    }

    fn window(&self, of: Pid) -> RegionWindow<'_> {
        self.carriers[of.index()].as_ref().expect("it lives").window()
    }

    fn crash(&mut self, pid: Pid) {
        self.carriers[pid.index()].take().expect("it lives").crash();
        if self.cleaned {
            assert_eq!(self.directory.clean().expect("cleaned"), [pid]);
        }
    }

    fn start(&mut self, pid: Pid) {
        let specs = &shape()[pid.index()];
        let started = self.directory.start(pid, specs, StartOptions::default());
        self.carriers[pid.index()] = Some(started.expect("started"));
    }

    fn stops_writes(&self) -> bool {
        // All of a post is done when it returns, and this is one thread.
        true
    }
}

impl Drop for Carriers {
    fn drop(&mut self) {
        self.carriers.clear();
        self.directory.remove().expect("nobody lives");
    }
}

#[cfg(not(miri))]
fn files(id: u64, cleaned: bool) -> Box<dyn MemoryFabric> {
    let id = ClusterId(u64::from(std::process::id()) << 16 | id);
    let base: &Path = &Directory::usual_base();
    Box::new(Carriers::new(Directory::open(base, id, 3, 0).expect("opened"), cleaned))
}

#[test]
fn carriers_on_the_heap_keep_the_laws() {
    let _limit = amcast_test_policy::time_limit();
    run("heap", &mut || Box::new(Carriers::on_heap()));
}

#[test]
#[cfg(not(miri))] // the interpreter does not map files
fn carriers_on_files_keep_the_laws() {
    let _limit = amcast_test_policy::time_limit();
    run("files", &mut || files(1, false));
}

#[test]
#[cfg(not(miri))] // the interpreter does not map files
fn carriers_on_files_keep_the_laws_when_a_supervisor_cleans_up() {
    let _limit = amcast_test_policy::time_limit();
    run("files, cleaned", &mut || files(2, true));
}

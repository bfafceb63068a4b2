//! The simulator's memory, quiet and unruly.

use crate::run;
use amcast_core::id::Pid;
use amcast_core::memory::{MemoryOutput, RegionWindow};
use amcast_core::time::{Span, Time};
use amcast_memory::conformance::{MemoryEvent, MemoryFabric, shape};
use amcast_sim::chooser::Chooser;
use amcast_sim::delay::Delay;
use amcast_sim::ram::{MemoryOccurrence, OwnedOutcome, Ram, RamModel, WriteOrder};

struct SimulatedMemory {
    ram: Ram,
    chooser: Chooser,
    now: Time,
    /// For each process what it has heard; fresh starts in it are not yet told to the memory.
    heard: Vec<Vec<MemoryEvent>>,
}

impl SimulatedMemory {
    fn new(model: RamModel, seed: u64) -> Self {
        let heard = vec![Vec::new(); shape().len()];
        let chooser = Chooser::seeded(seed);
        Self { ram: Ram::new(shape(), model), chooser, now: Time::ZERO, heard }
    }

    fn collect(&mut self) {
        while let Some(happening) = self.ram.take() {
            match happening {
                MemoryOccurrence::Changed { .. } => {}
                MemoryOccurrence::Fresh { to, of, life } => {
                    self.heard[to.index()].push(MemoryEvent::Fresh(of, life));
                }
                MemoryOccurrence::Done { to, ticket, answer } => {
                    self.heard[to.index()].push(match answer {
                        OwnedOutcome::Written => MemoryEvent::Written(ticket),
                        OwnedOutcome::Denied => MemoryEvent::Denied(ticket),
                        OwnedOutcome::Lost => MemoryEvent::Lost(ticket),
                        OwnedOutcome::Words(words) => MemoryEvent::Words(ticket, words),
                    });
                }
            }
        }
    }
}

impl MemoryFabric for SimulatedMemory {
    fn post(&mut self, from: Pid, outs: &[MemoryOutput]) {
        for out in outs {
            self.ram.post(self.now, from, out, &mut self.chooser);
        }
        self.collect();
    }

    fn advance(&mut self) -> bool {
        let next = self.ram.next();
        if next == Time::NEVER {
            return false;
        }
        self.now = self.now.max(next);
        self.ram.step(&mut self.chooser);
        self.collect();
        true
    }

    fn heard(&mut self, by: Pid) -> Vec<MemoryEvent> {
        let heard = std::mem::take(&mut self.heard[by.index()]);
        for input in &heard {
            if let MemoryEvent::Fresh(of, life) = *input {
                self.ram.take_notice(by, of, life);
            }
        }
        heard
    }

    fn window(&self, of: Pid) -> RegionWindow<'_> {
        self.ram.window(of)
    }

    fn crash(&mut self, pid: Pid) {
        self.ram.crash(pid, &mut self.chooser);
        self.collect();
        self.heard[pid.index()].clear();
    }

    fn start(&mut self, pid: Pid) {
        self.ram.start(self.now, pid, &mut self.chooser);
    }
}

#[test]
fn a_quiet_simulated_memory_keeps_the_laws() {
    let _limit = amcast_test_policy::time_limit();
    let model = RamModel::constant(Span::micros(1), Span::nanos(100), Span::nanos(10));
    run("simulated, quiet", &mut || Box::new(SimulatedMemory::new(model, 0)));
}

#[test]
fn an_unruly_simulated_memory_keeps_the_laws() {
    let _limit = amcast_test_policy::time_limit();
    let up_to = |micros| Delay::Uniform(Span::ZERO, Span::micros(micros));
    let model = RamModel {
        write: up_to(20),
        answer: up_to(20),
        read: up_to(20),
        split_ppm: 700_000,
        split: up_to(20),
        early_ppm: 300_000,
        denied_lands_ppm: 500_000,
        denied_late_ppm: 300_000,
        denied_late: up_to(100),
        fresh: up_to(50),
        order: WriteOrder::PerRegion,
        ..RamModel::constant(Span::ZERO, Span::nanos(100), Span::nanos(10))
    };
    for seed in 0..30 {
        run("simulated, unruly", &mut || Box::new(SimulatedMemory::new(model, seed)));
    }
}

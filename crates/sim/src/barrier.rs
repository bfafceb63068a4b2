//! Barriers that processes are set, and what they are held to.

use crate::chooser::{Chooser, Concern};
use crate::ledger::Breach;
use crate::process::OwnedInput;
use crate::run::RunEvent;
use crate::world::SimulatedRun;
use alloc::vec::Vec;
use amcast_core::step::Ticket;
use amcast_core::{ClusterShape, Pid, Time};

/// A process that is to be set a barrier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Barrier {
    /// When.
    pub at: Time,
    /// Which process.
    pub p: Pid,
}

/// Draws so many barriers of replicas, until `calm`.
pub(crate) fn draw(
    count: usize,
    cluster: &ClusterShape,
    calm: Time,
    chooser: &mut Chooser,
) -> Vec<Barrier> {
    let c = Concern::Barriers;
    let replicas = (cluster.processes() - cluster.clients()) as u64;
    let mut barriers: Vec<Barrier> = (0..count)
        .map(|_| {
            let at = Time(chooser.between(c, 0, calm.0));
            Barrier { at, p: Pid(chooser.pick(c, replicas) as u32) }
        })
        .collect();
    barriers.sort_by_key(|barrier| barrier.at);
    barriers
}

impl SimulatedRun<'_> {
    /// The process takes a barrier: what its group has delivered by now, it must have when it passes it.
    pub(crate) fn set_barrier(&mut self, p: Pid, ticket: Ticket) {
        let group = self.procs[p.index()].group;
        let furthest = group.map_or(0, |group| self.ledger.furthest(group));
        self.procs[p.index()].barriers.insert(ticket, furthest);
        self.tell_of(&RunEvent::Barrier(p, false));
    }

    /// The process says that it has passed a barrier.
    pub(crate) fn passed(&mut self, p: Pid, ticket: Ticket) -> Result<(), Breach> {
        let process = &mut self.procs[p.index()];
        let has = process.app.reached;
        let Some(must) = process.barriers.remove(&ticket) else {
            return Err(Breach::Application { p, why: "a barrier is passed that was not set" });
        };
        self.counts.barriers += 1;
        self.tell_of(&RunEvent::Barrier(p, true));
        let now = self.now;
        if let Some(host) = &mut self.above.host {
            // It knows what the answers to reads must show.
            host.passed(now, p, ticket);
            return Ok(());
        }
        if has < must { Err(Breach::Stale { p, has, must }) } else { Ok(()) }
    }

    /// One of the plan's barriers is due.
    pub(crate) fn barrier(&mut self, i: usize) {
        self.enqueue(self.plan.barriers[i].p, OwnedInput::Barrier(Ticket(i as u64)));
    }
}

//! The simulator's reaction to an event that a protocol reports, as any driver has to react, and the check that the
//! protocol keeps its part of the contract (`contract.rs`).

use crate::ledger::Breach;
use crate::run::RunEvent;
use crate::world::SimulatedRun;
use alloc::collections::BTreeMap;
use alloc::string::ToString;
use alloc::vec::Vec;
use amcast_core::groupcast::ViewName;
use amcast_core::trace::TraceEvent;
use amcast_core::{Gid, Pid, ProtocolEvent, Role};

/// The facts on which the reports of a group's processes must agree.
#[derive(Debug, Default)]
pub(crate) struct EventRecord {
    /// The leader of a group in an epoch.
    coordinators: BTreeMap<(Gid, u64), Pid>,
    /// The members of each view, a bit each.
    views: BTreeMap<(Gid, u64), u32>,
    /// The members of each view that come from each other one, as those report that do not.
    merged: BTreeMap<(Gid, u64, u64), u32>,
}

impl EventRecord {
    /// Checks what `p` reports against what the others of its group reported.
    fn compare(&mut self, p: Pid, group: Gid, event: ProtocolEvent) -> Result<(), &'static str> {
        match event {
            ProtocolEvent::Leads(epoch) => {
                let first = *self.coordinators.entry((group, epoch)).or_insert(p);
                if first == p { Ok(()) } else { Err("two processes of a group lead in one epoch") }
            }
            ProtocolEvent::ViewEntered { number, members, .. } => {
                let first = *self.views.entry((group, number)).or_insert(members);
                if first == members { Ok(()) } else { Err("a view has other members elsewhere") }
            }
            ProtocolEvent::Merged { view, from, members } => {
                let first = *self.merged.entry((group, view, from)).or_insert(members);
                if first == members { Ok(()) } else { Err("others come from a view elsewhere") }
            }
            _ => Ok(()),
        }
    }
}

impl SimulatedRun<'_> {
    /// A process reports something that its driver must act on.
    pub(crate) fn event(&mut self, p: Pid, event: ProtocolEvent) -> Result<(), Breach> {
        self.tell_of(&RunEvent::Reported(p, event));
        self.check_event(p, event).map_err(|why| Breach::Contract { p, why })?;
        match event {
            ProtocolEvent::Part(m) => {
                let t = self.now;
                self.emit(&TraceEvent::Part { t, p, m });
            }
            ProtocolEvent::Leads(_) => self.leads(p),
            ProtocolEvent::Lagging => self.failover.recovering(p),
            ProtocolEvent::NeedsState { position, source } => {
                self.needs_state(p, position, source)?;
            }
            ProtocolEvent::CaughtUp(_) => self.failover.recovered(p),
            ProtocolEvent::StorageRecovered => self.carriers.disk.settle(p),
            ProtocolEvent::ViewEntered { number, members, continuing } => {
                self.view(p, number, members);
                self.source_continues(p, continuing);
            }
            ProtocolEvent::Merged { .. } => self.mark("sim-merged"),
            ProtocolEvent::Excluded(_) => self.excluded(p),
            ProtocolEvent::Left(_) => self.stops(p, true),
            ProtocolEvent::MayStop(_) => self.stops(p, false),
        }
        let now = self.now;
        if let Some(host) = &mut self.above.host {
            host.event(now, p, event);
        }
        Ok(())
    }

    fn check_event(&mut self, p: Pid, event: ProtocolEvent) -> Result<(), &'static str> {
        let Role::Replica { group, rank } = self.cluster.role(p) else {
            let part = matches!(event, ProtocolEvent::Part(_));
            return if part { Ok(()) } else { Err("a client reports what only a replica may") };
        };
        let process = &mut self.procs[p.index()];
        // The host may have a state that goes further than the deliveries.
        let position = process.app.reached.max(process.app.above.in_force);
        let replicas = self.cluster.replicas();
        process.contract.report(event, usize::from(rank), replicas, position)?;
        self.reported.compare(p, group, event)
    }

    /// Checks whether a process may count as fit, or not, when its step is over.
    pub(crate) fn check_fit(&mut self, p: Pid) {
        let process = &mut self.procs[p.index()];
        if process.unposted.is_none()
            && process.alive()
            && let Err(why) = process.contract.counts_as(process.fit)
        {
            self.breach.get_or_insert(Breach::Contract { p, why });
        }
    }

    /// A process enters a view of its group.
    fn view(&mut self, p: Pid, view: u64, members: u32) {
        self.ledger.enters_view(p, view);
        let Some(group) = self.cluster.group_of(p) else { return };
        let bit = |rank: &usize| members >> rank & 1 == 1;
        let ranks = (0..self.cluster.replicas()).filter(bit);
        let members: Vec<Pid> = ranks.map(|rank| self.cluster.replica(group, rank)).collect();
        let name = match self.has_components() {
            true => ViewName::of(view).to_string(),
            false => view.to_string(),
        };
        let t = self.now;
        self.emit(&TraceEvent::View { t, p, view: &name, members: &members });
    }

    /// The group of a process continues without it: it counts as failed, and as a new process from
    /// here on, that has nothing yet.
    fn excluded(&mut self, p: Pid) {
        let t = self.now;
        self.emit(&TraceEvent::Crash { t, p });
        self.emit(&TraceEvent::Recover { t, p });
        let process = &mut self.procs[p.index()];
        process.standing += 1;
        // Its incarnation continues, and with it the counts of states that it needed.
        process.app = process.app.begun_anew();
        self.ledger.failed(p);
    }
}

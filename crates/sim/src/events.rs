//! What the simulator does at an event that a protocol reports, as any driver has to.

use crate::app::App;
use crate::run::Told;
use crate::world::World;
use alloc::string::ToString;
use alloc::vec::Vec;
use amcast_core::trace::Event;
use amcast_core::{Pid, ProtocolEvent};

impl World<'_> {
    /// A process reports something that its driver must act on.
    pub(crate) fn event(&mut self, p: Pid, event: ProtocolEvent) {
        self.tell_of(&Told::Reported(p, event));
        match event {
            ProtocolEvent::Part(m) => {
                let t = self.now;
                self.emit(&Event::Part { t, p, m });
            }
            ProtocolEvent::Leads(_) => self.leads(p),
            ProtocolEvent::Lagging => self.failover.recovering(p),
            ProtocolEvent::CaughtUp(_) => self.failover.recovered(p),
            ProtocolEvent::ViewEntered { number, members, .. } => self.view(p, number, members),
            ProtocolEvent::Excluded(_) => self.excluded(p),
            ProtocolEvent::Left(_) => self.stops(p, true),
            ProtocolEvent::MayStop(_) => self.stops(p, false),
        }
    }

    /// A process enters a view of its group.
    fn view(&mut self, p: Pid, view: u64, members: u32) {
        self.ledger.enters_view(p);
        let Some(group) = self.cluster.group_of(p) else { return };
        let bit = |rank: &usize| members >> rank & 1 == 1;
        let ranks = (0..self.cluster.replicas()).filter(bit);
        let members: Vec<Pid> = ranks.map(|rank| self.cluster.replica(group, rank)).collect();
        let (t, name) = (self.now, view.to_string());
        self.emit(&Event::View { t, p, view: &name, members: &members });
    }

    /// The group of a process goes on without it: it counts as failed, and as a new process from
    /// here on, that has nothing yet.
    fn excluded(&mut self, p: Pid) {
        let t = self.now;
        self.emit(&Event::Crash { t, p });
        self.emit(&Event::Recover { t, p });
        let process = &mut self.procs[p.index()];
        process.standing += 1;
        // Its incarnation goes on, and with it the count of the states that it was given.
        let installs = process.app.installs;
        process.app = App::default();
        process.app.installs = installs;
        self.ledger.failed(p);
    }
}

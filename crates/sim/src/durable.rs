//! Processes that keep a log: what they write, how they die, and how they start again from it. The
//! application of a process that ever wrote anything takes checkpoints.

use crate::app::{App, DeliveredMessage};
use crate::chooser::Concern;
use crate::process::OwnedInput;
use crate::run::RunEvent;
use crate::world::{HarnessTimer, SimulatedRun};
use alloc::vec::Vec;
use amcast_core::step::{PayloadRange, Ticket};
use amcast_core::{Durability, Gid, Medium, Outbox, Pid, Span};

/// The end of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ProcessEnd {
    /// Nothing else: its log is as it was written.
    Process,
    /// Its machine: of the records that are not durable so many are lost; drawn if none.
    Machine {
        /// How many.
        lost: Option<u64>,
    },
}

impl SimulatedRun<'_> {
    /// Writes a record. A process whose disk is full stops there, and comes back when there is room.
    pub(crate) fn persist<M: Medium>(
        &mut self,
        p: Pid,
        outbox: &Outbox<M>,
        ticket: Ticket,
        record: PayloadRange,
        awaited: bool,
    ) {
        let first = !self.carriers.disk.used(p);
        let record = outbox.bytes(record);
        if !self.carriers.disk.persist(self.now, p, ticket, record, awaited, &mut self.chooser) {
            self.refused = true;
            self.mark("sim-disk-full");
            self.tell_of(&RunEvent::Full(p));
            return;
        }
        self.tell_of(&RunEvent::Record(p, record, awaited));
        if first && !self.has_host() {
            self.checkpoint_later(p);
        }
    }

    /// The reaction of a process that has no room for a record.
    pub(crate) fn stop_if_refused(&mut self, p: Pid) -> bool {
        let refused = core::mem::take(&mut self.refused);
        if refused {
            let full = self.carriers.disk.full_until(p).since(self.now);
            self.end_for(p, ProcessEnd::Process, Some(full));
        }
        refused
    }

    /// A process dies alone, or, if it has a log, perhaps with its machine.
    pub(crate) fn draw_end(&mut self, p: Pid) -> ProcessEnd {
        let ppm = self.plan.model.disk.machine_ppm;
        let has_log = self.node_of(p).into_iter().any(|q| self.carriers.disk.used(q));
        if has_log && self.chooser.chance(Concern::Disk, ppm) {
            self.at_most(p, ProcessEnd::Machine { lost: None })
        } else {
            ProcessEnd::Process
        }
    }

    /// How a process dies that was to die like this: what awaits no disk must not lose what the others
    /// do not know.
    pub(crate) fn at_most(&self, p: Pid, end: ProcessEnd) -> ProcessEnd {
        let spared = self.entry.capabilities().durability == Durability::Written
            && !self.node_of(p).into_iter().all(|q| self.may_forget(q));
        if spared { ProcessEnd::Process } else { end }
    }

    /// The effect of a process's end on its log.
    pub(crate) fn end_log(&mut self, p: Pid, end: ProcessEnd) {
        match end {
            ProcessEnd::Process => self.carriers.disk.stop(p),
            ProcessEnd::Machine { lost } => {
                self.procs[p.index()].intact = false;
                let lost = self.carriers.disk.fail(p, lost, &mut self.chooser);
                if self.carriers.disk.used(p) {
                    self.mark("sim-machine-fails");
                    self.counts.machines.push((self.now, p, lost));
                    self.tell_of(&RunEvent::Torn(p, lost));
                }
            }
        }
    }

    /// Whether the others of its group, without those that are gone or lost what they had, are a
    /// majority, which knows all that `p` has on its disk.
    pub(crate) fn may_forget(&self, p: Pid) -> bool {
        let process = &self.procs[p.index()];
        process.group.is_some_and(|group| !process.gone && self.keepers(group, p))
    }

    fn keepers(&self, group: Gid, besides: Pid) -> bool {
        let others = self.cluster.members(group).filter(|&q| q != besides);
        others.filter(|&q| self.remembers(q)).count() >= self.cluster.quorum()
    }

    /// Whether a process knows what it knew, or will when it starts again.
    fn remembers(&self, p: Pid) -> bool {
        let process = &self.procs[p.index()];
        // A protocol that awaits no disk knows more than is durable.
        let whole = match self.entry.capabilities().durability {
            Durability::Synced => true,
            _ if process.alive() => process.fit,
            _ => process.intact,
        };
        whole && !process.gone && process.owes.is_none()
    }

    /// The disk of a process that is dead is replaced by an empty one.
    pub(crate) fn replace(&mut self, p: Pid) {
        if !self.carriers.disk.used(p) {
            return;
        }
        self.owes(p);
        let process = &mut self.procs[p.index()];
        process.intact = false;
        process.checkpoint.clear();
        self.carriers.disk.replace(p);
        self.mark("sim-disk-replaced");
        self.tell_of(&RunEvent::Replaced(p));
    }

    /// A record of a process cannot be read any more.
    pub(crate) fn damage(&mut self, p: Pid, ppm: u64) {
        if let Some(number) = self.carriers.disk.damage(p, ppm) {
            self.owes(p);
            self.procs[p.index()].intact = false;
            self.mark("sim-record-damaged");
            self.tell_of(&RunEvent::Damaged(p, number));
        }
    }

    /// The checkpoint of a process is lost.
    pub(crate) fn loses_state(&mut self, p: Pid) {
        self.owes(p);
        self.procs[p.index()].intact = false;
    }

    /// Of what a process had something is lost: it counts as lost until the process has as much again.
    fn owes(&mut self, p: Pid) {
        let owes = self.ledger.delivered(p);
        self.procs[p.index()].owes = Some(owes);
    }

    /// How long a process is dead that was to be so for `down`: as long, but of each group a
    /// majority comes back, be it at the end of all faults. A process that lost its disk does not count before
    /// it has kept again as much as it had.
    pub(crate) fn down(&mut self, p: Pid, down: Option<Span>) -> Option<Span> {
        let group = self.procs[p.index()].group;
        if let (None, Some(group), true) =
            (down, group, self.entry.capabilities().durability.has_log())
            && !self.keepers(group, p)
        {
            return Some(self.plan.calm.since(self.now));
        }
        self.procs[p.index()].gone = down.is_none();
        down
    }

    /// A process starts, for the first time or again from what it has on its disk.
    pub(crate) fn open(&mut self, p: Pid) {
        let damaged = self.carriers.disk.is_damaged(p);
        let inputs =
            self.carriers.disk.open(p).map(|(n, record)| OwnedInput::Stored(n, record.to_vec()));
        let mut inputs: Vec<OwnedInput> = inputs.collect();
        if damaged {
            self.mark("sim-log-cut");
        }
        if self.carriers.disk.torn(p) {
            inputs.push(OwnedInput::Torn);
        }
        if self.carriers.disk.lost(p) {
            inputs.push(OwnedInput::Lost);
        }
        let has_log = self.entry.capabilities().durability.has_log();
        let process = &mut self.procs[p.index()];
        process.app = App::resumed(&process.checkpoint);
        // A life without a log begins with nothing, and its protocol reports the state that it needs.
        process.app.is_lost = process.life > 0 && !has_log;
        inputs.push(OwnedInput::Start(process.life));
        let position = match self.has_host() {
            true => self.resume_above(p),
            false => self.procs[p.index()].app.position(),
        };
        if position > 0 {
            let installed = OwnedInput::Installed { position, needs: 0 };
            inputs.extend([installed, OwnedInput::Checkpointed(position)]);
        }
        // Nothing comes between them.
        inputs.into_iter().for_each(|input| self.procs[p.index()].put(input));
        self.pump(p);
    }

    pub(crate) fn mark(&mut self, name: &'static str) {
        *self.counts.marks.entry(name).or_default() += 1;
    }

    /// The application takes its next checkpoint some time.
    pub(crate) fn checkpoint_later(&mut self, p: Pid) {
        if let Some(period) = self.plan.model.checkpoint {
            let at = self.now + period.draw(&mut self.chooser, Concern::Disk);
            self.queue.push(at, HarnessTimer::Checkpoint(p));
        }
    }

    /// The application keeps what it has applied; it is durable some time later.
    pub(crate) fn checkpoint(&mut self, p: Pid) {
        let process = &self.procs[p.index()];
        if self.has_host()
            || !process.alive()
            || !self.carriers.disk.used(p)
            || process.app.gap.is_some()
        {
            return;
        }
        let items = process.app.log[..process.app.applied_count()].to_vec();
        let at = self.now + self.plan.model.save.draw(&mut self.chooser, Concern::Disk);
        self.queue.push(at, HarnessTimer::Checkpointed(p, process.life, items));
    }

    /// A checkpoint is durable, unless the process died meanwhile or has a newer one.
    pub(crate) fn checkpointed(&mut self, p: Pid, life: u32, items: Vec<DeliveredMessage>) {
        let process = &mut self.procs[p.index()];
        let position = |items: &[DeliveredMessage]| items.last().map_or(0, |item| item.position);
        let reached = position(&items);
        if process.life == life && reached > position(&process.checkpoint) {
            let whole = process.fit && !self.carriers.disk.is_damaged(p);
            process.owes = process.owes.filter(|&owed| !whole || items.len() < owed);
            process.checkpoint = items;
            self.mark("sim-checkpoint");
            self.tell_of(&RunEvent::Checkpoint(p, reached));
            self.enqueue(p, OwnedInput::Checkpointed(reached));
        }
    }
}

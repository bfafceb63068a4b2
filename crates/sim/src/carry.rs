//! A step of a process: the input goes in, and what comes out is carried to where it belongs.

use crate::app::DeliveredMessage;
use crate::chooser::Concern;
use crate::hash::HashableMedium;
use crate::ledger::Breach;
use crate::process::{OwnedInput, PendingOutputs};
use crate::run::RunEvent;
use crate::world::{HarnessTimer, OutboxBuffer, SimulatedRun};
use alloc::rc::Rc;
use amcast_core::memory::{self, Memory, RegionWindow};
use amcast_core::messages::{self, Frames, Lane};
use amcast_core::trace::TraceEvent;
use amcast_core::{
    Delivery, EarlyDelivery, Input, Medium, Outbox, Output, Overlay, Pid, ProtocolProcess, Span,
    Submission,
};
use core::mem;

impl SimulatedRun<'_> {
    /// A process learns that its application has a state in force.
    fn note_installed(&mut self, p: Pid, position: u64, needs: u64) {
        let has_host = self.has_host();
        let process = &mut self.procs[p.index()];
        // The report may be of a state that the application lost since, when its process was excluded.
        if has_host || !process.app.is_lost {
            process.app.above.in_force = process.app.above.in_force.max(position);
        }
        process.contract.installed(needs);
    }

    /// Notes what a process learns by this input, for those that judge it.
    fn note_input(&mut self, p: Pid, input: &OwnedInput) {
        match input {
            OwnedInput::Fresh(of, life) => self.carriers.ram.take_notice(p, *of, *life),
            OwnedInput::Barrier(ticket) => self.set_barrier(p, *ticket),
            OwnedInput::Leave => self.procs[p.index()].contract.asked_to_leave(),
            OwnedInput::Start(_) => self.procs[p.index()].contract.started(),
            OwnedInput::Unfit => self.procs[p.index()].contract.told_unfit(),
            OwnedInput::Installed { position, needs } => {
                self.note_installed(p, *position, *needs);
            }
            _ => {}
        }
    }

    /// One step of a process that lives.
    pub(crate) fn step(&mut self, p: Pid, input: OwnedInput) {
        let now = self.now;
        self.trace.hash.input(now, p, &input);
        self.counts.steps += 1;
        self.above.is_due |= self.has_host();
        self.note_input(p, &input);
        let process = &mut self.procs[p.index()];
        let model = &self.plan.model;
        process.free_at = now
            + match input {
                OwnedInput::Done(..) => model.completion,
                _ => model.step,
            };
        let local = process.clock(now);
        let seq = process.casts;
        let Some(mut node) = process.node.take() else { return };
        if let OwnedInput::Done(_, answer) = &input {
            self.tell_of_failure(p, answer.outcome());
        }
        let submission = match input {
            OwnedInput::Submit(cast) => Some(Submission {
                seq,
                dst: self.plan.casts[cast].dst,
                payload: &self.buffers.scratch,
            }),
            _ => None,
        };
        match &mut node {
            ProtocolProcess::Messages(node) => {
                let input = frames_input(&input, submission)
                    .expect("a carrier speaks only to processes of its medium");
                self.buffers.frames.outbox.clear();
                node.step(local, (), input, &mut self.buffers.frames.outbox);
                self.buffers.frames.outbox.take(&mut self.buffers.frames.items);
            }
            ProtocolProcess::Memory(node, _) => {
                let input = memory_input(&input, submission)
                    .expect("a carrier speaks only to processes of its medium");
                self.buffers.memory.outbox.clear();
                let midst = self.carriers.ram.midst(now, p, &mut self.chooser);
                if let Some(midst) = midst {
                    let shared = self.carriers.ram.shared(p, &midst);
                    node.step(local, RegionWindow(&shared), input, &mut self.buffers.memory.outbox);
                    self.carriers.ram.after_midst(p, midst);
                } else {
                    node.step(
                        local,
                        self.carriers.ram.window(p),
                        input,
                        &mut self.buffers.memory.outbox,
                    );
                }
                self.buffers.memory.outbox.take(&mut self.buffers.memory.items);
            }
        }
        let memory = matches!(node, ProtocolProcess::Memory(..));
        let process = &mut self.procs[p.index()];
        process.node = Some(node);
        if memory {
            self.carry_memory(p)
        } else {
            self.carry_frames(p)
        }
        self.notice_fit(p);
    }

    /// A process that paused among the outputs of its last step carries out the rest.
    pub(crate) fn resume(&mut self, p: Pid, rest: PendingOutputs) {
        self.above.is_due |= self.has_host();
        match rest {
            PendingOutputs::Messages(tray) => {
                self.buffers.frames = tray;
                self.carry_frames(p);
            }
            PendingOutputs::Memory(tray) => {
                self.buffers.memory = tray;
                self.carry_memory(p);
            }
        }
        self.notice_fit(p);
    }

    fn tell_of_failure(&mut self, p: Pid, outcome: memory::AccessOutcome<'_>) {
        match outcome {
            memory::AccessOutcome::Denied => self.tell_of(&RunEvent::Failed(p, "denied")),
            memory::AccessOutcome::Lost => self.tell_of(&RunEvent::Failed(p, "lost")),
            memory::AccessOutcome::Written | memory::AccessOutcome::Words(_) => {}
        }
    }

    fn carry_frames(&mut self, p: Pid) {
        let mut tray = mem::take(&mut self.buffers.frames);
        let upto = self.outputs_before_stop(p, tray.items.len());
        for output in tray.items.drain(..upto) {
            if self.refused {
                break;
            }
            if let Some(out) = self.carry(p, &tray.outbox, output) {
                let (messages::MessageOutput::To(_, lane, frame)
                | messages::MessageOutput::Group(_, lane, frame)) = out;
                let bytes: Rc<[u8]> = Rc::from(tray.outbox.bytes(frame));
                self.tell_of(&RunEvent::Message(p, &out, &bytes));
                self.counts.messages += self.copies(p, &out);
                let now = self.now;
                let network = &mut self.carriers.network;
                let chooser = &mut self.chooser;
                match out {
                    messages::MessageOutput::To(to, ..) => {
                        network.send(now, p, to, lane, &bytes, chooser);
                    }
                    messages::MessageOutput::Group(g, Lane::Datagram, _) => {
                        network.multicast(now, p, self.cluster.members(g), &bytes, chooser);
                    }
                    messages::MessageOutput::Group(g, Lane::Stream, _) => {
                        for to in self.cluster.members(g) {
                            network.send(now, p, to, lane, &bytes, chooser);
                        }
                    }
                }
            }
        }
        if let Some(backlog) = self.carriers.network.take_crowded(p) {
            self.procs[p.index()].put(OwnedInput::Backlog(backlog));
        }
        if tray.items.is_empty() {
            self.buffers.frames = tray;
        } else {
            self.procs[p.index()].unposted = Some(PendingOutputs::Messages(tray));
        }
        self.die_if_doomed(p);
    }

    /// How many messages an output puts on the wire.
    fn copies<T>(&self, p: Pid, out: &messages::MessageOutput<T>) -> u64 {
        match *out {
            messages::MessageOutput::To(to, ..) => u64::from(to != p),
            messages::MessageOutput::Group(_, Lane::Datagram, _) => 1,
            messages::MessageOutput::Group(g, Lane::Stream, _) => {
                self.cluster.members(g).filter(|&to| to != p).count() as u64
            }
        }
    }

    fn carry_memory(&mut self, p: Pid) {
        let mut tray: OutboxBuffer<Memory> = mem::take(&mut self.buffers.memory);
        self.charge_parts(p, &tray.items);
        let upto = self.outputs_before_stop(p, tray.items.len());
        for output in tray.items.drain(..upto) {
            if self.refused {
                break;
            }
            if let Some(out) = self.carry(p, &tray.outbox, output) {
                self.tell_of(&RunEvent::Memory(p, &out));
                self.carriers.ram.post(self.now, p, &out, &mut self.chooser);
            }
        }
        if tray.items.is_empty() {
            self.buffers.memory = tray;
        } else {
            self.procs[p.index()].unposted = Some(PendingOutputs::Memory(tray));
        }
        let busy = self.carriers.ram.busy_until(p);
        let process = &mut self.procs[p.index()];
        process.free_at = process.free_at.max(busy);
        self.die_if_doomed(p);
    }

    /// A step's work for its messages takes time; what it asks for is posted at its end.
    fn charge_parts(&mut self, p: Pid, items: &[Output<Memory>]) {
        let each = self.plan.model.part;
        let process = &mut self.procs[p.index()];
        if each > Span::ZERO {
            let is_part = |item: &&Output<Memory>| {
                matches!(item, Output::Event(amcast_core::ProtocolEvent::Part(_)))
            };
            let parts = items.iter().filter(is_part).count() as u64;
            process.free_at = process.free_at.max(self.now) + each.times(parts);
        }
        if process.free_at > self.now {
            self.carriers.ram.occupy(p, process.free_at);
        }
    }

    /// How many outputs are carried out: all, unless the process dies or pauses among them.
    fn outputs_before_stop(&mut self, p: Pid, outputs: usize) -> usize {
        if outputs == 0 {
            return 0;
        }
        if self.dies_now(p) {
            return self.chooser.pick(Concern::Faults, outputs as u64) as usize;
        }
        let Some(span) = self.procs[p.index()].pauses.take() else { return outputs };
        if self.now >= self.plan.calm {
            return outputs;
        }
        self.pause(p, span);
        self.mark("sim-paused-in-a-step");
        self.chooser.pick(Concern::Silences, outputs as u64) as usize
    }

    fn die_if_doomed(&mut self, p: Pid) {
        if !self.stop_if_refused(p)
            && self.dies_now(p)
            && let Some(down) = self.procs[p.index()].doomed
        {
            self.crash_for(p, down);
        }
    }

    /// Carries out what any protocol may ask; gives back what is the medium's.
    fn carry<M: Medium>(&mut self, p: Pid, outbox: &Outbox<M>, output: Output<M>) -> Option<M::Out>
    where
        M::Out: HashableMedium<M>,
    {
        self.trace.hash.output(&output, outbox);
        match output {
            Output::Medium(out) => return Some(out),
            Output::Deliver(delivery) => {
                let result = self.deliver(p, &delivery, outbox.bytes(delivery.payload));
                self.note_breach(result);
            }
            Output::Early(early) => {
                let result = self.deliver_early(p, &early, outbox.bytes(early.payload));
                self.note_breach(result);
            }
            Output::Persist { ticket, record, awaited } => {
                self.persist(p, outbox, ticket, record, awaited);
            }
            Output::Load { ticket, number } => {
                let record = self.carriers.disk.load(p, number).map(<[u8]>::to_vec);
                self.later(p, OwnedInput::Loaded(ticket, record));
            }
            Output::Trim { before } => self.carriers.disk.trim(p, before, &mut self.chooser),
            Output::Passed { ticket } => {
                let result = self.passed(p, ticket);
                self.note_breach(result);
            }
            Output::Overlay(tree) => {
                let result = self.takes_part_along(p, outbox.bytes(tree));
                self.note_breach(result);
            }
            Output::Event(event) => {
                let result = self.event(p, event);
                self.note_breach(result);
            }
            Output::Note(note) => self.note(p, note),
        }
        None
    }

    pub(crate) fn note_breach(&mut self, result: Result<(), Breach>) {
        if let Err(breach) = result {
            self.breach.get_or_insert(breach);
        }
    }

    fn takes_part_along(&mut self, p: Pid, tree: &[u8]) -> Result<(), Breach> {
        let tree = Overlay::of_bytes(tree, self.cluster.groups());
        let tree = tree.map_err(|_| Breach::Contract { p, why: "it takes part along no tree" })?;
        let t = self.now;
        self.emit(&TraceEvent::Overlay { t, p, tree: &tree });
        Ok(())
    }

    fn deliver_early(&mut self, p: Pid, early: &EarlyDelivery, bytes: &[u8]) -> Result<(), Breach> {
        let process = &mut self.procs[p.index()];
        let may = process.contract.deliver().and_then(|()| process.app.early.early(early.msg));
        may.map_err(|why| Breach::Contract { p, why })?;
        self.ledger.check(p, early.msg, early.dst, bytes)?;
        let (t, m) = (self.now, early.msg);
        self.emit(&TraceEvent::Early { t, p, m });
        if let Some(host) = &mut self.above.host {
            host.early(t, p, m, bytes);
        }
        Ok(())
    }

    fn deliver(&mut self, p: Pid, delivery: &Delivery, bytes: &[u8]) -> Result<(), Breach> {
        let m = delivery.msg;
        let may = self.procs[p.index()].contract.deliver();
        may.map_err(|why| Breach::Contract { p, why })?;
        let payload = self.ledger.check(p, m, delivery.dst, bytes)?;
        self.skip_what_is_in_force(p, delivery.position);
        let item = DeliveredMessage { msg: m, position: delivery.position, payload };
        let app = &mut self.procs[p.index()].app;
        let before = app.reached;
        if item.position <= before {
            return Err(Breach::Position { p, m, before, given: item.position });
        }
        app.reached = item.position;
        app.early.delivered(m);
        if app.gap.is_some() {
            // The state that it needs comes first.
            app.waiting.push(item);
            self.apply_later(p);
            return Ok(());
        }
        self.take_delivered(p, item)?;
        let now = self.now;
        match &mut self.above.host {
            Some(host) => host.deliver(now, p, *delivery, bytes),
            None => self.apply_later(p),
        }
        Ok(())
    }

    /// The next item of what the process has delivered in this life.
    pub(crate) fn add(&mut self, p: Pid, item: DeliveredMessage) -> Result<(), Breach> {
        let app = &mut self.procs[p.index()].app;
        let place = app.place();
        app.log.push(item);
        self.enter(p, place, item)
    }

    /// Enters an item of the process's sequence into the ledger.
    pub(crate) fn enter(
        &mut self,
        p: Pid,
        place: usize,
        item: DeliveredMessage,
    ) -> Result<(), Breach> {
        let process = &mut self.procs[p.index()];
        // With a host, an earlier state may hold later deliveries already.
        let entered = process.app.above.entered;
        process.app.above.entered = entered.max(place + 1);
        let is_first = self.above.host.is_none() || place >= entered;
        if self.ledger.enter(self.now, p, process.group, place, &item)? && is_first {
            let (t, m) = (self.now, item.msg);
            self.emit(&TraceEvent::Deliver { t, p, m });
            self.release_closed(m);
        }
        Ok(())
    }

    /// In a closed loop a delivery may release its sender.
    fn release_closed(&mut self, m: amcast_core::MsgId) {
        if self.ledger.reached(m) && !self.procs[m.sender.index()].backlog.is_empty() {
            self.queue.push(self.now, HarnessTimer::Go(m.sender));
        }
    }

    /// A process continues from `position`: the host gets the state.
    pub(crate) fn needs_state_above(&mut self, p: Pid, position: u64) -> Result<(), Breach> {
        let why = "a client needs a state";
        let group = self.procs[p.index()].group.ok_or(Breach::Application { p, why })?;
        let deliveries = self.enter_state(p, group, position);
        let app = &mut self.procs[p.index()].app;
        app.go_on_from(position, deliveries);
        app.applied = app.applied.max(position);
        Ok(())
    }

    /// The application answers after a while.
    fn later(&mut self, p: Pid, input: OwnedInput) {
        let at = self.now + self.plan.model.capture.draw(&mut self.chooser, Concern::Schedule);
        let life = self.procs[p.index()].life;
        self.queue.push(at, HarnessTimer::Input(p, life, input));
    }

    pub(crate) fn apply_later(&mut self, p: Pid) {
        let app = &mut self.procs[p.index()].app;
        if app.applying || app.may_apply() <= app.applied {
            return;
        }
        app.applying = true;
        let at = self.now + self.plan.model.apply.draw(&mut self.chooser, Concern::Schedule);
        let life = self.procs[p.index()].life;
        self.queue.push(at, HarnessTimer::Apply(p, life));
    }

    /// The application has applied what was delivered, as far as nothing holds it back.
    pub(crate) fn apply(&mut self, p: Pid, life: u32) {
        let process = &mut self.procs[p.index()];
        if process.life != life {
            return;
        }
        if process.hung_until > self.now {
            return self.queue.push(process.hung_until, HarnessTimer::Apply(p, life));
        }
        let app = &mut process.app;
        app.applying = false;
        let position = app.may_apply();
        if position > app.applied {
            app.applied = position;
            self.enqueue(p, OwnedInput::Applied(position));
        }
    }

    /// Records whether the process is caught up after its step.
    fn notice_fit(&mut self, p: Pid) {
        self.take_over(p);
        let process = &mut self.procs[p.index()];
        let fit = match &process.node {
            Some(ProtocolProcess::Messages(node)) => node.fit(),
            Some(ProtocolProcess::Memory(node, _)) => node.fit(),
            None => false,
        };
        if fit != process.fit {
            process.fit = fit;
            self.elect(p);
        }
        self.check_fit(p);
    }
}

fn frames_input<'a>(
    input: &'a OwnedInput,
    submission: Option<Submission<'a>>,
) -> Option<Input<'a, Frames>> {
    Some(match input {
        OwnedInput::Submit(_) => Input::Submit(submission?),
        OwnedInput::From(from, _, bytes) => {
            Input::Medium(messages::MessageInput::From(*from, &**bytes))
        }
        OwnedInput::Up(of) => Input::Medium(messages::MessageInput::Up(*of)),
        OwnedInput::Down(of) => Input::Medium(messages::MessageInput::Down(*of)),
        OwnedInput::Backlog(of) => Input::Medium(messages::MessageInput::Backlog(*of)),
        other => return other.plain(),
    })
}

fn memory_input<'a>(
    input: &'a OwnedInput,
    submission: Option<Submission<'a>>,
) -> Option<Input<'a, Memory>> {
    Some(match input {
        OwnedInput::Submit(_) => Input::Submit(submission?),
        OwnedInput::Poll => Input::Medium(memory::MemoryInput::Poll),
        OwnedInput::Done(ticket, answer) => {
            Input::Medium(memory::MemoryInput::Done(*ticket, answer.outcome()))
        }
        OwnedInput::Fresh(pid, incarnation) => {
            Input::Medium(memory::MemoryInput::Fresh { pid: *pid, incarnation: *incarnation })
        }
        other => return other.plain(),
    })
}

//! A driver: one process of a memory protocol at its carrier, stepped by the loop that owns it.
//!
//! A loop owns one driver (a gateway) or several (a node with a replica of every shard). The driver
//! has the duties of every driver: it carries outputs out in order, all of them before the next
//! input. Outputs that do not concern the medium go up to the loop's [`UpperLayer`].

use crate::driver_core::{DriverCore, MediumDriver};
use amcast_core::memory::{Memory, MemoryInput, MemoryOutput, RegionWindow};
use amcast_core::step::{Note, Oracle, Ticket};
use amcast_core::{
    ClusterShape, Delivery, EarlyDelivery, Input, Outbox, Output, Overlay, Pid, Protocol,
    ProtocolEvent, Submission, Time,
};
use amcast_memory::{Directory, Doorbell, MappedCarrier, MemoryError, StartOptions};

/// The layer above a driver: its loop.
pub trait UpperLayer {
    /// The process `p` delivers these next, in this order, each with its payload: nothing follows from it, and
    /// not all deliveries are shown.
    fn look_ahead(&mut self, _p: Pid, _deliveries: &mut dyn Iterator<Item = (Delivery, &[u8])>) {}
    /// The process `p` delivered.
    fn deliver(&mut self, now: Time, p: Pid, delivery: Delivery, payload: &[u8]);
    /// The process `p` delivered early, as the application wants.
    fn early(&mut self, _p: Pid, _early: EarlyDelivery, _payload: &[u8]) {}
    /// The process `p` has passed the barrier of this ticket. Only who sets barriers hears of any.
    fn passed(&mut self, _now: Time, _p: Pid, _ticket: Ticket) {}
    /// The process `p` takes part along this tree from here on: its [bytes](Overlay::bytes).
    fn takes_part_along(&mut self, _now: Time, _p: Pid, _tree: &[u8]) {}
    /// The process `p` reports something that the loop must act on: [`ProtocolEvent`] says how.
    fn event(&mut self, now: Time, p: Pid, event: ProtocolEvent);
    /// The process `p` leaves a remark, which is at most logged.
    fn note(&mut self, _now: Time, _p: Pid, _note: Note) {}
}

impl MediumDriver<Memory> for MappedCarrier {
    fn view(&self) -> RegionWindow<'_> {
        self.window()
    }

    fn carry(&mut self, outbox: &Outbox<Memory>) {
        self.post(outbox.items().iter().filter_map(|item| match item {
            Output::Medium(out) => Some::<&MemoryOutput>(out),
            _ => None,
        }));
    }
}

/// One process of a memory protocol, and its carrier. Nothing of it survives the process: a memory
/// protocol has what it must remember in the memory of its peers. One that asks for a record to be
/// [persisted](Output::Persist) ends the process with a panic that says so.
pub struct MemoryDriver {
    dues: DriverCore<Memory>,
    carrier: MappedCarrier,
    /// How many processes the protocol has.
    processes: usize,
}

impl MemoryDriver {
    /// Starts the process `pid`: a new incarnation with zeroed regions, and the protocol's first
    /// step. `bell` is the doorbell of the loop, if another driver has it already.
    ///
    /// # Errors
    /// When its memory cannot be set aside, or the process runs already.
    pub fn start(
        directory: &Directory,
        cluster: &ClusterShape,
        pid: Pid,
        node: amcast_core::ProtocolProcess,
        bell: Option<Doorbell>,
        tracing: bool,
    ) -> Result<Self, MemoryDriverError> {
        let options = StartOptions { bell, ..StartOptions::default() };
        Self::start_with((directory, options), cluster, pid, node, tracing)
    }

    /// As [`MemoryDriver::start`], with other options of its memory: where each page must be there before it is used.
    ///
    /// # Errors
    /// The same.
    pub fn start_with(
        (directory, options): (&Directory, StartOptions),
        cluster: &ClusterShape,
        pid: Pid,
        node: amcast_core::ProtocolProcess,
        tracing: bool,
    ) -> Result<Self, MemoryDriverError> {
        let amcast_core::ProtocolProcess::Memory(protocol, regions) = node else {
            return Err(MemoryDriverError::Medium);
        };
        let mut options = options;
        if cluster.group_of(pid).is_some() {
            // A replica that leads writes to replicas that it has written nothing before.
            options.partners = cluster.pids().filter(|&p| cluster.group_of(p).is_some()).collect();
        }
        let carrier = directory.start(pid, &regions, options).map_err(MemoryDriverError::Memory)?;
        let dues = DriverCore::new(pid, protocol, tracing);
        Ok(Self { dues, carrier, processes: cluster.processes() })
    }

    /// Gives the protocol its first input. Once, before any other step.
    pub fn begin(&mut self, now: Time, above: &mut dyn UpperLayer) {
        let incarnation = self.incarnation();
        self.step(now, Input::Start { incarnation }, above);
    }

    /// Which process it is.
    pub fn pid(&self) -> Pid {
        self.carrier.pid()
    }

    /// Which life of the process this is: 0 for the first.
    pub fn incarnation(&self) -> u32 {
        self.carrier.incarnation()
    }

    /// The protocol, to ask for its status and room.
    pub fn protocol(&self) -> &dyn Protocol<Medium = Memory> {
        self.dues.protocol()
    }

    /// The doorbell of the loop.
    pub fn bell(&self) -> &Doorbell {
        self.carrier.bell()
    }

    /// Whether it has inputs that no doorbell will announce.
    pub fn is_pressing(&self, now: Time) -> bool {
        self.carrier.has_answers() || self.deadline().is_some_and(|t| t <= now)
    }

    /// When it must be stepped again at the latest.
    pub fn deadline(&self) -> Option<Time> {
        self.dues.deadline()
    }

    /// One round: the medium's input, and the deadline if it is due. Returns whether there was
    /// anything to do.
    pub fn round(&mut self, now: Time, above: &mut dyn UpperLayer) -> bool {
        let mut busy = self.carrier.has_answers();
        self.carrier.begin_round();
        while let Some((window, input)) = self.carrier.next_input() {
            // Mailboxes and offices share the memory and are none of the protocol's processes.
            if matches!(input, MemoryInput::Fresh { pid, .. } if pid.index() >= self.processes) {
                continue;
            }
            let poll = matches!(input, MemoryInput::Poll);
            let (protocol, outbox) = self.dues.parts();
            protocol.step(now, window, Input::Medium(input), outbox);
            busy |= !poll || !outbox.items().is_empty();
            self.dues.carry_out(now, &mut self.carrier, above);
        }
        if self.deadline().is_some_and(|t| t <= now) {
            self.step(now, Input::Wake, above);
            busy = true;
        }
        if let Some(fault) = self.carrier.take_fault() {
            tracing::error!("{:?}: {fault}", self.pid());
        }
        busy
    }

    /// Multicasts. The caller has asked for room.
    pub fn submit(&mut self, now: Time, submission: Submission<'_>, above: &mut dyn UpperLayer) {
        self.step(now, Input::Submit(submission), above);
    }

    /// Asks a client's process for another tree of the groups, which becomes a message to all of them.
    pub fn change_overlay(&mut self, now: Time, to: &Overlay, above: &mut dyn UpperLayer) {
        self.step(now, Input::Overlay(to), above);
    }

    /// Tells the protocol that the application has applied everything up to `position`.
    pub fn applied(&mut self, now: Time, position: u64, above: &mut dyn UpperLayer) {
        self.dues.applied(now, &mut self.carrier, position, above);
    }

    /// Tells the protocol that the application has a state in force with everything up to
    /// `position`.
    pub fn installed(&mut self, now: Time, position: u64, above: &mut dyn UpperLayer) {
        let needs = self.dues.needs();
        self.step(now, Input::Installed { position, needs }, above);
    }

    /// Informs the protocol that the application needs a state, for a reason in another group.
    pub fn unfit(&mut self, now: Time, above: &mut dyn UpperLayer) {
        self.step(now, Input::Unfit, above);
    }

    /// Gives the protocol the verdict of an oracle outside of it: who leads a group, or who is suspected.
    pub fn consult(&mut self, now: Time, verdict: Oracle, above: &mut dyn UpperLayer) {
        self.step(now, Input::Oracle(verdict), above);
    }

    fn step(&mut self, now: Time, input: Input<'_, Memory>, above: &mut dyn UpperLayer) {
        self.dues.step(now, &mut self.carrier, input, above);
    }
}

/// Why a process did not start.
#[derive(Debug)]
pub enum MemoryDriverError {
    /// The protocol talks through another medium.
    Medium,
    /// The shared memory refused.
    Memory(MemoryError),
}

impl std::fmt::Display for MemoryDriverError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Medium => f.write_str(
                "the protocol talks through another medium than the cluster was made for: one over \
                 shared memory cannot be run on the network, nor the other way round",
            ),
            Self::Memory(e) => e.fmt(f),
        }
    }
}

impl std::error::Error for MemoryDriverError {}

#[cfg(test)]
mod tests {
    use super::*;
    use amcast_core::step::{ProtocolStatus, Ticket, WaitReason, WakeReason};
    use amcast_core::{GroupSet, MsgId};
    use amcast_memory::ClusterId;

    /// Wants an empty record kept before anything else.
    struct PersistFirst;

    impl Protocol for PersistFirst {
        type Medium = Memory;

        fn step(
            &mut self,
            _: Time,
            _: RegionWindow<'_>,
            input: Input<'_, Memory>,
            out: &mut Outbox<Memory>,
        ) {
            assert!(!matches!(input, Input::Durable(_)), "nothing is durable here");
            let record = out.fill(|_| {});
            out.push(Output::Persist { ticket: Ticket(1), record, awaited: true });
        }

        fn deadline(&self) -> Option<(Time, WakeReason)> {
            None
        }

        fn room(&self, _: GroupSet, _: usize) -> usize {
            0
        }

        fn payload_max(&self) -> usize {
            0
        }

        fn waiting(&self, _: &mut dyn FnMut(MsgId, WaitReason)) {}

        fn status(&self) -> ProtocolStatus {
            ProtocolStatus::default()
        }
    }

    struct NoUpperLayer;

    impl UpperLayer for NoUpperLayer {
        fn deliver(&mut self, _: Time, _: Pid, _: Delivery, _: &[u8]) {}
        fn event(&mut self, _: Time, _: Pid, _: ProtocolEvent) {}
    }

    #[test]
    #[should_panic(expected = "its process has no log")]
    fn a_protocol_that_persists_is_not_told_that_its_records_are_durable() {
        let cluster = ClusterShape::new(1, 1, 1).unwrap();
        let directory = Directory::heap(ClusterId(1), 2, 1).unwrap();
        let node = amcast_core::ProtocolProcess::Memory(Box::new(PersistFirst), Vec::new());
        let seat = MemoryDriver::start(&directory, &cluster, Pid(0), node, None, false);
        seat.unwrap().begin(Time(1), &mut NoUpperLayer);
    }
}

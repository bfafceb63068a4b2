//! The part of a driver that does not depend on its protocol's medium: outputs carried out in
//! order, and answers of the application and of the log.

use crate::memory_driver::UpperLayer;
use crate::replica_log::ReplicaLog;
use amcast_core::step::{Medium, Ticket, WakeReason};
use amcast_core::{
    Delivery, EarlyDelivery, Input, Outbox, Output, Pid, Protocol, ProtocolEvent, Time,
};
use std::collections::VecDeque;

/// Why a protocol that persists records without having a log ends its process.
const NO_LOG: &str = "this protocol wants a record kept on disk, and its process has no log: \
                      protocols over shared memory have none, nor do those with storage in memory";

/// The reason why nothing that a log holds back can be in front of a tree.
const NO_TREE: &str = "only a protocol that keeps no log has a tree of groups that can be changed";

/// Deliveries that the layer above is shown at a time before the first of them.
const LOOK_AHEAD: usize = 16;

/// An output that waits until the records that the process persisted before it survive its end.
struct LateOutput {
    behind: u64,
    what: DriverEvent,
}

/// An event for the layer above, in its turn.
enum DriverEvent {
    Delivery(Delivery, Box<[u8]>),
    Early(EarlyDelivery, Box<[u8]>),
    Passed(Ticket),
    Event(ProtocolEvent),
}

impl DriverEvent {
    fn tell(self, now: Time, p: Pid, above: &mut dyn UpperLayer) {
        match self {
            Self::Delivery(delivery, payload) => above.deliver(now, p, delivery, &payload),
            Self::Early(early, payload) => above.early(p, early, &payload),
            Self::Passed(ticket) => above.passed(now, p, ticket),
            Self::Event(event) => above.event(now, p, event),
        }
    }
}

/// The reports about the application's state between a protocol and the layer above.
#[derive(Default)]
struct StateReports {
    /// The position up to which the protocol knows that everything is applied.
    applied: u64,
    /// How many states the protocol needed, as far as the layer above learned it.
    needs: u64,
}

impl StateReports {
    /// Notes whether the layer above learns now which state the process needs: later reports of a
    /// state answer that.
    fn note(&mut self, event: ProtocolEvent) {
        if let ProtocolEvent::NeedsState { position, .. } = event {
            self.needs += 1;
            self.applied = self.applied.max(position);
        }
    }
}

/// A protocol of one process, and its log. One that asks for a record to be
/// [persisted](Output::Persist) and has no log ends the process with a panic that says so.
pub(crate) struct DriverCore<M: Medium> {
    pid: Pid,
    protocol: Box<dyn Protocol<Medium = M> + Send>,
    outbox: Outbox<M>,
    known: StateReports,
    journal: Option<ReplicaLog>,
    late: VecDeque<LateOutput>,
}

/// Carries out a protocol's requests to its medium, and lends it a view of the medium.
pub(crate) trait MediumDriver<M: Medium> {
    /// The view that a protocol is lent with each input.
    fn view(&self) -> M::View<'_>;

    /// Carries out what the protocol asked, in order. The bytes are in the outbox.
    fn carry(&mut self, outbox: &Outbox<M>);

    /// Later requests wait until the process's log has handed all records before this number to the
    /// operating system.
    fn wait_for(&mut self, _record: u64) {}
}

impl<M: Medium> DriverCore<M> {
    /// Of the process `pid`, which is `protocol`. With `tracing` it says in what it takes part.
    pub(crate) fn new(
        pid: Pid,
        protocol: Box<dyn Protocol<Medium = M> + Send>,
        tracing: bool,
    ) -> Self {
        Self {
            pid,
            protocol,
            outbox: Outbox::new(tracing),
            known: StateReports::default(),
            journal: None,
            late: VecDeque::new(),
        }
    }

    /// It delivers early, if it can.
    pub(crate) fn want_early(&mut self) {
        self.outbox.want_early();
    }

    /// Its persisted records go to this log from now on.
    pub(crate) fn keep(&mut self, journal: ReplicaLog) {
        self.journal = Some(journal);
    }

    /// How many states the protocol needed, as far as the layer above learned it.
    pub(crate) const fn needs(&self) -> u64 {
        self.known.needs
    }

    /// The log, if it has one.
    pub(crate) fn journal(&self) -> Option<&ReplicaLog> {
        self.journal.as_ref()
    }

    /// Hands over to the disk what was persisted.
    pub(crate) fn submit_records(&mut self) {
        if let Some(journal) = &mut self.journal {
            journal.submit();
        }
    }

    /// Tells what the log has done, and gives out what waited for it. Whether there was anything.
    pub(crate) fn hear_journal(
        &mut self,
        now: Time,
        carrier: &mut impl MediumDriver<M>,
        above: &mut dyn UpperLayer,
    ) -> bool {
        let mut any = false;
        while let Some(kept) = self.journal.as_mut().and_then(ReplicaLog::take) {
            self.step(now, carrier, kept.input(), above);
            any = true;
        }
        let written = self.journal.as_ref().map_or(u64::MAX, ReplicaLog::written);
        while self.late.front().is_some_and(|late| late.behind <= written) {
            let Some(LateOutput { what, .. }) = self.late.pop_front() else { break };
            if let DriverEvent::Event(event) = what {
                self.known.note(event);
            }
            what.tell(now, self.pid, above);
            any = true;
        }
        any
    }

    /// The protocol, to ask it.
    pub(crate) fn protocol(&self) -> &dyn Protocol<Medium = M> {
        &*self.protocol
    }

    /// When it must be stepped again at the latest.
    pub(crate) fn deadline(&self) -> Option<Time> {
        self.protocol.deadline().map(|(t, _): (Time, WakeReason)| t)
    }

    /// Gives an input, and carries out all that follows from it.
    pub(crate) fn step(
        &mut self,
        now: Time,
        carrier: &mut impl MediumDriver<M>,
        input: Input<'_, M>,
        above: &mut dyn UpperLayer,
    ) {
        self.protocol.step(now, carrier.view(), input, &mut self.outbox);
        self.carry_out(now, carrier, above);
    }

    /// For what the medium says: the carrier lends it, so the protocol takes it from outside. Then
    /// comes [`DriverCore::carry_out`].
    pub(crate) fn parts(&mut self) -> (&mut dyn Protocol<Medium = M>, &mut Outbox<M>) {
        (&mut *self.protocol, &mut self.outbox)
    }

    /// Tells the protocol that the application has applied everything up to `position`.
    pub(crate) fn applied(
        &mut self,
        now: Time,
        carrier: &mut impl MediumDriver<M>,
        position: u64,
        above: &mut dyn UpperLayer,
    ) {
        if position > self.known.applied {
            self.known.applied = position;
            self.step(now, carrier, Input::Applied(position), above);
        }
    }

    /// Hands the outputs to the log and to the medium. Returns the number before which records must be with the operating
    /// system when later outputs leave, and the number before which they are.
    fn hand_to_log_and_medium(&mut self, carrier: &mut impl MediumDriver<M>) -> (u64, u64) {
        let (mut behind, mut written) = (0, 0);
        if let Some(journal) = &mut self.journal {
            journal.carry(&self.outbox);
            (behind, written) = (journal.behind(), journal.written());
            carrier.wait_for(behind);
        }
        if self.outbox.asks() > 0 {
            carrier.carry(&self.outbox);
        }
        (behind, written)
    }

    /// Shows the layer above some deliveries from this output on; the number of the output behind them.
    fn show_next(&self, from: usize, above: &mut dyn UpperLayer) -> usize {
        let outputs = (from..).zip(&self.outbox.items()[from..]);
        let mut behind = from;
        let mut deliveries = outputs.filter_map(|(at, output)| match output {
            Output::Deliver(d) => Some((at, *d, self.outbox.bytes(d.payload))),
            _ => None,
        });
        let mut next = deliveries.by_ref().take(LOOK_AHEAD).map(|(at, delivery, payload)| {
            behind = at + 1;
            (delivery, payload)
        });
        above.look_ahead(self.pid, &mut next);
        behind.max(from + 1)
    }

    /// Carries out what a step asked for: most often nothing.
    #[inline]
    pub(crate) fn carry_out(
        &mut self,
        now: Time,
        carrier: &mut impl MediumDriver<M>,
        above: &mut dyn UpperLayer,
    ) {
        if !self.outbox.items().is_empty() {
            self.carry_out_all(now, carrier, above);
        }
        self.outbox.clear();
    }

    #[inline(never)]
    fn carry_out_all(
        &mut self,
        now: Time,
        carrier: &mut impl MediumDriver<M>,
        above: &mut dyn UpperLayer,
    ) {
        let (behind, written) = self.hand_to_log_and_medium(carrier);
        if self.outbox.asks() == self.outbox.items().len() {
            return;
        }
        let mut shown = 0;
        // Looked at where they lie: most are the medium's, and done with.
        for (at, item) in self.outbox.items().iter().enumerate() {
            match item {
                Output::Medium(_) => {}
                Output::Deliver(d) if behind > written || !self.late.is_empty() => {
                    let what = DriverEvent::Delivery(*d, self.outbox.bytes(d.payload).into());
                    self.late.push_back(LateOutput { behind, what });
                }
                Output::Deliver(d) => {
                    if at >= shown {
                        shown = self.show_next(at, above);
                    }
                    above.deliver(now, self.pid, *d, self.outbox.bytes(d.payload));
                }
                Output::Early(d) if behind > written || !self.late.is_empty() => {
                    let what = DriverEvent::Early(*d, self.outbox.bytes(d.payload).into());
                    self.late.push_back(LateOutput { behind, what });
                }
                Output::Early(d) => above.early(self.pid, *d, self.outbox.bytes(d.payload)),
                Output::Passed { ticket } if behind > written || !self.late.is_empty() => {
                    self.late.push_back(LateOutput { behind, what: DriverEvent::Passed(*ticket) });
                }
                Output::Passed { ticket } => above.passed(now, self.pid, *ticket),
                Output::Overlay(tree) => {
                    assert!(self.late.is_empty(), "{:?}: {NO_TREE}", self.pid);
                    above.takes_part_along(now, self.pid, self.outbox.bytes(*tree));
                }
                // An event is about what is in front of it.
                Output::Event(event) if !self.late.is_empty() => {
                    self.late.push_back(LateOutput { behind, what: DriverEvent::Event(*event) });
                }
                Output::Event(event) => {
                    self.known.note(*event);
                    above.event(now, self.pid, *event);
                }
                Output::Note(note) => above.note(now, self.pid, *note),
                Output::Persist { .. } | Output::Load { .. } | Output::Trim { .. } => {
                    // To answer that it is durable would be a lie, and not to answer would be to hang.
                    assert!(self.journal.is_some(), "{:?}: {NO_LOG}", self.pid);
                }
            }
        }
    }
}

//! The part of a driver that does not depend on its protocol's medium: outputs carried out in
//! order, answers of the application and of the log, and `Applied` as far as no capture holds it
//! back.

use crate::memory_driver::{CapturedState, UpperLayer};
use crate::replica_log::ReplicaLog;
use amcast_core::step::{Medium, Ticket, WakeReason};
use amcast_core::{Delivery, Input, Outbox, Output, Pid, Protocol, ProtocolEvent, Time};
use std::collections::VecDeque;

/// An answer that the protocol is owed, given after the step that asked for it.
enum OwedInput {
    Captured(Ticket, CapturedState),
    Piece(Ticket, u64, Vec<u8>),
}

/// Why a protocol that persists records without having a log ends its process.
const NO_LOG: &str = "this protocol wants a record kept on disk, and its process has no log: \
                      protocols over shared memory have none, nor do those with storage in memory";

/// An output that waits until the records that the process persisted before it survive its end.
struct LateOutput {
    behind: u64,
    what: DriverEvent,
}

/// An event for the layer above, in its turn.
enum DriverEvent {
    Delivery(Delivery, Box<[u8]>),
    Passed(Ticket),
    Event(ProtocolEvent),
}

impl DriverEvent {
    fn tell(self, now: Time, p: Pid, above: &mut dyn UpperLayer) {
        match self {
            Self::Delivery(delivery, payload) => above.deliver(now, p, delivery, &payload),
            Self::Passed(ticket) => above.passed(now, p, ticket),
            Self::Event(event) => above.event(now, p, event),
        }
    }
}

/// A protocol of one process, and what it is owed. One that asks for a record to be
/// [persisted](Output::Persist) and has no log ends the process with a panic that says so.
pub(crate) struct DriverCore<M: Medium> {
    pid: Pid,
    protocol: Box<dyn Protocol<Medium = M> + Send>,
    outbox: Outbox<M>,
    owed: VecDeque<OwedInput>,
    /// Captures that are out, with their positions: `Applied` is held back beyond the lowest.
    captures: Vec<(Ticket, u64)>,
    applied: u64,
    /// How many states the application was given whole.
    installs: u64,
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
            owed: VecDeque::new(),
            captures: Vec::new(),
            applied: 0,
            installs: 0,
            journal: None,
            late: VecDeque::new(),
        }
    }

    /// Its persisted records go to this log from now on.
    pub(crate) fn keep(&mut self, journal: ReplicaLog) {
        self.journal = Some(journal);
    }

    /// How many states the application was given whole.
    pub(crate) const fn installs(&self) -> u64 {
        self.installs
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
            self.note_need(&what);
            what.tell(now, self.pid, above);
            any = true;
        }
        any
    }

    /// Notes that the layer above learns now which state the process needs: later reports of a
    /// state answer that.
    fn note_need(&mut self, news: &DriverEvent) {
        if let DriverEvent::Event(ProtocolEvent::NeedsState { position, .. }) = news {
            self.installs += 1;
            self.applied = self.applied.max(*position);
        }
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

    /// Tells the protocol that the application has applied everything up to `position`, unless a
    /// capture holds this back.
    pub(crate) fn applied(
        &mut self,
        now: Time,
        carrier: &mut impl MediumDriver<M>,
        position: u64,
        above: &mut dyn UpperLayer,
    ) {
        let held = self.captures.iter().map(|&(_, position)| position).min().unwrap_or(u64::MAX);
        let position = position.min(held);
        if position > self.applied {
            self.applied = position;
            self.step(now, carrier, Input::Applied(position), above);
        }
    }

    /// Carries out what a step asked for; then gives the protocol what it is owed for that, which
    /// may ask for more.
    pub(crate) fn carry_out(
        &mut self,
        now: Time,
        carrier: &mut impl MediumDriver<M>,
        above: &mut dyn UpperLayer,
    ) {
        self.carry_out_once(now, carrier, above);
        while let Some(owed) = self.owed.pop_front() {
            let input = match &owed {
                OwedInput::Captured(ticket, CapturedState { position, bytes }) => {
                    Input::Captured { ticket: *ticket, position: *position, bytes: *bytes }
                }
                OwedInput::Piece(ticket, offset, bytes) => {
                    Input::Piece { ticket: *ticket, offset: *offset, bytes }
                }
            };
            self.protocol.step(now, carrier.view(), input, &mut self.outbox);
            self.carry_out_once(now, carrier, above);
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
        carrier.carry(&self.outbox);
        (behind, written)
    }

    fn carry_out_once(
        &mut self,
        now: Time,
        carrier: &mut impl MediumDriver<M>,
        above: &mut dyn UpperLayer,
    ) {
        if self.outbox.items().is_empty() {
            self.outbox.clear();
            return;
        }
        let (behind, written) = self.hand_to_log_and_medium(carrier);
        // Looked at where they lie: most are the medium's, and done with.
        for item in self.outbox.items() {
            match item {
                Output::Medium(_) => {}
                Output::Deliver(d) if behind > written || !self.late.is_empty() => {
                    let what = DriverEvent::Delivery(*d, self.outbox.bytes(d.payload).into());
                    self.late.push_back(LateOutput { behind, what });
                }
                Output::Deliver(d) => {
                    above.deliver(now, self.pid, *d, self.outbox.bytes(d.payload));
                }
                Output::Passed { ticket } if behind > written || !self.late.is_empty() => {
                    self.late.push_back(LateOutput { behind, what: DriverEvent::Passed(*ticket) });
                }
                Output::Passed { ticket } => above.passed(now, self.pid, *ticket),
                // An event is about what is in front of it.
                Output::Event(event) if !self.late.is_empty() => {
                    self.late.push_back(LateOutput { behind, what: DriverEvent::Event(*event) });
                }
                Output::Event(event) => {
                    if let ProtocolEvent::NeedsState { position, .. } = event {
                        self.installs += 1;
                        self.applied = self.applied.max(*position);
                    }
                    above.event(now, self.pid, *event);
                }
                Output::Note(note) => above.note(now, self.pid, *note),
                Output::Capture { ticket, reader } => {
                    let captured = above.capture(self.pid, *reader);
                    self.captures.push((*ticket, captured.position));
                    self.owed.push_back(OwedInput::Captured(*ticket, captured));
                }
                Output::Piece { ticket, offset, bytes } => {
                    let mut piece = Vec::with_capacity(*bytes as usize);
                    above.piece(self.pid, *offset, *bytes, &mut piece);
                    self.owed.push_back(OwedInput::Piece(*ticket, *offset, piece));
                }
                Output::Release { ticket } => self.captures.retain(|(t, _)| t != ticket),
                Output::Install { piece, first: _, last, position } => {
                    let bytes = self.outbox.bytes(*piece);
                    // The held outputs are behind them.
                    for LateOutput { what, .. } in self.late.drain(..) {
                        what.tell(now, self.pid, above);
                    }
                    above.install(now, self.pid, *position, bytes, *last);
                    if *last {
                        self.installs += 1;
                        self.applied = self.applied.max(*position);
                    }
                }
                Output::Persist { .. } | Output::Load { .. } | Output::Trim { .. } => {
                    // To answer that it is durable would be a lie, and not to answer would be to hang.
                    assert!(self.journal.is_some(), "{:?}: {NO_LOG}", self.pid);
                }
            }
        }
        self.outbox.clear();
    }
}

//! The transfer of the application's state to a process that needs one, from the application of another process
//! of its group: where there is no host, which transfers the state of its own.
//!
//! The protocol says which state it needs ([`ProtocolEvent::NeedsState`](amcast_core::ProtocolEvent::NeedsState)),
//! and continues. Its later deliveries wait for the state:
//!
//! ```text
//! needs a state --> asks a process that has it --> pieces come --> is put in force, then what waits behind it
//!                     ^          ^   several at a time |  |            |
//!                     |          '---------------------'  |            |
//!                     |           connection broken: resumes at its offset
//!                     '-----------------------------------+------------'
//!                       the source died or let the state go; the state is too old by now, or not believed
//! ```

use crate::app::DeliveredMessage;
use crate::chooser::Concern;
use crate::ledger::Breach;
use crate::process::OwnedInput;
use crate::world::{HarnessTimer, SimulatedRun};
use alloc::vec::Vec;
use amcast_core::{MsgId, Pid, Role, Span, StateSource};

/// Pieces on their way at a time, at most.
const WINDOW: u32 = 3;

/// Deliveries in a piece, but for large states.
const PIECE_ITEMS: usize = 4;

/// Pieces of a state, at most.
const PIECES_MAX: usize = 12;

/// After how long a process that found no source asks again.
const ASK_AGAIN: Span = Span::micros(50);

/// How often a state comes slowly, of a million times.
const SLOW_PPM: u64 = 400_000;

/// How long a piece of a state takes that comes as slowly as any.
const SLOWEST_PIECE: Span = Span::millis(3);

/// How often the connection breaks at a piece, of a million times, while there are faults.
const BREAKS_PPM: u64 = 30_000;

/// How often the source has let the state go when its reader is back, of a million times.
const LETS_GO_PPM: u64 = 250_000;

/// The missing part of the application's state.
#[derive(Debug)]
pub(crate) struct StateGap {
    /// The position that a state must have reached.
    pub position: u64,
    source: StateSource,
    /// The one that comes.
    transfer: Option<StateTransfer>,
}

/// A state on its way.
#[derive(Debug)]
struct StateTransfer {
    /// Its number among those of the process.
    attempt: u64,
    from: Pid,
    /// The life of that process.
    life: u32,
    /// It was a continuing member of all views since it was asked.
    is_steady: bool,
    /// The state, as it was when it was asked for.
    items: Vec<DeliveredMessage>,
    pieces: u32,
    /// How long each takes at least.
    pace: Span,
    /// Pieces that were sent, and that are here.
    sent: u32,
    got: u32,
    /// How often its connection broke.
    breaks: u32,
    /// All of it is here, and ready to be put in force.
    is_ready: bool,
}

/// An event that is due in the transfer of a state, of this life of the process and of this attempt.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TransferStep {
    pub p: Pid,
    life: u32,
    attempt: u64,
    what: TransferDue,
}

/// The kind of event.
#[derive(Clone, Copy, Debug)]
enum TransferDue {
    /// A source is asked.
    Ask,
    /// A piece is here that was sent after so many breaks.
    Piece(u32),
    /// The connection is there again.
    Resume,
    /// The state is ready.
    Ready,
    /// The process learns that it has a state in force which answers the first so many needs.
    InForce(u64),
}

impl StateTransfer {
    fn position(&self) -> u64 {
        self.items.last().map_or(0, |item| item.position)
    }
}

impl SimulatedRun<'_> {
    /// A process continues from `position`, and its application needs a state that holds all up to there.
    pub(crate) fn needs_state(
        &mut self,
        p: Pid,
        position: u64,
        source: StateSource,
    ) -> Result<(), Breach> {
        let app = &mut self.procs[p.index()].app;
        let before = app.reached;
        if position < before {
            let m = app.log.last().map_or(MsgId { sender: p, seq: 0 }, |item| item.msg);
            return Err(Breach::Position { p, m, before, given: position });
        }
        (app.reached, app.needs) = (position, app.needs + 1);
        if self.has_host() {
            return self.needs_state_above(p, position);
        }
        // All of these are in the state that comes.
        let app = &mut self.procs[p.index()].app;
        app.waiting.clear();
        if let Some(gap) = &mut app.gap {
            // The state in flight may be good enough.
            (gap.position, gap.source) = (position, source);
            return Ok(());
        }
        if app.position() >= position && !app.is_lost {
            // Its state went further than it knew.
            let needs = app.needs;
            self.transfer_later(p, Span::ZERO, TransferDue::InForce(needs));
            return Ok(());
        }
        app.gap = Some(StateGap { position, source, transfer: None });
        self.ask_anew(p, Span::ZERO);
        Ok(())
    }

    /// The process entered a view into which these members continue, a bit each.
    pub(crate) fn source_continues(&mut self, p: Pid, continuing: u32) {
        let gap = self.procs[p.index()].app.gap.as_mut();
        let Some(transfer) = gap.and_then(|gap| gap.transfer.as_mut()) else { return };
        if let Role::Replica { rank, .. } = self.cluster.role(transfer.from) {
            transfer.is_steady &= continuing >> rank & 1 == 1;
        }
    }

    fn transfer_later(&mut self, p: Pid, least: Span, what: TransferDue) {
        let delay = self.plan.model.capture.draw(&mut self.chooser, Concern::Schedule);
        let process = &self.procs[p.index()];
        let (life, attempt) = (process.life, process.app.attempts);
        let step = TransferStep { p, life, attempt, what };
        self.queue.push(self.now + least + delay, HarnessTimer::Transfer(step));
    }

    /// Asks another source, or the same one for a new state; what came is of no use.
    fn ask_anew(&mut self, p: Pid, after: Span) {
        let app = &mut self.procs[p.index()].app;
        app.attempts += 1;
        if let Some(gap) = &mut app.gap {
            gap.transfer = None;
            self.transfer_later(p, after, TransferDue::Ask);
        }
    }

    /// The next step of a transfer.
    pub(crate) fn transfer(&mut self, step: TransferStep) {
        let TransferStep { p, life, attempt, what } = step;
        let process = &self.procs[p.index()];
        if process.life != life || process.app.attempts != attempt {
            return;
        }
        match what {
            TransferDue::Ask => self.ask_for_state(p),
            TransferDue::Piece(breaks) => self.piece_came(p, breaks),
            TransferDue::Resume => self.resume_transfer(p),
            TransferDue::Ready => {
                if let Some(transfer) = self.transfer_of(p) {
                    transfer.is_ready = true;
                }
                self.take_over(p);
            }
            TransferDue::InForce(needs) => {
                let app = &self.procs[p.index()].app;
                if app.gap.is_none() && app.needs == needs {
                    let position = app.position();
                    self.enqueue(p, OwnedInput::Installed { position, needs });
                }
            }
        }
    }

    fn transfer_of(&mut self, p: Pid) -> Option<&mut StateTransfer> {
        self.procs[p.index()].app.gap.as_mut()?.transfer.as_mut()
    }

    /// Whether `q` has a state in force that is good for a process which needs this one.
    fn has_state(&self, q: Pid, (position, source): (u64, StateSource)) -> bool {
        let process = &self.procs[q.index()];
        let is_in = match source {
            StateSource::Replicas => true,
            StateSource::View(_) => process.contract.in_view().is_some(),
        };
        let app = &process.app;
        let has = app.gap.is_none() && !app.is_lost && app.position() >= position;
        is_in && process.alive() && has
    }

    fn ask_for_state(&mut self, p: Pid) {
        let process = &self.procs[p.index()];
        let (Some(gap), Some(group)) = (&process.app.gap, process.group) else { return };
        let (position, source) = (gap.position, gap.source);
        let view = process.contract.in_view();
        let gives = |q: &Pid| {
            let same_view = self.procs[q.index()].contract.in_view() == view;
            *q != p && same_view && self.has_state(*q, (position, source))
        };
        let sources: Vec<Pid> = self.cluster.members(group).filter(gives).collect();
        if sources.is_empty() {
            return self.transfer_later(p, ASK_AGAIN, TransferDue::Ask);
        }
        let from = sources[self.chooser.pick(Concern::Schedule, sources.len() as u64) as usize];
        let app = &self.procs[from.index()].app;
        let least = app.log.partition_point(|item| item.position < position);
        let least = if position > 0 { least + 1 } else { 0 }.max(app.applied_count());
        let count = self.chooser.between(Concern::Schedule, least as u64, app.log.len() as u64);
        let items = self.procs[from.index()].app.log[..count as usize].to_vec();
        let pieces = (items.len().div_ceil(PIECE_ITEMS)).clamp(1, PIECES_MAX) as u32;
        let life = self.procs[from.index()].life;
        let mut pace = Span::ZERO;
        if self.chooser.chance(Concern::Schedule, SLOW_PPM) {
            // Large, or over a slow network.
            pace = Span(self.chooser.between(Concern::Schedule, 0, SLOWEST_PIECE.0));
        }
        let app = &mut self.procs[p.index()].app;
        let attempt = app.attempts;
        let Some(gap) = &mut app.gap else { return };
        gap.transfer = Some(StateTransfer {
            attempt,
            from,
            life,
            is_steady: true,
            items,
            pieces,
            pace,
            sent: 0,
            got: 0,
            breaks: 0,
            is_ready: false,
        });
        self.send_pieces(p);
    }

    /// The source sends on, as far as its window is open.
    fn send_pieces(&mut self, p: Pid) {
        while let Some(transfer) = self.transfer_of(p)
            && transfer.sent < transfer.pieces.min(transfer.got + WINDOW)
        {
            transfer.sent += 1;
            let (breaks, pace) = (transfer.breaks, transfer.pace);
            self.transfer_later(p, pace, TransferDue::Piece(breaks));
        }
    }

    /// The one that gives the state is dead: what came of the state is of no use.
    fn source_is_dead(&mut self, p: Pid) -> bool {
        let Some(&mut StateTransfer { from, life, .. }) = self.transfer_of(p) else { return true };
        let process = &self.procs[from.index()];
        let is_dead = !process.alive() || process.life != life;
        if is_dead {
            self.mark("sim-state-source-lost");
            self.ask_anew(p, Span::ZERO);
        }
        is_dead
    }

    fn piece_came(&mut self, p: Pid, sent_after: u32) {
        if self.transfer_of(p).is_none_or(|transfer| transfer.breaks != sent_after)
            || self.source_is_dead(p)
        {
            return;
        }
        let has_faults = self.now < self.plan.calm;
        if has_faults && self.chooser.chance(Concern::Network, BREAKS_PPM) {
            if let Some(transfer) = self.transfer_of(p) {
                // The pieces in flight are lost.
                (transfer.breaks, transfer.sent) = (transfer.breaks + 1, transfer.got);
                self.transfer_later(p, ASK_AGAIN, TransferDue::Resume);
            }
            return;
        }
        let Some(transfer) = self.transfer_of(p) else { return };
        transfer.got += 1;
        if transfer.got < transfer.pieces {
            return self.send_pieces(p);
        }
        let install = self.plan.model.install.draw(&mut self.chooser, Concern::Schedule);
        self.transfer_later(p, install, TransferDue::Ready);
    }

    /// The reader is back: the transfer continues where it was, if its source still has it.
    fn resume_transfer(&mut self, p: Pid) {
        if self.source_is_dead(p) {
            return;
        }
        if self.chooser.chance(Concern::Network, LETS_GO_PPM) {
            self.mark("sim-state-let-go");
            return self.ask_anew(p, Span::ZERO);
        }
        self.mark("sim-state-resumed");
        self.send_pieces(p);
    }

    /// Puts the state in force that a process has here, if that is possible now.
    pub(crate) fn take_over(&mut self, p: Pid) {
        let app = &mut self.procs[p.index()].app;
        let reached = app.reached;
        let Some(StateGap { position: needed, source, transfer }) = &mut app.gap else { return };
        let Some(state) = transfer.as_ref().filter(|transfer| transfer.is_ready) else { return };
        if state.position() < *needed {
            self.mark("sim-state-too-old");
            return self.ask_anew(p, Span::ZERO);
        }
        if matches!(source, StateSource::View(_)) {
            if !state.is_steady {
                self.mark("sim-state-not-believed");
                return self.ask_anew(p, Span::ZERO);
            }
            if state.position() > reached {
                // The process comes as far, if it continues.
                return;
            }
        }
        debug_assert!(state.attempt == app.attempts);
        let items = transfer.take().map_or(Vec::new(), |transfer| transfer.items);
        let result = self.put_in_force(p, items);
        self.note_breach(result);
    }

    fn put_in_force(&mut self, p: Pid, items: Vec<DeliveredMessage>) -> Result<(), Breach> {
        let app = &mut self.procs[p.index()].app;
        let waiting = core::mem::take(&mut app.waiting);
        app.log.clear();
        (app.gap, app.is_lost) = (None, false);
        let upto = items.last().map_or(0, |item| item.position);
        for item in items {
            self.ledger.check_item(p, &item)?;
            self.add(p, item)?;
        }
        for item in waiting {
            self.take_delivered(p, item)?;
        }
        let app = &mut self.procs[p.index()].app;
        app.applied = app.applied.max(upto);
        let (position, needs) = (app.position(), app.needs);
        self.enqueue(p, OwnedInput::Installed { position, needs });
        self.apply_later(p);
        Ok(())
    }

    /// Takes what a process delivered, whose application has a state in force: what is in that is dropped.
    pub(crate) fn take_delivered(&mut self, p: Pid, item: DeliveredMessage) -> Result<(), Breach> {
        let app = &self.procs[p.index()].app;
        if self.has_host() || item.position > app.position() {
            return self.add(p, item);
        }
        let at = app.log.binary_search_by_key(&item.position, |has| has.position);
        if at.is_ok_and(|at| app.log[at] == item) {
            return Ok(());
        }
        let why = "a state holds something else up to its position than what was delivered";
        Err(Breach::Application { p, why })
    }
}

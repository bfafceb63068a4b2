//! State transfers between simulated nodes: pieces on connections that break, streams that are resumed for a while, as
//! those of real nodes are (`state_stream.rs` of the crate `amcast-node`), and room for what is delivered meanwhile.

use super::node::{CutReceiver, SimNode};
use super::{SimulatedService, time::MILLISECOND};
use amcast_core::rng::Rng;
use amcast_core::{Span, Time};
use amcast_smr::application::Application;
use amcast_smr::recovery::WantedState;

/// How states travel in a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct TransferPace {
    /// The smallest and the largest piece, in bytes.
    pub(super) piece_bytes: (u64, u64),
    /// How often a connection breaks while a piece is on its way, in a million pieces.
    pub(super) breaks_ppm: u64,
    /// How long a node holds what it gave for a node whose connection broke, or that died.
    pub(super) holds: Span,
    /// Bytes that were sent and are kept for that.
    pub(super) kept_bytes: usize,
    /// Bytes of deliveries that wait at a node without its state before its replicas are not told of any more.
    pub(super) inbox_bytes: Option<usize>,
}

impl TransferPace {
    /// PartedCommand pieces on connections that do not break.
    const ORDINARY: Self = Self {
        piece_bytes: (200, 3_200),
        breaks_ppm: 0,
        holds: Span(20 * MILLISECOND.0),
        kept_bytes: 16_384,
        inbox_bytes: None,
    };

    /// That of a run: of half of the runs the ordinary one.
    pub(super) fn draw(rng: &mut Rng) -> Self {
        if rng.below(2) == 0 {
            return Self::ORDINARY;
        }
        let mut of = |all: [u64; 3]| all[rng.below(3) as usize];
        let least = of([20, 60, 200]);
        Self {
            piece_bytes: (least, 4 * least),
            breaks_ppm: of([0, 50_000, 250_000]),
            holds: Span(of([2, 20, 100]) * MILLISECOND.0),
            kept_bytes: of([64, 512, 16_384]) as usize,
            inbox_bytes: Some(of([100, 1_000, 1 << 28]) as usize),
        }
    }

    /// Lets no connection break from now on. The transfer of a state in many small pieces has no end otherwise.
    pub(super) const fn end_faults(&mut self) {
        self.breaks_ppm = 0;
    }

    fn piece(&self, rng: &mut Rng) -> usize {
        let (least, most) = self.piece_bytes;
        (least + rng.below(most - least)) as usize
    }
}

/// A node, in one of its lives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Incarnation {
    pub(super) rank: usize,
    pub(super) number: u32,
}

/// A state that comes from another node.
pub(super) struct IncomingState {
    pub(super) wanted: WantedState,
    pub(super) sources: Vec<usize>,
    /// Which of them is asked.
    pub(super) at: usize,
    /// The incarnation of the one that gives.
    from: Option<u32>,
    /// The connection broke, and is to be made again.
    is_broken: bool,
    pub(super) bytes: Vec<u8>,
}

impl IncomingState {
    /// One that is to be asked for.
    pub(super) const fn of(wanted: WantedState, sources: Vec<usize>) -> Self {
        Self { wanted, sources, at: 0, from: None, is_broken: false, bytes: Vec::new() }
    }

    /// Whether a node gives it.
    pub(super) const fn is_given(&self) -> bool {
        self.from.is_some()
    }

    /// The next node is asked, for the state from its beginning.
    fn ask_next(&mut self) {
        (self.at, self.from, self.is_broken) = (self.at + 1, None, false);
        self.bytes.clear();
    }
}

/// A state that a node gives to another one, and what it sent last.
pub(super) struct GivenState {
    to: Incarnation,
    /// Bytes of the state in front of those that are kept.
    before: usize,
    kept: Vec<u8>,
    /// The application has given all of it.
    is_whole: bool,
    /// The connection broke, or all was sent: until then it is held.
    held_until: Option<Time>,
}

impl GivenState {
    pub(super) const fn new(to: Incarnation) -> Self {
        Self { to, before: 0, kept: Vec::new(), is_whole: false, held_until: None }
    }

    /// The bytes from this one on, if they are still here.
    fn from(&self, offset: usize) -> Option<&[u8]> {
        self.kept.get(offset.checked_sub(self.before)?..)
    }

    fn forget(&mut self, most: usize) {
        let gone = self.kept.len().saturating_sub(most);
        self.kept.drain(..gone);
        self.before += gone;
    }
}

/// The result of a step of a transfer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum StateTransferStep {
    /// There is more to come.
    Goes,
    /// The connection broke while a piece was on its way.
    Breaks,
    /// The connection was made again, and the state continues where it broke.
    Resumes,
    /// The node does not give its state any more: the next one is asked.
    BreaksOff,
    /// All of it is here.
    Ends,
    /// Nobody gave a state.
    Fails,
}

/// The next step of the transfer of a state to the node `to`, by these nodes.
pub(super) fn step<M: SimulatedService>(
    nodes: &mut [SimNode<M>],
    now: Time,
    to: Incarnation,
    transfer: &mut IncomingState,
    (pace, rng): (&TransferPace, &mut Rng),
) -> StateTransferStep {
    let source = &mut nodes[transfer.sources[transfer.at]];
    let Some(life) = transfer.from else {
        match source.give(&transfer.wanted, to) {
            Ok(()) => transfer.from = source.life(),
            Err(_) => transfer.ask_next(),
        }
        let is_over = transfer.at == transfer.sources.len();
        return if is_over { StateTransferStep::Fails } else { StateTransferStep::Goes };
    };
    let lives = source.life() == Some(life);
    let running = source.running.as_mut().filter(|_| lives);
    let given = running.filter(|r| r.giving.as_ref().is_some_and(|given| given.to == to));
    let offset = transfer.bytes.len();
    let sent = given.and_then(|running| {
        let given = running.giving.as_mut()?;
        let has = given.from(offset).is_some();
        if transfer.is_broken && !has {
            return None;
        }
        given.held_until = None;
        if !given.is_whole {
            let mut piece = Vec::new();
            given.is_whole = !running.recovery.app.piece(pace.piece(rng), &mut piece);
            given.kept.extend_from_slice(&piece);
            if given.is_whole {
                running.cut = CutReceiver::None;
            }
        }
        let breaks = rng.chance(pace.breaks_ppm);
        if breaks || given.is_whole {
            given.held_until = Some(now + pace.holds);
        }
        let bytes = given.from(offset).unwrap_or_default().to_vec();
        given.forget(pace.kept_bytes);
        Some((bytes, breaks, given.is_whole))
    });
    let Some((bytes, breaks, is_whole)) = sent else {
        transfer.ask_next();
        let is_over = transfer.at == transfer.sources.len();
        return if is_over { StateTransferStep::Fails } else { StateTransferStep::BreaksOff };
    };
    if breaks {
        // The piece on its way is lost.
        transfer.is_broken = true;
        return StateTransferStep::Breaks;
    }
    transfer.bytes.extend_from_slice(&bytes);
    let was_broken = std::mem::take(&mut transfer.is_broken);
    match (is_whole, was_broken) {
        (true, _) => StateTransferStep::Ends,
        (false, true) => StateTransferStep::Resumes,
        (false, false) => StateTransferStep::Goes,
    }
}

impl<M: SimulatedService> SimNode<M> {
    /// Lets go what it gives to a node that died or did not come back in time; `lives` says which node lives.
    pub(super) fn end_giving(
        &mut self,
        now: Time,
        pace: &TransferPace,
        lives: &dyn Fn(Incarnation) -> bool,
    ) {
        let Some(running) = &mut self.running else { return };
        let Some(given) = &mut running.giving else { return };
        if given.held_until.is_none() && !lives(given.to) {
            given.held_until = Some(now + pace.holds);
        }
        if given.held_until.is_some_and(|until| until <= now) {
            running.stop_giving();
        }
    }
}

//! The executor of the services as the application of a simulated node: what production runs, without its threads
//! and clocks.

use super::Simulated;
use amcast_core::{Gid, MsgId, Span, Time};
use amcast_smr::application::{Application, Command, Figures, TellAnswer};
use amcast_smr::{ClockReport, Executor, Full, Limits, Stamp, State};
use std::io::Read;

/// How often a node has its clock reported in each shard, by its own time.
const REPORT_EVERY_MS: u64 = 2_000;

/// The same as long as a majority has not reported.
const REPORT_FIRST_MS: u64 = 100;

/// One node's shards.
pub(super) struct SimApplication<M: Simulated> {
    executor: Executor<M>,
    /// When the clock was reported in each shard, by that clock.
    reported_ms: Vec<Option<u64>>,
}

impl<M: Simulated> SimApplication<M> {
    /// Empty shards, each with so many replicas; these report their clocks if `reports`.
    pub(super) fn new(shards: usize, replicas: usize, reports: bool) -> Self {
        let mut executor = Executor::new(M::over(shards), shards, Limits::default());
        if reports {
            executor.bound_time(replicas);
        }
        Self { executor, reported_ms: vec![None; shards] }
    }

    /// Whether gateways may be served.
    pub(super) fn knows_time(&self) -> bool {
        self.executor.knows_time()
    }

    /// What the node, whose clocks say this, has ordered in `group`, if that is due.
    pub(super) fn report(&mut self, said: Stamp, group: Gid) -> Option<Vec<u8>> {
        let pause_ms = if self.knows_time() { REPORT_EVERY_MS } else { REPORT_FIRST_MS };
        let last = &mut self.reported_ms[group.index()];
        if last.is_some_and(|last| said.host_ms < last + pause_ms) {
            return None;
        }
        *last = Some(said.host_ms);
        Some(ClockReport(said).encode().to_vec())
    }
}

/// A simulated node's clocks at a moment.
pub(super) fn stamp_at(now: Time) -> Stamp {
    let ms = BEGIN_MS + now.0 / MILLISECOND.0;
    Stamp { wall_ms: ms, host_ms: ms }
}

/// How much simulated time counts as a millisecond of the service's: so little that its timeouts pass in runs that are
/// short.
pub(super) const MILLISECOND: Span = Span::micros(5);

/// What clocks say when a run begins.
const BEGIN_MS: u64 = 1_000_000;

impl<M: Simulated> Application for SimApplication<M> {
    type State = State<M>;

    fn deliver(&mut self, command: Command<'_>, answer: TellAnswer<'_>) -> bool {
        let Command { group, position, msg, dst, payload } = command;
        let taken = self.executor.deliver(group, position, msg, dst, payload, &mut |a| {
            answer(a.id, a.outcome, a.bytes);
        });
        !matches!(taken, Err(Full))
    }

    fn differs(&self) -> Option<&str> {
        self.executor.differs()
    }

    fn applied(&self, group: Gid) -> u64 {
        self.executor.applied(group)
    }

    fn delivered(&self, group: Gid) -> u64 {
        self.executor.delivered(group)
    }

    fn capture(&mut self) {
        self.executor.capture();
    }

    fn piece(&mut self, most: usize, to: &mut Vec<u8>) -> bool {
        self.executor.piece(most, to)
    }

    fn release(&mut self) {
        self.executor.release();
    }

    fn read(groups: usize, from: &mut dyn Read) -> Result<Self::State, String> {
        State::read(&M::over(groups), groups, from).map_err(|e| e.to_string())
    }

    fn state_delivered(state: &Self::State, group: Gid) -> u64 {
        state.delivered(group)
    }

    fn adopt(&mut self, state: Self::State) -> Self::State {
        self.executor.adopt(state)
    }

    fn clear(&mut self) -> Self::State {
        self.executor.clear()
    }

    fn has_skipped(&self, msg: MsgId) -> bool {
        self.executor.skipped().any(|skipped| skipped.msg == msg)
    }

    fn conflict(&self, state: &Self::State) -> Option<String> {
        self.executor.conflict(state)
    }

    fn figures(&self, _: Gid) -> Figures {
        Figures::default()
    }
}

//! The executor of the services as the application of a simulated node: what production runs, without its threads
//! and clocks.

use super::early::CheckedEarly;
use super::time::stretched;
use super::{ServiceMutant, ServiceShape, SimulatedService};
use amcast_core::{ClusterShape, Gid, GroupSet, MsgId, Time};
use amcast_node::service::{ClockPace, DigestPace};
use amcast_smr::application::{
    Application, DeliveredCommand, GroupFigures, LocalReadResult, StateReadError, TellAnswer,
};
use amcast_smr::{
    Envelope, Executor, ExecutorFull, ExecutorState, Limits, LocalRead, SessionWrite, Stamp,
};
use std::io::Read;

/// From a change on how long it takes to the next digest point of its shard at most, in seconds.
const DIGEST_SECS: u64 = 5;

/// Bytes of the part of a shard that a digest covers: small, so that several make a whole.
const SLICE_BYTES: usize = 1024;

/// One node's shards.
pub(super) struct SimApplication<M: SimulatedService> {
    executor: Executor<M>,
    groups: GroupSet,
    /// When clocks are reported and digests compared, where nodes multicast reports.
    clocks: Option<ClockPace>,
    digests: Option<DigestPace>,
    /// The early execution of its commands, where it has one shard.
    early: Option<CheckedEarly>,
    /// It executes nothing, and answers no read.
    pub(super) is_hung: bool,
    /// Whether commands are handed in however far ordered time is behind (a mutant).
    hands_in_too_soon: bool,
}

impl<M: SimulatedService> SimApplication<M> {
    /// Empty shards of the node of this rank, where nodes report their clocks and digests.
    pub(super) fn new(shape: &ServiceShape, reports: Option<(ClusterShape, usize)>) -> Self {
        let shards = shape.shards;
        let limits = Limits { slice_bytes: SLICE_BYTES, ..Limits::default() };
        let mut executor = Executor::new(M::over(shape), shards, limits);
        let digests = reports.map(|(cluster, rank)| {
            if shape.mutant != Some(ServiceMutant::TrustsAnyClock) {
                executor.bound_time(cluster.replicas());
            }
            if shape.mutant != Some(ServiceMutant::DiffersUnread) {
                executor.compare_digests(cluster, rank);
            }
            DigestPace::new(rank, shards, DIGEST_SECS)
        });
        let groups = GroupSet::first(shards);
        let clocks = reports.map(|(cluster, rank)| ClockPace::new(cluster, rank));
        let hands_in_too_soon = shape.mutant == Some(ServiceMutant::HandsInTooSoon);
        let early = (shards == 1).then(CheckedEarly::new);
        Self { executor, groups, clocks, digests, early, is_hung: false, hands_in_too_soon }
    }

    /// How many commands it has undone that it had executed early.
    pub(super) fn undone(&self) -> u64 {
        self.early.as_ref().map_or(0, CheckedEarly::undone)
    }

    /// Its shards.
    pub(super) const fn groups(&self) -> GroupSet {
        self.groups
    }

    /// Whether gateways may be served.
    pub(super) fn knows_time(&self) -> bool {
        self.executor.knows_time()
    }

    /// The report that the node multicasts in `group` at the time `said` of its clocks, if one is
    /// due.
    pub(super) fn report(&mut self, now: Time, said: Stamp, group: Gid) -> Option<Vec<u8>> {
        let clocks = self.clocks.as_mut()?;
        if let Some(report) = clocks.report(stretched(now), group, &self.executor, || said) {
            return Some(report.encode().to_vec());
        }
        self.digests.as_mut()?.report(stretched(now), group, &mut self.executor)
    }

    /// The shards whose commands are not to be handed in yet, at the time `said` of the node's clocks.
    pub(super) fn held(&mut self, now: Time, said: Stamp) -> GroupSet {
        let Some(clocks) = &mut self.clocks else { return GroupSet::EMPTY };
        if self.hands_in_too_soon {
            return GroupSet::EMPTY;
        }
        clocks.held(stretched(now), &self.executor, || said)
    }

    /// Answers a read from what is executed, if that includes what its client wrote.
    pub(super) fn peek_here(
        &mut self,
        read: (GroupSet, &[u8]),
        written: &[SessionWrite],
        answer: &mut Vec<u8>,
    ) -> LocalRead {
        if self.is_hung {
            return LocalRead::NotYet;
        }
        self.executor.peek(0, read, written, answer)
    }

    /// How far the state of `group` goes, and a digest of it; none while commands wait there.
    pub(super) fn state_digest(&self, group: Gid) -> Option<(u64, u64)> {
        Some((self.executor.delivered(group), self.executor.state_digest(group)?))
    }
}

impl<M: SimulatedService> Application for SimApplication<M> {
    type State = ExecutorState<M>;

    const FITS_TWICE: bool = M::FITS_TWICE;

    fn deliver(&mut self, command: DeliveredCommand<'_>, answer: TellAnswer<'_>) -> bool {
        if self.is_hung {
            return false;
        }
        let DeliveredCommand { group, position, msg, dst, payload } = command;
        let taken = self.executor.deliver(group, position, msg, dst, payload, &mut |a| {
            answer(a.id, a.outcome, a.bytes);
        });
        let is_taken = !matches!(taken, Err(ExecutorFull));
        if let Some(early) = self.early.as_mut().filter(|_| is_taken) {
            early.deliver(msg, payload, Envelope::decode(payload).is_some());
        }
        is_taken
    }

    fn differs(&self) -> Option<&str> {
        let early = self.early.as_ref().and_then(CheckedEarly::wrong);
        early.or_else(|| self.executor.differs())
    }

    fn early(&mut self, msg: MsgId, payload: &[u8]) {
        self.early.iter_mut().for_each(|early| early.early(msg, payload));
    }

    fn void_early(&mut self) {
        self.early.iter_mut().for_each(CheckedEarly::lose_place);
    }

    fn doubt(&self) -> Option<&str> {
        self.executor.doubt()
    }

    fn can_peek(&self) -> bool {
        true
    }

    fn peek(
        &mut self,
        group: Gid,
        number: u64,
        command: &[u8],
        answer: &mut Vec<u8>,
    ) -> LocalReadResult {
        if self.is_hung {
            return LocalReadResult::NotYet;
        }
        match self.executor.peek_one(group, number, command, answer) {
            LocalRead::Answered(outcome) => LocalReadResult::Answered(outcome),
            LocalRead::Later => LocalReadResult::Later,
            LocalRead::NotYet => LocalReadResult::NotYet,
            LocalRead::Busy => LocalReadResult::Busy,
            LocalRead::Never => LocalReadResult::Never,
        }
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
        if self.is_hung {
            return true;
        }
        self.executor.piece(most, to)
    }

    fn release(&mut self) {
        self.executor.release();
    }

    fn read(groups: usize, from: &mut dyn Read) -> Result<Self::State, StateReadError> {
        let shape = ServiceShape { shards: groups, rank: 0, mutant: None, maxmemory: 0 };
        Ok(ExecutorState::read(&M::over(&shape), groups, from)?)
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

    fn figures(&self, _: Gid) -> GroupFigures {
        GroupFigures::default()
    }
}

#[cfg(test)]
mod tests {
    use super::super::time::MILLISECOND;
    use super::*;
    use amcast_log::StoreAndLog;
    use amcast_smr::ClockReport;

    /// The simulated time at which the clocks of all nodes say so many seconds.
    fn at(secs: u64) -> Time {
        Time(secs * 1000 * MILLISECOND.0)
    }

    fn clock(secs: u64) -> Stamp {
        Stamp { wall_ms: 1_000_000 + secs * 1000, host_ms: secs * 1000 }
    }

    /// The shards that the first of three nodes holds back at 140 s, where all nodes reported 100 s last.
    fn held_after_a_stall(mutant: Option<ServiceMutant>) -> GroupSet {
        let cluster = ClusterShape::new(1, 3, 0).expect("a cluster");
        let shape = ServiceShape { shards: 1, rank: 0, mutant, maxmemory: 0 };
        let mut node = SimApplication::<StoreAndLog>::new(&shape, Some((cluster, 0)));
        for rank in 0..3 {
            let id = MsgId { sender: cluster.replica(Gid(0), rank), seq: 1 };
            let report = ClockReport(clock(100)).encode();
            let (position, dst) = (rank as u64 + 1, GroupSet::one(Gid(0)));
            node.executor
                .deliver(Gid(0), position, id, dst, &report, &mut |_| {})
                .expect("it has room");
        }
        assert!(node.knows_time() && node.held(at(101), clock(101)).is_empty());
        node.held(at(140), clock(140))
    }

    #[test]
    fn commands_are_held_back_after_a_stall_except_by_the_mutant_that_hands_them_in_too_soon() {
        assert_eq!(held_after_a_stall(None), GroupSet::one(Gid(0)));
        assert_eq!(held_after_a_stall(Some(ServiceMutant::HandsInTooSoon)), GroupSet::EMPTY);
    }
}

//! A node's part of a service: the executor of the services as the runtime's application.

use super::Reads;
use super::clock_pace::ClockPace;
use super::digests::DigestPace;
use crate::config::{ClusterFile, PartitionOrder};
use crate::gateway::GatewayClock;
use amcast_core::{ClusterShape, Entry, Gid, GroupSet, MsgId, Senders, SkipDecision, Time};
use amcast_kv::blocked_clients::BlockedClients;
use amcast_kv::{HashSeed, Kv, Partitions};
use amcast_log::StoreAndLog;
use amcast_log::{Logs, NODE_BYTES};
use amcast_smr::application::{
    Application, AwaitedAnswers, DeliveredCommand, GroupFigures, LocalReadResult, StateReadError,
    TellAnswer, TellRead, WakeHandle,
};
use amcast_smr::early::{EarlyMachine, EarlyReplica};
use amcast_smr::{
    Envelope, ExecutionObserver, Executor, ExecutorFull, ExecutorState, Limits, LocalRead,
    ShardFigures, ShardedMachine, StateMachine, StateMachineAdapter,
};
use std::borrow::Cow;
use std::io::{self, Read};
use std::sync::{Arc, OnceLock};

/// The seed of the hashes of keys in earlier clusters, which have no seed of their own.
const FIXED_SEED: HashSeed = HashSeed::Fixed(0x616d_6361_7374_6b76);

/// A service that nodes can be made of: it follows from the number of shards alone, so that the same
/// is made on every node.
pub trait Hosted: ShardedMachine + Sized {
    /// The service over `shards` empty shards.
    fn over(shards: usize) -> Self;
}

/// The logs of this process, which is one node: a node's state is made anew wherever it is read.
static LOGS: OnceLock<Logs> = OnceLock::new();

/// The initial configuration of the store of this process.
struct FirstStore {
    partitions: Arc<Partitions>,
    maxmemory_bytes: u64,
    seed: HashSeed,
}

static STORE: OnceLock<FirstStore> = OnceLock::new();

/// The clients of this process's gateway that wait for keys.
static BLOCKED: OnceLock<Arc<BlockedClients>> = OnceLock::new();

/// The clients of this process's gateway that wait for keys: its replicas tell them of changes, if it has some.
pub fn blocked_clients() -> Arc<BlockedClients> {
    BLOCKED.get_or_init(Arc::default).clone()
}

/// Has the store of [`StoreAndLog`] begin as the cluster's file says, in this process. Once, before its node starts.
///
/// # Errors
/// When the file asks for partitions that cannot be; the sentence says why.
pub fn host_store(file: &ClusterFile) -> Result<(), String> {
    let seed = match &file.hash_seed {
        Some(digits) => HashSeed::parse(digits).ok_or("hash_seed: give 32 hexadecimal digits")?,
        None => FIXED_SEED,
    };
    let first = FirstStore {
        seed,
        partitions: first_partitions(file)?.into(),
        maxmemory_bytes: file.maxmemory_mb.unwrap_or(0).saturating_mul(1_000_000),
    };
    assert!(STORE.set(first).is_ok(), "a process is one node");
    Ok(())
}

/// The first map of partitions of a cluster.
///
/// # Errors
/// When the file asks for one that cannot be; the sentence says why.
pub fn first_partitions(file: &ClusterFile) -> Result<Partitions, String> {
    let (shards, given) = (file.shards, file.partitions);
    let partitions = given.unwrap_or(match &*file.boundaries {
        [] => shards,
        some => some.len() + 1,
    });
    if !(1..=shards).contains(&partitions) {
        return Err(format!("partitions = {partitions}: give 1 to {shards}, the number of shards"));
    }
    match file.partition {
        PartitionOrder::Hash if !file.boundaries.is_empty() => {
            Err("boundaries are for partition = \"range\"".to_string())
        }
        PartitionOrder::Hash => Ok(Partitions::by_slot_among(shards, partitions)),
        PartitionOrder::Range if file.boundaries.is_empty() => {
            Partitions::by_key(shards, &Partitions::even_boundaries(partitions))
        }
        PartitionOrder::Range if file.boundaries.len() + 1 != partitions => Err(format!(
            "partitions = {partitions}: {} boundaries make {}",
            file.boundaries.len(),
            file.boundaries.len() + 1
        )),
        PartitionOrder::Range => {
            let boundaries = file.boundaries.iter().map(|b| b.as_bytes().to_vec());
            Partitions::by_key(shards, &boundaries.collect::<Vec<_>>())
        }
    }
}

/// Has the logs of [`StoreAndLog`] be these, in this process. Once, before its node starts.
pub fn host_logs(logs: Logs) {
    assert!(LOGS.set(logs).is_ok(), "a process is one node");
}

impl Hosted for StoreAndLog {
    fn over(shards: usize) -> Self {
        let logs = LOGS.get_or_init(|| Logs::new(shards, NODE_BYTES)).clone();
        let usual = || FirstStore {
            partitions: Arc::new(Partitions::by_slot(shards)),
            maxmemory_bytes: 0,
            seed: FIXED_SEED,
        };
        let FirstStore { partitions, maxmemory_bytes, seed } = STORE.get_or_init(usual);
        let store = Kv::over(partitions.clone(), *seed).with_maxmemory(*maxmemory_bytes);
        Self::new(store.with_blocked(blocked_clients()), logs)
    }
}

impl<S: StateMachine> Hosted for StateMachineAdapter<S> {
    fn over(_shards: usize) -> Self {
        Self::default()
    }
}

/// One node's shards of a service.
pub struct ServiceNode<M: ShardedMachine> {
    executor: Executor<M>,
    /// Threads that execute commands; without any, the node's own does.
    workers: usize,
    /// Reads that it answers from what it has executed.
    reads: Arc<Reads>,
    /// The clock that it reports to the others, if it does.
    clock: Option<HostClock>,
    /// When it has digests of its state compared with theirs, if it does.
    digests: Option<DigestPace>,
    /// The machine that is shown commands before their place is decided, if there is one.
    early: Option<EarlyReplica>,
}

/// From a change on how long it takes to the next digest point of its shard at most, in seconds, unless the cluster's
/// file says otherwise.
const DIGEST_SECS: u64 = 5;

/// A node's clock, and when it reports it.
struct HostClock {
    clock: GatewayClock,
    pace: ClockPace,
}

impl<M: Hosted> ServiceNode<M> {
    /// `shards` empty shards, in which commands that do not conflict are executed by `workers`
    /// threads, or by the node's own if there are none.
    pub fn new(shards: usize, workers: usize) -> Self {
        let executor = Executor::new(M::over(shards), shards, Limits::default());
        Self { executor, workers, reads: Arc::default(), clock: None, digests: None, early: None }
    }

    /// Has this machine execute commands before their place in the order is decided.
    #[must_use]
    pub fn with_early(mut self, machine: Box<dyn EarlyMachine>) -> Self {
        self.early = Some(EarlyReplica::new(machine));
        self
    }

    /// Has this node, whose replicas have this rank, report its host's clock to the others, if the protocol lets nodes
    /// multicast reports: any clock then counts only as far as a majority of them ([`Executor::bound_time`]).
    #[must_use]
    pub fn with_clock(mut self, entry: &dyn Entry, file: &ClusterFile, rank: usize) -> Self {
        let can = entry.capabilities();
        let cluster = ClusterShape::new(file.shards, file.replicas, file.clients);
        if can.senders == Senders::Replicas
            && let Ok(cluster) = cluster
        {
            let clock = GatewayClock::ahead(file.clock_ahead(can.durability.has_log()));
            self.clock = Some(HostClock { clock, pace: ClockPace::new(cluster, rank) });
            self.executor.bound_time(file.replicas);
        }
        self
    }

    /// Has this node, whose replicas have this rank, compare digests of its state with the others, if the protocol lets
    /// nodes multicast what they find.
    #[must_use]
    pub fn with_digests(mut self, entry: &dyn Entry, file: &ClusterFile, rank: usize) -> Self {
        let cluster = ClusterShape::new(file.shards, file.replicas, file.clients);
        if entry.capabilities().senders == Senders::Replicas
            && let Ok(cluster) = cluster
        {
            let every_secs = file.digest_secs.unwrap_or(DIGEST_SECS);
            self.digests = Some(DigestPace::new(rank, file.shards, every_secs));
            self.executor.compare_digests(cluster, rank);
        }
        self
    }

    /// This node's report of its clock in `group`, if one is due.
    fn report_clock(&mut self, now: Time, group: Gid) -> Option<Vec<u8>> {
        let HostClock { clock, pace } = self.clock.as_mut()?;
        let report = pace.report(now, group, &self.executor, || clock.now().as_it_is())?;
        Some(report.encode().to_vec())
    }

    /// Where this node's reads that may be old are handed in.
    pub fn reads(&self) -> Arc<Reads> {
        Arc::clone(&self.reads)
    }
}

fn peeked(peek: LocalRead) -> LocalReadResult {
    match peek {
        LocalRead::Answered(outcome) => LocalReadResult::Answered(outcome),
        LocalRead::Later => LocalReadResult::Later,
        LocalRead::NotYet => LocalReadResult::NotYet,
        LocalRead::Busy => LocalReadResult::Busy,
        LocalRead::Never => LocalReadResult::Never,
    }
}

impl<M: Hosted> Application for ServiceNode<M> {
    type State = ExecutorState<M>;

    const FITS_TWICE: bool = M::FITS_TWICE;

    fn begin(&mut self, wake: WakeHandle) -> io::Result<()> {
        self.reads.begin(Arc::clone(&wake));
        self.executor.employ(self.workers, wake)
    }

    fn look_ahead(&mut self, group: Gid, commands: &mut dyn Iterator<Item = DeliveredCommand<'_>>) {
        let mut commands = commands.map(|command| (command.msg, command.dst, command.payload));
        self.executor.look_ahead(group, &mut commands);
    }

    fn deliver(&mut self, command: DeliveredCommand<'_>, answer: TellAnswer<'_>) -> bool {
        let DeliveredCommand { group, position, msg, dst, payload } = command;
        let taken = self.executor.deliver(group, position, msg, dst, payload, &mut |a| {
            answer(a.id, a.outcome, a.bytes);
        });
        match (taken, &mut self.early) {
            (Ok(_), Some(early)) => early.deliver(msg, payload),
            (Ok(_), None) => {}
            (Err(ExecutorFull), _) => return false,
        }
        true
    }

    fn wants_early(&self) -> bool {
        self.early.is_some()
    }

    fn early(&mut self, msg: MsgId, payload: &[u8]) {
        if let Some(early) = &mut self.early {
            early.early(msg, payload);
        }
    }

    fn void_early(&mut self) {
        if let Some(early) = &mut self.early {
            early.lose_place();
        }
    }

    fn report(&mut self, now: Time, group: Gid) -> Option<Vec<u8>> {
        if let Some(clock) = self.report_clock(now, group) {
            return Some(clock);
        }
        self.digests.as_mut()?.report(now, group, &mut self.executor)
    }

    fn held(&mut self, now: Time) -> GroupSet {
        let Some(HostClock { clock, pace }) = &mut self.clock else { return GroupSet::EMPTY };
        pace.held(now, &self.executor, || clock.now().as_it_is())
    }

    fn lacks(&self) -> Option<Cow<'_, str>> {
        if !self.executor.knows_time() {
            return Some(
                "the time by the clocks of a majority of the nodes is not known yet".into(),
            );
        }
        self.digests.as_ref()?.lacks().map(Cow::Borrowed)
    }

    fn differs(&self) -> Option<&str> {
        self.executor.differs()
    }

    fn doubt(&self) -> Option<&str> {
        self.executor.doubt()
    }

    fn answer_only(&mut self, awaits: AwaitedAnswers) {
        self.executor.answer_only(awaits);
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
        peeked(self.executor.peek_one(group, number, command, answer))
    }

    fn flush_reads(&mut self) {
        self.executor.flush_reads();
    }

    fn collect_reads(&mut self, tell: TellRead<'_>) -> bool {
        self.executor.collect_reads(&mut |group, number, peek, bytes| {
            tell(group, number, peeked(peek), bytes);
        })
    }

    fn line(&self, command: &[u8]) -> Option<u64> {
        // A client of the store has a session of its own as long as it is connected. Reads of the log have none: what
        // its clients have under way together may be answered in any order.
        Envelope::decode(command).map(|(envelope, _)| envelope.session).filter(|s| *s > 0)
    }

    fn collect(&mut self, answer: TellAnswer<'_>) -> bool {
        let read = self.reads.serve(&mut self.executor);
        self.executor.collect(&mut |a| answer(a.id, a.outcome, a.bytes)) | read
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

    fn read(groups: usize, from: &mut dyn Read) -> Result<Self::State, StateReadError> {
        Ok(ExecutorState::read(&M::over(groups), groups, from)?)
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

    fn note_in(&mut self, witness: Arc<dyn ExecutionObserver>) {
        self.executor.tell(witness);
    }

    fn skip(&mut self, decisions: &[(SkipDecision, bool)]) -> Result<(), String> {
        self.executor.skip(decisions)
    }

    fn at_skip(&self) -> Option<MsgId> {
        self.executor.at_skip()
    }

    fn release_skip(&mut self, msg: MsgId) {
        self.executor.release_skip(msg);
    }

    fn has_skipped(&self, msg: MsgId) -> bool {
        self.executor.skipped().any(|skipped| skipped.msg == msg)
    }

    fn conflict(&self, state: &Self::State) -> Option<String> {
        self.executor.conflict(state)
    }

    fn figures(&self, group: Gid) -> GroupFigures {
        let holds = self.executor.holds(group);
        let ShardFigures { items, expiring, due_ms, has_chore, .. } = holds;
        GroupFigures {
            waiting: self.executor.waiting(group) as u64,
            items: items as u64,
            expiring: expiring as u64,
            due_ms,
            has_chore,
            used_bytes: holds.used_bytes,
            budget_bytes: holds.budget_bytes,
            parts_bytes: self.executor.parts_bytes(group) as u64,
            agreed: self.executor.agreed(group),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use amcast_smr::Stamp;

    #[test]
    fn reads_of_a_session_have_a_line_and_those_of_none_have_not() {
        let node = ServiceNode::<StoreAndLog>::new(1, 0);
        let line = |session| {
            let (stamp, mut read) = (Stamp::default(), Vec::new());
            Envelope { session, request: 1, open_from: 1, stamp, read_only: true }
                .encode(&mut read);
            node.line(&read)
        };
        assert_eq!((line(7), line(0)), (Some(7), None));
    }

    #[test]
    fn a_file_says_the_first_partitions_or_why_there_are_none() {
        let file = ClusterFile { shards: 4, ..ClusterFile::default() };
        assert_eq!(first_partitions(&file), Ok(Partitions::by_slot(4)));
        let spare = ClusterFile { partitions: Some(3), ..file.clone() };
        assert_eq!(first_partitions(&spare), Ok(Partitions::by_slot_among(4, 3)));
        let range = ClusterFile { partition: PartitionOrder::Range, ..file };
        let even = Partitions::by_key(4, &Partitions::even_boundaries(4));
        assert_eq!(first_partitions(&range), even);
        let given = ClusterFile { boundaries: vec!["h".into(), "p".into()], ..range.clone() };
        assert_eq!(first_partitions(&given).unwrap().holders().len(), 3, "one is spare");
        let why = |file: ClusterFile| first_partitions(&file).unwrap_err();
        assert!(why(ClusterFile { partitions: Some(5), ..range }).contains("give 1 to 4"));
        assert!(
            why(ClusterFile { partitions: Some(2), ..given.clone() }).contains("boundaries make 3")
        );
        assert!(why(ClusterFile { partition: PartitionOrder::Hash, ..given }).contains("are for"));
    }
}

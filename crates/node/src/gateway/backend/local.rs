//! Everything in one process: one executor, ordered by a lock.

use super::{Backend, BackendAnswers, BackendBusy, CommandFailure, OnBackendAnswer};
use amcast_core::{Gid, GroupSet, MsgId, Pid, ServiceAnswer};
use amcast_kv::Kv;
use amcast_kv::client::lock;
use amcast_kv::status::{ServerStatus, ShardStatus};
use amcast_smr::executor::{DeliveryResult, Executor, Limits, ShardFigures};
use std::sync::{Arc, Mutex, OnceLock};

/// A backend without replication. A command runs in the thread that submits it: on a small
/// machine waking another thread costs more than the command, so this is what a gateway is measured
/// with.
pub struct LocalBackend {
    inner: Mutex<LocalState>,
    answers: OnceLock<Arc<dyn BackendAnswers>>,
}

struct LocalState {
    executor: Executor<Kv>,
    positions: Vec<u64>,
    seq: u64,
}

impl LocalBackend {
    /// An empty store of `shards` shards; `seed` as in [`Kv::new`].
    pub fn new(shards: usize, seed: u64) -> Self {
        Self::over(shards, Kv::new(shards, seed))
    }

    /// This store, which has `shards` shards and is empty.
    pub fn over(shards: usize, store: Kv) -> Self {
        let executor = Executor::new(store, shards, Limits::default());
        let inner = LocalState { executor, positions: vec![0; shards], seq: 0 };
        Self { inner: Mutex::new(inner), answers: OnceLock::new() }
    }

    /// Runs `f` on the executor, between two commands.
    pub fn with<T>(&self, f: impl FnOnce(&Executor<Kv>) -> T) -> T {
        f(&lock(&self.inner).executor)
    }
}

impl Backend for LocalBackend {
    fn start(&self, answers: Arc<dyn BackendAnswers>) {
        assert!(self.answers.set(answers).is_ok(), "a backend is started once");
    }

    fn submit(&self, dst: GroupSet, command: &mut Vec<u8>, token: u64) -> Result<(), BackendBusy> {
        let answers = self.answers.get().expect("a backend is started before it is used");
        lock(&self.inner).execute(dst, command, &mut |answer| answers.answer(token, answer));
        Ok(())
    }

    fn ask(
        &self,
        dst: GroupSet,
        command: &mut Vec<u8>,
        done: OnBackendAnswer,
    ) -> Result<(), CommandFailure> {
        let mut told = None;
        lock(&self.inner).execute(dst, command, &mut |answer| told = Some(answer.into_owned()));
        done(Ok(told.expect("it was executed in all of its shards")));
        Ok(())
    }
}

impl LocalState {
    fn execute(&mut self, dst: GroupSet, command: &[u8], tell: &mut dyn FnMut(ServiceAnswer<'_>)) {
        let Self { executor, positions, seq } = self;
        *seq += 1;
        let id = MsgId { sender: Pid(0), seq: *seq };
        for shard in dst.iter() {
            positions[shard.index()] += 1;
            let position = positions[shard.index()];
            let outcome = executor.deliver(shard, position, id, dst, command, &mut |a| {
                tell(ServiceAnswer::borrowed(a.outcome, a.bytes));
            });
            // The lock makes each command run before the next comes, so nothing ever waits.
            assert_eq!(outcome, Ok(DeliveryResult::Taken), "the gateway writes whole envelopes");
        }
    }
}

impl ServerStatus for LocalBackend {
    fn node(&self) -> String {
        "local".into()
    }

    fn protocol(&self) -> String {
        "none".into()
    }

    fn shards(&self) -> Vec<ShardStatus> {
        let inner = lock(&self.inner);
        let count = inner.positions.len() as u8;
        let tell = |shard| {
            let holds = inner.executor.holds(shard);
            let ShardFigures { items, expiring, due_ms, has_chore, .. } = holds;
            ShardStatus {
                shard,
                leader: Some("local".into()),
                replicas: (1, 1),
                applied: inner.executor.applied(shard),
                waiting: inner.executor.waiting(shard),
                keys: items,
                expiring,
                due_ms,
                has_chore,
                used_bytes: holds.used_bytes,
                budget_bytes: holds.budget_bytes,
                parts_bytes: inner.executor.parts_bytes(shard) as u64,
            }
        };
        (0..count).map(Gid).map(tell).collect()
    }

    fn ready(&self) -> Result<(), String> {
        Ok(())
    }
}

//! A cluster of one process: an executor behind a lock, which may lose answers.

use amcast_core::{Gid, GroupSet, MsgId, Outcome, Pid, ServiceAnswer};
use amcast_kv::Kv;
use amcast_kv::status::{ServerStatus, ShardStatus};
use amcast_log::StoreAndLog;
use amcast_log::{Logs, OnGrowth};
use amcast_node::gateway::{
    Backend, BackendAnswers, BackendBusy, CommandFailure, FailureCause, GatewayClock,
    OnBackendAnswer,
};
use amcast_smr::{ClockReport, DeliveryResult, Executor, Limits};
use std::sync::{Arc, Mutex};

/// The bound on the logs of a shard.
const SHARD_BYTES: usize = 5_000_000;

pub(crate) struct Local(Mutex<LocalInner>);

struct LocalInner {
    executor: Executor<StoreAndLog>,
    positions: Vec<u64>,
    seq: u64,
    /// Answers to changes that are not told.
    lost: u32,
    /// Commands that are not taken.
    refused: u32,
    /// Commands that find no room on the disks, behind those whose answers are lost.
    without_room: u32,
    /// Answers that are given later, if they are.
    withheld: Option<Vec<(OnBackendAnswer, ServiceAnswer<'static>)>>,
}

impl Local {
    pub(crate) fn new(shards: usize) -> Self {
        Self::of(shards, Logs::new(shards, shards * SHARD_BYTES))
    }

    /// One whose logs tell how they grow.
    pub(crate) fn telling(shards: usize, on_growth: OnGrowth) -> Self {
        Self::of(shards, Logs::new(shards, shards * SHARD_BYTES).telling(on_growth))
    }

    fn of(shards: usize, logs: Logs) -> Self {
        let machine = StoreAndLog::new(Kv::new(shards, 1), logs);
        let executor = Executor::new(machine, shards, Limits::default());
        let positions = vec![0; shards];
        Self(Mutex::new(LocalInner {
            executor,
            positions,
            seq: 0,
            lost: 0,
            refused: 0,
            without_room: 0,
            withheld: None,
        }))
    }

    /// Has the clock of this host, its only replica, reported in each shard; from the first time on that bounds its
    /// time, if `bounds`.
    pub(crate) fn report_clock(&self, bounds: bool) {
        let mut inner = self.0.lock().unwrap();
        let LocalInner { executor, positions, seq, .. } = &mut *inner;
        if bounds {
            executor.bound_time(1);
        }
        for (shard, position) in (0..).map(Gid).zip(positions) {
            (*position, *seq) = (*position + 1, *seq + 1);
            let id = MsgId { sender: Pid(0), seq: *seq };
            let report = ClockReport(GatewayClock::default().now().stamp).encode();
            let dst = GroupSet::one(shard);
            executor.deliver(shard, *position, id, dst, &report, &mut |_| {}).unwrap();
        }
    }

    /// How many commands were taken so far.
    pub(crate) fn asked(&self) -> u64 {
        self.0.lock().unwrap().seq
    }

    /// Has the answers to the next commands lost, which are executed.
    pub(crate) fn lose_answers(&self, count: u32) {
        self.0.lock().unwrap().lost = count;
    }

    /// Has answers withheld from now on, or no longer: then the withheld ones are given.
    pub(crate) fn withhold(&self, withholds: bool) {
        let withheld =
            std::mem::replace(&mut self.0.lock().unwrap().withheld, withholds.then(Vec::new));
        for (done, answer) in withheld.into_iter().flatten() {
            done(Ok(answer));
        }
    }

    /// Has the next commands refused.
    pub(crate) fn refuse(&self, count: u32) {
        self.0.lock().unwrap().refused = count;
    }

    /// Has the disks full for so many commands, behind those whose answers are lost.
    pub(crate) fn fill_disks(&self, count: u32) {
        self.0.lock().unwrap().without_room = count;
    }
}

impl Backend for Local {
    fn start(&self, _: Arc<dyn BackendAnswers>) {
        unreachable!("the log's gateway has no tokens");
    }

    fn submit(&self, _: GroupSet, _: &mut Vec<u8>, _: u64) -> Result<(), BackendBusy> {
        unreachable!("the log's gateway has no tokens");
    }

    fn ask(
        &self,
        dst: GroupSet,
        command: &mut Vec<u8>,
        done: OnBackendAnswer,
    ) -> Result<(), CommandFailure> {
        let mut inner = self.0.lock().unwrap();
        let LocalInner { executor, positions, seq, lost, refused, without_room, withheld } =
            &mut *inner;
        if *without_room > 0 && *lost == 0 {
            *without_room -= 1;
            let (outcome, cause) = (Outcome::NotExecuted, FailureCause::DiskFull);
            return Err(CommandFailure::new(outcome, cause, "the disks are full"));
        }
        if *refused > 0 {
            *refused -= 1;
            return Err(CommandFailure::new(Outcome::NotExecuted, FailureCause::Busy, "no room"));
        }
        *seq += 1;
        let id = MsgId { sender: Pid(0), seq: *seq };
        let mut answer = ServiceAnswer::borrowed(Outcome::Unknown, b"");
        for shard in dst.iter() {
            positions[shard.index()] += 1;
            let position = positions[shard.index()];
            let taken = executor.deliver(shard, position, id, dst, command, &mut |a| {
                answer = ServiceAnswer::borrowed(a.outcome, a.bytes).into_owned();
            });
            assert_eq!(taken, Ok(DeliveryResult::Taken));
        }
        let loses = *lost > 0;
        *lost -= u32::from(loses);
        if let Some(withheld) = withheld {
            withheld.push((done, answer));
            return Ok(());
        }
        drop(inner);
        if loses {
            let (outcome, cause) = (Outcome::Unknown, FailureCause::Other);
            done(Err(CommandFailure::new(outcome, cause, "no answer came")));
        } else {
            done(Ok(answer));
        }
        Ok(())
    }
}

/// A cluster that always serves.
pub(crate) struct AlwaysReady;

impl ServerStatus for AlwaysReady {
    fn node(&self) -> String {
        "local".into()
    }

    fn protocol(&self) -> String {
        "none".into()
    }

    fn shards(&self) -> Vec<ShardStatus> {
        let none = |shard| ShardStatus {
            shard,
            leader: None,
            replicas: (1, 1),
            applied: 0,
            waiting: 0,
            keys: 0,
            expiring: 0,
            due_ms: None,
            has_chore: false,
            used_bytes: 0,
            budget_bytes: 0,
            parts_bytes: 0,
        };
        vec![none(Gid(0))]
    }

    fn ready(&self) -> Result<(), String> {
        Ok(())
    }
}

//! Reads that are not ordered, as workers answer them.
//!
//! One that is as good as an ordered read is of one shard, and takes its place in that shard's queue
//! ([`LocalReadRequest`]). One that [may be old](Executor::peek) may be of several shards, and must see what its client
//! wrote in any. It takes its place in the queues of all shards that it looks at, and of those in which it is to be
//! seen whether what was written has run; all of them stand while it is answered, as for a command of several shards. So it
//! sees each of its shards as it was at some place of its order. If something that was written has not run, it is asked
//! again later, behind more.
//!
//! [`Executor::peek`]: super::super::Executor::peek
//! [may be old]: super::super::Executor::peek

use super::super::Limits;
use super::super::local_read::{
    LocalRead, LocalReadRequest, LocalReadReturn, OnLocalRead, OnShardRead,
};
use super::super::sessions::AwaitedWrite;
use super::super::shard_state::{self, ShardState};
use super::{PoolShared, ShardSlot, Worker, WorkerPool, WorkerTask, lock};
use crate::machine::{ExecutionPoint, ShardPosition, ShardedMachine};
use amcast_core::{GroupSet, MsgId};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Reads whose answers are handed back together, at most; and their bytes.
const LOOKED_MAX: usize = 64;
const LOOKED_BYTES: usize = 64 << 10;

/// The result of a read that may be stale, not collected yet.
pub(super) struct StaleRead {
    peeking: Arc<PendingLocalRead>,
    peek: LocalRead,
    bytes: Box<[u8]>,
}

/// A read that may be old, on its way to all shards that have a part in it.
pub(in crate::executor) struct PendingLocalRead {
    /// The caller's number of it.
    number: u64,
    id: MsgId,
    /// The shards that it looks at.
    dst: GroupSet,
    /// These, and those of `written`, in ascending order.
    places: Vec<ShardPosition>,
    /// The writes that must have run.
    written: Vec<AwaitedWrite>,
    command: Box<[u8]>,
    /// Shards that have not reached it.
    pub(super) missing: AtomicUsize,
}

impl PendingLocalRead {
    /// A read that its caller calls `number`, with its message.
    pub(in crate::executor) fn new(
        number: u64,
        id: MsgId,
        dst: GroupSet,
        places: Vec<ShardPosition>,
        written: Vec<AwaitedWrite>,
        command: &[u8],
    ) -> Self {
        let (command, missing) = (command.into(), AtomicUsize::new(places.len()));
        Self { number, id, dst, places, written, command, missing }
    }

    /// Answers it, with the data of its places, unless something that was written has not run.
    fn run<M: ShardedMachine>(
        &self,
        machine: &M,
        sides: &mut [&mut ShardState<M::Part>],
        answer: &mut Vec<u8>,
    ) -> LocalRead {
        let has_run = |wrote: &AwaitedWrite| {
            let at = self.places.iter().position(|place| place.shard == wrote.shard);
            at.is_some_and(|at| sides[at].sessions.has_run(wrote))
        };
        if !self.written.iter().all(has_run) {
            return LocalRead::NotYet;
        }
        let is_seen = |place: &ShardPosition| self.dst.contains(place.shard);
        let places: Vec<ShardPosition> = self.places.iter().copied().filter(is_seen).collect();
        let seen = sides.iter_mut().zip(&self.places).filter(|(_, place)| is_seen(place));
        let mut parts: Vec<&mut M::Part> = seen.map(|(side, _)| &mut side.part).collect();
        let Self { id, dst, .. } = *self;
        let exact = GroupSet::EMPTY;
        let at = ExecutionPoint { id, dst, places: &places, exact, read_only: true };
        LocalRead::Answered(machine.apply(&at, &mut parts, &self.command, answer))
    }
}

impl<M: ShardedMachine> PoolShared<M> {
    /// Hands back the results of reads.
    pub(super) fn hand_back(&self, from: &mut Vec<LocalReadReturn>) {
        if from.is_empty() {
            return;
        }
        let mut looked = lock(&self.looked);
        looked.append(from);
        drop(looked);
        // The collector clears the flag first.
        if !self.any_looked.swap(true, Ordering::AcqRel) {
            (self.wake)();
        }
    }

    /// Hands back the result of a read that may be old.
    fn hand_back_peeked(&self, peeked: StaleRead) {
        lock(&self.peeked).push(peeked);
        if !self.any_peeked.swap(true, Ordering::AcqRel) {
            (self.wake)();
        }
    }
}

impl<M: ShardedMachine> WorkerPool<M> {
    /// Whether it takes no more reads, so that there is room for commands.
    fn is_full_of_reads(&self) -> bool {
        let Limits { running, running_bytes, .. } = self.shared.limits;
        let bytes = self.open_bytes + self.shared.answer_bytes.load(Ordering::Relaxed);
        self.reads > 0 && (self.reads >= running / 2 || bytes >= running_bytes / 2)
            || self.is_full()
    }

    /// Answers a read behind all that its shard was given, now or once a worker comes to it. Not now while it is not
    /// known what became of a read in front of it: that one may have to be ordered, and would be answered of a later moment.
    pub(in crate::executor) fn read(
        &mut self,
        look: LocalReadRequest,
        command: &[u8],
        answer: &mut Vec<u8>,
    ) -> LocalRead {
        let shard = look.place.shard.index();
        let done = self.done(shard);
        let is_next = self.is_done(shard) && self.unrun[shard].reads == 0;
        if is_next && self.shared.machine.is_short(command) {
            let mut side = self.shared.shards[shard].ask();
            return look.run(&*self.shared.machine, &mut side.part, command, answer);
        }
        if self.is_full_of_reads() {
            return LocalRead::Busy;
        }
        self.reads += 1;
        self.open += 1;
        self.open_bytes += command.len();
        self.unrun[shard].sent(done, None, 0);
        self.unrun[shard].reads += 1;
        let inbox = shard % self.gathered.len();
        self.gathered[inbox].push((shard, WorkerTask::Read(look, command.into())));
        LocalRead::Later
    }

    /// Sees to it that the workers come to the reads that were given.
    pub(in crate::executor) fn flush(&mut self) {
        for (inbox, gathered) in self.shared.inboxes.iter().zip(&mut self.gathered) {
            if !gathered.is_empty() {
                inbox.put(gathered, None);
            }
        }
    }

    /// Reports the results of reads that were given; whether there was any.
    pub(in crate::executor) fn collect_reads(&mut self, on_read: OnShardRead<'_>) -> bool {
        if !self.shared.any_looked.swap(false, Ordering::AcqRel) {
            return false;
        }
        let looked = std::mem::take(&mut *lock(&self.shared.looked));
        self.reads -= looked.len();
        self.open -= looked.len();
        for LocalReadReturn { shard, number, peek, ref bytes, asked } in looked {
            self.open_bytes -= asked;
            self.unrun[shard.index()].reads -= 1;
            self.shared.answer_bytes.fetch_sub(bytes.len(), Ordering::Relaxed);
            on_read(shard, number, peek, bytes);
        }
        true
    }

    /// Answers a read that may be stale, now or once all its shards have reached it. Not now while
    /// the result of a read in front of it is unknown: that read may have to be repeated, and is
    /// answered at a later moment then.
    pub(in crate::executor) fn peek(
        &mut self,
        peeking: PendingLocalRead,
        answer: &mut Vec<u8>,
    ) -> LocalRead {
        if let [place] = peeking.places[..]
            && self.is_done(place.shard.index())
            && self.unrun[place.shard.index()].reads == 0
            && self.shared.machine.is_short(&peeking.command)
        {
            let mut side = self.shared.shards[place.shard.index()].ask();
            return peeking.run(&*self.shared.machine, &mut [&mut side], answer);
        }
        if self.is_full_of_reads() {
            return LocalRead::Busy;
        }
        self.reads += 1;
        self.open += 1;
        self.open_bytes += peeking.command.len();
        let peeking = Arc::new(peeking);
        for shard in peeking.places.iter().map(|place| place.shard.index()) {
            let done = self.done(shard);
            self.unrun[shard].sent(done, None, 0);
            self.unrun[shard].reads += 1;
            let inbox = shard % self.gathered.len();
            self.gathered[inbox].push((shard, WorkerTask::LocalRead(Arc::clone(&peeking))));
        }
        LocalRead::Later
    }

    /// Reports the results of reads that may be old; whether there was any.
    pub(in crate::executor) fn collect_peeks(&mut self, on_peek: OnLocalRead<'_>) -> bool {
        if !self.shared.any_peeked.swap(false, Ordering::AcqRel) {
            return false;
        }
        let peeked = std::mem::take(&mut *lock(&self.shared.peeked));
        self.reads -= peeked.len();
        self.open -= peeked.len();
        for StaleRead { peeking, peek, bytes } in peeked {
            self.open_bytes -= peeking.command.len();
            self.shared.answer_bytes.fetch_sub(bytes.len(), Ordering::Relaxed);
            peeking.places.iter().for_each(|place| self.unrun[place.shard.index()].reads -= 1);
            on_peek(peeking.number, peek, bytes.into_vec());
        }
        true
    }
}

impl<M: ShardedMachine> Worker<'_, M> {
    /// Answers a read, unless many bytes of answers wait already: nobody needs its own just now.
    pub(super) fn look(
        &mut self,
        slot: &ShardSlot<M::Part>,
        look: LocalReadRequest,
        command: &[u8],
    ) {
        let PoolShared { machine, limits, answer_bytes, .. } = self.shared;
        self.scratch.clear();
        let peek = match answer_bytes.load(Ordering::Relaxed) < limits.running_bytes {
            true => look.run(&**machine, &mut slot.worker().part, command, &mut self.scratch),
            false => LocalRead::Busy,
        };
        let bytes: Box<[u8]> = self.scratch[..].into();
        shard_state::keep_small(&mut self.scratch);
        answer_bytes.fetch_add(bytes.len(), Ordering::Relaxed);
        let (shard, asked) = (look.place.shard, command.len());
        let is_large = bytes.len() >= LOOKED_BYTES;
        self.looked.push(LocalReadReturn { shard, number: look.number, peek, bytes, asked });
        if is_large || self.looked.len() >= LOOKED_MAX {
            self.shared.hand_back(&mut self.looked);
        }
    }

    /// Answers a read that may be stale, which all its shards have reached, and lets the others
    /// continue.
    pub(super) fn peek(&mut self, last: usize, peeking: &Arc<PendingLocalRead>) -> Vec<usize> {
        let shared = self.shared;
        shared.hand_back(&mut self.looked);
        let shards = || peeking.places.iter().map(|p| &shared.shards[p.shard.index()]);
        let mut guards: Vec<_> = shards().map(ShardSlot::worker).collect();
        let mut sides: Vec<&mut ShardState<M::Part>> =
            guards.iter_mut().map(|g| &mut **g).collect();
        self.scratch.clear();
        let has_room = shared.answer_bytes.load(Ordering::Relaxed) < shared.limits.running_bytes;
        let peek = match has_room {
            true => peeking.run(&*shared.machine, &mut sides, &mut self.scratch),
            false => LocalRead::Busy,
        };
        drop(guards);
        shards().for_each(|slot| _ = slot.done.fetch_add(1, Ordering::Release));
        let bytes: Box<[u8]> = self.scratch[..].into();
        shard_state::keep_small(&mut self.scratch);
        shared.answer_bytes.fetch_add(bytes.len(), Ordering::Relaxed);
        shared.hand_back_peeked(StaleRead { peeking: Arc::clone(peeking), peek, bytes });
        self.others_go_on(last, &peeking.places)
    }
}

//! Threads that run commands, so that shards are worked on at the same time.
//!
//! Shards are dealt to the workers. The thread that delivers gives each command its turn as if it would run there
//! and then, and puts it into the queues of all its shards at one moment. A worker takes its shards' queues in
//! order. A command of one shard runs when it is reached. A command of several runs when all its shards have
//! reached it: the last worker to come runs it on all of them; until then these shards wait while their workers
//! continue with others.
//!
//! # Why the answers are the same as without workers
//!
//! Turns are given one after the other, in an order in which the inline executor could have run the commands. Each
//! shard runs its commands in the order of their turns, and a command of several shards while all of them stand. So
//! two commands that share a shard run in the order of their turns, in all shards that they share, and each sees a
//! shard as it would see it inline. Commands that share no shard see nothing of each other. Hence answers and state
//! are those of the inline executor. No cycle of waiting can arise: of all commands that have not run, the one whose
//! turn was first is at the head of all its queues.
//!
//! # Why it stays linearizable
//!
//! A command has its turn only after it was delivered in all its shards, as inline, and its answer
//! leaves after it ran. The argument of [the executor](super) asks for no more.
//!
//! # A snapshot
//!
//! It is put into all queues at one moment, like a command of all shards, but none of them needs to
//! wait for another: commands that had their turn before it run before it in every shard, and those that come after
//! runs after it. So the shards' captures are one state, although each is made at its own moment.
//!
//! # Reads that are not ordered
//!
//! A [`LocalReadRequest`] goes through its shard's queue like a command of one shard, behind all that had its turn there before;
//! nothing that it conflicts with waits for its turn then. So it sees just what a command would see that the shard
//! delivered next, and [`Executor::peek_one`](super::Executor::peek_one) says why that is linearizable. Where the queue
//! is empty, all that had its turn has run: a read that takes a moment is answered by the delivering thread at
//! once, which would only wait for the worker to do the same. A read counts towards the pool's bounds like a command,
//! but reads take no more than half of them, so that commands are taken all the time. Those of one round of the
//! delivering thread wake a worker once, and so do their answers the delivering thread.
//!
//! Reads that may be old go the same way, through the queues of all shards that they look at or that their clients wrote
//! to ([`reads`]).
//!
//! # Locks
//!
//! Each shard's data is behind a lock, which tells the compiler a fact that the queues already ensure: only
//! the worker that runs a command in the shard uses it. The one other user is the delivering thread,
//! for a piece of a snapshot, and for a read where the queue is empty. It asks for the shard first, so that it waits
//! for one command at the most, as it would without workers, and a worker waits for one piece.
//!
//! # Bounds
//!
//! Commands given and not collected are bounded by [`Limits::running`] and [`Limits::running_bytes`]; beyond that
//! nothing is delivered. One delivery may set free all that waited for it, and answers are only counted once they
//! are there: both limits may be passed by what the shards' waiting commands come to.
//!
//! # Cost
//!
//! A command passes two queues, is copied once, and both threads may need to be woken. This is more
//! than a small command costs; it pays where commands are heavy or cores are many. See [`workers`](super::workers).

mod reads;

use super::local_read::{LocalReadRequest, LocalReadReturn};
use super::observer::SharedObserver;
use super::sessions::ShardProgress;
use super::shard_state::{self, SessionSweep, ShardState, Turn};
use super::{
    AwaitedAnswers, CommandAnswer, ExecutionDecision, Limits, OnCommandAnswer, ShardFigures,
    is_awaited,
};
use crate::digest::is_point;
use crate::envelope::Envelope;
use crate::machine::{ShardPosition, ShardedMachine};
use amcast_core::{Gid, GroupSet, MsgId, Outcome};
pub(super) use reads::PendingLocalRead;
use reads::StaleRead;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};
use std::thread::JoinHandle;

/// Called by a worker when there are answers again, to have its node's loop come round soon. Called from any thread; must
/// not block.
pub type WakeHandle = Arc<dyn Fn() + Send + Sync>;

/// Looks into an empty inbox before a worker sleeps: waking it takes longer than these.
const LOOKS: usize = 200;

/// A command that had its turn.
pub(super) struct AdmittedCommand {
    pub(super) id: MsgId,
    pub(super) dst: GroupSet,
    pub(super) judged: ExecutionDecision,
    pub(super) progress: ShardProgress,
    pub(super) sweep: SessionSweep,
    /// By how much it may make what each of its shards takes grow.
    pub(super) growth: u64,
    pub(super) payload: Arc<[u8]>,
}

/// A command of several shards, on its way to all of them.
struct Rendezvous {
    job: AdmittedCommand,
    places: Vec<ShardPosition>,
    /// Shards that have not reached it.
    missing: AtomicUsize,
}

enum WorkerTask {
    /// A command of one shard.
    One(Box<(AdmittedCommand, ShardPosition)>),
    /// A command of several.
    Many(Arc<Rendezvous>),
    /// A read that is not ordered.
    Read(LocalReadRequest, Box<[u8]>),
    /// One that may be old, of one shard or of several.
    LocalRead(Arc<PendingLocalRead>),
    /// A snapshot begins.
    Capture,
    /// A snapshot is forgotten.
    Release,
    /// The command for which the shard waited has run.
    GoOn,
}

/// The result of a command's turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PooledResult {
    /// An answer.
    Answer,
    /// The digest at a digest point.
    Digest,
    /// It was not run, since nobody waits for its answer.
    Nothing,
}

/// The result of a command that was not collected.
struct PooledAnswer {
    id: MsgId,
    session: u64,
    request: u64,
    outcome: Outcome,
    bytes: Box<[u8]>,
    result: PooledResult,
    /// Bytes of the command.
    asked: usize,
}

/// The tasks of a worker, each with its shard.
#[derive(Default)]
struct WorkerInbox {
    tasks: Mutex<WorkerTasks>,
    filled: Condvar,
    /// Whether there are tasks, to be looked at without the lock.
    any: AtomicBool,
}

#[derive(Default)]
struct WorkerTasks {
    list: VecDeque<(usize, WorkerTask)>,
    sleeps: bool,
    stop: bool,
}

impl WorkerInbox {
    /// Puts tasks behind the others: all that `gathered` has, and then `last`.
    fn put(&self, gathered: &mut Vec<(usize, WorkerTask)>, last: Option<(usize, WorkerTask)>) {
        let mut tasks = lock(&self.tasks);
        tasks.list.extend(gathered.drain(..).chain(last));
        self.any.store(true, Ordering::Release);
        if std::mem::take(&mut tasks.sleeps) {
            drop(tasks);
            self.filled.notify_one();
        }
    }

    /// Waits for tasks and moves them to `to`; false once the worker is to stop.
    fn take(&self, to: &mut VecDeque<(usize, WorkerTask)>) -> bool {
        for _ in 0..LOOKS {
            if self.any.load(Ordering::Acquire) {
                break;
            }
            std::hint::spin_loop();
        }
        let mut tasks = lock(&self.tasks);
        loop {
            if tasks.stop {
                return false;
            }
            if !tasks.list.is_empty() {
                self.any.store(false, Ordering::Release);
                std::mem::swap(&mut tasks.list, to);
                return true;
            }
            tasks.sleeps = true;
            tasks = self.filled.wait(tasks).expect(PANICKED);
        }
    }

    fn stop(&self) {
        // The flag is set for a worker that panicked, too; its lock does not matter any more.
        match self.tasks.lock() {
            Ok(mut tasks) => tasks.stop = true,
            Err(poisoned) => poisoned.into_inner().stop = true,
        }
        self.filled.notify_one();
    }
}

const PANICKED: &str = "a thread that executes commands panicked";

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect(PANICKED)
}

/// One shard, as its worker and the delivering thread share it.
struct ShardSlot<P> {
    side: Mutex<ShardState<P>>,
    /// Whether the delivering thread waits for the lock.
    asked_for: AtomicBool,
    /// Tasks that were done.
    done: AtomicU64,
    /// The shard's figures, as its last command left them.
    items: AtomicUsize,
    expiring: AtomicUsize,
    /// [`ShardFigures::due_ms`]; the highest number for none.
    due_ms: AtomicU64,
    kept: AtomicUsize,
    executed: AtomicU64,
    has_chore: AtomicBool,
    used_bytes: AtomicU64,
    budget_bytes: AtomicU64,
}

impl<P: crate::machine::MachinePart> ShardSlot<P> {
    fn new(side: ShardState<P>) -> Self {
        let it = Self {
            side: Mutex::new(side),
            asked_for: AtomicBool::new(false),
            done: AtomicU64::new(0),
            items: AtomicUsize::new(0),
            expiring: AtomicUsize::new(0),
            due_ms: AtomicU64::new(u64::MAX),
            kept: AtomicUsize::new(0),
            executed: AtomicU64::new(0),
            has_chore: AtomicBool::new(false),
            used_bytes: AtomicU64::new(0),
            budget_bytes: AtomicU64::new(0),
        };
        it.tell(&lock(&it.side));
        it
    }

    /// The shard's data, for a worker: the delivering thread goes first.
    fn worker(&self) -> MutexGuard<'_, ShardState<P>> {
        while self.asked_for.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        lock(&self.side)
    }

    /// The same for the delivering thread.
    fn ask(&self) -> MutexGuard<'_, ShardState<P>> {
        self.asked_for.store(true, Ordering::Release);
        let side = self.side.lock();
        self.asked_for.store(false, Ordering::Release);
        side.expect(PANICKED)
    }

    fn tell(&self, side: &ShardState<P>) {
        let holds = ShardFigures::of(side);
        let ShardFigures { items, expiring, due_ms, kept, executed, has_chore, .. } = holds;
        self.used_bytes.store(holds.used_bytes, Ordering::Relaxed);
        self.budget_bytes.store(holds.budget_bytes, Ordering::Relaxed);
        self.items.store(items, Ordering::Relaxed);
        self.expiring.store(expiring, Ordering::Relaxed);
        self.due_ms.store(due_ms.unwrap_or(u64::MAX), Ordering::Relaxed);
        self.kept.store(kept, Ordering::Relaxed);
        self.executed.store(executed, Ordering::Relaxed);
        self.has_chore.store(has_chore, Ordering::Relaxed);
    }
}

struct PoolShared<M: ShardedMachine> {
    machine: Arc<M>,
    limits: Limits,
    shards: Vec<ShardSlot<M::Part>>,
    inboxes: Vec<WorkerInbox>,
    answers: Mutex<Vec<PooledAnswer>>,
    /// Selects the commands that are run although they change nothing, if not all are.
    awaits: OnceLock<AwaitedAnswers>,
    looked: Mutex<Vec<LocalReadReturn>>,
    /// Whether there are any of these: saves the delivering thread the lock.
    any_looked: AtomicBool,
    /// The same of reads that may be old.
    peeked: Mutex<Vec<StaleRead>>,
    any_peeked: AtomicBool,
    /// Bytes of the answers, of reads too.
    answer_bytes: AtomicUsize,
    wake: WakeHandle,
    witness: SharedObserver,
    panicked: AtomicBool,
}

impl<M: ShardedMachine> PoolShared<M> {
    fn answer(&self, answer: PooledAnswer) {
        self.answer_bytes.fetch_add(answer.bytes.len(), Ordering::Relaxed);
        let mut answers = lock(&self.answers);
        answers.push(answer);
        let first = answers.len() == 1;
        drop(answers);
        if first {
            (self.wake)();
        }
    }
}

/// Positions in front of the commands of one shard that had their turn and have not run, as far as
/// they can be the lowest: ascending, each with the number of its task.
#[derive(Default)]
struct PendingTasks {
    sent: u64,
    befores: VecDeque<(u64, u64)>,
    /// By how much each of those that may make the shard's items take more may, with the number of its task, and the
    /// sum.
    growths: VecDeque<(u64, u64)>,
    growth: u128,
    /// Reads that it was given and that are not collected.
    reads: usize,
}

impl PendingTasks {
    fn sent(&mut self, done: u64, before: Option<u64>, growth: u64) {
        while let Some((_, ran)) = self.growths.front().filter(|(task, _)| *task < done) {
            self.growth -= u128::from(*ran);
            self.growths.pop_front();
        }
        if growth > 0 {
            self.growths.push_back((self.sent, growth));
            self.growth += u128::from(growth);
        }
        while self.befores.front().is_some_and(|(task, _)| *task < done) {
            self.befores.pop_front();
        }
        if let Some(before) = before {
            while self.befores.back().is_some_and(|(_, last)| *last >= before) {
                self.befores.pop_back();
            }
            self.befores.push_back((self.sent, before));
        }
        self.sent += 1;
    }
}

/// The workers, and their tasks.
pub(super) struct WorkerPool<M: ShardedMachine> {
    shared: Arc<PoolShared<M>>,
    threads: Vec<JoinHandle<()>>,
    unrun: Vec<PendingTasks>,
    /// Reads that were given and not put into the inboxes yet, for each of these.
    gathered: Vec<Vec<(usize, WorkerTask)>>,
    /// Reads that were given and not collected.
    reads: usize,
    /// Commands and reads that were given and not answered to the caller.
    open: usize,
    /// Their bytes.
    open_bytes: usize,
    /// The digests at digest points, with their messages, since the last call.
    digests: Vec<(MsgId, Box<[u8]>)>,
    /// The snapshot that is open: for each shard, how many tasks must be done before it was begun there.
    snapshot: Vec<u64>,
    /// Whether it is broken on purpose: reads do not wait for the commands in front of them.
    #[cfg(feature = "inspection")]
    pub(super) jumps: bool,
}

impl<M: ShardedMachine> WorkerPool<M> {
    pub(super) fn start(
        machine: Arc<M>,
        limits: Limits,
        sides: Vec<ShardState<M::Part>>,
        workers: usize,
        (wake, witness): (WakeHandle, SharedObserver),
    ) -> std::io::Result<Self> {
        let shards = sides.len();
        let shared = Arc::new(PoolShared {
            machine,
            limits,
            shards: sides.into_iter().map(ShardSlot::new).collect(),
            inboxes: (0..workers.min(shards)).map(|_| WorkerInbox::default()).collect(),
            answers: Mutex::new(Vec::new()),
            awaits: OnceLock::new(),
            looked: Mutex::new(Vec::new()),
            any_looked: AtomicBool::new(false),
            peeked: Mutex::new(Vec::new()),
            any_peeked: AtomicBool::new(false),
            answer_bytes: AtomicUsize::new(0),
            wake,
            witness,
            panicked: AtomicBool::new(false),
        });
        let unrun = (0..shards).map(|_| PendingTasks::default()).collect();
        let gathered = shared.inboxes.iter().map(|_| Vec::new()).collect();
        let (threads, snapshot) = (Vec::new(), Vec::new());
        let reads = 0;
        let open = 0;
        let open_bytes = 0;
        let digests = Vec::new();
        let mut it = Self {
            shared,
            threads,
            unrun,
            gathered,
            reads,
            open,
            open_bytes,
            digests,
            snapshot,
            #[cfg(feature = "inspection")]
            jumps: false,
        };
        for me in 0..it.shared.inboxes.len() {
            let shared = it.shared.clone();
            let thread = std::thread::Builder::new().name(format!("execute{me}"));
            it.threads.push(thread.spawn(move || Worker::new(&shared, me).work())?);
        }
        Ok(it)
    }

    /// Of commands that change nothing only those are run from now on that are awaited. Once.
    pub(super) fn answer_only(&self, awaits: AwaitedAnswers) {
        assert!(self.shared.awaits.set(awaits).is_ok(), "it is set once");
    }

    pub(super) fn is_full(&self) -> bool {
        let Limits { running, running_bytes, .. } = self.shared.limits;
        let bytes = self.open_bytes + self.shared.answer_bytes.load(Ordering::Relaxed);
        self.open >= running || (self.open > 0 && bytes >= running_bytes)
    }

    pub(super) fn holds(&self, shard: Gid) -> ShardFigures {
        let slot = &self.shared.shards[shard.index()];
        ShardFigures {
            items: slot.items.load(Ordering::Relaxed),
            expiring: slot.expiring.load(Ordering::Relaxed),
            due_ms: Some(slot.due_ms.load(Ordering::Relaxed)).filter(|ms| *ms < u64::MAX),
            kept: slot.kept.load(Ordering::Relaxed),
            executed: slot.executed.load(Ordering::Relaxed),
            has_chore: slot.has_chore.load(Ordering::Relaxed),
            used_bytes: slot.used_bytes.load(Ordering::Relaxed),
            budget_bytes: slot.budget_bytes.load(Ordering::Relaxed),
        }
    }

    /// The lowest position in front of a command of `shard` that has not run, if there is one.
    pub(super) fn before(&self, shard: Gid) -> Option<u64> {
        let done = self.done(shard.index());
        let befores = &self.unrun[shard.index()].befores;
        befores.iter().find(|(task, _)| *task >= done).map(|(_, before)| *before)
    }

    fn done(&self, shard: usize) -> u64 {
        self.shared.shards[shard].done.load(Ordering::Acquire)
    }

    /// The most by which commands that were given to `shard`, and may not have run, make its items grow.
    pub(super) fn growth(&self, shard: Gid) -> u128 {
        let (done, unrun) = (self.done(shard.index()), &self.unrun[shard.index()]);
        let ran = unrun.growths.iter().take_while(|(task, _)| *task < done);
        unrun.growth - ran.map(|(_, growth)| u128::from(*growth)).sum::<u128>()
    }

    fn put(&mut self, shard: usize, task: WorkerTask, before: Option<u64>, growth: u64) {
        let done = self.done(shard);
        self.unrun[shard].sent(done, before, growth);
        let inbox = shard % self.gathered.len();
        self.shared.inboxes[inbox].put(&mut self.gathered[inbox], Some((shard, task)));
    }

    /// Whether all has run that the shard was given.
    pub(super) fn is_done(&self, shard: usize) -> bool {
        #[cfg(feature = "inspection")]
        if self.jumps {
            return true;
        }
        self.done(shard) == self.unrun[shard].sent
    }

    /// Has a command run.
    pub(super) fn run(&mut self, job: AdmittedCommand, places: &[(ShardPosition, u64)]) {
        self.open += 1;
        self.open_bytes += job.payload.len();
        if let [(place, before)] = *places {
            let growth = job.growth;
            let task = WorkerTask::One(Box::new((job, place)));
            return self.put(place.shard.index(), task, Some(before), growth);
        }
        let (missing, growth) = (AtomicUsize::new(places.len()), job.growth);
        let just_places = places.iter().map(|(place, _)| *place).collect();
        let rendezvous = Arc::new(Rendezvous { job, places: just_places, missing });
        for (place, before) in places {
            self.put(
                place.shard.index(),
                WorkerTask::Many(rendezvous.clone()),
                Some(*before),
                growth,
            );
        }
    }

    /// Gives the answers that there are; whether there were any.
    pub(super) fn collect(&mut self, on_answer: OnCommandAnswer<'_>) -> bool {
        assert!(!self.shared.panicked.load(Ordering::Acquire), "{PANICKED}");
        let answers = std::mem::take(&mut *lock(&self.shared.answers));
        let any = !answers.is_empty();
        self.open -= answers.len();
        for PooledAnswer { id, session, request, outcome, bytes, result, asked } in answers {
            self.open_bytes -= asked;
            self.shared.answer_bytes.fetch_sub(bytes.len(), Ordering::Relaxed);
            match result {
                PooledResult::Digest => self.digests.push((id, bytes)),
                PooledResult::Answer => {
                    on_answer(CommandAnswer { id, session, request, outcome, bytes: &bytes });
                }
                PooledResult::Nothing => {}
            }
        }
        any
    }

    /// The digests at the digest points whose answers were collected.
    pub(super) fn take_digests(&mut self) -> Vec<(MsgId, Box<[u8]>)> {
        std::mem::take(&mut self.digests)
    }

    pub(super) fn capture(&mut self) {
        self.snapshot.clear();
        for shard in 0..self.unrun.len() {
            self.put(shard, WorkerTask::Capture, None, 0);
            self.snapshot.push(self.unrun[shard].sent);
        }
    }

    pub(super) fn release(&mut self) {
        self.snapshot.clear();
        (0..self.unrun.len()).for_each(|shard| self.put(shard, WorkerTask::Release, None, 0));
    }

    /// Does something to a shard in which the snapshot was begun, behind the command that runs there just
    /// now; none if it was not begun there yet.
    pub(super) fn in_cut<T>(
        &self,
        shard: usize,
        with: impl FnOnce(&mut ShardState<M::Part>) -> T,
    ) -> Option<T> {
        assert!(!self.shared.panicked.load(Ordering::Acquire), "{PANICKED}");
        if self.done(shard) < *self.snapshot.get(shard)? {
            return None;
        }
        let slot = &self.shared.shards[shard];
        let mut side = slot.ask();
        let value = with(&mut side);
        slot.tell(&side);
        Some(value)
    }

    /// Waits until all that was given has run, and then replaces every shard.
    pub(super) fn replace(&mut self, sides: Vec<ShardState<M::Part>>) -> Vec<ShardState<M::Part>> {
        self.flush();
        for shard in 0..self.unrun.len() {
            while self.done(shard) < self.unrun[shard].sent {
                assert!(!self.shared.panicked.load(Ordering::Acquire), "{PANICKED}");
                std::thread::yield_now();
            }
        }
        // The digests of the replaced states do not apply to the new ones.
        for answered in &mut *lock(&self.shared.answers) {
            if answered.result == PooledResult::Digest {
                let bytes = std::mem::take(&mut answered.bytes);
                self.shared.answer_bytes.fetch_sub(bytes.len(), Ordering::Relaxed);
            }
        }
        let swap = |(slot, new): (&ShardSlot<M::Part>, ShardState<M::Part>)| {
            let mut side = lock(&slot.side);
            let old = std::mem::replace(&mut *side, new);
            side.executed = old.executed;
            slot.tell(&side);
            old
        };
        self.shared.shards.iter().zip(sides).map(swap).collect()
    }
}

impl<M: ShardedMachine> Drop for WorkerPool<M> {
    fn drop(&mut self) {
        self.shared.inboxes.iter().for_each(WorkerInbox::stop);
        for thread in self.threads.drain(..) {
            // One that panicked has said so already.
            let _ = thread.join();
        }
    }
}

/// One worker. The tasks of a shard that waits are queued here; they are bounded by all tasks
/// given.
struct Worker<'a, M: ShardedMachine> {
    shared: &'a PoolShared<M>,
    me: usize,
    still: Vec<Option<VecDeque<WorkerTask>>>,
    /// The results of reads since the last ones were returned.
    looked: Vec<LocalReadReturn>,
    /// Reused for each answer.
    scratch: Vec<u8>,
}

/// Says that its worker panicked, when it is dropped by a panic.
struct PanicAlarm<'a>(&'a AtomicBool, &'a WakeHandle);

impl Drop for PanicAlarm<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, Ordering::Release);
            (self.1)();
        }
    }
}

impl<'a, M: ShardedMachine> Worker<'a, M> {
    fn new(shared: &'a PoolShared<M>, me: usize) -> Self {
        let still = shared.shards.iter().map(|_| None).collect();
        Self { shared, me, still, looked: Vec::new(), scratch: Vec::new() }
    }

    fn work(&mut self) {
        let _alarm = PanicAlarm(&self.shared.panicked, &self.shared.wake);
        let mut tasks = VecDeque::new();
        while self.shared.inboxes[self.me].take(&mut tasks) {
            for (shard, task) in tasks.drain(..) {
                match (&mut self.still[shard], task) {
                    (_, WorkerTask::GoOn) => self.go_on(vec![shard]),
                    (Some(later), task) => later.push_back(task),
                    (None, task) => {
                        let moved = self.reach(shard, task);
                        self.go_on(moved);
                    }
                }
            }
            self.shared.hand_back(&mut self.looked);
        }
    }

    /// Lets waiting shards of this worker continue.
    fn go_on(&mut self, mut shards: Vec<usize>) {
        while let Some(shard) = shards.pop() {
            let Some(mut later) = self.still[shard].take() else { continue };
            while let Some(task) = later.pop_front() {
                shards.extend(self.reach(shard, task));
                if let Some(still) = &mut self.still[shard] {
                    *still = later;
                    break;
                }
            }
        }
    }

    /// Runs the next task of `shard`, or waits at it. Returns the shards of this worker that can
    /// continue.
    fn reach(&mut self, shard: usize, task: WorkerTask) -> Vec<usize> {
        let slot = &self.shared.shards[shard];
        match task {
            WorkerTask::One(one) => {
                // The clients of these reads need not wait for a command behind them.
                self.shared.hand_back(&mut self.looked);
                let (job, place) = *one;
                let mut side = slot.worker();
                let answer = self.run(&job, &[place], &mut [&mut side]);
                slot.tell(&side);
                drop(side);
                slot.done.fetch_add(1, Ordering::Release);
                self.shared.answer(answer);
                return Vec::new();
            }
            WorkerTask::Capture => slot.worker().capture(),
            WorkerTask::Release => {
                let mut side = slot.worker();
                side.release();
                slot.tell(&side);
            }
            WorkerTask::GoOn => {}
            WorkerTask::Many(rendezvous) => {
                if rendezvous.missing.fetch_sub(1, Ordering::AcqRel) > 1 {
                    self.still[shard] = Some(VecDeque::new());
                    return Vec::new();
                }
                return self.meet(shard, &rendezvous);
            }
            WorkerTask::Read(look, command) => self.look(slot, look, &command),
            WorkerTask::LocalRead(peeking) => {
                if peeking.missing.fetch_sub(1, Ordering::AcqRel) > 1 {
                    self.still[shard] = Some(VecDeque::new());
                    return Vec::new();
                }
                return self.peek(shard, &peeking);
            }
        }
        slot.done.fetch_add(1, Ordering::Release);
        Vec::new()
    }

    /// Runs a command that all its shards have reached, and lets the others continue.
    fn meet(&mut self, last: usize, rendezvous: &Rendezvous) -> Vec<usize> {
        let shared = self.shared;
        shared.hand_back(&mut self.looked);
        let shards = || rendezvous.places.iter().map(|p| &shared.shards[p.shard.index()]);
        let mut guards: Vec<_> = shards().map(ShardSlot::worker).collect();
        let mut sides: Vec<&mut ShardState<M::Part>> =
            guards.iter_mut().map(|g| &mut **g).collect();
        let answer = self.run(&rendezvous.job, &rendezvous.places, &mut sides);
        for (slot, side) in shards().zip(&guards) {
            slot.tell(side);
        }
        drop(guards);
        shards().for_each(|slot| _ = slot.done.fetch_add(1, Ordering::Release));
        self.shared.answer(answer);
        self.others_go_on(last, &rendezvous.places)
    }

    /// The command for which all these shards waited has run: they continue, `last` by itself.
    /// Returns those of this worker.
    fn others_go_on(&self, last: usize, places: &[ShardPosition]) -> Vec<usize> {
        let mut mine = Vec::new();
        for shard in places.iter().map(|p| p.shard.index()) {
            let worker = shard % self.shared.inboxes.len();
            match shard {
                _ if shard == last => {}
                _ if worker == self.me => mine.push(shard),
                _ => self.shared.inboxes[worker]
                    .put(&mut Vec::new(), Some((shard, WorkerTask::GoOn))),
            }
        }
        mine
    }

    /// Runs a command. Its answer must leave after it counts as done.
    fn run(
        &mut self,
        job: &AdmittedCommand,
        places: &[ShardPosition],
        sides: &mut [&mut ShardState<M::Part>],
    ) -> PooledAnswer {
        let AdmittedCommand { id, dst, judged, progress, sweep, ref payload, .. } = *job;
        let PoolShared { machine, limits, witness, awaits, .. } = self.shared;
        let witness = witness.as_deref();
        let command = Envelope::decode(payload);
        if let ([side], Some((_, body))) = (&*sides, command) {
            machine.look_ahead(&side.part, &mut std::iter::once(body));
        }
        let envelope = command.map(|(envelope, _)| envelope);
        let is_awaited = envelope.is_none_or(|envelope| is_awaited(awaits.get(), &envelope, id));
        let turn = Turn { id, dst, places, judged, progress, sweep, payload, is_awaited, witness };
        let result = match envelope.is_some_and(|e| is_point(&e)) {
            true => PooledResult::Digest,
            false => PooledResult::Answer,
        };
        let mut answered = None;
        let mut on_answer =
            |CommandAnswer { id, session, request, outcome, bytes }: CommandAnswer<'_>| {
                let (bytes, asked) = (bytes.into(), payload.len());
                answered =
                    Some(PooledAnswer { id, session, request, outcome, bytes, result, asked });
            };
        shard_state::run(&**machine, limits, sides, &turn, &mut self.scratch, &mut on_answer);
        answered.unwrap_or_else(|| {
            assert!(!is_awaited, "every command is answered once");
            PooledAnswer {
                id,
                session: 0,
                request: 0,
                outcome: Outcome::NotExecuted,
                bytes: Box::default(),
                result: PooledResult::Nothing,
                asked: payload.len(),
            }
        })
    }
}

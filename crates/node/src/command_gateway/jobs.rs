//! Commands on their way to a gateway's loop: the callers, the bounds, and the notification when
//! there is room again.

use super::{GatewaySink, NoAnswer, OnGatewayAnswer};
use crate::command_bytes::{CommandBytes, SpareBuffers};
use crate::waiting_queue::QueueItem;
use amcast_core::{Gid, GroupSet, ServiceAnswer, Time};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// How much may be under way in a gateway.
#[derive(Clone, Copy, Debug)]
pub(super) struct JobBounds {
    /// Jobs that are not answered.
    pub(super) jobs: usize,
    /// Bytes of their commands' buffers.
    pub(super) bytes: usize,
}

impl JobBounds {
    /// As many as the largest answer times leave use for, and memory for that.
    pub(super) const USUAL: Self = Self { jobs: 16_384, bytes: 256 << 20 };
}

/// The receiver of an answer.
pub(super) enum JobAsker {
    /// The gateway's sink, with this token.
    Sink(u64),
    /// A callback.
    Once(OnGatewayAnswer),
}

/// A command and who waits for its answer.
pub(super) struct GatewayJob {
    pub(super) dst: GroupSet,
    pub(super) payload: CommandBytes,
    /// Whether it changes nothing and need not be ordered.
    pub(super) is_read: bool,
    /// When it was handed in: its patience counts from here.
    pub(super) since: Time,
    pub(super) asker: JobAsker,
}

impl QueueItem for GatewayJob {
    /// The group that orders it first.
    type Line = Gid;

    fn bytes(&self) -> usize {
        self.payload.len()
    }
}

/// A job as it is handed in, without the bytes of its command.
pub(super) struct JobRequest {
    pub(super) dst: GroupSet,
    pub(super) is_read: bool,
    pub(super) since: Time,
    pub(super) asker: JobAsker,
}

/// Where jobs are handed in by any thread, and answered.
pub(super) struct JobTable {
    bounds: JobBounds,
    /// Jobs that are not answered, and bytes that the buffers of their commands have, used or not.
    open: AtomicUsize,
    bytes: AtomicUsize,
    /// A job was refused for want of room since the sink was last told that there is some.
    refused: AtomicBool,
    /// Groups that are known to have lost their majority.
    down: AtomicU64,
    /// Whether the queue holds anything: saves the loop the lock.
    queued: AtomicBool,
    queue: Mutex<JobQueue>,
    sink: OnceLock<Arc<dyn GatewaySink>>,
}

#[derive(Default)]
struct JobQueue {
    jobs: Vec<GatewayJob>,
    /// Buffers of commands that were answered.
    spare: SpareBuffers,
    /// The loop has ended: nothing is taken any more.
    closed: bool,
}

impl JobTable {
    pub(super) fn new(bounds: JobBounds) -> Self {
        Self {
            bounds,
            open: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            refused: AtomicBool::new(false),
            down: AtomicU64::new(0),
            queued: AtomicBool::new(false),
            queue: Mutex::default(),
            sink: OnceLock::new(),
        }
    }

    /// Gives the sink, once.
    pub(super) fn set_sink(&self, sink: Arc<dyn GatewaySink>) {
        assert!(self.sink.set(sink).is_ok(), "a gateway has one sink");
    }

    pub(super) fn sink(&self) -> Option<&Arc<dyn GatewaySink>> {
        self.sink.get()
    }

    /// Whether somebody still waits for the answer to a job.
    pub(super) fn is_awaited(&self, job: &GatewayJob) -> bool {
        match (&job.asker, self.sink()) {
            (JobAsker::Sink(token), Some(sink)) => sink.awaits(*token),
            _ => true,
        }
    }

    /// Jobs that are not answered.
    pub(super) fn open(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }

    pub(super) fn set_down(&self, down: GroupSet) {
        self.down.store(down.0, Ordering::Relaxed);
    }

    fn queue(&self) -> MutexGuard<'_, JobQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a job in, from any thread, with the bytes in `command`; an empty buffer is left in their place.
    ///
    /// # Errors
    /// When it was not taken; no answer follows then, and the bytes are left. After
    /// [`NoAnswer::Busy`] the sink is notified when there is room.
    pub(super) fn hand_in(
        &self,
        request: JobRequest,
        command: &mut Vec<u8>,
    ) -> Result<(), NoAnswer> {
        let down = GroupSet(self.down.load(Ordering::Relaxed));
        if let Some(group) = down.and(request.dst).lowest() {
            return Err(NoAnswer::Down(group));
        }
        let bytes = command.capacity();
        while !self.admit(bytes) {
            self.refused.store(true, Ordering::SeqCst);
            // One of those who are still to be answered sees the flag and tells the sink. If there
            // is none, because all were answered in between, there is room.
            if !self.has_room() {
                return Err(NoAnswer::Busy);
            }
        }
        let mut queue = self.queue();
        if queue.closed {
            drop(queue);
            self.leave(bytes);
            return Err(NoAnswer::Closed);
        }
        let payload = queue.spare.exchange(command);
        let JobRequest { dst, is_read, since, asker } = request;
        queue.jobs.push(GatewayJob { dst, payload, is_read, since, asker });
        self.queued.store(true, Ordering::Release);
        Ok(())
    }

    fn admit(&self, bytes: usize) -> bool {
        let before = self.open.fetch_add(1, Ordering::SeqCst);
        let held = self.bytes.fetch_add(bytes, Ordering::SeqCst);
        let fits = before < self.bounds.jobs && held + bytes <= self.bounds.bytes;
        if !fits {
            self.leave(bytes);
        }
        fits
    }

    fn leave(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::SeqCst);
        self.open.fetch_sub(1, Ordering::SeqCst);
    }

    /// Whether it is worth telling those who were refused: half of everything is free.
    fn has_room(&self) -> bool {
        let bytes = self.bytes.load(Ordering::SeqCst);
        self.open() < self.bounds.jobs / 2 && bytes < self.bounds.bytes / 2
    }

    /// Moves all jobs that were handed in to `to`, in their order, and leaves the buffers in `spare` for later ones.
    pub(super) fn take(&self, to: &mut Vec<GatewayJob>, spare: &mut SpareBuffers) {
        if self.queued.load(Ordering::Relaxed) {
            let mut queue = self.queue();
            queue.spare.refill(spare);
            // Under the lock: what is handed in later sets it again.
            self.queued.store(false, Ordering::Relaxed);
            to.append(&mut queue.jobs);
        }
    }

    /// Takes nothing in any more; what was handed in and not taken.
    pub(super) fn close(&self) -> Vec<GatewayJob> {
        let mut queue = self.queue();
        queue.closed = true;
        std::mem::take(&mut queue.jobs)
    }

    /// Ends a job: tells who asked, and makes room. Its bytes are not needed any more.
    pub(super) fn answer(
        &self,
        job: GatewayJob,
        answer: Result<ServiceAnswer<'_>, NoAnswer>,
    ) -> CommandBytes {
        self.leave(job.payload.capacity());
        match job.asker {
            JobAsker::Once(tell) => tell(answer),
            JobAsker::Sink(token) => {
                if let Some(sink) = self.sink.get() {
                    sink.answer(token, answer);
                }
            }
        }
        let told = !self.refused.load(Ordering::SeqCst) || !self.has_room();
        if !told
            && self.refused.swap(false, Ordering::SeqCst)
            && let Some(sink) = self.sink.get()
        {
            sink.room();
        }
        job.payload
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use amcast_core::Outcome;

    /// Counts the answers.
    #[derive(Default)]
    struct SinkCounts {
        answers: AtomicUsize,
        rooms: AtomicUsize,
    }

    impl GatewaySink for SinkCounts {
        fn answer(&self, _: u64, _: Result<ServiceAnswer<'_>, NoAnswer>) {
            self.answers.fetch_add(1, Ordering::SeqCst);
        }

        fn room(&self) {
            self.rooms.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn table(bounds: JobBounds) -> (JobTable, Arc<SinkCounts>) {
        let (table, counts) = (JobTable::new(bounds), Arc::new(SinkCounts::default()));
        table.set_sink(counts.clone());
        (table, counts)
    }

    fn hand_in(table: &JobTable, token: u64, bytes: usize) -> Result<(), NoAnswer> {
        let (dst, asker) = (GroupSet::one(Gid(1)), JobAsker::Sink(token));
        let request = JobRequest { dst, is_read: false, since: Time(1), asker };
        let mut command = vec![0; bytes];
        let taken = table.hand_in(request, &mut command);
        assert_eq!(command.len(), if taken.is_ok() { 0 } else { bytes });
        taken
    }

    fn take(table: &JobTable) -> Vec<GatewayJob> {
        let mut taken = Vec::new();
        table.take(&mut taken, &mut SpareBuffers::default());
        taken
    }

    #[test]
    fn who_was_refused_hears_of_room_once_and_only_when_half_is_free() {
        let _limit = amcast_test_policy::time_limit();
        let (table, counts) = table(JobBounds { jobs: 8, bytes: 1000 });
        (0..8).for_each(|t| hand_in(&table, t, 1).unwrap());
        for _ in 0..50 {
            assert_eq!(hand_in(&table, 9, 1).unwrap_err(), NoAnswer::Busy);
        }
        let taken = take(&table);
        assert_eq!((taken.len(), table.open()), (8, 8));
        for (n, job) in taken.into_iter().enumerate() {
            assert_eq!(counts.rooms.load(Ordering::SeqCst), usize::from(n > 4), "{n} answered");
            table.answer(job, Ok(ServiceAnswer::borrowed(Outcome::Executed, b"+OK\r\n")));
        }
        assert_eq!(counts.rooms.load(Ordering::SeqCst), 1);
        assert_eq!((counts.answers.load(Ordering::SeqCst), table.open()), (8, 0));
    }

    #[test]
    fn the_bytes_under_way_are_bounded_too() {
        let _limit = amcast_test_policy::time_limit();
        let (table, _) = table(JobBounds { jobs: 100, bytes: 1000 });
        hand_in(&table, 1, 600).unwrap();
        assert_eq!(hand_in(&table, 2, 600).unwrap_err(), NoAnswer::Busy);
        hand_in(&table, 3, 400).unwrap();
    }

    #[test]
    fn a_small_command_in_a_large_buffer_counts_as_the_buffer_that_it_holds() {
        let _limit = amcast_test_policy::time_limit();
        let (table, _) = table(JobBounds { jobs: 100, bytes: 1000 });
        let request = || {
            let (dst, asker) = (GroupSet::one(Gid(1)), JobAsker::Sink(1));
            JobRequest { dst, is_read: false, since: Time(1), asker }
        };
        let in_buffer = |capacity| {
            let mut command = Vec::with_capacity(capacity);
            command.push(7);
            command
        };
        table.hand_in(request(), &mut in_buffer(900)).unwrap();
        assert_eq!(table.hand_in(request(), &mut in_buffer(200)).unwrap_err(), NoAnswer::Busy);
        take(&table).into_iter().for_each(|job| {
            let answer = ServiceAnswer::borrowed(Outcome::Executed, b"");
            table.answer(job, Ok(answer));
        });
        assert_eq!((table.open(), table.bytes.load(Ordering::SeqCst)), (0, 0));
        table.hand_in(request(), &mut in_buffer(1000)).unwrap();
    }

    #[test]
    fn a_group_without_majority_is_refused_at_once_and_others_are_not() {
        let _limit = amcast_test_policy::time_limit();
        let (table, _) = table(JobBounds::USUAL);
        table.set_down(GroupSet::one(Gid(0)));
        hand_in(&table, 1, 1).unwrap();
        table.set_down(GroupSet::one(Gid(1)));
        assert_eq!(hand_in(&table, 2, 1).unwrap_err(), NoAnswer::Down(Gid(1)));
        table.set_down(GroupSet::EMPTY);
        hand_in(&table, 3, 1).unwrap();
        assert_eq!(table.open(), 2);
    }

    #[test]
    fn nothing_is_taken_in_once_the_loop_has_ended() {
        let _limit = amcast_test_policy::time_limit();
        let (table, _) = table(JobBounds::USUAL);
        hand_in(&table, 1, 1).unwrap();
        assert_eq!(table.close().len(), 1);
        assert_eq!(hand_in(&table, 2, 1).unwrap_err(), NoAnswer::Closed);
        assert_eq!(table.open(), 1, "the first is still to be answered");
    }

    #[test]
    fn no_wake_up_is_lost_between_threads_that_are_refused_and_the_one_that_answers() {
        let _limit = amcast_test_policy::time_limit();
        let (table, counts) = table(JobBounds { jobs: 4, bytes: 1 << 20 });
        let table = &table;
        std::thread::scope(|scope| {
            let submitters: Vec<_> = (0..3)
                .map(|_| {
                    let counts = counts.clone();
                    scope.spawn(move || {
                        for n in 0..20_000 {
                            loop {
                                let seen = counts.rooms.load(Ordering::SeqCst);
                                if hand_in(table, n, 1).is_ok() {
                                    break;
                                }
                                // As a connection does: sleep until told. A lost one hangs here.
                                while counts.rooms.load(Ordering::SeqCst) == seen {
                                    std::thread::yield_now();
                                }
                            }
                        }
                    })
                })
                .collect();
            let (mut taken, mut spare) = (Vec::new(), SpareBuffers::default());
            while !submitters.iter().all(|s| s.is_finished()) {
                table.take(&mut taken, &mut spare);
                taken.drain(..).for_each(|job| {
                    let answer = ServiceAnswer::borrowed(Outcome::Executed, b"");
                    spare.put(table.answer(job, Ok(answer)));
                });
                std::thread::yield_now();
            }
        });
        assert_eq!(counts.answers.load(Ordering::SeqCst) + table.open(), 60_000);
    }
}

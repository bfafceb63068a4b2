//! The client side of a service: sends commands to be ordered, and gives back the first answer.
//!
//! A front has a client place of the cluster, and a thread with one loop over the protocol's client
//! process and the mailbox. Anyone in the process hands it jobs ([`Front::submit`]); what it cannot
//! take it refuses at once, so waiting is bounded everywhere.
//!
//! An answer that does not come in time is asked for again with the same bytes in a new message;
//! the executor of the service runs a repeated request once.

use crate::answers::{Mailbox, Places};
use crate::clock;
use crate::record::Recorder;
use crate::seat::{Above, Captured, Seat, SeatError};
use amcast_core::step::Note;
use amcast_core::trace::Event;
use amcast_core::{
    Cluster, Config, ConfigError, Delivery, Entry, GroupSet, MsgId, Pid, Span, Submission, Time,
};
use amcast_memory::{Bell, Directory, Idle, Idler, Lease, Pause};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

/// Jobs that wait to be looked at by the loop.
const QUEUE_MAX: usize = 4096;

/// Jobs that are sent and not answered, or wait for room.
const OPEN_MAX: usize = 16_384;

/// How long an answer may take before it is asked for again; doubled each time.
const RETRY_FIRST: Span = Span::millis(500);

/// How long an answer may take in all.
const PATIENCE: Span = Span::secs(15);

/// The longest a loop sleeps.
const SLEEP_MAX: Span = Span::millis(50);

/// What a front is started with.
pub struct FrontOptions<'a> {
    /// The protocol.
    pub entry: &'a dyn Entry,
    /// The cluster's checked configuration.
    pub config: &'a Config,
    /// The shared memory of the cluster.
    pub directory: &'a Directory,
    /// How it waits when there is nothing to do.
    pub idle: Idle,
    /// Where it writes its history, if anywhere.
    pub record: Option<PathBuf>,
}

/// Why a front could not start.
#[derive(Debug)]
pub enum FrontError {
    /// The configuration.
    Config(ConfigError),
    /// Its process of the protocol.
    Seat(SeatError),
    /// Every client place is taken.
    NoPlace(usize),
    /// Its history or thread.
    Io(std::io::Error),
}

impl fmt::Display for FrontError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(e) => e.fmt(f),
            Self::Seat(e) => e.fmt(f),
            Self::NoPlace(n) => write!(
                f,
                "all {n} client places of the cluster are taken: end another client, or start the \
                 cluster with more (`clients` in its file)"
            ),
            Self::Io(e) => e.fmt(f),
        }
    }
}

impl std::error::Error for FrontError {}

/// Why a job has no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoAnswer {
    /// The front has too much to do; the command was not sent, so it may be tried again.
    Busy,
    /// The command is larger than the protocol takes, in bytes.
    TooLarge(usize),
    /// No answer came in time: whether the command took effect is not known.
    TimedOut,
    /// The front stops: as for `TimedOut`.
    Stopped,
}

impl fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy => f.write_str("too many commands are open; try again"),
            Self::TooLarge(max) => write!(f, "the command is larger than {max} bytes"),
            Self::TimedOut => f.write_str("no answer in time; whether it took effect is not known"),
            Self::Stopped => f.write_str("the cluster stops; whether it took effect is not known"),
        }
    }
}

impl std::error::Error for NoAnswer {}

/// Told the answer, once, from the front's thread: it must be quick and must not wait.
pub type OnAnswer = Box<dyn FnOnce(Result<&[u8], NoAnswer>) + Send>;

/// A command and who waits for its answer.
struct Job {
    dst: GroupSet,
    payload: Box<[u8]>,
    done: OnAnswer,
}

/// A running front. Dropping it stops it; jobs that are open then are answered `Stopped`.
pub struct Front {
    jobs: SyncSender<Job>,
    bell: Bell,
    shared: Arc<Shared>,
    place: u32,
    life: u32,
    payload_max: usize,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    open: AtomicUsize,
}

/// Tells how many commands of a front are open; may outlive it.
#[derive(Clone)]
pub struct OpenCount(Arc<Shared>);

impl OpenCount {
    /// Commands that were taken and are not answered.
    pub fn now(&self) -> usize {
        self.0.open.load(Ordering::Relaxed)
    }
}

impl Front {
    /// Takes a client place and starts the loop.
    ///
    /// # Errors
    /// When no place is free or its memory cannot be set aside.
    pub fn start(options: &FrontOptions<'_>) -> Result<Self, FrontError> {
        let cluster = *options.config.cluster();
        let memory = |e| FrontError::Seat(SeatError::Memory(e));
        let lease = options.directory.lease_any().map_err(memory)?;
        let lease = lease.ok_or(FrontError::NoPlace(cluster.clients()))?;
        let place = lease.place();
        let pid = cluster.client(place as usize);
        let node = options.entry.build(pid, options.config).map_err(FrontError::Config)?;
        let tracing = options.record.is_some();
        let seat = Seat::start(options.directory, &cluster, pid, node, None, tracing);
        let seat = seat.map_err(FrontError::Seat)?;
        let bell = seat.bell().clone();
        let places = Places(cluster);
        let mailbox = Mailbox::open(options.directory, places, place as usize, bell.clone());
        let mailbox = mailbox.map_err(memory)?;
        let recorder = options.record.as_ref().map(|dir| {
            let name = format!("{}", cluster.name(pid));
            Recorder::begin(dir, &name, cluster, &[pid], clock::now())
        });
        let recorder = recorder.transpose().map_err(FrontError::Io)?;
        let shared = Arc::new(Shared::default());
        let (jobs, queue) = sync_channel(QUEUE_MAX);
        let (life, payload_max) = (seat.incarnation(), seat.protocol().payload_max());
        let quiet = Quiet { cluster, recorder };
        let mut work = Work::new(seat, mailbox, queue, Arc::clone(&shared), lease, quiet);
        let idle = options.idle;
        let run = move || work.run(idle);
        let thread = std::thread::Builder::new().name("front".to_string()).spawn(run);
        let thread = Some(thread.map_err(FrontError::Io)?);
        Ok(Self { jobs, bell, shared, place, life, payload_max, thread })
    }

    /// The client place that it has.
    pub fn place(&self) -> u32 {
        self.place
    }

    /// Which life of the place this front is: no other front of the place has or had it.
    pub fn life(&self) -> u32 {
        self.life
    }

    /// The largest command that it takes, in bytes.
    pub fn payload_max(&self) -> usize {
        self.payload_max
    }

    /// Commands that are sent and not answered.
    pub fn open(&self) -> usize {
        self.shared.open.load(Ordering::Relaxed)
    }

    /// Tells how many commands are open, from anywhere.
    pub fn open_count(&self) -> OpenCount {
        OpenCount(Arc::clone(&self.shared))
    }

    /// Multicasts a command to `dst` and tells `done` the answer, later. Never waits.
    ///
    /// # Errors
    /// When the command was not taken; `done` is dropped untold.
    pub fn submit(
        &self,
        dst: GroupSet,
        payload: Box<[u8]>,
        done: OnAnswer,
    ) -> Result<(), NoAnswer> {
        if payload.len() > self.payload_max {
            return Err(NoAnswer::TooLarge(self.payload_max));
        }
        if self.open() >= OPEN_MAX {
            return Err(NoAnswer::Busy);
        }
        self.shared.open.fetch_add(1, Ordering::Relaxed);
        let sent = self.jobs.try_send(Job { dst, payload, done });
        self.bell.ring();
        sent.map_err(|refused| {
            self.shared.open.fetch_sub(1, Ordering::Relaxed);
            match refused {
                TrySendError::Full(_) => NoAnswer::Busy,
                TrySendError::Disconnected(_) => NoAnswer::Stopped,
            }
        })
    }

    /// Multicasts a command and waits for the answer.
    ///
    /// # Errors
    /// As [`NoAnswer`] says.
    pub fn call(&self, dst: GroupSet, payload: &[u8]) -> Result<Vec<u8>, NoAnswer> {
        let (to, from) = sync_channel(1);
        let done = move |answer: Result<&[u8], NoAnswer>| {
            // The caller waits below.
            let _ = to.send(answer.map(<[u8]>::to_vec));
        };
        self.submit(dst, payload.into(), Box::new(done))?;
        from.recv().unwrap_or(Err(NoAnswer::Stopped))
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.bell.ring();
        if let Some(Err(_)) = self.thread.take().map(JoinHandle::join) {
            tracing::error!("the front's loop had panicked");
        }
    }
}

/// A job that is sent.
struct Open {
    job: Job,
    /// Whether later messages carried it again.
    repeated: bool,
    retry_at: Time,
    retry_after: Span,
    give_up_at: Time,
}

/// The loop's state.
struct Work {
    seat: Seat,
    mailbox: Mailbox,
    queue: Receiver<Job>,
    shared: Arc<Shared>,
    above: Quiet,
    /// Jobs that wait for room, and until when.
    waiting: VecDeque<(Job, Time)>,
    /// Jobs by the number of the first message that carried them.
    open: BTreeMap<u64, Open>,
    /// The first number for each later one.
    alias: BTreeMap<u64, u64>,
    next_seq: u64,
    next_check: Time,
    _lease: Lease,
}

impl Work {
    fn new(
        seat: Seat,
        mailbox: Mailbox,
        queue: Receiver<Job>,
        shared: Arc<Shared>,
        lease: Lease,
        above: Quiet,
    ) -> Self {
        let next_seq = (u64::from(seat.incarnation()) << 32) + 1;
        Self {
            seat,
            mailbox,
            queue,
            shared,
            above,
            waiting: VecDeque::new(),
            open: BTreeMap::new(),
            alias: BTreeMap::new(),
            next_seq,
            next_check: Time::ZERO,
            _lease: lease,
        }
    }

    fn run(&mut self, idle: Idle) {
        let mut idler = Idler::new(idle);
        let bell = self.seat.bell().clone();
        self.seat.begin(clock::now(), &mut self.above);
        while !self.shared.stop.load(Ordering::Acquire) {
            if self.round() {
                idler.busy();
                continue;
            }
            if idler.pause() == Pause::Again {
                continue;
            }
            self.above.flush();
            bell.announce();
            if self.round() || self.seat.is_pressing(clock::now()) {
                bell.stay();
                idler.busy();
                continue;
            }
            let now = clock::now();
            let wake = self.seat.deadline().unwrap_or(Time::NEVER).since(now);
            bell.sleep(wake.min(SLEEP_MAX));
        }
        self.end();
    }

    fn round(&mut self) -> bool {
        let now = clock::now();
        let mut busy = self.seat.round(now, &mut self.above);
        let (open, alias, shared) = (&mut self.open, &mut self.alias, &self.shared);
        busy |= self.mailbox.round(&mut |token, bytes| {
            let first = alias.get(&token).copied().unwrap_or(token);
            let Some(done) = open.remove(&first) else { return };
            if done.repeated {
                alias.retain(|_, to| *to != first);
            }
            shared.open.fetch_sub(1, Ordering::Relaxed);
            (done.job.done)(Ok(bytes));
        });
        if now >= self.next_check {
            self.next_check = now + Span::millis(20);
            self.judge(now);
        }
        busy | self.send(now)
    }

    /// Sends what there is room for.
    fn send(&mut self, now: Time) -> bool {
        let mut sent = false;
        loop {
            if self.waiting.is_empty() {
                match self.queue.try_recv() {
                    Ok(job) => self.waiting.push_back((job, now + PATIENCE)),
                    Err(_) => break,
                }
            }
            let Some((job, _)) = self.waiting.front() else { break };
            if self.seat.protocol().room(job.dst, job.payload.len()) == 0 {
                break;
            }
            let Some((job, give_up_at)) = self.waiting.pop_front() else { break };
            let seq = self.multicast(now, job.dst, &job.payload);
            let (retry_at, retry_after) = (now + RETRY_FIRST, RETRY_FIRST);
            let open = Open { job, repeated: false, retry_at, retry_after, give_up_at };
            self.open.insert(seq, open);
            sent = true;
        }
        if sent {
            // A run of submissions ends with another input: now the batch may go out.
            self.seat.round(now, &mut self.above);
        }
        sent
    }

    fn multicast(&mut self, now: Time, dst: GroupSet, payload: &[u8]) -> u64 {
        let seq = self.next_seq;
        self.next_seq += 1;
        self.above.cast(now, self.seat.pid(), seq, dst);
        self.seat.submit(now, Submission { seq, dst, payload }, &mut self.above);
        seq
    }

    /// Asks again for answers that are late, and gives up those that are too late.
    fn judge(&mut self, now: Time) {
        while self.waiting.front().is_some_and(|&(_, give_up_at)| give_up_at <= now) {
            let Some((job, _)) = self.waiting.pop_front() else { break };
            self.shared.open.fetch_sub(1, Ordering::Relaxed);
            // It was never sent.
            (job.done)(Err(NoAnswer::Busy));
        }
        let late: Vec<u64> =
            self.open.iter().filter(|(_, o)| o.retry_at <= now).map(|(&seq, _)| seq).collect();
        for first in late {
            let Some(mut open) = self.open.remove(&first) else { continue };
            if open.give_up_at <= now {
                self.alias.retain(|_, to| *to != first);
                self.shared.open.fetch_sub(1, Ordering::Relaxed);
                (open.job.done)(Err(NoAnswer::TimedOut));
                continue;
            }
            let (dst, bytes) = (open.job.dst, open.job.payload.len());
            if self.seat.protocol().room(dst, bytes) > 0 {
                let seq = self.multicast(now, dst, &open.job.payload);
                self.alias.insert(seq, first);
                open.repeated = true;
                open.retry_after = open.retry_after.times(2);
            }
            open.retry_at = (now + open.retry_after).min(open.give_up_at);
            self.open.insert(first, open);
        }
    }

    fn end(&mut self) {
        self.above.flush();
        let open = std::mem::take(&mut self.open).into_values().map(|open| open.job);
        let waiting = std::mem::take(&mut self.waiting).into_iter().map(|(job, _)| job);
        for job in open.chain(waiting).chain(self.queue.try_iter()) {
            self.shared.open.fetch_sub(1, Ordering::Relaxed);
            (job.done)(Err(NoAnswer::Stopped));
        }
    }
}

/// What a client process asks of its loop: it delivers nothing and has no state.
struct Quiet {
    cluster: Cluster,
    recorder: Option<Recorder>,
}

impl Quiet {
    fn cast(&mut self, t: Time, p: Pid, seq: u64, dst: GroupSet) {
        if let Some(recorder) = &mut self.recorder {
            recorder.event(&Event::Cast { t, p, m: MsgId { sender: p, seq }, dst });
        }
    }

    fn flush(&mut self) {
        if let Some(recorder) = &mut self.recorder {
            recorder.flush();
        }
    }
}

impl Above for Quiet {
    fn deliver(&mut self, _: Time, _: Pid, _: Delivery, _: &[u8]) {}

    fn capture(&mut self, _: Pid, _: Pid) -> Captured {
        Captured { position: 0, bytes: 0 }
    }

    fn piece(&mut self, _: Pid, _: u64, _: u32, _: &mut Vec<u8>) {}

    fn install(&mut self, _: Time, _: Pid, _: u64, _: &[u8], _: bool) {}

    fn note(&mut self, now: Time, p: Pid, note: Note) {
        match (note, &mut self.recorder) {
            (Note::Part(m), Some(recorder)) => recorder.event(&Event::Part { t: now, p, m }),
            (Note::Malformed(peer, what), _) => {
                tracing::warn!("{}: {what}", self.cluster.name(peer));
            }
            _ => {}
        }
    }
}

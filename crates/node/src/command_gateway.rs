//! The client side of a service: sends commands to be ordered, and gives back the first answer.
//!
//! A gateway has a client place of the cluster, and a thread with one loop over the protocol's client
//! process and the reader. Anyone in the process hands it jobs ([`CommandGateway::submit`]); what it cannot
//! take it refuses at once, so waiting is bounded everywhere.
//!
//! An answer that does not come in time is asked for again with the same bytes in a new message;
//! the executor of the service runs a repeated request once. Every job that was taken is answered,
//! with [`NoAnswer`] at the latest when its patience is over, which counts from when it was handed
//! in. Commands to a group that is known to have lost its majority ([`CommandGateway::watch`]) are given up
//! sooner, and refused at once as long as that lasts.

mod client_transport;
mod deferred;
mod error;
mod health;
mod jobs;
mod leased;
mod links;
mod no_answer;
mod numbers;
mod overlays;
mod sent;

pub use error::GatewayError;
pub use health::MissingMajorities;
pub use no_answer::NoAnswer;
pub use overlays::OverlayRefusal;

use crate::clock;
use crate::cluster_dir::Transport;
use crate::command_bytes::SpareBuffers;
use crate::ingress::IngressInlet;
use crate::reply_ring::Oversize;
use crate::waiting_queue::WaitingQueue;
use amcast_core::limits::GROUPS_MAX;
use amcast_core::{ClusterShape, Config, Entry, Gid, GroupSet, ServiceAnswer, Span, Time};
use amcast_memory::{Directory, Idle, Idler, Pause, shorten_turns};
use amcast_smr::Envelope;
use amcast_smr::application::WakeHandle;
use client_transport::{ClientTransport, CommandProgress, TransportCommand};
use deferred::DeferredCommands;
use health::Health;
use jobs::{GatewayJob, JobAsker, JobBounds, JobRequest, JobTable};
use leased::LeasedTransport;
use links::NodeLinks;
use numbers::{CommandNumbers, NumbersUsedUp};
use overlays::{OverlayRequests, PresentOverlay};
use sent::{SentJob, SentJobs};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// How long an answer may take before it is asked for again; doubled each time.
const RETRY_FIRST: Span = Span::millis(500);

/// The same of a command that changes nothing, where the transport reports which commands are lost: one without an answer is
/// only slow then, and executing it once more makes it slower.
const RETRY_FIRST_READ: Span = Span::secs(5);

/// How long an answer may take in all, from when its command was handed in.
pub(crate) const PATIENCE: Span = Span::secs(15);

/// How often the loop looks for what is late.
const CHECK_EVERY: Span = Span::millis(20);

/// How long an answer may take before the transport is notified: by then it has arrived, mostly.
const LATE: Span = Span::millis(10);

/// How often the loop looks for that, and the longest it sleeps while an answer is waited for.
const LATE_EVERY: Span = Span::millis(5);

/// The longest a loop sleeps.
const SLEEP_MAX: Span = Span::millis(50);

/// The options of a gateway.
pub struct GatewayOptions<'a> {
    /// The protocol.
    pub entry: &'static dyn Entry,
    /// The cluster's checked configuration.
    pub config: &'a Config,
    /// The transport between the processes of the cluster.
    pub ground: &'a Transport,
    /// The node of its own process, if that is one whose member it can hand commands to.
    pub own: Option<OwnNode>,
    /// How it waits when there is nothing to do.
    pub idle: Idle,
    /// Where it writes its history, if anywhere.
    pub record: Option<PathBuf>,
}

/// The node of a gateway's own process.
#[derive(Clone)]
pub struct OwnNode {
    /// Which node.
    pub(crate) rank: usize,
    /// Which life of it this is.
    pub(crate) life: u32,
    /// Whether the others have taken it in before, in this life or one whose disk it has: then this life has no number of an
    /// earlier one.
    pub(crate) has_joined: bool,
    /// Where it takes commands.
    pub(crate) inlet: IngressInlet,
}

/// Told the answer, once, from the gateway's thread: it must be quick and must not wait.
pub type OnGatewayAnswer = Box<dyn FnOnce(Result<ServiceAnswer<'_>, NoAnswer>) + Send>;

/// Where the answers to a service's commands go. Called from the gateway's thread: must not wait.
pub trait GatewaySink: Send + Sync {
    /// The answer to the command that was handed in with `token`.
    fn answer(&self, token: u64, answer: Result<ServiceAnswer<'_>, NoAnswer>);

    /// Whether somebody still waits for the answer to the command that was handed in with `token`.
    fn awaits(&self, _token: u64) -> bool {
        true
    }

    /// There is room again after [`NoAnswer::Busy`].
    fn room(&self);

    /// There is nothing to do for a while.
    fn rest(&self) {}
}

/// A running gateway. Dropping it stops it; jobs that are open then are answered so.
pub struct CommandGateway {
    shared: Arc<GatewayShared>,
    wake: WakeHandle,
    place: u32,
    life: u32,
    payload_max: usize,
    /// Whether reads of one group are not ordered.
    reads_apart: bool,
    /// Which groups messages are ordered among, as of [`Entry::together`].
    together: Vec<GroupSet>,
    cluster: ClusterShape,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// A transport, and what is to be known of it from outside of the loop.
struct TransportHandle {
    transport: Box<dyn ClientTransport>,
    wake: WakeHandle,
    place: u32,
    life: u32,
    payload_max: usize,
}

impl TransportHandle {
    fn take(options: &GatewayOptions<'_>) -> Result<Self, GatewayError> {
        match options.ground {
            Transport::Memory(directory) => Self::lease(options, directory),
            Transport::Hosts(hosts) => {
                let directory = hosts.of_gateway().ok_or(GatewayError::NoNode)?;
                Self::lease(options, &directory)
            }
            Transport::Net(net) => {
                let transport = NodeLinks::take(options, net.dir())?;
                let place = transport.place();
                let life = transport.life();
                let payload_max = transport.payload_max();
                Ok(Self {
                    wake: transport.wake(),
                    transport: Box::new(transport),
                    place,
                    life,
                    payload_max,
                })
            }
        }
    }
}

impl TransportHandle {
    fn lease(options: &GatewayOptions<'_>, directory: &Directory) -> Result<Self, GatewayError> {
        let transport = LeasedTransport::take(options, directory)?;
        let (place, life) = (transport.place(), transport.life());
        let bell = transport.bell().clone();
        let (payload_max, wake) = (transport.payload_max(), Arc::new(move || _ = bell.ring()));
        Ok(Self { transport: Box::new(transport), wake, place, life, payload_max })
    }
}

struct GatewayShared {
    stop: AtomicBool,
    jobs: JobTable,
    health: Mutex<Health>,
    overlays: OverlayRequests,
}

impl GatewayShared {
    fn new(overlays: OverlayRequests) -> Self {
        Self {
            stop: AtomicBool::new(false),
            jobs: JobTable::new(JobBounds::USUAL),
            health: Mutex::default(),
            overlays,
        }
    }
}

impl CommandGateway {
    /// Takes a client place and starts the loop.
    ///
    /// # Errors
    /// When no place is free or its memory cannot be set aside.
    pub fn start(options: &GatewayOptions<'_>) -> Result<Self, GatewayError> {
        let TransportHandle { transport, wake, place, life, payload_max } =
            TransportHandle::take(options)?;
        let shared =
            Arc::new(GatewayShared::new(OverlayRequests::of(options.entry, options.config)));
        let overlay = PresentOverlay::first(options.config);
        let mut work = GatewayLoop::new(transport, Arc::clone(&shared), overlay);
        let idle = options.idle;
        let is_woken = !matches!(options.ground, Transport::Memory(_));
        let run = move || {
            // As the loops of nodes: who has the core would have each command and each answer wait for its turn.
            if is_woken && let Err(e) = shorten_turns() {
                tracing::info!("on a busy machine a gateway may have to wait for its turn: {e}");
            }
            work.run(idle);
        };
        let thread = std::thread::Builder::new().name("gateway".to_string()).spawn(run);
        let thread = Mutex::new(Some(thread.map_err(GatewayError::Io)?));
        let cluster = *options.config.cluster();
        let together = options.entry.together(options.config);
        let reads_apart = options.entry.capabilities().read_index;
        Ok(Self { shared, wake, place, life, payload_max, reads_apart, together, cluster, thread })
    }

    /// The number that it has among gateways that live: with shared memory, its client place.
    pub fn place(&self) -> u32 {
        self.place
    }

    /// In which life of the place this gateway began: no other gateway of the place has or had it.
    pub fn life(&self) -> u32 {
        self.life
    }

    /// The largest command that it takes, in bytes.
    pub fn payload_max(&self) -> usize {
        self.payload_max
    }

    /// Commands that were taken and are not answered.
    pub fn open(&self) -> usize {
        self.shared.jobs.open()
    }

    /// Whether its loop runs. If not, it had panicked, and nothing will be ordered any more.
    pub fn is_serving(&self) -> bool {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// Ends it: its client process has ended, and commands that are handed in later are refused.
    pub fn stop(&self) {
        self.shared.stop.store(true, Ordering::Release);
        (self.wake)();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(Err(_)) = thread.map(JoinHandle::join) {
            tracing::error!("the gateway's loop had panicked");
        }
        // It may watch a cluster that is gone, and this gateway may be held for long.
        let asked = self.shared.health.lock().unwrap_or_else(PoisonError::into_inner).forget();
        drop(asked);
    }

    /// Answers to commands that are handed in with tokens go to `sink`. Once, before any.
    pub fn serve(&self, sink: Arc<dyn GatewaySink>) {
        self.shared.jobs.set_sink(sink);
    }

    /// From now on `ask` tells which groups have lost their majority of replicas.
    pub fn watch(&self, ask: MissingMajorities) {
        self.shared.health.lock().unwrap_or_else(PoisonError::into_inner).watch(ask);
    }

    /// Multicasts the command in `payload` to `dst`; the sink receives the answer, later. Never waits. It may
    /// lie until [`CommandGateway::flush`]. The bytes are taken, not copied: an empty buffer is left in their
    /// place.
    ///
    /// # Errors
    /// When the command was not taken; its bytes are left, and the sink is not told.
    pub fn submit(&self, dst: GroupSet, payload: &mut Vec<u8>, token: u64) -> Result<(), NoAnswer> {
        self.hand_in(dst, false, payload, JobAsker::Sink(token))
    }

    /// Whether a read of one group needs no place in the order ([`CommandGateway::read`]): it must then not be handed
    /// in while a command that it must see, or must not see, is under way.
    pub fn reads_apart(&self) -> bool {
        self.reads_apart
    }

    /// As [`CommandGateway::submit`], for a command that changes nothing: it sees everything that was answered to anybody
    /// before it was handed in.
    ///
    /// # Errors
    /// When the command was not taken; its bytes are left, and the sink is not told.
    pub fn read(&self, dst: GroupSet, payload: &mut Vec<u8>, token: u64) -> Result<(), NoAnswer> {
        self.hand_in(dst, true, payload, JobAsker::Sink(token))
    }

    /// The same for callers without a token: `done` receives the answer.
    ///
    /// # Errors
    /// When the command was not taken; its bytes are left, and `done` is not told.
    pub fn ask(
        &self,
        dst: GroupSet,
        payload: &mut Vec<u8>,
        done: OnGatewayAnswer,
    ) -> Result<(), NoAnswer> {
        self.hand_in(dst, false, payload, JobAsker::Once(done))
    }

    /// [`CommandGateway::read`] for callers without a token.
    ///
    /// # Errors
    /// When the command was not taken; its bytes are left, and `done` is not told.
    pub fn ask_read(
        &self,
        dst: GroupSet,
        payload: &mut Vec<u8>,
        done: OnGatewayAnswer,
    ) -> Result<(), NoAnswer> {
        self.hand_in(dst, true, payload, JobAsker::Once(done))
    }

    /// Sees to it that what was submitted goes out.
    pub fn flush(&self) {
        (self.wake)();
    }

    fn hand_in(
        &self,
        dst: GroupSet,
        is_read: bool,
        payload: &mut Vec<u8>,
        asker: JobAsker,
    ) -> Result<(), NoAnswer> {
        if payload.len() > self.payload_max {
            return Err(NoAnswer::TooLarge(self.payload_max));
        }
        if dst.is_empty() || !dst.within(self.cluster.all_groups()) {
            return Err(NoAnswer::NoShard(self.cluster.groups()));
        }
        if !self.together.iter().any(|&set| dst.within(set)) {
            return Err(NoAnswer::Several);
        }
        let is_read = is_read && self.reads_apart && dst.len() == 1;
        self.shared.jobs.hand_in(JobRequest { dst, is_read, since: clock::now(), asker }, payload)
    }

    /// Multicasts a command and waits for the answer.
    ///
    /// # Errors
    /// As [`NoAnswer`] says.
    pub fn call(&self, dst: GroupSet, payload: &[u8]) -> Result<ServiceAnswer<'static>, NoAnswer> {
        let (to, from) = sync_channel(1);
        let done = move |answer: Result<ServiceAnswer<'_>, NoAnswer>| {
            // The caller waits below.
            let _ = to.send(answer.map(ServiceAnswer::into_owned));
        };
        self.hand_in(dst, false, &mut payload.to_vec(), JobAsker::Once(Box::new(done)))?;
        self.flush();
        from.recv().unwrap_or(Err(NoAnswer::Stopped))
    }
}

impl Drop for CommandGateway {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The loop's state.
struct GatewayLoop {
    transport: Box<dyn ClientTransport>,
    shared: Arc<GatewayShared>,
    overlay: PresentOverlay,
    /// The jobs that were just taken from the queue.
    fresh: Vec<GatewayJob>,
    /// Buffers of commands that were answered since.
    spare: SpareBuffers,
    /// Jobs that there was no room for, in a line for each group that orders messages first: within one they keep
    /// the order in which they were handed in, so commands whose only destination is the same group are sent in it.
    waiting: WaitingQueue<GatewayJob>,
    sent: SentJobs,
    /// Jobs that nobody has any more, by their first numbers: they are sent again before others.
    lost: BTreeSet<u64>,
    /// Those whose answers were not kept.
    deferred: DeferredCommands,
    /// When each group last had a part in an answer.
    answered_at: Vec<Time>,
    numbers: CommandNumbers,
    /// None while there are numbers.
    used_up: Option<NumbersUsedUp>,
    next_check: Time,
    next_late_check: Time,
}

impl GatewayLoop {
    fn new(
        transport: Box<dyn ClientTransport>,
        shared: Arc<GatewayShared>,
        overlay: PresentOverlay,
    ) -> Self {
        Self {
            numbers: transport.numbers(),
            used_up: None,
            waiting: WaitingQueue::default(),
            transport,
            shared,
            overlay,
            fresh: Vec::new(),
            spare: SpareBuffers::default(),
            sent: SentJobs::default(),
            lost: BTreeSet::new(),
            deferred: DeferredCommands::default(),
            answered_at: vec![Time::ZERO; GROUPS_MAX],
            next_check: Time::ZERO,
            next_late_check: Time::ZERO,
        }
    }

    fn run(&mut self, idle: Idle) {
        let mut idler = Idler::new(idle);
        self.transport.begin(clock::now());
        while !self.shared.stop.load(Ordering::Acquire) {
            if self.round() {
                idler.busy();
                continue;
            }
            if idler.pause() == Pause::Again {
                continue;
            }
            self.transport.rest();
            if let Some(sink) = self.shared.jobs.sink() {
                sink.rest();
            }
            self.transport.announce();
            if self.round() || self.transport.is_pressing(clock::now()) {
                self.transport.stay();
                idler.busy();
                continue;
            }
            let at_most = if self.sent.open.is_empty() { SLEEP_MAX } else { LATE_EVERY };
            self.transport.sleep(clock::now(), at_most);
        }
    }

    fn round(&mut self) -> bool {
        let now = clock::now();
        let (sent, jobs) = (&mut self.sent, &self.shared.jobs);
        let answered_at = &mut self.answered_at;
        let lost = &mut self.lost;
        let deferred = &mut self.deferred;
        let spare = &mut self.spare;
        let busy = self.transport.round(now, &mut |seq, came| match came {
            CommandProgress::Answer(answer) => {
                let first = sent.first(seq);
                let Some(job) = sent.take(seq) else { return };
                if !deferred.is_empty() {
                    first.into_iter().for_each(|first| deferred.end(first, &job));
                }
                job.dst.iter().for_each(|g| answered_at[g.index()] = now);
                let too_large = |Oversize { outcome, bytes, most }| NoAnswer::AnswerTooLarge {
                    outcome,
                    bytes,
                    most,
                };
                spare.put(jobs.answer(job, answer.map_err(too_large)));
            }
            CommandProgress::Part => sent.came_part(seq, now),
            CommandProgress::Lost | CommandProgress::NotKept => {
                let Some(first) = sent.first(seq) else { return };
                let Some(open) = sent.open.get(&first) else { return };
                if came == CommandProgress::NotKept {
                    deferred.refuse(first, &open.job);
                } else if !deferred.refuse_beside(first, &open.job) {
                    lost.insert(first);
                }
            }
        });
        let first_open = self.sent.open.first_key_value().map(|(&first, _)| first);
        self.transport.settle(first_open.unwrap_or(self.numbers.next()));
        self.sent.past.drain(..).for_each(|seq| self.transport.forget(seq));
        if now >= self.next_late_check {
            self.next_late_check = now + LATE_EVERY;
            if let Some(since) = self.sent.late_since(now) {
                self.transport.is_late(now, since);
            }
        }
        if now >= self.next_check {
            self.next_check = now + CHECK_EVERY;
            self.judge(now);
        }
        busy | self.follow_overlay(now) | self.send(now)
    }

    /// Sends what there is room for.
    fn send(&mut self, now: Time) -> bool {
        self.shared.jobs.take(&mut self.fresh, &mut self.spare);
        for job in self.fresh.drain(..) {
            self.waiting.push(self.overlay.tree.lca(job.dst), job);
        }
        let mut sent = self.send_lost(now);
        sent |= !self.deferred.is_empty() && self.send_deferred(now);
        while self.lost.is_empty() && self.has_numbers(now) {
            let transport = &self.transport;
            let has_room = |job: &GatewayJob| transport.room(job.dst, job.payload.len()) > 0;
            let Some(mut job) = self.waiting.take(has_room) else { break };
            if !self.deferred.is_empty() {
                let Some(given_back) = self.deferred.wait_behind(job) else { continue };
                job = given_back;
            }
            self.send_first(now, job);
            sent = true;
        }
        if sent {
            self.transport.flush(now);
        }
        sent
    }

    /// Sends a job for the first time; its number.
    fn send_first(&mut self, now: Time, job: GatewayJob) -> u64 {
        let seq = self.multicast(now, &job);
        let retry_after = self.retry_first(&job);
        let open = SentJob {
            job,
            sent_at: now,
            moved_at: now,
            again: Vec::new(),
            retry_at: now + retry_after,
            retry_after,
        };
        self.sent.open.insert(seq, open);
        seq
    }

    /// Sends some of those again whose answers were not kept, and what waits behind none of them any more, as far as there
    /// is room.
    fn send_deferred(&mut self, now: Time) -> bool {
        let mut sent = false;
        for _ in 0..self.deferred.turns() {
            let Some(first) = self.deferred.next().filter(|_| self.lost.is_empty()) else { break };
            let Some(SentJob { job, .. }) = self.sent.open.get(&first) else {
                self.deferred.done(None);
                continue;
            };
            if !self.shared.jobs.is_awaited(job) {
                self.give_up(first, NoAnswer::TimedOut);
                continue;
            }
            let group = job.dst.lowest().unwrap_or(Gid(0));
            let has_room = self.transport.room(job.dst, job.payload.len()) > 0;
            if has_room && self.deferred.may_send(group) {
                self.ask_again(now, first);
                self.deferred.done(Some(group));
                sent = true;
            }
        }
        while self.has_numbers(now) {
            let transport = &self.transport;
            let has_room = |job: &GatewayJob| transport.room(job.dst, job.payload.len()) > 0;
            let Some(job) = self.deferred.take_free(has_room) else { break };
            self.send_first(now, job);
            sent = true;
        }
        sent
    }

    /// How long the answer to a job may take before it is asked for again.
    fn retry_first(&self, job: &GatewayJob) -> Span {
        let is_slow = || Envelope::decode(&job.payload).is_some_and(|(e, _)| e.read_only);
        match self.transport.reports_losses() && is_slow() {
            true => RETRY_FIRST_READ,
            false => RETRY_FIRST,
        }
    }

    /// Sends what was lost again, as far as there is room.
    fn send_lost(&mut self, now: Time) -> bool {
        let mut sent = false;
        while let Some(&first) = self.lost.first() {
            // It may have been answered, or given up, since.
            if let Some(open) = self.sent.open.get(&first)
                && self.transport.room(open.job.dst, open.job.payload.len()) > 0
            {
                self.ask_again(now, first);
                sent = true;
            } else if self.sent.open.contains_key(&first) {
                break;
            }
            self.lost.pop_first();
        }
        sent
    }

    fn multicast(&mut self, now: Time, job: &GatewayJob) -> u64 {
        let seq = self.numbers.take();
        let GatewayJob { dst, payload, is_read, .. } = job;
        let (dst, is_read) = (*dst, *is_read);
        self.transport.send(now, TransportCommand { seq, dst, payload, is_read });
        seq
    }

    /// Asks again for answers that are late, and gives up those that are too late.
    fn judge(&mut self, now: Time) {
        let shared = Arc::clone(&self.shared);
        let mut health = shared.health.lock().unwrap_or_else(PoisonError::into_inner);
        let down = health.down(now, &mut |group| self.is_stuck(now, group));
        drop(health);
        shared.jobs.set_down(down);
        if !down.is_empty() {
            let is_down = |job: &GatewayJob| job.dst.and(down).lowest().is_some();
            let deferred = self.deferred.take_fresh(is_down);
            for job in self.waiting.take_all(is_down).into_iter().chain(deferred) {
                let group = job.dst.and(down).lowest().expect("it was taken for one");
                shared.jobs.answer(job, Err(NoAnswer::Down(group)));
            }
        }
        if self.transport.is_shut_out() {
            let deferred = self.deferred.take_fresh(|_| true);
            for job in self.waiting.take_all(|_| true).into_iter().chain(deferred) {
                shared.jobs.answer(job, Err(NoAnswer::Refused));
            }
        }
        let is_old = |job: &GatewayJob| job.since + PATIENCE <= now;
        let deferred = self.deferred.take_fresh(is_old);
        for job in self.waiting.take_heads(is_old).into_iter().chain(deferred) {
            shared.jobs.answer(job, Err(NoAnswer::Unsent));
        }
        // Those behind the first that is young are younger still.
        let old = |open: &SentJob| open.sent_at + RETRY_FIRST <= now;
        let late = self.sent.open.iter().take_while(|(_, open)| old(open));
        let late: Vec<u64> = late.map(|(&seq, _)| seq).collect();
        for first in late {
            let Some(open) = self.sent.open.get(&first) else { continue };
            let lost = open.job.dst.and(down).lowest();
            let no_answer = match lost.filter(|_| open.job.since + health::PATIENCE <= now) {
                Some(group) => NoAnswer::Cut(group),
                None if open.job.since + PATIENCE <= now => NoAnswer::TimedOut,
                None if open.retry_at <= now && !self.deferred.holds(first, &open.job) => {
                    self.ask_again(now, first);
                    continue;
                }
                None => continue,
            };
            self.give_up(first, no_answer);
        }
    }

    /// Gives up a job that was sent with this first number.
    fn give_up(&mut self, first: u64, why: NoAnswer) {
        if let Some(job) = self.sent.take(first) {
            self.transport.forget(first);
            self.deferred.end(first, &job);
            self.shared.jobs.answer(job, Err(why));
        }
    }

    /// Whether commands to `group` wait for long and none was answered meanwhile.
    fn is_stuck(&self, now: Time, group: Gid) -> bool {
        let old = |job: &GatewayJob| job.dst.contains(group) && job.since + health::PATIENCE <= now;
        self.answered_at[group.index()] + health::PATIENCE <= now
            && (self.waiting.iter().any(old) || self.sent.open.values().any(|open| old(&open.job)))
    }

    /// Multicasts a job once more, if there is room.
    fn ask_again(&mut self, now: Time, first: u64) {
        let Some(mut open) = self.sent.open.remove(&first) else { return };
        let (dst, bytes) = (open.job.dst, open.job.payload.len());
        if self.transport.room(dst, bytes) > 0 && !self.numbers.are_at_end() {
            let seq = self.multicast(now, &open.job);
            self.sent.alias.insert(seq, first);
            open.again.push(seq);
            open.retry_after = open.retry_after.times(2);
        }
        open.retry_at = now + open.retry_after;
        self.sent.open.insert(first, open);
    }
}

/// However the loop ends, by a stop or by a panic, no caller waits in vain.
impl Drop for GatewayLoop {
    fn drop(&mut self) {
        self.transport.rest();
        let jobs = &self.shared.jobs;
        let waiting = self.waiting.take_all(|_| true);
        let deferred = self.deferred.take_fresh(|_| true);
        let unsent = self.fresh.drain(..).chain(waiting).chain(deferred);
        for job in jobs.close().into_iter().chain(unsent) {
            jobs.answer(job, Err(NoAnswer::Closed));
        }
        for open in std::mem::take(&mut self.sent.open).into_values() {
            jobs.answer(open.job, Err(NoAnswer::Stopped));
        }
    }
}

#[cfg(test)]
mod tests;

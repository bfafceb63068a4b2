//! The carrier of one process: carries out what its protocol asks of the memory, and answers.

use crate::directory::Directory;
use crate::doorbell::{self, Doorbell};
use crate::error::MemoryError;
use crate::guard::{Fence, LandingFlag, RegionGuard, SharedWord, WriteGrant};
use crate::layout::{ProcessLayout, RegionLocation};
use crate::peer::{MapAhead, MappedPeers};
use crate::remote::{RemoteAnswers, RemoteFate, RemoteMemory, RemotePoster, RemoteTarget};
use crate::store::HeldResource;
use amcast_core::id::Pid;
use amcast_core::memory::{
    AccessOutcome, CacheLine, LINE_WORDS, LineRange, LineStamp, MemoryInput, MemoryOutput,
    RegionId, RegionWindow, Regions, WriteSource,
};
use amcast_core::step::Ticket;
use core::fmt;
use core::sync::atomic::AtomicU64;
use std::sync::Arc;

/// The operations of a carrier. Only grows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CarrierCounts {
    /// Writes carried out.
    pub writes: u64,
    /// Lines stored by them.
    pub lines: u64,
    /// Reads carried out.
    pub reads: u64,
    /// Writes answered, or that would be answered, `Denied`.
    pub denied: u64,
    /// Writes and reads answered, or that would be answered, `Lost`.
    pub lost: u64,
    /// Writes and reads of lines that are not there; see [`MappedCarrier::take_fault`].
    pub refused: u64,
    /// Fences: at most one for each batch, and one for each revocation.
    pub fences: u64,
    /// Loops that slept and were woken: one system call each.
    pub wakes: u64,
    /// Peers' files mapped: some system calls each.
    pub maps: u64,
}

/// The carrier of the medium `Memory` for one process. One thread uses it.
///
/// A loop does this, over and over:
/// ```
/// # use amcast_core::{id::Pid, memory::*, step::*, time::{Span, Time}};
/// # use amcast_memory::*;
/// # fn round(carrier: &mut MappedCarrier, node: &mut dyn Protocol<Medium = Memory>,
/// #          outbox: &mut Outbox<Memory>, now: Time) {
/// carrier.begin_round();
/// while let Some((window, input)) = carrier.next_input() {
///     node.step(now, window, Input::Medium(input), outbox);
///     carrier.post(outbox.items().iter().filter_map(|output| match output {
///         Output::Medium(out) => Some(out),
///         _ => None, // deliveries and the rest are the loop's own business
///     }));
///     outbox.clear();
/// }
/// # }
/// ```
/// Dropping it stops the process in good order.
pub struct MappedCarrier {
    directory: Directory,
    me: Pid,
    incarnation: u64,
    own: Arc<ProcessLayout>,
    peers: MappedPeers,
    bell: Doorbell,
    /// Answers to what was posted since the round began.
    filling: AccessResults,
    /// Answers being given out in this round.
    giving: AccessResults,
    given: usize,
    /// Processes that started anew, to be reported in this round.
    fresh: Vec<(Pid, u64)>,
    fresh_told: usize,
    poll_due: bool,
    /// How many times more operations of this round may be answered in it.
    answer_turns: u32,
    /// The way to processes of other hosts, if the cluster is on several.
    remote: Option<RemoteMemory>,
    /// Outcomes from other hosts, on their way to the others.
    arrived: RemoteAnswers,
    /// The processes whose doorbells to ring after this batch.
    rings: Vec<Pid>,
    counts: CarrierCounts,
    crashed: bool,
    _hold: HeldResource,
}

impl fmt::Debug for MappedCarrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MappedCarrier({:?}, incarnation {})", self.me, self.incarnation)
    }
}

/// Answers in the order of posting. Reused, so the steady state allocates nothing.
#[derive(Default)]
struct AccessResults {
    fates: Vec<(Ticket, AccessFate)>,
    words: Vec<[u64; LINE_WORDS + 1]>,
}

/// The result of a write or read.
#[derive(Clone, Copy)]
enum AccessFate {
    Denied,
    Lost,
    Written,
    /// A range of the words.
    Words {
        at: usize,
        count: usize,
    },
    /// The lines are stored; the guard is checked at the end of the batch.
    Stored {
        to: Pid,
        region: RegionId,
        grant: Option<WriteGrant>,
    },
}

impl Regions for ProcessLayout {
    #[inline]
    fn lines(&self, region: RegionId) -> &[CacheLine] {
        let place = self.place(usize::from(region.0));
        Self::lines(self, place.expect("a region of the process's own"))
    }
}

impl MappedCarrier {
    pub(crate) fn new(
        (directory, me): (Directory, Pid),
        incarnation: u64,
        (own, ahead): (ProcessLayout, MapAhead),
        hold: HeldResource,
        bell: Doorbell,
    ) -> Self {
        let own = Arc::new(own);
        let peers = MappedPeers::new((directory.clone(), me), incarnation, Arc::clone(&own), ahead);
        let remote = directory.remote().cloned();
        Self {
            directory,
            me,
            incarnation,
            own,
            peers,
            bell,
            filling: AccessResults::default(),
            giving: AccessResults::default(),
            given: 0,
            fresh: Vec::new(),
            fresh_told: 0,
            poll_due: false,
            answer_turns: 0,
            remote,
            arrived: RemoteAnswers::default(),
            rings: Vec::new(),
            counts: CarrierCounts::default(),
            crashed: false,
            _hold: hold,
        }
    }

    /// The process of the carrier.
    pub fn pid(&self) -> Pid {
        self.me
    }

    /// Which life of the process this is, for [`amcast_core::Input::Start`]: 0 is the first.
    pub fn incarnation(&self) -> u32 {
        life(self.incarnation)
    }

    /// The incarnation of a process that this carrier deals with; none before there was one.
    pub fn peer_incarnation(&self, pid: Pid) -> Option<u32> {
        let known = self.peers.known(pid);
        (known > 0).then(|| life(known))
    }

    /// The process's own regions.
    pub fn window(&self) -> RegionWindow<'_> {
        RegionWindow(&*self.own)
    }

    /// The bell that wakes the loop of this process.
    pub fn bell(&self) -> &Doorbell {
        &self.bell
    }

    /// Its operations since its start.
    pub fn counts(&self) -> CarrierCounts {
        CarrierCounts { maps: self.peers.maps(), ..self.counts }
    }

    /// The last error with a peer's memory, once: accesses to it are `Lost` until it
    /// can be mapped, which is tried again every 100 ms. A loop asks now and then, and tells the operator.
    #[inline]
    pub fn take_fault(&mut self) -> Option<MemoryError> {
        // Asked in each round, and there is hardly ever one: an error is not moved for that.
        if self.peers.has_fault() { self.peers.take_fault() } else { None }
    }

    /// Begins a round: its inputs are the answers to what was posted before, then the processes
    /// that started anew, then a poll, and then the answers to what was posted in this
    /// round, and to what is posted in return, [`ANSWER_TURNS`] times. Leftovers of the last round are given first.
    #[inline]
    pub fn begin_round(&mut self) {
        if self.fresh_told == self.fresh.len() {
            self.fresh.clear();
            self.fresh_told = 0;
            self.peers.look(&mut self.fresh);
        }
        // Behind the look: outcomes of an incarnation are there before the next one is seen.
        self.collect();
        self.turn_over();
        (self.poll_due, self.answer_turns) = (true, ANSWER_TURNS);
    }

    /// Takes the outcomes of other hosts behind those of this one.
    #[inline]
    fn collect(&mut self) {
        if self.remote.as_ref().is_some_and(|remote| remote.inbox(self.me).has_any()) {
            self.collect_all();
        }
    }

    #[inline(never)]
    fn collect_all(&mut self) {
        let Some(remote) = &self.remote else { return };
        remote.inbox(self.me).take(&mut self.arrived);
        let mut words = self.filling.words.len();
        self.filling.words.append(&mut self.arrived.words);
        for (ticket, fate) in self.arrived.fates.drain(..) {
            let fate = match fate {
                RemoteFate::Written => AccessFate::Written,
                RemoteFate::Denied => {
                    self.counts.denied += 1;
                    AccessFate::Denied
                }
                RemoteFate::Lost => {
                    self.counts.lost += 1;
                    AccessFate::Lost
                }
                RemoteFate::Refused => {
                    self.counts.refused += 1;
                    self.peers.fail(MemoryError::RefusedThere);
                    AccessFate::Lost
                }
                RemoteFate::Words { count } => {
                    words += count;
                    AccessFate::Words { at: words - count, count }
                }
            };
            self.filling.fates.push((ticket, fate));
        }
    }

    /// Gives out the answers that arrived together, once those before are all given.
    #[inline]
    fn turn_over(&mut self) {
        if self.given == self.giving.fates.len() && !self.filling.fates.is_empty() {
            self.giving.fates.clear();
            self.giving.words.clear();
            self.given = 0;
            core::mem::swap(&mut self.giving.fates, &mut self.filling.fates);
            if !self.filling.words.is_empty() {
                core::mem::swap(&mut self.giving.words, &mut self.filling.words);
            }
        }
    }

    /// The next input of the round, with the window to lend along with it; none at the end of the
    /// round. Operations that the protocol asks for in return are posted before the next call.
    #[inline]
    pub fn next_input(&mut self) -> Option<(RegionWindow<'_>, MemoryInput<'_>)> {
        if self.given < self.giving.fates.len() {
            return self.next_answer();
        }
        if let Some(&(pid, incarnation)) = self.fresh.get(self.fresh_told) {
            self.fresh_told += 1;
            self.peers.adopt(pid, incarnation);
            return Some((
                RegionWindow(&*self.own),
                MemoryInput::Fresh { pid, incarnation: life(incarnation) },
            ));
        }
        if core::mem::take(&mut self.poll_due) {
            return Some((RegionWindow(&*self.own), MemoryInput::Poll));
        }
        // A write is done when it is posted: who waits a round for the answer waits for nothing.
        // Not without end, so that a round ends.
        self.answer_turns = self.answer_turns.checked_sub(1)?;
        self.collect();
        self.turn_over();
        self.next_answer()
    }

    /// The next answer, if one is left of those that are given out.
    #[inline]
    fn next_answer(&mut self) -> Option<(RegionWindow<'_>, MemoryInput<'_>)> {
        let &(ticket, fate) = self.giving.fates.get(self.given)?;
        self.given += 1;
        let outcome = match fate {
            AccessFate::Written => AccessOutcome::Written,
            AccessFate::Denied => AccessOutcome::Denied,
            AccessFate::Lost => AccessOutcome::Lost,
            AccessFate::Words { at, count } => {
                AccessOutcome::Words(&self.giving.words[at..at + count])
            }
            AccessFate::Stored { .. } => unreachable!("settled at the end of its batch"),
        };
        Some((RegionWindow(&*self.own), MemoryInput::Done(ticket, outcome)))
    }

    /// Whether answers wait for the next round: then it is not idle.
    #[inline]
    pub fn has_answers(&self) -> bool {
        let far = self.remote.as_ref().is_some_and(|remote| remote.inbox(self.me).has_any());
        far || !self.filling.fates.is_empty() || self.given < self.giving.fates.len()
    }

    /// Carries out what the protocol asks, in order. All of it is done when this returns; the
    /// answers come at the end of the round, or in the next one. No lock, no allocation once the buffers have grown, and no
    /// system call except to map a peer that is new and to wake a loop that sleeps.
    ///
    /// # Panics
    /// When the protocol names lines of its own that it does not have.
    pub fn post<'o>(&mut self, outs: impl IntoIterator<Item = &'o MemoryOutput>) {
        let first = self.filling.fates.len();
        let (mut guarded, mut far) = (false, false);
        for out in outs {
            match out {
                MemoryOutput::Write { to, .. } | MemoryOutput::Read { of: to, .. }
                    if self.is_far(*to) =>
                {
                    self.post_far(out);
                    far = true;
                }
                MemoryOutput::Write { to, region, at, source, ticket, bell } => {
                    let fate = self.write(*to, *region, *at, source);
                    if *bell
                        && matches!(fate, AccessFate::Stored { .. })
                        && self.peers.mark_ring(*to)
                    {
                        self.rings.push(*to);
                    }
                    if let Some(ticket) = ticket {
                        guarded |= matches!(fate, AccessFate::Stored { grant: Some(_), .. });
                        self.filling.fates.push((*ticket, fate));
                    }
                }
                MemoryOutput::Read { of, region, at, count, ticket } => {
                    let fate = self.read(*of, *region, *at, *count);
                    self.filling.fates.push((*ticket, fate));
                }
                MemoryOutput::Allow(region) => self.guard(*region).allow(),
                MemoryOutput::Revoke(region) => {
                    self.guard(*region).revoke();
                    self.counts.fences += 1;
                    self.wait_for_landing(*region);
                }
            }
        }
        if far && let Some(remote) = &self.remote {
            // Once for a batch; a system call only if the agent sleeps.
            remote.wake();
        }
        if guarded || !self.rings.is_empty() {
            // All stores of the batch are behind this line, all checks of guards and bells before:
            // W3 of `guard.rs` and R2 of `doorbell.rs` at once.
            <AtomicU64 as SharedWord>::fence(Fence::Writer);
            self.counts.fences += 1;
        }
        self.settle(first);
        if !self.rings.is_empty() {
            self.ring_bells();
        }
    }

    #[inline]
    fn is_far(&self, pid: Pid) -> bool {
        self.remote.as_ref().is_some_and(|remote| remote.is_far(pid))
    }

    /// Posts an access to memory of another host. The outcome comes in a later round.
    fn post_far(&mut self, out: &MemoryOutput) {
        let Some(remote) = &self.remote else { return };
        let from = RemotePoster { pid: self.me, incarnation: self.incarnation, own: &self.own };
        let (MemoryOutput::Write { to: pid, region, at, .. }
        | MemoryOutput::Read { of: pid, region, at, .. }) = *out
        else {
            return;
        };
        let known = self.peers.reach_far(pid);
        let to = |incarnation| RemoteTarget { pid, incarnation, region, at };
        match (out, known) {
            (MemoryOutput::Write { source, ticket, bell, .. }, Some(incarnation)) => {
                self.counts.writes += 1;
                self.counts.lines += u64::from(source.count());
                remote.write(from, to(incarnation), source, (*ticket, *bell));
            }
            (MemoryOutput::Read { count, ticket, .. }, Some(incarnation)) => {
                self.counts.reads += 1;
                remote.read(from, to(incarnation), *count, *ticket);
            }
            (MemoryOutput::Write { ticket, .. }, None) => remote.lose(from, pid, *ticket),
            (MemoryOutput::Read { ticket, .. }, None) => remote.lose(from, pid, Some(*ticket)),
            (MemoryOutput::Allow(_) | MemoryOutput::Revoke(_), _) => {}
        }
    }

    /// O4 of `guard.rs`: waits until the agent stores nothing into the region under an earlier grant.
    fn wait_for_landing(&self, region: RegionId) {
        let landing = LandingFlag(self.own.landing(usize::from(region.0)));
        let mut looks = 0_u32;
        while !landing.is_over() {
            looks += 1;
            // The agent may have lost its core in mid-write.
            if looks < LANDING_SPINS { core::hint::spin_loop() } else { std::thread::yield_now() }
        }
    }

    fn guard(&self, region: RegionId) -> RegionGuard<'_, AtomicU64> {
        let index = usize::from(region.0);
        assert!(self.own.place(index).is_some_and(|p| p.guarded), "a guarded region of its own");
        RegionGuard(self.own.guard(index))
    }

    // For its only caller: what becomes of a write is not moved about then.
    #[inline(always)]
    fn write(&mut self, to: Pid, region: RegionId, at: u32, source: &WriteSource) -> AccessFate {
        let count = source.count();
        let Some(target) = self.peers.reach(to) else {
            self.counts.lost += 1;
            return AccessFate::Lost;
        };
        let place = target.place(usize::from(region.0)).filter(|p| p.writer == self.me);
        let Some((place, range)) = place.and_then(|p| within(p, at, count)) else {
            return self.refuse(to, region, at, count);
        };
        let mut grant = None;
        if place.guarded {
            grant = RegionGuard(target.guard(usize::from(region.0))).grant();
            if grant.is_none() {
                self.counts.denied += 1;
                return AccessFate::Denied;
            }
        }
        copy(&self.own, source, &target.lines(place)[range]);
        self.counts.writes += 1;
        self.counts.lines += u64::from(count);
        AccessFate::Stored { to, region, grant }
    }

    fn read(&mut self, of: Pid, region: RegionId, at: u32, count: u32) -> AccessFate {
        let Some(target) = self.peers.reach(of) else {
            self.counts.lost += 1;
            return AccessFate::Lost;
        };
        let place = target.place(usize::from(region.0)).and_then(|p| within(p, at, count));
        let Some((place, range)) = place else { return self.refuse(of, region, at, count) };
        let begin = self.filling.words.len();
        self.filling.words.extend(target.lines(place)[range].iter().map(|line| {
            // The stamp first: if it is the expected one, the words behind it are at least those
            // published with it.
            let LineStamp(stamp) = line.stamp();
            let [a, b, c, d, e, f, g] = line.words();
            [a, b, c, d, e, f, g, stamp]
        }));
        if self.peers.reached(of).is_none() {
            // It started anew meanwhile: what was read is of no use to anyone.
            self.filling.words.truncate(begin);
            self.counts.lost += 1;
            return AccessFate::Lost;
        }
        self.counts.reads += 1;
        AccessFate::Words { at: begin, count: count as usize }
    }

    #[cold]
    fn refuse(&mut self, pid: Pid, region: RegionId, at: u32, count: u32) -> AccessFate {
        self.counts.refused += 1;
        self.peers.fail(MemoryError::Refused { pid, region: region.0, at, count });
        AccessFate::Lost
    }

    /// Decides the fate of what was stored: W4 of `guard.rs`.
    #[inline]
    fn settle(&mut self, first: usize) {
        for (_, fate) in &mut self.filling.fates[first..] {
            let AccessFate::Stored { to, region, grant } = *fate else { continue };
            let Some(target) = self.peers.reached(to) else {
                self.counts.lost += 1;
                *fate = AccessFate::Lost;
                continue;
            };
            let stands = |grant| RegionGuard(target.guard(usize::from(region.0))).stands(grant);
            *fate = match grant {
                Some(grant) if !stands(grant) => {
                    self.counts.denied += 1;
                    AccessFate::Denied
                }
                _ => AccessFate::Written,
            };
        }
    }

    fn ring_bells(&mut self) {
        while let Some(pid) = self.rings.pop() {
            self.peers.unmark_ring(pid);
            let bell = self.directory.bell_of(pid);
            if bell != self.bell.pid() {
                let woke = doorbell::ring_after_fence(self.directory.layout().bell(bell));
                self.counts.wakes += u64::from(woke);
            }
        }
    }

    /// Stops the process in good order: writes to it are `Lost` from now on.
    ///
    /// # Errors
    /// When the system refuses to remove its file; the next start tries again.
    pub fn stop(mut self) -> Result<(), MemoryError> {
        self.crashed = true;
        self.directory.stop(self.me, self.incarnation)
    }

    /// Ends the process as a kill would: its lock is gone and everything else stays as it is. For
    /// tests.
    pub fn crash(mut self) {
        self.crashed = true;
    }
}

impl Drop for MappedCarrier {
    fn drop(&mut self) {
        if !self.crashed {
            // Nobody is left to tell; `stop` tells, and what stays behind is removed at the next
            // start of any process.
            let _ = self.directory.stop(self.me, self.incarnation);
        }
    }
}

/// The directory counts incarnations from 1, the medium from 0.
fn life(incarnation: u64) -> u32 {
    (incarnation - 1) as u32
}

/// How many times a round gives out the answers to what was posted in it. A loop serves many processes: one that reads
/// the next thing once it has the last one, as a new leader does, would wait for all of them each time.
const ANSWER_TURNS: u32 = 8;

/// How often a revocation looks whether the agent has stored, before it gives the core away.
const LANDING_SPINS: u32 = 200;

/// The range of `count` lines from `at` on within a region.
#[inline]
pub(crate) fn within(
    place: RegionLocation,
    at: u32,
    count: u32,
) -> Option<(RegionLocation, core::ops::Range<usize>)> {
    let begin = at as usize;
    let end = begin + count as usize;
    (end <= place.count).then_some((place, begin..end))
}

/// Stores what a write carries, line after line, the stamp of each line last.
#[inline]
fn copy(own: &ProcessLayout, source: &WriteSource, to: &[CacheLine]) {
    let lines = |lines: &LineRange| -> &[CacheLine] {
        if lines.count == 0 {
            return &[];
        }
        &Regions::lines(own, lines.region)[lines.at as usize..][..lines.count as usize]
    };
    match source {
        WriteSource::Copy(from) => {
            for (to, from) in to.iter().zip(lines(from)) {
                to.copy(from, from.stamp());
            }
        }
        WriteSource::Made { head, stamp, rest } => {
            to[0].put(head, *stamp);
            for (to, from) in to[1..].iter().zip(lines(rest)) {
                to.copy(from, *stamp);
            }
        }
    }
}

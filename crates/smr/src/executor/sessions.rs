//! Which requests ran, so that a retried command takes effect once.
//!
//! A session's requests are numbered, and each says from which number on requests are open: those
//! below it were answered and need not be remembered. Since a replica may run commands that do not
//! conflict in another order than they were delivered in, a command is judged by the highest such
//! number *delivered* in front of it (its `floor`), not by the commands that happened to run before
//! it; and a request is dropped only when everything delivered up to the command that allowed it
//! has run. Hence all replicas agree which commands take effect, even if they remember different
//! sessions.
//!
//! So there are two tables. The [`Floors`] follow deliveries, the [`Sessions`] executions.
//!
//! An idle session is forgotten after [`Limits::session_ms`] of ordered time, by the hosts' clock:
//! a wall clock that is set makes no command old. A retry carries the
//! stamp of its first sending, and a command older than that is refused unless it is known that it ran:
//! which of them run follows from the order alone. A stamp that is far ahead of ordered time, since the gateway's clock
//! is wrong (see [`super::clocks`]), would not be old by then, and is refused, too.
//!
//! Ordered time does not advance while a shard orders nothing, and leaps once it continues. By a leap a
//! command would look old that ran a moment ago. So sessions age by *lived* time, which omits most of a leap
//! ([`LEAP_MS`](super::LEAP_MS)). Lived time is never faster than ordered time: a request that the one forgets
//! is refused by the other. A gateway that first sent a command a moment ago therefore knows that one which was
//! refused by its stamp was not executed.
//!
//! Such a gateway sends the command again with the ordered time that it received. Then no copy of the refused message
//! may be executed, although ordered time reaches its stamp: the floor of its session remembers the stamps that were
//! refused, as long as these requests are open, and the session's floor is kept as long as such a copy could be
//! admitted. Nor may later requests overtake it that the session sent behind it, since their client expects them in
//! this order: they are refused alike for a while ([`HELD_MS`]), until it was admitted or is not open any more.
//! Sessions whose numbers come in any order ([`UNORDERED`]) are not held.
//!
//! The effect of a floor follows from the order alone: an expired floor counts as none from then
//! on, no matter when a replica drops it.
//!
//! So does the effect of a record of what ran. A client may err about when it sent a request first, and repeat one with
//! a fresh stamp that it sent long ago: some replicas have forgotten that session by then, and some have not. A session
//! therefore *begins* anew with the first delivery after it was idle for so long, and each such beginning has a record
//! of its own, named by the position of that delivery (`begun`): earlier records count no more, whether a replica
//! still has them or not. Commands that were delivered before that and wait are judged by the record of their time. A
//! record is never forgotten while commands of its beginning may come, since all of them, retries as well, renew
//! its age when they have their turn. Parts of commands have no turn, and leave no record: they do not renew it.
//!
//! Answers over [`Limits::answer_bytes`] are dropped, of
//! the longest idle sessions first; a retry of such a request gets that error, and does not run
//! again.

use super::mutant::{self, ExecutorMutant};
use super::{AHEAD_MAX_MS, Limits};
use crate::envelope::Envelope;
use crate::hash::Keyed;
use crate::machine::Refusal;
use amcast_core::{Gid, Outcome};
use indexmap::IndexMap;
use std::collections::VecDeque;
use std::sync::Arc;

/// The record by which a session's requests are judged, from the delivered commands.
#[derive(Clone, Default, Debug, PartialEq, Eq)]
pub(super) struct Floor {
    /// The position of the delivery that began it, or began it anew; 0 in states of versions that do not have it.
    pub(super) begun: u64,
    /// Lived time of its last command, or part of one.
    pub(super) used_ms: u64,
    /// Lived time of its last command, parts not counted.
    pub(super) command_ms: u64,
    /// Requests below this were answered: the highest such number delivered so far.
    pub(super) open_from: u64,
    /// The highest request that was admitted.
    pub(super) admitted: u64,
    /// The latest stamp that was refused as ahead, or [`FAR_MS`] beyond the time of that.
    pub(super) latest_ms: u64,
    /// Those of its open requests that were refused by their stamps, in order of arrival.
    pub(super) untimely: Vec<StampRefusal>,
}

/// A message that was refused by its stamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StampRefusal {
    pub(super) request: u64,
    /// Its stamp by the hosts' clock: that of all its copies.
    pub(super) stamp_ms: u64,
    /// Lived time when it was refused.
    pub(super) at_ms: u64,
    /// Whether later requests of its session wait for it.
    pub(super) holds: bool,
}

/// Messages of one session whose refusal is remembered: more than a gateway has open that sends each refused request
/// again once. Of one that has more the oldest are forgotten.
pub(super) const UNTIMELY_MAX: usize = 2048;

/// How long the requests behind a refused one are held, in milliseconds of lived time: longer than a gateway waits
/// for an answer.
pub(super) const HELD_MS: u64 = 30_000;

/// How far ahead of time a stamp is remembered, in milliseconds: copies of a message come sooner.
const FAR_MS: u64 = 24 * 3_600_000;

/// The bit of sessions whose clients number requests themselves, and send them in any order: their floors are lower than
/// what they have open.
pub const UNORDERED: u64 = 1 << 63;

/// The time of a session at the delivery of a command.
#[derive(Clone, Copy, Debug)]
pub(super) struct SessionTime {
    /// Ordered time by the hosts' clock.
    pub(super) host_ms: u64,
    /// The same without leaps.
    pub(super) lived_ms: u64,
}

/// The relation of a command's stamp to ordered time.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) enum Timing {
    #[default]
    InTime,
    /// So old that it may be forgotten whether the request ran.
    Old,
    /// Further ahead than counts, or a copy of such a message, or behind one that is to come again.
    Ahead,
}

impl Timing {
    pub(super) const fn code(self) -> u64 {
        match self {
            Self::InTime => 0,
            Self::Old => 1,
            Self::Ahead => 2,
        }
    }

    pub(super) const fn of_code(code: u64) -> Option<Self> {
        match code {
            0 => Some(Self::InTime),
            1 => Some(Self::Old),
            2 => Some(Self::Ahead),
            _ => None,
        }
    }

    /// Why a command is not executed at `now_ms`, if that is so.
    pub(super) const fn refusal(self, now_ms: u64) -> Option<Refusal> {
        match self {
            Self::InTime => None,
            Self::Old => Some(Refusal::Stale { now_ms }),
            Self::Ahead => Some(Refusal::Ahead { now_ms }),
        }
    }
}

/// The admission of a command, from its delivery in its lowest shard.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Admission {
    /// Requests below this were answered.
    pub(super) floor: u64,
    pub(super) timing: Timing,
    /// Lived time there.
    pub(super) lived_ms: u64,
    /// The position of the delivery that began its session.
    pub(super) begun: u64,
}

impl Admission {
    /// The record by which the command is judged.
    pub(super) const fn key(&self, e: &Envelope) -> SessionKey {
        SessionKey { id: e.session, begun: self.begun }
    }
}

/// The floors of one shard's sessions.
#[derive(Default, Debug)]
pub(super) struct Floors {
    pub(super) table: IndexMap<u64, Floor, Keyed>,
    /// The session that is looked at next for its age.
    hand: usize,
}

impl Floor {
    /// Of a session that a delivery at this position begins.
    fn begin(position: u64) -> Self {
        let mut it = Self::default();
        it.begin_again(position);
        it
    }

    /// Has no earlier record of its session count from the delivery at this position on.
    fn begin_again(&mut self, position: u64) {
        if !mutant::is(ExecutorMutant::KeepsIdleRecords) {
            self.begun = position;
        }
    }

    /// Notes what the envelope of a delivered command, or of a part of one, says, and returns the inputs of the
    /// decision on it.
    fn admit(&mut self, e: &Envelope, now: SessionTime, limits: &Limits) -> Admission {
        self.used_ms = self.used_ms.max(now.lived_ms);
        if e.open_from > self.open_from {
            self.open_from = e.open_from;
            self.untimely.retain(|u| u.request >= e.open_from);
        }
        let timing = self.judge(e, now, limits);
        let (floor, begun) = (self.open_from, self.begun);
        Admission { floor, timing, lived_ms: now.lived_ms, begun }
    }

    /// Whether a command of its session waits behind an earlier one that is open, was refused, and is to come again.
    fn holds(&self, e: &Envelope, lived_ms: u64) -> bool {
        let is_young = |u: &StampRefusal| u.at_ms.saturating_add(HELD_MS) >= lived_ms;
        let is_before = |u: &StampRefusal| u.request >= e.open_from && u.request < e.request;
        let mut waits_for = self.untimely.iter().filter(|u| u.holds && is_before(u) && is_young(u));
        waits_for.next().is_some() && !mutant::is(ExecutorMutant::LetsOvertake)
    }

    /// Compares the stamp of a command that is delivered now with ordered time, and records the
    /// result.
    fn judge(&mut self, e: &Envelope, now: SessionTime, limits: &Limits) -> Timing {
        let (request, stamp_ms) = (e.request, e.stamp.host_ms);
        if stamp_ms.saturating_add(limits.session_ms) < now.host_ms {
            self.note(e, now.lived_ms);
            return Timing::Old;
        }
        let is_same = |u: &StampRefusal| u.request == request && u.stamp_ms == stamp_ms;
        let is_copy = self.untimely.iter().any(is_same) && !mutant::is(ExecutorMutant::RunsCopies);
        if stamp_ms > now.host_ms.saturating_add(AHEAD_MAX_MS) {
            let far_ms = now.host_ms.saturating_add(FAR_MS);
            self.latest_ms = self.latest_ms.max(stamp_ms.min(far_ms));
            self.note(e, now.lived_ms);
            return Timing::Ahead;
        }
        if is_copy {
            return Timing::Ahead;
        }
        if self.holds(e, now.lived_ms) {
            // From the refusal of the message that it waits for: a waiting message holds nothing for longer.
            let since_ms = self.untimely.iter().filter(|u| u.holds).map(|u| u.at_ms).max();
            self.note(e, since_ms.unwrap_or(now.lived_ms));
            return Timing::Ahead;
        }
        self.admitted = self.admitted.max(request);
        self.untimely.iter_mut().filter(|u| u.request == request).for_each(|u| u.holds = false);
        Timing::InTime
    }

    /// Takes note that a message was refused, at `at_ms` of lived time.
    fn note(&mut self, e: &Envelope, at_ms: u64) {
        let (request, stamp_ms) = (e.request, e.stamp.host_ms);
        let is_known = |u: &StampRefusal| u.request == request && u.stamp_ms == stamp_ms;
        if request < self.open_from || self.untimely.iter().any(is_known) {
            return;
        }
        if self.untimely.len() >= UNTIMELY_MAX {
            self.untimely.remove(0);
        }
        // A request that was admitted before needs no hold.
        let holds = e.session & UNORDERED == 0 && request > self.admitted;
        self.untimely.push(StampRefusal { request, stamp_ms, at_ms, holds });
    }

    /// Whether it is idle for so long that a copy of any refused request is too old by now.
    fn is_over(&self, now: SessionTime, limits: &Limits) -> bool {
        let is_old = self.latest_ms.saturating_add(limits.session_ms) < now.host_ms;
        let holds_nothing = is_old || mutant::is(ExecutorMutant::ForgetsAhead);
        is_forgotten(self.used_ms, now.lived_ms, limits) && holds_nothing
    }
}

/// Whether a session that was used at `used_ms` is forgotten at `lived_ms`: all its requests are
/// too old by then, also if their stamps were a little ahead.
const fn is_forgotten(used_ms: u64, lived_ms: u64, limits: &Limits) -> bool {
    used_ms.saturating_add(limits.session_ms).saturating_add(AHEAD_MAX_MS) < lived_ms
}

impl Floors {
    /// Notes that a command was delivered in this shard at `position`, and returns the inputs of the decision on it.
    pub(super) fn admit(
        &mut self,
        e: &Envelope,
        position: u64,
        now: SessionTime,
        limits: &Limits,
    ) -> Admission {
        let floor = self.at(e.session, position, now, limits);
        floor.command_ms = floor.command_ms.max(now.lived_ms);
        floor.admit(e, now, limits)
    }

    /// The same of a part of a command.
    pub(super) fn admit_part(
        &mut self,
        e: &Envelope,
        position: u64,
        now: SessionTime,
        limits: &Limits,
    ) -> Admission {
        let floor = self.at(e.session, position, now, limits);
        if mutant::is(ExecutorMutant::RenewsByParts) {
            floor.command_ms = floor.command_ms.max(now.lived_ms);
        }
        floor.admit(e, now, limits)
    }

    /// The floor of a session of which something is delivered at `position`, begun anew if it was idle for too long.
    fn at(&mut self, id: u64, position: u64, now: SessionTime, limits: &Limits) -> &mut Floor {
        let floor = self.table.entry(id).or_insert_with(|| Floor::begin(position));
        // Other replicas may have forgotten it already, ..
        if floor.is_over(now, limits) {
            *floor = Floor::begin(position);
        }
        // .. or what it ran, also where the floor is kept for what was far ahead.
        if is_forgotten(floor.command_ms, now.lived_ms, limits) {
            floor.begin_again(position);
        }
        floor
    }

    /// The admission of a command that changes nothing: it does not overtake earlier requests of
    /// its session.
    pub(super) fn look(&self, e: &Envelope, now: SessionTime, limits: &Limits) -> Admission {
        let floor = self.table.get(&e.session).filter(|floor| !floor.is_over(now, limits));
        let is_held = floor.is_some_and(|floor| floor.holds(e, now.lived_ms));
        let timing = if is_held { Timing::Ahead } else { Timing::InTime };
        Admission { timing, lived_ms: now.lived_ms, ..Admission::default() }
    }

    /// The floor of a session as far as it was delivered.
    pub(super) fn of(&self, session: u64) -> u64 {
        self.table.get(&session).map_or(0, |f| f.open_from)
    }

    /// The key of the record of what a session runs now.
    pub(super) fn key(&self, session: u64) -> SessionKey {
        SessionKey { id: session, begun: self.table.get(&session).map_or(0, |f| f.begun) }
    }

    /// Looks at two sessions and forgets those that were idle for too long before `now`, a time
    /// that every command which has not run has reached.
    pub(super) fn sweep(&mut self, now: SessionTime, limits: &Limits) {
        for _ in 0..2 {
            if self.hand >= self.table.len() {
                self.hand = 0;
            }
            let Some((_, floor)) = self.table.get_index(self.hand) else { return };
            if floor.is_over(now, limits) {
                self.table.swap_remove_index(self.hand);
            } else {
                self.hand += 1;
            }
        }
    }
}

/// How far a shard was when a command was given to be run.
#[derive(Clone, Copy, Debug)]
pub(super) struct ShardProgress {
    /// The floor of the command's session, from all that was delivered.
    pub(super) floor: u64,
    /// Everything up to this position has run.
    pub(super) applied: u64,
    /// Everything up to this position was delivered.
    pub(super) delivered: u64,
}

/// Answers that take this part of the bytes of all that are kept, as a divisor, are dropped before others.
const LARGE_PART: usize = 16;

/// The record of an answered request: its outcome, and the answer until that takes too much memory.
/// Mostly it is a few bytes, for which nothing is allocated.
#[derive(Clone, Debug)]
pub(super) enum KeptOutcome {
    Few(Outcome, u8, [u8; FEW]),
    Many(Outcome, Arc<[u8]>),
    /// The answer was dropped.
    Dropped(Outcome),
}

/// Bytes of an answer that are kept in place: then it takes no more than the pointer to many.
const FEW: usize = 21;

const _: () = assert!(size_of::<KeptOutcome>() <= 24, "there is one for each open request");

impl KeptOutcome {
    pub(super) fn new(outcome: Outcome, answer: &[u8]) -> Self {
        let mut few = [0; FEW];
        match few.get_mut(..answer.len()) {
            Some(place) => {
                place.copy_from_slice(answer);
                Self::Few(outcome, answer.len() as u8, few)
            }
            None => Self::Many(outcome, answer.into()),
        }
    }

    /// The request's outcome.
    pub(super) const fn outcome(&self) -> Outcome {
        match self {
            Self::Few(outcome, ..) | Self::Many(outcome, _) | Self::Dropped(outcome) => *outcome,
        }
    }

    /// The answer, if that was not dropped.
    pub(super) fn answer(&self) -> Option<&[u8]> {
        match self {
            Self::Few(_, len, bytes) => Some(&bytes[..usize::from(*len)]),
            Self::Many(_, bytes) => Some(bytes),
            Self::Dropped(_) => None,
        }
    }

    /// Bytes of the answer.
    pub(super) fn bytes(&self) -> usize {
        self.answer().map_or(0, <[u8]>::len)
    }
}

/// Names the record of what a session ran since it began, or began anew.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct SessionKey {
    pub(super) id: u64,
    /// See [`Floor::begun`].
    pub(super) begun: u64,
}

/// A request of a session that must have run before a read is answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct AwaitedWrite {
    /// The shard that keeps its record.
    pub(super) shard: Gid,
    pub(super) key: SessionKey,
    pub(super) request: u64,
}

/// The requests of one session that ran in one shard since it began, or began anew.
#[derive(Clone, Default, Debug)]
pub(super) struct SessionRequests {
    /// Lived time of the last command of the session, of those that had their turn.
    pub(super) used_ms: u64,
    /// Requests below the first number can be dropped once the shard applied the second, a
    /// position.
    pub(super) drop_below: Option<(u64, u64)>,
    /// Their numbers, ascending, with their kept outcomes.
    pub(super) ran: VecDeque<(u64, KeptOutcome)>,
}

/// Sessions by their ids and beginnings. A clone shares them; one is copied when it is changed then.
pub(super) type SessionTable = IndexMap<SessionKey, Arc<SessionRequests>, Keyed>;

/// The session table of one shard: the requests of each session that were executed.
#[derive(Default)]
pub(super) struct Sessions {
    pub(super) table: SessionTable,
    pub(super) answer_bytes: usize,
    /// The session that is looked at next for its age.
    hand: usize,
}

/// The decision on a command.
pub(super) enum Verdict<'a> {
    New,
    /// It was answered, with this outcome, and the kept part of the answer.
    Done(Outcome, &'a [u8]),
    Refused(Refusal),
}

impl Sessions {
    /// Puts a session there that was read.
    pub(super) fn insert(&mut self, key: SessionKey, session: SessionRequests) {
        self.answer_bytes += session.ran.iter().map(|r| r.1.bytes()).sum::<usize>();
        self.table.insert(key, Arc::new(session));
    }

    /// Has each record be remembered for as long as its session is: in states of before records were named by the delivery
    /// that began their session a request that was only repeated did not renew its record, and it would be executed again.
    pub(super) fn keep_as_long_as(&mut self, floors: &Floors) {
        for (&id, floor) in &floors.table {
            let session = self.table.get_mut(&SessionKey { id, begun: 0 });
            if let Some(session) = session.filter(|s| s.used_ms < floor.command_ms) {
                Arc::make_mut(session).used_ms = floor.command_ms;
            }
        }
    }

    /// Whether it is known that a request ran.
    pub(super) fn has_run(&self, wrote: &AwaitedWrite) -> bool {
        self.of(wrote.key, wrote.request).is_some()
    }

    /// Notes that a command had its turn and leaves no record of its own: it was answered before, or was refused.
    pub(super) fn renew(&mut self, e: &Envelope, admission: Admission) {
        let Admission { lived_ms, .. } = admission;
        let session = self.table.get_mut(&admission.key(e)).filter(|_| !e.read_only);
        let Some(session) = session else { return };
        if session.used_ms < lived_ms && !mutant::is(ExecutorMutant::AgesRetried) {
            Arc::make_mut(session).used_ms = lived_ms;
        }
    }

    /// Whether a command may run, at its turn. `now_ms` is ordered time by the hosts' clock.
    pub(super) fn check(
        &self,
        e: &Envelope,
        admission: Admission,
        now_ms: u64,
        limits: &Limits,
    ) -> Verdict<'_> {
        if e.request < e.open_from || e.request - e.open_from >= limits.window {
            return Verdict::Refused(Refusal::Window);
        }
        if e.request < admission.floor {
            return Verdict::Refused(Refusal::Forgotten { outcome: Outcome::Unknown });
        }
        // Before its stamp is looked at: a remembered request must not be taken for one that never ran.
        if let Some(kept) = self.of(admission.key(e), e.request) {
            let outcome = kept.outcome();
            return match kept.answer() {
                Some(answer) => Verdict::Done(outcome, answer),
                None => Verdict::Refused(Refusal::Forgotten { outcome }),
            };
        }
        admission.timing.refusal(now_ms).map_or(Verdict::New, Verdict::Refused)
    }

    /// The record of a request that is known to have run.
    fn of(&self, key: SessionKey, request: u64) -> Option<&KeptOutcome> {
        let ran = &self.table.get(&key)?.ran;
        let i = ran.binary_search_by_key(&request, |r| r.0).ok()?;
        Some(&ran[i].1)
    }

    /// Notes the final answer of a command, and the kept part of the answer.
    pub(super) fn record(
        &mut self,
        e: &Envelope,
        kept: KeptOutcome,
        admission: Admission,
        progress: &ShardProgress,
        limits: &Limits,
    ) {
        let session = Arc::make_mut(self.table.entry(admission.key(e)).or_default());
        session.used_ms = session.used_ms.max(admission.lived_ms);
        if let Some((below, position)) = session.drop_below
            && progress.applied >= position
        {
            while session.ran.front().is_some_and(|r| r.0 < below) {
                let dropped = session.ran.pop_front();
                self.answer_bytes -= dropped.map_or(0, |r| r.1.bytes());
            }
            session.drop_below = None;
        }
        if session.drop_below.is_none() {
            session.drop_below = Some((progress.floor, progress.delivered));
        }
        let at = session.ran.partition_point(|r| r.0 < e.request);
        self.answer_bytes += kept.bytes();
        session.ran.insert(at, (e.request, kept));
        if self.answer_bytes > limits.answer_bytes {
            // A few large answers must not cost all sessions theirs.
            for least in [limits.answer_bytes / LARGE_PART, 1] {
                self.drop_answers(least, limits.answer_bytes / 2);
            }
        }
    }

    /// Drops answers of `least` bytes and more, of the sessions that were idle longest, until `most` bytes remain.
    fn drop_answers(&mut self, least: usize, most: usize) {
        let mut by_age: Vec<(u64, SessionKey)> =
            self.table.iter().map(|(key, s)| (s.used_ms, *key)).collect();
        by_age.sort_unstable();
        for (_, key) in by_age {
            if self.answer_bytes <= most {
                return;
            }
            let session = self.table.get_mut(&key).expect("it was listed");
            if session.ran.iter().all(|(_, kept)| kept.bytes() < least) {
                continue;
            }
            let session = Arc::make_mut(session);
            for (_, kept) in session.ran.iter_mut().filter(|(_, kept)| kept.bytes() >= least) {
                self.answer_bytes -= kept.bytes();
                *kept = KeptOutcome::Dropped(kept.outcome());
            }
        }
    }

    /// Looks at two sessions and forgets those that were idle for too long before `lived_ms`, a lived time
    /// that every command which has not run has reached: what comes of them later begins them anew, and a retry of their
    /// requests is refused by its stamp, which is hardly later than when it ran.
    pub(super) fn sweep(&mut self, lived_ms: u64, limits: &Limits) {
        for _ in 0..2 {
            if self.hand >= self.table.len() {
                self.hand = 0;
            }
            let Some((_, session)) = self.table.get_index(self.hand) else { return };
            if is_forgotten(session.used_ms, lived_ms, limits) {
                if let Some((_, old)) = self.table.swap_remove_index(self.hand) {
                    self.answer_bytes -= old.ran.iter().map(|r| r.1.bytes()).sum::<usize>();
                }
            } else {
                self.hand += 1;
            }
        }
    }
}

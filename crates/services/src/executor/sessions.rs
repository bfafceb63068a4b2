//! Which requests ran, so that a retried command takes effect once.
//!
//! A session's requests are numbered, and each says from which number on requests are open: those
//! below it were answered and need not be remembered. Since a replica may run commands that do not
//! conflict in another order than they were delivered in, what counts for a command is the highest
//! such number *delivered* in front of it (its `floor`), not what happened to run before it; and a
//! request is dropped only when everything delivered up to the command that allowed it has run.
//! Hence all replicas agree which commands take effect, whatever they still remember.
//!
//! So there are two tables. The [`Floors`] follow what is delivered, the [`Sessions`] what ran.
//!
//! An idle session is forgotten after [`Limits::session_ms`] of ordered time, by the hosts' clock:
//! a wall clock that is set makes no command old. A retry carries the
//! stamp of its first sending, and a command older than that is refused unless it is known that it ran:
//! which of them run follows from the order alone. A stamp that is ahead of ordered time, since the front's clock is
//! wrong (see [`super::clocks`]), would not be old by then, and is refused, too. A front that first sent the
//! command a moment ago knows by both refusals that it was not executed, and what time it is. Answers over [`Limits::answer_bytes`] are dropped, of
//! the longest idle sessions first; a retry of such a request is told so, and does not run again.

use super::Limits;
use crate::envelope::Envelope;
use crate::kv::hash::Keyed;
use crate::machine::Refusal;
use amcast_core::Outcome;
use indexmap::IndexMap;
use std::collections::VecDeque;
use std::sync::Arc;

/// What a session's requests are judged by, from the commands that were delivered.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub(super) struct Floor {
    /// Ordered time of its last command, by the hosts' clock.
    pub(super) used_ms: u64,
    /// Requests below this were answered: the highest such number delivered so far.
    pub(super) open_from: u64,
}

/// The floors of one shard's sessions.
#[derive(Default, Debug)]
pub(super) struct Floors {
    pub(super) table: IndexMap<u64, Floor, Keyed>,
    /// The session that is looked at next for its age.
    hand: usize,
}

impl Floors {
    /// Notes that a command was delivered in this shard; the floor that it will be judged by.
    pub(super) fn admit(&mut self, e: &Envelope, host_ms: u64) -> u64 {
        let floor = self.table.entry(e.session).or_default();
        floor.used_ms = floor.used_ms.max(host_ms);
        floor.open_from = floor.open_from.max(e.open_from);
        floor.open_from
    }

    /// The floor of a session as far as it was delivered.
    pub(super) fn of(&self, session: u64) -> u64 {
        self.table.get(&session).map_or(0, |f| f.open_from)
    }

    /// Looks at two sessions and forgets those that were idle for too long before `host_ms`, a time
    /// that every command which has not run has reached.
    pub(super) fn tidy(&mut self, host_ms: u64, limits: &Limits) {
        for _ in 0..2 {
            if self.hand >= self.table.len() {
                self.hand = 0;
            }
            let Some((_, floor)) = self.table.get_index(self.hand) else { return };
            if floor.used_ms.saturating_add(limits.session_ms) < host_ms {
                self.table.swap_remove_index(self.hand);
            } else {
                self.hand += 1;
            }
        }
    }
}

/// How far a shard was when a command was given to be run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Progress {
    /// The floor of the command's session, from all that was delivered.
    pub(super) floor: u64,
    /// Everything up to this position has run.
    pub(super) applied: u64,
    /// Everything up to this position was delivered.
    pub(super) delivered: u64,
}

/// What is kept of a request that was answered: what became of it, and the answer until that takes too much. Mostly
/// it is a few bytes, for which nothing is allocated.
#[derive(Clone, Debug)]
pub(super) enum Kept {
    Few(Outcome, u8, [u8; FEW]),
    Many(Outcome, Arc<[u8]>),
    /// The answer was dropped.
    Dropped(Outcome),
}

/// Bytes of an answer that are kept in place: then it takes no more than the pointer to many.
const FEW: usize = 21;

const _: () = assert!(size_of::<Kept>() <= 24, "there is one for each open request");

impl Kept {
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

    /// What became of the request.
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

/// The requests of one session that ran in one shard.
#[derive(Clone, Default, Debug)]
pub(super) struct Session {
    /// Ordered time of the last one, by the hosts' clock.
    pub(super) used_ms: u64,
    /// Requests below the first number can be dropped once the shard applied the second, a
    /// position.
    pub(super) drop_below: Option<(u64, u64)>,
    /// Their numbers, ascending, with what is kept of them.
    pub(super) ran: VecDeque<(u64, Kept)>,
}

/// Sessions by their ids. A clone shares them; one is copied when it is changed then.
pub(super) type Table = IndexMap<u64, Arc<Session>, Keyed>;

/// What ran of the sessions of one shard.
#[derive(Default)]
pub(super) struct Sessions {
    pub(super) table: Table,
    pub(super) answer_bytes: usize,
    /// The session that is looked at next for its age.
    hand: usize,
}

/// What to do with a command.
pub(super) enum Verdict<'a> {
    New,
    /// It was answered: what became of it, and what is kept of the answer.
    Done(Outcome, &'a [u8]),
    Refused(Refusal),
}

impl Sessions {
    /// Puts a session there that was read.
    pub(super) fn insert(&mut self, id: u64, session: Session) {
        self.answer_bytes += session.ran.iter().map(|r| r.1.bytes()).sum::<usize>();
        self.table.insert(id, Arc::new(session));
    }

    /// Whether it is known that a request ran.
    pub(super) fn has_run(&self, session: u64, request: u64) -> bool {
        self.of(session, request).is_some()
    }

    /// Whether a command may run, when its turn has come.
    pub(super) fn check(
        &self,
        e: &Envelope,
        floor: u64,
        host_ms: u64,
        limits: &Limits,
    ) -> Verdict<'_> {
        if e.request < e.open_from || e.request - e.open_from >= limits.window {
            return Verdict::Refused(Refusal::Window);
        }
        if e.request < floor {
            return Verdict::Refused(Refusal::Forgotten { outcome: Outcome::Unknown });
        }
        // Before its stamp is looked at: what is remembered must not be taken for what never ran.
        if let Some(kept) = self.of(e.session, e.request) {
            let outcome = kept.outcome();
            return match kept.answer() {
                Some(answer) => Verdict::Done(outcome, answer),
                None => Verdict::Refused(Refusal::Forgotten { outcome }),
            };
        }
        if e.stamp.host_ms.saturating_add(limits.session_ms) < host_ms {
            return Verdict::Refused(Refusal::Stale { now_ms: host_ms });
        }
        // If it counted, it would not be old yet when its session is forgotten.
        if e.stamp.host_ms > host_ms {
            return Verdict::Refused(Refusal::Ahead { now_ms: host_ms });
        }
        Verdict::New
    }

    /// What is kept of a request that is known to have run.
    fn of(&self, session: u64, request: u64) -> Option<&Kept> {
        let ran = &self.table.get(&session)?.ran;
        let i = ran.binary_search_by_key(&request, |r| r.0).ok()?;
        Some(&ran[i].1)
    }

    /// Notes that a command ran at `host_ms`, and what is kept of it.
    pub(super) fn record(
        &mut self,
        e: &Envelope,
        kept: Kept,
        host_ms: u64,
        progress: &Progress,
        limits: &Limits,
    ) {
        let session = Arc::make_mut(self.table.entry(e.session).or_default());
        session.used_ms = session.used_ms.max(host_ms);
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
            self.drop_answers(limits.answer_bytes / 2);
        }
    }

    /// Drops answers of the sessions that were idle longest until `most` bytes remain.
    fn drop_answers(&mut self, most: usize) {
        let mut by_age: Vec<(u64, u64)> =
            self.table.iter().map(|(id, s)| (s.used_ms, *id)).collect();
        by_age.sort_unstable();
        for (_, id) in by_age {
            let session = Arc::make_mut(self.table.get_mut(&id).expect("it was listed"));
            for (_, kept) in &mut session.ran {
                self.answer_bytes -= kept.bytes();
                *kept = Kept::Dropped(kept.outcome());
            }
            if self.answer_bytes <= most {
                return;
            }
        }
    }

    /// Looks at two sessions and forgets those that were idle for too long before `host_ms`, a time
    /// that every command which has not run has reached: a retry of what they ran is refused by
    /// its stamp, which is no later than when it ran.
    pub(super) fn tidy(&mut self, host_ms: u64, limits: &Limits) {
        for _ in 0..2 {
            if self.hand >= self.table.len() {
                self.hand = 0;
            }
            let Some((_, session)) = self.table.get_index(self.hand) else { return };
            if session.used_ms.saturating_add(limits.session_ms) < host_ms {
                if let Some((_, old)) = self.table.swap_remove_index(self.hand) {
                    self.answer_bytes -= old.ran.iter().map(|r| r.1.bytes()).sum::<usize>();
                }
            } else {
                self.hand += 1;
            }
        }
    }
}

//! Commands whose answers the node did not keep, since too many bytes of answers wait for this gateway: they are sent again, a
//! few at a time.
//!
//! They go beside the commands of others, and have these wait no longer than the few take: so clients that ask for far more
//! than the gateway can take hold back nobody else. Commands of one session stay in their order: what is handed in for it
//! goes behind those that are to be sent again.

use super::jobs::GatewayJob;
use amcast_core::Gid;
use amcast_smr::Envelope;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Commands of one group that are sent again and not answered, at a time.
const AT_ONCE: usize = 4;

/// The commands of all sessions that are to be sent again.
#[derive(Default)]
pub(super) struct DeferredCommands {
    sessions: BTreeMap<DeferredKey, DeferredSession>,
    /// The sessions in the order of their turns.
    turns: VecDeque<DeferredKey>,
    /// Commands that were handed in behind others which are sent again by now: they go next.
    free: VecDeque<GatewayJob>,
    /// Those that were sent again and are not answered, by their first numbers, with the lowest of their groups.
    under_way: BTreeMap<u64, Gid>,
}

/// The commands that share a turn.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum DeferredKey {
    /// The commands of this session.
    Session(u64),
    /// A command that is of none, by its first number.
    Alone(u64),
}

/// A session that has commands to be sent again, or one command.
#[derive(Default)]
struct DeferredSession {
    /// Their first numbers: the order in which they were sent.
    again: BTreeSet<u64>,
    /// Those behind them, which were not sent yet.
    fresh: VecDeque<GatewayJob>,
}

/// The session of a job, if its commands have an order.
fn session(job: &GatewayJob) -> Option<u64> {
    let session = Envelope::decode(&job.payload).map(|(envelope, _)| envelope.session);
    // Sessions begin with 1.
    session.filter(|session| *session > 0)
}

/// The session that a command with this first number is deferred with.
fn key(first: u64, job: &GatewayJob) -> DeferredKey {
    session(job).map_or(DeferredKey::Alone(first), DeferredKey::Session)
}

impl DeferredCommands {
    /// Whether nothing waits or is under way again.
    pub(super) fn is_empty(&self) -> bool {
        self.sessions.is_empty() && self.free.is_empty() && self.under_way.is_empty()
    }

    /// The job that was sent with this first number is to be sent again.
    pub(super) fn refuse(&mut self, first: u64, job: &GatewayJob) {
        self.under_way.remove(&first);
        let key = key(first, job);
        let one = self.sessions.entry(key).or_insert_with(|| {
            self.turns.push_back(key);
            DeferredSession::default()
        });
        one.again.insert(first);
    }

    /// The same, if others of its session are to be sent again, too: whether they are.
    pub(super) fn refuse_beside(&mut self, first: u64, job: &GatewayJob) -> bool {
        let has_others = self.sessions.contains_key(&key(first, job));
        if has_others {
            self.refuse(first, job);
        }
        self.under_way.remove(&first);
        has_others
    }

    /// Whether the job with this first number is to be sent again.
    pub(super) fn holds(&self, first: u64, job: &GatewayJob) -> bool {
        let one = self.sessions.get(&key(first, job));
        one.is_some_and(|one| one.again.contains(&first))
    }

    /// Has a job wait behind those of its session, if there are any; else it is given back.
    pub(super) fn wait_behind(&mut self, job: GatewayJob) -> Option<GatewayJob> {
        let Some(session) = session(&job) else { return Some(job) };
        if let Some(one) = self.sessions.get_mut(&DeferredKey::Session(session)) {
            one.fresh.push_back(job);
        } else if self.free.iter().any(|free| self::session(free) == Some(session)) {
            self.free.push_back(job);
        } else {
            return Some(job);
        }
        None
    }

    /// Sessions that have commands to be sent again.
    pub(super) fn turns(&self) -> usize {
        self.turns.len()
    }

    /// The next command to be sent again, by its first number. Its session goes behind the others.
    pub(super) fn next(&mut self) -> Option<u64> {
        self.turns.rotate_left(usize::from(!self.turns.is_empty()));
        self.sessions.get(self.turns.back()?)?.again.first().copied()
    }

    /// Whether one more command of this group may be sent again now.
    pub(super) fn may_send(&self, group: Gid) -> bool {
        self.under_way.values().filter(|other| **other == group).count() < AT_ONCE
    }

    /// The command that came [next](Self::next) was sent again, to this group and others; or nobody waits for it any more.
    pub(super) fn done(&mut self, sent_to: Option<Gid>) {
        let Some(key) = self.turns.back().copied() else { return };
        let Some(one) = self.sessions.get_mut(&key) else { return };
        if let (Some(first), Some(group)) = (one.again.pop_first(), sent_to) {
            self.under_way.insert(first, group);
        }
        self.sweep(key);
    }

    /// Nobody waits for the job with this first number any more.
    pub(super) fn end(&mut self, first: u64, job: &GatewayJob) {
        self.under_way.remove(&first);
        let key = key(first, job);
        if let Some(one) = self.sessions.get_mut(&key)
            && one.again.remove(&first)
        {
            self.sweep(key);
        }
    }

    /// Forgets a session that has nothing to be sent again.
    fn sweep(&mut self, key: DeferredKey) {
        if self.sessions.get(&key).is_some_and(|one| one.again.is_empty()) {
            let fresh = self.sessions.remove(&key).map(|one| one.fresh);
            self.free.extend(fresh.into_iter().flatten());
            self.turns.retain(|other| *other != key);
        }
    }

    /// The next one that waits behind nothing any more, if it `fits`.
    pub(super) fn take_free(&mut self, fits: impl Fn(&GatewayJob) -> bool) -> Option<GatewayJob> {
        self.free.front().is_some_and(fits).then(|| self.free.pop_front()).flatten()
    }

    /// Takes out those that were never sent and are not to wait any longer.
    pub(super) fn take_fresh(&mut self, which: impl Fn(&GatewayJob) -> bool) -> Vec<GatewayJob> {
        let mut taken = Vec::new();
        let waiting = self.sessions.values_mut().map(|one| &mut one.fresh);
        for jobs in waiting.chain([&mut self.free]) {
            for job in std::mem::take(jobs) {
                if which(&job) {
                    taken.push(job);
                } else {
                    jobs.push_back(job);
                }
            }
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::super::jobs::JobAsker;
    use super::*;
    use amcast_core::{GroupSet, Time};
    use amcast_smr::Stamp;

    fn job(session: u64) -> GatewayJob {
        let stamp = Stamp { wall_ms: 0, host_ms: 0 };
        let head = Envelope { session, request: 1, open_from: 1, stamp, read_only: session == 0 };
        let mut payload = Vec::new();
        head.encode(&mut payload);
        GatewayJob {
            dst: GroupSet::one(Gid(0)),
            payload: payload.into(),
            is_read: session == 0,
            since: Time::ZERO,
            asker: JobAsker::Sink(1),
        }
    }

    #[test]
    fn a_command_of_no_session_has_a_turn_of_its_own_beside_sessions_with_any_number() {
        let mut deferred = DeferredCommands::default();
        // A client of the log draws any number.
        let sessions = [5, u64::MAX - 5, u64::MAX - 6];
        for (first, session) in (1..).zip(sessions) {
            deferred.refuse(first, &job(session));
        }
        deferred.refuse(5, &job(0));
        deferred.refuse(6, &job(0));
        assert_eq!(deferred.turns(), 5);
        for (first, session) in (11..).zip(sessions) {
            assert!(deferred.wait_behind(job(session)).is_none(), "it waits behind its own");
            assert!(deferred.refuse_beside(first, &job(session)));
        }
        assert!(!deferred.refuse_beside(7, &job(0)));
        for first in [5, 6] {
            assert!(deferred.holds(first, &job(0)));
            deferred.end(first, &job(0));
        }
        assert_eq!(deferred.turns(), 3);
    }
}

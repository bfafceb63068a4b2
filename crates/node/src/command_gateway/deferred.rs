//! Commands whose answers the node did not keep, since too many bytes of answers wait for this gateway: they are sent again, a
//! few at a time.
//!
//! They go beside the commands of others, and not before them: so clients that ask for far more than the gateway can take hold
//! back nobody else. Commands of one session stay in their order: what is handed in for it waits behind those that are to
//! be sent again.

use super::jobs::GatewayJob;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Commands that are sent again and not answered, at a time.
const AT_ONCE: usize = 4;

/// The commands of all sessions that wait to be sent again.
#[derive(Default)]
pub(super) struct DeferredCommands {
    /// They take turns, the one that comes next in front.
    sessions: VecDeque<DeferredSession>,
    /// Those that were sent again and are not answered, by their first numbers, with their sessions.
    under_way: BTreeMap<u64, u64>,
}

/// A session of which commands wait, or are under way again.
struct DeferredSession {
    session: u64,
    /// The first numbers of those that are to be sent again: the order in which they were sent.
    again: BTreeSet<u64>,
    /// Those behind them, which were not sent yet.
    fresh: VecDeque<GatewayJob>,
}

/// The next command of a session.
pub(super) enum DeferredCommand {
    /// The one of this first number is to be sent again.
    Again(u64),
    /// This one is to be sent, for this session.
    Fresh(GatewayJob, u64),
}

impl DeferredCommands {
    /// Whether nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    fn of(&mut self, session: u64) -> Option<&mut DeferredSession> {
        self.sessions.iter_mut().find(|one| one.session == session)
    }

    /// The command with this first number is to be sent again.
    pub(super) fn refuse(&mut self, session: u64, first: u64) {
        self.under_way.remove(&first);
        match self.of(session) {
            Some(one) => _ = one.again.insert(first),
            None => {
                let (again, fresh) = ([first].into(), VecDeque::new());
                self.sessions.push_back(DeferredSession { session, again, fresh });
            }
        }
    }

    /// Whether the command with this first number waits to be sent again.
    pub(super) fn holds(&self, first: u64) -> bool {
        self.sessions.iter().any(|one| one.again.contains(&first))
    }

    /// Has a command wait behind those of its session, if there are any; else it is given back.
    pub(super) fn wait_behind(&mut self, session: u64, job: GatewayJob) -> Option<GatewayJob> {
        match self.of(session) {
            Some(one) => {
                one.fresh.push_back(job);
                None
            }
            None => Some(job),
        }
    }

    /// The next command that may be sent, if there may be more under way.
    pub(super) fn next(&mut self) -> Option<DeferredCommand> {
        if self.under_way.len() >= AT_ONCE {
            return None;
        }
        let waits = |one: &DeferredSession| !one.again.is_empty() || !one.fresh.is_empty();
        let at = self.sessions.iter().position(waits)?;
        let mut one = self.sessions.remove(at)?;
        let next = match one.again.pop_first() {
            Some(first) => Some(DeferredCommand::Again(first)),
            None => one.fresh.pop_front().map(|job| DeferredCommand::Fresh(job, one.session)),
        };
        self.sessions.push_back(one);
        next
    }

    /// The command with this first number was sent for this session.
    pub(super) fn sent(&mut self, session: u64, first: u64) {
        self.under_way.insert(first, session);
    }

    /// Nobody waits for the command with this first number any more.
    pub(super) fn end(&mut self, first: u64) {
        self.under_way.remove(&first);
        self.sessions.iter_mut().for_each(|one| _ = one.again.remove(&first));
        let under_way = &self.under_way;
        let is_under_way = |session| under_way.values().any(|other| *other == session);
        self.sessions.retain(|one| {
            !one.again.is_empty() || !one.fresh.is_empty() || is_under_way(one.session)
        });
    }

    /// Takes out those that were never sent and are not to wait any longer.
    pub(super) fn take_fresh(&mut self, which: impl Fn(&GatewayJob) -> bool) -> Vec<GatewayJob> {
        let mut taken = Vec::new();
        for one in &mut self.sessions {
            for job in std::mem::take(&mut one.fresh) {
                if which(&job) {
                    taken.push(job);
                } else {
                    one.fresh.push_back(job);
                }
            }
        }
        taken
    }
}

//! The session of each request, for the executor.
//!
//! A client's own session has the highest bit of its number set; those that a gateway makes have not. A
//! gateway's sessions are a pool, lent to one request at a time: a request whose client gave up may be
//! under way still when its session is lent again, and is then refused by the higher number if it
//! comes later in the same shard. In another shard it may be executed still, as its client has to expect.

use crate::gateway::log::status::invalid;
use amcast_log::client::AGE_MAX_MS;
use amcast_log::proto;
use amcast_smr::{Envelope, Limits, Stamp, digest};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tonic::Status;

/// Sessions of clients that a gateway serves within the time for which sessions are remembered.
const NAMED_MAX: usize = 65_536;

/// How often a gateway that has so many looks whether some are forgotten.
const TIDY_EVERY: Duration = Duration::from_secs(1);

/// The bit that distinguishes them from those of gateways: their requests may come in any order.
const NAMED: u64 = amcast_smr::executor::UNORDERED;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The sessions of a gateway.
pub(crate) struct GatewaySessions {
    lanes: Mutex<FreeSessions>,
    named: Mutex<NamedSessions>,
}

struct FreeSessions {
    next: u64,
    /// Sessions that are not lent, each with its last request.
    free: Vec<(u64, u64)>,
}

#[derive(Default)]
struct NamedSessions {
    /// When each was last used.
    used: HashMap<u64, Instant>,
    tidied: Option<Instant>,
}

/// A session lent to one request.
pub(crate) struct LentSession<'a> {
    sessions: &'a GatewaySessions,
    session: u64,
    request: u64,
}

impl Drop for LentSession<'_> {
    fn drop(&mut self) {
        lock(&self.sessions.lanes).free.push((self.session, self.request));
    }
}

impl LentSession<'_> {
    /// The envelope of its command.
    pub(crate) fn envelope(&self, stamp: Stamp) -> Envelope {
        let Self { session, request, .. } = *self;
        Envelope { session, request, open_from: request, stamp, read_only: false }
    }
}

impl GatewaySessions {
    /// The gateway's own sessions have the numbers from `first` on.
    pub(crate) fn new(first: u64) -> Self {
        let lanes = Mutex::new(FreeSessions { next: first, free: Vec::new() });
        Self { lanes, named: Mutex::default() }
    }

    /// Lends a session.
    pub(crate) fn lend(&self) -> LentSession<'_> {
        let mut lanes = lock(&self.lanes);
        let (session, last) = lanes.free.pop().unwrap_or_else(|| {
            lanes.next += 1;
            (lanes.next - 1, 0)
        });
        LentSession { sessions: self, session, request: last + 1 }
    }

    /// The envelope of a command of a client's own session.
    ///
    /// # Errors
    /// When the session makes no sense, the request is too old, or there are too many sessions.
    pub(crate) fn named(&self, session: &proto::Session, stamp: Stamp) -> Result<Envelope, Status> {
        let proto::Session { id, request, age_ms } = *session;
        if id == 0 || request == 0 {
            return Err(invalid(
                "a session has an id and numbers its requests from 1; nothing \
                                happened",
            ));
        }
        if age_ms > AGE_MAX_MS {
            return Err(Status::failed_precondition(format!(
                "the request was first sent {age_ms} ms ago, and what is older than {AGE_MAX_MS} ms \
                 may be forgotten: whether it took effect is not known"
            )));
        }
        let id = id | NAMED;
        if id == digest::SESSION {
            return Err(invalid(format!(
                "the session id {} is one that nodes use themselves; nothing happened: draw another one",
                session.id
            )));
        }
        if !lock(&self.named).admit(id, Instant::now()) {
            return Err(Status::resource_exhausted(format!(
                "this node serves {NAMED_MAX} sessions; nothing happened: keep one session and number \
                 its requests, or ask another node"
            )));
        }
        let open_from = request.saturating_sub(Limits::default().window - 1).max(1);
        let host_ms = stamp.host_ms.saturating_sub(age_ms);
        let stamp = Stamp { host_ms, ..stamp };
        Ok(Envelope { session: id, request, open_from, stamp, read_only: false })
    }
}

impl NamedSessions {
    /// Notes that a session is used, unless there are too many.
    fn admit(&mut self, id: u64, now: Instant) -> bool {
        if self.used.len() >= NAMED_MAX && !self.used.contains_key(&id) {
            if self.tidied.is_some_and(|then| now.duration_since(then) < TIDY_EVERY) {
                return false;
            }
            self.tidied = Some(now);
            let remembered = Duration::from_millis(Limits::default().session_ms);
            self.used.retain(|_, used| now.duration_since(*used) < remembered);
            if self.used.len() >= NAMED_MAX {
                return false;
            }
        }
        self.used.insert(id, now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAMP: Stamp = Stamp { wall_ms: 9_000_000, host_ms: 1_000_000 };

    fn asked(id: u64, request: u64, age_ms: u64) -> proto::Session {
        proto::Session { id, request, age_ms }
    }

    #[test]
    fn a_lent_session_numbers_its_requests_on_and_is_not_lent_twice_at_a_time() {
        let sessions = GatewaySessions::new(70);
        let (one, two) = (sessions.lend(), sessions.lend());
        let heads = [one.envelope(STAMP), two.envelope(STAMP)];
        assert_eq!(heads.map(|e| (e.session, e.request, e.open_from)), [(70, 1, 1), (71, 1, 1)]);
        drop(one);
        let again = sessions.lend().envelope(STAMP);
        assert_eq!((again.session, again.request, again.open_from), (70, 2, 2));
    }

    #[test]
    fn a_repeated_request_is_as_old_as_its_first_sending_and_too_old_ones_are_refused() {
        let sessions = GatewaySessions::new(1);
        let first = sessions.named(&asked(5, 2000, 0), STAMP).unwrap();
        let later = Stamp { wall_ms: 9_000_400, host_ms: 1_000_400 };
        let again = sessions.named(&asked(5, 2000, 400), later).unwrap();
        assert_eq!(first.stamp.host_ms, again.stamp.host_ms);
        assert_eq!((first.session, first.request), (again.session, again.request));
        assert_eq!(first.request - first.open_from, 1023, "as far as the window goes");
        assert!(first.session > NAMED);
        for (wrong, code) in [
            (asked(0, 1, 0), tonic::Code::InvalidArgument),
            (asked(5, 0, 0), tonic::Code::InvalidArgument),
            (asked(u64::MAX, 1, 0), tonic::Code::InvalidArgument),
            (asked(u64::MAX >> 1, 1, 0), tonic::Code::InvalidArgument),
            (asked(5, 1, AGE_MAX_MS + 1), tonic::Code::FailedPrecondition),
        ] {
            assert_eq!(sessions.named(&wrong, STAMP).unwrap_err().code(), code);
        }
    }

    #[test]
    fn sessions_are_bounded_and_those_that_are_forgotten_make_room() {
        let (mut named, start) = (NamedSessions::default(), Instant::now());
        assert!((0..NAMED_MAX as u64).all(|id| named.admit(id, start)));
        assert!(!named.admit(u64::MAX, start), "too many");
        assert!(named.admit(7, start), "this one is known");
        let later = start + Duration::from_millis(Limits::default().session_ms);
        assert!(named.admit(u64::MAX, later));
        assert_eq!(named.used.len(), 1);
    }
}

//! The thread of a member: it takes requests, steps the protocol, and sleeps when there is nothing to do.

use super::{MemberAnswer, MemberCallError};
use crate::clock;
use crate::diagnostics;
use crate::incarnation::IncarnationLock;
use crate::memory_driver::UpperLayer;
use crate::message_driver::MessageDriver;
use crate::node_history::NodeHistory;
use crate::replicas::Replicas;
use amcast_core::{
    ClusterShape, Delivery, Gid, GroupSet, MsgId, Outcome, Pid, ProtocolEvent, Span, Submission,
    Time,
};
use amcast_memory::{Idle, Idler, Pause};
use amcast_smr::{ReconcilingReplica, StateMachine};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender};

/// The only group.
const GROUP: Gid = Gid(0);

/// Requests that are taken in one round, at most, so that the protocol has its turn.
const REQUESTS_A_ROUND: usize = 64;

/// The longest a loop sleeps, so that it looks at its flag now and then.
const SLEEP_MAX: Span = Span::millis(50);

/// How long a member that stops waits for its callers' commands and for leaving its view, from its stop and from the last
/// progress of an exchange of states on: without its own the others would not have what it has acknowledged alone.
const LEAVING_PATIENCE: Span = Span::secs(2);

/// How long it waits for all of that.
const LEAVING_MAX: Span = Span::secs(30);

/// The longest a loop sleeps while it leaves.
const LEAVING_SLEEP: Span = Span::millis(1);

/// A look at the replica, in the member's thread.
pub(super) type ReplicaLook<S> = Box<dyn FnOnce(&ReconcilingReplica<S>) + Send>;

/// A request to the member's thread.
pub(super) enum MemberRequest<S: StateMachine> {
    /// To execute a command, and to answer it here.
    Command(Vec<u8>, SyncSender<MemberAnswer>),
    /// To show the replica.
    Look(ReplicaLook<S>),
}

/// The layer above the protocol.
struct MemberReplica<S: StateMachine> {
    replica: ReconcilingReplica<S>,
    /// Those who wait for an answer, by the number of their command.
    callers: BTreeMap<u64, SyncSender<MemberAnswer>>,
    /// How much was delivered.
    position: u64,
    /// Whether it may stop: it has left its view, or cannot.
    has_left: bool,
    history: Option<NodeHistory>,
    cluster: ClusterShape,
}

/// The parts of a member that exist before its thread.
pub(super) struct MemberParts<S: StateMachine> {
    pub(super) driver: MessageDriver,
    pub(super) replica: ReconcilingReplica<S>,
    pub(super) life: IncarnationLock,
    pub(super) history: Option<NodeHistory>,
    pub(super) cluster: ClusterShape,
}

/// Gives a caller its answer; one that has gone does without.
fn answer(
    callers: &mut BTreeMap<u64, SyncSender<MemberAnswer>>,
    number: u64,
    answer: MemberAnswer,
) {
    let Some(caller) = callers.remove(&number) else { return };
    // Its channel has room for one answer, and this is the only one.
    drop(caller.try_send(answer));
}

/// The answer to a command that the machine executed or declined.
fn answer_of(outcome: Outcome, bytes: &[u8]) -> MemberAnswer {
    match outcome {
        Outcome::Executed => Ok(bytes.to_vec()),
        outcome => Err(MemberCallError::Declined(bytes.to_vec(), outcome)),
    }
}

impl<S: StateMachine> MemberReplica<S> {
    fn stop(&mut self) {
        let Self { replica, callers, .. } = self;
        replica.stop(&mut |number, outcome, _| {
            answer(callers, number, Err(MemberCallError::Stopped(outcome)));
        });
    }
}

impl<S: StateMachine> UpperLayer for MemberReplica<S> {
    fn deliver(&mut self, _: Time, _: Pid, delivery: Delivery, payload: &[u8]) {
        let Self { replica, callers, position, history, .. } = self;
        *position = delivery.position;
        if let Some(history) = history {
            // The round's time may be older than the multicast.
            history.deliver(clock::now(), GROUP, delivery.position, delivery.msg);
        }
        replica.deliver(delivery.msg.sender.0, payload, &mut |number, outcome, bytes| {
            answer(callers, number, answer_of(outcome, bytes));
        });
    }

    fn event(&mut self, _: Time, p: Pid, event: ProtocolEvent) {
        self.record(p, event);
        let Self { replica, callers, has_left, .. } = self;
        *has_left |= matches!(event, ProtocolEvent::Left(_) | ProtocolEvent::MayStop(_));
        replica.event(event, &mut |number, outcome, bytes| {
            answer(callers, number, answer_of(outcome, bytes));
        });
    }
}

impl<S: StateMachine> MemberReplica<S> {
    fn record(&mut self, p: Pid, event: ProtocolEvent) {
        diagnostics::log_event(&self.cluster, p, event);
        let Some(history) = &mut self.history else { return };
        match event {
            ProtocolEvent::Part(m) => history.part(clock::now(), p, m),
            ProtocolEvent::ViewEntered { number, members, .. } => {
                let of = |rank: &usize| members >> rank & 1 == 1;
                let ranks = (0..self.cluster.replicas()).filter(of);
                let members: Vec<Pid> = ranks.map(|r| self.cluster.replica(GROUP, r)).collect();
                history.view(clock::now(), p, number, &members);
            }
            ProtocolEvent::Left(_) => history.left(clock::now(), p),
            _ => {}
        }
    }
}

/// How much longer a member that stops waits, by the progress of an exchange of states.
struct LeavingDeadline<P> {
    until: Time,
    /// It waits no longer than that.
    last: Time,
    progress: Option<P>,
}

impl<P: PartialEq> LeavingDeadline<P> {
    /// Of a member that is stopped at `now`.
    fn new(now: Time) -> Self {
        Self { until: now + LEAVING_PATIENCE, last: now + LEAVING_MAX, progress: None }
    }

    /// Whether it is over at `now`, when an exchange of states has made this progress.
    fn is_over(&mut self, now: Time, progress: Option<P>) -> bool {
        if progress != self.progress {
            // Once the exchange is over, too, there is to be time for the rest.
            (self.progress, self.until) = (progress, now + LEAVING_PATIENCE);
        }
        now >= self.until.min(self.last)
    }
}

/// The loop of a member.
pub(super) struct MemberLoop<S: StateMachine> {
    driver: MessageDriver,
    above: MemberReplica<S>,
    requests: Receiver<MemberRequest<S>>,
    stop: Arc<AtomicBool>,
    /// The number of its next message: larger than any of an earlier life.
    next_seq: u64,
    idler: Idler,
    /// Held as long as it lives.
    life: IncarnationLock,
}

impl<S: StateMachine> MemberLoop<S> {
    pub(super) fn new(
        parts: MemberParts<S>,
        requests: Receiver<MemberRequest<S>>,
        stop: Arc<AtomicBool>,
    ) -> Self {
        let MemberParts { driver, replica, life, history, cluster } = parts;
        let callers = BTreeMap::new();
        let above =
            MemberReplica { replica, callers, position: 0, has_left: false, history, cluster };
        Self {
            driver,
            above,
            requests,
            stop,
            next_seq: life.first_seq(),
            idler: Idler::new(Idle::SHARED.woken()),
            life,
        }
    }

    /// Runs until it is to stop.
    pub(super) fn run(mut self) {
        if let Err(e) = self.driver.begin(clock::now(), &mut self.above) {
            // It keeps nothing on disk.
            tracing::error!("a member cannot begin: {e}");
            return self.above.stop();
        }
        while !self.stop.load(Ordering::Relaxed) {
            if self.round(true) {
                self.idler.busy();
            } else if self.idler.pause() == Pause::Park {
                self.above.history.iter_mut().for_each(NodeHistory::flush);
                self.driver.sleep(clock::now(), SLEEP_MAX);
            }
            let kept = self.life.keep_ahead_of(self.next_seq).map_err(|e| e.to_string());
            if let Some(why) = self.driver.failed().or(kept.err()) {
                tracing::error!("a member stops: {why}");
                break;
            }
        }
        self.leave();
    }

    /// One round over everything. Says whether there was work.
    fn round(&mut self, takes_requests: bool) -> bool {
        let now = clock::now();
        let mut busy = self.driver.round(now, &mut self.above);
        let members = self.above.replica.members();
        self.driver.wait_for((members != 0).then_some(members));
        if takes_requests {
            busy |= self.take_requests();
        }
        busy |= self.multicast(now);
        let position = self.above.position;
        self.driver.applied(now, GROUP, position, &mut self.above);
        busy | self.driver.flush(now, &mut self.above)
    }

    fn take_requests(&mut self) -> bool {
        let MemberReplica { replica, callers, .. } = &mut self.above;
        let mut any = false;
        for request in self.requests.try_iter().take(REQUESTS_A_ROUND) {
            any = true;
            match request {
                MemberRequest::Look(look) => look(replica),
                MemberRequest::Command(command, caller) => match replica.submit(&command) {
                    Ok(number) => drop(callers.insert(number, caller)),
                    // Its channel has room for one answer, and this is the only one.
                    Err(why) => drop(caller.try_send(Err(MemberCallError::Refused(why)))),
                },
            }
        }
        any
    }

    fn multicast(&mut self, now: Time) -> bool {
        let dst = GroupSet::one(GROUP);
        let mut any = false;
        while let Some(bytes) = self.above.replica.next_message().map(<[u8]>::len) {
            if self.driver.room(dst, bytes) == 0 {
                break;
            }
            let Some(payload) = self.above.replica.multicast() else { break };
            if let Some(history) = &mut self.above.history {
                let sender = self.driver.pid(GROUP);
                history.cast(clock::now(), sender, MsgId { sender, seq: self.next_seq }, dst);
                history.flush_casts();
            }
            let submission = Submission { seq: self.next_seq, dst, payload: &payload };
            self.next_seq += 1;
            self.driver.submit(now, submission, &mut self.above);
            any = true;
        }
        any
    }

    /// Answers its callers, as far as that is possible soon, and leaves its view, so that the others have all that was
    /// acknowledged here and need not find out that it has stopped.
    fn leave(mut self) {
        // Only what is under way is waited for.
        let MemberReplica { replica, callers, .. } = &mut self.above;
        replica.stop_queued(&mut |number, outcome, _| {
            answer(callers, number, Err(MemberCallError::Stopped(outcome)));
        });
        let mut deadline = LeavingDeadline::new(clock::now());
        let mut leaves = false;
        while !self.above.has_left
            && !deadline.is_over(clock::now(), self.above.replica.exchange_progress())
        {
            let rests = self.above.replica.unanswered() == 0 && self.above.replica.is_reconciled();
            if rests && self.above.replica.members().count_ones() <= 1 {
                // There is nobody to leave.
                break;
            }
            if rests && !leaves {
                leaves = true;
                self.driver.leave(clock::now(), &mut self.above);
            }
            if !self.round(false) {
                self.driver.sleep(clock::now(), LEAVING_SLEEP);
            }
        }
        if !self.above.has_left && self.above.replica.members().count_ones() > 1 {
            tracing::warn!(
                "a member stops without having left its component: the others may not have what it has \
                 acknowledged in another one"
            );
        }
        self.above.history.iter_mut().for_each(NodeHistory::flush);
        self.above.stop();
        for request in self.requests.try_iter() {
            if let MemberRequest::Command(_, caller) = request {
                let never = MemberCallError::Stopped(Outcome::NotExecuted);
                // Its channel has room for one answer, and this is the only one.
                drop(caller.try_send(Err(never)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_waits_for_an_exchange_of_states_as_long_as_that_moves() {
        let _limit = amcast_test_policy::time_limit();
        let (before, behind) = (1, 2);
        let mut deadline = LeavingDeadline::new(Time(0));
        let at = |secs: u64| Time(0) + Span::secs(secs);
        assert!(!deadline.is_over(at(1), None));
        assert!(!deadline.is_over(at(1), Some(before)), "it begins");
        assert!(!deadline.is_over(at(2), Some(before)));
        assert!(!deadline.is_over(at(2), Some(behind)), "it moves");
        assert!(!deadline.is_over(at(3), None), "it is over, and the view is still to be left");
        assert!(!deadline.is_over(at(4), None) && deadline.is_over(at(5), None));
        // One that moves for ever is not waited for.
        let mut deadline = LeavingDeadline::new(Time(0));
        let moves = (0..60).find(|&secs| deadline.is_over(at(secs), Some(secs)));
        assert_eq!(moves, Some(30));
    }
}

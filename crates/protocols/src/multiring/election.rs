//! Leader election with pre-vote: the first acceptor that works, in the eyes of a quorum, becomes coordinator.
//!
//! ```text
//!                          promised > ballot                 the promised ballot's phase 2 begins
//!    +-> Following -------------------------> AwaitingPhase2 --------------------------------------+
//!    |       | its coordinator is suspected,         | its candidate is suspected, not eligible,   |
//!    |       | restarted, or not eligible            | or the patience with it ends                |
//!    |       |                                       |                                             |
//!    |       +-------------------+-------------------+                                             |
//!    |                           v                                                                 |
//!    |      another acceptor is the first that works?   yes: AwaitingCandidate(it), told the promise
//!    |                           | no                                                              |
//!    |                           v                        an acceptor hears the coordinator,       |
//!    |      PreVoting: PreVote(b) to all acceptors -----> and sends the current ballot ------------+
//!    |                           | PreVoteGranted by a quorum                                      |
//!    |                           v                                                                 |
//!    |      Coordinating: phase 1 (`phase1.rs`), then phase 2 (`coordinator.rs`)                    |
//!    |                           | a higher ballot exists                                          |
//!    +---------------------------+-----------------------------------------------------------------+
//! ```
//!
//! Phase 1 deposes the coordinator. So no acceptor begins it because of its own observation alone: where
//! the link between a coordinator and one acceptor fails, the acceptors that hear both keep their
//! coordinator. Nor does an acceptor grant a pre-vote that has just promised another candidate, or is one:
//! that candidate has time to begin. Pre-vote is a matter of progress alone; phase 1 is safe when any
//! acceptor begins it, at any time. (Pre-vote: Ongaro's thesis on Raft, 9.6; the paper leaves the election
//! to ZooKeeper.)
//!
//! A coordinator that does not hear a quorum, or is not heard by one, reports that it is not eligible, and may
//! be replaced. So does an acceptor whose disk hangs while those of the others work (`RingMember::is_outvoted`): a
//! candidate gives up then.
//!
//! *Lagging candidates.* A candidate must learn what any acceptor of its quorum has learned before it begins phase 2,
//! and nothing is ordered meanwhile. So an acceptor that lags far behind is passed over, and gets no pre-vote of one that
//! does not lag, as long as another one may begin; after a time, the first that works has its turn all the same.

use super::message::RingMessage;
use super::ring::{RingContext, RingMember};
use super::value::RingBallot;
use crate::layers::failure_detector::PATIENCE_MAX;
use alloc::vec::Vec;
use amcast_core::{Pid, Span, Time};

/// How often the patience with a candidate doubles.
const FAILED_ATTEMPTS_MAX: u32 = 8;

/// The longest patience with a candidate. For as long as that, acceptors prefer one that does not lag, and a disk that
/// takes nothing while those of the others do hangs.
pub(super) fn longest_patience(suspect: Span) -> Span {
    suspect.times(1 << FAILED_ATTEMPTS_MAX).min(PATIENCE_MAX.max(suspect))
}

/// The state of a member in the election, which follows from its ballots and from whom it hears.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ElectionState {
    /// It is no acceptor, or may not vote: it elects nobody.
    Passive,
    /// It coordinates, or is in phase 1.
    Coordinating,
    /// It follows the ballot that it promised, whose coordinator works.
    Following,
    /// It awaits phase 2 of the ballot that it promised, whose candidate works.
    AwaitingPhase2,
    /// No coordinator works, and it is the turn of this acceptor, the first that works, to begin.
    AwaitingCandidate(Pid),
    /// No coordinator works, and it is the turn of this process: it asks for pre-votes.
    PreVoting,
}

/// The memory of a member about the election of a coordinator.
#[derive(Clone, Debug, Default)]
pub(super) struct Election {
    /// This process asks whether it should begin phase 1.
    pub(super) pre_vote: PreVote,
    /// The promised ballot whose phase 2 this process awaits.
    pub(super) awaited_ballot: RingBallot,
    /// Since when it awaits that; later where it is another candidate's turn.
    pub(super) awaited_at: Time,
    /// When it promised that ballot.
    pub(super) promised_at: Time,
    /// The coordinator of the ballot that is followed has restarted since: it does not coordinate any more.
    pub(super) coordinator_restarted: bool,
    /// Since when there is no coordinator in phase 2 although this process and a quorum hear each other.
    pub(super) vacant_since: Option<Time>,
    /// How often this process began phase 1 since it followed a ballot.
    pub(super) failed_attempts: u32,
}

/// The pre-votes that this process has gathered.
#[derive(Clone, Debug, Default)]
pub(super) struct PreVote {
    /// The ballot that it would begin.
    ballot: RingBallot,
    /// When it asked last.
    asked_at: Time,
    /// By acceptor: when it granted its pre-vote last.
    grants: Vec<Option<Time>>,
}

impl PreVote {
    fn new(ballot: RingBallot, acceptors: usize) -> Self {
        Self { ballot, asked_at: Time::ZERO, grants: alloc::vec![None; acceptors] }
    }
}

impl RingMember {
    /// Begins a pre-vote if no other acceptor coordinates, or should.
    pub(super) fn run_election(&mut self, cx: &mut RingContext<'_>) {
        let elects = self.acceptor.index.is_some() && cx.votes && self.coordinator.is_none();
        if elects && self.election.awaited_ballot != self.acceptor.promised {
            self.await_ballot(cx.now);
        }
        let state = self.election_state(cx);
        self.note_vacancy(state, cx);
        match state {
            ElectionState::Passive | ElectionState::Coordinating => {}
            ElectionState::Following | ElectionState::AwaitingPhase2 => {}
            ElectionState::AwaitingCandidate(first) => self.remind_candidate(first, cx),
            // It would give its turn up at once, and ask again without a pause.
            ElectionState::PreVoting if cx.writes.hangs => {}
            ElectionState::PreVoting => self.run_pre_vote(cx),
        }
    }

    /// The state of this process in the election.
    fn election_state(&self, cx: &RingContext<'_>) -> ElectionState {
        if self.acceptor.index.is_none() || !cx.votes {
            return ElectionState::Passive;
        }
        if self.coordinator.is_some() {
            return ElectionState::Coordinating;
        }
        let works = |p: Pid| self.works(p, cx);
        let leads = self.acceptor.promised.coordinator();
        if leads == Some(cx.me) && works(cx.me) {
            // The ballot is this process's own, of an earlier incarnation.
            return ElectionState::PreVoting;
        }
        if leads.is_some_and(works) {
            if self.is_in_force() {
                return ElectionState::Following;
            }
            // The promised candidate may never have heard of the promise, or have forgotten it.
            if cx.now < self.patience_ends(cx.config.suspect) {
                return ElectionState::AwaitingPhase2;
            }
        }
        let first = |may: &dyn Fn(Pid) -> bool| {
            self.topology.acceptors.iter().copied().find(|&p| works(p) && may(p))
        };
        let prefers = self.prefers(cx);
        let upright = first(&|p| !(prefers && self.lags(p, cx)));
        match upright.or_else(|| first(&|_| true)) {
            Some(first) if first != cx.me => ElectionState::AwaitingCandidate(first),
            _ => ElectionState::PreVoting,
        }
    }

    /// Whether `p` could coordinate now, as far as this process knows.
    fn works(&self, p: Pid, cx: &RingContext<'_>) -> bool {
        match p == cx.me {
            true => !cx.writes.hangs,
            false => !cx.suspects(p) && cx.links.is_eligible(p),
        }
    }

    /// Whether `p` has learned so much less than another acceptor that works that all would wait for it, if it were
    /// to coordinate: it must learn first what any acceptor of its quorum has learned.
    fn lags(&self, p: Pid, cx: &RingContext<'_>) -> bool {
        let learned = |p: Pid| match self.topology.member(p) {
            Some(_) if p == cx.me => self.learner.learned,
            Some(at) => self.membership.peers[at].learned,
            None => 0,
        };
        let working = self.topology.acceptors.iter().filter(|&&p| self.works(p, cx));
        let most = working.map(|&p| learned(p)).max().unwrap_or(0);
        most.saturating_sub(learned(p)) > cx.config.limits.behind_instances as u64
    }

    /// Whether an acceptor that does not lag is preferred. Acceptors may not agree who lags where links between them
    /// are broken: in the end the first that works is to begin, whether it lags or not.
    fn prefers(&self, cx: &RingContext<'_>) -> bool {
        let longest = longest_patience(cx.config.suspect);
        self.election.vacant_since.is_none_or(|since| cx.now.since(since) < longest)
    }

    /// Notes since when a coordinator is missing.
    fn note_vacancy(&mut self, state: ElectionState, cx: &RingContext<'_>) {
        let leads = self.coordinates() || state == ElectionState::Following;
        let vacant = !leads && state != ElectionState::Passive && self.reaches_quorum(cx);
        self.election.vacant_since = vacant.then(|| self.election.vacant_since.unwrap_or(cx.now));
    }

    /// It is the turn of `first`, which may not know the promise of this process.
    fn remind_candidate(&mut self, first: Pid, cx: &mut RingContext<'_>) {
        self.election.awaited_at = cx.now;
        if cx.now.since(self.election.pre_vote.asked_at) >= cx.config.retry {
            self.election.pre_vote.asked_at = cx.now;
            let promised = self.acceptor.promised;
            cx.send(first, RingMessage::Reject { ring: self.id, promised });
        }
    }

    /// From now on this process awaits phase 2 of the ballot that it promised.
    pub(super) fn await_ballot(&mut self, now: Time) {
        (self.election.awaited_ballot, self.election.awaited_at, self.election.promised_at) =
            (self.acceptor.promised, now, now);
    }

    /// Whether the ballot that is followed is the highest one known, and its coordinator has not restarted
    /// since.
    fn is_in_force(&self) -> bool {
        self.acceptor.promised == self.current.ballot && !self.election.coordinator_restarted
    }

    /// Until when this process awaits phase 2 of a ballot that it promised.
    pub(super) fn patience_ends(&self, suspect: Span) -> Time {
        if self.acceptor.index.is_none() || self.is_in_force() {
            return Time::NEVER;
        }
        self.election.awaited_at + self.patience(suspect)
    }

    /// How long a promised candidate has to begin phase 2: longer after failed attempts, and never longer
    /// than the failure detector is patient with any process.
    fn patience(&self, suspect: Span) -> Span {
        suspect
            .times(1 << self.election.failed_attempts.min(FAILED_ATTEMPTS_MAX))
            .min(longest_patience(suspect))
    }

    /// When [`RingMember::run_election`] next has something to do that no message brings.
    pub(super) fn election_at(&self, suspect: Span, retry: Span) -> Time {
        // A candidate that got no pre-vote asks again.
        self.patience_ends(suspect).max(self.election.pre_vote.asked_at + retry)
    }

    /// Asks all acceptors for their pre-votes; begins phase 1 with those of a quorum.
    fn run_pre_vote(&mut self, cx: &mut RingContext<'_>) {
        let ballot = self.next_ballot(cx.me);
        if self.election.pre_vote.ballot != ballot {
            self.election.pre_vote = PreVote::new(ballot, self.topology.acceptors.len());
        }
        let lately = |at: &&Option<Time>| at.is_some_and(|at| cx.now.since(at) < cx.config.suspect);
        let grants = self.election.pre_vote.grants.iter().filter(lately).count();
        // Its own pre-vote is one more.
        if grants + 1 >= self.topology.quorum() {
            self.election.pre_vote = PreVote::default();
            return self.prepare(cx);
        }
        let asked = self.election.pre_vote.asked_at;
        if asked == Time::ZERO || cx.now.since(asked) >= cx.config.retry {
            self.election.pre_vote.asked_at = cx.now;
            let others = self.topology.acceptors.iter().filter(|&&p| p != cx.me);
            let message = |&p| (p, RingMessage::PreVote { ring: self.id, ballot });
            cx.outgoing.extend(others.map(message));
        }
    }

    /// A candidate asks for a pre-vote.
    pub(super) fn on_pre_vote(&mut self, from: Pid, ballot: RingBallot, cx: &mut RingContext<'_>) {
        if self.acceptor.index.is_none() || !cx.votes || !ballot.is_of(&self.topology.acceptors) {
            return;
        }
        let ring = self.id;
        if self.has_coordinator(from, cx) {
            self.send_current_ballot(from, cx);
        } else if ballot <= self.acceptor.promised {
            cx.send(from, RingMessage::Reject { ring, promised: self.acceptor.promised });
        } else if !self.prefers(cx) || !self.lags(from, cx) || self.lags(cx.me, cx) {
            cx.send(from, RingMessage::PreVoteGranted { ring, ballot });
        }
    }

    pub(super) fn on_pre_vote_granted(&mut self, from: Pid, ballot: RingBallot, now: Time) {
        if let Some(at) = self.topology.acceptor(from)
            && self.election.pre_vote.ballot == ballot
            && let Some(grant) = self.election.pre_vote.grants.get_mut(at)
        {
            *grant = Some(now);
        }
    }

    /// Whether a process other than `candidate` coordinates the current ballot, or was promised the next
    /// one so lately that it may just begin it, as far as this process hears.
    fn has_coordinator(&self, candidate: Pid, cx: &RingContext<'_>) -> bool {
        // Counted from the promise: a process that awaits another acceptor's turn keeps waiting, and that
        // acceptor must be able to begin.
        let until = self.election.promised_at + self.patience(cx.config.suspect);
        let begins = self.acceptor.promised > self.current.ballot && cx.now < until;
        let counts =
            self.is_in_force() || begins && self.election.awaited_ballot == self.acceptor.promised;
        let leads = self.acceptor.promised.coordinator().filter(|&p| p != candidate && counts);
        leads.is_some_and(|p| match p == cx.me {
            true => self.coordinator.is_some() && self.may_coordinate(p, cx),
            false => {
                // The configured timeout, however patient this process has become: others need not be.
                let heard = cx.links.silence(cx.now, p) < cx.config.suspect;
                heard && !cx.suspects(p) && self.may_coordinate(p, cx)
            }
        })
    }

    /// Whether the coordinator of the promised ballot is eligible, if it is still heard. A
    /// coordinator that has just begun had answers of a quorum, even if older heartbeats deny it:
    /// where broken links had healed, two acceptors deposed each other in every round trip until
    /// the next heartbeats came.
    fn may_coordinate(&self, p: Pid, cx: &RingContext<'_>) -> bool {
        let eligible = || match p == cx.me {
            true => self.reaches_quorum(cx),
            false => cx.links.is_eligible(p),
        };
        cx.now < self.election.promised_at + cx.config.suspect || eligible()
    }

    /// Whether this acceptor and a quorum, itself included, hear each other.
    pub(super) fn reaches_quorum(&self, cx: &RingContext<'_>) -> bool {
        let reached = self.topology.acceptors.iter().filter(|&&p| p == cx.me || cx.reaches(p));
        reached.count() >= self.topology.quorum()
    }

    /// A higher ballot exists: this process's own attempt is over. The sender may not know which ballot is
    /// followed.
    pub(super) fn on_reject(&mut self, from: Pid, promised: RingBallot, cx: &mut RingContext<'_>) {
        if !promised.is_of(&self.topology.acceptors) {
            return;
        }
        if self.coordinator.as_ref().is_some_and(|role| role.ballot < promised) {
            self.step_down(promised, cx);
        }
        self.acceptor.promised = self.acceptor.promised.max(promised);
        let lacks = self.topology.acceptor(from).is_some() && promised <= self.current.ballot;
        if lacks && self.has_coordinator(from, cx) {
            self.send_current_ballot(from, cx);
        }
    }

    /// Sends the current ballot, or the promised one, to a candidate that would depose its coordinator.
    fn send_current_ballot(&self, to: Pid, cx: &mut RingContext<'_>) {
        match self.is_in_force() {
            true => self.send_ballot_to(to, cx),
            false => {
                cx.send(to, RingMessage::Reject { ring: self.id, promised: self.acceptor.promised })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::message::{AcceptorVote, PeerProgress, Phase2, RingPacket};
    use super::super::persistence::AcceptorStorage;
    use super::super::process::MultiRing;
    use super::super::shared_bytes::SharedBytes;
    use super::super::value::{InstanceEntry, InstanceValue, RingProposal};
    use super::super::{MultiRingConfig, SYNCED};
    use super::*;
    use alloc::sync::Arc;
    use amcast_core::messages::{MessageInput, MessageOutput, Messages};
    use amcast_core::step::{Oracle, Ticket};
    use amcast_core::{Entry, Gid, GroupSet, Input, MsgId, Outbox, Output, Protocol, RawConfig};

    /// One of three replicas that has just started, and the time.
    struct Replica {
        process: MultiRing,
        now: Time,
        count: u64,
    }

    impl Replica {
        fn new(me: Pid) -> Self {
            let raw = RawConfig { groups: 1, clients: 0, ..RawConfig::default() };
            let config = raw.check(SYNCED.about().params).expect("a sound configuration");
            let config = MultiRingConfig::of(AcceptorStorage::Synced, &config);
            let process = MultiRing::new(me, &Arc::new(config.expect("a sound shape")));
            let mut replica = Self { process, now: Time(1), count: 0 };
            replica.step(Input::Start { incarnation: 0 });
            replica.step(Input::Installed { position: 0, needs: 0 });
            replica
        }

        fn step(&mut self, input: Input<'_, Messages<RingPacket>>) -> Vec<RingMessage> {
            let mut out = Outbox::default();
            self.process.step(self.now, (), input, &mut out);
            let sent = out.items().iter().filter_map(|output| match output {
                Output::Medium(MessageOutput::To(_, _, packet)) => Some(packet.message.clone()),
                _ => None,
            });
            sent.collect()
        }

        fn from(&mut self, p: Pid, message: RingMessage) -> Vec<RingMessage> {
            let packet = RingPacket { incarnation: 0, message };
            self.step(Input::Medium(MessageInput::From(p, packet)))
        }

        /// Time passes, in which it hears `live`, which have learned so much.
        fn passes(&mut self, span: Span, live: &[(Pid, u64)]) -> Vec<RingMessage> {
            let (end, beat) = (self.now + span, self.process.config.heartbeat);
            let mut sent = Vec::new();
            while self.now < end {
                self.now += beat;
                self.count += 1;
                for &(p, learned) in live {
                    let progress = PeerProgress { learned, ..PeerProgress::default() };
                    let (count, broken) = (self.count, Default::default());
                    let rings = alloc::vec![(0, progress)];
                    sent.extend(
                        self.from(
                            p,
                            RingMessage::Heartbeat { count, eligible: true, broken, rings },
                        ),
                    );
                }
                sent.extend(self.step(Input::Wake));
            }
            sent
        }

        fn state(&mut self) -> Option<ElectionState> {
            self.process.with_ring(0, |ring, cx| ring.election_state(cx))
        }
    }

    fn grants(sent: &[RingMessage]) -> bool {
        sent.iter().any(|message| matches!(message, RingMessage::PreVoteGranted { .. }))
    }

    #[test]
    fn an_acceptor_that_lags_is_passed_over_for_a_time() {
        let mut replica = Replica::new(Pid(2));
        replica.process.with_ring(0, |ring, _| {
            ring.acceptor.promised = RingBallot::new(1, Pid(1));
            ring.learner.learned = 100_000;
        });
        replica.step(Input::Oracle(Oracle::Suspect(Pid(1))));
        let suspect = replica.process.config.suspect;
        let lags = [(Pid(0), 0)];
        replica.passes(Span(1), &lags);
        assert_eq!(replica.state(), Some(ElectionState::PreVoting));
        let pre_vote = RingMessage::PreVote { ring: 0, ballot: RingBallot::new(2, Pid(0)) };
        assert!(!grants(&replica.from(Pid(0), pre_vote.clone())));
        // It is a matter of preference.
        replica.passes(longest_patience(suspect) + suspect, &lags);
        assert_eq!(replica.state(), Some(ElectionState::AwaitingCandidate(Pid(0))));
        assert!(grants(&replica.from(Pid(0), pre_vote)));
    }

    #[test]
    fn one_that_lags_itself_awaits_another() {
        let mut replica = Replica::new(Pid(0));
        replica.process.with_ring(0, |ring, _| ring.acceptor.promised = RingBallot::new(1, Pid(1)));
        replica.step(Input::Oracle(Oracle::Suspect(Pid(1))));
        replica.passes(Span(1), &[(Pid(2), 100_000)]);
        assert_eq!(replica.state(), Some(ElectionState::AwaitingCandidate(Pid(2))));
        // Nobody is ahead: the first begins.
        let mut replica = Replica::new(Pid(0));
        replica.process.with_ring(0, |ring, _| ring.acceptor.promised = RingBallot::new(1, Pid(1)));
        replica.step(Input::Oracle(Oracle::Suspect(Pid(1))));
        replica.passes(Span(1), &[(Pid(2), 4_000)]);
        assert_eq!(replica.state(), Some(ElectionState::PreVoting));
    }

    /// The last heartbeat among these messages says that its sender is eligible.
    fn eligible(sent: &[RingMessage]) -> Option<bool> {
        let says = |message: &RingMessage| match message {
            RingMessage::Heartbeat { eligible, .. } => Some(*eligible),
            _ => None,
        };
        sent.iter().rev().find_map(says)
    }

    #[test]
    fn a_candidate_whose_disk_hangs_gives_up_once_the_others_have_promised() {
        for others_promise in [true, false] {
            let mut replica = Replica::new(Pid(0));
            let live = [(Pid(1), 0), (Pid(2), 0)];
            replica.process.with_ring(0, RingMember::prepare);
            let ballot = RingBallot::new(1, Pid(0));
            for p in [Pid(1), Pid(2)].into_iter().filter(|_| others_promise) {
                let promise = RingMessage::Promise {
                    ring: 0,
                    ballot,
                    learned: 0,
                    adopted: RingBallot::NONE,
                    count: 0,
                    storage_epochs: alloc::vec![0; 3],
                };
                replica.from(p, promise);
            }
            let suspect = replica.process.config.suspect;
            let leads =
                |r: &mut Replica| r.process.with_ring(0, |ring, _| ring.coordinator.is_some());
            let sent = replica.passes(suspect, &live);
            assert_eq!((leads(&mut replica), eligible(&sent)), (Some(true), Some(true)));
            let sent = replica.passes(longest_patience(suspect), &live);
            // Where all disks are slow nobody else is better.
            let waits = !others_promise;
            assert_eq!((leads(&mut replica), eligible(&sent)), (Some(waits), Some(waits)));
            if others_promise {
                assert_eq!(replica.state(), Some(ElectionState::AwaitingCandidate(Pid(1))));
            }
            replica.step(Input::Durable(Ticket(0)));
            assert_eq!(eligible(&replica.passes(suspect, &live)), Some(true));
        }
    }

    fn phase2(
        ballot: RingBallot,
        end: u64,
        votes: Vec<AcceptorVote>,
        entries: Vec<InstanceEntry>,
    ) -> Phase2 {
        Phase2 {
            ring: 0,
            ballot,
            membership_number: 0,
            excluded: Vec::new(),
            start: 0,
            reproposed_end: 0,
            end,
            votes,
            trim_end: 0,
            entries,
        }
    }

    #[test]
    fn an_acceptor_whose_disk_hangs_while_the_others_decide_is_not_eligible() {
        for others_vote in [true, false] {
            let mut replica = Replica::new(Pid(0));
            let live = [(Pid(1), 0), (Pid(2), 0)];
            let vote = |upto| AcceptorVote { storage_epoch: 0, upto };
            let ballot = RingBallot::new(1, Pid(1));
            let upto = u64::from(others_vote);
            let entry = InstanceEntry { first: 0, ballot, value: InstanceValue::Skip(1) };
            let votes = alloc::vec![vote(0), vote(1), vote(upto)];
            let phase2 = phase2(ballot, 1, votes, alloc::vec![entry]);
            replica.from(Pid(1), RingMessage::Phase2(phase2));
            let suspect = replica.process.config.suspect;
            assert_eq!(eligible(&replica.passes(suspect, &live)), Some(true));
            let longest = longest_patience(suspect);
            assert_eq!(eligible(&replica.passes(longest, &live)), Some(!others_vote));
            replica.step(Input::Durable(Ticket(9)));
            assert_eq!(eligible(&replica.passes(suspect, &live)), Some(true));
        }
    }

    #[test]
    fn a_member_whose_disk_lags_takes_in_no_more_than_it_holds() {
        let mut replica = Replica::new(Pid(2));
        let held = 64 * replica.process.config.limits.pack_bytes;
        let config = Arc::get_mut(&mut replica.process.config).expect("it is the only one");
        config.limits.held_bytes = held;
        let ballot = RingBallot::new(1, Pid(0));
        let takes = |replica: &mut Replica, from: u64| {
            for first in from..200 {
                let mut bytes = Vec::new();
                let (msg, dst) = (MsgId { sender: Pid(0), seq: first }, GroupSet::one(Gid(0)));
                let payload = &[7; 32 << 10];
                RingProposal { msg, incarnation: 0, number: first + 1, dst, payload }
                    .encode(&mut bytes);
                let value = InstanceValue::Batch(SharedBytes::from(&bytes[..]));
                let entries = alloc::vec![InstanceEntry { first, ballot, value }];
                let vote = AcceptorVote { storage_epoch: 0, upto: first + 1 };
                let votes = alloc::vec![vote, vote, AcceptorVote::default()];
                let phase2 = phase2(ballot, first + 1, votes, entries);
                replica.from(Pid(0), RingMessage::Phase2(phase2));
                let delivered = replica.process.merge.delivered;
                replica.step(Input::Applied(delivered));
                replica.step(Input::Wake);
            }
            replica.process.with_ring(0, |ring, _| ring.current.end).expect("it is in the ring")
        };
        let end = takes(&mut replica, 0);
        assert!((60..=66).contains(&end), "{end}");
        // The disk continues.
        replica.step(Input::Durable(Ticket(end)));
        assert!(takes(&mut replica, end) > 100);
    }
}

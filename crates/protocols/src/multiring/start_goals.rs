//! How far a process must come after its start before it has caught up: an operator who restarts the next node sooner leaves
//! no majority that orders anything meanwhile.
//!
//! The *start goal* of a ring is the highest instance that its acceptors report to have learned, each in its first heartbeat
//! after the start, this process included. It is known once a quorum of them has told theirs: acceptors that do not run
//! are not waited for. The process has caught up once its application has executed all messages before the goals of the rings
//! that it merges. That is so for good, however far it falls behind later, and has no part in
//! [`fit`](amcast_core::Protocol::fit): who waits for it decides what it means.
//!
//! Skips at the end of a ring need not be merged: a ring at rest has some that the others do not come up to for long.

use super::message::RingPacket;
use super::process::MultiRing;
use super::ring::RingMember;
use super::topology::{RingId, RingTopology};
use alloc::vec::Vec;
use amcast_core::messages::Messages;
use amcast_core::{Outbox, Pid};

/// The start goals of a process.
#[derive(Debug)]
pub(super) struct StartGoals {
    /// By ring.
    rings: Vec<RingGoal>,
    /// The process had to execute something to reach them.
    was_behind: bool,
    /// The process has reached all of them.
    are_reached: bool,
}

/// The start goal of a ring.
#[derive(Clone, Debug, Default)]
struct RingGoal {
    /// The acceptors that have told how far they are.
    told: Vec<Pid>,
    /// All instances below were learned by one of them.
    upto: u64,
}

impl StartGoals {
    pub(super) fn new(rings: usize) -> Self {
        let rings = alloc::vec![RingGoal::default(); rings];
        Self { rings, was_behind: false, are_reached: false }
    }

    /// A member of the ring has learned the instances below `learned`. Only acceptors count, and each once.
    pub(super) fn hear(&mut self, ring: &RingTopology, id: RingId, from: Pid, learned: u64) {
        let goal = &mut self.rings[usize::from(id)];
        if !self.are_reached && ring.acceptor(from).is_some() && !goal.told.contains(&from) {
            goal.told.push(from);
            goal.upto = goal.upto.max(learned);
        }
    }
}

impl RingGoal {
    /// Up to which instance the ring must be merged, as far as is known.
    fn needs(&self, ring: &RingMember) -> u64 {
        // Trimmed instances may have held messages.
        let messages_end = ring.learner.messages_end.max(ring.log.floor());
        if ring.learner.learned < self.upto { self.upto } else { self.upto.min(messages_end) }
    }
}

impl MultiRing {
    /// At the start: this process has what it has learned in earlier incarnations. One that lost what it had says nothing
    /// of how far its ring was.
    pub(super) fn begin_start_goals(&mut self) {
        if self.recovery.is_needed() {
            return;
        }
        for ring in self.rings.iter().flatten() {
            self.start_goals.hear(&ring.topology, ring.id, self.me, ring.learner.learned);
        }
    }

    /// How many instances of the rings that it merges its application has still to execute before it has caught up, as far as
    /// is known; none once it has.
    pub(super) fn catching_up(&self) -> Option<u64> {
        (!self.start_goals.are_reached).then(|| self.instances_left())
    }

    fn instances_left(&self) -> u64 {
        let executed = self.merge.applied_point();
        let left = |&id: &RingId| {
            let ring = self.rings[usize::from(id)].as_deref()?;
            let needs = self.start_goals.rings[usize::from(id)].needs(ring);
            Some(needs.saturating_sub(self.merge.passed(executed, id)))
        };
        self.merge.rings.iter().filter_map(left).sum()
    }

    /// Whether a quorum of the acceptors of each ring that it merges has told how far they are.
    fn knows_start_goals(&self) -> bool {
        self.merge.rings.iter().all(|&id| {
            let (ring, goal) =
                (&self.config.rings[usize::from(id)], &self.start_goals.rings[usize::from(id)]);
            // So many others have one in common with each quorum that this process was in before it lost what it had.
            let is_lost = ring.acceptor(self.me).is_some() && !goal.told.contains(&self.me);
            let enough =
                if is_lost { self.config.cluster.recovery_answers() } else { ring.quorum() };
            goal.told.len() >= enough
        })
    }

    /// Notes whether this process has caught up.
    pub(super) fn look_at_start_goals(&mut self, out: &mut Outbox<Messages<RingPacket>>) {
        if self.start_goals.are_reached || !self.knows_start_goals() {
            return;
        }
        if !self.has_state() || self.instances_left() > 0 {
            self.start_goals.was_behind = true;
            return;
        }
        self.start_goals.are_reached = true;
        if self.start_goals.was_behind {
            out.mark("multiring-caught-up");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::instance_log::NO_RECORD;
    use super::super::message::{PeerProgress, RingMessage};
    use super::super::persistence::AcceptorStorage;
    use super::super::shared_bytes::SharedBytes;
    use super::super::value::{InstanceEntry, InstanceValue, RingBallot, RingProposal};
    use super::super::{MultiRingConfig, SYNCED};
    use super::*;
    use crate::layers::routing::BrokenLinks;
    use alloc::sync::Arc;
    use amcast_core::messages::MessageInput;
    use amcast_core::{Entry as _, Gid, GroupSet, Input, MsgId, Protocol, RawConfig, Time};

    /// The first replica of the first group, which has started again; the test plays the others.
    fn started(groups: usize, replicas: usize) -> MultiRing {
        let raw = RawConfig { groups, replicas, clients: 0, ..RawConfig::default() };
        let config = raw.check(SYNCED.about().params).expect("a sound configuration");
        let shape = MultiRingConfig::of(AcceptorStorage::Synced, &config).expect("sound, too");
        let mut member = MultiRing::new(Pid(0), &Arc::new(shape));
        step(&mut member, Input::Start { incarnation: 1 });
        member
    }

    fn step(member: &mut MultiRing, input: Input<'_, Messages<RingPacket>>) {
        member.step(Time(1), (), input, &mut Outbox::default());
    }

    /// Another process reports how far it has learned these rings.
    fn hear(member: &mut MultiRing, from: Pid, learned: &[(RingId, u64)]) {
        let progress = |&(ring, learned)| (ring, PeerProgress { learned, ..Default::default() });
        let rings = learned.iter().map(progress).collect();
        let broken = BrokenLinks::default();
        let message = RingMessage::Heartbeat { count: 1, eligible: true, broken, rings };
        let packet = RingPacket { incarnation: 0, message };
        step(member, Input::Medium(MessageInput::From(from, packet)));
    }

    fn batch(seq: u64) -> InstanceValue {
        let (msg, dst) = (MsgId { sender: Pid(1), seq }, GroupSet::one(Gid(0)));
        let mut bytes = Vec::new();
        RingProposal { msg, incarnation: 0, number: seq, dst, payload: b"x" }.encode(&mut bytes);
        InstanceValue::Batch(SharedBytes::from(&bytes[..]))
    }

    /// The process learns these values of the ring, behind those that it has.
    fn learn(member: &mut MultiRing, ring: RingId, values: Vec<InstanceValue>) {
        member.with_ring(ring, |ring, _| {
            for value in values {
                let first = ring.learner.learned;
                let entry = InstanceEntry { first, ballot: RingBallot::new(1, Pid(1)), value };
                let end = entry.end();
                ring.log.put(entry, NO_RECORD);
                ring.learn_up_to(end);
            }
        });
        step(member, Input::Wake);
    }

    /// The application has executed all that was delivered.
    fn apply(member: &mut MultiRing) {
        let delivered = member.merge.delivered;
        step(member, Input::Applied(delivered));
        step(member, Input::Wake);
    }

    #[test]
    fn a_process_has_caught_up_once_it_has_executed_what_a_quorum_had_learned() {
        let mut member = started(1, 3);
        step(&mut member, Input::Wake);
        assert_eq!(member.catching_up(), Some(0), "alone it does not know");
        // The third acceptor does not run.
        hear(&mut member, Pid(1), &[(0, 3)]);
        step(&mut member, Input::Wake);
        assert_eq!(member.catching_up(), Some(3));
        learn(&mut member, 0, [1, 2].map(batch).into());
        apply(&mut member);
        assert_eq!(member.status().catching_up, Some(1));
        // Instances that are ordered meanwhile do not count.
        hear(&mut member, Pid(1), &[(0, 9)]);
        learn(&mut member, 0, [3, 4].map(batch).into());
        assert_eq!(member.catching_up(), Some(1), "delivered, and not executed");
        assert!(member.fit(), "others may rely on it");
        apply(&mut member);
        assert_eq!(member.status().catching_up, None);
        hear(&mut member, Pid(2), &[(0, 100)]);
        step(&mut member, Input::Wake);
        assert_eq!(member.catching_up(), None, "for good");
    }

    #[test]
    fn the_furthest_of_the_acceptors_counts_that_are_heard_until_then() {
        let mut member = started(1, 5);
        hear(&mut member, Pid(1), &[(0, 1)]);
        hear(&mut member, Pid(1), &[(0, 8)]);
        learn(&mut member, 0, [1].map(batch).into());
        apply(&mut member);
        assert_eq!(member.catching_up(), Some(0), "two of five are no quorum");
        hear(&mut member, Pid(2), &[(0, 2)]);
        hear(&mut member, Pid(3), &[(0, 4)]);
        assert_eq!(member.catching_up(), Some(3));
    }

    #[test]
    fn a_process_that_lost_its_log_does_not_say_how_far_its_ring_was() {
        let raw = RawConfig { groups: 1, clients: 0, ..RawConfig::default() };
        let config = raw.check(SYNCED.about().params).expect("a sound configuration");
        let shape = MultiRingConfig::of(AcceptorStorage::Synced, &config).expect("sound, too");
        let mut member = MultiRing::new(Pid(0), &Arc::new(shape));
        step(&mut member, Input::Lost);
        step(&mut member, Input::Start { incarnation: 1 });
        step(&mut member, Input::Installed { position: 0, needs: 0 });
        hear(&mut member, Pid(1), &[(0, 0)]);
        step(&mut member, Input::Wake);
        assert_eq!(member.catching_up(), Some(0), "it may have decided more with the third one");
        hear(&mut member, Pid(2), &[(0, 4)]);
        step(&mut member, Input::Wake);
        assert_eq!(member.catching_up(), Some(4));
    }

    #[test]
    fn a_process_executes_its_own_log_before_it_has_caught_up() {
        let mut member = started(1, 3);
        // As if replayed.
        member.start_goals = StartGoals::new(1);
        learn(&mut member, 0, [1, 2].map(batch).into());
        member.begin_start_goals();
        hear(&mut member, Pid(1), &[(0, 0)]);
        step(&mut member, Input::Wake);
        assert_eq!(member.catching_up(), Some(2));
        apply(&mut member);
        assert_eq!(member.catching_up(), None);
    }

    #[test]
    fn skips_that_wait_for_another_ring_at_rest_need_not_be_merged() {
        let mut member = started(2, 3);
        let all = 2;
        hear(&mut member, Pid(1), &[(0, 50), (all, 2)]);
        learn(&mut member, all, alloc::vec![InstanceValue::Skip(2)]);
        assert_eq!(member.catching_up(), Some(50), "they may be messages");
        learn(&mut member, 0, alloc::vec![batch(1), batch(2), InstanceValue::Skip(48)]);
        assert_eq!(member.catching_up(), Some(2));
        apply(&mut member);
        assert_eq!(member.catching_up(), None);
    }

    #[test]
    fn a_cluster_of_one_member_has_caught_up_at_once_and_a_new_one_once_a_quorum_is_heard() {
        let mut member = started(1, 1);
        step(&mut member, Input::Wake);
        assert_eq!(member.catching_up(), None);
        let mut member = started(2, 3);
        hear(&mut member, Pid(1), &[(0, 0), (2, 0)]);
        step(&mut member, Input::Wake);
        assert_eq!(member.catching_up(), None);
    }
}

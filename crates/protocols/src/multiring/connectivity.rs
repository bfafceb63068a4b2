//! The links of a process of Multi-Ring Paxos: those to the members of its rings, and forwarders among
//! acceptors.

use super::process::MultiRing;
use super::topology::RingId;
use alloc::vec::Vec;
use amcast_core::Pid;

impl MultiRing {
    /// Whether this process and `p` hear each other.
    pub(super) fn reaches(&self, p: Pid) -> bool {
        self.links.reaches(self.now, p)
    }

    /// The acceptors of a ring that may forward a message to `to`, the best first.
    pub(super) fn forwarders(&self, id: RingId, to: Pid) -> Vec<Pid> {
        let acceptors = self.config.rings[usize::from(id)].acceptors.iter().copied();
        self.links.forwarders(self.now, acceptors, to)
    }
}

#[cfg(test)]
mod tests {
    use super::super::MultiRingConfig;
    use super::super::message::{AcceptorVote, Phase2, RingMessage, RingPacket};
    use super::super::persistence::AcceptorStorage;
    use super::super::value::RingBallot;
    use super::super::{MEMORY, process::MultiRing};
    use super::*;
    use crate::layers::routing::BrokenLinks;
    use alloc::sync::Arc;
    use amcast_core::messages::{MessageInput, MessageOutput, Messages};
    use amcast_core::{Entry as _, Input, Outbox, Output, Protocol, RawConfig, Span, Time};

    /// From one heartbeat to the next.
    const BEAT: Span = Span::millis(5);

    /// One process of a ring; the test plays the others.
    struct SingleProcess {
        node: MultiRing,
        now: Time,
        count: u64,
    }

    impl SingleProcess {
        fn new(me: Pid, replicas: usize) -> Self {
            let raw = RawConfig { groups: 1, replicas, clients: 0, ..RawConfig::default() };
            let config = raw.check(MEMORY.about().params).expect("a sound configuration");
            let shape = Arc::new(
                MultiRingConfig::of(AcceptorStorage::Memory, &config).expect("sound, too"),
            );
            let mut single = Self { node: MultiRing::new(me, &shape), now: Time(1), count: 0 };
            single.step(Input::Start { incarnation: 0 });
            single
        }

        /// The messages that are sent in a step.
        fn step(&mut self, input: Input<'_, Messages<RingPacket>>) -> Vec<(Pid, RingMessage)> {
            let mut out = Outbox::default();
            self.node.step(self.now, (), input, &mut out);
            let messages = out.items().iter().filter_map(|output| match output {
                Output::Medium(MessageOutput::To(to, _, packet)) => {
                    Some((*to, packet.message.clone()))
                }
                _ => None,
            });
            messages.collect()
        }

        fn hear(&mut self, from: Pid, message: RingMessage) {
            self.step(Input::Medium(MessageInput::From(
                from,
                RingPacket { incarnation: 0, message },
            )));
        }

        /// For so many heartbeat intervals only these processes send any, with these broken links. The
        /// messages that are sent in the last one.
        fn beats(&mut self, beats: u32, alive: &[(u32, BrokenLinks)]) -> Vec<(Pid, RingMessage)> {
            let mut messages = Vec::new();
            for _ in 0..beats {
                (self.now, self.count) = (self.now + BEAT, self.count + 1);
                for (p, broken) in alive {
                    let (count, broken) = (self.count, broken.clone());
                    let alive =
                        RingMessage::Heartbeat { count, eligible: true, broken, rings: Vec::new() };
                    self.hear(Pid(*p), alive);
                }
                messages = self.step(Input::Wake);
            }
            messages
        }

        /// Follows a ballot that `Pid(0)` coordinates.
        fn follow(&mut self, acceptors: usize) {
            let votes = alloc::vec![AcceptorVote::default(); acceptors];
            let (ballot, excluded, entries) = (RingBallot::new(1, Pid(0)), Vec::new(), Vec::new());
            let phase2 = Phase2 {
                ring: 0,
                ballot,
                membership_number: 0,
                excluded,
                start: 0,
                reproposed_end: 0,
                end: 0,
                votes,
                trim_end: 0,
                entries,
            };
            self.hear(Pid(0), RingMessage::Phase2(phase2));
        }
    }

    fn none() -> BrokenLinks {
        BrokenLinks::default()
    }

    fn unheard(p: u32) -> BrokenLinks {
        BrokenLinks { unheard: [Pid(p)].into(), ..none() }
    }

    fn unreached(p: u32) -> BrokenLinks {
        BrokenLinks { unreached: [Pid(p)].into(), ..none() }
    }

    /// Whether a process reports that it is eligible, and its broken links.
    fn shown(messages: &[(Pid, RingMessage)]) -> (bool, BrokenLinks) {
        let alive = messages.iter().find_map(|(_, message)| match message {
            RingMessage::Heartbeat { eligible, broken, .. } => Some((*eligible, broken.clone())),
            _ => None,
        });
        alive.expect("it shows that it lives")
    }

    #[test]
    fn a_process_that_hears_no_majority_or_is_heard_by_none_is_not_eligible() {
        let mut single = SingleProcess::new(Pid(0), 3);
        assert_eq!(shown(&single.beats(20, &[(1, none()), (2, none())])), (true, none()));
        let nobody = BrokenLinks { unheard: [Pid(1), Pid(2)].into(), ..none() };
        assert_eq!(shown(&single.beats(20, &[])), (false, nobody));
        assert_eq!(shown(&single.beats(2, &[(1, none())])), (true, unheard(2)));
        // It hears the other one, which does not hear it.
        let isolated = BrokenLinks { unheard: [Pid(2)].into(), unreached: [Pid(1)].into() };
        assert_eq!(shown(&single.beats(2, &[(1, unheard(0))])), (false, isolated));
        assert_eq!(shown(&single.beats(2, &[(1, none()), (2, none())])), (true, none()));
    }

    #[test]
    fn a_level_request_reaches_the_coordinator_via_a_forwarder_that_reaches_it() {
        let mut single = SingleProcess::new(Pid(1), 3);
        single.follow(3);
        let mut requests = |upto: u64, coordinator: BrokenLinks| {
            single.beats(1, &[(0, coordinator.clone()), (2, none())]);
            single.hear(Pid(2), RingMessage::LevelRequest { ring: 0, upto });
            let messages = single.beats(1, &[(0, coordinator), (2, none())]);
            let wants = messages
                .into_iter()
                .filter(|(_, message)| matches!(message, RingMessage::LevelRequest { .. }));
            wants.collect::<Vec<_>>()
        };
        assert_eq!(requests(5, none()), [(Pid(0), RingMessage::LevelRequest { ring: 0, upto: 5 })]);
        // The link there fails, and not the link back.
        assert_eq!(
            requests(9, unheard(1)),
            [(Pid(2), RingMessage::LevelRequest { ring: 0, upto: 9 })]
        );
        assert_eq!(
            requests(12, none()),
            [(Pid(0), RingMessage::LevelRequest { ring: 0, upto: 12 })]
        );
    }

    #[test]
    fn an_acceptor_whose_candidate_never_begins_grants_a_pre_vote_to_another() {
        let mut single = SingleProcess::new(Pid(4), 5);
        let all = [(0, none()), (1, none()), (2, none()), (3, none())];
        single.beats(2, &all);
        single.hear(Pid(1), RingMessage::Prepare { ring: 0, ballot: RingBallot::new(2, Pid(1)) });
        let ballot = RingBallot::new(3, Pid(0));
        let mut answers = (0..100).map(|_| {
            let now = single.now;
            single.beats(1, &all);
            assert_eq!(single.now, now + BEAT);
            let packet =
                RingPacket { incarnation: 0, message: RingMessage::PreVote { ring: 0, ballot } };
            let messages = single.step(Input::Medium(MessageInput::From(Pid(0), packet)));
            messages.iter().any(|(to, message)| {
                *to == Pid(0) && matches!(message, RingMessage::PreVoteGranted { .. })
            })
        });
        assert!(answers.by_ref().take(5).all(|consents| !consents), "that one has time to begin");
        assert!(answers.skip(20).all(|consents| consents), "but not for ever");
    }

    #[test]
    fn a_forwarder_reports_that_it_reaches_the_coordinator() {
        let forwarders = |alive: &[(u32, BrokenLinks)]| {
            let mut single = SingleProcess::new(Pid(4), 5);
            single.beats(20, alive);
            single.node.forwarders(0, Pid(0)).iter().map(|p| p.0).collect::<Vec<_>>()
        };
        assert_eq!(forwarders(&[(1, none()), (2, none()), (3, none())]), [1, 2, 3, 0]);
        assert_eq!(forwarders(&[(1, unreached(0)), (2, none()), (3, none())]), [2, 3, 1, 0]);
        assert_eq!(forwarders(&[(1, unheard(0)), (2, none())]), [2, 1, 3, 0], "one is not heard");
        // The coordinator is heard: it reports itself which processes it hears.
        let missing = BrokenLinks { unheard: [Pid(1), Pid(4)].into(), ..none() };
        assert_eq!(forwarders(&[(0, missing), (1, none()), (2, none()), (3, none())]), [2, 3, 1]);
        assert_eq!(
            forwarders(&[(1, none()), (2, unheard(4)), (3, none())]),
            [1, 3, 0],
            "one is deaf"
        );
        assert_eq!(forwarders(&[]), [1, 2, 3, 0], "nobody knows of any");
    }
}

//! Who is heard by whom, as far as signs of life tell.
//!
//! A way may fail in one direction only: who is heard need not hear. So each process says with its signs of
//! life of whom it gets none, and who of the others gets none of it; and what it has to say goes by ways on
//! which the other end says that it hears. Of one that is not heard itself, or never was, nobody knows what
//! arrives there.

use super::process::MultiRing;
use super::rings::RingId;
use super::word::Gaps;
use alloc::vec::Vec;
use amcast_core::Pid;

/// What others say of the ways to them.
#[derive(Clone, Debug)]
pub(super) struct Reach {
    /// By process: what it said last.
    gaps: Vec<Gaps>,
}

impl Reach {
    pub(super) fn new(processes: usize) -> Self {
        Self { gaps: alloc::vec![Gaps::default(); processes] }
    }

    /// `p` hears all whom it should hear, and is heard by them, but for these.
    pub(super) fn told(&mut self, p: Pid, gaps: Gaps) {
        self.gaps[p.index()] = gaps;
    }

    /// Whether `by` does not hear `of`, as it said last.
    pub(super) fn misses(&self, by: Pid, of: Pid) -> bool {
        self.gaps[by.index()].unheard.contains(&of)
    }

    /// Whether `p` and `q` hear each other, as `p` said last.
    pub(super) fn joins(&self, p: Pid, q: Pid) -> bool {
        let Gaps { unheard, unreached } = &self.gaps[p.index()];
        !unheard.contains(&q) && !unreached.contains(&q)
    }
}

impl MultiRing {
    fn hears(&self, p: Pid) -> bool {
        !self.heartbeat.suspects(self.now, p.index())
    }

    /// Whether this process and `p` hear each other.
    pub(super) fn reaches(&self, p: Pid) -> bool {
        self.hears(p) && !self.reach.misses(p, self.me)
    }

    /// What this process says of the ways to and from it.
    pub(super) fn gaps(&self) -> Gaps {
        let (heard, unheard): (Vec<Pid>, Vec<Pid>) =
            self.acquaintances.iter().partition(|p| self.hears(**p));
        let misses = |p: &Pid| self.reach.misses(*p, self.me);
        Gaps { unheard, unreached: heard.into_iter().filter(misses).collect() }
    }

    /// Acceptors of a ring that may pass something on to `to`, whom this process does not reach: those in
    /// front of whom it is known best that it arrives there, and from there at `to`. Not one who says
    /// that nothing of this process does; but maybe one who was never heard, and `to` itself behind all others,
    /// if it is not heard either.
    pub(super) fn relays(&self, id: RingId, to: Pid) -> Vec<Pid> {
        let deaf = |p: Pid| self.hears(p) && self.reach.misses(p, self.me);
        let passes_on = |p: Pid| {
            let says_so = self.hears(p) && self.reach.joins(p, to);
            says_so && !(self.hears(to) && self.reach.misses(to, p))
        };
        let acceptors = self.shape.rings[usize::from(id)].acceptors.iter().copied();
        let mut relays: Vec<Pid> = acceptors.filter(|&p| p != self.me && !deaf(p)).collect();
        relays.sort_by_key(|&p| (p == to, !passes_on(p), !self.hears(p)));
        relays
    }
}

#[cfg(test)]
mod tests {
    use super::super::Shape;
    use super::super::keep::Storage;
    use super::super::value::Ballot;
    use super::super::word::{Packet, Pass, Vote, Word};
    use super::super::{MEMORY, process::MultiRing};
    use super::*;
    use alloc::sync::Arc;
    use amcast_core::messages::{In, Messages, Out};
    use amcast_core::{Entry as _, Input, Outbox, Output, Protocol, RawConfig, Span, Time};

    /// From one sign of life to the next.
    const BEAT: Span = Span::millis(5);

    /// One process of a ring; what the others do is up to the test.
    struct Alone {
        node: MultiRing,
        now: Time,
        count: u64,
    }

    impl Alone {
        fn new(me: Pid, replicas: usize) -> Self {
            let raw = RawConfig { groups: 1, replicas, clients: 0, ..RawConfig::default() };
            let config = raw.check(MEMORY.about().params).expect("a sound configuration");
            let shape = Arc::new(Shape::of(Storage::Memory, &config).expect("sound, too"));
            let mut alone = Self { node: MultiRing::new(me, &shape), now: Time(1), count: 0 };
            alone.step(Input::Start { incarnation: 0 });
            alone
        }

        /// What is said in a step.
        fn step(&mut self, input: Input<'_, Messages<Packet>>) -> Vec<(Pid, Word)> {
            let mut out = Outbox::default();
            self.node.step(self.now, (), input, &mut out);
            let said = out.items().iter().filter_map(|output| match output {
                Output::Medium(Out::To(to, _, packet)) => Some((*to, packet.word.clone())),
                _ => None,
            });
            said.collect()
        }

        fn hear(&mut self, from: Pid, word: Word) {
            self.step(Input::Medium(In::From(from, Packet { life: 0, word })));
        }

        /// For so many signs of life only these show any, with these gaps. What is said at the end.
        fn beats(&mut self, beats: u32, alive: &[(u32, Gaps)]) -> Vec<(Pid, Word)> {
            let mut said = Vec::new();
            for _ in 0..beats {
                (self.now, self.count) = (self.now + BEAT, self.count + 1);
                for (p, gaps) in alive {
                    let (count, gaps) = (self.count, gaps.clone());
                    let alive = Word::Alive { count, fit: true, gaps, rings: Vec::new() };
                    self.hear(Pid(*p), alive);
                }
                said = self.step(Input::Wake);
            }
            said
        }

        /// Follows a run that `Pid(0)` leads.
        fn follow(&mut self, acceptors: usize) {
            let votes = alloc::vec![Vote::default(); acceptors];
            let (ballot, out, entries) = (Ballot::new(1, Pid(0)), Vec::new(), Vec::new());
            let pass = Pass {
                ring: 0,
                ballot,
                layout: 0,
                out,
                start: 0,
                fresh: 0,
                end: 0,
                votes,
                trim: 0,
                entries,
            };
            self.hear(Pid(0), Word::Pass(pass));
        }
    }

    fn none() -> Gaps {
        Gaps::default()
    }

    fn unheard(p: u32) -> Gaps {
        Gaps { unheard: [Pid(p)].into(), ..none() }
    }

    fn unreached(p: u32) -> Gaps {
        Gaps { unreached: [Pid(p)].into(), ..none() }
    }

    /// Whether a process says that it is fit, and what of its gaps.
    fn shown(said: &[(Pid, Word)]) -> (bool, Gaps) {
        let alive = said.iter().find_map(|(_, word)| match word {
            Word::Alive { fit, gaps, .. } => Some((*fit, gaps.clone())),
            _ => None,
        });
        alive.expect("it shows that it lives")
    }

    #[test]
    fn who_hears_no_majority_or_is_heard_by_none_says_that_it_is_not_fit() {
        let mut alone = Alone::new(Pid(0), 3);
        assert_eq!(shown(&alone.beats(20, &[(1, none()), (2, none())])), (true, none()));
        let nobody = Gaps { unheard: [Pid(1), Pid(2)].into(), ..none() };
        assert_eq!(shown(&alone.beats(20, &[])), (false, nobody));
        assert_eq!(shown(&alone.beats(2, &[(1, none())])), (true, unheard(2)));
        // It hears the other one, who does not hear it.
        let deaf = Gaps { unheard: [Pid(2)].into(), unreached: [Pid(1)].into() };
        assert_eq!(shown(&alone.beats(2, &[(1, unheard(0))])), (false, deaf));
        assert_eq!(shown(&alone.beats(2, &[(1, none()), (2, none())])), (true, none()));
    }

    #[test]
    fn what_a_ring_is_wanted_to_come_to_reaches_its_coordinator_by_whoever_reaches_it() {
        let mut alone = Alone::new(Pid(1), 3);
        alone.follow(3);
        let mut told = |upto: u64, coordinator: Gaps| {
            alone.beats(1, &[(0, coordinator.clone()), (2, none())]);
            alone.hear(Pid(2), Word::Want { ring: 0, upto });
            let said = alone.beats(1, &[(0, coordinator), (2, none())]);
            let wants = said.into_iter().filter(|(_, word)| matches!(word, Word::Want { .. }));
            wants.collect::<Vec<_>>()
        };
        assert_eq!(told(5, none()), [(Pid(0), Word::Want { ring: 0, upto: 5 })]);
        // The way there fails, and not the way back.
        assert_eq!(told(9, unheard(1)), [(Pid(2), Word::Want { ring: 0, upto: 9 })]);
        assert_eq!(told(12, none()), [(Pid(0), Word::Want { ring: 0, upto: 12 })]);
    }

    #[test]
    fn who_promised_one_that_never_begins_consents_to_another() {
        let mut alone = Alone::new(Pid(4), 5);
        let all = [(0, none()), (1, none()), (2, none()), (3, none())];
        alone.beats(2, &all);
        alone.hear(Pid(1), Word::Prepare { ring: 0, ballot: Ballot::new(2, Pid(1)) });
        let ballot = Ballot::new(3, Pid(0));
        let mut answers = (0..100).map(|_| {
            let now = alone.now;
            alone.beats(1, &all);
            assert_eq!(alone.now, now + BEAT);
            let packet = Packet { life: 0, word: Word::Canvass { ring: 0, ballot } };
            let said = alone.step(Input::Medium(In::From(Pid(0), packet)));
            said.iter().any(|(to, word)| *to == Pid(0) && matches!(word, Word::Consent { .. }))
        });
        assert!(answers.by_ref().take(5).all(|consents| !consents), "that one has time to begin");
        assert!(answers.skip(20).all(|consents| consents), "but not for ever");
    }

    #[test]
    fn a_relay_is_one_who_says_that_it_reaches_the_coordinator() {
        let relays = |alive: &[(u32, Gaps)]| {
            let mut alone = Alone::new(Pid(4), 5);
            alone.beats(20, alive);
            alone.node.relays(0, Pid(0)).iter().map(|p| p.0).collect::<Vec<_>>()
        };
        assert_eq!(relays(&[(1, none()), (2, none()), (3, none())]), [1, 2, 3, 0]);
        assert_eq!(relays(&[(1, unreached(0)), (2, none()), (3, none())]), [2, 3, 1, 0]);
        assert_eq!(relays(&[(1, unheard(0)), (2, none())]), [2, 1, 3, 0], "one is not heard");
        // The coordinator is heard: it says itself whom it hears.
        let missing = Gaps { unheard: [Pid(1), Pid(4)].into(), ..none() };
        assert_eq!(relays(&[(0, missing), (1, none()), (2, none()), (3, none())]), [2, 3, 1]);
        assert_eq!(relays(&[(1, none()), (2, unheard(4)), (3, none())]), [1, 3, 0], "one is deaf");
        assert_eq!(relays(&[]), [1, 2, 3, 0], "nobody knows of any");
    }
}

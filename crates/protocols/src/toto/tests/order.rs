//! The rule against the definitions, over all small DAGs and every order in which their messages can arrive; the paper's
//! table 1; and the cost of a reception.

use super::dags::{Dag, all_dags, may_come, random_dag};
use super::model::{DagMessage, DagName, Position, SlowOrder, Win};
use crate::toto::order::{CandidateVotes, TotoOrder};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use amcast_core::rng::Rng;

/// The outcome that the definitions give for a DAG, in any order of arrival.
struct DefinedOutcome {
    /// The delivered messages, in order.
    delivered: Vec<DagName>,
    /// The delivered messages if no more messages arrive.
    settled: Vec<DagName>,
    candidates: Vec<DagName>,
    vectors: Vec<Vec<Position>>,
    /// `NVT` and `NTail` of each candidate.
    counts: Vec<(usize, usize)>,
    futures: BTreeMap<(DagName, DagName), BTreeSet<Win>>,
}

/// The part of a DAG that has arrived.
fn arrived(dag: &Dag, had: &[u64]) -> Dag {
    dag.iter().filter(|m| m.follows[m.rank] <= had[m.rank]).cloned().collect()
}

fn defined(members: usize, phi: usize, dag: Dag) -> DefinedOutcome {
    let mut slow = SlowOrder { dag, ..SlowOrder::new(members, phi) };
    let delivered = slow.deliver();
    let candidates = slow.candidates();
    let futures = slow.futures(&candidates);
    let vectors = candidates.iter().map(|&m| slow.vector(m, &candidates)).collect();
    let count = |&m: &DagName| (slow.votes_for(m, &candidates), slow.tail_of(m).len());
    let counts = candidates.iter().map(count).collect();
    for &(a, b) in futures.keys() {
        if slow.win(a, b, &candidates) == Win::Won {
            let beats = |&c: &DagName| c != b && slow.win(b, c, &candidates) == Win::Won;
            assert!(!candidates.iter().any(beats), "W.1: {b:?} is beaten by {a:?} and beats one");
        }
    }
    slow.defunct = (0..members).collect();
    let settled = delivered.iter().copied().chain(slow.deliver()).collect();
    DefinedOutcome { delivered, settled, candidates, vectors, counts, futures }
}

type NamedOrder = TotoOrder<DagName>;

fn drained(order: &mut NamedOrder) -> Vec<DagName> {
    core::iter::from_fn(|| order.deliver_next()).map(|(_, name)| name).collect()
}

fn receive(order: &mut NamedOrder, m: &DagMessage) {
    order.receive(m.rank, &m.follows, m.agreed.then(|| m.name()));
}

/// Compares the state of the incremental rule with the definitions.
fn compare(order: &NamedOrder, delivered: &[DagName], defined: &DefinedOutcome) {
    assert_eq!(delivered, defined.delivered);
    let candidates: Vec<usize> = defined.candidates.iter().map(|name| name.0).collect();
    let counts: Vec<_> =
        candidates.iter().zip(&defined.counts).map(|(&c, n)| (c, n.0, n.1)).collect();
    assert_eq!(order.counts(), counts);
    for (&rank, vector) in candidates.iter().zip(&defined.vectors) {
        for (q, &position) in vector.iter().enumerate() {
            let expected = match position {
                Position::Unknown => None,
                Position::Number(number) => Some(number),
                Position::Infinity => Some(u64::MAX),
            };
            assert_eq!(order.position(rank, q), expected, "{rank}, {q}");
        }
    }
    for (&(a, b), future) in &defined.futures {
        assert_eq!(order.may_win(a.0, b.0), future.contains(&Win::Won), "{a:?}, {b:?}");
        let is_won = *future == [Win::Won].into();
        assert_eq!(order.wins(a.0, b.0), is_won, "{a:?}, {b:?}");
        assert_eq!(future.contains(&Win::Lost), order.may_win(b.0, a.0), "{a:?}, {b:?}");
    }
}

/// All members crash: the delivered messages, and the pending ones after them.
fn settled(order: &NamedOrder, members: usize, delivered: &[DagName]) -> Vec<DagName> {
    let mut order = order.clone();
    (0..members).for_each(|rank| order.crash(rank));
    let left = drained(&mut order);
    assert!(order.pending() == 0 && !order.lacks_vote(0));
    delivered.iter().copied().chain(left).collect()
}

/// The messages of a DAG in arrival.
struct DagArrivals<'a> {
    members: usize,
    phi: usize,
    dag: &'a Dag,
    /// By how many messages of each member have arrived.
    outcomes: BTreeMap<Vec<u64>, DefinedOutcome>,
    /// The states that were reached, likewise: what follows from one is tried once.
    states: BTreeMap<Vec<u64>, Vec<NamedOrder>>,
    /// The order of all messages.
    all: Vec<DagName>,
    compared: u64,
}

impl<'a> DagArrivals<'a> {
    fn new(members: usize, phi: usize, dag: &'a Dag) -> Self {
        let all = defined(members, phi, dag.clone()).settled;
        let (outcomes, states) = (BTreeMap::new(), BTreeMap::new());
        Self { members, phi, dag, outcomes, states, all, compared: 0 }
    }

    /// Compares what has happened with the definitions. The delivered messages are a prefix of the order of all messages.
    fn judge(&mut self, had: &[u64], order: &NamedOrder, delivered: &[DagName]) {
        let (members, phi, dag) = (self.members, self.phi, self.dag);
        let outcome = self.outcomes.entry(had.to_vec());
        let outcome = outcome.or_insert_with(|| defined(members, phi, arrived(dag, had)));
        compare(order, delivered, outcome);
        assert!(self.all.starts_with(delivered), "{delivered:?} of {:?}", self.all);
        assert_eq!(settled(order, members, delivered), outcome.settled);
        self.compared += 1;
    }

    /// One more message arrives.
    fn arrive(
        &mut self,
        m: &DagMessage,
        had: &mut [u64],
        now: (&mut NamedOrder, &mut Vec<DagName>),
    ) {
        had[m.rank] += 1;
        receive(now.0, m);
        now.1.extend(drained(now.0));
        self.judge(had, now.0, now.1);
    }

    /// Lets the rest arrive in every order.
    fn all_orders(&mut self, had: &[u64], order: &NamedOrder, delivered: &[DagName]) {
        let mut state = order.clone();
        state.steps = 0;
        let states = self.states.entry(had.to_vec()).or_default();
        if states.contains(&state) {
            return;
        }
        states.push(state);
        for m in self.dag.iter().filter(|m| may_come(m, had)) {
            let (mut had, mut order) = (had.to_vec(), order.clone());
            let mut delivered = delivered.to_vec();
            self.arrive(m, &mut had, (&mut order, &mut delivered));
            self.all_orders(&had, &order, &delivered);
        }
    }

    /// Lets all arrive in some order.
    fn random_order(&mut self, rng: &mut Rng) {
        let mut had = alloc::vec![0; self.members];
        let mut order = TotoOrder::new(self.members, self.phi);
        let mut delivered = Vec::new();
        loop {
            let next: Vec<_> = self.dag.iter().filter(|m| may_come(m, &had)).collect();
            if next.is_empty() {
                return;
            }
            let m = next[rng.below(next.len() as u64) as usize];
            self.arrive(m, &mut had, (&mut order, &mut delivered));
        }
    }
}

/// Every admitted phi of so many members.
fn each_phi(members: usize) -> core::ops::Range<usize> {
    members.div_ceil(2)..members
}

#[test]
fn three_members_with_two_messages_each_deliver_as_defined_in_every_order_of_every_dag() {
    let mut dags = 0;
    let mut compared = 0;
    all_dags(3, 2, &mut |dag| {
        dags += 1;
        // All messages are agreed, or some are not, which changes from DAG to DAG.
        let mut some = dag.clone();
        some.iter_mut().enumerate().for_each(|(at, m)| m.agreed = (dags >> at) & 1 == 0);
        for (dag, phi) in [(dag, 1), (dag, 2), (&some, 1)] {
            let mut arrivals = DagArrivals::new(3, phi, dag);
            arrivals.all_orders(&[0; 3], &TotoOrder::new(3, phi), &[]);
            compared += arrivals.compared;
        }
    });
    assert_eq!((dags, compared > 100_000), (2827, true), "{compared} states");
}

#[test]
fn four_members_with_a_message_each_deliver_as_defined_in_every_order_of_every_dag() {
    let mut dags = 0;
    all_dags(4, 1, &mut |dag| {
        dags += 1;
        for phi in each_phi(4) {
            DagArrivals::new(4, phi, dag).all_orders(&[0; 4], &TotoOrder::new(4, phi), &[]);
        }
    });
    // Every transitive relation without cycles on four names.
    assert_eq!(dags, 219);
}

#[test]
fn four_members_with_three_messages_each_deliver_as_defined_in_random_orders_of_random_dags() {
    let mut rng = Rng::new(18);
    let mut early = 0;
    for _ in 0..400 {
        let dag = random_dag(4, 3, &mut rng);
        for phi in each_phi(4) {
            let mut arrivals = DagArrivals::new(4, phi, &dag);
            (0..4).for_each(|_| arrivals.random_order(&mut rng));
            early += u64::from(arrivals.outcomes.values().any(|o| !o.delivered.is_empty()));
        }
    }
    assert!(early > 200, "only {early} runs deliver anything before the end");
}

/// A member's letter.
const A: usize = 0;
const B: usize = 1;
const C: usize = 2;
const D: usize = 3;
const E: usize = 4;

/// The DAG of the paper's figure 1, without `a1`, `d1` and `e1` among the agreed messages: they are delivered. `a2` follows `b1`,
/// `c1` and `e2`; `d2` follows `c1` and `e2`; `d3` follows `b1` as well.
fn figure_1() -> Dag {
    let of =
        |rank, follows: [u64; 5], agreed| DagMessage { rank, follows: follows.to_vec(), agreed };
    alloc::vec![
        of(A, [1, 0, 0, 0, 0], false),
        of(D, [0, 0, 0, 1, 0], false),
        of(E, [0, 0, 0, 0, 1], false),
        of(B, [1, 1, 0, 0, 0], true),
        of(C, [1, 0, 1, 1, 0], true),
        of(E, [1, 0, 0, 0, 2], true),
        of(D, [1, 0, 1, 2, 2], false),
        of(A, [2, 1, 1, 1, 2], false),
        of(D, [1, 1, 1, 3, 2], false),
        of(C, [1, 0, 2, 1, 0], true),
    ]
}

#[test]
fn table_1_of_the_paper_is_exact() {
    const INF: u64 = u64::MAX;
    let mut order = TotoOrder::new(5, 3);
    figure_1().iter().for_each(|m| receive(&mut order, m));
    let vector = |order: &NamedOrder, c| (0..5).map(|q| order.position(c, q)).collect::<Vec<_>>();
    let some = |of: [u64; 5]| of.map(Some).to_vec();
    assert_eq!(vector(&order, B), some([2, 1, INF, INF, INF]));
    assert_eq!(vector(&order, C), some([2, INF, 1, 2, INF]));
    assert_eq!(vector(&order, E), some([2, INF, INF, 2, 2]));
    // Candidate, NVT and NTail.
    assert_eq!(order.counts(), [(B, 2, 3), (C, 3, 3), (E, 3, 3)]);
    let slow = SlowOrder { dag: figure_1(), ..SlowOrder::new(5, 3) };
    let tails: Vec<_> = slow.candidates().into_iter().map(|m| slow.tail_of(m)).collect();
    assert_eq!(tails, [[A, B, D].into(), [A, C, D].into(), BTreeSet::from([A, D, E])]);
    let printed = |rank, number, tail: [usize; 3], vector| CandidateVotes {
        rank,
        number,
        tail: tail.to_vec(),
        vector: some(vector),
    };
    let rows = [
        printed(B, 1, [A, B, D], [2, 1, INF, INF, INF]),
        printed(C, 1, [A, C, D], [2, INF, 1, 2, INF]),
        printed(E, 2, [A, D, E], [2, INF, INF, 2, 2]),
    ];
    assert_eq!(order.candidates(), rows);
    assert_eq!(rows.each_ref().map(CandidateVotes::votes_for), [2, 3, 3]);
    // All have voted and none has beaten another one: they are next, and then the one behind c1.
    assert_eq!(drained(&mut order), [(B, 1), (C, 1), (E, 2)]);
    assert_eq!(order.pending(), 1, "c2 waits for votes");
}

#[test]
fn all_ack_is_the_rule_with_the_largest_phi() {
    let mut rng = Rng::new(4);
    let mut delivered = 0;
    for _ in 0..100 {
        let dag = random_dag(4, 3, &mut rng);
        let mut slow = SlowOrder::new(4, 3);
        let mut order = TotoOrder::new(4, 3);
        for m in &dag {
            slow.dag.push(m.clone());
            receive(&mut order, m);
            // The paper's words: wait for a message from each; deliver those that follow no other one.
            let mut all = Vec::new();
            loop {
                let next = slow.candidates();
                if next.is_empty() || slow.tail(&next).len() < 4 {
                    break;
                }
                slow.delivered.extend(&next);
                all.extend(next);
            }
            assert_eq!(drained(&mut order), all);
            delivered += all.len();
        }
    }
    assert!(delivered > 200, "only {delivered}");
}

#[test]
fn a_reception_costs_as_many_steps_as_the_paper_states() {
    let mut rng = Rng::new(6);
    let mut most = 0;
    for _ in 0..30 {
        let dag = random_dag(8, 12, &mut rng);
        let mut order = TotoOrder::new(8, 4);
        for m in &dag {
            let before = order.steps;
            receive(&mut order, m);
            let taken = order.steps - before;
            let (pending, candidates) = (order.pending(), order.counts().len());
            // One for each member and each pending message; of the candidates, one for each pair and two for each of them.
            let bound = 8 + pending + (candidates + 1).pow(2);
            assert!(taken <= bound, "{taken} of {bound}");
            most = most.max(pending);
            let before = order.steps;
            let delivered = drained(&mut order).len();
            // A round looks at each pair of members; and at each pair of candidates, for each member.
            let round = 8 * 8 + 8 * 8 + 8 * (8 + 8 * 8) + 8 * 8;
            assert!(order.steps - before <= (delivered + 1) * round);
        }
    }
    assert!(most > 20, "only {most} messages were pending at a time");
}

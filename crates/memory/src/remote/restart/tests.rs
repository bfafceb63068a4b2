//! Nodes whose connections break and heal, whose frames arrive late, and which drop writes: never are two of them without
//! memory at a time.

use super::super::frames::NodeHealth;
use super::{RestartVote, bit};
use std::collections::{BTreeMap, VecDeque};

struct VoteNode {
    vote: RestartVote,
    start: u64,
    /// Whether it has its memory, or has it back.
    has_memory: bool,
    /// It has its memory, and is behind the others.
    lags: bool,
    /// Those that dropped writes to it in its present start, and in theirs.
    gaps: u64,
}

/// The frames that are under way from one node to another, and the last one of them.
type Wire = (VecDeque<(u64, NodeHealth)>, Option<NodeHealth>);

struct VoteModel {
    nodes: Vec<VoteNode>,
    wires: BTreeMap<(usize, usize), Wire>,
    /// The nodes that began anew, in this order.
    restarts: Vec<usize>,
}

impl VoteModel {
    fn new(count: usize) -> Self {
        let node = |here| VoteNode {
            vote: RestartVote::new(here, count),
            start: 1 + here as u64,
            has_memory: true,
            lags: false,
            gaps: 0,
        };
        let nodes = (0..count).map(node).collect();
        let mut model = Self { nodes, wires: BTreeMap::new(), restarts: Vec::new() };
        model.heal_all();
        model.settle();
        model
    }

    fn pairs(&self) -> Vec<(usize, usize)> {
        let count = self.nodes.len();
        (0..count).flat_map(|a| (a + 1..count).map(move |b| (a, b))).collect()
    }

    fn cut(&mut self, a: usize, b: usize) {
        for (from, to) in [(a, b), (b, a)] {
            self.wires.remove(&(from, to));
            self.nodes[to].vote.lose(from);
        }
    }

    fn heal(&mut self, a: usize, b: usize) {
        if a != b && !self.wires.contains_key(&(a, b)) {
            self.wires.insert((a, b), Wire::default());
            self.wires.insert((b, a), Wire::default());
        }
    }

    fn heal_all(&mut self) {
        self.pairs().into_iter().for_each(|(a, b)| self.heal(a, b));
    }

    /// A node drops writes to another one, which it cannot reach.
    fn drop_writes(&mut self, from: usize, to: usize) {
        if from != to && !self.wires.contains_key(&(from, to)) {
            self.nodes[to].gaps |= bit(from);
        }
    }

    /// Whether writes of one node reach another one.
    fn is_open(&self, from: usize, to: usize) -> bool {
        self.wires.contains_key(&(from, to)) && self.nodes[to].gaps & bit(from) == 0
    }

    fn deliver(&mut self, from: usize, to: usize) -> bool {
        let frame = self.wires.get_mut(&(from, to)).and_then(|wire| wire.0.pop_front());
        let Some((start, health)) = frame else { return false };
        self.nodes[to].vote.hear(from, start, health);
        true
    }

    /// A round of a node; whether it had something to say.
    fn decide(&mut self, here: usize) -> bool {
        let others = 0..self.nodes.len();
        let open =
            others.clone().filter(|&to| self.is_open(here, to)).fold(0, |set, to| set | bit(to));
        let linked = others.filter(|&from| self.wires.contains_key(&(from, here)));
        let connected = linked.fold(0, |set, from| set | bit(from));
        let node = &mut self.nodes[here];
        let is_fit = node.has_memory && !node.lags;
        let health = node.vote.decide(is_fit, (open, node.gaps & connected));
        let mut any = false;
        for (&(from, _), (frames, last)) in &mut self.wires {
            if from == here && last.replace(health) != Some(health) {
                frames.push_back((node.start, health));
                any = true;
            }
        }
        any
    }

    /// The node is a new process, with memory that is zeroed.
    fn start_anew(&mut self, here: usize) {
        let count = self.nodes.len();
        (0..count).for_each(|other| self.cut(here, other));
        self.nodes.iter_mut().for_each(|node| node.gaps &= !bit(here));
        let start = self.nodes[here].start + count as u64;
        let vote = RestartVote::new(here, count);
        self.nodes[here] = VoteNode { vote, start, has_memory: false, lags: false, gaps: 0 };
    }

    /// It does what was granted to it, if anything was.
    fn begin_anew(&mut self, here: usize) -> bool {
        if !self.nodes[here].vote.is_granted() {
            return false;
        }
        self.restarts.push(here);
        self.start_anew(here);
        let empty = self.nodes.iter().filter(|node| !node.has_memory).count();
        assert_eq!(empty, 1, "{:?} began anew: two are without memory", self.restarts);
        true
    }

    /// A node without memory has it back once a majority of others that have theirs exchange writes with each other and it.
    fn recover(&mut self, here: usize) -> bool {
        let others = (0..self.nodes.len()).filter(|&other| other != here);
        let both = |a: usize, b: usize| self.is_open(a, b) && self.is_open(b, a);
        let useful: Vec<usize> =
            others.filter(|&other| self.nodes[other].has_memory && both(here, other)).collect();
        let is_majority = |set: u64| {
            let those = || useful.iter().filter(move |&&node| set & bit(node) != 0);
            those().count() > self.nodes.len() / 2
                && those().all(|&a| those().all(|&b| a == b || both(a, b)))
        };
        let node = &self.nodes[here];
        let can = (!node.has_memory || node.lags) && (0..bit(self.nodes.len())).any(is_majority);
        if can {
            (self.nodes[here].has_memory, self.nodes[here].lags) = (true, false);
        }
        can
    }

    /// All that can happen by itself happens.
    fn settle(&mut self) {
        loop {
            let count = self.nodes.len();
            let ways: Vec<_> = self.wires.keys().copied().collect();
            let mut any = ways.into_iter().fold(false, |any, (a, b)| self.deliver(a, b) | any);
            for here in 0..count {
                any |= self.decide(here);
                if self.begin_anew(here) {
                    (0..count).for_each(|other| self.heal(here, other));
                    any = true;
                }
                any |= self.recover(here);
            }
            if !any {
                return;
            }
        }
    }

    fn has_gaps(&self) -> bool {
        self.nodes.iter().any(|node| node.gaps != 0)
    }
}

/// Those that begin anew where each first node dropped writes to the second one while the two were apart.
fn restarts_of(count: usize, drops: &[(usize, usize)]) -> (Vec<usize>, bool) {
    let mut model = VoteModel::new(count);
    for &(from, to) in drops {
        model.cut(from, to);
        model.drop_writes(from, to);
    }
    model.settle();
    assert_eq!(model.restarts, [], "not before the links are healed");
    model.heal_all();
    model.settle();
    assert!(model.nodes.iter().all(|node| node.has_memory));
    let has_gaps = model.has_gaps();
    (model.restarts, has_gaps)
}

#[test]
fn one_end_of_a_link_begins_anew_and_a_majority_keeps_its_memory() {
    for drops in [&[(0, 1), (1, 0)][..], &[(0, 1)], &[(1, 0)]] {
        assert_eq!(restarts_of(3, drops), (vec![0], false), "{drops:?}");
    }
    assert_eq!(restarts_of(3, &[(1, 2), (2, 1)]), (vec![1], false));
    assert_eq!(restarts_of(5, &[(3, 4), (4, 3)]), (vec![3], false));
}

#[test]
fn of_one_that_was_cut_off_and_the_others_it_is_the_one_that_begins_anew() {
    for alone in 0..3 {
        let others = (0..3).filter(|&other| other != alone);
        let from: Vec<_> = others.clone().map(|other| (alone, other)).collect();
        let to: Vec<_> = others.map(|other| (other, alone)).collect();
        for drops in [&from, &to, &[&from[..], &to].concat()] {
            assert_eq!(restarts_of(3, drops), (vec![alone], false), "{drops:?}");
        }
    }
}

#[test]
fn two_of_five_begin_anew_one_after_the_other() {
    let two = [(0, 2), (0, 3), (0, 4), (1, 2), (1, 3), (1, 4)];
    let (restarts, has_gaps) = restarts_of(5, &two);
    assert!(
        !has_gaps && restarts.len() == 2 && restarts.iter().all(|&node| node < 2),
        "{restarts:?}"
    );
}

#[test]
fn nobody_begins_anew_where_no_majority_would_be_left() {
    let all = [(0, 1), (1, 0), (0, 2), (2, 0), (1, 2), (2, 1)];
    for drops in [&all[..], &[(0, 1), (1, 2), (2, 0)]] {
        assert_eq!(restarts_of(3, drops), (vec![], true), "{drops:?}");
    }
    assert_eq!(restarts_of(2, &[(0, 1), (1, 0)]), (vec![], true), "the other one is no majority");
}

#[test]
fn a_node_that_starts_by_itself_ends_its_gaps_and_nobody_begins_anew_for_them() {
    let mut model = VoteModel::new(3);
    model.cut(0, 1);
    model.drop_writes(0, 1);
    model.drop_writes(1, 0);
    model.start_anew(1);
    model.heal_all();
    model.settle();
    assert!(model.restarts.is_empty() && !model.has_gaps());
}

#[test]
fn who_has_granted_waits_until_the_other_one_is_back() {
    let mut model = VoteModel::new(3);
    model.cut(0, 1);
    model.drop_writes(0, 1);
    model.drop_writes(1, 0);
    model.heal_all();
    while !model.nodes[0].vote.is_granted() {
        for (a, b) in model.wires.keys().copied().collect::<Vec<_>>() {
            model.deliver(a, b);
        }
        (0..3).for_each(|here| _ = model.decide(here));
    }
    assert!(model.begin_anew(0));
    // It does not come back for now, and meanwhile the others' link has a gap, too.
    model.cut(1, 2);
    model.drop_writes(1, 2);
    model.drop_writes(2, 1);
    model.heal(1, 2);
    model.settle();
    assert_eq!(model.restarts, [0], "a majority has to have its memory");
    assert!(model.nodes[1].has_memory && model.nodes[2].has_memory);
}

#[test]
fn a_grant_of_a_request_that_was_withdrawn_does_not_count() {
    let mut vote = RestartVote::new(0, 3);
    let fit = NodeHealth { is_fit: true, open: 7, gaps: 0, ..NodeHealth::default() };
    let grants = |request| NodeHealth { grant: Some((0, request)), ..fit };
    let mut requests = |heard: [NodeHealth; 2]| {
        vote.hear(1, 11, NodeHealth { gaps: 1, ..heard[0] });
        vote.hear(2, 12, heard[1]);
        (vote.decide(true, (6, 0)).request, vote.is_granted())
    };
    assert_eq!(requests([fit, fit]), (1, false));
    assert_eq!(requests([NodeHealth { is_fit: false, ..fit }, fit]), (0, false), "it is withdrawn");
    assert_eq!(requests([grants(1), grants(1)]), (2, false), "these are late");
    assert_eq!(
        requests([grants(2), grants(1)]),
        (2, false),
        "the second may have granted another one's by now"
    );
    assert_eq!(requests([grants(2), grants(2)]), (2, true));
}

/// Numbers that are the same in each run.
struct VoteRandom(u64);

impl VoteRandom {
    fn below(&mut self, most: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % most
    }
}

#[test]
fn at_most_one_is_without_memory_whatever_breaks_and_whenever_frames_arrive() {
    let runs = if cfg!(miri) { 3 } else { 2_000 };
    let (mut begun, mut healed) = (0, 0);
    for seed in 0..runs {
        let count = [3, 4, 5, 5][seed % 4];
        let mut random = VoteRandom(seed as u64);
        let mut model = VoteModel::new(count);
        for _ in 0..random.below(1_500) {
            let (a, b) = (random.below(count), random.below(count));
            match random.below(64) {
                0 => model.cut(a, b),
                1..4 => model.heal(a, b),
                4 => {
                    model.cut(a, b);
                    model.drop_writes(a, b);
                    model.heal(a, b);
                }
                5 => model.nodes[a].lags = random.below(4) == 0,
                6 => _ = model.recover(a),
                7..12 => {
                    if model.begin_anew(a) {
                        (0..count).for_each(|other| model.heal(a, other));
                    }
                }
                12..30 => _ = model.decide(a),
                _ => _ = model.deliver(a, b),
            }
        }
        model.nodes.iter_mut().for_each(|node| node.lags = false);
        model.heal_all();
        model.settle();
        begun += usize::from(!model.restarts.is_empty());
        healed += usize::from(!model.has_gaps());
        let gaps_without = |one: usize| {
            let others = model.nodes.iter().enumerate().filter(move |&(node, _)| node != one);
            others.fold(0, |set, (_, node)| set | node.gaps & !bit(one))
        };
        let is_one_enough = model.has_gaps() && (0..count).any(|one| gaps_without(one) == 0);
        let all_there = model.nodes.iter().all(|node| node.has_memory);
        assert!(
            !(is_one_enough && all_there && count > 2),
            "{seed}: one new start would end all gaps"
        );
    }
    assert!(begun * 4 > runs && healed > 0, "{begun} and {healed} of {runs}");
}

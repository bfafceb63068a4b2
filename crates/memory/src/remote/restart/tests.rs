//! Nodes whose connections break and heal, whose frames arrive late, and which drop writes: never are two of them without
//! memory at a time.

use super::super::frames::{NodeHealth, RestartGrant};
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
    /// Those for whom a leader here does not wait.
    left: u64,
    /// It began anew because a majority let it, and was not fit since.
    has_begun: bool,
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
            vote: RestartVote::new((here, 1 + here as u64), count),
            start: 1 + here as u64,
            has_memory: true,
            lags: false,
            gaps: 0,
            left: 0,
            has_begun: false,
        };
        let nodes = (0..count).map(node).collect();
        let mut model = Self { nodes, wires: BTreeMap::new(), restarts: Vec::new() };
        model.heal_all();
        model.settle();
        model
    }

    /// Three nodes, of which the first two are apart and have dropped writes to each other.
    fn with_dropped_writes() -> Self {
        let mut model = Self::new(3);
        model.cut(0, 1);
        model.drop_writes(0, 1);
        model.drop_writes(1, 0);
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
        let health = node.vote.decide(NodeHealth {
            is_fit: node.has_memory && !node.lags,
            open,
            gaps: node.gaps & connected,
            lagging: node.left,
            ..NodeHealth::default()
        });
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
        let VoteNode { start, has_begun, .. } = self.nodes[here];
        let start = start + count as u64;
        self.nodes[here] = VoteNode {
            vote: RestartVote::new((here, start), count),
            start,
            has_memory: false,
            lags: false,
            gaps: 0,
            left: 0,
            has_begun,
        };
    }

    /// It does what was granted to it, if anything was.
    fn begin_anew(&mut self, here: usize) -> bool {
        if !self.nodes[here].vote.is_granted() {
            return false;
        }
        self.restarts.push(here);
        self.start_anew(here);
        self.nodes[here].has_begun = true;
        let begun = self.nodes.iter().filter(|node| node.has_begun).count();
        assert_eq!(begun, 1, "{:?} began anew: two are without memory", self.restarts);
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
            let node = &mut self.nodes[here];
            (node.has_memory, node.lags, node.has_begun) = (true, false, false);
            self.nodes.iter_mut().for_each(|node| node.left &= !bit(here));
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
    let mut model = VoteModel::with_dropped_writes();
    model.start_anew(1);
    model.heal_all();
    model.settle();
    assert!(model.restarts.is_empty() && !model.has_gaps());
}

#[test]
fn who_has_granted_waits_until_the_other_one_is_back() {
    let mut model = VoteModel::with_dropped_writes();
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

/// The health of a node that is fit and whose writes reach two others.
const FIT: NodeHealth =
    NodeHealth { is_fit: true, request: 0, grant: None, open: 7, gaps: 0, lagging: 0 };

/// The health of one that has granted this request, too.
fn grants((node, start, request): (usize, u64, u64)) -> NodeHealth {
    NodeHealth { grant: Some(RestartGrant { node, start, request }), ..FIT }
}

#[test]
fn a_grant_of_a_request_that_was_withdrawn_does_not_count() {
    let mut vote = RestartVote::new((0, 10), 3);
    let mut requests = |heard: [NodeHealth; 2]| {
        vote.hear(1, 11, NodeHealth { gaps: 1, ..heard[0] });
        vote.hear(2, 12, heard[1]);
        let own = NodeHealth { open: 6, ..FIT };
        (vote.decide(own).request, vote.is_granted())
    };
    let (fit, grants) = (FIT, |request| grants((0, 10, request)));
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
fn a_grant_of_an_earlier_start_does_not_count_though_the_requests_have_one_number() {
    let mut vote = RestartVote::new((0, 20), 3);
    let mut is_granted = |start| {
        vote.hear(1, 11, NodeHealth { gaps: 1, ..grants((0, start, 1)) });
        vote.hear(2, 12, grants((0, start, 1)));
        assert_eq!(vote.decide(FIT).request, 1);
        vote.is_granted()
    };
    assert!(!is_granted(10), "both may have granted another node's request by now");
    assert!(is_granted(20));
}

#[test]
fn a_node_that_has_a_second_gap_does_not_count_grants_of_its_former_start() {
    let mut model = VoteModel::new(5);
    let gap = |model: &mut VoteModel, a: usize, b: usize| {
        model.cut(a, b);
        model.drop_writes(b, a);
        model.heal(a, b);
    };
    let all = |model: &mut VoteModel, from: &[usize], to: &[usize]| {
        from.iter().for_each(|&from| _ = model.decide(from));
        from.iter().for_each(|&from| to.iter().for_each(|&to| while model.deliver(from, to) {}));
    };
    gap(&mut model, 0, 2);
    all(&mut model, &[1, 2, 3, 4], &[0]);
    all(&mut model, &[0], &[1, 2, 3, 4]);
    all(&mut model, &[1, 2, 3, 4], &[0]);
    model.decide(0);
    assert!(model.begin_anew(0));
    // It is back and fit, and the others have not heard it.
    model.heal_all();
    all(&mut model, &[1, 2, 3, 4], &[0]);
    assert!(model.recover(0));
    model.decide(0);
    // Writes between it and the second node are dropped before they do.
    gap(&mut model, 0, 1);
    model.decide(0);
    all(&mut model, &[1], &[0]);
    model.decide(0);
    (1..5).for_each(|other| assert!(model.deliver(0, other)));
    all(&mut model, &[1], &[0, 2, 3, 4]);
    all(&mut model, &[2, 3, 4], &[1]);
    model.decide(1);
    let (second, first) = (model.begin_anew(1), model.begin_anew(0));
    assert!(second && !first, "the second one, by present grants");
}

#[test]
fn a_node_that_must_begin_anew_twice_is_granted_its_second_request() {
    let mut vote = RestartVote::new((1, 11), 3);
    vote.hear(2, 12, FIT);
    let mut granted = |start, health| {
        vote.hear(0, start, health);
        vote.decide(FIT).grant.map(|grant| (grant.start, grant.request))
    };
    let lost = NodeHealth { is_fit: false, ..FIT };
    assert_eq!(granted(10, NodeHealth { request: 3, ..FIT }), Some((10, 3)));
    assert_eq!(granted(20, lost), Some((10, 3)), "it is not back");
    assert_eq!(granted(20, NodeHealth { request: 1, ..lost }), Some((20, 1)));
    // It withdraws that one, and still has no memory.
    assert_eq!(granted(20, lost), Some((20, 1)));
    assert_eq!(granted(20, NodeHealth { request: 2, ..lost }), Some((20, 2)));
    assert_eq!(granted(20, FIT), None);
}

/// Those that begin anew of three where nodes 0 and 1 dropped writes to each other, and each first one leads and left the
/// second one behind.
fn restarts_where(left: &[(usize, usize)]) -> Vec<usize> {
    let mut model = VoteModel::with_dropped_writes();
    left.iter().for_each(|&(by, node)| model.nodes[by].left |= bit(node));
    model.heal_all();
    model.settle();
    model.restarts
}

#[test]
fn a_node_that_its_leader_left_behind_across_a_gap_is_the_one_that_begins_anew() {
    assert_eq!(restarts_where(&[(0, 1)]), [1], "the state of the first one is needed");
    assert_eq!(restarts_where(&[(1, 0)]), [0]);
    assert_eq!(restarts_where(&[(0, 1), (1, 0)]), [0], "neither can get the state before");
    assert_eq!(restarts_where(&[(0, 2)]), [], "it learns it, and gets the state");
    assert_eq!(restarts_where(&[(0, 2), (0, 1), (1, 0)]), []);
}

#[test]
fn a_node_grants_no_request_where_the_others_that_have_all_state_are_no_majority() {
    let mut vote = RestartVote::new((3, 13), 5);
    let all = NodeHealth { open: 31, ..FIT };
    let mut grants = |lagging| {
        vote.hear(0, 10, NodeHealth { request: 1, gaps: 2, ..all });
        vote.hear(1, 11, all);
        vote.hear(4, 14, all);
        // The node that requests does not hear this one.
        vote.hear(2, 12, NodeHealth { lagging, ..all });
        vote.decide(all).grant.is_some()
    };
    assert!(!grants(bit(1) | bit(4)), "only two others have all state");
    assert!(grants(bit(1)));
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

#[test]
fn at_most_one_of_five_is_without_memory_where_nodes_also_start_by_themselves() {
    let runs = if cfg!(miri) { 2 } else { 500 };
    let (mut begun, mut started) = (0, 0);
    for seed in 0..runs {
        let mut random = VoteRandom(seed);
        let mut model = VoteModel::new(5);
        // Frames of some links take long.
        let slow = random.below(1 << 10) as u64;
        for _ in 0..4_000 {
            let (a, b) = (random.below(5), random.below(5));
            match random.below(128) {
                0 => {
                    model.cut(a, b);
                    model.drop_writes(a, b);
                    model.heal(a, b);
                }
                // A grant ends with the process of its node: that would be one failure more.
                3 if random.below(4) == 0 && model.nodes[a].vote.grant.is_none() => {
                    model.start_anew(a);
                    (0..5).for_each(|other| model.heal(a, other));
                    started += 1;
                }
                3..10 => _ = model.recover(a),
                10..20 => {
                    if model.begin_anew(a) {
                        (0..5).for_each(|other| model.heal(a, other));
                        begun += 1;
                    }
                }
                20..60 => _ = model.decide(a),
                _ if slow >> (a + b) & 1 == 1 && random.below(16) > 0 => {}
                _ => while model.deliver(a, b) {},
            }
        }
    }
    assert!(begun * 4 > runs && started > runs, "{begun} and {started} of {runs}");
}

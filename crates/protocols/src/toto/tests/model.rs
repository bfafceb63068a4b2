//! The definitions of the paper, word for word and as slow as they are: the candidates, the extended vectors, `Win`,
//! `Future` over every extension of the DAG, and the criterion `DEL` [ToTo 4.1, 4.2].

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// The name of a message: the rank of its sender, and its number there.
pub(super) type DagName = (usize, u64);

/// A message of the DAG.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct DagMessage {
    pub(super) rank: usize,
    /// Of each member, how many messages it follows, with itself.
    pub(super) follows: Vec<u64>,
    /// Whether it is to be delivered in agreed order.
    pub(super) agreed: bool,
}

impl DagMessage {
    pub(super) fn name(&self) -> DagName {
        (self.rank, self.follows[self.rank])
    }

    /// Whether it follows that message; a message follows itself.
    pub(super) fn follows(&self, (rank, number): DagName) -> bool {
        self.follows[rank] >= number
    }
}

/// A position of an extended vector.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Position {
    Unknown,
    Number(u64),
    Infinity,
}

/// A value of `Win`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Win {
    Lost,
    Won,
    Open,
}

/// `DAG_p`, with what is delivered of it.
#[derive(Clone, Debug)]
pub(super) struct SlowOrder {
    pub(super) members: usize,
    pub(super) phi: usize,
    pub(super) dag: Vec<DagMessage>,
    pub(super) delivered: BTreeSet<DagName>,
    /// `Defunc`.
    pub(super) defunct: BTreeSet<usize>,
}

impl SlowOrder {
    pub(super) fn new(members: usize, phi: usize) -> Self {
        let delivered = BTreeSet::new();
        Self { members, phi, dag: Vec::new(), delivered, defunct: BTreeSet::new() }
    }

    fn pending(&self) -> Vec<&DagMessage> {
        let is_pending = |m: &&DagMessage| m.agreed && !self.delivered.contains(&m.name());
        self.dag.iter().filter(is_pending).collect()
    }

    /// `M_p`, in lexicographical order.
    pub(super) fn candidates(&self) -> Vec<DagName> {
        let pending = self.pending();
        let follows_only_delivered = |m: &&&DagMessage| {
            pending.iter().all(|other| other.name() == m.name() || !m.follows(other.name()))
        };
        let found: BTreeSet<DagName> =
            pending.iter().filter(follows_only_delivered).map(|m| m.name()).collect();
        found.into_iter().collect()
    }

    /// `Tail_p(m)`.
    pub(super) fn tail_of(&self, m: DagName) -> BTreeSet<usize> {
        self.dag.iter().filter(|other| other.follows(m)).map(|other| other.rank).collect()
    }

    /// `Tail_p`, with `Defunc_p`.
    pub(super) fn tail(&self, candidates: &[DagName]) -> BTreeSet<usize> {
        let of_all = candidates.iter().flat_map(|&m| self.tail_of(m));
        of_all.chain(self.defunct.iter().copied()).collect()
    }

    /// `VT_p(m)`, among these candidates.
    pub(super) fn vector(&self, m: DagName, candidates: &[DagName]) -> Vec<Position> {
        let tail = self.tail(candidates);
        let of = |q: usize| {
            if !tail.contains(&q) {
                return Position::Unknown;
            }
            let of_q = self.dag.iter().filter(|other| other.rank == q);
            let follows_any = |other: &&DagMessage| candidates.iter().any(|&c| other.follows(c));
            let first = of_q.filter(follows_any).min_by_key(|other| other.name().1);
            match first {
                Some(first) if first.follows(m) => Position::Number(first.name().1),
                _ => Position::Infinity,
            }
        };
        (0..self.members).map(of).collect()
    }

    /// `NVT_p(m)`.
    pub(super) fn votes_for(&self, m: DagName, candidates: &[DagName]) -> usize {
        let vector = self.vector(m, candidates);
        vector.iter().filter(|p| matches!(p, Position::Number(_))).count()
    }

    /// `Win_p(VT_p(a), VT_p(b))`, among these candidates.
    pub(super) fn win(&self, a: DagName, b: DagName, candidates: &[DagName]) -> Win {
        let vectors = [a, b].map(|m| self.vector(m, candidates));
        let less = |one: &[Position], other: &[Position]| {
            let both = one.iter().zip(other);
            both.filter(|pair| match pair {
                (Position::Number(_), Position::Infinity) => true,
                (Position::Number(x), Position::Number(y)) => x < y,
                _ => false,
            })
            .count()
        };
        if less(&vectors[0], &vectors[1]) > self.phi {
            Win::Won
        } else if less(&vectors[1], &vectors[0]) > self.phi {
            Win::Lost
        } else {
            Win::Open
        }
    }

    /// Every DAG with a message more of each member that is not in `Tail_p`, which follows some of these candidates.
    fn extensions(&self, candidates: &[DagName]) -> Vec<Self> {
        let tail = self.tail(candidates);
        let mut all = alloc::vec![self.clone()];
        for q in (0..self.members).filter(|q| !tail.contains(q)) {
            let choices = 1..1_usize << candidates.len();
            let of = |dag: &Self| {
                let more = |choice| dag.with_vote(q, candidates, choice);
                choices.clone().map(more).collect::<Vec<_>>()
            };
            all = all.iter().flat_map(of).collect();
        }
        all
    }

    /// With one more message of that member, which follows its earlier ones and the chosen candidates.
    fn with_vote(&self, q: usize, candidates: &[DagName], choice: usize) -> Self {
        let mut follows = alloc::vec![0; self.members];
        let chosen = candidates.iter().enumerate().filter(|(at, _)| choice >> at & 1 == 1);
        let chosen: Vec<DagName> = chosen.map(|(_, &name)| name).collect();
        for m in self.dag.iter().filter(|m| m.rank == q || chosen.contains(&m.name())) {
            follows.iter_mut().zip(&m.follows).for_each(|(to, &of)| *to = of.max(*to));
        }
        follows[q] += 1;
        let mut more = self.clone();
        more.dag.push(DagMessage { rank: q, follows, agreed: false });
        more
    }

    /// `Future_p` of each ordered pair of candidates, by its definition: the values of `Win` over all extensions of the
    /// DAG in which all members are in `Tail`.
    pub(super) fn futures(
        &self,
        candidates: &[DagName],
    ) -> BTreeMap<(DagName, DagName), BTreeSet<Win>> {
        let mut futures: BTreeMap<_, BTreeSet<Win>> = BTreeMap::new();
        for dag in self.extensions(candidates) {
            for &a in candidates {
                for &b in candidates.iter().filter(|&&b| a != b) {
                    futures.entry((a, b)).or_default().insert(dag.win(a, b, candidates));
                }
            }
        }
        futures
    }

    /// The sources, if the criterion `DEL` holds.
    pub(super) fn deliverable(&self) -> Option<Vec<DagName>> {
        let candidates = self.candidates();
        if candidates.is_empty() {
            return None;
        }
        let futures = self.futures(&candidates);
        let others = |m: DagName| candidates.iter().copied().filter(move |&other| other != m);
        let is_source = |m: &DagName| others(*m).all(|o| !futures[&(o, *m)].contains(&Win::Won));
        let sources: Vec<DagName> = candidates.iter().copied().filter(is_source).collect();
        let is_beaten = |m: DagName| others(m).any(|o| futures[&(o, m)] == [Win::Won].into());
        let internal = candidates.iter().all(|&m| sources.contains(&m) || is_beaten(m));
        let enough = self.members - self.phi;
        let early = sources.iter().any(|&s| self.votes_for(s, &candidates) > self.phi)
            && sources.iter().all(|&s| self.tail_of(s).len() >= enough);
        let external = early || self.tail(&candidates).len() == self.members;
        (internal && external).then_some(sources)
    }

    /// Delivers as long as the criterion holds; gives the messages in their order.
    pub(super) fn deliver(&mut self) -> Vec<DagName> {
        let mut all = Vec::new();
        while let Some(sources) = self.deliverable() {
            assert!(!sources.is_empty(), "there is a source where all have voted");
            self.delivered.extend(&sources);
            all.extend(sources);
        }
        all
    }
}

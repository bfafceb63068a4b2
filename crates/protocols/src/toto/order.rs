//! The rule ToTo(phi): the order of agreed messages over the causal DAG, evaluated as messages arrive [ToTo 4].
//!
//! # Terms
//! A message *follows* those that its sender had when it sent it, and itself. The messages of a member follow one
//! another, so that a vector says all that a message follows: of each member, by rank, how many messages. A message of
//! the application that is not delivered is *pending*; one that follows no other pending one is a *candidate*. A member
//! has at most one. All messages count as votes, also those that carry nothing to deliver.
//!
//! # The votes
//! The first message of a member that follows any candidate is its vote: it is for the candidates that it follows, and
//! against the others. The extended vector of the paper has, for each candidate and member, the number of the vote if it
//! is for the candidate, infinity if it is against it, and `*` while there is none. A vote has the same number for all
//! candidates, so that position `q` of `a` is less than that of `b` exactly if the vote of `q` is for `a` and against
//! `b`. So the rule counts here what the paper derives from vectors, with one step for each pair of candidates when a
//! vote comes in:
//! ```text
//! less[a][b]            the votes for a and against b
//! Win(a, b) = 1         less[a][b] > phi
//! 1 in Future(a, b)     votes - less[a][b] < n - phi      (settled positions with b[j] <= a[j])
//! NVT(a), NTail(a)      votes for a; members with any message that follows a
//! ```
//!
//! # Why all members deliver alike
//! A source is a candidate that no other one can come to beat, and every other candidate is beaten for good, so that no
//! more votes change the set of sources. A candidate that arrives later has all votes so far against it: more than phi of
//! them are for a source, which beats it; and at least `n - phi` are not for it, so that it beats no source. If all
//! members have voted there is no such candidate. So each member delivers the same sources in each round.
//!
//! # Phi
//! For an integer count, `count > phi` and `count < n - phi` say of any real phi what they say of its integer part: rounding
//! phi down changes no decision, and `n / 2` needs no half.
//!
//! # Cost
//! With `n` members, a reception costs one step for each member, for each pending message that the sender is first
//! seen to follow, and for each pair of candidates: O(n + n_p + n_c^2), as in the paper, where the vector itself is `n`
//! long. A delivery costs O(n^2 + n n_c^2).

use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// The number of a vote that never comes: infinity for all candidates.
const CRASHED: u64 = u64::MAX;

/// A message of the application that is not delivered.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone, PartialEq))]
struct PendingMessage<T> {
    /// Its sender's number of it, from 1.
    number: u64,
    /// Of each member, the number of its first message that follows this one; 0 if there is none.
    first: Vec<u64>,
    /// How many members have one (`NTail` of a candidate).
    followed_by: usize,
    payload: T,
}

/// A candidate and the votes that it has, as the paper's table 1 prints it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CandidateVotes {
    /// The rank of its sender.
    pub rank: usize,
    /// Its sender's number of it, from 1.
    pub number: u64,
    /// `Tail`: the ranks of the members that have sent a message that follows it; it follows itself.
    pub tail: Vec<usize>,
    /// `VT`, by rank: none for `*`, [`u64::MAX`] for infinity.
    pub vector: Vec<Option<u64>>,
}

impl CandidateVotes {
    /// `NVT`: the votes for it.
    pub fn votes_for(&self) -> usize {
        self.vector.iter().flatten().filter(|&&position| position != u64::MAX).count()
    }
}

/// The intended mistakes of a member in the order.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct OrderMutants {
    /// Fewer votes win than half of all.
    pub(super) low_phi: bool,
    /// A candidate is delivered as soon as it has a vote and no other one has beaten it.
    pub(super) hasty: bool,
    /// As a round begins, the candidate of the last member is forgotten if there are others.
    pub(super) forgets: bool,
}

/// The order of the agreed messages of one configuration.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone, PartialEq))]
pub struct TotoOrder<T> {
    members: usize,
    phi: usize,
    /// Of each member, what its last message follows.
    seen: Vec<Vec<u64>>,
    /// Of each member, its pending messages in its order.
    pending: Vec<VecDeque<PendingMessage<T>>>,
    crashed: Vec<bool>,
    /// The members whose first pending message is a candidate, in order.
    candidates: Vec<usize>,
    /// Of each member, the number of its vote; 0 if there is none, [`CRASHED`] if there will be none.
    vote: Vec<u64>,
    /// How many members have voted (`NTail`).
    votes: usize,
    /// The votes for the candidate of a member (`NVT`).
    votes_for: Vec<usize>,
    /// The votes for the candidate of one member and against that of another, row by row.
    less: Vec<usize>,
    /// Sources that are delivered, and not taken yet.
    ready: VecDeque<(usize, T)>,
    mutants: OrderMutants,
    #[cfg(test)]
    pub(super) steps: usize,
}

impl<T> TotoOrder<T> {
    /// The order of a configuration of so many members, at least one, as it begins. `phi` is brought into
    /// `n / 2 <= phi < n`, where the half is rounded down; see the [module](self).
    pub fn new(members: usize, phi: usize) -> Self {
        Self {
            members,
            phi: phi.clamp(members / 2, members.saturating_sub(1)),
            seen: alloc::vec![alloc::vec![0; members]; members],
            pending: (0..members).map(|_| VecDeque::new()).collect(),
            crashed: alloc::vec![false; members],
            candidates: Vec::new(),
            vote: alloc::vec![0; members],
            votes: 0,
            votes_for: alloc::vec![0; members],
            less: alloc::vec![0; members * members],
            ready: VecDeque::new(),
            mutants: OrderMutants::default(),
            #[cfg(test)]
            steps: 0,
        }
    }

    /// Breaks the rule.
    pub(super) const fn break_by(&mut self, mutants: OrderMutants) {
        self.mutants = mutants;
        if mutants.low_phi {
            self.phi = (self.members / 2).saturating_sub(1);
        }
    }

    /// Counts elementary steps, for the test of the cost.
    #[cfg(test)]
    const fn count(&mut self, steps: usize) {
        self.steps += steps;
    }

    #[cfg(not(test))]
    #[inline(always)]
    const fn count(&mut self, _: usize) {}

    /// A message of the member of that rank arrives, behind all that it follows: of each member, by rank, how many
    /// messages, this one included. It has a payload if the application sent it; one without is only a vote.
    pub fn receive(&mut self, rank: usize, follows: &[u64], payload: Option<T>) {
        let number = follows[rank];
        let follows_pending = self.note_followed(rank, follows);
        if let Some(payload) = payload {
            // It outlives the step, so it has memory of its own.
            let mut first = alloc::vec![0; self.members];
            first[rank] = number;
            self.pending[rank].push_back(PendingMessage { number, first, followed_by: 1, payload });
            // [ToTo 1:1] [ToTo 3:2-4]
            if !follows_pending {
                self.add_candidate(rank);
            }
        }
        // [ToTo 3:5-8] a member without a vote is in the tail of no candidate.
        if self.vote[rank] == 0 {
            self.take_vote(rank, number);
        }
    }

    /// Notes the pending messages that this one is its sender's first to follow. Says whether it follows any.
    fn note_followed(&mut self, rank: usize, follows: &[u64]) -> bool {
        let mut follows_pending = false;
        for (of, &upto) in follows.iter().enumerate() {
            self.count(1);
            let before = core::mem::replace(&mut self.seen[rank][of], upto);
            let queue = &mut self.pending[of];
            follows_pending |= queue.front().is_some_and(|message| message.number <= upto);
            let from = queue.partition_point(|message| message.number <= before);
            let newly = queue.iter_mut().skip(from).take_while(|message| message.number <= upto);
            let mut found = 0;
            for message in newly {
                // [ToTo 1:2]
                message.first[rank] = follows[rank];
                message.followed_by += 1;
                found += 1;
            }
            self.count(found);
        }
        follows_pending
    }

    /// The candidate of that member; a candidate is its first pending message.
    fn candidate(&self, rank: usize) -> &PendingMessage<T> {
        &self.pending[rank][0]
    }

    /// A message that follows no pending one arrives: all votes so far are against it.
    fn add_candidate(&mut self, rank: usize) {
        self.votes_for[rank] = 0;
        for at in 0..self.candidates.len() {
            let other = self.candidates[at];
            self.less[other * self.members + rank] = self.votes_for[other];
            self.less[rank * self.members + other] = 0;
        }
        self.count(self.candidates.len() + 1);
        let at = self.candidates.partition_point(|&other| other < rank);
        self.candidates.insert(at, rank);
    }

    /// A member's message of this number is its vote, if it follows a candidate.
    fn take_vote(&mut self, rank: usize, number: u64) {
        let is_for = |order: &Self, of: usize| order.candidate(of).first[rank] == number;
        let mut is_vote = false;
        for at in 0..self.candidates.len() {
            let one = self.candidates[at];
            self.count(1);
            if !is_for(self, one) {
                continue;
            }
            is_vote = true;
            // [ToTo 1:4]
            self.votes_for[one] += 1;
            for other_at in 0..self.candidates.len() {
                let other = self.candidates[other_at];
                self.count(1);
                if !is_for(self, other) {
                    // [ToTo 1:5]
                    self.less[one * self.members + other] += 1;
                }
            }
        }
        if is_vote {
            self.vote[rank] = number;
            self.votes += 1;
        }
    }

    /// No more messages of that member arrive in this configuration (`Crash`).
    pub fn crash(&mut self, rank: usize) {
        // [ToTo 4:1-3] its vote is against all candidates.
        self.crashed[rank] = true;
        if self.vote[rank] == 0 {
            self.vote[rank] = CRASHED;
            self.votes += 1;
        }
    }

    /// The next message in the order and the rank of its sender, once it is known.
    pub fn deliver_next(&mut self) -> Option<(usize, T)> {
        if self.ready.is_empty() {
            self.deliver_sources();
        }
        self.ready.pop_front()
    }

    /// Whether a candidate waits, and that member has not voted.
    pub fn lacks_vote(&self, rank: usize) -> bool {
        !self.candidates.is_empty() && self.vote[rank] == 0
    }

    /// How many messages are pending.
    #[cfg(test)]
    pub(super) fn pending(&self) -> usize {
        self.pending.iter().map(VecDeque::len).sum()
    }

    /// The most votes that any other candidate has and this one has not.
    fn most_against(&mut self, rank: usize) -> usize {
        self.count(self.candidates.len());
        let others = self.candidates.iter().filter(|&&other| other != rank);
        others.map(|&other| self.less[other * self.members + rank]).max().unwrap_or(0)
    }

    /// Delivers the sources, if the criterion holds.
    fn deliver_sources(&mut self) {
        // A vector of ranks, a round of deliveries: it is small, and empty while nothing can be delivered.
        let mut sources = Vec::new();
        for at in 0..self.candidates.len() {
            let rank = self.candidates[at];
            let against = self.most_against(rank);
            // [ToTo 1:6-7] the votes that may come do not suffice for any other candidate.
            if self.votes - against >= self.members - self.phi || self.is_hasty(against) {
                sources.push(rank);
            } else if against <= self.phi {
                // [ToTo 1:8] it is no source, and not beaten for good: no internal stability.
                return;
            }
        }
        if !self.is_externally_stable(&sources) && !self.mutants.hasty {
            return;
        }
        // [ToTo 3:9-10] in the order of their senders, as candidates are.
        for rank in sources {
            self.ready.extend(self.pending[rank].pop_front().map(|first| (rank, first.payload)));
        }
        self.begin_round();
    }

    /// A mutant: whether a candidate with so many votes against it counts as a source.
    const fn is_hasty(&self, against: usize) -> bool {
        self.mutants.hasty && against <= self.phi
    }

    fn is_externally_stable(&self, sources: &[usize]) -> bool {
        // [ToTo 1:9-10]
        let mut chosen = sources.iter().map(|&rank| self.votes_for[rank]);
        let is_chosen = chosen.any(|votes| votes > self.phi);
        let followed = |&rank: &usize| self.candidate(rank).followed_by;
        let are_followed = sources.iter().map(followed).all(|n| n >= self.members - self.phi);
        !sources.is_empty() && (self.votes == self.members || is_chosen && are_followed)
    }

    /// Sources are delivered: other candidates take their place, with the votes that are there.
    fn begin_round(&mut self) {
        // [ToTo 3:11-12]
        self.candidates.clear();
        for rank in 0..self.members {
            self.count(self.members);
            if self.begins_as_candidate(rank) {
                self.candidates.push(rank);
            }
        }
        if self.mutants.forgets && self.candidates.len() > 1 {
            self.candidates.pop();
        }
        self.votes = 0;
        self.votes_for.fill(0);
        self.less.fill(0);
        self.count(self.less.len());
        for rank in 0..self.members {
            let firsts = self.candidates.iter().map(|&of| self.candidate(of).first[rank]);
            let vote = firsts.filter(|&number| number != 0).min();
            self.vote[rank] = 0;
            match vote {
                Some(number) => self.take_vote(rank, number),
                None if self.crashed[rank] => self.crash(rank),
                None => {}
            }
        }
    }

    /// Whether the first pending message of that member follows no other pending one.
    fn begins_as_candidate(&self, rank: usize) -> bool {
        let Some(message) = self.pending[rank].front() else { return false };
        let precedes =
            |other: &PendingMessage<T>| (1..=message.number).contains(&other.first[rank]);
        let mut others = self.pending.iter().enumerate().filter(|&(of, _)| of != rank);
        !others.any(|(_, queue)| queue.front().is_some_and(precedes))
    }

    /// The candidates with their votes, by the ranks of their senders.
    pub fn candidates(&self) -> Vec<CandidateVotes> {
        let of = |&rank: &usize| {
            let message = self.candidate(rank);
            let follows = |&member: &usize| message.first[member] != 0;
            CandidateVotes {
                rank,
                number: message.number,
                tail: (0..self.members).filter(follows).collect(),
                vector: (0..self.members).map(|member| self.position(rank, member)).collect(),
            }
        };
        self.candidates.iter().map(of).collect()
    }

    /// The vote of that member on a candidate, as a position of the paper's extended vector: none for `*`,
    /// [`u64::MAX`] for infinity.
    pub(super) fn position(&self, candidate: usize, of: usize) -> Option<u64> {
        // [ToTo 1:3]
        let vote = self.vote[of];
        let is_for = self.candidate(candidate).first[of] == vote;
        (vote != 0).then_some(if is_for { vote } else { u64::MAX })
    }

    /// The ranks of the candidates, each with `NVT` and `NTail`.
    #[cfg(test)]
    pub(super) fn counts(&self) -> Vec<(usize, usize, usize)> {
        let of = |&rank: &usize| (rank, self.votes_for[rank], self.candidate(rank).followed_by);
        self.candidates.iter().map(of).collect()
    }

    /// `Win`: whether the candidate of one member has beaten that of another, for good.
    #[cfg(test)]
    pub(super) fn wins(&self, one: usize, other: usize) -> bool {
        self.less[one * self.members + other] > self.phi
    }

    /// Whether 1 is in `Future`: the candidate of one member may come to beat that of another.
    #[cfg(test)]
    pub(super) fn may_win(&self, one: usize, other: usize) -> bool {
        self.votes - self.less[one * self.members + other] < self.members - self.phi
    }
}

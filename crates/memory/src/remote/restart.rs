//! Which node begins anew where writes between two nodes were dropped.
//!
//! A node that keeps no more writes for another one drops them ([`super::QUEUE_BYTES_MAX`]), and between the two there is a
//! *gap*: nothing of the one is carried out at the other any more. A new start of either of them ends the gap, since no write is
//! missing in memory that is zeroed, and the writes of a start that is over are owed to nobody. But a node that starts anew
//! has forgotten what it had acknowledged and promised. So the nodes agree on who does, one at a time, and only where a
//! majority that has everything is left.
//!
//! # Rules
//! Each node tells the others, by a `Health` frame, whether its replicas are fit, which nodes its writes reach, which ones
//! have dropped writes to it, which ones lag a shard that one of its replicas leads, the number of its request, and its grant. A
//! node *counts* if it says that it is fit, and no node says that it lags: across a gap it does not learn that its leader waits for it
//! no more. Let there be n nodes, and let a *majority* be
//! ⌊n/2⌋ + 1 of them: so many fit replicas are what a replica without memory needs to return.
//! 1. A node *requests* to begin anew if it is an end of a gap whose other end is connected, has no grant out, and sees a majority
//!    *of others* all of which count and write to each other. It withdraws the request when one of this is over.
//! 2. A node that counts and does not request itself *grants* the request of the connected node with the lowest rank, if it sees a
//!    majority that counts, with itself and without that node. It has one
//!    grant out at a time and, until that is over, requests nothing. The grant is over when that node says, in the same start, that
//!    this request is withdrawn, or, in a later start, that it is fit. If it requests again before, the grant is for that request.
//! 3. A node that hears of a request or a grant of a node with a lower rank withdraws its own request.
//! 4. A node *begins anew* once all of a majority as in (1) has granted its present request. It grants nothing from then on.
//!
//! # Why a majority keeps its memory
//! Two majorities of n nodes have a node in common. It has one grant out, and names in it the request by the start of its node and a
//! number that does not come again in a start, so a grant that counts is still out; one that was given to an earlier start is, too,
//! until that node is fit. So from the moment at which a node begins anew until it is fit again no other one does. Those that granted
//! it were fit and write to each other: their replicas have a quorum, and what the node needs to return.
//!
//! A replica for which its leader waits no more does not know it before it reads the leader's log, so what it says of itself is not
//! enough. The leader leaves it behind only while a quorum has all state and works. A majority has a node in common with that
//! quorum: the leader itself, or one that the leader hears, and which therefore hears the leader's node. So one of those that are
//! to grant the request knows who lags. Two exceptions leave fewer than a majority with all state for a while; then the group waits
//! for those that have it, and forgets nothing unless these fail, too:
//! - Both ends of a gap lead, and each has left the other one behind: neither can get the state before one of the two begins
//!   anew. So where no end of a gap could begin anew otherwise, what one end of a gap says of the other end is ignored.
//! - A leader leaves a replica behind while the frames of a request are on their way.
//!
//! # What happens where
//! - *One link of three was broken, and both ends dropped, or one of them did*: the ends request, the one of the lower rank begins
//!   anew, and its new start ends the gaps of both directions.
//! - *The same, and one end leads shards in which it left the other one behind*: that other one begins anew, also if its rank is higher.
//! - *One node of three was cut off, and dropped writes to both others, or they did to it*: each of the others sees no majority, since
//!   it would need the one that was cut off to exchange writes with the third. Only the one that was cut off requests.
//! - *The node that begins anew fails on its way, or one that granted*: the grant stays out until that node is back and fit.
//! - *All three links of three nodes have gaps*, or more gaps in general than the new starts of a minority can end: nobody
//!   begins anew. The shards stand still, and no memory is forgotten. More than a minority has failed then.
//! - *A new start of its own, by a crash or an operator*, ends the gaps of that node: nobody else needs to begin anew for them.

#[cfg(test)]
mod tests;

use super::frames::{NodeHealth, RestartGrant};

/// The bit of a node in a set of nodes.
const fn bit(node: usize) -> u64 {
    1 << node
}

/// The nodes of a set.
fn nodes_of(set: u64) -> impl Iterator<Item = usize> {
    (0..u64::BITS as usize).filter(move |&node| set & bit(node) != 0)
}

/// A grant that is out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct OutstandingGrant {
    /// The latest request of the node that it is for.
    to: RestartGrant,
    /// That node has started anew since it was granted, so it has no memory before it is fit.
    has_begun: bool,
}

/// The state of this node in the agreement on who begins anew.
#[derive(Debug)]
pub(super) struct RestartVote {
    here: usize,
    nodes: usize,
    /// The number of this start of the node.
    start: u64,
    /// By node: its start, and what it said last on the present connection. Of this one, what it is to say.
    peers: Vec<Option<(u64, NodeHealth)>>,
    grant: Option<OutstandingGrant>,
    /// The number of the last request.
    last: u64,
    /// Whether the request is not withdrawn.
    requests: bool,
    /// Whether a majority has granted it.
    granted: bool,
}

impl RestartVote {
    /// Of the node `here` of so many, in this start of it.
    pub(super) fn new((here, start): (usize, u64), nodes: usize) -> Self {
        assert!(nodes <= u64::BITS as usize, "a set of nodes is a word");
        let peers = vec![None; nodes];
        Self { here, nodes, start, peers, grant: None, last: 0, requests: false, granted: false }
    }

    /// A node said this, in this start of it.
    pub(super) fn hear(&mut self, node: usize, start: u64, health: NodeHealth) {
        self.peers[node] = Some((start, health));
    }

    /// The connection to a node is gone.
    pub(super) fn lose(&mut self, node: usize) {
        self.peers[node] = None;
    }

    /// Whether this node is to begin anew.
    pub(super) const fn is_granted(&self) -> bool {
        self.granted
    }

    /// Whether a node says that this one dropped writes to it.
    pub(super) fn lacks_ours(&self, node: usize) -> bool {
        self.peers[node].is_some_and(|(_, health)| health.gaps & bit(self.here) != 0)
    }

    /// Applies the rules. This node is fit or not, its writes reach some nodes, some have dropped writes to it, and some lag, as
    /// `own` says. Returns what it says of itself from now on.
    pub(super) fn decide(&mut self, own: NodeHealth) -> NodeHealth {
        self.peers[self.here] = Some((self.start, own));
        if !self.granted {
            let lagging = self.lagging();
            self.release();
            self.request(own.gaps, lagging);
            self.give(lagging);
            let asked = RestartGrant { node: self.here, start: self.start, request: self.last };
            let grants = |of: &NodeHealth| of.grant == Some(asked);
            self.granted = self.requests && self.has_majority(lagging, grants);
        }
        NodeHealth {
            request: if self.requests { self.last } else { 0 },
            grant: self.grant.map(|grant| grant.to),
            ..own
        }
    }

    /// The nodes of which something is known, this one included: the node, its start, and its health.
    fn known(&self) -> impl Iterator<Item = (usize, u64, &NodeHealth)> {
        let all = self.peers.iter().enumerate();
        all.filter_map(|(node, said)| said.as_ref().map(|(start, health)| (node, *start, health)))
    }

    fn others(&self) -> impl Iterator<Item = (usize, u64, &NodeHealth)> {
        self.known().filter(|&(node, ..)| node != self.here)
    }

    /// The nodes that do not count since others say that they lag.
    fn lagging(&self) -> u64 {
        let all = self.known().fold(0, |set, (.., health)| set | health.lagging);
        let gaps = self.known().filter(|(.., health)| health.gaps != 0);
        let ends = gaps.fold(0, |set, (node, _, health)| set | bit(node) | health.gaps);
        let may_begin =
            |end: usize| self.has_connected(self.counting(all) & !bit(end), self.majority());
        if all == 0 || nodes_of(ends).any(may_begin) {
            return all;
        }
        self.known().fold(0, |set, (node, _, health)| {
            let of_it = self.known().filter(|(.., other)| other.gaps & bit(node) != 0);
            let beyond_gaps = of_it.fold(health.gaps, |set, (other, ..)| set | bit(other));
            set | health.lagging & !beyond_gaps
        })
    }

    const fn majority(&self) -> usize {
        self.nodes / 2 + 1
    }

    /// Takes the grant back if it is over: the end of rule 2.
    fn release(&mut self) {
        let Some(OutstandingGrant { to, has_begun }) = &mut self.grant else { return };
        let Some((start, health)) = self.peers[to.node] else { return };
        *has_begun |= start != to.start;
        if *has_begun && health.request != 0 {
            // It has no memory yet, and must begin anew once more: the grant is for this request from now on.
            (to.start, to.request) = (start, health.request);
        }
        let is_over = if *has_begun { health.is_fit } else { health.request != to.request };
        if is_over {
            self.grant = None;
        }
    }

    /// Rules 1 and 3.
    fn request(&mut self, gaps: u64, lagging: u64) {
        let here = self.here;
        let is_gap = |node: usize| gaps & bit(node) != 0 || self.lacks_ours(node);
        let is_end = self.others().any(|(node, ..)| is_gap(node));
        let goes_first = self.others().any(|(node, _, health)| {
            let granted = health.grant.is_some_and(|grant| grant.node < here);
            granted || (health.request != 0 && node < here)
        });
        let may =
            is_end && !goes_first && self.grant.is_none() && self.has_majority(lagging, |_| true);
        if may && !self.requests {
            self.last += 1;
        }
        self.requests = may;
    }

    /// The beginning of rule 2.
    fn give(&mut self, lagging: u64) {
        let counting = self.counting(lagging);
        if self.requests || self.grant.is_some() || counting & bit(self.here) == 0 {
            return;
        }
        let Some((node, start, health)) = self.others().find(|(.., health)| health.request != 0)
        else {
            return;
        };
        if (counting & !bit(node)).count_ones() as usize >= self.majority() {
            let to = RestartGrant { node, start, request: health.request };
            self.grant = Some(OutstandingGrant { to, has_begun: false });
        }
    }

    /// The nodes that count.
    fn counting(&self, lagging: u64) -> u64 {
        let fit = self.known().filter(|(.., health)| health.is_fit);
        fit.fold(0, |set, (node, ..)| set | bit(node)) & !lagging
    }

    /// Whether a majority of other nodes counts, is as `is_right` says, and writes to each other.
    fn has_majority(&self, lagging: u64, is_right: impl Fn(&NodeHealth) -> bool) -> bool {
        let right = self.others().filter(|(.., health)| is_right(health));
        let right = right.fold(0, |set, (node, ..)| set | bit(node));
        self.has_connected(right & self.counting(lagging), self.majority())
    }

    /// Whether so many of these nodes write to each other.
    fn has_connected(&self, candidates: u64, count: usize) -> bool {
        if count == 0 {
            return true;
        }
        let open = |node: usize| self.peers[node].map_or(0, |(_, health)| health.open);
        nodes_of(candidates).any(|node| {
            // Those behind it: each set is looked at once.
            let behind = candidates & !(bit(node) | (bit(node) - 1));
            let writes_to_it = |other: &usize| open(*other) & bit(node) != 0;
            let both = nodes_of(behind & open(node)).filter(writes_to_it);
            self.has_connected(both.fold(0, |set, other| set | bit(other)), count - 1)
        })
    }
}

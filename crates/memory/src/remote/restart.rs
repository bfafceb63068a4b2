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
//! have dropped writes to it, the number of its request, and its grant. Let there be n nodes, and let a *majority* be
//! ⌊n/2⌋ + 1 of them: so many fit replicas are what a replica without memory needs to return.
//! 1. A node *requests* to begin anew if it is an end of a gap whose other end is connected, has no grant out, and sees a majority
//!    *of others* all of which are fit and write to each other. It withdraws the request when one of this is over.
//! 2. A node that is fit and does not request itself *grants* the request of the connected node with the lowest rank. It has one
//!    grant out at a time and, until that is over, requests nothing. The grant is over when that node says, in the same start, that
//!    this request is withdrawn, or, in a later start, that it is fit. If it requests again before, the grant is for that request.
//! 3. A node that hears of a request or a grant of a node with a lower rank withdraws its own request.
//! 4. A node *begins anew* once all of a majority as in (1) has granted its present request. It grants nothing from then on.
//!
//! # Why a majority keeps its memory
//! Two majorities of n nodes have a node in common. It has one grant out, and a request has a number that does not come
//! again in a start, so a grant that counts is still out; one that was given to an earlier start is, too, until that node
//! is fit. So from the moment at which a node begins anew until it is fit again no other one does. Those that granted it were fit and
//! write to each other: their replicas have a quorum, and what the node needs to return.
//!
//! # What happens where
//! - *One link of three was broken, and both ends dropped, or one of them did*: the ends request, the one of the lower rank begins
//!   anew, and its new start ends the gaps of both directions.
//! - *One node of three was cut off, and dropped writes to both others, or they did to it*: each of the others sees no majority, since
//!   it would need the one that was cut off to exchange writes with the third. Only the one that was cut off requests.
//! - *The node that begins anew fails on its way, or one that granted*: the grant stays out until that node is back and fit.
//! - *All three links of three nodes have gaps*, or more gaps in general than the new starts of a minority can end: nobody
//!   begins anew. The shards stand still, and no memory is forgotten. More than a minority has failed then.
//! - *A new start of its own, by a crash or an operator*, ends the gaps of that node: nobody else needs to begin anew for them.

#[cfg(test)]
mod tests;

use super::frames::NodeHealth;

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
struct RestartGrant {
    node: usize,
    /// The start of the node in which it requested.
    start: u64,
    request: u64,
}

/// The state of this node in the agreement on who begins anew.
#[derive(Debug)]
pub(super) struct RestartVote {
    here: usize,
    nodes: usize,
    /// By node: its start, and what it said last on the present connection.
    peers: Vec<Option<(u64, NodeHealth)>>,
    grant: Option<RestartGrant>,
    /// The number of the last request.
    last: u64,
    /// Whether the request is not withdrawn.
    requests: bool,
    /// Whether a majority has granted it.
    granted: bool,
}

impl RestartVote {
    pub(super) fn new(here: usize, nodes: usize) -> Self {
        assert!(nodes <= u64::BITS as usize, "a set of nodes is a word");
        let peers = vec![None; nodes];
        Self { here, nodes, peers, grant: None, last: 0, requests: false, granted: false }
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

    /// Applies the rules. This node is fit or not, its writes reach the nodes `open`, and `gaps` have dropped writes to
    /// it. Returns what it says of itself from now on.
    pub(super) fn decide(&mut self, is_fit: bool, (open, gaps): (u64, u64)) -> NodeHealth {
        if !self.granted {
            self.release();
            self.request(gaps);
            self.give(is_fit);
            let (here, request) = (self.here, self.last);
            let grants = |of: &NodeHealth| of.grant == Some((here, request));
            self.granted = self.requests && self.has_majority(grants);
        }
        NodeHealth {
            is_fit,
            request: if self.requests { self.last } else { 0 },
            grant: self.grant.map(|grant| (grant.node, grant.request)),
            open,
            gaps,
        }
    }

    fn others(&self) -> impl Iterator<Item = (usize, u64, &NodeHealth)> {
        let all = self.peers.iter().enumerate();
        all.filter_map(|(node, said)| said.as_ref().map(|(start, health)| (node, *start, health)))
    }

    /// Takes the grant back if it is over: the end of rule 2.
    fn release(&mut self) {
        let Some(grant) = &mut self.grant else { return };
        let Some((start, health)) = self.peers[grant.node] else { return };
        let is_later = start != grant.start;
        if is_later && health.request != 0 {
            // It has no memory yet, and must begin anew once more: the grant is for this request from now on.
            grant.request = health.request;
        }
        let is_over = if is_later { health.is_fit } else { health.request != grant.request };
        if is_over {
            self.grant = None;
        }
    }

    /// Rules 1 and 3.
    fn request(&mut self, gaps: u64) {
        let here = self.here;
        let is_gap = |node: usize| gaps & bit(node) != 0 || self.lacks_ours(node);
        let is_end = self.others().any(|(node, ..)| is_gap(node));
        let goes_first = self.others().any(|(node, _, health)| {
            let granted = health.grant.is_some_and(|(to, _)| to < here);
            granted || (health.request != 0 && node < here)
        });
        let may = is_end && !goes_first && self.grant.is_none() && self.has_majority(|_| true);
        if may && !self.requests {
            self.last += 1;
        }
        self.requests = may;
    }

    /// The beginning of rule 2.
    fn give(&mut self, is_fit: bool) {
        if self.requests || self.grant.is_some() || !is_fit {
            return;
        }
        let first = self.others().find(|(_, _, health)| health.request != 0);
        self.grant = first.map(|(node, start, health)| RestartGrant {
            node,
            start,
            request: health.request,
        });
    }

    /// Whether a majority of other nodes is fit, is as `is_right` says, and writes to each other.
    fn has_majority(&self, is_right: impl Fn(&NodeHealth) -> bool) -> bool {
        let right = self.others().filter(|(_, _, health)| health.is_fit && is_right(health));
        let candidates = right.fold(0, |set, (node, ..)| set | bit(node));
        self.has_connected(candidates, self.nodes / 2 + 1)
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

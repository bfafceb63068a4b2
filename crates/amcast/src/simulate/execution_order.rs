//! The order in which the nodes executed commands: the place of each call, which the checker tries first.
//!
//! A node executes a command with all that comes before it in its shards, or has it in a state that another node gave. So
//! the time at which any node first executes a command is later than those of all commands before it: these times are
//! an order that explains the answers, if the services are right. Reads need no places: the checker takes them where they fit.

use super::node::ClientRequest;
use amcast_core::{MsgId, Outcome};
use std::collections::{BTreeMap, BTreeSet};

/// The places of requests in the order of execution.
#[derive(Default)]
pub(super) struct ExecutionOrder {
    /// The requests that messages carry.
    requests: BTreeMap<MsgId, ClientRequest>,
    /// The messages that some node has taken.
    seen: BTreeSet<MsgId>,
    /// How many messages were taken before the one that had the command of a request executed.
    places: BTreeMap<ClientRequest, u64>,
}

impl ExecutionOrder {
    /// A message carries this request.
    pub(super) fn carries(&mut self, msg: MsgId, of: ClientRequest) {
        self.requests.insert(msg, of);
    }

    /// A node executed the command of a message, or refused it.
    pub(super) fn executed(&mut self, msg: MsgId, outcome: Outcome) {
        let next = self.seen.len() as u64;
        if self.seen.insert(msg)
            && outcome == Outcome::Executed
            && let Some(of) = self.requests.get(&msg)
        {
            self.places.entry(*of).or_insert(next);
        }
    }

    /// The place of a request, if a node executed it.
    pub(super) fn place(&self, of: ClientRequest) -> Option<u64> {
        self.places.get(&of).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use amcast_core::Pid;

    #[test]
    fn requests_are_placed_where_a_node_first_executed_them() {
        let msg = |seq| MsgId { sender: Pid(0), seq };
        let of = |request| ClientRequest { client: 0, request };
        let mut order = ExecutionOrder::default();
        (1..=3).for_each(|n| order.carries(msg(n), of(n)));
        order.carries(msg(4), of(2));
        order.executed(msg(1), Outcome::NotExecuted);
        [2, 3, 1, 2, 4].into_iter().for_each(|n| order.executed(msg(n), Outcome::Executed));
        assert_eq!([1, 2, 3].map(|n| order.place(of(n))), [None, Some(1), Some(2)]);
    }
}

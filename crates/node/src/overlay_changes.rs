//! Changes of the tree of the groups on a running cluster: a request to a node's control socket goes to the gateway of
//! its process, which has a process of the protocol that multicasts.
//!
//! ```text
//! overlay -1,0,0\n  ->  ok\n once the protocol is asked for that tree, or: no REASON\n
//! ```
//! The order of the groups decides when the change takes effect; the status of the replicas tells ([`OverlayStatus`]).

use crate::command_gateway::CommandGateway;
use crate::control::{ANSWER_TIMEOUT, LINE_BYTES_MAX};
use crate::node_address::NodeAddress;
use amcast_core::Overlay;
use serde::{Deserialize, Serialize};
use std::io::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

/// The tree of the groups that a replica goes by, as its status page says.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct OverlayStatus {
    /// How many changes have led to it: 0 for the tree that the cluster began with.
    pub number: u32,
    /// The parent of each group, and -1 for the root's: `-1,0,0`.
    pub parents: String,
}

impl OverlayStatus {
    pub(crate) fn of((number, tree): (u32, &Overlay)) -> Self {
        Self { number, parents: tree.to_string() }
    }
}

/// Where requests for another tree go: the gateway of this process, as long as there is one.
#[derive(Clone, Default)]
pub struct OverlayRequester(Arc<Mutex<Weak<CommandGateway>>>);

impl OverlayRequester {
    fn locked(&self) -> MutexGuard<'_, Weak<CommandGateway>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Requests go to this gateway from now on. It ends as if this were not.
    pub fn ask_through(&self, gateway: &Arc<CommandGateway>) {
        *self.locked() = Arc::downgrade(gateway);
    }

    /// Has the gateway ask for the tree with these parents.
    pub(crate) fn ask(&self, parents: &str) -> Result<(), String> {
        let tree = parse(parents)?;
        let gateway = self.locked().upgrade();
        let gateway =
            gateway.ok_or("this node serves no clients, and only who serves clients multicasts")?;
        gateway.change_overlay(tree).map_err(|e| e.to_string())
    }
}

/// Reads a list of parents.
fn parse(parents: &str) -> Result<Overlay, String> {
    let numbers: Result<Vec<i64>, _> = parents.split(',').map(str::parse).collect();
    let numbers =
        numbers.map_err(|_| format!("no sense in that: overlay -1,0,0, not {parents:?}"))?;
    Overlay::new(&numbers, numbers.len()).map_err(|e| e.to_string())
}

/// Asks the node at `at` to have the tree changed. The inner error is the node's refusal.
///
/// # Errors
/// When the node does not run, does not answer in time, or does not know the cluster's secret as it is known here.
pub fn request_overlay(at: &NodeAddress, to: &Overlay) -> io::Result<Result<(), String>> {
    let stream = at.connect()?;
    stream.set_write_timeout(ANSWER_TIMEOUT)?;
    (&stream).write_all(format!("overlay {to}\n").as_bytes())?;
    let answer = stream.line(LINE_BYTES_MAX, Instant::now() + ANSWER_TIMEOUT)?;
    Ok(match answer.strip_prefix("no ") {
        _ if answer == "ok" => Ok(()),
        Some(why) => Err(why.to_string()),
        // A node of an earlier version.
        None => Err(answer),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_without_a_gateway_and_a_list_that_is_no_tree_are_refused() {
        let _limit = amcast_test_policy::time_limit();
        let requester = OverlayRequester::default();
        let refused = |parents: &str| requester.ask(parents).expect_err("nobody can multicast it");
        assert!(refused("-1,0,0").contains("serves no clients"));
        for (wrong, says) in
            [("-1,x", "no sense"), ("", "no sense"), ("0,1", "roots"), ("-1,7", "group 1")]
        {
            assert!(refused(wrong).contains(says), "{wrong}: {}", refused(wrong));
        }
    }
}

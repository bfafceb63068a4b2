//! Changes of the tree of the groups on a running cluster: a request to a node's control socket goes to the gateway of
//! its process, which has a process of the protocol that multicasts.
//!
//! ```text
//! overlay NUMBER -1,0,0\n  ->  ok\n once the protocol is asked for that tree behind the one of this number;
//!                               overtaken NUMBER 2,2,-1\n if another tree is in force since: that one;
//!                               or: no REASON\n, later REASON\n if the same may succeed soon
//! ```
//! The order of the groups decides when the change takes effect; the status of the replicas tells ([`OverlayStatus`]).

use crate::command_gateway::{CommandGateway, OverlayRefusal};
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

    /// Has the gateway ask for the tree with these parents, behind the one of number `behind`. Gives the answer to the request.
    pub(crate) fn ask(&self, behind: &str, parents: &str) -> String {
        let asked = behind
            .parse()
            .map_err(|_| format!("no sense in that: overlay 0 -1,0,0, not {behind:?}"));
        let asked = asked.and_then(|behind: u32| Ok((behind, parse(parents)?)));
        let (behind, tree) = match asked {
            Ok(asked) => asked,
            Err(why) => return format!("no {why}"),
        };
        let Some(gateway) = self.locked().upgrade() else {
            return "no this node serves no clients: it has no gateway, which multicasts the change".to_string();
        };
        match gateway.change_overlay(behind, tree) {
            Ok(()) => "ok".to_string(),
            Err(OverlayRefusal::Overtaken(OverlayStatus { number, parents })) => {
                format!("overtaken {number} {parents}")
            }
            Err(why) if why.may_pass() => format!("later {why}"),
            Err(why) => format!("no {why}"),
        }
    }
}

/// Reads a list of parents.
fn parse(parents: &str) -> Result<Overlay, String> {
    let numbers: Result<Vec<i64>, _> = parents.split(',').map(str::parse).collect();
    let numbers =
        numbers.map_err(|_| format!("no sense in that: overlay 0 -1,0,0, not {parents:?}"))?;
    Overlay::new(&numbers, numbers.len()).map_err(|e| e.to_string())
}

/// The answer of a node that is asked for another tree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OverlayAnswer {
    /// Its gateway asks for it.
    Asked,
    /// It does not: this tree came first, and is in force.
    Overtaken(OverlayStatus),
    /// It does not, and may soon, for this reason.
    Later(String),
    /// It does not, for this reason.
    Refused(String),
}

/// Asks the node at `at` to have the tree changed to `to`, behind the one of number `behind`.
///
/// # Errors
/// When the node does not run, does not answer in time, or does not know the cluster's secret as it is known here.
pub fn request_overlay(at: &NodeAddress, behind: u32, to: &Overlay) -> io::Result<OverlayAnswer> {
    let stream = at.connect()?;
    stream.set_write_timeout(ANSWER_TIMEOUT)?;
    (&stream).write_all(format!("overlay {behind} {to}\n").as_bytes())?;
    Ok(OverlayAnswer::of(stream.line(LINE_BYTES_MAX, Instant::now() + ANSWER_TIMEOUT)?))
}

impl OverlayAnswer {
    /// Reads a line that [`OverlayRequester::ask`] made.
    fn of(line: String) -> Self {
        match line.split_once(' ') {
            _ if line == "ok" => Self::Asked,
            Some(("overtaken", tree)) => match overtaking(tree) {
                Some(tree) => Self::Overtaken(tree),
                None => Self::Refused(line),
            },
            Some(("later", why)) => Self::Later(why.to_string()),
            Some(("no", why)) => Self::Refused(why.to_string()),
            // A node of another version.
            _ => Self::Refused(line),
        }
    }
}

/// Reads the number and the parents of a tree.
fn overtaking(tree: &str) -> Option<OverlayStatus> {
    let (number, parents) = tree.split_once(' ')?;
    Some(OverlayStatus { number: number.parse().ok()?, parents: parse(parents).ok()?.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_without_a_gateway_and_a_list_that_is_no_tree_are_refused() {
        let _limit = amcast_test_policy::time_limit();
        let requester = OverlayRequester::default();
        let refused = |parents: &str| requester.ask("0", parents);
        assert!(refused("-1,0,0").starts_with("no this node serves no clients"));
        assert!(requester.ask("-1,0,0", "").starts_with("no no sense in that"), "without a number");
        for (wrong, says) in
            [("-1,x", "no sense"), ("", "no sense"), ("0,1", "roots"), ("-1,7", "group 1")]
        {
            let answer = refused(wrong);
            assert!(answer.starts_with("no ") && answer.contains(says), "{wrong}: {answer}");
        }
    }

    #[test]
    fn an_answer_names_the_tree_that_came_first_or_why_there_is_no_change() {
        let of = |line: &str| OverlayAnswer::of(line.to_string());
        let refused = |why: &str| OverlayAnswer::Refused(why.to_string());
        let first = OverlayStatus { number: 5, parents: "2,2,-1".to_string() };
        assert_eq!(of("overtaken 5 2,2,-1"), OverlayAnswer::Overtaken(first));
        for unread in ["overtaken 5", "overtaken x 2,2,-1", "overtaken 5 7,7", "overtaken", "what"]
        {
            assert_eq!(of(unread), refused(unread));
        }
        assert_eq!(of("ok"), OverlayAnswer::Asked);
        assert_eq!(of("later it stops"), OverlayAnswer::Later("it stops".to_string()));
        assert_eq!(of("no it cannot"), refused("it cannot"));
    }
}

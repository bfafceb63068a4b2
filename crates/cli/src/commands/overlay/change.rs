//! One change of the tree of a running cluster: which nodes are asked for it, how often, and when it is made, late, or
//! overtaken by another one.

use super::trees_seen::{TreesSeen, describe_tree};
use crate::commands::Failure;
use crate::commands::terminal_text::harmless_line;
use amcast_core::Overlay;
use amcast_node::config::node_name;
use amcast_node::overlay_changes::{OverlayAnswer, OverlayStatus};
use std::io;
use std::time::Duration;

/// How often the nodes are asked whether the change is in force.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The same where that takes long.
const LOOK_SELDOM: Duration = Duration::from_millis(200);

/// How long a change may take until another node is asked for it, too: the first may have died with the request. A change
/// that is made twice has the effect of one.
const ASK_AGAIN: Duration = Duration::from_secs(5);

/// The nodes of a cluster whose tree is to change, and the time that passes.
pub(super) trait AskedNodes {
    /// How many there are: their ranks are below it.
    fn count(&self) -> usize;

    /// Asks all for the trees that their replicas go by.
    fn trees(&self) -> Result<TreesSeen, Failure>;

    /// Asks one for the tree behind the one of this number.
    fn request(&self, rank: usize, behind: u32, wanted: &Overlay) -> io::Result<OverlayAnswer>;

    /// The time since the command began.
    fn elapsed(&self) -> Duration;

    /// Lets time pass.
    fn pause(&self, time: Duration);
}

/// A tree that is in force, as it was wanted.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum WantedTree {
    /// It was so already.
    Already(OverlayStatus),
    /// It came into force after this time.
    After(OverlayStatus, Duration),
}

/// The result of a request to the nodes.
enum OverlayRequestResult {
    /// The latest node that asks, by its rank; with none each may do so later.
    By(Option<usize>),
    /// Another change came first: to this tree.
    Overtaken(OverlayStatus),
    /// None can, for these reasons.
    Nobody(String),
}

/// A change to the tree `wanted`, which is to be in force before `patience` is over.
pub(super) struct OverlayChange<'a, N> {
    pub(super) nodes: &'a N,
    pub(super) wanted: &'a Overlay,
    pub(super) patience: Duration,
}

impl<N: AskedNodes> OverlayChange<'_, N> {
    /// Has the tree changed, and waits until that is in force.
    pub(super) fn carry_out(&self) -> Result<WantedTree, Failure> {
        let parents = self.wanted.to_string();
        let before = self.settled()?;
        if before.parents == parents {
            return Ok(WantedTree::Already(before));
        }
        let mut latest = before.clone();
        let (mut ask_at, mut asked) = (Duration::ZERO, None);
        loop {
            let seen = self.nodes.trees()?;
            learn(&mut latest, seen.latest());
            let (in_force, now) = (seen.in_force(), self.nodes.elapsed());
            match &in_force {
                Ok(tree) if tree.parents == parents => {
                    return Ok(WantedTree::After(tree.clone(), now));
                }
                Ok(tree) if tree.number > before.number && *tree == latest => {
                    return Err(Failure::Failed(overtaken(&parents, tree)));
                }
                _ if now < self.patience => {}
                _ if latest.number > before.number && latest.parents != parents => {
                    let why =
                        in_force.err().unwrap_or_else(|| "none that answers does".to_string());
                    return Err(Failure::Failed(format!(
                        "{}. Not all replicas go by that tree yet: {}",
                        overtaken(&parents, &latest),
                        harmless_line(&why)
                    )));
                }
                _ => return Err(Failure::Failed(self.late(&parents, in_force))),
            }
            if now >= ask_at && latest.number == before.number {
                match self.request(before.number, asked) {
                    OverlayRequestResult::By(rank) => asked = rank,
                    OverlayRequestResult::Overtaken(tree) => learn(&mut latest, Some(&tree)),
                    OverlayRequestResult::Nobody(why) => self.still_behind(before.number, &why)?,
                }
                let next = if asked.is_some() { ASK_AGAIN } else { LOOK_SELDOM };
                ask_at = self.nodes.elapsed() + next;
            }
            self.nodes.pause(if now < ASK_AGAIN { LOOK_EVERY } else { LOOK_SELDOM });
        }
    }

    /// The tree in force, once all shards have a majority that works and no change is under way: one that is asked for
    /// before would hold back the commands of all who multicast through the same gateway.
    fn settled(&self) -> Result<OverlayStatus, Failure> {
        loop {
            match self.nodes.trees()?.in_force() {
                Ok(tree) => return Ok(tree),
                Err(why) if self.nodes.elapsed() >= self.patience => {
                    return Err(Failure::Failed(format!(
                        "the tree is not changed: {}",
                        harmless_line(&why)
                    )));
                }
                Err(_) => self.nodes.pause(LOOK_SELDOM),
            }
        }
    }

    /// Has a node ask for the tree behind the one of this number: the first that can, behind the one that was asked before.
    fn request(&self, behind: u32, asked: Option<usize>) -> OverlayRequestResult {
        let (mut refusals, mut may_pass) = (Vec::new(), false);
        let (from, count) = (asked.map_or(0, |rank| rank + 1), self.nodes.count());
        for rank in (from..from + count).map(|rank| rank % count) {
            let why = match self.nodes.request(rank, behind, self.wanted) {
                Ok(OverlayAnswer::Asked) => return OverlayRequestResult::By(Some(rank)),
                Ok(OverlayAnswer::Overtaken(tree)) => return OverlayRequestResult::Overtaken(tree),
                Ok(OverlayAnswer::Later(why)) => {
                    may_pass = true;
                    why
                }
                Ok(OverlayAnswer::Refused(why)) => why,
                Err(e) => format!("does not answer: {e}"),
            };
            refusals.push(harmless_line(&format!("{}: {why}", node_name(rank))).into_owned());
        }
        match asked.is_some() || may_pass {
            // The first request may still be on its way.
            true => OverlayRequestResult::By(asked),
            false => OverlayRequestResult::Nobody(refusals.join("\n")),
        }
    }

    /// That no node can ask for the change, for these reasons; unless replicas go by another tree meanwhile: a
    /// node of an earlier version does not say which one came first.
    fn still_behind(&self, number: u32, refusals: &str) -> Result<(), Failure> {
        let seen = self.nodes.trees()?;
        if seen.latest().is_some_and(|tree| tree.number > number) {
            return Ok(());
        }
        Err(Failure::Failed(format!(
            "no node can ask for the change ({}); a node that serves clients can:\n{refusals}",
            harmless_line(&present(seen.in_force()))
        )))
    }

    /// The error of a change that is not in force in time.
    fn late(&self, parents: &str, in_force: Result<OverlayStatus, String>) -> String {
        format!(
            "the tree {parents} is not in force after {} s: {}. It may still come into force: `amcast overlay show` tells when it is",
            self.patience.as_secs(),
            harmless_line(&present(in_force))
        )
    }
}

/// Notes a tree that is later than those that were seen before.
fn learn(latest: &mut OverlayStatus, tree: Option<&OverlayStatus>) {
    if let Some(tree) = tree.filter(|tree| tree.number > latest.number) {
        *latest = tree.clone();
    }
}

/// The tree that all go by, or why there is none.
fn present(in_force: Result<OverlayStatus, String>) -> String {
    in_force.map_or_else(|why| why, |tree| format!("in force is {}", describe_tree(&tree)))
}

/// The error of a change that another one overtook.
fn overtaken(parents: &str, now: &OverlayStatus) -> String {
    format!(
        "another change was made: in force is {}, and {parents} is not asked for any more",
        harmless_line(&describe_tree(now))
    )
}

#[cfg(test)]
mod tests;

//! The status of a node, and why it is not ready.

use super::Node;
use crate::clock;
use crate::control::{NodeStatus, ReplicaStatus};
use crate::incarnation::SharedIncarnation;
use crate::replicas::waits_for_place;
use amcast_core::{Gid, Span};
use amcast_smr::application::Application;
use std::borrow::Cow;

/// That the log has had no room for so long.
fn log_is_stuck(span: Span) -> String {
    format!(
        "its disk hangs or is too slow: its log has had no room for {:.1} s, and other nodes take its clients' commands",
        span.0 as f64 / 1e9
    )
}

/// That replicas have not executed all that was ordered before they started, if that is so.
fn catching_up(replicas: &[ReplicaStatus]) -> Option<String> {
    let left: Vec<u64> = replicas.iter().filter_map(|r| r.catching_up).collect();
    match left.iter().sum::<u64>() {
        _ if left.is_empty() => None,
        0 => Some("it asks the others what was ordered while it was away".to_string()),
        sum => Some(format!(
            "it executes what was ordered while it was away: {sum} instances are left"
        )),
    }
}

impl<A: Application> Node<A> {
    /// That it has not met all nodes, which it must before it skips these messages.
    fn waits_for_all(&self, skips: &str) -> String {
        let names: Vec<_> =
            self.replicas.not_met().into_iter().map(crate::config::node_name).collect();
        format!(
            "{skips} is skipped only once every node has that decision: waits for {}",
            names.join(", ")
        )
    }

    /// That the other nodes refuse this one, which keeps no data, for people. One that keeps data ends then.
    fn refused(&self) -> Option<String> {
        let refusal = self.replicas.refusal().filter(|_| self.kept.is_none())?;
        let life = self.life.as_ref().map(SharedIncarnation::locked);
        let file = life.as_ref().map(|life| life.path());
        Some(refusal.describe(&self.name, self.replicas.life(), file))
    }

    /// Why the node is no working member; empty if it is.
    fn missing_conditions(&self, replicas: &[ReplicaStatus]) -> String {
        let unfit = replicas.iter().find(|r| !r.fit);
        let stopped = || self.replicas.stopped(clock::now());
        let awaits_state = || self.host.awaited_state();
        let why = match (self.refused().or_else(stopped).or_else(awaits_state), unfit) {
            (Some(why), _) => why,
            (None, Some(r)) => waits_for_place(&r.name, &self.replicas.not_met()),
            (None, None) => match self.host.undecided() {
                Some(skips) => self.waits_for_all(&skips),
                None => self.lacks().unwrap_or_default(),
            },
        };
        match self.replicas.differs() {
            Some(differs) if !why.is_empty() => format!("{why}; {differs}"),
            _ => why,
        }
    }

    /// The condition that a working member does not meet, if there is one.
    fn lacks(&self) -> Option<String> {
        let lacks = self.host.recovery.app.lacks().map(Cow::into_owned);
        lacks.or_else(|| {
            let since = self.replicas.log_stuck_since()?;
            Some(log_is_stuck(clock::now().since(since)))
        })
    }

    pub(super) fn status(&self) -> NodeStatus {
        let cluster = self.host.cluster;
        let replica = |group: Gid| {
            let (status, fit) = self.replicas.status(group);
            ReplicaStatus {
                name: cluster.name(self.replicas.pid(group)).to_string(),
                group: group.0,
                leader: status.leader.map(|p| cluster.name(p).to_string()),
                epoch: status.epoch,
                fit,
                follows: status.follows,
                delivered: status.delivered,
                decided: status.decided,
                applied: self.host.recovery.app.applied(group),
                backlog: status.backlog,
                figures: self.host.recovery.app.figures(group),
                overlay: self.replicas.overlay(group),
                catching_up: status.catching_up,
            }
        };
        let replicas: Vec<ReplicaStatus> = cluster.all_groups().iter().map(replica).collect();
        let missing = self.missing_conditions(&replicas);
        let left = catching_up(&replicas).filter(|_| missing.is_empty());
        let counts = self.idler.counts();
        NodeStatus {
            name: self.name.clone(),
            os_pid: std::process::id(),
            ready: missing.is_empty() && left.is_none(),
            catches_up: left.is_some(),
            why: left.unwrap_or(missing),
            replicas,
            view: self.host.view(),
            peers: self.replicas.peers(),
            network: self.replicas.network(),
            answers_dropped: self.host.reply_sink.dropped(),
            rounds: (counts.busy, counts.parks),
            life: Some(self.replicas.life()),
            log: self.replicas.log_status(),
            resources: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replica(catching_up: Option<u64>) -> ReplicaStatus {
        ReplicaStatus { catching_up, ..ReplicaStatus::default() }
    }

    #[test]
    fn a_node_says_how_much_is_left_until_all_its_replicas_have_caught_up() {
        assert_eq!(catching_up(&[replica(None), replica(None)]), None);
        let why = catching_up(&[replica(Some(7)), replica(None), replica(Some(5))]).unwrap();
        assert!(why.ends_with("while it was away: 12 instances are left"), "{why}");
        let why = catching_up(&[replica(None), replica(Some(0))]).unwrap();
        assert!(why.contains("asks the others"), "{why}");
    }

    #[test]
    fn a_log_without_room_is_told_with_its_time() {
        let why = log_is_stuck(Span::millis(12_340));
        assert!(why.contains("no room for 12.3 s"), "{why}");
    }
}

//! Kills of processes, their times, and the effects that clients notice.

use crate::clients::ClientLoad;
use crate::harness::UpCluster;
use crate::recording::Recording;
use amcast::core::Time;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How long the cluster serves between two kills.
const PEACE: Duration = Duration::from_millis(700);

/// How long after a kill a silence, or a call that takes long, is put down to it.
const AFTERMATH: Duration = Duration::from_millis(200);

/// The process to kill.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum KillTarget {
    /// The node that leads most shards; among several the one that was killed least often.
    MostLeaders,
    /// Two nodes at once, chosen in the same way.
    TwoNodes,
}

/// One kill.
#[derive(Clone, Debug)]
pub(crate) struct Kill {
    /// When, on the clock of the recording.
    pub(crate) at: Time,
    /// The nodes.
    pub(crate) nodes: Vec<usize>,
    /// How many shards they led.
    pub(crate) leaders: usize,
    /// When all nodes were full members again.
    pub(crate) healed: Time,
}

impl Kill {
    /// The kill, the longest time in which no client got an answer, and the longest that a call
    /// took, for people.
    pub(crate) fn told(&self, recording: &Recording) -> String {
        let until = Time(self.at.0 + AFTERMATH.as_nanos() as u64);
        let ms = |ns: u64| ns as f64 / 1e6;
        format!(
            "killed {:?} with {} leaders at {:.0} ms; no answer for {:.1} ms; slowest call {:.1} \
             ms; all back after {:.0} ms",
            self.nodes,
            self.leaders,
            ms(self.at.0),
            ms(recording.longest_silence(self.at, until)),
            ms(recording.slowest_call(self.at, until)),
            ms(self.healed.0 - self.at.0)
        )
    }
}

/// How many shards each node leads, as the nodes say.
fn leaders(up: &UpCluster) -> BTreeMap<usize, usize> {
    let mut leads = BTreeMap::new();
    for (rank, node) in up.nodes().iter().enumerate() {
        leads.entry(rank).or_insert(0);
        for replica in node.iter().flat_map(|node| &node.replicas) {
            // A node that follows itself leads.
            if replica.leader.as_ref() == Some(&replica.name) {
                *leads.entry(rank).or_insert(0) += 1;
            }
        }
    }
    leads
}

/// Kills until `lasting` is over, twice at least. Between kills the cluster is whole: more failures at one time
/// than it was built for are another promise. The keys change between kills, so that each
/// kill falls into the life of some keys, and the checker can judge them apart.
pub(crate) fn again_and_again(
    up: &UpCluster,
    load: &ClientLoad,
    target: KillTarget,
    lasting: Duration,
) -> Vec<Kill> {
    let (begun, mut kills) = (Instant::now(), Vec::new());
    let mut killed: BTreeMap<usize, usize> = BTreeMap::new();
    while begun.elapsed() < lasting || kills.len() < 2 {
        std::thread::sleep(PEACE / 2);
        load.next_round();
        std::thread::sleep(PEACE / 2);
        up.wait_until_ready();
        let mut ranks: Vec<(usize, usize)> = leaders(up).into_iter().collect();
        let times = |rank: usize| killed.get(&rank).copied().unwrap_or_default();
        ranks.sort_by_key(|&(rank, leads)| (std::cmp::Reverse(leads), times(rank)));
        ranks.truncate(if target == KillTarget::TwoNodes { 2 } else { 1 });
        let (nodes, leads): (Vec<usize>, Vec<usize>) = ranks.into_iter().unzip();
        let (at, before) = (load.now(), up.kill_all(&nodes));
        for (rank, os_pid) in before {
            *killed.entry(rank).or_insert(0) += 1;
            up.wait_for_return(rank, os_pid);
        }
        kills.push(Kill { at, nodes, leaders: leads.iter().sum(), healed: load.now() });
    }
    std::thread::sleep(PEACE);
    load.wait_for_answers(answers_in(lasting));
    kills
}

/// More calls than these are answered in such a time, or else nothing much happened.
pub(crate) fn answers_in(time: Duration) -> usize {
    200 * time.as_secs() as usize
}

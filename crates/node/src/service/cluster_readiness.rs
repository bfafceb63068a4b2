//! The condition under which a starting cluster serves: all its nodes do, or a majority of them does and the others
//! were given some seconds more.

use super::ClusterWatch;
use crate::cluster_dir::ClusterDir;
use crate::config::node_rank;
use crate::control::NodeStatus;
use crate::supervisor::{NodeProcess, Supervisor};
use amcast_kv::status::ServerStatus;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long a cluster may take until it serves, unless its user says otherwise.
pub const START_PATIENCE: Duration = Duration::from_secs(60);

/// How long the other nodes may take once a majority of them serves.
const GRACE: Duration = Duration::from_secs(5);

/// How often it is looked for nodes that come late.
const LOOK_FOR_LATE_EVERY: Duration = Duration::from_millis(500);

/// When a line names the nodes that the cluster waits for, and how often from then on.
const SAY_AFTER: Duration = Duration::from_secs(5);
const SAY_EVERY: Duration = Duration::from_secs(15);

/// How often a node may be started until the cluster serves for the first time.
const STARTS_MAX: u64 = 3;

/// How often it is looked whether the cluster serves.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// A node that is not ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingNode {
    /// Its name.
    pub name: String,
    /// Why it is not ready, for people: how its last process ended, if that is known.
    pub why: String,
}

impl fmt::Display for MissingNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name, self.why)
    }
}

/// Why a starting cluster does not serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotServing {
    /// These nodes end whenever they are started, and the others are not enough, or the cluster is new.
    CannotStart(Vec<MissingNode>),
    /// It does not serve in time.
    Late {
        /// How long it was waited for.
        patience: Duration,
        /// The reason, for people.
        why: String,
        /// The nodes that are not ready.
        missing: Vec<MissingNode>,
    },
}

impl fmt::Display for NotServing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CannotStart(nodes) => {
                let told = nodes
                    .iter()
                    .map(|MissingNode { name, why }| format!("{name} cannot be started: it {why}"));
                f.write_str(&told.collect::<Vec<_>>().join(", "))
            }
            Self::Late { patience, why, missing } => {
                write!(f, "the cluster does not serve after {patience:?}: {why}")?;
                let begin = if missing.is_empty() { "" } else { "; missing: " };
                write!(f, "{begin}{}", listed(missing))
            }
        }
    }
}

impl std::error::Error for NotServing {}

fn listed(nodes: &[MissingNode]) -> String {
    nodes.iter().map(MissingNode::to_string).collect::<Vec<_>>().join(", ")
}

/// The test whether a starting cluster serves.
pub struct ClusterReadiness<'a> {
    /// The cluster's directory.
    pub dir: &'a ClusterDir,
    /// The reports of its nodes.
    pub watch: &'a ClusterWatch,
    /// Its nodes' processes.
    pub nodes: &'a Supervisor,
    /// Whether a command goes through; the error is for people.
    pub probe: &'a dyn Fn() -> Result<(), String>,
    /// The cluster continues with data on disks. One of them that is damaged must not keep the others
    /// from clients: nobody waits for its node then. A new cluster has nothing that could be
    /// damaged, and an error that keeps its node from starting is reported at once.
    pub goes_on: bool,
    /// How long the cluster may take until it serves.
    pub patience: Duration,
}

impl ClusterReadiness<'_> {
    /// Waits until the cluster serves and the probe went through. The nodes that it serves without, or
    /// nothing if `stop` was set before.
    ///
    /// # Errors
    /// When that takes too long, or nodes end again and again.
    pub fn wait(&self, stop: &AtomicBool) -> Result<Option<LateNodes>, NotServing> {
        let begun = Instant::now();
        let mut say_at = begun + SAY_AFTER;
        // Since when a majority serves.
        let mut serves_since: Option<Instant> = None;
        loop {
            if stop.load(Ordering::Relaxed) {
                return Ok(None);
            }
            let lives = self.nodes.lives();
            let dead = dead(&lives, &self.watch.nodes());
            let failing: Vec<&NodeProcess> =
                dead.iter().copied().filter(|life| life.starts > STARTS_MAX).collect();
            let quorum = self.watch.cluster().quorum();
            let bearable = if self.goes_on { lives.len().saturating_sub(quorum) } else { 0 };
            if failing.len() > bearable {
                return Err(cannot_start(&failing, |rank| self.dir.last_words(rank)));
            }
            let is_late = begun.elapsed() >= self.patience;
            let serves = self.watch.ready();
            serves_since = serves_since.or_else(|| Some(Instant::now())).filter(|_| serves.is_ok());
            let is_patient = serves_since.is_none_or(|since| since.elapsed() < GRACE);
            let is_damaged = self.goes_on && !failing.is_empty();
            // In a new cluster a node that ends again and again is an error, however slowly it does so.
            let may_fail = !self.goes_on && !dead.is_empty() && !is_late;
            let waits_for_all = (is_patient && !is_damaged) || may_fail;
            let ready = if waits_for_all { self.watch.all_ready() } else { serves };
            let Err(why) = ready.and_then(|()| (self.probe)()) else {
                return Ok(Some(self.tell_missing()));
            };
            if is_late {
                let (patience, missing) = (self.patience, self.missing());
                return Err(NotServing::Late { patience, why, missing });
            }
            // While a majority serves, the wait for the others is short.
            if Instant::now() >= say_at && !(is_patient && serves_since.is_some()) {
                say_at += SAY_EVERY;
                self.tell_awaited(&why);
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Says what keeps the cluster from serving for so long: the nodes that are not ready, or else `why`.
    fn tell_awaited(&self, why: &str) {
        let missing = self.missing();
        let what = if missing.is_empty() { why.to_string() } else { listed(&missing) };
        tracing::warn!("the cluster waits, for {:?} in all, for {what}", self.patience);
    }

    /// Says which nodes the cluster serves without.
    fn tell_missing(&self) -> LateNodes {
        let missing = self.missing();
        for MissingNode { name, why } in &missing {
            tracing::warn!(
                "the cluster serves without {name}, and waits for it ({why}): until then fewer other nodes may \
                 fail"
            );
        }
        let names = missing.into_iter().map(|node| node.name).collect();
        LateNodes { names, look_at: Instant::now() + LOOK_FOR_LATE_EVERY }
    }

    fn missing(&self) -> Vec<MissingNode> {
        missing_nodes(self.dir, self.watch, &self.nodes.lives())
    }
}

/// The nodes that are not ready now, and why, where a supervisor knows so much of their `lives`.
pub fn missing_nodes(
    dir: &ClusterDir,
    watch: &ClusterWatch,
    lives: &[NodeProcess],
) -> Vec<MissingNode> {
    let said = watch.ask_now();
    let missing =
        (0..said.len()).filter(|&rank| said[rank].as_ref().is_none_or(|n| !n.is_member()));
    let reason = |rank: usize| {
        let life = lives.get(rank)?;
        let why = why_missing(life, said[rank].as_ref(), || dir.last_words(rank));
        Some(MissingNode { name: life.name.clone(), why })
    };
    missing.filter_map(reason).collect()
}

/// Why a node is not ready.
fn why_missing(
    life: &NodeProcess,
    said: Option<&NodeStatus>,
    last_words: impl FnOnce() -> Option<String>,
) -> String {
    match (&life.last_end, said) {
        (_, Some(node)) => node.why.clone(),
        (Some(end), None) => match last_words() {
            Some(words) => format!("its last process {end}: {words}"),
            None => format!("its last process {end}"),
        },
        (None, None) => "it does not answer".to_string(),
    }
}

/// The nodes that were not ready when the cluster began to serve.
pub struct LateNodes {
    names: Vec<String>,
    look_at: Instant,
}

impl LateNodes {
    /// Says which of them have become ready by now.
    pub fn tell_arrived(&mut self, watch: &ClusterWatch) {
        if self.names.is_empty() || Instant::now() < self.look_at {
            return;
        }
        self.look_at = Instant::now() + LOOK_FOR_LATE_EVERY;
        for name in self.arrived(&watch.nodes()) {
            let still = match &self.names[..] {
                [] => "no other is missing".to_string(),
                names => format!("still missing: {}", names.join(", ")),
            };
            tracing::warn!("{name} serves now, too; {still}");
        }
    }

    /// Takes out those that have become ready, by what the nodes said last.
    fn arrived(&mut self, said: &[Option<NodeStatus>]) -> Vec<String> {
        let is_ready = |name: &String| {
            let said = node_rank(name).and_then(|rank| said.get(rank)?.as_ref());
            said.is_some_and(NodeStatus::is_member)
        };
        self.names.extract_if(.., |name| is_ready(name)).collect()
    }
}

/// The nodes that have ended since they were started first, and are not ready again, by what they `said` last.
fn dead<'a>(lives: &'a [NodeProcess], said: &[Option<NodeStatus>]) -> Vec<&'a NodeProcess> {
    let is_ready = |rank: usize| matches!(said.get(rank), Some(Some(node)) if node.is_member());
    let lives = lives.iter().enumerate();
    let dead = lives.filter(|(rank, life)| life.last_end.is_some() && !is_ready(*rank));
    dead.map(|(_, life)| life).collect()
}

/// That these nodes end whenever they are started, and by their last words why.
fn cannot_start(
    failing: &[&NodeProcess],
    last_words: impl Fn(usize) -> Option<String>,
) -> NotServing {
    let told = |life: &&NodeProcess| {
        let end = life.last_end.clone().unwrap_or_else(|| "does not begin".to_string());
        let why = match node_rank(&life.name).and_then(&last_words) {
            Some(words) => format!("{end}: {words}"),
            None => end,
        };
        MissingNode { name: life.name.clone(), why }
    };
    NotServing::CannotStart(failing.iter().map(told).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_each_node_and_how_its_last_process_ended() {
        let _limit = amcast_test_policy::time_limit();
        let ended = "ended with exit code 1";
        let life = |name: &str, last_end: Option<&str>| NodeProcess {
            name: name.to_string(),
            last_end: last_end.map(str::to_string),
            ..NodeProcess::default()
        };
        let (n0, n1) = (life("n0", Some(ended)), life("n1", None));
        let why = |life: &NodeProcess, said: Option<&NodeStatus>, words: Option<&str>| {
            why_missing(life, said, || words.map(str::to_string))
        };
        assert_eq!(
            why(&n0, None, Some("it is full")),
            format!("its last process {ended}: it is full")
        );
        assert_eq!(why(&n0, None, None), format!("its last process {ended}"));
        assert_eq!(why(&n1, None, None), "it does not answer");
        let status = NodeStatus { why: "it reads its state".to_string(), ..NodeStatus::default() };
        assert_eq!(why(&n0, Some(&status), None), "it reads its state", "it lives again");
        let words = |rank| (rank == 0).then(|| "it is full".to_string());
        let cannot = cannot_start(&[&n0, &n1], words).to_string();
        let expected = "n0 cannot be started: it ended with exit code 1: it is full, n1 cannot be started: it does not begin";
        assert_eq!(cannot, expected);
        let missing = |life: &NodeProcess| MissingNode {
            name: life.name.clone(),
            why: why(life, None, None),
        };
        let late = NotServing::Late {
            patience: Duration::from_secs(7),
            why: "1 of 3 nodes is ready".to_string(),
            missing: vec![missing(&n0), missing(&n1)],
        };
        let expected = "the cluster does not serve after 7s: 1 of 3 nodes is ready; missing: n0 (its last process \
                        ended with exit code 1), n1 (it does not answer)";
        assert_eq!(late.to_string(), expected);
    }

    #[test]
    fn a_late_node_is_said_once_when_it_is_ready() {
        let _limit = amcast_test_policy::time_limit();
        let names = ["n0", "n2"].map(str::to_string).to_vec();
        let mut late = LateNodes { names, look_at: Instant::now() };
        let node = |ready| Some(NodeStatus { ready, ..NodeStatus::default() });
        assert!(late.arrived(&[None, node(true), node(false)]).is_empty());
        assert_eq!(late.arrived(&[None, node(true), node(true)]), ["n2"]);
        assert!(late.arrived(&[None, node(true), node(true)]).is_empty());
        assert_eq!(late.arrived(&[node(true), None, node(true)]), ["n0"]);
        assert!(late.names.is_empty());
    }
}

//! The condition under which a starting cluster serves: all its nodes do, or a majority of them does and the others
//! were given some seconds more.

use amcast::client::Connection;
use amcast_kv::status::ServerStatus;
use amcast_lab::commands::Failure;
use amcast_node::cluster_dir::ClusterDir;
use amcast_node::config::node_rank;
use amcast_node::control::NodeStatus;
use amcast_node::service::ClusterWatch;
use amcast_node::supervisor::{NodeProcess, Supervisor};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long a cluster may take until it serves.
const START_PATIENCE: Duration = Duration::from_secs(60);

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

/// The test whether a starting cluster serves.
pub(super) struct Readiness<'a> {
    pub(super) dir: &'a ClusterDir,
    pub(super) watch: &'a ClusterWatch,
    pub(super) nodes: &'a Supervisor,
    /// The Redis gateway.
    pub(super) door: SocketAddr,
    pub(super) password: Option<&'a str>,
    /// Whether a command may go to several shards.
    pub(super) together: bool,
    /// The cluster continues with data on disks. One of them that is damaged must not keep the others
    /// from clients: nobody waits for its node then. A new cluster has nothing that could be
    /// damaged, and an error that keeps its node from starting is reported at once.
    pub(super) goes_on: bool,
}

impl Readiness<'_> {
    /// Waits until the cluster serves and a write over all shards went through. The nodes that it serves without, or
    /// nothing if `stop` was set before.
    ///
    /// # Errors
    /// When that takes too long, or nodes end again and again.
    pub(super) fn wait(&self, stop: &AtomicBool) -> Result<Option<LateNodes>, Failure> {
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
                return Err(Failure::Failed(cannot_start(&failing)));
            }
            let is_late = begun.elapsed() >= START_PATIENCE;
            let serves = self.watch.ready();
            serves_since = serves_since.or_else(|| Some(Instant::now())).filter(|_| serves.is_ok());
            let is_patient = serves_since.is_none_or(|since| since.elapsed() < GRACE);
            let is_damaged = self.goes_on && !failing.is_empty();
            // In a new cluster a node that ends again and again is an error, however slowly it does so.
            let may_fail = !self.goes_on && !dead.is_empty() && !is_late;
            let waits_for_all = (is_patient && !is_damaged) || may_fail;
            let ready = if waits_for_all { self.watch.all_ready() } else { serves };
            let Err(why) = ready.and_then(|()| self.probe()) else {
                return Ok(Some(self.tell_missing()));
            };
            if is_late {
                let why = format!("the cluster does not serve after {START_PATIENCE:?}: {why}");
                return Err(Failure::Failed(why));
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
        let missing = self.missing().into_iter();
        let missing: Vec<String> = missing.map(|(name, why)| format!("{name} ({why})")).collect();
        let what = if missing.is_empty() { why.to_string() } else { missing.join(", ") };
        tracing::warn!("the cluster waits, for {START_PATIENCE:?} in all, for {what}");
    }

    /// Says which nodes the cluster serves without.
    fn tell_missing(&self) -> LateNodes {
        let missing = self.missing();
        for (name, why) in &missing {
            tracing::warn!(
                "the cluster serves without {name}, and may do without few others until {name} is there, \
                 which is waited for ({why})"
            );
        }
        let names = missing.into_iter().map(|(name, _)| name).collect();
        LateNodes { names, look_at: Instant::now() + LOOK_FOR_LATE_EVERY }
    }

    /// The nodes that are not ready, and why.
    fn missing(&self) -> Vec<(String, String)> {
        let said = self.watch.ask_now();
        let missing = (0..said.len()).filter(|&rank| said[rank].as_ref().is_none_or(|n| !n.ready));
        let lives = self.nodes.lives();
        let reason = |rank: usize| {
            let NodeProcess { name, last_end, .. } = lives.get(rank)?;
            let why = match (last_end, &said[rank]) {
                (_, Some(node)) => node.why.clone(),
                (Some(end), None) => match self.dir.last_words(rank) {
                    Some(words) => format!("its last process {end}: {words}"),
                    None => format!("its last process {end}"),
                },
                (None, None) => "it does not answer".to_string(),
            };
            Some((name.clone(), why))
        };
        missing.filter_map(reason).collect()
    }

    /// A write that leaves nothing behind, over enough keys that every shard takes part.
    fn probe(&self) -> Result<(), String> {
        let keys: Vec<String> = (0..256).map(|i| format!("amcast:probe:{i}")).collect();
        let words: Vec<&[u8]> =
            std::iter::once(&b"DEL"[..]).chain(keys.iter().map(String::as_bytes)).collect();
        let mut connection = Connection::open(&self.door.to_string()).map_err(|e| e.to_string())?;
        connection.log_in(self.password).map_err(|e| e.to_string())?;
        let mut call = |words: &[&[u8]]| match connection.call(words) {
            Ok(answer) if answer.is_error() => Err(answer.to_string()),
            Ok(_) => Ok(()),
            Err(e) => Err(e.to_string()),
        };
        if self.together {
            return call(&words);
        }
        // A shard at a time.
        words[1..].iter().try_for_each(|key| call(&[words[0], key]))
    }
}

/// The nodes that were not ready when the cluster began to serve.
pub(super) struct LateNodes {
    names: Vec<String>,
    look_at: Instant,
}

impl LateNodes {
    /// Says which of them have become ready by now.
    pub(super) fn tell_arrived(&mut self, watch: &ClusterWatch) {
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
            said.is_some_and(|node| node.ready)
        };
        self.names.extract_if(.., |name| is_ready(name)).collect()
    }
}

/// The nodes that have ended since they were started first, and are not ready again, by what they `said` last.
fn dead<'a>(lives: &'a [NodeProcess], said: &[Option<NodeStatus>]) -> Vec<&'a NodeProcess> {
    let is_ready = |rank: usize| matches!(said.get(rank), Some(Some(node)) if node.ready);
    let lives = lives.iter().enumerate();
    let dead = lives.filter(|(rank, life)| life.last_end.is_some() && !is_ready(*rank));
    dead.map(|(_, life)| life).collect()
}

/// That these nodes end whenever they are started.
fn cannot_start(failing: &[&NodeProcess]) -> String {
    let told = |life: &&NodeProcess| {
        let how = life.last_end.as_deref().unwrap_or("does not begin");
        format!("{} cannot be started: it {how}", life.name)
    };
    let told: Vec<String> = failing.iter().map(told).collect();
    format!("{}; see above", told.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

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

//! `amcast overlay`: the tree of the groups of a running cluster, and its change.

use super::not_running::stopped;
use super::terminal_text::harmless_line;
use super::{Failure, cluster_dir, entry};
use amcast_core::{Entry, Overlay};
use amcast_node::cluster_dir::ClusterDir;
use amcast_node::config::{ClusterFile, node_name};
use amcast_node::control::{NodeStatus, statuses_of};
use amcast_node::node_address::NodeAddress;
use amcast_node::overlay_changes::{OverlayAnswer, OverlayStatus, request_overlay};
use amcast_protocols::catalog::CATALOG;
use serde_json::json;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The parameter that has protocols change their tree.
const DYNAMIC: &str = "dynamic_overlay";

/// How often the nodes are asked whether the change is in force.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The same where that takes long.
const LOOK_SELDOM: Duration = Duration::from_millis(200);

/// How long a change may take until another node is asked for it, too: the first may have died with the request. A change
/// that is made twice has the effect of one.
const ASK_AGAIN: Duration = Duration::from_secs(5);

/// Shows the tree of the groups of a running cluster, or changes it while clients continue.
///
/// A message to several shards is ordered first by their lowest common ancestor in this tree. Only a
/// cluster that was started with dynamic_overlay = 1 can change it: amcast up --protocol tram --set
/// dynamic_overlay=1. The change is a message to all shards, ordered among the others; nothing is lost,
/// executed twice or reordered by it. A node that starts again goes by the tree in force. A cluster that
/// starts anew as a whole begins with the tree of its file.
#[derive(clap::Args)]
pub(super) struct OverlayArgs {
    /// The cluster's directory [of the only cluster that runs]
    #[arg(long, global = true, value_name = "DIR")]
    data: Option<PathBuf>,
    /// The cluster's file, instead of its directory
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        visible_alias = "cluster",
        conflicts_with = "data"
    )]
    config: Option<PathBuf>,
    #[command(subcommand)]
    action: OverlayAction,
}

#[derive(clap::Subcommand)]
enum OverlayAction {
    /// Print the tree in force: the parent of each shard, and the number of changes that led to it
    Show {
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Have the shards arranged in another tree, and wait until that is in force
    Set {
        /// The tree: breadth, depth, base, or the parent of each shard and -1 for the root, such as -1,0,0
        #[arg(allow_hyphen_values = true)]
        tree: String,
        /// How long to wait at the most
        #[arg(long, value_name = "SECONDS", default_value_t = 30)]
        wait: u64,
    },
}

pub(super) fn run(args: &OverlayArgs) -> Result<(), Failure> {
    let (dir, file) = match &args.config {
        Some(path) => {
            let file = ClusterFile::read_once(path).map_err(Failure::misuse)?;
            (ClusterDir::of_host(&file, path), file)
        }
        None => {
            let dir = cluster_dir(args.data.as_deref())?;
            let file = dir.file()?;
            (dir, file)
        }
    };
    let entry = entry(&file.protocol)?;
    let cluster = RunningCluster { nodes: dir.nodes(&file), dir, file, entry };
    match &args.action {
        OverlayAction::Show { json } => cluster.show(*json),
        OverlayAction::Set { tree, wait } => cluster.set(tree, Duration::from_secs(*wait)),
    }
}

/// A cluster whose nodes are asked.
struct RunningCluster {
    dir: ClusterDir,
    file: ClusterFile,
    entry: &'static dyn Entry,
    nodes: Vec<NodeAddress>,
}

impl RunningCluster {
    /// Refuses a cluster whose tree stays, and says how one is started that can change it.
    fn require_dynamic(&self) -> Result<(), Failure> {
        let config = self.file.check(self.entry).map_err(Failure::misuse)?;
        if self.entry.has_dynamic_overlay(&config) {
            return Ok(());
        }
        let able = |entry: &dyn Entry| entry.about().params.iter().any(|p| p.name == DYNAMIC);
        let name = self.entry.name();
        Err(Failure::Misuse(match able(self.entry) {
            true => format!(
                "the tree of this cluster stays as it is: {DYNAMIC} is not 1. Start it with --set {DYNAMIC}=1, or \
                 with {DYNAMIC} = 1 under [set] in the files of all its nodes"
            ),
            false => {
                let able = CATALOG.iter().copied().filter(|entry| able(*entry));
                let able: Vec<_> = able.map(Entry::name).collect();
                format!(
                    "{name} has no tree of groups that can be changed; start a cluster with --protocol {} --set \
                     {DYNAMIC}=1",
                    able.join(" or ")
                )
            }
        }))
    }

    /// Asks all nodes.
    fn ask(&self) -> Result<TreesSeen, Failure> {
        let said = statuses_of(&self.nodes);
        if said.iter().all(Option::is_none) {
            return Err(stopped(&self.dir, &self.file));
        }
        Ok(TreesSeen::of(&said, self.file.shards, self.file.replicas))
    }

    fn show(&self, as_json: bool) -> Result<(), Failure> {
        self.require_dynamic()?;
        let seen = self.ask()?;
        if as_json {
            println!("{}", seen.json());
            return Ok(());
        }
        match seen.in_force() {
            Ok(tree) => println!("{}", harmless_line(&told(&tree))),
            Err(why) => println!("{}", harmless_line(&why)),
        }
        Ok(())
    }

    /// The tree of that text, in the language of the cluster's file.
    fn parse(&self, tree: &str) -> Result<Overlay, Failure> {
        let wanted = ClusterFile { overlay: tree.to_string(), ..self.file.clone() };
        let config = wanted.check(self.entry).map_err(|e| {
            Failure::Misuse(format!(
                "{e}; give the parent of each of the {} shards, -1 for the root, such as {}, or breadth, depth or base",
                self.file.shards,
                Overlay::breadth(self.file.shards)
            ))
        })?;
        Ok(config.overlay().clone())
    }

    fn set(&self, tree: &str, patience: Duration) -> Result<(), Failure> {
        self.require_dynamic()?;
        let wanted = self.parse(tree)?;
        let parents = wanted.to_string();
        let begun = Instant::now();
        let before = self.settled(begun, patience)?;
        if before.parents == parents {
            println!("{}\nit was in force already", told(&before));
            return Ok(());
        }
        let (mut ask_at, mut asked) = (begun, None);
        loop {
            let seen = self.ask()?;
            match seen.in_force() {
                Ok(tree) if tree.parents == parents => {
                    println!("{}\nin force after {} ms", told(&tree), begun.elapsed().as_millis());
                    self.remind(&wanted);
                    return Ok(());
                }
                Ok(tree) if tree.number > before.number => {
                    return Err(Failure::Failed(overtaken(&parents, &tree)));
                }
                _ if begun.elapsed() >= patience => {
                    return Err(Failure::Failed(late(&parents, &seen, patience)));
                }
                _ => {}
            }
            if Instant::now() >= ask_at && seen.latest() == before.number {
                asked = self.request((before.number, &wanted), asked)?;
                ask_at = Instant::now() + if asked.is_some() { ASK_AGAIN } else { LOOK_SELDOM };
            }
            std::thread::sleep(if begun.elapsed() < ASK_AGAIN { LOOK_EVERY } else { LOOK_SELDOM });
        }
    }

    /// The tree in force, once all shards have a majority that works and no change is under way: one that is asked for
    /// before would hold back the commands of all who multicast through the same gateway.
    fn settled(&self, begun: Instant, patience: Duration) -> Result<OverlayStatus, Failure> {
        loop {
            match self.ask()?.in_force() {
                Ok(tree) => return Ok(tree),
                Err(why) if begun.elapsed() >= patience => {
                    return Err(Failure::Failed(format!(
                        "the tree is not changed: {}",
                        harmless_line(&why)
                    )));
                }
                Err(_) => std::thread::sleep(LOOK_SELDOM),
            }
        }
    }

    /// Has a node ask for the tree behind the one of this number: the first that can, behind the one that was asked before. The
    /// rank of the latest that asks; none if each may do so later.
    fn request(
        &self,
        (behind, wanted): (u32, &Overlay),
        asked: Option<usize>,
    ) -> Result<Option<usize>, Failure> {
        let (mut refusals, mut may_pass) = (Vec::new(), false);
        let from = asked.map_or(0, |rank| rank + 1);
        for rank in (from..from + self.nodes.len()).map(|rank| rank % self.nodes.len()) {
            let why = match request_overlay(&self.nodes[rank], behind, wanted) {
                Ok(OverlayAnswer::Asked) => return Ok(Some(rank)),
                Ok(OverlayAnswer::Later(why)) => {
                    may_pass = true;
                    why
                }
                Ok(OverlayAnswer::Refused(why)) => why,
                Err(e) => format!("does not answer: {e}"),
            };
            refusals.push(format!("{}: {why}", node_name(rank)));
        }
        if asked.is_some() || may_pass {
            // The first request may still be on its way.
            return Ok(asked);
        }
        Err(Failure::Failed(format!(
            "no node can ask for the change; a node that serves clients can:\n{}",
            refusals.iter().map(|why| harmless_line(why)).collect::<Vec<_>>().join("\n")
        )))
    }

    /// Says so where the cluster's file has another tree than the one that is in force now.
    fn remind(&self, wanted: &Overlay) {
        let of_file = self.parse(&self.file.overlay);
        if of_file.is_ok_and(|tree| tree != *wanted) {
            println!(
                "its file still has overlay = \"{}\": leave that while any node runs, and change it before the \
                 whole cluster is started anew, if it is to begin with the new tree",
                self.file.overlay
            );
        }
    }
}

/// The error of a change that another one overtook.
fn overtaken(parents: &str, now: &OverlayStatus) -> String {
    format!(
        "another change was made: in force is {}, and {parents} is not asked for any more",
        harmless_line(&told(now))
    )
}

/// The error of a change that is not in force in time.
fn late(parents: &str, seen: &TreesSeen, patience: Duration) -> String {
    let now = match seen.in_force() {
        Ok(tree) => format!("in force is {}", told(&tree)),
        Err(why) => why,
    };
    format!(
        "the tree {parents} is not in force after {} s: {}. It may still come into force: `amcast overlay show` tells when it is",
        patience.as_secs(),
        harmless_line(&now)
    )
}

/// A tree for people.
fn told(OverlayStatus { number, parents }: &OverlayStatus) -> String {
    match number {
        0 => format!("{parents} (the tree that the cluster began with)"),
        1 => format!("{parents} (after 1 change)"),
        n => format!("{parents} (after {n} changes)"),
    }
}

/// The trees that replicas go by, as the nodes that answer say.
struct TreesSeen {
    /// By group: the name of each replica that works, and its tree.
    groups: Vec<Vec<(String, OverlayStatus)>>,
    /// Replicas of a group.
    of: usize,
}

impl TreesSeen {
    fn of(said: &[Option<NodeStatus>], shards: usize, of: usize) -> Self {
        let replicas = |g: usize| {
            let all = said.iter().flatten().filter_map(move |node| node.replicas.get(g));
            let works = all.filter(|replica| replica.fit && replica.follows);
            works.filter_map(|r| Some((r.name.clone(), r.overlay.clone()?))).collect()
        };
        Self { groups: (0..shards).map(replicas).collect(), of }
    }

    /// The number of the latest tree that any of them goes by.
    fn latest(&self) -> u32 {
        self.groups.iter().flatten().map(|(_, tree)| tree.number).max().unwrap_or(0)
    }

    /// The tree that all replicas go by which answer and work, a majority of each group; or why none is that.
    fn in_force(&self) -> Result<OverlayStatus, String> {
        let few = |replicas: &&Vec<_>| replicas.len() < self.of / 2 + 1;
        if let Some(g) = self.groups.iter().position(|replicas| few(&replicas)) {
            let answer = self.groups[g].len();
            return Err(format!("of {} replicas of g{g} {answer} answer and have a tree", self.of));
        }
        let mut all = self.groups.iter().flatten();
        let (_, first) = all.next().ok_or("there are no groups")?;
        match all.find(|(_, tree)| tree != first) {
            None => Ok(first.clone()),
            Some((name, other)) => {
                let one = &self.groups[0][0].0;
                Err(format!("{one} has {}, and {name} still has {}", told(first), told(other)))
            }
        }
    }

    fn json(&self) -> serde_json::Value {
        let replica = |(name, tree): &(String, OverlayStatus)| json!({ "name": name, "number": tree.number, "parents": tree.parents });
        let group = |(g, replicas): (usize, &Vec<_>)| {
            let replicas: Vec<_> = replicas.iter().map(replica).collect();
            json!({ "group": format!("g{g}"), "replicas": replicas })
        };
        let groups: Vec<_> = self.groups.iter().enumerate().map(group).collect();
        match self.in_force() {
            Ok(tree) => {
                json!({ "number": tree.number, "parents": tree.parents, "groups": groups })
            }
            Err(why) => json!({ "number": null, "parents": null, "why": why, "groups": groups }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(groups: &[&[(u32, &str)]], of: usize) -> TreesSeen {
        let replica = |(g, r): (usize, usize), &(number, parents): &(u32, &str)| {
            (format!("g{g}/r{r}"), OverlayStatus { number, parents: parents.to_string() })
        };
        let group = |(g, trees): (usize, &&[(u32, &str)])| {
            trees.iter().enumerate().map(|(r, tree)| replica((g, r), tree)).collect()
        };
        TreesSeen { groups: groups.iter().enumerate().map(group).collect(), of }
    }

    #[test]
    fn a_tree_is_in_force_once_all_that_work_have_it_and_they_are_majorities() {
        let (old, new) = ((0, "-1,0"), (1, "1,-1"));
        let all = seen(&[&[new, new, new], &[new, new]], 3);
        assert_eq!(all.in_force().unwrap().parents, "1,-1");
        assert_eq!(all.json()["number"], 1);
        let mixed = seen(&[&[new, new], &[new, old, new]], 3).in_force().unwrap_err();
        assert!(mixed.contains("g1/r1 still has -1,0"), "{mixed}");
        let few = seen(&[&[new, new], &[new]], 3);
        assert!(few.in_force().unwrap_err().contains("g1 1 answer"));
        assert!(few.json()["why"].is_string());
    }

    #[test]
    fn a_change_that_takes_too_long_says_which_tree_is_in_force() {
        let (old, other) = ((0, "-1,0"), (2, "1,-1"));
        let of = |groups: &[&[(u32, &str)]]| late("-1,0", &seen(groups, 1), Duration::from_secs(3));
        let overtaken = of(&[&[other], &[other]]);
        assert!(overtaken.contains("1,-1 (after 2 changes)"), "{overtaken}");
        assert!(of(&[&[other], &[old]]).contains("g1/r0 still has"));
    }
}

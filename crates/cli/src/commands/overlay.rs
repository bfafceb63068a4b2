//! `amcast overlay`: the tree of the groups of a running cluster, and its change.

mod change;
mod trees_seen;

use super::not_running::stopped;
use super::terminal_text::harmless_line;
use super::{Failure, cluster_dir, entry};
use amcast_core::{Entry, Overlay};
use amcast_node::cluster_dir::ClusterDir;
use amcast_node::config::ClusterFile;
use amcast_node::control::statuses_of;
use amcast_node::node_address::NodeAddress;
use amcast_node::overlay_changes::{OverlayAnswer, request_overlay};
use amcast_protocols::catalog::CATALOG;
use change::{AskedNodes, OverlayChange, WantedTree};
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use trees_seen::{TreesSeen, describe_tree};

/// The parameter that has protocols change their tree.
const DYNAMIC: &str = "dynamic_overlay";

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
            Ok(tree) => println!("{}", harmless_line(&describe_tree(&tree))),
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
        let nodes = RunningNodes { cluster: self, begun: Instant::now() };
        match (OverlayChange { nodes: &nodes, wanted: &wanted, patience }).carry_out()? {
            WantedTree::Already(tree) => {
                println!("{}\nit was in force already", describe_tree(&tree))
            }
            WantedTree::After(tree, time) => {
                println!("{}\nin force after {} ms", describe_tree(&tree), time.as_millis());
                self.remind(&wanted);
            }
        }
        Ok(())
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

/// The nodes of a cluster, and when the command began.
struct RunningNodes<'a> {
    cluster: &'a RunningCluster,
    begun: Instant,
}

impl AskedNodes for RunningNodes<'_> {
    fn count(&self) -> usize {
        self.cluster.nodes.len()
    }

    fn trees(&self) -> Result<TreesSeen, Failure> {
        self.cluster.ask()
    }

    fn request(&self, rank: usize, behind: u32, wanted: &Overlay) -> io::Result<OverlayAnswer> {
        request_overlay(&self.cluster.nodes[rank], behind, wanted)
    }

    fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    fn pause(&self, time: Duration) {
        std::thread::sleep(time);
    }
}

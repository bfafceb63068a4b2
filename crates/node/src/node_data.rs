//! The data of nodes of this host, locked while none of them runs, for commands that change them.

use crate::cluster_dir::{ClusterDir, life_name};
use crate::config::{ClusterFile, node_name, node_rank};
use crate::incarnation::ProcessName;
use crate::system::refuses_file;
use std::fs;
use std::path::{Path, PathBuf};

/// The data of a node. The node does not start while this is held.
#[derive(Debug)]
pub struct NodeData {
    /// The node's name.
    pub name: String,
    /// The directory.
    pub path: PathBuf,
    _name: Option<ProcessName>,
}

impl NodeData {
    /// The data of the node whose directory this is, such as `n0.data`; or those of each node in
    /// the directory of a cluster, in order.
    ///
    /// # Errors
    /// When it is neither, or one of them runs; the sentence says what to do.
    pub fn hold(path: &Path) -> Result<Vec<Self>, String> {
        // By its own name, also where it was given as `.` or with a slash behind it.
        let path = &path.canonicalize().map_err(|e| refuses_file(path, &e))?;
        if rank_of(path).is_some() {
            return Ok(vec![Self::of(path)?]);
        }
        let entries = fs::read_dir(path).map_err(|e| refuses_file(path, &e))?;
        let mut ranks: Vec<usize> =
            entries.flatten().filter_map(|entry| rank_of(&entry.path())).collect();
        if ranks.is_empty() {
            return Err(format!(
                "{}: holds nothing that a node keeps; give the directory of a cluster, or of a node in it, such \
                 as n0.data",
                path.display()
            ));
        }
        ranks.sort_unstable();
        ranks.into_iter().map(|rank| Self::of(&path.join(data_name(rank)))).collect()
    }

    fn of(path: &Path) -> Result<Self, String> {
        let rank = rank_of(path).ok_or_else(|| format!("{}: is no node's", path.display()))?;
        let (name, dir) = (node_name(rank), path.parent().unwrap_or(path));
        let in_use = |who: &str| format!("{}: {who} runs; end it first", dir.display());
        let of_dir = ClusterDir::of_file(&dir.join("cluster.toml"));
        of_dir.check_files(Some(rank)).map_err(|e| e.to_string())?;
        if of_dir.is_supervised() {
            return Err(in_use("the cluster"));
        }
        let life = dir.join(life_name(rank));
        let held = match life.exists() {
            // It would be taken for one that was emptied.
            false => None,
            true => {
                let taken = ProcessName::take(&life).map_err(|e| refuses_file(&life, &e))?;
                Some(taken.ok_or_else(|| in_use(&name))?)
            }
        };
        Ok(Self { name, path: path.to_path_buf(), _name: held })
    }

    /// How many nodes its cluster has, as the file beside it says.
    pub fn cluster_nodes(&self) -> Option<usize> {
        let file = self.path.parent()?.join("cluster.toml");
        Some(ClusterFile::read(&file).ok()?.replicas)
    }

    /// Where its checkpoints are.
    pub fn checkpoints(&self) -> PathBuf {
        self.path.join("state")
    }
}

fn data_name(rank: usize) -> String {
    format!("{}.data", node_name(rank))
}

fn rank_of(path: &Path) -> Option<usize> {
    let rank = node_rank(path.file_name()?.to_str()?.strip_suffix(".data")?)?;
    (path.is_dir() && path.ends_with(data_name(rank))).then_some(rank)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_held_one_or_all_and_not_while_they_run() {
        let _limit = amcast_test_policy::time_limit();
        let dir = std::env::temp_dir().join(format!("amcast-node-data-{}", std::process::id()));
        for name in ["n0.data", "n2.data", "n1.before", "nx.data"] {
            fs::create_dir_all(dir.join(name)).unwrap();
        }
        let dir = dir.canonicalize().unwrap();
        let names = |held: Vec<NodeData>| -> Vec<String> {
            held.into_iter().map(|node| node.name).collect()
        };
        assert_eq!(names(NodeData::hold(&dir).unwrap()), ["n0", "n2"]);
        assert!(!dir.join("n0.life").exists(), "nothing is made");
        let one = NodeData::hold(&dir.join("n2.data/.")).unwrap();
        assert_eq!(one[0].checkpoints(), dir.join("n2.data/state"));
        let life = ProcessName::take(&dir.join("n2.life")).unwrap().unwrap().begin(0).unwrap();
        let why = NodeData::hold(&dir).unwrap_err();
        assert!(why.ends_with("n2 runs; end it first"), "{why}");
        drop(life);
        let held = NodeData::hold(&dir).unwrap();
        assert!(
            ProcessName::take(&dir.join("n2.life")).unwrap().is_none(),
            "it cannot start meanwhile"
        );
        drop(held);
        let why = NodeData::hold(&dir.join("n1.before")).unwrap_err();
        assert!(why.contains("holds nothing that a node keeps"), "{why}");
        fs::remove_dir_all(&dir).unwrap();
    }
}

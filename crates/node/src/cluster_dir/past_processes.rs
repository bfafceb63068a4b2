//! Past processes of a cluster directory, from the files that they left there.

use super::CLUSTER_STARTS;
use super::supervised::{LAST_PORTS, LOCK_WORDS};
use super::{ClusterDir, life_name};
use crate::config::node_name;
use crate::incarnation::IncarnationLock;
use amcast_core::limits::REPLICAS_MAX;
use std::fs;
use std::path::Path;

/// The past processes of a cluster directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PastProcesses {
    /// A supervisor with all nodes of its cluster.
    Supervised,
    /// Nodes that were started one by one: their ranks.
    Nodes(Vec<usize>),
    /// Nobody yet.
    None,
}

impl PastProcesses {
    /// Those of the directory `path`.
    pub(super) fn of(path: &Path) -> Self {
        let lock = fs::read(path.join("lock")).unwrap_or_default();
        // A lock looks like something that was left over, and may have been removed.
        if lock.starts_with(LOCK_WORDS.as_bytes()) || path.join(LAST_PORTS).exists() {
            return Self::Supervised;
        }
        let dir = ClusterDir { path: path.to_path_buf() };
        // A log alone is what is left of a cluster that failed to start.
        let left = |rank: usize| [path.join(life_name(rank)), dir.data(rank), dir.socket(rank)];
        let lived = |rank: &usize| left(*rank).iter().any(|left| left.exists());
        let nodes: Vec<usize> = (0..REPLICAS_MAX).filter(lived).collect();
        if nodes.is_empty() { Self::None } else { Self::Nodes(nodes) }
    }
}

/// How nodes of these ranks are started again that nobody supervises.
pub fn how_to_start(ranks: &[usize]) -> String {
    let names: Vec<_> = ranks.iter().map(|rank| node_name(*rank)).collect();
    format!(
        "start {} with `amcast node --config FILE --name {}`, or its unit, where FILE is the cluster's \
         file of this host",
        names.join(" and "),
        names.first().map_or("..", String::as_str)
    )
}

impl ClusterDir {
    /// The processes that have run here.
    pub fn past_processes(&self) -> PastProcesses {
        PastProcesses::of(&self.path)
    }

    /// Whether a node that counts its lives here lives; none if none does.
    pub fn is_lived(&self, rank: usize) -> Option<bool> {
        let life = self.path.join(life_name(rank));
        life.exists().then(|| IncarnationLock::is_lived(&life))
    }

    /// The last words of a node, if it ended by itself and its log has no line of a later start.
    pub fn parting_words(&self, rank: usize) -> Option<String> {
        let tail = self.end_of_log(rank)?;
        let begins = format!("amcast {}: ", node_name(rank));
        let words = |line: &'_ str| line.strip_prefix(&begins).map(str::to_string);
        // Further lines at an end, as the place of a panic, do not begin with a time.
        let of_end =
            tail.lines().rev().take_while(|line| !has_time(line) && *line != CLUSTER_STARTS);
        of_end.filter_map(words).next()
    }
}

/// Whether a line of a log begins with its time, as those of a working node do.
fn has_time(line: &str) -> bool {
    let bytes = line.as_bytes();
    bytes.first().is_some_and(u8::is_ascii_digit)
        && (bytes.get(4), bytes.get(10)) == (Some(&b'-'), Some(&b'T'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_run_is_known_by_what_is_there_and_why_a_node_ended_by_the_last_that_it_said() {
        let path = std::env::temp_dir().join(format!("amcast-inhabited-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        let dir = ClusterDir { path: path.clone() };
        fs::write(path.join("cluster.toml"), "").unwrap();
        fs::write(path.join("n1.log"), "").unwrap();
        assert_eq!(dir.past_processes(), PastProcesses::None);
        fs::create_dir(path.join("n2.data")).unwrap();
        fs::write(path.join("n0.life"), "1\n").unwrap();
        fs::write(path.join("n4.sock"), "").unwrap();
        assert_eq!(dir.past_processes(), PastProcesses::Nodes(vec![0, 2, 4]));
        // A lock that somebody emptied or removed says nothing, and only supervisors note their ports.
        fs::write(path.join("lock"), "").unwrap();
        assert_eq!(dir.past_processes(), PastProcesses::Nodes(vec![0, 2, 4]));
        fs::write(path.join("lock"), LOCK_WORDS).unwrap();
        assert_eq!(dir.past_processes(), PastProcesses::Supervised);
        fs::remove_file(path.join("lock")).unwrap();
        fs::write(path.join(LAST_PORTS), "{}").unwrap();
        assert_eq!(dir.past_processes(), PastProcesses::Supervised);

        let works = "2026-11-22T16:41:16.900788Z  INFO works\n";
        let said = |log: String| {
            fs::write(path.join("n0.log"), log).unwrap();
            dir.parting_words(0)
        };
        let ends = "amcast n0: it is a copy\n   0: a line of a trace\n";
        assert_eq!(said(format!("{works}{ends}")).as_deref(), Some("it is a copy"));
        assert_eq!(said(format!("{ends}{works}")), None, "it was started since");
        assert_eq!((said(String::new()), dir.parting_words(1)), (None, None));
        fs::remove_dir_all(&path).unwrap();
    }
}

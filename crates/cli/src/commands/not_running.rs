//! Why nobody answers in the directory of a cluster, and how it is started again.

use amcast_lab::commands::Failure;
use amcast_node::cluster_dir::{ClusterDir, PastProcesses, how_to_start};
use amcast_node::config::{ClusterFile, node_name};

/// The error where no process of the cluster answers.
pub(super) fn stopped(dir: &ClusterDir, file: &ClusterFile) -> Failure {
    let at = dir.path().display();
    let mut told = match dir.past_processes() {
        _ if dir.is_supervised() => format!("{at}: no node answers yet; its supervisor runs"),
        PastProcesses::Supervised if file.durable => {
            format!(
                "{at}: its cluster does not run; `amcast up --data {at}` continues with its data"
            )
        }
        PastProcesses::Supervised => format!(
            "{at}: its cluster was killed, or just stops; `amcast up --data {at}` starts a new one there"
        ),
        PastProcesses::Nodes(ranks) => {
            let how = how_to_start(&ranks);
            format!("{at}: its cluster does not run, or cannot be reached from here: {how}")
        }
        PastProcesses::None => match file.data.as_ref().filter(|data| data.is_dir()) {
            Some(data) => format!(
                "{at}: holds a cluster's file, whose nodes are in another directory: give --data {}",
                data.display()
            ),
            None => {
                format!("{at}: holds a cluster's file, and no cluster or node has run there yet")
            }
        },
    };
    for rank in 0..file.replicas {
        if let Some(words) = dir.parting_words(rank) {
            told += &format!("\n{} ended: {words}", node_name(rank));
        }
    }
    Failure::Failed(told)
}

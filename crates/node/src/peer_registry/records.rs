//! The file in which a node has its records of its peers, and who writes it.

use crate::cluster_dir::write_synced;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

/// A node's records of its peers, by their names.
pub(super) type PeerRecords = BTreeMap<String, PeerRecord>;

/// A node's record of another one, as it is written to the file.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct PeerRecord {
    pub(super) life: Option<u32>,
    /// Not in what versions before 5 of what travels wrote.
    #[serde(default)]
    pub(super) start: u64,
    pub(super) disk: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) replaced: Vec<u64>,
    /// An earlier life or disk of it was refused since it was met last.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) refused: bool,
}

impl PeerRecord {
    /// Whether it is of a node that was never met.
    pub(super) fn is_empty(&self) -> bool {
        let Self { life, start, disk, replaced, refused: _ } = self;
        life.is_none() && *start == 0 && *disk == 0 && replaced.is_empty()
    }
}

/// The error where a node's records cannot be read.
fn unreadable(why: impl Display) -> io::Error {
    io::Error::other(format!(
        "{why}. It says which disks and copies of the other nodes are outdated. If none of them ever \
         had another disk or was brought back from a copy, remove this file; else remove all files of this \
         node, and none of another one, for it to begin anew"
    ))
}

/// The records in the file at `path`, by the nodes' names.
pub(super) fn lines(path: &Path) -> io::Result<PeerRecords> {
    match fs::read_to_string(path) {
        Ok(text) => serde_json::from_str(&text).map_err(unreadable),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(BTreeMap::new()),
        // It is no text.
        Err(e) if e.kind() == io::ErrorKind::InvalidData => Err(unreadable(e)),
        Err(e) => Err(e),
    }
}

pub(super) fn write_lines(path: &Path, lines: &PeerRecords) -> io::Result<()> {
    write_synced(path, serde_json::to_string(lines)?.as_bytes())
}

/// Writes the records in a thread of its own: the node's loop must not wait for two syncs, least of all when a peer is
/// restarted, which all nodes meet at one moment.
#[derive(Debug, Default)]
pub(super) struct BackgroundWriter(Option<(Arc<PendingRecords>, JoinHandle<()>)>);

/// The records that are to be written.
#[derive(Debug, Default)]
struct PendingRecords {
    /// The last ones that were given and are not being written yet, and whether none will follow.
    last: Mutex<(Option<PeerRecords>, bool)>,
    changed: Condvar,
}

impl PendingRecords {
    fn change(&self, change: impl FnOnce(&mut (Option<PeerRecords>, bool))) {
        change(&mut self.last.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_one();
    }

    /// Waits for the next ones; none if none will follow.
    fn next(&self) -> Option<PeerRecords> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let waits = |(next, is_over): &mut (Option<PeerRecords>, bool)| next.is_none() && !*is_over;
        let last = self.changed.wait_while(last, waits);
        last.unwrap_or_else(PoisonError::into_inner).0.take()
    }
}

impl BackgroundWriter {
    /// Has the records written to the file at `path`, which is always the same, unless later ones are given before that
    /// begins. A failure is in the log.
    pub(super) fn write(&mut self, path: &Path, records: PeerRecords) {
        if self.0.is_none() {
            self.0 = Self::start(path).map_err(|e| tracing::warn!("no thread writes: {e}")).ok();
        }
        match &self.0 {
            Some((pending, _)) => pending.change(|last| last.0 = Some(records)),
            None => write_or_warn(path, &records),
        }
    }

    fn start(path: &Path) -> io::Result<(Arc<PendingRecords>, JoinHandle<()>)> {
        let pending = Arc::<PendingRecords>::default();
        let (path, from) = (path.to_path_buf(), Arc::clone(&pending));
        let writes = move || {
            while let Some(records) = from.next() {
                write_or_warn(&path, &records);
            }
        };
        Ok((pending, thread::Builder::new().name("peers".to_string()).spawn(writes)?))
    }

    /// Returns once all that was given is written, or could not be.
    pub(super) fn wait(&mut self) {
        if let Some((pending, thread)) = self.0.take() {
            pending.change(|last| last.1 = true);
            let _ = thread.join();
        }
    }
}

impl Drop for BackgroundWriter {
    fn drop(&mut self) {
        // The next start of the node reads them.
        self.wait();
    }
}

fn write_or_warn(path: &Path, records: &PeerRecords) {
    if let Err(e) = write_lines(path, records) {
        let path = path.display();
        tracing::warn!(
            "{path}: which lives were met last, and who was refused, is not on disk: {e}"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::PeerRegistry;
    use super::lines;
    use crate::system::open_at_once;
    use amcast_core::Pid;
    use amcast_net::wire::ConnectionRefusal;
    use amcast_net::{NetDiagnostic, PeerIdentity};
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    use std::fs;

    #[test]
    fn a_later_life_of_a_known_disk_is_met_without_waiting_for_this_nodes_disk() {
        let _limit = amcast_test_policy::time_limit();
        let dir = std::env::temp_dir().join(format!("amcast-met-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let open = || PeerRegistry::open((&dir, "a word"), (1, 3)).unwrap();
        let met = |life, disk| PeerIdentity { life: Some(life), start: 9, disk, replaced: vec![] };
        let mut peer_registry = open();
        assert!(peer_registry.meets(2, &met(4, 8)));
        assert_eq!(open().known[2], met(4, 8), "a disk is on the disk when this returns");
        // A disk that hangs: to open it for writing takes until somebody reads it.
        let hangs = dir.join("n1.peers.new");
        mknodat(CWD, &hangs, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        assert!(peer_registry.meets(2, &met(5, 8)));
        let (address, pid) = (([127, 0, 0, 1], 7400).into(), Some(Pid(0)));
        let refused = NetDiagnostic::Refused { address, pid, why: ConnectionRefusal::Old };
        peer_registry.hear(refused);
        assert!(peer_registry.meets(2, &met(6, 8)));
        assert_eq!(lines(&dir.join("n1.peers")).unwrap()["n2"].life, Some(4));
        // It works again.
        let works = dir.join("works");
        fs::rename(&hangs, &works).unwrap();
        let _reader = open_at_once(&works).unwrap();
        assert!(peer_registry.meets(2, &met(1, 9)));
        assert_eq!((open().known[2].clone(), open().refused_since_met.len()), (met(1, 9), 1));
        // The last life is there when the node has ended.
        assert!(peer_registry.meets(2, &met(2, 9)));
        drop(peer_registry);
        assert_eq!(open().known[2], met(2, 9));
        fs::remove_dir_all(&dir).unwrap();
    }
}

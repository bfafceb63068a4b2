//! How far the logs of a node were synced when a checkpoint of its state came to be durable: kept beside the
//! state, apart from the logs.
//!
//! A log's own directory records how far the log was synced. That does not show that the directory
//! as a whole is an older one: restored from a copy, or by a file system that lost the last writes.
//! A checkpoint that reaches beyond the end of a log shows it.
//!
//! The record here is true whenever it reaches the disk, since the log's records were synced
//! before. So it is not synced, and the loop that writes it does not wait.

use crate::cluster_dir::write_private;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// How far one log was synced.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LogEnd {
    /// The id of the log.
    log: String,
    /// The records before this number were synced.
    pub synced: u64,
}

impl LogEnd {
    /// Of the log with this id.
    pub(crate) fn new(log: impl ToString, synced: u64) -> Self {
        Self { log: log.to_string(), synced }
    }

    /// The record of the log in the directory `path`, from the file beside it; none if there is
    /// none.
    pub fn beside(path: &Path) -> Option<Self> {
        let (data, name) = (path.parent()?, path.file_name()?.to_str()?);
        LogEnds::read(data).0.remove(name)
    }

    /// Whether the log with this id is missing synced records, if it ends before record `next`.
    pub fn is_beyond(&self, log: impl ToString, next: u64) -> bool {
        // A log that was made anew since has numbers of its own.
        self.log == log.to_string() && next < self.synced
    }
}

/// How far the logs of a node were synced, by the names of their directories.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub(crate) struct LogEnds(pub(crate) BTreeMap<String, LogEnd>);

impl LogEnds {
    fn path(data: &Path) -> PathBuf {
        data.join("state.logs")
    }

    /// The records in the node's directory `data`. An unreadable file counts as none: a machine
    /// that failed may leave half of it.
    pub(crate) fn read(data: &Path) -> Self {
        let text = fs::read(Self::path(data)).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }

    /// Writes it there.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn write(&self, data: &Path) -> io::Result<()> {
        let (path, new) = (Self::path(data), data.join("state.logs.new"));
        write_private(&new, &serde_json::to_vec(self)?)?;
        fs::rename(new, path)
    }

    /// Removes it: its records of logs were reported, and are kept where they outlast this
    /// incarnation.
    pub(crate) fn forget(data: &Path) {
        match fs::remove_file(Self::path(data)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                tracing::warn!("{}: {e}", Self::path(data).display());
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_and_half_of_it_says_nothing() {
        let data = std::env::temp_dir().join(format!("amcast-log-ends-{}", std::process::id()));
        fs::create_dir_all(&data).unwrap();
        assert_eq!(LogEnds::read(&data), LogEnds::default());
        let end = LogEnd::new("a log", 7);
        let ends = LogEnds(BTreeMap::from([("g1".to_string(), end.clone())]));
        ends.write(&data).unwrap();
        assert_eq!(LogEnds::read(&data), ends);
        assert_eq!(LogEnd::beside(&data.join("g1")), Some(end.clone()));
        assert_eq!(LogEnd::beside(&data.join("g0")), None);
        let beyond = |log, next| end.is_beyond(log, next);
        assert_eq!(
            [beyond("a log", 6), beyond("a log", 7), beyond("another", 6)],
            [true, false, false]
        );
        let text = fs::read(LogEnds::path(&data)).unwrap();
        fs::write(LogEnds::path(&data), &text[..text.len() / 2]).unwrap();
        assert_eq!(LogEnds::read(&data), LogEnds::default());
        LogEnds::forget(&data);
        LogEnds::forget(&data);
        fs::remove_dir_all(&data).unwrap();
    }
}

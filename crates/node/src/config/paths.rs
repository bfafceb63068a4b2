//! The paths in a cluster's file. Relative ones are seen from the directory of the file, wherever a program is started;
//! `log_dir` alone is seen from the cluster's directory, with which it may be moved.

use super::{ClusterFile, FileError};
use crate::system::PipeInput;
use std::path::{Path, PathBuf};

fn absolute(path: &Path) -> Result<PathBuf, FileError> {
    std::path::absolute(path).map_err(|e| FileError::Io(path.into(), e))
}

impl ClusterFile {
    /// Makes the paths of the file at `path` absolute: a copy of the file elsewhere refers to the same.
    pub(super) fn resolve_paths(&mut self, path: &Path) -> Result<(), FileError> {
        let path = absolute(path)?;
        let from = path.parent().unwrap_or(&path);
        let of_etcd = self.etcd.iter_mut().flat_map(|etcd| {
            [&mut etcd.ca, &mut etcd.cert, &mut etcd.key, &mut etcd.password_file]
        });
        let others = [&mut self.secret, &mut self.data, &mut self.record];
        for named in others.into_iter().chain(of_etcd).flatten() {
            *named = from.join(&*named);
        }
        Ok(())
    }

    /// The directory that earlier versions of the program took for a relative `data` of the file at `path`: they saw it
    /// from the directory in which they were started. None where `data` is absolute or missing.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub(crate) fn data_of_earlier_versions(path: &Path) -> Result<Option<PathBuf>, FileError> {
        let data = Self::read_as_written(path, PipeInput::Refused)?.data;
        data.filter(|data| data.is_relative()).map(|data| absolute(&data)).transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_paths_are_seen_from_the_file_and_log_dir_from_the_cluster() {
        let base = std::env::temp_dir().join(format!("amcast-paths-{}", std::process::id()));
        std::fs::create_dir_all(&base).unwrap();
        let path = base.join("cluster.toml");
        let text = "secret = \"s\"\ndata = \"d\"\nrecord = \"r\"\nlog_dir = \"l\"\n[etcd]\n\
                    endpoints = []\nca = \"ca.pem\"\ncert = \"/cert.pem\"\nkey = \"key.pem\"\n\
                    password_file = \"p\"\n";
        std::fs::write(&path, text).unwrap();
        let file = ClusterFile::read(&path).unwrap();
        let etcd = file.etcd.unwrap();
        let seen = [file.secret, file.data, file.record, etcd.ca, etcd.key, etcd.password_file];
        let names = ["s", "d", "r", "ca.pem", "key.pem", "p"];
        assert_eq!(seen, names.map(|name| Some(base.join(name))));
        assert_eq!((etcd.cert, file.log_dir), (Some("/cert.pem".into()), Some("l".into())));
        let before = ClusterFile::data_of_earlier_versions(&path).unwrap();
        assert_eq!(before, Some(std::env::current_dir().unwrap().join("d")));
        std::fs::write(&path, "data = \"/d\"\n").unwrap();
        assert_eq!(ClusterFile::data_of_earlier_versions(&path).unwrap(), None);
        std::fs::remove_dir_all(&base).unwrap();
    }
}

//! The home of a host's nodes that nobody supervises: each is started by hand, or by the system.

use super::own::SOCKET_PATH_MAX;
use super::{Home, HomeError, Keeping, at, check_ours, life_name};
use crate::config::ClusterFile;
use crate::control::statuses_of;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

impl Home {
    /// The home of a host's nodes: the directory that the cluster's file names, or the one that the
    /// file, at `path`, is in.
    pub fn of_host(file: &ClusterFile, path: &Path) -> Self {
        match &file.data {
            Some(data) => Self { path: std::path::absolute(data).unwrap_or_else(|_| data.clone()) },
            None => Self::of_file(path),
        }
    }

    /// Prepares it for a node: makes the directory if need be, and puts the cluster's file
    /// there, for whoever is given the directory and nothing else.
    ///
    /// # Errors
    /// When it cannot be made, others may write in it, or it is of another cluster.
    pub fn prepare_host(&self, file: &ClusterFile) -> Result<(), HomeError> {
        if file.data.is_none() {
            return Ok(());
        }
        let length = self.path.as_os_str().len();
        if length > SOCKET_PATH_MAX {
            return Err(HomeError::TooLong(self.path.clone(), length - SOCKET_PATH_MAX));
        }
        match DirBuilder::new().mode(0o700).create(&self.path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                return Err(HomeError::NoParent(self.path.clone()));
            }
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(at(&self.path)(e)),
            _ if !self.path.is_dir() => return Err(HomeError::NotDirectory(self.path.clone())),
            _ => check_ours(&self.path, 0o022)?,
        }
        if self.file_path().exists() {
            let before = self.file()?;
            let same = file.clone().go_on_from(&before);
            same.map_err(|why| HomeError::Another(self.path.clone(), why))?;
        }
        self.write_file(file)
    }

    /// Writes the cluster's file, which nobody ever sees half of.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write_file(&self, file: &ClusterFile) -> Result<(), HomeError> {
        // Each under a name of its own: several nodes may start at one time.
        let new = self.path.join(format!("cluster.toml.{}.new", std::process::id()));
        file.write(&new).map_err(HomeError::File)?;
        fs::rename(&new, self.file_path()).map_err(at(&new))
    }

    /// Whether the node `rank` never ran here, or what it left is gone.
    pub fn is_fresh(&self, rank: usize) -> bool {
        !self.path.join(life_name(rank)).exists() && !self.data(rank).exists()
    }

    /// Whether the cluster of this file works already without the node `rank`, whose directory is new:
    /// then it may be one that lived before, and whose disk is gone. None where that is not so, or
    /// nobody answers; else who works.
    pub fn works_without(
        &self,
        file: &ClusterFile,
        rank: usize,
        keeping: &Keeping,
    ) -> Option<String> {
        // A directory alone says nothing: an earlier start may have ended before its logs were there.
        if keeping.is_begun() {
            return None;
        }
        let mut others = self.nodes(file);
        others.remove(rank);
        let said = statuses_of(&others);
        said.into_iter().flatten().find(|node| node.ready).map(|node| node.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_made_for_one_cluster_and_no_other() {
        let base = std::env::temp_dir().join(format!("amcast-host-{}", std::process::id()));
        fs::create_dir_all(&base).unwrap();
        let data = Some(base.join("data"));
        let file = ClusterFile { data: data.clone(), id: Some(7), ..ClusterFile::default() };
        let home = Home::of_host(&file, Path::new("/etc/amcast/cluster.toml"));
        assert_eq!(home.path(), base.join("data"));
        for _ in 0..2 {
            home.prepare_host(&file).unwrap();
            assert_eq!(home.file().unwrap(), file);
        }
        let other = ClusterFile { id: Some(8), ..file.clone() };
        let why = home.prepare_host(&other).unwrap_err();
        assert!(why.is_misuse() && why.to_string().contains("id = 8, and what is there"), "{why}");
        let deep = ClusterFile { data: Some(base.join("no/where")), ..file };
        let why = Home::of_host(&deep, Path::new("x")).prepare_host(&deep).unwrap_err();
        assert!(matches!(why, HomeError::NoParent(_)), "{why}");
        fs::remove_dir_all(&base).unwrap();
    }
}

//! The home of a running cluster: a directory with its file, its sockets and its shared memory.
//!
//! ```text
//! HOME/cluster.toml      what every process of the cluster reads
//! HOME/lock              locked by the supervisor while it lives
//! HOME/fronts.json       where the fronts listen
//! HOME/n0.sock           the control socket of a node
//! HOME/amcast-..1/       the shared memory
//! ```
//! A pointer file beside the usual homes names the cluster that was started last.

use crate::answers::Places;
use crate::config::{ClusterFile, FileError, node_name};
use amcast_core::Cluster;
use amcast_memory::{ClusterId, Directory, Error};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// What the directories of clusters begin with, where we choose their names.
const PREFIX: &str = "amcast-up-";

/// The home of a cluster.
#[derive(Debug)]
pub struct Home {
    path: PathBuf,
}

/// The home of a cluster that this process supervises. Dropping it without [`OwnHome::remove`]
/// leaves the files for the next start to clear.
#[derive(Debug)]
pub struct OwnHome {
    home: Home,
    /// Whether the directory was there before.
    found: bool,
    _lock: File,
}

/// Where the fronts of a cluster listen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fronts {
    /// The Redis front.
    pub redis: String,
    /// The log service.
    pub log: String,
    /// The status page and metrics.
    pub http: String,
}

/// Why a home could not be made or found.
#[derive(Debug)]
pub enum HomeError {
    /// The directory given is in use or has something in it.
    NotEmpty(PathBuf),
    /// No cluster was started, or the last one is gone.
    NoneRuns,
    /// A file.
    File(FileError),
    /// The operating system.
    Io(PathBuf, io::Error),
    /// The shared memory.
    Memory(Error),
}

impl fmt::Display for HomeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotEmpty(path) => write!(
                f,
                "{}: is not empty; give a new or an empty directory",
                path.display()
            ),
            Self::NoneRuns => f.write_str(
                "no cluster is running; start one with `amcast up`, or name its directory with --data",
            ),
            Self::File(e) => e.fmt(f),
            Self::Io(path, e) => write!(f, "{}: {e}", path.display()),
            Self::Memory(e) => e.fmt(f),
        }
    }
}

impl std::error::Error for HomeError {}

fn at(path: &Path) -> impl FnOnce(io::Error) -> HomeError + '_ {
    |e| HomeError::Io(path.to_path_buf(), e)
}

impl Home {
    /// The home at `path`, or of the cluster that was started last.
    ///
    /// # Errors
    /// When there is no cluster.
    pub fn find(path: Option<&Path>) -> Result<Self, HomeError> {
        let path = match path {
            Some(path) => path.to_path_buf(),
            None => {
                let name = fs::read_to_string(pointer()).map_err(|_| HomeError::NoneRuns)?;
                PathBuf::from(name)
            }
        };
        if !path.join("cluster.toml").is_file() {
            return Err(HomeError::NoneRuns);
        }
        Ok(Self { path })
    }

    /// The home that a cluster's file lies in.
    pub fn of_file(file: &Path) -> Self {
        Self { path: file.parent().map_or_else(PathBuf::new, Path::to_path_buf) }
    }

    /// Its directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The cluster's file.
    pub fn file_path(&self) -> PathBuf {
        self.path.join("cluster.toml")
    }

    /// Reads the cluster's file.
    ///
    /// # Errors
    /// When it is gone.
    pub fn file(&self) -> Result<ClusterFile, HomeError> {
        ClusterFile::read(&self.file_path()).map_err(HomeError::File)
    }

    /// The control socket of a node.
    pub fn socket(&self, rank: usize) -> PathBuf {
        self.path.join(format!("{}.sock", node_name(rank)))
    }

    /// Where the fronts listen.
    ///
    /// # Errors
    /// When they do not listen yet.
    pub fn fronts(&self) -> Result<Fronts, HomeError> {
        let path = self.path.join("fronts.json");
        let text = fs::read_to_string(&path).map_err(at(&path))?;
        serde_json::from_str(&text).map_err(|e| HomeError::Io(path, e.into()))
    }

    /// The shared memory of the cluster.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn memory(&self, cluster: Cluster) -> Result<Directory, HomeError> {
        let processes = Places(cluster).processes();
        let clients = cluster.clients() as u32;
        Directory::open(&self.path, ClusterId(1), processes, clients).map_err(HomeError::Memory)
    }
}

impl OwnHome {
    /// Makes the home of a new cluster: at `path`, or at a place of its own. Clears what clusters
    /// whose supervisor was killed have left in the usual place.
    ///
    /// # Errors
    /// When the directory cannot be made, or is in use.
    pub fn create(path: Option<&Path>, file: &ClusterFile) -> Result<Self, HomeError> {
        let base = Directory::usual_base();
        clear_left_over(&base);
        let (path, found) = match path {
            Some(path) => (path.to_path_buf(), path.is_dir()),
            None => (base.join(format!("{PREFIX}{}", std::process::id())), false),
        };
        if found {
            let mut entries = fs::read_dir(&path).map_err(at(&path))?;
            if entries.next().is_some() {
                return Err(HomeError::NotEmpty(path));
            }
        } else {
            DirBuilder::new().recursive(true).mode(0o700).create(&path).map_err(at(&path))?;
        }
        // Nodes are started with this path, whatever directory they run in.
        let path = path.canonicalize().map_err(at(&path))?;
        let lock_path = path.join("lock");
        let lock = File::create(&lock_path).map_err(at(&lock_path))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)
            .map_err(|e| HomeError::Io(lock_path, e.into()))?;
        let home = Home { path };
        file.write(&home.file_path()).map_err(HomeError::File)?;
        Ok(Self { home, found, _lock: lock })
    }

    /// The home.
    pub fn home(&self) -> &Home {
        &self.home
    }

    /// Says where the fronts listen, and that this is the cluster started last.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn announce(&self, fronts: &Fronts) -> Result<(), HomeError> {
        let path = self.home.path.join("fronts.json");
        let text = serde_json::to_string(fronts).map_err(|e| at(&path)(e.into()))?;
        fs::write(&path, text).map_err(at(&path))?;
        let pointer = pointer();
        fs::write(&pointer, self.home.path.as_os_str().as_encoded_bytes()).map_err(at(&pointer))
    }

    /// Removes everything. Every process of the cluster has ended.
    ///
    /// # Errors
    /// When something cannot be removed.
    pub fn remove(self, memory: &Directory, nodes: usize) -> Result<(), HomeError> {
        memory.remove().map_err(HomeError::Memory)?;
        let path = &self.home.path;
        let sockets = (0..nodes).map(|rank| self.home.socket(rank));
        let files = ["fronts.json", "cluster.toml", "lock"].map(|name| path.join(name));
        for file in sockets.chain(files) {
            match fs::remove_file(&file) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(at(&file)(e)),
                _ => {}
            }
        }
        if !self.found {
            fs::remove_dir(path).map_err(at(path))?;
        }
        let pointer = pointer();
        let ours = fs::read(&pointer).is_ok_and(|p| p == path.as_os_str().as_encoded_bytes());
        if ours {
            fs::remove_file(&pointer).map_err(at(&pointer))?;
        }
        Ok(())
    }
}

/// The file that names the home of the cluster started last.
fn pointer() -> PathBuf {
    let uid = rustix::process::getuid().as_raw();
    Directory::usual_base().join(format!("amcast-last-{uid}"))
}

/// Clears homes whose supervisor was killed. Whatever cannot be cleared is left alone: it may
/// belong to a cluster that is just starting or ending.
fn clear_left_over(base: &Path) {
    let uid = rustix::process::getuid().as_raw();
    let Ok(entries) = fs::read_dir(base) else { return };
    for entry in entries.flatten() {
        let ours = entry.file_name().as_encoded_bytes().starts_with(PREFIX.as_bytes())
            && entry.metadata().is_ok_and(|m| m.is_dir() && m.uid() == uid);
        if !ours {
            continue;
        }
        let path = entry.path();
        let Ok(lock) = File::open(path.join("lock")) else { continue };
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
            tracing::info!("{}: left over by a cluster that was killed; removed", path.display());
            if let Err(e) = fs::remove_dir_all(&path) {
                tracing::warn!("{}: {e}", path.display());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_home_leaves_nothing_and_takes_no_directory_with_something_in_it() {
        let dir = std::env::temp_dir().join(format!("amcast-home-{}", std::process::id()));
        let file = ClusterFile::default();
        let cluster = Cluster::new(1, 1, 1).unwrap();
        let own = OwnHome::create(Some(&dir), &file).unwrap();
        assert_eq!(Home::find(Some(&dir)).unwrap().file().unwrap(), file);
        let second = OwnHome::create(Some(&dir), &file);
        assert!(matches!(second, Err(HomeError::NotEmpty(_))), "{second:?}");
        let memory = own.home().memory(cluster).unwrap();
        own.remove(&memory, 1).unwrap();
        assert!(!dir.exists());
        assert!(matches!(Home::find(Some(&dir)), Err(HomeError::NoneRuns)));
    }
}

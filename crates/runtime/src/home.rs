//! The home of a running cluster: a directory with its file, its sockets and its shared memory.
//!
//! ```text
//! HOME/cluster.toml      what every process of the cluster reads
//! HOME/lock              locked by the supervisor while it lives; says which process that is
//! HOME/fronts.json       where the supervisor's fronts listen
//! HOME/n0.fronts.json    where those of a node listen
//! HOME/nodes.json        what the supervisor knows of the lives of its nodes
//! HOME/n0.sock           the control socket of a node
//! HOME/n0.log            the log of a node
//! HOME/amcast-..1/       the shared memory, for protocols that talk through it
//! HOME/n0.in             where a node takes commands of fronts, for protocols that send messages
//! HOME/n0.life           which life of the node is the next; locked while it lives
//! HOME/c0.life           the same of a front that is not a node's
//! ```
//! Nothing else in the directory is touched, ever. It belongs to the cluster's user and nobody else
//! may write in it; all that is put there is for its owner only. [`Registry`] knows which homes are in use.

mod ground;
mod own;
mod registry;
#[cfg(test)]
mod tests;

pub use ground::{Ground, Net};
pub use own::OwnHome;
pub use registry::Registry;

use crate::answers::Places;
use crate::at::At;
use crate::config::{ClusterFile, FileError, node_name};
use crate::supervisor::Life;
use amcast_core::Cluster;
use amcast_memory::{ClusterId, Directory, Error};
use rustix::fs::{FlockOperation, flock};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// What the shared memory in a home is called by: there is one.
const CLUSTER: ClusterId = ClusterId(1);

/// Where a node takes commands of fronts, if its protocol sends messages.
pub(crate) fn ingress_name(rank: usize) -> String {
    format!("{}.in", node_name(rank))
}

/// Where the lives of a node are counted.
pub(crate) fn life_name(rank: usize) -> String {
    format!("{}.life", node_name(rank))
}

/// Where those of a front are counted that is not a node's.
pub(crate) fn front_life_name(number: usize) -> String {
    format!("c{number}.life")
}

/// The home of a cluster.
#[derive(Clone, Debug)]
pub struct Home {
    path: PathBuf,
}

/// Where the fronts of a process listen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fronts {
    /// The Redis front.
    pub redis: String,
    /// The log service, where the process has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<String>,
    /// The status page and metrics.
    pub http: String,
}

/// Why a home could not be made or found.
#[derive(Debug)]
pub enum HomeError {
    /// There is no such directory.
    Missing(PathBuf),
    /// It is something else than a directory.
    NotDirectory(PathBuf),
    /// No cluster has its files there.
    NotCluster(PathBuf),
    /// It belongs to the user of this number, and not to ours.
    NotOurs(PathBuf, u32),
    /// Others may do in it what its mode, this, allows.
    Exposed(PathBuf, u32),
    /// It holds something, such as this entry, that is not a cluster's.
    NotEmpty(PathBuf, String),
    /// Its name is too long for the sockets in it, by so many bytes.
    TooLong(PathBuf, usize),
    /// A supervisor that lives has it; what its lock says.
    InUse(PathBuf, String),
    /// Its supervisor is dead, but this process of its cluster still runs.
    StillRuns(PathBuf, u64),
    /// Its supervisor is dead, but this node still runs.
    NodeRuns(PathBuf, String),
    /// It is left over, and cannot be taken over for this reason.
    LeftOver(PathBuf, String),
    /// No cluster runs.
    NoneRuns,
    /// The file does not say where the nodes are, or not right.
    Addresses(String),
    /// A file.
    File(FileError),
    /// The operating system.
    Io(PathBuf, io::Error),
    /// The shared memory.
    Memory(Error),
}

impl HomeError {
    /// Whether another directory should have been given: nothing failed.
    pub const fn is_misuse(&self) -> bool {
        use HomeError::*;
        matches!(
            self,
            Missing(_)
                | NotDirectory(_)
                | NotCluster(_)
                | NotOurs(..)
                | Exposed(..)
                | NotEmpty(..)
                | TooLong(..)
        )
    }
}

impl fmt::Display for HomeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(path) => write!(f, "{}: does not exist", path.display()),
            Self::NotDirectory(path) => write!(f, "{}: is not a directory", path.display()),
            Self::NotCluster(path) => write!(
                f,
                "{}: is not the directory of a cluster: it has no cluster.toml",
                path.display()
            ),
            Self::NotOurs(path, uid) => write!(
                f,
                "{}: belongs to another user (number {uid}), who could change what a cluster has \
                 there; give a directory of your own",
                path.display()
            ),
            Self::Exposed(path, mode) => write!(
                f,
                "{0}: others may change what is in it (mode {mode:03o}); close it with \
                 `chmod go-w '{0}'`, or give another directory",
                path.display()
            ),
            Self::NotEmpty(path, entry) => write!(
                f,
                "{}: holds {entry}, which is not a cluster's; give a new or an empty directory",
                path.display()
            ),
            Self::TooLong(path, by) => write!(
                f,
                "{}: the name is {by} bytes too long for the sockets in it; give a shorter one",
                path.display()
            ),
            Self::InUse(path, who) => write!(
                f,
                "{}: is in use by a cluster that runs ({who}); stop it, or give another directory",
                path.display()
            ),
            Self::StillRuns(path, os_pid) => write!(
                f,
                "{}: the cluster's supervisor is dead, but its process {os_pid} still runs; end it \
                 (kill -9 {os_pid}) and start again",
                path.display()
            ),
            Self::NodeRuns(path, node) => write!(
                f,
                "{0}: the cluster's supervisor is dead, but its node {node} still runs; end it \
                 (`fuser '{0}/{node}.life'` names its process) and start again",
                path.display()
            ),
            Self::LeftOver(path, why) => write!(
                f,
                "{}: a cluster that was killed left it in disorder ({why}); remove it, or give \
                 another directory",
                path.display()
            ),
            Self::NoneRuns => f.write_str(
                "no cluster is running; start one with `amcast up`, or name its directory with --data",
            ),
            Self::Addresses(why) => f.write_str(why),
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

/// How a file that only its owner may use is opened for writing.
fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).mode(0o600);
    options
}

fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    private().create(true).truncate(true).open(path)?.write_all(bytes)
}

/// Checks that a directory is ours and that none of `forbidden`, bits of its mode, is set.
fn check_ours(path: &Path, forbidden: u32) -> Result<(), HomeError> {
    let metadata = fs::metadata(path).map_err(at(path))?;
    if metadata.uid() != rustix::process::geteuid().as_raw() {
        return Err(HomeError::NotOurs(path.to_path_buf(), metadata.uid()));
    }
    if metadata.mode() & forbidden != 0 {
        return Err(HomeError::Exposed(path.to_path_buf(), metadata.mode() & 0o777));
    }
    Ok(())
}

impl Home {
    /// The home in the directory `path`.
    ///
    /// # Errors
    /// When it is not the directory of a cluster.
    pub fn at(path: &Path) -> Result<Self, HomeError> {
        let is = |path: &Path, missing: HomeError| match fs::metadata(path) {
            Ok(metadata) => Ok(metadata),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Err(missing),
            Err(e) => Err(at(path)(e)),
        };
        if !is(path, HomeError::Missing(path.to_path_buf()))?.is_dir() {
            return Err(HomeError::NotDirectory(path.to_path_buf()));
        }
        is(&path.join("cluster.toml"), HomeError::NotCluster(path.to_path_buf()))?;
        Ok(Self { path: path.to_path_buf() })
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

    /// Whether a supervisor that lives has it.
    pub fn is_supervised(&self) -> bool {
        let Ok(lock) = File::open(self.path.join("lock")) else { return false };
        // A shared lock that is had for a moment; whoever takes it for good tries several times.
        flock(&lock, FlockOperation::NonBlockingLockShared).is_err()
    }

    /// The control socket of a node.
    pub fn socket(&self, rank: usize) -> PathBuf {
        self.path.join(format!("{}.sock", node_name(rank)))
    }

    /// Where each node of the cluster, whose file this is, is asked how it is.
    pub fn nodes(&self, file: &ClusterFile) -> Vec<At> {
        let at = |rank: usize| {
            let far = file.nodes.get(&node_name(rank)).and_then(|place| place.control);
            match far {
                Some(at) => At::Address(at, file.id.unwrap_or_default(), self.socket(rank)),
                None => At::Socket(self.socket(rank)),
            }
        };
        (0..file.replicas).map(at).collect()
    }

    /// The log of a node: what it says, and why it ended, if it could say so.
    pub fn log(&self, rank: usize) -> PathBuf {
        self.path.join(format!("{}.log", node_name(rank)))
    }

    /// Where the supervisor's fronts listen.
    ///
    /// # Errors
    /// When they do not listen yet.
    pub fn fronts(&self) -> Result<Fronts, HomeError> {
        self.read("fronts.json")
    }

    /// Where the fronts of a node listen.
    ///
    /// # Errors
    /// When they do not listen yet, or the node has none.
    pub fn fronts_of(&self, rank: usize) -> Result<Fronts, HomeError> {
        self.read(&format!("{}.fronts.json", node_name(rank)))
    }

    /// Says where the fronts of a node listen.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn announce_node(&self, rank: usize, fronts: &Fronts) -> Result<(), HomeError> {
        self.write(&format!("{}.fronts.json", node_name(rank)), fronts)
    }

    /// Takes back where the fronts of a node listen: they do not any more.
    ///
    /// # Errors
    /// When the file cannot be removed.
    pub fn withdraw_node(&self, rank: usize) -> Result<(), HomeError> {
        let path = self.path.join(format!("{}.fronts.json", node_name(rank)));
        fs::remove_file(&path).map_err(at(&path))
    }

    /// What the supervisor knows of the lives of its nodes; empty if it has not said anything.
    pub fn lives(&self) -> Vec<Life> {
        self.read("nodes.json").unwrap_or_default()
    }

    /// Says what the supervisor knows of the lives of its nodes.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write_lives(&self, lives: &[Life]) -> Result<(), HomeError> {
        self.write("nodes.json", lives)
    }

    /// The shared memory of the cluster.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub(crate) fn memory(&self, cluster: Cluster) -> Result<Directory, HomeError> {
        let processes = Places(cluster).processes();
        let clients = cluster.clients() as u32;
        Directory::open(&self.path, CLUSTER, processes, clients).map_err(HomeError::Memory)
    }

    /// Removes the shared memory of a cluster whose file need not be readable any more.
    fn discard_memory(&self) -> Result<(), HomeError> {
        Directory::discard(&self.path, CLUSTER).map_err(HomeError::Memory)
    }

    fn read<T: DeserializeOwned>(&self, name: &str) -> Result<T, HomeError> {
        let path = self.path.join(name);
        let text = fs::read_to_string(&path).map_err(at(&path))?;
        serde_json::from_str(&text).map_err(|e| HomeError::Io(path, e.into()))
    }

    /// Writes a file that nobody ever sees half of.
    fn write<T: Serialize + ?Sized>(&self, name: &str, value: &T) -> Result<(), HomeError> {
        let (path, new) = (self.path.join(name), self.path.join(format!("{name}.new")));
        let text = serde_json::to_string(value).map_err(|e| at(&path)(e.into()))?;
        write_private(&new, text.as_bytes())
            .and_then(|()| fs::rename(&new, &path))
            .map_err(at(&path))
    }
}

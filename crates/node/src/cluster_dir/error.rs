//! Why a cluster directory cannot be made or found, in sentences that say what to do.

use super::past_processes::how_to_start;
use crate::config::FileError;
use crate::system::refuses_file;
use amcast_memory::MemoryError;
use std::fmt::{self, Display};
use std::io;
use std::path::PathBuf;

/// Bytes in whole megabytes, for people who have to find as much room.
pub const fn megabytes(bytes: u64) -> u64 {
    bytes.div_ceil(1 << 20)
}

/// Why a cluster directory could not be made or found.
#[derive(Debug)]
pub enum ClusterDirError {
    /// There is no such directory.
    Missing(PathBuf),
    /// Nor is there a directory that it would be in.
    NoParent(PathBuf),
    /// The directory that it would be in is there, and none can be made in that.
    Unmakeable(PathBuf),
    /// The copy of the cluster's file that a node has in its directory cannot be read, for this reason.
    BadCopy(PathBuf, String),
    /// A node's record of what decides cannot be read, for this reason.
    BadDecides(PathBuf, String),
    /// It is a link to something that is not there.
    Dangling(PathBuf),
    /// It is something else than a directory.
    NotDirectory(PathBuf),
    /// No cluster has its files there.
    NotCluster(PathBuf),
    /// Under the name of a file of the cluster, or of a node's directory, is something else.
    NotFile {
        /// Where.
        path: PathBuf,
        /// Its actual kind.
        is: &'static str,
        /// The expected kind.
        wanted: &'static str,
    },
    /// It belongs to the user of this number, and not to ours.
    NotOurs(PathBuf, u32),
    /// Others may do in it what its mode, this, allows.
    Exposed(PathBuf, u32),
    /// It holds something, such as this entry, that is not a cluster's.
    NotEmpty(PathBuf, String),
    /// It is of nodes of these ranks, which were started one by one.
    OfNodes(PathBuf, Vec<usize>),
    /// It holds a cluster's file, and nobody has run there.
    OnlyFile(PathBuf),
    /// A supervisor has just begun to make it, or was interrupted as it began.
    Unmade(PathBuf),
    /// Its name is too long for the sockets in it, by so many bytes.
    TooLong(PathBuf, usize),
    /// A supervisor that lives has it; what its lock says.
    InUse(PathBuf, String),
    /// Its supervisor is dead, but this process of its cluster still runs.
    StillRuns(PathBuf, u64),
    /// Its supervisor is dead, or its lock was removed, but this node still runs.
    NodeRuns(PathBuf, String),
    /// It is left over, and cannot be taken over for this reason.
    LeftOver(PathBuf, String),
    /// It has the data of another cluster; the sentence names the difference.
    Another(PathBuf, String),
    /// The nodes that share it have the data of another cluster, or of other settings.
    NodesOfAnother {
        /// The directory.
        path: PathBuf,
        /// A sentence that names the difference.
        why: String,
        /// The node, if one alone has data there, and they are of this cluster.
        only: Option<String>,
    },
    /// The node's data there were made with another deciding setting; the sentence names it.
    Decides(String, PathBuf, String),
    /// A node left nothing in the directory that a relative `data` names, and has data where earlier versions of the
    /// program saw it.
    DataElsewhere {
        /// The node.
        node: String,
        /// The directory that is named.
        path: PathBuf,
        /// The directory with its data.
        there: PathBuf,
    },
    /// A node keeps something there, and there is no file that says of which cluster it is.
    NoFile(PathBuf, String),
    /// There is not enough shared memory, in bytes.
    NoRoom {
        /// Where.
        path: PathBuf,
        /// The bytes that the cluster takes.
        needed: u64,
        /// The free bytes.
        free: u64,
    },
    /// No cluster runs.
    NoneRuns,
    /// The file does not say where the nodes are, or not right.
    Addresses(String),
    /// A file.
    File(FileError),
    /// The operating system.
    Io(PathBuf, io::Error),
    /// The shared memory.
    Memory(MemoryError),
}

impl ClusterDirError {
    /// Whether another directory should have been given: nothing failed.
    pub fn is_misuse(&self) -> bool {
        use ClusterDirError::*;
        if let Io(_, e) = self {
            use io::ErrorKind::{NotADirectory, PermissionDenied, ReadOnlyFilesystem};
            return matches!(e.kind(), PermissionDenied | ReadOnlyFilesystem | NotADirectory);
        }
        matches!(
            self,
            Missing(_)
                | NoParent(_)
                | Unmakeable(_)
                | Dangling(_)
                | NotDirectory(_)
                | NotCluster(_)
                | NotFile { .. }
                | NotOurs(..)
                | Exposed(..)
                | NotEmpty(..)
                | OfNodes(..)
                | OnlyFile(_)
                | Unmade(_)
                | TooLong(..)
                | Another(..)
                | NodesOfAnother { .. }
                | Decides(..)
                | DataElsewhere { .. }
        )
    }
}

impl Display for ClusterDirError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(path) => write!(f, "{}: does not exist", path.display()),
            Self::NoParent(path) => write!(
                f,
                "{}: the directory that it is to be in does not exist; make that first, or give \
                 another",
                path.display()
            ),
            Self::Dangling(path) => write!(
                f,
                "{}: is a link to something that does not exist; make that a directory, or remove \
                 the link",
                path.display()
            ),
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
            Self::OfNodes(path, ranks) => write!(
                f,
                "{}: holds no file `lock` or `last.ports` of `amcast up`, so it is of nodes that are started one by \
                 one: {}, or give another directory",
                path.display(),
                how_to_start(ranks)
            ),
            Self::OnlyFile(path) => write!(
                f,
                "{0}: holds a cluster.toml, and no cluster has run there; for one as the file has it give \
                 `--config '{0}/cluster.toml'` and another directory for its data",
                path.display()
            ),
            Self::Unmade(path) => write!(
                f,
                "{0}: `amcast up` has just begun there, or was interrupted before it had written \
                 anything; in that case `amcast up --data '{0}'` begins again",
                path.display()
            ),
            Self::TooLong(path, by) => write!(
                f,
                "{}: the name is {by} bytes too long for the sockets in it; give a shorter one",
                path.display()
            ),
            Self::Another(..)
            | Self::NodesOfAnother { .. }
            | Self::Decides(..)
            | Self::DataElsewhere { .. } => self.fmt_other_file(f),
            Self::Unmakeable(_) | Self::BadCopy(..) | Self::BadDecides(..) => self.fmt_unusable(f),
            other => other.fmt_failure(f),
        }
    }
}

impl ClusterDirError {
    /// In what the cluster's file is another one than what is there was made by.
    fn fmt_other_file(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Another(path, why) => write!(
                f,
                "{}: {why}; give the same as then, another directory, or remove what is there",
                path.display()
            ),
            Self::NodesOfAnother { path, why, only } => {
                let at = path.display();
                write!(f, "{at}: {why}; give the same as then, or another directory")?;
                let Some(node) = only else { return Ok(()) };
                let anew = super::begin_anew_words(path, node);
                write!(f, "; or, where the other nodes have always had this, {anew}")
            }
            Self::Decides(node, path, why) => write!(
                f,
                "{0}: {why}; {node} came to its state by that, and another one would not be that of the other nodes: \
                 write the same as then; or, where nobody changed it, {0}/{node}.decides is damaged: remove that file; \
                 or, where the other nodes have always had this, {1}",
                path.display(),
                super::begin_anew_words(path, node)
            ),
            Self::DataElsewhere { node, path, there } => write!(
                f,
                "{0}: holds nothing of {node}, and the data of {node} are in {1}: a relative `data` is seen from the \
                 directory of the cluster's file now, and no longer from that in which the program is started; write data \
                 = \"{1}\" in the file, or move that directory to {0}; if {1} is of another cluster, start the program in \
                 another directory",
                path.display(),
                there.display()
            ),
            other => other.fmt_failure(f),
        }
    }

    /// A directory that cannot be made, or a file in it that cannot be read.
    fn fmt_unusable(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unmakeable(path) => write!(
                f,
                "{}: no directory can be made there, as on a file system that the kernel makes up; give a directory \
                 elsewhere",
                path.display()
            ),
            Self::BadCopy(path, why) => write!(
                f,
                "{}: the copy of the cluster's file that a node keeps there is damaged ({why}); remove it if the file that \
                 the node is started with has `hash_seed`: the node writes it anew from that; else copy that of another \
                 node",
                path.display()
            ),
            Self::BadDecides(path, why) => write!(
                f,
                "{}: is damaged ({why}); it says by which settings the node came to its state: where nobody has changed \
                 them since, remove it, and the node writes it anew",
                path.display()
            ),
            other => other.fmt_failure(f),
        }
    }

    /// Writes the failures that are no misuse.
    fn fmt_failure(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFile { path, is, wanted } => write!(
                f,
                "{}: is {is}, where the cluster has {wanted}; move it away, and bring back what was there",
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
                "{0}: node {node} of this cluster still runs, and nobody holds the file `lock`: either the \
                 supervisor died, then end {node} (`fuser '{0}/{node}.life'` names its process) and start again; or \
                 `lock` was removed while the cluster ran, then it still serves",
                path.display()
            ),
            Self::LeftOver(path, why) => write!(
                f,
                "{}: a cluster that was killed left it in disorder ({why}); remove it, or give \
                 another directory",
                path.display()
            ),
            Self::NoFile(path, why) => write!(
                f,
                "{}: a cluster keeps its data there, and the cluster.toml beside it cannot be used \
                 ({why}); bring it back, give another directory, or remove what is there",
                path.display()
            ),
            Self::NoRoom { path, needed, free } => write!(
                f,
                "{}: the cluster takes {} MB, and {} MB are free there; free some (of the memory in \
                 /dev/shm a container has little: --shm-size), give a directory elsewhere with --data, such as on a \
                 disk, or ask for less: fewer --shards or --replicas, or smaller rings (`amcast \
                 config --explain`)",
                path.display(),
                megabytes(*needed),
                free >> 20
            ),
            Self::NoneRuns => f.write_str(
                "no cluster of `amcast up` is running; start one, or, for nodes of `amcast node`, give --data with their \
                 data directory (`data` in the cluster's file)",
            ),
            Self::Addresses(why) => f.write_str(why),
            Self::File(e) => e.fmt(f),
            Self::Io(path, e) => f.write_str(&refuses_file(path, e)),
            Self::Memory(e) => e.fmt(f),
            // All of these have their sentence above.
            chosen => write!(f, "{chosen:?}"),
        }
    }
}

impl std::error::Error for ClusterDirError {}

//! Failures outside the hot path, each with its remedy.

use amcast_core::id::Pid;
use core::fmt;
use rustix::io::Errno;
use std::path::{Path, PathBuf};

/// Why the shared memory of a cluster could not be used.
#[derive(Debug)]
pub enum MemoryError {
    /// The operating system does not let this user do it.
    Permission {
        /// Where.
        path: PathBuf,
        /// The failed operation.
        doing: &'static str,
    },
    /// The file system is too full.
    NoSpace {
        /// Where.
        path: PathBuf,
        /// How many bytes are needed there.
        needed_bytes: u64,
        /// How many are free.
        free_bytes: u64,
    },
    /// Somebody else owns it.
    NotOurs {
        /// The file or directory.
        path: PathBuf,
        /// The user who owns it.
        owner_uid: u32,
        /// The user that this process runs as.
        our_uid: u32,
    },
    /// Others than the owner may use it.
    Exposed {
        /// The file or directory.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// A symbolic link, or not the kind of file it must be: possibly laid there by someone else.
    NotPlain {
        /// The file or directory.
        path: PathBuf,
    },
    /// Written by another version of this program.
    Version {
        /// The file or directory.
        path: PathBuf,
        /// The version it has.
        found: u64,
        /// The version that this program writes.
        expected: u64,
    },
    /// The directory was made for a cluster of another shape.
    Shape {
        /// The file or directory.
        path: PathBuf,
        /// Cluster id, processes, client places there.
        found: [u64; 3],
        /// The same, as asked for.
        expected: [u64; 3],
    },
    /// Not a file of this program, or damaged.
    Corrupt {
        /// The file or directory.
        path: PathBuf,
        /// The flaw.
        why: &'static str,
    },
    /// A process of the cluster still lives.
    Running {
        /// Which.
        pid: Pid,
        /// Its number in the operating system; 0 if it is not known.
        os_pid: u64,
    },
    /// There is no such process or client place in the cluster.
    NoSuch {
        /// The name that was asked for.
        what: &'static str,
        /// The number asked for.
        number: u32,
        /// How many there are.
        count: u32,
    },
    /// A write or read named lines that the other process does not have, or that this process
    /// does not write: the two were not configured alike.
    Refused {
        /// The other process.
        pid: Pid,
        /// The region.
        region: u16,
        /// The first line.
        at: u32,
        /// How many lines.
        count: u32,
    },
    /// The same, as the node of another host says.
    RefusedThere,
    /// Regions that no file can hold.
    TooLarge {
        /// How many lines they have together.
        lines: u64,
    },
    /// A region of more lines than a frame from another host can have.
    TooLong {
        /// Its purpose.
        name: &'static str,
        /// How many lines it has.
        lines: u32,
        /// How many it may have.
        most: u32,
    },
    /// Any other refusal of the operating system.
    System {
        /// Where.
        path: PathBuf,
        /// The failed operation.
        doing: &'static str,
        /// The error of the system.
        errno: Errno,
    },
}

impl MemoryError {
    /// The meaning of an error of the operating system here.
    pub(crate) fn system(path: &Path, doing: &'static str, errno: Errno) -> Self {
        let path = path.to_owned();
        match errno {
            Errno::ACCESS | Errno::PERM | Errno::ROFS => Self::Permission { path, doing },
            Errno::LOOP | Errno::NOTDIR => Self::NotPlain { path },
            _ => Self::System { path, doing, errno },
        }
    }

    /// Whether the file is not there (any more).
    pub(crate) fn is_gone(&self) -> bool {
        matches!(self, Self::System { errno: Errno::NOENT, .. })
    }
}

impl fmt::Display for MemoryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Permission { path, doing } => {
                let path = path.display();
                write!(f, "{path}: no permission to {doing}; choose a directory that you may write")
            }
            Self::NoSpace { path, needed_bytes, free_bytes } => {
                let (needed, free) = (needed_bytes.div_ceil(1 << 20), free_bytes >> 20);
                write!(
                    f,
                    "{}: {needed} MB are needed and {free} MB are free; free some, choose another \
                     directory, or configure smaller rings",
                    path.display()
                )
            }
            Self::NotOurs { path, owner_uid, our_uid } => write!(
                f,
                "{}: belongs to user {owner_uid}, and this is user {our_uid}; \
                 run as that user or choose another directory",
                path.display()
            ),
            Self::Exposed { path, mode } => {
                let path = path.display();
                write!(
                    f,
                    "{path}: open to other users (mode {mode:o}); take their permissions away"
                )
            }
            Self::NotPlain { path } => write!(
                f,
                "{}: a link or a special file where a plain one must be; \
                 find out who laid it there and remove it",
                path.display()
            ),
            Self::Version { path, found, expected } => write!(
                f,
                "{}: format {found}, this program has format {expected}; \
                 stop the cluster that uses it and remove the directory",
                path.display()
            ),
            Self::Shape { path, found, expected } => wrong_shape(f, path, found, expected),
            Self::Corrupt { path, why } => {
                write!(f, "{}: {why}; stop the cluster and remove it", path.display())
            }
            Self::Running { pid, os_pid } => {
                write!(f, "{pid:?} still runs, as process {os_pid} of the system; stop it first")
            }
            Self::NoSuch { what, number, count } => {
                write!(f, "there is no {what} {number}: the cluster has {count}")
            }
            Self::Refused { pid, region, at, count } => write!(
                f,
                "lines {at} to {} of region {region} of {pid:?} are not there for this process; \
                 give all nodes the same configuration",
                u64::from(*at) + u64::from(*count)
            ),
            Self::RefusedThere => f.write_str(REFUSED_THERE),
            Self::TooLarge { lines } => {
                write!(f, "regions of {lines} lines do not fit; configure smaller rings")
            }
            Self::TooLong { name, lines, most } => write!(
                f,
                "the region {name} has {lines} lines, and one that a process of another host writes may have {most}; \
                 configure smaller rings"
            ),
            Self::System { path, doing, errno } => {
                write!(f, "{}: cannot {doing}: {errno}", path.display())
            }
        }
    }
}

/// The sentence where the lines of an access are not there, as another node says.
const REFUSED_THERE: &str = "a node of another host has not the lines that a process of this one writes or reads; give \
                             all nodes the same configuration";

fn wrong_shape(
    f: &mut fmt::Formatter<'_>,
    path: &Path,
    found: &[u64; 3],
    expected: &[u64; 3],
) -> fmt::Result {
    let shape = |[id, processes, places]: &[u64; 3]| {
        format!("cluster {id:x} of {processes} processes and {places} client places")
    };
    write!(
        f,
        "{}: made for {}, not for {}; use the same configuration, or stop that cluster and remove the \
         directory",
        path.display(),
        shape(found),
        shape(expected)
    )
}

impl std::error::Error for MemoryError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::System { errno, .. } => Some(errno),
            _ => None,
        }
    }
}

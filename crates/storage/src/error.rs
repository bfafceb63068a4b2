//! Why a log or a checkpoint cannot be used, in sentences that say what to do.

use crate::format::LogOwnerId;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Why a log or a checkpoint cannot be opened, or takes nothing more.
#[derive(Debug)]
pub enum StorageError {
    /// Another process has the directory; what its lock says.
    InUse {
        /// The directory.
        path: PathBuf,
        /// The words in the lock.
        who: String,
    },
    /// A record that was written and synced is missing or changed.
    Damaged(Damage),
    /// A checkpoint is not as it was written.
    DamagedCheckpoint {
        /// The file.
        path: PathBuf,
        /// Where the piece begins that is not whole, in bytes.
        offset: u64,
    },
    /// A checkpoint is whole, and of another owner.
    ForeignCheckpoint {
        /// The file.
        path: PathBuf,
        /// The owner, for people.
        of: String,
    },
    /// A checkpoint is whole, and the program does not read what is in it.
    UnreadCheckpoint {
        /// The directory of the checkpoints.
        path: PathBuf,
        /// Why, for people.
        why: String,
    },
    /// A file is none of ours, or of a version that we do not know.
    Misfit {
        /// The file.
        path: PathBuf,
        /// The flaw.
        why: Misfit,
    },
    /// A file that must be there is missing.
    Missing {
        /// The file, or the directory.
        path: PathBuf,
    },
    /// Nor is there a directory that it would be in.
    NoParent {
        /// The directory.
        path: PathBuf,
    },
    /// There is no room for more.
    Full {
        /// Where.
        path: PathBuf,
        /// The exhausted resource.
        what: Limit,
    },
    /// The file system is mounted for reading only; also what a kernel does after errors of a disk.
    ReadOnly {
        /// Where.
        path: PathBuf,
    },
    /// This user may not.
    Denied {
        /// The kind of file.
        path: PathBuf,
        /// The failed operation.
        doing: &'static str,
    },
    /// Any other refusal of the operating system. `EIO` is a broken disk.
    Io {
        /// Where.
        path: PathBuf,
        /// The failed operation.
        doing: &'static str,
        /// The error of the system.
        source: io::Error,
    },
    /// Which messages a node skips cannot be read.
    Skips {
        /// The file.
        path: PathBuf,
        /// The flaw.
        why: Misfit,
    },
    /// Two values do not go together, or one is out of its range.
    Options {
        /// Which, and what would be right.
        says: &'static str,
    },
}

/// The exhausted resource.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Limit {
    /// The file system.
    Disk,
    /// The quota of this user on it.
    Quota,
    /// How long a file may be.
    FileSize,
}

/// Where a log is damaged.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Damage {
    /// The file.
    pub path: PathBuf,
    /// Where in it, in bytes.
    pub offset: u64,
    /// The record that should be there.
    pub number: u64,
    /// The flaw.
    pub what: Flaw,
}

/// The flaw at a place where a log is damaged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flaw {
    /// There is no whole head of that record.
    Head,
    /// Its bytes do not fit their sum.
    Bytes,
    /// A whole segment is missing, or says of itself something else than its name.
    Segment,
    /// The file is shorter than it was made.
    Length,
    /// The log ends before the end that is kept apart from it.
    End,
    /// The first segments are missing, and were not trimmed.
    Front,
}

/// A flaw of a file as a whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Misfit {
    /// It is shorter than its head.
    Short,
    /// It does not begin as such a file does.
    Magic,
    /// Its version is not known here.
    Version {
        /// Which it has.
        found: u32,
        /// The newest that is known.
        newest: u32,
    },
    /// Its head does not fit its sum.
    Sum,
    /// Its head is whole and says what cannot be.
    Nonsense,
    /// It belongs to another log.
    OtherLog,
    /// It is the log of another owner.
    OtherOwner(LogOwnerId),
}

/// The operation whose failure loses what was written before.
const SYNC: &str = "sync it";

impl StorageError {
    /// The meaning of an error of the operating system.
    pub(crate) fn of(path: &Path, doing: &'static str, source: io::Error) -> Self {
        let path = path.to_path_buf();
        match source.kind() {
            // Also where there was no room: it says that a record is gone, and not just that there is none for more.
            _ if doing == SYNC => Self::Io { path, doing, source },
            io::ErrorKind::StorageFull => Self::Full { path, what: Limit::Disk },
            io::ErrorKind::QuotaExceeded => Self::Full { path, what: Limit::Quota },
            io::ErrorKind::FileTooLarge => Self::Full { path, what: Limit::FileSize },
            io::ErrorKind::ReadOnlyFilesystem => Self::ReadOnly { path },
            io::ErrorKind::PermissionDenied => Self::Denied { path, doing },
            io::ErrorKind::NotFound => Self::Missing { path },
            _ => Self::Io { path, doing, source },
        }
    }

    /// Whether a file is not as it was written.
    pub const fn is_damage(&self) -> bool {
        matches!(
            self,
            Self::Damaged(_)
                | Self::DamagedCheckpoint { .. }
                | Self::Misfit {
                    why: Misfit::Short | Misfit::Magic | Misfit::Sum | Misfit::Nonsense,
                    ..
                }
                | Self::Skips {
                    why: Misfit::Short | Misfit::Magic | Misfit::Sum | Misfit::Nonsense,
                    ..
                }
        )
    }

    /// Whether records may be gone that were written and not synced, although the machine runs: the kernel forgets
    /// what it cannot write. Not where there was no room for more.
    pub fn may_lose_written(&self) -> bool {
        let is_broken = |source: &io::Error| {
            source.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error())
        };
        match self {
            Self::Io { doing, source, .. } => *doing == SYNC || is_broken(source),
            Self::ReadOnly { .. } => true,
            _ => false,
        }
    }

    /// Whether the same may succeed later without anybody having repaired anything.
    pub const fn may_pass(&self) -> bool {
        matches!(self, Self::InUse { .. } | Self::Full { .. })
    }
}

impl fmt::Display for StorageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InUse { path, who } => write!(
                f,
                "{}: is in use by {}; end that, or give another directory",
                path.display(),
                if who.is_empty() { "another process" } else { who }
            ),
            Self::Damaged(damage) => damage.fmt(f),
            Self::DamagedCheckpoint { path, offset } => write!(
                f,
                "{}: damaged at byte {offset}; the checkpoint before it serves if there is one. Remove \
                 it, or, where a majority of the other nodes works, have the process start anew from the others' state",
                path.display()
            ),
            Self::ForeignCheckpoint { path, of } => write!(
                f,
                "{}: this is the state of {of}: a file or a directory was copied or moved to the wrong place. Put it \
                 back, and the own state here; where that one is gone for good, and a majority of the other nodes runs, \
                 remove this file: an older state serves, or that of the others",
                path.display()
            ),
            Self::UnreadCheckpoint { path, why } => write!(f, "{}: {why}", path.display()),
            Self::Misfit { path, why } => write!(f, "{}: {why}", path.display()),
            Self::Skips { path, why } => write!(
                f,
                "{}: {}. Which messages this node skips is not known, so it does not start: remove the file, and \
                 give the node every decision again that the others have (`amcast log-file skip --list` there)",
                path.display(),
                why.of_skips()
            ),
            Self::Missing { path } => write!(
                f,
                "{0}: is missing; bring it back, or, if it is part of a log, see what is left with \
                 `amcast log-file verify` on its directory",
                path.display()
            ),
            Self::NoParent { path } => write!(
                f,
                "{}: the directory that it is to be in does not exist; make that first, or give another",
                path.display()
            ),
            Self::Full { path, what } => write!(f, "{}: {what}", path.display()),
            Self::ReadOnly { path } => write!(
                f,
                "{}: the file system is for reading only; if it was not mounted so, the kernel found \
                 errors (`dmesg`): check the disk, mount it for writing, and start again",
                path.display()
            ),
            Self::Denied { path, doing } => write!(
                f,
                "{}: no permission to {doing}; give it to this user (`ls -ld` shows whose it is), or \
                 start as its owner",
                path.display()
            ),
            Self::Io { path, doing, source } => {
                write!(f, "{}: cannot {doing}: {source}", path.display())?;
                if source.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error()) {
                    f.write_str(
                        "; the disk fails (`dmesg`): replace it, and start this process anew from the \
                         others' state",
                    )?;
                }
                Ok(())
            }
            Self::Options { says } => f.write_str(says),
        }
    }
}

impl std::error::Error for StorageError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

impl Damage {
    /// The flaw, without the remedy.
    pub fn says(&self) -> String {
        let flaw = match self.what {
            Flaw::Head => "is not there, though it was synced",
            Flaw::Bytes => "does not fit its sum, though it was synced",
            Flaw::Segment => "should begin this segment, which is missing or is another one",
            Flaw::Length => "and what is behind it are gone: the file is shorter than it was made",
            Flaw::End => {
                "is not there, though it was synced: the log was cut short, as the file `synced` says"
            }
            Flaw::Front => {
                "should begin this segment, which is missing: the log has lost its first segments, and they were not \
                 trimmed, as the file `synced` says"
            }
        };
        let path = self.path.display();
        let offset = self.offset;
        let number = self.number;
        format!("{path}: damaged at byte {offset}: record {number} {flaw}")
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let log = self.path.parent().unwrap_or(&self.path).display();
        write!(
            f,
            "{}; nothing was changed. Where a majority of the other nodes works, have the process \
             start anew from the others' state (no older copy: it would lack what was promised since); \
             `amcast log-file verify {log}` shows what is whole, `amcast log-file repair {log}` says what \
             a cut there would lose: where the others do not work, that loses less than starting anew",
            self.says()
        )
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Disk => "the disk is full; make room there (`df`), and start again",
            Self::Quota => {
                "this user may not have more on the disk (`quota`); make room there or raise that, and \
                 start again"
            }
            Self::FileSize => {
                "a file may not be longer (`ulimit -f`); raise that or choose smaller segments, and \
                 start again"
            }
        })
    }
}

impl Misfit {
    /// The flaw of the file of messages that are skipped.
    fn of_skips(self) -> String {
        match self {
            Self::Short => "is not as long as it says".to_string(),
            Self::Sum => "is damaged: it does not fit its sums".to_string(),
            Self::Nonsense => "is damaged: what it says cannot be".to_string(),
            other => other.to_string(),
        }
    }
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short => f.write_str("was cut off in its head; see `amcast log-file`"),
            Self::Magic => f.write_str("is not a file of this kind; give the right one"),
            Self::Version { found, newest } => write!(
                f,
                "has version {found} of its format, and this program knows those up to {newest}; use a \
                 newer program"
            ),
            Self::Sum => {
                f.write_str("is damaged: its head does not fit its sum; see `amcast log-file`")
            }
            Self::Nonsense => {
                f.write_str("is damaged: its head makes no sense; see `amcast log-file`")
            }
            Self::OtherLog => f.write_str(
                "belongs to another log; put it back where it was, and the right one here",
            ),
            Self::OtherOwner(LogOwnerId(owner)) => write!(
                f,
                "is the log of another owner ({owner:#018x}): it was copied or moved here; put it back \
                 where it was, and the right one here"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;

    #[test]
    fn a_failed_sync_may_lose_what_was_written_and_a_lack_of_room_does_not() {
        let lost = |doing, errno: Errno| {
            let e = io::Error::from_raw_os_error(errno.raw_os_error());
            StorageError::of(Path::new("/log/x"), doing, e).may_lose_written()
        };
        assert!(lost(SYNC, Errno::IO) && lost(SYNC, Errno::NOSPC) && lost(SYNC, Errno::DQUOT));
        assert!(lost("write to it", Errno::IO) && lost("write to it", Errno::ROFS));
        for errno in [Errno::NOSPC, Errno::DQUOT, Errno::FBIG, Errno::MFILE, Errno::ACCESS] {
            assert!(!lost("write to it", errno) && !lost("make it", errno), "{errno}");
        }
    }

    #[test]
    fn errors_of_the_system_are_told_apart_with_what_to_do() {
        let of = |errno: Errno| {
            StorageError::of(
                Path::new("/log/x"),
                "write to it",
                io::Error::from_raw_os_error(errno.raw_os_error()),
            )
        };
        let told = [
            (Errno::NOSPC, "/log/x: the disk is full; make room"),
            (Errno::DQUOT, "/log/x: this user may not have more"),
            (Errno::FBIG, "/log/x: a file may not be longer (`ulimit -f`)"),
            (Errno::ROFS, "/log/x: the file system is for reading only"),
            (Errno::ACCESS, "/log/x: no permission to write to it"),
            (Errno::PERM, "/log/x: no permission to write to it"),
            (Errno::NOENT, "/log/x: is missing"),
            (Errno::IO, "the disk fails (`dmesg`): replace it"),
        ];
        for (errno, words) in told {
            let e = of(errno);
            assert!(e.to_string().contains(words), "{e}");
            let full = matches!(errno, Errno::NOSPC | Errno::DQUOT | Errno::FBIG);
            assert_eq!(e.may_pass(), full, "{e}");
        }
        assert!(!of(Errno::NOMEM).to_string().contains("replace"), "the disk is not to blame");
    }
}

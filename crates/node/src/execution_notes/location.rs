//! Where the file of a node's notes is: in memory, so that no note waits for the disk.
//!
//! A store into a mapped file of a disk's file system may wait for that disk: the kernel writes the page back every few
//! seconds, the next store faults, and the fault changes the file's times, which waits for the file system's journal. A disk
//! that hangs would hang the loop of its node, and one that is slow would make others suspect the node. A tmpfs has no
//! journal, and outlasts the process as well.
//!
//! All users may make files in the shared memory, and all clusters of the machine have theirs there. So the name has the
//! word of the node's disk and the inode of its directory, a file counts only if it is of the owner of that directory, and
//! where none can be made there the notes are in the directory. So they are in a container: its shared memory mostly ends with
//! it, and it with its first process, be that this program, an init or a shell. Notes that are lost cannot name a command that
//! ends every node, while those on a disk only wait for it.

use crate::config::node_rank;
use crate::peer_registry::disk_number;
use amcast_memory::MappedFile;
use rustix::fs::OFlags;
use std::env;
use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The name of the file in the node's directory.
pub(super) const NAME: &str = "executing";

/// The beginning of its name in the shared memory.
const PREFIX: &str = "amcast-executing-";

/// Where a machine has its shared memory.
const SHARED_MEMORY: &str = "/dev/shm";

/// No file of notes is longer, in bytes.
const BYTES_MAX: u64 = 1 << 20;

/// The places of a node's notes. At one time one of them has a file; while a start changes the place both have the same.
pub(super) struct NotesLocation {
    data: PathBuf,
    /// In the shared memory, if the machine has any and the node a name there.
    memory: Option<PathBuf>,
    /// The shared memory outlasts the program, as far as is known.
    outlasts: bool,
}

/// Whether what is at `path` is in memory.
fn is_in_memory(path: &Path) -> bool {
    const TMPFS: i64 = 0x0102_1994;
    rustix::fs::statfs(path).is_ok_and(|system| system.f_type == TMPFS)
}

/// Whether the shared memory may end with this program, as in most containers.
fn may_end_with_program() -> bool {
    let program = |process: &str| fs::read_link(format!("/proc/{process}/exe")).ok();
    let is_first = program("1").is_some_and(|first| program("self") == Some(first));
    is_first || is_of_container(Path::new("/"), env::var_os("container").as_deref())
}

/// Whether a process is in a container, by the directory that is its root and its variable `container`.
fn is_of_container(root: &Path, variable: Option<&OsStr>) -> bool {
    // Docker makes the first file, and Podman the second one. Podman and systemd-nspawn set the variable.
    let is_marked = [".dockerenv", "run/.containerenv"].iter().any(|mark| root.join(mark).exists());
    is_marked || variable.is_some_and(|name| !name.is_empty())
}

/// The name in the shared memory of the notes of the node with the directory `data`, if its disk has a word.
fn name_in_memory(data: &Path) -> Option<String> {
    let rank = node_rank(data.file_name()?.to_str()?.strip_suffix(".data")?)?;
    let disk = Some(disk_number(data, rank)).filter(|disk| *disk != 0)?;
    // A copy of the directory has the same word, and a directory that was moved aside keeps its notes.
    let inode = fs::metadata(data).ok()?.ino();
    Some(format!("{PREFIX}{disk:016x}-{inode:x}"))
}

impl NotesLocation {
    /// Of the node with the directory `data`.
    pub(super) fn of(data: &Path) -> Self {
        let shared = Path::new(SHARED_MEMORY);
        match is_in_memory(shared) && !is_in_memory(data) {
            true => Self { outlasts: !may_end_with_program(), ..Self::within(shared, data) },
            false => Self { data: data.to_path_buf(), memory: None, outlasts: false },
        }
    }

    /// The same where the shared memory is in the directory `shared`, and outlasts the program.
    pub(super) fn within(shared: &Path, data: &Path) -> Self {
        let memory = name_in_memory(data).map(|name| shared.join(name));
        Self { data: data.to_path_buf(), memory, outlasts: true }
    }

    /// The file there is; none if there is none.
    ///
    /// # Errors
    /// When the one in the node's directory cannot be read.
    pub(super) fn read(&self) -> io::Result<Vec<u8>> {
        match fs::read(self.data.join(NAME)) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            // Of an older program, or of a start that found no place in the shared memory: that one was later.
            read => return read,
        }
        let Some(memory) = &self.memory else { return Ok(Vec::new()) };
        match self.read_memory(memory) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                tracing::warn!("{}: {e}: what it says is not used", memory.display());
                Ok(Vec::new())
            }
            read => Ok(read.unwrap_or_default()),
        }
    }

    /// Reads the file in the shared memory. Another user may have put anything there.
    fn read_memory(&self, path: &Path) -> io::Result<Vec<u8>> {
        let mut options = OpenOptions::new();
        // A FIFO does not block, and a symbolic link is not followed.
        let flags = OFlags::NONBLOCK | OFlags::NOFOLLOW;
        let file = options.read(true).custom_flags(flags.bits() as i32).open(path)?;
        let (found, own) = (file.metadata()?, rustix::process::geteuid().as_raw());
        let is_of_owner = found.uid() == own || found.uid() == fs::metadata(&self.data)?.uid();
        if !found.is_file() || !is_of_owner || found.mode() & 0o077 != 0 {
            return Err(io::Error::other("it is not a file of this node's user alone"));
        }
        let mut bytes = Vec::new();
        file.take(BYTES_MAX).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Makes the file anew, with `bytes` in it, and removes one at the other place. Also gives its path if it is in the shared
    /// memory.
    ///
    /// # Errors
    /// When no file can be made, or the one in the node's directory cannot be removed.
    pub(super) fn create(&self, bytes: &[u8]) -> io::Result<(MappedFile, Option<PathBuf>)> {
        let beside = self.data.join(NAME);
        if let Some(memory) = self.memory.as_ref().filter(|_| self.outlasts) {
            match MappedFile::create(memory, bytes) {
                Ok(file) => {
                    gone(&beside)?;
                    return Ok((file, Some(memory.clone())));
                }
                Err(e) => tracing::warn!(
                    "{}: {e}: what is executed is noted in {}, and may wait for that disk",
                    memory.display(),
                    beside.display()
                ),
            }
        }
        let file = MappedFile::create(&beside, bytes)?;
        self.remove_from_memory();
        Ok((file, None))
    }

    /// Removes the file in the shared memory, if there is one of this user.
    pub(super) fn remove_from_memory(&self) {
        if let Some(Err(e)) = self.memory.as_deref().map(gone) {
            tracing::debug!("{}: {e}", self.data.display());
        }
    }
}

/// Removes a file, if it is there.
pub(super) fn gone(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    /// The directory of a node whose disk has a word, and a directory in the place of the shared memory.
    pub(crate) struct NotesTestDir {
        base: PathBuf,
        pub(crate) data: PathBuf,
    }

    impl NotesTestDir {
        pub(crate) fn new(name: &str) -> Self {
            let base = std::env::temp_dir().join(format!("amcast-{name}-{}", std::process::id()));
            let data = base.join("n1.data");
            fs::create_dir_all(&data).unwrap();
            fs::create_dir_all(base.join("memory")).unwrap();
            fs::write(base.join("n1.disk"), "17.4").unwrap();
            Self { base, data }
        }

        pub(crate) fn location(&self) -> NotesLocation {
            NotesLocation::within(&self.base.join("memory"), &self.data)
        }

        /// Whether there are notes in the node's directory, and how many files in the place of the shared memory.
        pub(crate) fn files(&self) -> (bool, usize) {
            let shared = fs::read_dir(self.base.join("memory")).unwrap().count();
            (self.data.join(NAME).exists(), shared)
        }
    }

    impl Drop for NotesTestDir {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.base).unwrap();
        }
    }

    #[test]
    fn notes_are_in_memory_where_the_machine_has_such_a_place() {
        let dir = NotesTestDir::new("notes-place");
        let shared = Path::new(SHARED_MEMORY);
        let location = NotesLocation::of(&dir.data);
        match is_in_memory(shared) && !is_in_memory(&dir.data) {
            true => {
                let path = location.memory.as_ref().unwrap();
                assert_eq!(path.parent(), Some(shared));
                let (_file, made) = location.create(&[7; 64]).unwrap();
                assert_eq!(made.as_ref(), Some(path).filter(|_| !may_end_with_program()));
                assert!(made.is_none_or(|made| is_in_memory(&made)));
                location.remove_from_memory();
                assert!(!path.exists());
            }
            false => assert_eq!(location.memory, None),
        }
        // Without a word it has no name that no other node has.
        fs::remove_file(dir.base.join("n1.disk")).unwrap();
        assert_eq!(NotesLocation::of(&dir.data).memory, None);
    }

    #[test]
    fn in_a_container_notes_are_in_the_directory_also_behind_an_init() {
        let dir = NotesTestDir::new("notes-container");
        let is_marked = |variable: &str| is_of_container(&dir.base, Some(OsStr::new(variable)));
        assert!(!is_of_container(&dir.base, None) && !is_marked("") && is_marked("podman"));
        fs::create_dir(dir.base.join("run")).unwrap();
        for mark in [".dockerenv", "run/.containerenv"] {
            fs::write(dir.base.join(mark), "").unwrap();
            assert!(is_of_container(&dir.base, None), "{mark}");
            fs::remove_file(dir.base.join(mark)).unwrap();
        }
        // Of a program that looked at the first process alone.
        drop(dir.location().create(&[7; 64]).unwrap());
        let contained = || NotesLocation { outlasts: false, ..dir.location() };
        assert_eq!(contained().read().unwrap(), [7; 64]);
        let (_file, made) = contained().create(&[8; 64]).unwrap();
        assert_eq!((made, dir.files()), (None, (true, 0)));
        assert_eq!(contained().read().unwrap(), [8; 64]);
    }

    #[test]
    fn each_directory_has_notes_of_its_own_and_a_copy_has_none() {
        let dir = NotesTestDir::new("notes-names");
        let (_file, made) = dir.location().create(&[7; 64]).unwrap();
        let made = made.unwrap();
        assert_eq!(fs::metadata(&made).unwrap().mode() & 0o777, 0o600);
        assert_eq!(dir.location().read().unwrap(), [7; 64]);
        let copy = dir.base.join("copy");
        fs::create_dir_all(copy.join("n1.data")).unwrap();
        fs::copy(dir.base.join("n1.disk"), copy.join("n1.disk")).unwrap();
        let copied = NotesLocation::within(&dir.base.join("memory"), &copy.join("n1.data"));
        assert_eq!(copied.read().unwrap(), b"");
        // It is moved with all that is in it.
        let moved = dir.base.join("moved");
        fs::create_dir(&moved).unwrap();
        fs::rename(&dir.data, moved.join("n1.data")).unwrap();
        fs::rename(dir.base.join("n1.disk"), moved.join("n1.disk")).unwrap();
        let moved = NotesLocation::within(&dir.base.join("memory"), &moved.join("n1.data"));
        assert_eq!(moved.read().unwrap(), [7; 64]);
    }

    #[test]
    fn what_another_user_put_there_is_not_read_and_the_notes_are_in_the_directory() {
        let _limit = amcast_test_policy::time_limit();
        let dir = NotesTestDir::new("notes-hostile");
        let location = dir.location();
        let path = location.memory.clone().unwrap();
        let other = dir.base.join("other");
        fs::write(&other, [9; 64]).unwrap();
        fs::set_permissions(&other, fs::Permissions::from_mode(0o600)).unwrap();
        symlink(&other, &path).unwrap();
        assert_eq!(location.read().unwrap(), b"", "a link is not followed");
        fs::remove_file(&path).unwrap();
        mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        assert_eq!(location.read().unwrap(), b"", "nobody waits for a writer");
        fs::remove_file(&path).unwrap();
        fs::rename(&other, &path).unwrap();
        assert_eq!(location.read().unwrap(), [9; 64]);
        // Only the superuser may give files away.
        if chown(&path, Some(54_321), None).is_ok() {
            assert_eq!(location.read().unwrap(), b"", "it is of another user");
            chown(&path, Some(rustix::process::geteuid().as_raw()), None).unwrap();
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o622)).unwrap();
        assert_eq!(location.read().unwrap(), b"", "others may write in it");
        fs::remove_file(&path).unwrap();
        // Nothing can be put in the place of a directory.
        fs::create_dir(&path).unwrap();
        let (_file, made) = location.create(&[7; 64]).unwrap();
        assert_eq!((made, dir.files()), (None, (true, 1)), "no half of a file is left");
        assert_eq!(location.read().unwrap(), [7; 64]);
        fs::remove_dir(&path).unwrap();
        let (_file, made) = location.create(&[8; 64]).unwrap();
        assert_eq!((made, dir.files()), (Some(path), (false, 1)));
        assert_eq!(location.read().unwrap(), [8; 64]);
    }
}

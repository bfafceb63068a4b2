//! The identity of a node's disk, written beside the node's data; and the check whether it is still
//! that disk.
//!
//! A copy of the directory has all its contents, but not the same file that counts the
//! incarnations: the copied file has an inode and a time of birth of its own. So both are written
//! down beside it. A directory that is moved within its file system keeps them.

use crate::cluster_dir::{LogLocation, begin_anew_words, write_private, write_synced};
use crate::config::node_name;
use crate::incarnation::ProcessName;
use crate::system::refuses_file;
use amcast_core::GroupSet;
use serde::{Deserialize, Serialize};
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// The identity of a node's disk.
#[derive(Clone, Debug)]
pub(crate) struct DiskRecord {
    /// The directory.
    dir: PathBuf,
    /// The node's name.
    node: String,
    /// There until the node has had its place among the others on this disk for the first time.
    joining: PathBuf,
    /// There once another node refused it; why.
    refused: PathBuf,
    /// Which file counts the lives.
    inode: PathBuf,
}

/// Which file it is, however it is called.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Inode {
    inode: u64,
    /// When it was made, in nanoseconds since 1970, where the file system knows it.
    born_ns: Option<u64>,
}

impl Inode {
    fn of(file: &Metadata) -> Self {
        let born = file.created().ok().and_then(|born| born.duration_since(UNIX_EPOCH).ok());
        let born_ns = born.and_then(|since| u64::try_from(since.as_nanos()).ok());
        Self { inode: file.ino(), born_ns }
    }

    fn is(&self, other: &Self) -> bool {
        // A kernel may learn to tell when files were made.
        let same_birth = match (self.born_ns, other.born_ns) {
            (Some(one), Some(other)) => one == other,
            _ => true,
        };
        self.inode == other.inode && same_birth
    }
}

impl DiskRecord {
    /// Of the node `rank` with this directory.
    pub(crate) fn of(dir: &Path, rank: usize) -> Self {
        let node = node_name(rank);
        let at = |rest: &str| dir.join(format!("{node}.{rest}"));
        let joining = at("joining");
        let refused = at("refused");
        let inode = at("inode");
        Self { dir: dir.to_path_buf(), node, joining, refused, inode }
    }

    /// Checks that the node may start from it, whose name is taken and whose processes have logs in
    /// these groups; and has it say what is new of it, before a life begins.
    ///
    /// # Errors
    /// When it may not; the sentence says what to do.
    pub(crate) fn prepare(
        &self,
        name: &ProcessName,
        keeping: &LogLocation,
        groups: GroupSet,
    ) -> Result<(), String> {
        self.check()?;
        let has_logs = keeping.begun.exists()
            || groups.iter().any(|g| keeping.path.join(g.to_string()).exists());
        if has_logs && !name.is_lived_under() {
            let life = name.path().display();
            let node = &self.node;
            return Err(format!(
                "{life} is not there or is empty, and {node} has logs here: it counts the lives of {node}, which \
                 must not be given out again. Bring the file back, or {}",
                begin_anew_words(&self.dir, node)
            ));
        }
        self.check_inode(name)?;
        if !keeping.begun.exists() {
            write_synced(&self.joining, b"").map_err(|e| refuses_file(&self.joining, &e))?;
            if keeping.lived {
                keeping.begin_anew(groups).map_err(|(path, e)| refuses_file(&path, &e))?;
            }
        }
        Ok(())
    }

    /// Checks that no other node refused it before.
    ///
    /// # Errors
    /// When one did; the sentence says what to do.
    pub(crate) fn check(&self) -> Result<(), String> {
        match fs::read_to_string(&self.refused) {
            Ok(why) => Err(format!("{} (written in {})", why.trim(), self.refused.display())),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(e) => Err(format!("{}: {e}", self.refused.display())),
        }
    }

    /// Checks that the file that counts the lives is the one that it was, and not a copy. Which one it is
    /// is written down if it was not yet.
    fn check_inode(&self, name: &ProcessName) -> Result<(), String> {
        let wrong = |e: io::Error| refuses_file(&self.inode, &e);
        let now = name.metadata().map_err(|e| refuses_file(name.path(), &e))?;
        let now = Inode::of(&now);
        let text = match fs::read(&self.inode) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                let text = serde_json::to_vec(&now).map_err(|e| wrong(e.into()))?;
                return write_synced(&self.inode, &text).map_err(wrong);
            }
            read => read.map_err(wrong)?,
        };
        if serde_json::from_slice::<Inode>(&text).is_ok_and(|before| before.is(&now)) {
            return Ok(());
        }
        let dir = self.dir.display();
        let node = &self.node;
        let life = name.path().display();
        Err(format!(
            "{dir} is a copy: {life} is not the file in which {node} counted its lives, as {} says. If \
             {node} ran while it was copied, or anywhere since, what it promised is not all here: {}. \
             If it was moved or copied while {node} was down, and {node} \
             did not run since, remove {} to continue from here; so do for all nodes where all of them are restored \
             from one backup, made while all were stopped (docs/deploy.md, Backup and restore)",
            self.inode.display(),
            begin_anew_words(&self.dir, node),
            self.inode.display()
        ))
    }

    /// Whether the node never had its place on it yet.
    pub(crate) fn is_joining(&self) -> bool {
        self.joining.exists()
    }

    /// It has its place.
    pub(crate) fn has_joined(&self) {
        match fs::remove_file(&self.joining) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                tracing::warn!("{}: {e}", self.joining.display());
            }
            _ => {}
        }
    }

    /// Whether another node refused it, so that no later start may count on it.
    pub(crate) fn was_refused(&self) -> bool {
        self.refused.exists()
    }

    /// A later start may count on it again, as far as this node decides that. Gives whether none might.
    ///
    /// # Errors
    /// When the file that says so cannot be removed.
    pub(crate) fn forget_refusal(&self) -> Result<bool, String> {
        match fs::remove_file(&self.refused) {
            Ok(()) => Ok(true),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(e) => Err(refuses_file(&self.refused, &e)),
        }
    }

    /// Another one took its place: no later start may count on it. Gives why it ends.
    pub(crate) fn is_refused(&self, why: String) -> String {
        // A start that counted a life more would be let in at some time.
        match write_private(&self.refused, why.as_bytes()) {
            Ok(()) => why,
            Err(e) => format!("{why} ({}: {e})", self.refused.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster_dir::life_name;
    use crate::log_owner::LogOwner;
    use amcast_core::Gid;

    /// A directory of its own for a test, with the disk of n1 in it.
    struct DiskTestDir(PathBuf);

    impl DiskTestDir {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("amcast-{name}-{}", std::process::id()));
            fs::create_dir_all(path.join("d1")).unwrap();
            Self(path)
        }

        fn keeping(&self, dir: &str) -> LogLocation {
            let dir = self.0.join(dir);
            LogLocation {
                path: dir.join("n1.data"),
                begun: dir.join("n1.begun"),
                holds: false,
                lasts: true,
                lived: false,
                first_life: 0,
                owner: LogOwner::of(1, 1),
            }
        }

        /// A start from the directory `dir`; its life begins if it may.
        fn start(&self, dir: &str, keeping: &LogLocation) -> Result<u32, String> {
            let dir = self.0.join(dir);
            let name = ProcessName::take(&dir.join(life_name(1))).unwrap().unwrap();
            DiskRecord::of(&dir, 1).prepare(&name, keeping, groups())?;
            Ok(name.begin(0).unwrap().number())
        }
    }

    impl Drop for DiskTestDir {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).unwrap();
        }
    }

    fn groups() -> GroupSet {
        (0..2).map(Gid).collect()
    }

    fn copy(from: &Path, to: &Path) {
        fs::create_dir(to).unwrap();
        for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
            fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }

    #[test]
    fn a_disk_that_was_refused_says_so_at_each_start() {
        let place = DiskTestDir::new("refused");
        let disk = DiskRecord::of(&place.0.join("d1"), 1);
        assert!(disk.check().is_ok() && !disk.is_joining());
        place.start("d1", &place.keeping("d1")).unwrap();
        assert!(disk.is_joining());
        disk.has_joined();
        assert!(!disk.is_joining());
        assert_eq!(disk.is_refused("it was replaced".to_string()), "it was replaced");
        let why = place.start("d1", &place.keeping("d1")).unwrap_err();
        assert!(why.starts_with("it was replaced") && why.contains("n1.refused"), "{why}");
        assert!(!disk.is_joining(), "nothing was written");
    }

    #[test]
    fn a_directory_that_was_moved_is_gone_on_from_and_a_copy_only_if_a_person_says_so() {
        let place = DiskTestDir::new("copied");
        let [d1, moved, copied] = ["d1", "moved", "copied"].map(|name| place.0.join(name));
        let start = |dir: &str| place.start(dir, &place.keeping(dir));
        assert_eq!((start("d1"), start("d1")), (Ok(0), Ok(1)));
        fs::rename(&d1, &moved).unwrap();
        assert_eq!(start("moved"), Ok(2));
        copy(&moved, &copied);
        for _ in 0..2 {
            let why = start("copied").unwrap_err();
            assert!(why.contains("copied is a copy") && why.contains("n1.inode"), "{why}");
        }
        assert_eq!(start("moved"), Ok(3), "the copy took nothing from it");
        fs::remove_file(copied.join("n1.inode")).unwrap();
        assert_eq!((start("copied"), start("copied")), (Ok(3), Ok(4)));
        // One that versions before left says nothing, and one that cannot be read does not say this.
        fs::remove_file(moved.join("n1.inode")).unwrap();
        assert_eq!((start("moved"), start("moved")), (Ok(4), Ok(5)));
        fs::write(moved.join("n1.inode"), "").unwrap();
        assert!(start("moved").is_err());
    }

    #[test]
    fn where_a_file_system_does_not_know_when_files_were_made_their_numbers_count() {
        let inode = |inode, born_ns| Inode { inode, born_ns };
        assert!(inode(3, None).is(&inode(3, Some(7))) && inode(3, Some(7)).is(&inode(3, Some(7))));
        assert!(!inode(3, Some(7)).is(&inode(3, Some(8))), "the number was given to another file");
        assert!(!inode(3, None).is(&inode(4, None)));
    }

    #[test]
    fn a_count_of_lives_that_is_gone_is_no_first_life_where_there_are_logs() {
        let place = DiskTestDir::new("uncounted");
        let (dir, keeping) = (place.0.join("d1"), place.keeping("d1"));
        // Interrupted before the number was written: there are no logs yet.
        fs::write(dir.join("n1.life"), "").unwrap();
        assert_eq!(place.start("d1", &keeping), Ok(0));
        let told = || {
            fs::write(dir.join("n1.life"), "").unwrap();
            let why = place.start("d1", &keeping).unwrap_err();
            assert!(
                why.contains("n1.life is not there or is empty")
                    && why.contains("n1.*, and no file"),
                "{why}"
            );
            assert_eq!(fs::read(dir.join("n1.life")).unwrap(), b"");
        };
        fs::create_dir_all(keeping.path.join("g1")).unwrap();
        told();
        fs::remove_dir_all(&keeping.path).unwrap();
        keeping.begun().unwrap();
        told();
    }

    #[test]
    fn one_that_may_have_lived_says_for_good_that_it_asks_and_has_its_logs_marked() {
        let place = DiskTestDir::new("anew");
        let mut keeping = place.keeping("d1");
        place.start("d1", &keeping).unwrap();
        assert!(!keeping.is_anew());
        // Its first start ended before its logs were all there.
        fs::create_dir_all(keeping.path.join("g0")).unwrap();
        keeping.has_lived(Some(3));
        place.start("d1", &keeping).unwrap();
        assert!(keeping.is_anew() && keeping.path.join("g0.lost").exists());
        // Also where nobody says so any more.
        let keeping = place.keeping("d1");
        assert!(keeping.is_anew() && keeping.is_begun());
    }
}

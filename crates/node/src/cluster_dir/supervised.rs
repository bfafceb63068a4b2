//! The cluster directory that a supervisor makes, has while it lives, and clears away.
//!
//! The holder of a cluster directory's lock may change it. The lock ends with its process, however
//! that ends: a cluster directory whose lock is free is left over, and the next start takes it over
//! or clears it away. A directory with durable data is continued; it is never cleared away.

use super::registry::is_foreign;
use super::transport::lived_in;
use super::{
    CLUSTER_STARTS, ClusterDir, ClusterDirError, ClusterRegistry, GatewayAddresses, PastProcesses,
    Transport, at, check_ours, not_made, private,
};
use crate::config::{ClusterFile, node_rank};
use crate::execution_notes::remove_notes;
use crate::ports::unique;
use crate::secret;
use crate::system::{sync_file, sync_name_of};
use amcast_core::ClusterShape;
use amcast_core::limits::REPLICAS_MAX;
use amcast_memory::{Directory, MemoryError};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// The prefix of clusters' directories, where we choose their names.
const PREFIX: &str = "amcast-up-";

/// The first words of a lock file: a directory that has one is a cluster's.
pub(super) const LOCK_WORDS: &str = "amcast up, process ";

/// The file in which a supervisor notes where its gateways listen.
pub(super) const LAST_PORTS: &str = "last.ports";

/// How often a lock that someone else has for a moment is tried again, and how long after.
const LOCK_TRIES: (u32, Duration) = (40, Duration::from_millis(5));

/// How long the nodes of a supervisor that was killed may take to end.
const ORPHAN_PATIENCE: Duration = Duration::from_secs(8);

/// Of how many clusters that failed the logs are kept, where we choose the names of directories.
const LOGS_KEPT: usize = 4;

/// The longest path of a socket, in bytes; `/n0.sock` is part of it.
pub(super) const SOCKET_PATH_MAX: usize = 107 - "/n0.sock".len();

/// The directory of a cluster that this process supervises. Dropping it without [`SupervisedDir::remove`]
/// leaves the files for the next start to clear.
#[derive(Debug)]
pub struct SupervisedDir {
    dir: ClusterDir,
    /// Whether the directory was there before.
    found: bool,
    registry: ClusterRegistry,
    entry: Option<PathBuf>,
    /// Its cluster is durable: the next one continues with its data.
    keeps: bool,
    _lock: File,
}

impl SupervisedDir {
    /// Makes the directory of a new cluster: at `path`, or at a place of its own. A directory in which a
    /// killed cluster left its files is taken over, and so is one in which the same cluster keeps
    /// something on disk. Clears what other clusters whose supervisor was killed have left in the usual
    /// place.
    ///
    /// # Errors
    /// When the directory cannot be made, is in use, has something else in it, such as what another
    /// cluster keeps, or others may write in it.
    pub fn create(
        path: Option<&Path>,
        file: &mut ClusterFile,
        registry: ClusterRegistry,
    ) -> Result<Self, ClusterDirError> {
        let is_new = registry.prepare()?;
        let made = Self::create_in(path, file, registry.clone());
        if made.is_err() && is_new {
            registry.remove_if_empty();
        }
        made
    }

    fn create_in(
        path: Option<&Path>,
        file: &mut ClusterFile,
        registry: ClusterRegistry,
    ) -> Result<Self, ClusterDirError> {
        let base = Directory::usual_base();
        let keeps = file.durable;
        clear_left_over(&base);
        let usual = || usual_in(&base);
        let path = std::path::absolute(path.map_or_else(usual, Path::to_path_buf))
            .map_err(at(path.unwrap_or(&base)))?;
        let length = path.as_os_str().len();
        if length > SOCKET_PATH_MAX {
            return Err(ClusterDirError::TooLong(path, length - SOCKET_PATH_MAX));
        }
        let found = path.exists();
        ClusterDir { path: path.clone() }.check_files(None)?;
        let mut lock = take(&path)?;
        // Nodes are started with this path, in any working directory.
        let path = path.canonicalize().map_err(at(&path))?;
        match ClusterDir::kept(&path)? {
            Some(kept) => go_on(&path, file, &kept)?,
            None if path.join("cluster.toml").exists() => take_over(&path)?,
            None => {}
        }
        let dir = ClusterDir { path };
        let lock_path = dir.path.join("lock");
        let words = format!("{LOCK_WORDS}{}\n", std::process::id());
        // At no time is it without words: they tell that the directory is a cluster's.
        let written =
            lock.write_all(words.as_bytes()).and_then(|()| lock.set_len(words.len() as u64));
        written.map_err(at(&lock_path))?;
        let mut written = file.clone();
        // Nodes of it talk to each other: other users of the machine cannot speak for one.
        let own = dir.path.join(SECRET);
        let is_own = |path: &PathBuf| path.canonicalize().is_ok_and(|path| path == own);
        if !file.nodes.is_empty() && file.secret.as_ref().is_none_or(is_own) {
            secret::make(&own).map_err(at(&own))?;
            file.secret = Some(own);
            // The directory may be moved before it is used again.
            written.secret = Some(SECRET.into());
        }
        let new = dir.path.join("cluster.toml.new");
        written.write(&new).map_err(ClusterDirError::File)?;
        fs::rename(&new, dir.file_path()).map_err(at(&new))?;
        if keeps {
            // An empty lock beside nodes' data would be taken for that of nodes without a supervisor.
            sync_file(&lock, &lock_path).map_err(at(&lock_path))?;
            // The nodes' data are of no use without it.
            let all = |path: &Path| File::open(path).and_then(|file| file.sync_all());
            all(&dir.file_path()).and_then(|()| all(&dir.path)).map_err(at(&dir.path))?;
            sync_name_of(&dir.path).map_err(at(&dir.path))?;
        }
        Ok(Self { dir, found, registry, entry: None, keeps, _lock: lock })
    }

    /// The cluster directory.
    pub fn dir(&self) -> &ClusterDir {
        &self.dir
    }

    /// Says where the gateways listen, and that this cluster runs.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn announce(&mut self, gateways: &GatewayAddresses) -> Result<(), ClusterDirError> {
        self.dir.write("fronts.json", gateways)?;
        self.dir.write(LAST_PORTS, gateways)?;
        self.entry = Some(self.registry.enter(&self.dir.path)?);
        Ok(())
    }

    /// No node was started: only what was there before, if `before` there was anything, is kept.
    pub fn keep_only(&mut self, before: bool) {
        self.keeps &= before;
    }

    /// Removes what belongs to the cluster, and the directory if it was made for it and nothing
    /// else is in it. Every process of the cluster has ended. With `keep_logs` the nodes' logs stay.
    /// The cluster's durable data stay, with the files that are needed to continue with them, and the nodes' logs.
    ///
    /// # Errors
    /// When something cannot be removed.
    pub fn remove(self, ground: &Transport, keep_logs: bool) -> Result<(), ClusterDirError> {
        if let Some(entry) = &self.entry {
            gone(fs::remove_file(entry)).map_err(at(entry))?;
        }
        ground.remove()?;
        let path = &self.dir.path;
        if self.keeps {
            clear(path, true, &[RetainedFiles::Lock, RetainedFiles::Data])?;
            tracing::info!("{}: keeps its data, for the next start there", path.display());
            return Ok(());
        }
        wipe(path, keep_logs)?;
        let gone = !self.found && remove_if_empty(path)?;
        if gone {
            return Ok(());
        }
        if keep_logs && has(path, is_log) {
            tracing::warn!("the logs of the nodes are in {}", path.display());
        }
        if !self.found && has(path, |name| !is_log(name)) {
            tracing::warn!("{}: stays, since something else is in it", path.display());
        }
        Ok(())
    }
}

/// Where the directory of this process is, where nobody says so, among others of any user.
pub(super) fn usual_in(base: &Path) -> PathBuf {
    let usual = base.join(format!("{PREFIX}{}", std::process::id()));
    // Everybody may make one there; a name that nobody knows nobody has taken.
    match is_foreign(&usual) {
        true => base.join(format!("{PREFIX}{}-{:x}", std::process::id(), unique())),
        false => usual,
    }
}

/// Makes the directory if need be and takes its lock.
fn take(path: &Path) -> Result<File, ClusterDirError> {
    let lock_path = path.join("lock");
    for _ in 0..LOCK_TRIES.0 {
        // One look: between two, another process that clears directories may remove it.
        if fs::metadata(path).is_ok_and(|found| !found.is_dir()) {
            return Err(ClusterDirError::NotDirectory(path.to_path_buf()));
        }
        // Another process that clears directories may remove it again before it is locked.
        match DirBuilder::new().mode(0o700).create(path) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && path.is_symlink() => {
                if fs::metadata(path).is_err() {
                    return Err(ClusterDirError::Dangling(path.to_path_buf()));
                }
            }
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            // Its parent was never made by us, and is not made for a cluster that fails.
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                return Err(not_made(path));
            }
            Err(e) => return Err(at(path)(e)),
        }
        // It may have been there: then others may see what it is called, but not change anything.
        match check_ours(path, 0o022) {
            Err(ClusterDirError::Io(_, e)) if e.kind() == io::ErrorKind::NotFound => continue,
            checked => checked?,
        }
        let (made, opened) = match private().read(true).create_new(true).open(&lock_path) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                (false, OpenOptions::new().read(true).write(true).open(&lock_path))
            }
            made => (true, made),
        };
        let lock = match opened {
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            opened => opened.map_err(at(&lock_path))?,
        };
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => thread::sleep(LOCK_TRIES.1),
            Err(e) => return Err(at(&lock_path)(e.into())),
            Ok(()) if !is_at(&lock, &lock_path) => {}
            Ok(()) => {
                let Some(foreign) = foreign(path)? else { return Ok(lock) };
                if made {
                    gone(fs::remove_file(&lock_path)).map_err(at(&lock_path))?;
                }
                return Err(foreign);
            }
        }
    }
    let who = fs::read_to_string(&lock_path).unwrap_or_default();
    Err(ClusterDirError::InUse(path.to_path_buf(), who.trim_end().to_string()))
}

/// Whether `file` is what is at `path`: it may have been removed since it was opened.
fn is_at(file: &File, path: &Path) -> bool {
    let same = |a: &fs::Metadata, b: &fs::Metadata| (a.dev(), a.ino()) == (b.dev(), b.ino());
    matches!((file.metadata(), fs::metadata(path)), (Ok(a), Ok(b)) if same(&a, &b))
}

/// Why the directory, whose lock we have, is no place for this cluster: something in it that no
/// supervisor has put there. Nothing if one has had it: then the rest is none of our business.
fn foreign(path: &Path) -> Result<Option<ClusterDirError>, ClusterDirError> {
    match PastProcesses::of(path) {
        PastProcesses::Supervised => return Ok(None),
        PastProcesses::Nodes(ranks) => {
            return Ok(Some(ClusterDirError::OfNodes(path.to_path_buf(), ranks)));
        }
        PastProcesses::None => {}
    }
    // A lock without words is ours, or of a cluster that was killed as it started.
    let lock = fs::read(path.join("lock")).map_err(at(path))?;
    let harmless = |name: &[u8]| is_log(name) || (name == b"lock" && lock.is_empty());
    let mut names = fs::read_dir(path).map_err(at(path))?.flatten().map(|entry| entry.file_name());
    let foreign = names.find(|name| !harmless(name.as_bytes()));
    Ok(foreign.map(|name| match name.as_bytes() {
        b"cluster.toml" => ClusterDirError::OnlyFile(path.to_path_buf()),
        _ => ClusterDirError::NotEmpty(path.to_path_buf(), name.to_string_lossy().into_owned()),
    }))
}

/// Prepares `path`, whose lock we have and in which the cluster `kept` keeps something on disk, for
/// the next run of it.
fn go_on(path: &Path, file: &ClusterFile, kept: &ClusterFile) -> Result<(), ClusterDirError> {
    let another = |why| ClusterDirError::Another(path.to_path_buf(), why);
    file.clone().go_on_from(kept).map_err(another)?;
    if file.id != kept.id {
        // It was found after this cluster had chosen its number.
        return Err(another("the data of another cluster is there".to_string()));
    }
    wait_for_orphans(path)?;
    clear(path, true, &[RetainedFiles::Lock, RetainedFiles::Data])?;
    divide_logs(path);
    Ok(())
}

/// Divides what nodes have said from what they say in this run of their cluster.
fn divide_logs(path: &Path) {
    let dir = ClusterDir { path: path.to_path_buf() };
    for log in (0..REPLICAS_MAX).map(|rank| dir.log(rank)).filter(|log| log.is_file()) {
        if let Err(e) = divide_log(&log) {
            tracing::warn!("{}: {e}", log.display());
        }
    }
}

/// Writes the line that divides runs into a log, also behind a line that a kill has cut.
fn divide_log(log: &Path) -> io::Result<()> {
    let mut log = OpenOptions::new().read(true).append(true).open(log)?;
    let mut last = [b'\n'];
    if let Some(at) = log.metadata()?.len().checked_sub(1) {
        log.read_exact_at(&mut last, at)?;
    }
    let end = if last == [b'\n'] { "" } else { "\n" };
    log.write_all(format!("{end}{CLUSTER_STARTS}\n").as_bytes())
}

/// Waits until no node without shared memory lives in `path` any more. They hold a lock while they
/// live, and end by themselves when their supervisor has.
fn wait_for_orphans(path: &Path) -> Result<(), ClusterDirError> {
    let begun = Instant::now();
    while let Some(node) = lived_in(path) {
        if begun.elapsed() >= ORPHAN_PATIENCE {
            return Err(ClusterDirError::NodeRuns(path.to_path_buf(), node));
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Clears away what a killed cluster left in `path`, whose lock we have.
fn take_over(path: &Path) -> Result<(), ClusterDirError> {
    let disorder = |why: String| ClusterDirError::LeftOver(path.to_path_buf(), why);
    let dir = ClusterDir { path: path.to_path_buf() };
    let file = dir.file().map_err(|e| disorder(e.to_string()))?;
    let cluster = ClusterShape::new(file.shards, file.replicas, file.clients);
    let cluster = cluster.map_err(|e| disorder(e.to_string()))?;
    let memory = dir.memory(cluster).map_err(|e| disorder(e.to_string()))?;
    wait_for_orphans(path)?;
    let begun = Instant::now();
    loop {
        match memory.remove() {
            Ok(()) => break,
            Err(MemoryError::Running { .. }) if begun.elapsed() < ORPHAN_PATIENCE => {
                thread::sleep(Duration::from_millis(20));
            }
            Err(MemoryError::Running { os_pid, .. }) => {
                return Err(ClusterDirError::StillRuns(path.to_path_buf(), os_pid));
            }
            Err(e) => return Err(disorder(e.to_string())),
        }
    }
    tracing::warn!(
        "{}: a cluster that was killed left its files there; they are removed, and a new one starts",
        path.display()
    );
    clear(path, true, &[RetainedFiles::Lock])?;
    divide_logs(path);
    Ok(())
}

/// Removes the cluster's files, the lock last.
fn wipe(path: &Path, keep_logs: bool) -> Result<(), ClusterDirError> {
    clear(path, keep_logs, &[])
}

/// The files that are not removed with the rest.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RetainedFiles {
    Lock,
    /// The files that belong to the nodes' data.
    Data,
}

/// Removes the cluster's files from the directory, but its shared memory.
fn clear(path: &Path, keep_logs: bool, keep: &[RetainedFiles]) -> Result<(), ClusterDirError> {
    if !keep.contains(&RetainedFiles::Data) {
        // Before the files by whose contents they are found.
        let entries = fs::read_dir(path).map_err(at(path))?.flatten();
        entries.filter(|e| is_data(e.file_name().as_bytes())).for_each(|e| remove_notes(&e.path()));
    }
    for entry in fs::read_dir(path).map_err(at(path))?.flatten() {
        let name = entry.file_name();
        if keep.contains(&RetainedFiles::Data) && goes_with_data(name.as_bytes()) {
            continue;
        }
        if is_data(name.as_bytes()) && !keep.contains(&RetainedFiles::Data) {
            gone(fs::remove_dir_all(entry.path())).map_err(at(&entry.path()))?;
        }
        if is_ours(name.as_bytes()) || (!keep_logs && is_log(name.as_bytes())) {
            gone(fs::remove_file(entry.path())).map_err(at(&entry.path()))?;
        }
    }
    let lock = path.join("lock");
    if keep.contains(&RetainedFiles::Lock) {
        return Ok(());
    }
    gone(fs::remove_file(&lock)).map_err(at(&lock))
}

/// The file of the secret that is made for a cluster.
const SECRET: &str = "secret";

/// Whether the data that nodes keep are of no use without the file of this name: the cluster's own, its secret,
/// the numbers of lives, which must not be given out again, who
/// had a log, and what nodes know of each other's disks; nor the ports, to which clients come back.
fn goes_with_data(name: &[u8]) -> bool {
    let end = name.iter().rposition(|byte| *byte == b'.').map(|dot| &name[dot + 1..]);
    let is_of_disk = end.and_then(|end| str::from_utf8(end).ok()).is_some_and(is_of_disk);
    name == b"cluster.toml" || name == SECRET.as_bytes() || is_of_disk || end == Some(b"ports")
}

/// Whether a file that ends so says of a disk what its node must know of it.
fn is_of_disk(end: &str) -> bool {
    let of_lives = matches!(end, "life" | "begun" | "inode" | "joining" | "refused");
    of_lives || matches!(end, "disk" | "anew" | "peers" | "decides")
}

/// Whether a cluster makes a file of this name; without lock and logs.
pub(super) fn is_ours(name: &[u8]) -> bool {
    let Ok(name) = str::from_utf8(name) else { return false };
    let name = name.strip_suffix(".new").unwrap_or(name);
    let of_node =
        |rest: &str| is_of_disk(rest) || matches!(rest, "sock" | "in" | "fronts.json" | "ports");
    let of_gateway = |n: &str| n.strip_prefix('c').is_some_and(|n| n.parse::<usize>().is_ok());
    matches!(name, "cluster.toml" | SECRET | "fronts.json" | LAST_PORTS | "nodes.json")
        || name.split_once('.').is_some_and(|(who, rest)| match node_rank(who) {
            Some(_) => of_node(rest),
            None => of_gateway(who) && rest == "life",
        })
}

/// Whether a node keeps something under this name.
pub(super) fn is_data(name: &[u8]) -> bool {
    let name = str::from_utf8(name).ok().and_then(|name| name.split_once('.'));
    name.is_some_and(|(node, rest)| node_rank(node).is_some() && rest == "data")
}

/// Whether a node's log has this name.
pub(super) fn is_log(name: &[u8]) -> bool {
    let name = str::from_utf8(name).ok().and_then(|name| name.split_once('.'));
    name.is_some_and(|(node, rest)| node_rank(node).is_some() && matches!(rest, "log" | "log.1"))
}

/// A file that is gone already needs no removal.
fn gone(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Removes the directory unless something is in it; whether it is gone.
fn remove_if_empty(path: &Path) -> Result<bool, ClusterDirError> {
    match gone(fs::remove_dir(path)) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(false),
        Err(e) => Err(at(path)(e)),
    }
}

/// Clears cluster directories whose supervisor was killed, where we choose their names, and those of which only logs
/// are left, but for the newest [`LOGS_KEPT`]. A directory that cannot be cleared is left alone: it may belong to a
/// cluster that is just starting or ending.
pub(super) fn clear_left_over(base: &Path) {
    let mut logs = Vec::new();
    let uid = rustix::process::getuid().as_raw();
    let Ok(entries) = fs::read_dir(base) else { return };
    for entry in entries.flatten() {
        let ours = entry.file_name().as_bytes().starts_with(PREFIX.as_bytes())
            && entry.metadata().is_ok_and(|m| m.is_dir() && m.uid() == uid);
        if !ours {
            continue;
        }
        let path = entry.path();
        let lock_path = path.join("lock");
        let Ok(lock) = File::open(&lock_path) else {
            // Killed before it was locked, or just being made: then it is made again.
            if fs::remove_dir(&path).is_err() && !has(&path, |name| !is_log(name)) {
                let written = entry.metadata().and_then(|m| m.modified()).ok();
                logs.push((written, path));
            }
            continue;
        };
        let locked = flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok();
        // Nobody else can lock it from here on; one that is just being made is made again.
        let foreign =
            || !matches!(foreign(&path), Ok(None)) || !matches!(ClusterDir::kept(&path), Ok(None));
        if !locked || !is_at(&lock, &lock_path) || foreign() || lived_in(&path).is_some() {
            continue;
        }
        match remove_left_over(&path) {
            Ok(true) => tracing::info!(
                "{}: left over by a cluster that was killed; removed",
                path.display()
            ),
            // Foreign files stay, and the directory is no cluster's any more.
            Ok(false) => {}
            // Its nodes are still ending; the next start looks again.
            Err(ClusterDirError::Memory(MemoryError::Running { .. })) => {}
            Err(e) => tracing::warn!("the files of a killed cluster are not removed: {e}"),
        }
    }
    logs.sort_unstable();
    let old = logs.len().saturating_sub(LOGS_KEPT);
    for (_, path) in &logs[..old] {
        // It has no lock, and one that is put there by now stays: then so does the directory.
        if let Err(e) =
            clear(path, false, &[RetainedFiles::Lock]).and_then(|()| remove_if_empty(path))
        {
            tracing::warn!("old logs are not removed: {e}");
        }
    }
}

/// Whether something of such a name is in the directory.
fn has(path: &Path, such: fn(&[u8]) -> bool) -> bool {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    entries.map(|e| e.file_name()).any(|name| such(name.as_bytes()))
}

/// Removes a killed cluster's files from `path`, whose lock we have, and the directory if nothing
/// else is in it; whether it is gone.
fn remove_left_over(path: &Path) -> Result<bool, ClusterDirError> {
    // The memory first: its processes may still be ending, and then the files are needed again.
    ClusterDir { path: path.to_path_buf() }.discard_memory()?;
    wipe(path, false)?;
    remove_if_empty(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_divided_also_behind_a_line_that_was_cut() {
        let _limit = amcast_test_policy::time_limit();
        let path = std::env::temp_dir().join(format!("amcast-divided-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        let dir = ClusterDir { path: path.clone() };
        let ends = "amcast n0: it is a copy\n";
        for (before, end) in [("", ""), (ends, ""), (&format!("{ends}2026-11-22T16"), "\n")] {
            fs::write(dir.log(0), before).unwrap();
            divide_logs(&path);
            let after = fs::read_to_string(dir.log(0)).unwrap();
            assert_eq!(after, format!("{before}{end}{CLUSTER_STARTS}\n"));
            assert_eq!(dir.last_words(0), None, "they are of the run before");
        }
        assert!(!dir.log(1).exists(), "a node that said nothing has no log");
        fs::remove_dir_all(&path).unwrap();
    }
}

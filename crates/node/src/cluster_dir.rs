//! The directory of a running cluster, with its file, its sockets and its shared memory.
//!
//! ```text
//! DIR/cluster.toml      what every process of the cluster reads
//! DIR/lock              locked by the supervisor while it lives; says which process that is
//! DIR/fronts.json       where the supervisor's gateways listen
//! DIR/n0.fronts.json    where those of a node listen
//! DIR/last.ports        where the supervisor's gateways listened last: the next one listens there again
//! DIR/n0.ports          where those of a node did
//! DIR/nodes.json        what the supervisor knows of the lives of its nodes
//! DIR/n0.sock           the control socket of a node
//! DIR/n0.log            the log of a node
//! DIR/amcast-..1/       the shared memory, for protocols that talk through it
//! DIR/n0.in             where a node takes commands of gateways, for protocols that send messages
//! DIR/n0.life           which life of the node is the next; locked while it lives
//! DIR/c0.life           the same of a gateway that is not a node's
//! DIR/n0.begun          is there if the processes of the node had logs before
//! DIR/n0.disk           a word by which the others know the disk of a node, and etcd where there is etcd
//! DIR/n0.anew           is there if the node began on this disk by asking what it had promised before
//! DIR/n0.inode          which file n0.life is: a copy of the directory has another one
//! DIR/n0.peers          which life and disk of each other node the node met last
//! DIR/n0.joining        is there until the node has had its place on this disk for the first time
//! DIR/n0.decides        what decides what the node does, as the cluster's file had it
//! DIR/n0.refused        is there if the others know a later disk of the node; why
//! DIR/n0.data/          what a node must not forget, for protocols that keep something: the log of
//!                       each of its processes, and the application's state
//! ```
//! The cluster's file, the nodes' data and the numbers of incarnations outlast a cluster that is
//! durable: the next one in the directory continues from there.
//!
//! Nothing else in the directory is touched, ever. It belongs to the cluster's user and nobody else
//! may write in it; all that is put there is for its owner only. [`ClusterRegistry`] knows which cluster directories are in use.

mod capacity;
mod error;
mod files;
mod past_processes;
mod registry;
mod supervised;
#[cfg(test)]
mod tests;
mod transport;
mod unsupervised;

pub use crate::peer_registry::ForgetOutcome;
pub use capacity::{CapacityCheck, logs_bytes};
pub use error::{ClusterDirError, megabytes};
pub use past_processes::{PastProcesses, how_to_start};
pub use registry::ClusterRegistry;
pub use supervised::SupervisedDir;
pub use transport::{MemoryHosts, Net, Transport};

use self::transport::LIVES_BITS;
use crate::config::{ClusterFile, node_name};
use crate::disk::DiskRecord;
use crate::log_owner::LogOwner;
use crate::node_address::{ClusterKey, NodeAddress};
use crate::peer_registry;
use crate::replica_log::mark_lost;
use crate::reply_ring::ReplyRingLayout;
use crate::supervisor::NodeProcess;
use crate::system::{open_at_once, sync_folder_of};
use amcast_core::limits::REPLICAS_MAX;
use amcast_core::{ClusterShape, Durability, GroupSet};
use amcast_memory::{ClusterId, Directory};
use amcast_net::Secret;
use amcast_storage::offline::LOST;
use rustix::fs::{FlockOperation, flock};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// The id of the shared memory in a cluster directory: there is one.
const CLUSTER: ClusterId = ClusterId(1);

/// Where the application's state is written, in what a node must not forget.
const STATE: &str = "state";

/// How much of the end of a node's log is looked through for why it ended.
const LAST_WORDS_BYTES_MAX: u64 = 16 << 10;

/// How many lives a node may have had after the last that is known of it. A peer writes the lives that it meets without
/// waiting for its disk, and one that was killed while its disk hung has written none of those that it met meanwhile.
const LIVES_MARGIN: u32 = 256;

/// Where a node takes commands of gateways, if its protocol sends messages.
pub(crate) fn ingress_name(rank: usize) -> String {
    format!("{}.in", node_name(rank))
}

/// Where the lives of a node are counted.
pub(crate) fn life_name(rank: usize) -> String {
    format!("{}.life", node_name(rank))
}

/// The remedy where a node has to begin anew, whose files lie in the directory `dir`. Those of other nodes may lie beside
/// them, as with `amcast up`, so that no message may ask for an empty directory.
pub(crate) fn begin_anew_words(dir: &Path, node: &str) -> String {
    let files = dir.join(format!("{node}.*"));
    format!(
        "remove {}, and no file of another node, for {node} to begin anew ({node}.ports may stay: where it does {node} \
         serves clients at its former ports)",
        files.display()
    )
}

/// Where those of a gateway are counted that is not a node's.
pub(crate) fn gateway_life_name(number: usize) -> String {
    format!("c{number}.life")
}

/// The directory of a cluster.
#[derive(Clone, Debug)]
pub struct ClusterDir {
    path: PathBuf,
}

/// Where the gateways of a process listen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatewayAddresses {
    /// The Redis gateway.
    pub redis: String,
    /// The log service, where the process has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<String>,
    /// The status page and metrics.
    pub http: String,
}

/// Where the processes of a node keep what they must not forget.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogLocation {
    pub(crate) path: PathBuf,
    /// A file that is there if the processes had logs before, and that is not lost with them.
    pub(crate) begun: PathBuf,
    /// They do not await what they persist: what they say waits until it survives the end of their
    /// process.
    pub(crate) holds: bool,
    /// It outlasts the cluster; else it is in memory, most likely, and goes with the cluster.
    pub(crate) lasts: bool,
    /// The node has lived before, on a machine or disk that was replaced: what is new is lost.
    pub(crate) lived: bool,
    /// The least number that a life of it may have on this disk.
    pub(crate) first_life: u32,
    /// The owner of these logs.
    pub(crate) owner: LogOwner,
}

impl LogLocation {
    /// Whether processes of this durability do not await what they persist.
    pub(crate) const fn holds(durability: Durability) -> bool {
        matches!(durability, Durability::Written)
    }

    /// Makes the directory, if need be, and sees to it that it is there after the end of the machine.
    pub(crate) fn make(&self) -> io::Result<()> {
        match DirBuilder::new().mode(0o700).create(&self.path) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
            _ => {}
        }
        File::open(self.path.parent().unwrap_or(&self.path))?.sync_all()
    }

    /// Sees to it that what was made in it is there after the end of the machine.
    pub(crate) fn sync(&self) -> io::Result<()> {
        File::open(&self.path)?.sync_all()
    }

    /// Whether the processes had logs before.
    pub(crate) fn is_begun(&self) -> bool {
        self.lived || self.begun.exists() || self.is_anew()
    }

    /// A file that is there if the processes began here by asking the others what they had promised.
    fn anew(&self) -> PathBuf {
        self.begun.with_extension("anew")
    }

    /// Whether the processes began here by asking the others what they had promised before.
    pub(crate) fn is_anew(&self) -> bool {
        self.anew().exists()
    }

    /// The cluster worked before this node's directory was made, so the node may have lived before:
    /// it asks the others for its former promises, in an incarnation that is later than the last that they
    /// know by a margin of 256. A peer that knows a still later one refuses it, and names that. Where
    /// no peer knows any, it takes a number from the upper half of a disk's, by the wall clock: earlier
    /// versions of the program counted so.
    ///
    /// A disk has 65,536 numbers. A node whose directory is emptied before each start has taken them after 255 starts, or
    /// some hundred where the first number was the clock's, and takes those of the next disk then: a disk that was replaced
    /// once is not found by its number any more (`check_disk`). Peers still refuse a number that is not the latest.
    pub fn has_lived(&mut self, last_known: Option<u32>) {
        self.lived = true;
        self.first_life = last_known.map_or_else(life_by_the_clock, life_beyond);
    }

    /// Has the next life of the node, whose processes have logs in these groups, ask the others what it
    /// had promised, and says for good that it did.
    ///
    /// # Errors
    /// When a file cannot be written, which is named.
    pub(crate) fn begin_anew(&self, groups: GroupSet) -> Result<(), (PathBuf, io::Error)> {
        self.make().map_err(|e| (self.path.clone(), e))?;
        // The logs first: if it ends in between, the others refuse the next life once more. One that
        // says that it asks and took its logs for whole would be let in.
        for group in groups.iter() {
            let log = self.path.join(group.to_string());
            mark_lost(&log).map_err(|e| (log.with_extension(LOST), e))?;
        }
        let anew = self.anew();
        write_synced(&anew, b"").map_err(|e| (anew, e))
    }

    /// Says that the processes have logs from now on: one that is new later is one that was lost.
    pub(crate) fn begun(&self) -> io::Result<()> {
        // Also if it is there: the life that made it may have ended before it was durable.
        private().create(true).truncate(true).open(&self.begun)?.sync_all()?;
        sync_folder_of(&self.begun)
    }

    /// A file that is there once the node's state was found to be another one than that of a majority; why. It goes
    /// with what the node keeps.
    fn differs(&self) -> PathBuf {
        self.path.join("differs")
    }

    /// Checks that the state that is kept was not found to be another one than that of a majority.
    ///
    /// # Errors
    /// When it was; the sentence says what to do.
    pub(crate) fn check_differs(&self) -> Result<(), String> {
        match fs::read_to_string(self.differs()) {
            Ok(why) if why.is_empty() => Err(format!(
                "it differs from a majority of the replicas, and serves nobody ({} is empty: the reason could not \
                 be written). {}",
                self.differs().display(),
                self.differs_remedy()
            )),
            Ok(why) => Err(format!("{} (written in {})", why.trim(), self.differs().display())),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(e) => Err(format!("{}: {e}", self.differs().display())),
        }
    }

    /// Prevents later starts from continuing with the present data, which stay for inspection.
    /// Returns why the node ends.
    pub(crate) fn is_different(&self, why: String) -> String {
        let why = format!("{why}. {}", self.differs_remedy());
        // The file first: a full disk may have no room for the words, and an empty file refuses starts, too.
        let made = private().create(true).truncate(false).open(self.differs());
        let made = made.and_then(|file| file.sync_all()).and_then(|()| self.sync());
        let differs = self.differs();
        match (write_synced(&differs, why.as_bytes()), made) {
            (Ok(()), _) => why,
            (Err(e), Ok(())) => format!("{why} ({}: {e})", differs.display()),
            (Err(e), Err(_)) => format!(
                "{why} ({}: {e}: without this file the next start does continue from them)",
                differs.display()
            ),
        }
    }

    /// The remedy where the state is another one than that of a majority.
    fn differs_remedy(&self) -> String {
        let (path, new) = (self.path.display(), self.path.with_extension("differed"));
        format!(
            "Its data stay as they are, and no start continues from them: to have the node take the state of \
             the others, move it aside (`mv {path} {}`) and start the node",
            new.display()
        )
    }

    /// Where the application's state is written.
    pub(crate) fn checkpoints(&self) -> PathBuf {
        self.path.join(STATE)
    }
}

/// A life that is later than those that a disk had of which the life `last_known` is known.
pub(crate) fn life_beyond(last_known: u32) -> u32 {
    // Numbers above those of one disk are of machines that are counted. The last ones of a disk leave less of a margin.
    let last_of_disk = last_known | ((1 << LIVES_BITS) - 1);
    let at_least = last_known.saturating_add(2);
    last_known.saturating_add(LIVES_MARGIN).min(last_of_disk).max(at_least)
}

/// A life later than those that were taken so before, or counted from the first.
fn life_by_the_clock() -> u32 {
    let hours = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() / 3600;
    let half = 1 << (LIVES_BITS - 1);
    half + (hours % u64::from(half)) as u32
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> ClusterDirError + '_ {
    |e| ClusterDirError::Io(path.to_path_buf(), e)
}

/// The error where the system says of a new directory that there is nothing of its name.
fn not_made(path: &Path) -> ClusterDirError {
    match path.parent().is_some_and(Path::is_dir) {
        true => ClusterDirError::Unmakeable(path.to_path_buf()),
        false => ClusterDirError::NoParent(path.to_path_buf()),
    }
}

/// How a file that only its owner may use is opened for writing.
fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).mode(0o600);
    options
}

pub(crate) fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    private().create(true).truncate(true).open(path)?.write_all(bytes)
}

/// Writes a file that nobody ever sees half of, and that is on the disk when this returns.
pub(crate) fn write_synced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let new = PathBuf::from(new);
    write_private(&new, bytes)?;
    File::open(&new)?.sync_all()?;
    fs::rename(&new, path)?;
    File::open(path.parent().unwrap_or(path))?.sync_all()
}

/// Checks that a directory is ours and that none of `forbidden`, bits of its mode, is set.
fn check_ours(path: &Path, forbidden: u32) -> Result<(), ClusterDirError> {
    let metadata = fs::metadata(path).map_err(at(path))?;
    if metadata.uid() != rustix::process::geteuid().as_raw() {
        return Err(ClusterDirError::NotOurs(path.to_path_buf(), metadata.uid()));
    }
    if metadata.mode() & forbidden != 0 {
        return Err(ClusterDirError::Exposed(path.to_path_buf(), metadata.mode() & 0o777));
    }
    Ok(())
}

/// The line in the log of a node between the runs of its cluster.
const CLUSTER_STARTS: &str = "-- the cluster starts again --";

impl ClusterDir {
    /// The cluster directory in the directory `path`.
    ///
    /// # Errors
    /// When it is not the directory of a cluster.
    pub fn at(path: &Path) -> Result<Self, ClusterDirError> {
        let is = |path: &Path, missing: ClusterDirError| match fs::metadata(path) {
            Ok(metadata) => Ok(metadata),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Err(missing),
            Err(e) => Err(at(path)(e)),
        };
        if !is(path, ClusterDirError::Missing(path.to_path_buf()))?.is_dir() {
            return Err(ClusterDirError::NotDirectory(path.to_path_buf()));
        }
        is(&path.join("cluster.toml"), Self::without_file(path))?;
        Ok(Self { path: path.to_path_buf() })
    }

    /// The error for a directory without a cluster's file.
    fn without_file(path: &Path) -> ClusterDirError {
        let dir = Self { path: path.to_path_buf() };
        match (dir.first_data(), dir.past_processes()) {
            (Some(data), _) => ClusterDirError::NoFile(data, "there is none".to_string()),
            (None, PastProcesses::Supervised) => ClusterDirError::Unmade(dir.path),
            (None, _) => ClusterDirError::NotCluster(dir.path),
        }
    }

    /// The first of its nodes' directories of what they must not forget.
    fn first_data(&self) -> Option<PathBuf> {
        (0..REPLICAS_MAX).map(|rank| self.data(rank)).find(|data| data.exists())
    }

    /// This directory, which is a cluster's.
    pub(crate) fn of_directory(path: &Path) -> Self {
        Self { path: path.to_path_buf() }
    }

    /// The cluster directory that a cluster's file lies in.
    pub fn of_file(file: &Path) -> Self {
        Self { path: file.parent().map_or_else(PathBuf::new, Path::to_path_buf) }
    }

    /// The file of the cluster that keeps something on disk in the directory `path`, if one does.
    ///
    /// # Errors
    /// When there is what nodes keep, and no file that says of which cluster; or something that is no file where one
    /// is to be.
    pub fn kept(path: &Path) -> Result<Option<ClusterFile>, ClusterDirError> {
        let dir = Self { path: path.to_path_buf() };
        dir.check_files(None)?;
        let why = match dir.file() {
            Ok(file) if file.durable => return Ok(Some(file)),
            // Only nodes of a durable cluster note their disks.
            Ok(_) if dir.has_noted_disks() => {
                "it was emptied, or lost its end: it does not say `durable = true`".to_string()
            }
            // Data of nodes that are not durable are removed with the rest.
            Ok(_) => return Ok(None),
            Err(e) => e.to_string(),
        };
        dir.first_data().map_or(Ok(None), |data| Err(ClusterDirError::NoFile(data, why)))
    }

    /// Whether a node has noted here on which disk its data are.
    fn has_noted_disks(&self) -> bool {
        let disk = |rank| self.path.join(format!("{}.disk", node_name(rank)));
        (0..amcast_core::limits::REPLICAS_MAX).any(|rank| disk(rank).exists())
    }

    /// Where the processes of a node keep what they must not forget, if the protocol keeps anything.
    pub fn keeping(
        &self,
        file: &ClusterFile,
        durability: Durability,
        rank: usize,
    ) -> Option<LogLocation> {
        let holds = LogLocation::holds(durability);
        let begun = || self.path.join(format!("{}.begun", node_name(rank)));
        durability.has_log().then(|| LogLocation {
            path: self.data(rank),
            begun: begun(),
            holds,
            lasts: file.durable,
            first_life: 0,
            lived: file.nodes.get(&node_name(rank)).is_some_and(|place| place.replaced > 0),
            owner: LogOwner::of(file.id.unwrap_or(0), rank),
        })
    }

    /// Whether the node `rank` keeps here what it must not forget.
    pub fn keeps(&self, rank: usize) -> bool {
        self.data(rank).exists()
    }

    /// The durable data of a node.
    pub(crate) fn data(&self, rank: usize) -> PathBuf {
        self.path.join(format!("{}.data", node_name(rank)))
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
    pub fn file(&self) -> Result<ClusterFile, ClusterDirError> {
        ClusterFile::read(&self.file_path()).map_err(ClusterDirError::File)
    }

    /// Whether a supervisor that lives has it.
    pub fn is_supervised(&self) -> bool {
        let Ok(lock) = open_at_once(&self.path.join("lock")) else { return false };
        // A shared lock that is held for a moment; a process that takes it for good tries several
        // times.
        flock(&lock, FlockOperation::NonBlockingLockShared).is_err()
    }

    /// Has the node `rank` forget its records of the node `of`, while it does not run: the lives and disks
    /// that it met, or, of itself, that others refused it. Without `confirmed` it forgets nothing, and says
    /// whether there is anything to confirm.
    ///
    /// # Errors
    /// When the node runs, or its files cannot be read or written; the sentence says what to do.
    pub fn forget(&self, rank: usize, of: usize, confirmed: bool) -> Result<ForgetOutcome, String> {
        peer_registry::forget(&self.path, rank, of, confirmed)
    }

    /// The control socket of a node.
    pub fn socket(&self, rank: usize) -> PathBuf {
        self.path.join(format!("{}.sock", node_name(rank)))
    }

    /// Where each node of the cluster, whose file this is, is asked how it is. Without the secret, if it
    /// cannot be read here, only those of this host answer.
    pub fn nodes(&self, file: &ClusterFile) -> Vec<NodeAddress> {
        let secret = file.read_secret().unwrap_or_else(|e| {
            tracing::warn!("nodes of other hosts are not asked: {e}");
            Secret::default()
        });
        let key = ClusterKey { id: file.id.unwrap_or_default(), secret };
        let at = |rank: usize| {
            let far = file.nodes.get(&node_name(rank)).and_then(|place| place.control);
            match far {
                Some(at) => NodeAddress::Address(at, key.clone(), self.socket(rank)),
                None => NodeAddress::Socket(self.socket(rank)),
            }
        };
        (0..file.replicas).map(at).collect()
    }

    /// The log of a node: what it says, and why it ended, if it could say so.
    pub fn log(&self, rank: usize) -> PathBuf {
        self.path.join(format!("{}.log", node_name(rank)))
    }

    /// Why a node ended by itself, if its log says so: the last line that is of its end and not of its
    /// work. A line from before the cluster's last start does not count.
    pub fn last_words(&self, rank: usize) -> Option<String> {
        let begins = format!("amcast {}: ", node_name(rank));
        let tail = self.end_of_log(rank)?;
        let mut of_this_run = tail.lines().rev().take_while(|line| *line != CLUSTER_STARTS);
        of_this_run.find_map(|line| line.strip_prefix(&begins)).map(str::to_string)
    }

    fn end_of_log(&self, rank: usize) -> Option<String> {
        let mut log = open_at_once(&self.log(rank)).ok()?;
        let length = log.metadata().ok()?.len();
        log.seek(SeekFrom::Start(length.saturating_sub(LAST_WORDS_BYTES_MAX))).ok()?;
        let mut tail = Vec::new();
        log.take(LAST_WORDS_BYTES_MAX).read_to_end(&mut tail).ok()?;
        Some(String::from_utf8_lossy(&tail).into_owned())
    }

    /// Whether a node was started from here before.
    pub fn has_lived(&self, rank: usize) -> bool {
        self.path.join(life_name(rank)).exists()
    }

    /// Why the others refuse a node that was started from here, if they did.
    pub fn refused(&self, rank: usize) -> Option<String> {
        DiskRecord::of(&self.path, rank).check().err()
    }

    /// Where the supervisor's gateways listen.
    ///
    /// # Errors
    /// When they do not listen yet.
    pub fn gateways(&self) -> Result<GatewayAddresses, ClusterDirError> {
        self.read("fronts.json")
    }

    /// Where the gateways of a node listen.
    ///
    /// # Errors
    /// When they do not listen yet, or the node has none.
    pub fn gateways_of(&self, rank: usize) -> Result<GatewayAddresses, ClusterDirError> {
        self.read(&format!("{}.fronts.json", node_name(rank)))
    }

    /// Says where the gateways of a node listen.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn announce_node(
        &self,
        rank: usize,
        gateways: &GatewayAddresses,
    ) -> Result<(), ClusterDirError> {
        self.write(&format!("{}.fronts.json", node_name(rank)), gateways)?;
        self.write(&format!("{}.ports", node_name(rank)), gateways)
    }

    /// Where the gateways of a node listened last, or those of the supervisor, if there were any.
    pub fn last_gateways(&self, rank: Option<usize>) -> Option<GatewayAddresses> {
        let who = rank.map_or_else(|| "last".to_string(), node_name);
        self.read(&format!("{who}.ports")).ok()
    }

    /// Takes back where the gateways of a node listen: they do not any more.
    ///
    /// # Errors
    /// When the file cannot be removed.
    pub fn withdraw_node(&self, rank: usize) -> Result<(), ClusterDirError> {
        let path = self.path.join(format!("{}.fronts.json", node_name(rank)));
        fs::remove_file(&path).map_err(at(&path))
    }

    /// The supervisor's record of its nodes' incarnations; empty if it has written none.
    pub fn lives(&self) -> Vec<NodeProcess> {
        self.read("nodes.json").unwrap_or_default()
    }

    /// Says what the supervisor knows of the lives of its nodes.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write_lives(&self, lives: &[NodeProcess]) -> Result<(), ClusterDirError> {
        self.write("nodes.json", lives)
    }

    /// The shared memory of the cluster.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub(crate) fn memory(&self, cluster: ClusterShape) -> Result<Directory, ClusterDirError> {
        let processes = ReplyRingLayout(cluster).processes();
        let clients = cluster.clients() as u32;
        Directory::open(&self.path, CLUSTER, processes, clients).map_err(ClusterDirError::Memory)
    }

    /// Removes the shared memory of a cluster whose file need not be readable any more.
    fn discard_memory(&self) -> Result<(), ClusterDirError> {
        Directory::discard(&self.path, CLUSTER).map_err(ClusterDirError::Memory)
    }

    fn read<T: DeserializeOwned>(&self, name: &str) -> Result<T, ClusterDirError> {
        let path = self.path.join(name);
        let text = fs::read_to_string(&path).map_err(at(&path))?;
        serde_json::from_str(&text).map_err(|e| ClusterDirError::Io(path, e.into()))
    }

    /// Writes a file that nobody ever sees half of.
    fn write<T: Serialize + ?Sized>(&self, name: &str, value: &T) -> Result<(), ClusterDirError> {
        let (path, new) = (self.path.join(name), self.path.join(format!("{name}.new")));
        let text = serde_json::to_string(value).map_err(|e| at(&path)(e.into()))?;
        write_private(&new, text.as_bytes())
            .and_then(|()| fs::rename(&new, &path))
            .map_err(at(&path))
    }
}

//! The resources that a node uses: memory, files, and the time of its syncs.

use crate::cluster_dir::LogLocation;
use amcast_core::histogram::{BUCKETS, Histogram};
use amcast_storage::LogCounts;
use procfs::process::Process;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// For how long the sizes of a node's files are believed.
const SIZES_HOLD: Duration = Duration::from_secs(2);

/// For how long it is believed how much is free: that goes fast, and gateways refuse by it what may take more.
const FREE_HOLD: Duration = Duration::from_millis(150);

/// How long a status waits for the sizes that it has looked up: it has the last known ones where the disk takes longer.
const SIZES_PATIENCE: Duration = Duration::from_millis(200);

/// How deep directories are looked into.
const DEPTH_MOST: u32 = 4;

/// The logs of a node's processes, together, since it started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogStatus {
    /// Records written.
    pub records: u64,
    /// Bytes written.
    pub bytes: u64,
    /// Syncs that ended or, where no record waits for them, began.
    pub syncs: u64,
    /// How long each of those took that a record waited for, by bucket of [`amcast_core::histogram`].
    pub sync_buckets: Vec<u64>,
    /// How long those took together, in nanoseconds.
    pub sync_ns: u64,
    /// How long the longest of those took, in nanoseconds.
    pub slowest_ns: u64,
    /// How long the one lasts that has not ended, in nanoseconds; 0 if there is none.
    pub under_way_ns: u64,
}

fn ns(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

impl LogStatus {
    /// Of logs that did this.
    pub(crate) fn of(logs: impl Iterator<Item = LogCounts>) -> Option<Self> {
        let mut all = Self::default();
        let mut durations = Histogram::default();
        let mut any = false;
        for counts in logs {
            any = true;
            all.records += counts.records;
            all.bytes += counts.bytes;
            all.syncs += counts.syncs;
            durations.add(&counts.durations);
            all.slowest_ns = all.slowest_ns.max(ns(counts.slowest));
            all.under_way_ns = all.under_way_ns.max(counts.under_way.map_or(0, ns));
        }
        all.sync_buckets = durations.buckets.to_vec();
        all.sync_ns = durations.sum_ns;
        any.then_some(all)
    }

    /// How long its syncs took; none if a node of another version has other buckets.
    pub fn durations(&self) -> Option<Histogram> {
        let buckets: [u64; BUCKETS] = self.sync_buckets.as_slice().try_into().ok()?;
        Some(Histogram { buckets, sum_ns: self.sync_ns })
    }
}

/// The files of a node, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskStatus {
    /// In the logs of its processes.
    pub log_bytes: u64,
    /// In the states that it saved.
    pub checkpoint_bytes: u64,
    /// The free bytes of its file system.
    pub free_bytes: u64,
    /// The size of its file system.
    pub size_bytes: u64,
}

/// The resources that a node uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceStatus {
    /// Memory that its process has, with what it shares with others, in bytes.
    pub resident_bytes: u64,
    /// Its files, if it keeps any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<DiskStatus>,
}

/// Finds the sizes of a node's files, for as long as its disk takes for that.
type FileSizeScan = Arc<dyn Fn() -> Option<DiskStatus> + Send + Sync>;

/// The measurement of the resources that a node uses.
pub(crate) struct Resources {
    survey: Option<FileSizeScan>,
    sizes: Arc<Mutex<FileSizes>>,
}

/// The sizes of a node's files.
#[derive(Default)]
struct FileSizes {
    known: Option<DiskStatus>,
    /// When that was found out.
    found_at: Option<Instant>,
    /// Whether a thread is finding it out.
    under_way: bool,
}

/// The files of a node.
struct NodeFiles {
    /// All of them are here; logs are those that are not states.
    path: PathBuf,
    checkpoints: PathBuf,
    /// The bytes of all of them and of those that are states, and when that was found out.
    known: Mutex<Option<(Instant, u64, u64)>>,
}

impl Resources {
    /// Of a node that keeps this.
    pub(crate) fn of(keeping: Option<&LogLocation>) -> Self {
        let files = keeping.map(|keeping| NodeFiles {
            path: keeping.path.clone(),
            checkpoints: keeping.checkpoints(),
            known: Mutex::default(),
        });
        Self::with(files.map(|files| Arc::new(move || files.survey()) as FileSizeScan))
    }

    fn with(survey: Option<FileSizeScan>) -> Self {
        Self { survey, sizes: Arc::default() }
    }

    /// The present use. May wait for a moment, so the node's loop must not call it.
    pub(crate) fn read(&self) -> ResourceStatus {
        let pages = Process::myself().and_then(|process| process.statm());
        let resident_bytes = pages.map_or(0, |pages| pages.resident * procfs::page_size());
        ResourceStatus { resident_bytes, disk: self.disk() }
    }

    /// The sizes of its files. A thread finds them out, since a disk may hang: nobody waits for it then, and no second
    /// thread is begun.
    fn disk(&self) -> Option<DiskStatus> {
        let survey = self.survey.as_ref()?;
        let mut sizes = lock(&self.sizes);
        let is_fresh = sizes.found_at.is_some_and(|at| at.elapsed() < FREE_HOLD);
        if is_fresh || sizes.under_way {
            return sizes.known;
        }
        sizes.under_way = true;
        drop(sizes);
        let (survey, found) = (Arc::clone(survey), Arc::clone(&self.sizes));
        let (to, done) = sync_channel(1);
        let find = move || {
            let known = survey();
            *lock(&found) = FileSizes { known, found_at: Some(Instant::now()), under_way: false };
            // Nobody may wait for it any more.
            let _ = to.send(());
        };
        match thread::Builder::new().name("sizes".to_string()).spawn(find) {
            Ok(_) => _ = done.recv_timeout(SIZES_PATIENCE),
            Err(e) => {
                tracing::warn!("the sizes of files are not known: {e}");
                lock(&self.sizes).under_way = false;
            }
        }
        lock(&self.sizes).known
    }
}

fn lock(sizes: &Mutex<FileSizes>) -> MutexGuard<'_, FileSizes> {
    sizes.lock().unwrap_or_else(PoisonError::into_inner)
}

impl NodeFiles {
    fn survey(&self) -> Option<DiskStatus> {
        let system = rustix::fs::statvfs(&self.path).ok()?;
        let (all, checkpoint_bytes) = self.sizes();
        Some(DiskStatus {
            log_bytes: all.saturating_sub(checkpoint_bytes),
            checkpoint_bytes,
            free_bytes: system.f_bavail.saturating_mul(system.f_frsize),
            size_bytes: system.f_blocks.saturating_mul(system.f_frsize),
        })
    }

    /// The bytes of all files and of those that are states.
    fn sizes(&self) -> (u64, u64) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        match *known {
            Some((at, all, checkpoints)) if at.elapsed() < SIZES_HOLD => (all, checkpoints),
            _ => {
                let checkpoints = bytes_in(&self.checkpoints, DEPTH_MOST);
                let all = bytes_in(&self.path, DEPTH_MOST);
                *known = Some((Instant::now(), all, checkpoints));
                (all, checkpoints)
            }
        }
    }
}

/// Bytes of the files in a directory and those in it. A file that goes meanwhile has none.
fn bytes_in(path: &Path, depth: u32) -> u64 {
    let Ok(entries) = fs::read_dir(path) else { return 0 };
    let bytes = |entry: fs::DirEntry| match entry.metadata() {
        Ok(of) if of.is_file() => of.len(),
        Ok(of) if of.is_dir() && depth > 0 => bytes_in(&entry.path(), depth - 1),
        _ => 0,
    };
    entries.flatten().map(bytes).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn files_of_logs_and_of_states_are_told_apart() {
        let _limit = amcast_test_policy::time_limit();
        let dir = std::env::temp_dir().join(format!("amcast-resources-{}", std::process::id()));
        let write = |name: &str, bytes: usize| {
            let path = dir.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, vec![0; bytes]).unwrap();
        };
        write("g0/a.log", 1000);
        write("g1/b.log", 500);
        write("state/c", 70);
        let (path, checkpoints) = (dir.clone(), dir.join("state"));
        let files = NodeFiles { path, checkpoints, known: Mutex::default() };
        let resources = Resources::with(Some(Arc::new(move || files.survey())));
        let status = resources.read();
        let disk = status.disk.unwrap();
        assert_eq!((disk.log_bytes, disk.checkpoint_bytes), (1500, 70));
        assert!(disk.size_bytes >= disk.free_bytes && disk.free_bytes > 0, "{disk:?}");
        assert!(status.resident_bytes > 1 << 20, "{status:?}");
        fs::remove_dir_all(&dir).unwrap();
        assert_eq!(Resources::of(None).read().disk, None);
    }

    #[test]
    fn a_disk_that_hangs_holds_up_nobody_who_asks() {
        let _limit = amcast_test_policy::time_limit();
        let (go, gone) = sync_channel::<u64>(0);
        let surveys = Arc::new(AtomicUsize::new(0));
        let (gone, count) = (Mutex::new(gone), Arc::clone(&surveys));
        let survey = move || {
            count.fetch_add(1, Ordering::Relaxed);
            let log_bytes = gone.lock().unwrap().recv().ok()?;
            Some(DiskStatus { log_bytes, ..DiskStatus::default() })
        };
        let resources = Arc::new(Resources::with(Some(Arc::new(survey))));
        let (to, read) = sync_channel(100);
        for _ in 0..100 {
            let (resources, to) = (Arc::clone(&resources), to.clone());
            thread::spawn(move || to.send(resources.read()));
        }
        let statuses: Vec<_> =
            (0..100).map_while(|_| read.recv_timeout(Duration::from_secs(5)).ok()).collect();
        assert_eq!((statuses.len(), surveys.load(Ordering::Relaxed)), (100, 1));
        assert!(statuses.iter().all(|of| of.disk.is_none() && of.resident_bytes > 0));
        go.send(7).unwrap();
        while resources.read().disk.is_none_or(|disk| disk.log_bytes != 7) {
            thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn logs_are_added_up_and_other_buckets_are_no_durations() {
        let _limit = amcast_test_policy::time_limit();
        let log = |ms: u64| {
            let mut durations = Histogram::default();
            durations.observe(ms * 1_000_000);
            let slowest = Duration::from_millis(ms);
            LogCounts {
                records: 2,
                bytes: 100,
                syncs: 1,
                slowest,
                durations,
                ..LogCounts::default()
            }
        };
        let all = LogStatus::of([log(3), log(8)].into_iter()).unwrap();
        assert_eq!((all.records, all.bytes, all.syncs), (4, 200, 2));
        assert_eq!((all.slowest_ns, all.sync_ns), (8_000_000, 11_000_000));
        assert_eq!(all.durations().unwrap().count(), 2);
        let other = LogStatus { sync_buckets: vec![1, 2], ..all };
        assert_eq!(other.durations(), None);
        assert_eq!(LogStatus::of(std::iter::empty()), None);
    }
}

//! The cluster's directory: who lives, in which incarnation, and who has which client place.

use crate::carrier::MappedCarrier;
use crate::doorbell::Doorbell;
use crate::error::MemoryError;
use crate::files::{self, ClusterFiles};
use crate::layout::{self, DirectoryLayout, ProcessLayout};
use crate::peer::MapAhead;
use crate::remote::{LINES_MAX, RemoteMemory};
use crate::segment::SharedSegment;
use crate::store::{Backing, Heap, HeldResource, IncarnationFile, LineStore};
use amcast_core::id::Pid;
use amcast_core::memory::RegionSpec;
use core::fmt;
use core::sync::atomic::Ordering;
use std::env;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// The number that distinguishes one cluster from another on the same machine.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ClusterId(pub u64);

/// The shared memory of one cluster on this machine. Cloned freely.
///
/// In `base/amcast-<id>/`: a file `directory` that everybody maps, a file for each process that runs,
/// a lock file for each client place. See `layout.rs` for every word of them.
#[derive(Clone)]
pub struct Directory(Arc<DirectoryState>, Option<RemoteMemory>);

struct DirectoryState {
    store: Box<dyn LineStore>,
    layout: DirectoryLayout,
    cluster: ClusterId,
}

impl fmt::Debug for Directory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Directory({:x})", self.0.cluster.0)
    }
}

/// How a process starts.
#[derive(Clone, Debug, Default)]
pub struct StartOptions {
    /// How the memory of its regions is set aside.
    pub backing: Backing,
    /// The bell of the loop that runs the process, if the loop runs another one already.
    pub bell: Option<Doorbell>,
    /// The incarnation is not below this: for a client, the number of its lease.
    pub incarnation_min: u32,
    /// Processes whose files are mapped before they are written to or read, if they have a region in this process's
    /// memory: one in each round, from the start on. Others are mapped when they are needed, which holds up a round.
    pub partners: Vec<Pid>,
}

/// A client place that this process has, until it drops this or dies.
pub struct Lease {
    place: u32,
    number: u32,
    _hold: HeldResource,
}

impl Lease {
    /// Which place.
    pub fn place(&self) -> u32 {
        self.place
    }

    /// How many leases of this place were given before, as long as the directory exists: it grows
    /// with each, and serves as the client's incarnation.
    pub fn number(&self) -> u32 {
        self.number
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lease({} of place {})", self.number, self.place)
    }
}

fn path_of(base: &Path, id: ClusterId) -> PathBuf {
    base.join(format!("amcast-{:016x}", id.0))
}

/// The cluster whose directory has this name.
fn id_of(name: &str) -> Option<ClusterId> {
    let digits = name.strip_prefix("amcast-").filter(|digits| digits.len() == 16)?;
    u64::from_str_radix(digits, 16).ok().map(ClusterId)
}

/// How long a start that finds no room waits for others to let go of the memory of processes that
/// died, and how often it looks. They do it in the next round of their loops.
const ROOM_PATIENCE: (Duration, Duration) = (Duration::from_millis(200), Duration::from_millis(2));

/// How often a directory that vanishes while it is opened is opened again.
const OPEN_TRIES: u32 = 8;

impl Directory {
    /// Where the directories of clusters usually lie: memory if there is such a place.
    pub fn usual_base() -> PathBuf {
        let shm = Path::new("/dev/shm");
        let runtime = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        if shm.is_dir() { shm.to_owned() } else { runtime.unwrap_or_else(env::temp_dir) }
    }

    /// Opens the directory of a cluster of `processes` processes and `places` client places, or
    /// makes it. Directories of two clusters have nothing in common.
    ///
    /// # Errors
    /// When it cannot be made, belongs to someone else, is open to others, or was made for a
    /// cluster of another shape or by another version.
    pub fn open(
        base: &Path,
        id: ClusterId,
        processes: u32,
        places: u32,
    ) -> Result<Self, MemoryError> {
        let path = path_of(base, id);
        for _ in 0..OPEN_TRIES {
            let files = ClusterFiles::open(path.clone())?;
            let lock = files.exclusive()?;
            // A process that removes the directory has the lock: from here on it stays.
            if !files.is_removed()? {
                let opened = Self::with_store(Box::new(files), id, processes, places);
                drop(lock);
                return opened;
            }
        }
        Err(MemoryError::Corrupt { path, why: "it is removed again and again while it is opened" })
    }

    /// A directory on the heap of this process: for carriers in threads of one process.
    ///
    /// # Errors
    /// Never, for a shape that fits in memory.
    pub fn heap(id: ClusterId, processes: u32, places: u32) -> Result<Self, MemoryError> {
        Self::with_store(Box::new(Heap::default()), id, processes, places)
    }

    fn with_store(
        store: Box<dyn LineStore>,
        cluster: ClusterId,
        processes: u32,
        places: u32,
    ) -> Result<Self, MemoryError> {
        let (lines, fresh) = store.directory(layout::directory_lines(processes, places))?;
        let shape = [cluster.0, u64::from(processes), u64::from(places)];
        let path = store.path(&"directory");
        let layout = DirectoryLayout::new(lines, &path, shape, fresh)?;
        Ok(Self(Arc::new(DirectoryState { store, layout, cluster }), None))
    }

    /// The same directory for a node of a cluster of several hosts: carriers that are started in it reach processes
    /// of other hosts through `remote`.
    pub fn with_remote(self, remote: RemoteMemory) -> Self {
        Self(self.0, Some(remote))
    }

    /// The way to other hosts, if the cluster is on several.
    pub fn remote(&self) -> Option<&RemoteMemory> {
        self.1.as_ref()
    }

    pub(crate) fn layout(&self) -> &DirectoryLayout {
        &self.0.layout
    }

    /// How many bytes of memory a process with these regions takes when it starts.
    ///
    /// # Errors
    /// When no file can hold them.
    pub fn bytes_of(specs: &[RegionSpec]) -> Result<u64, MemoryError> {
        layout::file_bytes(specs)
    }

    /// How many bytes are free where directories of clusters lie in `base`.
    ///
    /// # Errors
    /// When the system does not say.
    pub fn free_bytes(base: &Path) -> Result<u64, MemoryError> {
        files::free_bytes(base)
    }

    /// Starts a process: a new incarnation with zeroed regions, all guards closed. Leftovers
    /// of earlier incarnations, and of other processes that died, are removed; if there is no
    /// room before everybody has let go of it, this waits a moment.
    ///
    /// # Errors
    /// [`MemoryError::Running`] if it runs already; otherwise when its memory cannot be set aside.
    pub fn start(
        &self,
        pid: Pid,
        specs: &[RegionSpec],
        options: StartOptions,
    ) -> Result<MappedCarrier, MemoryError> {
        self.check_pid(pid)?;
        let begun = Instant::now();
        loop {
            match self.start_now(pid, specs, options.clone()) {
                Err(MemoryError::NoSpace { .. }) if begun.elapsed() < ROOM_PATIENCE.0 => {
                    thread::sleep(ROOM_PATIENCE.1);
                }
                started => return started,
            }
        }
    }

    fn start_now(
        &self,
        pid: Pid,
        specs: &[RegionSpec],
        options: StartOptions,
    ) -> Result<MappedCarrier, MemoryError> {
        let (regions, lines) = layout::plan(specs)?;
        self.check_far_writers(specs)?;
        let DirectoryState { store, layout, cluster } = &*self.0;
        let _lock = store.exclusive()?;
        for name in store.list()? {
            if !store.is_held(name)? {
                self.bury(name)?;
            } else if name.pid == pid {
                return Err(MemoryError::Running { pid, os_pid: self.os_pid(pid) });
            }
        }
        let least = self.1.as_ref().map_or(0, |remote| remote.map().first_incarnation);
        let least = u64::from(options.incarnation_min.max(least)) + 1;
        let incarnation = layout.next_incarnation(pid, least);
        let (segment, hold) =
            store.create(IncarnationFile { pid, incarnation }, lines, options.backing)?;
        layout.count_incarnation(pid, incarnation);
        let name = [cluster.0, u64::from(pid.0), incarnation];
        let own = ProcessLayout::create(segment, name, regions);
        let bell = options.bell.unwrap_or_else(|| Doorbell::new(self.clone(), pid));
        bell.stay();
        layout.bell_of(pid).store(u64::from(bell.pid().0), Ordering::Relaxed);
        layout.os_pid(pid).store(u64::from(process::id()), Ordering::Relaxed);
        if let Some(remote) = &self.1 {
            remote.inbox(pid).begin(incarnation);
        }
        layout.publish(pid, incarnation);
        self.ring_all();
        let mut partners = options.partners;
        partners.retain(|p| *p != pid && p.0 < layout.processes() && own.has_region_of(*p));
        let ahead = MapAhead::new(partners, options.backing == Backing::Prefaulted);
        Ok(MappedCarrier::new((self.clone(), pid), incarnation, (own, ahead), hold, bell))
    }

    /// Takes a client place, with a lease number that grows each time; none if somebody who lives
    /// has it, or if it is a place of a node on another host.
    ///
    /// # Errors
    /// When there is no such place, or the system refuses.
    pub fn lease(&self, place: u32) -> Result<Option<Lease>, MemoryError> {
        let count = self.layout().places();
        if place >= count {
            return Err(MemoryError::NoSuch { what: "client place", number: place, count });
        }
        if self.1.as_ref().is_some_and(|remote| !remote.has_place(place)) {
            return Ok(None);
        }
        let Some(hold) = self.0.store.take_place(place)? else { return Ok(None) };
        let line = self.layout().place(place);
        let number = line.raw(0).fetch_add(1, Ordering::Relaxed) as u32;
        line.raw(1).store(u64::from(process::id()), Ordering::Relaxed);
        Ok(Some(Lease { place, number, _hold: hold }))
    }

    /// Takes any client place that is free; none if all are taken. In a cluster of several hosts each node has places of
    /// its own.
    ///
    /// # Errors
    /// As [`Directory::lease`].
    pub fn lease_any(&self) -> Result<Option<Lease>, MemoryError> {
        for place in 0..self.layout().places() {
            if let Some(lease) = self.lease(place)? {
                return Ok(Some(lease));
            }
        }
        Ok(None)
    }

    /// Whether the process runs; asks the operating system.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn is_running(&self, pid: Pid) -> Result<bool, MemoryError> {
        self.check_pid(pid)?;
        let _lock = self.0.store.exclusive()?;
        let incarnation = self.layout().live(pid);
        Ok(incarnation != 0 && self.0.store.is_held(IncarnationFile { pid, incarnation })?)
    }

    /// Finds processes that died, tells everyone (writes to them give `Lost` from now on) and
    /// removes their files. For a supervisor, and for every process that suspects another one. It waits while
    /// another process starts, stops or cleans, and so for as long as that one is stopped meanwhile.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn clean(&self) -> Result<Vec<Pid>, MemoryError> {
        let _lock = self.0.store.exclusive()?;
        self.bury_dead()
    }

    /// As [`Directory::clean`], but does nothing and gives none while another process starts, stops or cleans. For a
    /// thread that others depend on, which asks again later.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn try_clean(&self) -> Result<Option<Vec<Pid>>, MemoryError> {
        let Some(_lock) = self.0.store.try_exclusive()? else { return Ok(None) };
        self.bury_dead().map(Some)
    }

    /// Buries the processes that died, and names them. The caller holds the lock.
    fn bury_dead(&self) -> Result<Vec<Pid>, MemoryError> {
        let store = &self.0.store;
        let mut dead = Vec::new();
        for name in store.list()? {
            if !store.is_held(name)? && self.bury(name)? {
                dead.push(name.pid);
            }
        }
        Ok(dead)
    }

    /// Removes the directory with all that is in it. Leases end: take them back first.
    ///
    /// # Errors
    /// [`MemoryError::Running`] if a process still runs.
    pub fn remove(&self) -> Result<(), MemoryError> {
        let store = &self.0.store;
        let _lock = store.exclusive()?;
        for name in store.list()? {
            if store.is_held(name)? {
                return Err(MemoryError::Running { pid: name.pid, os_pid: self.os_pid(name.pid) });
            }
        }
        store.remove_all()
    }

    /// Removes the directory of a cluster of any shape and version, with all that belongs to it;
    /// nothing if it is not there.
    ///
    /// # Errors
    /// [`MemoryError::Running`] if a process still runs, with 0 for its number in the operating system;
    /// otherwise when something else is in it, it is not ours, or the system refuses.
    pub fn discard(base: &Path, id: ClusterId) -> Result<(), MemoryError> {
        let Some(files) = ClusterFiles::open_existing(path_of(base, id))? else { return Ok(()) };
        let _lock = files.exclusive()?;
        for name in files.list()? {
            if files.is_held(name)? {
                return Err(MemoryError::Running { pid: name.pid, os_pid: 0 });
            }
        }
        files.remove_all()
    }

    /// The clusters that have a directory in `base`, of any user; none if it cannot be listed.
    pub fn clusters(base: &Path) -> Vec<ClusterId> {
        let entries = std::fs::read_dir(base).into_iter().flatten().flatten();
        let ids = entries.filter_map(|e| id_of(e.file_name().to_str()?));
        ids.collect()
    }

    /// The bell that wakes the loop of a process, for those who ring without writing memory.
    ///
    /// # Errors
    /// When there is no such process.
    pub fn bell(&self, pid: Pid) -> Result<Doorbell, MemoryError> {
        self.check_pid(pid)?;
        Ok(Doorbell::new(self.clone(), self.bell_of(pid)))
    }

    /// The process whose doorbell wakes the process. The word is not believed.
    pub(crate) fn bell_of(&self, pid: Pid) -> Pid {
        let index = self.layout().bell_of(pid).load(Ordering::Relaxed);
        let valid = u32::try_from(index).ok().filter(|&i| i < self.layout().processes());
        valid.map_or(pid, Pid)
    }

    /// Maps the file of a peer.
    pub(crate) fn open_peer(
        &self,
        pid: Pid,
        incarnation: u64,
    ) -> Result<ProcessLayout, MemoryError> {
        let name = IncarnationFile { pid, incarnation };
        let segment: SharedSegment = self.0.store.open(name)?;
        let words = [self.0.cluster.0, u64::from(pid.0), incarnation];
        ProcessLayout::open(segment, &self.0.store.path(&name), words)
    }

    /// Ends an incarnation in good order.
    pub(crate) fn stop(&self, pid: Pid, incarnation: u64) -> Result<(), MemoryError> {
        let _lock = self.0.store.exclusive()?;
        self.bury(IncarnationFile { pid, incarnation }).map(|_| ())
    }

    /// Takes a file out of use; says whether it was the one in use. The caller holds the lock.
    fn bury(&self, name: IncarnationFile) -> Result<bool, MemoryError> {
        let layout = self.layout();
        let known = name.pid.0 < layout.processes();
        let current = known && layout.live(name.pid) == name.incarnation;
        if current {
            layout.publish(name.pid, 0);
            self.ring_all();
        }
        self.0.store.remove(name)?;
        Ok(current)
    }

    /// Wakes everyone who sleeps, and the agent: somebody started or ended.
    pub(crate) fn ring_all(&self) {
        for pid in (0..self.layout().processes()).map(Pid) {
            Doorbell::new(self.clone(), pid).ring();
        }
        self.1.iter().for_each(RemoteMemory::wake);
    }

    /// Checks that what processes of other nodes write into fits into frames: a node of this host may move to another one.
    fn check_far_writers(&self, specs: &[RegionSpec]) -> Result<(), MemoryError> {
        let Some(remote) = &self.1 else { return Ok(()) };
        let is_elsewhere = |writer| remote.map().node_of.get(writer) != Some(&remote.map().here);
        let long = |spec: &&RegionSpec| spec.lines > LINES_MAX && is_elsewhere(spec.writer.index());
        match specs.iter().find(long) {
            None => Ok(()),
            Some(RegionSpec { name, lines, .. }) => {
                Err(MemoryError::TooLong { name, lines: *lines, most: LINES_MAX })
            }
        }
    }

    fn os_pid(&self, pid: Pid) -> u64 {
        let known = pid.0 < self.layout().processes();
        if known { self.layout().os_pid(pid).load(Ordering::Relaxed) } else { 0 }
    }

    fn check_pid(&self, pid: Pid) -> Result<(), MemoryError> {
        let count = self.layout().processes();
        if pid.0 < count {
            return Ok(());
        }
        Err(MemoryError::NoSuch { what: "process", number: pid.0, count })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    #[cfg_attr(miri, ignore = "the interpreter locks no files")]
    fn a_cleaning_that_must_not_wait_leaves_the_dead_while_another_process_has_the_lock() {
        let _limit = amcast_test_policy::time_limit();
        let base = env::temp_dir().join(format!("amcast-try-clean-{}", process::id()));
        std::fs::create_dir_all(&base).expect("a directory can be made");
        let open = || Directory::open(&base, ClusterId(1), 2, 0).expect("it is small");
        let (one, other) = (open(), open());
        one.start(Pid(0), &[], StartOptions::default()).expect("it is small").crash();
        let lock = one.0.store.exclusive().expect("nobody else has it");
        let (tell, told) = mpsc::sync_channel(1);
        let cleans = thread::spawn(move || {
            // The other end is gone where the test has failed.
            let _ = tell.send(other.try_clean());
            other
        });
        let cleaned = told.recv_timeout(Duration::from_secs(10)).expect("it does not wait");
        assert_eq!(cleaned.expect("it can be looked at"), None);
        drop(lock);
        let other = cleans.join().expect("it has ended");
        assert_eq!(other.try_clean().expect("it can be looked at"), Some(vec![Pid(0)]));
        std::fs::remove_dir_all(&base).expect("it is ours");
    }
}

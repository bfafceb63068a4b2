//! A directory in memory that forgets what was not synced, fills up, fails, and stops at any moment.
//!
//! The effect of the machine's end on unsynced bytes is drawn: of each write any of its sectors, of
//! the names that were given and taken any. Real file systems leave less disorder.

use super::{DiskDir, DiskFile};
use amcast_core::rng::Rng;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The unit that reaches the disk whole or not at all, in bytes.
const SECTOR: usize = 512;

/// A directory. Clones are the same one.
#[derive(Clone)]
pub(crate) struct FakeDisk {
    world: Arc<Mutex<FakeDiskState>>,
    path: PathBuf,
}

/// A file of it.
pub(crate) struct FakeFile {
    world: Arc<Mutex<FakeDiskState>>,
    inode: usize,
}

/// The operations that fail, and when.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    /// After so many operations that change something the machine stops: the next one is half done,
    /// and this and all later ones fail.
    pub(crate) stop_after: Option<u64>,
    /// The sync of this number, from 0, fails, and forgets what was to be synced.
    pub(crate) sync_fails: Option<u64>,
    /// It fails for want of room, as where a file system finds place for bytes when it writes them.
    pub(crate) sync_finds_no_room: bool,
    /// How many bytes there is room for.
    pub(crate) room: Option<usize>,
    /// Syncs of files take until this is over.
    pub(crate) syncs_wait: bool,
}

#[derive(Default)]
struct FakeDiskState {
    inodes: Vec<FakeInode>,
    /// The names as the process sees them.
    names: BTreeMap<String, usize>,
    /// The names as they survive.
    durable_names: BTreeMap<String, usize>,
    /// The changes of the names since they were synced.
    renamed: Vec<Naming>,
    faults: Faults,
    changes: u64,
    syncs: u64,
    stopped: bool,
}

#[derive(Default)]
struct FakeInode {
    /// As the process sees it.
    bytes: Vec<u8>,
    /// As it survives.
    durable: Vec<u8>,
    /// Written since it was synced.
    written: Vec<(usize, Vec<u8>)>,
}

#[derive(Clone)]
enum Naming {
    Made(String, usize),
    Renamed(String, String),
    Removed(String),
}

impl FakeDisk {
    pub(crate) fn new() -> Self {
        Self { world: Arc::default(), path: PathBuf::from("/fake") }
    }

    pub(crate) fn set_faults(&self, faults: Faults) {
        let mut world = self.world();
        world.faults = faults;
        (world.changes, world.syncs) = (0, 0);
    }

    /// How many operations changed something since the faults were set.
    pub(crate) fn changes(&self) -> u64 {
        self.world().changes
    }

    /// How many syncs of files there were since the faults were set.
    pub(crate) fn syncs(&self) -> u64 {
        self.world().syncs
    }

    /// The machine ends: what was not synced is there in part, as drawn. Without faults from now on.
    pub(crate) fn fail_machine(&self, rng: &mut Rng) {
        let mut world = self.world();
        for inode in &mut world.inodes {
            for (at, bytes) in std::mem::take(&mut inode.written) {
                leave_some(&mut inode.durable, at, &bytes, rng);
            }
            inode.bytes = inode.durable.clone();
        }
        let renamed = std::mem::take(&mut world.renamed);
        let mut names = std::mem::take(&mut world.durable_names);
        for naming in renamed {
            if rng.below(2) == 0 {
                naming.apply(&mut names);
            }
        }
        world.names = names.clone();
        world.durable_names = names;
        world.faults = Faults::default();
        world.stopped = false;
    }

    /// The process ends, the machine does not: all that was written is there.
    pub(crate) fn fail_process(&self) {
        let mut world = self.world();
        world.faults = Faults::default();
        world.stopped = false;
    }

    /// The bytes of a file.
    pub(crate) fn read(&self, name: &str) -> Option<Vec<u8>> {
        let world = self.world();
        world.names.get(name).map(|&inode| world.inodes[inode].bytes.clone())
    }

    /// How many bytes of a file would survive the end of the machine.
    pub(crate) fn durable_bytes(&self, name: &str) -> usize {
        let world = self.world();
        world.names.get(name).map_or(0, |&inode| world.inodes[inode].durable.len())
    }

    /// Changes the bytes of a file behind everybody's back.
    pub(crate) fn change(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let mut world = self.world();
        let inode = world.names[name];
        let inode = &mut world.inodes[inode];
        change(&mut inode.bytes);
        inode.durable = inode.bytes.clone();
    }

    /// A copy that nothing connects to this one.
    pub(crate) fn copy(&self) -> Self {
        let copy = Self::new();
        for name in self.names().expect("it works") {
            let bytes = self.read(&name).expect("it is there");
            let mut world = copy.world();
            let inode = world.inodes.len();
            world.inodes.push(FakeInode { durable: bytes.clone(), bytes, written: Vec::new() });
            world.names.insert(name.clone(), inode);
            world.durable_names.insert(name, inode);
        }
        copy
    }

    fn world(&self) -> MutexGuard<'_, FakeDiskState> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes any sectors of it.
fn leave_some(file: &mut Vec<u8>, at: usize, bytes: &[u8], rng: &mut Rng) {
    // Often all or nothing, for there may be many sectors.
    let mode = rng.below(4);
    let mut from = 0;
    while from < bytes.len() {
        let to = ((at + from) / SECTOR * SECTOR + SECTOR - at).min(bytes.len());
        if mode == 0 || (mode > 1 && rng.below(2) == 0) {
            place(file, at + from, &bytes[from..to]);
        }
        from = to;
    }
}

fn place(file: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    let end = at + bytes.len();
    if file.len() < end {
        file.resize(end, 0);
    }
    file[at..end].copy_from_slice(bytes);
}

impl Naming {
    /// Takes effect, if what it is about is there.
    fn apply(&self, names: &mut BTreeMap<String, usize>) {
        match self {
            Self::Made(name, inode) => drop(names.insert(name.clone(), *inode)),
            Self::Renamed(from, to) => {
                if let Some(inode) = names.remove(from) {
                    names.insert(to.clone(), inode);
                }
            }
            Self::Removed(name) => drop(names.remove(name)),
        }
    }
}

impl FakeDiskState {
    /// Counts a change; whether the machine stops in the midst of it.
    fn change(&mut self) -> io::Result<bool> {
        if self.stopped {
            return Err(stopped());
        }
        self.changes += 1;
        self.stopped = self.faults.stop_after.is_some_and(|after| self.changes > after);
        Ok(self.stopped)
    }

    /// How many bytes all files have.
    fn used(&self) -> usize {
        self.names.values().map(|&inode| self.inodes[inode].bytes.len()).sum()
    }

    fn rename(&mut self, naming: Naming) -> io::Result<()> {
        let stops = self.change()?;
        naming.apply(&mut self.names);
        self.renamed.push(naming);
        if stops { Err(stopped()) } else { Ok(()) }
    }
}

fn stopped() -> io::Error {
    io::Error::other("the machine has stopped")
}

fn missing() -> io::Error {
    io::ErrorKind::NotFound.into()
}

impl DiskDir for FakeDisk {
    type File = FakeFile;

    fn path(&self) -> &Path {
        &self.path
    }

    fn names(&self) -> io::Result<Vec<String>> {
        Ok(self.world().names.keys().cloned().collect())
    }

    fn create(&self, name: &str) -> io::Result<FakeFile> {
        let mut world = self.world();
        if world.names.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let inode = world.inodes.len();
        world.inodes.push(FakeInode::default());
        world.rename(Naming::Made(name.to_string(), inode))?;
        Ok(FakeFile { world: self.world.clone(), inode })
    }

    fn open(&self, name: &str) -> io::Result<FakeFile> {
        let inode = *self.world().names.get(name).ok_or_else(missing)?;
        Ok(FakeFile { world: self.world.clone(), inode })
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut world = self.world();
        if !world.names.contains_key(from) {
            return Err(missing());
        }
        world.rename(Naming::Renamed(from.to_string(), to.to_string()))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut world = self.world();
        if !world.names.contains_key(name) {
            return Err(missing());
        }
        world.rename(Naming::Removed(name.to_string()))
    }

    fn sync(&self) -> io::Result<()> {
        let mut world = self.world();
        if world.change()? {
            return Err(stopped());
        }
        world.durable_names = world.names.clone();
        world.renamed.clear();
        Ok(())
    }

    fn room(&self) -> io::Result<u64> {
        let world = self.world();
        let room = world.faults.room.unwrap_or(usize::MAX);
        Ok(room.saturating_sub(world.used()) as u64)
    }
}

impl FakeFile {
    fn world(&self) -> MutexGuard<'_, FakeDiskState> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DiskFile for FakeFile {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        let world = self.world();
        let file = &world.inodes[self.inode].bytes;
        let from = (offset as usize).min(file.len());
        let to = (from + bytes.len()).min(file.len());
        bytes[..to - from].copy_from_slice(&file[from..to]);
        Ok(to - from)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut world = self.world();
        let stops = world.change()?;
        let used = world.used();
        let inode = &mut world.inodes[self.inode];
        let grows = (offset as usize + bytes.len()).saturating_sub(inode.bytes.len());
        // A process that is killed, too, may leave a write half done.
        let bytes = if stops { &bytes[..bytes.len() / 2] } else { bytes };
        place(&mut inode.bytes, offset as usize, bytes);
        inode.written.push((offset as usize, bytes.to_vec()));
        if stops {
            return Err(stopped());
        }
        let full = grows > 0 && world.faults.room.is_some_and(|room| used + grows > room);
        if full { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.world().inodes[self.inode].bytes.len() as u64)
    }

    fn sync(&self) -> io::Result<()> {
        while self.world().faults.syncs_wait {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let mut world = self.world();
        if world.change()? {
            return Err(stopped());
        }
        let fails = world.faults.sync_fails == Some(world.syncs);
        world.syncs += 1;
        let inode = &mut world.inodes[self.inode];
        let written = std::mem::take(&mut inode.written);
        if fails {
            // Pages that could not be written count as clean from here on.
            let full = world.faults.sync_finds_no_room;
            let why = if full { Errno::NOSPC } else { Errno::IO };
            return Err(io::Error::from_raw_os_error(why.raw_os_error()));
        }
        for (at, bytes) in written {
            place(&mut inode.durable, at, &bytes);
        }
        Ok(())
    }
}

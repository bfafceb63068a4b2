//! Where the shared lines come from: files, or the heap of one process.
//!
//! Only what happens rarely is behind this trait: starting, stopping, the first touch of a peer.

use crate::error::MemoryError;
use crate::segment::SharedSegment;
use amcast_core::id::Pid;
use core::any::Any;
use core::fmt;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The file of an incarnation of a process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct IncarnationFile {
    pub(crate) pid: Pid,
    pub(crate) incarnation: u64,
}

impl fmt::Display for IncarnationFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "p{}.{}", self.pid.0, self.incarnation)
    }
}

/// Something held until it is dropped, at the latest when its holder dies.
pub(crate) type HeldResource = Box<dyn Any + Send + Sync>;

/// How memory for regions is set aside.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Backing {
    /// All pages are set aside at the start: if there is not enough, starting fails.
    #[default]
    Reserved,
    /// As [`Backing::Reserved`], and all pages are entered into the page table of the owner at the
    /// start, and those of its partners' files soon afterwards, so that the first lap of a ring takes
    /// no page faults. Asks for huge pages.
    Prefaulted,
    /// Pages are taken as they are first written. Starting checks that there is enough space now;
    /// if it runs out later the system ends the writer (`SIGBUS`).
    Sparse,
}

/// The rare operations on the lines of a cluster.
pub(crate) trait LineStore: Send + Sync {
    /// Keeps every other process out of starting, stopping and clearing until it is dropped.
    fn exclusive(&self) -> Result<HeldResource, MemoryError>;
    /// As [`LineStore::exclusive`], without waiting: none if somebody else has it.
    fn try_exclusive(&self) -> Result<Option<HeldResource>, MemoryError>;
    /// The directory file, made if it is not there; whether it was made, and is zeroed.
    fn directory(&self, lines: usize) -> Result<(SharedSegment, bool), MemoryError>;
    /// A new file of zeroed lines, and the hold that says its process lives.
    fn create(
        &self,
        name: IncarnationFile,
        lines: usize,
        backing: Backing,
    ) -> Result<(SharedSegment, HeldResource), MemoryError>;
    /// The file of another process.
    fn open(&self, name: IncarnationFile) -> Result<SharedSegment, MemoryError>;
    /// Whether the process that made the file lives. The caller has [`LineStore::exclusive`].
    fn is_held(&self, name: IncarnationFile) -> Result<bool, MemoryError>;
    /// Removes a file; nothing if it is not there.
    fn remove(&self, name: IncarnationFile) -> Result<(), MemoryError>;
    /// The files there are.
    fn list(&self) -> Result<Vec<IncarnationFile>, MemoryError>;
    /// Takes a client place, unless somebody who lives has it.
    fn take_place(&self, place: u32) -> Result<Option<HeldResource>, MemoryError>;
    /// Removes everything. The caller has [`LineStore::exclusive`] and nobody lives.
    fn remove_all(&self) -> Result<(), MemoryError>;
    /// The path of a file, for errors.
    fn path(&self, name: &dyn fmt::Display) -> PathBuf;
}

/// Lines on the heap of one process: for threads, tests and the interpreter.
#[derive(Default)]
pub(crate) struct Heap(Mutex<HeapFiles>);

#[derive(Default)]
struct HeapFiles {
    directory: Option<SharedSegment>,
    /// The lines, and a token that lives as long as the hold.
    files: BTreeMap<IncarnationFile, (SharedSegment, std::sync::Weak<()>)>,
    places: BTreeMap<u32, std::sync::Weak<()>>,
}

impl Heap {
    fn files(&self) -> MutexGuard<'_, HeapFiles> {
        // A panic in here leaves the maps as they were or with one entry more: both are fine.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LineStore for Heap {
    fn exclusive(&self) -> Result<HeldResource, MemoryError> {
        // Starting and stopping take the map's lock for each of their steps, and one directory's
        // carriers are started by one thread; nothing more is needed among threads.
        Ok(Box::new(()))
    }

    fn try_exclusive(&self) -> Result<Option<HeldResource>, MemoryError> {
        self.exclusive().map(Some)
    }

    fn directory(&self, lines: usize) -> Result<(SharedSegment, bool), MemoryError> {
        let mut files = self.files();
        let fresh = files.directory.is_none();
        let first = files.directory.get_or_insert_with(|| SharedSegment::heap(lines));
        first.again().map(|again| (again, fresh)).ok_or_else(|| gone(&"directory"))
    }

    fn create(
        &self,
        name: IncarnationFile,
        lines: usize,
        _: Backing,
    ) -> Result<(SharedSegment, HeldResource), MemoryError> {
        let token = Arc::new(());
        let segment = SharedSegment::heap(lines);
        let again = segment.again().ok_or_else(|| gone(&name))?;
        self.files().files.insert(name, (segment, Arc::downgrade(&token)));
        Ok((again, Box::new(token)))
    }

    fn open(&self, name: IncarnationFile) -> Result<SharedSegment, MemoryError> {
        let files = self.files();
        let found = files.files.get(&name).and_then(|(segment, _)| segment.again());
        found.ok_or_else(|| gone(&name))
    }

    fn is_held(&self, name: IncarnationFile) -> Result<bool, MemoryError> {
        Ok(self.files().files.get(&name).is_some_and(|(_, token)| token.strong_count() > 0))
    }

    fn remove(&self, name: IncarnationFile) -> Result<(), MemoryError> {
        self.files().files.remove(&name);
        Ok(())
    }

    fn list(&self) -> Result<Vec<IncarnationFile>, MemoryError> {
        Ok(self.files().files.keys().copied().collect())
    }

    fn take_place(&self, place: u32) -> Result<Option<HeldResource>, MemoryError> {
        let mut files = self.files();
        if files.places.get(&place).is_some_and(|token| token.strong_count() > 0) {
            return Ok(None);
        }
        let token = Arc::new(());
        files.places.insert(place, Arc::downgrade(&token));
        Ok(Some(Box::new(token)))
    }

    fn remove_all(&self) -> Result<(), MemoryError> {
        self.files().files.clear();
        Ok(())
    }

    fn path(&self, name: &dyn fmt::Display) -> PathBuf {
        PathBuf::from(format!("(heap)/{name}"))
    }
}

fn gone(name: &dyn fmt::Display) -> MemoryError {
    let path = PathBuf::from(format!("(heap)/{name}"));
    MemoryError::System { path, doing: "open it", errno: rustix::io::Errno::NOENT }
}

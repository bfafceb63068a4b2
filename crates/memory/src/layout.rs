//! Which word of the shared files means what. All numbers are words of 8 bytes, native order: the
//! files are for processes of one machine.
//!
//! ```text
//! directory        line 0       magic version cluster processes places changes .. ready
//!                  1 ..         per process   live last os-pid bell ..
//!                  ..           per process   parked ..                   (its doorbell)
//!                  ..           per place     lease os-pid ..
//!
//! p<pid>.<inc>     line 0       magic version cluster pid incarnation regions lines ready
//!                  1 ..         per region    first-line lines writer guarded guard landing ..
//!                  ..           the regions' lines
//! ```
//! `live` is the incarnation that may be written to and `last` the newest there ever was, both
//! counted from 1 so that 0 is none. A lease is the number of leases given before it, plus 1.
//! `changes` is raised after each change of a `live`. `ready` is stored last: who finds it set finds
//! the rest of the header as it will stay.

use crate::error::MemoryError;
use crate::segment::{LINE_BYTES, SharedSegment};
use amcast_core::id::Pid;
use amcast_core::memory::{CacheLine, RegionSpec};
use core::sync::atomic::{AtomicU64, Ordering};
use std::path::Path;

const MAGIC: u64 = u64::from_le_bytes(*b"amcastM\0");
/// Raised whenever these files, or what protocols and nodes keep in the regions, are laid out in
/// another way: a process of another build must not map what it would misread.
const VERSION: u64 = 5;
const READY: u64 = u64::from_le_bytes(*b"ready\0\0\0");

/// The most lines that a process's regions may have together: 1 TB.
const LINES_MAX: u64 = 1 << 34;

/// How many lines the directory file has.
pub(crate) fn directory_lines(processes: u32, places: u32) -> usize {
    1 + 2 * processes as usize + places as usize
}

/// The directory file.
#[derive(Debug)]
pub(crate) struct DirectoryLayout {
    lines: SharedSegment,
    processes: u32,
    places: u32,
}

impl DirectoryLayout {
    /// Takes a directory file into use. `fresh` says that it is zeroed and the caller's own.
    pub(crate) fn new(
        lines: SharedSegment,
        path: &Path,
        shape: [u64; 3],
        fresh: bool,
    ) -> Result<Self, MemoryError> {
        let head = &lines[0];
        if fresh {
            for (i, word) in [MAGIC, VERSION].into_iter().chain(shape).enumerate() {
                head.raw(i).store(word, Ordering::Relaxed);
            }
            head.raw(7).store(READY, Ordering::Release);
        }
        check_head(head, path)?;
        let found = [2, 3, 4].map(|i| head.word(i));
        if found != shape {
            return Err(MemoryError::Shape { path: path.to_owned(), found, expected: shape });
        }
        Ok(Self { lines, processes: shape[1] as u32, places: shape[2] as u32 })
    }

    /// Whether a directory file was written to its end; one that was not is made anew.
    pub(crate) fn is_ready(lines: &[CacheLine]) -> bool {
        lines.first().is_some_and(|head| head.stamp().0 == READY)
    }

    pub(crate) fn processes(&self) -> u32 {
        self.processes
    }

    pub(crate) fn places(&self) -> u32 {
        self.places
    }

    fn process(&self, pid: Pid) -> &CacheLine {
        assert!(pid.0 < self.processes, "a process of the cluster");
        &self.lines[1 + pid.index()]
    }

    /// Counts changes of any process's `live`.
    pub(crate) fn changes(&self) -> &AtomicU64 {
        self.lines[0].raw(5)
    }

    /// The incarnation that may be written to; 0 for none.
    #[inline]
    pub(crate) fn live(&self, pid: Pid) -> u64 {
        // Pairs with the release store in `publish`.
        self.process(pid).word(0)
    }

    /// Makes an incarnation the one to write to. The caller holds the directory's lock.
    pub(crate) fn publish(&self, pid: Pid, incarnation: u64) {
        // Pairs with the acquire load in `live`: who sees it finds the file in place.
        self.process(pid).raw(0).store(incarnation, Ordering::Release);
        self.changes().fetch_add(1, Ordering::Release);
    }

    /// The number of the next incarnation: larger than any before, and at least `at_least`. The
    /// caller holds the directory's lock.
    pub(crate) fn next_incarnation(&self, pid: Pid, at_least: u64) -> u64 {
        (self.process(pid).raw(1).load(Ordering::Relaxed) + 1).max(at_least)
    }

    /// Notes that there is an incarnation of that number. One that found no room was none: a process
    /// that starts after it has not lost anything. The caller holds the directory's lock.
    pub(crate) fn count_incarnation(&self, pid: Pid, incarnation: u64) {
        self.process(pid).raw(1).store(incarnation, Ordering::Relaxed);
    }

    /// The operating system's number of the process, for people.
    pub(crate) fn os_pid(&self, pid: Pid) -> &AtomicU64 {
        self.process(pid).raw(2)
    }

    /// The process whose doorbell wakes the process.
    pub(crate) fn bell_of(&self, pid: Pid) -> &AtomicU64 {
        self.process(pid).raw(3)
    }

    /// A doorbell.
    #[inline]
    pub(crate) fn bell(&self, pid: Pid) -> &AtomicU64 {
        assert!(pid.0 < self.processes, "a process of the cluster");
        self.lines[1 + self.processes as usize + pid.index()].raw(0)
    }

    /// The line of a client place: the last lease given and who got it.
    pub(crate) fn place(&self, place: u32) -> &CacheLine {
        assert!(place < self.places, "a client place of the cluster");
        &self.lines[1 + 2 * self.processes as usize + place as usize]
    }
}

fn check_head(head: &CacheLine, path: &Path) -> Result<(), MemoryError> {
    let corrupt = |why| Err(MemoryError::Corrupt { path: path.to_owned(), why });
    if head.stamp().0 != READY {
        return corrupt("it was not written to its end");
    }
    if head.word(0) != MAGIC {
        return corrupt("it is not a file of amcast's shared memory");
    }
    let found = head.word(1);
    if found != VERSION {
        return Err(MemoryError::Version { path: path.to_owned(), found, expected: VERSION });
    }
    Ok(())
}

/// Where a region lies in the file of its process. Copied out of the file and checked, so that
/// nobody can change it behind the carrier's back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RegionLocation {
    /// Its first line.
    pub(crate) first: usize,
    /// How many lines.
    pub(crate) count: usize,
    /// The process that may write it.
    pub(crate) writer: Pid,
    /// Whether it has a guard.
    pub(crate) guarded: bool,
}

/// The file of one incarnation of a process.
#[derive(Debug)]
pub(crate) struct ProcessLayout {
    lines: SharedSegment,
    regions: Vec<RegionLocation>,
}

/// Bytes of a page: a file takes whole ones.
const PAGE_BYTES: u64 = 4096;

/// How many bytes the file of a process with these regions takes.
pub(crate) fn file_bytes(specs: &[RegionSpec]) -> Result<u64, MemoryError> {
    let (_, lines) = plan(specs)?;
    Ok((lines as u64 * LINE_BYTES as u64).next_multiple_of(PAGE_BYTES))
}

/// Regions laid out one after the other, and how many lines the file has.
pub(crate) fn plan(specs: &[RegionSpec]) -> Result<(Vec<RegionLocation>, usize), MemoryError> {
    let mut first = 1 + specs.len() as u64;
    let mut places = Vec::with_capacity(specs.len());
    for spec in specs {
        // Lines are fetched in pairs: two regions, often of two writers, do not share one.
        first = first.next_multiple_of(2);
        places.push(RegionLocation {
            first: first as usize,
            count: spec.lines as usize,
            writer: spec.writer,
            guarded: spec.guarded,
        });
        first += u64::from(spec.lines);
    }
    let lines = usize::try_from(first).ok().filter(|_| first <= LINES_MAX && specs.len() < 1 << 16);
    lines.map(|lines| (places, lines)).ok_or(MemoryError::TooLarge { lines: first })
}

impl ProcessLayout {
    /// Writes the header of a zeroed file.
    pub(crate) fn create(
        lines: SharedSegment,
        name: [u64; 3],
        regions: Vec<RegionLocation>,
    ) -> Self {
        let [cluster, pid, incarnation] = name;
        for (i, place) in regions.iter().enumerate() {
            let words = [
                place.first as u64,
                place.count as u64,
                u64::from(place.writer.0),
                u64::from(place.guarded),
            ];
            for (j, word) in words.into_iter().enumerate() {
                lines[1 + i].raw(j).store(word, Ordering::Relaxed);
            }
        }
        let head =
            [MAGIC, VERSION, cluster, pid, incarnation, regions.len() as u64, lines.len() as u64];
        for (i, word) in head.into_iter().enumerate() {
            lines[0].raw(i).store(word, Ordering::Relaxed);
        }
        lines[0].raw(7).store(READY, Ordering::Release);
        Self { lines, regions }
    }

    /// Reads a word of each page, so that the system enters all pages into this process's page table.
    pub(crate) fn touch_pages(&self) {
        for line in self.lines.iter().step_by(PAGE_BYTES as usize / LINE_BYTES) {
            core::hint::black_box(line.word(0));
        }
    }

    /// Whether a process may write to a region.
    pub(crate) fn has_region_of(&self, pid: Pid) -> bool {
        self.regions.iter().any(|region| region.writer == pid)
    }

    /// Reads the header of another process's file. Nothing in it is believed.
    pub(crate) fn open(
        lines: SharedSegment,
        path: &Path,
        name: [u64; 3],
    ) -> Result<Self, MemoryError> {
        let corrupt = |why| MemoryError::Corrupt { path: path.to_owned(), why };
        let head = lines.first().ok_or_else(|| corrupt("it is empty"))?;
        check_head(head, path)?;
        if [2, 3, 4].map(|i| head.word(i)) != name {
            return Err(corrupt("it is the file of another process"));
        }
        let (count, len) = (head.word(5), lines.len() as u64);
        if head.word(6) != len || count >= len || count >= 1 << 16 {
            return Err(corrupt("its length is not the one in its header"));
        }
        let mut regions = Vec::with_capacity(count as usize);
        for line in &lines[1..=count as usize] {
            let [first, size, writer, guarded, ..] = line.words();
            let end = first.checked_add(size);
            let (Some(end), Ok(writer)) = (end, u32::try_from(writer)) else {
                return Err(corrupt("a region is out of range"));
            };
            if first <= count || end > len {
                return Err(corrupt("a region is out of range"));
            }
            regions.push(RegionLocation {
                first: first as usize,
                count: size as usize,
                writer: Pid(writer),
                guarded: guarded != 0,
            });
        }
        Ok(Self { lines, regions })
    }

    /// Where a region lies, if there is such a region.
    #[inline]
    pub(crate) fn place(&self, region: usize) -> Option<RegionLocation> {
        self.regions.get(region).copied()
    }

    /// The lines of a place.
    #[inline]
    pub(crate) fn lines(&self, place: RegionLocation) -> &[CacheLine] {
        &self.lines[place.first..place.first + place.count]
    }

    /// The guard word of a region; it lies in the region's line of the header.
    #[inline]
    pub(crate) fn guard(&self, region: usize) -> &AtomicU64 {
        self.lines[1 + region].raw(4)
    }

    /// The word beside the guard in which an agent says that it stores; see [`crate::guard`].
    #[inline]
    pub(crate) fn landing(&self, region: usize) -> &AtomicU64 {
        self.lines[1 + region].raw(5)
    }

    #[cfg(test)]
    fn segment(&self) -> &SharedSegment {
        &self.lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(lines: u32) -> RegionSpec {
        RegionSpec { name: "x", lines, writer: Pid(1), guarded: true }
    }

    fn file() -> SharedSegment {
        let (places, lines) = plan(&[spec(3), spec(5)]).expect("small");
        let made = ProcessLayout::create(SharedSegment::heap(lines), [7, 1, 2], places);
        made.segment().again().expect("heap")
    }

    #[test]
    fn regions_do_not_overlap_and_begin_on_pairs_of_lines() {
        let (places, lines) = plan(&[spec(3), spec(0), spec(5)]).expect("small");
        assert_eq!(places.iter().map(|p| p.first).collect::<Vec<_>>(), [4, 8, 8]);
        assert_eq!(lines, 13);
    }

    #[test]
    fn regions_that_cannot_fit_are_refused() {
        let all: Vec<_> = (0..8).map(|_| spec(u32::MAX)).collect();
        assert!(matches!(plan(&all), Err(MemoryError::TooLarge { .. })));
    }

    #[test]
    fn what_was_created_opens_with_the_same_regions() {
        let opened = ProcessLayout::open(file(), Path::new("p"), [7, 1, 2]).expect("good");
        assert_eq!(opened.regions, plan(&[spec(3), spec(5)]).expect("small").0);
    }

    #[test]
    fn every_lie_in_a_header_is_found() {
        // (line, word, value): each makes the header wrong in one place.
        let lies = [
            (0, 0, 1),
            (0, 1, 9),
            (0, 2, 8),
            (0, 3, 0),
            (0, 4, 3),
            (0, 5, 60_000),
            (0, 6, 1),
            (0, 7, 0),
            (1, 0, 2),
            (1, 1, 100),
            (1, 1, u64::MAX),
            (2, 0, u64::MAX),
            (2, 2, 1 << 32),
        ];
        for (line, word, value) in lies {
            let file = file();
            file[line].raw(word).store(value, Ordering::Relaxed);
            let opened = ProcessLayout::open(file, Path::new("p"), [7, 1, 2]);
            assert!(opened.is_err(), "line {line} word {word} = {value}");
        }
    }
}

//! A file seen through a piece of it in memory: reads in order cost few system calls.

use crate::disk::DiskFile;
use std::io;

/// How much is read at first, unless more is looked at: enough for one record, most likely.
const FIRST_BYTES: usize = 16 << 10;

/// How much is read at once where reads are sequential. Each read is twice the one before, up to this.
const READ_BYTES: usize = 256 << 10;

/// A piece of a file.
#[derive(Debug)]
pub(crate) struct FileWindow<'f, F> {
    file: &'f F,
    /// Where the piece begins in the file.
    at: u64,
    /// The piece; shorter than what was asked for only at the file's end.
    bytes: Vec<u8>,
    /// How much is read next.
    next_bytes: usize,
    /// Whether the piece ends where the file does, which has less than was asked for.
    at_end: bool,
}

impl<'f, F: DiskFile> FileWindow<'f, F> {
    pub(crate) fn new(file: &'f F) -> Self {
        Self { file, at: 0, bytes: Vec::new(), next_bytes: FIRST_BYTES, at_end: false }
    }

    /// The file.
    pub(crate) fn file(&self) -> &'f F {
        self.file
    }

    /// `count` bytes from `offset`, fewer at the file's end.
    pub(crate) fn look(&mut self, offset: u64, count: usize) -> io::Result<&[u8]> {
        let end = self.at + self.bytes.len() as u64;
        // Behind the file's end there is nothing to read, however often it is looked at.
        let is_beyond = offset + count as u64 > end && !self.at_end;
        if offset < self.at || is_beyond {
            let read = count.max(self.next_bytes);
            self.next_bytes = (self.next_bytes * 2).min(READ_BYTES);
            self.bytes.clear();
            self.bytes.resize(read, 0);
            self.at = offset;
            let got = self.file.read_at(&mut self.bytes, offset)?;
            self.bytes.truncate(got);
            self.at_end = got < read;
        }
        let from = ((offset - self.at) as usize).min(self.bytes.len());
        let to = (from + count).min(self.bytes.len());
        Ok(&self.bytes[from..to])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// A file that counts the bytes that are asked of it.
    struct CountingFile {
        bytes: Vec<u8>,
        asked: AtomicUsize,
    }

    impl DiskFile for CountingFile {
        fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
            self.asked.fetch_add(bytes.len(), Ordering::Relaxed);
            let from = self.bytes.get(offset as usize..).unwrap_or_default();
            let count = from.len().min(bytes.len());
            bytes[..count].copy_from_slice(&from[..count]);
            Ok(count)
        }

        fn write_at(&self, _: &[u8], _: u64) -> io::Result<()> {
            unreachable!("a window reads")
        }

        fn size(&self) -> io::Result<u64> {
            Ok(self.bytes.len() as u64)
        }

        fn sync(&self) -> io::Result<()> {
            unreachable!("a window reads")
        }
    }

    #[test]
    fn what_is_behind_the_end_of_a_file_is_not_read_again_and_again() {
        let file = CountingFile { bytes: vec![7; 1_000_000], asked: AtomicUsize::new(0) };
        let mut window = FileWindow::new(&file);
        for at in (0..4_000_000_u64).step_by(8) {
            let whole = 1_000_000_u64.saturating_sub(at).min(32) as usize;
            assert_eq!(window.look(at, 32).unwrap(), &[7; 32][..whole], "at {at}");
        }
        let asked = file.asked.load(Ordering::Relaxed);
        assert!(asked < 2_000_000, "{asked} bytes were asked for, of a file of 1,000,000");
        // The bytes before are there again.
        assert_eq!(window.look(3, 2).unwrap(), [7; 2]);
        assert_eq!(window.look(999_999, 2).unwrap(), [7; 1]);
    }
}

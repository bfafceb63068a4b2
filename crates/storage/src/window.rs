//! A file seen through a piece of it in memory: reads in order cost few system calls.

use crate::disk::File;
use std::io;

/// How much is read at first, unless more is looked at: enough for one record, most likely.
const FIRST_BYTES: usize = 16 << 10;

/// How much is read at once where the reading goes on. Each read is twice the one before, up to this.
const READ_BYTES: usize = 256 << 10;

/// A piece of a file.
#[derive(Debug)]
pub(crate) struct Window<'f, F> {
    file: &'f F,
    /// Where the piece begins in the file.
    at: u64,
    /// The piece; shorter than what was asked for only at the file's end.
    bytes: Vec<u8>,
    /// How much is read next.
    next_bytes: usize,
}

impl<'f, F: File> Window<'f, F> {
    pub(crate) fn new(file: &'f F) -> Self {
        Self { file, at: 0, bytes: Vec::new(), next_bytes: FIRST_BYTES }
    }

    /// `count` bytes from `offset`, fewer at the file's end.
    pub(crate) fn look(&mut self, offset: u64, count: usize) -> io::Result<&[u8]> {
        let end = self.at + self.bytes.len() as u64;
        if offset < self.at || offset + count as u64 > end {
            let read = count.max(self.next_bytes);
            self.next_bytes = (self.next_bytes * 2).min(READ_BYTES);
            self.bytes.clear();
            self.bytes.resize(read, 0);
            self.at = offset;
            let got = self.file.read_at(&mut self.bytes, offset)?;
            self.bytes.truncate(got);
        }
        let from = ((offset - self.at) as usize).min(self.bytes.len());
        let to = (from + count).min(self.bytes.len());
        Ok(&self.bytes[from..to])
    }
}

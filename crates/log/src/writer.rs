//! Writes values to files behind the thread that executes commands.
//!
//! Blocks to be written wait in a queue of bounded bytes until they fill one large write, or for
//! ever if no more arrive: these files end with their process, so a value is no safer for being in
//! them. When the queue is full, the caller waits until the disk has taken some of it.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Bytes that wait before they are written.
const WRITE_BYTES: usize = 64 << 10;

/// Bytes that may wait, beside the last value.
const QUEUE_BYTES: usize = 2 << 20;

/// Bytes to be written, and their place.
struct RowWriteJob {
    file: Arc<File>,
    offset: u64,
    bytes: Arc<[u8]>,
}

#[derive(Default)]
struct RowWriteQueue {
    jobs: VecDeque<RowWriteJob>,
    /// Bytes of jobs that are not done, those that are being written included.
    bytes: usize,
    /// Why a file could not be written.
    failed: Option<io::Error>,
    stop: bool,
    /// Everything is to be written, however little it is.
    flush: bool,
}

#[derive(Default)]
struct RowWriterShared {
    queue: Mutex<RowWriteQueue>,
    /// There is enough to write, or the writer is to end.
    filled: Condvar,
    /// Jobs are done.
    emptied: Condvar,
    /// Jobs that are done.
    done: AtomicU64,
}

impl RowWriterShared {
    fn queue(&self) -> MutexGuard<'_, RowWriteQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A thread that writes. It ends with this; what it has not written by then never is.
pub(super) struct RowWriter(Arc<RowWriterShared>);

impl Drop for RowWriter {
    fn drop(&mut self) {
        let mut queue = self.0.queue();
        queue.stop = true;
        queue.jobs.clear();
        self.0.filled.notify_one();
    }
}

impl RowWriter {
    /// Starts one.
    ///
    /// # Errors
    /// When the system has no thread for it.
    pub(super) fn start() -> io::Result<Self> {
        let shared = Arc::new(RowWriterShared::default());
        let mine = Arc::clone(&shared);
        std::thread::Builder::new().name("values".to_string()).spawn(move || work(&mine))?;
        Ok(Self(shared))
    }

    /// How many of the jobs that it was given are done; they are done in their order.
    pub(super) fn done(&self) -> u64 {
        self.0.done.load(Ordering::Acquire)
    }

    /// Has `bytes` written, which are contiguous with what was given before if that was for the same
    /// file and ended there.
    ///
    /// # Errors
    /// When something that was given before could not be written.
    pub(super) fn put(&self, file: &Arc<File>, offset: u64, bytes: Arc<[u8]>) -> io::Result<()> {
        let mut queue = self.0.queue();
        while queue.bytes > QUEUE_BYTES && queue.failed.is_none() {
            queue = self.0.emptied.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        if let Some(e) = &queue.failed {
            return Err(io::Error::new(e.kind(), e.to_string()));
        }
        let before = queue.bytes;
        queue.bytes += bytes.len();
        queue.jobs.push_back(RowWriteJob { file: Arc::clone(file), offset, bytes });
        if before < WRITE_BYTES && queue.bytes >= WRITE_BYTES {
            self.0.filled.notify_one();
        }
        Ok(())
    }

    /// Waits until all that was given is written.
    #[cfg(test)]
    pub(super) fn settle(&self) {
        let mut queue = self.0.queue();
        queue.flush = true;
        self.0.filled.notify_one();
        while queue.bytes > 0 && queue.failed.is_none() {
            queue = self.0.emptied.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        queue.flush = false;
    }
}

/// The thread: writes what waits, all at once as far as it is contiguous.
fn work(shared: &RowWriterShared) {
    let (mut jobs, mut run) = (VecDeque::new(), Vec::new());
    loop {
        {
            let mut queue = shared.queue();
            while !queue.stop && queue.bytes < if queue.flush { 1 } else { WRITE_BYTES } {
                queue = shared.filled.wait(queue).unwrap_or_else(PoisonError::into_inner);
            }
            if queue.stop {
                return;
            }
            std::mem::swap(&mut queue.jobs, &mut jobs);
        }
        while let Some(first) = jobs.pop_front() {
            run.clear();
            run.extend_from_slice(&first.bytes);
            let mut count = 1;
            while let Some(next) = jobs.front()
                && Arc::ptr_eq(&next.file, &first.file)
                && next.offset == first.offset + run.len() as u64
                && run.len() < QUEUE_BYTES
            {
                run.extend_from_slice(&next.bytes);
                jobs.pop_front();
                count += 1;
            }
            let written = first.file.write_all_at(&run, first.offset);
            let mut queue = shared.queue();
            queue.bytes -= run.len();
            let ends = written.is_err();
            match written {
                Ok(()) => _ = shared.done.fetch_add(count, Ordering::Release),
                Err(e) => queue.failed = Some(e),
            }
            shared.emptied.notify_all();
            if ends {
                // The next caller receives the error, and ends the process.
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::segments::named_once;
    use super::*;

    #[test]
    fn what_is_put_is_written_where_it_belongs_and_in_its_order() {
        let files: Vec<_> = (0..2).map(|_| named_once(&std::env::temp_dir()).unwrap()).collect();
        let files: Vec<Arc<File>> = files.into_iter().map(Arc::new).collect();
        let writer = RowWriter::start().unwrap();
        let mut given = 0;
        for n in 0..300_u64 {
            // Each file in turn has a row of values of 1000 bytes; then the first has a gap.
            let (file, at) = (&files[(n / 100 % 2) as usize], n % 100 + 100 * (n / 200));
            let bytes: Arc<[u8]> = vec![n as u8; 1000].into();
            writer.put(file, 1000 * at, bytes).unwrap();
            given += 1;
            assert!(writer.done() <= given);
        }
        writer.settle();
        assert_eq!(writer.done(), given);
        for (file, len) in [(0, 200_000), (1, 100_000)] {
            let mut bytes = vec![0; len];
            files[file].read_exact_at(&mut bytes, 0).unwrap();
            for (at, value) in bytes.chunks(1000).enumerate() {
                let n = at % 100 + 100 * file + 200 * (at / 100);
                assert!(value.iter().all(|b| *b == n as u8), "{file} {at}");
            }
        }
    }

    #[test]
    fn a_disk_that_takes_nothing_is_told_to_who_puts_next_and_holds_nobody_up() {
        let full = Arc::new(File::options().write(true).open("/dev/full").unwrap());
        let writer = RowWriter::start().unwrap();
        let value: Arc<[u8]> = vec![1; 100_000].into();
        let failed = (0..1000).find_map(|n| writer.put(&full, 100_000 * n, value.clone()).err());
        assert_eq!(failed.expect("it is reported").kind(), io::ErrorKind::StorageFull);
        assert_eq!(writer.done(), 0);
    }
}

//! Lines for people, on standard error or in a log file. A caller puts its line into a queue, and a
//! thread of the queue's own writes it: a terminal that is stopped, a pipe that nobody reads or a
//! disk that hangs blocks no working thread.
//!
//! A queue is bounded. Lines for which it has no room are dropped and counted, and the count is
//! written in their place, as soon as some are taken again. The last words of a process are put in
//! even if the queue is full, and [`end`] waits for them, but not for long.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How many bytes of lines wait at the most.
pub const WAITING_BYTES_MAX: usize = 256 << 10;

/// How long the end of a process waits for its last words to be written.
pub const END_PATIENCE: Duration = Duration::from_millis(500);

/// All queues of this process.
static ALL: Mutex<Vec<LogLineQueue>> = Mutex::new(Vec::new());

/// A queue of lines, and the thread that writes them. It runs for as long as the process does.
#[derive(Clone)]
pub struct LogLineQueue(Arc<LineShared>);

struct LineShared {
    queue: Mutex<LineQueue>,
    changed: Condvar,
}

#[derive(Default)]
struct LineQueue {
    lines: VecDeque<Vec<u8>>,
    bytes: usize,
    /// Lines that found no room since the last one that did.
    dropped: u64,
    /// A line was taken out and is not written yet.
    writing: bool,
}

impl LineQueue {
    fn push(&mut self, line: Vec<u8>) {
        self.bytes += line.len();
        self.lines.push_back(line);
    }

    /// Puts in how many lines were dropped, if any were.
    fn push_count(&mut self) {
        let text = match std::mem::take(&mut self.dropped) {
            0 => return,
            1 => "1 line is".to_string(),
            n => format!("{n} lines are"),
        };
        let os_pid = std::process::id();
        let text =
            format!("amcast (process {os_pid}): {text} missing here: nobody took them in time\n");
        self.push(text.into_bytes());
    }
}

impl LogLineQueue {
    /// Begins a queue whose lines are given to `write`, each as a whole. Where the system has no thread for it
    /// they are dropped.
    pub fn begin(mut write: impl FnMut(&[u8]) + Send + 'static) -> Self {
        let shared = LineShared { queue: Mutex::default(), changed: Condvar::new() };
        let lines = Self(Arc::new(shared));
        let own = lines.clone();
        let work = move || {
            loop {
                write(&own.take());
            }
        };
        // An error could not be reported.
        let _ = thread::Builder::new().name("lines".to_string()).spawn(work);
        ALL.lock().unwrap_or_else(PoisonError::into_inner).push(lines.clone());
        lines
    }

    fn queue(&self) -> MutexGuard<'_, LineQueue> {
        self.0.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next line, once there is one; what was taken before is written.
    fn take(&self) -> Vec<u8> {
        let mut queue = self.queue();
        queue.writing = false;
        self.0.changed.notify_all();
        loop {
            if queue.lines.is_empty() {
                queue.push_count();
            }
            if let Some(line) = queue.lines.pop_front() {
                queue.bytes -= line.len();
                queue.writing = true;
                return line;
            }
            queue = self.0.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Puts in a line, with its end, if there is room; never waits.
    pub fn put(&self, line: &[u8]) {
        let mut queue = self.queue();
        if queue.bytes + line.len() > WAITING_BYTES_MAX {
            queue.dropped += 1;
            return;
        }
        queue.push_count();
        queue.push(line.to_vec());
        self.0.changed.notify_all();
    }

    /// Puts in a line that says why the process ends, even if the queue is full.
    pub fn put_last(&self, line: &[u8]) {
        let mut queue = self.queue();
        queue.push_count();
        queue.push(line.to_vec());
        self.0.changed.notify_all();
    }

    /// Waits until everything is written, or until then.
    fn wait(&self, until: Instant) {
        let mut queue = self.queue();
        while queue.writing || !queue.lines.is_empty() || queue.dropped > 0 {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let waited = self.0.changed.wait_timeout(queue, left);
            queue = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// The lines of this process on standard error. Each is written in one piece: other processes write there, too.
pub fn standard_error() -> &'static LogLineQueue {
    static LINES: OnceLock<LogLineQueue> = OnceLock::new();
    LINES.get_or_init(|| {
        LogLineQueue::begin(|line| {
            // Nobody has to read it.
            let _ = io::stderr().write_all(line);
        })
    })
}

/// Before the process ends: waits until all that was put in anywhere is written, [`END_PATIENCE`] at the most.
pub fn end() {
    let until = Instant::now() + END_PATIENCE;
    let all = ALL.lock().unwrap_or_else(PoisonError::into_inner).clone();
    all.iter().for_each(|lines| lines.wait(until));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

    /// Lines that are written when the holder of the receiver takes them: an untaken line blocks.
    fn blocked() -> (LogLineQueue, Receiver<String>) {
        let (to, written): (SyncSender<String>, _) = sync_channel(0);
        let write = move |line: &[u8]| {
            // The test that took them has ended.
            let _ = to.send(String::from_utf8(line.to_vec()).unwrap());
        };
        (LogLineQueue::begin(write), written)
    }

    #[test]
    fn nobody_waits_for_one_who_takes_nothing_and_what_was_dropped_is_counted_in_its_place() {
        let _limit = amcast_test_policy::time_limit();
        let (lines, written) = blocked();
        let line = |n: usize| format!("{n:>1023}\n").into_bytes();
        let room = WAITING_BYTES_MAX / 1024;
        lines.put(&line(0));
        // The thread has taken the first one out.
        while !lines.queue().writing {
            thread::yield_now();
        }
        (1..room + 8).for_each(|n| lines.put(&line(n)));
        assert_eq!(lines.queue().dropped, 7);
        assert_eq!(written.recv().unwrap().trim(), "0");
        assert_eq!(written.recv().unwrap().trim(), "1");
        // There is room now for how many there were, and for a short line.
        while lines.queue().bytes + 200 > WAITING_BYTES_MAX {
            thread::yield_now();
        }
        lines.put(b"again\n");
        for n in 2..=room {
            assert_eq!(written.recv().unwrap().trim(), n.to_string());
        }
        let count = written.recv().unwrap();
        assert!(count.ends_with("7 lines are missing here: nobody took them in time\n"), "{count}");
        assert_eq!(written.recv().unwrap(), "again\n");
    }

    #[test]
    fn how_many_were_dropped_is_said_also_when_nothing_follows() {
        let _limit = amcast_test_policy::time_limit();
        let (lines, written) = blocked();
        lines.put(b"first\n");
        lines.put(&vec![b'x'; WAITING_BYTES_MAX + 1]);
        assert_eq!(written.recv().unwrap(), "first\n");
        assert!(written.recv().unwrap().contains(": 1 line is missing here"));
    }

    #[test]
    fn last_words_are_waited_for_and_not_for_long() {
        let _limit = amcast_test_policy::time_limit();
        let (lines, written) = blocked();
        while !lines.queue().writing {
            lines.put(&[b'x'; 1000]);
        }
        (0..WAITING_BYTES_MAX / 1000 + 2).for_each(|_| lines.put(&[b'x'; 1000]));
        lines.put_last(b"the disk is full\n");
        let begun = Instant::now();
        end();
        assert!(begun.elapsed() >= END_PATIENCE, "nobody took them");
        let taken = thread::spawn(move || written.iter().any(|line| line == "the disk is full\n"));
        lines.wait(Instant::now() + Duration::from_secs(60));
        assert!(taken.join().unwrap());
        assert!(!lines.queue().writing);
    }
}

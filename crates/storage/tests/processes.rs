//! Logs of processes that are killed at any moment, or may not make longer files: all records that the log
//! reported are there when it is opened again.

use amcast_core::rng::Rng;
use amcast_core::step::Ticket;
use amcast_storage::{Completion, CompletionWaker, LogRecovery, StorageError, Wal, WalOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;

/// How often a process is killed.
const KILLS: u32 = 40;

/// Where the process that is to be killed finds its log; in the environment.
const DIR: &str = "AMCAST_STORAGE_TEST_DIR";
/// How long its segments are, in bytes.
const SEGMENT: &str = "AMCAST_STORAGE_TEST_SEGMENT";

/// A report of the process: a letter, and a number in eight bytes.
const WRITTEN: u8 = b'w';
const DURABLE: u8 = b'd';
const FAILED: u8 = b'f';

fn main() {
    if let Some(dir) = std::env::var_os(DIR) {
        return appends(Path::new(&dir));
    }
    // The request that the test runner of other files gives.
    let named = |name: &str| {
        let wanted: Vec<String> =
            std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
        wanted.is_empty() || wanted.iter().any(|wanted| name.contains(wanted.as_str()))
    };
    let tests: [(&str, fn()); 3] = [
        ("a_process_that_is_killed_loses_nothing_it_was_told", killed),
        ("a_file_that_may_not_be_longer_fails_the_log_in_words", limited),
        ("a_second_process_is_refused_in_words", second),
    ];
    for (name, test) in tests.into_iter().filter(|(name, _)| named(name)) {
        // A limit that is over names the thread.
        let limited = move || {
            let _limit = amcast_test_policy::time_limit();
            test();
        };
        let thread = std::thread::Builder::new().name(name.to_string()).spawn(limited);
        let ended = thread.expect("a thread can be started").join();
        ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        println!("test {name} ... ok");
    }
}

/// The bytes of a record: they follow from its number and the life that wrote it.
fn record(number: u64, life: u32) -> Vec<u8> {
    let mut rng = Rng::new(number << 20 | u64::from(life));
    let length = 12 + rng.below(if number.is_multiple_of(16) { 9000 } else { 300 }) as usize;
    let mut bytes = [&number.to_le_bytes()[..], &life.to_le_bytes()].concat();
    bytes.extend(std::iter::repeat_with(|| rng.word() as u8).take(length - 12));
    bytes
}

fn options(segment_bytes: u64) -> WalOptions {
    WalOptions { segment_bytes, queue_bytes: 64 << 10, ..WalOptions::default() }
}

/// The process: appends for ever, and prints its completions.
fn appends(dir: &Path) {
    let segment = std::env::var(SEGMENT).expect("it is set").parse().expect("a number");
    let (send, woken) = sync_channel(1);
    let wake: CompletionWaker = Arc::new(move || {
        let _ = send.try_send(());
    });
    let options = options(segment);
    let (mut log, recovered) = Wal::open(dir, &options, wake, |_, _| {}).expect("it opens");
    let mut rng = Rng::new(u64::from(std::process::id()));
    // In some lives nobody waits for the disk.
    let awaits = rng.below(3) > 0;
    loop {
        while log.room() > 0 {
            let number = log.next();
            let bytes = record(number, recovered.life);
            if log.append(Ticket(number), &bytes, awaits && rng.below(3) == 0).is_err() {
                break;
            }
            if rng.below(50) == 0 {
                break;
            }
        }
        if rng.below(20) == 0 {
            log.trim(log.written() / 2);
        }
        log.submit();
        woken.recv().expect("it is woken");
        let (mut told, mut failed) = (Vec::new(), None);
        log.take(|done| {
            let (letter, number) = match done {
                Completion::Written(before) => (WRITTEN, before),
                Completion::Durable(Ticket(number)) => (DURABLE, number + 1),
                Completion::Failed(e) => {
                    failed = Some(e);
                    (FAILED, 0)
                }
                Completion::Loaded { .. } | Completion::Warned(_) => return,
            };
            told.push(letter);
            told.extend_from_slice(&number.to_le_bytes());
        });
        std::io::stdout().write_all(&told).expect("somebody reads");
        std::io::stdout().flush().expect("somebody reads");
        if let Some(e) = failed {
            eprintln!("{e}");
            return;
        }
    }
}

/// The completions of a process before it ended.
#[derive(Default)]
struct ProcessReport {
    written: u64,
    durable: u64,
    failed: bool,
}

/// Starts the process; `shell` runs before it.
fn start(dir: &Path, segment: u64, shell: &str) -> Child {
    let me = std::env::current_exe().expect("it has a name");
    let mut command = Command::new("sh");
    command.arg("-c").arg(format!("{shell} exec '{}'", me.display()));
    command.env(DIR, dir).env(SEGMENT, segment.to_string());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("there is a shell")
}

/// Listens to a process, and kills it after so many words; all that it said.
fn listen(child: &mut Child, words: u64) -> ProcessReport {
    let mut out = child.stdout.take().expect("it is piped");
    let (mut told, mut heard) = (ProcessReport::default(), 0);
    let mut word = [0; 9];
    while out.read_exact(&mut word).is_ok() {
        let number = u64::from_le_bytes(word[1..].try_into().expect("eight bytes"));
        match word[0] {
            WRITTEN => told.written = told.written.max(number),
            DURABLE => told.durable = told.durable.max(number),
            FAILED => told.failed = true,
            letter => panic!("it says {letter}"),
        }
        heard += 1;
        if heard == words {
            child.kill().expect("it can be killed");
        }
    }
    child.wait().expect("it ends");
    told
}

/// Opens a log and closes it; its records, each with the life that wrote it.
fn look(dir: &Path, segment: u64) -> (LogRecovery, Vec<(u64, u32)>) {
    let mut found = Vec::new();
    let options = options(segment);
    let (log, recovered) = Wal::open(dir, &options, Arc::new(|| {}), |number, bytes| {
        let life = u32::from_le_bytes(bytes[8..12].try_into().expect("four bytes"));
        assert_eq!(bytes, record(number, life), "record {number} of life {life}");
        found.push((number, life));
    })
    .unwrap_or_else(|e| panic!("{e}"));
    log.close().expect("nothing fails");
    (recovered, found)
}

fn killed() {
    let dir = ProcessTestDir::new("killed");
    let mut rng = Rng::new(20_26);
    let mut before: Vec<(u64, u32)> = Vec::new();
    let segment = 256 << 10;
    for kill in 0..KILLS {
        let mut child = start(&dir.0, segment, "");
        let told = listen(&mut child, 1 + rng.below(400));
        let (recovered, found) = look(&dir.0, segment);
        assert!(!recovered.lossy, "the machine did not fail");
        let next = recovered.next;
        assert!(told.durable <= next, "{next} of {} durable ones, kill {kill}", told.durable);
        assert!(told.written <= next, "{next} of {} written ones, kill {kill}", told.written);
        // All records are still there and unchanged, but for the trimmed ones.
        let kept: Vec<_> = before.iter().filter(|(n, _)| *n >= recovered.first).collect();
        assert!(kept.iter().zip(&found).all(|(a, b)| **a == *b), "kill {kill}");
        assert!(found.len() >= kept.len(), "kill {kill}");
        let numbers = found.iter().map(|(number, _)| *number);
        assert!(numbers.eq(recovered.first..next), "kill {kill}");
        before = found;
    }
    let lives: std::collections::BTreeSet<u32> = before.iter().map(|(_, life)| *life).collect();
    assert!(lives.len() > 1, "records of {lives:?} only");
}

fn limited() {
    let dir = ProcessTestDir::new("limited");
    let (first, later) = (32 << 10, 128 << 10);
    look(&dir.0, first);
    // Half as much as another segment needs, in blocks of 512 bytes; the signal would end the process.
    let mut child = start(&dir.0, later, "trap '' XFSZ; ulimit -f 128;");
    let mut says = String::new();
    let told = listen(&mut child, u64::MAX);
    let stderr = child.stderr.as_mut().expect("it is piped");
    stderr.read_to_string(&mut says).expect("it is text");
    assert!(told.failed && says.contains("ulimit -f"), "{says}");
    let (recovered, _) = look(&dir.0, later);
    assert!(recovered.next > 0, "the first segment was filled");
    assert!(told.durable <= recovered.next && told.written <= recovered.next, "{}", recovered.next);
}

fn second() {
    let dir = ProcessTestDir::new("second");
    let mut child = start(&dir.0, 32 << 10, "");
    // Once it says something it has the log.
    let mut word = [0];
    child.stdout.as_mut().expect("it is piped").read_exact(&mut word).expect("it says something");
    match Wal::open(&dir.0, &options(32 << 10), Arc::new(|| {}), |_, _| {}) {
        Err(e @ StorageError::InUse { .. }) => {
            let says = e.to_string();
            assert!(says.contains(&format!("process {}", child.id())), "{says}");
        }
        other => panic!("{other:?}"),
    }
    child.kill().expect("it can be killed");
    child.wait().expect("it ends");
    look(&dir.0, 32 << 10);
}

/// A directory that goes when the test ends well.
struct ProcessTestDir(PathBuf);

impl ProcessTestDir {
    fn new(name: &str) -> Self {
        let name = format!("amcast-storage-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        Self(path)
    }
}

impl Drop for ProcessTestDir {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            std::fs::remove_dir_all(&self.0).expect("it can be removed");
        }
    }
}

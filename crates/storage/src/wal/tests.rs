//! A loop and its log: the completions, their order, and the end of a log that failed.

use super::{AppendError, Completion, CompletionWaker, Wal, WalOptions};
use crate::disk::DiskDir;
use crate::disk::fake::{FakeDisk, Faults};
use crate::error::{Limit, StorageError};
use crate::format::{BootId, LogId, LogOwnerId};
use crate::machine::BootIdentity;
use crate::store::{LogRecovery, ReadError, SegmentStore};
use amcast_core::step::Ticket;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

const OPTIONS: WalOptions = WalOptions {
    segment_bytes: 16 << 10,
    spares: 2,
    queue_bytes: 4 << 10,
    sync_every: Duration::from_millis(1),
    sync_bytes: 8 << 10,
    owner: LogOwnerId::UNKNOWN,
};

/// A loop that sleeps until it is woken.
struct WalLoop {
    log: Wal,
    woken: Receiver<()>,
    done: Vec<Completion>,
}

impl WalLoop {
    fn open(disk: &FakeDisk) -> (Self, LogRecovery) {
        let machine = BootIdentity { boot: BootId(1), fresh: LogId(7), owner: LogOwnerId::UNKNOWN };
        let (bytes, spares) = (OPTIONS.segment_bytes, OPTIONS.spares);
        let opened = SegmentStore::open(disk.clone(), bytes, spares, &machine, &mut |_, _| {});
        let (store, recovered) = opened.expect("it opens");
        let (wake, woken) = wake();
        let log = Wal::start(store, &OPTIONS, wake, None).expect("it starts");
        (Self { log, woken, done: Vec::new() }, recovered)
    }

    /// Sleeps until something of this kind is done; gives it.
    fn until<T>(&mut self, pick: impl Fn(&Completion) -> Option<T>) -> T {
        loop {
            self.log.take(|done| self.done.push(done));
            if let Some(i) = self.done.iter().position(|done| pick(done).is_some()) {
                return pick(&self.done.remove(i)).expect("it was picked");
            }
            self.woken.recv().expect("the log wakes the loop");
        }
    }

    /// Whether a record was not trimmed.
    fn has(&mut self, number: u64) -> bool {
        self.log.load(Ticket(0), number);
        self.log.submit();
        self.until(|done| match done {
            Completion::Loaded { record, .. } => Some(!matches!(record, Err(ReadError::Trimmed))),
            _ => None,
        })
    }

    fn durable(&mut self, ticket: u64) {
        self.until(|done| {
            matches!(done, Completion::Durable(Ticket(t)) if *t == ticket).then_some(())
        });
    }

    fn failed(&mut self) -> String {
        self.until(|done| match done {
            Completion::Failed(e) => Some(e.to_string()),
            _ => None,
        })
    }
}

fn wake() -> (CompletionWaker, Receiver<()>) {
    let (send, woken) = sync_channel(1);
    let wake = move || {
        // One that is on its way is enough.
        let _ = send.try_send(());
    };
    (Arc::new(wake), woken)
}

#[test]
fn what_is_awaited_is_told_durable_in_order() {
    let _limit = amcast_test_policy::time_limit();
    let disk = FakeDisk::new();
    let (mut looping, _) = WalLoop::open(&disk);
    for n in 0..50_u64 {
        let number = looping.log.append(Ticket(100 + n), &[n as u8; 100], n % 3 != 0);
        assert_eq!(number, Ok(n));
        looping.log.submit();
    }
    let told = |looping: &WalLoop| {
        let ticket = |done: &Completion| match done {
            Completion::Durable(Ticket(t)) => Some(*t - 100),
            _ => None,
        };
        looping.done.iter().filter_map(ticket).collect::<Vec<_>>()
    };
    let awaited: Vec<u64> = (0..50).filter(|n| n % 3 != 0).collect();
    while told(&looping).len() < awaited.len() {
        looping.woken.recv().expect("the log wakes the loop");
        looping.log.take(|done| looping.done.push(done));
    }
    assert_eq!(told(&looping), awaited);
    assert_eq!(looping.log.written(), 50);
    let counts = looping.log.counts();
    assert_eq!((counts.records, counts.bytes, counts.under_way), (50, 50 * 136, None));
    assert!((1..=50).contains(&counts.syncs) && counts.slowest <= counts.synced, "{counts:?}");
    let durations = &counts.durations;
    assert_eq!(
        (durations.count(), durations.sum_ns),
        (counts.syncs, counts.synced.as_nanos() as u64)
    );
    assert_eq!(looping.log.room(), OPTIONS.queue_bytes);
    looping.log.close().expect("nothing failed");
    let (looping, recovered) = WalLoop::open(&disk);
    assert_eq!((recovered.next, recovered.lossy, looping.log.next()), (50, false, 50));
}

#[test]
fn a_loop_is_told_of_what_is_written_only_where_it_does_not_wait_for_more() {
    let _limit = amcast_test_policy::time_limit();
    let (mut looping, _) = WalLoop::open(&FakeDisk::new());
    for awaited in [true, false, true] {
        looping.log.append(Ticket(looping.log.next()), b"a", awaited).expect("it is taken");
        looping.log.submit();
        if !awaited {
            looping.until(|done| matches!(done, Completion::Written(2)).then_some(()));
            assert_eq!(looping.log.written(), 2);
        }
    }
    looping.durable(2);
    let written = looping.done.iter().any(|done| matches!(done, Completion::Written(_)));
    assert!(!written, "{:?}", looping.done);
}

#[test]
fn a_full_queue_has_no_room_until_the_writer_has_caught_up() {
    let _limit = amcast_test_policy::time_limit();
    let (mut looping, _) = WalLoop::open(&FakeDisk::new());
    let room = looping.log.room();
    assert_eq!(room, OPTIONS.queue_bytes);
    // Also what a step overshoots by is taken.
    for n in 0..3 {
        looping.log.append(Ticket(n), &[0; 3000], true).expect("it is taken");
    }
    assert_eq!(looping.log.room(), 0);
    looping.log.submit();
    looping.durable(2);
    assert_eq!(looping.log.room(), room);
}

#[test]
fn a_record_that_cannot_fit_is_refused_and_the_longest_is_not() {
    let _limit = amcast_test_policy::time_limit();
    let (mut looping, _) = WalLoop::open(&FakeDisk::new());
    let most = looping.log.record_bytes_max();
    let refused = looping.log.append(Ticket(0), &vec![1; most + 1], true);
    assert_eq!(refused, Err(AppendError::TooLong { bytes: most + 1, most }));
    for n in 0..2 {
        looping.log.append(Ticket(n), &vec![1; most], true).expect("it fits");
    }
    looping.log.load(Ticket(7), 1);
    looping.log.submit();
    let loaded = looping.until(|done| match done {
        Completion::Loaded { ticket: Ticket(7), record: Ok(record) } => Some(record.len()),
        _ => None,
    });
    assert_eq!(loaded, most);
}

#[test]
fn what_was_just_appended_is_read_and_what_is_trimmed_is_not() {
    let _limit = amcast_test_policy::time_limit();
    let (mut looping, _) = WalLoop::open(&FakeDisk::new());
    for n in 0..40 {
        looping.log.append(Ticket(n), &[n as u8; 1000], true).expect("it is taken");
        looping.log.load(Ticket(1000 + n), n);
    }
    looping.log.load(Ticket(5000), 40);
    looping.log.submit();
    for n in 0..40 {
        let record = looping.until(|done| match done {
            Completion::Loaded { ticket: Ticket(t), record: Ok(record) } if *t == 1000 + n => {
                Some(record.clone())
            }
            _ => None,
        });
        assert_eq!(record, [n as u8; 1000]);
    }
    let missing = |done: &Completion| match done {
        Completion::Loaded { record: Err(why), .. } => Some(format!("{why:?}")),
        _ => None,
    };
    assert_eq!(looping.until(missing), format!("{:?}", ReadError::NotWritten));
    looping.log.trim(39);
    // The allocator may take its time.
    while looping.has(0) {}
}

#[test]
fn a_trim_of_what_is_still_synced_is_carried_out_when_that_is_done() {
    let _limit = amcast_test_policy::time_limit();
    let disk = FakeDisk::new();
    let (mut looping, _) = WalLoop::open(&disk);
    for n in 0..10 {
        looping.log.append(Ticket(n), &[n as u8; 1000], true).expect("it is taken");
    }
    looping.log.submit();
    looping.durable(9);
    // The allocator must be done with it: its sync would wait as well, and the writer for it.
    let whole = OPTIONS.segment_bytes as usize;
    let spare = |name: &String| name.ends_with(".spare") && disk.durable_bytes(name) == whole;
    while !disk.names().expect("it works").iter().any(spare) {
        std::thread::yield_now();
    }
    disk.set_faults(Faults { syncs_wait: true, ..Faults::default() });
    // The end of the segment, for whose sync nobody waits, and the beginning of the next.
    for n in 10..14 {
        looping.log.append(Ticket(n), &[n as u8; 1000], false).expect("it is taken");
    }
    looping.log.submit();
    looping.until(|done| matches!(done, Completion::Written(14)).then_some(()));
    looping.log.trim(14);
    // The allocator has the time to see that nothing can go yet.
    std::thread::sleep(Duration::from_millis(20));
    disk.set_faults(Faults::default());
    let begun = Instant::now();
    while looping.has(0) {
        assert!(begun.elapsed() < Duration::from_secs(20), "it is forgotten");
    }
    assert!(looping.has(13), "the last segment stays");
}

#[test]
fn after_a_failed_sync_nothing_is_told_durable_and_nothing_more_is_taken() {
    let _limit = amcast_test_policy::time_limit();
    let disk = FakeDisk::new();
    let (mut looping, _) = WalLoop::open(&disk);
    looping.log.append(Ticket(1), b"one", true).expect("it is taken");
    looping.log.submit();
    looping.durable(1);
    disk.set_faults(Faults { sync_fails: Some(0), ..Faults::default() });
    looping.log.append(Ticket(2), b"two", true).expect("it is taken");
    looping.log.submit();
    let says = looping.failed();
    assert!(says.contains("cannot sync it") && says.contains("replace it"), "{says}");
    assert_eq!(looping.log.append(Ticket(3), b"three", true), Err(AppendError::Failed));
    looping.log.submit();
    looping.log.take(|done| looping.done.push(done));
    let durable = looping.done.iter().any(|done| matches!(done, Completion::Durable(_)));
    assert!(!durable, "{:?}", looping.done);
    looping.log.close().expect("its failure was reported");
}

#[test]
fn a_failed_sync_that_nobody_waited_for_says_that_records_may_be_lost() {
    let _limit = amcast_test_policy::time_limit();
    let disk = FakeDisk::new();
    let (mut looping, _) = WalLoop::open(&disk);
    disk.set_faults(Faults { sync_fails: Some(0), ..Faults::default() });
    looping.log.append(Ticket(1), b"one", false).expect("it is taken");
    looping.log.submit();
    looping.until(|done| matches!(done, Completion::Written(1)).then_some(()));
    let lost = looping.until(|done| match done {
        Completion::Failed(e) => Some(e.may_lose_written()),
        _ => None,
    });
    assert!(lost);
}

#[test]
fn a_full_disk_fails_the_log_in_words() {
    let _limit = amcast_test_policy::time_limit();
    let disk = FakeDisk::new();
    let (mut looping, _) = WalLoop::open(&disk);
    disk.set_faults(Faults { room: Some(20 << 10), ..Faults::default() });
    let e = loop {
        if looping.log.append(Ticket(0), &[1; 1000], true).is_err() {
            break looping.until(|done| match done {
                Completion::Failed(StorageError::Full { what, .. }) => Some(*what),
                _ => None,
            });
        }
        looping.log.submit();
    };
    assert_eq!(e, Limit::Disk);
}

#[test]
fn a_steady_stream_of_records_allocates_nothing_in_the_loop() {
    let _limit = amcast_test_policy::time_limit();
    let (mut looping, _) = WalLoop::open(&FakeDisk::new());
    let mut round = || {
        for n in 0..8 {
            looping.log.append(Ticket(n), &[3; 64], n == 7).expect("it is taken");
        }
        looping.log.submit();
        let mut durable = false;
        while !durable {
            looping.woken.recv().expect("the log wakes the loop");
            looping.log.take(|done| durable |= matches!(done, Completion::Durable(Ticket(7))));
        }
    };
    // Three buffers go round.
    (0..50).for_each(|_| round());
    let counted = allocation_counter::measure(|| (0..200).for_each(|_| round()));
    assert_eq!(counted.count_total, 0);
}

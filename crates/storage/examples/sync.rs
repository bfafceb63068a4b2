//! Measures the log on this disk, beside the speed of the disk by itself.
//!
//! `cargo run --release -p amcast-storage --example sync -- DIR [SECONDS]` makes a directory in DIR, and
//! removes it again. Waiters are a loop's clients: each has one record under way, and appends the next one
//! when it is durable. Bounds of the machine are measured before and after, since other work passes by.

use amcast_core::step::Ticket;
use amcast_storage::{Completion, Wal, WalOptions};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

/// Bytes of a record.
const RECORD_BYTES: [usize; 2] = [64, 1024];
/// Clients that wait for one record each.
const WAITERS: [usize; 5] = [1, 8, 64, 256, 1024];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let dir = words.next().map_or_else(std::env::temp_dir, PathBuf::from);
    let seconds: f64 = words.next().map_or(Ok(0.5), |word| word.parse())?;
    let dir = dir.join(format!("amcast-sync-{}", std::process::id()));
    let time = Duration::from_secs_f64(seconds);
    std::fs::create_dir(&dir)?;
    let done = measure(&dir, time);
    std::fs::remove_dir_all(&dir)?;
    done
}

fn measure(dir: &Path, time: Duration) -> Result<(), Box<dyn std::error::Error>> {
    println!("{:<34} {:>10} {:>8} {:>8} {:>8}", "", "records/s", "p50 us", "p99 us", "max us");
    raw(dir, time)?;
    for bytes in RECORD_BYTES {
        for waiters in WAITERS {
            let name = format!("log, {bytes} B, {waiters} waiters");
            tell(&name, run(&dir.join(format!("{bytes}-{waiters}")), bytes, waiters, true, time)?);
        }
        let name = format!("log, {bytes} B, nobody waits");
        tell(&name, run(&dir.join(format!("{bytes}-none")), bytes, 256, false, time)?);
    }
    Ok(raw(dir, time)?)
}

/// How many records, and how long each took in nanoseconds.
struct SyncLatencies {
    lasted: Duration,
    taken_ns: Vec<u64>,
}

fn tell(name: &str, mut measured: SyncLatencies) {
    measured.taken_ns.sort_unstable();
    let count = measured.taken_ns.len();
    let at = |percent: usize| {
        let i = (count * percent / 100).min(count.saturating_sub(1));
        measured.taken_ns.get(i).map_or(0, |ns| ns / 1000)
    };
    let rate = count as f64 / measured.lasted.as_secs_f64();
    println!("{name:<34} {rate:>10.0} {:>8} {:>8} {:>8}", at(50), at(99), at(100));
}

/// The speed of the disk for one writer that syncs each record, in a file of zeros.
fn raw(dir: &Path, time: Duration) -> std::io::Result<()> {
    const BYTES: u64 = 16 << 20;
    for (name, flags) in [("disk, 4096 B, fdatasync", 0), ("disk, 4096 B, O_DSYNC", O_DSYNC)] {
        let path = dir.join("raw");
        let zeros = File::create(&path)?;
        for at in (0..BYTES).step_by(1 << 20) {
            zeros.write_all_at(&[0; 1 << 20], at)?;
        }
        zeros.sync_all()?;
        let file = OpenOptions::new().write(true).custom_flags(flags).open(&path)?;
        let begun = Instant::now();
        let mut taken_ns = Vec::new();
        let mut at = 0;
        while begun.elapsed() < time {
            let before = Instant::now();
            file.write_all_at(&[7; 4096], at % BYTES)?;
            if flags == 0 {
                file.sync_data()?;
            }
            taken_ns.push(before.elapsed().as_nanos() as u64);
            at += 4096;
        }
        tell(name, SyncLatencies { lasted: begun.elapsed(), taken_ns });
        std::fs::remove_file(&path)?;
    }
    Ok(())
}

/// The flag of `open` for writes that return when they are durable, on Linux.
const O_DSYNC: i32 = 0o10_000;

/// A loop with so many clients.
fn run(
    dir: &Path,
    bytes: usize,
    waiters: usize,
    awaited: bool,
    time: Duration,
) -> Result<SyncLatencies, Box<dyn std::error::Error>> {
    let (send, woken) = sync_channel(1);
    let wake = move || {
        // One that is on its way is enough.
        let _ = send.try_send(());
    };
    let (mut log, _) = Wal::open(dir, &WalOptions::default(), Arc::new(wake), |_, _| {})?;
    let record = vec![7; bytes];
    // When each client's record was appended; without clients, when the records of a round were.
    let mut since = vec![Instant::now(); waiters];
    let begun = Instant::now();
    let mut taken_ns = Vec::new();
    let mut free = (0..waiters).collect();
    let mut rounds: Vec<(u64, Instant)> = Vec::new();
    while begun.elapsed() < time {
        let clients: Vec<usize> = std::mem::take(&mut free);
        let some = !clients.is_empty();
        for client in clients {
            since[client] = Instant::now();
            log.append(Ticket(client as u64), &record, awaited)?;
        }
        if some {
            rounds.push((log.next(), Instant::now()));
        }
        log.submit();
        woken.recv()?;
        let mut failed = None;
        log.take(|done| match done {
            Completion::Durable(Ticket(client)) => {
                taken_ns.push(since[client as usize].elapsed().as_nanos() as u64);
                free.push(client as usize);
            }
            Completion::Written(before) if !awaited => {
                while let Some((_, at)) = rounds.first().filter(|(end, _)| *end <= before) {
                    let ns = at.elapsed().as_nanos() as u64;
                    taken_ns.extend(std::iter::repeat_n(ns, waiters));
                    rounds.remove(0);
                    free.extend(0..waiters);
                }
            }
            Completion::Failed(e) => failed = Some(e),
            Completion::Written(_) | Completion::Loaded { .. } | Completion::Warned(_) => {}
        });
        if let Some(e) = failed {
            return Err(e.into());
        }
    }
    let lasted = begun.elapsed();
    log.close()?;
    Ok(SyncLatencies { lasted, taken_ns })
}

//! Measures the carrier on this machine: `cargo run --release -p amcast-memory --example lines`.
//!
//! Two threads with a carrier each, on files as between processes. Medians of some repeats; takes a
//! few seconds. Needs two cores that are otherwise idle.

use amcast_core::id::Pid;
use amcast_core::memory::{
    LineRange, LineStamp, MemoryInput, MemoryOutput, RegionId, RegionSpec, WriteSource,
};
use amcast_core::step::Ticket;
use amcast_memory::{Backing, ClusterId, Directory, MappedCarrier, StartOptions};
use std::hint::{black_box, spin_loop};
use std::time::Instant;
use std::{fs, process, thread};

const A: Pid = Pid(0);
const B: Pid = Pid(1);
/// The regions that each of the two owns.
const INBOX: RegionId = RegionId(0);
const GUARDED: RegionId = RegionId(1);
const STAGING: RegionId = RegionId(2);
const INBOX_LINES: u32 = 1 << 14;
const REPEATS: usize = 7;

fn main() -> Result<(), amcast_memory::MemoryError> {
    let id = ClusterId(0xbe_0000 << 32 | u64::from(process::id()));
    let directory = Directory::open(&Directory::usual_base(), id, 2, 0)?;
    println!("{}, {} cores", processor(), thread::available_parallelism().map_or(0, usize::from));
    {
        let mut a = start(&directory, A, B)?;
        let mut b = start(&directory, B, A)?;
        println!(
            "\none line to another core and back, halved     {:8.1} ns",
            ping_pong(&mut a, &mut b)
        );
        println!("\nrecords of two lines through a ring, by batch");
        for batch in [1, 4, 16, 64] {
            let rate = ring(&mut a, &mut b, batch);
            println!("  {batch:3} records a batch                         {rate:8.2} million/s");
        }
        posting(&mut a, &mut b);
        copying(&mut a, &b);
    }
    directory.remove()
}

fn processor() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name"));
    model.map_or("unknown processor", |m| m.trim_start_matches([' ', '\t', ':'])).to_owned()
}

fn start(
    directory: &Directory,
    me: Pid,
    other: Pid,
) -> Result<MappedCarrier, amcast_memory::MemoryError> {
    let region = |name, writer, guarded| RegionSpec { name, lines: INBOX_LINES, writer, guarded };
    let specs = [
        region("inbox", other, false),
        region("guarded", other, true),
        region("staging", me, false),
    ];
    let options = StartOptions { backing: Backing::Prefaulted, ..StartOptions::default() };
    directory.start(me, &specs, options)
}

fn median(mut measure: impl FnMut() -> f64) -> f64 {
    let mut all: Vec<_> = (0..REPEATS).map(|_| measure()).collect();
    all.sort_by(f64::total_cmp);
    all[REPEATS / 2]
}

/// Spins, and now and then gives the core away, or two spinners on one core would never end.
fn wait(mut holds: impl FnMut() -> bool) {
    let mut spins = 0_u32;
    while !holds() {
        spins += 1;
        if spins.is_multiple_of(2_000) {
            thread::yield_now();
        } else {
            spin_loop();
        }
    }
}

fn line(to: Pid, at: u32, stamp: u64) -> MemoryOutput {
    let source = WriteSource::line([stamp; 7], LineStamp(stamp));
    MemoryOutput::Write { to, region: INBOX, at, source, ticket: None, bell: false }
}

fn seen(carrier: &MappedCarrier, at: u32) -> u64 {
    carrier.window().region(INBOX)[at as usize].stamp().0
}

fn ping_pong(a: &mut MappedCarrier, b: &mut MappedCarrier) -> f64 {
    const ROUNDS: u64 = 20_000;
    let mut last = 0;
    median(|| {
        let begin = Instant::now();
        thread::scope(|scope| {
            scope.spawn(|| {
                for round in last + 1..=last + ROUNDS {
                    wait(|| seen(b, 0) == round);
                    b.post(&[line(A, 0, round)]);
                }
            });
            for round in last + 1..=last + ROUNDS {
                a.post(&[line(B, 0, round)]);
                wait(|| seen(a, 0) == round);
            }
        });
        last += ROUNDS;
        begin.elapsed().as_nanos() as f64 / ROUNDS as f64 / 2.0
    })
}

/// Records of two lines through a ring of 1024, with the reader telling now and then how far it is.
fn ring(a: &mut MappedCarrier, b: &mut MappedCarrier, batch: u64) -> f64 {
    const RECORDS: u64 = 200_000;
    const SLOTS: u64 = 1024;
    /// The line at the writer in which the reader tells.
    const TOLD: u32 = 1;
    let mut epoch = 1000 * batch as u32;
    median(|| {
        epoch += 1;
        let stamp = |record: u64| LineStamp::new(epoch, record / SLOTS);
        let slot = |record: u64| 2 + 2 * (record % SLOTS) as u32;
        a.window().region(INBOX)[TOLD as usize].put(&[0; 7], LineStamp::default());
        let begin = Instant::now();
        thread::scope(|scope| {
            scope.spawn(|| {
                for record in 0..RECORDS {
                    let at = slot(record) as usize + 1;
                    wait(|| b.window().region(INBOX)[at].stamp() == stamp(record));
                    black_box(b.window().region(INBOX)[at].words());
                    if record % 128 == 127 {
                        b.post(&[line(A, TOLD, record + 1)]);
                    }
                }
            });
            let rest = LineRange { region: STAGING, at: 0, count: 1 };
            let mut outs = Vec::new();
            let mut sent = 0;
            let mut told = 0;
            while sent < RECORDS {
                let more = batch.min(RECORDS - sent);
                wait(|| {
                    if sent + more > told + SLOTS {
                        told = seen(a, TOLD);
                    }
                    sent + more <= told + SLOTS
                });
                outs.clear();
                outs.extend((sent..sent + more).map(|record| {
                    let source =
                        WriteSource::Made { head: [record; 7], stamp: stamp(record), rest };
                    let at = slot(record);
                    MemoryOutput::Write {
                        to: B,
                        region: INBOX,
                        at,
                        source,
                        ticket: None,
                        bell: true,
                    }
                }));
                a.post(&outs);
                sent += more;
            }
        });
        RECORDS as f64 / begin.elapsed().as_secs_f64() / 1e6
    })
}

/// The writer's own cost for one line, nobody reading.
fn posting(a: &mut MappedCarrier, b: &mut MappedCarrier) {
    const WRITES: u64 = 100_000;
    b.post(&[MemoryOutput::Allow(GUARDED)]);
    println!("\nposting one line, nobody reading");
    let kinds = [
        ("without a ticket", INBOX, false, 1),
        ("with a ticket", INBOX, true, 1),
        ("guarded: fence and check for each", GUARDED, true, 1),
        ("guarded, one fence for 4", GUARDED, true, 4),
        ("guarded, one fence for 16", GUARDED, true, 16),
    ];
    for (name, region, ticket, batch) in kinds {
        let outs: Vec<_> = (0..batch)
            .map(|at| {
                let source = WriteSource::line([7; 7], LineStamp(7));
                let ticket = ticket.then_some(Ticket(1));
                MemoryOutput::Write { to: B, region, at, source, ticket, bell: false }
            })
            .collect();
        let ns = median(|| {
            let begin = Instant::now();
            for _ in 0..WRITES / u64::from(batch) {
                a.post(&outs);
                a.begin_round();
                while let Some((_, input)) = a.next_input() {
                    if let MemoryInput::Done(_, outcome) = input {
                        black_box(outcome);
                    }
                }
            }
            begin.elapsed().as_nanos() as f64 / WRITES as f64
        });
        println!("  {name:44}{ns:8.1} ns");
    }
}

/// Copies of the writer's own lines, beside plain copies of bytes between the same sizes.
fn copying(a: &mut MappedCarrier, b: &MappedCarrier) {
    const BYTES: usize = 16 << 20;
    println!("\ncopying own lines, 56 of 64 bytes are data          carrier      memcpy");
    for size in [64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 1 << 20] {
        let count = (size / 64) as u32;
        let out = MemoryOutput::Write {
            to: B,
            region: INBOX,
            at: 0,
            source: WriteSource::Copy(LineRange { region: STAGING, at: 0, count }),
            ticket: None,
            bell: false,
        };
        let times = (BYTES / size).min(200_000);
        let rate = |seconds: f64| (times * size) as f64 / seconds / 1e9;
        let ours = median(|| {
            let begin = Instant::now();
            (0..times).for_each(|_| a.post(&[out]));
            rate(begin.elapsed().as_secs_f64())
        });
        let (from, mut to) = (vec![1_u8; size], vec![0_u8; size]);
        let plain = median(|| {
            let begin = Instant::now();
            (0..times).for_each(|_| black_box(&mut to).copy_from_slice(black_box(&from)));
            rate(begin.elapsed().as_secs_f64())
        });
        println!("  {size:8} bytes                              {ours:8.2} GB/s {plain:8.2} GB/s");
    }
    assert!(b.window().region(INBOX).len() as u32 == INBOX_LINES);
}

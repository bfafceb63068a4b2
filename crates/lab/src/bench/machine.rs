//! The machine of a measurement.

use super::part::{bind, cores};
use serde::Serialize;
use std::hint::spin_loop;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The machine and the build.
#[derive(Clone, Debug, Serialize)]
pub struct HostMachine {
    /// The processor's name.
    pub processor: String,
    /// Cores that this process may use.
    pub cores: usize,
    /// The kernel.
    pub kernel: String,
    /// `release` or `debug`.
    pub build: &'static str,
    /// The program's version.
    pub version: &'static str,
    /// One cache line from one core to another, in nanoseconds, measured in this run.
    pub line_one_way_ns: f64,
}

impl HostMachine {
    /// Looks at the machine, and measures the line.
    pub fn here() -> Self {
        let text = |path| std::fs::read_to_string(path).unwrap_or_default();
        let info = text("/proc/cpuinfo");
        let model = info.lines().find_map(|l| l.strip_prefix("model name"));
        Self {
            processor: model.unwrap_or("unknown").trim_start_matches([' ', '\t', ':']).to_string(),
            cores: cores(),
            kernel: text("/proc/sys/kernel/osrelease").trim().to_string(),
            build: if cfg!(debug_assertions) { "debug" } else { "release" },
            version: env!("CARGO_PKG_VERSION"),
            line_one_way_ns: line_one_way_ns(),
        }
    }
}

/// Ends the echo.
const END: u64 = u64::MAX;

/// A cache line's own word.
#[repr(align(128))]
#[derive(Default)]
struct CacheLineCounter(AtomicU64);

/// The time of one cache line from one core to another, in nanoseconds: half of a round trip, the
/// median of some repeats. On one core it says what handing over that core costs.
pub fn line_one_way_ns() -> f64 {
    let measured = std::thread::spawn(|| {
        bind(0);
        ping_pong_ns()
    });
    measured.join().expect("loads and stores only")
}

fn ping_pong_ns() -> f64 {
    const ROUNDS: u64 = 1_000;
    const REPEATS: u64 = 9;
    /// On a machine that has other work the cores are seldom both here: then fewer repeats do.
    const PATIENCE: Duration = Duration::from_millis(200);
    let words = Arc::new([CacheLineCounter::default(), CacheLineCounter::default()]);
    let wait = |word: &AtomicU64, value| {
        let mut spins = 0_u32;
        loop {
            let now = word.load(Ordering::Acquire);
            if now == value || now == END {
                return now == value;
            }
            spins += 1;
            if spins.is_multiple_of(20_000) {
                std::thread::yield_now();
            }
            spin_loop();
        }
    };
    let theirs = Arc::clone(&words);
    let echo = std::thread::spawn(move || {
        bind(1);
        for n in 1..=ROUNDS * REPEATS {
            if !wait(&theirs[0].0, n) {
                return;
            }
            theirs[1].0.store(n, Ordering::Release);
        }
    });
    let mut times = Vec::with_capacity(REPEATS as usize);
    let whole = Instant::now();
    for repeat in 0..REPEATS {
        let begun = Instant::now();
        let first = repeat * ROUNDS + 1;
        let mut rounds = 0;
        for n in first..first + ROUNDS {
            words[0].0.store(n, Ordering::Release);
            wait(&words[1].0, n);
            rounds += 1;
            if rounds % 64 == 0 && whole.elapsed() > PATIENCE {
                break;
            }
        }
        times.push(begun.elapsed().as_nanos() as f64 / f64::from(rounds) / 2.0);
        if whole.elapsed() > PATIENCE {
            break;
        }
    }
    words[0].0.store(END, Ordering::Release);
    echo.join().expect("the echo only loads and stores");
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

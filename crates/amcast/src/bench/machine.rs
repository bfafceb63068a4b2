//! What a measurement was taken on.

use serde::Serialize;
use std::hint::spin_loop;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// The machine and the build.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
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

impl Machine {
    /// Looks at the machine, and measures the line.
    pub fn here() -> Self {
        let text = |path| std::fs::read_to_string(path).unwrap_or_default();
        let info = text("/proc/cpuinfo");
        let model = info.lines().find_map(|l| l.strip_prefix("model name"));
        Self {
            processor: model.unwrap_or("unknown").trim_start_matches([' ', '\t', ':']).to_string(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: text("/proc/sys/kernel/osrelease").trim().to_string(),
            build: if cfg!(debug_assertions) { "debug" } else { "release" },
            version: env!("CARGO_PKG_VERSION"),
            line_one_way_ns: line_one_way_ns(),
        }
    }
}

/// A cache line's own word.
#[repr(align(128))]
#[derive(Default)]
struct Own(AtomicU64);

/// The time of one cache line from one core to another, in nanoseconds: half of a round trip, the
/// median of some repeats. On one core it says what handing over that core costs.
pub fn line_one_way_ns() -> f64 {
    const ROUNDS: u64 = 2_000;
    const REPEATS: usize = 9;
    let words = Arc::new([Own::default(), Own::default()]);
    let wait = |word: &AtomicU64, value| {
        let mut spins = 0_u32;
        while word.load(Ordering::Acquire) != value {
            spins += 1;
            if spins.is_multiple_of(20_000) {
                std::thread::yield_now();
            }
            spin_loop();
        }
    };
    let theirs = Arc::clone(&words);
    let echo = std::thread::spawn(move || {
        for n in 1..=ROUNDS * REPEATS as u64 {
            wait(&theirs[0].0, n);
            theirs[1].0.store(n, Ordering::Release);
        }
    });
    let mut times = Vec::with_capacity(REPEATS);
    for repeat in 0..REPEATS as u64 {
        let begun = Instant::now();
        for n in repeat * ROUNDS + 1..=(repeat + 1) * ROUNDS {
            words[0].0.store(n, Ordering::Release);
            wait(&words[1].0, n);
        }
        times.push(begun.elapsed().as_nanos() as f64 / ROUNDS as f64 / 2.0);
    }
    echo.join().expect("the echo only loads and stores");
    times.sort_by(f64::total_cmp);
    times[REPEATS / 2]
}

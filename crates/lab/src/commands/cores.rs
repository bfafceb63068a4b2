//! Long work spread over the machine's cores, with its progress shown on a terminal.

use super::Failure;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Does `work` for the numbers below `count`, in order, over all cores, until one says `true`: it is
/// enough. Work begun by then is finished. Also ends at the first failure, with it.
pub(super) fn over_cores(
    count: u64,
    bar: &ProgressBar,
    work: impl Fn(u64) -> Result<bool, Failure> + Sync,
) -> Result<(), Failure> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let (next, enough) = (AtomicU64::new(0), AtomicBool::new(false));
    let worker = || -> Result<(), Failure> {
        loop {
            let n = next.fetch_add(1, Ordering::Relaxed);
            if n >= count || enough.load(Ordering::Relaxed) {
                return Ok(());
            }
            let done = work(n);
            if !matches!(done, Ok(false)) {
                enough.store(true, Ordering::Relaxed);
            }
            done?;
            bar.inc(1);
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..cores).map(|_| scope.spawn(worker)).collect();
        threads.into_iter().try_for_each(|t| {
            t.join().unwrap_or_else(|_| Err(Failure::Failed("a thread panicked".to_string())))
        })
    })?;
    bar.finish_and_clear();
    Ok(())
}

/// A bar for `count` of `what`, on a terminal; nothing in a pipe.
pub(super) fn progress(count: u64, what: &str) -> ProgressBar {
    if count == 1 || !std::io::stderr().is_terminal() {
        return ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
    }
    let bar = ProgressBar::new(count);
    let template = format!("{{bar:40}} {{pos}}/{{len}} {what}, {{eta}} to go");
    if let Ok(style) = ProgressStyle::with_template(&template) {
        bar.set_style(style);
    }
    bar
}

//! The key-value service measured: beside a rival, and while its leaders are killed.

mod children;
mod failover;
mod load;
mod rival;

pub use failover::{FailoverPlan, run as run_failover};
pub use rival::{RivalPlan, run as run_rival};

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// Raised when this process is asked to stop: a measurement then ends, and its children with it.
fn stop_flag() -> &'static Arc<AtomicBool> {
    static STOP: OnceLock<Arc<AtomicBool>> = OnceLock::new();
    STOP.get_or_init(|| {
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
            if let Err(e) = signal_hook::flag::register(signal, Arc::clone(&stop)) {
                tracing::warn!("signal {signal} ends this process at once: {e}");
            }
        }
        stop
    })
}

/// # Errors
/// If this process is asked to stop.
fn go_on() -> Result<(), String> {
    if stop_flag().load(Ordering::Relaxed) { Err("stopped".to_string()) } else { Ok(()) }
}

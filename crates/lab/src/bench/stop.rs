//! A measurement that is asked to stop: it ends, and leaves nothing behind.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// The error of a measurement that was asked to stop.
pub const STOPPED: &str = "stopped";

fn flag() -> &'static Arc<AtomicBool> {
    static STOP: OnceLock<Arc<AtomicBool>> = OnceLock::new();
    STOP.get_or_init(Arc::default)
}

/// From here on Ctrl-C and the like do not end this process at once. [`check_stop`] says when to end.
pub fn heed_signals() {
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        if let Err(e) = signal_hook::flag::register(signal, Arc::clone(flag())) {
            tracing::warn!("signal {signal} ends this process at once: {e}");
        }
    }
}

/// Fails once this process was asked to stop: long loops call it in each round. It reads one flag.
///
/// # Errors
/// When this process was asked to stop.
pub(super) fn check_stop() -> Result<(), String> {
    if flag().load(Ordering::Relaxed) { Err(STOPPED.to_string()) } else { Ok(()) }
}

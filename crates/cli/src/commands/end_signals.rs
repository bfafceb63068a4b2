//! The signals by which the system asks a process to end.

use signal_hook::{flag, low_level};
use std::ffi::c_int;
use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// A signal that comes within so long of the first one is the same request: `timeout` of GNU sends one to its child, and
/// at once another to the child's group; and so does a terminal that closes.
const SAME_REQUEST: Duration = Duration::from_millis(200);

/// A flag that the first of `signals` sets. A later one ends the process at once, with exit code 1, since its sender has
/// waited long enough.
///
/// # Errors
/// When the system refuses a handler or a thread.
pub(super) fn end_flag(signals: &[c_int]) -> io::Result<Arc<AtomicBool>> {
    let (asked, insists) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (mut woken, wakes) = UnixStream::pair()?;
    for &signal in signals {
        flag::register_conditional_shutdown(signal, 1, Arc::clone(&insists))?;
        flag::register(signal, Arc::clone(&asked))?;
        low_level::pipe::register(signal, wakes.try_clone()?)?;
    }
    let arm = move || {
        // The other end is open for good: this ends with a signal, or with the process.
        if woken.read_exact(&mut [0]).is_ok() {
            thread::sleep(SAME_REQUEST);
            insists.store(true, Ordering::Relaxed);
        }
    };
    thread::Builder::new().name("end-signals".to_string()).spawn(arm)?;
    Ok(asked)
}

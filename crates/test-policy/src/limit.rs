//! A test that hangs is ended, and named.
//!
//! Libtest has no limit of its own on stable Rust. A limit here is a thread that waits for the test to
//! end: if it waits too long it writes the test's name to standard error and aborts the process. Only
//! an abort is certain to end a test that waits for a socket, a lock or a child process. It also ends
//! the other tests of the same binary; `cargo test` fails either way.

use std::convert::Infallible;
use std::io::Write;
use std::panic::Location;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

/// The environment variable that replaces every limit, in seconds. 0 is no limit: for a debugger.
pub const LIMIT_S: &str = "AMCAST_TIME_LIMIT_S";

/// The limit of most tests. They take seconds; a small machine with much else to do takes far longer.
const USUAL: Duration = Duration::from_secs(300);

/// The limit of the test that holds this. Dropping it lifts the limit.
#[must_use = "the limit ends when this is dropped"]
#[derive(Debug)]
pub struct TimeLimit {
    /// Nothing is ever sent: the other end notices that this end is dropped.
    _ends: Option<SyncSender<Infallible>>,
}

/// Aborts the process, with the calling test's name, unless the result is dropped within five
/// minutes. A test that first waits for its turn begins its limit after that.
#[track_caller]
pub fn time_limit() -> TimeLimit {
    time_limit_of(USUAL)
}

/// The same with a limit of its own, for a test that is known to take long.
#[track_caller]
pub fn time_limit_of(usual: Duration) -> TimeLimit {
    let limit = chosen(usual, std::env::var(LIMIT_S).ok().as_deref());
    let Some(limit) = limit else { return TimeLimit { _ends: None } };
    let place = Location::caller();
    let thread = std::thread::current();
    let test = format!("{} ({}:{})", thread.name().unwrap_or("?"), place.file(), place.line());
    let (ends, ended) = sync_channel::<Infallible>(0);
    let watches = move || {
        if let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(limit) {
            abort(&test, limit);
        }
    };
    let name = "time limit".to_string();
    std::thread::Builder::new().name(name).spawn(watches).expect("a thread can be started");
    TimeLimit { _ends: Some(ends) }
}

/// The limit that holds: `usual`, unless the environment gives another.
///
/// # Panics
/// If the environment gives something that is no number.
fn chosen(usual: Duration, given: Option<&str>) -> Option<Duration> {
    let Some(given) = given else { return Some(usual) };
    let seconds = given.parse().unwrap_or_else(|_| panic!("{LIMIT_S}={given} is no number"));
    (seconds > 0).then(|| Duration::from_secs(seconds))
}

/// Ends the process. Libtest does not see this output, so it is not captured.
fn abort(test: &str, limit: Duration) -> ! {
    let says = format!(
        "\ntest {test} FAILED: it has not ended after {} s, its time limit; this test binary is \
         aborted ({LIMIT_S} sets another limit)\n",
        limit.as_secs()
    );
    // Whether or not it can be written, the test has failed.
    let _ = std::io::stderr().write_all(says.as_bytes());
    std::process::abort()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_replaces_limits_and_lifts_them() {
        assert_eq!(chosen(USUAL, None), Some(USUAL));
        assert_eq!(chosen(USUAL, Some("7")), Some(Duration::from_secs(7)));
        assert_eq!(chosen(USUAL, Some("0")), None);
    }
}

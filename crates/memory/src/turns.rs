//! How long the system lets others run before a thread that was woken.
#![allow(unsafe_code)]

use libc::{c_int, c_long, c_uint, sched_attr};
use std::io;

/// How long a turn is, in nanoseconds: the shortest that the system gives.
const TURN_NS: u64 = 100_000;

/// Asks the system for short turns of the calling thread. One that does little each time it is woken
/// gives nothing up by that, and is let run at once where it would wait until the thread on the core has
/// had a whole turn of some milliseconds, at any priority. Systems before Linux 6.12 do
/// as they did. A thread with a policy of its own, such as of real time, keeps it.
///
/// # Errors
/// When the system does not allow it.
pub fn shorten_turns() -> io::Result<()> {
    let mut attr = sched_attr {
        size: 0,
        sched_policy: 0,
        sched_flags: 0,
        sched_nice: 0,
        sched_priority: 0,
        sched_runtime: 0,
        sched_deadline: 0,
        sched_period: 0,
    };
    let this: c_int = 0;
    let flags: c_uint = 0;
    let size = size_of::<sched_attr>() as c_uint;
    // SAFETY: the kernel writes into `attr`, `size` bytes at most, and any bytes are numbers.
    done(unsafe { libc::syscall(libc::SYS_sched_getattr, this, &raw mut attr, size, flags) })?;
    if attr.sched_policy != libc::SCHED_OTHER as u32 {
        return Ok(());
    }
    attr.sched_runtime = TURN_NS;
    // SAFETY: the kernel reads `attr.size` bytes of `attr`, which it has just said are no more than `size`.
    done(unsafe { libc::syscall(libc::SYS_sched_setattr, this, &raw const attr, flags) })
}

fn done(answer: c_long) -> io::Result<()> {
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(all(test, not(miri)))] // which has no scheduler
mod tests {
    use super::*;

    #[test]
    fn any_thread_may_ask_for_short_turns_and_again() {
        shorten_turns().expect("no privilege is needed");
        shorten_turns().expect("nothing is given up");
    }
}

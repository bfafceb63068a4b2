//! Threads that stand back where there are fewer cores than work.

use rustix::process::setpriority_process;

/// How far: such a thread gets a third of the time of one that does not. It must not starve, either.
const NICENESS: i32 = 5;

/// Has the thread that calls this stand back from now on. It cannot be taken back, and the threads that it starts
/// do so, too.
pub(crate) fn stand_back() {
    // Of this thread alone, on Linux. It need not be allowed: then what it does costs the others more.
    let _ = setpriority_process(None, NICENESS);
}

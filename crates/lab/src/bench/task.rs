//! The task of a process that takes part in a measurement.

use rustix::process::{Signal, set_parent_process_death_signal};
use serde::de::DeserializeOwned;
use std::io::{BufRead, stdin};

/// Reads the task of this process: a line of standard input. The process ends with the one that began
/// it.
///
/// # Errors
/// When there is no input, or it is no task.
pub(super) fn read<T: DeserializeOwned>() -> Result<T, String> {
    // The leading process of the measurement may be killed, and would leave processes behind.
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(|e| e.to_string())?;
    let mut line = String::new();
    stdin().lock().read_line(&mut line).map_err(|e| e.to_string())?;
    serde_json::from_str(&line).map_err(|e| format!("not a task: {e}"))
}

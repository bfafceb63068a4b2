//! The programs `ip` and `tc`, which build the lab.

use crate::LabError;
use std::io::Write;
use std::process::{Command, Output, Stdio};

/// Runs a program to its end.
///
/// # Errors
/// When it cannot be started, and its message if it fails.
pub(crate) fn run(program: &'static str, arguments: &[&str]) -> Result<(), LabError> {
    output(program, arguments).map(drop)
}

/// Runs a program to its end, and gives what it wrote.
///
/// # Errors
/// When it cannot be started, and its message if it fails.
pub(crate) fn output(program: &'static str, arguments: &[&str]) -> Result<String, LabError> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let output = output.map_err(|error| LabError::Program { program, error })?;
    succeeded(&output, || format!("{program} {}", arguments.join(" ")))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs many commands of `ip` or `tc` in a namespace, one a line, in one process.
///
/// # Errors
/// When it cannot be started, and its message for the first command that fails.
pub(crate) fn batch(
    program: &'static str,
    namespace: &str,
    lines: &[String],
) -> Result<(), LabError> {
    let mut command = Command::new(program);
    command.args(["-n", namespace, "-batch", "-"]);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| LabError::Program { program, error })?;
    let mut stdin = child.stdin.take().expect("it is piped");
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    // If the program ends before it has read all, its message says why.
    let _ = stdin.write_all(text.as_bytes());
    drop(stdin);
    let output = child.wait_with_output();
    let output = output.map_err(|error| LabError::Program { program, error })?;
    succeeded(&output, || {
        let message = String::from_utf8_lossy(&output.stderr);
        format!("{program} -n {namespace} {}", failed_line(&message, lines).unwrap_or("-batch -"))
    })
}

/// The line of a batch that a message blames, as in `Command failed -:3`.
fn failed_line<'a>(message: &str, lines: &'a [String]) -> Option<&'a str> {
    let number: usize = message.rsplit_once("Command failed -:")?.1.trim().parse().ok()?;
    lines.get(number.checked_sub(1)?).map(String::as_str)
}

fn succeeded(output: &Output, command: impl Fn() -> String) -> Result<(), LabError> {
    if output.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
    Err(LabError::Refused { command: command(), message })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_failed_line_of_a_batch_is_found() {
        let lines = ["link show".to_string(), "link nonsense".to_string()];
        let message = "Error: no such thing.\nCommand failed -:2\n";
        assert_eq!(failed_line(message, &lines), Some("link nonsense"));
        assert_eq!(failed_line("Command failed -:3", &lines), None);
        assert_eq!(failed_line("no permission", &lines), None);
    }
}

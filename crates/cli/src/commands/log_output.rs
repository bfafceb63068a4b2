//! Where log lines and panics go: standard error, and for a node its own log file as well.
//!
//! Nothing here ever fails: a terminal that is gone or a disk that is full stops no process. Nodes and their
//! supervisor never wait for either ([`log_lines`]).

use super::terminal_text::{error_text, harmless_line};
use amcast_lab::commands::{Failure, end_if_unwritten};
use amcast_log::UNUSABLE;
use amcast_node::log_lines::{self, LogLineQueue, standard_error};
use signal_hook::consts::SIGPIPE;
use signal_hook::low_level::emulate_default_handler;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::panic::PanicHookInfo;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, fmt};

/// The bytes of a node's log file. At its start a node puts a file that is half full aside, as
/// `n0.log.1`; what does not fit is on standard error only.
const LOG_BYTES_MAX: u64 = 4 << 20;

/// The exit code of a program that panicked.
const PANICKED: i32 = 101;

/// Threads whose panic may be that of one client's connection, which ends that connection. Where it was that of a task that
/// all clients need, the thread ends, which the node looks for by itself.
const OF_CLIENTS: [&str; 3] = ["redis-gateway", "http-gateway", "log-gateway"];

/// Where a process says what it has to say at its end.
pub(super) struct LogOutput {
    /// The process's name, for people.
    who: String,
    /// Where else than on standard error, for one that works on while nobody reads that.
    file: Option<LogLineQueue>,
    works_on: bool,
    /// Its last error, where a supervisor starts it again and again, and the file that has it.
    before: Option<(String, PathBuf)>,
}

impl LogOutput {
    fn of_program() -> Self {
        Self { who: "amcast".to_string(), file: None, works_on: false, before: None }
    }

    /// Says why the process ends, in a line of its own.
    pub(super) fn say(&self, what: &str) {
        // It may quote a file, or name what was given on the command line.
        let what = &error_text(what);
        let line = format!("{}: {what}\n", self.who);
        if let Some(file) = &self.file {
            file.put_last(line.as_bytes());
        }
        let once = self.once(what).unwrap_or(line);
        if self.works_on {
            standard_error().put_last(once.as_bytes());
        } else {
            // In one piece: other processes write there, too.
            let _ = io::stderr().write_all(once.as_bytes());
        }
    }
}

impl LogOutput {
    /// The short line instead of `what`, if that was reported before.
    fn once(&self, what: &str) -> Option<String> {
        let told = |(before, _): &&(String, PathBuf)| what.lines().next() == Some(before.as_str());
        let (_, log) = self.before.as_ref().filter(told)?;
        Some(format!("{}: ends for the same reason as before: see {}\n", self.who, log.display()))
    }
}

/// Log lines on standard error, for a command that serves nobody: it ends quietly when nobody reads
/// its output any more, as in `amcast config --explain | head`.
pub(super) fn of_command() -> LogOutput {
    with_quiet_end("warn")
}

/// The same for the simulator. Its nodes log as real ones do, by the hundred in a hunt, and between the lines of its
/// report: none of that is shown unless the environment asks for it.
pub(super) fn of_simulator() -> LogOutput {
    with_quiet_end("off")
}

fn with_quiet_end(usual: &str) -> LogOutput {
    let ends =
        signal_hook::flag::register_conditional_default(SIGPIPE, Arc::new(AtomicBool::new(true)));
    let log_output = with_lines(usual);
    if let Err(e) = ends {
        tracing::warn!("a broken pipe will not be quiet: {e}");
    }
    log_output
}

/// The same for a command whose connections may break under what it writes to them, which the
/// system reports with the signal of a broken pipe, too: it continues, and ends quietly by
/// [`unwritten`].
pub(super) fn of_client() -> LogOutput {
    with_lines("warn")
}

fn with_lines(usual: &str) -> LogOutput {
    on_standard_error(usual);
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        end_if_unwritten(info);
        usual(info);
    }));
    LogOutput::of_program()
}

/// Standard output cannot be written. Where nobody reads it any more, the program ends as one that never
/// asked what to do then.
pub(super) fn unwritten(e: &io::Error) -> Failure {
    if e.kind() == io::ErrorKind::BrokenPipe
        && let Err(e) = emulate_default_handler(SIGPIPE)
    {
        tracing::warn!("a broken pipe is not quiet: {e}");
    }
    Failure::Failed(format!("standard output cannot be written: {e}"))
}

/// Log lines on standard error, for the supervisor.
pub(super) fn of_supervisor() -> LogOutput {
    let lines = fmt::layer().with_writer(|| LineWriter(standard_error().clone())).with_ansi(false);
    let lines = lines.log_internal_errors(false).with_filter(filter("warn"));
    tracing_subscriber::registry().with(lines).init();
    std::panic::set_hook(Box::new(|info| {
        let text = format!("amcast: the supervisor {}\n", panic_reason(info));
        standard_error().put_last(text.as_bytes());
        // It may be the thread whose end is that of the process.
        log_lines::end();
    }));
    LogOutput { works_on: true, ..LogOutput::of_program() }
}

fn on_standard_error(usual: &str) {
    let lines = fmt::layer().with_writer(io::stderr).with_ansi(false);
    let lines = lines.log_internal_errors(false).with_filter(filter(usual));
    tracing_subscriber::registry().with(lines).init();
}

/// The crates of the HTTP and gRPC servers: they warn of what a stranger's connection sends, without a bound on how often.
const SERVER_CRATES: [&str; 4] = ["h2", "hyper", "tonic", "tower"];

/// Lines of the `usual` level and above, unless the environment asks for others.
fn filter(usual: &str) -> EnvFilter {
    EnvFilter::try_from_env("AMCAST_LOG").unwrap_or_else(|_| {
        let quiet: String = SERVER_CRATES.iter().map(|name| format!(",{name}=error")).collect();
        EnvFilter::new(format!("{usual}{quiet}"))
    })
}

/// Log lines of the node `name` on standard error, and more of them in the file `log`. A panic is
/// in both, and ends the node: a node that continues with half of its threads is worse than one
/// that restarts. An end for the reason `before` is not reported at length again.
pub(super) fn of_node(name: &str, log: &Path, before: Option<String>) -> LogOutput {
    let name = &*harmless_line(name);
    let mut log_file = LogFile::open(log);
    let file = LogLineQueue::begin(move |line| log_file.write(line));
    let (to_terminal, to_file) = (name.to_string(), file.clone());
    let terminal = move || PrefixedLines {
        name: to_terminal.clone(),
        to: LineWriter(standard_error().clone()),
    };
    let lines = fmt::layer().with_ansi(false).log_internal_errors(false);
    let on_terminal = lines.with_writer(terminal).with_filter(filter("warn"));
    let lines = fmt::layer().with_ansi(false).log_internal_errors(false);
    let in_file =
        lines.with_writer(move || LineWriter(to_file.clone())).with_filter(filter("info"));
    tracing_subscriber::registry().with(on_terminal).with(in_file).init();
    let before = before.map(|before| (before, log.to_path_buf()));
    let (who, works_on) = (format!("amcast {name}"), true);
    let log_output = LogOutput { who, file: Some(file.clone()), works_on, before };
    let name = name.to_string();
    std::panic::set_hook(Box::new(move |info| {
        let unusable = info.payload().downcast_ref::<String>();
        let unusable = unusable.filter(|why| why.starts_with(UNUSABLE));
        let why = unusable.cloned().unwrap_or_else(|| panic_reason(info));
        let text = format!("amcast {name}: {why}\n");
        standard_error().put_last(text.as_bytes());
        file.put_last(text.as_bytes());
        if unusable.is_some() {
            log_lines::end();
            std::process::exit(1);
        }
        let thread = std::thread::current();
        if !OF_CLIENTS.iter().any(|of| thread.name().is_some_and(|name| name.starts_with(of))) {
            log_lines::end();
            std::process::exit(PANICKED);
        }
    }));
    log_output
}

/// A panic in words, to follow the name of who panicked.
fn panic_reason(info: &PanicHookInfo<'_>) -> String {
    let payload = info.payload();
    let text = payload.downcast_ref::<&str>().copied();
    let why = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    let why = why.unwrap_or("no reason is given");
    let at = info.location().map_or_else(String::new, |at| format!(" at {at}"));
    let thread = std::thread::current();
    let thread = thread.name().unwrap_or("without a name").to_string();
    let trace = Backtrace::capture();
    match trace.status() {
        BacktraceStatus::Captured => format!("panicked{at}, thread {thread}: {why}\n{trace}"),
        _ => format!("panicked{at}, thread {thread}: {why}"),
    }
}

/// Lines that begin with who says them.
struct PrefixedLines<W> {
    name: String,
    to: W,
}

impl<W: Write> Write for PrefixedLines<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut named = format!("{} ", self.name).into_bytes();
        named.extend_from_slice(line);
        self.to.write_all(&named)?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// A log file that does not grow for ever.
struct LogFile(Option<(File, u64)>);

impl LogFile {
    /// Continues with the file at `path`, or without a file if it cannot be opened.
    fn open(path: &Path) -> Self {
        let length = || fs::metadata(path).map_or(0, |m| m.len());
        if length() > LOG_BYTES_MAX / 2 {
            // If the full file cannot be renamed, it is written further.
            let _ = fs::rename(path, path.with_extension("log.1"));
        }
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path);
        Self(file.ok().map(|file| (file, LOG_BYTES_MAX.saturating_sub(length()))))
    }

    fn write(&mut self, bytes: &[u8]) {
        let Some((to, left)) = &mut self.0 else { return };
        *left = left.saturating_sub(bytes.len() as u64);
        if *left == 0 {
            let _ = to.write_all(b"(the log is full: the rest is on standard error only)\n");
            self.0 = None;
        } else if to.write_all(bytes).is_err() {
            self.0 = None;
        }
    }
}

/// One writer of lines, who gives each of them as a whole.
struct LineWriter(LogLineQueue);

impl Write for LineWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.put(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn why_a_node_ends_is_told_at_length_once() {
        let _limit = amcast_test_policy::time_limit();
        let before = Some(("a byte is wrong; do this".to_string(), PathBuf::from("/d/n1.log")));
        let who = "amcast n1".to_string();
        let log_output = LogOutput { who, file: None, works_on: true, before };
        let again = log_output.once("a byte is wrong; do this\nand that");
        let expected = "amcast n1: ends for the same reason as before: see /d/n1.log\n";
        assert_eq!(again.as_deref(), Some(expected));
        assert_eq!(log_output.once("the disk is full"), None);
        assert_eq!(LogOutput::of_program().once("the disk is full"), None);
    }

    #[test]
    fn a_log_has_an_end_and_an_old_one_is_put_aside() {
        let _limit = amcast_test_policy::time_limit();
        let dir = std::env::temp_dir().join(format!("amcast-log-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let path = dir.join("n0.log");
        let mut log = LogFile::open(&path);
        let line = vec![b'x'; 1 << 20];
        (0..8).for_each(|_| log.write(&line));
        assert!(fs::metadata(&path).unwrap().len() < LOG_BYTES_MAX + 100);
        LogFile::open(&path).write(b"next\n");
        assert_eq!(fs::read_to_string(&path).unwrap(), "next\n");
        assert!(dir.join("n0.log.1").exists());
        fs::remove_dir_all(&dir).unwrap();
    }

    /// In the environment of a process that is to panic: where its log goes.
    const PANICS_INTO: &str = "AMCAST_TEST_PANICS_INTO";

    #[test]
    fn a_panic_in_any_thread_ends_the_node_and_is_in_its_log_with_its_name() {
        let _limit = amcast_test_policy::time_limit();
        if let Some(log) = std::env::var_os(PANICS_INTO) {
            of_node("n7", Path::new(&log), None).say("begins");
            let panics = || panic!("an invariant is broken");
            let thread = std::thread::Builder::new().name("control".to_string()).spawn(panics);
            let _ = thread.unwrap().join();
            unreachable!("the process continues");
        }
        let log = std::env::temp_dir().join(format!("amcast-panic-{}.log", std::process::id()));
        let name =
            "commands::log_output::tests::a_panic_in_any_thread_ends_the_node_and_is_in_its_log";
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args([name, "--nocapture"])
            .env(PANICS_INTO, &log)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(PANICKED));
        let text = fs::read_to_string(&log).unwrap();
        fs::remove_file(&log).unwrap();
        for said in [text, String::from_utf8_lossy(&output.stderr).into_owned()] {
            assert!(said.contains("amcast n7: begins"), "{said}");
            assert!(said.contains("amcast n7: panicked at crates/cli/src/commands"), "{said}");
            assert!(said.contains("thread control: an invariant is broken"), "{said}");
            assert!(!said.contains("continues"), "{said}");
        }
    }

    #[test]
    fn lines_of_a_node_begin_with_its_name() {
        let _limit = amcast_test_policy::time_limit();
        let mut named = PrefixedLines { name: "n2".to_string(), to: Vec::new() };
        writeln!(named.to, "before").unwrap();
        named.write_all(b"WARN something\n").unwrap();
        assert_eq!(named.to, b"before\nn2 WARN something\n");
    }
}

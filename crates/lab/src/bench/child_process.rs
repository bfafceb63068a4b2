//! The processes that a measurement starts: their input, their output, and their end.
//!
//! A process ends with its [`ChildProcess`], by its id and by no name. A thread of its own reads what it writes, so that
//! waiting for that has a deadline and heeds a request to stop, and so that a process that ends too early is noticed
//! while others are waited for ([`gather`]).

use super::stop::check_stop;
use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::time::{Duration, Instant};

/// The interval of checks whether to continue, and whether a process has ended.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The interval of checks whether a process has ended after SIGTERM.
const LOOK_FOR_END_EVERY: Duration = Duration::from_millis(5);

/// How long the status of a process may take after the end of its output.
const STATUS_PATIENCE: Duration = Duration::from_secs(1);

/// Bytes that are read from a process at once, and how many such pieces may wait to be taken; then the process waits.
const PIECE_BYTES: usize = 64 << 10;
const PIECES_MAX: usize = 16;

/// Bytes of a process's output that may wait to be taken: far more than a measurement keeps.
const OUTPUT_BYTES_MAX: usize = 4 << 30;

/// A process that a measurement started; it is ended with this.
pub(in crate::bench) struct ChildProcess {
    name: String,
    child: Child,
    input: Option<ChildStdin>,
    output: ChildOutput,
    /// How long it may take to end after SIGTERM; zero if it is killed at once.
    grace: Duration,
}

/// The part of a process's standard output that is not taken yet.
pub(in crate::bench) struct ChildOutput {
    pieces: Option<Receiver<Vec<u8>>>,
    bytes: Vec<u8>,
    has_ended: bool,
}

/// A command that runs this program with other arguments.
///
/// # Errors
/// When the system does not tell where this program is.
pub(in crate::bench) fn this_program(args: &[&str]) -> Result<Command, String> {
    let mut command = Command::new(std::env::current_exe().map_err(|e| e.to_string())?);
    command.args(args);
    Ok(command)
}

impl ChildProcess {
    /// Starts a process, which errors call `name`. Lines reach it, and its output is read, where `command` has its input
    /// and its output piped.
    ///
    /// # Errors
    /// When it cannot be started.
    pub(in crate::bench) fn start(name: &str, command: &mut Command) -> Result<Self, String> {
        Self::start_if_installed(name, command)?.ok_or_else(|| {
            let program = command.get_program().to_string_lossy();
            format!("{name} cannot be started: there is no program {program}")
        })
    }

    /// The same; none if there is no such program.
    ///
    /// # Errors
    /// When it cannot be started.
    pub(in crate::bench) fn start_if_installed(
        name: &str,
        command: &mut Command,
    ) -> Result<Option<Self>, String> {
        let failed = |e: io::Error| format!("{name} cannot be started: {e}");
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(failed(e)),
        };
        let input = child.stdin.take();
        let from = child.stdout.take();
        let output = ChildOutput { pieces: None, bytes: Vec::new(), has_ended: from.is_none() };
        let name = name.to_string();
        let mut process = Self { name, child, input, output, grace: Duration::ZERO };
        if let Some(from) = from {
            let (to, pieces) = sync_channel(PIECES_MAX);
            process.output.pieces = Some(pieces);
            let thread = std::thread::Builder::new().name("child output".to_string());
            // It ends when the process does, or when nobody takes what it reads.
            thread.spawn(move || read_pieces(from, &to)).map_err(failed)?;
        }
        Ok(Some(process))
    }

    /// Starts this program with other arguments, with input and output piped.
    ///
    /// # Errors
    /// When it cannot be started.
    pub(in crate::bench) fn start_this_program(name: &str, args: &[&str]) -> Result<Self, String> {
        Self::start(name, this_program(args)?.stdin(Stdio::piped()).stdout(Stdio::piped()))
    }

    /// From here on it is first asked to end, with SIGTERM, and killed only if it then takes longer than `grace`.
    pub(in crate::bench) fn ends_within(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Its process id.
    pub(in crate::bench) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Writes a line to its input.
    ///
    /// # Errors
    /// When its input is not piped, or it has closed it.
    pub(in crate::bench) fn tell(&mut self, line: &str) -> Result<(), String> {
        let name = &self.name;
        let input = self.input.as_mut().ok_or_else(|| format!("{name} has no input"))?;
        writeln!(input, "{line}").map_err(|e| format!("{name} does not read its input: {e}"))
    }

    /// Ends its input.
    pub(in crate::bench) fn end_input(&mut self) {
        self.input = None;
    }

    /// How it ended, if it has ended.
    pub(in crate::bench) fn status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Takes from its output what `take` takes, within that time.
    ///
    /// # Errors
    /// As of [`gather`].
    pub(in crate::bench) fn hear<T>(
        &mut self,
        within: Duration,
        take: impl Fn(&mut ChildOutput) -> Option<T>,
    ) -> Result<T, String> {
        let mut all = gather(std::slice::from_mut(self), within, take)?;
        all.pop().ok_or_else(|| "nothing was heard".to_string())
    }

    /// Waits until it has ended well.
    ///
    /// # Errors
    /// When it failed, did not end within that time, or this process is to stop.
    pub(in crate::bench) fn wait(&mut self, within: Duration) -> Result<(), String> {
        let begun = Instant::now();
        loop {
            let status = self.status();
            // A terminal sends all of them its signals: then that is why it failed.
            check_stop()?;
            match status {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(format!("{} failed: {status}", self.name)),
                None if begun.elapsed() > within => return Err(self.late(within)),
                None => std::thread::sleep(LOOK_EVERY),
            }
        }
    }

    /// Ends it as `kill -9` does.
    ///
    /// # Errors
    /// When that is not possible.
    pub(in crate::bench) fn kill(mut self) -> Result<(), String> {
        let ended = self.child.kill().and_then(|()| self.child.wait().map(drop));
        ended.map_err(|e| format!("{} cannot be killed: {e}", self.name))
    }

    fn late(&self, within: Duration) -> String {
        format!("{} did not answer within {} s", self.name, within.as_secs())
    }

    /// Why the output that is waited for will not come, if that is known.
    fn is_over(&mut self) -> Option<String> {
        if self.output.bytes.len() > OUTPUT_BYTES_MAX {
            return Some(format!("{} wrote more than {OUTPUT_BYTES_MAX} bytes", self.name));
        }
        let begun = Instant::now();
        // A process that ends closes its output a moment before its status is known.
        while self.output.has_ended && self.status().is_none() && begun.elapsed() < STATUS_PATIENCE
        {
            std::thread::sleep(LOOK_FOR_END_EVERY);
        }
        let status = self.status();
        let has_failed = status.is_some_and(|status| !status.success());
        let status = status.map_or("its output is closed".to_string(), |s| s.to_string());
        let is_over = has_failed || self.output.has_ended;
        is_over.then(|| format!("{} ended before its time: {status}", self.name))
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        let begun = Instant::now();
        if !self.grace.is_zero()
            && matches!(self.child.try_wait(), Ok(None))
            && let Some(pid) = Pid::from_raw(self.child.id() as i32)
        {
            // It is not reaped yet, so the number is still its own.
            let _ = kill_process(pid, Signal::TERM);
            while begun.elapsed() < self.grace && matches!(self.child.try_wait(), Ok(None)) {
                std::thread::sleep(LOOK_FOR_END_EVERY);
            }
        }
        // One that has ended already cannot be killed: that is as well.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read_pieces(mut from: ChildStdout, to: &SyncSender<Vec<u8>>) {
    loop {
        let mut piece = vec![0; PIECE_BYTES];
        match from.read(&mut piece) {
            Ok(0) => return,
            Ok(count) => piece.truncate(count),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => return,
        }
        if to.send(piece).is_err() {
            return;
        }
    }
}

impl ChildOutput {
    /// Takes up all output that arrived.
    fn fill(&mut self) {
        let Some(pieces) = &self.pieces else { return };
        while self.bytes.len() <= OUTPUT_BYTES_MAX {
            match pieces.try_recv() {
                Ok(piece) => self.bytes.extend(piece),
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => {
                    self.has_ended = true;
                    return;
                }
            }
        }
    }

    /// Waits a moment for more.
    fn wait(&mut self) {
        let Some(pieces) = &self.pieces else { return };
        match pieces.recv_timeout(LOOK_EVERY) {
            Ok(piece) => self.bytes.extend(piece),
            Err(RecvTimeoutError::Disconnected) => self.has_ended = true,
            Err(RecvTimeoutError::Timeout) => {}
        }
    }

    /// The next line, without its end.
    pub(in crate::bench) fn line(&mut self) -> Option<String> {
        let end = self.bytes.iter().position(|&b| b == b'\n');
        let count = match end {
            Some(end) => end + 1,
            None if self.has_ended && !self.bytes.is_empty() => self.bytes.len(),
            None => return None,
        };
        let line: Vec<u8> = self.bytes.drain(..count).collect();
        Some(String::from_utf8_lossy(&line).trim_end().to_string())
    }

    /// So many bytes as the number before them says, which has 8 bytes.
    pub(in crate::bench) fn sized(&mut self) -> Option<Vec<u8>> {
        let (length, rest) = self.bytes.split_first_chunk()?;
        let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
        let piece = rest.get(..length)?.to_vec();
        self.bytes.drain(..8 + length);
        Some(piece)
    }

    /// Everything, once there is no more.
    pub(in crate::bench) fn all(&mut self) -> Option<Vec<u8>> {
        self.has_ended.then(|| std::mem::take(&mut self.bytes))
    }
}

/// Takes from the output of each process what `take` takes, within that time.
///
/// # Errors
/// When one of them ended too early or failed, wrote nothing in time, or this process is to stop.
pub(in crate::bench) fn gather<T>(
    processes: &mut [ChildProcess],
    within: Duration,
    take: impl Fn(&mut ChildOutput) -> Option<T>,
) -> Result<Vec<T>, String> {
    let begun = Instant::now();
    let mut taken: Vec<Option<T>> = processes.iter().map(|_| None).collect();
    loop {
        for (process, taken) in processes.iter_mut().zip(&mut taken) {
            if taken.is_none() {
                process.output.fill();
                *taken = take(&mut process.output);
            }
            if taken.is_none()
                && let Some(why) = process.is_over()
            {
                // A terminal sends all of them its signals: then that is why it ended.
                check_stop()?;
                return Err(why);
            }
        }
        check_stop()?;
        let Some(first) = taken.iter().position(Option::is_none) else { break };
        if begun.elapsed() > within {
            return Err(processes[first].late(within));
        }
        processes[first].output.wait();
    }
    Ok(taken.into_iter().flatten().collect())
}

/// Starts this program with `args` once for each task, gives it the task as a line of JSON, and gathers what each
/// answers in such a line, within that time.
///
/// # Errors
/// As of [`gather`], and when an answer is of another form.
pub(in crate::bench) fn answers<T: Serialize, A: DeserializeOwned>(
    args: &[&str],
    tasks: impl Iterator<Item = T>,
    within: Duration,
) -> Result<Vec<A>, String> {
    let start = |task: T| {
        let text = serde_json::to_string(&task).map_err(|e| e.to_string())?;
        let mut member = ChildProcess::start_this_program("a member", args)?;
        member.tell(&text).map(|()| member)
    };
    let mut members = tasks.map(start).collect::<Result<Vec<_>, String>>()?;
    let read = |line: String| {
        serde_json::from_str(&line).map_err(|e| format!("a member wrote {line:?}: {e}"))
    };
    gather(&mut members, within, ChildOutput::line)?.into_iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_secs(60);

    fn shell(script: &str) -> ChildProcess {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
        ChildProcess::start("a shell", &mut command).unwrap()
    }

    fn is_alive(id: u32) -> bool {
        std::fs::exists(format!("/proc/{id}")).unwrap()
    }

    #[test]
    fn what_processes_write_is_gathered_in_their_order_whichever_writes_first() {
        let _limit = amcast_test_policy::time_limit();
        let mut all = [shell("read l; echo \"$l 1\"; echo b"), shell("echo a 2; echo c")];
        all[0].tell("a").unwrap();
        assert_eq!(gather(&mut all, SOON, ChildOutput::line).unwrap(), ["a 1", "a 2"]);
        let rest = gather(&mut all, SOON, ChildOutput::all).unwrap();
        assert_eq!(rest, [b"b\n".to_vec(), b"c\n".to_vec()]);
        all.iter_mut().for_each(|process| process.wait(SOON).unwrap());
    }

    #[test]
    fn more_than_a_pipe_holds_is_read_to_its_end() {
        let _limit = amcast_test_policy::time_limit();
        let mut process =
            shell("printf '\\5\\0\\0\\0\\0\\0\\0\\0hello'; head -c 3000000 /dev/zero");
        assert_eq!(process.hear(SOON, ChildOutput::sized).unwrap(), b"hello");
        assert_eq!(process.hear(SOON, ChildOutput::all).unwrap().len(), 3_000_000);
    }

    #[test]
    fn a_process_that_ends_early_is_noticed_while_another_one_is_waited_for() {
        let _limit = amcast_test_policy::time_limit();
        for (script, status) in [("exit 3", 3), ("true", 0)] {
            let mut all = [shell("read l"), shell(script)];
            let error = gather(&mut all, SOON, ChildOutput::line).unwrap_err();
            assert_eq!(error, format!("a shell ended before its time: exit status: {status}"));
        }
        let failed = shell("exit 3").wait(SOON).unwrap_err();
        assert_eq!(failed, "a shell failed: exit status: 3");
    }

    #[test]
    fn a_process_that_writes_nothing_is_waited_for_until_the_deadline() {
        let _limit = amcast_test_policy::time_limit();
        let mut process = shell("read l; echo $l");
        let late = "a shell did not answer within 0 s";
        assert_eq!(process.hear(Duration::ZERO, ChildOutput::line).unwrap_err(), late);
        assert_eq!(process.wait(Duration::ZERO).unwrap_err(), late);
        process.tell("still there").unwrap();
        assert_eq!(process.hear(SOON, ChildOutput::line).unwrap(), "still there");
    }

    #[test]
    fn a_process_ends_with_what_owns_it_and_is_asked_first_if_it_has_time_for_that() {
        let _limit = amcast_test_policy::time_limit();
        let process = shell("read l");
        let id = process.id();
        assert!(is_alive(id));
        drop(process);
        assert!(!is_alive(id));
        let path = std::env::temp_dir().join(format!("amcast-asked-{}", std::process::id()));
        let traps = format!("trap 'echo asked >{}; exit' TERM; echo ready; read l", path.display());
        let mut process = shell(&traps).ends_within(SOON);
        assert_eq!(process.hear(SOON, ChildOutput::line).unwrap(), "ready");
        let id = process.id();
        drop(process);
        assert!(!is_alive(id));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "asked\n");
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_program_that_is_not_there_is_told_by_its_name() {
        let _limit = amcast_test_policy::time_limit();
        let mut command = Command::new("amcast-no-such");
        assert!(ChildProcess::start_if_installed("it", &mut command).unwrap().is_none());
        let why = ChildProcess::start("it", &mut command).err().unwrap();
        assert_eq!(why, "it cannot be started: there is no program amcast-no-such");
    }
}

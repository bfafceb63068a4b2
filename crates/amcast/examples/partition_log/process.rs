//! Members of the partition-available log as processes of their own, which obey lines.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{TcpListener, UdpSocket};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// The line behind an answer.
pub(crate) const END: &str = ".";

/// How long members may take to merge.
const PATIENCE: Duration = Duration::from_secs(30);

/// The pause between two looks.
const PAUSE: Duration = Duration::from_millis(20);

/// A member as a process. It is killed when it is dropped.
#[derive(Debug)]
pub(crate) struct MemberProcess {
    child: Child,
    /// None once it is to end.
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl MemberProcess {
    /// Starts it.
    pub(crate) fn start(mut command: Command) -> io::Result<Self> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let missing = || io::Error::other("it has no input or output");
        let input = Some(child.stdin.take().ok_or_else(missing)?);
        let output = BufReader::new(child.stdout.take().ok_or_else(missing)?);
        Ok(Self { child, input, output })
    }

    /// Has it obey a line, and gives the lines of its answer.
    pub(crate) fn ask(&mut self, line: &str) -> io::Result<Vec<String>> {
        let input = self.input.as_mut().ok_or_else(|| io::Error::other("it is to end"))?;
        writeln!(input, "{line}")?;
        input.flush()?;
        let mut answer = Vec::new();
        loop {
            let mut line = String::new();
            if self.output.read_line(&mut line)? == 0 {
                return Err(io::Error::other("the member has ended"));
            }
            match line.trim_end() {
                END => return Ok(answer),
                line => answer.push(line.to_string()),
            }
        }
    }

    /// The same for an answer of one line that is no error.
    pub(crate) fn ask_one(&mut self, line: &str) -> io::Result<String> {
        match &self.ask(line)?[..] {
            [answer] if !answer.starts_with("error") => Ok(answer.clone()),
            other => Err(io::Error::other(format!("{line}: {other:?}"))),
        }
    }

    /// Its log, once it has so many entries.
    pub(crate) fn wait_for_entries(&mut self, count: usize) -> io::Result<Vec<String>> {
        let begun = Instant::now();
        loop {
            let log = self.ask("log")?;
            if log.len() >= count || begun.elapsed() > PATIENCE {
                return Ok(log);
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Has it leave, and waits for its end.
    pub(crate) fn end(mut self) -> io::Result<()> {
        self.input = None;
        let status = self.child.wait()?;
        match status.success() {
            true => Ok(()),
            false => Err(io::Error::other(format!("a member ended with {status}"))),
        }
    }
}

impl Drop for MemberProcess {
    fn drop(&mut self) {
        // One that has ended is not there to be killed.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Waits until all of them are in one view, of as many members, with one state.
pub(crate) fn wait_for_one_view(members: &mut [&mut MemberProcess]) -> io::Result<()> {
    let begun = Instant::now();
    let count = members.len();
    loop {
        let status = |member: &mut &mut MemberProcess| member.ask_one("status");
        let all = members.iter_mut().map(status).collect::<io::Result<Vec<_>>>()?;
        let view = |line: &String| line.split(" reconciled").next().map(str::to_string);
        let is_one = all.iter().all(|line| view(line) == view(&all[0]));
        let is_whole = |line: &String| line.split(' ').nth(2).map(|of| of.split(',').count());
        if is_one && is_whole(&all[0]) == Some(count) && all[0].contains(" reconciled") {
            return Ok(());
        }
        if begun.elapsed() > PATIENCE {
            return Err(io::Error::other(format!("they do not come together: {all:?}")));
        }
        std::thread::sleep(PAUSE);
    }
}

/// Addresses on this machine that nobody listens at just now.
#[allow(dead_code, reason = "members on hosts of their own have addresses of these")]
pub(crate) fn free_addresses(count: usize) -> io::Result<Vec<String>> {
    let mut held = Vec::new();
    while held.len() < count {
        let stream = TcpListener::bind("127.0.0.1:0")?;
        // Both kinds of sockets have the same port.
        if let Ok(datagrams) = UdpSocket::bind(stream.local_addr()?) {
            held.push((stream, datagrams));
        }
    }
    held.iter().map(|(stream, _)| Ok(stream.local_addr()?.to_string())).collect()
}

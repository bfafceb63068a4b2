//! `amcast log append --lines`: each line of the input is a value, and many go in one request.
//!
//! Lines of the input that are available go into one request, and the next request is sent when
//! that one is answered. So lines keep their order, none is appended behind one that was not, and a
//! single line is appended at once.

use super::{Failure, INPUT_BYTES_MAX, LogPrinter};
use amcast_log::{LogError, LogSession};
use bytes::Bytes;
use serde_json::json;
use std::io::{self, BufRead, BufReader, IsTerminal, Read};
use std::time::{Duration, Instant};
use tonic::Code;

/// Lines of one request: as many as one may have.
const LINES_MAX: usize = 1000;

/// Bytes of one request, beside its last line: half of what clusters usually take.
const BYTES_MAX: usize = 512 << 10;

/// Bytes of the input that are read ahead.
const AHEAD_BYTES: usize = 1 << 20;

/// The interval of progress reports.
const TELL_EVERY: Duration = Duration::from_secs(2);

/// Appends each line of standard input, and prints their positions.
pub(super) fn append(
    client: &mut LogSession,
    log: &str,
    out: &mut LogPrinter<'_>,
) -> Result<(), Failure> {
    let stdin = BufReader::with_capacity(AHEAD_BYTES, io::stdin().lock());
    let mut lines = InputLines { input: stdin, line_head: log.len(), appended: 0, most: LINES_MAX };
    let send = |values: &[Bytes]| match values {
        [value] => client.append(log, value.clone()).map(|position| vec![position]),
        values => client.multi_append(values.iter().map(|value| (log.to_string(), value.clone()))),
    };
    let is_json = out.json;
    let mut all = Vec::new();
    let mut progress = AppendProgress::begin();
    let done = lines.append(send, |positions| {
        progress.more(positions.len());
        if is_json {
            all.extend_from_slice(positions);
            return Ok(());
        }
        let text: Vec<_> = positions.iter().map(u64::to_string).collect();
        out.say(json!(null), format_args!("{}", text.join("\n")))
    });
    if is_json {
        out.say(json!({"log": log, "positions": all}), format_args!(""))?;
    }
    done
}

/// The lines of an input.
struct InputLines<R> {
    input: BufReader<R>,
    /// The size of a line in a request besides its own bytes.
    line_head: usize,
    /// How many are appended.
    appended: u64,
    /// How many go in one request: fewer after one was refused.
    most: usize,
}

impl<R: Read> InputLines<R> {
    /// Appends all lines; `told` hears the positions.
    fn append(
        &mut self,
        mut send: impl FnMut(&[Bytes]) -> Result<Vec<u64>, LogError>,
        mut told: impl FnMut(&[u64]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        loop {
            let there = self.next();
            let unread = |e| Failure::Failed(format!("standard input: {e}. {}", self.before()));
            let there = there.map_err(unread)?;
            if there.is_empty() {
                return Ok(());
            }
            let mut left = &there[..];
            while !left.is_empty() {
                let now = &left[..left.len().min(self.most)];
                match send(now) {
                    Ok(positions) => {
                        left = &left[now.len()..];
                        self.appended += now.len() as u64;
                        self.most = LINES_MAX.min(2 * self.most);
                        told(&positions)?;
                    }
                    // Perhaps some of them are not: the one that is can be named then.
                    Err(failed) if is_refused(&failed) && now.len() > 1 => {
                        self.most = now.len() / 2;
                    }
                    Err(failed) => return Err(self.failed(&failed, now.len() as u64)),
                }
            }
        }
    }

    /// The lines that are there, as many as go together; waits for the first. None at the end.
    fn next(&mut self) -> io::Result<Vec<Bytes>> {
        let (mut lines, mut bytes) = (Vec::new(), 0);
        loop {
            let mut line = Vec::new();
            (&mut self.input).take(INPUT_BYTES_MAX).read_until(b'\n', &mut line)?;
            if line.is_empty() {
                return Ok(lines);
            }
            line.pop_if(|last| *last == b'\n');
            bytes += line.len() + self.line_head;
            lines.push(Bytes::from(line));
            let is_next_there = self.input.buffer().contains(&b'\n');
            if lines.len() == LINES_MAX || bytes >= BYTES_MAX || !is_next_there {
                return Ok(lines);
            }
        }
    }

    /// The failure, with the numbers of its lines.
    fn failed(&self, failed: &LogError, count: u64) -> Failure {
        let (first, last) = (self.appended + 1, self.appended + count);
        let which = match count {
            1 => format!("line {first}: {failed}"),
            _ => format!("lines {first} to {last}: {failed}; all of them are appended, or none"),
        };
        let why = format!("{which}. {}", self.before());
        if failed.code == Code::InvalidArgument {
            Failure::Misuse(why)
        } else {
            Failure::Failed(why)
        }
    }

    fn before(&self) -> String {
        match self.appended {
            0 => "No line is appended before that".to_string(),
            1 => "The line before is appended".to_string(),
            n => format!("The {n} lines before are appended"),
        }
    }
}

/// Whether what was asked for was surely not done, and less might be.
fn is_refused(failed: &LogError) -> bool {
    matches!(failed.code, Code::InvalidArgument | Code::OutOfRange | Code::ResourceExhausted)
}

/// Says how far it is to a person who does not see the positions.
struct AppendProgress {
    is_told: bool,
    appended: usize,
    next: Instant,
}

impl AppendProgress {
    fn begin() -> Self {
        let is_told = io::stderr().is_terminal() && !io::stdout().is_terminal();
        Self { is_told, appended: 0, next: Instant::now() + TELL_EVERY }
    }

    fn more(&mut self, lines: usize) {
        self.appended += lines;
        if self.is_told && Instant::now() >= self.next {
            eprintln!("amcast: {} lines are appended", self.appended);
            self.next = Instant::now() + TELL_EVERY;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A log that takes requests of so many bytes, and holds so many values.
    struct SmallLog {
        bytes_max: usize,
        values_max: usize,
        values: Vec<Bytes>,
        requests: usize,
    }

    impl SmallLog {
        fn new(bytes_max: usize, values_max: usize) -> Self {
            Self { bytes_max, values_max, values: Vec::new(), requests: 0 }
        }

        fn append(&mut self, values: &[Bytes]) -> Result<Vec<u64>, LogError> {
            self.requests += 1;
            let refused = |code, why: &str| Err(LogError { code, why: why.to_string() });
            if values.iter().map(Bytes::len).sum::<usize>() > self.bytes_max {
                return refused(Code::InvalidArgument, "too large");
            }
            let first = self.values.len();
            if first + values.len() > self.values_max {
                return refused(Code::ResourceExhausted, "full");
            }
            self.values.extend_from_slice(values);
            Ok((first as u64..self.values.len() as u64).collect())
        }
    }

    fn lines<R: Read>(input: R) -> InputLines<R> {
        let input = BufReader::with_capacity(AHEAD_BYTES, input);
        InputLines { input, line_head: 8, appended: 0, most: LINES_MAX }
    }

    /// Appends an input to a log; the positions, and what failed.
    fn append(input: impl Read, to: &mut SmallLog) -> (Vec<u64>, Option<Failure>) {
        let mut all = Vec::new();
        let done = lines(input).append(
            |values| to.append(values),
            |positions| {
                all.extend_from_slice(positions);
                Ok(())
            },
        );
        (all, done.err())
    }

    #[test]
    fn lines_go_together_in_their_order_and_each_is_told_its_position() {
        let text: String = (0..10_000).map(|n| format!("{n}\n")).collect();
        let mut log = SmallLog::new(1 << 20, usize::MAX);
        let (positions, failed) = append(format!("{text}\nlast").as_bytes(), &mut log);
        assert!(failed.is_none() && positions == (0..10_002).collect::<Vec<_>>());
        let expected: Vec<_> = (0..10_000).map(|n| n.to_string()).collect();
        let there: Vec<_> = log.values.iter().map(|v| String::from_utf8_lossy(v)).collect();
        assert_eq!(there[..10_000], expected);
        assert_eq!(there[10_000..], ["", "last"]);
        assert!(log.requests < 15, "{} requests", log.requests);
        assert!(append(&b""[..], &mut log).0.is_empty());
    }

    /// Gives what it has piece by piece, as a pipe does whose writer is slow.
    struct SlowPipe(Vec<&'static str>);

    impl Read for SlowPipe {
        fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
            if self.0.is_empty() {
                return Ok(0);
            }
            let piece = self.0.remove(0).as_bytes();
            to[..piece.len()].copy_from_slice(piece);
            Ok(piece.len())
        }
    }

    #[test]
    fn what_is_there_is_sent_before_more_is_waited_for() {
        let mut lines = lines(SlowPipe(vec!["a\nb\nhal", "f\n", "c"]));
        let mut next = || lines.next().unwrap();
        let expected: [&[&str]; 4] = [&["a", "b"], &["half"], &["c"], &[]];
        assert_eq!([next(), next(), next(), next()].map(|l| l.len()), expected.map(<[_]>::len));
    }

    #[test]
    fn the_line_that_is_refused_is_named_and_all_before_it_are_appended() {
        let text = |failed: Option<Failure>| match failed {
            Some(Failure::Misuse(why) | Failure::Failed(why)) => why,
            other => panic!("{other:?}"),
        };
        let long = format!("{}{}\nafter\n", "short\n".repeat(700), "x".repeat(5000));
        let mut log = SmallLog::new(4000, usize::MAX);
        let (positions, failed) = append(long.as_bytes(), &mut log);
        assert_eq!((positions.len(), log.values.len()), (700, 700));
        assert!(matches!(failed, Some(Failure::Misuse(_))));
        assert_eq!(text(failed), "line 701: too large. The 700 lines before are appended");
        let mut log = SmallLog::new(4000, 333);
        let (positions, failed) = append(long.as_bytes(), &mut log);
        assert_eq!(positions.len(), 333);
        assert_eq!(text(failed), "line 334: full. The 333 lines before are appended");
        assert_eq!(
            text(append(long.as_bytes(), &mut log).1),
            "line 1: full. No line is appended before that"
        );
    }

    #[test]
    fn lines_that_may_be_appended_are_not_sent_in_parts() {
        let failed = LogError { code: Code::DeadlineExceeded, why: "no answer".to_string() };
        let mut requests = 0;
        let send = |_: &[Bytes]| {
            requests += 1;
            Err(failed.clone())
        };
        let done = lines(&b"a\nb\nc\n"[..]).append(send, |_| Ok(()));
        let Err(Failure::Failed(why)) = done else { panic!("{done:?}") };
        assert_eq!(requests, 1);
        assert_eq!(
            why,
            "lines 1 to 3: no answer; all of them are appended, or none. No line is appended before that"
        );
    }
}

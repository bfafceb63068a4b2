//! A load of Redis commands: many connections from one thread, each with a batch on the way.

use super::check_stop;
use crate::bench::histogram;
use amcast_core::rng::Rng;
use hdrhistogram::Histogram;
use rustix::event::{PollFd, PollFlags, poll};
use serde::Serialize;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Keys that are set and got.
const KEYS: u64 = 100_000;

/// Longest time without any answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// A kind of command.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum LoadOp {
    /// SET of one key.
    Set,
    /// GET of one key.
    Get,
    /// MSET of ten keys, over all shards.
    Mset10,
}

/// The work of every connection.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct ConnectionWork {
    pub(super) op: LoadOp,
    /// Commands that a connection sends at once, and waits for.
    pub(super) pipeline: usize,
    /// Bytes of a value.
    pub(super) payload: usize,
    /// Connections.
    pub(super) clients: usize,
}

/// The result.
pub(super) struct LoadResult {
    pub(super) per_second: f64,
    /// From sending a batch to its last answer, for each command, in nanoseconds.
    pub(super) latencies: Histogram<u64>,
    pub(super) errors: u64,
}

struct LoadConnection {
    stream: TcpStream,
    out: Vec<u8>,
    /// How much of `out` is sent.
    sent: usize,
    got: Vec<u8>,
    /// Answers still to come.
    open: usize,
    at: Instant,
}

/// Sets all keys once, so that every GET finds something.
pub(super) fn fill(at: &str, payload: usize) -> Result<(), String> {
    let mut connection = amcast::client::Connection::open(at).map_err(|e| e.to_string())?;
    let value = vec![b'x'; payload];
    for first in (0..KEYS).step_by(100) {
        let keys: Vec<String> = (first..first + 100).map(key).collect();
        let mut words: Vec<&[u8]> = vec![b"MSET"];
        keys.iter().for_each(|key| words.extend([key.as_bytes(), &value]));
        let answer = connection.call(&words).map_err(|e| format!("{at}: {e}"))?;
        if answer.is_error() {
            return Err(format!("{at}: {answer}"));
        }
    }
    Ok(())
}

fn key(n: u64) -> String {
    format!("key:{n:012}")
}

/// Puts the work on the server at `at` for `warm_up` and then `duration`, which is measured.
pub(super) fn run(
    at: &str,
    work: &ConnectionWork,
    warm_up: Duration,
    duration: Duration,
) -> Result<LoadResult, String> {
    let failed = |e: io::Error| format!("{at}: {e}");
    let mut rng = Rng::stream(1, "keys");
    let value = vec![b'v'; work.payload];
    let begin = Instant::now();
    let mut lanes = Vec::with_capacity(work.clients);
    for _ in 0..work.clients {
        let stream = TcpStream::connect(at).map_err(failed)?;
        stream.set_nodelay(true).and_then(|()| stream.set_nonblocking(true)).map_err(failed)?;
        let (out, got) = (Vec::new(), Vec::new());
        let mut lane = LoadConnection { stream, out, sent: 0, got, open: 0, at: begin };
        lane.send(work, &value, &mut rng).map_err(failed)?;
        lanes.push(lane);
    }
    let from = Instant::now() + warm_up;
    let to = from + duration;
    let mut done = LoadResult { per_second: 0.0, latencies: histogram(), errors: 0 };
    let mut heard = Instant::now();
    while Instant::now() < to {
        let ready = wait(&lanes).map_err(failed)?;
        check_stop()?;
        if ready.is_empty() && heard.elapsed() > PATIENCE {
            return Err(format!("{at}: no answer for {PATIENCE:?}"));
        }
        for i in ready {
            let lane = &mut lanes[i];
            lane.flush().map_err(failed)?;
            done.errors += lane.receive().map_err(failed)?;
            heard = Instant::now();
            if lane.open > 0 {
                continue;
            }
            if (from..to).contains(&heard) {
                let ns = heard.duration_since(lane.at).as_nanos() as u64;
                done.latencies.saturating_record_n(ns, work.pipeline as u64);
            }
            lane.send(work, &value, &mut rng).map_err(failed)?;
        }
    }
    done.per_second = done.latencies.len() as f64 / duration.as_secs_f64();
    Ok(done)
}

/// Which lanes have something to read, or room to write that they wait for.
fn wait(lanes: &[LoadConnection]) -> io::Result<Vec<usize>> {
    let interest = |lane: &LoadConnection| {
        if lane.sent < lane.out.len() { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN }
    };
    let mut polled: Vec<PollFd<'_>> =
        lanes.iter().map(|lane| PollFd::new(&lane.stream, interest(lane))).collect();
    let timeout = rustix::event::Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
    match poll(&mut polled, Some(&timeout)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(e) => return Err(e.into()),
    }
    Ok((0..lanes.len()).filter(|&i| !polled[i].revents().is_empty()).collect())
}

impl LoadConnection {
    fn send(&mut self, work: &ConnectionWork, value: &[u8], rng: &mut Rng) -> io::Result<()> {
        self.out.clear();
        self.sent = 0;
        for _ in 0..work.pipeline {
            let (name, keys, values) = match work.op {
                LoadOp::Set => ("SET", 1, true),
                LoadOp::Get => ("GET", 1, false),
                LoadOp::Mset10 => ("MSET", 10, true),
            };
            let words = 1 + keys * if values { 2 } else { 1 };
            write!(self.out, "*{words}\r\n${}\r\n{name}\r\n", name.len())?;
            for _ in 0..keys {
                let key = key(rng.below(KEYS));
                write!(self.out, "${}\r\n{key}\r\n", key.len())?;
                if values {
                    write!(self.out, "${}\r\n", value.len())?;
                    self.out.extend_from_slice(value);
                    self.out.extend_from_slice(b"\r\n");
                }
            }
        }
        (self.open, self.at) = (work.pipeline, Instant::now());
        self.flush()
    }

    fn flush(&mut self) -> io::Result<()> {
        while self.sent < self.out.len() {
            match self.stream.write(&self.out[self.sent..]) {
                Ok(n) => self.sent += n,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Takes in what is there; how many answers of it were errors.
    fn receive(&mut self) -> io::Result<u64> {
        let mut chunk = [0; 65_536];
        match self.stream.read(&mut chunk) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => self.got.extend_from_slice(&chunk[..n]),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Err(e) => return Err(e),
        }
        let (mut at, mut errors) = (0, 0);
        while self.open > 0 {
            let Some(length) = answer_length(&self.got[at..])? else { break };
            errors += u64::from(self.got[at] == b'-');
            at += length;
            self.open -= 1;
        }
        self.got.drain(..at);
        Ok(errors)
    }
}

/// How long the answer at the front of `bytes` is, once all of it is there. Of RESP2, no arrays.
fn answer_length(bytes: &[u8]) -> io::Result<Option<usize>> {
    let Some(end) = bytes.windows(2).position(|w| w == b"\r\n") else { return Ok(None) };
    let wrong = || io::Error::new(io::ErrorKind::InvalidData, "not an answer of RESP2");
    match bytes[0] {
        b'+' | b'-' | b':' => Ok(Some(end + 2)),
        b'$' if bytes[1] == b'-' => Ok(Some(end + 2)),
        b'$' => {
            let digits = std::str::from_utf8(&bytes[1..end]).map_err(|_| wrong())?;
            let whole = end + 4 + digits.parse::<usize>().map_err(|_| wrong())?;
            Ok((bytes.len() >= whole).then_some(whole))
        }
        _ => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_counts_once_all_of_it_is_there() {
        for whole in ["+OK\r\n", ":12\r\n", "-ERR x\r\n", "$-1\r\n", "$3\r\nabc\r\n", "$0\r\n\r\n"]
        {
            for cut in 0..whole.len() {
                assert_eq!(answer_length(&whole.as_bytes()[..cut]).unwrap(), None, "{whole:?}");
            }
            let more = format!("{whole}+OK\r\n");
            assert_eq!(answer_length(more.as_bytes()).unwrap(), Some(whole.len()), "{whole:?}");
        }
        assert!(answer_length(b"?\r\n").is_err() && answer_length(b"$x\r\n").is_err());
    }
}

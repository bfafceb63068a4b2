//! Clients that write at a rate, and what they saw.

use super::{RecoveryCourse, SecondFigures};
use amcast::client::{Answer, Connection};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Values that are written with one command when the store is filled, in bytes.
const FILL_BYTES: usize = 256 << 10;

/// How long the most that can be written is looked for.
const PEAK: Duration = Duration::from_secs(4);

/// A client that lost its connection tries again after this.
const PAUSE: Duration = Duration::from_millis(20);

/// Keys that are read back at a time.
const READ_KEYS: usize = 200;

/// Keys of its own that each client writes, over and over.
const OWN_KEYS: u64 = 1000;

fn key(n: u64) -> String {
    format!("filled:{n:012}")
}

/// Writes values until there are so many bytes.
pub(super) fn fill(at: &str, bytes: u64, value_bytes: usize) -> Result<(), String> {
    let keys = bytes / value_bytes.max(1) as u64;
    let each = (FILL_BYTES / value_bytes.max(1)).max(1) as u64;
    let value = vec![b'v'; value_bytes];
    let mut connection = Connection::open(at).map_err(|e| e.to_string())?;
    let mut first = 0;
    while first < keys {
        crate::bench::stop::check_stop()?;
        let names: Vec<String> = (first..keys.min(first + each)).map(key).collect();
        let mut words: Vec<&[u8]> = vec![b"MSET"];
        words.extend(names.iter().flat_map(|name| [name.as_bytes(), &value]));
        match connection.call(&words).map_err(|e| format!("the store was filled: {e}"))? {
            // It has no room just now.
            Answer::Error(_) => thread::sleep(PAUSE),
            _ => first += each,
        }
    }
    Ok(())
}

/// The record of one client.
struct WriteClient {
    /// When each write was acknowledged, and how long it took since it was due.
    done: Vec<(Duration, Duration)>,
    errors: u64,
    prefix: String,
    /// How many writes were acknowledged: the last one of each key is there.
    count: u64,
}

/// The record of all clients.
pub(super) struct WriteTotals {
    clients: Vec<WriteClient>,
    pub(super) errors: u64,
}

/// Clients at work.
pub(super) struct Writers {
    begun: Instant,
    end: Arc<AtomicBool>,
    threads: Vec<JoinHandle<WriteClient>>,
}

/// How often one client writes, if not as often as it can.
type WriteInterval = Option<Duration>;

/// The task of one client.
struct WriterTask {
    /// Its gateway.
    at: String,
    /// Its keys begin so.
    prefix: String,
    value_bytes: usize,
    every: WriteInterval,
    /// When all clients began, and when the first write of this one is due.
    begun: Instant,
    first: Instant,
}

fn client(task: WriterTask, end: &AtomicBool) -> WriteClient {
    let WriterTask { at, prefix, value_bytes, every, begun, first } = task;
    let mut client = WriteClient { done: Vec::new(), errors: 0, prefix, count: 0 };
    let mut connection: Option<Connection> = None;
    let mut value = vec![b'v'; value_bytes];
    let mut due = first;
    while !end.load(Ordering::Relaxed) {
        let wait = due.saturating_duration_since(Instant::now());
        if every.is_some() && !wait.is_zero() {
            thread::sleep(wait.min(Duration::from_millis(50)));
            continue;
        }
        if every.is_none() {
            due = Instant::now();
        }
        let key = format!("{}:{}", client.prefix, client.count % OWN_KEYS);
        stamp(&mut value, client.count);
        let answer = match &mut connection {
            Some(open) => open.call(&[b"SET", key.as_bytes(), &value]),
            None => Connection::open(&at).and_then(|mut open| {
                let answer = open.call(&[b"SET", key.as_bytes(), &value]);
                connection = Some(open);
                answer
            }),
        };
        match answer {
            Ok(Answer::Error(_)) => client.errors += 1,
            Ok(_) => {
                client.done.push((begun.elapsed(), due.elapsed()));
                client.count += 1;
                due += every.unwrap_or_default();
            }
            Err(_) => {
                (client.errors, connection) = (client.errors + 1, None);
                thread::sleep(PAUSE);
            }
        }
    }
    client
}

/// Puts a number in front of a value, as far as there is room.
fn stamp(value: &mut [u8], n: u64) {
    let room = value.len().min(8);
    value[..room].copy_from_slice(&n.to_be_bytes()[..room]);
}

impl Writers {
    /// Starts them, on these gateways in turn.
    pub(super) fn start(gateways: &[String], course: &RecoveryCourse, per_second: f64) -> Self {
        let every = Duration::from_secs_f64(course.clients as f64 / per_second);
        Self::at(gateways, course, Some(every), "own")
    }

    fn at(gateways: &[String], course: &RecoveryCourse, every: WriteInterval, name: &str) -> Self {
        let (begun, end) = (Instant::now(), Arc::new(AtomicBool::new(false)));
        let thread = |n: usize| {
            let end = Arc::clone(&end);
            // They are not due all at one moment.
            let first = begun + every.unwrap_or_default() * n as u32 / course.clients as u32;
            let task = WriterTask {
                at: gateways[n % gateways.len()].clone(),
                prefix: format!("{name}:{n}"),
                value_bytes: course.value_bytes,
                every,
                begun,
                first,
            };
            thread::spawn(move || client(task, &end))
        };
        let threads = (0..course.clients).map(thread).collect();
        Self { begun, end, threads }
    }

    /// When they began.
    pub(super) const fn begun(&self) -> Instant {
        self.begun
    }

    /// Ends them.
    pub(super) fn stop(self) -> Result<WriteTotals, String> {
        self.end.store(true, Ordering::Relaxed);
        let join =
            |t: JoinHandle<WriteClient>| t.join().map_err(|_| "a client panicked".to_string());
        let clients = self.threads.into_iter().map(join).collect::<Result<Vec<_>, _>>()?;
        let errors = clients.iter().map(|client| client.errors).sum();
        Ok(WriteTotals { clients, errors })
    }
}

/// The most that clients can write, each second.
pub(super) fn peak(gateways: &[String], course: &RecoveryCourse) -> Result<f64, String> {
    let writers = Writers::at(gateways, course, None, "peak");
    thread::sleep(PEAK);
    let written = writers.stop()?;
    // Not the first quarter: connections were made, and buffers grew.
    let from = PEAK / 4;
    let done = written.clients.iter().flat_map(|client| &client.done);
    let count = done.filter(|(at, _)| (from..PEAK).contains(at)).count();
    Ok(count as f64 / (PEAK - from).as_secs_f64())
}

impl WriteTotals {
    /// Second by second.
    pub(super) fn seconds(&self, memory: &[Vec<f64>]) -> Vec<SecondFigures> {
        let none = |at| SecondFigures {
            at,
            acknowledged: 0,
            mean_ms: 0.0,
            max_ms: 0.0,
            memory_mb: memory.get(at).cloned().unwrap_or_default(),
        };
        let mut seconds: Vec<SecondFigures> = (0..memory.len()).map(none).collect();
        for (at, took) in self.clients.iter().flat_map(|client| &client.done) {
            let Some(second) = seconds.get_mut(at.as_secs() as usize) else { continue };
            let ms = took.as_secs_f64() * 1e3;
            second.acknowledged += 1;
            second.mean_ms += ms;
            second.max_ms = second.max_ms.max(ms);
        }
        for second in &mut seconds {
            second.mean_ms /= second.acknowledged.max(1) as f64;
        }
        seconds
    }

    /// The longest time without any acknowledgement, in milliseconds.
    pub(super) fn longest_silence_ms(&self) -> f64 {
        let mut times: Vec<Duration> =
            self.clients.iter().flat_map(|client| client.done.iter().map(|done| done.0)).collect();
        times.sort_unstable();
        let gaps = times.windows(2).map(|w| (w[1] - w[0]).as_secs_f64() * 1e3);
        gaps.fold(0.0, f64::max)
    }

    /// Whether the last acknowledged write of each key is there.
    pub(super) fn read_back(&self, at: &str, value_bytes: usize) -> Result<(), String> {
        let mut connection = Connection::open(at).map_err(|e| e.to_string())?;
        for client in &self.clients {
            let last: Vec<u64> = (client.count.saturating_sub(OWN_KEYS)..client.count).collect();
            for some in last.chunks(READ_KEYS) {
                client.read_back(&mut connection, some, value_bytes)?;
            }
        }
        Ok(())
    }
}

impl WriteClient {
    /// Whether these writes are there, unless later ones are.
    fn read_back(
        &self,
        connection: &mut Connection,
        writes: &[u64],
        value_bytes: usize,
    ) -> Result<(), String> {
        let key = |n: &u64| format!("{}:{}", self.prefix, n % OWN_KEYS);
        let keys: Vec<String> = writes.iter().map(key).collect();
        let mut words: Vec<&[u8]> = vec![b"MGET"];
        words.extend(keys.iter().map(|key| key.as_bytes()));
        let answer = connection.call(&words).map_err(|e| format!("MGET: {e}"))?;
        let Answer::Array(values) = answer else { return Err(format!("MGET: {answer}")) };
        for ((n, key), value) in writes.iter().zip(&keys).zip(&values) {
            let written = |n: u64| {
                let mut value = vec![b'v'; value_bytes];
                stamp(&mut value, n);
                Answer::Bytes(value)
            };
            // One more may have been made whose answer did not come.
            if *value != written(*n) && *value != written(n + OWN_KEYS) {
                return Err(format!("an acknowledged write is lost: {key}, number {n}"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_count_what_was_acknowledged_in_them() {
        let at = |ms: u64, took: u64| (Duration::from_millis(ms), Duration::from_millis(took));
        let done = vec![at(100, 1), at(900, 3), at(2100, 5)];
        let client = WriteClient { done, errors: 0, prefix: String::new(), count: 3 };
        let written = WriteTotals { clients: vec![client], errors: 0 };
        let seconds = written.seconds(&[vec![1.0], vec![2.0], vec![3.0]]);
        let told: Vec<_> = seconds.iter().map(|s| (s.acknowledged, s.mean_ms, s.max_ms)).collect();
        assert_eq!(told, [(2, 2.0, 3.0), (0, 0.0, 0.0), (1, 5.0, 5.0)]);
        assert_eq!(seconds[1].memory_mb, [2.0]);
        assert!((written.longest_silence_ms() - 1200.0).abs() < 1e-6);
    }
}

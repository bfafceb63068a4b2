//! Logs on disk whose processes are all killed at once, again and again, under appends, multi-appends,
//! trims and reads: all clients' calls are linearizable over all these lives of the cluster, and each
//! acknowledged value is there in the end, once and at its acknowledged position.

use super::{SHARDS, addresses, alone, client};
use crate::harness::{StopOnDrop, UpCluster, runs, signal, unique, wait_until_gone};
use crate::recording::{Calls, CheckerWords, RecordedCall, Recording, moment};
use amcast::check::PropertyVerdict;
use amcast::check::service::{Budget, linearizable_as, log};
use amcast::core::rng::Rng;
use amcast::log::proto::{ReadRequest, ReadResponse};
use amcast::log::{LogError, LogSession};
use rustix::process::Signal;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{fs, thread};
use tonic::Code;

const CLIENTS: usize = 6;

/// How long a client asks again: longer than nodes take to come back, and not long after the last
/// process is gone.
const PATIENCE: Duration = Duration::from_secs(4);

/// Values of one read, so that histories stay small.
const READ_MAX: u32 = 8;

/// The clients' logs: in each shard a log that keeps everything, and one that is trimmed.
struct DurableLogs {
    kept: Vec<String>,
    trimmed: Vec<String>,
}

impl DurableLogs {
    fn new() -> Self {
        Self { kept: super::logs("kept"), trimmed: super::logs("trimmed") }
    }

    fn all(&self) -> impl Iterator<Item = &String> {
        self.kept.iter().chain(&self.trimmed)
    }
}

/// A client, and what it saw in all lives of the cluster.
struct Caller<'a> {
    number: usize,
    calls: &'a mut Calls,
    begun: Instant,
    rng: Rng,
}

impl Caller<'_> {
    /// Calls; what is not known to have taken effect has no answer in the record.
    fn call<T>(
        &mut self,
        op: String,
        call: impl FnOnce() -> Result<T, LogError>,
        told: impl FnOnce(&T) -> String,
    ) -> Option<T> {
        self.calls.0.push(RecordedCall {
            op: CheckerWords(op),
            at: moment(self.begun),
            back: None,
        });
        let answer = call();
        let out = match &answer {
            Ok(answer) => told(answer),
            Err(failed) => match failed.code {
                Code::NotFound => "nil".to_string(),
                Code::OutOfRange => {
                    let first = failed.why.split(' ').find(|word| word.parse::<u64>().is_ok());
                    format!("gone {}", first.expect("the message names the first position"))
                }
                // Each is an outcome that is not known, or none.
                Code::Unavailable | Code::DeadlineExceeded | Code::Unknown | Code::Cancelled => {
                    return None;
                }
                code => panic!("{code:?}: {failed}"),
            },
        };
        let back = Some((moment(self.begun), out));
        self.calls.0.last_mut().expect("it was just called").back = back;
        answer.ok()
    }

    /// A value that nobody else appends.
    fn value(&self) -> String {
        format!("{}.{}", self.number, self.calls.0.len())
    }

    fn act(&mut self, client: &mut LogSession, logs: &DurableLogs) {
        let all: Vec<&String> = logs.all().collect();
        let log = all[self.rng.below(all.len() as u64) as usize];
        let value = self.value();
        match self.rng.below(10) {
            0..5 => {
                let append = || client.append(log, value.clone());
                self.call(format!("APPEND {log} {value}"), append, u64::to_string);
            }
            5..8 => {
                let mut chosen = all;
                let rng = &mut self.rng;
                chosen.retain(|other| *other == log || rng.below(2) == 0);
                let op =
                    chosen.iter().fold("APPEND".to_string(), |op, l| format!("{op} {l} {value}"));
                let each = chosen.iter().map(|log| ((*log).clone(), value.clone().into()));
                self.call(
                    op,
                    || client.multi_append(each),
                    |positions| positions.iter().map(u64::to_string).collect::<Vec<_>>().join(" "),
                );
            }
            8 => {
                let next = self.info(client, log).unwrap_or_default();
                let from = next.saturating_sub(self.rng.below(10));
                self.read(client, log, from);
            }
            _ => {
                let log = &logs.trimmed[self.rng.below(SHARDS as u64) as usize];
                let Some(next) = self.info(client, log) else { return };
                let before = next.saturating_sub(self.rng.below(20));
                let trim = || client.trim(log, before);
                let told = |e: &amcast::log::proto::Extent| format!("{} {}", e.first, e.next);
                self.call(format!("TRIM {log} {before}"), trim, told);
            }
        }
    }

    /// The next position of a log that is there.
    fn info(&mut self, client: &mut LogSession, log: &str) -> Option<u64> {
        let told = |found: &Vec<Option<amcast::log::proto::Extent>>| match &found[0] {
            Some(e) => format!("{} {}", e.first, e.next),
            None => "nil".to_string(),
        };
        let found = self.call(format!("INFO {log}"), || client.info(&[log]), told)?;
        found[0].map(|e| e.next)
    }

    fn read(&mut self, client: &mut LogSession, log: &str, from: u64) -> Option<ReadResponse> {
        let (max_values, max_bytes) = (READ_MAX, 0);
        let asked = ReadRequest { log: log.to_string(), from, max_values, max_bytes };
        let told = |read: &ReadResponse| {
            let e = read.extent.unwrap_or_default();
            let head = format!("{} {}", e.first, e.next);
            read.values.iter().fold(head, |out, v| format!("{out} {}", String::from_utf8_lossy(v)))
        };
        self.call(format!("READ {log} {from}"), || client.read(asked), told)
    }
}

/// Kills the supervisor and all nodes at once.
fn kill_everything(up: &UpCluster) {
    let nodes: Vec<u32> = up.nodes().into_iter().flatten().map(|node| node.os_pid).collect();
    signal(up.os_pid(), Signal::KILL);
    nodes.iter().filter(|&&node| runs(node)).for_each(|&node| signal(node, Signal::KILL));
    wait_until_gone(&nodes);
}

/// All clients call while all nodes are killed `times` times; then everything is killed.
fn live(
    up: &UpCluster,
    logs: &DurableLogs,
    life: usize,
    begun: Instant,
    all: &mut [Calls],
    times: usize,
) {
    let (stop, addresses) = (AtomicBool::new(false), addresses(up));
    thread::scope(|scope| {
        for (number, calls) in all.iter_mut().enumerate() {
            let (over, addresses) = (&stop, &addresses);
            scope.spawn(move || {
                let rng = Rng::new((life * CLIENTS + number) as u64);
                let mut caller = Caller { number, calls, begun, rng };
                let mut client = client(addresses, number).with_patience(PATIENCE);
                while !over.load(Ordering::Relaxed) {
                    caller.act(&mut client, logs);
                }
            });
        }
        let _stops = StopOnDrop(&stop);
        for _ in 0..times {
            thread::sleep(Duration::from_millis(400));
            up.wait_until_ready();
            for (node, before) in up.kill_all(&[0, 1, 2]) {
                up.wait_for_return(node, before);
            }
        }
        thread::sleep(Duration::from_millis(400));
        kill_everything(up);
    });
}

/// The values of a log in the end, by position.
fn contents(caller: &mut Caller<'_>, client: &mut LogSession, log: &str) -> BTreeMap<u64, String> {
    let (mut values, mut from) = (BTreeMap::new(), 0);
    loop {
        let Some(read) = caller.read(client, log, from) else {
            let found = client.info(&[log]).expect("it is answered")[0].expect("the log is there");
            assert!(from < found.first, "a read fails only where the log was trimmed");
            from = found.first;
            continue;
        };
        if read.values.is_empty() {
            return values;
        }
        for value in read.values {
            values.insert(from, String::from_utf8(value.to_vec()).expect("values are text"));
            from += 1;
        }
    }
}

/// Checks that each acknowledged append is at its acknowledged position, that nothing is there
/// twice, and that those to several logs are in all or none.
fn all_there_once(recording: &Recording, held: &BTreeMap<String, BTreeMap<u64, String>>) -> usize {
    let mut acknowledged = 0;
    for (log, values) in held {
        let different: BTreeSet<&String> = values.values().collect();
        assert_eq!(different.len(), values.len(), "a value is twice in {log}");
    }
    let appends =
        recording.calls().filter_map(|c| Some((c.op.0.strip_prefix("APPEND ")?, &c.back)));
    for (additions, back) in appends {
        let words: Vec<&str> = additions.split(' ').collect();
        let pairs: Vec<(&str, &str)> = words.chunks(2).map(|pair| (pair[0], pair[1])).collect();
        let positions = back.as_ref().map(|(_, out)| out.split(' ').map(|p| p.parse().unwrap()));
        if let Some(positions) = positions {
            for ((log, value), position) in pairs.into_iter().zip(positions) {
                let position: u64 = position;
                let first = held[log].keys().next().copied().unwrap_or(u64::MAX);
                let there = held[log].get(&position).map(String::as_str);
                assert!(there == Some(value) || position < first, "{log} {position}: {there:?}");
                acknowledged += 1;
            }
            continue;
        }
        let kept = pairs.iter().filter(|(log, _)| log.starts_with("kept"));
        let holds = kept.map(|(log, value)| held[*log].values().any(|v| v == value));
        let holds: BTreeSet<bool> = holds.collect();
        assert!(holds.len() < 2, "half of an append: {additions}");
    }
    acknowledged
}

/// Checks that every node answers the same of all logs.
fn all_nodes_hold(up: &UpCluster, held: &BTreeMap<String, BTreeMap<u64, String>>) {
    for at in addresses(up) {
        let (mut calls, rng) = (Calls::default(), Rng::new(0));
        let mut caller = Caller { number: 0, calls: &mut calls, begun: Instant::now(), rng };
        let mut client = LogSession::new([at.clone()].to_vec(), None).expect("it is an address");
        for (log, values) in held {
            assert!(contents(&mut caller, &mut client, log) == *values, "{log} of {at}");
        }
    }
}

/// Judges a run, and keeps its history where it is not in order.
fn judge(name: &str, recording: &Recording) {
    let budget = Budget { states: 20_000_000 };
    let verdict = linearizable_as(log::LogModel::new(), &recording.history(), budget);
    println!("{name}: {}; linearizable: {verdict:?}", recording.figures());
    if !matches!(verdict, PropertyVerdict::Holds) {
        let path = recording.save(name);
        panic!("not linearizable: {verdict:?}\nthe history is in {}", path.display());
    }
}

fn kill_everything_again_and_again(name: &str, protocol: &str, lives: usize, times: usize) {
    let _alone = alone();
    let data = unique(name);
    let (logs, begun) = (DurableLogs::new(), Instant::now());
    let mut all = vec![Calls::default(); CLIENTS];
    let options = ["--protocol", protocol, "--shards", &SHARDS.to_string()];
    for life in 0..lives {
        // It knows afterwards what it is.
        let options = if life == 0 { &options[..] } else { &[] };
        let up = UpCluster::start_in_bare(data.clone(), options);
        live(&up, &logs, life, begun, &mut all, times);
    }
    let mut up = UpCluster::start_in_bare(data.clone(), &[]);
    let mut client = client(&addresses(&up), 0);
    let (mut calls, rng) = (Calls::default(), Rng::new(0));
    let mut caller = Caller { number: CLIENTS, calls: &mut calls, begun, rng };
    let each = logs.all().map(|log| (log.clone(), contents(&mut caller, &mut client, log)));
    let held: BTreeMap<_, _> = each.collect();
    all_nodes_hold(&up, &held);
    all.push(calls);
    let recording = Recording { clients: all };
    judge(name, &recording);
    let acknowledged = all_there_once(&recording, &held);
    println!("{name}: {acknowledged} values were acknowledged");
    assert!(acknowledged > 100 * lives, "only {acknowledged} values were acknowledged");
    assert_eq!(up.stop(), Some(0));
    fs::remove_dir_all(&data).unwrap();
}

#[test]
fn what_was_acknowledged_outlives_all_processes_and_stays_linearizable() {
    kill_everything_again_and_again("log-kill-all", "multi-ring", 3, 1);
}

#[test]
fn the_judge_finds_one_lost_append_and_one_that_took_effect_twice() {
    let _limit = amcast_test_policy::time_limit();
    let call = |n: u64, op: &str, out: &str| RecordedCall {
        op: CheckerWords(op.to_string()),
        at: amcast::core::Time(10 * n),
        back: Some((amcast::core::Time(10 * n + 5), out.to_string())),
    };
    let history = |last: RecordedCall| {
        let mut calls = vec![call(1, "APPEND a x", "0"), call(2, "APPEND a y b y", "1 0")];
        calls.push(last);
        Recording { clients: vec![Calls(calls)] }.history()
    };
    let verdict = |last| linearizable_as(log::LogModel::new(), &history(last), Budget::default());
    assert_eq!(verdict(call(3, "READ a 0", "0 2 x y")), PropertyVerdict::Holds);
    for wrong in ["0 1 x", "0 2 x x", "0 3 x y y", "1 2 y"] {
        let verdict = verdict(call(3, "READ a 0", wrong));
        assert!(matches!(verdict, PropertyVerdict::Violated(_)), "{wrong}: {verdict:?}");
    }
    assert!(matches!(verdict(call(3, "INFO a b", "0 2; nil")), PropertyVerdict::Violated(_)));
}

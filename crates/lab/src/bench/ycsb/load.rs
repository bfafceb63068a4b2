//! The clients: they fill a store, and put a workload on it.

use super::draw::{self, YcsbOp, YcsbWorkload, Zipfian};
use super::store::YcsbClient;
use super::stores::RunningStore;
use super::{YcsbPlan, check_stop};
use crate::bench::histogram;
use amcast_core::rng::Rng;
use hdrhistogram::Histogram;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::task::LocalSet;

/// Longest time for one operation.
const PATIENCE: Duration = Duration::from_secs(20);

/// After so many errors a store is given up.
const ERRORS_MAX: u64 = 1_000;

/// The records with which a store was filled.
#[derive(Clone, Debug, Default)]
pub(super) struct LoadedRecords {
    /// Records that are there for certain: all numbers below.
    records: u64,
    /// The number of the next insert.
    next: u64,
    /// Inserted beyond `records`.
    beyond: BTreeSet<u64>,
    /// Inserts a second while it was filled.
    pub(super) per_second: f64,
}

impl LoadedRecords {
    /// A number for a new record.
    fn insert(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    /// The record of this number is there.
    fn inserted(&mut self, n: u64) {
        self.beyond.insert(n);
        while self.beyond.remove(&self.records) {
            self.records += 1;
        }
    }
}

/// The result of one measurement.
#[derive(Clone, Debug)]
pub(super) struct YcsbResult {
    pub(super) per_second: f64,
    /// By operation, in nanoseconds.
    pub(super) latencies: BTreeMap<YcsbOp, Histogram<u64>>,
    pub(super) errors: u64,
    /// Records that were read and not there.
    pub(super) missing: u64,
}

/// The state that clients share.
struct YcsbRun {
    workload: YcsbWorkload,
    loaded: LoadedRecords,
    zipfian: Zipfian,
    done: YcsbResult,
    last_error: Option<String>,
    from: Instant,
    to: Instant,
}

/// Inserts records `0..records`.
pub(super) async fn fill(
    store: &RunningStore,
    records: u64,
    clients: usize,
) -> Result<LoadedRecords, String> {
    let begun = Instant::now();
    let loaded = Rc::new(RefCell::new(LoadedRecords::default()));
    let set = LocalSet::new();
    let mut tasks = Vec::new();
    for nth in 0..clients {
        let loaded = Rc::clone(&loaded);
        let mut client = YcsbClient::open(store.speaks(), &store.at).await?;
        tasks.push(set.spawn_local(async move {
            let mut rng = Rng::stream(nth as u64, "records");
            loop {
                let n = loaded.borrow_mut().insert();
                if n >= records {
                    return Ok(());
                }
                check_stop()?;
                client.write(&draw::key(n), draw::value(&mut rng)).await?;
                loaded.borrow_mut().inserted(n);
            }
        }));
    }
    set.await;
    for task in tasks {
        task.await.map_err(|e| e.to_string())?.map_err(|e: String| format!("{}: {e}", store.at))?;
    }
    let per_second = records as f64 / begun.elapsed().as_secs_f64();
    Ok(LoadedRecords { records, next: records, per_second, ..LoadedRecords::default() })
}

/// Why the store cannot scan, if it cannot.
pub(super) async fn scans_not(store: &RunningStore) -> Option<String> {
    let scans = async {
        let mut client = YcsbClient::open(store.speaks(), &store.at).await?;
        client.scan("user", 1).await
    };
    match scans.await {
        Ok(1..) => None,
        Ok(0) => Some("a scan finds none of its records".to_string()),
        Err(e) => Some(format!("it has no scan in the order of keys: {e}")),
    }
}

/// Puts a workload on a store for the time of the plan.
pub(super) async fn measure(
    store: &RunningStore,
    loaded: &mut LoadedRecords,
    workload: &YcsbWorkload,
    plan: &YcsbPlan,
) -> Result<YcsbResult, String> {
    let mut opened = Vec::new();
    for _ in 0..plan.clients {
        opened.push(YcsbClient::open(store.speaks(), &store.at).await?);
    }
    let from = Instant::now() + plan.warm_up;
    let shared = YcsbRun {
        workload: *workload,
        loaded: loaded.clone(),
        zipfian: Zipfian::new(loaded.records),
        done: YcsbResult { per_second: 0.0, latencies: BTreeMap::new(), errors: 0, missing: 0 },
        last_error: None,
        from,
        to: from + plan.duration,
    };
    let shared = Rc::new(RefCell::new(shared));
    let set = LocalSet::new();
    let mut tasks = Vec::new();
    for (nth, client) in opened.into_iter().enumerate() {
        tasks.push(set.spawn_local(work(client, Rc::clone(&shared), nth as u64, plan.rate)));
    }
    set.await;
    for task in tasks {
        task.await.map_err(|e| e.to_string())?.map_err(|e| format!("{}: {e}", store.at))?;
    }
    let mut shared = shared.borrow_mut();
    *loaded = shared.loaded.clone();
    let mut done = shared.done.clone();
    if let Some(why) = shared.last_error.take() {
        tracing::warn!("{}: {} errors, the last one: {why}", store.at, done.errors);
    }
    let count: u64 = done.latencies.values().map(Histogram::len).sum();
    done.per_second = count as f64 / plan.duration.as_secs_f64();
    Ok(done)
}

/// One client.
async fn work(
    mut client: YcsbClient,
    shared: Rc<RefCell<YcsbRun>>,
    nth: u64,
    rate: Option<u64>,
) -> Result<(), String> {
    let mut rng = Rng::stream(nth, "operations");
    let mut due = Instant::now();
    loop {
        if let Some(rate) = rate {
            tokio::time::sleep_until(due.into()).await;
            due += Duration::from_secs(1) / rate.max(1) as u32;
        }
        let begun = if rate.is_some() { due } else { Instant::now() };
        if Instant::now() >= shared.borrow().to {
            return Ok(());
        }
        check_stop()?;
        let (op, record) = draw(&mut shared.borrow_mut(), &mut rng);
        let did = tokio::time::timeout(PATIENCE, act(&mut client, op, record, &mut rng));
        let did = did.await.unwrap_or_else(|_| Err(format!("no answer for {PATIENCE:?}")));
        shared.borrow_mut().note(op, record, begun, did)?;
    }
}

/// Draws an operation and its record.
fn draw(shared: &mut YcsbRun, rng: &mut Rng) -> (YcsbOp, u64) {
    let workload = shared.workload;
    let op = workload.op(rng);
    let record = match op {
        YcsbOp::Insert => shared.loaded.insert(),
        _ => workload.record(&mut shared.zipfian, shared.loaded.records, rng),
    };
    (op, record)
}

/// Does it; whether what was read is there.
async fn act(
    client: &mut YcsbClient,
    op: YcsbOp,
    record: u64,
    rng: &mut Rng,
) -> Result<bool, String> {
    let key = draw::key(record);
    match op {
        YcsbOp::Read => client.read(&key).await,
        YcsbOp::Update | YcsbOp::Insert => {
            client.write(&key, draw::value(rng)).await?;
            Ok(true)
        }
        YcsbOp::Modify => {
            let there = client.read(&key).await?;
            client.write(&key, draw::value(rng)).await?;
            Ok(there)
        }
        YcsbOp::Scan => Ok(client.scan(&key, draw::scan_length(rng)).await? > 0),
    }
}

impl YcsbRun {
    fn note(
        &mut self,
        op: YcsbOp,
        record: u64,
        begun: Instant,
        did: Result<bool, String>,
    ) -> Result<(), String> {
        match did {
            Ok(there) => {
                if op == YcsbOp::Insert {
                    self.loaded.inserted(record);
                }
                self.done.missing += u64::from(!there);
                let now = Instant::now();
                if (self.from..self.to).contains(&now) {
                    let latencies = self.done.latencies.entry(op).or_insert_with(histogram);
                    latencies.saturating_record(now.duration_since(begun).as_nanos() as u64);
                }
                Ok(())
            }
            Err(why) => {
                self.done.errors += 1;
                if self.done.errors > ERRORS_MAX {
                    return Err(format!("over {ERRORS_MAX} errors, the last one: {why}"));
                }
                self.last_error = Some(why);
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_records_that_are_there_are_read() {
        let mut loaded = LoadedRecords { records: 10, next: 10, ..LoadedRecords::default() };
        let (a, b) = (loaded.insert(), loaded.insert());
        loaded.inserted(b);
        assert_eq!((a, b, loaded.records), (10, 11, 10), "one before it is not there yet");
        loaded.inserted(a);
        assert_eq!(loaded.records, 12);
    }
}

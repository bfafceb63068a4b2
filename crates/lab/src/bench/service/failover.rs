//! The key-value service while its leaders are killed: how long each shard does not serve, and
//! whether all that was acknowledged is there afterwards.

use super::check_stop;
use super::children::OwnCluster;
use crate::bench::{HostMachine, Spread};
use amcast::client::{Answer, Connection};
use amcast_kv::SlotMap;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The plan of the measurement.
#[derive(Clone, Debug)]
pub struct FailoverPlan {
    /// Shards.
    pub shards: usize,
    /// Replicas of each shard.
    pub replicas: usize,
    /// Parameters of the protocol.
    pub set: Vec<(String, String)>,
    /// Connections that write, for each shard.
    pub clients: usize,
    /// How often each kind of kill is made.
    pub rounds: usize,
    /// Load before a kill.
    pub warm_up: Duration,
    /// Load after it.
    pub duration: Duration,
}

/// The writes of one connection: the time at which each was acknowledged, the n-th being of the
/// n-th key.
struct FailoverWriter {
    shard: usize,
    prefix: String,
    acknowledged: Vec<Instant>,
    errors: u64,
}

/// How long shards did not serve around a kill.
struct Outage {
    /// By shard: the longest time between two acknowledgements that ended after the kill.
    shards_ms: Vec<f64>,
    /// By shard: the longest such time before the kill, to compare.
    before_ms: Vec<f64>,
    errors: u64,
    acknowledged: usize,
    killed: usize,
}

/// Kills one leader, and then all leaders at once, under load, `rounds` times each.
///
/// # Errors
/// With what did not start, did not come back, or with an acknowledged write that is lost.
pub fn run(plan: &FailoverPlan, tell: &mut dyn FnMut(String)) -> Result<Value, String> {
    let machine = HostMachine::here();
    let own = OwnCluster::start(plan.shards, plan.replicas, &plan.set)?;
    own.wait_until_whole(&[])?;
    let mut one = Vec::new();
    let mut all = Vec::new();
    let mut skipped = None;
    for round in 0..plan.rounds {
        tell(format!("round {} of {}: one leader", round + 1, plan.rounds));
        let leaders = own.leaders()?;
        let first = leaders[round % leaders.len()];
        one.push(kill_under_load(&own, plan, &[first], &format!("one{round}"))?);
        let mut leaders = own.leaders()?;
        leaders.sort_unstable();
        leaders.dedup();
        if leaders.len() > (plan.replicas - 1) / 2 {
            skipped = Some(format!(
                "leaders are on {} of {} nodes: without them no majority is left; give more \
                 --replicas or fewer --groups",
                leaders.len(),
                plan.replicas
            ));
            continue;
        }
        tell(format!("round {} of {}: all leaders at once", round + 1, plan.rounds));
        all.push(kill_under_load(&own, plan, &leaders, &format!("all{round}"))?);
    }
    Ok(json!({
        "bench": "kv-failover",
        "machine": machine,
        "shards": plan.shards,
        "replicas": plan.replicas,
        "set": plan.set,
        "clients_per_shard": plan.clients,
        "one_leader": summary(&one),
        "all_leaders": summary(&all),
        "all_leaders_skipped": skipped,
    }))
}

fn summary(outages: &[Outage]) -> Value {
    let worst = |figures: &[f64]| figures.iter().copied().fold(0.0, f64::max);
    json!({
        "rounds": outages.len(),
        "nodes_killed": outages.first().map(|o| o.killed),
        "without_service_ms": Spread::of(outages.iter().map(|o| worst(&o.shards_ms))),
        "before_the_kill_ms": Spread::of(outages.iter().map(|o| worst(&o.before_ms))),
        "by_shard_ms": outages.iter().map(|o| &o.shards_ms).collect::<Vec<_>>(),
        "errors": outages.iter().map(|o| o.errors).sum::<u64>(),
        "acknowledged": outages.iter().map(|o| o.acknowledged).sum::<usize>(),
        "lost": 0,
    })
}

fn kill_under_load(
    own: &OwnCluster,
    plan: &FailoverPlan,
    nodes: &[usize],
    name: &str,
) -> Result<Outage, String> {
    let before: Vec<u32> = own.nodes().into_iter().flatten().map(|n| n.os_pid).collect();
    let gone = |node: &usize| before.get(*node).copied();
    let redis = own.redis.as_str();
    let end = AtomicBool::new(false);
    let (killed_at, writers) = thread::scope(|scope| {
        let mut threads = Vec::new();
        for shard in 0..plan.shards {
            for client in 0..plan.clients {
                let (tag, end) = (tag_of(plan.shards, shard), &end);
                let prefix = format!("{{{tag}}}:{name}:{client}");
                threads.push(scope.spawn(move || write(redis, shard, prefix, end)));
            }
        }
        let killed = pause(plan.warm_up)
            .and_then(|()| own.kill(nodes))
            .and_then(|at| pause(plan.duration).map(|()| at));
        end.store(true, Ordering::Relaxed);
        let join = |t: thread::ScopedJoinHandle<'_, Result<FailoverWriter, String>>| {
            t.join().unwrap_or_else(|_| Err("a writer panicked".to_string()))
        };
        let writers: Result<Vec<_>, _> = threads.into_iter().map(join).collect();
        Ok::<_, String>((killed?, writers?))
    })?;
    own.wait_until_whole(&nodes.iter().filter_map(gone).collect::<Vec<_>>())?;
    read_back(&own.redis, &writers)?;
    let mut outage = Outage {
        shards_ms: Vec::new(),
        before_ms: Vec::new(),
        errors: writers.iter().map(|w| w.errors).sum(),
        acknowledged: writers.iter().map(|w| w.acknowledged.len()).sum(),
        killed: nodes.len(),
    };
    for shard in 0..plan.shards {
        let of = writers.iter().filter(|w| w.shard == shard);
        let mut times: Vec<Instant> = of.flat_map(|w| w.acknowledged.iter().copied()).collect();
        times.sort_unstable();
        let (before, after) = gaps_ms(&times, killed_at)
            .ok_or_else(|| format!("shard {shard} did not serve after the kill"))?;
        outage.before_ms.push(before);
        outage.shards_ms.push(after);
    }
    Ok(outage)
}

/// The longest times between two of `times`, in milliseconds: of those that end before `kill`, and
/// of those that end after it. None if there is none after it.
fn gaps_ms(times: &[Instant], kill: Instant) -> Option<(f64, f64)> {
    let gaps = || times.windows(2).map(|w| (w[1], w[1].duration_since(w[0])));
    let longest = |late: bool| {
        let of = gaps().filter(|(end, _)| (*end > kill) == late).map(|(_, gap)| gap);
        of.max().map(|gap| gap.as_secs_f64() * 1e3)
    };
    Some((longest(false).unwrap_or(0.0), longest(true)?))
}

fn pause(time: Duration) -> Result<(), String> {
    let begun = Instant::now();
    while begun.elapsed() < time {
        check_stop()?;
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// A hash tag whose keys lie in that shard.
fn tag_of(shards: usize, shard: usize) -> u32 {
    let map = SlotMap::new(shards);
    let there = |tag: &u32| map.of_key(tag.to_string().as_bytes()).index() == shard;
    (0..).find(there).expect("every shard has slots, and every slot has keys")
}

/// Sets one key after another until the end. A write that was refused is made again.
fn write(
    at: &str,
    shard: usize,
    prefix: String,
    end: &AtomicBool,
) -> Result<FailoverWriter, String> {
    let mut writer = FailoverWriter { shard, prefix, acknowledged: Vec::new(), errors: 0 };
    let mut connection = Connection::open(at).map_err(|e| e.to_string())?;
    while !end.load(Ordering::Relaxed) {
        let n = writer.acknowledged.len().to_string();
        let key = format!("{}:{n}", writer.prefix);
        let answer = connection.call(&[b"SET", key.as_bytes(), n.as_bytes()]);
        match answer.map_err(|e| format!("the gateway: {e}"))? {
            Answer::Error(_) => writer.errors += 1,
            _ => writer.acknowledged.push(Instant::now()),
        }
    }
    Ok(writer)
}

/// # Errors
/// With the first acknowledged write that is not there.
fn read_back(at: &str, writers: &[FailoverWriter]) -> Result<(), String> {
    let mut connection = Connection::open(at).map_err(|e| e.to_string())?;
    for writer in writers {
        for first in (0..writer.acknowledged.len()).step_by(100) {
            let last = writer.acknowledged.len().min(first + 100);
            let keys: Vec<String> =
                (first..last).map(|n| format!("{}:{n}", writer.prefix)).collect();
            let mut words: Vec<&[u8]> = vec![b"MGET"];
            words.extend(keys.iter().map(|key| key.as_bytes()));
            let answer = connection.call(&words).map_err(|e| e.to_string())?;
            let Answer::Array(values) = answer else { return Err(format!("MGET: {answer}")) };
            for (n, (key, value)) in (first..last).zip(keys.iter().zip(&values)) {
                if *value != Answer::Bytes(n.to_string().into_bytes()) {
                    return Err(format!("an acknowledged write is lost: {key} is {value}"));
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_time_without_an_answer_is_told_before_and_after_a_kill() {
        let begin = Instant::now();
        let at = |ms: u64| begin + Duration::from_millis(ms);
        let times = [at(0), at(3), at(5), at(45), at(46)];
        let (before, after) = gaps_ms(&times, at(10)).unwrap();
        assert_eq!((before.round(), after.round()), (3.0, 40.0));
        assert!(gaps_ms(&times, at(100)).is_none());
    }

    #[test]
    fn every_shard_has_a_tag_of_its_own() {
        for shard in 0..3 {
            let key = format!("{{{}}}:x", tag_of(3, shard));
            assert_eq!(SlotMap::new(3).of_key(key.as_bytes()).index(), shard);
        }
    }
}

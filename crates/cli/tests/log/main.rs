//! The log on real clusters whose nodes are killed: nothing acknowledged is lost or there twice,
//! nobody sees half of an append to several logs, and streams continue at their positions.

#[allow(dead_code, reason = "the tests of clusters use the rest of it")]
#[path = "../cluster/by_hand.rs"]
mod by_hand;
mod durable;
mod foreign;
mod full;
#[allow(dead_code, reason = "the other tests of clusters use the rest of it")]
#[path = "../cluster/harness.rs"]
mod harness;
mod program;
#[allow(dead_code, reason = "the tests of the store use the rest of it")]
#[path = "../linear/recording.rs"]
mod recording;

use amcast::kv::SlotMap;
use amcast::log::LogSession;
use amcast::log::proto::ReadRequest;
use amcast_test_policy::{TimeLimit, time_limit};
use harness::{StopOnDrop, UpCluster, wait_for_more_than};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

const SHARDS: usize = 3;

/// One cluster at a time: two on a small machine suspect each other's load.
/// The limit of the test begins with its turn.
#[track_caller]
fn alone() -> (MutexGuard<'static, ()>, TimeLimit) {
    static RUNNING: Mutex<()> = Mutex::new(());
    let turn = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
    (turn, time_limit())
}

/// Where the logs of a cluster are served: by the supervisor and by each node.
fn addresses(up: &UpCluster) -> Vec<String> {
    let status = up.status();
    let nodes = status["nodes"].as_array().expect("there are nodes");
    let nodes = nodes.iter().filter_map(|node| node["fronts"]["log"].as_str());
    std::iter::once(up.log.as_str()).chain(nodes).map(str::to_string).collect()
}

/// A client that begins with the `n`-th address.
fn client(addresses: &[String], n: usize) -> LogSession {
    let mut turned = addresses.to_vec();
    turned.rotate_left(n % addresses.len());
    LogSession::new(turned, None).expect("there is an address")
}

/// A log of each shard.
fn logs(name: &str) -> Vec<String> {
    let map = SlotMap::new(SHARDS);
    let of = |shard: usize| {
        let mut names = (0..).map(|n| format!("{name}{n}"));
        names.find(|log| map.of_key(log.as_bytes()).index() == shard).expect("some name is")
    };
    (0..SHARDS).map(of).collect()
}

/// All values of a log.
fn all(client: &mut LogSession, log: &str) -> Vec<Vec<u8>> {
    let mut values = Vec::new();
    loop {
        let from = values.len() as u64;
        let asked = ReadRequest { log: log.to_string(), from, max_values: 0, max_bytes: 0 };
        let page = client.read(asked).expect("the log is read").values;
        if page.is_empty() {
            return values;
        }
        values.extend(page.iter().map(|value| value.to_vec()));
    }
}

/// Kills every node in turn, each once the others are whole.
fn kill_in_turn(up: &UpCluster) {
    for node in 0..3 {
        std::thread::sleep(Duration::from_millis(500));
        up.wait_until_ready();
        let before = up.kill(node);
        up.wait_for_return(node, before);
    }
    std::thread::sleep(Duration::from_millis(300));
}

/// Has clients append values of so many bytes at least to one log while nodes are killed, and
/// checks that each is at its acknowledged position.
fn append_while_nodes_are_killed(options: &[&str], len: usize) {
    let _alone = alone();
    let up = UpCluster::start(options);
    let (addresses, log) = (addresses(&up), "shared");
    let (stop, count) = (AtomicBool::new(false), AtomicU64::new(0));
    let append = |n: usize| {
        let (mut client, mut acknowledged) = (client(&addresses, n), BTreeMap::new());
        for i in 0.. {
            let value = format!("{n}.{i:0len$}");
            let position =
                client.append(log, value.clone()).expect("it is repeated until it works");
            acknowledged.insert(position, value);
            count.fetch_add(1, Ordering::Relaxed);
            if stop.load(Ordering::Relaxed) {
                break;
            }
        }
        acknowledged
    };
    let append = &append;
    let acknowledged: Vec<BTreeMap<u64, String>> = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..4).map(|n| scope.spawn(move || append(n))).collect();
        let _stops = StopOnDrop(&stop);
        kill_in_turn(&up);
        wait_for_more_than(200, &count);
        stop.store(true, Ordering::Relaxed);
        writers.into_iter().map(|w| w.join().expect("every append is answered")).collect()
    });
    let values = all(&mut client(&addresses, 0), log);
    for at in &addresses {
        let mut one = LogSession::new([at.clone()].to_vec(), None).expect("it is an address");
        assert!(all(&mut one, log) == values, "{at} answers something else");
    }
    let count: usize = acknowledged.iter().map(BTreeMap::len).sum();
    println!("{count} appends were acknowledged");
    assert!(count > 200, "{count}");
    assert_eq!(values.len(), count, "each append is there once, and nothing else is");
    for (position, value) in acknowledged.iter().flatten() {
        assert_eq!(values[*position as usize], value.as_bytes(), "at {position}");
    }
    for of_one in &acknowledged {
        // Later ones of one client stand behind its earlier ones.
        let numbers = of_one.values().map(|v| v[2..].parse::<u64>().expect("a number"));
        assert!(numbers.is_sorted());
    }
}

#[test]
fn appends_of_several_clients_get_each_position_once_while_nodes_are_killed() {
    append_while_nodes_are_killed(&["--shards", "3"], 0);
}

#[test]
fn the_log_is_the_same_over_uniform_broadcasts_on_tcp() {
    append_while_nodes_are_killed(&["--protocol", "bb-urcast-urcast", "--shards", "1"], 0);
}

#[test]
fn values_in_files_go_over_to_nodes_that_come_back_and_are_read_from_there() {
    // A third of the memory is for the log's shard: the log is several times larger.
    let dir = std::env::temp_dir().display().to_string();
    let options = ["--shards", "3", "--log-mb", "3", "--log-dir", &dir, "--log-disk-mb", "300"];
    append_while_nodes_are_killed(&options, 1500);
}

#[test]
fn nobody_sees_half_of_an_append_to_logs_of_all_shards_while_nodes_are_killed() {
    let _alone = alone();
    let up = UpCluster::start(&["--shards", "3"]);
    let (addresses, logs) = (addresses(&up), logs("part"));
    let stop = AtomicBool::new(false);
    let (writes, looks) = (AtomicU64::new(0), AtomicU64::new(0));
    let write = |n: usize| {
        let mut client = client(&addresses, n);
        for i in 0.. {
            let each = logs.iter().map(|log| (log.clone(), format!("{n}.{i}").into()));
            let positions = client.multi_append(each).expect("it is repeated until it works");
            assert!(positions.iter().all(|p| *p == positions[0]), "{positions:?}");
            writes.fetch_add(1, Ordering::Relaxed);
            if stop.load(Ordering::Relaxed) {
                return i + 1;
            }
        }
        unreachable!("it ends when its flag is set")
    };
    let look = |n: usize| {
        let (mut client, mut last) = (client(&addresses, n), 0);
        let names: Vec<&str> = logs.iter().map(String::as_str).collect();
        while !stop.load(Ordering::Relaxed) {
            let extents = client.info(&names).expect("it is answered");
            let next = extents[0].as_ref().map_or(0, |e| e.next);
            let same = extents.iter().all(|e| e.as_ref().map_or(0, |e| e.next) == next);
            assert!(same, "half of an append: {extents:?}");
            assert!(next >= last, "{next} after {last}");
            // A later call in another log sees all that this call saw.
            let other = client.info(&names[2..]).expect("it is answered");
            last = other[0].as_ref().map_or(0, |e| e.next);
            assert!(last >= next, "{last} after {next}");
            looks.fetch_add(1, Ordering::Relaxed);
        }
    };
    let (write, look) = (&write, &look);
    let written: usize = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..2).map(|n| scope.spawn(move || write(n))).collect();
        let readers: Vec<_> = (0..2).map(|n| scope.spawn(move || look(n + 1))).collect();
        let _stops = StopOnDrop(&stop);
        kill_in_turn(&up);
        wait_for_more_than(50, &writes);
        wait_for_more_than(50, &looks);
        stop.store(true, Ordering::Relaxed);
        readers.into_iter().for_each(|r| r.join().expect("no half of an append is seen"));
        writers.into_iter().map(|w| w.join().expect("every append is answered")).sum()
    });
    let looks = looks.into_inner();
    println!("{written} appends, {looks} looks");
    assert!(written > 50 && looks > 50, "{written} appends, {looks} looks");
    let mut client = client(&addresses, 0);
    let values = all(&mut client, &logs[0]);
    assert_eq!(values.len(), written);
    for log in &logs[1..] {
        assert!(all(&mut client, log) == values, "the logs have the same values in one order");
    }
}

#[test]
fn a_stream_gives_each_value_once_and_in_order_while_nodes_are_killed() {
    let _alone = alone();
    let up = UpCluster::start(&["--shards", "3"]);
    let mut nodes = addresses(&up);
    // The stream has only the nodes, and so is cut off by each kill of the one that it is at.
    let supervisor = vec![nodes.remove(0)];
    let (stop, count) = (AtomicBool::new(false), AtomicU64::new(0));
    let (appended, seen) = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut client = client(&supervisor, 0);
            for i in 0.. {
                let last = stop.load(Ordering::Relaxed);
                let value = if last { "end".to_string() } else { i.to_string() };
                let position = client.append("followed", value).expect("it is repeated");
                assert_eq!(position, i);
                if last {
                    return i;
                }
            }
            unreachable!("it ends when its flag is set")
        });
        let reader = scope.spawn(|| {
            let (mut client, mut seen) = (client(&nodes, 0), 0);
            let tailed = client.tail("followed", 0, &mut |position, value| {
                assert_eq!(position, seen);
                if value == b"end" {
                    return false;
                }
                assert_eq!(value, seen.to_string().as_bytes());
                seen += 1;
                count.fetch_add(1, Ordering::Relaxed);
                true
            });
            tailed.map(|()| seen)
        });
        let _stops = StopOnDrop(&stop);
        kill_in_turn(&up);
        wait_for_more_than(100, &count);
        stop.store(true, Ordering::Relaxed);
        let appended = writer.join().expect("every append is answered");
        (appended, reader.join().expect("values come in order").expect("the stream continues"))
    });
    println!("{seen} values were followed");
    assert_eq!(seen, appended);
    assert!(seen > 100, "{seen}");
}

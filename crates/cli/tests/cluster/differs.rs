//! A replica whose state is not the one of the others.

use crate::harness::{UpCluster, bytes, call, exists, run};
use amcast::client::{Answer, Connection};
use amcast_storage::{CheckpointDir, SaveProgress};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

/// The position of the newest saved state, and its bytes: the length of the history of deliveries, that history, and a
/// stream.
fn saved(state: &Path) -> (u64, Vec<u8>) {
    let (_, found) = CheckpointDir::open(state, Arc::new(|| {}), |_| {}).unwrap();
    let mut newest = found.newest.expect("it saved its state as it ended");
    let mut all = Vec::new();
    while let Some(piece) = newest.piece().unwrap() {
        all.extend_from_slice(piece);
    }
    (newest.position(), all)
}

/// Writes a state in place of the one that is there.
fn save(state: &Path, position: u64, bytes: &[u8]) {
    fs::remove_dir_all(state).unwrap();
    let (mut checkpoints, _) = CheckpointDir::open(state, Arc::new(|| {}), |_| {}).unwrap();
    checkpoints.begin(position);
    checkpoints.give(bytes);
    checkpoints.finish();
    let (begun, mut is_saved) = (Instant::now(), false);
    while !is_saved {
        checkpoints.take(|what| is_saved |= matches!(what, SaveProgress::Saved { .. }));
        assert!(begun.elapsed() < PATIENCE, "it is not saved");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Computes the sums of a stream's frames anew; each is of everything in front of it, too.
fn sum_up(stream: &mut [u8]) {
    let (mut at, mut sum) = (8, crc32c::crc32c(&stream[..8]));
    loop {
        let len = u32::from_le_bytes(stream[at..at + 4].try_into().unwrap()) as usize;
        let end = at + 4 + len;
        sum = crc32c::crc32c_append(sum, &stream[at..end]);
        stream[end..end + 4].copy_from_slice(&sum.to_le_bytes());
        at = end + 4;
        if len == 0 {
            return assert_eq!(at, stream.len(), "the stream ends there");
        }
    }
}

/// Changes a value in the state that a node saved, as no checksum tells.
fn rewrite(state: &Path, value: &[u8], other: &[u8]) {
    let (position, mut all) = saved(state);
    let history = u64::from_le_bytes(all[..8].try_into().unwrap()) as usize;
    let stream = &mut all[8 + history..];
    let mut found = stream.windows(value.len()).enumerate().filter(|(_, bytes)| *bytes == value);
    let (at, _) = found.next().expect("the value is in the state");
    stream[at..at + other.len()].copy_from_slice(other);
    sum_up(stream);
    save(state, position, &all);
}

fn set(c: &mut Connection, key: &str, value: &str) {
    assert_eq!(call(c, &["SET", key, value]), Answer::Word("OK".into()));
}

#[test]
fn a_node_whose_state_rotted_as_no_sum_tells_stops_until_it_takes_that_of_the_others() {
    let _limit = amcast_test_policy::time_limit();
    let mut up = UpCluster::start(&["--protocol", "multi-ring", "--shards", "2"]);
    let data = up.data.clone();
    let mut c = up.connect();
    set(&mut c, "victim", "the-right-value");
    (0..200).for_each(|n| set(&mut c, &format!("k{n}"), "v"));
    drop(c);
    assert_eq!(up.stop(), Some(0));
    let own = data.join("n1.data");
    rewrite(&own.join("state"), b"the-right-value", b"the-wrong-value");
    let mut up = UpCluster::start_in_bare(data.clone(), &[]);
    let mut c = up.connect();
    let status = || {
        let output = run(&["status", "--data", &data.display().to_string()]);
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    // Digests are compared as long as anything changes.
    let (begun, mut n) = (Instant::now(), 0);
    while !exists(&own.join("differs")) {
        assert!(begun.elapsed() < PATIENCE, "it was not found: {}", status());
        n += 1;
        (0..9).for_each(|key| set(&mut c, &format!("k{key}"), &n.to_string()));
        thread::sleep(Duration::from_millis(100));
    }
    println!("found after {:?}", begun.elapsed());
    // It does not come back by itself, however often it is started; the others serve.
    let says = "n1 differs from a majority of the replicas";
    while !status().contains(says) {
        assert!(begun.elapsed() < PATIENCE, "{}", status());
        thread::sleep(Duration::from_millis(100));
    }
    let told = status();
    assert!(
        told.contains("digest of its state") && told.contains(&format!("mv {}", own.display())),
        "{told}"
    );
    assert_eq!(call(&mut c, &["GET", "victim"]), bytes("the-right-value"));
    set(&mut c, "after", "1");
    assert!(up.nodes()[1].is_none());
    // It takes the state of the others once its own is out of the way.
    let aside = data.join("n1.differed");
    fs::rename(&own, &aside).unwrap();
    up.wait_until_ready();
    let mut c1 = Connection::open(&up.node_gateways()[1]).unwrap();
    assert_eq!(call(&mut c1, &["GET", "victim"]), bytes("the-right-value"));
    assert_eq!(call(&mut c1, &["GET", "after"]), bytes("1"));
    drop((c, c1));
    assert_eq!(up.stop(), Some(0));
    assert!(!exists(&own.join("differs")) && exists(&aside.join("differs")));
    fs::remove_dir_all(&data).unwrap();
}

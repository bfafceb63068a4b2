//! A node whose lives are all too short for a checkpoint at its usual pace: one of them writes it as fast as the disk
//! takes it, so that the log of the next ones does not grow for ever.

use crate::by_hand::{NODES, ThreeHosts};
use crate::harness::{bytes, call};
use amcast::client::{Answer, Connection};
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Keys, of so many bytes each: a state of 40 MB.
const KEYS: usize = 100;
const VALUE_BYTES: usize = 400_000;

/// How long a life is at most, once the node is ready. At its usual pace, 1 MB/s at first, the state takes twice as
/// long.
const LIFE: Duration = Duration::from_secs(15);

/// The node's checkpoints: whole ones, and whether one is being written.
fn checkpoints(hosts: &ThreeHosts, node: usize) -> (Vec<PathBuf>, bool) {
    let state = hosts.disk(node).join(format!("n{node}.data/state"));
    let files = fs::read_dir(state).into_iter().flatten().flatten().map(|entry| entry.path());
    let (mut whole, mut new) = (Vec::new(), false);
    for path in files {
        match path.extension().and_then(|e| e.to_str()) {
            Some("checkpoint") => whole.push(path),
            Some("new") => new = true,
            _ => {}
        }
    }
    (whole, new)
}

fn set(c: &mut Connection, n: usize) {
    let (key, value) = (format!("big{}", n % KEYS), "x".repeat(VALUE_BYTES));
    assert_eq!(call(c, &["SET", &key, &value]), Answer::Word("OK".into()), "{n}");
}

#[test]
fn a_node_that_is_killed_in_the_middle_of_a_checkpoint_writes_it_at_once_in_its_next_life() {
    let _limit = amcast_test_policy::time_limit();
    let mut hosts = ThreeHosts::with(1, |_, _, file| file.state_mb_s = Some(1));
    hosts.start(0..NODES);
    hosts.wait_until_ready(0..NODES);
    let gateway = hosts.redis(0).to_string();
    let mut c = Connection::open(&gateway).unwrap();
    // Until a checkpoint is on its way at n1, and most of the state is there.
    let mut written = 0;
    while written < KEYS || !checkpoints(&hosts, 1).1 {
        assert!(written < 4 * KEYS, "no checkpoint was begun");
        set(&mut c, written);
        written += 1;
    }
    hosts.kill([1]);
    let (whole, unfinished) = checkpoints(&hosts, 1);
    assert!(whole.is_empty() && unfinished, "{whole:?}: it was killed too late");
    hosts.start([1]);
    hosts.wait_until_ready([1]);
    // A command may be needed for one to be due.
    set(&mut c, written);
    let begun = Instant::now();
    while checkpoints(&hosts, 1).0.is_empty() {
        assert!(begun.elapsed() < LIFE, "its log would grow for ever");
        std::thread::sleep(Duration::from_millis(50));
    }
    hosts.kill([1]);
    let again = Instant::now();
    hosts.start([1]);
    hosts.wait_until_ready([1]);
    println!("a start behind a checkpoint took {:?}", again.elapsed());
    let log = fs::read_to_string(hosts.disk(1).join("n1.log")).unwrap();
    assert!(
        log.contains("the last life ended while it wrote its state: this one hurries"),
        "{log}"
    );
    assert!(log.contains("continues from the state on disk"), "{log}");
    assert_eq!(hosts.ask(1, &["SET", "last", "word"]), Answer::Word("OK".into()));
    assert_eq!(hosts.ask(1, &["GET", "last"]), bytes("word"));
    for n in 0..KEYS {
        let length = hosts.ask(1, &["STRLEN", &format!("big{n}")]);
        assert_eq!(length, Answer::Number(VALUE_BYTES as i64), "big{n}");
    }
}

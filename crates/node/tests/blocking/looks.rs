//! A client that waits looks for its keys by reads: it orders nothing without a reason to think that there is an element.

use super::observed::{NodeState, Observed, RequestCounts};
use super::{QueueClient, SHARDS};
use amcast_kv::Kv;
use amcast_node::gateway::LocalBackend;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

fn store() -> Arc<LocalBackend> {
    Arc::new(LocalBackend::over(SHARDS, Kv::new(SHARDS, 1)))
}

/// Waits until `is_so` holds; false if it does not for so long.
fn comes(within: Duration, is_so: impl Fn() -> bool) -> bool {
    let begun = Instant::now();
    while !is_so() {
        if begun.elapsed() >= within {
            return false;
        }
        thread::sleep(Duration::from_micros(100));
    }
    true
}

#[test]
fn a_client_that_waits_orders_its_command_once_and_looks_by_reads_then_at_any_level() {
    let _limit = amcast_test_policy::time_limit();
    for (level, reads_apart) in
        [("LINEARIZABLE", true), ("LINEARIZABLE", false), ("SEQUENTIAL", true)]
    {
        let backend = Observed::new(&store(), NodeState::Absent, reads_apart);
        let gateway = backend.serve(1);
        let mut waiting = QueueClient::new(&gateway);
        assert_eq!(waiting.ask(&format!("AMCAST.CONSISTENCY {level}")), "+OK");
        assert_eq!(waiting.ask("BLPOP k 2.5"), "nil array");
        let RequestCounts { writes, ordered_reads, unordered_reads } = backend.counts();
        let (looks, others) = match reads_apart {
            true => (unordered_reads, ordered_reads),
            false => (ordered_reads, unordered_reads),
        };
        assert_eq!((writes, others), (1, 0), "{level}, apart: {reads_apart}");
        assert!((1..=2).contains(&looks), "{looks} looks");
    }
}

#[test]
fn a_look_of_a_sequential_client_does_not_depend_on_a_node_that_is_behind() {
    let _limit = amcast_test_policy::time_limit();
    for node in [NodeState::Behind, NodeState::Stalled] {
        let store = store();
        let (backend, other) =
            (Observed::new(&store, node, true), Observed::new(&store, NodeState::Absent, true));
        let (gateway, elsewhere) = (backend.serve(1), other.serve(10_001));
        let (mut waiting, mut c) = (QueueClient::new(&gateway), QueueClient::new(&gateway));
        assert_eq!(waiting.ask("AMCAST.CONSISTENCY SEQUENTIAL"), "+OK");
        waiting.send("BLPOP k 60");
        c.await_blocked(1);
        // It has looked in vain once.
        let looks = || backend.counts().unordered_reads;
        assert!(comes(Duration::from_secs(20), || looks() > 0));
        QueueClient::new(&elsewhere).ask("RPUSH k x");
        assert_eq!(waiting.answer(), "[k x]");
    }
}

#[test]
fn a_look_without_an_answer_says_that_nothing_was_taken() {
    let _limit = amcast_test_policy::time_limit();
    for reads_apart in [true, false] {
        let backend = Observed::new(&store(), NodeState::Absent, reads_apart);
        let gateway = backend.serve(1);
        backend.fail_reads();
        let mut waiting = QueueClient::new(&gateway);
        let failed = "-TRYAGAIN the shards did not say whether the keys exist: no answer came for 15 s; \
                      the command was not executed";
        assert_eq!(waiting.ask("BLPOP k 0"), failed);
        let stats = waiting.ask("INFO commandstats");
        let of = stats.lines().find(|line| line.starts_with("cmdstat_blpop:")).expect("its line");
        assert!(of.contains("rejected_calls=1,failed_calls=0"), "{of}");
        // It waits no more, and takes what is there.
        assert_eq!(waiting.ask("RPUSH k x"), ":1");
        assert_eq!(waiting.ask("BLPOP k 0"), "[k x]");
    }
}

#[test]
fn a_command_that_may_have_changed_any_key_has_those_that_wait_look_and_order_nothing() {
    const WAITING: usize = 50;
    let _limit = amcast_test_policy::time_limit();
    let backend = Observed::new(&store(), NodeState::Absent, false);
    let gateway = backend.serve(1);
    let mut c = QueueClient::new(&gateway);
    let mut waiting: Vec<QueueClient> = (0..WAITING)
        .map(|n| {
            let mut client = QueueClient::new(&gateway);
            client.send(&format!("BLPOP k{n} 0"));
            client
        })
        .collect();
    c.await_blocked(WAITING);
    // More keys than are looked at one by one.
    let keys: String = (0..65).map(|n| format!(" absent{n}")).collect();
    let before = backend.counts();
    assert_eq!(c.ask(&format!("DEL{keys}")), ":0");
    let looked = || backend.counts().ordered_reads - before.ordered_reads >= WAITING;
    assert!(comes(Duration::from_secs(20), looked), "{:?}", backend.counts());
    assert_eq!(backend.counts().writes, before.writes + 1, "of that command");
    // One that finds its key takes the element.
    let pushed: String = (0..65).map(|n| format!("RPUSH k{n} x\r\n")).collect();
    c.send(&format!("MULTI\r\n{pushed}EXEC"));
    for (n, client) in waiting.iter_mut().enumerate() {
        assert_eq!(client.answer(), format!("[k{n} x]"));
    }
}

#[test]
fn tries_behind_a_command_without_an_answer_do_not_use_up_the_numbers_of_the_session() {
    let _limit = amcast_test_policy::time_limit();
    let backend = Observed::new(&store(), NodeState::Absent, false);
    let gateway = backend.serve(1);
    let (mut waiting, mut c) = (QueueClient::new(&gateway), QueueClient::new(&gateway));
    backend.withhold_next();
    waiting.send("SET before 1\r\nBLPOP k 0");
    c.await_blocked(1);
    // Each of these wakes it, and leaves nothing.
    let mut tries = 0;
    while tries < 1100 {
        let writes = backend.counts().writes;
        c.send("MULTI\r\nRPUSH k x\r\nDEL k\r\nEXEC");
        let answers: Vec<String> = (0..4).map(|_| c.answer()).collect();
        assert_eq!(answers[3], "[:1 :1]");
        if !comes(Duration::from_secs(5), || backend.counts().writes >= writes + 2) {
            break;
        }
        tries += 1;
    }
    assert!((400..1000).contains(&tries), "{tries} tries");
    c.await_blocked(1);
    backend.release();
    assert_eq!(waiting.answer(), "+OK");
    c.ask("RPUSH k x");
    assert_eq!(waiting.answer(), "[k x]");
}

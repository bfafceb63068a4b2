//! The errors that clients of a real cluster receive when they cannot be served, and the recorded
//! history of all their calls.

#[allow(dead_code, reason = "the other tests of clusters use the rest of it")]
#[path = "cluster/harness.rs"]
mod harness;

use amcast::client::Answer;
use harness::{Record, UpCluster, bytes, call, errors, run, signal};
use rustix::process::Signal;
use std::time::{Duration, Instant};

/// An error's text.
fn error(answer: &Answer) -> String {
    assert!(answer.is_error(), "{answer}");
    answer.to_string()
}

/// Calls until the answer is as wanted; the last answer.
fn call_until(up: &UpCluster, words: &[&str], wanted: impl Fn(&Answer) -> bool) -> Answer {
    let (begun, mut c) = (Instant::now(), up.connect());
    loop {
        let answer = call(&mut c, words);
        if wanted(&answer) {
            return answer;
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "still {answer}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_shard_without_majority_is_told_soon_then_at_once_and_serves_when_it_is_back() {
    let _limit = amcast_test_policy::time_limit();
    let mut up = UpCluster::start(&["--replicas", "1", "--shards", "2"]);
    let mut c = up.connect();
    assert_eq!(call(&mut c, &["SET", "a", "1"]), Answer::Word("OK".into()));
    let node = up.nodes()[0].as_ref().expect("it answers").os_pid;
    signal(node, Signal::STOP);
    let begun = Instant::now();
    let first = error(&call(&mut c, &["INCR", "a"]));
    let waited = begun.elapsed();
    assert!(waited < Duration::from_secs(30), "{waited:?}");
    assert!(first.contains("ERR") && first.contains("is not known"), "{first}");
    let begun = Instant::now();
    let next = error(&call(&mut c, &["INCR", "a"]));
    // At once, that is without a patience of its own.
    assert!(begun.elapsed() < waited / 2, "{:?} after {waited:?}", begun.elapsed());
    assert!(next.contains("CLUSTERDOWN") && next.contains("has lost its majority"), "{next}");
    signal(node, Signal::CONT);
    // Of the two only the first may have had its effect, in the end.
    let a = call_until(&up, &["GET", "a"], |answer| !answer.is_error());
    assert!(a == bytes("1") || a == bytes("2"), "{a}");
    assert_eq!(up.stop(), Some(0));
}

#[test]
fn a_store_whose_only_replica_has_lost_its_memory_says_so() {
    let _limit = amcast_test_policy::time_limit();
    let up = UpCluster::start(&["--replicas", "1", "--shards", "1"]);
    call(&mut up.connect(), &["SET", "a", "1"]);
    up.kill(0);
    let answer = call_until(&up, &["GET", "a"], |a| a.to_string().contains("CLUSTERDOWN"));
    assert!(answer.to_string().contains("shard 0 has lost its majority"), "{answer}");
}

#[test]
fn large_answers_come_and_larger_ones_are_refused_in_words() {
    let _limit = amcast_test_policy::time_limit();
    let up = UpCluster::start(&["--shards", "1"]);
    let mut c = up.connect();
    let long = "x".repeat(50_000);
    assert_eq!(call(&mut c, &["SET", "long", &long]), Answer::Word("OK".into()));
    let many = |n: usize| -> Vec<&str> {
        std::iter::once("MGET").chain(std::iter::repeat_n("long", n)).collect()
    };
    assert_eq!(call(&mut c, &many(1_500)), Answer::Array(vec![bytes(&long); 1_500]));
    let refused = error(&call(&mut c, &many(2_700)));
    assert!(refused.contains("limit of 134217728 bytes"), "{refused}");
    let too_large = error(&call(&mut c, &["SET", "long", &"x".repeat(2_000_000)]));
    assert!(too_large.contains("the command is larger than the limit of"), "{too_large}");
    assert_eq!(call(&mut c, &["STRLEN", "long"]), Answer::Number(50_000));
}

#[test]
fn what_clients_do_is_recorded_and_judged_and_what_cannot_be_judged_is_named() {
    let _limit = amcast_test_policy::time_limit();
    let record = Record::new("calls");
    let dir = record.display().to_string();
    let mut up = UpCluster::start(&["--record", &dir]);
    std::thread::scope(|scope| {
        for client in 0..4 {
            let up = &up;
            scope.spawn(move || {
                let mut c = up.connect();
                for i in 0..100 {
                    let (n, value) = (format!("n{}", i % 3), format!("v{client}-{i}"));
                    call(&mut c, &["INCR", &n]);
                    call(&mut c, &["SET", "a", &value]);
                    call(&mut c, &["MGET", "a", "b", &n]);
                    call(&mut c, &["MSET", "a", &value, "b", &value]);
                    call(&mut c, &["GETSET", "b", &value]);
                    call(&mut c, &["HSET", "h", "f", &value]);
                    call(&mut c, &["HGET", "h", "f"]);
                }
            });
        }
    });
    assert_eq!(up.stop(), Some(0));
    let judged = run(&["check", &dir, "--require", "linearizable;exactly-once"]);
    let (report, said) = (String::from_utf8_lossy(&judged.stdout).into_owned(), errors(&judged));
    assert!(judged.status.success(), "{report}{said}");
    assert!(report.contains("holds       linearizable"), "{report}{said}");
    assert!(said.contains("400 HGET, 400 HSET"), "{said}");
    // A checker that cannot fail proves nothing: with one answer made up it does.
    let files = std::fs::read_dir(&*record).unwrap().map(|file| file.unwrap().path());
    let counted = |text: &str| {
        let lines = text.lines().enumerate();
        let of_100 = |l: &str| l.contains(r#""ev":"return""#) && l.contains(r#""out":"100""#);
        lines.filter(|(_, l)| of_100(l)).map(|(i, l)| (i, l.to_string())).last()
    };
    let (calls, text, (i, line)) = files
        .filter_map(|path| {
            let text = std::fs::read_to_string(&path).ok()?;
            counted(&text).map(|found| (path, text, found))
        })
        .next()
        .expect("some counter came to 100");
    let wrong = line.replace(r#""out":"100""#, r#""out":"99""#);
    let lines: Vec<&str> =
        text.lines().enumerate().map(|(n, l)| if n == i { &*wrong } else { l }).collect();
    std::fs::write(&calls, lines.join("\n") + "\n").unwrap();
    let judged = run(&["check", &dir, "--require", "linearizable"]);
    assert_eq!(judged.status.code(), Some(1), "{}", String::from_utf8_lossy(&judged.stdout));
}

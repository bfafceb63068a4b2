//! Large answers, and clients that do not take theirs, at the port of `amcast up`.

use crate::harness::{UpCluster, bytes, call};
use amcast::client::{Answer, Connection};
use std::io::Write;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Bytes of a large value.
const LARGE: usize = 900_000;

#[test]
fn many_large_answers_are_given_and_clients_that_take_none_hold_up_nobody() {
    let _limit = amcast_test_policy::time_limit();
    let up = UpCluster::start(&["--protocol", "multi-ring-memory"]);
    let mut c = up.connect();
    for key in ["k1", "k2", "k3"] {
        assert_eq!(call(&mut c, &["SET", key, &"x".repeat(LARGE)]), Answer::Word("OK".into()));
    }
    let at = up.redis.clone();
    let slow: Vec<TcpStream> = (0..40)
        .map(|_| {
            let mut stream = TcpStream::connect(&at).unwrap();
            stream.write_all("GET k1\r\n".repeat(16).as_bytes()).unwrap();
            stream
        })
        .collect();
    let (done, at) = (AtomicBool::new(false), &at);
    let worst = thread::scope(|scope| {
        let readers: Vec<_> = (0..80)
            .map(|n| {
                // Of one shard, which is not ordered, and of several, which is.
                let words: &[&str] =
                    if n % 4 == 0 { &["MGET", "k1", "k2", "k3"] } else { &["GET", "k1"] };
                scope.spawn(move || {
                    let mut c = Connection::open(at).unwrap();
                    for _ in 0..4 {
                        let values = match call(&mut c, words) {
                            Answer::Array(values) => values,
                            value => vec![value],
                        };
                        assert_eq!(values.len(), words.len() - 1);
                        let is_whole = |value: &Answer| {
                            matches!(value, Answer::Bytes(value) if value.len() == LARGE)
                        };
                        assert!(values.iter().all(is_whole));
                    }
                })
            })
            .collect();
        let other = scope.spawn(|| {
            let (mut c, mut worst) = (Connection::open(at).unwrap(), Duration::ZERO);
            while !done.load(Ordering::Relaxed) {
                let begun = Instant::now();
                assert_eq!(call(&mut c, &["SET", "small", "1"]), Answer::Word("OK".into()));
                assert_eq!(call(&mut c, &["GET", "small"]), bytes("1"));
                worst = worst.max(begun.elapsed());
            }
            worst
        });
        let ends = readers.into_iter().map(|reader| reader.join());
        let ended: Vec<_> = ends.collect();
        done.store(true, Ordering::Relaxed);
        assert!(ended.iter().all(Result::is_ok));
        other.join().unwrap()
    });
    assert!(worst < Duration::from_secs(8), "a small command took {worst:?}");
    drop(slow);
}

//! Commands and transactions of many megabytes, which are ordered in parts, at the port of `amcast up`, while a
//! node is killed.

use crate::harness::{StopOnDrop, UpCluster, bytes, call};
use amcast::client::{Answer, Connection};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Bytes of a large value, and how many of a megabyte a transaction sets.
const LARGE: usize = 60_000_000;
const SETS: usize = 30;

/// How long a large command may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(100);

/// Sends a command, and reads the first line of its answer.
fn send(stream: &mut TcpStream, words: &[&[u8]]) -> String {
    let mut head = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        head.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        stream.write_all(&head).unwrap();
        stream.write_all(word).unwrap();
        head = b"\r\n".to_vec();
    }
    stream.write_all(&head).unwrap();
    line(stream)
}

fn line(stream: &mut TcpStream) -> String {
    let (mut line, mut byte) = (Vec::new(), [0]);
    while !line.ends_with(b"\r\n") {
        stream.read_exact(&mut byte).expect("an answer in time");
        line.push(byte[0]);
    }
    String::from_utf8(line).unwrap().trim_end().to_string()
}

fn connect(at: &str) -> TcpStream {
    let stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Whether an answer leaves open what became of the command, or says that it was not executed: it is sent again.
fn is_again(answer: &str) -> bool {
    let ends = ["the command was not executed", "took effect is not known"];
    answer.starts_with('-') && ends.iter().any(|end| answer.ends_with(end))
}

/// Sets a large value until that is acknowledged; how often it was sent.
fn set_large(at: &str, key: &str, value: &[u8]) -> usize {
    let mut stream = connect(at);
    for sent in 1.. {
        let answer = send(&mut stream, &[b"SET", key.as_bytes(), value]);
        if answer == "+OK" {
            return sent;
        }
        assert!(is_again(&answer), "{answer}");
    }
    unreachable!("the loop ends when the command is acknowledged")
}

/// Sets all keys of a transaction to values of this letter until that is acknowledged.
fn set_all(at: &str, letter: u8) -> usize {
    let (mut stream, value) = (connect(at), vec![letter; 1_000_000]);
    for sent in 1.. {
        assert_eq!(send(&mut stream, &[b"MULTI"]), "+OK");
        for n in 0..SETS {
            let key = format!("t{n}");
            assert_eq!(send(&mut stream, &[b"SET", key.as_bytes(), &value]), "+QUEUED");
        }
        let answer = send(&mut stream, &[b"EXEC"]);
        if answer == format!("*{SETS}") {
            (0..SETS).for_each(|_| assert_eq!(line(&mut stream), "+OK"));
            return sent;
        }
        assert!(is_again(&answer), "{answer}");
    }
    unreachable!("the loop ends when the command is acknowledged")
}

#[test]
fn commands_of_many_megabytes_survive_a_node_that_is_killed_and_hold_up_nobody() {
    let _limit = amcast_test_policy::time_limit_of(Duration::from_secs(400));
    let up = UpCluster::start(&["--protocol", "multi-ring", "--command-max-mb", "64"]);
    let (done, at) = (AtomicBool::new(false), &up.redis);
    let values = [b'a', b'b'].map(|letter| vec![letter; LARGE]);
    let (served, worst) = thread::scope(|scope| {
        let light = scope.spawn(|| {
            let (mut c, mut served, mut worst) = (Connection::open(at).unwrap(), 0, Duration::ZERO);
            while !done.load(Ordering::Relaxed) {
                let begun = Instant::now();
                if call(&mut c, &["SET", "small", "1"]) == Answer::Word("OK".into()) {
                    served += 1;
                }
                worst = worst.max(begun.elapsed());
                thread::sleep(Duration::from_millis(2));
            }
            (served, worst)
        });
        // Also if something panics: the light client must end.
        let _stops = StopOnDrop(&done);
        let begun = Instant::now();
        let sent = set_large(at, "large", &values[0]);
        println!("60 MB were set in {:?}, sent {sent} times", begun.elapsed());
        let large = scope.spawn(|| set_large(at, "large", &values[1]));
        let all = scope.spawn(|| set_all(at, b'a'));
        thread::sleep(Duration::from_millis(300));
        let before = up.kill(1);
        let sent = (large.join().unwrap(), all.join().unwrap());
        println!("with a node killed they were sent {sent:?} times, in {:?}", begun.elapsed());
        up.wait_for_return(1, before);
        set_all(at, b'b');
        done.store(true, Ordering::Relaxed);
        light.join().unwrap()
    });
    println!("a light client was served {served} times meanwhile, at worst in {worst:?}");
    assert!(served > 20, "the light client was served {served} times");
    let mut stream = connect(at);
    assert_eq!(send(&mut stream, &[b"GET", b"large"]), format!("${LARGE}"));
    let mut value = vec![0; LARGE];
    stream.read_exact(&mut value).unwrap();
    assert!(value == values[1], "it is the value that was set last");
    let mut c = up.connect();
    for n in 0..SETS {
        assert_eq!(
            call(&mut c, &["GETRANGE", &format!("t{n}"), "999990", "-1"]),
            bytes("bbbbbbbbbb")
        );
    }
    let limit = call(&mut c, &["CONFIG", "GET", "proto-max-bulk-len"]);
    assert_eq!(limit, Answer::Array(vec![bytes("proto-max-bulk-len"), bytes("67108864")]));
}

#[test]
fn small_rings_take_large_commands_too() {
    let _limit = amcast_test_policy::time_limit();
    let up = UpCluster::start(&["--command-max-mb", "8"]);
    let (mut c, long) = (up.connect(), "x".repeat(5_000_000));
    assert_eq!(call(&mut c, &["MSET", "a", &long, "b", "1"]), Answer::Word("OK".into()));
    assert_eq!(call(&mut c, &["APPEND", "a", "end"]), Answer::Number(5_000_003));
    assert_eq!(call(&mut c, &["GETRANGE", "a", "4999998", "-1"]), bytes("xxend"));
    let answer = call(&mut c, &["SET", "a", &long.repeat(2)]);
    assert!(answer.to_string().contains("larger than the limit of 83885"), "{answer}");
    assert_eq!(call(&mut c, &["STRLEN", "a"]), Answer::Number(5_000_003));
}

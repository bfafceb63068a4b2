//! Clients that wait for keys while large answers are under way.

use super::support::{ask, config, connect, line, serve, set};
use amcast_core::{GroupSet, ServiceAnswer};
use amcast_node::gateway::{
    Backend, BackendAnswers, BackendBusy, CommandFailure, LocalBackend, OnBackendAnswer,
};
use std::io::{BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

/// Gives no large answer once it withholds them.
struct WithoutLargeAnswers {
    store: LocalBackend,
    answers: OnceLock<Arc<dyn BackendAnswers>>,
    withholds: AtomicBool,
}

impl Default for WithoutLargeAnswers {
    fn default() -> Self {
        let store = LocalBackend::new(1, 1);
        Self { store, answers: OnceLock::new(), withholds: false.into() }
    }
}

impl Backend for WithoutLargeAnswers {
    fn start(&self, answers: Arc<dyn BackendAnswers>) {
        assert!(self.answers.set(answers).is_ok());
    }

    fn submit(&self, dst: GroupSet, command: &mut Vec<u8>, token: u64) -> Result<(), BackendBusy> {
        let answers = self.answers.get().expect("it was started").clone();
        let withholds = self.withholds.load(Ordering::SeqCst);
        let done = move |answer: Result<ServiceAnswer<'_>, CommandFailure>| {
            let answer = answer.expect("it executes all commands");
            if !withholds || answer.bytes.len() < 256 << 10 {
                answers.answer(token, answer);
            }
        };
        self.store.ask(dst, command, Box::new(done)).expect("it takes all commands");
        Ok(())
    }

    fn ask(&self, _: GroupSet, _: &mut Vec<u8>, _: OnBackendAnswer) -> Result<(), CommandFailure> {
        unreachable!("the Redis gateway has tokens");
    }
}

#[test]
fn a_client_that_waits_for_a_key_does_not_wait_for_a_place_among_large_answers() {
    const BIG: usize = 1_000_000;
    let _limit = amcast_test_policy::time_limit();
    let backend = Arc::new(WithoutLargeAnswers::default());
    let gateway = serve(config(), backend.clone(), 40);
    let (mut waiting, other) = (connect(&gateway), connect(&gateway));
    waiting.write_all(&set("big", BIG)).unwrap();
    let mut reader = BufReader::new(waiting.try_clone().unwrap());
    assert_eq!(line(&mut reader), "+OK");
    // So its answers are thought to be large.
    waiting.write_all(b"GET big\r\n").unwrap();
    assert_eq!(line(&mut reader), format!("${BIG}"));
    reader.read_exact(&mut vec![0; BIG + 2]).unwrap();
    // Each of these takes a place for a second, of which there are two, and the others wait for one in turn.
    backend.withholds.store(true, Ordering::SeqCst);
    let asking: Vec<TcpStream> = (0..24)
        .map(|_| {
            let mut stream = connect(&gateway);
            stream.write_all(b"GET big\r\n").unwrap();
            stream
        })
        .collect();
    waiting.write_all(b"BLPOP k 0\r\n").unwrap();
    // It looks for its key each second.
    thread::sleep(Duration::from_millis(1_300));
    let begun = Instant::now();
    assert_eq!(ask(&other, "RPUSH k x"), ":1");
    assert_eq!(line(&mut reader), "*2");
    let waited = begun.elapsed();
    assert!(waited < Duration::from_secs(4), "it waited for {waited:?}");
    drop(asking);
}

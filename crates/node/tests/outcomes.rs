//! The writes for which a connection's reads wait follow from the outcomes of its commands, and not
//! from the words of their answers.

use amcast_core::{GroupSet, Outcome, ServiceAnswer};
use amcast_kv::Partitions;
use amcast_kv::client::StoreServer;
use amcast_kv::status::ServerStatus;
use amcast_node::gateway::redis::{self, RedisGatewayConfig};
use amcast_node::gateway::{
    Backend, BackendAnswers, BackendBusy, CommandFailure, LocalBackend, OnBackendAnswer,
};
use amcast_smr::SessionWrite;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

/// Answers ordered commands by a script, and notes the writes that each read here must see.
#[derive(Default)]
struct Scripted {
    answers: OnceLock<Arc<dyn BackendAnswers>>,
    next: Mutex<Option<(Outcome, String)>>,
    /// Requests that the last read waits for.
    awaited: Mutex<Vec<u64>>,
}

impl Backend for Scripted {
    fn ask(&self, _: GroupSet, _: &mut Vec<u8>, _: OnBackendAnswer) -> Result<(), CommandFailure> {
        unreachable!("the Redis gateway has tokens");
    }

    fn start(&self, answers: Arc<dyn BackendAnswers>) {
        assert!(self.answers.set(answers).is_ok());
    }

    fn submit(&self, _: GroupSet, _: &mut Vec<u8>, token: u64) -> Result<(), BackendBusy> {
        let (outcome, text) = self.next.lock().unwrap().take().expect("its answer is set");
        let answer = ServiceAnswer::borrowed(outcome, text.as_bytes());
        self.answers.get().unwrap().answer(token, answer);
        Ok(())
    }

    fn read_here(&self, _: GroupSet, _: &[u8], written: &[SessionWrite], token: u64) -> bool {
        *self.awaited.lock().unwrap() = written.iter().map(|wrote| wrote.request).collect();
        let answer = ServiceAnswer::borrowed(Outcome::Executed, b"_\r\n");
        self.answers.get().unwrap().answer(token, answer);
        true
    }
}

#[test]
fn a_read_waits_for_what_was_executed_whatever_its_answer_says() {
    let _limit = amcast_test_policy::time_limit();
    let backend = Arc::new(Scripted::default());
    let status: Arc<dyn ServerStatus> = Arc::new(LocalBackend::new(1, 1));
    let server = Arc::new(StoreServer::new(Partitions::by_slot(1).into(), 10, 0, None, status));
    let config = RedisGatewayConfig::new(([127, 0, 0, 1], 0).into(), 1);
    let gateway = redis::start(config, backend.clone(), server).expect("a free port");
    let stream = TcpStream::connect(gateway.address()).expect("the gateway listens");
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut reader = BufReader::new(stream);
    let mut ask = |command: &str| {
        reader.get_mut().write_all(format!("{command}\r\n").as_bytes()).unwrap();
        let mut line = String::new();
        reader.read_line(&mut line).expect("an answer in time");
        line
    };
    assert_eq!(ask("AMCAST.CONSISTENCY sequential"), "+OK\r\n");
    let mut executed = None;
    let mut request = 0;
    for text in [
        "+OK",
        "-ERR the account is closed; the command was not executed",
        "-TRYAGAIN says the service",
        "-CLUSTERDOWN says the service",
        "-ERR of a key; whether the command took effect is not known",
        "-ERR without any such words",
    ] {
        for outcome in [Outcome::Executed, Outcome::NotExecuted, Outcome::Unknown] {
            *backend.next.lock().unwrap() = Some((outcome, format!("{text}\r\n")));
            request += 1;
            assert_eq!(ask("SET k v").trim_end(), text);
            if outcome == Outcome::Executed {
                executed = Some(request);
            }
            assert_eq!(ask("GET k"), "$-1\r\n");
            request += 1;
            let awaited: Vec<u64> = executed.into_iter().collect();
            assert_eq!(*backend.awaited.lock().unwrap(), awaited, "{text}: {outcome:?}");
        }
    }
}

//! The gateway on a cluster of one process, with answers that get lost.

#[path = "log_gateway/bounds.rs"]
mod bounds;
#[path = "log_gateway/cut_off.rs"]
mod cut_off;
mod local;
#[path = "log_gateway/repeats.rs"]
mod repeats;

use amcast_kv::status::ServerStatus;
use amcast_log::client::{PASSWORD_MISSING, PASSWORD_WRONG};
use amcast_log::proto::log_client::LogClient;
use amcast_log::proto::{AppendRequest, ReadRequest, Session};
use amcast_log::{LogError, LogSession};
use amcast_node::gateway::log::{
    GrowthSource, GrowthWatch, LogGateway, LogGatewayConfig, STREAM_PATIENCE,
};
use bytes::Bytes;
use local::{AlwaysReady, Local};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};
use tonic::Code;

const SHARDS: usize = 3;

/// Bytes of the largest command here.
const PAYLOAD_MAX: usize = 1 << 20;

/// Bytes of answers that may wait here.
const UNREAD_BYTES_MAX: usize = 4 << 20;

struct TestLogServer {
    gateway: LogGateway,
    local: Arc<Local>,
}

impl TestLogServer {
    fn start(password: Option<&str>) -> Self {
        Self::on(&Arc::new(Local::new(SHARDS)), password, GrowthSource::Nothing)
    }

    fn config(password: Option<&str>, hears: GrowthSource) -> LogGatewayConfig {
        LogGatewayConfig {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            shards: SHARDS,
            first_session: 1 << 23,
            payload_max: PAYLOAD_MAX,
            clock_ahead_ms: 0,
            password: password.map(str::to_string),
            hears,
            unread_bytes_max: UNREAD_BYTES_MAX,
            stream_patience: STREAM_PATIENCE,
        }
    }

    /// One more gateway of a cluster.
    fn on(local: &Arc<Local>, password: Option<&str>, hears: GrowthSource) -> Self {
        let local = Arc::clone(local);
        let config = Self::config(password, hears);
        let backend = Arc::clone(&local) as Arc<dyn amcast_node::gateway::Backend>;
        let gateway =
            LogGateway::start(config, backend, Arc::new(AlwaysReady)).expect("a port is free");
        Self { gateway, local }
    }

    /// One whose cluster's status is another.
    fn with_status(status: impl ServerStatus) -> LogGateway {
        let config = Self::config(None, GrowthSource::Nothing);
        LogGateway::start(config, Arc::new(Local::new(SHARDS)), Arc::new(status))
            .expect("a port is free")
    }

    fn client(&self) -> LogSession {
        self.client_with(None)
    }

    fn client_with(&self, password: Option<&str>) -> LogSession {
        let client = LogSession::new(vec![self.gateway.address().to_string()], password);
        client.expect("an address").with_patience(Duration::from_secs(5))
    }
}

fn read(client: &mut LogSession, log: &str, from: u64) -> Result<Vec<Bytes>, LogError> {
    let asked = ReadRequest { log: log.into(), from, max_values: 0, max_bytes: 0 };
    client.read(asked).map(|answer| answer.values)
}

fn several(logs: &[&str], value: &'static str) -> Vec<(String, Bytes)> {
    logs.iter().map(|log| (log.to_string(), value.into())).collect()
}

#[test]
fn values_get_positions_are_read_listed_and_trimmed() {
    let _limit = amcast_test_policy::time_limit();
    let server = TestLogServer::start(None);
    let mut client = server.client();
    assert_eq!(client.append("a", "one").unwrap(), 0);
    assert_eq!(client.append("a", "two").unwrap(), 1);
    assert_eq!(client.multi_append(several(&["b", "a", "c", "a"], "all")).unwrap(), [0, 2, 0, 3]);
    assert_eq!(read(&mut client, "a", 1).unwrap(), ["two", "all", "all"]);
    assert_eq!(read(&mut client, "a", 4).unwrap(), [""; 0]);
    let extents = client.info(&["c", "nowhere", "a"]).unwrap();
    let told = extents.iter().map(|e| e.as_ref().map(|e| (e.first, e.next, e.bytes)));
    assert_eq!(told.collect::<Vec<_>>(), [Some((0, 1, 3)), None, Some((0, 4, 12))]);
    let trimmed = client.trim("a", 3).unwrap();
    assert_eq!((trimmed.first, trimmed.next, trimmed.bytes), (3, 4, 3));
    assert_eq!(client.append("a", "").unwrap(), 4);
    let listed = client.list("a").unwrap();
    assert_eq!(listed.iter().map(|l| l.log.as_str()).collect::<Vec<_>>(), ["b", "c"]);
}

#[test]
fn a_request_whose_answer_is_lost_is_repeated_and_takes_effect_once() {
    let _limit = amcast_test_policy::time_limit();
    let server = TestLogServer::start(None);
    let mut client = server.client();
    for n in 0..20 {
        server.local.lose_answers(n % 3);
        assert_eq!(client.append("a", format!("{n}")).unwrap(), u64::from(n));
        server.local.lose_answers(n % 2);
        let positions = client.multi_append(several(&["b", "c"], "x")).unwrap();
        assert_eq!(positions, [u64::from(n), u64::from(n)]);
    }
    let expected: Vec<String> = (0..20).map(|n| n.to_string()).collect();
    assert_eq!(read(&mut client, "a", 0).unwrap(), expected);
    server.local.lose_answers(1);
    assert_eq!(client.info(&["a"]).unwrap()[0].as_ref().unwrap().next, 20);
    // A client that does not retry learns that the command may have been executed.
    server.local.lose_answers(1);
    let mut hasty = server.client().with_patience(Duration::ZERO);
    let failed = hasty.append("a", "perhaps").unwrap_err();
    assert_eq!(failed.code, Code::DeadlineExceeded);
    assert!(failed.why.contains("same session and number"), "{failed}");
}

#[test]
fn what_is_not_taken_at_once_is_repeated_and_at_last_said_to_have_done_nothing() {
    let _limit = amcast_test_policy::time_limit();
    let server = TestLogServer::start(None);
    server.local.refuse(3);
    assert_eq!(server.client().append("a", "x").unwrap(), 0);
    server.local.refuse(u32::MAX);
    let mut client = server.client().with_patience(Duration::from_millis(200));
    let failed = client.append("a", "y").unwrap_err();
    assert_eq!(failed.code, Code::Unavailable);
    assert!(failed.why.contains("not executed") && !failed.why.contains("may have"), "{failed}");
    server.local.refuse(0);
    assert_eq!(read(&mut client, "a", 0).unwrap(), ["x"]);
}

#[test]
fn a_client_that_finds_no_gateway_asks_again_and_leaves_old_addresses_alone() {
    let _limit = amcast_test_policy::time_limit();
    let server = TestLogServer::start(None);
    let address = server.gateway.address().to_string();
    // Of another program by now.
    let old = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
    let at_old = old.local_addr().expect("bound").to_string();
    let dialled = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&dialled);
    std::thread::spawn(move || {
        for _closed in old.incoming() {
            count.fetch_add(1, Ordering::Relaxed);
        }
    });
    let mut asked = 0;
    let finds = move || {
        asked += 1;
        if asked > 4 { vec![address.clone()] } else { Vec::new() }
    };
    let client = LogSession::new(vec![at_old], None).expect("an address").finding(finds);
    let mut client = client.with_patience(Duration::from_secs(5));
    assert_eq!(client.append("a", "x").expect("appended"), 0);
    // One attempt, before it asked; it dials again where the connection ends before the request is on it.
    let dials = dialled.load(Ordering::Relaxed);
    assert!((1..=2).contains(&dials), "{dials}");
    let mut lost = LogSession::new(vec![server.gateway.address().to_string()], None)
        .expect("an address")
        .finding(Vec::new)
        .with_patience(Duration::from_millis(100));
    drop(server);
    assert!(lost.append("a", "y").is_err(), "nobody is found in time");
}

#[test]
fn what_cannot_be_is_refused_in_words_and_does_nothing() {
    let _limit = amcast_test_policy::time_limit();
    let server = TestLogServer::start(None);
    let mut client = server.client();
    client.append("a", "0").unwrap();
    client.append("a", "1").unwrap();
    client.trim("a", 1).unwrap();
    let long = "l".repeat(256);
    let huge = vec![0; PAYLOAD_MAX];
    let cases: [(&str, Result<(), LogError>, Code, &str); 8] = [
        ("no name", client.append("", "x").map(drop), Code::InvalidArgument, "1 to 255 bytes"),
        ("long name", client.append(&long, "x").map(drop), Code::InvalidArgument, "256"),
        ("large", client.append("a", huge.clone()).map(drop), Code::InvalidArgument, "limit of"),
        ("nothing", client.multi_append([]).map(drop), Code::InvalidArgument, "1 to 1000"),
        (
            "many",
            client.multi_append((0..1001).map(|_| ("a".into(), "".into()))).map(drop),
            Code::InvalidArgument,
            "1001",
        ),
        ("trimmed", read(&mut client, "a", 0).map(drop), Code::OutOfRange, "1 is the first"),
        ("unknown", read(&mut client, "b", 0).map(drop), Code::NotFound, "no log has this name"),
        ("unknown", client.trim("b", 0).map(drop), Code::NotFound, "no log has this name"),
    ];
    for (what, outcome, code, words) in cases {
        let failed = outcome.expect_err(what);
        assert_eq!(failed.code, code, "{what}: {failed}");
        assert!(failed.why.contains(words), "{what}: {failed}");
    }
    // The largest request that fits: its envelope, its head, and the name.
    let most = PAYLOAD_MAX - amcast_smr::Envelope::BYTES - 7 - 6;
    assert_eq!(client.append("a", vec![7; most]).unwrap(), 2);
    assert!(client.append("a", vec![7; most + 1]).is_err());
    let values = read(&mut client, "a", 1).unwrap();
    assert_eq!(values.iter().map(Bytes::len).collect::<Vec<_>>(), [1, most]);
    // Larger than a message may be at all.
    let failed = client.append("a", vec![7; 3 << 20]).unwrap_err();
    assert_eq!(failed.code, Code::InvalidArgument, "{failed}");
    assert!(failed.why.contains("nothing was done: found 3145"), "{failed}");
    assert_eq!(client.append("a", "still").unwrap(), 3);
}

#[test]
fn a_full_shard_says_trim_and_a_trim_makes_room() {
    let _limit = amcast_test_policy::time_limit();
    let server = TestLogServer::start(None);
    let mut client = server.client();
    let mut last = 0;
    let failed = loop {
        match client.append("a", vec![0; 100_000]) {
            Ok(position) => last = position,
            Err(failed) => break failed,
        }
    };
    assert_eq!(failed.code, Code::ResourceExhausted);
    assert!(failed.why.contains("trim"), "{failed}");
    assert!(last > 5, "{last}");
    client.trim("a", 2).unwrap();
    assert_eq!(client.append("a", vec![0; 100_000]).unwrap(), last + 1);
}

#[test]
fn a_stream_follows_appends_until_its_client_has_enough() {
    let _limit = amcast_test_policy::time_limit();
    let server = TestLogServer::start(None);
    let address = server.gateway.address().to_string();
    let appends = std::thread::spawn(move || {
        let mut client = LogSession::new(vec![address], None).unwrap();
        for n in 0..300 {
            client.append("a", format!("{n}")).unwrap();
        }
    });
    // It begins before the log is there.
    let (mut client, mut seen) = (server.client(), Vec::new());
    client
        .tail("a", 0, &mut |position, value| {
            seen.push((position, String::from_utf8(value.to_vec()).unwrap()));
            seen.len() < 300
        })
        .unwrap();
    appends.join().unwrap();
    let expected: Vec<_> = (0..300).map(|n| (n, n.to_string())).collect();
    assert_eq!(seen, expected);
    client.trim("a", 250).unwrap();
    let failed = client.tail("a", 3, &mut |_, _| true).unwrap_err();
    assert_eq!(failed.code, Code::OutOfRange);
}

/// Follows a log from its begin in a thread of its own: what it was given, one by one.
fn follow(server: &TestLogServer, log: &'static str, count: usize) -> Receiver<(u64, Vec<u8>)> {
    let (to, given) = sync_channel(count);
    let mut client = server.client_with(Some("secret"));
    std::thread::spawn(move || {
        let mut left = count;
        let tailed = client.tail(log, 0, &mut |position, value| {
            to.send((position, value.to_vec())).unwrap();
            left -= 1;
            left > 0
        });
        tailed.expect("the stream continues until it has all");
    });
    given
}

fn given(stream: &Receiver<(u64, Vec<u8>)>) -> (u64, Vec<u8>) {
    stream.recv_timeout(Duration::from_secs(10)).expect("a value is given")
}

/// A gateway whose process is a node, and its cluster.
fn node_that_hears() -> (TestLogServer, Arc<Local>) {
    let growth = GrowthWatch::default();
    let told = growth.clone();
    let local = Local::telling(SHARDS, Arc::new(move |log: &[u8], e| told.tell(log, e)));
    let local = Arc::new(local);
    (TestLogServer::on(&local, Some("secret"), GrowthSource::Node(growth)), local)
}

#[test]
fn a_stream_of_a_node_is_told_of_appends_and_asks_for_nothing_meanwhile() {
    let _limit = amcast_test_policy::time_limit();
    let (node, local) = node_that_hears();
    let other = TestLogServer::on(&local, Some("secret"), GrowthSource::Nothing);
    let stream = follow(&node, "a", 50);
    let mut client = other.client_with(Some("secret"));
    client.append("a", "0").unwrap();
    assert_eq!(given(&stream), (0, b"0".to_vec()));
    // It has looked whether there is more before long; after that there is nothing to do.
    std::thread::sleep(Duration::from_millis(100));
    let before = local.asked();
    std::thread::sleep(Duration::from_millis(300));
    assert!(local.asked() <= before + 1, "{} commands", local.asked() - before);
    for n in 1..50 {
        client.append("a", n.to_string()).unwrap();
        assert_eq!(given(&stream), (n, n.to_string().into_bytes()));
    }
}

#[test]
fn a_gateway_without_a_node_passes_streams_on_and_goes_on_by_itself_when_they_break() {
    let _limit = amcast_test_policy::time_limit();
    let local = Arc::new(Local::new(SHARDS));
    let mut node = Some(TestLogServer::on(&local, Some("secret"), GrowthSource::Nothing));
    let at = node.as_ref().map(|node| node.gateway.address().to_string()).unwrap();
    let asked = Arc::new(AtomicUsize::new(0));
    let addresses = {
        let asked = Arc::clone(&asked);
        move || {
            asked.fetch_add(1, Ordering::Relaxed);
            vec!["127.0.0.1:1".to_string(), at.clone()]
        }
    };
    let gateway =
        TestLogServer::on(&local, Some("secret"), GrowthSource::Others(Arc::new(addresses)));
    let stream = follow(&gateway, "a", 30);
    let mut client = gateway.client_with(Some("secret"));
    for n in 0..30 {
        if n == 15 {
            drop(node.take());
        }
        client.append("a", n.to_string()).unwrap();
        assert_eq!(given(&stream), (n, n.to_string().into_bytes()));
    }
    assert!(asked.load(Ordering::Relaxed) > 0, "it did not look for nodes");
    client.trim("a", 20).unwrap();
    let failed = client.tail("a", 3, &mut |_, _| true).unwrap_err();
    assert_eq!(failed.code, Code::OutOfRange);
}

/// Follows a log whose first value is there, until the stream fails; how.
fn follow_to_the_end(server: &TestLogServer, log: &'static str) -> Receiver<LogError> {
    let (to, ended) = sync_channel(1);
    let (begins, begun) = sync_channel(1);
    let mut client = server.client_with(Some("secret"));
    std::thread::spawn(move || {
        let tailed = client.tail(log, 0, &mut |_, _| begins.send(()).is_ok());
        to.send(tailed.expect_err("it wants all that ever comes")).unwrap();
    });
    begun.recv_timeout(Duration::from_secs(10)).expect("the first value is given");
    ended
}

#[test]
fn a_deleted_log_ends_its_streams_and_its_name_begins_a_new_one() {
    let _limit = amcast_test_policy::time_limit();
    let (node, local) = node_that_hears();
    let deaf = TestLogServer::on(&local, Some("secret"), GrowthSource::Nothing);
    let at = node.gateway.address().to_string();
    let others = GrowthSource::Others(Arc::new(move || vec![at.clone()]));
    let passes = TestLogServer::on(&local, Some("secret"), others);
    let mut client = deaf.client_with(Some("secret"));
    assert_eq!(client.delete("a").unwrap_err().code, Code::NotFound);
    for (round, made_anew, first) in [(0, false, 0), (1, true, 0), (2, true, 0), (3, true, 2)] {
        client.append("a", "x").unwrap();
        let streams = [&node, &deaf, &passes].map(|gateway| follow_to_the_end(gateway, "a"));
        local.lose_answers(1);
        let went = client.delete("a").unwrap();
        assert_eq!((went.first, went.next, went.bytes), (0, 1, 1), "also where it is repeated");
        if made_anew {
            // Values at the positions that the streams wait for are not theirs.
            assert_eq!(client.multi_append(several(&["a"; 3], "y")).unwrap(), [0, 1, 2]);
            client.trim("a", first).unwrap();
        }
        for stream in streams {
            let failed = stream.recv_timeout(Duration::from_secs(10)).expect("the stream ends");
            assert_eq!(failed.code, Code::NotFound, "{round}: {failed}");
            assert!(failed.why.contains("the log was deleted"), "{failed}");
        }
        if made_anew {
            let now = client.info(&["a"]).unwrap()[0].unwrap();
            assert!(now.incarnation > went.incarnation);
            assert_eq!(read(&mut client, "a", first).unwrap().len() as u64, 3 - first);
            client.delete("a").unwrap();
        }
        assert_eq!(read(&mut client, "a", 0).unwrap_err().code, Code::NotFound);
    }
}

#[test]
fn a_stream_that_is_not_read_holds_up_nobody_else() {
    let _limit = amcast_test_policy::time_limit();
    let server = TestLogServer::start(None);
    let mut client = server.client();
    let (go, wait) = std::sync::mpsc::sync_channel::<()>(0);
    let address = server.gateway.address().to_string();
    let slow = std::thread::spawn(move || {
        let mut client = LogSession::new(vec![address], None).unwrap();
        let mut seen = 0;
        let tailed = client.tail("big", 0, &mut |position, _| {
            assert_eq!(position, seen);
            if seen == 0 {
                // From here on nothing is read until the others are done.
                let _ = wait.recv();
            }
            seen += 1;
            seen < 80
        });
        tailed.map(|()| seen)
    });
    for n in 0..80 {
        assert_eq!(client.append("big", vec![1; 50_000]).unwrap(), n);
        if n == 40 {
            client.append("other", "x").unwrap();
        }
    }
    assert!(server.gateway.is_serving());
    go.send(()).unwrap();
    assert_eq!(slow.join().unwrap().unwrap(), 80);
}

#[test]
fn who_has_no_password_is_told_so_and_does_nothing() {
    let _limit = amcast_test_policy::time_limit();
    let server = TestLogServer::start(Some("secret"));
    for wrong in [None, Some("Secret"), Some("secret2"), Some("secre")] {
        let failed = server.client_with(wrong).append("a", "x").unwrap_err();
        assert_eq!(failed.code, Code::Unauthenticated, "{wrong:?}");
        let why = if wrong.is_none() { PASSWORD_MISSING } else { PASSWORD_WRONG };
        assert_eq!(failed.why, why, "{wrong:?}");
    }
    assert_eq!(server.client_with(Some("secret")).append("a", "x").unwrap(), 0);
}

#[test]
fn passwords_that_are_tried_are_answered_late_and_few_at_a_time() {
    let _limit = amcast_test_policy::time_limit();
    let server = TestLogServer::start(Some("secret"));
    let address = server.gateway.address().to_string();
    let begun = Instant::now();
    let tries: Vec<_> = (0..100)
        .map(|_| {
            let address = address.clone();
            std::thread::spawn(move || {
                let client = LogSession::new(vec![address], Some("wrong")).unwrap();
                client.with_patience(Duration::ZERO).append("a", "x").unwrap_err();
                Instant::now()
            })
        })
        .collect();
    let ends: Vec<Instant> = tries.into_iter().map(|thread| thread.join().unwrap()).collect();
    let answered = ends.iter().filter(|end| **end < begun + Duration::from_millis(250)).count();
    assert!(answered <= 40, "{answered} knew it at once");
    let begun = Instant::now();
    server.client_with(Some("secret")).append("a", "x").unwrap();
    assert!(begun.elapsed() < Duration::from_secs(1));
    let counts = server.gateway.counts()();
    let wrong = counts.iter().find(|count| count.name == "log_wrong_passwords").unwrap();
    assert!(wrong.count() >= Some(64), "{wrong:?}");
}

/// Appends to log `a` with a session and number that the caller chooses.
struct Appender {
    runtime: tokio::runtime::Runtime,
    client: LogClient<tonic::transport::Channel>,
}

impl Appender {
    fn of(server: &TestLogServer) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let endpoint = format!("http://{}", server.gateway.address());
        let endpoint = tonic::transport::Endpoint::from_shared(endpoint).unwrap();
        let client = LogClient::new(runtime.block_on(endpoint.connect()).unwrap());
        Self { runtime, client }
    }

    fn append(&mut self, value: &'static str, id: u64, request: u64) -> Result<u64, tonic::Status> {
        let session = Some(Session { id, request, age_ms: 0 });
        let asked = AppendRequest { log: "a".into(), value: value.into(), session };
        let answer = self.runtime.block_on(self.client.append(asked));
        answer.map(|answer| answer.into_inner().position)
    }
}

#[test]
fn a_number_that_was_used_for_something_else_is_refused() {
    let _limit = amcast_test_policy::time_limit();
    let server = TestLogServer::start(None);
    let mut appender = Appender::of(&server);
    let mut append = |value, request| appender.append(value, 77, request);
    assert_eq!(append("x", 5).unwrap(), 0);
    assert_eq!(append("x", 5).unwrap(), 0, "the same again");
    assert_eq!(append("y", 5).unwrap_err().code(), Code::AlreadyExists);
    assert_eq!(append("y", 3).unwrap(), 1, "numbers come in any order");
    assert_eq!(append("z", 3000).unwrap(), 2);
    let late = append("x", 5).unwrap_err();
    assert_eq!(late.code(), Code::FailedPrecondition, "{late}");
    assert_eq!(append("x", 0).unwrap_err().code(), Code::InvalidArgument);
    assert_eq!(read(&mut server.client(), "a", 0).unwrap(), ["x", "y", "z"]);
}

#[test]
fn sessions_that_the_cluster_keeps_for_itself_are_refused_and_others_are_not() {
    let _limit = amcast_test_policy::time_limit();
    let server = TestLogServer::start(None);
    let mut appender = Appender::of(&server);
    let mut append = |id| appender.append("x", id, 1);
    for id in [u64::MAX, u64::MAX >> 1] {
        let refused = append(id).unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{id}: {refused}");
        assert!(refused.message().contains("nothing happened"), "{refused}");
    }
    assert_eq!(append(u64::MAX - 1).unwrap(), 0);
    assert_eq!(append(1 << 63).unwrap(), 1);
}

#[test]
fn bytes_that_are_no_grpc_close_their_connection_and_no_other() {
    let _limit = amcast_test_policy::time_limit();
    let server = TestLogServer::start(None);
    let mut client = server.client();
    for nonsense in
        [&b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..], &[0xff; 300], b"PRI * HTTP/2.0\r\n\r\nXX"]
    {
        let mut stream = TcpStream::connect(server.gateway.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        // It may close before all is written.
        let _ = stream.write_all(nonsense);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        if let Err(e) = stream.read_to_end(&mut answer) {
            assert_eq!(e.kind(), std::io::ErrorKind::ConnectionReset, "{e}");
        }
        client.append("a", "x").unwrap();
    }
    assert!(server.gateway.is_serving());
}

#[test]
fn a_connection_that_does_not_begin_is_closed_soon() {
    let _limit = amcast_test_policy::time_limit();
    let server = TestLogServer::start(None);
    let mut stream = TcpStream::connect(server.gateway.address()).unwrap();
    let begun = Instant::now();
    for byte in b"PRI * HTTP/2.0\r\n\r\nSM".iter().cycle().take(5) {
        let _ = stream.write_all(&[*byte]);
        std::thread::sleep(Duration::from_millis(100));
    }
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut all = Vec::new();
    // Settings may come, and then the end.
    let _ = stream.read_to_end(&mut all);
    assert!((4..9).contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());
    server.client().append("a", "x").unwrap();
}

#[test]
fn streams_end_in_words_when_the_gateway_stops() {
    let _limit = amcast_test_policy::time_limit();
    let TestLogServer { gateway, local } = TestLogServer::start(None);
    let address = gateway.address().to_string();
    let mut client = LogSession::new(vec![address], None).unwrap();
    client.append("a", "x").unwrap();
    let mut gateway = Some(gateway);
    let mut client = client.with_patience(Duration::ZERO);
    let failed = client.tail("a", 0, &mut |_, _| {
        let gateway = gateway.take();
        std::thread::spawn(move || drop(gateway));
        true
    });
    let failed = failed.unwrap_err();
    assert_eq!(failed.code, Code::Unavailable, "{failed}");
    assert!(failed.why.contains("position 1"), "{failed}");
    drop(local);
}

/// A client's append at a gateway whose clock is hours ahead is refused first, and its session
/// continues at both gateways.
#[test]
fn a_gateway_two_hours_ahead_stops_no_session() {
    let _limit = amcast_test_policy::time_limit();
    let local = Arc::new(Local::new(SHARDS));
    local.report_clock(true);
    let right = TestLogServer::on(&local, None, GrowthSource::Nothing);
    let config = LogGatewayConfig {
        listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        shards: SHARDS,
        first_session: 1 << 24,
        payload_max: PAYLOAD_MAX,
        clock_ahead_ms: 7_200_000,
        password: None,
        hears: GrowthSource::Nothing,
        unread_bytes_max: UNREAD_BYTES_MAX,
        stream_patience: STREAM_PATIENCE,
    };
    let backend = Arc::clone(&local) as Arc<dyn amcast_node::gateway::Backend>;
    let ahead = LogGateway::start(config, backend, Arc::new(AlwaysReady)).expect("a port is free");
    let addresses = vec![right.gateway.address().to_string(), ahead.address().to_string()];
    let mut client =
        LogSession::new(addresses, None).unwrap().with_patience(Duration::from_secs(5));
    assert_eq!(client.append("a", "1").unwrap(), 0);
    local.lose_answers(1);
    for n in 1..8 {
        local.report_clock(false);
        assert_eq!(client.append("a", format!("{n}")).unwrap(), n, "each takes effect once");
    }
}

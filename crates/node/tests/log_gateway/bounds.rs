//! Connections that ask for much, take no answers or never end their requests.

use super::{TestLogServer, read};
use crate::local::Local;
use amcast_kv::status::{ServerStatus, ShardStatus};
use amcast_log::proto::{InfoRequest, ListRequest, ReadRequest, TailRequest};
use bytes::Bytes;
use prost::Message;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tonic::Code;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

/// A connection that begins so many calls of `path`, and finishes none where no `message` is given; it takes no byte of
/// an answer.
fn calls(server: &TestLogServer, path: &str, calls: u32, message: Option<&[u8]>) -> TcpStream {
    let mut stream = TcpStream::connect(server.gateway.address()).unwrap();
    // Streams begin with a window of 0 bytes.
    let settings = frame(4, 0, 0, &[0, 4, 0, 0, 0, 0]);
    let begin = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &settings[..]].concat();
    stream.write_all(&[begin, frames_of_calls(path, 0..calls, message)].concat()).unwrap();
    stream
}

/// A frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u32, body: &[u8]) -> Vec<u8> {
    let length = (body.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), body].concat()
}

/// The frames of the calls of a connection with these numbers.
fn frames_of_calls(path: &str, calls: Range<u32>, message: Option<&[u8]>) -> Vec<u8> {
    let text = |text: &str| [&[text.len() as u8], text.as_bytes()].concat();
    let mut bytes = Vec::new();
    for call in calls {
        // POST, http, and names and values as they are.
        let head = [
            &[0x83, 0x86, 0x04][..],
            &text(path),
            &[0x01],
            &text("x"),
            &[0x00],
            &text("content-type"),
            &text("application/grpc"),
            &[0x00],
            &text("te"),
            &text("trailers"),
        ];
        // That is all of the head, and not of the request.
        bytes.extend_from_slice(&frame(1, 4, 2 * call + 1, &head.concat()));
        if let Some(message) = message {
            let length = (message.len() as u32).to_be_bytes();
            let body = [&[0][..], &length, message].concat();
            bytes.extend_from_slice(&frame(0, 1, 2 * call + 1, &body));
        }
    }
    bytes
}

fn unfinished(server: &TestLogServer, path: &str, count: u32) -> TcpStream {
    calls(server, path, count, None)
}

#[test]
fn a_client_that_takes_no_answers_is_closed_where_they_are_too_large() {
    let _limit = amcast_test_policy::time_limit();
    let server = TestLogServer::start(None);
    let mut client = server.client();
    for _ in 0..4 {
        client.append("big", vec![1; 200_000]).unwrap();
    }
    client.multi_append((0..1000).map(|_| ("none".into(), Bytes::new()))).unwrap();
    client.multi_append((0..1000).map(|n| (format!("{n:0>255}"), "x".into()))).unwrap();
    let (log, logs) = ("big".to_string(), vec!["a".to_string(); 1000]);
    let big = ReadRequest { log: log.clone(), ..ReadRequest::default() };
    let none = ReadRequest { log: "none".to_string(), ..big.clone() };
    let tail = TailRequest { log, ..TailRequest::default() };
    // Of reads and lists few have an answer at a time: those of the second and the fourth fit.
    let requests = [
        ("Read", big.encode_to_vec(), true),
        ("Read", none.encode_to_vec(), false),
        ("Tail", tail.encode_to_vec(), true),
        ("List", ListRequest::default().encode_to_vec(), false),
        ("Info", InfoRequest { logs }.encode_to_vec(), true),
    ];
    for (method, request, is_closed) in requests {
        let path = &format!("/amcast.log.v1.Log/{method}");
        // Requests that fit wait for as long as they like.
        let mut few = calls(&server, path, 1, Some(&request));
        let mut many = calls(&server, path, 100, Some(&request));
        let patience = if is_closed { 5_000 } else { 100 };
        many.set_read_timeout(Some(Duration::from_millis(patience))).unwrap();
        assert_eq!(server_is_silent(&mut many), !is_closed, "{path}: whether it may continue");
        assert_eq!(read(&mut client, "big", 0).unwrap().len(), 4, "{path}: others are served");
        few.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        assert!(server_is_silent(&mut few), "{path}: it was closed, too");
    }
    assert!(server.gateway.is_serving());
}

/// A status that nobody can ask.
struct PanickingStatus;

impl ServerStatus for PanickingStatus {
    fn node(&self) -> String {
        "n0".to_string()
    }

    fn protocol(&self) -> String {
        "none".to_string()
    }

    fn shards(&self) -> Vec<ShardStatus> {
        Vec::new()
    }

    fn ready(&self) -> Result<(), String> {
        panic!("the status is broken")
    }
}

#[test]
fn a_panic_of_a_task_that_all_clients_need_ends_the_gateway() {
    let _limit = amcast_test_policy::time_limit();
    let gateway = TestLogServer::with_status(PanickingStatus);
    let begin = Instant::now();
    while gateway.is_serving() {
        assert!(begin.elapsed() < Duration::from_secs(20), "it tells no health and serves");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until so many commands were taken, and then for some more.
fn commands_after(local: &Local, count: u64) -> u64 {
    while local.asked() < count {
        std::thread::sleep(Duration::from_millis(5));
    }
    std::thread::sleep(Duration::from_millis(200));
    local.asked()
}

#[test]
fn a_connection_that_takes_no_answers_has_few_reads_executed() {
    let _limit = amcast_test_policy::time_limit();
    let server = TestLogServer::start(None);
    let mut client = server.client();
    client.append("big", vec![1; 100_000]).unwrap();
    let big = ReadRequest { log: "big".to_string(), ..ReadRequest::default() };
    for (method, request) in
        [("Read", big.encode_to_vec()), ("List", ListRequest::default().encode_to_vec())]
    {
        let path = &format!("/amcast.log.v1.Log/{method}");
        let before = server.local.asked();
        let many: Vec<_> = (0..3).map(|_| calls(&server, path, 200, Some(&request))).collect();
        assert_eq!(commands_after(&server.local, before + 24) - before, 24, "{path}: 8 of each");
        // They wait where they take no place of others.
        let begun = Instant::now();
        (0..20).for_each(|_| _ = read(&mut client, "big", 0).unwrap());
        assert!(begun.elapsed() < Duration::from_secs(3), "{path}: {:?}", begun.elapsed());
        drop(many);
    }
    // A client that takes its answers has all of them.
    let before = server.local.asked();
    let threads: Vec<_> = (0..20)
        .map(|_| {
            let mut client = server.client();
            std::thread::spawn(move || read(&mut client, "big", 0).unwrap().len())
        })
        .collect();
    assert!(threads.into_iter().all(|thread| thread.join().unwrap() == 1));
    assert_eq!(server.local.asked() - before, 20);
}

#[test]
fn few_streams_of_a_connection_read_at_a_time() {
    let _limit = amcast_test_policy::time_limit();
    let server = TestLogServer::start(None);
    server.client().append("log", "x").unwrap();
    server.local.withhold(true);
    let tail = TailRequest { log: "log".to_string(), ..TailRequest::default() };
    let before = server.local.asked();
    let _many = calls(&server, "/amcast.log.v1.Log/Tail", 100, Some(&tail.encode_to_vec()));
    let begun = commands_after(&server.local, before + 8) - before;
    assert!(begun <= 10, "{begun} commands, of which two may be looks");
    server.local.withhold(false);
    assert!(commands_after(&server.local, before + 100) >= before + 100, "all of them continue");
}

/// Whether a connection is open: nothing more comes, and not its end.
fn server_is_silent(stream: &mut TcpStream) -> bool {
    loop {
        match stream.read(&mut [0; 4096]) {
            Ok(0) => return false,
            Ok(_) => {}
            Err(e) => return matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
        }
    }
}

#[test]
fn requests_that_do_not_come_whole_hold_up_no_other() {
    let _limit = amcast_test_policy::time_limit();
    for path in ["/grpc.health.v1.Health/Check", "/amcast.log.v1.Log/Append"] {
        let server = TestLogServer::start(None);
        let mut client = server.client();
        client.append("a", "x").unwrap();
        let mut open: Vec<_> = (0..6).map(|_| unfinished(&server, path, 250)).collect();
        std::thread::sleep(Duration::from_millis(300));
        let begun = Instant::now();
        (0..20).for_each(|_| _ = client.append("a", "x").unwrap());
        server.client().append("a", "x").unwrap();
        assert!(begun.elapsed() < Duration::from_secs(3), "{path}: {:?}", begun.elapsed());
        // They are answered all the same, at last.
        let mut answer = vec![0; 4096];
        open[0].set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        assert!(open[0].read(&mut answer).unwrap() > 0);
    }
}

#[test]
fn few_watch_the_health_at_a_time_and_anybody_asks_for_it() {
    let _limit = amcast_test_policy::time_limit();
    let server = TestLogServer::start(Some("secret"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let address = format!("http://{}", server.gateway.address());
    let endpoint = tonic::transport::Endpoint::from_shared(address).unwrap();
    let mut client = HealthClient::new(runtime.block_on(endpoint.connect()).unwrap());
    let question = || HealthCheckRequest { service: String::new() };
    // So many at the same time: why one of them is refused.
    let watch = |client: &mut HealthClient<_>, count: usize| {
        let streams = (0..count).map(|_| runtime.block_on(client.watch(question())));
        streams.collect::<Result<Vec<_>, _>>().map(drop).map_err(|refused| refused.code())
    };
    assert_eq!(watch(&mut client, 1), Ok(()));
    let path = "/grpc.health.v1.Health/Watch";
    let many: Vec<_> = (0..2).map(|_| calls(&server, path, 200, Some(&[]))).collect();
    let begun = Instant::now();
    while watch(&mut client, 100) != Err(Code::ResourceExhausted) {
        assert!(begun.elapsed() < Duration::from_secs(10), "streams have no bound");
    }
    let check = runtime.block_on(client.check(question()));
    assert!(check.is_ok(), "{check:?}");
    drop(many);
    while watch(&mut client, 100).is_err() {}
}

/// Streams for anybody, which end when they are asked for more.
const REFLECTION: &str = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";

/// Reads until so many streams of a connection have ended.
fn await_ends(stream: &mut TcpStream, count: usize) {
    let (mut head, mut ended) = ([0; 9], 0);
    while ended < count {
        stream.read_exact(&mut head).expect("the oldest streams are ended");
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        stream.read_exact(&mut vec![0; length]).unwrap();
        let (kind, flags) = (head[3], head[4]);
        // The last head of a stream, or its reset.
        ended += usize::from((kind == 1 && flags & 1 == 1) || kind == 3);
    }
}

#[test]
fn streams_that_do_not_end_give_their_places_to_newcomers() {
    let _limit = amcast_test_policy::time_limit();
    let server = TestLogServer::start(Some("secret"));
    // There are places for 64, of which those of one connection take 8 at most.
    let begun = Instant::now();
    let mut streams: Vec<TcpStream> = (0..13).map(|_| unfinished(&server, REFLECTION, 8)).collect();
    for stream in &mut streams[..4] {
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        await_ends(stream, 8);
    }
    assert!(begun.elapsed() < Duration::from_secs(8), "not because their time was over");
}

#[test]
fn streams_whose_answers_are_not_taken_give_their_places_to_newcomers() {
    let _limit = amcast_test_policy::time_limit();
    let server = TestLogServer::start(Some("secret"));
    // A list of services, sixteen times. None of the answers is taken, so the later requests are not looked at.
    let message = [&[0, 0, 0, 0, 3][..], b"\x3a\x01*"].concat();
    let requests: Vec<u8> =
        (0..8).flat_map(|call| frame(0, 0, 2 * call + 1, &message.repeat(16))).collect();
    let stuck: Vec<TcpStream> = (0..8)
        .map(|_| {
            let mut stream = unfinished(&server, REFLECTION, 8);
            stream.write_all(&requests).unwrap();
            stream
        })
        .collect();
    // All places are taken once the last of them is answered.
    std::thread::sleep(Duration::from_millis(500));
    let begun = Instant::now();
    let mut newcomer = calls(&server, REFLECTION, 1, Some(b"\x3a\x01*"));
    newcomer.write_all(&frame(8, 0, 1, &[0, 1, 0, 0])).unwrap();
    newcomer.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    await_ends(&mut newcomer, 1);
    assert!(begun.elapsed() < Duration::from_secs(5), "it waits for {} others", stuck.len());
}

#[test]
fn streams_of_one_connection_leave_places_to_others() {
    let _limit = amcast_test_policy::time_limit();
    let server = TestLogServer::start(Some("secret"));
    let _many = unfinished(&server, REFLECTION, 200);
    let others: Vec<TcpStream> = (0..7).map(|_| unfinished(&server, REFLECTION, 8)).collect();
    let begun = Instant::now();
    for mut other in others {
        other.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        let (mut head, mut ended) = ([0; 9], false);
        while begun.elapsed() < Duration::from_secs(5) && other.read_exact(&mut head).is_ok() {
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
            other.read_exact(&mut vec![0; length]).unwrap();
            ended |= (head[3] == 1 && head[4] & 1 == 1) || head[3] == 3;
        }
        assert!(!ended, "a stream ends, although there are places for all");
    }
    assert!(begun.elapsed() < Duration::from_secs(5), "their time is not over");
}

#[test]
fn streams_of_one_client_leave_the_reads_of_others_behind_its_proxy() {
    let _limit = amcast_test_policy::time_limit();
    let server = TestLogServer::start(None);
    server.client().append("log", "x").unwrap();
    let before = server.local.asked();
    let mut proxy = unfinished(&server, REFLECTION, 20);
    let request = ReadRequest { log: "log".to_string(), ..ReadRequest::default() };
    let begun = Instant::now();
    let read = frames_of_calls("/amcast.log.v1.Log/Read", 20..21, Some(&request.encode_to_vec()));
    proxy.write_all(&read).unwrap();
    while server.local.asked() == before {
        assert!(begun.elapsed() < Duration::from_secs(5), "the read waits for the streams");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn frames_of_who_has_not_given_the_password_are_read_at_a_bounded_pace() {
    let _limit = amcast_test_policy::time_limit();
    let server = TestLogServer::start(Some("secret"));
    let mut stream = unfinished(&server, "/none", 0);
    let begun = Instant::now();
    let mut sends = stream.try_clone().unwrap();
    let ping = [0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
    // The connection ends with the test.
    let sender = std::thread::spawn(move || _ = sends.write_all(&ping.repeat(60_000)));
    stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let (mut bytes, mut all) = ([0; 4096], 0);
    while begun.elapsed() < Duration::from_secs(3) {
        all += stream.read(&mut bytes).unwrap_or(0);
        let most = 65_536 * (begun.elapsed().as_secs() as usize + 2) + 20_000;
        assert!(all <= most, "{all} bytes of answers in {:?}", begun.elapsed());
    }
    assert!(all > ping.len(), "it is served");
    _ = stream.shutdown(std::net::Shutdown::Both);
    sender.join().unwrap();
    // A request that gives the password is read on at once, however large it is: ten would wait for ten seconds.
    let begun = Instant::now();
    for _ in 0..10 {
        let mut client = server.client_with(Some("secret"));
        client.append("log", vec![1; 200_000]).unwrap();
    }
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
}

#[test]
fn all_who_have_not_given_the_password_are_read_at_a_bounded_pace_together() {
    let _limit = amcast_test_policy::time_limit();
    const STRANGERS: usize = 20;
    let server = TestLogServer::start(Some("secret"));
    let streams: Vec<TcpStream> = (0..STRANGERS).map(|_| unfinished(&server, "/none", 0)).collect();
    let ping = [0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
    let begun = Instant::now();
    let heard = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for stream in &streams {
            // The connections end with the test.
            let (mut sends, mut reads) = (stream, stream);
            scope.spawn(move || _ = sends.write_all(&ping.repeat(60_000)));
            let heard = &heard;
            scope.spawn(move || {
                let mut bytes = [0; 4096];
                while let Ok(count @ 1..) = reads.read(&mut bytes) {
                    heard.fetch_add(count, Ordering::Relaxed);
                }
            });
        }
        while begun.elapsed() < Duration::from_secs(3) {
            // Each ping has an answer of as many bytes.
            let most = 262_144 * (begun.elapsed().as_secs() as usize + 2) + STRANGERS * 8192;
            let all = heard.load(Ordering::Relaxed);
            assert!(all <= most, "{all} bytes of answers in {:?}", begun.elapsed());
            // A client that comes meanwhile gives the password with its first bytes.
            server.client_with(Some("secret")).append("log", vec![1; 100]).unwrap();
            std::thread::sleep(Duration::from_millis(5));
        }
        streams.iter().for_each(|stream| _ = stream.shutdown(std::net::Shutdown::Both));
    });
    assert!(heard.load(Ordering::Relaxed) > STRANGERS * ping.len(), "they are served");
}

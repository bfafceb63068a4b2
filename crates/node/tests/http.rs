//! The HTTP gateway, from outside.

use amcast_kv::Partitions;
use amcast_kv::client::StoreServer;
use amcast_kv::status::{ServerStatus, ShardStatus};
use amcast_node::gateway::LocalBackend;
use amcast_node::gateway::http;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A page, with its head.
fn get(gateway: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(gateway).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn pages_tell_the_state() {
    let _limit = amcast_test_policy::time_limit();
    let backend = Arc::new(LocalBackend::new(3, 1));
    let status: Arc<dyn ServerStatus> = backend;
    let server = Arc::new(StoreServer::new(Partitions::by_slot(3).into(), 10, 2, None, status));
    let gateway = http::start(([127, 0, 0, 1], 0).into(), server).unwrap();
    let get = |path: &str| get(gateway.address(), path);
    assert!(get("/healthz").starts_with("HTTP/1.1 200"));
    assert!(get("/readyz").ends_with("ready\n"));
    let metrics = get("/metrics");
    assert!(metrics.contains("amcast_commands_total 0"), "{metrics}");
    assert!(metrics.contains("amcast_shard_keys{shard=\"2\"} 0"), "{metrics}");
    assert!(get("/").contains("<td>g2<td>"));
    assert!(get("/nothing").starts_with("HTTP/1.1 404"));
}

/// Of a cluster that serves, with something to say; whether its own node does.
struct Troubled(LocalBackend, Result<(), String>);

impl ServerStatus for Troubled {
    fn node(&self) -> String {
        ServerStatus::node(&self.0)
    }

    fn protocol(&self) -> String {
        self.0.protocol()
    }

    fn shards(&self) -> Vec<ShardStatus> {
        ServerStatus::shards(&self.0)
    }

    fn ready(&self) -> Result<(), String> {
        Ok(())
    }

    fn ready_here(&self) -> Result<(), String> {
        self.1.clone()
    }

    fn remarks(&self) -> Vec<String> {
        vec!["n1 is <b>down</b>".to_string()]
    }
}

#[test]
fn who_serves_says_what_is_to_be_looked_after_as_well() {
    let _limit = amcast_test_policy::time_limit();
    let status: Arc<dyn ServerStatus> = Arc::new(Troubled(LocalBackend::new(1, 1), Ok(())));
    let server = Arc::new(StoreServer::new(Partitions::by_slot(1).into(), 10, 0, None, status));
    let gateway = http::start(([127, 0, 0, 1], 0).into(), server).unwrap();
    let get = |path: &str| get(gateway.address(), path);
    let ready = get("/readyz");
    assert!(ready.starts_with("HTTP/1.1 200"), "it serves: {ready}");
    assert!(ready.ends_with("\r\nready\nn1 is <b>down</b>\n"), "{ready}");
    let page = get("/");
    assert!(page.contains("n1 is &lt;b&gt;down&lt;/b&gt;"), "{page}");
}

#[test]
fn whether_a_node_serves_is_told_apart_from_whether_the_cluster_does() {
    let _limit = amcast_test_policy::time_limit();
    let joins = Err("n0: r0 waits for a state".to_string());
    let status: Arc<dyn ServerStatus> = Arc::new(Troubled(LocalBackend::new(1, 1), joins));
    let server = Arc::new(StoreServer::new(Partitions::by_slot(1).into(), 10, 0, None, status));
    let gateway = http::start(([127, 0, 0, 1], 0).into(), server).unwrap();
    let get = |path: &str| get(gateway.address(), path);
    let here = get("/readyz");
    assert!(here.starts_with("HTTP/1.1 503"), "{here}");
    assert!(here.ends_with("\r\nn0: r0 waits for a state\n"), "{here}");
    let cluster = get("/readyz/cluster");
    assert!(cluster.starts_with("HTTP/1.1 200"), "{cluster}");
    let metrics = get("/metrics");
    assert!(metrics.contains("\namcast_ready 0\n"), "{metrics}");
    assert!(metrics.contains("\namcast_cluster_ready 1\n"), "{metrics}");
    assert!(get("/").contains("not ready: n0: r0 waits"));
}

/// Whether the gateway has closed it.
fn has_ended(stream: &mut TcpStream) -> bool {
    match stream.read(&mut [0; 64]) {
        Ok(n) => n == 0,
        Err(e) => e.kind() == ErrorKind::ConnectionReset,
    }
}

fn plain() -> http::HttpGateway {
    let status: Arc<dyn ServerStatus> = Arc::new(LocalBackend::new(1, 1));
    let server = Arc::new(StoreServer::new(Partitions::by_slot(1).into(), 10, 0, None, status));
    http::start(([127, 0, 0, 1], 0).into(), server).unwrap()
}

#[test]
fn connections_that_trickle_do_not_keep_others_out_and_make_room_for_them() {
    let _limit = amcast_test_policy::time_limit();
    let gateway = plain();
    let open = || TcpStream::connect(gateway.address()).unwrap();
    let mut slow: Vec<_> = (0..http::CONNECTIONS_MAX)
        .map(|n| {
            let mut stream = open();
            if n % 2 == 0 {
                stream.write_all(b"G").unwrap();
            }
            stream
        })
        .collect();
    // One that is served in between is not among those idle for longest.
    let mut kept = open();
    for _ in 0..100 {
        slow.iter_mut().for_each(|stream| _ = stream.write_all(b"E"));
        let begun = Instant::now();
        assert!(get(gateway.address(), "/healthz").starts_with("HTTP/1.1 200"));
        assert!(begun.elapsed() < Duration::from_secs(2));
    }
    kept.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    kept.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(has_ended(&mut slow[0]));
}

#[test]
fn a_request_that_does_not_come_whole_is_given_up_and_an_idle_connection_is_kept() {
    let _limit = amcast_test_policy::time_limit();
    let gateway = plain();
    let (mut slow, mut kept) = (
        TcpStream::connect(gateway.address()).unwrap(),
        TcpStream::connect(gateway.address()).unwrap(),
    );
    let mut ask = || {
        kept.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
        let mut bytes = [0; 1024];
        let read = kept.read(&mut bytes).unwrap();
        assert!(bytes[..read].starts_with(b"HTTP/1.1 200"));
    };
    ask();
    slow.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let begun = Instant::now();
    while !matches!(slow.read(&mut [0; 64]), Ok(0)) {
        let _ = slow.write_all(b"G");
        assert!(begun.elapsed() < Duration::from_secs(15), "it is still served");
    }
    assert!(begun.elapsed() > Duration::from_secs(4));
    ask();
}

#[test]
fn a_large_page_is_the_last_answer_of_its_connection() {
    let _limit = amcast_test_policy::time_limit();
    let gateway = plain();
    for path in ["/metrics", "/"] {
        let mut stream = TcpStream::connect(gateway.address()).unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n");
        // The kernel may say that the rest of it was not wanted.
        _ = stream.write_all(request.repeat(100).as_bytes());
        let mut answer = Vec::new();
        _ = stream.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert_eq!(answer.matches("HTTP/1.1 200").count(), 1, "{path}: {answer}");
    }
}

#[test]
fn a_connection_that_begins_with_http2_ends_without_an_answer() {
    let _limit = amcast_test_policy::time_limit();
    let gateway = plain();
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    for first in [1, 2, 3, preface.len()] {
        let mut stream = TcpStream::connect(gateway.address()).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.write_all(&preface[..first]).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        // The rest may find the connection closed.
        _ = stream.write_all(&preface[first..]);
        let mut answer = Vec::new();
        _ = stream.read_to_end(&mut answer);
        assert!(answer.is_empty(), "{answer:?}");
    }
    let mut stream = TcpStream::connect(gateway.address()).unwrap();
    stream.write_all(b"PROPFIND / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 405"), "{answer}");
}

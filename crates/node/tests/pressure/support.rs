//! Gateways under test, and clients that talk to them in bytes.

use amcast_core::{Outcome, ServiceAnswer};
use amcast_kv::Partitions;
use amcast_kv::client::StoreServer;
use amcast_kv::status::ServerStatus;
use amcast_node::gateway::redis::{self, RedisGateway, RedisGatewayConfig};
use amcast_node::gateway::{Backend, LocalBackend};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) fn config() -> RedisGatewayConfig {
    RedisGatewayConfig::new(([127, 0, 0, 1], 0).into(), 1)
}

pub(crate) fn serve(
    config: RedisGatewayConfig,
    backend: Arc<impl Backend>,
    clients: usize,
) -> RedisGateway {
    serve_with(config, backend, clients, Arc::new(LocalBackend::new(1, 1)))
}

pub(crate) fn serve_with(
    config: RedisGatewayConfig,
    backend: Arc<impl Backend>,
    clients: usize,
    status: Arc<dyn ServerStatus>,
) -> RedisGateway {
    let server =
        Arc::new(StoreServer::new(Partitions::by_slot(1).into(), clients, 0, None, status));
    redis::start(config, backend, server).expect("a free port")
}

/// As [`serve`], of so many shards.
pub(crate) fn serve_shards(
    config: RedisGatewayConfig,
    backend: Arc<impl Backend>,
    shards: usize,
) -> RedisGateway {
    let status = Arc::new(LocalBackend::new(shards, 1));
    let map = Partitions::by_slot(shards).into();
    let server = Arc::new(StoreServer::new(map, 10, 0, None, status));
    redis::start(config, backend, server).expect("a free port")
}

/// A backend, and a gateway of ten clients over it with these bounds.
pub(crate) fn bounded<B: Backend + Default>(
    bound: impl FnOnce(&mut RedisGatewayConfig),
) -> (Arc<B>, RedisGateway) {
    let (backend, mut config) = (Arc::new(B::default()), config());
    bound(&mut config);
    let gateway = serve(config, backend.clone(), 10);
    (backend, gateway)
}

pub(crate) fn local(config: RedisGatewayConfig) -> RedisGateway {
    serve(config, Arc::new(LocalBackend::new(1, 1)), 100)
}

pub(crate) fn connect(gateway: &RedisGateway) -> TcpStream {
    let stream = TcpStream::connect(gateway.address()).expect("the gateway listens");
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
}

pub(crate) fn line(reader: &mut BufReader<TcpStream>) -> String {
    let mut line = String::new();
    reader.read_line(&mut line).expect("an answer in time");
    line.trim_end().to_owned()
}

pub(crate) fn ask(stream: &TcpStream, command: &str) -> String {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    reader.get_mut().write_all(format!("{command}\r\n").as_bytes()).unwrap();
    line(&mut reader)
}

/// `SET key` with a value of `len` bytes.
pub(crate) fn set(key: &str, len: usize) -> Vec<u8> {
    let mut bytes =
        format!("*3\r\n$3\r\nSET\r\n${}\r\n{key}\r\n${len}\r\n", key.len()).into_bytes();
    bytes.resize(bytes.len() + len, b'x');
    bytes.extend_from_slice(b"\r\n");
    bytes
}

/// Reads all until the end; true if it was an orderly one.
pub(crate) fn rest(stream: &mut TcpStream, to: &mut Vec<u8>) -> bool {
    match stream.read_to_end(to) {
        Ok(_) => true,
        Err(e) if e.kind() == ErrorKind::ConnectionReset => false,
        Err(e) => panic!("no end in time: {e}"),
    }
}

/// How many bytes come before the gateway ends the connection, in an orderly way or by a reset.
pub(crate) fn bytes_until_cut_off(stream: &mut TcpStream) -> usize {
    let mut all = Vec::new();
    rest(stream, &mut all);
    all.len()
}

/// Whether the gateway ends the connection within a second, before it says anything.
pub(crate) fn is_cut_off(stream: &mut TcpStream) -> bool {
    stream.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    match stream.read(&mut [0; 8]) {
        Ok(0) => true,
        Err(e) if e.kind() == ErrorKind::ConnectionReset => true,
        Err(e) if e.kind() == ErrorKind::WouldBlock => false,
        other => panic!("{other:?}"),
    }
}

/// The answer of a command that was executed.
pub(crate) fn done(bytes: &[u8]) -> ServiceAnswer<'_> {
    ServiceAnswer::borrowed(Outcome::Executed, bytes)
}

/// Waits until the gateway has no such connection any more.
pub(crate) fn wait_until_gone(gateway: &RedisGateway, name: &str) {
    let until = Instant::now() + Duration::from_secs(20);
    let other = connect(gateway);
    let mut reader = BufReader::new(other.try_clone().unwrap());
    loop {
        (&other).write_all(b"CLIENT LIST\r\n").unwrap();
        let bytes = line(&mut reader)[1..].parse::<usize>().unwrap();
        let mut list = vec![0; bytes + 2];
        reader.read_exact(&mut list).unwrap();
        if !String::from_utf8(list).unwrap().contains(name) {
            return;
        }
        assert!(Instant::now() < until, "{name} is still served");
        std::thread::sleep(Duration::from_millis(5));
    }
}

//! The Redis gateway before a client has given the password: little is taken from it, and not for long.

use amcast_kv::Partitions;
use amcast_kv::client::StoreServer;
use amcast_kv::status::ServerStatus;
use amcast_node::gateway::LocalBackend;
use amcast_node::gateway::redis::{self, RedisGateway};
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A gateway with a password.
fn gateway(clients_max: usize) -> RedisGateway {
    let backend = Arc::new(LocalBackend::new(1, 1));
    let status: Arc<dyn ServerStatus> = backend.clone();
    let map = Arc::new(Partitions::by_slot(1));
    let server = Arc::new(StoreServer::new(map, clients_max, 0, Some("secret".into()), status));
    redis::start(redis::RedisGatewayConfig::new(([127, 0, 0, 1], 0).into(), 1), backend, server)
        .unwrap()
}

fn connect(gateway: &RedisGateway) -> BufReader<TcpStream> {
    let stream = TcpStream::connect(gateway.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    BufReader::new(stream)
}

fn ask(c: &mut BufReader<TcpStream>, commands: &str) -> String {
    // One that is cut off says so by its answer.
    let _ = c.get_mut().write_all(commands.as_bytes());
    let mut line = String::new();
    match c.read_line(&mut line) {
        Err(e) if e.kind() == ErrorKind::ConnectionReset => {}
        read => _ = read.unwrap(),
    }
    line.trim_end().to_owned()
}

/// Whether nothing more comes because the connection has ended.
fn has_ended(c: &mut BufReader<TcpStream>) -> bool {
    match c.get_mut().read(&mut [0; 64]) {
        Ok(n) => n == 0,
        Err(e) => e.kind() == ErrorKind::ConnectionReset,
    }
}

#[test]
fn a_stranger_may_send_few_arguments_of_few_bytes() {
    let _limit = amcast_test_policy::time_limit();
    let gateway = gateway(100);
    let many = format!("*200000\r\n{}", "$0\r\n\r\n".repeat(1000));
    let large = "*2\r\n$4\r\nAUTH\r\n$16385\r\n".to_owned();
    let ends = ["multibulk length", "bulk length"];
    for (commands, end) in [many, large].into_iter().zip(ends) {
        let mut c = connect(&gateway);
        assert_eq!(ask(&mut c, &commands), format!("-ERR Protocol error: unauthenticated {end}"));
        assert!(has_ended(&mut c));
    }
    let mut c = connect(&gateway);
    assert_eq!(ask(&mut c, "AUTH secret\r\n"), "+OK");
    let value = "x".repeat(100_000);
    assert_eq!(
        ask(&mut c, &format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$100000\r\n{value}\r\n")),
        "+OK"
    );
}

#[test]
fn a_stranger_has_few_seconds_and_others_have_all_the_time() {
    let _limit = amcast_test_policy::time_limit();
    let gateway = gateway(100);
    let (mut known, mut strange, mut trickles) =
        (connect(&gateway), connect(&gateway), connect(&gateway));
    assert_eq!(ask(&mut known, "AUTH secret\r\n"), "+OK");
    let begun = Instant::now();
    while gateway.connections() > 1 {
        assert!(begun.elapsed() < Duration::from_secs(15));
        let _ = trickles.get_mut().write_all(b"\r\n");
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(begun.elapsed() > Duration::from_secs(5));
    assert!(has_ended(&mut strange) && has_ended(&mut trickles));
    assert_eq!(ask(&mut known, "PING\r\n"), "+PONG");
}

#[test]
fn strangers_are_few_and_one_more_closes_the_one_that_was_idle_longest() {
    let _limit = amcast_test_policy::time_limit();
    let gateway = gateway(40);
    let mut known = connect(&gateway);
    assert_eq!(ask(&mut known, "AUTH secret\r\n"), "+OK");
    let mut strange = Vec::new();
    for _ in 0..20 {
        let mut c = connect(&gateway);
        assert_eq!(ask(&mut c, "GET a\r\n"), "-NOAUTH Authentication required.");
        strange.push(c);
    }
    assert_eq!(ask(&mut strange[0], "GET a\r\n"), "-NOAUTH Authentication required.");
    // Far more than the gateway serves: none is refused, and who has the password is let in.
    for _ in 0..100 {
        let mut c = connect(&gateway);
        assert_eq!(ask(&mut c, "GET a\r\n"), "-NOAUTH Authentication required.");
        strange.push(c);
    }
    let mut other = connect(&gateway);
    assert_eq!(ask(&mut other, "AUTH secret\r\n"), "+OK");
    assert!(has_ended(&mut strange[1]) && has_ended(&mut strange[0]));
    assert_eq!(ask(strange.last_mut().unwrap(), "GET a\r\n"), "-NOAUTH Authentication required.");
    assert_eq!(ask(&mut known, "PING\r\n"), "+PONG");
    assert!(gateway.connections() <= 22, "{}", gateway.connections());
}

#[test]
fn passwords_that_are_tried_are_answered_late_and_counted() {
    let _limit = amcast_test_policy::time_limit();
    let gateway = gateway(100);
    let (mut c, begun) = (connect(&gateway), Instant::now());
    c.get_mut().write_all("AUTH wrong\r\n".repeat(1000).as_bytes()).unwrap();
    for ms in [250, 750, 1750] {
        assert!(ask(&mut c, "").starts_with("-WRONGPASS"));
        assert!(begun.elapsed() >= Duration::from_millis(ms), "{:?}", begun.elapsed());
    }
    // Others are not held up.
    let (mut other, begun) = (connect(&gateway), Instant::now());
    assert_eq!(ask(&mut other, "AUTH secret\r\n"), "+OK");
    assert!(begun.elapsed() < Duration::from_millis(200));
    let length: usize = ask(&mut other, "INFO stats\r\n")[1..].parse().unwrap();
    let mut text = vec![0; length];
    other.read_exact(&mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    // The fourth was looked at, and is not answered yet.
    assert!(text.contains("acl_access_denied_auth:4\r\n"), "{text}");
}

/// The wrong passwords that were compared, as a client that is let in reads it.
fn wrong_passwords(c: &mut BufReader<TcpStream>) -> u128 {
    let length: usize = ask(c, "INFO stats\r\n")[1..].parse().unwrap();
    let mut text = vec![0; length + 2];
    c.read_exact(&mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    let count = text.lines().find_map(|line| line.strip_prefix("acl_access_denied_auth:"));
    count.unwrap().parse().unwrap()
}

#[test]
fn many_connections_try_passwords_at_the_pace_of_few() {
    let _limit = amcast_test_policy::time_limit();
    let gateway = gateway(1000);
    let mut known = connect(&gateway);
    assert_eq!(ask(&mut known, "AUTH secret\r\n"), "+OK");
    let mut strange: Vec<_> = (0..240).map(|_| connect(&gateway)).collect();
    for c in &mut strange {
        assert_eq!(ask(c, "GET a\r\n"), "-NOAUTH Authentication required.");
    }
    let begun = Instant::now();
    for c in &mut strange {
        c.get_mut().write_all(b"AUTH wrong\r\n").unwrap();
    }
    loop {
        let compared = wrong_passwords(&mut known);
        let most = 64 + begun.elapsed().as_millis() * 1024 / 1000 + 1;
        assert!(compared <= most, "{compared} were compared, and {most} may be");
        if compared == 240 {
            break;
        }
    }
    for c in &mut strange {
        assert!(ask(c, "").starts_with("-WRONGPASS"));
    }
}

#[test]
fn who_tries_passwords_without_end_keeps_no_client_with_the_right_one_out() {
    let _limit = amcast_test_policy::time_limit();
    let gateway = gateway(1000);
    let address = gateway.address();
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let attack = || {
            let mut open = VecDeque::new();
            while !ends.load(Ordering::Relaxed) {
                let Ok(mut stream) = TcpStream::connect(address) else { continue };
                let _ = stream.write_all(b"AUTH wrong\r\n");
                open.push_back(stream);
                if open.len() > 300 {
                    open.pop_front();
                }
            }
        };
        scope.spawn(attack);
        for _ in 0..5 {
            // As clients do, it comes again when it is cut off.
            let is_in = || ask(&mut connect(&gateway), "AUTH secret\r\n") == "+OK";
            while !is_in() {}
        }
        ends.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_stranger_who_pipelines_is_held_back_and_clients_with_the_password_are_not() {
    let _limit = amcast_test_policy::time_limit();
    let gateway = gateway(100);
    let mut known = connect(&gateway);
    assert_eq!(ask(&mut known, "AUTH secret\r\n"), "+OK");
    let (mut c, begun) = (connect(&gateway), Instant::now());
    // Empty commands and empty lines are work as well.
    let mut commands = "GET a\r\n".repeat(140);
    commands.push_str(&"*0\r\n\r\n".repeat(40));
    commands.push_str("AUTH secret\r\n");
    c.get_mut().write_all(commands.as_bytes()).unwrap();
    for answers in [64, 64, 12] {
        let round = Instant::now();
        for _ in 0..answers {
            assert_eq!(ask(&mut c, ""), "-NOAUTH Authentication required.");
        }
        // They come at once, and those of the next round later.
        assert!(round.elapsed() < Duration::from_millis(1500), "{:?}", round.elapsed());
    }
    assert!(begun.elapsed() >= Duration::from_millis(1900), "{:?}", begun.elapsed());
    assert_eq!(ask(&mut known, "PING\r\n"), "+PONG");
    assert_eq!(ask(&mut c, ""), "+OK");
    assert!(begun.elapsed() >= Duration::from_millis(2900), "{:?}", begun.elapsed());
    // It is held back no more.
    let begun = Instant::now();
    c.get_mut().write_all("PING\r\n".repeat(1000).as_bytes()).unwrap();
    (0..1000).for_each(|_| assert_eq!(ask(&mut c, ""), "+PONG"));
    assert!(begun.elapsed() < Duration::from_millis(900), "{:?}", begun.elapsed());
}

//! A real etcd: other processes see a published entry, the entry ends with its lease, and it is
//! published again after etcd was unreachable. Where etcd is not installed, the test says so and
//! passes.

mod server;

use amcast_coordination::{
    CoordinationRegistry, EntryLifetime, EtcdOptions, EtcdRegistry, RegistrySnapshot,
};
use server::EtcdServer;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(15);

const LEASE: Duration = Duration::from_secs(2);

fn options(server: &EtcdServer) -> EtcdOptions {
    EtcdOptions {
        endpoints: vec![server.url()],
        prefix: "/amcast/4711/".to_string(),
        user: None,
        tls: server.tls(),
        lease: LEASE,
    }
}

/// A registry, and how often it told of changes.
fn registry(options: EtcdOptions) -> (EtcdRegistry, Arc<AtomicUsize>) {
    let told = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&told);
    let on_change = Box::new(move |_: &RegistrySnapshot| _ = count.fetch_add(1, Ordering::Relaxed));
    (EtcdRegistry::begin(options, on_change).expect("the options are right"), told)
}

fn wait(what: &str, registry: &EtcdRegistry, so: impl Fn(&RegistrySnapshot) -> bool) {
    let begun = Instant::now();
    while !so(&registry.snapshot()) {
        assert!(begun.elapsed() < PATIENCE, "{what}: {:?}", registry.snapshot());
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn has(known: &RegistrySnapshot, key: &str, value: &str) -> bool {
    known.is_current && known.entries.get(key).is_some_and(|v| v == value)
}

#[test]
fn what_one_says_the_others_see_until_its_lease_ends() {
    let _limit = amcast_test_policy::time_limit();
    let test = "what_one_says_the_others_see_until_its_lease_ends";
    let Some(server) = EtcdServer::start(test, "plain", false) else { return };
    let (a, _) = registry(options(&server));
    let (b, told) = registry(options(&server));
    a.publish("nodes/n0", Some("here"), EntryLifetime::Permanent);
    a.publish("alive/n0", Some("1"), EntryLifetime::Leased);
    wait("it is seen", &b, |k| has(k, "nodes/n0", "here") && has(k, "alive/n0", "1"));
    assert!(told.load(Ordering::Relaxed) > 0);
    a.publish("nodes/n0", Some("there"), EntryLifetime::Permanent);
    wait("it is changed", &b, |k| has(k, "nodes/n0", "there"));
    a.publish("nodes/n9", None, EntryLifetime::Permanent);
    // Longer than a lease: it is renewed.
    std::thread::sleep(LEASE * 2);
    assert!(has(&b.snapshot(), "alive/n0", "1"));
    drop(a);
    wait("who ends is gone", &b, |k| k.is_current && !k.entries.contains_key("alive/n0"));
    assert!(has(&b.snapshot(), "nodes/n0", "there"), "where it was stays");
    let (c, _) = registry(options(&server));
    assert_eq!(c.claim("map", None, "three shards").as_deref(), Ok("three shards"));
    assert_eq!(b.claim("map", None, "four shards").as_deref(), Ok("three shards"));
    assert_eq!(b.claim("map", Some("three shards"), "five").as_deref(), Ok("five"));
}

#[test]
fn what_was_known_stays_while_etcd_is_away_and_what_was_said_is_said_when_it_is_back() {
    let _limit = amcast_test_policy::time_limit();
    let test = "what_was_known_stays_while_etcd_is_away_and_what_was_said_is_said_when_it_is_back";
    let Some(mut server) = EtcdServer::start(test, "away", false) else { return };
    let (a, _) = registry(options(&server));
    let (b, _) = registry(options(&server));
    a.publish("nodes/n0", Some("here"), EntryLifetime::Permanent);
    a.publish("alive/n0", Some("1"), EntryLifetime::Leased);
    wait("it is seen", &b, |k| has(k, "nodes/n0", "here") && has(k, "alive/n0", "1"));
    server.stop();
    wait("it is noticed", &b, |k| !k.is_current);
    assert_eq!(b.snapshot().entries.len(), 2, "what was known stays known");
    assert!(b.claim("map", None, "x").is_err());
    a.publish("nodes/n0", Some("elsewhere"), EntryLifetime::Permanent);
    // Longer than the lease: in etcd it has ended meanwhile.
    std::thread::sleep(LEASE * 2);
    server.start_again();
    wait("it is said again", &b, |k| has(k, "nodes/n0", "elsewhere") && has(k, "alive/n0", "1"));
}

#[test]
fn etcd_is_reached_over_tls_with_certificates_on_both_sides_and_with_a_password() {
    let _limit = amcast_test_policy::time_limit();
    let test = "etcd_is_reached_over_tls_with_certificates_on_both_sides_and_with_a_password";
    let Some(server) = EtcdServer::start(test, "tls", true) else { return };
    let (a, _) = registry(options(&server));
    a.publish("nodes/n0", Some("here"), EntryLifetime::Permanent);
    wait("it is seen", &a, |k| has(k, "nodes/n0", "here"));
    // Without a certificate of one's own nobody is let in.
    let mut stranger = options(&server);
    stranger.tls.as_mut().expect("it has").own = None;
    let (s, _) = registry(stranger);
    std::thread::sleep(Duration::from_millis(1500));
    assert!(!s.snapshot().is_current, "{:?}", s.snapshot());
    if !server.ask_for_password("root", "secret") {
        return amcast_test_policy::skip(test, "in part: no etcdctl to set a password with");
    }
    let user = |password: &str| Some(("root".to_string(), password.to_string()));
    let (right, _) = registry(EtcdOptions { user: user("secret"), ..options(&server) });
    wait("the password is right", &right, |k| has(k, "nodes/n0", "here"));
    let (wrong, _) = registry(EtcdOptions { user: user("guess"), ..options(&server) });
    std::thread::sleep(Duration::from_millis(1500));
    assert!(!wrong.snapshot().is_current, "{:?}", wrong.snapshot());
}

#[test]
fn a_server_that_takes_connections_and_says_nothing_is_passed_over() {
    let _limit = amcast_test_policy::time_limit();
    let test = "a_server_that_takes_connections_and_says_nothing_is_passed_over";
    let Some(server) = EtcdServer::start(test, "silent", true) else { return };
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("there is a port");
    let at = format!("https://{}", silent.local_addr().expect("it has an address"));
    let both = EtcdOptions { endpoints: vec![at.clone(), server.url()], ..options(&server) };
    let (a, _) = registry(both);
    a.publish("nodes/n0", Some("here"), EntryLifetime::Permanent);
    wait("the other one is there", &a, |k| has(k, "nodes/n0", "here"));
    // Nor does anybody wait for it who ends.
    let (b, _) = registry(EtcdOptions { endpoints: vec![at], ..options(&server) });
    std::thread::sleep(Duration::from_millis(200));
    let begun = Instant::now();
    drop(b);
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
}

//! Labs of several hosts: rates, delays, losses, cuts, partitions, a router, and what remains of them afterwards.

use amcast_hosts::{Direction, HostLab, LabError, LabFeature, LinkSettings, UdpGoodput};
use amcast_test_policy::{skip, time_limit};
use std::io::{BufRead, BufReader, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long a measurement lasts.
const SECOND: Duration = Duration::from_secs(1);

/// How long no datagram arrives on a link that is cut.
const SILENCE: Duration = Duration::from_millis(300);

/// How long anything here may take.
const PATIENCE: Duration = Duration::from_secs(20);

const GROUP: Ipv4Addr = Ipv4Addr::new(239, 99, 7, 1);

/// Measurements of rates take turns, for they share this machine's cores.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Skips the test of this name if this machine does not grant these features. Where it does, each error is a failure.
#[track_caller]
fn is_skipped(test: &str, features: &[LabFeature]) -> bool {
    let missing = HostLab::missing_feature(features);
    missing.inspect(|why| skip(test, why)).is_some()
}

/// A lab on a machine that grants what it needs.
fn lab_of(hosts: usize, links: LinkSettings) -> HostLab {
    HostLab::new(hosts, links).unwrap_or_else(|e| panic!("{e}"))
}

/// A socket of a host.
fn socket(lab: &HostLab, host: usize) -> UdpSocket {
    let host = lab.host(host);
    let socket = host.run(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 7400))).unwrap();
    let socket = socket.expect("the host has the port");
    socket.set_read_timeout(Some(SILENCE)).unwrap();
    socket
}

/// Whether a datagram from one socket to another address arrives at the other socket. Others that arrive meanwhile, late,
/// do not count.
fn arrives(from: &UdpSocket, to: &UdpSocket, address: Ipv4Addr) -> bool {
    static SENT: AtomicU64 = AtomicU64::new(0);
    let sent = SENT.fetch_add(1, Ordering::Relaxed).to_ne_bytes();
    from.send_to(&sent, (address, 7400)).expect("the host takes it");
    let begin = Instant::now();
    while begin.elapsed() < SILENCE {
        let mut number = [0; 8];
        match to.recv(&mut number) {
            Ok(_) if number == sent => return true,
            Ok(_) => {}
            // A signal ends the wait of a socket that has a limit of time.
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => break,
            Err(e) => panic!("{e}"),
        }
    }
    false
}

/// By sender and receiver: whether datagrams arrive.
fn connectivity(lab: &HostLab) -> Vec<Vec<bool>> {
    let sockets: Vec<UdpSocket> = (0..lab.hosts()).map(|host| socket(lab, host)).collect();
    let reaches = |from: usize, to: usize| {
        from == to || arrives(&sockets[from], &sockets[to], lab.host(to).address())
    };
    let row = |from| (0..lab.hosts()).map(|to| reaches(from, to)).collect();
    (0..lab.hosts()).map(row).collect()
}

/// Whether a goodput is that of the links' rate: never more, and seldom less, for the machine has other work, too.
fn is_of_rate(goodput: &UdpGoodput, links: &LinkSettings) -> bool {
    let most = links.udp_goodput_max(goodput.payload_bytes).expect("they have a rate");
    (0.9 * most..1.02 * most).contains(&goodput.payload_bytes_per_s)
}

/// No measurement may show more datagrams than links of this rate pass in that time, after a full bucket of tokens. It
/// counts from the first send to the last arrival, which a busy machine can only make longer.
fn assert_limited(goodput: &UdpGoodput, links: &LinkSettings) {
    let rate = links.rate_bits_per_s.expect("they have a rate") as f64 / 8.0;
    let most = links.udp_goodput_max(goodput.payload_bytes).expect("they have a rate");
    // The rate of payload, and the bucket: 16 KiB, or a millisecond's worth.
    let passed = 1.01 * most * goodput.lasted.as_secs_f64() + (rate / 1000.0).max(16384.0);
    let received = goodput.received as f64 * goodput.payload_bytes as f64;
    assert!(
        received <= passed,
        "{received} bytes of payload, and the links pass {passed}: {goodput:?}"
    );
}

/// Measures until it is as wanted, a few times: a machine with other work may be too slow for a second. Each measurement
/// has to pass `check`.
fn measured(
    lab: &HostLab,
    [from, to]: [usize; 2],
    check: impl Fn(&UdpGoodput),
    is_wanted: impl Fn(&UdpGoodput) -> bool,
) -> UdpGoodput {
    let mut others = Vec::new();
    while others.len() < 10 {
        let goodput = lab.udp_goodput(from, to, SECOND).unwrap_or_else(|e| panic!("{e}"));
        println!("{:.2} Mbit/s, lost {:.4}", goodput.mbit_per_s(), goodput.lost_share());
        check(&goodput);
        if is_wanted(&goodput) {
            return goodput;
        }
        others.push(goodput);
    }
    panic!("not as wanted: {others:?}");
}

/// Measures a link that has to have the rate of these.
fn assert_rate(lab: &HostLab, ends: [usize; 2], links: &LinkSettings) {
    let check = |goodput: &_| assert_limited(goodput, links);
    measured(lab, ends, check, |goodput| is_of_rate(goodput, links));
}

/// Measures a link that has no limit: faster than those of tests with one.
fn assert_unlimited(lab: &HostLab, ends: [usize; 2]) {
    let fast = measured(lab, ends, |_| {}, |goodput| goodput.mbit_per_s() > 25.0);
    println!("without a limit {:.0} Mbit/s", fast.mbit_per_s());
}

#[test]
fn links_have_the_rate_that_was_asked_for() {
    let _turn = turn();
    let _limit = time_limit();
    if is_skipped("links_have_the_rate_that_was_asked_for", &[LabFeature::Rates]) {
        return;
    }
    for mbit in [1, 10, 50] {
        let links = LinkSettings::of_rate(mbit * 1_000_000);
        println!("{mbit} Mbit/s asked for");
        assert_rate(&lab_of(2, links.clone()), [0, 1], &links);
    }
    // A rate that a busy machine may not reach is a limit all the same.
    let links = LinkSettings::of_rate(200_000_000);
    let lab = lab_of(2, links.clone());
    for _ in 0..3 {
        measured(&lab, [0, 1], |goodput| assert_limited(goodput, &links), |_| true);
    }
}

#[test]
fn a_stream_carries_less_than_datagrams_and_most_of_the_rate() {
    let _turn = turn();
    let _limit = time_limit();
    let test = "a_stream_carries_less_than_datagrams_and_most_of_the_rate";
    if is_skipped(test, &[LabFeature::Rates]) {
        return;
    }
    let links = LinkSettings::of_rate(10_000_000);
    let lab = lab_of(2, links.clone());
    let most = links.udp_goodput_max(1472).expect("they have a rate");
    let mut seen = Vec::new();
    while seen.len() < 10 {
        let part = lab.tcp_goodput(0, 1, SECOND).unwrap().payload_bytes_per_s / most;
        println!("{part:.3} of what datagrams carry");
        // A read may bring bytes that had waited before the time that counts.
        assert!(part < 1.05, "{part}");
        if part > 0.9 {
            return;
        }
        seen.push(part);
    }
    panic!("too slow: {seen:?}");
}

#[test]
fn a_link_changes_its_rate_and_each_direction_has_it() {
    let _turn = turn();
    let _limit = time_limit();
    if is_skipped("a_link_changes_its_rate_and_each_direction_has_it", &[LabFeature::Rates]) {
        return;
    }
    let lab = lab_of(3, LinkSettings::default());
    let slow = LinkSettings::of_rate(20_000_000);
    lab.set_rate(1, slow.rate_bits_per_s).unwrap();
    assert_rate(&lab, [0, 1], &slow);
    assert_rate(&lab, [1, 2], &slow);
    assert_unlimited(&lab, [0, 2]);
    lab.set_rate(1, None).unwrap();
    assert_unlimited(&lab, [0, 1]);
}

#[test]
fn a_rate_that_one_end_of_a_link_took_alone_is_lifted_all_the_same() {
    let _turn = turn();
    let _limit = time_limit();
    let test = "a_rate_that_one_end_of_a_link_took_alone_is_lifted_all_the_same";
    if is_skipped(test, &[LabFeature::Rates]) {
        return;
    }
    let lab = lab_of(2, LinkSettings::default());
    let switch = namespaces(&lab).pop().expect("the switch is the last one");
    let rename = |from: &str, to: &str| {
        lab.unplug(1).unwrap();
        let mut ip = Command::new("ip");
        ip.args(["-n", &switch, "link", "set", from, "name", to]);
        assert!(ip.status().unwrap().success(), "{from} is not renamed to {to}");
    };
    lab.unplug(0).unwrap();
    rename("port0", "away");
    let slow = LinkSettings::of_rate(1_000_000).rate_bits_per_s;
    assert!(matches!(lab.set_rate(0, slow), Err(LabError::Refused { .. })));
    rename("away", "port0");
    lab.plug_in(0).unwrap();
    lab.plug_in(1).unwrap();
    lab.set_rate(0, None).unwrap();
    assert_unlimited(&lab, [0, 1]);
}

#[test]
fn a_link_delays_each_frame_and_keeps_its_rate() {
    let _turn = turn();
    let _limit = time_limit();
    let delay = Duration::from_millis(10);
    let links = LinkSettings { delay, ..LinkSettings::of_rate(50_000_000) };
    let features = [LabFeature::Rates, LabFeature::Delays];
    if is_skipped("a_link_delays_each_frame_and_keeps_its_rate", &features) {
        return;
    }
    let lab = lab_of(2, links.clone());
    let ends = [socket(&lab, 0), socket(&lab, 1)];
    let round_trip = |_| {
        let begin = Instant::now();
        let there = arrives(&ends[0], &ends[1], lab.host(1).address());
        (there && arrives(&ends[1], &ends[0], lab.host(0).address())).then(|| begin.elapsed())
    };
    let least = (0..20).filter_map(round_trip).min().expect("some are in time");
    println!("round trip {least:?}");
    assert!(least >= 2 * delay && least < 3 * delay, "{least:?}");
    let check = |goodput: &_| assert_limited(goodput, &links);
    let is_wanted = |g: &UdpGoodput| is_of_rate(g, &links) && g.lost_share() < 0.001;
    measured(&lab, [0, 1], check, is_wanted);
    // A connection over TCP, whose checksums the kernel leaves to the device.
    let at = SocketAddr::from((lab.host(1).address(), 7401));
    let listener = lab.host(1).run(|| TcpListener::bind(at)).unwrap().unwrap();
    lab.host(0).run(|| TcpStream::connect_timeout(&at, PATIENCE)).unwrap().unwrap();
    listener.accept().unwrap();
}

#[test]
fn a_link_loses_its_share_of_datagrams() {
    let _turn = turn();
    let _limit = time_limit();
    let features = [LabFeature::Rates, LabFeature::Faults];
    if is_skipped("a_link_loses_its_share_of_datagrams", &features) {
        return;
    }
    let links = LinkSettings { loss_ppm: 100_000, ..LinkSettings::of_rate(100_000_000) };
    let lab = lab_of(2, links);
    // A tenth, and six standard deviations less at least: of 8000 datagrams they are 0.02.
    let deviations = |goodput: &UdpGoodput| 6.0 * (0.09 / goodput.sent.max(1) as f64).sqrt();
    let check = |g: &UdpGoodput| {
        assert!(g.lost_share() >= 0.1 - deviations(g), "too few are lost: {g:?}");
    };
    measured(&lab, [0, 1], check, |g| g.lost_share() <= 0.1 + deviations(g) && g.sent > 2000);
    lab.set_loss(1, 0).unwrap();
    measured(&lab, [0, 1], |_| {}, |goodput| goodput.lost_share() < 0.001);
}

#[test]
fn a_cut_of_one_way_leaves_the_other_way() {
    let _limit = time_limit();
    if is_skipped("a_cut_of_one_way_leaves_the_other_way", &[LabFeature::Faults]) {
        return;
    }
    let lab = lab_of(3, LinkSettings::default());
    lab.cut(0, 1, Direction::OneWay).unwrap();
    let one_way = [[true, false, true], [true; 3], [true; 3]];
    assert_connectivity(&lab, one_way);
    lab.cut(0, 1, Direction::BothWays).unwrap();
    assert_connectivity(&lab, [[true, false, true], [false, true, true], [true; 3]]);
    lab.heal().unwrap();
    assert_connectivity(&lab, [[true; 3]; 3]);
    let goodput = lab.udp_goodput(0, 1, SECOND / 10).unwrap();
    assert!(goodput.received > 0, "{goodput:?}");
    lab.cut(0, 1, Direction::OneWay).unwrap();
    let goodput = lab.udp_goodput(0, 1, SECOND / 10).unwrap();
    assert_eq!((goodput.received, goodput.payload_bytes_per_s), (0, 0.0), "{goodput:?}");
}

#[test]
fn tcp_ports_that_are_closed_take_no_connection_and_others_of_the_host_do() {
    let _limit = time_limit();
    let test = "tcp_ports_that_are_closed_take_no_connection_and_others_of_the_host_do";
    if is_skipped(test, &[LabFeature::Faults]) {
        return;
    }
    let lab = lab_of(3, LinkSettings::default());
    let at = |port| SocketAddr::from((lab.host(1).address(), port));
    let listen = |port| lab.host(1).run(|| TcpListener::bind(at(port)).expect("it is free"));
    let _listeners = [7000, 7001, 7002].map(|port| listen(port).expect("the host is there"));
    let takes = |from: usize| {
        let connects = |port| TcpStream::connect_timeout(&at(port), SILENCE).is_ok();
        lab.host(from).run(|| [7000, 7001, 7002].map(connects)).expect("the host is there")
    };
    lab.close_ports(1, 7001..=7001).unwrap();
    assert_eq!([takes(0), takes(2)], [[true, false, true]; 2]);
    lab.close_ports(1, 7001..=7002).unwrap();
    assert_eq!(takes(0), [true, false, false]);
    lab.heal().unwrap();
    assert_eq!(takes(0), [true; 3]);
}

#[test]
fn a_partition_separates_its_sides_until_it_is_healed() {
    let _limit = time_limit();
    let features = [LabFeature::Faults, LabFeature::Delays];
    if is_skipped("a_partition_separates_its_sides_until_it_is_healed", &features) {
        return;
    }
    for delay in [Duration::ZERO, Duration::from_millis(1)] {
        let lab = lab_of(4, LinkSettings { delay, ..LinkSettings::default() });
        assert_connectivity(&lab, [[true; 4]; 4]);
        lab.partition(&[&[0, 3]]).unwrap();
        let side = [true, false, false, true];
        let other = side.map(|is_in| !is_in);
        assert_connectivity(&lab, [side, other, other, side]);
        lab.heal().unwrap();
        assert_connectivity(&lab, [[true; 4]; 4]);
    }
}

#[test]
fn a_pulled_plug_separates_one_host() {
    let _limit = time_limit();
    if is_skipped("a_pulled_plug_separates_one_host", &[]) {
        return;
    }
    let lab = lab_of(3, LinkSettings::default());
    lab.unplug(2).unwrap();
    let sockets: Vec<UdpSocket> = (0..3).map(|host| socket(&lab, host)).collect();
    wait_until("the others hear each other", || {
        arrives(&sockets[0], &sockets[1], lab.host(1).address())
    });
    assert!(!arrives(&sockets[0], &sockets[2], lab.host(2).address()));
    drop(sockets);
    lab.plug_in(2).unwrap();
    assert_connectivity(&lab, [[true; 3]; 3]);
}

/// Datagrams arrive between these hosts, and no others. One that should arrive may be late on a busy machine, and has
/// several tries; one that should not fails the test at once.
fn assert_connectivity<const N: usize>(lab: &HostLab, expected: [[bool; N]; N]) {
    let begin = Instant::now();
    loop {
        let seen = connectivity(lab);
        let pairs = (0..N).flat_map(|from| (0..N).map(move |to| (from, to)));
        let mut leaks = pairs.filter(|&(from, to)| seen[from][to] && !expected[from][to]);
        assert_eq!(leaks.next(), None, "a datagram passes between these hosts");
        if seen == expected {
            return;
        }
        assert!(begin.elapsed() < PATIENCE, "not in time: {expected:?}, but {seen:?}");
    }
}

/// Whether a datagram of host 0 to a group reaches a member on host 1, within some tries.
fn multicast_arrives(lab: &HostLab, tries: usize) -> bool {
    let ends = [socket(lab, 0), socket(lab, 1)];
    ends[1].join_multicast_v4(&GROUP, &lab.host(1).address()).unwrap();
    ends[0].set_multicast_ttl_v4(8).unwrap();
    let unicast = || arrives(&ends[0], &ends[1], lab.host(1).address());
    wait_until("datagrams to one host arrive", unicast);
    (0..tries).any(|_| arrives(&ends[0], &ends[1], GROUP))
}

#[test]
fn a_switch_passes_multicast_on_and_a_router_does_not() {
    let _limit = time_limit();
    let features = [LabFeature::Faults, LabFeature::Delays];
    if is_skipped("a_switch_passes_multicast_on_and_a_router_does_not", &features) {
        return;
    }
    for delay in [Duration::ZERO, Duration::from_millis(1)] {
        let links = LinkSettings { delay, ..LinkSettings::default() };
        let switched = lab_of(2, links.clone());
        let routed = HostLab::with_router_without_multicast(2, links);
        let routed = routed.unwrap_or_else(|e| panic!("{e}"));
        assert!(multicast_arrives(&switched, 30));
        switched.flood_multicast().unwrap();
        assert!(multicast_arrives(&switched, 30), "the switch passes it to all");
        assert!(!multicast_arrives(&routed, 5));
        assert!(routed.flood_multicast().is_err(), "there is no switch");
        routed.cut(0, 1, Direction::OneWay).unwrap();
        assert_connectivity(&routed, [[true, false], [true, true]]);
    }
}

/// The names of the namespaces of a lab: those of its hosts, and of its switch.
fn namespaces(lab: &HostLab) -> Vec<String> {
    let shown = format!("{lab:?}");
    let words = shown.split('"').filter(|word| word.starts_with("amcast-"));
    words.map(str::to_string).collect()
}

/// The namespaces of labs that a process owns.
fn namespaces_of(process: u32) -> usize {
    let owner = format!("amcast-{process}.");
    let entries = std::fs::read_dir("/run/netns").into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(&owner)).count()
}

/// Waits until something is so.
fn wait_until(what: &str, so: impl Fn() -> bool) {
    let begin = Instant::now();
    while !so() {
        assert!(begin.elapsed() < PATIENCE, "not in time: {what}");
        sleep(Duration::from_millis(20));
    }
}

fn is_there(process: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"));
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}

#[test]
fn a_dropped_lab_ends_its_programs_and_removes_its_hosts() {
    let _limit = time_limit();
    let test = "a_dropped_lab_ends_its_programs_and_removes_its_hosts";
    if is_skipped(test, &[LabFeature::Delays]) {
        return;
    }
    let links = LinkSettings { delay: Duration::from_millis(1), ..LinkSettings::default() };
    let lab = lab_of(2, links);
    let mut output = lab.host(0).command("ip");
    let output = output.args(["-br", "addr", "show", "dev", "eth"]).output().unwrap();
    let addresses = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(addresses.contains("10.99.7.1/24"), "{addresses}");
    let namespace = lab.host(1).namespace().unwrap();
    let mut program = lab.host(1).command("sleep").arg("600").spawn().unwrap();
    let inside = || namespace.run(|| std::fs::read_link("/proc/thread-self/ns/net")).unwrap();
    let link = format!("/proc/{}/ns/net", program.id());
    wait_until("the program is on its host", || {
        std::fs::read_link(&link).ok() == inside().ok() && inside().is_ok()
    });
    let names = namespaces(&lab);
    assert_eq!(names.len(), 3, "{names:?}");
    let exist = |name: &String| Path::new("/run/netns").join(name).exists();
    assert!(names.iter().all(exist));
    drop(lab);
    assert!(!names.iter().any(exist));
    assert!(!program.wait().unwrap().success(), "it was killed");
}

/// In the environment of a program that is this test binary, once more: its test builds a lab and waits to be killed.
const KILLED: &str = "AMCAST_HOSTS_KILLED";

#[test]
fn a_run_that_will_be_killed() {
    let _limit = time_limit();
    if std::env::var_os(KILLED).is_none() {
        return;
    }
    let links = LinkSettings { delay: Duration::from_millis(1), ..LinkSettings::default() };
    let lab = lab_of(2, links);
    // Started by `ip` itself, so that nothing but the removal of leftovers ends it.
    let name = &namespaces(&lab)[0];
    let program = Command::new("ip").args(["netns", "exec", name, "sleep", "600"]).spawn();
    println!("\nbuilt {}", program.expect("it can be started").id());
    sleep(PATIENCE);
    drop(lab);
}

#[test]
fn the_hosts_of_a_killed_run_are_removed_by_the_next() {
    let _limit = time_limit();
    let test = "the_hosts_of_a_killed_run_are_removed_by_the_next";
    if is_skipped(test, &[LabFeature::Delays]) {
        return;
    }
    let mut run = Command::new(std::env::current_exe().unwrap());
    run.args(["--exact", "a_run_that_will_be_killed", "--nocapture"]).env(KILLED, "1");
    let mut run = run.stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(run.stdout.take().unwrap()).lines().map_while(Result::ok);
    let program = lines.filter_map(|line| line.strip_prefix("built ")?.parse().ok()).next();
    let program: u32 = program.expect("it builds a lab");
    assert_eq!(namespaces_of(run.id()), 3);
    // A run that continues keeps its hosts.
    drop(HostLab::new(1, LinkSettings::default()).unwrap());
    assert_eq!(namespaces_of(run.id()), 3);
    run.kill().unwrap();
    run.wait().unwrap();
    let next = HostLab::new(1, LinkSettings::default()).unwrap();
    // Another test of this binary may be removing them at the same time.
    wait_until("the hosts of the killed run are removed", || namespaces_of(run.id()) == 0);
    wait_until("its program has ended", || !is_there(program));
    drop(next);
}

#[test]
fn impossible_labs_are_refused_with_the_reason() {
    let _limit = time_limit();
    let many = HostLab::new(1000, LinkSettings::default());
    assert!(matches!(many, Err(LabError::Settings(_))));
    let lossy = LinkSettings { loss_ppm: 2_000_000, ..LinkSettings::default() };
    let why = HostLab::new(2, lossy).expect_err("more than all").to_string();
    assert!(why.contains("2000000 of a million"), "{why}");
}

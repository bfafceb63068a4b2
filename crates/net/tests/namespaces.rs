//! Two processes, each in a network namespace of its own, and what is between them: a link that goes down
//! and up, and that loses, or a router that passes no multicast on. Needs root and the `ip` command: where they are missing the test says so and
//! passes. Its namespaces are named after this process and removed at the end.

use amcast_core::messages::{Lane, MessageInput, MessageOutput};
use amcast_core::{Gid, GroupSet, Pid, Span};
use amcast_net::{Carrier, Interface, NetCounts, NetDiagnostic, NetOptions, PeerConfig};
use amcast_test_policy::skip;
use rustix::fd::AsFd;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{self, Command};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

/// After how long without success it counts as never to come.
const NEVER: Duration = Duration::from_secs(30);

const GROUP: Gid = Gid(0);
/// Two processes with a router between them.
const SUBNETS: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 77, 1, 1), Ipv4Addr::new(10, 77, 2, 1)];
const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 77, 0, 1), Ipv4Addr::new(10, 77, 0, 2)];

/// The router's address in a subnet.
fn gate_of(address: Ipv4Addr) -> Ipv4Addr {
    let [a, b, c, _] = address.octets();
    Ipv4Addr::new(a, b, c, 254)
}

/// The test of a link, by name.
const LINK_TEST: &str = "a_link_that_goes_down_and_loses_breaks_no_law";

/// The test of a router, by name.
const ROUTER_TEST: &str = "datagrams_to_a_group_pass_a_router_that_passes_no_multicast_on";

/// Runs a command; says what it said if it fails.
fn run(words: &str) -> Result<(), String> {
    let mut words = words.split_whitespace();
    let program = words.next().expect("there is one");
    let output =
        Command::new(program).args(words).output().map_err(|e| format!("{program}: {e}"))?;
    let says = || String::from_utf8_lossy(&output.stderr).trim().to_string();
    if output.status.success() { Ok(()) } else { Err(format!("{program}: {}", says())) }
}

/// The namespaces of two processes, and perhaps one of a router between them; gone when this is dropped.
struct NamespacePair {
    names: Vec<String>,
}

impl NamespacePair {
    fn build() -> Result<Self, String> {
        let lab = Self::with(["a", "b"])?;
        let [a, b] = &lab.names[..] else { unreachable!("they are two") };
        run(&format!("ip link add v0 netns {a} type veth peer name v0 netns {b}"))?;
        for (name, address) in lab.names.iter().zip(ADDRESSES) {
            run(&format!("ip -n {name} addr add {address}/24 dev v0"))?;
            run(&format!("ip -n {name} link set lo up"))?;
            run(&format!("ip -n {name} link set v0 up"))?;
        }
        Ok(lab)
    }

    fn with<const N: usize>(names: [&str; N]) -> Result<Self, String> {
        let name = |end| format!("amcast-{}-{end}", process::id());
        let lab = Self { names: names.map(name).to_vec() };
        for name in &lab.names {
            run(&format!("ip netns add {name}"))?;
        }
        Ok(lab)
    }

    /// A router between two subnets, with a process in each, that passes on what is to one host and no
    /// multicast.
    fn with_router() -> Result<Self, String> {
        let lab = Self::with(["c", "d", "router"])?;
        let router = &lab.names[2];
        for (i, address) in SUBNETS.iter().enumerate() {
            let (name, gate) = (&lab.names[i], gate_of(*address));
            run(&format!("ip link add v0 netns {name} type veth peer name v{i} netns {router}"))?;
            run(&format!("ip -n {name} addr add {address}/24 dev v0"))?;
            run(&format!("ip -n {router} addr add {gate}/24 dev v{i}"))?;
            run(&format!("ip -n {name} link set lo up"))?;
            run(&format!("ip -n {name} link set v0 up"))?;
            run(&format!("ip -n {router} link set v{i} up"))?;
            run(&format!("ip -n {name} route add default via {gate}"))?;
        }
        run(&format!("ip netns exec {router} sysctl -w net.ipv4.ip_forward=1"))?;
        Ok(lab)
    }

    fn link(&self, state: &str) {
        run(&format!("ip -n {} link set v0 {state}", self.names[0])).expect("it is ours");
    }

    /// Makes the link lose some of what goes one way; says how, or why it cannot.
    fn lose(&self) -> Result<&'static str, String> {
        let on = format!("tc -n {} qdisc replace dev v0 root", self.names[0]);
        if run(&format!("{on} netem loss 5% delay 1ms 1ms")).is_ok() {
            return Ok("netem");
        }
        run(&format!("{on} tbf rate 20mbit burst 3kb limit 6kb")).map(|()| "a slow link that drops")
    }
}

impl Drop for NamespacePair {
    fn drop(&mut self) {
        for name in &self.names {
            // Not there if building it failed half way.
            let _ = run(&format!("ip netns del {name}"));
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum NamespaceEvent {
    Up,
    Down,
    Stream(u64),
    Datagram(u64),
}

/// The inputs to both ends, and whether they shall end.
#[derive(Default)]
struct EventBoard {
    heard: Mutex<([Vec<NamespaceEvent>; 2], bool)>,
    more: Condvar,
    remarks: Mutex<Vec<(Pid, NetDiagnostic)>>,
}

impl EventBoard {
    /// Waits until both ends heard, from these places on, what `done` looks for.
    fn wait(&self, what: &str, from: [usize; 2], done: impl Fn(&[NamespaceEvent]) -> bool) {
        let begin = Instant::now();
        let mut heard = self.heard.lock().expect("nobody panicked");
        while !(0..2).all(|end| done(&heard.0[end][from[end]..])) {
            assert!(begin.elapsed() < NEVER, "{what} never comes");
            let step = Duration::from_millis(100);
            heard = self.more.wait_timeout(heard, step).expect("nobody panicked").0;
        }
    }

    fn now(&self) -> [usize; 2] {
        let heard = self.heard.lock().expect("nobody panicked");
        [heard.0[0].len(), heard.0[1].len()]
    }

    fn remarks(&self) -> MutexGuard<'_, Vec<(Pid, NetDiagnostic)>> {
        self.remarks.lock().expect("nobody panicked")
    }

    fn end(&self) {
        self.heard.lock().expect("nobody panicked").1 = true;
    }
}

/// A message of this number: its kind, the number, and bytes that follow from it.
fn message(kind: u8, number: u64) -> Vec<u8> {
    let mut bytes = vec![kind];
    bytes.extend_from_slice(&number.to_le_bytes());
    bytes.extend((0..500 + number % 1_500).map(|i| (i ^ number) as u8));
    bytes
}

fn event(input: &MessageInput<&[u8]>) -> NamespaceEvent {
    match *input {
        MessageInput::Up(_) => NamespaceEvent::Up,
        MessageInput::Down(_) => NamespaceEvent::Down,
        MessageInput::From(_, bytes) => {
            let number = u64::from_le_bytes(bytes[1..9].try_into().expect("eight bytes"));
            assert!(bytes == message(bytes[0], number), "message {number} was changed");
            if bytes[0] == 0 {
                NamespaceEvent::Stream(number)
            } else {
                NamespaceEvent::Datagram(number)
            }
        }
    }
}

/// One end: numbered messages on the stream and to the group, all the time.
fn end(
    name: &str,
    me: Pid,
    peers: &[PeerConfig],
    options: &NetOptions,
    board: &EventBoard,
) -> NetCounts {
    let space = File::open(format!("/run/netns/{name}")).expect("it was made");
    let kind = Some(LinkNameSpaceType::Network);
    move_into_link_name_space(space.as_fd(), kind).expect("root may");
    let mut carrier = Carrier::start(me, 0, peers, options).unwrap_or_else(|e| panic!("{e}"));
    let other = Pid(1 - me.0);
    let (mut number, mut events) = (0, Vec::new());
    loop {
        carrier.poll(&mut |input| {
            if !matches!(input, MessageInput::From(from, _) if from == me) {
                events.push(event(&input));
            }
        });
        if !events.is_empty() {
            let mut heard = board.heard.lock().expect("nobody panicked");
            heard.0[me.index()].append(&mut events);
            board.more.notify_all();
        }
        if board.heard.lock().expect("nobody panicked").1 {
            return carrier.counts();
        }
        while let Some(remark) = carrier.take_remark() {
            println!("{me:?}: {remark}");
            board.remarks().push((me, remark));
        }
        if carrier.backlog(other) < 64 << 10 {
            for _ in 0..8 {
                carrier.carry(&MessageOutput::To(other, Lane::Stream, ()), &message(0, number));
                carrier
                    .carry(&MessageOutput::Group(GROUP, Lane::Datagram, ()), &message(1, number));
                number += 1;
            }
        }
        carrier.flush();
        carrier.park(Some(Span::millis(1)));
    }
}

/// Law 1 of all inputs to one end: a gap, and nothing but a gap, where a break was reported.
fn judge(heard: &[NamespaceEvent]) {
    let (mut next, mut broke) = (0, false);
    for event in heard {
        match event {
            NamespaceEvent::Down => broke = true,
            NamespaceEvent::Stream(n) => {
                assert!(*n == next || (broke && *n > next), "{n} follows {next}, broke: {broke}");
                (next, broke) = (n + 1, false);
            }
            NamespaceEvent::Up | NamespaceEvent::Datagram(_) => {}
        }
    }
}

fn streams(heard: &[NamespaceEvent]) -> usize {
    heard.iter().filter(|e| matches!(e, NamespaceEvent::Stream(_))).count()
}

fn datagrams(heard: &[NamespaceEvent]) -> usize {
    heard.iter().filter(|e| matches!(e, NamespaceEvent::Datagram(_))).count()
}

fn scenes(lab: &NamespacePair, board: &EventBoard) {
    board.wait("traffic", [0; 2], |h| streams(h) > 200 && datagrams(h) > 200);
    for _ in 0..2 {
        let before = board.now();
        lab.link("down");
        board.wait("Down", before, |h| h.contains(&NamespaceEvent::Down));
        lab.link("up");
        let up = |h: &[NamespaceEvent]| {
            let at = h.iter().rposition(|e| *e == NamespaceEvent::Up)?;
            Some(streams(&h[at..]) > 200 && datagrams(&h[at..]) > 200)
        };
        board.wait("Up, and traffic behind it", before, |h| up(h) == Some(true));
    }
    match lab.lose() {
        Ok(how) => {
            let before = board.now();
            board.wait(how, before, |h| streams(h) > 500 && datagrams(h) > 100);
            println!("traffic went on over {how}");
        }
        Err(why) => skip(LINK_TEST, format_args!("no link that loses: {why}")),
    }
}

/// Has two processes at these addresses send to each other while `scenes` play; what they counted.
fn play(
    lab: &NamespacePair,
    addresses: [Ipv4Addr; 2],
    board: &EventBoard,
    scenes: fn(&NamespacePair, &EventBoard),
) -> [NetCounts; 2] {
    let at = |port| move |ip: Ipv4Addr| SocketAddr::from((ip, port));
    let peers = addresses.map(|ip| PeerConfig {
        tcp: at(4_000)(ip),
        udp: at(4_001)(ip),
        groups: GroupSet::one(GROUP),
    });
    let options = |ip| NetOptions {
        silence_max: Span::secs(1),
        redial_max: Span::millis(100),
        multicast: vec![(GROUP, at(4_002)(Ipv4Addr::new(239, 77, 0, 1)))],
        interface: Interface::Address(ip),
        // As many as it takes: where there is a router it is not for them that none comes through.
        multicast_hops: 8,
        ..NetOptions::default()
    };
    let counts = thread::scope(|scope| {
        let ends = [0, 1].map(|i| {
            let peers = &peers;
            let options = options(addresses[i]);
            scope.spawn(move || end(&lab.names[i], Pid(i as u32), peers, &options, board))
        });
        let judged = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| scenes(lab, board)));
        board.end();
        let counts = ends.map(|end| end.join().expect("it ends in good order"));
        judged.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        counts
    });
    let heard = board.heard.lock().expect("nobody panicked");
    heard.0.iter().for_each(|heard| judge(heard));
    for counts in &counts {
        assert_eq!(counts.datagrams_malformed + counts.datagrams_strange, 0, "{counts:?}");
    }
    counts
}

#[test]
fn a_link_that_goes_down_and_loses_breaks_no_law() {
    let _limit = amcast_test_policy::time_limit();
    let lab = match NamespacePair::build() {
        Ok(lab) => lab,
        Err(why) => return skip(LINK_TEST, format_args!("no network namespaces here: {why}")),
    };
    for counts in play(&lab, ADDRESSES, &EventBoard::default(), scenes) {
        assert!(counts.breaks >= 2 && counts.connects >= 3, "{counts:?}");
    }
}

#[test]
fn datagrams_to_a_group_pass_a_router_that_passes_no_multicast_on() {
    let _limit = amcast_test_policy::time_limit();
    let lab = match NamespacePair::with_router() {
        Ok(lab) => lab,
        Err(why) => {
            return skip(ROUTER_TEST, format_args!("no router between network namespaces: {why}"));
        }
    };
    let board = EventBoard::default();
    play(&lab, SUBNETS, &board, |_, board| {
        board.wait("traffic", [0; 2], |h| streams(h) > 200 && datagrams(h) > 200);
        let begin = Instant::now();
        while board.remarks().iter().filter(|(_, r)| is_no_multicast(r)).count() < 2 {
            assert!(begin.elapsed() < NEVER, "nobody says that multicast does not arrive");
            thread::sleep(Duration::from_millis(50));
        }
    });
    let mut who: Vec<Pid> =
        board.remarks().iter().filter(|(_, r)| is_no_multicast(r)).map(|(pid, _)| *pid).collect();
    who.sort_unstable();
    assert_eq!(who, [Pid(0), Pid(1)], "each says it once");
}

fn is_no_multicast(remark: &NetDiagnostic) -> bool {
    matches!(remark, NetDiagnostic::NoMulticast { .. })
}

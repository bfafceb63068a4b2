//! Two processes, each on a host of its own, and what is between them: a link that goes down and up, and that
//! loses, or a router that passes no multicast on. Needs root and the `ip` command: where they are missing the tests
//! say so and pass.

use amcast_core::messages::{Lane, MessageInput, MessageOutput};
use amcast_core::{Gid, GroupSet, Pid, Span};
use amcast_hosts::{HostLab, LabFeature, LabHost, LinkSettings};
use amcast_net::{Carrier, Interface, NetCounts, NetDiagnostic, NetOptions, PeerConfig};
use amcast_test_policy::skip;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

/// After how long without success it counts as never to come.
const NEVER: Duration = Duration::from_secs(30);

const GROUP: Gid = Gid(0);
/// The test of a link, by name.
const LINK_TEST: &str = "a_link_that_goes_down_and_loses_breaks_no_law";

/// The test of a router, by name.
const ROUTER_TEST: &str = "datagrams_to_a_group_pass_a_router_that_passes_no_multicast_on";

/// Sets the state of the link of the first host's own device: there the host's own kernel refuses to send.
fn set_link(lab: &HostLab, state: &str) {
    let output = lab.host(0).command("ip").args(["link", "set", "eth", state]).output();
    let output = output.expect("it was there before");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum NamespaceEvent {
    Up,
    Down,
    /// Whether there is room.
    Backlog(bool),
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
        MessageInput::Backlog(backlog) => NamespaceEvent::Backlog(backlog.has_room),
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
    host: LabHost<'_>,
    me: Pid,
    peers: &[PeerConfig],
    options: &NetOptions,
    board: &EventBoard,
) -> NetCounts {
    host.namespace().expect("it was made").enter().expect("root may");
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
            NamespaceEvent::Up | NamespaceEvent::Datagram(_) | NamespaceEvent::Backlog(_) => {}
        }
    }
}

fn streams(heard: &[NamespaceEvent]) -> usize {
    heard.iter().filter(|e| matches!(e, NamespaceEvent::Stream(_))).count()
}

fn datagrams(heard: &[NamespaceEvent]) -> usize {
    heard.iter().filter(|e| matches!(e, NamespaceEvent::Datagram(_))).count()
}

fn scenes(lab: &HostLab, board: &EventBoard) {
    board.wait("traffic", [0; 2], |h| streams(h) > 200 && datagrams(h) > 200);
    for _ in 0..2 {
        let before = board.now();
        set_link(lab, "down");
        board.wait("Down", before, |h| h.contains(&NamespaceEvent::Down));
        set_link(lab, "up");
        let up = |h: &[NamespaceEvent]| {
            let at = h.iter().rposition(|e| *e == NamespaceEvent::Up)?;
            Some(streams(&h[at..]) > 200 && datagrams(&h[at..]) > 200)
        };
        board.wait("Up, and traffic behind it", before, |h| up(h) == Some(true));
    }
    if let Some(why) = HostLab::missing_feature(&[LabFeature::Faults]) {
        return skip(LINK_TEST, format_args!("no link that loses: {why}"));
    }
    lab.set_loss(1, 50_000).unwrap_or_else(|e| panic!("{e}"));
    let before = board.now();
    let what = "traffic over a link that loses a twentieth";
    board.wait(what, before, |h| streams(h) > 500 && datagrams(h) > 100);
}

/// Has two processes on these hosts send to each other while `scenes` play; what they counted.
fn play(lab: &HostLab, board: &EventBoard, scenes: fn(&HostLab, &EventBoard)) -> [NetCounts; 2] {
    let at = |port| move |ip: Ipv4Addr| SocketAddr::from((ip, port));
    let addresses = [0, 1].map(|host| lab.host(host).address());
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
            scope.spawn(move || end(lab.host(i), Pid(i as u32), peers, &options, board))
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
    if let Some(why) = HostLab::missing_feature(&[]) {
        return skip(LINK_TEST, format_args!("no network namespaces here: {why}"));
    }
    let lab = HostLab::new(2, LinkSettings::default()).unwrap_or_else(|e| panic!("{e}"));
    for counts in play(&lab, &EventBoard::default(), scenes) {
        assert!(counts.breaks >= 2 && counts.connects >= 3, "{counts:?}");
    }
}

#[test]
fn datagrams_to_a_group_pass_a_router_that_passes_no_multicast_on() {
    let _limit = amcast_test_policy::time_limit();
    if let Some(why) = HostLab::missing_feature(&[]) {
        return skip(ROUTER_TEST, format_args!("no network namespaces here: {why}"));
    }
    let lab = HostLab::with_router_without_multicast(2, LinkSettings::default());
    let lab = lab.unwrap_or_else(|e| panic!("{e}"));
    let board = EventBoard::default();
    play(&lab, &board, |_, board| {
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

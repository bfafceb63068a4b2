//! Multicast that reaches some members of a group and not others: on loopback, where one of them listens to
//! another address than the one that is sent to.

use amcast_core::messages::{Lane, MessageInput, MessageOutput};
use amcast_core::{Gid, GroupSet, Pid, Span};
use amcast_net::{BoundPorts, Carrier, Interface, NetDiagnostic, NetOptions, PeerConfig};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

const A: Pid = Pid(0);
const B: Pid = Pid(1);
const C: Pid = Pid(2);
const GROUP: Gid = Gid(0);

/// After how long without success it counts as never to come.
const NEVER: Duration = Duration::from_secs(20);

fn options(group: SocketAddr) -> NetOptions {
    NetOptions {
        cluster_id: u64::from(group.port()),
        multicast: vec![(GROUP, group)],
        interface: Interface::Address(Ipv4Addr::LOCALHOST),
        redial_max: Span::millis(50),
        ..NetOptions::default()
    }
}

/// Some processes that are all members of the group, and what each heard by datagram from the first one.
struct GroupProcesses {
    carriers: Vec<Carrier>,
    datagrams: Vec<u64>,
    remarks: Vec<NetDiagnostic>,
}

impl GroupProcesses {
    /// Runs until `done`; the first process sends to the group all the time.
    fn until(&mut self, what: &str, done: impl Fn(&Self) -> bool) {
        let begin = Instant::now();
        while !done(self) {
            assert!(begin.elapsed() < NEVER, "{what} never comes; heard were {:?}", self.datagrams);
            self.carriers[0].carry(&MessageOutput::Group(GROUP, Lane::Datagram, ()), b"to all");
            self.round();
        }
    }

    /// Runs until the first process sends so many messages for one to the group.
    fn until_copies(&mut self, what: &str, count: u64) {
        let begin = Instant::now();
        while self.copies() != count {
            assert!(begin.elapsed() < NEVER, "{what} never comes");
            self.round();
        }
    }

    fn round(&mut self) {
        for (carrier, count) in self.carriers.iter_mut().zip(&mut self.datagrams) {
            carrier.poll(&mut |input| {
                *count +=
                    u64::from(matches!(input, MessageInput::From(from, b"to all") if from == A));
            });
            carrier.flush();
        }
        self.remarks.extend(std::iter::from_fn(|| self.carriers[0].take_remark()));
        self.carriers[0].park(Some(Span::millis(1)));
    }

    /// How many messages the first process sends for one to the group.
    fn copies(&mut self) -> u64 {
        let before = self.carriers[0].counts().datagram_messages_sent;
        self.carriers[0].carry(&MessageOutput::Group(GROUP, Lane::Datagram, ()), b"to all");
        self.carriers[0].counts().datagram_messages_sent - before
    }
}

/// The ports of three members, and how they reach each other.
fn members() -> (Vec<BoundPorts>, Vec<PeerConfig>) {
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let ports: Vec<BoundPorts> =
        (0..3).map(|_| BoundPorts::open(any, any).expect("opened")).collect();
    let groups = GroupSet::one(GROUP);
    let peers = ports.iter().map(|p| PeerConfig { tcp: p.tcp(), udp: p.udp(), groups });
    let peers = peers.collect();
    (ports, peers)
}

/// A multicast address of these members, in a block of such addresses. Nobody else has it: the port is theirs.
fn group_address(block: u8, peers: &[PeerConfig]) -> SocketAddr {
    let port = peers[0].udp.port();
    let [c, d] = port.to_be_bytes();
    SocketAddr::from((Ipv4Addr::new(239, block, c, d), port))
}

#[test]
fn whom_multicast_does_not_reach_gets_datagrams_one_by_one_until_it_does() {
    let _limit = amcast_test_policy::time_limit();
    let (ports, peers) = members();
    let sent_to = options(group_address(77, &peers));
    let mut elsewhere = options(group_address(78, &peers));
    elsewhere.cluster_id = sent_to.cluster_id;
    let start = |(pid, ports)| {
        let options = if Pid(pid) == B { &elsewhere } else { &sent_to };
        Carrier::start_at(ports, Pid(pid), 0, &peers, options).expect("started")
    };
    let carriers = (0..).zip(ports).map(start).collect();
    let mut all = GroupProcesses { carriers, datagrams: vec![0; 3], remarks: Vec::new() };
    all.until("a datagram for each", |all| all.datagrams.iter().all(|&count| count > 0));
    let group = sent_to.multicast[0].1;
    let lost = NetDiagnostic::NoMulticast { pid: B, address: peers[1].tcp, group };
    all.until("a remark", |all| all.remarks.contains(&lost));
    assert!(lost.to_string().contains("lane=datagram"), "it says what to do: {lost}");
    // To oneself a message is none of the network's.
    assert_eq!(all.copies(), 2, "one to the address for the third, one to the second alone");

    // The second listens to the right address from now on.
    drop(all.carriers.remove(1));
    let again = Carrier::start(B, 1, &peers, &sent_to).expect("started");
    all.carriers.insert(1, again);
    let found = NetDiagnostic::MulticastAgain { pid: B, group };
    all.until("another remark", |all| all.remarks.contains(&found));
    assert_eq!(all.copies(), 1, "one for both");
    let said =
        |wanted: &NetDiagnostic| all.remarks.iter().filter(|remark| *remark == wanted).count();
    assert_eq!((said(&lost), said(&found)), (1, 1), "each is said once: {:?}", all.remarks);
    let third = NetDiagnostic::NoMulticast { pid: C, address: peers[2].tcp, group };
    assert_eq!(said(&third), 0, "the third heard it always");
}

#[test]
fn a_member_that_is_down_costs_no_copies() {
    let _limit = amcast_test_policy::time_limit();
    let (ports, peers) = members();
    let options = options(group_address(79, &peers));
    let start =
        |(pid, ports)| Carrier::start_at(ports, Pid(pid), 0, &peers, &options).expect("started");
    let carriers = (0..).zip(ports).map(start).collect();
    let mut all = GroupProcesses { carriers, datagrams: vec![0; 3], remarks: Vec::new() };
    all.until_copies("one for both", 1);
    drop(all.carriers.pop());
    all.until_copies("one to the address and one to the third", 2);
    let begin = Instant::now();
    all.until_copies("one to the address alone", 1);
    assert!(begin.elapsed() > Duration::from_secs(2), "it may be back soon");
    let counts = |all: &GroupProcesses| all.carriers[0].counts().multicast_copies;
    let before = counts(&all);
    assert_eq!((all.copies(), counts(&all)), (1, before));

    let heard = all.datagrams[C.index()];
    all.carriers.push(Carrier::start(C, 1, &peers, &options).expect("started"));
    all.until("a datagram for the third", |all| all.datagrams[C.index()] > heard);
    all.until_copies("one for both again", 1);
}

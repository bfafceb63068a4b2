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
            for (carrier, count) in self.carriers.iter_mut().zip(&mut self.datagrams) {
                carrier.poll(&mut |input| {
                    *count += u64::from(
                        matches!(input, MessageInput::From(from, b"to all") if from == A),
                    );
                });
                carrier.flush();
            }
            self.remarks.extend(std::iter::from_fn(|| self.carriers[0].take_remark()));
            self.carriers[0].park(Some(Span::millis(1)));
        }
    }

    /// How many messages the first process sends for one to the group.
    fn copies(&mut self) -> u64 {
        let before = self.carriers[0].counts().datagram_messages_sent;
        self.carriers[0].carry(&MessageOutput::Group(GROUP, Lane::Datagram, ()), b"to all");
        self.carriers[0].counts().datagram_messages_sent - before
    }
}

#[test]
fn whom_multicast_does_not_reach_gets_datagrams_one_by_one_until_it_does() {
    let _limit = amcast_test_policy::time_limit();
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let ports: Vec<BoundPorts> =
        (0..3).map(|_| BoundPorts::open(any, any).expect("opened")).collect();
    let groups = GroupSet::one(GROUP);
    let peers: Vec<PeerConfig> =
        ports.iter().map(|p| PeerConfig { tcp: p.tcp(), udp: p.udp(), groups }).collect();
    // Nobody else's: the port is ours.
    let port = ports[0].udp().port();
    let [c, d] = port.to_be_bytes();
    let sent_to = options(SocketAddr::from((Ipv4Addr::new(239, 77, c, d), port)));
    let mut elsewhere = options(SocketAddr::from((Ipv4Addr::new(239, 78, c, d), port)));
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

//! The carriers of this crate, on the machine's loopback: all processes in one, each with a carrier
//! of its own. Each fabric has an address of its own, so that no port is ever somebody else's.

use crate::{run, run_all};
use amcast_core::Span;
use amcast_core::id::{Gid, Pid};
use amcast_core::messages::MessageOutput;
use amcast_net::conformance::{MessageEvent, MessageFabric, PACED_SUITE, shape};
use amcast_net::{BoundPorts, Carrier, Interface, NetOptions, PeerConfig};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// After how long without anything heard it counts as never to come.
const NEVER: Duration = Duration::from_secs(20);

/// An address of 127.0.0.0/8 that no other fabric of any running test has.
fn address() -> IpAddr {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    let [.., c, d] = process::id().to_be_bytes();
    Ipv4Addr::new(127, 128 | (n % 100) as u8, c, d.clamp(1, 254)).into()
}

pub(crate) struct Loopback {
    peers: Vec<PeerConfig>,
    options: NetOptions,
    lives: [u32; 3],
    carriers: Vec<Option<Carrier>>,
    stalled: [bool; 3],
    heard: [Vec<MessageEvent>; 3],
    quiet_since: Instant,
}

impl Loopback {
    pub(crate) fn new(ip: IpAddr, options: NetOptions) -> Self {
        let any = SocketAddr::new(ip, 0);
        let ports: Vec<BoundPorts> =
            (0..3).map(|_| BoundPorts::open(any, any).expect("opened")).collect();
        let peer = |(ports, groups): (&BoundPorts, _)| PeerConfig {
            tcp: ports.tcp(),
            udp: ports.udp(),
            groups,
        };
        let peers: Vec<PeerConfig> = ports.iter().zip(shape()).map(peer).collect();
        let start = |(pid, ports)| Carrier::start_at(ports, Pid(pid), 0, &peers, &options);
        let carriers = (0..).zip(ports).map(start).map(|c| Some(c.expect("started"))).collect();
        Self {
            carriers,
            peers,
            options,
            lives: [0; 3],
            stalled: [false; 3],
            heard: Default::default(),
            quiet_since: Instant::now(),
        }
    }

    fn carrier(&mut self, pid: Pid) -> &mut Carrier {
        self.carriers[pid.index()].as_mut().expect("it lives")
    }

    /// Lets everyone who lives take in what there is; how much that was.
    fn round(&mut self) -> usize {
        let mut count = 0;
        for (i, carrier) in self.carriers.iter_mut().enumerate() {
            let Some(carrier) = carrier else { continue };
            if !self.stalled[i] {
                count += carrier.poll(&mut |input| self.heard[i].push(MessageEvent::of(&input)));
            }
            carrier.flush();
        }
        count
    }
}

impl MessageFabric for Loopback {
    fn send(&mut self, from: Pid, out: &MessageOutput<()>, message: &[u8]) {
        self.carrier(from).carry(out, message);
    }

    fn advance(&mut self) -> bool {
        if self.round() > 0 {
            self.quiet_since = Instant::now();
        } else if let Some(Some(carrier)) = self.carriers.iter_mut().find(|c| c.is_some()) {
            carrier.park(Some(Span::micros(200)));
        }
        self.quiet_since.elapsed() < NEVER
    }

    fn heard(&mut self, by: Pid) -> Vec<MessageEvent> {
        std::mem::take(&mut self.heard[by.index()])
    }

    fn cut(&mut self, a: Pid, b: Pid) {
        self.carrier(a).flush();
        self.carrier(a).hang_up(b);
    }

    fn crash(&mut self, pid: Pid) {
        self.carriers[pid.index()] = None;
        self.heard[pid.index()].clear();
    }

    fn start(&mut self, pid: Pid) {
        self.lives[pid.index()] += 1;
        let life = self.lives[pid.index()];
        let carrier = Carrier::start(pid, life, &self.peers, &self.options);
        self.carriers[pid.index()] = Some(carrier.unwrap_or_else(|e| panic!("{e}")));
    }

    fn stall(&mut self, pid: Pid, stalled: bool) {
        self.stalled[pid.index()] = stalled;
    }
}

#[test]
fn carriers_on_loopback_keep_the_laws() {
    let _limit = amcast_test_policy::time_limit();
    run("loopback", &mut || Box::new(Loopback::new(address(), NetOptions::default())));
}

#[test]
fn carriers_with_a_rate_say_when_there_is_room() {
    let _limit = amcast_test_policy::time_limit();
    run_all(PACED_SUITE, "paced", &mut || {
        let rate = Some(8_000_000);
        let options = NetOptions { datagram_bytes_per_s: rate, ..NetOptions::default() };
        Box::new(Loopback::new(address(), options))
    });
}

#[test]
fn carriers_with_multicast_keep_the_laws() {
    let _limit = amcast_test_policy::time_limit();
    run("multicast", &mut || {
        let ip = address();
        let IpAddr::V4(own) = ip else { panic!("it is of IPv4") };
        let [_, b, c, d] = own.octets();
        let group = SocketAddr::from((Ipv4Addr::new(239, b, c, d), 47_000));
        let options = NetOptions {
            multicast: vec![(Gid(1), group)],
            interface: Interface::Address(Ipv4Addr::LOCALHOST),
            ..NetOptions::default()
        };
        Box::new(Loopback::new(ip, options))
    });
}

#[test]
fn carriers_with_small_datagrams_keep_the_laws() {
    let _limit = amcast_test_policy::time_limit();
    run("small", &mut || {
        let options =
            NetOptions { datagram_bytes: 600, frame_bytes_max: 1 << 20, ..NetOptions::default() };
        Box::new(Loopback::new(address(), options))
    });
}

#[test]
fn carriers_on_loopback_of_ipv6_keep_the_laws() {
    let _limit = amcast_test_policy::time_limit();
    let any = SocketAddr::from((Ipv6Addr::LOCALHOST, 0));
    if BoundPorts::open(any, any).is_err() {
        return amcast_test_policy::skip(
            "carriers_on_loopback_of_ipv6_keep_the_laws",
            "this machine has no IPv6",
        );
    }
    run("loopback of IPv6", &mut || {
        Box::new(Loopback::new(Ipv6Addr::LOCALHOST.into(), NetOptions::default()))
    });
}

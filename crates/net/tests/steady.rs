//! Once everything has its size, carrying messages allocates nothing.

use amcast_core::messages::{Lane, MessageInput, MessageOutput};
use amcast_core::{Gid, GroupSet, Pid};
use amcast_net::{BoundPorts, Carrier, NetOptions, PeerConfig};
use std::net::{Ipv4Addr, SocketAddr};

/// Sends some of everything each way, and takes in what came; how many messages that was.
fn round(carriers: &mut [Carrier; 2], message: &[u8]) -> usize {
    let mut count = 0;
    for (me, carrier) in (0..).zip(carriers) {
        for lane in [Lane::Stream, Lane::Datagram] {
            for _ in 0..40 {
                carrier.carry(&MessageOutput::To(Pid(1 - me), lane, ()), message);
            }
            carrier.carry(&MessageOutput::Group(Gid(0), lane, ()), message);
        }
        // In pieces, and large enough to grow the readers.
        carrier.carry(&MessageOutput::Group(Gid(0), Lane::Datagram, ()), &[7; 9_000]);
        carrier.carry(&MessageOutput::To(Pid(1 - me), Lane::Stream, ()), &[7; 30_000]);
        carrier.flush();
        carrier.poll(&mut |input| count += usize::from(matches!(input, MessageInput::From(..))));
    }
    count
}

#[test]
fn messages_are_carried_without_an_allocation() {
    let _limit = amcast_test_policy::time_limit();
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let ports = [(); 2].map(|()| BoundPorts::open(any, any).expect("opened"));
    let groups = GroupSet::one(Gid(0));
    let peer = |p: &BoundPorts| PeerConfig { tcp: p.tcp(), udp: p.udp(), groups };
    let peers: Vec<PeerConfig> = ports.iter().map(peer).collect();
    let start = |(pid, ports)| {
        Carrier::start_at(ports, Pid(pid), 0, &peers, &NetOptions::default()).expect("started")
    };
    let [a, b] = ports;
    let mut carriers = [start((0, a)), start((1, b))];
    let message = [7; 64];
    // Until both lanes carry: a round brings over 80 messages from the other, and 3 from oneself.
    let mut warm = 0;
    while warm < 500 {
        warm += usize::from(round(&mut carriers, &message) > 120);
    }
    let mut count = 0;
    let allocated = allocation_counter::measure(|| {
        for _ in 0..500 {
            count += round(&mut carriers, &message);
        }
    });
    assert!(count > 20_000, "only {count} messages came");
    // A queue may still grow now and then, when the system is slow; never with each message.
    assert!(allocated.count_total < 20, "{} allocations", allocated.count_total);
}

//! The laws that the network keeps, and its freedoms beside them.

use super::*;

const A: Pid = Pid(0);
const B: Pid = Pid(1);

fn wild() -> NetworkModel {
    NetworkModel {
        stream: Delay::Uniform(Span(10), Span(100)),
        datagram: Delay::Uniform(Span(10), Span(100)),
        loss_ppm: 100_000,
        double_ppm: 100_000,
        late_ppm: 200_000,
        late: Delay::Uniform(Span(10), Span(1000)),
        down: Delay::Uniform(Span(1), Span(200)),
        reconnect: Delay::Uniform(Span(1), Span(200)),
        ..NetworkModel::constant(Span(10))
    }
}

/// Two connected processes that have heard so.
fn network(model: NetworkModel, chooser: &mut Chooser) -> SimNetwork {
    let mut network = SimNetwork::new(2, model);
    network.connect_all(Time::ZERO, chooser);
    let heard = heard(&mut network, Time(999), chooser);
    assert_eq!(heard.len(), 2);
    network
}

fn send(network: &mut SimNetwork, now: u64, lane: Lane, number: u8, chooser: &mut Chooser) {
    network.send(Time(now), A, B, lane, &Rc::from([number]), chooser);
}

/// The inputs up to then, in order.
fn heard(network: &mut SimNetwork, until: Time, chooser: &mut Chooser) -> Vec<NetworkEvent> {
    let mut all = Vec::new();
    while network.next() <= until {
        network.step(chooser);
        all.extend(core::iter::from_fn(|| network.take()));
    }
    all
}

/// The frames' numbers, 100 for `Up` and 200 for `Down`, as heard by B.
fn at_b(heard: &[NetworkEvent]) -> Vec<u8> {
    let number = |h: &NetworkEvent| match h {
        NetworkEvent::Frame { to: B, bytes, .. } => Some(bytes[0]),
        NetworkEvent::Up { to: B, .. } => Some(100),
        NetworkEvent::Down { to: B, .. } => Some(200),
        _ => None,
    };
    heard.iter().filter_map(number).collect()
}

const LATE: Time = Time(1_000_000);

#[test]
fn a_stream_keeps_its_order_and_loses_nothing() {
    for seed in 0..50 {
        let chooser = &mut Chooser::seeded(seed);
        let mut network = network(wild(), chooser);
        (0..20).for_each(|i| send(&mut network, 1000 + u64::from(i), Lane::Stream, i, chooser));
        let heard = heard(&mut network, LATE, chooser);
        assert_eq!(at_b(&heard), (0..20).collect::<Vec<u8>>());
    }
}

#[test]
fn datagrams_are_lost_doubled_and_overtaken_and_never_changed() {
    let (mut lost, mut doubled, mut overtaken) = (0, 0, 0);
    for seed in 0..50 {
        let chooser = &mut Chooser::seeded(seed);
        let mut network = network(wild(), chooser);
        (0..20).for_each(|i| send(&mut network, 1000 + u64::from(i), Lane::Datagram, i, chooser));
        let heard = at_b(&heard(&mut network, LATE, chooser));
        assert!(heard.iter().all(|&i| i < 20));
        let count = |i| heard.iter().filter(|&&j| j == i).count();
        lost += (0..20).filter(|&i| count(i) == 0).count();
        doubled += (0..20).filter(|&i| count(i) == 2).count();
        overtaken += u32::from(!heard.is_sorted());
    }
    assert!(lost > 20 && doubled > 20 && overtaken > 40, "{lost} {doubled} {overtaken}");
}

#[test]
fn a_break_loses_a_tail_and_a_new_stream_begins_after_up() {
    let mut tails = alloc::collections::BTreeSet::new();
    for seed in 0..100 {
        let chooser = &mut Chooser::seeded(seed);
        let mut network = network(wild(), chooser);
        (0..10).for_each(|i| send(&mut network, 1000, Lane::Stream, i, chooser));
        network.cut(Time(1001), A, B, Span(5000), chooser);
        let mut all = heard(&mut network, Time(5500), chooser);
        // No connection is open now: this one goes nowhere.
        send(&mut network, 5500, Lane::Stream, 50, chooser);
        all.extend(heard(&mut network, Time(8000), chooser));
        (10..13).for_each(|i| send(&mut network, 8000, Lane::Stream, i, chooser));
        all.extend(heard(&mut network, LATE, chooser));
        let numbers = at_b(&all);
        let arrived = numbers.iter().position(|&n| n == 200).unwrap();
        assert!(numbers[..arrived].iter().copied().eq(0..arrived as u8), "{numbers:?}");
        assert_eq!(numbers[arrived..], [200, 100, 10, 11, 12]);
        tails.insert(arrived);
    }
    assert!(tails.len() > 5 && tails.contains(&0), "{tails:?}");
}

#[test]
fn a_crash_is_heard_and_a_new_life_begins_with_up() {
    for seed in 0..50 {
        let chooser = &mut Chooser::seeded(seed);
        let mut network = network(wild(), chooser);
        (0..5).for_each(|i| send(&mut network, 1000, Lane::Stream, i, chooser));
        network.crash(Time(1001), A, chooser);
        network.start(Time(1002), A, chooser);
        // Sent before it learned that the connection is open, and not lost: it received no `Down`.
        send(&mut network, 1003, Lane::Stream, 9, chooser);
        let numbers = at_b(&heard(&mut network, LATE, chooser));
        let arrived = numbers.iter().position(|&n| n == 200).unwrap();
        assert_eq!(numbers[arrived..], [200, 100, 9], "seed {seed}: {numbers:?}");
    }
}

#[test]
fn a_partition_holds_streams_back_and_loses_datagrams() {
    let chooser = &mut Chooser::seeded(1);
    let mut network = network(NetworkModel::constant(Span(10)), chooser);
    network.block(A, B, Time(5000));
    send(&mut network, 1000, Lane::Stream, 1, chooser);
    send(&mut network, 1000, Lane::Datagram, 2, chooser);
    assert_eq!(heard(&mut network, Time(5000), chooser), []);
    network.send(Time(5000), B, A, Lane::Stream, &Rc::from([3]), chooser);
    assert_eq!(heard(&mut network, LATE, chooser).len(), 2);
}

#[test]
fn frames_wait_for_the_port() {
    let chooser = &mut Chooser::seeded(1);
    // 1 ns a byte, at both ends.
    let model = NetworkModel { port_ps_per_byte: 1000, ..NetworkModel::constant(Span(10)) };
    let mut network = network(model, chooser);
    let bytes: Rc<[u8]> = Rc::from([0; 100]);
    for _ in 0..3 {
        network.send(Time(1000), A, B, Lane::Stream, &bytes, chooser);
    }
    let mut times = Vec::new();
    while network.next() < Time::NEVER {
        let now = network.next();
        network.step(chooser);
        times.extend(network.take().map(|_| now.0));
    }
    assert_eq!(times, [1210, 1310, 1410]);
}

/// When each frame is heard, and by whom.
fn arrivals(network: &mut SimNetwork, chooser: &mut Chooser) -> Vec<(u64, Pid)> {
    let mut all = Vec::new();
    while network.next() < Time::NEVER {
        let now = network.next();
        network.step(chooser);
        all.extend(network.take().map(|heard| match heard {
            NetworkEvent::Frame { to, .. } => (now.0, to),
            other => panic!("{other:?}"),
        }));
    }
    all
}

#[test]
fn a_multicast_leaves_the_port_once_and_unicasts_leave_it_one_after_the_other() {
    let chooser = &mut Chooser::seeded(1);
    let model = NetworkModel { port_ps_per_byte: 1000, ..NetworkModel::constant(Span(10)) };
    let mut network = SimNetwork::new(4, model);
    network.connect_all(Time::ZERO, chooser);
    heard(&mut network, Time(999), chooser);
    let bytes: Rc<[u8]> = Rc::from([0; 100]);
    network.multicast(Time(1000), A, (0..4).map(Pid), &bytes, chooser);
    // 100 ns in the sender's port, 10 on the way, 100 in the port of each receiver.
    let together = [(1001, A), (1210, Pid(1)), (1210, Pid(2)), (1210, Pid(3))];
    assert_eq!(arrivals(&mut network, chooser), together);
    for to in (1..4).map(Pid) {
        network.send(Time(2000), A, to, Lane::Datagram, &bytes, chooser);
    }
    let in_turn = [(2210, Pid(1)), (2310, Pid(2)), (2410, Pid(3))];
    assert_eq!(arrivals(&mut network, chooser), in_turn);
}

#[test]
fn datagrams_from_two_senders_overflow_the_buffer_of_a_port_and_streams_wait_for_it() {
    let chooser = &mut Chooser::seeded(1);
    let model = NetworkModel {
        port_ps_per_byte: 1000,
        port_buffer: 300,
        ..NetworkModel::constant(Span(10))
    };
    let mut network = SimNetwork::new(3, model);
    network.connect_all(Time::ZERO, chooser);
    heard(&mut network, Time(999), chooser);
    let bytes: Rc<[u8]> = Rc::from([0; 100]);
    let mut burst = |now, lane, each: usize| {
        for (from, _) in [A, Pid(2)].iter().flat_map(|from| (0..each).map(move |n| (*from, n))) {
            network.send(Time(now), from, B, lane, &bytes, chooser);
        }
        let before = network.overflows();
        (arrivals(&mut network, chooser).len(), network.overflows() - before)
    };
    // Two ports fill one: half of what comes waits, until 300 bytes do.
    assert_eq!(burst(1000, Lane::Datagram, 10), (12, 8));
    assert_eq!(burst(10_000, Lane::Stream, 10), (20, 0));
    // One sender is as fast as the port of its receiver.
    assert_eq!(burst(20_000, Lane::Datagram, 1), (2, 0));
}

#[test]
fn what_a_process_sends_to_itself_is_never_lost() {
    let chooser = &mut Chooser::seeded(1);
    let mut network = network(NetworkModel { loss_ppm: 1_000_000, ..wild() }, chooser);
    for lane in [Lane::Stream, Lane::Datagram] {
        network.send(Time(1000), B, B, lane, &Rc::from([7]), chooser);
    }
    assert_eq!(at_b(&heard(&mut network, LATE, chooser)), [7, 7]);
}

#[test]
fn late_news_of_a_break_from_before_a_crash_does_not_close_the_stream_after_it() {
    for seed in 0..200 {
        let mut chooser = Chooser::seeded(seed);
        let mut network = network(wild(), &mut chooser);
        // B is to hear that A died, and dies itself before it does.
        network.crash(Time(1000), A, &mut chooser);
        network.start(Time(1001), A, &mut chooser);
        network.crash(Time(1002), B, &mut chooser);
        network.start(Time(1003), B, &mut chooser);
        heard(&mut network, Time(4999), &mut chooser);
        send(&mut network, 5000, Lane::Stream, 7, &mut chooser);
        assert_eq!(at_b(&heard(&mut network, LATE, &mut chooser)), [7], "{seed}");
    }
}

#[test]
fn between_regions_a_frame_takes_longer_by_what_lies_between_them() {
    let chooser = &mut Chooser::seeded(3);
    let mut one_way = [[Span::ZERO; REGIONS_MAX]; REGIONS_MAX];
    (one_way[0][1], one_way[1][0]) = (Span(70), Span(40));
    let far = FarRegions { regions: 2, one_way };
    let mut network = SimNetwork::new(4, NetworkModel { far, ..NetworkModel::constant(Span(10)) });
    network.connect_all(Time::ZERO, chooser);
    heard(&mut network, Time(999), chooser);
    for (from, to, at) in [(0, 1, 1010), (0, 2, 1080), (3, 1, 1050), (2, 3, 1010)] {
        let bytes = Rc::from(&b"x"[..]);
        network.send(Time(1000), Pid(from), Pid(to), Lane::Stream, &bytes, chooser);
        assert_eq!(network.next(), Time(at), "from {from} to {to}");
        heard(&mut network, Time(1999), chooser);
    }
}

#[test]
fn strangers_take_their_part_of_a_port_while_they_send_and_their_datagrams_fill_its_buffer() {
    let chooser = &mut Chooser::seeded(1);
    let background = BackgroundTraffic { ppm: 500_000, from: Time(10_000), until: Time(20_000) };
    let model = NetworkModel {
        port_ps_per_byte: 1000,
        port_buffer: 1000,
        background,
        ..NetworkModel::constant(Span(10))
    };
    let mut network = SimNetwork::new(2, model);
    network.connect_all(Time::ZERO, chooser);
    heard(&mut network, Time(999), chooser);
    let bytes: Rc<[u8]> = Rc::from([0; 100]);
    // Frames of 100 ns each, as fast as three quarters of the port: for 5 us before, during and after.
    let mut paced = |begin: u64| {
        let lost = network.overflows();
        for n in 0..37 {
            let now = begin + n * 133;
            heard(&mut network, Time(now), chooser);
            network.send(Time(now), A, B, Lane::Datagram, &bytes, chooser);
        }
        let mut last = 0;
        while network.next() < Time::NEVER {
            last = network.next().0;
            network.step(chooser);
            network.take();
        }
        (last - begin, network.overflows() - lost)
    };
    assert_eq!(paced(1000), (36 * 133 + 210, 0));
    // The sender's port is the bottleneck: 3.7 us of frames take twice as long there.
    let (during, lost) = paced(10_000);
    assert!((6_000..7_500).contains(&during) && lost == 0, "{during}, {lost}");
    assert_eq!(paced(30_000), (36 * 133 + 210, 0));
}

#[test]
fn a_sender_hears_of_no_room_once_and_of_room_when_half_is_left_and_a_new_life_has_room() {
    let chooser = &mut Chooser::seeded(1);
    let port_ps_per_byte = 1000;
    let model =
        NetworkModel { port_ps_per_byte, sender_bytes: 1000, ..NetworkModel::constant(Span(10)) };
    let mut network = SimNetwork::new(2, model);
    network.connect_all(Time::ZERO, chooser);
    heard(&mut network, Time(999), chooser);
    let bytes: Rc<[u8]> = Rc::from([0; 100]);
    let backlogs = |heard: &[NetworkEvent]| -> Vec<DatagramBacklog> {
        let of = |event: &NetworkEvent| match *event {
            NetworkEvent::Backlog { to: A, backlog } => Some(backlog),
            NetworkEvent::Backlog { to, .. } => panic!("{to:?} sends nothing"),
            _ => None,
        };
        heard.iter().filter_map(of).collect()
    };
    let mut burst = |network: &mut SimNetwork, now| {
        let mut crowded = Vec::new();
        for _ in 0..20 {
            network.send(Time(now), A, B, Lane::Datagram, &bytes, chooser);
            crowded.extend(network.take_crowded(A));
        }
        crowded
    };
    let crowded = burst(&mut network, 1000);
    assert_eq!(crowded, [DatagramBacklog { bytes: 1100, has_room: false }]);
    assert_eq!(network.backlog_most(), 2000);
    let chooser = &mut Chooser::seeded(1);
    assert_eq!(backlogs(&heard(&mut network, Time(2499), chooser)), [], "more than half is left");
    let room = backlogs(&heard(&mut network, Time(2600), chooser));
    assert!(matches!(room[..], [DatagramBacklog { bytes: ..=500, has_room: true }]), "{room:?}");
    // A process that dies without room hears nothing of it in its next life.
    assert_eq!(burst(&mut network, 10_000).len(), 1);
    network.crash(Time(10_001), A, chooser);
    network.start(Time(10_002), A, chooser);
    assert_eq!(backlogs(&heard(&mut network, LATE, chooser)), []);
    assert_eq!(burst(&mut network, LATE.0).len(), 1, "it had room");
}

#[test]
fn processes_of_two_clusters_on_one_host_share_its_port() {
    let chooser = &mut Chooser::seeded(1);
    let model =
        NetworkModel { port_ps_per_byte: 1000, hosts: 2, ..NetworkModel::constant(Span(10)) };
    let mut network = SimNetwork::new(4, model);
    network.connect_all(Time::ZERO, chooser);
    heard(&mut network, Time(999), chooser);
    let bytes: Rc<[u8]> = Rc::from([0; 100]);
    network.send(Time(1000), Pid(0), Pid(1), Lane::Stream, &bytes, chooser);
    network.send(Time(1000), Pid(2), Pid(3), Lane::Stream, &bytes, chooser);
    assert_eq!(arrivals(&mut network, chooser), [(1210, Pid(1)), (1310, Pid(3))]);
}

#[test]
fn a_cable_carries_one_frame_at_a_time_for_all_and_a_multicast_once() {
    let chooser = &mut Chooser::seeded(1);
    let model = NetworkModel {
        port_ps_per_byte: 1000,
        head_bytes: 20,
        bus: true,
        ..NetworkModel::constant(Span(10))
    };
    let mut network = SimNetwork::new(4, model);
    network.connect_all(Time::ZERO, chooser);
    heard(&mut network, Time(999), chooser);
    let bytes: Rc<[u8]> = Rc::from([0; 100]);
    // 120 ns each: the multicast of one, and behind it the frames of two others, also to different receivers.
    network.multicast(Time(1000), Pid(0), [1, 2, 3].map(Pid).into_iter(), &bytes, chooser);
    network.send(Time(1000), Pid(1), Pid(2), Lane::Stream, &bytes, chooser);
    network.send(Time(1000), Pid(3), Pid(0), Lane::Datagram, &bytes, chooser);
    let multicast = [1, 2, 3].map(|p| (1130, Pid(p)));
    let all = [&multicast[..], &[(1250, Pid(2)), (1370, Pid(0))]].concat();
    assert_eq!(arrivals(&mut network, chooser), all);
}

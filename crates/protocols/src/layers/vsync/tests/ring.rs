//! Casts along a ring of three members.

use super::*;

fn ring() -> ThreeMembers {
    let mut group = ThreeMembers::with(Grade::Plain, Dissemination::Ring);
    group.run(1);
    group
}

impl ThreeMembers {
    /// Sends what member `p` has to send, and carries it; gives the messages on the ring.
    fn lap(&mut self, p: u32) -> Vec<(u32, u32, &'static str)> {
        if self.members[p as usize].deadline().is_some_and(|(at, _)| at <= self.now) {
            self.step(p, Input::Wake);
        }
        let mut passed = Vec::new();
        while let Some((from, to, packet)) = self.way.pop_front() {
            passed.extend(packet.items.iter().filter_map(|item| match item {
                PacketItem::Forward { .. } => Some((from.0, to.0, "cast")),
                PacketItem::Stable { .. } => Some((from.0, to.0, "stable")),
                PacketItem::Cast { .. } => Some((from.0, to.0, "direct")),
                _ => None,
            }));
            self.step(to.0, Input::Medium(messages::MessageInput::From(from, packet)));
        }
        passed
    }

    fn stable(&self, p: usize) -> &[Pid] {
        &self.members[p].inner.stable
    }
}

#[test]
fn a_cast_crosses_each_link_once_and_is_stable_on_the_second_lap() {
    let mut group = ring();
    group.submit(1, 5);
    assert_eq!(group.lap(1), [(1, 2, "cast")]);
    assert_eq!(group.delivered[2], msgs(&[(1, 5)]), "it is handed over as it comes");
    assert_eq!(group.lap(2), [(2, 0, "cast")]);
    assert_eq!([0, 1, 2].map(|p| group.stable(p).len()), [1, 0, 0], "member 0 has it last");
    assert_eq!(group.lap(0), [(0, 1, "stable")]);
    assert_eq!(group.lap(1), [(1, 2, "stable")]);
    assert_eq!(group.lap(2), [], "the predecessor of its sender knows that");
    assert!((0..3).all(|p| group.stable(p) == [Pid(1)]));
    assert!(group.delivered.iter().all(|d| *d == msgs(&[(1, 5)])));
}

#[test]
fn casts_of_all_members_pass_broken_links_in_order_and_once() {
    [Lane::Stream, Lane::Datagram].into_iter().for_each(pass_broken_links);
}

fn pass_broken_links(lane: Lane) {
    let of = |p| VsyncSettings { dissemination: Dissemination::Ring, lane, ..settings(p) };
    let mut group = ThreeMembers::of(Grade::Plain, of);
    group.run(1);
    for round in 1..=4 {
        (0..3).for_each(|p| group.submit(p, round));
        // Everything on the way is lost.
        group.way.clear();
        group.run(20);
    }
    for p in 0..3 {
        for sender in 0..3 {
            let of = |msg: &&MsgId| msg.sender == Pid(sender);
            let seqs: Vec<u64> = group.delivered[p].iter().filter(of).map(|m| m.seq).collect();
            assert_eq!(seqs, [1, 2, 3, 4], "of {sender} at {p}");
        }
        assert_eq!(group.stable(p).len(), 12);
    }
    assert!(group.views.iter().all(|view| view.1 == 0), "no view ends for that");
}

#[test]
fn a_cast_that_was_on_its_first_lap_is_handed_to_all_that_continue() {
    let mut group = ring();
    group.submit(0, 1);
    group.lap(0);
    assert_eq!([0, 1, 2].map(|p| group.delivered[p].len()), [1, 1, 0]);
    // Its sender fails; member 2 gets the cast when it is retransmitted, and its word that it is stable goes nowhere.
    group.apart = alloc::vec![Pid(0)];
    group.way.clear();
    group.run(40);
    assert!(group.views.contains(&(Pid(2), 1, 0b110)), "{:?}", group.views);
    assert!(group.delivered.iter().all(|d| *d == msgs(&[(0, 1)])));
    assert_eq!([1, 2].map(|p| group.stable(p).len()), [0, 1]);
    // The ring is closed without it.
    group.submit(2, 9);
    group.run(1);
    assert_eq!([1, 2].map(|p| group.stable(p).len()), [1, 2]);
}

#[test]
fn a_joiner_forwards_what_came_before_it_knows_where_it_begins() {
    let mut group = ring();
    (1..=5).for_each(|seq| group.submit(0, seq));
    group.run(5);
    group.members[2] = Vsync::new(
        VsyncSettings { dissemination: Dissemination::Ring, ..settings(2) },
        PassThrough::default(),
    );
    group.step(2, Input::Start { incarnation: 1 });
    group.delivered[2].clear();
    group.run(40);
    (6..=8).for_each(|seq| group.submit(0, seq));
    group.submit(2, 1);
    group.run(5);
    assert_eq!(group.delivered[2].len(), 4, "{:?}", group.delivered[2]);
    assert_eq!(group.delivered[1].len(), 9);
    assert!(group.members[2].fit());
}

fn is_cast(item: &PacketItem) -> bool {
    matches!(item, PacketItem::Forward { .. })
}

/// Three members whose packets travel as datagrams, and of which member 0 has three packets with a cast each on the way to member 1.
fn three_on_the_way() -> (ThreeMembers, Vec<VsyncPacket>) {
    let mut group = ThreeMembers::of(Grade::Plain, |p| VsyncSettings {
        dissemination: Dissemination::Ring,
        lane: Lane::Datagram,
        retry: Span::millis(5),
        ..settings(p)
    });
    group.run(1);
    group.carry();
    (1..=3).for_each(|seq| group.submit(0, seq));
    let has_cast = |packet: &VsyncPacket| packet.items.iter().any(is_cast);
    let way = core::mem::take(&mut group.way).into_iter();
    let packets = way.filter(|(from, to, packet)| (from.0, to.0) == (0, 1) && has_cast(packet));
    let packets: Vec<_> = packets.map(|(_, _, packet)| packet).collect();
    assert_eq!(packets.len(), 3);
    (group, packets)
}

#[test]
fn datagrams_that_change_their_order_are_handed_over_in_order_and_not_sent_again() {
    let (mut group, packets) = three_on_the_way();
    for packet in packets.into_iter().rev() {
        assert_eq!(group.delivered[1], [], "the first one comes last");
        group.way.push_back((Pid(0), Pid(1), packet));
        let (from, to, packet) = group.way.pop_front().expect("it is there");
        group.step(to.0, Input::Medium(messages::MessageInput::From(from, packet)));
    }
    assert_eq!(group.delivered[1], msgs(&[(0, 1), (0, 2), (0, 3)]));
    let mut casts = 0;
    for _ in 0..60 {
        let to_1 = group.way.iter().filter(|(from, to, _)| (from.0, to.0) == (0, 1));
        casts += to_1.flat_map(|(_, _, packet)| &packet.items).filter(|item| is_cast(item)).count();
        group.carry();
        group.now += Span::micros(50);
        group.wake();
    }
    assert_eq!(casts, 0, "all arrived");
    assert!(group.delivered.iter().all(|d| d.len() == 3));
}

#[test]
fn a_datagram_that_is_lost_alone_is_sent_again_alone_and_before_it_is_time() {
    let (mut group, packets) = three_on_the_way();
    let begun = group.now;
    for packet in packets.into_iter().skip(1) {
        group.step(1, Input::Medium(messages::MessageInput::From(Pid(0), packet)));
    }
    let mut again = Vec::new();
    while group.delivered[1].is_empty() {
        for (from, to, packet) in &group.way {
            let is_it = (from.0, to.0) == (0, 1);
            again.extend(packet.items.iter().filter(|_| is_it).filter_map(|item| match item {
                PacketItem::Forward { link, .. } => Some(*link),
                _ => None,
            }));
        }
        group.carry();
        group.now += Span::micros(50);
        group.wake();
        assert!(
            group.now.since(begun) < Span::millis(5),
            "the acknowledgement of the others says so"
        );
    }
    assert_eq!(again, [1]);
    assert_eq!(group.delivered[1], msgs(&[(0, 1), (0, 2), (0, 3)]));
}

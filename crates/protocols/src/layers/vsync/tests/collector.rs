//! Acknowledgements that one member gathers for all.

use super::*;

/// The settings of members that multicast to their group, with heartbeats that are no help.
fn gathering_settings(p: u32) -> VsyncSettings {
    VsyncSettings {
        dissemination: Dissemination::Group,
        link: Some(125_000),
        heartbeat: Span::millis(200),
        suspect: Span::secs(2),
        window: 64,
        ..settings(p)
    }
}

/// Three members of that kind that cast stably.
fn gathering() -> ThreeMembers {
    let mut group = ThreeMembers::of(Grade::Stable, gathering_settings);
    group.run(5);
    group
}

/// The name of an item that is about casts.
fn named(item: &PacketItem) -> Option<&'static str> {
    match item {
        PacketItem::Cast { .. } => Some("cast"),
        PacketItem::Ack { .. } => Some("ack"),
        PacketItem::AckAll { .. } => Some("ack to all"),
        PacketItem::HeldByAll { .. } => Some("held"),
        PacketItem::AskAck { .. } => Some("ask"),
        PacketItem::Fetch { .. } => Some("fetch"),
        _ => None,
    }
}

impl ThreeMembers {
    /// Carries packets for so long; says from whom to whom they went, and what they said of casts.
    fn watch(&mut self, ms: u64) -> Vec<(u32, u32, &'static str)> {
        let mut seen = Vec::new();
        for _ in 0..ms * 20 {
            let until = self.now + Span::micros(50);
            for (from, to, packet) in &self.way {
                let all = packet.items.iter().filter_map(named);
                seen.extend(all.map(|what| (from.0, to.0, what)));
            }
            self.carry();
            self.now = until;
            self.wake();
        }
        seen
    }
}

#[test]
fn one_member_gathers_acknowledgements_and_tells_all_what_all_have() {
    let mut group = gathering();
    for (sender, seq) in [(0, 1), (1, 2), (2, 3)] {
        group.submit(sender, seq);
        let seen = group.watch(2);
        let own = msgs(&[(sender, seq)]);
        assert!(group.delivered.iter().all(|d| d.last() == own.first()), "{sender}: {seen:?}");
        let count = |what| seen.iter().filter(|(.., said)| *said == what).count();
        assert_eq!((count("cast"), count("held")), (2, 2), "{sender}: {seen:?}");
        // Each other member but the collector acknowledges to it, and to the one that sends.
        let acks = seen.iter().filter(|(.., said)| *said == "ack");
        let acks: Vec<(u32, u32)> = acks.map(|&(from, to, _)| (from, to)).collect();
        let expected: &[(u32, u32)] = match sender {
            0 => &[(1, 0), (2, 0)],
            1 => &[(2, 0), (2, 1)],
            _ => &[(1, 0), (1, 2)],
        };
        assert_eq!(acks, expected, "{sender}: {seen:?}");
        assert!(seen.iter().all(|&(from, _, said)| said != "ack to all" || from == 0), "{seen:?}");
    }
}

#[test]
fn a_late_answer_of_the_collector_is_acknowledged_to_the_only_sender_too() {
    let mut group = gathering();
    let retry = gathering_settings(0).retry.0 / 1_000_000;
    // Answers of the collector on links that delay come when the sender's own casts were acknowledged long ago.
    let mut answer = |sender: Option<u32>, expected: &[(u32, u32)]| {
        if let Some(p) = sender {
            let next = group.delivered[0].len() as u64 + 1;
            group.submit(p, next);
            group.watch(retry);
        }
        let next = group.delivered[0].len() as u64 + 1;
        group.submit(0, next);
        let seen = group.watch(2);
        let acks = seen.iter().filter(|(.., said)| *said == "ack");
        let acks: Vec<(u32, u32)> = acks.map(|&(from, to, _)| (from, to)).collect();
        assert_eq!(acks, expected, "{sender:?}: {seen:?}");
    };
    let (to_collector, to_both) = ([(1, 0), (2, 0)], [(1, 0), (2, 0), (2, 1)]);
    answer(Some(1), &to_collector);
    // No other one sent for so long.
    answer(Some(1), &to_both);
    answer(None, &to_collector);
    // Another one sends.
    answer(Some(2), &to_collector);
    answer(Some(1), &to_collector);
    answer(Some(1), &to_both);
}

#[test]
fn what_may_wait_in_front_of_a_slow_link_is_not_repeated_meanwhile() {
    let of = |link| VsyncSettings { link, retry: Span::millis(5), ..settings(0) }.first_repeat();
    // Kilobytes a second.
    assert_eq!([None, Some(117_750), Some(46_000)].map(of), [Span::millis(5); 3]);
    assert_eq!(of(Some(6_250)), Span::nanos(36_700_160));
}

#[test]
fn a_sender_asks_which_casts_are_there_before_it_repeats_any() {
    let mut group = gathering();
    group.submit(1, 1);
    // All have it, and no acknowledgement arrives.
    group.carry();
    group.now += Span::micros(500);
    group.wake();
    assert!(group.way.iter().any(|(_, _, packet)| packet.items.iter().any(|i| named(i).is_some())));
    group.way.clear();
    assert!(group.delivered.iter().all(Vec::is_empty));
    let seen = group.watch(4);
    assert!(group.delivered.iter().all(|d| *d == msgs(&[(1, 1)])), "{seen:?}");
    assert!(seen.contains(&(1, 0, "ask")) && seen.contains(&(1, 2, "ask")), "{seen:?}");
    assert!(!seen.iter().any(|(.., said)| *said == "cast"), "{seen:?}");
}

#[test]
fn casts_that_were_lost_are_fetched_when_their_sender_asks() {
    let mut group = gathering();
    group.lossy = true;
    (1..=3).for_each(|seq| group.submit(1, seq));
    group.run(1);
    group.lossy = false;
    let seen = group.watch(6);
    let all = msgs(&[(1, 1), (1, 2), (1, 3)]);
    assert!(group.delivered.iter().all(|d| *d == all), "{:?}: {seen:?}", group.delivered);
    assert!(seen.contains(&(2, 1, "fetch")), "{seen:?}");
}

#[test]
fn nothing_is_held_by_all_because_another_member_says_so() {
    let mut group = gathering();
    group.apart = alloc::vec![Pid(2)];
    group.submit(1, 1);
    group.run(1);
    let says = |group: &mut ThreeMembers, from| {
        let items = alloc::vec![PacketItem::HeldByAll { view: 0, held: alloc::vec![u64::MAX; 3] }];
        let packet = VsyncPacket { life: 0, items };
        group.step(1, Input::Medium(messages::MessageInput::From(from, packet)));
        group.delivered[1].len()
    };
    assert_eq!(says(&mut group, Pid(2)), 0);
    assert_eq!(says(&mut group, Pid(0)), 1);
    // The next one is not here yet.
    group.submit(1, 2);
    assert_eq!(group.delivered[1].len(), 1);
}

impl ThreeMembers {
    /// A member receives these items of another one, in one packet.
    fn receive(&mut self, p: u32, from: u32, items: Vec<PacketItem>) {
        let packet = VsyncPacket { life: 0, items };
        self.step(p, Input::Medium(messages::MessageInput::From(Pid(from), packet)));
    }

    /// The items that are on the way from a member to another one, which arrive nowhere.
    fn lose(&mut self, from: u32, to: u32) -> Vec<PacketItem> {
        let is_lost = |way: &(Pid, Pid, VsyncPacket)| way.0 == Pid(from) && way.1 == Pid(to);
        let (lost, way): (Vec<_>, Vec<_>) = self.way.drain(..).partition(is_lost);
        self.way = way.into();
        lost.into_iter().flat_map(|(_, _, packet)| packet.items).collect()
    }
}

fn count(items: &[PacketItem], name: &str) -> usize {
    items.iter().filter(|item| named(item) == Some(name)).count()
}

#[test]
fn casts_that_were_lost_before_one_that_arrived_are_fetched_together_over_a_new_link() {
    let mut group = gathering();
    group.lossy = true;
    (1..=30).for_each(|seq| group.submit(1, seq));
    group.carry();
    group.lossy = false;
    group.submit(1, 31);
    group.carry();
    for p in [0, 2] {
        group.step(1, Input::Medium(messages::MessageInput::Up(Pid(p))));
    }
    let seen = group.watch(1);
    let all: Vec<MsgId> = (1..=31).map(|seq| MsgId { sender: Pid(1), seq }).collect();
    assert!(group.delivered.iter().all(|d| *d == all), "{:?}: {seen:?}", group.delivered);
    let acks = seen.iter().filter(|(.., said)| *said == "ack").count();
    assert!(acks <= 12, "{acks} acknowledgements: {seen:?}");
}

#[test]
fn many_questions_of_a_round_have_one_answer() {
    let mut group = gathering();
    let asks = alloc::vec![PacketItem::AskAck { view: 0, number: 5 }; 300];
    group.receive(2, 1, asks);
    group.step(2, Input::Wake);
    let (to_sender, to_collector) = (group.lose(2, 1), group.lose(2, 0));
    assert_eq!((count(&to_sender, "ack"), count(&to_sender, "fetch")), (1, 1), "{to_sender:?}");
    assert_eq!((count(&to_collector, "ack"), to_collector.len()), (1, 1), "{to_collector:?}");
}

#[test]
fn fetched_casts_of_the_present_view_leave_within_the_round_and_the_room_of_the_carrier() {
    let mut group = ThreeMembers::of(Grade::Stable, |p| VsyncSettings {
        lane: Lane::Datagram,
        ..gathering_settings(p)
    });
    group.run(5);
    let member = &mut group.members[1];
    (0..8).for_each(|_| {
        member.casts.cast(&member.group, Grade::Stable, &[7; 1000], &mut member.post);
    });
    group.step(1, Input::Wake);
    group.way.clear();
    let fetch = PacketItem::Fetch { view: 0, sender: Pid(1), after: 0, upto: 8 };
    let fetched = |group: &mut ThreeMembers, times: usize| {
        group.step(1, Input::Wake);
        group.receive(1, 2, alloc::vec![fetch.clone(); times]);
        group.step(1, Input::Wake);
        count(&group.lose(1, 2), "cast")
    };
    assert_eq!(fetched(&mut group, 1), 8);
    assert_eq!(
        fetched(&mut group, 40),
        16 * 8 + 8,
        "128 KiB, and the last answer in the next round"
    );
    assert_eq!(fetched(&mut group, 1), 8);
    group.members[1].group.has_room = false;
    assert_eq!(fetched(&mut group, 1), 0, "the carrier has no room");
}

/// Casts of these bytes that member 1 makes, each in a packet, of which those up to `lost` arrive nowhere.
fn lose_first(group: &mut ThreeMembers, casts: usize, bytes: usize, lost: usize) {
    for at in 1..=casts {
        let member = &mut group.members[1];
        member.casts.cast(&member.group, Grade::Stable, &alloc::vec![7; bytes], &mut member.post);
        group.step(1, Input::Wake);
        if at <= lost {
            group.way.clear();
        }
    }
}

#[test]
fn thirty_casts_that_were_lost_before_one_that_arrived_come_back_in_five_round_trips() {
    let mut group = gathering();
    lose_first(&mut group, 31, 8, 30);
    let seen = group.watch(1);
    let count = |what| seen.iter().filter(|(.., said)| *said == what).count();
    let have = group.members.iter().map(|member| member.casts.log.have(Pid(1)));
    assert!(have.clone().all(|have| have == 31), "{:?}: {seen:?}", have.collect::<Vec<_>>());
    // 1, 2, 4, 8 and 15 of them, by each member.
    assert_eq!((count("fetch"), count("ask")), (2 * 5, 0), "{seen:?}");
}

#[test]
fn lost_casts_that_are_more_than_one_answer_come_back_without_a_wait() {
    let mut group = ThreeMembers::of(Grade::Stable, |p| VsyncSettings {
        lane: Lane::Datagram,
        window: 256,
        ..gathering_settings(p)
    });
    group.run(5);
    lose_first(&mut group, 201, 1000, 200);
    let seen = group.watch(5);
    let have = group.members.iter().map(|member| member.casts.log.have(Pid(1)));
    assert!(have.clone().all(|have| have == 201), "{:?}", have.collect::<Vec<_>>());
    let count = |what| seen.iter().filter(|(.., said)| *said == what).count();
    // The last questions are for as many as fit into an answer.
    assert!(count("fetch") <= 2 * 9 && count("ask") == 0, "{seen:?}");
}

#[test]
fn a_cast_that_another_one_has_overtaken_is_repeated_once_at_most() {
    let mut group = gathering();
    lose_first(&mut group, 20, 8, 0);
    let is_to = |way: &(Pid, Pid, VsyncPacket)| (way.0, way.1) == (Pid(1), Pid(2));
    let way = group.way.drain(..).filter(is_to).map(|(_, _, packet)| packet);
    let way: Vec<_> = way.filter(|packet| count(&packet.items, "cast") > 0).collect();
    assert_eq!(way.len(), 20);
    // Each of them arrives in a round of its own, the later one of two first.
    for pair in way.chunks(2) {
        for packet in pair.iter().rev() {
            group.now += Span::micros(100);
            group.step(2, Input::Medium(messages::MessageInput::From(Pid(1), packet.clone())));
            group.step(2, Input::Wake);
        }
    }
    let asked: Vec<u64> = group
        .lose(2, 1)
        .iter()
        .filter_map(|item| match item {
            PacketItem::Fetch { after, upto, .. } => Some(upto - after),
            _ => None,
        })
        .collect();
    assert!(asked.len() <= 10 && asked.iter().all(|&casts| casts == 1), "{asked:?}");
}

#[test]
fn an_answer_says_what_is_here_at_the_end_of_the_round() {
    let mut group = gathering();
    lose_first(&mut group, 3, 8, 0);
    let items = group.lose(1, 2);
    group.receive(2, 1, alloc::vec![PacketItem::AskAck { view: 0, number: 3 }]);
    group.receive(2, 1, items);
    group.step(2, Input::Wake);
    let items = group.lose(2, 1);
    let have = items.iter().find_map(|item| match item {
        PacketItem::Ack { have, .. } => Some(have[1]),
        _ => None,
    });
    assert_eq!((have, count(&items, "fetch")), (Some(3), 0), "{items:?}");
}

#[test]
fn answers_do_not_hasten_what_leaves_at_a_bounded_rate() {
    let mut group = gathering();
    let one = alloc::vec![PacketItem::AskAck { view: 0, number: 0 }];
    let acks = (0..40).map(|_| {
        group.receive(2, 1, one.clone());
        group.step(2, Input::Wake);
        (count(&group.lose(2, 1), "ack"), count(&group.lose(2, 0), "ack"))
    });
    let acks: Vec<_> = acks.collect();
    let sum = |of: fn(&(usize, usize)) -> usize| acks.iter().map(of).sum::<usize>();
    assert_eq!(sum(|acks| acks.0), 40);
    assert!(sum(|acks| acks.1) <= 4, "to the collector: {acks:?}");
}

/// The items that the sender of a cast sends to a member that enters the view after it.
fn to_one_that_enters(broken: Option<VsyncMutant>) -> Vec<PacketItem> {
    let mut group =
        ThreeMembers::of(Grade::Stable, |p| VsyncSettings { broken, ..gathering_settings(p) });
    group.way.clear();
    group.submit(1, 1);
    group.way.clear();
    let have = alloc::vec![0; 3];
    let enters = PacketItem::AckAll { view: 0, fit: true, gaps: 0, had: Vec::new(), have };
    group.receive(1, 2, alloc::vec![enters]);
    group.step(1, Input::Wake);
    group.lose(1, 2)
}

#[test]
fn a_member_that_enters_is_asked_which_casts_it_has_and_none_is_repeated_unasked() {
    let items = to_one_that_enters(None);
    assert_eq!((count(&items, "ask"), count(&items, "cast")), (1, 0), "{items:?}");
    // The mutant is seen.
    let items = to_one_that_enters(Some(VsyncMutant::RepeatsUnasked));
    assert_eq!(count(&items, "cast"), 1, "{items:?}");
}

/// The messages of which a member tells all that it has them, in the step in which one comes again.
fn told_of_a_repeated_message(broken: Option<VsyncMutant>) -> Vec<u64> {
    let mut group =
        ThreeMembers::of(Grade::Plain, |p| VsyncSettings { broken, ..gathering_settings(p) });
    group.run(5);
    let bytes = alloc::vec![7; 8].into();
    let message = PacketItem::To { view: 0, number: 1, more: false, bytes };
    group.receive(2, 1, alloc::vec![message.clone()]);
    group.now += Span::millis(10);
    group.step(2, Input::Wake);
    let lost = group.lose(2, 1);
    assert!(matches!(lost[..], [PacketItem::Ack { had: 1, .. }]), "{lost:?}");
    // A heartbeat is due when it comes again.
    group.now += Span::millis(400);
    group.receive(2, 1, alloc::vec![message]);
    group.step(2, Input::Wake);
    let items = group.lose(2, 1);
    let had = items.iter().find_map(|item| match item {
        PacketItem::AckAll { had, .. } => Some(had.clone()),
        _ => None,
    });
    assert_eq!(count(&items, "ack"), 0, "the message to all says it: {items:?}");
    had.expect("a heartbeat")
}

#[test]
fn a_message_that_comes_again_is_acknowledged_again_also_to_all() {
    assert_eq!(told_of_a_repeated_message(None), [0, 1, 0]);
    // The mutant is seen.
    assert_eq!(told_of_a_repeated_message(Some(VsyncMutant::AcknowledgesOnce)), []);
}

#[test]
fn a_decision_leaves_once_and_before_casts_of_its_view() {
    let mut post = OutgoingPackets::new(&gathering_settings(0));
    let view = View::new(1, alloc::vec![GroupMember { pid: Pid(0), life: 0 }]);
    let decision = ViewDecision { view, cut: alloc::vec![0; 3] };
    let kept = casts::RetainedCast { grade: Grade::Plain, more: false, bytes: [7][..].into() };
    post.push_for_all(PacketItem::Cast { view: 1, sender: Pid(0), number: 1, kept });
    post.push(Pid(1), PacketItem::Ask { view: 0 });
    (0..2).for_each(|_| post.push_decision(Pid(2), &decision));
    let mut out = Outbox::default();
    post.flush(0, &mut out);
    let mut outputs = Vec::new();
    out.take(&mut outputs);
    let packets = outputs.into_iter().map(|output| match output {
        Output::Medium(messages::MessageOutput::To(to, _, packet)) => (Some(to), packet.items),
        Output::Medium(messages::MessageOutput::Group(_, _, packet)) => (None, packet.items),
        other => panic!("{other:?}"),
    });
    let [(first, decisions), (second, _), (third, _)] = &packets.collect::<Vec<_>>()[..] else {
        panic!("three packets")
    };
    assert_eq!([*first, *second, *third], [Some(Pid(2)), None, Some(Pid(1))]);
    assert_eq!(*decisions, [PacketItem::Decide(decision)]);
}

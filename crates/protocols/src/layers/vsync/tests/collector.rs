//! Acknowledgements that one member gathers for all.

use super::*;

/// Three members that cast stably to their group, with heartbeats that are no help.
fn gathering() -> ThreeMembers {
    let mut group = ThreeMembers::of(Grade::Stable, |p| VsyncSettings {
        dissemination: Dissemination::Group,
        link: Some(10_000),
        heartbeat: Span::millis(200),
        suspect: Span::secs(2),
        ..settings(p)
    });
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

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
    let mut group = ring();
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

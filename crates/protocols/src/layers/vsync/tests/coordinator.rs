//! The requests of a coordinator to others, which the test plays.

use super::*;

/// A coordinator, of which the test is all the others.
struct LoneCoordinator {
    member: Vsync<u64, PassThrough>,
    now: Time,
}

impl LoneCoordinator {
    /// Gives it a packet of a peer, and says what it sends then, and to whom.
    fn hear(&mut self, from: u32, life: u64, items: &[PacketItem]) -> Vec<(Pid, PacketItem)> {
        let (mut out, packet) = (Outbox::default(), VsyncPacket { life, items: items.to_vec() });
        let from = messages::MessageInput::From(Pid(from), packet);
        self.member.step(self.now, (), Input::Medium(from), &mut out);
        self.member.step(self.now, (), Input::Wake, &mut out);
        let mut sent = Vec::new();
        for output in out.items() {
            if let Output::Medium(messages::MessageOutput::To(to, _, packet)) = output {
                sent.extend(packet.items.iter().map(|item| (*to, item.clone())));
            }
        }
        sent
    }

    /// The same each millisecond until something is sent that is wanted: what, and to whom.
    fn until<T>(
        &mut self,
        (from, life): (u32, u64),
        items: &[PacketItem],
        wanted: impl Fn(&PacketItem) -> Option<T>,
    ) -> Option<(Pid, T)> {
        for _ in 0..40 {
            self.now += Span::millis(1);
            let sent = self.hear(from, life, items);
            if let Some(found) = sent.iter().find_map(|(to, i)| wanted(i).map(|w| (*to, w))) {
                return Some(found);
            }
        }
        None
    }
}

#[test]
fn nobody_outside_accepts_a_view_before_a_member_that_hears_its_coordinator_no_more() {
    let member = Vsync::new(settings(0), PassThrough::default());
    let mut group = LoneCoordinator { member, now: Time::ZERO };
    group.member.step(Time::ZERO, (), Input::Start { incarnation: 0 }, &mut Outbox::default());
    let prepared = |item: &PacketItem| match item {
        PacketItem::Prepare { instance, ballot } => Some((*instance, *ballot)),
        _ => None,
    };
    let asked = |item: &PacketItem| matches!(item, PacketItem::Accept { .. }).then_some(());
    let promise = |(instance, ballot), standing| PacketItem::Promise {
        instance,
        ballot,
        accepted: None,
        standing,
    };
    let stays = || agreement::PromiserStatus::Member { fit: true, have: alloc::vec![0; 3] };
    // The third is silent, and a view without it is decided.
    let (_, one) = group.until((1, 0), &[], prepared).expect("it changes the view");
    group.hear(1, 0, &[promise(one, stays())]);
    group.hear(1, 0, &[PacketItem::Accepted { instance: one.0, ballot: one.1 }]);
    assert_eq!(group.member.group.view.pids().collect::<Vec<_>>(), [Pid(0), Pid(1)]);
    group.hear(1, 0, &[PacketItem::Alive { view: 1, fit: true }]);
    // It wants to join. The second promises, and then does not hear the coordinator any more.
    let (_, two) =
        group.until((2, 1), &[PacketItem::Join { view: 1 }], prepared).expect("it joins");
    group.hear(2, 1, &[promise(two, agreement::PromiserStatus::Outsider)]);
    let sent = group.hear(1, 0, &[promise(two, stays())]);
    assert!(sent.iter().any(|(to, item)| *to == Pid(1) && asked(item).is_some()), "{sent:?}");
    for _ in 0..40 {
        group.now += Span::millis(1);
        let mut sent = group.hear(2, 1, &[]);
        sent.extend(group.hear(1, 0, &[PacketItem::Unheard { processes: 0b001 }]));
        assert!(!sent.iter().any(|(to, i)| *to == Pid(2) && asked(i).is_some()), "{sent:?}");
    }
}

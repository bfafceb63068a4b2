//! Members that continue in every component of a partition: the test carries their packets, and cuts links.

use super::{PassThrough, settings};
use crate::layers::vsync::agreement::HearingReport;
use crate::layers::vsync::packet::PacketItem;
use crate::layers::vsync::{ViewQuorum, Vsync, VsyncPacket, VsyncSettings};
use alloc::collections::VecDeque;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use amcast_core::groupcast::{Grade, ViewName};
use amcast_core::messages::{MessageInput, MessageOutput, Messages};
use amcast_core::step::Submission;
use amcast_core::{Gid, GroupSet, Input, Outbox, Output, Pid, Protocol, ProtocolEvent, Span, Time};

/// A report of a member.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Step {
    Delivers(u32, u64),
    /// The view's name, its members, and those that come along.
    Enters(String, u32, u32),
    /// The name of another view, and the members that come from it.
    Merges(String, u32),
}

/// Some members, and the packets between them.
struct ComponentNetwork {
    members: Vec<Vsync<u64, PassThrough>>,
    now: Time,
    /// From, to, packet.
    way: VecDeque<(Pid, Pid, VsyncPacket)>,
    /// From and to: no packet passes.
    cut: Vec<(u32, u32)>,
    /// Which items are lost.
    loses: fn(&PacketItem) -> bool,
    steps: Vec<Vec<Step>>,
    left: Vec<(Pid, ProtocolEvent)>,
}

fn of(processes: usize, me: u32) -> VsyncSettings {
    VsyncSettings { processes, quorum: ViewQuorum::Component, full: None, ..settings(me) }
}

impl ComponentNetwork {
    fn new(processes: usize) -> Self {
        let member = |p| Self::member(processes, p);
        let mut network = Self {
            members: (0..processes as u32).map(member).collect(),
            now: Time::ZERO,
            way: VecDeque::new(),
            cut: Vec::new(),
            loses: |_| false,
            steps: alloc::vec![Vec::new(); processes],
            left: Vec::new(),
        };
        (0..processes as u32).for_each(|p| network.step(p, Input::Start { incarnation: 0 }));
        network.run(5);
        network.steps.iter_mut().for_each(Vec::clear);
        network
    }

    fn member(processes: usize, p: u32) -> Vsync<u64, PassThrough> {
        let inner =
            PassThrough { me: Some(Pid(p)), grade: Some(Grade::Plain), ..PassThrough::default() };
        Vsync::new(of(processes, p), inner)
    }

    fn step(&mut self, p: u32, input: Input<'_, Messages<VsyncPacket>>) {
        let mut out = Outbox::default();
        self.members[p as usize].step(self.now, (), input, &mut out);
        let mut taken = Vec::new();
        out.take(&mut taken);
        let name = |number| ViewName::of(number).to_string();
        for output in taken {
            let step = match output {
                Output::Medium(MessageOutput::To(to, _, packet)) => {
                    self.way.push_back((Pid(p), to, packet));
                    continue;
                }
                Output::Deliver(d) => Step::Delivers(d.msg.sender.0, d.msg.seq),
                Output::Event(ProtocolEvent::ViewEntered { number, members, continuing }) => {
                    Step::Enters(name(number), members, continuing)
                }
                Output::Event(ProtocolEvent::Merged { from, members, .. }) => {
                    Step::Merges(name(from), members)
                }
                Output::Event(event) => {
                    self.left.push((Pid(p), event));
                    continue;
                }
                other => panic!("{other:?}"),
            };
            self.steps[p as usize].push(step);
        }
    }

    /// A process starts again, in its next incarnation.
    fn restart(&mut self, p: u32) {
        self.members[p as usize] = Self::member(self.members.len(), p);
        self.step(p, Input::Start { incarnation: 1 });
    }

    fn submit(&mut self, p: u32, seq: u64) {
        let dst = GroupSet::one(Gid(0));
        self.step(p, Input::Submit(Submission { seq, dst, payload: &[] }));
        self.step(p, Input::Wake);
    }

    /// Cuts the link between two, in both directions.
    fn part(&mut self, one: &[u32], other: &[u32]) {
        for &a in one {
            self.cut.extend(other.iter().flat_map(|&b| [(a, b), (b, a)]));
        }
    }

    /// Carries packets and wakes members for so long.
    fn run(&mut self, ms: u64) {
        let until = self.now + Span::millis(ms);
        while self.now < until {
            while let Some((from, to, mut packet)) = self.way.pop_front() {
                packet.items.retain(|item| !(self.loses)(item));
                if !self.cut.contains(&(from.0, to.0)) {
                    self.step(to.0, Input::Medium(MessageInput::From(from, packet)));
                }
            }
            self.now += Span::micros(50);
            for p in 0..self.members.len() as u32 {
                let due = self.members[p as usize].deadline();
                if due.is_some_and(|(at, _)| at <= self.now) {
                    self.step(p, Input::Wake);
                }
            }
        }
    }

    /// The members of the view of each.
    fn views(&self) -> Vec<u32> {
        let bits =
            |m: &Vsync<u64, PassThrough>| m.group.members.iter().fold(0, |b, p| b | 1 << p.0);
        self.members.iter().map(bits).collect()
    }

    /// The steps of each member since the last look.
    fn look(&mut self) -> Vec<Vec<Step>> {
        self.steps.iter_mut().map(core::mem::take).collect()
    }
}

fn enters(name: &str, members: u32, continuing: u32) -> Step {
    Step::Enters(name.to_string(), members, continuing)
}

fn merges(name: &str, members: u32) -> Step {
    Step::Merges(name.to_string(), members)
}

#[test]
fn every_component_continues_and_when_they_merge_nothing_is_forgotten() {
    let mut network = ComponentNetwork::new(3);
    network.part(&[0], &[1, 2]);
    network.run(40);
    assert_eq!(network.views(), [0b001, 0b110, 0b110]);
    network.submit(0, 1);
    network.submit(2, 2);
    network.run(5);
    let one = [enters("1.p0", 0b001, 0b001), Step::Delivers(0, 1)];
    let other = [enters("1.p1", 0b110, 0b110), Step::Delivers(2, 2)];
    assert_eq!(network.look(), [&one[..], &other, &other]);
    network.cut.clear();
    network.run(40);
    network.submit(1, 3);
    network.run(5);
    let end = Step::Delivers(1, 3);
    let one = [enters("2.p0", 0b111, 0b001), merges("1.p1", 0b110), end.clone()];
    let other = [enters("2.p0", 0b111, 0b110), merges("1.p0", 0b001), end];
    assert_eq!(network.look(), [&one[..], &other, &other]);
}

#[test]
fn where_hearing_is_not_transitive_a_view_has_only_members_that_hear_each_other() {
    for (cut, sets) in [
        (&[(0, 2), (2, 0)][..], [0b1011, 0b1011, 0b0100, 0b1011]),
        // One direction is enough.
        (&[(2, 0)], [0b1011, 0b1011, 0b0100, 0b1011]),
        // A chain.
        (&[(0, 2), (2, 0), (0, 3), (3, 0), (1, 3), (3, 1)], [0b0011, 0b0011, 0b1100, 0b1100]),
    ] {
        let mut network = ComponentNetwork::new(4);
        network.cut = cut.to_vec();
        network.run(200);
        assert_eq!(network.views(), sets, "{cut:?}");
        network.look();
        network.submit(1, 1);
        network.submit(2, 2);
        network.run(500);
        // Each set stays as it is, and delivers its own messages alone.
        for (p, steps) in network.look().into_iter().enumerate() {
            let own = if sets[p] & 0b10 != 0 { Step::Delivers(1, 1) } else { Step::Delivers(2, 2) };
            assert_eq!(steps, [own], "{cut:?}: {p}");
        }
        network.cut.clear();
        network.run(60);
        assert_eq!(network.views(), [0b1111; 4], "{cut:?}");
    }
}

#[test]
fn members_that_come_along_have_what_any_of_them_had() {
    let mut network = ComponentNetwork::new(4);
    // Only p2 receives what p0 casts last, and p0 is then gone.
    network.part(&[0], &[1, 3]);
    network.submit(0, 1);
    network.run(1);
    network.part(&[0], &[2]);
    network.run(60);
    let along = [Step::Delivers(0, 1), enters("1.p1", 0b1110, 0b1110)];
    let mut steps = network.look();
    steps[1..].iter_mut().for_each(|steps| steps.truncate(2));
    assert_eq!(steps[1..], [&along[..], &along, &along]);
}

#[test]
fn a_process_that_starts_again_is_a_component_of_its_own_and_merges_as_another_one() {
    let mut network = ComponentNetwork::new(3);
    network.submit(2, 1);
    network.run(2);
    network.restart(2);
    network.run(60);
    assert_eq!(network.views(), [0b111; 3]);
    let steps = network.look();
    let alone = |step: &Step| *step == enters("0.p2.1", 0b100, 0);
    assert!(steps[2].iter().any(alone), "{:?}", steps[2]);
    assert!(steps[0].contains(&merges("0.p2.1", 0b100)), "{:?}", steps[0]);
    assert!(steps[2].iter().all(|step| *step != Step::Delivers(2, 1) || steps[2][0] == *step));
    network.submit(2, 2);
    network.run(2);
    assert!(network.look().iter().all(|steps| *steps == [Step::Delivers(2, 2)]));
}

#[test]
fn another_one_takes_over_where_a_coordinator_is_gone_and_a_lost_view_is_installed_again() {
    let mut network = ComponentNetwork::new(4);
    network.part(&[3], &[0, 1, 2]);
    // p0 asks, and nothing of its view arrives before it is gone, too.
    network.loses = |item| matches!(item, PacketItem::Install(_));
    network.run(25);
    assert_eq!(network.views()[1..3], [0b1111; 2]);
    network.part(&[0], &[1, 2]);
    network.loses = |_| false;
    network.run(120);
    assert_eq!(network.views(), [0b0001, 0b0110, 0b0110, 0b1000]);
    network.cut.clear();
    network.run(120);
    assert_eq!(network.views(), [0b1111; 4]);
    // One that misses the view is given it as soon as it says so.
    network.part(&[3], &[0, 1, 2]);
    network.loses = |item| matches!(item, PacketItem::Install(_));
    network.run(17);
    network.loses = |_| false;
    network.run(30);
    assert_eq!(network.views(), [0b0111, 0b0111, 0b0111, 0b1000]);
}

#[test]
fn a_member_that_leaves_is_in_no_view_any_more_and_has_handed_over_all() {
    let mut network = ComponentNetwork::new(3);
    network.submit(1, 1);
    network.step(1, Input::Leave);
    network.run(60);
    assert!(matches!(network.left[..], [(Pid(1), ProtocolEvent::Left(_))]), "{:?}", network.left);
    assert_eq!((network.views()[0], network.views()[2]), (0b101, 0b101));
    let first = |steps: &Vec<Step>| steps.first() == Some(&Step::Delivers(1, 1));
    assert!(network.look().iter().all(first));
}

impl ComponentNetwork {
    /// A process says something to some others that it does not mean.
    fn tell(&mut self, from: u32, to: &[u32], item: &PacketItem) {
        for &to in to {
            let life = self.members[to as usize].group.peers.life(Pid(from));
            let packet = VsyncPacket { life, items: alloc::vec![item.clone()] };
            self.step(to, Input::Medium(MessageInput::From(Pid(from), packet)));
        }
    }
}

#[test]
fn a_round_that_nobody_reaches_by_counting_keeps_no_component_from_merging() {
    for round in [ViewName::ROUND_MAX - 1, ViewName::ROUND_MAX - 2, ViewName::ROUND_MAX / 2] {
        let name = ViewName { round, incarnation: 0, coordinator: Pid(2) }.number();
        for item in [PacketItem::Gather { name }, PacketItem::Outdated { name }] {
            let mut network = ComponentNetwork::new(3);
            network.part(&[0], &[1, 2]);
            network.run(20);
            network.tell(2, &[0, 1], &item);
            network.run(60);
            assert_eq!(network.views(), [0b001, 0b110, 0b110], "{item:?}");
            network.tell(2, &[0, 1], &item);
            network.cut.clear();
            network.run(120);
            assert_eq!(network.views(), [0b111; 3], "{item:?}");
            // Names stay where counting can continue.
            assert!(network.members.iter().all(|m| ViewName::of(m.group.view.id).round < 100));
        }
    }
}

#[test]
fn a_report_that_its_process_has_not_made_does_not_stay() {
    let lie = |life, version| {
        let none = HearingReport::default();
        let of_p2 = HearingReport { life, version, view: 0, hears: 0b100 };
        PacketItem::Hears { reports: alloc::vec![none, none, of_p2] }
    };
    // In its incarnation, and in one that never was.
    for item in [lie(0, 1 << 40), lie(9, 1)] {
        let mut network = ComponentNetwork::new(3);
        network.tell(1, &[0], &item);
        network.run(60);
        assert_eq!(network.views(), [0b111; 3], "{item:?}");
        // Its later reports count, too.
        network.part(&[2], &[0, 1]);
        network.run(60);
        assert_eq!(network.views(), [0b011, 0b011, 0b100], "{item:?}");
        network.cut.clear();
        network.run(60);
        assert_eq!(network.views(), [0b111; 3], "{item:?}");
    }
}

#[test]
fn a_report_of_a_life_that_is_over_is_believed_no_more_by_those_that_do_not_hear_the_next() {
    let mut network = ComponentNetwork::new(4);
    // p3 hears all but p0, and knows of it by reports that others pass on.
    network.part(&[0], &[3]);
    network.run(60);
    assert_eq!(network.views(), [0b0111, 0b0111, 0b0111, 0b1000]);
    // In its next life p0 does not hear p2 either, which p3 can learn only from others.
    network.cut.push((2, 0));
    network.restart(0);
    network.run(400);
    assert_eq!(network.views(), [0b0011, 0b0011, 0b1100, 0b1100]);
    network.look();
    network.run(200);
    assert_eq!(network.look(), [const { Vec::new() }; 4], "no view follows");
}

#[test]
fn a_member_that_leaves_hands_on_the_last_cast_of_one_that_fails() {
    let mut network = ComponentNetwork::new(4);
    // Only p2 receives what p0 casts last; then p0 is gone, and p2 leaves.
    network.part(&[0], &[1, 3]);
    network.submit(0, 1);
    network.run(1);
    network.part(&[0], &[2]);
    network.step(2, Input::Leave);
    network.run(80);
    assert!(matches!(network.left[..], [(Pid(2), ProtocolEvent::Left(_))]), "{:?}", network.left);
    assert_eq!((network.views()[1], network.views()[3]), (0b1010, 0b1010));
    let steps = network.look();
    for p in [1, 2, 3] {
        assert_eq!(steps[p].first(), Some(&Step::Delivers(0, 1)), "p{p}: {:?}", steps[p]);
    }
}

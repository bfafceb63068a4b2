//! Three members whose packets the test carries, with a protocol on top that only passes on.

use super::agreement::ViewDecision;
use super::*;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use amcast_core::Gid;
use amcast_core::codec::ByteReader;
use amcast_core::groupcast::{Grade, GroupMember, GroupcastInput, GroupcastOutput, View};
use amcast_core::messages::{self, Lane};
use amcast_core::step::Submission;
use amcast_core::{ProtocolEvent, Span, StateSource};

mod collector;
mod components;
mod coordinator;
mod full;
mod ring;

/// Casts what is submitted and delivers what it is handed, in the order in which it is.
#[derive(Debug, Default)]
struct PassThrough {
    me: Option<Pid>,
    /// That of all casts of its group.
    grade: Option<Grade>,
    position: u64,
    blocked: bool,
    /// The senders of stable casts that were announced.
    received: Vec<Pid>,
    /// Those whose casts were announced in this view and not handed over yet.
    announced: Vec<Pid>,
    /// The senders of casts that are stable.
    stable: Vec<Pid>,
}

impl PassThrough {
    fn begin_view(&mut self) {
        self.blocked = false;
        self.announced.clear();
    }

    /// Law 7: a stable cast of another member that is handed over before the view is about to end was announced.
    fn check_announced(&mut self, sender: Pid) {
        let announced = self.announced.iter().position(|of| *of == sender);
        if let Some(at) = announced {
            self.announced.remove(at);
        }
        let must_be = self.grade == Some(Grade::Stable) && Some(sender) != self.me && !self.blocked;
        assert!(announced.is_some() || !must_be, "{sender:?}: a cast was not announced");
    }
}

impl Protocol for PassThrough {
    type Medium = Groupcast<u64>;

    fn step(
        &mut self,
        _: Time,
        (): (),
        input: Input<'_, Groupcast<u64>>,
        out: &mut Outbox<Groupcast<u64>>,
    ) {
        match input {
            Input::Submit(s) if !self.blocked => {
                out.ask(GroupcastOutput::Cast(self.grade.unwrap_or(Grade::Plain), s.seq));
            }
            Input::Medium(GroupcastInput::From(sender, seq)) => {
                self.check_announced(sender);
                self.position += 1;
                let msg = MsgId { sender, seq };
                out.deliver(msg, GroupSet::one(Gid(0)), self.position, |_| {});
            }
            Input::Medium(GroupcastInput::Received(sender)) => {
                self.received.push(sender);
                self.announced.push(sender);
            }
            Input::Medium(GroupcastInput::Stable(sender)) => self.stable.push(sender),
            Input::Medium(GroupcastInput::Block) => self.blocked = true,
            Input::Medium(GroupcastInput::View(_)) => {
                self.begin_view();
                let base = out.fill(|to| self.position.encode(to));
                out.ask(GroupcastOutput::Base(base));
            }
            Input::Medium(GroupcastInput::Join(_, base)) => {
                self.begin_view();
                self.position = u64::decode(&mut ByteReader::new(base)).expect("what was given");
            }
            _ => {}
        }
    }

    fn deadline(&self) -> Option<(Time, WakeReason)> {
        None
    }

    fn room(&self, _: GroupSet, _: usize) -> usize {
        1
    }

    fn payload_max(&self) -> usize {
        0
    }

    fn waiting(&self, _: &mut dyn FnMut(MsgId, WaitReason)) {}

    fn status(&self) -> ProtocolStatus {
        ProtocolStatus { delivered: self.position, ..ProtocolStatus::default() }
    }
}

/// Three members, and the packets between them.
struct ThreeMembers {
    members: Vec<Vsync<u64, PassThrough>>,
    now: Time,
    /// From, to, packet.
    way: VecDeque<(Pid, Pid, VsyncPacket)>,
    /// Nothing passes from or to them.
    apart: Vec<Pid>,
    delivered: Vec<Vec<MsgId>>,
    views: Vec<(Pid, u64, u32)>,
    /// The members that entered each view, and the members that it names as continuing from the view before.
    continuing: Vec<(Pid, u64, u32)>,
    excluded: Vec<Pid>,
    /// The processes that have left, or may stop without, and the times.
    left: Vec<(Pid, ProtocolEvent, Time)>,
    marks: Vec<&'static str>,
    /// The processes that asked the others to continue without them.
    too_full: Vec<Pid>,
    /// The processes whose applications do not install a state, and the states that they need: the
    /// position, their number, and their possible sources.
    slow: Vec<Pid>,
    needed: Vec<(u64, u64, StateSource)>,
    /// Whether casts are lost.
    lossy: bool,
    /// The processes that were asked to accept a view, and those that accepted one, in order.
    votes: Vec<(&'static str, Pid)>,
    /// How many states each application needed.
    needs: [u64; 3],
}

fn settings(me: u32) -> VsyncSettings {
    VsyncSettings {
        me: Pid(me),
        processes: 3,
        lane: Lane::Stream,
        dissemination: Dissemination::Unicast,
        heartbeat: Span::millis(1),
        suspect: Span::millis(10),
        told_who_failed: false,
        quorum: ViewQuorum::Majority,
        retry: Span::millis(2),
        ack: Span::micros(100),
        full: Some(Span::millis(50)),
        link: None,
        channel_bytes: 256 << 10,
        packet_bytes: 1400,
        window: 8,
        window_bytes: 1 << 20,
        message_bytes: 1 << 10,
        broken: None,
    }
}

impl ThreeMembers {
    fn new(grade: Grade) -> Self {
        Self::with(grade, Dissemination::Unicast)
    }

    fn with(grade: Grade, dissemination: Dissemination) -> Self {
        Self::of(grade, |p| VsyncSettings { dissemination, ..settings(p) })
    }

    fn of(grade: Grade, settings: impl Fn(u32) -> VsyncSettings) -> Self {
        let passes =
            |p| PassThrough { me: Some(Pid(p)), grade: Some(grade), ..PassThrough::default() };
        let mut group = Self {
            members: (0..3).map(|p| Vsync::new(settings(p), passes(p))).collect(),
            now: Time::ZERO,
            way: VecDeque::new(),
            apart: Vec::new(),
            delivered: alloc::vec![Vec::new(); 3],
            views: Vec::new(),
            continuing: Vec::new(),
            excluded: Vec::new(),
            left: Vec::new(),
            marks: Vec::new(),
            too_full: Vec::new(),
            slow: Vec::new(),
            needed: Vec::new(),
            lossy: false,
            votes: Vec::new(),
            needs: [0; 3],
        };
        (0..3).for_each(|p| group.step(p, Input::Start { incarnation: 0 }));
        group
    }

    fn step(&mut self, p: u32, input: Input<'_, Messages<VsyncPacket>>) {
        let mut out = Outbox::default();
        let member = &mut self.members[p as usize];
        member.step(self.now, (), input, &mut out);
        let mut taken = Vec::new();
        out.take(&mut taken);
        for output in taken {
            match output {
                Output::Medium(messages::MessageOutput::To(to, _, packet)) => {
                    self.votes.extend(packet.items.iter().filter_map(|item| match item {
                        PacketItem::Accept { .. } => Some(("asked", to)),
                        PacketItem::Accepted { .. } => Some(("accepted", Pid(p))),
                        _ => None,
                    }));
                    self.way.push_back((Pid(p), to, packet));
                }
                Output::Medium(messages::MessageOutput::Group(_, _, packet)) => {
                    let others = (0..3).map(Pid).filter(|to| *to != Pid(p));
                    self.way.extend(others.map(|to| (Pid(p), to, packet.clone())));
                }
                Output::Deliver(d) => self.delivered[p as usize].push(d.msg),
                Output::Event(ProtocolEvent::ViewEntered { number, members, continuing }) => {
                    self.views.push((Pid(p), number, members));
                    self.continuing.push((Pid(p), number, continuing));
                }
                Output::Event(ProtocolEvent::Excluded(_)) => self.excluded.push(Pid(p)),
                Output::Event(event @ (ProtocolEvent::Left(_) | ProtocolEvent::MayStop(_))) => {
                    self.left.push((Pid(p), event, self.now));
                }
                Output::Note(Note::Mark(mark)) => self.marks.push(mark),
                Output::Note(Note::TooFull) => self.too_full.push(Pid(p)),
                // The application is nothing: its state is at once there and in force.
                Output::Event(ProtocolEvent::NeedsState { position, source }) => {
                    self.needs[p as usize] += 1;
                    let needs = self.needs[p as usize];
                    match self.slow.contains(&Pid(p)) {
                        true => self.needed.push((position, needs, source)),
                        false => self.step(p, Input::Installed { position, needs }),
                    }
                }
                _ => {}
            }
        }
    }

    /// A process dies and starts again at once, in its next incarnation, without its state.
    fn restart(&mut self, p: u32) {
        self.members[p as usize] = Vsync::new(settings(p), PassThrough::default());
        self.needs[p as usize] = 0;
        self.step(p, Input::Start { incarnation: 1 });
    }

    fn submit(&mut self, p: u32, seq: u64) {
        let dst = GroupSet::one(Gid(0));
        self.step(p, Input::Submit(Submission { seq, dst, payload: &[] }));
        self.step(p, Input::Wake);
    }

    /// Carries packets and wakes members for so long.
    fn run(&mut self, ms: u64) {
        let until = self.now + Span::millis(ms);
        while self.now < until {
            self.carry();
            self.now += Span::micros(50);
            self.wake();
        }
    }

    /// Carries all packets.
    fn carry(&mut self) {
        while let Some((from, to, mut packet)) = self.way.pop_front() {
            packet.items.retain(|item| !self.lossy || !matches!(item, PacketItem::Cast { .. }));
            if !self.apart.contains(&from) && !self.apart.contains(&to) {
                self.step(to.0, Input::Medium(messages::MessageInput::From(from, packet)));
            }
        }
    }

    /// Wakes the members for which it is time.
    fn wake(&mut self) {
        for p in 0..3 {
            let due = self.members[p as usize].deadline();
            if due.is_some_and(|(at, _)| at <= self.now) {
                self.step(p, Input::Wake);
            }
        }
    }
}

fn msgs(all: &[(u32, u64)]) -> Vec<MsgId> {
    all.iter().map(|&(p, seq)| MsgId { sender: Pid(p), seq }).collect()
}

#[test]
fn plain_casts_are_handed_over_at_once_and_uniform_ones_when_a_majority_has_them() {
    for (grade, at_once) in [(Grade::Plain, 1), (Grade::Uniform, 0), (Grade::Stable, 0)] {
        let mut group = ThreeMembers::new(grade);
        group.submit(0, 1);
        assert_eq!(group.delivered[0].len(), at_once, "{grade:?}");
        group.run(1);
        assert!(group.delivered.iter().all(|d| *d == msgs(&[(0, 1)])), "{grade:?}");
    }
}

#[test]
fn stable_casts_are_announced_at_once_and_wait_for_all_members_or_the_end_of_the_view() {
    let mut group = ThreeMembers::new(Grade::Stable);
    group.run(1);
    group.apart = alloc::vec![Pid(2)];
    (1..=2).for_each(|seq| group.submit(0, seq));
    group.run(2);
    assert_eq!(group.members[1].inner.received, [Pid(0), Pid(0)]);
    assert!(group.delivered.iter().all(Vec::is_empty), "one member has them not");
    assert!(group.members[0].inner.received.is_empty(), "its sender knows of it");
    group.run(30);
    assert!(group.views.contains(&(Pid(1), 1, 0b011)), "{:?}", group.views);
    let both = msgs(&[(0, 1), (0, 2)]);
    assert_eq!(group.delivered[..2], [both.clone(), both]);
    group.apart.clear();
    group.run(60);
    group.submit(2, 3);
    group.run(1);
    assert!(group.delivered.iter().all(|d| d.last() == msgs(&[(2, 3)]).first()));
}

#[test]
fn the_majority_goes_on_without_who_is_silent_and_takes_it_in_again() {
    let mut group = ThreeMembers::new(Grade::Plain);
    group.run(1);
    group.apart = alloc::vec![Pid(0)];
    group.run(30);
    assert!(group.views.contains(&(Pid(1), 1, 0b110)), "{:?}", group.views);
    // It knows nothing of that, and stops all the same.
    assert!(group.excluded.is_empty() && group.members[0].fit());
    assert_eq!(group.members[0].room(GroupSet::one(Gid(0)), 0), 0);
    group.submit(1, 1);
    group.run(1);
    assert_eq!(group.delivered[2], msgs(&[(1, 1)]));
    group.apart.clear();
    group.run(30);
    assert_eq!(group.excluded, [Pid(0)]);
    let last = group.views.last().copied();
    assert_eq!(last.map(|(_, _, members)| members), Some(0b111), "{:?}", group.views);
    assert!(group.members[0].fit());
    // The newcomer is the most junior, so another one leads.
    assert_eq!(group.members[0].status().leader, Some(Pid(1)));
    group.submit(0, 7);
    group.run(1);
    assert!(group.delivered.iter().all(|d| d.last() == msgs(&[(0, 7)]).first()));
}

#[test]
fn a_cast_that_only_one_survivor_had_is_handed_to_all_of_them() {
    let mut group = ThreeMembers::new(Grade::Plain);
    group.run(1);
    group.submit(0, 1);
    // Only one of the two packets arrives, and then nothing more of its sender.
    group.way.retain(|(_, to, _)| *to == Pid(2));
    while let Some((from, to, packet)) = group.way.pop_front() {
        group.step(to.0, Input::Medium(messages::MessageInput::From(from, packet)));
    }
    group.apart = alloc::vec![Pid(0)];
    assert_eq!((group.delivered[1].len(), group.delivered[2].len()), (0, 1));
    group.run(30);
    assert_eq!(group.delivered[1], msgs(&[(0, 1)]));
    assert_eq!(group.members[1].group.view.members.len(), 2);
}

#[test]
fn who_promised_takes_nothing_in_until_the_next_view() {
    let mut group = ThreeMembers::new(Grade::Plain);
    group.run(1);
    group.submit(1, 1);
    let prepare = PacketItem::Prepare {
        instance: 1,
        ballot: agreement::ViewBallot { round: 1, pid: Pid(0) },
    };
    let packet = VsyncPacket { life: 0, items: alloc::vec![prepare] };
    group.step(2, Input::Medium(messages::MessageInput::From(Pid(0), packet)));
    let (from, to, packet) = group.way.iter().find(|w| w.1 == Pid(2)).cloned().expect("the cast");
    group.step(to.0, Input::Medium(messages::MessageInput::From(from, packet)));
    assert_eq!(group.delivered[2], []);
    // Nobody continues with that attempt, and the coordinator begins one of its own in the end.
    group.run(200);
    assert_eq!(group.delivered[2], msgs(&[(1, 1)]));
    assert!(group.views.contains(&(Pid(2), 1, 0b111)), "{:?}", group.views);
}

#[test]
fn a_restarted_process_does_not_vote_on_what_it_may_have_forgotten() {
    let mut group = ThreeMembers::new(Grade::Plain);
    group.run(1);
    group.members[2] = Vsync::new(settings(2), PassThrough::default());
    group.step(2, Input::Start { incarnation: 1 });
    group.way.clear();
    let prepare = PacketItem::Prepare {
        instance: 1,
        ballot: agreement::ViewBallot { round: 1, pid: Pid(0) },
    };
    let packet = VsyncPacket { life: 0, items: alloc::vec![prepare] };
    group.step(2, Input::Medium(messages::MessageInput::From(Pid(0), packet)));
    group.step(2, Input::Wake);
    let promised = |item: &PacketItem| matches!(item, PacketItem::Promise { .. });
    assert!(!group.way.iter().any(|(_, _, packet)| packet.items.iter().any(promised)));
    group.run(30);
    assert!(group.members[2].fit() && group.members[2].group.life == 1 << 32);
}

#[test]
fn more_than_the_window_waits_until_all_have_what_is_in_it() {
    let mut group = ThreeMembers::new(Grade::Plain);
    group.apart = alloc::vec![Pid(2)];
    (1..=20).for_each(|seq| group.submit(0, seq));
    group.run(5);
    assert_eq!((group.delivered[0].len(), group.delivered[1].len()), (8, 8));
    group.apart.clear();
    group.run(60);
    assert!(group.delivered.iter().all(|d| d.len() == 20), "{:?}", group.delivered);
}

#[test]
fn a_joiner_delivers_while_its_state_comes_and_counts_when_that_is_in_force() {
    let mut group = ThreeMembers::new(Grade::Plain);
    group.run(1);
    (1..=5).for_each(|seq| group.submit(0, seq));
    group.run(5);
    group.slow = alloc::vec![Pid(2)];
    group.restart(2);
    group.run(20);
    let view = group.members[2].group.view.id;
    assert_eq!(group.needed, [(5, 1, StateSource::View(view))]);
    group.delivered[2].clear();
    group.submit(0, 6);
    group.run(5);
    assert_eq!(group.delivered[2], msgs(&[(0, 6)]), "the rest is in the state");
    assert!(!group.members[2].fit());
    group.step(2, Input::Installed { position: 4, needs: 1 });
    assert!(!group.members[2].fit(), "that is not as much as it needs");
    group.step(2, Input::Installed { position: 6, needs: 1 });
    assert!(group.members[2].fit());
}

#[test]
fn a_member_that_was_reborn_does_not_continue_into_the_view_that_names_it_again() {
    let mut group = ThreeMembers::new(Grade::Plain);
    group.run(1);
    group.slow = alloc::vec![Pid(2)];
    group.restart(2);
    group.run(20);
    group.submit(1, 2);
    group.run(1);
    group.restart(0);
    group.run(3000);
    let view = group.members[1].group.view.clone();
    assert_eq!(view.members.len(), 3, "{:?}", group.views);
    let last = |p| group.continuing.iter().rfind(|c| (c.0, c.1) == (Pid(p), view.id));
    let says = [0, 1, 2].map(|p| last(p).expect("it is in that view").2);
    assert_eq!(says, [0, 0b110, 0b110]);
    let (position, needs, _) = group.needed[0];
    group.step(2, Input::Installed { position, needs });
    assert!(group.members.iter().all(Protocol::fit));
}

#[test]
fn who_is_outside_is_asked_to_accept_when_all_who_go_on_have_what_the_view_ends_with() {
    let mut group = ThreeMembers::new(Grade::Plain);
    group.run(1);
    group.apart = alloc::vec![Pid(2)];
    group.run(30);
    assert_eq!(group.members[0].group.view.members.len(), 2);
    group.apart = alloc::vec![Pid(1), Pid(2)];
    group.submit(0, 1);
    group.run(1);
    group.votes.clear();
    group.apart.clear();
    group.run(30);
    assert_eq!(group.members[0].group.view.members.len(), 3, "{:?}", group.views);
    let first = |vote| group.votes.iter().position(|v| *v == vote);
    let (accepted, asked) = (first(("accepted", Pid(1))), first(("asked", Pid(2))));
    assert!(accepted.is_some(), "{:?}", group.votes);
    assert!(asked.is_none_or(|asked| Some(asked) > accepted), "{:?}", group.votes);
    assert_eq!(group.delivered[1], msgs(&[(0, 1)]));
}

#[test]
fn a_copy_of_the_state_that_is_only_silent_is_waited_for_where_few_are_left() {
    let mut group = ThreeMembers::new(Grade::Uniform);
    group.run(1);
    group.slow = alloc::vec![Pid(2)];
    group.members[2] = Vsync::new(settings(2), PassThrough::default());
    group.step(2, Input::Start { incarnation: 1 });
    group.run(30);
    assert!(group.members[0].group.view.has(Pid(2)) && !group.members[2].fit());
    // Two would be a majority, and only one of them with the state.
    group.apart = alloc::vec![Pid(1)];
    group.run(40);
    assert!(group.members[0].group.view.has(Pid(1)));
    group.apart.clear();
    group.run(40);
    assert_eq!(group.excluded, [], "{:?}", group.views);
    group.submit(0, 1);
    group.run(5);
    assert_eq!(group.delivered[1], msgs(&[(0, 1)]));
    // It does not come back: the remaining one continues.
    group.apart = alloc::vec![Pid(1)];
    group.run(400);
    assert!(!group.members[0].group.view.has(Pid(1)), "{:?}", group.views);
}

#[test]
fn one_that_leaves_is_out_of_the_view_at_once_and_nothing_that_it_sent_is_lost() {
    for leaver in 0..3 {
        let mut group = ThreeMembers::new(Grade::Uniform);
        group.run(1);
        group.submit(leaver, 1);
        group.step(leaver, Input::Leave);
        assert_eq!(group.members[leaver as usize].room(GroupSet::one(Gid(0)), 0), 0);
        let asked = group.now;
        group.run(8);
        // Long before anyone could have been suspected.
        let (p, note, at) = group.left[0];
        assert_eq!((p, note), (Pid(leaver), ProtocolEvent::Left(1)), "{leaver}");
        assert!(at < asked + settings(0).suspect, "{at:?}");
        assert!(group.excluded.is_empty());
        let stay: Vec<u32> = (0..3).filter(|&p| p != leaver).collect();
        let bits = stay.iter().fold(0, |bits, p| bits | 1 << p);
        for &p in &stay {
            assert!(group.views.contains(&(Pid(p), 1, bits)), "{:?}", group.views);
            assert_eq!(group.delivered[p as usize], msgs(&[(leaver, 1)]));
        }
        // It stops, and the others continue.
        group.apart = alloc::vec![Pid(leaver)];
        group.submit(stay[0], 1);
        group.run(2);
        assert_eq!(group.delivered[stay[1] as usize].last(), msgs(&[(stay[0], 1)]).first());
    }
}

#[test]
fn one_that_leaves_waits_until_all_have_what_it_sent() {
    let mut group = ThreeMembers::new(Grade::Plain);
    group.run(1);
    group.submit(1, 1);
    group.way.clear();
    group.step(1, Input::Leave);
    let announces = |group: &ThreeMembers| {
        let is = |item: &PacketItem| matches!(item, PacketItem::Leave { .. });
        group.way.iter().any(|(_, _, packet)| packet.items.iter().any(is))
    };
    group.step(1, Input::Wake);
    assert!(!announces(&group) && group.left.is_empty(), "what it sent was lost on the way");
    group.run(9);
    assert_eq!(group.left.first().map(|l| l.1), Some(ProtocolEvent::Left(1)));
    assert!([0, 2].iter().all(|&p: &usize| group.delivered[p] == msgs(&[(1, 1)])));
}

#[test]
fn who_is_needed_for_a_majority_may_stop_at_once_and_stays_a_member() {
    let mut group = ThreeMembers::new(Grade::Plain);
    group.run(1);
    group.step(0, Input::Leave);
    group.run(8);
    group.apart = alloc::vec![Pid(0)];
    group.step(1, Input::Leave);
    group.run(3);
    let last = group.left.last().map(|l| (l.0, l.1));
    assert_eq!(last, Some((Pid(1), ProtocolEvent::MayStop(1))));
    assert_eq!(group.members[2].group.view.id, 1, "nobody changed the view for it");
    // Two that leave at a time: one of them goes, and the other need not wait.
    let mut group = ThreeMembers::new(Grade::Plain);
    group.run(1);
    group.step(1, Input::Leave);
    group.step(2, Input::Leave);
    group.run(8);
    let said: Vec<_> = group.left.iter().map(|l| (l.0, l.1)).collect();
    assert!(said.contains(&(Pid(1), ProtocolEvent::Left(1))), "{said:?}");
    assert!(said.contains(&(Pid(2), ProtocolEvent::MayStop(1))), "{said:?}");
}

#[test]
fn one_that_may_stop_does_not_report_that_it_left_too() {
    let mut group = ThreeMembers::new(Grade::Plain);
    group.run(1);
    group.step(1, Input::Leave);
    group.step(1, Input::Wake);
    // Its announcement is on the way, and it begins to believe that a majority needs it.
    group.step(1, Input::Oracle(Oracle::Suspect(Pid(2))));
    group.now += settings(1).retry;
    group.step(1, Input::Wake);
    let said = |group: &ThreeMembers| group.left.iter().map(|l| (l.0, l.1)).collect::<Vec<_>>();
    assert_eq!(said(&group), [(Pid(1), ProtocolEvent::MayStop(0))]);
    // The others grant it all the same, and it learns that, and that they are in the view without it.
    group.run(50);
    assert_eq!(group.members[0].group.view.pids().collect::<Vec<_>>(), [Pid(0), Pid(2)]);
    assert_eq!((group.members[1].group.decision.view.id, group.excluded.len()), (1, 0));
    assert_eq!(said(&group), [(Pid(1), ProtocolEvent::MayStop(0))]);
}

#[test]
fn one_that_left_comes_back_as_a_new_member() {
    let mut group = ThreeMembers::new(Grade::Plain);
    group.run(1);
    group.step(0, Input::Leave);
    group.run(8);
    group.members[0] = Vsync::new(settings(0), PassThrough::default());
    group.step(0, Input::Start { incarnation: 1 });
    group.run(30);
    assert!(group.members[0].fit(), "{:?}", group.views);
    assert_eq!(group.members[1].group.view.members.len(), 3);
}

#[test]
fn messages_are_acknowledged_before_no_more_may_be_on_the_way() {
    let set = VsyncSettings { ack: Span::secs(1), lane: Lane::Datagram, ..settings(1) };
    let mut member = Vsync::new(set, PassThrough::default());
    let mut told = |input: Input<'_, Messages<VsyncPacket>>| {
        let mut out = Outbox::default();
        member.step(Time::ZERO, (), input, &mut out);
        let had = |output: &Output<Messages<VsyncPacket>>| match output {
            Output::Medium(messages::MessageOutput::To(Pid(0), _, packet)) => {
                packet.items.iter().find_map(|item| match item {
                    PacketItem::Ack { had, .. } => Some(*had),
                    _ => None,
                })
            }
            _ => None,
        };
        out.items().iter().find_map(had)
    };
    told(Input::Start { incarnation: 0 });
    told(Input::Wake);
    let half = casts::FLIGHT as u64 / 2;
    for number in 1..=half {
        let bytes = Arc::from(&number.to_le_bytes()[..]);
        let items = alloc::vec![PacketItem::To { view: 0, number, more: false, bytes }];
        told(Input::Medium(messages::MessageInput::From(Pid(0), VsyncPacket { life: 0, items })));
        let acked = (number == half).then_some(half);
        assert_eq!(told(Input::Wake), acked, "message {number}");
    }
}

#[test]
fn a_majority_that_is_linked_is_found_whatever_links_are_dead() {
    const ALL: usize = 5;
    let pairs: Vec<_> = (0..ALL).flat_map(|a| (0..a).map(move |b| (a, b))).collect();
    for dead in 0_u32..1 << pairs.len() {
        let mut links = [(1 << ALL) - 1; ALL];
        for (a, b) in (0..pairs.len()).filter(|at| dead >> at & 1 == 1).map(|at| pairs[at]) {
            (links[a], links[b]) = (links[a] & !(1 << b), links[b] & !(1 << a));
        }
        let linked = |set: u32| (0..ALL).all(|p| set >> p & 1 == 0 || set & !links[p] == 0);
        let largest = (0..1 << ALL).filter(|&set| linked(set)).map(u32::count_ones).max();
        let found = (0..=ALL).rfind(|&n| agreement::holds_linked((1 << ALL) - 1, &links, n));
        assert_eq!(found.map(|n| n as u32), largest, "{links:?}");
    }
}

#[test]
fn what_an_oracle_said_outlives_a_late_decision_and_ends_when_the_process_is_heard() {
    let settings = VsyncSettings { told_who_failed: true, ..settings(0) };
    let mut member = Vsync::new(settings, PassThrough::default());
    let mut told = |input: Input<'_, Messages<VsyncPacket>>| {
        member.step(Time::ZERO, (), input, &mut Outbox::default());
        member.group.suspects(Pid(2))
    };
    told(Input::Start { incarnation: 0 });
    assert!(told(Input::Oracle(Oracle::Suspect(Pid(2)))));
    // It was reborn and joined through another member, and has died again since.
    let life = 1 << 32;
    let members = [(0, 0), (1, 0), (2, life)].map(|(p, life)| GroupMember { pid: Pid(p), life });
    let view = View::new(1, members.to_vec());
    let decide = PacketItem::Decide(ViewDecision { view, cut: alloc::vec![0; 3] });
    let packet = VsyncPacket { life: 0, items: alloc::vec![decide] };
    assert!(
        told(Input::Medium(messages::MessageInput::From(Pid(1), packet))),
        "an oracle says it once"
    );
    let packet = |life| VsyncPacket { life, items: Vec::new() };
    assert!(
        told(Input::Medium(messages::MessageInput::From(Pid(2), packet(0)))),
        "of the life before"
    );
    assert!(!told(Input::Medium(messages::MessageInput::From(Pid(2), packet(life)))), "it lives");
}

#[test]
fn reports_of_who_is_unheard_leave_as_one_message_to_the_group() {
    let mut member = Vsync::new(
        VsyncSettings { dissemination: Dissemination::Group, ..settings(1) },
        PassThrough::default(),
    );
    let (mut reports, mut out) = (0, Outbox::default());
    member.step(Time::ZERO, (), Input::Start { incarnation: 0 }, &mut out);
    for ms in 1..40 {
        let now = Time::ZERO + Span::millis(ms);
        let heartbeat = VsyncPacket { life: 0, items: Vec::new() };
        member.step(
            now,
            (),
            Input::Medium(messages::MessageInput::From(Pid(0), heartbeat)),
            &mut out,
        );
        out.clear();
        member.step(now, (), Input::Wake, &mut out);
        for output in out.items() {
            let Output::Medium(asked) = output else { continue };
            let (messages::MessageOutput::To(_, _, packet)
            | messages::MessageOutput::Group(_, _, packet)) = asked;
            if packet.items.contains(&PacketItem::Unheard { processes: 0b100 }) {
                assert!(matches!(asked, messages::MessageOutput::Group(..)), "{asked:?}");
                let acknowledges = |item: &PacketItem| matches!(item, PacketItem::AckAll { .. });
                assert!(packet.items.iter().any(acknowledges), "it is in a packet of its own");
                reports += 1;
            }
        }
        out.clear();
    }
    assert!(reports > 10, "{reports}");
}

#[test]
fn where_silence_says_nothing_those_are_reported_as_unheard_that_an_oracle_calls_failed() {
    let settings = VsyncSettings { told_who_failed: true, ..settings(1) };
    let mut member = Vsync::new(settings, PassThrough::default());
    let (mut reports, mut out) = (Vec::new(), Outbox::default());
    member.step(Time::ZERO, (), Input::Start { incarnation: 0 }, &mut out);
    for ms in 1..150 {
        let now = Time::ZERO + Span::millis(ms);
        let told = match ms {
            50 => Some(Oracle::Suspect(Pid(2))),
            100 => Some(Oracle::Trust(Pid(2))),
            _ => None,
        };
        told.into_iter().for_each(|said| member.step(now, (), Input::Oracle(said), &mut out));
        let packet = VsyncPacket { life: 0, items: Vec::new() };
        let heartbeat = Input::Medium(messages::MessageInput::From(Pid(0), packet));
        member.step(now, (), heartbeat, &mut out);
        member.step(now, (), Input::Wake, &mut out);
        for output in out.items() {
            let Output::Medium(asked) = output else { continue };
            let (messages::MessageOutput::To(_, _, packet)
            | messages::MessageOutput::Group(_, _, packet)) = asked;
            reports.extend(packet.items.iter().filter_map(|item| match item {
                PacketItem::Unheard { processes } => Some((ms, *processes)),
                _ => None,
            }));
        }
        out.clear();
    }
    let (last, first) = (reports.last().copied(), reports.first().copied());
    assert!(first.is_some_and(|(ms, set)| ms >= 50 && set == 0b100), "{first:?}");
    assert!(last.is_some_and(|(ms, set)| ms >= 100 && set == 0), "{last:?}");
    assert!(reports.iter().filter(|(_, set)| *set == 0b100).count() > 5, "{reports:?}");
}

#[test]
fn a_state_that_was_needed_before_the_last_one_makes_nobody_fit() {
    let mut group = ThreeMembers::new(Grade::Plain);
    group.run(1);
    // The application of the third takes its time with each state.
    let mut slow = Vec::new();
    let mut rejoin = |group: &mut ThreeMembers| {
        group.apart = alloc::vec![Pid(2)];
        group.run(30);
        group.apart.clear();
        group.slow = alloc::vec![Pid(2)];
        group.run(200);
        slow.push(group.needed.pop().expect("it needs a state"));
        assert!(group.members[2].group.phase == ViewPhase::Active && !group.members[2].fit());
    };
    rejoin(&mut group);
    rejoin(&mut group);
    let [first, second] = slow[..] else { unreachable!("it joined twice") };
    assert_eq!(first.0, second.0, "both stand at one position");
    let mut installed = |(position, needs, _)| {
        group.step(2, Input::Installed { position, needs });
        group.members[2].fit()
    };
    assert!(!installed(first), "this is not the state that it needs now");
    assert!(installed(second));
}

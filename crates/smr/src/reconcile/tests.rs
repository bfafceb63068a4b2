//! One member or two, without a protocol between them: the order of deliveries is that of the test.

use super::*;
use crate::state_machine::KeyUse;
use amcast_core::GroupSet;
use std::collections::BTreeSet;

/// A set of bytes, to which commands add; it declines the byte 255.
#[derive(Default)]
struct GrowingSet;

/// Bytes of each of its bytes in a saved state.
const SAVED_BYTES: usize = 8;

#[derive(Debug, Default, PartialEq, Eq)]
struct SetState {
    all: BTreeSet<u8>,
    /// The views that were entered.
    views: Vec<u64>,
    /// How many commands have settled, and how many items there were, at each call.
    settled: Vec<(u64, usize)>,
}

impl Shard for SetState {
    fn items(&self) -> usize {
        self.all.len()
    }

    fn save(&self, to: &mut Vec<u8>) {
        self.all.iter().for_each(|&byte| to.extend([byte; SAVED_BYTES]));
    }

    fn load(from: &[u8]) -> Option<Self> {
        let all = from.iter().copied().step_by(SAVED_BYTES).collect();
        Some(Self { all, ..Self::default() })
    }
}

impl StateMachine for GrowingSet {
    type Shard = SetState;

    fn touches(&self, _: &[u8], _: GroupSet, _: &mut dyn FnMut(Gid, &[u8], KeyUse)) -> bool {
        false
    }

    fn apply(
        &self,
        command: &[u8],
        shards: &mut [ShardView<'_, SetState>],
        answer: &mut Vec<u8>,
    ) -> Outcome {
        if command.contains(&255) {
            answer.extend(b"no");
            return Outcome::NotExecuted;
        }
        shards[0].data.all.extend(command);
        answer.push(shards[0].data.items() as u8);
        Outcome::Executed
    }

    fn reconciler(&self) -> Option<Reconciler<SetState>> {
        Some(|own, other| own.all.extend(&other.all))
    }

    fn enter_view(&self, data: &mut SetState, view: ViewName, _members: u32) {
        data.views.push(view.number());
    }

    fn settle(&self, data: &mut SetState, executed: u64) {
        data.settled.push((executed, data.all.len()));
    }
}

/// A member, and the answers that it gave.
struct TestMember {
    replica: ReconcilingReplica<GrowingSet>,
    answers: Vec<(u64, Outcome, Vec<u8>)>,
}

impl TestMember {
    fn new(me: u32, limits: ReconcileLimits) -> Self {
        let replica = ReconcilingReplica::new(me, 2, limits).expect("it can reconcile");
        Self { replica, answers: Vec::new() }
    }

    fn event(&mut self, event: ProtocolEvent) {
        let Self { replica, answers } = self;
        replica.event(event, &mut |number, outcome, answer| {
            answers.push((number, outcome, answer.to_vec()));
        });
    }

    fn deliver(&mut self, sender: u32, message: &[u8]) {
        let Self { replica, answers } = self;
        replica.deliver(sender, message, &mut |number, outcome, answer| {
            answers.push((number, outcome, answer.to_vec()));
        });
    }

    fn stop(&mut self) {
        let Self { replica, answers } = self;
        replica.stop(&mut |number, outcome, answer| {
            answers.push((number, outcome, answer.to_vec()));
        });
    }

    /// Takes a command, and gives the message that it is in.
    fn command(&mut self, byte: u8) -> Vec<u8> {
        self.replica.submit(&[byte]).expect("there is room");
        self.replica.multicast().expect("it is multicast at once")
    }

    fn items(&self) -> Vec<u8> {
        self.replica.state().all.iter().copied().collect()
    }

    fn taken(&mut self) -> Vec<(u64, Outcome, Vec<u8>)> {
        std::mem::take(&mut self.answers)
    }
}

const fn entered(number: u64, members: u32) -> ProtocolEvent {
    ProtocolEvent::ViewEntered { number, members, continuing: 0 }
}

const fn merged(view: u64) -> ProtocolEvent {
    ProtocolEvent::Merged { view, from: 1, members: 1 }
}

const SMALL: ReconcileLimits =
    ReconcileLimits { open: 2, queued: 3, queued_bytes: 100, message_bytes: COMMAND_HEAD + 7 };

fn two() -> [TestMember; 2] {
    [0, 1].map(|me| TestMember::new(me, ReconcileLimits::default()))
}

/// Two members, each alone in a view before in which it executed one command, enter view 2 together.
fn merging() -> [TestMember; 2] {
    let mut both = two();
    for (p, member) in both.iter_mut().enumerate() {
        member.event(entered(1, 1 << p));
        let message = member.command(p as u8);
        member.deliver(p as u32, &message);
        assert_eq!(member.taken(), [(1, Outcome::Executed, vec![1])]);
        member.event(entered(2, 0b11));
        member.event(merged(2));
        member.event(merged(2));
    }
    both
}

/// A message with a command, of a member that says nothing of what it has executed in a view here.
fn message(number: u64, byte: u8) -> Vec<u8> {
    [&[COMMAND][..], &number.to_le_bytes(), &[0xff; EXECUTED_BYTES], &[byte]].concat()
}

/// Delivers all that the members multicast, until they have nothing more to say: each message, and its sender.
fn carry(both: &mut [TestMember; 2]) -> Vec<(u32, Vec<u8>)> {
    let mut carried = Vec::new();
    loop {
        let next =
            |(p, member): (usize, &mut TestMember)| Some((p as u32, member.replica.multicast()?));
        let Some((p, message)) = both.iter_mut().enumerate().find_map(next) else {
            return carried;
        };
        both.iter_mut().for_each(|member| member.deliver(p, &message));
        carried.push((p, message));
    }
}

/// All that a member multicasts now.
fn all_of(member: &mut TestMember) -> Vec<Vec<u8>> {
    std::iter::from_fn(|| member.replica.multicast()).collect()
}

#[test]
fn states_are_reconciled_before_a_command_that_was_delivered_among_them() {
    let mut both = two();
    let early = both[0].command(9);
    for (p, member) in both.iter_mut().enumerate() {
        member.event(entered(1, 1 << p));
        member.deliver(p as u32, &message(0, p as u8));
        member.event(entered(2, 0b11));
        member.event(merged(2));
        member.event(merged(2));
    }
    let first = all_of(&mut both[0]);
    assert_eq!(first.len(), 1, "once a view");
    assert_eq!(all_of(&mut both[1]).len(), 0, "it is not its turn");
    both.iter_mut().for_each(|member| member.deliver(0, &first[0]));
    let second = all_of(&mut both[1]);
    assert_eq!(second.len(), 1, "once a view");
    for member in &mut both {
        member.deliver(0, &early);
        assert!(!member.replica.is_reconciled());
        assert_eq!((member.replica.state().items(), member.replica.waiting()), (1, 1));
        member.deliver(1, &second[0]);
        assert!(member.replica.is_reconciled() && member.replica.waiting() == 0);
        assert_eq!(member.items(), [0, 1, 9]);
    }
    assert_eq!(both[0].taken(), [(1, Outcome::Executed, vec![3])], "it waited, and is answered");
    assert_eq!(both[1].taken(), [], "its own member answers it");
}

#[test]
fn a_view_that_ends_too_soon_has_its_members_exchange_their_states_in_the_next() {
    let mut both = merging();
    let old = all_of(&mut both[0]);
    for member in &mut both {
        member.deliver(0, &message(7, 5));
        member.event(entered(3, 0b11));
        // One of the view before was multicast too late.
        member.deliver(0, &old[0]);
        assert!(!member.replica.is_reconciled());
    }
    assert_eq!(carry(&mut both).len(), 2);
    for member in &mut both {
        assert_eq!(member.items(), [0, 1, 5]);
        assert_eq!((member.replica.is_reconciled(), member.replica.merges()), (true, 1));
    }
    // One that is alone has nobody to exchange it with.
    let [mut one, _] = both;
    one.event(entered(4, 0b11));
    one.event(merged(4));
    one.event(entered(5, 0b01));
    assert!(one.replica.is_reconciled() && one.replica.next_message().is_none());
}

#[test]
fn a_state_of_many_parts_arrives_whole_and_parts_of_an_ended_view_are_dropped() {
    let mut both = [0, 1].map(|me| TestMember::new(me, SMALL));
    for (p, member) in both.iter_mut().enumerate() {
        member.event(entered(1, 1 << p));
        for byte in 0..5 {
            let message = member.command(10 * p as u8 + byte);
            member.deliver(p as u32, &message);
        }
        member.event(entered(2, 0b11));
        member.event(merged(2));
        // One part of three leaves before the view ends, of the one whose turn it is.
        assert_eq!(member.replica.multicast().is_some(), p == 0);
        member.event(entered(3, 0b11));
    }
    for p in 0..2 {
        let parts = all_of(&mut both[p]);
        assert_eq!(parts.len(), 3, "of the new view only");
        for (at, part) in parts.iter().enumerate() {
            for member in &mut both {
                assert!(!member.replica.is_reconciled(), "part {at} of {p}");
                member.deliver(p as u32, part);
                member.deliver(p as u32, part);
            }
        }
    }
    for member in &both {
        assert!(member.replica.is_reconciled());
        assert_eq!(member.items(), [0, 1, 2, 3, 4, 10, 11, 12, 13, 14]);
    }
}

#[test]
fn a_member_keeps_the_bytes_of_one_state_at_a_time_while_states_are_exchanged() {
    let mut all = [0, 1, 2].map(|me| TestMember::new(me, SMALL));
    for (p, member) in all.iter_mut().enumerate() {
        member.event(entered(1, 1 << p));
        for byte in 0..9 {
            let message = member.command(10 * p as u8 + byte);
            member.deliver(p as u32, &message);
        }
        member.event(entered(2, 0b111));
        member.event(merged(2));
    }
    let mut parts = 0;
    while !all[0].replica.is_reconciled() {
        let speaks: Vec<_> = (0..3).filter(|&p| all[p].replica.next_message().is_some()).collect();
        let [p] = speaks[..] else { panic!("one after the other: {speaks:?}") };
        let part = all[p].replica.multicast().expect("a part");
        parts += 1;
        for member in &mut all {
            member.deliver(p as u32, &part);
            let exchange = member.replica.exchange.as_ref();
            assert!(
                exchange.is_none_or(|states| states.bytes.len() < 9 * SAVED_BYTES),
                "{exchange:?}"
            );
        }
    }
    assert_eq!((parts, all[2].items().len()), (3 * 4, 27));
}

#[test]
fn a_command_settles_when_all_processes_say_that_they_have_executed_it_in_one_reconciled_view() {
    let mut both = merging();
    let settled =
        |both: &[TestMember; 2]| both.each_ref().map(|m| m.replica.state().settled.clone());
    let silent: [Vec<(u64, usize)>; 2] = Default::default();
    // Neither the parts of the states nor a member that has said nothing settle anything.
    carry(&mut both);
    both[0].replica.submit(&[7]).expect("there is room");
    carry(&mut both);
    assert_eq!(settled(&both), silent);
    // The second one says that it has executed that command, in front of its own one.
    both[1].replica.submit(&[8]).expect("there is room");
    carry(&mut both);
    assert_eq!(settled(&both), [[(0, 3)], [(0, 3)]], "the first one has said it of none");
    both[0].replica.submit(&[9]).expect("there is room");
    carry(&mut both);
    assert_eq!(settled(&both), [[(0, 3), (1, 4)], [(0, 3), (1, 4)]]);
    // A member without commands says it once it has executed many, and no other one does then.
    for _ in 0..SETTLE_COMMANDS {
        both[0].replica.submit(&[9]).expect("there is room");
        let carried = carry(&mut both);
        assert!(carried.len() <= 2, "{carried:?}");
    }
    let ends = settled(&both).map(|told| told.last().copied());
    assert!(ends[0] == ends[1] && ends[0] >= Some((SETTLE_COMMANDS, 5)), "{ends:?}");
    // In a view without one of them nothing settles, nor by a message of another view.
    let late = both[0].command(1);
    let told = settled(&both);
    both[0].event(entered(3, 0b01));
    both[0].deliver(0, &late);
    for _ in 0..2 * SETTLE_COMMANDS {
        let message = both[0].command(2);
        both[0].deliver(0, &message);
        assert!(both[0].replica.next_message().is_none(), "nobody waits for it");
    }
    assert_eq!(settled(&both), told);
}

#[test]
fn the_machine_is_told_of_a_view_behind_the_commands_of_the_one_before() {
    let mut both = merging();
    assert_eq!(both[0].replica.state().views, [1, 2]);
    let early = both[1].replica.submit(b"x").expect("there is room");
    assert_eq!(early, 2);
    both[0].deliver(1, &message(7, 5));
    assert_eq!(both[0].items(), [0]);
    both[0].event(entered(3, 0b01));
    assert_eq!(both[0].items(), [0, 5], "it belongs to view 2");
    assert_eq!(both[0].replica.state().views, [1, 2, 3]);
    assert_eq!((both[0].replica.view().number(), both[0].replica.members()), (3, 1));
}

#[test]
fn commands_beyond_the_bounds_are_refused_at_once_and_say_that_they_were_not_executed() {
    let mut one = TestMember::new(0, SMALL);
    one.event(entered(1, 0b01));
    let too_large = one.replica.submit(&[1; 8]).expect_err("it is larger than a message");
    assert_eq!(too_large, ReconcileRefusal::TooLarge { bytes_max: 7 });
    // Two are open, three wait, and no more is taken.
    let mut messages = Vec::new();
    for byte in 0..5 {
        one.replica.submit(&[byte]).expect("there is room");
        messages.extend(one.replica.multicast());
    }
    assert_eq!((messages.len(), one.replica.unanswered()), (2, 5));
    let full = one.replica.submit(&[9]).expect_err("it is full");
    assert_eq!(full, ReconcileRefusal::Full);
    for refusal in [too_large, full] {
        assert_eq!(refusal.outcome(), Outcome::NotExecuted);
        assert!(refusal.to_string().ends_with("; the command was not executed"), "{refusal}");
    }
    // One is executed: one that waited is multicast, and one more is taken.
    one.deliver(0, &messages[0]);
    assert!(one.replica.multicast().is_some() && one.replica.multicast().is_none());
    assert_eq!(one.replica.submit(&[9]), Ok(6));
    assert_eq!(one.replica.submit(&[9]), Err(ReconcileRefusal::Full));
    // Their bytes are a bound, too.
    let limits = ReconcileLimits { queued_bytes: 2 * (COMMAND_HEAD + 3), ..SMALL };
    let mut other = TestMember::new(0, limits);
    let taken = (0..3).map(|_| other.replica.submit(b"abc").is_ok());
    assert_eq!(taken.collect::<Vec<_>>(), [true, true, false]);
}

#[test]
fn no_command_is_multicast_while_states_are_exchanged_so_few_wait() {
    let mut both = merging();
    for member in &mut both {
        member.replica.submit(b"x").expect("there is room");
    }
    let kinds: Vec<_> = carry(&mut both).iter().map(|(p, message)| (*p, message[0])).collect();
    let expected = [(0, STATE), (1, STATE), (0, COMMAND), (1, COMMAND)];
    assert_eq!(kinds, expected, "the commands leave behind the exchange");
}

#[test]
fn each_command_is_answered_once_also_where_the_member_stops() {
    let mut both = two();
    let one = &mut both[0];
    one.event(entered(1, 0b11));
    let declined = one.command(255);
    one.deliver(0, &declined);
    // Others that part in this view may come to another end.
    assert_eq!(one.taken(), [(1, Outcome::Unknown, b"no".to_vec())]);
    one.event(entered(2, 0b01));
    let declined = one.command(255);
    one.deliver(0, &declined);
    assert_eq!(one.taken(), [(2, Outcome::NotExecuted, b"no".to_vec())]);
    one.deliver(0, &declined);
    assert_eq!(one.taken(), [], "it was answered");
    // One that is overtaken was lost.
    let (_lost, next) = (one.command(3), one.command(4));
    one.deliver(0, &next);
    let lost = (3, Outcome::Unknown, vec![]);
    assert_eq!(one.taken(), [lost, (4, Outcome::Executed, vec![1])]);
    one.command(5);
    one.replica.submit(&[6]).expect("there is room");
    one.stop();
    let ends = [(5, Outcome::Unknown, vec![]), (6, Outcome::NotExecuted, vec![])];
    assert_eq!((one.taken(), one.replica.unanswered()), (ends.to_vec(), 0));
    one.stop();
    assert_eq!(one.taken(), []);
}

#[test]
fn a_member_that_leaves_answers_what_waits_and_sees_whether_the_exchange_moves() {
    let limits = ReconcileLimits { message_bytes: COMMAND_HEAD + 1, ..ReconcileLimits::default() };
    let mut both = [0, 1].map(|me| TestMember::new(me, limits));
    for (p, member) in both.iter_mut().enumerate() {
        member.event(entered(1, 1 << p));
        assert_eq!(member.replica.exchange_progress(), None);
        for byte in 0..15 {
            let message = member.command(byte);
            member.deliver(p as u32, &message);
        }
        member.taken();
        member.event(entered(2, 0b11));
        member.event(merged(2));
    }
    let [one, two] = &mut both;
    one.replica.submit(&[7]).expect("there is room");
    let TestMember { replica, answers } = &mut *one;
    replica.stop_queued(&mut |number, outcome, answer| {
        answers.push((number, outcome, answer.to_vec()));
    });
    assert_eq!(
        (one.taken(), one.replica.unanswered()),
        (vec![(16, Outcome::NotExecuted, vec![])], 0)
    );
    // Each part that leaves or comes is progress, and what waits is none.
    let mut before = Vec::new();
    while let Some(part) = one.replica.multicast().or_else(|| two.replica.multicast()) {
        let sender = u32::from(one.replica.exchange_progress().is_some_and(|p| p.states == 1));
        for member in [&mut *one, &mut *two] {
            let at = member.replica.exchange_progress();
            assert_eq!(member.replica.exchange_progress(), at);
            member.deliver(sender, &part);
            assert_ne!(member.replica.exchange_progress(), at);
        }
        before.push(one.replica.exchange_progress());
    }
    assert!(before.len() >= 4, "{before:?}");
    assert_eq!(before.last(), Some(&None), "it is over");
}

#[test]
fn bytes_that_are_no_message_change_nothing() {
    let [mut one, _] = merging();
    for bytes in
        [&[][..], &[COMMAND], &[COMMAND, 1, 2], &[STATE, 0], &[7, 7], &[STATE; 13], &[EXECUTED; 9]]
    {
        one.deliver(1, bytes);
    }
    let part = one.replica.multicast().expect("its state");
    // No member of the view, and no process.
    one.deliver(5, &part);
    one.deliver(77, &part);
    assert_eq!(
        (one.items(), one.replica.waiting(), one.replica.is_reconciled()),
        (vec![0], 0, false)
    );
}

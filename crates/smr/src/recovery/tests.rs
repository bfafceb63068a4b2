//! A transfer that is under way continues while the replica delivers much and enters views.

use super::*;
use crate::application::{GroupFigures, StateReadError};
use amcast_core::{GroupSet, Outbox, messages::Frames};
use std::io::Read;

const GROUP: Gid = Gid(0);

/// Bytes of the payload of each delivery.
const BYTES: usize = 10;

/// The bound of the inbox in these tests: so many deliveries.
const ROOM: u64 = 10;

/// Remembers the positions that it executed.
#[derive(Default)]
struct PositionList {
    position: u64,
    executed: Vec<u64>,
    /// Messages that were delivered early and are not void.
    early: Vec<MsgId>,
    voided: usize,
}

impl Application for PositionList {
    type State = u64;

    fn deliver(&mut self, command: DeliveredCommand<'_>, _: TellAnswer<'_>) -> bool {
        if command.position > self.position {
            self.position = command.position;
            self.executed.push(command.position);
        }
        true
    }

    fn early(&mut self, msg: MsgId, _: &[u8]) {
        self.early.push(msg);
    }

    fn void_early(&mut self) {
        self.voided += self.early.len();
        self.early.clear();
    }

    fn applied(&self, _: Gid) -> u64 {
        self.position
    }

    fn delivered(&self, _: Gid) -> u64 {
        self.position
    }

    fn capture(&mut self) {}

    fn piece(&mut self, _: usize, to: &mut Vec<u8>) -> bool {
        to.extend_from_slice(&self.position.to_le_bytes());
        false
    }

    fn release(&mut self) {}

    fn read(_: usize, from: &mut dyn Read) -> Result<u64, StateReadError> {
        let mut position = [0; 8];
        from.read_exact(&mut position)?;
        Ok(u64::from_le_bytes(position))
    }

    fn state_delivered(state: &u64, _: Gid) -> u64 {
        *state
    }

    fn adopt(&mut self, state: u64) -> u64 {
        std::mem::replace(&mut self.position, state)
    }

    fn clear(&mut self) -> u64 {
        self.adopt(0)
    }

    fn figures(&self, _: Gid) -> GroupFigures {
        GroupFigures::default()
    }
}

/// The first of three nodes with one replica each, whose replica continues from 10 and which has asked the second node,
/// then the third one, for a state.
struct WaitingNode {
    recovery: Recovery<PositionList>,
    replica: Pid,
    delivered: u64,
}

impl WaitingNode {
    fn new(source: StateSource) -> Self {
        let cluster = ClusterShape::new(1, 3, 0).expect("three replicas are a cluster");
        let mut recovery = Recovery::new(cluster, PositionList::default(), true);
        recovery.bound_inbox(ROOM as usize * (BYTES + size_of::<WaitingDelivery>()));
        let mut it = Self { recovery, replica: cluster.replica(GROUP, 0), delivered: 10 };
        if let StateSource::View(number) = source {
            it.enters(number, 0b111, 0);
        }
        it.reports(ProtocolEvent::NeedsState { position: 10, source });
        let wanted = it.recovery.wants().expect("it knows where it continues");
        assert_eq!(wanted.positions, [10]);
        it.recovery.expect(vec![1, 2]);
        it.assert_fetching();
        it
    }

    fn reports(&mut self, event: ProtocolEvent) {
        self.recovery.event(self.replica, event);
    }

    fn enters(&mut self, number: u64, members: u32, continuing: u32) {
        self.reports(ProtocolEvent::ViewEntered { number, members, continuing });
    }

    /// Its replica delivers up to this position.
    fn delivers(&mut self, upto: u64) {
        for position in self.delivered + 1..=upto {
            let payload = Outbox::<Frames>::default().fill(|_| {});
            let msg = MsgId { sender: Pid(1), seq: position };
            let delivery = Delivery { msg, dst: GroupSet::one(GROUP), position, payload };
            let taken =
                self.recovery.deliver(self.replica, delivery, &[7; BYTES], &mut |_, _, _| {});
            assert_eq!(taken, None, "it waits");
        }
        self.delivered = upto;
    }

    fn assert_fetching(&self) {
        assert!(self.recovery.is_fetching(), "the transfer continues");
        assert_eq!(self.recovery.wants(), None, "no other one is begun");
    }

    /// The state of the node that was asked first is here.
    fn arrives(&mut self, state: u64) {
        let (from, history) = ("n1".to_string(), Vec::new());
        self.recovery.fetched(Some(FetchedState { state, history, from, source: 0 }));
    }

    /// Whether the state that arrived is put in force now.
    fn adopts(&mut self) -> bool {
        matches!(self.recovery.take_over(), Some(TakeOver::Adopted(_)))
    }

    /// The positions that it executes behind the state.
    fn executes(&mut self) -> Vec<u64> {
        let mut took = Vec::new();
        self.recovery.drain(&mut |_, _, _| {}, &mut |taken| took.push(taken.position));
        assert_eq!(took.last(), Some(&self.delivered), "everything that waited is given");
        std::mem::take(&mut self.recovery.app.executed)
    }
}

#[test]
fn a_transfer_is_not_begun_anew_when_the_inbox_overflows() {
    let mut node = WaitingNode::new(StateSource::Replicas);
    node.delivers(10 + ROOM);
    assert_eq!(node.recovery.applied(GROUP), Some(20), "deliveries that wait count as executed");
    for upto in [21, 40, 200] {
        node.delivers(upto);
        assert_eq!(node.recovery.applied(GROUP), None, "the other replicas are held back");
        node.assert_fetching();
    }
    node.arrives(15);
    assert!(node.adopts());
    assert_eq!(node.executes(), (16..=200).collect::<Vec<u64>>());
    assert_eq!(node.recovery.installed(), Some(vec![200]));
    assert_eq!(node.recovery.applied(GROUP), Some(200));
}

#[test]
fn a_transfer_is_not_begun_anew_when_a_view_changes() {
    for (source_stays, continuing) in [(true, 0b011), (false, 0b101)] {
        let mut node = WaitingNode::new(StateSource::View(1));
        // The third node is excluded, or the source, and joins again.
        for (number, members) in [(2, continuing), (3, 0b111)] {
            node.delivers(node.delivered + ROOM);
            node.enters(number, members, continuing);
            node.assert_fetching();
        }
        node.arrives(15);
        // A source that did not continue may have delivered something else than the group.
        assert_eq!(node.adopts(), source_stays);
        let anew = WantedState { positions: vec![30], view: Some(3) };
        assert_eq!(node.recovery.wants(), (!source_stays).then_some(anew));
        if source_stays {
            assert_eq!(node.executes(), (16..=30).collect::<Vec<u64>>());
        }
    }
}

#[test]
fn a_full_inbox_holds_back_a_group_with_views() {
    let mut node = WaitingNode::new(StateSource::View(1));
    node.delivers(10 + ROOM);
    assert!(!node.recovery.is_full());
    // Windows let some more through, which is taken in all the same.
    for upto in [11 + ROOM, 10 + 3 * ROOM] {
        node.delivers(upto);
        assert!(node.recovery.is_full());
        node.assert_fetching();
    }
    // The state goes further than the replica, which has to deliver as much itself.
    node.arrives(50);
    assert!(!node.adopts() && !node.recovery.is_full());
    node.delivers(55);
    assert!(!node.recovery.is_full() && node.adopts());
    assert!(node.recovery.is_full(), "the application has taken nothing of it yet");
    assert_eq!(node.executes(), (51..=55).collect::<Vec<u64>>());
    assert!(!node.recovery.is_full());
    assert_eq!(node.recovery.applied(GROUP), Some(55));
    // Where members are fixed they hold back each other.
    let mut fixed = WaitingNode::new(StateSource::Replicas);
    fixed.delivers(11 + ROOM);
    assert!(!fixed.recovery.is_full());
}

#[test]
fn while_nobody_gives_a_state_of_a_view_a_later_one_is_wanted_and_nobody_is_held_back() {
    let mut node = WaitingNode::new(StateSource::View(1));
    node.delivers(11 + ROOM);
    assert!(node.recovery.is_full());
    node.recovery.fetched(None);
    assert!(!node.recovery.is_full());
    node.delivers(10 + 2 * ROOM);
    let wants = |node: &WaitingNode| node.recovery.wants().map(|wanted| wanted.positions);
    assert_eq!(wants(&node), Some(vec![11 + ROOM]), "deliveries behind it fit");
    node.delivers(12 + 2 * ROOM);
    assert!(!node.recovery.is_full());
    assert_eq!(wants(&node), Some(vec![12 + 2 * ROOM]));
    node.recovery.expect(vec![2, 1]);
    node.delivers(15 + 2 * ROOM);
    node.arrives(14 + 2 * ROOM);
    assert!(node.adopts());
    assert_eq!(node.executes(), [15 + 2 * ROOM]);
}

#[test]
fn early_messages_are_void_when_the_replica_is_excluded_or_behind_and_none_is_shown_without_a_state()
 {
    let cluster = ClusterShape::new(1, 3, 0).expect("three replicas are a cluster");
    let replica = cluster.replica(GROUP, 0);
    let msg = |seq| MsgId { sender: replica, seq };
    let lagging = [ProtocolEvent::NeedsState { position: 10, source: StateSource::Replicas }];
    for events in [&[ProtocolEvent::Excluded(2)][..], &lagging] {
        let mut recovery = Recovery::new(cluster, PositionList::default(), false);
        let view = ProtocolEvent::ViewEntered { number: 1, members: 0b111, continuing: 0 };
        recovery.event(replica, view);
        recovery.early(msg(1), b"");
        recovery.early(msg(2), b"");
        assert_eq!((recovery.app.early.len(), recovery.app.voided), (2, 0));
        recovery.event(replica, ProtocolEvent::Lagging);
        events.iter().for_each(|&event| recovery.event(replica, event));
        assert_eq!((recovery.app.early.len(), recovery.app.voided), (0, 2), "{events:?}");
        recovery.early(msg(3), b"");
        assert!(recovery.app.early.is_empty(), "its state is not in force");
    }
}

//! A node recovers its state when its replicas lag and catch up in any order.

use super::*;
use crate::cluster_dir::LogLocation;
use crate::ingress::Ingress;
use crate::log_owner::LogOwner;
use amcast_core::step::PayloadRange;
use amcast_core::{GroupSet, StateSource};
use amcast_smr::application::DeliveredCommand;
use amcast_smr::application::{GroupFigures, StateReadError, TellAnswer, WakeHandle};
use amcast_smr::recovery::FetchedState;
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};

/// Where its groups are.
struct GroupPositions {
    positions: [u64; 2],
    doubt: Option<&'static str>,
    /// Whether it takes in no delivery.
    is_full: bool,
    /// The most bytes of a piece that it gives.
    piece_bytes: usize,
    /// The rest of the state that it gives.
    captured: Vec<u8>,
}

impl GroupPositions {
    fn at(positions: [u64; 2]) -> Self {
        let (doubt, captured) = (None, Vec::new());
        Self { positions, doubt, is_full: false, piece_bytes: usize::MAX, captured }
    }
}

impl Application for GroupPositions {
    type State = [u64; 2];

    fn deliver(&mut self, command: DeliveredCommand<'_>, _: TellAnswer<'_>) -> bool {
        if self.is_full {
            return false;
        }
        self.positions[command.group.index()] = command.position;
        true
    }

    fn applied(&self, group: Gid) -> u64 {
        self.positions[group.index()]
    }

    fn delivered(&self, group: Gid) -> u64 {
        self.positions[group.index()]
    }

    fn doubt(&self) -> Option<&str> {
        self.doubt
    }

    fn capture(&mut self) {
        self.captured = self.positions.iter().flat_map(|position| position.to_le_bytes()).collect();
    }

    /// Gives the next piece, and says that there is no more where nothing is captured, as the executor does.
    fn piece(&mut self, _: usize, to: &mut Vec<u8>) -> bool {
        let bytes = self.captured.len().min(self.piece_bytes);
        to.extend(self.captured.drain(..bytes));
        !self.captured.is_empty()
    }

    fn release(&mut self) {
        self.captured.clear();
    }

    fn read(_: usize, from: &mut dyn Read) -> Result<Self::State, StateReadError> {
        let mut positions = [[0; 8]; 2];
        for position in &mut positions {
            from.read_exact(position)?;
        }
        Ok(positions.map(u64::from_le_bytes))
    }

    fn state_delivered(state: &Self::State, group: Gid) -> u64 {
        state[group.index()]
    }

    fn adopt(&mut self, state: Self::State) -> Self::State {
        self.release();
        std::mem::replace(&mut self.positions, state)
    }

    fn clear(&mut self) -> Self::State {
        self.adopt([0; 2])
    }

    fn figures(&self, _: Gid) -> GroupFigures {
        GroupFigures::default()
    }
}

/// A node of two groups, and its replicas.
fn host(reborn: bool) -> (ReplicaHost<GroupPositions>, [Pid; 2]) {
    static HOSTS: AtomicU32 = AtomicU32::new(0);
    let number = HOSTS.fetch_add(1, Ordering::Relaxed);
    let name = format!("amcast-host-{}-{number}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let cluster = ClusterShape::new(2, 3, 0).unwrap();
    let ingress = Ingress::open(&path, (cluster.all_groups(), false), 1, Arc::new(|| {})).unwrap();
    std::fs::remove_file(&path).unwrap();
    let pids = [Gid(0), Gid(1)].map(|g| cluster.replica(g, 0));
    (
        ReplicaHost::new(
            cluster,
            GroupPositions::at([0; 2]),
            ReplySink::Ingress(ingress, 0),
            None,
            (reborn, None),
        ),
        pids,
    )
}

fn wanted(host: &ReplicaHost<GroupPositions>) -> Option<Vec<u64>> {
    host.recovery.wants().map(|wanted| wanted.positions)
}

/// The replica `p` continues from this position, and needs a state as far as that.
fn needs_state(host: &mut ReplicaHost<GroupPositions>, p: Pid, position: u64) {
    let view = host.recovery.view();
    let source = view.map_or(StateSource::Replicas, |view| StateSource::View(view.number));
    host.event(Time(1), p, ProtocolEvent::NeedsState { position, source });
}

/// Another node gives this state.
fn give(host: &mut ReplicaHost<GroupPositions>, state: [u64; 2]) {
    let from = "n1".to_string();
    host.recovery.expect(vec![1]);
    host.recovery.fetched(Some(FetchedState { state, history: Vec::new(), from, source: 0 }));
    host.take_over();
}

#[test]
fn what_one_group_got_back_by_itself_keeps_no_other_from_its_state() {
    let _limit = amcast_test_policy::time_limit();
    let (mut host, [one, two]) = host(false);
    host.event(Time(1), one, ProtocolEvent::Lagging);
    host.event(Time(1), two, ProtocolEvent::Lagging);
    needs_state(&mut host, two, 10);
    assert_eq!(wanted(&host), None, "the first one may need a later one");
    host.event(Time(1), one, ProtocolEvent::CaughtUp(0));
    assert_eq!(wanted(&host), Some(vec![0, 10]));
    give(&mut host, [0, 9]);
    assert_eq!(wanted(&host), Some(vec![0, 10]), "that was too old");
    give(&mut host, [3, 12]);
    assert!(host.recovery.is_live());
    assert_eq!(host.recovery.installed(), Some(vec![3, 12]));
}

#[test]
fn a_state_that_came_for_one_group_ends_what_another_lacked() {
    let _limit = amcast_test_policy::time_limit();
    let (mut host, [one, two]) = host(false);
    host.event(Time(1), two, ProtocolEvent::Lagging);
    needs_state(&mut host, two, 10);
    // Before the state is there, the other one falls behind, too; what comes is new enough for it.
    host.event(Time(1), one, ProtocolEvent::Lagging);
    give(&mut host, [30, 12]);
    assert_eq!(host.recovery.installed(), Some(vec![30, 12]));
    host.event(Time(1), one, ProtocolEvent::CaughtUp(30));
    assert_eq!(
        host.recovery.installed(),
        Some(vec![30, 12]),
        "earlier reports may have been undone"
    );
    // Much later one of them lags again.
    host.event(Time(1), two, ProtocolEvent::Lagging);
    needs_state(&mut host, two, 50);
    assert_eq!(wanted(&host), Some(vec![30, 50]));
}

#[test]
fn a_group_that_lags_while_a_state_comes_for_another_makes_the_node_unfit_again() {
    let _limit = amcast_test_policy::time_limit();
    let (mut host, [one, two]) = host(false);
    host.event(Time(1), one, ProtocolEvent::Lagging);
    assert!(host.recovery.is_unfit());
    needs_state(&mut host, one, 10);
    // The second group does not know yet where it continues when the state for the first one comes.
    host.event(Time(1), two, ProtocolEvent::Lagging);
    assert!(host.recovery.is_unfit());
    give(&mut host, [10, 3]);
    assert_eq!(host.recovery.installed(), Some(vec![10, 3]));
    needs_state(&mut host, two, 5);
    assert!(host.recovery.is_unfit() && !host.recovery.is_live());
    give(&mut host, [12, 5]);
    assert_eq!(host.recovery.installed(), Some(vec![12, 5]));
}

#[test]
fn a_node_without_its_state_waits_until_every_group_knows_where_it_goes_on() {
    let _limit = amcast_test_policy::time_limit();
    let (mut host, [one, two]) = host(true);
    host.event(Time(1), one, ProtocolEvent::CaughtUp(0));
    needs_state(&mut host, two, 10);
    assert_eq!(wanted(&host), None, "what was delivered to it before is gone");
    needs_state(&mut host, one, 20);
    assert_eq!(wanted(&host), Some(vec![20, 10]));
}

/// The channels for events of an arriving state, and for signals that there is room for it.
type TransferChannels = (SyncSender<TransferEvent<[u64; 2]>>, Receiver<()>);

/// A node whose first group must continue from 10, whose state is at 3 and 4, and that requests a
/// newer one.
fn asking() -> (ReplicaHost<GroupPositions>, [Pid; 2], TransferChannels) {
    let (mut host, [one, two]) = host(false);
    host.recovery.app.positions = [3, 4];
    host.event(Time(1), one, ProtocolEvent::Lagging);
    needs_state(&mut host, one, 10);
    assert_eq!(wanted(&host), Some(vec![10, 4]), "every group knows where it continues");
    let (tell, news) = sync_channel(1);
    let (fetching, room) = StateFetch::of(news);
    host.expect(fetching, vec![1]);
    (host, [one, two], (tell, room))
}

fn given(host: &mut ReplicaHost<GroupPositions>, positions: [u64; 2]) -> Result<(), String> {
    let wanted = WantedState { positions: positions.to_vec(), view: None };
    host.give(&wanted).map(drop)
}

#[test]
fn an_old_state_stays_until_another_node_gives_its_own() {
    let _limit = amcast_test_policy::time_limit();
    let (mut host, _, (tell, room)) = asking();
    host.take_over();
    assert_eq!((host.recovery.app.positions, given(&mut host, [3, 4])), ([3, 4], Ok(())));
    // No node has one: another node may need the old state, which is not lost by a request.
    tell.send(TransferEvent::Ended(None)).unwrap();
    host.take_over();
    assert_eq!((host.recovery.app.positions, wanted(&host)), ([3, 4], Some(vec![10, 4])));
    assert_eq!([Gid(0), Gid(1)].map(|g| host.recovery.stands(g)), [10, 4]);
    assert!(room.try_recv().is_err());
}

#[test]
fn a_state_that_the_program_does_not_read_is_in_the_status_and_asked_for_again_later() {
    let _limit = amcast_test_policy::time_limit();
    let (mut host, _, (tell, _room)) = asking();
    let awaited = host.awaited_state().unwrap();
    assert!(awaited.contains("is being fetched"), "{awaited}");
    assert!(host.may_fetch(clock::now()));
    let unread = TransferEvent::Unreadable { from: "n1".to_string(), why: "refused".to_string() };
    for event in [unread, TransferEvent::Ended(None)] {
        tell.send(event).unwrap();
        host.take_over();
    }
    let now = clock::now();
    assert_eq!((host.may_fetch(now), host.may_fetch(now + ASK_UNREAD_EVERY)), (false, true));
    assert_eq!(wanted(&host), Some(vec![10, 4]), "one is wanted all the same");
    let awaited = host.awaited_state().unwrap();
    assert!(awaited.contains("does not read the state") && awaited.contains("n1: refused"));
    assert_eq!(host.recovery.app.positions, [3, 4], "the own one stays");
    assert_eq!(given(&mut host, [3, 4]), Ok(()));
    // A node with the right program has one.
    let (_tell, news) = sync_channel(1);
    let (fetching, _room) = StateFetch::of(news);
    host.expect(fetching, vec![1]);
    give(&mut host, [12, 4]);
    assert_eq!((host.recovery.is_live(), host.awaited_state()), (true, None));
    assert!(host.may_fetch(Time(1)));
}

#[test]
fn an_old_state_makes_room_for_the_one_that_comes() {
    let _limit = amcast_test_policy::time_limit();
    let (mut host, [_, two], (tell, room)) = asking();
    tell.send(TransferEvent::Comes).unwrap();
    host.take_over();
    assert_eq!(
        (host.recovery.app.positions, room.try_recv()),
        ([0, 0], Ok(())),
        "there are never two"
    );
    // The position that it must reach counts all the same: no read may take it for an empty state.
    assert_eq!([Gid(0), Gid(1)].map(|g| host.recovery.stands(g)), [10, 4]);
    assert!(given(&mut host, [0, 0]).is_err_and(|why| why.contains("waits for a state")));
    // The first that gave its own is gone, and another gives its.
    tell.send(TransferEvent::Comes).unwrap();
    host.take_over();
    assert_eq!(room.try_recv(), Ok(()));
    // The other group, which lags for a moment, catches up by itself: the state need not be newer
    // for that.
    host.event(Time(1), two, ProtocolEvent::Lagging);
    host.event(Time(1), two, ProtocolEvent::CaughtUp(4));
    give(&mut host, [12, 4]);
    assert_eq!((host.recovery.is_live(), host.recovery.app.positions), (true, [12, 4]));
    assert!(given(&mut host, [0, 0]).is_ok());
}

/// Lets the host save until it has; returns the positions of its state.
fn saved(host: &mut ReplicaHost<GroupPositions>) -> Vec<u64> {
    loop {
        if let Some(positions) = host.checkpoint(LogVolume::default()).unwrap() {
            return positions;
        }
        host.give_on();
        std::thread::yield_now();
    }
}

/// A directory for a node's states.
fn keeping(name: &str) -> LogLocation {
    let path = std::env::temp_dir().join(format!("amcast-host-{name}-{}", std::process::id()));
    let begun = path.with_extension("begun");
    let (holds, lasts, lived, first_life) = (false, true, false, 0);
    let owner = LogOwner::of(1, 1);
    let keeping = LogLocation { path, begun, holds, lasts, lived, first_life, owner };
    keeping.make().unwrap();
    keeping
}

/// Has a host keep its state there, and continue from the one that is there.
fn open(host: &mut ReplicaHost<GroupPositions>, keeping: &LogLocation) {
    let wake: WakeHandle = Arc::new(|| {});
    let opened = Checkpoints::open::<GroupPositions>(keeping, (0, 3), 2, (wake, None)).unwrap();
    host.keep_state(opened.checkpoints, opened.restored).unwrap();
}

/// The positions of the state that a host finds there at its start.
fn found(keeping: &LogLocation) -> [u64; 2] {
    let (mut next, _) = host(false);
    open(&mut next, keeping);
    next.recovery.app.positions
}

#[test]
fn a_state_that_another_node_gave_is_on_disk_soon_and_one_found_there_at_once() {
    let _limit = amcast_test_policy::time_limit();
    let keeping = keeping("saves");
    let path = keeping.path.clone();
    let open = |host: &mut ReplicaHost<GroupPositions>| open(host, &keeping);
    let (mut taking, [one, _]) = host(false);
    open(&mut taking);
    assert_eq!(taking.recovery.take_restored(), None);
    assert!(
        taking.checkpoint(LogVolume::default()).unwrap().is_none() && !taking.is_saving(),
        "it has nothing"
    );
    taking.event(Time(1), one, ProtocolEvent::Lagging);
    needs_state(&mut taking, one, 10);
    give(&mut taking, [12, 7]);
    // No command came, and no time has passed.
    assert_eq!(saved(&mut taking), [12, 7]);
    assert!(
        taking.checkpoint(LogVolume::default()).unwrap().is_none() && !taking.is_saving(),
        "once is enough"
    );
    drop(taking);
    let (mut next, _) = host(false);
    open(&mut next);
    assert_eq!(
        (next.recovery.installed(), next.recovery.take_restored()),
        (Some(vec![12, 7]), Some(vec![12, 7]))
    );
    assert_eq!(next.recovery.take_restored(), None);
    drop(next);
    std::fs::remove_dir_all(path).unwrap();
}

#[test]
fn a_state_that_may_be_wrong_is_given_to_nobody() {
    let _limit = amcast_test_policy::time_limit();
    let (mut host, _) = host(false);
    let wanted = WantedState { positions: vec![0, 0], view: None };
    drop(host.give(&wanted).expect("nothing speaks against it"));
    while host.give_on() {}
    host.recovery.app.doubt = Some("n1 has something else");
    let why = host.give(&wanted).map(drop).unwrap_err();
    assert!(why.contains("n1 has something else"), "{why}");
    // The doubt comes while it gives.
    host.recovery.app.doubt = None;
    let pieces = host.give(&wanted).expect("it has ended");
    host.recovery.app.doubt = Some("n1 has something else");
    host.give_on();
    assert!(pieces.recv().is_err(), "not even the beginning");
    host.recovery.app.doubt = None;
    drop(host.give(&wanted).expect("it gives no other one"));
}

#[test]
fn a_state_is_taken_only_of_a_node_that_goes_on_from_view_to_view_in_one_incarnation() {
    let _limit = amcast_test_policy::time_limit();
    for (continuing, is_taken) in [(0b111, true), (0b101, false)] {
        let (mut host, [one, _]) = host(false);
        let view =
            |number, continuing| ProtocolEvent::ViewEntered { number, members: 0b111, continuing };
        host.event(Time(1), one, view(1, 0));
        host.event(Time(1), one, ProtocolEvent::Lagging);
        needs_state(&mut host, one, 10);
        let (_tell, news) = sync_channel(1);
        let (fetching, _room) = StateFetch::of(news);
        host.expect(fetching, vec![1]);
        // Both views name the source's process.
        host.event(Time(1), one, view(2, continuing));
        give(&mut host, [10, 4]);
        assert_eq!(host.recovery.is_live(), is_taken, "{continuing:b}");
    }
}

/// Begins to save the host's state, and gives the first of two pieces of it.
fn half_saved(host: &mut ReplicaHost<GroupPositions>) {
    host.recovery.app.piece_bytes = 8;
    host.save();
    host.checkpoints.iter_mut().for_each(Checkpoints::hurry);
    while host.recovery.app.captured.len() > 8 {
        host.give_on();
        std::thread::yield_now();
    }
    assert!(host.is_saving());
}

#[test]
fn a_state_that_comes_ends_the_checkpoint_of_the_one_that_makes_room() {
    let _limit = amcast_test_policy::time_limit();
    let (mut host, _, (tell, _room)) = asking();
    let keeping = keeping("makes-room");
    open(&mut host, &keeping);
    half_saved(&mut host);
    tell.send(TransferEvent::Comes).unwrap();
    host.take_over();
    assert_eq!(host.recovery.app.positions, [0, 0]);
    while host.is_saving() {
        host.give_on();
        let saved = host.checkpoint(LogVolume::default()).unwrap();
        assert_eq!(saved, None, "half of a state counts as a whole one");
        std::thread::yield_now();
    }
    drop(host);
    assert_eq!(found(&keeping), [0, 0], "there was never a whole one");
    std::fs::remove_dir_all(keeping.path).unwrap();
}

#[test]
fn a_state_that_goes_to_another_node_and_one_that_goes_to_the_disk_do_not_mix() {
    let _limit = amcast_test_policy::time_limit();
    let (mut host, _) = host(false);
    let keeping = keeping("gives-way");
    open(&mut host, &keeping);
    host.recovery.app.positions = [3, 4];
    half_saved(&mut host);
    let wanted = WantedState { positions: vec![3, 4], view: None };
    let pieces = host.give(&wanted).expect("the disk has time");
    assert!(!host.is_saving(), "one state is given at a time");
    while host.giving.is_going() {
        host.give_on();
    }
    // No history is in front of it.
    let bytes: Vec<u8> = pieces.iter().flatten().collect();
    assert_eq!(bytes, [0, 3, 4].map(u64::to_le_bytes).concat());
    host.save();
    assert_eq!(saved(&mut host), [3, 4]);
    drop(host);
    assert_eq!(found(&keeping), [3, 4]);
    std::fs::remove_dir_all(keeping.path).unwrap();
}

#[test]
fn a_read_waits_for_deliveries_that_the_application_has_not_taken_in() {
    let _limit = amcast_test_policy::time_limit();
    let (mut host, [one, _]) = host(false);
    let group = Gid(0);
    let asked = |host: &mut ReplicaHost<GroupPositions>| {
        let (mut asked, at) = (false, (host.recovery.app.delivered(group), Time(1)));
        host.reading.serve(group, at, &mut |_, read| {
            asked = true;
            ReadAttempt::NotYet(read)
        });
        asked
    };
    host.recovery.app.is_full = true;
    let delivery = Delivery {
        msg: MsgId { sender: one, seq: 1 },
        dst: GroupSet::one(group),
        position: 7,
        payload: PayloadRange { at: 0, len: 0 },
    };
    host.deliver(Time(1), one, delivery, b"");
    assert_eq!(host.recovery.app.positions, [0, 0], "it waits");
    host.reading.take(NodeRead { gateway: 0, token: 0, line: 0, group, bytes: [].into() }, Time(1));
    let ticket = host.reading.begin(group, Time(1)).expect("a barrier is due");
    // The replica has delivered more than the application has executed.
    host.passed(Time(1), one, ticket);
    assert!(!asked(&mut host), "somebody may have been answered what is delivered here");
    host.recovery.app.is_full = false;
    assert!(host.drain() && asked(&mut host));
}

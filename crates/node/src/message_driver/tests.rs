//! Three nodes with a replica of each of two groups, in one thread, and a protocol that is small and
//! survives nothing: one process orders everything.

use super::*;
use crate::cluster_dir::{ClusterDir, Transport};
use crate::config::{ClusterFile, HostPlacement};
use crate::log_owner::LogOwner;
use crate::ports;
use amcast_core::config::RawConfig;
use amcast_core::messages::{Lane, MessageOutput};
use amcast_core::step::{Outbox, Output, Ticket, WaitReason, WakeReason};
use amcast_core::{Delivery, MediumKind, MsgId, ProtocolEvent};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex};

/// The usual requirements of protocols.
const ASKS: ConnectionRequests =
    ConnectionRequests { multicast: false, proof_of_death: false, datagram_bytes_per_s: None };

const GROUPS: usize = 2;
const NODES: usize = 3;

/// The sequencer: a replica of the second group.
const SEQUENCER: Pid = Pid(4);

/// The inputs of the medium to a process, except messages.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum MediumEvent {
    Up(Pid),
    Down(Pid),
    Suspect(Pid),
    /// Whether the carrier has room.
    Backlog(bool),
}

/// Asks the sequencer, which sends each message to all its destinations, with a number.
struct NumberingProtocol {
    me: Pid,
    numbered: u64,
    news: Arc<Mutex<Vec<(Pid, MediumEvent)>>>,
}

/// A message of it: whether it is ordered, its number then, whose it is, where it goes, and no more.
fn encode(order: Option<u64>, m: MsgId, dst: GroupSet, to: &mut Vec<u8>) {
    to.push(u8::from(order.is_some()));
    for word in [order.unwrap_or(0), u64::from(m.sender.0), m.seq, dst.0] {
        to.extend_from_slice(&word.to_le_bytes());
    }
}

fn decode(frame: &[u8]) -> (Option<u64>, MsgId, GroupSet) {
    let word = |n: usize| u64::from_le_bytes(frame[1 + 8 * n..][..8].try_into().unwrap());
    let m = MsgId { sender: Pid(word(1) as u32), seq: word(2) };
    ((frame[0] == 1).then(|| word(0)), m, GroupSet(word(3)))
}

impl Protocol for NumberingProtocol {
    type Medium = Frames;

    fn step(&mut self, _: Time, (): (), input: Input<'_, Frames>, out: &mut Outbox<Frames>) {
        match input {
            Input::Submit(Submission { seq, dst, .. }) => {
                let m = MsgId { sender: self.me, seq };
                let frame = out.fill(|to| encode(None, m, dst, to));
                out.ask(MessageOutput::To(SEQUENCER, Lane::Stream, frame));
            }
            Input::Medium(MessageInput::From(from, frame)) => match decode(frame) {
                (None, m, dst) => {
                    assert_eq!((self.me, m.sender), (SEQUENCER, from));
                    self.numbered += 1;
                    let frame = out.fill(|to| encode(Some(self.numbered), m, dst, to));
                    dst.iter().for_each(|g| out.ask(MessageOutput::Group(g, Lane::Stream, frame)));
                }
                (Some(order), m, dst) => {
                    assert_eq!(from, SEQUENCER);
                    out.deliver(m, dst, order, |_| {});
                }
            },
            Input::Medium(MessageInput::Up(p)) => {
                self.news.lock().unwrap().push((self.me, MediumEvent::Up(p)))
            }
            Input::Medium(MessageInput::Down(p)) => {
                self.news.lock().unwrap().push((self.me, MediumEvent::Down(p)))
            }
            Input::Medium(MessageInput::Backlog(backlog)) => {
                self.news.lock().unwrap().push((self.me, MediumEvent::Backlog(backlog.has_room)));
            }
            Input::Oracle(Oracle::Suspect(p)) => {
                self.news.lock().unwrap().push((self.me, MediumEvent::Suspect(p)));
            }
            _ => {}
        }
    }

    fn deadline(&self) -> Option<(Time, WakeReason)> {
        None
    }

    fn room(&self, _: GroupSet, _: usize) -> usize {
        usize::MAX
    }

    fn payload_max(&self) -> usize {
        0
    }

    fn waiting(&self, _: &mut dyn FnMut(MsgId, WaitReason)) {}

    fn status(&self) -> ProtocolStatus {
        ProtocolStatus { follows: true, ..ProtocolStatus::default() }
    }
}

/// The first bytes of a message, for people.
fn first_bytes(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.len().min(8)]
}

/// Persists each message that is submitted, then says so to itself and delivers it.
struct PersistingProtocol {
    me: Pid,
    awaited: bool,
    told: Arc<Mutex<Vec<String>>>,
}

impl PersistingProtocol {
    fn tell(&self, what: impl Into<String>) {
        self.told.lock().unwrap().push(what.into());
    }
}

impl Protocol for PersistingProtocol {
    type Medium = Frames;

    fn step(&mut self, _: Time, (): (), input: Input<'_, Frames>, out: &mut Outbox<Frames>) {
        match input {
            Input::Stored { number, record } => self.tell(format!("stored {number} {record:?}")),
            Input::Lost => self.tell("lost"),
            Input::Torn => self.tell("torn"),
            Input::Start { incarnation } => self.tell(format!("start {incarnation}")),
            Input::Submit(Submission { seq, dst, payload }) => {
                let record = out.fill(|to| to.extend_from_slice(payload));
                let (ticket, awaited) = (Ticket(seq), self.awaited);
                out.push(Output::Persist { ticket, record, awaited });
                out.ask(MessageOutput::To(self.me, Lane::Stream, record));
                out.deliver(MsgId { sender: self.me, seq }, dst, seq, |_| {});
                out.event(ProtocolEvent::CaughtUp(seq));
                out.push(Output::Passed { ticket: Ticket(seq) });
                out.push(Output::Load { ticket: Ticket(100 + seq), number: seq - 1 });
            }
            Input::Durable(ticket) => self.tell(format!("durable {}", ticket.0)),
            Input::Loaded { ticket, record } => {
                self.tell(format!("loaded {} {:?}", ticket.0, record.map(first_bytes)))
            }
            Input::Checkpointed(position) => {
                self.tell(format!("checkpointed {position}"));
                out.push(Output::Trim { before: position });
            }
            Input::Medium(MessageInput::From(_, frame)) => {
                self.tell(format!("heard {:?}", first_bytes(frame)));
            }
            _ => {}
        }
    }

    fn deadline(&self) -> Option<(Time, WakeReason)> {
        None
    }

    fn room(&self, _: GroupSet, _: usize) -> usize {
        usize::MAX
    }

    fn payload_max(&self) -> usize {
        1
    }

    fn waiting(&self, _: &mut dyn FnMut(MsgId, WaitReason)) {}

    fn status(&self) -> ProtocolStatus {
        ProtocolStatus::default()
    }
}

/// The deliveries of a node's processes: process, position, message. And their events, with the
/// number of deliveries before each, and barriers that they pass, in the same way.
#[derive(Default)]
struct NodeDeliveries(Vec<(Pid, u64, MsgId)>, Vec<(usize, ProtocolEvent)>, Vec<(usize, Ticket)>);

impl UpperLayer for NodeDeliveries {
    fn deliver(&mut self, _: Time, p: Pid, delivery: Delivery, _: &[u8]) {
        self.0.push((p, delivery.position, delivery.msg));
    }

    fn event(&mut self, _: Time, _: Pid, event: ProtocolEvent) {
        self.1.push((self.0.len(), event));
    }

    fn passed(&mut self, _: Time, _: Pid, ticket: Ticket) {
        self.2.push((self.0.len(), ticket));
    }
}

/// A cluster in this thread.
struct ThreadCluster {
    net: Net,
    cluster: ClusterShape,
    nodes: Vec<Option<MessageDriver>>,
    delivered: Vec<NodeDeliveries>,
    news: Arc<Mutex<Vec<(Pid, MediumEvent)>>>,
}

impl ThreadCluster {
    fn new() -> Self {
        let cluster = ClusterShape::new(GROUPS, NODES, 0).unwrap();
        let mut file = ClusterFile { shards: GROUPS, replicas: NODES, ..ClusterFile::default() };
        let ports = ports::free(NODES, &[]).unwrap().into_iter();
        let place = |port| HostPlacement::at(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        file.nodes = file.nodes().zip(ports.map(place)).collect();
        let raw = RawConfig { groups: GROUPS, replicas: NODES, ..RawConfig::default() };
        let dir = ClusterDir::of_file(Path::new("/nowhere/cluster.toml"));
        let ground =
            dir.ground(&file, (MediumKind::Messages, &[]), &raw.check(&[]).unwrap()).unwrap();
        let Transport::Net(net) = ground else { panic!("it is a network") };
        let delivered = (0..NODES).map(|_| NodeDeliveries::default()).collect();
        let mut place = Self { net, cluster, nodes: Vec::new(), delivered, news: Arc::default() };
        place.nodes = (0..NODES).map(|rank| Some(place.start(rank, 0))).collect();
        for (node, delivered) in place.nodes.iter_mut().flatten().zip(&mut place.delivered) {
            node.begin(Time(1), delivered).unwrap();
        }
        place
    }

    fn start(&self, rank: usize, life: u32) -> MessageDriver {
        let process = |group| {
            let me = self.cluster.replica(group, rank);
            Box::new(NumberingProtocol { me, numbered: 0, news: Arc::clone(&self.news) })
                as BoxedProcess
        };
        let processes = self.cluster.all_groups().iter().map(process).collect();
        MessageDriver::start(&self.net, &self.cluster, processes, options(rank, life)).unwrap()
    }

    fn round(&mut self) {
        for (node, delivered) in self.nodes.iter_mut().zip(&mut self.delivered) {
            let Some(node) = node else { continue };
            node.round(Time(1), delivered);
            node.flush(Time(1), delivered);
        }
        std::thread::yield_now();
    }

    fn until(&mut self, what: &str, done: impl Fn(&Self) -> bool) {
        let begun = std::time::Instant::now();
        while !done(self) {
            assert!(begun.elapsed().as_secs() < 20, "{what} does not come about");
            self.round();
        }
    }

    fn connect(&mut self) {
        self.until("every two connected", |place| {
            place.nodes.iter().flatten().all(|node| node.backlogs().count() == NODES - 1)
        });
        self.round();
    }

    fn submit(&mut self, rank: usize, seq: u64, dst: GroupSet) {
        let node = self.nodes[rank].as_mut().unwrap();
        assert!(node.room(dst, 0) > 0);
        node.submit(Time(1), Submission { seq, dst, payload: b"" }, &mut self.delivered[rank]);
    }

    fn news_of(&self, me: Pid) -> Vec<MediumEvent> {
        let news = self.news.lock().unwrap();
        news.iter().filter(|(p, _)| *p == me).map(|&(_, news)| news).collect()
    }
}

#[test]
fn all_replicas_of_a_group_deliver_what_goes_to_it_in_one_order() {
    let _limit = amcast_test_policy::time_limit();
    let mut place = ThreadCluster::new();
    place.connect();
    let both = GroupSet::first(2);
    let sets = [both, GroupSet::one(Gid(0)), GroupSet::one(Gid(1)), both];
    const EACH: u64 = 200;
    for seq in 1..=EACH {
        for rank in 0..NODES {
            place.submit(rank, seq, sets[(seq as usize + rank) % sets.len()]);
        }
        place.round();
    }
    // Three of four go to each group.
    let count = EACH as usize * NODES * 3 / 4;
    place.until("every delivery", |place| place.delivered.iter().all(|d| d.0.len() == 2 * count));
    for group in [Gid(0), Gid(1)] {
        let of = |rank: usize| {
            let p = place.cluster.replica(group, rank);
            let of: Vec<_> = place.delivered[rank].0.iter().filter(|d| d.0 == p).collect();
            of.iter().map(|&&(_, position, m)| (position, m)).collect::<Vec<_>>()
        };
        assert_eq!(of(0).len(), count);
        assert!(of(0).is_sorted(), "in the order of the sequencer");
        assert!(of(0) == of(1) && of(0) == of(2), "{group}");
    }
    let senders: Vec<Pid> = place.delivered[0].0.iter().map(|d| d.2.sender).collect();
    // The sender is the replica of the lowest destination.
    assert!(place.cluster.pids().all(|p| senders.contains(&p)), "{senders:?}");
}

#[test]
fn what_processes_of_a_node_send_each_other_arrives_in_the_same_round() {
    let _limit = amcast_test_policy::time_limit();
    let mut place = ThreadCluster::new();
    let rank = SEQUENCER.index() % NODES;
    place.submit(rank, 1, GroupSet::first(2));
    assert_eq!(place.nodes[rank].as_ref().unwrap().post.waiting_bytes(), 33);
    place.nodes[rank].as_mut().unwrap().flush(Time(1), &mut place.delivered[rank]);
    let m = MsgId { sender: Pid(rank as u32), seq: 1 };
    let expected = [(Pid(rank as u32), 1, m), (SEQUENCER, 1, m)];
    assert_eq!(place.delivered[rank].0, expected, "there is no connection yet");
    assert!(!place.nodes[rank].as_ref().unwrap().post.has_inside());
}

#[test]
fn every_process_of_a_node_hears_that_its_carrier_has_no_room_and_that_it_has() {
    let _limit = amcast_test_policy::time_limit();
    let mut place = ThreadCluster::new();
    let asks = ConnectionRequests { datagram_bytes_per_s: Some(1_000_000), ..ASKS };
    let slow = MessageDriverOptions { asks, ..options(0, 1) };
    place.nodes[0] = None;
    let own = [Pid(0), Pid(3)];
    let process = |me| {
        let news = Arc::clone(&place.news);
        Box::new(NumberingProtocol { me, numbered: 0, news }) as BoxedProcess
    };
    let processes = own.map(process).into();
    let slow = MessageDriver::start(&place.net, &place.cluster, processes, slow);
    place.nodes[0] = Some(slow.unwrap());
    place.connect();
    place.news.lock().unwrap().clear();
    let carrier = &mut place.nodes[0].as_mut().unwrap().post.carrier;
    // Nobody takes them for messages of the protocol.
    let to = MessageOutput::To(Pid(1), Lane::Datagram, ());
    (0..200).for_each(|_| carrier.carry(&to, &[0xff; 1_000]));
    let heard = |place: &ThreadCluster, has_room| {
        let event = MediumEvent::Backlog(has_room);
        own.iter().all(|&p| place.news_of(p).contains(&event))
    };
    place.until("no room", |place| heard(place, false));
    place.until("room", |place| heard(place, true));
    for p in own {
        assert_eq!(place.news_of(p), [false, true].map(MediumEvent::Backlog), "{p:?}");
    }
    assert_eq!(place.news_of(Pid(1)), [], "it sends nothing");
}

#[test]
fn a_connection_and_its_end_are_said_to_every_process_about_every_process() {
    let _limit = amcast_test_policy::time_limit();
    let mut place = ThreadCluster::new();
    place.connect();
    for me in place.cluster.pids() {
        let mut news = place.news_of(me);
        news.sort_unstable();
        let others: Vec<_> =
            place.cluster.pids().filter(|&p| p != me).map(MediumEvent::Up).collect();
        assert_eq!(news, others, "{me:?}");
    }
    place.news.lock().unwrap().clear();
    place.nodes[2] = None;
    let gone = [Pid(2), Pid(5)];
    place.until("the end", |place| place.news.lock().unwrap().len() >= 4 * 4);
    for me in [Pid(0), Pid(1), Pid(3), Pid(4)] {
        let down = gone.map(MediumEvent::Down).into_iter().chain(gone.map(MediumEvent::Suspect));
        assert_eq!(place.news_of(me), down.collect::<Vec<_>>(), "{me:?}");
    }
    place.news.lock().unwrap().clear();
    let mut again = place.start(2, 1);
    again.begin(Time(1), &mut place.delivered[2]).unwrap();
    place.nodes[2] = Some(again);
    place.connect();
    assert_eq!(place.news_of(Pid(0)), gone.map(MediumEvent::Up));
}

#[test]
fn a_node_with_another_number_of_groups_is_not_let_in() {
    let _limit = amcast_test_policy::time_limit();
    let mut place = ThreadCluster::new();
    place.nodes.truncate(2);
    let one = ClusterShape::new(1, NODES, 0).unwrap();
    let process = Box::new(NumberingProtocol { me: Pid(2), numbered: 0, news: Arc::default() });
    let other = MessageDriver::start(&place.net, &one, vec![process], options(2, 0)).unwrap();
    place.nodes.push(Some(other));
    place.until("a refusal", |place| {
        let other = place.nodes[2].as_ref().unwrap();
        other.post.carrier.counts().refused > 0
    });
    assert_eq!(place.nodes[2].as_ref().unwrap().backlogs().count(), 0);
}

/// A node with a process that keeps a log in a directory.
struct LoneNode {
    members: MessageDriver,
    told: Arc<Mutex<Vec<String>>>,
    delivered: NodeDeliveries,
}

impl LoneNode {
    fn begin(keeping: &LogLocation, awaited: bool, life: u32) -> Result<Self, String> {
        let cluster = ClusterShape::new(1, 1, 0).unwrap();
        let mut file = ClusterFile { shards: 1, replicas: 1, ..ClusterFile::default() };
        let port = ports::free(1, &[]).unwrap()[0];
        let place = HostPlacement::at(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        file.nodes.insert("n0".to_string(), place);
        let raw = RawConfig { groups: 1, replicas: 1, ..RawConfig::default() };
        let dir = ClusterDir::of_file(Path::new("/nowhere/cluster.toml"));
        let ground =
            dir.ground(&file, (MediumKind::Messages, &[]), &raw.check(&[]).unwrap()).unwrap();
        let Transport::Net(net) = ground else { panic!("it is a network") };
        let told = Arc::default();
        let scribe = Box::new(PersistingProtocol { me: Pid(0), awaited, told: Arc::clone(&told) });
        let start = MessageDriverOptions { keeping: Some(keeping.clone()), ..options(0, life) };
        let members = MessageDriver::start(&net, &cluster, vec![scribe], start).unwrap();
        let mut lone = Self { members, told, delivered: NodeDeliveries::default() };
        lone.members.begin(Time(1), &mut lone.delivered).map_err(|e| e.to_string())?;
        Ok(lone)
    }

    fn submit(&mut self, seq: u64) {
        let payload = [seq as u8];
        let submission = Submission { seq, dst: GroupSet::first(1), payload: &payload };
        self.members.submit(Time(1), submission, &mut self.delivered);
    }

    fn told(&self) -> Vec<String> {
        self.told.lock().unwrap().clone()
    }

    fn until(&mut self, what: &str) {
        let begun = std::time::Instant::now();
        while !self.told().iter().any(|told| told == what) {
            assert!(begun.elapsed().as_secs() < 20, "{what} is not told: {:?}", self.told());
            self.members.round(Time(1), &mut self.delivered);
            self.members.flush(Time(1), &mut self.delivered);
            std::thread::yield_now();
        }
    }
}

fn options(rank: usize, life: u32) -> MessageDriverOptions {
    let peer_registry = PeerRegistry::fleeting(3);
    MessageDriverOptions {
        rank,
        life,
        peer_registry,
        keeping: None,
        asks: ASKS,
        tracing: false,
        early: false,
    }
}

fn keeping(name: &str, holds: bool) -> LogLocation {
    let path = std::env::temp_dir().join(format!("amcast-{name}-{}", std::process::id()));
    let begun = path.with_extension("begun");
    let keeping = LogLocation {
        path,
        begun,
        holds,
        lasts: false,
        lived: false,
        first_life: 0,
        owner: LogOwner::of(1, 1),
    };
    keeping.make().unwrap();
    keeping
}

fn remove(keeping: &LogLocation) {
    std::fs::remove_dir_all(&keeping.path).unwrap();
    match std::fs::remove_file(&keeping.begun) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => panic!("{e}"),
        _ => {}
    }
}

#[test]
fn what_is_persisted_is_told_durable_read_again_and_there_after_a_start() {
    let _limit = amcast_test_policy::time_limit();
    let keeping = keeping("scribe", false);
    let mut lone = LoneNode::begin(&keeping, true, 0).unwrap();
    (1..=3).for_each(|seq| lone.submit(seq));
    // It holds back itself what it promises: nothing else waits for the disk.
    assert_eq!(lone.delivered.0.len(), 3);
    lone.until("durable 3");
    lone.until("loaded 102 Some([2])");
    assert_eq!(lone.told()[0], "start 0");
    lone.members.checkpointed(Time(1), &[2], &mut lone.delivered);
    assert_eq!(lone.members.failed(), None);
    drop(lone);
    let lone = LoneNode::begin(&keeping, true, 1).unwrap();
    let stored = (0..3).map(|n| format!("stored {n} {:?}", [n + 1]));
    let expected: Vec<String> = stored.chain(["start 1".to_string()]).collect();
    assert_eq!(lone.told(), expected, "what is trimmed goes with its whole piece of the log");
    drop(lone);
    // The disk is replaced.
    std::fs::remove_dir_all(&keeping.path).unwrap();
    keeping.make().unwrap();
    for incarnation in 2..4 {
        // A life that ends before anything is durable leaves it to the next one.
        let lone = LoneNode::begin(&keeping, true, incarnation).unwrap();
        assert_eq!(lone.told(), ["lost", &format!("start {incarnation}")]);
    }
    remove(&keeping);
}

#[test]
fn what_follows_a_record_that_is_not_awaited_waits_until_the_system_has_it() {
    let _limit = amcast_test_policy::time_limit();
    let keeping = keeping("holds", true);
    let mut lone = LoneNode::begin(&keeping, false, 0).unwrap();
    lone.submit(1);
    lone.submit(2);
    // Nothing was handed over yet: if the process is killed now, no peer has received it.
    lone.members.deal(Time(1), &mut lone.delivered);
    assert_eq!((lone.told(), lone.delivered.0.len()), (vec!["start 0".to_string()], 0));
    assert_eq!(lone.delivered.1, [], "what is reported behind a delivery waits with it");
    assert_eq!(lone.delivered.2, [], "a read behind the barrier sees the delivery");
    lone.until("heard [2]");
    assert!(lone.told().contains(&"heard [1]".to_string()));
    let delivered: Vec<u64> = lone.delivered.0.iter().map(|d| d.1).collect();
    assert_eq!(delivered, [1, 2]);
    let reported = [1, 2].map(|n| (n as usize, ProtocolEvent::CaughtUp(n)));
    assert_eq!(lone.delivered.1, reported);
    assert_eq!(lone.delivered.2, [1, 2].map(|n| (n as usize, Ticket(n))));
    assert_eq!(lone.members.post.waiting_bytes(), 0);
    drop(lone);
    remove(&keeping);
}

#[test]
fn a_process_whose_log_may_lack_its_end_hears_so_before_it_starts() {
    let _limit = amcast_test_policy::time_limit();
    let keeping = keeping("torn", true);
    let mut lone = LoneNode::begin(&keeping, true, 0).unwrap();
    lone.submit(1);
    lone.until("durable 1");
    drop(lone);
    let begin = |life| LoneNode::begin(&keeping, true, life).unwrap().told();
    assert_eq!(begin(1), ["stored 0 [1]", "start 1"]);
    // An earlier life found that its machine had failed, and wrote nothing since.
    std::fs::write(keeping.path.join("g0.doubt"), "").unwrap();
    assert_eq!(begin(2), ["stored 0 [1]", "torn", "start 2"]);
    remove(&keeping);
}

#[test]
fn a_log_without_room_for_a_second_is_stuck_until_its_disk_has_taken_it() {
    let _limit = amcast_test_policy::time_limit();
    let keeping = keeping("stuck", false);
    let mut lone = LoneNode::begin(&keeping, true, 0).unwrap();
    let at = |ms| Time(1) + Span::millis(ms);
    let payload = vec![7; 1 << 20];
    for seq in 1..=9 {
        let submission = Submission { seq, dst: GroupSet::first(1), payload: &payload };
        lone.members.submit(at(0), submission, &mut lone.delivered);
    }
    // Nothing is handed over to the disk: it hangs, as far as this node can tell.
    let look = |lone: &mut LoneNode, ms| {
        lone.members.round(at(ms), &mut lone.delivered);
        (lone.members.room(GroupSet::first(1), 1), lone.members.log_stuck_since())
    };
    assert_eq!(look(&mut lone, 10), (0, None), "it may continue soon");
    assert_eq!(look(&mut lone, 1_009), (0, None));
    assert_eq!(look(&mut lone, 1_010), (0, Some(at(10))));
    lone.members.flush(at(2_000), &mut lone.delivered);
    lone.until("durable 9");
    let (room, stuck_since) = look(&mut lone, 2_010);
    assert!(room > 0 && stuck_since.is_none(), "{stuck_since:?}");
    drop(lone);
    remove(&keeping);
}

#[test]
fn a_log_that_cannot_be_used_keeps_its_node_from_starting() {
    let _limit = amcast_test_policy::time_limit();
    let keeping = keeping("no-log", false);
    std::fs::write(keeping.path.join("g0"), "a file where a directory should be").unwrap();
    let Err(why) = LoneNode::begin(&keeping, true, 0) else { panic!("it starts") };
    assert!(why.contains("g0"), "{why}");
    assert!(!keeping.is_begun());
    remove(&keeping);
}

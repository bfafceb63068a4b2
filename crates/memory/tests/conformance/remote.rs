//! Processes on hosts of their own: a directory each, and between them agents whose frames travel one at a time. The wire
//! between them is a queue, so that each test sees every state; `amcast-node` runs the same suite over TCP.

use crate::run;
use amcast_core::id::Pid;
use amcast_core::memory::{
    LINE_WORDS, LineStamp, MemoryOutput, RegionId, RegionSpec, RegionWindow, WriteSource,
};
use amcast_core::step::Ticket;
use amcast_memory::conformance::{MemoryEvent, MemoryFabric, shape};
use amcast_memory::remote::{FrameSink, MemoryAgent, RemoteFault, RemoteMap, RemoteMemory};
use amcast_memory::{ClusterId, Directory, MappedCarrier, StartOptions};
use std::collections::{BTreeMap, VecDeque};

/// A host with one process.
struct RemoteHost {
    directory: Directory,
    starts: u64,
    /// While it lives.
    life: Option<(MemoryAgent, MappedCarrier)>,
}

pub(crate) struct RemoteHosts {
    specs: Vec<Vec<RegionSpec>>,
    hosts: Vec<RemoteHost>,
    /// The connections that stand, and the frames on their way from the first to the second.
    wires: BTreeMap<(usize, usize), VecDeque<Vec<u8>>>,
    /// No connection comes to stand between these.
    apart: Vec<(usize, usize)>,
    faults: Vec<(usize, RemoteFault)>,
    /// The nodes that share memory.
    sharing: Vec<usize>,
}

impl RemoteHosts {
    pub(crate) fn new(specs: Vec<Vec<RegionSpec>>) -> Self {
        Self::with_sharing(specs, &[])
    }

    /// Of these nodes all are on one host.
    fn with_sharing(specs: Vec<Vec<RegionSpec>>, sharing: &[usize]) -> Self {
        let count = specs.len();
        let host = |_| RemoteHost {
            directory: Directory::heap(ClusterId(1), count as u32, 0).expect("made"),
            starts: 0,
            life: None,
        };
        let mut hosts: Vec<RemoteHost> = (0..count).map(host).collect();
        for &node in sharing {
            hosts[node].directory = hosts[sharing[0]].directory.clone();
        }
        let (wires, apart, faults) = (BTreeMap::new(), Vec::new(), Vec::new());
        let mut fabric = Self { specs, hosts, wires, apart, faults, sharing: sharing.to_vec() };
        (0..count).for_each(|pid| fabric.start(Pid(pid as u32)));
        while fabric.advance() {}
        fabric
    }

    fn carrier(&mut self, pid: Pid) -> &mut MappedCarrier {
        &mut self.hosts[pid.index()].life.as_mut().expect("it lives").1
    }

    fn agent(&mut self, host: usize) -> &mut MemoryAgent {
        &mut self.hosts[host].life.as_mut().expect("it lives").0
    }

    fn connect(&mut self, a: usize, b: usize) {
        let parted = self.apart.iter().any(|&(x, y)| (x, y) == (a, b) || (x, y) == (b, a));
        let live = self.hosts[a].life.is_some() && self.hosts[b].life.is_some();
        if a == b || parted || !live || self.wires.contains_key(&(a, b)) {
            return;
        }
        for (from, to) in [(a, b), (b, a)] {
            self.wires.insert((from, to), VecDeque::new());
            self.agent(from).up(to);
        }
    }

    /// The connection breaks, with all that is on its way.
    fn disconnect(&mut self, a: usize, b: usize) {
        for (from, to) in [(a, b), (b, a)] {
            if self.wires.remove(&(from, to)).is_some()
                && let Some((agent, _)) = &mut self.hosts[from].life
            {
                agent.down(to);
            }
        }
    }

    /// A process dies and starts again, and its node continues.
    fn restart_process(&mut self, pid: Pid) {
        let host = &mut self.hosts[pid.index()];
        let (agent, carrier) = host.life.take().expect("it lives");
        let (remote, specs) = (agent.memory().clone(), &self.specs[pid.index()]);
        carrier.crash();
        let directory = host.directory.clone().with_remote(remote);
        let started = directory.start(pid, specs, StartOptions::default());
        host.life = Some((agent, started.expect("started")));
    }

    /// The connection breaks, and none comes to stand.
    fn part(&mut self, a: usize, b: usize) {
        self.apart.push((a, b));
        self.disconnect(a, b);
    }

    fn join(&mut self, a: usize, b: usize) {
        self.apart.retain(|&pair| pair != (a, b));
        self.connect(a, b);
    }

    /// Hands over what a host has for others: all answers, and one access.
    fn flush(&mut self, host: usize) -> bool {
        let Some((agent, _)) = &mut self.hosts[host].life else { return false };
        let mut sent = OneAccess { room: 1, sent: Vec::new(), ended: Vec::new() };
        let any = agent.flush(&mut sent);
        for (to, frame) in sent.sent {
            if let Some(wire) = self.wires.get_mut(&(host, to)) {
                wire.push_back(frame);
            }
        }
        self.faults.extend(sent.ended);
        any
    }

    /// The next frame of a connection arrives.
    fn deliver(&mut self, (from, to): (usize, usize)) -> bool {
        let frame = self.wires.get_mut(&(from, to)).and_then(VecDeque::pop_front);
        let Some(frame) = frame else { return false };
        if let Err(fault) = self.agent(to).frame(from, &frame) {
            self.faults.push((from, fault));
            self.disconnect(from, to);
        }
        true
    }
}

/// Takes all answers, and one access.
struct OneAccess {
    room: usize,
    sent: Vec<(usize, Vec<u8>)>,
    ended: Vec<(usize, RemoteFault)>,
}

impl FrameSink for OneAccess {
    fn room(&self, _: usize) -> usize {
        self.room
    }

    fn send(&mut self, node: usize, frame: &[u8]) {
        // A write or a read, by the first byte.
        self.room -= usize::from(matches!(frame[0], 4 | 5));
        self.sent.push((node, frame.to_vec()));
    }

    fn end(&mut self, node: usize, why: RemoteFault) {
        self.ended.push((node, why));
    }
}

impl MemoryFabric for RemoteHosts {
    fn post(&mut self, from: Pid, outs: &[MemoryOutput]) {
        self.carrier(from).post(outs);
    }

    fn advance(&mut self) -> bool {
        let ways: Vec<_> = self.wires.keys().copied().collect();
        ways.into_iter().any(|way| self.deliver(way))
            || (0..self.hosts.len()).any(|host| self.flush(host))
    }

    fn heard(&mut self, by: Pid) -> Vec<MemoryEvent> {
        let carrier = self.carrier(by);
        let mut heard = Vec::new();
        carrier.begin_round();
        while let Some((_, input)) = carrier.next_input() {
            heard.extend(MemoryEvent::of(&input));
        }
        heard
    }

    fn window(&self, of: Pid) -> RegionWindow<'_> {
        self.hosts[of.index()].life.as_ref().expect("it lives").1.window()
    }

    fn crash(&mut self, pid: Pid) {
        let (agent, carrier) = self.hosts[pid.index()].life.take().expect("it lives");
        drop(agent);
        carrier.crash();
        (0..self.hosts.len()).for_each(|other| self.disconnect(pid.index(), other));
    }

    fn start(&mut self, pid: Pid) {
        let count = self.hosts.len();
        let (here, host) = (pid.index(), &mut self.hosts[pid.index()]);
        host.starts += 1;
        let shares = self.sharing.contains(&here);
        let near = if shares { self.sharing.clone() } else { vec![here] };
        let map = RemoteMap {
            here,
            nodes: count,
            node_of: (0..count).collect(),
            near,
            places: Vec::new(),
            first_incarnation: host.starts as u32 - 1,
        };
        let remote = RemoteMemory::new(map, (here as u64 + 1) * 1_000 + host.starts);
        let directory = host.directory.clone().with_remote(remote);
        let agent = MemoryAgent::new(directory.clone());
        let started = directory.start(pid, &self.specs[here], StartOptions::default());
        host.life = Some((agent, started.expect("started")));
        (0..count).for_each(|other| self.connect(here, other));
    }

    fn stops_writes(&self) -> bool {
        true
    }
}

#[test]
fn carriers_on_hosts_of_their_own_keep_the_laws() {
    let _limit = amcast_test_policy::time_limit();
    run("remote", &mut || Box::new(RemoteHosts::new(shape())));
}

const OWNER: Pid = Pid(0);
const WRITER: Pid = Pid(1);
const PLAIN: RegionId = RegionId(0);
const GUARDED: RegionId = RegionId(1);

/// A write of one line with the number `n` at `at`.
fn write(region: RegionId, at: u32, n: u64) -> MemoryOutput {
    let source = WriteSource::line([n; LINE_WORDS], LineStamp(n));
    MemoryOutput::Write { to: OWNER, region, at, source, ticket: Some(Ticket(n)), bell: false }
}

fn settle(fabric: &mut RemoteHosts) {
    while fabric.advance() {}
    assert_eq!(fabric.faults, []);
}

/// The numbers in the lines of the owner's region.
fn numbers(fabric: &RemoteHosts, region: RegionId) -> Vec<u64> {
    let lines = fabric.window(OWNER).region(region);
    lines.iter().map(|line| line.stamp().0).collect()
}

#[test]
fn a_connection_that_breaks_anywhere_loses_answers_and_no_write() {
    let _limit = amcast_test_policy::time_limit();
    for steps in 0.. {
        let mut fabric = RemoteHosts::new(shape());
        for n in 1..=6 {
            fabric.post(WRITER, &[write(PLAIN, n as u32, n)]);
        }
        let taken = (0..steps).take_while(|_| fabric.advance()).count();
        fabric.part(0, 1);
        fabric.post(WRITER, &[write(PLAIN, 7, 7), write(PLAIN, 7, 8), write(PLAIN, 8, 9)]);
        settle(&mut fabric);
        let heard = fabric.heard(WRITER);
        for n in 7..=9 {
            assert!(heard.contains(&MemoryEvent::Lost(Ticket(n))), "{steps}: {heard:?}");
        }
        let order: Vec<u64> = heard
            .iter()
            .map(|event| match event {
                MemoryEvent::Written(t) | MemoryEvent::Lost(t) => t.0,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(order, (1..=9).collect::<Vec<_>>(), "answered once, in the order of posting");
        let there = numbers(&fabric, PLAIN);
        let written = |n: u64| heard.contains(&MemoryEvent::Written(Ticket(n)));
        assert!((1..=6).all(|n| !written(n) || there[n as usize] == n), "{there:?} {heard:?}");
        fabric.join(0, 1);
        fabric.post(WRITER, &[write(PLAIN, 9, 10)]);
        settle(&mut fabric);
        assert_eq!(numbers(&fabric, PLAIN), [0, 1, 2, 3, 4, 5, 6, 8, 9, 10, 0, 0], "{steps}");
        let heard = fabric.heard(WRITER);
        assert!(!heard.iter().any(|e| matches!(e, MemoryEvent::Fresh(..))), "{heard:?}");
        if taken < steps {
            return;
        }
    }
}

#[test]
fn no_late_write_lands_after_a_revocation_on_any_connection() {
    let _limit = amcast_test_policy::time_limit();
    for steps in 0.. {
        let mut fabric = RemoteHosts::new(shape());
        fabric.post(OWNER, &[MemoryOutput::Allow(GUARDED)]);
        for n in 1..=4 {
            fabric.post(WRITER, &[write(GUARDED, n as u32, n)]);
        }
        let taken = (0..steps).take_while(|_| fabric.advance()).count();
        fabric.part(0, 1);
        fabric.post(OWNER, &[MemoryOutput::Revoke(GUARDED)]);
        let seen = numbers(&fabric, GUARDED);
        fabric.join(0, 1);
        settle(&mut fabric);
        assert_eq!(numbers(&fabric, GUARDED), seen, "a write of the old connection landed");
        for event in fabric.heard(WRITER) {
            if let MemoryEvent::Written(t) = event {
                assert_eq!(seen[t.0 as usize], t.0, "law 3");
            }
        }
        if taken < steps {
            return;
        }
    }
}

#[test]
fn a_node_that_is_given_up_anywhere_loses_answers_and_no_write() {
    let _limit = amcast_test_policy::time_limit();
    for steps in 0.. {
        let mut fabric = RemoteHosts::new(shape());
        for n in 1..=6 {
            fabric.post(WRITER, &[write(PLAIN, n as u32, n)]);
        }
        let taken = (0..steps).take_while(|_| fabric.advance()).count();
        fabric.agent(1).abandon(0);
        fabric.post(WRITER, &[write(PLAIN, 7, 7), write(PLAIN, 8, 8)]);
        settle(&mut fabric);
        fabric.post(WRITER, &[write(PLAIN, 9, 9)]);
        settle(&mut fabric);
        assert_eq!(numbers(&fabric, PLAIN), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 0], "{steps}");
        let heard = fabric.heard(WRITER);
        let order: Vec<u64> = heard
            .iter()
            .map(|event| match event {
                MemoryEvent::Written(t) | MemoryEvent::Lost(t) => t.0,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(order, (1..=9).collect::<Vec<_>>(), "answered once, in the order of posting");
        assert_eq!(heard.last(), Some(&MemoryEvent::Written(Ticket(9))), "it has answered");
        if taken < steps {
            return;
        }
    }
}

#[test]
fn no_write_lands_after_a_revocation_though_its_owner_was_given_up() {
    let _limit = amcast_test_policy::time_limit();
    for steps in 0.. {
        let mut fabric = RemoteHosts::new(shape());
        fabric.post(OWNER, &[MemoryOutput::Allow(GUARDED)]);
        fabric.post(WRITER, &[write(GUARDED, 1, 1), write(GUARDED, 2, 2)]);
        let taken = (0..steps).take_while(|_| fabric.advance()).count();
        fabric.agent(1).abandon(0);
        fabric.post(WRITER, &[write(GUARDED, 3, 3), write(GUARDED, 4, 4)]);
        fabric.post(OWNER, &[MemoryOutput::Revoke(GUARDED)]);
        let seen = numbers(&fabric, GUARDED);
        settle(&mut fabric);
        assert_eq!(numbers(&fabric, GUARDED), seen, "a write that was under way landed");
        for event in fabric.heard(WRITER) {
            if let MemoryEvent::Written(t) = event {
                assert_eq!(seen[t.0 as usize], t.0, "law 3");
            }
        }
        if taken < steps {
            return;
        }
    }
}

#[test]
fn a_process_that_starts_again_in_a_node_that_lives_gets_nothing_old_and_answers_keep_their_order()
{
    let _limit = amcast_test_policy::time_limit();
    for steps in 0.. {
        let mut fabric = RemoteHosts::new(shape());
        fabric.post(WRITER, &[write(PLAIN, 1, 1), write(PLAIN, 2, 2), write(PLAIN, 3, 3)]);
        let taken = (0..steps).take_while(|_| fabric.advance()).count();
        fabric.restart_process(OWNER);
        fabric.post(WRITER, &[write(PLAIN, 4, 4)]);
        for _ in 0..4 {
            fabric.advance();
            fabric.post(WRITER, &[write(PLAIN, 5, 5)]);
        }
        settle(&mut fabric);
        assert!(
            numbers(&fabric, PLAIN).iter().all(|&n| n == 0),
            "{steps}: meant for the old memory"
        );
        let heard = fabric.heard(WRITER);
        let tickets: Vec<u64> = heard
            .iter()
            .filter_map(|event| match event {
                MemoryEvent::Written(t) | MemoryEvent::Lost(t) => Some(t.0),
                _ => None,
            })
            .collect();
        assert!(tickets.is_sorted() && tickets.len() == 8, "{steps}: {heard:?}");
        assert_eq!(heard.last(), Some(&MemoryEvent::Fresh(OWNER, 1)), "{steps}: {heard:?}");
        fabric.post(WRITER, &[write(PLAIN, 6, 6)]);
        settle(&mut fabric);
        assert_eq!(fabric.heard(WRITER), [MemoryEvent::Written(Ticket(6))]);
        if taken < steps {
            return;
        }
    }
}

#[test]
fn a_connection_that_breaks_soon_after_a_node_started_again_has_no_gap() {
    let _limit = amcast_test_policy::time_limit();
    let mut fabric = RemoteHosts::new(shape());
    for n in 1..=10 {
        fabric.post(WRITER, &[write(PLAIN, n as u32, n)]);
    }
    settle(&mut fabric);
    fabric.crash(OWNER);
    fabric.start(OWNER);
    settle(&mut fabric);
    // Nothing was carried out for the new start yet.
    for _ in 0..2 {
        fabric.part(0, 1);
        fabric.join(0, 1);
        settle(&mut fabric);
        assert!(!fabric.agent(0).has_gap(1), "nothing was dropped");
    }
    fabric.heard(WRITER);
    fabric.post(WRITER, &[write(PLAIN, 3, 3)]);
    settle(&mut fabric);
    assert_eq!(fabric.heard(WRITER).len(), 1);
    assert_eq!(numbers(&fabric, PLAIN)[3], 3);
}

#[test]
fn a_process_that_was_out_of_reach_at_first_is_told_before_its_first_write_lands() {
    let _limit = amcast_test_policy::time_limit();
    let mut fabric = RemoteHosts::new(shape());
    fabric.crash(WRITER);
    fabric.part(0, 1);
    fabric.start(WRITER);
    fabric.post(WRITER, &[write(PLAIN, 1, 1)]);
    settle(&mut fabric);
    assert_eq!(fabric.heard(WRITER), [MemoryEvent::Lost(Ticket(1))]);
    fabric.join(0, 1);
    settle(&mut fabric);
    assert_eq!(fabric.heard(WRITER), [MemoryEvent::Fresh(OWNER, 0)]);
    fabric.post(WRITER, &[write(PLAIN, 2, 2)]);
    settle(&mut fabric);
    assert_eq!(fabric.heard(WRITER), [MemoryEvent::Written(Ticket(2))]);
    assert_eq!(numbers(&fabric, PLAIN)[..3], [0, 0, 2], "the lost one left no trace");
}

#[test]
fn a_frame_that_is_not_the_senders_to_send_ends_the_connection_and_changes_nothing() {
    let _limit = amcast_test_policy::time_limit();
    let mut fabric = RemoteHosts::new(shape());
    fabric.post(WRITER, &[write(PLAIN, 1, 1)]);
    while fabric.wires[&(1, 0)].is_empty() {
        assert!(fabric.advance());
    }
    let good = fabric.wires[&(1, 0)][0].clone();
    settle(&mut fabric);
    let before = numbers(&fabric, PLAIN);
    // Byte, value: another writer, another owner, a longer write, no kind at all, flags that there are not.
    let lies: [(usize, u8, RemoteFault); 5] = [
        (4, 2, RemoteFault::Foreign(Pid(2))),
        (8, 1, RemoteFault::Foreign(Pid(1))),
        (16, 9, RemoteFault::Malformed),
        (0, 99, RemoteFault::Malformed),
        (1, 4, RemoteFault::Malformed),
    ];
    for (at, value, fault) in lies {
        let mut bad = good.clone();
        bad[at] = value;
        assert_eq!(fabric.agent(0).frame(1, &bad), Err(fault), "byte {at} = {value}");
    }
    for length in 0..good.len() {
        assert_eq!(fabric.agent(0).frame(1, &good[..length]), Err(RemoteFault::Malformed));
    }
    // A region that is another's to write, and lines behind its end: refused, which the writer hears as lost.
    for (number, at, value) in [(2, 2, 2), (3, 12, 200)] {
        let mut bad = good.clone();
        (bad[at], bad[20]) = (value, number);
        assert_eq!(fabric.agent(0).frame(1, &bad), Ok(()));
    }
    assert_eq!(numbers(&fabric, PLAIN), before);
    assert!(numbers(&fabric, RegionId(2)).iter().all(|&n| n == 0));
    assert_eq!(fabric.agent(0).counts(), [1, 2]);
}

#[test]
fn a_node_learns_that_accesses_to_it_were_dropped_and_takes_in_nothing_behind_the_gap() {
    let _limit = amcast_test_policy::time_limit();
    let open = |start: u64, peer: u64, oldest: u64| {
        let words = [start, peer, oldest].map(u64::to_le_bytes);
        [&[1_u8][..], words.as_flattened()].concat()
    };
    let mut fabric = RemoteHosts::new(shape());
    for n in 1..=3 {
        fabric.post(WRITER, &[write(PLAIN, n as u32, n)]);
    }
    let mut later = None;
    while fabric.advance() {
        let frame = fabric.wires[&(1, 0)].front().filter(|frame| frame[0] == 4);
        later = frame.cloned().or(later);
    }
    let mut later = later.expect("a write was on its way");
    let agent = fabric.agent(0);
    // It has carried out three of this start of the writer: the fourth is the next one, and no other one is.
    for (number, taken) in [(99, false), (3, false), (4, true), (6, false), (5, true)] {
        later[20..28].copy_from_slice(&u64::to_le_bytes(number));
        agent.up(1);
        assert_eq!(agent.frame(1, &open(2_001, 1_001, 4)), Ok(()));
        let expected = if taken { Ok(()) } else { Err(RemoteFault::Malformed) };
        assert_eq!((agent.has_gap(1), agent.frame(1, &later)), (false, expected), "{number}");
    }
    for oldest in [7, 101, u64::MAX] {
        agent.up(1);
        assert_eq!(agent.frame(1, &open(2_001, 1_001, oldest)), Ok(()));
        assert!(agent.has_gap(1), "the sixth is missing");
        assert_eq!(
            agent.frame(1, &later),
            Err(RemoteFault::Malformed),
            "the connection is not open"
        );
    }
    agent.up(1);
    assert_eq!(agent.frame(1, &open(2_002, 0, 101)), Ok(()));
    assert!(!agent.has_gap(1), "a new start of the writer owes nothing");
    // Another start of the writer has no gap, nor has one that met an earlier start of this node.
    for (start, peer) in [(2_002, 0), (2_001, 77)] {
        let mut fabric = RemoteHosts::new(shape());
        let agent = fabric.agent(0);
        agent.up(1);
        assert_eq!(agent.frame(1, &open(start, peer, 101)), Ok(()));
        assert!(!agent.has_gap(1));
    }
}

#[test]
fn one_that_leaves_the_host_is_reached_over_its_connection_and_the_other_one_continues() {
    let _limit = amcast_test_policy::time_limit();
    for is_back_before in [false, true] {
        let mut fabric = RemoteHosts::with_sharing(shape(), &[0, 1]);
        let moves = |fabric: &mut RemoteHosts| fabric.agent(1).move_away(0);
        fabric.post(WRITER, &[write(PLAIN, 1, 1)]);
        settle(&mut fabric);
        assert_eq!(fabric.heard(WRITER), [MemoryEvent::Written(Ticket(1))]);
        assert_eq!((moves(&mut fabric), numbers(&fabric, PLAIN)[1]), (false, 1), "it lives here");
        fabric.crash(OWNER);
        fabric.hosts[1].directory.clean().expect("it can be looked at");
        // It is on another host from now on, with nothing.
        fabric.sharing.clear();
        fabric.hosts[0].directory = Directory::heap(ClusterId(1), 3, 0).expect("made");
        if !is_back_before {
            assert!(moves(&mut fabric));
        }
        fabric.post(WRITER, &[write(PLAIN, 2, 2)]);
        fabric.start(OWNER);
        settle(&mut fabric);
        assert!(moves(&mut fabric) && moves(&mut fabric), "it lives here no more");
        fabric.post(WRITER, &[write(PLAIN, 3, 3)]);
        settle(&mut fabric);
        let (lost, fresh) = (|n| MemoryEvent::Lost(Ticket(n)), MemoryEvent::Fresh(OWNER, 1));
        let heard = fabric.heard(WRITER);
        assert!(heard == [lost(2), lost(3), fresh], "{is_back_before}: {heard:?}");
        fabric.post(WRITER, &[write(PLAIN, 4, 4)]);
        settle(&mut fabric);
        assert_eq!(fabric.heard(WRITER), [MemoryEvent::Written(Ticket(4))]);
        assert_eq!(numbers(&fabric, PLAIN)[..6], [0, 0, 0, 0, 4, 0]);
    }
}

/// A write of one line of `from` to `to`, in a region of which it is the writer.
fn write_between(from: Pid, to: Pid, n: u64) -> MemoryOutput {
    let region = RegionId(from.0 as u16);
    let source = WriteSource::line([n; LINE_WORDS], LineStamp(n));
    MemoryOutput::Write { to, region, at: n as u32 % 8, source, ticket: None, bell: false }
}

/// Three hosts each of which has a region for each other one, with queues of a few writes, and fit.
fn small_queues() -> RemoteHosts {
    let region =
        |writer| RegionSpec { name: "lines", lines: 8, writer: Pid(writer), guarded: false };
    let mut fabric = RemoteHosts::new((0..3).map(|_| (0..3).map(region).collect()).collect());
    for host in 0..3 {
        is_fit(&mut fabric, host, true);
    }
    settle(&mut fabric);
    fabric
}

fn is_fit(fabric: &mut RemoteHosts, host: usize, is_fit: bool) {
    let agent = fabric.agent(host);
    (0..3).for_each(|other| agent.memory().bound_queue(other, 800));
    agent.set_fit(is_fit, 0);
}

/// Writes go from each first host to the second one while the two are apart, until they are dropped; others land. Then all are connected
/// again, and those that are to begin anew do, one after the other. Returns these.
fn overflowed(drops: &[(usize, usize)]) -> (Vec<usize>, RemoteHosts) {
    let mut fabric = small_queues();
    for &(from, to) in drops {
        fabric.part(from, to);
        for n in 1..=20 {
            fabric.post(Pid(from as u32), &[write_between(Pid(from as u32), Pid(to as u32), n)]);
            while fabric.advance() {}
        }
    }
    assert_eq!(fabric.faults.len(), drops.len(), "{:?}", fabric.faults);
    assert!(fabric.faults.iter().all(|(_, fault)| *fault == RemoteFault::Overflow));
    fabric.faults.clear();
    fabric.apart.clear();
    let mut begun = Vec::new();
    loop {
        (0..3).for_each(|a| (0..3).for_each(|b| fabric.connect(a, b)));
        settle(&mut fabric);
        let due: Vec<usize> = (0..3).filter(|&host| fabric.agent(host).begins_anew()).collect();
        let [host] = due[..] else {
            assert!(due.is_empty(), "two of three would be without memory: {due:?}");
            return (begun, fabric);
        };
        begun.push(host);
        fabric.crash(Pid(host as u32));
        fabric.start(Pid(host as u32));
        settle(&mut fabric);
        for other in 0..3 {
            assert!(!fabric.agent(other).begins_anew(), "not before that one is back");
        }
        is_fit(&mut fabric, host, true);
    }
}

#[test]
fn where_one_link_dropped_writes_both_ways_one_node_begins_anew_and_all_exchange_writes_again() {
    let _limit = amcast_test_policy::time_limit();
    for drops in [&[(0, 1), (1, 0)][..], &[(0, 1)], &[(1, 0)], &[(0, 1), (1, 0), (0, 2), (2, 0)]] {
        let (begun, mut fabric) = overflowed(drops);
        assert_eq!(begun, [0], "{drops:?}");
        for (from, to) in [(0, 1), (1, 0), (0, 2), (2, 0), (1, 2), (2, 1)] {
            let (from, to) = (Pid(from), Pid(to));
            assert!(!fabric.agent(to.index()).has_gap(from.index()));
            fabric.heard(from);
            fabric.post(from, &[write_between(from, to, 30)]);
            settle(&mut fabric);
            let lines = fabric.window(to).region(RegionId(from.0 as u16));
            assert_eq!(lines[30 % 8].stamp(), LineStamp(30), "{from:?} to {to:?}");
        }
    }
}

#[test]
fn the_node_that_was_cut_off_begins_anew_whichever_node_dropped_writes() {
    let _limit = amcast_test_policy::time_limit();
    for drops in [&[(2, 0), (2, 1)][..], &[(0, 2), (1, 2)], &[(0, 2), (2, 0), (1, 2), (2, 1)]] {
        assert_eq!(overflowed(drops).0, [2], "{drops:?}");
    }
}

#[test]
fn nobody_begins_anew_where_all_links_dropped_writes_or_too_few_are_fit() {
    let _limit = amcast_test_policy::time_limit();
    let (begun, mut fabric) = overflowed(&[(0, 1), (1, 2), (2, 0)]);
    assert!(begun.is_empty() && (0..3).all(|host| fabric.agent(host).has_gap((host + 2) % 3)));
    let mut fabric = small_queues();
    is_fit(&mut fabric, 2, false);
    fabric.part(0, 1);
    for n in 1..=20 {
        fabric.post(Pid(0), &[write_between(Pid(0), Pid(1), n)]);
    }
    while fabric.advance() {}
    fabric.faults.clear();
    fabric.join(0, 1);
    settle(&mut fabric);
    assert!(
        (0..3).all(|host| !fabric.agent(host).begins_anew()),
        "the third has not all of its state"
    );
    is_fit(&mut fabric, 2, true);
    settle(&mut fabric);
    assert!(fabric.agent(0).begins_anew() && !fabric.agent(1).begins_anew());
}

//! TRAM on a memory that is immediate: what each part does, without chance or time. The simulator
//! judges it under faults.

use super::{RamCast, Tram};
use alloc::collections::VecDeque;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use amcast_core::memory::{
    AccessOutcome, CacheLine, HeapRegions, LINE_WORDS, LineStamp, Memory, MemoryInput,
    MemoryOutput, RegionId, RegionWindow, Regions, WriteSource,
};
use amcast_core::step::{Note, Ticket};
use amcast_core::{
    Config, Entry, Gid, GroupSet, Input, MsgId, Outbox, Output, Pid, Protocol, ProtocolEvent,
    ProtocolProcess, RawConfig, Span, Submission, Time,
};
use core::cell::Cell;

mod changed;
mod fetched;
mod hung;
mod late;
mod moved;
mod numbers;
mod parent;
mod ramcast;
mod returned;
mod told;

/// Actions of other processes on a process's memory whenever it looks at a region.
type MemoryMeddler = alloc::boxed::Box<dyn Fn(RegionId, &HeapRegions)>;

/// A process's memory. It can change under the process's hands, in the middle of a step.
struct TestMemory {
    heap: HeapRegions,
    meddles: Option<MemoryMeddler>,
}

impl Regions for TestMemory {
    fn lines(&self, region: RegionId) -> &[CacheLine] {
        if let Some(meddle) = &self.meddles {
            meddle(region, &self.heap);
        }
        self.heap.lines(region)
    }
}

/// Writes over the first line of `moved` when it was looked at and then `then` is.
fn moves(moved: RegionId, then: RegionId) -> Option<MemoryMeddler> {
    let looked = Cell::new(false);
    Some(alloc::boxed::Box::new(move |region, heap| {
        if region == then && looked.get() {
            heap.lines(moved)[0].put(&[0; LINE_WORDS], LineStamp::new(77, 0));
        }
        looked.set(looked.get() || region == moved);
    }))
}

/// One process.
struct TramProcess {
    protocol: alloc::boxed::Box<dyn Protocol<Medium = Memory> + Send>,
    memory: TestMemory,
    open: Vec<bool>,
    inbox: VecDeque<TramAnswer>,
    delivered: Vec<(MsgId, Vec<u8>)>,
    /// Of each of them.
    positions: Vec<u64>,
    marks: Vec<&'static str>,
    malformed: Vec<(Pid, &'static str)>,
    up: bool,
    incarnation: u32,
    needs: u64,
    /// The position of the last state that it was given.
    state: u64,
}

enum TramAnswer {
    Done(Ticket, TramReply),
    Fresh(Pid, u32),
    Applied(u64),
    Installed(u64, u64),
}

enum TramReply {
    Written,
    Denied,
    Lost,
    Words(Vec<[u64; 8]>),
}

struct TramWorld {
    entry: &'static dyn Entry,
    config: Config,
    now: Time,
    processes: Vec<TramProcess>,
    seq: u64,
    /// Writes from the first to the second take for ever.
    cut: Vec<(usize, usize)>,
    /// Accesses of the first to the second are lost, and answered so.
    dead: Vec<(usize, usize)>,
    /// The processes that are not stepped.
    paused: Vec<usize>,
    /// The processes whose application applies nothing of what is delivered.
    hung: Vec<usize>,
    /// The processes that get a state of another one when the test says so.
    slow: Vec<usize>,
    /// The posted writes: from, to, region, first line.
    posted: Vec<(usize, usize, RegionId, u32)>,
    /// The lines of each of them.
    lines: Vec<u32>,
}

impl TramWorld {
    fn new(groups: usize, replicas: usize, overlay: &str, set: &[(&str, &str)]) -> Self {
        Self::of(&Tram, (groups, replicas), overlay, set)
    }

    fn of(
        entry: &'static dyn Entry,
        (groups, replicas): (usize, usize),
        overlay: &str,
        set: &[(&str, &str)],
    ) -> Self {
        let mut raw = RawConfig {
            groups,
            replicas,
            clients: 2,
            overlay: overlay.to_string(),
            ..RawConfig::default()
        };
        for (k, v) in [("log_lines", "64"), ("hm_lines", "64"), ("xfer_lines", "32")] {
            raw.set.insert(k.to_string(), v.to_string());
        }
        for (k, v) in set {
            raw.set.insert((*k).to_string(), (*v).to_string());
        }
        let config = raw.check(entry.about().params).unwrap();
        let process = |p| TramProcess::new(entry, &config, p, 0);
        let processes = config.cluster().pids().map(process).collect();
        let mut world = Self {
            entry,
            config,
            now: Time::ZERO,
            processes,
            seq: 0,
            cut: Vec::new(),
            dead: Vec::new(),
            paused: Vec::new(),
            hung: Vec::new(),
            slow: Vec::new(),
            posted: Vec::new(),
            lines: Vec::new(),
        };
        for i in 0..world.processes.len() {
            world.step(i, Input::Start { incarnation: 0 });
        }
        world
    }

    fn step(&mut self, i: usize, input: Input<'_, Memory>) {
        let mut out = Outbox::default();
        let p = &mut self.processes[i];
        p.protocol.step(self.now, RegionWindow(&p.memory), input, &mut out);
        let mut asked = Vec::new();
        out.take(&mut asked);
        for output in asked {
            self.carry_out(i, output, &out);
        }
    }

    fn carry_out(&mut self, i: usize, output: Output<Memory>, out: &Outbox<Memory>) {
        let p = &mut self.processes[i];
        match output {
            Output::Deliver(d) => {
                p.delivered.push((d.msg, out.bytes(d.payload).to_vec()));
                p.positions.push(d.position);
                if !self.hung.contains(&i) {
                    p.inbox.push_back(TramAnswer::Applied(d.position));
                }
            }
            Output::Note(Note::Mark(name)) => p.marks.push(name),
            Output::Note(Note::Malformed(from, what)) => p.malformed.push((from, what)),
            Output::Medium(asked) => self.memory(i, asked),
            Output::Event(ProtocolEvent::NeedsState { position, .. }) => {
                self.give_state(i, position);
            }
            Output::Passed { .. } | Output::Overlay(_) | Output::Event(_) | Output::Note(_) => {}
            Output::Early(_)
            | Output::Persist { .. }
            | Output::Load { .. }
            | Output::Trim { .. } => {
                unreachable!("TRAM persists nothing, and delivers nothing early")
            }
        }
    }

    /// The application gets the state of another replica, up to this position, and has it in force soon.
    fn give_state(&mut self, i: usize, position: u64) {
        let cluster = self.config.cluster();
        let group = cluster.group_of(Pid(i as u32)).expect("a replica needs it");
        let has = |p: &Pid| {
            let other = &self.processes[p.index()];
            let goes_as_far = position == 0 || other.positions.contains(&position);
            p.index() != i && other.up && other.protocol.fit() && goes_as_far
        };
        let source = cluster.members(group).find(has).expect("the replica that offered it has it");
        let source = &self.processes[source.index()];
        let count = source.positions.partition_point(|&at| at <= position);
        let delivered = source.delivered[..count].to_vec();
        let positions = source.positions[..count].to_vec();
        let p = &mut self.processes[i];
        (p.delivered, p.positions) = (delivered, positions);
        p.needs += 1;
        p.state = position;
        if !self.slow.contains(&i) {
            self.install(i);
        }
    }

    /// The state that the application was given last is in force.
    fn install(&mut self, i: usize) {
        let p = &mut self.processes[i];
        p.inbox.push_back(TramAnswer::Installed(p.state, p.needs));
    }

    fn memory(&mut self, i: usize, asked: MemoryOutput) {
        if let MemoryOutput::Write { to, region, at, source, .. } = asked {
            self.posted.push((i, to.index(), region, at));
            self.lines.push(source.count());
        }
        match asked {
            MemoryOutput::Write { to: pid, ticket, .. }
                if self.dead.contains(&(i, pid.index())) =>
            {
                let lost = |ticket| TramAnswer::Done(ticket, TramReply::Lost);
                self.processes[i].inbox.extend(ticket.map(lost));
            }
            MemoryOutput::Read { of, ticket, .. } if self.dead.contains(&(i, of.index())) => {
                self.processes[i].inbox.push_back(TramAnswer::Done(ticket, TramReply::Lost));
            }
            MemoryOutput::Write { to, .. } if self.cut.contains(&(i, to.index())) => {}
            MemoryOutput::Write { to, region, at, source, ticket, .. } => {
                let reply = self.write(i, to.index(), region, at, source);
                if let Some(ticket) = ticket {
                    self.processes[i].inbox.push_back(TramAnswer::Done(ticket, reply));
                }
            }
            MemoryOutput::Read { of, region, at, count, ticket } => {
                let of = &self.processes[of.index()];
                let reply = if of.up {
                    let lines = &of.memory.lines(region)[at as usize..][..count as usize];
                    let raw = |l: &amcast_core::memory::CacheLine| {
                        let w = l.words();
                        [w[0], w[1], w[2], w[3], w[4], w[5], w[6], l.stamp().0]
                    };
                    TramReply::Words(lines.iter().map(raw).collect())
                } else {
                    TramReply::Lost
                };
                self.processes[i].inbox.push_back(TramAnswer::Done(ticket, reply));
            }
            MemoryOutput::Allow(r) => self.processes[i].open[usize::from(r.0)] = true,
            MemoryOutput::Revoke(r) => self.processes[i].open[usize::from(r.0)] = false,
        }
    }

    fn write(
        &self,
        i: usize,
        to: usize,
        region: RegionId,
        at: u32,
        source: WriteSource,
    ) -> TramReply {
        let (from, to) = (&self.processes[i], &self.processes[to]);
        if !to.up {
            return TramReply::Lost;
        }
        if !to.open[usize::from(region.0)] {
            return TramReply::Denied;
        }
        let target = &to.memory.lines(region)[at as usize..][..source.count() as usize];
        match source {
            WriteSource::Copy(lines) => {
                let own = &from.memory.lines(lines.region)[lines.at as usize..];
                target.iter().zip(own).for_each(|(t, s)| t.copy(s, s.stamp()));
            }
            WriteSource::Made { head, stamp, rest } => {
                target[0].put(&head, stamp);
                let own = &from.memory.lines(rest.region)[rest.at as usize..];
                target[1..].iter().zip(own).for_each(|(t, s)| t.copy(s, stamp));
            }
        }
        TramReply::Written
    }

    fn answer(&mut self, i: usize, answer: TramAnswer) {
        match answer {
            TramAnswer::Done(t, TramReply::Words(w)) => {
                self.step(i, Input::Medium(MemoryInput::Done(t, AccessOutcome::Words(&w))));
            }
            TramAnswer::Done(t, reply) => {
                let outcome = match reply {
                    TramReply::Written => AccessOutcome::Written,
                    TramReply::Denied => AccessOutcome::Denied,
                    _ => AccessOutcome::Lost,
                };
                self.step(i, Input::Medium(MemoryInput::Done(t, outcome)));
            }
            TramAnswer::Fresh(pid, incarnation) => {
                self.step(i, Input::Medium(MemoryInput::Fresh { pid, incarnation }));
            }
            TramAnswer::Applied(p) => self.step(i, Input::Applied(p)),
            TramAnswer::Installed(position, needs) => {
                self.step(i, Input::Installed { position, needs });
            }
        }
    }

    /// Polls every process in turn, `rounds` times, 100 us apart.
    fn run(&mut self, rounds: usize) {
        for _ in 0..rounds {
            self.now += Span::micros(100);
            for i in 0..self.processes.len() {
                if !self.processes[i].up || self.paused.contains(&i) {
                    continue;
                }
                while let Some(answer) = self.processes[i].inbox.pop_front() {
                    self.answer(i, answer);
                }
                self.step(i, Input::Medium(MemoryInput::Poll));
            }
        }
    }

    /// Client 0 multicasts; false if it is held back.
    fn cast(&mut self, dst: &[u8], payload: &[u8]) -> bool {
        let client = self.config.cluster().client(0).index();
        let dst: GroupSet = dst.iter().map(|&g| Gid(g)).collect();
        if self.processes[client].protocol.room(dst, payload.len()) == 0 {
            return false;
        }
        self.seq += 1;
        self.step(client, Input::Submit(Submission { seq: self.seq, dst, payload }));
        true
    }

    fn crash(&mut self, p: Pid) {
        self.processes[p.index()].up = false;
    }

    fn restart(&mut self, p: Pid) {
        let incarnation = self.processes[p.index()].incarnation + 1;
        self.processes[p.index()] = TramProcess::new(self.entry, &self.config, p, incarnation);
        for other in &mut self.processes {
            other.inbox.push_back(TramAnswer::Fresh(p, incarnation));
        }
        self.processes[p.index()].inbox.clear();
        self.step(p.index(), Input::Start { incarnation });
    }

    fn seqs(&self, p: Pid) -> Vec<u64> {
        self.processes[p.index()].delivered.iter().map(|(m, _)| m.seq).collect()
    }

    fn replica(&self, g: u8, r: usize) -> Pid {
        self.config.cluster().replica(Gid(g), r)
    }

    fn leader(&self, g: u8) -> Option<Pid> {
        let leads = |p: &Pid| {
            let process = &self.processes[p.index()];
            process.up && process.protocol.status().leader == Some(*p)
        };
        self.config.cluster().members(Gid(g)).find(leads)
    }
}

impl TramProcess {
    fn new(entry: &dyn Entry, config: &Config, p: Pid, incarnation: u32) -> Self {
        let ProtocolProcess::Memory(protocol, regions) = entry.build(p, config).unwrap() else {
            unreachable!("TRAM is on memory")
        };
        Self {
            protocol,
            memory: TestMemory { heap: HeapRegions::new(&regions), meddles: None },
            open: regions.iter().map(|r| !r.guarded).collect(),
            inbox: VecDeque::new(),
            delivered: Vec::new(),
            positions: Vec::new(),
            marks: Vec::new(),
            malformed: Vec::new(),
            up: true,
            incarnation,
            needs: 0,
            state: 0,
        }
    }
}

#[test]
fn a_message_is_delivered_by_every_replica_of_its_destinations_the_last_one_too() {
    let mut w = TramWorld::new(3, 3, "breadth", &[]);
    w.run(50);
    for dst in [&[0][..], &[1], &[0, 1], &[1, 2], &[0, 1, 2]] {
        assert!(w.cast(dst, b"payload"));
    }
    w.run(50);
    for r in 0..3 {
        assert_eq!(w.seqs(w.replica(0, r)), [1, 3, 5]);
        assert_eq!(w.seqs(w.replica(1, r)), [2, 3, 4, 5]);
        assert_eq!(w.seqs(w.replica(2, r)), [4, 5]);
    }
    assert!(w.processes[0].delivered.iter().all(|(_, p)| p == b"payload"));
}

#[test]
fn leaders_are_spread_over_the_ranks() {
    let mut w = TramWorld::new(3, 3, "depth", &[]);
    w.run(50);
    for g in 0..3 {
        assert_eq!(w.leader(g), Some(w.replica(g, usize::from(g))));
    }
}

#[test]
fn rings_go_round_many_times_with_every_payload_size() {
    let mut w = TramWorld::new(2, 3, "breadth", &[]);
    let max = w.processes[w.config.cluster().client(0).index()].protocol.payload_max();
    w.run(50);
    let mut sent = 0;
    for round in 0..400_usize {
        let size = round * 13 % (max + 1);
        let payload: Vec<u8> = (0..size).map(|i| (i ^ round) as u8).collect();
        let dst: &[u8] = if round % 3 == 0 { &[0, 1] } else { &[1] };
        while !w.cast(dst, &payload) {
            w.run(1);
        }
        sent += 1;
    }
    w.run(100);
    for r in 0..3 {
        let p = &w.processes[w.replica(1, r).index()];
        assert_eq!(p.delivered.len(), sent);
        for (m, payload) in &p.delivered {
            let round = m.seq as usize - 1;
            assert_eq!(payload.len(), round * 13 % (max + 1));
            assert!(payload.iter().enumerate().all(|(i, &b)| b == (i ^ round) as u8));
        }
    }
}

#[test]
fn a_crashed_leader_is_replaced_and_nothing_is_lost_or_doubled() {
    let mut w = TramWorld::new(3, 3, "depth", &[]);
    w.run(50);
    for i in 0..60 {
        let dst: &[u8] = if i % 2 == 0 { &[0, 2] } else { &[0, 1, 2] };
        while !w.cast(dst, &[7; 40]) {
            w.run(1);
        }
        if i == 20 {
            w.run(1);
            let leader = w.leader(0).unwrap();
            w.crash(leader);
        }
        if i == 40 {
            w.run(3);
            let leader = w.leader(1).unwrap();
            w.crash(leader);
        }
    }
    w.run(3000);
    let expected: Vec<u64> = (1..=60).collect();
    for p in (0..9).filter(|&p| w.processes[p].up) {
        let seqs = w.seqs(Pid(p as u32));
        if p / 3 == 1 {
            assert_eq!(seqs.len(), 30, "{p}");
        } else {
            assert_eq!(seqs, expected, "{p}");
        }
    }
}

#[test]
fn a_restarted_replica_gets_its_state_and_can_lead_again() {
    let mut w = TramWorld::new(2, 3, "depth", &[]);
    w.run(50);
    let mut sent = 0;
    let mut cast = |w: &mut TramWorld, n: usize| {
        for _ in 0..n {
            while !w.cast(&[0, 1], &[3; 100]) {
                w.run(1);
            }
            sent += 1;
        }
        w.run(20);
        sent
    };
    for round in 0..3 {
        let victim = w.leader(0).unwrap();
        w.crash(victim);
        cast(&mut w, 40);
        w.run(2000);
        w.restart(victim);
        w.run(3000);
        let sent = cast(&mut w, 10);
        for r in 0..3 {
            let p = w.replica(0, r);
            assert!(w.processes[p.index()].protocol.fit(), "round {round}: {r}");
            assert_eq!(w.seqs(p), (1..=sent).collect::<Vec<u64>>(), "round {round}: {r}");
        }
        assert_eq!(w.leader(0), Some(victim), "the preferred leader leads again");
    }
}

#[test]
fn a_suspected_follower_does_not_stall_the_ring_and_comes_back() {
    let mut w = TramWorld::new(1, 3, "breadth", &[]);
    w.run(50);
    let slow = w.replica(0, 2);
    w.processes[slow.index()].up = false; // Its memory is lost to the others, as over a cut link.
    let mut held = false;
    for _ in 0..100 {
        while !w.cast(&[0], &[1; 100]) {
            held = true;
            w.run(1);
        }
    }
    w.run(1000);
    assert!(held, "a full ring holds the client back");
    assert_eq!(w.seqs(w.replica(0, 1)).len(), 100);
    w.processes[slow.index()].up = true;
    w.run(2000);
    assert!(w.processes[slow.index()].marks.contains(&"tram-left-behind"));
    assert_eq!(w.seqs(slow), w.seqs(w.replica(0, 0)));
    let marks: Vec<String> = w.processes[0].marks.iter().map(ToString::to_string).collect();
    assert!(marks.iter().any(|m| m == "tram-leaves-behind"), "{marks:?}");
}

#[test]
fn a_client_that_was_woken_too_soon_to_look_looks_before_it_sleeps() {
    let mut w = TramWorld::new(1, 1, "breadth", &[]);
    w.run(100);
    assert!(w.cast(&[0], &[1]));
    let client = w.config.cluster().client(0).index();
    w.now += Span::micros(10);
    w.step(client, Input::Medium(MemoryInput::Poll));
    assert_eq!(w.processes[client].protocol.deadline(), None, "it has looked");
    w.step(client, Input::Medium(MemoryInput::Poll));
    let (at, _) = w.processes[client].protocol.deadline().expect("it has not");
    assert!(w.now < at && at <= w.now + Span::micros(2));
    w.now = at;
    w.step(client, Input::Wake);
    assert_eq!(w.processes[client].protocol.deadline(), None);
}

#[test]
fn too_large_a_payload_has_no_room() {
    let w = TramWorld::new(1, 1, "breadth", &[]);
    let client = &w.processes[w.config.cluster().client(0).index()].protocol;
    let max = client.payload_max();
    assert!(client.room(GroupSet(1), max) > 0);
    assert_eq!(client.room(GroupSet(1), max + 1), 0);
    assert_eq!(client.room(GroupSet::EMPTY, 0), 0);
}

#[test]
fn a_candidate_starts_over_when_a_member_of_its_quorum_loses_its_memory() {
    let mut w = TramWorld::new(1, 3, "breadth", &[]);
    w.run(50);
    assert!(w.cast(&[0], b"one"));
    w.run(20);
    w.crash(w.replica(0, 0));
    let answered = |a: &TramAnswer| matches!(a, TramAnswer::Done(_, TramReply::Words(_)));
    for _ in 0..2000 {
        w.run(1);
        if w.processes[1].inbox.iter().any(answered) {
            break;
        }
    }
    let other = w.replica(0, 2);
    w.processes[1].inbox.push_front(TramAnswer::Fresh(other, 1));
    w.run(1);
    assert!(w.processes[1].marks.contains(&"tram-quorum-member-restarted"));
    assert_eq!(w.leader(0), None, "the answer of a former life makes no leader");
}

#[test]
fn a_candidate_starts_over_when_a_log_moves_on_while_it_is_read() {
    let mut w = TramWorld::new(1, 3, "breadth", &[]);
    w.run(50);
    assert!(w.cast(&[0], b"one"));
    w.run(200);
    w.crash(w.replica(0, 0));
    let words_of = |a: &TramAnswer| match a {
        TramAnswer::Done(_, TramReply::Words(lines)) => lines.len(),
        _ => 0,
    };
    while !w.processes[1].inbox.iter().any(|a| words_of(a) > 0) {
        w.run(1);
    }
    let log = super::layout::Layout::new(&w.config).unwrap().log(0, 0).region;
    while let Some(answer) = w.processes[1].inbox.pop_front() {
        if words_of(&answer) > 1 {
            // Its source is in flight; a denied write of the former leader comes through.
            let control =
                &w.processes[2].memory.heap.lines(log)[super::log_region::CONTROL as usize];
            let mut words = control.words();
            words[1] += 1;
            control.put(&words, control.stamp());
        }
        w.answer(1, answer);
    }
    assert!(w.processes[1].marks.contains(&"tram-log-moved-on"));
    assert_eq!(w.leader(0), None);
}

#[test]
fn a_state_that_the_log_has_moved_past_is_asked_for_again() {
    let fast = [("heartbeat_us", "500"), ("suspect_us", "2000")];
    let mut w = TramWorld::new(1, 5, "breadth", &fast);
    w.run(50);
    for _ in 0..400 {
        while !w.cast(&[0], &[5; 100]) {
            w.run(1);
        }
    }
    w.crash(w.replica(0, 2));
    w.run(200);
    // The source's row does not reach the leader, which therefore does not wait for it.
    w.cut.push((4, 0));
    w.restart(w.replica(0, 2));
    let head = super::layout::Layout::new(&w.config).unwrap().xfer(4).region;
    let is_head =
        |&(from, to, region, _): &(usize, usize, RegionId, u32)| (from, to, region) == (4, 2, head);
    while !w.posted.iter().any(is_head) {
        w.run(1);
    }
    // The reader is slow to read the head, but not so slow that it would ask again.
    w.paused.push(2);
    for _ in 0..60 {
        w.cast(&[0], &[6; 100]);
        w.run(1);
    }
    w.paused.clear();
    for _ in 0..1000 {
        w.cast(&[0], &[6; 100]);
        w.run(1);
    }
    assert!(w.processes[2].marks.contains(&"tram-state-too-old"));
    w.cut.clear();
    w.run(3000);
    assert!(w.processes[2].protocol.fit());
    assert_eq!(w.seqs(w.replica(0, 2)), w.seqs(w.replica(0, 0)));
}

#[test]
fn a_replica_whose_child_is_behind_the_tail_gets_its_state_anew() {
    let mut w = TramWorld::new(2, 3, "breadth", &[]);
    w.run(50);
    // The child's takeover position does not reach rank 1, nor its heartbeat the leader.
    w.cut.extend([(3, 1), (4, 1), (5, 1), (1, 0)]);
    for i in 0..4 {
        assert!(w.cast(&[0, 1], &[i; 20]));
        w.run(30);
    }
    for i in 0..200 {
        w.cast(&[0], &[i; 20]);
        w.run(30);
    }
    w.cut.clear();
    w.run(3000);
    w.crash(w.replica(0, 0));
    w.run(3000);
    let before = w.seqs(w.replica(1, 0)).len();
    for i in 0..20 {
        assert!(w.cast(&[0, 1], &[i; 20]));
        w.run(100);
    }
    w.run(3000);
    assert_eq!(w.seqs(w.replica(1, 0)).len(), before + 20);
}

/// The groups at whose replicas client 0 has something in its buffer, once it sent a message to `dst`.
fn written_by_a_client(dst: &[u8], set: &[(&str, &str)]) -> Vec<u8> {
    let mut w = TramWorld::new(8, 3, "base", set);
    assert!(w.cast(dst, b"where"));
    let client = w.config.cluster().client(0).index();
    w.step(client, Input::Medium(MemoryInput::Poll));
    let hm = super::layout::Layout::new(&w.config).unwrap().hm_client(0);
    let has = |p: Pid| {
        let first = &w.processes[p.index()].memory.heap.lines(hm.region)[hm.at(0) as usize];
        first.stamp() != LineStamp::default()
    };
    let whole = |g: &u8| {
        let written = w.config.cluster().members(Gid(*g)).filter(|p| has(*p)).count();
        assert!(written == 0 || written == 3, "{written} replicas of group {g}");
        written > 0
    };
    (0..8).filter(whole).collect()
}

/// Sets of destinations in the tree `base`, and the lowest group that reaches them: the parents are
/// -1, 0, 1, 1, 2, 2, 3, 3.
const LOWEST: [(&[u8], u8); 6] =
    [(&[5], 5), (&[4, 5], 2), (&[4, 7], 1), (&[2, 4], 2), (&[6, 7], 3), (&[0, 6], 0)];

#[test]
fn a_client_writes_to_the_lowest_group_that_reaches_all_destinations_and_to_no_other() {
    for (dst, lowest) in LOWEST {
        assert_eq!(written_by_a_client(dst, &[]), [lowest], "{dst:?}");
    }
}

#[cfg(feature = "mutants")]
#[test]
fn a_client_that_picks_another_group_than_the_lowest_is_noticed() {
    for mutant in ["sends-to-root", "sends-too-high", "sends-to-each"] {
        let other = |(dst, lowest): &(&[u8], u8)| {
            written_by_a_client(dst, &[("mutant", mutant)]) != [*lowest]
        };
        assert!(LOWEST.iter().any(other), "{mutant}");
    }
}

/// The leader dies with an entry in the logs that nobody knows to be decided; the messages that a survivor of
/// its group has delivered once another one leads.
fn taken_over(set: &[(&str, &str)]) -> Vec<u64> {
    let mut w = TramWorld::new(1, 3, "breadth", set);
    w.run(50);
    assert!(w.cast(&[0], b"first"));
    w.run(50);
    assert!(w.cast(&[0], b"second"));
    let client = w.config.cluster().client(0).index();
    w.step(client, Input::Medium(MemoryInput::Poll));
    // It writes the message to all logs, and dies before it hears that they have it.
    w.step(0, Input::Medium(MemoryInput::Poll));
    w.crash(w.replica(0, 0));
    w.run(3000);
    assert_eq!(w.seqs(w.replica(0, 2)), w.seqs(w.replica(0, 1)));
    w.seqs(w.replica(0, 1))
}

#[test]
fn a_new_leader_does_not_take_up_again_what_the_adopted_log_has() {
    assert_eq!(taken_over(&[]), [1, 2]);
}

#[cfg(feature = "mutants")]
#[test]
fn a_new_leader_that_does_not_rebuild_its_cursors_is_noticed() {
    assert_eq!(taken_over(&[("mutant", "forgets-cursors")]), [1, 2, 2]);
}

/// The epochs under which the leaders of a group follow each other: the first dies and comes back.
fn epochs_of_leaders(set: &[(&str, &str)]) -> Vec<u64> {
    let mut w = TramWorld::new(1, 3, "breadth", set);
    let mut epochs = Vec::new();
    for step in 0..4 {
        match step {
            1 => w.crash(w.replica(0, 0)),
            2 => w.restart(w.replica(0, 0)),
            3 => assert!(w.cast(&[0], b"after")),
            _ => {}
        }
        w.run(3000);
        let Some(leader) = w.leader(0) else { continue };
        epochs.push(w.processes[leader.index()].protocol.status().epoch);
    }
    epochs
}

#[test]
fn a_candidate_asks_with_an_epoch_higher_than_all_it_has_seen() {
    let epochs = epochs_of_leaders(&[]);
    assert!(epochs.len() == 4 && epochs[0] < epochs[1] && epochs[1] < epochs[2], "{epochs:?}");
}

#[cfg(feature = "mutants")]
#[test]
fn a_candidate_that_asks_with_an_epoch_that_others_have_seen_is_noticed() {
    let epochs = epochs_of_leaders(&[("mutant", "asks-with-its-first")]);
    let grows = epochs.len() == 4 && epochs[0] < epochs[1] && epochs[1] < epochs[2];
    assert!(!grows, "{epochs:?}");
}

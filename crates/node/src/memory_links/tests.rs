//! The suite of the medium over real connections: processes on nodes of their own, whose rounds this thread runs.

use super::*;
use amcast_core::memory::{
    AccessOutcome, LINE_WORDS, LineRange, LineStamp, MemoryInput, MemoryOutput, RegionId,
    RegionSpec, RegionWindow, WriteSource,
};
use amcast_core::step::Ticket;
use amcast_memory::conformance::{MemoryEvent, MemoryFabric, SUITE, shape};
use amcast_memory::{ClusterId, MappedCarrier, StartOptions};
use std::sync::atomic::AtomicU64;

/// How long a connection may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// A host with one process.
struct TcpHost {
    directory: Directory,
    lives: u32,
    /// While it lives.
    life: Option<(LinksLoop, MappedCarrier)>,
}

struct TcpHosts {
    ports: Vec<SocketAddr>,
    hosts: Vec<TcpHost>,
    /// How frames travel between them.
    by: HostCarrier,
}

impl TcpHosts {
    fn new(by: &HostCarrier) -> Self {
        let count = shape().len();
        let ports = crate::ports::free(count, &[]).expect("there are ports");
        let ports = ports.into_iter().map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        let host = |_| TcpHost {
            directory: Directory::heap(ClusterId(1), count as u32, 0).expect("made"),
            lives: 0,
            life: None,
        };
        let hosts = (0..count).map(host).collect();
        let mut fabric = Self { ports: ports.collect(), hosts, by: by.clone() };
        (0..count).for_each(|pid| fabric.start(Pid(pid as u32)));
        while fabric.advance() {}
        fabric
    }

    fn carrier(&mut self, pid: Pid) -> &mut MappedCarrier {
        &mut self.hosts[pid.index()].life.as_mut().expect("it lives").1
    }

    /// A round of each node; whether any had work.
    fn round(&mut self) -> bool {
        let lives = self.hosts.iter_mut().filter_map(|host| host.life.as_mut());
        lives.fold(false, |busy, (links, _)| links.round() | busy)
    }

    /// Whether all connections stand, and nothing waits to be answered.
    fn is_quiet(&self) -> bool {
        let alive: Vec<usize> =
            (0..self.hosts.len()).filter(|&n| self.hosts[n].life.is_some()).collect();
        alive.iter().all(|&one| {
            let remote =
                self.hosts[one].life.as_ref().and_then(|(links, _)| links.directory.remote());
            let remote = remote.expect("it has a way to others");
            let mut others = alive.iter().filter(|&&other| other != one);
            others.all(|&other| remote.is_open(other) && remote.backlog(other) == 0)
        })
    }
}

impl MemoryFabric for TcpHosts {
    fn post(&mut self, from: Pid, outs: &[MemoryOutput]) {
        self.carrier(from).post(outs);
    }

    fn advance(&mut self) -> bool {
        let begun = Instant::now();
        loop {
            if self.round() {
                return true;
            }
            // Bytes for a process of this machine are there at once; a last look takes them in.
            if self.is_quiet() {
                return self.round();
            }
            assert!(begun.elapsed() < PATIENCE, "the connections do not come to rest");
            std::thread::sleep(Duration::from_micros(200));
        }
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
        let (links, carrier) = self.hosts[pid.index()].life.take().expect("it lives");
        // The system closes what the process had.
        drop(links);
        carrier.crash();
        // The others learn of it before they do anything else, as the suite's clocks have it.
        let begun = Instant::now();
        let open = |host: &TcpHost| {
            let remote = host.life.as_ref().and_then(|(links, _)| links.directory.remote());
            remote.is_some_and(|remote| remote.is_open(pid.index()))
        };
        while self.hosts.iter().any(open) {
            assert!(begun.elapsed() < PATIENCE, "a connection outlasts its process");
            self.round();
        }
    }

    fn start(&mut self, pid: Pid) {
        let (here, count) = (pid.index(), self.hosts.len());
        let host = &mut self.hosts[here];
        let life = host.lives;
        host.lives += 1;
        let map = RemoteMap {
            here,
            nodes: count,
            node_of: (0..count).collect(),
            near: vec![here],
            places: Vec::new(),
            first_incarnation: life,
        };
        let start = u64::from(life) << 8 | (here as u64 + 1);
        let remote = RemoteMemory::new(map, start);
        let directory = host.directory.clone().with_remote(remote);
        let peer = |&at: &SocketAddr| PeerConfig { tcp: at, udp: at, groups: GroupSet::EMPTY };
        let peers: Vec<PeerConfig> = self.ports.iter().map(peer).collect();
        let options =
            options((7, Default::default()), count as u32, &PeerRegistry::fleeting(count));
        let options = NetOptions { start, ..options };
        let carrier = Carrier::start(pid, life, &peers, &options).expect("its port is free");
        let registry = PeerRegistry::fleeting(count);
        let mut links = LinksLoop::new(directory.clone(), carrier, registry, here);
        links.lanes = self.by.lanes(count, self.ports[here].ip()).expect("this host has it");
        let started = directory.start(pid, &shape()[here], StartOptions::default());
        host.life = Some((links, started.expect("started")));
    }

    fn stops_writes(&self) -> bool {
        true
    }
}

fn keep_the_laws(by: &HostCarrier) {
    for (law, test) in SUITE {
        println!("{by:?}: {law}");
        test(&mut || Box::new(TcpHosts::new(by)));
    }
}

#[test]
fn carriers_with_connections_between_them_keep_the_laws() {
    let _limit = amcast_test_policy::time_limit();
    keep_the_laws(&HostCarrier::Tcp);
}

/// Remote memory access by the provider that every host with libfabric has.
#[cfg(feature = "rdma")]
fn rdma() -> HostCarrier {
    HostCarrier::Rdma { provider: "tcp".to_string() }
}

#[cfg(feature = "rdma")]
#[test]
fn carriers_with_remote_memory_access_between_them_keep_the_laws() {
    let _limit = amcast_test_policy::time_limit();
    keep_the_laws(&rdma());
}

/// Has node 1 begin again with lanes like those of a cluster of so many nodes.
#[cfg(feature = "rdma")]
fn change_lanes(hosts: &mut TcpHosts, nodes: usize) {
    let (by, ip) = (hosts.by.clone(), hosts.ports[1].ip());
    let (links, _) = hosts.hosts[1].life.as_mut().expect("it lives");
    let own = links.rank;
    links.lanes = by.lanes(nodes, ip).expect("this host has it");
    let others = (0..links.registry.known.len()).filter(|&other| other != own);
    others.for_each(|other| links.carrier.hang_up(Pid(other as u32)));
}

#[cfg(feature = "rdma")]
#[test]
fn a_node_with_another_landing_buffer_is_told_and_tried_seldom_until_it_has_the_right_one() {
    let _limit = amcast_test_policy::time_limit();
    let mut hosts = TcpHosts::new(&rdma());
    let links = |hosts: &TcpHosts, node: usize| {
        let (links, _) = hosts.hosts[node].life.as_ref().expect("it lives");
        let fault = links.shared.state().peers.get(1 - node).and_then(|it| it.memory_fault.clone());
        (links.carrier.counts().connects, fault)
    };
    let work = |hosts: &mut TcpHosts| {
        hosts.round();
        for (links, _) in hosts.hosts.iter_mut().filter_map(|host| host.life.as_mut()) {
            links.look_at_lanes(Instant::now());
            links.publish();
        }
    };
    assert_eq!(links(&hosts, 0).1, None);
    change_lanes(&mut hosts, 100);
    let (begun, before) = (Instant::now(), links(&hosts, 0).0);
    while begun.elapsed() < Duration::from_millis(1_500) {
        work(&mut hosts);
        std::thread::sleep(Duration::from_millis(1));
    }
    let (connects, fault) = links(&hosts, 0);
    let others = hosts.hosts.len() as u64 - 1;
    let tried = connects - before;
    assert!((1..=8 * others).contains(&tried), "it was connected {tried} times");
    let faults = [fault, links(&hosts, 1).1];
    // The one that finds it ends the connection, and the other one need not have looked by then.
    let told: Vec<_> = faults.iter().flatten().collect();
    assert!(told.iter().any(|why| why.contains("landing buffer has")), "{faults:?}");
    let count = hosts.hosts.len();
    change_lanes(&mut hosts, count);
    let begun = Instant::now();
    while !hosts.is_quiet() || [0, 1].iter().any(|&node| links(&hosts, node).1.is_some()) {
        work(&mut hosts);
        std::thread::sleep(Duration::from_millis(1));
        assert!(begun.elapsed() < PATIENCE, "the two do not find each other again");
    }
}

#[cfg(not(feature = "rdma"))]
#[test]
fn a_program_without_remote_memory_access_says_how_to_get_it() {
    let _limit = amcast_test_policy::time_limit();
    let by = HostCarrier::Rdma { provider: "tcp".to_string() };
    let here = std::net::IpAddr::from([127, 0, 0, 1]);
    let why = by.lanes(2, here).err().expect("it has none");
    assert!(why.contains("--features rdma") && why.contains("libfabric-dev"), "{why}");
}

/// A process on one host, and its writer on another one.
const OWNER: Pid = Pid(0);
const WRITER: Pid = Pid(1);

impl TcpHosts {
    /// The writer writes a line with this number, which is its ticket and its stamp, too.
    fn write(&mut self, number: u64) {
        self.post(
            WRITER,
            &[MemoryOutput::Write {
                to: OWNER,
                region: RegionId(0),
                at: 0,
                source: WriteSource::line([number; LINE_WORDS], LineStamp(number)),
                ticket: Some(Ticket(number)),
                bell: false,
            }],
        );
    }

    /// The highest number that landed.
    fn landed(&self) -> Option<u64> {
        self.window(OWNER).region(RegionId(0)).iter().map(|line| line.stamp().0).max()
    }

    /// The writer's node does a round, and looks until this time whether others are silent, as often as its thread does. The
    /// others do none.
    fn look_for_silence(&mut self, now: Instant) {
        let (links, _) = self.hosts[WRITER.index()].life.as_mut().expect("it lives");
        links.round();
        let mut at = links.silences.looked.unwrap_or(now);
        while at < now {
            links.end_stalled(at);
            at += PUBLISH_EVERY;
        }
        links.end_stalled(now);
    }

    /// Whether the writer's node is connected to that of the owner.
    fn is_open(&self) -> bool {
        let (links, _) = self.hosts[WRITER.index()].life.as_ref().expect("it lives");
        links.directory.remote().expect("it has a way to others").is_open(OWNER.index())
    }
}

#[test]
fn a_node_that_is_stopped_is_waited_for_no_longer_and_misses_nothing_when_it_runs_again() {
    let _limit = amcast_test_policy::time_limit();
    let mut hosts = TcpHosts::new(&HostCarrier::Tcp);
    let a_bit = Duration::from_millis(1);
    let (begun, silence) = (Instant::now(), Duration::from_nanos(silence(None).0));
    hosts.write(1);
    // The system of the owner takes what comes, and no round of its node runs. The millisecond is for the bytes on the network.
    for at in [begun, begun + silence] {
        hosts.look_for_silence(at);
        assert_eq!(hosts.heard(WRITER), [], "its answer may come yet");
    }
    hosts.write(2);
    hosts.look_for_silence(begun + silence + a_bit);
    let lost = |numbers: &[u64]| -> Vec<MemoryEvent> {
        numbers.iter().map(|&number| MemoryEvent::Lost(Ticket(number))).collect()
    };
    assert_eq!(hosts.heard(WRITER), lost(&[1, 2]), "it is silent");
    hosts.write(3);
    assert_eq!(hosts.heard(WRITER), lost(&[3]), "nobody waits for its answer");
    hosts.look_for_silence(begun + STALLED_AFTER - a_bit);
    assert!(hosts.is_open());
    hosts.look_for_silence(begun + STALLED_AFTER);
    assert!(!hosts.is_open(), "its connection is ended");
    assert_eq!((hosts.landed(), hosts.heard(WRITER)), (Some(0), vec![]));
    while hosts.advance() {}
    assert_eq!((hosts.landed(), hosts.heard(WRITER)), (Some(3), vec![]), "all is sent again");
}

#[test]
fn a_node_that_was_stopped_itself_reads_what_came_before_it_takes_others_for_silent() {
    let _limit = amcast_test_policy::time_limit();
    let mut hosts = TcpHosts::new(&HostCarrier::Tcp);
    let begun = Instant::now();
    hosts.write(1);
    hosts.look_for_silence(begun);
    // It continues between a round and its look.
    let (links, _) = hosts.hosts[WRITER.index()].life.as_mut().expect("it lives");
    links.end_stalled(begun + 2 * STALLED_AFTER);
    assert!(hosts.is_open() && hosts.heard(WRITER).is_empty());
    while hosts.advance() {}
    assert_eq!(hosts.heard(WRITER), [MemoryEvent::Written(Ticket(1))]);
}

#[test]
fn a_node_that_runs_again_soon_has_all_writes_of_its_pause_on_the_same_connection() {
    let _limit = amcast_test_policy::time_limit();
    let mut hosts = TcpHosts::new(&HostCarrier::Tcp);
    let begun = Instant::now();
    hosts.write(1);
    hosts.look_for_silence(begun);
    hosts.look_for_silence(begun + STALLED_AFTER / 2);
    hosts.write(2);
    hosts.look_for_silence(begun + STALLED_AFTER / 2);
    let lost = [1, 2].map(|number| MemoryEvent::Lost(Ticket(number)));
    assert_eq!((hosts.landed(), hosts.heard(WRITER)), (Some(0), lost.to_vec()));
    while hosts.advance() {}
    assert_eq!((hosts.landed(), hosts.heard(WRITER)), (Some(2), vec![]), "answered once each");
    hosts.write(3);
    while hosts.advance() {}
    let written = vec![MemoryEvent::Written(Ticket(3))];
    assert_eq!((hosts.landed(), hosts.heard(WRITER)), (Some(3), written));
    let (links, _) = hosts.hosts[WRITER.index()].life.as_ref().expect("it lives");
    assert_eq!(links.carrier.counts().breaks, 0);
}

#[test]
fn a_process_that_is_stopped_with_the_lock_of_the_directory_does_not_stop_the_thread() {
    let _limit = amcast_test_policy::time_limit();
    let base = std::env::temp_dir().join(format!("amcast-stopped-lock-{}", std::process::id()));
    std::fs::create_dir_all(&base).expect("a directory can be made");
    let directory = Directory::open(&base, ClusterId(1), 2, 0).expect("made");
    // As such a process has it: nobody gives it back.
    let lock = std::fs::File::open(base.join(format!("amcast-{:016x}", 1))).expect("it is there");
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).expect("it is free");
    let (node_of, near) = (vec![0, 1], vec![0, 1]);
    let map = RemoteMap { here: 0, nodes: 2, node_of, near, places: vec![], first_incarnation: 0 };
    let ports = crate::ports::free(2, &[]).expect("there are ports");
    let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
    let addresses: Vec<SocketAddr> = ports.into_iter().map(at).collect();
    let started = MemoryLinks::between(directory, (map, 1), 1, &addresses, &HostCarrier::Tcp);
    let (_directory, links) = started.expect("it has its port");
    // It has looked for processes that died by then.
    std::thread::sleep(2 * PUBLISH_EVERY);
    let (tell, told) = std::sync::mpsc::sync_channel(1);
    std::thread::spawn(move || {
        drop(links);
        // The other end is gone where the test has failed.
        let _ = tell.send(());
    });
    told.recv_timeout(PATIENCE).expect("the thread serves, and ends when it is asked to");
    std::fs::remove_dir_all(&base).expect("it is ours");
}

#[test]
fn a_connection_may_be_silent_for_twice_as_long_as_a_process_within_bounds() {
    let _limit = amcast_test_policy::time_limit();
    assert_eq!(silence(None), Span::millis(500));
    let of = |millis| silence(Some(Span::millis(millis)));
    assert_eq!([of(50), of(300), of(60_000)], [500, 600, 5_000].map(Span::millis));
}

#[test]
fn processes_are_where_their_nodes_are_and_client_places_are_dealt_in_turn() {
    let _limit = amcast_test_policy::time_limit();
    let cluster = ClusterShape::new(2, 3, 4).unwrap();
    let place = |ip: u8| HostPlacement::at(SocketAddr::from(([10, 0, 0, ip], 7400)));
    let at = |here, ips: [u8; 3]| map(cluster, &ips.map(place), (here, 5));
    let map = at(2, [1, 1, 3]);
    for group in cluster.all_groups().iter() {
        for rank in 0..3 {
            assert_eq!(map.node_of[cluster.replica(group, rank).index()], rank);
        }
    }
    let layout = ReplyRingLayout(cluster);
    for client in 0..4 {
        assert_eq!(map.node_of[cluster.client(client).index()], client % 3);
        assert_eq!(map.node_of[layout.replies(client).index()], client % 3);
    }
    assert_eq!(map.node_of[layout.reply_rings(1).index()], 1);
    assert_eq!((map.near, map.places), (vec![2], vec![0, 1, 2, 0]));
    assert_eq!(at(0, [1, 1, 3]).near, [0, 1], "nodes of one host share its memory");
}

#[test]
fn a_node_beside_which_others_come_and_go_does_not_begin_anew() {
    let _limit = amcast_test_policy::time_limit();
    let ports = crate::ports::free(2, &[]).expect("there are ports");
    let at = |ip, port| SocketAddr::from(([127, 0, 0, ip], port));
    let places = |ip| [at(1, ports[0]), at(ip, ports[1])].map(HostPlacement::at);
    let (node_of, near) = (vec![0, 1], vec![0, 1]);
    let map = RemoteMap { here: 0, nodes: 2, node_of, near, places: vec![], first_incarnation: 0 };
    let directory = Directory::heap(ClusterId(1), 2, 0).expect("made");
    let beside = directory.start(Pid(1), &[], StartOptions::default()).expect("it is small");
    let addresses = places(1).map(|place| place.address);
    let started = MemoryLinks::between(directory, (map, 1), 1, &addresses, &HostCarrier::Tcp);
    let (directory, mut links) = started.expect("it has its port");
    let shares = || directory.remote().expect("it has a way to others").shares_with(1);
    let wait = || std::thread::sleep(4 * PUBLISH_EVERY);
    // The cluster has it elsewhere, and it is here still.
    links.move_to(&places(2));
    wait();
    assert!(shares() && links.must_begin_anew().is_none());
    beside.stop().expect("it can be stopped");
    let begun = Instant::now();
    while shares() {
        assert!(begun.elapsed() < PATIENCE, "it is reached over its connection now");
        wait();
    }
    links.move_to(&places(1));
    wait();
    assert!(!shares() && links.must_begin_anew().is_none(), "its next start shares the memory");
}

/// A writer of a region on another host, which writes all of it as fast as it is answered until it is to stop. Each write
/// has the next number. It takes the agent a while to store so many lines, so that revocations come in the middle.
fn write_on(mut writer: MappedCarrier, written: &AtomicU64, stop: &AtomicBool) {
    let (mut next, mut answered) = (1, 0);
    while !stop.load(Ordering::Relaxed) {
        if next - answered <= WINDOW {
            writer.post(&[MemoryOutput::Write {
                to: Pid(0),
                region: RegionId(0),
                at: 0,
                source: WriteSource::Made {
                    head: [next; LINE_WORDS],
                    stamp: LineStamp(next),
                    rest: LineRange { region: RegionId(0), at: 0, count: LINES - 1 },
                },
                ticket: Some(Ticket(next)),
                bell: false,
            }]);
            next += 1;
        }
        writer.begin_round();
        while let Some((_, input)) = writer.next_input() {
            let MemoryInput::Done(Ticket(number), outcome) = input else { continue };
            answered = number;
            if outcome == AccessOutcome::Written {
                written.store(number, Ordering::Release);
            }
        }
    }
}

/// Has the writer stop when it is dropped.
struct StopsWriter<'a>(&'a AtomicBool);

impl Drop for StopsWriter<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Writes that the writer has under way at most.
const WINDOW: u64 = 4;
const LINES: u32 = 4096;

#[test]
fn a_node_whose_loop_does_no_round_for_long_does_not_count_as_fit() {
    let _limit = amcast_test_policy::time_limit();
    let mut fabric = TcpHosts::new(&HostCarrier::Tcp);
    let (links, _) = fabric.hosts[0].life.as_mut().expect("it lives");
    let says = |links: &LinksLoop| {
        let LinksShared { fit, lagging, rounds, .. } = &*links.shared;
        fit.store(true, Ordering::Relaxed);
        lagging.store(0b10, Ordering::Relaxed);
        rounds.fetch_add(1, Ordering::Relaxed);
    };
    let begun = Instant::now();
    assert_eq!(links.health(begun), (false, 0), "its loop has said nothing");
    says(links);
    assert_eq!(links.health(begun), (true, 0b10));
    assert_eq!(links.health(begun + LOOP_SILENCE_MAX / 2), (true, 0b10));
    assert_eq!(links.health(begun + LOOP_SILENCE_MAX), (false, 0b10));
    assert_eq!(links.health(begun + LAGGING_SILENCE_MAX), (false, 0), "others know that now");
    says(links);
    let later = begun + 2 * LAGGING_SILENCE_MAX;
    assert_eq!(links.health(later), (true, 0b10), "it runs again");
}

#[test]
fn nothing_lands_in_a_revoked_region_while_its_writer_continues() {
    let _limit = amcast_test_policy::time_limit();
    revoke_again_and_again(&HostCarrier::Tcp, 400);
}

#[cfg(feature = "rdma")]
#[test]
fn nothing_lands_in_a_revoked_region_while_its_writer_continues_over_remote_memory_access() {
    let _limit = amcast_test_policy::time_limit();
    revoke_again_and_again(&rdma(), 60);
}

fn revoke_again_and_again(by: &HostCarrier, rounds: u64) {
    let ports = crate::ports::free(2, &[]).expect("there are ports");
    let addresses: Vec<SocketAddr> =
        ports.into_iter().map(|port| SocketAddr::from(([127, 0, 0, 1], port))).collect();
    let node = |here: usize| {
        let (node_of, near) = (vec![0, 1], vec![here]);
        let places = Vec::new();
        let map = RemoteMap { here, nodes: 2, node_of, near, places, first_incarnation: 0 };
        let directory = Directory::heap(ClusterId(1), 2, 0).expect("made");
        let start = here as u64 + 1;
        MemoryLinks::between(directory, (map, start), 7, &addresses, by).expect("it runs")
    };
    let ((here, _owners), (there, _writers)) = (node(0), node(1));
    let specs = [RegionSpec { name: "log", lines: LINES, writer: Pid(1), guarded: true }];
    let mut owner = here.start(Pid(0), &specs, StartOptions::default()).expect("started");
    let own = [RegionSpec { name: "own", lines: LINES, writer: Pid(1), guarded: false }];
    let writer = there.start(Pid(1), &own, StartOptions::default()).expect("started");
    let (written, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        // Dropped also where an assertion fails: the scope waits for the writer.
        let _stops = StopsWriter(&stop);
        scope.spawn(|| write_on(writer, &written, &stop));
        let mut before = 0;
        for round in 0..rounds {
            owner.post(&[MemoryOutput::Allow(RegionId(0))]);
            let begun = Instant::now();
            while written.load(Ordering::Acquire) <= before {
                assert!(begun.elapsed() < PATIENCE, "round {round}: nothing is written");
                std::thread::yield_now();
            }
            // At another moment of what the agent does in each round.
            (0..round % 50 * 400).for_each(|_| core::hint::spin_loop());
            owner.post(&[MemoryOutput::Revoke(RegionId(0))]);
            let stamps = || -> Vec<u64> {
                let lines = owner.window().region(RegionId(0)).iter();
                lines.map(|line| line.stamp().0).collect()
            };
            let seen = stamps();
            (0..100).for_each(|_| std::thread::yield_now());
            assert_eq!(stamps(), seen, "round {round}: a write landed after the revocation");
            before = written.load(Ordering::Acquire);
            let last = seen.into_iter().max().unwrap_or(0);
            assert!(before <= last, "round {round}: {before} is written, and {last} is the last");
        }
    });
}

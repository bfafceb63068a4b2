//! Nodes of a protocol over memory on hosts of their own, with TCP or libfabric between them: one is killed and started again, and one
//! is cut off in one direction, while Redis clients on a host of their own continue. Nodes of one host share its memory.
//! Needs root and network namespaces; where they are not available it says so and passes.

use crate::clients::ClientLoad;
use crate::harness::{AMCAST, run, signal, unique};
use crate::{alone, judge_events};
use amcast::client::{Answer, Connection};
use amcast::core::Time;
use amcast::node::config::{ClusterFile, HostPlacement, Setting};
use amcast::node::control::{NodeStatus, status_of};
use amcast_hosts::{Direction, HostLab, LabFeature, LinkSettings};
use amcast_test_policy::skip;
use rustix::process::Signal;
use std::fs::{self, File};
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::process::{Child, Output};
use std::time::{Duration, Instant};

pub(crate) const NODES: usize = 3;

/// The host of the clients.
const CLIENTS: usize = 3;

pub(crate) const PATIENCE: Duration = Duration::from_secs(40);

/// How long the cluster serves between two events.
const PEACE: Duration = Duration::from_millis(300);

/// How long a host is cut off: longer than a connection is kept on which nothing is acknowledged.
const CUT: Duration = Duration::from_millis(1_200);

/// How long a node is stopped: longer than its connections are kept.
const STOP: Duration = Duration::from_secs(5);

/// How long nothing is answered at most while a node is stopped: a suspicion, twice that until accesses to it are given up, and as much
/// again for a machine with other work. Until its connections are ended it would be 3 s.
const STOP_FELT_MAX: Duration = Duration::from_millis(1_500);

/// Microseconds of silence after which a process is suspected: all hosts share this machine's cores.
const SUSPECT_US: u64 = 300_000;

/// How accesses travel between hosts: the provider of libfabric, if one carries them.
pub(crate) type HostProvider = Option<&'static str>;

/// Where the provider `tcp` listens on each host.
pub(crate) const PROVIDER_PORTS: RangeInclusive<u16> = 41_000..=41_099;

/// The service of a cluster.
#[derive(Clone, Copy)]
pub(crate) struct MemoryService {
    pub(crate) protocol: &'static str,
    pub(crate) shards: usize,
    pub(crate) rdma_provider: HostProvider,
    /// Whether its tree can be changed.
    pub(crate) has_dynamic_overlay: bool,
    /// The length of its rings, if that is not the default.
    pub(crate) ring_lines: Option<u64>,
}

impl MemoryService {
    /// A protocol with so many shards, whose hosts are connected by TCP.
    pub(crate) const fn of(protocol: &'static str, shards: usize) -> Self {
        let (rdma_provider, has_dynamic_overlay, ring_lines) = (None, false, None);
        Self { protocol, shards, rdma_provider, has_dynamic_overlay, ring_lines }
    }
}

pub(crate) struct MemoryCluster {
    pub(crate) hosts: HostLab,
    base: PathBuf,
    service: MemoryService,
    /// The host of each node.
    host_of: [usize; NODES],
    nodes: Vec<Child>,
}

impl MemoryCluster {
    pub(crate) fn start(hosts: HostLab, service: MemoryService, host_of: [usize; NODES]) -> Self {
        let base = unique("memory-hosts");
        fs::create_dir_all(&base).expect("a directory can be made");
        amcast::node::secret::make(&base.join("secret")).expect("a file can be written");
        let mut cluster = Self { hosts, base, service, host_of, nodes: Vec::new() };
        for rank in 0..NODES {
            let node = cluster.start_node(rank);
            cluster.nodes.push(node);
        }
        cluster
    }

    pub(crate) fn at(&self, rank: usize, port: u16) -> SocketAddr {
        let port = port + 100 * rank as u16;
        SocketAddr::from((self.hosts.host(self.host_of[rank]).address(), port))
    }

    /// The directory of a node, which those of its host share.
    fn dir(&self, rank: usize) -> PathBuf {
        self.base.join(format!("h{}", self.host_of[rank]))
    }

    fn start_node(&self, rank: usize) -> Child {
        let place = |rank: usize| HostPlacement {
            control: Some(self.at(rank, 7401)),
            redis: Some(self.at(rank, 6379)),
            ..HostPlacement::at(self.at(rank, 7400))
        };
        let set = |name: &str, value| (name.to_string(), Setting::Number(value));
        let MemoryService { protocol, shards, rdma_provider, .. } = self.service;
        let tree = self.service.has_dynamic_overlay.then(|| set("dynamic_overlay", 1));
        let rings = self
            .service
            .ring_lines
            .map(|lines| ["log_lines", "hm_lines"].map(|ring| set(ring, lines)));
        let file = ClusterFile {
            protocol: protocol.to_string(),
            shards,
            clients: NODES,
            id: Some(4711),
            secret: Some(self.base.join("secret")),
            // Clients give no password.
            insecure: true,
            data: Some(self.dir(rank)),
            nodes: (0..NODES).map(|rank| (format!("n{rank}"), place(rank))).collect(),
            set: [set("suspect_us", SUSPECT_US)]
                .into_iter()
                .chain(tree)
                .chain(rings.into_iter().flatten())
                .collect(),
            rdma_provider: rdma_provider.map(str::to_string),
            ..ClusterFile::default()
        };
        let path = self.base.join(format!("n{rank}.toml"));
        file.write(&path).expect("a file can be written");
        let checked = run(&["config", "check", &path.display().to_string()]);
        assert!(checked.status.success(), "{}", crate::harness::errors(&checked));
        let mut command = self.hosts.host(self.host_of[rank]).command(AMCAST);
        command.arg("node").arg("--config").arg(path).args(["--name", &format!("n{rank}")]);
        if rdma_provider.is_some() {
            let (low, high) = (PROVIDER_PORTS.start(), PROVIDER_PORTS.end());
            command.env("FI_TCP_PORT_LOW_RANGE", low.to_string());
            command.env("FI_TCP_PORT_HIGH_RANGE", high.to_string());
            let log = File::options().append(true).create(true).open(self.log(rank));
            command.stderr(log.expect("a file can be written"));
        }
        command.spawn().expect("a node can be started")
    }

    /// Where the log of a node is, in a cluster with a provider.
    pub(crate) fn log(&self, rank: usize) -> PathBuf {
        self.base.join(format!("n{rank}.log"))
    }

    fn status(&self, rank: usize) -> Option<NodeStatus> {
        status_of(&self.dir(rank).join(format!("n{rank}.sock"))).ok()
    }

    pub(crate) fn wait_until_ready(&self) {
        let begun = Instant::now();
        let mut told = Duration::from_secs(1);
        let ready = |rank| self.status(rank).is_some_and(|status| status.ready);
        while !(0..NODES).all(ready) {
            let all: Vec<_> = (0..NODES).map(|rank| self.status(rank).map(|s| s.why)).collect();
            assert!(begun.elapsed() < PATIENCE, "not all are ready: {all:?}");
            if begun.elapsed() > told {
                println!("not all are ready after {told:?}: {all:?}");
                told += Duration::from_secs(1);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The words of `amcast status` on the host of a node.
    pub(crate) fn told(&self, rank: usize) -> String {
        String::from_utf8_lossy(&self.run(rank, &["status"]).stdout).into_owned()
    }

    /// Runs the program with these words on the host of a node, of its directory.
    pub(crate) fn run(&self, rank: usize, words: &[&str]) -> Output {
        let mut command = self.hosts.host(self.host_of[rank]).command(AMCAST);
        let output = command.args(words).arg("--data").arg(self.dir(rank)).output();
        output.expect("the program can be started")
    }

    /// Each two nodes with what connects them, as `amcast status` on the host of n0 says.
    fn carriers(&self) -> String {
        let text = self.told(0);
        let line = text.lines().find_map(|line| line.strip_prefix("memory: "));
        line.unwrap_or_else(|| panic!("{text}")).to_string()
    }

    /// Ends a node as `kill -9` does.
    pub(crate) fn kill(&mut self, rank: usize) {
        self.nodes[rank].kill().expect("it runs");
        self.nodes[rank].wait().expect("it is a child of ours");
    }

    /// Starts a node that was killed again.
    pub(crate) fn start_again(&mut self, rank: usize) {
        self.nodes[rank] = self.start_node(rank);
    }

    /// Stops all nodes in good order.
    pub(crate) fn stop(&mut self) {
        for node in &mut self.nodes {
            signal(node.id(), Signal::TERM);
            assert!(node.wait().expect("it is a child of ours").success());
        }
    }

    /// Cuts the way from one host to the other nodes' hosts, or the way back.
    pub(crate) fn cut_one_way(&self, host: usize, from_it: bool) {
        for other in (0..NODES).filter(|other| *other != host) {
            let (from, to) = if from_it { (host, other) } else { (other, host) };
            self.hosts.cut(from, to, Direction::OneWay).expect("links can be cut");
        }
    }
}

impl Drop for MemoryCluster {
    fn drop(&mut self) {
        for node in &mut self.nodes {
            // One that has ended already is what we want.
            let _ = node.kill();
            let _ = node.wait();
        }
        let _ = fs::remove_dir_all(&self.base);
    }
}

/// A cut in one direction: its name, the host, and whether nothing arrives of it rather than at it.
pub(crate) type OneWayCut = (&'static str, usize, bool);

pub(crate) const FROM_IT: OneWayCut = ("nothing of a host arrives", 2, true);
pub(crate) const TO_IT: OneWayCut = ("nothing arrives at a host", 1, false);

/// The faults of the cluster, with their times on the clock of the recording.
fn operate(cluster: &mut MemoryCluster, load: &ClientLoad, cuts: &[OneWayCut]) -> MemoryEvents {
    let mut done = Vec::new();
    let mut event = |what, act: &mut dyn FnMut()| {
        load.next_round();
        std::thread::sleep(PEACE);
        let begun = load.now();
        act();
        done.push((what, begun, load.now()));
    };
    event("a host is killed", &mut || {
        cluster.kill(0);
        std::thread::sleep(2 * PEACE);
        let before = load.answered();
        std::thread::sleep(PEACE);
        assert!(load.answered() > before, "two of three hosts go on");
        cluster.start_again(0);
        cluster.wait_until_ready();
    });
    for &(what, host, from_it) in cuts {
        event(what, &mut || {
            cluster.cut_one_way(host, from_it);
            std::thread::sleep(CUT);
            load.next_round();
            let before = load.answered();
            std::thread::sleep(PEACE);
            assert!(load.answered() > before, "{what}: two of three hosts go on");
            cluster.hosts.heal().expect("links can be healed");
            cluster.wait_until_ready();
        });
    }
    event("a host is replaced by one that has nothing", &mut || {
        cluster.kill(1);
        fs::remove_dir_all(cluster.dir(1)).expect("it is ours");
        cluster.start_again(1);
        // The others know a life of it that is not earlier: it takes a later one by itself.
        cluster.wait_until_ready();
    });
    load.next_round();
    std::thread::sleep(PEACE);
    load.wait_for_answers(500);
    done
}

/// The hosts of a test, or why this machine has none.
pub(crate) fn hosts(count: usize) -> Result<HostLab, String> {
    if let Some(why) = HostLab::missing_feature(&[LabFeature::Faults]) {
        return Err(why.to_string());
    }
    HostLab::new(count, LinkSettings::default()).map_err(|why| why.to_string())
}

pub(crate) fn bears(
    test: &str,
    (protocol, rdma_provider): (&'static str, HostProvider),
    cuts: &[OneWayCut],
) {
    let service = MemoryService { rdma_provider, ..MemoryService::of(protocol, 2) };
    serves_through(test, service, |cluster, load| operate(cluster, load, cuts));
}

/// Faults or commands of an operator, with their times on the clock of the recording.
pub(crate) type MemoryEvents = Vec<(&'static str, Time, Time)>;

/// Clients of three hosts see one order while `operate` acts.
pub(crate) fn serves_through(
    test: &str,
    service: MemoryService,
    operate: impl FnOnce(&mut MemoryCluster, &ClientLoad) -> MemoryEvents + Send,
) {
    let _alone = alone();
    let hosts = match hosts(NODES + 1) {
        Ok(hosts) => hosts,
        Err(why) => return skip(test, why),
    };
    let mut cluster = MemoryCluster::start(hosts, service, [0, 1, 2]);
    cluster.wait_until_ready();
    let by = service.rdma_provider.map_or_else(|| "tcp".to_string(), |by| format!("rdma ({by})"));
    assert_eq!(cluster.carriers(), format!("n0 - n1 {by}, n0 - n2 {by}, n1 - n2 {by}"));
    let gateways = (0..NODES).map(|rank| cluster.at(rank, 6379).to_string()).collect();
    let load = ClientLoad::at(gateways, service.shards, 6);
    // A thread of the clients' host starts its clients there.
    let cluster = &mut cluster;
    let namespace = cluster.hosts.host(CLIENTS).namespace().expect("it is there");
    let done = std::thread::scope(|scope| {
        let operates = || {
            namespace.enter().expect("a thread may move");
            let done = load.run(|load| operate(&mut *cluster, load));
            // Here, because what a thread started is ended with it.
            cluster.stop();
            done
        };
        scope.spawn(operates).join().expect("the cluster bears it")
    });
    judge_events(load, &done, test);
}

#[test]
fn three_hosts_of_tram_bear_a_kill_and_one_way_cuts() {
    let test = "three_hosts_of_tram_bear_a_kill_and_one_way_cuts";
    bears(test, ("tram", None), &[FROM_IT, TO_IT]);
}

#[test]
fn three_hosts_of_ramcast_bear_a_kill_and_a_one_way_cut() {
    bears("three_hosts_of_ramcast_bear_a_kill_and_a_one_way_cut", ("ramcast", None), &[TO_IT]);
}

/// The longest time without an answer to any client in the time `lasting` from now on.
fn longest_silence(load: &ClientLoad, lasting: Duration) -> Duration {
    let (begun, mut longest) = (Instant::now(), Duration::ZERO);
    let (mut answered, mut since) = (load.answered(), begun);
    while begun.elapsed() < lasting {
        std::thread::sleep(Duration::from_millis(1));
        longest = longest.max(since.elapsed());
        if load.answered() != answered {
            (answered, since) = (load.answered(), Instant::now());
        }
    }
    longest
}

/// Stops a node that leads no shard, as `kill -STOP` does, and lets it run again.
fn stop_for_a_while(cluster: &mut MemoryCluster, load: &ClientLoad) -> MemoryEvents {
    std::thread::sleep(PEACE);
    let (begun, stopped) = (load.now(), cluster.nodes[2].id());
    signal(stopped, Signal::STOP);
    let silence = longest_silence(load, STOP);
    signal(stopped, Signal::CONT);
    let over = load.now();
    println!("no answer for {silence:?} while a node was stopped");
    assert!(silence < STOP_FELT_MAX, "two of three hosts go on: no answer for {silence:?}");
    cluster.wait_until_ready();
    load.next_round();
    std::thread::sleep(PEACE);
    load.wait_for_answers(500);
    vec![("a node is stopped", begun, over)]
}

#[test]
fn three_hosts_of_tram_serve_while_one_is_stopped() {
    let test = "three_hosts_of_tram_serve_while_one_is_stopped";
    // Such rings are full soon, with few clients, too.
    let service = MemoryService { ring_lines: Some(2_048), ..MemoryService::of("tram", 2) };
    serves_through(test, service, stop_for_a_while);
}

#[test]
fn two_nodes_of_one_host_share_its_memory_and_reach_a_third_one_over_tcp() {
    let test = "two_nodes_of_one_host_share_its_memory_and_reach_a_third_one_over_tcp";
    let _alone = alone();
    let hosts = match hosts(2) {
        Ok(hosts) => hosts,
        Err(why) => return skip(test, why),
    };
    let mut cluster = MemoryCluster::start(hosts, MemoryService::of("tram", 1), [0, 0, 1]);
    cluster.wait_until_ready();
    assert_eq!(cluster.carriers(), "n0 - n1 shared memory, n0 - n2 tcp, n1 - n2 tcp");
    let call = |cluster: &MemoryCluster, rank: usize, words: &[&str]| {
        let at = cluster.at(rank, 6379).to_string();
        let connect = || Connection::open(&at).expect("it listens");
        let host = cluster.hosts.host(cluster.host_of[rank]);
        host.run(|| crate::harness::call(&mut connect(), words)).expect("the host is there")
    };
    for rank in 0..NODES {
        assert_eq!(call(&cluster, rank, &["INCR", "n"]), Answer::Number(rank as i64 + 1));
    }
    // Of the two that are left one is on each host; nobody but its neighbour finds out that it has died.
    cluster.kill(0);
    assert_eq!(call(&cluster, 2, &["INCR", "n"]), Answer::Number(4));
    cluster.start_again(0);
    cluster.wait_until_ready();
    assert_eq!(call(&cluster, 0, &["GET", "n"]), crate::harness::bytes("4"));
    cluster.stop();
}

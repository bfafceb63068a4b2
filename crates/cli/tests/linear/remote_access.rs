//! Hosts whose memory is carried by libfabric, with its provider `tcp`. Needs root and network namespaces, and that provider; where
//! they are not available it says so and passes.

use crate::alone;
use crate::harness::{AMCAST, bytes, call, unique};
use crate::memory_hosts::{
    FROM_IT, MemoryCluster, MemoryService, NODES, PATIENCE, PROVIDER_PORTS, TO_IT, bears, hosts,
};
use amcast::client::{Answer, Connection};
use amcast::node::config::{ClusterFile, HostPlacement};
use amcast_fabric::{FabricEndpoint, FabricSettings};
use amcast_test_policy::skip;
use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const PROVIDER: Option<&str> = Some("tcp");

/// How long the ports of the provider are closed once the nodes have said so.
const CLOSED: Duration = Duration::from_secs(4);

/// Why this machine has no provider, if it has none.
fn missing_provider() -> Option<String> {
    let opened = FabricEndpoint::open(&FabricSettings::default(), 8, 8);
    opened.err().map(|why| why.to_string())
}

#[test]
fn three_hosts_of_tram_with_remote_memory_access_bear_a_kill_and_one_way_cuts() {
    let test = "three_hosts_of_tram_with_remote_memory_access_bear_a_kill_and_one_way_cuts";
    if let Some(why) = missing_provider() {
        return skip(test, why);
    }
    bears(test, ("tram", PROVIDER), &[FROM_IT, TO_IT]);
}

#[test]
fn three_hosts_of_ramcast_with_remote_memory_access_bear_a_kill_and_a_one_way_cut() {
    let test = "three_hosts_of_ramcast_with_remote_memory_access_bear_a_kill_and_a_one_way_cut";
    if let Some(why) = missing_provider() {
        return skip(test, why);
    }
    bears(test, ("ramcast", PROVIDER), &[TO_IT]);
}

/// Waits until `amcast status` on the host of each node says it or does not.
fn wait_until_told(cluster: &MemoryCluster, words: &str, so: bool) {
    let begun = Instant::now();
    for rank in 0..NODES {
        while cluster.told(rank).contains(words) != so {
            let told = cluster.told(rank);
            assert!(begun.elapsed() < PATIENCE, "n{rank}, {words:?} {so}: {told}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// One call at the gateway of a node, on its host.
fn call_at(cluster: &MemoryCluster, rank: usize, words: &[&str]) -> Answer {
    let at = cluster.at(rank, 6379).to_string();
    let connect = || Connection::open(&at).expect("it listens");
    let host = cluster.hosts.host(rank);
    host.run(|| call(&mut connect(), words)).expect("the host is there")
}

#[test]
fn nodes_whose_provider_cannot_connect_say_so_and_continue_when_it_can() {
    let test = "nodes_whose_provider_cannot_connect_say_so_and_continue_when_it_can";
    let _alone = alone();
    if let Some(why) = missing_provider() {
        return skip(test, why);
    }
    let hosts = match hosts(NODES) {
        Ok(hosts) => hosts,
        Err(why) => return skip(test, why),
    };
    let service = MemoryService { rdma_provider: PROVIDER, ..MemoryService::of("tram", 1) };
    let mut cluster = MemoryCluster::start(hosts, service, [0, 1, 2]);
    cluster.wait_until_ready();
    assert_eq!(call_at(&cluster, 0, &["INCR", "n"]), Answer::Number(1));
    // The nodes' own connections are left.
    for host in 0..NODES {
        cluster.hosts.close_ports(host, PROVIDER_PORTS).expect("ports can be closed");
    }
    let closed = "does not reach the memory of";
    wait_until_told(&cluster, closed, true);
    wait_until_told(&cluster, "the ports of the provider may be closed", true);
    let lines = |cluster: &MemoryCluster| {
        let log = |rank| fs::read_to_string(cluster.log(rank)).expect("it has a log");
        let said = |rank| log(rank).lines().filter(|line| line.contains("is ended")).count();
        (0..NODES).map(said).sum::<usize>()
    };
    let before = lines(&cluster);
    assert!(before > 0, "the logs say it, too");
    std::thread::sleep(CLOSED);
    // Each of the nodes may have one more reason for each of the others.
    let more = lines(&cluster) - before;
    assert!(more <= NODES * (NODES - 1), "{more} lines in {CLOSED:?}");
    cluster.hosts.heal().expect("ports can be opened");
    wait_until_told(&cluster, closed, false);
    cluster.wait_until_ready();
    for rank in 0..NODES {
        assert_eq!(call_at(&cluster, rank, &["GET", "n"]), bytes("1"));
    }
    assert_eq!(call_at(&cluster, 1, &["INCR", "n"]), Answer::Number(2));
    cluster.stop();
}

#[test]
fn a_node_whose_provider_is_not_there_ends_and_says_so() {
    let _limit = amcast_test_policy::time_limit();
    let base = unique("no-provider");
    fs::create_dir_all(&base).expect("a directory can be made");
    let port = |host: u8| {
        let listener = TcpListener::bind((Ipv4Addr::new(127, 0, 0, host), 0));
        listener.and_then(|it| it.local_addr()).expect("there are ports")
    };
    let place = |rank: u8| {
        let [address, control] = [port(rank + 1), port(rank + 1)];
        let control = Some(control);
        (format!("n{rank}"), HostPlacement { control, ..HostPlacement::at(address) })
    };
    let file = ClusterFile {
        protocol: "tram".to_string(),
        shards: 1,
        clients: NODES,
        id: Some(4712),
        secret: Some(base.join("secret")),
        insecure: true,
        data: Some(base.join("data")),
        nodes: (0..3).map(place).collect(),
        rdma_provider: Some("carrier-pigeon".to_string()),
        ..ClusterFile::default()
    };
    amcast::node::secret::make(&base.join("secret")).expect("a file can be written");
    let path = base.join("cluster.toml");
    file.write(&path).expect("a file can be written");
    let mut command = Command::new(AMCAST);
    command.arg("node").arg("--config").arg(&path).args(["--name", "n0"]);
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let ended = child.and_then(|child| child.wait_with_output()).expect("it ends");
    let says = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(!ended.status.success(), "{says}");
    assert!(says.contains("carrier-pigeon") && says.contains("127.0.0.1"), "{says}");
    assert!(says.contains("fi_info"), "{says}");
    assert!(!says.contains("panicked"), "{says}");
    fs::remove_dir_all(&base).expect("it is ours");
}

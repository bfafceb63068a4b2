//! Hosts whose files are not the same in something that decides what replicas do.

use crate::by_hand::{NODES, ThreeHosts};
use crate::harness::{errors, run};
use amcast::node::config::{ClusterFile, Setting};
use std::fs;
use std::path::Path;

fn usual(file: &mut ClusterFile) {
    file.maxmemory_mb = Some(2000);
}

/// Has the file at `path` say something else.
fn rewrite(path: &Path, change: impl Fn(&mut ClusterFile)) {
    let mut file = ClusterFile::read(path).unwrap();
    change(&mut file);
    file.write(path).unwrap();
}

/// Three hosts, of which one has another file, and what that differs in.
fn one_differs(change: impl Fn(&mut ClusterFile), name: &str) -> ThreeHosts {
    let mut hosts = ThreeHosts::with(3, |_, node, file| {
        usual(file);
        if node == 1 {
            change(file);
        }
    });
    hosts.start(0..NODES);
    hosts.wait_until_ready([0, 2]);
    let names = format!("their cluster files differ in {name}, which is ");
    let status = hosts.wait(1, "told what differs", |status| status.why.contains(&names));
    assert!(!status.ready, "{status:?}");
    for node in [0, 2] {
        // Both at one time: on a busy machine it may look for another leader meanwhile.
        hosts.wait(node, "ready without n1, and told what differs", |status| {
            let refused = status.peers[1].refused.as_ref();
            status.ready && refused.is_some_and(|why| why.contains(&names))
        });
        let (key, value) = (format!("k{node}"), "v".repeat(100));
        assert_eq!(hosts.ask(node, &["SET", &key, &value]).to_string(), "OK");
        assert_eq!(hosts.ask(2 - node, &["GET", &key]).to_string(), value);
    }
    hosts
}

#[test]
fn a_node_with_another_bound_of_memory_is_refused_by_name_until_its_file_is_corrected() {
    let _limit = amcast_test_policy::time_limit();
    let mut hosts = one_differs(|file| file.maxmemory_mb = Some(30), "maxmemory_mb");
    let data = hosts.disk(0);
    let shown = run(&["status", "--data", data.to_str().unwrap()]);
    let shown = String::from_utf8(shown.stdout).unwrap();
    for (says, value) in [("n0 says: n1 at", 2000), ("refuses this node", 30)] {
        let line = shown.lines().find(|line| line.contains(says));
        let differs = format!("differ in maxmemory_mb, which is {value} in the one of this node");
        assert!(line.is_some_and(|line| line.contains(&differs)), "{shown}");
    }
    let log = fs::read_to_string(hosts.disk(1).join("n1.log")).unwrap();
    assert!(log.contains("differ in maxmemory_mb, which is 30 in the one of this node"), "{log}");
    // It never had its place, and the wrong file has had no effect.
    hosts.kill([1]);
    let config = hosts.base.join("n1.toml");
    rewrite(&config, usual);
    hosts.start([1]);
    hosts.wait_until_ready(0..NODES);
    assert_eq!(hosts.ask(1, &["GET", "k0"]).to_string().len(), 100);
    hosts.kill([1]);
    let wrong = |file: &mut ClusterFile| file.maxmemory_mb = Some(30);
    rewrite(&config, wrong);
    let refused = hosts.command(1).output().unwrap();
    let why = "maxmemory_mb = 30, and what is there was written with 2000";
    assert_eq!((refused.status.code(), errors(&refused).contains(why)), (Some(2), true));
    // The remedy concerns the files of this node alone: a directory may have those of others.
    let anew = "n1.*, and no file of another node, for n1 to begin anew";
    assert!(errors(&refused).contains(anew), "{}", errors(&refused));
    // A file that lies beside the data, and says nothing of them, is no other way in.
    let beside = hosts.disk(1).join("cluster.toml");
    rewrite(&beside, |file| (file.maxmemory_mb, file.data) = (Some(30), None));
    let refused = hosts.command_of(1, "d1/cluster.toml").output().unwrap();
    assert_eq!((refused.status.code(), errors(&refused).contains(why)), (Some(2), true));
}

/// n0 is the one that the others dial: what it hears is a handshake that ends, and no name.
#[test]
fn a_node_with_another_secret_says_so_in_its_status_on_either_end() {
    let _limit = amcast_test_policy::time_limit();
    let mut hosts = ThreeHosts::with(3, |base, node, file| {
        if node == 0 {
            let other = base.join("other");
            amcast::node::secret::make(&other).unwrap();
            file.secret = Some(other);
        }
    });
    hosts.start(0..NODES);
    hosts.wait_until_ready([1, 2]);
    let remedy = "give all nodes the same file as `secret`";
    let status = hosts.wait(0, "told of the secret", |status| status.why.contains(remedy));
    assert!(!status.ready, "{status:?}");
    let named = "n0 at ";
    hosts.wait(1, "told of n0", |status| {
        let why = status.peers[0].refused.as_ref();
        why.is_some_and(|why| why.starts_with(named) && why.contains(remedy))
    });
    let shown = run(&["status", "--data", hosts.disk(0).to_str().unwrap()]);
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains(remedy), "{shown}");
}

#[test]
fn a_node_with_another_parameter_of_the_protocol_is_refused_by_name() {
    let _limit = amcast_test_policy::time_limit();
    let m = |file: &mut ClusterFile| _ = file.set.insert("m".to_string(), Setting::Number(2));
    one_differs(m, "set.m");
}

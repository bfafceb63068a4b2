//! Nodes that are started by hand, one of which gets another disk, or a copy of its own, without a
//! command. Acknowledged writes are still there, or that node does not vote.

use crate::by_hand::{NODES, ThreeHosts};
use crate::harness::run;
use amcast::node::config::ClusterFile;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};
use std::{fs, thread};

fn said(output: &Output) -> String {
    let texts = [&output.stdout, &output.stderr];
    texts.map(|text| String::from_utf8_lossy(text)).concat()
}

/// Three nodes, all of which know each other.
fn running() -> ThreeHosts {
    let mut hosts = ThreeHosts::new();
    hosts.start(0..NODES);
    hosts.wait_until_ready(0..NODES);
    hosts
}

/// `k` is acknowledged while n2 is away, and then all nodes end.
fn acknowledged_without_n2(hosts: &mut ThreeHosts) {
    hosts.kill([2]);
    assert_eq!(hosts.ask(0, &["SET", "k", "v"]).to_string(), "OK");
    hosts.kill(0..NODES);
}

/// The last words of n1.
fn n1_ends(command: &mut Command) -> String {
    let ended = command.output().unwrap();
    let said = said(&ended);
    assert!(!ended.status.success() && said.contains("to begin anew"), "{said}");
    said
}

/// A copy of a directory as a person makes one.
fn copy(from: &Path, to: &Path) {
    assert!(Command::new("cp").arg("-a").args([from, to]).status().unwrap().success());
}

#[test]
fn a_replaced_disk_that_nobody_told_of_waits_for_those_it_needs_and_the_old_one_is_refused() {
    let _limit = amcast_test_policy::time_limit();
    let mut hosts = running();
    assert_eq!(hosts.ask(0, &["SET", "k", "v"]).to_string(), "OK");
    hosts.kill([1, 2]);
    let old = hosts.base.join("old");
    fs::rename(hosts.disk(1), &old).unwrap();
    // One of the others is not enough to say what was promised.
    hosts.start([1]);
    let waits = |why: &str| why.contains("on a disk that is gone") && why.contains("r2");
    let status = hosts.wait(1, "waiting for n2", |status| waits(&status.why));
    assert!(!status.ready);
    hosts.start([2]);
    hosts.wait_until_ready(0..NODES);
    hosts.kill([0]);
    assert_eq!(hosts.ask(1, &["GET", "k"]).to_string(), "v");
    hosts.start([0]);
    hosts.wait_until_ready(0..NODES);
    // The old disk is found again: however often it is started it is let in no more.
    hosts.kill([1]);
    fs::rename(hosts.disk(1), hosts.base.join("new")).unwrap();
    fs::rename(&old, hosts.disk(1)).unwrap();
    for _ in 0..3 {
        let said = n1_ends(&mut hosts.command(1));
        assert!(
            said.contains("refuses n1") && said.contains("n1.*, and no file of another node"),
            "{said}"
        );
    }
    let data = hosts.disk(0);
    let status = said(&run(&["status", "--data", data.to_str().unwrap()]));
    assert!(status.contains("says: n1 at") && status.contains("is refused"), "{status}");
    fs::rename(hosts.disk(1), &old).unwrap();
    fs::rename(hosts.base.join("new"), hosts.disk(1)).unwrap();
    hosts.start([1]);
    hosts.wait_until_ready(0..NODES);
}

#[test]
fn the_disk_before_is_taken_in_again_where_each_node_was_told_to_forget_the_later_one() {
    let _limit = amcast_test_policy::time_limit();
    let mut hosts = running();
    assert_eq!(hosts.ask(0, &["SET", "k", "v"]).to_string(), "OK");
    hosts.kill([1]);
    let old = hosts.base.join("old");
    fs::rename(hosts.disk(1), &old).unwrap();
    hosts.start([1]);
    hosts.wait_until_ready(0..NODES);
    hosts.kill([1]);
    fs::remove_dir_all(hosts.disk(1)).unwrap();
    fs::rename(&old, hosts.disk(1)).unwrap();
    let told = n1_ends(&mut hosts.command(1));
    let asked = |hosts: &ThreeHosts, name: &str| {
        let file = hosts.base.join(format!("{name}.toml"));
        run(&["node", "forget", "n1", "--config", file.to_str().unwrap(), "--name", name])
    };
    let forget = |hosts: &ThreeHosts, name: &str| {
        let file = hosts.base.join(format!("{name}.toml"));
        let file = file.to_str().unwrap();
        said(&run(&["node", "forget", "n1", "--config", file, "--name", name, "--yes"]))
    };
    // The commands stand there as they are to be typed: here, and where the others run.
    let file = |node| format!("'{}'", hosts.disk(node).join("cluster.toml").display());
    let typed = |file: &str, name| format!("`amcast node forget n1 --config {file} --name {name}`");
    for command in [typed("FILE", "n0"), typed("FILE", "n2"), typed(&file(1), "n1")] {
        assert!(told.contains(&command), "{told}");
    }
    let log = fs::read_to_string(hosts.disk(0).join("n0.log")).unwrap();
    assert!(log.contains(&typed(&file(0), "n0")), "{log}");
    let runs = forget(&hosts, "n0");
    assert!(runs.contains("n0 runs: end it first"), "{runs}");
    // Its own refusal alone does not help: the others know better.
    let own = hosts.disk(1).join("cluster.toml");
    let own = own.to_str().unwrap();
    let typed = ["node", "forget", "n1", "--config", own, "--name", "n1", "--yes"];
    assert!(said(&run(&typed)).contains("n1 has forgotten that it was refused"));
    n1_ends(&mut hosts.command(1));
    hosts.kill(0..NODES);
    assert!(forget(&hosts, "n1").contains("n1 has forgotten that it was refused"));
    let risk = said(&asked(&hosts, "n0"));
    assert!(risk.contains("n0 will admit any disk of n1"), "{risk}");
    assert!(!risk.contains("has refused no earlier"), "its log says that it did: {risk}");
    for name in ["n0", "n2"] {
        // Without a terminal nothing is forgotten unless that is confirmed.
        let unconfirmed = asked(&hosts, name);
        assert_eq!(unconfirmed.status.code(), Some(2));
        assert!(said(&unconfirmed).contains("Add --yes"), "{}", said(&unconfirmed));
        assert!(forget(&hosts, name).contains(&format!("{name} has forgotten n1")));
        assert!(forget(&hosts, name).contains(&format!("{name} never met n1")));
    }
    hosts.start(0..NODES);
    hosts.wait_until_ready(0..NODES);
    assert_eq!(hosts.ask(1, &["GET", "k"]).to_string(), "v");
}

#[test]
fn a_replaced_disk_that_begins_alone_is_told_later_that_it_has_lived() {
    let _limit = amcast_test_policy::time_limit();
    let mut hosts = running();
    assert_eq!(hosts.ask(0, &["SET", "k", "v"]).to_string(), "OK");
    hosts.kill(0..NODES);
    fs::remove_dir_all(hosts.disk(1)).unwrap();
    // Nobody is there to say that there was another disk.
    hosts.start([1]);
    let alone = "it starts: 1 of 3 members are heard, and 2 are needed";
    hosts.wait(1, "alone", |status| !status.ready && status.why.contains(alone));
    hosts.start([0, 2]);
    hosts.wait_until_ready(0..NODES);
    let log = fs::read_to_string(hosts.disk(1).join("n1.log")).unwrap();
    assert!(log.contains("lived before on another disk"), "{log}");
    let known = hosts.wait(0, "there", |_| true).peers[1].life;
    assert!(known > Some(0), "{known:?}");
    hosts.kill([2]);
    assert_eq!(hosts.ask(1, &["GET", "k"]).to_string(), "v");
}

#[test]
fn an_emptied_disk_that_was_started_more_often_than_the_one_before_asks_all_the_same() {
    let _limit = amcast_test_policy::time_limit();
    let mut hosts = running();
    acknowledged_without_n2(&mut hosts);
    fs::remove_dir_all(hosts.disk(1)).unwrap();
    for _ in 0..3 {
        hosts.start([1]);
        hosts.wait(1, "alone", |status| !status.ready);
        hosts.kill([1]);
    }
    // They are a majority, and neither of them has what was acknowledged.
    hosts.start([1, 2]);
    let waits = |why: &str| why.contains("on a disk that is gone") && why.contains("r0");
    hosts.wait(1, "waiting for n0", |status| waits(&status.why));
    hosts.start([0]);
    hosts.wait_until_ready(0..NODES);
    hosts.kill([0]);
    assert_eq!(hosts.ask(1, &["GET", "k"]).to_string(), "v");
}

#[test]
fn a_directory_that_is_brought_back_from_a_copy_does_not_vote() {
    let _limit = amcast_test_policy::time_limit();
    let mut hosts = running();
    hosts.kill([1]);
    let backup = hosts.base.join("backup");
    copy(&hosts.disk(1), &backup);
    hosts.start([1]);
    hosts.wait_until_ready(0..NODES);
    acknowledged_without_n2(&mut hosts);
    fs::rename(hosts.disk(1), hosts.base.join("later")).unwrap();
    copy(&backup, &hosts.disk(1));
    let ends = n1_ends(&mut hosts.command(1));
    assert!(ends.contains("d1 is a copy") && ends.contains("n1.inode"), "{ends}");
    // Status reports it as well, also where others answer.
    let dir = hosts.disk(1).display().to_string();
    let status = || said(&run(&["status", "--data", &dir]));
    let (alone, why) = (status(), "n1 ended: ");
    assert!(alone.contains("start n1 with `amcast node") && alone.contains(why), "{alone}");
    hosts.start([0]);
    hosts.wait(0, "there", |_| true);
    let beside = status();
    assert!(beside.contains("does not run, and ended by itself"), "{beside}");
    assert!(beside.contains("1 of 3 nodes answers here, and it takes 2"), "{beside}");
    assert!(beside.contains(why) && beside.contains("d1 is a copy"), "{beside}");
    hosts.kill([0]);
    // A node wrongly declared not to have run since is detected: its incarnation began before.
    fs::remove_file(hosts.disk(1).join("n1.inode")).unwrap();
    hosts.start([2]);
    let said = n1_ends(&mut hosts.command(1));
    assert!(said.contains("n2 refuses n1"), "{said}");
    // The right one was moved away and back again, which makes no copy of it.
    fs::remove_dir_all(hosts.disk(1)).unwrap();
    fs::rename(hosts.base.join("later"), hosts.disk(1)).unwrap();
    hosts.start([1]);
    hosts.wait_until_ready([1, 2]);
    assert_eq!(hosts.ask(1, &["GET", "k"]).to_string(), "v");
}

#[test]
fn of_two_copies_that_run_at_once_the_second_ends_and_the_first_goes_on() {
    let _limit = amcast_test_policy::time_limit();
    let mut hosts = running();
    hosts.kill([1]);
    let second = hosts.base.join("second");
    copy(&hosts.disk(1), &second);
    fs::remove_file(second.join("n1.inode")).unwrap();
    hosts.start([1]);
    hosts.wait_until_ready(0..NODES);
    let mut file = ClusterFile::read(&hosts.base.join("n1.toml")).unwrap();
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
    let own = file.nodes.get_mut("n1").unwrap();
    (own.listen, own.control, own.redis, own.log) = (Some(port), None, None, None);
    file.data = Some(second);
    file.write(&hosts.base.join("second.toml")).unwrap();
    let said = n1_ends(&mut hosts.command_of(1, "second.toml"));
    assert!(said.contains("refuses n1"), "{said}");
    assert_eq!(hosts.ask(1, &["SET", "k", "v"]).to_string(), "OK");
    hosts.kill([0]);
    assert_eq!(hosts.ask(1, &["GET", "k"]).to_string(), "v");
}

/// The writes that `hosts` acknowledged.
type AckedWrites = Vec<(String, String)>;

/// Writes some keys via this node, all of which are acknowledged.
fn write(hosts: &ThreeHosts, node: usize, acked: &mut AckedWrites) {
    for _ in 0..20 {
        let (key, value) = (format!("key{}", acked.len()), format!("by n{node}"));
        assert_eq!(hosts.ask(node, &["SET", &key, &value]).to_string(), "OK");
        acked.push((key, value));
    }
}

fn assert_all_there(hosts: &ThreeHosts, node: usize, acked: &AckedWrites) {
    for (key, value) in acked {
        assert_eq!(&hosts.ask(node, &["GET", key]).to_string(), value, "{key} of n{node}");
    }
}

#[test]
fn a_node_that_dies_with_a_state_that_is_in_memory_only_gets_it_again() {
    let _limit = amcast_test_policy::time_limit();
    let (mut hosts, mut acked) = (running(), AckedWrites::new());
    write(&hosts, 0, &mut acked);
    hosts.kill([1]);
    fs::remove_dir_all(hosts.disk(1)).unwrap();
    for _ in 0..2 {
        // It has its state from another, is killed before that is on its disk, and continues from
        // its log.
        hosts.start([1]);
        hosts.wait_until_ready([1]);
        write(&hosts, 1, &mut acked);
        hosts.kill([1]);
        let state = hosts.disk(1).join("n1.data/state");
        fs::remove_dir_all(&state).expect("there is one, if an empty one");
        write(&hosts, 2, &mut acked);
    }
    hosts.start([1]);
    hosts.wait_until_ready([1]);
    for away in [0, 2] {
        hosts.kill([away]);
        assert_all_there(&hosts, 1, &acked);
        write(&hosts, 1, &mut acked);
        hosts.start([away]);
        hosts.wait_until_ready(0..NODES);
    }
    let log = fs::read_to_string(hosts.disk(1).join("n1.log")).unwrap();
    assert!(log.contains("has all state again"), "{log}");
    hosts.wait(1, "there", |status| status.ready);
    assert_all_there(&hosts, 0, &acked);
}

#[test]
fn each_disk_may_be_replaced_once_the_one_before_has_the_state() {
    let _limit = amcast_test_policy::time_limit();
    let (mut hosts, mut acked) = (running(), AckedWrites::new());
    for node in 0..NODES {
        write(&hosts, node, &mut acked);
        hosts.kill([node]);
        fs::remove_dir_all(hosts.disk(node)).unwrap();
        hosts.start([node]);
        hosts.wait_until_ready([node]);
        let log = || fs::read_to_string(hosts.disk(node).join(format!("n{node}.log"))).unwrap();
        let begun = Instant::now();
        while !log().contains("the state is on disk") {
            assert!(begun.elapsed() < Duration::from_secs(60), "{}", log());
            thread::sleep(Duration::from_millis(20));
        }
    }
    // No disk is left of those on which it was acknowledged; and all were gone at one moment.
    hosts.kill(0..NODES);
    hosts.start(0..NODES);
    hosts.wait_until_ready(0..NODES);
    (0..NODES).for_each(|node| assert_all_there(&hosts, node, &acked));
}

//! The tree of the shards is changed on hosts of their own, with TCP between their memories, while clients of all of them
//! continue, a host is killed and one is cut off in one direction. Needs root and network namespaces; where they are not
//! available it says so and passes.

use crate::clients::ClientLoad;
use crate::harness::errors;
use crate::memory_hosts::{
    FROM_IT, MemoryCluster, MemoryEvents, MemoryService, NODES, OneWayCut, PATIENCE, TO_IT,
    serves_through,
};
use std::time::{Duration, Instant};

/// How long the cluster serves between two events.
const PEACE: Duration = Duration::from_millis(300);

/// The tree in force, as the host of a node sees it: its number, its parents, and how many replicas say so.
fn in_force(cluster: &MemoryCluster, rank: usize) -> Option<(u64, String, usize)> {
    let output = cluster.run(rank, &["overlay", "show", "--json"]);
    let shown: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
    let groups = shown["groups"].as_array().expect("a list of groups");
    let replicas = |group: &serde_json::Value| group["replicas"].as_array().map_or(0, Vec::len);
    let parents = shown["parents"].as_str()?.to_string();
    Some((shown["number"].as_u64()?, parents, groups.iter().map(replicas).sum()))
}

/// Waits until every replica of every host goes by the tree.
fn wait_until_all_follow(cluster: &MemoryCluster, (number, parents): (u64, &str), shards: usize) {
    let begun = Instant::now();
    let wanted = Some((number, parents.to_string(), NODES * shards));
    while (0..NODES).any(|rank| in_force(cluster, rank) != wanted) {
        let seen: Vec<_> = (0..NODES).map(|rank| in_force(cluster, rank)).collect();
        assert!(begun.elapsed() < PATIENCE, "not all follow {parents} ({number}): {seen:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Has the tree changed from the host of a node.
fn change(cluster: &MemoryCluster, rank: usize, tree: &str) {
    let output = cluster.run(rank, &["overlay", "set", tree]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", errors(&output));
    assert!(said.contains("in force after"), "{said}");
}

/// Cuts a host off in one direction; the two others change the tree, and it follows once it is reached again.
fn change_beside_cut(
    cluster: &mut MemoryCluster,
    load: &ClientLoad,
    ((_, host, from_it), tree): (OneWayCut, (u64, &str)),
) {
    cluster.cut_one_way(host, from_it);
    change(cluster, 0, tree.1);
    let before = load.answered();
    std::thread::sleep(PEACE);
    assert!(load.answered() > before, "two of three hosts serve");
    cluster.hosts.heal().expect("links can be healed");
    wait_until_all_follow(cluster, tree, 3);
}

fn operate(cluster: &mut MemoryCluster, load: &ClientLoad) -> MemoryEvents {
    let mut done = Vec::new();
    let mut event = |what, act: &mut dyn FnMut()| {
        load.next_round();
        std::thread::sleep(PEACE);
        let begun = load.now();
        act();
        done.push((what, begun, load.now()));
    };
    wait_until_all_follow(cluster, (0, "-1,0,0"), 3);
    event("the tree changes, as one host asks", &mut || {
        change(cluster, 1, "2,2,-1");
        wait_until_all_follow(cluster, (1, "2,2,-1"), 3);
    });
    event("the tree changes, as another one asks, and a host is killed", &mut || {
        cluster.kill(2);
        change(cluster, 0, "-1,0,1");
        cluster.start_again(2);
        cluster.wait_until_ready();
        wait_until_all_follow(cluster, (2, "-1,0,1"), 3);
    });
    event("the tree changes, and nothing of a host arrives", &mut || {
        change_beside_cut(cluster, load, (FROM_IT, (3, "1,-1,1")));
    });
    event("the tree changes, and nothing arrives at a host", &mut || {
        change_beside_cut(cluster, load, (TO_IT, (4, "-1,0,0")));
    });
    load.next_round();
    std::thread::sleep(PEACE);
    load.wait_for_answers(300);
    done
}

#[test]
fn the_tree_of_three_hosts_changes_while_one_is_killed_or_cut_off_one_way() {
    let test = "the_tree_of_three_hosts_changes_while_one_is_killed_or_cut_off_one_way";
    let service = MemoryService { has_dynamic_overlay: true, ..MemoryService::of("tram", 3) };
    serves_through(test, service, operate);
}

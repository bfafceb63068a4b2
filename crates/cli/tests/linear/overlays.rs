//! The tree of the shards is changed on a running cluster, under load, and nodes are killed meanwhile: the node that
//! starts again goes by the tree in force.

use crate::alone;
use crate::clients::ClientLoad;
use crate::harness::{Record, UpCluster, errors, run, unique};
use crate::judge_events;
use amcast::core::Time;
use amcast::node::clock;
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt;
use std::process::Output;
use std::time::Duration;

/// How long the cluster serves between two events.
const PEACE: Duration = Duration::from_millis(400);

/// How long after an event a gap between deliveries is put down to it.
const AFTERMATH: Duration = Duration::from_millis(200);

/// Runs `amcast overlay` on a cluster.
fn overlay(up: &UpCluster, words: &[&str]) -> Output {
    let data = up.data.display().to_string();
    run(&[&["overlay", "--data", &data], words].concat())
}

/// The output of one that must succeed.
fn told(output: &Output) -> String {
    assert!(output.status.success(), "{}", errors(output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The number of the tree in force, its parents, and how many replicas say so.
fn in_force(up: &UpCluster) -> (u64, String, usize) {
    let text = told(&overlay(up, &["show", "--json"]));
    let shown: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
    let groups = shown["groups"].as_array().expect("a list of groups");
    let replicas = |group: &serde_json::Value| group["replicas"].as_array().map_or(0, Vec::len);
    let number = shown["number"].as_u64().unwrap_or_else(|| panic!("no tree is in force: {text}"));
    let parents = shown["parents"].as_str().expect("its parents").to_string();
    (number, parents, groups.iter().map(replicas).sum())
}

/// When each group's replicas delivered, of the histories in a directory.
fn deliveries(record: &Record) -> BTreeMap<String, Vec<u64>> {
    let mut all = BTreeMap::<String, Vec<u64>>::new();
    for file in std::fs::read_dir(&**record).expect("histories were recorded") {
        let path = file.expect("it can be listed").path();
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        for line in text.lines().filter(|line| line.contains(r#""ev":"deliver""#)) {
            // The end of a killed node's file may be half a line.
            let Ok(event) = serde_json::from_str::<serde_json::Value>(line) else { continue };
            let (t, p) =
                (event["t"].as_u64(), event["p"].as_str().and_then(|p| p.split('/').next()));
            let (t, group) = (t.expect("a time"), p.expect("a replica"));
            all.entry(group.to_string()).or_default().push(t);
        }
    }
    all.values_mut().for_each(|times| times.sort_unstable());
    all
}

/// The trees that the histories in a directory name, by the parents of their groups.
fn trees_named(record: &Record) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for file in std::fs::read_dir(&**record).expect("histories were recorded") {
        let path = file.expect("it can be listed").path();
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        for line in text.lines().filter(|line| line.contains(r#""ev":"overlay""#)) {
            // The end of a killed node's file may be half a line.
            let Ok(event) = serde_json::from_str::<serde_json::Value>(line) else { continue };
            let parents = event["parents"].as_array().expect("a list of parents");
            let number = |parent: &serde_json::Value| {
                let name = parent.as_str().and_then(|name| name.strip_prefix('g'));
                name.unwrap_or("-1").to_string()
            };
            all.insert(parents.iter().map(number).collect::<Vec<_>>().join(","));
        }
    }
    all
}

/// The longest time in which no replica of a group delivered, of any group, around an event; in milliseconds.
fn longest_gap(deliveries: &BTreeMap<String, Vec<u64>>, (begun, over): (Time, Time)) -> f64 {
    let until = over.0 + AFTERMATH.as_nanos() as u64;
    let near = |pair: &&[u64]| pair[1] >= begun.0 && pair[0] <= until;
    let gaps = deliveries.values().flat_map(|times| times.windows(2).filter(near));
    gaps.map(|pair| pair[1] - pair[0]).max().unwrap_or_default() as f64 / 1e6
}

/// Has the tree changed under load, and the next event follow after a while.
fn change(up: &UpCluster, load: &ClientLoad, tree: &str) -> [Time; 4] {
    let begun = (load.now(), clock::now());
    let said = told(&overlay(up, &["set", tree]));
    let over = (load.now(), clock::now());
    print!("{said}");
    assert!(said.contains("in force after"), "{said}");
    load.next_round();
    std::thread::sleep(PEACE);
    [begun.0, over.0, begun.1, over.1]
}

/// Has two operators ask for different trees at one time: each gets its tree, one after the other, or hears which one is in force.
fn two_operators(up: &UpCluster) {
    let trees = ["2,2,-1", "1,-1,1"];
    let outputs = std::thread::scope(|scope| {
        let set = |tree| scope.spawn(move || overlay(up, &["set", tree]));
        trees.map(set).map(|set| set.join().expect("it does not panic"))
    });
    let (number, parents, _) = in_force(up);
    let made = outputs.iter().filter(|output| output.status.success()).count();
    // One whose tree was in force for a moment may have looked too late to see it.
    assert!((4 + made.max(1) as u64..=6).contains(&number), "{number}: {outputs:?}");
    assert!(made >= 1 && trees.contains(&&*parents), "{parents}: {outputs:?}");
    for output in outputs.iter().filter(|output| !output.status.success()) {
        let why = errors(output);
        assert!(why.contains(&format!("in force is {parents} (after {number} ch")), "{output:?}");
    }
}

#[test]
fn commands_are_linearizable_while_the_tree_changes_and_a_node_that_returns_has_the_one_in_force() {
    let (_turn, _limit) = alone();
    let record = Record::new("overlays");
    let options = ["--shards", "3", "--set", "dynamic_overlay=1", "--record"];
    let mut up = UpCluster::start(&[&options[..], &[&record.display().to_string()]].concat());
    assert_eq!(in_force(&up), (0, "-1,0,0".to_string(), 9), "the tree of its file");
    // Of the supervisor, whose process is not killed: the last lines of the history of one that is would be lost. The
    // change is asked for in that of a node, so that this one has to learn of it.
    let load = ClientLoad::new(&up.redis, 3, 8);
    let mut events = Vec::new();
    load.run(|load| {
        std::thread::sleep(PEACE);
        load.next_round();
        events.push(("the first change", change(&up, load, "depth")));
        events.push(("the second change", change(&up, load, "2,2,-1")));
        let again = told(&overlay(&up, &["set", "2,2,-1"]));
        assert!(again.contains("in force already"), "{again}");
        // One after the other: each shard is led by a node that came back, and knows the tree from the others.
        for node in 0..3 {
            up.wait_until_ready();
            let begun = (load.now(), clock::now());
            let before = up.kill(node);
            up.wait_for_return(node, before);
            events.push(("a node is killed", [begun.0, load.now(), begun.1, clock::now()]));
            assert_eq!(in_force(&up), (2, "2,2,-1".to_string(), 9), "n{node} came back");
            load.next_round();
            std::thread::sleep(PEACE);
        }
        events.push(("the third change", change(&up, load, "-1,2,0")));
        // The node that is asked first dies about then.
        let before = std::thread::scope(|scope| {
            let kill = scope.spawn(|| up.kill(0));
            events.push(("a change while a node is killed", change(&up, load, "-1,0,0")));
            kill.join().expect("it does not panic")
        });
        up.wait_for_return(0, before);
        load.wait_for_answers(400);
    });
    assert_eq!(in_force(&up), (4, "-1,0,0".to_string(), 9));
    two_operators(&up);
    assert_eq!(up.stop(), Some(0));
    let all = deliveries(&record);
    for (event, [.., begun, over]) in &events {
        println!(
            "{event}: no delivery in some shard for {:.2} ms",
            longest_gap(&all, (*begun, *over))
        );
    }
    let silences: Vec<_> =
        events.iter().map(|(name, [begun, over, ..])| (*name, *begun, *over)).collect();
    let recording = judge_events(load, &silences, "overlays");
    assert!(recording.answered() > 400, "{}", recording.figures());
    let dir = record.display().to_string();
    for (more, holds) in [
        (&[][..], "holds       uniform-acyclic-order"),
        // Which replicas took part in a command is judged by the trees that they name.
        (&["--require", "partially-genuine"], "holds       partially-genuine"),
    ] {
        let checked = run(&[&["check", &dir], more].concat());
        let report = String::from_utf8_lossy(&checked.stdout).into_owned();
        assert!(checked.status.success(), "{report}{}", errors(&checked));
        assert!(report.contains(holds), "{report}");
    }
    // A killed node loses the end of its history, so there may be nothing of the first change. A replica names its tree
    // when it takes part in a command, and behind the last change there is none.
    let named = trees_named(&record);
    for tree in ["2,2,-1", "-1,2,0", "-1,0,0"] {
        assert!(named.contains(tree), "the histories name {tree}, which was in force: {named:?}");
    }
}

/// The error and exit code of a command that must fail.
fn refused(output: &Output) -> (Option<i32>, String) {
    assert!(!output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    (output.status.code(), errors(output))
}

#[test]
fn a_tree_that_cannot_be_is_refused_with_what_to_do() {
    let (_turn, _limit) = alone();
    let up = UpCluster::start(&["--shards", "3", "--set", "dynamic_overlay=1", "--no-node-fronts"]);
    for (tree, says) in [
        ("-1,0", "lists 2 parents for 3 groups"),
        ("-1,0,7", "the parent of group 2 is not another group"),
        ("-1,-1,0", "has 2 roots"),
        ("-1,2,1", "cycle"),
        ("star", "breadth, depth or base"),
    ] {
        let (code, why) = refused(&overlay(&up, &["set", tree]));
        assert!(code == Some(2) && why.contains(says), "{tree}: {code:?}: {why}");
    }
    // Only the owner of a node's process may ask it for a change.
    let socket = std::fs::metadata(up.data.join("n0.sock")).expect("the socket is there");
    assert_eq!(socket.permissions().mode() & 0o777, 0o600);
    let (code, why) = refused(&overlay(&up, &["set", "depth"]));
    assert!(code == Some(1) && why.contains("n2: this node serves no clients"), "{code:?}: {why}");
    assert_eq!(in_force(&up), (0, "-1,0,0".to_string(), 9), "nothing has changed");
    let path = unique("fixed.toml");
    let file = path.display().to_string();
    for (text, says) in [
        (
            "protocol = \"tram\"\n",
            "dynamic_overlay is not 1. Start it with --set dynamic_overlay=1",
        ),
        (
            "protocol = \"multi-ring-memory\"\n",
            "has no tree of groups that can be changed; start a cluster with --protocol tram",
        ),
    ] {
        std::fs::write(&path, text).expect("a file can be written");
        for words in [&["set", "depth"][..], &["show"]] {
            let output = run(&[&["overlay", "--config", &file], words].concat());
            let (code, why) = refused(&output);
            assert!(code == Some(2) && why.contains(says), "{text}: {code:?}: {why}");
        }
    }
    std::fs::remove_file(&path).expect("it is there");
}

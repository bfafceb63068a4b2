//! A rolling restart: each node in turn is asked to end, as systemd would, and comes back, while
//! clients of the nodes' own gateways continue.

use crate::clients::ClientLoad;
use crate::harness::{UpCluster, signal, unique};
use crate::{CLIENTS, alone, judge};
use amcast::core::Time;
use amcast::node::cluster_dir::ClusterDir;
use rustix::process::Signal;
use std::fs;
use std::time::Duration;

const NODES: usize = 3;

/// How long the cluster serves between two restarts.
const PEACE: Duration = Duration::from_millis(400);

#[test]
fn a_rolling_restart_of_all_nodes_is_no_error_for_anybody() {
    let _alone = alone();
    let mut up = UpCluster::start_in_bare(unique("rolling"), &[]);
    let dir = ClusterDir::at(&up.data).expect("it is a cluster's");
    let gateway = |rank| dir.gateways_of(rank).expect("every node serves").redis;
    let load = ClientLoad::at((0..NODES).map(gateway).collect(), 3, CLIENTS);
    let mut restarts: Vec<(usize, Time, Time)> = Vec::new();
    load.run(|load| {
        for rank in [0, 1, 2, 0, 1, 2] {
            std::thread::sleep(PEACE);
            load.next_round();
            up.wait_until_ready();
            let os_pid = up.nodes()[rank].as_ref().expect("it answers").os_pid;
            let asked = load.now();
            signal(os_pid, Signal::TERM);
            up.wait_for_return(rank, os_pid);
            restarts.push((rank, asked, load.now()));
            load.next_round();
        }
        std::thread::sleep(PEACE);
        load.wait_for_answers(500);
    });
    let (errors, ends) = (load.errors(), load.ends());
    let log = fs::read_to_string(up.data.join("n1.log")).expect("a node has a log");
    let recording = load.into_recording();
    let lives = dir.lives();
    assert_eq!(up.stop(), Some(0));
    let states = |rank: usize| fs::read_dir(up.data.join(format!("n{rank}.data/state")));
    let saved = (0..NODES).filter(|&rank| states(rank).is_ok_and(|d| d.count() > 0)).count();
    let report = judge(&recording);
    println!("rolling: {}; {ends} connections ended\n{report}", recording.figures());
    for &(rank, asked, back) in &restarts {
        let ms = |ns: u64| ns as f64 / 1e6;
        println!(
            "n{rank} was asked to end at {:.0} ms; no answer for {:.1} ms; back after {:.0} ms",
            ms(asked.0),
            ms(recording.longest_silence(asked, back)),
            ms(back.0 - asked.0),
        );
    }
    if !report.all_hold() {
        let path = recording.save("rolling");
        panic!("{report}\nthe history is kept: amcast check {}", path.display());
    }
    // Only a command that was surely not executed may get the error that asks to try again.
    let wrong: Vec<_> = errors.iter().filter(|e| !e.contains("TRYAGAIN")).collect();
    assert!(wrong.is_empty(), "{} errors: {:?}", wrong.len(), &wrong[..wrong.len().min(3)]);
    let orderly = |life: &amcast::node::supervisor::NodeProcess| {
        life.starts == 3 && life.last_end.as_deref() == Some("ended with exit code 0")
    };
    assert!(lives.iter().all(orderly), "{lives:?}");
    assert!(ends >= CLIENTS as u64, "every client was on a node that ended: {ends}");
    assert!(log.contains("the state is on disk"), "it saved its state before it ended: {log}");
    assert_eq!(saved, NODES, "every node has a state on disk");
    assert!(recording.answered() > 500, "{}", recording.figures());
    fs::remove_dir_all(&up.data).expect("it is ours");
}

//! Damaged data on a disk.

use crate::durable::all_there;
use crate::harness::{UpCluster, exists, run};
use crate::write_while;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// Changes a byte in the middle of what is written in the first file of a log.
fn damage(log: &Path) {
    let path = log.join("00000000000000000000.segment");
    let mut bytes = fs::read(&path).unwrap();
    let written: Vec<usize> = (0..bytes.len()).filter(|&i| bytes[i] != 0).collect();
    bytes[written[written.len() / 2]] ^= 0xff;
    fs::write(&path, bytes).unwrap();
}

#[test]
fn a_cluster_goes_on_without_the_node_whose_log_is_damaged_and_says_what_to_do() {
    let _limit = amcast_test_policy::time_limit();
    let mut up = UpCluster::start(&["--protocol", "multi-ring"]);
    let data = up.data.clone();
    let acked = write_while(&up, || thread::sleep(Duration::from_millis(400)));
    assert_eq!(up.stop(), Some(0));
    let own = data.join("n1.data");
    damage(&own.join("g1"));
    // It says that it serves: a majority does.
    let mut up = UpCluster::start_in_bare(data.clone(), &[]);
    all_there(&up, &acked);
    let status = || {
        let output = run(&["status", "--data", &data.display().to_string()]);
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let verify = format!("amcast log-file verify {}", own.join("g1").display());
    let told = status();
    assert!(told.contains(&verify) && told.contains("amcast log-file repair"), "{told}");
    // The others have the records that were cut off or lost.
    fs::rename(&own, data.join("n1.before")).unwrap();
    let begun = Instant::now();
    while !up.nodes().iter().all(|node| node.as_ref().is_some_and(|node| node.ready)) {
        assert!(begun.elapsed() < Duration::from_secs(50), "{}", status());
        thread::sleep(Duration::from_millis(50));
    }
    assert!(!status().contains(&verify), "that was mended: {}", status());
    all_there(&up, &acked);
    assert_eq!(up.stop(), Some(0));
    assert!(exists(&own));
    fs::remove_dir_all(&data).unwrap();
}

#[test]
fn a_cluster_whose_majority_is_damaged_ends_and_names_the_nodes() {
    let _limit = amcast_test_policy::time_limit();
    let mut up = UpCluster::start(&["--protocol", "multi-ring", "--shards", "1"]);
    let data = up.data.clone();
    write_while(&up, || thread::sleep(Duration::from_millis(200)));
    assert_eq!(up.stop(), Some(0));
    for rank in [0, 2] {
        damage(&data.join(format!("n{rank}.data/g0")));
    }
    let dir = data.display().to_string();
    // The second time nobody has seen the output of the first.
    for _ in 0..2 {
        let output = run(&[
            "up",
            "--redis-port",
            "0",
            "--log-port",
            "0",
            "--http-port",
            "0",
            "--data",
            &dir,
        ]);
        let said = crate::harness::errors(&output);
        assert_eq!(output.status.code(), Some(1), "{said}");
        for node in ["n0", "n2"] {
            assert!(said.contains(&format!("{node} cannot be started")), "{said}");
            let why = |line: &&str| line.starts_with(&format!("amcast {node}: "));
            let causes = said.lines().filter(why).filter(|line| line.contains("damaged at byte"));
            assert_eq!(causes.count(), 1, "{said}");
        }
        assert!(output.stdout.is_empty());
    }
    fs::remove_dir_all(&data).unwrap();
}

//! A disk that is full: its node ends, the others continue, and no acknowledged write is lost.

use crate::by_hand::{NODES, ThreeHosts};
use crate::client;
use crate::harness::unique;
use amcast::log::proto::ReadRequest;
use amcast_test_policy::skip;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// The node whose disk is small.
const SMALL: usize = 2;

/// The bytes of one append.
const VALUE_BYTES: usize = 200_000;

/// Why there is no small disk.
const NO_MOUNT: &str = "this user may not mount a tmpfs";

/// How long anything here may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Mounts a file system of so many MB at `path`; false where this user may not.
fn mount(path: &Path, mb: u64, again: &str) -> bool {
    let options = format!("{again}size={mb}m,mode=700");
    let mut mount = Command::new("mount");
    mount.args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(path);
    mount.output().is_ok_and(|output| output.status.success())
}

/// A small disk. It goes with the test.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn new(mb: u64) -> Option<Self> {
        let path = unique("full");
        fs::create_dir(&path).unwrap();
        if !mount(&path, mb, "") {
            fs::remove_dir(&path).unwrap();
            return None;
        }
        Some(Self(path))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg("--lazy").arg(&self.0).status();
        assert!(unmounted.is_ok_and(|status| status.success()) || std::thread::panicking());
        let _ = fs::remove_dir(&self.0);
    }
}

fn value(n: u64) -> Vec<u8> {
    let mut value = format!("{n} ").into_bytes();
    value.resize(VALUE_BYTES, b'x');
    value
}

/// Appends until the node whose disk is small has ended, and continues for a while; then gives it
/// room, starts it again, and reads from it what was acknowledged, with the help of one other.
fn fill(hosts: &mut ThreeHosts, disk: &SmallDisk, says: &str) {
    hosts.start(0..NODES);
    hosts.wait_until_ready(0..NODES);
    let others: Vec<String> = hosts.log[..SMALL].to_vec();
    let mut writer = client(&others, 0);
    let (begun, mut count, mut left) = (Instant::now(), 0, 30);
    while left > 0 {
        assert_eq!(writer.append("orders", value(count)).unwrap(), count);
        count += 1;
        let small = hosts.running[SMALL].as_mut().expect("it was started");
        if let Some(status) = small.try_wait().unwrap() {
            assert_eq!(status.code(), Some(1), "it ends in good order, and not by a panic");
            left -= 1;
        }
        assert!(begun.elapsed() < PATIENCE, "the disk takes all");
    }
    let log = fs::read_to_string(hosts.disk(SMALL).join("n2.log")).unwrap();
    let last = log.lines().rev().find(|line| line.starts_with("amcast n2: ")).unwrap_or(&log);
    assert!(last.contains(says) && last.contains(&disk.0.display().to_string()), "{last}");
    assert!(mount(&disk.0, 1000, "remount,"));
    hosts.start([SMALL]);
    hosts.wait_until_ready(0..NODES);
    hosts.kill([0]);
    let mut reader = client(&hosts.log[SMALL..], 0);
    for from in 0..count {
        let asked = ReadRequest { log: "orders".to_string(), from, max_values: 1, max_bytes: 0 };
        let read = reader.read(asked).unwrap();
        assert_eq!(read.values.first().map(|v| v.to_vec()), Some(value(from)), "{from}");
    }
}

#[test]
fn a_node_whose_log_of_what_is_ordered_finds_no_room_ends_and_nothing_is_lost() {
    let _limit = amcast_test_policy::time_limit();
    let Some(disk) = SmallDisk::new(60) else {
        return skip(
            "a_node_whose_log_of_what_is_ordered_finds_no_room_ends_and_nothing_is_lost",
            NO_MOUNT,
        );
    };
    let data = disk.0.join("d2");
    let mut hosts = ThreeHosts::with(1, |base, node, file| {
        file.log_dir = Some(base.to_path_buf());
        if node == SMALL {
            file.data = Some(data.clone());
        }
    });
    std::os::unix::fs::symlink(&data, hosts.disk(SMALL)).unwrap();
    fill(&mut hosts, &disk, "full");
}

#[test]
fn a_node_whose_files_of_values_find_no_room_ends_and_nothing_is_lost() {
    let _limit = amcast_test_policy::time_limit();
    let Some(disk) = SmallDisk::new(20) else {
        return skip(
            "a_node_whose_files_of_values_find_no_room_ends_and_nothing_is_lost",
            NO_MOUNT,
        );
    };
    let mut hosts = ThreeHosts::with(1, |base, node, file| {
        file.log_mb = Some(1);
        file.log_dir = Some(if node == SMALL { disk.0.clone() } else { base.to_path_buf() });
    });
    fill(&mut hosts, &disk, "full");
}

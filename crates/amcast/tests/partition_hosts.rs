//! Members of the partition-available log on hosts of their own, which are cut into components: each takes appends, and all have
//! one log when the links are whole again. Needs root, and network namespaces; where they are not to be had it says so and
//! passes.

#[path = "../examples/partition_log/process.rs"]
mod process;

use amcast::check::{History, check};
use amcast::core::Property;
use amcast_hosts::{HostLab, LabFeature, LinkSettings};
use amcast_test_policy::skip;
use process::{MemberProcess, wait_for_one_view};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

const HOSTS: usize = 5;

const TEST: &str = "hosts_that_are_cut_into_components_all_take_appends_and_end_with_one_log";

/// The first number of the appends of one turn, which are this many at each member.
const APPENDS: u64 = 5;

/// A directory that is removed when it is dropped.
struct HostsDir(PathBuf);

impl Drop for HostsDir {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// The example's program, built beside this test.
fn program() -> PathBuf {
    let test = std::env::current_exe().expect("a test has a file");
    let built = test.parent().and_then(|deps| deps.parent()).expect("it lies in target/*/deps");
    built.join("examples/partition_log")
}

fn start(lab: &HostLab, dir: &Path, rank: usize) -> MemberProcess {
    let addresses = (0..HOSTS).map(|host| format!("{}:7700", lab.host(host).address()));
    let mut command = lab.host(rank).command(program());
    command.arg("member").arg(rank.to_string()).arg(dir.join(rank.to_string()));
    command.arg(dir.join("secret")).args(addresses).env("PARTITION_LOG_RECORD", dir.join("record"));
    MemberProcess::start(command).expect("examples are built with the tests")
}

/// Has each of these members append in a turn of its own. Gives the configurations in which that was ordered.
fn append_all(members: &mut [MemberProcess], of: &[usize], turn: u64) -> BTreeSet<String> {
    let mut configurations = BTreeSet::new();
    for &rank in of {
        for number in turn * APPENDS..(turn + 1) * APPENDS {
            let line = format!("append {rank} {number} turn-{turn}");
            let told = members[rank].ask_one(&line).expect("it takes appends");
            let place = told.strip_prefix("appended ").expect("a place");
            configurations.extend(place.split(' ').next().map(str::to_string));
        }
    }
    configurations
}

/// Waits until these members are one view.
fn come_together(members: &mut [MemberProcess], of: &[usize]) {
    let of = members.iter_mut().enumerate().filter(|(rank, _)| of.contains(rank));
    let mut of: Vec<_> = of.map(|(_, member)| member).collect();
    wait_for_one_view(&mut of).expect("they come together");
}

/// Judges the histories of all members.
fn judge(record: &Path) {
    let mut lines = BTreeMap::new();
    let files = std::fs::read_dir(record).expect("histories were written").flatten();
    let files = files.filter(|entry| entry.path().extension().is_some_and(|e| e == "jsonl"));
    for (file, entry) in files.enumerate() {
        let text = std::fs::read_to_string(entry.path()).expect("a history is text");
        let mut last = 0;
        for (at, line) in text.lines().enumerate() {
            let event: serde_json::Value = serde_json::from_str(line).expect("a line of JSON");
            let t = event.get("t").and_then(serde_json::Value::as_u64).unwrap_or(0);
            // Lines of one file stay in their order.
            last = t.max(last);
            lines.insert((last, file, at), line.to_string());
        }
    }
    let mut history = History::new();
    lines.values().for_each(|line| history.push_line(line).expect("a line of a history"));
    history.push_line(r#"{"ev":"end"}"#).expect("a line of a history");
    let promised = amcast::protocols::catalog::find("toto-partitionable").expect("it is there");
    let promised: Vec<Property> = promised.about().promises.to_vec();
    let report = check(&history, &promised);
    println!("{report}");
    assert!(report.all_hold(), "{report}");
    assert!(history.messages() > 100 && history.deliveries() > 300, "it is too short");
}

#[test]
fn hosts_that_are_cut_into_components_all_take_appends_and_end_with_one_log() {
    let _limit = amcast_test_policy::time_limit();
    if let Some(why) = HostLab::missing_feature(&[LabFeature::Faults]) {
        return skip(TEST, format_args!("no hosts here that can be cut: {why}"));
    }
    let lab = HostLab::new(HOSTS, LinkSettings::default()).unwrap_or_else(|e| panic!("{e}"));
    let dir = std::env::temp_dir().join(format!("partition-hosts-{}", std::process::id()));
    let dir = HostsDir(dir);
    for rank in 0..HOSTS {
        std::fs::create_dir_all(dir.0.join(rank.to_string())).expect("a directory can be made");
    }
    std::fs::write(dir.0.join("secret"), [b'x'; 40]).expect("a file can be written");
    let mut members: Vec<_> = (0..HOSTS).map(|rank| start(&lab, &dir.0, rank)).collect();
    let all = [0, 1, 2, 3, 4];
    come_together(&mut members, &all);
    append_all(&mut members, &all, 0);
    let (pair, three): (&[usize], &[usize]) = (&[0, 1], &[2, 3, 4]);
    lab.partition(&[pair, three]).expect("links can be cut");
    come_together(&mut members, pair);
    come_together(&mut members, three);
    let by_pair = append_all(&mut members, pair, 1);
    let by_three = append_all(&mut members, three, 1);
    assert!(by_pair.is_disjoint(&by_three), "{by_pair:?} {by_three:?}");
    // Cut otherwise, before they can merge: one of them hears nobody.
    lab.heal().expect("links can be healed");
    lab.partition(&[&[0, 2], &[1], &[3, 4]]).expect("links can be cut");
    for side in [&[0, 2][..], &[1], &[3, 4]] {
        come_together(&mut members, side);
        append_all(&mut members, side, 2);
    }
    lab.heal().expect("links can be healed");
    come_together(&mut members, &all);
    append_all(&mut members, &all, 3);
    let entries = HOSTS * APPENDS as usize * 4;
    let logs = members.iter_mut().map(|member| member.wait_for_entries(entries).expect("a log"));
    let logs: Vec<_> = logs.collect();
    assert!(logs.iter().all(|log| *log == logs[0]), "{logs:#?}");
    let ids: BTreeSet<_> = logs[0].iter().filter_map(|line| line.split(' ').rev().nth(1)).collect();
    assert_eq!((logs[0].len(), ids.len()), (entries, entries), "each is there once");
    let places = logs[0].iter().filter_map(|line| line.split(" #").next());
    let places: BTreeSet<_> = places.collect();
    println!("{entries} entries, ordered in {places:?}");
    assert!(places.len() >= 7, "all, 2 sides, 3 sides, all: {places:?}");
    members.into_iter().for_each(|member| member.end().expect("it leaves in good order"));
    judge(&dir.0.join("record"));
}

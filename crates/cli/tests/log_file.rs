//! `amcast log-file` on logs that are sound, damaged, and in use.

use amcast_core::step::Ticket;
use amcast_storage::{CheckpointDir, Wal, WalOptions};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The program's output and exit status.
struct ProgramOutput {
    out: String,
    err: String,
    code: Option<i32>,
}

fn amcast(words: &[&str], path: &Path) -> ProgramOutput {
    let mut command = Command::new(env!("CARGO_BIN_EXE_amcast"));
    let ended = command.arg("log-file").args(words).arg(path).output().expect("it starts");
    let text = |bytes| String::from_utf8(bytes).expect("it is text");
    ProgramOutput { out: text(ended.stdout), err: text(ended.stderr), code: ended.status.code() }
}

fn json(ended: &ProgramOutput) -> Value {
    serde_json::from_str(&ended.out).unwrap_or_else(|e| panic!("{e}: {}", ended.out))
}

/// One test at a time: a process that another test starts has the locks that are held here until it runs its
/// own program.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A directory that goes when the test ends well.
struct Scratch(PathBuf);

impl Scratch {
    /// With a log of ten records.
    fn with_log(name: &str) -> Self {
        let name = format!("amcast-log-file-{name}-{}", std::process::id());
        let dir = Self(std::env::temp_dir().join(name));
        let mut log = dir.open();
        for n in 0..10 {
            log.append(Ticket(n), format!("record-{n}").as_bytes(), true).expect("it is taken");
        }
        log.close().expect("nothing fails");
        dir
    }

    fn open(&self) -> Wal {
        let options = WalOptions { segment_bytes: 16 << 10, ..WalOptions::default() };
        Wal::open(&self.0, &options, Arc::new(|| {}), |_, _| {}).expect("it opens").0
    }

    /// Changes a byte of a record.
    fn damage(&self, record: &str) {
        let path = self.0.join("00000000000000000000.segment");
        let mut bytes = fs::read(&path).expect("it is there");
        let at = bytes.windows(record.len()).position(|part| part == record.as_bytes());
        bytes[at.expect("it is there")] ^= 1;
        fs::write(&path, bytes).expect("it can be written");
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            fs::remove_dir_all(&self.0).expect("it can be removed");
        }
    }
}

#[test]
fn a_sound_log_is_verified_and_its_records_are_printed() {
    let _limit = amcast_test_policy::time_limit();
    let _alone = alone();
    let dir = Scratch::with_log("sound");
    let told = amcast(&["verify"], &dir.0);
    assert_eq!(told.code, Some(0), "{}{}", told.out, told.err);
    assert!(told.out.contains("10 records, 0 to 9; closed in good order"), "{}", told.out);
    let log = json(&amcast(&["verify", "--json"], &dir.0));
    assert_eq!((&log["sound"], &log["log"]["next"]), (&Value::Bool(true), &Value::from(10)));
    let told = amcast(&["dump", "--from", "3", "--to", "4"], &dir.0);
    assert_eq!(
        told.out, "3 life 0 8 bytes: \"record-3\"\n4 life 0 8 bytes: \"record-4\"\n",
        "{}",
        told.err
    );
    let one = dir.0.join("00000000000000000000.segment");
    let records = json(&amcast(&["dump", "--json"], &one));
    assert_eq!(records["records"].as_array().map(Vec::len), Some(10));
    let none = json(&amcast(&["dump", "--json", "--from", "50"], &one));
    assert_eq!(none["records"].as_array().map(Vec::len), Some(0));
    let told = amcast(&["dump", "--protocol", "skeen"], &dir.0);
    assert_eq!((told.code, told.out.lines().count()), (Some(0), 10), "{}", told.err);
    assert_eq!(amcast(&["dump", "--protocol", "nope"], &dir.0).code, Some(2));
}

#[test]
fn a_damaged_log_is_told_and_cut_only_on_demand() {
    let _limit = amcast_test_policy::time_limit();
    let _alone = alone();
    let dir = Scratch::with_log("damaged");
    dir.damage("record-6");
    let told = amcast(&["verify"], &dir.0);
    assert_eq!(told.code, Some(1));
    assert!(told.out.contains("record 6 does not fit its sum"), "{}", told.out);
    assert!(told.out.contains("3 whole records are behind the damage"), "{}", told.out);
    let dumped = amcast(&["dump"], &dir.0);
    assert_eq!(dumped.code, Some(1));
    assert!(dumped.out.contains("\n!7 life 0"), "{}", dumped.out);
    assert!(!dumped.out.contains("\n6 life"), "{}", dumped.out);

    let asked = amcast(&["repair"], &dir.0);
    assert_eq!(asked.code, Some(1));
    assert!(asked.out.contains("from record 6 on all is lost; 3 of these"), "{}", asked.out);
    assert_eq!(amcast(&["verify"], &dir.0).code, Some(1), "nothing was changed");
    let mark = dir.0.with_extension("lost");
    assert!(!mark.exists());

    let done = amcast(&["repair", "--yes", "--json"], &dir.0);
    assert_eq!(done.code, Some(0), "{}", done.err);
    let kept = json(&done)["cut"]["kept"][0].as_str().expect("it is kept").to_string();
    let kept = fs::read(kept).expect("it is there");
    assert!(kept.windows(8).any(|part| part == b"record-9"));
    assert_eq!(amcast(&["verify"], &dir.0).code, Some(0));
    assert_eq!(dir.open().next(), 6);
    fs::remove_file(mark).expect("its process learns that something is gone");
    let again = amcast(&["repair", "--yes"], &dir.0);
    assert!(again.out.contains("nothing was changed"), "{}", again.out);
}

#[test]
fn a_log_that_was_cut_short_is_told_and_cut_there_only_on_demand() {
    let _limit = amcast_test_policy::time_limit();
    let _alone = alone();
    let zeroed = |bytes: &mut Vec<u8>| {
        let at = bytes.windows(8).position(|part| part == b"record-6").expect("it is there");
        bytes[at - 32..].fill(0);
    };
    let halved = |bytes: &mut Vec<u8>| {
        let at = bytes.windows(8).position(|part| part == b"record-6").expect("it is there");
        bytes.truncate(at);
    };
    let says = "the log was cut short";
    let is_short = "the file is shorter than it was made";
    for (name, damage, says) in
        [("zeroed", &zeroed as &dyn Fn(&mut Vec<u8>), says), ("halved", &halved, is_short)]
    {
        let dir = Scratch::with_log(name);
        let path = dir.0.join("00000000000000000000.segment");
        let mut bytes = fs::read(&path).expect("it is there");
        damage(&mut bytes);
        fs::write(&path, bytes).expect("it can be written");
        let told = amcast(&["verify"], &dir.0);
        assert_eq!(told.code, Some(1), "{}{}", told.out, told.err);
        assert!(told.out.contains("record 6 ") && told.out.contains(says), "{}", told.out);
        let log = json(&amcast(&["verify", "--json"], &dir.0));
        assert_eq!((&log["sound"], &log["log"]["next"]), (&Value::Bool(false), &Value::from(6)));
        assert_eq!(log["log"]["synced"], Value::from(10));
        let options = WalOptions { segment_bytes: 16 << 10, ..WalOptions::default() };
        let opened = Wal::open(&dir.0, &options, Arc::new(|| {}), |_, _| {});
        assert!(opened.is_err_and(|e| e.to_string().contains("amcast log-file repair")));
        assert_eq!(amcast(&["repair", "--yes"], &dir.0).code, Some(0));
        assert_eq!(amcast(&["verify"], &dir.0).code, Some(0));
        assert_eq!(dir.open().next(), 6);
        fs::remove_file(dir.0.with_extension("lost")).expect("its process learns of it");
    }
}

#[test]
fn a_log_that_ends_before_a_checkpoint_of_its_node_is_told() {
    let _limit = amcast_test_policy::time_limit();
    let _alone = alone();
    let name = format!("amcast-log-file-older-{}", std::process::id());
    let data = std::env::temp_dir().join(name);
    fs::create_dir_all(&data).expect("it can be made");
    let dir = Scratch(data.join("g0"));
    dir.open().close().expect("nothing fails");
    let verify = || amcast(&["verify", "--json"], &dir.0);
    let log = json(&verify())["log"]["log"].as_str().expect("it has an id").to_string();
    for (synced, code) in [(0, 0), (7, 1)] {
        let ends = format!("{{\"g0\":{{\"log\":\"{log}\",\"synced\":{synced}}}}}");
        fs::write(data.join("state.logs"), ends).expect("it can be written");
        assert_eq!(verify().code, Some(code));
    }
    let told = amcast(&["verify"], &dir.0);
    assert!(
        told.out.contains("synced up to record 7 when the node wrote a checkpoint"),
        "{}",
        told.out
    );
    drop(dir);
    fs::remove_dir_all(data).expect("it can be removed");
}

#[test]
fn a_log_that_is_in_use_is_refused() {
    let _limit = amcast_test_policy::time_limit();
    let _alone = alone();
    let dir = Scratch::with_log("used");
    let log = dir.open();
    for words in [&["verify"][..], &["dump"], &["repair", "--yes"]] {
        let told = amcast(words, &dir.0);
        assert_eq!(told.code, Some(1), "{words:?}: {}", told.out);
        let who = format!("is in use by process {}", std::process::id());
        assert!(told.err.contains(&who), "{}", told.err);
    }
    drop(log);
    assert_eq!(amcast(&["verify"], &dir.0).code, Some(0));
    let elsewhere = std::env::temp_dir().join("amcast-log-file-that-is-not-there");
    for words in [&["verify"][..], &["dump"], &["repair", "--yes"]] {
        let told = amcast(words, &elsewhere);
        assert_eq!(told.code, Some(2), "{words:?}: {}", told.err);
        assert!(
            told.err.contains("that-is-not-there: there is nothing of this name"),
            "{}",
            told.err
        );
    }
    // A node's directory has several, and a cluster's one has several of these.
    let node = dir.0.join("cluster/n0.data");
    fs::create_dir_all(node.join("state")).expect("it can be made");
    assert!(amcast(&["verify"], &node).err.contains("give a part of it"));
    let told = amcast(&["verify"], &dir.0.join("cluster"));
    assert_eq!(told.code, Some(2), "{}", told.err);
    assert!(told.err.contains("n0.data/g0 or n0.data/state"), "{}", told.err);
}

#[test]
fn checkpoints_are_verified() {
    let _limit = amcast_test_policy::time_limit();
    let _alone = alone();
    let name = format!("amcast-log-file-checkpoints-{}", std::process::id());
    let dir = Scratch(std::env::temp_dir().join(name));
    let opened = CheckpointDir::open(&dir.0, Arc::new(|| {}), |_| {});
    let (mut checkpoints, _) = opened.expect("it opens");
    checkpoints.begin(17);
    checkpoints.give(b"the state");
    checkpoints.finish();
    drop(checkpoints);
    let told = amcast(&["verify"], &dir.0);
    assert_eq!(told.out, "00000000000000000017.checkpoint: whole, 9 bytes\n", "{}", told.err);
    let path = dir.0.join("00000000000000000017.checkpoint");
    let mut bytes = fs::read(&path).expect("it is there");
    bytes[85] ^= 1;
    fs::write(&path, bytes).expect("it can be written");
    for path in [&dir.0, &path] {
        let told = amcast(&["verify", "--json"], path);
        assert_eq!(told.code, Some(1), "{}", told.err);
        let says = json(&told)["checkpoints"][0]["says"].to_string();
        assert!(says.contains("damaged at byte 64"), "{says}");
    }
}

//! How long keys have been idle: since their last change, in ordered time.

use super::*;
use crate::data::Data;
use crate::store::NEVER_MS;
use amcast_smr::machine::ShardedMachine;

/// Runs commands one after the other, at times in seconds.
struct Timeline {
    node: TestNode,
    seq: u64,
}

impl Timeline {
    fn at(&mut self, second: u64, text: &str) -> String {
        self.seq += 1;
        self.node.run(&cast(self.seq, self.seq, 1000 * second, text))
    }
}

#[test]
fn a_key_is_idle_since_its_last_change_also_after_a_restart() {
    let _limit = amcast_test_policy::time_limit();
    let mut line = Timeline { node: TestNode::new(), seq: 0 };
    line.at(100, "SET k v");
    assert_eq!(line.at(100, "OBJECT IDLETIME k"), ":0\r\n");
    assert_eq!(line.at(130, "GET k"), "$1\r\nv\r\n");
    assert_eq!(line.at(140, "OBJECT IDLETIME k"), ":40\r\n", "a read does not count");
    line.node.restart();
    assert_eq!(line.at(150, "OBJECT IDLETIME k"), ":50\r\n");
    for (from, change) in [(200, "APPEND k w"), (300, "EXPIRE k 1000"), (400, "PERSIST k")] {
        line.at(from, change);
        assert_eq!(line.at(from + 7, "OBJECT IDLETIME k"), ":7\r\n", "{change}");
    }
    assert_eq!(line.at(500, "SADD s m"), ":1\r\n");
    assert_eq!(line.at(510, "SADD s m"), ":0\r\n");
    assert_eq!(line.at(520, "OBJECT IDLETIME s"), ":20\r\n", "what changes nothing does not count");
    assert_eq!(line.at(530, "SADD s n"), ":1\r\n");
    assert_eq!(line.at(540, "OBJECT IDLETIME s"), ":10\r\n");
    assert_eq!(line.at(540, "OBJECT IDLETIME missing"), "_\r\n");
}

#[test]
fn moving_a_key_to_another_shard_is_no_change_of_it() {
    let new = || Store::new(1.into(), Arc::new(Partitions::by_slot(SHARDS)), 0);
    let (mut from, mut to) = (new(), new());
    from.now_ms = 5000;
    from.put(b"k", Data::Str(b"v".to_vec()), NEVER_MS);
    from.now_ms = 9000;
    let entry = from.delete(b"k").expect("it is there");
    to.now_ms = 9000;
    to.put_moved(entry);
    assert_eq!(to.find(b"k").map(|entry| entry.changed_ms), Some(5000));
}

#[test]
fn of_a_state_that_does_not_tell_times_an_error_is_answered_until_the_key_changes() {
    let before = include_bytes!("state-14");
    assert_eq!((before[4], before.len()), (14, 1227));
    let mut node = TestNode::new();
    drop(node.executor.adopt(read(before).unwrap()));
    node.next = [0, 1, 2].map(|g| node.executor.delivered(Gid(g)) + 1);
    let mut line = Timeline { node, seq: 100 };
    let unknown = line.at(50, &format!("OBJECT IDLETIME {}", "s"));
    assert!(unknown.starts_with("-ERR idle time is not known"), "{unknown}");
    line.at(60, "SADD s n");
    assert_eq!(line.at(64, "OBJECT IDLETIME s"), ":4\r\n");
}

#[test]
fn answers_that_tell_times_are_not_compared() {
    let kv = Kv::new(SHARDS, 1);
    let compared = |text: &str| kv.is_compared(&cast(1, 1, 0, text).payload[Envelope::BYTES..]);
    assert!(!compared("OBJECT IDLETIME k") && !compared("EXEC 0 1 3 object IdleTime k"));
    assert!(compared("OBJECT ENCODING k") && compared("EXEC 0 1 3 SET k v"));
    assert!(compared("SET k idletime") && compared("GET k"));
}

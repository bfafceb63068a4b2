//! Commands that look all keys of a shard through.

use crate::Kv;
use crate::answers::SingleShard;

#[test]
fn keys_that_expired_are_dropped_before_all_keys_are_looked_through() {
    for line in ["KEYS x", "SCAN 0", "SCAN 0 MATCH x", "RANGE a z", "EXEC 0 1 2 KEYS x"] {
        let mut one = SingleShard::new();
        for n in 0..1000 {
            one.run(&format!("SET k{n} v PX 500"));
        }
        one.run("SET stays v");
        one.now_ms += 10_000;
        one.run(line);
        assert_eq!(one.store.len(), 1, "{line}");
    }
}

#[test]
fn watched_keys_are_the_same_after_all_were_deleted_whether_they_or_the_others_are_more() {
    for others in [0, 5, 50] {
        let mut one = SingleShard::over(Kv::new(1, 7).with_maxmemory(1 << 30));
        let watched = (0..10).map(|n| format!(" k{n}")).collect::<String>();
        let versions = one.run(&format!("WATCH{watched}"));
        let marks = one.store.used();
        one.run("SET k3 1");
        one.run("SET k4 1 PX 5");
        (0..others).for_each(|n| _ = one.run(&format!("SET other{n} 1")));
        one.now_ms += 1000;
        one.run("FLUSHALL");
        // Nothing is remembered of the two that came into being.
        let left = marks / 10 * 8;
        assert_eq!((one.store.len(), one.store.used()), (0, left), "{others} others");
        let changed = |one: &mut SingleShard, key: &str| {
            let first = versions.split("\r\n:").nth(1).expect("a version").trim_end();
            one.run(&format!("EXEC 1 {key} {first} 1 2 GET {key}")).starts_with("*-1")
        };
        assert!(changed(&mut one, "k3") && changed(&mut one, "k4"), "{others} others");
        assert!(!changed(&mut one, "k5"), "{others} others");
    }
}

//! Watched keys that come into being, change and expire.

use crate::answers::SingleShard;
use crate::store::AbsentKeyWatch;

/// Has a client watch `k`: its version.
fn watch(one: &mut SingleShard) -> String {
    let versions = one.run("WATCH k");
    let version = versions.strip_prefix("*1\r\n:").and_then(|v| v.strip_suffix("\r\n"));
    version.expect("a version").to_owned()
}

/// Executes a transaction that watched `k` at this version, and does this: whether it was executed.
fn exec(one: &mut SingleShard, version: &str, command: &str) -> bool {
    let words = command.split(' ').count();
    let answer = one.run(&format!("EXEC 1 k {version} 1 {words} {command}"));
    assert!(answer == "*-1\r\n" || answer.starts_with("*1\r\n"), "{answer}");
    answer != "*-1\r\n"
}

/// A client takes a lease, as one does: it is there for so long if nobody had it.
fn take_lease(one: &mut SingleShard) {
    let absent = watch(one);
    assert!(exec(one, &absent, "SET k me PX 1000"), "nobody has touched it");
}

#[test]
fn a_transaction_fails_where_its_watched_key_has_expired_also_if_somebody_watched_its_absence() {
    let mut one = SingleShard::new();
    take_lease(&mut one);
    let held = watch(&mut one);
    assert!(exec(&mut one, &held, "SET data 1"), "the lease is there");
    one.now_ms += 1001;
    assert!(!exec(&mut one, &held, "SET data 2"), "the lease has expired");
    // The same where the expired key was dropped.
    one.store.purge(one.now_ms, 1000);
    assert!(!exec(&mut one, &held, "SET data 2"), "the lease has expired");
    take_lease(&mut one);
}

#[test]
fn a_transaction_fails_where_its_watched_key_has_changed_and_then_expired() {
    for change in
        ["APPEND k x", "PEXPIRE k 500", "PERSIST k", "SET k you", "SET k you PX 5", "DEL k"]
    {
        let mut one = SingleShard::new();
        take_lease(&mut one);
        let held = watch(&mut one);
        one.run(change);
        one.run("PEXPIRE k 500");
        one.now_ms += 1001;
        assert!(!exec(&mut one, &held, "SET data 1"), "{change}");
    }
}

#[test]
fn a_key_that_came_into_being_and_vanished_is_not_absent_as_it_was() {
    for vanish in ["DEL k", "FLUSHALL", "PEXPIREAT k 1", "GET other"] {
        let mut one = SingleShard::new();
        let absent = [(); 2].map(|()| watch(&mut one));
        assert_eq!(absent[0], absent[1], "nothing has changed");
        one.run("SET k v PX 1000");
        one.run(vanish);
        one.now_ms += 1001;
        assert!(!exec(&mut one, &absent[0], "SET data 1"), "{vanish}");
        let again = watch(&mut one);
        assert_ne!(again, absent[0], "{vanish}");
        assert!(!exec(&mut one, &absent[0], "SET data 1"), "{vanish}");
        assert!(exec(&mut one, &again, "SET data 1"), "{vanish}");
    }
}

#[test]
fn what_older_programs_saved_of_the_absence_of_a_key_that_lives_ends_when_it_is_set_or_removed() {
    for change in ["SET k other PX 5", "DEL k", "FLUSHALL"] {
        let mut one = SingleShard::new();
        one.run("SET k v PX 100");
        let held = watch(&mut one);
        let mark = AbsentKeyWatch { version: held.parse().unwrap(), deadline_ms: u64::MAX };
        one.store.put_mark(b"k", mark);
        one.run(change);
        one.now_ms += 101;
        assert!(!exec(&mut one, &held, "SET data 1"), "{change}");
    }
}

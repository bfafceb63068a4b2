//! The seeds of the fuzzer are of the present format: one of an older format is refused at once, and tests nothing.

use amcast_protocols::fuzzing;
use std::fs;
use std::path::Path;

/// Each seed of that corpus is such a whole message.
fn all_are(corpus: &str, is_whole: impl Fn(&[u8]) -> bool) {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(corpus);
    let mut seeds = 0;
    for entry in fs::read_dir(dir).expect("a corpus") {
        let path = entry.expect("it can be listed").path();
        assert!(is_whole(&fs::read(&path).expect("it can be read")), "{}", path.display());
        seeds += 1;
    }
    assert!(seeds > 0, "{corpus} has no seeds");
}

#[test]
fn each_seed_of_messages_in_a_group_is_a_whole_one() {
    all_are("group_packets", fuzzing::is_packet);
    all_are("group_messages", fuzzing::is_message);
}

//! Files of version 1, byte by byte as `docs/storage.md` draws them and not as this program writes them:
//! they must open for ever.

use amcast_storage::{
    CheckpointDir, SKIPPED, SkipEntry, SkipStage, Wal, WalOptions, read_skipped, write_skipped,
};
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

/// The state of a log that was opened twice.
const STATE: &[&str] = &[
    "616d636173744c530100000001000000000102030405060708090a0b0c0d0e0f",
    "00000000000000000000000000000000000000000000000000000000635b7aef",
];

/// Its first segment: head, and records from byte 4096 on.
const FIRST: &[&str] = &[
    "616d636173744c470100000000100000000102030405060708090a0b0c0d0e0f",
    "000000000000000000400000000000000000000000000000000000007a823b56",
    "137c47df4cbb719a050000000000000000000000000000000000000000000000",
    "68656c6c6f00000087d325bd0000000000000000000000000100000000000000",
    "0100000000000000e1d4ee7f00000000fdffffff000000000200000000000000",
    "0200000000000000",
];

/// Its second segment: a record of each life, a mark between them and a close behind.
const SECOND: &[&str] = &[
    "616d636173744c470100000000100000000102030405060708090a0b0c0d0e0f",
    "02000000000000000040000000000000000000000000000000000000e3e2fc17",
    "51b73958a3de68ea120000000000000002000000000000000200000000000000",
    "746865207365636f6e64207365676d656e74000000000000d557adb500000000",
    "ffffffff0000000003000000000000000300000000000000dbe97e444798ddc7",
    "0600000001000000030000000000000003000000000000006c69666520310000",
    "faab041700000000feffffff0100000004000000000000000400000000000000",
];

/// A checkpoint at position 17, in two pieces.
const CHECKPOINT: &[&str] = &[
    "616d636173744350010000000800000011000000000000000000000000000000",
    "00000000000000000000000000000000000000000000000000000000f4b61838",
    "1fd4792f080000000000000000000000612073746174652015c0197904000000",
    "08000000000000006f662032abbaee9b000000000c00000000000000",
];

/// Two messages that are skipped: `p1:4294967301@g0/17`, which was, and `p7:9@g2/300`, which was only decided.
const SKIPPED_FILE: &[&str] = &[
    "616d63617374534b010000000200000000000000000000000000000000000000",
    "0000000000000000000000000000000000000000000000000000000070cb0294",
    "01000000000400000500000001000000110000000000000000000000abef59bc",
    "070000000201000009000000000000002c0100000000000000000000ffdcdc9c",
];

/// How long the segments are.
const SEGMENT_BYTES: usize = 16 << 10;

fn bytes(rows: &[&str]) -> Vec<u8> {
    let digits = rows.concat();
    let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).expect("two digits");
    (0..digits.len()).step_by(2).map(byte).collect()
}

/// A segment: what is given, its records at their place, and zeros.
fn segment(rows: &[&str]) -> Vec<u8> {
    let (mut file, all) = (vec![0; SEGMENT_BYTES], bytes(rows));
    file[..64].copy_from_slice(&all[..64]);
    file[4096..4096 + all.len() - 64].copy_from_slice(&all[64..]);
    file
}

fn directory(name: &str, files: &[(&str, Vec<u8>)]) -> PathBuf {
    let path = std::env::temp_dir().join(format!("amcast-golden-{name}-{}", std::process::id()));
    fs::create_dir(&path).expect("it is new");
    for (name, bytes) in files {
        fs::write(path.join(name), bytes).expect("it can be written");
    }
    path
}

#[test]
fn a_log_of_version_1_opens() {
    let _limit = amcast_test_policy::time_limit();
    let path = directory(
        "log",
        &[
            ("state", bytes(STATE)),
            ("00000000000000000000.segment", segment(FIRST)),
            ("00000000000000000002.segment", segment(SECOND)),
        ],
    );
    let mut records = Vec::new();
    let options = WalOptions { segment_bytes: SEGMENT_BYTES as u64, ..WalOptions::default() };
    let mut each = |number: u64, record: &[u8]| records.push((number, record.to_vec()));
    let opened = Wal::open(&path, &options, Arc::new(|| {}), &mut each);
    let (log, recovered) = opened.unwrap_or_else(|e| panic!("{e}"));
    assert_eq!((recovered.life, recovered.first, recovered.next), (2, 0, 4));
    assert!(!recovered.lossy && recovered.torn.is_none(), "it was closed");
    let wanted: [&[u8]; 4] = [b"hello", b"", b"the second segment", b"life 1"];
    let wanted = wanted.iter().enumerate().map(|(n, record)| (n as u64, record.to_vec()));
    assert_eq!(records, wanted.collect::<Vec<_>>());
    drop(log);
    fs::remove_dir_all(&path).expect("it can be removed");
}

#[test]
fn a_checkpoint_of_version_1_is_read() {
    let _limit = amcast_test_policy::time_limit();
    let file = ("00000000000000000017.checkpoint", bytes(CHECKPOINT));
    let path = directory("checkpoint", &[file]);
    let opened = CheckpointDir::open(&path, Arc::new(|| {}), |_| {});
    let (_, found) = opened.unwrap_or_else(|e| panic!("{e}"));
    assert!(found.damaged.is_empty(), "{:?}", found.damaged);
    let mut saved = found.newest.expect("it is whole");
    assert_eq!((saved.position(), saved.bytes()), (17, 12));
    let mut state = Vec::new();
    while let Some(piece) = saved.piece().expect("it is whole") {
        state.extend_from_slice(piece);
    }
    assert_eq!(state, b"a state of 2");
    fs::remove_dir_all(&path).expect("it can be removed");
}

#[test]
fn skipped_messages_of_version_1_are_read_and_written_so() {
    let _limit = amcast_test_policy::time_limit();
    let path = directory("skipped", &[(SKIPPED, bytes(SKIPPED_FILE))]);
    let read = read_skipped(&path).unwrap_or_else(|e| panic!("{e}"));
    let told = |entry: &SkipEntry| (entry.decision.to_string(), entry.stage);
    let wanted = [
        ("p1:4294967301@g0/17".to_string(), SkipStage::Used),
        ("p7:9@g2/300".to_string(), SkipStage::Decided),
    ];
    assert_eq!(read.iter().map(told).collect::<Vec<_>>(), wanted);
    fs::remove_file(path.join(SKIPPED)).expect("it can be removed");
    write_skipped(&path, &read).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(fs::read(path.join(SKIPPED)).expect("it is there"), bytes(SKIPPED_FILE));
    fs::remove_dir_all(&path).expect("it can be removed");
}

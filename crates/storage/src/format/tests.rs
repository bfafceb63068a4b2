//! Golden bytes: what version 1 has written stays readable, and nobody changes it unawares.

use super::checkpoint::{self, CheckpointHead, CheckpointOwner};
use super::record::{RecordChecksumSeed, RecordHeader, RecordKind};
use super::segment::{self, SegmentHead};
use super::state::LogState;
use super::synced::{self, SyncedRange};
use super::{BootId, LogId, LogOwnerId};
use crate::error::Misfit;

const LOG: LogId = LogId(0x0f0e_0d0c_0b0a_0908_0706_0504_0302_0100);

/// Bytes as digits, 16 in a row.
fn hex(bytes: &[u8]) -> String {
    let row = |row: &[u8]| row.iter().map(|b| format!("{b:02x}")).collect::<String>();
    bytes.chunks(16).map(row).collect::<Vec<_>>().join("\n")
}

/// The golden bytes of a file, which may be written anew on purpose only: with another version.
fn same(bytes: &[u8], golden: &[&str]) {
    assert_eq!(hex(bytes), golden.join("\n"));
}

#[test]
fn version_1_of_a_segments_head() {
    let head = SegmentHead { log: LOG, first: 0x1122, bytes: 64 << 20, loose: 0 };
    let bytes = head.encode();
    same(
        &bytes,
        &[
            "616d636173744c470100000000100000",
            "000102030405060708090a0b0c0d0e0f",
            "22110000000000000000000400000000",
            "000000000000000000000000e1449909",
        ],
    );
    assert_eq!(SegmentHead::decode(&bytes), Ok(head));
    let unsynced = SegmentHead { loose: 5, ..head };
    assert_eq!(hex(&unsynced.encode()[48..56]), "0500000000000000");
    assert_eq!(SegmentHead::decode(&unsynced.encode()), Ok(unsynced));
    assert_eq!(unsynced.durable(), 0x111d);
    let nonsense = SegmentHead { loose: 0x1123, ..head };
    assert_eq!(SegmentHead::decode(&nonsense.encode()), Err(Misfit::Nonsense));
    assert_eq!(segment::name(0x1122), "00000000000000004386.segment");
    assert_eq!(segment::first_of("00000000000000004386.segment"), Some(0x1122));
    for other in ["4386.segment", "00000000000000004386.spare", "+0000000000000004386.segment", ""]
    {
        assert_eq!(segment::first_of(other), None, "{other}");
    }
}

#[test]
fn version_1_of_a_state() {
    for (keeps_end, owner, last) in [
        (false, LogOwnerId::UNKNOWN, "00000000000000000000000025cd6434"),
        (true, LogOwnerId::UNKNOWN, "01000000000000000000000015191505"),
        (true, LogOwnerId(0x1122_3344_5566_7788), "01000000887766554433221189fa6426"),
    ] {
        let state = LogState { log: LOG, life: 3, boot: BootId(0xb007), keeps_end, owner };
        let bytes = state.encode();
        same(
            &bytes,
            &[
                "616d636173744c530100000003000000",
                "000102030405060708090a0b0c0d0e0f",
                "07b00000000000000000000000000000",
                last,
            ],
        );
        assert_eq!(LogState::decode(&bytes), Ok(state));
    }
}

#[test]
fn version_1_of_the_end_of_what_was_synced() {
    // Versions before left the number of trimmed records zero.
    let range = SyncedRange { end: 0x1122, trimmed: None };
    let bytes = synced::encode(LOG, range);
    same(
        &bytes,
        &[
            "616d636173744c4d0100000000000000",
            "000102030405060708090a0b0c0d0e0f",
            "22110000000000000000000000000000",
            "0000000000000000000000003bd02657",
        ],
    );
    assert_eq!(synced::decode(&bytes, LOG), Ok(range));
    assert_eq!(synced::decode(&bytes, LogId(1)), Err(Misfit::OtherLog));
    let mut file = [0; synced::FILE_BYTES];
    file[synced::PLACE_BYTES..][..bytes.len()].copy_from_slice(&bytes);
    assert_eq!(synced::places(&file, LOG), [None, Some(range), None]);
    assert_eq!(synced::places(&bytes, LOG), [Some(range), None, None]);
    let range = SyncedRange { end: 0x1122, trimmed: Some(0x33) };
    let bytes = synced::encode(LOG, range);
    assert_eq!(bytes[40..48], 0x34_u64.to_le_bytes());
    assert_eq!(synced::decode(&bytes, LOG), Ok(range));
}

#[test]
fn version_1_of_a_record() {
    let seed = RecordChecksumSeed::of(LOG);
    let heads: [(RecordKind, u32, &[&str]); 4] = [
        (
            RecordKind::Record(5),
            crc32c::crc32c(b"hello"),
            &["67f06bb14cbb719a0500000003000000", "22110000000000002011000000000000"],
        ),
        (
            RecordKind::Mark,
            0,
            &["3b3c3d1300000000ffffffff03000000", "22110000000000002011000000000000"],
        ),
        (
            RecordKind::Close,
            0,
            &["b5fe72a900000000feffffff03000000", "22110000000000002011000000000000"],
        ),
        (
            RecordKind::Turn,
            0,
            &["d6cf4e6200000000fdffffff03000000", "22110000000000002011000000000000"],
        ),
    ];
    for (kind, sum, golden) in heads {
        let head = RecordHeader { kind, sum, life: 3, number: 0x1122, durable: 0x1120 };
        let bytes = head.encode(seed);
        same(&bytes, golden);
        assert_eq!(RecordHeader::decode(&bytes, seed), Some(head));
        assert_eq!(
            RecordHeader::decode(&bytes, RecordChecksumSeed::of(LogId(1))),
            None,
            "another log's"
        );
    }
}

#[test]
fn heads_of_other_files_and_versions_are_refused_in_words() {
    let bytes = LogState {
        log: LOG,
        life: 3,
        boot: BootId(0),
        keeps_end: false,
        owner: LogOwnerId::UNKNOWN,
    }
    .encode();
    assert_eq!(SegmentHead::decode(&bytes), Err(Misfit::Magic));
    assert_eq!(LogState::decode(&bytes[..63]), Err(Misfit::Short));
    for at in 12..64 {
        let mut changed = bytes;
        changed[at] ^= 1;
        assert_eq!(LogState::decode(&changed), Err(Misfit::Sum), "byte {at}");
    }
    let mut newer = bytes;
    newer[8] = 2;
    let refused = LogState::decode(&newer).expect_err("it is newer");
    assert_eq!(refused, Misfit::Version { found: 2, newest: 1 });
    assert!(refused.to_string().contains("use a newer program"));
}

#[test]
fn version_1_of_a_checkpoint() {
    let owner = CheckpointOwner::default();
    let head = CheckpointHead { position: 0x1122, piece_bytes: 256 << 10, owner };
    let (bytes, seed) = head.encode();
    same(
        &bytes,
        &[
            "616d6361737443500100000000000400",
            "22110000000000000000000000000000",
            "00000000000000000000000000000000",
            "0000000000000000000000005e0ee5ca",
        ],
    );
    assert_eq!(CheckpointHead::decode(&bytes), Ok((head, seed)));
    let piece = checkpoint::piece_head(b"hello", 0x33, seed);
    same(&piece, &["a17a9ee5050000003300000000000000"]);
    assert_eq!(checkpoint::piece_length(&piece, &head), Some(5));
    let end = checkpoint::piece_head(b"", 0x38, seed);
    same(&end, &["b09a2ff6000000003800000000000000"]);
    assert_eq!(checkpoint::piece_length(&end, &head), Some(0));
    assert_eq!(checkpoint::name(0x1122), "00000000000000004386.checkpoint");
    assert_eq!(checkpoint::position_of("00000000000000004386.checkpoint"), Some(0x1122));
    let owner = CheckpointOwner { node: 0x3344, disk: 0x5566 };
    let (owned, seed) = CheckpointHead { owner, ..head }.encode();
    assert_eq!((&owned[..24], owned[40..60].iter().sum::<u8>()), (&bytes[..24], 0));
    assert_eq!(
        owned[24..40],
        [[0x44, 0x33, 0, 0, 0, 0, 0, 0], [0x66, 0x55, 0, 0, 0, 0, 0, 0]].concat()
    );
    assert_eq!(CheckpointHead::decode(&owned), Ok((CheckpointHead { owner, ..head }, seed)));
    let other = CheckpointOwner { disk: 1, ..owner };
    assert!(
        owner.may_be(owner) && !owner.may_be(other) && other.may_be(CheckpointOwner::default())
    );
}

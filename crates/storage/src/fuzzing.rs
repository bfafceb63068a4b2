//! The way in for a fuzzer: files that may hold anything, judged without a file system.

use crate::checkpoints::CheckpointReader;
use crate::disk::DiskFile;
use crate::format::checkpoint::{self, CheckpointHead, PIECE_HEAD_BYTES, piece_head};
use crate::format::record::{HEAD_BYTES, RecordChecksumSeed, RecordHeader, RecordKind};
use crate::format::segment::{RECORDS_AT, SegmentHead};
use crate::format::state::LogState;
use crate::format::synced;
use crate::format::{self, LogId, put, u32_at};
use crate::record_scan::{RecordScan, ScanPosition, ScanStep};
use std::io;
use std::path::PathBuf;

/// A file that is only read.
struct BytesFile(Vec<u8>);

impl DiskFile for BytesFile {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        let from = (offset as usize).min(self.0.len());
        let to = (from + bytes.len()).min(self.0.len());
        bytes[..to - from].copy_from_slice(&self.0[from..to]);
        Ok(to - from)
    }

    fn write_at(&self, _: &[u8], _: u64) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.0.len() as u64)
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

/// A segment: the first 64 bytes are its head, the rest its records. Heads whose sum is 0 get the
/// right one, so that damage behind sums is reached.
///
/// # Panics
/// If its records are not in order, or the walk over them does not end.
pub fn segment(bytes: &[u8]) {
    let mut bytes = bytes.to_vec();
    mend_head(&mut bytes);
    let (head, rest) = bytes.split_at(bytes.len().min(format::HEAD_BYTES));
    let whole =
        SegmentHead { log: LogId(1), first: 0, bytes: RECORDS_AT + rest.len() as u64, loose: 0 };
    let head = SegmentHead::decode(head).unwrap_or_else(|why| {
        assert!(!why.to_string().is_empty());
        whole
    });
    let seed = RecordChecksumSeed::of(head.log);
    let mut file = vec![0; RECORDS_AT as usize];
    file.extend_from_slice(rest);
    mend_records(&mut file[RECORDS_AT as usize..], seed);
    let file = BytesFile(file);
    let (number, offset) = (head.first, RECORDS_AT);
    let mut stand = ScanPosition { offset, number, life: 0, closed: false, turned: false };
    let mut walk = RecordScan::new(&file, seed, head.bytes, stand);
    while let ScanStep::Record(number) = walk.step().expect("memory can be read") {
        assert_eq!(number, stand.number, "numbers follow each other");
        let now = walk.stand();
        let length = walk.bytes().expect("memory can be read").len() as u64;
        assert!(now.offset >= stand.offset + length + HEAD_BYTES as u64, "it goes forward");
        assert!(now.life >= stand.life, "lives only grow");
        stand = now;
    }
    // A head may claim a length that the file does not have.
    if head.bytes <= file.0.len() as u64 {
        walk.tail().expect("memory can be read");
        walk.proves(head.first).expect("memory can be read");
        let before = walk.stand().offset;
        while walk.skip().expect("memory can be read") {
            assert!(walk.stand().offset > before, "it goes forward");
            while let ScanStep::Record(_) = walk.step().expect("memory can be read") {}
        }
    }
}

/// Gives a head whose sum is 0 the right one.
fn mend_head(bytes: &mut [u8]) {
    if let Some(head) = bytes.first_chunk_mut::<{ format::HEAD_BYTES }>()
        && u32_at(head, format::HEAD_BYTES - 4) == 0
    {
        *head = format::seal(*head);
    }
}

fn mend_records(bytes: &mut [u8], seed: RecordChecksumSeed) {
    let mut at = 0;
    while at + HEAD_BYTES <= bytes.len() {
        let field = |n: usize| u32_at(bytes, at + n);
        let sum = field(0);
        let length = field(8);
        let life = field(12);
        let number = format::u64_at(bytes, at + 16);
        let durable = format::u64_at(bytes, at + 24);
        let kind = match length {
            u32::MAX => RecordKind::Mark,
            length if length == u32::MAX - 1 => RecordKind::Close,
            length if length == u32::MAX - 2 => RecordKind::Turn,
            length => RecordKind::Record(length),
        };
        let record = match kind {
            RecordKind::Record(length) => {
                bytes.get(at + HEAD_BYTES..at + HEAD_BYTES + length as usize)
            }
            _ => Some(&[][..]),
        };
        let Some(record) = record else { return };
        let head = RecordHeader { kind, sum: crc32c::crc32c(record), life, number, durable };
        if sum == 0 {
            put(bytes, at, head.encode(seed));
        }
        at += head.extent() as usize;
    }
}

/// The state of a log is refused, or says the same when it is written again.
///
/// # Panics
/// If it does not.
pub fn state(bytes: &[u8]) {
    let mut bytes = bytes.to_vec();
    mend_head(&mut bytes);
    match LogState::decode(&bytes) {
        Ok(state) => assert_eq!(LogState::decode(&state.encode()), Ok(state)),
        Err(why) => assert!(!why.to_string().is_empty()),
    }
}

/// How far a log was synced is refused, or says the same when it is written again. Heads whose sum is 0 get
/// the right one.
///
/// # Panics
/// If not.
pub fn synced(bytes: &[u8]) {
    let mut bytes = bytes.to_vec();
    bytes.chunks_mut(synced::PLACE_BYTES).for_each(mend_head);
    let log = LogId(0x0f0e_0d0c_0b0a_0908_0706_0504_0302_0100);
    for (i, range) in synced::places(&bytes, log).into_iter().enumerate() {
        let at = bytes.get(i * synced::PLACE_BYTES..).unwrap_or_default();
        match synced::decode(at, log) {
            Ok(found) => {
                assert_eq!(range, Some(found));
                assert_eq!(synced::decode(&synced::encode(log, found), log), Ok(found));
            }
            Err(why) => assert!(range.is_none() && !why.to_string().is_empty()),
        }
    }
}

/// A checkpoint is read to its end or to its damage. Heads whose sum is 0 get the right one.
///
/// # Panics
/// If it is given longer than it is.
pub fn checkpoint(bytes: &[u8]) {
    let mut bytes = bytes.to_vec();
    mend_head(&mut bytes);
    let (head, seed) = match CheckpointHead::decode(&bytes) {
        Ok(decoded) => decoded,
        Err(why) => return assert!(!why.to_string().is_empty()),
    };
    let (mut at, mut offset) = (format::HEAD_BYTES, 0);
    while let Some(length) = bytes.get(at..).and_then(|b| checkpoint::piece_length(b, &head)) {
        let place = at + PIECE_HEAD_BYTES;
        let Some(piece) = bytes.get(place..place + length) else { break };
        let right = piece_head(piece, offset, seed);
        if u32_at(&bytes, at) == 0 {
            put(&mut bytes, at, right);
        }
        at = place + length;
        offset += length as u64;
    }
    let size = bytes.len() as u64;
    let mut saved = CheckpointReader::new(Box::new(BytesFile(bytes)), PathBuf::new(), head, seed);
    let mut given = 0;
    loop {
        match saved.piece() {
            Ok(Some(piece)) => given += piece.len() as u64,
            Ok(None) => break,
            Err(e) => {
                assert!(e.is_damage() && !e.to_string().is_empty());
                break;
            }
        }
        assert!(given <= size, "{given} bytes of a file of {size}");
    }
}

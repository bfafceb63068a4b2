//! A node's state on its way to another node.

use amcast_kv::Kv;
use amcast_smr::{Corrupt, ExecutorState, stream};

const SHARDS: usize = 2;

/// The version of states that had no map of partitions yet.
const BEFORE_PARTITIONS: u8 = 6;

/// The last version of states that say neither what was skipped nor which parts of commands there are.
const BEFORE_SKIPS: u8 = 10;

/// Frames of a stream, cut in this length.
const FRAME_BYTES: usize = 100;

/// A stream that is damaged is refused; also when its sums are made to fit.
pub(crate) fn stream(bytes: &[u8]) {
    let read =
        |mut bytes: &[u8]| ExecutorState::read(&Kv::new(SHARDS, 7), SHARDS, &mut bytes).map(drop);
    let _ = read(bytes);
    for version in [BEFORE_PARTITIONS, BEFORE_SKIPS, stream::VERSION] {
        let sound = read(&sealed(version, bytes));
        assert_ne!(sound, Err(Corrupt::Checksum), "the sums of this target do not fit");
    }
    // A bit that is wrong is found by the sums, wherever it is.
    let mut wrong = sealed(stream::VERSION, bytes);
    let at = bytes.iter().fold(0, |at: usize, &b| at.wrapping_mul(31).wrapping_add(usize::from(b)));
    let at = at % wrong.len();
    wrong[at] ^= 1;
    assert!(read(&wrong).is_err(), "a wrong bit at {at} passes");
}

/// A stream of these contents, with sums that fit.
fn sealed(version: u8, contents: &[u8]) -> Vec<u8> {
    let mut out = Vec::from(*b"amKV\0\0\0\0");
    (out[4], out[5]) = (version, SHARDS as u8);
    let mut sum = crc32c::crc32c(&out);
    for frame in contents.chunks(FRAME_BYTES).chain([&[][..]]) {
        let at = out.len();
        out.extend_from_slice(&(frame.len() as u32).to_le_bytes());
        out.extend_from_slice(frame);
        sum = crc32c::crc32c_append(sum, &out[at..]);
        out.extend_from_slice(&sum.to_le_bytes());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use amcast_smr::{Executor, Limits};

    #[test]
    fn a_sound_state_with_sums_of_this_target_is_read_in_every_version() {
        let before = include_bytes!("../../../fuzz/corpus/state_stream/contents");
        let kv = || Kv::new(SHARDS, 7);
        let old = sealed(BEFORE_PARTITIONS, before);
        let state = ExecutorState::read(&kv(), SHARDS, &mut old.as_slice()).expect("it is sound");
        let mut executor = Executor::new(kv(), SHARDS, Limits::default());
        drop(executor.adopt(state));
        let mut written = Vec::new();
        executor.capture();
        while executor.piece(1000, &mut written) {}
        // Its contents, without the frames round them.
        let (mut contents, mut rest) = (Vec::new(), &written[8..]);
        while rest.len() > 8 {
            let len = u32::from_le_bytes(rest[..4].try_into().expect("four bytes")) as usize;
            contents.extend_from_slice(&rest[4..4 + len]);
            rest = &rest[8 + len..];
        }
        assert!(contents.len() > before.len(), "maps of partitions stand there, too");
        let new = sealed(stream::VERSION, &contents);
        assert!(ExecutorState::read(&kv(), SHARDS, &mut new.as_slice()).is_ok());
    }
}

//! Keys that move between shards, again and again.

use crate::harness::{UpCluster, call};
use amcast::client::Answer;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Splits and merges until `stop` is set, so that each shard is spare now and then. Returns how
/// often.
pub(crate) fn again_and_again(up: &UpCluster, stop: &AtomicBool) -> usize {
    let mut connection = up.connect();
    let mut moves = 0;
    let rounds: [&[&str]; 6] = [
        &["AMCAST.SPLIT", "0", "2000", "2"],
        &["AMCAST.MERGE", "1", "0"],
        &["AMCAST.SPLIT", "0", "5461", "1"],
        &["AMCAST.MERGE", "2", "1"],
        &["AMCAST.MERGE", "0", "2"],
        &["AMCAST.SPLIT", "2", "0", "0"],
    ];
    for words in rounds.iter().cycle() {
        let epoch = match call(&mut connection, words) {
            Answer::Number(epoch) => epoch,
            Answer::Error(why) => {
                assert!(why.starts_with("TRYAGAIN") || why.starts_with("ERR"), "{why}");
                0
            }
            other => panic!("{words:?}: {other}"),
        };
        while !has_moved(&call(&mut connection, &["AMCAST.PARTITIONS"]), epoch) {
            if stop.load(Ordering::Relaxed) {
                return moves;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        moves += usize::from(epoch > 0);
        if stop.load(Ordering::Relaxed) {
            return moves;
        }
    }
    moves
}

/// Whether a map is later than that of `epoch`, or nothing moves.
fn has_moved(map: &Answer, epoch: i64) -> bool {
    let Answer::Array(parts) = map else { return false };
    let [Answer::Number(now), _, Answer::Array(rows)] = &**parts else { return false };
    let rests =
        |row: &Answer| matches!(row, Answer::Array(row) if row.last() == Some(&Answer::Null));
    *now > epoch && rows.iter().all(rests)
}

//! A cluster whose processes are all killed at once, again and again, while clients write and keys move
//! between shards.

use crate::durable::{all_there, kill_everything_under_load};
use crate::harness::{UpCluster, call, unique};
use amcast::client::{Answer, Connection};
use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

/// How long a move may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// Keys that are there before: a move of them takes some tenths of a second.
const KEYS: usize = 12_000;

/// Begun one after the other, each if nothing moves. The last one moves all keys back.
const MOVES: [&[&str]; 4] = [
    &["AMCAST.SPLIT", "0", "100", "2"],
    &["AMCAST.MERGE", "1", "0"],
    &["AMCAST.MERGE", "2", "1"],
    &["AMCAST.MERGE", "0", "2"],
];

fn fill(up: &UpCluster) -> BTreeMap<String, String> {
    let keys: Vec<String> = (0..KEYS).map(|n| format!("before{n}")).collect();
    let mut c = up.connect();
    for some in keys.chunks(500) {
        let pairs = some.iter().flat_map(|key| [key.as_str(), "b"]);
        let words: Vec<&str> = ["MSET"].into_iter().chain(pairs).collect();
        assert_eq!(call(&mut c, &words), Answer::Word("OK".into()));
    }
    // A thirtieth of them is looked at.
    keys.into_iter().step_by(30).map(|key| (key, "b".to_string())).collect()
}

/// The epoch of the map, and whether keys move.
fn map(c: &mut Connection) -> (i64, bool) {
    let answer = call(c, &["AMCAST.PARTITIONS"]);
    let Answer::Array(parts) = &answer else { panic!("{answer}") };
    let [Answer::Number(epoch), _, Answer::Array(rows)] = &**parts else { panic!("{answer}") };
    let moves = |row: &Answer| !matches!(row, Answer::Array(r) if r.last() == Some(&Answer::Null));
    (*epoch, rows.iter().any(moves))
}

/// Waits until no keys move.
fn wait_for_rest(c: &mut Connection) {
    let begun = Instant::now();
    while map(c).1 {
        assert!(begun.elapsed() < PATIENCE, "keys still move");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn everything_killed_while_keys_move_loses_nothing_that_was_acknowledged() {
    let _limit = amcast_test_policy::time_limit();
    let data = unique("up");
    let options = ["--shards", "3", "--partitions", "2"];
    let mut up = UpCluster::start_in_bare(data.clone(), &options);
    let mut acked = fill(&up);
    let mut in_the_middle = 0;
    for (round, words) in MOVES.into_iter().enumerate() {
        let mut c = up.connect();
        wait_for_rest(&mut c);
        let name = format!("round{round}");
        acked.extend(kill_everything_under_load(up, &name, || {
            std::thread::sleep(Duration::from_millis(200));
            let begun = call(&mut c, words);
            assert!(matches!(begun, Answer::Number(_)), "{words:?}: {begun}");
            // Each time at another moment of the move.
            std::thread::sleep(Duration::from_millis(10 + 40 * round as u64));
        }));
        up = UpCluster::start_in_bare(data.clone(), &options);
        in_the_middle += usize::from(map(&mut up.connect()).1);
        all_there(&up, &acked);
    }
    assert!(in_the_middle > 0, "no move was under way when everything was killed");
    let mut c = up.connect();
    wait_for_rest(&mut c);
    all_there(&up, &acked);
    let Answer::Number(keys) = call(&mut c, &["DBSIZE"]) else { panic!("it counts keys") };
    assert!(keys as usize >= KEYS, "{keys} keys are left of more than {KEYS}");
    assert_eq!(up.stop(), Some(0));
    fs::remove_dir_all(&data).unwrap();
}

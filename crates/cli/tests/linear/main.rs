//! Real clusters under load whose processes are killed: what all clients saw is recorded, and the
//! checker decides whether it is linearizable.
//!
//! A run takes a few seconds; with `AMCAST_LONG=1` in the environment three minutes. The history of
//! a run that is not in order is kept in the temporary directory.

mod clients;
#[allow(dead_code, reason = "the other tests of clusters use the rest of it")]
#[path = "../cluster/harness.rs"]
mod harness;
mod hosts;
mod kills;
mod memory_hosts;
mod moves;
mod overlay_hosts;
mod overlays;
mod recording;
#[cfg(feature = "rdma")]
mod remote_access;
mod rolling;

use amcast::check::service::Budget;
use amcast::check::{History, PropertyVerdict, check_within};
use amcast::client::Answer;
use amcast::core::{Property, Time};
use amcast_test_policy::{TimeLimit, time_limit_of};
use clients::{ClientLoad, PeriodKeys};
use harness::{StopOnDrop, UpCluster, call};
use kills::{Kill, KillTarget};
use recording::{CheckerWords, Recording};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Clients of a run.
const CLIENTS: usize = 12;

/// How long it may take until enough has happened.
const PATIENCE: Duration = Duration::from_secs(60);

/// The properties that must hold in every recorded run.
const PROMISED: [Property; 3] =
    [Property::Linearizable, Property::ExactlyOnce, Property::ReadYourWrites];

/// One run at a time: two clusters at once on a small machine suspect each other's load.
/// The limit of the test begins with its turn.
#[track_caller]
fn alone() -> (MutexGuard<'static, ()>, TimeLimit) {
    static RUNNING: Mutex<()> = Mutex::new(());
    let turn = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
    (turn, time_limit_of(5 * lasting(PATIENCE)))
}

/// `usual`, or three minutes where the environment asks for a long run.
fn lasting(usual: Duration) -> Duration {
    let long = std::env::var_os("AMCAST_LONG").is_some_and(|v| v == "1");
    if long { Duration::from_secs(180) } else { usual }
}

fn judge(recording: &Recording) -> amcast::check::CheckReport {
    let history: History = recording.history();
    check_within(&history, &PROMISED, Budget { states: 20_000_000 })
}

/// Judges what the clients saw, and tells it, with the longest silence in each event of these names and times.
fn judge_events(load: ClientLoad, events: &[(&str, Time, Time)], name: &str) -> Recording {
    let (errors, ends) = (load.errors(), load.ends());
    let recording = load.into_recording();
    let report = judge(&recording);
    let errors = errors.len();
    println!("{}; {ends} connections ended; {errors} errors\n{report}", recording.figures());
    for &(event, begun, over) in events {
        let ms = |ns: u64| ns as f64 / 1e6;
        let silence = ms(recording.longest_silence(begun, over));
        println!("{event}, for {:.0} ms: no answer for {silence:.1} ms", ms(over.0 - begun.0));
    }
    if !report.all_hold() {
        panic!("{report}\nthe history is kept: amcast check {}", recording.save(name).display());
    }
    recording
}

/// Loads a cluster, kills `target` again and again, and judges what the clients saw.
fn run(name: &str, options: &[&str], shards: usize, target: KillTarget, usual: Duration) {
    run_while(name, options, shards, (target, usual), |_, _| {});
}

/// The same while `act` acts, until its flag is set.
fn run_while<T: Send>(
    name: &str,
    options: &[&str],
    shards: usize,
    (target, usual): (KillTarget, Duration),
    act: impl FnOnce(&UpCluster, &AtomicBool) -> T + Send,
) -> T {
    let (turn, _limit) = alone();
    let lasting = lasting(usual);
    let mut up = UpCluster::start(options);
    let load = ClientLoad::new(&up.redis, shards, CLIENTS);
    let stop = AtomicBool::new(false);
    let (kills, done): (Vec<Kill>, T) = std::thread::scope(|scope| {
        let acts = scope.spawn(|| act(&up, &stop));
        let _stops = StopOnDrop(&stop);
        let kills = load.run(|load| kills::again_and_again(&up, load, target, lasting));
        stop.store(true, Ordering::Relaxed);
        (kills, acts.join().expect("it does not panic"))
    });
    let recording = load.into_recording();
    assert_eq!(up.stop(), Some(0));
    // Where a log was kept, the data stay when the cluster ends.
    if up.data.exists() {
        std::fs::remove_dir_all(&up.data).expect("it is ours");
    }
    // The next run may have the machine while this one is judged.
    drop(turn);
    let report = judge(&recording);
    println!("{name}: {}\n{report}", recording.figures());
    for kill in &kills {
        println!("{}", kill.told(&recording));
    }
    if !report.all_hold() {
        let path = recording.save(name);
        panic!("{report}\nthe history is kept: amcast check {}", path.display());
    }
    // A run in which nothing happened would be in order, too.
    let seconds = lasting.as_secs() as usize;
    assert!(kills.len() >= 2, "only {} kills in {seconds} s", kills.len());
    assert!(recording.answered() > kills::answers_in(lasting), "{}", recording.figures());
    assert!(kills.iter().all(|kill| kill.leaders > 0), "{kills:?}");
    done
}

#[test]
fn commands_are_linearizable_while_keys_move_between_shards_and_nodes_are_killed() {
    for (name, options) in [
        ("moves-tram", &["--shards", "3"][..]),
        ("moves-rings", &["--protocol", "multi-ring-memory", "--shards", "3"]),
    ] {
        let lasting = (KillTarget::MostLeaders, Duration::from_secs(5));
        let moves = run_while(name, options, 3, lasting, moves::again_and_again);
        println!("{name}: keys moved {moves} times");
        assert!(moves >= 6, "keys moved only {moves} times");
    }
}

#[test]
fn commands_over_three_shards_are_linearizable_while_nodes_with_leaders_are_killed() {
    run("three-shards", &["--shards", "3"], 3, KillTarget::MostLeaders, Duration::from_secs(4));
}

#[test]
fn commands_that_several_threads_execute_are_linearizable_while_nodes_are_killed() {
    let options = ["--shards", "3", "--workers", "2"];
    run("workers", &options, 3, KillTarget::MostLeaders, Duration::from_secs(3));
}

#[test]
fn reads_without_an_order_that_several_threads_answer_are_linearizable_while_nodes_are_killed() {
    let options = ["--protocol", "multi-ring-memory", "--shards", "3", "--workers", "2"];
    run("workers-rings", &options, 3, KillTarget::MostLeaders, Duration::from_secs(3));
}

#[test]
fn commands_over_six_shards_are_linearizable_while_nodes_with_several_leaders_are_killed() {
    run("six-shards", &["--shards", "6"], 6, KillTarget::MostLeaders, Duration::from_secs(3));
}

#[test]
fn commands_of_one_shard_are_linearizable_while_its_leader_is_killed() {
    run("one-shard", &["--shards", "1"], 1, KillTarget::MostLeaders, Duration::from_secs(2));
}

#[test]
fn commands_are_linearizable_while_all_leaders_are_killed_at_once() {
    let options = ["--shards", "2", "--replicas", "5"];
    run("all-leaders", &options, 2, KillTarget::TwoNodes, Duration::from_secs(3));
}

#[test]
fn commands_over_uniform_broadcasts_on_tcp_are_linearizable_while_nodes_are_killed() {
    let options = ["--protocol", "bb-urcast-urcast", "--shards", "1"];
    run("bb-urcast-urcast", &options, 1, KillTarget::MostLeaders, Duration::from_secs(3));
}

#[test]
fn commands_over_a_token_on_tcp_are_linearizable_while_nodes_are_killed() {
    let options = ["--protocol", "pb-urcast", "--shards", "1"];
    run("pb-urcast", &options, 1, KillTarget::MostLeaders, Duration::from_secs(3));
}

#[test]
fn commands_over_rings_on_tcp_are_linearizable_while_nodes_are_killed() {
    let options = ["--protocol", "multi-ring-memory", "--shards", "3"];
    run("multi-ring-memory", &options, 3, KillTarget::MostLeaders, Duration::from_secs(4));
}

#[test]
fn commands_over_rings_on_disk_are_linearizable_while_two_of_three_nodes_are_killed() {
    let options = ["--protocol", "multi-ring", "--shards", "3"];
    run("multi-ring", &options, 3, KillTarget::TwoNodes, Duration::from_secs(4));
}

#[test]
fn reads_without_an_order_are_sequentially_consistent_and_show_what_their_client_wrote() {
    old_reads("0");
}

#[test]
fn reads_without_an_order_that_threads_answer_are_sequentially_consistent_too() {
    old_reads("2");
}

/// Clients that chose reads without an order, of nodes with so many threads that execute commands.
fn old_reads(workers: &str) {
    let _alone = alone();
    // One shard: who writes to two of them may be seen in different orders by different clients.
    let up = UpCluster::start(&["--shards", "1", "--workers", workers]);
    let load = ClientLoad::sequential(up.node_gateways(), 1, 3);
    load.run(|load| {
        for _ in 0..10 {
            std::thread::sleep(Duration::from_millis(120));
            load.next_round();
        }
        load.wait_for_answers(60);
    });
    let recording = load.into_recording();
    assert!(recording.answered() > 60, "{}", recording.figures());
    let promised = [Property::Sequential, Property::ReadYourWrites, Property::ExactlyOnce];
    let report = check_within(&recording.history(), &promised, Budget { states: 20_000_000 });
    println!("{}\n{report}", recording.figures());
    assert!(report.all_hold(), "{report}");
}

#[test]
fn nobody_sees_half_of_a_command_over_all_shards() {
    let _alone = alone();
    let up = UpCluster::start(&["--shards", "3"]);
    let keys = PeriodKeys::of_round(0, 3).registers;
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let stop = AtomicBool::new(false);
    let (looks, changes) = (AtomicU64::new(0), AtomicU64::new(0));
    let enough = || looks.load(Ordering::Relaxed) > 200 && changes.load(Ordering::Relaxed) > 50;
    let write = |writer: usize| {
        let mut c = up.connect();
        for n in 0.. {
            let value = format!("{writer}.{n}");
            let mut mset = vec!["MSET"];
            mset.extend(keys.iter().flat_map(|key| [*key, &value]));
            assert_eq!(call(&mut c, &mset), Answer::Word("OK".into()));
            if stop.load(Ordering::Relaxed) {
                return;
            }
        }
    };
    let look = || {
        let (mut c, mut last) = (up.connect(), Answer::Null);
        let mget: Vec<&str> = ["MGET"].into_iter().chain(keys.iter().copied()).collect();
        while !stop.load(Ordering::Relaxed) {
            let Answer::Array(values) = call(&mut c, &mget) else { panic!("MGET is refused") };
            assert!(values.iter().all(|v| *v == values[0]), "half of an MSET: {values:?}");
            changes.fetch_add(u64::from(values[0] != last), Ordering::Relaxed);
            last = values[0].clone();
            looks.fetch_add(1, Ordering::Relaxed);
        }
    };
    std::thread::scope(|scope| {
        let writers = [0, 1].map(|writer| scope.spawn(move || write(writer)));
        let readers = [0, 1].map(|_| scope.spawn(look));
        let _stops = StopOnDrop(&stop);
        for node in 0..2 {
            std::thread::sleep(Duration::from_millis(700));
            let before = up.kill(node);
            up.wait_for_return(node, before);
        }
        // On a machine that has much else to do this was too short a while.
        let begun = Instant::now();
        while !enough() && begun.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(10));
        }
        stop.store(true, Ordering::Relaxed);
        writers.into_iter().for_each(|w| w.join().expect("every MSET is answered"));
        readers.into_iter().for_each(|r| r.join().expect("no half of an MSET is seen"));
    });
    println!("{looks:?} times all keys were read, {changes:?} times they had changed");
    assert!(enough(), "{looks:?} reads, {changes:?} changes");
}

/// A run without kills, and its verdict: the same judge as above.
fn in_order() -> Recording {
    let _alone = alone();
    let up = UpCluster::start(&["--shards", "3"]);
    let load = ClientLoad::new(&up.redis, 3, 4);
    load.run(|load| {
        std::thread::sleep(Duration::from_millis(700));
        load.wait_for_answers(200);
    });
    let recording = load.into_recording();
    let report = judge(&recording);
    assert!(report.all_hold(), "{report}");
    recording
}

#[test]
fn the_judge_finds_one_stale_read_and_one_effect_that_happened_twice() {
    let mut stale = in_order();
    let mut twice = stale.clone();
    let (client, key, old) = stale.overwritten().expect("some value was overwritten");
    stale.add(client, CheckerWords::of(&["GET", &key]), &old);
    let report = judge(&stale);
    for property in [Property::Linearizable, Property::ReadYourWrites] {
        let verdict = report.verdict(property);
        assert!(matches!(verdict, Some(PropertyVerdict::Violated(_))), "{property}: {verdict:?}");
    }
    // One INCR more than was called: its client sees the number jump.
    twice.count_twice();
    let report = judge(&twice);
    for property in [Property::Linearizable, Property::ExactlyOnce] {
        let verdict = report.verdict(property);
        assert!(matches!(verdict, Some(PropertyVerdict::Violated(_))), "{property}: {verdict:?}");
    }
}

//! Hosts whose clocks are wrong.

use super::*;
use crate::envelope::ClockReport;

const HOUR_MS: u64 = 3_600_000;

/// A time at which the right clocks may be.
const NOW_MS: u64 = 100 * HOUR_MS;

/// A node of a shard with three replicas that report their clocks, and the number of its last message.
struct Hosts {
    node: Node,
    seq: u64,
}

impl Hosts {
    /// As it is once `clocks` were reported.
    fn new(clocks: [u64; 3]) -> Self {
        let mut it = Self { node: Node::new(), seq: 0 };
        it.node.executor.bound_time(3);
        it.report(clocks);
        it
    }

    fn report(&mut self, clocks: [u64; 3]) {
        for (replica, ms) in (0..).zip(clocks) {
            let said = Stamp { wall_ms: ms, host_ms: ms };
            for shard in 0..SHARDS as u8 {
                self.seq += 1;
                let id = MsgId { sender: Pid(3 * u32::from(shard) + replica), seq: self.seq };
                let payload = ClockReport(said).encode().to_vec();
                let report = Cast { id, dst: GroupSet::one(Gid(shard)), payload };
                assert_eq!(self.node.deliver(shard, &report), Ok(Delivered::Taken));
            }
        }
    }

    /// Runs a command that a front stamps with `ms`.
    fn run(&mut self, ms: u64, text: &str) -> String {
        self.seq += 1;
        self.node.run(&cast(self.seq, self.seq, ms, text))
    }

    /// Goes on as a new node would that was given this one's state.
    fn restart(&mut self) {
        let bytes = self.node.stream();
        self.node.executor = Node::new().executor;
        self.node.executor.bound_time(3);
        drop(self.node.executor.adopt(read(&bytes).unwrap()));
        assert_eq!(self.node.stream(), bytes);
    }
}

/// What a command that was refused for its stamp is told of ordered time.
fn refused_at(answer: &str) -> Option<u64> {
    timing::of_refusal(answer.as_bytes()).map(|(now_ms, _)| now_ms)
}

#[test]
fn a_front_two_hours_ahead_ends_nobodys_keys_and_makes_nobodys_commands_old() {
    let x = key(0);
    let mut hosts = Hosts::new([NOW_MS, NOW_MS + 2 * HOUR_MS, NOW_MS]);
    assert_eq!(hosts.run(NOW_MS, &format!("SET {x} 1 EX 60")), "+OK\r\n");
    let ahead = hosts.run(NOW_MS + 2 * HOUR_MS, &format!("INCR {x}"));
    assert_eq!(refused_at(&ahead), Some(NOW_MS + AHEAD_MAX_MS), "it was not executed");
    assert_eq!(hosts.run(NOW_MS + 1, &format!("INCR {x}")), ":2\r\n", "others are not too old");
    hosts.restart();
    assert_eq!(hosts.run(NOW_MS + 2, &format!("INCR {x}")), ":3\r\n", "nor after a restart");
    assert_eq!(
        hosts.run(NOW_MS + 2 * HOUR_MS, &format!("GET {x}")),
        "$1\r\n3\r\n",
        "nor by a read"
    );
    let again = hosts.run(refused_at(&ahead).unwrap(), &format!("INCR {x}"));
    assert_eq!(again, ":4\r\n", "by the time that it was told");
}

#[test]
fn time_goes_on_with_the_majority_and_keys_expire_by_it() {
    let x = key(0);
    let mut hosts = Hosts::new([NOW_MS, NOW_MS, 0]);
    assert_eq!(hosts.run(NOW_MS, &format!("SET {x} 1 EX 60")), "+OK\r\n");
    hosts.report([NOW_MS + 61_000, NOW_MS, NOW_MS + 9 * HOUR_MS]);
    // The middle one of the three has come to that: reads by any clock show it.
    assert_eq!(hosts.run(NOW_MS, &format!("EXISTS {x}")), ":0\r\n");
    assert_eq!(hosts.node.executor.now_ms(Gid(0)), NOW_MS + 61_000);
    hosts.report([NOW_MS, NOW_MS, NOW_MS]);
    assert_eq!(hosts.node.executor.now_ms(Gid(0)), NOW_MS + 61_000, "it does not go back");
}

#[test]
fn a_front_two_hours_behind_is_told_the_time_and_its_command_runs_once() {
    let x = key(0);
    let mut hosts = Hosts::new([NOW_MS, NOW_MS, NOW_MS - 2 * HOUR_MS]);
    let behind = hosts.run(NOW_MS - 2 * HOUR_MS, &format!("INCR {x}"));
    assert_eq!(refused_at(&behind), Some(NOW_MS));
    assert_eq!(hosts.run(NOW_MS, &format!("INCR {x}")), ":1\r\n", "the first had no effect");
    // A command that did run is not refused by its stamp, however old: a front would send it again.
    hosts.seq += 1;
    let one = cast(hosts.seq, hosts.seq, NOW_MS, &format!("INCR {x}"));
    assert_eq!(hosts.node.run(&one), ":2\r\n");
    hosts.report([NOW_MS + HOUR_MS; 3]);
    let late = Cast { id: MsgId { sender: Pid(9), seq: hosts.seq + 1 }, ..one };
    assert_eq!(hosts.node.run(&late), ":2\r\n");
}

#[test]
fn nobody_is_served_before_a_majority_reported_and_a_state_brings_the_reports() {
    let mut hosts = Hosts { node: Node::new(), seq: 0 };
    assert!(hosts.node.executor.knows_time(), "all fronts have one clock");
    hosts.node.executor.bound_time(3);
    assert!(!hosts.node.executor.knows_time());
    hosts.report([NOW_MS; 3]);
    assert!(hosts.node.executor.knows_time());
    hosts.restart();
    assert!(hosts.node.executor.knows_time());
}

//! Hosts whose clocks are wrong.

use super::*;
use amcast_smr::envelope::ClockReport;
use amcast_smr::executor::inspection::{self, ExecutorMutant, HELD_MS};
use amcast_smr::parts::{CommandPart, KEPT};

const HOUR_MS: u64 = 3_600_000;

/// A time at which the right clocks may be.
const NOW_MS: u64 = 100 * HOUR_MS;

/// A node of a shard with three replicas that report their clocks, and the number of its last message.
struct ReportingHosts {
    node: TestNode,
    seq: u64,
}

impl ReportingHosts {
    /// As it is once `clocks` were reported.
    fn new(clocks: [u64; 3]) -> Self {
        let mut it = Self { node: TestNode::new(), seq: 0 };
        it.node.executor.bound_time(3);
        it.report(clocks);
        it
    }

    fn report(&mut self, clocks: [u64; 3]) {
        self.report_both(clocks.map(|ms| Stamp { wall_ms: ms, host_ms: ms }));
    }

    fn report_both(&mut self, clocks: [Stamp; 3]) {
        for (replica, said) in (0..).zip(clocks) {
            for shard in 0..SHARDS as u8 {
                self.seq += 1;
                let id = MsgId { sender: Pid(3 * u32::from(shard) + replica), seq: self.seq };
                let payload = ClockReport(said).encode().to_vec();
                let report = TestCast { id, dst: GroupSet::one(Gid(shard)), payload };
                assert_eq!(self.node.deliver(shard, &report), Ok(DeliveryResult::Taken));
            }
        }
    }

    /// Runs a command that a gateway stamps with `ms`: its session's first.
    fn run(&mut self, ms: u64, text: &str) -> String {
        self.seq += 1;
        self.send(100 + self.seq, (1, 1), ms, text)
    }

    /// Runs the message of a session's request, which says from where on requests are open.
    fn send(&mut self, session: u64, numbers: (u64, u64), ms: u64, text: &str) -> String {
        self.seq += 1;
        let mut cast = cast(self.seq, 1, ms, text);
        cast.payload = sent(session, numbers, ms, text);
        self.node.run(&cast)
    }

    /// Others' commands run at this time, so often that each session is looked at.
    fn others(&mut self, ms: u64) {
        let known = inspection::known_sessions(&self.node.executor, Gid(0)).len();
        (0..=known).for_each(|_| _ = self.run(ms, &format!("SET {} 1", key(0))));
    }

    /// The clocks advance by so much in small steps, and others' commands run.
    fn live(&mut self, from_ms: u64, ms: u64) {
        for passed_ms in (0..=ms).step_by(LEAP_MS as usize) {
            self.report([from_ms + passed_ms; 3]);
        }
        self.report([from_ms + ms; 3]);
        self.others(from_ms + ms);
    }

    /// Continues as a new node with this one's state.
    fn restart(&mut self) {
        let bytes = self.node.stream();
        self.node.executor = TestNode::new().executor;
        self.node.executor.bound_time(3);
        drop(self.node.executor.adopt(read(&bytes).unwrap()));
        assert_eq!(self.node.stream(), bytes);
    }
}

/// A message's bytes, of a session's request, and from where on its requests are open.
pub(super) fn sent(session: u64, (request, open_from): (u64, u64), ms: u64, text: &str) -> Vec<u8> {
    let args: Vec<&[u8]> = text.split(' ').map(str::as_bytes).collect();
    let read_only = !registry::lookup(args[0]).expect("a known command").writes();
    let stamp = Stamp { wall_ms: ms, host_ms: ms };
    let mut payload = Vec::new();
    Envelope { session, request, open_from, stamp, read_only }.encode(&mut payload);
    encode_args(&args, &mut payload);
    payload
}

/// The ordered time in the error of a command that was refused for its stamp.
fn refused_at(answer: &str) -> Option<u64> {
    stamp_refusal::of_refusal(answer.as_bytes()).map(|(now_ms, _)| now_ms)
}

#[test]
fn a_gateway_two_hours_ahead_ends_nobodys_keys_and_makes_nobodys_commands_old() {
    let x = key(0);
    let mut hosts = ReportingHosts::new([NOW_MS, NOW_MS + 2 * HOUR_MS, NOW_MS]);
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
    assert_eq!(again, ":4\r\n", "by the time that it received");
}

#[test]
fn time_goes_on_with_the_majority_and_keys_expire_by_it() {
    let x = key(0);
    let mut hosts = ReportingHosts::new([NOW_MS, NOW_MS, 0]);
    assert_eq!(hosts.run(NOW_MS, &format!("SET {x} 1 EX 60")), "+OK\r\n");
    hosts.report([NOW_MS + 61_000, NOW_MS, NOW_MS + 9 * HOUR_MS]);
    // The middle one of the three has reached that: reads by any clock show it.
    assert_eq!(hosts.run(NOW_MS, &format!("EXISTS {x}")), ":0\r\n");
    assert_eq!(hosts.node.executor.now_ms(Gid(0)), NOW_MS + 61_000);
    hosts.report([NOW_MS, NOW_MS, NOW_MS]);
    assert_eq!(hosts.node.executor.now_ms(Gid(0)), NOW_MS + 61_000, "it does not go back");
}

#[test]
fn a_gateway_two_hours_behind_is_told_the_time_and_its_command_runs_once() {
    let x = key(0);
    let mut hosts = ReportingHosts::new([NOW_MS, NOW_MS, NOW_MS - 2 * HOUR_MS]);
    let behind = hosts.run(NOW_MS - 2 * HOUR_MS, &format!("INCR {x}"));
    assert_eq!(refused_at(&behind), Some(NOW_MS));
    assert_eq!(hosts.run(NOW_MS, &format!("INCR {x}")), ":1\r\n", "the first had no effect");
}

/// A gateway retries a refused command with the time that it received, and mostly as a new request.
/// The copy of the refused message that arrives through another node must not be executed, too.
#[test]
fn a_copy_of_a_message_that_was_ahead_stays_refused_when_time_has_come_to_its_stamp() {
    for numbers in [(1, 1), (2, 2)] {
        let (x, down_ms) = (key(0), 400_000);
        let mut hosts = ReportingHosts::new([NOW_MS; 3]);
        let incr = format!("INCR {x}");
        // The cluster was down for a while: the gateway's clock is right.
        let refused = hosts.send(7, (1, 1), NOW_MS + down_ms, &incr);
        let told_ms = refused_at(&refused).expect("it is ahead");
        hosts.report([NOW_MS + down_ms; 3]);
        hosts.restart();
        let copy = hosts.send(7, (1, 1), NOW_MS + down_ms, &incr);
        assert!(refused_at(&copy).is_some(), "{copy}");
        assert_eq!(hosts.send(7, numbers, told_ms, &incr), ":1\r\n");
        for _ in 0..2 {
            let copy = hosts.send(7, (1, 1), NOW_MS + down_ms, &incr);
            assert_ne!(copy, ":2\r\n");
            hosts.live(NOW_MS + down_ms, HOUR_MS);
        }
        assert_eq!(hosts.run(NOW_MS + down_ms + HOUR_MS, &format!("GET {x}")), "$1\r\n1\r\n");
    }
}

/// The clock of a gateway is hours ahead: its session is idle and forgotten long before a copy of
/// its command is old. Returns the answer to the copy once time has reached its stamp.
fn copy_to_an_idle_session() -> String {
    let x = key(0);
    let mut hosts = ReportingHosts::new([NOW_MS; 3]);
    let incr = format!("INCR {x}");
    assert!(refused_at(&hosts.send(7, (1, 1), NOW_MS + HOUR_MS, &incr)).is_some());
    assert_eq!(hosts.send(7, (1, 1), NOW_MS, &incr), ":1\r\n");
    hosts.live(NOW_MS, HOUR_MS);
    hosts.restart();
    let copy = hosts.send(7, (1, 1), NOW_MS + HOUR_MS, &incr);
    hosts.live(NOW_MS + HOUR_MS, HOUR_MS);
    assert!(
        !inspection::known_sessions(&hosts.node.executor, Gid(0)).contains(&7),
        "it is old now"
    );
    let late = hosts.send(7, (1, 1), NOW_MS + HOUR_MS, &incr);
    assert!(refused_at(&late).is_some(), "{late}");
    copy
}

#[test]
fn a_copy_of_a_message_that_was_far_ahead_is_refused_also_when_its_session_was_idle() {
    let copy = copy_to_an_idle_session();
    assert!(refused_at(&copy).is_some(), "{copy}");
    let copy = inspection::with(ExecutorMutant::ForgetsAhead, copy_to_an_idle_session);
    assert_eq!(copy, ":2\r\n", "it is executed again where that is forgotten");
}

/// Ordered time did not advance, and reaches that of its hosts at once: nothing looks old that was
/// executed before that.
#[test]
fn a_leap_of_time_forgets_no_session() {
    let (x, leap_ms) = (key(0), HOUR_MS);
    let mut hosts = ReportingHosts::new([NOW_MS; 3]);
    let incr = format!("INCR {x}");
    assert_eq!(hosts.send(7, (1, 1), NOW_MS, &incr), ":1\r\n");
    // One that waits for another shard meanwhile.
    let both = format!("EXEC 0 2 2 INCR {x} 2 INCR {}", key(1));
    let mut waits = cast(1_000_000, 1, NOW_MS, &both);
    waits.payload = sent(8, (1, 1), NOW_MS, &both);
    hosts.node.deliver(0, &waits).unwrap();
    hosts.report([NOW_MS + leap_ms; 3]);
    hosts.restart();
    hosts.node.deliver(1, &waits).unwrap();
    assert_eq!(hosts.node.answers.last().unwrap().1, "*2\r\n:2\r\n:1\r\n");
    for _ in 0..2 {
        hosts.others(NOW_MS + leap_ms);
        assert_eq!(hosts.send(7, (1, 1), NOW_MS, &incr), ":1\r\n", "it was executed");
        assert_eq!(hosts.send(8, (1, 1), NOW_MS, &both), "*2\r\n:2\r\n:1\r\n");
        hosts.restart();
    }
    // An idle session is forgotten in time, all the same.
    hosts.live(NOW_MS + leap_ms, Limits::default().session_ms + 2 * AHEAD_MAX_MS);
    assert!(!inspection::known_sessions(&hosts.node.executor, Gid(0)).contains(&7));
    assert!(refused_at(&hosts.send(7, (1, 1), NOW_MS, &incr)).is_some(), "and has no effect");
    assert_eq!(hosts.send(9, (1, 1), NOW_MS + leap_ms, &format!("GET {x}")), "$1\r\n1\r\n");
}

/// A client sends two commands without waiting. The first one is ahead; the second would not be.
#[test]
fn what_a_session_sent_later_does_not_overtake_what_is_ahead() {
    let (x, ahead_ms) = (key(0), NOW_MS + 60_000);
    let mut hosts = ReportingHosts::new([NOW_MS; 3]);
    let set = |value: u64| format!("SET {x} {value}");
    assert!(refused_at(&hosts.send(7, (1, 1), ahead_ms, &set(1))).is_some());
    hosts.report([ahead_ms; 3]);
    assert!(refused_at(&hosts.send(7, (2, 1), ahead_ms + 1, &set(2))).is_some(), "it waits");
    hosts.restart();
    assert!(refused_at(&hosts.send(7, (3, 1), ahead_ms + 1, &set(3))).is_some());
    assert_eq!(hosts.send(8, (3, 1), ahead_ms + 1, &set(8)), "+OK\r\n", "another session");
    // They are sent again in their order: as the same requests or as new ones.
    assert_eq!(hosts.send(7, (1, 1), ahead_ms + 2, &set(1)), "+OK\r\n");
    assert!(refused_at(&hosts.send(7, (3, 1), ahead_ms + 2, &set(3))).is_some());
    assert_eq!(hosts.send(7, (4, 4), ahead_ms + 2, &set(2)), "+OK\r\n");
    assert_eq!(hosts.send(7, (5, 4), ahead_ms + 2, &set(3)), "+OK\r\n");
    assert_eq!(hosts.run(ahead_ms, &format!("GET {x}")), "$1\r\n3\r\n");
    assert_eq!(inspection::untimely(&hosts.node.executor, Gid(0), 7), 0);
}

/// A read that a client sent behind its write sees it, also where the write is ahead and sent again.
#[test]
fn a_read_does_not_overtake_what_its_session_wrote_before() {
    let (x, ahead_ms) = (key(0), NOW_MS + 60_000);
    let mut hosts = ReportingHosts::new([NOW_MS; 3]);
    let (set, get) = (format!("SET {x} 1"), format!("GET {x}"));
    assert!(refused_at(&hosts.send(7, (1, 1), ahead_ms, &set)).is_some());
    assert!(refused_at(&hosts.send(7, (2, 1), ahead_ms, &get)).is_some(), "it waits");
    assert_eq!(hosts.send(8, (2, 1), ahead_ms, &get), "_\r\n", "another session");
    assert_eq!(hosts.send(7, (3, 3), NOW_MS, &set), "+OK\r\n");
    assert_eq!(hosts.send(7, (4, 3), NOW_MS, &get), "$1\r\n1\r\n");
}

/// A client that went away sends a refused request never again.
#[test]
fn a_request_that_never_comes_again_holds_no_session_for_long() {
    let (x, ahead_ms) = (key(0), NOW_MS + 60_000);
    let mut hosts = ReportingHosts::new([NOW_MS; 3]);
    let incr = format!("INCR {x}");
    assert!(refused_at(&hosts.send(7, (5, 1), ahead_ms, &incr)).is_some());
    hosts.report([ahead_ms; 3]);
    for waited_ms in (0..HELD_MS - LEAP_MS).step_by(1000) {
        let now_ms = ahead_ms + waited_ms;
        hosts.report([now_ms; 3]);
        let number = 6 + waited_ms / 1000;
        assert!(refused_at(&hosts.send(7, (number, 1), now_ms, &incr)).is_some(), "{waited_ms}");
    }
    let later_ms = ahead_ms + HELD_MS + 1;
    hosts.report([later_ms; 3]);
    assert_eq!(hosts.send(7, (100, 1), later_ms, &incr), ":1\r\n");
    // One that was admitted holds nothing when a copy of it is ahead.
    let copy = hosts.send(7, (100, 1), later_ms + HOUR_MS, &incr);
    assert_eq!(copy, ":1\r\n", "it was executed");
    assert_eq!(hosts.send(7, (101, 1), later_ms, &incr), ":2\r\n");
}

/// Clients of the log number their requests themselves, and send them in any order by several gateways.
#[test]
fn sessions_whose_requests_come_in_any_order_are_not_held() {
    let (x, session) = (key(0), UNORDERED | 7);
    let mut hosts = ReportingHosts::new([NOW_MS; 3]);
    let incr = format!("INCR {x}");
    assert!(refused_at(&hosts.send(session, (5, 1), NOW_MS + 2 * HOUR_MS, &incr)).is_some());
    assert_eq!(hosts.send(session, (6, 1), NOW_MS, &incr), ":1\r\n");
    assert_eq!(hosts.send(session, (5, 1), NOW_MS, &incr), ":2\r\n");
    let copy = hosts.send(session, (5, 1), NOW_MS + 2 * HOUR_MS, &incr);
    assert_eq!(copy, ":2\r\n", "an executed command keeps its answer");
    assert_eq!(hosts.send(session, (7, 1), NOW_MS, &incr), ":3\r\n");
}

/// Replicas look at idle sessions in any order, and forget them at any time: what comes for one afterwards is judged alike.
#[test]
fn replicas_judge_alike_whether_they_forgot_a_session_or_not() {
    let (x, far_ms) = (key(0), NOW_MS + HOUR_MS);
    let incr = format!("INCR {x}");
    let judged = |forgets: bool, was_refused: bool| {
        let mut hosts = ReportingHosts::new([NOW_MS; 3]);
        if was_refused {
            assert!(refused_at(&hosts.send(7, (1, 1), far_ms, &incr)).is_some());
        }
        assert_eq!(hosts.send(7, (5, 5), NOW_MS, &incr), ":1\r\n");
        for passed_ms in (0..=HOUR_MS).step_by(LEAP_MS as usize) {
            hosts.report([NOW_MS + passed_ms; 3]);
        }
        if forgets {
            hosts.others(far_ms);
        }
        let late = hosts.send(7, (1, 1), far_ms, &incr);
        (late, hosts.run(far_ms, &format!("GET {x}")))
    };
    // The message comes for the first time: it may be executed, on all of them.
    assert_eq!(judged(true, false), judged(false, false));
    // It was refused before.
    let (copy, value) = judged(true, true);
    assert_eq!(judged(false, true), (copy.clone(), value.clone()));
    assert_ne!(copy, ":2\r\n");
    assert_eq!(value, "$1\r\n1\r\n");
}

/// A command waits in one of its shards for another one while time leaps: a read that must see it waits for it.
#[test]
fn a_read_sees_what_its_session_wrote_also_behind_a_leap() {
    let (x, y) = (key(0), key(1));
    let mut hosts = ReportingHosts::new([NOW_MS; 3]);
    let text = format!("MSET {x} 1 {y} 1");
    let mut both = cast(1_000_000, 1, NOW_MS, &text);
    both.payload = sent(7, (1, 1), NOW_MS, &text);
    hosts.node.deliver(0, &both).unwrap();
    let get = TestCast {
        payload: sent(7, (2, 1), NOW_MS, &format!("GET {y}")),
        ..cast(0, 1, 0, &format!("GET {y}"))
    };
    let wrote = [SessionWrite { shard: Gid(0), request: 1, host_ms: NOW_MS }];
    let looks = |hosts: &mut ReportingHosts| {
        let mut answer = Vec::new();
        let peek = hosts.node.executor.peek(1, (get.dst, &get.payload), &wrote, &mut answer);
        (peek, String::from_utf8(answer).unwrap())
    };
    assert_eq!(looks(&mut hosts), (LocalRead::NotYet, String::new()));
    hosts.report([NOW_MS + HOUR_MS; 3]);
    assert_eq!(looks(&mut hosts), (LocalRead::NotYet, String::new()));
    hosts.node.deliver(1, &both).unwrap();
    assert_eq!(looks(&mut hosts), (ANSWERED, "$1\r\n1\r\n".into()));
}

/// The clocks of a majority are set back: ordered time does not advance until they reach it again.
#[test]
fn while_the_clocks_are_behind_ordered_time_right_stamps_are_not_refused() {
    let x = key(0);
    let mut hosts = ReportingHosts::new([NOW_MS; 3]);
    hosts.report([NOW_MS - HOUR_MS; 3]);
    for ms in [0, 1, 50, AHEAD_MAX_MS] {
        assert_eq!(hosts.run(NOW_MS + ms, &format!("SET {x} 1")), "+OK\r\n");
        assert_eq!(hosts.node.executor.now_ms(Gid(0)), NOW_MS);
    }
    assert!(refused_at(&hosts.run(NOW_MS + AHEAD_MAX_MS + 1, &format!("SET {x} 2"))).is_some());
}

#[test]
fn nobody_is_served_before_a_majority_reported_and_a_state_brings_the_reports() {
    let mut hosts = ReportingHosts { node: TestNode::new(), seq: 0 };
    assert!(hosts.node.executor.knows_time(), "all gateways have one clock");
    hosts.node.executor.bound_time(3);
    assert!(!hosts.node.executor.knows_time());
    hosts.report([NOW_MS; 3]);
    assert!(hosts.node.executor.knows_time());
    hosts.restart();
    assert!(hosts.node.executor.knows_time());
}

/// The wall clocks of a majority are set back by an hour, and those of their hosts are not.
#[test]
fn keys_expire_also_while_the_wall_clocks_were_set_back() {
    let x = key(0);
    let mut hosts = ReportingHosts::new([NOW_MS; 3]);
    let mut run = |request: u64, passed_ms: u64, text: &str| {
        let stamp = Stamp { wall_ms: NOW_MS + passed_ms / 2, host_ms: NOW_MS + passed_ms };
        hosts.report_both([Stamp { wall_ms: stamp.host_ms - HOUR_MS, ..stamp }; 3]);
        hosts.seq += 1;
        hosts.node.run(&sent_at(stamp, hosts.seq, request, text))
    };
    assert_eq!(run(1, 1000, &format!("SET {x} 1 PX 1000")), "+OK\r\n");
    assert_eq!(run(2, 2800, &format!("GET {x}")), "$1\r\n1\r\n");
    assert_eq!(run(3, 3200, &format!("GET {x}")), "_\r\n");
}

/// A session whose client reckons the age of a repeated request too small.
struct LateRepeat {
    hosts: ReportingHosts,
    session: u64,
    numbers: (u64, u64),
}

impl LateRepeat {
    /// The session's first command was executed.
    fn new(session: u64, numbers: (u64, u64)) -> Self {
        let mut it = Self { hosts: ReportingHosts::new([NOW_MS; 3]), session, numbers };
        assert_eq!(it.send(0, NOW_MS), ":1\r\n");
        it
    }

    /// Sends the command, or the one that is so many behind it.
    fn send(&mut self, behind: u64, ms: u64) -> String {
        let (request, open_from) = self.numbers;
        self.hosts.send(
            self.session,
            (request + behind, open_from),
            ms,
            &format!("INCR {}", key(0)),
        )
    }

    /// Sends a part of a command.
    fn send_part(&mut self, ms: u64) {
        let (request, open_from) = self.numbers;
        let stamp = Stamp { wall_ms: ms, host_ms: ms };
        let (session, read_only) = (self.session, false);
        let envelope = Envelope { session, request: request + 100, open_from, stamp, read_only };
        self.hosts.seq += 1;
        let mut payload = Vec::new();
        CommandPart { envelope, bytes: b"part" }.encode(&mut payload);
        let id = MsgId { sender: Pid(9), seq: self.hosts.seq };
        let part = TestCast { id, dst: GroupSet::one(Gid(0)), payload };
        assert_eq!(self.hosts.node.run(&part).as_bytes(), KEPT);
    }

    /// An hour passes, with `step` every five minutes; a replica looks at its sessions meanwhile, or it does not.
    fn live(&mut self, forgets: bool, mut step: impl FnMut(&mut Self, u64)) -> u64 {
        for passed_ms in (0..=HOUR_MS).step_by(LEAP_MS as usize) {
            self.hosts.report([NOW_MS + passed_ms; 3]);
            if passed_ms % 300_000 < LEAP_MS {
                step(self, NOW_MS + passed_ms);
            }
        }
        self.hosts.report([NOW_MS + HOUR_MS; 3]);
        if forgets {
            self.hosts.others(NOW_MS + HOUR_MS);
        }
        NOW_MS + HOUR_MS
    }

    /// The answers to the repeated request, with a stamp as if it were sent for the first time, to the one behind it,
    /// and to it once more.
    fn repeat(&mut self, ms: u64, restarts: bool) -> [String; 3] {
        let again = self.send(0, ms);
        if restarts {
            self.hosts.restart();
        }
        [again, self.send(1, ms), self.send(0, ms)]
    }
}

/// Each way in which replicas may differ: they forgot a session or not, and began again with a state or not.
fn replicas() -> impl Iterator<Item = (bool, bool)> {
    [(false, false), (false, true), (true, false), (true, true)].into_iter()
}

/// A client's clock does not count the time in which its host sleeps, or its requests all have an age of 0.
#[test]
fn replicas_judge_a_late_repeat_alike_whether_they_forgot_its_session_or_not() {
    let repeated = |session, numbers, (forgets, restarts)| {
        let mut it = LateRepeat::new(session, numbers);
        let far_ms = it.live(forgets, |_, _| {});
        it.repeat(far_ms, restarts)
    };
    for (session, numbers) in [(7, (5, 5)), (UNORDERED | 7, (5, 1))] {
        for replica in replicas() {
            let answers = repeated(session, numbers, replica);
            assert_eq!(answers, [":2\r\n", ":3\r\n", ":2\r\n"], "{session} {replica:?}");
        }
        let broken = |replica| {
            let check = || repeated(session, numbers, replica);
            inspection::with(ExecutorMutant::KeepsIdleRecords, check)
        };
        assert_ne!(broken((true, false)), broken((false, false)), "the test finds it");
    }
}

/// A floor is kept for what was far ahead, and the record of what its session ran is not.
#[test]
fn replicas_judge_a_late_repeat_alike_where_a_session_is_kept_for_what_was_ahead() {
    for replica in replicas() {
        let mut it = LateRepeat::new(7, (5, 5));
        assert!(refused_at(&it.send(1, NOW_MS + 3 * HOUR_MS)).is_some());
        let far_ms = it.live(replica.0, |_, _| {});
        assert!(inspection::known_sessions(&it.hosts.node.executor, Gid(0)).contains(&7));
        assert_eq!(it.repeat(far_ms, replica.1), [":2\r\n", ":3\r\n", ":2\r\n"], "{replica:?}");
    }
}

/// A session that only repeats a request is not idle: no replica forgets what it ran.
#[test]
fn replicas_know_what_a_session_ran_that_only_repeats_it() {
    let repeated = |replica: (bool, bool)| {
        let mut it = LateRepeat::new(7, (5, 5));
        let far_ms = it.live(replica.0, |it, _| _ = it.send(0, NOW_MS));
        it.repeat(far_ms, replica.1)
    };
    for replica in replicas() {
        assert_eq!(repeated(replica), [":1\r\n", ":2\r\n", ":1\r\n"], "{replica:?}");
    }
    let broken = inspection::with(ExecutorMutant::AgesRetried, || repeated((true, false)));
    assert_ne!(broken[0], ":1\r\n", "the test finds it");
}

/// Parts of commands have no turn, and keep no record alive.
#[test]
fn replicas_judge_a_late_repeat_alike_behind_parts_of_commands() {
    let repeated = |replica: (bool, bool)| {
        let mut it = LateRepeat::new(7, (5, 5));
        let far_ms = it.live(replica.0, LateRepeat::send_part);
        it.repeat(far_ms, replica.1)
    };
    for replica in replicas() {
        assert_eq!(repeated(replica), [":2\r\n", ":3\r\n", ":2\r\n"], "{replica:?}");
    }
    let broken = |replica| inspection::with(ExecutorMutant::RenewsByParts, || repeated(replica));
    assert_ne!(broken((true, false)), broken((false, false)), "the test finds it");
}

/// Two messages of one request wait for another shard while their session is idle, and run when it has begun anew.
#[test]
fn what_waited_while_its_session_was_idle_runs_once() {
    for restarts in [false, true] {
        let mut it = LateRepeat::new(7, (5, 5));
        let both = format!("EXEC 0 2 2 INCR {} 2 INCR {}", key(1), key(2));
        let waits: Vec<TestCast> = (1_000_000..1_000_002)
            .map(|seq| TestCast {
                payload: sent(7, (6, 5), NOW_MS, &both),
                ..cast(seq, 1, NOW_MS, &both)
            })
            .collect();
        waits.iter().for_each(|cast| _ = it.hosts.node.deliver(1, cast).unwrap());
        let far_ms = it.live(true, |_, _| {});
        let other = format!("INCR {{{}}}other", key(1));
        assert_eq!(it.hosts.send(7, (6, 5), far_ms, &other), ":1\r\n", "of another time");
        if restarts {
            it.hosts.restart();
        }
        for cast in &waits {
            it.hosts.node.deliver(2, cast).unwrap();
            let answer = &it.hosts.node.answers.last().unwrap().1;
            assert_eq!(answer, "*2\r\n:1\r\n:1\r\n", "{restarts}");
        }
        assert_eq!(it.hosts.send(7, (6, 5), far_ms, &other), ":1\r\n");
    }
}

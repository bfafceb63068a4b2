//! The memory of logs whose values are in files: at most the configured amount, however many values
//! there are, besides the answers of sessions, which have a bound of their own. The test has a
//! process of its own, since the memory of other tests would count, too.

use amcast_core::{Gid, GroupSet, MsgId, Pid};
use amcast_log::{Addition, LogAnswer, LogCommand, Logs};
use amcast_smr::{DeliveryResult, Envelope, Executor, Limits, Stamp};

/// Bytes for the logs.
const MEMORY: usize = 16_000_000;

/// Bytes for the answers that sessions keep: less than one session's window of them.
const ANSWERS: usize = 4_000_000;

/// Values that wait to be written or are being written, and spare memory of the allocator.
const BESIDES: usize = 12_000_000;

/// Bytes of memory that are this process's own.
fn own_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux has it");
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).expect("and this in it");
    1024 * line.split_whitespace().nth(1).and_then(|kb| kb.parse::<usize>().ok()).expect("in kB")
}

struct LogMemoryNode {
    executor: Executor<Logs>,
    position: u64,
}

impl LogMemoryNode {
    fn new() -> Self {
        let logs = Logs::on_disk(1, MEMORY, 1_000_000_000, &std::env::temp_dir());
        let logs = logs.expect("files can be made");
        let limits = Limits { answer_bytes: ANSWERS, ..Limits::default() };
        Self { executor: Executor::new(logs, 1, limits), position: 0 }
    }

    fn run(&mut self, command: &LogCommand<'_>) -> LogAnswer {
        let stamp = Stamp { wall_ms: 1, host_ms: 1 };
        self.position += 1;
        // As a client has it that may send it again: its session keeps the answers of as many requests as it may.
        let (request, read_only) = (self.position, !command.writes());
        let open_from = request.saturating_sub(Limits::default().window - 1).max(1);
        let mut payload = Vec::new();
        Envelope { session: 1 << 63, request, open_from, stamp, read_only }.encode(&mut payload);
        command.encode(&mut payload);
        let id = MsgId { sender: Pid(9), seq: self.position };
        let (dst, mut told) = (GroupSet::one(Gid(0)), None);
        let taken = self.executor.deliver(Gid(0), self.position, id, dst, &payload, &mut |a| {
            told = LogAnswer::decode(a.bytes);
        });
        assert_eq!(taken, Ok(DeliveryResult::Taken));
        told.expect("an answer")
    }

    fn read(&mut self, log: &str, from: u64) -> Vec<u8> {
        let log = log.as_bytes();
        let read = LogCommand::Read { log, from, values_max: 1, bytes_max: 1 };
        let answer = self.run(&read);
        let LogAnswer::Values { values, .. } = answer else { panic!("{answer:?}") };
        values.into_iter().next().expect("it is there")
    }
}

#[test]
fn ten_million_values_and_many_logs_take_the_memory_that_was_given() {
    let _limit = amcast_test_policy::time_limit();
    let before = own_bytes();
    let (mut node, many) = (LogMemoryNode::new(), 10_000_000_u64);
    for n in (0..many).step_by(1000) {
        let values: Vec<_> = (n..n + 1000).map(u64::to_le_bytes).collect();
        let each = values.iter().map(|value| Addition { log: b"one", value });
        let answer = node.run(&LogCommand::Append(each.collect()));
        assert!(matches!(answer, LogAnswer::Appended { .. }), "{n}: {answer:?}");
    }
    let bound = before + MEMORY + ANSWERS + BESIDES;
    assert!(own_bytes() <= bound, "{} bytes, with one log", own_bytes() - before);
    for n in (0..many).step_by(99_991) {
        assert_eq!(node.read("one", n), n.to_le_bytes());
    }
    assert!(own_bytes() <= bound, "{} bytes, after reads", own_bytes() - before);
    let deleted = node.run(&LogCommand::Delete { log: b"one" });
    assert!(matches!(deleted, LogAnswer::Deleted { extent, .. } if extent.next == many));
    let logs: Vec<String> = (0..15_000).map(|n| format!("log{n}")).collect();
    for n in 0..100_u64 {
        for logs in logs.chunks(1000) {
            let value = &[n as u8; 20];
            let each = logs.iter().map(|log| Addition { log: log.as_bytes(), value });
            let answer = node.run(&LogCommand::Append(each.collect()));
            assert!(matches!(answer, LogAnswer::Appended { .. }), "{n}: {answer:?}");
        }
    }
    assert!(own_bytes() <= bound, "{} bytes, with many logs", own_bytes() - before);
    for log in logs.iter().step_by(997) {
        (0..100).step_by(11).for_each(|n| assert_eq!(node.read(log, n), [n as u8; 20]));
    }
}

//! Commands of the distributed log, and answers to them.

use amcast_core::{Gid, GroupSet, MsgId, Pid};
use amcast_kv::SlotMap;
use amcast_log::command::MARK;
use amcast_log::{LogAnswer, LogCommand, Logs};
use amcast_smr::{DeliveryResult, Envelope, Executor, ExecutorState, Limits, Stamp};

const SHARDS: usize = 2;

/// The limit of the logs of both shards: little, so that it is met.
const BYTES: usize = 8_000;

/// The first of `bytes` behind two bytes of length, and the rest.
fn first(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = bytes.split_first_chunk::<2>()?;
    let len = usize::from(u16::from_le_bytes(*len)).min(rest.len());
    Some(rest.split_at(len))
}

fn stream(executor: &mut Executor<Logs>) -> Vec<u8> {
    let mut out = Vec::new();
    executor.capture();
    while executor.piece(1000, &mut out) {}
    executor.release();
    out
}

/// Commands, each without its mark and behind its length: one that decodes is the same when it is
/// encoded again, each is answered once and in words that can be read, and the state after them goes
/// into a stream and comes out of it.
pub(crate) fn commands(bytes: &[u8]) {
    let logs = Logs::new(SHARDS, BYTES);
    let mut executor = Executor::new(logs.clone(), SHARDS, Limits::default());
    let (mut positions, mut rest) = ([0; SHARDS], bytes);
    for request in 1..=64 {
        let Some((one, others)) = first(rest) else { break };
        rest = others;
        let body = [&MARK, one].concat();
        let mut dst = GroupSet::one(Gid(0));
        let mut writes = false;
        if let Some(command) = LogCommand::decode(&body) {
            let mut again = Vec::new();
            command.encode(&mut again);
            assert_eq!(again, body);
            dst = Logs::destinations(SlotMap::new(SHARDS), &command);
            writes = command.writes();
        }
        let stamp = Stamp { wall_ms: 1_000 * request, host_ms: request };
        let read_only = !writes;
        let head = Envelope { session: 1, request, open_from: request, stamp, read_only };
        let mut payload = Vec::new();
        head.encode(&mut payload);
        payload.extend_from_slice(&body);
        let (id, mut answers) = (MsgId { sender: Pid(9), seq: request }, 0);
        for shard in dst.iter() {
            positions[shard.index()] += 1;
            let position = positions[shard.index()];
            let taken = executor.deliver(shard, position, id, dst, &payload, &mut |answer| {
                let told = LogAnswer::decode(answer.bytes).expect("answers can be read");
                let mut again = Vec::new();
                told.encode(&mut again);
                assert_eq!(again, answer.bytes);
                answers += 1;
            });
            assert_eq!(taken, Ok(DeliveryResult::Taken));
        }
        assert_eq!(answers, 1);
    }
    let given = stream(&mut executor);
    let state = ExecutorState::read(&logs, SHARDS, &mut given.as_slice()).expect("its own");
    let mut again = Executor::new(logs, SHARDS, Limits::default());
    drop(again.adopt(state));
    assert_eq!(given, stream(&mut again), "the same state is given again");
}

/// Bytes that a node gave as an answer: none, or the same when they are encoded again.
pub(crate) fn answers(bytes: &[u8]) {
    let Some(answer) = LogAnswer::decode(bytes) else { return };
    let mut again = Vec::new();
    answer.encode(&mut again);
    assert_eq!(LogAnswer::decode(&again), Some(answer));
}

//! Messages that shards deliver: commands, and parts of commands that are larger than a message.

use amcast_core::{Gid, GroupSet, MsgId, Pid};
use amcast_kv::{Kv, Partitions, destinations, encode_args, registry};
use amcast_smr::parts::{Assembly, CommandPart};
use amcast_smr::{DeliveryResult, Envelope, Executor, ExecutorState, Limits, Stamp};

const SHARDS: usize = 2;

/// One message.
struct Message {
    dst: GroupSet,
    payload: Vec<u8>,
    /// Whether it must be answered, once.
    is_answered: bool,
}

/// Messages, one a line, are taken and answered once at the most; the state between them goes into a stream and comes
/// out of it.
///
/// `p SESSION FIRST INDEX COUNT COMMAND ..` is a part of a command that is cut into so many, `a
/// SESSION FIRST COUNT COMMAND ..` the request that assembles it, `c SESSION REQUEST COMMAND ..` a
/// whole one; `r BYTES` are raw bytes; `S` has the node start again from its state.
pub(crate) fn messages(bytes: &[u8]) {
    let mut executor = executor();
    let mut positions = [1; SHARDS];
    for (i, line) in bytes.split(|&b| b == b'\n').take(64).enumerate() {
        let seq = i as u64 + 1;
        if line == b"S" {
            executor = again(&mut executor);
            continue;
        }
        let Some(message) = message(line, seq) else { continue };
        let id = MsgId { sender: Pid(9), seq };
        let (mut answers, payload) = (0, &message.payload);
        for shard in message.dst.iter() {
            let position = &mut positions[shard.index()];
            let taken =
                executor.deliver(shard, *position, id, message.dst, payload, &mut |answer| {
                    assert!(!answer.bytes.is_empty());
                    answers += 1;
                });
            assert!(
                matches!(taken, Ok(DeliveryResult::Taken | DeliveryResult::Malformed)),
                "{taken:?}"
            );
            *position += 1;
        }
        assert!(answers <= 1, "one answer: {}", line.escape_ascii());
        assert!(answers == 1 || !message.is_answered, "no answer: {}", line.escape_ascii());
    }
    let mut again = again(&mut executor);
    let bytes = [&mut again, &mut executor].map(|executor| stream(executor).len());
    assert_eq!(bytes[0], bytes[1], "the same state takes as many bytes");
    for shard in (0..SHARDS).map(|g| Gid(g as u8)) {
        assert_eq!(again.delivered(shard), positions[shard.index()] - 1);
        assert_eq!(again.parts_bytes(shard), executor.parts_bytes(shard));
    }
}

fn executor() -> Executor<Kv> {
    Executor::new(Kv::new(SHARDS, 7), SHARDS, Limits::default())
}

fn stream(executor: &mut Executor<Kv>) -> Vec<u8> {
    let mut out = Vec::new();
    executor.capture();
    while executor.piece(1000, &mut out) {}
    out
}

fn again(before: &mut Executor<Kv>) -> Executor<Kv> {
    let given = stream(before);
    let state =
        ExecutorState::read(&Kv::new(SHARDS, 7), SHARDS, &mut given.as_slice()).expect("its own");
    let mut again = executor();
    drop(again.adopt(state));
    again
}

fn message(line: &[u8], seq: u64) -> Option<Message> {
    let stamp = Stamp { wall_ms: 1_000 * seq, host_ms: seq };
    let envelope = |session, request, open_from| Envelope {
        session,
        request,
        open_from,
        stamp,
        read_only: false,
    };
    let (kind, rest) = line.split_first_chunk::<2>()?;
    let mut payload = Vec::new();
    if kind == b"r " {
        payload.extend_from_slice(rest);
        let dst = GroupSet::one(Gid(0));
        return Some(Message { dst, payload, is_answered: false });
    }
    let numbers = match kind {
        b"p " => 4,
        b"a " => 3,
        b"c " => 2,
        _ => return None,
    };
    let words: Vec<&[u8]> = rest.split(|&b| b == b' ').collect();
    let (head, args) = words.split_at_checked(numbers)?;
    let number = |i: usize| std::str::from_utf8(head[i]).ok()?.parse::<u16>().ok().map(u64::from);
    let command = registry::lookup(args.first()?)?;
    let dst = destinations(command, args, &Partitions::by_slot(SHARDS)).ok()?;
    let (lowest, session) = (dst.lowest()?, number(0)?);
    let mut body = Vec::new();
    encode_args(args, &mut body);
    match kind {
        b"c " => {
            envelope(session, number(1)?, number(1)?).encode(&mut payload);
            payload.extend_from_slice(&body);
            Some(Message { dst, payload, is_answered: true })
        }
        b"a " => {
            let (first, parts) = (number(1)?, number(2)?);
            let envelope = envelope(session, first + parts, first + parts);
            let (bytes, sum) = (body.len() as u64, crc32c::crc32c(&body));
            Assembly { envelope, parts: parts as u32, bytes, sum }.encode(&mut payload);
            Some(Message { dst, payload, is_answered: true })
        }
        _ => {
            let first = number(1)?;
            let index = number(2)?;
            let count = number(3)?;
            let part_bytes = body.len().div_ceil(usize::try_from(count).ok()?.max(1));
            let bytes = body.chunks(part_bytes).nth(usize::try_from(index).ok()?).unwrap_or(b"");
            let envelope = envelope(session, first + index, first);
            CommandPart { envelope, bytes }.encode(&mut payload);
            Some(Message { dst: GroupSet::one(lowest), payload, is_answered: true })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_of_the_corpus_is_put_together() {
        let (mut executor, mut positions, mut answers) = (executor(), [1; SHARDS], Vec::new());
        let lines = include_bytes!("../../../fuzz/corpus/ordered_messages/one");
        for (seq, line) in (1..).zip(lines.split(|&b| b == b'\n')) {
            let Some(Message { dst, payload, .. }) = message(line, seq) else { continue };
            for shard in dst.iter() {
                let position = positions[shard.index()];
                let id = MsgId { sender: Pid(9), seq };
                let taken = executor.deliver(shard, position, id, dst, &payload, &mut |answer| {
                    answers.push(String::from_utf8_lossy(answer.bytes).into_owned());
                });
                assert_eq!(taken, Ok(DeliveryResult::Taken));
                positions[shard.index()] += 1;
            }
        }
        let part = "+PART\r\n";
        let value = "$5\r\nvalue\r\n";
        assert_eq!(answers, [part, part, "_\r\n", part, "+OK\r\n", "+OK\r\n", value]);
    }
}

//! Requests of clients of the Redis gateway.

use amcast_core::{Gid, MsgId, Pid};
use amcast_kv::{Kv, Partitions, batch, destinations, encode_args, registry};
use amcast_smr::{DeliveryResult, Envelope, Executor, ExecutorState, Limits, Stamp};

/// The longest command that is taken, in bytes: short, so that the limit is met.
const COMMAND_BYTES_MAX: usize = 200;

/// A stream of requests is cut into the same commands however it comes in pieces.
pub(crate) fn requests(bytes: &[u8]) {
    batches(bytes);
    let Some((&cut, stream)) = bytes.split_first() else { return };
    let parsed =
        |piece: usize| amcast_kv::resp::fuzzing::requests(stream, piece.max(1), COMMAND_BYTES_MAX);
    let whole = parsed(stream.len());
    assert_eq!(
        whole,
        parsed(usize::from(cut)),
        "pieces of {cut} bytes are taken for something else"
    );
    for args in whole.iter().flatten() {
        let args: Vec<&[u8]> = args.iter().map(Vec::as_slice).collect();
        let mut encoded = Vec::new();
        encode_args(&args, &mut encoded);
        let mut decoded = Vec::new();
        amcast_kv::decode_args(&encoded, &mut decoded).expect("it was encoded");
        assert_eq!(args, decoded);
    }
}

/// Any bytes are taken for a batch, or for the answers to one, and the commands of a batch come apart again.
fn batches(bytes: &[u8]) {
    let parts: Vec<&[u8]> = bytes.split(|&b| b == b'\n').take(batch::BATCH_MAX).collect();
    let mut message = parts[0].to_vec();
    parts[1..].iter().for_each(|part| batch::push(&mut message, 0, part));
    if !batch::is_batch(parts[0]) {
        assert!(batch::commands(&message).eq(parts.iter().copied()));
        assert!(batch::commands(&message).is_whole());
    }
    assert!(batch::commands(bytes).map(<[u8]>::len).sum::<usize>() <= bytes.len());
    let answers = batch::answers(bytes).into_iter().flatten();
    assert!(answers.map(|(_, answer)| answer.len()).sum::<usize>() <= bytes.len());
}

const SHARDS: usize = 2;

/// Commands, one a line with spaces between arguments, are each answered once, and the state after
/// them goes into a stream and comes out of it.
pub(crate) fn commands(bytes: &[u8]) {
    let mut executor = Executor::new(Kv::new(SHARDS, 7), SHARDS, Limits::default());
    let mut positions = [1; SHARDS];
    for (i, line) in bytes.split(|&b| b == b'\n').take(64).enumerate() {
        let args: Vec<&[u8]> = line.split(|&b| b == b' ').collect();
        let Some(command) = registry::lookup(args[0]) else { continue };
        let Ok(dst) = destinations(command, &args, &Partitions::by_slot(SHARDS)) else { continue };
        let request = i as u64 + 1;
        let header = Envelope {
            session: 1,
            request,
            open_from: request,
            stamp: Stamp { wall_ms: 1_000 * request, host_ms: request },
            read_only: !command.writes(),
        };
        let mut payload = Vec::new();
        header.encode(&mut payload);
        encode_args(&args, &mut payload);
        let id = MsgId { sender: Pid(9), seq: request };
        let mut answers = 0;
        for shard in dst.iter() {
            let position = &mut positions[shard.index()];
            let taken = executor.deliver(shard, *position, id, dst, &payload, &mut |answer| {
                assert!(answer.bytes.ends_with(b"\r\n"), "{:?}", answer.bytes);
                answers += 1;
            });
            assert_eq!(taken, Ok(DeliveryResult::Taken));
            *position += 1;
        }
        assert_eq!(answers, usize::from(!dst.is_empty()), "{}", String::from_utf8_lossy(line));
    }
    let stream = |executor: &mut Executor<Kv>| {
        let mut out = Vec::new();
        executor.capture();
        while executor.piece(1000, &mut out) {}
        executor.release();
        out
    };
    let given = stream(&mut executor);
    let state =
        ExecutorState::read(&Kv::new(SHARDS, 7), SHARDS, &mut given.as_slice()).expect("its own");
    let mut again = Executor::new(Kv::new(SHARDS, 7), SHARDS, Limits::default());
    drop(again.adopt(state));
    for shard in (0..SHARDS).map(|g| Gid(g as u8)) {
        assert_eq!(again.delivered(shard), positions[shard.index()] - 1);
    }
    assert_eq!(given.len(), stream(&mut again).len(), "the same state takes as many bytes");
}

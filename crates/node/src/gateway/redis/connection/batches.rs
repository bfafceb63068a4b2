//! Batches: commands of one connection that go to the same shards, and that were taken from the input in one go, share a
//! [message](amcast_kv::batch) and a request.
//!
//! A command counts as under way from the moment at which it is added to a batch; the batch is sent when no more commands
//! can be taken, or before a command that is sent alone. So no command waits for others to come, and a shard executes
//! the commands that go to it alone in the order of the client. Reads and writes are not mixed: reads are executed at one replica alone, and
//! a read that is refused for the size of its answer must not have a write of its batch behind it.

use super::super::pipeline::CommandReach;
use super::bounds::BUFFER_BYTES_KEPT;
use super::order::{RequestPath, UnsentRequest};
use super::{RedisConnection, UnsentCommand};
use crate::gateway::backend::Backend;
use crate::gateway::clock::ClockReading;
use amcast_core::GroupSet;
use amcast_kv::batch::{self, BATCH_MAX, BatchKind};
use amcast_kv::size_refusal::SMALL_ANSWER_BYTES;
use amcast_kv::split_epoch;
use amcast_smr::envelope::Envelope;
use std::task::Context;

/// Bytes of a batch, at most: a larger command costs more to copy than a message of its own does.
const BATCH_BYTES_MAX: usize = 16 << 10;

/// Buffers that stay with a connection while commands are under way; otherwise one does.
const SPARE_MAX: usize = 4;

/// Keys of the commands of one batch, at most, unless the first has more: other commands of the shards wait meanwhile.
const BATCH_KEYS_MAX: usize = 256;

/// A batch whose message is not sent yet.
struct UnsentBatch {
    request: u64,
    dst: GroupSet,
    /// Room for the envelope, the epoch, and the commands.
    message: Vec<u8>,
    commands: usize,
    /// Of all commands.
    keys: usize,
    kind: BatchKind,
}

/// The batches of a connection that are not sent yet.
#[derive(Default)]
pub(super) struct UnsentBatches {
    /// In the order of their requests.
    unsent: Vec<UnsentBatch>,
    /// Empty buffers.
    spare: Vec<Vec<u8>>,
}

impl UnsentBatches {
    /// How many they are.
    pub(super) const fn len(&self) -> usize {
        self.unsent.len()
    }

    /// Bytes of all buffers.
    pub(super) fn capacity(&self) -> usize {
        let unsent = self.unsent.iter().map(|batch| batch.message.capacity());
        unsent.chain(self.spare.iter().map(Vec::capacity)).sum()
    }

    fn put_back(&mut self, mut buffer: Vec<u8>) {
        let is_fit = (1..=BUFFER_BYTES_KEPT).contains(&buffer.capacity());
        if is_fit && self.spare.len() < SPARE_MAX {
            buffer.clear();
            self.spare.push(buffer);
        }
    }

    /// Gives back the buffers that a connection does not need which has nothing under way.
    pub(super) fn rest(&mut self) {
        self.spare.truncate(1);
    }
}

/// The keys of a command.
fn keys_of(pending: &UnsentCommand) -> usize {
    pending.keys.as_ref().map_or(1, Vec::len)
}

/// The encoded arguments of a message begin here.
fn args_at(message: &[u8]) -> usize {
    message.len() - split_epoch(&message[Envelope::BYTES..]).1.len()
}

impl<B: Backend> RedisConnection<B> {
    /// Adds the encoded command to a batch, or gives it back if that is not possible now.
    pub(super) fn add_to_batch(
        &mut self,
        pending: UnsentCommand,
        kind: BatchKind,
        cx: &mut Context<'_>,
        now: ClockReading,
    ) -> Option<UnsentCommand> {
        if !self.admits(&pending) {
            return Some(pending);
        }
        let at = self.batches.unsent.iter().position(|batch| batch.dst == pending.dst);
        let at = match at {
            Some(at) if self.fits(&self.batches.unsent[at], kind, keys_of(&pending)) => Some(at),
            Some(_) if !self.send_batches(cx, now) => return Some(pending),
            _ => None,
        };
        let request = match at {
            Some(at) => {
                let batch = &mut self.batches.unsent[at];
                // Both go by one map, so that both epochs have as many bytes.
                let from = args_at(&self.next.body);
                batch::push(&mut batch.message, from, &self.next.body[from..]);
                batch.commands += 1;
                batch.keys += keys_of(&pending);
                batch.request
            }
            None => self.begin_batch(&pending, kind),
        };
        let UnsentCommand { dst, keys, read_only, then, call, .. } = pending;
        let reach = CommandReach { dst, keys: keys.as_deref(), writes: !read_only };
        self.pipeline.sent(request, &reach);
        self.keep_keys(keys);
        self.await_answer(request, then, call);
        None
    }

    /// Whether the next command, which goes to the same shards, may be added to this batch. The answers to its reads are
    /// small together: more than are expected to be so would be refused.
    fn fits(&self, batch: &UnsentBatch, kind: BatchKind, keys: usize) -> bool {
        let most = BATCH_BYTES_MAX.min(self.shared.config.message_bytes_max);
        let answers = (batch.commands + 1) * self.expected.guess;
        batch.kind == kind
            && batch.commands < BATCH_MAX
            && batch.keys + keys <= BATCH_KEYS_MAX
            && batch.message.len() + self.next.body.len() <= most
            && (kind != BatchKind::Reads || answers <= SMALL_ANSWER_BYTES)
    }

    /// Begins a batch with the encoded command; its request.
    fn begin_batch(&mut self, pending: &UnsentCommand, kind: BatchKind) -> u64 {
        let mut message = self.batches.spare.pop().unwrap_or_default();
        std::mem::swap(&mut message, &mut self.next.body);
        self.last_request += 1;
        let request = self.last_request;
        let (dst, keys) = (pending.dst, keys_of(pending));
        self.batches.unsent.push(UnsentBatch { request, dst, message, commands: 1, keys, kind });
        request
    }

    /// Sends all batches; false if there is no room now: `cx` is woken when there is.
    pub(super) fn send_batches(&mut self, cx: &mut Context<'_>, now: ClockReading) -> bool {
        if self.send_some_batches(now) {
            return true;
        }
        self.shared.router.wait_for_room(&self.lane, cx.waker());
        // There may have been room between the refusal and the line above.
        self.send_some_batches(now)
    }

    /// Commands of batches that found no room are sent behind those that were refused meanwhile and came before them.
    pub(super) fn take_back_batches(&mut self) {
        for UnsentBatch { request, message, .. } in std::mem::take(&mut self.batches.unsent) {
            self.pipeline.answered(request);
            self.refuse_batch(request as u32, &message[args_at(&message)..]);
            self.batches.put_back(message);
        }
    }

    /// Sends batches while there is room; whether all are sent.
    fn send_some_batches(&mut self, now: ClockReading) -> bool {
        let mut sent = 0;
        let mut unsent = std::mem::take(&mut self.batches.unsent);
        for batch in &mut unsent {
            let request = UnsentRequest {
                number: batch.request,
                dst: batch.dst,
                read_only: batch.kind == BatchKind::Reads,
                small_answer: true,
                path: RequestPath::Ordered,
            };
            if self.submit(&request, &mut batch.message, now).is_err() {
                break;
            }
            sent += 1;
        }
        for batch in unsent.drain(..sent) {
            self.batches.put_back(batch.message);
        }
        self.batches.unsent = unsent;
        self.batches.unsent.is_empty()
    }
}

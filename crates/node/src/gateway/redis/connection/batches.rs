//! Commands that are sent together: those of one connection that go to the same shard, and that were taken from the
//! input in one go, share a [message](amcast_kv::batch) and a request.
//!
//! A command that may be joined counts as under way from then on; its message is sent when no more commands can be taken,
//! or before a command that is sent alone. So nothing waits for others to come, and the shard sees the commands
//! in the order of the client. Reads and writes are not mixed: reads are executed at one replica alone, and a read that
//! is refused for the size of its answer must not have a write of its message behind it.

use super::super::pipeline::CommandReach;
use super::super::router::token;
use super::bounds::BUFFER_BYTES_KEPT;
use super::{AnswerSlot, RedisConnection, UnsentCommand};
use crate::gateway::backend::{Backend, BackendBusy};
use crate::gateway::clock::ClockReading;
use amcast_core::{Gid, GroupSet};
use amcast_kv::batch::{self, BATCH_MAX, BatchKind};
use amcast_kv::size_refusal::SMALL_ANSWER_BYTES;
use amcast_kv::{set_small_answer, split_epoch};
use amcast_smr::SessionWrite;
use amcast_smr::envelope::Envelope;
use std::task::Context;

/// Bytes of a message beyond which no command is joined: what is larger costs more to copy than its message does.
const BATCH_BYTES_MAX: usize = 16 << 10;

/// Buffers that stay with a connection while commands are under way; otherwise one does.
const SPARE_MAX: usize = 4;

/// Commands that share a message which is not sent yet.
struct UnsentBatch {
    request: u64,
    shard: Gid,
    /// Room for the envelope, the epoch, and the commands.
    message: Vec<u8>,
    commands: usize,
    kind: BatchKind,
}

/// The messages of joined commands.
#[derive(Default)]
pub(super) struct UnsentBatches {
    /// In the order of their requests.
    unsent: Vec<UnsentBatch>,
    /// Empty buffers.
    spare: Vec<Vec<u8>>,
}

impl UnsentBatches {
    /// Messages that are not sent.
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

/// The encoded arguments of a message begin here.
fn args_at(message: &[u8]) -> usize {
    message.len() - split_epoch(&message[Envelope::BYTES..]).1.len()
}

impl<B: Backend> RedisConnection<B> {
    /// Takes the encoded command into a message, or gives it back if that is not possible now.
    pub(super) fn join(
        &mut self,
        pending: UnsentCommand,
        kind: BatchKind,
        cx: &mut Context<'_>,
        now: ClockReading,
    ) -> Option<UnsentCommand> {
        let Some(shard) = pending.dst.lowest().filter(|_| self.admits(&pending)) else {
            return Some(pending);
        };
        let at = self.batches.unsent.iter().position(|batch| batch.shard == shard);
        let at = match at {
            Some(at) if self.fits(&self.batches.unsent[at], kind) => Some(at),
            Some(_) if !self.send_batches(cx, now) => return Some(pending),
            _ => None,
        };
        let request = match at {
            Some(at) => {
                let batch = &mut self.batches.unsent[at];
                // Both go by one map, so that both epochs have as many bytes.
                let from = args_at(&self.next.body);
                batch::join(&mut batch.message, from, &self.next.body[from..]);
                batch.commands += 1;
                batch.request
            }
            None => self.begin_batch(shard, kind),
        };
        let UnsentCommand { dst, keys, read_only, then, call, .. } = pending;
        // Each read of a batch may be refused for the size of its answer.
        let refusable = read_only;
        let reach = CommandReach { dst, keys: keys.as_deref(), writes: !read_only, refusable };
        self.pipeline.sent(request, &reach);
        self.keep_keys(keys);
        let silent = self.client.silent || std::mem::take(&mut self.client.skip_next);
        let resp = self.client.resp;
        self.answers.slots.push_back(AnswerSlot::Open { request, then, resp, silent, call });
        None
    }

    /// Whether the next command, which goes to the same shard, may share this message. The answers to its reads are small
    /// together: more than are expected to be so would be refused.
    fn fits(&self, batch: &UnsentBatch, kind: BatchKind) -> bool {
        let most = BATCH_BYTES_MAX.min(self.shared.config.message_bytes_max);
        let answers = (batch.commands + 1) * self.expected.guess;
        batch.kind == kind
            && batch.commands < BATCH_MAX
            && batch.message.len() + self.next.body.len() <= most
            && (kind != BatchKind::Reads || answers <= SMALL_ANSWER_BYTES)
    }

    /// Begins a message with the encoded command; its request.
    fn begin_batch(&mut self, shard: Gid, kind: BatchKind) -> u64 {
        let mut message = self.batches.spare.pop().unwrap_or_default();
        std::mem::swap(&mut message, &mut self.next.body);
        self.last_request += 1;
        let request = self.last_request;
        self.batches.unsent.push(UnsentBatch { request, shard, message, commands: 1, kind });
        request
    }

    /// Sends all messages of joined commands; false if there is no room now: `cx` is woken when there is.
    pub(super) fn send_batches(&mut self, cx: &mut Context<'_>, now: ClockReading) -> bool {
        if self.send_some_batches(now) {
            return true;
        }
        self.shared.router.wait_for_room(&self.lane, cx.waker());
        // There may have been room between the refusal and the line above.
        self.send_some_batches(now)
    }

    /// Commands whose messages found no room are sent behind those that were refused meanwhile and came before them.
    pub(super) fn take_back_batches(&mut self) {
        for UnsentBatch { request, message, .. } in std::mem::take(&mut self.batches.unsent) {
            self.pipeline.answered(request);
            self.refuse_joined(request as u32, &message[args_at(&message)..]);
            self.batches.put_back(message);
        }
    }

    /// Sends messages of joined commands while there is room; whether all are sent.
    fn send_some_batches(&mut self, now: ClockReading) -> bool {
        let mut sent = 0;
        let mut unsent = std::mem::take(&mut self.batches.unsent);
        for batch in &mut unsent {
            if self.send_batch(batch, now).is_err() {
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

    fn send_batch(
        &mut self,
        batch: &mut UnsentBatch,
        now: ClockReading,
    ) -> Result<(), BackendBusy> {
        let UnsentBatch { request, shard, kind, .. } = *batch;
        let read_only = kind == BatchKind::Reads;
        let open_from = self.pipeline.first_open().unwrap_or(request);
        let envelope = Envelope {
            session: self.shared.config.first_session + u64::from(self.lane.index),
            request,
            open_from,
            stamp: now.stamp,
            read_only,
        };
        batch.message[..Envelope::BYTES].copy_from_slice(&envelope.to_bytes());
        if read_only {
            set_small_answer(&mut batch.message[Envelope::BYTES..], true);
        }
        self.lane.replies.opened(request);
        let (dst, token) = (GroupSet::one(shard), token(self.lane.index, request));
        if let Err(busy) = self.shared.backend.submit(dst, &mut batch.message, token) {
            self.lane.replies.withdrawn();
            return Err(busy);
        }
        if !read_only {
            let write = SessionWrite { shard, request, host_ms: now.stamp.host_ms };
            self.reads.written.sent(write, open_from);
        }
        Ok(())
    }
}

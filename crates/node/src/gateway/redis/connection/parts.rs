//! A command that is larger than a message: it is sent in parts, and nothing else of the connection meanwhile.
//!
//! The command has a request of its own, behind those of its parts. As long as its assembly was not
//! sent it is certain that it is not executed: an error of a part is reported so. Where the shards
//! use another map of partitions, or another time, it is sent again with all its parts, as other
//! commands are.

use super::super::PART_BYTES;
use super::super::failures::as_not_executed;
use super::super::pipeline::CommandReach;
use super::super::router::token;
use super::{AfterAnswer, AnswerSlot, RedisConnection, UnsentCommand};
use crate::gateway::backend::Backend;
use crate::gateway::clock::ClockReading;
use amcast_core::{Gid, GroupSet, Outcome, ServiceAnswer};
use amcast_kv::split_epoch;
use amcast_smr::SessionWrite;
use amcast_smr::envelope::Envelope;
use amcast_smr::parts::{Assembly, CommandPart, KEPT};
use std::task::Context;

/// The beginning of the error where a part has no answer, or an error.
const PART_NOT_KEPT: &str = "a part of the command was not kept";

/// Parts of one connection that are under way.
const OPEN_MAX: usize = 4;

/// A command that is sent in parts.
pub(super) struct LargeCommand {
    /// The encoded command, behind room for an envelope.
    message: Vec<u8>,
    dst: GroupSet,
    /// The lowest of its shards: the parts go there.
    lowest: Gid,
    /// The request of its first part; those of the others follow.
    first: u64,
    /// Bytes of each part but the last.
    part_bytes: usize,
    /// Parts that were sent, and those under way with their bytes.
    sent: u64,
    open: Vec<(u64, usize)>,
    is_assembled: bool,
    /// Why it is given up, once a part was refused.
    refused: Option<PartRefusal>,
}

/// The reaction to a command of which a part was refused.
enum PartRefusal {
    /// It is sent again.
    Again,
    /// The client receives this error.
    Told(Vec<u8>),
}

impl LargeCommand {
    fn count(&self) -> u64 {
        self.body().len().div_ceil(self.part_bytes) as u64
    }

    /// The encoded command.
    fn body(&self) -> &[u8] {
        &self.message[Envelope::BYTES..]
    }

    /// The request of the command.
    pub(super) fn request(&self) -> u64 {
        self.first + self.count()
    }

    /// Bytes that it holds.
    pub(super) const fn capacity(&self) -> usize {
        self.message.capacity()
    }

    /// The command's arguments, to send it again.
    pub(super) fn into_args(self) -> Vec<u8> {
        let args_bytes = split_epoch(self.body()).1.len();
        let mut args = self.message;
        args.drain(..args.len() - args_bytes);
        args
    }
}

impl<B: Backend> RedisConnection<B> {
    /// Whether a command needs more than one message, where this one would be its own.
    pub(super) fn is_large(&self, message: &[u8]) -> bool {
        message.len() > self.shared.config.message_bytes_max
    }

    /// Begins to send the encoded command in parts; its request.
    pub(super) fn begin_parts(&mut self, pending: UnsentCommand) -> (u64, AfterAnswer) {
        let UnsentCommand { dst, then, .. } = pending;
        let room = self.shared.config.message_bytes_max - CommandPart::HEAD_BYTES;
        let large = LargeCommand {
            message: std::mem::take(&mut self.next.body),
            dst,
            lowest: dst.lowest().unwrap_or(Gid(0)),
            first: self.last_request + 1,
            part_bytes: room.min(PART_BYTES),
            sent: 0,
            open: Vec::new(),
            is_assembled: false,
            refused: None,
        };
        let request = large.request();
        self.last_request = request;
        self.pipeline.sent(request, &CommandReach { dst, keys: None, writes: true });
        self.next.large = Some(Box::new(large));
        (request, then)
    }

    /// Sends parts of the large command, if there is one, as far as there is room, and its assembly when all of them
    /// are kept. Whether something was sent.
    pub(super) fn send_parts(&mut self, cx: &mut Context<'_>, now: ClockReading) -> bool {
        let Some(mut large) = self.next.large.take() else { return false };
        let lane = self.lane.index;
        let bytes = large.body().len();
        let mut sent = false;
        let sends = large.refused.is_none() && !large.is_assembled;
        if sends && !self.shared.turns.begin(lane, bytes, cx.waker()) {
            self.next.large = Some(large);
            return false;
        }
        while large.refused.is_none() && large.open.len() < OPEN_MAX && large.sent < large.count() {
            if !self.send_part(&mut large, cx, now) {
                break;
            }
            sent = true;
        }
        let is_kept = large.sent == large.count() && large.open.is_empty();
        if is_kept && large.refused.is_none() && !large.is_assembled {
            large.is_assembled = self.send_assembly(&large, cx, now);
            sent |= large.is_assembled;
        }
        self.next.large = Some(large);
        sent
    }

    /// Sends the next part; false if there is no room for it.
    fn send_part(
        &mut self,
        large: &mut LargeCommand,
        cx: &mut Context<'_>,
        now: ClockReading,
    ) -> bool {
        let at = large.sent as usize * large.part_bytes;
        let body = large.body();
        let bytes = &body[at..body.len().min(at + large.part_bytes)];
        let (len, lane) = (bytes.len(), self.lane.index);
        if !self.shared.turns.take(lane, len, cx.waker()) {
            return false;
        }
        let request = large.first + large.sent;
        let envelope = self.envelope_of(request, large.first, now);
        let mut part = Vec::with_capacity(CommandPart::HEAD_BYTES + len);
        CommandPart { envelope, bytes }.encode(&mut part);
        let (shared, shard) = (&self.shared, GroupSet::one(large.lowest));
        let submit = || shared.backend.submit(shard, &mut part, token(lane, request)).is_ok();
        if !self.submit_or_wait(request, cx, submit) {
            self.shared.turns.end(len);
            return false;
        }
        large.open.push((request, len));
        large.sent += 1;
        true
    }

    /// Has the parts executed; false if there is no room for that.
    fn send_assembly(
        &mut self,
        large: &LargeCommand,
        cx: &mut Context<'_>,
        now: ClockReading,
    ) -> bool {
        let request = large.request();
        let dst = large.dst;
        let lane = self.lane.index;
        let envelope = self.envelope_of(request, request, now);
        let (body, mut assembly) = (large.body(), Vec::new());
        Assembly::of(envelope, large.count() as u32, body).encode(&mut assembly);
        let shared = &self.shared;
        let submit =
            || shared.backend.assemble(dst, &mut assembly, body, token(lane, request)).is_ok();
        let taken = self.submit_or_wait(request, cx, submit);
        if taken {
            let wrote = SessionWrite { shard: large.lowest, request, host_ms: now.stamp.host_ms };
            self.reads.written.sent(wrote, request);
        }
        taken
    }

    /// The envelope of a write.
    pub(super) fn envelope_of(&self, request: u64, open_from: u64, now: ClockReading) -> Envelope {
        let session = self.shared.config.first_session + u64::from(self.lane.index);
        Envelope { session, request, open_from, stamp: now.stamp, read_only: false }
    }

    /// Hands in the encoded part, or has it tried again in time.
    fn submit_or_wait(
        &self,
        request: u64,
        cx: &mut Context<'_>,
        mut submit: impl FnMut() -> bool,
    ) -> bool {
        self.lane.replies.opened(request);
        let taken = submit() || {
            self.shared.router.wait_for_room(&self.lane, cx.waker());
            // There may have been room between the refusal and the line above.
            submit()
        };
        if !taken {
            self.lane.replies.withdrawn();
        }
        taken
    }

    /// Takes the answer to a part; false if it is none.
    pub(super) fn place_part(&mut self, low: u32, answer: &ServiceAnswer<'_>) -> bool {
        let Some(large) = &mut self.next.large else { return false };
        let mine = |(request, _): &(u64, usize)| *request as u32 == low;
        let Some(i) = large.open.iter().position(mine) else { return false };
        let (_, bytes) = large.open.swap_remove(i);
        self.shared.turns.end(bytes);
        if *answer.bytes != *KEPT && large.refused.is_none() {
            // It sends no more: others need not wait for its turn.
            self.shared.turns.leave(self.lane.index);
            large.refused = Some(match self.shared.learn(&answer.bytes) {
                Some(_) => PartRefusal::Again,
                None => PartRefusal::Told(as_not_executed(answer, PART_NOT_KEPT)),
            });
        }
        if large.refused.is_some() && large.open.is_empty() {
            self.give_up();
        }
        true
    }

    /// Ends a command of which a part was refused and that was not put together.
    fn give_up(&mut self) {
        let Some(mut large) = self.next.large.take() else { return };
        let request = large.request();
        match large.refused.take() {
            Some(PartRefusal::Told(error)) => {
                let (outcome, bytes) = (Outcome::NotExecuted, error.into());
                self.place(request as u32, ServiceAnswer { outcome, bytes });
            }
            _ => {
                let mine = |s: &AnswerSlot| matches!(s, AnswerSlot::Open { request: r, .. } if *r == request);
                let Some(slot) = self.answers.slots.iter_mut().find(|s| mine(s)) else { return };
                if let AnswerSlot::Open { then, resp, silent, call, .. } =
                    std::mem::replace(slot, AnswerSlot::Ready(Vec::new(), None))
                {
                    *slot =
                        AnswerSlot::Refused { args: large.into_args(), then, resp, silent, call };
                    (self.refused.count, self.refused.drains) = (self.refused.count + 1, true);
                }
                self.pipeline.answered(request);
            }
        }
    }

    /// Takes the large command out, if it is this request, which is answered: others have its room.
    pub(super) fn end_parts(&mut self, request: u64) -> Option<Box<LargeCommand>> {
        let large = self.next.large.take_if(|large| large.request() == request)?;
        self.shared.turns.leave(self.lane.index);
        Some(large)
    }

    /// The connection ends: its parts leave room to others, which need not wait for their answers.
    pub(super) fn leave_parts(&mut self) {
        if let Some(large) = self.next.large.take() {
            large.open.iter().for_each(|(_, bytes)| self.shared.turns.end(*bytes));
        }
        self.shared.turns.leave(self.lane.index);
    }
}

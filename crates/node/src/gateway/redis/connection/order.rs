//! Commands that the shards run: where each goes, when it may be sent, and its request.

use super::super::COUNT_BYTES;
use super::super::pipeline::{CommandReach, KEYS_MAX};
use super::super::router::token;
use super::{AfterAnswer, AnswerSlot, OpenPeek, RedisConnection, UnsentCommand};
use crate::command_bytes::fit;
use crate::gateway::backend::{Backend, BackendBusy};
use crate::gateway::clock::ClockReading;
use amcast_core::{Gid, GroupSet};
use amcast_kv::batch;
use amcast_kv::client::ReadConsistency;
use amcast_kv::client::host_ns;
use amcast_kv::command_stats::{CallEnd, CommandCall};
use amcast_kv::commands::transactions::{OrderedTransaction, held};
use amcast_kv::registry::{self, CommandRunner, CommandSpec};
use amcast_kv::reply::RedisError;
use amcast_kv::{
    EPOCH_BYTES, destinations, encode_args, encode_epoch, encode_whole_epoch, encoded_len,
    key_hashes, set_small_answer,
};
use amcast_smr::SessionWrite;
use amcast_smr::envelope::Envelope;
use amcast_smr::hash::hash_bytes;
use std::task::Context;

impl<B: Backend> RedisConnection<B> {
    /// Sends a command, or gives it back and sees to it that it is tried again in time.
    pub(super) fn send_or_wait(
        &mut self,
        pending: UnsentCommand,
        cx: &mut Context<'_>,
        now: ClockReading,
    ) -> Option<UnsentCommand> {
        let mut pending = pending;
        if let Some(kind) = pending.joins
            && self.large_answer(&pending).is_none()
        {
            pending.turn = None;
            self.take_free_place(&mut pending);
            if pending.turn.is_none() {
                return self.join(pending, kind, cx, now);
            }
        }
        // The shard sees what was joined before.
        if !self.send_batches(cx, now) {
            return Some(pending);
        }
        let call = pending.call;
        match self.hand_in_or_wait(pending, cx, now) {
            Ok((request, then)) => {
                let silent = self.client.silent || std::mem::take(&mut self.client.skip_next);
                let resp = self.client.resp;
                self.answers.slots.push_back(AnswerSlot::Open {
                    request,
                    then,
                    resp,
                    silent,
                    call,
                });
                None
            }
            Err(pending) => Some(pending),
        }
    }

    /// Hands a command in; the number of its request. Or gives it back and sees to it that it is tried
    /// again in time.
    pub(super) fn hand_in_or_wait(
        &mut self,
        pending: UnsentCommand,
        cx: &mut Context<'_>,
        now: ClockReading,
    ) -> Result<(u64, AfterAnswer), UnsentCommand> {
        let mut pending = pending;
        match self.large_answer(&pending) {
            // It may have waited before, when larger answers were expected.
            None => {
                pending.turn = None;
                self.take_free_place(&mut pending);
            }
            Some(size) => {
                if !self.admits(&pending) || !self.has_answer_place(&mut pending, size, cx) {
                    return Err(pending);
                }
            }
        }
        let pending = match self.hand_in(pending, now) {
            Err(pending) if self.admits(&pending) => pending,
            other => return other,
        };
        self.shared.router.wait_for_room(&self.lane, cx.waker());
        // There may have been room between the refusal and the line above.
        self.hand_in(pending, now)
    }

    pub(super) fn order_transaction(&mut self, exec: &'static CommandSpec, call: CommandCall) {
        let Some(gathered) = self.client.transaction.take() else { return };
        let ordered = |c: &&Vec<Box<[u8]>>| {
            registry::lookup(&c[0]).is_some_and(|c| !matches!(c.run, CommandRunner::Gateway(_)))
        };
        let for_shards: Vec<_> = gathered.commands.iter().filter(ordered).collect();
        if for_shards.is_empty() && self.client.watched.is_empty() {
            let mut shown = Vec::new();
            let version = self.client.resp;
            self.finish_transaction(&gathered.commands, b"*0\r\n", version, call, &mut shown);
            match self.answers.slots.is_empty() {
                true => {
                    self.wire.output.append(&mut shown);
                    self.stats.answered(call, host_ns());
                }
                false => self.hold(shown, Some(call)),
            }
            return;
        }
        let script = OrderedTransaction::encode(&self.client, &for_shards);
        self.client.watched.clear();
        let args: Vec<&[u8]> = script.iter().map(|a| &**a).collect();
        // Of those that the shards run only the names are needed any more.
        let shown = |c: &Vec<Box<[u8]>>| if ordered(&c) { vec![c[0].clone()] } else { c.clone() };
        let shown: Vec<_> = gathered.commands.iter().map(shown).collect();
        let bytes = shown.iter().map(|c| held(c.iter().map(|arg| arg.len()))).sum();
        self.order(exec, &args, AfterAnswer::Transaction(shown), call);
        self.transaction.bytes = if self.next.pending.is_some() { bytes } else { 0 };
        self.next.barrier = true;
    }

    /// Encodes a command to be ordered; it is sent at once or when its turn comes.
    pub(super) fn order(
        &mut self,
        command: &'static CommandSpec,
        args: &[&[u8]],
        then: AfterAnswer,
        call: CommandCall,
    ) {
        if encoded_len(args) > self.shared.config.command_bytes_max + COUNT_BYTES {
            let error = self.too_large();
            let call = CommandCall { end: CallEnd::Rejected, ..call };
            return self.answer(Some(call), |reply| reply.error(&error));
        }
        match self.prepare(command, args, then, call) {
            Ok(pending) => self.next.pending = Some(pending),
            Err(e) => {
                let call = CommandCall { end: CallEnd::Failed, ..call };
                self.answer(Some(call), |reply| reply.error(&e));
            }
        }
    }

    /// Finds where a command goes, and encodes it.
    pub(super) fn prepare(
        &mut self,
        command: &'static CommandSpec,
        args: &[&[u8]],
        then: AfterAnswer,
        call: CommandCall,
    ) -> Result<UnsentCommand, RedisError> {
        // Commands under way that are refused must not be overtaken by one that goes by a later map and is
        // not: those that are under way together go by one map.
        if self.pipeline.len() == 0 && self.map.epoch() != self.shared.server.epoch() {
            self.map = self.shared.server.partitions();
        }
        let mut dst = destinations(command, args, &self.map)?;
        if dst.is_empty() {
            dst = GroupSet::one(Gid(0));
        }
        let mut keys = std::mem::take(&mut self.next.spare_keys);
        keys.clear();
        let by_key = key_hashes(command, args, &mut |key| {
            // One more than are looked at says that there are too many.
            if keys.len() <= KEYS_MAX {
                keys.push(hash_bytes(0, key));
            }
        });
        let keys = (by_key && keys.len() <= KEYS_MAX).then(|| {
            keys.sort_unstable();
            keys
        });
        fit(&mut self.next.body, Envelope::BYTES + EPOCH_BYTES + encoded_len(args));
        // Room for the envelope, which is known when the command is sent.
        self.next.body.resize(Envelope::BYTES, 0);
        match command.writes() {
            true => encode_epoch(self.map.epoch(), &mut self.next.body),
            false => encode_whole_epoch(self.map.epoch(), &mut self.next.body),
        }
        encode_args(args, &mut self.next.body);
        let large = self.is_large(&self.next.body);
        let read_only = !command.writes() && !large;
        let shown = matches!(then, AfterAnswer::Show);
        let sequential = self.client.level == ReadConsistency::Sequential;
        let here = read_only && shown && sequential;
        let can = dst.len() == 1 && self.shared.backend.reads_apart();
        let apart = read_only && shown && !sequential && can;
        let may_answer_much = !large && command.may_answer_much(args);
        let is_alone = large || here || apart || !shown || dst.len() > 1 || keys.is_none();
        let kind = batch::kind(call.number).filter(|_| read_only || !may_answer_much);
        let joins = kind.filter(|_| !is_alone);
        let turn = None;
        Ok(UnsentCommand {
            dst,
            keys,
            read_only,
            here,
            apart,
            large,
            may_answer_much,
            joins,
            turn,
            then,
            call,
        })
    }

    /// Whether a command may be sent now. A read that is answered here sees all that was written before
    /// it, and nothing that is written after it.
    pub(super) fn admits(&self, p: &UnsentCommand) -> bool {
        if self.next.large.is_some() || self.must_probe(p) {
            return false;
        }
        if p.large {
            return self.pipeline.len() == 0;
        }
        if p.here || !self.reads.peeks.is_empty() {
            return p.here;
        }
        if !self.reads.apart.is_empty() {
            return p.apart;
        }
        self.pipeline.admits(&CommandReach {
            dst: p.dst,
            keys: p.keys.as_deref(),
            writes: !p.read_only,
            refusable: false,
        })
    }

    /// Hands the encoded command in, or gives it back if that is not possible now.
    fn hand_in(
        &mut self,
        pending: UnsentCommand,
        now: ClockReading,
    ) -> Result<(u64, AfterAnswer), UnsentCommand> {
        if !self.admits(&pending) {
            return Err(pending);
        }
        if pending.large {
            return Ok(self.begin_parts(pending));
        }
        let request = self.last_request + 1;
        let open_from = self.pipeline.first_open().unwrap_or(request);
        let envelope = Envelope {
            session: self.shared.config.first_session + u64::from(self.lane.index),
            request,
            open_from,
            stamp: now.stamp,
            read_only: pending.read_only,
        };
        self.next.body[..Envelope::BYTES].copy_from_slice(&envelope.to_bytes());
        let refusable = pending.read_only && pending.may_answer_much && pending.turn.is_none();
        if pending.read_only {
            set_small_answer(&mut self.next.body[Envelope::BYTES..], refusable);
        }
        self.lane.replies.opened(request);
        let token = token(self.lane.index, request);
        let (backend, dst) = (&self.shared.backend, pending.dst);
        if pending.here {
            if !backend.read_here(dst, &self.next.body, &self.reads.written.all(), token) {
                self.lane.replies.withdrawn();
                return self.hand_in(UnsentCommand { here: false, ..pending }, now);
            }
            self.reads.peeks.push(OpenPeek { request, bytes: self.next.body.len() });
        } else {
            // Where something else is under way its place in the order keeps it from overtaking that.
            let apart = pending.apart && self.pipeline.len() == self.reads.apart.len();
            let taken = match apart {
                true => backend.read(dst, &mut self.next.body, token),
                false => backend.submit(dst, &mut self.next.body, token),
            };
            if let Err(BackendBusy) = taken {
                self.lane.replies.withdrawn();
                return Err(pending);
            }
            if apart {
                self.reads.apart.push(request);
            }
        }
        let UnsentCommand { dst, keys, read_only, may_answer_much, turn, then, .. } = pending;
        if let (false, Some(shard)) = (read_only, dst.lowest()) {
            self.reads
                .written
                .sent(SessionWrite { shard, request, host_ms: now.stamp.host_ms }, open_from);
        }
        self.last_request = request;
        if may_answer_much && !self.expected.probed {
            self.expected.probe = Some(request);
        }
        if let Some(turn) = turn {
            self.expected.turns.sent(request, turn);
        }
        let writes = !read_only;
        let reach = CommandReach { dst, keys: keys.as_deref(), writes, refusable };
        self.pipeline.sent(request, &reach);
        self.keep_keys(keys);
        Ok((request, then))
    }

    /// Keeps the buffer of a command's keys for the next one.
    pub(super) fn keep_keys(&mut self, keys: Option<Vec<u64>>) {
        self.next.spare_keys = keys.filter(|keys| keys.capacity() <= KEYS_MAX).unwrap_or_default();
    }
}

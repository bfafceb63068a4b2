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
use amcast_kv::blocked_clients::awaited_hash;
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
use std::collections::BTreeSet;
use std::iter;
use std::task::Context;

/// A request whose message is to be handed to the backend.
#[derive(Clone, Copy)]
pub(super) struct UnsentRequest {
    pub(super) number: u64,
    pub(super) dst: GroupSet,
    pub(super) read_only: bool,
    /// Whether a read is refused if its answer is large.
    pub(super) small_answer: bool,
    pub(super) path: RequestPath,
}

/// How the backend is to execute a request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestPath {
    /// At its place in the order of its shards.
    Ordered,
    /// A read of one shard, without a place in the order.
    Unordered,
    /// A read, from the executed state of a node of this process.
    Local,
}

/// Makes a gathered command one that the shards run: nobody waits in a transaction.
fn end_wait(command: &mut Vec<Box<[u8]>>) {
    let run = registry::lookup(&command[0]).map(|found| found.run);
    let Some(CommandRunner::Blocking(form)) = run else { return };
    let args: Vec<&[u8]> = command.iter().map(|arg| &**arg).collect();
    let Ok(ordered) = form.ordered(&args) else {
        unreachable!("it was refused when it was gathered");
    };
    let ordered = ordered.args.iter().map(|arg| Box::from(&**arg)).collect();
    *command = ordered;
}

impl<B: Backend> RedisConnection<B> {
    /// Sends a command, or gives it back and sees to it that it is tried again in time.
    pub(super) fn send_or_wait(
        &mut self,
        pending: UnsentCommand,
        cx: &mut Context<'_>,
        now: ClockReading,
    ) -> Option<UnsentCommand> {
        let mut pending = pending;
        if let Some(kind) = pending.batch
            && self.large_answer(&pending).is_none()
            && !self.probes(&pending)
        {
            pending.turn = None;
            return self.add_to_batch(pending, kind, cx, now);
        }
        // Shards execute the commands of the batches before this one.
        if !self.send_batches(cx, now) {
            return Some(pending);
        }
        let call = pending.call;
        match self.hand_in_or_wait(pending, cx, now) {
            Ok((request, then)) => {
                self.await_answer(request, then, call);
                None
            }
            Err(pending) => Some(pending),
        }
    }

    /// The command that was taken last is in this request, and awaits its answer.
    pub(super) fn await_answer(&mut self, request: u64, then: AfterAnswer, call: CommandCall) {
        let silent = self.client.silent || std::mem::take(&mut self.client.skip_next);
        let resp = self.client.resp;
        self.answers.slots.push_back(AnswerSlot::Open { request, then, resp, silent, call });
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
        if !self.admits(&pending) {
            // Nobody may wait for a place, or behind a turn, of a command that waits for others of its connection.
            pending.turn = None;
            return Err(pending);
        }
        match self.large_answer(&pending) {
            // It may have waited before, when larger answers were expected.
            None => pending.turn = None,
            Some(size) => {
                if !self.has_answer_place(&mut pending, size, cx) {
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
        let Some(mut gathered) = self.client.transaction.take() else { return };
        let ordered = |c: &&Vec<Box<[u8]>>| {
            registry::lookup(&c[0]).is_some_and(|c| !matches!(c.run, CommandRunner::Gateway(_)))
        };
        if !gathered.commands.iter().any(|command| ordered(&command))
            && self.client.watched.is_empty()
        {
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
        // Of those that the shards run only the names are needed when they are answered.
        let shown = |c: &Vec<Box<[u8]>>| if ordered(&c) { vec![c[0].clone()] } else { c.clone() };
        let shown: Vec<_> = gathered.commands.iter().map(shown).collect();
        gathered.commands.iter_mut().for_each(end_wait);
        let for_shards: Vec<_> = gathered.commands.iter().filter(ordered).collect();
        let script = OrderedTransaction::encode(&self.client, &for_shards);
        self.client.watched.clear();
        let args: Vec<&[u8]> = script.iter().map(|a| &**a).collect();
        let bytes = shown.iter().map(|c| held(c.iter().map(|arg| arg.len()))).sum();
        self.order(exec, &args, AfterAnswer::Transaction(shown), call);
        self.transaction.bytes = if self.next.pending.is_some() { bytes } else { 0 };
        self.next.barrier = true;
    }

    /// Orders `WATCH`: of each key once, and of none that is watched already.
    pub(super) fn order_watch(
        &mut self,
        watch: &'static CommandSpec,
        args: &[&[u8]],
        call: CommandCall,
    ) {
        let is_fresh = |key: &&[u8]| !self.client.watched.contains(key);
        let fresh: BTreeSet<&[u8]> = args[1..].iter().copied().filter(is_fresh).collect();
        let all: Vec<&[u8]> = iter::once(args[0]).chain(fresh).collect();
        if all.len() == 1 {
            return self.answer(Some(call), |reply| reply.ok());
        }
        let keys = all[1..].iter().map(|key| (*key).into()).collect();
        let bytes = held(all.iter().map(|key| key.len()));
        self.order(watch, &all, AfterAnswer::Watch(keys), call);
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
                // An answered command wakes the clients that wait for its keys by the same hash.
                keys.push(awaited_hash(key));
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
        let looks = matches!(&then, AfterAnswer::Blocking(blocking) if blocking.looks());
        let shows = matches!(then, AfterAnswer::Show);
        let sequential = self.client.level == ReadConsistency::Sequential;
        // A look asks a majority at any level: a node that is behind would have its client wait for as long as it is.
        let here = read_only && shows && sequential;
        let can = dst.len() == 1 && self.shared.backend.reads_apart();
        let apart = read_only && can && (looks || shows && !sequential);
        // The answer to a look is a count of keys: it waits for no place among large answers.
        let may_answer_much = !large && !looks && command.may_answer_much(args);
        let is_alone = large || here || apart || !(shows || looks) || keys.is_none();
        let kind = batch::kind(call.number).filter(|_| read_only || !may_answer_much);
        let batch = kind.filter(|_| !is_alone);
        let turn = None;
        Ok(UnsentCommand {
            dst,
            keys,
            read_only,
            here,
            apart,
            large,
            may_answer_much,
            batch,
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
        let number = self.last_request + 1;
        let small_answer = pending.read_only && pending.may_answer_much && pending.turn.is_none();
        // Where something else is under way its place in the order keeps it from overtaking that.
        let unordered = pending.apart && self.pipeline.len() == self.reads.apart.len();
        let path = match pending.here {
            true => RequestPath::Local,
            false if unordered => RequestPath::Unordered,
            false => RequestPath::Ordered,
        };
        let UnsentCommand { dst, read_only, .. } = pending;
        let request = UnsentRequest { number, dst, read_only, small_answer, path };
        let mut message = std::mem::take(&mut self.next.body);
        let taken = self.submit(&request, &mut message, now);
        let bytes = message.len();
        self.next.body = message;
        match (taken, path) {
            (Ok(()), RequestPath::Local) => {
                self.reads.peeks.push(OpenPeek { request: number, bytes })
            }
            (Ok(()), RequestPath::Unordered) => self.reads.apart.push(number),
            (Ok(()), RequestPath::Ordered) => {}
            (Err(BackendBusy), RequestPath::Local) => {
                return self.hand_in(UnsentCommand { here: false, ..pending }, now);
            }
            (Err(BackendBusy), _) => return Err(pending),
        }
        let probes = self.probes(&pending);
        let UnsentCommand { keys, turn, then, .. } = pending;
        self.last_request = number;
        if probes {
            self.expected.probe = Some(number);
        }
        if let Some(turn) = turn {
            self.expected.turns.sent(number, turn);
        }
        let reach = CommandReach { dst, keys: keys.as_deref(), writes: !read_only };
        self.pipeline.sent(number, &reach);
        self.keep_keys(keys);
        Ok((number, then))
    }

    /// Puts the envelope of a request into its message, which has room for it, and submits that to the backend, which may
    /// take the bytes. The caller adds the commands of the request to the pipeline.
    ///
    /// # Errors
    /// When the backend has no room; the message is left.
    pub(super) fn submit(
        &mut self,
        request: &UnsentRequest,
        message: &mut Vec<u8>,
        now: ClockReading,
    ) -> Result<(), BackendBusy> {
        let UnsentRequest { number, dst, read_only, small_answer, path } = *request;
        let open_from = self.pipeline.first_open().unwrap_or(number);
        let envelope = Envelope { read_only, ..self.envelope_of(number, open_from, now) };
        message[..Envelope::BYTES].copy_from_slice(&envelope.to_bytes());
        if read_only {
            set_small_answer(&mut message[Envelope::BYTES..], small_answer);
        }
        self.lane.replies.opened(number);
        let (backend, token) = (&self.shared.backend, token(self.lane.index, number));
        let taken = match path {
            RequestPath::Ordered => backend.submit(dst, message, token),
            RequestPath::Unordered => backend.read(dst, message, token),
            RequestPath::Local => {
                let written = self.reads.written.all();
                let taken = backend.read_here(dst, message, &written, token);
                taken.then_some(()).ok_or(BackendBusy)
            }
        };
        if taken.is_err() {
            self.lane.replies.withdrawn();
            return taken;
        }
        if let (false, Some(shard)) = (read_only, dst.lowest()) {
            let write = SessionWrite { shard, request: number, host_ms: now.stamp.host_ms };
            self.reads.written.sent(write, open_from);
        }
        Ok(())
    }

    /// Keeps the buffer of a command's keys for the next one.
    pub(super) fn keep_keys(&mut self, keys: Option<Vec<u64>>) {
        self.next.spare_keys = keys.filter(|keys| keys.capacity() <= KEYS_MAX).unwrap_or_default();
    }
}

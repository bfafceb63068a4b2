//! Answers come in any order and leave in that of their commands.

use super::super::router::{FRAMES_KEPT, FrameBody, RoutedAnswer};
use super::state::AnswerKnowledge;
use super::{ANSWER_BYTES_GUESS, AfterAnswer, AnswerSlot, RedisConnection, bounds};
use crate::gateway::backend::Backend;
use amcast_core::{Outcome, ServiceAnswer};
use amcast_kv::batch;
use amcast_kv::client::{ClientState, host_ns};
use amcast_kv::command_stats::{CallEnd, CommandCall};
use amcast_kv::registry::{self, AfterRun, CommandRunner};
use amcast_kv::reply::{RedisError, Reply};
use amcast_kv::resp::reply;
use amcast_kv::size_refusal;
use std::borrow::Cow;

/// The answer to a command of a batch that a node left without an answer, though it answered others of the batch.
const CUT_SHORT: &[u8] =
    b"-ERR a node answered fewer commands than were sent; whether this one took effect is not known\r\n";

/// Answers of a batch that together have so many bytes may have taken the room of one behind them. Where they have fewer,
/// an answer that had no room is nearly as large as one that would need a place, or larger.
const ROOM_TAKEN_BYTES: usize = size_refusal::SMALL_ANSWER_BYTES / 4;

impl<B: Backend> RedisConnection<B> {
    /// Takes arrived answers, and moves those whose turn it is to the output.
    pub(super) fn collect(&mut self) {
        let mut mail = std::mem::take(&mut self.mail);
        self.lane.replies.take(&mut mail);
        if !mail.frames.is_empty() {
            self.collected_ns = host_ns();
        }
        let mut at = 0;
        for RoutedAnswer { low, outcome, body } in mail.frames.drain(..) {
            let bytes = match body {
                FrameBody::Small(len) => {
                    at += len;
                    Cow::Borrowed(&mail.bytes[at - len..at])
                }
                FrameBody::Large(bytes) => Cow::Owned(bytes),
            };
            self.place(low, ServiceAnswer { outcome, bytes });
        }
        mail.frames.shrink_to(FRAMES_KEPT);
        mail.bytes.clear();
        if mail.bytes.capacity() > bounds::BUFFER_BYTES_KEPT {
            mail.bytes = Vec::new();
        }
        self.mail = mail;
    }

    /// Puts the answer to the request with this low half into its place, or the answers to its commands into theirs.
    pub(super) fn place(&mut self, low: u32, answer: ServiceAnswer<'_>) {
        if self.place_part(low, &answer) {
            return;
        }
        let ServiceAnswer { outcome, bytes: answer } = answer;
        let Some((at, request)) = self.next_open(low) else { return };
        self.tell_blocked(at, request, &answer);
        let is_batch = self.pipeline.answered(request) > 1;
        let large = self.end_parts(request);
        self.reads.peeks.retain(|peek| peek.request != request);
        self.reads.apart.retain(|read| *read != request);
        let is_executed = outcome == Outcome::Executed;
        self.expected.turns.answered(request, is_executed, answer.len());
        if !is_batch {
            self.learn_size(outcome, answer.len());
        }
        if self.expected.probe == Some(request) {
            self.expected.probe = None;
            if is_executed {
                self.expected.known = AnswerKnowledge::Told;
            }
            // One of that size and no other is known; below this many are sent in any case.
            self.expected.guess = answer.len().max(ANSWER_BYTES_GUESS);
        }
        let refusal = self.oversize(&answer).or_else(|| self.shared.learn(&answer));
        // A command that is refused for its map, its stamp or its answer's size was sent a moment ago: it was not
        // executed, its copies will not be, and it is sent again.
        let outcome = if refusal.is_some() { Outcome::NotExecuted } else { outcome };
        if self.reads.written.answered(request, outcome) {
            self.shared.clock.accepted();
        }
        if let Some(args) = refusal {
            // Of a large command the answer holds no arguments.
            let args = large.map_or_else(|| args.to_vec(), |large| large.into_args());
            match is_batch {
                true => self.refuse_batch(low, &args),
                false => self.refuse_slot(at, args),
            }
        } else if is_batch {
            self.place_batch(low, outcome, &answer);
        } else {
            self.place_one(at, outcome, answer);
        }
    }

    /// The first command of the request with this low half that has no answer: its slot, and the request.
    fn next_open(&self, low: u32) -> Option<(usize, u64)> {
        let request = |slot: &AnswerSlot| match slot {
            AnswerSlot::Open { request, .. } if *request as u32 == low => Some(*request),
            _ => None,
        };
        self.answers.slots.iter().enumerate().find_map(|(i, slot)| Some((i, request(slot)?)))
    }

    /// Learns how large answers are. The error of a command that was not executed says nothing of that: after a stall a
    /// connection would have many large ones under way at a time.
    fn learn_size(&mut self, outcome: Outcome, bytes: usize) {
        if outcome == Outcome::Executed {
            self.expected.guess = bytes.max(self.expected.guess - self.expected.guess / 8);
        }
    }

    /// The arguments of a read that is refused for the size of its answer: how large answers are is not known any more, but
    /// that they are large.
    fn oversize<'a>(&mut self, answer: &'a [u8]) -> Option<&'a [u8]> {
        let args = size_refusal::of_refusal(answer)?;
        self.expected.known = AnswerKnowledge::Exceeds;
        Some(args)
    }

    /// The command of this slot is to be sent again.
    fn refuse_slot(&mut self, at: usize, args: Vec<u8>) {
        let slot = &mut self.answers.slots[at];
        let AnswerSlot::Open { then, resp, silent, call, .. } =
            std::mem::replace(slot, AnswerSlot::Ready(Vec::new(), None))
        else {
            return;
        };
        *slot = AnswerSlot::Refused { args, then, resp, silent, call };
        (self.refused.count, self.refused.drains) = (self.refused.count + 1, true);
    }

    /// The commands of a batch are to be sent again, each as one.
    pub(super) fn refuse_batch(&mut self, low: u32, args: &[u8]) {
        let mut commands = batch::commands(args);
        while let Some((at, _)) = self.next_open(low) {
            // Bytes that are no command get an error when it is sent again.
            self.refuse_slot(at, commands.next().unwrap_or_default().to_vec());
        }
    }

    /// Puts the answers to the commands of a batch into their places; an error may be that of all.
    fn place_batch(&mut self, low: u32, outcome: Outcome, answer: &[u8]) {
        let mut before = 0;
        for (outcome, answer) in batch::answers(answer).into_iter().flatten() {
            let Some((at, _)) = self.next_open(low) else { return };
            // Behind other answers there may have been too little room for a small one, too.
            let refused = match before >= ROOM_TAKEN_BYTES {
                true => size_refusal::of_refusal(answer),
                false => self.oversize(answer),
            };
            match refused {
                Some(args) => self.refuse_slot(at, args.to_vec()),
                None => {
                    before += answer.len();
                    self.learn_size(outcome, answer.len());
                    self.place_one(at, outcome, Cow::Borrowed(answer));
                }
            }
        }
        let (outcome, rest) = match batch::answers(answer) {
            Some(_) => (Outcome::Unknown, CUT_SHORT),
            None => (outcome, answer),
        };
        while let Some((at, _)) = self.next_open(low) {
            self.place_one(at, outcome, Cow::Borrowed(rest));
        }
    }

    /// Puts the answer to one command into its slot.
    fn place_one(&mut self, at: usize, outcome: Outcome, answer: Cow<'_, [u8]>) {
        if self.keep_blocked(at, outcome, &answer) {
            return;
        }
        let (outcome, answer) = self.of_failed_look(at, outcome, answer);
        let AnswerSlot::Open { then, resp, silent, mut call, .. } =
            std::mem::replace(&mut self.answers.slots[at], AnswerSlot::Ready(Vec::new(), None))
        else {
            return;
        };
        call.end = CallEnd::of(outcome, &answer);
        let shown = match answer {
            // A transaction may end the silence.
            _ if silent && !matches!(then, AfterAnswer::Transaction(_)) => {
                self.finished(then, &answer, resp, call, Vec::new());
                Vec::new()
            }
            Cow::Owned(bytes)
                if matches!(then, AfterAnswer::Show) && reply::is_same(&bytes, resp) =>
            {
                bytes
            }
            _ if at == 0 => {
                let output = std::mem::take(&mut self.wire.output);
                self.wire.output = self.finished(then, &answer, resp, call, output);
                Vec::new()
            }
            _ => self.finished(then, &answer, resp, call, Vec::new()),
        };
        self.answers.bytes += shown.len();
        self.answers.slots[at] = AnswerSlot::Ready(shown, Some(call));
        self.show_ready();
    }

    /// Moves the answers whose turn it is to the output.
    pub(super) fn show_ready(&mut self) {
        while let Some(AnswerSlot::Ready(next, call)) = self.answers.slots.front_mut() {
            self.answers.bytes -= next.len();
            self.wire.put(std::mem::take(next));
            if let Some(call) = call.take() {
                self.stats.answered(call, self.collected_ns);
            }
            self.answers.slots.pop_front();
        }
    }

    /// Appends the answer of an ordered command to `out`, as the client sees it.
    fn finished(
        &mut self,
        then: AfterAnswer,
        answer: &[u8],
        resp: u8,
        call: CommandCall,
        mut out: Vec<u8>,
    ) -> Vec<u8> {
        self.finish(then, answer, resp, call, &mut out);
        out
    }

    /// Turns the answer of an ordered command into the form that the client sees.
    fn finish(
        &mut self,
        then: AfterAnswer,
        answer: &[u8],
        version: u8,
        call: CommandCall,
        out: &mut Vec<u8>,
    ) {
        match then {
            AfterAnswer::Show => reply::write(answer, version, out),
            AfterAnswer::Blocking(blocking) => blocking.finish(answer, version, out),
            AfterAnswer::Watch(keys) => {
                self.transaction.bytes = 0;
                let versions = reply::elements(answer).unwrap_or_default();
                let number = |v: &[u8]| {
                    let digits = v.strip_prefix(b":")?.strip_suffix(b"\r\n")?;
                    amcast_kv::number::parse_int(digits).map(|n| n as u64)
                };
                let versions: Option<Vec<u64>> = versions.into_iter().map(number).collect();
                match versions.filter(|v| v.len() == keys.len() && !keys.is_empty()) {
                    Some(versions) => {
                        for (key, version) in keys.into_iter().zip(versions) {
                            self.client.watched.insert(key, version);
                        }
                        out.extend_from_slice(b"+OK\r\n");
                    }
                    None => reply::write(answer, version, out),
                }
            }
            AfterAnswer::Transaction(commands) => {
                self.transaction.bytes = 0;
                self.finish_transaction(&commands, answer, version, call, out);
            }
        }
    }

    /// Puts the answers of the commands that the gateway runs itself into a transaction's. Each of its commands
    /// counts as called when the transaction was. As in Redis `CLIENT REPLY` holds from its place in the transaction on,
    /// also for the parts of the transaction's own answer.
    pub(super) fn finish_transaction(
        &mut self,
        commands: &[Vec<Box<[u8]>>],
        answer: &[u8],
        version: u8,
        call: CommandCall,
        out: &mut Vec<u8>,
    ) {
        let now_ns = host_ns();
        let was_silent = self.client.silent;
        let Some(parts) = reply::elements(answer) else {
            if !was_silent {
                reply::write(answer, version, out);
            }
            return;
        };
        let mut parts = parts.into_iter();
        let mut whole = Vec::new();
        let mut reply = Reply::new(&mut whole);
        reply.array(commands.len());
        let (head, _) = reply.mark();
        for command in commands {
            let args: Vec<&[u8]> = command.iter().map(|a| &**a).collect();
            let found = registry::find(args[0]);
            let end = match found.map(|(_, c)| c.run) {
                // Nothing of it would be shown any more.
                Some(CommandRunner::Gateway(_)) if reply.is_over() => CallEnd::Rejected,
                Some(CommandRunner::Gateway(f)) => {
                    self.run_in_transaction(|client, reply| f(client, &args, reply), &mut reply)
                }
                _ => {
                    let part = parts.next().unwrap_or(b"_\r\n");
                    match found.map(|(_, c)| c.run) {
                        _ if self.client.silent => {}
                        Some(CommandRunner::Blocking(form)) => form.answer(part, &mut reply),
                        _ => reply.raw(part),
                    }
                    CallEnd::of_part(part)
                }
            };
            if let Some((number, _)) = found {
                self.stats.answered(CommandCall { number, end, ..call }, now_ns);
            }
        }
        let is_over = reply.is_over();
        reply.finish(0);
        self.input.own_ns += host_ns().saturating_sub(now_ns);
        // The transaction may have chosen another version: it holds from the next command on.
        let at = out.len();
        reply::write(&whole, version, out);
        if was_silent {
            // Its head is the same in all versions.
            out.drain(at..if is_over { out.len() } else { at + head });
        }
    }

    /// Runs a command of the gateway's own in a transaction.
    fn run_in_transaction(
        &mut self,
        run: impl FnOnce(&mut ClientState, &mut Reply<'_>) -> Result<AfterRun, RedisError>,
        reply: &mut Reply<'_>,
    ) -> CallEnd {
        let start = reply.mark();
        // `CLIENT REPLY SKIP` is for the command behind the transaction, also if `CLIENT REPLY ON` follows in it.
        let skips = self.client.skip_next;
        let end = match run(&mut self.client, reply) {
            Ok(next) => {
                self.closing |= next == AfterRun::Close;
                CallEnd::Executed
            }
            Err(e) => {
                reply.take_back(start);
                reply.error(&e);
                CallEnd::Failed
            }
        };
        self.client.skip_next |= skips;
        if self.client.silent {
            reply.take_back(start);
        }
        end
    }

    /// Answers from here, in its turn. That ends `call`, if there is one.
    pub(super) fn answer(&mut self, call: Option<CommandCall>, fill: impl FnOnce(&mut Reply<'_>)) {
        if self.client.silent || std::mem::take(&mut self.client.skip_next) {
            if let Some(call) = call {
                self.stats.answered(call, host_ns());
            }
            return;
        }
        let mut answer = Vec::new();
        fill(&mut Reply::new(&mut answer));
        self.put(&answer, self.client.resp, call);
    }

    pub(super) fn put(&mut self, answer: &[u8], version: u8, call: Option<CommandCall>) {
        if self.answers.slots.is_empty() {
            reply::write(answer, version, &mut self.wire.output);
            if let Some(call) = call {
                self.stats.answered(call, host_ns());
            }
        } else {
            let mut shown = Vec::new();
            reply::write(answer, version, &mut shown);
            self.hold(shown, call);
        }
    }

    /// Puts an answer behind those that are to come.
    pub(super) fn hold(&mut self, shown: Vec<u8>, call: Option<CommandCall>) {
        self.answers.bytes += shown.len();
        self.answers.slots.push_back(AnswerSlot::Ready(shown, call));
    }
}

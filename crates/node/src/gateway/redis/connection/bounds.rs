//! The bounds of one connection: memory, and commands under way.

use super::super::answer_admission::{AnswerSize, AnswerTurn, LARGE_ANSWER_BYTES};
use super::super::unauthenticated;
use super::super::wire::OUTPUT_BYTES_CALM;
use super::state::AnswerKnowledge;
use super::{AfterAnswer, AnswerSlot, RedisConnection, UnsentCommand};
use crate::command_bytes::BUFFER_BYTES_MAX;
use crate::gateway::backend::Backend;
use amcast_kv::client::{ClientInfo, lock};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Context;

/// A connection that holds fewer bytes than this is not counted: most never hold more.
const UNCOUNTED_BYTES: usize = 16 << 10;

/// Room for so many answers stays with a connection that awaits none.
const SLOTS_KEPT: usize = 64;

/// A larger buffer of a connection is given back when it is empty.
pub(super) const BUFFER_BYTES_KEPT: usize = BUFFER_BYTES_MAX;

impl<B: Backend> RedisConnection<B> {
    /// Whether as many commands are under way, or answers held back behind them, as may be.
    pub(super) fn full(&self) -> bool {
        let (open, open_max) = (self.pipeline.len(), self.shared.config.open_max);
        let large = open > 0 && open * self.expected.guess >= OUTPUT_BYTES_CALM;
        large
            || self.next.large.is_some()
            || self.expected.probe.is_some()
            || open >= open_max
            || self.answers.slots.len() >= 4 * open_max
    }

    /// Whether a command must wait until nothing else is under way: the first one whose answer may be large tells how large
    /// answers are. Many small commands may ask for far more bytes than a client takes, and sent commands cannot be taken
    /// back.
    pub(super) fn must_probe(&self, pending: &UnsentCommand) -> bool {
        self.probes(pending) && self.pipeline.len() > 0
    }

    /// Whether the answer to a command will be the first one that tells how large answers are, unless the command is
    /// refused.
    pub(super) fn probes(&self, pending: &UnsentCommand) -> bool {
        pending.may_answer_much && self.expected.known != AnswerKnowledge::Told
    }

    /// Whether a node may refuse a command for the size of its answer.
    const fn is_refusable(pending: &UnsentCommand) -> bool {
        // One that travels in parts says nothing of its answer.
        pending.read_only && !pending.large
    }

    /// The size that the answer to the command may have, if it needs a place among those of all connections.
    pub(super) fn large_answer(&self, pending: &UnsentCommand) -> Option<AnswerSize> {
        let is_refusable = Self::is_refusable(pending);
        match self.expected.known {
            _ if !pending.may_answer_much => None,
            // One that only reads is refused if its answer is larger than is thought.
            AnswerKnowledge::Nothing if is_refusable => None,
            AnswerKnowledge::Exceeds if is_refusable => Some(AnswerSize::Refused),
            AnswerKnowledge::Nothing | AnswerKnowledge::Exceeds => Some(AnswerSize::Unknown),
            AnswerKnowledge::Told if self.expected.guess >= LARGE_ANSWER_BYTES => {
                Some(AnswerSize::Large(self.expected.guess))
            }
            AnswerKnowledge::Told if pending.read_only => None,
            AnswerKnowledge::Told => Some(AnswerSize::Unknown),
        }
    }

    /// Whether a command with an answer of this size has its place. If not, `cx` is woken when it is to be asked again.
    pub(super) fn has_answer_place(
        &self,
        pending: &mut UnsentCommand,
        size: AnswerSize,
        cx: &mut Context<'_>,
    ) -> bool {
        let host = unauthenticated::host(&self.client.info);
        let turn = pending
            .turn
            .get_or_insert_with(|| Box::new(AnswerTurn::new(&self.shared.answers, host, size)));
        turn.is_placed(cx)
    }

    /// Whether every command that was taken is answered, and the answer written.
    pub(super) fn is_done(&self) -> bool {
        self.next.pending.is_none() && self.answers.slots.is_empty() && self.wire.unwritten() == 0
    }

    /// Bytes of answers that wait for the client, or for their turn.
    pub(super) fn answer_bytes(&self) -> usize {
        self.wire.unwritten() + self.answers.bytes
    }

    /// Whether few enough bytes wait for the client that refused commands may be sent again. Answers behind them do not
    /// count: they leave after them.
    pub(super) fn is_being_read(&self) -> bool {
        self.wire.unwritten() <= OUTPUT_BYTES_CALM
    }

    /// Whether few enough bytes of answers wait that more commands may be taken.
    pub(super) fn is_calm(&self) -> bool {
        self.answer_bytes()
            <= match self.client.authenticated {
                true => OUTPUT_BYTES_CALM,
                false => unauthenticated::OUTPUT_BYTES_CALM,
            }
    }

    /// Bytes of all its buffers.
    fn held(&self) -> usize {
        self.answers.bytes
            + self.answers.slots.capacity() * size_of::<AnswerSlot>()
            + self.wire.capacity()
            + self.input.parser.capacity()
            + self.mail.capacity()
            + self.next.body.capacity()
            + self.batches.capacity()
            + self.pipeline.bytes()
            + self.next.large.as_ref().map_or(0, |large| large.capacity())
            + self.refused_bytes()
            + self.blocked_bytes()
            + self.client.transaction.as_ref().map_or(0, |gathered| gathered.held)
            + self.transaction.bytes
            + self.client.watched.bytes()
            + self.reads.peeks.iter().map(|peek| peek.bytes).sum::<usize>()
    }

    /// Bytes of commands that are to be sent again.
    fn refused_bytes(&self) -> usize {
        if self.refused.count == 0 {
            return 0;
        }
        let bytes = |slot: &AnswerSlot| match slot {
            AnswerSlot::Refused { args, .. } => args.capacity(),
            _ => 0,
        };
        self.answers.slots.iter().map(bytes).sum()
    }

    /// Bytes of a command that may wait for a key.
    fn blocked_bytes(&self) -> usize {
        let bytes = |slot: &AnswerSlot| match slot {
            AnswerSlot::Blocked { blocking, .. }
            | AnswerSlot::Open { then: AfterAnswer::Blocking(blocking), .. }
            | AnswerSlot::Refused { then: AfterAnswer::Blocking(blocking), .. } => blocking.bytes(),
            _ => 0,
        };
        // While there is one no command behind it is taken.
        if self.next.barrier { self.answers.slots.iter().map(bytes).sum() } else { 0 }
    }

    /// Gives back its buffers for large commands, and for many.
    pub(super) fn give_back(&mut self) {
        if self.answers.slots.is_empty() {
            self.answers.slots.shrink_to(SLOTS_KEPT);
        }
        if self.next.pending.is_none() && self.next.body.capacity() > BUFFER_BYTES_KEPT {
            self.next.body = Vec::new();
        }
        if self.pipeline.len() == 0 {
            self.batches.rest();
        }
    }

    /// Whether it is to be closed for the bytes that it holds: more than it may, or the most of all while all together
    /// hold more than they may. Commands are not taken while answers wait, so this is the end of a client that
    /// had much under way and does not read.
    pub(super) fn holds_too_much(&mut self) -> bool {
        let (config, peer) = (&self.shared.config, self.client.info.peer);
        let answers = self.answer_bytes();
        if answers > config.output_bytes_max {
            self.shared.server.refusals.output.fetch_add(1, Ordering::Relaxed);
            self.shared.warnings.slow.warn(|| {
                let most = config.output_bytes_max;
                format!(
                    "{peer} is cut off: {answers} bytes of answers wait for it, more than {most}"
                )
            });
            return true;
        }
        let held = self.held();
        let counted = if held < UNCOUNTED_BYTES { 0 } else { held };
        let before = self.client.info.held.swap(counted, Ordering::Relaxed);
        if counted <= before {
            if counted < before {
                self.shared.held_bytes.fetch_sub(before - counted, Ordering::Relaxed);
            }
            return false;
        }
        let more = counted - before;
        let all = self.shared.held_bytes.fetch_add(more, Ordering::Relaxed) + more;
        all > config.held_bytes_max && self.cuts_off_largest(all)
    }

    /// Has the connection end that holds most, unless those that end already leave enough room: whether it is this one.
    /// It need not be the one that asked for more.
    fn cuts_off_largest(&self, all: usize) -> bool {
        let most = self.shared.config.held_bytes_max;
        let clients = lock(&self.shared.server.clients);
        let held = |info: &Arc<ClientInfo>| info.held.load(Ordering::Relaxed);
        // A connection that ends holds its bytes until it has its turn and is gone: others may grow much until then.
        let stay = || clients.values().filter(|info| !info.killed.load(Ordering::Acquire));
        if stay().map(held).sum::<usize>() <= most {
            return false;
        }
        let Some(largest) = stay().max_by_key(|info| (held(info), info.id)).cloned() else {
            return false;
        };
        drop(clients);
        self.shared.server.refusals.memory.fetch_add(1, Ordering::Relaxed);
        self.shared.warnings.full.warn(|| {
            let (peer, held) = (largest.peer, held(&largest));
            format!(
                "{peer} is cut off: it holds {held} bytes, and all connections together {all}, \
                 more than {most}"
            )
        });
        largest.kill();
        largest.id == self.client.info.id
    }
}

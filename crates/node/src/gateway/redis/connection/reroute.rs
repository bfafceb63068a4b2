//! Commands that were not executed because their shards go by another map of partitions, or by another time
//! than this host's clock said, or because their answers are larger than was thought: they are ordered again, as
//! new requests. Shards execute neither a message that they refused so, nor any copy of it that another node has
//! ordered; and the gateway gives commands up long before
//! replicas forget what they executed, so that of an old one, too, it knows that it was not.
//!
//! The client sent them in an order, and which of those under way were refused is known once all are
//! answered. So nothing is sent until then; then they are sent as if they had just come.

use super::{AfterAnswer, AnswerSlot, RedisConnection, UnsentCommand};
use crate::gateway::backend::Backend;
use crate::gateway::clock::ClockReading;
use amcast_core::Outcome;
use amcast_kv::command_stats::{CallEnd, CommandCall};
use amcast_kv::registry;
use amcast_kv::reply::{RedisError, Reply};
use amcast_kv::resp::reply;
use amcast_kv::{decode_args, split_epoch};
use amcast_smr::envelope::Envelope;
use std::task::Context;

/// The answer to a command that a shard gave back in bytes that are no command.
const UNREADABLE: &str =
    "ERR a node refused the command, and gave it back in bytes that are no command; send it again";

/// The way in which the answer to a refused command is shown.
struct RefusedCall {
    resp: u8,
    silent: bool,
    call: CommandCall,
}

impl<B: Backend> RedisConnection<B> {
    /// Sends the refused commands again, in their order, by the map that was learned since. False if
    /// there are still some.
    pub(super) fn send_refused(&mut self, cx: &mut Context<'_>, now: ClockReading) -> bool {
        // The one that waits behind them must not keep a place for which they wait.
        self.next.pending.iter_mut().for_each(|pending| pending.turn = None);
        let drains = self.refused.drains && self.pipeline.len() > 0;
        if drains || !self.is_being_read() {
            // Nobody may wait in line behind a turn that is not asked for.
            self.expected.turns.refused = None;
            self.input.held_back |= !drains;
            return false;
        }
        self.refused.drains = false;
        // A later command may wait to be sent: its bytes are put aside.
        let waiting = std::mem::take(&mut self.next.body);
        let mut at = 0;
        while self.refused.count > 0 {
            let refused = |slot: &AnswerSlot| matches!(slot, AnswerSlot::Refused { .. });
            let next = self.answers.slots.range(at..).position(refused);
            let next = at + next.expect("as many are there as were counted");
            if !self.send_one_refused(next, cx, now) {
                break;
            }
            at = next + 1;
        }
        self.next.body = waiting;
        if self.refused.count == 0 {
            self.expected.turns.refused = None;
        }
        self.prepare_waiting_anew();
        // Those that cannot be sent again have an answer.
        self.show_ready();
        self.refused.count == 0
    }

    /// The command that waits behind the refused ones goes by the same map as they do now: else it could
    /// be refused, and a later one not.
    fn prepare_waiting_anew(&mut self) {
        let Some(pending) = self.next.pending.take() else { return };
        let (epoch, bytes) = split_epoch(&self.next.body[Envelope::BYTES..]);
        if epoch == self.map.epoch() {
            self.next.pending = Some(pending);
            return;
        }
        let bytes = bytes.to_vec();
        let call = pending.call;
        match self.prepare_again(&bytes, pending.then, call) {
            Ok(pending) => self.next.pending = Some(pending),
            Err(e) => {
                let call = CommandCall { end: CallEnd::Failed, ..call };
                self.answer(Some(call), |reply| reply.error(&e));
            }
        }
    }

    /// Finds where a command goes by the map that is known now, and encodes it.
    ///
    /// # Errors
    /// When the bytes, which came back in an answer, are no such command.
    fn prepare_again(
        &mut self,
        bytes: &[u8],
        then: AfterAnswer,
        call: CommandCall,
    ) -> Result<UnsentCommand, RedisError> {
        let mut args = Vec::new();
        let name = decode_args(bytes, &mut args).and(args.first().copied());
        let command = name.and_then(registry::lookup);
        match command.filter(|command| command.check_arity(args.len()).is_ok()) {
            Some(command) => self.prepare(command, &args, then, call),
            None => Err(RedisError::of(Outcome::NotExecuted, UNREADABLE)),
        }
    }

    /// The refused command at `index` of the slots has this answer.
    fn fail_refused(&mut self, index: usize, refused: RefusedCall, error: &RedisError) {
        let RefusedCall { resp, silent, call } = refused;
        let mut shown = Vec::new();
        if !silent {
            let mut answer = Vec::new();
            Reply::new(&mut answer).error(error);
            reply::write(&answer, resp, &mut shown);
        }
        self.answers.bytes += shown.len();
        let call = CommandCall { end: CallEnd::Failed, ..call };
        self.answers.slots[index] = AnswerSlot::Ready(shown, Some(call));
        self.refused.count -= 1;
    }

    /// Sends the refused command at `index` of the slots again; false if it cannot be sent now.
    fn send_one_refused(&mut self, index: usize, cx: &mut Context<'_>, now: ClockReading) -> bool {
        let taken =
            std::mem::replace(&mut self.answers.slots[index], AnswerSlot::Ready(Vec::new(), None));
        let AnswerSlot::Refused { args: bytes, then, resp, silent, call } = taken else {
            return true;
        };
        let turn = self.expected.turns.refused.take();
        let pending = match self.prepare_again(&bytes, then, call) {
            Ok(pending) => UnsentCommand { turn, ..pending },
            Err(e) => {
                self.fail_refused(index, RefusedCall { resp, silent, call }, &e);
                return true;
            }
        };
        match self.hand_in_or_wait(pending, cx, now) {
            Ok((request, then)) => {
                self.answers.slots[index] = AnswerSlot::Open { request, then, resp, silent, call };
                self.refused.count -= 1;
                true
            }
            Err(UnsentCommand { then, turn, .. }) => {
                self.expected.turns.refused = turn;
                self.answers.slots[index] =
                    AnswerSlot::Refused { args: bytes, then, resp, silent, call };
                false
            }
        }
    }
}

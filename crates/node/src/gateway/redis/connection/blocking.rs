//! Commands that wait for elements of keys: `BLPOP`, and those like it.
//!
//! The command that does not wait is ordered in place of such a command ([`blocking`]). While its answer is that there is nothing, the
//! client waits: no command behind it is taken, and it is ordered again, as a new request, when one of its keys has changed, or
//! exists after a while, which a read tells. Each of these requests has its outcome as any other has: the client learns whether it
//! took an element, or that nobody knows. A read that fails has taken none.

use super::super::failures::as_not_executed;
use super::{AfterAnswer, AnswerSlot, RedisConnection};
use crate::gateway::backend::Backend;
use amcast_core::{Outcome, ServiceAnswer};
use amcast_kv::blocked_clients::{KeyWait, WokenBy, awaited_hash};
use amcast_kv::client::{ClientInfo, Unblocked};
use amcast_kv::command_stats::{CallEnd, CommandCall};
use amcast_kv::commands::blocking::{self, BlockingForm};
use amcast_kv::encode_args;
use amcast_kv::registry;
use amcast_kv::reply::{RedisError, Reply};
use amcast_kv::resp::reply;
use std::borrow::Cow;
use std::future::Future;
use std::iter;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Context;
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep_until};

/// How often a client that waits has its keys looked for though nothing said that they have changed, where replicas of this process
/// tell of all changes: it finds out that its shards do not answer.
const RETRY: Duration = Duration::from_secs(10);

/// The same where no replica does: other gateways may have changed its keys.
const RETRY_DEAF: Duration = Duration::from_secs(1);

/// Tries of one command while a command before it has no answer: half of the requests of a session that replicas remember. Each try
/// is a request, and none of them is forgotten while an earlier one is open.
const TRIES_MAX: u64 = 512;

/// The beginning of the error of a client whose look has no answer.
const LOOK_FAILED: &str = "the shards did not say whether the keys exist";

/// Bytes, about, that a key takes for which a client waits.
const KEY_BYTES: usize = 192;

/// A command that may wait, from when it is taken until it is answered.
pub(super) struct BlockingCall {
    form: &'static BlockingForm,
    /// The command that does not wait, encoded.
    args: Vec<u8>,
    /// A read that tells how many of its keys exist, encoded.
    look: Vec<u8>,
    /// Whether that read is under way in its place: without a reason to think that there is something nothing is ordered.
    looks: bool,
    /// How many keys it waits for.
    keys: usize,
    /// The hash of its first key.
    first: u64,
    wait: KeyWait,
    info: Arc<ClientInfo>,
    /// When it has waited for long enough.
    until: Option<Instant>,
    /// Whether it was answered that there is nothing.
    found_nothing: bool,
}

impl BlockingCall {
    /// Bytes that it holds.
    pub(super) fn bytes(&self) -> usize {
        self.args.capacity() + self.look.capacity() + self.keys * KEY_BYTES
    }

    /// Whether what is under way only looks for its keys.
    pub(super) const fn looks(&self) -> bool {
        self.looks
    }

    /// Its next request: the command again if it is to take something, a read that looks for its keys otherwise. The arguments.
    fn begin_request(&mut self, takes: bool) -> Vec<u8> {
        self.looks = !takes;
        // Later changes wake it again: the request is ordered behind the one that woke it.
        if takes {
            self.wait.retry();
            return self.args.clone();
        }
        // A key that changes at this moment is a reason to take: that wake-up stays.
        if self.wait.woken() == Some(WokenBy::Anything) {
            self.wait.listen();
        }
        self.look.clone()
    }

    /// Whether the answer leaves its client waiting.
    fn goes_on(&self, answer: &[u8]) -> bool {
        if self.looks {
            return answer.starts_with(b":");
        }
        let is_other = self.found_nothing && self.form.waits_on_wrong_type(self.keys);
        blocking::is_nothing(answer) || is_other && blocking::is_wrong_type(answer)
    }

    /// The answer of the command that does not wait as this one's.
    pub(super) fn finish(mut self, ordered: &[u8], version: u8, out: &mut Vec<u8>) {
        if self.keys == 1 && !ordered.starts_with(b"-") {
            self.wait.note_taken(self.first);
        } else if let Some(key) = self.form.taken_from(ordered) {
            self.wait.note_taken(awaited_hash(key));
        }
        let mut answer = Vec::new();
        self.form.answer(ordered, &mut Reply::new(&mut answer));
        reply::write(&answer, version, out);
    }
}

impl Drop for BlockingCall {
    fn drop(&mut self) {
        self.info.block.set(false);
    }
}

/// The client's wait for a key.
#[derive(Default)]
pub(super) struct BlockedState {
    /// Whether a command of it waits among the answers, and is not under way.
    waits: bool,
    timer: Option<Pin<Box<Sleep>>>,
    /// When its keys are looked for in any case.
    retry_at: Option<Instant>,
    /// Whether the command is ordered again at once.
    is_due: bool,
}

impl<B: Backend> RedisConnection<B> {
    /// Orders a command that may wait.
    pub(super) fn order_blocking(
        &mut self,
        form: &'static BlockingForm,
        args: &[&[u8]],
        call: CommandCall,
    ) {
        let command = match form.ordered(args) {
            Ok(command) => command,
            Err(error) => {
                let call = CommandCall { end: CallEnd::Failed, ..call };
                return self.answer(Some(call), |reply| reply.error(&error));
            }
        };
        let args: Vec<&[u8]> = command.args.iter().map(|arg| &**arg).collect();
        let (mut encoded, mut look) = (Vec::new(), Vec::new());
        encode_args(&args, &mut encoded);
        let exists: Vec<&[u8]> = iter::once(&b"exists"[..]).chain(command.keys.clone()).collect();
        encode_args(&exists, &mut look);
        let hashes = command.keys.iter().map(|key| awaited_hash(key)).collect();
        let blocking = BlockingCall {
            form,
            args: encoded,
            look,
            looks: false,
            keys: command.keys.len(),
            first: command.keys.first().map_or(0, |key| awaited_hash(key)),
            // Before it is ordered: what changes from then on is not missed.
            wait: self.client.server.blocked.wait(&self.client.info, hashes, form.awaited),
            info: self.client.info.clone(),
            until: command.timeout.and_then(|timeout| Instant::now().checked_add(timeout)),
            found_nothing: false,
        };
        let ordered = registry::lookup(args[0]).expect("it is ordered as a command that there is");
        self.order(ordered, &args, AfterAnswer::Blocking(Box::new(blocking)), call);
        self.next.barrier = true;
    }

    /// Whether a command of this client waits for a key.
    pub(super) const fn is_blocked(&self) -> bool {
        self.blocked.waits
    }

    /// Wakes clients that wait for the keys which this request may have changed, if no replica of this process does. A command that
    /// found nothing has changed none. `WATCH` counts as a command that writes its keys: it wakes clients for nothing.
    pub(super) fn tell_blocked(&self, at: usize, request: u64, answer: &[u8]) {
        let blocked = &self.client.server.blocked;
        if blocked.count() == 0 || blocked.hears_replicas() {
            return;
        }
        let then = match &self.answers.slots[at] {
            AnswerSlot::Open { then, .. } => then,
            _ => return,
        };
        if matches!(then, AfterAnswer::Blocking(blocking) if blocking.goes_on(answer)) {
            return;
        }
        self.pipeline.written(request).for_each(|key| match key {
            Some(key) => blocked.answered(key),
            None => blocked.all_changed(),
        });
    }

    /// Keeps the client waiting whose command in this slot had this answer, if that leaves it waiting.
    pub(super) fn keep_blocked(&mut self, at: usize, outcome: Outcome, answer: &[u8]) -> bool {
        let AnswerSlot::Open { then: AfterAnswer::Blocking(blocking), .. } =
            &mut self.answers.slots[at]
        else {
            return false;
        };
        if outcome != Outcome::Executed || !blocking.goes_on(answer) {
            return false;
        }
        // Some key exists: perhaps it has elements.
        let is_due = mem::take(&mut blocking.looks) && answer != b":0\r\n";
        if !is_due {
            blocking.wait.note_nothing();
        }
        if !mem::replace(&mut blocking.found_nothing, true) {
            self.client.info.block.set(true);
        }
        let slot = mem::replace(&mut self.answers.slots[at], AnswerSlot::Ready(Vec::new(), None));
        if let AnswerSlot::Open {
            then: AfterAnswer::Blocking(blocking), resp, silent, call, ..
        } = slot
        {
            self.answers.slots[at] = AnswerSlot::Blocked { blocking, resp, silent, call };
            self.blocked.waits = true;
            self.blocked.retry_at = Some(Instant::now() + self.retry_after());
            self.blocked.is_due = is_due;
        }
        true
    }

    /// The outcome and the answer of the command in this slot, which had this outcome and answer. A look that failed has taken nothing
    /// from any key, also where nobody knows whether it was executed: the command of its client was not.
    pub(super) fn of_failed_look<'a>(
        &self,
        at: usize,
        outcome: Outcome,
        answer: Cow<'a, [u8]>,
    ) -> (Outcome, Cow<'a, [u8]>) {
        match &self.answers.slots[at] {
            AnswerSlot::Open { then: AfterAnswer::Blocking(blocking), .. } if blocking.looks() => {
                let answer = ServiceAnswer { outcome, bytes: answer };
                (Outcome::NotExecuted, as_not_executed(&answer, LOOK_FAILED).into())
            }
            _ => (outcome, answer),
        }
    }

    /// Orders the command of a client that waits again, or ends its wait, if it is time. If not, the task is woken in time.
    pub(super) fn look_at_blocked(&mut self, cx: &mut Context<'_>) {
        let is_blocked = |slot: &AnswerSlot| matches!(slot, AnswerSlot::Blocked { .. });
        let Some(at) = self.answers.slots.iter().position(is_blocked) else { return };
        let slot = mem::replace(&mut self.answers.slots[at], AnswerSlot::Ready(Vec::new(), None));
        let AnswerSlot::Blocked { mut blocking, resp, silent, call } = slot else { return };
        let now = Instant::now();
        if let Some(answer) = self.end_of_wait(&blocking, now) {
            return self.end_blocked(at, &answer, (resp, silent), call);
        }
        let retry_at = self.blocked.retry_at.unwrap_or(now);
        let woken = blocking.wait.woken();
        // One that any change has woken has no reason to think that there is an element: all others were woken as well.
        let takes = self.blocked.is_due || matches!(woken, Some(WokenBy::Key(_)));
        let is_due = takes || woken.is_some() || retry_at <= now;
        let may_try = self.may_try();
        // A client that has left takes nothing: its connection ends when it is looked at next.
        if is_due && may_try && !self.wire.is_hung_up() {
            let args = blocking.begin_request(takes);
            let then = AfterAnswer::Blocking(blocking);
            self.answers.slots[at] = AnswerSlot::Refused { args, then, resp, silent, call };
            self.refused.count += 1;
            self.blocked = BlockedState::default();
            return;
        }
        if is_due && !may_try {
            // Others take the elements meanwhile. An answer, or room for answers, has this connection looked at again.
            blocking.wait.pass_on();
            self.blocked.retry_at = Some(now + self.retry_after());
            self.input.held_back |= !self.is_being_read();
        }
        let retry_at = self.blocked.retry_at.unwrap_or(now);
        let until = blocking.until.map_or(retry_at, |until| until.min(retry_at));
        self.answers.slots[at] = AnswerSlot::Blocked { blocking, resp, silent, call };
        self.wake_blocked_at(until, cx);
    }

    /// Whether a command of a client that waits may be sent again: its client reads, and the commands before it have
    /// not been open for so many of its tries that replicas would refuse the next one.
    fn may_try(&self) -> bool {
        let first = self.pipeline.first_open();
        self.is_being_read() && first.is_none_or(|first| self.last_request - first < TRIES_MAX)
    }

    /// After how long a client that waits has its keys looked for in any case.
    fn retry_after(&self) -> Duration {
        match self.client.server.blocked.hears_replicas() {
            true => RETRY,
            false => RETRY_DEAF,
        }
    }

    fn wake_blocked_at(&mut self, until: Instant, cx: &mut Context<'_>) {
        let timer = self.blocked.timer.get_or_insert_with(|| Box::pin(sleep_until(until)));
        if timer.deadline() != until {
            timer.as_mut().reset(until);
        }
        if timer.as_mut().poll(cx).is_ready() {
            // It is later than it was when the clock was read.
            cx.waker().wake_by_ref();
        }
    }

    /// The answer to a command whose wait is over.
    fn end_of_wait(&self, blocking: &BlockingCall, now: Instant) -> Option<Vec<u8>> {
        let mut answer = Vec::new();
        let mut reply = Reply::new(&mut answer);
        let error = |why| RedisError::of(Outcome::NotExecuted, why);
        match self.client.info.block.ended() {
            _ if self.closing => reply.error(&error("UNBLOCKED the gateway ends")),
            Some(Unblocked::WithError) => {
                reply.error(&RedisError::new("UNBLOCKED client unblocked via CLIENT UNBLOCK"));
            }
            Some(Unblocked::TimedOut) => reply.null_array(),
            None if blocking.until.is_some_and(|until| until <= now) => reply.null_array(),
            None => return None,
        }
        Some(answer)
    }

    /// Answers a command that waited, and waits no longer.
    fn end_blocked(
        &mut self,
        at: usize,
        answer: &[u8],
        (resp, silent): (u8, bool),
        call: CommandCall,
    ) {
        self.blocked = BlockedState::default();
        let mut shown = Vec::new();
        if !silent {
            reply::write(answer, resp, &mut shown);
        }
        self.answers.bytes += shown.len();
        let call = CommandCall { end: CallEnd::of_part(answer), ..call };
        self.answers.slots[at] = AnswerSlot::Ready(shown, Some(call));
        self.show_ready();
    }
}

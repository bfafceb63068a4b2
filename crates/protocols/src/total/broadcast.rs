//! Broadcast-broadcast: the sender broadcasts its message, the sequencer broadcasts its number
//! [TO 3.2].

use super::message::{OrderingMessage, msg};
use super::ordering_base::{OrderingBase, OrderingOutbox, Scheme};
use crate::layers::batch::Batch;
use crate::layers::delivery::UNKNOWN_MESSAGE;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use amcast_core::groupcast::{Grade, View};
use amcast_core::step::WakeReason;
use amcast_core::{MsgId, Pid, Time};

/// The scheme, by the primitives of its two broadcasts.
#[derive(Debug)]
pub(super) struct BroadcastBroadcast {
    message: Grade,
    number: Grade,
    /// Of the view at hand.
    view: View,
    /// Runs that came and are not delivered, each by its first message: by sender and then in order.
    come: BTreeMap<MsgId, Batch>,
    /// Which run has each of the numbers after `done`.
    numbers: BTreeMap<u64, MsgId>,
    /// The last number that was delivered.
    done: u64,
    /// The sequencer's: the last number that it gave.
    given: u64,
    /// The sequencer's: what has no number yet, in the order in which it came.
    open: Vec<MsgId>,
    /// When the numbers for them leave.
    due: Time,
}

impl BroadcastBroadcast {
    pub(super) fn new(message: Grade, number: Grade) -> Self {
        Self {
            message,
            number,
            view: View::new(0, Vec::new()),
            come: BTreeMap::new(),
            numbers: BTreeMap::new(),
            done: 0,
            given: 0,
            open: Vec::new(),
            due: Time::NEVER,
        }
    }

    // [TO 1:3] delivered by number, once both have arrived
    fn deliver_ready(&mut self, ordering: &mut OrderingBase, out: &mut OrderingOutbox) {
        while let Some(id) = self.numbers.get(&(self.done + 1)) {
            let Some(run) = self.come.remove(id) else { return };
            let sender = id.sender;
            self.numbers.remove(&(self.done + 1));
            self.done += 1;
            ordering.deliver(sender, &run, out);
        }
    }
}

impl Scheme for BroadcastBroadcast {
    fn begin(&mut self, ordering: &mut OrderingBase, _out: &mut OrderingOutbox) {
        *self = Self::new(self.message, self.number);
        self.view = ordering.view.clone();
    }

    // [TO 1:1] the sender broadcasts its message
    fn send(&mut self, ordering: &mut OrderingBase, out: &mut OrderingOutbox) {
        while let Some(run) = ordering.next_unsent() {
            ordering.note_part(ordering.set.me, &run, out);
            ordering.cast(self.message, OrderingMessage::Plain { run }, out);
        }
    }

    fn hear(
        &mut self,
        ordering: &mut OrderingBase,
        from: Pid,
        word: OrderingMessage,
        out: &mut OrderingOutbox,
    ) -> Result<(), &'static str> {
        match word {
            OrderingMessage::Plain { run } => {
                let id = msg(from, run.first());
                if ordering.is_delivered(id) {
                    return Err("a message again");
                }
                ordering.deliver_early(from, &run, out);
                self.come.insert(id, run);
                // [TO 1:2] the sequencer gives it the next number, once it has the message
                if ordering.is_sequencer() && ordering.is_open() {
                    self.open.push(id);
                    self.due = ordering.now;
                }
            }
            OrderingMessage::Numbers { first, of } if ordering.sequencer() == Some(from) => {
                if first.checked_add(of.len() as u64).is_none() {
                    return Err("numbers that nobody reaches");
                }
                for (number, id) in (first..).zip(of) {
                    self.numbers.insert(number, id);
                }
            }
            _ => return Err(UNKNOWN_MESSAGE),
        }
        self.deliver_ready(ordering, out);
        Ok(())
    }

    fn settle(&mut self, ordering: &mut OrderingBase, out: &mut OrderingOutbox) {
        for id in core::mem::take(&mut self.numbers).into_values() {
            // A number whose message nobody has: a hole.
            if let Some(run) = self.come.remove(&id) {
                ordering.deliver(id.sender, &run, out);
            }
        }
        let left = core::mem::take(&mut self.come);
        for sender in self.view.pids() {
            for run in left.range(msg(sender, 0)..=msg(sender, u64::MAX)).map(|(_, run)| run) {
                ordering.deliver(sender, run, out);
            }
        }
    }

    fn wake(&mut self, ordering: &mut OrderingBase, out: &mut OrderingOutbox) {
        self.due = Time::NEVER;
        if self.open.is_empty() || !ordering.is_open() {
            return;
        }
        let of = core::mem::take(&mut self.open);
        for id in &of {
            if let Some(run) = self.come.get(id) {
                ordering.note_part(id.sender, run, out);
            }
        }
        let first = self.given + 1;
        self.given += of.len() as u64;
        ordering.cast(self.number, OrderingMessage::Numbers { first, of }, out);
    }

    fn deadline(&self) -> Option<(Time, WakeReason)> {
        (!self.open.is_empty()).then_some((self.due, WakeReason::Flush))
    }
}

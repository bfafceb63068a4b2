//! Ask-broadcast: the sender asks the sequencer for numbers and broadcasts its messages with them
//! [TO 3.2].

use super::message::OrderingMessage;
use super::ordering_base::{NumberedBatches, OrderingBase, OrderingOutbox, Scheme};
use crate::layers::delivery::UNKNOWN_MESSAGE;
use amcast_core::Pid;
use amcast_core::groupcast::{Grade, GroupcastOutput};

/// The scheme, by the primitive of its broadcast.
#[derive(Debug)]
pub(super) struct AskBroadcast {
    grade: Grade,
    numbered: NumberedBatches,
    /// The sequencer's: the last number that it gave.
    given: u64,
    /// Whether this process has asked and has no answer.
    asking: bool,
}

impl AskBroadcast {
    pub(super) fn new(grade: Grade) -> Self {
        Self { grade, numbered: NumberedBatches::default(), given: 0, asking: false }
    }
}

impl Scheme for AskBroadcast {
    fn begin(&mut self, _desk: &mut OrderingBase, _out: &mut OrderingOutbox) {
        *self = Self::new(self.grade);
    }

    // [TO 3:1] a rendezvous with the sequencer, for all messages that wait; those that come before its
    // answer go with the last run of them
    fn send(&mut self, ordering: &mut OrderingBase, out: &mut OrderingOutbox) {
        let Some(sequencer) = ordering.sequencer() else { return };
        if sequencer == ordering.set.me {
            while let Some(run) = ordering.next_unsent() {
                self.given += 1;
                ordering.cast_run(self.grade, self.given, sequencer, run, out);
            }
        } else if ordering.unsent() > 0 && !self.asking {
            self.asking = true;
            out.ask(GroupcastOutput::To(
                sequencer,
                OrderingMessage::Ask { count: ordering.unsent() as u32 },
            ));
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
            OrderingMessage::Ask { count } if ordering.is_sequencer() => {
                if ordering.is_open() {
                    let first = self.given + 1;
                    self.given += u64::from(count);
                    out.ask(GroupcastOutput::To(from, OrderingMessage::Grant { first, count }));
                }
                Ok(())
            }
            // [TO 3:2] the sender broadcasts its messages with their numbers
            OrderingMessage::Grant { first, count } if ordering.sequencer() == Some(from) => {
                self.asking = false;
                for number in first..first.saturating_add(u64::from(count)) {
                    let Some(run) = ordering.next_unsent() else { break };
                    ordering.cast_run(self.grade, number, ordering.set.me, run, out);
                }
                self.send(ordering, out);
                Ok(())
            }
            // [TO 3:3] delivered by number
            OrderingMessage::Numbered { number, sender, run } if sender == from => {
                self.numbered.take(ordering, number, (sender, run), out)
            }
            _ => Err(UNKNOWN_MESSAGE),
        }
    }

    fn settle(&mut self, ordering: &mut OrderingBase, out: &mut OrderingOutbox) {
        self.numbered.settle(ordering, out);
    }
}

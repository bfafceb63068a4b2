//! Ask-broadcast: the sender asks the sequencer for numbers and broadcasts its messages with them
//! [TO 3.2].

use super::message::OrderingMessage;
use super::ordering_base::{NumberedBatches, OrderingBase, OrderingOutbox, Scheme};
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
    fn send(&mut self, desk: &mut OrderingBase, out: &mut OrderingOutbox) {
        let Some(sequencer) = desk.sequencer() else { return };
        if sequencer == desk.set.me {
            while let Some(run) = desk.next_unsent() {
                self.given += 1;
                desk.cast_run(self.grade, self.given, sequencer, run, out);
            }
        } else if desk.unsent() > 0 && !self.asking {
            self.asking = true;
            out.ask(GroupcastOutput::To(
                sequencer,
                OrderingMessage::Ask { count: desk.unsent() as u32 },
            ));
        }
    }

    fn hear(
        &mut self,
        desk: &mut OrderingBase,
        from: Pid,
        word: OrderingMessage,
        out: &mut OrderingOutbox,
    ) -> Result<(), &'static str> {
        match word {
            OrderingMessage::Ask { count } if desk.is_sequencer() => {
                if desk.is_open() {
                    let first = self.given + 1;
                    self.given += u64::from(count);
                    out.ask(GroupcastOutput::To(from, OrderingMessage::Grant { first, count }));
                }
                Ok(())
            }
            // [TO 3:2] the sender broadcasts its messages with their numbers
            OrderingMessage::Grant { first, count } if desk.sequencer() == Some(from) => {
                self.asking = false;
                for number in first..first.saturating_add(u64::from(count)) {
                    let Some(run) = desk.next_unsent() else { break };
                    desk.cast_run(self.grade, number, desk.set.me, run, out);
                }
                self.send(desk, out);
                Ok(())
            }
            // [TO 3:3] delivered by number
            OrderingMessage::Numbered { number, sender, run } if sender == from => {
                self.numbered.take(desk, number, (sender, run), out)
            }
            _ => Err("what this protocol does not say"),
        }
    }

    fn settle(&mut self, desk: &mut OrderingBase, out: &mut OrderingOutbox) {
        self.numbered.settle(desk, out);
    }
}

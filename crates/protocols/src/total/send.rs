//! Send-broadcast: the sender sends its message to the sequencer, which broadcasts it with its
//! number [TO 3.2].

use super::message::OrderingMessage;
use super::ordering_base::{NumberedBatches, OrderingBase, OrderingOutbox, Scheme};
use crate::layers::delivery::UNKNOWN_MESSAGE;
use amcast_core::Pid;
use amcast_core::groupcast::{Grade, GroupcastOutput};

/// The scheme, by the primitive of its broadcast.
#[derive(Debug)]
pub(super) struct SendBroadcast {
    grade: Grade,
    numbered: NumberedBatches,
    /// The sequencer's: the last number that it gave.
    given: u64,
}

impl SendBroadcast {
    pub(super) fn new(grade: Grade) -> Self {
        Self { grade, numbered: NumberedBatches::default(), given: 0 }
    }
}

impl Scheme for SendBroadcast {
    fn begin(&mut self, _desk: &mut OrderingBase, _out: &mut OrderingOutbox) {
        *self = Self::new(self.grade);
    }

    // [TO 2:1] the sender sends its message to the sequencer; what the last one did not broadcast,
    // it sends again to the next
    fn send(&mut self, ordering: &mut OrderingBase, out: &mut OrderingOutbox) {
        let Some(sequencer) = ordering.sequencer() else { return };
        while let Some(run) = ordering.next_unsent() {
            if sequencer == ordering.set.me {
                self.given += 1;
                ordering.cast_run(self.grade, self.given, sequencer, run, out);
            } else {
                ordering.note_part(ordering.set.me, &run, out);
                out.ask(GroupcastOutput::To(sequencer, OrderingMessage::Plain { run }));
            }
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
            // [TO 2:2] the sequencer broadcasts the message with the next number
            OrderingMessage::Plain { run } if ordering.is_sequencer() => {
                if ordering.is_open() {
                    self.given += 1;
                    ordering.cast_run(self.grade, self.given, from, run, out);
                }
                Ok(())
            }
            // [TO 2:3] delivered by number
            OrderingMessage::Numbered { number, sender, run }
                if ordering.sequencer() == Some(from) =>
            {
                self.numbered.take(ordering, number, (sender, run), out)
            }
            _ => Err(UNKNOWN_MESSAGE),
        }
    }

    fn settle(&mut self, ordering: &mut OrderingBase, out: &mut OrderingOutbox) {
        self.numbered.settle(ordering, out);
    }
}

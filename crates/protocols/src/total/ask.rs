//! Ask-broadcast: the sender asks the sequencer for numbers and broadcasts its messages with them
//! [TO 3.2].

use super::desk::{Desk, Numbered, Outs, Scheme};
use super::word::Word;
use amcast_core::Pid;
use amcast_core::groupcast::{Grade, Out};

/// The scheme, by the primitive of its broadcast.
#[derive(Debug)]
pub(super) struct Ask {
    grade: Grade,
    numbered: Numbered,
    /// The sequencer's: the last number that it gave.
    given: u64,
    /// Whether this process has asked and has no answer.
    asking: bool,
}

impl Ask {
    pub(super) fn new(grade: Grade) -> Self {
        Self { grade, numbered: Numbered::default(), given: 0, asking: false }
    }
}

impl Scheme for Ask {
    fn begin(&mut self, _desk: &mut Desk, _out: &mut Outs) {
        *self = Self::new(self.grade);
    }

    // [TO 3:1] a rendezvous with the sequencer, for all messages that wait; those that come before its
    // answer go with the last run of them
    fn send(&mut self, desk: &mut Desk, out: &mut Outs) {
        let Some(sequencer) = desk.sequencer() else { return };
        if sequencer == desk.set.me {
            while let Some(run) = desk.next_unsent() {
                self.given += 1;
                desk.cast_run(self.grade, self.given, sequencer, run, out);
            }
        } else if desk.unsent() > 0 && !self.asking {
            self.asking = true;
            out.ask(Out::To(sequencer, Word::Ask { count: desk.unsent() as u32 }));
        }
    }

    fn hear(
        &mut self,
        desk: &mut Desk,
        from: Pid,
        word: Word,
        out: &mut Outs,
    ) -> Result<(), &'static str> {
        match word {
            Word::Ask { count } if desk.is_sequencer() => {
                if desk.is_open() {
                    let first = self.given + 1;
                    self.given += u64::from(count);
                    out.ask(Out::To(from, Word::Grant { first, count }));
                }
                Ok(())
            }
            // [TO 3:2] the sender broadcasts its messages with their numbers
            Word::Grant { first, count } if desk.sequencer() == Some(from) => {
                self.asking = false;
                for number in first..first.saturating_add(u64::from(count)) {
                    let Some(run) = desk.next_unsent() else { break };
                    desk.cast_run(self.grade, number, desk.set.me, run, out);
                }
                self.send(desk, out);
                Ok(())
            }
            // [TO 3:3] delivered by number
            Word::Numbered { number, sender, run } if sender == from => {
                self.numbered.take(desk, number, (sender, run), out)
            }
            _ => Err("what this protocol does not say"),
        }
    }

    fn settle(&mut self, desk: &mut Desk, out: &mut Outs) {
        self.numbered.settle(desk, out);
    }
}

//! Send-broadcast: the sender sends its message to the sequencer, which broadcasts it with its
//! number [TO 3.2].

use super::desk::{Desk, Numbered, Outs, Scheme};
use super::word::Word;
use amcast_core::Pid;
use amcast_core::groupcast::{Grade, Out};

/// The scheme, by the primitive of its broadcast.
#[derive(Debug)]
pub(super) struct Send {
    grade: Grade,
    numbered: Numbered,
    /// The sequencer's: the last number that it gave.
    given: u64,
}

impl Send {
    pub(super) fn new(grade: Grade) -> Self {
        Self { grade, numbered: Numbered::default(), given: 0 }
    }
}

impl Scheme for Send {
    fn begin(&mut self, _desk: &mut Desk, _out: &mut Outs) {
        *self = Self::new(self.grade);
    }

    // [TO 2:1] the sender sends its message to the sequencer; what the last one did not broadcast,
    // it sends again to the next
    fn send(&mut self, desk: &mut Desk, out: &mut Outs) {
        let Some(sequencer) = desk.sequencer() else { return };
        while let Some(run) = desk.next_unsent() {
            if sequencer == desk.set.me {
                self.given += 1;
                desk.cast_run(self.grade, self.given, sequencer, run, out);
            } else {
                desk.note_part(desk.set.me, &run, out);
                out.ask(Out::To(sequencer, Word::Plain { run }));
            }
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
            // [TO 2:2] the sequencer broadcasts the message with the next number
            Word::Plain { run } if desk.is_sequencer() => {
                if desk.is_open() {
                    self.given += 1;
                    desk.cast_run(self.grade, self.given, from, run, out);
                }
                Ok(())
            }
            // [TO 2:3] delivered by number
            Word::Numbered { number, sender, run } if desk.sequencer() == Some(from) => {
                self.numbered.take(desk, number, (sender, run), out)
            }
            _ => Err("what this protocol does not say"),
        }
    }

    fn settle(&mut self, desk: &mut Desk, out: &mut Outs) {
        self.numbered.settle(desk, out);
    }
}

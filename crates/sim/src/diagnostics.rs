//! The handling of notes: an observer of the run receives them, and rare branches are counted. Nothing of a run
//! depends on them.

use crate::run::RunEvent;
use crate::world::SimulatedRun;
use amcast_core::Pid;
use amcast_core::step::Note;

impl SimulatedRun<'_> {
    /// A process remarks something.
    pub(crate) fn note(&mut self, p: Pid, note: Note) {
        self.tell_of(&RunEvent::Note(p, note));
        match note {
            Note::Mark(name) => self.mark(name),
            Note::Malformed(..) => self.mark("sim-malformed"),
            Note::Demoted(_) | Note::LeftBehind(_) | Note::TooFull => {}
        }
    }
}

//! Applications that hang: each process shows that it lives and takes part in everything, but nothing that it delivers is executed.

use super::{Fault, FaultDrawing, FaultTime, Strike};
use crate::chooser::Concern;
use amcast_core::{Span, Time};

impl FaultDrawing<'_> {
    /// Some replicas' applications, one after the other or at a time, in every third run; where only this kind of fault is asked for in
    /// each. Drawn apart from all other faults.
    pub(super) fn hangs(&mut self) {
        self.concern = Concern::Hangs;
        let strikes = self.least == 1 || self.pick(3) == 2;
        for _ in 0..u64::from(strikes) * (1 + self.pick(3)) {
            let at = Time(self.pick(self.calm.0));
            let p = if self.pick(2) == 1 { self.likely_leader() } else { self.replica() };
            let left = self.calm.since(at);
            // Half of them for a large part of the time that is left: the others may give up waiting.
            let span = match self.pick(2) {
                0 => self.span(self.faulty_part()),
                _ => Span(left.0 / 2 + self.pick(left.0 / 2 + 1)),
            };
            self.strikes.push(Strike { at: FaultTime::Time(at), fault: Fault::Hang { p, span } });
        }
        self.concern = Concern::Faults;
    }
}

//! stub for now
use crate::{History, Verdict};
/// Budget.
#[derive(Clone, Copy, Default, Debug)]
pub struct Budget {
    /// States.
    pub states: u64,
}
pub(crate) fn linearizable(_: &History, _: Budget) -> Verdict {
    Verdict::Holds
}
pub(crate) fn sequential(_: &History, _: Budget) -> Verdict {
    Verdict::Holds
}
pub(crate) fn read_your_writes(_: &History) -> Verdict {
    Verdict::Holds
}
pub(crate) fn exactly_once(_: &History) -> Verdict {
    Verdict::Holds
}

//! Faults that tests must find.

#![cfg_attr(
    not(feature = "inspection"),
    expect(unreachable_pub, reason = "tests of other crates break the executor, too")
)]

/// A fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExecutorMutant {
    /// A command of which a part is missing is executed.
    RunsIncomplete,
    /// A checkpoint holds no parts.
    ForgetsAtCut,
    /// Parts do not count.
    CountsNothing,
    /// The parts of a command are kept of which one was refused.
    KeepsRefused,
    /// Parts are kept also when their session is beyond their command.
    KeepsLateParts,
    /// A copy of a message that was ahead of time is executed once time reaches its stamp.
    RunsCopies,
    /// Requests that a session sent behind one that was ahead are executed before its retry.
    LetsOvertake,
    /// A session is idle for as long as time leaps.
    AgesByLeaps,
    /// The requests count that a session ran before it was idle for so long that replicas may have forgotten them.
    KeepsIdleRecords,
    /// A session that only repeats requests is forgotten with what it ran.
    AgesRetried,
    /// A session that only sends parts of commands does not begin anew.
    RenewsByParts,
    /// A session is forgotten before copies of a message that was ahead of time are old.
    ForgetsAhead,
    /// Of a batch only what commands in front of it take is counted, and not what its own first commands take.
    CountsNoneOfBatch,
}

#[cfg(not(feature = "inspection"))]
pub(super) const fn is(_: ExecutorMutant) -> bool {
    false
}

#[cfg(feature = "inspection")]
thread_local! {
    static ON: std::cell::Cell<Option<ExecutorMutant>> = const { std::cell::Cell::new(None) };
}

#[cfg(feature = "inspection")]
pub(super) fn is(mutant: ExecutorMutant) -> bool {
    ON.get() == Some(mutant)
}

/// Runs `check` with the fault.
#[cfg(feature = "inspection")]
pub fn with<T>(mutant: ExecutorMutant, check: impl FnOnce() -> T) -> T {
    ON.set(Some(mutant));
    let found = check();
    ON.set(None);
    found
}

//! The interface of the gateways of all services to the cluster: it orders commands, and returns
//! answers.

mod failure;
mod local;
mod read_your_writes;

pub use failure::{CommandFailure, FailureCause};
pub use local::LocalBackend;
pub use read_your_writes::SessionWrites;

use amcast_core::{GroupSet, ServiceAnswer};
use amcast_smr::SessionWrite;
use core::fmt;
use std::sync::Arc;

/// The backend cannot take a command now; it calls [`BackendAnswers::room`] when it can again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BackendBusy;

impl fmt::Display for BackendBusy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the backend has no room for a command")
    }
}

impl core::error::Error for BackendBusy {}

/// Told the answer of one command, once, from any thread: it must be quick and must not wait.
pub type OnBackendAnswer = Box<dyn FnOnce(Result<ServiceAnswer<'_>, CommandFailure>) + Send>;

/// Has commands ordered and brings answers. Called from several threads; nothing here blocks.
///
/// A gateway with many commands of each client submits them with tokens ([`Backend::submit`]), and
/// one sink receives all answers; one whose commands are independent gives each a receiver of its
/// own ([`Backend::ask`]).
///
/// The contract of a backend:
/// - Each command that was taken is answered exactly once, with the answer of the first replica
///   that ran it. A backend that hears nothing sends the *same bytes* again, as often as needed:
///   the executor runs them once. One that gives up reports that ([`CommandFailure`]), with the
///   known outcome of the command.
/// - Commands from one gateway whose only destination is the same shard are ordered as they were
///   submitted. Nothing is asked about the order of others; the gateway waits where it matters.
pub trait Backend: Send + Sync + 'static {
    /// Gives the sink for answers, once, before any command.
    fn start(&self, answers: Arc<dyn BackendAnswers>);

    /// Has `command`, an [`Envelope`](amcast_smr::Envelope) and its body, ordered in all of
    /// `dst`. The bytes may be taken, and an empty buffer be left in their place. `token` comes back with the answer,
    /// which may come before this returns.
    ///
    /// # Errors
    /// When there is no room; the command was not taken, and its bytes are left.
    fn submit(&self, dst: GroupSet, command: &mut Vec<u8>, token: u64) -> Result<(), BackendBusy>;

    /// As [`submit`](Self::submit), for a command of the gateway's own, such as one that frees what has expired: it is no part
    /// of the workload.
    ///
    /// # Errors
    /// When there is no room; the command was not taken, and its bytes are left.
    fn submit_own(
        &self,
        dst: GroupSet,
        command: &mut Vec<u8>,
        token: u64,
    ) -> Result<(), BackendBusy> {
        self.submit(dst, command, token)
    }

    /// Has an [`Assembly`](amcast_smr::parts::Assembly) ordered in all of `dst`, as [`submit`](Self::submit). `command` is what it
    /// puts together, for backends that want to see it.
    ///
    /// # Errors
    /// When there is no room; it was not taken.
    fn assemble(
        &self,
        dst: GroupSet,
        assembly: &mut Vec<u8>,
        _command: &[u8],
        token: u64,
    ) -> Result<(), BackendBusy> {
        self.submit(dst, assembly, token)
    }

    /// Whether reads of one shard need no place in the order ([`Backend::read`]).
    fn reads_apart(&self) -> bool {
        false
    }

    /// As [`submit`](Self::submit), for a command of one shard that changes nothing, where
    /// [`reads_apart`](Self::reads_apart): it sees everything that was answered to anybody before. Of commands
    /// that are under way at the same time it sees any, and of its own session only others like it may be.
    ///
    /// # Errors
    /// When there is no room; the command was not taken.
    fn read(&self, dst: GroupSet, command: &mut Vec<u8>, token: u64) -> Result<(), BackendBusy> {
        self.submit(dst, command, token)
    }

    /// Has a command that changes nothing answered by a node of this process from its executed state, once that
    /// includes all of `written`. Otherwise as [`submit`](Self::submit). False if there is no such node, or no room.
    fn read_here(
        &self,
        _dst: GroupSet,
        _command: &[u8],
        _written: &[SessionWrite],
        _token: u64,
    ) -> bool {
        false
    }

    /// A hint that no more commands follow at once: send the gathered ones.
    fn flush(&self) {}

    /// Orders `command`, an [`Envelope`](amcast_smr::Envelope) and its body, in all of `dst`, and
    /// passes `done` the answer, or after a bounded time that there is none; once, and maybe before
    /// this returns. Such a command needs no sink, and goes out without [`Backend::flush`]; it may
    /// overtake other commands.
    ///
    /// # Errors
    /// When the command was not taken; `done` is not told then.
    fn ask(
        &self,
        dst: GroupSet,
        command: &mut Vec<u8>,
        done: OnBackendAnswer,
    ) -> Result<(), CommandFailure>;
}

/// Where answers go. Called from any thread; never blocks for long.
pub trait BackendAnswers: Send + Sync + 'static {
    /// The answer to the command that was submitted with `token`. A large one is best owned: it is
    /// not copied then.
    fn answer(&self, token: u64, answer: ServiceAnswer<'_>);

    /// The command that was submitted with `token` has no answer.
    fn fail(&self, token: u64, failure: &CommandFailure);

    /// Whether somebody still waits for the answer to the command that was submitted with `token`.
    fn awaits(&self, _token: u64) -> bool {
        true
    }

    /// There is room again after a [`BackendBusy`].
    fn room(&self);
}

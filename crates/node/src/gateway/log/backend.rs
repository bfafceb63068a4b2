//! What the front asks for: commands ordered, and answers brought back.

use amcast_core::{GroupSet, Outcome, ServiceAnswer};

/// A command without an answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unanswered {
    /// What became of it.
    pub outcome: Outcome,
    /// Whether it was refused since there is no room for more, until somebody makes some.
    pub lacks_room: bool,
    /// Why there is none, for people; it says what became of the command.
    pub why: String,
}

/// Told the answer once, from any thread: must not wait.
pub type OnAnswer = Box<dyn FnOnce(Result<ServiceAnswer<'_>, Unanswered>) + Send>;

/// Has commands ordered and brings answers. Nothing here waits.
pub trait Backend: Send + Sync + 'static {
    /// Has `command`, an [`Envelope`](amcast_smr::Envelope) and what follows it, ordered in all
    /// of `dst`, and tells `done` the answer of the first replica that executed it, or after a bounded
    /// time that there is none; once, and maybe before this returns.
    ///
    /// # Errors
    /// When the command was not taken; `done` is not told then.
    fn ask(&self, dst: GroupSet, command: &[u8], done: OnAnswer) -> Result<(), Unanswered>;
}

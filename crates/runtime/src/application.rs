//! What a node runs: the state machine that ordered commands are delivered to.

use amcast_core::{Gid, GroupSet, MsgId};

/// A command as its replica delivered it.
#[derive(Clone, Copy, Debug)]
pub struct Command<'a> {
    /// The group whose replica delivered it.
    pub group: Gid,
    /// Its position in the group's sequence.
    pub position: u64,
    /// Its message. The sender is the front that asked.
    pub msg: MsgId,
    /// Its destinations.
    pub dst: GroupSet,
    /// The command.
    pub payload: &'a [u8],
}

/// The application of one node: it has a part for every group, and is given the commands of all
/// of them. Everything it does must follow from the commands alone.
pub trait Application {
    /// Takes a command, executes what can be executed, and gives each answer with the message that
    /// asked. False if it holds as much as it may: it is offered the same command again later.
    /// Commands up to [`Application::delivered`] are skipped.
    fn deliver(&mut self, command: Command<'_>, answer: &mut dyn FnMut(MsgId, &[u8])) -> bool;

    /// The position up to which everything of `group` was executed.
    fn applied(&self, group: Gid) -> u64;

    /// The position up to which everything of `group` was taken.
    fn delivered(&self, group: Gid) -> u64;

    /// The state of all groups at this moment.
    fn snapshot(&self) -> Vec<u8>;

    /// Replaces the state by what [`Application::snapshot`] gave on another node.
    ///
    /// # Errors
    /// When the bytes are not such a state; the sentence says why. The state is then as before.
    fn restore(&mut self, snapshot: &[u8]) -> Result<(), String>;

    /// Figures about `group` for people and metrics.
    fn figures(&self, group: Gid) -> Figures;
}

/// Figures about one group at one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Figures {
    /// Commands that wait for other groups.
    pub waiting: u64,
    /// Items held.
    pub items: u64,
    /// Items held that will expire.
    pub expiring: u64,
}

//! The application of a node: the state machine to which ordered commands are delivered.

use crate::executor::ExecutionObserver;
use crate::machine::Corrupt;
use amcast_core::{Gid, GroupSet, MsgId, Outcome, SkipDecision, Time};
use std::borrow::Cow;
use std::fmt;
use std::io::{self, Read};
use std::sync::Arc;

/// A command as its replica delivered it.
#[derive(Clone, Copy, Debug)]
pub struct DeliveredCommand<'a> {
    /// The group whose replica delivered it.
    pub group: Gid,
    /// Its position in the group's sequence.
    pub position: u64,
    /// Its message. The sender is the gateway that asked.
    pub msg: MsgId,
    /// Its destinations.
    pub dst: GroupSet,
    /// The command.
    pub payload: &'a [u8],
}

pub use crate::executor::{AwaitedAnswers, WakeHandle};

/// Takes the message that carried the command, the outcome, and the answer.
pub type TellAnswer<'a> = &'a mut dyn FnMut(MsgId, Outcome, &[u8]);

/// Takes the group and the number of a read, its outcome, and its answer.
pub type TellRead<'a> = &'a mut dyn FnMut(Gid, u64, LocalReadResult, &[u8]);

/// Why a state was not read; the sentence is for people.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StateReadError {
    /// The bytes are no state, are damaged or end too early.
    Damaged(String),
    /// They are as they were written, and this program does not read them: another version of it wrote them.
    Rejected(String),
}

impl fmt::Display for StateReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Damaged(why) | Self::Rejected(why)) = self;
        f.write_str(why)
    }
}

impl std::error::Error for StateReadError {}

impl From<Corrupt> for StateReadError {
    fn from(why: Corrupt) -> Self {
        match why {
            Corrupt::Rejected | Corrupt::Version(_) => Self::Rejected(why.to_string()),
            _ => Self::Damaged(why.to_string()),
        }
    }
}

impl From<io::Error> for StateReadError {
    fn from(e: io::Error) -> Self {
        Self::Damaged(e.to_string())
    }
}

impl From<StateReadError> for String {
    fn from(e: StateReadError) -> Self {
        e.to_string()
    }
}

/// The application of one node: it has a part for every group, and is given the commands of all
/// of them. Everything it does must follow from the commands alone.
pub trait Application {
    /// A whole state that was read, ready to be put in force.
    type State: Send + 'static;

    /// Whether there is memory for two of its states: one that comes from another node is read before the present one goes.
    const FITS_TWICE: bool = false;

    /// Called once, before the first command. An application with threads of its own starts them
    /// here, and calls `wake` when there is something to [`collect`](Self::collect) again.
    ///
    /// # Errors
    /// When it cannot start; the node does not either.
    fn begin(&mut self, _wake: WakeHandle) -> io::Result<()> {
        Ok(())
    }

    /// Only some commands are awaited at this node, and others no more when it is their turn: of those that change
    /// nothing these need not be executed here. Called once before the first command, where that is so.
    fn answer_only(&mut self, _awaits: AwaitedAnswers) {}

    /// These commands of `group` come next, in this order: it may begin to read from memory what it will look for. Nothing
    /// follows from it.
    fn look_ahead(
        &mut self,
        _group: Gid,
        _commands: &mut dyn Iterator<Item = DeliveredCommand<'_>>,
    ) {
    }

    /// Takes a command, executes the commands whose turn it is, and gives each answer with the message that
    /// asked. False if it holds as much as it may: it is offered the same command again later.
    /// Commands up to [`Application::delivered`] are skipped.
    fn deliver(&mut self, command: DeliveredCommand<'_>, answer: TellAnswer<'_>) -> bool;

    /// Whether it is shown commands before their place in the order is decided, by a protocol that can
    /// ([`Capability::EarlyDelivery`](amcast_core::Capability::EarlyDelivery)).
    fn wants_early(&self) -> bool {
        false
    }

    /// A message whose place in the order is not decided. [`deliver`](Self::deliver) follows, unless the node loses its place
    /// before.
    fn early(&mut self, _msg: MsgId, _payload: &[u8]) {}

    /// The state is not to be used any more, and another one comes: messages that were shown early are void.
    fn void_early(&mut self) {}

    /// This node's own report in the order of `group`, if one is due at `now`, the host's monotonic
    /// time: it is multicast like a command, and has no answer. Only called where members
    /// multicast; a report for which there is no room is requested again.
    fn report(&mut self, _now: Time, _group: Gid) -> Option<Vec<u8>> {
        None
    }

    /// The groups whose commands are not to be handed in yet, at `now`, the host's monotonic time: the node asks again in its next round.
    /// Only called where members multicast.
    fn held(&mut self, _now: Time) -> GroupSet {
        GroupSet::EMPTY
    }

    /// Why gateways are not to be served although the replicas are fit, if they are not; for people.
    fn lacks(&self) -> Option<Cow<'_, str>> {
        None
    }

    /// The difference of this node's state from that of a majority of the replicas, if there is one; for people. It
    /// takes no command then and shows nobody anything, and its node ends.
    fn differs(&self) -> Option<&str> {
        None
    }

    /// Why it is not known whether this node's state is right, if replicas differ and none of them has a majority on its
    /// side; for people. Nobody is given the state then.
    fn doubt(&self) -> Option<&str> {
        None
    }

    /// Whether it may be asked for reads: see [`peek`](Self::peek). If not, they are ordered.
    fn can_peek(&self) -> bool {
        false
    }

    /// Answers a command that changes nothing, from everything of `group` that was taken: appended to
    /// `answer`. It must see the effects of all commands that were taken before, and of none after. An application
    /// with threads of its own may answer it later, under `number`, to [`collect_reads`](Self::collect_reads).
    fn peek(
        &mut self,
        _group: Gid,
        _number: u64,
        _command: &[u8],
        _answer: &mut Vec<u8>,
    ) -> LocalReadResult {
        LocalReadResult::Never
    }

    /// Those that were to be answered later, and were given since it was called last, are all for now.
    fn flush_reads(&mut self) {}

    /// Reports the results of reads that were to be answered later: their groups and numbers, and answers. Those of one
    /// group in the order in which they were given, each once. Whether there were any.
    fn collect_reads(&mut self, _tell: TellRead<'_>) -> bool {
        false
    }

    /// Of which of a gateway's lines a command is: reads of one line are answered in their order, each from as late a
    /// moment as those before it. None for one of no line, which waits for no other read; numbers of lines are below
    /// 2^63.
    fn line(&self, _command: &[u8]) -> Option<u64> {
        Some(0)
    }

    /// Gives the answers of commands that were executed in threads of its own since it was asked
    /// last; whether there were any.
    fn collect(&mut self, _answer: TellAnswer<'_>) -> bool {
        false
    }

    /// The position up to which everything of `group` was executed.
    fn applied(&self, group: Gid) -> u64;

    /// The position up to which everything of `group` was taken.
    fn delivered(&self, group: Gid) -> u64;

    /// Begins a snapshot: the state of all groups at this moment, to be given in pieces while commands
    /// continue. One begun before is forgotten.
    fn capture(&mut self);

    /// Appends about `most` bytes of the snapshot to `to`, in time that is bounded by `most`; false if
    /// that was all, and the snapshot is then released. The bytes know where they end. It may add
    /// nothing, when threads of its own have not come to the snapshot.
    fn piece(&mut self, most: usize, to: &mut Vec<u8>) -> bool;

    /// Forgets the snapshot.
    fn release(&mut self);

    /// Reads what [`Application::piece`] gave on another node of as many groups, and nothing
    /// behind it. Runs on any thread.
    ///
    /// # Errors
    /// When the bytes are no such state or end too early; or when they are whole and another version of the program gave
    /// them.
    fn read(groups: usize, from: &mut dyn Read) -> Result<Self::State, StateReadError>
    where
        Self: Sized;

    /// The position up to which `state` has everything of `group`.
    fn state_delivered(state: &Self::State, group: Gid) -> u64
    where
        Self: Sized;

    /// Puts a state in force at once; gives back the old one, since dropping it may take long.
    fn adopt(&mut self, state: Self::State) -> Self::State;

    /// Forgets its state, since a newer one is on its way; gives it back, since dropping it may take long.
    /// It is given no command, and shows nobody anything, before the next one is put in force.
    fn clear(&mut self) -> Self::State;

    /// Has `witness` notified of commands under execution, in a slot for each group and one more. Called at most once,
    /// before [`begin`](Self::begin).
    fn note_in(&mut self, _witness: Arc<dyn ExecutionObserver>) {}

    /// Has these messages skipped: they count as delivered, and are not executed. Each has a flag
    /// whether it is [released](Self::release_skip) already. Called at most once, before
    /// [`begin`](Self::begin).
    ///
    /// # Errors
    /// When it cannot skip them; the sentence says why.
    fn skip(&mut self, _decisions: &[(SkipDecision, bool)]) -> Result<(), String> {
        Err("the application of this node cannot skip messages".to_string())
    }

    /// The message that is next and is to be skipped once it is released; [`deliver`](Self::deliver) does not take
    /// it before.
    fn at_skip(&self) -> Option<MsgId> {
        None
    }

    /// Has a message skipped when its turn comes.
    fn release_skip(&mut self, _msg: MsgId) {}

    /// Whether a message was skipped in the state in force.
    fn has_skipped(&self, _msg: MsgId) -> bool {
        false
    }

    /// Why `state` must not be put in force, if other messages were skipped on the way to it than are
    /// skipped here.
    fn conflict(&self, _state: &Self::State) -> Option<String> {
        None
    }

    /// Figures about `group` for people and metrics.
    fn figures(&self, group: Gid) -> GroupFigures;
}

/// The result of a read that is answered from the commands taken so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LocalReadResult {
    /// It was answered, or refused by what answers commands.
    Answered(Outcome),
    /// The answer comes later, from [`Application::collect_reads`].
    Later,
    /// Something that it may depend on is not executed yet.
    NotYet,
    /// The application's threads have too much to do; so they would have if it were ordered.
    Busy,
    /// It needs a place in the order.
    Never,
}

/// Figures about one group at one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct GroupFigures {
    /// Commands that wait for other groups.
    pub waiting: u64,
    /// Items held.
    pub items: u64,
    /// Items held that will expire.
    pub expiring: u64,
    /// When the first of them does, in milliseconds since 1970, if any will.
    pub due_ms: Option<u64>,
    /// Whether it waits for commands that gateways send by themselves.
    #[serde(default)]
    pub has_chore: bool,
    /// Bytes that the items take, about.
    #[serde(default)]
    pub used_bytes: u64,
    /// Bytes that they may take; 0 for any number.
    #[serde(default)]
    pub budget_bytes: u64,
    /// Bytes of parts of commands that wait for their other parts.
    #[serde(default)]
    pub parts_bytes: u64,
    /// The last position at which a majority of the replicas was found to have this one's state; 0 if none was.
    #[serde(default)]
    pub agreed: u64,
}

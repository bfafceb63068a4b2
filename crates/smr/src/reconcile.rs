//! A replica of a state machine where every component of a partition continues with an order of its own, and the states of
//! the components are reconciled when they merge ([`StateMachine::reconciler`]).
//!
//! ```text
//! views       {a,b}  {c}                   {a,b,c}
//! a, b        commands of a and b       -> each multicasts the state with which it entered --> all reconcile them, in one
//! c           commands of c                order, at the same place; then the commands that were delivered meanwhile
//! ```
//! Every member of a view that merges components multicasts the state with which it entered it, in parts. One member does so
//! after the other, the lowest first, and each state is merged into those before it as soon as its last part is
//! delivered: so all members have the same state in the end, with any hook. Commands that are delivered in between wait for
//! that, since the states of the members still differ.
//!
//! A view that ends before that leaves its members with their own states: they execute what waited, and all members of the
//! next view exchange their states again. So a state may be merged into one that holds it already, which the hook must bear.
//!
//! # Answers
//! Each command that a member takes from its clients is answered once, unless the member crashes:
//! - [`Outcome::Executed`], with the machine's answer, when it is executed here, in the order of this member's component.
//! - [`Outcome::NotExecuted`] where it was never multicast: it is refused at once, since too much waits here, or the member stops.
//!   And where the machine declined it in a view of this member alone.
//! - [`Outcome::Unknown`] where the member stops before it is delivered; and where the machine declined it in a view
//!   of several members: those that part from this one in that view may order it elsewhere, and execute it.
//!
//! # Bounds
//! A member has at most [`open`](ReconcileLimits::open) commands multicast and not executed, and multicasts none while states
//! are exchanged. So at most that many of each member wait for an exchange. Beside these at most
//! [`queued`](ReconcileLimits::queued) commands wait to be multicast; beyond that, commands are refused. No history is kept
//! between merges: only the state is, and its size is the machine's affair, which should decline commands beyond some bound.
//!
//! An exchange takes memory for the member's own state, for that of the states merged so far, and for the bytes of the one
//! that comes, however many members there are; commands wait for as long as all states are on the way. A merge adds up the
//! states of the components and declines nothing. So a machine that declines commands at some size has a
//! state of at most that size for each member of the group, where each has filled one alone, and takes in nothing more until it
//! is smaller.
//!
//! # Settled commands
//! A machine that remembers something only because another component may have missed it has to know when it may forget
//! it: [`StateMachine::settle`]. Each message says how many commands of the view its member has executed, once its state
//! is reconciled. A member that has executed [many](SETTLE_COMMANDS) since its last message says it in one of its own. Nothing
//! settles while a process of the group is not in the view.
//!
//! # Limits
//! A machine of one shard. All that is in memory is lost in a crash: a member begins anew with an empty state, and has
//! what the others have when it merges with them.

use crate::state_machine::{Reconciler, Shard, ShardView, StateMachine};
use amcast_core::groupcast::ViewName;
use amcast_core::{Capability, Entry, Gid, MissingCapability, Outcome, ProtocolEvent};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;

/// The byte in front of a command, of its number at the member that multicast it, and of what that had executed.
const COMMAND: u8 = 0;

/// The byte in front of a part of a state, of the number of the view that its member entered with it, and of the part's place.
const STATE: u8 = 1;

/// The byte in front of what a member has executed, without a command.
const EXECUTED: u8 = 2;

/// Bytes in front of a command.
const COMMAND_HEAD: usize = 1 + 8 + EXECUTED_BYTES;

/// Bytes that say what a member has executed: the number of its view, and how many commands.
const EXECUTED_BYTES: usize = 8 + 8;

/// So many commands a member executes in a view of all processes before it says so without a command of its own.
pub const SETTLE_COMMANDS: u64 = 64;

/// Bytes in front of a part of a state.
const STATE_HEAD: usize = 1 + 8 + 4 + 1;

/// Refuses a protocol for a service of this machine on real processes, as [`Entry::require_service`] does; where each component
/// of a partition continues, only a machine without a hook to reconcile.
///
/// # Errors
/// The missing capability: its sentence names the protocol.
pub fn require_reconciler<S: StateMachine>(entry: &dyn Entry) -> Result<(), MissingCapability> {
    entry.require(Capability::CrashTolerance)?;
    entry.require(Capability::SuspicionTolerance)?;
    match S::default().reconciler() {
        Some(_) => Ok(()),
        None => entry.require(Capability::OneOrder),
    }
}

/// The bounds of a member: the same at all members of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReconcileLimits {
    /// Commands of its clients that it has multicast and that are not executed here, at most; at least 1.
    pub open: usize,
    /// Commands that wait to be multicast, at most.
    pub queued: usize,
    /// Their bytes, at most.
    pub queued_bytes: usize,
    /// Bytes of a message, at most: no more than a payload of the protocol. States that are larger go in parts; commands
    /// that are larger are refused.
    pub message_bytes: usize,
}

impl Default for ReconcileLimits {
    /// For messages of 64 KiB at most.
    fn default() -> Self {
        Self { open: 64, queued: 1024, queued_bytes: 16 << 20, message_bytes: 64 << 10 }
    }
}

impl ReconcileLimits {
    /// Bytes of a command, at most.
    pub const fn command_bytes(&self) -> usize {
        self.message_bytes.saturating_sub(COMMAND_HEAD)
    }
}

/// Why a command is refused at once: it was not multicast, and will not be executed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReconcileRefusal {
    /// As many commands wait to be multicast as may, or as many bytes of them: their clients are faster than the group, or
    /// components merge just now. It may be tried again later.
    Full,
    /// The command is larger than a message may be, with this many bytes of it at most.
    TooLarge {
        /// Bytes of a command, at most.
        bytes_max: usize,
    },
}

impl ReconcileRefusal {
    /// Always [`Outcome::NotExecuted`].
    pub const fn outcome(self) -> Outcome {
        Outcome::NotExecuted
    }
}

impl fmt::Display for ReconcileRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => f.write_str("too many commands wait at this member")?,
            Self::TooLarge { bytes_max } => {
                write!(f, "the command is larger than {bytes_max} bytes")?;
            }
        }
        write!(f, "; {}", self.outcome().words())
    }
}

impl std::error::Error for ReconcileRefusal {}

/// Takes the number of a command of this member's clients, what became of it, and the machine's answer, which is empty where
/// the machine was not asked.
pub type TellReconciled<'a> = &'a mut dyn FnMut(u64, Outcome, &[u8]);

/// The states of the members of a view on their way here, one after the other.
#[derive(Debug)]
struct StateExchange<D> {
    /// The members whose states have arrived, a bit each.
    done: u32,
    /// These states, merged; none if none could be read.
    merged: Option<D>,
    /// The state that comes at present: its bytes.
    bytes: Vec<u8>,
    /// How many parts of it arrived.
    parts: u32,
}

/// The progress of an exchange of states, to be compared with an earlier one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExchangeProgress {
    view: u64,
    /// The members whose states have arrived, a bit each.
    states: u32,
    /// Parts of the state that comes at present.
    parts: u32,
    /// Parts of the own state that were multicast; none while that is not on its way.
    sent: Option<usize>,
}

/// The own state on its way to the others.
#[derive(Debug)]
struct OwnStateParts {
    bytes: Vec<u8>,
    /// How many parts of it were multicast.
    sent: usize,
    /// The part that is multicast next; empty behind the last one.
    part: Vec<u8>,
}

/// How many commands of the view each member is known to have executed.
#[derive(Debug, Default)]
struct ExecutedCommands {
    /// Executed here.
    own: u64,
    /// The last number that this member has multicast.
    said: u64,
    /// By member; none of one that has said nothing in this view.
    known: BTreeMap<u32, u64>,
    /// The machine knows that so many have settled.
    settled: Option<u64>,
    /// The message that says it, if it is due.
    message: Option<Vec<u8>>,
}

/// A command that was delivered while states are exchanged.
#[derive(Debug)]
struct UnreconciledCommand {
    sender: u32,
    number: u64,
    command: Vec<u8>,
}

/// One member of a group, with its state.
///
/// Its driver gives it the commands of its clients ([`submit`](Self::submit)), multicasts what it
/// [has to say](Self::next_message) as far as the protocol has room, and gives it [events](Self::event) and
/// [deliveries](Self::deliver) in their order.
#[derive(Debug)]
pub struct ReconcilingReplica<S: StateMachine> {
    /// Its number among the replicas of the group.
    me: u32,
    /// How many processes the group has.
    replicas: usize,
    limits: ReconcileLimits,
    machine: S,
    merge: Reconciler<S::Shard>,
    state: S::Shard,
    /// The view that it is in.
    view: u64,
    /// Its members, a bit each by their number in the group.
    members: u32,
    /// Its members have different states, which they exchange.
    exchange: Option<StateExchange<S::Shard>>,
    /// Commands that wait until the states are reconciled.
    waiting: Vec<UnreconciledCommand>,
    /// The own state, when it is this member's turn.
    outgoing: Option<OwnStateParts>,
    executed: ExecutedCommands,
    /// Messages with commands that are to be multicast, and the bytes of them.
    queued: VecDeque<(u64, Vec<u8>)>,
    queued_bytes: usize,
    /// The numbers of the commands that were multicast and are not executed.
    open: VecDeque<u64>,
    /// The number of the next command.
    next: u64,
    merges: u64,
}

impl<S: StateMachine> ReconcilingReplica<S> {
    /// The replica of that number among so many of its group, which has executed nothing; none where the machine has no hook
    /// to reconcile.
    pub fn new(me: u32, replicas: usize, limits: ReconcileLimits) -> Option<Self> {
        let machine = S::default();
        let merge = machine.reconciler()?;
        Some(Self {
            me,
            replicas,
            limits,
            machine,
            merge,
            state: S::Shard::default(),
            view: 0,
            members: 0,
            exchange: None,
            waiting: Vec::new(),
            outgoing: None,
            executed: ExecutedCommands::default(),
            queued: VecDeque::new(),
            queued_bytes: 0,
            open: VecDeque::new(),
            next: 1,
            merges: 0,
        })
    }

    /// The state, as far as commands were executed here.
    pub const fn state(&self) -> &S::Shard {
        &self.state
    }

    /// The state, of a replica that is not needed any more.
    pub fn into_state(self) -> S::Shard {
        self.state
    }

    /// The view that it is in.
    pub const fn view(&self) -> ViewName {
        ViewName::of(self.view)
    }

    /// The members of its view, a bit each; none before it is in one.
    pub const fn members(&self) -> u32 {
        self.members
    }

    /// Whether the members of its view have the same state, as soon as they have delivered the same.
    pub const fn is_reconciled(&self) -> bool {
        self.exchange.is_none()
    }

    /// How often states were reconciled here.
    pub const fn merges(&self) -> u64 {
        self.merges
    }

    /// How many delivered commands, of all members, wait until states are reconciled.
    pub const fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// How many commands of its own clients have no answer yet.
    pub fn unanswered(&self) -> usize {
        self.queued.len() + self.open.len()
    }

    /// Takes a command of a client of this member. Returns its number, with which it is answered.
    ///
    /// # Errors
    /// When it is not taken: it will not be executed.
    pub fn submit(&mut self, command: &[u8]) -> Result<u64, ReconcileRefusal> {
        let bytes_max = self.limits.command_bytes();
        if command.len() > bytes_max {
            return Err(ReconcileRefusal::TooLarge { bytes_max });
        }
        let bytes = self.queued_bytes + command.len() + COMMAND_HEAD;
        if self.queued.len() >= self.limits.queued || bytes > self.limits.queued_bytes {
            return Err(ReconcileRefusal::Full);
        }
        let number = self.next;
        self.next += 1;
        let mut message = Vec::with_capacity(COMMAND_HEAD + command.len());
        message.push(COMMAND);
        message.extend_from_slice(&number.to_le_bytes());
        // The member fills this in when it multicasts the command.
        message.extend_from_slice(&[0; EXECUTED_BYTES]);
        message.extend_from_slice(command);
        self.queued.push_back((number, message));
        self.queued_bytes = bytes;
        Ok(number)
    }

    /// The next message that this member multicasts, if there is one: [`multicast`](Self::multicast) takes it, once the
    /// protocol has room for it.
    pub fn next_message(&self) -> Option<&[u8]> {
        if let Some(outgoing) = &self.outgoing {
            return Some(&outgoing.part);
        }
        // Commands that follow the exchange causally are delivered behind it, at all members. So the ones that wait for it
        // are those that were under way when it began.
        if self.exchange.is_some() {
            return None;
        }
        let may = self.open.len() < self.limits.open.max(1);
        let command = self.queued.front().filter(|_| may).map(|(_, message)| &**message);
        command.or(self.executed.message.as_deref())
    }

    /// Takes the [next message](Self::next_message), which is multicast.
    pub fn multicast(&mut self) -> Option<Vec<u8>> {
        self.next_message()?;
        if self.outgoing.is_some() {
            return self.multicast_part();
        }
        // Either message states how many commands are executed.
        let (executed, only_that) = (self.has_executed(), self.executed.message.take());
        self.executed.said = self.executed.own;
        let may = self.open.len() < self.limits.open.max(1);
        let command = if may { self.queued.pop_front() } else { None };
        let Some((number, mut message)) = command else {
            return only_that.map(|mut message| {
                message[1..].copy_from_slice(&executed);
                message
            });
        };
        self.queued_bytes -= message.len();
        self.open.push_back(number);
        message[COMMAND_HEAD - EXECUTED_BYTES..COMMAND_HEAD].copy_from_slice(&executed);
        Some(message)
    }

    /// The view, and how many commands are executed in it.
    fn has_executed(&self) -> [u8; EXECUTED_BYTES] {
        let mut bytes = [0; EXECUTED_BYTES];
        bytes[..8].copy_from_slice(&self.view.to_le_bytes());
        bytes[8..].copy_from_slice(&self.executed.own.to_le_bytes());
        bytes
    }

    /// Takes the next part of the own state.
    fn multicast_part(&mut self) -> Option<Vec<u8>> {
        let OwnStateParts { bytes, sent, part } = self.outgoing.as_mut()?;
        let part = std::mem::take(part);
        *sent += 1;
        if *sent < state_parts(bytes.len(), self.limits) {
            self.prepare_part();
        } else {
            self.outgoing = None;
        }
        Some(part)
    }

    fn prepare_part(&mut self) {
        let (view, room) = (self.view, state_room(self.limits));
        let Some(OwnStateParts { bytes, sent, part }) = &mut self.outgoing else { return };
        let count = state_parts(bytes.len(), self.limits);
        let of_it = &bytes[*sent * room..bytes.len().min((*sent + 1) * room)];
        part.reserve_exact(STATE_HEAD + of_it.len());
        part.push(STATE);
        part.extend_from_slice(&view.to_le_bytes());
        part.extend_from_slice(&(*sent as u32).to_le_bytes());
        part.push(u8::from(*sent + 1 == count));
        part.extend_from_slice(of_it);
    }

    /// Takes an event of its protocol.
    pub fn event(&mut self, event: ProtocolEvent, tell: TellReconciled<'_>) {
        match event {
            ProtocolEvent::ViewEntered { number, members, .. } => self.enter(number, members, tell),
            ProtocolEvent::Merged { view, .. } if view == self.view => self.begin_exchange(),
            _ => {}
        }
    }

    fn enter(&mut self, view: u64, members: u32, tell: TellReconciled<'_>) {
        // Waiting commands were ordered in the view before.
        let is_open = self.exchange.take().is_some();
        self.execute_waiting(tell);
        // The other parts of its state are of no use in another view.
        self.outgoing = None;
        self.executed = ExecutedCommands::default();
        (self.view, self.members) = (view, members);
        self.machine.enter_view(&mut self.state, ViewName::of(view), members);
        // A member that is alone has nobody to differ from.
        if is_open && members.count_ones() > 1 {
            self.begin_exchange();
        }
    }

    fn begin_exchange(&mut self) {
        if self.exchange.is_none() {
            let (merged, bytes) = (None, Vec::new());
            self.exchange = Some(StateExchange { done: 0, merged, bytes, parts: 0 });
            self.take_turn();
        }
    }

    /// The member whose state comes next.
    fn turn(&self) -> Option<u32> {
        let left = self.members & !self.exchange.as_ref()?.done;
        (left != 0).then_some(left.trailing_zeros())
    }

    /// Begins to multicast the own state, if it is this member's turn. The state does not change until the exchange ends.
    fn take_turn(&mut self) {
        if self.turn() == Some(self.me) {
            let mut bytes = Vec::new();
            self.state.save(&mut bytes);
            self.outgoing = Some(OwnStateParts { bytes, sent: 0, part: Vec::new() });
            self.prepare_part();
        }
    }

    /// Takes a message that its protocol delivers, of the member of that number. Answers the commands of this member's clients
    /// that are executed then.
    pub fn deliver(&mut self, sender: u32, message: &[u8], tell: TellReconciled<'_>) {
        match message.split_first() {
            Some((&COMMAND, rest)) => {
                let Some((number, rest)) = rest.split_first_chunk() else { return };
                let Some((executed, command)) = rest.split_first_chunk() else { return };
                let number = u64::from_le_bytes(*number);
                self.note_executed(sender, executed);
                match self.exchange {
                    Some(_) => {
                        let command = command.to_vec();
                        self.waiting.push(UnreconciledCommand { sender, number, command });
                    }
                    None => self.execute(sender, number, command, tell),
                }
            }
            Some((&STATE, rest)) => self.take_part(sender, rest, tell),
            Some((&EXECUTED, rest)) => {
                if let Ok(executed) = rest.try_into() {
                    self.note_executed(sender, executed);
                }
            }
            _ => {}
        }
    }

    /// The progress of the exchange of states; none if there is no exchange. Another one than before shows that it moves.
    pub fn exchange_progress(&self) -> Option<ExchangeProgress> {
        let exchange = self.exchange.as_ref()?;
        Some(ExchangeProgress {
            view: self.view,
            states: exchange.done,
            parts: exchange.parts,
            sent: self.outgoing.as_ref().map(|outgoing| outgoing.sent),
        })
    }

    /// The member stops: its protocol delivers nothing more. All commands of its clients are answered.
    pub fn stop(&mut self, tell: TellReconciled<'_>) {
        for number in self.open.drain(..) {
            tell(number, Outcome::Unknown, b"");
        }
        self.stop_queued(tell);
    }

    /// Answers those commands of its clients that were not multicast: they will not be.
    pub fn stop_queued(&mut self, tell: TellReconciled<'_>) {
        for (number, _) in self.queued.drain(..) {
            tell(number, Outcome::NotExecuted, b"");
        }
        self.queued_bytes = 0;
    }

    fn execute_waiting(&mut self, tell: TellReconciled<'_>) {
        for UnreconciledCommand { sender, number, command } in std::mem::take(&mut self.waiting) {
            self.execute(sender, number, &command, tell);
        }
    }

    /// A member says how many commands of a view it has executed. All members take that in at the same place of the order.
    fn note_executed(&mut self, sender: u32, executed: &[u8; EXECUTED_BYTES]) {
        let [view, count] = [0, 8].map(|at| {
            let bytes = std::array::from_fn(|byte| executed[at + byte]);
            u64::from_le_bytes(bytes)
        });
        let is_member = self.members.checked_shr(sender).unwrap_or(0) & 1 == 1;
        if self.exchange.is_some() || view != self.view || !is_member {
            return;
        }
        let known = self.executed.known.entry(sender).or_default();
        *known = count.max(*known);
        let ExecutedCommands { known, settled, .. } = &mut self.executed;
        let least = known.values().min().copied().filter(|_| known.len() == self.replicas);
        if least > *settled {
            *settled = least;
            self.machine.settle(&mut self.state, least.unwrap_or(0));
        }
    }

    /// One more command is executed.
    fn count_executed(&mut self) {
        self.executed.own += 1;
        let is_due = self.executed.own - self.executed.said >= SETTLE_COMMANDS;
        let is_whole = self.members.count_ones() as usize == self.replicas;
        if is_due && is_whole && self.executed.message.is_none() {
            let message = [&[EXECUTED][..], &self.has_executed()].concat();
            self.executed.message = Some(message);
        }
    }

    fn execute(&mut self, sender: u32, number: u64, command: &[u8], tell: TellReconciled<'_>) {
        let mut answer = Vec::new();
        // Components have no time in common.
        let view = ShardView { shard: Gid(0), now_ms: 0, data: &mut self.state };
        let outcome = self.machine.apply(command, &mut [view], &mut answer);
        self.count_executed();
        if sender != self.me {
            return;
        }
        // Own messages are delivered in the order in which they were multicast: one that another one overtakes was lost.
        while let Some(&first) = self.open.front()
            && first < number
        {
            self.open.pop_front();
            tell(first, Outcome::Unknown, b"");
        }
        if self.open.front() == Some(&number) {
            self.open.pop_front();
            let is_shared = self.members.count_ones() > 1;
            let declined = outcome == Outcome::NotExecuted;
            let outcome = if declined && is_shared { Outcome::Unknown } else { outcome };
            tell(number, outcome, &answer);
        }
    }

    /// A part of the state with which a member entered this view. One of an earlier view was multicast too late.
    fn take_part(&mut self, sender: u32, bytes: &[u8], tell: TellReconciled<'_>) {
        let Some((view, rest)) = bytes.split_first_chunk() else { return };
        let Some((index, rest)) = rest.split_first_chunk() else { return };
        let Some((is_last, part)) = rest.split_first() else { return };
        let is_turn = self.turn() == Some(sender);
        let Some(exchange) = &mut self.exchange else { return };
        if u64::from_le_bytes(*view) != self.view || !is_turn {
            return;
        }
        if u32::from_le_bytes(*index) != exchange.parts {
            return;
        }
        exchange.bytes.extend_from_slice(part);
        exchange.parts += 1;
        if *is_last != 1 {
            return;
        }
        self.merge_one(sender);
        match self.turn() {
            Some(_) => self.take_turn(),
            None => {
                let merged = self.exchange.take().and_then(|exchange| exchange.merged);
                merged.into_iter().for_each(|merged| self.state = merged);
                self.merges += 1;
                self.execute_waiting(tell);
            }
        }
    }

    /// The last part of a member's state has arrived.
    fn merge_one(&mut self, member: u32) {
        let Some(exchange) = &mut self.exchange else { return };
        let state = S::Shard::load(&exchange.bytes);
        exchange.done |= 1 << member;
        (exchange.bytes, exchange.parts) = (Vec::new(), 0);
        match (state, &mut exchange.merged) {
            (None, _) => tracing::error!(
                "the state of member {member} cannot be read, and is lost in this view"
            ),
            (Some(state), Some(merged)) => (self.merge)(merged, &state),
            (Some(state), merged) => *merged = Some(state),
        }
    }
}

/// Bytes of a state in a part, at most.
fn state_room(limits: ReconcileLimits) -> usize {
    limits.message_bytes.saturating_sub(STATE_HEAD).max(1)
}

/// The parts of a state of so many bytes.
fn state_parts(bytes: usize, limits: ReconcileLimits) -> usize {
    bytes.div_ceil(state_room(limits)).max(1)
}

#[cfg(test)]
mod tests;

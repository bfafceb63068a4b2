//! A replica of a state machine where every component of a partition continues with an order of its own, and the states of
//! the components are reconciled when they merge ([`StateMachine::reconciler`]).
//!
//! ```text
//! views       {a,b}  {c}                   {a,b,c}
//! a, b        commands of a and b       -> each multicasts the state with which it entered --> all reconcile them, in one
//! c           commands of c                order, at the same place; then the commands that were delivered meanwhile
//! ```
//! Every member of a view that merges components multicasts the state with which it entered it, in parts. The states are
//! reconciled when the last part is delivered, beginning with that of the lowest member, one after the other: so all members
//! have the same state then, with any hook. Commands that are delivered in between wait for that,
//! since the states of the members still differ.
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
//! An exchange takes memory for the states of all members, and its commands wait for as long as these are on the way.
//!
//! # Limits
//! A machine of one shard. All that is in memory is lost in a crash: a member begins anew with an empty state, and has
//! what the others have when it merges with them.

use crate::state_machine::{Reconciler, Shard, ShardView, StateMachine};
use amcast_core::groupcast::ViewName;
use amcast_core::{Capability, Entry, Gid, MissingCapability, Outcome, ProtocolEvent};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;

/// The byte in front of a command, and of its number at the member that multicast it.
const COMMAND: u8 = 0;

/// The byte in front of a part of a state, of the number of the view that its member entered with it, and of the part's place.
const STATE: u8 = 1;

/// Bytes in front of a command.
const COMMAND_HEAD: usize = 1 + 8;

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

/// The state of a member on its way here.
#[derive(Debug, Default)]
struct MemberStateParts {
    bytes: Vec<u8>,
    /// How many parts of it arrived.
    parts: u32,
    is_whole: bool,
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
    limits: ReconcileLimits,
    machine: S,
    merge: Reconciler<S::Shard>,
    state: S::Shard,
    /// The view that it is in.
    view: u64,
    /// Its members, a bit each by their number in the group.
    members: u32,
    /// Its members have different states, which they exchange: those that came, by member.
    exchange: Option<BTreeMap<u32, MemberStateParts>>,
    /// Commands that wait until the states are reconciled.
    waiting: Vec<UnreconciledCommand>,
    /// Parts of its own state that are to be multicast.
    parts: VecDeque<Vec<u8>>,
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
    /// The replica of that number among those of its group, which has executed nothing; none where the machine has no hook
    /// to reconcile.
    pub fn new(me: u32, limits: ReconcileLimits) -> Option<Self> {
        let machine = S::default();
        let merge = machine.reconciler()?;
        Some(Self {
            me,
            limits,
            machine,
            merge,
            state: S::Shard::default(),
            view: 0,
            members: 0,
            exchange: None,
            waiting: Vec::new(),
            parts: VecDeque::new(),
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
        let bytes_max = self.limits.message_bytes.saturating_sub(COMMAND_HEAD);
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
        message.extend_from_slice(command);
        self.queued.push_back((number, message));
        self.queued_bytes = bytes;
        Ok(number)
    }

    /// The next message that this member multicasts, if there is one: [`multicast`](Self::multicast) takes it, once the
    /// protocol has room for it.
    pub fn next_message(&self) -> Option<&[u8]> {
        if let Some(part) = self.parts.front() {
            return Some(part);
        }
        // Commands that follow the exchange causally are delivered behind it, at all members. So the ones that wait for it
        // are those that were under way when it began.
        let may = self.exchange.is_none() && self.open.len() < self.limits.open.max(1);
        self.queued.front().filter(|_| may).map(|(_, message)| &**message)
    }

    /// Takes the [next message](Self::next_message), which is multicast.
    pub fn multicast(&mut self) -> Option<Vec<u8>> {
        self.next_message()?;
        if let Some(part) = self.parts.pop_front() {
            return Some(part);
        }
        let (number, message) = self.queued.pop_front()?;
        self.queued_bytes -= message.len();
        self.open.push_back(number);
        Some(message)
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
        self.parts.clear();
        (self.view, self.members) = (view, members);
        self.machine.enter_view(&mut self.state, ViewName::of(view), members);
        // A member that is alone has nobody to differ from.
        if is_open && members.count_ones() > 1 {
            self.begin_exchange();
        }
    }

    fn begin_exchange(&mut self) {
        if self.exchange.is_some() {
            return;
        }
        self.exchange = Some(BTreeMap::new());
        let mut state = Vec::new();
        self.state.save(&mut state);
        let room = self.limits.message_bytes.saturating_sub(STATE_HEAD).max(1);
        let count = state.len().div_ceil(room).max(1);
        for index in 0..count {
            let bytes = &state[index * room..state.len().min((index + 1) * room)];
            let mut part = Vec::with_capacity(STATE_HEAD + bytes.len());
            part.push(STATE);
            part.extend_from_slice(&self.view.to_le_bytes());
            part.extend_from_slice(&(index as u32).to_le_bytes());
            part.push(u8::from(index + 1 == count));
            part.extend_from_slice(bytes);
            self.parts.push_back(part);
        }
    }

    /// Takes a message that its protocol delivers, of the member of that number. Answers the commands of this member's clients
    /// that are executed then.
    pub fn deliver(&mut self, sender: u32, message: &[u8], tell: TellReconciled<'_>) {
        match message.split_first() {
            Some((&COMMAND, rest)) => {
                let Some((number, command)) = rest.split_first_chunk() else { return };
                let number = u64::from_le_bytes(*number);
                match self.exchange {
                    Some(_) => {
                        let command = command.to_vec();
                        self.waiting.push(UnreconciledCommand { sender, number, command });
                    }
                    None => self.execute(sender, number, command, tell),
                }
            }
            Some((&STATE, rest)) => self.take_part(sender, rest, tell),
            _ => {}
        }
    }

    /// The member stops: its protocol delivers nothing more. All commands of its clients are answered.
    pub fn stop(&mut self, tell: TellReconciled<'_>) {
        for number in self.open.drain(..) {
            tell(number, Outcome::Unknown, b"");
        }
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

    fn execute(&mut self, sender: u32, number: u64, command: &[u8], tell: TellReconciled<'_>) {
        let mut answer = Vec::new();
        // Components have no time in common.
        let view = ShardView { shard: Gid(0), now_ms: 0, data: &mut self.state };
        let outcome = self.machine.apply(command, &mut [view], &mut answer);
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
        let Some(states) = &mut self.exchange else { return };
        let is_member = self.members.checked_shr(sender).unwrap_or(0) & 1 == 1;
        if u64::from_le_bytes(*view) != self.view || !is_member {
            return;
        }
        let state = states.entry(sender).or_default();
        if state.is_whole || u32::from_le_bytes(*index) != state.parts {
            return;
        }
        state.bytes.extend_from_slice(part);
        state.parts += 1;
        state.is_whole = *is_last == 1;
        let whole = states.values().filter(|state| state.is_whole).count();
        if whole == self.members.count_ones() as usize {
            self.reconcile();
            self.execute_waiting(tell);
        }
    }

    /// All members' states are there.
    fn reconcile(&mut self) {
        let states = self.exchange.take().unwrap_or_default();
        let load = |(member, state): (u32, MemberStateParts)| {
            let loaded = S::Shard::load(&state.bytes);
            if loaded.is_none() {
                tracing::error!(
                    "the state of member {member} cannot be read, and is lost in this view"
                );
            }
            loaded
        };
        let mut loaded = states.into_iter().filter_map(load);
        if let Some(mut first) = loaded.next() {
            loaded.for_each(|other| (self.merge)(&mut first, &other));
            self.state = first;
        }
        self.merges += 1;
    }
}

#[cfg(test)]
mod tests;

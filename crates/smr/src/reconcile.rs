//! A replica of a state machine where every component of a partition continues with an order of its own, and the states of
//! the components are reconciled when they merge ([`StateMachine::reconciler`]).
//!
//! ```text
//! views       {a,b}  {c}                   {a,b,c}
//! a, b        commands of a and b       -> each multicasts the state with which it entered --> all reconcile them, in one
//! c           commands of c                order, at the same place; then the commands that were delivered meanwhile
//! ```
//! Every member of a view that merges components multicasts the state with which it entered it. The states are reconciled when
//! the last one is delivered, beginning with that of the lowest member, one after the other: so all members have the
//! same state then, with any hook. Commands that are delivered in between wait for that,
//! since the states of the members still differ.
//!
//! A view that ends before that leaves its members with their own states: they execute what waited, and all members of the
//! next view exchange their states again. So a state may be merged into one that holds it already, which the hook must bear.
//!
//! # Limits
//! A state is one message, so it must not be larger than what the protocol takes. A machine of one shard.

use crate::state_machine::{Reconciler, Shard, ShardView, StateMachine};
use amcast_core::{Capability, Entry, Gid, MissingCapability, ProtocolEvent};
use std::collections::BTreeMap;

/// The byte in front of a command.
const COMMAND: u8 = 0;

/// The byte in front of a state, and of the number of the view that its member entered with it.
const STATE: u8 = 1;

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

/// One member of a group, with its state.
#[derive(Debug)]
pub struct ReconcilingReplica<S: StateMachine> {
    machine: S,
    merge: Reconciler<S::Shard>,
    state: S::Shard,
    /// The view that it is in.
    view: u64,
    /// Its members, a bit each by their number in the group.
    members: u32,
    /// Its members have different states, which they exchange: those that came, by member.
    exchange: Option<BTreeMap<u32, Vec<u8>>>,
    /// Commands that wait until the states are reconciled.
    waiting: Vec<Vec<u8>>,
    merges: u64,
}

impl<S: StateMachine> ReconcilingReplica<S> {
    /// A replica that has executed nothing; none where the machine has no hook to reconcile.
    pub fn new() -> Option<Self> {
        let machine = S::default();
        let merge = machine.reconciler()?;
        Some(Self {
            machine,
            merge,
            state: S::Shard::default(),
            view: 0,
            members: 0,
            exchange: None,
            waiting: Vec::new(),
            merges: 0,
        })
    }

    /// The message to multicast for a command.
    pub fn message(command: &[u8]) -> Vec<u8> {
        [&[COMMAND], command].concat()
    }

    /// The state, as far as commands were executed here.
    pub const fn state(&self) -> &S::Shard {
        &self.state
    }

    /// Whether the members of its view have the same state, as soon as they have delivered the same.
    pub const fn is_reconciled(&self) -> bool {
        self.exchange.is_none()
    }

    /// How often states were reconciled here.
    pub const fn merges(&self) -> u64 {
        self.merges
    }

    /// Takes an event of its protocol. Returns a message that this member multicasts: its state.
    pub fn event(&mut self, event: ProtocolEvent) -> Option<Vec<u8>> {
        match event {
            ProtocolEvent::ViewEntered { number, members, .. } => self.enter(number, members),
            ProtocolEvent::Merged { view, .. } if view == self.view => self.begin_exchange(),
            _ => None,
        }
    }

    fn enter(&mut self, view: u64, members: u32) -> Option<Vec<u8>> {
        (self.view, self.members) = (view, members);
        let is_open = self.exchange.take().is_some();
        for command in std::mem::take(&mut self.waiting) {
            // Nobody waits for its answer any more.
            self.execute(&command);
        }
        // A member that is alone has nobody to differ from.
        if is_open && members.count_ones() > 1 { self.begin_exchange() } else { None }
    }

    fn begin_exchange(&mut self) -> Option<Vec<u8>> {
        if self.exchange.is_some() {
            return None;
        }
        self.exchange = Some(BTreeMap::new());
        let mut message = vec![STATE];
        message.extend_from_slice(&self.view.to_le_bytes());
        self.state.save(&mut message);
        Some(message)
    }

    /// Takes a message that its protocol delivers, of the member of that number. Returns the answer of a command that is
    /// executed at once; one that waits for states gets none.
    pub fn deliver(&mut self, sender: u32, message: &[u8]) -> Option<Vec<u8>> {
        match message.split_first() {
            Some((&COMMAND, command)) if self.exchange.is_some() => {
                self.waiting.push(command.to_vec());
                None
            }
            Some((&COMMAND, command)) => Some(self.execute(command)),
            Some((&STATE, rest)) => {
                self.take_state(sender, rest);
                None
            }
            _ => None,
        }
    }

    fn execute(&mut self, command: &[u8]) -> Vec<u8> {
        let mut answer = Vec::new();
        // Components have no time in common.
        let view = ShardView { shard: Gid(0), now_ms: 0, data: &mut self.state };
        self.machine.apply(command, &mut [view], &mut answer);
        answer
    }

    /// The state with which a member entered this view. One of an earlier view was multicast too late.
    fn take_state(&mut self, sender: u32, bytes: &[u8]) {
        let Some((view, state)) = bytes.split_first_chunk() else { return };
        let Some(states) = &mut self.exchange else { return };
        if u64::from_le_bytes(*view) != self.view || self.members >> sender & 1 == 0 {
            return;
        }
        states.insert(sender, state.to_vec());
        if states.len() < self.members.count_ones() as usize {
            return;
        }
        let states: Vec<_> = std::mem::take(states).into_values().collect();
        let mut loaded = states.iter().filter_map(|state| S::Shard::load(state));
        if let Some(mut first) = loaded.next() {
            loaded.for_each(|other| (self.merge)(&mut first, &other));
            self.state = first;
        }
        self.exchange = None;
        self.merges += 1;
        for command in std::mem::take(&mut self.waiting) {
            self.execute(&command);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state_machine::KeyUse;
    use amcast_core::{GroupSet, Outcome};
    use std::collections::BTreeSet;

    /// A set of bytes, to which commands add.
    #[derive(Default)]
    struct GrowingSet;

    #[derive(Debug, Default, PartialEq, Eq)]
    struct SetState(BTreeSet<u8>);

    impl Shard for SetState {
        fn items(&self) -> usize {
            self.0.len()
        }

        fn save(&self, to: &mut Vec<u8>) {
            to.extend(&self.0);
        }

        fn load(from: &[u8]) -> Option<Self> {
            Some(Self(from.iter().copied().collect()))
        }
    }

    impl StateMachine for GrowingSet {
        type Shard = SetState;

        fn touches(&self, _: &[u8], _: GroupSet, _: &mut dyn FnMut(Gid, &[u8], KeyUse)) -> bool {
            false
        }

        fn apply(
            &self,
            command: &[u8],
            shards: &mut [ShardView<'_, SetState>],
            answer: &mut Vec<u8>,
        ) -> Outcome {
            shards[0].data.0.extend(command);
            answer.push(shards[0].data.items() as u8);
            Outcome::Executed
        }

        fn reconciler(&self) -> Option<Reconciler<SetState>> {
            Some(|own, other| own.0.extend(&other.0))
        }
    }

    fn entered(number: u64, members: u32) -> ProtocolEvent {
        ProtocolEvent::ViewEntered { number, members, continuing: 0 }
    }

    fn two() -> [ReconcilingReplica<GrowingSet>; 2] {
        [0, 1].map(|_| ReconcilingReplica::new().expect("it can reconcile"))
    }

    const fn merged(view: u64) -> ProtocolEvent {
        ProtocolEvent::Merged { view, from: 1, members: 1 }
    }

    fn command(byte: u8) -> Vec<u8> {
        ReconcilingReplica::<GrowingSet>::message(&[byte])
    }

    #[test]
    fn states_are_reconciled_before_a_command_that_was_delivered_among_them() {
        let mut both = two();
        for (p, replica) in both.iter_mut().enumerate() {
            assert_eq!(replica.event(entered(1, 1 << p)), None);
            assert_eq!(replica.deliver(p as u32, &command(p as u8)), Some(vec![1]));
        }
        let mut states = Vec::new();
        for replica in &mut both {
            assert_eq!(replica.event(entered(2, 0b11)), None);
            states.extend(replica.event(merged(2)));
            assert_eq!(replica.event(merged(2)), None, "once a view");
        }
        for replica in &mut both {
            replica.deliver(1, &states[1]);
            assert_eq!(replica.deliver(0, &command(9)), None);
            assert!(!replica.is_reconciled() && replica.state().items() == 1);
            replica.deliver(0, &states[0]);
            assert!(replica.is_reconciled());
            assert_eq!(replica.state().0, BTreeSet::from([0, 1, 9]));
            assert_eq!(replica.deliver(1, &command(7)), Some(vec![4]));
        }
    }

    #[test]
    fn a_view_that_ends_too_soon_has_its_members_exchange_their_states_in_the_next() {
        let mut both = two();
        let mut old = Vec::new();
        for (p, replica) in both.iter_mut().enumerate() {
            replica.event(entered(1, 1 << p));
            replica.deliver(p as u32, &command(p as u8));
            replica.event(entered(2, 0b111));
            old.extend(replica.event(merged(2)));
            replica.deliver(0, &command(5));
        }
        let states: Vec<_> =
            both.iter_mut().filter_map(|replica| replica.event(entered(3, 0b11))).collect();
        assert_eq!(states.len(), 2);
        for replica in &mut both {
            // One of the view before was multicast too late.
            replica.deliver(0, &old[0]);
            (0..2).for_each(|p| drop(replica.deliver(p, &states[p as usize])));
            assert_eq!(replica.state().0, BTreeSet::from([0, 1, 5]));
            assert_eq!((replica.is_reconciled(), replica.merges()), (true, 1));
        }
        // One that is alone has nobody to exchange it with.
        let [mut one, _] = both;
        one.event(entered(4, 0b11));
        one.event(merged(4));
        assert_eq!((one.event(entered(5, 0b01)), one.is_reconciled()), (None, true));
    }
}

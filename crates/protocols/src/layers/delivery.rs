//! Deliveries of batches to the application, each message once.

use super::batch::Batch;
use super::join_state::JoinState;
use alloc::sync::Arc;
use amcast_core::groupcast::Groupcast;
use amcast_core::{Gid, GroupSet, MsgId, Outbox, Pid};
use core::fmt::Debug;

/// The note on a message of another protocol, or of another role.
pub(crate) const UNKNOWN_MESSAGE: &str = "a message that this protocol does not send";

/// The intended mistakes of a member in its deliveries.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DeliveryMutants {
    /// Some processes deliver every fourth message after the one behind it.
    pub(crate) overtakes: bool,
    /// Every second message of its own is not delivered.
    pub(crate) loses_its_own: bool,
    /// Every fourth message is delivered two times.
    pub(crate) twice: bool,
    /// Messages are delivered again that were delivered in an earlier view.
    pub(crate) forgets: bool,
    /// Every fourth message is shown early two times.
    pub(crate) early_twice: bool,
}

/// The deliveries of a process.
#[derive(Debug)]
pub(crate) struct BatchDelivery {
    me: Pid,
    state: JoinState,
    mutants: DeliveryMutants,
    /// For a mutant: a message that it delivers later than its turn, and how many there were.
    swapped: Option<(MsgId, Arc<[u8]>)>,
    deliveries: u64,
}

impl BatchDelivery {
    /// Nothing is delivered yet.
    pub(crate) fn new(me: Pid, processes: usize, mutants: DeliveryMutants) -> Self {
        Self { me, state: JoinState::new(processes), mutants, swapped: None, deliveries: 0 }
    }

    /// The deliveries so far.
    pub(crate) const fn state(&self) -> &JoinState {
        &self.state
    }

    /// Continues behind the deliveries of others.
    pub(crate) fn join(&mut self, state: JoinState) {
        self.state = state;
    }

    /// Delivers the messages of a batch early, but for those that were delivered in an earlier view. Each batch of a view is
    /// given once.
    pub(crate) fn deliver_early<M: Debug + 'static>(
        &self,
        sender: Pid,
        batch: &Batch,
        out: &mut Outbox<Groupcast<M>>,
    ) {
        if !out.wants_early() || sender.index() >= self.state.last.len() {
            return;
        }
        let dst = GroupSet::one(Gid(0));
        for (seq, payload) in batch.messages() {
            let msg = MsgId { sender, seq };
            if self.state.has(msg) {
                continue;
            }
            out.deliver_early(msg, dst, |to| to.extend_from_slice(payload));
            if self.mutants.early_twice && seq.is_multiple_of(4) {
                out.deliver_early(msg, dst, |to| to.extend_from_slice(payload));
            }
        }
    }

    /// Delivers the messages of a batch, but for those that were delivered in an earlier view, and those of no configured
    /// process.
    pub(crate) fn deliver<M: Debug + 'static>(
        &mut self,
        sender: Pid,
        batch: &Batch,
        out: &mut Outbox<Groupcast<M>>,
    ) {
        if sender.index() >= self.state.last.len() {
            return;
        }
        for (seq, payload) in batch.messages() {
            let msg = MsgId { sender, seq };
            if self.state.has(msg) && !self.mutants.forgets {
                continue;
            }
            self.state.last[sender.index()] = seq;
            self.deliveries += 1;
            if cfg!(feature = "mutants") {
                self.deliver_wrongly(msg, payload, out);
            } else {
                self.hand_over(msg, payload, out);
            }
        }
    }

    fn hand_over<M: Debug + 'static>(
        &mut self,
        msg: MsgId,
        payload: &[u8],
        out: &mut Outbox<Groupcast<M>>,
    ) {
        self.state.position += 1;
        let dst = GroupSet::one(Gid(0));
        out.deliver(msg, dst, self.state.position, |to| to.extend_from_slice(payload));
    }

    /// A delivery with the effect of mutants, if there is one.
    fn deliver_wrongly<M: Debug + 'static>(
        &mut self,
        msg: MsgId,
        payload: &[u8],
        out: &mut Outbox<Groupcast<M>>,
    ) {
        let mutants = self.mutants;
        let fourth = self.deliveries.is_multiple_of(4);
        let odd = self.me.0 % 2 == 1;
        if mutants.overtakes && odd && fourth && self.swapped.is_none() {
            self.swapped = Some((msg, Arc::from(payload)));
            return;
        }
        let own = msg.sender == self.me && msg.seq.is_multiple_of(2);
        if mutants.loses_its_own && own {
            // The place stays empty.
            self.state.position += 1;
            return;
        }
        self.hand_over(msg, payload, out);
        if mutants.twice && fourth {
            self.hand_over(msg, payload, out);
        }
        if let Some((other, payload)) = self.swapped.take() {
            self.hand_over(other, &payload, out);
        }
    }
}

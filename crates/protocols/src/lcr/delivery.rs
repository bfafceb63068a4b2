//! Deliveries to the application, once each.

use super::member::LcrOutbox;
use super::mutants::LcrMutant;
use crate::layers::batch::Batch;
use crate::layers::join_state::JoinState;
use crate::mutant::Mutants;
use alloc::sync::Arc;
use amcast_core::{Gid, GroupSet, MsgId, Pid};

/// The deliveries of a process.
#[derive(Debug)]
pub(super) struct BatchDelivery {
    me: Pid,
    state: JoinState,
    mutants: Mutants<LcrMutant>,
    /// For a mutant: a message that it delivers later than its turn, and how many there were.
    swapped: Option<(MsgId, Arc<[u8]>)>,
    deliveries: u64,
}

impl BatchDelivery {
    /// Nothing is delivered yet.
    pub(super) fn new(me: Pid, processes: usize, mutants: Mutants<LcrMutant>) -> Self {
        Self { me, state: JoinState::new(processes), mutants, swapped: None, deliveries: 0 }
    }

    /// The deliveries so far.
    pub(super) const fn state(&self) -> &JoinState {
        &self.state
    }

    /// Continues behind the deliveries of others.
    pub(super) fn join(&mut self, state: JoinState) {
        self.state = state;
    }

    /// Delivers the messages of a batch, but for those that were delivered in an earlier view.
    pub(super) fn deliver(&mut self, sender: Pid, batch: &Batch, out: &mut LcrOutbox) {
        for (seq, payload) in batch.messages() {
            let msg = MsgId { sender, seq };
            if self.state.has(msg) {
                continue;
            }
            self.state.last[sender.index()] = seq;
            self.deliveries += 1;
            if self.mutants.any() {
                self.deliver_wrongly(msg, payload, out);
            } else {
                self.hand_over(msg, payload, out);
            }
        }
    }

    fn hand_over(&mut self, msg: MsgId, payload: &[u8], out: &mut LcrOutbox) {
        self.state.position += 1;
        let dst = GroupSet::one(Gid(0));
        out.deliver(msg, dst, self.state.position, |to| to.extend_from_slice(payload));
    }

    /// The effect of mutants on a delivery.
    fn deliver_wrongly(&mut self, msg: MsgId, payload: &[u8], out: &mut LcrOutbox) {
        let mutants = self.mutants;
        let fourth = self.deliveries.is_multiple_of(4);
        let odd = self.me.0 % 2 == 1;
        if mutants.is(LcrMutant::Overtakes) && odd && fourth && self.swapped.is_none() {
            self.swapped = Some((msg, Arc::from(payload)));
            return;
        }
        let own = msg.sender == self.me && msg.seq.is_multiple_of(2);
        if mutants.is(LcrMutant::LosesItsOwn) && own {
            // The place stays empty.
            self.state.position += 1;
            return;
        }
        self.hand_over(msg, payload, out);
        if mutants.is(LcrMutant::Twice) && fourth {
            self.hand_over(msg, payload, out);
        }
        if let Some((other, payload)) = self.swapped.take() {
            self.hand_over(other, &payload, out);
        }
    }
}

//! Deliveries to the application, once each.

use super::member::RingPaxosOutbox;
use super::mutants::RingPaxosMutant;
use crate::layers::batch::Batch;
use crate::layers::join_state::JoinState;
use crate::mutant::Mutants;
use alloc::sync::Arc;
use amcast_core::{Gid, GroupSet, MsgId, Pid};

/// The deliveries of a process.
#[derive(Debug)]
pub(super) struct ValueDelivery {
    me: Pid,
    state: JoinState,
    mutants: Mutants<RingPaxosMutant>,
    /// For a mutant: a message that it delivers later than its turn, and how many there were.
    swapped: Option<(MsgId, Arc<[u8]>)>,
    deliveries: u64,
}

impl ValueDelivery {
    /// Nothing is delivered yet.
    pub(super) fn new(me: Pid, processes: usize, mutants: Mutants<RingPaxosMutant>) -> Self {
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

    /// Delivers the messages of a batch, but for those that were delivered: a proposer that was excluded may propose again
    /// what the others have from it.
    pub(super) fn deliver(&mut self, sender: Pid, batch: &Batch, out: &mut RingPaxosOutbox) {
        let forgets = self.mutants.is(RingPaxosMutant::ProposesAgain);
        for (seq, payload) in batch.messages() {
            let msg = MsgId { sender, seq };
            let known = sender.index() < self.state.last.len();
            if !known || !forgets && self.state.has(msg) {
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

    fn hand_over(&mut self, msg: MsgId, payload: &[u8], out: &mut RingPaxosOutbox) {
        self.state.position += 1;
        let dst = GroupSet::one(Gid(0));
        out.deliver(msg, dst, self.state.position, |to| to.extend_from_slice(payload));
    }

    /// The effect of mutants on a delivery.
    fn deliver_wrongly(&mut self, msg: MsgId, payload: &[u8], out: &mut RingPaxosOutbox) {
        let mutants = self.mutants;
        let fourth = self.deliveries.is_multiple_of(4);
        let odd = self.me.0 % 2 == 1;
        if mutants.is(RingPaxosMutant::Overtakes) && odd && fourth && self.swapped.is_none() {
            self.swapped = Some((msg, Arc::from(payload)));
            return;
        }
        let own = msg.sender == self.me && msg.seq.is_multiple_of(2);
        if mutants.is(RingPaxosMutant::LosesItsOwn) && own {
            // The place stays empty.
            self.state.position += 1;
            return;
        }
        self.hand_over(msg, payload, out);
        if mutants.is(RingPaxosMutant::Twice) && fourth {
            self.hand_over(msg, payload, out);
        }
        if let Some((other, payload)) = self.swapped.take() {
            self.hand_over(other, &payload, out);
        }
    }
}

//! Proposals of one that does not reach the coordinator of a ring, by way of an acceptor that reaches both.
//!
//! The acceptor passes them on, and tells their proposer what of them is decided: the coordinator's word of
//! that is on the broken way. Who proposed what is in the table of every acceptor.

use super::bytes::Bytes;
use super::ring::{Cx, Ring};
use super::value::proposals;
use super::word::Word;
use amcast_core::Pid;

/// What was passed on for a process.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Relayed {
    /// The life and number of the last of its proposals.
    last: (u32, u64),
    /// Up to which it was told that they are decided.
    told: (u32, u64),
}

impl Ring {
    /// Proposals of one that does not reach the coordinator, or that another passes on for it.
    pub(super) fn on_relay(&mut self, from: Pid, sender: Pid, bytes: Bytes, cx: &mut Cx<'_>) {
        if self.leads() || from != sender {
            return self.on_propose(sender, &bytes, cx);
        }
        let coordinator = self.coordinator().filter(|&to| to != sender && to != cx.me);
        let (Some(to), Some(_)) = (coordinator, self.my_vote) else { return };
        if let Some(last) = proposals(&bytes).last() {
            let relayed = self.relayed.entry(sender).or_default();
            relayed.last = relayed.last.max((last.life, last.number));
            cx.say(to, Word::Relay { ring: self.id, sender, proposals: bytes });
        }
    }

    /// Tells those for whom it passed something on what of theirs is decided.
    pub(super) fn thank_relayed(&mut self, cx: &mut Cx<'_>) {
        let Self { id: ring, table, relayed, .. } = self;
        relayed.retain(|&p, relayed| {
            let decided = table[p.index()];
            if decided > relayed.told {
                let (life, upto) = decided;
                relayed.told = decided;
                cx.say(p, Word::Done { ring: *ring, life, upto });
            }
            decided < relayed.last
        });
    }
}

//! Reads that are not ordered: they are answered from what this node has executed.
//!
//! There are two kinds. [`Executor::peek_one`] is for a node that has just delivered all that anybody had: it
//! is as good as an ordered read. [`Executor::peek`] is for any node at any time:
//! such a read sees, of each of its shards, all commands up to some place in the shard's order and none
//! behind it, and all that its own client wrote before. As a node's places only grow, the reads of a
//! client that stays at one node never go back. They may be old: what other clients wrote, and were
//! answered by other nodes, may come to be seen only later.

use super::{Engine, Executor};
use crate::backend::Wrote;
use crate::envelope::Envelope;
use crate::machine::{At, Machine, Part, Place};
use amcast_core::{Gid, GroupSet, MsgId, Pid};

/// What stands for the message of a read, which is in none: another for each, since what a command draws
/// at random follows from it.
fn unsent(envelope: &Envelope) -> MsgId {
    MsgId { sender: Pid(u32::MAX), seq: envelope.session.rotate_left(32) ^ envelope.request }
}

/// What became of a read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Peek {
    /// It was answered.
    Answered,
    /// Something that its client wrote is not executed here, or commands wait for other shards, or the
    /// state is on its way.
    NotYet,
    /// Threads of their own work on the shards, which are never all at one moment; or it is no read; or it
    /// must see that something has expired, which only an ordered command decides.
    Never,
}

impl<M: Machine> Executor<M> {
    /// Answers `payload`, an envelope and a command that changes nothing, as if it had come next in what `shard`
    /// has delivered: behind all of that, and in front of all else.
    ///
    /// An ordered command would take just this place, and wait for the same commands: those that it conflicts with and
    /// that wait for other shards. So if everything that was answered anywhere before the read began is
    /// delivered here, it is linearizable. Reads of several shards are not: two of them, at nodes that
    /// deliver two commands of different shards in different orders, would each see one and miss the other.
    ///
    /// The read takes place at the time of its envelope, if that counts and is later than the shard's. Were
    /// anything to expire by then, another one with an earlier time might still see it afterwards: such a read
    /// needs its place in the order.
    pub fn peek_one(&mut self, shard: Gid, payload: &[u8], answer: &mut Vec<u8>) -> Peek {
        let Engine::Here(sides) = &mut self.engine else { return Peek::Never };
        let Some((envelope, command)) = Envelope::decode(payload) else { return Peek::Never };
        let (Some(side), Some(head)) =
            (sides.get_mut(shard.index()), self.heads.get(shard.index()))
        else {
            return Peek::Never;
        };
        let now = head.time(envelope.stamp);
        if !envelope.read_only || side.part.due_ms().is_some_and(|due_ms| due_ms < now.wall_ms) {
            return Peek::Never;
        }
        let dst = GroupSet::one(shard);
        if self.cleared
            || self.differs.is_some()
            || self.lanes.holds_up(shard, |access| self.machine.access(command, dst, access))
        {
            return Peek::NotYet;
        }
        let (places, dst) =
            ([Place { shard, position: head.delivered, now }], GroupSet::one(shard));
        let exact = GroupSet::EMPTY;
        let at = At { id: unsent(&envelope), dst, places: &places, exact };
        self.machine.apply(&at, &mut [&mut side.part], command, answer);
        Peek::Answered
    }

    /// Answers `payload`, an envelope and a command that changes nothing, without an order. `written` are
    /// the requests of the same session that it must see.
    pub fn peek(
        &mut self,
        dst: GroupSet,
        payload: &[u8],
        written: &[Wrote],
        answer: &mut Vec<u8>,
    ) -> Peek {
        let Engine::Here(sides) = &mut self.engine else { return Peek::Never };
        let Some((envelope, command)) = Envelope::decode(payload) else { return Peek::Never };
        if !envelope.read_only || dst.is_empty() || !dst.within(GroupSet::first(sides.len())) {
            return Peek::Never;
        }
        let ran = |wrote: &Wrote| {
            let shard = wrote.home.index();
            let (Some(side), Some(head)) = (sides.get(shard), self.heads.get(shard)) else {
                return false;
            };
            // A request that a later one calls answered was in front of that one, and one that is older
            // than any may be runs no more: of neither need anything be remembered.
            let answered = self.lanes.waiting(wrote.home) == 0
                && head.floors.of(envelope.session) > wrote.request;
            let oldest_ms = wrote.host_ms.saturating_add(self.limits.session_ms);
            answered
                || oldest_ms < head.now.host_ms
                || side.sessions.has_run(envelope.session, wrote.request)
        };
        if self.cleared
            || self.differs.is_some()
            || !written.iter().all(ran)
            || dst.iter().any(|shard| self.lanes.waiting(shard) > 0)
        {
            return Peek::NotYet;
        }
        let place = |shard: Gid| {
            let head = &self.heads[shard.index()];
            Place { shard, position: head.delivered, now: head.now }
        };
        let places: Vec<Place> = dst.iter().map(place).collect();
        let here = sides.iter_mut().enumerate();
        let mut parts: Vec<&mut M::Part> = here
            .filter(|(i, _)| dst.contains(Gid(*i as u8)))
            .map(|(_, side)| &mut side.part)
            .collect();
        let id = unsent(&envelope);
        let at = At { id, dst, places: &places, exact: GroupSet::EMPTY };
        self.machine.apply(&at, &mut parts, command, answer);
        Peek::Answered
    }
}

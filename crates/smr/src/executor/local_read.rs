//! Reads that are not ordered: a node answers them from its executed state.
//!
//! There are two kinds. [`Executor::peek_one`] is for a node that has just delivered all that anybody had: it
//! is as good as an ordered read. [`Executor::peek`] is for any node at any time:
//! such a read sees, of each of its shards, all commands up to some place in the shard's order and none
//! behind it, and all that its own client wrote before. As a node's places only grow, the reads of a
//! client that stays at one node never go back. They may be old: what other clients wrote, and were
//! answered by other nodes, may come to be seen only later.

use super::pool::PendingLocalRead;
use super::sessions::AwaitedWrite;
use super::{Engine, Executor};
use crate::SessionWrite;
use crate::envelope::Envelope;
use crate::machine::{ExecutionPoint, ShardPosition, ShardedMachine};
use amcast_core::{Gid, GroupSet, MsgId, Outcome, Pid};

/// A message id for a read, which has no message: a distinct one for each, since a command's random
/// draws follow from it.
fn unsent(envelope: &Envelope) -> MsgId {
    MsgId { sender: Pid(u32::MAX), seq: envelope.session.rotate_left(32) ^ envelope.request }
}

/// The result of a read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LocalRead {
    /// It was answered, or refused by the machine.
    Answered(Outcome),
    /// Threads of their own answer it: [`Executor::collect_reads`] or [`Executor::collect_peeks`] tells what became of it.
    Later,
    /// Something that its client wrote is not executed here, or commands wait for other shards, or the
    /// state is on its way.
    NotYet,
    /// Threads of their own have so much to do, or so many bytes of their answers wait, that they take it later.
    Busy,
    /// It is no read; or it would see that something has expired, which only an ordered command decides.
    Never,
}

/// Receives the result and the answer of a read of a shard that [`Executor::peek_one`] was given
/// with a number.
pub type OnShardRead<'a> = &'a mut dyn FnMut(Gid, u64, LocalRead, &[u8]);

/// Receives the result and the answer of a read that [`Executor::peek`] was given with a number.
pub type OnLocalRead<'a> = &'a mut dyn FnMut(u64, LocalRead, Vec<u8>);

/// A read of one shard, at its place behind all that the shard has delivered.
#[derive(Clone, Copy)]
pub(super) struct LocalReadRequest {
    /// The caller's number of it.
    pub(super) number: u64,
    id: MsgId,
    pub(super) place: ShardPosition,
    /// Ordered time there, by the wall clock, in milliseconds since 1970.
    ordered_ms: u64,
}

/// The result of a read that a worker executed, not collected yet.
pub(super) struct LocalReadReturn {
    pub(super) shard: Gid,
    pub(super) number: u64,
    pub(super) peek: LocalRead,
    pub(super) bytes: Box<[u8]>,
    /// Bytes of the read.
    pub(super) asked: usize,
}

impl LocalReadRequest {
    /// Answers `command`, after every command in front of it in the shard has executed.
    pub(super) fn run<M: ShardedMachine>(
        self,
        machine: &M,
        part: &mut M::Part,
        command: &[u8],
        answer: &mut Vec<u8>,
    ) -> LocalRead {
        let Self { id, place, ordered_ms, .. } = self;
        if machine.sees_expiry(part, command, ordered_ms..place.now.wall_ms) {
            return LocalRead::Never;
        }
        let dst = GroupSet::one(place.shard);
        let (places, exact) = (&[place], GroupSet::EMPTY);
        let at = ExecutionPoint { id, dst, places, exact, read_only: true };
        LocalRead::Answered(machine.apply(&at, &mut [part], command, answer))
    }
}

impl<M: ShardedMachine> Executor<M> {
    /// Answers `payload`, an envelope and a command that changes nothing, as if it were the next
    /// delivery of `shard`: behind all delivered commands, and in front of all others. Where
    /// threads of their own execute commands, one of them may answer it later; `number`, which is
    /// the caller's, says then which read that was.
    ///
    /// An ordered command would take just this place, and wait for the same commands: those that it conflicts with and
    /// that wait for other shards. So if everything that was answered anywhere before the read began is
    /// delivered here, it is linearizable. With threads of their own, all that was delivered and waits for nothing is in
    /// front of it in the shard's [queue](super::pool), as of an ordered command: what it sees does not depend on when
    /// the thread comes to it. Reads of several shards are not linearizable: two of them, at nodes that
    /// deliver two commands of different shards in different orders, would each see one and miss the other.
    ///
    /// The read takes place at the time of its envelope, if that counts and is later than the shard's ordered time. No
    /// two reads may disagree on whether something has expired: one that sees that it has, and then, at a node whose
    /// gateways have slower clocks, one that does not. Keys whose deadline ordered time has passed have expired for
    /// all: a later read's node has delivered as much, so that ordered time there is as late. A read that would see
    /// that something has expired *since* is not answered. It needs its place in the order, by which ordered time
    /// comes to be that late for all.
    pub fn peek_one(
        &mut self,
        shard: Gid,
        number: u64,
        payload: &[u8],
        answer: &mut Vec<u8>,
    ) -> LocalRead {
        let Some((envelope, command)) = Envelope::decode(payload) else { return LocalRead::Never };
        let Some(head) = self.heads.get(shard.index()).filter(|_| envelope.read_only) else {
            return LocalRead::Never;
        };
        let dst = GroupSet::one(shard);
        if self.cleared
            || self.differs.is_some()
            || self.lanes.holds_up(shard, |access| self.machine.access(command, dst, access))
        {
            return LocalRead::NotYet;
        }
        let now = head.time(envelope.stamp);
        let place = ShardPosition { shard, position: head.delivered, now };
        let (id, ordered_ms) = (unsent(&envelope), head.now.wall_ms);
        let look = LocalReadRequest { number, id, place, ordered_ms };
        match &mut self.engine {
            Engine::Here(sides) => {
                look.run(&*self.machine, &mut sides[shard.index()].part, command, answer)
            }
            Engine::Pool(pool) => pool.read(look, command, answer),
        }
    }

    /// Has threads of their own come to the reads that were given: they may lie until this.
    pub fn flush_reads(&mut self) {
        if let Engine::Pool(pool) = &mut self.engine {
            pool.flush();
        }
    }

    /// Reports the results of reads that worker threads have executed, those of one shard in the
    /// order in which they were given. Returns whether there were any.
    pub fn collect_reads(&mut self, on_read: OnShardRead<'_>) -> bool {
        match &mut self.engine {
            Engine::Here(_) => false,
            Engine::Pool(pool) => pool.collect_reads(on_read),
        }
    }

    /// Answers `payload`, an envelope and a command that changes nothing, without an order. `written` are
    /// the requests of the same session that it must see. Where threads of their own execute commands, they may answer it
    /// later: [`collect_peeks`](Self::collect_peeks) tells then what became of `number`, which is the caller's.
    pub fn peek(
        &mut self,
        number: u64,
        (dst, payload): (GroupSet, &[u8]),
        written: &[SessionWrite],
        answer: &mut Vec<u8>,
    ) -> LocalRead {
        let Some((envelope, command)) = Envelope::decode(payload) else { return LocalRead::Never };
        if !envelope.read_only
            || dst.is_empty()
            || !dst.within(GroupSet::first(self.heads.len()))
            || written.iter().any(|wrote| wrote.shard.index() >= self.heads.len())
        {
            return LocalRead::Never;
        }
        if self.cleared
            || self.differs.is_some()
            || dst.iter().any(|shard| self.lanes.waiting(shard) > 0)
        {
            return LocalRead::NotYet;
        }
        let is_open = |wrote: &&SessionWrite| {
            let head = &self.heads[wrote.shard.index()];
            // A request that a later one declares answered was in front of that one, and one that
            // is too old runs no more, unless it waits: neither needs a record. A command that had
            // its turn is in the queues of all its shards, in front of the read.
            let may_wait = self.lanes.waiting(wrote.shard) > 0;
            let oldest_ms = wrote.host_ms.saturating_add(self.limits.session_ms);
            let may_come = oldest_ms >= head.now.host_ms;
            may_wait || may_come && head.floors.of(envelope.session) <= wrote.request
        };
        let awaited = |wrote: &SessionWrite| {
            let SessionWrite { shard, request, .. } = *wrote;
            let key = self.heads[shard.index()].floors.key(envelope.session);
            AwaitedWrite { shard, key, request }
        };
        let written: Vec<AwaitedWrite> = written.iter().filter(is_open).map(awaited).collect();
        let place = |shard: Gid| {
            let head = &self.heads[shard.index()];
            ShardPosition { shard, position: head.delivered, now: head.now }
        };
        let places = |shards: GroupSet| shards.iter().map(place).collect::<Vec<ShardPosition>>();
        let id = unsent(&envelope);
        let sides = match &mut self.engine {
            Engine::Here(sides) => sides,
            Engine::Pool(pool) => {
                let shards = written.iter().map(|wrote| wrote.shard).collect::<GroupSet>();
                let places = places(GroupSet(dst.0 | shards.0));
                let peeking = PendingLocalRead::new(number, id, dst, places, written, command);
                return pool.peek(peeking, answer);
            }
        };
        if !written.iter().all(|wrote| sides[wrote.shard.index()].sessions.has_run(wrote)) {
            return LocalRead::NotYet;
        }
        let places = places(dst);
        let here = sides.iter_mut().enumerate();
        let mut parts: Vec<&mut M::Part> = here
            .filter(|(i, _)| dst.contains(Gid(*i as u8)))
            .map(|(_, side)| &mut side.part)
            .collect();
        let exact = GroupSet::EMPTY;
        let at = ExecutionPoint { id, dst, places: &places, exact, read_only: true };
        LocalRead::Answered(self.machine.apply(&at, &mut parts, command, answer))
    }

    /// Reports the results of reads that [`peek`](Self::peek) was given and worker threads have
    /// executed. Returns whether there were any.
    pub fn collect_peeks(&mut self, on_peek: OnLocalRead<'_>) -> bool {
        match &mut self.engine {
            Engine::Here(_) => false,
            Engine::Pool(pool) => pool.collect_peeks(on_peek),
        }
    }
}

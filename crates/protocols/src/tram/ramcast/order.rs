//! The order of a group: a machine whose inputs are the decided records of the group's log, so that it is in
//! the same state at every replica that has consumed the same log.
//!
//! A message has the group's own timestamp once a record brought it here, and one of each other
//! destination once that one's proposal is in the log. Its final timestamp is the largest of them, and ties
//! are broken by the message's id. It is delivered when it is in front of the queue and all destinations
//! have proposed: those behind it only grow, and what has not come yet gets a timestamp above all that
//! lie in the log before it.
//!
//! A leader need not wait until another group's proposal is decided in its own log as well: the other group has
//! decided it. So there are two queues. In the first one is what the decided log says, and from it follow state
//! transfers and clients' buffers. The second one knows the proposals that this replica has seen as leader, too, and
//! from it messages are delivered: if the final timestamp is not above the clock of the decided log,
//! no later entry gets a smaller one under any leader. Both give the same sequence, and the first never gets ahead.
//!
//! # Proposals that come to nothing
//! A group orders a number at most once, under one set of destinations. A proposal for a message that this group will never
//! order is answered by a refusal: when it comes, or when the number of the message is passed over. So of each proposal
//! that was taken in one of these is true: it waits for its message, it counts in the queue, its message was
//! delivered, or it was refused.
//!
//! A group that gets a refusal for a message in its queue drops it, and refuses it to the other destinations in turn. A group that
//! did not order the message yet takes that for a withdrawal of the proposal that came before. By induction over the
//! refusals each of them speaks of a message that some destination never ordered, and never will: the
//! first one comes from such a destination, and a group that delivered the message has had all proposals for it, and refuses
//! none. So no group delivers a message that another one drops.

use super::mutants::RamCastMutant;
use super::progress::ClientProgress;
use super::queue::{QueueSnapshot, TimestampQueue};
use crate::mutant::Mutants;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use amcast_core::codec::{ByteReader, Codec};
use amcast_core::{Gid, GroupSet, MsgId, messages};

/// The place of a client's message in the client's buffer at this group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ClientPlace {
    pub(super) client: usize,
    pub(super) lease: u32,
    /// Where its record begins; none if it came from another group.
    pub(super) start: Option<u64>,
}

/// A message that came here and is not delivered by what the decided log says.
#[derive(Clone, PartialEq, Eq, Debug)]
struct UndeliveredMessage {
    client: u32,
    lease: u32,
    /// Where it begins in the client's buffer.
    start: Option<u64>,
    /// The other destinations got all of it from this group.
    passed: bool,
    payload: Vec<u8>,
}

/// The meaning of a record with a whole message for the order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum MessageArrival {
    /// It is new: the other destinations are to hear the group's timestamp.
    New,
    /// It is in the queue, or was.
    Known,
    /// Its client wrote it under a number that did not grow, and it is not in the queue.
    Refused,
}

/// A message that groups have proposed, or will, and that comes to nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RefusedMessage {
    pub(super) msg: MsgId,
    pub(super) dst: GroupSet,
    /// The groups that are to hear of it.
    pub(super) to: GroupSet,
}

/// A message that another destination may not have.
#[derive(Debug)]
pub(super) struct UnproposedMessage {
    pub(super) msg: MsgId,
    pub(super) dst: GroupSet,
}

/// The order of one group. See the [module](self).
#[derive(Debug)]
pub(super) struct TimestampOrder {
    group: Gid,
    mutants: Mutants<RamCastMutant>,
    /// The largest timestamp in the log so far.
    clock: u64,
    /// By the decided log alone.
    decided: TimestampQueue,
    /// How many messages have left that queue.
    delivered: u64,
    /// With what this replica has seen beyond that as leader.
    ahead: TimestampQueue,
    /// How many messages have left this queue: they are delivered.
    shown: u64,
    held: BTreeMap<MsgId, UndeliveredMessage>,
    clients: Vec<ClientProgress>,
    /// The refusals that the record made that was consumed last.
    refused: Vec<RefusedMessage>,
    /// How many messages a client's buffer holds at most.
    early_max: usize,
}

impl TimestampOrder {
    /// The order of `group` at its beginning. A client's buffer holds `early_max` messages at most.
    pub(super) fn new(
        group: Gid,
        (clients, early_max): (usize, usize),
        mutants: Mutants<RamCastMutant>,
    ) -> Self {
        Self {
            group,
            mutants,
            clock: 0,
            decided: TimestampQueue::new(mutants),
            delivered: 0,
            ahead: TimestampQueue::new(mutants),
            shown: 0,
            held: BTreeMap::new(),
            clients: (0..clients).map(|_| ClientProgress::default()).collect(),
            refused: Vec::new(),
            early_max,
        }
    }

    /// The largest timestamp in the log so far.
    pub(super) const fn clock(&self) -> u64 {
        self.clock
    }

    /// How many messages are delivered by what the decided log says.
    pub(super) const fn delivered(&self) -> u64 {
        self.delivered
    }

    /// A record of another group's, or of the leader's, that raises the clock alone.
    pub(super) fn pass_clock(&mut self, timestamp: u64) {
        self.clock = self.clock.max(timestamp);
    }

    /// A record with the whole message: this group's timestamp of it is `own`.
    ///
    /// Numbers that do not grow are decided here, by the log, and not by who leads.
    // [RamCast 1] A message and its timestamp.
    pub(super) fn arrive(
        &mut self,
        msg: MsgId,
        dst: GroupSet,
        own: u64,
        place: ClientPlace,
        payload: &[u8],
    ) -> MessageArrival {
        self.clock = self.clock.max(own);
        let copies_count = self.mutants.is(RamCastMutant::CountsCopiesTwice);
        let client = &mut self.clients[place.client];
        let is_known = client.knows(msg.seq);
        if let Some(start) = place.start {
            let grows = client.take(msg.seq, place.lease);
            if !grows && !self.mutants.is(RamCastMutant::TakesUpTwice) {
                let waits = self.is_held(msg, dst);
                return if waits { MessageArrival::Known } else { MessageArrival::Refused };
            }
            if grows && is_known && !copies_count {
                self.refuse_void(msg, place.client);
                return MessageArrival::Known;
            }
            client.lane.push_back((start, msg));
        } else if is_known {
            return MessageArrival::Known;
        } else {
            client.bring(msg.seq, self.early_max);
        }
        if !dst.contains(self.group) || self.held.contains_key(&msg) {
            return MessageArrival::Known;
        }
        let held = UndeliveredMessage {
            client: place.client as u32,
            lease: place.lease,
            start: place.start,
            passed: false,
            payload: payload.to_vec(),
        };
        self.held.insert(msg, held);
        for queue in [&mut self.decided, &mut self.ahead] {
            queue.arrive(msg, dst, (self.group, own));
            if copies_count && is_known {
                queue.complete(msg);
            }
        }
        self.refuse_void(msg, place.client);
        MessageArrival::New
    }

    /// The message's number was taken. Proposals of others for it under other destinations come to nothing, and those
    /// for messages that will not come any more.
    fn refuse_void(&mut self, msg: MsgId, client: usize) {
        let last = self.clients[client].last;
        self.ahead.take_void(msg, last, |_, _, _| {});
        let refused = &mut self.refused;
        self.decided.take_void(msg, last, |msg, dst, early| {
            refused.push(RefusedMessage { msg, dst, to: early.proposed });
        });
    }

    /// The refusals that the record made that was consumed last.
    pub(super) fn take_refused(&mut self) -> Vec<RefusedMessage> {
        core::mem::take(&mut self.refused)
    }

    fn forget(&mut self, msg: MsgId) {
        self.held.remove(&msg);
        self.decided.forget(msg);
        self.ahead.forget(msg);
    }

    /// Whether the message is ordered under these destinations, and not delivered by the decided log.
    fn is_held(&self, msg: MsgId, dst: GroupSet) -> bool {
        self.decided.votes(msg).is_some_and(|votes| self.is_same(votes.dst, dst))
    }

    fn is_same(&self, dst: GroupSet, other: GroupSet) -> bool {
        dst == other || self.mutants.is(RamCastMutant::ConfusesDestinations)
    }

    /// Whether the message is ordered under these destinations, or may be yet.
    fn may_order(&self, (msg, dst): (MsgId, GroupSet), client: usize) -> bool {
        match self.decided.votes(msg) {
            Some(votes) => self.is_same(votes.dst, dst),
            None => !self.clients[client].knows(msg.seq),
        }
    }

    /// A record with the proposal of another destination, for a message of that client.
    // [RamCast 2] The timestamp of another group; the clock passes it.
    pub(super) fn proposed(
        &mut self,
        of: (MsgId, GroupSet),
        client: usize,
        (from, timestamp): (Gid, u64),
    ) {
        self.clock = self.clock.max(timestamp);
        let (is_void, (msg, dst)) = (!self.may_order(of, client), of);
        if is_void || self.mutants.is(RamCastMutant::RefusesTheKnown) {
            self.refused.push(RefusedMessage { msg, dst, to: GroupSet::one(from) });
        }
        if is_void {
            return;
        }
        self.decided.propose(of, from, timestamp);
        self.proposed_ahead(of, client, (from, timestamp));
    }

    /// A proposal of another destination that this replica has put into its log as leader: it is decided there.
    pub(super) fn proposed_ahead(
        &mut self,
        of: (MsgId, GroupSet),
        client: usize,
        (from, timestamp): (Gid, u64),
    ) {
        let is_shown = self.held.contains_key(&of.0) && self.ahead.votes(of.0).is_none();
        if !is_shown && self.may_order(of, client) {
            self.ahead.propose(of, from, timestamp);
        }
    }

    /// A record by which another destination refuses the message. Says whether it is dropped: no destination can deliver it.
    pub(super) fn refused(&mut self, of: (MsgId, GroupSet), by: Gid) -> bool {
        let (msg, dst) = of;
        if !self.is_held(msg, dst) {
            self.decided.withdraw(of, by);
            self.ahead.withdraw(of, by);
            return false;
        }
        self.forget(msg);
        let to: GroupSet = dst.iter().filter(|&g| g != self.group && g != by).collect();
        if !to.is_empty() {
            self.refused.push(RefusedMessage { msg, dst, to });
        }
        true
    }

    /// Delivers what can be: `show` gets the message, its destinations, its number in the group's sequence, from 1, and
    /// its payload.
    // [RamCast 3] In front, and proposed by every destination.
    pub(super) fn deliver(&mut self, mut show: impl FnMut(MsgId, GroupSet, u64, &[u8])) {
        while let Some((msg, dst)) = self.ahead.take_final(self.clock) {
            self.shown += 1;
            let payload = self.held.get(&msg).map_or(&[][..], |held| &held.payload);
            show(msg, dst, self.shown, payload);
        }
        while let Some((msg, _)) = self.decided.take_final(self.clock) {
            self.delivered += 1;
            self.held.remove(&msg);
        }
        debug_assert!(
            self.delivered <= self.shown || self.mutants.any(),
            "the decided log never gets ahead"
        );
    }

    /// The position of a client's buffer before which every message is delivered, if `next` is the first one that
    /// was not taken up.
    pub(super) fn settled(&mut self, client: usize, next: u64) -> u64 {
        let lane = &mut self.clients[client].lane;
        while let Some((start, msg)) = lane.front() {
            if self.held.contains_key(msg) {
                return *start;
            }
            lane.pop_front();
        }
        next
    }

    /// The message in front of the queue, if it waits for another group.
    pub(super) fn blocked(&self) -> Option<MsgId> {
        self.decided.first()
    }

    /// The messages of the sender of `msg` that wait for a proposal, and were not passed on as a whole.
    pub(super) fn unproposed(&self, msg: MsgId) -> impl Iterator<Item = UnproposedMessage> {
        let first = MsgId { seq: 0, ..msg };
        let same = self.held.range(first..).take_while(move |(m, _)| m.sender == msg.sender);
        same.filter(|(_, held)| !held.passed).filter_map(|(msg, _)| {
            let votes = self.decided.votes(*msg)?;
            (!votes.is_complete()).then_some(UnproposedMessage { msg: *msg, dst: votes.dst })
        })
    }

    /// A record says that the message is to go to the other destinations as a whole. Gives lease, timestamp
    /// and payload, if that is still of use.
    pub(super) fn pass_whole(&mut self, msg: MsgId) -> Option<(GroupSet, u32, u64, Vec<u8>)> {
        let (held, votes) = (self.held.get_mut(&msg)?, self.decided.votes(msg)?);
        let before = core::mem::replace(&mut held.passed, true);
        (!before).then(|| (votes.dst, held.lease, votes.own, held.payload.clone()))
    }

    /// Its state, for a replica that continues from the same place in the log.
    pub(super) fn encode(&self, to: &mut Vec<u8>) {
        let queue = self.decided.snapshot();
        let held = self.held.iter().map(|(msg, held)| (*msg, held.clone())).collect();
        let snapshot = |client: &ClientProgress| ClientSnapshot {
            last: client.last,
            lease: client.lease,
            early: client.early.iter().copied().collect(),
        };
        let clients = self.clients.iter().map(snapshot).collect();
        let (clock, delivered) = (self.clock, self.delivered);
        OrderSnapshot { clock, delivered, queue, held, clients }.encode(to);
    }

    /// Takes over such a state. False if it cannot be one.
    pub(super) fn resume(&mut self, from: &mut ByteReader<'_>) -> bool {
        let Ok(state) = OrderSnapshot::decode(from) else { return false };
        let clients = self.clients.len();
        let sound = state.held.iter().all(|(_, held)| (held.client as usize) < clients)
            && state.clients.len() == clients
            && state.clients.iter().all(|client| client.early.len() <= self.early_max);
        if !sound {
            return false;
        }
        let mut fresh = Self::new(self.group, (clients, self.early_max), self.mutants);
        (fresh.clock, fresh.delivered, fresh.shown) =
            (state.clock, state.delivered, state.delivered);
        fresh.decided = TimestampQueue::resumed(self.mutants, &state.queue);
        fresh.ahead = TimestampQueue::resumed(self.mutants, &state.queue);
        for (client, told) in fresh.clients.iter_mut().zip(state.clients) {
            (client.last, client.lease) = (told.last, told.lease);
            client.early.extend(told.early);
        }
        let mut places: Vec<(u32, u64, MsgId)> = Vec::new();
        for (msg, held) in state.held {
            if let Some(start) = held.start
                && fresh.clients[held.client as usize].lease == held.lease
            {
                places.push((held.client, start, msg));
            }
            fresh.held.insert(msg, held);
        }
        places.sort_unstable();
        for (client, start, msg) in places {
            fresh.clients[client as usize].lane.push_back((start, msg));
        }
        *self = fresh;
        true
    }
}

/// The state of an order in a state transfer.
#[derive(Debug)]
struct OrderSnapshot {
    clock: u64,
    delivered: u64,
    queue: QueueSnapshot,
    held: Vec<(MsgId, UndeliveredMessage)>,
    clients: Vec<ClientSnapshot>,
}

/// The progress of a client's place in a state transfer.
#[derive(Debug)]
struct ClientSnapshot {
    last: Option<u64>,
    lease: u32,
    early: Vec<u64>,
}

messages! {
    struct OrderSnapshot { clock, delivered, queue, held, clients }
}
messages! {
    struct UndeliveredMessage { client, lease, start, passed, payload }
}
messages! {
    struct ClientSnapshot { last, lease, early }
}

#[cfg(test)]
mod tests;

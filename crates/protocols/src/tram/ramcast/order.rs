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

use super::mutants::RamCastMutant;
use crate::mutant::Mutants;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
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

/// How far a group has taken up the messages of a client's place, of all its leases: numbers grow over these, too.
#[derive(Debug, Default)]
struct ClientProgress {
    /// The largest number up to which every message came here, or never will.
    last: Option<u64>,
    /// Larger numbers: messages that another group brought here before their client's copy was taken up.
    early: BTreeSet<u64>,
    /// The lease of the latest message that was taken from the client's buffer.
    lease: u32,
    /// The messages of that lease, and where each begins in the buffer.
    lane: VecDeque<(u64, MsgId)>,
}

impl ClientProgress {
    /// Whether the message came here, or is none that may come any more.
    fn knows(&self, seq: u64) -> bool {
        Some(seq) <= self.last || self.early.contains(&seq)
    }

    /// A message from the buffer of this lease. Says whether its number grows, as a client's do.
    fn take(&mut self, seq: u64, lease: u32) -> bool {
        if lease > self.lease {
            // The buffer of a new holder begins at its front again.
            self.lease = lease;
            self.lane.clear();
        }
        let grows = Some(seq) > self.last;
        self.last = self.last.max(Some(seq));
        // Another early message with a smaller number has no copy in the buffer: its holder died.
        while self.early.first().is_some_and(|&early| early <= seq) {
            self.early.pop_first();
        }
        grows
    }

    /// Another group brings a message that is not known. The client's copy of each one of a living holder has its
    /// place in the buffer: of more than `early_max`, which the buffer does not hold, the first one's holder died.
    fn bring(&mut self, seq: u64, early_max: usize) {
        self.early.insert(seq);
        if self.early.len() > early_max {
            self.last = self.last.max(self.early.pop_first());
        }
    }
}

/// The meaning of a record with a whole message for the order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum MessageArrival {
    /// It is new: the other destinations are to hear the group's timestamp.
    New,
    /// It is in the queue, or was.
    Known,
    /// It is not in the queue, and never will be again: it was delivered, or its number did not grow.
    Refused,
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
                return self.refuse(msg);
            }
            if grows && is_known && !copies_count {
                return MessageArrival::Known;
            }
            client.lane.push_back((start, msg));
        } else if is_known {
            return self.refuse(msg);
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
        MessageArrival::New
    }

    /// The message is not new. Unless it waits in the queue, what others proposed for it is of no use.
    fn refuse(&mut self, msg: MsgId) -> MessageArrival {
        if self.held.contains_key(&msg) {
            return MessageArrival::Known;
        }
        self.forget(msg);
        MessageArrival::Refused
    }

    fn forget(&mut self, msg: MsgId) {
        self.held.remove(&msg);
        self.decided.forget(msg);
        self.ahead.forget(msg);
    }

    /// Whether the message of that client is not held, and never will be again.
    fn is_over(&self, msg: MsgId, client: usize) -> bool {
        !self.held.contains_key(&msg) && self.clients[client].knows(msg.seq)
    }

    /// A record with the proposal of another destination.
    // [RamCast 2] The timestamp of another group; the clock passes it.
    pub(super) fn proposed(&mut self, (msg, client): (MsgId, usize), from: Gid, timestamp: u64) {
        self.clock = self.clock.max(timestamp);
        if self.is_over(msg, client) {
            return self.forget(msg);
        }
        self.decided.propose(msg, from, timestamp);
        self.proposed_ahead((msg, client), from, timestamp);
    }

    /// A proposal of another destination that this replica has put into its log as leader: it is decided there.
    pub(super) fn proposed_ahead(
        &mut self,
        (msg, client): (MsgId, usize),
        from: Gid,
        timestamp: u64,
    ) {
        let is_shown = self.held.contains_key(&msg) && !self.ahead.votes.contains_key(&msg);
        if !is_shown && !self.is_over(msg, client) {
            self.ahead.propose(msg, from, timestamp);
        }
    }

    /// A record by which another destination refuses the message. If it has proposed before, it speaks of a repetition.
    /// Otherwise it never will, so that no destination can deliver the message, and each drops it.
    pub(super) fn refused(&mut self, msg: MsgId, by: Gid) {
        let waits = |votes: &MessageVotes| votes.own != 0 && !votes.proposed.contains(by);
        if self.decided.votes.get(&msg).is_some_and(waits) {
            self.forget(msg);
        }
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
        let &(_, msg) = self.decided.queue.first()?;
        Some(msg)
    }

    /// The messages of the sender of `msg` that wait for a proposal, and were not passed on as a whole.
    pub(super) fn unproposed(&self, msg: MsgId) -> impl Iterator<Item = UnproposedMessage> {
        let first = MsgId { seq: 0, ..msg };
        let same = self.held.range(first..).take_while(move |(m, _)| m.sender == msg.sender);
        same.filter(|(_, held)| !held.passed).filter_map(|(msg, _)| {
            let votes = self.decided.votes.get(msg)?;
            (!votes.is_complete()).then_some(UnproposedMessage { msg: *msg, dst: votes.dst })
        })
    }

    /// A record says that the message is to go to the other destinations as a whole. Gives lease, timestamp
    /// and payload, if that is still of use.
    pub(super) fn pass_whole(&mut self, msg: MsgId) -> Option<(GroupSet, u32, u64, Vec<u8>)> {
        let (held, votes) = (self.held.get_mut(&msg)?, self.decided.votes.get(&msg)?);
        let before = core::mem::replace(&mut held.passed, true);
        (!before).then(|| (votes.dst, held.lease, votes.own, held.payload.clone()))
    }

    /// Its state, for a replica that continues from the same place in the log.
    pub(super) fn encode(&self, to: &mut Vec<u8>) {
        let votes = self.decided.votes.iter().map(|(msg, votes)| (*msg, *votes)).collect();
        let held = self.held.iter().map(|(msg, held)| (*msg, held.clone())).collect();
        let snapshot = |client: &ClientProgress| ClientSnapshot {
            last: client.last,
            lease: client.lease,
            early: client.early.iter().copied().collect(),
        };
        let clients = self.clients.iter().map(snapshot).collect();
        let (clock, delivered) = (self.clock, self.delivered);
        OrderSnapshot { clock, delivered, votes, held, clients }.encode(to);
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
        for (msg, votes) in state.votes {
            fresh.decided.enter(msg, votes);
            fresh.ahead.enter(msg, votes);
        }
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

/// The proposals for a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct MessageVotes {
    dst: GroupSet,
    /// This group's timestamp; 0 while only others' proposals are here.
    own: u64,
    /// The largest proposal so far.
    largest: u64,
    proposed: GroupSet,
}

impl MessageVotes {
    const fn is_complete(&self) -> bool {
        self.own != 0 && self.dst.within(self.proposed)
    }
}

/// Messages by their timestamps.
#[derive(Debug)]
struct TimestampQueue {
    mutants: Mutants<RamCastMutant>,
    votes: BTreeMap<MsgId, MessageVotes>,
    /// Those that have this group's timestamp, by the largest proposal so far.
    queue: BTreeSet<(u64, MsgId)>,
}

impl TimestampQueue {
    const fn new(mutants: Mutants<RamCastMutant>) -> Self {
        Self { mutants, votes: BTreeMap::new(), queue: BTreeSet::new() }
    }

    fn arrive(&mut self, msg: MsgId, dst: GroupSet, (group, own): (Gid, u64)) {
        let mut votes = self.votes.get(&msg).copied().unwrap_or_default();
        (votes.dst, votes.own, votes.largest) = (dst, own, votes.largest.max(own));
        votes.proposed = votes.proposed.with(group);
        self.enter(msg, votes);
    }

    /// Puts in a message that is not in the queue.
    fn enter(&mut self, msg: MsgId, votes: MessageVotes) {
        if votes.own != 0 {
            self.queue.insert((votes.largest, msg));
        }
        self.votes.insert(msg, votes);
    }

    /// A mutant's: as if all destinations had proposed.
    fn complete(&mut self, msg: MsgId) {
        if let Some(votes) = self.votes.get_mut(&msg) {
            votes.proposed = votes.dst;
        }
    }

    /// Takes a message out that is not delivered.
    fn forget(&mut self, msg: MsgId) {
        if let Some(votes) = self.votes.remove(&msg) {
            self.queue.remove(&(votes.largest, msg));
        }
    }

    fn propose(&mut self, msg: MsgId, from: Gid, timestamp: u64) {
        let votes = self.votes.entry(msg).or_default();
        votes.proposed = votes.proposed.with(from);
        if timestamp > votes.largest && !self.mutants.is(RamCastMutant::IgnoresProposals) {
            let before = core::mem::replace(&mut votes.largest, timestamp);
            if votes.own != 0 {
                self.queue.remove(&(before, msg));
                self.queue.insert((timestamp, msg));
            }
        }
    }

    /// Takes out the message in front, if all destinations have proposed and nothing can get in front of it any
    /// more: what comes gets a timestamp above `clock`.
    fn take_final(&mut self, clock: u64) -> Option<(MsgId, GroupSet)> {
        let &(key, msg) = self.queue.first()?;
        let votes = self.votes.get(&msg)?;
        let hasty = self.mutants.is(RamCastMutant::WaitsForNone);
        let may_be_passed = key > clock && !self.mutants.is(RamCastMutant::RunsAhead);
        if may_be_passed || !(hasty || votes.is_complete()) {
            return None;
        }
        self.queue.remove(&(key, msg));
        let dst = votes.dst;
        self.votes.remove(&msg);
        Some((msg, dst))
    }
}

/// The state of an order in a state transfer.
#[derive(Debug)]
struct OrderSnapshot {
    clock: u64,
    delivered: u64,
    votes: Vec<(MsgId, MessageVotes)>,
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
    struct OrderSnapshot { clock, delivered, votes, held, clients }
}
messages! {
    struct MessageVotes { dst, own, largest, proposed }
}
messages! {
    struct UndeliveredMessage { client, lease, start, passed, payload }
}
messages! {
    struct ClientSnapshot { last, lease, early }
}

#[cfg(test)]
mod tests {
    use super::MessageArrival::{Known, New, Refused};
    use super::*;
    use amcast_core::Pid;

    const ME: Gid = Gid(0);
    const OTHER: Gid = Gid(1);
    const BOTH: GroupSet = GroupSet(0b11);

    fn order() -> TimestampOrder {
        TimestampOrder::new(ME, (2, 4), Mutants::with(None))
    }

    fn msg(seq: u64) -> MsgId {
        MsgId { sender: Pid(7), seq }
    }

    fn from_client(start: u64) -> ClientPlace {
        ClientPlace { client: 0, lease: 1, start: Some(start) }
    }

    const FROM_GROUP: ClientPlace = ClientPlace { client: 0, lease: 1, start: None };

    fn all(order: &mut TimestampOrder) -> Vec<(u64, u64)> {
        let mut all = Vec::new();
        order.deliver(|msg, _, number, _| all.push((msg.seq, number)));
        all
    }

    #[test]
    fn a_message_waits_for_all_proposals_and_for_those_that_may_be_smaller() {
        let mut o = order();
        assert_eq!(o.arrive(msg(1), BOTH, 1, from_client(0), b"a"), New);
        assert_eq!(o.arrive(msg(2), GroupSet::one(ME), 2, from_client(1), b"b"), New);
        assert_eq!(all(&mut o), [], "the first may come before the second");
        o.proposed((msg(1), 0), OTHER, 5);
        assert_eq!(all(&mut o), [(2, 1), (1, 2)]);
        assert_eq!(o.clock(), 5);
    }

    #[test]
    fn a_proposal_may_come_before_its_message() {
        let mut o = order();
        o.proposed((msg(2), 0), OTHER, 3);
        assert_eq!(o.arrive(msg(1), GroupSet::one(ME), 4, from_client(0), b""), New);
        assert_eq!(all(&mut o), [(1, 1)], "the second gets a timestamp above");
        assert_eq!(o.arrive(msg(2), BOTH, 5, from_client(1), b""), New);
        assert_eq!(all(&mut o), [(2, 2)]);
    }

    #[test]
    fn a_leader_delivers_by_a_proposal_that_its_own_log_has_not_decided() {
        let mut o = order();
        o.arrive(msg(1), BOTH, 3, from_client(0), b"");
        o.proposed_ahead((msg(1), 0), OTHER, 4);
        assert_eq!(all(&mut o), [], "a later leader may give 4 to another message");
        o.pass_clock(4);
        assert_eq!((all(&mut o), o.delivered()), (alloc::vec![(1, 1)], 0));
        o.arrive(msg(2), GroupSet::one(ME), 5, from_client(1), b"");
        assert_eq!((all(&mut o), o.settled(0, 2)), (alloc::vec![(2, 2)], 0));
        o.proposed((msg(1), 0), OTHER, 4);
        assert_eq!((all(&mut o), o.delivered(), o.settled(0, 2)), (alloc::vec![], 2, 2));
    }

    #[test]
    fn a_message_counts_once_by_whichever_way_it_comes() {
        let mut o = order();
        assert_eq!(o.arrive(msg(1), BOTH, 1, FROM_GROUP, b""), New);
        o.proposed((msg(1), 0), OTHER, 1);
        assert_eq!(all(&mut o).len(), 1);
        let third = o.arrive(msg(1), BOTH, 2, FROM_GROUP, b"");
        assert_eq!(third, Refused, "a third group brings it, too");
        let own = o.arrive(msg(1), BOTH, 3, from_client(0), b"");
        assert_eq!(own, Known, "the client's own copy");
        assert_eq!(o.arrive(msg(1), BOTH, 4, FROM_GROUP, b""), Refused, "late");
        assert_eq!(all(&mut o), []);
    }

    #[test]
    fn a_number_that_does_not_grow_is_refused_and_counts_once() {
        let mut o = order();
        let mine = GroupSet::one(ME);
        assert_eq!(o.arrive(msg(2), mine, 1, from_client(0), b""), New);
        assert_eq!(o.arrive(msg(2), mine, 2, from_client(1), b""), Known, "it waits");
        assert_eq!(all(&mut o), [(2, 1)]);
        assert_eq!(o.arrive(msg(2), mine, 3, from_client(2), b""), Refused, "repeated");
        assert_eq!(o.arrive(msg(1), mine, 4, from_client(3), b""), Refused, "lower");
        let later = ClientPlace { lease: 2, ..from_client(0) };
        assert_eq!(o.arrive(msg(2), mine, 5, later, b""), Refused, "by the next holder");
        assert_eq!(o.arrive(msg(3), mine, 6, later, b""), New);
        assert_eq!((all(&mut o), o.settled(0, 9)), (alloc::vec![(3, 2)], 9));
        let last = msg(u64::MAX);
        assert_eq!(o.arrive(last, mine, 7, later, b""), New);
        assert_eq!(all(&mut o).len(), 1);
        assert_eq!(o.arrive(last, mine, 8, later, b""), Refused, "no number grows any more");
    }

    #[test]
    fn a_message_that_a_destination_refuses_is_dropped_and_a_refused_repetition_is_not() {
        let mut o = order();
        o.arrive(msg(1), BOTH, 1, from_client(0), b"");
        o.arrive(msg(2), BOTH, 2, from_client(1), b"");
        o.arrive(msg(3), GroupSet::one(ME), 3, from_client(2), b"");
        o.refused(msg(9), OTHER);
        assert_eq!(all(&mut o), [], "nothing that waits is refused");
        o.proposed((msg(2), 0), OTHER, 2);
        o.refused(msg(2), OTHER);
        o.refused(msg(1), OTHER);
        assert_eq!(all(&mut o), [(2, 1), (3, 2)]);
        assert_eq!((o.delivered(), o.settled(0, 3)), (2, 3));
        assert!(o.held.is_empty() && o.decided.votes.is_empty() && o.ahead.votes.is_empty());
    }

    #[test]
    fn nothing_is_kept_of_what_others_propose_for_a_refused_message() {
        let mut o = order();
        o.proposed((msg(1), 0), OTHER, 7);
        o.arrive(msg(2), GroupSet::one(ME), 8, from_client(0), b"");
        assert_eq!(o.arrive(msg(1), BOTH, 9, FROM_GROUP, b""), Refused);
        o.proposed((msg(1), 0), OTHER, 10);
        o.proposed_ahead((msg(1), 0), OTHER, 10);
        assert_eq!(all(&mut o), [(2, 1)]);
        assert!(o.decided.votes.is_empty() && o.ahead.votes.is_empty());
    }

    #[test]
    fn what_is_kept_of_dead_holders_is_bounded() {
        let (mut o, mut size) = (order(), 0);
        for seq in 1..=1000 {
            // The client of each lease reached only the other group.
            let place = ClientPlace { lease: seq as u32, ..FROM_GROUP };
            assert_eq!(o.arrive(msg(seq), BOTH, seq, place, b""), New);
            o.proposed((msg(seq), 0), OTHER, seq);
            assert_eq!(all(&mut o), [(seq, seq)]);
            assert_eq!(o.arrive(msg(seq), BOTH, seq, place, b""), Refused, "another group's");
            let mut bytes = Vec::new();
            o.encode(&mut bytes);
            if seq == 4 {
                size = bytes.len();
            }
            assert!(seq <= 4 || bytes.len() <= size + 64, "{seq}: {} bytes", bytes.len());
        }
        assert_eq!(o.arrive(msg(3), BOTH, 2000, FROM_GROUP, b""), Refused);
        // The last holder writes its copies, as far as its buffer goes, and what it sent here alone.
        let place = ClientPlace { lease: 1000, ..from_client(0) };
        assert_eq!(o.arrive(msg(999), BOTH, 2001, place, b""), Known);
        assert_eq!(o.arrive(msg(1000), BOTH, 2002, place, b""), Known);
        assert_eq!(o.arrive(msg(1001), GroupSet::one(ME), 2003, place, b""), New);
        assert!(o.clients[0].early.is_empty());
    }

    #[test]
    fn a_state_with_more_early_messages_than_a_buffer_holds_is_refused() {
        let (mut o, mut small, mut bytes) = (order(), order(), Vec::new());
        for seq in 1..=3 {
            o.arrive(msg(seq), BOTH, seq, FROM_GROUP, b"");
        }
        o.encode(&mut bytes);
        assert!(small.resume(&mut ByteReader::new(&bytes)));
        small.early_max = 2;
        assert!(!small.resume(&mut ByteReader::new(&bytes)));
    }

    #[test]
    fn a_buffer_is_settled_up_to_the_first_message_that_is_not_delivered() {
        let mut o = order();
        o.arrive(msg(1), BOTH, 1, from_client(0), b"");
        o.arrive(msg(2), BOTH, 2, from_client(4), b"");
        assert_eq!(o.settled(0, 8), 0);
        o.proposed((msg(1), 0), OTHER, 1);
        assert_eq!((all(&mut o).len(), o.settled(0, 8)), (1, 4));
        o.proposed((msg(2), 0), OTHER, 3);
        assert_eq!((all(&mut o).len(), o.settled(0, 8)), (1, 8));
    }

    #[test]
    fn a_state_that_is_handed_over_continues_alike() {
        let mut o = order();
        o.arrive(msg(1), BOTH, 1, from_client(0), b"first");
        o.arrive(msg(2), BOTH, 2, from_client(3), b"second");
        o.proposed((msg(3), 0), OTHER, 9);
        let (mut bytes, mut taker) = (Vec::new(), order());
        o.encode(&mut bytes);
        assert!(taker.resume(&mut ByteReader::new(&bytes)));
        assert!(!order().resume(&mut ByteReader::new(&bytes[1..])));
        for o in [&mut o, &mut taker] {
            assert_eq!((o.clock(), o.settled(0, 9)), (9, 0));
            o.proposed((msg(1), 0), OTHER, 4);
            o.proposed((msg(2), 0), OTHER, 3);
            assert_eq!(all(o), [(2, 1), (1, 2)]);
        }
    }
}

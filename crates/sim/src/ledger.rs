//! The ledger of multicasts and deliveries; the duties of a protocol towards its driver are checked here.

use crate::app::DeliveredMessage;
use crate::hash::RunHash;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use amcast_core::rng::Rng;
use amcast_core::step::{ProtocolStatus, WaitReason};
use amcast_core::{Gid, GroupSet, MsgId, Pid, Time};

/// A duty towards the driver that a protocol broke. The run stops there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Breach {
    /// A delivered message was never multicast.
    Invented {
        /// The process that delivered it.
        p: Pid,
        /// The message.
        m: MsgId,
    },
    /// A delivered payload, or the payload in an installed state, is not the one multicast.
    Payload {
        /// The process that delivered it.
        p: Pid,
        /// The message.
        m: MsgId,
    },
    /// A delivery names other destinations than the multicast.
    Destinations {
        /// The process that delivered it.
        p: Pid,
        /// The message.
        m: MsgId,
    },
    /// The position of a delivery, or of an installed state, does not go up.
    Position {
        /// The process that delivered it.
        p: Pid,
        /// The message, or the last message of the state.
        m: MsgId,
        /// The position reached before.
        before: u64,
        /// The position given.
        given: u64,
    },
    /// Two replicas of a group put different messages at one position.
    Diverged {
        /// The later of them.
        p: Pid,
        /// The position.
        position: u64,
        /// Its message there.
        has: MsgId,
        /// Another process's message there.
        other: MsgId,
    },
    /// A process that came back, or that took over a state, does not have what it had delivered.
    Forgotten {
        /// The process.
        p: Pid,
        /// The place in its sequence of deliveries, from 0.
        place: usize,
        /// The message that it had delivered there.
        had: MsgId,
        /// Its message there now.
        has: MsgId,
    },
    /// A delivery that it made before it died is made again at another position.
    Moved {
        /// The process.
        p: Pid,
        /// The repeated message.
        m: MsgId,
        /// The position it had.
        had: u64,
        /// The position it has now.
        has: u64,
    },
    /// It passes a barrier, and misses a message that another replica of its group had delivered when it was set.
    Stale {
        /// The process.
        p: Pid,
        /// The position that its deliveries have reached.
        has: u64,
        /// The one that those of the other had.
        must: u64,
    },
    /// It asks to be woken at once again and again, while nothing arrives.
    Spins {
        /// The process.
        p: Pid,
        /// How often in a row.
        times: u32,
    },
    /// Its report to its driver breaks the contract: see [`amcast_core::events`].
    Contract {
        /// The process.
        p: Pid,
        /// The forbidden action.
        why: &'static str,
    },
    /// It asked the application for something that makes no sense.
    Application {
        /// The process.
        p: Pid,
        /// The flaw.
        why: &'static str,
    },
    /// The [`Host`](crate::Host) found something wrong, or asked for something that makes no sense.
    Host(String),
}

/// A process at the end of a run that did not settle.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnsettledProcess {
    /// The process.
    pub p: Pid,
    /// Whether it lives.
    pub alive: bool,
    /// Whether it is fit.
    pub fit: bool,
    /// Its status, if it lives.
    pub status: ProtocolStatus,
    /// Multicasts that it has no room for yet.
    pub backlog: usize,
    /// Barriers that it has not passed.
    pub barriers: usize,
    /// Messages it should have delivered and has not: the first few.
    pub missing: Vec<MsgId>,
    /// Why it says messages wait: the first few.
    pub waits: Vec<(MsgId, WaitReason)>,
}

/// A message of the run.
#[derive(Clone, Debug)]
pub(crate) struct LedgerMessage {
    pub id: MsgId,
    pub dst: GroupSet,
    pub bytes: usize,
    pub payload: u64,
    /// Whether its payload was given, and not made from its number.
    is_given: bool,
    pub standing: u32,
    /// The view in which it was delivered last.
    pub view: Option<u64>,
    /// Whether one that has left its group had delivered it: then it is still to come elsewhere.
    pub owed: bool,
    /// Groups of which some replica has delivered it.
    pub reached: GroupSet,
    /// The processes that delivered it, a bit each.
    by: Vec<u64>,
}

impl LedgerMessage {
    pub(crate) fn delivered_by(&self, p: Pid) -> bool {
        self.by[p.index() / 64] >> (p.index() % 64) & 1 == 1
    }
}

/// The ledger of multicasts and deliveries.
#[derive(Debug)]
pub(crate) struct DeliveryLedger {
    pub messages: Vec<LedgerMessage>,
    /// By sender: the number of each message, which only grows, and its place in `messages`.
    index: Vec<Vec<(u64, usize)>>,
    /// The deliveries of each process, over all its lives; since it joined, if it enters views and
    /// replicas need not agree.
    ever: Vec<Vec<(MsgId, u64)>>,
    /// The view of each process that enters views: one that comes back is then a new process.
    views: Vec<Option<u64>>,
    positions: BTreeMap<(Gid, u64), MsgId>,
    /// Whether replicas of a group must agree at each position, and lives with each other.
    pub uniform: bool,
    pub deliveries: u64,
    pub last_delivery: Time,
    /// By sender: multicasts not yet delivered in every destination group.
    open: Vec<u32>,
    processes: usize,
    scratch: Vec<u8>,
}

/// Fills `into` with the payload of a message: its own bytes, none of them shared with another.
pub(crate) fn payload(id: MsgId, bytes: usize, into: &mut Vec<u8>) {
    into.clear();
    let mut rng = Rng::new(u64::from(id.sender.0) << 40 ^ id.seq);
    while into.len() < bytes {
        into.extend_from_slice(&rng.word().to_le_bytes());
    }
    into.truncate(bytes);
}

fn digest(bytes: &[u8]) -> u64 {
    let mut hash = RunHash::new();
    hash.bytes(bytes);
    hash.0
}

impl DeliveryLedger {
    pub(crate) fn new(processes: usize, uniform: bool) -> Self {
        Self {
            messages: Vec::new(),
            index: alloc::vec![Vec::new(); processes],
            ever: alloc::vec![Vec::new(); processes],
            views: alloc::vec![None; processes],
            positions: BTreeMap::new(),
            uniform,
            deliveries: 0,
            last_delivery: Time::ZERO,
            open: alloc::vec![0; processes],
            processes,
            scratch: Vec::new(),
        }
    }

    /// Enters the sender's next message; its payload is left in `into`.
    pub(crate) fn cast(
        &mut self,
        id: MsgId,
        dst: GroupSet,
        bytes: usize,
        standing: u32,
        into: &mut Vec<u8>,
    ) {
        payload(id, bytes, into);
        self.push(id, dst, into, standing, false);
    }

    /// Enters the sender's next message, with a payload that somebody else made.
    ///
    /// # Errors
    /// When its number is not larger than that of the sender's message before.
    pub(crate) fn cast_given(
        &mut self,
        id: MsgId,
        dst: GroupSet,
        payload: &[u8],
        standing: u32,
    ) -> Result<(), &'static str> {
        let last = self.index[id.sender.index()].last();
        if last.is_some_and(|&(seq, _)| id.seq <= seq) {
            return Err("the number of a submission is not larger than the one before");
        }
        self.push(id, dst, payload, standing, true);
        Ok(())
    }

    fn push(&mut self, id: MsgId, dst: GroupSet, payload: &[u8], standing: u32, is_given: bool) {
        self.index[id.sender.index()].push((id.seq, self.messages.len()));
        self.open[id.sender.index()] += 1;
        self.messages.push(LedgerMessage {
            id,
            dst,
            bytes: payload.len(),
            payload: digest(payload),
            is_given,
            standing,
            view: None,
            owed: false,
            reached: GroupSet::EMPTY,
            by: alloc::vec![0; self.processes.div_ceil(64)],
        });
    }

    fn find(&self, m: MsgId) -> Option<usize> {
        let of_sender = self.index.get(m.sender.index())?;
        let at = of_sender.binary_search_by_key(&m.seq, |&(seq, _)| seq).ok()?;
        Some(of_sender[at].1)
    }

    /// Checks a delivery: that the message is what was multicast.
    pub(crate) fn check(
        &mut self,
        p: Pid,
        m: MsgId,
        dst: GroupSet,
        bytes: &[u8],
    ) -> Result<u64, Breach> {
        let i = self.find(m).ok_or(Breach::Invented { p, m })?;
        let message = &self.messages[i];
        if message.dst != dst {
            return Err(Breach::Destinations { p, m });
        }
        if message.is_given {
            let same = message.bytes == bytes.len() && message.payload == digest(bytes);
            return if same { Ok(message.payload) } else { Err(Breach::Payload { p, m }) };
        }
        payload(m, message.bytes, &mut self.scratch);
        if self.scratch != bytes { Err(Breach::Payload { p, m }) } else { Ok(message.payload) }
    }

    /// Checks an item of an installed state.
    pub(crate) fn check_item(&self, p: Pid, item: &DeliveredMessage) -> Result<(), Breach> {
        let m = item.msg;
        let i = self.find(m).ok_or(Breach::Invented { p, m })?;
        if self.messages[i].payload == item.payload {
            Ok(())
        } else {
            Err(Breach::Payload { p, m })
        }
    }

    /// Enters that `item` is at `place` of `p`'s sequence. True if that is a new delivery, false if
    /// `p` had delivered it in an earlier life and is still the same process.
    pub(crate) fn enter(
        &mut self,
        now: Time,
        p: Pid,
        group: Option<Gid>,
        place: usize,
        item: &DeliveredMessage,
    ) -> Result<bool, Breach> {
        if let Some(group) = group.filter(|_| self.uniform) {
            let other = *self.positions.entry((group, item.position)).or_insert(item.msg);
            if other != item.msg {
                let (position, has) = (item.position, item.msg);
                return Err(Breach::Diverged { p, position, has, other });
            }
        }
        let ever = &mut self.ever[p.index()];
        if self.uniform {
            if let Some(&(msg, position)) = ever.get(place) {
                return if msg != item.msg {
                    Err(Breach::Forgotten { p, place, had: msg, has: item.msg })
                } else if position != item.position {
                    Err(Breach::Moved { p, m: msg, had: position, has: item.position })
                } else {
                    Ok(self.views[p.index()].is_some())
                };
            }
        } else if place < ever.len() && ever.iter().any(|(msg, _)| *msg == item.msg) {
            return Ok(false);
        }
        ever.push((item.msg, item.position));
        let i = self.find(item.msg).ok_or(Breach::Invented { p, m: item.msg })?;
        let message = &mut self.messages[i];
        message.by[p.index() / 64] |= 1 << (p.index() % 64);
        message.view = self.views[p.index()];
        if let Some(group) = group
            && message.dst.contains(group)
            && !message.reached.contains(group)
        {
            message.reached = message.reached.with(group);
            if message.reached == message.dst {
                let open = &mut self.open[item.msg.sender.index()];
                *open = open.saturating_sub(1);
            }
        }
        self.deliveries += 1;
        self.last_delivery = now;
        Ok(true)
    }

    /// `p` enters a view.
    pub(crate) fn enters_view(&mut self, p: Pid, view: u64) {
        self.views[p.index()] = Some(view);
    }

    /// The view of `p`, or its last one if it has failed.
    pub(crate) fn view(&self, p: Pid) -> Option<u64> {
        self.views[p.index()]
    }

    /// `p` leaves its group by choice: what it delivered is delivered by all.
    pub(crate) fn left(&mut self, p: Pid) {
        for message in self.messages.iter_mut().filter(|m| m.delivered_by(p)) {
            message.owed = true;
        }
    }

    /// `p` has failed. If it enters views, what it delivered obliges nobody where agreement is not
    /// uniform, and it begins anew.
    pub(crate) fn failed(&mut self, p: Pid) {
        self.open[p.index()] = 0;
        if self.views[p.index()].is_some() && !self.uniform {
            self.ever[p.index()].clear();
            for message in &mut self.messages {
                message.by[p.index() / 64] &= !(1 << (p.index() % 64));
            }
        }
    }

    /// The position of the last delivery of any replica of `group`.
    pub(crate) fn furthest(&self, group: Gid) -> u64 {
        let mut of_group = self.positions.range((group, 0)..=(group, u64::MAX));
        of_group.next_back().map_or(0, |((_, position), _)| *position)
    }

    /// The messages that a state of `group` at position `upto` holds, from the delivery at `place` on. Where replicas agree
    /// at each position that is the group's sequence, else that of `source`.
    pub(crate) fn items_of_state(
        &self,
        group: Gid,
        source: Pid,
        place: usize,
        upto: u64,
    ) -> Vec<DeliveredMessage> {
        let item = |msg, position| {
            let payload = self.find(msg).map_or(0, |i| self.messages[i].payload);
            DeliveredMessage { msg, position, payload }
        };
        if self.uniform {
            let of_group = self.positions.range((group, 0)..=(group, upto)).skip(place);
            return of_group.map(|(&(_, position), &msg)| item(msg, position)).collect();
        }
        let of_source = self.ever[source.index()].iter().skip(place);
        let of_state = of_source.take_while(|&&(_, position)| position <= upto);
        of_state.map(|&(msg, position)| item(msg, position)).collect()
    }

    /// Of these processes the one with the furthest deliveries.
    pub(crate) fn furthest_of(&self, processes: impl Iterator<Item = Pid>) -> Option<Pid> {
        let reached = |p: &Pid| self.ever[p.index()].last().map_or(0, |&(_, position)| position);
        processes.max_by_key(reached)
    }

    /// How many deliveries `p` has made up to `position`, over all its lives.
    pub(crate) fn delivered_upto(&self, p: Pid, position: u64) -> usize {
        self.ever[p.index()].partition_point(|&(_, at)| at <= position)
    }

    /// How many deliveries `p` has made, in all its lives.
    pub(crate) fn delivered(&self, p: Pid) -> usize {
        self.ever[p.index()].len()
    }

    /// Multicasts of `p` that are not yet delivered in every destination group.
    pub(crate) fn open_of(&self, p: Pid) -> u32 {
        self.open[p.index()]
    }

    /// Whether every destination group has delivered `m`.
    pub(crate) fn reached(&self, m: MsgId) -> bool {
        self.find(m).is_some_and(|i| self.messages[i].reached == self.messages[i].dst)
    }

    /// How many deliveries `p` has made, over all its lives.
    pub(crate) fn ever(&self, p: Pid) -> usize {
        self.ever[p.index()].len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_that_was_given_is_the_one_delivered() {
        let (p, dst) = (Pid(0), GroupSet(1));
        let m = |seq| MsgId { sender: Pid(1), seq };
        let mut ledger = DeliveryLedger::new(2, true);
        assert_eq!(ledger.cast_given(m(3), dst, b"first", 0), Ok(()));
        assert_eq!(ledger.cast_given(m(9), dst, b"", 0), Ok(()));
        assert!(ledger.cast_given(m(9), dst, b"again", 0).is_err());
        assert!(ledger.check(p, m(3), dst, b"first").is_ok());
        assert!(ledger.check(p, m(9), dst, b"").is_ok());
        assert_eq!(ledger.check(p, m(3), dst, b"fjrst"), Err(Breach::Payload { p, m: m(3) }));
        assert_eq!(ledger.check(p, m(3), dst, b"first\0"), Err(Breach::Payload { p, m: m(3) }));
        assert_eq!(ledger.check(p, m(4), dst, b"first"), Err(Breach::Invented { p, m: m(4) }));
    }

    #[test]
    fn a_state_holds_what_any_replica_delivered_up_to_it() {
        let group = Gid(0);
        let m = |seq| MsgId { sender: Pid(2), seq };
        for uniform in [true, false] {
            let mut ledger = DeliveryLedger::new(3, uniform);
            for (place, seq) in (1..=3).enumerate() {
                ledger.cast_given(m(seq), GroupSet(1), b"", 0).expect("numbers grow");
                let item = DeliveredMessage { msg: m(seq), position: seq * 10, payload: 0 };
                ledger.enter(Time::ZERO, Pid(0), Some(group), place, &item).expect("it is new");
            }
            let source = ledger.furthest_of([Pid(1), Pid(0)].into_iter());
            assert_eq!(source, Some(Pid(0)));
            let items = ledger.items_of_state(group, Pid(0), 1, 20);
            assert_eq!(items.iter().map(|i| (i.msg, i.position)).collect::<Vec<_>>(), [(m(2), 20)]);
            assert_eq!(ledger.items_of_state(group, Pid(0), 0, 29).len(), 2);
            assert_eq!(ledger.delivered_upto(Pid(0), 30), 3);
        }
    }

    #[test]
    fn what_is_delivered_again_is_the_same_in_place_and_position() {
        let (p, group) = (Pid(0), Some(Gid(0)));
        let m = |seq| MsgId { sender: Pid(1), seq };
        let mut ledger = DeliveryLedger::new(2, true);
        (1..=2).for_each(|seq| ledger.cast(m(seq), GroupSet(1), 8, 0, &mut Vec::new()));
        let mut enter = |place, seq, position| {
            let item = DeliveredMessage { msg: m(seq), position, payload: 0 };
            ledger.enter(Time::ZERO, p, group, place, &item)
        };
        assert_eq!((enter(0, 1, 5), enter(1, 2, 7)), (Ok(true), Ok(true)));
        assert_eq!((enter(0, 1, 5), enter(1, 2, 7)), (Ok(false), Ok(false)));
        assert_eq!(enter(1, 2, 8), Err(Breach::Moved { p, m: m(2), had: 7, has: 8 }));
        let forgotten = Breach::Forgotten { p, place: 0, had: m(1), has: m(2) };
        assert_eq!(enter(0, 2, 7), Err(forgotten));
        assert_eq!(ledger.deliveries, 2);
    }
}

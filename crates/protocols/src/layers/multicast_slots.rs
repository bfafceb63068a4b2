//! The multicasts of a client that are in flight: each has one of `window` numbered slots, from its submission until every
//! destination has acknowledged it.
//!
//! A replica can keep what it has to remember of a client in as many slots: a slot never has to hold two multicasts, since a
//! client uses it again only when nobody needs the last one any more.

use alloc::vec::Vec;
use amcast_core::step::WaitReason;
use amcast_core::{ClusterShape, GroupSet, MsgId, Pid, messages};

/// The data of a multicast that every process on its way needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MulticastHeading {
    /// Which multicast.
    pub(crate) msg: MsgId,
    /// Its slot among those of its client.
    pub(crate) slot: u16,
    /// Its destinations.
    pub(crate) dst: GroupSet,
}

messages! {
    struct MulticastHeading { msg, slot, dst }
}

/// The slots of one client.
#[derive(Clone, Debug)]
pub(crate) struct MulticastSlots {
    me: Pid,
    cluster: ClusterShape,
    /// Payload bytes in flight, at most.
    bytes_max: usize,
    /// By slot.
    flights: Vec<InFlightMulticast>,
    /// Slots with nothing in flight.
    free: Vec<u16>,
    /// Payload bytes in flight.
    bytes: usize,
    /// The number of the last multicast; only grows.
    seq: u64,
}

/// A multicast in flight. A free slot awaits nobody.
#[derive(Clone, Copy, Debug, Default)]
struct InFlightMulticast {
    seq: u64,
    bytes: usize,
    /// Destinations that have not acknowledged.
    awaits: GroupSet,
}

impl MulticastSlots {
    /// So many slots of client `me`, with so many payload bytes in flight at most.
    pub(crate) fn new(me: Pid, cluster: ClusterShape, window: usize, bytes_max: usize) -> Self {
        Self {
            me,
            cluster,
            bytes_max,
            flights: alloc::vec![InFlightMulticast::default(); window],
            free: (0..window as u16).rev().collect(),
            bytes: 0,
            seq: 0,
        }
    }

    /// How many multicasts of so many bytes fit.
    pub(crate) fn room(&self, bytes: usize) -> usize {
        self.free.len().min((self.bytes_max - self.bytes) / bytes.max(1))
    }

    /// Gives a slot to multicast number `seq`, which has so many bytes.
    ///
    /// # Panics
    /// If there is no room, or the number does not follow the last one.
    pub(crate) fn open(&mut self, seq: u64, dst: GroupSet, bytes: usize) -> MulticastHeading {
        assert!(self.room(bytes) > 0, "a submission beyond the room there is");
        assert!(seq > self.seq, "number {seq} does not follow {}", self.seq);
        let slot = self.free.pop().expect("there is room");
        self.flights[usize::from(slot)] = InFlightMulticast { seq, bytes, awaits: dst };
        self.bytes += bytes;
        self.seq = seq;
        MulticastHeading { msg: MsgId { sender: self.me, seq }, slot, dst }
    }

    /// `from` has delivered multicast number `seq`.
    ///
    /// # Errors
    /// When nothing of it is awaited.
    pub(crate) fn acknowledge(
        &mut self,
        from: Pid,
        slot: u16,
        seq: u64,
    ) -> Result<(), &'static str> {
        let flight = self.flights.get_mut(usize::from(slot)).ok_or("no such slot")?;
        let group = match self.cluster.has(from) {
            true => self.cluster.group_of(from).ok_or("an acknowledgement of a client")?,
            false => return Err("not of this cluster"),
        };
        if flight.seq != seq || !flight.awaits.contains(group) {
            return Err("an acknowledgement of what is not awaited");
        }
        flight.awaits = GroupSet(flight.awaits.0 & !GroupSet::one(group).0);
        if flight.awaits.is_empty() {
            self.bytes -= flight.bytes;
            self.free.push(slot);
        }
        Ok(())
    }

    /// Tells which destinations have not acknowledged which multicasts.
    pub(crate) fn waiting(&self, tell: &mut dyn FnMut(MsgId, WaitReason)) {
        for flight in &self.flights {
            for g in flight.awaits.iter() {
                tell(MsgId { sender: self.me, seq: flight.seq }, WaitReason::Order(g));
            }
        }
    }

    /// Multicasts in flight.
    pub(crate) fn in_flight(&self) -> usize {
        self.flights.len() - self.free.len()
    }
}

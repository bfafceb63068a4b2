//! Messages for this member alone that came as datagrams before others of their sender: they wait for these.
//!
//! Networks change the order of datagrams, and lose some. Without a place for what comes early, all that follows a lost or
//! late message would have to be sent once more.

use super::CastTransport;
use super::retransmission::IN_FLIGHT_MAX;
use crate::layers::vsync::membership::{GroupMembership, ViewPhase};
use crate::layers::vsync::packet::PacketItem;
use alloc::collections::BTreeMap;
use amcast_core::Pid;
use amcast_core::messages::Lane;
use core::cmp::Ordering;

/// The early messages of one sender, by number.
#[derive(Clone, Debug)]
pub(super) struct EarlyArrivals {
    all: BTreeMap<u64, PacketItem>,
    /// Bytes of their contents.
    bytes: usize,
}

impl EarlyArrivals {
    pub(super) const NONE: Self = Self { all: BTreeMap::new(), bytes: 0 };

    /// Whether there are any.
    pub(super) fn any(&self) -> bool {
        !self.all.is_empty()
    }

    /// Keeps one with so many bytes of contents, if all have no more than `bytes_max` then.
    fn keep(&mut self, number: u64, item: PacketItem, bytes: usize, bytes_max: usize) {
        if self.bytes + bytes <= bytes_max && !self.all.contains_key(&number) {
            self.bytes += bytes;
            self.all.insert(number, item);
        }
    }

    /// The one with this number, which is next: those before it are of no use any more. It stays until it is one of those, since
    /// its receiver may have no room for it yet.
    fn next(&mut self, number: u64) -> Option<PacketItem> {
        while let Some(first) = self.all.first_entry() {
            match first.key().cmp(&number) {
                Ordering::Less => {
                    let place = first.remove().on_link();
                    self.bytes -= place.map_or(0, |place| place.bytes);
                }
                Ordering::Equal => return Some(first.get().clone()),
                Ordering::Greater => return None,
            }
        }
        None
    }
}

impl CastTransport {
    /// Gives a message back that is not early; one that is waits for those before it, and is acknowledged with them. There are no
    /// more than their sender may have on the way.
    pub(crate) fn unless_early(
        &mut self,
        group: &GroupMembership,
        from: Pid,
        item: PacketItem,
    ) -> Option<PacketItem> {
        let Some(place) = item.on_link().filter(|_| self.lane == Lane::Datagram) else {
            return Some(item);
        };
        let is_here = group.phase == ViewPhase::Active && group.shares_view(place.view, from);
        let next = self.channels[from.index()].next();
        if !is_here || place.number <= next {
            return Some(item);
        }
        if place.number - next <= IN_FLIGHT_MAX as u64 {
            let early = &mut self.channels[from.index()].early;
            early.keep(place.number, item, place.bytes, self.channel_bytes);
            self.owe(group, from, false);
        }
        None
    }

    /// The number of the next message of a member.
    pub(crate) fn next_number(&self, from: Pid) -> u64 {
        self.channels[from.index()].next()
    }

    /// The next message of a member, if it came early.
    pub(crate) fn next_early(&mut self, from: Pid) -> Option<PacketItem> {
        let channel = &mut self.channels[from.index()];
        let next = channel.next();
        channel.early.next(next)
    }

    /// Whether something of a member is here that came before what it has to follow.
    pub(super) fn has_gap(&self, group: &GroupMembership, of: Pid) -> bool {
        match group.is_ring() {
            true => self.channels[of.index()].early.any(),
            false => self.log.gap(of),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::sync::Arc;

    fn message(number: u64) -> PacketItem {
        PacketItem::To { view: 1, number, more: false, bytes: Arc::from(&[0; 10][..]) }
    }

    #[test]
    fn early_arrivals_are_taken_in_turn_once_each_and_within_their_bound() {
        let mut early = EarlyArrivals::NONE;
        for number in [5, 3, 3, 4] {
            early.keep(number, message(number), 10, 20);
        }
        assert_eq!(early.bytes, 20, "4 came when there was no more room");
        assert_eq!((early.next(2), early.bytes), (None, 20));
        assert_eq!(early.next(3), Some(message(3)));
        assert_eq!(early.next(3), Some(message(3)), "there was no room for it");
        assert_eq!((early.next(4), early.bytes), (None, 10));
        early.keep(4, message(4), 10, 20);
        assert_eq!(early.next(5), Some(message(5)), "4 came in another way meanwhile");
        assert_eq!(early.next(6), None);
        assert!(!early.any() && early.bytes == 0);
    }
}

//! The packing of outgoing packets: messages of one round to the same process gather, and leave together.

use super::agreement::ViewDecision;
use super::packet::PacketItem;
use super::{Dissemination, VsyncPacket, VsyncSettings};
use alloc::vec::Vec;
use amcast_core::messages::{Lane, MessageOutput, Messages};
use amcast_core::{Gid, Outbox, Pid};
use core::mem;

/// The messages that leave at the end of the round.
#[derive(Debug)]
pub(super) struct OutgoingPackets {
    /// The transport of packets to one process.
    lane: Lane,
    /// Whether a message for all leaves as one packet to the group.
    to_group: bool,
    /// Bytes of a packet, about.
    packet_bytes: usize,
    /// By receiver.
    each: Vec<Vec<PacketItem>>,
    /// Those for all other configured processes.
    all: Vec<PacketItem>,
    /// Bytes of everything, about.
    bytes: usize,
}

impl OutgoingPackets {
    pub(super) fn new(settings: &VsyncSettings) -> Self {
        Self {
            lane: settings.lane,
            to_group: settings.dissemination == Dissemination::Group,
            packet_bytes: settings.packet_bytes,
            each: alloc::vec![Vec::new(); settings.processes],
            all: Vec::new(),
            bytes: 0,
        }
    }

    /// Adds a message for a peer.
    pub(super) fn push(&mut self, to: Pid, item: PacketItem) {
        self.bytes += item.size();
        self.each[to.index()].push(item);
    }

    /// Adds a decision for a peer, unless the same one leaves for that anyway.
    pub(super) fn push_decision(&mut self, to: Pid, decision: &ViewDecision) {
        let is_same = |item: &PacketItem| match item {
            PacketItem::Decide(other) => other.view.id == decision.view.id,
            _ => false,
        };
        if !self.each[to.index()].iter().any(is_same) {
            self.push(to, PacketItem::Decide(decision.clone()));
        }
    }

    /// Adds a message for all other configured processes as one.
    pub(super) fn push_for_all(&mut self, item: PacketItem) {
        self.bytes += item.size();
        self.all.push(item);
    }

    /// Whether something leaves for a peer alone.
    pub(super) fn has_for(&self, to: Pid) -> bool {
        !self.each[to.index()].is_empty()
    }

    /// Whether something leaves for all as one.
    pub(super) const fn has_for_all(&self) -> bool {
        !self.all.is_empty()
    }

    /// Whether nothing is to leave.
    pub(super) const fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Whether there is as much as a packet holds: it leaves before the round ends.
    pub(super) const fn is_full(&self) -> bool {
        self.bytes >= self.packet_bytes
    }

    /// Sends everything, as packets of the sender's present life. A receiver drops casts of a view that it does not know
    /// yet: so the message that names the view leaves before those to the group, and with it, in the same packets, all others for
    /// that receiver. None of these has to follow a message to the group.
    pub(super) fn flush(&mut self, life: u64, out: &mut Outbox<Messages<VsyncPacket>>) {
        let lane = self.lane;
        let to_all = if self.to_group { Lane::Datagram } else { lane };
        let to_one = |to: usize, packet| MessageOutput::To(Pid(to as u32), lane, packet);
        for to in 0..self.each.len() {
            if self.each[to].iter().any(PacketItem::names_view) {
                let items = mem::take(&mut self.each[to]);
                self.pack(items, life, |packet| out.ask(to_one(to, packet)));
            }
        }
        let items = mem::take(&mut self.all);
        self.pack(items, life, |packet| out.ask(MessageOutput::Group(Gid(0), to_all, packet)));
        for to in 0..self.each.len() {
            let items = mem::take(&mut self.each[to]);
            self.pack(items, life, |packet| out.ask(to_one(to, packet)));
        }
        self.bytes = 0;
    }

    /// Puts messages into packets.
    fn pack(&self, items: Vec<PacketItem>, life: u64, mut send: impl FnMut(VsyncPacket)) {
        if items.is_empty() {
            return;
        }
        // Most often all fit into one.
        if self.bytes <= self.packet_bytes || items.len() == 1 {
            return send(VsyncPacket { life, items });
        }
        let mut items = items.into_iter().peekable();
        while items.peek().is_some() {
            let mut packet = VsyncPacket { life, items: Vec::new() };
            let mut bytes = 0;
            let fits = |i: &PacketItem, bytes| bytes == 0 || bytes + i.size() <= self.packet_bytes;
            while let Some(item) = items.next_if(|i| fits(i, bytes)) {
                bytes += item.size();
                packet.items.push(item);
            }
            send(packet);
        }
    }
}

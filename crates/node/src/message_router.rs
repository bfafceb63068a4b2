//! The post of a node: messages between the processes that it hosts and those of other nodes.
//!
//! Two nodes have one connection, for any number of processes: the carrier's peers are nodes, by
//! rank. Each message travels with an address in front.
//!
//! ```text
//! from     1 byte, the group whose replica at the sending node sent it
//! to       1 byte, the group whose replica at this node it is for
//! message  the rest
//! ```
//!
//! Between two processes that is one stream, in order, and the messages of two groups share it: a
//! slow reader delays all. A message to a process of the same node never leaves it. It waits in a
//! queue of the node and is delivered in the same round, behind the connections' input, in order;
//! so it cannot be lost. Messages that it causes are delivered in the same round, too, as long as
//! the round is bounded ([`TURNS_MAX`]).

use crate::driver_core::MediumDriver;
use amcast_core::messages::{Frames, Lane, MessageOutput};
use amcast_core::step::{Outbox, Output};
use amcast_core::{ClusterShape, Gid, Pid};
use amcast_net::Carrier;
use std::collections::VecDeque;

/// How long the address is, in bytes.
pub(crate) const ADDRESS_BYTES: usize = 2;

/// How often in a round what is put in within the node is given out: a message, what it causes, and so
/// on. The connections have their turn then.
pub(crate) const TURNS_MAX: usize = 8;

/// A message that came from another node.
pub(crate) struct ReceivedMessage<'a> {
    /// The group whose replica sent it.
    pub(crate) from: Gid,
    /// The group whose replica it is for.
    pub(crate) to: Gid,
    /// The message.
    pub(crate) message: &'a [u8],
}

impl<'a> ReceivedMessage<'a> {
    /// Reads what came from a node of a cluster with so many groups; none if no process is meant.
    pub(crate) fn read(frame: &'a [u8], groups: usize) -> Option<Self> {
        let (&[from, to], message) = frame.split_first_chunk::<ADDRESS_BYTES>()?;
        let known = usize::from(from.max(to)) < groups;
        known.then_some(Self { from: Gid(from), to: Gid(to), message })
    }
}

/// A message between two processes of the node, which lies in [`InternalMessages::bytes`].
#[derive(Clone, Copy)]
struct InternalMessage {
    from: Gid,
    to: Gid,
    bytes: usize,
}

/// The messages between processes of the node since the last delivery, in order.
#[derive(Default)]
pub(crate) struct InternalMessages {
    slips: Vec<InternalMessage>,
    bytes: Vec<u8>,
}

impl InternalMessages {
    fn put(&mut self, from: Gid, to: Gid, message: &[u8]) {
        self.slips.push(InternalMessage { from, to, bytes: message.len() });
        self.bytes.extend_from_slice(message);
    }

    /// The messages: from whom, to whom, and what.
    pub(crate) fn messages(&self) -> impl Iterator<Item = ReceivedMessage<'_>> {
        let mut rest = &self.bytes[..];
        self.slips.iter().map(move |&InternalMessage { from, to, bytes }| {
            let (message, tail) = rest.split_at(bytes);
            rest = tail;
            ReceivedMessage { from, to, message }
        })
    }
}

/// A buffer that grew beyond this, in bytes, is given back once it is empty.
const BUFFER_BYTES_KEPT: usize = 1 << 20;

/// A message that waits for its sender's log.
struct HeldMessage {
    /// Which records the log must have.
    behind: u64,
    to: Gid,
    rank: usize,
    lane: Lane,
    message: Box<[u8]>,
}

/// The messages of a process of the node that are held back.
#[derive(Default)]
struct ProcessOutbox {
    /// Its new messages wait until its log has the records before this number.
    behind: u64,
    /// Its log has those before this one.
    written: u64,
    held: VecDeque<HeldMessage>,
}

impl ProcessOutbox {
    /// Holds a message back; gives the bytes of it.
    fn hold(&mut self, held: HeldMessage) -> usize {
        let bytes = held.message.len();
        self.held.push_back(held);
        bytes
    }
}

/// The post of a node.
pub(crate) struct MessageRouter {
    cluster: ClusterShape,
    rank: usize,
    pub(crate) carrier: Carrier,
    inside: InternalMessages,
    /// The empty buffers of what was given out last.
    spare: InternalMessages,
    /// A message with its address.
    frame: Vec<u8>,
    /// By group of the sender.
    lines: Vec<ProcessOutbox>,
    held_bytes: usize,
    /// Whether what is for all of a group may leave as one datagram.
    multicasts: bool,
}

impl MessageRouter {
    /// The post of node `rank`, whose carrier this is.
    pub(crate) fn new(
        cluster: ClusterShape,
        rank: usize,
        (carrier, multicasts): (Carrier, bool),
    ) -> Self {
        let (inside, spare) = (InternalMessages::default(), InternalMessages::default());
        let lines = (0..cluster.groups()).map(|_| ProcessOutbox::default()).collect();
        let frame = Vec::new();
        let held_bytes = 0;
        Self { cluster, rank, carrier, inside, spare, frame, lines, held_bytes, multicasts }
    }

    /// The sender for the node's replica of `group`.
    pub(crate) fn of(&mut self, group: Gid) -> ReplicaRouter<'_> {
        ReplicaRouter { post: self, group }
    }

    /// Bytes that processes of the node have for each other, and that are held back.
    pub(crate) fn waiting_bytes(&self) -> usize {
        self.inside.bytes.len() + self.held_bytes
    }

    /// The log of the replica of `group` has the records before `written`: what waited for them goes
    /// out. Whether anything did.
    pub(crate) fn release(&mut self, group: Gid, written: u64) -> bool {
        self.lines[group.index()].written = written;
        let mut any = false;
        loop {
            let held = &mut self.lines[group.index()].held;
            if held.front().is_none_or(|held| held.behind > written) {
                return any;
            }
            let Some(held) = held.pop_front() else { return any };
            self.held_bytes -= held.message.len();
            self.pass(group, (held.to, held.rank), held.lane, &held.message);
            any = true;
        }
    }

    /// The connection to a node broke: what is held back for it is lost.
    pub(crate) fn drop_held(&mut self, rank: usize) {
        for line in &mut self.lines {
            line.held.retain(|held| held.rank != rank);
        }
        let held = self.lines.iter().flat_map(|line| &line.held);
        self.held_bytes = held.map(|held| held.message.len()).sum();
    }

    /// Whether they have anything for each other.
    pub(crate) fn has_inside(&self) -> bool {
        !self.inside.slips.is_empty()
    }

    /// Takes out what they have for each other; give it back to [`MessageRouter::put_back`] when done.
    pub(crate) fn take_inside(&mut self) -> InternalMessages {
        std::mem::replace(&mut self.inside, std::mem::take(&mut self.spare))
    }

    /// Keeps the buffers of what was given out.
    pub(crate) fn put_back(&mut self, mut given: InternalMessages) {
        given.slips.clear();
        given.bytes.clear();
        if given.bytes.capacity() <= BUFFER_BYTES_KEPT {
            self.spare = given;
        }
    }

    fn send(&mut self, from: Gid, (to, rank): (Gid, usize), lane: Lane, message: &[u8]) {
        let line = &mut self.lines[from.index()];
        if line.behind > line.written || !line.held.is_empty() {
            let (behind, message) = (line.behind, Box::from(message));
            self.held_bytes += line.hold(HeldMessage { behind, to, rank, lane, message });
            return;
        }
        self.pass(from, (to, rank), lane, message);
    }

    fn pass(&mut self, from: Gid, (to, rank): (Gid, usize), lane: Lane, message: &[u8]) {
        if rank == self.rank {
            return self.inside.put(from, to, message);
        }
        let node = Pid(rank as u32);
        if lane == Lane::Stream {
            return self.carrier.carry_parts(node, &[from.0, to.0], message);
        }
        self.address(from, to, message);
        self.carrier.carry(&MessageOutput::To(node, lane, ()), &self.frame);
    }

    /// Sends to all of a group, as one where the carrier can.
    fn send_to_all(&mut self, from: Gid, to: Gid, lane: Lane, message: &[u8]) {
        let line = &self.lines[from.index()];
        let waits = line.behind > line.written || !line.held.is_empty();
        if self.multicasts && lane == Lane::Datagram && !waits {
            self.address(from, to, message);
            // To the carrier all nodes are one group, with this one: it hears itself.
            return self.carrier.carry(&MessageOutput::Group(Gid(0), lane, ()), &self.frame);
        }
        for rank in 0..self.cluster.replicas() {
            self.send(from, (to, rank), lane, message);
        }
    }

    fn address(&mut self, from: Gid, to: Gid, message: &[u8]) {
        self.frame.clear();
        if self.frame.capacity() > BUFFER_BYTES_KEPT {
            self.frame = Vec::new();
        }
        self.frame.extend_from_slice(&[from.0, to.0]);
        self.frame.extend_from_slice(message);
    }

    /// Group and node of a replica. Panics if it is none: the protocol was not built for this cluster.
    fn place(&self, of: Pid) -> (Gid, usize) {
        let replicas = self.cluster.replicas();
        let group = self.cluster.group_of(of).expect("where members broadcast, all are replicas");
        (group, of.index() % replicas)
    }
}

/// Where one replica of the node has its messages taken.
pub(crate) struct ReplicaRouter<'a> {
    post: &'a mut MessageRouter,
    group: Gid,
}

impl MediumDriver<Frames> for ReplicaRouter<'_> {
    fn view(&self) {}

    fn carry(&mut self, outbox: &Outbox<Frames>) {
        for item in outbox.items() {
            match item {
                Output::Medium(MessageOutput::To(to, lane, frame)) => {
                    let to = self.post.place(*to);
                    self.post.send(self.group, to, *lane, outbox.bytes(*frame));
                }
                Output::Medium(MessageOutput::Group(to, lane, frame)) => {
                    self.post.send_to_all(self.group, *to, *lane, outbox.bytes(*frame));
                }
                _ => {}
            }
        }
    }

    fn wait_for(&mut self, record: u64) {
        self.post.lines[self.group.index()].behind = record;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_letter_reads_back_and_one_for_nobody_is_none() {
        let frame = [1, 2, b'x', b'y'];
        let received = ReceivedMessage::read(&frame, 3).unwrap();
        assert_eq!((received.from, received.to, received.message), (Gid(1), Gid(2), &b"xy"[..]));
        assert!(ReceivedMessage::read(&[0, 0], 1).unwrap().message.is_empty());
        assert!(ReceivedMessage::read(&frame, 2).is_none(), "there is no group 2");
        assert!(ReceivedMessage::read(&[2, 0, 1], 2).is_none());
        assert!(
            ReceivedMessage::read(&[0], 1).is_none() && ReceivedMessage::read(&[], 1).is_none()
        );
    }

    #[test]
    fn what_is_sent_within_a_node_comes_out_in_its_order() {
        let mut inside = InternalMessages::default();
        inside.put(Gid(0), Gid(1), b"one");
        inside.put(Gid(1), Gid(1), b"");
        inside.put(Gid(2), Gid(0), b"three");
        let all: Vec<_> =
            inside.messages().map(|l| (l.from.0, l.to.0, l.message.to_vec())).collect();
        assert_eq!(all, [(0, 1, b"one".to_vec()), (1, 1, vec![]), (2, 0, b"three".to_vec())]);
    }
}

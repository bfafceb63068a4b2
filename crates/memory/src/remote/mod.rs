//! The memory of other hosts: writes, reads and permissions over connections between nodes.
//!
//! A *node* is a process of the operating system with the processes of a protocol that live in it; [`RemoteMap`]
//! says which, and which nodes share memory. A carrier stores to processes that share memory with it
//! as it always does; what it posts to the others goes through the [`RemoteMemory`] of its node. There the
//! accesses wait for the node's *agent* ([`MemoryAgent`]), a thread that runs no protocol. It hands them to the connection
//! and carries out what comes from other nodes: it maps the memory of the processes of its own node and
//! stores as their writers would. Nothing here knows a socket; the caller connects the agent to one.
//!
//! ```text
//!  writer's host                                      owner's host
//!  loop: post --> RemoteLink (queue) --> agent  ===>  agent: permission, bounds, incarnation; stores; rings the bell
//!  loop <-- RemoteInbox <-------------- agent  <===  agent: the outcomes, in order
//! ```
//!
//! # Frames
//! `frames.rs` has each byte. A connection begins with `Open` from either side, answered with `Opened` and `Lives`. Then
//! `Write` and `Read` go one way, `Outcomes` and `Words` the other way, `Lives` when a process starts or ends, and
//! `Health` when a node gets or loses something that the others must know before one of them may begin anew. An agent carries out
//! accesses by their numbers without a hole: another one than the next ends the connection.
//!
//! # Order
//! A node numbers its accesses to another node, and the connection keeps their order, so law 2 of
//! [`amcast_core::memory`] holds per node: more than per region. The agent stores line after line, the stamp last, with
//! the same code as a carrier of its host (law 1). A frame is stored only when all of it is there, so a
//! writer that dies leaves no line half written.
//!
//! # Connections that break
//! Accesses that are not answered are `Lost` when the connection is lost, and those that are posted meanwhile are `Lost` at
//! once. All of it stays in the queue. The next connection begins with the number up to which the agent carried out
//! what came before, and the rest follows, once each: between processes that live there are no gaps. Before the first
//! connection nothing is kept, and the protocol receives `Fresh` when there is one (law 5).
//!
//! A queue has a bound, [`QUEUE_BYTES_MAX`]. If it is reached, its content is dropped and there is a gap. The other
//! node learns that from the next `Open`, and does not open the connection: one of the two has to begin anew, with memory that
//! is zeroed. Which one, and when, the nodes agree on (`restart.rs`), so that a majority keeps its memory: it asks
//! [`MemoryAgent::begins_anew`]. While there is no connection, a write over the very lines of the last one to its region
//! takes the place of that one, so that counters that are written again and again do not fill the queue.
//!
//! # Nodes that are silent
//! A process that is stopped answers nothing, and its connection stays: its system takes what is sent to it. The caller finds that out,
//! and gives it up ([`MemoryAgent::abandon`]). From then on until the node answers an access, accesses to it are `Lost` as without
//! a connection, those that are under way first, and each is answered once. Nothing else changes: writes stay in the queue and on the
//! connection in their order, and land when the process runs again, unless it has revoked the permission. So a writer may use
//! its lines again, which were copied when it posted them, and learns of the node by what that writes. Once half of the queue is taken
//! accesses wait for their answers again, which holds back the protocols: so the queue does not overflow before the connection
//! is ended, and no node begins anew because of a short pause.
//!
//! # No late write
//! The agent of a node takes part in one connection to each other node. An `Open` begins a new one: nothing that
//! arrives on the one before is carried out any more. A frame names the incarnation of its owner that the
//! writer's protocol knows; for any other the outcome is `Lost` (law 5). And it is judged by the permission at
//! the time at which it is carried out, not at which it was posted.
//!
//! # Revocation
//! The agent is a writer like any other and follows `guard.rs`, so `Written` implies that reads after a later
//! revocation see the write (law 3). In addition it announces that it stores, in a word beside the guard, and
//! the owner's revocation waits until it does not: when it returns, nothing of the writer can land
//! any more. See `LandingFlag` in `guard.rs`.
//!
//! # Strangers
//! The connection has to prove that the other end is that node; here nothing else is believed. The writer of a frame is
//! a process of the node that sent it, and the one writer of its region; the lines are within the region; the
//! length is that of the lines. A frame that breaks the first or the last rule ends the connection.

mod agent;
mod frames;
mod inbox;
mod link;
mod restart;
#[cfg(test)]
mod tests;

pub use agent::{FrameSink, MemoryAgent, RemoteFault};
pub use frames::{FRAME_BYTES_MAX, LINES_MAX, judge_frame};
pub use link::{QUEUE_BYTES_MAX, SentAccess};

use crate::layout::ProcessLayout;
use amcast_core::id::Pid;
use amcast_core::memory::{LineRange, RegionId, WriteSource};
use amcast_core::step::Ticket;
use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use frames::{AccessHead, RemoteAccess};
use inbox::RemoteInbox;
pub(crate) use inbox::{RemoteAnswers, RemoteFate};
use link::{Posted, RemoteLink};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Which node each process lives in, and which nodes share memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RemoteMap {
    /// This node.
    pub here: usize,
    /// How many nodes there are.
    pub nodes: usize,
    /// The node of each process.
    pub node_of: Vec<usize>,
    /// The nodes that share memory with this one at its start, itself among them.
    pub near: Vec<usize>,
    /// The node whose gateways may have each client place.
    pub places: Vec<usize>,
    /// No process of this node begins an incarnation below this: other hosts may know earlier ones that the directory does
    /// not.
    pub first_incarnation: u32,
}

/// The way to the memory of other hosts, for all carriers of a node. Cloned freely.
#[derive(Clone)]
pub struct RemoteMemory(Arc<RemoteState>);

struct RemoteState {
    map: RemoteMap,
    /// The number of this start of the node, which no other start has.
    start: u64,
    /// By node.
    links: Vec<Mutex<RemoteLink>>,
    /// By process: the incarnation in which it may be written to, as its node says; 0 for none.
    live: Vec<AtomicU64>,
    /// By node: whether it shares no memory with this one.
    far: Vec<AtomicBool>,
    /// Counts changes of any of them.
    changes: AtomicU64,
    /// By process.
    inboxes: Vec<RemoteInbox>,
    /// Wakes the thread of the agent.
    wake: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl fmt::Debug for RemoteMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RemoteMemory(node {} of {})", self.0.map.here, self.0.map.nodes)
    }
}

/// The poster of an access: a process, its incarnation, and its memory.
#[derive(Clone, Copy)]
pub(crate) struct RemotePoster<'a> {
    pub(crate) pid: Pid,
    pub(crate) incarnation: u64,
    pub(crate) own: &'a ProcessLayout,
}

/// The target of an access: a process in an incarnation, and the first line.
#[derive(Clone, Copy)]
pub(crate) struct RemoteTarget {
    pub(crate) pid: Pid,
    pub(crate) incarnation: u64,
    pub(crate) region: RegionId,
    pub(crate) at: u32,
}

impl RemoteMemory {
    /// The way to other nodes for the node that `map` names as its own. `start` distinguishes this start of the node
    /// from all others, and is not 0.
    pub fn new(map: RemoteMap, start: u64) -> Self {
        let links = (0..map.nodes).map(|_| Mutex::new(RemoteLink::new())).collect();
        let live = map.node_of.iter().map(|_| AtomicU64::new(0)).collect();
        let inboxes = map.node_of.iter().map(|_| RemoteInbox::default()).collect();
        let far = (0..map.nodes).map(|node| AtomicBool::new(!map.near.contains(&node))).collect();
        let (changes, wake) = (AtomicU64::new(0), OnceLock::new());
        Self(Arc::new(RemoteState { map, start, links, live, far, changes, inboxes, wake }))
    }

    /// Has this wake the thread of the agent from now on. The first call counts.
    pub fn wake_with(&self, wake: Box<dyn Fn() + Send + Sync>) {
        // A node has one agent.
        let _ = self.0.wake.set(wake);
    }

    /// Which process lives where.
    pub fn map(&self) -> &RemoteMap {
        &self.0.map
    }

    pub(crate) fn start(&self) -> u64 {
        self.0.start
    }

    /// Wakes the agent: there is something to send.
    pub(crate) fn wake(&self) {
        if let Some(wake) = self.0.wake.get() {
            wake();
        }
    }

    /// Whether a process shares no memory with this node.
    #[inline]
    pub(crate) fn is_far(&self, pid: Pid) -> bool {
        self.0.map.node_of.get(pid.index()).is_some_and(|&node| !self.shares_with(node))
    }

    /// Whether a node shares memory with this one.
    #[inline]
    pub fn shares_with(&self, node: usize) -> bool {
        // Pairs with the release store in `move_away`.
        !self.0.far[node].load(Ordering::Acquire)
    }

    /// A node that shared memory with this one, and of which no process lives there any more, is reached over its connection from
    /// now on.
    pub(crate) fn move_away(&self, node: usize) {
        self.0.far[node].store(true, Ordering::Release);
        self.0.changes.fetch_add(1, Ordering::Release);
    }

    /// Whether gateways of this node may have the client place.
    pub(crate) fn has_place(&self, place: u32) -> bool {
        self.0.map.places.get(place as usize) == Some(&self.0.map.here)
    }

    /// The incarnation of a process of another host; 0 if none is known.
    #[inline]
    pub(crate) fn live(&self, pid: Pid) -> u64 {
        self.0.live[pid.index()].load(Ordering::Acquire)
    }

    /// Counts changes of [`RemoteMemory::live`].
    pub(crate) fn changes(&self) -> u64 {
        // Pairs with the release increment in `set_live`.
        self.0.changes.load(Ordering::Acquire)
    }

    /// A process of another host is in this incarnation; whether that is new.
    pub(crate) fn set_live(&self, pid: Pid, incarnation: u64) -> bool {
        let is_new = self.0.live[pid.index()].swap(incarnation, Ordering::Release) != incarnation;
        if is_new {
            self.0.changes.fetch_add(1, Ordering::Release);
        }
        is_new
    }

    pub(crate) fn link(&self, node: usize) -> MutexGuard<'_, RemoteLink> {
        // A panic in a section leaves a queue whose numbers are in order.
        self.0.links[node].lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn inbox(&self, pid: Pid) -> &RemoteInbox {
        &self.0.inboxes[pid.index()]
    }

    /// Has the queue of accesses to a node take so many bytes at most from now on, for tests.
    #[cfg(feature = "conformance")]
    pub fn bound_queue(&self, node: usize, bytes_max: usize) {
        self.link(node).bound(bytes_max);
    }

    /// Bytes of accesses that wait for a node, or for its answers.
    pub fn backlog(&self, node: usize) -> usize {
        self.link(node).backlog()
    }

    /// The oldest access that was handed over to a node's connection and is not answered.
    pub fn oldest_sent(&self, node: usize) -> Option<SentAccess> {
        self.link(node).oldest_sent()
    }

    /// Whether the connection to a node is open for accesses.
    pub fn is_open(&self, node: usize) -> bool {
        self.link(node).is_open()
    }

    /// Posts a write. The caller wakes the agent once it has posted all.
    pub(crate) fn write(
        &self,
        from: RemotePoster<'_>,
        to: RemoteTarget,
        source: &WriteSource,
        (ticket, bell): (Option<Ticket>, bool),
    ) {
        let count = source.count();
        let head = AccessHead { is_read: false, wants: ticket.is_some(), bell, from: from.pid, to };
        let access = RemoteAccess { head, count };
        self.put(from, ticket, access, |bytes| match source {
            WriteSource::Copy(range) => put_lines(from.own, *range, None, bytes),
            WriteSource::Made { head, stamp, rest } => {
                head.iter().for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
                bytes.extend_from_slice(&stamp.0.to_le_bytes());
                put_lines(from.own, *rest, Some(stamp.0), bytes);
            }
        });
    }

    /// Posts a read. The caller wakes the agent once it has posted all.
    pub(crate) fn read(
        &self,
        from: RemotePoster<'_>,
        to: RemoteTarget,
        count: u32,
        ticket: Ticket,
    ) {
        let head = AccessHead { is_read: true, wants: true, bell: false, from: from.pid, to };
        self.put(from, Some(ticket), RemoteAccess { head, count }, |_| {});
    }

    /// An access to a process that the poster's protocol does not know in its present incarnation: its outcome is `Lost`,
    /// behind those of the accesses before it. Where some of them are under way it is asked for, too.
    pub(crate) fn lose(&self, from: RemotePoster<'_>, pid: Pid, ticket: Option<Ticket>) {
        let Some(ticket) = ticket else { return };
        // No process is in this incarnation.
        let to = RemoteTarget { pid, incarnation: 0, region: RegionId(0), at: 0 };
        self.read(from, to, 0, ticket);
    }

    fn put(
        &self,
        from: RemotePoster<'_>,
        ticket: Option<Ticket>,
        access: RemoteAccess,
        fill: impl FnOnce(&mut Vec<u8>),
    ) {
        // One lock for each access to another host: other loops of this node post to the same queue, and the
        // agent takes from it. It is held for a copy of the lines.
        let mut link = self.link(self.0.map.node_of[access.head.to.pid.index()]);
        let poster = (from.pid, from.incarnation);
        let posted = link.post(poster, ticket, access, fill, &mut |pid, life, ticket| {
            self.inbox(pid).put(life, ticket, RemoteFate::Lost);
        });
        if let (Posted::Lost, Some(ticket)) = (posted, ticket) {
            self.inbox(from.pid).put(from.incarnation, ticket, RemoteFate::Lost);
        }
    }
}

/// Appends lines of the process's own, under another stamp if one is given.
fn put_lines(own: &ProcessLayout, range: LineRange, stamp: Option<u64>, bytes: &mut Vec<u8>) {
    if range.count == 0 {
        return;
    }
    let place = own.place(usize::from(range.region.0)).expect("a region of its own");
    let lines = &own.lines(place)[range.at as usize..(range.at + range.count) as usize];
    for line in lines {
        // The stamp first, as in a read.
        let stamp = stamp.unwrap_or(line.stamp().0);
        line.words().iter().for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
        bytes.extend_from_slice(&stamp.to_le_bytes());
    }
}

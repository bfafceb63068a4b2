//! The agent of a node: carries out what other nodes ask of the memory here, and hands over what is asked of theirs.

use super::RemoteMemory;
use super::frames::{
    self, DENIED, LINE_BYTES, LOST, NodeHealth, REFUSED, RemoteAccess, RemoteFrame, WORDS_LINES,
    WRITTEN,
};
use super::inbox::RemoteFate;
use super::link::{OnLost, READS_BYTES_MAX, RemoteLink};
use super::restart::RestartVote;
use crate::carrier::within;
use crate::directory::Directory;
use crate::doorbell;
use crate::guard::{Fence, LandingFlag, RegionGuard, SharedWord};
use crate::layout::{ProcessLayout, RegionLocation};
use amcast_core::id::Pid;
use amcast_core::memory::{CacheLine, LineStamp};
use core::fmt;
use core::sync::atomic::AtomicU64;
use core::time::Duration;

/// Why the connection to a node is to be ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RemoteFault {
    /// A frame is none of this format, or comes when it makes no sense.
    Malformed,
    /// A frame is of a process that does not live in the node that sent it, or to one that does not live here.
    Foreign(Pid),
    /// So much waited for the node that it was dropped.
    Overflow,
    /// The memory of a process of this node could not be mapped for its accesses, which are sent again.
    NoRoom(Pid),
    /// It has answered no access for so long, though its system takes them: it does not run.
    Stalled(Duration),
}

impl fmt::Display for RemoteFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed => f.write_str(
                "it sent a frame that makes no sense; give both nodes the same version of this program",
            ),
            Self::Foreign(pid) => write!(
                f,
                "it sent a frame of or to {pid:?}, which is not its to send; give all nodes the same \
                 configuration"
            ),
            Self::Overflow => write!(
                f,
                "over {} MB waited for it, and were dropped: one of the two nodes has to begin anew",
                super::QUEUE_BYTES_MAX >> 20
            ),
            Self::NoRoom(pid) => write!(
                f,
                "the memory of {pid:?} cannot be mapped for its accesses; look at the limits of open files and memory"
            ),
            Self::Stalled(silence) => write!(
                f,
                "it has answered no access for {} s, though its system takes them",
                silence.as_secs()
            ),
        }
    }
}

/// Where frames go: the connections to the other nodes.
pub trait FrameSink {
    /// How many bytes of accesses the connection to a node takes for now. It takes a frame that begins within them.
    fn room(&self, node: usize) -> usize;
    /// Sends a frame to a node. It is lost if there is no connection.
    fn send(&mut self, node: usize, frame: &[u8]);
    /// Ends the connection to a node.
    fn end(&mut self, node: usize, why: RemoteFault);
}

/// How many bytes of accesses are copied out of a queue at a time: loops post to it meanwhile.
const CHUNK_BYTES: usize = 64 << 10;

/// The accesses of another node to memory here.
#[derive(Default)]
struct RemoteWriter {
    /// The start of that node; 0 before it said any.
    start: u64,
    /// The number of the last access that was carried out.
    applied: u64,
    /// Up to which number it has learnt that.
    told: u64,
    /// Outcomes that it is to receive.
    fates: Vec<(u64, u8)>,
    /// Bytes of lines that it has asked for since it was answered last.
    asked: usize,
    /// Frames that it has sent, on all connections.
    frames: u64,
    /// Whether the connection is open for accesses.
    open: bool,
    /// Whether there is a connection.
    connected: bool,
    /// Whether it has begun to use it.
    greeted: bool,
    /// It dropped accesses to this node, so it cannot open the connection.
    gap: bool,
    /// The health of this node that was sent last on this connection.
    told_health: Option<NodeHealth>,
}

/// Frames that wait to be sent, one behind the other.
#[derive(Default)]
pub(super) struct AgentFrames {
    bytes: Vec<u8>,
    /// For each the node and where it ends.
    ends: Vec<(usize, usize)>,
}

impl AgentFrames {
    pub(super) fn put(&mut self, node: usize, fill: impl FnOnce(&mut Vec<u8>)) {
        fill(&mut self.bytes);
        self.ends.push((node, self.bytes.len()));
    }

    /// Sends them all; whether there were any.
    pub(super) fn send(&mut self, to: &mut dyn FrameSink) -> bool {
        let mut begin = 0;
        for &(node, end) in &self.ends {
            to.send(node, &self.bytes[begin..end]);
            begin = end;
        }
        self.bytes.clear();
        self.ends.clear();
        begin > 0
    }
}

/// The agent of a node. One thread owns it, together with the connections to the other nodes.
///
/// For each round of that thread: [`MemoryAgent::up`], [`MemoryAgent::down`] and [`MemoryAgent::frame`] as the
/// connections say, then [`MemoryAgent::flush`].
pub struct MemoryAgent {
    memory: RemoteMemory,
    directory: Directory,
    /// By node.
    writers: Vec<RemoteWriter>,
    /// By process of this node: the incarnation whose memory is mapped, and its memory.
    mapped: Vec<Option<(u64, ProcessLayout)>>,
    /// The directory's count of changes at the last look.
    changes_seen: u64,
    /// Processes whose bells are to be rung.
    rings: Vec<Pid>,
    out: AgentFrames,
    /// Accesses that are handed over to a connection.
    accesses: AgentFrames,
    /// The agreement on who begins anew where accesses were dropped.
    vote: RestartVote,
    /// Something has changed that it depends on.
    vote_due: bool,
    /// Whether the replicas of this node are fit, and the nodes that lag one that leads.
    is_fit: bool,
    lagging: u64,
    /// Accesses carried out, and those denied, lost or refused.
    counts: [u64; 2],
}

impl fmt::Debug for MemoryAgent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemoryAgent({:?})", self.memory)
    }
}

impl MemoryAgent {
    /// The agent of the node whose processes are in this directory, which has a way to other hosts
    /// ([`Directory::with_remote`]).
    ///
    /// # Panics
    /// When it has none.
    pub fn new(directory: Directory) -> Self {
        let memory = directory.remote().expect("a directory with a way to other hosts").clone();
        let writers = (0..memory.map().nodes).map(|_| RemoteWriter::default()).collect();
        let mapped = memory.map().node_of.iter().map(|_| None).collect();
        let vote = RestartVote::new((memory.map().here, memory.start()), memory.map().nodes);
        Self {
            memory,
            directory,
            writers,
            mapped,
            changes_seen: 0,
            rings: Vec::new(),
            out: AgentFrames::default(),
            accesses: AgentFrames::default(),
            vote,
            vote_due: false,
            is_fit: false,
            lagging: 0,
            counts: [0; 2],
        }
    }

    /// The way to other hosts that it serves.
    pub fn memory(&self) -> &RemoteMemory {
        &self.memory
    }

    /// Whether a node on the present connection dropped accesses to this one, which it could not keep as long as this one was out of
    /// its reach, or this one dropped accesses to that node. Nothing more is carried out until one of the two has begun anew.
    pub fn has_gap(&self, node: usize) -> bool {
        self.writers[node].gap || self.vote.lacks_ours(node)
    }

    /// Whether this node is to begin anew, in a later incarnation of all of its processes: there is a gap, and a majority of other nodes
    /// that is fit has granted it. It may not stay as it is.
    pub fn begins_anew(&self) -> bool {
        self.vote.is_granted()
    }

    /// Whether the replicas of this node have all of their state. As long as nobody says so, no other node begins anew
    /// because of a gap where it would need this one's memory. In `lagging` the bit of each node is set for whose replica one of this
    /// node's, as the leader, does not wait: no node counts these as fit.
    pub fn set_fit(&mut self, is_fit: bool, lagging: u64) {
        self.vote_due |= (self.is_fit, self.lagging) != (is_fit, lagging);
        (self.is_fit, self.lagging) = (is_fit, lagging);
    }

    /// Accesses of other nodes that were carried out, and those that were denied, lost or refused. Only grows.
    pub fn counts(&self) -> [u64; 2] {
        self.counts
    }

    /// There is a new connection to a node.
    pub fn up(&mut self, node: usize) {
        self.down(node);
        self.writers[node].connected = true;
        let (link, start) = (self.memory.link(node), self.memory.start());
        self.out.put(node, |bytes| link.greet(start, bytes));
    }

    /// The connection to a node is gone, with everything that is on its way.
    pub fn down(&mut self, node: usize) {
        let writer = &mut self.writers[node];
        (writer.open, writer.connected, writer.asked) = (false, false, 0);
        (writer.greeted, writer.gap, writer.told_health) = (false, false, None);
        writer.fates.clear();
        self.vote.lose(node);
        self.vote_due = true;
        self.discard(node);
        self.lose(node, RemoteLink::lose);
    }

    /// A node has answered nothing for long, though its connection stays. Accesses to it are `Lost` until it answers one, those that
    /// are under way included. They stay on their way, in their order.
    pub fn abandon(&mut self, node: usize) {
        self.lose(node, RemoteLink::abandon);
    }

    /// Answers accesses to a node with `Lost`, those that `which` gives.
    fn lose(&mut self, node: usize, which: fn(&mut RemoteLink, OnLost<'_>)) {
        let Self { memory, rings, .. } = self;
        let mut link = memory.link(node);
        which(&mut link, &mut |pid, life, ticket| {
            memory.inbox(pid).put(life, ticket, RemoteFate::Lost);
            ring_later(rings, pid);
        });
    }

    /// How many frames a node has sent to this one. Only grows: a node that sends something runs.
    pub fn frames_of(&self, node: usize) -> u64 {
        self.writers[node].frames
    }

    /// Forgets what waits to be sent to a node.
    fn discard(&mut self, node: usize) {
        if self.out.ends.iter().all(|&(to, _)| to != node) {
            return;
        }
        let AgentFrames { bytes, ends } = core::mem::take(&mut self.out);
        let mut begin = 0;
        for (to, end) in ends {
            if to != node {
                self.out.put(to, |out| out.extend_from_slice(&bytes[begin..end]));
            }
            begin = end;
        }
    }

    /// A frame of a node arrived.
    ///
    /// # Errors
    /// When the connection is to be ended.
    pub fn frame(&mut self, node: usize, bytes: &[u8]) -> Result<(), RemoteFault> {
        self.writers[node].frames += 1;
        let frame = frames::decode(bytes).ok_or(RemoteFault::Malformed)?;
        let right = match frame {
            RemoteFrame::Open { start, peer, oldest } => self.opens(node, [start, peer, oldest]),
            RemoteFrame::Opened { start, writer, applied } => {
                let mut link = self.memory.link(node);
                let is_right = start != 0 && !link.is_open();
                if is_right && writer == self.memory.start() {
                    link.opened(start, applied);
                    self.vote_due = true;
                }
                is_right
            }
            RemoteFrame::Lives(all) => return self.hear_lives(node, all),
            RemoteFrame::Access { access, number, lines } => {
                return self.access(node, (access, number), lines);
            }
            RemoteFrame::Outcomes { upto, fates } => self.hear_outcomes(node, upto, fates),
            RemoteFrame::Health(health) => {
                let writer = &self.writers[node];
                if writer.greeted {
                    self.vote.hear(node, writer.start, health);
                    self.vote_due = true;
                }
                writer.greeted
            }
            RemoteFrame::Words { number, more, lines } => {
                let Self { memory, rings, .. } = self;
                let mut tell = |pid, life, ticket, words: &[_]| {
                    let fate = RemoteFate::Words { count: words.len() };
                    memory.inbox(pid).put_words(life, ticket, fate, words);
                    ring_later(rings, pid);
                };
                let mut link = memory.link(node);
                !link.is_open() || link.words((number, more), frames::lines(lines), &mut tell)
            }
        };
        if right { Ok(()) } else { Err(RemoteFault::Malformed) }
    }

    /// A node begins to use the connection.
    fn opens(&mut self, node: usize, [start, peer, oldest]: [u64; 3]) -> bool {
        let own = self.memory.start();
        let writer = &mut self.writers[node];
        // Once: outcomes that are owed to an open connection would be missing.
        if start == 0 || !writer.connected || writer.greeted {
            return false;
        }
        writer.greeted = true;
        self.vote_due = true;
        if writer.start == start && peer == own {
            if oldest.saturating_sub(1) > writer.applied {
                // Dropped accesses were meant for this memory, and later ones must not land behind the gap.
                writer.gap = true;
                return true;
            }
        } else {
            (writer.start, writer.applied) = (start, 0);
        }
        writer.told = writer.applied;
        writer.open = true;
        let applied = writer.applied;
        // In this order: who learns that a process lives keeps what it posts from then on.
        self.out.put(node, |bytes| frames::encode_opened([own, start, applied], bytes));
        self.tell_lives(node);
        true
    }

    /// Tells a node in which incarnations the processes of this one may be written to.
    fn tell_lives(&mut self, node: usize) {
        let Self { memory, directory, out, .. } = self;
        let map = memory.map();
        let own = (0..).zip(&map.node_of).filter(|&(_, of)| *of == map.here);
        let lives = own.map(|(pid, _)| (Pid(pid), directory.layout().live(Pid(pid))));
        out.put(node, |bytes| frames::encode_lives(lives, bytes));
    }

    fn hear_lives(&mut self, node: usize, all: &[u8]) -> Result<(), RemoteFault> {
        let mut any = false;
        for (pid, incarnation) in frames::lives(all) {
            if self.memory.map().node_of.get(pid.index()) != Some(&node) {
                return Err(RemoteFault::Foreign(pid));
            }
            // Also of a node that shares memory with this one: it may move to another host.
            any |= self.memory.set_live(pid, incarnation);
        }
        if any {
            // The loops of this node look.
            self.directory.ring_all();
        }
        Ok(())
    }

    fn hear_outcomes(&mut self, node: usize, upto: u64, fates: &[u8]) -> bool {
        let Self { memory, rings, .. } = self;
        let mut link = memory.link(node);
        if !link.is_open() {
            // Their accesses were given up, and this connection is about to end.
            return true;
        }
        for (number, fate) in frames::outcomes(fates) {
            let mut tell = |pid, life, ticket, fate| {
                memory.inbox(pid).put(life, ticket, fate);
                ring_later(rings, pid);
            };
            if !link.outcome(number, fate, &mut tell) {
                return false;
            }
        }
        link.carried_out(upto)
    }

    /// An access of a process of another node.
    fn access(
        &mut self,
        node: usize,
        (access, number): (RemoteAccess, u64),
        lines: &[u8],
    ) -> Result<(), RemoteFault> {
        let (from, to) = (access.head.from, access.head.to.pid);
        let map = self.memory.map();
        for (pid, lives_in) in [(from, node), (to, map.here)] {
            if map.node_of.get(pid.index()) != Some(&lives_in) {
                return Err(RemoteFault::Foreign(pid));
            }
        }
        let writer = &mut self.writers[node];
        if !writer.open {
            return Err(RemoteFault::Malformed);
        }
        // The writer knows the last number that is carried out, and sends the following ones, once each: behind a hole nothing may land.
        if writer.applied.checked_add(1) != Some(number) {
            return Err(RemoteFault::Malformed);
        }
        if !self.can_reach(to, access.head.to.incarnation) {
            return Err(RemoteFault::NoRoom(to));
        }
        let writer = &mut self.writers[node];
        if access.head.is_read {
            // A node that asks for no more than it may is answered from a buffer with a bound.
            let before = writer.asked;
            writer.asked += access.count as usize * LINE_BYTES;
            if before > 0 && writer.asked > READS_BYTES_MAX {
                return Err(RemoteFault::Malformed);
            }
        }
        writer.applied = number;
        let fate = if access.head.is_read {
            match self.read(node, &access, number) {
                Ok(()) => {
                    self.counts[0] += 1;
                    return Ok(());
                }
                Err(fate) => fate,
            }
        } else {
            self.store(&access, lines)
        };
        self.counts[usize::from(fate != WRITTEN)] += 1;
        if access.head.wants {
            self.writers[node].fates.push((number, fate));
        }
        if access.head.bell && fate == WRITTEN {
            ring_later(&mut self.rings, to);
        }
        Ok(())
    }

    /// Whether the memory of a process of this node is mapped here, or is gone. Memory that lives and cannot be mapped now may be
    /// mapped later: an access that it missed meanwhile would be a gap that nobody learns of.
    fn can_reach(&mut self, pid: Pid, incarnation: u64) -> bool {
        let lives =
            |directory: &Directory| incarnation != 0 && directory.layout().live(pid) == incarnation;
        let is_mapped = self.mapped[pid.index()].as_ref().is_some_and(|(of, _)| *of == incarnation);
        if is_mapped || !lives(&self.directory) {
            return true;
        }
        match self.directory.open_peer(pid, incarnation) {
            Ok(layout) => self.mapped[pid.index()] = Some((incarnation, layout)),
            Err(why) => return why.is_gone() || !lives(&self.directory),
        }
        true
    }

    /// The memory of a process of this node in that incarnation, if it is in it.
    fn reach(&mut self, pid: Pid, incarnation: u64) -> Option<&ProcessLayout> {
        if incarnation == 0 || self.directory.layout().live(pid) != incarnation {
            return None;
        }
        let mapped = &mut self.mapped[pid.index()];
        if mapped.as_ref().is_none_or(|(of, _)| *of != incarnation) {
            // It lives in this very process of the system: what cannot be mapped has ended meanwhile.
            *mapped = self.directory.open_peer(pid, incarnation).ok().map(|it| (incarnation, it));
        }
        mapped.as_ref().map(|(_, layout)| layout)
    }

    /// Carries a write out, and gives its fate.
    fn store(&mut self, access: &RemoteAccess, lines: &[u8]) -> u8 {
        let to = access.head.to;
        let directory = self.directory.clone();
        let Some(layout) = self.reach(to.pid, to.incarnation) else { return LOST };
        let index = usize::from(to.region.0);
        let place = layout.place(index).filter(|place| place.writer == access.head.from);
        let Some((place, range)) = place.and_then(|place| within(place, to.at, access.count))
        else {
            return REFUSED;
        };
        let fate = put(layout, (index, place), range, lines);
        // A write that landed in memory that was given up meanwhile has not landed.
        if directory.layout().live(to.pid) == to.incarnation { fate } else { LOST }
    }

    /// Answers a read, or gives its fate.
    fn read(&mut self, node: usize, access: &RemoteAccess, number: u64) -> Result<(), u8> {
        let to = access.head.to;
        // The node receives outcomes in the order of posting.
        self.tell_outcomes(node, number - 1);
        let mut out = core::mem::take(&mut self.out);
        let begin = (out.bytes.len(), out.ends.len());
        let told = self.reach(to.pid, to.incarnation).ok_or(LOST).and_then(|layout| {
            let place = layout.place(usize::from(to.region.0));
            let found = place.and_then(|place| within(place, to.at, access.count));
            let (place, range) = found.ok_or(REFUSED)?;
            let mut pieces = layout.lines(place)[range].chunks(WORDS_LINES).peekable();
            while let Some(piece) = pieces.next() {
                out.put(node, |bytes| {
                    frames::encode_words(number, pieces.peek().is_some(), bytes);
                    bytes.reserve(piece.len() * LINE_BYTES);
                    piece.iter().for_each(|line| put_line(line, bytes));
                });
            }
            Ok(())
        });
        let is_there = self.directory.layout().live(to.pid) == to.incarnation;
        let told = told.and(if is_there && access.count > 0 { Ok(()) } else { Err(LOST) });
        if told.is_err() {
            // It started anew meanwhile: what was read is of no use to anyone.
            out.bytes.truncate(begin.0);
            out.ends.truncate(begin.1);
        }
        self.out = out;
        if told.is_ok() {
            // The words say that it was carried out.
            self.writers[node].told = number;
        }
        told
    }

    /// Tells a node of the outcomes of its accesses up to this number, all of which were carried out.
    fn tell_outcomes(&mut self, node: usize, upto: u64) {
        let writer = &mut self.writers[node];
        if writer.open && (writer.told < upto || !writer.fates.is_empty()) {
            self.out.put(node, |bytes| frames::encode_outcomes(upto, &writer.fates, bytes));
            writer.fates.clear();
            writer.told = upto;
        }
    }

    /// Ends a round: rings bells, tells outcomes and incarnations, and hands over what carriers have posted. Returns
    /// whether there was anything.
    pub fn flush(&mut self, to: &mut dyn FrameSink) -> bool {
        self.ring();
        for node in 0..self.writers.len() {
            self.tell_outcomes(node, self.writers[node].applied);
        }
        // Behind the outcomes of accesses to memory that ended meanwhile.
        self.look();
        self.agree();
        let mut any = self.out.send(to);
        for node in 0..self.writers.len() {
            self.writers[node].asked = 0;
            if self.memory.link(node).take_overflow() {
                self.down(node);
                // Loops of several processes may have lost accesses, and one of them noticed.
                self.directory.ring_all();
                to.end(node, RemoteFault::Overflow);
                continue;
            }
            any |= self.hand_over(node, to);
        }
        any
    }

    /// Decides whether a node begins anew where accesses were dropped, and tells the others of the health of this one.
    fn agree(&mut self) {
        if !core::mem::take(&mut self.vote_due) {
            return;
        }
        let (mut open, mut gaps) = (0, 0);
        for (node, writer) in self.writers.iter().enumerate() {
            open |= u64::from(self.memory.is_open(node)) << node;
            gaps |= u64::from(writer.gap) << node;
        }
        let (is_fit, lagging) = (self.is_fit, self.lagging);
        let own = NodeHealth { is_fit, open, gaps, lagging, ..NodeHealth::default() };
        let health = self.vote.decide(own);
        for (node, writer) in self.writers.iter_mut().enumerate() {
            if writer.connected && writer.told_health.replace(health) != Some(health) {
                self.out.put(node, |bytes| frames::encode_health(&health, bytes));
            }
        }
    }

    /// The directory is the same as before, and a node that shared it is on another host by now: once none of its processes
    /// lives here any more it is reached over its connection. Whether that is so. To memory of a process that ended no write
    /// lands, and its next incarnation is announced as ever.
    pub fn move_away(&mut self, node: usize) -> bool {
        let map = self.memory.map();
        if node == map.here {
            return false;
        }
        let mut own = (0..).zip(&map.node_of).filter(|&(_, of)| *of == node);
        let is_gone = own.all(|(pid, _)| self.directory.layout().live(Pid(pid)) == 0);
        if is_gone && self.memory.shares_with(node) {
            self.memory.move_away(node);
            self.directory.ring_all();
        }
        is_gone
    }

    /// Hands over what carriers have posted for a node, as long as its connection takes it; whether there was anything. No queue
    /// is locked while a socket is written to.
    fn hand_over(&mut self, node: usize, to: &mut dyn FrameSink) -> bool {
        let mut any = false;
        loop {
            let room = to.room(node).min(CHUNK_BYTES);
            self.memory.link(node).hand_over((node, room), &mut self.accesses);
            if !self.accesses.send(to) {
                return any;
            }
            any = true;
        }
    }

    /// Lets go of memory of processes that ended, and tells the others who lives.
    fn look(&mut self) {
        let layout = self.directory.layout();
        let changes = layout.changes().load(core::sync::atomic::Ordering::Acquire);
        if changes == self.changes_seen {
            return;
        }
        self.changes_seen = changes;
        for (pid, mapped) in (0..).zip(&mut self.mapped) {
            let live = layout.live(Pid(pid));
            // As long as anybody maps it its pages are taken, and the next incarnation may find no room.
            drop(mapped.take_if(|(of, _)| *of != live));
        }
        for node in 0..self.writers.len() {
            if self.writers[node].open {
                self.tell_lives(node);
            }
        }
    }

    /// Rings the bells: what was stored and answered is seen by who is woken.
    fn ring(&mut self) {
        if self.rings.is_empty() {
            return;
        }
        <AtomicU64 as SharedWord>::fence(Fence::Ringer);
        for pid in self.rings.drain(..) {
            let bell = self.directory.bell_of(pid);
            doorbell::ring_after_fence(self.directory.layout().bell(bell));
        }
    }
}

/// Notes that a process is to be woken.
fn ring_later(rings: &mut Vec<Pid>, pid: Pid) {
    if !rings.contains(&pid) {
        rings.push(pid);
    }
}

/// Stores lines into a region as its writer would: the steps of `guard.rs`.
fn put(
    layout: &ProcessLayout,
    (index, place): (usize, RegionLocation),
    range: core::ops::Range<usize>,
    lines: &[u8],
) -> u8 {
    let target = &layout.lines(place)[range];
    let store = || {
        for (line, [a, b, c, d, e, f, g, stamp]) in target.iter().zip(frames::lines(lines)) {
            line.put(&[a, b, c, d, e, f, g], LineStamp(stamp));
        }
    };
    if !place.guarded {
        store();
        return WRITTEN;
    }
    let _landing = LandingFlag(layout.landing(index)).begin();
    let guard = RegionGuard(layout.guard(index));
    let Some(grant) = guard.grant() else { return DENIED };
    store();
    <AtomicU64 as SharedWord>::fence(Fence::Writer);
    if guard.stands(grant) { WRITTEN } else { DENIED }
}

/// Appends a line as it is read: the stamp first, so that it vouches for the words.
fn put_line(line: &CacheLine, bytes: &mut Vec<u8>) {
    let LineStamp(stamp) = line.stamp();
    line.words().iter().for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
    bytes.extend_from_slice(&stamp.to_le_bytes());
}

//! The edges of the tree: a leader passes what is decided on to the children [TRAM 5.3, step 2.5], and every replica
//! follows what they have taken over.

use super::dynamic_overlay::OverlayChanges;
use super::leader::PARENT_EPOCH;
use super::mutants::TramMutant;
use super::replica::{ChildGroup, ReplicaPhase, TramReplica};
use super::ring::{RecordRing, RingRecord};
use super::ticket::TicketRequest;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use amcast_core::memory::{CacheLine, LineRange, Memory, MemoryOutput, RegionWindow, WriteSource};
use amcast_core::{Config, Gid, GroupSet, Outbox, Overlay, Pid};

/// The messages that were passed on to one replica of a child.
#[derive(Clone, Debug)]
pub(crate) struct ForwardedMessages {
    /// Looked at the log up to here.
    pub(crate) log: u64,
    /// The next free position of the child's buffer (`slot_out`).
    pub(crate) out: u64,
    /// From where on writes on the way copy, for each of them, oldest first; none is lower than the first.
    /// At most a ring.
    pub(crate) flying: VecDeque<u64>,
}

impl TramReplica {
    // [TRAM 2:24-28] [TRAM 5:4-11] pass what is decided on to each child in whose reach it has a
    // destination; after a takeover, what the child has not taken over.
    #[inline]
    pub(crate) fn pass_on(&mut self, view: RegionWindow<'_>, out: &mut Outbox<Memory>) {
        if self.exchange.is_some() {
            self.send_proposals(out);
        } else if !self.buffers.edges.is_empty() && !self.mutants.is(TramMutant::SendsToEach) {
            self.pass_to_children(view, out);
        }
    }

    fn pass_to_children(&mut self, view: RegionWindow<'_>, out: &mut Outbox<Memory>) {
        let ReplicaPhase::Leader(leader) = &mut self.phase else { return };
        let log = *leader.log.ring();
        let tree = PassingTree::of((&self.config, self.changes.as_deref()), self.place.group);
        let passes = PassedLog {
            log,
            lines: view.region(log.region),
            epoch: leader.epoch,
            // Where the tree may change it is known as far as the log is consumed.
            upto: leader.commit.min(self.progress.consumed),
            hm: self.layout.hm_of(self.place.group, self.place.rank),
            half: usize::from(self.permissions.promise.half),
            tree: tree.broken(self.mutants.is(TramMutant::ForwardsByPresentTree)),
        };
        for (edge, passed) in self.buffers.edges.iter().zip(&mut leader.passed) {
            for (rank, p) in passed.iter_mut().enumerate() {
                let to = (self.config.cluster().replica(edge.child, rank), rank);
                self.transfers.flying[passes.half] += passes.pass_to(edge, to, p, out);
            }
        }
    }

    pub(crate) fn forward_answered(&mut self, group: Gid, rank: usize) {
        let ReplicaPhase::Leader(leader) = &mut self.phase else { return };
        let Some(i) = self.buffers.edges.iter().position(|e| e.child == group) else { return };
        // Writes to one process are answered in order, lost ones too.
        leader.passed[i][rank].flying.pop_front();
    }

    /// A replica of another group started anew: of the parent group it learns again how far this
    /// group has taken over, of a child it gets again what its group has not taken over.
    pub(crate) fn relative_restarted(&mut self, group: Gid, rank: usize) {
        if self.exchange.is_some() {
            return self.partner_of_exchange_restarted(group, rank);
        }
        let parent = self.buffers.parent_source();
        if self.changes.is_some() {
            self.buffers.sources[parent + group.index()].told_as = u64::MAX;
        } else if self.config.overlay().parent(self.place.group) == Some(group) {
            self.buffers.sources[parent].told_as = u64::MAX;
        }
        let Some(i) = self.buffers.edges.iter().position(|e| e.child == group) else { return };
        let edge = &self.buffers.edges[i];
        let ReplicaPhase::Leader(leader) = &mut self.phase else { return };
        let passed = &mut leader.passed[i][rank];
        (passed.log, passed.out) = (edge.log, edge.out);
        // Repeated messages lie behind those in flight: the first of them stays the lowest.
        passed.flying.iter_mut().for_each(|from| *from = (*from).min(edge.log));
    }

    /// Follows what the children have taken over, along the log.
    pub(crate) fn settle_edges(&mut self, view: RegionWindow<'_>) {
        if self.buffers.edges.is_empty() || !self.follows() {
            return;
        }
        let log = self.in_force(view);
        let tree = PassingTree::of((&self.config, self.changes.as_deref()), self.place.group);
        let consumed = self.progress.consumed;
        let hm = self.layout.hm_parent(0);
        for edge in &mut self.buffers.edges {
            for w in 0..self.place.n {
                let line = &view.region(self.layout.taken(self.place.group, edge.child, w))[0];
                edge.taken = edge.taken.max(line.word(0));
            }
            let Some(log) = &log else { continue };
            while edge.log < consumed {
                let (reach, until) = tree.reach_at(edge.log, edge.child);
                if reach.is_empty() {
                    edge.log = until.min(consumed);
                    continue;
                }
                let nothing = |_: &RingRecord| false;
                let Some(record) = log.read_checked(edge.log, nothing, &mut Vec::new()) else {
                    break;
                };
                let lines = record.lines();
                if record.kind.is_passed_on() && !record.dst.and(reach).is_empty() {
                    let end = hm.after(edge.out, lines);
                    if end > edge.taken {
                        break;
                    }
                    edge.out = end;
                }
                edge.log += u64::from(lines);
            }
        }
    }
}

/// A leader's decided log, as it goes to children.
struct PassedLog<'a> {
    log: RecordRing,
    lines: &'a [CacheLine],
    epoch: u32,
    upto: u64,
    /// The buffer of this leader at each child.
    hm: RecordRing,
    /// The half of its own log.
    half: usize,
    tree: PassingTree<'a>,
}

impl PassedLog<'_> {
    /// Passes on to a replica of a child, tree after tree, until it is done or the child's buffer is full. Gives how many
    /// writes were posted.
    fn pass_to(
        &self,
        edge: &ChildGroup,
        to: (Pid, usize),
        p: &mut ForwardedMessages,
        out: &mut Outbox<Memory>,
    ) -> u32 {
        let mut posted = 0;
        while p.log < self.upto {
            let (reach, until) = self.tree.reach_at(p.log, edge.child);
            let until = until.min(self.upto);
            if reach.is_empty() {
                p.log = until;
            } else if !self.pass_in_tree((edge, reach), to, (p, until), &mut posted, out) {
                break;
            }
        }
        posted
    }

    /// Passes on what lies before `until`, in a tree in which the child reaches `reach`. False if not all of it went.
    fn pass_in_tree(
        &self,
        (edge, reach): (&ChildGroup, GroupSet),
        (to, rank): (Pid, usize),
        (p, until): (&mut ForwardedMessages, u64),
        posted: &mut u32,
        out: &mut Outbox<Memory>,
    ) -> bool {
        while p.log < until {
            let Some(record) = self.log.read(self.lines, p.log, self.epoch) else { return false };
            let lines = record.lines();
            if record.kind.is_passed_on() && !record.dst.and(reach).is_empty() {
                let end = self.hm.after(p.out, lines);
                // A full buffer: the child is slow, and this group waits for it.
                if end > edge.taken.saturating_add(u64::from(self.hm.lines)) {
                    out.mark("tram-child-full");
                    return false;
                }
                if end > edge.taken {
                    let at = self.log.at(p.log);
                    let at = LineRange { region: self.log.region, at, count: lines };
                    p.flying.push_back(p.log);
                    *posted += 1;
                    let ticket =
                        TicketRequest::Forward { group: edge.child, rank, half: self.half };
                    write_on(&self.hm, p.out, &record, (at, self.lines), (to, ticket), out);
                }
                p.out = end;
            }
            p.log += u64::from(lines);
        }
        true
    }
}

/// The tree by which a group passes on what lies in its log.
struct PassingTree<'a> {
    group: Gid,
    /// The one that stays.
    overlay: &'a Overlay,
    /// Or those one after the other.
    changes: Option<&'a OverlayChanges>,
}

impl<'a> PassingTree<'a> {
    fn of((config, changes): (&'a Config, Option<&'a OverlayChanges>), group: Gid) -> Self {
        Self { group, overlay: config.overlay(), changes }
    }

    /// A mutant's: the present tree, for all of the log.
    fn broken(self, is_broken: bool) -> Self {
        match self.changes {
            Some(changes) if is_broken => {
                Self { overlay: changes.overlay(), changes: None, ..self }
            }
            _ => self,
        }
    }

    /// The part of the tree below `child` for which it gets the record at `pos`, and until where that holds; nothing
    /// where it is no child.
    fn reach_at(&self, pos: u64, child: Gid) -> (GroupSet, u64) {
        match self.changes {
            Some(changes) => changes.reach_at(pos, self.group, child),
            None if self.overlay.parent(child) == Some(self.group) => {
                (self.overlay.reach(child), u64::MAX)
            }
            None => (GroupSet::EMPTY, u64::MAX),
        }
    }
}

/// Writes a decided record into a child's buffer: the head under the parent's name, the rest
/// straight from the log.
fn write_on(
    hm: &RecordRing,
    out_pos: u64,
    record: &RingRecord,
    (at, log): (LineRange, &[CacheLine]),
    (to, ticket): (Pid, TicketRequest),
    out: &mut Outbox<Memory>,
) {
    let none = LineRange { region: at.region, at: 0, count: 0 };
    let start = hm.start(out_pos, at.count);
    if start != out_pos {
        let source = WriteSource::Made {
            head: RingRecord::pad(hm.left_at(out_pos)).words([0; 3]),
            stamp: hm.stamp(out_pos, PARENT_EPOCH),
            rest: none,
        };
        let at = hm.at(out_pos);
        out.ask(MemoryOutput::Write {
            to,
            region: hm.region,
            at,
            source,
            ticket: None,
            bell: false,
        });
    }
    let words = log[at.at as usize].words();
    let head =
        RingRecord { source: RingRecord::PARENT, ..*record }.words([words[4], words[5], words[6]]);
    let rest = LineRange { region: at.region, at: at.at + 1, count: at.count - 1 };
    let source = WriteSource::Made { head, stamp: hm.stamp(start, PARENT_EPOCH), rest };
    let region = hm.region;
    let at = hm.at(start);
    let ticket = Some(ticket.ticket());
    out.ask(MemoryOutput::Write { to, region, at, source, ticket, bell: true });
}

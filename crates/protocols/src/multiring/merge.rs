//! [MRP 4] The deterministic merge: the messages of all rings that a learner subscribes to, in one
//! order.

use super::Mutant;
use super::Shape;
use super::ring::Ring;
use super::rings::{Order, Point, RingId};
use super::value::Value;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use amcast_core::messages::Messages;
use amcast_core::{Gid, MsgId, Outbox};

use super::word::Packet;

/// Slots that are looked through for instances to skip, at a time.
const SKIPS_MAX: usize = 64;

/// Slots that are merged in one step.
const MERGE_MAX: usize = 256;

/// Why a merge does not go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stop {
    /// This ring has not come so far.
    Waits(RingId, u64),
    /// The slot of this ring that begins with this instance is only on disk.
    Disk(RingId, u64),
    /// This ring has trimmed what is needed.
    Lacks(RingId),
    /// The application has enough to do.
    Full,
    /// There is more to do in the next step.
    More,
}

/// A delivery that the application has not applied.
#[derive(Clone, Copy, Debug)]
struct Held {
    position: u64,
    bytes: usize,
    /// Everything before this point is passed without a delivery after the one before.
    before: Point,
}

/// A learner.
#[derive(Clone, Debug)]
pub(super) struct Merge {
    group: Gid,
    pub(super) order: Order,
    /// The rings that it subscribes to, in the order in which they are merged.
    pub(super) rings: Vec<RingId>,
    /// Everything before is delivered, or is not for this group.
    pub(super) point: Point,
    /// The position of the last delivery.
    pub(super) delivered: u64,
    held: VecDeque<Held>,
    held_bytes: usize,
    /// The position that the application has applied.
    pub(super) applied: u64,
}

impl Merge {
    pub(super) fn new(group: Gid, shape: &Shape) -> Self {
        let (order, rings) = shape.subscribed(group);
        Self {
            group,
            order,
            rings: rings.to_vec(),
            point: Point::default(),
            delivered: 0,
            held: VecDeque::new(),
            held_bytes: 0,
            applied: 0,
        }
    }

    /// The application has applied everything up to `position`.
    pub(super) fn on_applied(&mut self, position: u64) {
        self.applied = self.applied.max(position);
        while let Some(held) = self.held.front().copied().filter(|h| h.position <= self.applied) {
            self.held_bytes -= held.bytes;
            self.held.pop_front();
        }
    }

    /// The furthest point before which nothing is delivered but what is delivered up to `position`,
    /// for all that is known.
    pub(super) fn point_of(&self, position: u64) -> Point {
        if position == self.delivered {
            return self.point;
        }
        let next = self.held.iter().find(|held| held.position > position);
        let known = position >= self.applied;
        next.filter(|_| known).map_or(Point::of(position), |held| held.before)
    }

    /// How far instances of `ring` are passed at `point`.
    pub(super) fn passed(&self, point: Point, ring: RingId) -> u64 {
        let at = self.rings.iter().position(|&r| r == ring);
        at.map_or(0, |at| self.order.passed(point, at))
    }

    /// Whether the slot of `ring` that begins with `first` is the next one that it needs.
    pub(super) fn stands_at(&self, ring: RingId, first: u64) -> bool {
        let (at, instance) = self.order.next(self.point);
        self.rings.get(at) == Some(&ring) && instance == first
    }

    /// Goes on from a state that holds every delivery up to `position` and nothing else before
    /// `point`.
    pub(super) fn install(&mut self, position: u64, point: Point) {
        (self.point, self.delivered, self.applied) = (point, position, position);
        self.held.clear();
        self.held_bytes = 0;
    }

    /// Delivers what can be delivered; says why no more.
    pub(super) fn run(
        &mut self,
        rings: &[Option<Box<Ring>>],
        shape: &Shape,
        out: &mut Outbox<Messages<Packet>>,
    ) -> Stop {
        for _ in 0..MERGE_MAX {
            if self.held_bytes > shape.apply_bytes {
                return Stop::Full;
            }
            if self.skip_rounds(rings) {
                continue;
            }
            // [MRP 2:2]
            let (at, instance) = self.order.next(self.point);
            let id = self.rings[at];
            let Some(ring) = &rings[usize::from(id)] else { return Stop::Lacks(id) };
            let early = shape.mutants.is(Mutant::DeliversUndecided) && instance < ring.end;
            if instance >= ring.known && !early {
                return Stop::Waits(id, instance);
            }
            let Some((first, slot)) = ring.book.at(instance) else { return Stop::Lacks(id) };
            match &slot.value {
                None => return Stop::Disk(id, first),
                Some(Value::Skip(_)) => {}
                Some(batch) => self.deliver(batch, out),
            }
            self.point = Point { merged: self.point.merged + 1, place: 0 };
        }
        Stop::More
    }

    /// Passes whole rounds in which no ring has anything.
    fn skip_rounds(&mut self, rings: &[Option<Box<Ring>>]) -> bool {
        let Order { rings: count, m } = self.order;
        if !self.point.merged.is_multiple_of(count * m) || self.point.place != 0 {
            return false;
        }
        let mut rounds = u64::MAX;
        for (at, &id) in self.rings.iter().enumerate() {
            let from = self.order.passed(self.point, at);
            let free = rings[usize::from(id)].as_deref().map_or(0, |ring| skippable(ring, from));
            rounds = rounds.min(free / m);
        }
        self.point.merged += rounds * count * m;
        rounds > 0
    }

    /// The messages of a batch that are for this group and not passed yet.
    fn deliver(&mut self, batch: &Value, out: &mut Outbox<Messages<Packet>>) {
        let passed = self.point.place as usize;
        for (place, packed) in batch.messages().enumerate().skip(passed) {
            if !packed.dst.contains(self.group) {
                continue;
            }
            let before = Point { place: place as u64, ..self.point };
            let position = Point { place: place as u64 + 1, ..self.point }.position();
            assert!(position > self.delivered, "positions grow");
            self.delivered = position;
            let bytes = packed.payload.len() + size_of::<Held>();
            self.held.push_back(Held { position, bytes, before });
            self.held_bytes += bytes;
            let msg: MsgId = packed.msg;
            out.deliver(msg, packed.dst, position, |to| to.extend_from_slice(packed.payload));
        }
    }
}

/// How many instances from `from` on have nothing in them.
fn skippable(ring: &Ring, from: u64) -> u64 {
    let mut at = from;
    for (first, slot) in ring.book.from(from).take(SKIPS_MAX) {
        let skips = matches!(slot.value, Some(Value::Skip(_)));
        if first > at || at >= ring.known || !skips {
            break;
        }
        at = first + slot.instances;
    }
    at.min(ring.known).saturating_sub(from)
}

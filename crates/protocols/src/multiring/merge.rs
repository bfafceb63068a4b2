//! The deterministic merge of a learner [MRP 4]: the messages of all rings that it subscribes to, in one order.
//!
//! Every replica of a group takes `M` instances of each of its rings in turn, in the order of ring numbers,
//! and passes over skips. Its deliveries depend on nothing but the decided values, so all replicas of a
//! group deliver the same sequence, and replicas of groups that share rings deliver their messages in the
//! same order. (`MergeOrder` in `topology.rs`; mutants `merges-in-another-order`, `delivers-undecided`.)

use super::MultiRingConfig;
use super::MultiRingMutant;
use super::ring::RingMember;
use super::topology::{MergeOrder, MergePosition, RingId};
use super::value::InstanceValue;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use amcast_core::messages::Messages;
use amcast_core::{Gid, MsgId, Outbox};

use super::message::RingPacket;

/// Slots that one search for skips looks at.
const SKIPS_MAX: usize = 64;

/// Slots that are merged in one step.
const MERGE_MAX: usize = 256;

/// Why a merge stops.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum MergeStall {
    /// This ring has not decided the next instance.
    Undecided(RingId, u64),
    /// The slot of this ring that begins with this instance is only on disk.
    OnDisk(RingId, u64),
    /// This ring has trimmed the next instance.
    Trimmed(RingId),
    /// The application has too much to apply.
    ApplicationBusy,
    /// The next step continues.
    More,
}

/// A delivery that the application has not applied.
#[derive(Clone, Copy, Debug)]
struct UnappliedDelivery {
    position: u64,
    bytes: usize,
    /// Everything before this position is merged, and no delivery lies between the previous one and it.
    before: MergePosition,
}

/// The merge of one replica.
#[derive(Clone, Debug)]
pub(super) struct RingMerge {
    group: Gid,
    pub(super) order: MergeOrder,
    /// The rings that it subscribes to, in the order in which they are merged.
    pub(super) rings: Vec<RingId>,
    /// Everything before is delivered, or is not for this group.
    pub(super) next: MergePosition,
    /// The position of the last delivery.
    pub(super) delivered: u64,
    unapplied: VecDeque<UnappliedDelivery>,
    unapplied_bytes: usize,
    /// The position that the application has applied.
    pub(super) applied: u64,
}

impl RingMerge {
    pub(super) fn new(group: Gid, config: &MultiRingConfig) -> Self {
        let (order, rings) = config.subscribed(group);
        Self {
            group,
            order,
            rings: rings.to_vec(),
            next: MergePosition::default(),
            delivered: 0,
            unapplied: VecDeque::new(),
            unapplied_bytes: 0,
            applied: 0,
        }
    }

    /// The application has applied everything up to `position`.
    pub(super) fn on_applied(&mut self, position: u64) {
        self.applied = self.applied.max(position);
        while let Some(held) =
            self.unapplied.front().copied().filter(|h| h.position <= self.applied)
        {
            self.unapplied_bytes -= held.bytes;
            self.unapplied.pop_front();
        }
    }

    /// The furthest merge position before which nothing is delivered but what is delivered up to
    /// `position`, as far as is known.
    pub(super) fn merge_position_at(&self, position: u64) -> MergePosition {
        if position == self.delivered {
            return self.next;
        }
        let next = self.unapplied.iter().find(|held| held.position > position);
        let known = position >= self.applied;
        next.filter(|_| known).map_or(MergePosition::of(position), |held| held.before)
    }

    /// The merge position before which the application has applied everything. An installed state may hold
    /// deliveries that are still to be merged: the log must keep these, and so they do not count.
    pub(super) fn applied_point(&self) -> MergePosition {
        self.merge_position_at(self.applied).min(self.next)
    }

    /// How many instances of `ring` are merged at `point`.
    pub(super) fn passed(&self, point: MergePosition, ring: RingId) -> u64 {
        let at = self.rings.iter().position(|&r| r == ring);
        at.map_or(0, |at| self.order.passed(point, at))
    }

    /// Whether the slot of `ring` that begins with `first` is the next one to be merged.
    pub(super) fn needs_next(&self, ring: RingId, first: u64) -> bool {
        let (at, instance) = self.order.next(self.next);
        self.rings.get(at) == Some(&ring) && instance == first
    }

    /// Continues from a state that holds every delivery up to `position` and nothing else before `point`.
    pub(super) fn install(&mut self, position: u64, point: MergePosition) {
        (self.next, self.delivered, self.applied) = (point, position, position);
        self.unapplied.clear();
        self.unapplied_bytes = 0;
    }

    /// Delivers all messages that can be delivered; returns why it stops.
    pub(super) fn run(
        &mut self,
        rings: &[Option<Box<RingMember>>],
        config: &MultiRingConfig,
        out: &mut Outbox<Messages<RingPacket>>,
    ) -> MergeStall {
        for _ in 0..MERGE_MAX {
            if self.unapplied_bytes > config.limits.apply_bytes {
                return MergeStall::ApplicationBusy;
            }
            if self.skip_rounds(rings) {
                continue;
            }
            // [MRP 2:2]
            let (at, instance) = self.order.next(self.next);
            let id = self.rings[at];
            let Some(ring) = &rings[usize::from(id)] else { return MergeStall::Trimmed(id) };
            let early = config.mutants.is(MultiRingMutant::DeliversUndecided)
                && instance < ring.current.end;
            if instance >= ring.learner.learned && !early {
                return MergeStall::Undecided(id, instance);
            }
            let Some((first, slot)) = ring.log.at(instance) else { return MergeStall::Trimmed(id) };
            match &slot.value {
                None => return MergeStall::OnDisk(id, first),
                Some(InstanceValue::Skip(_)) => {}
                Some(batch) => self.deliver(batch, out),
            }
            self.next = MergePosition { merged: self.next.merged + 1, place: 0 };
        }
        MergeStall::More
    }

    /// Passes over whole rounds in which all rings skip.
    fn skip_rounds(&mut self, rings: &[Option<Box<RingMember>>]) -> bool {
        let MergeOrder { rings: count, m } = self.order;
        if !self.next.merged.is_multiple_of(count * m) || self.next.place != 0 {
            return false;
        }
        let mut rounds = u64::MAX;
        for (at, &id) in self.rings.iter().enumerate() {
            let from = self.order.passed(self.next, at);
            let free = rings[usize::from(id)].as_deref().map_or(0, |ring| skippable(ring, from));
            rounds = rounds.min(free / m);
        }
        self.next.merged += rounds * count * m;
        rounds > 0
    }

    /// Delivers the messages of a batch that are for this group and not delivered yet.
    pub(super) fn deliver(
        &mut self,
        batch: &InstanceValue,
        out: &mut Outbox<Messages<RingPacket>>,
    ) {
        let passed = self.next.place as usize;
        for (place, packed) in batch.messages().enumerate().skip(passed) {
            if !packed.dst.contains(self.group) {
                continue;
            }
            let before = MergePosition { place: place as u64, ..self.next };
            let position = MergePosition { place: place as u64 + 1, ..self.next }.position();
            assert!(position > self.delivered, "positions grow");
            self.delivered = position;
            // The application reports nothing of a delivery that an installed state holds.
            if position > self.applied {
                let bytes = packed.payload.len() + size_of::<UnappliedDelivery>();
                self.unapplied.push_back(UnappliedDelivery { position, bytes, before });
                self.unapplied_bytes += bytes;
            }
            let msg: MsgId = packed.msg;
            out.deliver(msg, packed.dst, position, |to| to.extend_from_slice(packed.payload));
        }
    }
}

/// How many instances from `from` on are skips.
fn skippable(ring: &RingMember, from: u64) -> u64 {
    let mut at = from;
    for (first, slot) in ring.log.from(from).take(SKIPS_MAX) {
        let skips = matches!(slot.value, Some(InstanceValue::Skip(_)));
        if first > at || at >= ring.learner.learned || !skips {
            break;
        }
        at = first + slot.instances;
    }
    at.min(ring.learner.learned).saturating_sub(from)
}

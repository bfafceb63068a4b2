//! Overdue records: those that lie in a follower's buffers for long, and that the leader does not take up.
//!
//! Clients and other groups write each record to all replicas of a group, and only the leader takes records up. If the link
//! to the leader fails while the writer reaches the followers, they hold what the leader misses. Each follower therefore
//! looks, at some of its heartbeats, whether the next record of a source has been in its own memory for longer than a
//! suspicion. If so it names the source in its row ([`OverdueSource`]), and the leader reads the record from the
//! follower's memory ([`super::fetching`]).
//!
//! A hint says nothing that anyone relies on: it makes the leader look. A follower that lags, or a leader that is slow,
//! causes hints that lead to nothing, since a leader that finds the record in its own buffer takes that.
//!
//! # Limits, and why they suffice
//! - A source is overdue after a suspicion. For [`LATE_SUSPICIONS`] suspicions after a hint it is overdue after two heartbeats: while
//!   a link is cut, each batch of records waits for so long.
//! - A row names one source. Those that are overdue take turns, and each has its turn for a suspicion at most: one whose
//!   record no leader takes up, as that of a client that was refused, holds up none of the others for longer.
//! - Looking takes a line of each client's buffer, and of each buffer of another group, a few times in each suspicion, and at each
//!   heartbeat while some source is expected to be overdue: so also for as long as the record of a client lies there that was
//!   refused, until its place has a new holder.
//!   Nothing is written for it: hints travel in the rows, which are written with each heartbeat anyway.

use super::buffer::{HOLDER, holds};
use super::incoming::RecordLook;
use super::leader::PARENT_EPOCH;
use super::replica::{ReplicaPhase, TramReplica};
use alloc::vec::Vec;
use amcast_core::memory::{CacheLine, RegionWindow};
use amcast_core::parameters::{HEARTBEAT, SUSPECT};
use amcast_core::{Config, Span, Time};

/// A follower looks so many times in a suspicion.
const LOOKS: u64 = 4;

/// How long a source that was overdue is expected to be so again, in suspicions.
const LATE_SUSPICIONS: u64 = 16;

/// Such a source is overdue after so many heartbeats.
const LATE_BEATS: u64 = 2;

/// A source whose next record a follower holds, in the follower's row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OverdueSource {
    /// Its number among the sources of the group's replicas.
    pub(crate) source: u16,
    /// The replica of another group in whose buffer the record lies, by rank; 0 for a client's.
    pub(crate) writer: u8,
}

impl OverdueSource {
    /// As a part of a row's word; 0 for none.
    pub(crate) fn word(overdue: Option<Self>) -> u32 {
        overdue.map_or(0, |of| u32::from(of.writer) << 16 | (u32::from(of.source) + 1) & 0xffff)
    }

    /// Of such a part.
    pub(crate) const fn of(word: u32) -> Option<Self> {
        match (word as u16).checked_sub(1) {
            Some(source) => Some(Self { source, writer: (word >> 16) as u8 }),
            None => None,
        }
    }
}

/// The place of a record in a follower's buffer.
#[derive(Clone, Copy, Debug)]
struct BufferedRecord {
    lease: u32,
    pos: u64,
    writer: usize,
}

/// The next record of one source, and how long it has been there.
#[derive(Clone, Copy, Debug, Default)]
struct SourceWait {
    record: Option<BufferedRecord>,
    since: Time,
    /// When it was put into the row last, in this wait.
    told: Option<Time>,
    /// When it was put into the row last, ever.
    named: Option<Time>,
    /// Until when the source is expected to be overdue again.
    late_until: Time,
}

/// The overdue records of a follower. See the [module](self).
#[derive(Debug)]
pub(crate) struct OverdueRecords {
    /// By source.
    waits: Vec<SourceWait>,
    suspicion: Span,
    interval: Span,
    looked: Time,
    /// Until when some source is expected to be overdue.
    late_until: Time,
    /// The source in the row.
    hint: Option<usize>,
}

impl OverdueRecords {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            waits: Vec::new(),
            suspicion: SUSPECT.get(config),
            interval: HEARTBEAT.get(config),
            looked: Time::ZERO,
            late_until: Time::ZERO,
            hint: None,
        }
    }

    /// The source that the row is to name.
    pub(crate) fn hint(&self) -> Option<OverdueSource> {
        let source = self.hint?;
        let writer = self.waits[source].record?.writer as u8;
        Some(OverdueSource { source: source as u16, writer })
    }

    /// The replica does not follow a leader: it holds nothing for one.
    fn clear(&mut self) {
        self.hint = None;
        self.waits.clear();
    }

    fn is_due(&self, now: Time) -> bool {
        let between = Span(self.suspicion.0 / LOOKS);
        now < self.late_until || now.since(self.looked) >= between
    }

    /// Takes notice of the next record of a source.
    fn observe(&mut self, now: Time, source: usize, record: Option<BufferedRecord>) {
        if self.waits.len() <= source {
            self.waits.resize(source + 1, SourceWait::default());
        }
        let wait = &mut self.waits[source];
        let place = |record: Option<BufferedRecord>| record.map(|r| (r.lease, r.pos));
        if place(record) != place(wait.record) {
            (wait.since, wait.told) = (now, None);
        }
        wait.record = record;
    }

    fn is_overdue(&self, now: Time, wait: &SourceWait) -> bool {
        let late = self.interval.times(LATE_BEATS).min(self.suspicion);
        let patience = if now < wait.late_until { late } else { self.suspicion };
        wait.record.is_some() && now.since(wait.since) >= patience
    }

    /// Chooses the source that the row names: the present one for a suspicion, then the one that was named least lately.
    fn choose(&mut self, now: Time) {
        let stays = |&source: &usize| {
            let wait = &self.waits[source];
            let young = wait.told.is_some_and(|told| now.since(told) < self.suspicion);
            young && self.is_overdue(now, wait)
        };
        if self.hint.is_some_and(|source| stays(&source)) {
            return;
        }
        let overdue = self.waits.iter().enumerate().filter(|(_, wait)| self.is_overdue(now, wait));
        self.hint = overdue.min_by_key(|(_, wait)| (wait.named, wait.since)).map(|(i, _)| i);
        if let Some(source) = self.hint {
            self.late_until = now + self.suspicion.times(LATE_SUSPICIONS);
            let wait = &mut self.waits[source];
            (wait.told, wait.named, wait.late_until) = (Some(now), Some(now), self.late_until);
        }
    }
}

impl TramReplica {
    /// A follower's, at a heartbeat: looks for overdue records.
    pub(crate) fn watch_buffers(&mut self, view: RegionWindow<'_>) {
        let now = self.now;
        if !matches!(self.phase, ReplicaPhase::Follower) || !self.follows() {
            return self.overdue.clear();
        }
        if !self.overdue.is_due(now) {
            return;
        }
        self.overdue.looked = now;
        for source in 0..self.buffers.sources.len() {
            let record = self.buffered_record(source, view);
            self.overdue.observe(now, source, record);
        }
        self.overdue.choose(now);
    }

    /// The next record of a source, as far as this replica has consumed the log, if its buffer has one.
    fn buffered_record(&self, source: usize, view: RegionWindow<'_>) -> Option<BufferedRecord> {
        let cursor = self.buffers.sources[source];
        if source >= self.buffers.parent_source() {
            let from = self.group_read(source)?;
            // As the leader looks: a pad alone, or nonsense, does not hide what lies in another buffer.
            let lies = |w: &usize| {
                let look = self.look_at(source, &self.buffer_of(from, *w), cursor.next, view);
                matches!(look, RecordLook::Sound)
            };
            let writer = (0..self.place.n).find(lies)?;
            return Some(BufferedRecord { lease: PARENT_EPOCH, pos: cursor.next, writer });
        }
        let ring = self.layout.hm_client(source);
        let region = view.region(ring.region);
        let lies = |lease, pos| ring.read(region, pos, lease).is_some();
        let (lease, pos) = if self.has_changed_tree() {
            // A client may have no room for a record before its fence is in the log.
            let (place, joined) = self.place_in_tree(source, region)?;
            (!joined || lies(place.0, place.1)).then_some(place)?
        } else if let Some(holder) = holder_in(region).filter(|&holder| holder > cursor.lease) {
            // A new holder of the place begins anew.
            lies(holder, 0).then_some((holder, 0))?
        } else {
            lies(cursor.lease, cursor.next).then_some((cursor.lease, cursor.next))?
        };
        Some(BufferedRecord { lease, pos, writer: 0 })
    }
}

/// The lease that the holder line of a client's buffer names.
pub(crate) fn holder_in(region: &[CacheLine]) -> Option<u32> {
    let lease = region[HOLDER as usize].stamp().epoch();
    holds(region, lease).then_some(lease)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tram::Tram;
    use amcast_core::{Entry, RawConfig};

    /// The leader takes up what is named of all sources but one.
    #[test]
    fn a_source_whose_record_stays_is_named_again_however_busy_the_others_are() {
        let config = RawConfig::default().check(Tram.about().params).unwrap();
        let mut overdue = OverdueRecords::new(&config);
        let (mut now, step) = (Time::ZERO, HEARTBEAT.get(&config));
        let (mut next, mut named) = ([0; 6], 0);
        for _ in 0..2000 {
            now += step;
            for (source, &pos) in next.iter().enumerate() {
                overdue.observe(now, source, Some(BufferedRecord { lease: 1, pos, writer: 0 }));
            }
            let before = overdue.hint;
            overdue.choose(now);
            match overdue.hint {
                Some(2) => named += u32::from(before != Some(2)),
                Some(busy) => next[busy] += 1,
                None => {}
            }
        }
        assert!(named > 5, "{named} times");
    }
}

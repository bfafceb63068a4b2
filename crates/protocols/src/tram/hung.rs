//! Followers whose application hangs: the process shows that it lives and takes part in everything, but applies nothing.
//!
//! The leader keeps the log from the first position on that a follower still needs, so such a follower stops its group as
//! soon as the ring is full. The leader excludes it like one that is suspected: only while the log is short of room, and a
//! quorum without it has all state.
//!
//! - An application that is slow, but moves, is waited for: its pace is the group's.
//! - If a majority hangs the leader excludes no follower, and the group waits.
//! - A follower that is excluded for this has consumed the log: everything waits for its application in its own process.
//!   Until its application has caught up it gives no state ([`super::transfer`]). Once the log's tail is [`QUEUED_LAPS`] laps
//!   ahead of the application, the follower lags as if it had missed that part of the log: it gets the state of another replica in
//!   place of what waits, so that its memory is bounded. While a large state is on its way deliveries wait as well, so the bound doubles
//!   with each attempt that ends before the state came, up to [`QUEUED_LAPS`] times 2 to the power of [`QUEUE_DOUBLINGS_MAX`].
//! - A follower whose state another one asks for needs the log for that one, too, and is given twice the time.

use super::layout::ReplicaRow;
use super::leader::Leader;
use super::mutants::TramMutant;
use super::replica::{GroupRows, ReplicaHealth, ReplicaPhase, TramReplica};
use super::transfer::PATIENCE_MAX;
use amcast_core::parameters::{HEARTBEAT, SUSPECT};
use amcast_core::{Config, Time};

/// How long an application may apply nothing of what waits for it, in suspicions: as long as the longest patience with
/// the source of a state.
const HUNG_SUSPICIONS: u64 = PATIENCE_MAX as u64;

/// How many laps of the ring the log's tail may be ahead of a follower's application, at first: 17 MB of short records with the
/// default settings, and up to 84 MB of long ones, which fill the whole ring.
const QUEUED_LAPS: u64 = 32;

/// How often that doubles: to 134 MB of short records.
const QUEUE_DOUBLINGS_MAX: u32 = 3;

/// A follower's need of the log, and how long it has not moved although it is behind the leader's.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NeedProgress {
    need: u64,
    /// The follower's heartbeat when that last moved: of time in which its process is not stepped none counts.
    beat: u64,
    hangs: bool,
}

impl NeedProgress {
    /// Takes notice of a follower's need at its heartbeat. It hangs if it `waits` for `beats` heartbeats at one need.
    fn observe(&mut self, need: u64, beat: u64, waits: bool, beats: u64) {
        if !waits || need != self.need || beat < self.beat {
            (self.need, self.beat) = (need, beat);
        }
        self.hangs = beat - self.beat >= beats;
    }

    /// Whether the application seems to hang.
    pub(crate) const fn hangs(&self) -> bool {
        self.hangs
    }
}

/// For how many heartbeats a follower's need may stand still.
pub(crate) fn hung_beats(config: &Config) -> u64 {
    let (interval, suspicion) = (HEARTBEAT.get(config), SUSPECT.get(config));
    suspicion.times(HUNG_SUSPICIONS).0.div_ceil(interval.0)
}

impl GroupRows {
    /// Whether a replica that lives asks this one for its state: then it holds back its need for that one.
    fn gives_state(&self, now: Time, rank: usize) -> bool {
        let asks = |row: &ReplicaRow| !row.follows && row.source == Some(rank as u8);
        let lives = |reader: usize| !self.detector.suspects(now, reader);
        let mut readers = self.peers.iter().enumerate();
        readers.any(|(reader, peer)| peer.row.as_ref().is_some_and(asks) && lives(reader))
    }
}

impl TramReplica {
    /// Its application has caught up so far that the first bound suffices again.
    pub(crate) fn narrow_queue(&mut self, tail: u64) {
        let is_short = self.progress.clear + u64::from(self.layout.log_lines) >= tail;
        if self.progress.broken_off > 0 && is_short && self.is_fit() {
            self.progress.broken_off = 0;
        }
    }

    /// It lags. If a state is on its way then, more may wait for the next one.
    pub(crate) fn widen_queue(&mut self) {
        if matches!(self.health, ReplicaHealth::Following(_)) {
            let broken_off = &mut self.progress.broken_off;
            *broken_off = (*broken_off + 1).min(QUEUE_DOUBLINGS_MAX);
        }
    }

    /// Whether the application of a follower seems to hang, as far as its leader knows.
    pub(crate) fn follower_hangs(&self, rank: usize) -> bool {
        let ReplicaPhase::Leader(leader) = &self.phase else { return false };
        leader.followers[rank].progress.hangs()
    }

    /// Whether as many deliveries wait for its application as may, where the log has this tail. A replica that gives its own state
    /// does not settle what is applied.
    pub(crate) fn is_queue_full(&self, tail: u64) -> bool {
        let laps = QUEUED_LAPS << self.progress.broken_off;
        let lines = u64::from(self.layout.log_lines) * laps;
        self.transfers.outgoing.is_none()
            && self.progress.clear + lines < tail
            && !self.mutants.is(TramMutant::QueuesWithoutBound)
    }

    /// The ranks of followers for which this replica, as the leader, does not wait, a bit each: the log moves on without
    /// what they need. One whose row is not known is not waited for, either.
    pub(crate) fn lagging_followers(&self) -> u64 {
        let ReplicaPhase::Leader(leader) = &self.phase else { return 0 };
        let lags = |&rank: &usize| {
            let row = self.rows.peers[rank].row.filter(|row| row.follows);
            leader.does_not_wait(rank, row.map(|row| row.need))
        };
        self.place.others().filter(lags).fold(0, |set, rank| set | 1 << rank)
    }

    /// Looks whether the followers' applications move. `own` is the leader's need: a follower that needs no more than that
    /// holds up nobody.
    pub(crate) fn watch_followers(&mut self, own: u64) {
        let beats = self.limits.hung_beats;
        let ReplicaPhase::Leader(Leader { followers, .. }) = &mut self.phase else { return };
        for (rank, follower) in followers.iter_mut().enumerate() {
            if let Some(row) = &self.rows.peers[rank].row {
                let waits = row.follows && row.need < own;
                // Its source drops what it holds for a reader that reads nothing after half of that time.
                let times = if self.rows.gives_state(self.now, rank) { 2 } else { 1 };
                follower.progress.observe(row.need, row.beat, waits, times * beats);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_need_that_stands_still_for_some_heartbeats_hangs_until_it_moves() {
        let mut progress = NeedProgress::default();
        let mut hangs = |need, beat, waits| {
            progress.observe(need, beat, waits, 10);
            progress.hangs()
        };
        assert!(!hangs(7, 100, false) && !hangs(7, 200, false), "nothing waits for it");
        assert!(!hangs(7, 209, true) && hangs(7, 210, true) && hangs(7, 300, true));
        assert!(!hangs(8, 301, true) && !hangs(8, 310, true) && hangs(8, 311, true));
        assert!(!hangs(8, 1, true), "its process started again");
        assert!(!hangs(8, 10, true) && hangs(8, 11, true));
        assert!(!hangs(8, 12, false));
    }
}

//! How long a replica pauses between two attempts to lead its group.
//!
//! A link that fails for long makes two replicas suspect each other, and each takes itself for the leader. A third
//! replica hears both, and promises to each in turn. A new leader needs some five round trips before it has decided
//! something; if the other candidate pauses for less, each deposes the other before that, for ever, although a majority of
//! the group is connected.
//!
//! # Rules
//! 1. After an attempt that failed, or a term that ended since another replica promised a higher epoch, it pauses. Each such
//!    term in a row doubles the pause, from `1 + rank` heartbeats up to `8 + rank` suspicions. So one of the two leads
//!    undisturbed in the end, for as long as the other one pauses. A leader that gives way to a request that it hears itself
//!    does not pause: that other replica hears of its promises, and is the one that pauses if it fails.
//! 2. The pause is the first one again after a suspicion's time in one term: as its leader, or as a follower whose leader's log
//!    is installed and whose leader is not suspected. The replica that leads for so long is the one with the
//!    short pause from then on, and the other's attempts fail soon.
//! 3. A replica that did not fail before does not pause: a crashed leader is replaced as soon as it is suspected.

use amcast_core::parameters::{HEARTBEAT, SUSPECT};
use amcast_core::{Config, Span, Time};

/// The longest pause of rank 0, in suspicions: longer than a term takes to decide something where links are as slow as
/// suspicions allow.
const SUSPICIONS_MAX: u64 = 8;

/// The pause of one replica. See the [module](self) for its rules.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TakeoverPause {
    first: Span,
    most: Span,
    suspicion: Span,
    /// The next pause.
    next: Span,
    until: Time,
    /// The term that lasts, and since when.
    lasting: Option<(u32, Time)>,
}

impl TakeoverPause {
    pub(crate) fn new(config: &Config, rank: usize) -> Self {
        let (rank, suspicion) = (rank as u64, SUSPECT.get(config));
        let first = HEARTBEAT.get(config).times(1 + rank);
        let most = suspicion.times(SUSPICIONS_MAX + rank).max(first);
        Self { first, most, suspicion, next: first, until: Time::ZERO, lasting: None }
    }

    /// Whether the replica may try to lead.
    pub(crate) fn is_over(&self, now: Time) -> bool {
        now >= self.until
    }

    /// An attempt to lead failed, or a leader was deposed behind its back.
    pub(crate) fn fail(&mut self, now: Time) {
        self.until = now + self.next;
        self.next = self.next.times(2).min(self.most);
        self.lasting = None;
    }

    /// Takes notice of the term in which the replica leads or follows, if there is one now.
    pub(crate) fn observe(&mut self, now: Time, term: Option<u32>) {
        match (self.lasting, term) {
            (Some((lasting, since)), Some(term)) if lasting == term => {
                if now.since(since) >= self.suspicion {
                    self.next = self.first;
                    // A leader that crashes now is replaced at once.
                    self.until = self.until.min(now);
                }
            }
            _ => self.lasting = term.map(|term| (term, now)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tram::Tram;
    use amcast_core::{Entry, RawConfig};

    const fn at(millis: u64) -> Time {
        Time(millis * 1_000_000)
    }

    fn pause(rank: usize) -> TakeoverPause {
        let mut raw = RawConfig { groups: 1, replicas: 3, clients: 1, ..RawConfig::default() };
        raw.set.insert("heartbeat_us".into(), "2000".into());
        raw.set.insert("suspect_us".into(), "20000".into());
        TakeoverPause::new(&raw.check(Tram.about().params).unwrap(), rank)
    }

    /// How long the pauses of so many failures in a row are, in milliseconds.
    fn pauses<const N: usize>(pause: &mut TakeoverPause) -> [u64; N] {
        core::array::from_fn(|_| {
            pause.fail(at(1000));
            assert!(!pause.is_over(Time(pause.until.0 - 1)) && pause.is_over(pause.until));
            pause.until.since(at(1000)).0 / 1_000_000
        })
    }

    #[test]
    fn each_failure_doubles_the_pause_up_to_some_suspicions_which_differ_by_rank() {
        assert!(pause(0).is_over(Time::ZERO), "the first attempt waits for nothing");
        assert_eq!(pauses(&mut pause(0)), [2, 4, 8, 16, 32, 64, 128, 160, 160]);
        assert_eq!(pauses(&mut pause(1)), [4, 8, 16, 32, 64, 128, 180, 180]);
        assert_eq!(pauses(&mut pause(2)), [6, 12, 24, 48, 96, 192, 200, 200]);
    }

    #[test]
    fn a_term_that_lasts_for_a_suspicions_time_makes_the_pause_short_again() {
        let mut pause = pause(0);
        assert_eq!(pauses(&mut pause), [2, 4, 8]);
        // Other terms, or none in between: none of them lasts.
        for (millis, term) in [(0, Some(16)), (19, Some(16)), (20, Some(33)), (39, Some(33))] {
            pause.observe(at(2000 + millis), term);
        }
        pause.observe(at(2040), None);
        pause.observe(at(2041), Some(33));
        pause.observe(at(2060), Some(33));
        assert_eq!(pauses(&mut pause), [16, 32]);
        pause.observe(at(3000), Some(50));
        pause.observe(at(3020), Some(50));
        assert_eq!(pauses(&mut pause), [2, 4]);
    }

    #[test]
    fn a_term_that_lasts_for_a_suspicions_time_ends_the_pause() {
        let mut pause = pause(0);
        assert_eq!(pauses(&mut pause), [2, 4, 8, 16, 32, 64, 128]);
        pause.observe(at(1010), Some(50));
        pause.observe(at(1029), Some(50));
        assert!(!pause.is_over(at(1029)), "the term may fail, too");
        pause.observe(at(1030), Some(50));
        assert!(pause.is_over(at(1030)), "its leader may crash now, and is replaced at once");
    }
}

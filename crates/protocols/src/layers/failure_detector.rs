//! The failure detector of all protocols, and the leader oracle on it: which processes live, and which of
//! them should lead.
//!
//! Every process counts up and shows its counter to its peers: in a row of shared memory, or in heartbeat
//! messages. A counter that has not moved for a while is the sign of a process that has failed; the first
//! process, in an agreed order, that is neither suspected nor short of state should lead. This is what
//! `leader(g)` of [TRAM 2.1] asks for: it may be wrong for as long as it likes, and is right in the end
//! when processes and carriers are timely. Protocols must be safe with any output of it.
//!
//! ```text
//! rank 0   1----2----3----X                        counter shown every `interval`
//! rank 1   |    |    |    .    .    .    |         `patience` without a move:
//!          leader is rank 0              leader is rank 1
//! ```
//!
//! # Rules
//! 1. A counter that moves is a heartbeat; 0 is what an unwritten row shows, and is none. A counter that
//!    falls belongs to a process that started again: that is a heartbeat, too.
//! 2. No move for [`patience`](FailureDetector::patience) makes a peer suspected, and it stays so until its
//!    counter moves. A process never suspects itself.
//! 3. Patience is a guess of how long a live peer may be silent. A false suspicion doubles it if that would
//!    have helped (see *Slow or away* below), up to [`PATIENCE_GROWTH_MAX`] times the configured timeout
//!    and never beyond [`PATIENCE_MAX`], so a failed leader is replaced within seconds in any case. Each
//!    calm stretch takes an eighth away again, down to the timeout, but not below what the peer's longest
//!    silence in that stretch needs. A stretch is [`CALM_MAX`] at most, so patience is back at the timeout
//!    within minutes.
//! 4. Silence counts only while this process was there to hear a heartbeat. Of a time in which it was not
//!    stepped no more than a quarter of the timeout counts, or an interval if that is longer: where cores
//!    are short, its peers did not run either. If it was not stepped for as long as the timeout, it starts
//!    the patience with all peers anew; a peer that was suspected before stays so.
//! 5. The verdict of an outside detector ([`FailureDetector::suspect`], [`FailureDetector::trust`])
//!    holds until the counter moves or the detector reverses it.
//! 6. A coordination service that names the leader ([`FailureDetector::override_leader`]) has the last word.
//!
//! # Slow or away
//! A peer that was suspected and is heard again was *slow*, or it was *away*: its process was
//! paused, or its host was partitioned. More patience saves a false suspicion of a slow peer, and
//! only delays the next failover from one that was away. Three measures tell them apart:
//!
//! | heard before | its silence | then |
//! |---|---|---|
//! | at most twice the patience | any | slow: its peers get nothing done with it in between |
//! | longer | more than twice the patience | away: doubled patience would not have sufficed either |
//! | longer | at most twice the patience | slow if it is the second one without a calm stretch between |
//!
//! So outages of 0.4 s, 0.9 s and 1.9 s in turn leave a patience of 0.25 s where it is, and pauses of 0.4 s
//! that recur double it once.
//!
//! # In a protocol's step
//! First [`FailureDetector::observe`] for each peer's row or heartbeat, then [`FailureDetector::beat`] (and
//! send or write what it gives), then [`FailureDetector::leader`]; [`FailureDetector::deadline`] goes into
//! the protocol's own. In this order a late step never suspects a peer whose new counter is there to be
//! read.

use alloc::vec::Vec;
use amcast_core::step::WakeReason;
use amcast_core::{Span, Time};

/// How far patience with a peer can grow: this many times the configured timeout, unless a protocol asks
/// for more.
pub const PATIENCE_GROWTH_MAX: u64 = 16;

/// The upper bound of patience with a peer: a failed leader is suspected within it. A configured
/// timeout that is longer stays as it is.
///
/// Source: ours. Two seconds are longer than a process of an overloaded machine waits for a core and than
/// three retransmissions of TCP in a row take, and short enough for clients that wait for the next leader.
pub const PATIENCE_MAX: Span = Span::secs(2);

/// Of a time in which this process was not stepped, so large a part of the timeout counts as silence.
const HEARD: u64 = 4;

/// A peer is calm when it was not suspected for this many times the patience with it.
const CALM: u64 = 64;

/// A peer is calm when it was not suspected for so long: from [`PATIENCE_MAX`] to a timeout of 50
/// ms it takes 28 calm stretches, five minutes at most.
pub const CALM_MAX: Span = Span::secs(10);

/// Each calm stretch takes one part of so many from the patience.
const SHRINK: u64 = 8;

/// Patience stays one part of so many above the longest silence of the last calm stretch.
const MARGIN: u64 = 4;

/// The failure detector of one process. See the [module](self) for its rules.
#[derive(Clone, Debug)]
pub struct FailureDetector {
    me: usize,
    /// All ranks, in the order in which they should lead.
    preference: Vec<usize>,
    interval: Span,
    timeout: Span,
    /// How far patience can grow, in timeouts.
    growth: u64,
    /// How far calm stretches can grow, in times [`CALM`].
    calm_growth: u64,
    /// By rank. The own entry's `fit` is used, the rest of it is not.
    peers: Vec<PeerState>,
    /// The own counter as last published; only grows.
    counter: u64,
    beat_due: Time,
    /// When this process was last seen to run; none before the first time.
    ran: Option<Time>,
    override_leader: Option<usize>,
}

/// The state of one peer.
#[derive(Clone, Copy, Debug)]
struct PeerState {
    /// The counter as observed last; 0 if none was shown.
    counter: u64,
    /// When the counter was last observed to move, or patience was started anew.
    moved: Time,
    /// When it was last heard again after a silence that was too long.
    back: Time,
    /// Whether it shows that it has all state. Believed until it shows the contrary.
    fit: bool,
    /// How long its counter may stand still.
    patience: Span,
    /// Since when the patience is what it is, and no suspicion was false.
    calm_since: Time,
    /// The longest silence since then that was not too long.
    longest: Span,
    /// Whether a silence since the last calm stretch was too long, and doubled patience would have
    /// sufficed.
    nearly_borne: bool,
    /// How many times the patience a calm stretch lasts.
    calm: u64,
    /// Whether it was found silent for too long and has not moved since.
    silent: bool,
    verdict: Option<OutsideVerdict>,
}

impl PeerState {
    /// Whether more patience would have helped with the silence that ends now: the peer is slow, and was
    /// not away (see the [module](self)).
    fn is_slow(&mut self, now: Time) -> bool {
        let doubled = self.patience.times(2);
        if self.moved.since(self.back) <= doubled {
            return true;
        }
        now.since(self.moved) <= doubled && core::mem::replace(&mut self.nearly_borne, true)
    }

    /// A suspicion of it proves false.
    fn is_back(&mut self, now: Time, limits: PatienceLimits) {
        if self.is_slow(now) {
            self.patience = self.patience.max(self.patience.times(2).min(limits.patience));
            self.calm = (self.calm * 2).min(limits.calm);
            self.nearly_borne = false;
        }
        self.back = now;
        self.begin_stretch(now);
    }

    /// It is heard in time; ends a calm stretch if there was one.
    fn is_timely(&mut self, now: Time, timeout: Span) {
        self.longest = self.longest.max(now.since(self.moved));
        if now.since(self.calm_since) < self.patience.times(self.calm).min(CALM_MAX) {
            return;
        }
        if self.patience == timeout {
            self.calm = (self.calm / 2).max(CALM);
        }
        let needed = Span(self.longest.0 + self.longest.0 / MARGIN).max(timeout);
        let less = Span(self.patience.0 - self.patience.0 / SHRINK);
        self.patience = self.patience.min(less.max(needed));
        self.nearly_borne = false;
        self.begin_stretch(now);
    }

    fn begin_stretch(&mut self, now: Time) {
        self.calm_since = now;
        self.longest = Span::ZERO;
    }
}

/// How far the numbers that adapt can grow.
#[derive(Clone, Copy, Debug)]
struct PatienceLimits {
    patience: Span,
    calm: u64,
}

/// The last verdict of an outside detector on a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum OutsideVerdict {
    Suspect,
    Trust,
}

impl FailureDetector {
    /// The detector of rank `me` in a group whose ranks `preference` lists, each once, in the order in
    /// which they should lead. A counter is shown every `interval`; a peer is suspected after `timeout`
    /// without one, to begin with. Interval over timeout is what a burst of work at the peer can swallow: a
    /// tenth is a sound choice.
    ///
    /// # Panics
    ///
    /// If `preference` is not a permutation that holds `me`, or `interval` is not shorter than `timeout` or
    /// is zero: configurations are checked before they get here.
    pub fn new(me: usize, preference: &[usize], interval: Span, timeout: Span) -> Self {
        let ranks = preference.len();
        assert!(me < ranks, "rank {me} is not one of {ranks}");
        assert!((0..ranks).all(|r| preference.contains(&r)), "{preference:?} misses a rank");
        assert!(Span::ZERO < interval && interval < timeout, "interval must be below timeout");
        let peer = PeerState {
            counter: 0,
            moved: Time::ZERO,
            back: Time::ZERO,
            fit: true,
            patience: timeout,
            calm_since: Time::ZERO,
            longest: Span::ZERO,
            nearly_borne: false,
            calm: CALM,
            silent: false,
            verdict: None,
        };
        Self {
            me,
            preference: preference.to_vec(),
            interval,
            timeout,
            growth: PATIENCE_GROWTH_MAX,
            calm_growth: 1,
            peers: alloc::vec![peer; ranks],
            counter: 0,
            beat_due: Time::ZERO,
            ran: None,
            override_leader: None,
        }
    }

    /// Lets the patience with a peer grow to this many times the timeout, and not only to
    /// [`PATIENCE_GROWTH_MAX`], where timeouts are short and what carries the counters is slow without
    /// bound; [`PATIENCE_MAX`] bounds it there, too. Each suspicion of a slow peer then also doubles the
    /// calm stretch, up to as many times and to [`CALM_MAX`], so that false suspicions become ever rarer:
    /// what takes longer than one stretch gets done in the end.
    pub const fn grow_patience_to(&mut self, timeouts: u64) {
        self.growth = timeouts;
        self.calm_growth = timeouts;
    }

    /// The counter to show now, if it is due. Call it once a step, after [`FailureDetector::observe`]: it
    /// also finds peers that have been silent for too long.
    pub fn beat(&mut self, now: Time) -> Option<u64> {
        self.run(now);
        for rank in 0..self.peers.len() {
            self.peers[rank].silent |= self.is_silent(now, rank);
        }
        if now < self.beat_due {
            return None;
        }
        self.beat_due = now + self.interval;
        self.counter += 1;
        Some(self.counter)
    }

    /// Takes in what `rank` shows: its counter, and whether it has all state. Cheap when nothing moved, so
    /// it may be called on every poll. Of the own row only `fit` is taken.
    #[inline]
    pub fn observe(&mut self, now: Time, rank: usize, counter: u64, fit: bool) {
        self.run(now);
        let peer = &mut self.peers[rank];
        peer.fit = fit;
        if rank != self.me && counter != 0 && counter != peer.counter {
            self.hear(now, rank, counter);
        }
    }

    /// The counter of `rank` has moved.
    #[inline(never)]
    fn hear(&mut self, now: Time, rank: usize, counter: u64) {
        let (limits, timeout) = (self.limits(), self.timeout);
        let peer = &mut self.peers[rank];
        match peer.silent {
            true => peer.is_back(now, limits),
            false => peer.is_timely(now, timeout),
        }
        (peer.counter, peer.moved, peer.silent, peer.verdict) = (counter, now, false, None);
    }

    /// Whether `rank` seems to have failed.
    pub fn suspects(&self, now: Time, rank: usize) -> bool {
        match self.peers[rank].verdict {
            _ if rank == self.me => false,
            Some(OutsideVerdict::Suspect) => true,
            Some(OutsideVerdict::Trust) => false,
            None => self.peers[rank].silent || self.is_silent(now, rank),
        }
    }

    /// Whether `rank` shows that it has all state.
    pub fn is_fit(&self, rank: usize) -> bool {
        self.peers[rank].fit
    }

    /// The rank that should lead: the one that a coordination service names, or the first one in order of
    /// preference that is fit and not suspected, this process included. None if there is no such rank.
    pub fn leader(&self, now: Time) -> Option<usize> {
        let works = |&rank: &usize| self.peers[rank].fit && !self.suspects(now, rank);
        self.override_leader.or_else(|| self.preference.iter().copied().find(works))
    }

    /// `rank` restarted: that it was silent before was no false alarm, and its counter starts again.
    pub fn restarted(&mut self, now: Time, rank: usize) {
        let peer = &mut self.peers[rank];
        (peer.counter, peer.moved, peer.silent, peer.verdict) = (0, now, false, None);
    }

    /// An outside detector suspects `rank`. Of this process itself it is not believed.
    pub fn suspect(&mut self, rank: usize) {
        self.peers[rank].verdict = Some(OutsideVerdict::Suspect);
    }

    /// An outside detector vouches for `rank`.
    pub fn trust(&mut self, rank: usize) {
        self.peers[rank].verdict = Some(OutsideVerdict::Trust);
    }

    /// A coordination service names the leader, and overrides the counters; `None` gives the choice
    /// back to them.
    pub fn override_leader(&mut self, rank: Option<usize>) {
        assert!(rank.is_none_or(|r| r < self.peers.len()), "no rank {rank:?}");
        self.override_leader = rank;
    }

    /// How long the counter of `rank` may stand still before it is suspected.
    pub fn patience(&self, rank: usize) -> Span {
        self.peers[rank].patience
    }

    /// How long the counter of `rank` has not moved, as far as this process ran to observe it.
    pub fn silence(&self, now: Time, rank: usize) -> Span {
        now.since(self.peers[rank].moved)
    }

    /// When [`FailureDetector::beat`] must be called next, and for what: a counter is due, or a peer's
    /// silence becomes a suspicion.
    pub fn deadline(&self) -> (Time, WakeReason) {
        let open = |&(rank, peer): &(usize, &PeerState)| {
            rank != self.me && !peer.silent && peer.verdict.is_none() && self.ran.is_some()
        };
        let peers = self.peers.iter().enumerate();
        let suspicion = peers.filter(open).map(|(_, peer)| peer.moved + peer.patience).min();
        match suspicion {
            Some(at) if at < self.beat_due => (at, WakeReason::Suspicion),
            _ => (self.beat_due, WakeReason::Heartbeat),
        }
    }

    fn limits(&self) -> PatienceLimits {
        let patience = self.timeout.times(self.growth).min(PATIENCE_MAX).max(self.timeout);
        PatienceLimits { patience, calm: CALM * self.calm_growth }
    }

    /// Whether the silence of `rank` has lasted too long, as far as this process can tell.
    #[inline]
    fn is_silent(&self, now: Time, rank: usize) -> bool {
        // Most often it was heard just now: then it is no question how much of the time counts.
        now.since(self.peers[rank].moved) >= self.peers[rank].patience && self.is_mute(now, rank)
    }

    #[inline(never)]
    fn is_mute(&self, now: Time, rank: usize) -> bool {
        let peer = &self.peers[rank];
        let moved = peer.moved + self.unheard(now);
        rank != self.me && !self.was_away(now) && now.since(moved) >= peer.patience
    }

    /// How much of the time since this process ran last is no peer's silence.
    fn unheard(&self, now: Time) -> Span {
        let gap = self.ran.map_or(Span::ZERO, |ran| now.since(ran));
        Span(gap.0.saturating_sub(self.interval.0.max(self.timeout.0 / HEARD)))
    }

    /// Whether this process did not run for so long that no peer's silence means anything.
    fn was_away(&self, now: Time) -> bool {
        self.ran.is_none_or(|ran| now.since(ran) >= self.timeout)
    }

    /// Notes that this process runs; takes out what it could not hear, and starts patience anew if it
    /// was away (rule 4).
    #[inline]
    fn run(&mut self, now: Time) {
        // It is called several times in a step.
        if self.ran != Some(now) {
            self.run_again(now);
        }
    }

    #[inline(never)]
    fn run_again(&mut self, now: Time) {
        let unheard = self.unheard(now);
        if self.was_away(now) {
            for peer in &mut self.peers {
                (peer.moved, peer.calm_since) = (now, now);
            }
        } else if unheard > Span::ZERO {
            for peer in &mut self.peers {
                (peer.moved, peer.calm_since) = (peer.moved + unheard, peer.calm_since + unheard);
            }
        }
        self.ran = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Span = Span::millis(1);
    const TIMEOUT: Span = Span::millis(10);

    fn at(ms: u64) -> Time {
        Time::ZERO + Span::millis(ms)
    }

    /// Rank `me` of three, which prefer the lowest.
    fn of_three(me: usize) -> FailureDetector {
        FailureDetector::new(me, &[0, 1, 2], INTERVAL, TIMEOUT)
    }

    /// Runs `h` every millisecond of `ms`; the ranks in `alive` count along.
    fn run(h: &mut FailureDetector, ms: core::ops::Range<u64>, alive: &[usize]) {
        for t in ms {
            for &rank in alive {
                h.observe(at(t), rank, t + 1, true);
            }
            h.beat(at(t));
        }
    }

    #[test]
    fn a_counter_is_due_every_interval_and_only_grows() {
        let mut h = of_three(0);
        assert_eq!(h.beat(at(5)), Some(1));
        assert_eq!(h.deadline(), (at(6), WakeReason::Heartbeat));
        assert_eq!(h.beat(at(5)), None);
        assert_eq!(h.beat(at(6)), Some(2));
        assert_eq!(h.beat(at(9)), Some(3), "a late beat is made up for once, not three times");
        assert_eq!(h.beat(at(9)), None);
    }

    #[test]
    fn the_first_live_rank_in_order_of_preference_leads() {
        let mut h = FailureDetector::new(1, &[2, 0, 1], INTERVAL, TIMEOUT);
        run(&mut h, 0..5, &[0, 2]);
        assert_eq!(h.leader(at(4)), Some(2));
        run(&mut h, 5..20, &[0]);
        assert_eq!(h.leader(at(19)), Some(0));
        run(&mut h, 20..40, &[]);
        assert_eq!(h.leader(at(39)), Some(1), "itself, when nobody else is left");
        assert!(!h.suspects(at(39), 1));
    }

    #[test]
    fn silence_becomes_suspicion_at_the_deadline_and_not_before() {
        let mut h = of_three(2);
        run(&mut h, 0..8, &[0, 1]);
        run(&mut h, 8..17, &[1]);
        assert!(!h.suspects(at(16), 0), "silent since 7, patient until 17");
        assert_eq!(h.deadline(), (at(17), WakeReason::Heartbeat));
        h.beat(at(16) + Span::micros(500));
        h.beat(at(17));
        assert!(h.suspects(at(17), 0) && !h.suspects(at(17), 1));
        assert_eq!(h.leader(at(17)), Some(1));
    }

    #[test]
    fn the_deadline_names_a_suspicion_that_comes_before_the_next_counter() {
        let mut h = FailureDetector::new(0, &[0, 1], Span::millis(7), TIMEOUT);
        h.observe(at(0), 1, 1, true);
        assert_eq!(h.beat(at(0)), Some(1));
        assert_eq!(h.beat(at(7)), Some(2));
        assert_eq!(h.deadline(), (at(10), WakeReason::Suspicion));
        h.beat(at(10));
        assert!(h.suspects(at(10), 1));
        assert_eq!(h.deadline(), (at(14), WakeReason::Heartbeat));
    }

    #[test]
    fn a_row_that_was_never_written_is_no_heartbeat() {
        let mut h = of_three(2);
        for t in 0..12 {
            h.observe(at(t), 0, 0, true);
            h.observe(at(t), 1, 1 + t, true);
            h.beat(at(t));
        }
        assert_eq!(h.leader(at(11)), Some(1));
    }

    #[test]
    fn a_counter_that_falls_is_a_restart() {
        let mut h = of_three(1);
        run(&mut h, 0..30, &[2]);
        assert!(h.suspects(at(29), 0));
        h.observe(at(30), 0, 700, true);
        run(&mut h, 30..90, &[2]);
        assert!(h.suspects(at(89), 0));
        h.observe(at(90), 0, 1, true);
        assert!(!h.suspects(at(90), 0));
        assert_eq!(h.leader(at(90)), Some(0));
    }

    #[test]
    fn a_replica_that_lacks_state_does_not_lead() {
        let mut h = of_three(1);
        h.observe(at(0), 0, 1, false);
        assert_eq!(h.leader(at(0)), Some(1));
        h.observe(at(0), 1, 0, false);
        assert_eq!(h.leader(at(0)), Some(2), "nor does this process itself");
        h.observe(at(0), 2, 1, false);
        assert_eq!(h.leader(at(0)), None);
        h.observe(at(1), 0, 1, true);
        assert_eq!(h.leader(at(1)), Some(0), "fitness counts though the counter does not move");
    }

    #[test]
    fn a_false_suspicion_doubles_the_patience_up_to_a_bound() {
        let mut h = of_three(1);
        let (mut t, mut seen) = (0, Vec::new());
        for counter in 1..=7 {
            h.observe(at(t), 0, counter, true);
            assert!(!h.suspects(at(t), 0));
            seen.push(h.patience(0).0 / TIMEOUT.0);
            while !h.suspects(at(t), 0) {
                t += 1;
                h.beat(at(t));
            }
        }
        assert_eq!(seen, [1, 2, 4, 8, 16, 16, 16]);
        assert_eq!(h.patience(2), TIMEOUT, "patience is a peer's own");
    }

    /// Rank 0 of three, where counters travel slowly.
    fn where_streams_are_slow() -> FailureDetector {
        let mut h = of_three(0);
        h.grow_patience_to(4096);
        h
    }

    /// Has rank 1 be heard for so long and then silent for so long, in milliseconds, as often as there are
    /// silences; patience with it afterwards, and the calm that it needs.
    fn after(heard: u64, silences: &mut dyn Iterator<Item = u64>) -> (Span, u64) {
        let mut h = where_streams_are_slow();
        let mut t = 0;
        for silent in silences {
            run(&mut h, t..t + heard, &[1, 2]);
            t += heard;
            run(&mut h, t..t + silent, &[2]);
            t += silent;
        }
        run(&mut h, t..t + 2, &[1, 2]);
        assert_eq!(h.patience(2), TIMEOUT, "patience is a peer's own");
        (h.patience(1), h.peers[1].calm)
    }

    fn ten_times(silent: u64) -> impl Iterator<Item = u64> {
        core::iter::repeat_n(silent, 10)
    }

    #[test]
    fn patience_does_not_grow_with_a_peer_that_is_away_again_and_again() {
        assert_eq!(after(50, &mut ten_times(7000)), (TIMEOUT, CALM));
        assert_eq!(after(25, &mut ten_times(30)), (TIMEOUT, CALM));
    }

    #[test]
    fn outages_of_growing_length_leave_patience_where_it_was() {
        // Each of them is shorter than twice what patience would be if it had doubled before.
        for growing in [&[16, 36, 76][..], &[18, 38, 78, 158, 318, 638, 1_278, 2_558]] {
            let silences = &mut growing.iter().copied();
            assert_eq!(after(50, silences), (TIMEOUT, CALM), "{growing:?}");
        }
    }

    #[test]
    fn patience_doubles_once_with_a_peer_that_is_slow_twice() {
        assert_eq!(after(50, &mut [15].into_iter()), (TIMEOUT, CALM), "once may be an outage");
        assert_eq!(after(50, &mut ten_times(15)), (TIMEOUT.times(2), CALM * 2));
    }

    #[test]
    fn patience_grows_with_a_peer_that_is_hardly_heard() {
        let (patience, calm) = after(5, &mut (0..8).map(|n| 25 << n));
        assert!(patience >= TIMEOUT.times(128) && calm > CALM, "{patience:?} {calm}");
        assert_eq!(after(5, &mut ten_times(300)).0, TIMEOUT.times(32), "more than it is silent");
    }

    #[test]
    fn patience_never_exceeds_seconds_whatever_the_timeout() {
        for timeout in [Span::millis(10), Span::millis(250), Span::secs(1), Span::secs(60)] {
            let mut h = FailureDetector::new(0, &[0, 1], INTERVAL, timeout);
            h.grow_patience_to(4096);
            let mut now = Time::ZERO;
            for counter in 1..=20 {
                h.observe(now, 1, counter, true);
                while !h.suspects(now, 1) {
                    now += Span(timeout.0 / 2);
                    h.beat(now);
                }
            }
            h.observe(now, 1, 21, true);
            assert_eq!(h.patience(1), PATIENCE_MAX.max(timeout), "timeout {timeout:?}");
        }
    }

    #[test]
    fn patience_is_back_at_the_timeout_after_minutes_of_calm() {
        let mut h = where_streams_are_slow();
        h.peers[1].patience = PATIENCE_MAX;
        h.peers[1].calm = CALM * 4096;
        let minutes = 8 * 60 * 1000;
        run(&mut h, 0..minutes / 2, &[1, 2]);
        assert!(h.patience(1) < Span::millis(200), "{:?}", h.patience(1));
        run(&mut h, minutes / 2..minutes, &[1, 2]);
        assert_eq!(h.patience(1), TIMEOUT);
    }

    #[test]
    fn patience_does_not_shrink_below_what_a_peer_needs() {
        let mut h = where_streams_are_slow();
        h.peers[1].patience = Span::millis(640);
        let mut suspected = 0;
        for counter in 0..2_000 {
            let t = 400 * counter;
            run(&mut h, t..t + 400, &[2]);
            suspected += u32::from(h.suspects(at(t + 399), 1));
            h.observe(at(t + 400), 1, counter + 1, true);
        }
        assert_eq!((h.patience(1), suspected), (Span::millis(500), 0), "it is heard each 400 ms");
    }

    #[test]
    fn calm_shrinks_the_patience_slowly_to_the_timeout() {
        let mut h = of_three(1);
        run(&mut h, 0..10, &[]);
        h.beat(at(10));
        h.observe(at(11), 0, 1_000_000, true);
        assert_eq!(h.patience(0), TIMEOUT.times(2));
        run(&mut h, 12..1_290, &[0]);
        assert_eq!(h.patience(0), TIMEOUT.times(2), "not before 64 times 20 ms of calm");
        run(&mut h, 1_290..1_300, &[0]);
        assert_eq!(h.patience(0), Span::micros(17_500));
        run(&mut h, 1_300..20_000, &[0]);
        assert_eq!(h.patience(0), TIMEOUT, "and never below the timeout");
    }

    #[test]
    fn a_process_that_was_away_suspects_no_peer_on_waking() {
        let mut h = of_three(2);
        run(&mut h, 0..5, &[0, 1]);
        let woken = at(5_000);
        assert!(!h.suspects(woken, 0), "even when asked before anything else");
        assert_eq!(h.leader(woken), Some(0));
        assert_eq!(h.beat(woken), Some(6), "its own counter is overdue");
        run(&mut h, 5_001..5_009, &[1]);
        assert_eq!(h.leader(at(5_008)), Some(0), "patience was started anew");
        run(&mut h, 5_009..5_011, &[1]);
        assert_eq!(h.leader(at(5_010)), Some(1), "and does end");
        assert_eq!(h.patience(1), TIMEOUT, "no suspicion of rank 1 was counted as false");
    }

    #[test]
    fn a_process_that_was_away_still_suspects_the_peers_that_it_did_before() {
        let mut h = of_three(2);
        run(&mut h, 0..15, &[1]);
        assert!(h.suspects(at(14), 0));
        h.beat(at(9_000));
        assert!(h.suspects(at(9_000), 0) && !h.suspects(at(9_000), 1));
    }

    #[test]
    fn of_a_time_without_a_step_only_a_quarter_of_the_timeout_counts() {
        let mut h = of_three(2);
        run(&mut h, 0..5, &[0, 1]);
        // Stepped every 9 ms of 10: each time counts as 2.5 ms.
        for n in 1..4 {
            h.beat(at(4 + 9 * n));
            assert!(!h.suspects(at(4 + 9 * n), 0), "after {n}");
        }
        h.beat(at(4 + 9 * 4));
        assert!(h.suspects(at(4 + 9 * 4), 0), "it does end");
        let mut h = of_three(2);
        run(&mut h, 0..5, &[0, 1]);
        run(&mut h, 5..14, &[1]);
        assert!(!h.suspects(at(13), 0));
        h.beat(at(14));
        assert!(h.suspects(at(14), 0), "who is stepped in time suspects in time");
    }

    #[test]
    fn the_start_is_not_a_silence() {
        let mut h = of_three(1);
        assert_eq!(h.leader(at(777)), Some(0));
        h.beat(at(777));
        assert_eq!(h.leader(at(786)), Some(0));
    }

    #[test]
    fn a_late_step_that_reads_first_suspects_no_peer() {
        let mut h = of_three(1);
        run(&mut h, 0..5, &[0, 2]);
        run(&mut h, 5..13, &[]);
        h.observe(at(15), 0, 99, true);
        h.beat(at(15));
        assert!(!h.suspects(at(15), 0) && h.suspects(at(15), 2));
        assert_eq!(h.patience(0), TIMEOUT);
    }

    #[test]
    fn an_outside_verdict_holds_until_the_counter_moves_or_the_contrary_is_said() {
        let mut h = of_three(2);
        run(&mut h, 0..3, &[0, 1]);
        h.suspect(0);
        h.observe(at(3), 0, 3, true);
        assert_eq!(h.leader(at(3)), Some(1), "the counter stood");
        h.observe(at(3), 0, 4, true);
        assert_eq!((h.leader(at(3)), h.patience(0)), (Some(0), TIMEOUT), "not its own mistake");
        h.suspect(0);
        h.trust(0);
        assert_eq!(h.leader(at(3)), Some(0));
        run(&mut h, 4..40, &[1]);
        assert_eq!(h.leader(at(39)), Some(0), "vouched for, however silent");
        h.suspect(0);
        assert_eq!(h.leader(at(39)), Some(1));
        h.suspect(2);
        assert!(!h.suspects(at(39), 2), "nobody is talked out of its own life");
    }

    #[test]
    fn a_coordination_service_has_the_last_word() {
        let mut h = of_three(1);
        run(&mut h, 0..3, &[0, 2]);
        h.override_leader(Some(2));
        run(&mut h, 3..40, &[0]);
        assert!(h.suspects(at(39), 2));
        assert_eq!(h.leader(at(39)), Some(2));
        h.override_leader(None);
        assert_eq!(h.leader(at(39)), Some(0));
    }

    #[test]
    #[should_panic(expected = "interval must be below timeout")]
    fn an_interval_that_outlasts_the_timeout_is_refused() {
        let _ = FailureDetector::new(0, &[0], TIMEOUT, TIMEOUT);
    }
}

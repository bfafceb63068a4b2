//! Who of a group lives, and who should lead it: an oracle made of counters in shared memory.
//!
//! Every replica counts up and writes its counter where the others of its group can read it. A
//! counter that has not moved for a while is the sign of a replica that has failed; the first
//! replica, in an agreed order, that is neither suspected nor short of state should lead. This is
//! what `leader(g)` of [TRAM 2.1] asks for: it may be wrong for as long as it likes, and is right
//! in the end when replicas and memory are timely. Protocols must be safe whatever it says.
//!
//! ```text
//! rank 0   1----2----3----X                        counter written every `interval`
//! rank 1   |    |    |    .    .    .    |         `patience` without a move:
//!          leader is rank 0              leader is rank 1
//! ```
//!
//! # Rules
//! 1. A counter that moves is a sign of life; 0 is what an unwritten row shows, and is none. A
//!    counter that falls belongs to a replica that started again: that is a sign of life too.
//! 2. No move for [`patience`](Heartbeat::patience) makes a peer suspected, and it stays so until
//!    its counter moves. A process never suspects itself.
//! 3. A suspicion that proves false doubles the patience with that peer, up to
//!    [`PATIENCE_GROWTH_MAX`] times the configured timeout; each calm stretch afterwards takes an
//!    eighth away, down to the timeout. So a slow machine settles, and a fast one fails over fast. One
//!    that was away for long can be told from a slow one ([`Heartbeat::tell_outages`]): patience is a
//!    guess of how long one that lives may be silent, and that silence says nothing about it.
//! 4. Silence counts only while this process was there to hear it. Of a time in which it was not
//!    stepped no more than a quarter of the timeout counts, or an interval if that is longer: where
//!    cores are short, those whom it waits for were not run either. If it was not stepped for as long
//!    as the timeout, it starts the patience with everybody anew; who was suspected before stays so.
//! 5. What an outside detector says ([`Heartbeat::suspect`], [`Heartbeat::trust`]) holds until the
//!    counter moves or the detector says the contrary.
//! 6. A coordination service that names the leader ([`Heartbeat::override_leader`]) has the last
//!    word.
//!
//! # In a protocol's step
//! First [`Heartbeat::saw`] for each peer's row, then [`Heartbeat::beat`] (and publish what it
//! gives), then [`Heartbeat::leader`]; [`Heartbeat::deadline`] goes into the protocol's own. In this
//! order a late step never suspects a peer whose new counter lies there to be read.

use alloc::vec::Vec;
use amcast_core::step::Why;
use amcast_core::{Span, Time};

/// How far patience with a peer can grow: this many times the configured timeout.
pub const PATIENCE_GROWTH_MAX: u64 = 16;

/// Of a time in which this process was not stepped, so large a part of the timeout counts as silence.
const HEARD: u64 = 4;

/// A peer is calm when it was not suspected for this many times the patience with it.
const CALM: u64 = 64;

/// Each calm stretch takes one part of so many from the patience.
const SHRINK: u64 = 8;

/// The counters of a group's replicas as one of them sees them. See the [module](self) for its
/// rules.
#[derive(Clone, Debug)]
pub struct Heartbeat {
    me: usize,
    /// All ranks, who should lead first in front.
    preference: Vec<usize>,
    interval: Span,
    timeout: Span,
    /// How far patience can grow, in timeouts.
    growth: u64,
    /// How far calm stretches can grow, in times [`CALM`].
    calm_growth: u64,
    /// Whether one that was silent for long counts as away, and not as slow.
    tells_outages: bool,
    /// By rank. The own entry's `fit` is used, the rest of it is not.
    peers: Vec<Peer>,
    /// The own counter as last published; only grows.
    counter: u64,
    beat_due: Time,
    /// When this process was last seen to run; none before the first time.
    ran: Option<Time>,
    override_leader: Option<usize>,
}

/// What is known of one rank.
#[derive(Clone, Copy, Debug)]
struct Peer {
    /// The counter as last seen; 0 if it was never written.
    counter: u64,
    /// When the counter was last seen to move, or patience was started anew.
    moved: Time,
    /// When it was last heard again after a silence that was too long.
    back: Time,
    /// Whether its row says that it has all state. Believed until the row says otherwise.
    fit: bool,
    /// How long its counter may stand still.
    patience: Span,
    /// Since when the patience is what it is, and no suspicion was false.
    calm_since: Time,
    /// How many times the patience a calm stretch lasts.
    calm: u64,
    /// Whether it was found silent for too long and has not moved since.
    silent: bool,
    hint: Option<Hint>,
}

impl Peer {
    /// Whether the silence that ends now was that of one who was away, and not of one who is slow.
    fn was_away(&self, now: Time) -> bool {
        let long = self.patience.times(2);
        now.since(self.moved) > long && self.moved.since(self.back) > long
    }
}

/// What an outside detector said last of a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Hint {
    Suspect,
    Trust,
}

impl Heartbeat {
    /// The oracle of rank `me` in a group whose ranks `preference` lists, each once, the one who
    /// should lead first in front. A counter is published every `interval`; a peer is suspected
    /// after `timeout` without one, to begin with. Interval over timeout is what a burst of work at
    /// the peer can swallow: a tenth is a sound choice.
    ///
    /// # Panics
    /// If `preference` is not a permutation that holds `me`, or `interval` is not shorter than
    /// `timeout` or is zero: configurations are checked before they get here.
    pub fn new(me: usize, preference: &[usize], interval: Span, timeout: Span) -> Self {
        let ranks = preference.len();
        assert!(me < ranks, "rank {me} is not one of {ranks}");
        assert!((0..ranks).all(|r| preference.contains(&r)), "{preference:?} misses a rank");
        assert!(Span::ZERO < interval && interval < timeout, "interval must be below timeout");
        let peer = Peer {
            counter: 0,
            moved: Time::ZERO,
            back: Time::ZERO,
            fit: true,
            patience: timeout,
            calm_since: Time::ZERO,
            calm: CALM,
            silent: false,
            hint: None,
        };
        Self {
            me,
            preference: preference.to_vec(),
            interval,
            timeout,
            growth: PATIENCE_GROWTH_MAX,
            calm_growth: 1,
            tells_outages: false,
            peers: alloc::vec![peer; ranks],
            counter: 0,
            beat_due: Time::ZERO,
            ran: None,
            override_leader: None,
        }
    }

    /// Lets the patience with a peer grow to this many times the timeout, and not only to
    /// [`PATIENCE_GROWTH_MAX`]: where what carries the counters is slow without bound. There each
    /// suspicion that proves false doubles the calm stretch, too, up to as many times, so that they
    /// become ever rarer: what takes longer than one stretch gets done in the end.
    pub const fn grow_patience_to(&mut self, timeouts: u64) {
        self.growth = timeouts;
        self.calm_growth = timeouts;
    }

    /// Has one count as away, and not as slow, that was heard for more than twice the patience with it and is
    /// heard again after more than twice that: its process stood still, or its host was cut off. Patience
    /// with it stays as it is. More would not have borne that silence, and would have everybody wait longer
    /// the next time. Who is heard in between for less than that is slow, however long it was silent:
    /// others would have no time to get anything done with it.
    pub const fn tell_outages(&mut self) {
        self.tells_outages = true;
    }

    /// The counter to publish now, if it is time to. Call it once a step, after
    /// [`Heartbeat::saw`]: it also finds who has been silent for too long.
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

    /// Takes in what the row of `rank` shows: its counter, and whether it has all state. Cheap when
    /// nothing moved, so it may be called on every poll. Of the own row only `fit` is taken.
    pub fn saw(&mut self, now: Time, rank: usize, counter: u64, fit: bool) {
        self.run(now);
        let Self { timeout, growth, calm_growth, tells_outages, .. } = *self;
        let most = timeout.times(growth);
        let peer = &mut self.peers[rank];
        peer.fit = fit;
        if rank == self.me || counter == 0 || counter == peer.counter {
            return;
        }
        if peer.silent {
            if !(tells_outages && peer.was_away(now)) {
                peer.patience = peer.patience.max(peer.patience.times(2).min(most));
                peer.calm = (peer.calm * 2).min(CALM * calm_growth);
            }
            peer.back = now;
            peer.calm_since = now;
        } else if now.since(peer.calm_since) >= peer.patience.times(peer.calm) {
            if peer.patience == timeout {
                peer.calm = (peer.calm / 2).max(CALM);
            }
            peer.patience = (peer.patience - Span(peer.patience.0 / SHRINK)).max(timeout);
            peer.calm_since = now;
        }
        (peer.counter, peer.moved, peer.silent, peer.hint) = (counter, now, false, None);
    }

    /// Whether `rank` seems to have failed.
    pub fn suspects(&self, now: Time, rank: usize) -> bool {
        match self.peers[rank].hint {
            _ if rank == self.me => false,
            Some(Hint::Suspect) => true,
            Some(Hint::Trust) => false,
            None => self.peers[rank].silent || self.is_silent(now, rank),
        }
    }

    /// Whether the row of `rank` says that it has all state.
    pub fn is_fit(&self, rank: usize) -> bool {
        self.peers[rank].fit
    }

    /// The rank that should lead: the one that a coordination service names, or the first one in
    /// order of preference that is fit and not suspected, this process included. None if there is
    /// no such rank: nobody that is known to have all state works.
    pub fn leader(&self, now: Time) -> Option<usize> {
        let works = |&rank: &usize| self.peers[rank].fit && !self.suspects(now, rank);
        self.override_leader.or_else(|| self.preference.iter().copied().find(works))
    }

    /// `rank` began a new life: that it was silent before was no false alarm, and its counter
    /// starts again.
    pub fn restarted(&mut self, now: Time, rank: usize) {
        let peer = &mut self.peers[rank];
        (peer.counter, peer.moved, peer.silent, peer.hint) = (0, now, false, None);
    }

    /// An outside detector suspects `rank`. Of this process itself it is not believed.
    pub fn suspect(&mut self, rank: usize) {
        self.peers[rank].hint = Some(Hint::Suspect);
    }

    /// An outside detector vouches for `rank`.
    pub fn trust(&mut self, rank: usize) {
        self.peers[rank].hint = Some(Hint::Trust);
    }

    /// A coordination service names the leader, whatever the counters say; `None` gives the choice
    /// back to them.
    pub fn override_leader(&mut self, rank: Option<usize>) {
        assert!(rank.is_none_or(|r| r < self.peers.len()), "no rank {rank:?}");
        self.override_leader = rank;
    }

    /// How long the counter of `rank` may stand still before it is suspected.
    pub fn patience(&self, rank: usize) -> Span {
        self.peers[rank].patience
    }

    /// How long the counter of `rank` has stood still, as far as this process was there to see it.
    pub fn silence(&self, now: Time, rank: usize) -> Span {
        now.since(self.peers[rank].moved)
    }

    /// When [`Heartbeat::beat`] must be called next, and for what: a counter is due, or a peer's
    /// silence becomes a suspicion.
    pub fn deadline(&self) -> (Time, Why) {
        let open = |&(rank, peer): &(usize, &Peer)| {
            rank != self.me && !peer.silent && peer.hint.is_none() && self.ran.is_some()
        };
        let peers = self.peers.iter().enumerate();
        let suspicion = peers.filter(open).map(|(_, peer)| peer.moved + peer.patience).min();
        match suspicion {
            Some(at) if at < self.beat_due => (at, Why::Suspicion),
            _ => (self.beat_due, Why::Heartbeat),
        }
    }

    /// Whether the silence of `rank` has lasted too long, as far as this process can tell.
    fn is_silent(&self, now: Time, rank: usize) -> bool {
        let peer = &self.peers[rank];
        let moved = peer.moved + self.unheard(now);
        rank != self.me && !self.was_away(now) && now.since(moved) >= peer.patience
    }

    /// How much of the time since this process ran last is nobody's silence.
    fn unheard(&self, now: Time) -> Span {
        let gap = self.ran.map_or(Span::ZERO, |ran| now.since(ran));
        Span(gap.0.saturating_sub(self.interval.0.max(self.timeout.0 / HEARD)))
    }

    /// Whether this process did not run for so long that nobody's silence means anything.
    fn was_away(&self, now: Time) -> bool {
        self.ran.is_none_or(|ran| now.since(ran) >= self.timeout)
    }

    /// Notes that this process runs; takes out what it could not hear, and starts patience anew if it
    /// was away (rule 4).
    fn run(&mut self, now: Time) {
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

    /// Rank `me` of three, who prefer the lowest.
    fn of_three(me: usize) -> Heartbeat {
        Heartbeat::new(me, &[0, 1, 2], INTERVAL, TIMEOUT)
    }

    /// Runs `h` every millisecond of `ms`; the ranks in `alive` count along.
    fn run(h: &mut Heartbeat, ms: core::ops::Range<u64>, alive: &[usize]) {
        for t in ms {
            for &rank in alive {
                h.saw(at(t), rank, t + 1, true);
            }
            h.beat(at(t));
        }
    }

    #[test]
    fn a_counter_is_due_every_interval_and_only_grows() {
        let mut h = of_three(0);
        assert_eq!(h.beat(at(5)), Some(1));
        assert_eq!(h.deadline(), (at(6), Why::Heartbeat));
        assert_eq!(h.beat(at(5)), None);
        assert_eq!(h.beat(at(6)), Some(2));
        assert_eq!(h.beat(at(9)), Some(3), "a late beat is made up for once, not three times");
        assert_eq!(h.beat(at(9)), None);
    }

    #[test]
    fn the_first_live_rank_in_order_of_preference_leads() {
        let mut h = Heartbeat::new(1, &[2, 0, 1], INTERVAL, TIMEOUT);
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
        assert_eq!(h.deadline(), (at(17), Why::Heartbeat));
        h.beat(at(16) + Span::micros(500));
        h.beat(at(17));
        assert!(h.suspects(at(17), 0) && !h.suspects(at(17), 1));
        assert_eq!(h.leader(at(17)), Some(1));
    }

    #[test]
    fn the_deadline_names_a_suspicion_that_comes_before_the_next_counter() {
        let mut h = Heartbeat::new(0, &[0, 1], Span::millis(7), TIMEOUT);
        h.saw(at(0), 1, 1, true);
        assert_eq!(h.beat(at(0)), Some(1));
        assert_eq!(h.beat(at(7)), Some(2));
        assert_eq!(h.deadline(), (at(10), Why::Suspicion));
        h.beat(at(10));
        assert!(h.suspects(at(10), 1));
        assert_eq!(h.deadline(), (at(14), Why::Heartbeat));
    }

    #[test]
    fn a_row_that_was_never_written_is_no_sign_of_life() {
        let mut h = of_three(2);
        for t in 0..12 {
            h.saw(at(t), 0, 0, true);
            h.saw(at(t), 1, 1 + t, true);
            h.beat(at(t));
        }
        assert_eq!(h.leader(at(11)), Some(1));
    }

    #[test]
    fn a_counter_that_falls_is_a_new_life() {
        let mut h = of_three(1);
        run(&mut h, 0..30, &[2]);
        assert!(h.suspects(at(29), 0));
        h.saw(at(30), 0, 700, true);
        run(&mut h, 30..90, &[2]);
        assert!(h.suspects(at(89), 0));
        h.saw(at(90), 0, 1, true);
        assert!(!h.suspects(at(90), 0));
        assert_eq!(h.leader(at(90)), Some(0));
    }

    #[test]
    fn who_lacks_state_does_not_lead() {
        let mut h = of_three(1);
        h.saw(at(0), 0, 1, false);
        assert_eq!(h.leader(at(0)), Some(1));
        h.saw(at(0), 1, 0, false);
        assert_eq!(h.leader(at(0)), Some(2), "nor does this process itself");
        h.saw(at(0), 2, 1, false);
        assert_eq!(h.leader(at(0)), None);
        h.saw(at(1), 0, 1, true);
        assert_eq!(h.leader(at(1)), Some(0), "fitness counts though the counter stands");
    }

    #[test]
    fn a_false_suspicion_doubles_the_patience_up_to_a_bound() {
        let mut h = of_three(1);
        let (mut t, mut seen) = (0, Vec::new());
        for counter in 1..=7 {
            h.saw(at(t), 0, counter, true);
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

    /// The patience with rank 1 and how calm it must be, after it was heard for so long and then silent for
    /// so long, in milliseconds, ten times.
    fn after(heard: u64, silent: impl Fn(&Heartbeat) -> u64) -> (Span, u64) {
        let mut h = of_three(0);
        h.grow_patience_to(4096);
        h.tell_outages();
        let mut t = 0;
        for _ in 0..10 {
            run(&mut h, t..t + heard, &[1, 2]);
            t += heard;
            let until = t + silent(&h);
            run(&mut h, t..until, &[2]);
            t = until;
        }
        run(&mut h, t..t + 2, &[1, 2]);
        assert_eq!(h.patience(2), TIMEOUT, "patience is a peer's own");
        (h.patience(1), h.peers[1].calm)
    }

    #[test]
    fn one_that_is_away_again_and_again_is_not_waited_for_longer() {
        assert_eq!(after(50, |_| 15), (TIMEOUT.times(2), CALM * 2), "it was slow, once");
        assert_eq!(after(50, |_| 7000), (TIMEOUT, CALM));
        assert_eq!(after(25, |_| 30), (TIMEOUT, CALM));
    }

    #[test]
    fn one_that_is_slow_again_and_again_is() {
        // It is heard again before twice the patience is over, or hardly at all.
        let longer = |h: &Heartbeat| h.patience(1).0 * 3 / 2 / 1_000_000;
        for (patience, calm) in [after(50, longer), after(5, |h| longer(h) * 4)] {
            assert!(patience > TIMEOUT.times(256) && calm > CALM, "{patience:?} {calm}");
        }
        assert_eq!(after(5, |_| 300).0, TIMEOUT.times(32), "more than it is silent");
    }

    #[test]
    fn calm_shrinks_the_patience_slowly_to_the_timeout() {
        let mut h = of_three(1);
        run(&mut h, 0..10, &[]);
        h.beat(at(10));
        h.saw(at(11), 0, 1_000_000, true);
        assert_eq!(h.patience(0), TIMEOUT.times(2));
        run(&mut h, 12..1_290, &[0]);
        assert_eq!(h.patience(0), TIMEOUT.times(2), "not before 64 times 20 ms of calm");
        run(&mut h, 1_290..1_300, &[0]);
        assert_eq!(h.patience(0), Span::micros(17_500));
        run(&mut h, 1_300..20_000, &[0]);
        assert_eq!(h.patience(0), TIMEOUT, "and never below the timeout");
    }

    #[test]
    fn who_was_away_suspects_nobody_on_waking() {
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
    fn who_was_away_still_suspects_whom_it_did_before() {
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
    fn a_late_step_that_reads_first_suspects_nobody() {
        let mut h = of_three(1);
        run(&mut h, 0..5, &[0, 2]);
        run(&mut h, 5..13, &[]);
        h.saw(at(15), 0, 99, true);
        h.beat(at(15));
        assert!(!h.suspects(at(15), 0) && h.suspects(at(15), 2));
        assert_eq!(h.patience(0), TIMEOUT);
    }

    #[test]
    fn an_outside_hint_holds_until_the_counter_moves_or_the_contrary_is_said() {
        let mut h = of_three(2);
        run(&mut h, 0..3, &[0, 1]);
        h.suspect(0);
        h.saw(at(3), 0, 3, true);
        assert_eq!(h.leader(at(3)), Some(1), "the counter stood");
        h.saw(at(3), 0, 4, true);
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
        let _ = Heartbeat::new(0, &[0], TIMEOUT, TIMEOUT);
    }
}

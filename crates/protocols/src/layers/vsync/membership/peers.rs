//! The state of the other configured processes, as far as this one knows it: whether they live, in which
//! incarnation, and with the application's state.

use crate::layers::failure_detector::FailureDetector;
use crate::layers::vsync::VsyncSettings;
use alloc::vec::Vec;
use amcast_core::groupcast::GroupMember;
use amcast_core::step::WakeReason;
use amcast_core::{Pid, Span, Time};

/// How far the patience with a slow peer may grow, in timeouts: far, in a network whose delays are many times
/// the timeout, as far as it stays within seconds.
const PATIENCE_GROWTH: u64 = 1 << 12;

/// The knowledge of a process of its peers, each by pid.
#[derive(Debug)]
pub(crate) struct PeerStates {
    detector: FailureDetector,
    /// Whether silence says nothing, and only an oracle knows who has failed.
    oracle_only: bool,
    /// How many packets of each were received.
    heard: Vec<u64>,
    /// The processes that have failed, as an oracle says.
    dead: Vec<bool>,
    /// The latest incarnation of each that is known.
    lives: Vec<u64>,
    /// The incarnation in which each was heard last.
    heard_lives: Vec<u64>,
    /// Whether each has the application's state in force, as it reported in that incarnation.
    fit: Vec<bool>,
}

impl PeerStates {
    pub(super) fn new(settings: &VsyncSettings) -> Self {
        let n = settings.processes;
        let order: Vec<usize> = (0..n).collect();
        let mut detector =
            FailureDetector::new(settings.me.index(), &order, settings.heartbeat, settings.suspect);
        detector.grow_patience_to(PATIENCE_GROWTH);
        if settings.told_who_failed {
            (0..n).for_each(|p| detector.trust(p));
        }
        Self {
            detector,
            oracle_only: settings.told_who_failed,
            heard: alloc::vec![0; n],
            dead: alloc::vec![false; n],
            lives: alloc::vec![0; n],
            heard_lives: alloc::vec![0; n],
            fit: alloc::vec![false; n],
        }
    }

    pub(super) fn suspects(&self, now: Time, p: Pid) -> bool {
        self.detector.suspects(now, p.index())
    }

    /// Whether a heartbeat is due now.
    pub(crate) fn beat(&mut self, now: Time) -> bool {
        self.detector.beat(now).is_some()
    }

    /// When the next heartbeat is due, or a silence too long.
    pub(crate) fn deadline(&self) -> (Time, WakeReason) {
        self.detector.deadline()
    }

    /// How long a process may be silent at present.
    pub(crate) fn patience(&self, p: Pid) -> Span {
        self.detector.patience(p.index())
    }

    /// How long it has been silent.
    pub(crate) fn silence(&self, now: Time, p: Pid) -> Span {
        self.detector.silence(now, p.index())
    }

    /// An oracle says that a process has failed.
    pub(crate) fn suspect(&mut self, p: Pid) {
        self.detector.suspect(p.index());
        self.dead[p.index()] = true;
    }

    /// An oracle says that a process lives.
    pub(crate) fn trust(&mut self, p: Pid) {
        self.dead[p.index()] = false;
        self.believe_oracle(p.index());
    }

    /// Where only an oracle knows who has failed, nothing that is heard, or not, changes what it said.
    fn believe_oracle(&mut self, at: usize) {
        match self.oracle_only {
            false => {}
            true if self.dead[at] => self.detector.suspect(at),
            true => self.detector.trust(at),
        }
    }

    /// The incarnation in which a process lives, as far as is known.
    pub(crate) fn life(&self, p: Pid) -> u64 {
        self.lives[p.index()]
    }

    /// This process lives in that incarnation.
    pub(super) fn set_own_life(&mut self, me: Pid, life: u64) {
        self.lives[me.index()] = life;
    }

    /// A process in the incarnation that it is known to live in.
    pub(crate) fn incarnation(&self, p: Pid) -> GroupMember {
        GroupMember { pid: p, life: self.life(p) }
    }

    /// Learns that a process has begun this incarnation: messages of an earlier one are void. Whether it lives is
    /// known only when it is heard, because it may have died since. Says whether this is news.
    pub(super) fn learn_incarnation(&mut self, p: Pid, life: u64) -> bool {
        let at = p.index();
        let is_new = life > self.lives[at];
        if is_new {
            (self.lives[at], self.fit[at]) = (life, false);
        }
        is_new
    }

    /// Hears a process in this incarnation, which was learned: beliefs about an earlier one are void.
    pub(super) fn hear(&mut self, now: Time, p: Pid, life: u64) {
        let at = p.index();
        if life > self.heard_lives[at] {
            (self.heard_lives[at], self.dead[at]) = (life, false);
            self.detector.restarted(now, at);
        }
        self.heard[at] += 1;
        self.detector.observe(now, at, self.heard[at], true);
        self.believe_oracle(at);
    }

    /// Whether a peer has the application's state in force.
    pub(crate) fn is_fit(&self, p: Pid) -> bool {
        self.fit[p.index()]
    }

    /// A peer reports whether it has the application's state in force.
    pub(crate) fn set_fit(&mut self, p: Pid, fit: bool) {
        self.fit[p.index()] = fit;
    }
}

//! The connectivity matrix: which processes hear each other, as they report with their heartbeats.
//!
//! Of a process that is not heard itself, or never was, nothing is known of what arrives there.

use alloc::vec::Vec;
use amcast_core::{Pid, messages};

/// The broken links of a process, among those to processes with which it exchanges heartbeats.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BrokenLinks {
    /// Processes that it does not hear.
    pub unheard: Vec<Pid>,
    /// Processes that it hears, and that report not to hear it.
    pub unreached: Vec<Pid>,
}

messages! {
    struct BrokenLinks { unheard, unreached }
}

/// The last reports of processes on their links.
#[derive(Clone, Debug)]
pub struct ConnectivityMatrix {
    /// By process.
    broken: Vec<BrokenLinks>,
}

impl ConnectivityMatrix {
    /// Of so many processes, none of which has reported a broken link.
    pub fn new(processes: usize) -> Self {
        Self { broken: alloc::vec![BrokenLinks::default(); processes] }
    }

    /// The links of `p` work in both directions, but for these.
    pub fn update(&mut self, p: Pid, broken: BrokenLinks) {
        self.broken[p.index()] = broken;
    }

    /// Whether `by` does not hear `of`, as it reported last.
    pub fn cannot_hear(&self, by: Pid, of: Pid) -> bool {
        self.broken[by.index()].unheard.contains(&of)
    }

    /// Whether `by` does not hear some process, as it reported last.
    pub(crate) fn has_unheard(&self, by: Pid) -> bool {
        !self.broken[by.index()].unheard.is_empty()
    }

    /// Whether `p` and `q` hear each other, as `p` reported last.
    pub fn connects(&self, p: Pid, q: Pid) -> bool {
        let BrokenLinks { unheard, unreached } = &self.broken[p.index()];
        !unheard.contains(&q) && !unreached.contains(&q)
    }
}

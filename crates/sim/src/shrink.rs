//! Makes a failing run smaller: fewer faults, fewer messages, fewer choices.

use crate::chooser::Concern;
use crate::faults::Fault;
use crate::run::RunRecord;
use alloc::vec::Vec;
use amcast_core::{Pid, Span};

/// Gives a smaller run for which `fails` still holds, trying at most `tries` runs. `fails` must
/// hold for `run`; it replays what it is given and judges it.
pub fn shrink(
    run: RunRecord,
    tries: usize,
    fails: &mut dyn FnMut(&RunRecord) -> bool,
) -> RunRecord {
    let mut shrinking = Shrinking { best: run, tries, fails };
    loop {
        let before = shrinking.best.clone();
        shrinking.drop_items(|run| &mut run.plan.strikes);
        shrinking.drop_outages();
        shrinking.drop_items(|run| &mut run.plan.casts);
        shrinking.drop_items(|run| &mut run.plan.barriers);
        for concern in Concern::ALL {
            shrinking.cut_choices(concern);
        }
        for concern in Concern::ALL {
            shrinking.zero_choices(concern);
        }
        if shrinking.tries == 0 || shrinking.best == before {
            shrinking.best.choices.trim();
            return shrinking.best;
        }
    }
}

struct Shrinking<'a> {
    best: RunRecord,
    tries: usize,
    fails: &'a mut dyn FnMut(&RunRecord) -> bool,
}

impl Shrinking<'_> {
    /// Keeps a candidate if it still fails.
    fn keep(&mut self, candidate: RunRecord) -> bool {
        if self.tries == 0 {
            return false;
        }
        self.tries -= 1;
        let fails = (self.fails)(&candidate);
        if fails {
            self.best = candidate;
        }
        fails
    }

    /// Leaves out runs of items: halves first, then ever smaller ones.
    fn drop_items<T>(&mut self, list: fn(&mut RunRecord) -> &mut Vec<T>) {
        let mut size = list(&mut self.best).len();
        while size > 0 && self.tries > 0 {
            let mut at = 0;
            while at < list(&mut self.best).len() && self.tries > 0 {
                let mut candidate = self.best.clone();
                let items = list(&mut candidate);
                let end = (at + size).min(items.len());
                items.drain(at..end);
                if !self.keep(candidate) {
                    at += size;
                }
            }
            size /= 2;
        }
    }

    /// Leaves out processes of those whose machines fail at one moment.
    fn drop_outages(&mut self) {
        fn outages(run: &mut RunRecord, strike: usize) -> Option<&mut Vec<(Pid, Option<Span>)>> {
            match &mut run.plan.strikes[strike].fault {
                Fault::Power { outages, .. } => Some(outages),
                _ => None,
            }
        }
        for strike in 0..self.best.plan.strikes.len() {
            let many = outages(&mut self.best, strike).map_or(0, |outages| outages.len());
            for i in (0..many).rev() {
                let mut candidate = self.best.clone();
                if let Some(outages) = outages(&mut candidate, strike) {
                    outages.remove(i);
                }
                self.keep(candidate);
            }
        }
    }

    /// Cuts the list of a concern: what is missing is the ordinary choice.
    fn cut_choices(&mut self, concern: Concern) {
        let mut cut = self.best.choices.of(concern).len();
        while cut > 0 && self.tries > 0 {
            let mut candidate = self.best.clone();
            let list = candidate.choices.of_mut(concern);
            list.truncate(list.len().saturating_sub(cut));
            if !self.keep(candidate) || cut > self.best.choices.of(concern).len() {
                cut /= 2;
            }
        }
    }

    /// Makes runs of choices ordinary ones.
    fn zero_choices(&mut self, concern: Concern) {
        let mut size = self.best.choices.of(concern).len() / 2;
        while size > 0 && self.tries > 0 {
            let mut at = 0;
            while at < self.best.choices.of(concern).len() && self.tries > 0 {
                let end = (at + size).min(self.best.choices.of(concern).len());
                if self.best.choices.of(concern)[at..end].iter().any(|&choice| choice != 0) {
                    let mut candidate = self.best.clone();
                    candidate.choices.of_mut(concern)[at..end].fill(0);
                    self.keep(candidate);
                }
                at = end;
            }
            size /= 2;
        }
    }
}

//! The search for an order of calls that explains their answers [Wing and Gong 1993; Lowe 2017].
//!
//! Calls lie in *lanes*. Within a lane a call that returned before another was made comes first;
//! calls of different lanes may come in any order. All calls in one lane: linearizability. A lane a
//! client: sequential consistency. The search takes calls one at a time, those that were made first
//! first, and goes back when no call fits; calls whose places the recorder told are taken by these
//! ([`crate::History::tell_place`]). It remembers (by fingerprint) which sets of calls led to
//! which state and does not go there twice; the number of these is what a budget limits.
//!
//! A call that only reads is taken as soon as it fits, without a way back: it changes nothing for those behind it.
//!
//! On one lane it also omits calls that cannot matter yet. Let B be the call that returns first. Every call that
//! comes before B was made before B returned, so it is among the calls that may come next. Those of
//! them that are not connected to B through calls that touch the same key (two reads do not count)
//! can as well come after B: they are not tried until B is in its place.

use super::model::ServiceModel;
use crate::intern::{NONE, mix};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;

/// A call on its lane; times are ranks among all calls and returns, no two alike.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Timed {
    /// The operation, by the caller's number.
    pub(crate) op: u32,
    pub(crate) lane: u32,
    pub(crate) call: u32,
    /// `NONE` if it did not return: then it may take effect at any time from its call, or never.
    pub(crate) ret: u32,
    /// Whether its answer is known, and so must fit when it takes effect.
    pub(crate) answered: bool,
    /// Its place in the order that is tried first, if the recorder told one; else [`UNPLACED`].
    pub(crate) place: u64,
}

/// The place of a call of which the recorder told none: behind all others.
pub(crate) const UNPLACED: u64 = u64::MAX;

/// The result of a search.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum SearchOutcome {
    /// There is an order that explains everything.
    Ordered,
    /// There is none. In one lane: no order gets past the return of this rank.
    Impossible { stuck: u32 },
    /// The budget ran out.
    Exhausted,
}

/// Where a search starts: a state, and which of the unreturned calls took effect already.
pub(crate) type Origin<S> = (S, Vec<u32>);

/// Sees each new state: how many returned calls have been ordered, their latest call, the state and
/// the calls ordered so far.
pub(crate) type Visit<'v, S> = &'v mut dyn FnMut(usize, u32, &S, &mut dyn Iterator<Item = u32>);

/// A call taken, and the choices that were open behind it.
struct SearchFrame<U> {
    /// The call (by place in `calls`) and what undoes it; none for the start.
    taken: Option<(u32, U)>,
    /// The choices in this state: from here to the end of the stack of choices.
    choices: usize,
    /// The latest call among the returned ones taken.
    latest_call: u32,
}

pub(crate) struct Search<'a, M: ServiceModel> {
    model: &'a M,
    ops: &'a [M::Op],
    calls: Vec<Timed>,
    /// Calls and returns of each lane in order as a linked list: entry 2i is the call of i, 2i+1 its
    /// return; behind all entries, two list heads a lane: returned and unreturned calls.
    next: Vec<u32>,
    prev: Vec<u32>,
    lanes: u32,
    /// Returned calls not ordered yet.
    open: usize,
    /// The keys of each call: those of call i end at `key_ends[i]`. Empty if all touch one key.
    keys: Vec<u32>,
    key_ends: Vec<usize>,
    /// The facts that the answers imply for all states. Nothing if a search is not to look ahead.
    known: Option<M::Known>,
    seen: Fingerprints,
}

impl<'a, M: ServiceModel> Search<'a, M> {
    /// A search among `calls`, of which `gone` (numbers of operations) have happened already.
    pub(crate) fn new(model: &'a M, ops: &'a [M::Op], calls: &[Timed], gone: &[u32]) -> Self {
        let mut calls: Vec<Timed> =
            calls.iter().copied().filter(|c| !gone.contains(&c.op)).collect();
        let used: BTreeSet<u32> = calls.iter().map(|c| c.lane).collect();
        let number: BTreeMap<u32, u32> = used.into_iter().zip(0..).collect();
        for c in &mut calls {
            c.lane = number.get(&c.lane).copied().unwrap_or_default();
        }
        let lanes = number.len() as u32;
        let heads = calls.len() * 2;
        let entries = heads + 2 * lanes as usize;
        let mut search = Self {
            model,
            ops,
            next: vec![NONE; entries],
            prev: vec![NONE; entries],
            lanes,
            open: calls.iter().filter(|c| c.ret != NONE).count(),
            keys: Vec::new(),
            key_ends: Vec::new(),
            known: None,
            seen: Fingerprints::new(),
            calls,
        };
        search.tell_keys();
        let mut order: Vec<(u32, u32)> = Vec::with_capacity(heads);
        for (i, c) in search.calls.iter().enumerate() {
            order.push((c.call, 2 * i as u32));
            if c.ret != NONE {
                order.push((c.ret, 2 * i as u32 + 1));
            }
        }
        order.sort_unstable();
        let mut last: Vec<u32> = (heads as u32..entries as u32).collect();
        for (_, entry) in order {
            let call = search.calls[entry as usize / 2];
            let list = 2 * call.lane as usize + usize::from(call.ret == NONE);
            search.next[last[list] as usize] = entry;
            search.prev[entry as usize] = last[list];
            last[list] = entry;
        }
        search
    }

    /// The same search, which looks ahead: it leaves out what cannot be, or need not be, as answers to
    /// come tell. So it ends sooner, but where it gets stuck says nothing.
    pub(crate) fn looking_ahead(mut self) -> Self {
        let ops = self.ops;
        let mut of = self.calls.iter().filter(|c| c.answered).map(|c| &ops[c.op as usize]);
        self.known = Some(self.model.known(&mut of));
        self
    }

    fn tell_keys(&mut self) {
        for c in &self.calls {
            self.model.keys(&self.ops[c.op as usize], &mut |k| self.keys.push(k));
            self.key_ends.push(self.keys.len());
        }
        let one = self.keys.first().copied();
        if self.lanes != 1 || self.keys.iter().all(|&k| Some(k) == one) {
            (self.keys, self.key_ends) = (Vec::new(), Vec::new());
        }
    }

    fn keys_of(&self, i: u32) -> &[u32] {
        let from = if i == 0 { 0 } else { self.key_ends[i as usize - 1] };
        &self.keys[from..self.key_ends[i as usize]]
    }

    /// Whether the order of two calls can matter to anyone.
    fn touch(&self, i: u32, j: u32) -> bool {
        let reads = |i: u32| self.model.only_reads(&self.ops[self.calls[i as usize].op as usize]);
        let theirs = self.keys_of(j);
        self.keys_of(i).iter().any(|k| theirs.contains(k)) && !(reads(i) && reads(j))
    }

    /// Of the `choices`, keeps those connected to the call that returns at `first_return`.
    fn keep_connected(&self, choices: &mut Vec<u32>, from: usize, first_return: u32) {
        let open = &mut choices[from..];
        let first = open.iter().position(|&i| self.calls[i as usize].ret == first_return);
        let Some(first) = first else { return };
        open.swap(0, first);
        let (mut kept, mut at) = (1, 0);
        while at < kept {
            let mut other = kept;
            while other < open.len() {
                if self.touch(open[at], open[other]) {
                    open.swap(kept, other);
                    kept += 1;
                }
                other += 1;
            }
            at += 1;
        }
        choices.truncate(from + kept);
    }

    /// Searches from `state`. Every new state costs one of `budget`.
    pub(crate) fn run(
        &mut self,
        state: &mut M::State,
        budget: &mut u64,
        mut visit: Option<Visit<'_, M::State>>,
    ) -> SearchOutcome {
        let (mut set, total) = (0_u128, self.open);
        let mut choices: Vec<u32> = Vec::new();
        let mut frames: Vec<SearchFrame<M::Undo>> =
            vec![SearchFrame { taken: None, choices: 0, latest_call: 0 }];
        if self.open == 0 {
            return SearchOutcome::Ordered;
        }
        let mut stuck = self.tell_choices(&mut choices);
        self.take_reads_first(state, &mut choices, 0);
        loop {
            let Some(frame) = frames.last() else { return SearchOutcome::Impossible { stuck } };
            if choices.len() == frame.choices {
                let Some((i, undo)) = frames.pop().and_then(|f| f.taken) else { continue };
                self.model.undo(state, undo);
                self.put_back(i);
                set ^= ticket(i);
                continue;
            }
            let latest_call = frame.latest_call;
            let Some(i) = choices.pop() else { continue };
            let call = self.calls[i as usize];
            let op = &self.ops[call.op as usize];
            if self.known.as_ref().is_some_and(|known| !self.model.agrees(state, op, known)) {
                continue;
            }
            let Some(undo) = self.model.apply(state, op, call.answered) else { continue };
            if !self.seen.add(set ^ ticket(i) ^ self.model.print(state)) {
                self.model.undo(state, undo);
                continue;
            }
            if *budget == 0 {
                return SearchOutcome::Exhausted;
            }
            *budget -= 1;
            set ^= ticket(i);
            self.take(i);
            let returned = call.ret != NONE;
            let latest_call = if returned { latest_call.max(call.call) } else { latest_call };
            frames.push(SearchFrame {
                taken: Some((i, undo)),
                choices: choices.len(),
                latest_call,
            });
            if let Some(visit) = &mut visit {
                let mut taken =
                    frames.iter().filter_map(|f| Some(self.calls[f.taken.as_ref()?.0 as usize].op));
                visit(total - self.open, latest_call, state, &mut taken);
            }
            if self.open == 0 {
                return SearchOutcome::Ordered;
            }
            let from = choices.len();
            stuck = stuck.max(self.tell_choices(&mut choices));
            self.take_reads_first(state, &mut choices, from);
        }
    }

    /// If a call that only reads fits in this state, no other choice need be tried: where it comes later in some order that
    /// explains all answers, it may as well come here, for it changes nothing. A search for where it gets
    /// stuck tries all the same: it is to see all states.
    fn take_reads_first(&self, state: &mut M::State, choices: &mut Vec<u32>, from: usize) {
        let Some(known) = &self.known else { return };
        let mut fits = |i: u32| {
            let call = self.calls[i as usize];
            let op = &self.ops[call.op as usize];
            if !call.answered || !self.model.only_reads(op) || !self.model.agrees(state, op, known)
            {
                return false;
            }
            let undo = self.model.apply(state, op, true);
            undo.map(|undo| self.model.undo(state, undo)).is_some()
        };
        if let Some(at) = choices[from..].iter().position(|&i| fits(i)) {
            choices.swap(from, from + at);
            choices.truncate(from + 1);
        }
    }

    /// Adds the calls that may come next, the best (by their places, then returned calls, those made first) last. Tells
    /// the rank of the first return that holds others up.
    fn tell_choices(&self, choices: &mut Vec<u32>) -> u32 {
        let (from, heads) = (choices.len(), 2 * self.calls.len() as u32);
        let mut first_return = NONE;
        for lane in 0..self.lanes {
            let mut limit = NONE;
            let mut entry = self.next[(heads + 2 * lane) as usize];
            while entry != NONE {
                let i = entry / 2;
                if entry % 2 == 1 {
                    limit = self.calls[i as usize].ret;
                    break;
                }
                choices.push(i);
                entry = self.next[entry as usize];
            }
            first_return = first_return.min(limit);
            let mut entry = self.next[(heads + 2 * lane + 1) as usize];
            while entry != NONE && self.calls[entry as usize / 2].call < limit {
                choices.push(entry / 2);
                entry = self.next[entry as usize];
            }
        }
        if !self.keys.is_empty() && first_return != NONE {
            self.keep_connected(choices, from, first_return);
        }
        choices[from..].sort_unstable_by_key(|&i| {
            let call = self.calls[i as usize];
            core::cmp::Reverse((call.place, call.ret == NONE, call.call))
        });
        first_return
    }

    fn take(&mut self, i: u32) {
        self.unlink(2 * i);
        if self.calls[i as usize].ret != NONE {
            self.unlink(2 * i + 1);
            self.open -= 1;
        }
    }

    /// The reverse of [`Self::take`]; calls are put back in the reverse order of taking.
    fn put_back(&mut self, i: u32) {
        if self.calls[i as usize].ret != NONE {
            self.relink(2 * i + 1);
            self.open += 1;
        }
        self.relink(2 * i);
    }

    fn unlink(&mut self, entry: u32) {
        let (before, after) = (self.prev[entry as usize], self.next[entry as usize]);
        self.next[before as usize] = after;
        if after != NONE {
            self.prev[after as usize] = before;
        }
    }

    fn relink(&mut self, entry: u32) {
        let (before, after) = (self.prev[entry as usize], self.next[entry as usize]);
        self.next[before as usize] = entry;
        if after != NONE {
            self.prev[after as usize] = entry;
        }
    }
}

/// A random-looking number for call `i`: sets of calls are distinguished by the sum (without carry) of
/// their numbers.
fn ticket(i: u32) -> u128 {
    let low = mix(u64::from(i) ^ 0x5bd1_e995_0000_0000);
    u128::from(mix(low ^ 0x1234_5678_9abc_def0)) << 64 | u128::from(low)
}

/// A set of fingerprints.
struct Fingerprints {
    slots: Vec<u128>,
    used: usize,
}

impl Fingerprints {
    fn new() -> Self {
        Self { slots: vec![0; 256], used: 0 }
    }

    /// Adds `print`; whether it is new.
    fn add(&mut self, print: u128) -> bool {
        let print = print.max(1); // 0 is a free slot
        if (self.used + 1) * 2 > self.slots.len() {
            let wider = vec![0; self.slots.len() * 2];
            for old in core::mem::replace(&mut self.slots, wider) {
                if old != 0 {
                    self.place(old);
                }
            }
        }
        let new = self.place(print);
        self.used += usize::from(new);
        new
    }

    fn place(&mut self, print: u128) -> bool {
        let mask = self.slots.len() - 1;
        let mut at = print as usize & mask;
        while self.slots[at] != 0 {
            if self.slots[at] == print {
                return false;
            }
            at = (at + 1) & mask;
        }
        self.slots[at] = print;
        true
    }
}

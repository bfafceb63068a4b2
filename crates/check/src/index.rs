//! Facts about a history that every property needs, worked out once: the correct processes, their deliveries in
//! which order, and who was meant to.

use crate::history::{CastRecord, History, HistoryEntry, Msg};
use crate::intern::NONE;
use crate::report::CounterexampleEvent;
use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

/// A history with its derived facts.
///
/// Order is judged on *first* deliveries: what is delivered twice is a matter of integrity, and
/// would otherwise count against every order as well.
pub(crate) struct Index<'a> {
    pub(crate) h: &'a History,
    /// Each process's casts and deliveries in order.
    pub(crate) logs: Vec<Cow<'a, [HistoryEntry]>>,
    pub(crate) correct: Vec<bool>,
    /// Whether each process is correct, or left its group by choice and was correct until then: what it
    /// did counts like that of a correct one, and it owes nothing any more.
    pub(crate) unfailed: Vec<bool>,
    /// First deliveries of all processes, one process after another.
    firsts: Vec<u32>,
    /// Where each process's first deliveries start, and the end.
    starts: Vec<usize>,
    /// The first delivery of a message that the process had delivered before: process, message.
    pub(crate) twice: Option<(u32, u32)>,
    /// Words of a set of groups.
    words: usize,
    set_masks: Vec<u64>,
    proc_masks: Vec<u64>,
}

impl<'a> Index<'a> {
    pub(crate) fn new(h: &'a History) -> Self {
        let words = h.group_names.len().div_ceil(64).max(1);
        let mut set_masks = vec![0; h.sets.len() * words];
        for set in 0..h.sets.len() {
            mark(&mut set_masks[set * words..][..words], h.sets.get(set as u32));
        }
        let mut proc_masks = vec![0; h.procs.len() * words];
        for (p, process) in h.procs.iter().enumerate() {
            mark(&mut proc_masks[p * words..][..words], &process.groups);
        }
        let logs: Vec<_> = h.procs.iter().map(|p| p.ordered_log()).collect();
        let mut index = Self {
            h,
            correct: h.procs.iter().map(|p| p.is_correct()).collect(),
            unfailed: h.procs.iter().map(|p| p.is_correct() || p.has_left()).collect(),
            firsts: Vec::with_capacity(logs.iter().map(|log| log.len()).sum()),
            starts: vec![0],
            twice: None,
            words,
            set_masks,
            proc_masks,
            logs,
        };
        index.find_firsts();
        index
    }

    fn find_firsts(&mut self) {
        let mut last_by = vec![NONE; self.h.messages.len()];
        for p in 0..self.logs.len() {
            for m in self.logs[p].iter().filter_map(|e| e.delivery()) {
                if core::mem::replace(&mut last_by[m as usize], p as u32) == p as u32 {
                    self.twice.get_or_insert((p as u32, m));
                } else {
                    self.firsts.push(m);
                }
            }
            self.starts.push(self.firsts.len());
        }
    }

    pub(crate) fn procs(&self) -> core::ops::Range<u32> {
        0..self.logs.len() as u32
    }

    pub(crate) fn messages(&self) -> usize {
        self.h.messages.len()
    }

    /// The deliveries of `p`, each message once, in the order of first deliveries.
    pub(crate) fn delivered(&self, p: u32) -> &[u32] {
        &self.firsts[self.starts[p as usize]..self.starts[p as usize + 1]]
    }

    pub(crate) fn was_cast(&self, m: u32) -> bool {
        self.h.casts[m as usize].sender != NONE
    }

    /// Whether the sender of `cast` is correct and has not crashed since, or left by choice: one that comes back
    /// has forgotten what it had cast before, and owes only what it casts from then on.
    pub(crate) fn stands(&self, cast: &CastRecord) -> bool {
        let lives = &self.h.procs[cast.sender as usize].lives;
        let last = lives.iter().map(|life| (life.t, life.line)).max();
        let since = last.is_none_or(|(t, line)| match self.h.same_file(line, cast.line) {
            true => line < cast.line,
            false => t <= cast.t,
        });
        let sender = cast.sender as usize;
        self.correct[sender] && since || self.h.procs[sender].has_left()
    }

    /// The groups `m` was cast to; none if it was not cast.
    pub(crate) fn dst(&self, m: u32) -> &[u32] {
        match self.h.casts[m as usize].dst {
            NONE => &[],
            set => self.h.sets.get(set),
        }
    }

    /// Whether `m` was cast to a group of `p`.
    pub(crate) fn addressed(&self, p: u32, m: u32) -> bool {
        let set = self.h.casts[m as usize].dst;
        set != NONE && self.meets(p, set)
    }

    /// Whether `p` is in a group of the set.
    pub(crate) fn meets(&self, p: u32, set: u32) -> bool {
        let w = self.words;
        let (a, b) =
            (&self.set_masks[set as usize * w..][..w], &self.proc_masks[p as usize * w..][..w]);
        a.iter().zip(b).any(|(a, b)| a & b != 0)
    }

    /// Whether `m` was cast to group `g`.
    pub(crate) fn to_group(&self, m: u32, g: u32) -> bool {
        let set = self.h.casts[m as usize].dst;
        set != NONE
            && self.set_masks[set as usize * self.words + g as usize / 64] >> (g % 64) & 1 == 1
    }

    pub(crate) fn groups(&self) -> u32 {
        self.h.group_names.len() as u32
    }

    /// The members of each group.
    pub(crate) fn members(&self) -> Vec<Vec<u32>> {
        let mut members = vec![Vec::new(); self.groups() as usize];
        for (p, process) in self.h.procs.iter().enumerate() {
            for &g in &process.groups {
                members[g as usize].push(p as u32);
            }
        }
        members
    }

    pub(crate) fn proc_name(&self, p: u32) -> &str {
        self.h.names.get(self.h.procs[p as usize].name)
    }

    pub(crate) fn msg_name(&self, m: u32) -> String {
        self.h.message_name(Msg(m)).into_owned()
    }

    pub(crate) fn group_name(&self, g: u32) -> &str {
        self.h.group_names.get(g)
    }

    /// The `n`-th (from 0) delivery of `m` by `p`, for a person.
    pub(crate) fn seen_delivery(&self, p: u32, m: u32, n: usize) -> Option<CounterexampleEvent> {
        let deliveries = self.logs[p as usize].iter().filter(|e| !e.is_cast());
        let (place, e) = deliveries.enumerate().filter(|(_, e)| e.message() == m).nth(n)?;
        Some(self.seen(p, "delivers", m, Some(place as u64 + 1), e.line, e.t))
    }

    /// The first deliveries of `messages` by `p`, those there are, in that order.
    pub(crate) fn seen_deliveries(&self, p: u32, messages: &[u32]) -> Vec<CounterexampleEvent> {
        messages.iter().filter_map(|&m| self.seen_delivery(p, m, 0)).collect()
    }

    pub(crate) fn seen_cast(&self, m: u32) -> Option<CounterexampleEvent> {
        let cast = self.h.casts[m as usize];
        (cast.sender != NONE).then(|| self.seen(cast.sender, "casts", m, None, cast.line, cast.t))
    }

    pub(crate) fn seen(
        &self,
        p: u32,
        does: &'static str,
        m: u32,
        position: Option<u64>,
        line: u32,
        t_ns: u64,
    ) -> CounterexampleEvent {
        CounterexampleEvent {
            process: self.proc_name(p).into(),
            does,
            message: self.msg_name(m),
            position,
            place: self.h.place(line),
            t_ns,
        }
    }
}

fn mark(mask: &mut [u64], groups: &[u32]) {
    for &g in groups {
        mask[g as usize / 64] |= 1 << (g % 64);
    }
}

//! Causal order: before m' a process delivers every message that causally precedes m' and was cast
//! to the process as well [ToTo 2.1].
//!
//! m precedes m' directly when the sender of m' had cast or delivered m before it cast m'.
//!
//! Everything is walked once, in an order in which casts come before their deliveries. Each process
//! and each message on its way carries, for each process q that is judged, how far its past reaches
//! into q's deliveries: the place of the message that q delivers last of all those in the past that
//! were cast to q. q violates the order at m' exactly if the past of m' reaches beyond m'. A process
//! that delivered a prefix of what another one of its groups did needs no judging of its own, as a
//! violation of it is one of the other: a good run judges one process a group.
//!
//! The carried data of a message are dropped once its last delivery is behind: memory grows with the messages in
//! flight, not with the length of the run, and the walk goes by slices of time to keep that little.
//! Where it is much all the same, the judged are split into batches, each with a walk of its own.

use crate::delivery::violated;
use crate::index::Index;
use crate::intern::NONE;
use crate::report::PropertyVerdict;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;

/// Whether a process may deliver a message without ever delivering one that causally precedes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CausalGaps {
    /// It may not.
    Forbidden,
    /// It may: only of two messages that it delivers the one that precedes comes first.
    Allowed,
}

/// Entries `from` up to `to` of the log of `p`.
struct EntryRange {
    p: u32,
    from: usize,
    to: usize,
}

/// How far a past reaches into a process's deliveries: a place, from 1.
type PastReach = u32;

/// No further than before its first delivery.
const NOTHING: PastReach = 0;

/// Beyond its last: a message that it never delivers.
const NEVER: PastReach = PastReach::MAX;

/// How many entries the processes together have in a slice of time, about.
const SLICE: usize = 16 << 10;

/// The most that all messages in flight may carry, in bytes.
const CARRIED_BYTES_MAX: usize = 256 << 20;

/// How many processes are judged in a walk at most: what a message carries stays in near caches.
const LANES_MAX: usize = 64;

pub(crate) fn causal(x: &Index<'_>, gaps: CausalGaps) -> PropertyVerdict {
    let runs = schedule(x);
    let mut deliveries = vec![0_u32; x.messages()];
    let entries = || x.logs.iter().flat_map(|log| log.iter());
    for m in entries().filter_map(|e| e.delivery()) {
        deliveries[m as usize] += 1;
    }
    let all = leads(x);
    let on_way = on_way_most(x, &runs, &deliveries);
    let lanes = (CARRIED_BYTES_MAX / size_of::<PastReach>() / on_way.max(1)).clamp(1, LANES_MAX);
    for leads in all.chunks(lanes) {
        let batch = ProcessBatch::new(x, leads, gaps);
        if let Some((q, m)) = batch.walk(x, &runs, &mut deliveries.clone()) {
            return explain(x, q, m, gaps, &runs);
        }
    }
    PropertyVerdict::Holds
}

/// Some of the processes to be judged, together.
struct ProcessBatch {
    gaps: CausalGaps,
    leads: Vec<u32>,
    /// Where the deliveries of each message start in `places`, and the end.
    starts: Vec<u32>,
    /// Which of `leads` delivers a message, and at which place.
    places: Vec<(u32, PastReach)>,
    /// For each set of groups, which of `leads` are in one of them: a bit each.
    addressed: Vec<u64>,
}

impl ProcessBatch {
    fn new(x: &Index<'_>, leads: &[u32], gaps: CausalGaps) -> Self {
        let mut starts = vec![0_u32; x.messages() + 1];
        for &q in leads {
            x.delivered(q).iter().for_each(|&m| starts[m as usize + 1] += 1);
        }
        for m in 0..x.messages() {
            starts[m + 1] += starts[m];
        }
        let mut next = starts.clone();
        let mut places = vec![(0, NOTHING); starts[x.messages()] as usize];
        for (lane, &q) in leads.iter().enumerate() {
            for (n, &m) in x.delivered(q).iter().enumerate() {
                let at = &mut next[m as usize];
                places[*at as usize] = (lane as u32, n as PastReach + 1);
                *at += 1;
            }
        }
        let bits = |set| {
            let meets = |(lane, &q): (usize, &u32)| u64::from(x.meets(q, set)) << lane;
            leads.iter().enumerate().map(meets).fold(0, core::ops::BitOr::bitor)
        };
        let addressed = (0..x.h.sets.len() as u32).map(bits).collect();
        Self { gaps, leads: leads.to_vec(), starts, places, addressed }
    }

    /// Where those who deliver `m` do so.
    fn places(&self, m: u32) -> &[(u32, PastReach)] {
        &self.places[self.starts[m as usize] as usize..self.starts[m as usize + 1] as usize]
    }

    /// Walks all once; a process and a message that it delivers too early, if any.
    fn walk(
        &self,
        x: &Index<'_>,
        runs: &[EntryRange],
        deliveries: &mut [u32],
    ) -> Option<(u32, u32)> {
        let lanes = self.leads.len();
        let mut pasts = vec![NOTHING; x.logs.len() * lanes];
        let mut carried = InFlightPasts::new(x.messages(), lanes);
        for run in runs {
            let past = &mut pasts[run.p as usize * lanes..][..lanes];
            for e in &x.logs[run.p as usize][run.from..run.to] {
                let m = e.message();
                if e.is_cast() {
                    for &(lane, place) in self.places(m) {
                        if past[lane as usize] > place {
                            return Some((self.leads[lane as usize], m));
                        }
                    }
                    self.take_in(x, m, past);
                    if deliveries[m as usize] > 0 {
                        carried.put(m, past);
                    }
                    continue;
                }
                if let Some(with) = carried.get(m) {
                    for (mine, with) in past.iter_mut().zip(with) {
                        *mine = (*mine).max(*with);
                    }
                } else {
                    // It is delivered before it is cast, and carries only itself.
                    self.take_in(x, m, past);
                }
                deliveries[m as usize] -= 1;
                if deliveries[m as usize] == 0 {
                    carried.drop(m);
                }
            }
        }
        None
    }

    /// `m` itself becomes part of a past, for those to whom it was cast.
    fn take_in(&self, x: &Index<'_>, m: u32, past: &mut [PastReach]) {
        let set = x.h.casts[m as usize].dst;
        if set == NONE {
            return;
        }
        let mut never = self.addressed[set as usize];
        for &(lane, place) in self.places(m) {
            if never >> lane & 1 == 1 {
                never &= !(1 << lane);
                past[lane as usize] = past[lane as usize].max(place);
            }
        }
        while never != 0 && self.gaps == CausalGaps::Forbidden {
            past[never.trailing_zeros() as usize] = NEVER;
            never &= never - 1;
        }
    }
}

/// The data that messages in flight carry, in places that are used again.
struct InFlightPasts {
    lanes: usize,
    /// The place of each message, or `NONE`.
    place: Vec<u32>,
    reaches: Vec<PastReach>,
    free: Vec<u32>,
}

impl InFlightPasts {
    fn new(messages: usize, lanes: usize) -> Self {
        Self { lanes, place: vec![NONE; messages], reaches: Vec::new(), free: Vec::new() }
    }

    fn put(&mut self, m: u32, past: &[PastReach]) {
        match self.free.pop() {
            Some(place) => {
                self.place[m as usize] = place;
                self.reaches[place as usize * self.lanes..][..self.lanes].copy_from_slice(past);
            }
            None => {
                self.place[m as usize] = (self.reaches.len() / self.lanes) as u32;
                self.reaches.extend_from_slice(past);
            }
        }
    }

    fn get(&self, m: u32) -> Option<&[PastReach]> {
        let place = self.place[m as usize];
        (place != NONE).then(|| &self.reaches[place as usize * self.lanes..][..self.lanes])
    }

    fn drop(&mut self, m: u32) {
        let place = core::mem::replace(&mut self.place[m as usize], NONE);
        self.free.extend((place != NONE).then_some(place));
    }
}

/// The most messages that are cast and not yet delivered for the last time.
fn on_way_most(x: &Index<'_>, runs: &[EntryRange], deliveries: &[u32]) -> usize {
    let mut left = deliveries.to_vec();
    let (mut now, mut most) = (0_usize, 0);
    for e in runs.iter().flat_map(|run| &x.logs[run.p as usize][run.from..run.to]) {
        let left = &mut left[e.message() as usize];
        if e.is_cast() {
            now += usize::from(*left > 0);
            most = most.max(now);
        } else {
            *left -= 1;
            now = now.saturating_sub(usize::from(*left == 0));
        }
    }
    most
}

/// The processes that delivered anything, without those that delivered a prefix of what one among
/// them with the same groups did.
fn leads(x: &Index<'_>) -> Vec<u32> {
    let groups = |p: u32| &x.h.procs[p as usize].groups;
    let mut procs: Vec<u32> = x.procs().filter(|&p| !x.delivered(p).is_empty()).collect();
    procs.sort_by_key(|&p| (groups(p), Reverse(x.delivered(p).len())));
    let mut leads: Vec<u32> = Vec::new();
    for p in procs {
        let same = leads.iter().rev().take_while(|&&lead| groups(lead) == groups(p));
        if !same.copied().any(|lead| x.delivered(lead).starts_with(x.delivered(p))) {
            leads.push(p);
        }
    }
    leads
}

/// All log entries in an order in which a message is cast before it is delivered, slices of time
/// one after another as far as that allows. Where the history delivers before casting (integrity
/// judges that), the delivery carries no past.
fn schedule(x: &Index<'_>) -> Vec<EntryRange> {
    let mut runs = Vec::new();
    let mut cast: Vec<bool> = (0..x.messages() as u32).map(|m| !x.was_cast(m)).collect();
    // Processes that wait for a message to be cast, as a chain.
    let mut first = vec![NONE; x.messages()];
    let mut next = vec![NONE; x.logs.len()];
    let mut waits = vec![false; x.logs.len()];
    let mut done = vec![0_usize; x.logs.len()];
    let mut able: Vec<u32> = Vec::new();
    let mut oldest = 0;
    let times = slices(x);
    let mut slice = 0;
    loop {
        let upto = times.get(slice).copied().unwrap_or(u64::MAX);
        if slice <= times.len() {
            able.extend(x.procs().rev().filter(|&p| !waits[p as usize]));
        }
        while let Some(p) = able.pop() {
            let (log, from) = (&x.logs[p as usize], done[p as usize]);
            let mut at = from;
            waits[p as usize] = false;
            while let Some(e) = log.get(at).filter(|e| e.t <= upto) {
                let m = e.message() as usize;
                if e.is_cast() {
                    wake(&mut cast, &mut first, &next, &mut able, m);
                } else if !cast[m] {
                    waits[p as usize] = true;
                    next[p as usize] = core::mem::replace(&mut first[m], p);
                    break;
                }
                at += 1;
            }
            done[p as usize] = at;
            if at > from {
                runs.push(EntryRange { p, from, to: at });
            }
        }
        slice += 1;
        if slice <= times.len() {
            continue;
        }
        // All remaining deliveries wait in a circle: release one of them.
        while oldest < x.logs.len() && done[oldest] == x.logs[oldest].len() {
            oldest += 1;
        }
        let Some(e) = x.logs.get(oldest).map(|log| log[done[oldest]]) else { return runs };
        wake(&mut cast, &mut first, &next, &mut able, e.message() as usize);
    }
}

/// Times at which slices end: the longest log is cut into pieces, as it goes with the run.
fn slices(x: &Index<'_>) -> Vec<u64> {
    let all: usize = x.logs.iter().map(|log| log.len()).sum();
    let Some(longest) = x.logs.iter().max_by_key(|log| log.len()) else { return Vec::new() };
    let piece = (longest.len() * SLICE / all.max(1)).max(1);
    longest.iter().skip(piece).step_by(piece).map(|e| e.t).collect()
}

fn wake(cast: &mut [bool], first: &mut [u32], next: &[u32], able: &mut Vec<u32>, m: usize) {
    cast[m] = true;
    let mut p = core::mem::replace(&mut first[m], NONE);
    while p != NONE {
        able.push(p);
        p = next[p as usize];
    }
}

/// Of a past: the message that one process delivers last, and the direct predecessor through which
/// it came.
#[derive(Clone, Copy)]
struct Past {
    last: u32,
    via: u32,
}

/// Walks up to the cast of `broken` with `q` in mind; the past of each message on the way there.
fn pasts(
    x: &Index<'_>,
    (q, gaps): (u32, CausalGaps),
    broken: u32,
    runs: &[EntryRange],
    place: &[u32],
) -> Vec<Past> {
    let nothing = Past { last: NONE, via: NONE };
    let mut past_of = vec![nothing; x.messages()];
    let mut past = vec![nothing; x.logs.len()];
    // Messages that q never delivers have the greatest place of all.
    let later = |a: u32, b: u32| b == NONE || a != NONE && place[a as usize] > place[b as usize];
    for run in runs {
        let mine = &mut past[run.p as usize];
        for e in &x.logs[run.p as usize][run.from..run.to] {
            let m = e.message();
            if e.is_cast() {
                past_of[m as usize] = *mine;
                if m == broken {
                    return past_of;
                }
            }
            let counts = gaps == CausalGaps::Forbidden || place[m as usize] != NONE;
            let own = counts && x.addressed(q, m) && later(m, past_of[m as usize].last);
            let last = if own { m } else { past_of[m as usize].last };
            if last != NONE && later(last, mine.last) {
                *mine = Past { last, via: m };
            }
        }
    }
    past_of
}

/// The chain from a message that `q` misses to `m`, which it delivers too early.
fn explain(
    x: &Index<'_>,
    q: u32,
    m: u32,
    gaps: CausalGaps,
    runs: &[EntryRange],
) -> PropertyVerdict {
    let mut place = vec![NONE; x.messages()];
    for (n, &m) in x.delivered(q).iter().enumerate() {
        place[m as usize] = n as u32;
    }
    let past_of = pasts(x, (q, gaps), m, runs, &place);
    let missed = past_of[m as usize].last;
    let mut chain: Vec<u32> = vec![m];
    let mut via = past_of[m as usize].via;
    while via != NONE && via != missed && chain.len() < x.messages() {
        chain.push(via);
        via = past_of[via as usize].via;
    }
    chain.push(missed);
    chain.reverse();
    let steps: Vec<String> = chain.iter().map(|&m| x.msg_name(m)).collect();
    let never = place[missed as usize] == NONE;
    let how = if never { "without ever delivering" } else { "before" };
    let mut events = Vec::new();
    // Each step: the cast, and its delivery by the sender of the next one.
    for pair in chain.windows(2) {
        events.extend(x.seen_cast(pair[0]));
        let next = x.h.casts[pair[1] as usize].sender;
        if next != x.h.casts[pair[0] as usize].sender {
            events.extend(x.seen_delivery(next, pair[0], 0));
        }
    }
    events.extend(x.seen_cast(m));
    events.extend(x.seen_deliveries(q, &[m, missed]));
    violated(
        format!(
            "{} delivers {} {how} {}, which precedes it: {}",
            x.proc_name(q),
            x.msg_name(m),
            x.msg_name(missed),
            steps.join(" -> ")
        ),
        events,
    )
}

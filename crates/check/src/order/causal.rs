//! Causal order: before m' a process delivers every message that causally precedes m' and was cast
//! to the process as well [ToTo 2.1].
//!
//! m precedes m' directly when the sender of m' had cast or delivered m before it cast m'. For one
//! process q at a time, everything is walked in an order in which casts come before their
//! deliveries; each process and each message carries the one message of its past, cast to q, that q
//! delivers last (or never). q violates the order at m' exactly if that message comes after m' at q.
//! That makes a pass over all N deliveries for each process, and a few words a message, whatever the
//! number of senders. A process that delivered a prefix of what another one of its groups did needs
//! no pass of its own, as a violation of it is one of the other: a good run needs one pass a group.

use crate::delivery::violated;
use crate::index::Index;
use crate::intern::NONE;
use crate::report::Verdict;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;

/// Entries `from` up to `to` of the log of `p`.
struct Run {
    p: u32,
    from: usize,
    to: usize,
}

/// Of a past: the message that the process at hand delivers last, and the direct predecessor
/// through which it came.
#[derive(Clone, Copy)]
struct Past {
    last: u32,
    via: u32,
}

const NOTHING: Past = Past { last: NONE, via: NONE };

pub(crate) fn causal(x: &Index<'_>) -> Verdict {
    let runs = schedule(x);
    let mut place = vec![NONE; x.messages()];
    let mut past_of = vec![NOTHING; x.messages()];
    for q in leads(x) {
        for (n, &m) in x.delivered(q).iter().enumerate() {
            place[m as usize] = n as u32;
        }
        past_of.fill(NOTHING);
        if let Some(m) = pass(x, q, &runs, &place, &mut past_of) {
            return explain(x, q, m, &past_of, place[past_of[m as usize].last as usize]);
        }
        for &m in x.delivered(q) {
            place[m as usize] = NONE;
        }
    }
    Verdict::Holds
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

/// All log entries in an order in which a message is cast before it is delivered. Where the history
/// delivers before casting (integrity judges that), the delivery carries no past.
fn schedule(x: &Index<'_>) -> Vec<Run> {
    let mut runs = Vec::new();
    let mut cast: Vec<bool> = (0..x.messages() as u32).map(|m| !x.was_cast(m)).collect();
    // Processes that wait for a message to be cast, as a chain.
    let mut first = vec![NONE; x.messages()];
    let mut next = vec![NONE; x.logs.len()];
    let mut done = vec![0_usize; x.logs.len()];
    let mut able: Vec<u32> = x.procs().rev().collect();
    let mut oldest = 0;
    loop {
        while let Some(p) = able.pop() {
            let (log, from) = (&x.logs[p as usize], done[p as usize]);
            let mut at = from;
            while let Some(e) = log.get(at) {
                let m = e.message() as usize;
                if e.is_cast() {
                    wake(&mut cast, &mut first, &next, &mut able, m);
                } else if !cast[m] {
                    next[p as usize] = core::mem::replace(&mut first[m], p);
                    break;
                }
                at += 1;
            }
            done[p as usize] = at;
            if at > from {
                runs.push(Run { p, from, to: at });
            }
        }
        // All that is left waits in a circle: let one of them go on.
        while oldest < x.logs.len() && done[oldest] == x.logs[oldest].len() {
            oldest += 1;
        }
        let Some(e) = x.logs.get(oldest).map(|log| log[done[oldest]]) else { return runs };
        wake(&mut cast, &mut first, &next, &mut able, e.message() as usize);
    }
}

fn wake(cast: &mut [bool], first: &mut [u32], next: &[u32], able: &mut Vec<u32>, m: usize) {
    cast[m] = true;
    let mut p = core::mem::replace(&mut first[m], NONE);
    while p != NONE {
        able.push(p);
        p = next[p as usize];
    }
}

/// Walks all with `q` in mind, filling `past_of`; the message that `q` delivers too early, if any.
fn pass(x: &Index<'_>, q: u32, runs: &[Run], place: &[u32], past_of: &mut [Past]) -> Option<u32> {
    let mut past = vec![NOTHING; x.logs.len()];
    // Messages that q never delivers have the greatest place of all.
    let later = |a: u32, b: u32| b == NONE || a != NONE && place[a as usize] > place[b as usize];
    for run in runs {
        let mine = &mut past[run.p as usize];
        for e in &x.logs[run.p as usize][run.from..run.to] {
            let m = e.message();
            if e.is_cast() {
                past_of[m as usize] = *mine;
                let too_early = place[m as usize] != NONE && mine.last != NONE;
                if too_early && later(mine.last, m) {
                    return Some(m);
                }
            }
            let own = x.addressed(q, m) && later(m, past_of[m as usize].last);
            let last = if own { m } else { past_of[m as usize].last };
            if last != NONE && later(last, mine.last) {
                *mine = Past { last, via: m };
            }
        }
    }
    None
}

fn explain(x: &Index<'_>, q: u32, m: u32, past_of: &[Past], place: u32) -> Verdict {
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
    let how = if place == NONE { "without ever delivering" } else { "before" };
    let mut events = Vec::new();
    // Each step: the cast, and its delivery by whoever cast the next one.
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

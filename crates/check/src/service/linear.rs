//! Linearizability and sequential consistency by search, and a small counterexample.

use super::calls::JudgedCalls;
use super::model::ServiceModel;
use super::search::{Origin, Search, SearchOutcome, Timed, UNPLACED};
use crate::delivery::violated;
use crate::intern::NONE;
use crate::report::PropertyVerdict;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

/// States that making a counterexample smaller may cost in all: a big counterexample is worth less
/// than a small one, but more than none.
const SHRINK_STATES: u64 = 2_000_000;

/// States at the start of a window that a counterexample considers.
const ORIGINS_MAX: usize = 64;

/// The part of the states of a search that the order which the recorder told may cost, before calls are tried by their
/// times alone.
const TOLD_PART: u64 = 8;

/// Calls that a counterexample shows one by one.
const SHOWN_MAX: usize = 24;

pub(crate) fn linearizable<M: ServiceModel>(
    model: &M,
    calls: &JudgedCalls<'_, M>,
    states: u64,
) -> PropertyVerdict {
    match on_one_lane(model, calls, states) {
        Ok(exhausted) => verdict(states, exhausted),
        Err((set, stuck)) => window(model, calls, &set, stuck),
    }
}

/// How many calls could not be decided, or the calls that no order gets past the return `stuck`.
fn on_one_lane<M: ServiceModel>(
    model: &M,
    calls: &JudgedCalls<'_, M>,
    states: u64,
) -> Result<usize, (Vec<Timed>, u32)> {
    let (mut left, mut exhausted) = (states, 0);
    for mut set in calls.components(model, &calls.times) {
        set.iter_mut().for_each(|c| c.lane = 0);
        match decide(model, calls, &set, &mut left) {
            SearchOutcome::Ordered => {}
            SearchOutcome::Impossible { .. } => {
                let stuck = where_stuck(model, calls, &set, states);
                return Err((set, stuck));
            }
            SearchOutcome::Exhausted => exhausted += set.len(),
        }
    }
    Ok(exhausted)
}

pub(crate) fn sequential<M: ServiceModel>(
    model: &M,
    calls: &JudgedCalls<'_, M>,
    states: u64,
) -> PropertyVerdict {
    // The order that the recorder told explains all keys at once, if it is right.
    if calls.times.iter().any(|c| c.place != UNPLACED)
        && explore(model, calls, &calls.times, &mut (states / TOLD_PART)) == SearchOutcome::Ordered
    {
        return PropertyVerdict::Holds;
    }
    // A linearizable history is sequential, and decided key by key.
    if on_one_lane(model, calls, states) == Ok(0) {
        return PropertyVerdict::Holds;
    }
    let (mut left, mut exhausted) = (states, 0);
    let mut sets = calls.components(model, &calls.times);
    if sets.len() > 1 {
        // Each set may be in order while all together are not.
        sets.push(calls.times.clone());
    }
    for set in sets {
        match decide(model, calls, &set, &mut left) {
            SearchOutcome::Ordered => {}
            SearchOutcome::Impossible { .. } => {
                let origins = [(model.start(), Vec::new())];
                let few = shrink(model, calls, set, &origins);
                let sentence = "no order that keeps each client's own explains the answers of";
                return tell(model, calls, sentence, &few, &origins);
            }
            SearchOutcome::Exhausted => exhausted = exhausted.max(set.len()),
        }
    }
    verdict(states, exhausted)
}

fn verdict(states: u64, exhausted: usize) -> PropertyVerdict {
    match exhausted {
        0 => PropertyVerdict::Holds,
        n => PropertyVerdict::NotJudged(format!(
            "budget exhausted: {states} states were not enough to decide {n} of the calls"
        )),
    }
}

/// Whether some order explains all answers.
fn decide<M: ServiceModel>(
    model: &M,
    calls: &JudgedCalls<'_, M>,
    set: &[Timed],
    budget: &mut u64,
) -> SearchOutcome {
    if set.iter().all(|c| c.place == UNPLACED) {
        return explore(model, calls, set, budget);
    }
    let part = *budget / TOLD_PART;
    let mut left = part;
    let outcome = explore(model, calls, set, &mut left);
    *budget -= part - left;
    if outcome != SearchOutcome::Exhausted {
        return outcome;
    }
    let by_time: Vec<Timed> = set.iter().map(|c| Timed { place: UNPLACED, ..*c }).collect();
    explore(model, calls, &by_time, budget)
}

fn explore<M: ServiceModel>(
    model: &M,
    calls: &JudgedCalls<'_, M>,
    set: &[Timed],
    budget: &mut u64,
) -> SearchOutcome {
    let search = Search::new(model, &calls.ops, set, &[]);
    search.looking_ahead().run(&mut model.start(), budget, None)
}

/// The return that no order of an impossible `set` gets past; none, which is behind all, if `states`
/// are not enough to find it.
fn where_stuck<M: ServiceModel>(
    model: &M,
    calls: &JudgedCalls<'_, M>,
    set: &[Timed],
    mut states: u64,
) -> u32 {
    match search(model, calls, set, &model.start(), &[], &mut states) {
        SearchOutcome::Impossible { stuck } => stuck,
        SearchOutcome::Ordered | SearchOutcome::Exhausted => NONE,
    }
}

fn search<M: ServiceModel>(
    model: &M,
    calls: &JudgedCalls<'_, M>,
    set: &[Timed],
    start: &M::State,
    gone: &[u32],
    budget: &mut u64,
) -> SearchOutcome {
    Search::new(model, &calls.ops, set, gone).run(&mut start.clone(), budget, None)
}

/// The counterexample for calls on one lane that no order gets past the return `stuck`.
fn window<M: ServiceModel>(
    model: &M,
    calls: &JudgedCalls<'_, M>,
    set: &[Timed],
    stuck: u32,
) -> PropertyVerdict {
    // A later call cannot help, and a call that returned later need not have happened.
    let mut past: Vec<Timed> = set.iter().copied().filter(|c| c.call < stuck).collect();
    for c in &mut past {
        c.ret = if c.ret > stuck { NONE } else { c.ret };
    }
    let whole = vec![(model.start(), Vec::new())];
    let quiet = last_quiet(&past, stuck);
    let (behind, ahead): (Vec<Timed>, Vec<Timed>) =
        past.iter().partition(|c| c.ret != NONE && c.ret < quiet);
    let few_origins =
        if behind.is_empty() { None } else { origins(model, calls, &past, &behind, quiet) };
    let (few, origins) = match few_origins {
        // No way leads to the window, or too many: then it does not stand on its own.
        None => (shrink(model, calls, past, &whole), whole),
        Some(origins) => (shrink(model, calls, ahead, &origins), origins),
    };
    tell(model, calls, "no order explains the answers of", &few, &origins)
}

/// The latest moment before the call that returns at `stuck` when no call was under way that
/// returned by then.
fn last_quiet(past: &[Timed], stuck: u32) -> u32 {
    let start = past.iter().find(|c| c.ret == stuck).map_or(stuck, |c| c.call);
    let mut returned: Vec<&Timed> = past.iter().filter(|c| c.ret != NONE).collect();
    returned.sort_unstable_by_key(|c| c.call);
    let (mut quiet, mut under_way_until) = (0, 0);
    for c in returned.into_iter().take_while(|c| c.call <= start) {
        if c.call > under_way_until {
            quiet = c.call;
        }
        under_way_until = under_way_until.max(c.ret);
    }
    quiet
}

/// The states in which the calls `behind` the quiet moment can leave the service, each with the
/// calls that never returned but took effect; nothing if there are too many to tell.
fn origins<M: ServiceModel>(
    model: &M,
    calls: &JudgedCalls<'_, M>,
    past: &[Timed],
    behind: &[Timed],
    quiet: u32,
) -> Option<Vec<Origin<M::State>>> {
    let done: BTreeSet<u32> = behind.iter().map(|c| c.op).collect();
    let call_of: BTreeMap<u32, u32> = past.iter().map(|c| (c.op, c.call)).collect();
    let mut found: BTreeMap<(u128, Vec<u32>), M::State> = BTreeMap::new();
    let mut visit = |returned: usize,
                     latest_call: u32,
                     state: &M::State,
                     taken: &mut dyn Iterator<Item = u32>| {
        if returned != behind.len() || latest_call >= quiet || found.len() > ORIGINS_MAX {
            return;
        }
        let mut gone: Vec<u32> = taken.filter(|op| !done.contains(op)).collect();
        gone.sort_unstable();
        // A call made after the quiet moment belongs to the window.
        if gone.iter().all(|op| call_of.get(op).is_some_and(|&call| call < quiet)) {
            found.entry((model.print(state), gone)).or_insert_with(|| state.clone());
        }
    };
    let mut budget = SHRINK_STATES;
    let mut search = Search::new(model, &calls.ops, past, &[]);
    let outcome = search.run(&mut model.start(), &mut budget, Some(&mut visit));
    let complete = matches!(outcome, SearchOutcome::Impossible { .. });
    let few = complete && !found.is_empty() && found.len() <= ORIGINS_MAX;
    few.then(|| found.into_iter().map(|((_, gone), state)| (state, gone)).collect())
}

/// Leaves out calls that only read, as long as the rest has no order from any of `origins`: without
/// a read there are only more orders, so the rest is a counterexample by itself.
fn shrink<M: ServiceModel>(
    model: &M,
    calls: &JudgedCalls<'_, M>,
    mut set: Vec<Timed>,
    origins: &[Origin<M::State>],
) -> Vec<Timed> {
    let mut left = SHRINK_STATES;
    let mut impossible = |set: &[Timed]| {
        origins.iter().all(|(state, gone)| {
            let outcome = search(model, calls, set, state, gone, &mut left);
            matches!(outcome, SearchOutcome::Impossible { .. })
        })
    };
    let reads = |c: &Timed| model.only_reads(&calls.ops[c.op as usize]);
    let mut size = set.iter().filter(|c| reads(c)).count();
    while size > 0 {
        let mut from = 0;
        loop {
            let picked: BTreeSet<u32> =
                set.iter().filter(|c| reads(c)).skip(from).take(size).map(|c| c.op).collect();
            if picked.is_empty() {
                break;
            }
            let rest: Vec<Timed> =
                set.iter().copied().filter(|c| !picked.contains(&c.op)).collect();
            if impossible(&rest) {
                set = rest;
            } else {
                from += size;
            }
        }
        size /= 2;
    }
    // Without those reads the keys may fall apart, and one part may be enough.
    let mut parts = calls.components(model, &set).into_iter();
    parts.find(|part| part.len() < set.len() && impossible(part)).unwrap_or(set)
}

fn tell<M: ServiceModel>(
    model: &M,
    calls: &JudgedCalls<'_, M>,
    what: &str,
    few: &[Timed],
    origins: &[Origin<M::State>],
) -> PropertyVerdict {
    let mut few = few.to_vec();
    few.sort_unstable_by_key(|c| c.call);
    let mut keys = BTreeSet::new();
    for c in &few {
        model.keys(&calls.ops[c.op as usize], &mut |k| {
            keys.insert(k);
        });
    }
    let keys: Vec<u32> = keys.into_iter().take(SHOWN_MAX).collect();
    let before: BTreeSet<String> =
        origins.iter().map(|(state, _)| model.describe(state, &keys).join(", ")).collect();
    let before: Vec<String> = before.into_iter().collect();
    // Of many calls the last are shown: that is where it gets stuck.
    let shown = &few[few.len().saturating_sub(SHOWN_MAX)..];
    let list: Vec<String> = shown.iter().map(|c| calls.short(c.op)).collect();
    let more = match few.len() - shown.len() {
        0 => "".to_string(),
        n => format!("{n} calls and "),
    };
    let events = shown.iter().flat_map(|c| calls.seen(c.op)).collect();
    violated(
        format!("{what} {more}[{}], with before them: {}", list.join("; "), before.join(", or ")),
        events,
    )
}

//! Orders that clash: cycles of "some process delivers m before m'" [TRAM 2.2], and pairs that two
//! processes deliver in opposite orders [TO table 1, weak].
//!
//! The sequences are merged as if one total order were to be made of them: a message is taken when
//! it is at the head of every process that delivers it. All can be taken if and only if the
//! relation has no cycle, and this needs no graph: N steps, a few words a message.

use crate::delivery::violated;
use crate::index::Index;
use crate::intern::NONE;
use crate::report::PropertyVerdict;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

/// Where the merge of some processes' deliveries got stuck: the first delivery of each process that
/// could not be taken. Messages that were taken are on no cycle.
pub(crate) struct StuckMerge {
    /// The processes with something left, and how many of its deliveries each has behind it.
    left: Vec<(u32, usize)>,
}

/// `a` before `b` at `p`.
#[derive(Clone, Copy, Debug)]
struct PrecedenceEdge {
    a: u32,
    b: u32,
    p: u32,
}

/// Merges the deliveries of `procs`; nothing if all could be taken.
pub(crate) fn merge(x: &Index<'_>, procs: &[u32]) -> Option<StuckMerge> {
    let mut wanted = vec![0_u32; x.messages()];
    for &p in procs {
        for &m in x.delivered(p) {
            wanted[m as usize] += 1;
        }
    }
    // The processes (by place in `procs`) that have a message at their head, as a chain.
    let mut first = vec![NONE; x.messages()];
    let mut next = vec![NONE; procs.len()];
    let mut done = vec![0_usize; procs.len()];
    let mut ready: Vec<u32> = Vec::new();
    let mut moved: Vec<u32> = (0..procs.len() as u32).collect();
    loop {
        for i in moved.drain(..) {
            let Some(&m) = x.delivered(procs[i as usize]).get(done[i as usize]) else { continue };
            next[i as usize] = core::mem::replace(&mut first[m as usize], i);
            wanted[m as usize] -= 1;
            if wanted[m as usize] == 0 {
                ready.push(m);
            }
        }
        let Some(m) = ready.pop() else { break };
        let mut i = first[m as usize];
        while i != NONE {
            done[i as usize] += 1;
            moved.push(i);
            i = next[i as usize];
        }
    }
    let left: Vec<_> = (0..procs.len())
        .filter(|&i| done[i] < x.delivered(procs[i]).len())
        .map(|i| (procs[i], done[i]))
        .collect();
    (!left.is_empty()).then_some(StuckMerge { left })
}

/// No cycle. The counterexample is a pair in opposite orders if there is one, else a shortest cycle
/// through the messages at which the merge got stuck: it has at most one message a process.
pub(crate) fn acyclic(x: &Index<'_>, stuck: Option<&StuckMerge>) -> PropertyVerdict {
    let Some(stuck) = stuck else { return PropertyVerdict::Holds };
    let cycle = match inversion(x, stuck) {
        Some((one, other)) => vec![one, other],
        None => shortest(x, stuck),
    };
    let mut sentence = String::new();
    let mut events = Vec::new();
    for step in &cycle {
        sentence += &format!("{} <({}) ", x.msg_name(step.a), x.proc_name(step.p));
        events.extend(x.seen_deliveries(step.p, &[step.a, step.b]));
    }
    if let Some(step) = cycle.first() {
        sentence += &x.msg_name(step.a);
    }
    violated(format!("the order of deliveries has a cycle: {sentence}"), events)
}

/// No two processes deliver two messages in opposite orders.
pub(crate) fn weak(x: &Index<'_>, stuck: Option<&StuckMerge>) -> PropertyVerdict {
    let Some((one, other)) = stuck.and_then(|stuck| inversion(x, stuck)) else {
        return PropertyVerdict::Holds;
    };
    let (a, b) = (x.msg_name(one.a), x.msg_name(one.b));
    let (p, q) = (x.proc_name(one.p), x.proc_name(other.p));
    let mut events = x.seen_deliveries(one.p, &[one.a, one.b]);
    events.extend(x.seen_deliveries(other.p, &[one.b, one.a]));
    violated(format!("{p} delivers {a} before {b}, {q} delivers {b} before {a}"), events)
}

/// A pair of messages that two processes deliver in opposite orders. P times what is left of N.
fn inversion(x: &Index<'_>, stuck: &StuckMerge) -> Option<(PrecedenceEdge, PrecedenceEdge)> {
    let mut place = vec![NONE; x.messages()];
    for (i, &(p, from)) in stuck.left.iter().enumerate() {
        let left = &x.delivered(p)[from..];
        for (n, &m) in left.iter().enumerate() {
            place[m as usize] = n as u32;
        }
        for &(q, from) in &stuck.left[i + 1..] {
            // The latest at p of what q has delivered so far.
            let mut latest: Option<u32> = None;
            for &m in &x.delivered(q)[from..] {
                let here = place[m as usize];
                if here == NONE {
                    continue;
                }
                match latest {
                    Some(late) if here < place[late as usize] => {
                        let (one, other) = (
                            PrecedenceEdge { a: m, b: late, p },
                            PrecedenceEdge { a: late, b: m, p: q },
                        );
                        return Some((one, other));
                    }
                    _ => latest = Some(m),
                }
            }
        }
        for &m in left {
            place[m as usize] = NONE;
        }
    }
    None
}

/// A shortest cycle among the messages at the heads of the processes.
///
/// Each such message waits for the head of another process, so following "waits for" must close a
/// cycle.
fn shortest(x: &Index<'_>, stuck: &StuckMerge) -> Vec<PrecedenceEdge> {
    let head = |&(p, from): &(u32, usize)| x.delivered(p)[from];
    let mut node_of = vec![NONE; x.messages()];
    let mut nodes: Vec<u32> = Vec::new();
    for m in stuck.left.iter().map(head) {
        if node_of[m as usize] == NONE {
            node_of[m as usize] = nodes.len() as u32;
            nodes.push(m);
        }
    }
    // For each head, the heads that a process delivers after it, and which process.
    let mut after: Vec<BTreeMap<u32, u32>> = vec![BTreeMap::new(); nodes.len()];
    for left in &stuck.left {
        let from = node_of[head(left) as usize];
        for &m in &x.delivered(left.0)[left.1 + 1..] {
            let to = node_of[m as usize];
            if to != NONE {
                after[from as usize].entry(to).or_insert(left.0);
            }
        }
    }
    let mut best: Vec<PrecedenceEdge> = Vec::new();
    for start in 0..nodes.len() as u32 {
        let cycle = round_trip(&after, &nodes, start);
        if !cycle.is_empty() && (best.is_empty() || cycle.len() < best.len()) {
            best = cycle;
        }
    }
    best
}

/// The shortest way from `start` back to itself, breadth first.
fn round_trip(after: &[BTreeMap<u32, u32>], nodes: &[u32], start: u32) -> Vec<PrecedenceEdge> {
    let mut came_from = vec![NONE; nodes.len()];
    let mut queue = vec![start];
    let mut at = 0;
    while let Some(&node) = queue.get(at) {
        at += 1;
        for &to in after[node as usize].keys() {
            if to == start {
                let mut way = vec![start, node];
                let mut back = node;
                while back != start {
                    back = came_from[back as usize];
                    way.push(back);
                }
                way.reverse();
                let step = |pair: &[u32]| PrecedenceEdge {
                    a: nodes[pair[0] as usize],
                    b: nodes[pair[1] as usize],
                    p: after[pair[0] as usize].get(&pair[1]).copied().unwrap_or_default(),
                };
                return way.windows(2).map(step).filter(|s| s.a != s.b).collect();
            }
            if came_from[to as usize] == NONE {
                came_from[to as usize] = node;
                queue.push(to);
            }
        }
    }
    Vec::new()
}

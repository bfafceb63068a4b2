//! Agreed multicast where every component of a partition continues [ToTo figure 2]: the order within each view, and where
//! messages are delivered. N steps, one look-up for each view that a process enters, and a walk for the causal order.
//!
//! Two processes are connected, in the words of the paper, as long as they go from view to view together. A process that
//! failed, or that went another way, may have delivered what was left of a view in another order, and other messages.

use super::causal::{CausalGaps, causal};
use crate::delivery::violated;
use crate::index::Index;
use crate::intern::NONE;
use crate::report::PropertyVerdict;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// The deliveries of a process in one of its views.
struct ViewDeliveries {
    group: Option<u32>,
    view: u32,
    /// The view that it entered next; none if it stayed in this one.
    next: Option<u32>,
    delivered: Vec<u32>,
}

/// A group, a view, and the view that is entered next, if any.
type ViewStep = (Option<u32>, u32, Option<u32>);

pub(crate) fn agreed(x: &Index<'_>) -> PropertyVerdict {
    let judged = [one_view, together];
    let found = judged.into_iter().map(|judge| judge(x)).find(|v| *v != PropertyVerdict::Holds);
    found.unwrap_or_else(|| causal(x, CausalGaps::Allowed))
}

/// The views of `p`, with its deliveries in each. A process that enters none is in one that has no name.
fn stages(x: &Index<'_>, p: u32) -> impl Iterator<Item = ViewDeliveries> {
    let process = &x.h.procs[p as usize];
    let (group, log) = (process.groups.first().copied(), &x.logs[p as usize]);
    let mut starts: Vec<(u32, usize)> = process.views.iter().map(|v| (v.view, v.at)).collect();
    if starts.first().is_none_or(|&(_, at)| log[..at].iter().any(|e| !e.is_cast())) {
        starts.insert(0, (NONE, 0));
    }
    (0..starts.len()).map(move |at| {
        let next = starts.get(at + 1).copied();
        let entries = &log[starts[at].1..next.map_or(log.len(), |(_, end)| end)];
        let delivered = entries.iter().filter_map(|e| e.delivery()).collect();
        ViewDeliveries { group, view: starts[at].0, next: next.map(|(view, _)| view), delivered }
    })
}

/// The processes whose views are in the order of their files.
fn ordered(x: &Index<'_>) -> impl Iterator<Item = u32> {
    x.procs().filter(|&p| !x.h.procs[p as usize].tangled)
}

fn view_name(x: &Index<'_>, view: u32) -> String {
    match view {
        NONE => "no view".to_string(),
        view => format!("view {}", x.h.names.get(view)),
    }
}

/// Every message is delivered in one view alone of a group.
fn one_view(x: &Index<'_>) -> PropertyVerdict {
    // By group and message: a view, and a process that delivered it there.
    let mut known = BTreeMap::new();
    for p in ordered(x) {
        for ViewDeliveries { group, view, delivered, .. } in stages(x, p) {
            for m in delivered {
                let (of, q) = *known.entry((group, m)).or_insert((view, p));
                if of != view {
                    return in_two_views(x, m, (q, of), (p, view));
                }
            }
        }
    }
    PropertyVerdict::Holds
}

fn in_two_views(x: &Index<'_>, m: u32, one: (u32, u32), other: (u32, u32)) -> PropertyVerdict {
    let events = [x.seen_deliveries(one.0, &[m]), x.seen_deliveries(other.0, &[m])].concat();
    let sentence = format!(
        "{} delivers {} in {}, {} in {}",
        x.proc_name(one.0),
        x.msg_name(m),
        view_name(x, one.1),
        x.proc_name(other.0),
        view_name(x, other.1)
    );
    violated(sentence, events)
}

/// Processes that enter the same next view, or are in one view at the end, deliver the same.
fn together(x: &Index<'_>) -> PropertyVerdict {
    // The deliveries in each step, and the process that made them first.
    let mut known: BTreeMap<ViewStep, (u32, Vec<u32>)> = BTreeMap::new();
    for p in ordered(x) {
        let stays = x.h.ended && x.correct[p as usize];
        for ViewDeliveries { group, view, next, delivered } in stages(x, p) {
            if next.is_none() && !stays {
                continue;
            }
            let (q, all) =
                known.entry((group, view, next)).or_insert_with(|| (p, delivered.clone()));
            if *all != delivered {
                return differ(x, view, (p, &delivered), (*q, all));
            }
        }
    }
    PropertyVerdict::Holds
}

/// The first place where two did not deliver the same that should have.
fn differ(
    x: &Index<'_>,
    view: u32,
    (p, own): (u32, &[u32]),
    (q, all): (u32, &[u32]),
) -> PropertyVerdict {
    let at = own.iter().zip(all).take_while(|(a, b)| a == b).count();
    let name = |m: Option<&u32>| m.map_or("nothing more".to_string(), |&m| x.msg_name(m));
    let (a, b) = (own.get(at), all.get(at));
    let seen = |p, m: Option<&u32>| m.map_or_else(Vec::new, |&m| x.seen_deliveries(p, &[m]));
    let events = [seen(p, a), seen(q, b)].concat();
    let sentence = format!(
        "{} and {} stay together behind {}, in which {} delivers {} where {} delivers {}",
        x.proc_name(p),
        x.proc_name(q),
        view_name(x, view),
        x.proc_name(p),
        name(a),
        x.proc_name(q),
        name(b)
    );
    violated(sentence, events)
}

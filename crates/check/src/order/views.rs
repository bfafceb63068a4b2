//! Virtual synchrony: processes that enter two views in a row deliver the same in between. N steps, and one look-up for
//! each view that a process enters.

use crate::delivery::violated;
use crate::history::ProcessHistory;
use crate::index::Index;
use crate::report::PropertyVerdict;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;

/// A view and the next one, by name, in a group.
type ViewPair = (Option<u32>, u32, u32);

pub(crate) fn synchrony(x: &Index<'_>) -> PropertyVerdict {
    // The deliveries in each step, and the process that made them first.
    let mut known: BTreeMap<ViewPair, (u32, Vec<u32>)> = BTreeMap::new();
    let in_order = |p: &u32| !x.h.procs[*p as usize].tangled;
    for p in x.procs().filter(in_order).filter(|&p| !x.h.procs[p as usize].joined) {
        for (step, own) in steps(x, p) {
            match known.get(&step) {
                None => drop(known.insert(step, (p, own))),
                Some((other, all)) if *all != own => return differ(x, (p, &own), (*other, all)),
                Some(_) => {}
            }
        }
    }
    // A process that joined begins somewhere in between, or with all that is in its state, and misses nothing from
    // there on.
    for p in x.procs().filter(in_order).filter(|&p| x.h.procs[p as usize].joined) {
        let mut own = Vec::new();
        let mut all = Vec::new();
        let mut other = None;
        for (step, delivered) in steps(x, p) {
            // Where all who were there from the beginning failed, there is nothing to compare with.
            let Some((q, expected)) = known.get(&step) else { break };
            own.extend(delivered);
            all.extend(expected);
            other = Some(*q);
        }
        let Some(other) = other else { continue };
        let both = own.len().min(all.len());
        let (own, all) = (&own[own.len() - both..], &all[all.len() - both..]);
        if own != all {
            return differ(x, (p, own), (other, all));
        }
    }
    PropertyVerdict::Holds
}

/// The deliveries of `p` from each view that it entered to the next one.
fn steps(x: &Index<'_>, p: u32) -> impl Iterator<Item = (ViewPair, Vec<u32>)> {
    let process: &ProcessHistory = &x.h.procs[p as usize];
    let (group, log) = (process.groups.first().copied(), &x.logs[p as usize]);
    process.views.windows(2).map(move |pair| {
        let delivered = log[pair[0].at..pair[1].at].iter().filter_map(|e| e.delivery());
        ((group, pair[0].view, pair[1].view), delivered.collect())
    })
}

/// Where two that should have delivered the same did not.
fn differ(x: &Index<'_>, (p, own): (u32, &[u32]), (q, all): (u32, &[u32])) -> PropertyVerdict {
    let at = own.iter().zip(all).take_while(|(a, b)| a == b).count();
    let says =
        |m: Option<&u32>| m.map_or("nothing more".to_string(), |&m| x.msg_name(m).to_string());
    let (a, b) = (own.get(at), all.get(at));
    let seen = |p, m: Option<&u32>| m.map_or_else(Vec::new, |&m| x.seen_deliveries(p, &[m]));
    let events = [seen(p, a), seen(q, b)].concat();
    violated(
        format!(
            "{} and {} go from view to view together, and where {} delivers {}, {} delivers {}",
            x.proc_name(p),
            x.proc_name(q),
            x.proc_name(p),
            says(a),
            x.proc_name(q),
            says(b)
        ),
        events,
    )
}

//! Strong total order [TO table 1]: a process that delivers m' has delivered before it all messages that any process
//! delivered before it.
//!
//! Judged within each group, among the messages cast to it: with one group this is the paper's
//! definition. In one group it says exactly that a message has the same predecessor wherever it is
//! delivered: if the sets before m' are equal at p and q, so are the sets before each message in
//! them, hence the sequences; and equal predecessors give equal sequences step by step. So one pass
//! with a word a message decides it.

use crate::delivery::violated;
use crate::index::Index;
use crate::intern::NONE;
use crate::report::PropertyVerdict;
use alloc::format;
use alloc::vec;

/// Judges the processes for which `counts`.
pub(crate) fn strong(x: &Index<'_>, counts: impl Fn(u32) -> bool) -> PropertyVerdict {
    const FIRST: u32 = NONE - 1; // means "nothing before"
    let members = x.members();
    // For each message: the group it was last seen in, its predecessor there and who said so.
    let mut seen = vec![(NONE, NONE, NONE); x.messages()];
    for (g, members) in members.iter().enumerate() {
        let g = g as u32;
        for &p in members.iter().filter(|&&p| counts(p)) {
            let mut before = FIRST;
            for &m in x.delivered(p).iter().filter(|&&m| x.to_group(m, g)) {
                match seen[m as usize] {
                    (h, same, _) if h == g && same == before => {}
                    (h, _, q) if h == g => return gap(x, g, m, p, q),
                    _ => seen[m as usize] = (g, before, p),
                }
                before = m;
            }
        }
    }
    PropertyVerdict::Holds
}

/// `p` and `q` do not have the same before `m`: finds what one of them misses.
fn gap(x: &Index<'_>, g: u32, m: u32, p: u32, q: u32) -> PropertyVerdict {
    for (p, q) in [(p, q), (q, p)] {
        let before = |p| {
            x.delivered(p).iter().copied().filter(|&m| x.to_group(m, g)).take_while(|&n| n != m)
        };
        let mut has = alloc::collections::BTreeSet::new();
        has.extend(before(q));
        if let Some(missed) = before(p).find(|n| !has.contains(n)) {
            return not_before(x, p, q, missed, m);
        }
    }
    // The same set before m in two orders: at the first difference each misses the other's message.
    let both = |p| x.delivered(p).iter().copied().filter(|&m| x.to_group(m, g));
    match both(p).zip(both(q)).find(|(a, b)| a != b) {
        Some((a, b)) => not_before(x, p, q, a, b),
        None => PropertyVerdict::Holds,
    }
}

/// `p` delivers `a` before `b`, `q` delivers `b` without `a` before it.
fn not_before(x: &Index<'_>, p: u32, q: u32, a: u32, b: u32) -> PropertyVerdict {
    let pn = x.proc_name(p);
    let qn = x.proc_name(q);
    let an = x.msg_name(a);
    let bn = x.msg_name(b);
    let mut events = x.seen_deliveries(p, &[a, b]);
    events.extend(x.seen_deliveries(q, &[b, a]));
    violated(
        format!("{pn} delivers {an} before {bn}, {qn} delivers {bn} without {an} before it"),
        events,
    )
}

//! Uniform prefix order [TRAM 2.2].
//!
//! Of the deliveries of p in g and q in h keep the messages cast to both g and h. The property says
//! exactly that one of the two sequences is then a prefix of the other: at the first place where
//! they differ, each process has delivered a message that the other has not delivered before its
//! own. Hence it is enough to compare, within a group, every member with the one that delivered
//! most, and between two groups those two: if two sequences are one a prefix of the other, so are
//! all their prefixes. That makes N + G N' steps, where N' counts only the members that delivered
//! most.

use crate::delivery::violated;
use crate::index::Index;
use crate::intern::NONE;
use crate::report::PropertyVerdict;
use alloc::format;
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;

pub(crate) fn prefix(x: &Index<'_>) -> PropertyVerdict {
    let members = x.members();
    let mut longest: Vec<u32> = vec![NONE; members.len()];
    for (g, members) in members.iter().enumerate() {
        let g = g as u32;
        let reach = |&p: &u32| x.delivered(p).iter().filter(|&&m| x.to_group(m, g)).count();
        let Some(lead) = members.iter().copied().max_by_key(reach) else { continue };
        longest[g as usize] = lead;
        for &q in members {
            let both = |p| x.delivered(p).iter().copied().filter(move |&m| x.to_group(m, g));
            if let Some((a, b)) = first_difference(both(lead), both(q)) {
                return differ(x, &side(lead, g, a), &side(q, g, b));
            }
        }
    }
    for g in 0..x.groups() {
        let lead = longest[g as usize];
        if lead == NONE {
            continue;
        }
        // The messages that the lead of g delivered of those it shares with each later group.
        let mut shared: Vec<Vec<u32>> = vec![Vec::new(); members.len()];
        for &m in x.delivered(lead).iter().filter(|&&m| x.to_group(m, g)) {
            for &h in x.dst(m).iter().filter(|&&h| h > g) {
                shared[h as usize].push(m);
            }
        }
        for h in g + 1..x.groups() {
            let other = longest[h as usize];
            if other == NONE || shared[h as usize].is_empty() {
                continue;
            }
            let theirs = x.delivered(other).iter().copied();
            let theirs = theirs.filter(|&m| x.to_group(m, g) && x.to_group(m, h));
            if let Some((a, b)) = first_difference(shared[h as usize].iter().copied(), theirs) {
                return differ(x, &side(lead, g, a), &side(other, h, b));
            }
        }
    }
    PropertyVerdict::Holds
}

/// The first place where neither sequence has ended and they differ.
fn first_difference(
    a: impl Iterator<Item = u32>,
    b: impl Iterator<Item = u32>,
) -> Option<(u32, u32)> {
    a.zip(b).find(|(a, b)| a != b)
}

/// Where the deliveries of a process in a group part from those of another process.
struct PrefixSide {
    process: u32,
    group: u32,
    message: u32,
}

const fn side(process: u32, group: u32, message: u32) -> PrefixSide {
    PrefixSide { process, group, message }
}

fn differ(x: &Index<'_>, one: &PrefixSide, other: &PrefixSide) -> PropertyVerdict {
    let PrefixSide { process: p, group: g, message: a } = *one;
    let PrefixSide { process: q, group: h, message: b } = *other;
    let mut both = x.group_name(g).to_string();
    if g != h {
        both += &format!(" and {}", x.group_name(h));
    }
    let pn = x.proc_name(p);
    let qn = x.proc_name(q);
    let an = x.msg_name(a);
    let bn = x.msg_name(b);
    let mut events = x.seen_deliveries(p, &[a, b]);
    events.extend(x.seen_deliveries(q, &[b, a]));
    violated(
        format!(
            "{pn} delivers {an} without {bn} before it, {qn} delivers {bn} without {an} before it; \
             both were cast to {both}"
        ),
        events,
    )
}

//! Properties of deliveries: validity, agreement, integrity, and genuineness. Each is one pass over
//! the deliveries (or casts, or participations).

use crate::history::ProcessHistory;
use crate::index::Index;
use crate::report::{Counterexample, PropertyVerdict};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;

pub(crate) const UNSETTLED: &str = "the run did not settle";

/// Each message once, at most, and only if it was cast before; when `to_members` also only if it
/// was cast to a group of the process.
///
/// A message that may have been cast where the history does not tell is no violation, and then this is not judged, unless
/// something else is wrong.
///
/// "Before" is the order of lines within a file and of times between files, where equal times
/// do not count against a run.
pub(crate) fn integrity(x: &Index<'_>, to_members: bool) -> PropertyVerdict {
    if let Some((p, m)) = x.twice {
        let events = (0..2).filter_map(|n| x.seen_delivery(p, m, n)).collect();
        return violated(format!("{} delivers {} twice", x.proc_name(p), x.msg_name(m)), events);
    }
    let mut untold = None;
    for p in x.procs() {
        for e in x.logs[p as usize].iter().filter(|e| !e.is_cast()) {
            let m = e.message();
            if !x.was_cast(m)
                && let Some(why) = x.h.gaps.of_state()
            {
                untold.get_or_insert((p, m, why));
                continue;
            }
            let cast = x.h.casts[m as usize];
            let early = e.t < cast.t || x.h.same_file(e.line, cast.line) && e.line < cast.line;
            let what = if !x.was_cast(m) {
                "which nobody cast"
            } else if early {
                "before it was cast"
            } else if to_members && !x.addressed(p, m) {
                "which was not cast to a group of it"
            } else {
                continue;
            };
            let events = x.seen_cast(m).into_iter().chain(x.seen_delivery(p, m, 0)).collect();
            return violated(
                format!("{} delivers {}, {what}", x.proc_name(p), x.msg_name(m)),
                events,
            );
        }
    }
    let Some((p, m, why)) = untold else { return PropertyVerdict::Holds };
    let (p, m) = (x.proc_name(p), x.msg_name(m));
    PropertyVerdict::NotJudged(format!("{why}; {p} delivers {m}, which may have been cast there"))
}

/// The processes whose actions oblige all correct processes that a message was cast to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Obliges {
    /// A correct process that casts it, and has not crashed since (validity).
    CorrectSender,
    /// Any process that delivers it (uniform agreement).
    AnyDeliverer,
    /// A correct process that delivers it (non-uniform agreement).
    CorrectDeliverer,
}

/// A message that one of them obliges is delivered by every correct process it was cast to.
pub(crate) fn everywhere(x: &Index<'_>, obliges: Obliges) -> PropertyVerdict {
    if !x.h.ended {
        return PropertyVerdict::NotJudged(UNSETTLED.to_string());
    }
    // How many correct processes each set of groups has, and how many delivered each message.
    let correct: Vec<u32> = x.procs().filter(|&p| x.correct[p as usize]).collect();
    let needed: Vec<u32> = (0..x.h.sets.len() as u32)
        .map(|set| correct.iter().filter(|&&p| x.meets(p, set)).count() as u32)
        .collect();
    let mut delivered = vec![0; x.messages()];
    let mut obliged = vec![false; x.messages()];
    for p in x.procs() {
        let is_correct = x.correct[p as usize];
        for &m in x.delivered(p) {
            delivered[m as usize] += u32::from(is_correct && x.addressed(p, m));
            obliged[m as usize] |= match obliges {
                Obliges::CorrectSender => false,
                Obliges::AnyDeliverer => true,
                Obliges::CorrectDeliverer => x.unfailed[p as usize],
            };
        }
    }
    if obliges == Obliges::CorrectSender {
        for (m, cast) in x.h.casts.iter().enumerate() {
            obliged[m] = x.was_cast(m as u32) && x.stands(cast);
        }
    }
    let missing = (0..x.messages()).find(|&m| {
        obliged[m] && x.was_cast(m as u32) && delivered[m] < needed[x.h.casts[m].dst as usize]
    });
    missing.map_or(PropertyVerdict::Holds, |m| missed(x, m as u32, obliges, &correct))
}

/// The verdict for a correct process that did not deliver `m` although it had to.
fn missed(x: &Index<'_>, m: u32, obliges: Obliges, correct: &[u32]) -> PropertyVerdict {
    let has = |p: u32| x.delivered(p).contains(&m);
    let who = correct.iter().copied().find(|&p| x.addressed(p, m) && !has(p));
    let by = match obliges {
        Obliges::CorrectSender => None,
        Obliges::AnyDeliverer => x.procs().find(|&p| has(p)),
        Obliges::CorrectDeliverer => x.procs().find(|&p| x.unfailed[p as usize] && has(p)),
    };
    let (who, m_name) = (who.map_or("a correct process", |p| x.proc_name(p)), x.msg_name(m));
    let events: Vec<_> =
        x.seen_cast(m).into_iter().chain(by.and_then(|p| x.seen_delivery(p, m, 0))).collect();
    violated(
        match by {
            None => format!("{who}, which is correct and was meant to, never delivers {m_name}"),
            Some(p) => format!(
                "{} delivers {m_name}, {who}, which is correct and was meant to, never does",
                x.proc_name(p)
            ),
        },
        events,
    )
}

/// A message that a correct process broadcasts to a group of its own is delivered by it, unless it
/// crashed since.
pub(crate) fn own(x: &Index<'_>) -> PropertyVerdict {
    if !x.h.ended {
        return PropertyVerdict::NotJudged(UNSETTLED.to_string());
    }
    let mut by_sender = vec![false; x.messages()];
    for p in x.procs() {
        for &m in x.delivered(p) {
            by_sender[m as usize] |= x.h.casts[m as usize].sender == p;
        }
    }
    let lost = (0..x.messages() as u32).find(|&m| {
        let sender = x.h.casts[m as usize].sender;
        x.was_cast(m)
            && x.stands(&x.h.casts[m as usize])
            && x.addressed(sender, m)
            && !by_sender[m as usize]
    });
    let Some(m) = lost else { return PropertyVerdict::Holds };
    let sender = x.proc_name(x.h.casts[m as usize].sender);
    violated(
        format!("{sender} casts {}, is correct, and never delivers it", x.msg_name(m)),
        x.seen_cast(m).into_iter().collect(),
    )
}

/// Nobody but sender and destinations takes part in ordering a message; when `partially`, members of other
/// groups may if the message has several destinations and, as far as the tree of groups is known, their
/// group is on its paths. Where a process names the tree along which it takes part from some time on, that one counts for
/// it. A delivery is no participation by itself.
pub(crate) fn genuine(x: &Index<'_>, partially: bool) -> PropertyVerdict {
    if x.h.procs.iter().all(|p: &ProcessHistory| p.parts.is_empty()) {
        return PropertyVerdict::NotJudged(
            "the history does not say who took part (\"part\")".to_string(),
        );
    }
    // By tree and set of destinations: the groups on its paths, once asked for; nothing where that is not known.
    let mut paths = BTreeMap::new();
    for p in x.procs() {
        let ProcessHistory { groups, parts, trees, .. } = &x.h.procs[p as usize];
        let (mut trees, mut tree) = (trees.iter().peekable(), None);
        for (i, e) in parts.iter().enumerate() {
            while let Some((_, next)) = trees.next_if(|(from, _)| *from <= i) {
                tree = Some(*next);
            }
            let m = e.message();
            let cast = x.h.casts[m as usize];
            let is_untold = || !x.was_cast(m) && x.h.gaps.of_state().is_some();
            if cast.sender == p || x.addressed(p, m) || is_untold() {
                continue;
            }
            let several = x.dst(m).len() > 1;
            if partially && several {
                let along = tree.map_or(&x.h.tree, |tree| &x.h.trees[tree as usize]);
                let on = paths.entry((tree, cast.dst)).or_insert_with(|| along.paths(x.dst(m)));
                if on.as_ref().is_none_or(|on| groups.iter().any(|g| on.contains(g))) {
                    continue;
                }
            }
            let (who, name) = (x.proc_name(p), x.msg_name(m));
            let what = match x.dst(m) {
                [] => "which nobody cast".to_string(),
                dst if partially && several => {
                    let dst: Vec<_> = dst.iter().map(|&g| x.group_name(g)).collect();
                    format!("with tree paths to {} that contain no group of it", dst.join(", "))
                }
                dst => {
                    let dst: Vec<_> = dst.iter().map(|&g| x.group_name(g)).collect();
                    format!("which was cast to {} only, by another", dst.join(", "))
                }
            };
            let part = x.seen(p, "takes part in", m, None, e.line, e.t);
            return violated(
                format!("{who} takes part in ordering {name}, {what}"),
                x.seen_cast(m).into_iter().chain([part]).collect(),
            );
        }
    }
    PropertyVerdict::Holds
}

pub(crate) fn violated(
    sentence: alloc::string::String,
    events: Vec<crate::report::CounterexampleEvent>,
) -> PropertyVerdict {
    PropertyVerdict::Violated(Counterexample::new(sentence, events))
}

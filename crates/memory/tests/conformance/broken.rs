//! Carriers that break one law each: the suite must notice every one of them.

use crate::mapped::Carriers;
use amcast_core::id::Pid;
use amcast_core::memory::{LINE_WORDS, Out, RegionId, Source, Window};
use amcast_memory::conformance::{Fabric, Heard, Make, SUITE};
use std::collections::VecDeque;
use std::panic;
use std::sync::atomic::Ordering;

/// What is wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    StampFirst,
    LinesBackwards,
    DeniedIsWritten,
    AnsweredTwice,
    NeverAnswered,
    ReadsAreStale,
    FreshUntold,
    FreshTwice,
    NotZeroed,
    OldWritesLand,
}

/// Each fault, and the law whose test must notice it.
const FAULTS: [(Fault, &str); 10] = [
    (Fault::StampFirst, "a line is whole or stale"),
    (Fault::LinesBackwards, "writes appear in order of posting"),
    (Fault::DeniedIsWritten, "nothing is reported written while revoked"),
    (Fault::AnsweredTwice, "each ticket is answered once"),
    (Fault::NeverAnswered, "each ticket is answered once"),
    (Fault::ReadsAreStale, "reads give the lines"),
    (Fault::FreshUntold, "a fresh start is empty and told once"),
    (Fault::FreshTwice, "a fresh start is empty and told once"),
    (Fault::NotZeroed, "a fresh start is empty and told once"),
    (Fault::OldWritesLand, "nothing meant for the old memory reaches the new"),
];

struct Broken {
    fault: Fault,
    inner: Carriers,
    /// Stores into the owner's first region that are put off: line, word, value.
    stores: VecDeque<(u32, usize, u64)>,
}

const OWNER: Pid = Pid(0);
const PLAIN: RegionId = RegionId(0);

impl Broken {
    /// Takes single lines written to the first region out of the carrier's hands.
    fn keeps(&mut self, out: &Out) -> bool {
        let Out::Write { region: PLAIN, at, source: Source::Made { head, stamp, .. }, .. } = out
        else {
            return false;
        };
        let [a, b, c, d, e, f, g] = *head;
        let stores: [_; LINE_WORDS + 1] = [a, b, c, d, e, f, g, stamp.0];
        let mut word = 0;
        let stores = stores.map(|value| {
            word += 1;
            (*at, word - 1, value)
        });
        match self.fault {
            Fault::StampFirst => self.stores.extend(stores.into_iter().rev()),
            Fault::LinesBackwards => {
                stores.into_iter().rev().for_each(|s| self.stores.push_front(s))
            }
            Fault::OldWritesLand => self.stores.extend(stores),
            _ => return false,
        }
        true
    }
}

impl Fabric for Broken {
    fn post(&mut self, from: Pid, outs: &[Out]) {
        for out in outs {
            if !self.keeps(out) || self.fault == Fault::OldWritesLand {
                self.inner.post(from, &[*out]);
            }
        }
    }

    fn advance(&mut self) -> bool {
        let Some((line, word, value)) = self.stores.pop_front() else { return false };
        let lines = self.inner.window(OWNER).region(PLAIN);
        lines[line as usize].raw(word).store(value, Ordering::Relaxed);
        true
    }

    fn heard(&mut self, by: Pid) -> Vec<Heard> {
        let heard = self.inner.heard(by);
        let wrong = |input: Heard| match (self.fault, input) {
            (Fault::DeniedIsWritten, Heard::Denied(t)) => vec![Heard::Written(t)],
            (Fault::AnsweredTwice, Heard::Written(t)) => vec![Heard::Written(t), Heard::Written(t)],
            (Fault::FreshTwice, Heard::Fresh(p, n)) => vec![Heard::Fresh(p, n), Heard::Fresh(p, n)],
            (Fault::NeverAnswered, Heard::Written(_)) => vec![],
            (Fault::FreshUntold, Heard::Fresh(..)) => vec![],
            (Fault::ReadsAreStale, Heard::Words(t, words)) => {
                vec![Heard::Words(t, vec![[0; LINE_WORDS + 1]; words.len()])]
            }
            (_, input) => vec![input],
        };
        heard.into_iter().flat_map(wrong).collect()
    }

    fn window(&self, of: Pid) -> Window<'_> {
        self.inner.window(of)
    }

    fn crash(&mut self, pid: Pid) {
        self.inner.crash(pid);
    }

    fn start(&mut self, pid: Pid) {
        self.inner.start(pid);
        if self.fault == Fault::NotZeroed {
            self.inner.window(pid).region(PLAIN)[3].raw(0).store(1, Ordering::Relaxed);
        }
    }
}

#[test]
fn the_suite_notices_every_fault() {
    let _limit = amcast_test_policy::time_limit();
    for (fault, broken) in FAULTS {
        let notices = |test: fn(Make<'_>)| {
            let judged = panic::catch_unwind(|| {
                test(&mut || {
                    let inner = Carriers::on_heap();
                    Box::new(Broken { fault, inner, stores: VecDeque::new() })
                });
            });
            judged.is_err()
        };
        let noticed: Vec<_> =
            SUITE.iter().filter(|&&(_, test)| notices(test)).map(|(law, _)| *law).collect();
        assert!(noticed.contains(&broken), "{fault:?} is noticed only by {noticed:?}");
    }
}

//! Carriers that break one law each: the suite must notice every one of them.

use crate::mapped::Carriers;
use amcast_core::id::Pid;
use amcast_core::memory::{
    LINE_WORDS, LineStamp, MemoryOutput, RegionId, RegionWindow, WriteSource,
};
use amcast_memory::conformance::{MakeMemoryFabric, MemoryEvent, MemoryFabric, SUITE};
use std::collections::VecDeque;
use std::panic;
use std::sync::atomic::Ordering;

/// The broken law.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum MemoryFault {
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
    RevokedTooEarly,
    DeniedLandsLater,
}

/// Each fault, and the law whose test must notice it.
const FAULTS: [(MemoryFault, &str); 12] = [
    (MemoryFault::StampFirst, "a line is whole or stale"),
    (MemoryFault::LinesBackwards, "writes appear in order of posting"),
    (MemoryFault::DeniedIsWritten, "nothing is reported written while revoked"),
    (MemoryFault::AnsweredTwice, "each ticket is answered once"),
    (MemoryFault::NeverAnswered, "each ticket is answered once"),
    (MemoryFault::ReadsAreStale, "reads give the lines"),
    (MemoryFault::FreshUntold, "a fresh start is empty and told once"),
    (MemoryFault::FreshTwice, "a fresh start is empty and told once"),
    (MemoryFault::NotZeroed, "a fresh start is empty and told once"),
    (MemoryFault::OldWritesLand, "nothing meant for the old memory reaches the new"),
    (MemoryFault::RevokedTooEarly, "a write that was reported is seen after a revocation"),
    (MemoryFault::DeniedLandsLater, "a write that a revocation stops does not land later"),
];

struct BrokenMemory {
    fault: MemoryFault,
    inner: Carriers,
    /// Stores into the owner's regions that are put off: region, line, word, value.
    stores: VecDeque<(RegionId, u32, usize, u64)>,
}

const OWNER: Pid = Pid(0);
const PLAIN: RegionId = RegionId(0);
const GUARDED: RegionId = RegionId(1);

impl BrokenMemory {
    /// Takes single lines written to the region that the fault is about out of the carrier's hands.
    fn keeps(&mut self, out: &MemoryOutput) -> bool {
        let MemoryOutput::Write {
            region, at, source: WriteSource::Made { head, stamp, .. }, ..
        } = out
        else {
            return false;
        };
        let late =
            matches!(self.fault, MemoryFault::RevokedTooEarly | MemoryFault::DeniedLandsLater);
        if *region != if late { GUARDED } else { PLAIN } {
            return false;
        }
        let [a, b, c, d, e, f, g] = *head;
        let stores: [_; LINE_WORDS + 1] = [a, b, c, d, e, f, g, stamp.0];
        let mut word = 0;
        let stores = stores.map(|value| {
            word += 1;
            (*region, *at, word - 1, value)
        });
        match self.fault {
            MemoryFault::StampFirst => self.stores.extend(stores.into_iter().rev()),
            MemoryFault::LinesBackwards => {
                stores.into_iter().rev().for_each(|s| self.stores.push_front(s))
            }
            MemoryFault::OldWritesLand
            | MemoryFault::RevokedTooEarly
            | MemoryFault::DeniedLandsLater => self.stores.extend(stores),
            _ => return false,
        }
        true
    }
}

impl MemoryFabric for BrokenMemory {
    fn post(&mut self, from: Pid, outs: &[MemoryOutput]) {
        for out in outs {
            let kept = self.keeps(out);
            // Judged by the permission when it arrives, and stored later.
            let early = self.fault == MemoryFault::RevokedTooEarly;
            if !kept || early || self.fault == MemoryFault::OldWritesLand {
                self.inner.post(from, &[*out]);
            }
            if kept && early {
                let MemoryOutput::Write { at, .. } = *out else { continue };
                self.inner.window(OWNER).region(GUARDED)[at as usize]
                    .put(&[0; LINE_WORDS], LineStamp::default());
            }
        }
    }

    fn advance(&mut self) -> bool {
        let Some((region, line, word, value)) = self.stores.pop_front() else { return false };
        let lines = self.inner.window(OWNER).region(region);
        lines[line as usize].raw(word).store(value, Ordering::Relaxed);
        true
    }

    fn heard(&mut self, by: Pid) -> Vec<MemoryEvent> {
        let heard = self.inner.heard(by);
        let wrong = |input: MemoryEvent| match (self.fault, input) {
            (MemoryFault::DeniedIsWritten, MemoryEvent::Denied(t)) => vec![MemoryEvent::Written(t)],
            (MemoryFault::AnsweredTwice, MemoryEvent::Written(t)) => {
                vec![MemoryEvent::Written(t), MemoryEvent::Written(t)]
            }
            (MemoryFault::FreshTwice, MemoryEvent::Fresh(p, n)) => {
                vec![MemoryEvent::Fresh(p, n), MemoryEvent::Fresh(p, n)]
            }
            (MemoryFault::NeverAnswered, MemoryEvent::Written(_)) => vec![],
            (MemoryFault::FreshUntold, MemoryEvent::Fresh(..)) => vec![],
            (MemoryFault::ReadsAreStale, MemoryEvent::Words(t, words)) => {
                vec![MemoryEvent::Words(t, vec![[0; LINE_WORDS + 1]; words.len()])]
            }
            (_, input) => vec![input],
        };
        heard.into_iter().flat_map(wrong).collect()
    }

    fn window(&self, of: Pid) -> RegionWindow<'_> {
        self.inner.window(of)
    }

    fn crash(&mut self, pid: Pid) {
        self.inner.crash(pid);
    }

    fn start(&mut self, pid: Pid) {
        self.inner.start(pid);
        if self.fault == MemoryFault::NotZeroed {
            self.inner.window(pid).region(PLAIN)[3].raw(0).store(1, Ordering::Relaxed);
        }
    }

    fn stops_writes(&self) -> bool {
        true
    }
}

#[test]
fn the_suite_notices_every_fault() {
    let _limit = amcast_test_policy::time_limit();
    for (fault, broken) in FAULTS {
        let notices = |test: fn(MakeMemoryFabric<'_>)| {
            let judged = panic::catch_unwind(|| {
                test(&mut || {
                    let inner = Carriers::on_heap();
                    Box::new(BrokenMemory { fault, inner, stores: VecDeque::new() })
                });
            });
            judged.is_err()
        };
        let noticed: Vec<_> =
            SUITE.iter().filter(|&&(_, test)| notices(test)).map(|(law, _)| *law).collect();
        assert!(noticed.contains(&broken), "{fault:?} is noticed only by {noticed:?}");
    }
}

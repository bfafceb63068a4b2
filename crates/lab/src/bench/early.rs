//! Early deliveries in a measurement: how much earlier they are than the deliveries, and how often an application that
//! executes early has to undo.

use amcast_core::early::{EarlyAction, TentativeOrder};
use amcast_core::{MsgId, Time};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::iter::Sum;

/// The early deliveries of one process or of several, among those that count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EarlyCounts {
    /// Deliveries.
    pub deliveries: u64,
    /// Of these, messages that were delivered early before.
    pub early: u64,
    /// Of these, messages that had to be undone at least once.
    pub undone: u64,
    /// The time from the early delivery to the delivery, in nanoseconds, of all those together.
    pub gained_ns: u64,
    /// The same of those that were never undone.
    pub kept_ns: u64,
}

impl EarlyCounts {
    /// Adds those of another process.
    pub fn add(&mut self, other: &Self) {
        self.deliveries += other.deliveries;
        self.early += other.early;
        self.undone += other.undone;
        self.gained_ns += other.gained_ns;
        self.kept_ns += other.kept_ns;
    }

    /// As words, for another process.
    pub(super) fn put(&self, words: &mut Vec<u64>) {
        words.extend([self.deliveries, self.early, self.undone, self.gained_ns, self.kept_ns]);
    }

    pub(super) fn take(words: &mut impl Iterator<Item = u64>) -> Option<Self> {
        Some(Self {
            deliveries: words.next()?,
            early: words.next()?,
            undone: words.next()?,
            gained_ns: words.next()?,
            kept_ns: words.next()?,
        })
    }

    /// For people: the part that was early, the time gained, and the part that was undone.
    pub(crate) fn sentence(&self) -> String {
        let of = |part: u64, all: u64| 100.0 * part as f64 / all.max(1) as f64;
        let us = |ns: u64, count: u64| ns as f64 / count.max(1) as f64 / 1e3;
        let kept = self.early - self.undone;
        format!(
            "{:.1} % of the deliveries were early, by {:.2} us in the mean; {:.1} % of these were undone, the others {:.2} \
             us early",
            of(self.early, self.deliveries),
            us(self.gained_ns, self.early),
            of(self.undone, self.early),
            us(self.kept_ns, kept),
        )
    }
}

impl Sum for EarlyCounts {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |mut sum, one| {
            sum.add(&one);
            sum
        })
    }
}

/// A message that was delivered early and is not delivered.
#[derive(Clone, Copy, Debug)]
struct ShownMessage {
    at: Time,
    is_undone: bool,
}

/// The early deliveries of one process.
#[derive(Clone, Debug, Default)]
pub(super) struct EarlyWatch {
    order: TentativeOrder,
    shown: BTreeMap<MsgId, ShownMessage>,
    counts: EarlyCounts,
}

impl EarlyWatch {
    /// A message is delivered early.
    pub(super) fn early(&mut self, now: Time, m: MsgId) {
        self.shown.insert(m, ShownMessage { at: now, is_undone: false });
        self.order.early(m, &mut |_| {});
    }

    /// A message is delivered; if not `counts`, it is none of those that are measured.
    pub(super) fn deliver(&mut self, now: Time, m: MsgId, counts: bool) {
        let Self { order, shown, .. } = self;
        order.deliver(m, &mut |action| {
            if let EarlyAction::Undo(undone) = action
                && let Some(message) = shown.get_mut(&undone)
            {
                message.is_undone = true;
            }
        });
        let message = self.shown.remove(&m);
        if !counts {
            return;
        }
        self.counts.deliveries += 1;
        if let Some(ShownMessage { at, is_undone }) = message {
            let gained = now.since(at).0;
            self.counts.early += 1;
            self.counts.gained_ns += gained;
            self.counts.undone += u64::from(is_undone);
            self.counts.kept_ns += if is_undone { 0 } else { gained };
        }
    }

    /// The counts so far.
    pub(super) const fn counts(&self) -> EarlyCounts {
        self.counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use amcast_core::Pid;

    #[test]
    fn undone_messages_are_those_that_another_one_overtakes() {
        let m = |seq| MsgId { sender: Pid(0), seq };
        let mut watch = EarlyWatch::default();
        watch.early(Time(1_000), m(1));
        watch.early(Time(2_000), m(2));
        watch.early(Time(2_500), m(3));
        // The second one is first: both of the others are executed again behind it.
        watch.deliver(Time(3_000), m(2), true);
        watch.early(Time(3_500), m(4));
        watch.deliver(Time(4_000), m(1), true);
        watch.deliver(Time(5_000), m(3), true);
        watch.deliver(Time(6_500), m(4), true);
        watch.deliver(Time(7_000), m(5), true);
        watch.deliver(Time(7_000), m(6), false);
        let counts = watch.counts();
        let expected =
            EarlyCounts { deliveries: 5, early: 4, undone: 3, gained_ns: 9_500, kept_ns: 3_000 };
        assert_eq!(counts, expected);
        let mut words = Vec::new();
        counts.put(&mut words);
        assert_eq!(EarlyCounts::take(&mut words.into_iter()), Some(counts));
        let sentence = counts.sentence();
        assert!(
            sentence.starts_with("80.0 % of the deliveries were early, by 2.38 us"),
            "{sentence}"
        );
        assert!(sentence.contains("75.0 % of these were undone, the others 3.00 us"), "{sentence}");
    }
}

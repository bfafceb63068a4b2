//! The deliveries of a replica, kept for the checker.

use amcast_core::{GroupSet, MsgId, Pid};
use std::collections::BTreeMap;

/// Deliveries that are kept of all replicas together. Beyond its share a replica keeps a digest.
const KEPT_MAX: usize = 3_000_000;

/// A digest is noted each time so many deliveries more are in it.
const STRIDE: u64 = 4096;

/// Digests noted: enough for an hour at ten million deliveries a second.
const DIGESTS_MAX: usize = 1 << 20;

/// The deliveries of one replica: the first ones one by one, all of them in a digest.
#[derive(Clone, Debug, Default)]
pub(super) struct DeliveryDigest {
    first: Vec<(MsgId, GroupSet)>,
    most: usize,
    count: u64,
    digest: u64,
    /// The digest after each [`STRIDE`] deliveries.
    digests: Vec<u64>,
    /// Later deliveries have a gap before them, and are not judged.
    closed: bool,
}

/// How many multicasts went to each set of groups, of those that any of these deliveries kept one by one.
pub(super) fn destination_sets(all: &[DeliveryDigest]) -> Vec<(GroupSet, u64)> {
    let mut cast: Vec<_> = all.iter().flat_map(DeliveryDigest::first).copied().collect();
    cast.sort_unstable();
    cast.dedup();
    let mut sets: BTreeMap<GroupSet, u64> = BTreeMap::new();
    for (_, dst) in cast {
        *sets.entry(dst).or_default() += 1;
    }
    sets.into_iter().collect()
}

impl DeliveryDigest {
    /// How many deliveries each of `replicas` keeps.
    pub(super) const fn most(replicas: usize) -> usize {
        KEPT_MAX / replicas
    }

    /// Room for `most` deliveries, touched now so that later there are no page faults.
    pub(super) fn new(most: usize) -> Self {
        let none = (MsgId { sender: Pid(0), seq: u64::MAX }, GroupSet::EMPTY);
        let mut first = vec![none; most];
        first.clear();
        let digests = Vec::with_capacity(if most == 0 { 0 } else { DIGESTS_MAX });
        Self { first, most, digests, ..Self::default() }
    }

    /// Puts a delivery in.
    pub(super) fn push(&mut self, m: MsgId, dst: GroupSet) {
        if self.closed {
            return;
        }
        if self.first.len() < self.most {
            self.first.push((m, dst));
        }
        let word = m.seq ^ u64::from(m.sender.0) << 40 ^ dst.0.rotate_left(17);
        self.digest = (self.digest ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        self.count += 1;
        if self.count.is_multiple_of(STRIDE) && self.digests.len() < DIGESTS_MAX {
            self.digests.push(self.digest);
        }
    }

    /// Takes nothing in any more.
    pub(super) fn close(&mut self) {
        self.closed = true;
    }

    /// The deliveries that are kept one by one: the first ones.
    pub(super) fn first(&self) -> &[(MsgId, GroupSet)] {
        &self.first
    }

    /// All deliveries.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Whether this and another replica of the same group delivered the same in the same order, as
    /// far as both digests go.
    pub(super) fn agrees(&self, other: &Self) -> bool {
        let same = |(a, b): (&u64, &u64)| a == b;
        self.digests.iter().zip(&other.digests).all(same)
            && (self.count != other.count || self.digest == other.digest)
    }

    /// As words, for another process.
    pub(super) fn put(&self, words: &mut Vec<u64>) {
        words.extend([self.count, self.digest, self.digests.len() as u64, self.first.len() as u64]);
        words.extend(&self.digests);
        words.extend(self.first.iter().flat_map(|(m, dst)| [u64::from(m.sender.0), m.seq, dst.0]));
    }

    /// From such words; none if they end too early.
    pub(super) fn take(words: &mut impl Iterator<Item = u64>) -> Option<Self> {
        let [count, digest] = [words.next()?, words.next()?];
        let [digests, first] = [words.next()?, words.next()?];
        let digests: Vec<u64> = words.by_ref().take(digests as usize).collect();
        let mut kept = Vec::new();
        for _ in 0..first {
            let [sender, seq, dst] = [words.next()?, words.next()?, words.next()?];
            kept.push((MsgId { sender: Pid(sender as u32), seq }, GroupSet(dst)));
        }
        Some(Self { first: kept, most: 0, count, digest, digests, closed: true })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(seqs: impl Iterator<Item = u64>) -> DeliveryDigest {
        let mut kept = DeliveryDigest::new(10);
        seqs.for_each(|seq| kept.push(MsgId { sender: Pid(7), seq }, GroupSet(1)));
        kept
    }

    #[test]
    fn two_orders_do_not_agree_even_beyond_what_is_kept() {
        let n = 3 * STRIDE;
        let one = of(0..n);
        assert!(one.agrees(&of(0..n)) && one.agrees(&of(0..n - 5)));
        assert_eq!((one.first().len(), one.count()), (10, n));
        let swapped = (0..n).map(|i| {
            if i == 100 {
                101
            } else if i == 101 {
                100
            } else {
                i
            }
        });
        assert!(!one.agrees(&of(swapped)));
    }

    #[test]
    fn it_reads_back_from_words() {
        let kept = of(0..5000);
        let mut words = Vec::new();
        kept.put(&mut words);
        let back = DeliveryDigest::take(&mut words.iter().copied()).unwrap();
        assert_eq!((back.first(), back.count()), (kept.first(), kept.count()));
        assert!(back.agrees(&kept));
        words.truncate(words.len() - 1);
        assert!(DeliveryDigest::take(&mut words.into_iter()).is_none());
    }
}

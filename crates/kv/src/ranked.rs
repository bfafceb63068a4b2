//! A sorted list that knows the rank of each item.

/// Items in ascending order, in chunks: finding, inserting and removing cost one binary search
/// over chunks and one move within a chunk; ranks are sums over the chunks' lengths. Flat memory
/// beats a tree up to millions of items.
#[derive(Clone, Debug)]
pub(crate) struct Ranked<T> {
    /// Never empty chunks.
    chunks: Vec<Vec<T>>,
}

const CHUNK_MAX: usize = 512;

impl<T> Default for Ranked<T> {
    fn default() -> Self {
        Self { chunks: Vec::new() }
    }
}

impl<T: Ord> Ranked<T> {
    /// Adds `item`, which must not be there yet.
    pub(crate) fn insert(&mut self, item: T) {
        let at = self.chunks.partition_point(|c| c[c.len() - 1] < item);
        let at = at.min(self.chunks.len().saturating_sub(1));
        let Some(chunk) = self.chunks.get_mut(at) else {
            self.chunks.push(vec![item]);
            return;
        };
        let i = chunk.partition_point(|x| *x < item);
        chunk.insert(i, item);
        if chunk.len() > CHUNK_MAX {
            let upper = chunk.split_off(CHUNK_MAX / 2);
            self.chunks.insert(at + 1, upper);
        }
    }

    /// Removes `item`; whether it was there.
    pub(crate) fn remove(&mut self, item: &T) -> bool {
        let at = self.chunks.partition_point(|c| c[c.len() - 1] < *item);
        let Some(chunk) = self.chunks.get_mut(at) else { return false };
        let Ok(i) = chunk.binary_search(item) else { return false };
        chunk.remove(i);
        if chunk.is_empty() {
            self.chunks.remove(at);
        }
        true
    }

    /// How many items come before the first one for which `before` is false. `before` must be
    /// true for a prefix.
    pub(crate) fn count_before(&self, before: impl Fn(&T) -> bool) -> usize {
        let at = self.chunks.partition_point(|c| before(&c[c.len() - 1]));
        let whole: usize = self.chunks[..at].iter().map(Vec::len).sum();
        whole + self.chunks.get(at).map_or(0, |c| c.partition_point(&before))
    }

    /// The items from rank `from` on, ascending.
    pub(crate) fn iter_from(&self, from: usize) -> impl Iterator<Item = &T> {
        let (chunk, offset) = self.locate(from);
        let head = self.chunks.get(chunk).map_or(&[][..], |c| &c[offset..]);
        let tail = self.chunks.get(chunk + 1..).unwrap_or(&[]);
        head.iter().chain(tail.iter().flatten())
    }

    /// The items from rank `from` down to rank 0.
    pub(crate) fn iter_back_from(&self, from: usize) -> impl Iterator<Item = &T> {
        let (chunk, offset) = self.locate(from);
        let head = self.chunks.get(chunk).map_or(&[][..], |c| &c[..=offset]);
        head.iter().rev().chain(self.chunks[..chunk].iter().rev().flat_map(|c| c.iter().rev()))
    }

    fn locate(&self, rank: usize) -> (usize, usize) {
        let mut before = 0;
        for (i, c) in self.chunks.iter().enumerate() {
            if rank < before + c.len() {
                return (i, rank - before);
            }
            before += c.len();
        }
        (self.chunks.len(), 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use amcast_core::rng::Rng;
    use std::collections::BTreeSet;

    #[test]
    fn it_agrees_with_a_tree() {
        let (mut list, mut tree, mut rng) = (Ranked::default(), BTreeSet::new(), Rng::new(3));
        for _ in 0..20_000 {
            let x = rng.below(4_000);
            if rng.chance(600_000) {
                if tree.insert(x) {
                    list.insert(x);
                }
            } else {
                assert_eq!(list.remove(&x), tree.remove(&x));
            }
        }
        assert_eq!(list.iter_from(0).count(), tree.len());
        let sorted: Vec<u64> = tree.iter().copied().collect();
        for rank in [0, 1, 511, 512, 1000, sorted.len() - 1] {
            assert!(list.iter_from(rank).eq(&sorted[rank..]));
            assert!(list.iter_back_from(rank).eq(sorted[..=rank].iter().rev()));
            assert_eq!(list.count_before(|x| *x < sorted[rank]), rank);
        }
        assert_eq!(list.iter_from(sorted.len()).count(), 0);
    }
}

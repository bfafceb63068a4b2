//! The tree that the groups of a history are arranged in, and the groups on the paths of a message.

use crate::intern::NONE;
use alloc::vec::Vec;

/// The parents of groups, as far as they are known. Following them never comes back to a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct GroupTree {
    /// By group: its parent, `ROOT` if it has none, or `NONE` if that is not known.
    parents: Vec<u32>,
}

const ROOT: u32 = NONE - 1;

impl GroupTree {
    /// Whether `parent` (none for the root) can be the parent of `group`.
    pub(crate) fn takes(&self, group: u32, parent: Option<u32>) -> bool {
        let known = self.parents.get(group as usize).copied().unwrap_or(NONE);
        let same = known == NONE || known == parent.unwrap_or(ROOT);
        same && parent.is_none_or(|parent| self.upwards(parent).all(|above| above != group))
    }

    /// Makes `parent` the parent of `group`, which it [takes](Self::takes).
    pub(crate) fn put(&mut self, group: u32, parent: Option<u32>) {
        if self.parents.len() <= group as usize {
            self.parents.resize(group as usize + 1, NONE);
        }
        self.parents[group as usize] = parent.unwrap_or(ROOT);
    }

    /// A group, its parent, and so on, as far as they are known.
    fn upwards(&self, group: u32) -> impl Iterator<Item = u32> + '_ {
        let parent = |g: &u32| self.parents.get(*g as usize).copied().filter(|&p| p < ROOT);
        core::iter::successors(Some(group), parent)
    }

    /// The groups on the paths from the lowest common ancestor of `dst` down to each of them, the ancestor
    /// first; nothing if no common ancestor is known.
    pub(crate) fn paths(&self, dst: &[u32]) -> Option<Vec<u32>> {
        let (&first, others) = dst.split_first()?;
        let common = |above: &u32| others.iter().all(|&d| self.upwards(d).any(|g| g == *above));
        let top = self.upwards(first).find(common)?;
        let mut on = alloc::vec![top];
        for &d in dst {
            on.extend(self.upwards(d).take_while(|&g| g != top));
        }
        Some(on)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_paths_of_a_message_lead_from_the_lowest_common_ancestor_to_its_destinations() {
        // The tree `base` of the evaluation.
        let mut tree = GroupTree::default();
        tree.put(0, None);
        for (g, parent) in [(1, 0), (2, 1), (3, 1), (4, 2), (5, 2), (6, 3), (7, 3)] {
            assert!(tree.takes(g, Some(parent)));
            tree.put(g, Some(parent));
        }
        let paths = |dst: &[u32]| {
            let mut on = tree.paths(dst).expect("all is known");
            let top = on[0];
            on.sort_unstable();
            on.dedup();
            (top, on)
        };
        assert_eq!(paths(&[5]), (5, [5].to_vec()));
        assert_eq!(paths(&[4, 5]), (2, [2, 4, 5].to_vec()));
        assert_eq!(paths(&[4, 7]), (1, [1, 2, 3, 4, 7].to_vec()));
        assert_eq!(paths(&[1, 7]), (1, [1, 3, 7].to_vec()));
        assert!(!tree.takes(1, Some(4)), "a cycle");
        assert!(!tree.takes(4, Some(3)), "another parent");
        assert_eq!(tree.paths(&[4, 9]), None, "nothing is known of group 9");
    }
}

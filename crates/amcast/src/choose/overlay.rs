//! The tree over the groups that suits the destinations of a workload.

use amcast_core::{Gid, GroupSet, Overlay};

/// Passes over all moves at most: a pass that finds no better tree is the last.
const PASSES_MAX: usize = 64;

/// A tree over `groups` groups for multicasts to these sets, each as often as its number says: few groups take
/// part in a multicast, and few hops lead to its destinations. The best that small changes of the evaluation's
/// trees [TRAM 8.1] lead to; the same for the same sets. Numbers of other groups are ignored.
pub fn fitted_overlay(groups: usize, sets: &[(GroupSet, u64)]) -> Overlay {
    let all = GroupSet::first(groups);
    let known = |&(set, weight): &(GroupSet, u64)| (set.and(all), weight);
    let sets: Vec<_> = sets.iter().map(known).filter(|(set, _)| !set.is_empty()).collect();
    let starts = [Overlay::base(groups), Overlay::breadth(groups), Overlay::depth(groups)];
    let climbed = starts.into_iter().map(|start| climbed(start, &sets));
    let costed = climbed.map(|tree| (cost(&tree, &sets), tree));
    costed
        .min_by(|a, b| a.0.total_cmp(&b.0))
        .map_or_else(|| Overlay::breadth(groups), |best| best.1)
}

/// The tree that ever better neighbours lead to.
fn climbed(start: Overlay, sets: &[(GroupSet, u64)]) -> Overlay {
    let groups = start.groups();
    let mut least = cost(&start, sets);
    let mut best = start;
    for _ in 0..PASSES_MAX {
        let before = least;
        for (g, to) in (0..groups).flat_map(|g| (0..groups).map(move |to| (g, to))) {
            if g == to {
                continue;
            }
            for changed in [hung_below(&best, g, to), swapped(&best, g, to)].into_iter().flatten() {
                let costs = cost(&changed, sets);
                if costs < least {
                    (best, least) = (changed, costs);
                }
            }
        }
        if least >= before {
            break;
        }
    }
    best
}

/// The mean of groups that take part in a multicast, and of the hops to its farthest destination.
fn cost(overlay: &Overlay, sets: &[(GroupSet, u64)]) -> f64 {
    let each = |&(set, weight): &(GroupSet, u64)| {
        let lca = overlay.lca(set);
        let (mut parts, mut most) = (GroupSet::one(lca), 0);
        for mut g in set.iter() {
            let mut hops = 0;
            while g != lca {
                parts = parts.with(g);
                hops += 1;
                g = overlay.parent(g).expect("the common ancestor is above");
            }
            most = most.max(hops);
        }
        weight as f64 * (parts.len() + most) as f64
    };
    let all: f64 = sets.iter().map(|(_, weight)| *weight as f64).sum();
    sets.iter().map(each).sum::<f64>() / all.max(1.0)
}

/// The parents of all groups, -1 for the root.
pub fn overlay_parents(overlay: &Overlay) -> Vec<i64> {
    let parent = |g| overlay.parent(Gid(g as u8)).map_or(-1, |p| i64::from(p.0));
    (0..overlay.groups()).map(parent).collect()
}

/// The tree with `g` and all below it under `to`, unless that lies below it or is its parent.
fn hung_below(overlay: &Overlay, g: usize, to: usize) -> Option<Overlay> {
    let mut parents = overlay_parents(overlay);
    let is_below = overlay.reach(Gid(g as u8)).contains(Gid(to as u8));
    if is_below || parents[g] == -1 || parents[g] == to as i64 {
        return None;
    }
    parents[g] = to as i64;
    Overlay::new(&parents, parents.len()).ok()
}

/// The tree with `g` and `h` in each other's place.
fn swapped(overlay: &Overlay, g: usize, h: usize) -> Option<Overlay> {
    let instead = |at: usize| {
        if at == g {
            h
        } else if at == h {
            g
        } else {
            at
        }
    };
    let before = overlay_parents(overlay);
    let mut after = before.clone();
    for (at, parent) in before.iter().enumerate() {
        after[instead(at)] = usize::try_from(*parent).map_or(-1, |p| instead(p) as i64);
    }
    (g < h).then(|| Overlay::new(&after, after.len()).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(groups: &[u8]) -> GroupSet {
        groups.iter().map(|g| Gid(*g)).collect()
    }

    #[test]
    fn groups_that_are_addressed_together_hang_together() {
        let pairs = [[0, 5], [1, 6], [2, 7], [3, 4]];
        let sets: Vec<_> = pairs.iter().map(|pair| (set(pair), 10)).collect();
        let tree = fitted_overlay(8, &sets);
        // Two groups take part in each, over one hop.
        assert_eq!(cost(&tree, &sets), 3.0, "{:?}", overlay_parents(&tree));
        assert!(cost(&Overlay::base(8), &sets) > 4.0);
    }

    #[test]
    fn a_tree_is_never_worse_than_those_of_the_evaluation() {
        let mut rng = amcast_core::rng::Rng::new(7);
        for groups in 1..=9 {
            let mut any = || GroupSet(1 + rng.below((1 << groups) - 1));
            let sets: Vec<_> = (0..12).map(|i| (any(), 1 + i)).collect();
            let tree = fitted_overlay(groups, &sets);
            assert_eq!(tree, fitted_overlay(groups, &sets), "the same again");
            for usual in [Overlay::base(groups), Overlay::breadth(groups), Overlay::depth(groups)] {
                assert!(cost(&tree, &sets) <= cost(&usual, &sets));
            }
        }
    }

    #[test]
    fn what_names_no_group_of_the_cluster_changes_nothing() {
        let one = fitted_overlay(3, &[(set(&[0, 2]), 1)]);
        assert_eq!(one, fitted_overlay(3, &[(set(&[0, 2]), 1), (set(&[9]), 5)]));
        assert_eq!(fitted_overlay(3, &[]).groups(), 3);
    }
}

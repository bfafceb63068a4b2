//! Changes of the tree of the groups, where it may change while messages flow.

use super::{Fault, FaultTime, Strike};
use crate::chooser::{Chooser, Concern};
use alloc::vec::Vec;
use amcast_core::{ClusterShape, Overlay, Time};

/// Draws at most so many changes until `calm`, each to any tree, asked for by any client.
pub(crate) fn draw(
    most: usize,
    cluster: &ClusterShape,
    calm: Time,
    chooser: &mut Chooser,
) -> Vec<Strike> {
    let c = Concern::Overlays;
    let clients = cluster.clients() as u64;
    if most == 0 || clients == 0 {
        return Vec::new();
    }
    let count = chooser.between(c, 0, most as u64);
    (0..count)
        .map(|_| {
            let at = FaultTime::Time(Time(chooser.between(c, 0, calm.0)));
            let p = cluster.client(chooser.pick(c, clients) as usize);
            Strike { at, fault: Fault::Overlay { p, overlay: any_tree(cluster.groups(), chooser) } }
        })
        .collect()
}

/// Any tree: groups join it in any order, each below any that is in it.
fn any_tree(groups: usize, chooser: &mut Chooser) -> Overlay {
    let c = Concern::Overlays;
    let mut outside: Vec<usize> = (0..groups).collect();
    let mut parents = alloc::vec![-1; groups];
    let mut inside: Vec<usize> = Vec::new();
    while !outside.is_empty() {
        let g = outside.swap_remove(chooser.pick(c, outside.len() as u64) as usize);
        if !inside.is_empty() {
            parents[g] = inside[chooser.pick(c, inside.len() as u64) as usize] as i64;
        }
        inside.push(g);
    }
    Overlay::new(&parents, groups).expect("each parent was there before its children")
}

#[cfg(test)]
mod tests {
    use super::*;
    use amcast_core::RawConfig;

    #[test]
    fn trees_of_every_root_are_drawn_and_none_where_none_is_wanted() {
        let raw = RawConfig { groups: 4, ..RawConfig::default() };
        let config = raw.check(&[]).unwrap();
        let mut chooser = Chooser::seeded(1);
        let calm = Time(1000);
        let drawn: Vec<Strike> =
            (0..50).flat_map(|_| draw(5, config.cluster(), calm, &mut chooser)).collect();
        let roots = drawn.iter().map(|strike| match &strike.fault {
            Fault::Overlay { overlay, .. } => overlay.lca(config.cluster().all_groups()),
            other => unreachable!("{other:?}"),
        });
        let roots: alloc::collections::BTreeSet<_> = roots.collect();
        assert_eq!(roots.len(), 4);
        let in_time = |strike: &Strike| matches!(strike.at, FaultTime::Time(at) if at <= calm);
        assert!(drawn.iter().all(in_time));
        assert!(draw(0, config.cluster(), calm, &mut chooser).is_empty());
    }
}

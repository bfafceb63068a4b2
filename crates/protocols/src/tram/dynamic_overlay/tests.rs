//! The records and lines of a change, and the memory of it that a replica keeps.

use super::*;
use alloc::string::ToString;
use amcast_core::RawConfig;
use amcast_core::memory::LineStamp;

fn changes(overlay: &str) -> OverlayChanges {
    let groups = overlay.split(',').count();
    let raw = RawConfig { groups, overlay: overlay.to_string(), ..RawConfig::default() };
    OverlayChanges::new(&raw.check(&[]).unwrap())
}

fn tree(parents: &[i64]) -> Overlay {
    Overlay::new(parents, parents.len()).unwrap()
}

#[test]
fn each_part_of_the_log_goes_by_its_tree() {
    let mut changes = changes("-1,0,1");
    assert!(changes.enter(10, tree(&[1, -1, 1])));
    assert!(!changes.enter(10, tree(&[1, -1, 1])), "known from a state");
    assert!(changes.enter(30, tree(&[-1, 0, 0])));
    let (g0, g1, g2) = (Gid(0), Gid(1), Gid(2));
    let set = |groups: &[Gid]| groups.iter().copied().collect::<GroupSet>();
    assert_eq!(changes.reach_at(0, g0, g1), (set(&[g1, g2]), 10));
    assert_eq!(changes.reach_at(9, g0, g2), (GroupSet::EMPTY, 10));
    assert_eq!(
        changes.reach_at(10, g1, g0),
        (set(&[g0]), 30),
        "the change itself went by the tree before"
    );
    assert_eq!(changes.reach_at(10, g0, g1), (GroupSet::EMPTY, 30));
    assert_eq!(changes.reach_at(30, g0, g2), (set(&[g2]), u64::MAX));
    changes.forget_before(10);
    assert_eq!(changes.reach_at(12, g1, g2), (set(&[g2]), 30));
    assert_eq!((changes.trees.len(), changes.number()), (2, 2));
}

#[test]
fn a_state_of_the_changes_reads_back_and_another_clusters_does_not() {
    let mut given = changes("-1,0,1");
    given.enter(10, tree(&[1, -1, 1]));
    given.cut(&[BufferCursor { lease: 4, next: 77, ..BufferCursor::default() }]);
    given.clients[0].joined = 1;
    let mut taken = changes("-1,0,1");
    assert!(taken.resume(&given.snapshot()));
    assert_eq!(
        (taken.number(), taken.overlay(), &taken.clients),
        (1, given.overlay(), &given.clients)
    );
    assert!(!changes("-1,0").resume(&given.snapshot()));
    assert!(!taken.resume(&[1, 2, 3]));
    let at_end = taken.at_end();
    assert!(at_end.has_joined(0) && !at_end.has_joined(1));
    assert_eq!(at_end.parent_source(Gid(1), 2), usize::MAX, "the root has no parent");
    assert_eq!(at_end.parent_source(Gid(2), 2), 3);
}

#[test]
fn a_told_tree_reads_back_at_every_size_and_never_half_of_it() {
    for groups in [1, 3, 31, 32, 33, 64] {
        let parents = parents_of(&Overlay::base(groups));
        let told = ToldOverlay { number: 7, cut: (9, 1 << 50), parents };
        let region: [CacheLine; 3] = Default::default();
        let put = |told: &ToldOverlay, lines: core::ops::Range<usize>| {
            let of = |i: usize| told.lines()[i];
            lines.for_each(|i| region[1 + i].put(&of(i), LineStamp::new(0, 0)));
        };
        assert_eq!(ToldOverlay::number_in(&region), 0);
        put(&told, 0..2);
        assert_eq!(ToldOverlay::read(&region, groups).as_ref(), Some(&told));
        let later = ToldOverlay { number: 8, parents: parents_of(&Overlay::depth(groups)), ..told };
        // Of the next one the first words are there, under the same stamp.
        let mut mixed = told.lines()[0];
        mixed[0] = later.lines()[0][0];
        region[1].put(&mixed, LineStamp::new(0, 0));
        assert_eq!(ToldOverlay::read(&region, groups), None);
        put(&later, 0..1);
        assert_eq!(ToldOverlay::read(&region, groups).is_some(), groups <= FIRST_PARENTS);
        put(&later, 1..2);
        assert_eq!(ToldOverlay::read(&region, groups), Some(later));
    }
}

#[test]
fn a_fence_reads_back_and_a_holder_line_without_one_is_none() {
    let region: [CacheLine; 1] = Default::default();
    let fence = ClientFence { lease: 3, number: 2, from: 99 };
    region[0].put(&fence.words(), LineStamp::new(3, 0));
    assert_eq!(ClientFence::read(&region), Some(fence));
    assert!(crate::tram::buffer::holds(&region, 3), "it names the holder, too");
    region[0].put(&[3, 0, 0, 0, 0, 0, 0], LineStamp::new(3, 0));
    assert_eq!(ClientFence::read(&region), None);
}

#[test]
fn a_payload_that_is_no_tree_is_none() {
    let base = Overlay::base(5);
    assert_eq!(overlay_of(&parents_of(&base), 5), Some(base));
    for wrong in [&[255, 0][..], &[255, 255, 0], &[1, 0, 255], &[255, 0, 9]] {
        assert_eq!(overlay_of(wrong, 3), None, "{wrong:?}");
    }
}

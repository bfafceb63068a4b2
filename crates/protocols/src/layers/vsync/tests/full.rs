//! A member whose application takes in no more.

use super::*;

/// So long may an application be full.
const MOST_MS: u64 = 50;

impl ThreeMembers {
    fn set_full(&mut self, p: u32, is_full: bool) {
        self.step(p, Input::Full(is_full));
    }

    /// The first two members broadcast so much, in turn.
    fn broadcast(&mut self, each: u64) {
        for seq in 0..each {
            (0..2).for_each(|p| self.submit(p, seq));
            self.run(1);
        }
    }

    fn counts(&self) -> Vec<usize> {
        self.delivered.iter().map(Vec::len).collect()
    }
}

#[test]
fn a_full_member_holds_the_others_back_and_stays_in_its_view() {
    for dissemination in [Dissemination::Unicast, Dissemination::Ring] {
        let mut group = ThreeMembers::with(Grade::Plain, dissemination);
        group.run(1);
        group.set_full(2, true);
        assert_eq!(group.members[2].room(GroupSet::one(Gid(0)), 0), 0);
        // Longer than a member may be silent.
        group.broadcast(MOST_MS - 10);
        let window = group.members[0].group.settings.window;
        assert!(group.delivered[2].is_empty(), "{dissemination:?}");
        let kept = (0..2).map(|p| group.members[2].casts.log.have(Pid(p)) as usize);
        assert!(kept.clone().all(|kept| kept <= 2 * window), "{dissemination:?}: {:?}", kept.max());
        if dissemination != Dissemination::Ring {
            // On a ring it is the protocol above that keeps to the window.
            let sent = (0..2).map(|p| group.members[p].casts.log.have(Pid(p as u32)) as usize);
            assert!(sent.clone().all(|sent| sent <= 3 * window), "{:?}", sent.max());
        }
        assert!(group.excluded.is_empty() && group.views.iter().all(|(_, number, _)| *number == 0));
        group.set_full(2, false);
        group.run(400);
        assert_eq!(group.counts(), [2 * (MOST_MS as usize - 10); 3], "{dissemination:?}");
        assert!(group.excluded.is_empty() && group.too_full.is_empty());
    }
}

#[test]
fn a_change_of_views_does_not_wait_for_a_full_member() {
    for grade in [Grade::Plain, Grade::Uniform, Grade::Stable] {
        let mut group = ThreeMembers::new(grade);
        group.run(1);
        group.set_full(2, true);
        group.broadcast(5);
        assert!(group.delivered[2].is_empty());
        group.apart = alloc::vec![Pid(0)];
        group.run(30);
        assert!(group.views.contains(&(Pid(2), 1, 0b110)), "{grade:?}: {:?}", group.views);
        assert_eq!(group.delivered[2].len(), 10, "the view has ended");
        group.submit(1, 9);
        group.run(5);
        assert_eq!(group.delivered[2].len(), 10, "it is full in the next one, too");
        group.set_full(2, false);
        group.run(5);
        assert_eq!(group.delivered[2].last(), msgs(&[(1, 9)]).first());
        assert_eq!(group.delivered[1].last(), msgs(&[(1, 9)]).first());
    }
}

#[test]
fn the_group_continues_without_a_member_that_stays_full_and_takes_it_in_later() {
    let mut group = ThreeMembers::new(Grade::Stable);
    group.run(1);
    group.set_full(2, true);
    group.broadcast(MOST_MS + 10);
    assert_eq!((&group.excluded[..], &group.too_full[..]), (&[Pid(2)][..], &[Pid(2)][..]));
    assert!(group.left.is_empty(), "it joins again");
    let without = group.views.last().copied();
    assert_eq!(without.map(|(_, _, members)| members), Some(0b011), "{:?}", group.views);
    let before = group.counts()[0];
    group.broadcast(5);
    assert_eq!(group.counts()[..2], [before + 10; 2], "nothing holds back the others");
    // Its driver has forgotten what waited for the application.
    group.set_full(2, false);
    group.run(MOST_MS - 20);
    assert_eq!(group.views.last().copied(), without, "they work in peace for a while");
    group.run(40);
    let last = group.views.last().copied();
    assert_eq!(last.map(|(_, _, members)| members), Some(0b111), "{:?}", group.views);
    group.submit(2, 7);
    group.run(1);
    assert!(group.delivered.iter().all(|d| d.last() == msgs(&[(2, 7)]).first()));
}

#[test]
fn a_full_member_without_which_no_majority_has_the_state_stays() {
    let mut group = ThreeMembers::new(Grade::Plain);
    group.run(1);
    group.apart = alloc::vec![Pid(0)];
    group.run(30);
    group.set_full(2, true);
    group.run(2 * MOST_MS);
    assert!(group.excluded.is_empty() && group.too_full.is_empty());
    group.set_full(2, false);
    group.submit(1, 1);
    group.run(1);
    assert_eq!(group.delivered[2], msgs(&[(1, 1)]));
}

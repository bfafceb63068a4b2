//! Changes of the tree whose nodes and time are scripted: each way in which one is made, lost or late.

use super::super::trees_seen::seen;
use super::*;
use std::cell::{Cell, RefCell};

/// The tree in force at first, the one that is wanted, and that of another operator.
const OLD: (u32, &str) = (4, "-1,0,0");
const NEW: (u32, &str) = (5, "2,2,-1");
const OTHER: (u32, &str) = (5, "1,-1,1");

/// How long each change may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// The tree of the first shard, and the one of both others.
type Look = [(u32, &'static str); 2];

/// Three shards of one replica each, which go by the trees of these looks in turn, and then by those of the last one; and two
/// nodes that answer requests so.
struct ScriptedNodes {
    looks: Vec<Look>,
    answers: [OverlayAnswer; 2],
    looked: Cell<usize>,
    time: Cell<Duration>,
    /// The rank and the number of each request.
    asked: RefCell<Vec<(usize, u32)>>,
}

impl AskedNodes for ScriptedNodes {
    fn count(&self) -> usize {
        self.answers.len()
    }

    fn trees(&self) -> Result<TreesSeen, Failure> {
        let [first, others] = self.looks[self.looked.get().min(self.looks.len() - 1)];
        self.looked.set(self.looked.get() + 1);
        Ok(seen(&[&[first], &[others], &[others]], 1))
    }

    fn request(&self, rank: usize, behind: u32, wanted: &Overlay) -> io::Result<OverlayAnswer> {
        assert_eq!(wanted.to_string(), NEW.1);
        self.asked.borrow_mut().push((rank, behind));
        Ok(self.answers[rank].clone())
    }

    fn elapsed(&self) -> Duration {
        self.time.get()
    }

    fn pause(&self, time: Duration) {
        self.time.set(self.time.get() + time);
    }
}

fn tree((number, parents): (u32, &str)) -> OverlayStatus {
    OverlayStatus { number, parents: parents.to_string() }
}

fn refused(why: &str) -> OverlayAnswer {
    OverlayAnswer::Refused(why.to_string())
}

/// The requests of a change to [`NEW`], and its result or error.
fn change(
    looks: &[Look],
    answers: [OverlayAnswer; 2],
) -> (Vec<(usize, u32)>, Result<WantedTree, String>) {
    let (looked, time, asked) = (Cell::default(), Cell::default(), RefCell::default());
    let nodes = ScriptedNodes { looks: looks.to_vec(), answers, looked, time, asked };
    let wanted = Overlay::new(&[2, 2, -1], 3).expect("it is a tree");
    let change = OverlayChange { nodes: &nodes, wanted: &wanted, patience: PATIENCE };
    let result = change.carry_out().map_err(|failure| match failure {
        Failure::Failed(why) => why,
        other => panic!("{other:?}"),
    });
    (nodes.asked.into_inner(), result)
}

/// The error of a change to [`NEW`] that needs one request.
fn lost(looks: &[Look], first: OverlayAnswer) -> String {
    let (asked, result) = change(looks, [first, refused("it serves no clients")]);
    assert_eq!(asked, [(0, 4)]);
    result.expect_err("the other change came first")
}

const GIVEN_UP: &str = "another change was made: in force is 1,-1,1 (after 5 changes), and 2,2,-1 is not asked for any more";

#[test]
fn a_tree_is_asked_for_once_and_waited_for() {
    let looks = [[OLD; 2], [OLD; 2], [OLD; 2], [NEW, OLD], [NEW; 2]];
    let (asked, result) = change(&looks, [OverlayAnswer::Asked, OverlayAnswer::Asked]);
    // The tree is there at the third look behind the request.
    assert_eq!(result, Ok(WantedTree::After(tree(NEW), LOOK_EVERY * 3)));
    assert_eq!(asked, [(0, 4)]);
    let (asked, result) = change(&[[NEW, OLD], [NEW; 2]], [refused("no"), refused("no")]);
    assert_eq!((asked, result), (Vec::new(), Ok(WantedTree::Already(tree(NEW)))));
}

#[test]
fn who_is_refused_since_another_change_came_first_hears_of_its_tree_once_that_is_in_force() {
    let looks = [[OLD; 2], [OLD; 2], [OLD; 2], [OTHER, OLD], [OTHER; 2]];
    assert_eq!(lost(&looks, OverlayAnswer::Overtaken(tree(OTHER))), GIVEN_UP);
}

#[test]
fn who_is_refused_hears_of_the_other_tree_though_not_all_replicas_go_by_it_in_time() {
    let why = lost(&[[OLD; 2]], OverlayAnswer::Overtaken(tree(OTHER)));
    let behind = ". Not all replicas go by that tree yet: none that answers does";
    assert_eq!(why, format!("{GIVEN_UP}{behind}"));
    let why = lost(&[[OLD; 2], [OLD; 2], [OTHER, OLD]], OverlayAnswer::Overtaken(tree(OTHER)));
    assert!(why.starts_with(GIVEN_UP) && why.contains("g1/r0 still has -1,0,0"), "{why}");
}

#[test]
fn whose_request_is_given_up_without_an_answer_hears_of_the_other_tree() {
    let looks = [[OLD; 2], [OLD; 2], [OTHER, OLD], [OTHER; 2]];
    assert_eq!(lost(&looks, OverlayAnswer::Asked), GIVEN_UP);
    let why = lost(&looks[..3], OverlayAnswer::Asked);
    assert!(why.starts_with(GIVEN_UP) && why.contains("g1/r0 still has -1,0,0"), "{why}");
}

#[test]
fn a_refusal_that_names_no_tree_is_compared_with_what_replicas_say_then() {
    let looks = [[OLD; 2], [OLD; 2], [OTHER, OLD], [OTHER; 2]];
    let (asked, result) = change(&looks, [refused("another came first"), refused("none")]);
    assert_eq!((asked, result), (vec![(0, 4), (1, 4)], Err(GIVEN_UP.to_string())));
    // If they say nothing new no node can ask.
    let (asked, result) = change(&[[OLD; 2]], [refused("it serves no clients"), refused("none")]);
    assert_eq!(asked, [(0, 4), (1, 4)]);
    let why = result.expect_err("no node can");
    let now = "no node can ask for the change (in force is -1,0,0 (after 4 changes));";
    assert!(why.starts_with(now), "{why}");
    assert!(why.ends_with("\nn0: it serves no clients\nn1: none"), "{why}");
}

#[test]
fn who_wants_the_tree_of_the_other_change_has_it() {
    let looks = [[OLD; 2], [OLD; 2], [NEW, OLD], [NEW; 2]];
    let (asked, result) = change(&looks, [OverlayAnswer::Overtaken(tree(NEW)), refused("no")]);
    assert_eq!(result, Ok(WantedTree::After(tree(NEW), LOOK_EVERY * 2)));
    assert_eq!(asked, [(0, 4)]);
}

#[test]
fn while_another_change_is_under_way_none_is_asked_for_and_the_latest_tree_is_named() {
    let (asked, result) = change(&[[OLD, OTHER]], [OverlayAnswer::Asked, OverlayAnswer::Asked]);
    let why = "the tree is not changed: 1,-1,1 (after 5 changes) comes into force, and g0/r0 still has -1,0,0 (after 4 changes)";
    assert_eq!((asked, result), (Vec::new(), Err(why.to_string())));
}

#[test]
fn a_change_that_takes_too_long_says_which_tree_is_in_force_and_that_it_may_still_come() {
    let late = |looks: &[Look]| lost(looks, OverlayAnswer::Asked);
    let (old, half) = (late(&[[OLD; 2]]), late(&[[OLD; 2], [OLD; 2], [NEW, OLD]]));
    let half_way =
        "2,2,-1 (after 5 changes) comes into force, and g1/r0 still has -1,0,0 (after 4 changes)";
    for (why, now) in [(old, "in force is -1,0,0 (after 4 changes)"), (half, half_way)] {
        let says = format!("the tree 2,2,-1 is not in force after 2 s: {now}. It may still come");
        assert!(why.starts_with(&says), "{why}");
    }
}

#[test]
fn nodes_that_may_ask_soon_are_asked_again() {
    let later = OverlayAnswer::Later("it is busy".to_string());
    let (asked, result) = change(&[[OLD; 2]], [later, refused("none")]);
    assert!(result.is_err());
    let rounds = (PATIENCE.as_millis() / LOOK_SELDOM.as_millis()) as usize;
    assert_eq!(asked, [(0, 4), (1, 4)].repeat(rounds));
}

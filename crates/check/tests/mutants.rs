//! For every property a good history, and bad ones that differ from it in a line or two: the
//! checker passes the one and kills the others, saying why.

mod script;

use amcast_check::{Property, PropertyVerdict, check};
use script::history;

/// Two groups of two replicas, two clients; c0:1 and c1:1 go to both groups.
const MULTICAST: &str = "
    process g0/r0 g0
    process g0/r1 g0
    process g1/r0 g1
    process g1/r1 g1
    process c0
    process c1
    cast c0 c0:1 g0,g1
    part g0/r0 c0:1
    cast c1 c1:1 g0,g1
    part g1/r0 c1:1
    deliver g0/r0 c0:1
    deliver g0/r0 c1:1
    deliver g0/r1 c0:1
    deliver g0/r1 c1:1
    deliver g1/r0 c0:1
    deliver g1/r0 c1:1
    cast c0 c0:2 g0
    part g0/r1 c0:2
    deliver g0/r0 c0:2
    deliver g0/r1 c0:2
    cast c1 c1:2 g1
    deliver g1/r0 c1:2
    crash g1/r1
    end";

/// Five groups of a replica in a tree: g0 has the children g1 and g2, g1 has g3 and g4. A message to g3 and g4
/// goes through g1, one to g1 and g2 through g0.
const TREE: &str = "
    process g0/r0 g0 -
    process g1/r0 g1 g0
    process g2/r0 g2 g0
    process g3/r0 g3 g1
    process g4/r0 g4 g1
    process c0
    cast c0 c0:1 g3,g4
    part g1/r0 c0:1
    part g3/r0 c0:1
    deliver g3/r0 c0:1
    part g4/r0 c0:1
    deliver g4/r0 c0:1
    cast c0 c0:2 g1,g2
    part g0/r0 c0:2
    part g1/r0 c0:2
    deliver g1/r0 c0:2
    part g2/r0 c0:2
    deliver g2/r0 c0:2
    end";

/// Three processes that broadcast to each other; the third crashes.
const BROADCAST: &str = "
    process a all
    process b all
    process c all
    cast a a:1 all
    deliver a a:1
    deliver b a:1
    cast b b:1 all
    deliver a b:1
    deliver b b:1
    deliver c a:1
    cast a a:2 all
    deliver a a:2
    deliver b a:2
    deliver c b:1
    crash c
    end";

/// Three members in views: one fails, and comes back with the state of the others.
const VIEWS: &str = "
    process a all
    process b all
    process c all
    view a 0
    view b 0
    view c 0
    cast a a:1 all
    deliver a a:1
    deliver b a:1
    deliver c a:1
    crash c
    view a 1
    view b 1
    recover c
    view a 2
    view b 2
    view c 2
    cast b b:1 all
    cast b b:2 all
    deliver a b:1
    deliver b b:1
    deliver a b:2
    deliver b b:2
    deliver c b:2
    view a 3
    view b 3
    view c 3
    end";

/// Four members in two components, which merge: each component has an order of its own, and one starts again.
const COMPONENTS: &str = "
    process a all
    process b all
    process c all
    process d all
    view a 0
    view b 0
    view c 0
    view d 0
    cast a a:1 all
    cast c c:1 all
    deliver a a:1
    deliver b a:1
    deliver a c:1
    deliver b c:1
    deliver c c:1
    deliver c a:1
    view a 1.a
    view b 1.a
    view c 1.c
    crash d
    recover d
    view d 0.d
    cast d d:1 all
    deliver d d:1
    cast a a:2 all
    deliver a a:2
    deliver b a:2
    cast c c:2 all
    deliver c c:2
    view a 2.a
    view b 2.a
    view c 2.a
    view d 2.a
    cast b b:1 all
    cast d d:2 all
    deliver b b:1
    deliver a b:1
    deliver c b:1
    deliver d b:1
    deliver a d:2
    deliver b d:2
    deliver c d:2
    deliver d d:2
    end";

/// Two clients of a store.
const CALLS: &str = "
    process c0
    process c1
    call c0 c0:1 SET x 1
    return c0 c0:1 OK
    call c1 c1:1 SET x 2
    call c0 c0:2 GET x
    return c1 c1:1 OK
    return c0 c0:2 1
    call c0 c0:3 SET x 3
    return c0 c0:3 OK
    call c0 c0:4 GET x
    return c0 c0:4 3
    call c0 c0:5 INCR n
    call c1 c1:2 INCR n
    return c0 c0:5 2
    return c1 c1:2 1
    call c1 c1:3 APPEND s <c1:3>
    return c1 c1:3 6
    call c1 c1:4 GET s
    return c1 c1:4 <c1:3>
    call c0 c0:6 MGET x n
    return c0 c0:6 3 2
    end";

/// A property, a good history, what is replaced in it (once each), and why it is bad then.
type HistoryMutant =
    (Property, &'static str, &'static [(&'static str, &'static str)], &'static str);

const MUTANTS: &[HistoryMutant] = &[
    (
        Property::Validity,
        MULTICAST,
        &[("deliver g1/r0 c1:2", "")],
        "g1/r0, which is correct and was meant to, never delivers c1:2",
    ),
    (
        Property::Validity,
        MULTICAST,
        &[("crash g1/r1", "crash g1/r1\nrecover g1/r1")],
        "g1/r1, which is correct and was meant to, never delivers c0:1",
    ),
    (
        Property::UniformAgreement,
        MULTICAST,
        &[("deliver g0/r1 c0:2", ""), ("deliver g0/r0 c0:2", "deliver g0/r0 c0:2\ncrash g0/r0")],
        "g0/r0 delivers c0:2, g0/r1, which is correct and was meant to, never does",
    ),
    (
        Property::UniformIntegrity,
        MULTICAST,
        &[("deliver g1/r0 c1:2", "deliver g1/r0 c1:2\ndeliver g1/r0 c0:1")],
        "g1/r0 delivers c0:1 twice",
    ),
    (
        Property::UniformIntegrity,
        MULTICAST,
        &[("cast c1 c1:2 g1", "")],
        "g1/r0 delivers c1:2, which nobody cast",
    ),
    (
        Property::UniformIntegrity,
        MULTICAST,
        &[("cast c0 c0:2 g0", "cast c0 c0:2 g1")],
        "g0/r0 delivers c0:2, which was not cast to a group of it",
    ),
    (
        Property::UniformIntegrity,
        MULTICAST,
        &[("cast c0 c0:1 g0,g1", ""), ("crash g1/r1", "cast c0 c0:1 g0,g1")],
        "g0/r0 delivers c0:1, before it was cast",
    ),
    (
        Property::UniformPrefixOrder,
        MULTICAST,
        &[("deliver g0/r0 c0:1", "deliver g0/r0 c1:1"), ("deliver g0/r0 c1:1\n", "")],
        "g0/r1 delivers c0:1 without c1:1 before it, g0/r0 delivers c1:1 without c0:1 before it; \
         both were cast to g0",
    ),
    (
        Property::UniformPrefixOrder,
        MULTICAST,
        &[("deliver g1/r0 c0:1", "")],
        "g0/r1 delivers c0:1 without c1:1 before it, g1/r0 delivers c1:1 without c0:1 before it; \
         both were cast to g0 and g1",
    ),
    (
        Property::UniformAcyclicOrder,
        MULTICAST,
        &[
            ("deliver g1/r0 c0:1", ""),
            ("deliver g1/r0 c1:1", "deliver g1/r0 c1:1\ndeliver g1/r0 c0:1"),
        ],
        "the order of deliveries has a cycle: c0:1 <(g0/r0) c1:1 <(g1/r0) c0:1",
    ),
    (
        Property::Genuine,
        MULTICAST,
        &[("part g0/r1 c0:2", "part g1/r1 c0:2")],
        "g1/r1 takes part in ordering c0:2, which was cast to g0 only, by another",
    ),
    (
        Property::Genuine,
        MULTICAST,
        &[("part g0/r1 c0:2", "part g1/r1 c9:9")],
        "g1/r1 takes part in ordering c9:9, which nobody cast",
    ),
    (
        Property::PartiallyGenuine,
        MULTICAST,
        &[("part g0/r1 c0:2", "part c1 c0:2")],
        "c1 takes part in ordering c0:2, which was cast to g0 only, by another",
    ),
    (
        Property::PartiallyGenuine,
        TREE,
        &[("part g1/r0 c0:1", "part g0/r0 c0:1\npart g1/r0 c0:1")],
        "g0/r0 takes part in ordering c0:1, with tree paths to g3, g4 that contain no group of it",
    ),
    (
        Property::PartiallyGenuine,
        TREE,
        &[("part g2/r0 c0:2", "part g2/r0 c0:2\npart g3/r0 c0:2")],
        "g3/r0 takes part in ordering c0:2, with tree paths to g1, g2 that contain no group of it",
    ),
    (
        Property::PartiallyGenuine,
        TREE,
        &[("cast c0 c0:1 g3,g4", "cast c0 c0:1 g3")],
        "g1/r0 takes part in ordering c0:1, which was cast to g3 only, by another",
    ),
    (
        Property::FifoOrder,
        MULTICAST,
        &[
            ("deliver g0/r1 c0:1", "deliver g0/r1 c0:2"),
            ("deliver g0/r1 c0:2\n", "deliver g0/r1 c0:1\n"),
        ],
        "c0 casts c0:1 before c0:2, g0/r1 delivers c0:2 before c0:1",
    ),
    (
        Property::CausalOrder,
        BROADCAST,
        &[
            ("deliver c a:1", "deliver c b:1"),
            ("deliver c b:1\n    crash", "deliver c a:1\n    crash"),
        ],
        "c delivers b:1 before a:1, which precedes it: a:1 -> b:1",
    ),
    (
        Property::CausalOrder,
        BROADCAST,
        &[("deliver c a:1", ""), ("deliver c b:1", "deliver c a:2")],
        "c delivers a:2 without ever delivering a:1, which precedes it: a:1 -> a:2",
    ),
    (
        Property::ViewSynchrony,
        VIEWS,
        &[("deliver b a:1", "")],
        "b and a go from view to view together, and where b delivers nothing more, a delivers a:1",
    ),
    (
        Property::ViewSynchrony,
        VIEWS,
        &[
            ("deliver b b:1", "deliver b b:2"),
            ("deliver b b:2\n    deliver c", "deliver b b:1\n    deliver c"),
        ],
        "b and a go from view to view together, and where b delivers b:2, a delivers b:1",
    ),
    (
        Property::ViewSynchrony,
        VIEWS,
        &[("deliver c b:2", "deliver c b:1")],
        "c and a go from view to view together, and where c delivers b:1, a delivers b:2",
    ),
    (
        Property::AgreedMulticast,
        COMPONENTS,
        &[("deliver b a:2", "")],
        "b and a stay together behind view 1.a, in which b delivers nothing more where a delivers a:2",
    ),
    (
        Property::AgreedMulticast,
        COMPONENTS,
        &[
            ("deliver b a:1", "deliver b c:1"),
            ("deliver a c:1\n    deliver b c:1", "deliver a c:1\n    deliver b a:1"),
        ],
        "b and a stay together behind view 0, in which b delivers c:1 where a delivers a:1",
    ),
    (
        Property::AgreedMulticast,
        COMPONENTS,
        &[("deliver d d:2\n    end", "end")],
        "d and a stay together behind view 2.a, in which d delivers nothing more where a delivers d:2",
    ),
    (
        Property::AgreedMulticast,
        COMPONENTS,
        &[("deliver d b:1", "deliver d d:1")],
        "d delivers d:1 in view 0.d, d in view 2.a",
    ),
    (
        Property::AgreedMulticast,
        COMPONENTS,
        &[("view c 2.a", "deliver c a:2\n    view c 2.a")],
        "a delivers a:2 in view 1.a, c in view 1.c",
    ),
    (
        Property::AgreedMulticast,
        COMPONENTS,
        &[
            ("deliver a a:1", "cast a a:9 all\n    deliver a a:9\n    deliver a a:1"),
            ("deliver b a:1", "deliver b a:9\n    deliver b a:1"),
        ],
        "a delivers a:9 before a:1, which precedes it: a:1 -> a:9",
    ),
    (
        Property::Nuv,
        BROADCAST,
        &[("deliver a a:2", "")],
        "a casts a:2, is correct, and never delivers it",
    ),
    (Property::Ui, BROADCAST, &[("deliver c b:1", "deliver c a:1")], "c delivers a:1 twice"),
    (Property::Ui, BROADCAST, &[("cast b b:1 all", "")], "a delivers b:1, which nobody cast"),
    (
        Property::Ua,
        BROADCAST,
        &[("cast a a:2 all", "cast a a:2 all\ncast c c:1 all\ndeliver c c:1")],
        "c delivers c:1, a, which is correct and was meant to, never does",
    ),
    (
        Property::Nua,
        BROADCAST,
        &[("deliver b a:2", "")],
        "a delivers a:2, b, which is correct and was meant to, never does",
    ),
    (
        Property::Suto,
        BROADCAST,
        &[("deliver c a:1", "")],
        "a delivers a:1 before b:1, c delivers b:1 without a:1 before it",
    ),
    (
        Property::Snuto,
        BROADCAST,
        &[("deliver b a:1", "")],
        "a delivers a:1 before b:1, b delivers b:1 without a:1 before it",
    ),
    (
        Property::Wuto,
        BROADCAST,
        &[
            ("deliver c a:1", "deliver c b:1"),
            ("deliver c b:1\n    crash", "deliver c a:1\n    crash"),
        ],
        "a delivers a:1 before b:1, c delivers b:1 before a:1",
    ),
    (
        Property::Wnuto,
        BROADCAST,
        &[("deliver b a:1", ""), ("deliver b b:1", "deliver b b:1\ndeliver b a:1")],
        "a delivers a:1 before b:1, b delivers b:1 before a:1",
    ),
    (
        Property::Linearizable,
        CALLS,
        &[("return c0 c0:4 3", "return c0 c0:4 2")],
        "no order explains the answers of [c0: GET x -> 2], with before them: x = \"3\"",
    ),
    (
        Property::Linearizable,
        CALLS,
        &[("return c0 c0:5 2", "return c0 c0:5 1")],
        "no order explains the answers of [c0: INCR n -> 1; c1: INCR n -> 1], with before them: n \
         is absent",
    ),
    (
        Property::Sequential,
        CALLS,
        &[("return c0 c0:4 3", "return c0 c0:4 1")],
        "no order that keeps each client's own explains the answers of [c0: SET x 1 -> OK; c1: SET \
         x 2 -> OK; c0: SET x 3 -> OK; c0: GET x -> 1], with before them: x is absent",
    ),
    (
        Property::ReadYourWrites,
        CALLS,
        &[("return c0 c0:4 3", "return c0 c0:4 1")],
        "c0: GET x -> 1 does not see in x its own write before it: c0: SET x 3 -> OK",
    ),
    (
        Property::ExactlyOnce,
        CALLS,
        &[("return c0 c0:5 2", "return c0 c0:5 3")],
        "n is at 3 when the calls made by then bring it to 2 at most: one took effect more than \
         once [c0: INCR n -> 3]",
    ),
    (
        Property::ExactlyOnce,
        CALLS,
        &[("return c0 c0:5 2", "return c0 c0:5 1")],
        "two calls brought n to 1: one had no effect of its own [c0: INCR n -> 1; c1: INCR n -> 1]",
    ),
    (
        Property::ExactlyOnce,
        CALLS,
        &[("return c1 c1:4 <c1:3>", "return c1 c1:4 <c1:3><c1:3>")],
        "s has 12 bytes when the calls made by then append 6: one took effect more than once [c1: \
         GET s -> <c1:3><c1:3>]",
    ),
    (
        Property::ExactlyOnce,
        CALLS,
        &[(
            "return c0 c0:1 OK",
            "return c0 c0:1 OK\ncall c0 c0:1 SET x 1\nreturn c0 c0:1 ERR busy",
        )],
        "c0:1 was answered twice and differently: OK, ERR busy",
    ),
];

fn mutate(script: &str, changes: &[(&str, &str)]) -> String {
    // Each change is looked for in the good script, so that one does not meet another's work.
    let mut spans: Vec<(usize, &str, &str)> = Vec::new();
    for (from, to) in changes {
        let at = script.find(from).unwrap_or_else(|| panic!("{from} is not in the script"));
        spans.push((at, from, to));
    }
    spans.sort_unstable();
    let mut out = script.to_string();
    for (at, from, to) in spans.into_iter().rev() {
        out.replace_range(at..at + from.len(), to);
    }
    out
}

#[test]
fn every_mutant_is_killed_for_the_right_reason() {
    for &(property, good, changes, why) in MUTANTS {
        let verdict = |script: &str| check(&history(script), &[property]).findings.remove(0).1;
        assert_eq!(verdict(good), PropertyVerdict::Holds, "{property} on the good history");
        match verdict(&mutate(good, changes)) {
            PropertyVerdict::Violated(found) => {
                assert_eq!(found.sentence, why, "{property}");
                assert!(!found.events.is_empty(), "{property} shows no event");
            }
            other => panic!("{property} lets a mutant live: {changes:?}: {other:?}"),
        }
    }
}

#[test]
fn every_property_has_a_mutant() {
    for property in Property::ALL {
        let has = MUTANTS.iter().any(|(p, ..)| p == property);
        assert!(has, "no mutant shows that {property} can be found violated");
    }
}

#[test]
fn liveness_is_not_judged_on_a_run_that_did_not_settle() {
    let open = MULTICAST.replace("end", "").replace("deliver g1/r0 c1:2", "");
    let liveness = [
        Property::Validity,
        Property::UniformAgreement,
        Property::Ua,
        Property::Nua,
        Property::Nuv,
    ];
    let report = check(&history(&open), &liveness);
    for (property, verdict) in &report.findings {
        let unsettled = PropertyVerdict::NotJudged("the run did not settle".into());
        assert_eq!(*verdict, unsettled, "{property}");
    }
    assert!(report.no_violation() && !report.all_hold());
}

#[test]
fn a_report_names_lines_for_people_and_programs() {
    let bad = MULTICAST.replace("deliver g1/r0 c0:1", "");
    let report = check(&history(&bad), &[Property::UniformPrefixOrder, Property::FifoOrder]);
    let text = report.to_string();
    assert!(
        text.contains("VIOLATED    uniform-prefix-order: g0/r1 delivers c0:1 without"),
        "{text}"
    );
    assert!(text.contains("line 15: g1/r0 delivers c1:1 as its no. 1 at 15 ns"), "{text}");
    assert!(text.contains("holds       fifo-order"), "{text}");
    let json: String = report.json();
    assert!(json.starts_with(r#"{"ok":false,"findings":[{"property":"uniform-prefix-order","verdict":"violated","sentence":"g0/r1 "#), "{json}");
    assert!(
        json.contains(
            r#"{"p":"g1/r0","does":"delivers","m":"c1:1","position":1,"line":15,"t":15}"#
        ),
        "{json}"
    );
}

/// A dynamic group of three, of which the third leaves by choice.
const LEAVES: &str = "
    process a all
    process b all
    process c all
    view c
    cast c c:1 all
    cast a a:1 all
    deliver c c:1
    deliver c a:1
    leave c
    deliver a c:1
    deliver a a:1
    deliver b c:1
    deliver b a:1
    cast b b:1 all
    deliver a b:1
    deliver b b:1
    end";

#[test]
fn one_that_left_by_choice_counts_as_correct_until_then_and_owes_nothing_more() {
    let all = [Property::Nuv, Property::Nua, Property::Wnuto, Property::Snuto];
    let report = check(&history(LEAVES), &all);
    assert!(
        report.findings.iter().all(|(_, verdict)| *verdict == PropertyVerdict::Holds),
        "{report:?}"
    );
    let broken = |property, script: &str| {
        let left = matches!(
            check(&history(script), &[property]).findings[0].1,
            PropertyVerdict::Violated(_)
        );
        let crashed = script.replace("leave c", "crash c");
        let crashed = check(&history(&crashed), &[property]);
        assert_eq!(crashed.findings[0].1, PropertyVerdict::Holds, "{property}: after a crash");
        left
    };
    let loses_its_own = LEAVES.replace("    deliver c c:1\n", "");
    assert!(broken(Property::Nuv, &loses_its_own));
    let only_it_has = LEAVES.replace("    deliver a c:1\n", "").replace("    deliver b c:1\n", "");
    assert!(broken(Property::Nua, &only_it_has));
    let in_another_order = LEAVES
        .replace("    deliver c c:1\n", "")
        .replace("    deliver c a:1\n", "    deliver c a:1\n    deliver c c:1\n");
    assert!(broken(Property::Wnuto, &in_another_order));
}

/// The same tree, where the lines of some processes do not name the parents of their groups.
fn tree_told_by(told: impl Fn(&str) -> bool) -> String {
    let plain = |line: &str| match line.trim().strip_prefix("process ") {
        Some(rest) if !told(rest) => {
            let words: Vec<_> = rest.split(' ').take(2).collect();
            format!("process {}", words.join(" "))
        }
        _ => line.to_string(),
    };
    TREE.lines().map(plain).collect::<Vec<_>>().join("\n")
}

#[test]
fn without_the_tree_a_message_to_several_groups_may_involve_any_and_one_to_a_group_no_other() {
    let judged =
        |script: &str| check(&history(script), &[Property::PartiallyGenuine]).findings[0].1.clone();
    let off = |script: &str| script.replace("part g3/r0 c0:1", "part g3/r0 c0:1\npart g2/r0 c0:1");
    assert!(matches!(judged(&off(TREE)), PropertyVerdict::Violated(_)));
    let untold = tree_told_by(|_| false);
    assert_eq!(judged(&off(&untold)), PropertyVerdict::Holds);
    let single = off(&untold).replace("cast c0 c0:1 g3,g4", "cast c0 c0:1 g3");
    assert!(matches!(judged(&single), PropertyVerdict::Violated(_)));
    // Of the destinations' common ancestor nothing more need be known.
    let below = tree_told_by(|line| line.starts_with("g3") || line.starts_with("g4"));
    assert!(matches!(judged(&off(&below)), PropertyVerdict::Violated(_)));
    let half = tree_told_by(|line| line.starts_with("g3"));
    assert_eq!(judged(&off(&half)), PropertyVerdict::Holds);
}

/// Three groups; each replica takes part along the chain g0, g1, g2 first and along g1, g0, g2 later.
const CHANGING: &str = "
    process g0/r0 g0
    process g1/r0 g1
    process g2/r0 g2
    process c0
    cast c0 c0:1 g0,g2
    overlay g0/r0 g0,g1,g2 -,g0,g1
    part g0/r0 c0:1
    overlay g1/r0 g0,g1,g2 -,g0,g1
    part g1/r0 c0:1
    overlay g2/r0 g0,g1,g2 -,g0,g1
    part g2/r0 c0:1
    cast c0 c0:2 g0,g2
    overlay g0/r0 g0,g1,g2 g1,-,g0
    part g0/r0 c0:2
    part g2/r0 c0:2
";

#[test]
fn each_participation_is_judged_by_the_tree_that_its_process_named_last() {
    let judged =
        |script: &str| check(&history(script), &[Property::PartiallyGenuine]).findings[0].1.clone();
    assert_eq!(judged(CHANGING), PropertyVerdict::Holds);
    let says = |script: &str| match judged(script) {
        PropertyVerdict::Violated(why) => why.sentence,
        other => panic!("{other:?}"),
    };
    // In the second tree g1 is above the destinations' ancestor.
    let late = format!("{CHANGING}    overlay g1/r0 g0,g1,g2 g1,-,g0\n    part g1/r0 c0:2\n");
    let why = says(&late);
    assert!(why.starts_with("g1/r0 takes part in ordering c0:2, with tree paths"), "{why}");
    // Along the first tree it may.
    let early = format!("{CHANGING}    part g1/r0 c0:2\n");
    assert_eq!(judged(&early), PropertyVerdict::Holds);
    // A process that has named none goes by what the lines of processes say: here nothing.
    let untold = late.replace("    overlay g1/r0 g0,g1,g2 g1,-,g0\n", "");
    let untold = untold.replace("    overlay g1/r0 g0,g1,g2 -,g0,g1\n", "");
    assert_eq!(judged(&untold), PropertyVerdict::Holds);
}

#[test]
fn an_overlay_that_is_no_tree_is_refused_and_one_without_parents() {
    let mut taken = amcast_check::History::new();
    taken.push_line(r#"{"ev":"process","p":"a","groups":["g"]}"#).expect("a process");
    for (rest, says) in [
        (r#""groups":["g","h"],"parents":["h","g"]"#, "g"),
        (r#""groups":["g","h"],"parents":["h"]"#, "for each of"),
        (r#""groups":["g","h"]"#, "parents"),
    ] {
        let line = format!(r#"{{"ev":"overlay","t":1,"p":"a",{rest}}}"#);
        let why = taken.push_line(&line).expect_err("it is no tree").to_string();
        assert!(why.contains(says), "{line}: {why}");
    }
}

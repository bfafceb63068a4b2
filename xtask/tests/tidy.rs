//! The rules hold, and each of them can fail.

use xtask::source::SourceTree;
use xtask::tidy;

#[test]
fn the_tree_keeps_every_rule() {
    let _limit = amcast_test_policy::time_limit();
    let tree = SourceTree::read().expect("the tree is there to be read");
    assert!(tree.files.len() > 50, "looked at {} files only", tree.files.len());
    let found = tidy::check(&tree);
    assert!(found.is_empty(), "not tidy\n{}", tidy::report(&found));
}

#[test]
fn each_rule_fails_on_its_bad_sample_and_passes_its_good_one() {
    let _limit = amcast_test_policy::time_limit();
    for rule in tidy::RULES {
        let bad = rule.of(&SourceTree::of(rule.bad));
        assert!(!bad.is_empty(), "{} cannot fail", rule.name);
        // The catalog itself needs no line in it.
        for (path, _) in rule.bad.iter().filter(|(path, _)| !path.ends_with("catalog.rs")) {
            let seen = bad.iter().any(|finding| finding.place.path == *path);
            assert!(seen, "{} does not see {path}", rule.name);
        }
        let good = rule.of(&SourceTree::of(rule.good));
        assert!(good.is_empty(), "{} fails where all is well: {good:?}", rule.name);
    }
}

#[test]
fn each_rule_has_a_name_of_its_own_and_a_reason() {
    let _limit = amcast_test_policy::time_limit();
    for (i, rule) in tidy::RULES.iter().enumerate() {
        assert!(tidy::RULES[..i].iter().all(|other| other.name != rule.name), "{}", rule.name);
        assert!(rule.why.split(' ').count() > 5, "{} has no reason", rule.name);
    }
}

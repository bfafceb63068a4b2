//! Every step of every algorithm is coded and tested, or is a deviation with its reason.

use xtask::papers;
use xtask::source::SourceTree;

#[test]
fn every_step_of_every_paper_is_tied_to_code_and_tests() {
    let _limit = amcast_test_policy::time_limit();
    let tree = SourceTree::read().expect("the tree is there to be read");
    let reports = papers::check(&tree).expect("the steps are written in the agreed form");
    assert!(!reports.is_empty(), "no paper is tied to anything");
    for report in reports {
        assert!(report.faults.is_empty(), "{report}");
    }
}

//! The last commits have subjects of one shape.

use amcast_test_policy::skip;
use xtask::commits;

#[test]
fn the_last_commits_have_imperative_subjects_of_at_most_72_characters() {
    let _limit = amcast_test_policy::time_limit();
    let Some(wrong) = commits::check().expect("git tells the last commits") else {
        let test = "the_last_commits_have_imperative_subjects_of_at_most_72_characters";
        return skip(test, "the source has no history: it is not a git repository");
    };
    assert!(wrong.is_empty(), "reword these commits\n{}", wrong.join("\n"));
}

//! Rules on words: what says that something is not done, and what only insiders can follow.

use super::{TidyFinding, TidyRule};
use crate::scan;

/// Macros and attributes that stand for work that was not done.
const UNFINISHED_CODE: &[&str] = &["todo!", "dbg!", "unimplemented!", "#[ignore"];
/// The same in comments.
const UNFINISHED_WORDS: &[&str] = &[concat!("FIX", "ME"), concat!("XX", "X:"), concat!("TO", "DO")];

/// Files and folders that a reader of this repository does not have.
const ELSEWHERE: &[&str] = &[
    concat!("/wo", "rk/"),
    concat!("SP", "EC.md"),
    concat!("DE", "SIGN.md"),
    concat!("EXAM", "PLES.md"),
    concat!("TAR", "GETS.md"),
    concat!("ECO", "SYSTEM.md"),
];

pub(super) const UNFINISHED: TidyRule = TidyRule {
    name: "unfinished",
    why: "unfinished code is not there: a stub that compiles is taken for the thing",
    find: |tree, found| {
        for file in tree.rust() {
            for &what in UNFINISHED_CODE {
                for at in scan::words(&file.masked, what) {
                    let says = format!("`{what}`: finish it, or take it out");
                    found.push(TidyFinding { place: file.at(at), says });
                }
            }
            for &what in UNFINISHED_WORDS {
                for at in scan::words(&file.text, what) {
                    let says = format!("`{what}`: do it, or say plainly what is missing and why");
                    found.push(TidyFinding { place: file.at(at), says });
                }
            }
        }
    },
    bad: &[
        ("a.rs", "fn a() { todo!() }\n"),
        ("b.rs", "#[test]\n#[ignore = \"slow\"]\nfn b() {}\n"),
        ("c.rs", concat!("// FIX", "ME: later\n")),
    ],
    good: &[("a.rs", "// No `todo!` here.\nconst A: &str = \"dbg!(1)\";\n")],
};

pub(super) const OUTSIDE: TidyRule = TidyRule {
    name: "outside",
    why: "a reader has this repository and the papers, and nothing else to follow a pointer into",
    find: |tree, found| {
        for file in &tree.files {
            for &what in ELSEWHERE {
                for (at, _) in file.text.match_indices(what) {
                    let says = format!("`{what}` is not part of the project: say it here instead");
                    found.push(TidyFinding { place: file.at(at), says });
                }
            }
        }
    },
    bad: &[("docs/a.md", concat!("as ", "SP", "EC.md says\n"))],
    good: &[("docs/a.md", "as the specification says\n")],
};

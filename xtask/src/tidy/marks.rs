//! Marks: a name in a rare branch, and the one test that expects it.

use super::{TidyFinding, TidyRule};
use crate::scan;
use crate::source::{SourceFile, SourceLine};
use std::collections::BTreeMap;

/// Where lists of marks that runs reach may lie, besides tests.
const LISTS: &[&str] = &["regressions/", "scenarios/"];

pub(super) const MARKS: TidyRule = TidyRule {
    name: "marks",
    why: "a rare branch that no test is known to reach is a branch that was never run",
    find: |tree, found| {
        let mut places: BTreeMap<&str, Vec<SourceLine>> = BTreeMap::new();
        for file in tree.rust() {
            for (at, name) in marks(file) {
                places.entry(name).or_default().push(file.at(at));
            }
        }
        for (name, places) in places {
            if let [first, others @ ..] = &places[..]
                && !others.is_empty()
            {
                let says = format!("mark `{name}` is at {first} too: one name, one branch");
                found.extend(
                    others.iter().cloned().map(|place| TidyFinding { place, says: says.clone() }),
                );
            }
            if !tree.files.iter().any(|file| expects(file, name)) {
                let says = format!("no test expects mark `{name}`: write one that gets there");
                found.push(TidyFinding { place: places[0].clone(), says });
            }
        }
    },
    bad: &[(
        "src/a.rs",
        "fn a(out: &mut Out) {\n out.mark(\"full\");\n}\nfn b() {\n mark!(\"full\");\n}\n",
    )],
    good: &[
        ("src/a.rs", "fn a(out: &mut Out) {\n out.mark(\"full\");\n}\n"),
        ("tests/a.rs", "fn b() {\n assert!(marks.contains(\"full\"));\n}\n"),
    ],
};

/// The marks that a file sets outside its tests, and where.
fn marks(file: &SourceFile) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for call in ["mark(", "mark!("] {
        for at in scan::words(&file.masked, call) {
            let inside = at + call.len();
            // In the masked text only the quotes of the name are left.
            let Some(rest) = file.masked[inside..].strip_prefix('"') else { continue };
            let Some(length) = rest.find('"') else { continue };
            if !file.in_test(at) {
                found.push((at, &file.text[inside + 1..inside + 1 + length]));
            }
        }
    }
    found
}

/// Whether a test, or a list of what runs reach, names the mark.
fn expects(file: &SourceFile, name: &str) -> bool {
    let quoted = format!("\"{name}\"");
    if LISTS.iter().any(|dir| file.path.starts_with(dir)) {
        return scan::words(&file.text, name).next().is_some();
    }
    file.is_rust() && file.text.match_indices(&quoted).any(|(at, _)| file.in_test(at))
}

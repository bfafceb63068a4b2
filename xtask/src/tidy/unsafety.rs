//! Rules on `unsafe`: two crates have it, and each use has its argument beside it.

use super::{TidyFinding, TidyRule};
use crate::scan;

/// The crates that may: shared memory, and the bindings to libfabric.
const PLACES: [&str; 2] = ["crates/memory/", "crates/fabric/"];
/// How many lines of code may lie between the argument and the word.
const LINES_BETWEEN: usize = 2;

pub(super) const UNSAFE_PLACE: TidyRule = TidyRule {
    name: "unsafe-place",
    why: "a search for undefined behaviour is a search in two crates",
    find: |tree, found| {
        for file in tree.rust().filter(|f| !may(&f.path)) {
            for at in scan::words(&file.masked, "unsafe") {
                let says = format!("`unsafe` outside {}", PLACES.join(" and "));
                found.push(TidyFinding { place: file.at(at), says });
            }
        }
    },
    bad: &[("crates/core/src/a.rs", "fn a() {\n unsafe { b() }\n}\n")],
    good: &[("crates/core/src/a.rs", "#![forbid(unsafe_code)]\n// unsafe\n")],
};

pub(super) const UNSAFE_ARGUED: TidyRule = TidyRule {
    name: "unsafe-argued",
    why: "an argument beside the code is reread when the code changes",
    find: |tree, found| {
        for file in tree.rust().filter(|f| may(&f.path)) {
            let lines: Vec<&str> = file.text.lines().collect();
            for at in scan::words(&file.masked, "unsafe") {
                let place = file.at(at);
                if !argued(&lines, place.line - 1) {
                    let says = "`unsafe` without `// SAFETY:` above it (what must hold, and who \
                                makes it so)"
                        .to_string();
                    found.push(TidyFinding { place, says });
                }
            }
        }
    },
    bad: &[("crates/memory/src/a.rs", "// A comment.\nfn a() {\n    unsafe { b() }\n}\n")],
    good: &[(
        "crates/memory/src/a.rs",
        "fn a() {\n // SAFETY: b asks nothing.\n // And more of the argument.\n let c = f(\n  unsafe { \
         b() },\n );\n}\n/// # Safety\n/// As for b.\npub unsafe fn c() {}\n",
    )],
};

fn may(path: &str) -> bool {
    PLACES.iter().any(|place| path.starts_with(place))
}

/// Whether a comment with the argument is above the line, or on it.
fn argued(lines: &[&str], line: usize) -> bool {
    let says = |text: &str| text.contains("SAFETY:") || text.contains("# Safety");
    if says(lines[line]) {
        return true;
    }
    let mut code = 0;
    for text in lines[..line].iter().rev().map(|text| text.trim()) {
        if text.starts_with("//") {
            if says(text) {
                return true;
            }
        } else if !text.starts_with("#[") {
            code += 1;
            if code > LINES_BETWEEN {
                return false;
            }
        }
    }
    false
}

//! Mutants that random runs hardly ever show: each names the file of a run or of a test that does.

use super::{TidyFinding, TidyRule};
use crate::scan;
use crate::source::{SourceFile, SourceTree};

pub(super) const SHOWN_BY: TidyRule = TidyRule {
    name: "shown-by",
    why: "a mutant that neither random runs nor its own test finds shows nothing of the checker",
    find: |tree, found| {
        for file in tree.rust() {
            for claim in claims(file) {
                if let Some(says) = claim.fault(tree) {
                    found.push(TidyFinding { place: file.at(claim.at), says });
                }
            }
        }
    },
    bad: &[
        (
            "src/mutants.rs",
            "A = \"breaks-a\":\n\"It breaks.\" breaks [] shown_by \"src/tests/gone.rs\";\n",
        ),
        (
            "src/others.rs",
            "B = \"breaks-b\":\n\"It breaks.\" breaks [] shown_by \"src/mutants.rs\";\n",
        ),
    ],
    good: &[
        (
            "src/mutants.rs",
            "A = \"breaks-a\":\n\"It breaks.\" breaks [] shown_by \"tests/a.rs\";\n\
             B = \"breaks-b\":\n\"It breaks.\" breaks [] shown_by \"scenarios/b.txt\";\n\
             New::of(Self::C, \"breaks-c\", \"it breaks\").shown_by(\"tests/a.rs\")\n",
        ),
        ("tests/a.rs", "#[test]\nfn a() {\n run(Mutant::A, \"breaks-c\");\n}\n"),
        ("scenarios/b.txt", "expect nothing\n"),
    ],
};

/// A mutant that names the file that shows it.
struct ShownBy<'a> {
    at: usize,
    variant: &'a str,
    name: &'a str,
    path: &'a str,
}

impl ShownBy<'_> {
    /// The fault of the claim, if it has one. Suites run scenarios with each mutant that names them; a test has to name
    /// the mutant itself.
    fn fault(&self, tree: &SourceTree) -> Option<String> {
        let Self { variant, name, path, .. } = *self;
        if name.is_empty() {
            return Some("write the name of the mutant before the file that shows it".to_string());
        }
        let Some(file) = tree.files.iter().find(|file| file.path == path) else {
            return Some(format!("`{name}` is shown by `{path}`, which does not exist"));
        };
        let quoted = format!("\"{name}\"");
        let in_test = |at: usize| file.in_test(at);
        let named = file.text.match_indices(&quoted).any(|(at, _)| in_test(at));
        let used = scan::words(&file.masked, variant).any(in_test);
        let is_shown = !file.is_rust() || named || used;
        (!is_shown).then(|| format!("`{name}`: no test of `{path}` names it"))
    }
}

/// The claims of a file, outside of its tests.
fn claims(file: &SourceFile) -> Vec<ShownBy<'_>> {
    let mut found = Vec::new();
    for at in scan::words(&file.masked, "shown_by") {
        let rest = file.text[at + "shown_by".len()..].trim_start_matches(['(', ' ']);
        let Some((path, _)) = rest.strip_prefix('"').and_then(|rest| rest.split_once('"')) else {
            continue;
        };
        if !file.in_test(at) {
            let (variant, name) = declared(&file.text[..at]).unwrap_or_default();
            found.push(ShownBy { at, variant, name, path });
        }
    }
    found
}

/// The variant and the name of the last mutant that is declared in a text: `A = "a":` or `Self::A, "a",`.
fn declared(text: &str) -> Option<(&str, &str)> {
    let by_macro = text.rfind("\":").and_then(|end| {
        let start = text[..end].rfind('"')?;
        let variant = text[..start].trim_end().strip_suffix('=')?.trim_end();
        let is_part = |c: char| c.is_alphanumeric() || c == '_';
        let begin = variant.trim_end_matches(is_part).len();
        Some((end, &variant[begin..], &text[start + 1..end]))
    });
    let by_call = text.rfind("Self::").and_then(|at| {
        let variant = scan::identifier(&text[at + "Self::".len()..]);
        let (_, rest) = text[at..].split_once('"')?;
        let (name, _) = rest.split_once('"')?;
        Some((at, variant, name))
    });
    let (_, variant, name) = by_macro.into_iter().chain(by_call).max_by_key(|found| found.0)?;
    Some((variant, name))
}

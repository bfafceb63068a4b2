//! Rules on manifests: few dependencies, and a reason for each.

use super::{TidyFinding, TidyRule};
use crate::source::SourceFile;

pub(super) const REASONS: TidyRule = TidyRule {
    name: "dependency-reasons",
    why: "each dependency is code that we answer for; a reason beside it can be weighed again",
    find: |tree, found| {
        for file in tree.files.iter().filter(|f| f.is_manifest()) {
            for (line, name) in dependencies(file) {
                if line < 2 || !reason(file.text.lines().nth(line - 2).unwrap_or("")) {
                    let says = format!("`{name}` has no comment right above it that says why");
                    found.push(TidyFinding { place: file.line(line), says });
                }
            }
        }
    },
    bad: &[("Cargo.toml", "[dependencies]\nserde = \"1\"\n")],
    good: &[(
        "Cargo.toml",
        "[dependencies]\namcast-core.workspace = true\n# Written form of files.\nserde = { version = \
         \"1\", features = [\n  \"derive\",\n] }\n\n[features]\nextra = []\n",
    )],
};

pub(super) const CORE_ALONE: TidyRule = TidyRule {
    name: "core-alone",
    why: "the vocabulary of all crates builds anywhere, in a second, and pulls in nothing",
    find: |tree, found| {
        let Some(file) = tree.file("crates/core/Cargo.toml") else { return };
        for (line, name) in dependencies(file) {
            let says = format!("core depends on `{name}`, and may depend on nothing");
            found.push(TidyFinding { place: file.line(line), says });
        }
    },
    bad: &[("crates/core/Cargo.toml", "[dependencies]\n# Maths.\nlibm = \"1\"\n")],
    good: &[("crates/core/Cargo.toml", "[dependencies]\n\n[features]\nstd = []\n")],
};

/// The lines of a manifest that name a dependency from outside the workspace.
fn dependencies(file: &SourceFile) -> Vec<(usize, &str)> {
    let all = named(file, |header| header.ends_with("dependencies"));
    all.into_iter().filter(|(_, name)| !ours(name)).collect()
}

/// The lines of a manifest that name a dependency, under headers of such lists.
pub(super) fn named(file: &SourceFile, is_list: impl Fn(&str) -> bool) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut inside = false;
    for (i, line) in file.text.lines().enumerate() {
        if let Some(header) = line.trim().strip_prefix('[').filter(|_| !line.starts_with(' ')) {
            let header = header.trim_end_matches(']');
            let alone = header.rsplit_once("dependencies.");
            if let Some((before, name)) = alone
                && is_list(&format!("{before}dependencies"))
            {
                found.push((i + 1, name));
            }
            inside = is_list(header);
            continue;
        }
        // An indented line continues a list.
        let name = line.split(['=', '.']).next().unwrap_or("").trim();
        let begins = line.starts_with(|c: char| c.is_alphanumeric() || c == '"');
        if inside && begins && line.contains('=') {
            found.push((i + 1, name));
        }
    }
    found
}

fn ours(name: &str) -> bool {
    name == "amcast" || name.starts_with("amcast-") || name == "xtask"
}

fn reason(line: &str) -> bool {
    line.trim().strip_prefix('#').is_some_and(|words| words.trim().len() > 3)
}

//! Rules on which crate sees which: arrows point one way.

use super::manifest::named;
use super::{TidyFinding, TidyRule};
use crate::source::SourceFile;

/// The crates, each of which sees only crates above it; with whether it sees the core alone.
const LAYERS: &[(&str, bool)] = &[
    ("core", true),
    ("protocols", true),
    ("mutants", true),
    ("check", true),
    ("sim", true),
    ("smr", true),
    ("kv", false),
    ("log", false),
    ("memory", true),
    ("net", true),
    ("fabric", true),
    ("storage", true),
    ("coordination", false),
    ("node", false),
    ("amcast", false),
    ("hosts", true),
    ("lab", false),
    ("cli", false),
    ("fuzzing", false),
];

/// A crate that any tests may use.
const OF_TESTS: &str = "amcast-test-policy";

pub(super) const ARROWS: TidyRule = TidyRule {
    name: "arrows",
    why: "a crate that sees what is built on it can be neither read nor used without that",
    find: |tree, found| {
        for file in tree.files.iter().filter(|f| f.is_manifest()) {
            let Some(name) = file.member().strip_prefix("crates/") else { continue };
            if name == "test-policy" {
                continue;
            }
            let Some(layer) = LAYERS.iter().position(|(layer, _)| *layer == name) else {
                let says = format!("`{name}` has no place in LAYERS: which crates may it see?");
                found.push(TidyFinding { place: file.line(1), says });
                continue;
            };
            for (line, seen) in ours(file) {
                let above = LAYERS[..layer].iter().any(|(above, _)| *above == seen);
                let core_alone = LAYERS[layer].1;
                if !above || core_alone && seen != "core" {
                    let says = match core_alone {
                        true => format!("`{name}` sees `{seen}`, and may see `core` only"),
                        false => format!("`{name}` sees `{seen}`, which is not above it in LAYERS"),
                    };
                    found.push(TidyFinding { place: file.line(line), says });
                }
            }
        }
    },
    bad: &[
        ("crates/kv/Cargo.toml", "[dependencies]\namcast-node.workspace = true\n"),
        ("crates/smr/Cargo.toml", "[dependencies]\namcast-storage = { workspace = true }\n"),
        ("crates/new/Cargo.toml", "[dependencies]\n"),
    ],
    good: &[
        ("crates/lab/Cargo.toml", "[dependencies]\namcast.workspace = true\n"),
        (
            "crates/kv/Cargo.toml",
            "[dependencies]\namcast-smr.workspace = true\n\n[dev-dependencies]\namcast-sim.workspace = true\n",
        ),
    ],
};

/// The lines of a manifest that name crates of this workspace, for more than tests.
fn ours(file: &SourceFile) -> Vec<(usize, String)> {
    let found = named(file, |header| header == "dependencies" || header == "build-dependencies");
    let found = found.into_iter().filter(|(_, name)| *name != OF_TESTS);
    let found = found.filter_map(|(line, name)| match name {
        "amcast" => Some((line, "amcast".to_string())),
        name => name.strip_prefix("amcast-").map(|name| (line, name.to_string())),
    });
    found.collect()
}

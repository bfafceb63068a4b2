//! Rules on protocols: the catalog names each, and each says the same things in the same order.

use super::{TidyFinding, TidyRule};
use crate::scan;
use crate::source::{SourceLine, SourceTree};
use amcast_protocols::catalog::CATALOG;
use std::collections::BTreeMap;

const SOURCES: &str = "crates/protocols/src/";
const LIST: &str = "crates/protocols/src/catalog.rs";

pub(super) const CATALOG_COMPLETE: TidyRule = TidyRule {
    name: "catalog-complete",
    why: "what is not in the catalog is in no command, no fault matrix and no test",
    find: |tree, found| {
        let listed = tree.file(LIST).map_or("", |file| list(&file.masked));
        for (module, place) in protocols(tree) {
            if scan::words(listed, &format!("{module}::")).next().is_none() {
                let says = format!("protocol `{module}` has no line in {LIST}");
                found.push(TidyFinding { place, says });
            }
        }
    },
    bad: &[
        ("crates/protocols/src/catalog.rs", "pub const CATALOG: &[&dyn Entry] = &[&a::A];\n"),
        ("crates/protocols/src/b/mod.rs", "impl Entry for B {}\n"),
    ],
    good: &[
        (
            "crates/protocols/src/catalog.rs",
            "pub const CATALOG: &[&dyn Entry] = &[&a::A, &b::B];\n#[cfg(test)]\nmod tests {\n impl \
             Entry for Fake {}\n}\n",
        ),
        ("crates/protocols/src/b/mod.rs", "impl Entry for B {}\n"),
    ],
};

/// What the doc of a protocol's module answers, in this order.
const SECTIONS: &[&str] = &[
    "What it orders and promises",
    "What it assumes",
    "The normal case",
    "Roles and phases",
    "Limits",
    "Deviations",
    "Read first",
];

pub(super) const PROTOCOL_DOC: TidyRule = TidyRule {
    name: "protocol-doc",
    why: "who knows one protocol's page knows where to look in the next one's",
    find: |tree, found| {
        for (module, _) in protocols(tree) {
            let paths = [format!("{SOURCES}{module}.rs"), format!("{SOURCES}{module}/mod.rs")];
            let Some(file) = paths.iter().find_map(|path| tree.file(path)) else { continue };
            let heading = |line: &'_ str| line.strip_prefix("//! # ").map(str::to_string);
            let headings: Vec<String> = file.text.lines().filter_map(heading).collect();
            let mut rest = headings.iter();
            for section in SECTIONS {
                if !rest.any(|heading| heading.starts_with(section)) {
                    let says = format!("its doc has no section `# {section}` in its place");
                    found.push(TidyFinding { place: file.line(1), says });
                    break;
                }
            }
        }
    },
    bad: &[(
        "crates/protocols/src/b.rs",
        "//! B.\n//! # What it assumes\n//! # What it orders and promises\nimpl Entry for B {}\n",
    )],
    good: &[(
        "crates/protocols/src/b.rs",
        "//! B.\n//! # What it orders and promises\n//! # What it assumes\n//! # The normal case\n\
         //! # Roles and phases\n//! # Limits, and why\n//! # Deviations\n//! # Read first\n\
         impl Entry for B {}\n",
    )],
};

/// Code outside the protocols that may name one: the cluster file's default, which is what `amcast up` runs
/// where nothing else is asked for.
const MAY_NAME: &[&str] = &["crates/node/src/config.rs"];

pub(super) const PROTOCOL_NAMES: TidyRule = TidyRule {
    name: "protocol-names",
    why: "code that knows a protocol by its name does not work for the next one: ask its capabilities, or \
          name its entry, as in `Tram.name()`",
    find: |tree, found| {
        let names: Vec<&str> = CATALOG.iter().map(|entry| entry.name()).collect();
        let own = |path: &str| path.starts_with(SOURCES) || MAY_NAME.contains(&path);
        for file in tree.rust().filter(|file| !own(&file.path)) {
            for (from, to) in scan::literals(&file.text) {
                let text = &file.text[from..to];
                if names.contains(&text) && !file.in_test(from) {
                    let says = format!("`{text}` is the name of a protocol");
                    found.push(TidyFinding { place: file.at(from), says });
                }
            }
        }
    },
    bad: &[(
        "crates/node/src/a.rs",
        "//! A.\nfn a(e: &dyn Entry) -> bool { e.name() == \"skeen\" }\n",
    )],
    good: &[
        (
            "crates/node/src/a.rs",
            "//! A: no \"skeen\" here.\nfn a() { b(\"a skeen clock\"); }\n#[cfg(test)]\nmod tests {\n \
             fn c() { b(\"skeen\"); }\n}\n",
        ),
        ("crates/protocols/src/skeen.rs", "//! S.\nfn name() -> &'static str { \"skeen\" }\n"),
        ("crates/node/tests/b.rs", "//! B.\nfn b() { a(\"skeen\"); }\n"),
    ],
};

/// The modules that implement an entry of the catalog, and where.
fn protocols(tree: &SourceTree) -> BTreeMap<&str, SourceLine> {
    let mut entries = BTreeMap::new();
    for file in tree.rust().filter(|f| f.path.starts_with(SOURCES)) {
        let at = scan::words(&file.masked, "Entry for").find(|&at| !file.in_test(at));
        if let Some(at) = at {
            let module = scan::identifier(&file.path[SOURCES.len()..]);
            entries.entry(module).or_insert_with(|| file.at(at));
        }
    }
    entries
}

/// The part of the catalog's source that lists the entries.
fn list(masked: &str) -> &str {
    let Some(at) = masked.find("CATALOG:") else { return "" };
    let end = masked[at..].find(';').map_or(masked.len(), |i| at + i);
    &masked[at..end]
}

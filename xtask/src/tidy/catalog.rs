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
    why: "a protocol that is not in the catalog is in no command, no fault matrix and no test",
    find: |tree, found| {
        let listed = tree.file(LIST).map_or("", |file| &file.masked);
        for (module, place) in protocols(tree) {
            if scan::words(listed, &format!("mod {module}:")).next().is_none() {
                let says = format!("protocol `{module}` has no line in {LIST}");
                found.push(TidyFinding { place, says });
            }
        }
    },
    bad: &[
        ("crates/protocols/src/catalog.rs", "macro_rules! all { () => { mod a: A => A; } }\n"),
        ("crates/protocols/src/b/mod.rs", "impl Entry for B {}\n"),
    ],
    good: &[
        (
            "crates/protocols/src/catalog.rs",
            "macro_rules! all { () => { mod a: A => A;\nmod b: B => B; } }\n#[cfg(test)]\nmod tests {\n \
             impl Entry for Fake {}\n}\n",
        ),
        ("crates/protocols/src/b/mod.rs", "impl Entry for B {}\n"),
    ],
};

/// The headings in the docs of a protocol's module, in this order.
const SECTIONS: &[&str] = &[
    "Order and guarantees",
    "Assumptions",
    "The normal case",
    "Roles and phases",
    "Limits",
    "Deviations",
    "Read first",
];

pub(super) const PROTOCOL_DOC: TidyRule = TidyRule {
    name: "protocol-doc",
    why: "a reader of one protocol's page knows where to look in the next one's",
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
        "//! B.\n//! # Assumptions\n//! # Order and guarantees\nimpl Entry for B {}\n",
    )],
    good: &[(
        "crates/protocols/src/b.rs",
        "//! B.\n//! # Order and guarantees\n//! # Assumptions\n//! # The normal case\n\
         //! # Roles and phases\n//! # Limits, and why\n//! # Deviations\n//! # Read first\n\
         impl Entry for B {}\n",
    )],
};

/// Crates beside the protocols that may name an entry by its path: the program for its defaults, and the laboratory for
/// the measurements of papers.
const NAMES_ENTRIES: &[&str] = &["crates/cli", "crates/lab"];

/// Reads what only messages of one protocol hold, for the target of fuzzing of that name.
const READS_MESSAGES: &str = "crates/protocols/src/fuzzing.rs";

pub(super) const PROTOCOL_NAMES: TidyRule = TidyRule {
    name: "protocol-names",
    why: "code that knows a protocol by its name does not work for the next one: ask its capabilities, or \
          name its entry in the program or the laboratory, as in `Tram.name()`",
    find: |tree, found| {
        let (modules, names) = (listed(tree), names(tree));
        for file in tree.rust() {
            // In its own folder a protocol says what it is called.
            let own = |module: &str| file.path.starts_with(&format!("{SOURCES}{module}/"));
            for (from, to) in scan::literals(&file.text) {
                let text = &file.text[from..to];
                if names.contains(&text) && !file.path.starts_with(SOURCES) && !file.in_test(from) {
                    let says = format!("`{text}` is the name of a protocol");
                    found.push(TidyFinding { place: file.at(from), says });
                }
            }
            if NAMES_ENTRIES.contains(&file.member()) || file.path == READS_MESSAGES {
                continue;
            }
            for module in modules.iter().filter(|module| !own(module)) {
                for at in scan::words(&file.masked, &format!("{module}::")) {
                    if !file.in_test(at) {
                        let says = format!("`{module}` is the module of a protocol");
                        found.push(TidyFinding { place: file.at(at), says });
                    }
                }
            }
        }
    },
    bad: &[
        (LIST, "//! C.\nmacro_rules! all { () => { mod b: B => B;\n mod d: D => D; } }\n"),
        ("crates/node/src/a.rs", "//! A.\nfn a(e: &dyn Entry) -> bool { e.name() == \"skeen\" }\n"),
        ("crates/sim/src/c.rs", "//! C.\nuse amcast_protocols::b::B;\n"),
        (
            "crates/protocols/src/b/mod.rs",
            "//! B.\nimpl Entry for B { fn name(&self) -> &'static str { \"bee\" } }\nuse crate::d::D;\n",
        ),
        ("crates/cli/src/e.rs", "//! E.\nfn e() -> bool { name() == \"bee\" }\n"),
    ],
    good: &[
        (LIST, "//! C.\nmacro_rules! all { () => { mod b: B => B; } }\n"),
        ("crates/lab/src/c.rs", "//! C.\nuse amcast_protocols::b::B;\nfn c() { B.name() }\n"),
        ("crates/protocols/src/b/d.rs", "//! D.\nuse crate::b::B;\n"),
        (
            "crates/node/src/a.rs",
            "//! A: no \"skeen\" here.\nfn a() { b(\"a skeen clock\"); }\n#[cfg(test)]\nmod tests {\n \
             fn c() { b(\"skeen\"); }\n}\n",
        ),
        ("crates/protocols/src/skeen/mod.rs", "//! S.\nfn name() -> &'static str { \"skeen\" }\n"),
        ("crates/node/tests/b.rs", "//! B.\nfn b() { a(\"skeen\"); }\n"),
    ],
};

/// The modules that the catalog lists.
fn listed(tree: &SourceTree) -> Vec<&str> {
    let Some(file) = tree.file(LIST) else { return Vec::new() };
    let rest = scan::words(&file.masked, "mod").map(|at| file.masked[at + 3..].trim_start());
    let module = |rest| {
        let name = scan::identifier(rest);
        rest[name.len()..].starts_with(':').then_some(name)
    };
    rest.filter_map(module).collect()
}

/// The names of the catalog's entries, and those that the modules of the tree's catalog give themselves.
fn names(tree: &SourceTree) -> Vec<&str> {
    const NAME: &str = "fn name(&self) -> &'static str";
    let mut names: Vec<&str> = CATALOG.iter().map(|entry| entry.name()).collect();
    for module in listed(tree) {
        let Some(file) = tree.file(&format!("{SOURCES}{module}/mod.rs")) else { continue };
        let Some(at) = file.text.find(NAME) else { continue };
        let body = file.text[at + NAME.len()..].trim_start_matches([' ', '{', '\n']);
        let name = body.strip_prefix('"').and_then(|rest| rest.split('"').next());
        names.extend(name);
    }
    names
}

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

//! The catalog names every protocol.

use super::{Finding, Rule};
use crate::scan;
use std::collections::BTreeMap;

const SOURCES: &str = "crates/protocols/src/";
const LIST: &str = "crates/protocols/src/catalog.rs";

pub(super) const CATALOG_COMPLETE: Rule = Rule {
    name: "catalog-complete",
    why: "what is not in the catalog is in no command, no fault matrix and no test",
    find: |tree, found| {
        let listed = tree.file(LIST).map_or("", |file| list(&file.masked));
        let mut entries = BTreeMap::new();
        for file in tree.rust().filter(|f| f.path.starts_with(SOURCES)) {
            let at = scan::words(&file.masked, "Entry for").find(|&at| !file.in_test(at));
            if let Some(at) = at {
                let below = &file.path[SOURCES.len()..];
                let module = scan::identifier(below);
                entries.entry(module).or_insert_with(|| file.at(at));
            }
        }
        for (module, place) in entries {
            if scan::words(listed, &format!("{module}::")).next().is_none() {
                let says = format!("protocol `{module}` has no line in {LIST}");
                found.push(Finding { place, says });
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

/// The part of the catalog's source that lists the entries.
fn list(masked: &str) -> &str {
    let Some(at) = masked.find("CATALOG:") else { return "" };
    let end = masked[at..].find(';').map_or(masked.len(), |i| at + i);
    &masked[at..end]
}

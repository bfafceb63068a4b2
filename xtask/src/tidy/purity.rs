//! Rules on what the pure crates must not see: the same run from the same seed, on any machine.

use super::{TidyFinding, TidyRule};
use crate::scan;
use crate::source::{SourceFile, SourceTree};

/// Crates without sockets, files, clocks, threads or chance of their own.
pub(super) const PURE: &[&str] = &["crates/core", "crates/protocols", "crates/check", "crates/sim"];
/// Crates without sockets, files and clocks of their own, which are no library for any system: they need the standard one.
const SYSTEMLESS: &[&str] = &["crates/smr"];
/// Files of these that start threads, and see nothing else of a system: what runs commands beside each other.
const THREADED: &[&str] = &["crates/smr/src/executor/pool.rs"];
/// The modules of the standard library that reach the environment.
const SYSTEM: &[&str] = &["net", "fs", "thread", "time", "process", "env", "os"];
/// Collections whose order depends on the machine's randomness.
const RANDOM_ORDER: &[&str] = &["HashMap", "HashSet", "RandomState"];

pub(super) const NO_SYSTEM: TidyRule = TidyRule {
    name: "no-system",
    why: "code that sees a clock or a socket cannot be replayed",
    find: |tree, found| {
        let systemless =
            |f: &&SourceFile| SYSTEMLESS.contains(&f.member()) && f.path.contains("/src/");
        for file in pure(tree).chain(tree.rust().filter(systemless)) {
            let threaded = THREADED.contains(&file.path.as_str());
            for at in scan::words(&file.masked, "std::") {
                let rest = &file.masked[at + 5..];
                let parts = rest.strip_prefix('{').map_or_else(
                    || vec![scan::identifier(rest)],
                    |list| list.split('}').next().unwrap_or("").split(',').map(first).collect(),
                );
                let parts = parts.into_iter().filter(|part| SYSTEM.contains(part));
                for part in parts.filter(|part| !(threaded && *part == "thread")) {
                    let says = format!("`std::{part}` in a pure crate: make it an input");
                    found.push(TidyFinding { place: file.at(at), says });
                }
            }
        }
    },
    bad: &[
        ("crates/sim/src/a.rs", "use std::{fmt, time::Instant};\n"),
        ("crates/core/src/b.rs", "fn b() { std::fs::read(\"x\"); }\n"),
        ("crates/smr/src/executor/side.rs", "use std::thread::spawn;\n"),
        ("crates/smr/src/executor/pool.rs", "use std::time::Instant;\n"),
    ],
    good: &[
        ("crates/sim/src/a.rs", "use std::fmt;\n// std::time\n"),
        ("crates/node/src/a.rs", "use std::net::TcpStream;\n"),
        ("crates/smr/src/executor/pool.rs", "use std::thread::JoinHandle;\n"),
        ("crates/check/tests/a.rs", "use std::fs;\n"),
    ],
};

pub(super) const NO_RANDOM_ORDER: TidyRule = TidyRule {
    name: "no-random-order",
    why: "a hash map's order differs from run to run, and then so does the run",
    find: |tree, found| {
        for file in pure(tree) {
            for &what in RANDOM_ORDER {
                for at in scan::words(&file.masked, what) {
                    let says = format!("`{what}` in a pure crate: use a BTreeMap or a dense Vec");
                    found.push(TidyFinding { place: file.at(at), says });
                }
            }
        }
    },
    bad: &[("crates/check/src/a.rs", "use std::collections::HashMap;\n")],
    good: &[("crates/check/src/a.rs", "use alloc::collections::BTreeMap; // no HashMap\n")],
};

pub(super) const PROTOCOLS_SEE_CORE: TidyRule = TidyRule {
    name: "protocols-see-core",
    why: "a protocol that knows a driver or a checker is a protocol for one driver",
    find: |tree, found| {
        for file in tree.rust().filter(|f| f.path.starts_with("crates/protocols/src/")) {
            for (at, _) in file.masked.match_indices("amcast_") {
                let name = scan::identifier(&file.masked[at..]);
                let whole = at == 0 || !scan::is_word(file.masked.as_bytes()[at - 1]);
                if whole && name != "amcast_core" && !file.in_test(at) {
                    let says = format!("a protocol imports `{name}`; it may see amcast_core only");
                    found.push(TidyFinding { place: file.at(at), says });
                }
            }
        }
    },
    bad: &[("crates/protocols/src/a.rs", "use amcast_core::Time;\nuse amcast_sim::Ram;\n")],
    good: &[(
        "crates/protocols/src/a.rs",
        "use amcast_core::Time;\n#[cfg(test)]\nmod tests {\n use amcast_check::Judge;\n}\n",
    )],
};

/// The files of the pure crates that go into their libraries.
fn pure(tree: &SourceTree) -> impl Iterator<Item = &SourceFile> {
    tree.rust().filter(|f| PURE.contains(&f.member()) && f.path.contains("/src/"))
}

/// The first name of one part of a list of imports.
fn first(part: &str) -> &str {
    scan::identifier(part.trim_start())
}

//! Rules on tests: none can hang, and none is skipped without CI knowing.

use super::purity::PURE;
use super::{TidyFinding, TidyRule};
use crate::scan::{self, Function};
use crate::source::{SourceFile, SourceTree};
use std::collections::BTreeSet;

/// The list of skips that CI permits.
const SKIPS: &str = ".ci/skips.txt";
/// Crates whose integration tests wait for nothing, unless they say so themselves: beside the pure ones
/// the targets of fuzzing, which see bytes and no system.
const COMPUTING: &[&str] = &["crates/fuzzing"];
/// The calls by which test code waits.
const WAITS: &[&str] = &[
    "Command::new",
    "Condvar",
    "TcpListener",
    "TcpStream",
    "UdpSocket",
    "UnixDatagram",
    "UnixListener",
    "UnixStream",
    "sync_channel",
    "thread::",
    "tokio::",
];

pub(super) const TIME_LIMIT: TidyRule = TidyRule {
    name: "time-limit",
    why: "a test that waits for ever says nothing and holds CI; a limit fails it by name",
    find: |tree, found| {
        for file in tree.rust() {
            let functions = scan::functions(&file.masked);
            let tests = tests(file, &functions);
            if tests.is_empty() || !can_wait(file) {
                continue;
            }
            // A test's limit may begin in a function that it calls: behind a lock, for example.
            let limiting = limiting(tree, file);
            for test in tests.into_iter().filter(|test| !is_limited(test, &limiting)) {
                let says = format!(
                    "test `{}` may wait and has no limit: begin it with `let _limit = \
                     amcast_test_policy::time_limit();`",
                    test.name
                );
                found.push(TidyFinding { place: file.line(test.line), says });
            }
        }
    },
    bad: &[
        ("crates/net/tests/a.rs", "//! A.\n#[test]\nfn a() { b() }\nfn b() {}\n"),
        ("crates/sim/tests/b.rs", "//! B.\n#[test]\nfn b() { std::thread::spawn(c); }\n"),
        (
            "crates/net/src/c.rs",
            "//! C.\n#[cfg(test)]\nmod tests {\n #[test]\n fn c() { Command::new(\"x\"); }\n}\n",
        ),
    ],
    good: &[
        ("crates/net/tests/a/main.rs", "//! A.\nmod b;\n#[test]\nfn a() { let _turn = turn(); }\n"),
        ("crates/net/tests/a/b.rs", "//! B.\nfn turn() -> TimeLimit { lock(); time_limit() }\n"),
        ("crates/sim/tests/b.rs", "//! B.\n#[test]\nfn b() { run(); }\n"),
        (
            "crates/net/src/c.rs",
            "//! C.\nfn c() { thread::spawn(d); }\n#[cfg(test)]\nmod tests {\n #[test]\n fn d() {}\n}\n",
        ),
    ],
};

pub(super) const ONE_SKIP: TidyRule = TidyRule {
    name: "one-skip",
    why: "a test that only prints that it is skipped passes in CI too, and nobody sees what is untested",
    find: |tree, found| {
        for file in tree.rust().filter(|f| f.member() != "crates/test-policy") {
            for (at, _) in file.masked.match_indices("println!(") {
                let said = file.text[at + "println!(".len()..].trim_start();
                let said = said.strip_prefix('"').unwrap_or("");
                let skips = said.get(..4).is_some_and(|word| word.eq_ignore_ascii_case("skip"));
                if skips && file.in_test(at) {
                    let says = "call `amcast_test_policy::skip(test, reason)`".to_string();
                    found.push(TidyFinding { place: file.at(at), says });
                }
            }
        }
    },
    bad: &[
        ("crates/a/tests/a.rs", "//! A.\nfn a() { println!(\"SKIPPED: no b\"); }\n"),
        ("crates/a/src/b/tests.rs", "//! B.\nfn b() { return eprintln!(\n \"skipped\"); }\n"),
    ],
    good: &[
        ("crates/a/tests/a.rs", "//! A.\nfn a() { println!(\"said\"); skip(\"a\", \"no b\"); }\n"),
        ("crates/a/src/b.rs", "//! B.\nfn b() { println!(\"skipped\"); }\n"),
    ],
};

pub(super) const SKIPS_EXIST: TidyRule = TidyRule {
    name: "skips-exist",
    why: "a permitted skip whose test is gone permits nothing, and hides that the list is old",
    find: |tree, found| {
        let Some(list) = tree.file(SKIPS) else { return };
        let names = tree.rust().flat_map(|file| {
            let functions = scan::functions(&file.masked);
            tests(file, &functions).into_iter().map(|test| test.name).collect::<Vec<_>>()
        });
        let names: BTreeSet<&str> = names.collect();
        if let Err(why) = amcast_test_policy::PermittedSkips::parse(&list.text) {
            found.push(TidyFinding { place: list.line(1), says: why });
        }
        for (i, line) in list.text.lines().enumerate() {
            let Some((name, _)) = line.split_once(": ").filter(|_| !line.starts_with('#')) else {
                continue;
            };
            // The skips of `cargo xtask no-os` and `cargo xtask rdma` are no tests.
            let is_step = name.starts_with("no-os:") || name.starts_with("rdma:");
            if !is_step && !names.contains(name) {
                let says = format!("there is no test `{name}`");
                found.push(TidyFinding { place: list.line(i + 1), says });
            }
        }
    },
    bad: &[(".ci/skips.txt", "gone: needs root\n")],
    good: &[
        (".ci/skips.txt", "# Why.\nhere: needs root\nno-os:x: needs a target\n"),
        ("crates/a/tests/a.rs", "//! A.\n#[test]\nfn here() { skip(\"here\", \"no root\"); }\n"),
    ],
};

/// The functions that are tests.
fn tests<'a>(file: &'a SourceFile, functions: &[Function<'a>]) -> Vec<Function<'a>> {
    let marked = file.masked.match_indices("#[test]");
    let next = marked.filter_map(|(at, _)| functions.iter().find(|f| f.at > at).copied());
    next.collect()
}

/// Whether the tests of a file can wait for something. Integration tests of crates that see the system
/// start processes or open sockets, be it in the library; other tests only if they say so themselves.
fn can_wait(file: &SourceFile) -> bool {
    let integration = file.path.contains("/tests/") && !file.path.contains("/src/");
    (integration && ![PURE, COMPUTING].concat().contains(&file.member()))
        || WAITS.iter().any(|&what| scan::words(&file.masked, what).any(|at| file.in_test(at)))
}

/// The functions of the same test binary in which a limit begins, or that call one of them; for a unit
/// test, those of the same file.
fn limiting<'a>(tree: &'a SourceTree, file: &SourceFile) -> BTreeSet<&'a str> {
    let files = tree.rust().filter(|f| binary(&f.path) == binary(&file.path));
    let functions = files.flat_map(|f| scan::functions(&f.masked));
    let mut functions: Vec<_> = functions.filter(|f| !f.name.is_empty()).collect();
    let mut limiting = BTreeSet::new();
    loop {
        let known = limiting.len();
        functions.retain(|f| !is_limited(f, &limiting) || !limiting.insert(f.name));
        if limiting.len() == known {
            return limiting;
        }
    }
}

/// The part of a path that names the test binary: `crates/a/tests/b` of `crates/a/tests/b/c.rs`.
fn binary(path: &str) -> &str {
    let integration = path.find("/tests/").filter(|_| !path.contains("/src/"));
    let Some(from) = integration.map(|at| at + "/tests/".len()) else { return path };
    let end = path[from..].find('/').map_or(path.len(), |slash| from + slash);
    path[..end].trim_end_matches(".rs")
}

/// Whether a limit begins in a function, or in one that it calls by its bare name.
fn is_limited(function: &Function<'_>, limiting: &BTreeSet<&str>) -> bool {
    let calls = |name: &&str| {
        scan::words(function.body, name).any(|at| {
            let (before, after) = (&function.body[..at], &function.body[at + name.len()..]);
            after.starts_with('(') && !before.ends_with(['.', ':'])
        })
    };
    let begins = ["time_limit", "time_limit_of"];
    begins.iter().any(|word| scan::words(function.body, word).next().is_some())
        || limiting.iter().any(calls)
}

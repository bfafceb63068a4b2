//! Rules on the shape of files and functions: a reader finds a thing in a minute.

use super::{TidyFinding, TidyRule};
use crate::scan;

/// The longest file, in lines.
const FILE_LINES_MAX: usize = 800;
/// The longest function, in lines: a large screen.
const FUNCTION_LINES_MAX: usize = 70;
/// Names that say nothing of what is inside.
const NO_NOUNS: &[&str] = &["util", "utils", "common", "helper", "helpers", "misc"];

pub(super) const FILE_LENGTH: TidyRule = TidyRule {
    name: "file-length",
    why: "a file is read in one sitting, and two people rarely change the same one",
    find: |tree, found| {
        for file in tree.rust() {
            let lines = file.text.lines().count();
            if lines > FILE_LINES_MAX {
                let says = format!(
                    "{lines} lines, at most {FILE_LINES_MAX}: make it a folder with a file for \
                     each role"
                );
                found.push(TidyFinding { place: file.line(1), says });
            }
        }
    },
    bad: &[("a.rs", LONG)],
    good: &[("a.rs", "//! A.\nfn a() {}\n")],
};

pub(super) const FUNCTION_LENGTH: TidyRule = TidyRule {
    name: "function-length",
    why: "a function fits on a screen, so that it is checked by looking at it",
    find: |tree, found| {
        for file in tree.rust() {
            for f in scan::functions(&file.masked) {
                if f.lines > FUNCTION_LINES_MAX {
                    let says = format!(
                        "`{}` has {} lines, at most {FUNCTION_LINES_MAX}: give its parts names",
                        f.name, f.lines
                    );
                    found.push(TidyFinding { place: file.line(f.line), says });
                }
            }
        }
    },
    bad: &[("a.rs", LONG)],
    good: &[("a.rs", "//! A.\nfn a() {\n    let text = \"{\";\n}\n")],
};

pub(super) const MODULE_DOC: TidyRule = TidyRule {
    name: "module-doc",
    why: "the first line of a file says what it is for, so that nobody reads the wrong one",
    find: |tree, found| {
        for file in tree.rust() {
            let doc = file.text.strip_prefix("//!").map(|rest| rest.lines().next().unwrap_or(""));
            if doc.is_none_or(|line| line.trim().is_empty()) {
                let says = "does not open with a `//!` line that says what it is for".to_string();
                found.push(TidyFinding { place: file.line(1), says });
            }
        }
    },
    bad: &[("a.rs", "use b::c;\n"), ("b.rs", "//!\n")],
    good: &[("a.rs", "//! The purpose of a.\n")],
};

pub(super) const NOUNS: TidyRule = TidyRule {
    name: "nouns",
    why: "a thing lives where its noun lives; a drawer for everything is never tidied",
    find: |tree, found| {
        for file in tree.rust() {
            let stem = file.name().trim_end_matches(".rs");
            let folders = file.path.split('/');
            if folders.chain([stem]).any(|part| NO_NOUNS.contains(&part)) {
                let says = "a path that names no noun: say what is in it".to_string();
                found.push(TidyFinding { place: file.line(1), says });
            }
            for at in scan::words(&file.masked, "mod") {
                let name = scan::identifier(file.masked[at + 3..].trim_start());
                if NO_NOUNS.contains(&name) {
                    let says = format!("module `{name}` names no noun: say what is in it");
                    found.push(TidyFinding { place: file.at(at), says });
                }
            }
        }
    },
    bad: &[("src/util.rs", "//! A.\n"), ("a.rs", "//! A.\nmod helpers {}\n")],
    good: &[("src/utility_model.rs", "//! A.\nmod modern;\n// mod util\n")],
};

pub(super) const NO_DEAD_FILE: TidyRule = TidyRule {
    name: "no-dead-file",
    why: "a file that no module names is not compiled, not tested, and read all the same",
    find: |tree, found| {
        for file in tree.rust() {
            let Some((root, below)) = file.path.split_once("src/") else { continue };
            let path = below.trim_end_matches(".rs").trim_end_matches("/mod");
            if matches!(path, "lib" | "main" | "mod") || path.starts_with("bin/") {
                continue;
            }
            let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
            let mut parents = match parent {
                // A crate's catalog declares the modules that it lists.
                "" => vec!["lib".to_string(), "main".to_string(), "catalog".to_string()],
                _ => vec![parent.to_string(), format!("{parent}/mod")],
            };
            parents.iter_mut().for_each(|p| *p = format!("{root}src/{p}.rs"));
            let declares = |path: &String| {
                tree.file(path).is_some_and(|f| {
                    let mods =
                        scan::words(&f.masked, "mod").map(|at| f.masked[at + 3..].trim_start());
                    mods.into_iter().any(|rest| scan::identifier(rest) == name)
                })
            };
            if !parents.iter().any(declares) {
                let says = format!("no `mod {name};` leads here");
                found.push(TidyFinding { place: file.line(1), says });
            }
        }
    },
    bad: &[("crates/a/src/b.rs", "//! B.\n"), ("crates/a/src/c/d.rs", "//! D.\n")],
    good: &[
        ("crates/a/src/lib.rs", "//! A.\nmod b;\npub mod c;\n"),
        ("crates/a/src/b.rs", "//! B.\n"),
        ("crates/a/src/c.rs", "//! C.\n#[cfg(test)]\nmod d;\n"),
        ("crates/a/src/c/d.rs", "//! D.\n"),
        ("crates/e/src/lib.rs", "//! E.\nmod catalog;\n"),
        ("crates/e/src/catalog.rs", "//! E.\nmacro_rules! f { () => { mod f: F; } }\n"),
        ("crates/e/src/f/mod.rs", "//! F.\n"),
    ],
};

/// 801 lines, all of one function.
const LONG: &str = {
    const HEAD: &[u8] = b"fn a() {";
    const BYTES: [u8; HEAD.len() + FILE_LINES_MAX + 1] = {
        let mut bytes = [b'\n'; HEAD.len() + FILE_LINES_MAX + 1];
        let mut i = 0;
        while i < HEAD.len() {
            bytes[i] = HEAD[i];
            i += 1;
        }
        bytes[HEAD.len() + FILE_LINES_MAX] = b'}';
        bytes
    };
    match core::str::from_utf8(&BYTES) {
        Ok(text) => text,
        Err(_) => unreachable!(),
    }
};

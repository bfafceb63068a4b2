//! Rules on arguments and bindings that are joined to stay under a limit.

use super::{TidyFinding, TidyRule};
use crate::scan;

/// So many values may not travel as one tuple without names.
const PARTS_MAX: usize = 2;

pub(super) const NO_TUPLE_PARAMETERS: TidyRule = TidyRule {
    name: "no-tuple-parameters",
    why: "a tuple of three hides from the limit on parameters, and no name at the call says which is which: \
          a struct has names",
    find: |tree, found| {
        for file in tree.rust() {
            for (at, parameter) in parameters(&file.masked) {
                let parts = tuple_type(parameter).map_or(0, |inside| list(inside).len());
                if parts > PARTS_MAX && !file.in_test(at) {
                    let says = format!("a parameter of {parts} parts: make it a struct");
                    found.push(TidyFinding { place: file.at(at), says });
                }
            }
        }
    },
    bad: &[
        ("crates/core/src/a.rs", "//! A.\nfn a((b, c, d): (u8, Vec<(u8, u8)>, u8)) {}\n"),
        (
            "crates/core/src/b.rs",
            "//! B.\nfn b<T: Fn(u8) -> u8>(\n    x: T,\n    y: &(u8, u8, T),\n) {}\n",
        ),
        ("crates/node/src/c.rs", "//! C.\nfn c(a: (u8, u8, u8)) {}\n"),
    ],
    good: &[
        ("crates/core/src/a.rs", "//! A.\nfn a((b, c): (u8, u8), f: impl Fn(u8, u8, u8)) {}\n"),
        ("crates/core/tests/b.rs", "//! B.\nfn b((b, c, d): (u8, u8, u8)) {}\n"),
        ("crates/node/src/c.rs", "//! C.\nfn c(a: u8) {}\n"),
    ],
};

pub(super) const NO_PARALLEL_LET: TidyRule = TidyRule {
    name: "no-parallel-let",
    why: "several values bound in one line save lines and cost the reader the pairing: one `let` for each",
    find: |tree, found| {
        for file in tree.rust() {
            for at in scan::words(&file.masked, "let") {
                let parts = parallel(&file.masked[at + "let".len()..]);
                if parts > PARTS_MAX && !file.in_test(at) {
                    let says = format!("{parts} values in one `let`: bind one in each");
                    found.push(TidyFinding { place: file.at(at), says });
                }
            }
        }
    },
    bad: &[
        ("crates/node/src/b.rs", "//! B.\nfn b() {\n    let (b, c, d) = (1, 2, 3);\n}\n"),
        (
            "crates/coordination/src/a.rs",
            "//! A.\nfn a() {\n    let (b, mut c, d) = (1, f(2, 3), 4);\n}\n",
        ),
    ],
    good: &[(
        "crates/coordination/src/a.rs",
        "//! A.\nfn a() {\n    let (b, c) = (1, 2);\n    let (d, e, f) = g();\n    let (h, i, j) = (k);\n}\n",
    )],
};

/// The parameters of every function, and where its `fn` is.
fn parameters(masked: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for at in scan::words(masked, "fn") {
        let rest = masked[at + 2..].trim_start();
        let name = scan::identifier(rest);
        let from = masked.len() - rest.len() + name.len();
        let Some(open) = (!name.is_empty()).then(|| after_generics(masked, from)).flatten() else {
            continue;
        };
        if let Some(end) = scan::closing(masked, open) {
            found.extend(list(&masked[open + 1..end]).into_iter().map(|part| (at, part)));
        }
    }
    found
}

/// Where the parameters of a function open, behind its generics if it has any.
fn after_generics(masked: &str, from: usize) -> Option<usize> {
    let mut depth = 0_usize;
    let bytes = masked.as_bytes();
    for i in from..bytes.len() {
        match bytes[i] {
            b'<' => depth += 1,
            b'>' if bytes[i - 1] != b'-' => depth = depth.checked_sub(1)?,
            b'(' if depth == 0 => return Some(i),
            _ => {}
        }
    }
    None
}

/// The inside of the tuple that is the type of a parameter, also behind a reference.
fn tuple_type(parameter: &str) -> Option<&str> {
    let mut depth = 0_usize;
    let colon = parameter.char_indices().find(|&(i, c)| {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ':' && depth == 0 && !parameter[i + 1..].starts_with(':')
    });
    let mut kind = parameter[colon?.0 + 1..].trim();
    while let Some(rest) = kind.strip_prefix('&') {
        let rest = rest.trim_start();
        let lifetime = rest.strip_prefix('\'').map_or(0, |name| 1 + scan::identifier(name).len());
        kind = rest[lifetime..].trim_start();
        kind = kind.strip_prefix("mut ").unwrap_or(kind).trim_start();
    }
    kind.strip_prefix('(')?.strip_suffix(')')
}

/// The parts of a list that commas part, but for those within brackets of any kind.
fn list(inside: &str) -> Vec<&str> {
    let (mut parts, mut from) = (Vec::new(), 0);
    let mut depth = 0_usize;
    let bytes = inside.as_bytes();
    for (i, &byte) in bytes.iter().enumerate() {
        match byte {
            b'(' | b'[' | b'{' | b'<' => depth += 1,
            b'>' if i > 0 && matches!(bytes[i - 1], b'-' | b'=') => {}
            b')' | b']' | b'}' | b'>' => depth = depth.saturating_sub(1),
            b',' if depth == 0 => {
                parts.push(&inside[from..i]);
                from = i + 1;
            }
            _ => {}
        }
    }
    parts.push(&inside[from..]);
    parts.retain(|part| !part.trim().is_empty());
    parts
}

/// How many values `(a, b) = (x, y);` binds; 0 for everything else that may follow a `let`.
fn parallel(rest: &str) -> usize {
    let tuple = |text: &str| -> Option<(usize, usize)> {
        let open = text.len() - text.trim_start().len();
        let end = text[open..].starts_with('(').then(|| scan::closing(text, open))??;
        Some((list(&text[open + 1..end]).len(), end + 1))
    };
    let Some((names, end)) = tuple(rest) else { return 0 };
    let behind = rest[end..].trim_start();
    let Some(values) = behind.strip_prefix('=').or_else(|| {
        let (kind, values) = behind.strip_prefix(':')?.split_once('=')?;
        (!kind.contains(';')).then_some(values)
    }) else {
        return 0;
    };
    match tuple(values) {
        Some((count, end)) if count == names && values[end..].trim_start().starts_with(';') => {
            count
        }
        _ => 0,
    }
}

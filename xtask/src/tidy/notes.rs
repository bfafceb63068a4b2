//! Notes and events: what decides acts on events, and notes are for people, traces and judges.

use super::{TidyFinding, TidyRule};
use crate::scan;
use crate::source::SourceFile;

/// Crates whose code leaves notes: `out.note(Note::..)`, and nothing else.
const WRITERS: &[&str] = &["crates/core/src/", "crates/protocols/src/"];

/// Modules that tell one note from another: they log it, trace it, or judge a run by it.
const READERS: &[&str] = &[
    // The log of nodes and clients.
    "crates/node/src/diagnostics.rs",
    // The simulator counts marks, and hashes and tells all that happens.
    "crates/sim/src/diagnostics.rs",
    "crates/sim/src/hash.rs",
    "crates/sim/src/scenario/print.rs",
    // Judges: what a fuzzer feeds must be noted, and a measurement with malformed input counts for nothing.
    "crates/fuzzing/src/",
    "crates/lab/src/bench/rings/deliveries.rs",
    // A figure of the laboratory: how long an increase of bandwidth takes.
    "crates/lab/src/bench/broadcasts.rs",
    "crates/lab/src/bench/lan/watch.rs",
];

pub(super) const NOTES_DECIDE_NOTHING: TidyRule = TidyRule {
    name: "notes-decide-nothing",
    why: "a driver acts on an event with a contract; a note that decides is a contract that nobody wrote",
    find: |tree, found| {
        for file in tree.rust() {
            let of = |paths: &[&str]| paths.iter().any(|path| file.path.starts_with(path));
            for at in variants(file) {
                let left = file.masked[..at].trim_end().ends_with("note(");
                if file.in_test(at) || of(READERS) || of(WRITERS) && left {
                    continue;
                }
                let says = if of(WRITERS) {
                    "a note is left with `out.note(Note::..)`; what decides is a `ProtocolEvent`"
                } else {
                    "tells notes apart: act on a `ProtocolEvent`, or log in a module of READERS"
                };
                found.push(TidyFinding { place: file.at(at), says: says.to_string() });
            }
        }
    },
    bad: &[
        ("crates/node/src/replica.rs", "fn a(n: Note) {\n if let Note::Mark(_) = n { b() }\n}\n"),
        ("crates/amcast/src/node.rs", "use amcast_core::step::Note as Remark;\n"),
        ("crates/sim/src/carry.rs", "use amcast_core::step::Note::{Mark, Demoted};\n"),
        (
            "crates/protocols/src/a.rs",
            "fn a(o: Output) {\n if let Output::Note(Note::Mark(_)) = o { b() }\n}\n",
        ),
    ],
    good: &[
        (
            "crates/node/src/diagnostics.rs",
            "fn a(n: Note) {\n match n { Note::Mark(m) => b(m) }\n}\n",
        ),
        ("crates/node/src/replica.rs", "fn a(n: Note) {\n diagnostics::log(n) // Note::Mark\n}\n"),
        ("crates/node/src/execution_notes.rs", "fn a() -> Note {\n Note::read(bytes)\n}\n"),
        (
            "crates/protocols/src/a.rs",
            "fn a(out: &mut Out) {\n out.note(\n  Note::Demoted(1),\n )\n}\n",
        ),
        (
            "crates/protocols/src/b.rs",
            "#[cfg(test)]\nmod tests {\n fn a(n: Note) -> bool { n == Note::Mark(\"b\") }\n}\n",
        ),
    ],
};

/// Where a file names variants of `Note`, or gives it another name. Functions of another type of that name
/// begin with a small letter.
fn variants(file: &SourceFile) -> Vec<usize> {
    let mut found: Vec<usize> = scan::words(&file.masked, "Note::")
        .filter(|at| !file.masked[at + "Note::".len()..].starts_with(char::is_lowercase))
        .collect();
    found.extend(scan::words(&file.masked, "Note as "));
    found
}

//! Rules on the names of types: each name is used once in the workspace, and it is a noun of the field.

use super::{TidyFinding, TidyRule};
use crate::scan;
use crate::source::{SourceFile, SourceLine};
use std::collections::BTreeMap;

/// Participles, adverbs and metaphors that no type is named. A reader searches for the noun.
const BANNED: &[&str] = &[
    "Above", "Around", "Asked", "At", "Beside", "Between", "Book", "Came", "Coming", "Desk",
    "Diary", "Donation", "Done", "Effect", "Ended", "Found", "From", "Front", "Given", "Guest",
    "Guests", "Heard", "Held", "Here", "Home", "House", "Inside", "Judged", "Keep", "Kept",
    "Known", "Left", "Letter", "Of", "Opened", "Own", "Passed", "Place", "Ran", "Said", "Saw",
    "Says", "Seen", "Sent", "Standing", "Then", "Through", "To", "Told", "Used", "Wake", "Watched",
    "Way", "What", "Where", "Woken", "Word", "Wrong",
];

/// The macro whose body repeats types that are defined elsewhere, to say how their fields are encoded.
const ENCODING: &str = "messages!";

pub(super) const UNIQUE_TYPES: TidyRule = TidyRule {
    name: "unique-types",
    why: "a search for the name of a type finds that type, and two types of one name are read as one",
    find: |tree, found| {
        let mut types: BTreeMap<&str, Vec<SourceLine>> = BTreeMap::new();
        for (name, place) in tree.rust().flat_map(defined) {
            types.entry(name).or_default().push(place);
        }
        types.retain(|_, places| places.len() > 1);
        for (name, places) in &types {
            for place in places {
                let other = places.iter().find(|other| *other != place).expect("there are two");
                let says =
                    format!("`{name}` is also the type at {other}: name both for what they are");
                found.push(TidyFinding { place: place.clone(), says });
            }
        }
    },
    bad: &[
        ("crates/core/src/a.rs", "//! A.\npub struct Thing;\n"),
        ("crates/sim/src/b.rs", "//! B.\nmod c {\n    pub(super) enum Thing {}\n}\n"),
    ],
    good: &[
        ("crates/core/src/a.rs", "//! A.\npub struct Thing;\n// struct Thing\n"),
        ("crates/sim/src/b.rs", "//! B.\nimpl Medium for B {\n    type Thing = u8;\n}\n"),
        ("crates/sim/src/e.rs", "//! E.\nmessages! {\n    struct Thing { at: u8 }\n}\n"),
    ],
};

pub(super) const NOUNS_FOR_TYPES: TidyRule = TidyRule {
    name: "nouns-for-types",
    why: "a type is a thing of the system and has its noun; a participle or a metaphor is found by nobody who \
          knows the field",
    find: |tree, found| {
        for (name, place) in tree.rust().flat_map(defined) {
            if BANNED.contains(&name) {
                let says = format!("`{name}` is not a noun of the field: name what the type is");
                found.push(TidyFinding { place, says });
            }
        }
    },
    bad: &[
        ("crates/net/src/a.rs", "//! A.\n/// Counts.\nstruct Told {\n    at: u8,\n}\n"),
        ("crates/log/src/b.rs", "//! B.\nstruct Seen;\n"),
    ],
    good: &[
        ("crates/net/src/a.rs", "//! A.\nstruct CarrierEvents {\n    told: u8,\n}\n"),
        ("crates/log/src/b.rs", "//! B.\nstruct Follower;\n// struct Seen\n"),
    ],
};

/// The types that a file defines, and where. An associated type belongs to its trait.
fn defined(file: &SourceFile) -> Vec<(&str, SourceLine)> {
    let masked = file.masked.as_str();
    let encodings: Vec<(usize, usize)> = scan::words(masked, ENCODING)
        .filter_map(|at| {
            let open = at + masked[at..].find('{')?;
            Some((open, scan::closing(masked, open)?))
        })
        .collect();
    let mut found = Vec::new();
    for keyword in ["struct", "enum", "trait", "union", "type"] {
        for at in scan::words(masked, keyword) {
            let name = scan::identifier(masked[at + keyword.len()..].trim_start());
            let line = &masked[masked[..at].rfind('\n').map_or(0, |end| end + 1)..at];
            // Before the keyword of a definition there is its visibility, and nothing else.
            let visible = line.trim().trim_end_matches("unsafe").trim_end();
            let begins = visible.is_empty() || visible == "pub" || visible.starts_with("pub(");
            let associated = keyword == "type" && line.starts_with(' ');
            let encoded = encodings.iter().any(|&(from, to)| from < at && at < to);
            if begins && !associated && !encoded && name.starts_with(char::is_uppercase) {
                found.push((name, file.at(at)));
            }
        }
    }
    found
}

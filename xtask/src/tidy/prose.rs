//! Rules on sentences: comments, documents, help and errors are plain standard English, in which a sentence has
//! a thing of the system for its subject and a verb that says what the thing does.

use super::{TidyFinding, TidyRule};
use crate::scan;
use crate::source::SourceFile;

/// Words in a row, each one of several, that a sentence does without.
struct Phrase {
    /// The words, in small letters.
    words: &'static [&'static [&'static str]],
    /// Whether only a sentence that begins so is meant, and no question.
    opens: bool,
    /// What to write.
    instead: &'static str,
}

const BE: &[&str] = &["be", "been", "being", "is", "are", "was", "were"];

const PHRASES: &[Phrase] = &[
    Phrase {
        words: &[&["what", "who", "whom", "whose"]],
        opens: true,
        instead: "name the thing that the sentence is about",
    },
    Phrase {
        words: &[&["whoever", "whomever", "whatever", "whichever"]],
        opens: false,
        instead: "name the thing: a client, any process, each value",
    },
    Phrase {
        words: &[&["by"], &["way"], &["of"]],
        opens: false,
        instead: "write `via` or `through`",
    },
    Phrase {
        words: &[&["go", "goes", "going", "gone", "went"], &["on"]],
        opens: false,
        instead: "write `continues`, or say what happens next",
    },
    Phrase {
        words: &[&["stands", "stood", "standing"]],
        opens: false,
        instead: "write `is`, `lies`, `applies` or `means`",
    },
    Phrase {
        words: &[BE, &["told"]],
        opens: false,
        instead: "write `learns`, `receives` or `is distinguished`",
    },
    Phrase {
        words: &[BE, &["said"]],
        opens: false,
        instead: "write `is reported`, `is sent` or `states`",
    },
    Phrase {
        words: &[&["has", "have", "had"], &["come"]],
        opens: false,
        instead: "write `arrived`, `reached` or `is due`",
    },
    Phrase {
        words: &[&["left"], &["out", "behind"]],
        opens: false,
        instead: "write `excluded`, `omitted` or `lagging`",
    },
    Phrase {
        words: &[&["lacks", "lacked", "lacking"]],
        opens: false,
        instead: "write `has no`, or name what is missing",
    },
    Phrase {
        words: &[&["redis", "log", "http", "grpc"], &["front"]],
        opens: false,
        instead: "write `gateway`",
    },
    Phrase {
        words: &[&[
            "chronicle",
            "desk",
            "diary",
            "donation",
            "donor",
            "errand",
            "fronts",
            "guest",
            "guests",
            "house",
            "inhabitant",
            "inhabitants",
        ]],
        opens: false,
        instead: "use the word of the field, from the glossary of ARCHITECTURE.md",
    },
];

/// The list of phrases itself.
const EXEMPT: &[&str] = &["xtask/src/tidy/prose.rs"];

pub(super) const PLAIN_SENTENCES: TidyRule = TidyRule {
    name: "plain-sentences",
    why: "an engineer on call reads each sentence once: it names the thing and says what the thing does",
    find: |tree, found| {
        for file in tree.files.iter().filter(|file| !EXEMPT.contains(&file.path.as_str())) {
            for (at, phrase) in phrases(file) {
                let end = file.text[at..].find('\n').map_or(file.text.len(), |end| at + end);
                let near: String = file.text[at..end].chars().take(24).collect();
                let says = format!("`{near}`: {}", phrase.instead);
                found.push(TidyFinding { place: file.at(at), says });
            }
        }
    },
    bad: &[
        ("guide/a.md", "# A\n\nA replica that was left\nout joins again.\n"),
        ("guide/b.md", "The ring decides. Whoever asks is answered.\n"),
        ("crates/net/src/c.rs", "//! C.\n\n/// What is stored.\nstruct C;\n"),
        ("crates/net/src/d.rs", "//! D.\nconst D: &str = \"the node goes on without it\";\n"),
        ("crates/node/src/e.rs", "//! E. It serves the Redis front.\n"),
        ("crates/cli/src/f.rs", "//! F.\nconst F: &str = \"what was cut is in a file\";\n"),
    ],
    good: &[
        (
            "guide/a.md",
            "# What it is\n\nWhat is stored? Records.\n\n```\nwhoever goes on\n```\n\nThe field `stands`.\n",
        ),
        (
            "crates/net/src/c.rs",
            "//! C.\n\n/// The stored records. An excluded replica joins again.\nstruct C;\n",
        ),
        ("crates/net/src/d.rs", "//! D.\nconst D: &str = \"house\";\nfn stands() {}\n"),
    ],
};

/// Where a file has phrases to be mended.
fn phrases(file: &SourceFile) -> Vec<(usize, &'static Phrase)> {
    let mut found = Vec::new();
    for passage in passages(file) {
        let words = words(&file.text, &passage);
        for i in 0..words.len() {
            for phrase in PHRASES.iter().filter(|phrase| words[i..].len() >= phrase.words.len()) {
                let row = phrase.words.iter().zip(&words[i..]);
                let same = row.clone().all(|(any, word)| any.contains(&word.text.as_str()));
                // Words of one phrase are in one sentence.
                let joined = row.skip(1).all(|(_, word)| !word.opens);
                if same && joined && (!phrase.opens || words[i].opens && !is_question(&words[i..]))
                {
                    found.push((words[i].at, phrase));
                }
            }
        }
    }
    found
}

/// A word of a passage.
struct SentenceWord {
    /// It, in small letters.
    text: String,
    /// Its place in the file, in bytes.
    at: usize,
    /// Whether a sentence begins with it.
    opens: bool,
    /// Whether a question mark follows it.
    asks: bool,
}

/// Whether the sentence that begins here is a question.
fn is_question(words: &[SentenceWord]) -> bool {
    let rest = words.iter().skip(1).take_while(|word| !word.opens);
    words.iter().take(1).chain(rest).any(|word| word.asks)
}

/// Stretches of text that are read as sentences: ranges in bytes, each a piece of a line, in the order in which
/// they are read.
fn passages(file: &SourceFile) -> Vec<Vec<(usize, usize)>> {
    if file.path.ends_with(".md") {
        return paragraphs(&file.text);
    }
    if !file.is_rust() {
        return Vec::new();
    }
    let mut found = comments(&file.text, &file.masked);
    let literals = scan::literals(&file.text);
    // Commands and histories in tests are no prose, and neither is a literal without a blank: it is a name.
    let prose = literals.into_iter().filter(|&(from, to)| {
        !file.in_test(from) && file.text[from..to].trim().contains(char::is_whitespace)
    });
    found.extend(prose.map(|range| vec![range]));
    found
}

/// The paragraphs of a document, without code.
fn paragraphs(text: &str) -> Vec<Vec<(usize, usize)>> {
    let mut found = vec![];
    let mut current = vec![];
    let mut code = false;
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let trimmed = line.trim();
        let fence = trimmed.starts_with("```");
        if fence {
            code = !code;
        }
        // A row of a table, an item of a list and a heading begin anew.
        let anew = trimmed.is_empty() || trimmed.starts_with(['|', '-', '*', '#']) || fence;
        if anew && !current.is_empty() {
            found.push(std::mem::take(&mut current));
        }
        let heading = trimmed.starts_with('#');
        if !trimmed.is_empty() && !code && !fence && !heading {
            current.push((at, at + line.len()));
        }
        at += line.len();
    }
    found.push(current);
    found
}

/// The comments of a Rust file: lines that follow each other are one passage, without code in them.
fn comments(text: &str, masked: &str) -> Vec<Vec<(usize, usize)>> {
    let mut found = vec![];
    let mut current = vec![];
    let mut code = false;
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let blank = &masked[at..at + line.len()];
        // A comment begins where the text has two slashes and the code nothing.
        let slashes = line.match_indices("//").find(|&(i, _)| blank[i..].trim().is_empty());
        let whole = slashes.is_some_and(|(i, _)| blank[..i].trim().is_empty());
        if !whole && !current.is_empty() {
            found.push(std::mem::take(&mut current));
            code = false;
        }
        if let Some((i, _)) = slashes {
            let inside = line[i..].trim_start_matches(['/', '!']);
            let from = at + line.len() - inside.len();
            let trimmed = inside.trim();
            let fence = trimmed.starts_with("```");
            if fence {
                code = !code;
            }
            if trimmed.is_empty() || trimmed.starts_with(['|', '-', '*', '#']) {
                found.push(std::mem::take(&mut current));
            }
            if !fence && !code && !trimmed.starts_with('#') {
                current.push((from, at + line.len()));
            }
            if !whole {
                found.push(std::mem::take(&mut current));
            }
        }
        at += line.len();
    }
    found.push(current);
    found
}

/// The words of a passage; code between backticks is none. A literal opens a sentence also with a small letter.
fn words(text: &str, passage: &[(usize, usize)]) -> Vec<SentenceWord> {
    let mut found: Vec<SentenceWord> = Vec::new();
    let (mut code, mut opens) = (false, true);
    for &(from, to) in passage {
        let mut rest = from;
        let is_literal = text[..from].ends_with('"');
        while rest < to {
            let c = text[rest..].chars().next().expect("within the passage");
            let word = &text[rest..to];
            let end = word
                .find(|c: char| !c.is_alphanumeric() && c != '\'' && c != '_')
                .unwrap_or(word.len());
            if c == '`' {
                code = !code;
                opens = false;
            } else if !code && c.is_alphanumeric() {
                let text = word[..end].to_lowercase();
                // A sentence begins with a capital, and an error or a help text with a small letter; a fragment, as a
                // cell of a table, is none.
                let begins = opens && (c.is_uppercase() || is_literal && rest == from);
                found.push(SentenceWord { text, at: rest, opens: begins, asks: false });
                opens = false;
            } else if !code && matches!(c, '.' | '!' | '?') {
                opens = true;
                if let Some(last) = found.last_mut().filter(|_| c == '?') {
                    last.asks = true;
                }
            }
            rest += end.max(c.len_utf8());
        }
    }
    found
}

//! Names that are wrong by a letter or two: which one was meant.

/// How many letters are to be changed, put in or omitted to make one of the other; Levenshtein's distance.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.chars().enumerate() {
        let mut before = i;
        row[0] = i + 1;
        for (j, b) in other.iter().enumerate() {
            let changed = before + usize::from(a != *b);
            before = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(before + 1);
        }
    }
    row[other.len()]
}

/// The name that is most like `name`, if one is like it: of three letters two are right.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let like = |known: &&str| distance(name, known);
    known.into_iter().min_by_key(like).filter(|known| 3 * like(known) <= name.chars().count())
}

/// The parts of a sentence between backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// The keys that would be known, as an error about an unknown one lists them.
pub(super) fn expected(error: &str) -> Vec<&str> {
    error.split_once(", expected").map(|(_, list)| quoted(list).collect()).unwrap_or_default()
}

/// The words of the reader of files for a wrong value, and those for people.
const WORDS: [(&str, &str); 6] = [
    (
        "invalid socket address syntax",
        "give an IP address and a port, such as \"10.0.0.1:7400\": names of hosts are not looked up",
    ),
    ("expected usize", "expected a number"),
    ("expected u64", "expected a number"),
    ("expected u32", "expected a number"),
    ("expected u16", "expected a number"),
    ("expected u8", "expected a number"),
];

/// An error about a file for people, and which key was meant if it is about one that is unknown.
pub(super) fn with_nearest(error: &str) -> String {
    let error = WORDS.iter().fold(error.to_string(), |text, (from, to)| text.replace(from, to));
    let error = error.as_str();
    let unknown = error.split_once("unknown field ").and_then(|(_, rest)| quoted(rest).next());
    match unknown.and_then(|key| nearest(key, expected(error))) {
        Some(key) => format!("{}\nDid you mean `{key}`?\n", error.trim_end()),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::ClusterFile;
    use super::*;

    /// The same by trying every way to begin.
    fn slow(one: &[u8], other: &[u8]) -> usize {
        match (one.split_first(), other.split_first()) {
            (None, _) => other.len(),
            (_, None) => one.len(),
            (Some((a, one_rest)), Some((b, other_rest))) => {
                let change = slow(one_rest, other_rest) + usize::from(a != b);
                change.min(1 + slow(one_rest, other)).min(1 + slow(one, other_rest))
            }
        }
    }

    #[test]
    fn the_distance_is_that_of_the_best_of_all_ways() {
        let words = ["", "a", "b", "ab", "ba", "abc", "acb", "bac", "abab", "cabab"];
        for one in words {
            for other in words {
                let expected = slow(one.as_bytes(), other.as_bytes());
                assert_eq!(distance(one, other), expected, "{one} {other}");
            }
        }
    }

    #[test]
    fn a_wrong_key_is_told_with_the_one_that_was_meant_in_any_table() {
        let told = |text: &str| {
            with_nearest(&toml::from_str::<ClusterFile>(text).unwrap_err().to_string())
        };
        assert!(told("shard = 4").ends_with("Did you mean `shards`?\n"));
        assert!(told("max_memory_mb = 4").ends_with("Did you mean `maxmemory_mb`?\n"));
        assert!(told("[ports]\nreddis = 4").ends_with("Did you mean `redis`?\n"));
        let other = told("[ports]\nsmtp = 25");
        assert!(other.contains("unknown field `smtp`") && !other.contains("Did you mean"));
        assert!(!told("shards = \"x\"").contains("Did you mean"));
        assert!(told("shards = \"x\"").contains("expected a number"));
        let named = told("[nodes.n0]\naddress = \"host1:7400\"");
        assert!(named.contains("give an IP address and a port"), "{named}");
    }
}

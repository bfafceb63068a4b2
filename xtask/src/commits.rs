//! The subjects of the last commits: one shape, short enough for every list that shows them.
//!
//! A subject is `component: verb ..`, or `fix component: verb ..` for a mend, at most 72 characters long, and its
//! verb is an imperative. A merge says `Merge ..`.

use crate::source;
use std::process::Command;

/// So many commits are looked at, merges not counted.
const LAST: usize = 50;
/// The longest subject, in characters: what `git log --oneline` shows on a terminal of 80 columns.
const CHARACTERS_MAX: usize = 72;
/// Imperatives that end as other forms of verbs do.
const IMPERATIVES: &[&str] = &[
    "address", "bring", "bypass", "embed", "exceed", "express", "feed", "focus", "need", "pass",
    "press", "proceed", "process", "ring", "seed", "shed", "spring", "string", "succeed",
    "witness",
];

/// The flaw of a subject, if it has one.
pub fn wrong(subject: &str) -> Option<String> {
    let length = subject.chars().count();
    if length > CHARACTERS_MAX {
        return Some(format!("has {length} characters, at most {CHARACTERS_MAX}"));
    }
    if subject.starts_with("Merge ") {
        return None;
    }
    let Some((component, rest)) = subject.split_once(": ") else {
        return Some("does not begin with `component: `".to_string());
    };
    let components = component.strip_prefix("fix ").unwrap_or(component);
    let named = |part: &str| {
        let known = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_/.".contains(c);
        !part.is_empty() && part.chars().all(known)
    };
    if !components.split(", ").all(named) {
        return Some(format!(
            "`{component}` is not a component, as in `core: ` or `fix net, sim: `"
        ));
    }
    let verb = rest.split([' ', ',']).next().unwrap_or("");
    let other_form = ["ed", "ing", "s"].iter().any(|end| verb.ends_with(end));
    if verb.chars().all(|c| c.is_ascii_lowercase()) && other_form && !IMPERATIVES.contains(&verb) {
        return Some(format!(
            "`{verb}` is not an imperative: say what the commit does, as in `add ..`"
        ));
    }
    (rest.ends_with('.')).then(|| "ends with a full stop".to_string())
}

/// The subjects of the last commits of this branch, the latest first; none where there is no history.
///
/// # Errors
/// When `git` cannot be run.
pub fn subjects() -> Result<Option<Vec<String>>, String> {
    let root = source::root();
    if !root.join(".git").exists() {
        return Ok(None);
    }
    let last = format!("-{LAST}");
    let mut git = Command::new("git");
    // A checkout that belongs to another user is read all the same: only subjects are.
    git.args(["-c", "safe.directory=*", "log", "--no-merges", "--format=%s", &last]);
    let answer = git.current_dir(root).output().map_err(|e| format!("git log: {e}"))?;
    if !answer.status.success() {
        return Err(format!("git log: {}", String::from_utf8_lossy(&answer.stderr).trim()));
    }
    let text = String::from_utf8_lossy(&answer.stdout);
    Ok(Some(text.lines().map(str::to_string).collect()))
}

/// The flaws of the last commits, a line each.
///
/// # Errors
/// As [`subjects`].
pub fn check() -> Result<Option<Vec<String>>, String> {
    let found = subjects()?.map(|subjects| {
        let wrong = subjects.iter().filter_map(|s| wrong(s).map(|why| format!("`{s}`: {why}")));
        wrong.collect()
    });
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_of_one_shape_pass() {
        for subject in [
            "core: name shared parameters once",
            "fix net, sim: refuse a datagram that is too long",
            "docs: AMCAST.TIDY counts as a command that writes",
            "sim: pass the seed on",
            "log-file: bring arguments into one place",
            "Merge the tests of hosts in the simulator",
        ] {
            assert_eq!(wrong(subject), None, "{subject}");
        }
    }

    #[test]
    fn other_subjects_are_found() {
        for (subject, why) in [
            ("core: added a parameter", "`added` is not an imperative"),
            ("core: fixes a parameter", "`fixes` is not an imperative"),
            ("core: renaming of types", "`renaming` is not an imperative"),
            ("make it work", "does not begin"),
            ("Core: name it", "is not a component"),
            ("the whole core: name it", "is not a component"),
            ("core: name it.", "full stop"),
            (&format!("core: {}", "name ".repeat(20)), "has 106 characters"),
        ] {
            let found = wrong(subject).unwrap_or_default();
            assert!(found.contains(why), "{subject}: {found}");
        }
    }
}

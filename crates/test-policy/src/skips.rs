//! Tests that a machine cannot run: they say so, and CI lists those that may.
//!
//! A list has a line `test: reason` for each test that may be skipped; lines that begin with `#`, and
//! empty ones, are passed over. A test is named as its function is.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::Write;
use std::path::Path;

/// The environment variable with the path of the list of permitted skips. Without it every skip is
/// permitted: on a machine of one's own the reason on the screen is enough.
pub const SKIPS: &str = "AMCAST_SKIPS";

/// The skips that a list permits, each with the reason that it gives.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct PermittedSkips(BTreeMap<String, String>);

/// Says on standard error, also where the test's output is captured, that `test` is skipped and why.
/// The test then returns; or it passes without the part that was skipped.
///
/// # Panics
/// If [`SKIPS`] names a list that does not permit it, or cannot be read; and if `test` is not the name
/// of the test that calls this.
#[track_caller]
pub fn skip(test: &str, reason: impl Display) {
    let thread = std::thread::current();
    if let Some(actual) = libtest_name(thread.name()) {
        assert_eq!(test, actual, "the skip names another test than the one that it ends");
    }
    let permitted = PermittedSkips::named_by_environment().unwrap_or_else(|why| panic!("{why}"));
    if let Some(skips) = permitted.filter(|skips| !skips.permit(test)) {
        panic!(
            "{test} was skipped ({reason}), and the list in {SKIPS} does not permit it: make what it \
             needs available, or add a line `{test}: reason` ({} are permitted)",
            skips.0.len()
        );
    }
    let says = format!("skipped: {test}: {reason}\n");
    std::io::stderr().write_all(says.as_bytes()).expect("standard error takes it");
}

/// The function's name in the name that libtest gives the thread of a test. With one thread in all,
/// tests run on `main`, which tells nothing.
fn libtest_name(thread: Option<&str>) -> Option<&str> {
    let name = thread.filter(|name| *name != "main")?;
    name.rsplit("::").next()
}

impl PermittedSkips {
    /// The list that [`SKIPS`] names, if it is set.
    ///
    /// # Errors
    /// When the list cannot be read, and which line is wrong.
    pub fn named_by_environment() -> Result<Option<Self>, String> {
        std::env::var_os(SKIPS).map(|path| Self::read(Path::new(&path))).transpose()
    }

    /// Reads a list.
    ///
    /// # Errors
    /// When the list cannot be read, and which line is wrong.
    pub fn read(path: &Path) -> Result<Self, String> {
        let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
        Self::parse(&text).map_err(|why| format!("{}: {why}", path.display()))
    }

    /// Parses a list.
    ///
    /// # Errors
    /// The line without a reason, or that names a test again.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut skips = BTreeMap::new();
        for (i, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let parts = line.split_once(": ").map(|(test, why)| (test.trim(), why.trim()));
            let Some((test, why)) = parts.filter(|(test, why)| !test.is_empty() && !why.is_empty())
            else {
                return Err(format!("line {} is not `test: reason`", i + 1));
            };
            if skips.insert(test.to_string(), why.to_string()).is_some() {
                return Err(format!("line {} names {test} again", i + 1));
            }
        }
        Ok(Self(skips))
    }

    /// Whether the test may be skipped.
    pub fn permit(&self, test: &str) -> bool {
        self.0.contains_key(test)
    }

    /// The names in the list, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_permits_what_it_names_and_each_line_has_a_reason() {
        let skips = PermittedSkips::parse("# Why.\n\na_test: no etcd\n  b : root: only\n").unwrap();
        assert!(skips.permit("a_test") && skips.permit("b"));
        assert!(!skips.permit("a") && !skips.permit("no etcd"));
        assert_eq!(skips.names().collect::<Vec<_>>(), ["a_test", "b"]);
        for (wrong, line) in
            [("a_test\n", "line 1"), ("a: x\na: y", "line 2"), ("\na: \n", "line 2")]
        {
            assert!(PermittedSkips::parse(wrong).unwrap_err().contains(line), "{wrong}");
        }
    }

    #[test]
    fn the_thread_of_a_test_tells_its_name() {
        assert_eq!(libtest_name(Some("room::a_full_disk")), Some("a_full_disk"));
        assert_eq!(libtest_name(Some("a_full_disk")), Some("a_full_disk"));
        assert_eq!(libtest_name(Some("main")), None);
        assert_eq!(libtest_name(None), None);
    }
}

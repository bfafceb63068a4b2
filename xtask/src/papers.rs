//! Ties between a paper's algorithms, the code and its tests.
//!
//! `papers/<name>.toml`, or `paper.toml` in a protocol's folder, lists every step of every algorithm in our words. A tag above the lines that
//! carry a step, `// [TRAM 2:15-19]`, names algorithm and lines; in tests the same after `test:`.
//! Every step is either coded and tested, or a deviation with its reason. Tags that name no step,
//! lines that are in no step, and tests that do not exist fail the build. So does a test's name that several files
//! have, unless the end of a file's path is before it: `multiring_sim/promises.rs::a_test`.

use crate::scan;
use crate::source::{SourceFile, SourceLine, SourceTree};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// A line of an algorithm: its number, and the line as printed.
type AlgorithmLine = (u32, u32);

/// The steps of one paper.
#[derive(Debug)]
pub struct Paper {
    /// How tags name it.
    pub tag: String,
    /// The folder whose files carry its tags.
    code: String,
    /// Each algorithm's number, and how many lines it has.
    algorithms: Vec<(u32, u32)>,
    /// In order of the paper.
    steps: Vec<PaperStep>,
}

/// A step.
#[derive(Debug)]
struct PaperStep {
    /// As written: `2:15-19`.
    at: String,
    lines: Vec<AlgorithmLine>,
    says: String,
    tests: Vec<String>,
    because: Option<String>,
}

/// The state of a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum StepState {
    Done,
    Deviation,
    Missing { code: bool, test: bool },
}

/// A tag in a file.
struct Tag {
    place: SourceLine,
    lines: Vec<AlgorithmLine>,
    test: bool,
}

/// The findings about a paper.
#[derive(Debug)]
pub struct PaperReport {
    tag: String,
    rows: Vec<(String, String, StepState)>,
    /// The faults; empty if all is well.
    pub faults: Vec<String>,
}

impl fmt::Display for PaperReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, says, state) in &self.rows {
            let state = match state {
                StepState::Done => "coded, tested",
                StepState::Deviation => "deviation",
                StepState::Missing { code: true, test: false } => "NOT TESTED",
                StepState::Missing { code: false, test: true } => "NOT CODED",
                StepState::Missing { .. } => "MISSING",
            };
            writeln!(f, "{:<8} {at:<9} {state:<14} {says}", self.tag)?;
        }
        let deviations = self.rows.iter().filter(|row| row.2 == StepState::Deviation).count();
        writeln!(f, "{}: {} steps, {deviations} deviations", self.tag, self.rows.len())?;
        self.faults.iter().try_for_each(|fault| writeln!(f, "fault: {fault}"))
    }
}

/// The papers of a tree, each looked at.
///
/// # Errors
/// The fault of a paper's file.
pub fn check(tree: &SourceTree) -> Result<Vec<PaperReport>, String> {
    let of_folder =
        |path: &str| path.starts_with("crates/protocols/src/") && path.ends_with("/paper.toml");
    let lists =
        |path: &str| path.starts_with("papers/") && path.ends_with(".toml") || of_folder(path);
    let files = tree.files.iter().filter(|f| lists(&f.path));
    files.map(|file| Ok(Paper::parse(file)?.report(tree))).collect()
}

impl Paper {
    /// Reads the steps of a paper.
    ///
    /// # Errors
    /// When the file is not of that form.
    fn parse(file: &SourceFile) -> Result<Self, String> {
        let wrong = |what: &str| format!("{}: {what}", file.path);
        let table: toml::Table = file.text.parse().map_err(|e| wrong(&format!("{e}")))?;
        let text = |table: &toml::Table, key: &str| {
            let value = table.get(key).and_then(toml::Value::as_str);
            value.map(str::to_string).ok_or_else(|| wrong(&format!("`{key}` is missing")))
        };
        let list = |key: &str| {
            let tables = table.get(key).and_then(toml::Value::as_array);
            let tables = tables.into_iter().flatten().map(toml::Value::as_table);
            tables.collect::<Option<Vec<_>>>().ok_or_else(|| wrong(&format!("`{key}`: tables")))
        };
        let mut algorithms = Vec::new();
        for algorithm in list("algorithm")? {
            let number = |key: &str| {
                let value = algorithm.get(key).and_then(toml::Value::as_integer);
                value.and_then(|n| u32::try_from(n).ok()).ok_or_else(|| wrong(key))
            };
            algorithms.push((number("number")?, number("lines")?));
        }
        let mut steps = Vec::new();
        for step in list("step")? {
            let at = text(step, "at")?;
            let lines = lines(&at).ok_or_else(|| wrong(&format!("`{at}` names no lines")))?;
            let tests = step.get("tests").and_then(toml::Value::as_array).into_iter().flatten();
            let tests = tests.filter_map(|t| t.as_str().map(str::to_string)).collect();
            let because = step.get("because").map(|_| text(step, "because")).transpose()?;
            steps.push(PaperStep { lines, says: text(step, "says")?, tests, because, at });
        }
        Ok(Self { tag: text(&table, "tag")?, code: text(&table, "code")?, algorithms, steps })
    }

    /// The state of each step in a tree, and the faults.
    fn report(&self, tree: &SourceTree) -> PaperReport {
        let mut faults = Vec::new();
        let tags: Vec<Tag> = tree.rust().flat_map(|file| self.tags(file)).collect();
        let all: BTreeSet<AlgorithmLine> =
            self.algorithms.iter().flat_map(|&(a, n)| (1..=n).map(move |line| (a, line))).collect();
        self.account(&all, &mut faults);
        for tag in &tags {
            if let Some((a, line)) = tag.lines.iter().find(|line| !all.contains(line)) {
                faults.push(format!("{}: [{} {a}:{line}] names no step", tag.place, self.tag));
            }
        }
        let covered = |test: bool| -> BTreeSet<AlgorithmLine> {
            tags.iter().filter(|t| t.test == test).flat_map(|t| t.lines.iter().copied()).collect()
        };
        let (coded, tagged) = (covered(false), covered(true));
        let existing = tests(tree);
        let mut rows = Vec::new();
        for step in &self.steps {
            for test in &step.tests {
                let fault = tie_fault(test, &existing);
                faults.extend(fault.map(|fault| format!("{} {}: {fault}", self.tag, step.at)));
            }
            let state = step.state(&coded, &tagged);
            if let StepState::Missing { code, test } = state {
                let missing = match (code, test) {
                    (false, false) => "neither code nor test nor a reason to deviate",
                    (false, true) => "no code with its tag",
                    _ => "no test",
                };
                faults.push(format!("{} {}: {missing}", self.tag, step.at));
            }
            rows.push((step.at.clone(), step.says.clone(), state));
        }
        PaperReport { tag: self.tag.clone(), rows, faults }
    }

    /// Every line of every algorithm is in one step, and steps have only such lines.
    fn account(&self, all: &BTreeSet<AlgorithmLine>, faults: &mut Vec<String>) {
        let mut seen = BTreeSet::new();
        for step in &self.steps {
            for &line in &step.lines {
                if !all.contains(&line) {
                    faults
                        .push(format!("{} {}: the algorithm has no such line", self.tag, step.at));
                } else if !seen.insert(line) {
                    faults.push(format!("{} {}:{}: in two steps", self.tag, line.0, line.1));
                }
            }
            if step.because.as_ref().is_some_and(|why| why.trim().is_empty()) {
                faults.push(format!("{} {}: a deviation without a reason", self.tag, step.at));
            }
        }
        for (a, line) in all.difference(&seen) {
            faults.push(format!("{} {a}:{line}: in no step", self.tag));
        }
    }

    /// The tags of this paper in a file. In tests only what comes after `test:` counts.
    fn tags(&self, file: &SourceFile) -> Vec<Tag> {
        let open = format!("[{} ", self.tag);
        let mut found = Vec::new();
        for (at, _) in file.text.match_indices(&open) {
            let start = file.text[..at].rfind('\n').map_or(0, |i| i + 1);
            let before = &file.text[start..at];
            let inside = &file.text[at + open.len()..];
            let Some(inside) = inside.split(']').next().filter(|i| i.contains(':')) else {
                continue;
            };
            let Some(lines) = lines(inside) else { continue };
            let test = before.contains("test:");
            let counts = if test { file.in_test(at) } else { file.path.starts_with(&self.code) };
            // Strings are no tags, and neither is what a test says without `test:`.
            let comment = before.trim_start().starts_with("//");
            if comment && counts && (test || !file.in_test(at)) {
                found.push(Tag { place: file.at(at), lines, test });
            }
        }
        found
    }
}

impl PaperStep {
    fn state(
        &self,
        coded: &BTreeSet<AlgorithmLine>,
        tagged: &BTreeSet<AlgorithmLine>,
    ) -> StepState {
        if self.because.is_some() {
            return StepState::Deviation;
        }
        let all_in =
            |set: &BTreeSet<AlgorithmLine>| self.lines.iter().all(|line| set.contains(line));
        let (code, test) = (all_in(coded), !self.tests.is_empty() || all_in(tagged));
        if code && test { StepState::Done } else { StepState::Missing { code, test } }
    }
}

/// `2:15-19` and `2:20,29` as lines.
fn lines(text: &str) -> Option<Vec<AlgorithmLine>> {
    let (algorithm, ranges) = text.split_once(':')?;
    let algorithm = algorithm.trim().parse().ok()?;
    let mut found = Vec::new();
    for range in ranges.split(',') {
        let (from, to) = range.split_once('-').unwrap_or((range, range));
        let (from, to): (u32, u32) = (from.trim().parse().ok()?, to.trim().parse().ok()?);
        found.extend((from..=to).map(|line| (algorithm, line)));
    }
    (!found.is_empty()).then_some(found)
}

/// The fault of a step's tie to a test, if it has one: `name`, or `end/of/path.rs::name`.
fn tie_fault(test: &str, existing: &BTreeMap<&str, Vec<&str>>) -> Option<String> {
    let (file, name) = test.rsplit_once("::").unwrap_or(("", test));
    let is_meant = |path: &&&str| match path.strip_suffix(file) {
        Some(folder) => file.is_empty() || folder.is_empty() || folder.ends_with('/'),
        None => false,
    };
    let places = existing.get(name).map_or(0, |paths| paths.iter().filter(is_meant).count());
    match places {
        0 => Some(format!("there is no test `{test}`")),
        1 => None,
        n => Some(format!(
            "{n} tests are called `{test}`: write the file's name before it, as in `a.rs::{name}`"
        )),
    }
}

/// The files of all tests of a tree, by the tests' names.
fn tests(tree: &SourceTree) -> BTreeMap<&str, Vec<&str>> {
    let mut found: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for file in tree.rust() {
        for (at, _) in file.masked.match_indices("#[test]") {
            let rest = &file.masked[at..];
            if let Some(f) = scan::words(rest, "fn").next() {
                let name = scan::identifier(rest[f + 2..].trim_start());
                found.entry(name).or_default().push(&file.path);
            }
        }
    }
    found
}

#[cfg(test)]
mod unit {
    use super::*;

    const STEPS: &str = "tag = \"P\"\ncode = \"src/p\"\n[[algorithm]]\nnumber = 1\nlines = 3\n\
        [[step]]\nat = \"1:1-2\"\nsays = \"go\"\ntests = [\"it_goes\"]\n\
        [[step]]\nat = \"1:3\"\nsays = \"stop\"\nbecause = \"nobody stops\"\n";
    const CODE: &str = "//! P.\n// [P 1:1-2] goes\nfn go() {}\n";
    const TEST: &str = "//! T.\n#[test]\nfn it_goes() {}\n";

    fn faults(steps: &str, code: &str, test: &str) -> Vec<String> {
        let samples = [("papers/p.toml", steps), ("src/p/a.rs", code), ("tests/a.rs", test)];
        check(&SourceTree::of(&samples)).unwrap().remove(0).faults
    }

    #[test]
    fn a_paper_with_every_step_in_place_has_no_faults() {
        assert_eq!(faults(STEPS, CODE, TEST), Vec::<String>::new());
        let by_tag = STEPS.replace("tests = [\"it_goes\"]\n", "");
        let tagged = TEST.replace("#[test]", "// test: [P 1:1-2]\n#[test]");
        assert_eq!(faults(&by_tag, CODE, &tagged), Vec::<String>::new());
    }

    #[test]
    fn each_gap_is_a_fault() {
        let one = |steps: &str, code: &str, test: &str, says: &str| {
            let found = faults(steps, code, test);
            assert!(found.iter().any(|f| f.contains(says)), "{says}: {found:?}");
        };
        one(STEPS, "//! P.\n", TEST, "no code");
        one(STEPS, &CODE.replace("1-2", "1"), TEST, "no code");
        one(STEPS, CODE, "//! T.\n", "there is no test `it_goes`");
        one(&STEPS.replace("[\"it_goes\"]", "[]"), CODE, TEST, "1:1-2: no test");
        one(STEPS, &CODE.replace("1-2", "1-4"), TEST, "[P 1:4] names no step");
        one(&STEPS.replace("lines = 3", "lines = 4"), CODE, TEST, "1:4: in no step");
        one(&STEPS.replace("1:3", "1:2-3"), CODE, TEST, "in two steps");
        one(&STEPS.replace("nobody stops", ""), CODE, TEST, "without a reason");
        assert!(check(&SourceTree::of(&[("papers/p.toml", "tag = 3")])).is_err());
    }

    #[test]
    fn a_test_whose_name_several_files_have_is_named_with_its_file() {
        let found = |tie: &str| {
            let steps = STEPS.replace("it_goes", tie);
            let samples = [
                ("papers/p.toml", &*steps),
                ("src/p/a.rs", CODE),
                ("x/tests/a.rs", TEST),
                ("x/tests/aa.rs", TEST),
            ];
            check(&SourceTree::of(&samples)).unwrap().remove(0).faults
        };
        assert!(found("it_goes")[0].contains("2 tests are called `it_goes`"));
        assert_eq!(found("a.rs::it_goes"), Vec::<String>::new());
        assert_eq!(found("tests/aa.rs::it_goes"), Vec::<String>::new());
        assert!(found("b.rs::it_goes")[0].contains("there is no test"));
        assert!(found("a.rs::it_stops")[0].contains("there is no test"));
    }

    #[test]
    fn lines_are_read_from_ranges_and_lists() {
        assert_eq!(lines("2:15-17"), Some(vec![(2, 15), (2, 16), (2, 17)]));
        assert_eq!(lines("2:20,29"), Some(vec![(2, 20), (2, 29)]));
        assert_eq!(lines("2.1"), None);
    }
}

//! Recorded histories as they lie in files: one, or a directory with one of each process.

use amcast_check::History;
use amcast_lab::commands::Failure;
use amcast_node::history::file_names;
use amcast_node::system::refuses_file;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

/// How many missing files are named.
const NAMED_MAX: usize = 4;

/// A line of one of several files.
pub(super) struct MergedLine {
    file: usize,
    /// Its number in the file, from 1.
    number: u32,
    text: String,
}

/// Where the lines of a history come from. It can be gone through more than once.
pub(super) enum HistoryInput {
    /// One file, read anew each time.
    File(PathBuf),
    /// Several, merged by time.
    Merged(Vec<PathBuf>, Vec<MergedLine>),
}

impl HistoryInput {
    /// Those of the file or directory at `path`.
    pub(super) fn of(path: &Path) -> Result<Self, Failure> {
        if !path.is_dir() {
            return Ok(Self::File(path.to_path_buf()));
        }
        let fail =
            |why: &dyn std::fmt::Display| Failure::Misuse(format!("{}: {why}", path.display()));
        let entries = fs::read_dir(path).map_err(|e| fail(&e))?;
        let mut files: Vec<PathBuf> = entries.flatten().map(|e| e.path()).collect();
        files.retain(|f| f.extension().is_some_and(|e| e == "jsonl"));
        files.sort();
        if files.is_empty() {
            return Err(fail(&"holds no history (*.jsonl)"));
        }
        let lines = merged(&files)?;
        Ok(Self::Merged(files, lines))
    }

    /// Gives every line with the name of its file and its number there, from 1, in the order in which
    /// the checker reads them.
    pub(super) fn each(
        &self,
        take: &mut dyn FnMut(&str, u32, &str) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        match self {
            Self::File(path) => {
                let name = path.display().to_string();
                read_into(path, &mut |number, line| take(&name, number, line))
            }
            Self::Merged(files, lines) => {
                let names: Vec<String> = files.iter().map(|f| f.display().to_string()).collect();
                lines.iter().try_for_each(|l| take(&names[l.file], l.number, &l.text))
            }
        }
    }

    /// The files that are missing beside these, in words.
    fn missing(&self) -> Result<Option<String>, Failure> {
        match self {
            Self::File(path) => Ok(others_than(path)),
            Self::Merged(files, _) => {
                let dir = files.first().and_then(|file| file.parent()).unwrap_or(Path::new("."));
                let noted = file_names(dir).map_err(|e| Failure::Misuse(refuses_file(dir, &e)))?;
                Ok(missing(files, &noted))
            }
        }
    }

    /// The history that they are.
    pub(super) fn history(&self) -> Result<History, Failure> {
        let mut history = History::new();
        if let Self::File(path) = self {
            // An error about a line names the file itself.
            history.file(&path.display().to_string());
        }
        let lost = self.missing()?;
        let read = self.each(&mut |name, number, text| {
            if let Self::Merged(..) = self {
                history.file_from(name, number);
            }
            history.push_line(text).map_err(Failure::misuse)
        });
        match (&lost, read) {
            // A line may refer to one in a missing file.
            (Some(lost), Err(Failure::Misuse(why))) => {
                return Err(Failure::Misuse(format!("{why}; there is no history of {lost}")));
            }
            (_, read) => read?,
        }
        lost.into_iter().for_each(|of| history.lacks(&of));
        Ok(history)
    }
}

/// The name of a process, and which of its files it is, where the name of a file is that of one of a recorded run's.
fn of_recording(path: &Path) -> Option<(&str, u32)> {
    let (of, run) = path.file_name()?.to_str()?.strip_suffix(".jsonl")?.rsplit_once('.')?;
    let numbered = |prefix: &str| {
        let number = of.strip_prefix(prefix).map(|rest| rest.strip_suffix("-sent").unwrap_or(rest));
        number.is_some_and(|number| number.parse::<usize>().is_ok())
    };
    let is_ours = of == "supervisor" || ["n", "c", "calls-c"].iter().any(|prefix| numbered(prefix));
    is_ours.then(|| run.parse().ok()).flatten().map(|run| (of, run))
}

/// The files of which a history that is one file of a recorded run has nothing.
fn others_than(path: &Path) -> Option<String> {
    of_recording(path)?;
    let dir = path.parent().filter(|dir| *dir != Path::new("")).unwrap_or(Path::new("."));
    Some(format!("the other processes, whose files are in {}", dir.display()))
}

/// The files that a recorded run must have had beside these, and that are not there, in words: those that its processes
/// `noted`. In any case the first of these: one of a node with a lower number, an earlier one of a process, or what a node
/// sent, where others have such a file.
fn missing(files: &[PathBuf], noted: &[String]) -> Option<String> {
    let known: BTreeSet<(&str, u32)> = files.iter().filter_map(|file| of_recording(file)).collect();
    let number = |of: &str| of.strip_prefix('n').and_then(|n| n.parse::<usize>().ok());
    let node = |of: &str| number(of).is_some();
    let nodes = known.iter().filter_map(|(of, _)| number(of)).max().unwrap_or(0);
    let sends = known.iter().any(|(of, _)| of.strip_suffix("-sent").is_some_and(node));
    let wanted = known.iter().flat_map(|&(of, run)| {
        let earlier = run.checked_sub(1).map(|before| (of.to_string(), before));
        let sent = (sends && node(of)).then(|| (format!("{of}-sent"), run));
        let main = of.strip_suffix("-sent").map(|of| (of.to_string(), run));
        [earlier, sent, main].into_iter().flatten()
    });
    let first = (0..nodes).map(|n| (format!("n{n}"), 0));
    let is_lost = |(of, run): &(String, u32)| !known.contains(&(of.as_str(), *run));
    let noted = noted.iter().filter_map(|name| of_recording(Path::new(name)));
    // In their order; a file may be noted more than once.
    let mut seen = BTreeSet::new();
    let noted = noted.filter(|of| seen.insert(*of)).map(|(of, run)| (of.to_string(), run));
    let mut lost: Vec<_> = noted.filter(is_lost).collect();
    if lost.is_empty() {
        lost.extend(first.chain(wanted).find(is_lost));
    }
    let more = lost.len().saturating_sub(NAMED_MAX);
    let name = |(of, run): &(String, u32)| format!("{of}.{run}.jsonl");
    let mut named = lost.iter().take(NAMED_MAX).map(name).collect::<Vec<_>>().join(", ");
    if more > 0 {
        named += &format!(" and {more} more files");
    }
    if lost.iter().any(|(of, _)| of.starts_with("calls-")) {
        named += " (calls-*: what clients called at one gateway)";
    }
    (!lost.is_empty()).then_some(named)
}

/// The lines of all files in order of time: processes first, the end last. Lines of one file stay
/// in their order. A last line that was cut off by a kill is omitted; any other that cannot be read
/// is an error.
fn merged(files: &[PathBuf]) -> Result<Vec<MergedLine>, Failure> {
    let mut by_time: BTreeMap<(u64, usize, u32), MergedLine> = BTreeMap::new();
    for (file, path) in files.iter().enumerate() {
        let (mut last, mut unread) = (0, None);
        let wrong = |number: u32, why: &dyn std::fmt::Display| {
            Failure::Misuse(format!("{}: line {number} cannot be read: {why}", path.display()))
        };
        read_into(path, &mut |number, text| {
            if text.is_empty() {
                return Ok(());
            }
            if let Some((number, e)) = &unread {
                return Err(wrong(*number, e));
            }
            let event = match serde_json::from_str::<serde_json::Value>(text) {
                Ok(event) => event,
                Err(e) if e.is_eof() => {
                    unread = Some((number, e));
                    return Ok(());
                }
                Err(e) => return Err(wrong(number, &e)),
            };
            let end = event.get("ev").is_some_and(|ev| ev == "end");
            let t =
                if end { u64::MAX } else { event.get("t").and_then(|t| t.as_u64()).unwrap_or(0) };
            last = t.max(last);
            let line = MergedLine { file, number, text: text.to_string() };
            by_time.insert((last, file, number), line);
            Ok(())
        })?;
    }
    Ok(by_time.into_values().collect())
}

/// Gives every line of a file, with its number from 1.
fn read_into(
    path: &Path,
    take: &mut dyn FnMut(u32, &str) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let file = File::open(path).map_err(|e| Failure::Misuse(refuses_file(path, &e)))?;
    for (number, line) in (1..).zip(BufReader::new(file).lines()) {
        let line = line.map_err(|e| match e.kind() {
            std::io::ErrorKind::InvalidData => Failure::Misuse(format!(
                "{}, line {number}: is no text (UTF-8), and a history is lines of JSON; is it the right \
                 file, and whole?",
                path.display()
            )),
            _ => Failure::Misuse(refuses_file(path, &e)),
        })?;
        take(number, &line)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use amcast_check::Property;

    fn read(path: &Path) -> Result<History, Failure> {
        HistoryInput::of(path)?.history()
    }

    #[test]
    fn files_are_merged_by_time_and_a_cut_line_is_left_out() {
        let dir = std::env::temp_dir().join(format!("amcast-merge-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let write = |name: &str, lines: &[&str]| {
            let path = dir.join(name);
            fs::write(&path, lines.join("\n")).unwrap();
            path
        };
        let a = write("a.jsonl", &[r#"{"ev":"process","p":"a"}"#, r#"{"t":5}"#, r#"{"ev":"end"}"#]);
        let b = write("b.jsonl", &[r#"{"ev":"process","p":"b"}"#, r#"{"t":3}"#, r#"{"t":7"#]);
        let texts: Vec<_> = merged(&[a, b]).unwrap().into_iter().map(|l| l.text).collect();
        let expected = [
            r#"{"ev":"process","p":"a"}"#,
            r#"{"ev":"process","p":"b"}"#,
            r#"{"t":3}"#,
            r#"{"t":5}"#,
            r#"{"ev":"end"}"#,
        ];
        assert_eq!(texts, expected);
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn of_several_files_only_a_last_line_may_be_cut_and_places_are_those_in_the_file() {
        let directory = std::env::temp_dir().join(format!("amcast-check-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let line = |t: u64| format!(r#"{{"ev":"deliver","t":{t},"p":"a","m":"a:{t}"}}"#);
        let head = r#"{"ev":"process","p":"a","groups":["g"]}"#;
        let file = directory.join("a.0.jsonl");
        let cut = &line(9)[..20];
        fs::write(&file, [head, &line(1), &line(1), cut].join("\n")).unwrap();
        let report = amcast_check::check(&read(&directory).unwrap(), &[Property::Ui]).to_string();
        assert!(report.contains("a.0.jsonl: line 2"), "{report}");
        for wrong in ["garbage", cut] {
            fs::write(&file, [head, &line(1), wrong, &line(2)].join("\n")).unwrap();
            let Err(Failure::Misuse(why)) = read(&directory) else { panic!("{wrong} is read") };
            assert!(why.contains("a.0.jsonl: line 3 cannot be read"), "{why}");
        }
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn the_file_that_a_recorded_run_lacks_is_named() {
        let of = |names: &[&str], noted: &[&str]| {
            let files: Vec<PathBuf> = names.iter().map(|name| Path::new("d").join(name)).collect();
            let noted: Vec<String> = noted.iter().map(|name| name.to_string()).collect();
            missing(&files, &noted)
        };
        let named = |names: &[&str]| of(names, &[]);
        let whole = ["n0.0.jsonl", "n0-sent.0.jsonl", "n1.0.jsonl", "n1-sent.0.jsonl"];
        assert_eq!(named(&whole), None);
        assert_eq!(named(&whole[..3]).as_deref(), Some("n1-sent.0.jsonl"));
        assert_eq!(named(&whole[1..]).as_deref(), Some("n0.0.jsonl"));
        assert_eq!(named(&["c1.0.jsonl", "n0.0.jsonl", "supervisor.0.jsonl"]), None);
        assert_eq!(named(&["n0.0.jsonl", "n0.2.jsonl"]).as_deref(), Some("n0.1.jsonl"));
        assert_eq!(named(&["n0.0.jsonl", "n2.0.jsonl"]).as_deref(), Some("n1.0.jsonl"));
        assert_eq!(named(&["a.jsonl", "run-7.jsonl", "b.1.jsonl"]), None);
        let noted = ["n0.0.jsonl", "calls-c0.0.jsonl", "notes.txt", "n0.0.jso"];
        assert_eq!(of(&noted[..2], &noted), None);
        let calls = of(&noted[..1], &noted).unwrap();
        assert_eq!(calls, "calls-c0.0.jsonl (calls-*: what clients called at one gateway)");
        let twice = [noted[0], noted[1], noted[0], noted[1]];
        assert_eq!(of(&noted[..1], &twice), Some(calls), "a file that is noted twice is told once");
        let many: Vec<String> = (0..6).map(|n| format!("n{n}.0.jsonl")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let lost = of(&[], &many).unwrap();
        assert_eq!(lost, "n0.0.jsonl, n1.0.jsonl, n2.0.jsonl, n3.0.jsonl and 2 more files");
        assert_eq!(others_than(Path::new("run.jsonl")), None);
        let one = others_than(Path::new("d/n0.0.jsonl")).unwrap();
        assert!(one.contains("the other processes") && one.ends_with(" d"), "{one}");
    }
}

//! Recorded histories as they lie in files: one, or a directory with one of each process.

use amcast_check::History;
use amcast_lab::commands::Failure;
use amcast_node::system::refuses_file;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

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

    /// The history that they are.
    pub(super) fn history(&self) -> Result<History, Failure> {
        let mut history = History::new();
        if let Self::File(path) = self {
            // An error about a line names the file itself.
            history.file(&path.display().to_string());
        }
        self.each(&mut |name, number, text| {
            if let Self::Merged(..) = self {
                history.file_from(name, number);
            }
            history.push_line(text).map_err(Failure::misuse)
        })?;
        Ok(history)
    }
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
}

//! `amcast check`: a recorded history against the properties.

use super::Failure;
use amcast_check::{History, Property, check, expand};
use amcast_runtime::system::refuses_file;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

/// What is judged unless something else is asked for.
const USUAL: &[Property] = &[
    Property::Validity,
    Property::UniformAgreement,
    Property::UniformIntegrity,
    Property::UniformPrefixOrder,
    Property::UniformAcyclicOrder,
];

/// What is judged besides if clients called a service.
const USUAL_OF_CALLS: &[Property] = &[Property::Linearizable, Property::ExactlyOnce];

/// Judges a recorded history, or a directory of them, which is merged.
///
/// Exits with 1 if a property does not hold, or is required and cannot be judged. Liveness is judged
/// only if the run settled. Unless it is told what to judge, it judges the delivery of messages, and of a service's calls whether they
/// are linearizable and took effect once.
#[derive(clap::Args)]
pub(super) struct Args {
    /// A history (JSON lines), or a directory of them
    path: PathBuf,
    /// Properties or specifications, such as uniform-acyclic-order or TO(UA,SUTO)
    #[arg(long, value_name = "NAME", value_delimiter = ';', num_args = 1)]
    require: Vec<String>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let required = properties(&args.require)?;
    let mut history = read(&args.path)?;
    let asked = !required.is_empty();
    let properties = if asked { required } else { usual(&history) };
    if history.messages() == 0 && history.calls() == 0 {
        let path = args.path.display();
        return Err(Failure::Failed(format!(
            "{path}: nothing was multicast, and no service called"
        )));
    }
    let left_out = history.leave_out();
    if !left_out.is_empty() {
        eprintln!("{left_out}");
    }
    let report = check(&history, &properties);
    if args.json {
        println!("{}", report.json());
    } else {
        print!("{report}");
        println!("{} messages, {} deliveries", history.messages(), history.deliveries());
    }
    // What was asked for by name must be found to hold; what is judged anyway must not be broken.
    let sound = if asked { report.all_hold() } else { report.no_violation() };
    if sound { Ok(()) } else { Err(Failure::Said) }
}

/// What is judged of this history unless something else is asked for.
fn usual(history: &History) -> Vec<Property> {
    let of_calls = if history.calls() > 0 { USUAL_OF_CALLS } else { &[] };
    [USUAL, of_calls].concat()
}

/// The properties of these names; commas may stand between names, and within TO(A,O).
fn properties(names: &[String]) -> Result<Vec<Property>, Failure> {
    let mut all = Vec::new();
    for name in names.iter().flat_map(|text| split(text)) {
        let found = expand(&name).ok_or_else(|| {
            let known: Vec<_> = Property::ALL.iter().map(|p| p.name()).collect();
            Failure::Misuse(format!(
                "no property is named {name:?}; there are: {}, and TO(A,O)",
                known.join(", ")
            ))
        })?;
        all.extend(found.into_iter().filter(|p| !all.contains(p)).collect::<Vec<_>>());
    }
    Ok(all)
}

/// Splits at commas that are not within parentheses.
fn split(text: &str) -> Vec<String> {
    let (mut parts, mut depth) = (vec![String::new()], 0_i32);
    for ch in text.chars() {
        depth += i32::from(ch == '(') - i32::from(ch == ')');
        match (ch, parts.last_mut()) {
            (',', _) if depth == 0 => parts.push(String::new()),
            (_, Some(last)) => last.push(ch),
            (_, None) => {}
        }
    }
    parts.iter().map(|p| p.trim().to_string()).filter(|p| !p.is_empty()).collect()
}

fn read(path: &Path) -> Result<History, Failure> {
    let fail = |path: &Path, e: &dyn std::fmt::Display| {
        Failure::Misuse(format!("{}: {e}", path.display()))
    };
    let mut history = History::new();
    if !path.is_dir() {
        // What is wrong with a line names the file by itself.
        history.file(&path.display().to_string());
        read_into(path, &mut |line| history.push_line(line).map_err(Failure::misuse))?;
        return Ok(history);
    }
    let entries = fs::read_dir(path).map_err(|e| fail(path, &e))?;
    let mut files: Vec<PathBuf> = entries.flatten().map(|e| e.path()).collect();
    files.retain(|f| f.extension().is_some_and(|e| e == "jsonl"));
    files.sort();
    if files.is_empty() {
        return Err(fail(path, &"holds no history (*.jsonl)"));
    }
    for line in merged(&files)? {
        history.file_from(&files[line.file].display().to_string(), line.number);
        history.push_line(&line.text).map_err(Failure::misuse)?;
    }
    Ok(history)
}

/// A line of one of several files.
struct Line {
    file: usize,
    /// Its number in the file, from 1.
    number: u32,
    text: String,
}

/// The lines of all files in order of time: processes first, the end last. Lines of one file stay
/// in their order. A last line that was cut off by a kill is left out; any other that cannot be read is
/// an error.
fn merged(files: &[PathBuf]) -> Result<Vec<Line>, Failure> {
    let mut by_time: BTreeMap<(u64, usize, u32), Line> = BTreeMap::new();
    for (file, path) in files.iter().enumerate() {
        let (mut number, mut last, mut unread) = (0_u32, 0, None);
        let wrong = |number: u32, why: &dyn std::fmt::Display| {
            Failure::Misuse(format!("{}: line {number} cannot be read: {why}", path.display()))
        };
        read_into(path, &mut |text| {
            if let Some((number, e)) = &unread {
                return Err(wrong(*number, e));
            }
            number += 1;
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
            let line = Line { file, number, text: text.to_string() };
            by_time.insert((last, file, number), line);
            Ok(())
        })?;
    }
    Ok(by_time.into_values().collect())
}

fn read_into(
    path: &Path,
    take: &mut dyn FnMut(&str) -> Result<(), Failure>,
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
        if !line.is_empty() {
            take(&line)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_split_outside_of_parentheses() {
        assert_eq!(split("validity, TO(UA,SUTO),genuine"), ["validity", "TO(UA,SUTO)", "genuine"]);
        assert!(properties(&["TO(UA,SUTO)".to_string()]).is_ok_and(|p| p.len() > 1));
        assert!(matches!(properties(&["nope".to_string()]), Err(Failure::Misuse(_))));
    }

    #[test]
    fn calls_of_a_service_are_judged_without_being_asked_for() {
        let mut history = History::new();
        history.push_line(r#"{"ev":"process","p":"c1","groups":[]}"#).unwrap();
        assert_eq!(usual(&history), USUAL);
        let call = r#"{"ev":"call","t":1,"p":"c1","m":"c1:1","op":"get a","out":""}"#;
        history.push_line(call).unwrap();
        let judged = usual(&history);
        assert!(judged.contains(&Property::Linearizable), "{judged:?}");
        assert!(judged.contains(&Property::ExactlyOnce) && judged.starts_with(USUAL));
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

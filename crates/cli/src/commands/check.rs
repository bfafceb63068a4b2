//! `amcast check`: a recorded history against the properties.

use super::histories::HistoryInput;
use amcast_check::{CheckReport, History, Property, check, expand};
use amcast_lab::commands::Failure;
use std::path::PathBuf;

/// The properties judged by default.
const USUAL: &[Property] = &[
    Property::Validity,
    Property::UniformAgreement,
    Property::UniformIntegrity,
    Property::UniformPrefixOrder,
    Property::UniformAcyclicOrder,
];

/// The further properties judged by default if clients called a service.
const USUAL_OF_CALLS: &[Property] = &[Property::Linearizable, Property::ExactlyOnce];

/// Judges a recorded history, or a directory of them, which is merged.
///
/// Exits with 1 if a property does not hold, or is required and cannot be judged. Liveness is judged
/// only if the run settled. By default it judges the delivery of messages, and whether a service's
/// calls are linearizable and took effect once.
#[derive(clap::Args)]
pub(super) struct CheckArgs {
    /// A history (JSON lines), or a directory of them
    path: PathBuf,
    /// Properties or specifications, such as uniform-acyclic-order or TO(UA,SUTO)
    #[arg(long, value_name = "NAME", value_delimiter = ';', num_args = 1)]
    require: Vec<String>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &CheckArgs) -> Result<(), Failure> {
    let required = properties(&args.require)?;
    let mut history = HistoryInput::of(&args.path)?.history()?;
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
    if let Some(missing) = history.missing() {
        eprintln!("incomplete: no history of {missing}; what may depend on it is not judged");
    }
    let report = check(&history, &properties);
    if args.json {
        println!("{}", json(&report, history.missing()));
    } else {
        print!("{report}");
        println!("{} messages, {} deliveries", history.messages(), history.deliveries());
    }
    // A property that was asked for by name must be found to hold; one judged by default must not
    // be broken.
    let sound = if asked { report.all_hold() } else { report.no_violation() };
    if sound { Ok(()) } else { Err(Failure::Said) }
}

/// The report as one JSON document, with the parts of the run of which there is no history, if some are known.
fn json(report: &CheckReport, missing: Option<&str>) -> String {
    let text = report.json().to_string();
    match missing {
        None => text,
        Some(missing) => {
            let missing = serde_json::Value::from(missing);
            format!("{},\"missing\":{missing}}}", text.strip_suffix("}").unwrap_or(&text))
        }
    }
}

/// The properties of this history that are judged by default.
pub(super) fn usual(history: &History) -> Vec<Property> {
    // Where something is missing there may have been calls.
    let of_calls = history.calls() > 0 || history.missing().is_some();
    let of_calls = if of_calls { USUAL_OF_CALLS } else { &[] };
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
        let mut partial = History::new();
        partial.lacks("calls-c0.0.jsonl");
        let report = check(&partial, &usual(&partial)).to_string();
        let told = "linearizable: no calls, and no history of calls-c0.0.jsonl";
        assert!(report.contains(told), "{report}");
    }
}

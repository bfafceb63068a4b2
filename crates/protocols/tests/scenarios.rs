//! Every file of `scenarios/` is what its run gives, word for word, and its protocol keeps what it
//! promises in it. `AMCAST_WRITE=1` writes the files anew; the difference is the review.

use amcast_check::{History, check};
use amcast_core::trace::TraceEvent;
use amcast_protocols::catalog;
use amcast_sim::Scenario;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn files() -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let entries = std::fs::read_dir(&dir).expect("the directory is there");
    let paths = entries.map(|entry| entry.expect("it can be listed").path());
    let mut files: Vec<_> = paths.filter(|p| p.extension().is_some_and(|e| e == "txt")).collect();
    files.sort();
    assert!(files.len() > 40, "only {} scenarios", files.len());
    files
}

/// The expected content of the file. Panics if a promise is broken.
fn played(path: &Path, text: &str) -> String {
    let name = path.display();
    let scenario = Scenario::read(text, &catalog::find).unwrap_or_else(|e| panic!("{name}: {e}"));
    let (mut history, cluster) = (History::new(), scenario.config().cluster());
    if let Some(overlay) = scenario.entry().overlay(scenario.config()) {
        history.arrange(overlay).expect("one tree");
    }
    let played = scenario.play(&mut |event: &TraceEvent<'_>| {
        history.push_event(event, cluster).expect("the simulator's events are sound");
    });
    let findings = check(&history, scenario.entry().about().promises);
    assert!(played.report.settled() && findings.all_hold(), "{name}: {findings}\n{}", played.text);
    played.text
}

#[test]
fn what_happens_in_each_scenario_is_what_its_file_says() {
    let write = std::env::var_os("AMCAST_WRITE").is_some();
    for path in files() {
        let text = std::fs::read_to_string(&path).expect("it can be read");
        let played = played(&path, &text);
        if write {
            std::fs::write(&path, &played).expect("it can be written");
            continue;
        }
        let differs = text.lines().zip(played.lines()).position(|(a, b)| a != b);
        let at = differs.unwrap_or_else(|| text.lines().count().min(played.lines().count()));
        assert!(
            text == played,
            "{}, line {}: {:?} should be {:?}; AMCAST_WRITE=1 writes it anew",
            path.display(),
            at + 1,
            text.lines().nth(at),
            played.lines().nth(at)
        );
    }
}

#[test]
fn every_entry_of_the_catalog_has_a_scenario() {
    let run = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).expect("it can be read");
        let scenario = Scenario::read(&text, &catalog::find).expect("the test above reads it");
        scenario.entry().name()
    };
    let shown: BTreeSet<_> = files().into_iter().map(run).collect();
    let all = catalog::CATALOG.iter().map(|entry| entry.name());
    let missing: Vec<_> = all.filter(|name| !shown.contains(name)).collect();
    assert!(missing.is_empty(), "without a scenario in text: {missing:?}");
}

#[test]
fn a_scenario_that_makes_no_sense_is_refused_with_its_line() {
    let why = |text: &str| match Scenario::read(text, &catalog::find) {
        Ok(_) => panic!("{text:?} is taken"),
        Err(e) => e.to_string(),
    };
    let run = "run tram groups=2 clients=1\n----\n\n";
    assert_eq!(why(""), "line 0: nothing is run");
    assert_eq!(why("run tarm\n"), "line 1: no protocol \"tarm\"");
    assert_eq!(why("at 1us look\n"), "line 1: \"at 1us look\" is no command here");
    assert_eq!(why(&format!("{run}at 1us crash g2/r0\n")), "line 4: no process is named \"g2/r0\"");
    assert_eq!(
        why(&format!("{run}at 1 look\n")),
        "line 4: \"1\" is no time: give ns, us or ms, such as 20us"
    );
    assert_eq!(
        why(&format!("{run}at 1us look\n")),
        "line 4: the last commands lack their line of dashes"
    );
    let back = format!("{run}at 2us look\n----\n\nat 1us look\n----\n");
    assert_eq!(why(&back), "line 7: times must not go back");
    let late = "at 99999999999999999ms look\n";
    assert_eq!(why(&format!("{run}{late}")), "line 4: at most 10 seconds");
}

//! The library that users name pulls in no command line, pages, charts or progress bars.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use xtask::source;

/// Crates that only the program and the laboratory use.
const OF_THE_PROGRAM: [&str; 6] =
    ["clap", "indicatif", "maud", "plotters", "amcast-lab", "amcast-cli"];

/// The names of all packages that `package` is built with, tests apart.
fn built_with(metadata: &Value, package: &str) -> BTreeSet<String> {
    let list = |value: &Value| value.as_array().expect("a list").clone();
    let text = |value: &Value| value.as_str().expect("a text").to_string();
    let names: BTreeMap<String, String> =
        list(&metadata["packages"]).iter().map(|p| (text(&p["id"]), text(&p["name"]))).collect();
    let nodes: BTreeMap<String, Value> = list(&metadata["resolve"]["nodes"])
        .into_iter()
        .map(|node| (text(&node["id"]), node["deps"].clone()))
        .collect();
    let first = names.iter().find(|(_, name)| *name == package).expect("it is in the workspace");
    let (mut seen, mut open) = (BTreeSet::new(), vec![first.0.clone()]);
    while let Some(id) = open.pop() {
        if !seen.insert(id.clone()) {
            continue;
        }
        for dep in list(&nodes[&id]) {
            // Of normal dependencies the kind is null.
            if list(&dep["dep_kinds"]).iter().any(|kind| kind["kind"].is_null()) {
                open.push(text(&dep["pkg"]));
            }
        }
    }
    seen.iter().map(|id| names[id].clone()).collect()
}

#[test]
fn the_library_pulls_in_nothing_of_the_program() {
    let _limit = amcast_test_policy::time_limit();
    let answer = Command::new("cargo")
        .args(["metadata", "--format-version", "1", "--locked"])
        .current_dir(source::root())
        .output()
        .expect("cargo starts");
    assert!(answer.status.success(), "{}", String::from_utf8_lossy(&answer.stderr));
    let metadata: Value = serde_json::from_slice(&answer.stdout).expect("it is JSON");
    let library = built_with(&metadata, "amcast");
    let too_much: Vec<&str> =
        OF_THE_PROGRAM.into_iter().filter(|name| library.contains(*name)).collect();
    assert!(too_much.is_empty(), "the library amcast depends on {too_much:?}");
    assert!(library.contains("amcast-smr"), "{library:?}");
    let program = built_with(&metadata, "amcast-cli");
    let lacks: Vec<&str> = OF_THE_PROGRAM.into_iter().filter(|n| !program.contains(*n)).collect();
    assert!(lacks.is_empty(), "nothing depends on {lacks:?}: this test looks for the wrong names");
}

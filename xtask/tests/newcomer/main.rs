//! A new protocol is one folder and one line of the catalog: `sequencer/`, a fixed sequencer that is no part of the
//! repository, is added to a copy of it, and everything follows.
//!
//! Every run of the tests checks what the sources alone show. Building the copy and running all
//! suites for the newcomer takes minutes: `cargo xtask newcomer` asks for it, and CI permits the
//! skip.

mod copy;

use amcast_test_policy::{PROTOCOL, skip, time_limit, time_limit_of};
use copy::Copy;
use std::time::Duration;
use xtask::source::{SourceFile, SourceTree};
use xtask::{papers, tidy};

/// The line in the catalog.
const LINE: &str = "            mod sequencer: Sequencer => SequencerMutant::INFO;\n";

/// The line in front of which it is put.
const BEFORE: &str = "            mod skeen: ";

/// Where the folder lies in the copy.
const FOLDER: &str = "crates/protocols/src/sequencer";

/// Where it lies in the repository.
const EXAMPLE: &str = "xtask/tests/newcomer/sequencer/";

const CATALOG: &str = "crates/protocols/src/catalog.rs";

/// The files of the newcomer's folder.
const FILES: [(&str, &str); 2] = [
    ("mod.rs", include_str!("sequencer/mod.rs")),
    ("paper.toml", include_str!("sequencer/paper.toml")),
];

/// How long the copy may take to be built and tested.
const LIMIT: Duration = Duration::from_secs(1800);

/// The catalog with the newcomer's line.
fn with_line(catalog: &str) -> String {
    assert_eq!(catalog.matches(BEFORE).count(), 1, "the catalog has another form");
    catalog.replace(BEFORE, &format!("{LINE}{BEFORE}"))
}

/// The sources of the repository with the newcomer, and with `more` at the end of the file of a path.
fn tree(line: bool, more: Option<(&str, &str)>) -> SourceTree {
    let mut tree = SourceTree::read().expect("the tree is there to be read");
    tree.files.retain(|file| !file.path.starts_with(EXAMPLE));
    for file in &mut tree.files {
        let mut text = file.text.clone();
        if line && file.path == CATALOG {
            text = with_line(&text);
        }
        if let Some((_, more)) = more.filter(|(path, _)| *path == file.path) {
            text.push_str(more);
        }
        if text != file.text {
            *file = SourceFile::new(&file.path, text);
        }
    }
    let files = FILES.iter().map(|(name, text)| (format!("{FOLDER}/{name}"), *text));
    tree.files.extend(files.map(|(path, text)| SourceFile::new(&path, text.to_string())));
    tree.files.sort_by(|a, b| a.path.cmp(&b.path));
    tree
}

#[test]
fn the_sources_with_a_new_protocol_keep_every_rule_by_its_folder_and_line_alone() {
    let _limit = time_limit();
    let tree = tree(true, None);
    let found = tidy::check(&tree);
    assert!(found.is_empty(), "not tidy\n{}", tidy::report(&found));
    let reports = papers::check(&tree).expect("the steps are written in the agreed form");
    let text: Vec<String> = reports.iter().map(ToString::to_string).collect();
    let own = text.iter().find(|text| text.contains("SEQ: 3 steps, 0 deviations"));
    assert!(own.is_some(), "the newcomer's paper is not tied: {text:?}");
    assert!(reports.iter().all(|report| report.faults.is_empty()), "{text:?}");
}

#[test]
fn a_new_protocol_without_its_line_or_named_elsewhere_is_found() {
    let _limit = time_limit();
    let broken = |line, more| {
        let found = tidy::check(&tree(line, more));
        found.iter().map(|(rule, _)| rule.name).collect::<Vec<_>>()
    };
    assert_eq!(broken(false, None), ["no-dead-file", "catalog-complete"]);
    // A name that is wired in by hand, as a literal and as a path.
    for (path, wired) in [
        (
            "crates/sim/src/plan.rs",
            "fn wired(e: &dyn Entry) -> bool { e.name() == \"sequencer\" }\n",
        ),
        ("crates/node/src/lib.rs", "fn wired() -> &'static dyn Entry { &sequencer::Sequencer }\n"),
        (
            "crates/fuzzing/src/lib.rs",
            "fn wired() -> &'static dyn Entry { &sequencer::Sequencer }\n",
        ),
    ] {
        assert_eq!(broken(true, Some((path, wired))), ["protocol-names"], "{path}");
    }
}

#[test]
fn a_new_protocol_is_built_tested_and_served_by_its_folder_and_line_alone() {
    let name = "a_new_protocol_is_built_tested_and_served_by_its_folder_and_line_alone";
    if std::env::var_os("AMCAST_NEWCOMER").is_none() {
        return skip(name, "it builds a copy of the repository: `cargo xtask newcomer`");
    }
    let _limit = time_limit_of(LIMIT);
    let copy = Copy::of_the_repository();
    let catalog = copy.read(CATALOG);
    copy.write(CATALOG, &with_line(&catalog));
    for (file, text) in FILES {
        copy.write(&format!("{FOLDER}/{file}"), text);
    }

    // All that there is compiles, and keeps the rules.
    copy.cargo(&["check", "--workspace", "--all-targets"]);
    // Its folder is where a protocol's is, and not here as well.
    copy.remove(EXAMPLE);
    copy.cargo(&["run", "-p", "xtask", "--", "tidy"]);
    assert!(copy.cargo(&["run", "-p", "xtask", "--", "papers"]).contains("SEQ: 3 steps"));

    // The suites of all protocols find the newcomer, and pass.
    let suites: [&[&str]; 6] = [
        &["-p", "amcast-protocols", "--lib", "catalog::"],
        &["-p", "amcast-protocols", "--lib", "trial::"],
        &["-p", "amcast-protocols", "--test", "every_protocol"],
        &["-p", "amcast-protocols", "--test", "capabilities"],
        &["-p", "amcast-protocols", "--test", "laws"],
        &["-p", "amcast-fuzzing", "--test", "corpus", "protocols::"],
    ];
    for suite in suites {
        let says = copy.cargo(&[&["test"], suite].concat());
        assert!(
            says.contains("test result: ok") && !says.contains(" 0 passed"),
            "{suite:?}: {says}"
        );
    }

    // The program knows it, and does what its capabilities say.
    let listed = copy.amcast(&["protocols", "--json"], 0);
    assert!(listed.contains("\"sequencer\""), "{listed}");
    let explained = copy.amcast(&["config", "--explain", "--protocol", "sequencer"], 0);
    assert!(explained.contains("gather"), "{explained}");
    let runs = ["sim", "--protocol", "sequencer", "--seeds", "50", "--vary", "--faults", "all"];
    assert!(copy.amcast(&runs, 0).contains("50 runs, 0 violations"));
    let hunted = copy.amcast(&["sim", "--protocol", "sequencer", "--mutant", "all"], 0);
    assert!(hunted.contains("5 of 5 mutants found"), "{hunted}");
    let refused = copy.amcast(&["up", "--protocol", "sequencer"], 2);
    assert!(refused.contains("sequencer is not served"), "{refused}");
    assert!(std::env::var_os(PROTOCOL).is_none(), "the suites of the copy alone are narrowed");
}

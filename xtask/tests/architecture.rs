//! The ten questions of `ARCHITECTURE.md` have their answers where the table says.

use xtask::scan;
use xtask::source::SourceTree;

/// A row: the word of the field, the paths of its links, and the type.
struct Question<'a> {
    word: &'a str,
    paths: Vec<&'a str>,
    name: &'a str,
}

#[test]
fn ten_questions_are_answered_by_one_search_each() {
    let _limit = amcast_test_policy::time_limit();
    let tree = SourceTree::read().expect("the tree is there to be read");
    let text = &tree.file("ARCHITECTURE.md").expect("it is at the root").text;
    let questions = questions(text);
    assert_eq!(questions.len(), 10, "the table has a row for each question");
    for Question { word, paths, name } in questions {
        assert!(!paths.is_empty(), "`{word}` has no link");
        for path in &paths {
            let file = tree.file(path).unwrap_or_else(|| panic!("{path} of `{word}` is not there"));
            let found = file.text.to_lowercase().contains(&word.to_lowercase());
            assert!(found, "a search for `{word}` does not find {path}");
        }
        let first = tree.file(paths[0]).expect("it was there");
        let defined = ["struct", "enum", "trait"].iter().any(|kind| {
            let definition = format!("{kind} {name}");
            scan::words(&first.masked, &definition).next().is_some()
        });
        assert!(defined, "{} does not define `{name}`", paths[0]);
    }
}

/// The rows of the table, without its head.
fn questions(text: &str) -> Vec<Question<'_>> {
    let from = text.find("## Ten questions").expect("the section is there");
    let section = text[from..].split("\n## ").next().expect("a split has a first part");
    let rows = section.lines().filter(|line| line.starts_with("| ")).skip(1);
    rows.map(|row| {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [word, links, name] = cells[..] else { panic!("`{row}` has not three cells") };
        let paths = links.split("](").skip(1).filter_map(|rest| rest.split(')').next()).collect();
        Question { word: word.trim_start_matches("the "), paths, name: name.trim_matches('`') }
    })
    .collect()
}

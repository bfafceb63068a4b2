//! The rules of style and structure that neither the compiler nor the linters know. Each has its reason, and
//! samples: one tree that breaks it and one that keeps it, so that a rule that cannot fail is found.
//!
//! Adding a rule: a [`TidyRule`] in the file where its noun lives, and its name in [`RULES`].

mod arguments;
mod catalog;
mod layers;
mod manifest;
mod marks;
mod mutants;
mod names;
mod notes;
mod policy;
mod prose;
mod purity;
mod shape;
mod unsafety;
mod wording;

use crate::source::{SourceLine, SourceTree};
use std::fmt;

/// Path and text of a file in a sample tree.
pub type Sample = (&'static str, &'static str);

/// A rule.
#[derive(Debug)]
pub struct TidyRule {
    /// Its name in reports.
    pub name: &'static str,
    /// Why there is such a rule.
    pub why: &'static str,
    /// Finds what breaks it.
    pub find: fn(&SourceTree, &mut Vec<TidyFinding>),
    /// A tree that breaks it.
    pub bad: &'static [Sample],
    /// A tree that looks similar and keeps it.
    pub good: &'static [Sample],
}

/// Something that breaks a rule.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct TidyFinding {
    /// Where.
    pub place: SourceLine,
    /// The finding, and its remedy.
    pub says: String,
}

impl fmt::Display for TidyFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.says)
    }
}

/// Every rule.
pub const RULES: &[&TidyRule] = &[
    &shape::FILE_LENGTH,
    &shape::FUNCTION_LENGTH,
    &shape::MODULE_DOC,
    &shape::NOUNS,
    &shape::NO_DEAD_FILE,
    &names::UNIQUE_TYPES,
    &names::NOUNS_FOR_TYPES,
    &arguments::NO_TUPLE_PARAMETERS,
    &arguments::NO_PARALLEL_LET,
    &prose::PLAIN_SENTENCES,
    &wording::UNFINISHED,
    &wording::OUTSIDE,
    &marks::MARKS,
    &mutants::SHOWN_BY,
    &notes::NOTES_DECIDE_NOTHING,
    &manifest::REASONS,
    &manifest::CORE_ALONE,
    &layers::ARROWS,
    &unsafety::UNSAFE_PLACE,
    &unsafety::UNSAFE_ARGUED,
    &purity::NO_SYSTEM,
    &purity::NO_RANDOM_ORDER,
    &purity::PROTOCOLS_SEE_CORE,
    &catalog::CATALOG_COMPLETE,
    &catalog::PROTOCOL_DOC,
    &catalog::PROTOCOL_NAMES,
    &policy::TIME_LIMIT,
    &policy::ONE_SKIP,
    &policy::SKIPS_EXIST,
];

/// The findings of all rules, by rule, in order of places.
pub fn check(tree: &SourceTree) -> Vec<(&'static TidyRule, Vec<TidyFinding>)> {
    let found = RULES.iter().map(|&rule| (rule, rule.of(tree)));
    found.filter(|(_, findings)| !findings.is_empty()).collect()
}

impl TidyRule {
    /// The findings of this rule, in order of places.
    pub fn of(&self, tree: &SourceTree) -> Vec<TidyFinding> {
        let mut findings = Vec::new();
        (self.find)(tree, &mut findings);
        findings.sort();
        findings.dedup();
        findings
    }
}

/// The report that people read; empty if all is tidy.
pub fn report(found: &[(&'static TidyRule, Vec<TidyFinding>)]) -> String {
    let mut text = String::new();
    for (rule, findings) in found {
        text += &format!("{} ({})\n", rule.name, rule.why);
        for finding in findings {
            text += &format!("  {finding}\n");
        }
    }
    text
}

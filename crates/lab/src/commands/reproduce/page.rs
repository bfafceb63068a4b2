//! The result of an experiment, and the page that shows it.

use crate::commands::sheet::sheet;
use maud::{Markup, PreEscaped, html};
use serde::Serialize;
use serde_json::Value;

/// The result of an experiment.
#[derive(Debug)]
pub(super) struct ExperimentAccount {
    /// How it was done, in a few sentences: parameters, omissions.
    pub(super) how: String,
    pub(super) parts: Vec<PagePart>,
    pub(super) claims: Vec<PaperClaim>,
    /// Properties that must hold and do not, with the command that shows it.
    pub(super) failures: Vec<String>,
    /// Every figure.
    pub(super) figures: Value,
}

/// A part of the page.
#[derive(Debug)]
pub(super) enum PagePart {
    Table {
        caption: String,
        head: Vec<String>,
        rows: Vec<Vec<Markup>>,
    },
    /// A picture by name, in SVG.
    Chart {
        name: String,
        caption: String,
        svg: String,
    },
}

/// A paper's claim, and the result here.
#[derive(Debug, Serialize)]
pub(super) struct PaperClaim {
    pub(super) paper: String,
    pub(super) found: String,
    pub(super) holds: ClaimVerdict,
}

/// Whether a claim was found to hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum ClaimVerdict {
    Yes,
    No,
    /// It could not be judged here; what was found says why.
    Open,
}

impl ClaimVerdict {
    pub(super) const fn when(holds: bool) -> Self {
        if holds { Self::Yes } else { Self::No }
    }

    /// Open where nothing was found to judge it by.
    pub(super) const fn of_any(is_found: bool, holds: bool) -> Self {
        if is_found { Self::when(holds) } else { Self::Open }
    }
}

impl ExperimentAccount {
    /// The charts, by name.
    pub(super) fn pictures(&self) -> impl Iterator<Item = (&str, &str)> {
        self.parts.iter().filter_map(|part| match part {
            PagePart::Chart { name, svg, .. } => Some((&**name, &**svg)),
            PagePart::Table { .. } => None,
        })
    }

    /// In a line.
    pub(super) fn says(&self) -> String {
        let hold = self.claims.iter().filter(|c| c.holds == ClaimVerdict::Yes).count();
        let failures = match self.failures.len() {
            0 => String::new(),
            n => format!(", {n} that must hold and do not"),
        };
        format!("{hold} of {} claims hold{failures}", self.claims.len())
    }
}

/// The page of all that was made: identifier, title and account of each.
pub(super) fn page(made: &[(&str, &str, &ExperimentAccount)], quick: bool) -> String {
    let body = html! {
        p {
            "Made by " code { "amcast reproduce" } ", version " (env!("CARGO_PKG_VERSION")) "."
            @if quick { " With " code { "--quick" } ": fewer runs than a full one." }
        }
        ul { @for (id, title, _) in made { li { a href={ "#" (id) } { (title) } } } }
        @for (id, title, account) in made { (section(id, title, account)) }
    };
    sheet("Tables and figures", &body)
}

fn section(id: &str, title: &str, account: &ExperimentAccount) -> Markup {
    html! {
        h2 id=(id) { (title) }
        p { (account.how) }
        @for failure in &account.failures { p.no { (failure) } }
        @for part in &account.parts { (shown(part)) }
        @if !account.claims.is_empty() {
            table {
                caption { "Claimed, and found" }
                tr { th { "claim" } th { "found" } th { "holds" } }
                @for claim in &account.claims {
                    tr {
                        td { (claim.paper) }
                        td { (claim.found) }
                        @match claim.holds {
                            ClaimVerdict::Yes => td.yes { "yes" },
                            ClaimVerdict::No => td.no { "no" },
                            ClaimVerdict::Open => td { "not judged" },
                        }
                    }
                }
            }
        }
        p { "All figures: " a href={ (id) ".json" } { (id) ".json" } }
    }
}

fn shown(part: &PagePart) -> Markup {
    match part {
        PagePart::Table { caption, head, rows } => html! {
            table {
                caption { (caption) }
                tr { @for name in head { th { (name) } } }
                @for row in rows { tr { @for cell in row { td { (cell) } } } }
            }
        },
        PagePart::Chart { caption, svg, .. } => html! {
            figure { (PreEscaped(svg)) figcaption { (caption) } }
        },
    }
}

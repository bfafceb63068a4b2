//! `toto-fig5` and `toto-fig6`: how the index of latency is distributed.

use super::{INDEX_LEAST, MEMBERS, MODEL, VotedPoint, extremes, impossible, pairs, points, text};
use crate::bench::votes::VoteSource;
use crate::commands::Failure;
use crate::commands::reproduce::ReproduceSession;
use crate::commands::reproduce::chart::{Axes, ChartLine, lines};
use crate::commands::reproduce::page::{ClaimVerdict, ExperimentAccount, PagePart, PaperClaim};
use maud::html;
use serde_json::json;

/// The mean index that is aimed at, at all loads.
const AIM: f64 = 5.5;

/// Figure 5.
pub(in crate::commands::reproduce) fn periodic(
    session: &ReproduceSession<'_>,
) -> Result<ExperimentAccount, Failure> {
    account(session, VoteSource::Periodic)
}

/// Figure 6.
pub(in crate::commands::reproduce) fn poisson(
    session: &ReproduceSession<'_>,
) -> Result<ExperimentAccount, Failure> {
    account(session, VoteSource::Poisson)
}

fn account(
    session: &ReproduceSession<'_>,
    source: VoteSource,
) -> Result<ExperimentAccount, Failure> {
    let seen = points(session, source)?;
    let toto: Vec<&VotedPoint> = pairs(seen).map(|pair| pair.0).collect();
    let number = match source {
        VoteSource::Periodic => 5,
        VoteSource::Poisson => 6,
    };
    // As wide as in the paper's figures.
    let across = INDEX_LEAST - 1..=MEMBERS + 1;
    let line = |point: &&VotedPoint| ChartLine {
        name: format!("{} messages/s, mean {:.2}", point.per_second, point.mean_index),
        points: across.clone().map(|n| (n as f64, point.counts.probability(n))).collect(),
    };
    let drawn: Vec<ChartLine> = toto.iter().map(line).collect();
    let title = format!("index of latency, {} sources", source.name());
    let axes = Axes { title: &title, x: "members heard before the delivery", y: "probability" };
    let svg = lines(&axes, &drawn)?;
    Ok(ExperimentAccount {
        how: format!(
            "{MODEL} The index of a message at a member is the number of members of which it has a message that is \
             concurrent to it or follows it, when it delivers it; at all members, the sender included."
        ),
        parts: vec![
            PagePart::Chart { name: "index".to_string(), caption: title.clone(), svg },
            table(&toto, source, number),
        ],
        claims: claims(&toto, source),
        failures: impossible(seen),
        figures: json!({ "figure": number, "source": source, "points": toto }),
    })
}

fn table(toto: &[&VotedPoint], source: VoteSource, number: u32) -> PagePart {
    let indices = INDEX_LEAST..=MEMBERS;
    let row = |point: &&VotedPoint| {
        let mut cells = vec![html! { (point.per_second) }];
        let parts = indices.clone().map(|n| point.counts.probability(n));
        cells.extend(parts.map(|part| html! { (format!("{part:.3}")) }));
        cells.push(html! { (text(point.mean_index)) });
        let paper = point.printed(source).map_or(String::new(), |row| text(row.index));
        cells.push(html! { (paper) });
        cells
    };
    let mut head = vec!["messages/s".to_string()];
    head.extend(indices.clone().map(|n| format!("P({n})")));
    head.extend(["mean", "mean in the paper"].map(String::from));
    PagePart::Table {
        caption: format!("Figure {number}"),
        head,
        rows: toto.iter().map(row).collect(),
    }
}

fn claims(toto: &[&VotedPoint], source: VoteSource) -> Vec<PaperClaim> {
    let (least, most) = extremes(toto.iter().map(|point| point.mean_index));
    let found = format!("{least:.2} to {most:.2}");
    let printed = toto.iter().filter_map(|point| Some(point.printed(source)?.index));
    let (least_printed, most_printed) = extremes(printed);
    let bound = INDEX_LEAST as f64;
    vec![
        PaperClaim {
            paper: "the mean index is 5.1 to 5.9, of at most 8".to_string(),
            found: found.clone(),
            holds: ClaimVerdict::when(most <= 5.9),
        },
        PaperClaim {
            paper: format!("no index is below {INDEX_LEAST}, and the mean is close to it"),
            found: format!("means of {found}"),
            holds: ClaimVerdict::when(least >= bound && most < bound + 1.0),
        },
        PaperClaim {
            paper: format!("ours: a mean index below {AIM} at all loads"),
            found: format!("{found}; in the paper it is {least_printed:.2} to {most_printed:.2}"),
            holds: ClaimVerdict::when(most < AIM),
        },
    ]
}

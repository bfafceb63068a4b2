//! `toto-tab2` and `toto-tab3`: the mean latency of messages at their senders, from periodic and from random sources.

use super::sockets;
use super::{
    MEMBERS, MODEL, PROTOCOLS, VotedPoint, extremes, impossible, pairs, points, speed_up, text,
};
use crate::bench::votes::VoteSource;
use crate::commands::Failure;
use crate::commands::reproduce::ReproduceSession;
use crate::commands::reproduce::chart::{Axes, ChartLine, lines};
use crate::commands::reproduce::page::{ClaimVerdict, ExperimentAccount, PagePart, PaperClaim};
use amcast_core::Entry;
use maud::html;
use serde_json::json;

/// Table 2.
pub(in crate::commands::reproduce) fn periodic(
    session: &ReproduceSession<'_>,
) -> Result<ExperimentAccount, Failure> {
    account(session, VoteSource::Periodic)
}

/// Table 3.
pub(in crate::commands::reproduce) fn poisson(
    session: &ReproduceSession<'_>,
) -> Result<ExperimentAccount, Failure> {
    account(session, VoteSource::Poisson)
}

/// The number of the table, and the speed-ups in it: the least, the most, and about which they are.
const fn claimed(source: VoteSource) -> (u32, [f64; 3]) {
    match source {
        VoteSource::Periodic => (2, [1.56, 1.84, 1.75]),
        VoteSource::Poisson => (3, [2.60, 3.38, 2.75]),
    }
}

fn account(
    session: &ReproduceSession<'_>,
    source: VoteSource,
) -> Result<ExperimentAccount, Failure> {
    let seen = points(session, source)?;
    let (number, _) = claimed(source);
    let real = sockets::latency(session, source)?;
    let mut parts = vec![chart(seen, source)?, table(seen, source)];
    parts.extend(real.parts);
    let mut claims = claims(seen, source);
    claims.extend(real.claims);
    Ok(ExperimentAccount {
        how: format!(
            "{MODEL} Each of the {MEMBERS} sources sends messages at {} intervals, of the same mean. The latency is from \
             the time at which a message is due to its delivery at its sender. {}",
            match source {
                VoteSource::Periodic => "fixed",
                VoteSource::Poisson => "random (exponential)",
            },
            real.how
        ),
        parts,
        claims,
        failures: impossible(seen),
        figures: json!({ "table": number, "source": source, "points": seen, "sockets": real.figures }),
    })
}

fn chart(seen: &[VotedPoint], source: VoteSource) -> Result<PagePart, Failure> {
    let mut drawn = Vec::new();
    for protocol in PROTOCOLS.map(|protocol| protocol.name()) {
        let own = || seen.iter().filter(|point| point.protocol == protocol);
        let x = |point: &VotedPoint| point.per_second as f64;
        let found = own().map(|point| (x(point), point.mean_ms())).collect();
        drawn.push(ChartLine { name: protocol.to_string(), points: found });
        let paper = own().filter_map(|point| Some((x(point), point.printed(source)?.latency_ms)));
        drawn
            .push(ChartLine { name: format!("{protocol}, in the paper"), points: paper.collect() });
    }
    let title = format!("mean latency, {} sources", source.name());
    let axes = Axes { title: &title, x: "messages/s of all members", y: "milliseconds" };
    let svg = lines(&axes, &drawn)?;
    Ok(PagePart::Chart { name: "latency".to_string(), caption: title.clone(), svg })
}

fn table(seen: &[VotedPoint], source: VoteSource) -> PagePart {
    let mut rows = Vec::new();
    for pair in pairs(seen) {
        let own = speed_up(pair);
        let paper = pair.0.printed(source).zip(pair.1.printed(source));
        let paper = paper.map(|(toto, all_ack)| all_ack.latency_ms / toto.latency_ms);
        for (point, is_first) in [(pair.0, true), (pair.1, false)] {
            let printed = point.printed(source);
            let [least, most] = point.repeats_ms;
            let once = |value: Option<f64>| value.filter(|_| is_first).map_or(String::new(), text);
            rows.push(vec![
                html! { (point.per_second) },
                html! { (point.protocol) },
                html! { (text(point.mean_index)) },
                html! { (text(point.mean_concurrency)) },
                html! { (format!("{:.2} ({least:.2} to {most:.2})", point.mean_ms())) },
                html! { (once(Some(own))) },
                html! { (printed.map_or(String::new(), |row| {
                    format!("{:.2}, {:.2}, {:.2} ms", row.index, row.concurrency, row.latency_ms)
                })) },
                html! { (once(paper)) },
            ]);
        }
    }
    let head = [
        "messages/s",
        "protocol",
        "mean index",
        "mean concurrency",
        "mean latency, ms (least and most of the runs)",
        "speed-up",
        "in the paper",
        "speed-up in the paper",
    ];
    PagePart::Table {
        caption: format!("Table {}", claimed(source).0),
        head: head.map(String::from).to_vec(),
        rows,
    }
}

fn claims(seen: &[VotedPoint], source: VoteSource) -> Vec<PaperClaim> {
    let (_, [least, most, about]) = claimed(source);
    let (slowest, fastest) = extremes(pairs(seen).map(speed_up));
    let predicted = pairs(seen).filter_map(|(toto, all_ack)| {
        let (toto, all_ack) = (toto.printed(source)?, all_ack.printed(source)?);
        Some(all_ack.model_ms / toto.model_ms)
    });
    let (least_predicted, most_predicted) = extremes(predicted);
    let (narrow, wide) = extremes(seen.iter().map(|point| point.mean_concurrency));
    vec![
        PaperClaim {
            paper: format!(
                "{} sources: messages are delivered {least} to {most} times as soon as with all-ack, \
                 about {about} times",
                source.name()
            ),
            found: format!(
                "{slowest:.2} to {fastest:.2} times; the paper's own equations give {least_predicted:.2} to \
                 {most_predicted:.2} at these loads"
            ),
            holds: ClaimVerdict::when(slowest >= least),
        },
        PaperClaim {
            paper: "few messages are concurrent: 1.1 to 1.8 members have one".to_string(),
            found: format!("{narrow:.2} to {wide:.2} members"),
            holds: ClaimVerdict::when(wide <= 1.85),
        },
    ]
}

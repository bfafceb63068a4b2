//! `fastcast-tab1` to `fastcast-tab3`: the allocation of bandwidth among three processes on links of 1 Gb/s, event by
//! event [FastCast 3.5]. A table is a text: each step has its name, its events, and the rows that the paper prints.

use crate::commands::Failure;
use crate::commands::reproduce::ReproduceSession;
use crate::commands::reproduce::page::{ClaimVerdict, ExperimentAccount, PagePart, PaperClaim};
use amcast_protocols::fastcast::bandwidth::BandwidthAllocation;
use maud::html;
use serde_json::json;

/// The tables, in order: each begins where the one before ends.
const TABLES: [&str; 3] =
    [include_str!("table-1.txt"), include_str!("table-2.txt"), include_str!("table-3.txt")];

/// The rate that a link carries, in Mb/s.
const LINK: u64 = 1000;

/// A step of a table, played.
struct PlayedStep {
    name: String,
    events: Vec<String>,
    /// The rows of the paper, and those of our allocation.
    rows: Vec<(String, String)>,
}

/// The three processes of the tables.
struct PlayedAllocations(Vec<BandwidthAllocation>);

impl PlayedAllocations {
    fn new() -> Self {
        Self((0..3).map(|me| BandwidthAllocation::new(me, 3, LINK)).collect())
    }

    /// The row of a process as the paper prints it: requirements, bandwidth, increase, acknowledgements, and whether
    /// the increase is delivered.
    fn row(&self, at: usize) -> String {
        let process = &self.0[at];
        let ongoing = process.ongoing();
        let (amount, acks) = ongoing.map_or((0, 0), |ongoing| (ongoing.amount, ongoing.acks));
        let delivered = ongoing.is_some_and(|ongoing| ongoing.delivered);
        let (requirements, current) = (process.requirements(), process.current());
        let delivered = if delivered { "delivered" } else { "-" };
        format!("p{at} {requirements:?} {current} {amount} {acks} {delivered}")
    }

    /// Plays an event; says whether it is one, and may happen.
    fn play(&mut self, event: &str) -> Option<()> {
        let words: Vec<&str> = event.split(' ').collect();
        let place = |word: &str| word.strip_prefix('p')?.parse::<usize>().ok();
        let process = self.0.get_mut(place(words[0])?)?;
        match words[1..] {
            ["increases", "by", amount] => process.increase(amount.parse().ok()?).then_some(()),
            ["decreases", "by", amount] => process.decrease(amount.parse().ok()?).then_some(()),
            ["receives", "an", "acknowledgement"] => process.on_ack().ok(),
            ["delivers", "an", "increase", "by", amount, "of", of] => {
                process.on_increase(place(of)?, amount.parse().ok()?).ok().map(|_| ())
            }
            ["delivers", "a", "decrease", "by", amount, "of", of] => {
                process.on_decrease(place(of)?, amount.parse().ok()?).ok()
            }
            _ => None,
        }
    }
}

/// Plays a table from where its processes are.
///
/// # Errors
/// When a line is no event that can happen there.
fn play(text: &str, processes: &mut PlayedAllocations) -> Result<Vec<PlayedStep>, String> {
    let mut steps = Vec::new();
    for block in text.split("\n\n") {
        let mut lines = block.lines();
        let name = lines.next().unwrap_or_default().to_string();
        let (mut events, mut rows) = (Vec::new(), Vec::new());
        for line in lines {
            match line.split_once(" [") {
                Some((process, _)) => {
                    let at = process.trim_start_matches('p').parse().ok().filter(|at| *at < 3);
                    let at = at.ok_or_else(|| format!("{line:?} names no process"))?;
                    rows.push((line.to_string(), processes.row(at)));
                }
                None => {
                    processes.play(line).ok_or_else(|| format!("{line:?} cannot happen"))?;
                    events.push(line.to_string());
                }
            }
        }
        steps.push(PlayedStep { name, events, rows });
    }
    Ok(steps)
}

/// Plays the tables up to this one, and gives its steps.
fn played(table: usize) -> Result<Vec<PlayedStep>, String> {
    let mut processes = PlayedAllocations::new();
    for before in &TABLES[..table - 1] {
        play(before, &mut processes)?;
    }
    play(TABLES[table - 1], &mut processes)
}

fn account(table: usize) -> Result<ExperimentAccount, Failure> {
    let steps = played(table).map_err(Failure::Failed)?;
    let rows = || steps.iter().flat_map(|step| step.rows.iter().map(move |row| (step, row)));
    let wrong = rows().filter(|(_, (paper, ours))| paper != ours);
    let failures: Vec<String> = wrong
        .map(|(step, (paper, ours))| format!("{}: {ours}, and not {paper}", step.name))
        .collect();
    let head = [
        "step",
        "events",
        "process, bwRequirements, currentBW, ongoing increase, acks, delivered req",
    ];
    let shown = |(step, (_, ours)): (&PlayedStep, &(String, String))| {
        vec![html! { (step.name) }, html! { (step.events.join("; ")) }, html! { (ours) }]
    };
    let (all, same) = (rows().count(), rows().count() - failures.len());
    Ok(ExperimentAccount {
        how: "The allocation that FastCast runs, driven by the events of the table.".to_string(),
        parts: vec![PagePart::Table {
            caption: format!("Table {table}, in Mb/s"),
            head: head.map(String::from).to_vec(),
            rows: rows().map(shown).collect(),
        }],
        claims: vec![PaperClaim {
            paper: format!("table {table} has {all} rows"),
            found: format!("{same} of {all} rows are the same"),
            holds: ClaimVerdict::when(failures.is_empty()),
        }],
        failures,
        figures: json!({ "rows": rows().map(|(step, (paper, ours))| {
            json!({ "step": step.name, "paper": paper, "found": ours })
        }).collect::<Vec<_>>() }),
    })
}

/// Table 1.
pub(in crate::commands::reproduce) fn first(
    _: &ReproduceSession<'_>,
) -> Result<ExperimentAccount, Failure> {
    account(1)
}

/// Table 2.
pub(in crate::commands::reproduce) fn second(
    _: &ReproduceSession<'_>,
) -> Result<ExperimentAccount, Failure> {
    account(2)
}

/// Table 3.
pub(in crate::commands::reproduce) fn third(
    _: &ReproduceSession<'_>,
) -> Result<ExperimentAccount, Failure> {
    account(3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_are_exact_and_a_row_that_differs_is_a_failure() {
        for table in 1..=3 {
            let account = account(table).unwrap();
            assert_eq!(account.failures, [""; 0], "table {table}");
            assert_eq!(account.claims[0].holds, ClaimVerdict::Yes);
        }
        let mut processes = PlayedAllocations::new();
        let other = "S1\np0 increases by 5\np0 [0, 0, 0] 0 6 0 -";
        let steps = play(other, &mut processes).unwrap();
        assert_eq!(steps[0].rows[0].1, "p0 [0, 0, 0] 0 5 0 -");
        assert!(play("S2\np0 increases by 5", &mut processes).is_err(), "one is announced");
        assert!(play("S2\np7 [0, 0, 0] 0 0 0 -", &mut processes).is_err());
        assert!(play("S2\nnothing happens", &mut processes).is_err());
    }
}

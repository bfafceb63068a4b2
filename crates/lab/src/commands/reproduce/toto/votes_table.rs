//! `toto-tab1`: the votes on the candidates of the paper's figure 1 [ToTo 4.1]. The table is a text: each message of the
//! figure with those that it follows, and then the rows that the paper prints.

use crate::commands::Failure;
use crate::commands::reproduce::ReproduceSession;
use crate::commands::reproduce::page::{ClaimVerdict, ExperimentAccount, PagePart, PaperClaim};
use crate::commands::sim::scenario_differs;
use amcast_protocols::toto::order::{CandidateVotes, TotoOrder};
use maud::html;
use serde_json::json;
use std::collections::BTreeMap;

const TABLE: &str = include_str!("table-1.txt");

/// The same messages, sent by members of a simulated group, and what they deliver.
const SCENARIO: &str = include_str!("../../../../../../scenarios/tt-table-1.txt");

/// The members, `a` to `e`.
const MEMBERS: usize = 5;

/// A message, such as `b1`: the rank of its sender, and its number.
fn name(word: &str) -> Option<(usize, u64)> {
    let letter = word.chars().next()?;
    let rank = "abcde".find(letter)?;
    Some((rank, word[1..].parse().ok()?))
}

fn letter(rank: usize) -> char {
    char::from(b'a' + rank as u8)
}

/// The messages so far, and the rule that the protocol runs.
struct PlayedDag {
    order: TotoOrder<String>,
    /// By message: of each member, how many messages it follows.
    follows: BTreeMap<(usize, u64), Vec<u64>>,
}

impl PlayedDag {
    fn new() -> Self {
        Self { order: TotoOrder::new(MEMBERS, MEMBERS / 2), follows: BTreeMap::new() }
    }

    /// Plays a line; says whether it is one.
    fn play(&mut self, line: &str) -> Option<()> {
        let words: Vec<&str> = line.split(' ').collect();
        let (&kind, &message) = (words.first()?, words.get(1)?);
        let (rank, number) = name(message)?;
        let followed = match words.get(2..)? {
            [] => &[],
            ["follows", followed @ ..] => followed,
            _ => return None,
        };
        let mut follows = vec![0; MEMBERS];
        let before = (number > 1).then_some((rank, number - 1));
        let followed: Option<Vec<_>> = followed.iter().map(|word| name(word)).collect();
        for other in followed?.into_iter().chain(before) {
            let theirs = self.follows.get(&other)?;
            follows.iter_mut().zip(theirs).for_each(|(to, &n)| *to = n.max(*to));
        }
        follows[rank] = number;
        let payload = match kind {
            "agreed" => Some(message.to_string()),
            // A message that is delivered, or needs no agreed order, is only a vote.
            "delivered" | "causal" => None,
            _ => return None,
        };
        self.order.receive(rank, &follows, payload);
        self.follows.insert((rank, number), follows);
        Some(())
    }
}

/// A row as the paper prints it: the candidate, `Tail`, `NTail`, `VT` and `NVT`.
fn row(votes: &CandidateVotes) -> String {
    let tail: Vec<String> = votes.tail.iter().map(|&rank| letter(rank).to_string()).collect();
    let position = |position: &Option<u64>| match position {
        None => "*".to_string(),
        Some(u64::MAX) => "inf".to_string(),
        Some(number) => number.to_string(),
    };
    let vector: Vec<String> = votes.vector.iter().map(position).collect();
    format!(
        "{}{} {{{}}} {} ({}) {}",
        letter(votes.rank),
        votes.number,
        tail.join(", "),
        votes.tail.len(),
        vector.join(", "),
        votes.votes_for()
    )
}

/// The rows of a text with ours, and the messages that are delivered then.
type PlayedTable = (Vec<(String, String)>, Vec<String>);

/// Plays a text.
///
/// # Errors
/// When a line is no message.
fn played(text: &str) -> Result<PlayedTable, String> {
    let (messages, rows) = text.split_once("\n\n").ok_or("the table has no rows")?;
    let mut dag = PlayedDag::new();
    for line in messages.lines() {
        dag.play(line).ok_or_else(|| format!("{line:?} is no message"))?;
    }
    let ours: Vec<String> = dag.order.candidates().iter().map(row).collect();
    let paper: Vec<String> = rows.lines().map(String::from).collect();
    if ours.len() != paper.len() {
        return Err(format!("{} candidates, and not {}", ours.len(), paper.len()));
    }
    let delivered = std::iter::from_fn(|| dag.order.deliver_next()).map(|(_, message)| message);
    let delivered = delivered.collect();
    Ok((paper.into_iter().zip(ours).collect(), delivered))
}

/// Table 1.
pub(in crate::commands::reproduce) fn run(
    _: &ReproduceSession<'_>,
) -> Result<ExperimentAccount, Failure> {
    let (rows, delivered) = played(TABLE).map_err(Failure::Failed)?;
    let differs = scenario_differs(SCENARIO).map_err(Failure::Failed)?;
    let wrong = rows.iter().filter(|(paper, ours)| paper != ours);
    let mut failures: Vec<String> =
        wrong.map(|(paper, ours)| format!("{ours}, and not {paper}")).collect();
    let same = rows.len() - failures.len();
    failures.extend(differs.iter().map(|why| format!("scenarios/tt-table-1.txt: {why}")));
    let messages = TABLE.split("\n\n").next().unwrap_or_default();
    let shown = |(paper, ours): &(String, String)| vec![html! { (ours) }, html! { (paper) }];
    let delivered = delivered.join(", ");
    Ok(ExperimentAccount {
        how: format!(
            "The rule that ToTo runs, with the messages of figure 1: {}. The same messages are sent in the simulator \
             by five members (scenarios/tt-table-1.txt, which amcast sim --scenario plays): each member that has them \
             delivers {delivered} next.",
            messages.replace('\n', "; ")
        ),
        parts: vec![PagePart::Table {
            caption: "Table 1: candidate, Tail, NTail, VT and NVT".to_string(),
            head: ["found", "in the paper"].map(String::from).to_vec(),
            rows: rows.iter().map(shown).collect(),
        }],
        claims: vec![
            PaperClaim {
                paper: format!("table 1 has {} rows", rows.len()),
                found: format!("{same} of {} rows are the same", rows.len()),
                holds: ClaimVerdict::when(same == rows.len()),
            },
            PaperClaim {
                paper: "all five have voted, and no candidate has beaten another one: they are delivered in \
                        lexicographical order"
                    .to_string(),
                found: match &differs {
                    None => format!("{delivered}, at all members of the scenario, too"),
                    Some(why) => format!("{delivered}; the scenario differs: {why}"),
                },
                holds: ClaimVerdict::when(delivered == "b1, c1, e2" && differs.is_none()),
            },
        ],
        figures: json!({
            "rows": rows.iter().map(|(paper, ours)| json!({ "paper": paper, "found": ours }))
                .collect::<Vec<_>>(),
            "delivered": delivered,
        }),
        failures,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_exact_and_a_row_or_a_line_that_differs_shows() {
        let (rows, delivered) = played(TABLE).unwrap();
        assert!(rows.len() == 3 && rows.iter().all(|(paper, ours)| paper == ours), "{rows:?}");
        assert_eq!(delivered, ["b1", "c1", "e2"]);
        assert_eq!(scenario_differs(SCENARIO), Ok(None));
        let (rows, delivered) = played("agreed a1\n\na1 {a, b} 2 (1, 1, *, *, *) 2").unwrap();
        assert_eq!((rows[0].1.as_str(), delivered), ("a1 {a} 1 (1, *, *, *, *) 1", vec![]));
        for wrong in ["agreed a1 follows b1", "agreed f1", "agreed a2", "sent a1", "agreed a1 a2"] {
            assert!(played(&format!("{wrong}\n\n")).is_err(), "{wrong}");
        }
        let other = SCENARIO.replace("20200.000", "20201.000");
        assert!(scenario_differs(&other).unwrap().is_some_and(|why| why.contains("20201.000")));
    }
}

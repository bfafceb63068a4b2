//! Histories of logs: the search, which looks ahead, against all orders tried one by one, and histories in
//! which nobody knows for long what became of some appends.

mod script;

use amcast_check::PropertyVerdict;
use amcast_check::service::{Budget, linearizable_as, log};
use amcast_core::rng::Rng;
use std::collections::BTreeMap;
use std::fmt::Write;

/// The failure, if any.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LogFault {
    Nothing,
    /// The last read gives one value twice.
    Twice,
}

/// Calls under way when all processes were killed.
const CUT_OFF: usize = 6;

/// Three lives, each of which ends in the middle of appends. Every other one of those took effect, the
/// last called first, which only a read at the very end tells.
fn lives(wrong: LogFault) -> String {
    let (mut script, mut held, mut number) = (String::new(), Vec::new(), 0);
    for c in 0..=CUT_OFF {
        writeln!(script, "process c{c}").unwrap();
    }
    for life in 0..3 {
        for _ in 0..20 {
            let calls: Vec<_> = (0..3).map(|c| (c, number + c)).collect();
            number += 3;
            for (c, n) in &calls {
                writeln!(script, "call c{c} c{c}:{n} APPEND a {n} b {n}").unwrap();
            }
            for (c, n) in calls.iter().rev() {
                let at = held.len();
                writeln!(script, "return c{c} c{c}:{n} {at} {at}").unwrap();
                held.push(n.to_string());
            }
        }
        for c in 0..CUT_OFF {
            writeln!(script, "call c{c} c{c}:{} APPEND a {life}.{c} b {life}.{c}", number + c)
                .unwrap();
        }
        number += CUT_OFF;
        held.extend((0..CUT_OFF).rev().step_by(2).map(|c| format!("{life}.{c}")));
    }
    if wrong == LogFault::Twice {
        held[100] = held[50].clone();
    }
    let (c, values) = (CUT_OFF, held.join(" "));
    writeln!(script, "call c{c} c{c}:1 READ a 0").unwrap();
    writeln!(script, "return c{c} c{c}:1 0 {} {values}", held.len()).unwrap();
    script
}

fn judged(wrong: LogFault) -> PropertyVerdict {
    let budget = Budget { states: 20_000 };
    linearizable_as(log::LogModel::new(), &script::history(&lives(wrong)), budget)
}

#[test]
fn appends_without_an_answer_are_put_where_a_late_read_finds_them_without_trying_all_orders() {
    assert_eq!(judged(LogFault::Nothing), PropertyVerdict::Holds);
}

#[test]
fn a_value_read_twice_is_found_also_where_a_state_more_cannot_be_tried() {
    let PropertyVerdict::Violated(found) = judged(LogFault::Twice) else {
        panic!("it is not found")
    };
    assert!(found.sentence.contains("no order explains the answers"), "{}", found.sentence);
}

/// The logs as the definition sees them: of each its first position and all its values.
type LogContents = BTreeMap<String, (usize, Vec<String>)>;

fn extent(logs: &LogContents, log: &str) -> String {
    logs.get(log).map_or("nil".into(), |(first, values)| format!("{first} {}", values.len()))
}

/// One of the calls that the random histories have.
fn run(logs: &mut LogContents, op: &str) -> String {
    let words: Vec<&str> = op.split(' ').collect();
    match &words[..] {
        ["APPEND", pairs @ ..] => {
            let append = |pair: &[&str]| {
                let (_, values) = logs.entry(pair[0].into()).or_default();
                values.push(pair[1].into());
                (values.len() - 1).to_string()
            };
            pairs.chunks(2).map(append).collect::<Vec<_>>().join(" ")
        }
        ["READ", log, from] => {
            let from: usize = from.parse().unwrap();
            match logs.get(*log) {
                Some((first, _)) if from < *first => format!("gone {first}"),
                Some((_, values)) if from < values.len() => {
                    format!("{} {}", extent(logs, log), values[from..].join(" "))
                }
                _ => extent(logs, log),
            }
        }
        ["TRIM", log, before] => {
            if let Some((first, values)) = logs.get_mut(*log) {
                *first = before.parse::<usize>().unwrap().clamp(*first, values.len());
            }
            extent(logs, log)
        }
        ["DELETE", log] => {
            let went = extent(logs, log);
            logs.remove(*log);
            went
        }
        ["INFO", log] => extent(logs, log),
        _ => panic!("{op}"),
    }
}

/// A call, its answer (none: it never returned), and the moments of call and return.
#[derive(Clone, Debug)]
struct LogCall {
    op: String,
    out: Option<String>,
    from: usize,
    to: usize,
}

/// Whether a call may answer so where all that there is would be `whole`: a read may give fewer values, but not none.
fn fits(out: &str, whole: &str) -> bool {
    let fewer = || out.split(' ').count() > 2 && whole.starts_with(&format!("{out} "));
    out == whole || fewer()
}

/// Whether some order of `left`, continuing from `logs`, explains all answers.
fn some_order(left: &[LogCall], logs: &LogContents) -> bool {
    let answered = |c: &LogCall| c.out.is_some();
    !left.iter().any(answered)
        || (0..left.len()).any(|i| {
            if left.iter().any(|c| answered(c) && c.to < left[i].from) {
                return false;
            }
            let mut logs = logs.clone();
            let out = run(&mut logs, &left[i].op);
            let mut rest = left.to_vec();
            rest.remove(i);
            left[i].out.as_ref().is_none_or(|o| fits(o, &out)) && some_order(&rest, &logs)
        })
}

/// Some calls that overlap, most of whose answers are right in one order.
fn random_calls(rng: &mut Rng) -> Vec<LogCall> {
    let (mut calls, mut logs) = (Vec::new(), LogContents::new());
    let count = 3 + rng.below(5) as usize;
    for n in 0..count {
        let (log, at) = (["a", "b"][rng.below(2) as usize], rng.below(3));
        // Values that stand for several appends, too.
        let value = rng.below(6);
        let op = match rng.below(11) {
            0..3 => format!("APPEND {log} {value}"),
            3..6 => format!("APPEND a {value} b {value}"),
            6..8 => format!("READ {log} {at}"),
            8 => format!("TRIM {log} {at}"),
            9 => format!("DELETE {log}"),
            _ => format!("INFO {log}"),
        };
        // One that is not known to have happened did so or not.
        let (known, happens) = (rng.below(3) > 0, rng.below(2) > 0);
        let out = if known || happens { run(&mut logs, &op) } else { String::new() };
        let at = 10 * n + 10;
        let (from, to) = (at - rng.below(10) as usize, at + rng.below(15) as usize);
        calls.push(LogCall { op, out: known.then_some(out), from, to });
    }
    // Often one call has the answer of another one of the same kind.
    for _ in 0..rng.below(12) {
        let (i, j) = (rng.below(count as u64) as usize, rng.below(count as u64) as usize);
        let kind = |c: &LogCall| (c.op.chars().next(), c.op.split(' ').count());
        if kind(&calls[i]) == kind(&calls[j]) && calls[i].out.is_some() {
            calls[i].out = calls[j].out.clone();
        }
    }
    calls
}

#[test]
fn a_search_that_looks_ahead_agrees_with_trying_every_order() {
    let (mut rng, mut held, mut broken) = (Rng::new(11), 0, 0);
    for round in 0..4_000 {
        let calls = random_calls(&mut rng);
        let mut events: Vec<(usize, bool, usize)> = Vec::new();
        for (c, call) in calls.iter().enumerate() {
            events.push((call.from, false, c));
            events.extend(call.out.as_ref().map(|_| (call.to, true, c)));
        }
        events.sort_unstable();
        let mut script = String::new();
        (0..calls.len()).for_each(|c| writeln!(script, "process c{c}").unwrap());
        // At one moment calls go first, here as there.
        for (_, is_return, c) in events {
            match &calls[c].out {
                Some(out) if is_return => writeln!(script, "return c{c} c{c}:1 {out}").unwrap(),
                _ => writeln!(script, "call c{c} c{c}:1 {}", calls[c].op).unwrap(),
            }
        }
        if !calls.iter().any(|c| c.out.is_some()) {
            continue;
        }
        let history = script::history(&script);
        let verdict = linearizable_as(log::LogModel::new(), &history, Budget::default());
        if some_order(&calls, &LogContents::new()) {
            assert_eq!(verdict, PropertyVerdict::Holds, "{round}:\n{script}");
            held += 1;
        } else {
            assert!(
                matches!(verdict, PropertyVerdict::Violated(_)),
                "{round}: {verdict:?}\n{script}"
            );
            broken += 1;
        }
    }
    assert!(held > 500 && broken > 500, "{held} hold, {broken} do not");
}

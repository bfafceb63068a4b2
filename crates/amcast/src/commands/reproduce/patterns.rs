//! `to-table3`: which specification each of the ten protocols enforces [TO table 3], as evidence.
//!
//! A protocol enforces a specification if every run satisfies it, and none that is stronger
//! [TO definition 1]. The first is searched for violations in runs with faults drawn by seed; for the
//! second a run is found for every pattern of a faulty process that the specification admits
//! [TO table 2].

use super::page::{Account, Claim, Holds, Part};
use super::{Session, witness};
use crate::choose::enforced;
use crate::commands::Failure;
use crate::commands::cores::{over_cores, progress};
use crate::commands::sim::judge::judge;
use crate::commands::sim::network::Network;
use crate::commands::sim::trial::Trial;
use amcast_check::{Patterns, Specification, execution_patterns};
use amcast_core::{Entry, RawConfig, Span};
use amcast_protocols::total::{Row, TABLE_3};
use amcast_protocols::trial;
use amcast_sim::{Profile, Settings};
use maud::{Markup, html};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// Runs of each protocol: of a full reproduction, and a quick one.
const RUNS: [u64; 2] = [3000, 300];

/// Runs over a network that loses much, at most, for patterns that need two to fail at once.
const LOSSY_RUNS: u64 = 6000;

const PROFILES: [Profile; 3] = [Profile::All, Profile::Crash, Profile::Network];

const NAMES: [&str; 4] = ["EP1", "EP2", "EP3", "EP4"];

const fn each(patterns: Patterns) -> [bool; 4] {
    [patterns.ep1, patterns.ep2, patterns.ep3, patterns.ep4]
}

/// What was found of one protocol.
#[derive(Default)]
struct Found {
    runs: u64,
    deliveries: u64,
    crashes: u64,
    /// For each pattern the first run that shows it: whether over the lossy network, and the seed.
    witnesses: [Option<(bool, u64)>; 4],
    /// The first run that must not be, and why.
    wrong: Option<((bool, u64), String)>,
}

impl Found {
    fn complete(&self, admitted: Patterns) -> bool {
        self.witnesses.iter().zip(each(admitted)).all(|(w, admitted)| w.is_some() || !admitted)
    }

    fn add(&mut self, run: (bool, u64), shown: &[Patterns]) {
        for (n, witness) in self.witnesses.iter_mut().enumerate() {
            if shown.iter().any(|p| each(*p)[n]) && witness.is_none_or(|other| run < other) {
                *witness = Some(run);
            }
        }
    }
}

pub(super) fn run(session: &Session<'_>) -> Result<Account, Failure> {
    let runs = RUNS[usize::from(session.quick)];
    let directory = session.directory("to-table3")?;
    let mut account = Account {
        how: format!(
            "Each protocol ran {runs} times in the simulator, with 2 to 7 members, crashes, \
             partitions, lost messages, slow processes and wrong suspicions drawn by seed, and \
             every run was judged; then, until every pattern was found, with five members over a \
             network that loses 40 % of all datagrams. A pattern's name leads to a run that shows \
             it, with the command that makes the run again. EP3 of ab-rcast and pb-rcast is there because \
             a member that learns that it was left out delivers what it holds behind a hole: without \
             that, a stronger specification would hold than table 3 names."
        ),
        parts: Vec::new(),
        claims: Vec::new(),
        failures: Vec::new(),
        figures: Value::Null,
    };
    let (mut rows, mut figures) = (Vec::new(), Vec::new());
    for row in TABLE_3 {
        let Some(spec) = enforced(row) else {
            account.failures.push(format!("{} promises none of the six", row.name()));
            continue;
        };
        let found = search(row, spec, runs)?;
        let cells = witnesses(&directory, row, spec, &found)?;
        rows.push(line(row, spec, &found, cells));
        account.claims.push(claim(row, spec, &found));
        if let Some((run, why)) = &found.wrong {
            let replay = lay_out(row, *run)?.replay();
            account.failures.push(format!("{}: {why}\nreplay: {replay}", row.name()));
        } else if !found.complete(spec.admits()) {
            let why = "not every pattern that it admits was shown";
            account.failures.push(format!("{}: {why}", row.name()));
        }
        figures.push(figure(row, spec, &found)?);
    }
    account.parts.push(Part::Table {
        caption: "Table 3, with a run for each pattern that table 2 admits".to_string(),
        head: ["protocol", "enforces", "runs", "deliveries", "crashes", "violated", "patterns"]
            .map(String::from)
            .to_vec(),
        rows,
    });
    account.figures = json!({ "rows": figures });
    Ok(account)
}

/// The run with that seed: a cluster and faults of any kind, or the lossy network.
fn lay_out(row: &'static Row, (lossy, seed): (bool, u64)) -> Result<Trial, Failure> {
    if lossy {
        let set = [("lane".to_string(), "datagram".to_string())].into();
        let raw = RawConfig { groups: 1, replicas: 5, clients: 0, set, ..RawConfig::default() };
        // What is lost is said again only after the crashes.
        let settings = Settings {
            messages: 40,
            payload: Some(20),
            faulty: Some(Span::millis(3)),
            settle: Span::secs(20),
            ..Settings::with(Profile::Crash)
        };
        let network = Network { latency_us: 40, loss_ppm: 400_000, mbit: 0 };
        return Trial::given(row, seed, raw, settings, Some(network));
    }
    let raw = match seed % 2 {
        0 => trial::wide(row, seed, Some(1)),
        _ => trial::hasty(row, seed, Some(1)),
    };
    let settings = Settings {
        payload_max: 1500,
        settle: Span::secs(20),
        ..Settings::with(PROFILES[(seed % 3) as usize])
    };
    Trial::given(row, seed, raw, settings, None)
}

fn search(row: &'static Row, spec: Specification, runs: u64) -> Result<Found, Failure> {
    let found = Mutex::new(Found::default());
    let look = |lossy: bool, seed: u64| -> Result<bool, Failure> {
        let judged = judge(&lay_out(row, (lossy, seed))?, None)?;
        let mut wrong = judged.wrong.map(|w| w.says);
        let mut shown = Vec::new();
        if wrong.is_none() {
            let behaviours = execution_patterns(&judged.history).map_err(Failure::Failed)?;
            shown.extend(behaviours.iter().filter(|b| b.deliveries > 0).map(|b| b.patterns));
            let strange = shown.iter().find(|p| !p.within(spec.admits()));
            wrong = strange.map(|p| format!("{p} is shown, which {spec} does not admit"));
        }
        let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
        found.runs += 1;
        found.deliveries += judged.deliveries;
        found.crashes += judged.crashes;
        found.add((lossy, seed), &shown);
        if let Some(why) = wrong
            && found.wrong.as_ref().is_none_or(|(run, _)| (lossy, seed) < *run)
        {
            found.wrong = Some(((lossy, seed), why));
        }
        Ok(found.wrong.is_some() || lossy && found.complete(spec.admits()))
    };
    let bar = |count| progress(count, row.name());
    over_cores(runs, &bar(runs), |seed| look(false, seed))?;
    let missing = {
        let found = found.lock().unwrap_or_else(PoisonError::into_inner);
        found.wrong.is_none() && !found.complete(spec.admits())
    };
    if missing {
        over_cores(LOSSY_RUNS, &bar(LOSSY_RUNS), |seed| look(true, seed))?;
    }
    Ok(found.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// Writes a sheet for each pattern found; gives their links.
fn witnesses(
    directory: &Path,
    row: &'static Row,
    spec: Specification,
    found: &Found,
) -> Result<Markup, Failure> {
    let mut links = Vec::new();
    for (n, pattern) in NAMES.iter().enumerate() {
        let Some(run) = found.witnesses[n].filter(|_| each(spec.admits())[n]) else { continue };
        let name = format!("{}-{}", row.name(), pattern.to_lowercase());
        let title = format!("{}: {pattern}", row.name());
        let trial = lay_out(row, run)?;
        witness::write(directory, &name, &title, &trial, |b| {
            b.deliveries > 0 && each(b.patterns)[n]
        })?;
        links.push((pattern, format!("to-table3/{name}.html")));
    }
    Ok(html! { @for (pattern, link) in links { a href=(link) { (pattern) } " " } })
}

fn line(row: &Row, spec: Specification, found: &Found, links: Markup) -> Vec<Markup> {
    vec![
        html! { (row.name()) },
        html! { (spec) },
        html! { (found.runs) },
        html! { (found.deliveries) },
        html! { (found.crashes) },
        html! { (if found.wrong.is_some() { "yes" } else { "no" }) },
        links,
    ]
}

fn claim(row: &Row, spec: Specification, found: &Found) -> Claim {
    let shown: Vec<_> =
        (0..4).filter(|n| found.witnesses[*n].is_some()).map(|n| NAMES[n]).collect();
    let sound = found.wrong.is_none();
    Claim {
        paper: format!("{} enforces {spec}: {} and no other pattern", row.name(), spec.admits()),
        found: format!(
            "{} in {} runs; shown: {}",
            if sound { "no violation" } else { "a violation" },
            found.runs,
            shown.join("+")
        ),
        holds: Holds::when(sound && found.complete(spec.admits())),
    }
}

fn figure(row: &'static Row, spec: Specification, found: &Found) -> Result<Value, Failure> {
    let mut replays = serde_json::Map::new();
    for (name, run) in NAMES.iter().zip(found.witnesses) {
        if let Some(run) = run {
            replays.insert(name.to_lowercase(), Value::String(lay_out(row, run)?.replay()));
        }
    }
    Ok(json!({
        "protocol": row.name(),
        "specification": spec.to_string(),
        "runs": found.runs,
        "deliveries": found.deliveries,
        "crashes": found.crashes,
        "violated": found.wrong.as_ref().map(|(_, why)| why),
        "complete": found.complete(spec.admits()),
        "witnesses": replays,
    }))
}

//! `to-table3`: which specification each of the ten protocols enforces [TO table 3], as evidence.
//!
//! A protocol enforces a specification if every run satisfies it, and none that is stronger
//! [TO definition 1]. The first is searched for violations in runs with faults drawn by seed. For the
//! second a run is found that breaks each specification directly above it [TO figure 1]; and a run for
//! every pattern of a faulty process that the specification admits [TO table 2] and that crashes can make.

use super::page::{ClaimVerdict, ExperimentAccount, PagePart, PaperClaim};
use super::{ReproduceSession, witness};
use crate::commands::Failure;
use crate::commands::cores::{over_cores, progress};
use crate::commands::sim::judge::judge;
use crate::commands::sim::network::Network;
use crate::commands::sim::trial::Trial;
use amcast::choose::enforced;
use amcast_check::{OrderKind, Patterns, Specification, check, execution_patterns};
use amcast_core::parameters::{LANE, PacketLane};
use amcast_core::{Entry, RawConfig, Span};
use amcast_protocols::total::{TABLE_3, TotalOrderRow};
use amcast_protocols::trial;
use amcast_sim::{Profile, RunSettings};
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

/// Why no run of a protocol of weak uniform order shows EP3.
const NO_EP3: &str = "EP3 has no witness in the three protocols of TO(NUA,WUTO). A member delivers by \
     number without holes until it enters the next view together with the survivors, or fails: it skips \
     nothing that they deliver. They skip a number whose message only failed members had and delivered, \
     which breaks TO(NUA,SUTO) all the same; the run that does is linked instead.";

/// The patterns that a specification admits and that no run of its protocols shows.
fn never_shown(spec: Specification) -> [bool; 4] {
    each(Patterns { ep3: spec.order == OrderKind::Wuto, ..Patterns::default() })
}

const fn each(patterns: Patterns) -> [bool; 4] {
    [patterns.ep1, patterns.ep2, patterns.ep3, patterns.ep4]
}

/// A run: whether it is over the lossy network, and the seed.
type LossySeed = (bool, u64);

/// The result for one protocol.
struct PatternFindings {
    spec: Specification,
    runs: u64,
    deliveries: u64,
    crashes: u64,
    /// For each pattern the first run that shows it.
    witnesses: [Option<LossySeed>; 4],
    /// For each next stronger specification the first run that breaks it.
    breaks: Vec<(Specification, Option<LossySeed>)>,
    /// The first run that must not be, and why.
    wrong: Option<(LossySeed, String)>,
}

impl PatternFindings {
    fn new(spec: Specification) -> Self {
        let breaks = spec.next_stronger().into_iter().map(|stronger| (stronger, None)).collect();
        let runs = 0;
        let deliveries = 0;
        let crashes = 0;
        Self { spec, runs, deliveries, crashes, witnesses: [None; 4], breaks, wrong: None }
    }

    /// The patterns that are admitted and that no run shows.
    fn unshown(&self) -> [bool; 4] {
        let admitted = each(self.spec.admits());
        core::array::from_fn(|n| admitted[n] && self.witnesses[n].is_none())
    }

    /// Whether every next stronger specification is broken, and every pattern shown that can be.
    fn complete(&self) -> bool {
        let never = never_shown(self.spec);
        let missing = self.unshown().iter().zip(never).any(|(unshown, never)| *unshown && !never);
        !missing && self.breaks.iter().all(|(_, run)| run.is_some())
    }

    fn add(&mut self, run: LossySeed, shown: &[Patterns], broken: &[Specification]) {
        let first = |witness: &mut Option<LossySeed>, shows: bool| {
            if shows && witness.is_none_or(|other| run < other) {
                *witness = Some(run);
            }
        };
        for (n, witness) in self.witnesses.iter_mut().enumerate() {
            first(witness, shown.iter().any(|p| each(*p)[n]));
        }
        for (stronger, witness) in &mut self.breaks {
            first(witness, broken.contains(stronger));
        }
    }
}

pub(super) fn run(session: &ReproduceSession<'_>) -> Result<ExperimentAccount, Failure> {
    let runs = RUNS[usize::from(session.quick)];
    let directory = session.directory("to-table3")?;
    let mut account = ExperimentAccount {
        how: format!(
            "Each protocol ran {runs} times in the simulator, with 2 to 7 members, crashes, \
             partitions, lost messages, slow processes and wrong suspicions drawn by seed, and \
             every run was judged; then, until the evidence was complete, with five members over a \
             network that loses 40 % of all datagrams. A pattern's name leads to a run that shows \
             it, and the name of a specification to a run that breaks it, with the command that makes \
             the run again. {NO_EP3}"
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
        let shown = witnesses(&directory, row, &found)?;
        let broken = breaks(&directory, row, &found)?;
        rows.push(line(row, &found, [shown, broken]));
        account.claims.push(claim(row, &found));
        if let Some((run, why)) = &found.wrong {
            let replay = lay_out(row, *run)?.replay();
            account.failures.push(format!("{}: {why}\nreplay: {replay}", row.name()));
        } else if !found.complete() {
            let why = "not every pattern was shown, or not every stronger specification broken";
            account.failures.push(format!("{}: {why}", row.name()));
        }
        figures.push(figure(row, &found)?);
    }
    account.parts.push(PagePart::Table {
        caption:
            "Table 3, with a run for each pattern that table 2 admits and that crashes can make, \
                  and one that breaks each specification directly above"
                .to_string(),
        head: [
            "protocol",
            "enforces",
            "runs",
            "deliveries",
            "crashes",
            "violated",
            "patterns",
            "breaks what is stronger",
        ]
        .map(String::from)
        .to_vec(),
        rows,
    });
    account.figures = json!({ "rows": figures });
    Ok(account)
}

/// The run with that seed: a cluster and faults of any kind, or the lossy network.
fn lay_out(row: &'static TotalOrderRow, (lossy, seed): LossySeed) -> Result<Trial, Failure> {
    if lossy {
        let set = [LANE.setting(PacketLane::Datagram)].into();
        let raw = RawConfig { groups: 1, replicas: 5, clients: 0, set, ..RawConfig::default() };
        // Lost messages are retransmitted only after the crashes.
        let settings = RunSettings {
            messages: 40,
            payload: Some(20),
            faulty: Some(Span::millis(3)),
            settle: Span::secs(20),
            ..RunSettings::with(Profile::Crash)
        };
        let network = Network { latency_us: 40, loss_ppm: 400_000, mbit: 0, buffer_kib: 0, bus: 0 };
        return Trial::given(row, seed, raw, settings, Some(network));
    }
    let raw = match seed % 2 {
        0 => trial::wide(row, seed, Some(1)),
        _ => trial::hasty(row, seed, Some(1)),
    };
    let settings = RunSettings {
        payload_max: 1500,
        settle: Span::secs(20),
        ..RunSettings::with(PROFILES[(seed % 3) as usize])
    };
    Trial::given(row, seed, raw, settings, None)
}

fn search(
    row: &'static TotalOrderRow,
    spec: Specification,
    runs: u64,
) -> Result<PatternFindings, Failure> {
    let found = Mutex::new(PatternFindings::new(spec));
    let above = spec.next_stronger();
    let look =
        |lossy: bool, seed: u64| -> Result<bool, Failure> {
            let judged = judge(&lay_out(row, (lossy, seed))?, None)?;
            let mut wrong = judged.wrong.map(|w| w.says);
            let (mut shown, mut broken) = (Vec::new(), Vec::new());
            if wrong.is_none() {
                let behaviours = execution_patterns(&judged.history).map_err(Failure::Failed)?;
                shown.extend(behaviours.iter().filter(|b| b.deliveries > 0).map(|b| b.patterns));
                let strange = shown.iter().find(|p| !p.within(spec.admits()));
                wrong = strange.map(|p| format!("{p} is shown, which {spec} does not admit"));
                broken.extend(above.iter().copied().filter(|stronger| {
                    !check(&judged.history, &stronger.properties()).no_violation()
                }));
            }
            let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
            found.runs += 1;
            found.deliveries += judged.deliveries;
            found.crashes += judged.crashes;
            found.add((lossy, seed), &shown, &broken);
            if let Some(why) = wrong
                && found.wrong.as_ref().is_none_or(|(run, _)| (lossy, seed) < *run)
            {
                found.wrong = Some(((lossy, seed), why));
            }
            Ok(found.wrong.is_some() || lossy && found.complete())
        };
    let bar = |count| progress(count, row.name());
    over_cores(runs, &bar(runs), |seed| look(false, seed))?;
    let missing = {
        let found = found.lock().unwrap_or_else(PoisonError::into_inner);
        found.wrong.is_none() && !found.complete()
    };
    if missing {
        over_cores(LOSSY_RUNS, &bar(LOSSY_RUNS), |seed| look(true, seed))?;
    }
    Ok(found.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// Writes a sheet for each pattern found; gives their links, and names those without a witness.
fn witnesses(
    directory: &Path,
    row: &'static TotalOrderRow,
    found: &PatternFindings,
) -> Result<Markup, Failure> {
    let mut links = Vec::new();
    for (n, pattern) in NAMES.iter().enumerate() {
        let Some(run) = found.witnesses[n].filter(|_| each(found.spec.admits())[n]) else {
            continue;
        };
        let name = format!("{}-{}", row.name(), pattern.to_lowercase());
        let title = format!("{}: {pattern}", row.name());
        let trial = lay_out(row, run)?;
        witness::write(directory, &name, &title, &trial, |b| {
            b.deliveries > 0 && each(b.patterns)[n]
        })?;
        links.push((pattern, format!("to-table3/{name}.html")));
    }
    let unshown = found.unshown();
    let without = NAMES.iter().zip(unshown).filter(|(_, unshown)| *unshown).map(|(name, _)| name);
    Ok(html! {
        @for (pattern, link) in links { a href=(link) { (pattern) } " " }
        @for pattern in without { "(no run shows " (pattern) ") " }
    })
}

/// Writes a sheet for each next stronger specification that a run breaks; gives their links.
fn breaks(
    directory: &Path,
    row: &'static TotalOrderRow,
    found: &PatternFindings,
) -> Result<Markup, Failure> {
    let mut links = Vec::new();
    for (stronger, run) in &found.breaks {
        let Some(run) = run else { continue };
        let plain: String =
            stronger.to_string().chars().filter(char::is_ascii_alphabetic).collect();
        let name = format!("{}-breaks-{}", row.name(), plain.to_lowercase());
        let title = format!("{} breaks {stronger}", row.name());
        witness::write_broken(directory, &name, &title, &lay_out(row, *run)?, *stronger)?;
        links.push((stronger, format!("to-table3/{name}.html")));
    }
    Ok(html! { @for (stronger, link) in links { a href=(link) { (stronger) } " " } })
}

fn line(row: &TotalOrderRow, found: &PatternFindings, links: [Markup; 2]) -> Vec<Markup> {
    let mut cells = vec![
        html! { (row.name()) },
        html! { (found.spec) },
        html! { (found.runs) },
        html! { (found.deliveries) },
        html! { (found.crashes) },
        html! { (if found.wrong.is_some() { "yes" } else { "no" }) },
    ];
    cells.extend(links);
    cells
}

fn claim(row: &TotalOrderRow, found: &PatternFindings) -> PaperClaim {
    let names = |which: [bool; 4]| {
        let names = NAMES.iter().zip(which).filter(|(_, which)| *which).map(|(name, _)| *name);
        names.collect::<Vec<_>>().join("+")
    };
    let spec = found.spec;
    let sound = found.wrong.is_none();
    let mut text = format!(
        "{} in {} runs; shown: {}",
        if sound { "no violation" } else { "a violation" },
        found.runs,
        names(found.witnesses.map(|run| run.is_some()))
    );
    let unshown = names(found.unshown());
    if !unshown.is_empty() {
        text.push_str(&format!("; no run shows {unshown}"));
    }
    let broken = found.breaks.iter().filter(|(_, run)| run.is_some());
    let broken: Vec<_> = broken.map(|(stronger, _)| stronger.to_string()).collect();
    if !broken.is_empty() {
        text.push_str(&format!("; broken: {}", broken.join(", ")));
    }
    PaperClaim {
        paper: format!(
            "{} enforces {spec}, which admits {}, and nothing stronger",
            row.name(),
            spec.admits()
        ),
        found: text,
        holds: ClaimVerdict::when(sound && found.complete()),
    }
}

fn figure(row: &'static TotalOrderRow, found: &PatternFindings) -> Result<Value, Failure> {
    let (mut replays, mut broken) = (serde_json::Map::new(), serde_json::Map::new());
    for (name, run) in NAMES.iter().zip(found.witnesses) {
        if let Some(run) = run {
            replays.insert(name.to_lowercase(), Value::String(lay_out(row, run)?.replay()));
        }
    }
    for (stronger, run) in &found.breaks {
        if let Some(run) = run {
            let commands = witness::commands(&lay_out(row, *run)?, *stronger, "run.jsonl");
            broken.insert(stronger.to_string(), json!(commands));
        }
    }
    let unshown = NAMES.iter().zip(found.unshown()).filter(|(_, unshown)| *unshown);
    let unshown: Vec<_> = unshown.map(|(name, _)| name.to_lowercase()).collect();
    Ok(json!({
        "protocol": row.name(),
        "specification": found.spec.to_string(),
        "runs": found.runs,
        "deliveries": found.deliveries,
        "crashes": found.crashes,
        "violated": found.wrong.as_ref().map(|(_, why)| why),
        "complete": found.complete(),
        "witnesses": replays,
        "breaks": broken,
        "without_witness": unshown,
        "why_without": (!unshown.is_empty()).then_some(NO_EP3),
    }))
}

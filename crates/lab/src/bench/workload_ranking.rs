//! Protocols, trees and parameters ranked for a workload, by the simulator.
//!
//! Each candidate runs the same multicasts in the same surroundings, drawn anew in each round, once with one multicast
//! of each sender on the way (latency) and once with many (throughput).

use super::{BenchPlan, BenchResult, Spread, run_simulated_of};
use amcast::choose::{self, MeasuredMedium, fitted_overlay, overlay_parents};
use amcast_core::config::ParamKind;
use amcast_core::entry::MediumKind;
use amcast_core::{Assumption, Config, Entry, Overlay, Property, RawConfig, Span};
use amcast_node::workload::{DestinationCount, RecordedWorkload};
use amcast_sim::disk::DiskModel;
use amcast_sim::{CarrierModel, CastPace, RunSettings};
use serde::Serialize;

/// Multicasts that each sender has on the way for throughput.
const MANY: u32 = 64;

/// Parameters whose values are tried, where a protocol has them: how much it gathers, and how much it has on the way.
const TUNED: [&str; 2] = ["batch_lines", "pipeline"];

/// A file says how many multicasts a second come; a cluster that could just carry them would be always full.
const SPARE: f64 = 1.25;

/// The candidates that are compared, and their surroundings.
#[derive(Clone, Debug)]
pub struct RankingSettings {
    /// The medium that carries messages; any if none.
    pub medium: Option<MeasuredMedium>,
    /// Replicas of a group.
    pub replicas: usize,
    /// Clients, where clients multicast.
    pub clients: usize,
    /// How long a write to another process's memory takes.
    pub write: Span,
    /// How long a message takes.
    pub message: Span,
    /// How long a step keeps its process busy.
    pub step: Span,
    /// How long a disk takes to make a record durable.
    pub sync: Span,
    /// How often everything is run.
    pub rounds: u64,
    /// Multicasts of a run.
    pub messages: usize,
}

/// A protocol with its tree and parameters.
#[derive(Clone, Debug, Serialize)]
pub struct WorkloadCandidate {
    /// The protocol.
    pub protocol: &'static str,
    /// The tree, if it uses one: a name, or the parents of all groups.
    pub overlay: Option<String>,
    /// Parameters that are not the usual ones.
    pub set: Vec<(String, String)>,
    /// Whether it serves on when processes crash.
    pub survives_crashes: bool,
}

/// A candidate and what was found.
#[derive(Clone, Debug, Serialize)]
pub struct RankedCandidate {
    /// The candidate.
    #[serde(flatten)]
    pub candidate: WorkloadCandidate,
    /// Replicas of a group in these runs: fewer than asked for where it takes no more.
    pub replicas: usize,
    /// Processes that multicast.
    pub senders: usize,
    /// The median latency of each round with one multicast of each sender on the way, in microseconds.
    pub latency_us: Vec<f64>,
    /// Multicasts a second of each round, with many on the way.
    pub per_second: Vec<f64>,
    /// Whether it carries the workload's rate with room to spare; true if the file names none.
    pub carries: bool,
}

impl RankedCandidate {
    /// The latency over the rounds.
    pub fn latency(&self) -> Spread {
        Spread::of(self.latency_us.iter().copied()).expect("there is a round")
    }

    /// The throughput over the rounds.
    pub fn throughput(&self) -> Spread {
        Spread::of(self.per_second.iter().copied()).expect("there is a round")
    }

    /// In how many rounds it took less time than `other`, or as much and carried more: both ran the same multicasts.
    pub fn rounds_ahead(&self, other: &Self) -> usize {
        let rounds = |of: &Self| -> Vec<(f64, f64)> {
            of.latency_us.iter().copied().zip(of.per_second.iter().copied()).collect()
        };
        let ahead = |((own, carried), (its, others)): &((f64, f64), (f64, f64))| {
            own < its || own == its && carried > others
        };
        rounds(self).into_iter().zip(rounds(other)).filter(ahead).count()
    }
}

/// Ranks everything that can carry the workload: those that survive crashes and carry its rate first, then by latency, and those alike by throughput. `tell` hears of
/// each candidate before it is run. A candidate that cannot run is omitted, and `tell` hears why.
///
/// # Errors
/// When nothing is left.
pub fn ranked(
    workload: &RecordedWorkload,
    settings: &RankingSettings,
    tell: &mut dyn FnMut(String),
) -> Result<Vec<RankedCandidate>, String> {
    let mut all = Vec::new();
    let mut measured = |candidates: Vec<WorkloadCandidate>, all: &mut Vec<RankedCandidate>| {
        for candidate in candidates {
            let name = candidate_arguments(&candidate);
            tell(name.clone());
            match measure(workload, settings, candidate) {
                Ok(one) => add(one, all),
                Err(why) => tell(format!("{name} is omitted: {why}")),
            }
        }
        all.sort_by(|a, b| {
            let slow = |c: &RankedCandidate| (!c.candidate.survives_crashes, !c.carries);
            let latency = |c: &RankedCandidate| c.latency().median;
            let carried = |c: &RankedCandidate| c.throughput().median;
            let faster = latency(a).total_cmp(&latency(b));
            slow(a).cmp(&slow(b)).then(faster).then(carried(b).total_cmp(&carried(a)))
        });
    };
    measured(candidates(workload, settings.medium), &mut all);
    forget_trees(&mut all);
    let best = all.first().ok_or("no protocol can carry this workload over this medium")?;
    measured(tuned(&best.candidate), &mut all);
    Ok(all)
}

/// Adds a candidate, unless its tree or parameters make no difference: it ran as one of the same protocol did.
fn add(one: RankedCandidate, all: &mut Vec<RankedCandidate>) {
    let same = |known: &RankedCandidate| {
        known.candidate.protocol == one.candidate.protocol
            && (&known.latency_us, &known.per_second) == (&one.latency_us, &one.per_second)
    };
    if !all.iter().any(same) {
        all.push(one);
    }
}

/// A protocol of which one candidate is left runs alike over every tree: its candidate names none.
fn forget_trees(all: &mut [RankedCandidate]) {
    let of = |protocol| move |one: &&RankedCandidate| one.candidate.protocol == protocol;
    let alone = |one: &RankedCandidate| all.iter().filter(of(one.candidate.protocol)).count() == 1;
    let alone: Vec<bool> = all.iter().map(alone).collect();
    for (one, _) in all.iter_mut().zip(alone).filter(|(_, alone)| *alone) {
        one.candidate.overlay = None;
    }
}

/// A candidate as the command line writes it.
pub fn candidate_arguments(candidate: &WorkloadCandidate) -> String {
    let mut words = vec![format!("--protocol {}", candidate.protocol)];
    words.extend(candidate.overlay.iter().map(|tree| format!("--overlay {tree}")));
    words.extend(candidate.set.iter().map(|(name, value)| format!("--set {name}={value}")));
    words.join(" ")
}

/// The parameter with which a running cluster can change its tree.
const DYNAMIC: &str = "dynamic_overlay";

/// The command that gives a running cluster the tree of a candidate, where its protocol can change that.
pub fn overlay_command(candidate: &WorkloadCandidate) -> Option<String> {
    let tree = candidate.overlay.as_ref()?;
    let entry = amcast_protocols::catalog::find(candidate.protocol)?;
    let changes = entry.about().params.iter().any(|param| param.name == DYNAMIC);
    changes.then(|| format!("amcast overlay set {tree}"))
}

/// Every protocol of several groups, each with the trees that make a difference to it.
fn candidates(
    workload: &RecordedWorkload,
    medium: Option<MeasuredMedium>,
) -> Vec<WorkloadCandidate> {
    let fitted = fitted_overlay(workload.groups, &workload.weights());
    let usual = [
        ("base", Overlay::base(workload.groups)),
        ("breadth", Overlay::breadth(workload.groups)),
        ("depth", Overlay::depth(workload.groups)),
    ];
    let named = usual.iter().find(|(_, tree)| *tree == fitted);
    let fitted = match named {
        Some((name, _)) => (*name).to_string(),
        None => {
            let parents: Vec<_> = overlay_parents(&fitted).iter().map(i64::to_string).collect();
            parents.join(",")
        }
    };
    let mut trees = vec![fitted];
    for (name, tree) in &usual {
        let is_new = usual.iter().take_while(|(other, _)| other != name).all(|(_, t)| t != tree);
        if is_new && !trees.iter().any(|known| known == name) {
            trees.push((*name).to_string());
        }
    }
    let mut all = Vec::new();
    for found in choose::multicast(medium) {
        let protocol = found.entry.name();
        // Groups on a tree's path take part: that is what such a promise bounds.
        let follows_tree = found.entry.about().promises.contains(&Property::PartiallyGenuine);
        let survives_crashes = !found.entry.about().assumes.contains(&Assumption::NoCrash);
        let of =
            |overlay| WorkloadCandidate { protocol, overlay, set: Vec::new(), survives_crashes };
        match follows_tree {
            true => all.extend(trees.iter().cloned().map(|tree| of(Some(tree)))),
            false => all.push(of(None)),
        }
    }
    all
}

/// The candidate with a quarter and with four times of each parameter that may be tuned.
fn tuned(best: &WorkloadCandidate) -> Vec<WorkloadCandidate> {
    let entry = amcast_protocols::catalog::find(best.protocol).expect("it was run");
    let mut all = Vec::new();
    for param in entry.about().params.iter().filter(|param| TUNED.contains(&param.name)) {
        let ParamKind::Number { default, min, max } = param.kind else { continue };
        for value in [default / 4, default * 4].map(|value| value.clamp(min, max)) {
            if value != default {
                let set = vec![(param.name.to_string(), value.to_string())];
                all.push(WorkloadCandidate { set, ..best.clone() });
            }
        }
    }
    all
}

fn measure(
    workload: &RecordedWorkload,
    settings: &RankingSettings,
    candidate: WorkloadCandidate,
) -> Result<RankedCandidate, String> {
    let entry = amcast_protocols::catalog::find(candidate.protocol).expect("it is of the catalog");
    let config = config(entry, workload.groups, settings, &candidate)?;
    let (mut latency_us, mut per_second) = (Vec::new(), Vec::new());
    for round in 1..=settings.rounds {
        let run = |on_the_way| {
            let settings = run_settings(workload, settings, entry, on_the_way);
            run_simulated_of(entry, &config, &settings, round)
        };
        let BenchResult { latency_ns, .. } = run(1)?;
        latency_us.push(latency_ns.p50 as f64 / 1e3);
        per_second.push(run(MANY)?.per_second);
    }
    let least = per_second.iter().copied().fold(f64::INFINITY, f64::min);
    let carries = workload.per_second().is_none_or(|rate| least >= rate * SPARE);
    let cluster = config.cluster();
    let (replicas, clients) = (cluster.replicas(), cluster.clients());
    let senders = if clients > 0 { clients } else { workload.groups * replicas };
    Ok(RankedCandidate { candidate, replicas, senders, latency_us, per_second, carries })
}

fn run_settings(
    workload: &RecordedWorkload,
    settings: &RankingSettings,
    entry: &dyn Entry,
    on_the_way: u32,
) -> RunSettings {
    let mut model = CarrierModel::constant(settings.write, settings.message);
    (model.step, model.disk) = (settings.step, DiskModel::constant(settings.sync));
    let payload = workload.payload_bytes as usize;
    // Where a write is a memory access, posting it is what a step spends its time with.
    if entry.about().medium == MediumKind::Memory {
        model.ram.post = settings.step;
    }
    RunSettings {
        messages: settings.messages,
        destination_sets: workload.weights(),
        // Each is made as soon as its sender has fewer on the way.
        faulty: Some(Span::micros(1)),
        ..RunSettings::latency(model, CastPace::Closed(on_the_way), payload, 1)
    }
}

/// The configuration of a candidate: with one replica a group and without clients where it takes no others.
fn config(
    entry: &dyn Entry,
    groups: usize,
    settings: &RankingSettings,
    candidate: &WorkloadCandidate,
) -> Result<Config, String> {
    let mut refused = String::new();
    for (replicas, clients) in [
        (settings.replicas, settings.clients),
        (settings.replicas, 0),
        (1, settings.clients),
        (1, 0),
    ] {
        let raw = RawConfig {
            groups,
            replicas,
            clients,
            overlay: candidate.overlay.clone().unwrap_or_else(|| "breadth".to_string()),
            set: candidate.set.iter().cloned().collect(),
        };
        let checked = raw.check(entry.about().params).and_then(|config| {
            amcast_core::entry::build_all(entry, &config)?;
            Ok(config)
        });
        match checked {
            Ok(config) => return Ok(config),
            Err(why) if refused.is_empty() => refused = why.to_string(),
            Err(_) => {}
        }
    }
    Err(refused)
}

/// The workload of a measurement: its destinations are those of the multicasts that were judged one by one.
pub fn recorded(plan: &BenchPlan, measured: &BenchResult) -> RecordedWorkload {
    let sets = measured.destination_sets.iter();
    let sets: Vec<_> = sets.map(|&(set, count)| DestinationCount::of(set, count)).collect();
    let total: f64 = sets.iter().map(|of| of.count as f64).sum();
    RecordedWorkload {
        groups: plan.groups,
        // As long as these took at the rate that was measured.
        seconds: Some(total / measured.per_second).filter(|s| s.is_finite() && *s > 0.0),
        payload_bytes: plan.load.payload as u64,
        unlisted: 0,
        sets,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> RankingSettings {
        RankingSettings {
            medium: Some(MeasuredMedium::Shm),
            replicas: 1,
            clients: 2,
            write: Span::nanos(500),
            message: Span::micros(25),
            step: Span::nanos(300),
            sync: Span::micros(100),
            rounds: 2,
            messages: 400,
        }
    }

    fn workload(seconds: &str, sets: &[(&str, u64)]) -> RecordedWorkload {
        let mut text = format!("groups = 6\nseconds = {seconds}\npayload_bytes = 64\n");
        for (groups, count) in sets {
            text += &format!("[[set]]\ngroups = [{groups}]\ncount = {count}\n");
        }
        RecordedWorkload::parse(&text).unwrap()
    }

    #[test]
    fn a_tree_made_for_the_destinations_beats_the_usual_ones() {
        let workload = workload("1000.0", &[("0, 5", 10), ("1, 4", 10), ("2, 3", 10)]);
        let mut told = Vec::new();
        let ranked = ranked(&workload, &settings(), &mut |what| told.push(what)).unwrap();
        let of_tram: Vec<_> =
            ranked.iter().filter(|one| one.candidate.protocol == "tram").collect();
        let tree = of_tram[0].candidate.overlay.as_deref().unwrap();
        assert!(tree.contains(','), "{tree} is a list of parents");
        let command = overlay_command(&of_tram[0].candidate);
        assert_eq!(command, Some(format!("amcast overlay set {tree}")));
        let without = |one: &&RankedCandidate| overlay_command(&one.candidate).is_none();
        let able = ranked.iter().filter(|one| one.candidate.protocol == "tram");
        assert_eq!(able.count() + ranked.iter().filter(without).count(), ranked.len());
        let others = &of_tram[1..];
        assert!(!others.is_empty() && others.iter().all(|o| of_tram[0].rounds_ahead(o) == 2));
        assert!(ranked.iter().any(|one| one.candidate.protocol == "ramcast"));
        assert!(ranked.iter().all(|one| one.carries) && told.len() >= ranked.len());
    }

    #[test]
    fn what_cannot_carry_the_rate_comes_last_and_is_marked() {
        let workload = workload("0.000001", &[("0", 1_000_000)]);
        let ranked = ranked(&workload, &settings(), &mut |_| {}).unwrap();
        assert!(!ranked.is_empty() && ranked.iter().all(|one| !one.carries));
    }
}

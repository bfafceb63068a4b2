//! `mrp-fig8` and `mrp-recovery`: a replica of the key-value store is killed and comes back, while
//! clients continue [MRP 8.5]; see [`crate::bench::recovery`].

use super::ReproduceSession;
use super::chart::{Axes, ChartLine, lines};
use super::page::{ClaimVerdict, ExperimentAccount, PagePart, PaperClaim};
use crate::bench::recovery::{RecoveryCourse, RecoveryResult, SecondFigures, run};
use crate::commands::Failure;
use amcast_core::Entry;
use amcast_protocols::multiring;
use maud::html;
use serde_json::json;

/// The approximate memory of a node besides the state at most, with the usual parameters.
const CACHES_BYTES: u64 = 256 << 20;

/// The parameters of the course.
struct CourseShape {
    state_bytes: u64,
    /// Kill, restart and end, in seconds.
    times: [f64; 3],
}

/// Figure 8.
pub(super) fn killed(session: &ReproduceSession<'_>) -> Result<ExperimentAccount, Failure> {
    let shape = match session.quick {
        true => CourseShape { state_bytes: 20 << 20, times: [5.0, 20.0, 32.0] },
        false => CourseShape { state_bytes: 100 << 20, times: [20.0, 240.0, 300.0] },
    };
    account(session, "mrp-fig8", &shape)
}

/// With a gigabyte of state.
pub(super) fn large(session: &ReproduceSession<'_>) -> Result<ExperimentAccount, Failure> {
    let shape = match session.quick {
        true => CourseShape { state_bytes: 1 << 30, times: [5.0, 15.0, 50.0] },
        false => CourseShape { state_bytes: 1 << 30, times: [20.0, 80.0, 200.0] },
    };
    account(session, "mrp-recovery", &shape)
}

fn course(
    session: &ReproduceSession<'_>,
    id: &str,
    shape: &CourseShape,
) -> Result<RecoveryCourse, Failure> {
    let [kill_s, restart_s, end_s] = shape.times;
    Ok(RecoveryCourse {
        protocol: multiring::WRITTEN.name().to_string(),
        state_bytes: shape.state_bytes,
        value_bytes: 1024,
        clients: 16,
        part_of_peak: 0.75,
        per_second: None,
        empties_disk: false,
        kill_s,
        restart_s,
        end_s,
        data: session.directory(id)?.join("cluster"),
    })
}

fn account(
    session: &ReproduceSession<'_>,
    id: &str,
    shape: &CourseShape,
) -> Result<ExperimentAccount, Failure> {
    let course = course(session, id, shape)?;
    let mut tell = |what: &str| tracing::info!("{id}: {what}");
    let told = run(&course, &mut tell).map_err(Failure::Failed)?;
    let [kill_s, restart_s, end_s] = shape.times;
    Ok(ExperimentAccount {
        how: format!(
            "Three nodes of the key-value store on this machine, one shard, so one ring of three \
             acceptors that write asynchronously to disk; {} MB of values of {} bytes are there \
             before. {} clients write through the two nodes that live on, at {:.0} % of the most that \
             can be written ({:.0} a second, found just before); latency counts from when a write was \
             due. A replica that does not coordinate is killed (-9) at {kill_s} s and started again at \
             {restart_s} s; the end is at {end_s} s. Afterwards what was acknowledged is read back. All \
             nodes and the clients share the machine's cores and its one disk.",
            course.state_bytes >> 20,
            course.value_bytes,
            course.clients,
            course.part_of_peak * 100.0,
            told.peak_per_second.unwrap_or(told.asked_per_second),
        ),
        parts: parts(&told)?,
        claims: claims(&told, shape),
        failures: Vec::new(),
        figures: json!({ "course": course, "told": told }),
    })
}

fn parts(told: &RecoveryResult) -> Result<Vec<PagePart>, Failure> {
    let line = |name: &str, of: fn(&SecondFigures) -> f64| ChartLine {
        name: name.to_string(),
        points: told.seconds.iter().map(|s| (s.at as f64, of(s))).collect(),
    };
    let x = "seconds";
    let throughput = [line("acknowledged", |s| s.acknowledged as f64)];
    let latency = [line("mean", |s| s.mean_ms), line("longest", |s| s.max_ms)];
    let memory: Vec<ChartLine> = (0..3)
        .map(|rank| ChartLine {
            name: format!("n{rank}"),
            points: told.seconds.iter().map(|s| (s.at as f64, s.memory_mb[rank])).collect(),
        })
        .collect();
    let mut parts = Vec::new();
    for (name, title, y, drawn) in [
        ("throughput", "writes a second", "writes/s", &throughput[..]),
        ("latency", "latency of writes", "milliseconds", &latency[..]),
        ("memory", "memory of each node", "MB", &memory[..]),
    ] {
        let svg = lines(&Axes { title, x, y }, drawn)?;
        parts.push(PagePart::Chart { name: name.to_string(), caption: title.to_string(), svg });
    }
    parts.push(PagePart::Table {
        caption: "Events".to_string(),
        head: ["second", "what"].map(String::from).to_vec(),
        rows: told
            .events
            .iter()
            .map(|e| vec![html! { (format!("{:.1}", e.at_s)) }, html! { (e.what) }])
            .collect(),
    });
    Ok(parts)
}

/// Mean throughput and the highest mean latency of some seconds.
fn of(told: &RecoveryResult, from: f64, to: f64) -> (f64, f64) {
    let within = || told.seconds.iter().filter(|s| (from..to).contains(&(s.at as f64)));
    let rate =
        within().map(|s| s.acknowledged as f64).sum::<f64>() / within().count().max(1) as f64;
    (rate, within().map(|s| s.mean_ms).fold(0.0, f64::max))
}

fn claims(told: &RecoveryResult, shape: &CourseShape) -> Vec<PaperClaim> {
    let [kill_s, restart_s, end_s] = shape.times;
    let checkpoints = told.events.iter().filter(|e| e.what.contains("checkpoint")).count();
    let (before, _) = of(told, 1.0, kill_s);
    let (down, _) = of(told, kill_s + 1.0, restart_s);
    let back_s = told.recovery_s.map_or(end_s, |took| restart_s + took);
    let (back, _) = of(told, back_s.ceil() + 1.0, end_s - 1.0);
    let least = told.seconds.iter().filter(|s| s.at as f64 >= 1.0 && (s.at as f64) < end_s - 1.0);
    let least = least.map(|s| s.acknowledged).min().unwrap_or(0);
    // Bytes of state in each megabyte of memory that a node ever had.
    let most = told.most_memory_mb.iter().copied().fold(0.0, f64::max);
    let steady = told.seconds.iter().find(|s| s.at as f64 >= kill_s - 1.0);
    let steady = steady.map_or(f64::NAN, |s| s.memory_mb.iter().copied().fold(0.0, f64::max));
    vec![
        PaperClaim {
            paper: "the service continues while a replica is down".to_string(),
            found: format!(
                "{before:.0} writes/s before, {down:.0} while it is down; the longest time without any \
                 acknowledgement was {:.0} ms; {} errors",
                told.longest_silence_ms, told.errors
            ),
            holds: ClaimVerdict::when(down > 0.9 * before),
        },
        PaperClaim {
            paper: "starting a replica again reduces performance for a short time only".to_string(),
            found: match told.recovery_s {
                Some(took) => format!(
                    "it was back after {took:.1} s; the worst second of the course had {least} \
                     writes; {back:.0} writes/s afterwards"
                ),
                None => "it was not back at the end".to_string(),
            },
            holds: ClaimVerdict::when(told.recovery_s.is_some() && back > 0.9 * before),
        },
        PaperClaim {
            paper: "writing checkpoints does not disrupt the service".to_string(),
            found: format!(
                "{checkpoints} checkpoints; the worst second had {least} writes of {:.0} asked for",
                told.asked_per_second
            ),
            holds: match checkpoints {
                0 => ClaimVerdict::Open,
                _ => ClaimVerdict::when(least as f64 > 0.5 * told.asked_per_second),
            },
        },
        PaperClaim {
            paper: "(ours) a state is saved and given without a second copy in memory".to_string(),
            found: format!("at most {most:.0} MB at a node, {steady:.0} MB before the kill"),
            // The cache of recently ordered values grows to its bound meanwhile: it hides a second
            // copy of a small state, and looks like one.
            holds: match shape.state_bytes {
                small if small < CACHES_BYTES => ClaimVerdict::Open,
                _ => ClaimVerdict::when(most < 1.5 * steady),
            },
        },
    ]
}

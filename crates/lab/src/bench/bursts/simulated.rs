//! Bursts in the simulator, on the paper's network.

use super::{BurstRepeat, BurstWatch, Config, Entry, MEMBERS, PAYLOAD_BYTES, ROUNDS, Time};
use amcast_core::rng::Rng;
use amcast_core::trace::TraceEvent;
use amcast_core::{GroupSet, Pid, Span};
use amcast_sim::{CarrierModel, CastPace, Choices, PlannedCast, RunOutcome, RunPlan, RunRecord};

/// 100 Mbit/s, switched: besides its bytes a message takes this long.
const LATENCY: Span = Span::micros(60);
/// Picoseconds that a byte occupies a port.
const PORT_PS_PER_BYTE: u64 = 80_000;
/// How long a process of that time is busy with one message.
const STEP: Span = Span::micros(10);
/// Processes begin a repeat at most so far apart.
const APART: Span = Span::micros(200);

/// One repeat with bursts of `burst`; when processes begin is drawn from `seed`.
///
/// # Errors
/// When the configuration is incomplete, or the run did not settle.
pub fn run(
    entry: &dyn Entry,
    config: &Config,
    burst: usize,
    seed: u64,
) -> Result<BurstRepeat, String> {
    let mut model = CarrierModel::constant(Span::micros(2), LATENCY);
    model.network.port_ps_per_byte = PORT_PS_PER_BYTE;
    model.step = STEP;
    let plan = RunPlan {
        model,
        casts: casts(burst, seed),
        pace: CastPace::Rounds(burst as u32),
        barriers: Vec::new(),
        strikes: Vec::new(),
        calm: Time::ZERO + Span::millis(1),
        service: false,
        drift_ppm: vec![0; MEMBERS],
        settle: Span::secs(600),
        quiet: Span::millis(1),
        events_max: 600_000_000,
    };
    let mut watches = vec![BurstWatch::new(burst); MEMBERS];
    let recorded = RunRecord { plan, choices: Choices::default() };
    let report = amcast_sim::replay(entry, config, &recorded, &mut |event| match *event {
        TraceEvent::Cast { t, p, .. } => watches[p.index()].cast(t),
        TraceEvent::Deliver { t, p, m } => watches[p.index()].deliver(t, m.sender == p),
        _ => {}
    });
    let report = report.map_err(|e| e.to_string())?;
    if report.outcome != RunOutcome::Settled || !watches.iter().all(BurstWatch::is_over) {
        return Err(format!("{}: the run did not settle", entry.name()));
    }
    Ok(BurstRepeat::of(&watches.iter().map(BurstWatch::seen).collect::<Vec<_>>()))
}

fn casts(burst: usize, seed: u64) -> Vec<PlannedCast> {
    let mut rng = Rng::new(seed);
    let begins: Vec<_> = (0..MEMBERS).map(|_| Time(rng.below(APART.0))).collect();
    let cast = |n: usize| PlannedCast {
        at: begins[n % MEMBERS],
        sender: Pid((n % MEMBERS) as u32),
        dst: GroupSet::first(1),
        bytes: PAYLOAD_BYTES,
    };
    let mut casts: Vec<_> = (0..MEMBERS * burst * ROUNDS).map(cast).collect();
    casts.sort_by_key(|cast| cast.at);
    casts
}

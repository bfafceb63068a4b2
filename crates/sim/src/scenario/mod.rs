//! Scenarios: runs without chance, written down as text together with what must happen in them.
//!
//! ```text
//! # The aim of the scenario.
//! run tram groups=2 clients=1 overlay=depth hm_lines=64
//! show hm log
//! ----
//!      0.000 us  g0/r0 leads, epoch 16
//!
//! at 100us cast c0 g0,g1 8
//! ----
//!    100.000 us     c0 casts c0:1 to g0, g1
//!    101.000 us  g0/r0 delivers c0:1
//! ```
//!
//! A file is a sequence of blocks: commands, a line of dashes, and what happens from the time of the
//! block's first command until the next block's, up to an empty line. The first block defines the
//! run, the others the faults:
//!
//! | command | |
//! |---|---|
//! | `run PROTOCOL NAME=VALUE ..` | `groups`, `replicas`, `clients`, `overlay`, or a parameter of the protocol |
//! | `time NAME=SPAN ..` | `write`: from a write's posting to its landing, and again to its answer (1us); `message`: how long a message travels (10us); `notice`: how long the leader oracle takes (1ms); `sync`: how long until a record is durable, or a checkpoint (100us) |
//! | `show WHAT ..` | reports beside multicasts, deliveries, crashes and changes of leader: a region's name (its writes, reads and permissions), `denied` and `lost` writes, `disk` (records and checkpoints), `messages`, `part` |
//! | `at TIME cast CLIENT GROUPS BYTES` | a multicast |
//! | `at TIME crash P [after N] [for SPAN]` | a crash, for good or not; after the first N outputs of its next step, or at once |
//! | `at TIME power P,.. [keeps] [for SPAN]` | their machines fail at one moment: of their logs all is lost that is not durable, or nothing |
//! | `at TIME stall P for SPAN` | nothing that P has written becomes durable |
//! | `at TIME replace P for SPAN` | P loses its machine and its disk, and has an empty one then |
//! | `at TIME damage P PPM` | a durable record of P cannot be read any more: so many in a million are before it; at the next start the log is cut there |
//! | `at TIME full P for SPAN` | the disk of P is full: it dies if it writes, until there is room |
//! | `at TIME checkpoint P` | the application of P takes a checkpoint; it takes none by itself |
//! | `at TIME overlay CLIENT PARENTS` | a client asks for another tree: each group's parent, -1 for the root's |
//! | `at TIME leave P [for SPAN]` | a member leaves its group by choice and stops, and comes back after that |
//! | `at TIME pause P for SPAN` | a process takes no step |
//! | `at TIME hang P for SPAN` | the application of P executes nothing |
//! | `at TIME cut P Q for SPAN` | the link between two processes fails |
//! | `at TIME hold P Q for SPAN` | nothing passes from P to Q, and neither is notified |
//! | `at TIME sever P Q` | nothing passes from P to Q for good |
//! | `at TIME suspect P Q for SPAN` | P wrongly suspects Q |
//! | `at TIME mislead P Q for SPAN` | P wrongly takes Q for the leader of Q's group |
//! | `at TIME barrier P` | P is set a barrier |
//! | `at TIME look` | nothing: a block of its own for what happens from here on |
//!
//! [`Scenario::read`] takes the commands, [`Scenario::play`] makes the run and gives the text of the
//! whole file with what happened in it: as it was, if all is as expected.

mod print;
mod read;

pub use read::ScenarioError;

use crate::barrier::Barrier;
use crate::chooser::{Choices, Concern};
use crate::delay::Delay;
use crate::disk::DiskModel;
use crate::faults::{Fault, FaultTime, Strike};
use crate::plan::{CarrierModel, CastPace, PlannedCast, RunPlan};
use crate::run::{RunOutcome, RunRecord, RunReport};
use alloc::string::String;
use alloc::vec::Vec;
use amcast_core::trace::TraceEvent;
use amcast_core::{Config, Entry, Span, Time};
use core::fmt::Write as _;

/// How long after its last command a scenario may take to settle.
const SETTLE: Span = Span::millis(50);

/// How long nothing may be delivered for a run to count as settled.
const QUIET: Span = Span::micros(500);

/// A run without chance, and how its file is laid out.
pub struct Scenario {
    entry: &'static dyn Entry,
    config: Config,
    times: ScenarioTimes,
    shown: Vec<String>,
    /// After how many outputs each process dies that dies in mid-step, in order.
    deaths: Vec<u64>,
    blocks: Vec<ScenarioBlock>,
}

/// How long things take.
#[derive(Clone, Copy, Debug)]
struct ScenarioTimes {
    write: Span,
    message: Span,
    notice: Span,
    sync: Span,
}

/// Commands, and when the first of them takes effect.
#[derive(Debug, Default)]
struct ScenarioBlock {
    /// The lines before the dashes, comments included.
    text: String,
    /// None for the first block.
    at: Option<Time>,
    casts: Vec<PlannedCast>,
    barriers: Vec<Barrier>,
    strikes: Vec<Strike>,
}

/// The result of a scenario.
#[derive(Debug)]
pub struct ScenarioResult {
    /// The file as it must be: the same commands, and what happened.
    pub text: String,
    /// The result of the run.
    pub report: RunReport,
}

impl Scenario {
    /// The protocol that is run.
    pub fn entry(&self) -> &'static dyn Entry {
        self.entry
    }

    /// The configuration that is run.
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// Makes the run; its events go to `sink` as well.
    pub fn play(&self, sink: &mut dyn FnMut(&TraceEvent<'_>)) -> ScenarioResult {
        let mut recorded = RunRecord { plan: self.plan(), choices: Choices::default() };
        // All other choices are the ordinary ones.
        recorded.choices.of_mut(Concern::Faults).clone_from(&self.deaths);
        let mut teller = print::ScenarioPrinter::new(self.entry, &self.config, &self.shown);
        let mut hear = |t, told: &crate::run::RunEvent<'_>| {
            if let crate::run::RunEvent::Event(event) = told {
                sink(event);
            }
            teller.hear(t, told);
        };
        let report = crate::run::narrate(self.entry, &self.config, &recorded, &mut hear)
            .expect("every process could be built when the scenario was read");
        let mut lines = teller.lines.into_iter().peekable();
        let mut text = String::new();
        for (i, block) in self.blocks.iter().enumerate() {
            text.push_str(&block.text);
            text.push_str("----\n");
            let until = self.blocks.get(i + 1).and_then(|next| next.at).unwrap_or(Time::NEVER);
            while let Some((_, line)) = lines.next_if(|(t, _)| *t < until) {
                text.push_str(&line);
            }
            if i + 1 < self.blocks.len() {
                text.push('\n');
            }
        }
        match &report.outcome {
            RunOutcome::Settled => text.push_str("settled\n"),
            other => drop(writeln!(text, "{other:?}")),
        }
        ScenarioResult { text, report }
    }

    fn plan(&self) -> RunPlan {
        let ScenarioTimes { write, message, notice, sync } = self.times;
        let mut model = CarrierModel::constant(write, message);
        model.ram.answer = Delay::Constant(write);
        model.ram.lost = Delay::Constant(write);
        model.notice = Delay::Constant(notice);
        (model.disk, model.save) = (DiskModel::constant(sync), Delay::Constant(sync));
        // As long as a look takes.
        (model.bell, model.idle) = (Delay::Constant(Span(100)), Delay::Constant(Span(100)));
        let strikes: Vec<Strike> = self.blocks.iter().flat_map(|b| b.strikes.clone()).collect();
        let last = self.blocks.iter().filter_map(|b| b.at).max().unwrap_or(Time::ZERO);
        let over = |strike: &Strike| match (strike.at, lasts(&strike.fault)) {
            (FaultTime::Time(at), span) => at + span,
            (FaultTime::Event(_), _) => Time::ZERO,
        };
        RunPlan {
            model,
            casts: self.blocks.iter().flat_map(|b| b.casts.clone()).collect(),
            pace: CastPace::Open,
            barriers: self.blocks.iter().flat_map(|b| b.barriers.clone()).collect(),
            calm: strikes.iter().map(over).fold(last, Time::max),
            strikes,
            service: true,
            drift_ppm: Vec::new(),
            settle: SETTLE,
            quiet: QUIET,
            events_max: 10_000_000,
        }
    }
}

fn lasts(fault: &Fault) -> Span {
    match fault {
        Fault::Crash { down, .. } => down.unwrap_or(Span::ZERO),
        Fault::Leave { patience, down, .. } => *patience + down.unwrap_or(Span::ZERO),
        Fault::Power { outages, .. } => {
            outages.iter().filter_map(|(_, down)| *down).max().unwrap_or(Span::ZERO)
        }
        Fault::Checkpoint { .. }
        | Fault::Damage { .. }
        | Fault::Overlay { .. }
        | Fault::DeadLink { .. } => Span::ZERO,
        Fault::Stall { span, .. }
        | Fault::Full { span, .. }
        | Fault::Replace { span, .. }
        | Fault::Pause { span, .. }
        | Fault::Hang { span, .. }
        | Fault::Partition { span, .. }
        | Fault::Cut { span, .. }
        | Fault::Link { span, .. }
        | Fault::Suspicion { span, .. }
        | Fault::WrongLeader { span, .. } => *span,
    }
}

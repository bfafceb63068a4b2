//! One run: [`run()`] from a seed, [`replay`] from a record.

use crate::chooser::{Choices, Chooser, Odometer};
use crate::failover::Failover;
use crate::faults::Profile;
use crate::host::{Host, HostSlot};
use crate::ledger::{Breach, UnsettledProcess};
use crate::plan::{CarrierModel, CastPace, RunPlan};
use crate::world::SimulatedRun;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use amcast_core::step::{Note, PayloadRange};
use amcast_core::trace::TraceEvent;
use amcast_core::{
    Config, ConfigError, Entry, GroupSet, Pid, ProtocolEvent, Span, Time, memory, messages,
};

/// The kind of run that is wanted; the seed decides the rest.
#[derive(Clone, Debug)]
pub struct RunSettings {
    /// Which faults there may be.
    pub profile: Profile,
    /// How many multicasts, of all senders: the clients, or the replicas if there are no clients.
    pub messages: usize,
    /// How many barriers, of all replicas, where the protocol has any.
    pub barriers: usize,
    /// The largest payload, in bytes; most are far smaller.
    pub payload_max: usize,
    /// Every payload has this size, in bytes; drawn if none.
    pub payload: Option<usize>,
    /// Every multicast goes to this many groups; drawn if none.
    pub destinations: Option<usize>,
    /// Every multicast goes to one of these sets, each as often as its number says beside the others'; as
    /// [`destinations`](Self::destinations) says if there are none.
    pub destination_sets: Vec<(GroupSet, u64)>,
    /// When senders multicast.
    pub pace: CastPace,
    /// How long faults last and multicasts begin; drawn if none.
    pub faulty: Option<Span>,
    /// How the surroundings behave; drawn if none.
    pub model: Option<CarrierModel>,
    /// The longest time until a record is durable, where the surroundings are drawn; any that is drawn if none.
    pub sync_most: Option<Span>,
    /// Whether replicas that crashed come back.
    pub restarts: bool,
    /// Whether disks may be lost and replaced by empty ones.
    pub replaces: bool,
    /// How many changes of the tree of the groups at most, where it may change.
    pub overlay_changes: usize,
    /// Whether the memory of a process may change, and be read, in the middle of its steps.
    pub splits_steps: bool,
    /// Whether replicas over messages may be gone in turn, each as the one before comes back, so that logs
    /// with different values for one position meet.
    pub successions: bool,
    /// Whether the places of clients that crashed are taken again, with a higher incarnation and
    /// higher numbers. A judge must then not hold a client that came back to what it had cast
    /// before: it has forgotten it.
    pub clients_return: bool,
    /// How long after the last fault the run may take to settle.
    pub settle: Span,
    /// How often it is looked whether the run has settled.
    pub quiet: Span,
    /// How many things may happen in a run.
    pub events_max: u64,
}

impl Default for RunSettings {
    fn default() -> Self {
        Self {
            profile: Profile::None,
            messages: 100,
            barriers: 50,
            payload_max: 16 << 10,
            payload: None,
            destinations: None,
            destination_sets: Vec::new(),
            pace: CastPace::Open,
            faulty: None,
            model: None,
            sync_most: None,
            restarts: true,
            replaces: true,
            overlay_changes: 6,
            splits_steps: true,
            successions: true,
            clients_return: false,
            settle: Span::secs(5),
            quiet: Span::millis(1),
            events_max: 60_000_000,
        }
    }
}

impl RunSettings {
    /// The default run with faults of `profile`.
    pub fn with(profile: Profile) -> Self {
        Self { profile, ..Self::default() }
    }

    /// A run for measuring: no faults, no chance but in who sends what; everything takes the time
    /// that `model` says. Read latencies from the events.
    pub fn latency(
        model: CarrierModel,
        pace: CastPace,
        payload: usize,
        destinations: usize,
    ) -> Self {
        Self {
            pace,
            payload: Some(payload),
            destinations: Some(destinations),
            model: Some(model),
            barriers: 0,
            ..Self::default()
        }
    }
}

/// A run that can be run again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RunRecord {
    /// The plan.
    pub plan: RunPlan,
    /// The choices during the run.
    pub choices: Choices,
}

/// How a run ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RunOutcome {
    /// All messages that had to be delivered were, and every process that lives is fit. [`TraceEvent::End`] was
    /// reported.
    Settled,
    /// That did not come about in time. The status of each process, those first that miss something.
    NotSettled(Vec<UnsettledProcess>),
    /// The protocol broke what it owes its driver, and the run stopped.
    Breach(Breach),
}

/// The result of a run.
#[derive(Clone, Debug)]
pub struct RunReport {
    /// How it ended.
    pub outcome: RunOutcome,
    /// Multicasts made.
    pub casts: u64,
    /// Deliveries made, of all processes.
    pub deliveries: u64,
    /// Barriers passed, of all processes.
    pub barriers: u64,
    /// Simulated time at the end.
    pub time: Time,
    /// Steps taken, of all processes.
    pub steps: u64,
    /// Messages sent from one process to another. A datagram to a group counts once, as it
    /// does on a network that has multicast.
    pub messages: u64,
    /// Datagrams that were lost because a buffer was full: in front of a port, or of a socket.
    pub overflows: u64,
    /// The most bytes that waited for the port of a process when it sent a datagram.
    pub backlog_most: u64,
    /// Things that happened in carriers and timers.
    pub events: u64,
    /// A hash of every event, input and output, in order.
    pub hash: u64,
    /// How often each rare branch was taken ([`amcast_core::step::Note::Mark`]).
    pub marks: BTreeMap<&'static str, u64>,
    /// Changes of leaders, and replicas that lost state and got it back.
    pub failover: Failover,
    /// How many crashes there were.
    pub crashes: u64,
    /// Those crashes of processes with a log that were their machines': when, whose, and how many
    /// records were lost.
    pub machines: Vec<(Time, Pid, u64)>,
    /// The run, to run it again.
    pub recorded: RunRecord,
}

impl RunReport {
    /// Whether it settled.
    pub fn settled(&self) -> bool {
        self.outcome == RunOutcome::Settled
    }
}

/// Runs an entry from a seed. The same entry, configuration, settings and seed give the same run.
/// Panics where the protocol asserts; see [`record`].
///
/// # Errors
/// When the entry refuses the configuration.
pub fn run(
    entry: &dyn Entry,
    config: &Config,
    settings: &RunSettings,
    seed: u64,
    sink: &mut dyn FnMut(&TraceEvent<'_>),
) -> Result<RunReport, ConfigError> {
    record(entry, config, settings, seed, &mut None, sink)
}

/// As [`run()`], and leaves the run in `recorded` also if the protocol panics, up to there: so that
/// a caller who catches the panic can replay and shrink it.
///
/// # Errors
/// When the entry refuses the configuration.
pub fn record(
    entry: &dyn Entry,
    config: &Config,
    settings: &RunSettings,
    seed: u64,
    recorded: &mut Option<RunRecord>,
    sink: &mut dyn FnMut(&TraceEvent<'_>),
) -> Result<RunReport, ConfigError> {
    let plan = draw_plan(entry, config, settings, seed);
    let recorded = recorded.insert(RunRecord { plan, choices: Choices::default() });
    let chooser = Chooser::seeded(seed);
    Ok(run_with(entry, config, recorded, chooser, None, sink)?.0)
}

/// Draws the plan of the run from a seed.
pub(crate) fn draw_plan(
    entry: &dyn Entry,
    config: &Config,
    settings: &RunSettings,
    seed: u64,
) -> RunPlan {
    RunPlan::draw(entry, config, settings, &mut Chooser::seeded(!seed))
}

/// Runs a plan that was drawn, and changed perhaps, with the chance of a seed; see [`run()`].
///
/// # Errors
/// When the entry refuses the configuration.
pub fn run_plan(
    entry: &dyn Entry,
    config: &Config,
    plan: RunPlan,
    seed: u64,
    sink: &mut dyn FnMut(&TraceEvent<'_>),
) -> Result<RunReport, ConfigError> {
    let mut recorded = RunRecord { plan, choices: Choices::default() };
    Ok(run_with(entry, config, &mut recorded, Chooser::seeded(seed), None, sink)?.0)
}

/// Runs a recorded run again.
///
/// # Errors
/// When the entry refuses the configuration.
pub fn replay(
    entry: &dyn Entry,
    config: &Config,
    recorded: &RunRecord,
    sink: &mut dyn FnMut(&TraceEvent<'_>),
) -> Result<RunReport, ConfigError> {
    let chooser = Chooser::listed(recorded.choices.clone());
    let mut again = RunRecord { plan: recorded.plan.clone(), choices: Choices::default() };
    Ok(run_with(entry, config, &mut again, chooser, None, sink)?.0)
}

/// As [`replay`], and tells what the processes remark ([`Note`]), and when: for figures that no event shows.
///
/// # Errors
/// When the entry refuses the configuration.
pub fn replay_with_notes(
    entry: &dyn Entry,
    config: &Config,
    recorded: &RunRecord,
    sink: &mut dyn FnMut(&TraceEvent<'_>),
    note: &mut dyn FnMut(Time, Pid, Note),
) -> Result<RunReport, ConfigError> {
    narrate(entry, config, recorded, &mut |now, event| match event {
        RunEvent::Event(event) => sink(event),
        RunEvent::Note(p, said) => note(now, *p, *said),
        _ => {}
    })
}

/// As [`replay`], and tells what the processes report ([`ProtocolEvent`]), and when.
///
/// # Errors
/// When the entry refuses the configuration.
pub fn replay_with_events(
    entry: &dyn Entry,
    config: &Config,
    recorded: &RunRecord,
    sink: &mut dyn FnMut(&TraceEvent<'_>),
    report: &mut dyn FnMut(Time, Pid, ProtocolEvent),
) -> Result<RunReport, ConfigError> {
    narrate(entry, config, recorded, &mut |now, event| match event {
        RunEvent::Event(event) => sink(event),
        RunEvent::Reported(p, reported) => report(now, *p, *reported),
        _ => {}
    })
}

/// A report of a run, in the order in which things happen.
#[derive(Debug)]
pub(crate) enum RunEvent<'a> {
    /// An event of the trace.
    Event(&'a TraceEvent<'a>),
    /// A process reports something to its driver.
    Reported(Pid, ProtocolEvent),
    /// A process remarks something.
    Note(Pid, Note),
    /// A process asks the memory for something.
    Memory(Pid, &'a memory::MemoryOutput),
    /// A process sends a message.
    Message(Pid, &'a messages::MessageOutput<PayloadRange>, &'a [u8]),
    /// A process writes a record, awaited or not.
    Record(Pid, &'a [u8], bool),
    /// A record of a process did not fit on its disk.
    Full(Pid),
    /// The machine of a process failed, with so many of its records.
    Torn(Pid, u64),
    /// The disk of a process is replaced by an empty one.
    Replaced(Pid),
    /// A record of a process cannot be read any more.
    Damaged(Pid, u64),
    /// The application of a process has a checkpoint durable at this position.
    Checkpoint(Pid, u64),
    /// A process learns that a write of it was denied or lost.
    Failed(Pid, &'static str),
    /// A process is set a barrier, or has passed one.
    Barrier(Pid, bool),
}

/// The observer of a run.
pub(crate) type RunObserver<'a> = dyn FnMut(Time, &RunEvent<'_>) + 'a;

/// Runs a recorded run again, and tells more of it than its events.
pub(crate) fn narrate(
    entry: &dyn Entry,
    config: &Config,
    recorded: &RunRecord,
    hear: &mut RunObserver<'_>,
) -> Result<RunReport, ConfigError> {
    let chooser = Chooser::listed(recorded.choices.clone());
    let mut choices = Choices::default();
    let mut ignore = |_: &TraceEvent<'_>| {};
    let mut world =
        SimulatedRun::new(entry, config, &recorded.plan, chooser, &mut choices, &mut ignore)?;
    world.trace.hear = Some(hear);
    let outcome = world.run();
    Ok(world.report(outcome).0)
}

/// Runs the plan of `recorded` with any source of chance, and records there what was chosen. Gives
/// back the odometer if it was one.
pub(crate) fn run_with(
    entry: &dyn Entry,
    config: &Config,
    recorded: &mut RunRecord,
    chooser: Chooser,
    host: Option<Box<dyn Host>>,
    sink: &mut dyn FnMut(&TraceEvent<'_>),
) -> Result<(RunReport, Option<Odometer>), ConfigError> {
    let RunRecord { plan, choices } = &mut *recorded;
    let mut world = SimulatedRun::new(entry, config, plan, chooser, choices, sink)?;
    world.above = HostSlot::new(host, config.cluster().replicas());
    let outcome = world.run();
    let (mut report, odometer) = world.report(outcome);
    drop(world);
    report.recorded.choices.clone_from(&recorded.choices);
    Ok((report, odometer))
}

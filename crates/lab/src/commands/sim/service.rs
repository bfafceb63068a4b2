//! `amcast sim --service`: whole replicas of a service above the protocol.

use super::trial::Trial;
use amcast::simulate::bank::BankWorkload;
use amcast::simulate::kv::KvWorkload;
use amcast::simulate::log::LogWorkload;
use amcast::simulate::{ServiceMutant, ServiceRun, ServiceSettings, Simulation, Workload};
use amcast_core::ConfigError;
use amcast_core::trace::TraceEvent;
use amcast_sim::RunRecord;

/// The service above the protocol.
#[derive(Clone, Copy)]
pub(in crate::commands) struct ServiceTrial {
    pub(in crate::commands) kind: ServiceKind,
    /// How it is broken on purpose.
    pub(in crate::commands) mutant: Option<ServiceMutant>,
}

/// The services that run in the simulator.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(in crate::commands) enum ServiceKind {
    /// The key-value store
    Kv,
    /// The distributed log
    Log,
    /// The bank of examples/bank/, a state machine of a user of the library
    Bank,
}

impl ServiceKind {
    /// Its name on the command line.
    pub(in crate::commands) const fn name(self) -> &'static str {
        match self {
            Self::Kv => "kv",
            Self::Log => "log",
            Self::Bank => "bank",
        }
    }
}

/// Which run is to be made.
pub(super) enum TrialRun<'a> {
    /// That of the trial's seed, which is left here.
    New(&'a mut Option<RunRecord>),
    /// A recorded one.
    Again(&'a RunRecord),
}

/// Makes a run of a trial's service.
pub(super) fn run(
    trial: &Trial,
    service: ServiceTrial,
    job: TrialRun<'_>,
    sink: &mut dyn FnMut(&TraceEvent<'_>),
) -> Result<ServiceRun, ConfigError> {
    let shards = trial.config.cluster().groups();
    match service.kind {
        ServiceKind::Kv => run_with(trial, service, &|| KvWorkload::new(shards), job, sink),
        ServiceKind::Log => run_with(trial, service, &|| LogWorkload::new(shards), job, sink),
        ServiceKind::Bank => run_with(trial, service, &|| BankWorkload::new(shards), job, sink),
    }
}

fn run_with<W: Workload + 'static>(
    trial: &Trial,
    service: ServiceTrial,
    workload: &dyn Fn() -> W,
    job: TrialRun<'_>,
    sink: &mut dyn FnMut(&TraceEvent<'_>),
) -> Result<ServiceRun, ConfigError> {
    let Trial { entry, config, settings, seed, .. } = trial;
    let usual = ServiceSettings::default();
    let calls = (settings.messages / usual.clients).max(1) as u64;
    let service = ServiceSettings { calls, mutant: service.mutant, ..usual };
    let simulation = Simulation { entry: *entry, config, service, seed: *seed, workload };
    match job {
        TrialRun::New(recorded) => simulation.run(settings, recorded, sink),
        TrialRun::Again(recorded) => simulation.replay(recorded, sink),
    }
}

//! Runs of many seeds until something is wrong in one, and that one made small.

use super::{Finding, ServiceRun, ServiceSettings, Simulation, Workload};
use amcast_core::ConfigError;
use amcast_sim::{FaultTime, RunOutcome, RunRecord, RunSettings, shrink};
use std::fmt::{self, Write};
use std::ops::RangeInclusive;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// How many smaller runs are tried.
const TRIES: usize = 150;

/// The property of a [`Finding`] of a run in which no fault was found, and some property was not judged.
const NOT_JUDGED: &str = "not judged";

/// A run in which something is wrong, made as small as was found.
pub struct FailedRun {
    /// The seed of the whole run.
    pub seed: u64,
    /// The fault that the shrunk run shows.
    pub finding: Finding,
    /// The clients and calls of the small run.
    pub service: ServiceSettings,
    /// The small run: [`Simulation::replay`] makes it again, with that service and seed.
    pub recorded: RunRecord,
    /// The faults of the small run, in words.
    pub faults: Vec<String>,
    /// The calls and returns of the small run, as lines of a history.
    pub lines: String,
}

impl fmt::Display for FailedRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, finding, service, faults, lines, .. } = self;
        writeln!(f, "seed {seed}: {}: {}", finding.what, finding.says)?;
        let ServiceSettings { clients, calls, .. } = service;
        writeln!(f, "made small: {clients} clients with {calls} calls each, and these faults:")?;
        faults.iter().try_for_each(|fault| writeln!(f, "  {fault}"))?;
        f.write_str(lines)
    }
}

impl<W: Workload + 'static> Simulation<'_, W> {
    /// Makes the runs of these seeds until something is wrong in one. Gives that one, made small: with fewer calls and
    /// faults, in which the same is wrong. A machine that panics is wrong, too. So is a run with a property that was not
    /// judged ([`ServiceRun::not_judged`]): it shows nothing.
    ///
    /// # Errors
    /// When the protocol refuses the configuration.
    pub fn hunt(
        &self,
        settings: &RunSettings,
        seeds: RangeInclusive<u64>,
    ) -> Result<Option<FailedRun>, ConfigError> {
        for seed in seeds {
            let this = Simulation { seed, ..*self };
            let mut recorded = None;
            let ran = RunAttempt::of(|| this.run(settings, &mut recorded, &mut |_| {}))?;
            if let (Some(finding), Some(recorded)) = (ran.finding, recorded) {
                return this.made_small(settings, &finding, recorded).map(Some);
            }
        }
        Ok(None)
    }

    /// A smaller run in which the same is wrong as in `recorded`.
    fn made_small(
        &self,
        settings: &RunSettings,
        finding: &Finding,
        mut recorded: RunRecord,
    ) -> Result<FailedRun, ConfigError> {
        let mut small = Simulation { ..*self };
        // Fewer calls change the course of a run, so they are tried before choices are removed.
        loop {
            let ServiceSettings { clients, calls, mutant } = small.service;
            let fewer = [(clients, calls / 2), (clients - 1, calls), (clients, calls - 1)];
            let mut fewer = fewer.into_iter().filter(|(clients, calls)| *clients > 0 && *calls > 0);
            let found = fewer.find_map(|(clients, calls)| {
                let tried =
                    Simulation { service: ServiceSettings { clients, calls, mutant }, ..small };
                let mut again = None;
                let ran = RunAttempt::of(|| tried.run(settings, &mut again, &mut |_| {})).ok()?;
                let is_same = ran.finding.is_some_and(|other| other.what == finding.what);
                again.filter(|_| is_same).map(|again| (tried.service, again))
            });
            let Some((service, again)) = found else { break };
            (small.service, recorded) = (service, again);
        }
        let recorded = shrink(recorded, TRIES, &mut |run| {
            let ran = RunAttempt::of(|| small.replay(run, &mut |_| {}));
            ran.is_ok_and(|ran| ran.finding.is_some_and(|other| other.what == finding.what))
        });
        let RunAttempt { finding: last, lines } =
            RunAttempt::of(|| small.replay(&recorded, &mut |_| {}))?;
        let cluster = self.config.cluster();
        let faults = recorded.plan.strikes.iter().map(|strike| {
            let mut text = match strike.at {
                FaultTime::Time(at) => format!("at {} us: ", at.0 / 1000),
                FaultTime::Event(n) => format!("before event {n}: "),
            };
            text.push_str(&strike.fault.words(cluster));
            text
        });
        let faults = faults.collect();
        let finding = last.unwrap_or_else(|| finding.clone());
        Ok(FailedRun { seed: self.seed, finding, service: small.service, recorded, faults, lines })
    }
}

/// The result of one run.
struct RunAttempt {
    finding: Option<Finding>,
    lines: String,
}

impl RunAttempt {
    fn of(run: impl FnOnce() -> Result<ServiceRun, ConfigError>) -> Result<Self, ConfigError> {
        let ran = match catch_unwind(AssertUnwindSafe(run)) {
            Ok(ran) => ran?,
            Err(panic) => {
                let says = panic.downcast_ref::<String>().cloned();
                let says = says.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
                let says = says.unwrap_or_else(|| "without a message".to_string());
                let finding = Some(Finding { what: "panic", says });
                return Ok(Self { finding, lines: String::new() });
            }
        };
        let ServiceRun { report, lines, mut findings, not_judged, .. } = ran;
        let stopped = match &report.outcome {
            RunOutcome::Settled => None,
            RunOutcome::NotSettled(stuck) => {
                let mut says = "messages are not delivered in time".to_string();
                if let Some(first) = stuck.first() {
                    write!(says, "; first: {first:?}").expect("a string takes it");
                }
                Some(Finding { what: "settling", says })
            }
            RunOutcome::Breach(breach) => {
                Some(Finding { what: "breach", says: format!("{breach:?}") })
            }
        };
        findings.extend(stopped);
        // To say that nothing is wrong would be a lie. A fault that is certain is the better account of the run.
        findings.extend(not_judged.into_iter().map(|Finding { what, says }| Finding {
            what: NOT_JUDGED,
            says: format!("{what}: {says}"),
        }));
        Ok(Self { finding: findings.into_iter().next(), lines })
    }
}

#[cfg(test)]
mod tests {
    use super::super::bank::BankWorkload;
    use super::super::{AnswerMeaning, Call, SeenCalls};
    use super::*;
    use amcast_check::PropertyVerdict;
    use amcast_core::rng::Rng;
    use amcast_core::{RawConfig, ServiceAnswer};
    use amcast_protocols::catalog::find;

    /// The bank, whose calls the checker gives up to judge.
    struct UnjudgedBank(BankWorkload);

    impl Workload for UnjudgedBank {
        type Machine = <BankWorkload as Workload>::Machine;

        fn next(&mut self, rng: &mut Rng) -> Call {
            self.0.next(rng)
        }

        fn last(&mut self) -> Call {
            self.0.last()
        }

        fn returned(&mut self, call: &Call, answer: &ServiceAnswer<'_>) -> AnswerMeaning {
            self.0.returned(call, answer)
        }

        fn judge(&self, _: &SeenCalls<'_>) -> Vec<(&'static str, PropertyVerdict)> {
            vec![("linearizable", PropertyVerdict::NotJudged("it gave up".to_string()))]
        }
    }

    #[test]
    fn a_run_that_is_not_judged_is_not_taken_for_one_in_which_nothing_was_found() {
        let _limit = amcast_test_policy::time_limit();
        let entry = find("tram").expect("it is in the catalog");
        let raw = RawConfig { groups: 1, replicas: 3, clients: 0, ..RawConfig::default() };
        let config = &raw.check(entry.about().params).expect("the shape is sound");
        let service = ServiceSettings { clients: 2, calls: 3, mutant: None };
        let workload = &|| UnjudgedBank(BankWorkload::new(1));
        let simulation = Simulation { entry, config, service, seed: 0, workload };
        let failed = simulation.hunt(&RunSettings::default(), 1..=1).expect("the shape is sound");
        let finding = failed.expect("it shows nothing").finding;
        assert_eq!((finding.what, &*finding.says), (NOT_JUDGED, "linearizable: it gave up"));
    }
}

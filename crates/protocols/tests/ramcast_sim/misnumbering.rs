//! Clients that write messages once more under numbers that do not grow, and to other destinations: that costs them these
//! messages, and nobody else anything.

use crate::{RunTotals, checked, judge_with, seeds, small};
use amcast_check::{CheckReport, Property, PropertyVerdict};
use amcast_core::entry::About;
use amcast_core::memory::{Memory, RegionWindow};
use amcast_core::rng::Rng;
use amcast_core::{
    Config, ConfigError, Entry, GroupSet, Input, Outbox, Pid, Protocol, ProtocolProcess, Span,
    Submission, Time,
};
use amcast_protocols::tram::RamCast;
use amcast_protocols::trial;
use amcast_sim::chooser::Chooser;
use amcast_sim::watched::{StepWatch, WatchedProcess};
use amcast_sim::{Fault, Profile, RunOutcome, RunPlan, RunReport, RunSettings};

/// Seeds within which a mutant is found.
const MUTANT_WITHIN: u64 = 400;

/// RamCast, whose first client misnumbers messages.
struct MisnumberingRamCast;

impl Entry for MisnumberingRamCast {
    fn name(&self) -> &'static str {
        RamCast.name()
    }

    fn about(&self) -> &'static About {
        RamCast.about()
    }

    fn build(&self, me: Pid, config: &Config) -> Result<ProtocolProcess, ConfigError> {
        let process = RamCast.build(me, config)?;
        Ok(match process {
            ProtocolProcess::Memory(inner, regions) if me == config.cluster().client(0) => {
                let (rng, all) = (Rng::stream(7, "misnumbering"), config.cluster().all_groups());
                let watch = MisnumberingClient { rng, all };
                ProtocolProcess::Memory(Box::new(WatchedProcess { inner, watch }), regions)
            }
            other => other,
        })
    }

    fn show(&self, bytes: &[u8]) -> String {
        RamCast.show(bytes)
    }
}

/// A client behind whose messages follow others, under the same number or a lower one. A destination that the two share
/// takes the first one's number before, so that the second one comes to nothing: no history names it. That needs a client
/// that does not die, and groups that pass on no message of it as a whole.
struct MisnumberingClient {
    rng: Rng,
    all: GroupSet,
}

impl MisnumberingClient {
    fn again(&mut self, seq: u64, dst: GroupSet) -> (u64, GroupSet) {
        let lower = self.rng.below(seq.min(4));
        let shared = dst.iter().nth(self.rng.below(dst.len() as u64) as usize);
        let others = GroupSet(self.rng.word()).and(self.all);
        (seq - lower, shared.map_or(dst, |shared| others.with(shared)))
    }
}

impl StepWatch<Memory> for MisnumberingClient {
    fn step(
        &mut self,
        inner: &mut dyn Protocol<Medium = Memory>,
        now: Time,
        view: RegionWindow<'_>,
        input: Input<'_, Memory>,
        out: &mut Outbox<Memory>,
    ) {
        let Input::Submit(Submission { seq, dst, payload }) = input else {
            return inner.step(now, view, input, out);
        };
        inner.step(now, view, Input::Submit(Submission { seq, dst, payload }), out);
        let (seq, dst) = self.again(seq, dst);
        let payload = b"once more";
        if self.rng.below(2) == 0 && inner.room(dst, payload.len()) > 0 {
            inner.step(now, view, Input::Submit(Submission { seq, dst, payload }), out);
        }
    }
}

fn judge(
    config: &Config,
    plan: RunPlan,
    seed: u64,
    totals: &mut RunTotals,
) -> (RunReport, CheckReport) {
    let odd = Some(config.cluster().client(0));
    judge_with(&MisnumberingRamCast, odd, (config, plan), seed, totals)
}

/// A shape by seed, of two groups or three, in which no message waits so long that it is passed on as a whole.
fn patient(seed: u64, mutant: &str) -> Config {
    let mut raw = trial::hasty(&RamCast, seed, None);
    raw.groups = 2 + (seed / 4 % 2) as usize;
    for (name, value) in [("heartbeat_us", "2000"), ("suspect_us", "1000000"), ("mutant", mutant)] {
        raw.set.insert(name.to_string(), value.to_string());
    }
    checked(&raw)
}

/// A plan of short faults without dead links, in which a service names leaders that do not wait for suspicions. The first client lives.
fn plan(config: &Config, profile: Profile, seed: u64) -> RunPlan {
    let brief = RunSettings { faulty: Some(Span::millis(10)), ..small(profile) };
    let mut plan = RunPlan::draw(&RamCast, config, &brief, &mut Chooser::seeded(seed));
    let odd = config.cluster().client(0);
    plan.service = true;
    // Over a dead link a message waits for long, and the others pass it on.
    plan.strikes.retain(|strike| match strike.fault {
        Fault::Crash { p, .. } => p != odd,
        Fault::DeadLink { .. } => false,
        _ => true,
    });
    plan
}

#[test]
fn promises_are_kept_where_a_client_misnumbers_messages() {
    for profile in [Profile::None, Profile::Memory, Profile::Crash, Profile::All] {
        let mut totals = RunTotals::default();
        for seed in 0..2 * seeds() {
            let config = patient(seed, "none");
            let plan = plan(&config, profile, seed);
            let (report, findings) = judge(&config, plan, seed, &mut totals);
            let settled = matches!(report.outcome, RunOutcome::Settled);
            assert!(
                settled && findings.all_hold(),
                "{}, seed {seed}: {:?}\n{findings}\n{config:?}",
                profile.name(),
                report.outcome
            );
        }
        println!("{}: {totals:?}", profile.name());
        for mark in ["ramcast-refuses", "ramcast-drops-refused", "sim-malformed"] {
            assert!(totals.marks.contains_key(mark), "{mark} is not reached: {totals:?}");
        }
    }
}

#[test]
fn mutants_that_confuse_destinations_or_refuse_wrongly_are_found() {
    for (name, property) in [
        ("confuses-destinations", Property::UniformPrefixOrder),
        ("confuses-destinations", Property::UniformAgreement),
        ("refuses-the-known", Property::UniformAgreement),
        ("never-refuses", Property::Validity),
    ] {
        let broken = |seed: u64| {
            let config = patient(seed, name);
            let profile = [Profile::None, Profile::Memory, Profile::Crash][(seed % 3) as usize];
            let plan = plan(&config, profile, seed);
            let (_, findings) = judge(&config, plan, seed, &mut RunTotals::default());
            let mut all = findings.findings.into_iter();
            all.any(|(p, verdict)| p == property && matches!(verdict, PropertyVerdict::Violated(_)))
        };
        let found = (0..MUTANT_WITHIN).find(|&seed| broken(seed));
        println!("{name} {property:?}: {found:?}");
        assert!(found.is_some(), "{name} is not seen to break {property}");
    }
}

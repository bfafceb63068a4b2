//! The description of a run, from the command line and the seed.

use super::SimArgs;
use super::network::Network;
use super::service::{ServiceKind, ServiceTrial};
use crate::commands::Failure;
use amcast::simulate::ServiceMutant;
use amcast_core::{Capability, Config, Entry, MediumKind, ProtocolProcess, RawConfig, Span};
use amcast_protocols::trial;
use amcast_sim::{CarrierModel, Delay, Profile, RunSettings};
use std::fmt::Write as _;

/// How long faults last in a hunt for a mutant's mistakes.
const HUNT_FAULTY: Span = Span::millis(4);

/// How long a run of any shape may take to settle: one message at a time, over the slowest disks and
/// with the hastiest timers, takes some seconds.
const VARIED_SETTLE: Span = Span::secs(60);

/// How long a run may then take to settle: what is not delivered soon after the faults never will
/// be. Messages are slower than memory, and where they get lost, far slower.
const fn hunt_settle(medium: MediumKind) -> Span {
    match medium {
        MediumKind::Memory => Span::millis(100),
        MediumKind::Messages => Span::secs(5),
    }
}

/// Multicasts in a run, by default.
const MESSAGES: usize = 100;

/// The largest payload where buffers are drawn, in bytes: more would fill the smallest at once.
const DRAWN_PAYLOAD_MAX: usize = 1500;

/// A run that is to be made.
#[derive(Clone)]
pub(in crate::commands) struct Trial {
    pub(in crate::commands) entry: &'static dyn Entry,
    pub(in crate::commands) seed: u64,
    pub(in crate::commands) config: Config,
    pub(in crate::commands) settings: RunSettings,
    raw: RawConfig,
    /// A network that is given, not drawn.
    network: Option<Network>,
    mutant: Option<String>,
    /// Whole replicas of a service run above the protocol.
    pub(in crate::commands) service: Option<ServiceTrial>,
    /// Not drawn from the seed, but one of all runs with so many choices that are not ordinary.
    explored: Option<usize>,
}

/// Whether a mistake of the service can be made above this protocol.
pub(super) fn service_mutant_applies(args: &SimArgs, mutant: ServiceMutant) -> bool {
    let groups = args.groups.unwrap_or(usize::MAX);
    if mutant.is_of_store() && args.service != Some(ServiceKind::Kv) {
        return false;
    }
    entry(&args.protocol, None).is_ok_and(|entry| {
        let most =
            trial::suited(entry, RawConfig { groups: groups.min(3), ..RawConfig::default() });
        mutant.applies(entry, most.groups)
    })
}

/// Which mutant is on, and the protocol's entry with or without mutants.
pub(in crate::commands) fn entry(
    protocol: &str,
    mutant: Option<&str>,
) -> Result<&'static dyn Entry, Failure> {
    let sound = crate::commands::entry(protocol)?;
    Ok(match mutant {
        None => sound,
        Some(_) => amcast_mutants::catalog::find(protocol).unwrap_or(sound),
    })
}

impl Trial {
    /// The ordinary run of a small cluster, to be varied: so many groups, all of which every message
    /// goes to.
    pub(in crate::commands) fn tiny(args: &SimArgs, deviations: usize) -> Result<Self, Failure> {
        let mutant = args.mutant.as_deref();
        let entry = entry(&args.protocol, mutant)?;
        let mut raw = trial::tiny(entry, args.groups.unwrap_or(1));
        let config = configure(args, entry, mutant, &mut raw)?;
        let settings = RunSettings {
            model: Some(explored_model()),
            messages: args.messages.unwrap_or(2),
            payload: Some(args.payload.unwrap_or(8)),
            destinations: Some(args.destinations.unwrap_or(raw.groups).clamp(1, raw.groups)),
            faulty: Some(Span::micros(100)),
            settle: Span::millis(20),
            quiet: Span::micros(100),
            ..RunSettings::default()
        };
        let mutant = mutant.map(str::to_string);
        let explored = Some(deviations);
        let (network, service) = (None, None);
        Ok(Self { entry, seed: 1, config, settings, raw, network, mutant, service, explored })
    }

    /// The run of `seed`: what is given on the command line, and the rest as drawn, or as usual.
    pub(in crate::commands) fn new(
        args: &SimArgs,
        seed: u64,
        mutant: Option<&str>,
    ) -> Result<Self, Failure> {
        let service = args
            .service
            .map(|kind| ServiceTrial { kind, mutant: mutant.and_then(ServiceMutant::parse) });
        let named = mutant;
        let mutant = mutant.filter(|_| service.is_none());
        let entry = entry(&args.protocol, mutant)?;
        let mut raw = match (mutant, args.vary) {
            (Some(_), false) => trial::hasty(entry, seed, args.groups),
            (_, true) => trial::wide(entry, seed, args.groups),
            (None, false) => RawConfig::default(),
        };
        let config = configure(args, entry, mutant, &mut raw)?;
        args.fits(entry, &config)?;
        let needs = match args.faults {
            Some(Profile::Crash) => Some(Capability::CrashTolerance),
            Some(Profile::Disk) => Some(Capability::DurableLog),
            _ => None,
        };
        if let Some(Err(missing)) = needs.map(|needs| entry.require(needs)) {
            let profile = args.faults.map_or("", Profile::name);
            return Err(Failure::Misuse(format!(
                "--faults {profile}: {missing}; see `amcast protocols` for the faults that it tolerates"
            )));
        }
        let mut settings = args.settings(entry, seed, mutant.is_some(), raw.groups);
        if service.is_some_and(|service| service.mutant.is_some()) && args.faults.is_none() {
            settings.profile = hunted_under(entry, seed);
        }
        let mutant = named.map(str::to_string);
        let network = args.network;
        Ok(Self { entry, seed, config, settings, raw, network, mutant, service, explored: None })
    }

    /// The run of `seed` in a cluster of that shape.
    pub(in crate::commands) fn given(
        entry: &'static dyn Entry,
        seed: u64,
        raw: RawConfig,
        mut settings: RunSettings,
        network: Option<Network>,
    ) -> Result<Self, Failure> {
        let config = build(entry, &raw)?;
        settings.model = network.map(Network::model);
        let mutant = None;
        let service = None;
        let explored = None;
        Ok(Self { entry, seed, config, settings, raw, network, mutant, service, explored })
    }

    /// The command that makes this run again: every value by name, so that it needs no drawing.
    pub(in crate::commands) fn replay(&self) -> String {
        let Self { raw, settings, .. } = self;
        // As it was called, so that it can be pasted where nothing is installed.
        let program = std::env::args().next().unwrap_or_else(|| "amcast".to_string());
        let which = match self.explored {
            Some(deviations) => format!("--explore {deviations}"),
            None => format!("--seed {} --faults {}", self.seed, settings.profile.name()),
        };
        let service = match self.service {
            Some(ServiceTrial { kind, .. }) => format!(" --service {}", kind.name()),
            None => String::new(),
        };
        let mut text = format!(
            "{program} sim --protocol {}{service} {which} --groups {} --replicas {} --clients {} \
             --overlay {} --messages {}",
            self.entry.name(),
            raw.groups,
            raw.replicas,
            raw.clients,
            raw.overlay,
            settings.messages,
        );
        // An exploration has times of its own.
        let faulty = settings.faulty.map(|span| span.0 / 1000).filter(|_| self.explored.is_none());
        let settle = self.explored.is_none().then_some(settings.settle.0 / 1000);
        // The calls of a service have payloads of their own.
        let payload_max = self.service.is_none().then_some(settings.payload_max as u64);
        let numbers = [
            ("payload-max", payload_max),
            ("destinations", settings.destinations.map(|n| n as u64)),
            ("payload", settings.payload.map(|n| n as u64)),
            ("faulty-us", faulty),
            ("settle-us", settle),
        ];
        for (name, value) in numbers {
            if let Some(value) = value {
                let _ = write!(text, " --{name} {value}");
            }
        }
        if let Some(network) = self.network {
            let _ = write!(text, " --network {network}");
        }
        for (name, value) in raw.set.iter().filter(|(name, _)| *name != "mutant") {
            let _ = write!(text, " --set {name}={value}");
        }
        if let Some(mutant) = &self.mutant {
            let _ = write!(text, " --mutant {mutant}");
        }
        text
    }

    /// Which run it is, for people.
    pub(in crate::commands) fn which(&self) -> String {
        match self.explored {
            Some(_) => "a run of the exploration".to_string(),
            None => format!("seed {}", self.seed),
        }
    }

    /// The cluster's shape, for people.
    pub(in crate::commands) fn shape(&self) -> String {
        let Self { raw, settings, .. } = self;
        let mut text = format!(
            "{} of {}, {}, overlay {}",
            count(raw.groups, "group"),
            count(raw.replicas, "replica"),
            count(raw.clients, "client"),
            raw.overlay,
        );
        if self.explored.is_none() {
            let _ = write!(text, ", faults {}", settings.profile.name());
        }
        for (name, value) in &raw.set {
            let _ = write!(text, ", {name}={value}");
        }
        text
    }
}

/// `1 group`, `2 groups`.
pub(in crate::commands) fn count(n: usize, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}

/// Writes take a constant time, and what may happen to them when their writer dies is a choice; a
/// message may take longer than the next one.
fn explored_model() -> CarrierModel {
    let mut model = CarrierModel::constant(Span::micros(2), Span::micros(2));
    model.network.stream = Delay::Uniform(Span::micros(2), Span::micros(8));
    model.idle = Delay::Constant(Span::nanos(100));
    model
}

/// Puts in what is given on the command line, and checks it all.
fn configure(
    args: &SimArgs,
    entry: &dyn Entry,
    mutant: Option<&str>,
    raw: &mut RawConfig,
) -> Result<Config, Failure> {
    raw.groups = args.groups.unwrap_or(raw.groups);
    raw.clients = args.clients.unwrap_or(raw.clients);
    raw.overlay = args.overlay.clone().unwrap_or(core::mem::take(&mut raw.overlay));
    raw.set.extend(args.set.iter().cloned());
    raw.set.extend(mutant.map(|name| ("mutant".to_string(), name.to_string())));
    raw.replicas = args.replicas.unwrap_or(raw.replicas);
    // Given values are not changed, and are refused if they do not fit: for their own reason, and
    // not for that of a shape which was tried in their place.
    let given = raw.clone();
    let suited = trial::suited(entry, given.clone());
    raw.replicas = args.replicas.unwrap_or(suited.replicas);
    raw.groups = args.groups.unwrap_or(suited.groups);
    raw.clients = args.clients.unwrap_or(suited.clients);
    raw.overlay = args.overlay.clone().unwrap_or(suited.overlay);
    let config = build(entry, raw).map_err(|why| build(entry, &given).err().unwrap_or(why))?;
    if raw.clients == 0 && build(entry, &RawConfig { clients: 1, ..raw.clone() }).is_ok() {
        return Err(Failure::Misuse(format!(
            "--clients 0: only clients of {} multicast; give at least 1",
            entry.name()
        )));
    }
    Ok(config)
}

fn build(entry: &dyn Entry, raw: &RawConfig) -> Result<Config, Failure> {
    let config = raw.check(entry.about().params).map_err(Failure::misuse)?;
    amcast_core::entry::build_all(entry, &config).map_err(Failure::misuse)?;
    Ok(config)
}

/// The faults under which a mutant of `entry` is hunted, in turn: some mistakes show only when
/// processes are slow, others only when leaders die, or are wrongly suspected, and nothing else
/// happens.
fn hunted_under(entry: &dyn Entry, seed: u64) -> Profile {
    if !entry.capabilities().crash_tolerance {
        return Profile::None;
    }
    [Profile::All, Profile::Crash, Profile::Oracle][(seed % 3) as usize]
}

impl SimArgs {
    /// Refuses what no multicast of this cluster can be.
    fn fits(&self, entry: &dyn Entry, config: &Config) -> Result<(), Failure> {
        let groups = config.cluster().groups();
        let drawn = self.groups.is_none() && (self.vary || self.mutant.is_some());
        if let Some(given) = self.destinations.filter(|n| !drawn && !(1..=groups).contains(n)) {
            return Err(Failure::Misuse(format!(
                "--destinations {given}: there are {groups} groups; give 1 to {groups}"
            )));
        }
        let together = entry.together(config).into_iter().map(|set| set.len()).max().unwrap_or(0);
        if let Some(given) = self.destinations.filter(|&n| !drawn && n > together) {
            return Err(Failure::Misuse(format!(
                "--destinations {given}: with these settings no message goes to more than {together}"
            )));
        }
        let Some(payload) = self.payload else { return Ok(()) };
        let nodes = amcast_core::entry::build_all(entry, config).map_err(Failure::misuse)?;
        let most = nodes.iter().map(|node| match node {
            ProtocolProcess::Messages(protocol) => protocol.payload_max(),
            ProtocolProcess::Memory(protocol, _) => protocol.payload_max(),
        });
        let most = most.min().unwrap_or(usize::MAX);
        if payload <= most {
            return Ok(());
        }
        let most = format!("at most {most} bytes with these settings");
        Err(Failure::Misuse(format!("--payload {payload}: {most}")))
    }

    fn settings(&self, entry: &dyn Entry, seed: u64, hunt: bool, groups: usize) -> RunSettings {
        let usual = if hunt { hunted_under(entry, seed) } else { Profile::None };
        let mut settings = RunSettings {
            messages: self.messages.unwrap_or(MESSAGES),
            destinations: self.destinations.map(|d| d.clamp(1, groups)),
            payload: self.payload,
            model: self.network.map(Network::model),
            ..RunSettings::with(self.faults.unwrap_or(usual))
        };
        if hunt {
            settings.faulty = Some(HUNT_FAULTY);
            settings.settle = hunt_settle(entry.about().medium);
        } else if self.vary {
            settings.settle = VARIED_SETTLE;
        }
        if hunt || self.vary {
            settings.payload_max = DRAWN_PAYLOAD_MAX;
        }
        settings.payload_max = self.payload_max.unwrap_or(settings.payload_max);
        settings.faulty = self.faulty_us.map(Span::micros).or(settings.faulty);
        settings.settle = self.settle_us.map_or(settings.settle, Span::micros);
        settings
    }
}

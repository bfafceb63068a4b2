//! The plan of a run: the behaviour of the carriers, the multicasts, the faults.

use crate::barrier::{self, Barrier};
use crate::chooser::{Chooser, Concern};
use crate::delay::Delay;
use crate::disk::DiskModel;
use crate::faults::{self, Fault, FaultBounds, Profile, Strike};
use crate::network::NetworkModel;
use crate::ram::{RamModel, WriteOrder};
use crate::run::RunSettings;
use alloc::vec::Vec;
use amcast_core::parameters::SUSPECT;
use amcast_core::{ClusterShape, Config, Entry, GroupSet, MediumKind, Pid, Span, Time};

/// Bytes of the smallest buffer for datagrams that is drawn, and those that may wait for the port of a sender of them before it
/// hears of it.
const PORT_BUFFER_LEAST: u64 = 16 << 10;

/// How the surroundings of the protocol behave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CarrierModel {
    /// The network.
    pub network: NetworkModel,
    /// The memory.
    pub ram: RamModel,
    /// The disks.
    pub disk: DiskModel,
    /// From a change of its memory to a process's looking at it, when the bell was rung.
    pub bell: Delay,
    /// The same when it was not.
    pub idle: Delay,
    /// A process that spins looks into its memory once more, so long after a change: what it left for later it finds then.
    /// None if there is no such time.
    pub spin: Option<Span>,
    /// How late a timer fires.
    pub timer: Delay,
    /// How long a step keeps the process busy: a message, a look at its memory, a multicast, a delivery.
    pub step: Span,
    /// How long the answer to a write or a read keeps it busy, instead.
    pub completion: Span,
    /// How long each message that a step takes part in keeps a process of a shared memory busy, besides.
    pub part: Span,
    /// From a delivery to its being applied.
    pub apply: Delay,
    /// How long the application takes to give a piece of its state, and the log to load a record.
    pub capture: Delay,
    /// How long the application takes to put a state in force that it was given.
    pub install: Delay,
    /// From one checkpoint of the application of a process with a log to the next; none is taken
    /// of itself if there is no such time.
    pub checkpoint: Option<Delay>,
    /// From taking a checkpoint to its being durable.
    pub save: Delay,
    /// How long an oracle takes to notice, for each process that it tells.
    pub notice: Delay,
}

impl CarrierModel {
    /// A quiet world for measuring: every write takes `write`, every message `message`, nothing
    /// else takes any time. Set `post`, `step` and bandwidths to what is to be measured.
    pub const fn constant(write: Span, message: Span) -> Self {
        Self {
            network: NetworkModel::constant(message),
            ram: RamModel::constant(write, Span::ZERO, Span::ZERO),
            disk: DiskModel::constant(Span::ZERO),
            bell: Delay::NONE,
            idle: Delay::NONE,
            spin: None,
            timer: Delay::NONE,
            step: Span::ZERO,
            completion: Span::ZERO,
            part: Span::ZERO,
            apply: Delay::NONE,
            capture: Delay::NONE,
            install: Delay::NONE,
            checkpoint: None,
            save: Delay::NONE,
            notice: Delay::Constant(Span::millis(1)),
        }
    }

    /// Draws a world for a run under `profile`.
    pub fn draw(profile: Profile, chooser: &mut Chooser) -> Self {
        let c = Concern::Faults;
        let mut us = |least: u64, most: u64| Span(chooser.between(c, least * 1000, most * 1000));
        let net = us(5, 60);
        let ram = us(1, 4);
        let look = us(1, 20);
        let apply = us(0, 200);
        let (disk, notice) = (us(10, 2000), us(100, 2000));
        // As quick as most else, or so slow that much happens meanwhile.
        let install = if us(0, 1).0 < 250 { us(20, 5000) } else { Span::ZERO };
        let period = Span::micros(500).times(1 << chooser.pick(Concern::Disk, 8));
        let lazy = disk.times(1 << chooser.pick(Concern::Disk, 8));
        let mut model = Self {
            network: NetworkModel {
                stream: Delay::Uniform(net, net.times(2)),
                datagram: Delay::Uniform(net, net.times(2)),
                own: Delay::Uniform(Span(200), Span::micros(2)),
                down: Delay::Uniform(net, net.times(20)),
                reconnect: Delay::Uniform(net, net.times(20)),
                ..NetworkModel::constant(net)
            },
            ram: RamModel {
                write: Delay::Uniform(ram, ram.times(2)),
                answer: Delay::Uniform(Span(100), ram),
                read: Delay::Uniform(ram, ram.times(2)),
                split_ppm: 50_000,
                split: Delay::Uniform(Span(50), ram.times(2)),
                midst_ppm: 100_000,
                midst: ram,
                early_ppm: 500_000,
                lost: Delay::Uniform(ram.times(2), ram.times(100)),
                fresh: Delay::Uniform(ram, ram.times(100)),
                ..RamModel::constant(ram, Span(20), Span(5))
            },
            disk: DiskModel {
                sync: Delay::Uniform(disk, disk.times(3)),
                lazy: Delay::Uniform(disk, lazy.times(2)),
                ..DiskModel::constant(disk)
            },
            bell: Delay::Uniform(Span(50), look),
            idle: Delay::Uniform(Span(50), look.times(5)),
            spin: None,
            timer: Delay::Uniform(Span::ZERO, look),
            step: Span::ZERO,
            completion: Span::ZERO,
            part: Span::ZERO,
            apply: Delay::Uniform(Span::ZERO, apply),
            capture: Delay::Uniform(Span::ZERO, apply),
            install: Delay::Uniform(Span::ZERO, install),
            checkpoint: Some(Delay::Uniform(period, period.times(3))),
            save: Delay::Uniform(disk, disk.times(20)),
            notice: Delay::Uniform(notice, notice.times(3)),
        };
        if profile.has(Profile::Crash) {
            model.disk.machine_ppm = chooser.between(c, 0, 1_000_000);
        }
        if profile.has(Profile::Network) {
            model.trouble_network(net, chooser);
        }
        if profile.has(Profile::Memory) {
            model.trouble_ram(ram, look, chooser);
        }
        if profile.has(Profile::Disk) && chooser.pick(Concern::Disk, 2) == 1 {
            model.disk.sync = Delay::HeavyTail { least: disk, scale: disk, most: disk.times(200) };
        }
        model
    }

    fn trouble_network(&mut self, net: Span, chooser: &mut Chooser) {
        let c = Concern::Faults;
        let mut rate = |most: u64| chooser.pick(c, 2) * chooser.between(c, 0, most);
        self.network.loss_ppm = rate(200_000);
        self.network.double_ppm = rate(200_000);
        self.network.late_ppm = rate(300_000);
        self.network.late = Delay::Uniform(net, net.times(200));
        if chooser.pick(c, 2) == 1 {
            let tail = Delay::HeavyTail { least: net, scale: net, most: net.times(1000) };
            self.network.stream = tail;
            self.network.datagram = tail;
        }
        if chooser.pick(c, 4) == 1 {
            let port = chooser.between(c, 80, 8_000);
            self.network.port_ps_per_byte = port;
            self.network.sender_bytes = PORT_BUFFER_LEAST;
            // Chosen with the port, and by itself: from what a cheap switch has to what holds all.
            self.network.port_buffer = PORT_BUFFER_LEAST << (port % 6);
            self.network.socket_buffer = PORT_BUFFER_LEAST << (port / 6 % 6);
        }
    }

    fn trouble_ram(&mut self, ram: Span, look: Span, chooser: &mut Chooser) {
        let c = Concern::Faults;
        let mut rate = |most: u64| chooser.between(c, 0, most);
        self.ram.split_ppm = rate(600_000);
        self.ram.denied_lands_ppm = rate(1_000_000);
        self.ram.denied_late_ppm = rate(800_000);
        self.ram.early_ppm = rate(1_000_000);
        self.ram.midst_ppm = chooser.between(Concern::Ram, 0, 500_000);
        let often = chooser.pick(Concern::Unreached, 2);
        self.ram.unreached_ppm = often * chooser.between(Concern::Unreached, 0, 600_000);
        self.ram.unreached = Delay::Uniform(ram, ram.times(200));
        self.ram.denied_late =
            Delay::HeavyTail { least: ram, scale: ram.times(8), most: Span::millis(3) };
        if chooser.pick(c, 2) == 1 {
            self.ram.order = WriteOrder::PerRegion;
        }
        if chooser.pick(c, 2) == 1 {
            let tail = Delay::HeavyTail { least: ram, scale: ram, most: ram.times(500) };
            self.ram.write = tail;
            self.ram.answer = tail;
            self.ram.read = tail;
            self.ram.split = tail;
        }
        if chooser.pick(c, 3) == 1 {
            self.idle =
                Delay::HeavyTail { least: Span(50), scale: look.times(10), most: look.times(200) };
        }
    }
}

/// When senders multicast.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CastPace {
    /// Each multicast at its own time (open loop).
    Open,
    /// Each sender has at most so many multicasts that are not yet delivered in every destination
    /// group; the times only say when it may begin (closed loop).
    Closed(u32),
    /// Each sender makes so many multicasts, and the next so many when it has itself delivered as
    /// many of everybody: for one group in which every member sends the same.
    Rounds(u32),
}

/// A multicast that is to be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PlannedCast {
    /// Not before this time, nor before the sender has room for it.
    pub at: Time,
    /// The sender.
    pub sender: Pid,
    /// To whom.
    pub dst: GroupSet,
    /// How large the payload is. Cut to what the protocol takes.
    pub bytes: usize,
}

/// The plan of a run. With the same choices, the same plan gives the same run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RunPlan {
    /// How the surroundings behave.
    pub model: CarrierModel,
    /// The multicasts, by time.
    pub casts: Vec<PlannedCast>,
    /// When senders multicast.
    pub pace: CastPace,
    /// The barriers, by time.
    pub barriers: Vec<Barrier>,
    /// Which faults strike.
    pub strikes: Vec<Strike>,
    /// When all faults are over: the liveness phase begins.
    pub calm: Time,
    /// Whether a coordination service names the leader of each group and says which processes have
    /// failed, from the start and whenever that changes. Without one the processes choose their leaders
    /// by what they see of each other, as they do in production: no driver names a leader, and none
    /// of a shared memory says who has failed.
    pub service: bool,
    /// How much faster each process's clock runs, in parts per million.
    pub drift_ppm: Vec<i32>,
    /// How long after `calm` the run may take to settle.
    pub settle: Span,
    /// How often it is looked whether the run has settled: nothing may be delivered in between.
    pub quiet: Span,
    /// How many things may happen in the run.
    pub events_max: u64,
}

impl RunPlan {
    /// Draws the plan of a run.
    pub fn draw(
        entry: &dyn Entry,
        config: &Config,
        settings: &RunSettings,
        chooser: &mut Chooser,
    ) -> Self {
        let (about, cluster) = (entry.about(), config.cluster());
        let profile = settings.profile;
        let service = match profile {
            Profile::Oracle => true,
            Profile::All => chooser.pick(Concern::Oracle, 2) == 1,
            _ => false,
        };
        // How long a process may be silent before others suspect it, where that can be set.
        let silence = SUSPECT.find(config);
        let suspect = silence.filter(|_| about.medium == MediumKind::Memory);
        let turns = silence.filter(|_| {
            let may = settings.successions && faults::has_successions(profile, about, cluster);
            may && chooser.pick(Concern::Successions, 2) == 1
        });
        let faulty = settings.faulty.unwrap_or_else(|| {
            let least = turns.map_or(Span::ZERO, |silence| silence.times(SILENCES_OF_TURNS));
            phase(about.medium, suspect, chooser).max(least)
        });
        let calm = Time::ZERO + faulty;
        let mut model = settings.model.unwrap_or_else(|| {
            let mut drawn = CarrierModel::draw(profile, chooser);
            drawn.disk.sync = drawn.disk.sync.within(settings.sync_most.unwrap_or(Span(u64::MAX)));
            drawn
        });
        if !settings.splits_steps {
            model.ram.midst_ppm = 0;
        }
        let replaces = settings.replaces;
        let around = FaultBounds { calm, replaces, service, suspect, turns };
        let mut strikes = faults::draw(profile, entry, cluster, &around, chooser);
        stay_dead(&mut strikes, settings, cluster);
        if entry.has_dynamic_overlay(config) {
            strikes.extend(faults::overlays::draw(
                settings.overlay_changes,
                cluster,
                calm,
                chooser,
            ));
        }
        let barriers = if entry.capabilities().read_index { settings.barriers } else { 0 };
        let drift_most = if profile.has(Profile::Pause) { 500 } else { 0 };
        let drift = |_| chooser.between(Concern::Faults, 0, 2 * drift_most) as i32;
        let drift_ppm = cluster.pids().map(drift).map(|ppm| ppm - drift_most as i32).collect();
        Self {
            model,
            service,
            casts: casts((cluster, &entry.together(config)), settings, faulty, chooser),
            pace: settings.pace,
            barriers: barrier::draw(barriers, cluster, calm, chooser),
            strikes,
            calm,
            drift_ppm,
            settle: settings.settle,
            quiet: settings.quiet,
            events_max: settings.events_max,
        }
    }
}

/// Makes crashes final of processes that are not to come back.
fn stay_dead(strikes: &mut [Strike], settings: &RunSettings, cluster: &ClusterShape) {
    let stays_dead = |p| match cluster.group_of(p) {
        None => !settings.clients_return,
        Some(_) => !settings.restarts,
    };
    for strike in strikes {
        match &mut strike.fault {
            Fault::Crash { p, down, .. } | Fault::Leave { p, down, .. } if stays_dead(*p) => {
                *down = None;
            }
            Fault::Power { outages, .. } => {
                let dead = outages.iter_mut().filter(|(p, _)| stays_dead(*p));
                dead.for_each(|(_, down)| *down = None);
            }
            _ => {}
        }
    }
}

/// In most runs over memory the faults last at least so many times as long as a process may be silent.
const SILENCES: u64 = 6;

/// And at most so many times: nothing new happens to processes that suspect each other in microseconds
/// when a run lasts for seconds, and each of them writes its heartbeats all the while.
const SILENCES_MOST: u64 = 2048;

/// Where replicas are gone in turn the faults last at least so many times as long as one may be silent.
const SILENCES_OF_TURNS: u64 = 32;

/// How long faults last: a millisecond to half a second, each order of magnitude as likely; now and
/// then some seconds, for the longest of pauses. Over memory mostly so long that a leader can be
/// suspected and another one take over.
fn phase(medium: MediumKind, suspect: Option<Span>, chooser: &mut Chooser) -> Span {
    let drawn = drawn_phase(medium, chooser);
    let Some(suspect) = suspect else { return drawn };
    let least = match chooser.pick(Concern::Silences, 4) {
        0 => Span::ZERO,
        _ => suspect.times(SILENCES),
    };
    drawn.min(suspect.times(SILENCES_MOST)).max(least)
}

fn drawn_phase(medium: MediumKind, chooser: &mut Chooser) -> Span {
    let c = Concern::Faults;
    if chooser.pick(c, 100) == 99 {
        return Span::millis(chooser.between(c, 1000, 3000));
    }
    let least = match medium {
        MediumKind::Memory => Span::millis(1),
        MediumKind::Messages => Span::millis(4),
    };
    let scale = least.times(1 << chooser.pick(c, 8));
    scale + Span(chooser.between(c, 0, scale.0))
}

/// The part of `dst` that messages may go to: all of it, or as much as is together with one of it.
fn part_of(dst: GroupSet, together: &[GroupSet]) -> GroupSet {
    let shared = |set: &GroupSet| GroupSet(set.0 & dst.0);
    let most = together.iter().map(shared).rev().max_by_key(|shared| shared.len());
    most.unwrap_or(dst)
}

/// So many groups, or all if there are fewer.
fn any_groups(cluster: &ClusterShape, count: u64, chooser: &mut Chooser) -> GroupSet {
    let groups = cluster.groups() as u64;
    let mut dst = GroupSet::EMPTY;
    while (dst.len() as u64) < count.min(groups) {
        let skip = chooser.pick(Concern::Workload, groups - dst.len() as u64);
        let absent = cluster.all_groups().iter().filter(|&g| !dst.contains(g));
        dst = absent.skip(skip as usize).take(1).fold(dst, GroupSet::with);
    }
    dst
}

/// One of several sets, each as often as its number says.
fn one_of(sets: &[(GroupSet, u64)], chooser: &mut Chooser) -> GroupSet {
    let all = sets.iter().fold(0_u64, |sum, (_, weight)| sum.saturating_add(*weight));
    let mut at = chooser.pick(Concern::Workload, all);
    for &(set, weight) in sets {
        match at.checked_sub(weight) {
            None => return set,
            Some(rest) => at = rest,
        }
    }
    sets.last().map_or(GroupSet::EMPTY, |(set, _)| *set)
}

fn casts(
    (cluster, together): (&ClusterShape, &[GroupSet]),
    settings: &RunSettings,
    faulty: Span,
    chooser: &mut Chooser,
) -> Vec<PlannedCast> {
    let c = Concern::Workload;
    let groups = cluster.groups() as u64;
    let senders = match cluster.clients() {
        0 => cluster.groups() * cluster.replicas(),
        clients => clients,
    };
    let first = cluster.processes() - senders;
    // Of some runs every message goes to few groups, of others to many.
    let dst_most = 1 + chooser.pick(c, groups);
    let large = chooser.pick(c, 3) == 2;
    let within = faulty.0 * 9 / 10 / (1 + chooser.pick(c, 4));
    let mut casts: Vec<PlannedCast> = (0..settings.messages)
        .map(|_| {
            let dst = match &settings.destination_sets[..] {
                [] => {
                    let count = match settings.destinations {
                        Some(count) => count as u64,
                        None => 1 + chooser.pick(c, dst_most),
                    };
                    any_groups(cluster, count, chooser)
                }
                sets => one_of(sets, chooser),
            };
            let bytes = match (settings.payload, chooser.pick(c, 20)) {
                (Some(bytes), _) => bytes as u64,
                (None, 0..12) => chooser.between(c, 0, 100),
                (None, 19) if large => chooser.between(c, 0, settings.payload_max as u64),
                (None, _) => chooser.between(c, 0, 2000.min(settings.payload_max as u64)),
            };
            PlannedCast {
                at: Time(chooser.between(c, 0, within)),
                sender: Pid((first as u64 + chooser.pick(c, senders as u64)) as u32),
                dst: part_of(dst, together),
                bytes: bytes as usize,
            }
        })
        .collect();
    casts.sort_by_key(|cast| cast.at);
    casts
}

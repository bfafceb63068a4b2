//! Which faults strike, and when: drawn from the seed, within what the entry assumes.
//!
//! Every rate is drawn anew for each run (swarm), so that some runs have many faults of one kind
//! and none of another.

mod dead_links;
mod hangs;
pub(crate) mod overlays;
mod successions;
mod words;

pub(crate) use successions::has_successions;

use crate::chooser::{Chooser, Concern};
use alloc::vec::Vec;
use amcast_core::{
    About, Assumption, ClusterShape, Durability, Entry, Gid, MediumKind, Overlay, Pid, Span, Time,
};

/// Which kinds of faults a run may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Profile {
    /// None.
    None,
    /// Processes crash and come back; those that keep a log also with their machines, all at once. Over
    /// messages a coordinator may be cut off before it crashes: see `faults/successions.rs`.
    Crash,
    /// Processes stop for a while, some of them again and again; clocks drift.
    Pause,
    /// Partitions, broken connections, links that fail for long or for good, lost and doubled datagrams.
    Network,
    /// Torn and denied writes, slow memory, slow owners.
    Memory,
    /// Oracles lie.
    Oracle,
    /// Disks that take long to make anything durable, that are full for a while, are replaced or
    /// damaged.
    Disk,
    /// Applications execute nothing for a while.
    Hang,
    /// All of these.
    All,
}

impl Profile {
    /// Each of them.
    pub const ALL: [Self; 9] = [
        Self::None,
        Self::Crash,
        Self::Pause,
        Self::Network,
        Self::Memory,
        Self::Oracle,
        Self::Disk,
        Self::Hang,
        Self::All,
    ];

    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Crash => "crash",
            Self::Pause => "pause",
            Self::Network => "network",
            Self::Memory => "memory",
            Self::Oracle => "oracle",
            Self::Disk => "disk",
            Self::Hang => "hang",
            Self::All => "all",
        }
    }

    /// The profile of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|profile| profile.name() == name)
    }

    /// Whether runs of this profile may have faults of `kind`.
    pub fn has(self, kind: Self) -> bool {
        self == kind || self == Self::All
    }
}

/// A fault.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fault {
    /// A process dies. Skipped if it would leave a group without what the entry assumes.
    Crash {
        /// The process.
        p: Pid,
        /// Whether it dies in the middle of its next step's outputs, and not between two steps.
        mid_step: bool,
        /// How long it is dead; for ever if none.
        down: Option<Span>,
    },
    /// The machines of some processes fail at one moment. Of the log of each, what was not durable
    /// is lost from some record on; of those that are dead only the log suffers. Spared is who may not
    /// die now; whose machine may not fail now, because the others do not know what it would lose,
    /// dies alone.
    Power {
        /// The processes, and how long each is dead; for ever if none.
        outages: Vec<(Pid, Option<Span>)>,
        /// How many records each loses, as far as so many were not durable; drawn if none.
        lost: Option<u64>,
    },
    /// Nothing that a process has written becomes durable for a while.
    Stall {
        /// The process.
        p: Pid,
        /// How long.
        span: Span,
    },
    /// The disk of a process is full for a while: if it writes a record, it dies there, and comes
    /// back when there is room.
    Full {
        /// The process.
        p: Pid,
        /// How long.
        span: Span,
    },
    /// The machine of a process fails with its disk, and is replaced by one with an empty disk. Spared
    /// is whose group could not do without what it had.
    Replace {
        /// The process.
        p: Pid,
        /// How long it is dead.
        span: Span,
    },
    /// One of the durable records of a process cannot be read any more. As long as the process lives it
    /// learns so when it asks for it; at the next start its log is cut there, as a repair does and a start that
    /// finds that the log was cut short: all durable records from there on are gone, and it
    /// learns that its log is lost. A process is spared whose group could not do without its records.
    Damage {
        /// The process.
        p: Pid,
        /// Which record: so many in a million of those that are there are before it.
        ppm: u64,
    },
    /// The application of a process takes a checkpoint, beside those that it takes by itself. That
    /// is no fault, but where it falls between faults matters.
    Checkpoint {
        /// The process.
        p: Pid,
    },
    /// A client is asked for another tree of the groups. That is no fault either, but where it falls between faults
    /// matters.
    Overlay {
        /// The client.
        p: Pid,
        /// The tree.
        overlay: Overlay,
    },
    /// A process is asked to leave its group, and stops when it has, or when it may; if neither comes
    /// in time it is ended. Skipped if it would leave a group without what the entry assumes.
    Leave {
        /// The process.
        p: Pid,
        /// How long it may take.
        patience: Span,
        /// How long it is away; for ever if none.
        down: Option<Span>,
    },
    /// A process takes no step for a while; its connections stand, and what comes waits for it.
    Pause {
        /// The process.
        p: Pid,
        /// How long.
        span: Span,
    },
    /// The application of a process executes nothing for a while: what is delivered waits for it. The process itself takes
    /// its steps.
    Hang {
        /// The process.
        p: Pid,
        /// How long.
        span: Span,
    },
    /// Nothing passes between some processes and the others.
    Partition {
        /// The processes on one side.
        side: Vec<Pid>,
        /// Whether nothing passes back to that side either.
        both: bool,
        /// How long.
        span: Span,
    },
    /// The connection between two processes breaks.
    Cut {
        /// One end.
        a: Pid,
        /// The other end.
        b: Pid,
        /// How long.
        span: Span,
    },
    /// Nothing passes from a process to another one, and neither is notified.
    Link {
        /// From whom.
        from: Pid,
        /// To whom.
        to: Pid,
        /// How long.
        span: Span,
    },
    /// Nothing passes from a process to another one any more, for good. Over memory accesses are answered
    /// [`Lost`](amcast_core::memory::AccessOutcome::Lost).
    DeadLink {
        /// From whom.
        from: Pid,
        /// To whom.
        to: Pid,
    },
    /// The oracle reports to a process that another, which lives, seems to have failed.
    Suspicion {
        /// The receiver of the report.
        to: Pid,
        /// Of whom.
        of: Pid,
        /// How long until the oracle corrects it.
        span: Span,
    },
    /// The oracle names to a process a leader that is not the one it names to the others.
    WrongLeader {
        /// The receiver of the report.
        to: Pid,
        /// Of which group.
        group: Gid,
        /// The reported leader.
        leader: Pid,
        /// How long until the oracle corrects it.
        span: Span,
    },
}

/// When a fault strikes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultTime {
    /// At this time.
    Time(Time),
    /// Before the carriers and timers do their so-manyth action: for exploration, which tries
    /// through all of them.
    Event(u64),
}

/// A fault and when it strikes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Strike {
    /// When.
    pub at: FaultTime,
    /// The fault.
    pub fault: Fault,
}

/// Whether the entry assumes this.
pub fn assumes(about: &About, assumption: Assumption) -> bool {
    about.assumes.contains(&assumption)
}

/// The longest pause, and the longest time that nothing becomes durable.
const PAUSE_MAX: Span = Span::secs(2);

/// Further bounds of the faults of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FaultBounds {
    /// When the faults end.
    pub calm: Time,
    /// Whether disks may be replaced.
    pub replaces: bool,
    /// Whether a coordination service names the leaders.
    pub service: bool,
    /// How long a process over memory may be silent before others suspect it.
    pub suspect: Option<Span>,
    /// The same over messages, in runs in which replicas are gone in turn.
    pub turns: Option<Span>,
}

/// Draws the strikes of a run.
pub(crate) fn draw(
    profile: Profile,
    entry: &dyn Entry,
    cluster: &ClusterShape,
    around: &FaultBounds,
    chooser: &mut Chooser,
) -> Vec<Strike> {
    let FaultBounds { calm, replaces, .. } = *around;
    let (about, concern) = (entry.about(), Concern::Faults);
    let least = u64::from(profile != Profile::All);
    let strikes = Vec::new();
    let mut draw = FaultDrawing { about, cluster, around, calm, least, concern, chooser, strikes };
    if profile.has(Profile::Crash) && !assumes(about, Assumption::NoCrash) {
        draw.some(4, FaultDrawing::crash);
    }
    if profile.has(Profile::Pause) {
        draw.some(7, FaultDrawing::pause);
    }
    if profile.has(Profile::Network) {
        draw.some(4, FaultDrawing::partition);
        if !assumes(about, Assumption::StreamsHold) {
            draw.some(5, FaultDrawing::cut);
        }
    }
    if profile.has(Profile::Oracle) {
        if !assumes(about, Assumption::PerfectDetector) {
            draw.some(6, FaultDrawing::suspicion);
        }
        draw.some(6, FaultDrawing::wrong_leader);
    }
    if entry.capabilities().durability.has_log() {
        if entry.capabilities().durability == Durability::Written {
            draw.concern = Concern::Disk;
        }
        draw.of_logs(profile, replaces);
    }
    if about.capabilities.views && profile.has(Profile::Crash) {
        draw.leaves();
    }
    if profile.has(Profile::Network) {
        draw.links();
    }
    if dead_links::has_dead_links(profile, about, cluster) {
        draw.dead_links();
    }
    if profile.has(Profile::Pause) {
        draw.silences();
    }
    if profile.has(Profile::Hang) {
        draw.hangs();
    }
    if profile.has(Profile::Memory) && about.medium == MediumKind::Memory {
        draw.some(3, FaultDrawing::slow_writer);
    }
    if let Some(silence) = around.turns {
        draw.successions(profile, silence);
    }
    draw.strikes
}

struct FaultDrawing<'a> {
    about: &'a About,
    cluster: &'a ClusterShape,
    around: &'a FaultBounds,
    calm: Time,
    /// How many faults of each kind there are at least: one where only one kind is asked for.
    least: u64,
    /// The stream that most choices come from.
    concern: Concern,
    chooser: &'a mut Chooser,
    strikes: Vec<Strike>,
}

impl FaultDrawing<'_> {
    /// At most `below` faults of a kind; often none.
    fn some(&mut self, below: u64, fault: fn(&mut Self) -> Fault) {
        let most = self.pick(below);
        for _ in 0..self.least + self.pick(most + 1) {
            let at = FaultTime::Time(Time(self.pick(self.calm.0)));
            let fault = fault(self);
            self.strikes.push(Strike { at, fault });
        }
    }

    fn pick(&mut self, n: u64) -> u64 {
        self.chooser.pick(self.concern, n)
    }

    /// A span whose order of magnitude is drawn first: 5 us up to the run's faulty part.
    fn span(&mut self, most: Span) -> Span {
        let least = Span::micros(5);
        let doublings = (most.0 / least.0).max(1).ilog2();
        let scale = least.times(1 << self.pick(u64::from(doublings) + 1));
        (scale + Span(self.pick(scale.0))).min(most)
    }

    /// As [`FaultDrawing::span`]; over memory every other time longer than a process may be silent, if
    /// there is so much time.
    fn outage(&mut self, most: Span) -> Span {
        let Some(suspect) = self.around.suspect.filter(|suspect| *suspect < most) else {
            return self.span(most);
        };
        if self.pick(2) == 0 {
            return self.span(most);
        }
        (suspect + Span(suspect.0 / 8 + self.pick(suspect.times(4).0))).min(most)
    }

    /// A replica that is likely to lead its group when faults begin: groups spread their leaders over the
    /// ranks, and a service names the first one.
    fn likely_leader(&mut self) -> Pid {
        let group = Gid(self.pick(self.cluster.groups() as u64) as u8);
        let rank = if self.around.service { 0 } else { group.index() % self.cluster.replicas() };
        self.cluster.replica(group, rank)
    }

    /// Whether a fault strikes a likely leader; over messages anybody, as likely.
    fn strikes_leader(&mut self) -> bool {
        self.about.medium == MediumKind::Memory && self.pick(2) == 1
    }

    fn faulty_part(&self) -> Span {
        self.calm.since(Time::ZERO)
    }

    fn process(&mut self) -> Pid {
        Pid(self.pick(self.cluster.processes() as u64) as u32)
    }

    fn replica(&mut self) -> Pid {
        Pid(self.pick((self.cluster.groups() * self.cluster.replicas()) as u64) as u32)
    }

    fn crash(&mut self) -> Fault {
        let client = self.cluster.clients() > 0 && self.pick(4) == 3;
        let p = if client {
            let which = self.pick(self.cluster.clients() as u64);
            self.cluster.client(which as usize)
        } else if self.strikes_leader() {
            self.likely_leader()
        } else {
            self.replica()
        };
        let mid_step = self.pick(2) == 1;
        let most = self.faulty_part();
        let down = if self.pick(4) == 3 { None } else { Some(self.outage(most)) };
        Fault::Crash { p, mid_step, down }
    }

    /// Some members leave by choice, in some runs. They have a stream of choices of their own.
    fn leaves(&mut self) {
        let c = Concern::Leaves;
        let most = self.chooser.pick(c, 4);
        for _ in 0..self.chooser.pick(c, most + 1) {
            let at = FaultTime::Time(Time(self.chooser.pick(c, self.calm.0)));
            let members = self.cluster.groups() * self.cluster.replicas();
            let p = Pid(self.chooser.pick(c, members as u64) as u32);
            let part = self.faulty_part().0;
            let patience = Span(self.chooser.between(c, part / 64, part));
            let stays_away = self.chooser.pick(c, 4) == 3;
            let down = Span(self.chooser.between(c, 1, part / 2));
            let down = (!stays_away).then_some(down);
            self.strikes.push(Strike { at, fault: Fault::Leave { p, patience, down } });
        }
    }

    fn power(&mut self) -> Fault {
        let cluster = *self.cluster;
        let replicas = || cluster.all_groups().iter().flat_map(move |g| cluster.members(g));
        let struck: Vec<Pid> = match self.pick(5) {
            // Machines host a replica of each group.
            0 => {
                let rank = self.pick(cluster.replicas() as u64) as usize;
                cluster.all_groups().iter().map(|g| cluster.replica(g, rank)).collect()
            }
            1 => {
                let group = cluster.group_of(self.replica()).unwrap_or(Gid(0));
                cluster.members(group).collect()
            }
            2 => replicas().collect(),
            3 => cluster.pids().collect(),
            _ => replicas().filter(|_| self.pick(2) == 1).collect(),
        };
        let most = self.faulty_part();
        let mut down = || if self.pick(8) == 7 { None } else { Some(self.span(most)) };
        let outages = struck.into_iter().map(|p| (p, down())).collect();
        Fault::Power { outages, lost: None }
    }

    fn stall(&mut self) -> Fault {
        let p = self.replica();
        Fault::Stall { p, span: self.span(PAUSE_MAX.min(self.faulty_part())) }
    }

    fn full(&mut self) -> Fault {
        let p = self.replica();
        Fault::Full { p, span: self.span(self.faulty_part()) }
    }

    /// The faults of processes that keep a log.
    fn of_logs(&mut self, profile: Profile, replaces: bool) {
        if profile.has(Profile::Crash) {
            self.some(3, Self::power);
        }
        if profile.has(Profile::Disk) {
            self.some(5, Self::stall);
            self.some(3, Self::full);
        }
        if profile.has(Profile::Disk) && replaces {
            self.concern = Concern::Disk;
            self.replacements();
            self.damages();
            self.concern = Concern::Faults;
        }
    }

    /// Disks that are replaced, in every other run; drawn apart from all other faults.
    fn replacements(&mut self) {
        for _ in 0..self.pick(2) * (1 + self.pick(3)) {
            let at = FaultTime::Time(Time(self.pick(self.calm.0)));
            let p = self.replica();
            let span = Span(1 + self.pick(self.calm.0));
            self.strikes.push(Strike { at, fault: Fault::Replace { p, span } });
        }
    }

    /// Records that cannot be read any more, in every third run, and often the end of the process some
    /// time later.
    fn damages(&mut self) {
        for _ in 0..(self.pick(3) / 2) * (1 + self.pick(3)) {
            let at = Time(self.pick(self.calm.0));
            let (p, ppm) = (self.replica(), self.pick(1_000_000));
            self.strikes.push(Strike { at: FaultTime::Time(at), fault: Fault::Damage { p, ppm } });
            if self.pick(4) != 3 {
                let left = self.calm.since(at).0;
                let at = FaultTime::Time(at + Span(self.pick(left)));
                let down = Some(Span(1 + self.pick(left)));
                self.strikes.push(Strike { at, fault: Fault::Crash { p, mid_step: false, down } });
            }
        }
    }

    /// Links between two processes, mostly of one group, that fail for long, in one direction or both,
    /// in every other run; drawn apart from all other faults.
    fn links(&mut self) {
        self.concern = Concern::Links;
        for _ in 0..self.pick(2) * (1 + self.pick(3)) {
            let at = Time(self.pick(self.calm.0 / 2 + 1));
            let (from, to) = self.link();
            let left = self.calm.since(at).0;
            let span = Span(left / 4 + self.pick(left));
            let kinds = 2 + u64::from(!assumes(self.about, Assumption::StreamsHold));
            let (one, back) =
                (Fault::Link { from, to, span }, Fault::Link { from: to, to: from, span });
            let faults = match self.pick(kinds) {
                0 => alloc::vec![one],
                1 => alloc::vec![one, back],
                _ => alloc::vec![Fault::Cut { a: from, b: to, span }],
            };
            let strike = |fault| Strike { at: FaultTime::Time(at), fault };
            self.strikes.extend(faults.into_iter().map(strike));
        }
        self.concern = Concern::Faults;
    }

    /// One replica at a time falls silent for long, again and again, in every third run: the same one, or now
    /// this and now that; drawn apart from all other faults.
    fn silences(&mut self) {
        self.concern = Concern::Silences;
        let times = (self.pick(3) / 2) * (3 + self.pick(6));
        let (one, same) = (self.replica(), self.pick(2) == 0);
        for n in 0..times {
            let (begin, end) = (self.calm.0 * n / times, self.calm.0 * (n + 1) / times);
            let p = if same { one } else { self.replica() };
            let span = Span((end - begin) / 8 + self.pick((end - begin) * 7 / 8));
            let at = FaultTime::Time(Time(begin + self.pick(end - begin - span.0)));
            self.strikes.push(Strike { at, fault: Fault::Pause { p, span } });
        }
        self.concern = Concern::Faults;
    }

    fn link(&mut self) -> (Pid, Pid) {
        let from = self.replica();
        let replicas = self.cluster.replicas();
        match self.cluster.group_of(from).filter(|_| replicas > 1) {
            Some(group) if self.pick(4) != 3 => {
                let mut others = self.cluster.members(group).filter(|&p| p != from);
                let to = others.nth(self.pick(replicas as u64 - 1) as usize);
                (from, to.unwrap_or(from))
            }
            _ => (from, self.process()),
        }
    }

    fn pause(&mut self) -> Fault {
        let p = if self.strikes_leader() { self.likely_leader() } else { self.process() };
        Fault::Pause { p, span: self.outage(PAUSE_MAX.min(self.faulty_part())) }
    }

    /// The writes of a replica arrive late, and often those of others to it as well.
    fn slow_writer(&mut self) -> Fault {
        let p = if self.strikes_leader() { self.likely_leader() } else { self.replica() };
        let both = self.pick(2) == 1;
        Fault::Partition { side: alloc::vec![p], both, span: self.outage(self.faulty_part()) }
    }

    fn partition(&mut self) -> Fault {
        let one = self.pick(2) == 0;
        let side = if self.strikes_leader() {
            alloc::vec![self.likely_leader()]
        } else if one {
            alloc::vec![self.process()]
        } else {
            self.cluster.pids().filter(|_| self.chooser.pick(Concern::Faults, 2) == 1).collect()
        };
        let both = self.pick(2) == 0;
        Fault::Partition { side, both, span: self.outage(self.faulty_part()) }
    }

    fn cut(&mut self) -> Fault {
        let (a, b) = (self.process(), self.process());
        // Over memory a way that fails stays so for a while; a connection may come back at once.
        let most = match self.about.medium {
            MediumKind::Messages => self.faulty_part(),
            MediumKind::Memory => Span(self.faulty_part().0 / 2),
        };
        Fault::Cut { a, b, span: self.span(most) }
    }

    fn suspicion(&mut self) -> Fault {
        let of = if self.strikes_leader() { self.likely_leader() } else { self.replica() };
        let to = self.process();
        Fault::Suspicion { to, of, span: self.span(self.faulty_part()) }
    }

    fn wrong_leader(&mut self) -> Fault {
        let (to, leader) = (self.process(), self.replica());
        // A process that takes itself for the leader acts on it.
        let to = if self.strikes_leader() { leader } else { to };
        let group = self.cluster.group_of(leader).unwrap_or(Gid(0));
        Fault::WrongLeader { to, group, leader, span: self.span(self.faulty_part()) }
    }
}

//! Carrier of the medium `Memory`: regions on the heap, writes that travel and may be seen half-way.
//!
//! It keeps the laws of [`amcast_core::memory`] and not a bit more:
//! - A write is split into stores of single words, line by line and the stamp last; they may stop
//!   anywhere if the writer dies, and polls and reads may come between any two.
//! - Source lines are read some time between posting and answering, so a protocol that changes
//!   them too early is caught.
//! - Stores and reads by others also happen in the middle of a step of the owner (module `mid_step`).
//! - Order holds per region or per owner ([`WriteOrder`]), nothing beyond.
//! - A write that is not wholly there when its region is revoked is `Denied`, and by chance lands
//!   all the same: wholly or in part, at once or much later, but never out of order, and nothing
//!   lands behind a gap until the region is opened anew.
//! - Writes and reads of a dead process, or of one whose fresh start the writer was not told of,
//!   are `Lost`. Over a link that fails everything is `Lost` too, and lands all the same: between
//!   processes that live there are no gaps. But a process may be out of another's reach at first:
//!   as long as nothing of that one has appeared there, its writes are lost without a trace, and it is
//!   notified of a fresh start in the same life before a later one appears.
//!
//! [`Ram`] works alone: [`post`](Ram::post) the requests of a process, [`step`](Ram::step) or
//! [`advance`](Ram::advance), and [`take`](Ram::take) what happened.

mod flight;
mod mid_step;

use crate::chooser::{Chooser, Concern};
use crate::delay::Delay;
use crate::queue::EventQueue;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use amcast_core::memory::{
    AccessOutcome, HeapRegions, LINE_WORDS, LineRange, MemoryOutput, RegionId, RegionSpec,
    RegionWindow, Regions, WriteSource,
};
use amcast_core::step::Ticket;
use amcast_core::{Pid, Span, Time};
use flight::{InFlightTable, ReadInFlight, WriteInFlight, WriteTarget};

/// The words of a line and its stamp.
pub type RawLine = [u64; LINE_WORDS + 1];

/// Which writes of a process keep the order of posting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteOrder {
    /// Those to one region: all that the medium promises.
    PerRegion,
    /// Those to one owner, as over one queue pair of RDMA.
    PerOwner,
}

/// How this memory behaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RamModel {
    /// From leaving the writer to the first store at the owner.
    pub write: Delay,
    /// From the last store to the answer at the writer.
    pub answer: Delay,
    /// From leaving the reader to looking at the lines.
    pub read: Delay,
    /// How long the writer is busy with posting, if it has posted nothing at this instant before.
    pub post: Span,
    /// How long for each further post of the same instant: of one batch.
    pub post_more: Span,
    /// How long each line occupies the writer's port, in picoseconds. The writer is free meanwhile.
    pub line_ps: u64,
    /// Chance in a million that a write's stores, or a read's looks, are spread out in time.
    pub split_ppm: u64,
    /// How far apart, then.
    pub split: Delay,
    /// Chance in a million that what others store and read soon happens in the middle of a step of the
    /// owner.
    pub midst_ppm: u64,
    /// How soon that is.
    pub midst: Span,
    /// Chance in a million that source lines are read at posting and not when they are stored.
    pub early_ppm: u64,
    /// Chance in a million that a denied write lands all the same.
    pub denied_lands_ppm: u64,
    /// Chance in a million that it lands later than it would have.
    pub denied_late_ppm: u64,
    /// How much later.
    pub denied_late: Delay,
    /// How long until a write or read that went nowhere is answered `Lost`.
    pub lost: Delay,
    /// How long until another process learns that a process started anew.
    pub fresh: Delay,
    /// Chance in a million that a process is out of another's reach at first, when one of them starts or
    /// the link between them is cut.
    pub unreached_ppm: u64,
    /// How long, where a start is the cause.
    pub unreached: Delay,
    /// The writes that keep their order.
    pub order: WriteOrder,
}

impl RamModel {
    /// A quiet memory: everything takes the same time, nothing is split.
    pub const fn constant(write: Span, post: Span, post_more: Span) -> Self {
        Self {
            write: Delay::Constant(write),
            answer: Delay::NONE,
            read: Delay::Constant(write),
            post,
            post_more,
            line_ps: 0,
            split_ppm: 0,
            split: Delay::NONE,
            midst_ppm: 0,
            midst: Span::ZERO,
            early_ppm: 0,
            denied_lands_ppm: 0,
            denied_late_ppm: 0,
            denied_late: Delay::NONE,
            lost: Delay::Constant(Span::micros(100)),
            fresh: Delay::Constant(Span::micros(10)),
            unreached_ppm: 0,
            unreached: Delay::NONE,
            order: WriteOrder::PerOwner,
        }
    }
}

/// An event of the memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MemoryOccurrence {
    /// Something was stored in a region of this process.
    Changed {
        /// The owner of the region.
        owner: Pid,
        /// Whether the writer wanted the owner woken: said once, when the write is complete.
        bell: bool,
    },
    /// A write or read is answered.
    Done {
        /// The requester.
        to: Pid,
        /// The ticket of the request.
        ticket: Ticket,
        /// The answer.
        answer: OwnedOutcome,
    },
    /// This process is to learn of another's fresh start. Its writes reach the new memory only
    /// after [`Ram::take_notice`].
    Fresh {
        /// The process that is to learn of it.
        to: Pid,
        /// The process that started anew.
        of: Pid,
        /// Which life this is.
        life: u32,
    },
}

/// An [`AccessOutcome`] that owns its words.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OwnedOutcome {
    /// [`AccessOutcome::Written`].
    Written,
    /// [`AccessOutcome::Words`].
    Words(Vec<RawLine>),
    /// [`AccessOutcome::Denied`].
    Denied,
    /// [`AccessOutcome::Lost`].
    Lost,
}

impl OwnedOutcome {
    /// As the medium says it.
    pub fn outcome(&self) -> AccessOutcome<'_> {
        match self {
            Self::Written => AccessOutcome::Written,
            Self::Words(lines) => AccessOutcome::Words(lines),
            Self::Denied => AccessOutcome::Denied,
            Self::Lost => AccessOutcome::Lost,
        }
    }
}

/// The memories of all processes.
#[derive(Debug)]
pub struct Ram {
    model: RamModel,
    processes: Vec<ProcessRegions>,
    /// From each process (row) to each owner.
    paths: Vec<MemoryPath>,
    writes: InFlightTable<WriteInFlight>,
    reads: InFlightTable<ReadInFlight>,
    due: EventQueue<RamTimer>,
    happened: VecDeque<MemoryOccurrence>,
    posted: u64,
    /// How often a process was out of another's reach at first.
    unreached: u64,
    now: Time,
}

/// A process and its regions.
#[derive(Debug)]
struct ProcessRegions {
    specs: Vec<RegionSpec>,
    lines: HeapRegions,
    gates: Vec<RegionGate>,
    alive: bool,
    /// How often it crashed.
    life: u32,
    /// How much all processes had posted when this life began.
    began: u64,
    /// Until when it is busy with its steps and with posting.
    busy: Time,
    /// Until when its port is busy with what it posted.
    port: Time,
    /// Picoseconds beyond that.
    port_ps: u64,
    last_post: Option<Time>,
}

/// A region's permission and order.
#[derive(Clone, Copy, Debug, Default)]
struct RegionGate {
    allowed: bool,
    /// When the last store that was posted is due: later ones are not earlier.
    last: Time,
    /// Until when a denied write that lingers holds back those behind it.
    floor: Time,
    /// A denied write did not wholly land: none behind it does, until the region is opened anew.
    gap: bool,
}

/// From one process to another's memory.
#[derive(Clone, Debug, Default)]
struct MemoryPath {
    /// The owner's life that the writer knows.
    known: u32,
    /// The owner is out of reach, and the writer will be notified when it no more is.
    unreached: bool,
    /// Something of the writer's life has appeared in this life of the owner.
    appeared: bool,
    last: Time,
    cut: Time,
    stalled: Time,
    /// Writes that are still to be answered, in the order of posting.
    asked: VecDeque<usize>,
}

#[derive(Clone, Copy, Debug)]
enum RamTimer {
    Store { write: usize, upto: u32 },
    Answer { write: usize },
    Look { read: usize, from: u32, upto: u32 },
    Words { read: usize },
    Fresh { to: Pid, of: Pid, life: u32 },
}

impl Ram {
    /// Memories of processes with these regions, all alive, zeroed and revoked.
    pub fn new(specs: Vec<Vec<RegionSpec>>, model: RamModel) -> Self {
        let count = specs.len();
        let process = |specs: Vec<RegionSpec>| ProcessRegions {
            lines: HeapRegions::new(&specs),
            gates: alloc::vec![RegionGate::default(); specs.len()],
            specs,
            alive: true,
            life: 0,
            began: 0,
            busy: Time::ZERO,
            port: Time::ZERO,
            port_ps: 0,
            last_post: None,
        };
        Self {
            model,
            processes: specs.into_iter().map(process).collect(),
            paths: alloc::vec![MemoryPath::default(); count * count],
            writes: InFlightTable::default(),
            reads: InFlightTable::default(),
            due: EventQueue::default(),
            happened: VecDeque::new(),
            posted: 0,
            unreached: 0,
            now: Time::ZERO,
        }
    }

    /// A process's own regions.
    pub fn window(&self, owner: Pid) -> RegionWindow<'_> {
        RegionWindow(&self.processes[owner.index()].lines)
    }

    /// Carries out what `from` asks for. Panics if it writes a region that is not its to write, or
    /// past its end: broken invariants of the protocol.
    pub fn post(&mut self, now: Time, from: Pid, out: &MemoryOutput, chooser: &mut Chooser) {
        self.now = self.now.max(now);
        assert!(self.processes[from.index()].alive, "{from:?} is dead and posts {out:?}");
        match *out {
            MemoryOutput::Write { to, region, at, source, ticket, bell } => {
                self.check(to, region, at, source.count());
                let spec = &self.processes[to.index()].specs[usize::from(region.0)];
                assert!(spec.writer == from, "{from:?} writes {to:?}'s {spec:?}");
                self.check_source(from, &source);
                let target = WriteTarget { owner: to, region, at };
                self.write(now, from, target, source, (ticket, bell), chooser);
            }
            MemoryOutput::Read { of, region, at, count, ticket } => {
                self.check(of, region, at, count);
                self.read(now, from, of, LineRange { region, at, count }, ticket, chooser);
            }
            MemoryOutput::Allow(region) => {
                let gate = &mut self.processes[from.index()].gates[usize::from(region.0)];
                (gate.allowed, gate.gap) = (true, false);
            }
            MemoryOutput::Revoke(region) => self.revoke(now, from, region, chooser),
        }
    }

    /// When something happens next; [`Time::NEVER`] if nothing will.
    pub fn next(&self) -> Time {
        self.due.next()
    }

    /// Lets the next thing happen, and nothing else.
    pub fn step(&mut self, chooser: &mut Chooser) {
        let Some((now, due)) = self.due.pop() else { return };
        self.now = now;
        match due {
            RamTimer::Store { write, upto } => self.store(now, write, upto, chooser),
            RamTimer::Answer { write } => self.answer(now, write, chooser),
            RamTimer::Look { read, from, upto } => self.look(read, from, upto),
            RamTimer::Words { read } => self.words(read),
            RamTimer::Fresh { to, of, life } => self.fresh(to, of, life),
        }
    }

    /// Lets everything happen that is due up to `until`.
    pub fn advance(&mut self, until: Time, chooser: &mut Chooser) {
        while self.next() <= until && !self.due.is_empty() {
            self.step(chooser);
        }
    }

    /// Takes out what happened first.
    pub fn take(&mut self) -> Option<MemoryOccurrence> {
        self.happened.pop_front()
    }

    /// A process dies: what it had posted stops somewhere, in order; its memory is gone.
    pub fn crash(&mut self, p: Pid, chooser: &mut Chooser) {
        if !self.processes[p.index()].alive {
            return;
        }
        for owner in (0..self.processes.len() as u32).map(Pid) {
            self.stop(p, owner, chooser);
        }
        let process = &mut self.processes[p.index()];
        process.alive = false;
        process.life += 1;
        process.lines = HeapRegions::new(&process.specs);
        for gate in &mut process.gates {
            *gate = RegionGate::default();
        }
    }

    /// A process that died starts again with zeroed regions, and every other one learns it in time.
    pub fn start(&mut self, now: Time, p: Pid, chooser: &mut Chooser) {
        self.now = self.now.max(now);
        let process = &mut self.processes[p.index()];
        assert!(!process.alive, "{p:?} lives and starts");
        process.alive = true;
        (process.busy, process.port, process.port_ps) = (now, now, 0);
        process.began = self.posted;
        let life = process.life;
        for to in (0..self.processes.len() as u32).map(Pid) {
            // It finds the others as they are now: it never wrote to their earlier memories, and what its
            // former life learned and took no notice of is lost with that life. Of the next life of one
            // that is dead it will be notified.
            let other = &self.processes[to.index()];
            let known = other.life - u32::from(!other.alive);
            let path = self.path_mut(p, to);
            (path.known, path.unreached, path.appeared) = (known, false, false);
            if to != p {
                self.path_mut(to, p).appeared = false;
                let at = now + self.model.fresh.draw(chooser, Concern::Ram);
                self.due.push(at, RamTimer::Fresh { to, of: p, life });
                self.start_unreached(now, p, to, chooser);
            }
        }
    }

    /// The first lives of all processes begin.
    pub fn begin(&mut self, now: Time, chooser: &mut Chooser) {
        let all = 0..self.processes.len() as u32;
        for (from, owner) in all.clone().flat_map(|a| all.clone().map(move |b| (Pid(a), Pid(b)))) {
            if from != owner {
                self.start_unreached(now, from, owner, chooser);
            }
        }
    }

    /// By chance a process that starts does not reach another one at first.
    fn start_unreached(&mut self, now: Time, from: Pid, owner: Pid, chooser: &mut Chooser) {
        if self.processes[owner.index()].alive
            && chooser.chance(Concern::Unreached, self.model.unreached_ppm)
        {
            let until = now + self.model.unreached.draw(chooser, Concern::Unreached);
            self.put_out_of_reach(from, owner, until);
        }
    }

    /// Nothing of `from` reaches `owner`, where nothing of it has appeared yet, before `from` was notified.
    fn put_out_of_reach(&mut self, from: Pid, owner: Pid, until: Time) {
        self.forgo(from, owner);
        self.unreached += 1;
        self.path_mut(from, owner).unreached = true;
        let life = self.processes[owner.index()].life;
        self.due.push(until, RamTimer::Fresh { to: from, of: owner, life });
    }

    /// A process takes notice of [`MemoryOccurrence::Fresh`]: what it posts from now on is meant for the
    /// new memory.
    pub fn take_notice(&mut self, to: Pid, of: Pid, life: u32) {
        let path = self.path_mut(to, of);
        (path.known, path.unreached) = (life, false);
    }

    /// How often a process was out of another's reach at first.
    pub const fn unreached(&self) -> u64 {
        self.unreached
    }

    /// A process is busy until then, and posts nothing before.
    pub fn occupy(&mut self, p: Pid, until: Time) {
        let busy = &mut self.processes[p.index()].busy;
        *busy = (*busy).max(until);
    }

    /// Until when a process is busy with posting.
    pub fn busy_until(&self, p: Pid) -> Time {
        self.processes[p.index()].busy
    }

    /// Whether this process lives.
    pub fn alive(&self, p: Pid) -> bool {
        self.processes[p.index()].alive
    }

    /// The link from one process to another's memory fails until then: accesses in flight and accesses
    /// posted meanwhile is answered `Lost`, and lands all the same, what is posted meanwhile
    /// afterwards. By chance it never lands, where nothing of this process has appeared there before.
    pub fn cut(&mut self, from: Pid, owner: Pid, until: Time, chooser: &mut Chooser) {
        let first = self.reachable(from, owner) && !self.path(from, owner).appeared;
        if first && chooser.chance(Concern::Unreached, self.model.unreached_ppm) {
            return self.put_out_of_reach(from, owner, until);
        }
        if from != owner {
            self.lose(from, owner);
            let path = self.path_mut(from, owner);
            path.cut = path.cut.max(until);
        }
    }

    /// The link from one process to another's memory fails until then, for longer than the run lasts: accesses in flight and
    /// accesses posted from now on are answered `Lost`.
    pub fn sever(&mut self, from: Pid, owner: Pid, until: Time) {
        if from != owner {
            self.lose(from, owner);
            let path = self.path_mut(from, owner);
            path.cut = path.cut.max(until);
        }
    }

    /// Accesses that are posted on this link wait until then.
    pub fn stall(&mut self, from: Pid, owner: Pid, until: Time) {
        if from != owner {
            let path = self.path_mut(from, owner);
            path.stalled = path.stalled.max(until);
        }
    }

    fn path(&self, from: Pid, owner: Pid) -> &MemoryPath {
        &self.paths[from.index() * self.processes.len() + owner.index()]
    }

    fn path_mut(&mut self, from: Pid, owner: Pid) -> &mut MemoryPath {
        let count = self.processes.len();
        &mut self.paths[from.index() * count + owner.index()]
    }

    fn check(&self, owner: Pid, region: RegionId, at: u32, count: u32) {
        let process = &self.processes[owner.index()];
        let spec = process.specs.get(usize::from(region.0));
        let spec = spec.unwrap_or_else(|| panic!("{owner:?} has no {region:?}"));
        let fits = at.checked_add(count).is_some_and(|end| end <= spec.lines);
        assert!(fits && count > 0, "{count} lines from {at} are not in {owner:?}'s {spec:?}");
    }

    fn check_source(&self, from: Pid, source: &WriteSource) {
        let (WriteSource::Copy(lines) | WriteSource::Made { rest: lines, .. }) = source;
        if lines.count > 0 {
            self.check(from, lines.region, lines.at, lines.count);
        }
    }

    /// When a post of `lines` lines leaves the process.
    fn depart(&mut self, now: Time, from: Pid, lines: u32) -> Time {
        let model = &self.model;
        let process = &mut self.processes[from.index()];
        let more = process.last_post.replace(now) == Some(now);
        let cost = if more { model.post_more } else { model.post };
        process.busy = process.busy.max(now) + cost;
        if model.line_ps == 0 || lines == 0 {
            return process.busy.max(process.port);
        }
        if process.port < process.busy {
            (process.port, process.port_ps) = (process.busy, 0);
        }
        let ps = process.port_ps + model.line_ps * u64::from(lines);
        (process.port, process.port_ps) = (process.port + Span(ps / 1000), ps % 1000);
        process.port
    }

    fn fresh(&mut self, to: Pid, of: Pid, life: u32) {
        let current = &self.processes[of.index()];
        let path = self.path(to, of);
        // One that started after that life knows no other one, and has written nothing elsewhere.
        let knows = path.known == life && !path.unreached;
        if current.life == life && current.alive && self.processes[to.index()].alive && !knows {
            self.happened.push_back(MemoryOccurrence::Fresh { to, of, life });
        }
    }

    fn lines(&self, owner: Pid, region: RegionId) -> &[amcast_core::memory::CacheLine] {
        self.processes[owner.index()].lines.lines(region)
    }

    fn draw(&self, delay: Delay, chooser: &mut Chooser) -> Span {
        delay.draw(chooser, Concern::Ram)
    }
}

#[cfg(test)]
mod tests;

//! Crashes, restarts and the other strikes; and the oracles, which tell the truth in the end.

use crate::chooser::Concern;
use crate::durable::ProcessEnd;
use crate::faults::{Fault, assumes};
use crate::process::OwnedInput;
use crate::world::{HarnessTimer, OracleSubject, SimulatedRun};
use alloc::vec::Vec;
use amcast_core::step::Oracle;
use amcast_core::trace::TraceEvent;
use amcast_core::{Assumption, MediumKind, Pid, ProtocolProcess, Span, Time};

/// How long a process that was asked to leave, and may not be killed yet, is given before the next look.
const PATIENCE_AGAIN: Span = Span::millis(1);

impl SimulatedRun<'_> {
    pub(crate) fn assumes(&self, assumption: Assumption) -> bool {
        assumes(self.entry.about(), assumption)
    }

    /// When a fault that lasts `span` is over.
    fn over(&self, span: Span) -> Time {
        (self.now + span).min(self.plan.calm.max(self.now))
    }

    /// Lets a strike of the plan happen.
    pub(crate) fn strike(&mut self, i: usize) {
        let plan = self.plan;
        match &plan.strikes[i].fault {
            Fault::Crash { p, mid_step, down } => self.strike_crash(*p, *mid_step, *down),
            Fault::Power { outages, lost } => {
                let mut struck = Vec::new();
                for &(p, down) in outages {
                    let node = self.node_of(p);
                    if !struck.contains(&node) {
                        self.strike_power(p, *lost, down);
                        struck.push(node);
                    }
                }
            }
            Fault::Stall { p, span } => {
                let over = self.over(*span);
                self.node_of(*p).into_iter().for_each(|q| self.carriers.disk.stall(q, over));
            }
            Fault::Full { p, span } => {
                let over = self.over(*span);
                self.node_of(*p).into_iter().for_each(|q| self.carriers.disk.fill(q, over));
                self.fill_host(*p, over);
            }
            Fault::Replace { p, span } => self.strike_replace(*p, *span),
            Fault::Damage { p, ppm } => {
                if !self.damage_host(*p) && self.may_forget(*p) {
                    self.damage(*p, *ppm);
                }
            }
            Fault::Checkpoint { p } => self.checkpoint(*p),
            Fault::Overlay { p, overlay } => {
                self.enqueue(*p, OwnedInput::Overlay(overlay.clone()));
            }
            Fault::Leave { p, patience, down } => self.ask_to_leave(*p, *patience, *down),
            Fault::Pause { p, span } => self.strike_pause(*p, *span),
            Fault::Hang { p, span } => self.strike_hang(*p, *span),
            Fault::Partition { side, both, span } => {
                let over = self.over(*span);
                let side: Vec<Pid> = side.iter().flat_map(|&p| self.node_of(p)).collect();
                for &a in &side {
                    for b in self.cluster.pids().filter(|b| !side.contains(b)) {
                        self.part(a, b, over);
                        if *both {
                            self.part(b, a, over);
                        }
                    }
                }
            }
            Fault::Cut { a, b, span } => {
                let over = self.over(*span);
                self.links(*a, *b).for_each(|(a, b)| self.cut(a, b, over));
            }
            Fault::Link { from, to, span } => {
                let over = self.over(*span);
                self.links(*from, *to).for_each(|(from, to)| self.part(from, to, over));
            }
            Fault::DeadLink { from, to } => self.strike_link(*from, *to),
            Fault::Suspicion { to, of, span } => {
                let over = self.over(*span);
                self.links(*to, *of).for_each(|(to, of)| self.strike_suspicion(to, of, over));
            }
            Fault::WrongLeader { to, group, leader, span } => {
                let over = self.over(*span);
                for to in self.node_of(*to) {
                    self.enqueue(to, OwnedInput::Oracle(Oracle::Leader(*group, *leader)));
                    self.queue.push(over, HarnessTimer::Truth(to, OracleSubject::Group(*group)));
                }
            }
        }
    }

    /// The links that a fault of the one between two processes strikes: all between two nodes, where these host
    /// several replicas, and none within one.
    fn links(&self, from: Pid, to: Pid) -> impl Iterator<Item = (Pid, Pid)> + use<> {
        let (one, other) = (self.node_of(from), self.node_of(to));
        let within = self.has_host() && one == other;
        let each = move |from| other.clone().into_iter().map(move |to| (from, to));
        one.into_iter().flat_map(each).filter(move |_| !within)
    }

    fn strike_suspicion(&mut self, to: Pid, of: Pid, over: Time) {
        if to != of && self.procs[of.index()].alive() {
            self.enqueue(to, OwnedInput::Oracle(Oracle::Suspect(of)));
            // Where nobody vouches for anybody, the suspicion lasts until its subject shows that it
            // lives.
            if self.tells_of_failures() {
                self.queue.push(over, HarnessTimer::Truth(to, OracleSubject::Process(of)));
            }
        }
    }

    /// A process pauses between two steps, or in the middle of its next one.
    fn strike_pause(&mut self, p: Pid, span: Span) {
        let alive = self.procs[p.index()].alive();
        if alive {
            self.mark("sim-paused");
        }
        if alive && self.chooser.pick(Concern::Silences, 2) == 1 {
            self.procs[p.index()].pauses = Some(span);
        } else {
            self.pause(p, span);
        }
    }

    /// A process takes no step for a while, nor do the others of its node.
    pub(crate) fn pause(&mut self, p: Pid, span: Span) {
        let over = self.over(span);
        for q in self.node_of(p) {
            let process = &mut self.procs[q.index()];
            process.free_at = process.free_at.max(over);
        }
    }

    /// The application of a process, or that of its node, executes nothing for a while.
    fn strike_hang(&mut self, p: Pid, span: Span) {
        if !self.procs[p.index()].alive() {
            return;
        }
        self.mark("sim-hung");
        let over = self.over(span);
        for q in self.node_of(p) {
            let process = &mut self.procs[q.index()];
            process.hung_until = process.hung_until.max(over);
        }
        self.hang_host(p, over);
    }

    fn part(&mut self, from: Pid, to: Pid, over: Time) {
        match self.entry.about().medium {
            MediumKind::Messages => self.carriers.network.block(from, to, over),
            MediumKind::Memory => self.carriers.ram.stall(from, to, over),
        }
    }

    /// A link between two processes fails for good. Between nodes, each of which has a replica of every group, it would cut
    /// replicas of one group off from each other: that is another fault, and nobody promises to bear it.
    fn strike_link(&mut self, from: Pid, to: Pid) {
        if self.has_host() {
            return;
        }
        self.mark("sim-dead-link");
        let never = self.plan.calm + self.plan.settle + Span::secs(1);
        match self.entry.about().medium {
            MediumKind::Messages => self.carriers.network.block(from, to, never),
            MediumKind::Memory => self.carriers.ram.sever(from, to, never),
        }
    }

    fn cut(&mut self, a: Pid, b: Pid, over: Time) {
        match self.entry.about().medium {
            MediumKind::Messages => {
                let span = over.since(self.now);
                self.carriers.network.cut(self.now, a, b, span, &mut self.chooser);
            }
            MediumKind::Memory => {
                self.carriers.ram.cut(a, b, over, &mut self.chooser);
                self.carriers.ram.cut(b, a, over, &mut self.chooser);
            }
        }
    }

    fn strike_crash(&mut self, p: Pid, mid_step: bool, down: Option<Span>) {
        if !self.may_crash(p) {
            return;
        }
        if mid_step {
            self.procs[p.index()].doomed = Some(down);
        } else {
            self.crash_for(p, down);
        }
    }

    fn strike_power(&mut self, p: Pid, lost: Option<u64>, down: Option<Span>) {
        let end = self.at_most(p, ProcessEnd::Machine { lost });
        if self.may_crash(p) {
            self.end_for(p, end, down);
        } else if !self.procs[p.index()].alive() {
            self.node_of(p).into_iter().for_each(|q| self.end_log(q, end));
        }
    }

    fn strike_replace(&mut self, p: Pid, span: Span) {
        let alive = self.procs[p.index()].alive();
        let node = self.node_of(p);
        let may_forget = node.iter().all(|&q| self.may_forget(q));
        if !may_forget || alive && !self.may_crash(p) {
            return;
        }
        if alive {
            self.end_for(p, ProcessEnd::Machine { lost: None }, Some(span));
        }
        node.into_iter().for_each(|q| self.replace(q));
        if let Some(rank) = self.hosted_rank(p) {
            self.above.lost_disks[rank] = true;
        }
    }

    fn ask_to_leave(&mut self, p: Pid, patience: Span, down: Option<Span>) {
        if !self.may_crash(p) || self.procs[p.index()].leaving.is_some() {
            return;
        }
        let life = self.procs[p.index()].life;
        self.queue.push(self.now + patience, HarnessTimer::Patience(p, life));
        for q in self.node_of(p) {
            self.procs[q.index()].leaving = Some(down);
            self.enqueue(q, OwnedInput::Leave);
        }
    }

    /// A process that was asked to leave has not, for so long that it is ended: as soon as the others of
    /// its group can do without it.
    pub(crate) fn lose_patience(&mut self, p: Pid, life: u32) {
        let process = &self.procs[p.index()];
        if process.life != life || !process.alive() {
            return;
        }
        let Some(down) = process.leaving else { return };
        if process.left || self.may_crash(p) {
            self.crash_for(p, down);
        } else {
            self.queue.push(self.now + PATIENCE_AGAIN, HarnessTimer::Patience(p, life));
        }
    }

    /// A process that was asked to leave may stop; it has `left`, or is simply ended.
    pub(crate) fn stops(&mut self, p: Pid, left: bool) {
        let process = &mut self.procs[p.index()];
        process.left = left;
        // When the step is over.
        let life = process.life;
        self.queue.push(self.now, HarnessTimer::Patience(p, life));
    }

    /// Whether a process that is doomed may die in this step: the time of faults is not over, and
    /// the others of its group can still do without it.
    pub(crate) fn dies_now(&self, p: Pid) -> bool {
        let doomed = self.procs[p.index()].doomed.is_some();
        doomed && self.now < self.plan.calm && self.may_crash(p)
    }

    /// A process dies, and comes back after `down`.
    pub(crate) fn crash_for(&mut self, p: Pid, down: Option<Span>) {
        let end = self.draw_end(p);
        self.end_for(p, end, down);
    }

    /// A process dies in this way, and comes back after `down`; so does its whole node.
    pub(crate) fn end_for(&mut self, p: Pid, end: ProcessEnd, down: Option<Span>) {
        let node = self.node_of(p);
        let mut longest = None;
        for &q in &node {
            longest = longest.max(self.down(q, down));
        }
        if let Some(span) = longest {
            node.iter().for_each(|q| self.procs[q.index()].gone = false);
            let mut back = self.over(span);
            if self.assumes(Assumption::PerfectDetector) {
                // Everyone hears of the crash before the process lives again.
                back = back.max(self.now + self.plan.model.notice.most() + Span(1));
            }
            self.queue.push(back, HarnessTimer::Restart(p));
        }
        for q in node {
            if self.procs[q.index()].alive() {
                self.crash(q, end);
            }
        }
        let now = self.now;
        if let (Some(rank), Some(host)) = (self.hosted_rank(p), &mut self.above.host) {
            host.crashed(now, rank);
            self.above.is_due = true;
        }
    }

    /// Whether the group of `p`, and those of all replicas of its node, are left with what the entry assumes if
    /// `p` dies.
    fn may_crash(&self, p: Pid) -> bool {
        self.procs[p.index()].alive()
            && !self.assumes(Assumption::NoCrash)
            && self.node_of(p).into_iter().all(|q| self.is_spared(q))
    }

    /// Whether the group of `p` can do without it.
    fn is_spared(&self, p: Pid) -> bool {
        let process = &self.procs[p.index()];
        let least = match () {
            // A process that keeps a log may die independently of the others.
            () if self.entry.capabilities().durability.has_log() => 0,
            () if self.assumes(Assumption::MajorityFit) => self.cluster.quorum(),
            () if self.assumes(Assumption::OneFit) => 1,
            () => 0,
        };
        let Some(group) = process.group.filter(|_| least > 0) else { return true };
        let working = |q: &Pid| {
            let process = &self.procs[q.index()];
            let stays = process.doomed.is_none() && process.leaving.is_none();
            *q != p && process.alive() && process.fit && stays
        };
        let left = self.cluster.members(group).filter(working).count();
        left >= least
    }

    /// A process dies.
    fn crash(&mut self, p: Pid, end: ProcessEnd) {
        let damaged = self.carriers.disk.is_damaged(p);
        let forgets_views = self.has_components();
        let process = &mut self.procs[p.index()];
        process.intact = process.fit && !damaged;
        process.node = None;
        process.life += 1;
        process.app = Default::default();
        process.inbox.clear();
        process.datagram_bytes = 0;
        process.given.clear();
        process.barriers.clear();
        (process.run_at, process.wake_at, process.poll_at) = (None, None, None);
        (process.free_at, process.hung_until) = (self.now, Time::ZERO);
        (process.doomed, process.leaving, process.fit) = (None, None, false);
        (process.pauses, process.unposted) = (None, None);
        process.contract.restart(forgets_views);
        let left = core::mem::take(&mut process.left);
        process.standing += 1;
        if left {
            self.ledger.left(p);
        }
        self.ledger.failed(p);
        self.counts.crashes += u64::from(!left);
        self.carriers.network.crash(self.now, p, &mut self.chooser);
        self.carriers.ram.crash(p, &mut self.chooser);
        self.end_log(p, end);
        let t = self.now;
        self.emit(&if left { TraceEvent::Leave { t, p } } else { TraceEvent::Crash { t, p } });
        self.announce(p);
    }

    /// A process that died comes back with nothing but what it has on its disk; so does its whole node.
    pub(crate) fn restart(&mut self, p: Pid) {
        if self.procs[p.index()].alive() {
            return;
        }
        let node = self.node_of(p);
        if let Some(rank) = self.hosted_rank(p) {
            self.host_starts(rank);
        }
        node.iter().for_each(|&q| self.build_again(q));
        for q in node {
            // The first of them may find the disk full, and die with the others.
            if self.procs[q.index()].alive() {
                self.start_again(q);
            }
        }
    }

    fn build_again(&mut self, p: Pid) {
        let node = self.entry.build(p, self.config);
        let node = node.expect("it was built from this configuration before");
        let messages = matches!(node, ProtocolProcess::Messages(_));
        self.failover.restarts(p);
        let t = self.now;
        self.emit(&TraceEvent::Recover { t, p });
        let process = &mut self.procs[p.index()];
        process.node = Some(node);
        process.fit = false;
        if messages {
            self.carriers.network.start(t, p, &mut self.chooser);
        } else {
            self.carriers.ram.start(t, p, &mut self.chooser);
        }
    }

    fn start_again(&mut self, p: Pid) {
        self.open(p);
        if self.plan.service {
            for g in self.cluster.all_groups().iter() {
                self.truth(p, OracleSubject::Group(g), true);
            }
        }
        if self.tells_of_failures() {
            for q in self.cluster.pids().filter(|&q| q != p) {
                if !self.procs[q.index()].alive() {
                    self.truth(p, OracleSubject::Process(q), true);
                }
            }
        }
        self.announce(p);
    }

    /// Whether someone tells the processes who has failed: the carrier of messages, whose connections
    /// break, or a coordination service. Over memory only the latter can.
    fn tells_of_failures(&self) -> bool {
        self.plan.service || self.entry.about().medium == MediumKind::Messages
    }

    /// The oracle reports to every process, some time, whether `p` lives, where it reports at all.
    fn announce(&mut self, p: Pid) {
        if self.tells_of_failures() {
            for q in self.cluster.pids().filter(|&q| q != p) {
                self.truth(q, OracleSubject::Process(p), true);
            }
        }
        self.elect(p);
    }

    /// The oracle looks who should lead the group of `p`: the lowest that lives and is fit.
    pub(crate) fn elect(&mut self, p: Pid) {
        let Some(group) = self.procs[p.index()].group else { return };
        let current = self.leaders[group.index()];
        let alive = |q: &Pid| self.procs[q.index()].alive();
        let fit = |q: &Pid| alive(q) && self.procs[q.index()].fit;
        let mut members = self.cluster.members(group);
        let leader = members.find(fit).or_else(|| self.cluster.members(group).find(alive));
        let leader = leader.unwrap_or(current);
        if leader != current {
            self.leaders[group.index()] = leader;
            if !self.plan.service {
                return;
            }
            for q in self.cluster.pids() {
                self.truth(q, OracleSubject::Group(group), true);
            }
        }
    }

    /// `to` receives the true report, as it is then: after a while, or at once.
    pub(crate) fn truth(&mut self, to: Pid, subject: OracleSubject, after: bool) {
        let wait = if after {
            self.plan.model.notice.draw(&mut self.chooser, Concern::Oracle)
        } else {
            Span::ZERO
        };
        self.queue.push(self.now + wait, HarnessTimer::Truth(to, subject));
    }

    /// Sends `to` the true leader, or the true state of a process. Without a coordination service, a report on a leader is
    /// `NoLeader`.
    pub(crate) fn tell(&mut self, to: Pid, subject: OracleSubject) {
        let said = match subject {
            OracleSubject::Group(g) if !self.plan.service => Oracle::NoLeader(g),
            OracleSubject::Group(g) => Oracle::Leader(g, self.leaders[g.index()]),
            OracleSubject::Process(p) if self.procs[p.index()].alive() => Oracle::Trust(p),
            OracleSubject::Process(p) => Oracle::Suspect(p),
        };
        self.enqueue(to, OwnedInput::Oracle(said));
    }
}

//! From one view to the next: who is in it, and where the old one is cut. One instance of Paxos a
//! view, in which all configured processes vote.

use super::casts::{Casts, HeldCasts};
use super::packet::PacketItem;
use super::retransmission::PeerChannel;
use super::{ViewPhase, Vsync, VsyncMutant, VsyncPacket};
use alloc::sync::Arc;
use alloc::vec::Vec;
use amcast_core::codec::Codec;
use amcast_core::groupcast::{self, GroupMember, Groupcast, View};
use amcast_core::messages::Messages;
use amcast_core::{Input, Outbox, Pid, Protocol, ProtocolEvent, Span, Time};

/// Bytes of casts that are given at a time to a member that misses them.
const FETCHED_BYTES: usize = 64 << 10;

/// How many retries a blocked member waits for the coordinator that blocked it, before it takes over.
const TAKEOVER_RETRIES: u64 = 8;

/// How many times as long as any other a member may be silent that has the state, where fewer than a
/// majority would continue with it: a process that was only slow must not cost a copy that is needed.
const COPY_PATIENCE: u64 = 8;

/// A coordinator's attempt to get a view decided.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct ViewBallot {
    /// Grows with each attempt.
    pub(super) round: u32,
    /// The coordinator.
    pub(super) pid: Pid,
}

impl Default for ViewBallot {
    /// Below all ballots.
    fn default() -> Self {
        Self { round: 0, pid: Pid(0) }
    }
}

/// Numbers of views, rounds and casts that nobody reaches by counting: what is beyond is nonsense.
pub(super) const NONSENSE: u64 = 1 << 62;

/// The same of rounds.
const ROUND_NONSENSE: u32 = 1 << 30;

/// A proposed view.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ViewProposal {
    /// Its members, the most senior first.
    pub(super) members: Vec<GroupMember>,
    /// How many casts of each process, by pid, the view before ends with.
    pub(super) cut: Vec<u64>,
}

/// A view that was decided.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ViewDecision {
    pub(super) view: View,
    /// How many casts of each process, by pid, the view before ends with.
    pub(super) cut: Vec<u64>,
}

/// The status of a process that promises in the view that ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum PromiserStatus {
    /// No member; it wants to join.
    Outsider,
    /// A member: whether it has the state, and how many casts of each process, by pid.
    Member { fit: bool, have: Vec<u64> },
}

/// The promise and acceptance of this process for the view after the last decided one.
#[derive(Clone, Debug, Default)]
pub(super) struct ViewAcceptor {
    /// The first view it may vote on; at those before it has perhaps forgotten what it promised.
    pub(super) first: u64,
    promised: ViewBallot,
    accepted: Option<(ViewBallot, ViewProposal)>,
}

/// A coordinator's knowledge of a process that promised.
#[derive(Clone, Debug)]
struct ViewPromise {
    accepted: Option<(ViewBallot, ViewProposal)>,
    standing: PromiserStatus,
    life: u64,
}

/// A change that this process coordinates.
#[derive(Clone, Debug)]
pub(super) struct ViewChange {
    ballot: ViewBallot,
    promises: Vec<Option<ViewPromise>>,
    /// Once enough have promised.
    proposal: Option<ViewProposal>,
    /// Whether the proposal was made by an earlier coordinator.
    adopted: bool,
    /// Whether it has all casts up to the cut, and asks the others to accept.
    accepting: bool,
    accepted: Vec<bool>,
    retry_at: Time,
}

/// Whether these can be members of a group of so many processes, and the cut of its view.
fn is_sound(members: &[GroupMember], cut: &[u64], processes: usize) -> bool {
    let once =
        |(at, m): (usize, &GroupMember)| members[..at].iter().all(|other| other.pid != m.pid);
    let sound = |m: &GroupMember| m.pid.index() < processes && m.life < NONSENSE;
    !members.is_empty()
        && cut.len() == processes
        && cut.iter().all(|&n| n < NONSENSE)
        && members.iter().all(sound)
        && members.iter().enumerate().all(once)
}

impl ViewBallot {
    const fn is_sound(&self, processes: usize) -> bool {
        self.round < ROUND_NONSENSE && self.pid.index() < processes
    }
}

impl ViewProposal {
    fn is_sound(&self, processes: usize) -> bool {
        is_sound(&self.members, &self.cut, processes)
    }
}

impl<M, P> Vsync<M, P>
where
    M: Codec + core::fmt::Debug + 'static,
    P: Protocol<Medium = Groupcast<M>>,
{
    /// The view that is voted on.
    const fn instance(&self) -> u64 {
        self.decision.view.id + 1
    }

    /// Whether it is a member of the last decided view, and has entered it.
    fn is_inside(&self) -> bool {
        matches!(self.phase, ViewPhase::Active | ViewPhase::Blocked)
    }

    /// When the coordinator has to do something.
    pub(super) fn change_at(&self) -> Time {
        let takeover = match (&self.change, self.phase) {
            // Once it is past, it is looked at with every heartbeat.
            (None, ViewPhase::Blocked) if self.takeover_at() > self.now => self.takeover_at(),
            _ => Time::NEVER,
        };
        self.change.as_ref().map_or(takeover, |change| change.retry_at)
    }

    /// Until when a blocked member waits for the coordinator that blocked it.
    fn takeover_at(&self) -> Time {
        // Not all at once.
        self.blocked_at + self.takeover_wait().times(1 + self.me().index() as u64)
    }

    /// How long a member may be blocked before the others do something about it.
    fn takeover_wait(&self) -> Span {
        self.settings.retry.times(TAKEOVER_RETRIES).max(self.settings.suspect)
    }

    /// Whether a member is blocked for long, and the coordinator that blocked it has forgotten that.
    fn leaves_blocked(&self) -> bool {
        let wait = self.takeover_wait();
        let long = |at: &Time| self.now.since(*at) >= wait;
        self.members.iter().any(|p| self.blocked[p.index()].as_ref().is_some_and(long))
    }

    /// Whether this process is the one to change the view, and there is a reason.
    fn must_coordinate(&self) -> bool {
        if !self.is_inside() || self.coordinator() != Some(self.me()) {
            return false;
        }
        let failed = self.view.members.iter().any(|m| self.failed(*m));
        let joins = self.peers().any(|p| self.joins(p).is_some_and(|m| self.may_link(m)));
        let stuck = self.phase == ViewPhase::Blocked && self.change.is_none();
        let left_alone =
            stuck && (self.takeover_at() <= self.now || self.suspects(self.vote.promised.pid));
        let leaves = || self.somebody_leaves() || self.leaves_blocked();
        let changes = || failed || joins || leaves() || self.is_unlinked();
        if stuck { left_alone } else { changes() }
    }

    /// The life in which `p` wants to join, if it does and seems to live.
    fn joins(&self, p: Pid) -> Option<GroupMember> {
        let life = self.joiners[p.index()].filter(|&life| life >= self.lives[p.index()])?;
        let member = GroupMember { pid: p, life };
        (!self.suspects(p) && !self.view.members.contains(&member)).then_some(member)
    }

    pub(super) fn on_join(&mut self, from: Pid, view: u64) {
        self.joiners[from.index()] = Some(self.lives[from.index()]);
        self.catch_up(from, view);
    }

    /// A peer knows of no view after `view`: it receives the decision.
    pub(super) fn catch_up(&mut self, peer: Pid, view: u64) {
        if view < self.decision.view.id {
            self.post(peer, PacketItem::Decide(self.decision.clone()));
        }
    }

    /// The coordinator's part of a round.
    pub(super) fn coordinate(&mut self, out: &mut Outbox<Messages<VsyncPacket>>) {
        if self.change.is_none() {
            if self.must_coordinate() {
                self.prepare(out);
            }
            return;
        }
        let outrun = |change: &ViewChange| change.ballot < self.vote.promised || !self.is_inside();
        if self.change.as_ref().is_some_and(outrun) {
            self.change = None;
            return;
        }
        self.propose(out);
        let Some(change) = &mut self.change else { return };
        if change.retry_at <= self.now {
            change.retry_at = self.now + self.settings.retry.times(2);
            self.repeat();
        }
    }

    /// First phase: nobody takes anything in any more, and says what it has.
    fn prepare(&mut self, out: &mut Outbox<Messages<VsyncPacket>>) {
        let ballot = ViewBallot { round: self.vote.promised.round + 1, pid: self.me() };
        let n = self.settings.processes;
        self.change = Some(ViewChange {
            ballot,
            promises: alloc::vec![None; n],
            proposal: None,
            adopted: false,
            accepting: false,
            accepted: alloc::vec![false; n],
            retry_at: self.now + self.settings.retry,
        });
        if self.vote.first <= self.instance() {
            self.promise(ballot, out);
            let own = self.own_promise();
            if let Some(change) = &mut self.change {
                change.promises[self.settings.me.index()] = Some(own);
            }
        } else {
            self.block(out);
        }
        self.repeat();
    }

    fn own_promise(&self) -> ViewPromise {
        let (accepted, life) = (self.vote.accepted.clone(), self.life);
        ViewPromise { accepted, standing: self.standing(), life }
    }

    fn standing(&self) -> PromiserStatus {
        match self.phase {
            ViewPhase::Out => PromiserStatus::Outsider,
            _ => PromiserStatus::Member { fit: self.is_fit(), have: self.casts.all() },
        }
    }

    /// Retransmits all requests that the coordinator has no answer to.
    fn repeat(&mut self) {
        let Some(change) = &self.change else { return };
        let (instance, ballot) = (self.instance(), change.ballot);
        let item = match &change.proposal {
            Some(proposal) if change.accepting => {
                PacketItem::Accept { instance, ballot, proposal: proposal.clone() }
            }
            Some(_) => return,
            None => PacketItem::Prepare { instance, ballot },
        };
        let open = |p: &Pid| match &change.proposal {
            Some(proposal) => !change.accepted[p.index()] && self.may_accept(*p, proposal, change),
            None => change.promises[p.index()].is_none(),
        };
        for to in self.peers().filter(open).collect::<Vec<_>>() {
            self.post(to, item.clone());
        }
    }

    /// Whether `p` may be asked to accept. A member that continues from this view fetches the end of the view
    /// before it accepts. A voter from outside holds nothing of the view: it is asked when all continuing
    /// members have accepted, or else a cut could be chosen of which a part dies with the coordinator.
    ///
    /// That also holds for one that received the `Prepare` and nothing since. It suspects this process, and
    /// takes over if a majority hears it. Voters from outside are needed only where the continuing members that hear
    /// this process are no majority. A proposal of an earlier coordinator is perhaps decided already, and
    /// nothing else can be: continuing members are not waited for if they do not hear this process.
    fn may_accept(&self, p: Pid, proposal: &ViewProposal, change: &ViewChange) -> bool {
        let goes_on = |m: &&GroupMember| self.view.members.contains(*m);
        let answers =
            |m: &GroupMember| !self.failed(*m) && (!change.adopted || self.reaches(m.pid));
        let open = |m: &GroupMember| !change.accepted[m.pid.index()] && answers(m);
        let mut staying = proposal.members.iter().filter(goes_on);
        staying.clone().any(|m| m.pid == p) || !staying.any(open)
    }

    /// Promises a ballot: from here on this process takes nothing in. A `Prepare` that is sent again gives
    /// its coordinator no more time: the coordinator may hear no answer, ever.
    fn promise(&mut self, ballot: ViewBallot, out: &mut Outbox<Messages<VsyncPacket>>) {
        if ballot > self.vote.promised {
            self.blocked_at = self.now;
        }
        self.vote.promised = ballot;
        self.block(out);
    }

    pub(super) fn block(&mut self, out: &mut Outbox<Messages<VsyncPacket>>) {
        if self.phase != ViewPhase::Active {
            return;
        }
        if self.begun {
            self.tell(Input::Medium(groupcast::GroupcastInput::Block), out);
        }
        self.phase = ViewPhase::Blocked;
        self.queue.clear();
        self.ring.clear();
        self.needed = None;
    }

    pub(super) fn on_prepare(
        &mut self,
        from: Pid,
        instance: u64,
        ballot: ViewBallot,
        out: &mut Outbox<Messages<VsyncPacket>>,
    ) {
        if instance <= self.decision.view.id {
            return self.catch_up(from, instance.saturating_sub(1));
        }
        let may = instance == self.instance() && instance >= self.vote.first && !self.has_left();
        if !may || self.phase == ViewPhase::Entering || !ballot.is_sound(self.settings.processes) {
            return;
        }
        if ballot < self.vote.promised {
            return self.post(from, PacketItem::Refuse { instance, promised: self.vote.promised });
        }
        self.promise(ballot, out);
        let (accepted, standing) = (self.vote.accepted.clone(), self.standing());
        self.post(from, PacketItem::Promise { instance, ballot, accepted, standing });
    }

    pub(super) fn on_refuse(&mut self, instance: u64, promised: ViewBallot) {
        if instance != self.instance() || !promised.is_sound(self.settings.processes) {
            return;
        }
        if self.change.as_ref().is_some_and(|change| change.ballot < promised) {
            self.change = None;
            self.blocked_at = self.now;
            // The next attempt is above it.
            self.vote.promised.round = self.vote.promised.round.max(promised.round);
        }
    }

    pub(super) fn on_promise(
        &mut self,
        from: Pid,
        instance: u64,
        ballot: ViewBallot,
        accepted: Option<(ViewBallot, ViewProposal)>,
        standing: PromiserStatus,
    ) {
        let (current, n) = (self.instance(), self.settings.processes);
        let life = self.lives[from.index()];
        let member = self.view.members.contains(&GroupMember { pid: from, life });
        let sound = match &standing {
            PromiserStatus::Outsider => true,
            PromiserStatus::Member { have, .. } => have.len() == n && member,
        };
        let sound = sound && accepted.as_ref().is_none_or(|(_, p)| p.is_sound(n));
        let Some(change) = &mut self.change else { return };
        if instance != current || ballot != change.ballot || !sound {
            return;
        }
        if change.proposal.is_none() {
            change.promises[from.index()] = Some(ViewPromise { accepted, standing, life });
        }
    }

    /// Second phase, once enough have promised and this process has what the view ends with.
    fn propose(&mut self, out: &mut Outbox<Messages<VsyncPacket>>) {
        let Some(change) = &self.change else { return };
        if change.proposal.is_none() {
            self.choose();
        }
        let Some(change) = &self.change else { return };
        let Some(proposal) = change.proposal.clone() else { return };
        if change.accepting {
            return;
        }
        if !self.has_all(&proposal.cut) {
            // Also of one that leaves: what it has counts for the cut.
            let gone = |m: &GroupMember| self.failed(*m);
            let counted = |m: &&GroupMember| change.promises[m.pid.index()].is_some();
            let lost = self.view.members.iter().filter(counted).any(gone);
            if !change.adopted && (lost || proposal.members.iter().any(gone)) {
                // Perhaps the only one that had some cast. Nobody knows of the proposal yet.
                self.change = None;
                return self.prepare(out);
            }
            return self.need(proposal.cut);
        }
        let (ballot, me) = (change.ballot, self.me());
        self.vote.accepted = Some((ballot, proposal));
        let Some(change) = &mut self.change else { return };
        change.accepting = true;
        change.accepted[me.index()] = true;
        change.retry_at = self.now + self.settings.retry;
        self.repeat();
        self.decide_if_accepted(out);
    }

    /// Chooses what to propose, if enough have promised.
    fn choose(&mut self) {
        let Some(change) = &self.change else { return };
        let promised = |p: Pid| change.promises[p.index()].as_ref();
        if change.promises.iter().flatten().count() < self.quorum() {
            return;
        }
        // A request of this process to a member that does not hear it is never answered.
        let answers = |m: &GroupMember| !self.failed(*m) && self.reaches(m.pid);
        let waits = |m: &&GroupMember| promised(m.pid).is_none() && answers(m);
        if self.view.members.iter().any(|m| waits(&m)) || self.may_lose_copies(change) {
            return;
        }
        let accepted = change.promises.iter().flatten().filter_map(|p| p.accepted.clone());
        let proposal = match accepted.max_by_key(|(ballot, _)| *ballot) {
            Some((_, proposal)) => (proposal, true),
            // Somebody must continue with the state, and the continuing members must hear each other.
            None if self.copies(change) == 0 || !self.is_linked() => return,
            None => (self.fresh_proposal(change), false),
        };
        if let Some(change) = &mut self.change {
            (change.proposal, change.adopted) = (Some(proposal.0), proposal.1);
        }
    }

    /// Whether the view would continue with fewer copies of the state than a majority, and without one
    /// that is only silent as far as is known: it is waited for longer than any other.
    fn may_lose_copies(&self, change: &ViewChange) -> bool {
        let silent = |m: &GroupMember| {
            let at = m.pid.index();
            let patience = self.detector.patience(at).times(COPY_PATIENCE);
            change.promises[at].is_none()
                && self.fit[at]
                && self.lives[at] == m.life
                && self.detector.silence(self.now, at) < patience
        };
        self.copies(change) < self.quorum() && self.view.members.iter().any(silent)
    }

    /// Whether a member that promised has the state: it said so then, or got it since. Until the next
    /// view nothing takes it away.
    fn has_state(&self, change: &ViewChange, p: Pid) -> bool {
        let at = p.index();
        let since = if p == self.me() { self.is_fit() } else { self.fit[at] };
        // A process that was reborn since has lost what it had.
        let promise = change.promises[at].as_ref().filter(|p| p.life == self.lives[at]);
        promise.is_some_and(|promise| match promise.standing {
            PromiserStatus::Outsider => false,
            PromiserStatus::Member { fit, .. } => fit || since,
        })
    }

    /// How many that promised have the state.
    fn copies(&self, change: &ViewChange) -> usize {
        let all = (0..self.settings.processes).map(|at| Pid(at as u32));
        all.filter(|&p| self.has_state(change, p)).count()
    }

    fn fresh_proposal(&self, change: &ViewChange) -> ViewProposal {
        let mut cut = alloc::vec![0; self.settings.processes];
        let mut members = Vec::new();
        for &member in &self.view.members {
            let Some(promise) = &change.promises[member.pid.index()] else { continue };
            let PromiserStatus::Member { have, .. } = &promise.standing else { continue };
            if promise.life != member.life {
                continue;
            }
            members.push(member);
            cut.iter_mut().zip(have).for_each(|(cut, have)| *cut = (*cut).max(*have));
        }
        for p in self.peers() {
            let outsider = change.promises[p.index()].as_ref();
            let outsider = outsider.filter(|promise| promise.standing == PromiserStatus::Outsider);
            let life = outsider.map(|promise| GroupMember { pid: p, life: promise.life });
            if let Some(member) = life.or_else(|| self.joins(p))
                && members.iter().all(|m| m.pid != p)
            {
                members.push(member);
            }
        }
        self.spare_leavers(&mut members, |m| self.has_state(change, m.pid));
        self.spare_unlinked(&mut members, |m| self.has_state(change, m.pid));
        ViewProposal { members, cut }
    }

    fn has_all(&self, cut: &[u64]) -> bool {
        cut.iter().enumerate().all(|(p, &upto)| self.casts.have(Pid(p as u32)) >= upto)
    }

    /// Casts up to the cut are needed.
    fn need(&mut self, cut: Vec<u64>) {
        if self.needed.as_ref() != Some(&cut) {
            self.needed = Some(cut);
            self.needed_at = self.now;
        }
    }

    pub(super) fn on_accept(
        &mut self,
        from: Pid,
        instance: u64,
        ballot: ViewBallot,
        proposal: ViewProposal,
        out: &mut Outbox<Messages<VsyncPacket>>,
    ) {
        if instance <= self.decision.view.id {
            return self.catch_up(from, instance.saturating_sub(1));
        }
        let may = instance == self.instance() && instance >= self.vote.first && !self.has_left();
        let sound = proposal.is_sound(self.settings.processes);
        if !may
            || !sound
            || self.phase == ViewPhase::Entering
            || !ballot.is_sound(self.settings.processes)
        {
            return;
        }
        if ballot < self.vote.promised {
            return self.post(from, PacketItem::Refuse { instance, promised: self.vote.promised });
        }
        self.promise(ballot, out);
        if self.phase == ViewPhase::Blocked && !self.has_all(&proposal.cut) {
            // A member that accepts has it all: otherwise a decided cut could be lost with its coordinator.
            return self.need(proposal.cut);
        }
        self.vote.accepted = Some((ballot, proposal));
        self.post(from, PacketItem::Accepted { instance, ballot });
    }

    pub(super) fn on_accepted(&mut self, from: Pid, instance: u64, ballot: ViewBallot) {
        let current = self.instance();
        let Some(change) = &mut self.change else { return };
        if instance == current && ballot == change.ballot && change.accepting {
            // Perhaps the last that others wait for.
            if !core::mem::replace(&mut change.accepted[from.index()], true) {
                change.retry_at = self.now;
            }
        }
    }

    fn decide_if_accepted(&mut self, out: &mut Outbox<Messages<VsyncPacket>>) {
        let quorum = self.quorum();
        let Some(change) = &self.change else { return };
        let accepted = change.accepted.iter().filter(|a| **a).count();
        let Some(proposal) = change.proposal.clone().filter(|_| accepted >= quorum) else { return };
        let view = View { id: self.instance(), members: proposal.members };
        let decision = ViewDecision { view, cut: proposal.cut };
        for to in self.peers() {
            self.post(to, PacketItem::Decide(decision.clone()));
        }
        self.learn(decision, out);
    }

    /// A view was decided.
    pub(super) fn learn(
        &mut self,
        decision: ViewDecision,
        out: &mut Outbox<Messages<VsyncPacket>>,
    ) {
        let id = decision.view.id;
        let sound = is_sound(&decision.view.members, &decision.cut, self.settings.processes);
        if id <= self.decision.view.id || id >= NONSENSE || !sound {
            return;
        }
        let stays = self.is_inside() && id == self.instance();
        let me = GroupMember { pid: self.me(), life: self.life };
        let chosen = decision.view.members.contains(&me);
        self.change = None;
        (self.vote.promised, self.vote.accepted) = (ViewBallot::default(), None);
        self.decision = decision.clone();
        for member in decision.view.members.iter().filter(|m| m.pid != me.pid) {
            self.learn_incarnation(member.pid, member.life);
        }
        if chosen {
            self.vote.first = self.vote.first.min(id + 1);
        }
        if chosen && stays {
            self.block(out);
            self.phase = ViewPhase::Entering;
            self.need(decision.cut);
            self.enter_if_complete(out);
        } else if stays && self.leaves_with(&decision.cut) {
            self.go(out);
        } else if self.phase != ViewPhase::Out {
            // Also if it is named again in a view after one that it has missed.
            self.leave(out);
        } else if chosen {
            self.enter(decision.view, out);
        }
    }

    /// The group continues without this process.
    fn leave(&mut self, out: &mut Outbox<Messages<VsyncPacket>>) {
        if self.begun {
            self.tell(Input::Medium(groupcast::GroupcastInput::Excluded), out);
        }
        self.phase = ViewPhase::Out;
        self.life += 1;
        self.lives[self.settings.me.index()] = self.life;
        self.put_casts_away();
        self.forget_state();
        out.event(ProtocolEvent::Excluded(self.decision.view.id));
    }

    /// Outside of views it keeps the casts of the last one for those that lack them.
    pub(super) fn put_casts_away(&mut self) {
        let empty = Casts::new(self.casts.view, self.settings.processes, self.settings.window());
        self.old = Some(core::mem::replace(&mut self.casts, empty));
        self.queue.clear();
        self.ring.clear();
        self.forget_parts();
        (self.needed, self.needed_at) = (None, Time::NEVER);
    }

    /// Hands over what the old view ends with, if it has it all, and enters the new one.
    fn enter_if_complete(&mut self, out: &mut Outbox<Messages<VsyncPacket>>) {
        if self.phase != ViewPhase::Entering {
            return;
        }
        let careless = self.is_broken(VsyncMutant::ForgetsTheCut);
        if !self.has_all(&self.decision.cut) && !careless {
            return;
        }
        if self.begun {
            let members = self.members.clone();
            for sender in members {
                let upto = self.decision.cut[sender.index()];
                while let Some(kept) = self.casts.next(sender, HeldCasts::ANY, upto) {
                    self.give(sender, kept, out);
                }
            }
        }
        let fresh = Casts::new(0, self.settings.processes, self.settings.window());
        self.old = Some(core::mem::replace(&mut self.casts, fresh));
        self.enter(self.decision.view.clone(), out);
    }

    /// Enters a view.
    fn enter(&mut self, view: View, out: &mut Outbox<Messages<VsyncPacket>>) {
        let n = self.settings.processes;
        self.casts = Casts::new(view.id, n, self.settings.window());
        self.members = view.pids().collect();
        self.pairs = alloc::vec![PeerChannel::default(); n];
        self.seen = alloc::vec![false; n];
        self.blocked = alloc::vec![None; n];
        for member in &view.members {
            self.joiners[member.pid.index()] =
                self.joiners[member.pid.index()].filter(|&life| life > member.life);
        }
        let before = core::mem::replace(&mut self.view, view);
        self.phase = ViewPhase::Active;
        self.forget_parts();
        (self.needed, self.needed_at) = (None, Time::NEVER);
        self.base = Arc::from(&[][..]);
        if self.begun {
            // The protocol above delivers what is left of the old view.
            let view = self.view.clone();
            self.tell(Input::Medium(groupcast::GroupcastInput::View(&view)), out);
        }
        self.report_view(Some(&before), out);
        if !self.begun {
            self.seek_base(out);
        }
        // Earlier messages of the others are sent again when they hear that it has entered.
        self.ack_members();
        self.tell_left();
    }

    /// Gives casts to a member that misses them.
    pub(super) fn on_fetch(&mut self, from: Pid, view: u64, sender: Pid, after: u64, upto: u64) {
        if sender.index() >= self.settings.processes {
            return;
        }
        let casts = match &self.old {
            Some(old) if old.view == view => old,
            _ if self.casts.view == view => &self.casts,
            _ => return,
        };
        let mut items = Vec::new();
        let mut bytes = 0;
        for number in after.saturating_add(1).max(casts.first(sender))..=upto {
            let Some(kept) = casts.get(sender, number) else { break };
            bytes += kept.bytes.len();
            if bytes > FETCHED_BYTES && !items.is_empty() {
                break;
            }
            items.push(PacketItem::Cast { view, sender, number, kept: kept.clone() });
        }
        for item in items {
            self.post(from, item);
        }
    }

    /// Asks for what is needed to end the view, of one peer after the other.
    pub(super) fn fetch_needed(&mut self, out: &mut Outbox<Messages<VsyncPacket>>) {
        self.decide_if_accepted(out);
        self.enter_if_complete(out);
        if self.needed_at > self.now {
            return;
        }
        self.needed_at = Time::NEVER;
        let Some(cut) = self.needed.clone() else { return };
        if self.has_all(&cut) {
            return;
        }
        self.needed_at = self.now + self.settings.retry;
        self.turn += 1;
        let view = self.casts.view;
        for (p, upto) in cut.into_iter().enumerate() {
            let sender = Pid(p as u32);
            let after = self.casts.have(sender);
            if let Some(to) = self.holder(sender, upto).filter(|_| after < upto) {
                self.post(to, PacketItem::Fetch { view, sender, after, upto });
            }
        }
    }

    /// The member that is asked for casts of `sender`: one that is known to have them, or in turn the
    /// coordinator, which had them when it asked for acceptance, and anyone.
    fn holder(&self, sender: Pid, upto: u64) -> Option<Pid> {
        let said = |p: &Pid| {
            let promise = self.change.as_ref()?.promises[p.index()].as_ref()?;
            let PromiserStatus::Member { have, .. } = &promise.standing else { return None };
            (have[sender.index()] >= upto && !self.suspects(*p)).then_some(())
        };
        let coordinator = Some(self.vote.promised.pid).filter(|&p| p != self.me());
        let asked = coordinator.filter(|_| self.turn % 2 == 1 && self.phase == ViewPhase::Blocked);
        let peers: Vec<Pid> = self.peers().collect();
        let anyone = peers.get((self.turn / 2 + sender.index()) % peers.len().max(1)).copied();
        peers.iter().copied().find(|p| said(p).is_some()).or(asked).or(anyone)
    }
}

//! Virtual synchrony for one group: members agree on views, and members that enter two views in a
//! row have been handed the same casts in between [TO 3]. A protocol on
//! [`Groupcast`] becomes one on [`Messages`].
//!
//! # Guarantees
//! The laws of [`amcast_core::groupcast`], with *primary component* membership: there is one chain
//! of views, each agreed by a majority of the configured processes, and only in its latest view
//! the group makes progress. A member without a majority in it hands nothing over, takes no submissions, and continues
//! when it hears one again.
//!
//! # Assumptions
//! For safety: streams or datagrams that may lose, double, delay and reorder, crashes with loss of
//! memory of less than a majority of fit processes at a time, and nothing about time. For progress:
//! that a majority hears each other for long enough, and at least one member with the state is
//! among them. Links from and to others may be dead for good.
//!
//! # The normal case
//! ```text
//! p0  cast ---+----> p1, p2        acks go from all to all, as one packet a round;
//!             |      ack           `Plain` casts are handed over as they come,
//!             '----> p0            `Uniform` ones when a majority has them,
//!                                  `Stable` ones when all members have them
//! ```
//!
//! Casts may travel along a ring instead; see `ring.rs`.
//!
//! # Change of views
//! The most senior member that its maker does not suspect is the coordinator. It runs one instance
//! of Paxos for each view, in which *all configured processes* vote (a majority decides), because
//! one that was excluded while it lived remembers its promises. One that started again has
//! forgotten, so it votes from the first view on that it was taken into.
//! ```text
//! coordinator  prepare --> all: promise, and from here on no cast, nothing taken in
//!              <-- promise, what was accepted before, how many casts of each it has
//!              fetch the missing casts of the cut: the most that anyone has of each sender
//!              accept(members, cut) --> a member that misses casts fetches them before it accepts
//!              <-- accepted by a majority: decide --> all
//! member       hands over everything up to the cut, enters the view
//! ```
//! Members of the next view are those that promised, and then those that want to join. A cast that
//! a majority held was held by one of those that promised: it is in the cut. So a `Uniform` or
//! `Stable` cast that was delivered to any member is delivered to all.
//!
//! # Joining
//! A process that was excluded, or that started again, asks to join, is appended to a view as its
//! most junior member, begins there with what a member tells it ([`GroupcastOutput::Base`]), and needs the
//! application's state as of there from a member that has it in force: that is the driver's affair, and what is
//! delivered meanwhile waits there, too. The group continues; the joiner is fit when the state is in force.
//!
//! # Dead links
//! A view names only members that hear each other, as far as a majority with the state does: where one
//! direction of a link is dead for long, one end is excluded until it works again; see `links.rs`.
//!
//! # Leaving
//! A member that is asked to leave announces it when all that it has sent is delivered, and the next
//! view is without it at once; see `leave.rs`.
//!
//! # Limits
//! A message larger than a packet travels in parts, a cast each, and is put together when they are
//! handed over; see `parts.rs`. A sender has at most `window` casts of `window_bytes` in all that not
//! all members are known to have; more wait in a queue
//! that the protocol above bounds by its own window. So a member that is slow, and not silent, slows all
//! down; no member is excluded for that. A member keeps at most three windows of each
//! sender. Of the view before, casts are kept until all members are seen in the next.
//!
//! # Deviations
//! [TO 3] leaves membership and reliability to a group communication system; this is ours.
//!
//! # Read first
//! [`Vsync`], `Vsync::hand_over`, then `view_change.rs` from `coordinate` on, and `transfer.rs`.

mod casts;
mod leave;
mod links;
mod packet;
mod parts;
mod retransmission;
mod ring;
mod settings;
#[cfg(test)]
mod tests;
mod transfer;
mod view_change;

pub use packet::VsyncPacket;
pub(crate) use parts::STREAM_PART_BYTES;
pub use settings::{Dissemination, VsyncMutant, VsyncSettings};

use crate::layers::failure_detector::FailureDetector;
use crate::layers::paced::{LinkLoad, PacedSends};
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use amcast_core::codec::{ByteReader, Codec};
use amcast_core::groupcast::{self, GroupMember, Groupcast, View};
use amcast_core::messages::{self, Lane, Messages};
use amcast_core::step::{Note, Oracle, ProtocolStatus, WaitReason, WakeReason};
use amcast_core::{
    Gid, GroupSet, Input, MsgId, Outbox, Output, Pid, Protocol, ProtocolEvent, Span, Time,
};
use casts::{Casts, HeldCasts, RetainedCast};
use core::mem;
use leave::LeaveProgress;
use links::LinkReport;
use packet::PacketItem;
use parts::CastAssembly;
use retransmission::PeerChannel;
use ring::{CastId, LinkPlace, RingArrivals};
use transfer::{AppState, BaseRequest};
use view_change::{ViewAcceptor, ViewChange, ViewDecision};

#[cfg(doc)]
use amcast_core::groupcast::GroupcastOutput;

/// The phase of this process towards its view.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ViewPhase {
    /// In no view: it was excluded, or has just started again.
    Out,
    /// In its view, with normal operation.
    Active,
    /// It has promised to end its view.
    Blocked,
    /// It knows the next view and misses casts of the one before.
    Entering,
}

/// How far the patience with a slow peer may grow, in timeouts: far, in a network whose delays are many times
/// the timeout, as far as it stays within seconds.
const PATIENCE_GROWTH: u64 = 1 << 12;

/// Bytes that an acknowledgement to all occupies on a link where it leaves by itself, about.
const ACK_BYTES: usize = 200;

/// How many acknowledgements leave at least in the time after which casts without one are sent again.
const ACKS_IN_A_RETRY: u64 = 4;

/// How often in a step the protocol above may ask to be woken at once.
const ANSWERS_MAX: usize = 4;

/// A process of a group in virtual synchrony. See the [module](self).
#[derive(Debug)]
pub struct Vsync<M: core::fmt::Debug + 'static, P> {
    settings: VsyncSettings,
    inner: P,
    inner_out: Outbox<Groupcast<M>>,
    taken: Vec<Output<Groupcast<M>>>,
    now: Time,
    /// The life of this process.
    life: u64,
    phase: ViewPhase,
    /// The view it is in, or was in last; its casts are `casts`.
    view: View,
    /// The members of `view`.
    members: Vec<Pid>,
    casts: Casts,
    /// Casts of the view before, for those that lack them.
    old: Option<Casts>,
    /// Members that were heard of in this view.
    seen: Vec<bool>,
    /// Since when each member says that it is blocked.
    blocked: Vec<Option<Time>>,
    /// Casts of the protocol above beyond the window.
    queue: VecDeque<RetainedCast>,
    /// By sender: what came of messages in parts.
    parts: Vec<CastAssembly>,
    /// Whether the protocol above has begun in this life.
    begun: bool,
    /// The join state for members that join in this view.
    base: Arc<[u8]>,
    // Of peers, by pid.
    detector: FailureDetector,
    heard: Vec<u64>,
    /// The processes that have failed, as an oracle says.
    dead: Vec<bool>,
    lives: Vec<u64>,
    /// The incarnation in which each was heard last.
    heard_lives: Vec<u64>,
    fit: Vec<bool>,
    /// The lives that want to join.
    joiners: Vec<Option<u64>>,
    /// The lives that have announced that they leave.
    leaves: Vec<Option<u64>>,
    /// Which processes each peer reports as unheard, and which this one has reported last, a bit each.
    reports: Vec<LinkReport>,
    reported: u32,
    pairs: Vec<PeerChannel>,
    ring: RingArrivals,
    post: Vec<Vec<PacketItem>>,
    /// The same for all of them.
    post_all: Vec<PacketItem>,
    post_bytes: usize,
    acks: PacedSends,
    load: Option<LinkLoad>,
    // Consensus.
    decision: ViewDecision,
    vote: ViewAcceptor,
    change: Option<ViewChange>,
    /// Up to where casts of each sender are needed to end the view.
    needed: Option<Vec<u64>>,
    needed_at: Time,
    /// Since when it has been blocked, or has heard of who blocked it.
    blocked_at: Time,
    /// Counts up to ask others in turn.
    turn: usize,
    leaving: LeaveProgress,
    // Joining.
    /// The stage of the application's state.
    app_state: AppState,
    base_request: BaseRequest,
}

impl<M, P> Vsync<M, P>
where
    M: Codec + core::fmt::Debug + 'static,
    P: Protocol<Medium = Groupcast<M>>,
{
    /// A process of the group that runs `inner`.
    pub fn new(settings: VsyncSettings, inner: P) -> Self {
        let n = settings.processes;
        let pids: Vec<Pid> = (0..n as u32).map(Pid).collect();
        let members = pids.iter().map(|&pid| GroupMember { pid, life: 0 }).collect();
        let view = View { id: 0, members };
        let order: Vec<usize> = (0..n).collect();
        let mut detector =
            FailureDetector::new(settings.me.index(), &order, settings.heartbeat, settings.suspect);
        detector.grow_patience_to(PATIENCE_GROWTH);
        if settings.told_who_failed {
            (0..n).for_each(|p| detector.trust(p));
        }
        Self {
            inner,
            inner_out: Outbox::default(),
            taken: Vec::new(),
            now: Time::ZERO,
            life: 0,
            phase: ViewPhase::Out,
            members: pids,
            casts: Casts::new(0, n, settings.window()),
            old: None,
            seen: alloc::vec![false; n],
            blocked: alloc::vec![None; n],
            queue: VecDeque::new(),
            parts: alloc::vec![CastAssembly::default(); n],
            begun: false,
            base: Arc::from(&[][..]),
            detector,
            heard: alloc::vec![0; n],
            dead: alloc::vec![false; n],
            lives: alloc::vec![0; n],
            heard_lives: alloc::vec![0; n],
            fit: alloc::vec![false; n],
            joiners: alloc::vec![None; n],
            leaves: alloc::vec![None; n],
            reports: alloc::vec![LinkReport::default(); n],
            reported: 0,
            pairs: alloc::vec![PeerChannel::default(); n],
            ring: RingArrivals::default(),
            post: alloc::vec![Vec::new(); n],
            post_all: Vec::new(),
            post_bytes: 0,
            acks: PacedSends::NONE,
            load: settings.link.map(LinkLoad::new),
            decision: ViewDecision { view: view.clone(), cut: Vec::new() },
            vote: ViewAcceptor::default(),
            change: None,
            needed: None,
            needed_at: Time::NEVER,
            blocked_at: Time::ZERO,
            turn: 0,
            leaving: LeaveProgress::No,
            app_state: AppState::Missing,
            base_request: BaseRequest::default(),
            view,
            settings,
        }
    }

    fn is_broken(&self, how: VsyncMutant) -> bool {
        cfg!(feature = "mutants") && self.settings.broken == Some(how)
    }

    const fn me(&self) -> Pid {
        self.settings.me
    }

    /// A majority of the configured processes.
    const fn quorum(&self) -> usize {
        self.settings.processes / 2 + 1
    }

    /// All configured processes but this one.
    fn peers(&self) -> impl Iterator<Item = Pid> + use<M, P> {
        let me = self.me();
        (0..self.settings.processes as u32).map(Pid).filter(move |&p| p != me)
    }

    /// The other members of the view.
    fn others(&self) -> impl Iterator<Item = Pid> {
        self.members.iter().copied().filter(|&p| p != self.me())
    }

    fn suspects(&self, p: Pid) -> bool {
        self.detector.suspects(self.now, p.index())
    }

    /// Where only an oracle knows who has failed, nothing that is heard, or not, changes what it said.
    fn believe_oracle(&mut self, at: usize) {
        match self.settings.told_who_failed {
            false => {}
            true if self.dead[at] => self.detector.suspect(at),
            true => self.detector.trust(at),
        }
    }

    /// Whether a member seems to have failed: it is silent, or lives another life by now.
    fn failed(&self, member: GroupMember) -> bool {
        self.suspects(member.pid) || self.lives[member.pid.index()] > member.life
    }

    /// A process in the incarnation that it is known to live in.
    fn incarnation(&self, p: Pid) -> GroupMember {
        GroupMember { pid: p, life: self.lives[p.index()] }
    }

    /// Learns that a process has begun this incarnation: messages of an earlier one are void. Whether it lives is
    /// known only when it is heard, because it may have died since.
    fn learn_incarnation(&mut self, p: Pid, life: u64) {
        let at = p.index();
        if life > self.lives[at] {
            (self.lives[at], self.fit[at]) = (life, false);
            self.reports[at] = LinkReport::default();
        }
    }

    /// Hears a process in this incarnation: what was believed of an earlier one is void.
    fn hear_incarnation(&mut self, p: Pid, life: u64) {
        self.learn_incarnation(p, life);
        let at = p.index();
        if life > self.heard_lives[at] {
            (self.heard_lives[at], self.dead[at]) = (life, false);
            self.detector.restarted(self.now, at);
        }
    }

    /// Whether what is for all leaves as one message to the group.
    fn goes_to_group(&self) -> bool {
        self.settings.dissemination == Dissemination::Group
    }

    /// Whether it hears a majority in its view.
    fn is_primary(&self) -> bool {
        let works = self.view.members.iter().filter(|m| !self.failed(**m));
        works.count() >= self.quorum()
    }

    fn is_fit(&self) -> bool {
        self.phase != ViewPhase::Out && self.app_state == AppState::InForce
    }

    fn start(&mut self, incarnation: u32, out: &mut Outbox<Messages<VsyncPacket>>) {
        self.life = u64::from(incarnation) << 32;
        self.lives[self.settings.me.index()] = self.life;
        if incarnation > 0 {
            // It may have promised something that it has forgotten.
            self.vote.first = u64::MAX;
            out.event(ProtocolEvent::Lagging);
            return;
        }
        self.vote.first = 1;
        (self.app_state, self.begun) = (AppState::InForce, true);
        self.phase = ViewPhase::Active;
        self.report_view(None, out);
        let view = self.view.clone();
        self.tell(Input::Medium(groupcast::GroupcastInput::View(&view)), out);
    }

    /// Reports the view just entered, and the members that continue into it from the view `before`, if this process does.
    fn report_view(&self, before: Option<&View>, out: &mut Outbox<Messages<VsyncPacket>>) {
        let me = self.incarnation(self.me());
        let before = before.filter(|view| view.members.contains(&me));
        let bits = |of: &dyn Fn(&GroupMember) -> bool| {
            let members = self.view.members.iter().filter(|m| of(m));
            members.fold(0_u32, |bits, m| bits | 1 << m.pid.0)
        };
        let stays = |m: &GroupMember| before.is_some_and(|view| view.members.contains(m));
        let number = self.view.id;
        let members = bits(&|_| true);
        let continuing = bits(&stays);
        out.event(ProtocolEvent::ViewEntered { number, members, continuing });
    }

    /// Says something to a peer, at the end of the round.
    fn post(&mut self, to: Pid, item: PacketItem) {
        self.post_bytes += item.size();
        self.post[to.index()].push(item);
    }

    /// Says something to all other configured processes as one.
    fn post_all(&mut self, item: PacketItem) {
        self.post_bytes += item.size();
        self.post_all.push(item);
    }

    /// Sends all pending messages.
    fn flush(&mut self, out: &mut Outbox<Messages<VsyncPacket>>) {
        let lane = self.settings.lane;
        let to_all = if self.goes_to_group() { Lane::Datagram } else { lane };
        let items = mem::take(&mut self.post_all);
        self.pack(items, |packet| out.ask(messages::MessageOutput::Group(Gid(0), to_all, packet)));
        for to in 0..self.post.len() {
            let items = mem::take(&mut self.post[to]);
            self.pack(items, |packet| {
                out.ask(messages::MessageOutput::To(Pid(to as u32), lane, packet))
            });
        }
        self.post_bytes = 0;
    }

    /// Puts items into packets.
    fn pack(&self, items: Vec<PacketItem>, mut send: impl FnMut(VsyncPacket)) {
        let most = self.settings.packet_bytes;
        let mut items = items.into_iter().peekable();
        while items.peek().is_some() {
            let mut packet = VsyncPacket { life: self.life, items: Vec::new() };
            let mut bytes = 0;
            while let Some(item) = items.next_if(|i| bytes == 0 || bytes + i.size() <= most) {
                bytes += item.size();
                packet.items.push(item);
            }
            send(packet);
        }
    }

    /// Gives the protocol above an input, and carries out what it asks.
    fn tell(&mut self, input: Input<'_, Groupcast<M>>, out: &mut Outbox<Messages<VsyncPacket>>) {
        self.inner_out.clear();
        self.inner_out.trace_as(out);
        self.inner.step(self.now, (), input, &mut self.inner_out);
        let mut taken = mem::take(&mut self.taken);
        self.inner_out.take(&mut taken);
        for output in taken.drain(..) {
            match output {
                Output::Medium(groupcast::GroupcastOutput::Cast(grade, m)) => self.cast(grade, &m),
                Output::Medium(groupcast::GroupcastOutput::To(to, m)) => self.send(to, &m),
                Output::Medium(groupcast::GroupcastOutput::Base(bytes)) => {
                    self.base = Arc::from(self.inner_out.bytes(bytes));
                }
                Output::Deliver(delivery) => self.deliver(&delivery, out),
                Output::Event(event @ ProtocolEvent::Part(_)) => out.event(event),
                Output::Note(note) => out.note(note),
                other => unreachable!("{other:?} is not for a protocol on a group"),
            }
        }
        self.taken = taken;
    }

    /// Hands over all that may be.
    fn hand_over(&mut self, out: &mut Outbox<Messages<VsyncPacket>>) {
        if self.phase != ViewPhase::Active {
            return;
        }
        self.casts.ack_own(self.me());
        if self.begun && self.is_primary() {
            self.hand_over_arrivals(out);
            self.announce_stable(out);
            while self.hand_over_next(u64::MAX, out) {
                if self.phase != ViewPhase::Active {
                    return;
                }
            }
        }
        self.casts.trim(&self.members);
        while !self.queue.is_empty() && self.casts.room(self.me()) {
            let kept = self.queue.pop_front().expect("it is not empty");
            self.cast_now(kept);
        }
    }

    /// Announces the casts of others that arrived and wait until all members have them.
    fn announce_stable(&mut self, out: &mut Outbox<Messages<VsyncPacket>>) {
        for at in 0..self.members.len() {
            let sender = self.members[at];
            while sender != self.me() && self.casts.announce(sender) {
                self.tell(Input::Medium(groupcast::GroupcastInput::Received(sender)), out);
            }
        }
    }

    /// Hands over one cast, numbered `upto` at most. Says whether there was one.
    fn hand_over_next(&mut self, upto: u64, out: &mut Outbox<Messages<VsyncPacket>>) -> bool {
        let trusts_one = self.is_broken(VsyncMutant::TrustsOne);
        let quorum = if trusts_one { 1 } else { self.quorum() };
        for at in 0..self.members.len() {
            let sender = self.members[at];
            if !self.casts.waits(sender) {
                continue;
            }
            let held = HeldCasts {
                majority: self.casts.held(&self.members, sender, quorum),
                all: match trusts_one {
                    true => u64::MAX,
                    false => self.casts.stable_held(&self.members, sender),
                },
            };
            if let Some(kept) = self.casts.next(sender, held, upto) {
                self.give(sender, kept, out);
                return true;
            }
        }
        false
    }

    /// Hands over what is in a message of `from`.
    fn give_whole(&mut self, from: Pid, bytes: &[u8], out: &mut Outbox<Messages<VsyncPacket>>) {
        let mut reader = ByteReader::new(bytes);
        match M::decode(&mut reader) {
            Ok(m) if reader.is_empty() => {
                self.tell(Input::Medium(groupcast::GroupcastInput::From(from, m)), out);
            }
            _ => out.note(Note::Malformed(from, "a cast does not decode")),
        }
    }

    fn hear(&mut self, from: Pid, packet: VsyncPacket, out: &mut Outbox<Messages<VsyncPacket>>) {
        if from == self.me() && self.goes_to_group() {
            // A message to the group comes here, too.
            return;
        }
        if from == self.me() || from.index() >= self.settings.processes {
            return out.note(Note::Malformed(from, "not of this group"));
        }
        let at = from.index();
        if packet.life < self.lives[at] {
            return;
        }
        if packet.life >= view_change::NONSENSE {
            return out.note(Note::Malformed(from, "a life that nobody reaches"));
        }
        self.hear_incarnation(from, packet.life);
        self.heard[at] += 1;
        self.detector.observe(self.now, at, self.heard[at], true);
        self.believe_oracle(at);
        for item in packet.items {
            self.take_item(from, item, out);
        }
    }

    /// So many bytes arrived.
    fn note_arrival(&mut self, bytes: usize) {
        if let Some(load) = &mut self.load {
            load.add(self.now, bytes);
        }
    }

    /// How far acknowledgements that leave by themselves are apart in the long run. Each member sends them to all others,
    /// and often enough that nobody repeats what is acknowledged soon: that would load the link far more.
    fn acks_every(&mut self) -> Span {
        let senders = self.members.len().saturating_sub(1);
        let (now, bytes) = (self.now, ACK_BYTES * senders);
        let most = Span(self.settings.retry.0 / ACKS_IN_A_RETRY);
        self.load.as_mut().map_or(Span::ZERO, |load| load.interval(now, bytes as u64).min(most))
    }

    fn take_item(&mut self, from: Pid, item: PacketItem, out: &mut Outbox<Messages<VsyncPacket>>) {
        match item {
            PacketItem::Cast { view, sender, number, kept } => {
                self.on_cast(view, sender, number, kept)
            }
            PacketItem::To { view, number, more, bytes } => {
                self.on_to(from, (view, number), more, &bytes, out);
            }
            PacketItem::Ack { view, fit, gap, had, have } => {
                self.fit[from.index()] = fit;
                self.catch_up(from, view);
                self.note_entered(from, view);
                self.on_ack(from, view, gap, had, &have);
            }
            PacketItem::AckAll { view, fit, gaps, had, have } => {
                self.note_arrival(ACK_BYTES);
                let at = self.me().index();
                let gap = gaps.checked_shr(self.me().0).unwrap_or(0) & 1 == 1;
                let Some(&had) = had.get(at) else { return };
                self.take_item(from, PacketItem::Ack { view, fit, gap, had, have }, out);
            }
            PacketItem::Alive { view, fit } => {
                self.fit[from.index()] = fit;
                if view == self.casts.view {
                    // A member that continues in this view acknowledges.
                    self.blocked[from.index()].get_or_insert(self.now);
                }
                self.note_entered(from, view);
                self.catch_up(from, view);
            }
            PacketItem::Join { view } => self.on_join(from, view),
            PacketItem::Leave { view } => self.on_left(from, view),
            PacketItem::Fetch { view, sender, after, upto } => {
                self.on_fetch(from, view, sender, after, upto);
            }
            PacketItem::Prepare { instance, ballot } => {
                self.on_prepare(from, instance, ballot, out)
            }
            PacketItem::Promise { instance, ballot, accepted, standing } => {
                self.on_promise(from, instance, ballot, accepted, standing);
            }
            PacketItem::Refuse { instance, promised } => self.on_refuse(instance, promised),
            PacketItem::Accept { instance, ballot, proposal } => {
                self.on_accept(from, instance, ballot, proposal, out);
            }
            PacketItem::Accepted { instance, ballot } => self.on_accepted(from, instance, ballot),
            PacketItem::Decide(decision) => self.learn(decision, out),
            PacketItem::Ask { view } => self.on_ask(from, view),
            PacketItem::Base { view, bytes } => self.on_base(view, &bytes, out),
            PacketItem::Unheard { processes } => self.on_unheard(from, processes),
            PacketItem::Forward { view, link, sender, number, kept } => {
                let place = LinkPlace { view, link };
                self.on_forward(from, place, CastId { sender, number }, kept, out);
            }
            PacketItem::Stable { view, link, sender, number } => {
                let place = LinkPlace { view, link };
                self.on_stable(from, place, CastId { sender, number }, out);
            }
        }
    }

    /// Wakes the protocol above, if it is time. Says whether it was.
    fn wake_inner(&mut self, out: &mut Outbox<Messages<VsyncPacket>>) -> bool {
        let due = |(at, _): (Time, WakeReason)| at <= self.now;
        let is_due =
            self.phase == ViewPhase::Active && self.begun && self.inner.deadline().is_some_and(due);
        if is_due {
            self.tell(Input::Wake, out);
        }
        is_due
    }

    /// Does all that is due. Acknowledgements that gather until the end of a round are due only when it is `woken`.
    fn tick(&mut self, woken: bool, out: &mut Outbox<Messages<VsyncPacket>>) {
        if self.detector.beat(self.now).is_some() {
            self.show_life();
        }
        if woken {
            self.wake_inner(out);
        }
        self.resend();
        self.go_on_leaving(out);
        self.coordinate(out);
        self.fetch_needed(out);
        self.ask_for_base();
    }

    /// Whether a heartbeat leaves as one message to the group.
    fn beats_to_group(&self) -> bool {
        self.goes_to_group() && self.phase == ViewPhase::Active
    }

    /// Tells all that this process lives, and what it has.
    fn show_life(&mut self) {
        let (view, fit) = (self.decision.view.id, self.is_fit());
        self.acks.along();
        self.report_unheard();
        if self.beats_to_group() {
            return self.ack_members();
        }
        for to in self.peers() {
            let item = match self.phase {
                ViewPhase::Out if self.has_left() => PacketItem::Alive { view, fit: false },
                ViewPhase::Out => PacketItem::Join { view },
                ViewPhase::Active if self.view.has(to) => self.ack_to(to),
                _ => PacketItem::Alive { view, fit },
            };
            self.post(to, item);
        }
    }
}

impl<M, P> Protocol for Vsync<M, P>
where
    M: Codec + core::fmt::Debug + 'static,
    P: Protocol<Medium = Groupcast<M>>,
{
    type Medium = Messages<VsyncPacket>;

    fn step(
        &mut self,
        now: Time,
        (): (),
        input: Input<'_, Self::Medium>,
        out: &mut Outbox<Self::Medium>,
    ) {
        self.now = now;
        let woken = matches!(input, Input::Wake);
        match input {
            Input::Start { incarnation } => self.start(incarnation, out),
            Input::Submit(submission) => self.tell(Input::Submit(submission), out),
            Input::Leave => self.on_leave(),
            Input::Installed { position, needs } => self.on_installed(position, needs, out),
            Input::Oracle(Oracle::Suspect(p)) if p.index() < self.settings.processes => {
                self.detector.suspect(p.index());
                self.dead[p.index()] = true;
            }
            Input::Oracle(Oracle::Trust(p)) if p.index() < self.settings.processes => {
                self.dead[p.index()] = false;
                self.believe_oracle(p.index());
            }
            Input::Medium(messages::MessageInput::From(from, packet)) => {
                self.hear(from, packet, out)
            }
            Input::Medium(messages::MessageInput::Up(p)) if p.index() < self.settings.processes => {
                // Packets in flight are lost.
                self.pairs[p.index()].retry_now(now);
            }
            // Nothing here is kept on disk, and what is applied is the application's business.
            _ => {}
        }
        self.tick(woken, out);
        self.hand_over(out);
        if woken {
            // Answers to own casts leave with them.
            for _ in 0..ANSWERS_MAX {
                if !self.wake_inner(out) {
                    break;
                }
                self.hand_over(out);
            }
            if self.acks.at() <= self.now {
                if self.post_all.is_empty() {
                    let interval = self.acks_every();
                    self.acks.alone(self.now, interval);
                }
                self.ack_due();
            }
            self.ack_along();
        }
        if woken || self.post_bytes >= self.settings.packet_bytes {
            self.flush(out);
        }
    }

    fn deadline(&self) -> Option<(Time, WakeReason)> {
        if self.post_bytes > 0 {
            return Some((self.now, WakeReason::Flush));
        }
        let inner = (self.phase == ViewPhase::Active && self.begun).then(|| self.inner.deadline());
        let all = [
            self.detector.deadline(),
            (self.acks.at(), WakeReason::Flush),
            (self.resend_at(), WakeReason::Retry),
            (self.change_at(), WakeReason::Retry),
            (self.needed_at, WakeReason::Retry),
            (self.base_at(), WakeReason::Retry),
            (self.leave_at(), WakeReason::Retry),
        ];
        all.into_iter().chain(inner.flatten()).min_by_key(|(at, _)| *at)
    }

    fn room(&self, dst: GroupSet, bytes: usize) -> usize {
        let stays = self.leaving == LeaveProgress::No && self.phase != ViewPhase::Out;
        let goes_on = self.begun && stays && self.is_primary();
        if goes_on { self.inner.room(dst, bytes) } else { 0 }
    }

    fn payload_max(&self) -> usize {
        self.inner.payload_max()
    }

    fn waiting(&self, tell: &mut dyn FnMut(MsgId, WaitReason)) {
        self.inner.waiting(tell);
    }

    fn fit(&self) -> bool {
        self.is_fit()
    }

    fn status(&self) -> ProtocolStatus {
        let inner = self.inner.status();
        let inside = self.phase != ViewPhase::Out;
        let leader = self.members.first().copied().filter(|_| inside);
        let follows = inside && self.begun && self.is_primary();
        ProtocolStatus { leader, epoch: self.view.id, follows, ..inner }
    }
}

//! Virtual synchrony for one group: members agree on views, and members that enter two views in a
//! row have been handed the same casts in between [TO 3]. A protocol on
//! [`Groupcast`] becomes one on [`Messages`].
//!
//! # Guarantees
//! The laws of [`amcast_core::groupcast`], with *primary component* membership: there is one chain
//! of views, each agreed by a majority of the configured processes, and only in its latest view
//! the group makes progress. A member without a majority in it hands nothing over, takes no submissions, and continues
//! when it hears one again. Or, with [`ViewQuorum::Component`], *partitionable* membership: every component of a partition
//! continues in views of its own, and components merge; see `agreement/component/`.
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
//! Casts may travel along a ring instead; see `ring.rs`. And where the rate of links is known, one member gathers the
//! acknowledgements of multicasts for all; see `collector.rs`.
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
//! # A carrier without room
//! While too many bytes of datagrams wait at the carrier (`MessageInput::Backlog`) this process makes none that may wait here as
//! well: new casts and messages to one member, and repetitions of what the carrier may have still. Heartbeats,
//! acknowledgements and the messages of a change of views leave. A round makes a bounded number of bytes of datagrams,
//! since the carrier says only between two rounds whether it has room for more.
//!
//! # Limits
//! A message larger than a packet travels in parts, a cast each, and is put together when they are
//! handed over; see `parts.rs`. A sender has at most `window` casts of `window_bytes` in all that not
//! all members are known to have; more wait in a queue
//! that the protocol above bounds by its own window, also while the carrier has no room for datagrams: then nothing is
//! sent again either, since the carrier may have it still. So a member that is slow, and not silent, slows all
//! down; none is excluded for that, unless its application takes in nothing for very long: see `flow_control.rs`. A
//! member keeps at most three windows of each sender. Of the view before, casts are kept until all members are seen in
//! the next.
//!
//! # Deviations
//! [TO 3] leaves membership and reliability to a group communication system; this is ours.
//!
//! # Parts
//! ```text
//!            the protocol above                 carrier: packets
//!                  |  hand_over.rs                   |
//! +----------------v---------------------------------v---------------+
//! |  Vsync: gives each input to the part that it is for              |
//! +----+-----------------+------------------+------------------+-----+
//!      |                 |                  |                  |
//!  CastTransport    ViewAgreement      JoinTransfer     OutgoingPackets
//!  casts/: logs,    agreement/: who    transfer.rs:     packing.rs: messages
//!  acknowledgement, is in the next     where a joiner   of a round, gathered
//!  repair, ring     view, and its cut  begins
//!      |                 |                  |
//!      '-----------------+---------> GroupMembership: the view, this process, its peers
//! ```
//! The parts do not know each other; each reads the `GroupMembership`. The agreement asks for a change of views
//! by `AgreementStep`, and `view_change.rs` carries that out with the other parts. `FlowControl` says whether the
//! application takes in more: only then casts are handed over as they come.
//!
//! # Read first
//! [`Vsync`], `GroupMembership`, `Vsync::hand_over`, then `agreement/mod.rs`, `view_change.rs` and `transfer.rs`.

mod agreement;
mod casts;
mod flow_control;
mod hand_over;
mod leave;
mod membership;
mod packet;
mod packing;
mod settings;
#[cfg(test)]
mod tests;
mod transfer;
mod view_change;

pub(crate) use casts::{ACKS_IN_A_RETRY, STREAM_PART_BYTES, part_bytes};
pub(crate) use packet::HEAD_BYTES;
pub use packet::VsyncPacket;
pub use settings::{Dissemination, ViewQuorum, VsyncMutant, VsyncSettings};

use agreement::{Agreement, ComponentAgreement, NONSENSE, PrimaryComponent};
use alloc::vec::Vec;
use amcast_core::codec::Codec;
use amcast_core::groupcast::{Groupcast, GroupcastInput};
use amcast_core::messages::{DatagramBacklog, MessageInput, Messages};
use amcast_core::step::{Note, Oracle, ProtocolStatus, WaitReason, WakeReason};
use amcast_core::{GroupSet, Input, MsgId, Outbox, Output, Pid, Protocol, ProtocolEvent, Time};
use casts::{CastId, CastTransport, CutRequest, LinkPlace, MemberAck};
use flow_control::FlowControl;
use membership::{AppState, GroupMembership, LeaveProgress, ViewPhase};
use packet::PacketItem;
use packing::OutgoingPackets;
use transfer::JoinTransfer;

#[cfg(doc)]
use amcast_core::groupcast::GroupcastOutput;

/// The mark of a member whose carrier has no room for its datagrams.
pub const NO_ROOM: &str = "vsync-no-room";

/// How often in a step the protocol above may ask to be woken at once.
const ANSWERS_MAX: usize = 4;

/// A process of a group in virtual synchrony. See the [module](self).
#[derive(Debug)]
pub struct Vsync<M: core::fmt::Debug + 'static, P> {
    /// The protocol above.
    inner: P,
    inner_out: Outbox<Groupcast<M>>,
    taken: Vec<Output<Groupcast<M>>>,
    group: GroupMembership,
    casts: CastTransport,
    agreement: Agreement,
    transfer: JoinTransfer,
    flow: FlowControl,
    post: OutgoingPackets,
}

impl<M, P> Vsync<M, P>
where
    M: Codec + core::fmt::Debug + 'static,
    P: Protocol<Medium = Groupcast<M>>,
{
    /// A process of the group that runs `inner`.
    pub fn new(settings: VsyncSettings, inner: P) -> Self {
        Self {
            inner,
            inner_out: Outbox::default(),
            taken: Vec::new(),
            casts: CastTransport::new(&settings),
            agreement: Agreement::new(&settings),
            transfer: JoinTransfer::new(),
            flow: FlowControl::new(settings.full),
            post: OutgoingPackets::new(&settings),
            group: GroupMembership::new(settings),
        }
    }

    fn start(&mut self, incarnation: u32, out: &mut Outbox<Messages<VsyncPacket>>) {
        self.group.begin_life(u64::from(incarnation) << 32);
        let is_alone = self.group.has_components() && incarnation > 0;
        if is_alone {
            let name = ComponentAgreement::first_name(self.group.me(), incarnation);
            self.group.begin_alone(name);
            self.casts.begin_view(name.number(), &self.group.settings);
        }
        self.agreement.start(incarnation == 0, self.group.view.id);
        if incarnation > 0 && !is_alone {
            out.event(ProtocolEvent::Lagging);
            return;
        }
        self.transfer.begin();
        self.group.app_state = AppState::InForce;
        self.group.phase = ViewPhase::Active;
        out.event(self.group.view_entered(None));
        let view = self.group.view.clone();
        self.tell(Input::Medium(GroupcastInput::View(&view)), out);
    }

    fn hear(&mut self, from: Pid, packet: VsyncPacket, out: &mut Outbox<Messages<VsyncPacket>>) {
        if from == self.group.me() && self.group.goes_to_group() {
            // A message to the group comes here, too.
            return;
        }
        if from == self.group.me() || from.index() >= self.group.settings.processes {
            return out.note(Note::Malformed(from, "not of this group"));
        }
        if packet.life < self.group.peers.life(from) {
            return;
        }
        if packet.life >= NONSENSE {
            return out.note(Note::Malformed(from, "a life that nobody reaches"));
        }
        self.group.hear(from, packet.life);
        self.casts.acks.note_arrival(self.group.now, &packet);
        for item in packet.items {
            let mut next = self.casts.unless_early(&self.group, from, item);
            while let Some(item) = next {
                let number = self.casts.next_number(from);
                self.take_item(from, item, out);
                let was_taken = self.casts.next_number(from) > number;
                next = if was_taken { self.casts.next_early(from) } else { None };
            }
        }
    }

    /// Takes in a message of a peer.
    fn take_item(&mut self, from: Pid, item: PacketItem, out: &mut Outbox<Messages<VsyncPacket>>) {
        match item {
            PacketItem::Cast { view, sender, number, kept } => {
                if self.group.shares_view(view, sender) {
                    self.casts.on_cast(&self.group, sender, number, kept);
                }
            }
            PacketItem::To { view, number, more, bytes } => {
                let takes = self.group.phase == ViewPhase::Active && self.transfer.has_begun();
                if takes
                    && self.group.shares_view(view, from)
                    && self.casts.take_message(&self.group, from, number, bytes.len())
                {
                    self.give_message(from, more, &bytes, out);
                }
            }
            PacketItem::Ack { view, fit, gap, had, have } => {
                self.show_view(from, view, fit);
                self.on_ack(from, view, MemberAck { first: false, gap, had, have: &have });
            }
            PacketItem::AckAll { view, fit, gaps, had, have } => {
                let me = self.group.me();
                let gap = gaps.checked_shr(me.0).unwrap_or(0) & 1 == 1;
                let had = if had.is_empty() { Some(&0) } else { had.get(me.index()) };
                let Some(&had) = had else { return };
                self.show_view(from, view, fit);
                self.on_ack(from, view, MemberAck { first: false, gap, had, have: &have });
            }
            PacketItem::HeldByAll { view, held } => {
                if self.group.collector() == Some(from) && self.group.shares_view(view, from) {
                    self.casts.on_held(&self.group, &held);
                }
            }
            PacketItem::AskAck { view, number } => self.on_ask_ack(from, view, number),
            PacketItem::Alive { view, fit } => {
                if view == self.group.view.id {
                    // A member that continues in this view acknowledges.
                    self.group.attendance.note_blocked(from, self.group.now);
                }
                self.show_view(from, view, fit);
            }
            PacketItem::Join { view } => self.on_join(from, view),
            PacketItem::Leave { view } => self.on_left(from, view),
            PacketItem::Fetch { view, sender, after, upto } => {
                let request = CutRequest { from, view, sender, after, upto };
                self.casts.on_fetch(&self.group, request, &mut self.post);
            }
            // Where each component decides for itself, nobody decides for all.
            PacketItem::Decide(decision) if !self.group.has_components() => {
                self.learn(decision, out);
            }
            PacketItem::Ask { view } => {
                self.transfer.on_ask(&self.group, from, view, &mut self.post);
            }
            PacketItem::Base { view, bytes } => self.on_base(view, &bytes, out),
            PacketItem::Unheard { processes } => self.group.on_unheard(from, processes),
            item @ (PacketItem::Forward { .. } | PacketItem::Stable { .. }) => {
                let taken = self.take_on_ring(from, item);
                taken.unwrap_or_else(|why| out.note(Note::Malformed(from, why)));
            }
            item => {
                let step = self.agreement.take(&self.group, from, item, &mut self.post);
                if let Some(request) = step {
                    self.carry_out(request, out);
                }
            }
        }
    }

    /// Takes in a message on the ring.
    ///
    /// # Errors
    /// If no member sends such a message there.
    fn take_on_ring(&mut self, from: Pid, item: PacketItem) -> Result<(), &'static str> {
        match item {
            PacketItem::Forward { view, link, sender, number, kept } => {
                let (place, cast) = (LinkPlace { view, link }, CastId { sender, number });
                self.casts.on_forward(&self.group, from, place, cast, kept)
            }
            PacketItem::Stable { view, link, sender, number } => {
                let (place, cast) = (LinkPlace { view, link }, CastId { sender, number });
                self.casts.on_stable(&self.group, from, place, cast)
            }
            _ => Ok(()),
        }
    }

    /// A peer shows the last view that it knows of, and whether it has the application's state in force.
    fn show_view(&mut self, from: Pid, view: u64, fit: bool) {
        self.group.peers.set_fit(from, fit);
        self.group.catch_up(from, view, &mut self.post);
        self.group.note_entered(from, view);
    }

    fn on_ack(&mut self, from: Pid, view: u64, ack: MemberAck<'_>) {
        let is_whole = ack.have.len() == self.group.settings.processes;
        if is_whole && self.group.shares_view(view, from) {
            let first = self.group.attendance.note_active(from);
            let ack = MemberAck { first, ..ack };
            self.casts.on_ack(&self.group, from, ack, &mut self.post);
        }
    }

    /// The carrier has no more room for datagrams, or has room again. Until then nothing leaves but what is small and keeps the
    /// group going: heartbeats, acknowledgements, and the messages of a change of views.
    fn on_backlog(&mut self, backlog: DatagramBacklog, out: &mut Outbox<Messages<VsyncPacket>>) {
        let is_deaf = match backlog.has_room {
            true => self.group.is_broken(VsyncMutant::NeverHearsRoom),
            false => self.group.is_broken(VsyncMutant::IgnoresBacklog),
        };
        if is_deaf {
            return;
        }
        self.group.has_room = backlog.has_room;
        self.tell(Input::Medium(GroupcastInput::Backlog(backlog)), out);
        if backlog.has_room {
            self.casts.send_waiting(&self.group, &mut self.post);
        } else {
            out.mark(NO_ROOM);
        }
    }

    /// A member asks which of its casts this one has.
    fn on_ask_ack(&mut self, from: Pid, view: u64, number: u64) {
        if self.group.phase == ViewPhase::Active && self.group.shares_view(view, from) {
            self.casts.on_ask_ack(&self.group, from, number);
        }
    }

    /// A process wants to join; the last view that it knows of.
    fn on_join(&mut self, from: Pid, view: u64) {
        self.group.requests.joins[from.index()] = Some(self.group.peers.life(from));
        self.group.catch_up(from, view, &mut self.post);
    }

    /// Installs the base with which this process begins in its view.
    fn on_base(&mut self, view: u64, bytes: &[u8], out: &mut Outbox<Messages<VsyncPacket>>) {
        if self.transfer.awaits_base(&self.group, view) {
            let now = self.group.view.clone();
            self.tell(Input::Medium(GroupcastInput::Join(&now, bytes)), out);
            let position = self.inner.status().delivered;
            self.transfer.need_state(&mut self.group, position, out);
        }
    }

    /// Wakes the protocol above, if it is time. Says whether it was.
    fn wake_inner(&mut self, out: &mut Outbox<Messages<VsyncPacket>>) -> bool {
        let due = |(at, _): (Time, WakeReason)| at <= self.group.now;
        let is_due = self.runs_inner() && self.inner.deadline().is_some_and(due);
        if is_due {
            self.tell(Input::Wake, out);
        }
        is_due
    }

    /// Whether the protocol above takes part in a view.
    fn runs_inner(&self) -> bool {
        self.group.phase == ViewPhase::Active && self.transfer.has_begun()
    }

    /// Does all that is due. Acknowledgements that gather until the end of a round are due only when it is `woken`.
    fn tick(&mut self, woken: bool, out: &mut Outbox<Messages<VsyncPacket>>) {
        if self.group.peers.beat(self.group.now) {
            self.show_life();
        }
        if woken {
            self.wake_inner(out);
        }
        self.casts.resend(&self.group, &mut self.post);
        self.continue_leaving(out);
        if self.flow.is_full() {
            self.flow.ask_to_go_on(&self.group, &mut self.post, out);
        }
        self.coordinate(out);
        self.fetch_needed(out);
        self.transfer.ask_for_base(&self.group, &mut self.post);
    }

    /// Tells all that this process lives, and what it has.
    fn show_life(&mut self) {
        self.casts.acks.along();
        match self.group.has_components() {
            true => self.agreement.show(&self.group, &mut self.post),
            false => self.group.report_unheard(&mut self.post),
        }
        let group = &self.group;
        let (view, fit) = (group.decision.view.id, group.is_fit());
        if group.beats_to_group() {
            return self.casts.ack_members(group, &mut self.post);
        }
        for to in group.peers() {
            let item = match group.phase {
                ViewPhase::Out if group.has_left() || !self.flow.may_join(group.now) => {
                    PacketItem::Alive { view, fit: false }
                }
                ViewPhase::Out => PacketItem::Join { view },
                ViewPhase::Active if group.view.has(to) => self.casts.ack_to(group, to),
                _ => PacketItem::Alive { view, fit },
            };
            self.post.push(to, item);
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
        self.group.now = now;
        let woken = matches!(input, Input::Wake);
        let has_room = |input: &Input<'_, Messages<VsyncPacket>>| matches!(input, Input::Medium(MessageInput::Backlog(backlog)) if backlog.has_room);
        if woken || has_room(&input) {
            self.casts.begin_round(&self.group, &mut self.post);
        }
        let processes = self.group.settings.processes;
        match input {
            Input::Start { incarnation } => self.start(incarnation, out),
            Input::Submit(submission) => self.tell(Input::Submit(submission), out),
            Input::Leave => self.on_leave(),
            Input::Full(is_full) => self.flow.set_full(now, is_full),
            Input::Installed { position, needs } => {
                self.transfer.on_installed(&mut self.group, position, needs, out);
            }
            Input::Oracle(Oracle::Suspect(p)) if p.index() < processes => {
                self.group.peers.suspect(p);
            }
            Input::Oracle(Oracle::Trust(p)) if p.index() < processes => self.group.peers.trust(p),
            Input::Medium(MessageInput::From(from, packet)) => self.hear(from, packet, out),
            Input::Medium(MessageInput::Up(p)) if p.index() < processes => {
                // Packets in flight are lost.
                self.casts.retry_now(&self.group, p);
            }
            Input::Medium(MessageInput::Backlog(backlog)) => self.on_backlog(backlog, out),
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
            self.casts.ack_due(&self.group, &mut self.post);
            self.casts.ack_along(&self.group, &mut self.post);
        }
        if woken || self.post.is_full() {
            self.post.flush(self.group.life, out);
        }
    }

    fn deadline(&self) -> Option<(Time, WakeReason)> {
        if !self.post.is_empty() || self.casts.has_more() {
            return Some((self.group.now, WakeReason::Flush));
        }
        let inner = self.runs_inner().then(|| self.inner.deadline());
        let all = [
            self.group.peers.deadline(),
            (self.casts.acks.at(), WakeReason::Flush),
            (self.casts.resend_at(&self.group), WakeReason::Retry),
            (self.agreement.deadline(&self.group), WakeReason::Retry),
            (self.casts.needed_at(), WakeReason::Retry),
            (self.transfer.deadline(&self.group), WakeReason::Retry),
            (self.leave_at(), WakeReason::Retry),
            (self.flow.deadline(&self.group), WakeReason::Retry),
        ];
        all.into_iter().chain(inner.flatten()).min_by_key(|(at, _)| *at)
    }

    fn room(&self, dst: GroupSet, bytes: usize) -> usize {
        let group = &self.group;
        let stays = group.leaving == LeaveProgress::No && group.phase != ViewPhase::Out;
        let runs = self.hands_over() && stays;
        if runs { self.inner.room(dst, bytes) } else { 0 }
    }

    fn payload_max(&self) -> usize {
        self.inner.payload_max()
    }

    fn waiting(&self, tell: &mut dyn FnMut(MsgId, WaitReason)) {
        self.inner.waiting(tell);
    }

    fn fit(&self) -> bool {
        self.group.is_fit()
    }

    fn status(&self) -> ProtocolStatus {
        let inner = self.inner.status();
        let group = &self.group;
        let inside = group.phase != ViewPhase::Out;
        let leader = group.members.first().copied().filter(|_| inside);
        let primary = PrimaryComponent(group);
        let follows = inside && self.transfer.has_begun() && primary.is_primary();
        ProtocolStatus { leader, epoch: group.view.id, follows, ..inner }
    }
}

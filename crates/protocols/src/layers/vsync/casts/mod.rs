//! The transport of casts, and of messages to one member, within a view: which of them are here, on the way, or may be
//! handed over. It sees the [`GroupMembership`], sends messages of its own, and knows nothing of how views are agreed.
//!
//! | file | concern |
//! |---|---|
//! | `log.rs` | the casts of one view, by sender, and which members have them |
//! | `acknowledgements.rs` | which casts this process has, told to the others |
//! | `collector.rs` | the same where one member gathers it for all |
//! | `retransmission.rs` | the channel to each peer: messages, and repetition |
//! | `early_arrivals.rs` | messages that came as datagrams before others of their sender |
//! | `ring.rs` | casts along a ring |
//! | `parts.rs` | messages that are larger than a packet |
//! | `fetching.rs` | questions for casts that this process misses |
//! | `cut_recovery.rs` | casts that end a view, fetched of any process |

mod acknowledgements;
mod collector;
mod cut_recovery;
mod early_arrivals;
mod fetching;
mod log;
mod parts;
mod retransmission;
mod ring;

pub(crate) use acknowledgements::{ACKS_IN_A_RETRY, MemberAck};
pub(crate) use cut_recovery::CutRequest;
pub(crate) use log::{CastLog, HeldCasts, RetainedCast, SendWindow};
pub(crate) use parts::{CastAssembly, STREAM_PART_BYTES, part_bytes};
#[cfg(test)]
pub(super) use retransmission::FLIGHT;
pub(crate) use ring::{CastId, LinkPlace, RingArrival};

use super::membership::{GroupMembership, ViewPhase};
use super::packet::PacketItem;
use super::packing::OutgoingPackets;
use super::{VsyncMutant, VsyncSettings};
use acknowledgements::Acknowledgements;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use amcast_core::groupcast::Grade;
use amcast_core::messages::Lane;
use amcast_core::{Pid, Span};
use cut_recovery::CutRecovery;
use fetching::CastQuestion;
use parts::PartSize;
use retransmission::PeerChannel;
use ring::{LinkMessage, RingArrivals};

/// Bytes of casts and messages that become datagrams in one round, about: the carrier says between two rounds whether it has
/// room for more. A link of a gigabit a second carries as many in a millisecond, which is as long as a round of a loop that shares
/// its core may be; a carrier holds twice as many, however low its rate is. Each protocol on this layer is of one group, so that
/// no other process shares the carrier.
const ROUND_BYTES: usize = 128 << 10;

/// The bytes of casts and messages that become datagrams in the present round.
#[derive(Clone, Copy, Debug, Default)]
struct RoundBudget {
    spent: usize,
    /// Whether something waits for the next round.
    is_over: bool,
}

impl RoundBudget {
    /// Whether one more may leave in this round; if not it waits.
    const fn allows(&mut self) -> bool {
        self.is_over |= self.spent >= ROUND_BYTES;
        self.spent < ROUND_BYTES
    }

    /// Whether so many bytes more may leave in this round, together; if not they wait.
    const fn fits(&mut self, bytes: usize) -> bool {
        let fits = self.spent == 0 || self.spent + bytes <= ROUND_BYTES;
        self.is_over |= !fits;
        fits
    }

    /// How many bytes of so many may leave in this round.
    fn limit(self, lane: Lane, bytes: usize) -> usize {
        match lane {
            Lane::Stream => bytes,
            Lane::Datagram => bytes.min(ROUND_BYTES.saturating_sub(self.spent)),
        }
    }
}

/// The transport of casts and messages within a view.
#[derive(Debug)]
pub(crate) struct CastTransport {
    /// The transport of packets.
    lane: Lane,
    /// Bytes of messages to one peer that may be on the way as datagrams.
    channel_bytes: usize,
    part: PartSize,
    /// The casts of the view that this process is in, or was in last.
    pub(crate) log: CastLog,
    /// Casts of the view before, for those that miss them.
    old: Option<CastLog>,
    /// Casts of the protocol above beyond the window, and those for which the carrier has no room.
    queue: VecDeque<RetainedCast>,
    budget: RoundBudget,
    /// By sender: the parts that came of messages in parts.
    assemblies: Vec<CastAssembly>,
    /// By peer.
    channels: Vec<PeerChannel>,
    ring: RingArrivals,
    pub(crate) acks: Acknowledgements,
    /// By sender: the last question for its casts that are missing here.
    questions: Vec<CastQuestion>,
    /// Requests for casts that wait for a later round.
    waiting_requests: Vec<CutRequest>,
    recovery: CutRecovery,
}

impl CastTransport {
    /// In the first view, before any cast.
    pub(crate) fn new(settings: &VsyncSettings) -> Self {
        let n = settings.processes;
        Self {
            lane: settings.lane,
            channel_bytes: settings.channel_bytes,
            part: PartSize::new(settings),
            log: CastLog::new(0, n, settings.window()),
            old: None,
            queue: VecDeque::new(),
            budget: RoundBudget::default(),
            assemblies: alloc::vec![CastAssembly::default(); n],
            channels: alloc::vec![PeerChannel::new(settings.first_repeat()); n],
            ring: RingArrivals::default(),
            acks: Acknowledgements::new(settings),
            questions: alloc::vec![CastQuestion::NONE; n],
            waiting_requests: Vec::new(),
            recovery: CutRecovery::NONE,
        }
    }

    /// Casts for the protocol above, in the present view.
    pub(crate) fn cast(
        &mut self,
        group: &GroupMembership,
        grade: Grade,
        bytes: &[u8],
        post: &mut OutgoingPackets,
    ) {
        for (more, bytes) in self.part.cut(bytes) {
            let kept = RetainedCast { grade, more, bytes };
            if group.is_ring() {
                self.cast_on_ring(group, kept, post);
            } else if self.queue.is_empty() && self.may_cast(group) {
                self.cast_now(group, kept, post);
            } else {
                self.queue.push_back(kept);
            }
        }
    }

    /// Whether the next cast may leave in this round.
    fn may_cast(&mut self, group: &GroupMembership) -> bool {
        let is_datagram = self.lane == Lane::Datagram || group.goes_to_group();
        let may = self.log.room(group.me()) && group.may_cast();
        may && (!is_datagram || self.budget.allows())
    }

    /// A round begins, as the last one has ended with a wake-up: sends what waited for it.
    pub(crate) fn begin_round(&mut self, group: &GroupMembership, post: &mut OutgoingPackets) {
        if core::mem::take(&mut self.budget).is_over {
            for request in core::mem::take(&mut self.waiting_requests) {
                self.on_fetch(group, request, post);
            }
            self.send_waiting(group, post);
        }
    }

    /// Whether something waits for the next round alone.
    pub(crate) const fn has_more(&self) -> bool {
        self.budget.is_over
    }

    fn cast_now(
        &mut self,
        group: &GroupMembership,
        kept: RetainedCast,
        post: &mut OutgoingPackets,
    ) {
        let (view, sender) = (self.log.view, group.me());
        self.acks.note_grade(kept.grade);
        self.acks.single.note_last(group.now, sender);
        // A datagram for each member, where one does not reach them all.
        let copies = if group.goes_to_group() { 1 } else { group.others().count() };
        self.budget.spent += kept.bytes.len() * copies;
        let number = self.log.push(sender, kept.clone());
        for to in group.others() {
            self.channels[to.index()].begin_cast(group.now);
        }
        if group.goes_to_group() && group.others().next().is_some() {
            post.push_for_all(PacketItem::Cast { view, sender, number, kept });
        } else {
            for to in group.others() {
                post.push(to, PacketItem::Cast { view, sender, number, kept: kept.clone() });
            }
        }
        self.log.ack_own(sender);
    }

    /// Sends to one member for the protocol above, in the present view.
    pub(crate) fn send(
        &mut self,
        group: &GroupMembership,
        to: Pid,
        bytes: &[u8],
        post: &mut OutgoingPackets,
    ) {
        let parts = self.part.cut(bytes).map(|(more, bytes)| LinkMessage::Part { more, bytes });
        self.send_messages(group, to, parts, post);
    }

    /// A cast came, of its sender or of a process that was asked for it.
    pub(crate) fn on_cast(
        &mut self,
        group: &GroupMembership,
        sender: Pid,
        number: u64,
        kept: RetainedCast,
    ) {
        if sender == group.me() || group.is_ring() && group.phase == ViewPhase::Active {
            // It has all that it made; a packet that denies it makes it up. On a ring casts come by messages.
            return;
        }
        let now = group.now;
        let RetainedCast { grade, more, .. } = kept;
        if number <= self.log.have(sender) + group.settings.window as u64 {
            // The sender of a cast has it, and all before it.
            self.log.ack_sender(sender, number);
        }
        if group.phase == ViewPhase::Active {
            // Also of one it had: the sender does not know.
            let bytes = kept.bytes.len();
            if self.log.take(sender, number, kept, false) {
                self.questions[sender.index()].note(now, number, bytes, true);
            }
            // The rest of the message follows, and its acknowledgement is enough.
            let continues = more && !self.log.gap(sender);
            match grade {
                Grade::Uniform => self.acks.within(now, Span::ZERO),
                _ if group.gathers_acks() => self.owe_collector(group, sender, grade, continues),
                Grade::Plain => self.acks.within(now, group.settings.ack),
                Grade::Stable if continues => self.acks.within(now, group.settings.ack),
                Grade::Stable => self.acks.paced(now, group.members.len()),
            }
        } else if self.recovery.needs(sender, number) {
            self.take_needed(now, sender, number, kept);
        }
    }

    /// The next cast to hand over that enough members have, and its sender; `quorum` members are a majority.
    pub(crate) fn next(
        &mut self,
        group: &GroupMembership,
        quorum: usize,
    ) -> Option<(Pid, RetainedCast)> {
        let trusts_one = group.is_broken(VsyncMutant::TrustsOne);
        let quorum = if trusts_one { 1 } else { quorum };
        for &sender in &group.members {
            if !self.log.waits(sender) {
                continue;
            }
            let held = HeldCasts {
                majority: self.log.uniform_held(&group.members, sender, quorum),
                all: match trusts_one {
                    true => u64::MAX,
                    false => self.log.stable_held(&group.members, sender),
                },
            };
            if let Some(kept) = self.log.next(sender, held, u64::MAX) {
                return Some((sender, kept));
            }
        }
        None
    }

    /// Drops casts that all have, and sends those of the queue that fit into the window.
    pub(crate) fn advance(&mut self, group: &GroupMembership, post: &mut OutgoingPackets) {
        self.log.trim(&group.members);
        while !self.queue.is_empty()
            && self.may_cast(group)
            && let Some(kept) = self.queue.pop_front()
        {
            self.cast_now(group, kept, post);
        }
        self.note_held(group);
    }

    /// The parts that came of messages of `from`.
    pub(crate) fn assembly(&mut self, from: Pid) -> &mut CastAssembly {
        &mut self.assemblies[from.index()]
    }

    /// Whether all casts of this process are sent, and the members that work have them.
    pub(crate) fn is_drained(&self, group: &GroupMembership) -> bool {
        let me = group.me();
        let mine = self.log.have(me);
        let mut waits = group.view.members.iter().filter(|m| m.pid != me && !group.failed(**m));
        self.queue.is_empty() && waits.all(|m| self.log.acked(m.pid, me) >= mine)
    }

    /// The view is about to end: nothing more is sent or forwarded in it.
    pub(crate) fn block(&mut self) {
        self.queue.clear();
        self.ring.clear();
        // Its sender may be the one that has failed.
        self.questions.fill(CastQuestion::NONE);
        self.recovery.forget_cut();
    }

    /// The view ends otherwise than it was about to.
    pub(crate) fn forget_cut(&mut self) {
        self.recovery.forget_cut();
    }

    /// The view has ended, and another one begins at once: the casts are kept for those that miss them.
    pub(crate) fn keep_for_others(&mut self, settings: &VsyncSettings) {
        let fresh = CastLog::new(self.log.view, settings.processes, settings.window());
        self.old = Some(core::mem::replace(&mut self.log, fresh));
    }

    /// Outside of views it keeps the casts of the last one for those that miss them.
    pub(crate) fn put_away(&mut self, settings: &VsyncSettings) {
        self.keep_for_others(settings);
        self.queue.clear();
        self.ring.clear();
        self.end_view();
    }

    /// A view begins.
    pub(crate) fn begin_view(&mut self, view: u64, settings: &VsyncSettings) {
        let n = settings.processes;
        self.log = CastLog::new(view, n, settings.window());
        self.channels = alloc::vec![PeerChannel::new(settings.first_repeat()); n];
        self.end_view();
    }

    /// Nothing more comes of a message of the view before, and nothing is needed to end that.
    fn end_view(&mut self) {
        self.assemblies.iter_mut().for_each(|parts| *parts = CastAssembly::default());
        self.questions.fill(CastQuestion::NONE);
        self.recovery.end();
    }
}

//! The state that one that joins needs: what its protocol begins with, and the application's state
//! from a member that is fit, piece by piece, while the group goes on.
//!
//! A donor may have been handed plain casts that nobody else has, and die with them. So a state comes into
//! force only when the protocol of this process has delivered as much as the donor had: then what is in it
//! is in the cut of the view, if this process goes on. What is not so when the view ends is given up.

use super::packet::PacketItem;
use super::{ViewPhase, Vsync, VsyncMutant, VsyncPacket};
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use amcast_core::codec::Codec;
use amcast_core::groupcast::{self, GroupMember, Groupcast};
use amcast_core::messages::{Lane, Messages};
use amcast_core::step::{Note, Ticket};
use amcast_core::{Delivery, Input, Outbox, Output, Pid, Protocol, ProtocolEvent, Span, Time};

/// How often a donor is asked in vain before another one is tried.
const TRIES: u32 = 8;

/// How large a piece of state on a stream is at least.
const STREAM_PIECE_BYTES: usize = 32 << 10;

/// How many times as long as the last answer the next one may take.
const PATIENCE: u64 = 3;

/// How many times as long as `retry` an answer is waited for at most.
const PATIENCE_MOST: u64 = 64;

/// How many attempts to get a state one incarnation may make before it uses the numbers of the next.
const ATTEMPTS_OF_AN_INCARNATION: u32 = 1 << 16;

/// Deliveries that wait for the state to come before them.
#[derive(Debug, Default)]
pub(super) struct Held {
    queue: VecDeque<(Delivery, Vec<u8>)>,
    bytes: usize,
    /// The position of the state, once it has come: it holds all up to there.
    upto: u64,
}

/// The state on its way to this process.
#[derive(Debug)]
pub(super) struct Intake {
    /// Grows with each attempt. Each incarnation begins far above the one before, so that no answer to an
    /// earlier incarnation is taken for an answer to this one.
    attempt: u32,
    /// The member that gives the state, in the incarnation that was asked.
    pub(super) donor: Option<GroupMember>,
    /// The position of the state that comes, and its size.
    head: Option<(u64, u64)>,
    /// How many bytes have come.
    got: u64,
    /// The last piece, kept back until this process has delivered all that is in the state.
    pub(super) last: Option<Arc<[u8]>>,
    /// The position that the state must have reached.
    least: u64,
    retry_at: Time,
    tries: u32,
    /// How long an answer may take before it is asked for again: some times as long as the last one
    /// took. Doubles with each that does not come in time, also from another donor: on a network that
    /// is slower than `retry` the state would else be begun again and again, and never come.
    patience: Span,
    /// When a piece was asked for that was not yet asked for again.
    asked: Option<Time>,
}

impl Default for Intake {
    fn default() -> Self {
        let (retry_at, patience) = (Time::NEVER, Span::ZERO);
        let (donor, head, last, asked) = (None, None, None, None);
        Self {
            attempt: 0,
            donor,
            head,
            got: 0,
            last,
            least: 0,
            retry_at,
            tries: 0,
            patience,
            asked,
        }
    }
}

/// A state that this process gives to another.
#[derive(Debug)]
pub(super) struct Donation {
    attempt: u32,
    /// The life of the reader.
    life: u64,
    ticket: Ticket,
    least: u64,
    /// Its position and size, once it is captured.
    head: Option<(u64, u64)>,
}

impl<M, P> Vsync<M, P>
where
    M: Codec + core::fmt::Debug + 'static,
    P: Protocol<Medium = Groupcast<M>>,
{
    /// Delivers, or holds back what the protocol above delivers before the state has come.
    pub(super) fn deliver(&mut self, delivery: &Delivery, out: &mut Outbox<Messages<VsyncPacket>>) {
        let bytes = self.inner_out.bytes(delivery.payload);
        let Delivery { msg, dst, position, .. } = *delivery;
        if self.live && position <= self.held.upto {
            // The state had it before its turn came here.
            return;
        }
        if self.live {
            return out.deliver(msg, dst, position, |to| to.extend_from_slice(bytes));
        }
        self.held.queue.push_back((*delivery, bytes.to_vec()));
        self.held.bytes += bytes.len() + size_of::<Delivery>();
        if self.held.bytes > self.settings.held_bytes {
            // A newer state has all this in it.
            out.mark("vsync-held-too-much");
            self.held = Held::default();
            self.intake.least = position;
            self.look_elsewhere();
        }
    }

    /// Asks again soon, and another one: what was asked for is of no use any more.
    fn look_elsewhere(&mut self) {
        self.forget_intake();
        self.intake.retry_at = self.intake.retry_at.min(self.now + self.settings.retry.times(2));
    }

    /// What has come of a state is of no use.
    fn forget_intake(&mut self) {
        let intake = &mut self.intake;
        (intake.donor, intake.head, intake.got, intake.last) = (None, None, 0, None);
    }

    /// Looks for a donor.
    pub(super) fn begin_intake(&mut self) {
        self.forget_intake();
        self.intake.retry_at = self.now;
    }

    /// Gives up a state on its way that holds what this process will not deliver, or whose donor does not
    /// go on: called in a view just entered, when all of the one before is delivered. Also before the donor
    /// has answered, because its answer is of the view in which it was asked.
    pub(super) fn doubt_state(&mut self) {
        let Some(donor) = self.intake.donor.filter(|_| !self.live) else { return };
        let goes_on = match self.is_broken(VsyncMutant::DonorByProcess) {
            true => self.view.has(donor.pid),
            false => self.view.members.contains(&donor),
        };
        let delivered = self.inner.status().delivered;
        let is_beyond = self.intake.head.is_some_and(|(position, _)| position > delivered);
        if is_beyond || !goes_on {
            self.begin_intake();
        }
    }

    /// Numbers the attempts of this incarnation.
    pub(super) fn number_attempts(&mut self, incarnation: u32) {
        self.intake.attempt = incarnation.wrapping_mul(ATTEMPTS_OF_AN_INCARNATION);
    }

    /// Whether the state on its way is of `from`, in the incarnation in which it lives now.
    fn is_donor(&self, from: Pid) -> bool {
        let now = self.incarnation(from);
        let by_process = self.is_broken(VsyncMutant::DonorByProcess);
        let is = |donor: GroupMember| donor == now || by_process && donor.pid == from;
        self.intake.donor.is_some_and(is)
    }

    /// This process is out: what it had is nothing any more.
    pub(super) fn forget_state(&mut self, out: &mut Outbox<Messages<VsyncPacket>>) {
        (self.live, self.installed, self.begun) = (false, false, false);
        self.held = Held::default();
        let Intake { attempt, patience, .. } = self.intake;
        self.intake = Intake { attempt, patience, ..Intake::default() };
        for donation in self.donations.iter_mut().filter_map(Option::take) {
            out.push(Output::Release { ticket: donation.ticket });
        }
    }

    pub(super) fn intake_at(&self) -> Time {
        let lacks = self.phase != ViewPhase::Out && !(self.begun && self.live);
        if lacks { self.intake.retry_at } else { Time::NEVER }
    }

    /// Asks for what it lacks, again and again, and another one if it has no answer.
    pub(super) fn ask_for_state(&mut self, out: &mut Outbox<Messages<VsyncPacket>>) {
        if self.intake_at() > self.now {
            return;
        }
        let retry = self.settings.retry;
        let patience = self.intake.patience.times(2).min(retry.times(PATIENCE_MOST));
        self.intake.patience = patience.max(retry.times(2));
        self.intake.retry_at = self.now + self.intake.patience;
        self.intake.tries += 1;
        // Which one an answer belongs to is not known.
        self.intake.asked = None;
        let works = |m: &GroupMember| {
            let answers = m.pid != self.me() && self.reaches(m.pid);
            answers && self.fit[m.pid.index()] && self.view.members.contains(m) && !self.failed(*m)
        };
        let vain = self.intake.tries > TRIES;
        if !self.intake.donor.as_ref().is_some_and(|m| works(m) && !vain) {
            let all: Vec<GroupMember> = self.view.members.iter().copied().filter(works).collect();
            if all.is_empty() {
                return;
            }
            let attempt = self.intake.attempt + 1;
            let donor = Some(all[attempt as usize % all.len()]);
            let Intake { least, retry_at, patience, .. } = self.intake;
            self.intake = Intake { attempt, donor, least, retry_at, patience, ..Intake::default() };
            out.event(ProtocolEvent::Lagging);
        }
        self.ask_donor();
    }

    fn ask_donor(&mut self) {
        let &Intake { attempt, donor, head, got, least, .. } = &self.intake;
        let Some(GroupMember { pid: donor, .. }) = donor else { return };
        if head.is_none() || !self.begun {
            let (view, base) = (self.casts.view, !self.begun);
            self.post(donor, PacketItem::Ask { view, attempt, base, least });
        }
        if head.is_some() {
            self.post(donor, PacketItem::Want { attempt, offset: got });
        }
    }

    pub(super) fn on_ask(
        &mut self,
        from: Pid,
        view: u64,
        attempt: u32,
        base: bool,
        least: u64,
        out: &mut Outbox<Messages<VsyncPacket>>,
    ) {
        let reader = self.incarnation(from);
        let inside = self.phase != ViewPhase::Out && self.view.members.contains(&reader);
        if view != self.casts.view || !inside || !self.is_fit() || !self.begun {
            return;
        }
        if base {
            let bytes = Arc::clone(&self.base);
            self.post(from, PacketItem::Base { view, bytes });
        }
        let life = reader.life;
        if let Some(donation) = &self.donations[from.index()] {
            if (donation.attempt, donation.life) == (attempt, life) {
                if let Some((position, bytes)) = donation.head {
                    self.post(from, PacketItem::State { attempt, position, bytes });
                }
                return;
            }
            out.push(Output::Release { ticket: donation.ticket });
        }
        self.donated += 1;
        let ticket = Ticket(u64::from(from.0) << 32 | u64::from(self.donated));
        self.donations[from.index()] = Some(Donation { attempt, life, ticket, least, head: None });
        out.push(Output::Capture { ticket, reader: from });
    }

    /// The donation of that ticket, and for whom it is.
    fn donation(&mut self, ticket: Ticket) -> Option<(Pid, &mut Donation)> {
        let reader = Pid((ticket.0 >> 32) as u32);
        let donation = self.donations.get_mut(reader.index())?.as_mut();
        donation.filter(|d| d.ticket == ticket).map(|d| (reader, d))
    }

    pub(super) fn on_captured(
        &mut self,
        ticket: Ticket,
        position: u64,
        bytes: u64,
        out: &mut Outbox<Messages<VsyncPacket>>,
    ) {
        let Some((reader, donation)) = self.donation(ticket) else { return };
        if position < donation.least {
            // It is asked for again, and by then more is applied.
            self.donations[reader.index()] = None;
            return out.push(Output::Release { ticket });
        }
        donation.head = Some((position, bytes));
        let attempt = donation.attempt;
        self.post(reader, PacketItem::State { attempt, position, bytes });
    }

    pub(super) fn on_want(
        &mut self,
        from: Pid,
        attempt: u32,
        offset: u64,
        out: &mut Outbox<Messages<VsyncPacket>>,
    ) {
        let piece = match self.settings.lane {
            // One round trip for each: on a stream it may as well be worth it.
            Lane::Stream => self.settings.packet_bytes.max(STREAM_PIECE_BYTES) as u64,
            Lane::Datagram => self.settings.packet_bytes as u64,
        };
        let Some(donation) = &self.donations[from.index()] else { return };
        let Some((_, bytes)) = donation.head else { return };
        if donation.attempt == attempt && offset < bytes {
            let bytes = piece.min(bytes - offset) as u32;
            out.push(Output::Piece { ticket: donation.ticket, offset, bytes });
        }
    }

    /// The application gives a piece of a state that was captured.
    pub(super) fn on_own_piece(&mut self, ticket: Ticket, offset: u64, bytes: &[u8]) {
        let Some((reader, donation)) = self.donation(ticket) else { return };
        let attempt = donation.attempt;
        self.post(reader, PacketItem::Piece { attempt, offset, bytes: Arc::from(bytes) });
    }

    pub(super) fn on_thanks(
        &mut self,
        from: Pid,
        attempt: u32,
        out: &mut Outbox<Messages<VsyncPacket>>,
    ) {
        let donation = self.donations[from.index()].take_if(|d| d.attempt == attempt);
        if let Some(donation) = donation {
            out.push(Output::Release { ticket: donation.ticket });
        }
    }

    /// Forgets donations to those that are gone.
    pub(super) fn end_donations(&mut self, out: &mut Outbox<Messages<VsyncPacket>>) {
        for at in 0..self.donations.len() {
            let reader = Pid(at as u32);
            let gone = |d: &Donation| {
                d.life != self.lives[at] || !self.view.has(reader) || self.suspects(reader)
            };
            if self.donations[at].as_ref().is_some_and(gone)
                && let Some(donation) = self.donations[at].take()
            {
                out.push(Output::Release { ticket: donation.ticket });
            }
        }
    }

    /// What this process begins with in its view.
    pub(super) fn on_base(
        &mut self,
        view: u64,
        bytes: &[u8],
        out: &mut Outbox<Messages<VsyncPacket>>,
    ) {
        if self.begun || self.phase != ViewPhase::Active || view != self.casts.view {
            return;
        }
        let now = self.view.clone();
        self.tell(Input::Medium(groupcast::GroupcastInput::Join(&now, bytes)), out);
        self.begun = true;
        self.intake.least = self.intake.least.max(self.inner.status().delivered);
        if self.is_broken(VsyncMutant::JoinsWithNothing) {
            // It deceives its driver, too.
            (self.live, self.installed) = (true, true);
            out.event(ProtocolEvent::CaughtUp(0));
            return;
        }
        self.ask_donor();
    }

    pub(super) fn on_state(
        &mut self,
        from: Pid,
        attempt: u32,
        position: u64,
        bytes: u64,
        out: &mut Outbox<Messages<VsyncPacket>>,
    ) {
        let asked = self.intake.attempt == attempt && self.is_donor(from);
        let intake = &mut self.intake;
        if !asked || self.live || !self.begun || intake.head.is_some() {
            return;
        }
        if position < intake.least {
            return self.look_elsewhere();
        }
        (intake.head, intake.got, intake.tries) = (Some((position, bytes)), 0, 0);
        if bytes == 0 {
            self.install(&[], out);
        } else {
            self.post(from, PacketItem::Want { attempt, offset: 0 });
        }
    }

    pub(super) fn on_piece(
        &mut self,
        from: Pid,
        attempt: u32,
        offset: u64,
        bytes: &[u8],
        out: &mut Outbox<Messages<VsyncPacket>>,
    ) {
        let asked = self.intake.attempt == attempt && self.is_donor(from) && !self.live;
        let intake = &mut self.intake;
        let Some((_, all)) = intake.head.filter(|_| asked && offset == intake.got) else { return };
        if bytes.is_empty() || bytes.len() as u64 > all - offset {
            self.look_elsewhere();
            return out.note(Note::Malformed(from, "a piece that is not of the state"));
        }
        intake.tries = 0;
        if let Some(asked) = intake.asked {
            let took = self.now.since(asked).times(PATIENCE);
            intake.patience = took.max(self.settings.retry.times(2));
        }
        intake.asked = Some(self.now);
        intake.retry_at = self.now + intake.patience;
        self.install(bytes, out);
        let offset = self.intake.got;
        if offset < all {
            self.post(from, PacketItem::Want { attempt, offset });
        }
    }

    /// Gives the application a piece of its new state, unless it is the last.
    fn install(&mut self, bytes: &[u8], out: &mut Outbox<Messages<VsyncPacket>>) {
        let Some((position, all)) = self.intake.head else { return };
        let first = self.intake.got == 0;
        self.intake.got += bytes.len() as u64;
        if self.intake.got == all {
            self.intake.last = Some(Arc::from(bytes));
            // Nothing more is asked for.
            self.intake.retry_at = Time::NEVER;
            return;
        }
        let piece = out.fill(|to| to.extend_from_slice(bytes));
        out.push(Output::Install { piece, first, last: false, position });
    }

    /// Gives the application the last piece of its new state, and what was held back, once this process
    /// has delivered all that is in it.
    pub(super) fn go_live(&mut self, out: &mut Outbox<Messages<VsyncPacket>>) {
        let Some((position, all)) = self.intake.head.filter(|_| !self.live) else { return };
        if self.inner.status().delivered < position {
            return;
        }
        let Some(bytes) = self.intake.last.take() else { return };
        let first = bytes.len() as u64 == all;
        let piece = out.fill(|to| to.extend_from_slice(&bytes));
        out.push(Output::Install { piece, first, last: true, position });
        self.installs += 1;
        self.live = true;
        let held = core::mem::take(&mut self.held);
        self.held.upto = position;
        for (delivery, bytes) in held.queue {
            if delivery.position > position {
                let Delivery { msg, dst, position, .. } = delivery;
                out.deliver(msg, dst, position, |to| to.extend_from_slice(&bytes));
            }
        }
        let attempt = self.intake.attempt;
        if let Some(donor) = self.intake.donor {
            self.post(donor.pid, PacketItem::Thanks { attempt });
        }
    }

    /// The application has a state in force that holds every delivery up to `position`. One that was given
    /// before the last says nothing of that, also at the same position.
    pub(super) fn on_installed(
        &mut self,
        position: u64,
        installs: u64,
        out: &mut Outbox<Messages<VsyncPacket>>,
    ) {
        let awaited = self.intake.head.map_or(0, |(position, _)| position);
        let is_last = installs >= self.installs && position >= awaited;
        if self.live && !self.installed && is_last {
            self.installed = true;
            out.event(ProtocolEvent::CaughtUp(position));
        }
    }
}

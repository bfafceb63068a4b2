//! [MRP 5.2] The state of another replica of the group, for one that cannot get what it lacks from
//! acceptors any more.

use super::message::{RingMessage, RingPacket};
use super::process::MultiRing;
use super::topology::MergePosition;
use alloc::sync::Arc;
use alloc::vec::Vec;
use amcast_core::messages::Messages;
use amcast_core::step::{Note, Ticket};
use amcast_core::{Outbox, Output, Pid, ProtocolEvent, Span, Time};

/// Marks the tickets of captures.
const CAPTURE: u64 = 1 << 61;

/// Bytes of a piece of state.
const PIECE_BYTES: u64 = 64 << 10;

/// The furthest point that makes sense.
const MERGED_MAX: u64 = 1 << 51;

/// How many times as long as `retry` an answer is waited for, at least and at most.
const PATIENCE: (u64, u64) = (8, 256);

/// But at most not less than this, however short `retry` is: who gives up before an answer can be there gives up
/// for ever.
const PATIENCE_LONGEST: Span = Span::secs(1);

/// The state on its way to this process.
#[derive(Clone, Debug, Default)]
pub(super) struct Intake {
    /// Whether this process needs one.
    pub(super) wanted: bool,
    /// Grows with each attempt.
    attempt: u32,
    /// By rank: the position that each offers.
    offers: Vec<Option<u64>>,
    donor: Option<Pid>,
    /// The position, point and size of what comes.
    head: Option<(u64, MergePosition, u64)>,
    got: u64,
    asked_at: Option<Time>,
    patience: u64,
    /// The position of the state that came and is not in force yet.
    pub(super) installing: Option<u64>,
}

/// A state that this process gives to another.
#[derive(Clone, Copy, Debug)]
pub(super) struct Donation {
    attempt: u32,
    life: u32,
    ticket: Ticket,
    least: u64,
    head: Option<(u64, MergePosition, u64)>,
    /// When the reader asked for something last.
    asked_at: Time,
}

impl MultiRing {
    /// This process lacks state that acceptors do not have any more.
    pub(super) fn want_state(&mut self, out: &mut Outbox<Messages<RingPacket>>) {
        if !self.intake.wanted {
            self.intake.wanted = true;
            self.intake.asked_at = None;
            self.intake.donor = None;
            out.event(ProtocolEvent::Lagging);
            out.mark("multiring-wants-state");
        }
    }

    fn patience(&self) -> Span {
        let doubled = self.intake.patience.saturating_sub(1).min(16);
        self.config.retry.times(PATIENCE.0 << doubled).min(self.longest_wait())
    }

    /// How long an answer, or the next question of a reader, is waited for at the most.
    fn longest_wait(&self) -> Span {
        self.config.retry.times(PATIENCE.1).max(PATIENCE_LONGEST)
    }

    /// When a donation that nobody asks for is over.
    pub(super) fn donations_at(&self) -> Time {
        let ends = self.donations.iter().flatten();
        let patience = self.longest_wait();
        ends.map(|d| d.asked_at + patience).min().unwrap_or(Time::NEVER)
    }

    /// When to ask again.
    pub(super) fn intake_at(&self) -> Time {
        match self.intake.asked_at {
            _ if !self.intake.wanted => Time::NEVER,
            None => self.now,
            Some(at) => at + self.patience(),
        }
    }

    /// Asks all replicas of the group which state they have, again and again.
    pub(super) fn ask_for_state(&mut self) {
        if self.intake_at() > self.now {
            return;
        }
        self.intake.patience += 1;
        self.intake.attempt += 1;
        self.intake.asked_at = Some(self.now);
        (self.intake.donor, self.intake.head, self.intake.got) = (None, None, 0);
        self.intake.offers = alloc::vec![None; self.config.cluster.replicas()];
        let attempt = self.intake.attempt;
        for p in self.group_peers() {
            self.send(p, RingMessage::Ask { attempt });
        }
    }

    pub(super) fn on_ask(
        &mut self,
        from: Pid,
        attempt: u32,
        out: &mut Outbox<Messages<RingPacket>>,
    ) {
        // Who asks anew has given up what it was given.
        if let Some(rank) = self.rank_of(from) {
            self.end_donation(rank, out);
        }
        if self.has_state() {
            let position = self.merge.applied;
            self.send(from, RingMessage::Offer { attempt, position });
        }
    }

    /// [MRP 5.2] With offers of a quorum `Q_R`, this process included, the best one is taken
    /// (predicate 3).
    pub(super) fn on_offer(&mut self, from: Pid, attempt: u32, position: u64) {
        let quorum = self.config.cluster.quorum();
        let Some(rank) = self.rank_of(from) else { return };
        let intake = &mut self.intake;
        if !intake.wanted || intake.attempt != attempt || intake.donor.is_some() {
            return;
        }
        // Before it has asked there is no place for one.
        let Some(place) = intake.offers.get_mut(rank) else { return };
        *place = Some(position);
        let offers = intake.offers.iter().enumerate();
        let offers: Vec<(u64, usize)> = offers.filter_map(|(r, o)| o.map(|o| (o, r))).collect();
        if offers.len() + 1 < quorum.max(2) {
            return;
        }
        // [MRP 3:6,8]
        let best = offers.into_iter().max_by_key(|&(position, _)| position);
        let Some((_, rank)) = best.filter(|&(position, _)| position >= self.merge.delivered) else {
            return;
        };
        let donor = self.config.cluster.replica(self.group, rank);
        self.intake.donor = Some(donor);
        let least = self.merge.delivered;
        self.send(donor, RingMessage::Take { attempt, least });
    }

    pub(super) fn on_take(
        &mut self,
        from: Pid,
        attempt: u32,
        least: u64,
        out: &mut Outbox<Messages<RingPacket>>,
    ) {
        let Some(rank) = self.rank_of(from).filter(|_| self.has_state()) else { return };
        self.end_donation(rank, out);
        self.captures += 1;
        let ticket = Ticket(CAPTURE | (rank as u64) << 32 | u64::from(self.captures));
        let life = self.incarnations[from.index()];
        let (head, asked_at) = (None, self.now);
        self.donations[rank] = Some(Donation { attempt, life, ticket, least, head, asked_at });
        out.push(Output::Capture { ticket, reader: from });
    }

    pub(super) fn end_donation(&mut self, rank: usize, out: &mut Outbox<Messages<RingPacket>>) {
        if let Some(donation) = self.donations[rank].take() {
            out.push(Output::Release { ticket: donation.ticket });
        }
    }

    /// Forgets donations to those that are gone.
    pub(super) fn end_donations(&mut self, out: &mut Outbox<Messages<RingPacket>>) {
        let patience = self.longest_wait();
        for rank in 0..self.donations.len() {
            let reader = self.config.cluster.replica(self.group, rank);
            let gone = self.donations[rank].is_some_and(|d| {
                d.life != self.incarnations[reader.index()]
                    || self.now >= d.asked_at + patience
                    || self.heartbeat.suspects(self.now, reader.index())
            });
            if gone {
                self.end_donation(rank, out);
            }
        }
    }

    /// For whom the capture with this ticket is.
    fn reader(&self, ticket: Ticket) -> Option<usize> {
        let rank = (ticket.0 & !CAPTURE) >> 32;
        let donation = self.donations.get(rank as usize)?.as_ref()?;
        (donation.ticket == ticket).then_some(rank as usize)
    }

    pub(super) fn on_captured(
        &mut self,
        ticket: Ticket,
        position: u64,
        bytes: u64,
        out: &mut Outbox<Messages<RingPacket>>,
    ) {
        let point = self.merge.merge_position_at(position);
        let Some(rank) = self.reader(ticket) else { return };
        let Some(donation) = &mut self.donations[rank] else { return };
        if position < donation.least {
            return self.end_donation(rank, out);
        }
        donation.head = Some((position, point, bytes));
        let attempt = donation.attempt;
        let reader = self.config.cluster.replica(self.group, rank);
        self.send(reader, RingMessage::State { attempt, position, point, bytes });
    }

    pub(super) fn on_state(
        &mut self,
        from: Pid,
        attempt: u32,
        head: (u64, MergePosition, u64),
        out: &mut Outbox<Messages<RingPacket>>,
    ) {
        let (position, point, bytes) = head;
        let asked = self.intake.attempt == attempt && self.intake.donor == Some(from);
        if !asked || self.intake.head.is_some() || !self.intake.wanted {
            return;
        }
        let strange = point < MergePosition::of(position) || point.merged > MERGED_MAX;
        if position < self.merge.delivered || strange {
            return out.note(Note::Malformed(from, "a state older than asked for"));
        }
        self.intake.head = Some((position, point, bytes));
        self.intake.asked_at = Some(self.now);
        if bytes == 0 {
            self.install(&[], out);
        } else {
            self.send(from, RingMessage::Need { attempt, offset: 0 });
        }
    }

    pub(super) fn on_need(
        &mut self,
        from: Pid,
        attempt: u32,
        offset: u64,
        out: &mut Outbox<Messages<RingPacket>>,
    ) {
        let Some(rank) = self.rank_of(from) else { return };
        let now = self.now;
        let Some(donation) = self.donations[rank].as_mut().filter(|d| d.attempt == attempt) else {
            return;
        };
        donation.asked_at = now;
        let Some((_, _, bytes)) = donation.head.filter(|(_, _, bytes)| offset < *bytes) else {
            return;
        };
        let bytes = PIECE_BYTES.min(bytes - offset) as u32;
        out.push(Output::Piece { ticket: donation.ticket, offset, bytes });
    }

    /// The application gives a piece of a state that was captured.
    pub(super) fn on_own_piece(&mut self, ticket: Ticket, offset: u64, bytes: &[u8]) {
        let Some(rank) = self.reader(ticket) else { return };
        let Some(donation) = self.donations[rank] else { return };
        let reader = self.config.cluster.replica(self.group, rank);
        let (attempt, bytes) = (donation.attempt, Arc::from(bytes));
        self.send(reader, RingMessage::Piece { attempt, offset, bytes });
    }

    pub(super) fn on_piece(
        &mut self,
        from: Pid,
        (attempt, offset): (u32, u64),
        bytes: &[u8],
        out: &mut Outbox<Messages<RingPacket>>,
    ) {
        let intake = &mut self.intake;
        let asked = intake.wanted && intake.attempt == attempt && intake.donor == Some(from);
        let Some((_, _, all)) = intake.head.filter(|_| asked && offset == intake.got) else {
            return;
        };
        if bytes.is_empty() || bytes.len() as u64 > all - offset {
            return out.note(Note::Malformed(from, "a piece that is not of the state"));
        }
        intake.asked_at = Some(self.now);
        self.install(bytes, out);
        if self.intake.wanted {
            let offset = self.intake.got;
            self.send(from, RingMessage::Need { attempt, offset });
        }
    }

    /// Gives the application a piece of its new state; with the last one, goes on from there.
    fn install(&mut self, bytes: &[u8], out: &mut Outbox<Messages<RingPacket>>) {
        let Some((position, point, all)) = self.intake.head else { return };
        let first = self.intake.got == 0;
        self.intake.got += bytes.len() as u64;
        let last = self.intake.got == all;
        let piece = out.fill(|to| to.extend_from_slice(bytes));
        out.push(Output::Install { piece, first, last, position });
        if !last {
            return;
        }
        let (attempt, donor) = (self.intake.attempt, self.intake.donor);
        (self.intake.wanted, self.intake.patience) = (false, 0);
        self.intake.installing = Some(position);
        self.merge.install(position, point);
        if let Some(donor) = donor {
            self.send(donor, RingMessage::Thanks { attempt });
        }
    }

    pub(super) fn on_thanks(
        &mut self,
        from: Pid,
        attempt: u32,
        out: &mut Outbox<Messages<RingPacket>>,
    ) {
        if let Some(rank) = self.rank_of(from)
            && self.donations[rank].is_some_and(|d| d.attempt == attempt)
        {
            self.end_donation(rank, out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::persistence::AcceptorStorage;
    use super::super::{MEMORY, MultiRingConfig};
    use super::*;
    use alloc::string::String;
    use amcast_core::messages::In;
    use amcast_core::{Entry as _, Input, Protocol, RawConfig};

    /// One of three replicas that has lost its memory and asks for a state.
    fn reader(set: &[(&str, &str)]) -> MultiRing {
        let mut raw = RawConfig { groups: 1, clients: 0, ..RawConfig::default() };
        raw.set =
            set.iter().map(|(name, value)| (String::from(*name), String::from(*value))).collect();
        let config = raw.check(MEMORY.about().params).expect("a sound configuration");
        let shape =
            Arc::new(MultiRingConfig::of(AcceptorStorage::Memory, &config).expect("a sound shape"));
        let mut reader = MultiRing::new(Pid(0), &shape);
        step(&mut reader, Time(1), Input::Start { incarnation: 1 });
        reader.want_state(&mut Outbox::default());
        reader
    }

    fn step(reader: &mut MultiRing, now: Time, input: Input<'_, Messages<RingPacket>>) {
        reader.step(now, (), input, &mut Outbox::default());
    }

    #[test]
    fn an_offer_that_nobody_asked_for_changes_nothing() {
        let mut reader = reader(&[]);
        let word = RingMessage::Offer { attempt: 0, position: 7 };
        step(
            &mut reader,
            Time(1),
            Input::Medium(In::From(Pid(1), RingPacket { incarnation: 0, message: word })),
        );
        assert!(reader.intake.wanted && reader.intake.donor.is_none());
    }

    #[test]
    fn an_answer_is_waited_for_ever_longer_up_to_a_second_however_short_a_retry_is() {
        let mut reader =
            reader(&[("retry_us", "200"), ("heartbeat_us", "50"), ("suspect_us", "200")]);
        let mut waits = Vec::new();
        for _ in 0..14 {
            reader.now = reader.intake_at();
            reader.ask_for_state();
            waits.push(reader.intake_at().since(reader.now));
        }
        assert!(waits.windows(2).all(|pair| pair[0] <= pair[1]), "{waits:?}");
        assert!(waits[0] < Span::millis(10));
        assert_eq!(waits.last(), Some(&Span::secs(1)));
    }
}

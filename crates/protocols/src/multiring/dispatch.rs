//! Inbound dispatch: hands each message to the role that it is for.

use super::message::{PeerProgress, RingMessage, RingPacket};
use super::phase1::PromisedState;
use super::process::MultiRing;
use super::topology::RingId;
use super::value::{RingBallot, count};
use amcast_core::messages::Messages;
use amcast_core::step::Note;
use amcast_core::{Outbox, Pid};

impl MultiRing {
    /// Whether a message of this incarnation is current: no later incarnation of its sender is known.
    pub(super) fn is_current_incarnation(&mut self, from: Pid, incarnation: u32) -> bool {
        let held = self.incarnations[from.index()];
        if incarnation > held {
            self.incarnations[from.index()] = incarnation;
            self.links.restarted(self.now, from);
            self.rings.iter_mut().flatten().for_each(|ring| ring.restarted(from));
            self.reconnected(from);
        }
        incarnation >= held
    }

    /// The connection to `p` is new: messages that were sent on the old one may be lost.
    pub(super) fn reconnected(&mut self, p: Pid) {
        self.rings.iter_mut().flatten().for_each(|ring| ring.reconnected(p));
        self.proposers.iter_mut().for_each(|proposer| proposer.reconnected(p));
    }

    /// Dispatches a message of a current incarnation.
    pub(super) fn dispatch(
        &mut self,
        from: Pid,
        message: RingMessage,
        out: &mut Outbox<Messages<RingPacket>>,
    ) {
        let mut wrong = None;
        match message {
            RingMessage::Heartbeat { count, eligible, broken, rings } => {
                self.links.report(from, broken);
                self.on_heartbeat(from, count, eligible, &rings);
            }
            RingMessage::Propose { ring, proposals } => {
                if count(&proposals, |sender| sender == from).is_some() {
                    self.with_ring(ring, |r, cx| r.on_propose(from, &proposals, cx));
                } else {
                    wrong = Some("bytes that are no proposals, or of another sender");
                }
            }
            RingMessage::ForwardedPropose { ring, sender, proposals } => {
                let one = sender.index() < self.config.cluster.processes();
                if one && count(&proposals, |s| s == sender).is_some() {
                    self.with_ring(ring, |r, cx| {
                        r.on_forwarded_propose(from, sender, proposals, cx)
                    });
                } else {
                    wrong = Some("bytes that are no proposals, or of another sender");
                }
            }
            RingMessage::ProposalsDecided { ring, incarnation, upto } => {
                if let Some(p) = self.proposers.get_mut(usize::from(ring))
                    && incarnation == self.incarnation
                {
                    p.on_decided(upto, self.now);
                }
            }
            RingMessage::CurrentBallot { ring, ballot } => {
                self.on_current_ballot(from, ring, ballot)
            }
            RingMessage::LevelRequest { ring, upto } => self.on_level_request(ring, upto),
            RingMessage::Phase2(phase2) => {
                let id = phase2.ring;
                wrong =
                    self.with_ring(id, |r, cx| r.on_phase2(from, phase2, cx)).and_then(Result::err);
            }
            RingMessage::Phase2Gap { ring, ballot, from: at } => {
                self.with_ring(ring, |r, cx| r.on_phase2_gap(from, (ballot, at), cx));
            }
            RingMessage::RetransmitRequest { ring, from: at, table } => {
                self.on_retransmit_request(from, ring, (at, table), out)
            }
            RingMessage::Retransmission { ring, decided } => {
                let done = self.with_ring(ring, |r, cx| r.on_retransmission(from, decided, cx));
                wrong = done.and_then(Result::err);
            }
            RingMessage::DecidedSkip { ring, entry } => {
                let done = self.with_ring(ring, |r, cx| r.on_decided_skip(from, entry, cx));
                wrong = done.and_then(Result::err);
            }
            other => wrong = self.dispatch_requests(from, other, out).err(),
        }
        if let Some(why) = wrong {
            out.note(Note::Malformed(from, why));
        }
    }

    /// Dispatches elections, phase 1, read indexes, and forwarded messages.
    fn dispatch_requests(
        &mut self,
        from: Pid,
        message: RingMessage,
        out: &mut Outbox<Messages<RingPacket>>,
    ) -> Result<(), &'static str> {
        match message {
            RingMessage::PreVote { ballot, .. } | RingMessage::Prepare { ballot, .. }
                if ballot.coordinator() != Some(from) =>
            {
                return Err("a ballot of another process");
            }
            RingMessage::PreVote { ring, ballot } => {
                self.with_ring(ring, |r, cx| r.on_pre_vote(from, ballot, cx));
            }
            RingMessage::PreVoteGranted { ring, ballot } => {
                self.with_ring(ring, |r, cx| r.on_pre_vote_granted(from, ballot, cx.now));
            }
            RingMessage::Prepare { ring, ballot } => {
                self.with_ring(ring, |r, cx| r.on_prepare(from, ballot, cx));
            }
            RingMessage::PromisedEntry { ring, ballot, entry } => {
                self.with_ring(ring, |r, _| r.on_promised_entry(from, ballot, entry));
            }
            RingMessage::Promise { ring, ballot, learned, adopted, count, storage_epochs } => {
                let promised = PromisedState::head(learned, adopted, storage_epochs);
                let done =
                    self.with_ring(ring, |r, cx| r.on_promise(from, ballot, count, promised, cx));
                return done.unwrap_or(Ok(()));
            }
            RingMessage::Reject { ring, promised } => {
                self.with_ring(ring, |r, cx| r.on_reject(from, promised, cx));
            }
            RingMessage::ReadIndexRequest { round } => self.on_read_index_request(from, round),
            RingMessage::ReadIndexResponse { incarnation, round, rings }
                if incarnation == self.incarnation =>
            {
                return self.on_read_index_response(from, round, &rings);
            }
            RingMessage::ReadIndexResponse { .. } => {}
            RingMessage::Forwarded(forwarded) => return self.on_forwarded(from, *forwarded, out),
            other => self.dispatch_state_transfer(from, other, out),
        }
        Ok(())
    }

    fn dispatch_state_transfer(
        &mut self,
        from: Pid,
        message: RingMessage,
        out: &mut Outbox<Messages<RingPacket>>,
    ) {
        match message {
            RingMessage::RecoveryRequest { .. }
            | RingMessage::RecoveryEntry { .. }
            | RingMessage::RecoveryResponse { .. } => {
                self.dispatch_recovery((from, None), message, out);
            }
            RingMessage::StateQuery { attempt } => self.on_state_query(from, attempt),
            RingMessage::StateOffer { attempt, position, point } => {
                self.on_state_offer(from, attempt, (position, point), out);
            }
            _ => out.note(Note::Malformed(from, "a message that is not of state transfer")),
        }
    }

    fn on_heartbeat(
        &mut self,
        from: Pid,
        count: u64,
        eligible: bool,
        rings: &[(RingId, PeerProgress)],
    ) {
        self.links.observe(self.now, from, count, eligible);
        for &(id, standing) in rings {
            if let Some(Some(ring)) = self.rings.get_mut(usize::from(id))
                && let Some(at) = ring.topology.member(from)
            {
                let held = &mut ring.membership.peers[at];
                held.learned = held.learned.max(standing.learned);
                held.applied = held.applied.max(standing.applied);
                held.trimmable = held.trimmable.max(standing.trimmable);
                self.start_goals.hear(&ring.topology, id, from, standing.learned);
            }
        }
    }

    /// The ring is in this ballot, as far as `from` knows.
    fn on_current_ballot(&mut self, from: Pid, ring: RingId, ballot: RingBallot) {
        if let Some(p) = self.proposers.get_mut(usize::from(ring))
            && ballot.is_of(&self.config.rings[usize::from(ring)].acceptors)
        {
            p.learn_ballot(ballot);
            if ballot.coordinator() == Some(from) {
                // It takes proposals from now on; those that it was sent before are lost.
                p.reconnected(from);
            }
        }
    }

    /// A process that is asked and does not coordinate the ring sends the request on.
    fn on_level_request(&mut self, id: RingId, upto: u64) {
        let Some(Some(ring)) = self.rings.get_mut(usize::from(id)) else { return };
        if ring.coordinates() {
            ring.on_level_request(upto);
        } else if ring.current.end < upto {
            self.levelling.requests.push((id, upto));
        }
    }
}
